/*
 * trace.c - `yoke trace`: asks the ranks of a run for a trace of their next steps; several traces as one. Layer: cli.
 *
 * A request goes to the page of a rank, which the launcher's memory file holds, and the rank answers with a memory file
 * of its own (host/profiler.c). Of a job of several nodes node 0's launcher is asked, in the same file, which asks the
 * ranks of all (launch/live_traces.c). All are opened by way of /proc, as who calls this: the system lets a process of
 * the same user do so, and no other. Nothing is written but the file that the command names.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/options.h"
#include "cli/trace/trace.h"
#include "host/process.h"
#include "host/profiler.h"
#include "host/trace_file.h"
#include "observe/runs.h"
#include "observe/trace_perfetto.h"

/* The ranks' files that are written as one, open, and the clocks of their hosts. */
typedef struct trace_set {
    FILE **from;
    char (*names)[40];
    const char **list;
    yk__trace_clock *clocks;
    int count;
} trace_set;

static bool set_make(trace_set *s, int room)
{
    *s = (trace_set){.from = yk__calloc((size_t)room + 1, sizeof(*s->from))};
    s->names = s->from ? yk__calloc((size_t)room + 1, sizeof(*s->names)) : NULL;
    s->list = s->names ? yk__calloc((size_t)room + 1, sizeof(*s->list)) : NULL;
    s->clocks = s->list ? yk__calloc((size_t)room + 1, sizeof(*s->clocks)) : NULL;
    return s->clocks != NULL;
}

static void set_clear(trace_set *s)
{
    for (int i = 0; i < s->count; i++)
        fclose(s->from[i]);
    free(s->from);
    free(s->names);
    free(s->list);
    free(s->clocks);
}

/* Adds what is behind the descriptor, which is closed; false where it cannot be read. */
static bool set_add(trace_set *s, int rank, int fd, yk__trace_clock clock)
{
    FILE *one = fdopen(fd, "r");
    if (!one) {
        close(fd);
        return false;
    }
    snprintf(s->names[s->count], sizeof(s->names[0]), "the trace of rank %d", rank);
    s->list[s->count] = s->names[s->count];
    s->clocks[s->count] = clock;
    s->from[s->count++] = one;
    return true;
}

/* Makes one file of the set. */
static yk_status set_write(const trace_set *s, bool clocks, const char *to)
{
    if (!s->count)
        return yk__fail(YK_ERR_STATE, "no rank has left a trace, and %s is not written", to);
    yk_status status = yk__trace_merge_save(s->from, s->list, clocks ? s->clocks : NULL, s->count, to);
    if (!status)
        printf("the trace of %d %s is in %s\n", s->count, s->count == 1 ? "rank" : "ranks", cli_plain(to));
    return status;
}

/* Says why a rank has left no trace. */
static void rank_explain(int rank, int why, double timeout)
{
    fprintf(stderr, "yoke trace: rank %d ", rank);
    if (why == YK__NO_TRACE_ENDED)
        fprintf(stderr, "has ended meanwhile\n");
    else if (why == YK__NO_TRACE_LATE)
        fprintf(stderr,
                "has not applied the steps within %g s (--timeout): a step is one of an optimizer; "
                "yoke explain says what it does\n",
                timeout);
    else if (why == YK__NO_TRACE_BUSY)
        fprintf(stderr, "is recording already, by yoke run --trace, yk_profiler_start or another yoke trace\n");
    else if (why == YK__NO_TRACE_MEMORY)
        fprintf(stderr, "had no memory for its trace\n");
    else
        fprintf(stderr, "has a trace that cannot be had\n");
}

/* ---- the ranks of this machine ----------------------------------------------------------------------------------- */
/* Waits for the answers, at most for the timeout. */
static void ranks_wait(yk__asked_rank *ranks, int count, double timeout)
{
    for (double until = yk__now() + timeout;; poll(NULL, 0, 20)) {
        int left = 0;
        for (int i = 0; i < count; i++)
            left += !yk__trace_look(&ranks[i]) && yk__run_rank_is_alive(ranks[i].page);
        if (!left || yk__now() >= until || cli_interrupted())
            return;
    }
}

