/*
 * elastic_change.c - members of a run come and go: what an interrupted step has changed goes back, the group gets other
 * members, and who is behind takes the state of those who are not. Layer: elastic.
 *
 * Note [When a step is done]
 * The last collective of a step is the exchange of losses and generators, which every member enters with all sums in
 * its hands: gradients and buffers. Whoever comes out of it counts the step as done, and applies it with nobody's help.
 * So members differ by one step at most, and where they do, those behind take the state, as it was before the step that
 * follows, from one that is not. Without a fault nothing is asked and nothing is sent for this.
 *
 * An action of all members between two steps (yk_elastic_together; the end of an epoch is one, too) ends with a
 * barrier. Who is in it when others are beyond has done its part, and is beyond it as well.
 */
#include "elastic/elastic_job.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/core.h"
#include "base/log.h"
#include "base/random_branch.h"
#include "comm/agreement.h"
#include "comm/group.h"
#include "comm/region.h"
#include "host/progress.h"
#include "net/wire.h"
#include "tensor/host_tensor.h"

/* ---- the wish to leave ------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t leave_wished;

static void wish_to_leave(int number)
{
    (void)number;
    leave_wished = 1;
}

void yk_elastic_leave(void)
{
    leave_wished = 1;
}

static bool wishes_to_leave(void)
{
    return leave_wished != 0;
}

static void signal_take(yk_elastic *e)
{
    struct sigaction now, ours = {.sa_handler = wish_to_leave, .sa_flags = SA_RESTART};
    sigemptyset(&ours.sa_mask);
    if (sigaction(SIGTERM, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
        e->signal_taken = sigaction(SIGTERM, &ours, NULL) == 0;
}

static void signal_give_back(yk_elastic *e)
{
    struct sigaction now, usual = {.sa_handler = SIG_DFL};
    if (e->signal_taken && sigaction(SIGTERM, NULL, &now) == 0 && now.sa_handler == wish_to_leave)
        sigaction(SIGTERM, &usual, NULL);
    e->signal_taken = false;
}

/* ---- a step's begin, and back to it ------------------------------------------------------------------------------ */

static yk_status copy_all(yk_tensor **to, yk_tensor **from, int count)
{
    yk_status status = YK_OK;
    for (int i = 0; i < count && !status; i++)
        status = yk__raw_copy(to[i], from[i]);
    return status;
}

/* Keeps what the step that begins will change. */
static yk_status keep(yk_elastic *e)
{
    yk__random_follow(e->generators, e->virtual_ranks);
    memcpy(e->generators_start, e->generators, (size_t)e->virtual_ranks * sizeof(*e->generators));
    e->loader_start = yk_loader_get_state(e->loader);
    yk_status status = copy_all(e->start, e->reducer->buffers, e->reducer->n_buffers);
    e->open = !status;
    return status;
}

static yk_status roll_back(yk_elastic *e)
{
    yk__collectives_refuse(NULL);
    e->stage = YK__BETWEEN;
    yk__leaf_sums_reset(&e->sums);
    if (!e->open)
        return YK_OK;
    e->open = false;
    memcpy(e->generators, e->generators_start, (size_t)e->virtual_ranks * sizeof(*e->generators));
    yk_random_set_state(e->generators[0]);
    if (e->own_bytes)
        memcpy(e->own, e->own_start, e->own_bytes);
    yk_status status =
        yk__elastic_drop_gradients(e->reducer); /* the next view's buckets would begin as copies of them */
    if (!status)
        status = copy_all(e->reducer->buffers, e->start, e->reducer->n_buffers);
    return status ? status : yk_loader_set_state(e->loader, &e->loader_start);
}

/* ---- nodes that are lost ----------------------------------------------------------------------------------------- */

/* With the lock held: whoever waits for a member that is lost need not do so any longer. */
static void break_if_lost(yk_elastic *e)
{
    char reason[120];
    int slot;
    if (!e->lost.breaks || !yk__members_lost(&e->members, e->lost.slots, &slot))
        return;
    e->lost.breaks = false;
    snprintf(reason, sizeof(reason), "process %d of the job was on a node that is lost", slot);
    yk_process_group_abort(e->group, reason);
}

