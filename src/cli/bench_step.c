/*
 * bench_step.c - `yoke bench step`: the time of one training step on made-up images. Layer: cli.
 *
 * In a job of several processes it is a data-parallel step, each process with a batch of its own; a step is as long as
 * the slowest process makes it.
 *
 * What is timed is what bench/peer_step.py times in PyTorch: drop the gradients, forward, cross-entropy, backward, SGD.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yoke/optim.h>
#include <yoke/parallel.h>

#include "base/core.h"
#include "cli/bench.h"
#include "cli/options.h"
#include "cli/ranks.h"
#include "comm/agreement.h"

typedef struct bench {
    const char *model, *dtype;
    int64_t batch_size, accumulate, threads, image_size, num_classes, steps;
    double seconds;
    bool json;
} bench;

typedef struct work {
    ranks ranks;
    yk_module *model;
    yk_optimizer *optimizer;
    yk_tensor *input, *target;
    int64_t accumulate;
} work;

/* Of one of the batches that a step accumulates. */
static yk_status one_backward(work *w)
{
    yk_scope scope = yk_scope_begin();
    yk_tensor *loss = yk_cross_entropy(yk_forward(w->model, w->input), w->target, NULL);
    if (w->accumulate > 1)
        loss = yk_mul_scalar(loss, 1 / (double)w->accumulate);
    yk_status status = loss ? yk_backward(loss) : yk__error_code();
    yk_scope_end(scope);
    return status;
}

static yk_status one_step(work *w)
{
    yk_optimizer_zero_grad(w->optimizer);
    yk_status status = YK_OK;
    for (int64_t i = 1; !status && i < w->accumulate; i++) {
        bool before = yk_no_sync_begin(w->model);
        status = one_backward(w);
        yk_no_sync_end(w->model, before);
    }
    if (!status)
        status = one_backward(w);
    return status ? status : yk_optimizer_step(w->optimizer);
}

/* Each command line was typed on its own host, and the processes are to make equal steps, equally many. */
static yk_status check_alike(const bench *b, const work *w)
{
    char lines[RANKS_LINES], steps[32] = "no --steps";
    if (b->steps)
        snprintf(steps, sizeof(steps), "--steps %" PRId64, b->steps);
    snprintf(lines, sizeof(lines),
             "--model %s\n--batch-size %" PRId64 "\n--accumulate %" PRId64 "\n--image-size %" PRId64
             "\n--num-classes %" PRId64 "\n--dtype %s\n%s\n--seconds %g\n",
             b->model, b->batch_size, b->accumulate, b->image_size, b->num_classes, b->dtype, steps, b->seconds);
    return ranks_compare(&w->ranks, lines);
}

static yk_status prepare(const bench *b, work *w)
{
    bool grey = strcmp(b->model, "lenet") == 0 || strcmp(b->model, "mlp") == 0;
    int64_t channels = grey ? 1 : 3;
    yk_tensor_options floats = {0};
    if (yk_dtype_parse(b->dtype, &floats.dtype) || yk_set_num_threads((yk_device){0}, (int)b->threads))
        return yk__error_code();
    w->model = yk_model(
        b->model,
        &(yk_model_options){.in_channels = channels, .image_size = b->image_size, .num_classes = b->num_classes});
    w->model = yk_ddp(yk_module_to_dtype(w->model, floats.dtype), NULL);
    w->optimizer =
        yk_sgd(yk_module_parameters(w->model), &(yk_sgd_options){.lr = 0.001, .momentum = 0.9, .weight_decay = 1e-5});
    w->accumulate = b->accumulate;
    w->input = yk_randn(YK_SHAPE(b->batch_size, channels, b->image_size, b->image_size), &floats);
    w->target = yk_randint(0, b->num_classes, YK_SHAPE(b->batch_size), NULL);
    return yk__error_code();
}

/* The largest of the ranks' numbers, on all of them: they make equally many steps. */
static yk_status largest(const work *w, double *number)
{
    if (w->ranks.world == 1)
        return YK_OK;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_scalar(*number, &(yk_tensor_options){.dtype = YK_F64});
    yk_status status = YK__HOST_TENSORS(yk_all_reduce(x, YK_OP_MAX, NULL));
    if (!status)
        *number = yk_item(x);
    yk_scope_end(scope);
    return status;
}

/* Two steps tell how many fit into the time; a tenth as many again warm up. Writes the seconds of each timed step to
 * a list that the caller frees. */
static yk_status measure(const bench *b, work *w, double **times, int64_t *count)
{
    double start = yk__now();
    if (one_step(w) || one_step(w))
        return yk__error_code();
    double once = (yk__now() - start) / 2;
    if (largest(w, &once))
        return yk__error_code();
    int64_t steps = b->steps ? b->steps : bench_count(b->seconds / once, 10, 100000);
    for (int64_t i = 0; i < steps / 10 + 1; i++) {
        if (one_step(w))
            return yk__error_code();
    }
    *times = yk__calloc((size_t)steps, sizeof(**times));
    if (!*times)
        return YK_ERR_MEMORY;
    if (w->ranks.world > 1)
        yk_ddp_report_reset(w->model);
    for (*count = 0; *count < steps; ++*count) {
        start = yk__now();
        if (one_step(w))
            return yk__error_code();
        (*times)[*count] = yk__now() - start;
    }
    return YK_OK;
}

