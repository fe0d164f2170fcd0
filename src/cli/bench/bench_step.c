/*
 * bench_step.c - `yoke bench step`: the time of one training step on made-up images. Layer: cli.
 *
 * In a job of several processes it is a data-parallel step, each process with a batch of its own; a step is as long as
 * the slowest process makes it.
 *
 * What is timed is what bench/peer_step.py times in PyTorch: drop the gradients, forward, cross-entropy, backward, SGD.
 * On a CPU each step is timed. On a GPU, where a step is queued and done later, steps are timed by rounds, each of
 * which ends with a wait for the device; how long the host takes to queue a step is timed beside that.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yoke/optim.h>
#include <yoke/parallel.h>

#include "base/core.h"
#include "cli/bench/bench.h"
#include "cli/options.h"
#include "cli/ranks.h"
#include "comm/agreement.h"

typedef struct bench {
    const char *model, *dtype, *precision, *device;
    int64_t batch_size, accumulate, threads, image_size, num_classes, steps;
    double seconds;
    bool channels_last, record, json;
} bench;

typedef struct work {
    ranks ranks;
    yk_device device;
    yk_dtype lower; /* of products and convolutions */
    yk_module *model;
    yk_optimizer *optimizer;
    yk_tensor *input, *target;
    int64_t accumulate;
    yk_graph *graph; /* NULL: steps are not recorded */
} work;

/* The measured times; steps: of all rounds. */
typedef struct figures {
    double *rounds; /* seconds of a step, the mean of each round */
    int64_t count, steps;
    double median, fastest;
    double host; /* seconds until a step is queued; 0 on a CPU */
} figures;

/* Forward and backward of one of the batches that a step accumulates. */
static yk_status one_backward(work *w)
{
    yk_scope scope = yk_scope_begin();
    yk_autocast_options options =
        *YK_OPTIONS(yk_autocast_options, .enabled = w->lower != (yk_dtype)yk_tensor_dtype(w->input));
    yk_autocast before = yk_autocast_begin((yk_device_type)w->device.type, w->lower, &options);
    yk_tensor *loss = yk_cross_entropy(yk_forward(w->model, w->input), w->target, NULL);
    yk_autocast_end(before);
    if (w->accumulate > 1)
        loss = yk_mul_scalar(loss, 1 / (double)w->accumulate);
    yk_status status = loss ? yk_backward(loss) : yk__error_code();
    yk_scope_end(scope);
    return status;
}

