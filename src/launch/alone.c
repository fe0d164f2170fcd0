/*
 * alone.c - processes that end while the others go on: they are seen to have ended, and are lost or started again.
 * Layer: launch.
 *
 * Note [Ends that are certain]: nobody is told that a process is gone, no reader of the output, no other launcher and
 * no process that comes back in its place, before nothing of it is left: neither itself, nor the rest of its process
 * group, nor the process that has its page, which may be another one (a script has started it, in a session of its own
 * perhaps). All of them get SIGKILL, which neither a handler nor a stop keeps from them; an own child has ended when it
 * was waited for, another one, or one that is traced and thus cannot be waited for, when its pidfd says so. What does
 * not end so (it waits for a disk) ends the job.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "base/json_line.h"
#include "host/process.h"
#include "launch/departures.h"
#include "launch/exit_codes.h"
#include "launch/hang.h"
#include "launch/member_changes.h"
#include "launch/outcome.h"
#include "launch/start.h"
#include "launch/watch.h"

/* Seconds: that what is left of a process has to end by SIGKILL; between two looks at it, as nothing tells of the end
 * of a process that is no child; that a process has to run for its failure not to be one in a row. */
static const double remains_end = 5, look_every = 0.01, well = 60;
/* Seconds between looks whether the spares may be started, and whether one is needed. */
static const double look_for_spares = 0.05, look_at_spares = 0.1;

/* ---- programs that survive --------------------------------------------------------------------------------------- */
static int64_t counter_of(const group *g, int index, const char *which)
{
    return yk__hang_counter(g->hang, index, which);
}

/* The list of members in which a process has last been; 0: it survives nobody, or is no member yet. */
static int64_t view_of(const group *g, int index)
{
    return counter_of(g, index, "elastic_view");
}

int64_t yk__alone_view(const group *g)
{
    int64_t last = 0;
    for (int i = 0; i < g->count && g->hang; i++)
        last = view_of(g, i) > last ? view_of(g, i) : last;
    return last;
}

void yk__alone_ends(const group *g, int64_t *done, int64_t *lost)
{
    *done = *lost = 0;
    for (int i = 0; i < g->count && g->hang; i++) {
        const worker *one = &g->workers[i];
        bool good = !one->lost && one->pid && WIFEXITED(one->status) && WEXITSTATUS(one->status) == 0;
        int64_t view = view_of(g, i), *of = one->lost ? lost : done;
        *of = (one->lost || good) && view > *of ? view : *of;
    }
}

bool yk__alone_all_survive(const group *g)
{
    bool any = false;
    for (int i = 0; i < g->count && g->hang && !any; i++)
        any = counter_of(g, i, "elastic_members") > 0;
    return any;
}

/* True if the processes of the job go on by themselves without this one, which has ended (NULL: without any): each says
 * so, or was started again to join those that do. Of other nodes' processes a member knows it, and the link of it; and
 * where this node has come to join them no process here need be a member. */
static bool survives(const group *g, const worker *ended)
{
    if (!g->gone || !g->hang || g->link)
        return g->gone && g->hang && g->link->may_live && (yk__alone_all_survive(g) || (ended && ended->joins_others));
    bool all = true;
    for (int i = 0; i < g->count && all; i++) {
        const worker *one = &g->workers[i];
        all = !one->role && (one->lost || one->incarnation > 0 || one->joins_others || view_of(g, i) > 0);
    }
    return all;
}

/* True if it was started to join the others, and was never one of them. */
static bool is_newcomer(const group *g, const worker *one)
{
    return (one->incarnation > 0 || one->joins_others) && view_of(g, (int)(one - g->workers)) == 0;
}

/* The first of the lost processes of a node that has come to join others, where none of them was ever a member. */
static worker *came_in_vain(const group *g)
{
    worker *first = NULL;
    for (int i = 0; i < g->count; i++) {
        worker *one = &g->workers[i];
        if (!one->joins_others || view_of(g, i) > 0)
            return NULL;
        if (one->lost && one->rule->on_failure == YK__ON_FAILURE_END && (!first || one->ended < first->ended))
            first = one;
    }
    return first;
}

