/*
 * index.cu - the slots index, index_put and nonzero. Layer: device/cuda.
 *
 * What is written to one element of x comes in C order. Two values reach one element only along dimensions of the index
 * tensors, where x has the stride 0, or those move. So the positions along these (the tuples) are sorted by the element
 * that they lead to; of those that lead to one, the last writes, or the first adds what all have to give.
 *
 * What no index parts is moved by packs (packs.h) where it lies side by side in x and in value, as rows do: these are
 * the elements then, for reading and for writing, which look at no value.
 *
 * An index outside its dimension goes to the error record (Note [The error record of a device]); index reads 0 there,
 * and index_put writes nothing at all.
 */
#include "device/cuda/walk.h"

#include "device/cuda/checks.h"
#include "device/cuda/elements.h"
#include "device/cuda/merge_sort.h"
#include "device/cuda/packs.h"
#include "device/cuda/sums.h"

enum { THREADS = WALK_THREADS, TENSOR_SHIFT = 56 };
static const unsigned long long NOTHING = ~0ull;

typedef struct index_job {
    int ndim, count;
    bool wrap;
    int64_t total, shape[YK_MAX_DIMS];
    char *value, *x;                                      /* value: out or value */
    int64_t value_step[YK_MAX_DIMS], x_step[YK_MAX_DIMS]; /* bytes */
    struct {
        const int64_t *data;
        int64_t size, reach; /* reach: bytes of x from one index to the next */
        int64_t step[YK_MAX_DIMS];
        int dim;
    } of[YK_MAX_DIMS];
    unsigned long long *lowest; /* tensor and position of the first index that is outside, or NOTHING */
} index_job;

/* The part of the job along some of its dimensions. */
static index_job part_of(const index_job &job, const bool *chosen, bool wanted)
{
    index_job part = job;
    part.ndim = 0;
    part.total = 1;
    for (int d = 0; d < job.ndim; d++) {
        if (chosen[d] != wanted)
            continue;
        int to = part.ndim++;
        part.total *= job.shape[d];
        part.shape[to] = job.shape[d], part.value_step[to] = job.value_step[d], part.x_step[to] = job.x_step[d];
        for (int k = 0; k < job.count; k++)
            part.of[k].step[to] = job.of[k].step[d];
    }
    return part;
}

static index_job job_of(const yk__view *x, const yk__view *value, const yk__indices *p)
{
    int64_t size = (int64_t)yk__size_of(x->dtype);
    index_job job;
    memset(&job, 0, sizeof(job));
    job.value = static_cast<char *>(value->data), job.x = static_cast<char *>(x->data);
    job.total = 1, job.count = p->count, job.wrap = p->wrap;
    for (int d = 0; d < value->ndim; d++) {
        job.total *= value->shape[d];
        if (value->shape[d] == 1)
            continue;
        int to = job.ndim++;
        job.shape[to] = value->shape[d];
        job.value_step[to] = value->stride[d] * size, job.x_step[to] = x->stride[d] * size;
        for (int k = 0; k < p->count; k++)
            job.of[k].step[to] = p->of[k].view.stride[d];
    }
    for (int k = 0; k < p->count; k++) {
        job.of[k].data = static_cast<const int64_t *>(p->of[k].view.data);
        job.of[k].size = p->of[k].size, job.of[k].reach = p->of[k].stride * size, job.of[k].dim = p->of[k].dim;
    }
    return job;
}

/* Merges neighbouring elements of `size` bytes into vectors of `wide` bytes, as the job's new elements. False, with the
 * job unchanged, if strides, alignment or the size of the last dimension do not allow it. */
static bool widen(index_job *job, int64_t size, int64_t wide)
{
    int last = job->ndim - 1;
    if (last < 0 || job->value_step[last] != size || job->x_step[last] != size || job->shape[last] * size % wide)
        return false;
    int64_t steps = (int64_t)((uintptr_t)job->value | (uintptr_t)job->x);
    for (int d = 0; d < last; d++)
        steps |= job->value_step[d] | job->x_step[d];
    for (int k = 0; k < job->count; k++) {
        if (job->of[k].step[last])
            return false;
        steps |= job->of[k].reach;
    }
    if (steps & (wide - 1))
        return false;
    job->shape[last] /= wide / size;
    job->total /= wide / size;
    job->value_step[last] = job->x_step[last] = wide;
    return true;
}

