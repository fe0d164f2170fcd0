/*
 * copying.cu - the slots copy (any dtype and strides to any other) and fill. Layer: device/cuda.
 *
 * Casts are as device/convert.h says. An element is read by its dtype into a float, double, i64 or u8, and written from
 * that by the other's; the choice of what is written is the same for all threads and costs nothing beside the memory.
 */
#include "device/cuda/walk.h"

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
    case YK_F16: *walk_at<uint16_t>(loop, 0, position) = yk__to_f16((float)x); break;
    case YK_BF16: *walk_at<uint16_t>(loop, 0, position) = yk__to_bf16((float)x); break;
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

template <typename T> YK__KERNEL(WALK_THREADS) fill_kernel(yk__loop loop, T element)
{
    int64_t step = (int64_t)WALK_THREADS * gridDim.x;
    YK__LOOP for (int64_t i = (int64_t)WALK_THREADS * blockIdx.x + threadIdx.x; i < loop.total; i += step) *
        walk_at<T>(loop, 0, i) = element;
}

/* ---- slots ---- */
typedef void (*cast_fn)(yk__loop, yk_dtype);
typedef void (*copy_fn)(yk__loop);

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

yk_status cuda_copy(int device, const yk__view *out, const yk__view *in)
{
    const yk__view *views[] = {out, in};
    yk__loop loop;
    yk__loop_init(&loop, 2, views, false);
    cudaStream_t stream = NULL;
    yk_status status = cuda_use(device, &stream);
    if (status || loop.total == 0)
        return status;
    unsigned blocks = walk_blocks(device, loop.total);
    size_t size = yk__size_of(out->dtype);
    if (out->dtype != in->dtype) {
        cast_fn kernel = cast_from(in->dtype);
        YK__LAUNCH("copy", kernel, blocks, WALK_THREADS, 0, stream, loop, out->dtype);
    } else {
        copy_fn kernel = size == 1   ? copy_kernel<uint8_t>
                         : size == 2 ? copy_kernel<uint16_t>
                         : size == 4 ? copy_kernel<uint32_t>
                                     : copy_kernel<uint64_t>;
        YK__LAUNCH("copy", kernel, blocks, WALK_THREADS, 0, stream, loop);
    }
    return cuda_launched(device, "copy", 2, views);
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
    unsigned blocks = walk_blocks(device, loop.total);
    switch (yk__size_of(out->dtype)) {
    case 1: YK__LAUNCH("fill", fill_kernel<uint8_t>, blocks, WALK_THREADS, 0, stream, loop, (uint8_t)element); break;
    case 2: YK__LAUNCH("fill", fill_kernel<uint16_t>, blocks, WALK_THREADS, 0, stream, loop, (uint16_t)element); break;
    case 4: YK__LAUNCH("fill", fill_kernel<uint32_t>, blocks, WALK_THREADS, 0, stream, loop, (uint32_t)element); break;
    default: YK__LAUNCH("fill", fill_kernel<uint64_t>, blocks, WALK_THREADS, 0, stream, loop, element); break;
    }
    return cuda_launched(device, "fill", 1, &out);
}
