/*
 * bench_checkpoint.c - `yoke bench checkpoint`: saving against a plain write with fsync, loading from the page cache,
 * the stall of an asynchronous save against a memcpy; with --sharded that of a save to which each rank gives its share.
 * Layer: cli.
 *
 * The rounds take turns, so that a disk that slows down slows down both sides. The state is half weights, half
 * momentum, in tensors of 4 MB. A .pt is read with every checksum compared, whether it is copied or mapped.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <yoke/checkpoint.h>
#include <yoke/comm.h>

#include "base/core.h"
#include "checkpoint/shards/folder.h"
#include "cli/bench/bench.h"
#include "cli/options.h"
#include "cli/ranks.h"
#include "tensor/tensor.h"

/* SIDE: a layer of 4 MiB, so that layers make up any size asked for. MOST_ROUNDS: of the arrays of times. */
enum { SIDE = 1024, MOST_ROUNDS = 100 };

typedef struct bench {
    const char *dir, *pt;
    double megabytes;
    int64_t rounds;
    bool json, sharded;
    ranks ranks; /* with --sharded, else one */
    /* the state that is measured, and the figures */
    yk_checkpoint_state state;
    char *folder, *plain, *root, *copy;
    size_t bytes;
    int64_t done, saves;
    double write[MOST_ROUNDS], save[MOST_ROUNDS], load[MOST_ROUNDS], memcpy_[MOST_ROUNDS], stall[MOST_ROUNDS];
    double load_map[MOST_ROUNDS], pt_copy[MOST_ROUNDS], pt_map[MOST_ROUNDS];
    double first_stall;
} bench;

/* Layers and one step of momentum. */
static yk_status make_state(bench *b)
{
    int64_t layers = (int64_t)ceil(b->megabytes * 1e6 / 2 / (SIDE * SIDE * sizeof(float)));
    yk_module *model = yk_sequential(yk_identity_create());
    int64_t left = (int64_t)(b->megabytes * 1e6 / 2 / (SIDE * sizeof(float)));
    for (int64_t i = 0; i < layers; i++, left -= SIDE) {
        char name[32];
        snprintf(name, sizeof(name), "fc%" PRId64, i);
        yk_module_add(model, name,
                      yk_linear_create(SIDE, left < SIDE ? (left > 0 ? left : 1) : SIDE,
                                       YK_OPTIONS(yk_linear_options, .bias = false)));
    }
    yk_parameters *params = yk_module_parameters(yk_module_check(model));
    yk_optimizer *sgd = yk_sgd(params, YK_OPTIONS(yk_sgd_options, .lr = 1e-3, .momentum = 0.9));
    for (int64_t i = 0; i < yk_parameters_count(params); i++) {
        yk_scope scope = yk_scope_begin();
        yk_status status = yk_set_grad(yk_parameters_at(params, i), yk_zeros_like(yk_parameters_at(params, i)));
        yk_scope_end(scope);
        if (status)
            return status;
        b->bytes += 2 * sizeof(float) * (size_t)yk_numel(yk_parameters_at(params, i));
    }
    yk_status status = sgd ? yk_optimizer_step(sgd) : yk__error_code();
    yk_optimizer_zero_grad(sgd);
    b->state = (yk_checkpoint_state){.model = model, .optimizer = sgd};
    return status;
}

