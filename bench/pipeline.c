/*
 * pipeline.c - steps of ResNet-18 on 32x32 images as a pipeline, a stage in each process and a thread in each stage;
 * with one process the same micro-batches one after the other. Prints a JSON object: images_per_second of the fastest
 * step, and of the median one, and the share of the steps in which the stages were idle.
 *
 * Usage: yoke run -n 2 -- pipeline [micro-batches [images in each [seconds [cut]]]]      default: 8 32 3 4
 * The first stage has the stem and `cut` of the eight blocks.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <yoke/yoke.h>

#include "bench/times.h"

enum { BLOCKS = 8, MOST_STEPS = 4096 };

/* Parts of a ResNet: stem, blocks, head. */
typedef struct half {
    yk_module *net;
    int first, end; /* of the blocks */
} half;

static yk_tensor *half_forward(yk_module *m, yk_tensor *x)
{
    const half *h = yk_module_data(m);
    yk_module *net = h->net;
    if (h->first == 0) {
        x = yk_relu(yk_forward(yk_module_child(net, 1), yk_forward(yk_module_child(net, 0), x)));
        x = yk_forward(yk_module_child(net, 2), x);
    }
    for (int i = h->first; i < h->end; i++)
        x = yk_forward(yk_module_child(yk_module_child(net, 3 + i / 2), i % 2), x);
    if (h->end == BLOCKS)
        x = yk_forward(yk_module_child(net, 8), yk_flatten(yk_forward(yk_module_child(net, 7), x), 1, -1));
    return x;
}

/* A stage whose children are its parts of the net. */
static yk_module *half_of(yk_module *net, int first, int end)
{
    static const yk_module_class half_class = {.name = "Half", .data_size = sizeof(half), .forward = half_forward};
    yk_module *m = yk_module_create(&half_class);
    *(half *)yk_module_data(m) = (half){net, first, end};
    for (int i = 0; i < 3 && first == 0; i++)
        yk_module_add(m, (const char *[]){"conv1", "bn1", "maxpool"}[i], yk_module_child(net, i));
    for (int i = first; i < end; i++) {
        char name[16];
        snprintf(name, sizeof(name), "block%d", i);
        yk_module_add(m, name, yk_module_child(yk_module_child(net, 3 + i / 2), i % 2));
    }
    if (end == BLOCKS)
        yk_module_add(m, "fc", yk_module_child(net, 8));
    return yk_module_check(m);
}

static yk_tensor *cross_entropy(yk_tensor *output, yk_tensor *target, void *user)
{
    (void)user;
    return yk_cross_entropy(output, target, NULL);
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    int chunks = argc > 1 ? atoi(argv[1]) : 8, each = argc > 2 ? atoi(argv[2]) : 32;
    double seconds = argc > 3 ? atof(argv[3]) : 3;
    int cut = argc > 4 ? atoi(argv[4]) : 4;
    yk_scope program = yk_scope_begin();
    if (yk_init_process_group(NULL) || yk_set_num_threads((yk_device){YK_CPU, 0}, 1))
        return yk_report_error(stderr);
    int rank = yk_rank(NULL), processes = yk_world_size(NULL);
    if (processes > 2 || cut < 0 || cut > BLOCKS) {
        fprintf(stderr, "pipeline: %d processes, %d blocks in the first\n", processes, cut);
        return 2;
    }
    yk_manual_seed(1);
    yk_module *net = yk_resnet18(YK_OPTIONS(yk_resnet_options, .num_classes = 10)), *stages[2] = {NULL};
    stages[rank] = half_of(net, rank ? cut : 0, rank || processes == 1 ? BLOCKS : cut);
    yk_module *model = yk_pipeline(stages, processes,
                                   YK_OPTIONS(yk_pipeline_options, .group = yk_default_process_group(),
                                              .chunks = chunks, .criterion = cross_entropy));
    yk_optimizer *sgd =
        model ? yk_sgd(yk_module_parameters(model), YK_OPTIONS(yk_sgd_options, .lr = 0.01, .momentum = 0.9)) : NULL;
    yk_tensor *x = yk_randn(YK_SHAPE(chunks * each, 3, 32, 32), NULL),
              *y = yk_randint(0, 10, YK_SHAPE(chunks * each), NULL);
    static double times[MOST_STEPS];
    int steps = 0;
    double until = 0, began = seconds_now();
    /* Two steps that warm up. Rank 0 says when the time is over, so that both make as many steps. */
    for (int i = 0; steps < MOST_STEPS; i++) {
        yk_scope step = yk_scope_begin();
        yk_tensor *more = yk_full(YK_SCALAR, i < 4 || seconds_now() < until, NULL);
        if (!sgd || yk_broadcast(more, 0, NULL) || !yk_item(more))
            break;
        if (i == 2) {
            until = seconds_now() + seconds;
            yk_pipeline_report_reset(model);
        }
        began = seconds_now();
        yk_optimizer_zero_grad(sgd);
        if (!yk_pipeline_step(model, x, y) || yk_optimizer_step(sgd) || yk_barrier(NULL))
            break;
        if (i >= 2)
            times[steps++] = seconds_now() - began;
        yk_scope_end(step);
    }
    yk_stage_times report[2];
    if (yk_last_error() || yk_pipeline_report(model, report))
        return yk_report_error(stderr);
    qsort(times, (size_t)steps, sizeof(times[0]), times_compare);
    if (rank == 0)
        printf(
            "{\"steps\": %d, \"images_per_second\": %.6g, \"median_images_per_second\": %.6g, \"idle\": [%.3f, %.3f], "
            "\"forward\": [%.4f, %.4f], \"backward\": [%.4f, %.4f]}\n",
            steps, chunks * each / times[0], chunks * each / times[steps / 2], report[0].idle,
            report[processes - 1].idle, report[0].forward, report[processes - 1].forward, report[0].backward,
            report[processes - 1].backward);
    fflush(stdout);
    yk_destroy_process_group();
    yk_scope_end(program);
    return 0;
}
