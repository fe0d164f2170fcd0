/*
 * reduce.c - the slot reduce. Layer: device/cpu.
 *
 * One loop (iterate.h) walks over the outputs, another over what one output reduces. Each output has a state that
 * runs of elements are fed into; the range that is reduced may be cut into pieces whose states are merged in order.
 * Outputs whose inputs lie side by side in memory are reduced as columns, a row of the input at a time
 * (reduce_columns.h); so are short rows, through a tile in which they are transposed.
 *
 * Sums of f32 are kept in double, of eight that were added up before, so the error does not grow with the count. Pieces
 * depend on the sizes alone, never on the threads.
 */
#include <float.h>
#include <math.h>

#include "device/convert.h"
#include "device/cpu/iterate.h"
#include "device/cpu/reduce/reduce.h"
#include "device/cpu/reduce/reduce_columns.h"
#include "device/cpu/reduce/reduce_feeds.h"

/* MAX_PIECES bounds the threads, and the states that are merged at the end; pieces are of a multiple of PIECE_MULTIPLE
 * elements, whole cache lines, and of some PIECE_LEAST of them, for the end of one and the start of the next take 0.1
 * us. Sums are cut by them: other numbers may give other last bits. */
enum { MAX_PIECES = 64, PIECE_MULTIPLE = 64, PIECE_LEAST = 65536 };

/* Elements of a row that counts as short, and bytes of the tile. */
enum { SHORT_ROW = 32, TILE_BYTES = 16384 };

static const yk__run_fn column_runs[][YK__DTYPES] = {
    [YK__SUM] = {REAL(columns_sum), WHOLE(columns_sum)},
    [YK__MEAN] = {REAL(columns_sum)},
    [YK__PROD] = {REAL(columns_prod)},
    [YK__VAR] = {REAL(columns_var)},
    [YK__SUM_SQUARES] = {REAL(columns_squares)},
    [YK__AMAX] = {REAL(columns_max), WHOLE(columns_max)},
    [YK__AMIN] = {REAL(columns_min), WHOLE(columns_min)},
    [YK__ARGMAX] = {REAL(columns_max), WHOLE(columns_max)},
    [YK__ARGMIN] = {REAL(columns_min), WHOLE(columns_min)},
};
#define HALVES_AND_F32(S) [YK_F32] = S##_f32, [YK_F16] = S##_f16, [YK_BF16] = S##_bf16
static const yk__row_sums_fn row_sums[][YK__DTYPES] = {
    [YK__SUM] = {HALVES_AND_F32(yk__row_sum)},
    [YK__MEAN] = {HALVES_AND_F32(yk__row_sum)},
    [YK__SUM_SQUARES] = {HALVES_AND_F32(yk__row_squares)},
};
static const char *const names[] = {"sum", "mean",   "prod",   "amax", "amin",          "any",
                                    "all", "argmax", "argmin", "var",  "sum of squares"};

/* ---- states ---- */

typedef struct reduction {
    yk__reduce op;
    yk_dtype in, out;
    feed_fn feed;
    yk__loop inner;        /* the elements of one output; one operand */
    int64_t count, pieces; /* the number of those elements, and of pieces of them */
    double p0;
    size_t in_size, out_size;
    state *partial;    /* (pieces, outputs), where there are several pieces */
    int64_t grain;     /* elements of a piece */
    int64_t block;     /* outputs that are fed together */
    bool pieces_first; /* a piece of all blocks comes before the next one of the first block */
    yk__row_sums_fn row_sums;
    const yk__loop *outer;
} reduction;

static double real_at(yk_dtype dtype, const char *x, int64_t i)
{
    switch (dtype) {
    case YK_F64: return ((const double *)x)[i];
    case YK_F16: return (double)yk__from_f16(((const uint16_t *)x)[i]);
    case YK_BF16: return (double)yk__from_bf16(((const uint16_t *)x)[i]);
    default: return (double)((const float *)x)[i];
    }
}

static void state_start(const reduction *r, state *s, const char *x)
{
    bool product = r->op == YK__PROD || r->op == YK__ALL;
    *s = (state){.a = product, .i = product, .at = -1};
    if (r->op == YK__VAR && r->count > 0)
        s->shift = real_at(r->in, x, 0);
}

