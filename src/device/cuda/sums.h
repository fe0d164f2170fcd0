/*
 * sums.h - sums over the threads of a warp and of a block, in an order that depends on nothing. Layer: device/cuda.
 *
 * A butterfly: in each step a lane and its partner add the same two numbers, so all lanes end with the same bits.
 */
#ifndef YOKE_DEVICE_CUDA_SUMS_H
#define YOKE_DEVICE_CUDA_SUMS_H

#include "device/cuda/kernel.h"

/* The threads of a warp. */
enum { LANES = 32 };

template <typename T> static YK__DEVICE T warp_sum(T x)
{
    for (int step = LANES / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(YK__FULL_MASK, x, step);
    return x;
}

/* The greatest; NaN where there is one. */
template <typename T> static YK__DEVICE T warp_max(T x)
{
    for (int step = LANES / 2; step > 0; step /= 2)
        x = yk__greater(x, __shfl_xor_sync(YK__FULL_MASK, x, step));
    return x;
}

/* The sum over a block of whole warps, for all its threads; `shared` has an element for each warp. */
template <typename T> static YK__DEVICE T block_sum(yk__block<T> shared, T x)
{
    int warps = (int)blockDim.x / LANES;
    x = warp_sum(x);
    __syncthreads();
    if (threadIdx.x % LANES == 0)
        shared[threadIdx.x / LANES] = x;
    __syncthreads();
    T sum = shared[0];
    for (int w = 1; w < warps; w++)
        sum += shared[w];
    return sum;
}

/* The sum of x over the threads before this one, and over all of them in *total; `shared` has an element for each. */
template <typename T> static YK__DEVICE T block_scan(yk__block<T> shared, T x, T *total)
{
    int thread = (int)threadIdx.x, threads = (int)blockDim.x;
    T sum = x;
    __syncthreads();
    shared[thread] = sum;
    __syncthreads();
    for (int step = 1; step < threads; step *= 2) {
        T before = thread >= step ? shared[thread - step] : (T)0;
        __syncthreads();
        sum += before;
        shared[thread] = sum;
        __syncthreads();
    }
    *total = shared[threads - 1];
    return thread > 0 ? shared[thread - 1] : (T)0;
}

#endif
