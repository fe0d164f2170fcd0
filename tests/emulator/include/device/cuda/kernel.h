/*
 * kernel.h - the style of kernels, for the emulator: stands in for src/device/cuda/kernel.h, whose words it gives
 * another meaning. Tests only.
 */
#ifndef YOKE_DEVICE_CUDA_KERNEL_H
#define YOKE_DEVICE_CUDA_KERNEL_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include <yoke/device.h>

#include "tests/emulator/emulator.h"

#define YK__SCALAR      static inline
#define YK__DEVICE      inline
#define YK__KERNEL(...) static void
#define YK__LAUNCH(operation, kernel, grid, block, shared_bytes, stream, ...)                                          \
    emulator::launch(operation, kernel, grid, block, shared_bytes, stream, __VA_ARGS__)
#define YK__SHARED(T, name) emulator::checked_pointer<T> name(static_cast<T *>(emulator::shared_memory()))
#define YK__FULL_MASK       0xFFFFFFFFu
#define YK__LOOP
#define YK__UNROLL

template <typename T> using yk__global = emulator::checked_pointer<T>;
template <typename T> using yk__block = emulator::checked_pointer<T>;

#define threadIdx (emulator::current->index)
#define blockIdx  (emulator::current->block)
#define blockDim  (emulator::current->block_size)
#define gridDim   (emulator::current->grid_size)

static inline void __syncthreads()
{
    emulator::barrier();
}

/* Values of up to 8 bytes. */
template <typename T> static T emulator_shuffle(uint32_t mask, T value, unsigned source)
{
    uint64_t bits = 0;
    static_assert(sizeof(T) <= sizeof(bits), "a shuffle moves 4 or 8 bytes");
    memcpy(&bits, &value, sizeof(T));
    bits = emulator::shuffle(mask, bits, source);
    memcpy(&value, &bits, sizeof(T));
    return value;
}
template <typename T> static T __shfl_xor_sync(uint32_t mask, T value, int other)
{
    return emulator_shuffle(mask, value, emulator::lane() ^ (unsigned)other);
}
template <typename T> static T __shfl_down_sync(uint32_t mask, T value, unsigned delta)
{
    unsigned source = emulator::lane() + delta;
    return emulator_shuffle(mask, value, source < 32 ? source : emulator::lane());
}

/* As a shuffle, the lanes of a warp meet. */
static inline void yk__sync_warp()
{
    emulator::shuffle(YK__FULL_MASK, 0, emulator::lane());
}

/* The threads of a kernel take turns. */
static inline void yk__atomic_min(yk__global<unsigned long long> at, unsigned long long value)
{
    if (value < *at)
        *at = value;
}

#include "device/cuda/scalars.h"

static inline float yk__load_f16(uint16_t h)
{
    return yk__from_f16(h);
}
static inline uint16_t yk__round_f16(float x)
{
    return yk__to_f16(x);
}
static inline uint16_t yk__round_bf16(float x)
{
    return yk__to_bf16(x);
}

static inline float yk__rounded_bf16(float x)
{
    return yk__from_bf16(yk__to_bf16(x));
}

template <typename T> static T yk__greater(T x, T y)
{
    return x != x || x > y ? x : y;
}

#endif