/* Merges s and `next`, whose positions may come in any order: of equals the first stays. */
static void merge(const reduction *r, state *s, const state *next)
{
    switch (r->op) {
    case YK__PROD:
        s->a *= next->a;
        s->i = (int64_t)((uint64_t)s->i * (uint64_t)next->i);
        break;
    case YK__ANY: s->i |= next->i; break;
    case YK__ALL: s->i &= next->i; break;
    case YK__AMAX:
    case YK__AMIN:
    case YK__ARGMAX:
    case YK__ARGMIN: {
        bool max = r->op == YK__AMAX || r->op == YK__ARGMAX;
        bool better = yk_dtype_is_floating(r->in) ? (max ? next->a > s->a : next->a < s->a) || next->a != next->a
                                                  : (max ? next->i > s->i : next->i < s->i);
        bool tied = (s->a == next->a && s->i == next->i) || (s->a != s->a && next->a != next->a);
        bool first = s->at < 0 || (tied ? next->at < s->at : s->a == s->a && better);
        if (next->at >= 0 && first)
            *s = *next;
        break;
    }
    default:
        s->a += next->a;
        s->b += next->b;
        s->i = (int64_t)((uint64_t)s->i + (uint64_t)next->i);
    }
}

static void state_finish(const reduction *r, const state *s, void *out)
{
    double n = (double)r->count, value = s->a;
    switch (r->op) {
    case YK__ARGMAX:
    case YK__ARGMIN: *(int64_t *)out = s->at; return;
    case YK__MEAN: value = s->a / n; break;
    case YK__VAR: {
        double divisor = n - r->p0 > 0 ? n - r->p0 : 0, squares = s->b - s->a * (s->a / n);
        value = r->count == 0 ? NAN : (squares < 0 ? 0 : squares) / divisor;
        break;
    }
    case YK__AMAX:
    case YK__AMIN: /* of nothing: the identity */
        if (s->at < 0) {
            bool max = r->op == YK__AMAX;
            yk__store_scalar(out, r->out, max ? -INFINITY : INFINITY);
            return;
        }
        break;
    default: break;
    }
    if (yk_dtype_is_floating(r->out) && !yk_dtype_is_floating(r->in))
        yk__store_scalar(out, r->out, (double)s->i);
    else if (yk_dtype_is_floating(r->out))
        yk__store_scalar(out, r->out, value);
    else if (r->out == YK_I64)
        *(int64_t *)out = s->i;
    else if (r->out == YK_I32)
        *(int32_t *)out = (int32_t)s->i;
    else
        *(uint8_t *)out = r->out == YK_BOOL ? s->i != 0 : (uint8_t)s->i;
}

/* ---- one output at a time ---- */

typedef struct feeding {
    feed_fn feed;
    state *s;
} feeding;

static void feed_run(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)
{
    const feeding *f = context;
    f->feed(f->s, first, n, data[0], stride[0]);
}

/* ---- columns ---- */

static void columns_start(const reduction *r, yk__columns *columns, const char *x)
{
    const int64_t n = columns->width;
    columns->seen = false;
    for (int64_t j = 0; j < n; j++)
        columns->a[j] = r->op == YK__PROD;
    if (!yk_dtype_is_floating(r->in))
        memset(columns->i, 0, (size_t)n * sizeof(*columns->i));
    if (r->op != YK__VAR)
        return;
    memset(columns->b, 0, (size_t)n * sizeof(*columns->b));
    for (int64_t j = 0; j < n; j++)
        columns->shift[j] = r->count == 0 ? 0 : real_at(r->in, x, j);
}

static state column_state(const reduction *r, const yk__columns *columns, int64_t j)
{
    state s = {.a = columns->a[j], .at = -1};
    if (!yk_dtype_is_floating(r->in))
        s.i = columns->i[j];
    if (r->op == YK__VAR) {
        s.b = columns->b[j];
        s.shift = columns->shift[j];
    }
    if (!columns->seen)
        return s;
    s.at = columns->at[j];
    switch (r->in) {
    case YK_F32:
    case YK_F16:
    case YK_BF16: s.a = (double)columns->best.f32[j]; break;
    case YK_F64: s.a = columns->best.f64[j]; break;
    case YK_I64: s.i = columns->best.i64[j]; break;
    case YK_I32: s.i = columns->best.i32[j]; break;
    default: s.i = columns->best.u8[j]; break;
    }
    return s;
}