/* What all processes found, on rank 0's stdout. */
static yk_status report(const bench *b, work *w, double *times, int64_t count)
{
    int world = w->ranks.world;
    double median = bench_median(times, count), fastest = times[0], exposed = 0, memory = bench_peak_rss_mb();
    yk_ddp_times *each = world > 1 ? yk__calloc((size_t)world, sizeof(*each)) : NULL;
    if (largest(w, &median) || largest(w, &fastest) || (world > 1 && (!each || yk_ddp_report(w->model, each)))) {
        free(each);
        return yk__error_code();
    }
    for (int i = 0; each && i < world; i++)
        exposed = each[i].exposed > exposed ? each[i].exposed : exposed;
    double rate = (double)(world * b->accumulate * b->batch_size) / median;
    yk_memory_info tensors;
    yk_status status = yk_device_memory((yk_device){0}, &tensors);
    if (status) {
        free(each);
        return status;
    }
    if (w->ranks.rank == 0 && b->json) {
        double allocated = (double)tensors.peak_allocated / (1 << 20);
        status = bench_print_json(json_pack(
            "{s:s,s:s,s:I,s:I,s:I,s:I,s:s,s:I,s:o,s:o,s:o,s:o,s:o,s:I,s:i,s:o}", "subject", "step", "model", b->model,
            "batch_size", (json_int_t)b->batch_size, "threads", (json_int_t)b->threads, "image_size",
            (json_int_t)b->image_size, "num_classes", (json_int_t)b->num_classes, "dtype", b->dtype, "steps",
            (json_int_t)count, "step_ms_median", yk__json_number(median * 1e3, BENCH_TIME_DIGITS), "step_ms_min",
            yk__json_number(fastest * 1e3, BENCH_TIME_DIGITS), "images_per_second", yk__json_number(rate, BENCH_DIGITS),
            "peak_rss_mb", yk__json_fixed(memory, 1), "peak_memory_mb", yk__json_fixed(allocated, 2), "accumulate",
            (json_int_t)b->accumulate, "world_size", world, "exposed_ms",
            yk__json_number(exposed * 1e3, BENCH_TIME_DIGITS)));
    } else if (w->ranks.rank == 0) {
        printf("%s, batch %" PRId64 " of %" PRId64 "x%" PRId64 ", %s, %" PRId64
               " thread%s: %.3f ms a step (median of %" PRId64 ", fastest %.3f), %.0f images/s, peak memory %.0f MB\n",
               b->model, b->batch_size, b->image_size, b->image_size, b->dtype, b->threads, b->threads == 1 ? "" : "s",
               median * 1e3, count, fastest * 1e3, rate / world, memory);
        if (world > 1)
            printf("%d processes: %.0f images/s together; %.3f ms of a step wait for communication\n", world, rate,
                   exposed * 1e3);
        if (world > 1 && yk_ddp_report_print(stdout, each, world))
            yk_clear_error(); /* stdout is checked at the end of the program */
    }
    free(each);
    return status;
}

static const char examples[] = "  yoke bench step --model lenet --batch-size 4\n"
                               "  yoke bench step --model resnet18 --batch-size 256 --threads 2 --json\n"
                               "  yoke run -n 2 -- yoke bench step --model resnet18 --batch-size 128\n";

int cli_bench_step(int argc, char **argv)
{
    bench b = {.model = "resnet18",
               .dtype = "f32",
               .batch_size = 32,
               .accumulate = 1,
               .threads = 1,
               .num_classes = 10,
               .seconds = 5};
    static const char *const dtypes[] = {"f32", "f64", NULL};
    const cli_option options[] = {
        {"model", "NAME", CLI_CHOICE, &b.model, "the network", .choices = yk_model_names()},
        {"batch-size", "N", CLI_INT, &b.batch_size, "images per step, of each process", .least = 1, .most = 1e6},
        {"accumulate", "N", CLI_INT, &b.accumulate, "batches whose gradients a step adds up", .least = 1, .most = 1e6},
        {"threads", "N", CLI_INT, &b.threads, "threads of one operation", .least = 1, .most = 1024},
        {"image-size", "N", CLI_INT, &b.image_size, "height and width", .least = 1, .most = 1e5,
         .default_text = "28 for lenet and mlp, else 32"},
        {"num-classes", "N", CLI_INT, &b.num_classes, "outputs of the network", .least = 1, .most = 1e6},
        {"dtype", "TYPE", CLI_CHOICE, &b.dtype, "numbers to compute with", .choices = dtypes},
        {"steps", "N", CLI_INT, &b.steps, "steps to time", .least = 1, .most = 1e7,
         .default_text = "what fits in --seconds, at least 10"},
        {"seconds", "X", CLI_REAL, &b.seconds, .help = "how long to measure"},
        {"json", NULL, CLI_FLAG, &b.json, .help = "print one JSON object"},
        {0},
    };
    const cli_verb verb = {
        "yoke bench step", "Measures one training step: forward, backward, optimizer.",
        "Under `yoke run` the step is data-parallel; images/s in JSON are of all processes together.\n", examples,
        .options = options};
    int code;
    if (!cli_parse(&verb, argc, argv, &code))
        return code;
    if (b.image_size == 0)
        b.image_size = strcmp(b.model, "lenet") == 0 || strcmp(b.model, "mlp") == 0 ? 28 : 32;
    work w = {0};
    double *times = NULL;
    int64_t count = 0;
    yk_scope program = yk_scope_begin();
    if (ranks_join(&w.ranks))
        return cli_failed();
    if (check_alike(&b, &w) || prepare(&b, &w) || measure(&b, &w, &times, &count) || report(&b, &w, times, count)) {
        free(times);
        return ranks_failed(&w.ranks);
    }
    free(times);
    ranks_leave(&w.ranks);
    yk_scope_end(program);
    return EXIT_DONE;
}