static yk_status plain_step(void *user)
{
    work *w = user;
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

static yk_status one_step(work *w)
{
    return w->graph ? yk_graph_run(w->graph) : plain_step(w);
}

/* Each command line was typed on its own host, and the processes are to make equal steps, equally many. */
static yk_status check_alike(const bench *b, const work *w)
{
    char lines[RANKS_LINES], steps[32] = "no --steps";
    if (b->steps)
        snprintf(steps, sizeof(steps), "--steps %" PRId64, b->steps);
    snprintf(lines, sizeof(lines),
             "--model %s\n--batch-size %" PRId64 "\n--accumulate %" PRId64 "\n--image-size %" PRId64
             "\n--num-classes %" PRId64
             "\n--dtype %s\n--precision %s\n%s\n--seconds %g\n%s as its --device\n%s--record\n",
             b->model, b->batch_size, b->accumulate, b->image_size, b->num_classes, b->dtype, b->precision, steps,
             b->seconds, w->device.type == YK_CPU ? "a CPU" : "a GPU", b->record ? "" : "no ");
    return ranks_compare(&w->ranks, lines);
}

/* Made-up images (N,C,H,W), as they lie in memory or with their channels last. */
static yk_tensor *images(const bench *b, int64_t channels, const yk_tensor_options *options)
{
    if (!b->channels_last)
        return yk_randn(YK_SHAPE(b->batch_size, channels, b->image_size, b->image_size), options);
    return yk_permute(yk_randn(YK_SHAPE(b->batch_size, b->image_size, b->image_size, channels), options),
                      (const int[]){0, 3, 1, 2});
}

static yk_status step_work_prepare(const bench *b, work *w)
{
    bool grey = strcmp(b->model, "lenet") == 0 || strcmp(b->model, "mlp") == 0;
    int64_t channels = grey ? 1 : 3;
    yk_tensor_options floats = *YK_OPTIONS(yk_tensor_options);
    if (yk_dtype_parse(b->dtype, &floats.dtype) ||
        yk_set_num_threads(w->device.type == YK_CPU ? w->device : (yk_device){0}, (int)b->threads))
        return yk__error_code();
    floats.device = w->device;
    w->lower = strcmp(b->precision, "bf16") == 0 ? YK_BF16 : strcmp(b->precision, "fp16") == 0 ? YK_F16 : floats.dtype;
    w->model = yk_model(b->model, YK_OPTIONS(yk_model_options, .in_channels = channels, .image_size = b->image_size,
                                             .num_classes = b->num_classes));
    w->model = yk_ddp(yk_module_to(yk_module_to_dtype(w->model, floats.dtype), w->device), NULL);
    w->optimizer = yk_sgd(yk_module_parameters(w->model),
                          YK_OPTIONS(yk_sgd_options, .lr = 0.001, .momentum = 0.9, .weight_decay = 1e-5));
    w->accumulate = b->accumulate;
    w->input = images(b, channels, &floats);
    w->target = yk_randint(0, b->num_classes, YK_SHAPE(b->batch_size),
                           YK_OPTIONS(yk_tensor_options, .dtype = YK_I64, .device = w->device));
    if (b->record)
        w->graph = yk_graph_create(w->device, 0, plain_step, w);
    return yk__error_code();
}

/* The largest of the ranks' numbers, on all of them: they make equally many steps. */
static yk_status largest(const work *w, double *number)
{
    if (w->ranks.world == 1)
        return YK_OK;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_scalar(*number, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    yk_status status = YK__HOST_TENSORS(yk_all_reduce(x, YK_OP_MAX, NULL));
    if (!status)
        *number = yk_item(x);
    yk_scope_end(scope);
    return status;
}

/* The mean seconds of `steps` steps, which are done when it returns. */
static yk_status one_round(work *w, int64_t steps, double *seconds)
{
    double start = yk__now();
    for (int64_t i = 0; i < steps; i++) {
        if (one_step(w))
            return yk__error_code();
    }
    yk_status status = yk_device_synchronize(w->device);
    *seconds = (yk__now() - start) / (double)steps;
    return status;
}

/* Measures the seconds for which a step keeps the host where the device computes by itself: the median of some steps
 * that begin with nothing queued. */
static yk_status measure_host(work *w, double *host)
{
    enum { TIMES = 21 };
    double times[TIMES];
    for (int i = 0; i < TIMES; i++) {
        double start = yk__now();
        if (one_step(w))
            return yk__error_code();
        times[i] = yk__now() - start;
        if (yk_device_synchronize(w->device))
            return yk__error_code();
    }
    *host = bench_median(times, TIMES);
    return YK_OK;
}

/* Steps that tell how many fit into the time; a tenth as many again warm up. The list of rounds is freed by the caller.
 * RECORDED: steps until a recording is replayed. ROUND: seconds of a round on a GPU, at least, so that the wait at its
 * end is a small part. */
static yk_status measure(const bench *b, work *w, figures *f)
{
    enum { RECORDED = 5 };
    static const double ROUND = 0.02;
    double once = 0;
    if ((w->graph && one_round(w, RECORDED, &once)) || one_round(w, 2, &once) || largest(w, &once))
        return yk__error_code();
    int64_t steps = b->steps ? b->steps : bench_count(b->seconds / once, 10, 100000);
    int64_t each = w->device.type == YK_CPU ? 1 : bench_count(ROUND / once, 1, (steps + 4) / 5);
    f->count = (steps + each - 1) / each;
    f->steps = f->count * each;
    if (w->device.type != YK_CPU) { /* the peaks are those of steps, and not of what was tried before them */
        yk_device_empty_cache(w->device);
        yk_device_reset_peak_memory(w->device);
    }
    if (one_round(w, steps / 10 + 1, &once))
        return yk__error_code();
    f->rounds = yk__calloc((size_t)f->count, sizeof(*f->rounds));
    if (!f->rounds)
        return YK_ERR_MEMORY;
    if (w->ranks.world > 1)
        yk_ddp_report_reset(w->model);
    for (int64_t i = 0; i < f->count; i++) {
        if (one_round(w, each, &f->rounds[i]))
            return yk__error_code();
    }
    return w->device.type == YK_CPU ? YK_OK : measure_host(w, &f->host);
}

static yk_status print_json(const bench *b, const work *w, const figures *f, double rate, double exposed,
                            const yk_memory_info *tensors)
{
    char device[16];
    double mib = 1 << 20;
    json_t *row = json_pack(
        "{s:s,s:s,s:I,s:I,s:I,s:I,s:s,s:I,s:o,s:o,s:o,s:o,s:o,s:I,s:i,s:o}", "subject", "step", "model", b->model,
        "batch_size", (json_int_t)b->batch_size, "threads", (json_int_t)b->threads, "image_size",
        (json_int_t)b->image_size, "num_classes", (json_int_t)b->num_classes, "dtype", b->dtype, "steps",
        (json_int_t)f->steps, "step_ms_median", yk__json_number(f->median * 1e3, BENCH_TIME_DIGITS), "step_ms_min",
        yk__json_number(f->fastest * 1e3, BENCH_TIME_DIGITS), "images_per_second", yk__json_number(rate, BENCH_DIGITS),
        "peak_rss_mb", yk__json_fixed(bench_peak_rss_mb(), 1), "peak_memory_mb",
        yk__json_fixed((double)tensors->peak_allocated / mib, 2), "accumulate", (json_int_t)b->accumulate, "world_size",
        w->ranks.world, "exposed_ms", yk__json_number(exposed * 1e3, BENCH_TIME_DIGITS));
    json_t *more =
        json_pack("{s:s,s:s,s:b,s:b,s:o,s:o}", "device", yk_device_format(w->device, device), "precision", b->precision,
                  "channels_last", b->channels_last, "recorded", w->graph && !yk_graph_get_info(w->graph).why_not,
                  "host_us_median", yk__json_number(f->host * 1e6, BENCH_TIME_DIGITS), "peak_reserved_mb",
                  yk__json_fixed((double)tensors->peak_reserved / mib, 2));
    if (w->graph && yk_graph_get_info(w->graph).why_not)
        json_object_set_new(more, "why_not_recorded", json_string(yk_graph_get_info(w->graph).why_not));
    bool joined = json_object_update(row, more) == 0;
    json_decref(more);
    if (!joined) {
        json_decref(row);
        row = NULL;
    }
    return bench_print_json(row);
}

static void print_text(const bench *b, const work *w, const figures *f, double rate, const yk_memory_info *tensors)
{
    char device[16], threads[48] = "";
    bool cpu = w->device.type == YK_CPU;
    if (cpu)
        snprintf(threads, sizeof(threads), "%" PRId64 " thread%s", b->threads, b->threads == 1 ? "" : "s");
    printf("%s, batch %" PRId64 " of %" PRId64 "x%" PRId64 ", %s%s%s, %s: %.3f ms a step (median of %" PRId64
           ", fastest %.3f), %.0f images/s, peak memory %.0f MB\n",
           b->model, b->batch_size, b->image_size, b->image_size, b->dtype, strcmp(b->precision, "fp32") ? ", " : "",
           strcmp(b->precision, "fp32") ? b->precision : "", cpu ? threads : yk_device_format(w->device, device),
           f->median * 1e3, cpu ? f->steps : f->count, f->fastest * 1e3, rate / w->ranks.world,
           cpu ? bench_peak_rss_mb() : (double)tensors->peak_allocated / (1 << 20));
    if (!cpu)
        printf("the host is kept for %.1f us by a step\n", f->host * 1e6);
    if (w->graph && yk_graph_get_info(w->graph).why_not)
        printf("steps were not recorded: %s\n", yk_graph_get_info(w->graph).why_not);
}

/* Prints the figures of all processes on rank 0's stdout. */
static yk_status report(const bench *b, work *w, figures *f)
{
    int world = w->ranks.world;
    f->median = bench_median(f->rounds, f->count);
    f->fastest = f->rounds[0];
    double exposed = 0;
    yk_ddp_times *each = world > 1 ? yk__calloc((size_t)world, sizeof(*each)) : NULL;
    if (largest(w, &f->median) || largest(w, &f->fastest) || (world > 1 && (!each || yk_ddp_report(w->model, each)))) {
        free(each);
        return yk__error_code();
    }
    for (int i = 0; each && i < world; i++)
        exposed = each[i].exposed > exposed ? each[i].exposed : exposed;
    double rate = (double)(world * b->accumulate * b->batch_size) / f->median;
    yk_memory_info tensors;
    yk_status status = yk_device_memory(w->device, &tensors);
    if (status) {
        free(each);
        return status;
    }
    if (w->ranks.rank == 0 && b->json) {
        status = print_json(b, w, f, rate, exposed, &tensors);
    } else if (w->ranks.rank == 0) {
        print_text(b, w, f, rate, &tensors);
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
                               "  yoke bench step --model resnet18-cifar --device cuda --precision bf16 --record\n"
                               "  yoke run -n 2 -- yoke bench step --model resnet18 --batch-size 128\n";

int cli_bench_step(int argc, char **argv)
{
    bench b = {.model = "resnet18",
               .dtype = "f32",
               .precision = "fp32",
               .device = "cpu",
               .batch_size = 32,
               .accumulate = 1,
               .threads = 1,
               .num_classes = 10,
               .seconds = 5};
    static const char *const dtypes[] = {"f32", "f64", NULL}, *const precisions[] = {"fp32", "bf16", "fp16", NULL};
    const cli_option options[] = {
        {"model", "NAME", CLI_CHOICE, &b.model, "the network", .choices = yk_model_names()},
        {"batch-size", "N", CLI_INT, &b.batch_size, "images per step, of each process", .least = 1, .most = 1e6},
        {"accumulate", "N", CLI_INT, &b.accumulate, "batches whose gradients a step adds up", .least = 1, .most = 1e6},
        {"threads", "N", CLI_INT, &b.threads, "threads of one operation", .least = 1, .most = 1024},
        {"image-size", "N", CLI_INT, &b.image_size, "height and width", .least = 1, .most = 1e5,
         .default_text = "28 for lenet and mlp, else 32"},
        {"num-classes", "N", CLI_INT, &b.num_classes, "outputs of the network", .least = 1, .most = 1e6},
        {"dtype", "TYPE", CLI_CHOICE, &b.dtype, "numbers to compute with", .choices = dtypes},
        {"precision", "NAME", CLI_CHOICE, &b.precision, "bf16, fp16: of products and convolutions; the rest is --dtype",
         .choices = precisions},
        {"device", "NAME", CLI_TEXT, &b.device, .help = "cpu, cuda, cuda:1, ...; auto: a GPU where there is one"},
        {"channels-last", NULL, CLI_FLAG, &b.channels_last, .help = "images lie with their channels last in memory"},
        {"record", NULL, CLI_FLAG, &b.record, .help = "steps on a GPU are recorded once and replayed (yk_graph)"},
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
    if (strcmp(b.precision, "fp32") != 0 && strcmp(b.dtype, "f32") != 0)
        return cli_usage_error(&verb, "--precision %s is for --dtype f32, not %s", b.precision, b.dtype);
    if (b.image_size == 0)
        b.image_size = strcmp(b.model, "lenet") == 0 || strcmp(b.model, "mlp") == 0 ? 28 : 32;
    work w = {0};
    figures f = {0};
    yk_scope program = yk_scope_begin();
    if (ranks_join(&w.ranks))
        return cli_failed();
    yk_status found = cli_device(b.device, &w.device);
    if (found || check_alike(&b, &w) || step_work_prepare(&b, &w) || measure(&b, &w, &f) || report(&b, &w, &f)) {
        free(f.rounds);
        code = ranks_failed(&w.ranks);
        return found ? cli_exit_code_of(found) : code;
    }
    free(f.rounds);
    ranks_leave(&w.ranks);
    yk_scope_end(program);
    return EXIT_DONE;
}
