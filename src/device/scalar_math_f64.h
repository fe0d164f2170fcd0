/*
 * scalar_math_f64.h - the elementary functions of scalar_math.h for double. Layer: device. Included by scalar_math.h.
 *
 * No branches, look-ups or calls (but rint), but for sin and cos of great arguments, so that loops over them vectorise.
 * Right for every input, denormals, infinities and NaN included: exp, log, sin and cos within 1 ulp, expm1, log1p, pow
 * and atan2 within 2, erf, sigmoid and tanh within 3, gelu within 7 (tests/device/elementwise_f64_test.c). The
 * polynomials are our own minimax fits (Remez exchange in 50 digits); the error of the fit stands beside each.
 *
 * There is no fused multiply-add: without the instruction it would be a call for every one. Where a product must be
 * exact its factors are split into parts of 26 bits, or a constant has so many zeros at its end that it is (Dekker,
 * 1971; Cody and Waite, 1980). So the bits are the same on every instruction set, and on GPUs, wherever the compiler
 * fuses none either: the kernels that must give the same bits are compiled with -ffp-contract=off (Makefile: UNFUSED).
 */
#ifndef YOKE_DEVICE_SCALAR_MATH_F64_H
#define YOKE_DEVICE_SCALAR_MATH_F64_H

#include "device/scalar_math.h"

/* x + YK__ROUNDER has the integer nearest to x in its low bits, for |x| < 2^51. */
#define YK__ROUNDER  0x1.8p52
#define YK__LN2_HIGH 0x1.62e42feep-1 /* 32 bits: times an exponent it is exact */
#define YK__LN2_LOW  0x1.a39ef35793c76p-33

/* Polynomials, the constant first, in pairs (Estrin, 1960): half the latency of Horner's way and as many products. */
#define YK__POLY2(x, a, b)                           ((a) + (x) * (b))
#define YK__POLY4(x, x2, a, b, c, d)                 (YK__POLY2(x, a, b) + (x2)*YK__POLY2(x, c, d))
#define YK__POLY8(x, x2, x4, a, b, c, d, e, f, g, h) (YK__POLY4(x, x2, a, b, c, d) + (x4)*YK__POLY4(x, x2, e, f, g, h))

/* 2^n for an integer n in [-1022, 1023]; `rounded` is n + YK__ROUNDER. */
YK__SCALAR double yk__power_of_two(double rounded)
{
    return yk__double_of((yk__bits_of_double(rounded) << 52) + ((uint64_t)1023 << 52));
}

/*
 * p 2^n for an integer n in [-1121, 1024]; `rounded` is n + YK__ROUNDER. Two factors, so that neither overflows and
 * a denormal is rounded once; `small` chooses them: true where n < -900, false where n > 900, either one between.
 */
YK__SCALAR double yk__scale_f64(double p, double rounded, bool small)
{
    uint64_t bias = (uint64_t)(small ? 1122 : 1022) << 52;
    return p * yk__double_of((yk__bits_of_double(rounded) << 52) + bias) * (small ? 0x1p-99 : 2.0);
}

/* The upper 26 bits of x, so that a product of two such is exact. */
YK__SCALAR double yk__upper(double x)
{
    return yk__double_of(yk__bits_of_double(x) & ~(uint64_t)0x7FFFFFF);
}

/* x = n ln 2 + r + rest, |x| <= 1100: n is whole, |r| < 0.35, rest what r lost in rounding. Gives n + YK__ROUNDER. */
YK__SCALAR double yk__exp_reduce(double x, double *r, double *rest)
{
    double rounded = x * 0x1.71547652b82fep+0 + YK__ROUNDER, n = rounded - YK__ROUNDER;
    double high = x - n * YK__LN2_HIGH, low = n * YK__LN2_LOW;
    *r = high - low;
    *rest = (high - *r) - low;
    return rounded;
}

/* e^r - 1 - r for |r| <= 0.35. */
YK__SCALAR double yk__exp_beyond(double r)
{
    double r2 = r * r, r4 = r2 * r2, r8 = r4 * r4;
    /* (e^r - 1 - r - r^2 / 2) / r^3: an error of 5.8e-18 in e^r */
    double q =
        YK__POLY8(r, r2, r4, 0x1.555555555555cp-3, 0x1.55555555531fbp-5, 0x1.111111110e690p-7, 0x1.6c16c17cd27edp-10,
                  0x1.a01a01b62d505p-13, 0x1.a019aae1fe240p-16, 0x1.71dde8f47320cp-19, 0x1.289feb1bfe636p-22) +
        r8 * 0x1.af78ade829d7dp-26;
    return r2 * (q * r + 0.5);
}

