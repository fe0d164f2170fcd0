/*
 * elastic_step.c - a step in virtual ranks, from yk_elastic_begin to yk_elastic_step. Layer: elastic.
 */
#include "elastic/elastic_job.h"

#include <stdlib.h>
#include <string.h>

#include "base/core.h"
#include "base/random_branch.h"
#include "comm/agreement.h"
#include "comm/group.h"
#include "tensor/tensor.h"

/* The processes take different numbers of batches, at different times. */
static const char apart[] = "this process is between yk_elastic_next and the end of its batches, where the virtual "
                            "ranks come one after the other and do not meet: leave collectives out of forward, loss "
                            "and loop, or make them behind the loop";

void yk__elastic_leave_step(yk_elastic *e)
{
    if (e->stage == YK__GIVEN || e->stage == YK__PASSED)
        yk__collectives_refuse(NULL);
}

/*
 * Fails where a member has ended, so that a step which cannot be completed is not computed to its end: what is left of
 * it, up to all shards of this process, would be made again. Once in look_seconds at most.
 */
yk_status yk__elastic_look(void *of)
{
    yk_elastic *e = of;
    const double look_seconds = 0.01;
    double now = yk__now();
    if (!e->survives || e->world == 1 || now - e->looked < look_seconds)
        return YK_OK;
    e->looked = now;
    return yk__group_look(e->group);
}

/* ---- the hook ---------------------------------------------------------------------------------------------------- */

static yk_work *hook_start(yk_ddp_bucket *bucket, void *user)
{
    yk_elastic *e = user;
    if (e && e->synchronises)
        return yk__leaf_sums_start(&e->sums, bucket);
    if (e)
        yk__fail(YK_ERR_STATE, "elastic: a backward of the model of virtual ranks was not made by yk_elastic_backward, "
                               "or not of a batch of yk_elastic_next");
    else
        yk__fail(YK_ERR_STATE, "elastic: the model was of a job of virtual ranks that has been released");
    return NULL;
}

static yk_status hook_finish(yk_ddp_bucket *bucket, void *user)
{
    yk_elastic *e = user;
    return yk__leaf_sums_finish(&e->sums, bucket);
}

const yk_ddp_comm_hook yk__elastic_hook = {.start = hook_start, .finish = hook_finish};

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* The step cannot be completed, and the others, who wait for this process's gradients, learn of it. */
static yk_status give_up(yk_elastic *e, const char *what, yk_status status)
{
    if (status)
        yk__collectives_refuse(NULL);
    if (status && e->reducer && e->stage != YK__BETWEEN && e->stage != YK__ALL_DONE)
        yk__reducer_abort(e->reducer, what);
    if (status)
        e->stage = YK__BETWEEN;
    return e->failed = status;
}

static yk_status copy_buffers(yk_tensor **to, yk_tensor **from, int count)
{
    yk_status status = YK_OK;
    for (int i = 0; i < count && !status; i++)
        status = yk__raw_copy(to[i], from[i]);
    return status;
}

yk_status yk__elastic_drop_gradients(const yk__reducer *r)
{
    yk_status status = YK_OK;
    for (int i = 0; i < r->count && !status; i++)
        status = yk_set_grad(r->parameters[i].x, NULL);
    return status;
}

/*
 * Does at the step's begin what yk_ddp does before a forward, so that the buckets' layout is that of all shards. The
 * versions of the buffers stay, as yk__model_broadcast_buffers says.
 */
static yk_status step_prepare(yk_elastic *e)
{
    yk__reducer *r = e->reducer;
    yk__leaf_sums_reset(&e->sums);
    yk_status status = yk__elastic_drop_gradients(r);
    if (!status && yk__buckets_stale(r))
        status = yk__buckets_renew(r);
    if (!status && !r->settled && r->reduced)
        status = yk__reducer_settle(r, 0);
    if (e->survives) /* they were shared when the step before ended, and kept when this one was entered */
        return status;
    if (!status && r->n_buffers && e->world > 1)
        status = yk__model_broadcast_buffers(r, 0);
    if (!status && e->start)
        status = copy_buffers(e->start, r->buffers, r->n_buffers);
    yk__random_follow(e->generators, e->virtual_ranks);
    return status;
}

