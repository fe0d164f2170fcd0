/*
 * copy.c - the slots copy and copy_parts (any dtype and strides to any other) and fill. Layer: device/cpu.
 *
 * Casts are as convert.h says. A copy between two memory orders of one dtype goes through tiles, so that both sides
 * are read and written in whole cache lines.
 */
#include "device/convert.h"
#include "device/cpu/elementwise/elementwise.h"
#include "device/cpu/elementwise/row_copy.h"
#include "device/cpu/elementwise/transpose.h"
#include "device/cpu/halves.h"
#include "device/cpu/iterate.h"
#include "device/cpu/saturate.h"

/* ---- casts of contiguous runs ---- */

/* A source is loaded as this type ... */
#define LOAD_f32(x) (x)
#define LOAD_f64(x) (x)
#define LOAD_i64(x) (x)
#define LOAD_i32(x) (x)
#define LOAD_u8(x)  (x)
#define LOAD_b8(x)  ((uint8_t)((x) != 0))
/* ... and cast by its kind. */
#define CAST_real_f32(x)  (float)(x)
#define CAST_real_f64(x)  (double)(x)
#define CAST_real_i64(x)  YK__TO_I64(x)
#define CAST_real_i32(x)  YK__TO_I32(x)
#define CAST_real_u8(x)   (uint8_t) YK__TO_I32(x)
#define CAST_real_b8(x)   (x) != 0
#define CAST_whole_f32(x) (float)(x)
#define CAST_whole_f64(x) (double)(x)
#define CAST_whole_i64(x) (int64_t)(x)
#define CAST_whole_i32(x) (int32_t)(x)
#define CAST_whole_u8(x)  (uint8_t)(x)
#define CAST_whole_b8(x)  (x) != 0

#define CAST(from, From, kind, to, To)                                                                                 \
    static void from##_to_##to(int64_t n, void *out, const void *a, const void *b, const void *c, const double *p)     \
    {                                                                                                                  \
        (void)b, (void)c, (void)p;                                                                                     \
        To *o = out;                                                                                                   \
        const From *in = a;                                                                                            \
        YK__INDEPENDENT for (int64_t i = 0; i < n; i++)                                                                \
        {                                                                                                              \
            From x = LOAD_##from(in[i]);                                                                               \
            o[i] = CAST_##kind##_##to(x);                                                                              \
        }                                                                                                              \
    }
#define CASTS_FROM(from, From, kind)                                                                                   \
    CAST(from, From, kind, f32, float)                                                                                 \
    CAST(from, From, kind, f64, double)                                                                                \
    CAST(from, From, kind, i64, int64_t)                                                                               \
    CAST(from, From, kind, u8, uint8_t)                                                                                \
    CAST(from, From, kind, b8, uint8_t)
CASTS_FROM(f32, float, real)
CASTS_FROM(f64, double, real)
CAST(f64, double, real, i32, int32_t)
CAST(i64, int64_t, whole, i32, int32_t)
CAST(i32, int32_t, whole, i32, int32_t)
CAST(u8, uint8_t, whole, i32, int32_t)
CAST(b8, uint8_t, whole, i32, int32_t)
CASTS_FROM(i64, int64_t, whole)
CASTS_FROM(i32, int32_t, whole)
CASTS_FROM(u8, uint8_t, whole)
CASTS_FROM(b8, uint8_t, whole)

#define CAST_TO_I32(from, From)                                                                                        \
    static void from##_to_i32(int64_t n, void *out, const void *a, const void *b, const void *c, const double *p)      \
    {                                                                                                                  \
        (void)b, (void)c, (void)p;                                                                                     \
        yk__##from##_as_i32(n, out, a);                                                                                \
    }
CAST_TO_I32(f32, float)
CAST_TO_I32(bf16, uint16_t)

#define CASTS_OF_HALVES(half)                                                                                          \
    static void half##_to_f32(int64_t n, void *out, const void *a, const void *b, const void *c, const double *p)      \
    {                                                                                                                  \
        (void)b, (void)c, (void)p;                                                                                     \
        yk__widen_##half(n, out, a);                                                                                   \
    }                                                                                                                  \
    static void f32_to_##half(int64_t n, void *out, const void *a, const void *b, const void *c, const double *p)      \
    {                                                                                                                  \
        (void)b, (void)c, (void)p;                                                                                     \
        yk__round_##half(n, out, a);                                                                                   \
    }
