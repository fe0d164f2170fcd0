/*
 * random.cu - the slots random, random_integers and dropout. Layer: device/cuda.
 *
 * An element takes the words that device/cpu/elementwise/random_kernels.c gives it: those from i * W on of the stream's
 * Philox blocks. So uniform values, integers and the choice of dropout are the CPU's bits; normal ones are by the same
 * polynomials. Dropout of a tensor that is one run in memory makes four elements of each Philox block, where it begins
 * with one.
 */
#include "device/cuda/packs.h"

#include "device/cuda/elements.h"

enum { THREADS = WALK_THREADS };

typedef struct drawing {
    yk__loop loop; /* in C order */
    yk__stream stream;
    const uint32_t *calls;
    yk__random_kind kind;
    int words;
    double p0, p1;
    int64_t low;
    uint64_t bound;     /* integers: low, low + 1, ..., so many */
    uint32_t threshold; /* dropout: kept from this on, of 2^24 */
    uint64_t first;     /* dropout: the position in the stream of the first element */
} drawing;

static YK__DEVICE yk__stream stream_of(const drawing &d)
{
    yk__stream s = d.stream;
    if (d.calls)
        s.epoch += *yk__global<const uint32_t>(d.calls);
    return s;
}

/* Words first, first + 1, ... of the stream: `count` of them lie in one block or two. */
static YK__DEVICE void words_at(yk__stream s, uint64_t first, int count, uint32_t *words)
{
    uint32_t block[4];
    yk__philox(s, first / 4, block);
    for (int k = 0; k < count; k++) {
        if (k && (first + (uint64_t)k) % 4 == 0)
            yk__philox(s, (first + (uint64_t)k) / 4, block);
        words[k] = block[(first + (uint64_t)k) % 4];
    }
}

static YK__DEVICE float uniform_f32(const drawing &d, const uint32_t *w)
{
    float low = (float)d.p0, span = (float)(d.p1 - d.p0), top = nextafterf((float)d.p1, (float)d.p0);
    float unit = (float)(int32_t)(w[0] >> 8) * 0x1p-24f;
    if (low == 0.0f && span == 1.0f)
        return unit;
    float x = low + span * unit;
    return x < top ? x : top;
}

static YK__DEVICE double uniform_f64(const drawing &d, const uint32_t *w)
{
    double top = nextafter(d.p1, d.p0), x = d.p0 + (d.p1 - d.p0) * yk__unit_double(w[0], w[1]);
    return x < top ? x : top;
}

static YK__DEVICE float normal_f32(const drawing &d, const uint32_t *w)
{
    return (float)d.p0 + (float)d.p1 * yk__standard_normal_f32(w[0], w[1]);
}

static YK__DEVICE double normal_f64(const drawing &d, const uint32_t *w)
{
    return d.p0 + d.p1 * yk__standard_normal_f64(w);
}

/* A float as the dtype; in f16 and bf16 what would be rounded up to p1 becomes the number below it. */
template <typename E> struct rounded {
    static YK__DEVICE typename E::stored of(const drawing &, float x)
    {
        return E::store(x);
    }
};
template <typename E> static YK__DEVICE uint16_t rounded_half(const drawing &d, float x)
{
    uint16_t h = E::store(x), top = E::store((float)d.p1);
    if ((double)E::load(top) >= d.p1) {
        if (top == 0)
            top = 0x8000;
        top = (uint16_t)(top & 0x8000u ? top + 1 : top - 1);
    }
    bool bounded = d.kind == YK__RANDOM_UNIFORM && d.p1 > d.p0;
    return bounded && E::load(h) >= (float)d.p1 ? top : h;
}
template <> struct rounded<element_f16> {
    static YK__DEVICE uint16_t of(const drawing &d, float x)
    {
        return rounded_half<element_f16>(d, x);
    }
};
template <> struct rounded<element_bf16> {
    static YK__DEVICE uint16_t of(const drawing &d, float x)
    {
        return rounded_half<element_bf16>(d, x);
    }
};

template <typename E> YK__KERNEL(THREADS) real_kernel(drawing d)
{
    yk__stream s = stream_of(d);
    int64_t step = (int64_t)THREADS * gridDim.x;
    YK__LOOP for (int64_t i = (int64_t)THREADS * blockIdx.x + threadIdx.x; i < d.loop.total; i += step)
    {
        uint32_t w[4];
        words_at(s, (uint64_t)i * (uint64_t)d.words, d.words, w);
        float x = d.kind == YK__RANDOM_UNIFORM ? uniform_f32(d, w) : normal_f32(d, w);
        *walk_at<typename E::stored>(d.loop, 0, i) = rounded<E>::of(d, x);
    }
}