static yk_status ranks_trace(const yk__run_open_pages *open, unsigned steps, double timeout, const char *to)
{
    yk__asked_rank *ranks = yk__calloc((size_t)open->count, sizeof(*ranks));
    trace_set set = {0};
    yk_status status = ranks && set_make(&set, open->count) ? YK_OK : yk__error_code();
    uint64_t behind = yk__trace_meeting(open->pages, open->count, 1);
    for (int i = 0; i < open->count && !status; i++)
        yk__trace_ask(&ranks[i], open->pages[i], steps, behind, 4);
    if (!status)
        ranks_wait(ranks, open->count, timeout);
    for (int i = 0; i < open->count && !status; i++) {
        int rank = ranks[i].page->rank, fd = yk__trace_open(&ranks[i], !yk__run_rank_is_alive(ranks[i].page));
        if (fd < 0)
            rank_explain(rank, fd, timeout);
        else if (!set_add(&set, rank, fd, (yk__trace_clock){0}))
            rank_explain(rank, YK__NO_TRACE_LOST, timeout);
    }
    status = status ? status : set_write(&set, false, to);
    for (int i = 0; i < open->count && ranks && ranks[i].page; i++)
        yk__trace_take_back(&ranks[i]);
    set_clear(&set);
    free(ranks);
    return status;
}

/* ---- the ranks of all nodes, by node 0's launcher ---------------------------------------------------------------- */
enum { MOST_TRACED = 1 << 16 };

/* The steps that the ranks take in a second: a request is with all nodes before they have taken those. */
static uint64_t steps_ahead(const yk__run_open_pages *open)
{
    const double look = 0.2;
    uint64_t before = yk__trace_meeting(open->pages, open->count, 0);
    poll(NULL, 0, (int)(1e3 * look));
    return 2 + (uint64_t)((double)(yk__trace_meeting(open->pages, open->count, 0) - before) / look);
}

/* Waits for the launcher's answer: a descriptor of its, or below 0 why there is none. */
static int launcher_wait(const yk__run *run, yk__run_requests *r, unsigned number, double timeout)
{
    const double silence = 60; /* beyond the timeout, without a piece that has come */
    unsigned moved = atomic_load(&r->trace_moved);
    for (double until = yk__now() + timeout + silence;; poll(NULL, 0, 20)) {
        if (atomic_load_explicit(&r->trace_answered, memory_order_acquire) == number)
            return atomic_load(&r->trace_file);
        if (yk__process_has_ended(run->supervisor))
            return YK__NO_TRACE_ENDED;
        if (atomic_load(&r->trace_asked) != number)
            return YK__NO_TRACE_BUSY;
        unsigned now = atomic_load(&r->trace_moved);
        if (now != moved)
            until = yk__now() + silence > until ? yk__now() + silence : until;
        moved = now;
        if (yk__now() >= until || cli_interrupted())
            return YK__NO_TRACE_LATE;
    }
}

/* Reads the launcher's list, and opens what is in it. */
static yk_status traced_open(const yk__run *run, int file, double timeout, trace_set *set)
{
    struct stat about;
    int fd = yk__process_open(run->supervisor, file), count = 0;
    yk__traced *all = NULL;
    if (fd >= 0 && fstat(fd, &about) == 0 && S_ISREG(about.st_mode) &&
        about.st_size / (off_t)sizeof(*all) <= MOST_TRACED)
        count = (int)(about.st_size / (off_t)sizeof(*all));
    all = count ? yk__calloc((size_t)count, sizeof(*all)) : NULL;
    bool fine = all && pread(fd, all, (size_t)count * sizeof(*all), 0) == (ssize_t)((size_t)count * sizeof(*all));
    if (fd >= 0)
        close(fd);
    yk_status status = !fine ? yk__fail(YK_ERR_STATE, "no rank of the job has called yoke yet, on any node")
                       : set_make(set, count) ? YK_OK
                                              : yk__error_code();
    for (int i = 0; i < count && !status; i++) {
        yk__traced *t = &all[i];
        t->why[sizeof(t->why) - 1] = '\0';
        if (t->rank < 0) {
            fprintf(stderr, "yoke trace: %s\n", cli_plain(t->why));
            continue;
        }
        int one = t->file < 0 ? -1 : yk__process_open(run->supervisor, t->file);
        if (one < 0)
            rank_explain(t->rank, t->file < 0 ? t->file : YK__NO_TRACE_LOST, timeout);
        else if (!set_add(set, t->rank, one, (yk__trace_clock){t->clock_known, t->to_node0_ns, t->error_ns}))
            rank_explain(t->rank, YK__NO_TRACE_LOST, timeout);
    }
    free(all);
    return status;
}