CASTS_OF_HALVES(f16)
CASTS_OF_HALVES(bf16)

/* bf16 and f32 are so near that one loop does both casts. Whole numbers of 8 bits need no rounding. */
#define ROUNDED(x)   yk__to_bf16(x)
#define UNROUNDED(x) (uint16_t)(yk__bits_of(x) >> 16)
#define TO_BF16(other, Other, ROUND)                                                                                   \
    static void other##_to_bf16(int64_t n, void *out, const void *a, const void *b, const void *c, const double *p)    \
    {                                                                                                                  \
        (void)b, (void)c, (void)p;                                                                                     \
        uint16_t *o = out;                                                                                             \
        const Other *in = a;                                                                                           \
        YK__INDEPENDENT for (int64_t i = 0; i < n; i++)                                                                \
        {                                                                                                              \
            o[i] = ROUND((float)LOAD_##other(in[i]));                                                                  \
        }                                                                                                              \
    }
#define OF_BF16(other, Other)                                                                                          \
    static void bf16_to_##other(int64_t n, void *out, const void *a, const void *b, const void *c, const double *p)    \
    {                                                                                                                  \
        (void)b, (void)c, (void)p;                                                                                     \
        Other *o = out;                                                                                                \
        const uint16_t *in = a;                                                                                        \
        YK__INDEPENDENT for (int64_t i = 0; i < n; i++)                                                                \
        {                                                                                                              \
            float x = yk__from_bf16(in[i]);                                                                            \
            o[i] = CAST_real_##other(x);                                                                               \
        }                                                                                                              \
    }
TO_BF16(f64, double, ROUNDED)
TO_BF16(i64, int64_t, ROUNDED)
TO_BF16(i32, int32_t, ROUNDED)
TO_BF16(u8, uint8_t, UNROUNDED)
TO_BF16(b8, uint8_t, UNROUNDED)
OF_BF16(f64, double)
OF_BF16(i64, int64_t)
OF_BF16(u8, uint8_t)
OF_BF16(b8, uint8_t)

/* A cast through f32. */
#define CAST_BY_F32(from, from_size, to, to_size)                                                                      \
    static void from##_to_##to(int64_t n, void *out, const void *a, const void *b, const void *c, const double *p)     \
    {                                                                                                                  \
        float middle[YK__APPLY_CHUNK];                                                                                 \
        for (int64_t i = 0; i < n; i += YK__APPLY_CHUNK) {                                                             \
            int64_t m = n - i < YK__APPLY_CHUNK ? n - i : YK__APPLY_CHUNK;                                             \
            from##_to_f32(m, middle, (const char *)a + i * from_size, b, c, p);                                        \
            f32_to_##to(m, (char *)out + i * to_size, middle, b, c, p);                                                \
        }                                                                                                              \
    }
#define CASTS_BY_F32(half)                                                                                             \
    CAST_BY_F32(f64, 8, half, 2)                                                                                       \
    CAST_BY_F32(i64, 8, half, 2)                                                                                       \
    CAST_BY_F32(i32, 4, half, 2)                                                                                       \
    CAST_BY_F32(u8, 1, half, 2)                                                                                        \
    CAST_BY_F32(b8, 1, half, 2)                                                                                        \
    CAST_BY_F32(half, 2, f64, 8)                                                                                       \
    CAST_BY_F32(half, 2, i64, 8)                                                                                       \
    CAST_BY_F32(half, 2, i32, 4)                                                                                       \
    CAST_BY_F32(half, 2, u8, 1)                                                                                        \
    CAST_BY_F32(half, 2, b8, 1)
CASTS_BY_F32(f16)
CAST_BY_F32(f16, 2, bf16, 2)
CAST_BY_F32(bf16, 2, f16, 2)

#define CASTS_ROW(from)                                                                                                \
    {                                                                                                                  \
        [YK_F32] = from##_to_f32, [YK_F64] = from##_to_f64, [YK_F16] = from##_to_f16, [YK_BF16] = from##_to_bf16,      \
        [YK_I64] = from##_to_i64, [YK_I32] = from##_to_i32, [YK_U8] = from##_to_u8, [YK_BOOL] = from##_to_b8           \
    }
/* Same dtype to same dtype never comes here; those entries only complete the rows. */
#define f16_to_f16   NULL
#define bf16_to_bf16 NULL
static const yk__apply_fn casts[YK__DTYPES][YK__DTYPES] = {
    [YK_F32] = CASTS_ROW(f32), [YK_F64] = CASTS_ROW(f64), [YK_F16] = CASTS_ROW(f16), [YK_BF16] = CASTS_ROW(bf16),
    [YK_I64] = CASTS_ROW(i64), [YK_I32] = CASTS_ROW(i32), [YK_U8] = CASTS_ROW(u8),   [YK_BOOL] = CASTS_ROW(b8),
};

/* ---- copies of one dtype ---- */

static void same_run(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)
{
    (void)first;
    size_t size = *(const size_t *)context;
    if (stride[0] == (int64_t)size && stride[1] == (int64_t)size)
        memmove(data[0], data[1], (size_t)n * size);
    else
        yk__copy_strided(data[0], stride[0], data[1], stride[1], size, n);
}

/* A loop whose output is contiguous along dimension 0 and whose input is along `tiled_dim`, in tiles. */
typedef struct transposition {
    const yk__loop *loop;
    size_t size;
    int tiled_dim;
    int64_t side[2];            /* of a tile along dimension 0 and `tiled_dim` */
    int64_t tiles[YK_MAX_DIMS]; /* per dimension; the dimensions other than 0 and tiled_dim have one per index */
} transposition;

/* Elements. TILE each way: with 4 bytes each a cache line, so that both sides are read and written in whole lines.
 * Where one side has fewer than NARROW, all of it and LONG of the other: pixels of some channels. */
enum { TILE = 16, NARROW = 8, LONG = 256 };

static void transpose_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const transposition *t = arg;
    const yk__loop *loop = t->loop;
    int tiled_dim = t->tiled_dim;
    for (int64_t at = begin; at < end; at++) {
        char *out = loop->data[0];
        const char *in = loop->data[1];
        int64_t rest = at, edge[2] = {0, 0};
        for (int d = 0; d < loop->ndim; d++) {
            int64_t i = rest % t->tiles[d];
            rest /= t->tiles[d];
            if (d == 0 || d == tiled_dim) {
                int64_t side = t->side[d != 0];
                i *= side;
                edge[d != 0] = loop->shape[d] - i < side ? loop->shape[d] - i : side;
            }
            out += i * loop->stride[d][0];
            in += i * loop->stride[d][1];
        }
        yk__transpose(out, loop->stride[tiled_dim][0], in, loop->stride[0][1], edge[1], edge[0], t->size);
    }
}

