/*
 * operation_times.c - the program `operation_times`: the time of single operations, forward and backward, at the shapes
 * of known networks. Layer: bench.
 *
 * One thread, the processor time of this process: what other programs do on the machine counts little. A figure is the
 * median over samples, each of as many runs as take a millisecond. bench/ops does the same with PyTorch, in turns.
 */
#include <inttypes.h>
#include <regex.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/core.h"
#include "bench/operations/operations.h"
#include "cli/bench/bench.h"
#include "cli/options.h"

typedef struct bench {
    const char *only;
    double seconds;
    bool list, json;
    regex_t pattern;
} bench;

static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static yk_status measure(const bench *b, ops_subject *s, ops_direction direction, double *seconds)
{
    enum { LEAST = 3, MOST = 1000 };
    const double long_run = 0.1; /* seconds: after one of these nothing is left to warm up */
    double times[MOST], start = processor_seconds();
    if (ops_once(s, direction) || (processor_seconds() - start < long_run && ops_once(s, direction)))
        return yk__error_code();
    start = processor_seconds();
    if (ops_once(s, direction))
        return yk__error_code();
    double once = processor_seconds() - start, begun = processor_seconds();
    int64_t runs = bench_count(1e-3 / (once > 1e-9 ? once : 1e-9), 1, 100000), count = 0;
    if (runs == 1)
        times[count++] = once;
    while (count < LEAST || (count < MOST && processor_seconds() - begun < b->seconds)) {
        start = processor_seconds();
        for (int64_t i = 0; i < runs; i++) {
            if (ops_once(s, direction))
                return yk__error_code();
        }
        times[count++] = (processor_seconds() - start) / (double)runs;
    }
    *seconds = bench_median(times, count);
    return YK_OK;
}

static bool wanted(const bench *b, const ops_case *c, ops_direction direction)
{
    if (!(c->directions & (unsigned)direction))
        return false;
    char row[256];
    snprintf(row, sizeof(row), "%s %s %s", c->text, ops_direction_name(direction), ops_bound_name(c->bound));
    return !b->only || regexec(&b->pattern, row, 0, NULL, 0) == 0;
}

static int count_wanted(const bench *b)
{
    int count = 0;
    for (int i = 0; i < ops_case_count; i++) {
        for (unsigned d = 1; d <= OPS_LAST_DIRECTION; d <<= 1)
            count += wanted(b, &ops_cases[i], (ops_direction)d);
    }
    return count;
}

static yk_status row(const bench *b, const ops_case *c, ops_direction direction)
{
    const char *name = ops_direction_name(direction), *bound = ops_bound_name(c->bound);
    double seconds = 0;
    if (!b->list) {
        ops_subject subject;
        yk_scope scope = yk_scope_begin();
        yk_status status = ops_prepare(&subject, c->text, direction);
        if (!status)
            status = measure(b, &subject, direction, &seconds);
        yk_scope_end(scope);
        if (status)
            return status;
    }
    if (b->json && b->list)
        return bench_print_json(json_pack("{s:s,s:s,s:s}", "case", c->text, "direction", name, "bound", bound));
    if (b->json)
        return bench_print_json(json_pack("{s:s,s:s,s:s,s:o}", "case", c->text, "direction", name, "bound", bound, "us",
                                          yk__json_number(seconds * 1e6, BENCH_TIME_DIGITS)));
    if (b->list)
        printf("%-11s %-10s %s\n", name, bound, c->text);
    else
        printf("%11.2f us  %-11s %-10s %s\n", seconds * 1e6, name, bound, c->text);
    fflush(stdout); /* a row takes its time, and who reads this wants it at once */
    return YK_OK;
}

static const char about[] =
    "A row is a case and a direction. The case is an operation with the shapes of its operands and its parameters;\n"
    "layout=inner is the memory order in which convolutions leave their outputs. Directions: forward (nothing is\n"
    "recorded), backward (all gradients, of a graph that is kept), grad_input and grad_weight (some of them), both\n"
    "(forward and backward), step (an optimizer's, or all of a training step). Bounds: arithmetic, memory (beyond the\n"
    "second-level cache), large (100M elements, up to 2 GB), small (the cost of a call), step. One thread; "
    "microseconds\n"
    "of processor time; medians.\n"
    "With --json a row is {\"case\":...,\"direction\":...,\"bound\":...,\"us\":...}, one a line.\n";
static const char examples[] = "  build/bench/operation_times --list\n"
                               "  build/bench/operation_times --only '^conv2d.*groups=32'\n"
                               "  build/bench/operation_times --only 'softmax .* backward' --seconds 1\n"
                               "  build/bench/operation_times --only ' small$' --json\n";

int main(int argc, char **argv)
{
    bench b = {.seconds = 0.1};
    const cli_option options[] = {
        {"only", "PATTERN", CLI_TEXT, &b.only,
         .help = "the rows of which \"CASE DIRECTION BOUND\" matches this extended regular expression",
         .default_text = "all"},
        {"seconds", "X", CLI_REAL, &b.seconds, .help = "how long to measure a row"},
        {"list", NULL, CLI_FLAG, &b.list, .help = "print the rows, measure nothing"},
        {"json", NULL, CLI_FLAG, &b.json, .help = "print one JSON object for each row"},
        {0},
    };
    const cli_verb verb = {"operation_times", "Measures single operations at the shapes of known networks.", about,
                           examples, .options = options};
    int code;
    if (!cli_parse(&verb, argc, argv, &code))
        return code;
    if (b.only) {
        int wrong = regcomp(&b.pattern, b.only, REG_EXTENDED | REG_NOSUB);
        if (wrong) {
            char why[128];
            regerror(wrong, &b.pattern, why, sizeof(why));
            return cli_usage_error(&verb, "--only '%s': not a regular expression: %s", b.only, why);
        }
    }
    if (count_wanted(&b) == 0) {
        regfree(&b.pattern);
        return cli_usage_error(&verb, "--only '%s': no row matches; --list prints them all", b.only);
    }
    yk_scope program = yk_scope_begin();
    yk_status status = yk_set_num_threads((yk_device){0}, 1);
    for (int i = 0; i < ops_case_count && !status; i++) {
        for (unsigned d = 1; d <= OPS_LAST_DIRECTION && !status; d <<= 1) {
            if (wanted(&b, &ops_cases[i], (ops_direction)d))
                status = row(&b, &ops_cases[i], (ops_direction)d);
        }
    }
    code = status ? cli_failed() : EXIT_DONE;
    yk_scope_end(program);
    if (b.only)
        regfree(&b.pattern);
    if ((fflush(stdout) || ferror(stdout)) && code == EXIT_DONE) {
        perror("operation_times: stdout");
        code = EXIT_FAILED;
    }
    return code;
}
