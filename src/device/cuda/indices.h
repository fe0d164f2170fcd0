/*
 * indices.h - an index or label, i64 or i32, as kernels read it. Layer: device/cuda.
 */
#ifndef YOKE_DEVICE_CUDA_INDICES_H
#define YOKE_DEVICE_CUDA_INDICES_H

#include "device/cuda/elements.h"

static YK__DEVICE int64_t index_at(const yk__view &index, int64_t i)
{
    int64_t at = i * index.stride[0];
    return index.dtype == YK_I64 ? get<element_i64>(index, at) : get<element_i32>(index, at);
}

#endif
