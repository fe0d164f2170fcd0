/*
 * recorded.c - collectives in a step that is recorded and replayed (yk_graph), on a backend that puts them on a queue
 * of the device. Layer: comm.
 *
 * In the calls before the recording they are ordinary collectives, and the group becomes a member of the graph. While
 * it is recorded, the ranks exchange nothing on the host: an operation goes to the device's queue, which records it.
 * They exchange a vote before, whether all can record, and one after it, whether all have recorded the same operations,
 * by a hash of them (Note [Ranks record together]). A replay is watched as a whole, by an event after it; there is no
 * comparison of headers in it, because every rank replays what all have compared.
 */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "comm/group.h"
#include "device/graph.h"

typedef struct yk__recorded {
    yk__group *group; /* retained */
    yk_graph *graph;
    struct yk__recorded *next; /* of the group's */
    uint64_t hash;             /* of the collectives of the last call */
    uint64_t *to, *from;       /* and of the messages to and from each rank, in one allocation */
    int64_t count;             /* of all */
    yk__comm_op first;
    uint64_t replays;
} recorded;

/* ---- the graph's member ------------------------------------------------------------------------------------------ */
static void member_begin(void *object, void *notes)
{
    const yk__group *g = object;
    recorded *r = notes;
    r->hash = YK__HASH_BASIS;
    for (int k = 0; k < 2 * g->world_size; k++)
        r->to[k] = YK__HASH_BASIS;
    r->count = 0;
}

/* A replay on a broken group would wait for ranks that are gone. */
static yk_status member_before(void *object, void *notes, const char **stale)
{
    const yk__group *g = object;
    (void)notes, (void)stale;
    return g->backend->check(g->state);
}

static void member_after(void *object, void *notes)
{
    recorded *r = notes;
    yk__comm_op op = r->first;
    op.number = ++r->replays;
    op.recorded = r->count;
    yk__queued_replay(object, &op);
}

static void member_release(void *object, void *notes)
{
    yk__group *g = object;
    recorded *r = notes;
    pthread_mutex_lock(&g->lock);
    recorded **at = &g->recorded;
    while (*at && *at != r)
        at = &(*at)->next;
    if (*at)
        *at = r->next;
    pthread_mutex_unlock(&g->lock);
    yk__group_release(g);
    free(r->to);
    free(r);
}

/* The vote of a rank, which all others get; the hashes of messages, to and from each rank, follow. */
typedef struct ballot {
    int64_t can;
    uint64_t hash;
    char why[sizeof((yk__graph_vote){0}.why)];
    uint64_t messages[];
} ballot;

static size_t ballot_size(const yk__group *g)
{
    return sizeof(ballot) + 2 * (size_t)g->world_size * sizeof(uint64_t);
}

static const ballot *ballot_of(const yk__group *g, const ballot *all, int rank)
{
    return (const void *)((const char *)all + (size_t)rank * ballot_size(g));
}

static yk_status votes_exchange(yk__group *g, const ballot *own, ballot *all)
{
    int64_t bytes = (int64_t)ballot_size(g), total = bytes * g->world_size;
    yk_tensor *part = yk__tensor_new(1, &bytes, NULL, YK_U8, (yk_device){0});
    yk_tensor *whole = yk__tensor_new(1, &total, NULL, YK_U8, (yk_device){0});
    yk_status status = part && whole ? YK_OK : yk__error_code();
    if (!status) {
        memcpy(part->data, own, (size_t)bytes);
        yk__call call = {.op = {.kind = YK__COMM_ALL_GATHER, .dtype = YK_U8, .peer = -1, .tag = -1, .count = bytes},
                         .in = part,
                         .out = whole};
        status = yk__comm_run(g, &call);
    }
    if (!status)
        memcpy(all, whole->data, (size_t)total);
    yk_tensor_release(part);
    yk_tensor_release(whole);
    return status;
}

/* True if all ranks have recorded matching operations: the same collectives, and for each message its other end. */
static bool fits(const yk__group *g, const ballot *all, yk__graph_vote *vote)
{
    int n = g->world_size;
    for (int k = 0; k < n; k++) {
        const ballot *of = ballot_of(g, all, k);
        if (of->hash != all->hash) {
            snprintf(vote->why, sizeof(vote->why), "group '%s': rank %d recorded other collectives than rank 0",
                     g->name, k);
            return false;
        }
        for (int to = 0; to < n; to++) {
            if (of->messages[to] == ballot_of(g, all, to)->messages[n + k])
                continue;
            snprintf(vote->why, sizeof(vote->why),
                     "group '%s': rank %d recorded other sends to rank %d than rank %d receives from it", g->name, k,
                     to, to);
            return false;
        }
    }
    return true;
}