/* The batch and the preparations of a step; false at the epoch's end, or on failure (e->failed). */
static bool step_begin(yk_elastic *e)
{
    if ((e->failed = yk__balance_apply(e)))
        return false;
    if (!yk_loader_next(e->loader, &e->batch)) {
        e->failed = yk__error_code();
        return false;
    }
    yk_optimizer_zero_grad(e->optimizer);
    if (!e->plain && (e->failed = step_prepare(e))) {
        yk__error_prefix("elastic_begin");
        return false;
    }
    return true;
}

bool yk_elastic_begin(yk_elastic *e)
{
    YK__OWN_RECORD;
    YK__LIVE(e);
    if (!yk__is_there("elastic_begin", "job", e))
        return false;
    if (e->stage != YK__BETWEEN && e->stage != YK__ALL_DONE) {
        yk__fail(YK_ERR_STATE, "elastic_begin: the step that was begun has batches that were not taken; call "
                               "yk_elastic_next until it gives none");
        return false;
    }
    e->stage = YK__BETWEEN;
    yk__elastic_spent(e, YK__TIME_OTHER);
    while (!((!e->survives || yk__elastic_enter(e)) && step_begin(e)))
        if (!e->failed || !e->survives || yk_elastic_recover(e))
            return false;
    yk__balance_step(e);
    memset(e->losses, 0, (size_t)e->virtual_ranks * sizeof(*e->losses));
    e->stage = YK__BEGUN;
    return true;
}

/* A virtual rank begins: with the buffers of the step's begin, and its own generator. */
static yk_status shard_begin(yk_elastic *e)
{
    yk__reducer *r = e->reducer;
    int rank = e->mine.begin + e->turn.rank;
    yk_status status = e->start && e->turn.rank ? copy_buffers(r->buffers, e->start, r->n_buffers) : YK_OK;
    for (int i = 0; i < r->count; i++)
        r->parameters[i].used = false; /* by this shard */
    yk_random_set_state(e->generators[rank]);
    return status;
}

/* It ends, with its last batch. */
static yk_status shard_end(yk_elastic *e)
{
    yk__reducer *r = e->reducer;
    int rank = e->mine.begin + e->turn.rank;
    e->generators[rank] = yk_random_get_state();
    return e->after && rank == 0 ? copy_buffers(e->after, r->buffers, r->n_buffers) : YK_OK;
}

/* True for the process's last batch of the step. */
static bool is_last(const yk_elastic *e)
{
    return e->turn.rank == e->mine.end - e->mine.begin - 1 && e->turn.part == e->turn.parts - 1;
}

typedef struct shard_report {
    double loss, seconds; /* seconds: of the process, in the first one's */
    int64_t wishes;       /* likewise (yk__elastic_wishes), and above them the process's flags */
    yk_random_state generator;
} shard_report;

enum { FLAGS_SHIFT = 8 };

/* Losses and generators of all virtual ranks become known to all processes. */
static yk_status reports_exchange(yk_elastic *e)
{
    int most = 0;
    uint32_t flags = 0;
    for (int p = 0; p < e->world; p++)
        most = e->begin[p + 1] - e->begin[p] > most ? e->begin[p + 1] - e->begin[p] : most;
    double *computed = yk__calloc((size_t)e->world, sizeof(*computed));
    shard_report *own = yk__calloc((size_t)most, sizeof(*own));
    shard_report *all = yk__calloc((size_t)most * (size_t)e->world, sizeof(*all));
    yk_status status = own && all && computed ? YK_OK : YK_ERR_MEMORY;
    for (int v = e->mine.begin; !status && v < e->mine.end; v++)
        own[v - e->mine.begin] = (shard_report){e->losses[v], e->balance.computed, 0, e->generators[v]};
    if (!status)
        own[0].wishes = (int64_t)e->raised << FLAGS_SHIFT | (e->survives ? yk__elastic_wishes(e) : 0);
    if (!status)
        status = yk__gather_bytes(own, all, (size_t)most * sizeof(*own), e->group);
    for (int p = 0; p < e->world && !status; p++) {
        const shard_report *of = all + (size_t)p * (size_t)most;
        computed[p] = of->seconds;
        e->change_due |= (of->wishes & ((1 << FLAGS_SHIFT) - 1)) != 0;
        flags |= (uint32_t)(of->wishes >> FLAGS_SHIFT);
        for (int v = e->begin[p]; v < e->begin[p + 1]; v++, of++) {
            e->losses[v] = of->loss;
            e->generators[v] = of->generator;
        }
    }
    if (!status)
        yk__balance_note(e, computed);
    e->flags = status ? e->flags : flags;
    free(computed);
    free(own);
    free(all);
    return status;
}

