/*
 * index_put.c - the slot index_put: elements of x are written, or added to. Layer: device/cpu.
 *
 * What is written to one position comes in C order whatever the number of threads: they share a dimension along which x
 * itself moves, or no index tensor does, or else each goes through all indices and writes the targets that are its own.
 */
#include "device/cpu/index/index_targets.h"

/* The loop of one dtype: PUT(type, statement that writes or adds v to *to). */
#define PUT_TYPES(p, PUT)                                                                                              \
    if (!(p)->accumulate) {                                                                                            \
        switch ((p)->element) {                                                                                        \
        case 1: PUT(yk__raw8, *to = v)                                                                                 \
        case 2: PUT(yk__raw16, *to = v)                                                                                \
        case 4: PUT(yk__raw32, *to = v)                                                                                \
        default: PUT(yk__raw64, *to = v)                                                                               \
        }                                                                                                              \
    }                                                                                                                  \
    switch ((p)->dtype) {                                                                                              \
    case YK_F32: PUT(float, *to += v)                                                                                  \
    case YK_F64: PUT(double, *to += v)                                                                                 \
    case YK_I64: PUT(uint64_t, *to += v)                                                                               \
    case YK_I32: PUT(uint32_t, *to += v)                                                                               \
    case YK_U8: PUT(uint8_t, *to = (uint8_t)(*to + v))                                                                 \
    default: PUT(uint8_t, *to = (*to || v))                                                                            \
    }

/* The i-th of n elements, or the chosen[i]-th. */
#define PUT_EACH(T, WRITE)                                                                                             \
    {                                                                                                                  \
        if (chosen) {                                                                                                  \
            for (int64_t j = 0; j < n; j++) {                                                                          \
                int64_t i = chosen[j];                                                                                 \
                T *to = (T *)(x + i * x_stride + offset[i]);                                                           \
                T v = *(const T *)(value + i * value_stride);                                                          \
                WRITE;                                                                                                 \
            }                                                                                                          \
        } else {                                                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                T *to = (T *)(x + i * x_stride + offset[i]);                                                           \
                T v = *(const T *)(value + i * value_stride);                                                          \
                WRITE;                                                                                                 \
            }                                                                                                          \
        }                                                                                                              \
        return;                                                                                                        \
    }

static void put(const targets *p, int64_t n, const int64_t *chosen, char *x, int64_t x_stride, const char *value,
                int64_t value_stride, const int64_t *offset)
{
    PUT_TYPES(p, PUT_EACH)
}

/* Sums in fours, as GATHER_FOURS, written in order, for two targets may be one; plain writes take 1.4 times as long in
 * fours where the targets are far apart. */
#define PUT_DIRECT(T, WRITE)                                                                                           \
    {                                                                                                                  \
        T *row = (T *)x;                                                                                               \
        const T *from = (const T *)value;                                                                              \
        int64_t i = 0;                                                                                                 \
        for (; p->accumulate && i + 4 <= n; i += 4) {                                                                  \
            T *at[4] = {&AT_INDEX(i), &AT_INDEX(i + 1), &AT_INDEX(i + 2), &AT_INDEX(i + 3)};                           \
            const T values[4] = {from[i], from[i + 1], from[i + 2], from[i + 3]};                                      \
            for (int k = 0; k < 4; k++) {                                                                              \
                T *to = at[k], v = values[k];                                                                          \
                WRITE;                                                                                                 \
            }                                                                                                          \
        }                                                                                                              \
        for (; i < n; i++) {                                                                                           \
            T *to = &AT_INDEX(i), v = from[i];                                                                         \
            WRITE;                                                                                                     \
        }                                                                                                              \
        return;                                                                                                        \
    }

/* Writes each element to the position in x that its index is. */
static inline __attribute__((always_inline)) void put_direct(const targets *p, int64_t n, char *x, const char *value,
                                                             const int64_t *index, const bool wrap)
{
    int64_t size = p->size[0];
    PUT_TYPES(p, PUT_DIRECT)
}

/* Writes a run with one stride in x and one in value: no two of its targets are one. */
#define PUT_ROW(T, WRITE)                                                                                              \
    {                                                                                                                  \
        if (x_stride == (int64_t)sizeof(T) && value_stride == (int64_t)sizeof(T)) {                                    \
            T *row = (T *)x;                                                                                           \
            const T *from = (const T *)value;                                                                          \
            YK__INDEPENDENT for (int64_t i = 0; i < n; i++)                                                            \
            {                                                                                                          \
                T *to = row + i;                                                                                       \
                T v = from[i];                                                                                         \
                WRITE;                                                                                                 \
            }                                                                                                          \
        } else {                                                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                T *to = (T *)(x + i * x_stride);                                                                       \
                T v = *(const T *)(value + i * value_stride);                                                          \
                WRITE;                                                                                                 \
            }                                                                                                          \
        }                                                                                                              \
        return;                                                                                                        \
    }

