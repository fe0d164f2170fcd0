/*
 * traces.c - the traces of other nodes' ranks come to node 0, with the difference of the hosts' clocks. Layer: launch.
 *
 * When a job is over on all nodes, node 0 asks each launcher in turn, which answers each order: first some orders for
 * the time alone, then for the traces, piece by piece, so that nothing piles up in the store. Nothing here changes how
 * the job ended, and a launcher that does not answer is left alone.
 *
 * An answer has the other's clock when it took the order and when it answered. With node 0's own, before and after, the
 * difference is that of the middles, wrong by half of what the way took at most; the quickest counts.
 */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "launch/agents.h"
#include "launch/guard.h"

enum { ROUNDS = 16, PIECE = 1 << 20 /* bytes */ };

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- the other nodes --------------------------------------------------------------------------------------------- */
void yk__traces_handle_order(yk__rendezvous *n, unsigned kind, yk__reader *r)
{
    uint64_t id = yk__read_u64(r);
    if (kind == ORDER_TRACE_END) {
        bool kept = yk__read_u8(r) != 0;
        if (!r->bad && id == n->id && !yk__live_traces_stop(n))
            n->trace_end = kept ? YK__TRACES_TAKEN : YK__TRACES_LEFT;
        return;
    }
    uint32_t what = yk__read_u32(r);
    uint64_t offset = yk__read_u64(r);
    if (r->bad || id != n->id)
        return;
    n->trace_order = (yk__trace_order){.pending = true, .what = what, .offset = offset, .heard = now_ns()};
}

void yk__traces_answer(yk__rendezvous *n, const yk__trace_file *files, int count)
{
    static unsigned char piece[PIECE];
    const yk__trace_order o = n->trace_order;
    unsigned state = YK__PIECE_NONE;
    size_t size = 0;
    n->trace_order.pending = false;
    for (int i = 0; i < count && o.what; i++) {
        FILE *from = files[i].file;
        if ((uint32_t)files[i].rank + 1 != o.what || fseeko(from, (off_t)o.offset, SEEK_SET))
            continue;
        size = fread(piece, 1, sizeof(piece), from);
        state = ferror(from) ? YK__PIECE_NONE : size == sizeof(piece) ? YK__PIECE_MORE : YK__PIECE_LAST;
        clearerr(from);
    }
    yk__wire report = yk__agent_report(REPORT_TRACE, n->id);
    yk__wire_put_u32(&report, o.what);
    yk__wire_put_u64(&report, o.offset);
    yk__wire_put_u8(&report, state);
    yk__wire_put_value(&report, piece, state ? size : 0);
    yk__wire_put_u64(&report, (uint64_t)o.heard);
    yk__wire_put_u64(&report, (uint64_t)now_ns());
    yk__agent_client_push(&n->client, "reports", &report);
    yk__wire_clear(&report);
}

bool yk__rendezvous_traces_give(yk__rendezvous *n, const yk__trace_file *files, int count)
{
    while (n->link.done && !n->client.gone && !n->refusal[0] && n->trace_end == YK__TRACES_ASKED) {
        yk__rendezvous_move(n);
        if (n->trace_order.pending)
            yk__traces_answer(n, files, count);
        yk__rendezvous_move(n);
        if (!n->trace_order.pending && n->trace_end == YK__TRACES_ASKED &&
            yk__supervisor_pause(n->epoll, yk__now() + n->s.node_timeout / 5))
            break;
    }
    bool taken = n->trace_end == YK__TRACES_TAKEN;
    n->trace_end = YK__TRACES_ASKED;
    return taken;
}

/* ---- node 0 ------------------------------------------------------------------------------------------------------ */
void yk__traces_handle_report(yk__rendezvous *n, const yk__agent_node *p, yk__reader *r)
{
    yk__trace_answer *a = n->trace_answer;
    int64_t now = now_ns();
    uint32_t what = yk__read_u32(r);
    uint64_t offset = yk__read_u64(r);
    unsigned state = yk__read_u8(r);
    uint32_t size = yk__read_u32(r);
    const unsigned char *bytes = yk__read_bytes(r, size);
    int64_t heard = (int64_t)yk__read_u64(r), answered = (int64_t)yk__read_u64(r);
    if (!a || a->id != p->id || a->come || a->what != what || a->offset != offset)
        return;
    a->come = true;
    a->state = bytes && yk__read_finished(r) && state < YK__PIECE_STATES ? state : YK__PIECE_NONE;
    if (a->state && size && fwrite(bytes, 1, size, a->to) != size)
        a->failed = true;
    a->offset += size;
    int64_t way = now - a->asked - (answered - heard);
    if (way < 0 || way >= a->quickest)
        return;
    a->quickest = way;
    a->ahead = heard - a->asked - (now - a->asked - (answered - heard)) / 2;
}

