/*
 * merge_sort.h - a stable sort of keys with their positions, many lines at a time. Layer: device/cuda.
 *
 * Runs of 1, 2, 4, ... sorted elements are merged by pairs: a thread finds by bisection how many elements of the other
 * run go before its own, which is where its own goes. Each doubling is a launch; of long lines, runs of up to SORT_TILE
 * are made by one, in shared memory.
 */
#ifndef YOKE_DEVICE_CUDA_MERGE_SORT_H
#define YOKE_DEVICE_CUDA_MERGE_SORT_H

#include "device/cuda/walk.h"

/* SORT_LEAST: a shorter line would leave most threads of a block idle. */
enum { SORT_TILE = 1024, SORT_EACH = SORT_TILE / WALK_THREADS, SORT_LEAST = 256 };

/* An entry of 16 bytes, which one instruction moves. */
typedef struct alignas(16) sort_entry {
    uint64_t key;
    int64_t at;
} sort_entry;

/* The new index of `mine`, entry k of `count` in runs of `width`, when runs are merged by pairs. */
template <typename Entries>
static YK__DEVICE int64_t merged_index(const Entries &from, const sort_entry &mine, int64_t k, int64_t count,
                                       int64_t width)
{
    int64_t start = k & ~(2 * width - 1); /* the width is a power of two */
    int64_t middle = start + width < count ? start + width : count;
    int64_t end = start + 2 * width < count ? start + 2 * width : count;
    bool left = k < middle;
    int64_t low = left ? middle : start, high = left ? end : middle, first = low;
    YK__LOOP while (low < high)
    {
        int64_t half = low + (high - low) / 2;
        uint64_t other = from[half].key;
        if (left ? other < mine.key : other <= mine.key)
            low = half + 1;
        else
            high = half;
    }
    return start + (k - (left ? start : middle)) + (low - first);
}

/* Sorts tiles of each line, in their place. */
YK__KERNEL(WALK_THREADS) tile_sort_kernel(sort_entry *all_entries, int64_t lines, int64_t length)
{
    YK__SHARED(sort_entry, tile);
    yk__global<sort_entry> entries(all_entries);
    int64_t tiles = (length + SORT_TILE - 1) / SORT_TILE;
    YK__LOOP for (int64_t t = blockIdx.x; t < lines * tiles; t += gridDim.x)
    {
        int64_t from = t % tiles * SORT_TILE, at = t / tiles * length + from;
        int count = (int)(length - from < SORT_TILE ? length - from : (int64_t)SORT_TILE);
        sort_entry mine[SORT_EACH];
        int64_t target[SORT_EACH];
        YK__UNROLL for (int e = 0; e < SORT_EACH; e++)
        {
            target[e] = (int)threadIdx.x + e * WALK_THREADS;
            if (target[e] < count)
                mine[e] = entries[at + target[e]];
        }
        YK__LOOP for (int width = 1;; width *= 2)
        {
            __syncthreads();
            YK__UNROLL for (int e = 0; e < SORT_EACH; e++) if (target[e] < count) tile[target[e]] = mine[e];
            __syncthreads();
            if (width >= count)
                break;
            YK__UNROLL for (int e = 0; e < SORT_EACH; e++) if (target[e] < count) target[e] =
                merged_index(tile, mine[e], target[e], count, width);
        }
        YK__UNROLL for (int e = 0; e < SORT_EACH; e++)
        {
            int k = (int)threadIdx.x + e * WALK_THREADS;
            if (k < count)
                entries[at + k] = tile[k];
        }
    }
}

YK__KERNEL(WALK_THREADS)
merge_kernel(sort_entry *to_lines, const sort_entry *from_lines, int64_t lines, int64_t length, int64_t width)
{
    int64_t total = lines * length, step = (int64_t)WALK_THREADS * gridDim.x;
    yk__global<sort_entry> to(to_lines);
    yk__global<const sort_entry> from(from_lines);
    YK__LOOP for (int64_t i = (int64_t)WALK_THREADS * blockIdx.x + threadIdx.x; i < total; i += step)
    {
        int64_t line = total <= UINT32_MAX ? (uint32_t)i / (uint32_t)length * length : i / length * length;
        sort_entry mine = from[i];
        to[line + merged_index(from + line, mine, i - line, length, width)] = mine;
    }
}

/* Sorts each of `lines` of `length` entries; they come to lie in one of the two memories, which is returned. */
static inline sort_entry *merge_sort(int device, const char *operation, sort_entry *entries, sort_entry *other,
                                     int64_t lines, int64_t length, cudaStream_t stream)
{
    int64_t tiles = lines * ((length + SORT_TILE - 1) / SORT_TILE);
    bool whole_tiles = length >= SORT_LEAST;
    if (whole_tiles)
        YK__LAUNCH(operation, tile_sort_kernel, walk_rows(device, tiles), WALK_THREADS, SORT_TILE * sizeof(sort_entry),
                   stream, entries, lines, length);
    for (int64_t width = whole_tiles ? SORT_TILE : 1; width < length; width *= 2) {
        YK__LAUNCH(operation, merge_kernel, walk_blocks(device, lines * length), WALK_THREADS, 0, stream, other,
                   (const sort_entry *)entries, lines, length, width);
        sort_entry *swap = entries;
        entries = other;
        other = swap;
    }
    return entries;
}

#endif
