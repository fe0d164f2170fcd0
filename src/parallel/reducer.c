/*
 * reducer.c - a backward under DistributedDataParallel: buckets are reduced as they become complete. Layer: parallel.
 *
 * The engine says which parameters a backward reaches before it starts, so those that it does not reach are known at
 * once: they are an error, or count as ready. A bucket whose last gradient is ready is handed to the group, in the
 * order of numbers (a later bucket that is complete early waits for its turn, so that all ranks call the same). The
 * group's thread carries it out while backward goes on; the end of backward waits for what is left.
 *
 * A failure between begin and end breaks the group: the other ranks wait for buckets that would never come. So does one
 * of a training forward, and of a backward after one that fails before begin.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/agreement.h"
#include "device/graph.h"
#include "parallel/reducer.h"
#include "tensor/host_tensor.h"

/* ---- starting and waiting ---------------------------------------------------------------------------------------- */

static yk_status start_bucket(yk__reducer *r, yk__ddp_bucket *b)
{
    bool recording = yk_no_grad_begin();
    yk_scope scope = yk_scope_begin();
    yk_tensor *scratch = b->bucket.scratch;
    yk_work *work = r->has_hook ? r->hook.start(&b->bucket, r->hook.user)
                                : yk_all_reduce_async(b->bucket.gradients, YK_OP_MEAN, r->group);
    if (b->bucket.scratch != scratch) {
        yk_tensor_retain(b->bucket.scratch);
        yk_tensor_release(scratch);
    }
    b->work = yk_work_retain(work);
    if (!work && !yk__error_code())
        yk__fail(YK_ERR_CALLBACK, "ddp: the communication hook gave no work for bucket %d and no error",
                 b->bucket.index);
    yk_scope_end(scope);
    yk_no_grad_end(recording);
    return yk__error_code(); /* a hook that set an error has failed, whatever it gave */
}

yk_status yk__reducer_start_buckets(yk__reducer *r)
{
    yk_status status = YK_OK;
    while (!status && r->next < r->n_buckets && !r->buckets[r->next].missing)
        status = start_bucket(r, &r->buckets[r->next++]);
    return status;
}

yk_status yk__reducer_start_used(yk__reducer *r)
{
    if (!r->find_unused)
        return YK_OK;
    uint8_t *used = r->used->data;
    for (int i = 0; i < r->count; i++)
        used[i] = r->parameters[i].used;
    yk_scope scope = yk_scope_begin();
    r->used_work = yk_work_retain(YK__HOST_TENSORS(yk_all_reduce_async(r->used, YK_OP_MAX, r->group)));
    yk_scope_end(scope);
    return r->used_work ? YK_OK : yk__error_code();
}

static yk_status wait_for(yk_work **work)
{
    yk_status status = *work ? yk_work_wait(*work) : YK_OK;
    yk_work_release(*work);
    *work = NULL;
    return status;
}

yk_status yk__reducer_wait(yk__reducer *r)
{
    yk_status status = wait_for(&r->used_work);
    for (int i = 0; i < r->n_buckets; i++) {
        yk__ddp_bucket *b = &r->buckets[i];
        bool started = b->work != NULL;
        yk_status bad = wait_for(&b->work);
        status = status ? status : bad;
        if (!started || status || !r->has_hook || !r->hook.finish)
            continue;
        bool recording = yk_no_grad_begin();
        yk_scope scope = yk_scope_begin();
        status = r->hook.finish(&b->bucket, r->hook.user);
        if (status && !yk__error_code())
            yk__fail(status, "the communication hook could not finish bucket %d and gave no error", i);
        status = yk__error_code();
        yk_scope_end(scope);
        yk_no_grad_end(recording);
    }
    return status;
}

void yk__reducer_reset(yk__reducer *r)
{
    for (int i = 0; i < r->count; i++) {
        yk__ddp_parameter *p = &r->parameters[i];
        p->ready = p->used = p->reached = false;
        yk_tensor_release(p->kept);
        p->kept = NULL;
    }
    for (int i = 0; i < r->n_buckets; i++)
        r->buckets[i].missing = r->buckets[i].bucket.n_parameters;
    r->next = 0;
    r->reducing = false;
}

