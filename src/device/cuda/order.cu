/*
 * order.cu - the slots argsort and scan: what goes along one dimension. Layer: device/cuda.
 *
 * Elements become unsigned keys of the same order, as in device/cpu/order.c, which are sorted with their positions. A
 * scan takes a line in a block, a tile of its threads at a time, each with the sum of those before; sums of f32 are
 * kept in f64.
 */
#include "device/cuda/walk.h"

#include "device/cuda/elements.h"
#include "device/cuda/merge_sort.h"
#include "device/cuda/sums.h"

enum { THREADS = WALK_THREADS };

/* Operand 0 (out) and 1 (x) at the beginning of each line; its elements are step[k] bytes apart. */
typedef struct lines {
    yk__loop starts;
    int64_t length, step[2];
    bool flipped; /* descending, or from the end */
} lines;

static lines lines_of(const yk__view *out, const yk__view *x, int dim, bool flipped)
{
    yk__view first[2] = {*out, *x};
    const yk__view *views[] = {&first[0], &first[1]};
    lines l;
    memset(&l, 0, sizeof(l));
    l.length = 1;
    l.flipped = flipped;
    if (x->ndim) {
        l.length = x->shape[dim];
        l.step[0] = out->stride[dim] * (int64_t)yk__size_of(out->dtype);
        l.step[1] = x->stride[dim] * (int64_t)yk__size_of(x->dtype);
        first[0].shape[dim] = first[1].shape[dim] = 1;
    }
    yk__loop_init(&l.starts, 2, views, false);
    return l;
}

template <typename T> static YK__DEVICE yk__global<T> line_at(const lines &l, int k, int64_t line, int64_t i)
{
    return yk__global<T>(reinterpret_cast<T *>(l.starts.data[k] + walk_offset(l.starts, k, line) + i * l.step[k]));
}

/* ---- argsort ---- */
/* NaN behind everything, -0 as 0; integers with their sign bit turned. */
static YK__DEVICE uint64_t key_of(float x)
{
    if (x != x)
        return UINT32_MAX;
    uint32_t bits = yk__bits_of(x == 0 ? 0.0f : x);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}
static YK__DEVICE uint64_t key_of(double x)
{
    if (x != x)
        return UINT64_MAX;
    uint64_t bits = yk__bits_of_double(x == 0 ? 0.0 : x);
    return bits >> 63 ? ~bits : bits | ((uint64_t)1 << 63);
}
static YK__DEVICE uint64_t key_of(int64_t x)
{
    return (uint64_t)x ^ ((uint64_t)1 << 63);
}

template <typename E> YK__KERNEL(THREADS) key_kernel(lines l, sort_entry *entries, uint64_t flip)
{
    int64_t total = l.starts.total * l.length, step = (int64_t)THREADS * gridDim.x;
    yk__global<sort_entry> to(entries);
    YK__LOOP for (int64_t i = (int64_t)THREADS * blockIdx.x + threadIdx.x; i < total; i += step)
    {
        int64_t line = i / l.length, k = i % l.length;
        sort_entry e = {key_of(E::load(*line_at<const typename E::stored>(l, 1, line, k))) ^ flip, k};
        to[i] = e;
    }
}

/* The first `count` of each line. */
YK__KERNEL(THREADS) position_kernel(lines l, int64_t count, const sort_entry *entries)
{
    int64_t total = l.starts.total * count, step = (int64_t)THREADS * gridDim.x;
    yk__global<const sort_entry> from(entries);
    YK__LOOP for (int64_t i = (int64_t)THREADS * blockIdx.x + threadIdx.x; i < total; i += step) *
        line_at<int64_t>(l, 0, i / count, i % count) = from[i / count * l.length + i % count].at;
}

