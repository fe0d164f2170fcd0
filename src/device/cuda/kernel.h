/*
 * kernel.h - the style that kernels are written in. Layer: device/cuda.
 *
 * The same .cu files are compiled by nvcc and, with another kernel.h (tests/emulator), as plain C++ that runs on the
 * host and checks what they do. Therefore kernels use these and nothing else of CUDA's language: YK__KERNEL,
 * YK__LAUNCH, YK__SHARED for shared memory, which is always dynamic, yk__global<T> for pointers to the GPU's memory,
 * threadIdx and its kin, __syncthreads, yk__sync_warp, __shfl_xor_sync and __shfl_down_sync with the full mask,
 * yk__atomic_min, and for halves yk__load_f16, yk__round_f16, yk__round_bf16, and yk__greater. No static shared memory,
 * no __activemask, no synchronisation of a grid, no atomic of floats: their sums would depend on the order.
 */
#ifndef YOKE_DEVICE_CUDA_KERNEL_H
#define YOKE_DEVICE_CUDA_KERNEL_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include <cuda_runtime.h>

#include <yoke/device.h>

#define YK__SCALAR static __host__ __device__ inline
#define YK__DEVICE __device__ __forceinline__

/* A kernel for blocks of at most so many threads; where a second number is given, with so few registers that a
 * multiprocessor has room for that many blocks. */
#define YK__KERNEL(...) static __global__ void __launch_bounds__(__VA_ARGS__)
/* `kernel` is a pointer to a kernel; `operation` names it where it fails, which cuda_launched tells. */
#define YK__LAUNCH(operation, kernel, grid, block, shared_bytes, stream, ...)                                          \
    ((void)(operation), yk__launch(kernel, (grid), (block), (shared_bytes), (stream), __VA_ARGS__))
/* `name` points to the block's shared memory, as T. */
#define YK__SHARED(T, name)                                                                                            \
    extern __shared__ __align__(16) unsigned char yk__shared_bytes[];                                                  \
    T *name = reinterpret_cast<T *>(yk__shared_bytes)
/* All lanes of a warp. */
#define YK__FULL_MASK 0xFFFFFFFFu
/* Stands before a loop that is not to be unrolled: its code would grow for nothing. */
#define YK__LOOP _Pragma("unroll 1")
/* Stands before a loop that must be unrolled: an array in registers has no index that is found when it runs. */
#define YK__UNROLL _Pragma("unroll")

extern "C" void cuda_note_launch(cudaError_t code); /* see cuda.h */

/* Launches a kernel as <<<>>> does, but without its two calls to hand on the configuration, and with the launch's own
 * answer: that of cudaGetLastError may be the failure of somebody else's call. */
template <typename... P, typename... A>
static inline void yk__launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
                              A... arguments)
{
    cudaError_t code = [&](P... values) {
        void *pointers[] = {(void *)&values...};
        return cudaLaunchKernel((const void *)kernel, grid, block, pointers, shared_bytes, stream);
    }(arguments...);
    if (code)
        cuda_note_launch(code);
}

template <typename T> using yk__global = T *;
template <typename T> using yk__block = T *;

/* All lanes of a warp meet: what one has read or written before comes before what another writes or reads after it. A
 * shuffle exchanges values, and promises no order of memory. */
static YK__DEVICE void yk__sync_warp()
{
    __syncwarp(YK__FULL_MASK);
}

/* *at becomes the lesser of the two; whole numbers alone, whose result no order changes. */
static YK__DEVICE void yk__atomic_min(yk__global<unsigned long long> at, unsigned long long value)
{
    atomicMin(at, value);
}

/* a / b, rounded as that is, for numbers from 2^-40 to 2^40: the steps of nvcc's own division, without its test of the
 * exponents and the branch after that, which keep one element's from running beside another's. */
static __host__ YK__DEVICE float yk__divided(float a, float b)
{
#ifdef __CUDA_ARCH__
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b));
    r = fmaf(r, fmaf(-b, r, 1.0f), r);
    float y = a * r;
    return fmaf(r, fmaf(-b, y, a), y);
#else
    return a / b;
#endif
}
#define YK__DIVIDED(a, b) yk__divided(a, b)

#include "device/cuda/scalars.h"

/* Conversion between halves and floats by the instructions for that: the bits of device/convert.h, which takes ten
 * operations or more, but of NaN, which stays NaN. */
static YK__DEVICE float yk__load_f16(uint16_t h)
{
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
    return x;
}
static YK__DEVICE uint16_t yk__round_f16(float x)
{
    uint16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}
static YK__DEVICE uint16_t yk__round_bf16(float x)
{
    uint16_t h;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}

/* The bf16 that is next to x, as a float: its bits are the upper half of one, so that there is nothing to convert. */
static YK__DEVICE float yk__rounded_bf16(float x)
{
    uint32_t bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, 0f00000000;" : "=r"(bits) : "f"(x));
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* The greater of two, NaN where one is. */
static YK__DEVICE float yk__greater(float x, float y)
{
    float greater;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(greater) : "f"(x), "f"(y));
    return greater;
}
static YK__DEVICE double yk__greater(double x, double y)
{
    return x != x || x > y ? x : y;
}

#endif
