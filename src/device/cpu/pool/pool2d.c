/*
 * pool2d.c - max, average and adaptive average pooling. Layer: device/cpu.
 *
 * Two ways through memory. Where channels are innermost (channels_last, and [H][W][N][C], where the channels of a
 * whole batch lie next to each other) a window is a handful of long runs that are folded together in vectors. For all
 * other strides it goes plane by plane, where rows are dense by sixteen outputs of a row (pool2d_lanes.h); halving a
 * map by 2x2 windows has a path of its own.
 *
 * Invariants: backward over runs gathers, each input position once, in the order of the outputs; backward over planes
 * clears and scatters, a plane on one thread. Neither depends on the number of threads.
 */
#include <math.h>
#include <string.h>

#include "device/cpu/conv/conv.h"
#include "device/cpu/partial_vectors.h"

enum {
    RUN_CHUNK = 2048,   /* elements of a run folded at a time: they stay in L1 */
    MOST_TAPS = 16,     /* taps of a window folded at a time */
    MOST_LANE_TAPS = 8, /* taps along a row, where neighbours are done together */
    SUM_BLOCK = 4096,   /* elements added up in float before double takes over */
    GRAIN = 1 << 15     /* elements in a piece of work, at least */
};

/* One side of a pooling: x or gx, out or gout. */
typedef struct side {
    void *data;
    int64_t h, w;
    int64_t n_step, c_step, h_step, w_step;
    int64_t total; /* elements from `data` on where there are no gaps, else 0 */
} side;

/* The outputs whose windows may hold an input coordinate: [first, last], empty if last < first. So many coordinates
 * from this one on have the same. */
typedef struct cover {
    int64_t first, last, same;
} cover;

/* The inputs of an output coordinate, [low, high), and its size before it was cut to the input. */
typedef struct window {
    int64_t low, high, full;
} window;

/* The sources of an element of a row: `taps` elements of the other side's row from `first` on, `step` apart; those of
 * them that exist. */
typedef struct lane_reads {
    int64_t first, taps, step;
} lane_reads;

/* Tap t of lane l's result is element base + tap[t].from[l], where the mask has l. */
typedef struct lane_piece {
    int64_t at, count;   /* the lanes: elements at to at + count - 1 of a row that is written */
    int64_t base, reach; /* the elements that they read: base to base + reach - 1 */
    int taps;
    struct {
        int32_t from[16], mask;
    } tap[MOST_LANE_TAPS];
    int32_t lanes;     /* `count` bits */
    int32_t empty;     /* maximum: lanes whose windows hold no input */
    float inverse[32]; /* averages: 1 over the inputs of a window of the usual rows, forward in the lanes, backward as
                          they are read */
} lane_piece;

typedef struct pooling {
    const yk__pool2d *p; /* NULL: adaptive */
    side in, out, index;
    int64_t channels, run; /* run: elements of a position that lie next to each other, 0: go by planes */
    bool halves;           /* 2x2 windows, stride 2, dense rows */
    int pairs;             /* halving rows so short that this many pairs of them fill two vectors; else 0 */
    int32_t corner[16];    /* for `pairs`: the position in those vectors of the window of each output */
    int32_t owner[2][16];  /* and the output whose window each input is in */
    const cover *rows, *cols;
    const window *row_windows, *col_windows;
    lane_piece *piece;       /* planes with dense rows */
    int64_t pieces;          /* 0: not in lanes */
    int taps;                /* of a lane, at most */
    bool two;                /* some piece reads more than one vector */
    bool paired;             /* averages: the only piece is two rows of outputs */
    bool single;             /* their gradient: there is one piece, and at most two windows share a row */
    const float *row_factor; /* averages in lanes: what the rows of each window change in `inverse`; NULL: nothing */
    yk__storage *tables;
} pooling;

static inline int64_t offset(const side *s, int64_t n, int64_t y, int64_t x)
{
    return n * s->n_step + y * s->h_step + x * s->w_step;
}

/* The size of a window along rows; an average divides by its product with that along columns. */
static inline double row_size(const pooling *j, const window *y)
{
    if (j->p && j->p->divisor)
        return (double)j->p->divisor;
    return (double)(j->p && j->p->count_exclude_pad ? y->high - y->low : y->full);
}

