/*
 * trace_report.c - `yoke trace report`: where a trace's time goes, or the difference of two. Layer: cli.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json_line.h"
#include "cli/options.h"
#include "cli/trace/trace.h"
#include "observe/trace_summary.h"

/* Steps of a rank, which all have as many; 0: none are marked. */
static int64_t steps_of(const yk__trace_summary *s)
{
    int64_t steps = 0;
    for (int i = 0; i < s->n_ranks; i++)
        steps = s->ranks[i].steps > steps ? s->ranks[i].steps : steps;
    return steps;
}

/* "12.3 ms" in a column. */
static const char *seconds_format(double seconds, char text[24])
{
    double size = fabs(seconds);
    if (size >= 1)
        snprintf(text, 24, "%.2f s", seconds);
    else if (size >= 1e-3)
        snprintf(text, 24, "%.2f ms", 1e3 * seconds);
    else
        snprintf(text, 24, "%.1f us", 1e6 * seconds);
    return text;
}

static const char *rate_format(double flops, double seconds, char text[32])
{
    double rate = seconds > 0 ? flops / seconds : 0;
    if (flops <= 0 || rate <= 0)
        text[0] = '\0';
    else
        snprintf(text, 32, rate >= 1e12 ? "%.2f TFLOP/s" : "%.2f GFLOP/s", rate >= 1e12 ? 1e-12 * rate : 1e-9 * rate);
    return text;
}

static void put_part(double part, double whole)
{
    char text[24];
    printf("  %10s %3.0f%%", seconds_format(part, text), whole > 0 ? 100 * part / whole : 0);
}

static void ranks_print(const yk__trace_summary *s)
{
    char text[24];
    printf("  rank        time    compute           exposed comm.     loading           saving            other"
           "             hidden comm.\n");
    for (int i = 0; i < s->n_ranks; i++) {
        const yk__trace_rank *r = &s->ranks[i];
        printf("  %4d  %10s", r->rank, seconds_format(r->seconds, text));
        put_part(r->compute, r->seconds);
        put_part(r->exposed, r->seconds);
        put_part(r->loading, r->seconds);
        put_part(r->saving, r->seconds);
        put_part(r->other, r->seconds);
        put_part(r->overlapped, r->seconds);
        putchar('\n');
    }
}

static void critical_print(const yk__trace_summary *s)
{
    const yk__trace_rank *c = yk__trace_critical(s);
    char text[24];
    if (s->n_ranks < 2)
        return;
    if (!c || !s->collectives)
        printf("no collective is in the trace that all ranks have\n");
    else
        printf("rank %d is the one that the others wait for: it came last to %" PRId64 " of %" PRId64
               " collectives, for which they waited %s in all\n",
               c->rank, c->last, s->collectives, seconds_format(c->caused, text));
}

/* Notes on how far the numbers can be believed: a cut file, lost events, clocks. */
static void notes_print(const char *path, const yk__trace_summary *s)
{
    int64_t lost = 0;
    double error = 0;
    bool unknown = false;
    char text[24];
    for (int i = 0; i < s->n_ranks; i++) {
        lost += s->ranks[i].lost;
        unknown |= s->ranks[i].clock_error < 0;
        error = s->ranks[i].clock_error > error ? s->ranks[i].clock_error : error;
    }
    if (s->cut)
        printf("%s: its end is missing; this is what is there\n", cli_plain(path));
    if (lost)
        printf("%s: the memory of the recording was used up, so this is its last part\n", cli_plain(path));
    if (unknown)
        printf("%s: the clocks of the hosts were not measured, and taken as they stand\n", cli_plain(path));
    else if (error > 0)
        printf("%s: the clocks of the hosts are known to within %s\n", cli_plain(path), seconds_format(error, text));
}

static void operations_print(const yk__trace_summary *s, int64_t top, double peak)
{
    double all = 0;
    char self[24], mean[24], rate[32];
    for (int i = 0; i < s->n_operations; i++)
        all += s->operations[i].self;
    printf("\n  %-36s %9s %12s %6s %12s\n", "operation", "calls", "self", "share", "mean");
    for (int i = 0; i < s->n_operations && i < top; i++) {
        const yk__trace_operation *o = &s->operations[i];
        printf("  %-36.60s %9" PRId64 " %12s %5.1f%% %12s", cli_plain(o->name), o->calls, seconds_format(o->self, self),
               all > 0 ? 100 * o->self / all : 0, seconds_format(o->self / (double)o->calls, mean));
        if (*rate_format(o->flops, o->self, rate))
            printf("  %s", rate);
        if (peak > 0 && *rate)
            printf(", %.0f%% of peak", 1e-7 * o->flops / o->self / peak);
        putchar('\n');
    }
}