/* On the thread of the watcher. */
static void note_lost(void *argument, const char *key, const void *data, size_t size, const yk_error *error)
{
    yk_elastic *e = argument;
    (void)key;
    if (!data || error) /* the store is gone: so is the launcher, which ends this process */
        return;
    char *slots = yk__format("%.*s", (int)size, (const char *)data);
    pthread_mutex_lock(&e->lost.lock);
    free(e->lost.slots);
    e->lost.slots = slots;
    break_if_lost(e);
    pthread_mutex_unlock(&e->lost.lock);
    yk_clear_error();
}

/* The group and the members are about to change, or are those of the view again. */
static void watch_lost(yk_elastic *e, bool breaks)
{
    pthread_mutex_lock(&e->lost.lock);
    e->lost.breaks = breaks;
    break_if_lost(e);
    pthread_mutex_unlock(&e->lost.lock);
}

static yk_status begin_watching(yk_elastic *e)
{
    yk_scope scope = yk_scope_begin();
    if (e->members.nodes)
        e->lost.watcher =
            yk_store_watcher_retain(yk_store_watcher_create(e->members.store, "elastic/lost", note_lost, e));
    yk_scope_end(scope);
    return e->members.nodes && !e->lost.watcher ? yk__error_code() : YK_OK;
}

/* ---- the members of a view --------------------------------------------------------------------------------------- */

/* Divides the virtual ranks among the members that there are now. */
static yk_status divide(yk_elastic *e)
{
    e->rank = yk_rank(e->group);
    e->world = yk_world_size(e->group);
    for (int p = 0; p < e->world; p++)
        e->begin[p + 1] = yk__leaves_of(e->virtual_ranks, e->world, p).end;
    e->mine = yk__leaves_of(e->virtual_ranks, e->world, e->rank);
    yk__balance_members(e);
    yk__regions_close_later(true); /* the system takes longer to free the memory of the last view than all else here */
    yk__leaf_sums_clear(&e->sums);
    yk__leaf_sums_init(&e->sums, e->virtual_ranks, e->rank, e->world, e->begin);
    yk_status status = yk__reducer_regroup(e->reducer);
    yk__regions_close_later(false);
    return status ? status : yk__loader_share_anew(e->loader, e->mine.begin, e->mine.end - e->mine.begin);
}

/* One member's bytes to all; elsewhere *data is allocated. */
static yk_status send_state(yk_elastic *e, int source, const yk__wire *from, unsigned char **data, size_t *size)
{
    int64_t bytes = (int64_t)from->size, *all = yk__calloc((size_t)e->world, sizeof(*all));
    yk_status status = all ? yk__gather_bytes(&bytes, all, sizeof(bytes), e->group) : YK_ERR_MEMORY;
    bytes = status ? 0 : all[source];
    free(all);
    yk_tensor *x = status ? NULL : yk__host_zeros(1, &bytes, YK_U8);
    if (status || !x)
        return status ? status : yk__error_code();
    if (e->rank == source)
        memcpy(x->data, from->data, from->size);
    status = YK__HOST_TENSORS(yk_broadcast(x, source, e->group));
    if (!status && e->rank != source) {
        *data = yk__calloc((size_t)bytes, 1);
        *size = (size_t)bytes;
        if (*data)
            memcpy(*data, x->data, (size_t)bytes);
        status = *data ? YK_OK : YK_ERR_MEMORY;
    }
    yk_tensor_release(x);
    return status;
}

static yk_status equalise(yk_elastic *e, int source, bool behind)
{
    yk__wire state = {0};
    unsigned char *data = NULL;
    size_t size = 0;
    yk_status status = e->rank == source ? yk__elastic_pack(e, &state) : YK_OK;
    if (!status)
        status = send_state(e, source, &state, &data, &size);
    if (!status && behind)
        status = yk__elastic_unpack(e, data, size);
    yk__wire_clear(&state);
    free(data);
    return status;
}

