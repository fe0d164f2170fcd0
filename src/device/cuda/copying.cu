/*
 * copying.cu - the slots copy (any dtype and strides to any other) and fill. Layer: device/cuda.
 *
 * Casts are as device/convert.h says. An element is read by its dtype into a float, double, i64 or u8, and written from
 * that by the other's; the choice of what is written is the same for all threads and costs nothing beside the memory.
 * The casts of training (f32 from and to f16 and bf16, images of bytes) have kernels of their own that read packs.
 *
 * A copy that transposes (one operand is dense along one of them, the other along another) goes through shared memory
 * in squares of TILE x TILE elements, so that it reads and writes neighbours.
 */
#include "device/cuda/packs.h"

#include "device/cuda/elements.h"

static YK__DEVICE int64_t to_i64(float x)
{
    return YK__TO_I64(x);
}
static YK__DEVICE int64_t to_i64(double x)
{
    return YK__TO_I64(x);
}
static YK__DEVICE int64_t to_i64(int64_t x)
{
    return x;
}
static YK__DEVICE int32_t to_i32(float x)
{
    return YK__TO_I32(x);
}
static YK__DEVICE int32_t to_i32(double x)
{
    return YK__TO_I32(x);
}
static YK__DEVICE int32_t to_i32(int64_t x)
{
    return (int32_t)x;
}

template <typename T> static YK__DEVICE void store(const yk__loop &loop, yk_dtype to, int64_t position, T x)
{
    switch (to) {
    case YK_F64: *walk_at<double>(loop, 0, position) = (double)x; break;
    case YK_F16: *walk_at<uint16_t>(loop, 0, position) = element_f16::store((float)x); break;
    case YK_BF16: *walk_at<uint16_t>(loop, 0, position) = element_bf16::store((float)x); break;
    case YK_I64: *walk_at<int64_t>(loop, 0, position) = to_i64(x); break;
    case YK_I32: *walk_at<int32_t>(loop, 0, position) = to_i32(x); break;
    case YK_U8: *walk_at<uint8_t>(loop, 0, position) = (uint8_t)to_i32(x); break;
    case YK_BOOL: *walk_at<uint8_t>(loop, 0, position) = x != 0; break;
    default: *walk_at<float>(loop, 0, position) = (float)x; break;
    }
}

template <typename From> YK__KERNEL(WALK_THREADS) cast_kernel(yk__loop loop, yk_dtype to)
{
    int64_t step = (int64_t)WALK_THREADS * gridDim.x;
    YK__LOOP for (int64_t i = (int64_t)WALK_THREADS * blockIdx.x + threadIdx.x; i < loop.total; i += step)
        store(loop, to, i, From::load(*walk_at<const typename From::stored>(loop, 1, i)));
}

/* Copies bits. A thread takes four elements, a block's width apart, and reads them all before it writes: so neighbours
 * read neighbours, and more reads are under way to hide the memory's latency. */
template <typename T> YK__KERNEL(WALK_THREADS) copy_kernel(yk__loop loop)
{
    int64_t tile = WALK_THREADS * WALK_ITEMS, step = tile * gridDim.x;
    YK__LOOP for (int64_t first = tile * blockIdx.x + threadIdx.x; first < loop.total; first += step)
    {
        T x[WALK_ITEMS];
        for (int i = 0; i < WALK_ITEMS; i++)
            if (first + i * WALK_THREADS < loop.total)
                x[i] = *walk_at<const T>(loop, 1, first + i * WALK_THREADS);
        for (int i = 0; i < WALK_ITEMS; i++)
            if (first + i * WALK_THREADS < loop.total)
                *walk_at<T>(loop, 0, first + i * WALK_THREADS) = x[i];
    }
}

template <typename From, typename To> struct cast {
    YK__DEVICE typename To::stored operator()(typename From::stored x) const
    {
        return To::store((typename To::number)From::load(x));
    }
};
template <typename From, typename To> YK__KERNEL(WALK_THREADS) cast_packs_kernel(packed_loop packed)
{
    typedef typename From::stored in;
    typedef typename To::stored out;
    map_packs<out, in, pack_of_two<in, out>::N>(packed, cast<From, To>());
}

