/*
 * grid_points.c - planes read at the points of a grid, and the gradients of both. Layer: device/cpu.
 *
 * A point of the result is a sum of elements of a plane, its taps: 1, 2 or 4 along each dimension, each with a weight.
 * They are the same in every channel: those of a block of points are computed at once, in vectors, and then taken from
 * one plane after the other. A tap outside the plane has the offset ABSENT. Where a block has none and is bilinear in
 * two dimensions, neighbours along a row are loaded together.
 *
 * The gradient of a plane is added up by one thread, point after point. That of the grid is a sum over the channels of
 * gout times each tap, which the slopes of the weights turn into one of coordinates.
 *
 * Invariant: nothing is fused (Makefile: UNFUSED), and sums are in the order of points, taps and channels: no bit
 * depends on the number of threads or the instruction set.
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "device/cpu/cpu.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

/* TAPS: of a block, at least as many as one point has; AXIS: along one dimension. */
enum { ABSENT = -1, TAPS = 4096, POINTS = 1024, AXIS = 2 * POINTS, MOST_AXES = 3, MOST = 4, MOST_TAPS = 16 };

typedef struct sampling {
    const yk__grid_sampling *how;
    const yk__view *x, *grid, *gout; /* gout: of the gradients alone */
    const yk__view *out;             /* the result, or the gradient that is made */
    int axes, taps, all;             /* taps along a dimension, and of a point */
    bool slopes;                     /* of the weights are wanted */
    int64_t size[MOST_AXES];         /* of the plane; [0] is its last dimension */
    int64_t channels, plane, points; /* elements of a plane of x, of the result */
    int64_t block, blocks;           /* points of a block, blocks of an image */
    int64_t group, groups;           /* channels that are done together, of an image */
    char *scratch;                   /* of each thread */
    size_t scratch_bytes;
} sampling;

/* The taps of a block. Tap k of point i is at [k block + i]. Along a dimension: `at`, its weight and the derivative of
 * that by the coordinate. */
#define SCRATCH(T, S)                                                                                                  \
    typedef struct scratch_##S {                                                                                       \
        bool holes; /* some taps are absent */                                                                         \
        int32_t offset[TAPS];                                                                                          \
        T weight[TAPS], sum[TAPS];                                                                                     \
        T position[POINTS], scale[POINTS];                                                                             \
        struct {                                                                                                       \
            int32_t at[AXIS];                                                                                          \
            T weight[AXIS], slope[AXIS];                                                                               \
        } axis[MOST_AXES];                                                                                             \
    } scratch_##S;
/* clang-format off */
SCRATCH(float, f32)
SCRATCH(double, f64)
/* clang-format on */

#define FLOOR_f32(v) __builtin_floorf(v)
#define FLOOR_f64(v) __builtin_floor(v)
#define EVEN_f32(v)  __builtin_rintf(v)
#define EVEN_f64(v)  __builtin_rint(v)
#define ABS_f32(v)   __builtin_fabsf(v)
#define ABS_f64(v)   __builtin_fabs(v)

