/*
 * checks.cu - labels and indices, checked in front of the kernels that use them. Layer: device/cuda.
 *
 * One block looks at all of them, so that the lowest row is found without an atomic; it reads AT_ONCE rows of a thread
 * at a time, so that the labels of a batch take it less time than its launch.
 */
#include "device/cuda/kernel.h"

#include "device/cuda/checks.h"
#include "device/cuda/indices.h"

enum { THREADS = 1024, AT_ONCE = 4 };

YK__KERNEL(THREADS)
check_kernel(yk__view index, int64_t check, int64_t bound, int64_t ignored, struct cuda_record *at)
{
    YK__SHARED(int64_t, lowest);
    int thread = (int)threadIdx.x;
    int64_t mine = INT64_MAX;
    YK__LOOP for (int64_t first = thread; first < index.shape[0] && mine == INT64_MAX; first += AT_ONCE * THREADS)
    {
        int64_t value[AT_ONCE];
        YK__UNROLL for (int k = 0; k < AT_ONCE; k++) value[k] =
            first + k * THREADS < index.shape[0] ? index_at(index, first + k * THREADS) : ignored;
        YK__UNROLL for (int k = AT_ONCE - 1; k >= 0; k--)
        {
            bool there = first + k * THREADS < index.shape[0];
            if (there && (value[k] < 0 || value[k] >= bound) && value[k] != ignored)
                mine = first + k * THREADS;
        }
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
    cuda_checks_queued(device);
    return cuda_launched(device, "check of indices", 1, &index);
}