static bool transpose(int device, const yk__loop *loop, size_t size)
{
    transposition t = {.loop = loop, .size = size, .tiled_dim = 0};
    for (int d = 1; d < loop->ndim; d++)
        if (loop->stride[d][1] == (int64_t)size)
            t.tiled_dim = d;
    if (t.tiled_dim == 0 || loop->stride[0][0] != (int64_t)size || loop->stride[0][1] == (int64_t)size ||
        loop->stride[0][1] == 0 || loop->shape[0] * loop->shape[t.tiled_dim] < 2 * NARROW)
        return false;
    int64_t count = 1;
    t.side[0] = loop->shape[t.tiled_dim] < NARROW ? LONG : TILE;
    t.side[1] = loop->shape[0] < NARROW ? LONG : TILE;
    for (int d = 0; d < loop->ndim; d++) {
        bool tiled = d == 0 || d == t.tiled_dim;
        t.tiles[d] = tiled ? yk__ceil_div(loop->shape[d], t.side[d != 0]) : loop->shape[d];
        count *= t.tiles[d];
    }
    yk__cpu_parallel(device, count, YK__GRAIN / (TILE * TILE), transpose_piece, &t);
    return true;
}

/* n rows of `bytes`, at least as many as an Unaligned has and at most twice those: its first ones and its last ones. */
#define COPY_SHORT(Unaligned)                                                                                          \
    {                                                                                                                  \
        int64_t last = bytes - (int64_t)sizeof(Unaligned);                                                             \
        for (int64_t i = 0; i < n; i++, to += to_step, from += from_step) {                                            \
            Unaligned head = *(const Unaligned *)from, tail = *(const Unaligned *)(from + last);                       \
            *(Unaligned *)to = head;                                                                                   \
            *(Unaligned *)(to + last) = tail;                                                                          \
        }                                                                                                              \
    }

