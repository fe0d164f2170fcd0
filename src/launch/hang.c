/*
 * hang.c - processes that do not get on. Layer: launch.
 *
 * A process is stuck when it is in a process group and has for so long neither begun nor ended an operation, taken a
 * batch nor made a step; one that is in no group, a program that does not use yoke for instance, never is. What the
 * pages say was written by the processes: text is cut and escaped, numbers are only printed. No signal is sent to a
 * process that is not one of the group's own.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/standstill.h"
#include "host/process.h"
#include "launch/hang.h"

/* Seconds between asking processes for their stacks and stopping them: the time they have to print them. */
static const double stacks_take = 0.5;
/* Seconds: between two looks at the clock at most, since what stands still is to be seen then; between two questions
 * about the processes, which cost some system calls each. */
static const double look_every = 1, ask_every = 0.25;

struct yk__hang_watch {
    double seconds, evict; /* 0: never */
    bool stacks;
    yk__pages *pages;
    bool *causes;         /* of what yk__hang_find has found last */
    double looked, asked; /* the last look at the clock; when the processes' states were last asked for */
    double resumed;       /* when the job or its launcher was last seen to stand still: time counts from here on */
    double awoke;         /* likewise the launcher alone */
};

yk__hang_watch *yk__hang_watch_create(int count, double seconds, bool stacks)
{
    yk__hang_watch *w = yk__calloc(1, sizeof(*w));
    if (!w)
        return NULL;
    *w = (yk__hang_watch){.seconds = seconds, .stacks = stacks, .pages = yk__pages_create(count)};
    if (w->pages)
        w->causes = yk__calloc((size_t)count + 1, sizeof(*w->causes));
    if (w->causes)
        return w;
    yk__hang_watch_free(w);
    return NULL;
}

void yk__hang_watch_free(yk__hang_watch *w)
{
    if (!w)
        return;
    yk__pages_free(w->pages);
    free(w->causes);
    free(w);
}

yk__pages *yk__hang_pages(const yk__hang_watch *w)
{
    return w ? w->pages : NULL;
}

const char *yk__hang_watch_variable(const yk__hang_watch *w, int index, char text[YK__PAGES_VARIABLE])
{
    return yk__pages_variable(w->pages, index, w->stacks ? SIGRTMIN + 11 : 0, text);
}

void yk__hang_evict_after(yk__hang_watch *w, double seconds)
{
    w->evict = seconds;
}

bool yk__hang_is_watched(const yk__hang_watch *w)
{
    return w && w->seconds > 0;
}

static const yk__rank_page *page_of(const yk__hang_watch *w, int index)
{
    return yk__pages_at(w->pages, index);
}

double yk__hang_failed_at(const yk__hang_watch *w, int index)
{
    const yk__rank_page *page = w ? page_of(w, index) : NULL;
    return page ? atomic_load(&page->failed) : 0;
}

int yk__hang_process(const yk__hang_watch *w, int index)
{
    const yk__rank_page *page = w ? page_of(w, index) : NULL;
    int pid = page ? atomic_load(&page->pid) : 0;
    return pid > 0 ? pid : 0;
}

int64_t yk__hang_counter(const yk__hang_watch *w, int index, const char *which)
{
    const yk__rank_page *page = w ? page_of(w, index) : NULL;
    for (int c = 0; c < YK__PAGE_COUNTERS && page; c++) {
        char name[52];
        int64_t value = 0;
        const char *counter = yk__page_counter(page, c, name, &value);
        if (counter && strcmp(counter, which) == 0)
            return value;
    }
    return 0;
}

void yk__hang_begin_anew(yk__hang_watch *w)
{
    w->resumed = w->awoke = yk__now();
}

/* The process of the page, where it is still there; 0 otherwise. */
static pid_t rank_process(const yk__rank_page *page)
{
    pid_t pid = atomic_load(&page->pid);
    return pid > 0 && atomic_load(&page->groups) > 0 && (kill(pid, 0) == 0 || errno == EPERM) ? pid : 0;
}

/* Seconds since the process last got on; -1 where that cannot be said. */
static double still_for(const yk__hang_watch *w, const group *g, int index, double now)
{
    const yk__rank_page *page = page_of(w, index);
    if (!g->workers[index].running || !rank_process(page))
        return -1;
    double progressed = yk__page_time(page, atomic_load_explicit(&page->progressed, memory_order_relaxed));
    return now - (progressed > w->resumed ? progressed : w->resumed);
}