/* e^(r + rest) - 1, |rest| < 2^-14. */
YK__SCALAR double yk__exp_less_one(double r, double rest)
{
    return r + (yk__exp_beyond(r) + (rest + rest * r));
}

YK__SCALAR double yk__exp_f64(double x)
{
    double r, rest, rounded = yk__exp_reduce(x, &r, &rest);
    double y = yk__scale_f64(1.0 + (r + yk__exp_beyond(r)), rounded, x < -700.0);
    y = x > 709.79 ? (double)INFINITY : y;
    return x < -746.0 ? 0.0 : y;
}

/* expm1 for |x| <= 710. 2^n - 1 and 2^n (e^r - 1) are halved, so that 2^1024 does not overflow. */
YK__SCALAR double yk__expm1_near(double x)
{
    double r, rest, rounded = yk__exp_reduce(x, &r, &rest), p = yk__exp_less_one(r, rest);
    double half = yk__power_of_two(rounded - 1.0);
    return 2.0 * (half * p + (half - 0.5));
}

YK__SCALAR double yk__expm1_f64(double x)
{
    double y = yk__expm1_near(x);
    y = x > 710.0 ? (double)INFINITY : y;
    y = x < -40.0 ? -1.0 : y;
    return fabs(x) < 0x1p-54 ? x : y; /* keeps -0 and all of a denormal */
}

/* x = 2^k m for a normal x > 0, m in [sqrt(1/2), sqrt(2)). */
YK__SCALAR double yk__log_split(double x, double *k)
{
    uint64_t bits = yk__bits_of_double(x), biased = (bits + 0x00095F619980C433) >> 52;
    *k = yk__double_of(biased | (uint64_t)0x433 << 52) - (0x1p52 + 1023.0);
    return yk__double_of(bits - (biased << 52) + ((uint64_t)1023 << 52));
}

/* k ln 2 + log(1 + f), by s = f / (2 + f): log(1 + f) = f - f^2 / 2 + s (f^2 / 2 + s^2 R(s^2)). */
YK__SCALAR double yk__log_sum(double k, double f)
{
    double s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
    double z2 = z * z, z4 = z2 * z2;
    /* (2 atanh(s) - 2 s) / s^3 in s^2: an error of 4.6e-18 in that times s^2 */
    double q =
        YK__POLY4(z, z2, 0x1.5555555555560p-1, 0x1.999999998f30fp-2, 0x1.249249355d688p-2, 0x1.c71c5b9b95f35p-3) +
        z4 * (YK__POLY2(z, 0x1.746464572ffecp-3, 0x1.39cf2d6a5d6fdp-3) + z2 * 0x1.2d4fff8ead9a6p-3);
    double low = s * (half + z * q) + k * YK__LN2_LOW;
    return k * YK__LN2_HIGH - ((half - low) - f);
}

YK__SCALAR double yk__log_f64(double x)
{
    double scaled = x < DBL_MIN ? x * 0x1p54 : x;
    double shift = x < DBL_MIN ? 54.0 : 0.0;
    double k, m = yk__log_split(scaled, &k);
    double y = yk__log_sum(k - shift, m - 1.0);
    y = x < (double)INFINITY ? y : x;
    double outside = x == 0.0 ? -(double)INFINITY : (double)NAN;
    return x > 0.0 ? y : outside;
}

/* The rounding error of 1 + x is added to the mantissa; without an exponent that gives x back. */
YK__SCALAR double yk__log1p_f64(double x)
{
    double u = 1.0 + x, part = u - 1.0, lost = (1.0 - (u - part)) + (x - part);
    double k, m = yk__log_split(u, &k);
    lost = x > 0x1p60 ? 0.0 : lost * yk__power_of_two(YK__ROUNDER - k);
    double y = yk__log_sum(k, (m - 1.0) + lost);
    y = u < (double)INFINITY ? y : u;
    double outside = u == 0.0 ? -(double)INFINITY : (double)NAN;
    y = u > 0.0 ? y : outside;
    return fabs(x) < 0x1p-54 ? x : y;
}

