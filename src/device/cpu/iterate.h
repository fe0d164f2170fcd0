/*
 * iterate.h - loops of elementwise kernels over strided operands. Layer: device/cpu.
 *
 * A yk__loop (loop.h) has few dimensions. A kernel sees one-dimensional runs only; yk__apply goes further and gives it
 * contiguous runs, gathering and scattering through small buffers on the stack where the operands are not contiguous,
 * in blocks where they have two memory orders. So an operation is written once, as a plain loop.
 */
#ifndef YOKE_DEVICE_CPU_ITERATE_H
#define YOKE_DEVICE_CPU_ITERATE_H

#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/elementwise/small_steps.h"
#include "device/cpu/elementwise/transpose.h"
#include "device/loop.h"

/* The operands of the loop that follows do not overlap, unless they are the same element for element. */
#if defined(__clang__)
#define YK__INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#pragma clang diagnostic ignored "-Wpass-failed"
#else
#define YK__INDEPENDENT _Pragma("GCC ivdep")
#endif

/* Elements per piece of work: below it no other thread is woken. Reductions are cut by it: another number gives other
 * last bits. */
#define YK__GRAIN 32768

/* A kernel for a run of n elements; stride in bytes, one per operand; `first` is the position of the run in the order
 * of the loop. */
typedef void (*yk__run_fn)(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride);

typedef struct yk__loop_job {
    const yk__loop *loop;
    yk__run_fn fn;
    const void *context;
} yk__loop_job;

static inline void yk__loop_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const yk__loop_job *job = arg;
    const yk__loop *loop = job->loop;
    int64_t index[YK_MAX_DIMS], rest = begin;
    char *data[YK__LOOP_OPERANDS];
    for (int k = 0; k < loop->operands; k++)
        data[k] = loop->data[k];
    for (int d = 0; d < loop->ndim; d++) {
        index[d] = d + 1 < loop->ndim ? rest % loop->shape[d] : rest;
        rest /= loop->shape[d];
        for (int k = 0; k < loop->operands; k++)
            data[k] += index[d] * loop->stride[d][k];
    }
    for (;;) {
        int64_t n = loop->shape[0] - index[0];
        if (n > end - begin)
            n = end - begin;
        job->fn(job->context, begin, n, data, loop->stride[0]);
        begin += n;
        if (begin >= end)
            return;
        for (int k = 0; k < loop->operands; k++)
            data[k] -= index[0] * loop->stride[0][k];
        index[0] = 0;
        for (int d = 1; d < loop->ndim; d++) {
            for (int k = 0; k < loop->operands; k++)
                data[k] += loop->stride[d][k];
            if (++index[d] < loop->shape[d])
                break;
            for (int k = 0; k < loop->operands; k++)
                data[k] -= loop->shape[d] * loop->stride[d][k];
            index[d] = 0;
        }
    }
}

/* Calls fn over the whole loop, in pieces of `grain` elements on the threads of the device. */
static inline void yk__loop_run(int device, const yk__loop *loop, int64_t grain, yk__run_fn fn, const void *context)
{
    if (loop->total == 0)
        return;
    if (loop->ndim == 1 && loop->total <= grain) {
        fn(context, 0, loop->total, loop->data, loop->stride[0]);
        return;
    }
    yk__loop_job job = {loop, fn, context};
    if (loop->total <= grain)
        yk__loop_piece(&job, 0, loop->total, 0);
    else
        yk__cpu_parallel(device, loop->total, grain, yk__loop_piece, &job);
}

