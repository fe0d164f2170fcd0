/*
 * train_queue.c - steps of `yoke train` on a device that carries work out later (a GPU). Layer: cli.
 *
 * The host queues a step and goes on to the next. The losses stay in the device's memory, and are read when something
 * is shown, logged or saved, together. Whether they are finite is found there, too: `fault` is 0, and NaN from the
 * first loss on that is not finite; from then on no step changes anything, and the host reports the step when it reads.
 * So what is saved, printed and logged is what a run would say that looks at each loss.
 *
 * Steps are recorded after a few that ran as they are, and replayed from then on (yk_graph), the last one of an epoch,
 * which may have fewer batches, or a smaller one at its end, apart from the others: batches are copied into tensors
 * that stay. What is neither runs as it is.
 *
 * Invariants: `position` on the device is n_losses once everything queued is done; steps[0 .. n_steps) are the last
 * n_steps steps of the run, whose losses are losses[0 .. n_losses).
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <yoke/parallel.h>

#include "base/core.h"
#include "base/log.h"
#include "cli/train/train.h"

/* LEAST: losses that are kept on the device, at least. MOST_PARTS: batches of a step that is recorded, all of which are
 * on the device at once. PATIENCE: runs in which a recording should have begun. LAST_WARM_UP: epochs whose last step
 * runs as it is before it is recorded: what other steps have to find out is known by then. */
enum { LEAST = 512, MOST_PARTS = 16, PATIENCE = 10, LAST_WARM_UP = 1 };

/* FULL: steps of full batches in all their parts; LAST: the last one of an epoch, where it differs; OTHER: any other,
 * which is never recorded. */
typedef enum kind { FULL, LAST, RECORDINGS, OTHER = RECORDINGS } kind;

/* A step that is queued, and its losses not yet read. */
typedef struct queued_step {
    int64_t samples, parts;
    double lr;
} queued_step;

struct train_queue {
    train_recording recordings[RECORDINGS];
    yk_tensor *losses;   /* (room): of the batches since the last read; over all ranks their sum, in f64 */
    yk_tensor *position; /* (1) i64: where in `losses` the next one goes */
    yk_tensor *one;      /* (1) i64 */
    yk_tensor *fault;    /* no dimensions: 0 or NaN; NULL with --allow-nan */
    yk_tensor *stay[MOST_PARTS][BATCH_TENSORS]; /* full batches are copied there; NULL before the first */
    yk_tensor *smaller[BATCH_TENSORS];          /* the one that is not full */
    int64_t last_parts;   /* batches of the last step of an epoch, as it is recorded; 0: none yet */
    bool last_is_smaller; /* the last of them is not full */
    yk_tensor *batch[MOST_PARTS][BATCH_TENSORS]; /* of the step: those above, or others */
    int64_t parts;                               /* batches of the step */
    queued_step *steps;                          /* (room) */
    double *values;                              /* (room): losses as they are read */
    int64_t room, n_steps, n_losses;
    double read_at;
    bool plain; /* steps cannot be recorded */
};

/* ---- what is queued ---------------------------------------------------------------------------------------------- */

/* Appends a batch's loss to those before, and notes whether it is finite. */
static yk_status note_loss(const train_job *r, yk_tensor *loss)
{
    const train_queue *q = r->queue;
    const int64_t shape[] = {1};
    bool before = yk_no_grad_begin();
    yk_tensor *value = yk_reshape(yk_detach(loss), 1, shape);
    yk_status status = YK_OK;
    if (r->ranks.world > 1) {
        value = yk_clone(yk_cast(value, YK_F64));
        status = value ? yk_all_reduce(value, YK_OP_SUM, NULL) : yk__error_code();
    }
    yk_tensor *sum = status ? NULL : yk_reshape(value, 0, NULL);
    if (!sum || !yk_scatter_dim_(q->losses, 0, q->position, value) || !yk_add_(q->position, q->one, 1) ||
        (q->fault && !yk_add_(q->fault, sum, 0)))
        status = yk__error_code();
    yk_no_grad_end(before);
    return status;
}

static yk_status queue_batch(train_job *r, yk_tensor *input, yk_tensor *target)
{
    train_queue *q = r->queue;
    yk_tensor *output, *loss = train_loss(r, r->learner.model, input, target, &output);
    yk_status status = loss ? note_loss(r, loss) : yk__error_code();
    if (status)
        return status;
    if (q->parts != 1)
        loss = yk_mul_scalar(loss, 1.0 / (double)q->parts);
    if (r->learner.scaler && q->fault) /* whose gradients are then found not to be finite */
        loss = yk_add(loss, q->fault);
    return yk_backward(r->learner.scaler ? yk_grad_scaler_scale(r->learner.scaler, loss) : loss);
}