static inline double col_size(const pooling *j, const window *x)
{
    if (j->p && j->p->divisor)
        return 1;
    return (double)(j->p && j->p->count_exclude_pad ? x->high - x->low : x->full);
}

static inline double divisor(const pooling *j, const window *y, const window *x)
{
    return row_size(j, y) * col_size(j, x);
}

/* ---- folding the taps of a window over a run, in vectors --------------------------------------------------------- */

/* Folds maxima as max_fold of pool2d_body.h does, for the elements that fill whole vectors; returns the number of
 * those. */

#ifdef __AVX512F__
static inline __mmask16 first_lanes(int64_t n)
{
    return n >= 16 ? 0xFFFF : n <= 0 ? 0 : (__mmask16)((1u << n) - 1);
}

static inline void max_take(__m512 *m, __m512i *k, __m512 v, __m512i at)
{
    __mmask16 take = _mm512_cmp_ps_mask(v, *m, _CMP_GT_OQ) | _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    *m = _mm512_mask_mov_ps(*m, take, v);
    *k = _mm512_mask_mov_epi32(*k, take, at);
}

static int64_t max_vectors_f32(int taps, bool first, float *best, int32_t *index, const float *const *x,
                               const int32_t *at, int64_t n, int fetches, const float *const *fetch)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        for (int f = 0; f < fetches; f++)
            __builtin_prefetch(fetch[f] + i);
        __m512 m = _mm512_loadu_ps(first ? x[0] + i : best + i);
        __m512i k = first ? _mm512_set1_epi32(at[0]) : _mm512_loadu_si512(index + i);
        for (int t = first; t < taps; t++)
            max_take(&m, &k, _mm512_loadu_ps(x[t] + i), _mm512_set1_epi32(at[t]));
        _mm512_storeu_ps(best + i, m);
        _mm512_storeu_si512(index + i, k);
    }
    return i;
}
#else
static int64_t max_vectors_f32(int taps, bool first, float *best, int32_t *index, const float *const *x,
                               const int32_t *at, int64_t n, int fetches, const float *const *fetch)
{
    typedef int32_t vi32 __attribute__((vector_size(YK__VECTOR_BYTES)));
    typedef int32_t vi32u __attribute__((vector_size(YK__VECTOR_BYTES), aligned(4), may_alias));
    enum { LANES = YK__VECTOR_BYTES / 4 };
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int f = 0; f < fetches; f++)
            __builtin_prefetch(fetch[f] + i);
        yk__vf32 m = *(const yk__vf32u *)(first ? x[0] + i : best + i);
        vi32 k = first ? at[0] - (vi32){0} : (vi32) * (vi32u *)(index + i);
        for (int t = first; t < taps; t++) {
            yk__vf32 v = *(const yk__vf32u *)(x[t] + i);
            vi32 take = (v > m) | (v != v);
            m = (yk__vf32)((take & (vi32)v) | (~take & (vi32)m));
            k = (take & at[t]) | (~take & k);
        }
        *(yk__vf32u *)(best + i) = m;
        *(vi32u *)(index + i) = k;
    }
    return i;
}
#endif

/* No elements: float64 is for checking, and the plain loop will do. */
static int64_t max_vectors_f64(int taps, bool first, double *best, int32_t *index, const double *const *x,
                               const int32_t *at, int64_t n, int fetches, const double *const *fetch)
{
    (void)taps, (void)first, (void)best, (void)index, (void)x, (void)at, (void)n, (void)fetches, (void)fetch;
    return 0;
}

#include "device/cpu/pool/pool2d_halves.h"

#include "device/cpu/pool/pool2d_lanes.h"

#define T       float
#define V       yk__vf32
#define VU      yk__vf32u
#define NAME(x) x##_f32
#include "device/cpu/pool/pool2d_body.h"
#undef T
#undef V
#undef VU
#undef NAME
#define T       double
#define V       yk__vf64
#define VU      yk__vf64u
#define NAME(x) x##_f64
#include "device/cpu/pool/pool2d_body.h"
#undef T
#undef V
#undef VU
#undef NAME

