/*
 * elements.h - dtypes as kernels see them: the type that stores one, and the type that computes with it.
 * Layer: device/cuda.
 *
 * A kernel is a template over one of these. f16 and bf16 are computed in float and rounded when they are stored;
 * `statistic` is the dtype of what the table calls so, `sum` what many are added up in. rounded(x) is load(store(x)).
 */
#ifndef YOKE_DEVICE_CUDA_ELEMENTS_H
#define YOKE_DEVICE_CUDA_ELEMENTS_H

#include "device/cuda/kernel.h"

struct element_f32 {
    typedef float stored;
    typedef float number;
    typedef element_f32 statistic;
    static YK__DEVICE float load(float x)
    {
        return x;
    }
    static YK__DEVICE float store(float x)
    {
        return x;
    }
    static YK__DEVICE float rounded(float x)
    {
        return x;
    }
};
struct element_f64 {
    typedef double stored;
    typedef double number;
    typedef element_f64 statistic;
    static YK__DEVICE double load(double x)
    {
        return x;
    }
    static YK__DEVICE double store(double x)
    {
        return x;
    }
    static YK__DEVICE double rounded(double x)
    {
        return x;
    }
};
struct element_f16 {
    typedef uint16_t stored;
    typedef float number;
    typedef element_f32 statistic;
    static YK__DEVICE float load(uint16_t x)
    {
        return yk__load_f16(x);
    }
    static YK__DEVICE uint16_t store(float x)
    {
        return yk__round_f16(x);
    }
    static YK__DEVICE float rounded(float x)
    {
        return yk__load_f16(yk__round_f16(x));
    }
};
struct element_bf16 {
    typedef uint16_t stored;
    typedef float number;
    typedef element_f32 statistic;
    static YK__DEVICE float load(uint16_t x)
    {
        return yk__from_bf16(x);
    }
    static YK__DEVICE uint16_t store(float x)
    {
        return yk__round_bf16(x);
    }
    static YK__DEVICE float rounded(float x)
    {
        return yk__rounded_bf16(x);
    }
};

struct element_i64 {
    typedef int64_t stored;
    typedef int64_t number;
    static YK__DEVICE int64_t load(int64_t x)
    {
        return x;
    }
    static YK__DEVICE int64_t store(int64_t x)
    {
        return x;
    }
};
struct element_i32 {
    typedef int32_t stored;
    typedef int64_t number;
    static YK__DEVICE int64_t load(int32_t x)
    {
        return x;
    }
    static YK__DEVICE int32_t store(int64_t x)
    {
        return (int32_t)x;
    }
};
struct element_u8 {
    typedef uint8_t stored;
    typedef int64_t number;
    static YK__DEVICE int64_t load(uint8_t x)
    {
        return x;
    }
    static YK__DEVICE uint8_t store(int64_t x)
    {
        return (uint8_t)x;
    }
};
struct element_bool {
    typedef uint8_t stored;
    typedef int64_t number;
    static YK__DEVICE int64_t load(uint8_t x)
    {
        return x != 0;
    }
    static YK__DEVICE uint8_t store(int64_t x)
    {
        return x != 0;
    }
};

/* The element of a view's memory `offset` elements after its first. */
template <typename E> static YK__DEVICE typename E::number get(const yk__view &v, int64_t offset)
{
    typedef const typename E::stored stored;
    return E::load(yk__global<stored>(static_cast<stored *>(v.data))[offset]);
}
template <typename E> static YK__DEVICE void put(const yk__view &v, int64_t offset, typename E::number x)
{
    typedef typename E::stored stored;
    yk__global<stored>(static_cast<stored *>(v.data))[offset] = E::store(x);
}

/* a b + c, rounded once. */
static YK__DEVICE float multiply_add(float a, float b, float c)
{
    return yk__fma_f32(a, b, c);
}
static YK__DEVICE double multiply_add(double a, double b, double c)
{
    return yk__fma_f64(a, b, c);
}

/* Calls CALL with the element type of a floating dtype. */
#define FLOATING(dtype, CALL)                                                                                          \
    do {                                                                                                               \
        switch (dtype) {                                                                                               \
        case YK_F64: CALL(element_f64); break;                                                                         \
        case YK_F16: CALL(element_f16); break;                                                                         \
        case YK_BF16: CALL(element_bf16); break;                                                                       \
        default: CALL(element_f32); break;                                                                             \
        }                                                                                                              \
    } while (0)

#endif