void yk__reducer_abort(yk__reducer *r, const char *what)
{
    yk_error error;
    char reason[sizeof(error.message) + 40];
    yk__error_take(&error);
    snprintf(reason, sizeof(reason), "%s failed: %s", what, error.message);
    if (!yk__graph_recording()) /* in which nothing was sent: the step will run as it is */
        yk_process_group_abort(r->group, reason);
    yk_status status = yk__reducer_wait(r);
    status = wait_for(&r->join.work);
    (void)status; /* a consequence of the error that is known */
    yk_clear_error();
    yk__error_put(&error);
    yk__reducer_reset(r);
}

/* ---- before a forward -------------------------------------------------------------------------------------------- */

/* The parameters at the given positions, each once, then the parameters that have none, last registered first. */
static yk_status order_from(const yk__reducer *r, const int64_t *order_of_root, int *order)
{
    bool *seen = yk__calloc((size_t)r->count + 1, sizeof(*seen));
    int n = 0;
    yk_status status = seen ? YK_OK : YK_ERR_MEMORY;
    for (int i = 0; i < r->count && !status && order_of_root[i] >= 0; i++) {
        if (order_of_root[i] >= r->count || seen[order_of_root[i]])
            status = yk__fail(YK_ERR_INTERNAL, "ddp: the order of gradients holds parameter %lld twice or wrongly",
                              (long long)order_of_root[i]);
        else
            seen[order[n++] = (int)order_of_root[i]] = true;
    }
    for (int i = r->count - 1; i >= 0 && !status; i--)
        if (!seen[i])
            order[n++] = i;
    free(seen);
    return status;
}

yk_status yk__reducer_settle(yk__reducer *r, int src)
{
    int64_t count = r->count;
    yk_scope scope = yk_scope_begin();
    yk_tensor *order_of_root = yk__scope_own(yk__host_zeros(1, &count, YK_I64));
    for (int i = 0; order_of_root && i < r->count; i++)
        ((int64_t *)order_of_root->data)[i] = i < r->n_seen ? r->seen[i] : -1;
    yk_status status = order_of_root ? YK__HOST_TENSORS(yk_broadcast(order_of_root, src, r->group)) : yk__error_code();
    int *order = status ? NULL : yk__calloc((size_t)count + 1, sizeof(*order));
    if (order)
        status = order_from(r, order_of_root->data, order);
    else if (!status)
        status = YK_ERR_MEMORY;
    yk_scope_end(scope);
    if (status) {
        free(order);
        return status;
    }
    bool same = memcmp(order, r->order, sizeof(*order) * (size_t)count) == 0;
    free(r->order);
    r->order = order;
    r->settled = true;
    return same ? YK_OK : yk__buckets_make(r);
}

yk_status yk__reducer_prepare(yk__reducer *r, bool training)
{
    yk_status status = YK_OK;
    r->sync = !r->no_sync;
    if (yk__buckets_stale(r))
        status = yk__buckets_renew(r);
    bool together = r->sync && training; /* a rank that evaluates may be alone */
    bool rebuild = together && !r->settled && !r->find_unused && r->reduced;
    bool buffers = together && r->broadcast_buffers && r->n_buffers;
    if (!status && r->join.on) {
        status = yk__join_forward(r, rebuild, buffers);
        if (status) /* a rank that has run out of inputs does not break the group */
            return status;
    }
    int src = r->join.on ? r->join.lowest : 0;
    if (!status && rebuild)
        status = yk__reducer_settle(r, src);
    if (!status && buffers)
        status = yk__model_broadcast_buffers(r, src);
    if (status) {
        yk__error_prefix("ddp");
        yk__reducer_abort(r, "forward");
    }
    return status;
}

/* ---- in a backward, with the lock held --------------------------------------------------------------------------- */