/* ---- the slots --------------------------------------------------------------------------------------------------- */

static side side_of(const yk__view *v)
{
    int64_t total = yk__view_contiguous(v) ? yk__view_numel(v) : 0;
    return (side){v->data, v->shape[2], v->shape[3], v->stride[0], v->stride[1], v->stride[2], v->stride[3], total};
}

/* Fills in the windows of one axis: of a pooling, or the adaptive ones. */
static void fill_windows(window *to, const yk__pool2d *p, int d, int64_t in, int64_t out)
{
    for (int64_t o = 0; o < out; o++) {
        window *w = &to[o];
        if (!p) {
            w->low = o * in / out;
            w->high = ((o + 1) * in + out - 1) / out;
            w->full = w->high - w->low;
            continue;
        }
        int64_t low = o * p->stride[d] - p->padding[d], high = low + p->kernel[d];
        high = high < in + p->padding[d] ? high : in + p->padding[d];
        w->full = high - low;
        w->low = low > 0 ? low : 0;
        w->high = high < in ? high : in;
    }
}

/* Fills in the same seen from the inputs; windows start and end in rising order. */
static void fill_covers(cover *to, const yk__pool2d *p, int d, const window *windows, int64_t in, int64_t out)
{
    int64_t first = 0, last = -1;
    for (int64_t i = 0; i < in; i++) {
        if (windows) {
            while (first < out && windows[first].high <= i)
                first++;
            while (last + 1 < out && windows[last + 1].low <= i)
                last++;
        } else { /* maximum: dilation leaves holes, which the index tells apart */
            int64_t reach = i + p->padding[d] - (p->kernel[d] - 1) * p->dilation[d];
            first = reach > 0 ? (reach + p->stride[d] - 1) / p->stride[d] : 0;
            last = (i + p->padding[d]) / p->stride[d];
            last = last < out ? last : out - 1;
        }
        to[i] = (cover){first, last, 1};
    }
    for (int64_t i = in - 2; i >= 0; i--)
        to[i].same += to[i].first == to[i + 1].first && to[i].last == to[i + 1].last ? to[i + 1].same : 0;
}

/* The length of a run: the channels where they are innermost in all views (NULLs aside), of the whole batch where the
 * images follow; 0 for any other layout. */
static int64_t find_run(const yk__view *const views[3])
{
    int64_t n = views[0]->shape[0], channels = views[0]->shape[1];
    bool joined = true;
    for (int i = 0; i < 3; i++) {
        const yk__view *v = views[i];
        if (v && channels > 1 && v->stride[1] != 1)
            return 0;
        if (v && n > 1 && v->stride[0] != channels)
            joined = false;
    }
    int64_t run = joined ? n * channels : channels;
    return run > 1 ? run : 0;
}

static bool halves(const yk__pool2d *p, const yk__view *in, const yk__view *out, const yk__view *index)
{
    for (int d = 0; d < 2; d++) {
        if (p->kernel[d] != 2 || p->stride[d] != 2 || p->padding[d] || p->dilation[d] != 1 ||
            in->shape[2 + d] < 2 * out->shape[2 + d])
            return false;
    }
    return in->stride[3] == 1 && out->stride[3] == 1 && index->stride[3] == 1;
}

/* Sets the pairs of rows that are halved at a time, where rows have at most 16 elements and lie close together. */
static void find_pairs(pooling *j)
{
#ifdef __AVX512F__
    if (j->in.w > 16 || j->in.w != 2 * j->out.w || j->in.h != 2 * j->out.h || j->in.h_step != j->in.w ||
        j->out.h_step != j->out.w || j->index.h_step != j->out.w)
        return;
    int width = (int)j->in.w;
    j->pairs = 16 / width;
    for (int i = 0; i < j->pairs * width / 2; i++)
        j->corner[i] = i / (width / 2) * 2 * width + i % (width / 2) * 2;
    for (int i = 0; i < j->pairs * 2 * width; i++)
        j->owner[i / 16][i % 16] = i / (2 * width) * (width / 2) + i % width / 2;
#else
    (void)j;
#endif
}

