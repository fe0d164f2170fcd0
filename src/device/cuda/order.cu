/*
 * order.cu - the slots argsort and scan, which work along one dimension. Layer: device/cuda.
 *
 * Elements become unsigned keys of the same order, as in device/cpu/reduce/order.c, which are sorted with their
 * positions. Scans: Note [How a scan is cut]; sums of f32 are kept in f64.
 */
#include "device/cuda/packs.h"

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
/* A key with the order of the numbers: NaN after everything, -0 as 0; integers with their sign bit inverted. */
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
    cuda_yoke->storage_release(memory); /* only later work on the device's queue can take it */
    return cuda_launched(device, "argsort", 2, views);
}

/* ---- scan ---- */
/*
 * Note [How a scan is cut]
 * A block takes a tile at a time. Along lines that lie in memory each thread has a pack of neighbouring elements; where
 * lines lie side by side, each lane of a warp has one of 32 lines, and each warp some neighbouring elements of all. A
 * thread adds up what it has, learns the sum of the threads before it, and goes over its elements once more. The next
 * tile is read meanwhile.
 *
 * Where there are fewer lines than keep a GPU busy, they are cut into parts: a first launch leaves the sum of each,
 * and the second one begins with those before it. Arrangement and parts follow from shapes and strides alone.
 */
enum { WARPS = THREADS / LANES, ENOUGH_UNITS = 256, MOST_BLOCKS = 1024, LEAST_TILES = 4 };

/* Elements of a thread. */
template <typename E, bool COLUMNS> struct scan_tile {
    enum { V = PACK_BYTES / sizeof(typename E::stored), HELD = COLUMNS ? 4 * V : V };
    enum { MEMBERS = COLUMNS ? (int)WARPS : (int)THREADS, LENGTH = MEMBERS * HELD, LINES = COLUMNS ? (int)LANES : 1 };
};

typedef struct scan_job {
    lines l;
    int64_t parts, part; /* of a line, and the elements of one */
    void *totals;        /* (parts, lines): of each part; NULL where there is one */
    bool first;          /* launch of two */
} scan_job;

/* T: what is added up, in which integers wrap. A sum starts with -0, which changes no number. */
template <typename T, bool PRODUCT> struct scan_of {
    static YK__DEVICE T start()
    {
        return PRODUCT ? (T)1 : (T)-0.0;
    }
    static YK__DEVICE T join(T x, T y)
    {
        return PRODUCT ? x * y : x + y;
    }
};

/* Loads the thread's elements, from the line's i-th in the order of the scan on; after `end` `none`, which changes
 * nothing. */
template <typename E, bool COLUMNS, bool PACKED>
static YK__DEVICE void scan_load(const lines &l, const char *line, int64_t i, int64_t end, typename E::stored none,
                                 typename E::stored *x)
{
    typedef scan_tile<E, COLUMNS> tile;
    typedef typename E::stored stored;
    if constexpr (PACKED) {
        YK__UNROLL for (int h = 0; h < tile::HELD; h++) x[h] = none;
        if (i < end) {
            typedef const pack<stored, tile::V> packed;
            int64_t at = l.flipped ? l.length - tile::V - i : i;
            packed p = *yk__global<packed>(reinterpret_cast<packed *>(line + at * (int64_t)sizeof(stored)));
            YK__UNROLL for (int h = 0; h < tile::V; h++) x[h] = l.flipped ? p.of[tile::V - 1 - h] : p.of[h];
        }
    } else {
        YK__UNROLL for (int h = 0; h < tile::HELD; h++)
        {
            int64_t at = l.flipped ? l.length - 1 - (i + h) : i + h;
            x[h] =
                i + h < end ? *yk__global<const stored>(reinterpret_cast<const stored *>(line + at * l.step[1])) : none;
        }
    }
}

/* Stores the results of the elements, each joined with the one before; the first with s. */
template <typename E, typename T, bool PRODUCT, bool COLUMNS, bool PACKED>
static YK__DEVICE void scan_store(const lines &l, char *line, int64_t i, int64_t end, T s, const typename E::stored *x)
{
    typedef scan_tile<E, COLUMNS> tile;
    typedef typename E::stored stored;
    typedef pack<stored, tile::V> packed;
    packed p;
    YK__UNROLL for (int h = 0; h < tile::HELD; h++)
    {
        s = scan_of<T, PRODUCT>::join(s, (T)E::load(x[h]));
        stored y = E::store((typename E::number)s);
        if constexpr (PACKED) {
            p.of[h] = y;
        } else if (i + h < end) {
            int64_t at = l.flipped ? l.length - 1 - (i + h) : i + h;
            *yk__global<stored>(reinterpret_cast<stored *>(line + at * l.step[0])) = y;
        }
    }
    if constexpr (PACKED) {
        packed turned;
        YK__UNROLL for (int h = 0; h < tile::V; h++) turned.of[h] = l.flipped ? p.of[tile::V - 1 - h] : p.of[h];
        int64_t at = l.flipped ? l.length - tile::V - i : i;
        if (i < end)
            *yk__global<packed>(reinterpret_cast<packed *>(line + at * (int64_t)sizeof(stored))) = turned;
    }
}