static yk_status queue_part(train_job *r, int64_t part, yk_tensor *input, yk_tensor *target)
{
    bool alone = part < r->queue->parts - 1, before = alone && yk_no_sync_begin(r->learner.model);
    yk_scope scope = yk_scope_begin();
    yk_status status = queue_batch(r, input, target);
    yk_scope_end(scope);
    if (alone)
        yk_no_sync_end(r->learner.model, before);
    return status;
}

static yk_status queue_update(train_job *r)
{
    const train_queue *q = r->queue;
    if (r->learner.scaler) {
        yk_status status = yk_grad_scaler_step(r->learner.scaler, r->learner.optimizer, NULL);
        return status ? status : yk_grad_scaler_update(r->learner.scaler);
    }
    return q->fault ? yk_optimizer_step_unless(r->learner.optimizer, yk_cast(yk_ne(q->fault, q->fault), YK_I32))
                    : yk_optimizer_step(r->learner.optimizer);
}

/* A whole step of the batches in q->batch: what is recorded. */
static yk_status queue_all(void *user)
{
    train_job *r = user;
    const train_queue *q = r->queue;
    yk_status status = YK_OK;
    yk_optimizer_zero_grad(r->learner.optimizer);
    for (int64_t part = 0; part < q->parts && !status; part++)
        status = queue_part(r, part, q->batch[part][INPUT], q->batch[part][TARGET]);
    return status ? status : queue_update(r);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static bool is_full(const train_job *r, const yk_batch *batch)
{
    return batch->count == r->set->batch_size;
}

bool train_batch_stays(yk_tensor *stay[BATCH_TENSORS], const yk_batch *batch, yk_device device)
{
    yk_tensor *const from[BATCH_TENSORS] = {batch->input, batch->target};
    for (int i = 0; i < BATCH_TENSORS; i++) {
        if (!stay[i])
            stay[i] = yk_tensor_retain(yk_clone(yk_to(from[i], device)));
        else if (!yk_same_shape(stay[i], from[i]) || !yk_copy_(stay[i], from[i]))
            return false;
        if (!stay[i])
            return false;
    }
    return true;
}

/* Copies a batch into the tensors that stay for it; false where there are none. */
static bool keep(const train_job *r, int64_t part, const yk_batch *batch)
{
    train_queue *q = r->queue;
    yk_tensor **stay = is_full(r, batch) ? q->stay[part] : q->smaller;
    if ((stay == q->smaller && part != q->parts - 1) || !train_batch_stays(stay, batch, r->device))
        return false;
    for (int i = 0; i < BATCH_TENSORS; i++)
        q->batch[part][i] = yk_tensor_retain(stay[i]);
    return true;
}

/* The kind of a step by its batches, all of which are in the tensors that stay. */
static kind kind_of(train_job *r, bool smaller)
{
    train_queue *q = r->queue;
    if (q->parts == r->set->accumulate && !smaller)
        return FULL;
    if (!q->last_parts)
        q->last_parts = q->parts, q->last_is_smaller = smaller;
    return q->parts == q->last_parts && smaller == q->last_is_smaller ? LAST : OTHER;
}

/* All batches of a step to q->batch, and what kind of step they make. */
static yk_status take_batches(train_job *r, yk_batch *batch, int64_t *samples, kind *made)
{
    train_queue *q = r->queue;
    bool kept = true, smaller = false;
    for (int64_t part = 0; part < q->parts; part++) {
        if (part > 0 && !yk_loader_next(r->data.train, batch))
            return yk__error_code();
        *samples += batch->count * r->ranks.world;
        smaller |= !is_full(r, batch);
        if (keep(r, part, batch))
            continue;
        kept = false;
        q->batch[part][INPUT] = yk_tensor_retain(yk_to(batch->input, r->device));
        q->batch[part][TARGET] = yk_tensor_retain(yk_to(batch->target, r->device));
    }
    *made = kept ? kind_of(r, smaller) : OTHER;
    return yk__error_code();
}

static void drop_batches(train_queue *q)
{
    for (int part = 0; part < MOST_PARTS; part++) {
        for (int i = 0; i < BATCH_TENSORS; i++) {
            yk_tensor_release(q->batch[part][i]);
            q->batch[part][i] = NULL;
        }
    }
}

bool train_recording_decide(train_recording *of, yk_graph_info *info)
{
    *info = yk_graph_get_info(of->graph);
    if (of->said || (!info->replays && info->calls < PATIENCE))
        return false;
    of->said = true;
    return true;
}

/* Says once whether steps of a kind are recorded, and why not. */
static void say_whether(train_job *r, kind k)
{
    train_queue *q = r->queue;
    yk_graph_info info;
    if (!train_recording_decide(&q->recordings[k], &info))
        return;
    if (info.replays && k == FULL) {
        yk__log(YK_LOG_INFO, "step %" PRId64 " is recorded, and replayed from here on", r->course.step + 1);
    } else if (info.replays) {
        yk__log(YK_LOG_INFO, "the last step of an epoch is recorded, too: step %" PRId64, r->course.step + 1);
    } else if (k == LAST) {
        yk__log(YK_LOG_INFO, "the last step of an epoch is not recorded: %s", info.why_not);
    } else {
        q->plain = true;
        if (r->ranks.rank == 0) {
            progress_clear(&r->display.progress);
            fprintf(stderr, "yoke: notice: steps are not recorded, and run as they are: %s\n", info.why_not);
        }
    }
}

/* Has all ranks do alike: rank 0's clock is that of all, and a rank that replays a step meets no other that
 * runs it as it is. Steps that are not of one kind on all ranks are OTHER. */
static yk_status agree(train_job *r, kind *k)
{
    double sums[] = {r->ranks.rank == 0 && saver_late(&r->saved.saver), *k == FULL, *k == LAST};
    yk_status status = ranks_sum(&r->ranks, sums, 3);
    r->saved.saver.late = sums[0] > 0;
    *k = sums[1] == r->ranks.world ? FULL : sums[2] == r->ranks.world ? LAST : OTHER;
    return status;
}

/* By a recording, or as it is. */
static yk_status recorded_step(train_job *r, yk_batch *batch, int64_t *samples)
{
    train_queue *q = r->queue;
    kind k = OTHER;
    yk_status status = take_batches(r, batch, samples, &k);
    if (!status)
        status = agree(r, &k);
    if (!status && k != OTHER) {
        status = yk_graph_run(q->recordings[k].graph);
        say_whether(r, k);
    } else if (!status) {
        status = queue_all(r);
    }
    if (k != FULL)
        yk_optimizer_zero_grad(r->learner.optimizer); /* the recordings have memory of their own for them */
    drop_batches(q);
    return status;
}

/* Batch by batch, as they come. */
static yk_status plain_step(train_job *r, yk_batch *batch, int64_t *samples)
{
    yk_status status = YK_OK;
    yk_optimizer_zero_grad(r->learner.optimizer);
    for (int64_t part = 0; part < r->queue->parts && !status; part++) {
        if (part > 0 && !yk_loader_next(r->data.train, batch))
            return yk__error_code();
        *samples += batch->count * r->ranks.world;
        yk_scope scope = yk_scope_begin();
        status = queue_part(r, part, yk_to(batch->input, r->device), yk_to(batch->target, r->device));
        yk_scope_end(scope);
    }
    kind k = OTHER;
    if (!status)
        status = queue_update(r);
    return status ? status : agree(r, &k);
}

yk_status train_queue_step(train_job *r, yk_batch *batch, int64_t *samples)
{
    train_queue *q = r->queue;
    int64_t left = yk_loader_left(r->data.train), more = r->set->accumulate - 1;
    q->parts = 1 + (left < more ? left : more);
    yk_status status = (q->recordings[FULL].graph && !q->plain ? recorded_step : plain_step)(r, batch, samples);
    if (status)
        return status;
    q->steps[q->n_steps++] =
        (queued_step){.samples = *samples, .parts = q->parts, .lr = yk_optimizer_lr(r->learner.optimizer, 0)};
    q->n_losses += q->parts;
    if (r->learner.schedule)
        yk_schedule_step(r->learner.schedule);
    return YK_OK;
}

bool train_queue_is_due(const train_job *r)
{
    const train_queue *q = r->queue;
    return q->n_losses + r->set->accumulate > q->room || saver_due(&r->saved.saver) || run_log_due(&r->display.log) ||
           yk__now() - q->read_at >= progress_interval(&r->display.progress);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* The losses to q->values; the next one goes to the front. */
static yk_status read_values(const train_queue *q)
{
    yk_scope scope = yk_scope_begin();
    yk_tensor *wide = yk_cast(yk_narrow(q->losses, 0, 0, q->n_losses), YK_F64);
    yk_status status =
        wide ? yk_tensor_read(wide, q->values, (size_t)q->n_losses * sizeof(*q->values)) : yk__error_code();
    if (!status && !yk_zero_(q->position))
        status = yk__error_code();
    yk_scope_end(scope);
    return status;
}

void train_queue_begin(train_job *r)
{
    r->queue->read_at = yk__now();
}

yk_status train_queue_read(train_job *r)
{
    train_queue *q = r->queue;
    if (!q->n_steps)
        return YK_OK;
    yk_status status = read_values(q);
    double now = yk__now(), seconds = now - q->read_at, samples = 0;
    int64_t before = r->course.step - q->n_steps, at = 0, steps = q->n_steps;
    for (int64_t k = 0; k < steps; k++)
        samples += (double)q->steps[k].samples;
    for (int64_t k = 0; k < steps && !status; k++) {
        const queued_step *step = &q->steps[k];
        double loss = 0;
        for (int64_t part = 0; part < step->parts; part++)
            loss += q->values[at++] / (double)step->parts;
        loss /= r->ranks.world;
        if (!isfinite(loss) && q->fault) {
            status = train_not_finite(r, loss, before + k + 1, step->lr);
            r->course.step = before + k;
            break;
        }
        r->scores.loss = loss;
        r->scores.loss_sum += loss * (double)step->samples;
        r->scores.seen += (double)step->samples;
        loss_plot_step(&r->display.plot, before + k + 1, loss);
        train_board_step(r, before + k + 1, loss);
        yk_progress_loss(loss, step->samples / r->ranks.world);
        status = run_log_step(&r->display.log, r->course.epoch, before + k + 1, loss, samples / seconds);
    }
    q->n_steps = q->n_losses = 0;
    q->read_at = now;
    return status;
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

static yk_tensor *zeros(const train_job *r, int ndim, int64_t count, yk_dtype dtype)
{
    return yk_tensor_retain(yk_zeros(ndim, &count, YK_OPTIONS(yk_tensor_options, .dtype = dtype, .device = r->device)));
}

yk_status train_queue_create(train_job *r)
{
    const settings *s = r->set;
    if (r->device.type == YK_CPU || r->learner.elastic) /* a step of virtual ranks is not recorded */
        return YK_OK;
    train_queue *q = r->queue = yk__calloc(1, sizeof(*q));
    if (!q)
        return YK_ERR_MEMORY;
    q->room = s->accumulate > LEAST ? s->accumulate : LEAST;
    q->steps = yk__calloc((size_t)q->room, sizeof(*q->steps));
    q->values = yk__calloc((size_t)q->room, sizeof(*q->values));
    q->losses = zeros(r, 1, q->room, r->ranks.world > 1 ? YK_F64 : r->dtype);
    q->position = zeros(r, 1, 1, YK_I64);
    q->one = zeros(r, 1, 1, YK_I64);
    q->fault = s->allow_nan ? NULL : zeros(r, 0, 0, r->dtype);
    if (!q->steps || !q->values || !q->losses || !q->position || !q->one || (!s->allow_nan && !q->fault) ||
        !yk_fill_(q->one, 1))
        return yk__error_code();
    if (s->accumulate <= MOST_PARTS && !s->no_graph) {
        for (kind k = FULL; k < RECORDINGS; k++) {
            yk_graph *made = yk_graph_create(r->device, k == LAST ? LAST_WARM_UP : 0, queue_all, r);
            if (!made)
                return yk__error_code();
            q->recordings[k].graph = yk_graph_retain(made);
        }
        return YK_OK;
    }
    if (!s->no_graph && r->ranks.rank == 0)
        fprintf(stderr,
                "yoke: notice: steps are not recorded, and run as they are: --accumulate %" PRId64
                " is more than %d batches\n",
                s->accumulate, MOST_PARTS);
    return YK_OK;
}

void train_queue_free(train_job *r)
{
    train_queue *q = r->queue;
    if (!q)
        return;
    drop_batches(q);
    for (int i = 0; i < BATCH_TENSORS; i++) {
        for (int part = 0; part < MOST_PARTS; part++)
            yk_tensor_release(q->stay[part][i]);
        yk_tensor_release(q->smaller[i]);
    }
    for (kind k = FULL; k < RECORDINGS; k++)
        yk_graph_release(q->recordings[k].graph);
    yk_tensor_release(q->losses);
    yk_tensor_release(q->position);
    yk_tensor_release(q->one);
    yk_tensor_release(q->fault);
    free(q->steps);
    free(q->values);
    free(q);
    r->queue = NULL;
}
