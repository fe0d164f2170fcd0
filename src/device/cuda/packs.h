/*
 * packs.h - neighbouring elements that one access moves. Layer: device/cuda. After kernel.h.
 *
 * A GPU reaches its memory's rate only while about 32 KiB of each multiprocessor's loads are under way: a thread that
 * reads 4 bytes at a time keeps 8 KiB of them. So kernels that move memory read 16 bytes at a time (a pack), several of
 * them before they use the first, where the operands allow it: whether they do changes which instructions load and
 * store, and no bit of a result.
 */
#ifndef YOKE_DEVICE_CUDA_PACKS_H
#define YOKE_DEVICE_CUDA_PACKS_H

#include "device/cuda/walk.h"

/* Bytes that an instruction moves at most. */
static const size_t PACK_BYTES = 16;
/* Packs of one operand that a thread has under way; of several operands one each is enough. */
enum { PACKS = 2 };

/* The most elements of T in a pack; and the most for which both A and B have a pack. */
template <typename T> struct pack_of {
    enum { N = PACK_BYTES / sizeof(T) };
};
template <typename A, typename B> struct pack_of_two {
    enum { N = PACK_BYTES / (sizeof(A) > sizeof(B) ? sizeof(A) : sizeof(B)) };
};

template <int BYTES> struct pack_alignment {
    enum { OF = BYTES > (int)PACK_BYTES ? (int)PACK_BYTES : BYTES };
};
template <typename T, int N> struct alignas(pack_alignment<(int)sizeof(T) * N>::OF) pack {
    T of[N];
};

/* A pack as words, which are taken apart when they are used: where a load is left out at times, halves and bytes would
 * be taken apart after it, so that it would be waited for before the next one begins. */
template <int BYTES> struct words_of {
    typedef pack<uint32_t, BYTES / 4> T;
};
template <> struct words_of<2> {
    typedef uint16_t T;
};
template <> struct words_of<1> {
    typedef uint8_t T;
};
template <typename Pack> struct pack_words {
    typename words_of<(int)sizeof(Pack)>::T words;
    YK__DEVICE void clear()
    {
        words = {};
    }
    YK__DEVICE void load(const char *at)
    {
        typedef const typename words_of<(int)sizeof(Pack)>::T from;
        words = *yk__global<from>(reinterpret_cast<from *>(at));
    }
    YK__DEVICE void set(const Pack &x)
    {
        memcpy(&words, &x, sizeof(x));
    }
    YK__DEVICE Pack elements() const
    {
        Pack x;
        memcpy(&x, &words, sizeof(x));
        return x;
    }
};

/* A loop whose operands can be read N elements at a time: every `repeated` operand has one element for all that lie
 * side by side, the others lie side by side. */
typedef struct packed_loop {
    yk__loop loop;
    unsigned repeated; /* bit k */
} packed_loop;

/* True if `loop` is such a one for packs of n elements, and fills *packed then; size[k] is that of an element of
 * operand k. Operand 0 is written. */
static inline bool pack_loop(packed_loop *packed, const yk__loop &loop, const size_t *size, int64_t n)
{
    packed->loop = loop;
    packed->repeated = 0;
    if (loop.ndim > 1 && loop.shape[0] % n)
        return false;
    for (int k = 0; k < loop.operands; k++) {
        int64_t bytes = n * (int64_t)size[k], aligned = bytes < (int64_t)PACK_BYTES ? bytes : (int64_t)PACK_BYTES;
        if (k > 0 && loop.stride[0][k] == 0) {
            packed->repeated |= 1u << k;
            continue;
        }
        if (loop.stride[0][k] != (int64_t)size[k] || (uintptr_t)loop.data[k] % (uintptr_t)aligned)
            return false;
        for (int d = 1; d < loop.ndim; d++)
            if (loop.stride[d][k] % aligned)
                return false;
    }
    return true;
}

/* Blocks for a loop of `total` elements, of which a thread takes n at a time. */
static inline unsigned pack_blocks(int device, int64_t total, int64_t n)
{
    int64_t each = WALK_THREADS * n, blocks = (total + each - 1) / each;
    int64_t most = 16 * (int64_t)cuda_processors(device);
    return (unsigned)(blocks < most ? blocks : most);
}