/* Merges elements into the widest vectors that the job allows; returns their bytes. */
static int64_t widest(index_job *job, int64_t size)
{
    int64_t wide = (int64_t)PACK_BYTES;
    while (wide > size && !widen(job, size, wide))
        wide /= 2;
    return wide;
}

typedef pack<uint64_t, 2> widest_word;

/* Index tensors of a job of at most MOST: of one, which most jobs have, a kernel of its own keeps what it needs in
 * registers. */
#define EACH_INDEX(k, MOST, job) for (int k = 0; k < (MOST == 1 ? 1 : (job).count); k++)

/* The offsets of element `position`: bytes from value and from x, and elements from each index tensor's first. */
template <int MOST> struct offsets {
    int64_t value, x, index[MOST];
};
template <int MOST> static YK__DEVICE offsets<MOST> offsets_of(const index_job &job, int64_t position)
{
    offsets<MOST> at = {};
    YK__LOOP for (int d = job.ndim - 1; d >= 0; d--)
    {
        int64_t c, next = walk_divide(position, job.shape[d], &c);
        position = next;
        at.value += c * job.value_step[d];
        at.x += c * job.x_step[d];
        EACH_INDEX(k, MOST, job) at.index[k] += c * job.of[k].step[d];
    }
    return at;
}

/* Puts the indices in the place of their offsets. */
template <int MOST> static YK__DEVICE void read_indices(const index_job &job, offsets<MOST> *at)
{
    EACH_INDEX(k, MOST, job) at->index[k] = yk__global<const int64_t>(job.of[k].data)[at->index[k]];
}

/* Adds the offsets that the indices lead to; false, with the record's number noted, where one is outside. */
template <int MOST> static YK__DEVICE bool follow(const index_job &job, int64_t position, offsets<MOST> *at)
{
    EACH_INDEX(k, MOST, job)
    {
        int64_t v = at->index[k], size = job.of[k].size;
        if (job.wrap && v < 0)
            v += size;
        if (v < 0 || v >= size) {
            yk__atomic_min(yk__global<unsigned long long>(job.lowest),
                           (unsigned long long)k << TENSOR_SHIFT | (unsigned long long)position);
            return false;
        }
        at->x += v * job.of[k].reach;
    }
    return true;
}

/* Brings the first index that was outside to the device's record. */
YK__KERNEL(1) record_kernel(index_job job, const char *name, struct cuda_record *to)
{
    yk__global<struct cuda_record> record(to);
    unsigned long long lowest = *yk__global<unsigned long long>(job.lowest);
    if (lowest == NOTHING || record->check != 0)
        return;
    int k = (int)(lowest >> TENSOR_SHIFT);
    offsets<YK_MAX_DIMS> at = offsets_of<YK_MAX_DIMS>(job, (int64_t)(lowest & ((1ull << TENSOR_SHIFT) - 1)));
    record->check = CUDA_CHECK_INDEX;
    record->row = job.of[k].dim;
    record->value = yk__global<const int64_t>(job.of[k].data)[at.index[k]];
    record->bound = job.of[k].size;
    record->name = name;
}

/* ---- index ---- */
/* Those behind the last element do as the last one, and write nothing. */
template <typename T, int MOST> YK__KERNEL(THREADS) read_kernel(index_job job)
{
    enum { AT_ONCE = MOST == 1 ? 4 : 1 }; /* elements whose loads are under way together */
    int64_t tile = (int64_t)THREADS * AT_ONCE;
    YK__LOOP for (int64_t first = tile * blockIdx.x + threadIdx.x; first < job.total; first += tile * gridDim.x)
    {
        offsets<MOST> at[AT_ONCE];
        T x[AT_ONCE];
        YK__UNROLL for (int u = 0; u < AT_ONCE; u++)
        {
            int64_t i = first + u * THREADS;
            at[u] = offsets_of<MOST>(job, i < job.total ? i : job.total - 1);
        }
        YK__UNROLL for (int u = 0; u < AT_ONCE; u++) read_indices(job, &at[u]);
        YK__UNROLL for (int u = 0; u < AT_ONCE; u++)
        {
            int64_t i = first + u * THREADS;
            x[u] = T();
            if (follow(job, i < job.total ? i : job.total - 1, &at[u]))
                x[u] = *yk__global<const T>(reinterpret_cast<const T *>(job.x + at[u].x));
        }
        YK__UNROLL for (int u = 0; u < AT_ONCE; u++) if (first + u * THREADS < job.total) *
            yk__global<T>(reinterpret_cast<T *>(job.value + at[u].value)) = x[u];
    }
}
template <typename T> static void read(int device, const index_job &job, const char *name, cudaStream_t stream)
{
    void (*kernel)(index_job) = job.count == 1 ? read_kernel<T, 1> : read_kernel<T, YK_MAX_DIMS>;
    YK__LAUNCH(name, kernel, walk_blocks(device, job.total), THREADS, 0, stream, job);
}

