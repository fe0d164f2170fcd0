/*
 * watch.c - waiting for other ranks, and what becomes of it when one does not come. Layer: comm/native.
 *
 * A wait spins for a moment, because ranks mostly come within microseconds; then it offers its core to others between
 * looks, for longer than the system needs to wake a sleeper (0.1 ms in a virtual machine: ranks that slept would make
 * each other sleep for ever); then it sleeps on a word in shared memory. Ranks that outnumber their cores hardly spin:
 * the one they wait for needs the core. Who publishes a round looks for sleepers, and wakes them only if the round is
 * complete by it, so that a rank is woken once a round. While asleep it looks after its peers every 0.1 s: a process
 * that ended is seen in /proc, also as a zombie.
 *
 * The first to see a failure writes the cause into the segment and wakes everybody; all report that one.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "comm/native/hosts.h"

enum { SPINS = 200, CROWDED_SPINS = 20 };
static const double offer = 4e-4, nap = 0.01, look = 0.1; /* seconds */

void yk__native_sleep(_Atomic uint32_t *word, uint32_t value, double seconds)
{
    struct timespec limit = {.tv_sec = (time_t)seconds};
    limit.tv_nsec = (long)((seconds - (double)limit.tv_sec) * 1e9);
    syscall(SYS_futex, word, FUTEX_WAIT, value, &limit, NULL, 0);
}

void yk__native_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

const char *yk__native_who_rank(const native *g, int rank, char *buffer, size_t size)
{
    const yk__native_member *m = &g->members[rank];
    snprintf(buffer, size, "rank %d (host %s, pid %d)", rank, m->host_name, (int)m->pid);
    return buffer;
}

const char *yk__native_who(const native *g, int row, char *buffer, size_t size)
{
    return yk__native_who_rank(g, yk__native_rank_at(g, g->host, row), buffer, size);
}

bool yk__native_process_state(int pid, char *letter, uint64_t *start)
{
    char path[40], text[1024];
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = 0;
    /* "pid (name) state ...": the name may hold anything, the start time is field 22 */
    char *at = strrchr(text, ')');
    if (!at || at[1] != ' ')
        return false;
    at += 2;
    *letter = *at;
    for (int field = 3; field < 22 && at; field++) {
        at = strchr(at, ' ');
        at = at ? at + 1 : NULL;
    }
    if (!at)
        return false;
    *start = strtoull(at, NULL, 10);
    return true;
}

bool yk__native_is_dead(const native *g, int rank, bool *stopped)
{
    const yk__native_row *row = &g->rows[rank];
    char letter = 0;
    uint64_t start = 0;
    *stopped = false;
    if (row->pid == g->pid)
        return false;
    if (!yk__native_process_state(row->pid, &letter, &start))
        return errno == ENOENT || errno == ESRCH;
    *stopped = letter == 'T' || letter == 't';
    return letter == 'Z' || letter == 'X' || start != row->start;
}

static void ring_all(native *g)
{
    atomic_fetch_add(&g->head->epoch, 1);
    yk__native_wake(&g->head->epoch);
    for (int r = 0; r < g->world_size; r++) {
        atomic_fetch_add(&g->rows[r].bell, 1);
        yk__native_wake(&g->rows[r].bell);
    }
}

/* Fails with the cause in the segment. */
static yk_status fail_broken(native *g)
{
    for (int i = 0; i < 1000 && atomic_load(&g->head->broken) == 1; i++)
        usleep(100); /* its writer is about to finish, unless it was killed just now */
    if (atomic_load(&g->head->broken) != 2)
        return yk__fail(YK_ERR_CONNECTION, "group '%s' is broken; the rank that knew why ended", g->name);
    return yk__fail((yk_status)g->head->code, "%s", g->head->cause);
}

void yk__native_abort(void *state, yk_status code, const char *cause)
{
    native *g = state;
    uint32_t whole = 0;
    if (!atomic_compare_exchange_strong(&g->head->broken, &whole, 1))
        return;
    g->head->code = (int32_t)code;
    snprintf(g->head->cause, sizeof(g->head->cause), "%s", cause);
    atomic_store(&g->head->broken, 2);
    ring_all(g);
    if (g->net)
        yk__native_talk_broken(g, code, g->head->cause);
}

yk_status yk__native_break(native *g, yk_status code, const char *format, ...)
{
    char cause[sizeof(g->head->cause)];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(cause, sizeof(cause), format, arguments);
    va_end(arguments);
    yk__native_abort(g, code, cause);
    return fail_broken(g);
}

