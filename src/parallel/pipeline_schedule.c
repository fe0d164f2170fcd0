/*
 * pipeline_schedule.c - the stages of a pipeline at work on the micro-batches of a batch, each on its device's thread.
 * Layer: parallel.
 *
 * Note [Schedule]
 * Every stage takes forwards, and backwards, in the order of the micro-batches; a schedule only says how many
 * micro-batches a stage may have between the two: `limit`. It goes forward while it has fewer, else backward. With four
 * stages (rows) and six micro-batches, 1F1B, of limit stages - stage:
 *
 *     0 1 2 3 . . . 0 4 1 5 2 . 3 . 4 . 5      numbers going up first: forwards; each again: its backward. The dots
 *       0 1 2 . . 0 3 1 4 2 5 3 . 4 . 5        are the bubble.
 *         0 1 . 0 2 1 3 2 4 3 5 4 . 5
 *           0 0 1 1 2 2 3 3 4 4 5 5
 *
 * GPipe's limit is all of them. The order in which a parameter's gradients are added is the same in both: that of the
 * micro-batches.
 *
 * Between two stages the graph is cut: a stage gets leaves, backward leaves the gradients of those in them, and these
 * go to the stage before, whose backward begins with them. So every backward is one of a single device, on its thread.
 * Without training the graph goes through all stages, and yk_backward finds its way by itself.
 *
 * Invariant: a slot of a `handover` belongs to the stage that fills it until the count beside it has passed it, then to
 * the other.
 */
#include <pthread.h>
#include <stdlib.h>

#include "device/device_thread.h"
#include "ops/op.h"
#include "parallel/pipeline_parallel.h"

/* The tensors that a stage and the next exchange. Micro-batch k has the slots from k * width. */
typedef struct handover {
    int width;
    yk_tensor **activations; /* references: the outputs; once they were received, the leaves made of them */
    yk_tensor **gradients;   /* references, on the first stage's device; NULL: zero */
    atomic_int sent, returned;
} handover;

typedef struct run {
    yk__pipeline *p;
    yk__pipeline_batch *batch;
    handover between[YK__MOST_STAGES]; /* stage s and s + 1 */
    yk_tensor **roots;                 /* [stage * chunks + k], references: where backward of a micro-batch begins */
    /* Messages of this process's last stage to the next rank, and of its first one to the rank before. */
    yk__pipeline_sends onwards, back;
    atomic_bool failed, gave_up; /* gave_up: the group knows */
    pthread_mutex_t lock;
    pthread_cond_t changed;
} run;

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

/* True when the count has passed k; false where a stage has failed. Spins a while, then sleeps. */
static bool await(run *r, atomic_int *count, int k)
{
    for (int spin = yk__device_spins(); spin > 0 && atomic_load(count) <= k && !atomic_load(&r->failed); spin--)
        yk__device_pause();
    if (atomic_load(count) <= k) {
        pthread_mutex_lock(&r->lock);
        while (atomic_load(count) <= k && !atomic_load(&r->failed))
            pthread_cond_wait(&r->changed, &r->lock);
        pthread_mutex_unlock(&r->lock);
    }
    return !atomic_load(&r->failed);
}

