/*
 * bench_data_parallel.c - `yoke bench data-parallel`: training steps on more and more devices of one process, with the
 * memory of each device and the loss. Layer: cli.
 *
 * Every number of devices trains the same network from the same start on the same batches, which lie in memory before
 * the clock starts: the built-in glyphs for networks of grey images, else made-up images whose labels stay the same.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include <yoke/data.h>
#include <yoke/optim.h>
#include <yoke/parallel.h>

#include "base/core.h"
#include "cli/bench/bench.h"
#include "cli/options.h"

/* Sizes of arrays: counts of devices in one run; batches kept in memory, over which the steps go; losses. */
enum { MOST_COUNTS = 16, MOST_BATCHES = 256, LOSSES = 100 };

typedef struct bench {
    const char *model, *devices;
    int64_t batch_size, steps, image_size, num_classes, threads;
    double lr;
    bool no_gather, json;
    int counts[MOST_COUNTS], n_counts, most;
    bool grey;
    int n_batches;
    yk_tensor *inputs[MOST_BATCHES], *targets[MOST_BATCHES];
} bench;

/* A number of devices; 0 for anything else. Moves *at past it. */
static int read_count(const char **at)
{
    char *end;
    if (**at < '0' || **at > '9') /* strtol also takes spaces and signs */
        return 0;
    long n = strtol(*at, &end, 10);
    *at = end;
    return n >= 1 && n <= 64 ? (int)n : 0;
}

/* Reads a list of counts: "1,2,4", and "1..5" for 1 to 5. */
static bool read_counts(bench *b)
{
    const char *at = b->devices;
    do {
        int first = read_count(&at), last = first;
        if (strncmp(at, "..", 2) == 0) {
            at += 2;
            last = read_count(&at);
        }
        if (!first || last < first || last - first >= MOST_COUNTS - b->n_counts)
            return false;
        for (int n = first; n <= last; n++)
            b->counts[b->n_counts++] = n;
        b->most = last > b->most ? last : b->most;
    } while (*at++ == ',');
    return at[-1] == '\0';
}

static yk_status load_glyphs(bench *b)
{
    yk_dataset *set = yk_dataset_open("glyphs", YK_TRAIN, yk_default_transform("glyphs", YK_TRAIN, false));
    yk_loader *loader = yk_loader_create(
        set, YK_OPTIONS(yk_loader_options, .batch_size = (int)b->batch_size, .shuffle = true, .drop_last = true));
    yk_batch batch;
    while (loader && b->n_batches < MOST_BATCHES && b->n_batches < b->steps && yk_loader_next(loader, &batch)) {
        b->inputs[b->n_batches] = yk_clone(batch.input);
        b->targets[b->n_batches] = yk_clone(batch.target);
        b->n_batches++;
    }
    return yk__error_code();
}

static yk_status make_batches(bench *b)
{
    int64_t channels = b->grey ? 1 : 3, floats = b->batch_size * channels * b->image_size * b->image_size;
    int64_t fit = ((int64_t)1 << 26) / floats; /* 256 MiB of images */
    int n = fit < 4 ? 4 : fit > MOST_BATCHES ? MOST_BATCHES : (int)fit;
    for (b->n_batches = 0; b->n_batches < n && b->n_batches < b->steps; b->n_batches++) {
        b->inputs[b->n_batches] = yk_randn(YK_SHAPE(b->batch_size, channels, b->image_size, b->image_size), NULL);
        b->targets[b->n_batches] = yk_randint(0, b->num_classes, YK_SHAPE(b->batch_size), NULL);
        if (!b->targets[b->n_batches])
            return yk__error_code();
    }
    return YK_OK;
}

/* ---- one number of devices --------------------------------------------------------------------------------------- */

typedef struct run {
    int count;
    double per_second, loss;
    yk_device_times times[64];
} run;

static yk_tensor *criterion(yk_tensor *output, yk_tensor *target, void *user)
{
    (void)user;
    return yk_cross_entropy(output, target, NULL);
}

static yk_tensor *loss_of(const bench *b, yk_module *model, int count, int i)
{
    yk_tensor *input = b->inputs[i], *outputs[64];
    if (!b->no_gather || count == 1)
        return yk_cross_entropy(yk_forward(model, input), b->targets[i], NULL);
    if (yk_forward_list(model, &input, 1, outputs, count))
        return NULL;
    return yk_data_parallel_criterion(model, outputs, count, b->targets[i], criterion, NULL, YK_REDUCE_MEAN);
}