worker *yk__alone_unnoticed(const group *g)
{
    worker *in_vain = g->link && g->hang ? came_in_vain(g) : NULL;
    if (in_vain) {
        in_vain->lost = false;
        return in_vain;
    }
    int64_t last = g->gone && !g->link ? yk__alone_view(g) : 0; /* of several nodes the first one judges */
    for (int i = 0; i < g->count && last; i++) {
        worker *one = &g->workers[i];
        if (one->lost && one->rule->on_failure == YK__ON_FAILURE_END && view_of(g, i) == last) {
            one->lost = false;
            return one;
        }
    }
    return NULL;
}

/* ---- what became of it, in two lines ----------------------------------------------------------------------------- */
/* Seconds after which nothing is said any more. */
static const double say_within = 120;

static void others_stand(const group *g, int64_t *view, uint64_t *steps)
{
    *view = 0;
    *steps = 0;
    for (int i = 0; i < g->count; i++) {
        const yk__rank_page *page = yk__pages_at(yk__hang_pages(g->hang), i);
        if (!g->workers[i].running || !page)
            continue;
        *view = view_of(g, i) > *view ? view_of(g, i) : *view;
        *steps += atomic_load(&page->steps);
    }
}

void yk__alone_note_change(group *g, double since)
{
    g->change.since = since;
    others_stand(g, &g->change.view, &g->change.steps);
}

static void say_change(group *g, const worker *joined, double seconds, int64_t view)
{
    char message[300], name[YK__WORKER_NAME], after[60] = "";
    int64_t members = 0; /* on all nodes */
    if (seconds > 0)
        snprintf(after, sizeof(after), ", %.3f s after the end of another", seconds);
    for (int i = 0; i < g->count; i++)
        if (g->workers[i].running && view_of(g, i) == view)
            members = counter_of(g, i, "elastic_members");
    if (joined && joined->waits)
        snprintf(message, sizeof(message), "%s, a spare, has taken a place in view %" PRId64 "%s",
                 yk__worker_name(joined, name), view, after);
    else if (joined)
        snprintf(message, sizeof(message), "%s has joined the others in view %" PRId64 ", %.3f s after its start",
                 yk__worker_name(joined, name), view, seconds);
    else
        snprintf(message, sizeof(message),
                 "%" PRId64 " process%s go%s on in view %" PRId64 ", a step done %.3f s after the end", members,
                 members == 1 ? "" : "es", members == 1 ? "es" : "", view, seconds);
    json_t *of = g->json ? json_pack("{s:I,s:o,s:o}", "view", (json_int_t)view, "seconds", yk__json_fixed(seconds, 3),
                                     "rank", joined ? json_integer(joined->rank) : json_null())
                         : NULL;
    if (joined)
        yk__change_note(g, YK__CHANGE_JOINED, false, message);
    else
        yk__change_stepped(g, seconds);
    yk__event_say(g, "members", message, of);
}

/* Says that a process waits as a spare, or has joined the others: one that was started again, or a spare. */
static void look_at_newcomer(group *g, worker *one, double now)
{
    char message[200], name[YK__WORKER_NAME];
    int index = (int)(one - g->workers);
    bool pending = one->joins > 0 || one->waits;
    if (pending && one->running && view_of(g, index) > 0) {
        double since = one->waits && g->change.since > 0 ? g->change.since
                       : one->waits                      ? now
                                                         : one->joins; /* or it left */
        say_change(g, one, now - since, view_of(g, index));
        one->joins = 0;
        one->waits = false;
    } else if (one->joins > 0 && one->running && counter_of(g, index, "elastic_spare")) {
        snprintf(message, sizeof(message), "%s is ready as a spare, %.3f s after its start", yk__worker_name(one, name),
                 now - one->joins);
        yk__event_say(
            g, "spare", message,
            g->json ? json_pack("{s:i,s:o}", "rank", one->rank, "seconds", yk__json_fixed(now - one->joins, 3)) : NULL);
        one->joins = 0;
        one->waits = true;
    }
    if (!one->running || now > one->joins + say_within)
        one->joins = 0;
    one->waits &= one->running;
}

