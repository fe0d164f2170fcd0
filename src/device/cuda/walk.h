/*
 * walk.h - loops of elementwise kernels over their elements. Layer: device/cuda. After kernel.h.
 *
 * A yk__loop (device/loop.h) is merged on the host; a kernel turns a position in it into an offset for each operand.
 * Most loops are one run over memory, for which the offset is the position times the size.
 */
#ifndef YOKE_DEVICE_CUDA_WALK_H
#define YOKE_DEVICE_CUDA_WALK_H

/* Included first: it defines a scalar function for the GPU. */
#include "device/cuda/kernel.h"

#include "device/cuda/cuda.h"

/* Threads of a block, and elements of a thread at a time: loads that are under way together. They matter for speed
 * alone. */
enum { WALK_THREADS = 256, WALK_ITEMS = 4 };

/* The number of blocks for `total` elements, each thread taking WALK_ITEMS at a time: no more than fill the GPU a few
 * times over, for a thread goes on with the elements after those. */
static inline unsigned walk_blocks(int device, int64_t total)
{
    int64_t each = WALK_THREADS * WALK_ITEMS, blocks = (total + each - 1) / each;
    int64_t most = 16 * (int64_t)cuda_processors(device);
    return (unsigned)(blocks < most ? blocks : most);
}

/* The same where each block takes one of `rows` at a time. */
static inline unsigned walk_rows(int device, int64_t rows)
{
    int64_t most = 16 * (int64_t)cuda_processors(device);
    return (unsigned)(rows < 1 ? 1 : rows < most ? rows : most);
}

/* Divides i by size, with the remainder in *rest; a division of 32 bits, where both fit, takes a fifth of the time. */
static YK__DEVICE int64_t walk_divide(int64_t i, int64_t size, int64_t *rest)
{
    int64_t quotient = (i | size) <= UINT32_MAX ? (uint32_t)i / (uint32_t)size : i / size;
    *rest = i - quotient * size;
    return quotient;
}

/* The bytes from operand k's first element to that at `position`. */
static YK__DEVICE int64_t walk_offset(const yk__loop &loop, int k, int64_t position)
{
    if (loop.ndim == 1)
        return position * loop.stride[0][k];
    int64_t offset = 0;
    YK__LOOP for (int d = 0; d + 1 < loop.ndim; d++)
    {
        int64_t next;
        if (loop.total <= UINT32_MAX) /* such a division takes a fifth of the time */
            next = (uint32_t)position / (uint32_t)loop.shape[d];
        else
            next = position / loop.shape[d];
        offset += (position - next * loop.shape[d]) * loop.stride[d][k];
        position = next;
    }
    return offset + position * loop.stride[loop.ndim - 1][k];
}

/* Operand k's element at `position`, as a T. */
template <typename T> static YK__DEVICE yk__global<T> walk_at(const yk__loop &loop, int k, int64_t position)
{
    return yk__global<T>(reinterpret_cast<T *>(loop.data[k] + walk_offset(loop, k, position)));
}

#endif