static void report_print(const char *path, const yk__trace_summary *s, int64_t top, double peak)
{
    char text[24];
    int64_t steps = steps_of(s);
    double step = 0;
    for (int i = 0; i < s->n_ranks; i++)
        step = s->ranks[i].step_seconds > step ? s->ranks[i].step_seconds : step;
    printf("%s: %d %s, %" PRId64 " events", cli_plain(path), s->n_ranks, s->n_ranks == 1 ? "rank" : "ranks", s->events);
    if (step > 0)
        printf(", %" PRId64 " steps of %s", steps, seconds_format(step, text));
    putchar('\n');
    notes_print(path, s);
    ranks_print(s);
    critical_print(s);
    operations_print(s, top, peak);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */
static json_t *summary_json(const yk__trace_summary *s, int64_t top)
{
    json_t *ranks = json_array(), *operations = json_array();
    const yk__trace_rank *critical = yk__trace_critical(s);
    for (int i = 0; i < s->n_ranks; i++) {
        const yk__trace_rank *r = &s->ranks[i];
        json_array_append_new(
            ranks, json_pack("{s:i,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:I,s:f,s:I,s:f,s:I,s:o}", "rank", r->rank, "time_s",
                             r->seconds, "compute_s", r->compute, "exposed_communication_s", r->exposed, "loading_s",
                             r->loading, "saving_s", r->saving, "other_s", r->other, "hidden_communication_s",
                             r->overlapped, "steps", (json_int_t)r->steps, "step_s", r->step_seconds, "came_last",
                             (json_int_t)r->last, "others_waited_s", r->caused, "lost", (json_int_t)r->lost,
                             "clock_error_s", r->clock_error < 0 ? json_null() : json_real(r->clock_error)));
    }
    for (int i = 0; i < s->n_operations && i < top; i++) {
        const yk__trace_operation *o = &s->operations[i];
        json_array_append_new(operations,
                              json_pack("{s:o,s:I,s:f,s:f}", "name", yk__json_text(o->name, strlen(o->name)), "calls",
                                        (json_int_t)o->calls, "self_s", o->self, "flops", o->flops));
    }
    return json_pack("{s:I,s:b,s:I,s:o,s:o,s:o}", "events", (json_int_t)s->events, "cut", (int)s->cut, "collectives",
                     (json_int_t)s->collectives, "critical_rank", critical ? json_integer(critical->rank) : json_null(),
                     "ranks", ranks, "operations", operations);
}

/* ---- two --------------------------------------------------------------------------------------------------------- */
/* One operation in both traces, in seconds per step, or in all where steps are not marked. */
typedef struct difference {
    const char *name;
    double before, after;
} difference;

static int difference_compare(const void *a, const void *b)
{
    const difference *x = a, *y = b;
    double p = fabs(x->after - x->before), q = fabs(y->after - y->before);
    return (p < q) - (p > q);
}

static int differences_make(const yk__trace_summary *a, double a_steps, const yk__trace_summary *b, double b_steps,
                            difference *to)
{
    int count = 0;
    for (int i = 0; i < a->n_operations; i++)
        to[count++] = (difference){.name = a->operations[i].name, .before = a->operations[i].self / a_steps};
    for (int i = 0; i < b->n_operations; i++) {
        int at = 0;
        while (at < a->n_operations && strcmp(to[at].name, b->operations[i].name) != 0)
            at++;
        if (at == a->n_operations)
            to[at = count++] = (difference){.name = b->operations[i].name};
        to[at].after += b->operations[i].self / b_steps;
    }
    qsort(to, (size_t)count, sizeof(*to), difference_compare);
    return count;
}

static void line_print(const char *name, double before, double after)
{
    char a[24], b[24], c[24];
    printf("  %-36.60s %12s %12s %12s", cli_plain(name), seconds_format(before, a), seconds_format(after, b),
           seconds_format(after - before, c));
    if (before > 0)
        printf(" %+6.0f%%", 100 * (after - before) / before);
    putchar('\n');
}

/* The mean over all ranks of a part, per step. */
static double part_mean(const yk__trace_summary *s, size_t offset, double steps)
{
    double sum = 0;
    for (int i = 0; i < s->n_ranks; i++)
        sum += *(const double *)((const char *)&s->ranks[i] + offset);
    return sum / s->n_ranks / steps;
}

static yk_status difference_print(char *const *paths, const yk__trace_summary *s, int64_t top)
{
    static const struct {
        const char *name;
        size_t offset;
    } parts[] = {{"all of a rank", offsetof(yk__trace_rank, seconds)},
                 {"compute", offsetof(yk__trace_rank, compute)},
                 {"exposed communication", offsetof(yk__trace_rank, exposed)},
                 {"loading", offsetof(yk__trace_rank, loading)},
                 {"saving", offsetof(yk__trace_rank, saving)},
                 {"other", offsetof(yk__trace_rank, other)}};
    int64_t steps[2] = {steps_of(&s[0]), steps_of(&s[1])};
    bool each = steps[0] > 0 && steps[1] > 0;
    double per[2] = {each ? (double)steps[0] : 1, each ? (double)steps[1] : 1};
    difference *all = yk__calloc((size_t)(s[0].n_operations + s[1].n_operations) + 1, sizeof(*all));
    if (!all)
        return yk__error_code();
    printf("%s and %s, %s\n", cli_plain(paths[0]), cli_plain(paths[1]),
           each ? "per step" : "in all: steps are not marked");
    notes_print(paths[0], &s[0]);
    notes_print(paths[1], &s[1]);
    printf("\n  %-36s %12s %12s %12s\n", "mean of the ranks", "first", "second", "difference");
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
        line_print(parts[i].name, part_mean(&s[0], parts[i].offset, per[0]), part_mean(&s[1], parts[i].offset, per[1]));
    int count = differences_make(&s[0], per[0] * s[0].n_ranks, &s[1], per[1] * s[1].n_ranks, all);
    printf("\n  %-36s %12s %12s %12s\n", "operation, self", "first", "second", "difference");
    for (int i = 0; i < count && i < top; i++)
        line_print(all[i].name, all[i].before, all[i].after);
    free(all);
    return YK_OK;
}

int trace_report(int argc, char **argv)
{
    int64_t top = 15;
    double peak = 0;
    bool json = false;
    const cli_option options[] = {{"top", "N", CLI_INT, &top, "operations to list", .least = 1, .most = 1e6},
                                  {"peak", "GFLOPS", CLI_REAL, &peak,
                                   .help = "the machine's: says which share of it products reach", .most = 1e9,
                                   .default_text = ""},
                                  {"json", NULL, CLI_FLAG, &json, .help = "print one object"},
                                  {0}};
    const cli_verb verb = {
        .name = "yoke trace report",
        .summary =
            "Says where the time of each rank of a trace went, which operations took it, and for which rank the\n"
            "others waited; of two traces, what became longer and what shorter.",
        .about =
            "A rank computes, or else communicates (that is exposed), or loads, or saves, or does something else:\n"
            "the parts add up. Self is the time of an operation without what is inside; FLOP/s are of products\n"
            "and convolutions.\n",
        .examples = "  yoke trace report t.json\n"
                    "  yoke trace report before.json after.json --top 30\n",
        .options = options,
        .rest = "FILE [FILE]",
        .mixed = true,
    };
    int code;
    if (!cli_parse(&verb, argc, argv, &code))
        return code;
    char *const *paths = argv + optind;
    int count = 0;
    while (paths[count])
        count++;
    if (count < 1 || count > 2)
        return cli_usage_error(&verb, "expected one trace, or two to compare; %d were given", count);
    if (json && count == 2)
        return cli_usage_error(&verb, "--json is for one trace");
    yk__trace_summary s[2] = {0};
    yk_status status = YK_OK;
    for (int i = 0; i < count && !status; i++)
        status = yk__trace_summary_read(paths[i], &s[i]);
    if (!status && json) {
        char *line = yk__json_line(summary_json(&s[0], top), YK__JSON_DIGITS);
        fputs(line ? line : "", stdout);
        free(line);
    } else if (!status && count == 1) {
        report_print(paths[0], &s[0], top, peak);
    } else if (!status) {
        status = difference_print(paths, s, top);
    }
    for (int i = 0; i < count; i++)
        yk__trace_summary_clear(&s[i]);
    return status == YK_ERR_IO || status == YK_ERR_FORMAT ? cli_not_found(status) : status ? cli_failed() : EXIT_DONE;
}