/* Takes memory for the call, of which the first number is job->lowest. */
static yk_status begin(int device, index_job *job, size_t more, cudaStream_t *stream, yk__storage **memory, void **rest)
{
    enum { FIRST = 64 };
    yk_device where = {YK_CUDA, (int16_t)device};
    yk_status status = cuda_use(device, stream);
    if (status)
        return status;
    char *got = (char *)cuda_yoke->workspace_get(where, FIRST + more, memory);
    if (!got)
        return YK_ERR_MEMORY;
    job->lowest = reinterpret_cast<unsigned long long *>(got);
    *rest = got + FIRST;
    cudaError_t code = cudaMemsetAsync(got, 0xFF, sizeof(*job->lowest), *stream);
    return code ? cuda_failed(device, code, "cudaMemsetAsync") : YK_OK;
}

yk_status cuda_index(int device, const yk__view *out, const yk__view *x, const yk__indices *p)
{
    const yk__view *views[] = {out, x};
    index_job job = job_of(x, out, p);
    cudaStream_t stream = NULL;
    yk__storage *memory = NULL;
    void *rest;
    if (job.total == 0)
        return YK_OK;
    yk_status status = begin(device, &job, 0, &stream, &memory, &rest);
    if (!status) {
        int64_t wide = widest(&job, (int64_t)yk__size_of(x->dtype));
        switch (wide) {
        case 16: read<widest_word>(device, job, p->name, stream); break;
        case 1: read<uint8_t>(device, job, p->name, stream); break;
        case 2: read<uint16_t>(device, job, p->name, stream); break;
        case 4: read<uint32_t>(device, job, p->name, stream); break;
        default: read<uint64_t>(device, job, p->name, stream); break;
        }
        YK__LAUNCH(p->name, record_kernel, 1, 1, 0, stream, job, p->name, cuda_record_of(device));
        cuda_checks_queued(device);
    }
    if (memory)
        cuda_yoke->storage_release(memory); /* only later work on the device's queue can take it */
    return status ? status : cuda_launched(device, p->name, 2, views);
}

/* ---- index_put ---- */
/* An offset, in bytes from x's first element, as a key: views with negative strides have such before it. */
static YK__DEVICE uint64_t key_of_offset(int64_t offset)
{
    return (uint64_t)offset ^ ((uint64_t)1 << 63);
}
static YK__DEVICE int64_t offset_of_key(uint64_t key)
{
    return (int64_t)(key ^ ((uint64_t)1 << 63));
}

/* The element that each tuple leads to. */
YK__KERNEL(THREADS) tuple_kernel(index_job tuples, sort_entry *entries)
{
    yk__global<sort_entry> to(entries);
    int64_t step = (int64_t)THREADS * gridDim.x;
    YK__LOOP for (int64_t i = (int64_t)THREADS * blockIdx.x + threadIdx.x; i < tuples.total; i += step)
    {
        offsets<YK_MAX_DIMS> at = offsets_of<YK_MAX_DIMS>(tuples, i);
        read_indices(tuples, &at);
        follow(tuples, i, &at);
        sort_entry e = {key_of_offset(at.x), i};
        to[i] = e;
    }
}

struct put_f32 {
    typedef float T;
    static YK__DEVICE T add(T s, T v)
    {
        return s + v;
    }
};
struct put_f64 {
    typedef double T;
    static YK__DEVICE T add(T s, T v)
    {
        return s + v;
    }
};
template <typename Word> struct put_whole {
    typedef Word T;
    static YK__DEVICE T add(T s, T v)
    {
        return (T)(s + v);
    }
};
struct put_widest {
    typedef widest_word T;
    static YK__DEVICE T add(T, T v) /* never called */
    {
        return v;
    }
};
struct put_bool {
    typedef uint8_t T;
    static YK__DEVICE T add(T s, T v)
    {
        return s || v;
    }
};