/* Says when the others have completed a step without one that ended, and what became of newcomers. */
static void look_at_change(group *g)
{
    int64_t view;
    uint64_t steps;
    double now = yk__now();
    for (int i = 0; i < g->count; i++)
        look_at_newcomer(g, &g->workers[i], now);
    if (g->change.since == 0)
        return;
    others_stand(g, &view, &steps);
    bool done = view > g->change.view && steps > g->change.steps;
    if (done)
        say_change(g, NULL, now - g->change.since, view);
    if (done || now > g->change.since + say_within)
        g->change.since = 0;
}

static bool awaits_change(const group *g)
{
    bool any = g->change.since > 0;
    for (int i = 0; i < g->count; i++)
        any |= g->workers[i].joins > 0;
    return any;
}

/* True if a process waits as a spare, which may take the place of one that leaves. */
static bool waits_as_spare(const group *g)
{
    bool any = false;
    for (int i = 0; i < g->count; i++)
        any |= g->workers[i].waits;
    return any;
}

static bool others_run(const group *g, const worker *one)
{
    bool any = g->link != NULL; /* on other nodes, or the first one finds out that none do */
    for (int i = 0; i < g->count; i++)
        any |= &g->workers[i] != one && g->workers[i].running;
    return any;
}

/* True if another process runs, or has come to its end while this one had no part in the run. */
static bool others_do(const group *g, const worker *one)
{
    bool any = g->link != NULL;
    for (int i = 0; i < g->count; i++) {
        const worker *other = &g->workers[i];
        bool done = !other->lost && WIFEXITED(other->status) && WEXITSTATUS(other->status) == 0;
        bool member = other->running && !is_newcomer(g, other); /* one that is to join has no state to go on with */
        any |= other != one && (member || (done && is_newcomer(g, one)) || (other->running && is_newcomer(g, one)));
    }
    return any;
}

void yk__alone_note_end(group *g, const worker *one)
{
    bool good = WIFEXITED(one->status) && WEXITSTATUS(one->status) == 0;
    if (good && !one->asked && g->hang && counter_of(g, (int)(one - g->workers), "elastic_left") > 0)
        yk__departure_left(g, one);
}

/* ---- ends -------------------------------------------------------------------------------------------------------- */
bool yk__alone_may(const watch *w, const worker *one)
{
    bool saved = WIFEXITED(one->status) && WEXITSTATUS(one->status) == EXIT_AGAIN; /* it wants the job to end */
    return one->rule && (one->rule->on_failure != YK__ON_FAILURE_END || survives(w->g, one)) && !saved &&
           !yk__watch_ends(w);
}

/* True if others still wait for a process that has ended otherwise than it was asked to, while it and they were to
 * leave: they are told that it is gone, or they would wait until they are killed. */
static bool leaves_others(const watch *w, const worker *one)
{
    const group *g = w->g;
    return !g->failed && one->rule && one->rule->on_failure == YK__ON_FAILURE_END && survives(g, one);
}

bool yk__alone_leaves(const watch *w, const worker *one)
{
    return yk__watch_ends(w) && one->asked && leaves_others(w, one);
}

/* Kills what is left of a process that has ended; whether there is nothing. */
static bool nothing_remains(const group *g, const worker *one)
{
    int holder = yk__hang_process(g->hang, (int)(one - g->workers));
    bool gone = true;
    kill(-one->pid, SIGKILL);
    if (holder && holder != one->pid && yk__process_descends(holder)) {
        yk__process_kill(holder);
        gone = yk__process_has_ended(holder);
    }
    return yk__process_group_has_ended(one->pid) && gone;
}

void yk__alone_begin(watch *w, worker *one)
{
    (void)nothing_remains(w->g, one);
    one->remains = yk__now();
}

/* True if the rank was the last of its role that is left, all of which ran here: the job cannot do without it. */
static bool is_last_of_role(const group *g, const worker *one)
{
    int others = 0;
    for (int i = 0; i < g->count; i++)
        others += g->workers[i].role == one->role && &g->workers[i] != one && !g->workers[i].lost;
    return others == 0 && one->role_world <= g->count;
}

