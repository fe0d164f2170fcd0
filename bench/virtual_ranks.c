/*
 * virtual_ranks.c - what virtual ranks cost beside plain DistributedDataParallel, on as many processes and with the
 * same joined batch: steps of both in turns, in the same processes, so that a busy machine is busy for both.
 *
 *   V on P    a shard of b images in each of V virtual ranks, next to yk_ddp with V / P times b images in each process.
 *             V on V is the same model but for the loss's mean
 *   survives  likewise, with the option `survive`: no process ends, so it is the price of the possibility
 *
 * Prints the median time of a step of each, and the ratio of the medians; of rank 0.
 *
 * Usage: virtual_ranks [turns [model]]    default: 200 of lenet, 20 of resnet18; $YOKE is the program, build/yoke where
 * it is not set
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yoke/yoke.h>

#include "base/core.h"
#include "bench/times.h"

enum { MOST_TURNS = 5000, WARM = 3, SAMPLES = 2048 };

/* The cases: processes, virtual ranks, images of a shard. */
static const struct {
    int processes, virtual_ranks;
    bool survives;
} cases[] = {{2, 2, false}, {2, 2, true}, {2, 4, false}, {3, 12, false}};
enum { CASES = sizeof(cases) / sizeof(*cases) };

/* ---- a rank ------------------------------------------------------------------------------------------------------ */
typedef struct side {
    yk_module *net, *model;
    yk_optimizer *sgd;
    yk_loader *loader;
    yk_elastic *job; /* NULL: plain */
    int64_t epoch;
} side;

static yk_status side_make(side *s, bool resnet, int64_t batch, int virtual_ranks, bool survives)
{
    yk_manual_seed(7);
    yk_tensor *x = resnet ? yk_randn(YK_SHAPE(SAMPLES, 3, 32, 32), NULL) : yk_randn(YK_SHAPE(SAMPLES, 1, 28, 28), NULL);
    yk_tensor *y = yk_randint(0, 10, YK_SHAPE(SAMPLES), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    s->net = resnet ? yk_resnet18(YK_OPTIONS(yk_resnet_options, .cifar = true)) : yk_lenet(NULL);
    s->sgd = yk_sgd(yk_module_parameters(s->net), YK_OPTIONS(yk_sgd_options, .lr = 0.001, .momentum = 0.9));
    s->loader =
        yk_loader_create(yk_tensor_dataset(x, y), YK_OPTIONS(yk_loader_options, .batch_size = batch, .shuffle = true,
                                                             .distributed = !virtual_ranks, .drop_last = true));
    if (virtual_ranks)
        s->job =
            yk_elastic_create(YK_OPTIONS(yk_elastic_options, .model = s->net, .optimizer = s->sgd, .loader = s->loader,
                                         .virtual_ranks = virtual_ranks, .survive = survives));
    s->model = virtual_ranks ? yk_elastic_model(s->job) : yk_ddp(s->net, NULL);
    if (!s->model || !s->loader)
        return yk_last_error()->code;
    yk_loader_start(s->loader, 0);
    return YK_OK;
}

static yk_status batch_backward(const side *s, const yk_batch *batch)
{
    yk_scope scope = yk_scope_begin();
    yk_tensor *loss = yk_cross_entropy(yk_forward(s->model, batch->input), batch->target, NULL);
    yk_status status = s->job ? yk_elastic_backward(s->job, loss) : yk_backward(loss);
    yk_scope_end(scope);
    return status;
}

/* The rest of a step whose first batch is there. */
static yk_status step_end(side *s, yk_batch *batch)
{
    yk_status status = YK_OK;
    if (!s->job) {
        yk_optimizer_zero_grad(s->sgd);
        status = batch_backward(s, batch);
        return status ? status : yk_optimizer_step(s->sgd);
    }
    while (!status && yk_elastic_next(s->job, batch))
        status = batch_backward(s, batch);
    return status ? status : yk_elastic_step(s->job);
}

/* A step, and its seconds. An epoch that ends is begun anew, which does not count. */
static yk_status step_measure(side *s, double *seconds)
{
    yk_batch batch = {0};
    yk_status status = YK_OK;
    for (int tries = 0; !status && tries < 2; tries++) {
        double began = yk__now();
        if (s->job ? yk_elastic_begin(s->job) : yk_loader_next(s->loader, &batch)) {
            status = step_end(s, &batch);
            *seconds = yk__now() - began;
            return status;
        }
        if (yk_last_error())
            status = yk_last_error()->code;
        else
            yk_loader_start(s->loader, ++s->epoch);
    }
    return status ? status : YK_ERR_STATE;
}

static int rank_main(int which, int turns, bool resnet)
{
    static double plain_times[MOST_TURNS], virtual_times[MOST_TURNS];
    side plain = {0}, virtual = {0};
    yk_scope program = yk_scope_begin();
    int shards = cases[which].virtual_ranks, processes = cases[which].processes;
    const int64_t images = resnet ? 2 : 8;
    if (yk_init_process_group(NULL) || side_make(&plain, resnet, images * shards / processes, 0, false) ||
        side_make(&virtual, resnet, images, shards, cases[which].survives))
        return yk_report_error(stderr);
    for (int i = -WARM; i < turns; i++) {
        double first, second;
        yk_scope scope = yk_scope_begin();
        /* In turns, also who comes first. */
        yk_status status = step_measure(i & 1 ? &plain : &virtual, &first);
        status = status ? status : step_measure(i & 1 ? &virtual : &plain, &second);
        yk_scope_end(scope);
        if (status)
            return yk_report_error(stderr);
        if (i >= 0) {
            plain_times[i] = i & 1 ? first : second;
            virtual_times[i] = i & 1 ? second : first;
        }
    }
    double of_plain = 1e3 * times_median(plain_times, turns), of_virtual = 1e3 * times_median(virtual_times, turns);
    if (yk_rank(NULL) == 0)
        printf("%2d virtual ranks on %d processes%s: %8.2f ms, plain %8.2f ms: %+.1f%%\n", shards, processes,
               cases[which].survives ? ", survives" : "          ", of_virtual, of_plain,
               100 * (of_virtual / of_plain - 1));
    yk_destroy_process_group();
    yk_scope_end(program);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 4 && strcmp(argv[1], "--rank") == 0)
        return rank_main(atoi(argv[2]), atoi(argv[3]), strcmp(argv[4], "resnet18") == 0);
    bool resnet = argc > 2 && strcmp(argv[2], "resnet18") == 0;
    int turns = argc > 1 ? atoi(argv[1]) : resnet ? 20 : 200, failed = 0;
    const char *yoke = getenv("YOKE") ? getenv("YOKE") : "build/yoke", *model = resnet ? "resnet18" : "lenet";
    if (turns < 1 || turns > MOST_TURNS || (argc > 2 && strcmp(argv[2], model) != 0)) {
        fprintf(stderr, "usage: virtual_ranks [turns [lenet|resnet18]], of 1 to %d turns\n", MOST_TURNS);
        return 2;
    }
    printf("%s, %d images a shard, %d steps of each in turns; medians\n", model, resnet ? 2 : 8, turns);
    fflush(stdout);
    for (int i = 0; i < CASES; i++) {
        char command[1000];
        snprintf(command, sizeof(command), "OMP_NUM_THREADS=1 '%s' run --no-prefix -n %d -- '%s' --rank %d %d %s", yoke,
                 cases[i].processes, argv[0], i, turns, model);
        failed |= system(command) != 0;
    }
    return failed;
}
