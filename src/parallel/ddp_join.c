/*
 * ddp_join.c - uneven inputs: a rank that has run out answers the others' collectives. Layer: parallel.
 *
 * While joining is on, every rank publishes a header before each recorded forward (and waits for all of them), and
 * before each reduction (without waiting). A rank that has run out publishes an empty one; out of those of the others
 * it knows what they do next and does the same, with zeros for gradients. When all headers are empty, all ranks are
 * out.
 *
 *     rank 0   F B0 B1   F B0 B1   F B0 B1   -
 *     rank 1   F B0 B1   - B0 B1   - B0 B1   -     -: an empty header, then what the others' say
 */
#include "comm/agreement.h"
#include "parallel/reducer.h"
#include "tensor/host_tensor.h"

enum { FIELDS = sizeof(yk__join_header) / sizeof(int64_t) };

static yk_status make_tensors(yk__reducer *r)
{
    if (!r->join.mine)
        r->join.mine = yk__host_zeros(YK_SHAPE(FIELDS), YK_I64);
    if (!r->join.all)
        r->join.all = yk__host_zeros(YK_SHAPE(r->world_size, FIELDS), YK_I64);
    return r->join.mine && r->join.all ? YK_OK : yk__error_code();
}

static void set_header(yk__reducer *r, yk__join_header header)
{
    *(yk__join_header *)r->join.mine->data = header;
}

static const char *step_name(int64_t step)
{
    return step == YK__JOIN_FORWARD ? "a forward" : "the end of a backward";
}

/* The step that the active ranks do, in *next; they must all do the same. */
static yk_status read_headers(yk__reducer *r, yk__join_header *next)
{
    const yk__join_header *all = r->join.all->data;
    int active = 0, lowest = 0;
    *next = (yk__join_header){.step = YK__JOIN_OUT};
    for (int i = 0; i < r->world_size; i++) {
        if (all[i].step == YK__JOIN_OUT)
            continue;
        if (!active++) {
            lowest = i;
            *next = all[i];
        } else if (all[i].step != next->step || all[i].rebuild != next->rebuild || all[i].buffers != next->buffers) {
            yk_status status =
                yk__fail(YK_ERR_MISMATCH, "ddp: the ranks that have input differ: rank %d is at %s, rank %d at %s%s",
                         lowest, step_name(next->step), i, step_name(all[i].step),
                         all[i].step == next->step ? " with other settings" : "");
            yk__reducer_abort(r, "join");
            return status;
        }
    }
    if (active) {
        r->join.active = active;
        r->join.lowest = lowest;
    }
    return YK_OK;
}

static yk_status check_early(yk__reducer *r)
{
    const yk__join_header *all = r->join.all->data;
    for (int i = 0; i < r->world_size && r->join.throw_early; i++) {
        if (all[i].step != YK__JOIN_OUT)
            continue;
        r->join.early = true;
        return yk__fail(YK_ERR_STATE,
                        "ddp: rank %d has no more input, and the join was begun with throw_on_early_termination", i);
    }
    return YK_OK;
}

static yk_status join_headers_exchange(yk__reducer *r, yk__join_header header, yk__join_header *next)
{
    set_header(r, header);
    yk_status status = YK__HOST_TENSORS(yk_all_gather(r->join.all, r->join.mine, r->group));
    return status ? status : read_headers(r, next);
}

yk_status yk__join_forward(yk__reducer *r, bool rebuild, bool buffers)
{
    yk__join_header next;
    yk_status status = join_headers_exchange(r, (yk__join_header){YK__JOIN_FORWARD, rebuild, buffers}, &next);
    return status ? status : check_early(r);
}

yk_status yk__join_backward(yk__reducer *r)
{
    set_header(r, (yk__join_header){.step = YK__JOIN_BACKWARD});
    yk_scope scope = yk_scope_begin();
    r->join.work = yk_work_retain(YK__HOST_TENSORS(yk_all_gather_async(r->join.all, r->join.mine, r->group)));
    yk_scope_end(scope);
    return r->join.work ? YK_OK : yk__error_code();
}

/* Gradients were divided by the number of all ranks. */
static yk_status divide_by_active(yk__reducer *r)
{
    double factor = (double)r->world_size / r->join.active;
    yk_status status = YK_OK;
    for (int i = 0; i < r->n_buckets && !status && r->join.active < r->world_size; i++) {
        yk_tensor *flat = r->buckets[i].bucket.gradients;
        yk__view v = yk__view_of(flat);
        status = YK__SLOT(flat, unary, YK__MUL_SCALAR, &v, &v, factor, 0);
    }
    return status;
}