/* Stores n outputs that are floats, rounded to the dtype of out. */
static void store_floats(yk_dtype dtype, char *out, int64_t stride, const float *values, int64_t n)
{
    uint16_t rounded[YK__COLUMNS];
    switch (dtype) {
    case YK_F16: yk__round_f16(n, rounded, values); break;
    case YK_BF16: yk__round_bf16(n, rounded, values); break;
    default:
        if (stride == (int64_t)sizeof(*values))
            memcpy(out, values, (size_t)n * sizeof(*values));
        else
            yk__copy_strided(out, stride, values, sizeof(*values), sizeof(*values), n);
        return;
    }
    yk__copy_strided(out, stride, rounded, sizeof(*rounded), sizeof(*rounded), n);
}

/* Writes totals, or means, of which there are at most YK__COLUMNS; not f64. */
static void finish_totals(const reduction *r, const double *totals, char *out, int64_t stride, int64_t n)
{
    double divisor = (double)r->count;
    float values[YK__COLUMNS];
    if (r->op == YK__MEAN)
        for (int64_t j = 0; j < n; j++)
            values[j] = (float)(totals[j] / divisor);
    else
        for (int64_t j = 0; j < n; j++)
            values[j] = (float)totals[j];
    store_floats(r->out, out, stride, values, n);
}

/* Writes the results of columns, one output after the other; false where finish must do it. */
static bool finish_together(const reduction *r, const yk__columns *columns, char *out, int64_t stride)
{
    const int64_t n = columns->width;
    bool total = r->op == YK__SUM || r->op == YK__MEAN || r->op == YK__PROD || r->op == YK__SUM_SQUARES;
    bool half = r->in == YK_F16 || r->in == YK_BF16;
    if (total && (half || r->in == YK_F32) && r->in == r->out) {
        finish_totals(r, columns->a, out, stride, n);
        return true;
    }
    if (columns->seen && (r->op == YK__AMAX || r->op == YK__AMIN) && r->in == r->out) {
        if (half)
            store_floats(r->out, out, stride, columns->best.f32, n);
        else
            yk__copy_strided(out, stride, &columns->best, (int64_t)r->in_size, r->in_size, n);
        return true;
    }
    if (columns->seen && (r->op == YK__ARGMAX || r->op == YK__ARGMIN)) {
        for (int64_t j = 0; j < n; j++)
            *(int64_t *)(out + j * stride) = columns->at[j];
        return true;
    }
    return false;
}

/* ---- the slot ---- */

/* Fewer columns than FOLD_BELOW do not fill vectors: rows that lie one after the other are taken together, as many as
 * make FOLD_WIDTH columns or more, whole vectors of 64 bytes. Bringing these together at the end takes longer than it
 * saves where there are fewer than FOLD_LEAST of such rows. */
enum { FOLD_BELOW = 16, FOLD_WIDTH = 64, FOLD_LEAST = 16 };

static int64_t rows_folded(int64_t n)
{
    int64_t rows = 16;
    while (rows > 1 && n * rows / 2 % 16 == 0)
        rows /= 2;
    return n * rows < FOLD_WIDTH ? FOLD_WIDTH / n / rows * rows : rows;
}

/* Feeds rows [begin, end) of n columns, dense, into states[n]. */
static void feed_folded(const reduction *r, yk__run_fn columns_run, int64_t n, int64_t begin, int64_t end,
                        const char *x, state *states)
{
    const int64_t size = (int64_t)r->in_size, rows = rows_folded(n), groups = (end - begin) / rows;
    yk__columns columns = {.width = n * rows};
    char *data[] = {(char *)(uintptr_t)x + begin * n * size};
    columns_start(r, &columns, x);
    for (int64_t j = n; r->op == YK__VAR && j < columns.width; j++)
        columns.shift[j] = columns.shift[j - n];
    columns_run(&columns, 0, groups, data, &(int64_t){rows * n * size});
    for (int64_t j = 0; j < columns.width; j++) {
        state s = column_state(r, &columns, j);
        if (s.at >= 0)
            s.at = begin + s.at * rows + j / n;
        if (j < n)
            states[j] = s;
        else
            merge(r, &states[j % n], &s);
    }
    begin += groups * rows;
    for (int64_t j = 0; j < n && begin < end; j++)
        r->feed(&states[j], begin, end - begin, x + begin * n * size + j * size, n * size);
}