/* n elements of `size` bytes from or to a strided place; a stride of 0 repeats the one element. */
typedef uint8_t yk__raw8 __attribute__((may_alias));
typedef uint16_t yk__raw16 __attribute__((may_alias));
typedef uint32_t yk__raw32 __attribute__((may_alias));
typedef uint64_t yk__raw64 __attribute__((may_alias));
/* Every second element, and a line from its end, are read in vectors. */
#define YK__COPY_STRIDED_(T)                                                                                           \
    if (from_stride == 0 && to_stride == (int64_t)sizeof(T)) {                                                         \
        T *o = to, x = *(const T *)from;                                                                               \
        for (int64_t i = 0; i < n; i++)                                                                                \
            o[i] = x;                                                                                                  \
    } else if (from_stride == 2 * (int64_t)sizeof(T) && to_stride == (int64_t)sizeof(T)) {                             \
        T *o = to;                                                                                                     \
        const T *x = from;                                                                                             \
        YK__INDEPENDENT for (int64_t i = 0; i < n; i++)                                                                \
        {                                                                                                              \
            o[i] = x[2 * i];                                                                                           \
        }                                                                                                              \
    } else if (from_stride == -(int64_t)sizeof(T) && to_stride == (int64_t)sizeof(T)) {                                \
        T *o = to;                                                                                                     \
        const T *x = from;                                                                                             \
        YK__INDEPENDENT for (int64_t i = 0; i < n; i++)                                                                \
        {                                                                                                              \
            o[i] = x[-i];                                                                                              \
        }                                                                                                              \
    } else {                                                                                                           \
        for (int64_t i = 0; i < n; i++)                                                                                \
            *(T *)((char *)to + i * to_stride) = *(const T *)((const char *)from + i * from_stride);                   \
    }
static inline void yk__copy_strided(void *to, int64_t to_stride, const void *from, int64_t from_stride, size_t size,
                                    int64_t n)
{
    int64_t bytes = (int64_t)size, done = 0;
    if (to_stride == bytes && from_stride > bytes)
        done = from_stride % bytes ? 0 : yk__read_step(to, from, size, n, from_stride / bytes);
    else if (from_stride == bytes && to_stride > bytes)
        done = to_stride % bytes ? 0 : yk__write_step(to, from, size, n, to_stride / bytes);
    to = (char *)to + done * to_stride;
    from = (const char *)from + done * from_stride;
    n -= done;
    switch (size) {
    case 1: YK__COPY_STRIDED_(yk__raw8) break;
    case 2: YK__COPY_STRIDED_(yk__raw16) break;
    case 4: YK__COPY_STRIDED_(yk__raw32) break;
    default: YK__COPY_STRIDED_(yk__raw64) break;
    }
}

/* in and out contiguous: n elements of one operation, p its scalar parameters. */
typedef void (*yk__apply_fn)(int64_t n, void *out, const void *a, const void *b, const void *c, const double *p);

/* Elements at a time of operands that are not contiguous: four buffers of at most 4 KiB, half of a first-level cache of
 * 32 KiB. */
#define YK__APPLY_CHUNK 512
typedef struct yk__apply {
    yk__apply_fn fn;
    yk__apply_fn one_a, one_b; /* the same of two inputs where a, or b, is a single element; or NULL */
    const double *p;
    int operands; /* with the output, at most 4 */
    size_t size[4];
} yk__apply;