/* sin(r + rest) for |r| <= pi/4 where the last two bits of q are 0; then cos, -sin, -cos. */
YK__SCALAR double yk__quadrant_f64(double r, double rest, uint64_t q)
{
    double z = r * r, half = 0.5 * z;
    double z2 = z * z, z4 = z2 * z2;
    /* (sin(r) / r - 1 + z / 6) / z^2 on [0, pi/4]: 5.5e-18 of sin(r) / r */
    double s =
        YK__POLY4(z, z2, 0x1.1111111110800p-7, -0x1.a01a019db5286p-13, 0x1.71de36b522058p-19, -0x1.ae5f43e0c80fdp-26) +
        z4 * 0x1.5dcd3b849dd59p-33;
    s = r + (z * r * (s * z - 0x1.5555555555555p-3) + rest * (1.0 - half));
    /* (cos(r) - 1 + z / 2) / z^2 there: 5.3e-20 of cos(r) */
    double t =
        YK__POLY4(z, z2, 0x1.555555555554dp-5, -0x1.6c16c16c154c7p-10, 0x1.a01a019cf8cc3p-16, -0x1.27e4f83761970p-22) +
        z4 * YK__POLY2(z, 0x1.1eea07b8482cfp-29, -0x1.8fbbbd8e95348p-37);
    double w = 1.0 - half;
    t = w + (((1.0 - w) - half) + (z2 * t - r * rest));
    double y = q & 1 ? t : s;
    return yk__double_of(yk__bits_of_double(y) ^ (q & 2) << 62);
}

/*
 * sin and cos for 0 <= x <= YK__TRIG_LIMIT_F64, x = n pi/2 + r: pi/2 in three parts of 33 bits, of which the products
 * with n are exact, and a fourth; r as a sum of two doubles. Quarter of the circle: 0 sin, 1 cos.
 */
#define YK__TRIG_LIMIT_F64 0x1p20
YK__SCALAR double yk__circle_f64(double x, uint64_t quarter)
{
    double rounded = x * 0x1.45f306dc9c883p-1 + YK__ROUNDER, n = rounded - YK__ROUNDER;
    uint64_t q = yk__bits_of_double(rounded) + quarter;
    double a = x - n * 0x1.921fb544p+0;
    double b = n * 0x1.0b4611a6p-34, c = n * 0x1.3198a2ep-69;
    double first = a - b, back = first - a;
    double low = (a - (first - back)) - (b + back);
    double second = first - c;
    back = second - first;
    low += (first - (second - back)) - (c + back);
    low -= n * 0x1.b839a252049c1p-104;
    double r = second + low;
    return yk__quadrant_f64(r, (second - r) + low, q);
}

YK__SCALAR double yk__sin_near_f64(double x)
{
    double y = yk__circle_f64(fabs(x), 0);
    return yk__double_of(yk__bits_of_double(y) ^ (yk__bits_of_double(x) & (uint64_t)1 << 63)); /* sin(-0) is -0 */
}

YK__SCALAR double yk__cos_near_f64(double x)
{
    return yk__circle_f64(fabs(x), 1);
}

YK__SCALAR double yk__sin_f64(double x)
{
    return fabs(x) <= YK__TRIG_LIMIT_F64 ? yk__sin_near_f64(x) : sin(x);
}

YK__SCALAR double yk__cos_f64(double x)
{
    return fabs(x) <= YK__TRIG_LIMIT_F64 ? yk__cos_near_f64(x) : cos(x);
}

/* The normal deviate of two numbers of 53 bits, u in (0, 1] and an angle: sqrt(-2 log u) cos(2 pi angle). The angle in
 * quarters of a turn is the nearest whole one and a rest, which is exact. */
YK__SCALAR double yk__standard_normal_f64(const uint32_t words[4])
{
    double high = (double)(int32_t)(words[0] ^ 0x80000000u) + 0x1p31, low = (double)(int32_t)(words[1] >> 11);
    double k, m = yk__log_split(high * 0x1p-32 + low * 0x1p-53 + 0x1p-54, &k);
    double radius = sqrt(-2.0 * yk__log_sum(k, m - 1.0));
    high = (double)(int32_t)(words[2] ^ 0x80000000u) + 0x1p31, low = (double)(int32_t)(words[3] >> 11);
    double turn = high * 0x1p-30 + low * 0x1p-51, rounded = turn + YK__ROUNDER;
    double r = (turn - (rounded - YK__ROUNDER)) * 0x1.921fb54442d18p+0;
    return radius * yk__quadrant_f64(r, 0.0, yk__bits_of_double(rounded) + 1);
}