/* True if a rank of this node runs, and is stopped: by a signal, or by a debugger. */
static bool is_stopped(const yk__hang_watch *w, const group *g, int index)
{
    char state;
    uint64_t start;
    pid_t pid = rank_process(page_of(w, index));
    return g->workers[index].running && yk__process_state(pid ? pid : g->workers[index].pid, &state, &start) &&
           (state == 'T' || state == 't');
}

/* True if all processes of this node are stopped: by Ctrl-Z, or by a batch system. (Where some run, the others wait for
 * the one that is stopped.) */
static bool all_stopped(const yk__hang_watch *w, const group *g)
{
    bool any = false;
    for (int i = 0; i < g->count; i++) {
        if (!g->workers[i].running)
            continue;
        if (!is_stopped(w, g, i))
            return false;
        any = true;
    }
    return any;
}

/* Time in which the job stood still does not count: Note [Time that stood still] in base/standstill.h. */
static void leave_out_standstill(yk__hang_watch *w, const group *g, double now)
{
    bool stood = yk__standstill(&w->looked, now) > look_every + YK__STANDSTILL;
    if (!stood && now - w->asked < ask_every)
        return;
    w->asked = now;
    w->awoke = stood ? now : w->awoke;
    if (stood || all_stopped(w, g))
        w->resumed = now;
}

/* ---- operations -------------------------------------------------------------------------------------------------- */
/* The oldest that is under way, or with `done` the one that ended last. Loads and saves are no operations of groups. */
static bool find_operation(const yk__rank_page *page, bool done, yk__page_operation *found)
{
    bool any = false;
    yk__page_operation o;
    for (int i = 0; i < YK__PAGE_RING; i++) {
        if (!yk__page_read(&page->ring[i], &o) || o.what != YK__WHAT_COLLECTIVE || (o.ended > 0) != done)
            continue;
        if (!any || (done ? o.ended > found->ended : o.began < found->began))
            *found = o;
        any = true;
    }
    return any;
}

/* "all_reduce #12 (float32, 100 elements, sum) of group 'world'" */
static const char *describe(const yk__page_operation *o, char *text, size_t size)
{
    char kind[64], name[256], dtype[64], reduction[48];
    size_t used = (size_t)snprintf(text, size, "%s #%" PRIu64, yk__escape(o->kind, strlen(o->kind), kind, sizeof(kind)),
                                   o->number);
    const char *before = " (";
    if (o->dtype[0] && used < size) {
        used += (size_t)snprintf(text + used, size - used, "%s%s, %" PRId64 " elements", before,
                                 yk__escape(o->dtype, strlen(o->dtype), dtype, sizeof(dtype)), o->count);
        before = ", ";
    }
    if (o->reduction[0] && used < size) {
        used += (size_t)snprintf(text + used, size - used, "%s%s", before,
                                 yk__escape(o->reduction, strlen(o->reduction), reduction, sizeof(reduction)));
        before = ", ";
    }
    if (o->peer >= 0 && used < size) {
        used += (size_t)snprintf(text + used, size - used, "%s%s %d", before, o->tag >= 0 ? "rank" : "root", o->peer);
        before = ", ";
    }
    if (o->tag >= 0 && used < size)
        used += (size_t)snprintf(text + used, size - used, ", tag %d", o->tag);
    if (used < size)
        snprintf(text + used, size - used, "%s of group '%s'", before[0] == ',' ? ")" : "",
                 yk__escape(o->group, strlen(o->group), name, sizeof(name)));
    return text;
}

/* ---- finding ----------------------------------------------------------------------------------------------------- */
/* The highest number of this group's collectives that the process has begun; 0 where it is in none that is known. */
static uint64_t reached(const yk__rank_page *page, const yk__page_operation *like)
{
    uint64_t most = 0;
    yk__page_operation o;
    for (int i = 0; i < YK__PAGE_RING; i++) {
        if (yk__page_read(&page->ring[i], &o) && o.what == YK__WHAT_COLLECTIVE && o.tag < 0 && o.number > most &&
            strcmp(o.group, like->group) == 0)
            most = o.number;
    }
    return most;
}

/* True if a process of this node is one of the ranks of the operation's group, as far as that is known, and has not
 * come to it. */