YK__KERNEL(THREADS) double_kernel(drawing d)
{
    yk__stream s = stream_of(d);
    int64_t step = (int64_t)THREADS * gridDim.x;
    YK__LOOP for (int64_t i = (int64_t)THREADS * blockIdx.x + threadIdx.x; i < d.loop.total; i += step)
    {
        uint32_t w[4];
        words_at(s, (uint64_t)i * (uint64_t)d.words, d.words, w);
        *walk_at<double>(d.loop, 0, i) = d.kind == YK__RANDOM_UNIFORM ? uniform_f64(d, w) : normal_f64(d, w);
    }
}

template <typename E> YK__KERNEL(THREADS) integer_kernel(drawing d)
{
    yk__stream s = stream_of(d);
    int64_t step = (int64_t)THREADS * gridDim.x;
    YK__LOOP for (int64_t i = (int64_t)THREADS * blockIdx.x + threadIdx.x; i < d.loop.total; i += step)
    {
        uint32_t w[4];
        words_at(s, (uint64_t)i * 2, 2, w);
        int64_t x = (int64_t)((uint64_t)d.low + yk__below(w[0], w[1], d.bound));
        *walk_at<typename E::stored>(d.loop, 0, i) = E::store((typename E::number)x);
    }
}

/* Packs of the four elements that a block of random words has one each for. */
enum { WORDS = 4 };
template <typename E> YK__KERNEL(THREADS) dropout_packs_kernel(drawing d, packed_loop packed)
{
    typedef typename E::number number;
    typedef typename E::stored stored;
    yk__stream s = stream_of(d);
    number scale = d.p0 < 1.0 ? (number)(1.0 / (1.0 - d.p0)) : (number)0;
    int64_t packs = (packed.loop.total + WORDS - 1) / WORDS, tile = (int64_t)THREADS * PACKS, step = tile * gridDim.x;
    YK__LOOP for (int64_t first = tile * blockIdx.x + threadIdx.x; first < packs; first += step)
    {
        pack_words<pack<stored, WORDS>> read[PACKS];
        YK__UNROLL for (int u = 0; u < PACKS; u++)
        {
            int64_t i = (first + u * THREADS) * WORDS;
            if (i + WORDS <= packed.loop.total) {
                read[u].load(packed.loop.data[1] + i * (int64_t)sizeof(stored));
            } else {
                pack<stored, WORDS> rest;
                for (int k = 0; k < WORDS; k++)
                    rest.of[k] = i + k < packed.loop.total ? *walk_at<const stored>(packed.loop, 1, i + k) : (stored)0;
                read[u].set(rest);
            }
        }
        YK__UNROLL for (int u = 0; u < PACKS; u++)
        {
            int64_t i = (first + u * THREADS) * WORDS;
            uint32_t w[WORDS];
            pack<stored, WORDS> x = read[u].elements();
            yk__philox(s, (d.first + (uint64_t)i) / WORDS, w);
            for (int k = 0; k < WORDS; k++)
                x.of[k] = E::store(E::load(x.of[k]) * (w[k] >> 8 >= d.threshold ? scale : (number)0));
            if (i + WORDS <= packed.loop.total)
                store_pack<stored, WORDS>(packed, i * (int64_t)sizeof(stored), x);
            else
                for (int k = 0; k < WORDS; k++)
                    if (i + k < packed.loop.total)
                        *walk_at<stored>(packed.loop, 0, i + k) = x.of[k];
        }
    }
}

template <typename E> YK__KERNEL(THREADS) dropout_kernel(drawing d)
{
    typedef typename E::number number;
    typedef typename E::stored stored;
    yk__stream s = stream_of(d);
    number scale = d.p0 < 1.0 ? (number)(1.0 / (1.0 - d.p0)) : (number)0;
    int64_t step = (int64_t)THREADS * gridDim.x;
    YK__LOOP for (int64_t i = (int64_t)THREADS * blockIdx.x + threadIdx.x; i < d.loop.total; i += step)
    {
        uint32_t w[1];
        words_at(s, d.first + (uint64_t)i, 1, w);
        number x = E::load(*walk_at<const stored>(d.loop, 1, i));
        *walk_at<stored>(d.loop, 0, i) = E::store(x * (w[0] >> 8 >= d.threshold ? scale : (number)0));
    }
}

