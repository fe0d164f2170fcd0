/*
 * random_kernels.c - the slots random, random_integers and dropout. Layer: device/cpu.
 *
 * Element i (C order) has words of its own in the stream of Philox blocks: those from i * W on, where a value takes W
 * words (uniform: 1, f64 2; normal: 2, f64 4; integers: 2; dropout: 1 for f32 and f64, so that both drop the same
 * elements). So a value depends on (stream, i) alone, whatever the strides, the threads and the instruction set's
 * number of lanes. Values that need arithmetic in floats may differ in the last place between instruction sets.
 */
#include <math.h>

#include "base/philox_words.h"
#include "device/convert.h"
#include "device/cpu/iterate.h"
#include "device/scalar_math.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define CHUNK     1024 /* elements whose words are made at a time; divides YK__GRAIN */
#define MAX_WORDS 4    /* per element */

typedef struct drawing {
    yk__loop loop;
    yk__stream stream;
    bool whole; /* integers */
    yk__random_kind kind;
    yk_dtype dtype;
    int words;
    double p0, p1;
    int64_t low;
    uint64_t bound;     /* integers: low, low + 1, ..., so many */
    uint32_t threshold; /* dropout: kept from this on, of 2^24 */
    uint64_t begin;     /* dropout: the position in the stream of the first element; else 0 */
    const uint32_t *drawn;
    const void *values;
    int64_t first; /* the position of values[0] and drawn[0] */
} drawing;

/* ---- from words to values ---- */

static float below_f32(double p0, double p1)
{
    return nextafterf((float)p1, (float)p0);
}

static void uniform_f32(const drawing *d, int64_t n, const uint32_t *w, float *o)
{
    float low = (float)d->p0, span = (float)(d->p1 - d->p0), top = below_f32(d->p0, d->p1);
    if (low == 0.0f && span == 1.0f) {
        for (int64_t i = 0; i < n; i++)
            o[i] = (float)(int32_t)(w[i] >> 8) * 0x1p-24f;
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        float x = low + span * ((float)(int32_t)(w[i] >> 8) * 0x1p-24f);
        o[i] = x < top ? x : top;
    }
}

static void uniform_f64(const drawing *d, int64_t n, const uint32_t *w, double *o)
{
    double top = nextafter(d->p1, d->p0), span = d->p1 - d->p0;
    for (int64_t i = 0; i < n; i++) {
        double x = d->p0 + span * yk__unit_double(w[2 * i], w[2 * i + 1]);
        o[i] = x < top ? x : top;
    }
}

static void normal_f32(const drawing *d, int64_t n, const uint32_t *w, float *o)
{
    float mean = (float)d->p0, deviation = (float)d->p1;
    for (int64_t i = 0; i < n; i++)
        o[i] = mean + deviation * yk__standard_normal_f32(w[2 * i], w[2 * i + 1]);
}

static void normal_f64(const drawing *d, int64_t n, const uint32_t *w, double *o)
{
    double mean = d->p0, deviation = d->p1;
    YK__INDEPENDENT for (int64_t i = 0; i < n; i++)
    {
        o[i] = mean + deviation * yk__standard_normal_f64(w + 4 * i);
    }
}

/* f32 values rounded to a half type, those that reach p1 moved to the one below it. */
#define HALF(name)                                                                                                     \
    static void half_##name(const drawing *d, int64_t n, const float *x, uint16_t *o)                                  \
    {                                                                                                                  \
        uint16_t top = yk__to_##name((float)d->p1), one = 1;                                                           \
        if (yk__from_##name(top) >= d->p1) {                                                                           \
            if (top == 0)                                                                                              \
                top = 0x8000;                                                                                          \
            top = (uint16_t)(top & 0x8000u ? top + one : top - one);                                                   \
        }                                                                                                              \
        float end = d->kind == YK__RANDOM_UNIFORM && d->p1 > d->p0 ? (float)d->p1 : INFINITY;                          \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            uint16_t h = yk__to_##name(x[i]);                                                                          \
            o[i] = yk__from_##name(h) >= end ? top : h;                                                                \
        }                                                                                                              \
    }
HALF(f16)
HALF(bf16)

#define WHOLE(T, cast)                                                                                                 \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        int64_t x = (int64_t)((uint64_t)d->low + yk__below(w[2 * i], w[2 * i + 1], d->bound));                         \
        ((T *)o)[i] = cast;                                                                                            \
    }                                                                                                                  \
    break;
