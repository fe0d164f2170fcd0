/*
 * reduction_reference.h - the result that a reduction must have, one element at a time: values stand in the order of
 * ranks; level by level neighbours 2i and 2i + 1 are combined, left with right, and an odd last one goes up unchanged.
 * f16 and bf16 in f32, rounded once at the root, where a mean is divided.
 */
#ifndef YOKE_TESTS_REDUCTION_REFERENCE_H
#define YOKE_TESTS_REDUCTION_REFERENCE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <yoke/comm.h>

enum { MOST_REFERENCE_RANKS = 16 };

typedef union reference_value {
    float f;
    double d;
    int64_t l;
    int32_t i;
    uint8_t u;
} reference_value;

static inline float reference_from_half(uint16_t h, bool bf16)
{
    if (!bf16) {
        int exponent = h >> 10 & 31, mantissa = h & 1023;
        float m = exponent == 31 ? (mantissa ? NAN : INFINITY)
                  : exponent     ? ldexpf((float)(1024 + mantissa), exponent - 25)
                                 : ldexpf((float)mantissa, -24);
        return h & 0x8000 ? -m : m;
    }
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

/* Rounds to the nearest, ties to the even one. */
static inline uint16_t reference_to_half(float f, bool bf16)
{
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if (bf16)
        return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    float magnitude = fabsf(f);
    if (!(magnitude < 65520.0f))
        return sign | (isnan(f) ? 0x7E00 : 0x7C00);
    int exponent = 0;
    frexpf(magnitude, &exponent);
    bool subnormal = magnitude < 0x1p-14f;
    int unit = subnormal ? -24 : exponent - 11;               /* the last bit is worth 2^unit */
    int mantissa = (int)nearbyintf(ldexpf(magnitude, -unit)); /* 2048 carries into the exponent */
    return (uint16_t)(sign | (subnormal ? mantissa : ((unit + 25) << 10) + mantissa - 1024));
}

static inline reference_value reference_widen(yk_dtype dtype, const void *at)
{
    reference_value v = {.l = 0};
    uint16_t h;
    if (dtype != YK_F16 && dtype != YK_BF16)
        return memcpy(&v, at, yk_dtype_size(dtype)), v;
    memcpy(&h, at, 2);
    v.f = reference_from_half(h, dtype == YK_BF16);
    return v;
}

/* NaN wins in min and max; of equal ones (0 and -0) the right one. Integers wrap around. */
#define REFERENCE_MIN(a, b) ((a) != (a) || (a) < (b) ? (a) : (b))
#define REFERENCE_MAX(a, b) ((a) != (a) || (a) > (b) ? (a) : (b))
#define REFERENCE_PICK(m, T)                                                                                           \
    (op == YK_OP_PRODUCT ? (T)(a.m * b.m)                                                                              \
     : op == YK_OP_MIN   ? (T)REFERENCE_MIN(a.m, b.m)                                                                  \
     : op == YK_OP_MAX   ? (T)REFERENCE_MAX(a.m, b.m)                                                                  \
                         : (T)(a.m + b.m))
static inline reference_value reference_combine(yk_dtype dtype, yk_reduce_op op, reference_value a, reference_value b)
{
    switch (dtype) {
    case YK_F64: a.d = REFERENCE_PICK(d, double); break;
    case YK_I64:
        if (op == YK_OP_MIN || op == YK_OP_MAX)
            a.l = REFERENCE_PICK(l, int64_t);
        else
            a.l = (int64_t)(op == YK_OP_PRODUCT ? (uint64_t)a.l * (uint64_t)b.l : (uint64_t)a.l + (uint64_t)b.l);
        break;
    case YK_I32:
        if (op == YK_OP_MIN || op == YK_OP_MAX)
            a.i = REFERENCE_PICK(i, int32_t);
        else
            a.i = (int32_t)(op == YK_OP_PRODUCT ? (uint32_t)a.i * (uint32_t)b.i : (uint32_t)a.i + (uint32_t)b.i);
        break;
    case YK_U8: a.u = REFERENCE_PICK(u, uint8_t); break;
    case YK_BOOL: a.u = op == YK_OP_PRODUCT || op == YK_OP_MIN ? a.u && b.u : a.u || b.u; break;
    default: a.f = REFERENCE_PICK(f, float); break;
    }
    return a;
}

/* The result for the elements at values[0], values[1], ... of the ranks, to `out`. */
static inline void reference_reduce(yk_dtype dtype, yk_reduce_op op, int ranks, const void *const *values, void *out)
{
    reference_value v[MOST_REFERENCE_RANKS];
    for (int r = 0; r < ranks; r++)
        v[r] = reference_widen(dtype, values[r]);
    for (int n = ranks; n > 1; n = (n + 1) / 2) {
        for (int i = 0; i < n / 2; i++)
            v[i] = reference_combine(dtype, op, v[2 * i], v[2 * i + 1]);
        if (n % 2)
            v[n / 2] = v[n - 1];
    }
    if (op == YK_OP_MEAN && dtype == YK_F64)
        v[0].d /= ranks;
    else if (op == YK_OP_MEAN)
        v[0].f /= (float)ranks;
    if (dtype == YK_F16 || dtype == YK_BF16) {
        uint16_t h = reference_to_half(v[0].f, dtype == YK_BF16);
        memcpy(out, &h, 2);
    } else {
        memcpy(out, &v[0], yk_dtype_size(dtype));
    }
}

/* True if two elements have the same bits; any NaN is equal to any other. */
static inline bool reference_equal(yk_dtype dtype, const void *a, const void *b)
{
    if (memcmp(a, b, yk_dtype_size(dtype)) == 0)
        return true;
    if (!yk_dtype_is_floating(dtype))
        return false;
    reference_value x = reference_widen(dtype, a), y = reference_widen(dtype, b);
    return dtype == YK_F64 ? isnan(x.d) && isnan(y.d) : isnan(x.f) && isnan(y.f);
}

static inline uint64_t reference_hash(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

/* Element i of a rank: of many magnitudes, so that the order of a sum shows; now and then a zero, inf or NaN. */
static inline void reference_fill(yk_dtype dtype, uint64_t seed, int rank, int64_t i, void *out)
{
    uint64_t h =
        reference_hash(seed * 1000003 + (uint64_t)rank * 0x9E3779B97F4A7C15u + (uint64_t)i * 0xD1B54A32D192ED03u);
    int special = (int)(h >> 56);
    reference_value v = {.l = (int64_t)h};
    if (!yk_dtype_is_floating(dtype)) {
        if (dtype == YK_BOOL)
            v.u = h >> 40 & 1;
        memcpy(out, &v, yk_dtype_size(dtype));
        return;
    }
    bool half = yk_dtype_size(dtype) == 2;
    double x = ldexp((double)(int64_t)(h & 0xFFFFFF) - 0x800000, (int)(h >> 24 & 15) - (half ? 26 : 30));
    x = special == 0 ? NAN : special == 1 ? INFINITY : special == 2 ? -INFINITY : special < 8 ? 0.0 : x;
    x = special == 5 || special == 6 ? -0.0 : x;
    if (dtype == YK_F64) {
        memcpy(out, &x, 8);
    } else if (dtype == YK_F32) {
        v.f = (float)x;
        memcpy(out, &v.f, 4);
    } else {
        uint16_t bits = reference_to_half((float)x, dtype == YK_BF16);
        memcpy(out, &bits, 2);
    }
}

#endif
