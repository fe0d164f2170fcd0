/*
 * combine.c - the arithmetic of reductions, and copies past the caches. Layer: comm/native.
 *
 * Everything is done in blocks that stay in the first-level cache: the inputs are combined into a block in the order of
 * ranks, then the block is written to every output. So each input is read once and each output written once, whatever
 * their number. f16 and bf16 are widened to f32 by the CPU backend's copy kernel, combined, and rounded once.
 */
#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "comm/native/native.h"

enum { BLOCK = 16384 /* bytes */ };

void yk__native_stream_copy(void *to, const void *from, size_t bytes)
{
#if defined(__x86_64__)
    char *d = to;
    const char *s = from;
    size_t head = (size_t)(-(uintptr_t)d & 63);
    if (bytes < head + 64) {
        memcpy(d, s, bytes);
        return;
    }
    memcpy(d, s, head);
    d += head, s += head, bytes -= head;
    for (; bytes >= 64; d += 64, s += 64, bytes -= 64) {
        __m128i a = _mm_loadu_si128((const __m128i *)(const void *)s);
        __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(s + 16));
        __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(s + 32));
        __m128i e = _mm_loadu_si128((const __m128i *)(const void *)(s + 48));
        _mm_stream_si128((__m128i *)(void *)d, a);
        _mm_stream_si128((__m128i *)(void *)(d + 16), b);
        _mm_stream_si128((__m128i *)(void *)(d + 32), c);
        _mm_stream_si128((__m128i *)(void *)(d + 48), e);
    }
    memcpy(d, s, bytes);
#else
    memcpy(to, from, bytes);
#endif
}