/*
 * log2(a) of a finite a > 0 in two parts, 68 bits of it, the first of 26: a = 2^k m, s = (m - 1) / (m + 1), and log(m)
 * = 2/3 s (3 + s^2 + s^4 P(s^2)).
 */
YK__SCALAR void yk__log2_parts(double a, double *high, double *low)
{
    double scaled = a < DBL_MIN ? a * 0x1p54 : a;
    double shift = a < DBL_MIN ? 54.0 : 0.0;
    double k, m = yk__log_split(scaled, &k);
    k -= shift;
    /* s = s_high + s_low, of which the former has 26 bits; likewise m + 1. */
    double f = m - 1.0, sum = m + 1.0, inverse = 1.0 / sum, s = f * inverse;
    double s_high = yk__upper(s), sum_high = yk__upper(sum), sum_low = m - (sum_high - 1.0);
    double s_low = ((f - s_high * sum_high) - s_high * sum_low) * inverse;
    double z = s * s, square = s_high * s_high;
    double z2 = z * z, z4 = z2 * z2;
    /* 3 (atanh(s) / s - 1 - z / 3) / z^2: an error of 6.5e-20 in that times z^2 */
    double q =
        YK__POLY4(z, z2, 0x1.333333333335ap-1, 0x1.b6db6db6be008p-2, 0x1.5555557c08508p-2, 0x1.1745bb9fec56ap-2) +
        z4 * (YK__POLY2(z, 0x1.d8aa3d1387781p-3, 0x1.979b3fd1aa56fp-3) + z2 * 0x1.923e26612805cp-3);
    double tail = z2 * q + s_low * (s_high + s);
    double t_high = yk__upper(3.0 + square + tail), t_low = tail - ((t_high - 3.0) - square);
    double u = s_high * t_high, v = s_low * t_high + t_low * s;
    double p_high = yk__upper(u + v), p_low = v - (p_high - u);
    double l = 0x1.ec709d8p-1 * p_high, rest = 0x1.0e80ff5d27f05p-27 * p_high + 0x1.ec709dc3a03fdp-1 * p_low;
    double log_high = yk__upper(l + rest + k);
    *high = log_high;
    *low = rest - ((log_high - k) - l);
}

/* Rounded once, so that whole logarithms are whole: y is the logarithm of a finite x > 0. */
YK__SCALAR double yk__log_edges(double x, double y)
{
    y = x < (double)INFINITY ? y : x;
    double outside = x == 0.0 ? -(double)INFINITY : (double)NAN;
    return x > 0.0 ? y : outside;
}

YK__SCALAR double yk__log2_f64(double x)
{
    double high, low;
    yk__log2_parts(x, &high, &low);
    return yk__log_edges(x, high + low);
}

YK__SCALAR double yk__log10_f64(double x)
{
    double high, low;
    yk__log2_parts(x, &high, &low);
    return yk__log_edges(x, high * 0x1.3441350000000p-2 + (high * 0x1.3ef3fde623e25p-31 + low * 0x1.34413509f79ffp-2));
}