static bool is_absent(const yk__hang_watch *w, const group *g, int index, const yk__page_operation *o)
{
    static const char of_role[] = "role."; /* yk_role_group */
    const worker *one = &g->workers[index];
    uint64_t most = reached(page_of(w, index), o);
    if (o->tag >= 0 || most >= o->number)
        return false;
    if (most > 0)
        return true;
    if (strncmp(o->group, of_role, sizeof(of_role) - 1) == 0)
        return one->rule && strcmp(o->group + sizeof(of_role) - 1, one->rule->name) == 0;
    return strcmp(o->group, "world") == 0 && o->world_size > one->rank;
}

/* Appends a rank to a list that begins with `head`: "; stopped: rank 1, 3". */
static void rank_append(const char *head, int rank, char *text, size_t size)
{
    size_t used = strlen(text);
    if (used + 40 < size)
        snprintf(text + used, size - used, "%s%d", used ? ", " : head, rank);
}

/* The ranks of this node that have not come to the operation; "" where all have. */
static void list_absent(const yk__hang_watch *w, const group *g, const yk__page_operation *o, char *absent, size_t size)
{
    *absent = '\0';
    for (int i = 0; i < g->count; i++) {
        if (is_absent(w, g, i, o))
            rank_append("; not there yet: rank ", g->workers[i].rank, absent, size);
    }
}

/* The ranks of this node that are stopped; "" where none is. */
static void list_stopped(const yk__hang_watch *w, const group *g, char *stopped, size_t size)
{
    *stopped = '\0';
    for (int i = 0; i < g->count; i++) {
        if (is_stopped(w, g, i))
            rank_append("; stopped: rank ", g->workers[i].rank, stopped, size);
    }
}

/*
 * Note [Who is stuck]: a process that waits in an operation is not the cause, but one that it waits for, if that is in
 * no operation itself and has not got on for about as long; and one that is stopped, be it in the operation itself.
 * Where none waits, those that do nothing are the cause as long as others get on. Else it cannot be told: all wait for
 * another node, or for one another, or all do nothing.
 */
static void find_causes(yk__hang_watch *w, const group *g, double now)
{
    yk__page_operation o, unused;
    bool any_waits = false, any_gets_on = false;
    int running = 0;
    memset(w->causes, 0, (size_t)g->count * sizeof(*w->causes));
    for (int i = 0; i < g->count; i++) {
        double still = still_for(w, g, i, now);
        running += g->workers[i].running;
        w->causes[i] |= still >= w->seconds / 2 && is_stopped(w, g, i);
        if (still < w->seconds / 2) {
            any_gets_on |= g->workers[i].running;
        } else if (find_operation(page_of(w, i), false, &o)) {
            any_waits = true;
            for (int k = 0; k < g->count; k++) {
                if (is_absent(w, g, k, &o) && still_for(w, g, k, now) >= w->seconds / 2 &&
                    !find_operation(page_of(w, k), false, &unused))
                    w->causes[k] = true;
            }
        }
    }
    for (int i = 0; i < g->count && !any_waits && (any_gets_on || running == 1); i++)
        w->causes[i] |= still_for(w, g, i, now) >= w->seconds;
}

bool yk__hang_is_cause(const yk__hang_watch *w, int index)
{
    return w && w->causes[index];
}

bool yk__hang_find(yk__hang_watch *w, const group *g, char *text, size_t size, double *again)
{
    double now = yk__now(), longest = 0;
    int stuck = -1;
    if (!yk__hang_is_watched(w))
        return false;
    leave_out_standstill(w, g, now);
    *again = now + look_every < *again ? now + look_every : *again;
    for (int i = 0; i < g->count; i++) {
        double still = still_for(w, g, i, now);
        if (still > longest) {
            longest = still;
            stuck = i;
        }
    }
    if (longest < w->seconds) {
        double next = now + w->seconds - longest + 0.001;
        *again = next < *again ? next : *again;
        return false;
    }
    find_causes(w, g, now);
    /* A rank that waits in an operation names the rank that does not come: it is listed first. */
    yk__page_operation o;
    char stopped[160];
    list_stopped(w, g, stopped, sizeof(stopped));
    for (int i = 0; i < g->count; i++) {
        if (still_for(w, g, i, now) >= w->seconds / 2 && find_operation(page_of(w, i), false, &o)) {
            char operation[300], absent[160];
            list_absent(w, g, &o, absent, sizeof(absent));
            snprintf(text, size, "no progress for %.3g s (--hang-timeout): rank %d waits in %s%s%s", w->seconds,
                     g->workers[i].rank, describe(&o, operation, sizeof(operation)), absent, stopped);
            return true;
        }
    }
    snprintf(text, size, "no progress for %.3g s (--hang-timeout): rank %d is in no operation, and begins none%s",
             w->seconds, g->workers[stuck].rank, stopped);
    return true;
}