void yk__traces_order(yk__rendezvous *n, uint64_t id, yk__trace_answer *a)
{
    yk__wire order = {0};
    yk__wire_put_u8(&order, ORDER_TRACE);
    yk__wire_put_u64(&order, id);
    yk__wire_put_u32(&order, a->what);
    yk__wire_put_u64(&order, a->offset);
    a->come = false;
    a->asked = now_ns();
    yk__rendezvous_order(n, &order);
}

/* Gives an order, and waits for the answer; false where it does not come. */
static bool ask(yk__rendezvous *n, const yk__agent_node *p, yk__trace_answer *a)
{
    yk__traces_order(n, p->id, a);
    for (double deadline = yk__now() + n->s.node_timeout; !a->come && yk__now() < deadline;) {
        yk__rendezvous_move(n);
        if (a->come)
            break;
        if (p->gone || n->client.gone || yk__supervisor_pause(n->epoll, deadline))
            return false;
    }
    return a->come;
}

/* The trace of one rank; 1 taken, 0 there is none, -1 it could not be had. */
static int take_rank(yk__rendezvous *n, const yk__agent_node *p, yk__trace_answer *a, FILE *to)
{
    a->to = to;
    a->offset = 0;
    do {
        if (!ask(n, p, a) || a->failed)
            return -1;
    } while (a->state == YK__PIECE_MORE);
    if (a->state == YK__PIECE_NONE)
        return a->offset ? -1 : 0;
    return fflush(to) ? -1 : 1;
}

/* All traces of a node; false where one could not be had, and then none is kept. */
static bool take_node(yk__rendezvous *n, yk__agent_node *p, const yk__trace_taker *taker, yk__trace_file *files,
                      int *count)
{
    yk__trace_answer a = {.id = p->id, .quickest = INT64_MAX};
    int before = *count, got = 1;
    n->trace_answer = &a;
    for (int i = 0; i < ROUNDS && got > 0; i++)
        got = ask(n, p, &a) ? 1 : -1;
    for (int rank = p->first; rank < p->first + p->local && got >= 0; rank++) {
        FILE *to = taker->create(taker->argument, rank);
        a.what = (uint32_t)rank + 1;
        got = to ? take_rank(n, p, &a, to) : -1;
        if (got > 0)
            files[(*count)++] = (yk__trace_file){.rank = rank, .file = to};
        else if (to)
            fclose(to);
        if (got <= 0)
            taker->remove(taker->argument, rank);
    }
    n->trace_answer = NULL;
    for (int i = before; i < *count; i++) {
        files[i].clock_known = a.quickest < INT64_MAX;
        files[i].to_node0_ns = -a.ahead;
        files[i].error_ns = a.quickest / 2 + 1;
        if (got < 0) {
            fclose(files[i].file);
            taker->remove(taker->argument, files[i].rank);
        }
    }
    *count = got < 0 ? before : *count;
    yk__wire order = {0};
    yk__wire_put_u8(&order, ORDER_TRACE_END);
    yk__wire_put_u64(&order, p->id);
    yk__wire_put_u8(&order, got >= 0);
    yk__rendezvous_order(n, &order);
    yk__rendezvous_move(n);
    return got >= 0;
}

int yk__rendezvous_traces_take(yk__rendezvous *n, const yk__trace_taker *taker, yk__trace_file *files)
{
    int count = 0;
    for (int i = 0; i < n->joined && n->link.done; i++) {
        yk__agent_node *p = n->nodes[i];
        char name[160];
        if (p->number < 0 || p->gone)
            continue;
        yk__rendezvous_name_node(p, name, sizeof(name));
        if (!take_node(n, p, taker, files, &count))
            yk__relay_say(n->err, "yoke run: --trace: what %s recorded could not be had (%s)\n", name,
                          p->gone ? "it has ended: was it started with --trace?" : "it stays there");
    }
    return count;
}

bool yk__rendezvous_is_first(const yk__rendezvous *n)
{
    return n->server != NULL;
}