static inline void yk__apply_run(const void *context, int64_t first, int64_t n, char *const *data,
                                 const int64_t *stride)
{
    (void)first;
    const yk__apply *apply = context;
    const void *in[3] = {NULL, NULL, NULL};
    bool direct = true;
    for (int k = 0; k < apply->operands; k++)
        direct = direct && stride[k] == (int64_t)apply->size[k];
    if (direct) {
        for (int k = 1; k < apply->operands; k++)
            in[k - 1] = data[k];
        apply->fn(n, data[0], in[0], in[1], in[2], apply->p);
        return;
    }
    if (apply->operands == 3 && stride[0] == (int64_t)apply->size[0]) {
        bool one_a = apply->one_a && stride[1] == 0 && stride[2] == (int64_t)apply->size[2];
        bool one_b = apply->one_b && stride[2] == 0 && stride[1] == (int64_t)apply->size[1];
        if (one_a || one_b) {
            (one_a ? apply->one_a : apply->one_b)(n, data[0], data[1], data[2], NULL, apply->p);
            return;
        }
    }
    char buffer[4][YK__APPLY_CHUNK * 8] __attribute__((aligned(64)));
    for (int k = 1; k < apply->operands; k++)
        if (stride[k] == 0)
            yk__copy_strided(buffer[k], (int64_t)apply->size[k], data[k], 0, apply->size[k],
                             n < YK__APPLY_CHUNK ? n : YK__APPLY_CHUNK);
    for (int64_t i = 0; i < n; i += YK__APPLY_CHUNK) {
        int64_t m = n - i < YK__APPLY_CHUNK ? n - i : YK__APPLY_CHUNK;
        for (int k = 1; k < apply->operands; k++) {
            int64_t size = (int64_t)apply->size[k];
            if (stride[k] == size) {
                in[k - 1] = data[k] + i * size;
            } else {
                if (stride[k] != 0)
                    yk__copy_strided(buffer[k], size, data[k] + i * stride[k], stride[k], (size_t)size, m);
                in[k - 1] = buffer[k];
            }
        }
        int64_t size = (int64_t)apply->size[0];
        if (stride[0] == size) {
            apply->fn(m, data[0] + i * size, in[0], in[1], in[2], apply->p);
        } else {
            apply->fn(m, buffer[0], in[0], in[1], in[2], apply->p);
            yk__copy_strided(data[0] + i * stride[0], stride[0], buffer[0], size, (size_t)size, m);
        }
    }
}

/*
 * Operands of two memory orders: where the output runs along dimension 0 and an input along `tiled_dim`, runs along
 * dimension 0 would take a cache line for each element of that input. Blocks of YK__BLOCK_RUN x YK__BLOCK_ROWS elements
 * read and write whole lines: such inputs are transposed into a buffer, row by row of the output.
 */
#define YK__BLOCK_RUN  64
#define YK__BLOCK_ROWS 16
typedef struct yk__blocks {
    const yk__loop *loop;
    const yk__apply *apply;
    int tiled_dim;
    int64_t count[YK_MAX_DIMS]; /* blocks of each dimension; but for 0 and `tiled_dim`, its size */
} yk__blocks;

static inline void yk__block_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const yk__blocks *b = arg;
    const yk__loop *loop = b->loop;
    const yk__apply *apply = b->apply;
    int tiled_dim = b->tiled_dim;
    char buffer[3][YK__BLOCK_ROWS * YK__BLOCK_RUN * 8] __attribute__((aligned(64)));
    for (int64_t piece = begin; piece < end; piece++) {
        char *data[4];
        int64_t rest = piece, n = 0, rows = 0;
        for (int k = 0; k < apply->operands; k++)
            data[k] = loop->data[k];
        for (int d = 0; d < loop->ndim; d++) {
            int64_t at = rest % b->count[d];
            rest /= b->count[d];
            if (d == 0) {
                at *= YK__BLOCK_RUN;
                n = loop->shape[0] - at < YK__BLOCK_RUN ? loop->shape[0] - at : YK__BLOCK_RUN;
            } else if (d == tiled_dim) {
                at *= YK__BLOCK_ROWS;
                rows = loop->shape[d] - at < YK__BLOCK_ROWS ? loop->shape[d] - at : YK__BLOCK_ROWS;
            }
            for (int k = 0; k < apply->operands; k++)
                data[k] += at * loop->stride[d][k];
        }
        const char *in[3] = {NULL, NULL, NULL};
        int64_t step[3] = {0, 0, 0};
        for (int k = 1; k < apply->operands; k++) {
            int64_t size = (int64_t)apply->size[k], along = loop->stride[0][k], over = loop->stride[tiled_dim][k];
            in[k - 1] = data[k];
            step[k - 1] = over;
            if (along == size)
                continue;
            in[k - 1] = buffer[k - 1];
            step[k - 1] = YK__BLOCK_RUN * size;
            if (over == size && along != 0)
                yk__transpose(buffer[k - 1], YK__BLOCK_RUN * size, data[k], along, rows, n, apply->size[k]);
            else
                for (int64_t i = 0; i < rows; i++)
                    yk__copy_strided(buffer[k - 1] + i * YK__BLOCK_RUN * size, size, data[k] + i * over, along,
                                     apply->size[k], n);
        }
        for (int64_t i = 0; i < rows; i++) {
            apply->fn(n, data[0] + i * loop->stride[tiled_dim][0], in[0], in[1], in[2], apply->p);
            for (int k = 0; k < 3; k++)
                if (in[k])
                    in[k] += step[k];
        }
    }
}