/* Writes so many bytes as `dd bs=1M conv=fsync` does. */
static yk_status write_plain(const bench *b, size_t bytes, double *seconds)
{
    double begun = yk__now();
    int fd = open(b->plain, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    yk_status status = fd < 0 ? yk__fail_errno("%s", b->plain) : YK_OK;
    for (size_t at = 0; !status && at < bytes && !cli_interrupted();) {
        size_t piece = bytes - at < 1 << 20 ? bytes - at : 1 << 20;
        ssize_t put = write(fd, b->copy + at, piece);
        if (put < 0 && errno != EINTR)
            status = yk__fail_errno("%s", b->plain);
        at += put > 0 ? (size_t)put : 0;
    }
    if (!status && fsync(fd) < 0)
        status = yk__fail_errno("%s", b->plain);
    if (fd >= 0)
        close(fd);
    *seconds = yk__now() - begun;
    unlink(b->plain);
    return status;
}

/* All tensors one after another into memory that was used before. */
static void copy_state(bench *b, double *seconds)
{
    yk_parameters *params = yk_optimizer_group(b->state.optimizer, 0);
    double begun = yk__now();
    char *to = b->copy;
    for (int64_t i = 0; i < yk_parameters_count(params); i++) {
        yk_tensor *x = yk_parameters_at(params, i), *v = yk_optimizer_state(b->state.optimizer, x, "momentum_buffer");
        size_t bytes = (size_t)yk_numel(x) * sizeof(float);
        memcpy(to, x->data, bytes);
        memcpy(to + bytes, v->data, bytes);
        to += 2 * bytes;
    }
    *seconds = yk__now() - begun;
}

static yk_status timed(yk_status status, double begun, double *seconds)
{
    *seconds = yk__now() - begun;
    return status;
}

/* The state as PyTorch keeps it. */
static yk_status write_pt(const bench *b)
{
    yk_scope scope = yk_scope_begin();
    yk_value *all = yk_value_dict();
    yk_status status = yk_value_set(all, "model", yk_value_from_state_dict(yk_module_state_dict(b->state.model)));
    if (!status)
        status = yk_value_set(all, "optimizer", yk_value_from_optimizer(b->state.optimizer));
    if (!status)
        status = yk_pt_save(b->pt, all);
    yk_scope_end(scope);
    return status;
}

/* Loads the file from the page cache; the tensors are freed after the time is taken. */
static yk_status read_pt(const bench *b, bool mmap, double *seconds)
{
    yk_scope scope = yk_scope_begin();
    double begun = yk__now();
    const yk_value *value = yk_pt_load(b->pt, YK_OPTIONS(yk_pt_options, .mmap = mmap));
    *seconds = yk__now() - begun;
    yk_scope_end(scope);
    return value ? YK_OK : yk__error_code();
}

static yk_status measure_pt(bench *b)
{
    yk_status status = write_pt(b);
    double warm;
    for (int64_t i = -1; i < b->rounds && !status && !cli_interrupted(); i++) {
        status = read_pt(b, false, i < 0 ? &warm : &b->pt_copy[i]);
        status = status ? status : read_pt(b, true, i < 0 ? &warm : &b->pt_map[i]);
    }
    return status;
}

static yk_status measure_round(bench *b, yk_checkpoint_manager *async)
{
    int64_t i = b->done;
    double begun, ignored;
    yk_status status = write_plain(b, b->bytes, &b->write[i]);
    if (cli_interrupted())
        return status;
    yk__folder_remove(AT_FDCWD, b->folder);
    begun = yk__now();
    if (!status)
        status = timed(yk_checkpoint_save(b->folder, &b->state), begun, &b->save[i]);
    begun = yk__now();
    if (!status)
        status = timed(yk_checkpoint_load(b->folder, &b->state, NULL, NULL), begun, &b->load[i]);
    begun = yk__now();
    if (!status)
        status = timed(yk_checkpoint_load(b->folder, &b->state, YK_OPTIONS(yk_checkpoint_options, .mmap = true), NULL),
                       begun, &b->load_map[i]);
    if (status)
        return status;
    b->state.step = b->saves++;
    copy_state(b, &b->memcpy_[i]);
    begun = yk__now();
    status = timed(yk_checkpoint_manager_save(async, &b->state), begun, &b->stall[i]);
    return status ? status : timed(yk_checkpoint_manager_wait(async), begun, &ignored);
}

/* The first round does not count: memory and files are made in it. */
static yk_status measure(bench *b)
{
    yk_scope scope = yk_scope_begin();
    b->copy = malloc(b->bytes);
    yk_checkpoint_manager *async = yk_checkpoint_manager_create(
        b->root, YK_OPTIONS(yk_checkpoint_manager_options, .keep = 1, .async = true, .state = &b->state));
    yk_status status = !b->copy ? yk__fail_memory(b->bytes) : !async ? yk__error_code() : YK_OK;
    if (!status) {
        memset(b->copy, 1, b->bytes);
        status = measure_round(b, async);
        b->first_stall = b->stall[0];
    }
    for (; !status && b->done < b->rounds && !cli_interrupted(); b->done += !status)
        status = measure_round(b, async);
    yk_scope_end(scope);
    free(b->copy);
    return !status && b->pt && !cli_interrupted() ? measure_pt(b) : status;
}

/* Asynchronous saves of shares; the ranks begin each together. Between them every rank writes as much plainly: a run,
 * too, does other work between making the manager and its first save. Before each they agree on whether to end. */
static yk_status measure_sharded(bench *b)
{
    yk_scope scope = yk_scope_begin();
    yk_checkpoint_manager *manager = yk_checkpoint_manager_create(
        b->root, YK_OPTIONS(yk_checkpoint_manager_options, .keep = 1, .async = true, .sharded = true,
                            .state = &b->state, .group = yk_default_process_group()));
    b->copy = malloc(b->bytes);
    yk_status status = !b->copy ? yk__fail_memory(b->bytes) : !manager ? yk__error_code() : YK_OK;
    if (!status)
        memset(b->copy, 1, b->bytes);
    for (int64_t i = -1; i < b->rounds && !status; i++) {
        double ignored = 0;
        status = ranks_sum(&b->ranks, &ignored, 1);
        if (status || ranks_stop(&b->ranks))
            break;
        b->state.step = b->saves++;
        status = write_plain(b, b->bytes / (size_t)yk_world_size(NULL), &ignored);
        copy_state(b, &b->memcpy_[i < 0 ? 0 : i]);
        status = status ? status : yk_barrier(NULL);
        double begun = yk__now();
        if (!status)
            status =
                timed(yk_checkpoint_manager_save(manager, &b->state), begun, i < 0 ? &b->first_stall : &b->stall[i]);
        status = status ? status : yk_checkpoint_manager_wait(manager);
    }
    yk_scope_end(scope);
    free(b->copy);
    return status ? status : yk_barrier(NULL); /* until then a rank has the folder open */
}

/* A number that names the folder of all ranks: rank 0's process id. */
static yk_status shared_number(int64_t *number)
{
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_full(1, (int64_t[]){1}, (double)getpid(), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    yk_status status = x ? yk_broadcast(x, 0, NULL) : yk__error_code();
    *number = status ? 0 : yk_item_i64(x);
    yk_scope_end(scope);
    return status;
}

static yk_status remove_folders(const bench *b)
{
    yk__folder_remove(AT_FDCWD, b->folder);
    for (int64_t step = 0; step <= b->saves; step++) {
        char *dir = yk__format("%s/step-%08" PRId64, b->root, step);
        if (dir)
            yk__folder_remove(AT_FDCWD, dir);
        free(dir);
    }
    return rmdir(b->root) < 0 && errno != ENOENT ? yk__fail_errno("%s", b->root) : YK_OK;
}

static yk_status report(bench *b)
{
    double gb = (double)b->bytes / 1e9, write = bench_median(b->write, b->rounds),
           save = bench_median(b->save, b->rounds), load = bench_median(b->load, b->rounds),
           mapped = bench_median(b->load_map, b->rounds), copy = bench_median(b->memcpy_, b->rounds),
           stall = bench_median(b->stall, b->rounds);
    if (b->json) {
        json_t *row =
            json_pack("{s:s,s:I,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "subject", "checkpoint", "bytes", (json_int_t)b->bytes,
                      "write_gbs", yk__json_number(gb / write, BENCH_DIGITS), "save_gbs",
                      yk__json_number(gb / save, BENCH_DIGITS), "load_gbs", yk__json_number(gb / load, BENCH_DIGITS),
                      "load_map_gbs", yk__json_number(gb / mapped, BENCH_DIGITS), "memcpy_ms",
                      yk__json_number(1e3 * copy, BENCH_DIGITS), "stall_ms", yk__json_number(1e3 * stall, BENCH_DIGITS),
                      "first_stall_ms", yk__json_number(1e3 * b->first_stall, BENCH_DIGITS));
        if (row && b->pt &&
            (json_object_set_new(row, "pt_copy_gbs",
                                 yk__json_number(gb / bench_median(b->pt_copy, b->rounds), BENCH_DIGITS)) ||
             json_object_set_new(row, "pt_map_gbs",
                                 yk__json_number(gb / bench_median(b->pt_map, b->rounds), BENCH_DIGITS)))) {
            json_decref(row);
            row = NULL;
        }
        return bench_print_json(row);
    }
    printf("%.1f MB of state, medians of %" PRId64 " rounds\n", gb * 1e3, b->rounds);
    printf("write and fsync   %8.3f GB/s\n", gb / write);
    printf("save              %8.3f GB/s   %.2f of that\n", gb / save, write / save);
    printf("load              %8.3f GB/s   from the page cache; mapped %.3f GB/s, both verified\n", gb / load,
           gb / mapped);
    printf("memcpy            %8.2f ms\n", 1e3 * copy);
    printf("asynchronous save %8.2f ms     %.2f of that; the first one %.2f ms\n", 1e3 * stall, stall / copy,
           1e3 * b->first_stall);
    if (b->pt)
        printf(".pt, copied       %8.3f GB/s   mapped %.3f GB/s, both verified\n",
               gb / bench_median(b->pt_copy, b->rounds), gb / bench_median(b->pt_map, b->rounds));
    return YK_OK;
}

static yk_status report_sharded(bench *b)
{
    int world = yk_world_size(NULL);
    double copy = bench_median(b->memcpy_, b->rounds) / world, stall = bench_median(b->stall, b->rounds);
    if (b->json)
        return bench_print_json(json_pack("{s:s,s:i,s:I,s:o,s:o,s:o}", "subject", "sharded checkpoint", "ranks", world,
                                          "bytes", (json_int_t)b->bytes, "memcpy_ms",
                                          yk__json_number(1e3 * copy, BENCH_DIGITS), "stall_ms",
                                          yk__json_number(1e3 * stall, BENCH_DIGITS), "first_stall_ms",
                                          yk__json_number(1e3 * b->first_stall, BENCH_DIGITS)));
    printf("%.1f MB of state, %d rank%s, medians of %" PRId64 " rounds of rank 0\n", (double)b->bytes / 1e6, world,
           world == 1 ? "" : "s", b->rounds);
    printf("memcpy of a share %8.2f ms\n", 1e3 * copy);
    printf("asynchronous save %8.2f ms     %.2f of that; the first one %.2f ms\n", 1e3 * stall, stall / copy,
           1e3 * b->first_stall);
    return YK_OK;
}

/* A group of one without a launcher. Ranks that are interrupted remove what they have written, too. */
static yk_status run_sharded(bench *b)
{
    int64_t number;
    if (ranks_join(&b->ranks) || (!yk_is_initialized() && yk_init_process_group(NULL)) || shared_number(&number))
        return yk__error_code();
    cli_catch_signals();
    b->folder = yk__format("%s/yoke-bench-%" PRId64, b->dir, number);
    b->plain = b->folder ? yk__format("%s.plain-%d", b->folder, yk_rank(NULL)) : NULL;
    b->root = b->plain ? yk__format("%s.root", b->folder) : NULL;
    yk_status status = b->root ? make_state(b) : YK_ERR_MEMORY;
    if (!status)
        status = measure_sharded(b);
    if (yk_rank(NULL))
        return status;
    if (b->root && remove_folders(b) && !status)
        status = yk__error_code();
    return status || ranks_stop(&b->ranks) ? status : report_sharded(b);
}

/* One that is interrupted removes what it has written, too. */
static yk_status run_alone(bench *b)
{
    cli_catch_signals();
    b->folder = yk__format("%s/yoke-bench-%ld", b->dir, (long)getpid());
    b->plain = b->folder ? yk__format("%s.plain", b->folder) : NULL;
    b->root = b->plain ? yk__format("%s.root", b->folder) : NULL;
    yk_status status = b->root ? make_state(b) : YK_ERR_MEMORY;
    if (!status)
        status = measure(b);
    if (b->root && remove_folders(b) && !status)
        status = yk__error_code();
    return status || cli_interrupted() ? status : report(b);
}

static const char examples[] = "  yoke bench checkpoint --megabytes 2000 --dir /data\n"
                               "  yoke run -n 2 yoke bench checkpoint --sharded --dir /data\n";

int cli_bench_checkpoint(int argc, char **argv)
{
    bench b = {.dir = ".", .megabytes = 46.8, .rounds = 9, .ranks = {.world = 1}};
    const cli_option options[] = {
        {"megabytes", "X", CLI_REAL, &b.megabytes, "the state's size", .least = 0.1, .most = 1e6},
        {"dir", "DIR", CLI_TEXT, &b.dir, .help = "where to write; everything is removed afterwards"},
        {"pt", "FILE", CLI_TEXT, &b.pt, .help = "also write the state as this .pt, which stays, and load it"},
        {"sharded", NULL, CLI_FLAG, &b.sharded,
         .help = "of asynchronous saves alone, where each rank writes a share: what the caller waits for"},
        {"rounds", "N", CLI_INT, &b.rounds, "measurements", .least = 1, .most = MOST_ROUNDS},
        {"json", NULL, CLI_FLAG, &b.json, .help = "print one JSON object"},
        {0},
    };
    const cli_verb verb = {"yoke bench checkpoint",
                           "Measures saving and loading training state, next to a plain write and a memcpy.", NULL,
                           examples, .options = options};
    int code;
    if (!cli_parse(&verb, argc, argv, &code))
        return code;
    yk_scope program = yk_scope_begin();
    code = (b.sharded ? run_sharded(&b) : run_alone(&b)) ? cli_failed() : EXIT_DONE;
    if (code == EXIT_DONE && ranks_stop(&b.ranks))
        code = EXIT_SIGNAL + ranks_stop(&b.ranks);
    if (b.sharded)
        ranks_leave(&b.ranks);
    free(b.folder);
    free(b.plain);
    free(b.root);
    yk_scope_end(program);
    return code;
}
