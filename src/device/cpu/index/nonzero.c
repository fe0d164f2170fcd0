/*
 * nonzero.c - the slot nonzero. Layer: device/cpu.
 *
 * Pieces of a fixed size are counted, then written from where the counts before them end: positions come in C order
 * whatever the number of threads.
 */
#include "device/cpu/index/nonzero.h"
#include "device/cpu/iterate.h"

typedef struct finding {
    const yk__loop *loop;
    const yk__view *x, *out;
    int64_t *counts; /* per piece; where they are written, those before it */
    int64_t at;      /* of one piece */
} finding;

/* PIECE: elements counted and written by one thread at a time. BLOCK: positions in a buffer of 4 KiB on the stack.
 * Speed alone. */
enum { PIECE = 65536, BLOCK = 512 };

static void count_run(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)
{
    (void)first;
    finding *f = (finding *)context;
    int64_t count = 0;
    if (stride[0] == 1) {
        const uint8_t *x = (const uint8_t *)data[0];
        for (int64_t i = 0; i < n; i += 128) {
            int64_t m = n - i < 128 ? n - i : 128;
            uint8_t some = 0;
            for (int64_t j = 0; j < m; j++)
                some = (uint8_t)(some + (x[i + j] != 0));
            count += some;
        }
    } else {
        for (int64_t i = 0; i < n; i++)
            count += data[0][i * stride[0]] != 0;
    }
    f->at += count;
}

static void position_run(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)
{
    finding *f = (finding *)context;
    int64_t position[BLOCK + 1];
    const yk__view *x = f->x, *out = f->out;
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t m = n - i < BLOCK ? n - i : BLOCK, found = 0;
        const char *from = data[0] + i * stride[0];
        for (int64_t j = 0; j < m; j++) {
            position[found] = first + i + j;
            found += from[j * stride[0]] != 0;
        }
        int64_t *to = (int64_t *)out->data + f->at * out->stride[0];
        f->at += found;
        if (x->ndim == 1) {
            for (int64_t j = 0; j < found; j++)
                to[j * out->stride[0]] = position[j];
            continue;
        }
        for (int d = x->ndim - 1; d >= 0; d--) {
            uint64_t size = (uint64_t)x->shape[d];
            for (int64_t j = 0; j < found; j++) {
                uint64_t rest = (uint64_t)position[j] / size;
                to[j * out->stride[0] + d * out->stride[1]] = (int64_t)((uint64_t)position[j] - rest * size);
                position[j] = (int64_t)rest;
            }
        }
    }
}

static void find_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    const finding *all = arg;
    for (int64_t piece = begin; piece < end; piece++) {
        finding f = *all;
        int64_t from = piece * PIECE, to = from + PIECE < f.loop->total ? from + PIECE : f.loop->total;
        f.at = f.out ? f.counts[piece] : 0;
        yk__loop_job job = {f.loop, f.out ? position_run : count_run, &f};
        yk__loop_piece(&job, from, to, thread);
        if (!f.out)
            f.counts[piece] = f.at;
    }
}

static yk_status nonzero(int device, const yk__view *x, int64_t *count, const yk__view *out)
{
    const yk__view *views[] = {x};
    yk__loop loop;
    yk__loop_init(&loop, 1, views, true);
    int64_t pieces = (loop.total + PIECE - 1) / PIECE;
    yk__storage *scratch = NULL;
    *count = 0;
    if (pieces == 0)
        return YK_OK;
    finding f = {.loop = &loop, .x = x};
    f.counts = yk__workspace_get((yk_device){YK_CPU, (int16_t)device}, (size_t)pieces * sizeof(int64_t), &scratch);
    if (!f.counts)
        return yk__error_code();
    yk__cpu_parallel(device, pieces, 1, find_piece, &f);
    for (int64_t piece = 0; piece < pieces; piece++) {
        int64_t here = f.counts[piece];
        f.counts[piece] = *count;
        *count += here;
    }
    f.out = out;
    if (out)
        yk__cpu_parallel(device, pieces, 1, find_piece, &f);
    yk__storage_release(scratch);
    return YK_OK;
}

void YK__ISA_NAME(yk__cpu_fill_nonzero)(yk__backend *table)
{
    table->nonzero = nonzero;
}
