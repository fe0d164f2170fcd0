/*
 * bench_allreduce.c - `yoke bench allreduce`: time and bandwidth of all_reduce between the ranks of a job. Layer: cli.
 *
 * A job of one process measures what the call costs. The buffers are written anew before every operation, so that no
 * rank finds in its caches what it would not find there in training, and every sum is checked. On GPUs a time is from
 * an idle device to an idle device.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yoke/comm.h>

#include "base/core.h"
#include "base/hash.h"
#include "cli/bench/bench.h"
#include "cli/options.h"
#include "comm/agreement.h"
#include "comm/group.h"

/* Sizes of arrays: sizes in one run; measurements of one size, however short it is. */
enum { MOST_SIZES = 64, MOST_REPEATS = 2000 };

typedef struct bench {
    const char *bytes, *backend, *device;
    yk_device on;
    double seconds;
    bool copies, json;
    int64_t sizes[MOST_SIZES];
    int count;
} bench;

/* Reads a list of sizes: "4,16K,46800000,128M". */
static bool read_sizes(bench *b)
{
    for (const char *at = b->bytes; *at;) {
        char *end;
        long long n = strtoll(at, &end, 10);
        int64_t unit = *end == 'K' ? 1 << 10 : *end == 'M' ? 1 << 20 : *end == 'G' ? 1 << 30 : 1;
        end += unit > 1;
        if (end == at || n < 1 || n > ((int64_t)1 << 40) / unit || n * unit % 4 || (*end && *end != ',') ||
            b->count == MOST_SIZES)
            return false;
        b->sizes[b->count++] = n * unit;
        at = *end ? end + 1 : end;
    }
    return b->count > 0;
}

/* Element i of a rank in round k: integers, whose sums are exact. */
static inline float value(int64_t i, int rank, int64_t k)
{
    return (float)((i + 3 * k) % 61 + rank);
}

/* The median of each rank's times, and the least: seconds[0] and [1]. The slowest rank counts, as it does in training.
 */
