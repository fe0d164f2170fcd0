/*
 * exponential.h - e^x in a kernel's own precision. Layer: device/cuda.
 */
#ifndef YOKE_DEVICE_CUDA_EXPONENTIAL_H
#define YOKE_DEVICE_CUDA_EXPONENTIAL_H

#include "device/cuda/elements.h"

static YK__DEVICE float exponential(float x)
{
    return yk__exp_f32(x);
}
static YK__DEVICE double exponential(double x)
{
    return yk__exp_f64(x);
}

/* x[u] becomes e^x[u], with the bits of exponential(). Where all are within NEAR of 0, as they nearly always are, e^x
 * is p 2^k without more ado: the exponent is added to p's, and neither overflow nor what is no normal number is looked
 * for. */
template <int N> static YK__DEVICE void exponentials(float *x)
{
    const float NEAR = 87.0f;
    bool far = false;
    YK__UNROLL for (int u = 0; u < N; u++) far |= !(fabsf(x[u]) <= NEAR);
    if (far) {
        YK__UNROLL for (int u = 0; u < N; u++) x[u] = exponential(x[u]);
        return;
    }
    YK__UNROLL for (int u = 0; u < N; u++)
    {
        int32_t k;
        float p = yk__exp_parts(x[u], 0.0f, &k);
        x[u] = yk__float_of(yk__bits_of(p) + ((uint32_t)k << 23));
    }
}
template <int N> static YK__DEVICE void exponentials(double *x)
{
    YK__UNROLL for (int u = 0; u < N; u++) x[u] = exponential(x[u]);
}

#endif