/* The sum of x over the members before this one, and over all of them in *total. One barrier: `shared` is another half
 * each time, so that a thread that is late still reads the one before. */
template <typename T, bool PRODUCT, bool COLUMNS> static YK__DEVICE T scan_members(yk__block<T> shared, T x, T *total)
{
    typedef scan_of<T, PRODUCT> op;
    int lane = (int)threadIdx.x % LANES, warp = (int)threadIdx.x / LANES;
    T lower = op::start();
    if constexpr (!COLUMNS)
        for (int step = 1; step < LANES; step *= 2) { /* x: of 2 step lanes that both halves belong to */
            T other = __shfl_xor_sync(YK__FULL_MASK, x, step);
            if (lane & step)
                lower = op::join(other, lower);
            x = lane & step ? op::join(other, x) : op::join(x, other);
        }
    if (COLUMNS)
        shared[warp * LANES + lane] = x;
    else if (lane == 0)
        shared[warp] = x;
    __syncthreads();
    T before = op::start(), sum = op::start();
    YK__UNROLL for (int w = 0; w < WARPS; w++)
    {
        T other = shared[COLUMNS ? w * LANES + lane : w];
        if (w == warp)
            before = sum;
        sum = op::join(sum, other);
    }
    *total = sum;
    return op::join(before, lower);
}

template <typename E, typename T, bool PRODUCT, bool COLUMNS, bool PACKED>
YK__KERNEL(THREADS, COLUMNS ? 2 : 4)
scan_kernel(scan_job j)
{
    typedef scan_tile<E, COLUMNS> tile;
    typedef scan_of<T, PRODUCT> op;
    typedef typename E::stored stored;
    enum { HALF = COLUMNS ? (int)THREADS : (int)WARPS };
    YK__SHARED(T, shared);
    int member = COLUMNS ? (int)threadIdx.x / LANES : (int)threadIdx.x, turn = 0;
    int64_t lines_there = j.l.starts.total, units = (lines_there + tile::LINES - 1) / tile::LINES;
    const stored none = E::store((typename E::number)(PRODUCT ? 1 : 0));
    yk__global<T> totals(static_cast<T *>(j.totals));
    YK__LOOP for (int64_t block = blockIdx.x; block < units * j.parts; block += gridDim.x)
    {
        int64_t part = block / units, line = block % units * tile::LINES + (COLUMNS ? threadIdx.x % LANES : 0);
        int64_t begin = part * j.part, limit = begin + j.part < j.l.length ? begin + j.part : j.l.length;
        bool there = line < lines_there;
        int64_t end = there ? limit : 0;
        const char *from = j.l.starts.data[1] + (there ? walk_offset(j.l.starts, 1, line) : 0);
        char *to = j.l.starts.data[0] + (there ? walk_offset(j.l.starts, 0, line) : 0);
        T before = op::start(), share = op::start();
        if (!j.first && j.parts > 1) {
            YK__LOOP for (int64_t p = member; p < part && there; p += tile::MEMBERS) share =
                op::join(share, totals[p * lines_there + line]);
            scan_members<T, PRODUCT, COLUMNS>(shared + turn * HALF, share, &before);
            turn ^= 1;
        }
        stored next[tile::HELD], x[tile::HELD];
        scan_load<E, COLUMNS, PACKED>(j.l, from, begin + member * tile::HELD, end, none, next);
        YK__LOOP for (int64_t at = begin; at < limit; at += tile::LENGTH)
        {
            int64_t i = at + member * tile::HELD;
            YK__UNROLL for (int h = 0; h < tile::HELD; h++) x[h] = next[h];
            scan_load<E, COLUMNS, PACKED>(j.l, from, i + tile::LENGTH, end, none, next);
            T mine = op::start(), total;
            YK__UNROLL for (int h = 0; h < tile::HELD; h++) mine = op::join(mine, (T)E::load(x[h]));
            T lower = scan_members<T, PRODUCT, COLUMNS>(shared + turn * HALF, mine, &total);
            turn ^= 1;
            if (!j.first)
                scan_store<E, T, PRODUCT, COLUMNS, PACKED>(j.l, to, i, end, op::join(before, lower), x);
            before = op::join(before, total);
        }
        if (j.first && there && member == 0)
            totals[part * lines_there + line] = before;
    }
}