void yk__native_stream_end(void)
{
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

/* out = a op b. out may be a. NaN wins over numbers in min and max, as in PyTorch. */
#define SUM(a, b)     ((a) + (b))
#define PRODUCT(a, b) ((a) * (b))
#define FMIN(a, b)    ((a) < (b) || (a) != (a) ? (a) : (b))
#define FMAX(a, b)    ((a) > (b) || (a) != (a) ? (a) : (b))
#define IMIN(a, b)    ((a) < (b) ? (a) : (b))
#define IMAX(a, b)    ((a) > (b) ? (a) : (b))
#define ANY(a, b)     (((a) | (b)) != 0)
#define ALL(a, b)     ((a) != 0 && (b) != 0)
#define KERNEL(name, type, expression)                                                                                 \
    static void name(void *out, const void *a, const void *b, int64_t n)                                               \
    {                                                                                                                  \
        type *o = out;                                                                                                 \
        const type *x = a, *y = b;                                                                                     \
        for (int64_t i = 0; i < n; i++)                                                                                \
            o[i] = (type)expression(x[i], y[i]);                                                                       \
    }
/* Sums and products of integers wrap around: they are computed as unsigned. */
#define KERNELS(tag, type, wide, min, max)                                                                             \
    KERNEL(sum_##tag, wide, SUM)                                                                                       \
    KERNEL(product_##tag, wide, PRODUCT)                                                                               \
    KERNEL(min_##tag, type, min)                                                                                       \
    KERNEL(max_##tag, type, max)
KERNELS(f32, float, float, FMIN, FMAX)
KERNELS(f64, double, double, FMIN, FMAX)
KERNELS(i64, int64_t, uint64_t, IMIN, IMAX)
KERNELS(i32, int32_t, uint32_t, IMIN, IMAX)
KERNELS(u8, uint8_t, uint8_t, IMIN, IMAX)
KERNEL(any_bool, uint8_t, ANY)
KERNEL(all_bool, uint8_t, ALL)

typedef void (*combine_fn)(void *out, const void *a, const void *b, int64_t n);

/* For f16 and bf16, the kernel of f32. */
static combine_fn kernel_of(yk_reduce_op op, yk_dtype dtype)
{
#define ROW(tag)                                                                                                       \
    {                                                                                                                  \
        [YK_OP_SUM] = sum_##tag, [YK_OP_MEAN] = sum_##tag, [YK_OP_MIN] = min_##tag, [YK_OP_MAX] = max_##tag,           \
        [YK_OP_PRODUCT] = product_##tag                                                                                \
    }
    static const combine_fn table[YK__DTYPES][YK_OP_PRODUCT + 1] = {
        [YK_F32] = ROW(f32), [YK_F64] = ROW(f64),
        [YK_F16] = ROW(f32), [YK_BF16] = ROW(f32),
        [YK_I64] = ROW(i64), [YK_I32] = ROW(i32),
        [YK_U8] = ROW(u8),   [YK_BOOL] = {any_bool, any_bool, all_bool, any_bool, all_bool},
    };
    return table[dtype][op];
}

static void divide(yk_dtype dtype, void *out, int64_t n, int by)
{
    if (dtype == YK_F64) {
        double *o = out;
        for (int64_t i = 0; i < n; i++)
            o[i] /= by;
    } else {
        float *o = out, f = (float)by;
        for (int64_t i = 0; i < n; i++)
            o[i] /= f;
    }
}

static yk_status cast(void *to, yk_dtype to_dtype, const void *from, yk_dtype from_dtype, int64_t n)
{
    static const yk_device cpu = {YK_CPU, 0};
    const yk__backend *backend = yk__backend_of(cpu);
    yk__view out = {.data = to, .dtype = to_dtype, .ndim = 1, .shape = {n}, .stride = {1}};
    yk__view in = {.data = (void *)(uintptr_t)from, .dtype = from_dtype, .ndim = 1, .shape = {n}, .stride = {1}};
    return backend ? backend->copy(0, &out, &in) : yk__error_code();
}

yk_status yk__native_accumulate(yk_reduce_op op, yk_dtype dtype, char *out, int inputs, const char *const *in,
                                int64_t count)
{
    _Alignas(64) float next[BLOCK / sizeof(float)];
    combine_fn fn = kernel_of(op, dtype);
    size_t size = yk_dtype_size(dtype);
    bool half = yk__is_half(dtype);
    int64_t step = (int64_t)(BLOCK / (half ? sizeof(float) : size));
    for (int64_t begin = 0; begin < count; begin += step) {
        int64_t n = count - begin < step ? count - begin : step;
        char *to = out + (size_t)begin * (half ? sizeof(float) : size);
        for (int i = 0; i < inputs; i++) {
            const char *from = in[i] + (size_t)begin * size;
            if (half) {
                yk_status status = cast(i ? (char *)next : to, YK_F32, from, dtype, n);
                if (status)
                    return status;
                from = (const char *)next;
            }
            if (i)
                fn(to, to, from, n);
            else if (!half && to != from)
                memcpy(to, from, (size_t)n * size);
        }
    }
    return YK_OK;
}

void yk__native_fold(yk_reduce_op op, yk_dtype dtype, void *into, const void *from, int64_t count)
{
    kernel_of(op, dtype)(into, from, into, count);
}

yk_status yk__native_round(yk_reduce_op op, yk_dtype dtype, void *out, void *from, int64_t count, int ranks)
{
    if (op == YK_OP_MEAN)
        divide(yk__native_wide(dtype), from, count, ranks);
    if (yk__is_half(dtype))
        return cast(out, dtype, from, YK_F32, count);
    if (out != from)
        memcpy(out, from, (size_t)count * yk_dtype_size(dtype));
    return YK_OK;
}

/* The combination of one block into `out`, of the dtype; `wide` has room for two blocks of f32. */
static yk_status combine_half(combine_fn fn, yk_reduce_op op, yk_dtype dtype, void *out, int inputs,
                              const char *const *in, size_t offset, int64_t n, float *wide)
{
    float *next = wide + BLOCK / sizeof(float);
    yk_status status = cast(wide, YK_F32, in[0] + offset, dtype, n);
    for (int i = 1; i < inputs && !status; i++) {
        status = cast(next, YK_F32, in[i] + offset, dtype, n);
        fn(wide, wide, next, n);
    }
    if (op == YK_OP_MEAN)
        divide(YK_F32, wide, n, inputs);
    return status ? status : cast(out, dtype, wide, YK_F32, n);
}

yk_status yk__native_combine(yk_reduce_op op, yk_dtype dtype, int outputs, char *const *out, int inputs,
                             const char *const *in, int64_t count, bool stream)
{
    _Alignas(64) char block[BLOCK];
    _Alignas(64) float wide[2 * BLOCK / sizeof(float)];
    combine_fn fn = kernel_of(op, dtype);
    size_t size = yk_dtype_size(dtype);
    bool half = yk__is_half(dtype), direct = outputs == 1 && !stream;
    int64_t step = (int64_t)(BLOCK / (half ? sizeof(float) : size));
    for (int64_t begin = 0; begin < count; begin += step) {
        int64_t n = count - begin < step ? count - begin : step;
        size_t offset = (size_t)begin * size, bytes = (size_t)n * size;
        if (half) {
            yk_status status = combine_half(fn, op, dtype, block, inputs, in, offset, n, wide);
            if (status)
                return status;
        } else if (inputs == 1) {
            memcpy(block, in[0] + offset, bytes);
        } else {
            /* With one output and two inputs the block is left out. The output may be one of the inputs: up to the
             * last input nothing is written to it. */
            for (int i = 1; i < inputs; i++)
                fn(direct && i == inputs - 1 ? out[0] + offset : block, i == 1 ? in[0] + offset : block, in[i] + offset,
                   n);
            if (op == YK_OP_MEAN)
                divide(dtype, direct ? out[0] + offset : block, n, inputs);
        }
        if (direct && !half && inputs > 1)
            continue;
        for (int o = 0; o < outputs; o++) {
            if (stream)
                yk__native_stream_copy(out[o] + offset, block, bytes);
            else
                memcpy(out[o] + offset, block, bytes);
        }
    }
    if (stream)
        yk__native_stream_end();
    return YK_OK;
}

yk_status yk__comm_combine(yk_reduce_op op, yk_dtype dtype, int outputs, char *const *out, int inputs,
                           const char *const *in, int64_t count, bool stream)
{
    return yk__native_combine(op, dtype, outputs, out, inputs, in, count, stream);
}