/* The error of a launcher that has no list. */
static yk_status launcher_fail(const yk__run *run, int why)
{
    if (why == YK__NO_TRACE_ENDED)
        return yk__fail(YK_ERR_STATE, "the run has ended, or was started again, meanwhile");
    if (why == YK__NO_TRACE_BUSY)
        return yk__fail(YK_ERR_STATE, "another yoke trace has asked for this run meanwhile");
    if (why == YK__NO_TRACE_MEMORY)
        return yk__fail(YK_ERR_MEMORY, "the launcher, pid %d, had no memory for the traces", run->launcher);
    return yk__fail(YK_ERR_TIMEOUT, "the launcher, pid %d, does not answer: is it stopped?", run->launcher);
}

static yk_status nodes_trace(const yk__run *run, const yk__run_open_pages *open, unsigned steps, double timeout,
                             const char *to)
{
    yk__run_requests *r = open->requests;
    trace_set set = {0};
    uint64_t ahead = steps_ahead(open);
    unsigned before = atomic_load(&r->trace_asked), number = before + 1 + before % 2;
    atomic_store(&r->trace_steps, steps);
    atomic_store(&r->trace_behind, yk__trace_meeting(open->pages, open->count, ahead));
    atomic_store(&r->trace_far, 4 * ahead);
    atomic_store(&r->trace_seconds, timeout);
    atomic_store_explicit(&r->trace_asked, number, memory_order_release);
    int file = launcher_wait(run, r, number, timeout);
    yk_status status = file >= 0 ? traced_open(run, file, timeout, &set) : launcher_fail(run, file);
    status = status ? status : set_write(&set, true, to);
    atomic_compare_exchange_strong(&r->trace_asked, &number, number + 1);
    set_clear(&set);
    return status;
}

/* The one run of this name or pid; of the launchers of one job that of the first node. NULL with an error. */
static const yk__run *run_find(const yk__runs *runs, const char *name)
{
    const yk__run *found = NULL;
    for (int i = 0; i < runs->count; i++) {
        const yk__run *r = &runs->all[i];
        if (!yk__run_is_called(r, name))
            continue;
        if (found && (found->nodes == 1 || found->nodes != r->nodes || found->node == r->node)) {
            yk__fail(YK_ERR_ARGUMENT, "several runs here are called '%s': give the pid of one, %d or %d",
                     cli_plain(name), found->launcher, r->launcher);
            return NULL;
        }
        found = !found || r->node < found->node ? r : found;
    }
    if (!found && runs->problem[0])
        yk__fail(YK_ERR_STATE, "%s", runs->problem);
    else if (!found)
        yk__fail(YK_ERR_NOT_FOUND, "no run of yours on this machine has the name or pid '%s'; yoke ps lists them",
                 cli_plain(name));
    return found;
}

static yk_status run_trace(const char *name, unsigned steps, double timeout, const char *to)
{
    yk__runs runs;
    yk__run_open_pages open = {0};
    yk__runs_read(&runs);
    const yk__run *run = run_find(&runs, name);
    yk_status status = run ? yk__run_pages_open(run, &open) : yk__error_code();
    bool nodes = !status && run->node == 0 && open.requests && atomic_load(&open.requests->others) > 0;
    if (!status && !nodes && !open.count)
        status = yk__fail(YK_ERR_STATE, "the run %s is here, and no rank of it has called yoke yet", cli_plain(name));
    if (!status && run->nodes > 1 && run->node > 0)
        fprintf(stderr,
                "yoke trace: this is node %d of %d of the job, whose ranks alone are recorded here: yoke trace on the "
                "host of node 0 records all\n",
                run->node, run->nodes);
    if (!status)
        status = nodes ? nodes_trace(run, &open, steps, timeout, to) : ranks_trace(&open, steps, timeout, to);
    yk__run_pages_close(&open);
    yk__runs_clear(&runs);
    return status;
}