/* ---- saying ------------------------------------------------------------------------------------------------------ */
/* "; loading for 60.0 s", "; 'evaluation' for 60.0 s" where the program says so itself; "" where nothing is known. */
static const char *describe_phase(const yk__rank_page *page, double now, char *text, size_t size)
{
    char own[YK__PAGE_TEXT], plain[4 * YK__PAGE_TEXT];
    double since;
    yk__phase phase = yk__page_phase(page, own, &since);
    *text = '\0';
    if (phase == YK__PHASE_OWN)
        snprintf(text, size, "; '%s' for %.1f s", yk__escape(own, strlen(own), plain, sizeof(plain)), now - since);
    else if (phase != YK__PHASE_NONE)
        snprintf(text, size, "; %s for %.1f s", yk__phase_name(phase), now - since);
    return text;
}

/* "for 2.1 s in all_reduce #3 (...) of group 'world'", "in no operation; ...": what the page says of now. */
static void describe_page(const yk__rank_page *page, char *text, size_t size)
{
    char operation[300], doing[300];
    yk__page_operation o;
    double now = yk__now();
    if (find_operation(page, false, &o))
        snprintf(text, size, "for %.1f s in %s", now - yk__page_time(page, o.began),
                 describe(&o, operation, sizeof(operation)));
    else if (find_operation(page, true, &o))
        snprintf(text, size, "in no operation; its last, %s, ended %.1f s ago%s",
                 describe(&o, operation, sizeof(operation)), now - yk__page_time(page, o.ended),
                 describe_phase(page, now, doing, sizeof(doing)));
    else
        snprintf(text, size, "in no operation, and there was none%s", describe_phase(page, now, doing, sizeof(doing)));
}

bool yk__hang_doing(const yk__hang_watch *w, int index, char *text, size_t size)
{
    if (!yk__hang_process(w, index))
        return false;
    describe_page(page_of(w, index), text, size);
    return true;
}

static void report_rank(const yk__hang_watch *w, const group *g, int index)
{
    const yk__rank_page *page = page_of(w, index);
    int rank = g->workers[index].rank;
    char text[700];
    if (!g->workers[index].running) {
        yk__relay_say(g->err, "  rank %d: has ended\n", rank);
    } else if (!rank_process(page)) {
        yk__relay_say(g->err, "  rank %d: in no process group of yoke's (pid %d)\n", rank, (int)g->workers[index].pid);
    } else {
        describe_page(page, text, sizeof(text));
        yk__relay_say(g->err, "  rank %d: %s (pid %d)\n", rank, text, atomic_load(&page->pid));
    }
}

/* The signal to every thread; false where the process is not one that answers. */
static bool ask_for_stacks(const yk__rank_page *page, const worker *one)
{
    pid_t pid = rank_process(page);
    int number = atomic_load(&page->answers);
    char path[64];
    if (!pid || !one->running || number != SIGRTMIN + 11 || getpgid(pid) != one->pid)
        return false;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *threads = opendir(path);
    for (struct dirent *entry; threads && (entry = readdir(threads));) {
        if (entry->d_name[0] != '.')
            syscall(SYS_tgkill, pid, atoi(entry->d_name), number);
    }
    if (threads)
        closedir(threads);
    else if (errno == ENOENT) /* no /proc: one thread, whichever takes it */
        return kill(pid, number) == 0;
    return threads != NULL;
}

double yk__hang_report(const yk__hang_watch *w, const group *g)
{
    bool asked = false;
    for (int i = 0; i < g->count; i++)
        report_rank(w, g, i);
    for (int i = 0; i < g->count && w->stacks; i++)
        asked |= ask_for_stacks(page_of(w, i), &g->workers[i]);
    return asked ? stacks_take : 0;
}

