/*
 * live_traces.c - `yoke trace` in a job of several nodes that goes on: node 0's launcher has the ranks of all nodes
 * record the same steps, and fetches what they have. Layer: launch.
 *
 * The request comes by node 0's page of requests (pages.h), which the system opens for processes of the same user
 * alone. Node 0 tells the other launchers by an order; each asks its ranks by their pages (host/profiler.h), reports
 * when they have answered, and then gives the pieces as at the end of a job (traces.c). Everything happens in the turns
 * of the link, and none of them waits: node 0 gives the next order at the turn in which an answer has come. Nothing
 * here changes how the job goes on or ends.
 *
 * Invariant: n->trace_answer is that of n->live while node 0 waits for an answer, else NULL; descriptors of `found`
 * belong to n->live.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host/process.h"
#include "host/profiler.h"
#include "host/rank_info.h"
#include "launch/agents.h"
#include "launch/hang.h"

enum { ROUNDS = 16 };                   /* orders for the clock alone */
static const double look_every = 0.25;  /* seconds, at node 0: for requests */
static const double wait_every = 0.02;  /* seconds, for the ranks' answers */
static const double kept_for = 60;      /* seconds for which an answer is kept that nobody takes */
static const double most_seconds = 1e7; /* of a request */

/* Another node, as it was when the request came. */
typedef struct live_node {
    uint64_t id;
    char name[160];
    bool ready;
    int count;
    struct {
        int rank, why; /* why: 0, or below: it has no trace (YK__NO_TRACE_BUSY and so on) */
    } * ranks;
} live_node;

struct yk__live_traces {
    unsigned number; /* of the request */
    double until;
    bool ready;         /* the ranks here are done, and `found` has them */
    bool over;          /* node 0 wants no more, or has answered */
    double answered_at; /* of node 0; 0: not yet */
    int count;
    yk__asked_rank *asked;
    int *local; /* the index in its group of each of them */
    yk__traced *found;
    int n_found, room;
    /* node 0 */
    yk__run_requests *page;
    live_node *nodes;
    int n_nodes, at, round, rank, first_found; /* the node that is asked, and which of its ranks */
    bool asking;
    double deadline;
    yk__trace_answer answer;
    int file;  /* into which the answer is written; -1: none */
    int index; /* the memory file with all that was found; -1: not yet */
};

/* ---- the state --------------------------------------------------------------------------------------------------- */
static void live_clear(yk__rendezvous *n)
{
    yk__live_traces *l = n->live;
    n->live = NULL;
    n->trace_order.pending = false;
    if (!l)
        return;
    if (n->trace_answer == &l->answer)
        n->trace_answer = NULL;
    for (int i = 0; i < l->count; i++)
        yk__trace_take_back(&l->asked[i]);
    for (int i = 0; i < l->n_found; i++) {
        if (l->found[i].file >= 0)
            close(l->found[i].file);
    }
    for (int i = 0; i < l->n_nodes; i++)
        free(l->nodes[i].ranks);
    if (l->answer.to)
        fclose(l->answer.to);
    if (l->file >= 0)
        close(l->file);
    if (l->index >= 0)
        close(l->index);
    free(l->nodes);
    free(l->asked);
    free(l->local);
    free(l->found);
    free(l);
}

/* The request is over; `file` is the launcher's descriptor with what was found, or below 0. */
static void page_answer(yk__run_requests *page, unsigned number, int file)
{
    atomic_store(&page->trace_file, file);
    atomic_store_explicit(&page->trace_answered, number, memory_order_release);
}

void yk__live_traces_end(yk__rendezvous *n)
{
    yk__live_traces *l = n->live;
    if (l && l->page && l->answered_at == 0)
        page_answer(l->page, l->number, YK__NO_TRACE_ENDED);
    live_clear(n);
}

/* Notes what is known of a rank, or of a node (`rank` < 0); its descriptor is closed with the state. False without
 * memory. */
static bool found_add(yk__live_traces *l, const yk__traced *one)
{
    if (l->n_found == l->room) {
        int room = l->room ? 2 * l->room : 16;
        yk__traced *found = realloc(l->found, (size_t)room * sizeof(*found));
        if (!found) {
            if (one->file >= 0)
                close(one->file);
            return false;
        }
        l->found = found;
        l->room = room;
    }
    l->found[l->n_found++] = *one;
    return true;
}

