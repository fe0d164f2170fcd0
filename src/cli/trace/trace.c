/*
 * trace.c - `yoke trace`: asks the ranks of a run for a trace of their next steps; several traces as one. Layer: cli.
 *
 * A request goes to the page of a rank, which the launcher's memory file holds, and the rank answers with a memory file
 * of its own (host/profiler.c). Both are opened by way of /proc, as who calls this: the system lets a process of the
 * same user do so, and no other. Nothing is written but the file that the command names.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/options.h"
#include "cli/trace/trace.h"
#include "host/process.h"
#include "host/profiler.h"
#include "host/trace_file.h"
#include "observe/runs.h"
#include "observe/trace_perfetto.h"

/* A rank that was asked. */
typedef struct asked_rank {
    yk__rank_page *page;
    unsigned number;
    bool answered;
} asked_rank;

/* Asks; a request that somebody else has left is replaced. */
static void rank_ask(asked_rank *a, int64_t steps)
{
    unsigned before = atomic_load(&a->page->trace_asked);
    a->number = before + 1 + before % 2;
    atomic_store(&a->page->trace_steps, (unsigned)steps);
    atomic_store_explicit(&a->page->trace_asked, a->number, memory_order_release);
}

/* The rank may give its memory back, or need not record any more. */
static void rank_take_back(asked_rank *a)
{
    unsigned number = a->number;
    atomic_compare_exchange_strong(&a->page->trace_asked, &number, a->number + 1);
}

/* Waits for the answers; how many ranks have not come to one. */
static int ranks_wait(asked_rank *ranks, int count, double timeout)
{
    double until = yk__now() + timeout;
    for (;;) {
        int left = 0;
        for (int i = 0; i < count; i++) {
            asked_rank *a = &ranks[i];
            a->answered = atomic_load_explicit(&a->page->trace_answered, memory_order_acquire) == a->number;
            left += !a->answered && yk__run_rank_is_alive(a->page);
        }
        if (!left || yk__now() >= until || cli_interrupted())
            return left;
        poll(NULL, 0, 20);
    }
}

/* Says why a rank has left no trace. */
static void rank_explain(const asked_rank *a, double timeout)
{
    int rank = a->page->rank, file = atomic_load(&a->page->trace_file);
    if (!a->answered && !yk__run_rank_is_alive(a->page))
        fprintf(stderr, "yoke trace: rank %d has ended meanwhile\n", rank);
    else if (!a->answered)
        fprintf(stderr,
                "yoke trace: rank %d has not applied the steps within %g s (--timeout): a step is one of an optimizer; "
                "yoke explain says what it does\n",
                rank, timeout);
    else if (file == YK__NO_TRACE_BUSY)
        fprintf(
            stderr,
            "yoke trace: rank %d is recording already, by yoke run --trace, yk_profiler_start or another yoke trace\n",
            rank);
    else
        fprintf(stderr, "yoke trace: rank %d had no memory for its trace\n", rank);
}

/* Opens what the ranks have recorded, and writes it as one file. */
static yk_status ranks_collect(asked_rank *ranks, int count, double timeout, const char *to)
{
    FILE **from = yk__calloc((size_t)count + 1, sizeof(*from));
    char(*names)[40] = from ? yk__calloc((size_t)count + 1, sizeof(*names)) : NULL;
    const char **list = names ? yk__calloc((size_t)count + 1, sizeof(*list)) : NULL;
    int found = 0;
    for (int i = 0; list && i < count; i++) {
        int file = ranks[i].answered ? atomic_load(&ranks[i].page->trace_file) : -1;
        int fd = file < 0 ? -1 : yk__process_open(atomic_load(&ranks[i].page->pid), file);
        FILE *one = fd < 0 ? NULL : fdopen(fd, "r");
        if (!one) {
            rank_explain(&ranks[i], timeout);
            continue;
        }
        snprintf(names[found], sizeof(names[found]), "the trace of rank %d", ranks[i].page->rank);
        list[found] = names[found];
        from[found++] = one;
    }
    yk_status status = !list    ? YK_ERR_MEMORY
                       : !found ? yk__fail(YK_ERR_STATE, "no rank has left a trace, and %s is not written", to)
                                : yk__trace_merge_save(from, list, NULL, found, to);
    if (!status)
        printf("the trace of %d %s is in %s\n", found, found == 1 ? "rank" : "ranks", cli_plain(to));
    for (int i = 0; i < found; i++)
        fclose(from[i]);
    free(from);
    free(names);
    free(list);
    return status;
}

/* The one run of this name or pid; NULL with an error. */
static const yk__run *run_find(const yk__runs *runs, const char *name)
{
    const yk__run *found = NULL;
    for (int i = 0; i < runs->count; i++) {
        if (!yk__run_is_called(&runs->all[i], name))
            continue;
        if (found) {
            yk__fail(YK_ERR_ARGUMENT, "several runs here are called '%s': give the pid of one, %d or %d",
                     cli_plain(name), found->launcher, runs->all[i].launcher);
            return NULL;
        }
        found = &runs->all[i];
    }
    if (!found && runs->problem[0])
        yk__fail(YK_ERR_STATE, "%s", runs->problem);
    else if (!found)
        yk__fail(YK_ERR_NOT_FOUND, "no run of yours on this machine has the name or pid '%s'; yoke ps lists them",
                 cli_plain(name));
    return found;
}

static yk_status run_trace(const char *name, int64_t steps, double timeout, const char *to)
{
    yk__runs runs;
    yk__run_open_pages open = {0};
    yk__runs_read(&runs);
    const yk__run *run = run_find(&runs, name);
    yk_status status = run ? yk__run_pages_open(run, &open) : yk__error_code();
    if (!status && !open.count)
        status = yk__fail(YK_ERR_STATE, "the run %s is here, and no rank of it has called yoke yet", cli_plain(name));
    asked_rank *ranks = status ? NULL : yk__calloc((size_t)open.count, sizeof(*ranks));
    for (int i = 0; ranks && i < open.count; i++) {
        ranks[i].page = open.pages[i];
        rank_ask(&ranks[i], steps);
    }
    if (ranks) {
        ranks_wait(ranks, open.count, timeout);
        status = ranks_collect(ranks, open.count, timeout, to);
        for (int i = 0; i < open.count; i++)
            rank_take_back(&ranks[i]);
    } else if (!status) {
        status = YK_ERR_MEMORY;
    }
    free(ranks);
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
        .summary = "Records what the ranks of a run on this machine do for some steps, and writes it as one file.",
        .about =
            "JOB is the name of a run, PID that of its launcher; `yoke ps` lists both. The run goes on meanwhile;\n"
            "nothing has to be switched on in it. Open the file in ui.perfetto.dev or chrome://tracing.\n"
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
    yk_status status = run_trace(name, steps, timeout, to);
    return status == YK_ERR_NOT_FOUND || status == YK_ERR_ARGUMENT ? cli_not_found(status)
           : status                                                ? cli_failed()
                                                                   : EXIT_DONE;
}