#define COORDINATES(T, S)                                                                                              \
    /* A coordinate on the border or reflected there; *slope gets its derivative. low: where reflection is. */         \
    static inline T bounded_##S(T at, yk__grid_padding padding, T low, T span, T last, T *slope)                       \
    {                                                                                                                  \
        T sign = 1;                                                                                                    \
        if (padding == YK__GRID_PADDING_REFLECTION) {                                                                  \
            T way = at - low, distance = ABS_##S(way);                                                                 \
            T turns = span > 0 ? FLOOR_##S(distance / span) : 0, rest = distance - turns * span;                       \
            bool odd = turns - 2 * FLOOR_##S(turns / 2) != 0;                                                          \
            at = span > 0 ? (odd ? span - rest : rest) + low : way * 0;                                                \
            sign = (way < 0) == odd ? 1 : -1;                                                                          \
        }                                                                                                              \
        sign = at <= 0 || at >= last ? 0 : sign;                                                                       \
        at = at < 0 ? 0 : at;                                                                                          \
        at = at > last ? last : at;                                                                                    \
        *slope = sign;                                                                                                 \
        return at;                                                                                                     \
    }                                                                                                                  \
    /* Coordinates of a block in elements of the dimension, and their derivatives by the grid's. */                    \
    static void positions_##S(T *restrict position, T *restrict scale, const T *restrict grid, int axes, int64_t n,    \
                              int64_t size, const yk__grid_sampling *how)                                              \
    {                                                                                                                  \
        const T full = (T)size, last = (T)(size - 1), half = last / 2;                                                 \
        const T low = how->align_corners ? 0 : (T)-0.5, span = how->align_corners ? last : full;                       \
        const yk__grid_padding padding = how->padding;                                                                 \
        const bool align = how->align_corners;                                                                         \
        const T *restrict g = grid;                                                                                    \
        if (axes == 2)                                                                                                 \
            for (int64_t i = 0; i < n; i++)                                                                            \
                position[i] = g[2 * i] + 1;                                                                            \
        else                                                                                                           \
            for (int64_t i = 0; i < n; i++)                                                                            \
                position[i] = g[3 * i] + 1;                                                                            \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            position[i] = align ? position[i] * half : (position[i] * full - 1) * (T)0.5;                              \
            scale[i] = align ? half : full / 2;                                                                        \
        }                                                                                                              \
        if (how->mode == YK__GRID_BICUBIC || padding == YK__GRID_PADDING_ZEROS)                                        \
            return;                                                                                                    \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            T slope;                                                                                                   \
            position[i] = bounded_##S(position[i], padding, low, span, last, &slope);                                  \
            scale[i] *= slope;                                                                                         \
        }                                                                                                              \
    }                                                                                                                  \
    /* The weight of the k-th of four elements around a position t behind the second one (Keys, 1981, with -0.75, as   \
     * in PyTorch), and its derivative. */                                                                             \
    static inline T cubic_##S(T t, int k, T *slope)                                                                    \
    {                                                                                                                  \
        const T a = (T)-0.75, d = k < 2 ? t + (T)(1 - k) : (T)(k - 1) - t, turned = k < 2 ? 1 : -1;                    \
        if (k == 1 || k == 2) {                                                                                        \
            *slope = turned * ((3 * (a + 2) * d - 2 * (a + 3)) * d);                                                   \
            return ((a + 2) * d - (a + 3)) * d * d + 1;                                                                \
        }                                                                                                              \
        *slope = turned * ((3 * a * d - 10 * a) * d + 8 * a);                                                          \
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;                                                              \
    }                                                                                                                  \
    /* Tap k along a dimension: of a whole number `v`, which NaN is not. */                                            \
    static inline int32_t tap_##S(T v, T last)                                                                         \
    {                                                                                                                  \
        bool there = v >= 0 && v <= last;                                                                              \
        int32_t at = (int32_t)(there ? v : 0);                                                                         \
        return there ? at : ABSENT;                                                                                    \
    }                                                                                                                  \
    static void axis_taps_##S(const sampling *s, scratch_##S *m, const T *grid, int axis, int64_t n)                   \
    {                                                                                                                  \
        const int64_t size = s->size[axis], block = s->block;                                                          \
        const yk__grid_padding padding = s->how->padding;                                                              \
        const T last = (T)(size - 1), *restrict position = m->position, *restrict scale = m->scale;                    \
        const T low = s->how->align_corners ? 0 : (T)-0.5, span = s->how->align_corners ? last : (T)size;              \
        positions_##S(m->position, m->scale, grid + axis, s->axes, n, size, s->how);                                   \
        for (int k = 0; k < s->taps; k++) {                                                                            \
            int32_t *restrict at = m->axis[axis].at + k * block;                                                       \
            T *restrict weight = m->axis[axis].weight + k * block, *restrict slope = m->axis[axis].slope + k * block;  \
            const T sign = k ? 1 : -1, from = k ? 0 : 1, number = (T)k;                                                \
            if (s->taps == 1) {                                                                                        \
                for (int64_t i = 0; i < n; i++) {                                                                      \
                    at[i] = tap_##S(EVEN_##S(position[i]), last);                                                      \
                    weight[i] = at[i] < 0 ? 0 : 1;                                                                     \
                }                                                                                                      \
            } else if (s->taps == 2) {                                                                                 \
                for (int64_t i = 0; i < n; i++) {                                                                      \
                    T first = FLOOR_##S(position[i]), w = from + sign * (position[i] - first);                         \
                    int32_t tap = tap_##S(first + number, last);                                                       \
                    at[i] = tap;                                                                                       \
                    weight[i] = tap < 0 ? 0 : w;                                                                       \
                }                                                                                                      \
                if (s->slopes)                                                                                         \
                    for (int64_t i = 0; i < n; i++) {                                                                  \
                        T d = sign * scale[i];                                                                         \
                        slope[i] = at[i] < 0 ? 0 : d;                                                                  \
                    }                                                                                                  \
            } else {                                                                                                   \
                for (int64_t i = 0; i < n; i++) {                                                                      \
                    T first = FLOOR_##S(position[i]), d, ignored, v = first + (number - 1), by = scale[i];             \
                    T w = cubic_##S(position[i] - first, k, &d);                                                       \
                    v = padding == YK__GRID_PADDING_ZEROS ? v : bounded_##S(v, padding, low, span, last, &ignored);    \
                    int32_t tap = tap_##S(v, last);                                                                    \
                    at[i] = tap;                                                                                       \
                    weight[i] = tap < 0 ? 0 : w;                                                                       \
                    slope[i] = tap < 0 ? 0 : d * by;                                                                   \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    /* The taps of n points of image b from `first` on. */                                                             \
    static void block_taps_##S(const sampling *s, scratch_##S *m, int64_t b, int64_t first, int64_t n)                 \
    {                                                                                                                  \
        const T *grid = (const T *)s->grid->data + (b * s->points + first) * s->axes;                                  \
        const int32_t row = (int32_t)s->size[0], plane = (int32_t)(s->size[0] * s->size[1]);                           \
        int32_t holes = 0;                                                                                             \
        for (int a = 0; a < s->axes; a++)                                                                              \
            axis_taps_##S(s, m, grid, a, n);                                                                           \
        for (int k = 0; k < s->all; k++) {                                                                             \
            int32_t *restrict offset = m->offset + k * s->block;                                                       \
            T *restrict weight = m->weight + k * s->block;                                                             \
            const int64_t x = k % s->taps * s->block, y = k / s->taps % s->taps * s->block;                            \
            const int64_t z = k / s->taps / s->taps * s->block;                                                        \
            const int32_t *restrict at_x = m->axis[0].at + x, *restrict at_y = m->axis[1].at + y;                      \
            const int32_t *restrict at_z = m->axis[2].at + z;                                                          \
            const T *restrict w_x = m->axis[0].weight + x, *restrict w_y = m->axis[1].weight + y;                      \
            const T *restrict w_z = m->axis[2].weight + z;                                                             \
            if (s->axes == 2)                                                                                          \
                for (int64_t i = 0; i < n; i++) {                                                                      \
                    int32_t none = at_x[i] | at_y[i], o = none < 0 ? ABSENT : at_y[i] * row + at_x[i];                 \
                    offset[i] = o;                                                                                     \
                    weight[i] = w_x[i] * w_y[i];                                                                       \
                    holes |= none;                                                                                     \
                }                                                                                                      \
            else                                                                                                       \
                for (int64_t i = 0; i < n; i++) {                                                                      \
                    int32_t none = at_x[i] | at_y[i] | at_z[i];                                                        \
                    int32_t o = none < 0 ? ABSENT : at_z[i] * plane + at_y[i] * row + at_x[i];                         \
                    offset[i] = o;                                                                                     \
                    weight[i] = w_x[i] * w_y[i] * w_z[i];                                                              \
                    holes |= none;                                                                                     \
                }                                                                                                      \
        }                                                                                                              \
        m->holes = holes < 0;                                                                                          \
    }

#define LOAD(x, o)   ((o) < 0 ? 0 : (x)[o])
#define INSIDE(x, o) ((x)[o])
/* Loops over points from `from` on with `all` taps, whose loads are `get`. */
#define TAKING(T, S, all, way, get)                                                                                    \
    static void take_##all##_##way##_##S(T *restrict out, const T *restrict x, const scratch_##S *m, int64_t block,    \
                                         int64_t from, int64_t n)                                                      \
    {                                                                                                                  \
        for (int64_t i = from; i < n; i++) {                                                                           \
            T sum = m->weight[i] * get(x, m->offset[i]);                                                               \
            for (int k = 1; k < (all); k++)                                                                            \
                sum += m->weight[k * block + i] * get(x, m->offset[k * block + i]);                                    \
            out[i] = sum;                                                                                              \
        }                                                                                                              \
    }                                                                                                                  \
    static void add_##all##_##way##_##S(scratch_##S *m, const T *restrict x, const T *restrict gout, int64_t block,    \
                                        int64_t from, int64_t n)                                                       \
    {                                                                                                                  \
        for (int64_t i = from; i < n; i++)                                                                             \
            for (int k = 0; k < (all); k++)                                                                            \
                m->sum[k * block + i] += gout[i] * get(x, m->offset[k * block + i]);                                   \
    }
#define TAKING_OF(T, S, all)                                                                                           \
    TAKING(T, S, all, near, INSIDE)                                                                                    \
    TAKING(T, S, all, far, LOAD)                                                                                       \
    /* gx += what each point gives to its taps. */                                                                     \
    static void scatter_##all##_##S(T *gx, const T *gout, const scratch_##S *m, int64_t block, int64_t n)              \
    {                                                                                                                  \
        for (int64_t i = 0; i < n; i++)                                                                                \
            for (int k = 0; k < (all); k++) {                                                                          \
                int32_t o = m->offset[k * block + i];                                                                  \
                if (o >= 0)                                                                                            \
                    gx[o] += m->weight[k * block + i] * gout[i];                                                       \
            }                                                                                                          \
    }
#define ALL_TAKING(T, S)                                                                                               \
    COORDINATES(T, S)                                                                                                  \
    TAKING_OF(T, S, 1)                                                                                                 \
    TAKING_OF(T, S, 4)                                                                                                 \
    TAKING_OF(T, S, 8)                                                                                                 \
    TAKING_OF(T, S, 16)
/* clang-format off */
ALL_TAKING(float, f32)
ALL_TAKING(double, f64)
/* clang-format on */

/* ---- pairs ---- */

#if defined(__AVX2__)
/* Elements o[i] and o[i] + 1 of eight points i, apart. */
static inline void pairs_load(const float *x, const int32_t *o, __m256 *left, __m256 *right)
{
#define TWO(i, j)                                                                                                      \
    _mm_loadh_pi(_mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)(const void *)(x + o[i]))),                         \
                 (const __m64 *)(const void *)(x + o[j]))
    __m256 a = _mm256_insertf128_ps(_mm256_castps128_ps256(TWO(0, 1)), TWO(4, 5), 1);
    __m256 b = _mm256_insertf128_ps(_mm256_castps128_ps256(TWO(2, 3)), TWO(6, 7), 1);