/* The bytes from each of K operands' first element to that at `position`. */
template <int K> static YK__DEVICE void walk_offsets(const yk__loop &loop, int64_t position, int64_t *offset)
{
    for (int k = 0; k < K; k++)
        offset[k] = 0;
    YK__LOOP for (int d = 0; d + 1 < loop.ndim; d++)
    {
        int64_t next;
        if (loop.total <= UINT32_MAX) /* such a division takes a fifth of the time */
            next = (uint32_t)position / (uint32_t)loop.shape[d];
        else
            next = position / loop.shape[d];
        int64_t at = position - next * loop.shape[d];
        for (int k = 0; k < K; k++)
            offset[k] += at * loop.stride[d][k];
        position = next;
    }
    for (int k = 0; k < K; k++)
        offset[k] += position * loop.stride[loop.ndim - 1][k];
}

/* Operand k's N elements, `offset` bytes after its first. */
template <typename T, int N>
static YK__DEVICE pack_words<pack<T, N>> load_words(const packed_loop &packed, int k, int64_t offset)
{
    const char *at = packed.loop.data[k] + offset;
    pack_words<pack<T, N>> x;
    if (packed.repeated >> k & 1) {
        pack<T, N> same;
        T one = *yk__global<const T>(reinterpret_cast<const T *>(at));
        for (int i = 0; i < N; i++)
            same.of[i] = one;
        x.set(same);
    } else {
        x.load(at);
    }
    return x;
}
template <typename T, int N> static YK__DEVICE pack<T, N> load_pack(const packed_loop &packed, int k, int64_t offset)
{
    return load_words<T, N>(packed, k, offset).elements();
}
template <typename T, int N>
static YK__DEVICE void store_pack(const packed_loop &packed, int64_t offset, const pack<T, N> &x)
{
    *yk__global<pack<T, N>>(reinterpret_cast<pack<T, N> *>(packed.loop.data[0] + offset)) = x;
}

/* Out f(In) of every element: PACKS packs are read before the first is written; those after the last whole pack go one
 * by one. */
template <typename Out, typename In, int N, typename F>
static YK__DEVICE void map_packs(const packed_loop &packed, const F &f)
{
    int64_t packs = packed.loop.total / N, tile = (int64_t)WALK_THREADS * PACKS, step = tile * gridDim.x;
    YK__LOOP for (int64_t first = tile * blockIdx.x + threadIdx.x; first < packs; first += step)
    {
        int64_t at[PACKS][2];
        pack_words<pack<In, N>> words[PACKS];
        YK__UNROLL for (int u = 0; u < PACKS; u++)
        {
            if (first + u * WALK_THREADS < packs) {
                walk_offsets<2>(packed.loop, (first + u * WALK_THREADS) * N, at[u]);
                words[u] = load_words<In, N>(packed, 1, at[u][1]);
            }
        }
        YK__UNROLL for (int u = 0; u < PACKS; u++)
        {
            pack<Out, N> y;
            if (first + u * WALK_THREADS < packs) {
                pack<In, N> x = words[u].elements();
                YK__UNROLL for (int i = 0; i < N; i++) y.of[i] = f(x.of[i]);
                store_pack<Out, N>(packed, at[u][0], y);
            }
        }
    }
    int64_t rest = packs * N + threadIdx.x;
    if (blockIdx.x == 0 && rest < packed.loop.total)
        *walk_at<Out>(packed.loop, 0, rest) = f(*walk_at<const In>(packed.loop, 1, rest));
}

/* Out f(X, Y) of every element. */
template <typename Out, typename X, typename Y, int N, typename F>
static YK__DEVICE void map_packs(const packed_loop &packed, const F &f)
{
    int64_t packs = packed.loop.total / N, step = (int64_t)WALK_THREADS * gridDim.x;
    YK__LOOP for (int64_t i = (int64_t)WALK_THREADS * blockIdx.x + threadIdx.x; i < packs; i += step)
    {
        int64_t at[3];
        walk_offsets<3>(packed.loop, i * N, at);
        pack_words<pack<X, N>> first = load_words<X, N>(packed, 1, at[1]);
        pack_words<pack<Y, N>> second = load_words<Y, N>(packed, 2, at[2]);
        pack<X, N> x = first.elements();
        pack<Y, N> y = second.elements();
        pack<Out, N> z;
        YK__UNROLL for (int k = 0; k < N; k++) z.of[k] = f(x.of[k], y.of[k]);
        store_pack<Out, N>(packed, at[0], z);
    }
    int64_t rest = packs * N + threadIdx.x;
    if (blockIdx.x == 0 && rest < packed.loop.total)
        *walk_at<Out>(packed.loop, 0, rest) =
            f(*walk_at<const X>(packed.loop, 1, rest), *walk_at<const Y>(packed.loop, 2, rest));
}

#endif
