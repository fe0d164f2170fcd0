/*
 * scalars.h - the scalar functions that kernels of every device share, for the GPU. Layer: device/cuda. After kernel.h.
 */
#ifndef YOKE_DEVICE_CUDA_SCALARS_H
#define YOKE_DEVICE_CUDA_SCALARS_H

#include "base/philox.h"
#ifdef __CUDACC__
/* scalar_math.h says `static inline`: here that is for the GPU as well. */
#define inline __host__ __device__ inline
#include "device/scalar_math.h"
#undef inline
#else
#include "device/scalar_math.h"
#endif
#include "device/convert.h"
#include "device/elementwise_ops.h"
#include "device/loop.h"

#endif