static yk_status one_step(const bench *b, yk_module *model, yk_optimizer *optimizer, int count, int64_t step,
                          double *loss)
{
    yk_scope scope = yk_scope_begin();
    yk_optimizer_zero_grad(optimizer);
    yk_tensor *l = loss_of(b, model, count, (int)(step % b->n_batches));
    yk_status status = l ? yk_backward(l) : yk__error_code();
    if (!status)
        status = yk_optimizer_step(optimizer);
    if (!status && loss)
        *loss = yk_item(l);
    yk_scope_end(scope);
    return status ? status : yk__error_code();
}

static yk_status train(const bench *b, run *r, double *times)
{
    yk_manual_seed(1);
    yk_device devices[64];
    for (int i = 0; i < r->count; i++)
        devices[i] = (yk_device){YK_CPU, (int16_t)i};
    yk_module *net = yk_model(b->model, YK_OPTIONS(yk_model_options, .in_channels = b->grey ? 1 : 3,
                                                   .image_size = b->image_size, .num_classes = b->num_classes));
    yk_module *model = yk_data_parallel(net, YK_OPTIONS(yk_data_parallel_options, .devices = devices, .count = r->count,
                                                        .gather = !b->no_gather || r->count == 1));
    yk_optimizer *optimizer =
        yk_sgd(yk_module_parameters(model), YK_OPTIONS(yk_sgd_options, .lr = b->lr, .momentum = 0.9));
    if (!optimizer)
        return yk__error_code();
    double loss = 0;
    int64_t last = b->steps < LOSSES ? b->steps : LOSSES;
    for (int64_t step = 0; step < b->steps; step++) {
        if (step == 1) /* the first makes replicas and threads */
            yk_data_parallel_report_reset(model);
        bool counts = step >= b->steps - last;
        double began = yk__now(), now = 0;
        if (one_step(b, model, optimizer, r->count, step, counts ? &now : NULL))
            return yk__error_code();
        times[step] = yk__now() - began;
        loss += now;
    }
    r->loss = loss / (double)last;
    r->per_second = 1 / bench_median(times, b->steps);
    return yk_data_parallel_report(model, r->times);
}

static double peak_mb(const run *r, int device)
{
    return (double)r->times[device].peak_memory / (1 << 20);
}

static yk_status print_json(const run *r)
{
    json_t *memory = json_array();
    int failed = memory == NULL;
    for (int i = 0; i < r->count && !failed; i++)
        failed = json_array_append_new(memory, yk__json_fixed(peak_mb(r, i), 2));
    if (failed) {
        json_decref(memory);
        memory = NULL;
    }
    return bench_print_json(json_pack("{s:i,s:o,s:o,s:o}", "devices", r->count, "iterations_per_second",
                                      yk__json_number(r->per_second, BENCH_DIGITS), "loss",
                                      yk__json_number(r->loss, BENCH_DIGITS), "peak_memory_mb", memory));
}

static yk_status print(const bench *b, const run *r)
{
    if (b->json)
        return print_json(r);
    printf("%7d  %10" PRId64 "  %9.2f  %8.4f  ", r->count, b->steps, r->per_second, r->loss);
    for (int i = 0; i < r->count; i++)
        printf("%s%.1f", i == 0 ? "" : " ", peak_mb(r, i));
    printf("\n");
    fflush(stdout);
    return YK_OK;
}

/* A number of devices that cannot be used has a row, too. */
static yk_status print_failure(const bench *b, int count, const yk_error *error)
{
    if (b->json)
        return bench_print_json(
            json_pack("{s:i,s:o}", "devices", count, "error", yk__json_text(error->message, strlen(error->message))));
    printf("%7d  %s\n", count, error->message);
    fflush(stdout);
    return YK_OK;
}

static yk_status run_one(const bench *b, int count, double *times)
{
    run r = {.count = count};
    yk_scope scope = yk_scope_begin();
    yk_status status = yk_device_count(YK_CPU) < count
                           ? yk__fail(YK_ERR_DEVICE,
                                      "there are %d CPU devices, and %d were asked for: YOKE_CPU_DEVICES "
                                      "sets how many",
                                      yk_device_count(YK_CPU), count)
                           : train(b, &r, times);
    yk_scope_end(scope);
    return status ? status : print(b, &r);
}

