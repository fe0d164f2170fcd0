/*
 * trace.c - what recording costs a training step (yoke/profiler.h), and what a summary does (yoke/summary.h): steps of
 * LeNet at batch 4 and of ResNet-18 at batch 32, without and with a recording in turns; a hook while nothing is
 * recorded; yk_summary_scalar. Processor time of this thread, the least of the rounds. Exits with 1 where a bound is
 * exceeded: 5% of LeNet, 2% of ResNet-18, 50 us of a summary in 999 of 1,000.
 *
 * Usage: trace [rounds]          default: 30
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <yoke/profiler.h>
#include <yoke/yoke.h>

#include "base/events.h"

static double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct network {
    const char *name;
    yk_module *module;
    yk_optimizer *optimizer;
    yk_tensor *x, *target;
    int steps; /* of a round */
    double bound;
} network;

static yk_status network_step(const network *n)
{
    yk_scope scope = yk_scope_begin();
    yk_optimizer_zero_grad(n->optimizer);
    yk_status status = yk_backward(yk_cross_entropy(yk_forward(n->module, n->x), n->target, NULL));
    status = status ? status : yk_optimizer_step(n->optimizer);
    yk_scope_end(scope);
    return status;
}

static double round_seconds(const network *n, bool recorded)
{
    if (recorded && yk_profiler_start(NULL))
        return -1;
    double began = thread_seconds();
    for (int i = 0; i < n->steps; i++) {
        if (network_step(n))
            return -1;
    }
    double seconds = (thread_seconds() - began) / n->steps;
    return recorded && yk_profiler_stop(NULL) ? -1 : seconds;
}

static bool network_measure(network *n, int rounds)
{
    double least[2] = {1e9, 1e9};
    n->optimizer = yk_sgd(yk_module_parameters(n->module), YK_OPTIONS(yk_sgd_options, .lr = 0.001, .momentum = 0.9));
    for (int round = 0; round <= rounds; round++) {
        for (int recorded = 0; recorded < 2; recorded++) {
            double seconds = round_seconds(n, recorded);
            if (seconds < 0)
                return false;
            if (round && seconds < least[recorded]) /* the first warms up */
                least[recorded] = seconds;
        }
    }
    double more = 100 * (least[1] / least[0] - 1);
    printf("%-22s %10.1f us a step, recorded %10.1f us: %+.1f%% (bound: %g%%)\n", n->name, 1e6 * least[0],
           1e6 * least[1], more, n->bound);
    return more <= n->bound;
}

static __attribute__((noinline)) void hooked(int i)
{
    YK__EVENT(YK__EVENT_OPERATION, "nothing");
    __asm__ volatile("" : : "r"(i) : "memory");
}

static __attribute__((noinline)) void bare(int i)
{
    __asm__ volatile("" : : "r"(i) : "memory");
}

static void hook_measure(void)
{
    enum { TIMES = 2000000 };
    double least[2] = {1e9, 1e9};
    for (int round = 0; round < 10; round++) {
        for (int which = 0; which < 2; which++) {
            double began = thread_seconds();
            for (int i = 0; i < TIMES; i++)
                (which ? hooked : bare)(i);
            double each = 1e9 * (thread_seconds() - began) / TIMES;
            least[which] = each < least[which] ? each : least[which];
        }
    }
    printf("a hook while nothing is recorded: %.2f ns", least[1] - least[0]);
    least[1] = 1e9;
    for (int round = 0; round < 20 && !yk_profiler_start(NULL); round++) {
        enum { EVENTS = 20000 };
        double began = thread_seconds();
        for (int i = 0; i < EVENTS; i++)
            hooked(i);
        double each = 1e9 * (thread_seconds() - began) / EVENTS;
        least[1] = each < least[1] ? each : least[1];
        (void)!yk_profiler_stop(NULL);
    }
    printf(", an event: %.1f ns\n", least[1] - least[0]);
}

static int double_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Real time, since a step would wait for it: whoever else runs here is in it. */
static bool summary_measure(void)
{
    enum { TIMES = 20000 };
    static double taken[TIMES];
    char folder[] = "/tmp/yoke-bench-XXXXXX", command[64];
    yk_summary_writer *w = mkdtemp(folder) ? yk_summary_create(folder, NULL) : NULL;
    for (int i = 0; i < TIMES && w; i++) {
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        if (yk_summary_scalar(w, "loss/train", i, i))
            return false;
        clock_gettime(CLOCK_MONOTONIC, &b);
        taken[i] = 1e6 * (double)(b.tv_sec - a.tv_sec) + 1e-3 * (double)(b.tv_nsec - a.tv_nsec);
    }
    bool fine = w && !yk_summary_flush(w);
    qsort(taken, TIMES, sizeof(*taken), double_compare);
    printf("yk_summary_scalar: median %.2f us, 999 of 1,000 within %.1f us (bound: 50)\n", taken[TIMES / 2],
           taken[TIMES - TIMES / 1000]);
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command) == 0 && fine && taken[TIMES - TIMES / 1000] <= 50;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 30;
    yk_scope scope = yk_scope_begin();
    const yk_tensor_options *whole = YK_OPTIONS(yk_tensor_options, .dtype = YK_I64);
    network networks[] = {
        {"LeNet, batch 4", yk_lenet(NULL), NULL, yk_rand(YK_SHAPE(4, 1, 28, 28), NULL), yk_zeros(YK_SHAPE(4), whole),
         20, 5},
        {"ResNet-18, batch 32", yk_resnet18(YK_OPTIONS(yk_resnet_options, .cifar = true)), NULL,
         yk_rand(YK_SHAPE(32, 3, 32, 32), NULL), yk_zeros(YK_SHAPE(32), whole), 1, 2},
    };
    bool fine = yk_set_num_threads((yk_device){0}, 1) == YK_OK;
    hook_measure();
    fine &= network_measure(&networks[0], 10 * rounds);
    fine &= (rounds < 4 || network_measure(&networks[1], rounds / 4 + 1));
    fine &= summary_measure();
    yk_scope_end(scope);
    return yk_report_error(stderr) || !fine;
}
