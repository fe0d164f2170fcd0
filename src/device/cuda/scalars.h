/*
 * scalars.h - the scalar functions that kernels of every device share, for the GPU. Layer: device/cuda. After kernel.h.
 */
#ifndef YOKE_DEVICE_CUDA_SCALARS_H
#define YOKE_DEVICE_CUDA_SCALARS_H

/* These headers use YK__SCALAR, which kernel.h has defined. */
#include "base/philox.h"
#include "device/convert.h"
#include "device/elementwise_ops.h"
#include "device/loop.h"
#include "device/scalar_math.h"

#endif