/* A piece of the outputs, for every piece of their inputs. */
typedef struct outputs_run {
    const reduction *r;
    int64_t begin, end; /* of the elements that are reduced */
    int64_t piece;
} outputs_run;

/* Computes the sums of m outputs, the first elements of which are `step` bytes apart: rows of neighbours are reduced,
 * and all outputs' shares of one row are added up before the next. */
static void sum_rows(const reduction *r, const outputs_run *run, const char *x, int64_t step, int64_t m, double *totals)
{
    const yk__loop *inner = &r->inner;
    double sums[YK__COLUMNS];
    memset(totals, 0, (size_t)m * sizeof(*totals));
    for (int64_t at = run->begin, n; at < run->end; at += n) {
        int64_t row = at / inner->shape[0], first = at - row * inner->shape[0];
        n = inner->shape[0] - first < run->end - at ? inner->shape[0] - first : run->end - at;
        const char *from = x + first * (int64_t)r->in_size;
        for (int d = 1; d < inner->ndim; d++, row /= inner->shape[d - 1])
            from += row % inner->shape[d] * inner->stride[d][0];
        r->row_sums(sums, m, from, step, n);
        for (int64_t j = 0; j < m; j++)
            totals[j] += sums[j];
    }
}

/* Feeds the run's range of the inputs of an output, or of a block of them; its first element is at x. */
static void feed_range(const outputs_run *run, yk__run_fn fn, const void *context, char *x)
{
    const yk__loop *inner = &run->r->inner;
    if (run->begin >= run->end)
        return;
    if (inner->ndim == 1) {
        x += run->begin * inner->stride[0][0];
        fn(context, run->begin, run->end - run->begin, &x, inner->stride[0]);
        return;
    }
    yk__loop loop = *inner;
    yk__loop_job job = {&loop, fn, context};
    loop.data[0] = x;
    yk__loop_piece(&job, run->begin, run->end, 0);
}

static void feed_outputs(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)
{
    const outputs_run *run = context;
    const reduction *r = run->r;
    state *partial = r->pieces > 1 ? r->partial + run->piece * r->outer->total + first : NULL;
    const yk__loop *inner = &r->inner;
    yk__run_fn columns_run = column_runs[r->op][r->in];
    bool side_by_side = stride[1] == (int64_t)r->in_size;
    bool short_rows = !side_by_side && r->count <= SHORT_ROW && n >= 16 && inner->ndim == 1 && run->end == r->count &&
                      run->begin == 0 && inner->stride[0][0] == (int64_t)r->in_size;
    if (columns_run && n > 1 && n < FOLD_BELOW && side_by_side && inner->ndim == 1 && r->count <= INT32_MAX &&
        inner->stride[0][0] == n * (int64_t)r->in_size && run->end - run->begin >= FOLD_LEAST * rows_folded(n)) {
        state states[FOLD_BELOW];
        feed_folded(r, columns_run, n, run->begin, run->end, data[1], states);
        for (int64_t j = 0; j < n; j++) {
            if (partial)
                partial[j] = states[j];
            else
                state_finish(r, &states[j], data[0] + j * stride[0]);
        }
        return;
    }
    if (columns_run && n >= 4 && (side_by_side || short_rows) && r->count > 0 && r->count <= INT32_MAX) {
        yk__columns columns;
        char tile[TILE_BYTES] __attribute__((aligned(64)));
        int64_t most = YK__COLUMNS, row = (int64_t)r->in_size;
        if (short_rows) {
            most = TILE_BYTES / (r->count * row) < most ? TILE_BYTES / (r->count * row) : most;
            row *= most;
        }
        for (int64_t i = 0; i < n; i += most) {
            columns.width = n - i < most ? n - i : most;
            char *x = data[1] + i * stride[1];
            if (short_rows) {
                yk__transpose(tile, row, x, stride[1], r->count, columns.width, r->in_size);
                x = tile;
            }
            columns_start(r, &columns, x);
            if (short_rows)
                columns_run(&columns, 0, r->count, &x, &row);
            else
                feed_range(run, columns_run, &columns, x);
            if (!partial && finish_together(r, &columns, data[0] + i * stride[0], stride[0]))
                continue;
            for (int64_t j = 0; j < columns.width; j++) {
                state s = column_state(r, &columns, j);
                if (partial)
                    partial[i + j] = s;
                else
                    state_finish(r, &s, data[0] + (i + j) * stride[0]);
            }
        }
        return;
    }
    if (r->row_sums && inner->stride[0][0] == (int64_t)r->in_size) {
        for (int64_t i = 0; i < n; i += YK__COLUMNS) {
            double totals[YK__COLUMNS];
            int64_t m = n - i < YK__COLUMNS ? n - i : YK__COLUMNS;
            sum_rows(r, run, data[1] + i * stride[1], stride[1], m, totals);
            if (!partial)
                finish_totals(r, totals, data[0] + i * stride[0], stride[0], m);
            for (int64_t j = 0; partial && j < m; j++)
                partial[i + j] = (state){.a = totals[j], .at = -1};
        }
        return;
    }
    state s;
    feeding f = {r->feed, &s};
    for (int64_t i = 0; i < n; i++) {
        char *x = data[1] + i * stride[1];
        state_start(r, &s, x);
        feed_range(run, feed_run, &f, x);
        if (partial)
            partial[i] = s;
        else
            state_finish(r, &s, data[0] + i * stride[0]);
    }
}