/* Members that went apart unnoticed (a memory that errs, say) would go on apart. */
static yk_status check_same(yk_elastic *e)
{
    uint64_t own, *all = yk__calloc((size_t)e->world, sizeof(*all));
    yk_status status = all ? YK_OK : YK_ERR_MEMORY;
    bool same = false;
    for (int in_c_order = 0; in_c_order < 2 && !status && !same; in_c_order++) {
        status = yk__elastic_digest(e, in_c_order, &own);
        if (!status)
            status = yk__gather_bytes(&own, all, sizeof(own), e->group);
        same = true;
        for (int i = 1; i < e->world && !status; i++)
            same &= all[i] == all[0];
    }
    for (int i = 1; i < e->world && !status; i++)
        if (all[i] != all[0])
            status =
                yk__fail(YK_ERR_MISMATCH,
                         "elastic: in view %" PRId64 " rank %d (process %d) has other parameters, buffers or random "
                         "numbers than rank 0 (process %d), after the same steps: one of them computes wrongly, or "
                         "the program has changed them on one alone",
                         e->members.view, i, e->members.list[i].slot, e->members.list[0].slot);
    free(all);
    return status;
}

typedef struct stand {
    int64_t position;
    int64_t action;
} stand;

static yk_status meets_in_vain(void *of)
{
    const yk_elastic *e = of;
    return yk__members_gone(&e->members);
}

/* The members of the view meet, and stand where the furthest of them does. */
static yk_status meet(yk_elastic *e, const yk__succession *next, yk__standing standing, bool *completed)
{
    yk_status status = yk__group_rebuild(e->group, next->rank, e->members.count, e->members.view, meets_in_vain, e);
    watch_lost(e, !status);
    if (!status)
        status = divide(e);
    stand own = {e->position, standing == YK__AT_ACTION}, *all = yk__calloc((size_t)e->members.count, sizeof(*all));
    if (!status)
        status = all ? yk__gather_bytes(&own, all, sizeof(own), e->group) : YK_ERR_MEMORY;
    int source = 0;
    bool needed = false;
    for (int i = 0; i < e->world && !status; i++)
        source = all[i].position > all[source].position ? i : source;
    int64_t furthest = status ? 0 : all[source].position;
    for (int i = 0; i < e->world && !status; i++)
        needed |= all[i].position < furthest && !all[i].action;
    free(all);
    if (!status && needed)
        status = equalise(e, source, own.position < furthest && !own.action);
    if (!status)
        status = check_same(e);
    if (!status && own.action && own.position < furthest) {
        *completed = true;
        e->position = furthest;
    }
    return status;
}

/* To the launcher: by the first this process survives others, by the second all of them do (launch/alone.c). */
static void show_view(const yk_elastic *e, bool all_do)
{
    yk__progress_gauge(yk__progress_counter("elastic_view"), e->members.store ? e->members.view : 0);
    if (all_do)
        yk__progress_gauge(yk__progress_counter("elastic_members"), e->world);
}

/* True if the cause may be that another member has ended meanwhile, so that a further view follows. */
static bool may_follow(yk_status status)
{
    return status == YK_ERR_CONNECTION || status == YK_ERR_TIMEOUT || status == YK_ERR_STALLED;
}

static yk_status change_members(yk_elastic *e, yk__standing standing, bool *completed)
{
    yk_error cause;
    yk__succession next = {0};
    double began = yk__now();
    yk__error_take(&cause);
    yk_status status = e->members.store ? roll_back(e) : YK_OK;
    *completed = false;
    while (!status) {
        watch_lost(e, false);
        status = yk__members_change(&e->members, e->position, standing, &next);
        if (status || !next.changed)
            break;
        e->change_due = false;
        status = meet(e, &next, standing, completed);
        if (!status) {
            show_view(e, true);
            snprintf(e->who, sizeof(e->who), "%s", next.who);
            yk__log(YK_LOG_WARN, "elastic: view %" PRId64 ": %s; %d members go on after %.3f s, this one is rank %d",
                    e->members.view, next.who, e->world, yk__now() - began, e->rank);
            return YK_OK;
        }
        if (!may_follow(status))
            break;
        cause = *yk_last_error();
        yk_process_group_abort(e->group, "its members change again");
        yk_clear_error();
        status = YK_OK;
    }
    if (status)
        return status;
    e->change_due = false;
    if (next.over) {
        *completed = true;
        e->position++;
        return YK_OK;
    }
    watch_lost(e, !next.leaving);
    if (next.leaving) {
        e->left = true;
        e->whole = next.whole;
        yk__progress_gauge(yk__progress_counter("elastic_left"), !e->whole);
        return YK_OK;
    }
    if (cause.code)
        yk__error_put(&cause);
    return cause.code;
}

