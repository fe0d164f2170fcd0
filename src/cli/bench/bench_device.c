/*
 * bench_device.c - `yoke bench device`: how fast a device is at what all of training is made of: copies to it, from it,
 * within it and to the devices beside it, and matrix products. Layer: cli.
 *
 * A rate is what a program gets through the public functions, so tensors in the host's memory are pageable ones. It is
 * the middle of several rounds, each of which ends with a wait for the device.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <yoke/ops.h>

#include "base/core.h"
#include "cli/bench/bench.h"
#include "cli/options.h"

enum { ROUNDS = 5, MOST_DEVICES = 64, MIB = 1 << 20 };

typedef struct bench {
    const char *device;
    int64_t megabytes, size;
    double seconds;
    bool json;
} bench;

/* A measurement; `run` does it once. Tensors that it makes are in its own scope. */
typedef struct row {
    const char *name, *dtype;
    yk_status (*run)(struct row *row);
    yk_device device;
    yk_tensor *a, *b;
    float *host;
    double work; /* bytes or operations of a run */
    bool product;
} row;

static yk_status from_host(row *r)
{
    return yk_to(r->b, r->device) ? YK_OK : yk__error_code();
}

static yk_status to_host(row *r)
{
    return yk_tensor_read(r->a, r->host, (size_t)r->work);
}

static yk_status within(row *r)
{
    return yk_copy_(r->a, r->b) ? YK_OK : yk__error_code();
}

static yk_status product(row *r)
{
    return yk_matmul(r->a, r->b) ? YK_OK : yk__error_code();
}

/* The seconds of a run, `count` of which are queued and waited for. */
static yk_status round_of(row *r, int64_t count, double *seconds)
{
    double start = yk__now();
    for (int64_t i = 0; i < count; i++) {
        yk_scope scope = yk_scope_begin();
        yk_status status = r->run(r);
        yk_scope_end(scope);
        if (status)
            return status;
    }
    yk_status status = yk_device_synchronize(r->device);
    *seconds = (yk__now() - start) / (double)count;
    return status;
}

static yk_status measure(const bench *b, row *r)
{
    double once, times[ROUNDS];
    char device[16];
    if (round_of(r, 1, &once) || round_of(r, 1, &once))
        return yk__error_code();
    int64_t count = bench_count(b->seconds / ROUNDS / once, 1, 100000);
    for (int i = 0; i < ROUNDS; i++) {
        if (round_of(r, count, &times[i]))
            return yk__error_code();
    }
    double rate = r->work / bench_median(times, ROUNDS) * (r->product ? 1e-12 : 1e-9);
    yk_device_format(r->device, device);
    if (b->json)
        return bench_print_json(json_pack("{s:s,s:s,s:s,s:s,s:o,s:s}", "subject", "device", "device", device, "row",
                                          r->name, "dtype", r->dtype, "rate", yk__json_number(rate, BENCH_DIGITS),
                                          "unit", r->product ? "TFLOP/s" : "GB/s"));
    printf("%-8s %-22s %-9s %10.3f %s\n", device, r->name, r->dtype, rate, r->product ? "TFLOP/s" : "GB/s");
    fflush(stdout);
    return YK_OK;
}

static yk_status measure_copies(const bench *b, yk_device device, const yk_device *others, int count)
{
    int64_t n = b->megabytes * (MIB / 4);
    double bytes = 4 * (double)n;
    float *host = yk__calloc((size_t)n, sizeof(*host));
    if (!host)
        return YK_ERR_MEMORY;
    yk_tensor *on_host = yk_randn(YK_SHAPE(n), NULL);
    yk_tensor *a = yk_to(on_host, device), *c = a ? yk_clone(a) : NULL;
    row rows[] = {
        {"from the host", "float32", from_host, device, a, on_host, host, bytes, false},
        {"to the host", "float32", to_host, device, a, c, host, bytes, false},
        {"copy, read and written", "float32", within, device, a, c, host, 2 * bytes, false},
    };
    yk_status status = c ? YK_OK : yk__error_code();
    for (int i = device.type == YK_CPU ? 2 : 0; i < 3 && !status; i++)
        status = measure(b, &rows[i]);
    for (int i = 0; i < count && !status; i++) {
        char name[32] = "from ";
        if (yk_device_equal(others[i], device) || device.type == YK_CPU)
            continue;
        yk_device_format(others[i], name + strlen(name));
        row r = {name, "float32", from_host, device, a, yk_to(on_host, others[i]), host, bytes, false};
        status = r.b ? measure(b, &r) : yk__error_code();
    }
    free(host);
    return status;
}