/* The tables that are needed. */
enum { WINDOWS = 1, COVERS = 2 };

/* True if a plane may go in lanes: all but windows that hold whole rows, whose sums are of contiguous elements, the
 * gradient of a maximum, which scatters, and maps that are halved. */
static bool takes_lanes(const pooling *j, const yk__view *in, const yk__view *out, const yk__view *index, int tables)
{
    bool dense = in->stride[3] == 1 && out->stride[3] == 1 && (!index || index->stride[3] == 1);
    return dense && !j->run && in->dtype == YK_F32 && j->out.w > 1 && !(index && (j->halves || tables & COVERS));
}

static yk_status tables_prepare(int device, pooling *j, const yk__view *in, const yk__view *out, const yk__view *index,
                                int tables)
{
    j->in = side_of(in);
    j->out = side_of(out);
    if (index)
        j->index = side_of(index);
    j->channels = in->shape[1];
    j->run = find_run((const yk__view *const[]){in, out, index});
    j->halves = index && halves(j->p, in, out, index);
    if (j->halves && !j->run && in->dtype == YK_F32)
        find_pairs(j);
    bool lanes = takes_lanes(j, in, out, index, tables);
    if (index && !j->run) /* by planes the index says it all */
        tables = 0;
    if (!tables && !lanes)
        return YK_OK;
    bool backward = tables & COVERS;
    int64_t written = !lanes ? 0 : backward ? j->in.w : j->out.w;
    size_t windows = (size_t)(tables & WINDOWS ? j->out.h + j->out.w : 0);
    size_t covers = (size_t)(tables & COVERS ? j->in.h + j->in.w : 0);
    size_t bytes = windows * sizeof(window) + covers * sizeof(cover);
    bytes += (size_t)written * (sizeof(lane_piece) + sizeof(lane_reads));
    bytes += lanes ? (size_t)j->out.h * sizeof(float) : 0;
    window *w = yk__workspace_get((yk_device){YK_CPU, (int16_t)device}, bytes, &j->tables);
    if (!w)
        return yk__error_code();
    cover *c = (cover *)(w + windows);
    if (tables & WINDOWS) {
        fill_windows(w, j->p, 0, j->in.h, j->out.h);
        fill_windows(w + j->out.h, j->p, 1, j->in.w, j->out.w);
        j->row_windows = w;
        j->col_windows = w + j->out.h;
    }
    if (tables & COVERS) {
        fill_covers(c, j->p, 0, j->row_windows, j->in.h, j->out.h);
        fill_covers(c + j->in.h, j->p, 1, j->col_windows, j->in.w, j->out.w);
        j->rows = c;
        j->cols = c + j->in.h;
    }
    if (lanes) {
        lane_reads *reads = (lane_reads *)(c + covers);
        j->piece = (lane_piece *)(reads + written);
        for (int64_t i = 0; i < written; i++) {
            if (backward)
                reads[i] = (lane_reads){j->cols[i].first, j->cols[i].last - j->cols[i].first + 1, 1};
            else if (index)
                reads[i] = (lane_reads){i * j->p->stride[1] - j->p->padding[1], j->p->kernel[1], j->p->dilation[1]};
            else
                reads[i] = (lane_reads){j->col_windows[i].low, j->col_windows[i].high - j->col_windows[i].low, 1};
        }
        prepare_lanes(j, reads, written, backward ? j->out.w : j->in.w, (float *)(j->piece + written), backward);
    }
    return YK_OK;
}

/* Runs over the items: over runs an item is a row of `of` with all that is in the run, over planes a plane. */
static void go(int device, pooling *j, const yk__view *of, yk__range_fn runs, yk__range_fn planes)
{
    int64_t plane = of->shape[2] * of->shape[3];
    if (yk__view_numel(of) > 0) {
        int64_t items = j->run ? yk__view_numel(of) / (of->shape[3] * j->run) : of->shape[0] * j->channels;
        int64_t size = j->run ? of->shape[3] * j->run : plane;
        int64_t grain = size < GRAIN ? GRAIN / size : 1;
        yk__cpu_parallel(device, items, grain, j->run ? runs : planes, j);
    }
    yk__storage_release(j->tables);
}