template <typename Put, bool ACCUMULATE>
YK__KERNEL(THREADS)
write_kernel(index_job tuples, index_job fixed, const sort_entry *entries)
{
    typedef typename Put::T T;
    yk__global<const sort_entry> sorted(entries);
    int64_t total = tuples.total * fixed.total, step = (int64_t)THREADS * gridDim.x;
    if (*yk__global<unsigned long long>(tuples.lowest) != NOTHING)
        return;
    YK__LOOP for (int64_t i = (int64_t)THREADS * blockIdx.x + threadIdx.x; i < total; i += step)
    {
        int64_t rest, s = walk_divide(i, fixed.total, &rest);
        uint64_t key = sorted[s].key;
        if (ACCUMULATE ? s > 0 && sorted[s - 1].key == key : s + 1 < tuples.total && sorted[s + 1].key == key)
            continue;
        offsets<1> own = offsets_of<1>(fixed, rest);
        yk__global<T> to(reinterpret_cast<T *>(tuples.x + offset_of_key(key) + own.x));
        T result = *to;
        YK__LOOP for (; s < tuples.total && sorted[s].key == key; s++)
        {
            const char *from = tuples.value + offsets_of<1>(tuples, sorted[s].at).value + own.value;
            T v = *yk__global<const T>(reinterpret_cast<const T *>(from));
            result = ACCUMULATE ? Put::add(result, v) : v;
        }
        *to = result;
    }
}

template <typename Put>
static void write(int device, const index_job &tuples, const index_job &fixed, const sort_entry *sorted,
                  bool accumulate, const char *name, cudaStream_t stream)
{
    void (*kernel)(index_job, index_job, const sort_entry *) =
        accumulate ? write_kernel<Put, true> : write_kernel<Put, false>;
    YK__LAUNCH(name, kernel, walk_blocks(device, tuples.total * fixed.total), THREADS, 0, stream, tuples, fixed,
               sorted);
}

yk_status cuda_index_put(int device, const yk__view *x, const yk__view *value, const yk__indices *p, bool accumulate)
{
    const yk__view *views[] = {x, value};
    index_job job = job_of(x, value, p);
    int64_t size = (int64_t)yk__size_of(x->dtype), wide = accumulate ? size : widest(&job, size);
    bool moves[YK_MAX_DIMS] = {false};
    for (int d = 0; d < job.ndim; d++) {
        moves[d] = job.x_step[d] == 0; /* also where the index tensors are expanded */
        for (int k = 0; k < job.count; k++)
            moves[d] |= job.of[k].step[d] != 0;
    }
    if (job.total == 0)
        return YK_OK;
    cudaStream_t stream = NULL;
    yk__storage *memory = NULL;
    void *rest = NULL;
    index_job tuples = part_of(job, moves, true), fixed = part_of(job, moves, false);
    yk_status status = begin(device, &tuples, 2 * (size_t)tuples.total * sizeof(sort_entry), &stream, &memory, &rest);
    if (!status) {
        sort_entry *entries = (sort_entry *)rest;
        YK__LAUNCH(p->name, tuple_kernel, walk_blocks(device, tuples.total), THREADS, 0, stream, tuples, entries);
        YK__LAUNCH(p->name, record_kernel, 1, 1, 0, stream, tuples, p->name, cuda_record_of(device));
        cuda_checks_queued(device);
        entries = merge_sort(device, p->name, entries, entries + tuples.total, 1, tuples.total, stream);
#define WRITE(Put) write<Put>(device, tuples, fixed, entries, accumulate, p->name, stream)
        if (accumulate && x->dtype == YK_F32)
            WRITE(put_f32);
        else if (accumulate && x->dtype == YK_F64)
            WRITE(put_f64);
        else if (accumulate && x->dtype == YK_BOOL)
            WRITE(put_bool);
        else if (wide == 16)
            WRITE(put_widest);
        else if (wide == 8)
            WRITE(put_whole<uint64_t>);
        else if (wide == 4)
            WRITE(put_whole<uint32_t>);
        else if (wide == 2)
            WRITE(put_whole<uint16_t>);
        else
            WRITE(put_whole<uint8_t>);
    }
    if (memory)
        cuda_yoke->storage_release(memory); /* only later work on the device's queue can take it */
    return status ? status : cuda_launched(device, p->name, 2, views);
}

