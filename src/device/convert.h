/*
 * convert.h - single numbers between dtypes. Layer: device.
 *
 * What a cast does where C leaves it undefined: a float beyond an integer type saturates, NaN becomes 0, and u8 takes
 * the low 8 bits of the i32. f16 and bf16 round to nearest even from f32, by way of which all other dtypes reach them
 * (as in PyTorch, so f64 rounds twice); NaN stays NaN.
 */
#ifndef YOKE_DEVICE_CONVERT_H
#define YOKE_DEVICE_CONVERT_H

#include "device/kernel_args.h"
#include "device/scalar_math.h"

YK__SCALAR float yk__from_bf16(uint16_t h)
{
    return yk__float_of((uint32_t)h << 16);
}

YK__SCALAR uint16_t yk__to_bf16(float x)
{
    uint32_t bits = yk__bits_of(x);
    uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    uint32_t nan = (bits >> 16) | 0x40u;
    return (uint16_t)((bits & 0x7FFFFFFFu) > 0x7F800000u ? nan : rounded);
}

YK__SCALAR float yk__from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, magnitude = h & 0x7FFFu;
    /* Shifted into place the exponent is 112 too small; the product puts that right and makes denormals normal. */
    float normal = yk__float_of(magnitude << 13) * 0x1p112f;
    uint32_t bits = magnitude >= 0x7C00u ? (magnitude << 13) | 0x7F800000u : yk__bits_of(normal);
    return yk__float_of(sign | bits);
}

YK__SCALAR uint16_t yk__to_f16(float x)
{
    uint32_t bits = yk__bits_of(x), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
    /* Below 2^-14 an addition rounds at the denormals' 2^-24; above, the 13 bits lost are rounded as an integer. */
    uint32_t denormal = yk__bits_of(yk__float_of(magnitude) + 0.5f) - 0x3F000000u;
    uint32_t normal = (magnitude - 0x38000000u + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
    uint32_t half = magnitude < 0x38800000u ? denormal : normal;
    half = magnitude >= 0x477FF000u ? 0x7C00u : half;
    half = magnitude > 0x7F800000u ? 0x7E00u : half;
    return (uint16_t)(sign | half);
}

/* x is a float or double variable. */
#define YK__TO_I32(x)                                                                                                  \
    ((x) >= 2147483648.0f ? INT32_MAX : (x) >= -2147483648.0f ? (int32_t)(x) : (x) != (x) ? 0 : INT32_MIN)
#define YK__TO_I64(x)                                                                                                  \
    ((x) >= 9223372036854775808.0f    ? INT64_MAX                                                                      \
     : (x) >= -9223372036854775808.0f ? (int64_t)(x)                                                                   \
     : (x) != (x)                     ? 0                                                                              \
                                      : INT64_MIN)

/* `value` as one element of a dtype. */
YK__SCALAR void yk__store_scalar(void *element, yk_dtype dtype, double value)
{
    switch (dtype) {
    case YK_F64: *(double *)element = value; break;
    case YK_F16: *(uint16_t *)element = yk__to_f16((float)value); break;
    case YK_BF16: *(uint16_t *)element = yk__to_bf16((float)value); break;
    case YK_I64: *(int64_t *)element = YK__TO_I64(value); break;
    case YK_I32: *(int32_t *)element = YK__TO_I32(value); break;
    case YK_U8: *(uint8_t *)element = (uint8_t)YK__TO_I32(value); break;
    case YK_BOOL: *(uint8_t *)element = value != 0.0; break;
    default: *(float *)element = (float)value; break;
    }
}

#endif