static yk_status member_decide(void *object, void *notes, yk__graph_vote *vote)
{
    yk__group *g = object;
    const recorded *r = notes;
    pthread_mutex_lock(&g->lock);
    g->recording = false; /* it is over, if there was one */
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    ballot *all = yk__calloc((size_t)g->world_size + 1, ballot_size(g));
    if (!all)
        return yk__error_code();
    ballot *own = (ballot *)(uintptr_t)ballot_of(g, all, g->world_size);
    own->can = vote->can;
    own->hash = r->hash;
    memcpy(own->why, vote->why, sizeof(own->why));
    memcpy(own->messages, r->to, 2 * (size_t)g->world_size * sizeof(uint64_t));
    yk_status status = votes_exchange(g, own, all);
    const ballot *least = all;
    int of = 0;
    for (int k = 1; k < g->world_size && !status; k++) {
        if (ballot_of(g, all, k)->can < least->can) {
            least = ballot_of(g, all, k);
            of = k;
        }
    }
    if (!status && least->can > 0 && !fits(g, all, vote)) {
        vote->can = -1;
    } else if (!status && least->can < vote->can) {
        vote->can = (int)least->can;
        snprintf(vote->why, sizeof(vote->why), "rank %d of group '%s' cannot: %.250s", of, g->name, least->why);
    }
    free(all);
    return status;
}

static yk_status add_member(yk__group *g, yk_graph *graph, const yk__comm_op *op, recorded **made)
{
    if (yk__graph_is_shared(graph))
        return yk__graph_forbid_in(yk__comm_kind_name(op->kind), "collectives of two groups are called",
                                   "call those of one alone in the function");
    recorded *r = yk__calloc(1, sizeof(*r));
    uint64_t *hashes = yk__calloc(2 * (size_t)g->world_size, sizeof(*hashes));
    if (!r || !hashes) {
        free(r);
        free(hashes);
        return yk__error_code();
    }
    r->to = hashes;
    r->from = hashes + g->world_size;
    r->group = g;
    r->graph = graph;
    yk__group_retain(g);
    r->next = g->recorded;
    g->recorded = r;
    member_begin(g, r);
    yk__graph_member member = {.object = g,
                               .notes = r,
                               .before = member_before,
                               .after = member_after,
                               .begin = member_begin,
                               .release = member_release,
                               .decide = member_decide};
    pthread_mutex_unlock(&g->lock); /* which release takes */
    yk_status status = yk__graph_add(graph, &member);
    pthread_mutex_lock(&g->lock);
    *made = status ? NULL : r;
    return status;
}

/* ---- for operations ---------------------------------------------------------------------------------------------- */
yk_status yk__recorded_note(yk__group *g, yk_device device, const yk__comm_op *op)
{
    yk_graph *graph = yk__graph_current();
    if (!graph)
        return YK_OK;
    if (!yk__graph_is_of(graph, device))
        return yk__graph_forbid_in(yk__comm_kind_name(op->kind), "it is called with tensors of another device",
                                   "keep it out of the function");
    recorded *r = yk__graph_notes(graph, g);
    yk_status status = r ? YK_OK : add_member(g, graph, op, &r);
    if (status || !r)
        return status;
    yk__comm_op plain = *op;
    plain.number = 0;
    if (r->count++ == 0)
        r->first = plain;
    yk__comm_header header = yk__comm_header_of(&plain);
    if (op->kind >= YK__COMM_COLLECTIVES) { /* the same on either end */
        header.kind = YK__COMM_SEND;
        header.peer = op->tag;
        uint64_t *hash = &(op->kind == YK__COMM_SEND ? r->to : r->from)[op->peer];
        *hash = yk__hash(*hash, &header, sizeof(header));
        return YK_OK;
    }
    r->hash = yk__hash(r->hash, &header, sizeof(header));
    return YK_OK;
}

yk_status yk__recorded_forbid_host(const yk__group *g, const yk__call *call)
{
    if (!yk__graph_current())
        return YK_OK;
    char what[80];
    snprintf(what, sizeof(what), "the backend '%.32s' carries it out on the host", g->backend->name);
    bool nccl = strcmp(g->backend->name, "nccl") == 0;
    return yk__graph_forbid_in(yk__comm_kind_name(call->op.kind), what,
                               nccl ? "call it before or after yk_graph_run"
                                    : "the backend 'nccl' can be recorded; or call it after yk_graph_run");
}

void yk__recorded_begin(yk__work *work)
{
    work->graph = yk__graph_current();
    work->graph_call = work->graph ? yk_graph_get_info(work->graph).calls : 0;
}

yk_status yk__recorded_forbid_earlier(const yk__work *work)
{
    const yk_graph *graph = yk__graph_current();
    if (!graph || !work->call.op.on_device || work->call.op.captured ||
        (work->graph == graph && work->graph_call == yk_graph_get_info(graph).calls))
        return YK_OK;
    return yk__graph_forbid_in(yk__comm_kind_name(work->call.op.kind),
                               work->call.op.kind < YK__COMM_COLLECTIVES
                                   ? "a collective from before the function is waited for"
                                   : "a message from before the function is waited for",
                               "wait for it before yk_graph_run");
}

void yk__recorded_leave(yk__group *g)
{
    char why[360];
    snprintf(why, sizeof(why), "the process group '%.300s' of its collectives was left", g->name);
    pthread_mutex_lock(&g->lock);
    for (recorded *r = g->recorded; r; r = r->next)
        yk__graph_give_up(r->graph, why);
    pthread_mutex_unlock(&g->lock);
}