static void integer(const drawing *d, int64_t n, const uint32_t *w, void *o)
{
    switch (d->dtype) {
    case YK_F32: WHOLE(float, (float)x)
    case YK_F64: WHOLE(double, (double)x)
    case YK_F16: WHOLE(uint16_t, yk__to_f16((float)x))
    case YK_BF16: WHOLE(uint16_t, yk__to_bf16((float)x))
    case YK_I32: WHOLE(int32_t, (int32_t)x)
    case YK_U8: WHOLE(uint8_t, (uint8_t)x)
    case YK_BOOL: WHOLE(uint8_t, x != 0)
    default: WHOLE(int64_t, x)
    }
}

static void make(const drawing *d, int64_t n, const uint32_t *words, void *values)
{
    if (d->whole) {
        integer(d, n, words, values);
    } else if (d->dtype == YK_F64) {
        (d->kind == YK__RANDOM_UNIFORM ? uniform_f64 : normal_f64)(d, n, words, values);
    } else {
        float x[CHUNK], *to = d->dtype == YK_F32 ? values : x;
        (d->kind == YK__RANDOM_UNIFORM ? uniform_f32 : normal_f32)(d, n, words, to);
        if (d->dtype == YK_F16)
            half_f16(d, n, x, values);
        else if (d->dtype == YK_BF16)
            half_bf16(d, n, x, values);
    }
}

/* ---- walking in C order ---- */

static void random_run(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)
{
    const drawing *d = context;
    size_t size = yk_dtype_size(d->dtype);
    const char *from = (const char *)d->values + (first - d->first) * (int64_t)size;
    if (stride[0] == (int64_t)size)
        memcpy(data[0], from, (size_t)n * size);
    else
        yk__copy_strided(data[0], stride[0], from, (int64_t)size, size, n);
}

#define DROPOUT(T)                                                                                                     \
    {                                                                                                                  \
        T scale = d->p0 < 1.0 ? (T)(1.0 / (1.0 - d->p0)) : (T)0;                                                       \
        if (stride[0] == (int64_t)sizeof(T) && stride[1] == (int64_t)sizeof(T)) {                                      \
            T *o = (T *)data[0];                                                                                       \
            const T *x = (const T *)data[1];                                                                           \
            YK__INDEPENDENT for (int64_t i = 0; i < n; i++)                                                            \
            {                                                                                                          \
                o[i] = x[i] * (w[i] >> 8 >= threshold ? scale : 0);                                                    \
            }                                                                                                          \
        } else {                                                                                                       \
            for (int64_t i = 0; i < n; i++)                                                                            \
                *(T *)(data[0] + i * stride[0]) =                                                                      \
                    *(const T *)(data[1] + i * stride[1]) * (w[i] >> 8 >= threshold ? scale : 0);                      \
        }                                                                                                              \
    }

#define DROPOUT_HALF(name)                                                                                             \
    {                                                                                                                  \
        float scale = d->p0 < 1.0 ? (float)(1.0 / (1.0 - d->p0)) : 0.0f;                                               \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            float x = yk__from_##name(*(const yk__raw16 *)(data[1] + i * stride[1]));                                  \
            *(yk__raw16 *)(data[0] + i * stride[0]) = yk__to_##name(x * (w[i] >> 8 >= threshold ? scale : 0));         \
        }                                                                                                              \
    }

static void dropout_run(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)
{
    const drawing *d = context;
    const uint32_t *w = d->drawn + (first - d->first);
    uint32_t threshold = d->threshold;
    if (d->dtype == YK_F32)
        DROPOUT(float)
    else if (d->dtype == YK_F16)
        DROPOUT_HALF(f16)
    else if (d->dtype == YK_BF16)
        DROPOUT_HALF(bf16)
    else
        DROPOUT(double)
}

static void draw_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    drawing d = *(const drawing *)arg;
    uint32_t words[CHUNK * MAX_WORDS] __attribute__((aligned(64))); /* of dropout, up to three come before the first */
    double values[CHUNK] __attribute__((aligned(64)));
    bool random = d.loop.operands == 1;
    bool linear = random && d.loop.ndim == 1 && d.loop.stride[0][0] == (int64_t)yk_dtype_size(d.dtype);
    yk__loop_job job = {&d.loop, random ? random_run : dropout_run, &d};
    uint64_t skip = d.begin % 4;
    d.drawn = words + skip;
    d.values = values;
    for (int64_t i = begin; i < end; i += CHUNK) {
        int64_t n = end - i < CHUNK ? end - i : CHUNK;
        uint64_t at = d.begin + (uint64_t)i * (uint64_t)d.words;
        yk__philox_words(d.stream, at / 4, ((int64_t)skip + n * d.words + 3) / 4, words);
        if (linear) {
            make(&d, n, words, d.loop.data[0] + i * d.loop.stride[0][0]);
            continue;
        }
        if (random)
            make(&d, n, words, values);
        d.first = i;
        yk__loop_piece(&job, i, i + n, thread);
    }
}