static yk_status measure_products(const bench *b, yk_device device)
{
    static const yk_dtype dtypes[] = {YK_F32, YK_BF16, YK_F16, YK_F64};
    for (int i = 0; i < 4; i++) {
        yk_scope scope = yk_scope_begin();
        yk_tensor_options options = *YK_OPTIONS(yk_tensor_options, .dtype = dtypes[i], .device = device);
        row r = {.name = "matrix product", .dtype = yk_dtype_name(dtypes[i]), .run = product, .device = device};
        r.a = yk_randn(YK_SHAPE(b->size, b->size), &options);
        r.b = yk_randn(YK_SHAPE(b->size, b->size), &options);
        r.product = true;
        r.work = 2 * (double)b->size * (double)b->size * (double)b->size;
        yk_status status = r.a && r.b ? measure(b, &r) : yk__error_code();
        yk_scope_end(scope);
        if (status)
            return status;
    }
    return YK_OK;
}

static yk_status find_devices(const bench *b, yk_device devices[MOST_DEVICES], int *count)
{
    *count = 1;
    devices[0] = (yk_device){0};
    bool all = strcmp(b->device, "all") == 0;
    if (all && yk_device_count(YK_CUDA) > 0) {
        *count = yk_device_count(YK_CUDA) < MOST_DEVICES ? yk_device_count(YK_CUDA) : MOST_DEVICES;
        for (int i = 0; i < *count; i++)
            devices[i] = (yk_device){YK_CUDA, (int16_t)i};
    }
    return all ? YK_OK : yk_device_parse(b->device, &devices[0]);
}

static yk_status measure_devices(const bench *b, const yk_device *devices, int count)
{
    for (int i = 0; i < count; i++) {
        yk_scope scope = yk_scope_begin();
        yk_status status = measure_copies(b, devices[i], devices, count);
        if (!status)
            status = measure_products(b, devices[i]);
        yk_scope_end(scope);
        if (status)
            return status;
    }
    return YK_OK;
}

static const char examples[] = "  yoke bench device\n"
                               "  yoke bench device --device cuda:1 --size 8192 --json\n"
                               "  YOKE_CUDA_TF32=1 yoke bench device --device cuda\n";

int cli_bench_device(int argc, char **argv)
{
    bench b = {.device = "all", .megabytes = 256, .size = 4096, .seconds = 0.5};
    const cli_option options[] = {
        {"device", "NAME", CLI_TEXT, &b.device,
         .help = "cpu, cuda:1, ...; all: every GPU, or the CPU where there is none"},
        {"megabytes", "N", CLI_INT, &b.megabytes, "MiB that are copied", .least = 1, .most = 1 << 16},
        {"size", "N", CLI_INT, &b.size, "rows and columns of the products' matrices", .least = 1, .most = 1 << 16},
        {"seconds", "X", CLI_REAL, &b.seconds, .help = "how long to measure a row"},
        {"json", NULL, CLI_FLAG, &b.json, .help = "print a JSON object for each row"},
        {0},
    };
    const cli_verb verb = {"yoke bench device", "Measures copies and matrix products of devices.",
                           "What GPUs there are, who holds them, and how they are linked: yoke doctor.\n", examples,
                           .options = options};
    int code;
    if (!cli_parse(&verb, argc, argv, &code))
        return code;
    yk_scope program = yk_scope_begin();
    yk_device devices[MOST_DEVICES];
    int count;
    yk_status found = find_devices(&b, devices, &count);
    code = found ? cli_not_found(found) : measure_devices(&b, devices, count) ? cli_failed() : EXIT_DONE;
    yk_scope_end(program);
    return code;
}