static inline __attribute__((always_inline)) void put_row(const targets *p, int64_t n, char *x, int64_t x_stride,
                                                          char *value, int64_t value_stride)
{
    if (!p->accumulate) {
        yk__copy_strided(x, x_stride, value, value_stride, p->element, n);
        return;
    }
    switch (p->dtype) {
    case YK_F32: PUT_ROW(float, *to += v)
    case YK_F64: PUT_ROW(double, *to += v)
    case YK_I64: PUT_ROW(uint64_t, *to += v)
    case YK_I32: PUT_ROW(uint32_t, *to += v)
    case YK_U8: PUT_ROW(uint8_t, *to = (uint8_t)(*to + v))
    default: PUT_ROW(uint8_t, *to = (*to || v))
    }
}

static inline bool is_ours(const targets *p, const char *index)
{
    int64_t v = wrapped(*(const int64_t *)index, p->size[0]);
    return v >= p->low && v < p->high;
}

/* Operands: value, x, the index tensors; the indices were checked. */
static void write_run(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)
{
    (void)first;
    const targets *p = context;
    int64_t offset[BLOCK], chosen[BLOCK];
    if (is_fixed(p, stride + 2)) {
        offsets(p, 1, data + 2, stride + 2, offset);
        if (!p->shared || is_ours(p, data[2]))
            put_row(p, n, data[1] + offset[0], stride[1], data[0], stride[0]);
        return;
    }
    if (!p->shared && is_direct(p, stride[0], stride[1], stride[2])) {
        if (p->wrap)
            put_direct(p, n, data[1], data[0], (const int64_t *)data[2], true);
        else
            put_direct(p, n, data[1], data[0], (const int64_t *)data[2], false);
        return;
    }
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t m = n - i < BLOCK ? n - i : BLOCK, ours = m;
        char *index[FUSED];
        for (int k = 0; k < p->count; k++)
            index[k] = data[2 + k] + i * stride[2 + k];
        if (p->shared) {
            ours = 0;
            for (int64_t j = 0; j < m; j++) {
                chosen[ours] = j;
                ours += is_ours(p, index[0] + j * stride[2]);
            }
        }
        offsets(p, m, index, stride + 2, offset);
        put(p, ours, p->shared ? chosen : NULL, data[1] + i * stride[1], stride[1], data[0] + i * stride[0], stride[0],
            offset);
    }
}

#define WRITE_LINE(T, WRITE) LINES(T, T *to = row + at[i]; T v = line[i]; WRITE)

static void write_lines(const targets *p, int64_t n, int64_t lines, char *other, char *x, const char *index,
                        const int64_t *step)
{
    PUT_TYPES(p, WRITE_LINE)
}

/* Runs write_run over a piece, as yk__loop_piece does. */
static void write_piece(const yk__loop *loop, const targets *p, int thread)
{
    yk__loop_job job = {loop, write_run, p};
    if (is_short_lines(p, loop))
        write_lines(p, loop->shape[0], loop->shape[1], loop->data[0], loop->data[1], loop->data[2], loop->stride[1]);
    else if (is_rows(p, loop) && !p->shared)
        rows_piece(loop, p, 0, loop->total, put_row);
    else
        yk__loop_piece(&job, 0, loop->total, thread);
}

typedef struct share {
    const yk__loop *loop;
    const targets *at;
    int dim; /* that the threads share; -1: the range of the first index */
    int64_t pieces;
} share;

static void write_share(void *arg, int64_t begin, int64_t end, int thread)
{
    const share *s = arg;
    for (int64_t piece = begin; piece < end; piece++) {
        yk__loop loop = *s->loop;
        targets at = *s->at;
        int64_t size = s->dim < 0 ? at.size[0] : loop.shape[s->dim];
        int64_t from = size / s->pieces * piece + (piece < size % s->pieces ? piece : size % s->pieces);
        int64_t length = size / s->pieces + (piece < size % s->pieces);
        if (s->dim < 0) {
            at.shared = true;
            at.low = from;
            at.high = from + length;
        } else {
            loop.shape[s->dim] = length;
            loop.total = loop.total / size * length;
            for (int k = 0; k < loop.operands; k++)
                loop.data[k] += from * loop.stride[s->dim][k];
        }
        if (length)
            write_piece(&loop, &at, thread);
    }
}

/*
 * Writing along a leading dimension: each row of the index names rows of x, far apart, and a row of x comes back to the
 * cache for every element. So a few columns of x at a time are copied into a block that stays in the second-level
 * cache, all their elements are written there, and the block is copied back.
 */