/* Runs the loop in blocks where that pays; false, with nothing done, where it does not. */
static inline bool yk__apply_blocks(int device, const yk__loop *loop, const yk__apply *apply)
{
    yk__blocks b = {.loop = loop, .apply = apply, .tiled_dim = 0};
    if (loop->ndim < 2 || loop->stride[0][0] != (int64_t)apply->size[0])
        return false;
    for (int k = 1; k < loop->operands; k++) {
        int64_t size = (int64_t)apply->size[k];
        for (int d = 1; d < loop->ndim && loop->stride[0][k] != size && loop->stride[0][k] != 0; d++)
            if (loop->stride[d][k] == size)
                b.tiled_dim = d;
    }
    if (!b.tiled_dim || loop->shape[0] < 8 || loop->shape[b.tiled_dim] < 8)
        return false;
    int64_t count = 1;
    for (int d = 0; d < loop->ndim; d++) {
        int64_t side = d == 0 ? YK__BLOCK_RUN : d == b.tiled_dim ? YK__BLOCK_ROWS : 1;
        b.count[d] = (loop->shape[d] + side - 1) / side;
        count *= b.count[d];
    }
    if (loop->total > 0)
        yk__cpu_parallel(device, count, YK__GRAIN / (YK__BLOCK_RUN * YK__BLOCK_ROWS), yk__block_piece, &b);
    return true;
}

/*
 * Rows of at most YK__SHORT_RUN elements of a dense output, while inputs repeat a row, or one element along a row: as
 * many rows as YK__APPLY_CHUNK holds are one run of the kernel, of inputs that are written out into a buffer where they
 * are not dense like the output.
 */
#define YK__SHORT_RUN 256
typedef struct yk__short_rows {
    const yk__loop *loop;
    const yk__apply *apply;
} yk__short_rows;

/* `rows` times an element, `step` bytes apart, n of each side by side; a vector of bytes may be written after them. */
#define YK__SPREAD_(T)                                                                                                 \
    {                                                                                                                  \
        typedef T V __attribute__((vector_size(YK__VECTOR_BYTES)));                                                    \
        typedef T U __attribute__((vector_size(YK__VECTOR_BYTES), aligned(sizeof(T)), may_alias));                     \
        for (int64_t r = 0; r < rows; r++) {                                                                           \
            V v = (V){0} + *(const T *)(from + r * step);                                                              \
            for (int64_t j = 0; j < n; j += YK__VECTOR_BYTES / (int64_t)sizeof(T))                                     \
                *(U *)((T *)to + r * n + j) = v;                                                                       \
        }                                                                                                              \
        break;                                                                                                         \
    }
static inline void yk__spread(void *to, const char *from, int64_t step, size_t size, int64_t rows, int64_t n)
{
    switch (size) {
    case 1: YK__SPREAD_(yk__raw8)
    case 2: YK__SPREAD_(yk__raw16)
    case 4: YK__SPREAD_(yk__raw32)
    default: YK__SPREAD_(yk__raw64)
    }
}

/* Writes the same row of `bytes`, `rows` times. */
static inline void yk__tile_row(char *to, const char *row, int64_t bytes, int64_t rows)
{
    memcpy(to, row, (size_t)bytes);
    for (int64_t done = 1; done < rows; done *= 2)
        memcpy(to + done * bytes, to, (size_t)((done < rows - done ? done : rows - done) * bytes));
}

