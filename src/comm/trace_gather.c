/*
 * trace_gather.c - the traces of a group's ranks as one file, on one clock. Layer: comm.
 *
 * Note [Clocks of hosts]
 * Each host's first rank asks rank 0 for its time, ROUNDS times: it notes its own clock before and after. Rank 0 took
 * its time between the two, so that the difference of the clocks is that of rank 0's time and the middle, and wrong by
 * half of the round trip at most; the quickest round counts. Clocks also drift against each other, by less than DRIFT,
 * so the bound for a recording grows with its length, since this is done at its end.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <yoke/comm.h>

#include "base/events.h"
#include "base/hash.h"
#include "comm/agreement.h"
#include "comm/group.h"
#include "host/trace_file.h"
#include "tensor/tensor.h"

enum { ROUNDS = 24, TAG = 31990, PIECE = 16 << 20 /* bytes of a message */ };
#define DRIFT 1e-4 /* of a quartz without a server of time, with room to spare */

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Every rank's numbers, `each` of them, in all[rank * each]. */
static yk_status gather(const int64_t *own, int each, int64_t *all, yk_process_group *group)
{
    yk_scope scope = yk_scope_begin();
    const yk_tensor_options *whole = YK_OPTIONS(yk_tensor_options, .dtype = YK_I64, .device = {.type = YK_CPU});
    yk_tensor *in = yk_from_data(own, YK_SHAPE(each), whole);
    yk_tensor *out = yk_zeros(YK_SHAPE(yk_world_size(group), each), whole);
    yk_status status = in && out ? YK__HOST_TENSORS(yk_all_gather(out, in, group)) : yk__error_code();
    if (!status)
        memcpy(all, yk_tensor_data(out), sizeof(*all) * (size_t)(each * yk_world_size(group)));
    yk_scope_end(scope);
    return status;
}

/* The first rank of a host asks rank 0, which answers: see Note [Clocks of hosts]. */
static yk_status clock_ask(int rank, int first, yk_process_group *group, yk__trace_clock *clock)
{
    int64_t best = INT64_MAX;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_zeros(YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64, .device = {.type = YK_CPU}));
    yk_status status = x ? YK_OK : yk__error_code();
    for (int i = 0; i < ROUNDS && !status; i++) {
        int64_t before = now_ns(), theirs;
        if (rank == 0) {
            status = yk_recv(x, first, TAG, group);
            theirs = now_ns();
            memcpy(yk_tensor_data(x), &theirs, sizeof(theirs));
            status = status ? status : yk_send(x, first, TAG, group);
            continue;
        }
        status = yk_send(x, 0, TAG, group);
        status = status ? status : yk_recv(x, 0, TAG, group);
        int64_t after = now_ns();
        memcpy(&theirs, yk_tensor_data(x), sizeof(theirs));
        if (status || after - before >= best)
            continue;
        best = after - before;
        *clock = (yk__trace_clock){
            .known = true, .to_rank0_ns = theirs - (before + (after - before) / 2), .error_ns = best / 2 + 1};
    }
    yk_scope_end(scope);
    return status;
}

/* Has every rank know its clock against rank 0's. */
static yk_status clocks_compare(int rank, int world, double seconds, yk_process_group *group)
{
    char name[YK__TRACE_CLOCK_NAME];
    yk__trace_clock clock = {.known = true};
    yk__trace_clock_name(name);
    int64_t own[2] = {(int64_t)yk__hash(YK__HASH_BASIS, name, strlen(name)), 0};
    int64_t *hosts = yk__calloc((size_t)world, sizeof(*hosts)), *known = yk__calloc((size_t)world, 2 * sizeof(*known));
    yk_status status = hosts && known ? gather(own, 1, hosts, group) : yk__error_code();
    int first_here = rank; /* the first rank of this host */
    for (int r = 0; r < world && !status; r++) {
        int first = 0;
        while (hosts[first] != hosts[r])
            first++;
        if (r == rank)
            first_here = first;
        if (first == r && hosts[r] != hosts[0] && (rank == 0 || rank == r))
            status = clock_ask(rank, r, group, &clock);
    }
    if (rank == 0)
        clock = (yk__trace_clock){.known = true};
    own[0] = clock.to_rank0_ns;
    own[1] = clock.error_ns;
    status = status ? status : gather(own, 2, known, group);
    if (!status) {
        bool other = hosts[rank] != hosts[0];
        yk__trace_clock_set(
            (yk__trace_clock){.known = true,
                              .to_rank0_ns = known[2 * first_here],
                              .error_ns = known[2 * first_here + 1] + (other ? (int64_t)(1e9 * DRIFT * seconds) : 0)});
    }
    free(hosts);
    free(known);
    return status;
}