static void advance(run *r, atomic_int *count)
{
    pthread_mutex_lock(&r->lock);
    atomic_fetch_add(count, 1);
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

static void give_up_for(run *r, const char *reason)
{
    pthread_mutex_lock(&r->lock);
    atomic_store(&r->failed, true);
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    if (r->p->group && !atomic_exchange(&r->gave_up, true))
        yk_process_group_abort(r->p->group, reason);
}

static void give_up(void *user)
{
    give_up_for(user, "a stage could not begin");
}

/* The next stage is another process's; the one before is. */
static bool sends_on(const yk__pipeline *p, int s)
{
    return s == p->first + p->own - 1 && s < p->count - 1;
}

static bool sends_back(const yk__pipeline *p, int s)
{
    return s == p->first && s > 0;
}

/* Waits until the next micro-batch's activations (`ahead`) or gradients have come for stage s; false where a stage of
 * this process has failed, or with an error. */
static bool await_tensors(run *r, int s, bool ahead, int k, yk_status *status)
{
    yk__pipeline *p = r->p;
    if (ahead ? s == 0 : s == p->count - 1)
        return !atomic_load(&r->failed);
    handover *h = &r->between[ahead ? s - 1 : s];
    if (!(ahead ? sends_back(p, s) : sends_on(p, s)))
        return await(r, ahead ? &h->sent : &h->returned, k);
    if (atomic_load(&r->failed))
        return false;
    yk_tensor **slots = (ahead ? h->activations : h->gradients) + k * h->width;
    *status = yk__pipeline_receive(p, slots, h->width, p->devices[s], yk__pipeline_rank(p, ahead ? s - 1 : s + 1),
                                   ahead ? YK__FORWARD_TAG : YK__BACKWARD_TAG);
    if (!*status)
        return true;
    if (atomic_load(&r->failed)) { /* a consequence of what another stage of this process reports */
        yk_clear_error();
        *status = YK_OK;
    } else {
        yk__error_prefix("micro-batch %d", k);
    }
    return false;
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

static void tensor_drop(yk_tensor **slot)
{
    yk_tensor_release(*slot);
    *slot = NULL;
}

/* Micro-batch k of x on the device; owned by the scope. */
static yk_tensor *micro_batch(const run *r, yk_tensor *x, int k, yk_device device)
{
    int64_t start = yk__micro_batch_start(r->p, r->batch->samples, k);
    int64_t end = yk__micro_batch_start(r->p, r->batch->samples, k + 1);
    yk_tensor *part = yk_narrow(x, r->p->dim, start, end - start);
    return part ? yk__on_device(part, device) : NULL;
}

/* The tensor of a slot on the stage's device, owned by the scope. In training the slot becomes a leaf, and what is
 * given a tensor made of it, so that a stage may write its input as it could without a pipeline. */
static yk_tensor *receive(yk_tensor **slot, yk_device device, bool train)
{
    yk_tensor *sent = *slot;
    if (!train) {
        yk_tensor *x = yk__on_device(sent, device);
        tensor_drop(slot);
        return x;
    }
    *slot = yk__raw_on_device(sent, device);
    bool wanted = yk__wants_grad(sent);
    yk_tensor_release(sent);
    if (!*slot || (wanted && yk_set_requires_grad(*slot, true)))
        return NULL;
    return wanted ? yk__record_on_device(yk__tensor_alias(*slot), *slot) : yk__scope_own(yk_tensor_retain(*slot));
}

static yk_status take_inputs(run *r, int s, int k, yk_tensor **in)
{
    const yk__pipeline_batch *b = r->batch;
    if (s == 0) {
        for (int i = 0; i < b->n_inputs; i++) {
            in[i] = b->inputs[i] ? micro_batch(r, b->inputs[i], k, r->p->devices[0]) : NULL;
            if (b->inputs[i] && !in[i])
                return yk__error_code();
        }
        return YK_OK;
    }
    handover *from = &r->between[s - 1];
    for (int i = 0; i < from->width; i++) {
        in[i] = receive(&from->activations[k * from->width + i], r->p->devices[s], b->train);
        if (!in[i])
            return yk__error_code();
    }
    return YK_OK;
}

static yk_status check_outputs(const run *r, int s, yk_tensor *const *out, int n_out)
{
    for (int o = 0; o < n_out; o++) {
        char there[16];
        if (!yk_device_equal(yk__device_of(out[o]), r->p->devices[s]))
            return yk__fail(YK_ERR_DEVICE, "output %d is on %s, not on the stage's device", o,
                            yk_device_format(yk__device_of(out[o]), there));
    }
    return YK_OK;
}

/* Node whose backward gives the outputs of a micro-batch the gradients that came back for them. */
typedef struct cut {
    yk_tensor **gradients;
    int width;
} cut;

static yk_status cut_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    (void)gout;
    const cut *c = yk__context(node);
    for (int i = 0; i < c->width; i++)
        grads[i] = yk__needs_grad(node, i) ? yk_tensor_retain(c->gradients[i]) : NULL;
    return YK_OK;
}

static yk_status hand_on(run *r, int s, int k, yk_tensor **out)
{
    static const yk__op op = {.name = "pipeline", .backward = cut_backward};
    handover *to = &r->between[s];
    bool away = sends_on(r->p, s);
    for (int o = 0; o < to->width && !away; o++)
        to->activations[k * to->width + o] = yk_tensor_retain(out[o]);
    if (r->batch->train) {
        cut context = {.gradients = to->gradients + k * to->width, .width = to->width};
        yk_tensor *root = yk__tensor_new(0, NULL, NULL, YK_F32, r->p->devices[s]);
        root = yk__record(root, &op, to->width, out, 0, NULL, &context, sizeof(context));
        if (!root)
            return yk__error_code();
        r->roots[s * r->p->chunks + k] = yk_tensor_retain(root);
    }
    if (away)
        return yk__pipeline_send(r->p, &r->onwards, out, to->width, yk__pipeline_rank(r->p, s + 1), YK__FORWARD_TAG);
    advance(r, &to->sent);
    return YK_OK;
}

static yk_status make_loss(run *r, int k, yk_tensor *output)
{
    const yk__pipeline *p = r->p;
    yk_tensor *target = r->batch->target ? micro_batch(r, r->batch->target, k, p->devices[p->count - 1]) : NULL;
    if (r->batch->target && !target)
        return yk__error_code();
    yk_tensor *loss = p->criterion(output, target, p->criterion_user);
    if (!loss)
        return yk__error_code() ? yk__error_code()
                                : yk__fail(YK_ERR_CALLBACK, "the criterion gave NULL without an error");
    char shape[200];
    if (loss->ndim)
        return yk__fail(YK_ERR_SHAPE, "the criterion gave shape %s, not a loss without dimensions",
                        yk_shape_format(loss, shape, sizeof(shape)));
    r->roots[(p->count - 1) * p->chunks + k] = yk_tensor_retain(loss);
    r->batch->results[k] = yk__tensor_alias(loss);
    return r->batch->results[k] ? YK_OK : yk__error_code();
}

static yk_status keep_outputs(run *r, int k, yk_tensor **out)
{
    const yk__pipeline_batch *b = r->batch;
    for (int o = 0; o < b->n_outputs; o++)
        b->results[k * b->n_outputs + o] = yk_tensor_retain(out[o]);
    return YK_OK;
}

static yk_status forward(run *r, int s, int k)
{
    bool last = s == r->p->count - 1, train = r->batch->train;
    int n_in = s ? r->between[s - 1].width : r->batch->n_inputs;
    int n_out = !last ? r->between[s].width : train ? 1 : r->batch->n_outputs;
    yk_tensor **in = yk__calloc((size_t)(n_in + n_out), sizeof(*in));
    if (!in)
        return YK_ERR_MEMORY;
    yk_tensor **out = in + n_in;
    yk_scope scope = yk_scope_begin();
    yk_status status = take_inputs(r, s, k, in);
    if (!status)
        status = yk_forward_list(r->p->stages[s], in, n_in, out, n_out);
    if (!status)
        status = check_outputs(r, s, out, n_out);
    if (!status)
        status = !last ? hand_on(r, s, k, out) : train ? make_loss(r, k, out[0]) : keep_outputs(r, k, out);
    yk_scope_end(scope);
    free(in);
    if (status)
        yk__error_prefix("micro-batch %d", k);
    return status;
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

static yk_status send_gradients(run *r, int s, int k)
{
    handover *to = &r->between[s - 1];
    yk_tensor **leaves = &to->activations[k * to->width], **gradients = &to->gradients[k * to->width];
    for (int i = 0; i < to->width; i++)
        gradients[i] = yk_tensor_retain(yk_grad(leaves[i]));
    yk_status status =
        yk__pipeline_send(r->p, &r->back, gradients, to->width, yk__pipeline_rank(r->p, s - 1), YK__BACKWARD_TAG);
    for (int i = 0; i < to->width; i++) {
        tensor_drop(&gradients[i]);
        tensor_drop(&leaves[i]);
    }
    return status;
}

/* Gives the gradients that arrived at the leaves of stage s to the stage before. */
static yk_status return_gradients(run *r, int s, int k)
{
    handover *to = &r->between[s - 1];
    if (sends_back(r->p, s))
        return send_gradients(r, s, k);
    for (int i = k * to->width; i < (k + 1) * to->width; i++) {
        yk_tensor *grad = yk_grad(to->activations[i]);
        if (grad && !(to->gradients[i] = yk__raw_on_device(grad, r->p->devices[s - 1])))
            return yk__error_code();
        tensor_drop(&to->activations[i]);
    }
    advance(r, &to->returned);
    return YK_OK;
}

static yk_status backward_of_loss(const run *r, yk_tensor *loss, int k)
{
    yk_tensor *weight = yk__tensor_full_like(loss, yk__micro_batch_weight(r->p, r->batch->samples, k));
    yk_status status =
        weight ? yk_backward_with(loss, YK_OPTIONS(yk_backward_options, .gradient = weight)) : yk__error_code();
    yk_tensor_release(weight);
    return status;
}

static yk_status backward_of_outputs(const run *r, yk_tensor *root, int s, int k)
{
    const handover *from = &r->between[s];
    bool any = false;
    for (int i = k * from->width; i < (k + 1) * from->width; i++)
        any = any || from->gradients[i];
    return any ? yk_backward(root) : YK_OK;
}

static yk_status backward(run *r, int s, int k)
{
    bool last = s == r->p->count - 1;
    yk_tensor **root = &r->roots[s * r->p->chunks + k];
    yk_status status = last ? backward_of_loss(r, *root, k) : backward_of_outputs(r, *root, s, k);
    tensor_drop(root);
    for (int i = 0; !last && i < r->between[s].width; i++)
        tensor_drop(&r->between[s].gradients[k * r->between[s].width + i]);
    if (!status && s > 0)
        status = return_gradients(r, s, k);
    if (status)
        yk__error_prefix("micro-batch %d", k);
    return status;
}

/* ---- a stage ----------------------------------------------------------------------------------------------------- */

/* The number of micro-batches that a stage may have between forward and backward. */
static int limit_of(const run *r, int s)
{
    bool all = !r->batch->train || r->p->schedule == YK_PIPELINE_GPIPE;
    return all || r->p->count - s > r->p->chunks ? r->p->chunks : r->p->count - s;
}

static yk_status run_stage(int s, void *user)
{
    run *r = user;
    yk__stage_clock *clock = &r->batch->clocks[s];
    int chunks = r->p->chunks, limit = limit_of(r, s), went = 0, came = 0;
    yk_status status = YK_OK;
    while (!status && (went < chunks || (r->batch->train && came < chunks))) {
        bool ahead = went < chunks && went - came < limit;
        if (!await_tensors(r, s, ahead, ahead ? went : came, &status))
            break;
        double began = yk__now();
        status = ahead ? forward(r, s, went) : backward(r, s, came);
        *(ahead ? &clock->forward : &clock->backward) += yk__now() - began;
        *(ahead ? &went : &came) += 1;
        clock->in_flight = went - came > clock->in_flight ? went - came : clock->in_flight;
    }
    const yk_error *error = status && r->p->group ? yk_last_error() : NULL;
    if (error) {
        char device[16], reason[sizeof(error->message) + 40];
        snprintf(reason, sizeof(reason), "stage %d on %s: %s", s, yk_device_format(r->p->devices[s], device),
                 error->message);
        give_up_for(r, reason);
    }
    return status;
}

/* ---- a batch ----------------------------------------------------------------------------------------------------- */

/* The handovers with a stage of this process: first_handover to end_handover - 1. */
static int first_handover(const yk__pipeline *p)
{
    return p->first ? p->first - 1 : 0;
}

static int end_handover(const yk__pipeline *p)
{
    return p->first + p->own < p->count ? p->first + p->own : p->count - 1;
}

static yk_status run_init(run *r)
{
    size_t chunks = (size_t)r->p->chunks;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    for (int s = first_handover(r->p); s < end_handover(r->p); s++) {
        handover *h = &r->between[s];
        h->width = r->p->tensors[s];
        h->activations = yk__calloc(chunks * (size_t)h->width, sizeof(*h->activations));
        h->gradients = yk__calloc(chunks * (size_t)h->width, sizeof(*h->gradients));
        if (!h->activations || !h->gradients)
            return YK_ERR_MEMORY;
    }
    r->roots = yk__calloc(chunks * (size_t)r->p->count, sizeof(*r->roots));
    return r->roots ? YK_OK : YK_ERR_MEMORY;
}

static void run_clear(run *r)
{
    for (int i = 0; r->roots && i < r->p->chunks * r->p->count; i++)
        yk_tensor_release(r->roots[i]);
    free(r->roots);
    for (int s = first_handover(r->p); s < end_handover(r->p); s++) {
        handover *h = &r->between[s];
        for (int i = 0; i < r->p->chunks * h->width; i++) {
            yk_tensor_release(h->activations ? h->activations[i] : NULL);
            yk_tensor_release(h->gradients ? h->gradients[i] : NULL);
        }
        free(h->activations);
        free(h->gradients);
    }
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
}

yk_status yk__pipeline_run(yk__pipeline *p, yk__pipeline_batch *batch)
{
    run r = {.p = p, .batch = batch};
    yk__parallel_work work = {.member = "stage", .first = p->first, .fn = run_stage, .failed = give_up, .user = &r};
    if (p->group) {
        work.random = &batch->random;
        work.drew = &batch->drew;
    }
    yk_status status = run_init(&r);
    if (!status)
        status = yk__parallel_run(p->devices + p->first, p->own, &work, NULL);
    else if (p->group)
        give_up_for(&r, "no memory");
    yk_status onwards = yk__pipeline_sends_end(&r.onwards, !status);
    yk_status back = yk__pipeline_sends_end(&r.back, !status && !onwards);
    run_clear(&r);
    return status ? status : onwards ? onwards : back;
}
