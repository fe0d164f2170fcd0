/*
 * merge_sort.h - a stable sort of keys with their positions, many lines at a time. Layer: device/cuda.
 *
 * Runs of 1, 2, 4, ... sorted elements are merged by pairs, a launch for each doubling: a thread finds by bisection how
 * many elements of the other run go before its own, which is where its own goes.
 */
#ifndef YOKE_DEVICE_CUDA_MERGE_SORT_H
#define YOKE_DEVICE_CUDA_MERGE_SORT_H

#include "device/cuda/walk.h"

typedef struct sort_entry {
    uint64_t key;
    int64_t at;
} sort_entry;

YK__KERNEL(WALK_THREADS)
merge_kernel(sort_entry *to_lines, const sort_entry *from_lines, int64_t lines, int64_t length, int64_t width)
{
    int64_t total = lines * length, step = (int64_t)WALK_THREADS * gridDim.x;
    yk__global<sort_entry> to(to_lines);
    yk__global<const sort_entry> from(from_lines);
    YK__LOOP for (int64_t i = (int64_t)WALK_THREADS * blockIdx.x + threadIdx.x; i < total; i += step)
    {
        int64_t k = i % length, line = i - k, start = k / (2 * width) * (2 * width);
        int64_t middle = start + width < length ? start + width : length;
        int64_t end = start + 2 * width < length ? start + 2 * width : length;
        sort_entry mine = from[i];
        bool left = k < middle;
        int64_t low = left ? middle : start, high = left ? end : middle, first = low;
        YK__LOOP while (low < high)
        {
            int64_t half = low + (high - low) / 2;
            uint64_t other = from[line + half].key;
            if (left ? other < mine.key : other <= mine.key)
                low = half + 1;
            else
                high = half;
        }
        to[line + start + (k - (left ? start : middle)) + (low - first)] = mine;
    }
}

/* Sorts each of `lines` of `length` entries; they come to lie in one of the two memories, which is returned. */
static inline sort_entry *merge_sort(int device, const char *operation, sort_entry *entries, sort_entry *other,
                                     int64_t lines, int64_t length, cudaStream_t stream)
{
    for (int64_t width = 1; width < length; width *= 2) {
        YK__LAUNCH(operation, merge_kernel, walk_blocks(device, lines * length), WALK_THREADS, 0, stream, other,
                   (const sort_entry *)entries, lines, length, width);
        sort_entry *swap = entries;
        entries = other;
        other = swap;
    }
    return entries;
}

#endif