template <typename T> struct same {
    YK__DEVICE T operator()(T x) const
    {
        return x;
    }
};
template <typename T> YK__KERNEL(WALK_THREADS) copy_packs_kernel(packed_loop packed)
{
    map_packs<T, T, pack_of<T>::N>(packed, same<T>());
}

enum { TILE = 64, TILE_ROWS = WALK_THREADS / TILE, TILE_EACH = TILE / TILE_ROWS, TILE_LEAST = 16 };

/* The copy as matrices: `out` is dense along dimension 0 of the loop, `in` along dimension `dense`; the others number
 * the matrices. */
typedef struct turned_copy {
    yk__loop loop, others; /* `others` has no dimension 0 and no `dense` */
    int dense;
    int64_t columns, rows; /* tiles along dimension 0 and along `dense` */
} turned_copy;

/* Elements from one row of a tile to the next, so that those of a column lie in different banks of 4 bytes. */
template <typename T> struct tile_pitch {
    enum { N = TILE + (sizeof(T) < 4 ? 4 / sizeof(T) : 1) };
};

template <typename T> YK__KERNEL(WALK_THREADS) turn_kernel(turned_copy c)
{
    YK__SHARED(T, tile);
    const int pitch = tile_pitch<T>::N;
    int along = (int)threadIdx.x % TILE, first = (int)threadIdx.x / TILE;
    int64_t width = c.loop.shape[0], height = c.loop.shape[c.dense], tiles = c.columns * c.rows * c.others.total;
    YK__LOOP for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x)
    {
        int64_t offset[2], x0 = t % c.columns * TILE, y0 = t / c.columns % c.rows * TILE;
        walk_offsets<2>(c.others, t / c.columns / c.rows, offset);
        T x[TILE_EACH];
        YK__UNROLL for (int i = 0; i < TILE_EACH; i++)
        {
            int64_t column = x0 + first + i * TILE_ROWS, row = y0 + along;
            if (column < width && row < height)
                x[i] = *yk__global<const T>(reinterpret_cast<const T *>(
                    c.loop.data[1] + offset[1] + column * c.loop.stride[0][1] + row * (int64_t)sizeof(T)));
        }
        __syncthreads();
        YK__UNROLL for (int i = 0; i < TILE_EACH; i++)
        {
            int64_t column = x0 + first + i * TILE_ROWS, row = y0 + along;
            if (column < width && row < height)
                tile[(first + i * TILE_ROWS) * pitch + along] = x[i];
        }
        __syncthreads();
        YK__UNROLL for (int i = 0; i < TILE_EACH; i++)
        {
            int64_t column = x0 + along, row = y0 + first + i * TILE_ROWS;
            if (column < width && row < height)
                *yk__global<T>(reinterpret_cast<T *>(c.loop.data[0] + offset[0] + column * (int64_t)sizeof(T) +
                                                     row * c.loop.stride[c.dense][0])) =
                    tile[along * pitch + first + i * TILE_ROWS];
        }
    }
}

template <typename T> YK__KERNEL(WALK_THREADS) fill_packs_kernel(packed_loop packed, T element)
{
    const int n = pack_of<T>::N;
    int64_t packs = packed.loop.total / n, step = (int64_t)WALK_THREADS * gridDim.x;
    pack<T, n> x;
    YK__UNROLL for (int k = 0; k < n; k++) x.of[k] = element;
    YK__LOOP for (int64_t i = (int64_t)WALK_THREADS * blockIdx.x + threadIdx.x; i < packs; i += step)
        store_pack<T, n>(packed, walk_offset(packed.loop, 0, i * n), x);
    int64_t rest = packs * n + threadIdx.x;
    if (blockIdx.x == 0 && rest < packed.loop.total)
        *walk_at<T>(packed.loop, 0, rest) = element;
}

template <typename T> YK__KERNEL(WALK_THREADS) fill_kernel(yk__loop loop, T element)
{
    int64_t step = (int64_t)WALK_THREADS * gridDim.x;
    YK__LOOP for (int64_t i = (int64_t)WALK_THREADS * blockIdx.x + threadIdx.x; i < loop.total; i += step) *
        walk_at<T>(loop, 0, i) = element;
}