#undef TWO
    *left = _mm256_shuffle_ps(a, b, 0x88);
    *right = _mm256_shuffle_ps(a, b, 0xDD);
}

/* The whole vectors of take_4_near_f32 and add_4_near_f32; the point after them. */
static int64_t take_pairs(float *restrict out, const float *restrict x, const scratch_f32 *m, int64_t block,
                          int64_t width, int64_t n)
{
    const float *w = m->weight;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8, w += 8) {
        __m256 a, b, c, d;
        pairs_load(x, m->offset + i, &a, &b);
        pairs_load(x + width, m->offset + i, &c, &d);
        __m256 sum = _mm256_mul_ps(_mm256_loadu_ps(w), a);
        sum = _mm256_add_ps(sum, _mm256_mul_ps(_mm256_loadu_ps(w + block), b));
        sum = _mm256_add_ps(sum, _mm256_mul_ps(_mm256_loadu_ps(w + 2 * block), c));
        sum = _mm256_add_ps(sum, _mm256_mul_ps(_mm256_loadu_ps(w + 3 * block), d));
        _mm256_storeu_ps(out + i, sum);
    }
    return i;
}

static int64_t add_pairs(scratch_f32 *m, const float *restrict x, const float *restrict gout, int64_t block,
                         int64_t width, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 v[4], g = _mm256_loadu_ps(gout + i);
        pairs_load(x, m->offset + i, &v[0], &v[1]);
        pairs_load(x + width, m->offset + i, &v[2], &v[3]);
        for (int k = 0; k < 4; k++) {
            float *sum = m->sum + k * block + i;
            _mm256_storeu_ps(sum, _mm256_add_ps(_mm256_loadu_ps(sum), _mm256_mul_ps(g, v[k])));
        }
    }
    return i;
}
#endif