/* Virtual rank 0's buffers become all members': should it end now, the others have them. */
static yk_status buffers_share(yk_elastic *e)
{
    yk_status status = YK_OK;
    if (e->mine.begin == 0)
        status = copy_buffers(e->reducer->buffers, e->after, e->reducer->n_buffers);
    if (!status && e->reducer->n_buffers && e->world > 1)
        status = yk__model_broadcast_buffers(e->reducer, 0);
    return status;
}

/* All batches of this process are done. */
static yk_status all_end(yk_elastic *e)
{
    yk_status status = e->plain ? YK_OK : shard_end(e);
    yk__collectives_refuse(NULL);
    if (!status && e->survives)
        status = buffers_share(e);
    if (e->world == 1)
        e->flags = e->raised;
    if (!status && e->world > 1)
        status = reports_exchange(e);
    else if (!status && e->survives)
        e->change_due |= yk__elastic_wishes(e) != 0;
    e->raised = 0;
    if (!status && e->survives) { /* Note [When a step is done] */
        e->position++;
        e->open = false;
    }
    if (!status && !e->plain) {
        yk_random_set_state(e->generators[0]);
        if (e->after && e->mine.begin == 0)
            status = copy_buffers(e->reducer->buffers, e->after, e->reducer->n_buffers);
    }
    if (!status)
        e->loss = yk__leaves_sum(e->losses, e->virtual_ranks) / e->virtual_ranks;
    e->stage = status ? e->stage : YK__ALL_DONE;
    return status;
}

/* The process's next batch, and with it the next virtual rank where the last one's are done. */
static yk_status take_batch(yk_elastic *e)
{
    bool first = e->stage == YK__BEGUN, other_rank = first || e->turn.part == e->turn.parts - 1;
    yk_status status = first ? YK_OK : yk__elastic_look(e);
    if (!status && !first && other_rank && !e->plain)
        status = shard_end(e);
    if (!status && !first && !yk_loader_next(e->loader, &e->batch))
        status = yk__error_code() ? yk__error_code()
                                  : yk__fail(YK_ERR_STATE, "elastic_next: the loader was started anew within a step");
    if (status)
        return status;
    e->turn = yk__loader_turn(e->loader);
    return other_rank && !e->plain ? shard_begin(e) : YK_OK;
}

bool yk_elastic_next(yk_elastic *e, yk_batch *part)
{
    YK__OWN_RECORD;
    YK__LIVE(e);
    if (!yk__is_there("elastic_next", "batch", part))
        return false;
    *part = (yk_batch){0};
    if (!yk__is_there("elastic_next", "job", e) || e->failed)
        return false;
    if (e->stage != YK__BEGUN && e->stage != YK__PASSED) {
        yk__fail(YK_ERR_STATE,
                 e->stage == YK__GIVEN
                     ? "elastic_next: the batch of virtual rank %d had no yk_elastic_backward, for which "
                       "the other processes wait"
                     : "elastic_next: no step was begun; yk_elastic_begin comes first",
                 yk_elastic_rank(e));
        return false;
    }
    if (e->stage == YK__PASSED && is_last(e)) {
        (void)give_up(e, "elastic_next", all_end(e));
        return false;
    }
    if (give_up(e, "elastic_next", take_batch(e)))
        return false;
    if (e->reducer) /* a program that runs the module inside the model is not told otherwise by its forward */
        e->reducer->no_sync = !(e->reducer->sync = is_last(e));
    e->stage = YK__GIVEN;
    if (!e->plain)
        yk__collectives_refuse(apart);
    *part = e->batch;
    yk__balance_batch(e);
    return true;
}