/* Fills `out` by the kernel that draws for it. */
static yk_status draw(int device, const yk__view *out, drawing *d, void (*kernel)(drawing))
{
    cudaStream_t stream = NULL;
    yk__loop_init(&d->loop, 1, &out, true);
    yk_status status = cuda_use(device, &stream);
    if (status || d->loop.total == 0)
        return status;
    YK__LAUNCH("random", kernel, walk_blocks(device, d->loop.total), THREADS, 0, stream, *d);
    return cuda_launched(device, "random", 1, &out);
}

yk_status cuda_random(int device, yk__random_kind kind, const yk__view *out, yk__stream from, const uint32_t *calls,
                      double p0, double p1)
{
    if (!yk__is_real(out->dtype))
        return cuda_fail(YK_ERR_DTYPE, "random: uniform and normal values are not defined for %s",
                         cuda_yoke->dtype_name(out->dtype));
    drawing d;
    d.stream = from, d.calls = calls, d.kind = kind, d.p0 = p0, d.p1 = p1, d.low = 0, d.bound = 0, d.threshold = 0,
    d.first = 0;
    d.words = (kind == YK__RANDOM_NORMAL ? 2 : 1) * (out->dtype == YK_F64 ? 2 : 1);
    void (*kernel)(drawing) = double_kernel;
    switch (out->dtype) {
    case YK_F16: kernel = real_kernel<element_f16>; break;
    case YK_BF16: kernel = real_kernel<element_bf16>; break;
    case YK_F32: kernel = real_kernel<element_f32>; break;
    default: break;
    }
    return draw(device, out, &d, kernel);
}

yk_status cuda_random_integers(int device, const yk__view *out, yk__stream from, const uint32_t *calls, int64_t low,
                               int64_t high)
{
    if (low >= high)
        return cuda_fail(YK_ERR_ARGUMENT, "randint: the range [%lld, %lld) is empty", (long long)low, (long long)high);
    drawing d;
    d.stream = from, d.calls = calls, d.kind = YK__RANDOM_UNIFORM, d.words = 2, d.p0 = 0, d.p1 = 0, d.threshold = 0,
    d.first = 0;
    d.low = low, d.bound = (uint64_t)high - (uint64_t)low;
    void (*kernel)(drawing) = integer_kernel<element_i64>;
    switch (out->dtype) {
    case YK_F32: kernel = integer_kernel<element_f32>; break;
    case YK_F64: kernel = integer_kernel<element_f64>; break;
    case YK_F16: kernel = integer_kernel<element_f16>; break;
    case YK_BF16: kernel = integer_kernel<element_bf16>; break;
    case YK_I32: kernel = integer_kernel<element_i32>; break;
    case YK_U8: kernel = integer_kernel<element_u8>; break;
    case YK_BOOL: kernel = integer_kernel<element_bool>; break;
    default: break;
    }
    return draw(device, out, &d, kernel);
}

yk_status cuda_dropout(int device, const yk__view *out, const yk__view *x, yk__stream from, const uint32_t *calls,
                       uint64_t first, double p)
{
    const yk__view *views[] = {out, x};
    drawing d;
    cudaStream_t stream = NULL;
    d.stream = from, d.calls = calls, d.kind = YK__RANDOM_UNIFORM, d.words = 1, d.p0 = p, d.p1 = 0;
    d.low = 0, d.bound = 0, d.first = first;
    d.threshold = (uint32_t)ceil(p * 0x1p24);
    yk__loop_init(&d.loop, 2, views, true);
    yk_status status = cuda_use(device, &stream);
    if (status || d.loop.total == 0)
        return status;
    packed_loop packed;
    const size_t size[] = {yk__size_of(out->dtype), yk__size_of(x->dtype)};
    bool packs = first % WORDS == 0 && d.loop.ndim == 1 && pack_loop(&packed, d.loop, size, WORDS) && !packed.repeated;
    unsigned blocks = packs ? pack_blocks(device, d.loop.total, PACKS * WORDS) : walk_blocks(device, d.loop.total);
#define DROPOUT(E)                                                                                                     \
    do {                                                                                                               \
        if (packs)                                                                                                     \
            YK__LAUNCH("dropout", dropout_packs_kernel<E>, blocks, THREADS, 0, stream, d, packed);                     \
        else                                                                                                           \
            YK__LAUNCH("dropout", dropout_kernel<E>, blocks, THREADS, 0, stream, d);                                   \
    } while (0)
    FLOATING(out->dtype, DROPOUT);
    return cuda_launched(device, "dropout", 2, views);
}
