/*
 * nccl_access.h - the functions of the plug-in yoke-cuda.so that the backend of NCCL (comm/nccl), which links it, uses.
 * Layer: device/cuda. C and C++.
 */
#ifndef YOKE_DEVICE_CUDA_NCCL_ACCESS_H
#define YOKE_DEVICE_CUDA_NCCL_ACCESS_H

#include <cuda_runtime_api.h>

#include "device/kernel_args.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The stream of a queue of the device, or (YK__QUEUES) of the one that the thread is on, and the number of its GPU,
 * which becomes the thread's. */
YK_API yk_status yk__cuda_stream(int device, yk__queue queue, cudaStream_t *stream, int *gpu);
/* Fails with CUDA's words for `code`, the call, and what is known of the device. */
YK_API yk_status yk__cuda_failed(int device, cudaError_t code, const char *call);
/* Work of others on the device has failed, and the work that was queued after it computes with its results: the next
 * wait for the device fails with this, once. The first of several is kept. */
YK_API void yk__cuda_note_failure(int device, yk_status code, const char *message);
/* out = the elements of `inputs` arrays that begin `stride` elements apart, combined one by one by ADD (alpha 1), MUL,
 * MINIMUM or MAXIMUM in the tree of Note [The order of a reduction] (comm/native/combine.c), and divided by `inputs`
 * where `mean`. Arrays of any dtype in the device's memory; out may be one of them. Queued on `stream`. */
YK_API yk_status yk__cuda_combine(int device, cudaStream_t stream, yk__binary op, yk_dtype dtype, bool mean, void *out,
                                  const void *in, int inputs, int64_t stride, int64_t count);
/* out = the elements of `in`, of a floating dtype, each divided by `by` in f32, or f64, and rounded once; out may be
 * `in`. Queued on `stream`. */
YK_API yk_status yk__cuda_divide(int device, cudaStream_t stream, yk_dtype dtype, void *out, const void *in,
                                 int64_t count, int by);

#ifdef __cplusplus
}
#endif
#endif