/* A shard's gradients go to the sums. All of them have to be there, as in a backward that yk_ddp reduces. */
static yk_status keep_gradients(yk_elastic *e)
{
    yk__reducer *r = e->reducer;
    int rank = e->mine.begin + e->turn.rank;
    yk_status status = YK_OK;
    for (int i = 0; i < r->count && !status; i++) {
        const yk__ddp_parameter *p = &r->parameters[i];
        yk_tensor *grad = p->grad_buffer ? yk_grad(p->x) : NULL;
        if (p->grad_buffer && !grad)
            return yk__fail(YK_ERR_STATE,
                            "elastic_backward: that of virtual rank %d reaches no gradient for %s: use it in the loss, "
                            "or freeze it",
                            rank, p->name);
        if (grad && (grad->data != p->grad_buffer->data || grad->storage != p->grad_buffer->storage))
            status = yk__raw_copy(p->grad_buffer, grad);
    }
    if (!status)
        status = yk__leaf_sums_add(&e->sums, r, rank);
    return status ? status : yk__elastic_drop_gradients(r);
}

static yk_status shard_backward(yk_elastic *e, yk_tensor *loss)
{
    yk_scope scope = yk_scope_begin();
    double value = yk_item(loss);
    yk_status status = yk__error_code() ? yk__error_code() : yk__elastic_look(e);
    if (!status) {
        e->losses[e->mine.begin + e->turn.rank] += value / (double)e->turn.parts;
        if (e->turn.parts != 1)
            loss = yk_mul_scalar(loss, 1.0 / (double)e->turn.parts);
        if (e->scaler)
            loss = yk_grad_scaler_scale(e->scaler, loss);
        e->synchronises = is_last(e);
        if (e->synchronises)
            yk__collectives_refuse(NULL); /* but for the backward's own */
        yk__balance_backward_begin(e);
        status = yk_backward(loss);
        yk__balance_backward_end(e);
        if (e->synchronises && !e->plain)
            yk__collectives_refuse(apart);
        e->synchronises = false;
    }
    yk_scope_end(scope);
    if (!status && !e->plain && e->turn.part == e->turn.parts - 1 && !is_last(e))
        status = keep_gradients(e);
    return status;
}

yk_status yk_elastic_backward(yk_elastic *e, yk_tensor *loss)
{
    YK__OWN_RECORD;
    YK__LIVE(e);
    YK__LIVE(loss);
    if (!e || !loss)
        return yk__error_code() ? yk__error_code()
                                : yk__fail(YK_ERR_ARGUMENT, "elastic_backward: the %s is NULL", e ? "loss" : "job");
    if (e->stage != YK__GIVEN)
        return yk__fail(YK_ERR_STATE,
                        e->stage == YK__PASSED
                            ? "elastic_backward: that of virtual rank %d's batch was made already; the loss of a batch "
                              "is one"
                            : "elastic_backward: there is no batch of yk_elastic_next that it could be of",
                        yk_elastic_rank(e));
    if (e->reducer && e->reducer->no_sync == is_last(e))
        return yk__fail(YK_ERR_STATE, "elastic_backward: yk_no_sync_begin and end are called within the step; to add "
                                      "the gradients of several batches set accumulate");
    yk_status status = give_up(e, "elastic_backward", shard_backward(e, loss));
    if (!status)
        e->stage = YK__PASSED;
    return status;
}

void yk_elastic_raise_flags(yk_elastic *e, uint32_t flags)
{
    YK__LIVE(e);
    if (yk__is_there("elastic_raise_flags", "job", e))
        e->raised |= flags;
}

uint32_t yk_elastic_flags(const yk_elastic *e)
{
    YK__LIVE(e);
    return e ? e->flags : 0;
}

yk_status yk_elastic_step(yk_elastic *e)
{
    YK__OWN_RECORD;
    YK__LIVE(e);
    if (!e)
        return yk__error_code() ? yk__error_code() : yk__fail(YK_ERR_ARGUMENT, "elastic_step: the job is NULL");
    if (e->failed) /* the record, unless it was cleared, has the cause */
        return yk__fail(e->failed, "elastic_step: the step failed before it was complete");
    if (e->stage != YK__ALL_DONE)
        return yk__fail(YK_ERR_STATE,
                        "elastic_step: not all batches of the step were taken; call yk_elastic_next until "
                        "it gives none, then this once");
    yk_status status = e->scaler ? yk_grad_scaler_step(e->scaler, e->optimizer, NULL) : yk_optimizer_step(e->optimizer);
    if (!status && e->scaler)
        status = yk_grad_scaler_update(e->scaler);
    if (!status && e->schedule)
        yk_schedule_step(e->schedule);
    e->stage = YK__BETWEEN;
    if (!status)
        yk__elastic_spent(e, YK__TIME_STEPS);
    return status;
}