/* The launcher is told meanwhile that this member waits for the others (--evict-stalled). */
yk_status yk__elastic_change(yk_elastic *e, yk__standing standing, bool *completed)
{
    int changing = yk__progress_counter("elastic_changing");
    yk__progress_gauge(changing, e->members.store != NULL);
    yk_status status = change_members(e, standing, completed);
    yk__progress_gauge(changing, 0);
    yk__elastic_spent(e, YK__TIME_CHANGES);
    return status;
}

yk_status yk_elastic_recover(yk_elastic *e)
{
    YK__LIVE(e);
    bool completed;
    yk_status failed = yk__error_code();
    if (!e)
        return failed ? failed : yk__fail(YK_ERR_ARGUMENT, "elastic_recover: the job is NULL");
    if (!failed)
        return yk__fail(YK_ERR_STATE, "elastic_recover: nothing has failed; it follows an error of yk_elastic_backward "
                                      "or yk_elastic_step");
    if (!e->survives || !e->members.store)
        return failed;
    if (e->stage == YK__ALL_DONE && !e->failed) {
        yk__error_prefix("between yk_elastic_next and yk_elastic_step, where the step is done already");
        return failed;
    }
    char reason[sizeof(yk_last_error()->message)];
    snprintf(reason, sizeof(reason), "%s", yk_last_error()->message);
    if (yk__group_is_whole(e->group))
        yk_process_group_abort(e->group, reason);
    yk__elastic_spent(e, YK__TIME_AGAIN);
    yk_status status = yk__elastic_change(e, YK__AT_STEP, &completed);
    e->failed = status;
    return status;
}

yk_status yk_elastic_together(yk_elastic *e, yk_status (*action)(void *argument), void *argument)
{
    YK__OWN_RECORD;
    YK__LIVE(e);
    if (!e)
        return yk__error_code() ? yk__error_code() : yk__fail(YK_ERR_ARGUMENT, "elastic_together: the job is NULL");
    if (e->stage != YK__BETWEEN && e->stage != YK__ALL_DONE)
        return yk__fail(YK_ERR_STATE, "elastic_together: a step is under way; an action of all is made between two");
    if (e->own_bytes && !e->joined_now && !e->left) /* who is behind comes to this action by it */
        memcpy(e->own_start, e->own, e->own_bytes);
    yk__elastic_spent(e, YK__TIME_OTHER);
    for (;;) {
        bool completed = false;
        yk_status status = action ? action(argument) : YK_OK;
        if (!status && e->survives && e->world > 1)
            status = yk_barrier(e->group);
        yk__elastic_spent(e, status ? YK__TIME_AGAIN : YK__TIME_TOGETHER);
        if (!e->survives)
            return status;
        if (!status) {
            e->position++;
            return YK_OK;
        }
        if (!yk__error_code())
            yk__fail(status, "elastic_together: the action failed and set no error");
        if (!e->members.store || yk__group_is_whole(e->group)) /* of itself, on all members alike */
            return status;
        status = yk__elastic_change(e, YK__AT_ACTION, &completed);
        if (status || completed)
            return status;
    }
}

/* ---- from one step to the next ----------------------------------------------------------------------------------- */

unsigned yk__elastic_wishes(yk_elastic *e)
{
    unsigned wishes = leave_wished ? YK__WISH_LEAVE : 0;
    if (e->rank == 0 && yk__members_look(&e->members))
        wishes |= YK__WISH_JOIN;
    return e->members.store ? wishes : 0;
}