/* Feeds units: a unit is a piece of a block of outputs. */
static void feed_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    const reduction *r = arg;
    int64_t blocks = yk__ceil_div(r->outer->total, r->block);
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t piece = r->pieces_first ? unit / blocks : unit % r->pieces;
        int64_t first = (r->pieces_first ? unit % blocks : unit / r->pieces) * r->block, last = first + r->block;
        int64_t from = piece * r->grain, to = from + r->grain;
        outputs_run run = {r, from < r->count ? from : r->count, to < r->count ? to : r->count, piece};
        yk__loop_job job = {r->outer, feed_outputs, &run};
        yk__loop_piece(&job, first, last < r->outer->total ? last : r->outer->total, thread);
    }
}

/*
 * Cuts a reduction into whole planes of inputs where computing one output after the other would jump over all others'
 * inputs (channels of images in C order). Inputs that are contiguous are read together: a piece of one block of
 * outputs, then of the next. At most PLANE_PIECES of them, of blocks of outputs that have at least PLANE_BLOCK elements
 * in a plane.
 */
enum { PLANE_PIECES = 16, LEAST_PLANES = 4, PLANE_BLOCK = 16384 };
static bool cut_at_planes(reduction *r)
{
    const yk__loop *inner = &r->inner, *outer = r->outer;
    int64_t plane = 1, least = yk__magnitude(outer->stride[0][1]);
    int64_t most = yk__magnitude(outer->stride[outer->ndim - 1][1]);
    int d = 0;
    for (; d < inner->ndim && yk__magnitude(inner->stride[d][0]) < least; d++)
        plane *= inner->shape[d];
    for (int high = d; high < inner->ndim; high++)
        if (yk__magnitude(inner->stride[high][0]) <= most)
            return false;
    int64_t planes = r->count / plane;
    if (d == 0 || planes < LEAST_PLANES || outer->total == 1)
        return false;
    r->grain = yk__ceil_div(planes, PLANE_PIECES) * plane;
    r->pieces = yk__ceil_div(r->count, r->grain);
    r->block = yk__ceil_div(PLANE_BLOCK, plane);
    r->pieces_first = true;
    return true;
}

