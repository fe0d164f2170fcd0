/*
 * lookup.cu - the slots embedding and embedding_backward. Layer: device/cuda.
 *
 * The gradient of a row of the table is added up in the order of the indices, as on the CPU: the block of an index
 * looks whether an earlier one is the same; the first of equals adds the rows of all. An index outside the table is
 * left out (Note [The error record of a device]).
 */
#include "device/cuda/walk.h"

#include "device/cuda/checks.h"
#include "device/cuda/indices.h"

enum { THREADS = WALK_THREADS };

template <typename T> YK__KERNEL(THREADS) gather_kernel(yk__view out, yk__view weight, yk__view index)
{
    int64_t width = out.shape[1], total = out.shape[0] * width, step = (int64_t)THREADS * gridDim.x;
    yk__global<T> to(static_cast<T *>(out.data));
    yk__global<const T> from(static_cast<const T *>(weight.data));
    YK__LOOP for (int64_t i = (int64_t)THREADS * blockIdx.x + threadIdx.x; i < total; i += step)
    {
        int64_t m = i / width, d = i % width, row = index_at(index, m);
        T x = 0;
        if (row >= 0 && row < weight.shape[0])
            x = from[row * weight.stride[0] + d * weight.stride[1]];
        to[m * out.stride[0] + d * out.stride[1]] = x;
    }
}

template <typename E>
YK__KERNEL(THREADS)
scatter_kernel(yk__view gweight, yk__view gout, yk__view index, int64_t padding)
{
    YK__SHARED(int32_t, earlier);
    int64_t count = index.shape[0], width = gout.shape[1];
    int thread = (int)threadIdx.x;
    YK__LOOP for (int64_t m = blockIdx.x; m < count; m += gridDim.x)
    {
        int64_t row = index_at(index, m);
        if (row < 0 || row >= gweight.shape[0] || row == padding)
            continue;
        __syncthreads();
        int32_t seen = 0;
        YK__LOOP for (int64_t i = thread; i < m && !seen; i += THREADS) seen = index_at(index, i) == row;
        earlier[thread] = seen;
        __syncthreads();
        for (int half = THREADS / 2; half > 0; half /= 2) {
            if (thread < half)
                earlier[thread] |= earlier[thread + half];
            __syncthreads();
        }
        if (earlier[0])
            continue;
        YK__LOOP for (int64_t d = thread; d < width; d += THREADS)
        {
            typename E::number sum = 0;
            YK__LOOP for (int64_t i = m; i < count; i++) if (index_at(index, i) == row) sum +=
                get<E>(gout, i * gout.stride[0] + d * gout.stride[1]);
            put<E>(gweight, row * gweight.stride[0] + d * gweight.stride[1], sum);
        }
    }
}

yk_status cuda_embedding(int device, const yk__view *out, const yk__view *weight, const yk__view *index)
{
    const yk__view *views[] = {out, weight, index};
    cudaStream_t stream = NULL;
    yk_status status = cuda_check_indices(device, CUDA_CHECK_EMBEDDING, index, weight->shape[0], INT64_MIN);
    if (!status)
        status = cuda_use(device, &stream);
    int64_t total = out->shape[0] * out->shape[1];
    if (status || total == 0)
        return status;
    size_t size = yk__size_of(out->dtype);
    void (*kernel)(yk__view, yk__view, yk__view) = size == 2   ? gather_kernel<uint16_t>
                                                   : size == 4 ? gather_kernel<uint32_t>
                                                               : gather_kernel<uint64_t>;
    YK__LAUNCH("embedding", kernel, walk_blocks(device, total), THREADS, 0, stream, *out, *weight, *index);
    return cuda_launched(device, "embedding", 3, views);
}

yk_status cuda_embedding_backward(int device, const yk__view *gweight, const yk__view *gout, const yk__view *index,
                                  int64_t padding_idx)
{
    const yk__view *views[] = {gweight, gout, index};
    cudaStream_t stream = NULL;
    yk_status status = cuda_check_indices(device, CUDA_CHECK_EMBEDDING, index, gweight->shape[0], INT64_MIN);
    if (!status)
        status = cuda_fill(device, gweight, 0);
    if (!status)
        status = cuda_use(device, &stream);
    if (status || gout->shape[0] * gout->shape[1] == 0)
        return status;
#define SCATTER(E)                                                                                                     \
    YK__LAUNCH("embedding_backward", scatter_kernel<E>, walk_rows(device, index->shape[0]), THREADS,                   \
               THREADS * sizeof(int32_t), stream, *gweight, *gout, *index, padding_idx)
    FLOATING(gout->dtype, SCATTER);
    return cuda_launched(device, "embedding_backward", 3, views);
}