/* Nothing is left of the process: it is lost, or is to be started again. False where the job ends after all. */
static bool live_without(watch *w, worker *one)
{
    group *g = w->g;
    char name[YK__WORKER_NAME], message[400];
    yk__worker_name(one, name);
    bool by_itself = one->rule->on_failure == YK__ON_FAILURE_END;
    if (by_itself && !others_do(g, one)) {
        snprintf(message, sizeof(message), "%s was the last that ran", name);
        yk__event_say(g, "limit", message, NULL);
        return false;
    }
    if (by_itself) {
        if (!is_newcomer(g, one)) /* or nobody waits for others */
            yk__alone_note_change(g, one->ended);
        g->gone(g->argument, one);
    }
    bool again = by_itself && g->again > 0 && others_run(g, one);
    if (one->rule->on_failure == YK__ON_FAILURE_RESTART || again) {
        g->again -= by_itself;
        if (!by_itself && one->rule->restarts >= 0 && one->incarnation >= one->rule->restarts) {
            snprintf(message, sizeof(message),
                     "%s has been started again %d times, which is all that --on-failure allows", name,
                     one->incarnation);
            yk__event_say(g, "limit", message, NULL);
            return false;
        }
        one->failures = one->ended - one->began > well ? 0 : one->failures;
        double delay = yk__restart_delay(one->failures++);
        one->again_at = yk__now() + delay;
        yk__departure_say(g, one, delay);
        return true;
    }
    if (!by_itself && is_last_of_role(g, one)) {
        snprintf(message, sizeof(message), "%s was the last of role %s", name, one->role ? one->role : "default");
        yk__event_say(g, "limit", message, NULL);
        return false;
    }
    one->lost = one->untold = true;
    yk__departure_say(g, one, 0);
    return true;
}

worker *yk__alone_settle(watch *w)
{
    group *g = w->g;
    for (int i = 0; i < g->count; i++) {
        worker *one = &g->workers[i];
        if (one->remains == 0)
            continue;
        bool ends = yk__watch_ends(w);
        if (ends && !leaves_others(w, one)) {
            one->remains = 0;
            continue;
        }
        bool gone = nothing_remains(g, one);
        if (!gone && yk__now() < one->remains + remains_end)
            continue;
        one->remains = 0;
        if (ends && gone)
            g->gone(g->argument, one);
        if (ends)
            continue;
        if (!gone) {
            char name[YK__WORKER_NAME], message[400];
            snprintf(message, sizeof(message),
                     "%s has ended, and what it had started cannot be killed (it waits for a disk or a network file "
                     "system): the job ends",
                     yk__worker_name(one, name));
            yk__event_say(g, "limit", message, NULL);
        } else if (live_without(w, one)) {
            continue;
        }
        if (!one->why[0])
            return one;
        snprintf(g->stuck, sizeof(g->stuck), "%s", one->why);
        yk__watch_stop(w, SIGTERM);
    }
    return NULL;
}

bool yk__alone_pending(const group *g)
{
    for (int i = 0; i < g->count; i++) {
        if (g->workers[i].again_at > 0 || g->workers[i].remains > 0)
            return true;
    }
    return false;
}

bool yk__alone_looks(const group *g)
{
    for (int i = 0; i < g->count; i++) {
        if (g->workers[i].hung || g->workers[i].remains > 0)
            return true;
    }
    return false;
}

/* ---- starting again ---------------------------------------------------------------------------------------------- */
/* False after a message. */
static bool worker_restart(watch *w, worker *one)
{
    group *g = w->g;
    one->incarnation++;
    one->why[0] = '\0';
    one->waits = false;
    int error = g->renew && !g->renew(g->argument, one) ? ENOMEM : yk__worker_start(g, (int)(one - g->workers));
    if (!error) {
        one->untold = true;
        one->joins = one->rule->on_failure == YK__ON_FAILURE_END ? yk__now() : 0;
        w->running++;
        return true;
    }
    char name[YK__WORKER_NAME], message[400];
    snprintf(message, sizeof(message), "%s cannot be started again: %s", yk__worker_name(one, name), strerror(error));
    yk__event_say(g, "limit", message, NULL);
    return false;
}

bool yk__alone_cancel(watch *w)
{
    bool any = false;
    for (int i = 0; i < w->g->count && yk__watch_ends(w); i++) {
        worker *one = &w->g->workers[i];
        any |= one->again_at > 0;
        one->again_at = 0;
    }
    return any;
}