/* Puts this rank's gradient of the parameter into its bucket, and counts it there. */
static yk_status mark_ready(yk__reducer *r, int index)
{
    yk__ddp_parameter *p = &r->parameters[index];
    if (p->ready || !p->grad_buffer)
        return YK_OK;
    yk_tensor *grad = yk_grad(p->x);
    yk_status status = YK_OK;
    if (grad && !p->used) {
        p->kept = yk__raw_clone(grad);
        status = p->kept ? YK_OK : yk__error_code();
    }
    if (!status && !grad)
        status = yk__raw_fill(p->grad_buffer, 0);
    if (!status && grad && (grad->data != p->grad_buffer->data || grad->storage != p->grad_buffer->storage)) {
        status = yk__raw_copy(p->grad_buffer, grad); /* the user's own, or from before the buckets */
        if (!status)
            status = yk_set_grad(p->x, p->grad_buffer);
    }
    p->ready = true;
    if (!r->settled && p->reached && r->n_seen < r->count)
        r->seen[r->n_seen++] = index;
    r->buckets[p->bucket].missing--;
    return status;
}

static yk_status fail_unused(const yk__reducer *r, int unused)
{
    char names[700] = "";
    size_t used = 0;
    int shown = 0;
    for (int i = 0; i < r->count; i++) {
        const yk__ddp_parameter *p = &r->parameters[i];
        if (!p->grad_buffer || p->used || used + strlen(p->name) + 30 > sizeof(names))
            continue;
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", shown ? ", " : "", p->name);
        shown++;
    }
    if (shown < unused)
        snprintf(names + used, sizeof(names) - used, " and %d more", unused - shown);
    return yk__fail(
        YK_ERR_STATE,
        "ddp: this backward on rank %d reaches no gradient for %s: use them in the loss, freeze them, or set "
        "find_unused_parameters",
        r->rank, names);
}

static yk_status start_reduction(yk__reducer *r)
{
    int unused = 0;
    for (int i = 0; i < r->count; i++)
        unused += r->parameters[i].grad_buffer && !r->parameters[i].used;
    r->reducing = true;
    r->next = 0;
    if (!r->settled)
        r->n_seen = 0;
    if (unused && !r->find_unused)
        return fail_unused(r, unused);
    yk_status status = r->join.on ? yk__join_backward(r) : YK_OK;
    if (!status)
        status = yk__reducer_start_used(r);
    for (int i = 0; i < r->count && !status; i++)
        if (!r->parameters[i].reached)
            status = mark_ready(r, i);
    return status ? status : yk__reducer_start_buckets(r);
}

static yk_status reducer_begin(yk__collector *self, int count, const int *indices)
{
    yk__reducer *r = (yk__reducer *)self;
    pthread_mutex_lock(&r->lock);
    yk_status status = YK_OK;
    if (r->held) {
        for (int i = 0; i < count; i++)
            r->parameters[indices[i]].used = true;
        pthread_mutex_unlock(&r->lock);
        return YK_OK;
    }
    if (r->walking) {
        status = yk__fail(YK_ERR_STATE, "ddp: a backward through the module began before the one before had ended");
        pthread_mutex_unlock(&r->lock);
        return status;
    }
    r->clock.began = yk__now();
    r->clock.before = yk__sync_waited();
    if (!r->clock.born)
        r->clock.born = r->clock.began;
    for (int i = 0; i < r->count; i++)
        r->parameters[i].reached = false;
    for (int i = 0; i < count; i++)
        r->parameters[indices[i]].reached = r->parameters[indices[i]].used = true;
    if (r->sync)
        status = start_reduction(r);
    if (status)
        yk__reducer_abort(r, "backward");
    r->walking = !status;
    pthread_mutex_unlock(&r->lock);
    return status;
}

static yk_status reducer_ready(yk__collector *self, int index)
{
    yk__reducer *r = (yk__reducer *)self;
    pthread_mutex_lock(&r->lock);
    yk_status status = r->interrupt ? r->interrupt(r->interrupt_of) : YK_OK;
    if (r->reducing && !status) {
        status = mark_ready(r, index);
        if (!status)
            status = yk__reducer_start_buckets(r);
    }
    pthread_mutex_unlock(&r->lock);
    return status;
}

/* ---- its end ----------------------------------------------------------------------------------------------------- */

/* Gradients of parameters that this rank did not use come from those that did, or stay as they were. */
static yk_status adopt(yk__reducer *r)
{
    const uint8_t *used = r->find_unused ? r->used->data : NULL;
    yk_status status = YK_OK;
    for (int i = 0; i < r->count && !status; i++) {
        yk__ddp_parameter *p = &r->parameters[i];
        if (!p->grad_buffer)
            continue;
        if (used && !used[i])
            status = p->kept ? yk__raw_copy(p->grad_buffer, p->kept) : YK_OK;
        else if (!yk_grad(p->x))
            status = yk_set_grad(p->x, p->grad_buffer);
    }
    return status;
}