yk_status yk__native_check(void *state)
{
    native *g = state;
    return atomic_load_explicit(&g->head->broken, memory_order_acquire) ? fail_broken(g) : YK_OK;
}

static inline bool reached(const native *g, int rank)
{
    return (int32_t)(atomic_load_explicit(&g->rows[rank].progress, memory_order_acquire) - g->round) >= 0;
}

static bool complete(const native *g)
{
    for (int r = 0; r < g->world_size; r++)
        if ((int32_t)(atomic_load(&g->rows[r].progress) - g->round) < 0)
            return false;
    return true;
}

/* "rank 1 (host a, pid 12), which ..." behind what the list holds. */
static void name_late(native *g, char *list, size_t size, int rank)
{
    size_t used = strlen(list);
    char who[120];
    if (used >= size - 160)
        return;
    const yk__native_member *m = &g->members[rank];
    bool stopped = false, here = m->host == g->host;
    if (here)
        yk__native_is_dead(g, m->row, &stopped);
    used += (size_t)snprintf(list + used, size - used, "%s%s%s", used ? ", " : "",
                             yk__native_who_rank(g, rank, who, sizeof(who)), stopped ? ", which is stopped" : "");
    if (!stopped && here)
        snprintf(list + used, size - used, ", which has done %llu collectives",
                 (unsigned long long)atomic_load(&g->rows[m->row].done));
    else if (!here)
        snprintf(list + used, size - used, ", from which nothing is heard in this operation");
}

/* Time is up between hosts: the cause are the ranks that are not known to have come to this operation. Where all have
 * come, it is the one that this rank waits for (-1: let those decide who wait for another host). */
static yk_status break_stalled_across(native *g, int waits_for)
{
    char list[480] = "", what[160], self[120];
    uint64_t number = g->current.number;
    yk__native_talk_service(g);
    pthread_mutex_lock(&g->message_lock);
    for (int r = 0; r < g->world; r++) {
        const yk__native_member *m = &g->members[r];
        uint64_t begun = m->host == g->host ? atomic_load(&g->rows[m->row].begun) : g->net->links[r].begun;
        if (begun < number && r != g->world_rank)
            name_late(g, list, sizeof(list), r);
    }
    pthread_mutex_unlock(&g->message_lock);
    if (!*list && waits_for >= 0)
        name_late(g, list, sizeof(list), waits_for);
    if (!*list)
        return YK_OK;
    return yk__native_break(g, YK_ERR_STALLED, "%s: %s waited %g s for %s",
                            yk__comm_describe(&g->current, what, sizeof(what)),
                            yk__native_who_rank(g, g->world_rank, self, sizeof(self)), g->timeout, list);
}

/* Time is up. The ranks that are furthest behind are the cause: the others wait for them. */
static yk_status break_stalled(native *g)
{
    char list[480] = "", what[160], self[120];
    int32_t least = 0;
    for (int r = 0; r < g->world_size; r++) {
        int32_t behind = (int32_t)(atomic_load(&g->rows[r].progress) - g->round);
        least = behind < least ? behind : least;
    }
    if (least == 0)
        return YK_OK;
    size_t used = 0;
    for (int r = 0; r < g->world_size && used < sizeof(list) - 120; r++) {
        if ((int32_t)(atomic_load(&g->rows[r].progress) - g->round) != least)
            continue;
        char who[120];
        bool stopped;
        yk__native_is_dead(g, r, &stopped);
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s%s", used ? ", " : "",
                                 yk__native_who(g, r, who, sizeof(who)), stopped ? ", which is stopped" : "");
        uint64_t done = atomic_load(&g->rows[r].done);
        if (!stopped && used < sizeof(list) - 60)
            used += (size_t)snprintf(list + used, sizeof(list) - used, ", which has done %llu collectives",
                                     (unsigned long long)done);
    }
    return yk__native_break(g, YK_ERR_STALLED, "%s: %s waited %g s for %s",
                            yk__comm_describe(&g->current, what, sizeof(what)),
                            yk__native_who(g, g->rank, self, sizeof(self)), g->timeout, list);
}

/* What can be wrong with a rank that has not come. */
static yk_status look_after(native *g, bool thorough)
{
    char what[160], who[120];
    for (int r = 0; r < g->world_size; r++) {
        if (r == g->rank)
            continue;
        bool left = atomic_load(&g->rows[r].left), stopped,
             dead = !left && thorough && yk__native_is_dead(g, r, &stopped);
        if ((!left && !dead) || reached(g, r))
            continue;
        return yk__native_break(g, YK_ERR_CONNECTION, "%s: %s %s after %llu collectives of group '%s'",
                                yk__comm_describe(&g->current, what, sizeof(what)),
                                yk__native_who(g, r, who, sizeof(who)), dead ? "ended" : "left",
                                (unsigned long long)atomic_load(&g->rows[r].done), g->name);
    }
    return YK_OK;
}