/* Starts the spares, once the others go on by themselves without one that ends; before nobody knows whether they do,
 * and a process that does not know that it is a spare would begin a run of its own. */
static double start_spares(watch *w, double wait)
{
    group *g = w->g;
    bool any = false;
    for (int i = 0; i < g->count; i++)
        any |= g->workers[i].spare && !g->workers[i].pid;
    if (!any || w->no_spares || yk__watch_ends(w) || !w->running)
        return wait;
    if (!survives(g, g->workers) || yk__alone_view(g) == 0) /* on one node it is the same for all */
        return look_for_spares < wait ? look_for_spares : wait;
    for (int i = 0; i < g->count && !w->no_spares; i++) {
        worker *one = &g->workers[i];
        int error = one->spare && !one->pid ? yk__worker_start(g, i) : 0;
        char name[YK__WORKER_NAME], message[400];
        w->running += one->spare && !error;
        if (!error)
            continue;
        snprintf(message, sizeof(message), "%s, a spare, cannot be started: %s", yk__worker_name(one, name),
                 strerror(error));
        yk__event_say(g, "limit", message, NULL);
        w->no_spares = true;
    }
    return wait;
}

double yk__alone_start(watch *w, double wait)
{
    group *g = w->g;
    wait = start_spares(w, wait);
    bool spares = waits_as_spare(g);
    if (awaits_change(g) || spares)
        look_at_change(g);
    wait = spares && look_at_spares < wait ? look_at_spares : wait;
    if ((yk__alone_looks(g) || awaits_change(g)) && look_every < wait)
        wait = look_every;
    for (int i = 0; i < g->count; i++) {
        worker *one = &g->workers[i];
        if (one->again_at == 0)
            continue;
        double left = one->again_at - yk__now();
        if (left > 0) {
            wait = left < wait ? left : wait;
            continue;
        }
        one->again_at = 0;
        if (worker_restart(w, one))
            continue;
        g->failed = one; /* it ended as it did */
        yk__watch_stop(w, SIGTERM);
    }
    return wait;
}

/* ---- processes that are stuck ------------------------------------------------------------------------------------ */
bool yk__alone_may_hang(const watch *w)
{
    const group *g = w->g;
    bool any = false;
    for (int i = 0; i < g->count; i++) {
        const worker *one = &g->workers[i];
        if (!yk__hang_is_cause(g->hang, i))
            continue;
        if (!one->rule || one->rule->on_failure == YK__ON_FAILURE_END)
            return false;
        any = true;
    }
    return any;
}

void yk__alone_note_hung(watch *w)
{
    group *g = w->g;
    for (int i = 0; i < g->count; i++) {
        if (yk__hang_is_cause(g->hang, i) && g->workers[i].running)
            snprintf(g->workers[i].why, sizeof(g->workers[i].why), "%s", g->stuck);
    }
    g->stuck[0] = '\0';
}

void yk__alone_kill_hung(watch *w)
{
    group *g = w->g;
    for (int i = 0; i < g->count; i++) {
        worker *one = &g->workers[i];
        if (!one->why[0] || !one->running)
            continue;
        one->hung = true;
        kill(-one->pid, SIGKILL);
    }
    yk__hang_begin_anew(g->hang);
}

double yk__alone_evict(watch *w, double wait)
{
    group *g = w->g;
    double now = yk__now(), again = now + wait;
    char why[WORKER_WHY];
    bool any = false;
    for (int i;
         !yk__watch_ends(w) && (i = yk__hang_find_stalled(g->hang, g, w->suspended, why, sizeof(why), &again)) >= 0;) {
        worker *one = &g->workers[i];
        if (!one->rule || one->rule->on_failure != YK__ON_FAILURE_END || !survives(g, one))
            break;
        snprintf(one->why, sizeof(one->why), "%s", why);
        one->hung = any = true;
        kill(-one->pid, SIGKILL);
        if (yk__process_descends(yk__hang_process(g->hang, i)))
            yk__process_kill(yk__hang_process(g->hang, i));
    }
    if (any) /* those that are left have their whole time */
        yk__hang_begin_anew(g->hang);
    return again - now < wait ? again - now : wait;
}
