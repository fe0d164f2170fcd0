/*
 * lookup.cu - the slots embedding and embedding_backward. Layer: device/cuda.
 *
 * The gradient of a row of the table is added up in the order of the indices, as on the CPU: they are sorted with their
 * positions (merge_sort.h), and the first of equals adds the rows of all. An index outside the table is left out (Note
 * [The error record of a device]). Rows that are aligned are read and written in packs (packs.h).
 */
#include "device/cuda/packs.h"

#include "device/cuda/checks.h"
#include "device/cuda/indices.h"
#include "device/cuda/merge_sort.h"

/* AT_ONCE: rows that a thread reads before it uses the first. */
enum { THREADS = WALK_THREADS, AT_ONCE = 8 };

/* T: an element, or a pack of them, of which the views' strides then are multiples. */
template <typename T> YK__KERNEL(THREADS) gather_kernel(yk__view out, yk__view weight, yk__view index)
{
    int64_t width = out.shape[1], total = out.shape[0] * width, tile = (int64_t)THREADS * PACKS;
    yk__global<T> to(static_cast<T *>(out.data));
    yk__global<const T> from(static_cast<const T *>(weight.data));
    YK__LOOP for (int64_t first = tile * blockIdx.x + threadIdx.x; first < total; first += tile * gridDim.x)
    {
        int64_t m[PACKS], d[PACKS], row[PACKS];
        T x[PACKS];
        YK__UNROLL for (int u = 0; u < PACKS; u++)
        {
            int64_t i = first + u * THREADS;
            m[u] = total <= UINT32_MAX ? (uint32_t)i / (uint32_t)width : i / width;
            d[u] = i - m[u] * width;
            row[u] = i < total ? index_at(index, m[u]) : -1;
        }
        YK__UNROLL for (int u = 0; u < PACKS; u++)
        {
            x[u] = T();
            if (row[u] >= 0 && row[u] < weight.shape[0])
                x[u] = from[row[u] * weight.stride[0] + d[u] * weight.stride[1]];
        }
        YK__UNROLL for (int u = 0; u < PACKS; u++) if (first + u * THREADS < total)
            to[m[u] * out.stride[0] + d[u] * out.stride[1]] = x[u];
    }
}

/* True if rows of a matrix can be read n elements at a time. */
static bool packs_of_rows(const yk__view &v, int64_t n)
{
    return v.stride[1] == 1 && v.shape[1] % n == 0 && v.stride[0] % n == 0 &&
           (uintptr_t)v.data % (uintptr_t)(n * (int64_t)yk__size_of(v.dtype)) == 0;
}

/* The same matrix in packs of n. */
static yk__view in_packs(const yk__view &v, int64_t n)
{
    yk__view p = v;
    p.shape[1] /= n, p.stride[0] /= n;
    return p;
}

YK__KERNEL(THREADS) index_key_kernel(yk__view index, sort_entry *entries)
{
    yk__global<sort_entry> to(entries);
    int64_t step = (int64_t)THREADS * gridDim.x;
    YK__LOOP for (int64_t i = (int64_t)THREADS * blockIdx.x + threadIdx.x; i < index.shape[0]; i += step)
    {
        sort_entry e = {(uint64_t)index_at(index, i), i};
        to[i] = e;
    }
}

/* N columns of a row's gradient are a thread's; `entries` are sorted. */
template <typename E, int N>
YK__KERNEL(THREADS)
scatter_kernel(yk__view gweight, yk__view gout, const sort_entry *entries, int64_t count, int64_t padding)
{
    typedef typename E::stored stored;
    typedef typename E::number number;
    yk__global<const sort_entry> sorted(entries);
    int64_t width = gout.shape[1], column_tiles = (width + THREADS * N - 1) / (THREADS * N);
    YK__LOOP for (int64_t i = blockIdx.x; i < count * column_tiles; i += gridDim.x)
    {
        int64_t s = i / column_tiles, d = (i % column_tiles * THREADS + threadIdx.x) * N, row = (int64_t)sorted[s].key;
        if (row < 0 || row >= gweight.shape[0] || row == padding || (s > 0 && (int64_t)sorted[s - 1].key == row) ||
            d >= width)
            continue;
        number sum[N];
        for (int k = 0; k < N; k++)
            sum[k] = 0;
        YK__LOOP for (bool more = true; more; s += AT_ONCE)
        {
            pack_words<pack<stored, N>> read[AT_ONCE];
            bool same[AT_ONCE];
            YK__UNROLL for (int u = 0; u < AT_ONCE; u++)
            {
                same[u] = s + u < count && (int64_t)sorted[s + u].key == row;
                if (same[u])
                    read[u].load(reinterpret_cast<const char *>(static_cast<const stored *>(gout.data) +
                                                                sorted[s + u].at * gout.stride[0] +
                                                                d * gout.stride[1]));
            }
            YK__UNROLL for (int u = 0; u < AT_ONCE; u++)
            {
                if (!same[u])
                    continue;
                pack<stored, N> x = read[u].elements();
                for (int k = 0; k < N; k++)
                    sum[k] += E::load(x.of[k]);
            }
            more = same[AT_ONCE - 1];
        }
        pack<stored, N> result;
        for (int k = 0; k < N; k++)
            result.of[k] = E::store(sum[k]);
        *yk__global<pack<stored, N>>(reinterpret_cast<pack<stored, N> *>(
            static_cast<stored *>(gweight.data) + row * gweight.stride[0] + d * gweight.stride[1])) = result;
    }
}

