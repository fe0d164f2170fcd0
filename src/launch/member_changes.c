/*
 * member_changes.c - changes of members of a run, noted where others can read them, and what the time of the run went
 * into. Layer: launch.
 *
 * The notes are in the block before the pages of the ranks (pages.h): `yoke ps`, `yoke top` and `yoke monitor` read
 * them there. One process writes, the launcher; a reader takes an entry whose version was even before and is the same
 * after.
 */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/json_line.h"
#include "launch/departures.h"
#include "launch/hang.h"
#include "launch/member_changes.h"
#include "launch/supervisor.h"

static const char *const kind_names[YK__CHANGE_KINDS] = {"ended",     "restarted",   "joined",   "left",
                                                         "node_lost", "node_joined", "node_left"};

const char *yk__change_name(yk__change kind)
{
    return (unsigned)kind < YK__CHANGE_KINDS ? kind_names[kind] : "unknown";
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* An entry whose next step is awaited has this in place of seconds. */
static const double awaited_seconds = -2;

static void entry_write(yk__run_requests *block, uint64_t number, const yk__member_change *change)
{
    size_t at = number % YK__CHANGES_KEPT;
    unsigned version = atomic_load(&block->change[at].version);
    atomic_store(&block->change[at].version, version + 1);
    atomic_thread_fence(memory_order_seq_cst);
    block->change[at].change = *change;
    atomic_thread_fence(memory_order_seq_cst);
    atomic_store(&block->change[at].version, version + 2);
}

void yk__change_note(const group *g, yk__change kind, bool awaited, const char *what)
{
    yk__run_requests *block = yk__pages_requests(yk__hang_pages(g->hang));
    struct timespec now;
    if (!block)
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    yk__member_change change = {.time = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec,
                                .seconds = awaited ? awaited_seconds : -1,
                                .kind = (int32_t)kind};
    snprintf(change.what, sizeof(change.what), "%.*s", (int)strcspn(what, "\n"), what);
    uint64_t number = atomic_load(&block->changes);
    entry_write(block, number, &change);
    atomic_fetch_add(&block->changes_of[kind], 1);
    atomic_store(&block->changes, number + 1);
}

void yk__change_stepped(const group *g, double seconds)
{
    yk__run_requests *block = yk__pages_requests(yk__hang_pages(g->hang));
    uint64_t end = block ? atomic_load(&block->changes) : 0;
    if (!block)
        return;
    for (uint64_t i = end > YK__CHANGES_KEPT ? end - YK__CHANGES_KEPT : 0; i < end; i++) {
        yk__member_change change = block->change[i % YK__CHANGES_KEPT].change;
        if (change.seconds != awaited_seconds)
            continue;
        change.seconds = seconds;
        entry_write(block, i, &change);
    }
    atomic_store(&block->change_seconds, atomic_load(&block->change_seconds) + seconds);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

int yk__changes_read(const yk__run_requests *block, yk__member_change list[YK__CHANGES_KEPT])
{
    uint64_t end = atomic_load(&block->changes);
    int count = 0;
    for (uint64_t i = end > YK__CHANGES_KEPT ? end - YK__CHANGES_KEPT : 0; i < end; i++) {
        size_t at = i % YK__CHANGES_KEPT;
        unsigned version = atomic_load(&block->change[at].version);
        atomic_thread_fence(memory_order_seq_cst);
        list[count] = block->change[at].change;
        atomic_thread_fence(memory_order_seq_cst);
        list[count].what[sizeof(list[count].what) - 1] = '\0';
        bool whole = version % 2 == 0 && atomic_load(&block->change[at].version) == version;
        count += whole && (unsigned)list[count].kind < YK__CHANGE_KINDS;
    }
    return count;
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

/* The seconds of a process's counter. */
static double seconds_of(const group *g, int index, const char *counter)
{
    return 1e-9 * (double)yk__hang_counter(g->hang, index, counter);
}

void yk__run_time_say(group *g, double began, double earlier)
{
    static const char steps_counter[] = "elastic_steps_nanoseconds_total";
    int furthest = -1; /* of the members the one that has come furthest, whose sums are the run's */
    char message[400], before[60] = "";
    for (int i = 0; i < g->count && yk__alone_view(g) > 0; i++)
        if (seconds_of(g, i, steps_counter) > (furthest < 0 ? 0 : seconds_of(g, furthest, steps_counter)))
            furthest = i;
    if (furthest < 0)
        return;
    double wall = yk__now() - began, steps = seconds_of(g, furthest, steps_counter),
           again = seconds_of(g, furthest, "elastic_again_nanoseconds_total"),
           changes = seconds_of(g, furthest, "elastic_changes_nanoseconds_total"),
           together = seconds_of(g, furthest, "elastic_together_nanoseconds_total"),
           other = wall - steps - again - changes - together - earlier;
    if (earlier > 0)
        snprintf(before, sizeof(before), "attempts before the last %.2f s, ", earlier);
    snprintf(message, sizeof(message),
             "%.1f%% of %.2f s went into steps that count; steps made again %.2f s, changes of members %.2f s, actions "
             "between steps %.2f s, %sall else %.2f s",
             100 * steps / wall, wall, again, changes, together, before, other);
    json_t *members = g->json ? json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "wall", yk__json_fixed(wall, 3), "steps",
                                          yk__json_fixed(steps, 3), "again", yk__json_fixed(again, 3), "changes",
                                          yk__json_fixed(changes, 3), "together", yk__json_fixed(together, 3),
                                          "earlier", yk__json_fixed(earlier, 3), "other", yk__json_fixed(other, 3))
                              : NULL;
    yk__event_say(g, "time", message, members);
}