/* A backward of this rank is over. */
static void tick_backward(yk__ddp_clock *clock, double computed)
{
    double waited = yk__sync_waited() - clock->before;
    clock->waited += waited;
    clock->backward += computed - clock->began - waited;
}

static void tick(yk__ddp_clock *clock, double computed)
{
    double now = yk__now(), since = clock->ended ? clock->ended : clock->born;
    clock->busy[clock->steps++ % YK_DDP_WINDOW] = computed - since - clock->waited;
    clock->exposed += now - computed + clock->waited;
    clock->waited = 0;
    clock->total += now - since;
    clock->ended = now;
}

/* Waits for the buckets, all of which are complete unless it failed; this rank had computed its gradients at
 * `computed`. With the lock held. */
static yk_status end_reduction(yk__reducer *r, yk_status status, double computed)
{
    if (!status && r->next < r->n_buckets)
        status =
            yk__fail(YK_ERR_INTERNAL, "ddp: backward ended with bucket %d of %d incomplete", r->next, r->n_buckets);
    if (!status) {
        status = yk__reducer_wait(r);
        if (status)
            yk__error_prefix("ddp");
    }
    if (!status && r->join.on)
        status = yk__join_backward_end(r);
    if (!status)
        status = yk__rows_exchange(r);
    if (!status)
        status = adopt(r);
    if (status)
        yk__reducer_abort(r, "backward");
    else
        yk__reducer_reset(r);
    r->reduced = true;
    tick(&r->clock, computed);
    return status;
}

static yk_status reducer_end(yk__collector *self, yk_status status)
{
    yk__reducer *r = (yk__reducer *)self;
    double computed = yk__now();
    pthread_mutex_lock(&r->lock);
    if (r->held) {
        pthread_mutex_unlock(&r->lock);
        return YK_OK;
    }
    r->walking = false;
    tick_backward(&r->clock, computed);
    status = r->reducing ? end_reduction(r, status, computed) : YK_OK;
    pthread_mutex_unlock(&r->lock);
    return status;
}

/* The other ranks wait for this one's buckets. */
static void reducer_failed(yk__collector *self)
{
    yk__reducer *r = (yk__reducer *)self;
    pthread_mutex_lock(&r->lock);
    yk__reducer_abort(r, "backward");
    pthread_mutex_unlock(&r->lock);
}

const yk__collector yk__reducer_collector = {
    .begin = reducer_begin, .ready = reducer_ready, .end = reducer_end, .failed = reducer_failed};

/* ---- several backwards, reduced together ------------------------------------------------------------------------- */

yk_status yk__reducer_hold(yk__reducer *r, bool training)
{
    if (!r->clock.born)
        r->clock.born = yk__now();
    yk_status status = yk__reducer_prepare(r, training);
    if (status)
        return status;
    pthread_mutex_lock(&r->lock);
    r->held = true;
    r->clock.began = yk__now();
    r->clock.before = yk__sync_waited();
    pthread_mutex_unlock(&r->lock);
    return YK_OK;
}

yk_status yk__reducer_release(yk__reducer *r, yk_status status)
{
    double computed = yk__now();
    pthread_mutex_lock(&r->lock);
    r->held = false;
    tick_backward(&r->clock, computed);
    if (status && r->sync)
        yk__reducer_abort(r, "pipeline_step");
    if (status || !r->sync) {
        pthread_mutex_unlock(&r->lock);
        return status;
    }
    for (int i = 0; i < r->count; i++)
        r->parameters[i].reached = r->parameters[i].used;
    status = start_reduction(r);
    for (int i = r->count - 1; i >= 0 && !status; i--) {
        if (r->parameters[i].reached)
            status = mark_ready(r, i);
        if (!status)
            status = yk__reducer_start_buckets(r);
    }
    status = end_reduction(r, status, computed);
    pthread_mutex_unlock(&r->lock);
    return status;
}