/* ---- nonzero ---- */
/* counts[block]: of the true elements of its piece; then, by sum_kernel, of those of the pieces before it. */
YK__KERNEL(THREADS) count_kernel(yk__loop loop, int64_t *all, int64_t piece)
{
    yk__global<int64_t> counts(all);
    YK__SHARED(int64_t, shared);
    int64_t from = piece * blockIdx.x, to = from + piece < loop.total ? from + piece : loop.total, mine = 0, total;
    YK__LOOP for (int64_t i = from + threadIdx.x; i < to; i += THREADS) mine +=
        *walk_at<const uint8_t>(loop, 0, i) != 0;
    block_scan<int64_t>(shared, mine, &total);
    if (threadIdx.x == 0)
        counts[blockIdx.x] = total;
}

YK__KERNEL(THREADS) sum_kernel(int64_t *all, int64_t pieces)
{
    YK__SHARED(int64_t, shared);
    yk__global<int64_t> counts(all);
    int64_t before = 0;
    YK__LOOP for (int64_t first = 0; first < pieces; first += THREADS)
    {
        int64_t i = first + threadIdx.x, x = i < pieces ? counts[i] : 0, total;
        int64_t lower = block_scan<int64_t>(shared, x, &total);
        if (i < pieces)
            counts[i] = before + lower;
        before += total;
    }
    if (threadIdx.x == 0)
        counts[pieces] = before;
}

YK__KERNEL(THREADS) found_kernel(yk__loop loop, yk__view x, yk__view out, const int64_t *counts, int64_t piece)
{
    YK__SHARED(int64_t, shared);
    int64_t from = piece * blockIdx.x, to = from + piece < loop.total ? from + piece : loop.total;
    int64_t before = yk__global<const int64_t>(counts)[blockIdx.x];
    YK__LOOP for (int64_t first = from; first < to; first += THREADS)
    {
        int64_t i = first + threadIdx.x, found = i < to && *walk_at<const uint8_t>(loop, 0, i) != 0, total;
        int64_t row = before + block_scan<int64_t>(shared, found, &total);
        before += total;
        if (!found)
            continue;
        YK__LOOP for (int d = x.ndim - 1; d >= 0; d--)
        {
            put<element_i64>(out, row * out.stride[0] + d * out.stride[1], i % x.shape[d]);
            i /= x.shape[d];
        }
    }
}

yk_status cuda_nonzero(int device, const yk__view *x, int64_t *count, const yk__view *out)
{
    enum { LEAST_PIECE = 8 * THREADS, MOST_PIECES = 4096 };
    const yk__view *views[] = {x};
    yk__loop loop;
    yk__loop_init(&loop, 1, views, true);
    *count = 0;
    if (loop.total == 0)
        return YK_OK;
    int64_t piece = (loop.total + MOST_PIECES - 1) / MOST_PIECES;
    piece = piece > LEAST_PIECE ? piece : (int64_t)LEAST_PIECE;
    int64_t pieces = (loop.total + piece - 1) / piece;
    cudaStream_t stream = NULL;
    yk__storage *memory = NULL;
    yk_device where = {YK_CUDA, (int16_t)device};
    yk_status status = cuda_use(device, &stream);
    if (status)
        return status;
    int64_t *counts = (int64_t *)cuda_yoke->workspace_get(where, (size_t)(pieces + 1) * sizeof(int64_t), &memory);
    if (!counts)
        return YK_ERR_MEMORY;
    size_t shared = THREADS * sizeof(int64_t);
    YK__LAUNCH("nonzero", count_kernel, (unsigned)pieces, THREADS, shared, stream, loop, counts, piece);
    YK__LAUNCH("nonzero", sum_kernel, 1, THREADS, shared, stream, counts, pieces);
    if (out)
        YK__LAUNCH("nonzero", found_kernel, (unsigned)pieces, THREADS, shared, stream, loop, *x, *out,
                   (const int64_t *)counts, piece);
    status = cuda_launched(device, "nonzero", 1, views);
    if (!status)
        status = cuda_yoke->graph_forbid(where, "the host waits for the size of the result",
                                         "take a form of fixed size, as yk_where or yk_masked_fill");
    if (!status)
        status = cuda_download(device, count, counts + pieces, sizeof(*count));
    cuda_yoke->storage_release(memory); /* only later work on the device's queue can take it */
    return status;
}