static int64_t take_first_f32(const sampling *s, float *out, const float *x, const scratch_f32 *m, int64_t n)
{
#if defined(__AVX2__)
    if (s->all == 4 && !m->holes)
        return take_pairs(out, x, m, s->block, s->size[0], n);
#endif
    (void)s, (void)out, (void)x, (void)m, (void)n;
    return 0;
}

static int64_t add_first_f32(const sampling *s, scratch_f32 *m, const float *x, const float *gout, int64_t n)
{
#if defined(__AVX2__)
    if (s->all == 4 && !m->holes)
        return add_pairs(m, x, gout, s->block, s->size[0], n);
#endif
    (void)s, (void)m, (void)x, (void)gout, (void)n;
    return 0;
}

static int64_t take_first_f64(const sampling *s, double *out, const double *x, const scratch_f64 *m, int64_t n)
{
    (void)s, (void)out, (void)x, (void)m, (void)n;
    return 0;
}

static int64_t add_first_f64(const sampling *s, scratch_f64 *m, const double *x, const double *gout, int64_t n)
{
    (void)s, (void)m, (void)x, (void)gout, (void)n;
    return 0;
}

/* ---- ranges of work ---- */

#define BY_TAPS(S, kind, way, ...)                                                                                     \
    (s->all == 1   ? kind##_1##way##_##S(__VA_ARGS__)                                                                  \
     : s->all == 4 ? kind##_4##way##_##S(__VA_ARGS__)                                                                  \
     : s->all == 8 ? kind##_8##way##_##S(__VA_ARGS__)                                                                  \
                   : kind##_16##way##_##S(__VA_ARGS__))

#define RANGES(T, S)                                                                                                   \
    /* Blocks of points, through all channels: the result. */                                                          \
    static void forward_range_##S(void *arg, int64_t begin, int64_t end, int thread)                                   \
    {                                                                                                                  \
        const sampling *s = arg;                                                                                       \
        scratch_##S *m = (scratch_##S *)(void *)(s->scratch + (size_t)thread * s->scratch_bytes);                      \
        for (int64_t unit = begin; unit < end; unit++) {                                                               \
            int64_t b = unit / s->blocks, first = unit % s->blocks * s->block;                                         \
            int64_t n = s->points - first < s->block ? s->points - first : s->block;                                   \
            block_taps_##S(s, m, b, first, n);                                                                         \
            for (int64_t c = b * s->channels; c < (b + 1) * s->channels; c++) {                                        \
                const T *x = (const T *)s->x->data + c * s->plane;                                                     \
                T *out = (T *)s->out->data + c * s->points + first;                                                    \
                int64_t from = take_first_##S(s, out, x, m, n);                                                        \
                if (m->holes)                                                                                          \
                    BY_TAPS(S, take, _far, out, x, m, s->block, from, n);                                              \
                else                                                                                                   \
                    BY_TAPS(S, take, _near, out, x, m, s->block, from, n);                                             \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    /* The factor of tap k that dimension a gives to the derivative by coordinate `axis`. */                           \
    static const T *factor_##S(const sampling *s, const scratch_##S *m, int a, int axis, int k)                        \
    {                                                                                                                  \
        for (int i = 0; i < a; i++)                                                                                    \
            k /= s->taps;                                                                                              \
        return (a == axis ? m->axis[a].slope : m->axis[a].weight) + k % s->taps * s->block;                            \
    }                                                                                                                  \
    /* The same blocks: the gradient of the grid. */                                                                   \
    static void grid_range_##S(void *arg, int64_t begin, int64_t end, int thread)                                      \
    {                                                                                                                  \
        const sampling *s = arg;                                                                                       \
        scratch_##S *m = (scratch_##S *)(void *)(s->scratch + (size_t)thread * s->scratch_bytes);                      \
        for (int64_t unit = begin; unit < end; unit++) {                                                               \
            int64_t b = unit / s->blocks, first = unit % s->blocks * s->block;                                         \
            int64_t n = s->points - first < s->block ? s->points - first : s->block;                                   \
            T *ggrid = (T *)s->out->data + (b * s->points + first) * s->axes;                                          \
            if (s->taps == 1) {                                                                                        \
                memset(ggrid, 0, (size_t)(n * s->axes) * sizeof(T));                                                   \
                continue;                                                                                              \
            }                                                                                                          \
            block_taps_##S(s, m, b, first, n);                                                                         \
            memset(m->sum, 0, (size_t)(s->all * s->block) * sizeof(T));                                                \
            for (int64_t c = b * s->channels; c < (b + 1) * s->channels; c++) {                                        \
                const T *x = (const T *)s->x->data + c * s->plane;                                                     \
                const T *gout = (const T *)s->gout->data + c * s->points + first;                                      \
                int64_t from = add_first_##S(s, m, x, gout, n);                                                        \
                if (m->holes)                                                                                          \
                    BY_TAPS(S, add, _far, m, x, gout, s->block, from, n);                                              \
                else                                                                                                   \
                    BY_TAPS(S, add, _near, m, x, gout, s->block, from, n);                                             \
            }                                                                                                          \
            for (int axis = 0; axis < s->axes; axis++) {                                                               \
                T *restrict part = m->position;                                                                        \
                memset(part, 0, (size_t)n * sizeof(T));                                                                \
                for (int k = 0; k < s->all; k++) {                                                                     \
                    const T *restrict sum = m->sum + k * s->block, *restrict f = factor_##S(s, m, 0, axis, k);         \
                    const T *restrict g = factor_##S(s, m, 1, axis, k);                                                \
                    const T *restrict h = s->axes == 3 ? factor_##S(s, m, 2, axis, k) : NULL;                          \
                    if (!h)                                                                                            \
                        for (int64_t i = 0; i < n; i++)                                                                \
                            part[i] += f[i] * g[i] * sum[i];                                                           \
                    else                                                                                               \
                        for (int64_t i = 0; i < n; i++)                                                                \
                            part[i] += f[i] * g[i] * h[i] * sum[i];                                                    \
                }                                                                                                      \
                for (int64_t i = 0; i < n; i++)                                                                        \
                    ggrid[i * s->axes + axis] = part[i];                                                               \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    /* Groups of channels, through all points: the gradient of x. */                                                   \
    static void plane_range_##S(void *arg, int64_t begin, int64_t end, int thread)                                     \
    {                                                                                                                  \
        const sampling *s = arg;                                                                                       \
        scratch_##S *m = (scratch_##S *)(void *)(s->scratch + (size_t)thread * s->scratch_bytes);                      \
        for (int64_t unit = begin; unit < end; unit++) {                                                               \
            int64_t b = unit / s->groups, low = unit % s->groups * s->group, high = low + s->group;                    \
            high = b * s->channels + (high < s->channels ? high : s->channels);                                        \
            low += b * s->channels;                                                                                    \
            if (low >= high)                                                                                           \
                continue;                                                                                              \
            memset((T *)s->out->data + low * s->plane, 0, (size_t)((high - low) * s->plane) * sizeof(T));              \
            for (int64_t first = 0; first < s->points; first += s->block) {                                            \
                int64_t n = s->points - first < s->block ? s->points - first : s->block;                               \
                block_taps_##S(s, m, b, first, n);                                                                     \
                for (int64_t c = low; c < high; c++)                                                                   \
                    BY_TAPS(S, scatter, , (T *)s->out->data + c * s->plane,                                            \
                            (const T *)s->gout->data + c * s->points + first, m, s->block, n);                         \
            }                                                                                                          \
        }                                                                                                              \
    }
/* clang-format off */
RANGES(float, f32)
RANGES(double, f64)
/* clang-format on */

/* ---- slots ---- */

/* The fields that all ranges need, but the result; false and an error where memory fails. */
static bool sampling_begin(sampling *s, int device, yk__storage **handle)
{
    const bool narrow = s->x->dtype == YK_F32;
    s->axes = s->x->ndim - 2;
    s->taps = s->how->mode == YK__GRID_NEAREST ? 1 : s->how->mode == YK__GRID_BICUBIC ? 4 : 2;
    s->all = s->taps == 1 ? 1 : s->taps == 4 ? 16 : s->axes == 3 ? 8 : 4;
    s->channels = s->x->shape[1];
    s->plane = s->points = 1;
    for (int a = 0; a < s->axes; a++) {
        s->size[a] = s->x->shape[s->x->ndim - 1 - a];
        s->plane *= s->size[a];
        s->points *= s->grid->shape[1 + a];
    }
    /* Blocks of one size, nearly. */
    s->block = TAPS / s->all < POINTS ? TAPS / s->all : POINTS;
    s->blocks = yk__ceil_div(s->points, s->block);
    s->block = (yk__ceil_div(s->points, s->blocks) + 7) / 8 * 8;
    s->blocks = yk__ceil_div(s->points, s->block);
    int64_t threads = yk__cpu_threads(device), images = s->x->shape[0];
    s->groups = threads == 1 ? 1 : yk__ceil_div(2 * threads, images);
    s->groups = s->groups > s->channels ? s->channels : s->groups;
    s->group = yk__ceil_div(s->channels, s->groups);
    s->scratch_bytes = ((narrow ? sizeof(scratch_f32) : sizeof(scratch_f64)) + 127) / 64 * 64;
    s->scratch = yk__workspace_get((yk_device){YK_CPU, (int16_t)device}, (size_t)threads * s->scratch_bytes, handle);
    return s->scratch != NULL;
}

static yk_status grid_sample(int device, const yk__grid_sampling *how, const yk__view *out, const yk__view *x,
                             const yk__view *grid)
{
    sampling s = {.how = how, .x = x, .grid = grid, .out = out};
    yk__storage *handle;
    if (!sampling_begin(&s, device, &handle))
        return yk__error_code();
    yk__cpu_parallel(device, x->shape[0] * s.blocks, 1, x->dtype == YK_F32 ? forward_range_f32 : forward_range_f64, &s);
    yk__storage_release(handle);
    return YK_OK;
}

static yk_status grid_sample_backward(int device, const yk__grid_sampling *how, const yk__view *gx,
                                      const yk__view *ggrid, const yk__view *gout, const yk__view *x,
                                      const yk__view *grid)
{
    const bool narrow = gout->dtype == YK_F32;
    sampling s = {.how = how, .x = x, .grid = grid, .gout = gout}; /* of x the sizes alone where ggrid is not made */
    yk__storage *handle;
    if (!sampling_begin(&s, device, &handle))
        return yk__error_code();
    if (gx) {
        s.out = gx;
        yk__cpu_parallel(device, gx->shape[0] * s.groups, 1, narrow ? plane_range_f32 : plane_range_f64, &s);
    }
    if (ggrid) {
        s.out = ggrid;
        s.slopes = true;
        yk__cpu_parallel(device, x->shape[0] * s.blocks, 1, narrow ? grid_range_f32 : grid_range_f64, &s);
    }
    yk__storage_release(handle);
    return YK_OK;
}

void YK__ISA_NAME(yk__cpu_fill_grid)(yk__backend *table)
{
    table->grid_sample = grid_sample;
    table->grid_sample_backward = grid_sample_backward;
}