/* Other hosts learn that this rank has come to the operation when it waits for long, not every time. */
static const double announce = 0.02, for_others = 0.3;

yk_status yk__native_wait_away(native *g, int rank, double *looked)
{
    double now = yk__now();
    if (g->op_begin == 0)
        g->op_begin = now;
    yk__native_talk_service(g);
    if (atomic_load_explicit(&g->pending, memory_order_relaxed) > 0)
        yk__native_progress(g);
    yk_status status = yk__native_check(g);
    if (!status)
        status = yk__native_talk_look_after(g);
    if (!status && (now - *looked >= look || yk__signal_pending())) {
        status = look_after(g, true);
        *looked = now;
    }
    if (!status && now - g->op_begin >= announce)
        yk__native_talk_begun(g, g->current.number);
    /* Time is over first where it began first: at a rank in an earlier operation, or at one whose link is cut. Who
     * waits for a rank that answers gives that rank the time to say what it waits for. */
    double over = g->timeout + (yk__native_unanswered(g, rank) > 0 ? 0 : for_others);
    if (!status && now - g->op_begin >= over)
        status = break_stalled_across(g, rank);
    return status;
}

/* The same for a rank that waits for its own host. */
static yk_status look_across(native *g, double waited)
{
    yk__native_talk_service(g);
    yk_status status = yk__native_check(g);
    if (!status)
        status = yk__native_talk_look_after(g);
    if (!status && waited >= announce)
        yk__native_talk_begun(g, g->current.number);
    if (!status && waited >= g->timeout)
        status = break_stalled_across(g, -1);
    return status;
}

static yk_status wait_long(native *g)
{
    double now = yk__now(), looked = now;
    if (g->op_begin == 0)
        g->op_begin = now;
    bool first = true;
    for (;;) {
        yk_status status = yk__native_check(g);
        if (!status)
            status = look_after(g, first || now - looked >= look || yk__signal_pending());
        if (first || now - looked >= look)
            looked = now;
        first = false;
        if (!status && g->net)
            status = look_across(g, now - g->op_begin);
        /* Where other hosts are waited for, those that do are given time to say so. */
        if (!status && now - g->op_begin >= g->timeout + (g->net ? 0.5 : 0))
            status = break_stalled(g);
        if (status)
            return status;
        bool messages = atomic_load_explicit(&g->pending, memory_order_relaxed) > 0;
        if (messages)
            yk__native_progress(g);
        atomic_fetch_add(&g->head->sleepers, 1);
        uint32_t epoch = atomic_load(&g->head->epoch);
        bool there = complete(g);
        if (!there) {
            double left = g->timeout - (now - g->op_begin), seconds = messages ? 0.001 : nap;
            if (g->net && (left < 0.001 || seconds > announce))
                seconds = left < 0.001 ? left = 0.02 : announce;
            yk__native_sleep(&g->head->epoch, epoch, left < seconds ? (left > 0 ? left : 0) : seconds);
        }
        atomic_fetch_sub(&g->head->sleepers, 1);
        if (there || complete(g))
            return YK_OK;
        now = yk__now();
    }
}

yk_status yk__native_sync(native *g)
{
    yk__native_head *head = g->head;
    uint32_t round = ++g->round;
    int32_t cpu = sched_getcpu();
    atomic_store_explicit(&g->rows[g->rank].cpu, cpu, memory_order_relaxed);
    atomic_store(&g->rows[g->rank].progress, round);
    if (atomic_load(&head->sleepers) && complete(g)) {
        atomic_fetch_add(&head->epoch, 1);
        yk__native_wake(&head->epoch);
    }
    int spins = g->crowded ? CROWDED_SPINS : SPINS, spin = 0;
    double until = 0;
    for (int r = 0; r < g->world_size; r++) {
        while (!reached(g, r)) {
            /* Who waits for a rank of its own core must let it run. */
            if (++spin <= spins && atomic_load_explicit(&g->rows[r].cpu, memory_order_relaxed) != cpu) {
                yk__native_relax();
                continue;
            }
            double now = yk__now();
            if (until == 0)
                until = now + offer;
            if (now > until)
                return wait_long(g);
            sched_yield();
        }
    }
    return YK_OK;
}
