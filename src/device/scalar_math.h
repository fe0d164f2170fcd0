/*
 * scalar_math.h - elementary functions written so that loops over them vectorise, for kernels of every device. Layer:
 * device.
 *
 * The f32 versions have no branches, table look-ups or calls. They are right for every input, denormals, infinities
 * and NaN included: exp and log within 2 ulp, tanh and sigmoid within 4, gelu within 5
 * (tests/device/elementwise_test.c). Their polynomials are our own minimax fits in relative error (Remez exchange in 40
 * digits); the error of the fit stands beside each. The f64 versions are libm's.
 */
#ifndef YOKE_DEVICE_SCALAR_MATH_H
#define YOKE_DEVICE_SCALAR_MATH_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t yk__bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float yk__float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/*
 * e^(hi + lo) = p * s1 * s2 for hi in [-150, 89] and |lo| < 0.06, with the scale 2^n in two factors so that neither
 * overflows and a denormal result is rounded once. ln 2 is taken off in two parts, of which the first has 9 bits.
 */
static inline float yk__exp_parts(float hi, float lo, float *s1, float *s2)
{
    float shifted = hi * 1.44269504f + 0x1.8p23f; /* the low bits of the mantissa are now the integer nearest */
    float n = shifted - 0x1.8p23f;
    float r = ((hi - n * 0.693359375f) + n * 2.12194440e-4f) + lo;
    int32_t k = (int32_t)(yk__bits_of(shifted) - 0x4B400000u);
    int32_t half = k >> 1;
    *s1 = yk__float_of((uint32_t)(half + 127) << 23);
    *s2 = yk__float_of((uint32_t)(k - half + 127) << 23);
    /* (e^r - 1 - r) / r^2 on [-0.42, 0.42]: 2.5e-10 */
    float q = 0x1.9e7872p-13f;
    q = q * r + 0x1.6e38bep-10f;
    q = q * r + 0x1.111416p-7f;
    q = q * r + 0x1.5553aep-5f;
    q = q * r + 0x1.555552p-3f;
    q = q * r + 0.5f;
    return (q * (r * r) + r) + 1.0f;
}

static inline float yk__exp_f32(float x)
{
    float s1, s2;
    float bounded = x < -104.0f ? -104.0f : x;
    bounded = bounded > 89.0f ? 89.0f : bounded;
    float p = yk__exp_parts(bounded, 0.0f, &s1, &s2);
    return p * s1 * s2;
}

static inline float yk__log_f32(float x)
{
    float scaled = x < FLT_MIN ? x * 0x1p25f : x;
    float shift = x < FLT_MIN ? 25.0f : 0.0f;
    uint32_t bits = yk__bits_of(scaled);
    int32_t k = (int32_t)(bits - 0x3F3504F3u) >> 23; /* x = 2^k (1 + f), 1 + f in [sqrt(1/2), sqrt(2)) */
    float f = yk__float_of(bits - ((uint32_t)k << 23)) - 1.0f;
    float n = (float)k - shift;
    /* (log(1 + f) - f + f^2 / 2) / f^3: 7.5e-10 */
    float q = 0x1.1457acp-4f;
    q = q * f - 0x1.de3c58p-4f;
    q = q * f + 0x1.e6f08ep-4f;
    q = q * f - 0x1.fc2200p-4f;
    q = q * f + 0x1.233766p-3f;
    q = q * f - 0x1.555c4ep-3f;
    q = q * f + 0x1.99a4b6p-3f;
    q = q * f - 0x1.000006p-2f;
    q = q * f + 0x1.555548p-2f;
    float ff = f * f;
    float low = ff * (f * q) - n * 2.12194440e-4f;
    float y = ((low - 0.5f * ff) + f) + n * 0.693359375f;
    y = x < INFINITY ? y : x;
    float outside = x == 0.0f ? -INFINITY : NAN;
    return x > 0.0f ? y : outside;
}

static inline float yk__tanh_f32(float x)
{
    float a = fabsf(x), z = x * x, s1, s2;
    /* (tanh(x) / x - 1) / x^2 on [0, 0.625]: 1.5e-10 */
    float q = 0x1.197b8ap-9f;
    q = q * z - 0x1.0c214ap-7f;
    q = q * z + 0x1.6394dap-6f;
    q = q * z - 0x1.b9ef7ep-5f;
    q = q * z + 0x1.11106cp-3f;
    q = q * z - 0x1.555554p-2f;
    float small = x + x * (z * q);
    float p = yk__exp_parts(a > 10.0f ? 20.0f : 2.0f * a, 0.0f, &s1, &s2);
    float large = 1.0f - 2.0f / (p * s1 * s2 + 1.0f);
    large = x < 0.0f ? -large : large;
    return a < 0.625f ? small : large;
}