/* True if operand k's lines are read and written in packs of n elements. */
static bool lines_packed(const lines *l, int k, int64_t n, int64_t size)
{
    bool packed = l->step[k] == size && l->length % n == 0 && (uintptr_t)l->starts.data[k] % PACK_BYTES == 0;
    for (int d = 0; d < l->starts.ndim; d++)
        packed = packed && l->starts.stride[d][k] % (int64_t)PACK_BYTES == 0;
    return packed;
}

/* Note [How a scan is cut]: the parts of a line for so many units of `tile` elements. */
static void scan_parts(scan_job *j, int64_t units, int64_t tile)
{
    int64_t parts = j->l.length / (LEAST_TILES * tile), most = MOST_BLOCKS / units;
    parts = units >= ENOUGH_UNITS ? 1 : parts < most ? parts : most;
    if (parts < 1)
        parts = 1;
    j->part = ((j->l.length + parts - 1) / parts + tile - 1) / tile * tile;
    j->parts = (j->l.length + j->part - 1) / j->part;
}

template <typename E, typename T, bool PRODUCT>
static yk_status scan_launch(int device, scan_job *j, cudaStream_t stream)
{
    enum { LEAST_COLUMNS = 8 }; /* lines that are side by side */
    const int64_t size = sizeof(typename E::stored), (&beside)[YK__LOOP_OPERANDS] = j->l.starts.stride[0];
    bool along = j->l.step[1] == size, packed = true;
    bool columns = !along && j->l.starts.shape[0] >= LEAST_COLUMNS && beside[0] == size && beside[1] == size;
    for (int k = 0; k < 2; k++)
        packed = packed && lines_packed(&j->l, k, scan_tile<E, false>::V, size);
    int64_t wide = columns ? (int64_t)scan_tile<E, true>::LINES : 1, units = (j->l.starts.total + wide - 1) / wide;
    scan_parts(j, units, columns ? (int64_t)scan_tile<E, true>::LENGTH : (int64_t)scan_tile<E, false>::LENGTH);
    void (*kernel)(scan_job) = columns  ? scan_kernel<E, T, PRODUCT, true, false>
                               : packed ? scan_kernel<E, T, PRODUCT, false, true>
                                        : scan_kernel<E, T, PRODUCT, false, false>;
    size_t shared = 2 * (size_t)(columns ? (int)THREADS : (int)WARPS) * sizeof(T);
    yk__storage *memory = NULL;
    if (j->parts > 1) {
        size_t bytes = (size_t)(j->parts * j->l.starts.total) * sizeof(T);
        j->totals = cuda_yoke->workspace_get((yk_device){YK_CUDA, (int16_t)device}, bytes, &memory);
        if (!j->totals)
            return YK_ERR_MEMORY;
        j->first = true;
        YK__LAUNCH("scan", kernel, walk_rows(device, units * j->parts), THREADS, shared, stream, *j);
        j->first = false;
    }
    YK__LAUNCH("scan", kernel, walk_rows(device, units * j->parts), THREADS, shared, stream, *j);
    if (memory)
        cuda_yoke->storage_release(memory); /* only later work on the device's queue can take it */
    return YK_OK;
}

yk_status cuda_scan(int device, yk__scan op, const yk__view *out, const yk__view *x, int dim, bool reverse)
{
    const yk__view *views[] = {out, x};
    scan_job j;
    memset(&j, 0, sizeof(j));
    j.l = lines_of(out, x, dim, reverse);
    cudaStream_t stream = NULL;
    yk_status status = cuda_use(device, &stream);
    if (status || j.l.starts.total == 0 || j.l.length == 0)
        return status;
    bool product = op == YK__CUMPROD;
#define SCAN(E, T)                                                                                                     \
    status = product ? scan_launch<E, T, true>(device, &j, stream) : scan_launch<E, T, false>(device, &j, stream)
    switch (x->dtype) {
    case YK_F32: SCAN(element_f32, double); break;
    case YK_F64: SCAN(element_f64, double); break;
    default: SCAN(element_i64, uint64_t); break;
    }
    return status ? status : cuda_launched(device, "scan", 2, views);
}