/* x^y = 2^(y log2(|x|)). Special cases are put right by selection, as C99's annex F says. */
YK__SCALAR double yk__pow_f64(double x, double y)
{
    double a = fabs(x), log_high, log_low;
    yk__log2_parts(a, &log_high, &log_low);
    /* An exponent of more than 2^65 decides as one of 2^65 does: log2(|x|) is 0 or at least 2^-53. */
    double power = y > 0x1p65 ? 0x1p65 : y;
    power = power < -0x1p65 ? -0x1p65 : power;
    double power_high = yk__upper(power);
    double high = power_high * log_high, low = (power - power_high) * log_high + power * log_low;
    bool tiny = high < -1100.0;
    high = tiny ? -1100.0 : high;
    low = tiny ? 0.0 : low;
    double t = high + low, rounded = t + YK__ROUNDER, r = (high - (rounded - YK__ROUNDER)) + low;
    double r2 = r * r, r4 = r2 * r2, r8 = r4 * r4;
    /* (2^r - 1 - r ln 2) / r^2 on [-1/2, 1/2]: 3.5e-18 of 2^r */
    double e =
        YK__POLY8(r, r2, r4, 0x1.ebfbdff82c5a5p-3, 0x1.c6b08d704a0cfp-5, 0x1.3b2ab6fb9ff0bp-7, 0x1.5d87fe78a1af4p-10,
                  0x1.4309130f4c77bp-13, 0x1.ffcbfc79cc580p-17, 0x1.62bfc669df950p-20, 0x1.b524d185e3961p-24) +
        r8 * YK__POLY2(r, 0x1.e61d76d149f3bp-28, 0x1.ea144c10ff155p-32);
    e = 1.0 + (r * 0x1.62e42fefa39efp-1 + (r * 0x1.abc9e3b39803fp-56 + r2 * e));
    double result = yk__scale_f64(e, rounded, t < -1000.0);
    result = t > 1025.0 ? (double)INFINITY : result;
    bool rises = (a > 1.0) == (y > 0.0);
    double edge = rises ? (double)INFINITY : 0.0; /* of 0 or infinity, and of any number to a power of infinity */
    result = a == 0.0 || a == (double)INFINITY || fabs(y) == (double)INFINITY ? edge : result;
    bool whole = rint(y) == y, odd = whole && rint(0.5 * y) != 0.5 * y; /* infinity is even */
    result = x < 0.0 && !whole && a < (double)INFINITY ? (double)NAN : result;
    double sign = odd ? x : 1.0;
    result = yk__double_of(yk__bits_of_double(result) ^ (yk__bits_of_double(sign) & (uint64_t)1 << 63));
    result = x != x || y != y ? x + y : result;
    bool one = x == 1.0 || y == 0.0 || (a == 1.0 && fabs(y) == (double)INFINITY);
    return one ? 1.0 : result;
}

/* e^(2|x|) - 1 = t: tanh(|x|) is t / (t + 2), and 1 - 2 / (t + 2), which is nearer where t is great. */
YK__SCALAR double yk__tanh_f64(double x)
{
    double a = fabs(x), bounded = a > 30.0 ? 30.0 : a;
    double t = yk__expm1_near(2.0 * bounded);
    double ratio = (a < 1.0 ? t : 2.0) / (t + 2.0);
    return copysign(a < 1.0 ? ratio : 1.0 - ratio, x);
}

/* 1 / (1 + e^-x) as 0.5 / (0.5 + e^-x / 2); 0 where that is a denormal, as PyTorch's. */
YK__SCALAR double yk__sigmoid_f64(double x)
{
    double r, rest, rounded = yk__exp_reduce(-x, &r, &rest);
    double p = 1.0 + (r + yk__exp_beyond(r));
    double y = 0.5 / (p * yk__power_of_two(rounded - 1.0) + 0.5);
    y = x > 40.0 ? 1.0 : y;
    return x < -709.0 ? 0.0 : y;
}

/*
 * The normal distribution's tail Q(t) = erfc(t / sqrt 2) / 2 = e^(-t^2/2) R(t) for t in [0, 38.7]: gives R(t), and
 * e^(-t^2/2) as p 2^n, with n + YK__ROUNDER. t^2 is split so that its rounding is not magnified by the exponential.
 */