yk_status yk__join_backward_end(yk__reducer *r)
{
    yk__join_header next;
    yk_status status = yk_work_wait(r->join.work);
    yk_work_release(r->join.work);
    r->join.work = NULL;
    if (!status)
        status = read_headers(r, &next);
    return status || !r->join.divide_by_active ? status : divide_by_active(r);
}

yk_status yk_join_begin(yk_module *m, const yk_join_options *options)
{
    YK__OWN_RECORD;
    YK__LIVE(m);
    yk__reducer *r;
    yk_join_options o;
    if (YK__OPTIONS_TAKE("join_begin", yk_join_options, options, &o))
        return YK_ERR_ARGUMENT;
    yk_status status = yk__reducer_of("join_begin", m, &r);
    if (status || !r)
        return status;
    if (r->join.on)
        return yk__fail(YK_ERR_STATE, "join_begin: the module's join was begun already");
    if (r->virtual_ranks)
        return yk__fail(YK_ERR_UNSUPPORTED, "join_begin: the module's shards are those of virtual ranks (yk_elastic), "
                                            "which all have equally many batches");
    if (!o.throw_on_early_termination && yk__has_sync_batch_norm(r->module))
        return yk__fail(YK_ERR_UNSUPPORTED, "join_begin: the module has a SyncBatchNorm, whose collectives a rank "
                                            "without input cannot answer; set throw_on_early_termination");
    status = make_tensors(r);
    if (status)
        return status;
    r->join.divide_by_active = o.divide_by_active;
    r->join.throw_early = o.throw_on_early_termination;
    r->join.early = false;
    r->join.failures = yk__error_count();
    r->join.active = r->world_size;
    r->join.lowest = 0;
    r->join.on = true;
    return YK_OK;
}

/* Answers one reduction: this rank has nothing to add. */
static yk_status shadow_reduction(yk__reducer *r)
{
    yk_status status = YK_OK;
    yk__reducer_reset(r);
    for (int i = 0; i < r->count && !status; i++)
        status = r->parameters[i].grad_buffer ? yk_set_grad(r->parameters[i].x, NULL) : YK_OK;
    for (int i = 0; i < r->n_buckets && !status; i++) {
        status = yk__raw_fill(r->buckets[i].bucket.gradients, 0);
        r->buckets[i].missing = 0;
    }
    if (!status)
        status = yk__reducer_start_used(r);
    if (!status)
        status = yk__reducer_start_buckets(r);
    if (!status)
        status = yk__reducer_wait(r);
    yk__rows_drop(r);
    if (!status)
        status = yk__rows_exchange(r);
    yk__rows_drop(r);
    if (status)
        yk__reducer_abort(r, "join");
    else
        yk__reducer_reset(r);
    r->reduced = true;
    return status;
}

static yk_status shadow_forward(yk__reducer *r, const yk__join_header *next)
{
    yk_status status = YK_OK;
    if (yk__buckets_stale(r))
        status = yk__buckets_renew(r);
    if (!status && next->rebuild)
        status = yk__reducer_settle(r, r->join.lowest);
    if (!status && next->buffers)
        status = yk__model_broadcast_buffers(r, r->join.lowest);
    if (status)
        yk__reducer_abort(r, "join");
    return status;
}

static yk_status shadow(yk__reducer *r)
{
    for (;;) {
        yk__join_header next;
        yk_status status = join_headers_exchange(r, (yk__join_header){.step = YK__JOIN_OUT}, &next);
        if (!status && next.step == YK__JOIN_OUT)
            return yk__model_broadcast_all(r, r->join.lowest); /* of those that had the most input */
        if (!status && next.step == YK__JOIN_FORWARD)          /* the others look then, too */
            status = check_early(r);
        if (!status)
            status = next.step == YK__JOIN_FORWARD ? shadow_forward(r, &next) : shadow_reduction(r);
        if (status)
            return status;
    }
}

yk_status yk_join_end(yk_module *m)
{
    YK__LIVE(m);
    yk__reducer *r;
    yk_status status = yk__reducer_of("join_end", m, &r);
    if (status || !r)
        return status ? status : yk__error_code();
    if (!r->join.on)
        return yk__fail(YK_ERR_STATE, "join_end: there was no join_begin");
    status = yk__error_count() > r->join.failures ? yk__error_code() : YK_OK;
    YK__OWN_RECORD;
    if (status && !r->join.early) /* the others would wait for this rank, or go on without it */
        yk__reducer_abort(r, "the program");
    if (!status) {
        status = shadow(r);
        if (status)
            yk__error_prefix("join_end");
    }
    r->join.on = false;
    return status;
}

void yk__join_clear(yk__reducer *r)
{
    yk_tensor_release(r->join.mine);
    yk_tensor_release(r->join.all);
    yk_work_release(r->join.work);
}
