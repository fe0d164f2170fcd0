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

#endif
