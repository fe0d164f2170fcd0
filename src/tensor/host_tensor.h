/*
 * host_tensor.h - tensors that the library itself keeps in the host's memory. Layer: tensor.
 */
#ifndef YOKE_TENSOR_HOST_TENSOR_H
#define YOKE_TENSOR_HOST_TENSOR_H

#include "tensor/tensor.h"

/* Tensors whose options name no device are made on cpu:0; where tests set another type, on its current device. What the
 * library reads and writes in the host's memory is therefore made by the function below. */
extern yk_device_type yk__default_device_type;
/* The options, or those that NULL stands for, with that device where they name none. */
yk_tensor_options yk__default_options(const yk_tensor_options *options);
/* Zeros on cpu:0, C order, one reference, of no scope. */
yk_tensor *yk__host_zeros(int ndim, const int64_t *shape, yk_dtype dtype);

#endif