/* ---- slots ---- */
typedef void (*cast_fn)(yk__loop, yk_dtype);

static cast_fn cast_from(yk_dtype from)
{
    switch (from) {
    case YK_F64: return cast_kernel<element_f64>;
    case YK_F16: return cast_kernel<element_f16>;
    case YK_BF16: return cast_kernel<element_bf16>;
    case YK_I64: return cast_kernel<element_i64>;
    case YK_I32: return cast_kernel<element_i32>;
    case YK_U8: return cast_kernel<element_u8>;
    case YK_BOOL: return cast_kernel<element_bool>;
    default: return cast_kernel<element_f32>;
    }
}

template <typename From, typename To> static bool cast_packs(int device, const yk__loop &loop, cudaStream_t stream)
{
    typedef typename From::stored in;
    typedef typename To::stored out;
    const size_t size[] = {sizeof(out), sizeof(in)};
    const int64_t n = pack_of_two<in, out>::N;
    packed_loop packed;
    if (!pack_loop(&packed, loop, size, n))
        return false;
    void (*kernel)(packed_loop) = cast_packs_kernel<From, To>;
    YK__LAUNCH("copy", kernel, pack_blocks(device, loop.total, PACKS * n), WALK_THREADS, 0, stream, packed);
    return true;
}

/* Casts by packs; false where the operands allow none, or the cast is a rare one. */
static bool cast_in_packs(int device, const yk__loop &loop, yk_dtype from, yk_dtype to, cudaStream_t stream)
{
    switch (from) {
    case YK_F32:
        return to == YK_F16    ? cast_packs<element_f32, element_f16>(device, loop, stream)
               : to == YK_BF16 ? cast_packs<element_f32, element_bf16>(device, loop, stream)
                               : false;
    case YK_F16: return to == YK_F32 && cast_packs<element_f16, element_f32>(device, loop, stream);
    case YK_BF16: return to == YK_F32 && cast_packs<element_bf16, element_f32>(device, loop, stream);
    case YK_U8: return to == YK_F32 && cast_packs<element_u8, element_f32>(device, loop, stream);
    case YK_BOOL: return to == YK_F32 && cast_packs<element_bool, element_f32>(device, loop, stream);
    default: return false;
    }
}

template <typename T> static bool copy_packs(int device, const yk__loop &loop, cudaStream_t stream)
{
    const size_t size[] = {sizeof(T), sizeof(T)};
    packed_loop packed;
    if (!pack_loop(&packed, loop, size, pack_of<T>::N))
        return false;
    void (*kernel)(packed_loop) = copy_packs_kernel<T>;
    const int64_t word = sizeof(uint32_t), together = sizeof(T) < 4 ? word / (int64_t)sizeof(T) : 1;
    if (together > 1 && !packed.repeated && loop.shape[0] % together == 0) { /* nothing to take apart */
        packed.loop.shape[0] /= together, packed.loop.total /= together;
        packed.loop.stride[0][0] = packed.loop.stride[0][1] = word;
        kernel = copy_packs_kernel<uint32_t>;
    }
    YK__LAUNCH("copy", kernel, pack_blocks(device, loop.total, PACKS * pack_of<T>::N), WALK_THREADS, 0, stream, packed);
    return true;
}

/* Copies by transposed tiles; false where the copy transposes nothing, or so few elements that a tile would be nearly
 * empty. */