/* ---- members that stand still ------------------------------------------------------------------------------------ */
/*
 * Note [Who is evicted]: of a program whose processes go on without one that ends (src/elastic/), a process that has
 * not got on for so long while another one of this node, itself a member, has waited for as long: in a collective to
 * which it has not come, or for a change of members. If it is not stopped it must be in no operation: in a collective
 * it waits itself, and a save takes the time that it takes. One that is stopped may be anywhere. Of several nodes one
 * that is stopped need have nobody beside it: members of other nodes wait for it. Not for one that the launcher was
 * asked to stop (Ctrl-Z), and not where all of this one node are stopped.
 */
/* Seconds since these ticks of the page, those before `from` left out. */
static double since(const yk__rank_page *page, uint64_t ticks, double from, double now)
{
    double then = yk__page_time(page, ticks);
    return now - (then > from ? then : from);
}

static bool is_process_stopped(const yk__hang_watch *w, const group *g, int index)
{
    char state;
    uint64_t start;
    pid_t pid = yk__hang_process(w, index);
    return yk__process_state(pid ? pid : g->workers[index].pid, &state, &start) && (state == 'T' || state == 't');
}

/* True if the process is in an operation other than the loading of a batch. */
static bool is_busy(const yk__rank_page *page)
{
    yk__page_operation o;
    for (int i = 0; i < YK__PAGE_RING; i++)
        if (yk__page_read(&page->ring[i], &o) && o.ended == 0 && o.what != YK__WHAT_LOAD)
            return true;
    for (int i = 0; i < YK__PAGE_CALLS; i++)
        if (yk__page_read(&page->calls[i], &o) && o.ended == 0)
            return true;
    return false;
}

/* True if this process has waited for the other one long enough; `text` is what it waits in. */
static bool waits_for(const yk__hang_watch *w, const group *g, int index, int other, bool stopped, double now,
                      char *text, size_t size)
{
    const yk__rank_page *page = page_of(w, index), *its = page_of(w, other);
    int64_t view = yk__hang_counter(w, index, "elastic_view");
    yk__page_operation o;
    if (index == other || !g->workers[index].running || g->workers[index].hung || !view ||
        is_process_stopped(w, g, index))
        return false;
    if (yk__hang_counter(w, index, "elastic_changing")) {
        snprintf(text, size, "for a change of members");
        return since(page, atomic_load(&page->progressed), w->resumed, now) >= w->evict;
    }
    if (!find_operation(page, false, &o) || since(page, o.began, w->resumed, now) < w->evict)
        return false;
    snprintf(text, size, "in ");
    describe(&o, text + strlen(text), size - strlen(text));
    return stopped || (o.tag < 0 && view == yk__hang_counter(w, other, "elastic_view") && reached(its, &o) < o.number);
}

int yk__hang_find_stalled(yk__hang_watch *w, const group *g, bool suspended, char *text, size_t size, double *again)
{
    double now = yk__now(), look = w && w->evict / 4 < look_every ? w->evict / 4 : look_every;
    if (!w || w->evict == 0)
        return -1;
    leave_out_standstill(w, g, now);
    *again = now + look < *again ? now + look : *again;
    for (int i = 0; i < g->count && !suspended; i++) {
        const yk__rank_page *page = page_of(w, i);
        char where[300] = "";
        if (!g->workers[i].running || g->workers[i].hung || !yk__hang_process(w, i))
            continue;
        double still = since(page, atomic_load(&page->progressed), g->link ? w->awoke : w->resumed, now);
        if (still < w->evict)
            continue;
        bool stopped = is_process_stopped(w, g, i), found = false;
        if (!stopped &&
            (!yk__hang_counter(w, i, "elastic_view") || yk__hang_counter(w, i, "elastic_changing") || is_busy(page)))
            continue;
        int waiting = 0;
        for (int k = 0; k < g->count && !found; k++) {
            found = waits_for(w, g, k, i, stopped, now, where, sizeof(where));
            waiting = g->workers[k].rank;
        }
        if (!found && !(stopped && g->link && yk__hang_counter(w, i, "elastic_members") > 1))
            continue;
        size_t used = (size_t)snprintf(text, size, "it stood still for %.1f s (--evict-stalled %.3g)%s", still,
                                       w->evict, stopped ? ", stopped by a signal or a debugger" : "");
        if (found && used < size)
            snprintf(text + used, size - used, ", while rank %d waited %s", waiting, where);
        return i;
    }
    return -1;
}
