/*
 * conv_planes.c - depthwise convolutions of maps in C order, windows of three columns and up to three rows with stride
 * 1. Layer: device/cpu.
 *
 * Vectors run along a row of a plane: a strip of as many columns as a vector has lanes goes down the plane, and a row
 * of the source, loaded once from each of three places, belongs to up to three rows of outputs, whose sums stay in
 * registers with the weights. In a gradient of the weight those are the sums of the taps, lane by lane, which are added
 * up when all images of a channel have passed. Lanes whose tap is outside the image leave it out, and nothing outside a
 * row is read or written there. Sums run over rows, then columns, as everywhere.
 *
 * Sums are cut at positions that the shapes fix: bits do not depend on threads.
 */
#include <string.h>

#include "device/cpu/conv/conv.h"
#include "device/cpu/gemm/gemm_micro.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

/* Shorter rows leave most lanes empty: maps repacked for conv_lanes.c are faster then. */
#if defined(__AVX512F__)
#define LEAST_COLUMNS 5
#else
#define LEAST_COLUMNS 7
#endif
/* A gradient of the weight: the products that a lane adds up before the sum is added to others; bytes of the planes
 * that are read one after the other of each map, so that the processor foresees them, and the most channels of these;
 * shares of the images, where there are few channels. */
#define SUM_LENGTH    128
#define BLOCK_BYTES   (8 * 1024)
#define MOST_CHANNELS 32
#define SHARES        16

/* A convolution from maps of n x channels planes of rows x columns to planes of out_rows x out_columns, dst or gout. */
struct planes {
    const void *src, *gout, *w, *bias;
    void *dst, *sums;
    int64_t n, channels, rows, columns, out_rows, out_columns, padding[2], src_image, dst_image;
    int64_t w_channel, w_tap[2];
    int64_t block, blocks, shares; /* channels of a block; blocks, and shares of the images */
    bool backward;                 /* the taps run from the last to the first */
};

/* The kernels by rows of a window - 1: the planes of a map, the sums of a weight's gradient; bytes of a vector. */
struct kernels {
    yk__range_fn map[3], sums[3];
    size_t bytes;
};

/*
 * For a vector type, some of its lanes: those from `first` to before `last`, which may be outside; a sum with a product
 * added in them; memory's values in them and 0 in the others; and storing them, which are the first n. Memory of other
 * lanes is not touched.
 */
#if defined(__AVX512F__)
#define LANES_OPS(name, T, V, M, I, intrinsics, s, raw)                                                                \
    typedef M some_##name;                                                                                             \
    static inline M lanes_##name(int64_t first, int64_t last)                                                          \
    {                                                                                                                  \
        const int64_t width = (int64_t)(sizeof(V) / sizeof(T));                                                        \
        first = first < 0 ? 0 : first < width ? first : width;                                                         \
        last = last < first ? first : last < width ? last : width;                                                     \
        return (M)((1u << last) - (1u << first));                                                                      \
    }                                                                                                                  \
    static inline V fma_where_##name(V sum, V x, V w, M some)                                                          \
    {                                                                                                                  \
        return (V)intrinsics##_mask3_fmadd_##s((raw)x, (raw)w, (raw)sum, some);                                        \
    }                                                                                                                  \
    static inline V load_where_##name(const T *from, M some)                                                           \
    {                                                                                                                  \
        return (V)intrinsics##_maskz_loadu_##s(some, from);                                                            \
    }                                                                                                                  \
    static inline void store_where_##name(T *to, V v, M some, int64_t n)                                               \
    {                                                                                                                  \
        (void)n;                                                                                                       \
        intrinsics##_mask_storeu_##s(to, some, (raw)v);                                                                \
    }
#else
#if defined(__AVX2__)
#define BY_LANES(name, T, V, intrinsics, s, raw)                                                                       \
    static inline V fma_where_##name(V sum, V x, V w, some_##name some)                                                \
    {                                                                                                                  \
        return (V)intrinsics##_blendv_##s((raw)sum, (raw)(sum + x * w), (raw)some);                                    \
    }                                                                                                                  \
    static inline V load_where_##name(const T *from, some_##name some)                                                 \
    {                                                                                                                  \
        return (V)intrinsics##_maskload_##s(from, (__m256i)some);                                                      \
    }