static yk_status max_pool2d(int device, const yk__pool2d *p, const yk__view *out, const yk__view *index,
                            const yk__view *x)
{
    pooling j = {.p = p};
    yk_status status = tables_prepare(device, &j, x, out, index, 0);
    if (status)
        return status;
    if (x->dtype == YK_F32)
        go(device, &j, out, max_runs_f32, max_planes_f32);
    else
        go(device, &j, out, max_runs_f64, max_planes_f64);
    return YK_OK;
}

/* Repacks a gradient in C order, as it comes from a layer that is not a map, like its map, whose channels are
 * innermost: else one of the two would be walked with large strides. */
static yk_status like_map(int device, const yk__view *gx, const yk__view *gout, const yk__view *index,
                          yk__conv_map *map)
{
    *map = (yk__conv_map){.view = *gout};
    if (gx->shape[1] == 1 || gx->stride[1] != 1 || (index && index->stride[1] != 1))
        return YK_OK;
    return yk__conv_inner(device, gout, true, map);
}

static yk_status max_pool2d_backward(int device, const yk__pool2d *p, const yk__view *gx, const yk__view *gout,
                                     const yk__view *index)
{
    pooling j = {.p = p};
    yk__conv_map map;
    yk_status status = like_map(device, gx, gout, index, &map);
    if (!status)
        status = tables_prepare(device, &j, gx, &map.view, index, COVERS);
    if (!status && gx->dtype == YK_F32)
        go(device, &j, gx, max_grad_runs_f32, max_grad_planes_f32);
    else if (!status)
        go(device, &j, gx, max_grad_runs_f64, max_grad_planes_f64);
    yk__conv_inner_release(&map);
    return status;
}

static yk_status average(int device, const yk__pool2d *p, const yk__view *out, const yk__view *x)
{
    pooling j = {.p = p};
    yk_status status = tables_prepare(device, &j, x, out, NULL, WINDOWS);
    if (status)
        return status;
    if (x->dtype == YK_F32)
        go(device, &j, out, average_runs_f32, average_planes_f32);
    else
        go(device, &j, out, average_runs_f64, average_planes_f64);
    return YK_OK;
}

static yk_status average_backward(int device, const yk__pool2d *p, const yk__view *gx, const yk__view *gout)
{
    pooling j = {.p = p};
    yk__conv_map map;
    yk_status status = like_map(device, gx, gout, NULL, &map);
    if (!status)
        status = tables_prepare(device, &j, gx, &map.view, NULL, WINDOWS | COVERS);
    if (!status && gx->dtype == YK_F32)
        go(device, &j, gx, average_grad_runs_f32, average_grad_planes_f32);
    else if (!status)
        go(device, &j, gx, average_grad_runs_f64, average_grad_planes_f64);
    yk__conv_inner_release(&map);
    return status;
}

static yk_status avg_pool2d(int device, const yk__pool2d *p, const yk__view *out, const yk__view *x)
{
    return average(device, p, out, x);
}

static yk_status avg_pool2d_backward(int device, const yk__pool2d *p, const yk__view *gx, const yk__view *gout)
{
    return average_backward(device, p, gx, gout);
}

static yk_status adaptive_avg_pool2d(int device, const yk__view *out, const yk__view *x)
{
    return average(device, NULL, out, x);
}

static yk_status adaptive_avg_pool2d_backward(int device, const yk__view *gx, const yk__view *gout)
{
    return average_backward(device, NULL, gx, gout);
}

void YK__ISA_NAME(yk__cpu_fill_pool2d)(yk__backend *table)
{
    table->max_pool2d = max_pool2d;
    table->max_pool2d_backward = max_pool2d_backward;
    table->avg_pool2d = avg_pool2d;
    table->avg_pool2d_backward = avg_pool2d_backward;
    table->adaptive_avg_pool2d = adaptive_avg_pool2d;
    table->adaptive_avg_pool2d_backward = adaptive_avg_pool2d_backward;
}