/*
 * Dropout of maps whose channels, say, are next to each other: in C order neighbours are far apart in memory, and
 * neighbours in memory far apart in the stream. Words are made for lines of the last dimension and up to DENSE
 * neighbours in memory; a bit of each says whether the element is kept, and the matrix of bits is transposed.
 */
enum { LINE = 60, LINE_WORDS = 64, DENSE = 64 }; /* LINE: with up to three words before, 16 blocks */

/* Bit i: words[i] is one that keeps its element. */
static uint64_t kept_bits(const uint32_t words[LINE_WORDS], uint32_t threshold)
{
    uint64_t bits = 0;
#if defined(__AVX512F__)
    for (int i = 0; i < LINE_WORDS; i += 16) {
        __m512i w = _mm512_srli_epi32(_mm512_loadu_si512(words + i), 8);
        bits |= (uint64_t)_mm512_cmpge_epu32_mask(w, _mm512_set1_epi32((int)threshold)) << i;
    }
#elif defined(__AVX2__)
    for (int i = 0; i < LINE_WORDS; i += 8) { /* of 24 bits, so their signs do not matter */
        __m256i w = _mm256_srli_epi32(_mm256_loadu_si256((const __m256i *)(words + i)), 8);
        __m256i dropped = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)threshold), w);
        bits |= (uint64_t)(~_mm256_movemask_ps(_mm256_castsi256_ps(dropped)) & 0xFF) << i;
    }
#else
    for (int i = 0; i < LINE_WORDS; i++)
        bits |= (uint64_t)(words[i] >> 8 >= threshold) << i;
#endif
    return bits;
}

/* Bit a of row l and bit l of row a change places: blocks of half the size at each step. */
static void transpose_bits(uint64_t rows[64])
{
    uint64_t mask = 0x00000000FFFFFFFFu;
    for (int half = 32; half > 0; half /= 2, mask ^= mask << half) {
        for (int block = 0; block < 64; block += 2 * half) {
            for (int i = block; i < block + half; i++) {
                uint64_t change = (rows[i] >> half ^ rows[i + half]) & mask;
                rows[i] ^= change << half;
                rows[i + half] ^= change;
            }
        }
    }
}

typedef struct turned {
    drawing d;
    const yk__view *out, *x;
    int dense, last; /* dimensions: the one that is dense in memory, and C order's last one */
    int64_t c_step[YK_MAX_DIMS], parts, pieces; /* c_step: elements from one to the next, in C order */
    int others, other[YK_MAX_DIMS];             /* the other dimensions, those closest in memory first */
} turned;

/* Fills *t if dropout is done by blocks that are transposed: one dimension is dense in memory, and C order has another
 * one last. False if not. */
static bool turned_init(turned *t, const yk__view *out, const yk__view *x)
{
    int64_t step = 1;
    t->out = out, t->x = x;
    t->dense = t->last = -1;
    for (int dim = out->ndim - 1; dim >= 0; dim--) {
        t->c_step[dim] = step;
        step *= out->shape[dim];
        if (out->shape[dim] == 1)
            continue;
        if (t->last < 0)
            t->last = dim;
        else if (out->stride[dim] == 1 && x->stride[dim] == 1 && out->shape[dim] >= 8)
            t->dense = dim;
    }
    if (t->dense < 0 || out->stride[t->last] == 1)
        return false;
    for (int dim = 0; dim < out->ndim; dim++) {
        if (dim == t->dense || dim == t->last)
            continue;
        int at = t->others++;
        for (; at > 0 && out->stride[t->other[at - 1]] > out->stride[dim]; at--)
            t->other[at] = t->other[at - 1];
        t->other[at] = dim;
    }
    t->parts = yk__ceil_div(out->shape[t->dense], DENSE);
    t->pieces = step / out->shape[t->dense] / out->shape[t->last] * t->parts;
    return true;
}