static yk_status measure(const bench *b, int64_t bytes, double seconds[2])
{
    int64_t n = bytes / 4, least = bytes >= (int64_t)4 << 20 ? 7 : 51;
    int rank = yk_rank(NULL), ranks = yk_world_size(NULL);
    double times[MOST_REPEATS];
    int64_t repeats = MOST_REPEATS;
    bool gpu = b->on.type == YK_CUDA;
    yk_tensor *host = b->copies || gpu ? yk_empty(1, &n, NULL) : yk_comm_alloc(1, &n, NULL);
    yk_tensor *x = gpu ? yk_empty(1, &n, YK_OPTIONS(yk_tensor_options, .device = b->on)) : host;
    yk_tensor *plan = yk_zeros(YK_SHAPE(2), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    float *p = x ? yk_tensor_data(host) : NULL;
    double *planned = yk_tensor_data(plan), begun = yk__now();
    if (!p || !planned)
        return yk__error_code();
    for (int64_t k = -3; k < repeats; k++) {
        for (int64_t i = 0; i < n; i++)
            p[i] = value(i, rank, k + 3);
        if ((gpu && (yk_tensor_write(x, p, (size_t)bytes) || yk_device_synchronize(b->on))) || yk_barrier(NULL))
            return yk__error_code();
        double start = yk__now();
        if (yk_all_reduce(x, YK_OP_SUM, NULL) || (gpu && yk_device_synchronize(b->on)))
            return yk__error_code();
        double end = yk__now();
        if (gpu && yk_tensor_read(x, p, (size_t)bytes))
            return yk__error_code();
        for (int64_t i = 0; i < n; i++) {
            float expected = (float)(ranks * ((i + 3 * (k + 3)) % 61) + ranks * (ranks - 1) / 2);
            if (p[i] != expected)
                return yk__fail(YK_ERR_INTERNAL, "all_reduce of %" PRId64 " bytes: element %" PRId64 " is %g, not %g",
                                bytes, i, (double)p[i], (double)expected);
        }
        if (k >= 0)
            times[k] = end - start;
        if (k == -1) { /* three warmed it up; as many as fit into the time, the same on all ranks */
            double each = (yk__now() - begun) / 3;
            *planned = (double)bench_count(b->seconds / each, least, MOST_REPEATS);
            if (YK__HOST_TENSORS(yk_all_reduce(plan, YK_OP_MIN, NULL)))
                return yk__error_code();
            repeats = (int64_t)*planned;
        }
    }
    planned[0] = bench_median(times, repeats);
    planned[1] = times[0]; /* they were sorted */
    if (YK__HOST_TENSORS(yk_all_reduce(plan, YK_OP_MAX, NULL)))
        return yk__error_code();
    memcpy(seconds, planned, 2 * sizeof(*seconds));
    return YK_OK;
}

/* The number of sets of ranks that share memory; 0 and an error on failure. */
static int count_hosts(void)
{
    int ranks = yk_world_size(NULL), hosts = 0;
    yk_scope scope = yk_scope_begin();
    const yk_tensor_options i64 = *YK_OPTIONS(yk_tensor_options, .dtype = YK_I64);
    yk_tensor *mine = yk_zeros(YK_SHAPE(1), &i64), *all = yk_zeros(YK_SHAPE(ranks), &i64);
    yk__group *g = yk__group_of("bench allreduce", NULL);
    if (mine && all && g)
        *(int64_t *)yk_tensor_data(mine) = (int64_t)yk__hash(YK__HASH_BASIS, g->host_id, strlen(g->host_id));
    if (mine && all && g && !YK__HOST_TENSORS(yk_all_gather(all, mine, NULL))) {
        const int64_t *ids = yk_tensor_data(all);
        for (int i = 0; i < ranks; i++) {
            int first = 0;
            while (ids[first] != ids[i])
                first++;
            hosts += first == i;
        }
    }
    yk_scope_end(scope);
    return hosts;
}

/* A description of the path of the bytes between ranks. */
static const char *describe_path(const bench *b, int hosts, char text[80])
{
    const char *backend = yk_process_group_backend(NULL);
    const char *memory = b->on.type == YK_CUDA ? "the host's pinned memory"
                         : b->copies           ? "private memory"
                                               : "shared memory";
    if (strcmp(backend, "native") != 0)
        snprintf(text, 80, "%s",
                 strcmp(backend, "nccl") == 0  ? "NCCL"
                 : strcmp(backend, "ucx") == 0 ? "UCX"
                                               : "Open MPI");
    else if (hosts == 1)
        snprintf(text, 80, "%s", memory);
    else if (hosts == yk_world_size(NULL))
        snprintf(text, 80, "TCP");
    else
        snprintf(text, 80, "%s on each of %d hosts, TCP between them", memory, hosts);
    return text;
}

static yk_status bench_run_sizes(const bench *b)
{
    if (yk_init_process_group(YK_OPTIONS(yk_init_options, .backend = b->backend)))
        return yk__error_code();
    if (b->on.type == YK_CPU && strcmp(yk_process_group_backend(NULL), "nccl") == 0)
        return yk__fail(YK_ERR_ARGUMENT, "NCCL moves tensors of GPUs alone: add --device cuda");
    int ranks = yk_world_size(NULL);
    bool first = yk_rank(NULL) == 0;
    int hosts = count_hosts();
    char path[80];
    if (hosts == 0)
        return yk__error_code();
    describe_path(b, hosts, path);
    if (first && !b->json)
        printf("all_reduce, %d rank%s, %s, %s, %s\n%14s %14s %12s %12s\n", ranks, ranks == 1 ? "" : "s",
               b->on.type == YK_CUDA ? "cuda" : "cpu", yk_process_group_backend(NULL), path, "bytes", "median us",
               "algbw GB/s", "busbw GB/s");
    for (int i = 0; i < b->count; i++) {
        yk_scope scope = yk_scope_begin();
        double times[2] = {0};
        yk_status status = measure(b, b->sizes[i], times);
        yk_scope_end(scope);
        if (status)
            return status;
        double seconds = times[0], algorithm = (double)b->sizes[i] / seconds / 1e9,
               bus = algorithm * 2 * (ranks - 1) / ranks;
        if (first && b->json)
            status = bench_print_json(json_pack(
                "{s:s,s:i,s:s,s:s,s:s,s:I,s:o,s:o,s:o,s:o}", "subject", "allreduce", "ranks", ranks, "device",
                b->on.type == YK_CUDA ? "cuda" : "cpu", "backend", yk_process_group_backend(NULL), "path", path,
                "bytes", (json_int_t)b->sizes[i], "time_us_median", yk__json_number(seconds * 1e6, BENCH_DIGITS),
                "time_us_least", yk__json_number(times[1] * 1e6, BENCH_DIGITS), "algbw_gbps",
                yk__json_number(algorithm, BENCH_DIGITS), "busbw_gbps", yk__json_number(bus, BENCH_DIGITS)));
        else if (first)
            printf("%14" PRId64 " %14.2f %12.3f %12.3f\n", b->sizes[i], seconds * 1e6, algorithm, bus);
        fflush(stdout);
        if (status)
            return status;
    }
    return YK_OK;
}

static const char about[] =
    "algbw is bytes / time; busbw is algbw * 2 (n - 1) / n for n ranks, what each would move at least over links of\n"
    "its own. The time is the median of the slowest rank. Buffers are rewritten before, and all sums checked after\n"
    "every operation. On GPUs it is from an idle device to an idle device, each rank's cuda:LOCAL_RANK. --private\n"
    "takes memory that other processes cannot map, as of an ordinary tensor.\n";
static const char examples[] = "  yoke run -n 2 -- yoke bench allreduce\n"
                               "  yoke run -n 2 -- yoke bench allreduce --bytes 4,16K,46800000 --json\n"
                               "  yoke run -n 8 -- yoke bench allreduce --device cuda --backend nccl\n";

int cli_bench_allreduce(int argc, char **argv)
{
    bench b = {.bytes = "4,64,1K,4K,16K,64K,256K,1M,4M,16M,46800000,128M", .device = "cpu", .seconds = 0.5};
    static const char *const backends[] = {"native", "mpi", "nccl", "ucx", NULL};
    const cli_option options[] = {
        {"bytes", "LIST", CLI_TEXT, &b.bytes, .help = "sizes of f32 buffers; K, M and G are powers of 1024"},
        {"backend", "NAME", CLI_CHOICE, &b.backend, "what moves the bytes", .choices = backends,
         .default_text = "$YOKE_COMM_BACKEND or native"},
        {"device", "NAME", CLI_TEXT, &b.device, .help = "cpu, cuda, cuda:1, ...; auto: a GPU where there is one"},
        {"private", NULL, CLI_FLAG, &b.copies, .help = "ordinary tensors in place of shared memory"},
        {"seconds", "X", CLI_REAL, &b.seconds, .help = "how long to measure each size"},
        {"json", NULL, CLI_FLAG, &b.json, .help = "print one JSON object a size"},
        {0},
    };
    const cli_verb verb = {.name = "yoke bench allreduce",
                           .summary = "Measures all_reduce between the processes of a job.",
                           .about = about,
                           .examples = examples,
                           .options = options};
    int code;
    if (!cli_parse(&verb, argc, argv, &code))
        return code;
    if (!read_sizes(&b))
        return cli_usage_error(&verb, "--bytes %s: expected up to %d multiples of 4, such as 4,16K,128M", b.bytes,
                               MOST_SIZES);
    yk_scope program = yk_scope_begin();
    yk_status found = cli_device(b.device, &b.on);
    code = found ? cli_not_found(found) : bench_run_sizes(&b) ? cli_failed() : EXIT_DONE;
    yk_destroy_process_group();
    yk_scope_end(program);
    return code;
}