static void cut(reduction *r)
{
    int64_t outputs = r->outer->total, work = r->count * outputs;
    bool side_by_side = outputs > 1 && r->outer->stride[0][1] == (int64_t)r->in_size;
    r->block = side_by_side ? outputs : 1;
    if (work <= YK__GRAIN || r->count == 0 || (!side_by_side && cut_at_planes(r)))
        return;
    if (outputs * YK__GRAIN >= 512 * r->count)
        return;
    r->pieces = work / PIECE_LEAST + 1 < MAX_PIECES ? work / PIECE_LEAST + 1 : MAX_PIECES;
    if (!side_by_side)
        r->pieces = yk__ceil_div(r->pieces, outputs);
    r->grain = yk__ceil_div(yk__ceil_div(r->count, r->pieces), PIECE_MULTIPLE) * PIECE_MULTIPLE;
}

static void merge_outputs(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)
{
    const reduction *r = context;
    for (int64_t i = 0; i < n; i++) {
        state s = r->partial[first + i];
        for (int64_t piece = 1; piece < r->pieces; piece++)
            merge(r, &s, &r->partial[piece * r->outer->total + first + i]);
        state_finish(r, &s, data[0] + i * stride[0]);
    }
}

static yk_status reduce(int device, yk__reduce op, const yk__view *out, const yk__view *in, double p0)
{
    reduction r = {.op = op, .in = in->dtype, .out = out->dtype, .pieces = 1, .p0 = p0};
    r.feed = feeds[op][in->dtype];
    if (!r.feed)
        return yk__fail(YK_ERR_DTYPE, "%s: not defined for %s", names[op], yk_dtype_name(in->dtype));
    r.row_sums = row_sums[op][in->dtype];
    r.in_size = yk_dtype_size(in->dtype);
    r.out_size = yk_dtype_size(out->dtype);
    yk__view kept = *in, reduced = *in;
    for (int d = 0; d < in->ndim; d++)
        *(out->shape[d] == in->shape[d] ? &reduced.shape[d] : &kept.shape[d]) = 1;
    const yk__view *reduced_views[] = {&reduced}, *kept_views[] = {&kept, out};
    /* The outputs in the order of the input's memory; operand 0 of the loop is what is written. */
    yk__loop outer;
    yk__loop_init(&r.inner, 1, reduced_views, op == YK__ARGMAX || op == YK__ARGMIN);
    yk__loop_init(&outer, 2, kept_views, false);
    char *swap = outer.data[0];
    outer.data[0] = outer.data[1];
    outer.data[1] = swap;
    for (int d = 0; d < outer.ndim; d++) {
        int64_t stride = outer.stride[d][0];
        outer.stride[d][0] = outer.stride[d][1];
        outer.stride[d][1] = stride;
    }
    r.outer = &outer;
    r.count = r.inner.total;
    if (outer.total == 0)
        return YK_OK;

    /* All bools of a column are true where the least is, and one is where the greatest is. */
    if (in->dtype == YK_BOOL && r.count > 0 && (op == YK__ALL || op == YK__ANY) && outer.total > 1 &&
        outer.stride[0][1] == 1) {
        r.op = op == YK__ALL ? YK__AMIN : YK__AMAX;
        r.feed = feeds[r.op][YK_BOOL];
    }
    cut(&r);
    if (r.pieces == 1) {
        outputs_run run = {&r, 0, r.count, 0};
        int64_t grain = YK__GRAIN / (r.count > 0 ? r.count : 1);
        int64_t least = outer.stride[0][1] == (int64_t)r.in_size ? YK__COLUMNS : 1;
        yk__loop_run(device, &outer, grain > least ? grain : least, feed_outputs, &run);
        return YK_OK;
    }
    yk__storage *handle = NULL;
    r.partial = yk__workspace_get((yk_device){YK_CPU, (int16_t)device},
                                  (size_t)(r.pieces * outer.total) * sizeof(state), &handle);
    if (!r.partial)
        return yk__error_code();
    yk__cpu_parallel(device, r.pieces * yk__ceil_div(outer.total, r.block), 1, feed_piece, &r);
    yk__loop_job job = {&outer, merge_outputs, &r};
    yk__loop_piece(&job, 0, outer.total, 0);
    yk__storage_release(handle);
    return YK_OK;
}

void YK__ISA_NAME(yk__cpu_fill_reduce)(yk__backend *table)
{
    table->reduce = reduce;
    YK__ISA_NAME(yk__cpu_fill_softmax)(table);
}