int trace_merge(int argc, char **argv)
{
    const char *to = NULL;
    const cli_option options[] = {
        {"output", "FILE", CLI_TEXT, &to, .help = "the file to write", .letter = 'o', .default_text = ""}, {0}};
    const cli_verb verb = {
        .name = "yoke trace merge",
        .summary = "Makes one trace of several, as those that each node of a job has left, on one clock.",
        .examples = "  yoke trace merge -o all.json t.json t.json.node1\n",
        .options = options,
        .rest = "FILE...",
        .mixed = true,
    };
    int code, count = 0;
    if (!cli_parse(&verb, argc, argv, &code))
        return code;
    char **paths = argv + optind;
    while (paths[count])
        count++;
    if (!count || !to || !*to)
        return cli_usage_error(&verb, count ? "-o says where to write" : "expected the traces to merge");
    FILE **from = yk__calloc((size_t)count, sizeof(*from));
    yk_status status = from ? YK_OK : YK_ERR_MEMORY;
    for (int i = 0; i < count && !status; i++) {
        if (!(from[i] = fopen(paths[i], "re")))
            status = yk__fail_errno("%s", paths[i]);
    }
    if (!status)
        status = yk__trace_merge_save(from, (const char *const *)paths, NULL, count, to);
    for (int i = 0; from && i < count; i++) {
        if (from[i])
            fclose(from[i]);
    }
    free(from);
    return status ? cli_failed() : EXIT_DONE;
}

static yk_status convert_body(void *path, FILE *to)
{
    return yk__trace_to_perfetto(path, to);
}

int trace_convert(int argc, char **argv)
{
    const char *to = NULL;
    const cli_option options[] = {
        {"output", "FILE", CLI_TEXT, &to, .help = "the file to write", .letter = 'o', .default_text = ""}, {0}};
    const cli_verb verb = {
        .name = "yoke trace convert",
        .summary = "Writes a trace in Perfetto's own form, which is smaller than JSON.",
        .examples = "  yoke trace convert t.json -o t.pftrace\n",
        .options = options,
        .rest = "FILE",
        .mixed = true,
    };
    int code;
    if (!cli_parse(&verb, argc, argv, &code))
        return code;
    if (!argv[optind] || argv[optind + 1] || !to || !*to)
        return cli_usage_error(&verb, "expected one trace, and -o with the file to write");
    return yk__trace_save_with(to, convert_body, argv[optind]) ? cli_failed() : EXIT_DONE;
}

int cli_trace(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } parts[] = {{"report", trace_report}, {"merge", trace_merge}, {"convert", trace_convert}};
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts) && argc > 1; i++) {
        if (argc == 2 && strcmp(argv[1], "--help-verbs") == 0) { /* cli/pages.h; the rest of the table is this verb's */
            puts(parts[i].name);
            if (i + 1 == sizeof(parts) / sizeof(*parts))
                return EXIT_DONE;
        }
        if (strcmp(argv[1], parts[i].name) == 0)
            return parts[i].run(argc - 1, argv + 1);
    }
    int64_t steps = 5;
    double timeout = 60;
    const char *to = "trace.json";
    const cli_option options[] = {
        {"steps", "N", CLI_INT, &steps, "steps of the optimizer to record, from the next one on", .least = 1,
         .most = 1e6},
        {"output", "FILE", CLI_TEXT, &to, .help = "the file to write", .letter = 'o'},
        {"timeout", "SECONDS", CLI_REAL, &timeout, .help = "how long to wait for the steps", .least = 0.1, .most = 1e6},
        {0}};
    const cli_verb verb = {
        .name = "yoke trace",
        .summary = "Records what the ranks of a run do for some steps, on all its nodes, and writes it as one file.",
        .about =
            "JOB is the name of a run on this machine, PID that of its launcher; `yoke ps` lists both. The run goes\n"
            "on meanwhile; nothing has to be switched on in it. Of a job of several nodes ask on the host of node 0.\n"
            "Open the file in ui.perfetto.dev or chrome://tracing.\n"
            "`yoke trace report FILE [FILE]` says where its time goes, `yoke trace merge -o FILE FILE...` makes\n"
            "one of several, `yoke trace convert FILE -o FILE` Perfetto's own form.\n",
        .examples = "  yoke trace night --steps 5\n"
                    "  yoke trace 26616 -o night.json\n"
                    "  yoke trace report night.json\n",
        .options = options,
        .rest = "JOB|PID",
        .mixed = true,
    };
    int code;
    if (!cli_parse(&verb, argc, argv, &code))
        return code;
    const char *name = argv[optind];
    if (!name || !*name || argv[optind + 1])
        return cli_usage_error(&verb, "expected the name or pid of one run; yoke ps lists them");
    if (!*to)
        return cli_usage_error(&verb, "--output: the value is empty");
    cli_catch_signals();
    yk_status status = run_trace(name, (unsigned)steps, timeout, to);
    return status == YK_ERR_NOT_FOUND || status == YK_ERR_ARGUMENT ? cli_not_found(status)
           : status                                                ? cli_failed()
                                                                   : EXIT_DONE;
}