YK__SCALAR double yk__normal_tail_f64(double t, double *p, double *rounded)
{
    double h = yk__upper(t), reduced, rest;
    *rounded = yk__exp_reduce(-0.5 * (h * h), &reduced, &rest);
    rest -= 0.5 * ((t - h) * (t + h)); /* less than 2^-15 */
    double sum = reduced + rest;
    *p = 1.0 + yk__exp_less_one(sum, (reduced - sum) + rest);
    double v = 1.0 / (t + 4.0), u = (t - 4.0) * v;
    double u2 = u * u, u4 = u2 * u2, u8 = u4 * u4;
    /* R(t) (t + 4) in u: 2e-17 */
    double r =
        YK__POLY8(u, u2, u4, 0x1.82b4bb8c94dcep-1, -0x1.373e3a893c28ap-1, 0x1.8c6dbf2cfc307p-2, -0x1.7dff2bff684a1p-3,
                  0x1.eec4cc3e44592p-5, -0x1.ee27610434753p-8, -0x1.c81719c982406p-9, 0x1.ab825faf8e7efp-10) +
        u8 * (YK__POLY8(u, u2, u4, 0x1.17a4a6121778bp-13, -0x1.e4a4216bd8b3cp-13, -0x1.00112840f289bp-19,
                        0x1.26d05d6652092p-15, 0x1.7fdb33bc98147p-21, -0x1.8d4866e03bde5p-18, -0x1.4fadb798c5b92p-21,
                        0x1.12486affbf51dp-20) +
              u8 * (YK__POLY4(u, u2, 0x1.1ba6ac881c565p-22, -0x1.50141754ee87ep-23, -0x1.4b96911fa6387p-24,
                              0x1.12ee49299a15ep-26) +
                    u4 * (YK__POLY2(u, 0x1.f5a6a3dd68b2ap-27, -0x1.5ead6ebe67c63p-32) + u2 * -0x1.4663750b2d008p-30)));
    return r * v;
}

YK__SCALAR double yk__erf_f64(double x)
{
    double a = fabs(x), z = x * x;
    double z2 = z * z, z4 = z2 * z2, z8 = z4 * z4;
    /* (erf(x) - x) / x in x^2 up to 0.75: 1e-18 */
    double q =
        YK__POLY8(z, z2, z4, 0x1.06eba8214db69p-3, -0x1.812746b0379e0p-2, 0x1.ce2f21a0424c8p-4, -0x1.b82ce31257545p-6,
                  0x1.565bcd03671c8p-8, -0x1.c02db12201f38p-11, 0x1.f9a2af960294cp-14, -0x1.f4c5dcb986ef6p-17) +
        z8 * (YK__POLY2(z, 0x1.b90ea955da290p-20, -0x1.564e3425f42a2p-23) + z2 * 0x1.8a286925352fap-27);
    double t = a > 5.95 ? 5.95 : a; /* 1 from there on */
    double reduced, rest, rounded = yk__exp_reduce(-(t * t), &reduced, &rest);
    double p = 1.0 + (reduced + yk__exp_beyond(reduced));
    double v = 1.0 / (t + 2.5), u = (t - 2.5) * v, u2 = u * u, u4 = u2 * u2, u8 = u4 * u4;
    /* erfc(t) e^(t^2) (t + 2.5) in u from 0.75 on: 3.5e-18 of erf(t) */
    double r =
        YK__POLY8(u, u2, u4, 0x1.0dd5078528084p+0, -0x1.9bfb53c404829p-1, 0x1.d0cedcb8c199dp-2, -0x1.5eb8eb9d865b0p-3,
                  0x1.d0acf8b81226dp-6, 0x1.1306092c6ab36p-7, -0x1.3bce6ef7c3742p-8, -0x1.cd3e8b9bf85d4p-12) +
        u8 * (YK__POLY4(u, u2, 0x1.6e6d1a65dbc58p-11, 0x1.820d1c7ca5e7cp-15, -0x1.20922aaf55465p-13,
                        -0x1.af27647c3aafbp-15) +
              u4 * -0x1.584369383df74p-18);
    double large = 1.0 - p * (r * v) * yk__power_of_two(rounded);
    return a < 0.75 ? x + x * q : copysign(large, x);
}

/* x Phi(x); NaN at minus infinity, as PyTorch's. */
YK__SCALAR double yk__gelu_f64(double x)
{
    double t = fabs(x), p, rounded;
    t = t > 38.7 ? 38.7 : t;
    double r = yk__normal_tail_f64(t, &p, &rounded);
    double tail = yk__scale_f64(x * (p * r), rounded, t > 37.0);
    tail = x > 38.7 ? 0.0 : tail;
    tail = x < -38.7 ? x * 0.0 : tail;
    return x <= 0.0 ? tail : x - tail; /* -0 for -0 */
}

/* The derivative of GELU, Phi(x) + x phi(x); at the infinities NaN, infinity times 0. */
YK__SCALAR double yk__gelu_grad_f64(double x)
{
    double t = fabs(x), p, rounded;
    t = t > 38.7 ? 38.7 : t;
    double r = yk__normal_tail_f64(t, &p, &rounded);
    double w = yk__scale_f64(p * (r - t * 0x1.9884533d43651p-2), rounded, t > 37.0);
    return (x < 0.0 ? w : 1.0 - w) + x * 0.0;
}

