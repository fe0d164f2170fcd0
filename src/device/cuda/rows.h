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

/* PACKED: packs are read and written at once (rows_aligned, or rows that have room for whole packs), and else their
 * elements one by one: kernels of their own, for the addresses of single elements would take the registers that the row
 * is held in. */
template <typename Element, bool PACKED, int MEMBERS, int TIMES> struct held_row {
    typedef Element E;
    enum { V = row_pack<E>::V, IN_PACKS = PACKED, TEAM = MEMBERS, HELD = TIMES, MOST = TEAM * V * HELD };
    typedef typename E::stored stored;
    typedef pack<stored, V> packed;
    packed x[HELD];

    /* The row's element that is the first of the thread's pack h. */
    static YK__DEVICE int position(int h)
    {
        return ((int)threadIdx.x % TEAM + h * TEAM) * V;
    }
    /* The first element is at `base`, the next `step` bytes after it: all are read before one is used. Elements
     * after the row's end are `none`; after that of a row that whole packs do not end with, they are what memory has
     * there. */
    YK__DEVICE void load(const char *base, int64_t step, int64_t width, stored none)
    {
        int to = (int)width;
        YK__UNROLL for (int h = 0; h < HELD; h++)
        {
            YK__UNROLL for (int v = 0; v < V; v++) x[h].of[v] = none;
            if constexpr (PACKED) {
                if (position(h) < to)
                    x[h] = *yk__global<const packed>(reinterpret_cast<const packed *>(base) + position(h) / V);
            } else {
                YK__UNROLL for (int v = 0; v < V; v++) if (position(h) + v < to) x[h].of[v] =
                    *yk__global<const stored>(reinterpret_cast<const stored *>(base + (position(h) + v) * step));
            }
        }
    }
    /* `none`, too, after the end of such a row. */
    YK__DEVICE void cut(int64_t width, stored none)
    {
        int to = (int)width;
        if (to % V == 0)
            return;
        YK__UNROLL for (int h = 0; h < HELD; h++)
        {
            YK__UNROLL for (int v = 1; v < V; v++) x[h].of[v] = position(h) + v < to ? x[h].of[v] : none;
        }
    }
    YK__DEVICE void store(char *base, int64_t step, int64_t width) const
    {
        int to = (int)width;
        YK__UNROLL for (int h = 0; h < HELD; h++)
        {
            if constexpr (PACKED) {
                if (position(h) < to)
                    *yk__global<packed>(reinterpret_cast<packed *>(base) + position(h) / V) = x[h];
            } else {
                YK__UNROLL for (int v = 0; v < V; v++) if (position(h) + v < to) *
                    yk__global<stored>(reinterpret_cast<stored *>(base + (position(h) + v) * step)) = x[h].of[v];
            }
        }
    }
};

/* For each element that the thread holds, those a little after the row's end among them: to look at each costs more
 * than what is done with one. Packs that no thread of the team has an element of are left out. */
#define EACH_HELD_PACK(row, h, width)                                                                                  \
    YK__UNROLL for (int h = 0; h < row::HELD; h++) if (h * row::TEAM * row::V < (int)(width))
#define EACH_HELD(row, h, v, width) EACH_HELD_PACK(row, h, width) YK__UNROLL for (int v = 0; v < row::V; v++)

/* Packs of a row that a thread of a warp, or of a block, holds at most. A warp's row of SHORT_HOLDS at most has kernels
 * of its own, which take fewer registers, for as few bytes of a row need more rows under way. */
enum { SHORT_HOLDS = 2, WARP_HOLDS = 8, BLOCK_HOLDS = 4 };
/* A kernel for rows of the type `row`, with so few registers that a multiprocessor has room for two blocks, or four. */
#define HELD_KERNEL(row) YK__KERNEL(WALK_THREADS, row::HELD <= SHORT_HOLDS ? 4 : 2)

/* The kernel for rows of `size` elements of E: held(row) of the team that holds one, or `longer` where none does. */
#define KERNEL_OF_HELD(E, size, packed, held, longer)                                                                  \
    ((size) <= held_row<E, packed, LANES, SHORT_HOLDS>::MOST  ? held(held_row<E, packed, LANES, SHORT_HOLDS>)          \
     : (size) <= held_row<E, packed, LANES, WARP_HOLDS>::MOST ? held(held_row<E, packed, LANES, WARP_HOLDS>)           \
     : (size) <= held_row<E, packed, WALK_THREADS, BLOCK_HOLDS>::MOST                                                  \
         ? held(held_row<E, packed, WALK_THREADS, BLOCK_HOLDS>)                                                        \
         : longer)
#define KERNEL_OF_ROWS(E, size, packs, held, longer)                                                                   \
    ((packs) ? KERNEL_OF_HELD(E, size, true, held, longer) : KERNEL_OF_HELD(E, size, false, held, longer))
/* The number of blocks of a kernel over rows: a warp has a row, or a block. */
template <typename E> static inline unsigned blocks_of_rows(int device, int64_t size, int64_t rows)
{
    const int64_t warps = WALK_THREADS / LANES;
    return walk_rows(device, size <= held_row<E, true, LANES, WARP_HOLDS>::MOST ? (rows + warps - 1) / warps : rows);
}

/* The sum over a team, for all its threads; `shared` is used by whole blocks. */
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
        x = yk__greater(x, other);
    }
    return x;
}

/* True if packs of n elements that are `step` bytes apart can be read at once from `base` and from any multiple of
 * `row` bytes after it. */
static inline bool rows_aligned(const void *base, int64_t step, int64_t row, int64_t width, size_t size)
{
    int64_t n = size == 8 ? 2 : 4, bytes = n * (int64_t)size;
    return step == (int64_t)size && width % n == 0 && row % bytes == 0 && (uintptr_t)base % (uintptr_t)bytes == 0;
}

#endif
