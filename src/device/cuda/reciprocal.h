/*
 * reciprocal.h - division by a size that a launch knows, as a product. Layer: device/cuda. After kernel.h.
 *
 * Of positions below 2^31 the quotient is exact, for sizes from 2: the reciprocal of 1 has no room in 32 bits.
 */
#ifndef YOKE_DEVICE_CUDA_RECIPROCAL_H
#define YOKE_DEVICE_CUDA_RECIPROCAL_H

#include "device/cuda/kernel.h"

typedef struct reciprocal {
    uint32_t factor;
    int shift;
} reciprocal;

static inline reciprocal reciprocal_of(int64_t size)
{
    reciprocal r = {0, 0};
    while ((int64_t)2 << r.shift < size)
        r.shift++;
    r.factor = (uint32_t)((((uint64_t)1 << (32 + r.shift)) + (uint64_t)size - 1) / (uint64_t)size);
    return r;
}
static YK__DEVICE uint32_t reciprocal_quotient(uint32_t i, const reciprocal &by)
{
    return (uint32_t)(((uint64_t)i * by.factor) >> 32) >> by.shift;
}

#endif