/* Asks the ranks of this node, those that have called yoke. NULL without memory. */
static yk__live_traces *live_begin(yk__rendezvous *n, const group *g, const yk__live_order *o)
{
    live_clear(n);
    yk__live_traces *l = calloc(1, sizeof(*l));
    if (!l)
        return NULL;
    n->live = l;
    *l = (yk__live_traces){.number = o->number, .until = yk__now() + o->seconds, .file = -1, .index = -1};
    l->asked = calloc((size_t)g->count + 1, sizeof(*l->asked));
    l->local = calloc((size_t)g->count + 1, sizeof(*l->local));
    for (int i = 0; i < g->count && l->asked && l->local; i++) {
        yk__rank_page *page = yk__pages_at(yk__hang_pages(g->hang), i);
        if (!page || !g->workers[i].running || !atomic_load(&page->pid))
            continue;
        l->local[l->count] = i;
        yk__trace_ask(&l->asked[l->count++], page, o->steps, o->behind, o->far);
    }
    return l;
}

static bool rank_has_ended(const yk__live_traces *l, const group *g, int i)
{
    return !g->workers[l->local[i]].running || yk__process_has_ended(atomic_load(&l->asked[i].page->pid));
}

/* Takes the answers of this node's ranks, once they are there or it is too late for them. */
static void own_look(yk__live_traces *l, const group *g)
{
    bool all = true;
    for (int i = 0; i < l->count; i++)
        all &= yk__trace_look(&l->asked[i]) || rank_has_ended(l, g, i);
    if (!all && yk__now() < l->until)
        return;
    for (int i = 0; i < l->count; i++) {
        const yk__asked_rank *a = &l->asked[i];
        const yk__traced one = {
            .rank = a->page->rank, .file = yk__trace_open(a, rank_has_ended(l, g, i)), .clock_known = true};
        found_add(l, &one);
    }
    l->ready = true;
}

/* ---- the other nodes --------------------------------------------------------------------------------------------- */
void yk__live_traces_handle_order(yk__rendezvous *n, yk__reader *r)
{
    yk__live_order o = {.pending = true, .number = yk__read_u32(r), .steps = yk__read_u32(r)};
    o.behind = yk__read_u64(r);
    o.far = yk__read_u64(r);
    o.seconds = 1e-3 * (double)yk__read_u64(r);
    if (yk__read_finished(r) && o.steps > 0 && o.seconds <= most_seconds)
        n->live_order = o;
}

bool yk__live_traces_stop(yk__rendezvous *n)
{
    if (n->live)
        n->live->over = true;
    return n->live != NULL;
}

/* Node 0 hears which ranks have something. */
static void ready_report(yk__rendezvous *n, const yk__live_traces *l)
{
    yk__wire report = yk__agent_report(REPORT_LIVE, n->id);
    yk__wire_put_u32(&report, l->number);
    yk__wire_put_u32(&report, (uint32_t)l->n_found);
    for (int i = 0; i < l->n_found; i++) {
        yk__wire_put_u32(&report, (uint32_t)l->found[i].rank);
        yk__wire_put_u8(&report, l->found[i].file < 0 ? (unsigned)-l->found[i].file : 0);
    }
    yk__agent_client_push(&n->client, "reports", &report);
    yk__wire_clear(&report);
}

/* Answers the order for a piece that has come. */
static void piece_give(yk__rendezvous *n, const yk__live_traces *l)
{
    yk__trace_file one = {.file = NULL};
    for (int i = 0; i < l->n_found && !one.file; i++) {
        const yk__traced *f = &l->found[i];
        if (f->file < 0 || (uint32_t)f->rank + 1 != n->trace_order.what)
            continue;
        int copy = fcntl(f->file, F_DUPFD_CLOEXEC, 3);
        one = (yk__trace_file){.rank = f->rank, .file = copy < 0 ? NULL : fdopen(copy, "r")};
        if (copy >= 0 && !one.file)
            close(copy);
    }
    yk__traces_answer(n, &one, one.file ? 1 : 0);
    if (one.file)
        fclose(one.file);
}

static void other_step(yk__rendezvous *n, const group *g, double *again)
{
    if (n->live_order.pending) {
        const yk__live_order o = n->live_order;
        n->live_order.pending = false;
        live_begin(n, g, &o);
    }
    yk__live_traces *l = n->live;
    if (l && !l->ready && !l->over) {
        own_look(l, g);
        if (l->ready)
            ready_report(n, l);
        else
            *again = yk__now() + wait_every < *again ? yk__now() + wait_every : *again;
    }
    if (l && n->trace_order.pending && !l->over)
        piece_give(n, l);
    if (l && l->over)
        live_clear(n);
}