yk_status cuda_argsort(int device, const yk__view *index, const yk__view *x, int dim, bool descending)
{
    const yk__view *views[] = {index, x};
    lines l = lines_of(index, x, dim, descending);
    int64_t total = l.starts.total * l.length, count = x->ndim ? index->shape[dim] : 1;
    uint64_t flip = descending ? (x->dtype == YK_F32 ? UINT32_MAX : UINT64_MAX) : 0;
    cudaStream_t stream = NULL;
    yk__storage *memory = NULL;
    yk_device where = {YK_CUDA, (int16_t)device};
    yk_status status = cuda_use(device, &stream);
    if (status || total == 0 || count == 0)
        return status;
    sort_entry *entries =
        (sort_entry *)cuda_yoke->workspace_get(where, 2 * (size_t)total * sizeof(sort_entry), &memory);
    if (!entries)
        return YK_ERR_MEMORY;
    unsigned blocks = walk_blocks(device, total);
#define KEYS(E) YK__LAUNCH("argsort", key_kernel<E>, blocks, THREADS, 0, stream, l, entries, flip)
    switch (x->dtype) {
    case YK_F32: KEYS(element_f32); break;
    case YK_F64: KEYS(element_f64); break;
    case YK_I64: KEYS(element_i64); break;
    case YK_I32: KEYS(element_i32); break;
    case YK_BOOL: KEYS(element_bool); break;
    default: KEYS(element_u8); break;
    }
    const sort_entry *sorted =
        merge_sort(device, "argsort", entries, entries + total, l.starts.total, l.length, stream);
    YK__LAUNCH("argsort", position_kernel, blocks, THREADS, 0, stream, l, count, sorted);
    cuda_yoke->storage_release(memory); /* for those behind on the device's queue */
    return cuda_launched(device, "argsort", 2, views);
}

/* ---- scan ---- */
/* The running product over the threads of a block, as block_scan's sum. */
template <typename T> static YK__DEVICE T block_products(yk__block<T> shared, T x, T *total)
{
    int thread = (int)threadIdx.x;
    __syncthreads();
    shared[thread] = x;
    __syncthreads();
    for (int step = 1; step < THREADS; step *= 2) {
        T before = thread >= step ? shared[thread - step] : (T)1;
        __syncthreads();
        x *= before;
        shared[thread] = x;
        __syncthreads();
    }
    *total = shared[THREADS - 1];
    return thread > 0 ? shared[thread - 1] : (T)1;
}

/* T: what is added up, in which integers wrap. */
template <typename E, typename T, bool PRODUCT> YK__KERNEL(THREADS) scan_kernel(lines l)
{
    typedef typename E::stored stored;
    YK__SHARED(T, shared);
    YK__LOOP for (int64_t line = blockIdx.x; line < l.starts.total; line += gridDim.x)
    {
        T before = PRODUCT ? 1 : 0;
        YK__LOOP for (int64_t first = 0; first < l.length; first += THREADS)
        {
            int64_t i = first + threadIdx.x, at = l.flipped ? l.length - 1 - i : i;
            T x = PRODUCT ? 1 : 0, total;
            if (i < l.length)
                x = (T)E::load(*line_at<const stored>(l, 1, line, at));
            T lower = PRODUCT ? block_products<T>(shared, x, &total) : block_scan<T>(shared, x, &total);
            if (i < l.length)
                *line_at<stored>(l, 0, line, at) =
                    E::store((typename E::number)(PRODUCT ? before * (lower * x) : before + (lower + x)));
            before = PRODUCT ? before * total : before + total;
        }
    }
}

yk_status cuda_scan(int device, yk__scan op, const yk__view *out, const yk__view *x, int dim, bool reverse)
{
    const yk__view *views[] = {out, x};
    lines l = lines_of(out, x, dim, reverse);
    cudaStream_t stream = NULL;
    yk_status status = cuda_use(device, &stream);
    if (status || l.starts.total == 0 || l.length == 0)
        return status;
    bool product = op == YK__CUMPROD;
    void (*kernel)(lines) = NULL;
#define CHOOSE(E, T) kernel = product ? scan_kernel<E, T, true> : scan_kernel<E, T, false>
    switch (x->dtype) {
    case YK_F32: CHOOSE(element_f32, double); break;
    case YK_F64: CHOOSE(element_f64, double); break;
    default: CHOOSE(element_i64, uint64_t); break;
    }
    YK__LAUNCH("scan", kernel, walk_rows(device, l.starts.total), THREADS, THREADS * sizeof(double), stream, l);
    return cuda_launched(device, "scan", 2, views);
}
