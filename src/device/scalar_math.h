/*
 * scalar_math.h - elementary functions written so that loops over them vectorise, for kernels of every device. Layer:
 * device.
 *
 * The f32 versions have no branches, table look-ups or calls, but for sin and cos of great arguments. They are right
 * for every input, denormals, infinities and NaN included: exp, expm1, log, log1p, sin, cos, pow, erf and atan2 within
 * 2 ulp, tanh and sigmoid within 4, gelu within 3 2^-24 |x| (tests/device/elementwise_test.c). Their polynomials are
 * our own minimax fits (Remez exchange in 40 digits); the error of the fit stands beside each. The f64 versions are in
 * scalar_math_f64.h.
 *
 * The bits are the same on every instruction set: every fused multiply-add is written as one, and the kernels that
 * must give the same bits are compiled with -ffp-contract=off (Makefile: UNFUSED), so that there are no others.
 */
#ifndef YOKE_DEVICE_SCALAR_MATH_H
#define YOKE_DEVICE_SCALAR_MATH_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* See base/philox.h. */
#ifndef YK__SCALAR
#define YK__SCALAR static inline
#endif

YK__SCALAR uint32_t yk__bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

YK__SCALAR float yk__float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

YK__SCALAR uint64_t yk__bits_of_double(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

YK__SCALAR double yk__double_of(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* a b + c, rounded once. */
#if defined(__FMA__) || defined(__aarch64__) || defined(__CUDACC__)
YK__SCALAR float yk__fma_f32(float a, float b, float c)
{
    return fmaf(a, b, c);
}

YK__SCALAR double yk__fma_f64(double a, double b, double c)
{
    return fma(a, b, c);
}
#else
/*
 * In double the product of two floats is exact. Their sum with c is rounded to odd (Boldo and Melquiond, 2008): where
 * it is inexact the last bit becomes 1, so that the rounding to float that follows is the only one that counts.
 */
YK__SCALAR float yk__fma_f32(float a, float b, float c)
{
    double p = (double)a * (double)b, q = (double)c, s = p + q;
    double t = s - p, error = (p - (s - t)) + (q - t);
    uint64_t bits = yk__bits_of_double(s);
    uint64_t step = (error > 0) == (s > 0) ? 1 : ~(uint64_t)0;
    bool odd = (bits & 1) || !(error < 0 || error > 0);
    return (float)yk__double_of(odd ? bits : bits + step);
}

YK__SCALAR double yk__fma_f64(double a, double b, double c)
{
    return fma(a, b, c);
}
#endif

#define YK__FMA(a, b, c) yk__fma_f32(a, b, c)

/* a / b for numbers from 2^-40 to 2^40, without what a division does to look whether they are. */
#ifndef YK__DIVIDED
#define YK__DIVIDED(a, b) ((a) / (b))
#endif

/* p 2^k for k in [-252, 254]: the scale in two factors, so that neither overflows and a denormal is rounded once. */
YK__SCALAR float yk__scale(float p, int32_t k)
{
    int32_t half = k >> 1;
    return p * yk__float_of((uint32_t)(half + 127) << 23) * yk__float_of((uint32_t)(k - half + 127) << 23);
}

/*
 * e^(hi + lo) = (1 + p) 2^k for hi in [-150, 90] and |lo| < 0.06; p is in [-0.35, 0.55]. ln 2 is taken off in two
 * parts, of which the first has 9 bits.
 */
YK__SCALAR float yk__exp_less_one_f32(float hi, float lo, int32_t *k)
{
    float shifted = YK__FMA(hi, 1.44269504f, 0x1.8p23f); /* the low bits of the mantissa are now the integer nearest */
    float n = shifted - 0x1.8p23f;
    float r = YK__FMA(n, 2.12194440e-4f, YK__FMA(n, -0.693359375f, hi)) + lo;
    *k = (int32_t)(yk__bits_of(shifted) - 0x4B400000u);
    /* (e^r - 1 - r) / r^2 on [-0.42, 0.42]: 2.5e-10 */
    float q = YK__FMA(0x1.9e7872p-13f, r, 0x1.6e38bep-10f);
    q = YK__FMA(q, r, 0x1.111416p-7f);
    q = YK__FMA(q, r, 0x1.5553aep-5f);
    q = YK__FMA(q, r, 0x1.555552p-3f);
    q = YK__FMA(q, r, 0.5f);
    return YK__FMA(q, r * r, r);
}

/* e^(hi + lo) = p 2^k, likewise. */
YK__SCALAR float yk__exp_parts(float hi, float lo, int32_t *k)
{
    return yk__exp_less_one_f32(hi, lo, k) + 1.0f;
}

/* Results outside of the range of f32 are set at the end: that is quicker than bounding x first. */
YK__SCALAR float yk__exp_f32(float x)
{
    int32_t k;
    float p = yk__exp_parts(x, 0.0f, &k);
    float y = yk__scale(p, k);
    y = x > 89.0f ? INFINITY : y;
    return x < -104.0f ? 0.0f : y;
}

/* 2^k (e^r - 1) + 2^k - 1, halved, so that 2^128 does not overflow. */
YK__SCALAR float yk__expm1_f32(float x)
{
    int32_t k;
    float p = yk__exp_less_one_f32(x, 0.0f, &k);
    float half = yk__float_of((uint32_t)(k + 126) << 23);
    float y = 2.0f * YK__FMA(half, p, half - 0.5f);
    y = x > 89.0f ? INFINITY : y;
    y = x < -20.0f ? -1.0f : y;
    return fabsf(x) < 0x1p-25f ? x : y; /* keeps -0 and all of a denormal */
}

/* x = 2^k m for a normal x > 0, m in [sqrt(1/2), sqrt(2)). */
YK__SCALAR float yk__log_split_f32(float x, int32_t *k)
{
    uint32_t bits = yk__bits_of(x);
    *k = (int32_t)(bits - 0x3F3504F3u) >> 23;
    return yk__float_of(bits - ((uint32_t)*k << 23));
}

/* n ln 2 + log(1 + f) for 1 + f in [sqrt(1/2), sqrt(2)). */
YK__SCALAR float yk__log_sum_f32(float n, float f)
{
    /* (log(1 + f) - f + f^2 / 2) / f^3: 7.5e-10 */
    float q = YK__FMA(0x1.1457acp-4f, f, -0x1.de3c58p-4f);
    q = YK__FMA(q, f, 0x1.e6f08ep-4f);
    q = YK__FMA(q, f, -0x1.fc2200p-4f);
    q = YK__FMA(q, f, 0x1.233766p-3f);
    q = YK__FMA(q, f, -0x1.555c4ep-3f);
    q = YK__FMA(q, f, 0x1.99a4b6p-3f);
    q = YK__FMA(q, f, -0x1.000006p-2f);
    q = YK__FMA(q, f, 0x1.555548p-2f);
    float ff = f * f;
    float low = YK__FMA(n, -2.12194440e-4f, ff * (f * q));
    return YK__FMA(n, 0.693359375f, YK__FMA(ff, -0.5f, low) + f);
}

YK__SCALAR float yk__log_f32(float x)
{
    float scaled = x < FLT_MIN ? x * 0x1p25f : x;
    float shift = x < FLT_MIN ? 25.0f : 0.0f;
    int32_t k;
    float m = yk__log_split_f32(scaled, &k);
    float y = yk__log_sum_f32((float)k - shift, m - 1.0f);
    y = x < INFINITY ? y : x;
    float outside = x == 0.0f ? -INFINITY : NAN;
    return x > 0.0f ? y : outside;
}

/* The rounding error of 1 + x is added to the mantissa; without an exponent that gives x back. */
YK__SCALAR float yk__log1p_f32(float x)
{
    float u = 1.0f + x, part = u - 1.0f, lost = (1.0f - (u - part)) + (x - part);
    int32_t k;
    float m = yk__log_split_f32(u, &k);
    lost = x > 0x1p30f ? 0.0f : lost * yk__float_of((uint32_t)(127 - k) << 23);
    float y = yk__log_sum_f32((float)k, (m - 1.0f) + lost);
    y = u < INFINITY ? y : u;
    float outside = u == 0.0f ? -INFINITY : NAN;
    y = u > 0.0f ? y : outside;
    return fabsf(x) < 0x1p-25f ? x : y;
}

/*
 * sin and cos for |x| <= YK__TRIG_LIMIT, by Cody and Waite's reduction: x = k pi/2 + r, with pi/2 in three parts. The
 * first product is taken off exactly, and no float up to the limit is so near a multiple of pi/2 that the third part's
 * end would count. Quarter of the circle: 0 sin, 1 cos.
 */
#define YK__TRIG_LIMIT 65536.0f
YK__SCALAR float yk__circle(float x, uint32_t quarter)
{
    float shifted = YK__FMA(x, 0.636619772f, 0x1.8p23f);
    float n = shifted - 0x1.8p23f;
    uint32_t q = yk__bits_of(shifted) + quarter;
    float r = YK__FMA(n, -0x1.921fb6p+0f, x);
    r = YK__FMA(n, 0x1.777a5cp-25f, r);
    r = YK__FMA(n, 0x1.ee59dap-50f, r);
    float z = r * r;
    /* (sin(r) / r - 1) / r^2 on [0, pi/4]: 3.6e-9 of sin(r) / r */
    float s = YK__FMA(-0x1.994acep-13f, z, 0x1.110756p-7f);
    s = YK__FMA(YK__FMA(s, z, -0x1.555546p-3f), r * z, r);
    /* (cos(r) - 1 + r^2 / 2) / r^4 there: 9.7e-11 of cos(r) */
    float c = YK__FMA(0x1.99fedap-16f, z, -0x1.6c0c80p-10f);
    c = YK__FMA(YK__FMA(c, z, 0x1.55554ap-5f), z * z, YK__FMA(z, -0.5f, 1.0f));
    float y = q & 1 ? c : s;
    return yk__float_of(yk__bits_of(y) ^ (q & 2) << 30);
}

YK__SCALAR float yk__sin_near_f32(float x)
{
    float y = yk__circle(fabsf(x), 0);
    return yk__float_of(yk__bits_of(y) ^ (yk__bits_of(x) & 0x80000000u)); /* sin(-0) is -0 */
}

YK__SCALAR float yk__cos_near_f32(float x)
{
    return yk__circle(fabsf(x), 1);
}

YK__SCALAR float yk__sin_f32(float x)
{
    return fabsf(x) <= YK__TRIG_LIMIT ? yk__sin_near_f32(x) : sinf(x);
}

YK__SCALAR float yk__cos_f32(float x)
{
    return fabsf(x) <= YK__TRIG_LIMIT ? yk__cos_near_f32(x) : cosf(x);
}

/* log2(a) of a finite a > 0, in double: a = 2^k m, log2(m) from s = (m - 1) / (m + 1). */
YK__SCALAR double yk__log2_wide(float a)
{
    float scaled = a < FLT_MIN ? a * 0x1p25f : a;
    float shift = a < FLT_MIN ? 25.0f : 0.0f;
    uint32_t bits = yk__bits_of(scaled);
    int32_t k = (int32_t)(bits - 0x3F3504F3u) >> 23;
    double m = (double)yk__float_of(bits - ((uint32_t)k << 23));
    double s = (m - 1.0) / (m + 1.0), z = s * s;
    /* log2(m) / s in s^2: 4.2e-12 of it */
    double q = yk__fma_f64(0x1.5ce85a622fc37p-2, z, 0x1.a58d888300de8p-2);
    q = yk__fma_f64(q, z, 0x1.27777fe8f7afbp-1);
    q = yk__fma_f64(q, z, 0x1.ec709d12cf29cp-1);
    q = yk__fma_f64(q, z, 0x1.71547652bedf3p+1);
    return yk__fma_f64(q, s, (double)((float)k - shift));
}

/* Rounded from double once, so that whole logarithms are whole. */
YK__SCALAR float yk__log_of_base(float x, double factor)
{
    float y = (float)(yk__log2_wide(x) * factor);
    y = x < INFINITY ? y : x;
    float outside = x == 0.0f ? -INFINITY : NAN;
    return x > 0.0f ? y : outside;
}

YK__SCALAR float yk__log2_f32(float x)
{
    return yk__log_of_base(x, 1.0);
}

YK__SCALAR float yk__log10_f32(float x)
{
    return yk__log_of_base(x, 0x1.34413509f79ffp-2);
}

/*
 * x^y in double: 2^t, t = y log2(|x|), is rounded to float once. Special cases are put right by selection, as C99's
 * annex F says.
 */
YK__SCALAR float yk__pow_f32(float x, float y)
{
    float a = fabsf(x);
    double log2 = yk__log2_wide(a);
    double t = (double)y * log2;
    t = t < -160.0 ? -160.0 : t;
    t = t > 130.0 ? 130.0 : t;
    double shifted = t + 0x1.8p52, r = t - (shifted - 0x1.8p52);
    /* 2^r on [-1/2, 1/2]: 1.9e-9 of it */
    double p = yk__fma_f64(0x1.41d2f44d4f8e5p-13, r, 0x1.5f45974b33bb2p-10);
    p = yk__fma_f64(p, r, 0x1.3b2dbc9078dd7p-7);
    p = yk__fma_f64(p, r, 0x1.c6aed461b6c1dp-5);
    p = yk__fma_f64(p, r, 0x1.ebfbdadad6255p-3);
    p = yk__fma_f64(p, r, 0x1.62e430c8287e3p-1);
    p = yk__fma_f64(p, r, 0x1.000000026261ap+0);
    float power = (float)yk__double_of(yk__bits_of_double(p) + (yk__bits_of_double(shifted) << 52));
    bool rises = (a > 1.0f) == (y > 0.0f);
    float edge = rises ? INFINITY : 0.0f; /* of 0 or infinity, and of any number to a power of infinity */
    power = a == 0.0f || a == INFINITY || fabsf(y) == INFINITY ? edge : power;
    bool whole = rintf(y) == y, odd = whole && rintf(0.5f * y) != 0.5f * y; /* infinity is even */
    power = x < 0.0f && !whole && a < INFINITY ? NAN : power;
    power = odd ? yk__float_of(yk__bits_of(power) ^ (yk__bits_of(x) & 0x80000000u)) : power;
    power = x != x || y != y ? x + y : power;
    bool one = x == 1.0f || y == 0.0f || (a == 1.0f && fabsf(y) == INFINITY);
    return one ? 1.0f : power;
}

YK__SCALAR float yk__tanh_f32(float x)
{
    float a = fabsf(x), z = x * x;
    int32_t k;
    /* (tanh(x) / x - 1) / x^2 on [0, 0.625]: 1.5e-10 */
    float q = YK__FMA(0x1.197b8ap-9f, z, -0x1.0c214ap-7f);
    q = YK__FMA(q, z, 0x1.6394dap-6f);
    q = YK__FMA(q, z, -0x1.b9ef7ep-5f);
    q = YK__FMA(q, z, 0x1.11106cp-3f);
    q = YK__FMA(q, z, -0x1.555554p-2f);
    float small = YK__FMA(x, z * q, x);
    float p = yk__exp_parts(2.0f * a, 0.0f, &k);
    float e = YK__FMA(p, yk__float_of((uint32_t)(k + 127) << 23), 1.0f);
    float large = 1.0f - YK__DIVIDED(2.0f, e);
    large = a > 10.0f ? 1.0f : large;
    large = yk__float_of(yk__bits_of(large) | (yk__bits_of(x) & 0x80000000u));
    return a < 0.625f ? small : large;
}

/* 1 / (1 + e^-x) as 0.5 / (0.5 + e^-x / 2), which neither overflows nor loses what is left at x = -88. */
YK__SCALAR float yk__sigmoid_f32(float x)
{
    int32_t k;
    float p = yk__exp_parts(-x, 0.0f, &k);
    float y = 0.5f / YK__FMA(p, yk__float_of((uint32_t)(k + 126) << 23), 0.5f);
    y = x > 40.0f ? 1.0f : y;
    return x < -89.0f ? 0.0f : y;
}

/*
 * The normal distribution's tail Q(t) = erfc(t / sqrt 2) / 2 = e^(-t^2/2) R(t) for t in [0, 15]: gives R(t), and
 * e^(-t^2/2) as p 2^k. t^2 is split so that its rounding is not magnified by the exponential: t = h + rest, h of 12
 * bits, t^2 = h^2 + rest (t + h).
 */
YK__SCALAR float yk__normal_tail(float t, float *p, int32_t *k)
{
    float h = yk__float_of(yk__bits_of(t) & 0xFFFFF000u);
    *p = yk__exp_parts(-0.5f * (h * h), -0.5f * ((t - h) * (t + h)), k);
    float v = 1.0f / (t + 3.0f);
    float u = (t - 3.0f) * v;
    /* R(t) (t + 3) in u: 9.4e-10 */
    float r = YK__FMA(0x1.c91628p-15f, u, 0x1.136b56p-13f);
    r = YK__FMA(r, u, -0x1.009e2ep-12f);
    r = YK__FMA(r, u, -0x1.0eaed6p-10f);
    r = YK__FMA(r, u, 0x1.0ca212p-10f);
    r = YK__FMA(r, u, 0x1.c8bda4p-8f);
    r = YK__FMA(r, u, -0x1.56d5ecp-7f);
    r = YK__FMA(r, u, -0x1.832d0ap-5f);
    r = YK__FMA(r, u, 0x1.d71386p-3f);
    r = YK__FMA(r, u, -0x1.04c72ap-1f);
    return YK__FMA(r, u, 0x1.754a76p-1f) * v;
}

/*
 * x times the normal distribution's Phi(x), which is 1/2 + x P(x^2) / Q(x^2) with an error of 7e-9 up to 5.5, and then
 * 0 or 1 (2e-8). So the error is at most 3 2^-24 |x|, PyTorch's own; NaN at minus infinity, as there.
 */
YK__SCALAR float yk__gelu_f32(float x)
{
    float z = x * x;
    float p = YK__FMA(0x1.86d39ep-26f, z, 0x1.aa449ap-18f);
    p = YK__FMA(p, z, 0x1.620810p-13f);
    p = YK__FMA(p, z, 0x1.32865cp-8f);
    p = YK__FMA(p, z, 0x1.155062p-5f);
    p = YK__FMA(p, z, 0x1.988450p-2f);
    float q = YK__FMA(0x1.417222p-20f, z, 0x1.34e1ecp-14f);
    q = YK__FMA(q, z, 0x1.edfb2ap-10f);
    q = YK__FMA(q, z, 0x1.d5535ap-6f);
    q = YK__FMA(q, z, 0x1.018e6ap-2f);
    q = YK__FMA(q, z, 1.0f);
    float phi = YK__FMA(x, YK__DIVIDED(p, q), 0.5f); /* not used where q is greater than 2^40 */
    phi = x > 5.5f ? 1.0f : phi;
    return x * (x < -5.5f ? 0.0f : phi);
}

/* The derivative of GELU, Phi(x) + x phi(x); at the infinities NaN, infinity times 0. */
YK__SCALAR float yk__gelu_grad_f32(float x)
{
    float t = fabsf(x), p;
    int32_t k;
    t = t > 15.0f ? 15.0f : t;
    float r = yk__normal_tail(t, &p, &k);
    float w = (p * YK__FMA(t, -0.398942280f, r)) * yk__float_of((uint32_t)(k + 190) << 23) * 0x1p-63f;
    return (x < 0.0f ? w : 1.0f - w) + x * 0.0f;
}

YK__SCALAR float yk__erf_f32(float x)
{
    float a = fabsf(x), z = x * x;
    /* (erf(x) - x) / x in x^2 up to 0.93: 4.6e-10 */
    float q = YK__FMA(0x1.5e0632p-14f, z, -0x1.aaa2dap-11f);
    q = YK__FMA(q, z, 0x1.54d42ap-8f);
    q = YK__FMA(q, z, -0x1.b80ff2p-6f);
    q = YK__FMA(q, z, 0x1.ce2e1cp-4f);
    q = YK__FMA(q, z, -0x1.812744p-2f);
    q = YK__FMA(q, z, 0x1.06eba8p-3f);
    /* log(erfc(a)) from 0.91 to 4: 1.6e-9 of erf(a), which is 1 in f32 from 3.92 on */
    float t = a > 4.0f ? 4.0f : a;
    float e = YK__FMA(0x1.9b2ecep-13f, t, -0x1.8f1376p-9f);
    e = YK__FMA(e, t, 0x1.6c4742p-6f);
    e = YK__FMA(e, t, -0x1.a9c53ep-4f);
    e = YK__FMA(e, t, -0x1.463a02p-1f);
    e = YK__FMA(e, t, -0x1.20b044p+0f);
    e = YK__FMA(e, t, -0x1.9287e4p-13f);
    int32_t k;
    float p = yk__exp_parts(e, 0.0f, &k);
    float large = copysignf(1.0f - p * yk__float_of((uint32_t)(k + 127) << 23), x);
    return a < 0.92f ? YK__FMA(x, q, x) : large;
}

/* The angle, computed as in yk__angle_f64, which explains it. */
YK__SCALAR float yk__angle_f32(float small, float great, bool steep, bool left)
{
    bool middle = small > 0.5f * great;
    float over = middle ? small - great : small, under = middle ? small + great : great;
    float t = small == 0.0f ? 0.0f : over / under, z = t * t;
    /* (atan(t) / t - 1) / t^2 in t^2 on [0, 1/4]: 2.8e-10 in atan(t) / t */
    float q = YK__FMA(0x1.405fb2p-5f, z, -0x1.483c88p-4f);
    q = YK__FMA(q, z, 0x1.c07de8p-4f);
    q = YK__FMA(q, z, -0x1.2450c4p-3f);
    q = YK__FMA(q, z, 0x1.999748p-3f);
    q = YK__FMA(q, z, -0x1.555552p-2f);
    float sign = steep != left ? -1.0f : 1.0f;
    float eighths = (steep ? 2.0f : left ? 4.0f : 0.0f) + (middle ? sign : 0.0f);
    float low = YK__FMA(t * z, q, sign * eighths * 0x1.54442ep-21f);
    return YK__FMA(sign, t + low, eighths * 0x1.921fap-1f);
}

YK__SCALAR float yk__atan2_f32(float y, float x)
{
    float a = fabsf(y), b = fabsf(x);
    bool steep = a > b, left = copysignf(1.0f, x) < 0.0f;
    float small = steep ? b : a, great = steep ? a : b;
    float scale = great > 0x1p100f ? 0x1p-30f : 1.0f;
    small = great == INFINITY ? (small == INFINITY ? 1.0f : 0.0f) : small * scale;
    great = great == INFINITY ? 1.0f : great * scale;
    float angle = yk__angle_f32(small, great, steep, left);
    angle = x != x || y != y ? x + y : angle;
    return copysignf(angle, y);
}

/* The angles of (sqrt(1 - x^2), x) and (x, sqrt(1 - x^2)); NaN outside [-1, 1]. */
YK__SCALAR float yk__asin_f32(float x)
{
    float a = fabsf(x), side = sqrtf((1.0f - x) * (1.0f + x));
    bool steep = a > side;
    float angle = yk__angle_f32(steep ? side : a, steep ? a : side, steep, false);
    return side >= 0.0f ? copysignf(angle, x) : NAN;
}

YK__SCALAR float yk__acos_f32(float x)
{
    float a = fabsf(x), side = sqrtf((1.0f - x) * (1.0f + x));
    bool steep = side > a;
    float angle = yk__angle_f32(steep ? a : side, steep ? side : a, steep, copysignf(1.0f, x) < 0.0f);
    return side >= 0.0f ? angle : NAN;
}

/* log((1 + x) / (1 - x)) / 2 = log1p(2 |x| / (1 - |x|)) / 2, odd. */
YK__SCALAR float yk__atanh_f32(float x)
{
    float a = fabsf(x);
    return copysignf(0.5f * yk__log1p_f32(2.0f * a / (1.0f - a)), x);
}

/* Box and Muller (1958): a radius from the first word, an angle from the second. */
YK__SCALAR float yk__standard_normal_f32(uint32_t first, uint32_t second)
{
    /* In (0, 1]: the word's upper and lower half are exact as floats, their sum is rounded once. */
    float u = (float)(int32_t)(first >> 16) * 0x1p-16f + ((float)(int32_t)(first & 0xFFFFu) + 0.5f) * 0x1p-32f;
    float radius = sqrtf(-2.0f * yk__log_f32(u));
    /* The angle in quarters of a turn: the nearest whole one, and the rest in [-1/2, 1/2]. */
    float t = (float)(int32_t)(second >> 8) * 0x1p-22f;
    int32_t quarter = (int32_t)(t + 0.5f);
    float f = t - (float)quarter, z = f * f;
    float s = 0x1.4bc89ap-13f; /* sin(pi/2 f) / f: 7e-12 */
    s = s * z - 0x1.32ca9ep-8f;
    s = s * z + 0x1.466bbap-4f;
    s = s * z - 0x1.4abbcep-1f;
    s = (s * z + 0x1.921fb6p+0f) * f;
    float c = 0x1.d9c364p-11f; /* cos(pi/2 f): 5e-11 */
    c = c * z - 0x1.55c57cp-6f;
    c = c * z + 0x1.03c1dcp-2f;
    c = c * z - 0x1.3bd3ccp+0f;
    c = c * z + 1.0f;
    float cosine = quarter & 1 ? s : c;
    cosine = (quarter + 1) & 2 ? -cosine : cosine;
    return radius * cosine;
}

/* The tangent, for |x| <= YK__TRIG_LIMIT, and of any x. */
YK__SCALAR float yk__tan_near_f32(float x)
{
    return yk__sin_near_f32(x) / yk__cos_near_f32(x);
}

YK__SCALAR float yk__tan_f32(float x)
{
    return yk__sin_f32(x) / yk__cos_f32(x);
}

/*
 * base^n, n >= 0, of 0 <= base < 1 by repeated squaring in pairs of doubles, whose sum has 106 bits: rounded correctly
 * but for one case in 2^40, and with the same bits on every device, which pow has not.
 */
YK__SCALAR void yk__pair_multiply(double *high, double *low, double by_high, double by_low)
{
    double product = *high * by_high, rest = yk__fma_f64(*high, by_high, -product);
    rest = yk__fma_f64(*high, by_low, yk__fma_f64(*low, by_high, rest));
    *high = product + rest;
    *low = rest - (*high - product);
}
YK__SCALAR double yk__power_of_step(double base, int64_t n)
{
    double high = 1, low = 0, factor = base, factor_low = 0;
    for (; n > 0; n >>= 1) {
        if (n & 1)
            yk__pair_multiply(&high, &low, factor, factor_low);
        yk__pair_multiply(&factor, &factor_low, factor, factor_low);
    }
    return high + low;
}

#include "device/scalar_math_f64.h"

#endif