static inline float yk__sigmoid_f32(float x)
{
    float e = yk__exp_f32(-fabsf(x));
    float r = 1.0f / (1.0f + e);
    return x < 0.0f ? e * r : r;
}

/*
 * The normal distribution's tail Q(t) = erfc(t / sqrt 2) / 2 = e^(-t^2/2) R(t) for t in [0, 15]. t^2 is split so that
 * its rounding is not magnified by the exponential: t = h + rest, h of 12 bits, t^2 = h^2 + rest (t + h).
 */
static inline float yk__normal_tail(float t, float *p, float *s1, float *s2)
{
    float h = yk__float_of(yk__bits_of(t) & 0xFFFFF000u);
    *p = yk__exp_parts(-0.5f * (h * h), -0.5f * ((t - h) * (t + h)), s1, s2);
    float s = t + 3.0f, v = 1.0f / s;
    v -= v * v * (t - (s - 3.0f)); /* what rounding took from s */
    float u = (t - 3.0f) * v;
    /* R(t) (t + 3) in u: 9.4e-10 */
    float r = 0x1.c91628p-15f;
    r = r * u + 0x1.136b56p-13f;
    r = r * u - 0x1.009e2ep-12f;
    r = r * u - 0x1.0eaed6p-10f;
    r = r * u + 0x1.0ca212p-10f;
    r = r * u + 0x1.c8bda4p-8f;
    r = r * u - 0x1.56d5ecp-7f;
    r = r * u - 0x1.832d0ap-5f;
    r = r * u + 0x1.d71386p-3f;
    r = r * u - 0x1.04c72ap-1f;
    return (r * u + 0x1.754a76p-1f) * v;
}

/* Phi(x) - 1/2 for |x| < 1. */
static inline float yk__normal_middle(float x)
{
    float z = x * x;
    /* (Phi(x) - 1/2) / x in x^2: 7.8e-12 */
    float q = 0x1.19e09ap-21f;
    q = q * z - 0x1.35d9a6p-17f;
    q = q * z + 0x1.e37a20p-14f;
    q = q * z - 0x1.373b84p-10f;
    q = q * z + 0x1.46d020p-7f;
    q = q * z - 0x1.105838p-4f;
    return x * (q * z + 0x1.988454p-2f);
}

/* x times the normal distribution's Phi(x); the limit 0 at minus infinity. */
static inline float yk__gelu_f32(float x)
{
    float t = fabsf(x), p, s1, s2;
    t = t > 15.0f ? 15.0f : t;
    float q = yk__normal_tail(t, &p, &s1, &s2) * p;
    float negative = (-t * q) * s1 * s2;
    float positive = x * (1.0f - q * s1 * s2);
    float outer = x < 0.0f ? negative : positive;
    return t < 1.0f ? x * (0.5f + yk__normal_middle(x)) : outer;
}

/* Its derivative, Phi(x) + x phi(x). */
static inline float yk__gelu_grad_f32(float x)
{
    float t = fabsf(x), p, s1, s2;
    t = t > 15.0f ? 15.0f : t;
    float r = yk__normal_tail(t, &p, &s1, &s2);
    float w = (p * (r - t * 0.398942280f)) * s1 * s2;
    return x < 0.0f ? w : 1.0f - w;
}

static inline double yk__exp_f64(double x)
{
    return exp(x);
}

static inline double yk__log_f64(double x)
{
    return log(x);
}

static inline double yk__tanh_f64(double x)
{
    return tanh(x);
}

static inline double yk__sigmoid_f64(double x)
{
    double e = exp(-fabs(x));
    return x < 0.0 ? e / (1.0 + e) : 1.0 / (1.0 + e);
}

static inline double yk__gelu_f64(double x)
{
    return x < -40.0 ? -0.0 : 0.5 * x * erfc(x * -0.70710678118654752440);
}

static inline double yk__gelu_grad_f64(double x)
{
    double phi = 0.39894228040143267794 * exp(-0.5 * x * x);
    return 0.5 * erfc(x * -0.70710678118654752440) + (phi > 0.0 ? x * phi : 0.0);
}

#endif