static yk_status run_all(bench *b)
{
    double *times = yk__calloc((size_t)b->steps, sizeof(*times));
    if (!times)
        return YK_ERR_MEMORY;
    yk_status status = YK_OK;
    for (int i = 0; !status && b->threads && i < b->most && i < yk_device_count(YK_CPU); i++)
        status = yk_set_num_threads((yk_device){YK_CPU, (int16_t)i}, (int)b->threads);
    if (!status)
        status = b->grey && b->image_size == 28 && b->num_classes == 10 ? load_glyphs(b) : make_batches(b);
    if (!status && !b->json)
        printf("%s, batch %" PRId64 ", %d thread%s a device\n"
               "devices  iterations       it/s      loss  peak memory of each device, MiB\n",
               b->model, b->batch_size, yk_get_num_threads((yk_device){0}),
               yk_get_num_threads((yk_device){0}) == 1 ? "" : "s");
    yk_error first = {0}, error;
    for (int i = 0; !status && i < b->n_counts; i++) {
        if (!run_one(b, b->counts[i], times))
            continue;
        yk__error_take(&error);
        first = first.code ? first : error;
        status = print_failure(b, b->counts[i], &error);
    }
    yk__error_put(&first);
    free(times);
    return yk__error_code();
}

static const char examples[] = "  yoke bench data-parallel --model lenet --devices 1..5 \\\n"
                               "      --batch-size 4 --steps 15000\n"
                               "  yoke bench data-parallel --model resnet18 --devices 1,2 \\\n"
                               "      --batch-size 256 --steps 20\n";

int cli_bench_data_parallel(int argc, char **argv)
{
    static bench b = {
        .model = "lenet", .devices = "1,2", .batch_size = 4, .steps = 1000, .num_classes = 10, .lr = 0.001};
    const cli_option options[] = {
        {"model", "NAME", CLI_CHOICE, &b.model, "the network", .choices = yk_model_names()},
        {"devices", "LIST", CLI_TEXT, &b.devices, .help = "how many devices, one after the other: 1,2,4 or 1..5"},
        {"batch-size", "N", CLI_INT, &b.batch_size, "images per step, of all devices together", .least = 1,
         .most = 1e6},
        {"steps", "N", CLI_INT, &b.steps, "steps on each number of devices", .least = 2, .most = 1e7},
        {"image-size", "N", CLI_INT, &b.image_size, "height and width", .least = 1, .most = 1e5,
         .default_text = "28 for lenet and mlp, else 32"},
        {"num-classes", "N", CLI_INT, &b.num_classes, "outputs of the network", .least = 1, .most = 1e6},
        {"threads", "N", CLI_INT, &b.threads, "threads of each device", .least = 1, .most = 1024,
         .default_text = "the cores divided by the devices"},
        {"lr", "X", CLI_REAL, &b.lr, "learning rate of SGD", .least = 1e-12, .most = 1e12},
        {"no-gather", NULL, CLI_FLAG, &b.no_gather, .help = "the outputs stay on their devices, and so does the loss"},
        {"json", NULL, CLI_FLAG, &b.json, .help = "print one JSON object for each number of devices"},
        {0},
    };
    const cli_verb verb = {
        "yoke bench data-parallel", "Measures training steps on several devices of one process.",
        "The devices are logical ones of the CPU: as many as the list needs, each with its share of "
        "the\ncores, also where fewer of them are used. The rate is that of the median step, the loss "
        "the mean of\nthe last 100 steps.\n",
        examples, .options = options};
    int code;
    if (!cli_parse(&verb, argc, argv, &code))
        return code;
    if (!read_counts(&b))
        return cli_usage_error(&verb, "--devices %s: expected numbers from 1 to 64 with commas or .. between",
                               b.devices);
    b.grey = strcmp(b.model, "lenet") == 0 || strcmp(b.model, "mlp") == 0;
    if (b.image_size == 0)
        b.image_size = b.grey ? 28 : 32;
    char count[16];
    snprintf(count, sizeof(count), "%d", b.most);
    setenv("YOKE_CPU_DEVICES", count, 0); /* read when the library first asks for a device */
    yk_scope program = yk_scope_begin();
    yk_status status = run_all(&b);
    code = status ? cli_failed() : EXIT_DONE;
    yk_scope_end(program);
    return code;
}