/* Copies rows of less than a cache line. */
static void copy_short_rows(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t bytes, int64_t n)
{
    typedef uint16_t two __attribute__((aligned(1), may_alias));
    typedef uint32_t four __attribute__((aligned(1), may_alias));
    typedef uint64_t eight __attribute__((aligned(1), may_alias));
    typedef uint8_t sixteen __attribute__((vector_size(16), aligned(1), may_alias));
    typedef uint8_t half_line __attribute__((vector_size(32), aligned(1), may_alias));
    if (bytes >= 32)
        COPY_SHORT(half_line)
    else if (bytes >= 16)
        COPY_SHORT(sixteen)
    else if (bytes >= 8)
        COPY_SHORT(eight)
    else if (bytes >= 4)
        COPY_SHORT(four)
    else
        COPY_SHORT(two)
}

/* Copies short dense rows, as cat, narrow and a permutation of heads leave them. */
static void rows_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const yk__loop *loop = arg;
    int64_t bytes = loop->shape[0] * loop->stride[0][0], to_step = loop->stride[1][0], from_step = loop->stride[1][1];
    for (int64_t row = begin, n; row < end; row += n) {
        /* Rows up to the end of dimension 1. */
        int64_t rest = row / loop->shape[1], at = row % loop->shape[1];
        char *to = loop->data[0] + at * to_step;
        const char *from = loop->data[1] + at * from_step;
        n = loop->shape[1] - at < end - row ? loop->shape[1] - at : end - row;
        for (int d = 2; d < loop->ndim; d++) {
            to += rest % loop->shape[d] * loop->stride[d][0];
            from += rest % loop->shape[d] * loop->stride[d][1];
            rest /= loop->shape[d];
        }
        if (bytes < YK__LINE)
            copy_short_rows(to, to_step, from, from_step, bytes, n);
        for (int64_t i = 0; bytes >= YK__LINE && i < n; i++)
            yk__copy_lines(to + i * to_step, from + i * from_step, bytes);
    }
}

static bool copy_rows(int device, yk__loop *loop, size_t size)
{
    int64_t bytes = loop->shape[0] * (int64_t)size;
    if (loop->stride[0][0] != (int64_t)size || loop->stride[0][1] != (int64_t)size || bytes < 2 ||
        bytes >= YK__LONG_ROW)
        return false;
    yk__cpu_parallel(device, loop->total / loop->shape[0], YK__GRAIN / loop->shape[0] + 1, rows_piece, loop);
    return true;
}

static void copy_same(int device, yk__loop *loop, size_t size)
{
    if (!(loop->ndim > 1 && (transpose(device, loop, size) || copy_rows(device, loop, size))))
        yk__loop_run(device, loop, YK__GRAIN, same_run, &size);
}

/* Elements that are repeated a few times next to each other are written as so many copies with steps: a loop over them
 * alone would be too short. */
enum { FEW_REPEATS = 8, LONG_LINE = 16 };
static bool repeats_few(const yk__view *out, const yk__view *in)
{
    int last = out->ndim - 1;
    return last > 0 && in->stride[last] == 0 && out->shape[last] > 1 && out->shape[last] <= FEW_REPEATS &&
           out->stride[last] == 1 && in->stride[last - 1] != 0 && out->shape[last - 1] >= LONG_LINE;
}

static yk_status copy(int device, const yk__view *out, const yk__view *in)
{
    if (repeats_few(out, in)) {
        yk__view to = *out, from = *in;
        from.ndim = --to.ndim;
        size_t size = yk_dtype_size(out->dtype);
        for (int64_t k = 0; k < out->shape[to.ndim]; k++) {
            to.data = (char *)out->data + (size_t)k * size;
            copy(device, &to, &from);
        }
        return YK_OK;
    }
    const yk__view *views[] = {out, in};
    if (out->dtype != in->dtype) {
        yk__apply_views(device, casts[in->dtype][out->dtype], 2, views, NULL);
        return YK_OK;
    }
    yk__loop loop;
    yk__loop_init(&loop, 2, views, false);
    if (loop.total > 0)
        copy_same(device, &loop, yk_dtype_size(out->dtype));
    return YK_OK;
}

