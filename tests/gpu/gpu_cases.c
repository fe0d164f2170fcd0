/*
 * gpu_cases.c - the comparisons of slot_cases.h as a program: on a machine with a GPU, each case is a process of its
 * own.
 *
 *   gpu_cases devices          says which devices there are, or why none; exit code 0, 3 where there is none
 *   gpu_cases list             GROUP NAME, a line each: slots
 *   gpu_cases checks           the same of gpu_checks.h
 *   gpu_cases run GROUP NAME   one line of JSON; exit code 0, or 1 where the case failed
 *   gpu_cases benches          the names of what can be measured
 *   gpu_cases bench NAME...    a line of JSON each: times and rates; ends at the first that fails
 *   gpu_cases try NAME...      the same with a few elements
 *   gpu_cases parity MODEL PRECISION DEVICE FROM TO
 *                              the loss and the gradients of a network (gpu_checks.h)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yoke/device.h>

#include "device/table.h"
#include "tests/gpu/gpu_bench.h"
#include "tests/gpu/gpu_checks.h"
#include "tests/support/slot_cases.h"
#include "tests/support/slot_pairs.h"

static void print_text(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            putchar('\\');
        putchar((unsigned char)*text < ' ' ? ' ' : *text);
    }
    putchar('"');
}

static int devices(void)
{
    int count = yk_device_count(YK_CUDA);
    if (count) {
        printf("%d cuda devices\n", count);
        return 0;
    }
    (void)!yk__device_check((yk_device){YK_CUDA, 0});
    printf("none: %s\n", yk_last_error() ? yk_last_error()->message : "no reason was given");
    return 3;
}

static int run_case(const slot_case *c)
{
    slot_report report = {0};
    char described[1000];
    double start = yk__now();
    c->run(c, &report);
    slot_describe(described, sizeof(described));
    printf("{\"case\": \"%s %s\", \"passed\": %s, \"compared\": %ld, \"worst_ulp\": %.3g, \"digest\": "
           "\"%016llx\", \"seconds\": %.3f, \"text\": ",
           c->group, c->name, report.failed ? "false" : "true", report.compared,
           report.worst > 1e30 ? 1e30 : report.worst, report.digest, yk__now() - start);
    print_text(report.text);
    printf(", \"libraries\": ");
    print_text(described);
    puts("}");
    return report.failed;
}

static int run(const char *group, const char *name)
{
    const slot_case *const lists[] = {slot_cases(), gpu_check_cases()};
    for (int l = 0; l < 2; l++)
        for (const slot_case *c = lists[l]; c->name; c++)
            if (strcmp(c->group, group) == 0 && strcmp(c->name, name) == 0)
                return run_case(c);
    fprintf(stderr, "gpu_cases: there is no case '%s %s'\n", group, name);
    return 2;
}

static int run_benches(char *const *names, bool small)
{
    for (; *names; names++) {
        int code = gpu_bench_run(*names, small);
        if (code)
            return code;
        fflush(stdout); /* the next may end the program */
    }
    return 0;
}

static int list(const slot_case *cases)
{
    for (; cases->name; cases++)
        printf("%s %s\n", cases->group, cases->name);
    return 0;
}

int main(int argc, char **argv)
{
    gpu_stack_install();
    setenv("YOKE_CPU_ISA", "base", 1); /* fuses no multiply-adds: see slot_cases.c */
    if (argc == 2 && strcmp(argv[1], "devices") == 0)
        return devices();
    if (argc == 2 && strcmp(argv[1], "list") == 0)
        return list(slot_cases());
    if (argc == 2 && strcmp(argv[1], "checks") == 0)
        return list(gpu_check_cases());
    if (argc == 4 && strcmp(argv[1], "run") == 0)
        return run(argv[2], argv[3]);
    if (argc == 2 && strcmp(argv[1], "benches") == 0) {
        gpu_bench_list();
        return 0;
    }
    if (argc >= 3 && (strcmp(argv[1], "bench") == 0 || strcmp(argv[1], "try") == 0))
        return run_benches(argv + 2, argv[1][0] == 't');
    if (argc == 7 && strcmp(argv[1], "parity") == 0)
        return gpu_parity_run(argv[2], argv[3], argv[4], argv[5], argv[6]);
    fprintf(stderr, "usage: gpu_cases devices | list | checks | run GROUP NAME | benches | bench NAME... | "
                    "try NAME... | parity MODEL PRECISION DEVICE FROM TO\n");
    return 2;
}