/* ---- node 0 ------------------------------------------------------------------------------------------------------ */
void yk__live_traces_handle_report(yk__rendezvous *n, const yk__agent_node *p, yk__reader *r)
{
    yk__live_traces *l = n->live;
    uint32_t number = yk__read_u32(r), count = yk__read_u32(r);
    live_node *node = NULL;
    for (int i = 0; l && i < l->n_nodes; i++)
        node = l->nodes[i].id == p->id ? &l->nodes[i] : node;
    if (r->bad || !node || number != l->number || node->ready || count > YK__MOST_LOCAL)
        return;
    node->ranks = calloc(count + 1, sizeof(*node->ranks));
    for (uint32_t i = 0; i < count && node->ranks; i++) {
        uint32_t rank = yk__read_u32(r);
        unsigned why = yk__read_u8(r);
        if (r->bad || rank < (uint32_t)p->first || rank >= (uint32_t)(p->first + p->local) || why > YK__NO_TRACES)
            break;
        node->ranks[node->count].rank = (int)rank;
        node->ranks[node->count++].why = -(int)why;
    }
    node->ready = true;
    if (l->page)
        atomic_fetch_add(&l->page->trace_moved, 1);
}

static void request_begin(yk__rendezvous *n, const group *g, yk__run_requests *page, unsigned number)
{
    double seconds = atomic_load(&page->trace_seconds);
    const yk__live_order o = {.number = number,
                              .steps = atomic_load(&page->trace_steps) ? atomic_load(&page->trace_steps) : 1,
                              .behind = atomic_load(&page->trace_behind),
                              .far = atomic_load(&page->trace_far),
                              .seconds = seconds > 0 && seconds < most_seconds ? seconds : 0};
    yk__live_traces *l = live_begin(n, g, &o);
    if (!l || !(l->nodes = calloc((size_t)n->joined + 1, sizeof(*l->nodes)))) {
        page_answer(page, number, YK__NO_TRACE_MEMORY);
        live_clear(n);
        return;
    }
    l->page = page;
    for (int i = 0; i < n->joined; i++) {
        const yk__agent_node *p = n->nodes[i];
        if (p->number < 0 || p->gone)
            continue;
        l->nodes[l->n_nodes].id = p->id;
        yk__rendezvous_name_node(p, l->nodes[l->n_nodes].name, sizeof(l->nodes->name));
        l->n_nodes++;
    }
    yk__wire order = {0};
    yk__wire_put_u8(&order, ORDER_LIVE);
    yk__wire_put_u32(&order, o.number);
    yk__wire_put_u32(&order, o.steps);
    yk__wire_put_u64(&order, o.behind);
    yk__wire_put_u64(&order, o.far);
    yk__wire_put_u64(&order, (uint64_t)(1e3 * o.seconds + 0.5));
    yk__rendezvous_order(n, &order);
}

/* Gives the node that is asked the next order for `what`. */
static void ask_next(yk__rendezvous *n, yk__live_traces *l, uint32_t what, uint64_t offset)
{
    l->answer.what = what;
    l->answer.offset = offset;
    n->trace_answer = &l->answer;
    yk__traces_order(n, l->nodes[l->at].id, &l->answer);
    l->asking = true;
    l->deadline = yk__now() + n->s.node_timeout;
}

/* The next node; what was found of this one is on node 0's clock now. */
static void node_end(yk__rendezvous *n, yk__live_traces *l, const char *why)
{
    const live_node *node = &l->nodes[l->at];
    for (int i = l->first_found; i < l->n_found; i++) {
        l->found[i].clock_known = l->answer.quickest < INT64_MAX;
        l->found[i].to_node0_ns = -l->answer.ahead;
        l->found[i].error_ns = l->answer.quickest / 2 + 1;
    }
    if (why) {
        yk__traced one = {.rank = -1, .file = YK__NO_TRACE_LOST};
        snprintf(one.why, sizeof(one.why), "what %s recorded could not be had: %s", node->name, why);
        found_add(l, &one);
    }
    if (l->answer.to)
        fclose(l->answer.to);
    if (l->file >= 0)
        close(l->file);
    l->answer.to = NULL;
    l->file = -1;
    n->trace_answer = NULL;
    l->asking = false;
    l->at++;
    l->round = l->rank = 0;
}

/* A memory file for what the rank has recorded. */
static bool rank_begin(yk__live_traces *l)
{
    l->file = memfd_create("yoke-trace", MFD_CLOEXEC);
    int copy = l->file < 0 ? -1 : fcntl(l->file, F_DUPFD_CLOEXEC, 3);
    l->answer.to = copy < 0 ? NULL : fdopen(copy, "w");
    if (!l->answer.to && copy >= 0)
        close(copy);
    return l->answer.to != NULL;
}

/* The rank's last piece has come, or it has none. */
static void rank_end(yk__live_traces *l, int rank, bool had)
{
    bool fine = l->answer.to && fclose(l->answer.to) == 0 && had;
    l->answer.to = NULL;
    if (!fine && l->file >= 0)
        close(l->file);
    found_add(l, &(yk__traced){.rank = rank, .file = fine ? l->file : YK__NO_TRACE_LOST});
    l->file = -1;
    l->rank++;
}

