/*
 * rows.h - rows that a team of threads, a warp or a whole block, holds in registers. Layer: device/cuda. After
 * kernel.h.
 *
 * A row is read once, in packs (packs.h): thread t of n holds elements V t to V t + V - 1, then those V n further on,
 * and so on, HELD times. Which thread has which element depends on the width alone, not on how it is read.
 */
#ifndef YOKE_DEVICE_CUDA_ROWS_H
#define YOKE_DEVICE_CUDA_ROWS_H

#include "device/cuda/packs.h"

#include "device/cuda/elements.h"
#include "device/cuda/sums.h"

/* Elements of a pack of a row. */
template <typename E> struct row_pack {
    enum { V = sizeof(typename E::stored) == 8 ? 2 : 4 };
};

template <typename E, int MEMBERS, int TIMES> struct held_row {
    enum { V = row_pack<E>::V, TEAM = MEMBERS, HELD = TIMES, MOST = TEAM * V * HELD };
    typedef typename E::stored stored;
    typedef pack<stored, V> packed;
    packed x[HELD];

    /* The row's element that is the first of the thread's pack h. */
    static YK__DEVICE int64_t position(int h)
    {
        return (int64_t)((int)threadIdx.x % TEAM + h * TEAM) * V;
    }
    /* The first element is at `base`, the next `step` bytes behind it; packs are read at once where they are
     * `aligned`. */
    YK__DEVICE void load(const char *base, int64_t step, int64_t width, bool aligned)
    {
        YK__UNROLL for (int h = 0; h < HELD; h++)
        {
            const char *at = base + position(h) * step;
            x[h] = packed();
            if (aligned) {
                if (position(h) < width)
                    x[h] = *yk__global<const packed>(reinterpret_cast<const packed *>(at));
                continue;
            }
            YK__UNROLL for (int v = 0; v < V; v++) if (position(h) + v < width) x[h].of[v] =
                *yk__global<const stored>(reinterpret_cast<const stored *>(at + v * step));
        }
    }
    YK__DEVICE void store(char *base, int64_t step, int64_t width, bool aligned) const
    {
        YK__UNROLL for (int h = 0; h < HELD; h++)
        {
            char *at = base + position(h) * step;
            if (aligned) {
                if (position(h) < width)
                    *yk__global<packed>(reinterpret_cast<packed *>(at)) = x[h];
                continue;
            }
            YK__UNROLL for (int v = 0; v < V; v++) if (position(h) + v < width) *
                yk__global<stored>(reinterpret_cast<stored *>(at + v * step)) = x[h].of[v];
        }
    }
};

/* For each element that the thread holds of a row: i is where it is in the row, x[h].of[v] where it is held. */
#define EACH_HELD(row, h, v, i, width)                                                                                 \
    YK__UNROLL for (int h = 0; h < row::HELD; h++)                                                                     \
        YK__UNROLL for (int v = 0; v < row::V; v++) if (int64_t i = row::position(h) + v; i < (width))

/* For all threads of a team; `shared` is used by whole blocks. */
template <int TEAM, typename T> static YK__DEVICE T team_sum(yk__block<T> shared, T x)
{
    return TEAM == LANES ? warp_sum(x) : block_sum<T>(shared, x);
}

template <int TEAM, typename T> static YK__DEVICE T team_max(yk__block<double> shared, T x)
{
    x = warp_max(x);
    if (TEAM == LANES)
        return x;
    __syncthreads();
    if (threadIdx.x % LANES == 0)
        shared[threadIdx.x / LANES] = (double)x;
    __syncthreads();
    for (int w = 0; w < TEAM / LANES; w++) {
        T other = (T)shared[w];
        x = x != x || x > other ? x : other;
    }
    return x;
}

/* Whether packs of n elements that are `step` bytes apart can be read at once from `base` and from what lies a multiple
 * of `row` bytes behind it. */
static inline bool rows_aligned(const void *base, int64_t step, int64_t row, int64_t width, size_t size)
{
    int64_t n = size == 8 ? 2 : 4, bytes = n * (int64_t)size;
    return step == (int64_t)size && width % n == 0 && row % bytes == 0 && (uintptr_t)base % (uintptr_t)bytes == 0;
}

#endif