/* COLUMNS_BYTES: four cache lines of each row. COLUMNS_BLOCK: bytes of a block, half of a second-level cache of 1 MiB.
 * COLUMNS_LEAST: bytes of x below which its rows stay in the cache as they are. */
enum { COLUMNS_BYTES = 256, COLUMNS_BLOCK = 512 * 1024, COLUMNS_LEAST = 1024 * 1024 };

typedef struct columns {
    const yk__loop *loop;
    const targets *at;
    char *blocks; /* one for each thread */
    int64_t width, block_bytes;
} columns;

static void write_columns(void *arg, int64_t begin, int64_t end, int thread)
{
    const columns *c = arg;
    const yk__loop *loop = c->loop;
    targets at = *c->at;
    const int64_t element = (int64_t)at.element, rows = at.size[0], step = at.step[0];
    char *block = c->blocks + thread * c->block_bytes;
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t first = piece * c->width, left = loop->shape[0] - first, width = left < c->width ? left : c->width;
        char *x = loop->data[1] + first * element;
        at.step[0] = width * element;
        for (int64_t r = 0; r < rows; r++)
            memcpy(block + r * at.step[0], x + r * step, (size_t)at.step[0]);
        for (int64_t i = 0; i < loop->shape[1]; i++) {
            char *data[YK__LOOP_OPERANDS] = {loop->data[0] + i * loop->stride[1][0] + first * loop->stride[0][0], block,
                                             loop->data[2] + i * loop->stride[1][2] + first * loop->stride[0][2]};
            write_run(&at, 0, width, data, loop->stride[0]);
        }
        for (int64_t r = 0; r < rows; r++)
            memcpy(x + r * step, block + r * at.step[0], (size_t)at.step[0]);
    }
}

/* Writes in blocks of columns where that pays, and sets *done. */
static yk_status put_columns(int device, const yk__loop *loop, const targets *at, bool *done)
{
    const int64_t element = (int64_t)at->element, width = COLUMNS_BYTES / element;
    *done = false;
    if (loop->ndim != 2 || at->count != 1 || loop->stride[0][1] != element || loop->stride[1][1] != 0 ||
        loop->stride[0][2] == 0 || loop->stride[1][2] == 0 || at->step[0] < loop->shape[0] * element ||
        loop->shape[0] < width || at->size[0] > 2 * loop->shape[1] || at->size[0] * COLUMNS_BYTES > COLUMNS_BLOCK ||
        at->size[0] * at->step[0] < COLUMNS_LEAST)
        return YK_OK;
    columns c = {.loop = loop, .at = at, .width = width, .block_bytes = at->size[0] * COLUMNS_BYTES};
    yk__storage *scratch;
    c.blocks = yk__workspace_get((yk_device){YK_CPU, (int16_t)device},
                                 (size_t)(yk__cpu_threads(device) * c.block_bytes), &scratch);
    if (!c.blocks)
        return yk__error_code();
    yk__cpu_parallel(device, yk__ceil_div(loop->shape[0], width), 1, write_columns, &c);
    yk__storage_release(scratch);
    *done = true;
    return YK_OK;
}

yk_status YK__ISA_NAME(yk__cpu_index_put)(int device, const yk__view *x, const yk__view *value, const yk__indices *p,
                                          bool accumulate)
{
    targets at = {.element = yk_dtype_size(x->dtype), .dtype = x->dtype, .accumulate = accumulate};
    const yk__view *views[2 + FUSED] = {value, x};
    yk__view sum;
    yk__storage *scratch;
    if (yk__indices_check(device, p) || yk__index_operands(device, value, p, &at, &sum, views, &scratch))
        return yk__error_code();
    yk__loop loop;
    yk__loop_init(&loop, 2 + at.count, views, true);
    share s = {.loop = &loop, .at = &at, .dim = -1, .pieces = yk__cpu_threads(device)};
    if (loop.total <= YK__GRAIN)
        s.pieces = 1;
    /* Elements that are apart along a dimension of x are two positions wherever the indices lead. */
    for (int d = loop.ndim - 1; d >= 0 && s.dim < 0; d--)
        if (loop.shape[d] >= s.pieces && loop.stride[d][1] != 0)
            s.dim = d;
    bool done = loop.total == 0;
    yk_status status = done ? YK_OK : put_columns(device, &loop, &at, &done);
    if (status || done)
        ;
    else if (s.pieces == 1)
        write_piece(&loop, &at, 0);
    else
        yk__cpu_parallel(device, s.pieces, 1, write_share, &s);
    yk__storage_release(scratch);
    return status;
}