/* The node that is asked gives what it has; true where it is the turn of the next. */
static bool node_step(yk__rendezvous *n, yk__live_traces *l)
{
    static uint64_t clock_orders; /* so that a late answer to an earlier one is not taken for this one's */
    const live_node *node = &l->nodes[l->at];
    const yk__agent_node *p = yk__rendezvous_node(n, node->id);
    double now = yk__now();
    if (!p || p->gone) {
        node_end(n, l, "it has ended");
        return true;
    }
    if (!node->ready || !l->ready) {
        if (now < l->until + n->s.node_timeout)
            return false;
        node_end(n, l, "its launcher does not answer");
        return true;
    }
    if (l->asking && !l->answer.come) {
        if (now < l->deadline)
            return false;
        node_end(n, l, "its launcher does not answer");
        return true;
    }
    if (l->asking)
        atomic_fetch_add(&l->page->trace_moved, 1);
    if (!l->asking && !l->round) {
        l->answer = (yk__trace_answer){.id = node->id, .quickest = INT64_MAX};
        l->first_found = l->n_found;
    } else if (l->answer.what && (l->answer.state != YK__PIECE_MORE || l->answer.failed)) {
        rank_end(l, node->ranks[l->rank].rank, l->answer.state == YK__PIECE_LAST && !l->answer.failed);
        l->answer.what = 0;
        l->answer.failed = false;
    } else if (l->answer.what) {
        ask_next(n, l, l->answer.what, l->answer.offset);
        return false;
    }
    if (l->round < ROUNDS) {
        l->round++;
        ask_next(n, l, 0, ++clock_orders);
        return false;
    }
    for (; l->rank < node->count && node->ranks[l->rank].why; l->rank++)
        found_add(l, &(yk__traced){.rank = node->ranks[l->rank].rank, .file = node->ranks[l->rank].why});
    if (l->rank == node->count) {
        node_end(n, l, NULL);
        return true;
    }
    if (!rank_begin(l)) {
        node_end(n, l, "this launcher has no memory for it");
        return true;
    }
    ask_next(n, l, (uint32_t)node->ranks[l->rank].rank + 1, 0);
    return false;
}

/* All is there: it is offered to whoever has asked, and the other nodes need not keep theirs. */
static void request_end(yk__rendezvous *n, yk__live_traces *l)
{
    for (int i = 0; i < l->n_nodes; i++) {
        yk__wire order = {0};
        yk__wire_put_u8(&order, ORDER_TRACE_END);
        yk__wire_put_u64(&order, l->nodes[i].id);
        yk__wire_put_u8(&order, 1);
        yk__rendezvous_order(n, &order);
    }
    size_t size = (size_t)l->n_found * sizeof(*l->found);
    l->index = memfd_create("yoke-traces", MFD_CLOEXEC);
    if (l->index >= 0 && write(l->index, l->found, size) != (ssize_t)size) {
        close(l->index);
        l->index = -1;
    }
    l->answered_at = yk__now();
    page_answer(l->page, l->number, l->index < 0 ? YK__NO_TRACE_MEMORY : l->index);
}

static void node_0_step(yk__rendezvous *n, const group *g, double *again)
{
    yk__run_requests *page = yk__pages_requests(yk__hang_pages(g->hang));
    unsigned asked = page ? atomic_load_explicit(&page->trace_asked, memory_order_acquire) : 0;
    double next = yk__now() + look_every;
    int others = 0;
    for (int i = 0; i < n->joined; i++)
        others += n->nodes[i]->number >= 0 && !n->nodes[i]->gone;
    if (page && atomic_load(&page->others) != others)
        atomic_store(&page->others, others);
    if (n->live && asked != n->live->number) { /* taken back, or replaced */
        for (int i = 0; i < n->live->n_nodes && n->live->answered_at == 0; i++) {
            yk__wire order = {0};
            yk__wire_put_u8(&order, ORDER_TRACE_END);
            yk__wire_put_u64(&order, n->live->nodes[i].id);
            yk__wire_put_u8(&order, 0);
            yk__rendezvous_order(n, &order);
        }
        live_clear(n);
    }
    if (page && !n->live && asked % 2 && asked != atomic_load(&page->trace_answered))
        request_begin(n, g, page, asked);
    yk__live_traces *l = n->live;
    if (l && l->answered_at > 0) {
        if (yk__now() > l->answered_at + kept_for)
            live_clear(n);
    } else if (l) {
        if (!l->ready)
            own_look(l, g);
        while (l->at < l->n_nodes && node_step(n, l))
            ;
        if (l->ready && l->at == l->n_nodes)
            request_end(n, l);
        next = yk__now() + wait_every;
    }
    *again = next < *again ? next : *again;
}

void yk__live_traces_step(yk__rendezvous *n, const group *g, double *again)
{
    if (n->server)
        node_0_step(n, g, again);
    else
        other_step(n, g, again);
}