/* This rank's file, in memory; *size 0 where it has recorded nothing. */
static FILE *own_part(bool recorded, int64_t *size)
{
    FILE *part = tmpfile();
    *size = 0;
    if (part && recorded && yk__trace_write_events(part) == YK_OK)
        *size = (int64_t)ftello(part);
    return part;
}

/* Sends a part of that many bytes to rank 0. */
static yk_status part_send(FILE *part, int64_t size, yk_process_group *group)
{
    yk_status status = YK_OK;
    rewind(part);
    for (int64_t at = 0; at < size && !status;) {
        int64_t bytes = size - at < PIECE ? size - at : PIECE;
        yk_scope scope = yk_scope_begin();
        yk_tensor *x =
            yk_zeros(YK_SHAPE(bytes), YK_OPTIONS(yk_tensor_options, .dtype = YK_U8, .device = {.type = YK_CPU}));
        if (!x)
            status = yk__error_code();
        else if (fread(yk_tensor_data(x), 1, (size_t)bytes, part) != (size_t)bytes)
            status = yk__fail_errno("the trace of rank %d cannot be read back", yk_rank(group));
        status = status ? status : yk_send(x, 0, TAG, group);
        yk_scope_end(scope);
        at += bytes;
    }
    return status;
}

/* In rank 0: receives the part of another. */
static yk_status part_receive(FILE *to, int from, int64_t size, yk_process_group *group)
{
    yk_status status = YK_OK;
    for (int64_t at = 0; at < size && !status;) {
        int64_t bytes = size - at < PIECE ? size - at : PIECE;
        yk_scope scope = yk_scope_begin();
        yk_tensor *x =
            yk_zeros(YK_SHAPE(bytes), YK_OPTIONS(yk_tensor_options, .dtype = YK_U8, .device = {.type = YK_CPU}));
        status = x ? yk_recv(x, from, TAG, group) : yk__error_code();
        if (!status && fwrite(yk_tensor_data(x), 1, (size_t)bytes, to) != (size_t)bytes)
            status = yk__fail_errno("the trace of rank %d cannot be kept", from);
        yk_scope_end(scope);
        at += bytes;
    }
    return status;
}

/* In rank 0: one file of all parts. */
static yk_status parts_merge(FILE *own, const int64_t *sizes, int world, const char *file, yk_process_group *group)
{
    FILE **parts = yk__calloc((size_t)world, sizeof(*parts));
    char(*names)[32] = yk__calloc((size_t)world, sizeof(*names));
    const char **list = yk__calloc((size_t)world, sizeof(*list));
    yk_status status = parts && names && list ? YK_OK : yk__error_code();
    int count = 0;
    for (int r = 0; r < world && !status; r++) {
        if (!sizes[r])
            continue;
        snprintf(names[count], sizeof(names[count]), "the trace of rank %d", r);
        list[count] = names[count];
        parts[count] = r ? tmpfile() : own;
        if (!parts[count])
            status = yk__fail_errno("no file for the trace of rank %d", r);
        else if (r)
            status = part_receive(parts[count], r, sizes[r], group);
        count += parts[count] != NULL;
    }
    if (!status && !count)
        status = yk__fail(YK_ERR_STATE, "profiler_stop_group: no rank has recorded; yk_profiler_start begins it");
    if (!status && file)
        status = yk__trace_merge_save(parts, list, NULL, count, file);
    for (int i = 0; i < count; i++) {
        if (parts[i] != own)
            fclose(parts[i]);
    }
    free(parts);
    free(names);
    free(list);
    return status;
}

yk_status yk_profiler_stop_group(const char *file, yk_process_group *group)
{
    YK__OWN_RECORD;
    YK__LIVE(group);
    int rank = yk_rank(group), world = yk_world_size(group);
    if (rank < 0)
        return yk__error_code() ? yk__error_code()
                                : yk__fail(YK_ERR_STATE, "profiler_stop_group: there is no process group");
    bool recorded = yk__events_stop();
    yk__events_clock clock = {0};
    yk__events_clock_read(&clock);
    int64_t *sizes = yk__calloc((size_t)world, sizeof(*sizes)), size = 0;
    yk_status status =
        sizes ? clocks_compare(rank, world, recorded ? 1e-9 * (double)(clock.monotonic[1] - clock.monotonic[0]) : 0,
                               group)
              : yk__error_code();
    FILE *own = status ? NULL : own_part(recorded, &size);
    if (recorded)
        yk__events_release();
    if (!status)
        status = gather(&size, 1, sizes, group);
    if (!status && rank == 0)
        status = parts_merge(own, sizes, world, file, group);
    else if (!status && size)
        status = part_send(own, size, group);
    if (own)
        fclose(own);
    free(sizes);
    return status;
}