static void turned_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const turned *t = arg;
    drawing d = t->d;
    uint32_t words[LINE_WORDS] __attribute__((aligned(64))) = {0}, column[DENSE] __attribute__((aligned(64)));
    uint64_t bits[DENSE] = {0};
    int64_t size = (int64_t)yk_dtype_size(d.dtype);
    const int64_t steps[2] = {size, size};
    d.drawn = column;
    d.first = 0;
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t a0 = piece % t->parts * DENSE, rest = piece / t->parts, index = a0 * t->c_step[t->dense];
        int64_t n = t->out->shape[t->dense] - a0 < DENSE ? t->out->shape[t->dense] - a0 : DENSE;
        char *out = (char *)t->out->data + a0 * size;
        char *x = (char *)t->x->data + a0 * size;
        for (int i = 0; i < t->others; i++) {
            int dim = t->other[i];
            int64_t at = rest % t->out->shape[dim];
            rest /= t->out->shape[dim];
            index += at * t->c_step[dim];
            out += at * t->out->stride[dim] * size;
            x += at * t->x->stride[dim] * size;
        }
        for (int64_t l0 = 0; l0 < t->out->shape[t->last]; l0 += LINE) {
            int64_t line = t->out->shape[t->last] - l0 < LINE ? t->out->shape[t->last] - l0 : LINE;
            for (int64_t a = 0; a < n; a++) {
                int64_t at = (int64_t)d.begin + index + a * t->c_step[t->dense] + l0 * t->c_step[t->last];
                yk__philox_words(d.stream, (uint64_t)at / 4, (at % 4 + line + 3) / 4, words);
                bits[a] = kept_bits(words, d.threshold) >> at % 4;
            }
            transpose_bits(bits);
            for (int64_t l = 0; l < line; l++) {
                for (int a = 0; a < DENSE; a++)
                    column[a] = 0 - (uint32_t)(bits[l] >> a & 1); /* a word that keeps, or drops */
                char *data[2] = {out + (l0 + l) * t->out->stride[t->last] * size,
                                 x + (l0 + l) * t->x->stride[t->last] * size};
                dropout_run(&d, 0, n, data, steps);
            }
        }
    }
}

static yk_status random_values(int device, yk__random_kind kind, const yk__view *out, yk__stream stream,
                               const uint32_t *calls, double p0, double p1)
{
    if (!yk_dtype_is_floating(out->dtype))
        return yk__fail(YK_ERR_DTYPE, "random: uniform and normal values are not defined for %s",
                        yk_dtype_name(out->dtype));
    stream.epoch += calls ? *calls : 0;
    drawing d = {.stream = stream, .kind = kind, .dtype = out->dtype, .p0 = p0, .p1 = p1};
    d.words = (kind == YK__RANDOM_NORMAL ? 2 : 1) * (out->dtype == YK_F64 ? 2 : 1);
    yk__loop_init(&d.loop, 1, &out, true);
    if (d.loop.total > 0)
        yk__cpu_parallel(device, d.loop.total, YK__GRAIN, draw_piece, &d);
    return YK_OK;
}

static yk_status random_integers(int device, const yk__view *out, yk__stream stream, const uint32_t *calls, int64_t low,
                                 int64_t high)
{
    if (low >= high)
        return yk__fail(YK_ERR_ARGUMENT, "randint: the range [%lld, %lld) is empty", (long long)low, (long long)high);
    stream.epoch += calls ? *calls : 0;
    drawing d = {.stream = stream, .whole = true, .dtype = out->dtype, .words = 2, .low = low};
    d.bound = (uint64_t)high - (uint64_t)low;
    yk__loop_init(&d.loop, 1, &out, true);
    if (d.loop.total > 0)
        yk__cpu_parallel(device, d.loop.total, YK__GRAIN, draw_piece, &d);
    return YK_OK;
}

static yk_status dropout(int device, const yk__view *out, const yk__view *x, yk__stream stream, const uint32_t *calls,
                         uint64_t first, double p)
{
    const yk__view *views[] = {out, x};
    stream.epoch += calls ? *calls : 0;
    drawing d = {.stream = stream, .dtype = out->dtype, .words = 1, .p0 = p, .begin = first};
    d.threshold = (uint32_t)ceil(p * 0x1p24);
    turned t = {.d = d};
    if (yk__view_numel(out) > 0 && turned_init(&t, out, x)) {
        yk__cpu_parallel(device, t.pieces, 1, turned_piece, &t);
        return YK_OK;
    }
    yk__loop_init(&d.loop, 2, views, true);
    if (d.loop.total > 0)
        yk__cpu_parallel(device, d.loop.total, YK__GRAIN, draw_piece, &d);
    return YK_OK;
}

void YK__ISA_NAME(yk__cpu_fill_random)(yk__backend *table)
{
    table->random = random_values;
    table->random_integers = random_integers;
    table->dropout = dropout;
}
