/*
 * checks.cu - labels and indices, checked in front of the kernels that use them. Layer: device/cuda.
 *
 * One block looks at all of them, so that the lowest row is found without an atomic; a batch's labels take it less time
 * than its launch.
 */
#include "device/cuda/kernel.h"

#include "device/cuda/checks.h"
#include "device/cuda/indices.h"

enum { THREADS = 256 };

YK__KERNEL(THREADS)
check_kernel(yk__view index, int64_t check, int64_t bound, int64_t ignored, struct cuda_record *at)
{
    YK__SHARED(int64_t, lowest);
    int thread = (int)threadIdx.x;
    int64_t mine = INT64_MAX;
    YK__LOOP for (int64_t i = thread; i < index.shape[0] && mine == INT64_MAX; i += THREADS)
    {
        int64_t value = index_at(index, i);
        if ((value < 0 || value >= bound) && value != ignored)
            mine = i;
    }
    lowest[thread] = mine;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (thread < half && lowest[thread + half] < lowest[thread])
            lowest[thread] = lowest[thread + half];
        __syncthreads();
    }
    yk__global<struct cuda_record> record(at);
    if (thread == 0 && lowest[0] != INT64_MAX && record->check == 0) {
        record->check = check;
        record->row = lowest[0];
        record->value = index_at(index, lowest[0]);
        record->bound = bound;
    }
}

yk_status cuda_check_indices(int device, enum cuda_check check, const yk__view *index, int64_t bound, int64_t ignored)
{
    cudaStream_t stream = NULL;
    yk_status status = cuda_use(device, &stream);
    if (status || index->shape[0] == 0)
        return status;
    YK__LAUNCH("check of indices", check_kernel, 1, THREADS, THREADS * sizeof(int64_t), stream, *index, (int64_t)check,
               bound, ignored, cuda_record_of(device));
    return cuda_launched(device, "check of indices", 1, &index);
}