bool yk__elastic_enter(yk_elastic *e)
{
    bool completed;
    e->failed = YK_OK;
    if (e->left)
        return false;
    if (e->own_bytes && !e->joined_now)
        memcpy(e->own_start, e->own, e->own_bytes);
    /* A newcomer's program has started the epoch; the others are in the middle of it. */
    if (e->joined_now && (e->failed = yk_loader_set_state(e->loader, &e->loader_start)))
        return false;
    e->joined_now = false;
    if (!yk__loader_has_next(e->loader)) {
        e->failed = yk_elastic_together(e, NULL, NULL);
        return false;
    }
    if (e->change_due)
        e->failed = yk__elastic_change(e, leave_wished ? YK__AT_LEAVE : YK__AT_STEP, &completed);
    if (!e->failed && !e->left)
        e->failed = keep(e);
    return !e->failed && !e->left;
}

const char *yk__elastic_who(const yk_elastic *e)
{
    return e->who;
}

bool yk_elastic_left(const yk_elastic *e)
{
    YK__LIVE(e);
    return e && e->left;
}

bool yk_elastic_left_together(const yk_elastic *e)
{
    YK__LIVE(e);
    return e && e->left && e->whole;
}

bool yk_elastic_joined(const yk_elastic *e)
{
    YK__LIVE(e);
    return e && e->joined;
}

int64_t yk_elastic_view(const yk_elastic *e)
{
    YK__LIVE(e);
    return e && e->members.store ? e->members.view : 0;
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

yk_status yk__elastic_survive(yk_elastic *e, char *facts)
{
    yk__succession next;
    bool completed = false;
    e->own_start = yk__calloc(e->own_bytes + 1, 1);
    e->generators_start = yk__calloc((size_t)e->virtual_ranks, sizeof(*e->generators_start));
    yk_status status = e->own_start && e->generators_start ? YK_OK : YK_ERR_MEMORY;
    pthread_mutex_init(&e->lost.lock, NULL);
    if (!status && e->scaler) /* who has a step done applies it alone */
        status = yk_grad_scaler_set_group(e->scaler, NULL);
    if (status) {
        free(facts);
        return status;
    }
    status = yk__members_make(&e->members, yk__group_store(e->group), e->rank, e->world, e->virtual_ranks, facts,
                              &e->joined);
    if (!status && e->joined) {
        int waits = yk__progress_counter("elastic_spare");
        e->position = -1;
        if (e->members.seats)
            signal_take(e);
        yk__progress_gauge(waits, e->members.seats > 0);
        status = yk__members_join(&e->members, wishes_to_leave, &next);
        yk__progress_gauge(waits, 0);
        e->left = !status && next.leaving;
        if (e->left) /* a spare that was not needed */
            return YK_OK;
        if (!status && (status = meet(e, &next, YK__AT_STEP, &completed)) && may_follow(status))
            status =
                yk__elastic_change(e, YK__AT_STEP, &completed); /* one of the others may have ended at that moment */
        snprintf(e->who, sizeof(e->who), "process %d joins as rank %d", e->members.own.slot, e->rank);
        e->joined_now = true;
    }
    if (!status)
        status = begin_watching(e);
    if (status)
        return status;
    watch_lost(e, true);
    show_view(e, e->joined);
    if (e->members.store && !e->signal_taken) /* else there is nobody to leave, and the signal ends this process */
        signal_take(e);
    /* Nobody goes on before all have said in their pages that they survive its end. */
    if (!e->joined)
        status = yk_elastic_together(e, NULL, NULL);
    show_view(e, !status);
    yk__elastic_spent(e, YK__TIME_OTHER);
    e->took_part = !status;
    return status;
}

void yk__elastic_survive_clear(yk_elastic *e)
{
    yk_store_watcher_release(e->lost.watcher); /* its thread has ended when this returns */
    free(e->lost.slots);
    /* A process that is refused, or fails, says nothing of the others, and who leaves them neither; the last ones tell
     * those that may still wait, spares among them, that the run is over. */
    if (e->took_part && !e->failed && (!e->left || e->whole))
        yk__members_over(&e->members);
    signal_give_back(e);
    yk__members_clear(&e->members);
    free(e->own_start);
    free(e->generators_start);
}
