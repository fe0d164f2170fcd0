/*
 * nan_trial.c - the results of a library's fused ReLU for NaN and infinities, found out by a run. Layer: device/cuda.
 *
 * PyTorch's ReLU keeps NaN, and so does ours; no manual says that cuBLASLt's or cuDNN's does. A plan with a ReLU after
 * a bias is carried out once with a bias whose channels are NaN, infinity and minus infinity in turn. Whatever it is
 * added to, the result then is NaN, infinity or NaN, and 0 or NaN.
 */
#include <math.h>
#include <stdlib.h>

#include "device/convert.h"
#include "device/cuda/libraries.h"

enum { MOST_SAMPLES = 1 << 15 }; /* that are looked at */

yk_status cuda_nan_trial_bias(int device, cudaStream_t stream, yk_dtype dtype, void *bias, int64_t count)
{
    const double kinds[] = {NAN, INFINITY, -INFINITY};
    size_t size = yk__size_of(dtype);
    char *host = cuda_base->allocate((size_t)count, size);
    if (!host)
        return YK_ERR_MEMORY;
    for (int64_t i = 0; i < count; i++)
        yk__store_scalar(host + (size_t)i * size, dtype, kinds[i % 3]);
    cudaError_t error = cudaMemcpyAsync(bias, host, (size_t)count * size, cudaMemcpyHostToDevice, stream);
    if (!error) /* from pageable memory, which need not have been read when that call returns */
        error = cudaStreamSynchronize(stream);
    free(host);
    return error ? cuda_failed(device, error, "trial of a ReLU") : YK_OK;
}

static double value_of(const char *host, yk_dtype dtype, int64_t i)
{
    switch (dtype) {
    case YK_F64: return ((const double *)(const void *)host)[i];
    case YK_F16: return (double)yk__from_f16(((const uint16_t *)(const void *)host)[i]);
    case YK_BF16: return (double)yk__from_bf16(((const uint16_t *)(const void *)host)[i]);
    default: return (double)((const float *)(const void *)host)[i];
    }
}

yk_status cuda_nan_trial_passed(int device, cudaStream_t stream, yk_dtype dtype, const void *out, int64_t count,
                                int64_t inner, int64_t channels, bool *passed)
{
    size_t size = yk__size_of(dtype);
    int64_t samples = count < MOST_SAMPLES ? count : MOST_SAMPLES, starts[] = {0, count - samples};
    char *host = cuda_base->allocate((size_t)samples, size);
    cudaError_t error = cudaSuccess;
    if (!host)
        return YK_ERR_MEMORY;
    *passed = true;
    for (int part = 0; part < 2 && !error; part++) {
        const char *from = (const char *)out + (size_t)starts[part] * size;
        error = cudaMemcpyAsync(host, from, (size_t)samples * size, cudaMemcpyDeviceToHost, stream);
        if (!error)
            error = cudaStreamSynchronize(stream);
        for (int64_t i = 0; i < samples && !error; i++) {
            int64_t channel = (starts[part] + i) / inner % channels;
            double value = value_of(host, dtype, i);
            bool right = isnan(value) || (channel % 3 == 1 && value == INFINITY) || (channel % 3 == 2 && value == 0);
            *passed = *passed && right;
        }
    }
    free(host);
    return error ? cuda_failed(device, error, "trial of a ReLU") : YK_OK;
}