/* ---- parts of rows ---- */

/* Parts that are written in turns, row by row, so that the output is written from its beginning to its end: an output
 * of FETCHED bytes and more is also fetched, AHEAD bytes before its turn comes. */
enum { PARTS = 8, FETCHED = 8 << 20, AHEAD = 2048 };
typedef struct row_parts {
    int count;
    int64_t rows, to_step, bytes; /* bytes: of a row of all parts */
    struct row_part {
        char *to;
        const char *from;
        int64_t from_step, bytes;
    } part[PARTS];
} row_parts;

static void row_parts_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const row_parts *r = arg;
    bool fetch = r->rows * r->to_step >= FETCHED;
    for (int64_t row = begin; row < end; row++)
        for (const struct row_part *p = r->part; p < r->part + r->count; p++) {
            char *to = p->to + row * r->to_step;
            for (int64_t at = 0; fetch && at < p->bytes; at += YK__LINE)
                __builtin_prefetch(to + AHEAD + at, 1);
            yk__copy_lines(to, p->from + row * p->from_step, p->bytes);
        }
}

/* Adds this copy to those of *r if it is one of rows that can be copied along with theirs; false if not. */
static bool row_parts_add(row_parts *r, const yk__loop *loop, size_t size)
{
    int64_t bytes = loop->ndim == 2 ? loop->shape[0] * (int64_t)size : 0;
    if (r->count == PARTS || bytes < YK__LINE || bytes >= YK__LONG_ROW || loop->stride[0][0] != (int64_t)size ||
        loop->stride[0][1] != (int64_t)size)
        return false;
    if (r->count && (loop->shape[1] != r->rows || loop->stride[1][0] != r->to_step))
        return false;
    r->rows = loop->shape[1];
    r->to_step = loop->stride[1][0];
    r->bytes += bytes;
    r->part[r->count++] = (struct row_part){loop->data[0], loop->data[1], loop->stride[1][1], bytes};
    return true;
}

static void row_parts_copy(int device, row_parts *r)
{
    if (r->count)
        yk__cpu_parallel(device, r->rows, YK__GRAIN * (int64_t)sizeof(float) / r->bytes + 1, row_parts_piece, r);
    r->count = 0;
    r->bytes = 0;
}

static yk_status copy_parts(int device, int count, const yk__view *outs, const yk__view *ins)
{
    row_parts r = {0};
    for (int i = 0; i < count; i++) {
        const yk__view *views[] = {&outs[i], &ins[i]};
        size_t size = yk_dtype_size(outs[i].dtype);
        yk__loop loop;
        if (outs[i].dtype != ins[i].dtype) {
            copy(device, &outs[i], &ins[i]);
            continue;
        }
        yk__loop_init(&loop, 2, views, false);
        if (loop.total == 0 || row_parts_add(&r, &loop, size))
            continue;
        row_parts_copy(device, &r);
        if (!row_parts_add(&r, &loop, size))
            copy_same(device, &loop, size);
    }
    row_parts_copy(device, &r);
    return YK_OK;
}

/* ---- fill ---- */

typedef struct filling {
    uint64_t element;
    size_t size;
} filling;

static void fill_run(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)
{
    (void)first;
    const filling *f = context;
    if (f->element == 0 && stride[0] == (int64_t)f->size)
        memset(data[0], 0, (size_t)n * f->size);
    else
        yk__copy_strided(data[0], stride[0], &f->element, 0, f->size, n);
}

static yk_status fill_slot(int device, const yk__view *out, double value)
{
    filling f = {0, yk_dtype_size(out->dtype)};
    yk__store_scalar(&f.element, out->dtype, value);
    yk__loop loop;
    yk__loop_init(&loop, 1, &out, false);
    yk__loop_run(device, &loop, YK__GRAIN, fill_run, &f);
    return YK_OK;
}

yk__apply_fn YK__ISA_NAME(yk__cpu_cast)(yk_dtype from, yk_dtype to)
{
    return casts[from][to];
}

void YK__ISA_NAME(yk__cpu_fill_copy)(yk__backend *table)
{
    table->copy = copy;
    table->copy_parts = copy_parts;
    table->fill = fill_slot;
}