/*
 * The angle of (x, y), with x below 0 where it is `left` and |y| the greater where it is `steep`. The smaller of |x|
 * and |y| over the greater is in [0, 1]; above 1/2 it becomes their difference over their sum, whose angle is less by
 * pi/4. The angle is then a multiple of pi/4, in two parts, plus or minus atan(t).
 */
YK__SCALAR double yk__angle_f64(double small, double great, bool steep, bool left)
{
    bool middle = small > 0.5 * great;
    double over = middle ? small - great : small, under = middle ? small + great : great;
    double t = small == 0.0 ? 0.0 : over / under, z = t * t;
    double z2 = z * z, z4 = z2 * z2, z8 = z4 * z4;
    /* (atan(t) / t - 1) / t^2 in t^2 on [0, 1/4]: 4.8e-18 in atan(t) / t */
    double q =
        YK__POLY8(z, z2, z4, -0x1.555555555553fp-2, 0x1.9999999994fe8p-3, -0x1.249249227501fp-3, 0x1.c71c70e0c9e55p-4,
                  -0x1.745cfb9100cd9p-4, 0x1.3b119b7791c7ep-4, -0x1.10f6792d2a68ep-4, 0x1.e012997992c74p-5) +
        z8 * YK__POLY4(z, z2, -0x1.a43fb9827c416p-5, 0x1.58a6d53e916bep-5, -0x1.c68b0a36c464cp-6, 0x1.521c4c7aeea46p-7);
    double sign = steep != left ? -1.0 : 1.0;
    double eighths = (steep ? 2.0 : left ? 4.0 : 0.0) + (middle ? sign : 0.0);
    return eighths * 0x1.921fb54442d18p-1 + sign * (t + (t * z * q + sign * eighths * 0x1.1a62633145c07p-55));
}

YK__SCALAR double yk__atan2_f64(double y, double x)
{
    double a = fabs(y), b = fabs(x);
    bool steep = a > b, left = copysign(1.0, x) < 0.0;
    double small = steep ? b : a, great = steep ? a : b;
    /* The scale keeps their sum from overflowing. */
    double scale = great > 0x1p1000 ? 0x1p-60 : 1.0;
    small = great == (double)INFINITY ? (small == (double)INFINITY ? 1.0 : 0.0) : small * scale;
    great = great == (double)INFINITY ? 1.0 : great * scale;
    double angle = yk__angle_f64(small, great, steep, left);
    angle = x != x || y != y ? x + y : angle;
    return copysign(angle, y);
}

/* The angles of (sqrt(1 - x^2), x) and (x, sqrt(1 - x^2)); NaN outside [-1, 1]. */
YK__SCALAR double yk__asin_f64(double x)
{
    double a = fabs(x), side = sqrt((1.0 - x) * (1.0 + x));
    bool steep = a > side;
    double angle = yk__angle_f64(steep ? side : a, steep ? a : side, steep, false);
    return side >= 0.0 ? copysign(angle, x) : (double)NAN;
}

YK__SCALAR double yk__acos_f64(double x)
{
    double a = fabs(x), side = sqrt((1.0 - x) * (1.0 + x));
    bool steep = side > a;
    double angle = yk__angle_f64(steep ? a : side, steep ? side : a, steep, copysign(1.0, x) < 0.0);
    return side >= 0.0 ? angle : (double)NAN;
}

/* log((1 + x) / (1 - x)) / 2 = log1p(2 |x| / (1 - |x|)) / 2, odd. */
YK__SCALAR double yk__atanh_f64(double x)
{
    double a = fabs(x);
    return copysign(0.5 * yk__log1p_f64(2.0 * a / (1.0 - a)), x);
}

/* The tangent, for |x| <= YK__TRIG_LIMIT_F64, and of any x. */
YK__SCALAR double yk__tan_near_f64(double x)
{
    return yk__sin_near_f64(x) / yk__cos_near_f64(x);
}

YK__SCALAR double yk__tan_f64(double x)
{
    return yk__sin_f64(x) / yk__cos_f64(x);
}

#endif