template <typename T> static bool copy_turned(int device, const yk__loop &loop, cudaStream_t stream)
{
    turned_copy c;
    const int64_t size = sizeof(T);
    if (loop.stride[0][0] != size || loop.stride[0][1] == size || loop.shape[0] < TILE_LEAST)
        return false;
    for (c.dense = 1; c.dense < loop.ndim && loop.stride[c.dense][1] != size;)
        c.dense++;
    if (c.dense == loop.ndim || loop.shape[c.dense] < TILE_LEAST)
        return false;
    c.loop = c.others = loop;
    c.others.ndim = 0, c.others.total = 1;
    for (int d = 1; d < loop.ndim; d++) {
        if (d == c.dense)
            continue;
        int to = c.others.ndim++;
        c.others.shape[to] = loop.shape[d];
        c.others.total *= loop.shape[d];
        for (int k = 0; k < 2; k++)
            c.others.stride[to][k] = loop.stride[d][k];
    }
    if (c.others.ndim == 0) {
        c.others.ndim = 1, c.others.shape[0] = 1;
        c.others.stride[0][0] = c.others.stride[0][1] = 0;
    }
    c.columns = (loop.shape[0] + TILE - 1) / TILE, c.rows = (loop.shape[c.dense] + TILE - 1) / TILE;
    void (*kernel)(turned_copy) = turn_kernel<T>;
    YK__LAUNCH("copy", kernel, walk_rows(device, c.columns * c.rows * c.others.total), WALK_THREADS,
               TILE * tile_pitch<T>::N * sizeof(T), stream, c);
    return true;
}

template <typename T> static void copy_bits(int device, const yk__loop &loop, cudaStream_t stream)
{
    if (copy_packs<T>(device, loop, stream) || copy_turned<T>(device, loop, stream))
        return;
    YK__LAUNCH("copy", copy_kernel<T>, walk_blocks(device, loop.total), WALK_THREADS, 0, stream, loop);
}

yk_status cuda_copy(int device, const yk__view *out, const yk__view *in)
{
    const yk__view *views[] = {out, in};
    yk__loop loop;
    yk__loop_init(&loop, 2, views, false);
    cudaStream_t stream = NULL;
    yk_status status = cuda_use(device, &stream);
    if (status || loop.total == 0)
        return status;
    if (out->dtype == in->dtype) {
        switch (yk__size_of(out->dtype)) {
        case 1: copy_bits<uint8_t>(device, loop, stream); break;
        case 2: copy_bits<uint16_t>(device, loop, stream); break;
        case 4: copy_bits<uint32_t>(device, loop, stream); break;
        default: copy_bits<uint64_t>(device, loop, stream); break;
        }
    } else if (!cast_in_packs(device, loop, in->dtype, out->dtype, stream)) {
        cast_fn kernel = cast_from(in->dtype);
        YK__LAUNCH("copy", kernel, walk_blocks(device, loop.total), WALK_THREADS, 0, stream, loop, out->dtype);
    }
    return cuda_launched(device, "copy", 2, views);
}

yk_status cuda_copy_parts(int device, int count, const yk__view *outs, const yk__view *ins)
{
    yk_status status = YK_OK;
    for (int i = 0; i < count && !status; i++)
        status = cuda_copy(device, &outs[i], &ins[i]);
    return status;
}

template <typename T> static void fill_with(int device, const yk__loop &loop, T element, cudaStream_t stream)
{
    const size_t size = sizeof(T);
    packed_loop packed;
    if (pack_loop(&packed, loop, &size, pack_of<T>::N))
        YK__LAUNCH("fill", fill_packs_kernel<T>, pack_blocks(device, loop.total, pack_of<T>::N), WALK_THREADS, 0,
                   stream, packed, element);
    else
        YK__LAUNCH("fill", fill_kernel<T>, walk_blocks(device, loop.total), WALK_THREADS, 0, stream, loop, element);
}

yk_status cuda_fill(int device, const yk__view *out, double value)
{
    uint64_t element = 0;
    yk__loop loop;
    yk__loop_init(&loop, 1, &out, false);
    cudaStream_t stream = NULL;
    yk_status status = cuda_use(device, &stream);
    if (status || loop.total == 0)
        return status;
    yk__store_scalar(&element, out->dtype, value);
    switch (yk__size_of(out->dtype)) {
    case 1: fill_with<uint8_t>(device, loop, (uint8_t)element, stream); break;
    case 2: fill_with<uint16_t>(device, loop, (uint16_t)element, stream); break;
    case 4: fill_with<uint32_t>(device, loop, (uint32_t)element, stream); break;
    default: fill_with<uint64_t>(device, loop, element, stream); break;
    }
    return cuda_launched(device, "fill", 1, &out);
}