#else
#define BY_LANES(name, T, V, intrinsics, s, raw)                                                                       \
    static inline V fma_where_##name(V sum, V x, V w, some_##name some)                                                \
    {                                                                                                                  \
        V added = sum + x * w;                                                                                         \
        return (V)(((some_##name)added & some) | ((some_##name)sum & ~some));                                          \
    }                                                                                                                  \
    static inline V load_where_##name(const T *from, some_##name some)                                                 \
    {                                                                                                                  \
        V v = {0};                                                                                                     \
        for (size_t i = 0; i < sizeof(V) / sizeof(T); i++)                                                             \
            if (some[i])                                                                                               \
                v[i] = from[i];                                                                                        \
        return v;                                                                                                      \
    }
#endif
/* Partial stores of AVX2 are slow. */
#define LANES_OPS(name, T, V, M, I, intrinsics, s, raw)                                                                \
    typedef I some_##name __attribute__((vector_size(sizeof(V))));                                                     \
    static inline some_##name lanes_##name(int64_t first, int64_t last)                                                \
    {                                                                                                                  \
        some_##name some = {0};                                                                                        \
        for (int64_t i = 0; i < (int64_t)(sizeof(V) / sizeof(T)); i++)                                                 \
            some[i] = i >= first && i < last ? -1 : 0;                                                                 \
        return some;                                                                                                   \
    }                                                                                                                  \
    static inline void store_where_##name(T *to, V v, some_##name some, int64_t n)                                     \
    {                                                                                                                  \
        (void)some;                                                                                                    \
        if (n >= (int64_t)(sizeof(V) / sizeof(T)))                                                                     \
            memcpy(to, &v, sizeof v);                                                                                  \
        else                                                                                                           \
            for (int64_t i = 0; i < n; i++)                                                                            \
                to[i] = v[i];                                                                                          \
    }                                                                                                                  \
    BY_LANES(name, T, V, intrinsics, s, raw)
#endif

#define TYPED(name) TYPED_(name)
#define FMA_WHERE   TYPED(fma_where)
#define LOAD_WHERE  TYPED(load_where)
#define STORE_WHERE TYPED(store_where)
#define LANES       TYPED(lanes)
#define M           TYPED(some)

typedef float v_f32_16 __attribute__((vector_size(16)));
typedef double v_f64_16 __attribute__((vector_size(16)));
#if defined(__AVX512F__)
typedef float v_f32_64 __attribute__((vector_size(64)));
typedef float vu_f32_64 __attribute__((vector_size(64), aligned(4), may_alias));
LANES_OPS(f32_64, float, v_f32_64, __mmask16, int32_t, _mm512, ps, __m512)
#define T            float
#define V            v_f32_64
#define VU           vu_f32_64
#define Q            v_f32_16
#define TYPED_(name) name##_f32_64
#include "device/cpu/conv/conv_planes_body.h"
#undef T
#undef V
#undef VU
#undef Q
#undef TYPED_

typedef double v_f64_64 __attribute__((vector_size(64)));
typedef double vu_f64_64 __attribute__((vector_size(64), aligned(8), may_alias));
LANES_OPS(f64_64, double, v_f64_64, __mmask8, int64_t, _mm512, pd, __m512d)
#define T            double
#define V            v_f64_64
#define VU           vu_f64_64
#define Q            v_f64_16
#define TYPED_(name) name##_f64_64
#include "device/cpu/conv/conv_planes_body.h"
#undef T
#undef V
#undef VU
#undef Q
#undef TYPED_
#endif

#if defined(__AVX2__)
typedef float v_f32_32 __attribute__((vector_size(32)));
typedef float vu_f32_32 __attribute__((vector_size(32), aligned(4), may_alias));
LANES_OPS(f32_32, float, v_f32_32, __mmask8, int32_t, _mm256, ps, __m256)
#define T            float
#define V            v_f32_32
#define VU           vu_f32_32
#define Q            v_f32_16
#define TYPED_(name) name##_f32_32
#include "device/cpu/conv/conv_planes_body.h"
#undef T
#undef V
#undef VU
#undef Q
#undef TYPED_

typedef double v_f64_32 __attribute__((vector_size(32)));
typedef double vu_f64_32 __attribute__((vector_size(32), aligned(8), may_alias));
LANES_OPS(f64_32, double, v_f64_32, __mmask8, int64_t, _mm256, pd, __m256d)
#define T            double
#define V            v_f64_32
#define VU           vu_f64_32
#define Q            v_f64_16
#define TYPED_(name) name##_f64_32
#include "device/cpu/conv/conv_planes_body.h"
#undef T
#undef V
#undef VU
#undef Q
#undef TYPED_
#else
typedef float vu_f32_16 __attribute__((vector_size(16), aligned(4), may_alias));
LANES_OPS(f32_16, float, v_f32_16, __mmask8, int32_t, _mm, ps, __m128)
#define T            float
#define V            v_f32_16
#define VU           vu_f32_16
#define Q            v_f32_16
#define TYPED_(name) name##_f32_16
#include "device/cpu/conv/conv_planes_body.h"
#undef T
#undef V
#undef VU
#undef Q
#undef TYPED_

typedef double vu_f64_16 __attribute__((vector_size(16), aligned(8), may_alias));
LANES_OPS(f64_16, double, v_f64_16, __mmask8, int64_t, _mm, pd, __m128d)
#define T            double
#define V            v_f64_16
#define VU           vu_f64_16
#define Q            v_f64_16
#define TYPED_(name) name##_f64_16
#include "device/cpu/conv/conv_planes_body.h"
#undef T
#undef V
#undef VU
#undef Q
#undef TYPED_
#endif

/* The widest vectors first. */
static const struct kernels *const of_f32[] = {
#if defined(__AVX512F__)
    &kernels_f32_64,
#endif
#if defined(__AVX2__)
    &kernels_f32_32,
#else
    &kernels_f32_16,
#endif
};
static const struct kernels *const of_f64[] = {
#if defined(__AVX512F__)
    &kernels_f64_64,
#endif
#if defined(__AVX2__)
    &kernels_f64_32,
#else
    &kernels_f64_16,
#endif
};

/* The kernels of the narrowest vectors that a row fits in, or of the widest. */
static const struct kernels *kernels_of(yk_dtype dtype, int64_t columns)
{
    const struct kernels *const *all = dtype == YK_F32 ? of_f32 : of_f64, *best = all[0];
    for (size_t i = 1; i < sizeof of_f32 / sizeof *of_f32; i++)
        if (columns * (int64_t)yk_dtype_size(dtype) <= (int64_t)all[i]->bytes)
            best = all[i];
    return best;
}

/* True for planes that are next to each other, with rows in C order, and no other order that they could be meant in. */
static bool in_planes(const yk__view *v)
{
    return v->stride[3] == 1 && v->stride[2] == v->shape[3] && v->stride[1] == v->shape[2] * v->shape[3];
}

bool yk__conv_planes_applies(const yk__conv2d *p, const yk__view *x_or_gx, const yk__view *w,
                             const yk__view *out_or_gout)
{
    if (x_or_gx->dtype != YK_F32 && x_or_gx->dtype != YK_F64)
        return false;
    for (int d = 0; d < 2; d++)
        if (p->stride[d] != 1 || p->dilation[d] != 1 || p->padding[d] >= w->shape[2 + d])
            return false;
    return p->groups > 1 && w->shape[0] == p->groups && w->shape[1] == 1 && x_or_gx->shape[1] == p->groups &&
           w->shape[2] <= 3 && w->shape[3] == 3 && x_or_gx->shape[3] >= LEAST_COLUMNS &&
           out_or_gout->shape[3] >= LEAST_COLUMNS && in_planes(x_or_gx) && in_planes(out_or_gout);
}

/* The planes of two maps; strides are those of w or of its gradient. */
static struct planes planes_of(const yk__view *src, const yk__view *out, const yk__view *w)
{
    return (struct planes){.n = src->shape[0],
                           .channels = src->shape[1],
                           .rows = src->shape[2],
                           .columns = src->shape[3],
                           .out_rows = out->shape[2],
                           .out_columns = out->shape[3],
                           .src = src->data,
                           .src_image = src->stride[0],
                           .dst_image = out->stride[0],
                           .w = w->data,
                           .w_channel = w->stride[0],
                           .w_tap = {w->stride[2], w->stride[3]}};
}

static yk_status run_map(int device, const struct planes *p, const yk__view *w)
{
    int64_t plane = p->rows * p->columns, grain = BLOCK_BYTES / (plane + 1) / 4;
    yk__cpu_parallel(device, p->n * p->channels, grain > 1 ? grain : 1,
                     kernels_of((yk_dtype)w->dtype, p->out_columns)->map[w->shape[2] - 1], (void *)p);
    return YK_OK;
}

yk_status yk__conv_planes_forward(int device, const yk__conv2d *p, const yk__view *out, const yk__view *x,
                                  const yk__view *w, const yk__view *bias)
{
    struct planes of = planes_of(x, out, w);
    of.dst = out->data;
    of.bias = bias ? bias->data : NULL;
    of.padding[0] = p->padding[0], of.padding[1] = p->padding[1];
    return run_map(device, &of, w);
}

yk_status yk__conv_planes_backward_input(int device, const yk__conv2d *p, const yk__view *gx, const yk__view *gout,
                                         const yk__view *w)
{
    struct planes of = planes_of(gout, gx, w);
    of.dst = gx->data;
    of.backward = true;
    for (int d = 0; d < 2; d++)
        of.padding[d] = w->shape[2 + d] - 1 - p->padding[d];
    return run_map(device, &of, w);
}

struct total {
    const struct planes *planes;
    const yk__view *gw;
};

/* Writes channels of the gradient: the sums of the shares, in order. */
#define TOTAL_PIECE(name, T)                                                                                           \
    static void total_piece_##name(void *arg, int64_t begin, int64_t end, int thread)                                  \
    {                                                                                                                  \
        (void)thread;                                                                                                  \
        const struct total *t = arg;                                                                                   \
        const struct planes *p = t->planes;                                                                            \
        const int64_t *stride = t->gw->stride, taps = t->gw->shape[2] * 3;                                             \
        for (int64_t c = begin; c < end; c++)                                                                          \
            for (int64_t k = 0; k < taps; k++) {                                                                       \
                const T *sums = (const T *)p->sums + c * taps + k;                                                     \
                T total = 0;                                                                                           \
                for (int64_t share = 0; share < p->shares; share++)                                                    \
                    total += sums[share * p->channels * taps];                                                         \
                ((T *)t->gw->data)[c * stride[0] + k / 3 * stride[2] + k % 3 * stride[3]] = total;                     \
            }                                                                                                          \
    }
TOTAL_PIECE(f32, float)
TOTAL_PIECE(f64, double)

yk_status yk__conv_planes_backward_weight(int device, const yk__conv2d *p, const yk__view *gw, const yk__view *gout,
                                          const yk__view *x)
{
    struct planes of = planes_of(x, gout, gw);
    int64_t size = (int64_t)yk_dtype_size((yk_dtype)gw->dtype), rows = gw->shape[2];
    of.gout = gout->data;
    of.padding[0] = p->padding[0], of.padding[1] = p->padding[1];
    of.block = BLOCK_BYTES / (of.rows * of.columns * size + 1);
    of.block = of.block < 1 ? 1 : of.block < MOST_CHANNELS ? of.block : MOST_CHANNELS;
    of.blocks = yk__ceil_div(of.channels, of.block);
    of.shares = SHARES / (of.blocks + 1) < of.n ? SHARES / (of.blocks + 1) : of.n;
    of.shares = of.shares < 1 ? 1 : of.shares;
    yk__storage *handle;
    of.sums = yk__workspace_get((yk_device){YK_CPU, (int16_t)device},
                                (size_t)(of.shares * of.channels * rows * 3 * size), &handle);
    if (!of.sums)
        return yk__error_code();
    yk__cpu_parallel(device, of.blocks * of.shares, 1, kernels_of((yk_dtype)gw->dtype, of.out_columns)->sums[rows - 1],
                     &of);
    struct total total = {&of, gw};
    yk__cpu_parallel(device, of.channels, 256, gw->dtype == YK_F32 ? total_piece_f32 : total_piece_f64, &total);
    yk__storage_release(handle);
    return YK_OK;
}