static inline void yk__short_rows_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const yk__short_rows *s = arg;
    const yk__loop *loop = s->loop;
    const yk__apply *apply = s->apply;
    const int64_t n = loop->shape[0];
    int64_t most = YK__APPLY_CHUNK / n, lines = 1; /* lines: rows after which the output is at a cache line again */
    while (lines < most && lines * n * (int64_t)apply->size[0] % 64)
        lines *= 2;
    most -= lines < most ? most % lines : 0;
    char buffer[3][YK__APPLY_CHUNK * 8 + YK__VECTOR_BYTES] __attribute__((aligned(64)));
    const char *tiled[3] = {NULL, NULL, NULL}; /* the row that a buffer repeats */
    for (int64_t row = begin, m; row < end; row += m) {
        int64_t at = row % loop->shape[1], rest = row / loop->shape[1];
        m = loop->shape[1] - at < end - row ? loop->shape[1] - at : end - row;
        m = m < most ? m : most;
        char *data[4];
        for (int k = 0; k < apply->operands; k++)
            data[k] = loop->data[k] + at * loop->stride[1][k];
        for (int d = 2; d < loop->ndim; d++) {
            int64_t i = rest % loop->shape[d];
            rest /= loop->shape[d];
            for (int k = 0; k < apply->operands; k++)
                data[k] += i * loop->stride[d][k];
        }
        const void *in[3] = {NULL, NULL, NULL};
        for (int k = 1; k < apply->operands; k++) {
            int64_t size = (int64_t)apply->size[k], along = loop->stride[0][k], over = loop->stride[1][k];
            char *to = buffer[k - 1];
            in[k - 1] = to;
            if (along == size && over == n * size) {
                in[k - 1] = data[k];
            } else if (along == 0) {
                yk__spread(to, data[k], over, apply->size[k], m, n);
            } else if (along == size && over == 0) {
                if (tiled[k - 1] != data[k])
                    yk__tile_row(to, data[k], n * size, loop->shape[1] < most ? loop->shape[1] : most);
                tiled[k - 1] = data[k];
            } else {
                for (int64_t r = 0; r < m; r++)
                    yk__copy_strided(to + r * n * size, size, data[k] + r * over, along, apply->size[k], n);
            }
        }
        apply->fn(m * n, data[0], in[0], in[1], in[2], apply->p);
    }
}

/* Runs the loop by short rows where that pays; false, with nothing done, where it does not. */
static inline bool yk__apply_short_rows(int device, const yk__loop *loop, const yk__apply *apply)
{
    int64_t size = (int64_t)apply->size[0], n = loop->shape[0];
    if (loop->ndim < 2 || n > YK__SHORT_RUN || loop->stride[0][0] != size || loop->stride[1][0] != n * size ||
        loop->total == 0)
        return false;
    yk__short_rows rows = {loop, apply};
    yk__cpu_parallel(device, loop->total / n, YK__GRAIN / n + 1, yk__short_rows_piece, &rows);
    return true;
}

/* Runs an elementwise slot; views[0] is the output. */
static inline void yk__apply_all(int device, yk__apply *apply, const yk__view *const *views)
{
    yk__loop loop;
    yk__loop_init(&loop, apply->operands, views, false);
    for (int k = 0; k < apply->operands; k++)
        apply->size[k] = yk_dtype_size(views[k]->dtype);
    if (!yk__apply_blocks(device, &loop, apply) && !yk__apply_short_rows(device, &loop, apply))
        yk__loop_run(device, &loop, YK__GRAIN, yk__apply_run, apply);
}

/* out = fn(views[1], ...) */
static inline void yk__apply_views(int device, yk__apply_fn fn, int operands, const yk__view *const *views,
                                   const double *p)
{
    yk__apply apply = {.fn = fn, .p = p, .operands = operands};
    yk__apply_all(device, &apply, views);
}

#endif