yk_status cuda_embedding(int device, const yk__view *out, const yk__view *weight, const yk__view *index)
{
    const yk__view *views[] = {out, weight, index};
    cudaStream_t stream = NULL;
    yk_status status = cuda_check_indices(device, CUDA_CHECK_EMBEDDING, index, weight->shape[0], INT64_MIN);
    if (!status)
        status = cuda_use(device, &stream);
    int64_t total = out->shape[0] * out->shape[1];
    if (status || total == 0)
        return status;
    size_t size = yk__size_of(out->dtype);
    int64_t n = (int64_t)(PACK_BYTES / size);
    bool packs = packs_of_rows(*out, n) && packs_of_rows(*weight, n);
    void (*kernel)(yk__view, yk__view, yk__view) = packs       ? gather_kernel<pack<uint32_t, 4>>
                                                   : size == 2 ? gather_kernel<uint16_t>
                                                   : size == 4 ? gather_kernel<uint32_t>
                                                               : gather_kernel<uint64_t>;
    n = packs ? n : 1;
    YK__LAUNCH("embedding", kernel, pack_blocks(device, total, n * PACKS), THREADS, 0, stream, in_packs(*out, n),
               in_packs(*weight, n), *index);
    return cuda_launched(device, "embedding", 3, views);
}

yk_status cuda_embedding_backward(int device, const yk__view *gweight, const yk__view *gout, const yk__view *index,
                                  int64_t padding_idx)
{
    const yk__view *views[] = {gweight, gout, index};
    cudaStream_t stream = NULL;
    yk_status status = cuda_check_indices(device, CUDA_CHECK_EMBEDDING, index, gweight->shape[0], INT64_MIN);
    if (!status)
        status = cuda_fill(device, gweight, 0);
    if (!status)
        status = cuda_use(device, &stream);
    int64_t count = index->shape[0], width = gout->shape[1];
    if (status || count * width == 0)
        return status;
    yk__storage *memory = NULL;
    yk_device where = {YK_CUDA, (int16_t)device};
    sort_entry *entries =
        (sort_entry *)cuda_yoke->workspace_get(where, 2 * (size_t)count * sizeof(sort_entry), &memory);
    if (!entries)
        return YK_ERR_MEMORY;
    YK__LAUNCH("embedding_backward", index_key_kernel, walk_blocks(device, count), THREADS, 0, stream, *index, entries);
    entries = merge_sort(device, "embedding_backward", entries, entries + count, 1, count, stream);
    const int64_t n = gout->dtype == YK_F64 ? 2 : 4;
    bool packs = packs_of_rows(*gout, n) && packs_of_rows(*gweight, n);
    int64_t column_tiles = packs ? (width + THREADS * n - 1) / (THREADS * n) : (width + THREADS - 1) / THREADS;
#define SCATTER(E)                                                                                                     \
    do {                                                                                                               \
        void (*kernel)(yk__view, yk__view, const sort_entry *, int64_t, int64_t) = packs ? scatter_kernel < E,         \
                                                                        sizeof(E::stored) == 8 ? 2 : 4 >               \
            : scatter_kernel<E, 1>;                                                                                    \
        YK__LAUNCH("embedding_backward", kernel, walk_rows(device, count *column_tiles), THREADS, 0, stream, *gweight, \
                   *gout, (const sort_entry *)entries, count, padding_idx);                                            \
    } while (0)
    FLOATING(gout->dtype, SCATTER);
    cuda_yoke->storage_release(memory); /* only later work on the device's queue can take it */
    return cuda_launched(device, "embedding_backward", 3, views);
}
