/*
 * bench_loader.c - `yoke bench loader`: images per second through the default transforms of a data set. Layer: cli.
 *
 * One worker is measured inline: the caller makes the batches itself, so the figure is that of one thread. --resize
 * takes the transforms that networks for 224 x 224 are tested with in place of the default ones, --random-crop those
 * that they are trained with.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <yoke/data.h>

#include "base/core.h"
#include "cli/bench/bench.h"
#include "cli/options.h"

typedef struct bench {
    const char *data, *dtype;
    int64_t batch_size, workers, resize, crop, random_crop;
    double seconds;
    bool no_shuffle, json;
} bench;

static yk_transform *transform_of(const bench *b)
{
    if (!b->resize && !b->random_crop)
        return yk_default_transform(b->data, YK_TRAIN, true);
    /* ImageNet's */
    double mean[] = {0.485, 0.456, 0.406}, std[] = {0.229, 0.224, 0.225};
    if (b->random_crop)
        return yk_compose(yk_random_resized_crop(b->random_crop, NULL), yk_random_horizontal_flip(0.5), yk_to_tensor(),
                          yk_normalize(mean, std, 3));
    return yk_compose(yk_resize(b->resize), yk_center_crop(b->crop ? b->crop : b->resize), yk_to_tensor(),
                      yk_normalize(mean, std, 3));
}

/* Makes a loader of the data that the command line names. */
static yk_status bench_loader_make(const bench *b, yk_loader **loader)
{
    yk_dtype dtype;
    if (yk_dtype_parse(b->dtype, &dtype))
        return yk__error_code();
    yk_dataset *set = yk_dataset_open(b->data, YK_TRAIN, transform_of(b));
    *loader =
        yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = b->batch_size, .shuffle = !b->no_shuffle,
                                         .workers = b->workers > 1 ? (int)b->workers : 0, .dtype = dtype));
    return *loader ? YK_OK : yk__error_code();
}

/* Whole epochs, as many as fit into the time but at least three: the first one, which reads the files, does not count.
 * Writes images per second. */
static yk_status measure(const bench *b, yk_loader *loader, double *rate)
{
    enum { MOST_EPOCHS = 1000 };
    double rates[MOST_EPOCHS], begun = yk__now();
    int64_t count = 0;
    for (int64_t epoch = 0; count < 2 || (yk__now() - begun < b->seconds && count < MOST_EPOCHS); epoch++) {
        int64_t images = 0;
        double start = yk__now();
        yk_batch batch;
        for (yk_loader_start(loader, epoch); yk_loader_next(loader, &batch);)
            images += batch.count;
        if (yk_last_error())
            return yk__error_code();
        if (epoch > 0)
            rates[count++] = (double)images / (yk__now() - start);
    }
    *rate = bench_median(rates, count);
    return YK_OK;
}

static const char examples[] = "  yoke bench loader --data cifar10\n"
                               "  yoke bench loader --data cifar10:/data/cifar-10-batches-bin --workers 2 --json\n";

int cli_bench_loader(int argc, char **argv)
{
    bench b = {.data = "cifar10", .dtype = "f32", .batch_size = 256, .workers = 1, .seconds = 3};
    static const char *const dtypes[] = {"f32", "f64", NULL};
    const cli_option options[] = {
        {"data", "NAME[:DIR]", CLI_TEXT, &b.data, .help = "the data set, looked up under $YOKE_DATA"},
        {"workers", "N", CLI_INT, &b.workers, "threads that make batches", .least = 1, .most = 1024},
        {"threads", "N", CLI_INT, &b.workers, "the same", .least = 1, .most = 1024, .default_text = ""},
        {"batch-size", "N", CLI_INT, &b.batch_size, "images per batch", .least = 1, .most = 1e6},
        {"dtype", "TYPE", CLI_CHOICE, &b.dtype, "numbers to make", .choices = dtypes},
        {"resize", "N", CLI_INT, &b.resize, "side to resize to (shorter one), then the middle, in place of the default",
         .least = 1, .most = 1 << 16, .default_text = ""},
        {"crop", "N", CLI_INT, &b.crop, "side of that middle; default: that of --resize", .least = 1, .most = 1 << 16,
         .default_text = ""},
        {"random-crop", "N", CLI_INT, &b.random_crop,
         "side to which a random part is resized (RandomResizedCrop), and flipped or not, in place of the default",
         .least = 1, .most = 1 << 16, .default_text = ""},
        {"no-shuffle", NULL, CLI_FLAG, &b.no_shuffle, .help = "take the files' order"},
        {"seconds", "X", CLI_REAL, &b.seconds, .help = "how long to measure"},
        {"json", NULL, CLI_FLAG, &b.json, .help = "print one JSON object"},
        {0},
    };
    const cli_verb verb = {"yoke bench loader",
                           "Measures reading and transforming images (cifar10: crop, flip, normalise).", NULL, examples,
                           .options = options};
    int code;
    if (!cli_parse(&verb, argc, argv, &code))
        return code;
    if (b.crop && !b.resize)
        return cli_usage_error(&verb, "--crop needs --resize");
    if (b.random_crop && b.resize)
        return cli_usage_error(&verb, "--random-crop and --resize exclude each other");
    double rate = 0;
    yk_scope program = yk_scope_begin();
    yk_loader *loader = NULL;
    yk_status found = bench_loader_make(&b, &loader);
    code = found ? cli_not_found(found) : measure(&b, loader, &rate) ? cli_failed() : EXIT_DONE;
    yk_scope_end(program);
    if (code == EXIT_DONE && b.json)
        code = bench_print_json(json_pack("{s:s,s:o,s:I,s:I,s:s,s:o,s:o}", "subject", "loader", "data",
                                          yk__json_text(b.data, strcspn(b.data, ":")), "workers", (json_int_t)b.workers,
                                          "batch_size", (json_int_t)b.batch_size, "dtype", b.dtype, "images_per_second",
                                          yk__json_number(rate, BENCH_DIGITS), "peak_rss_mb",
                                          yk__json_fixed(bench_peak_rss_mb(), 1)))
                   ? cli_failed()
                   : EXIT_DONE;
    else if (code == EXIT_DONE)
        printf("%s, batch %" PRId64 ", %s, %" PRId64 " workers: %.0f images/s\n", b.data, b.batch_size, b.dtype,
               b.workers, rate);
    return code;
}
