/*
 * combining.cu - for reductions by NCCL. In a fixed order: values of several ranks, element by element, in the order of
 * their tree. In NCCL's own order: the division that makes a mean of its sum. Layer: device/cuda.
 *
 * The tree is that of Note [The order of a reduction] (comm/native/combine.c), walked as a binary counter counts: the
 * stack holds whole subtrees, and a value that is a right child is combined with the left one below it.
 */
#include "device/cuda/packs.h"

#include "device/cuda/elements.h"
#include "device/cuda/nccl_access.h"

/* Subtrees of different levels that stand on the stack at most, of 2^DEPTH - 1 ranks. */
enum { DEPTH = 12 };

template <typename T> static YK__DEVICE T combine_two(yk__binary op, T x, T y)
{
    switch (op) {
    case YK__MUL: return x * y;
    case YK__MINIMUM: return x < y || x != x ? x : y;
    case YK__MAXIMUM: return x > y || x != x ? x : y;
    default: return x + y; /* ADD */
    }
}

/* Sums and products of integers wrap around. */
static YK__DEVICE int64_t combine_two(yk__binary op, int64_t x, int64_t y)
{
    switch (op) {
    case YK__MUL: return (int64_t)((uint64_t)x * (uint64_t)y);
    case YK__MINIMUM: return x < y ? x : y;
    case YK__MAXIMUM: return x > y ? x : y;
    default: return (int64_t)((uint64_t)x + (uint64_t)y); /* ADD */
    }
}

struct combine_job {
    void *out;
    const void *in;
    int64_t stride, count;
    int inputs, divisor;
    yk__binary op;
};

template <typename E> YK__KERNEL(WALK_THREADS) combine_kernel(combine_job job)
{
    typedef typename E::number number;
    typedef typename E::stored stored;
    yk__global<stored> out(static_cast<stored *>(job.out));
    yk__global<const stored> in(static_cast<const stored *>(job.in));
    int64_t step = (int64_t)WALK_THREADS * gridDim.x;
    YK__LOOP for (int64_t i = (int64_t)WALK_THREADS * blockIdx.x + threadIdx.x; i < job.count; i += step)
    {
        number stack[DEPTH];
        int depth = 0;
        YK__LOOP for (int r = 0; r < job.inputs; r++)
        {
            number x = E::load(in[r * job.stride + i]);
            YK__LOOP for (int k = r; k & 1; k >>= 1) x = combine_two(job.op, stack[--depth], x);
            stack[depth++] = x;
        }
        number x = stack[--depth];
        YK__LOOP while (depth > 0) x = combine_two(job.op, stack[--depth], x);
        out[i] = E::store(job.divisor > 1 ? x / (number)job.divisor : x);
    }
}

extern "C" yk_status yk__cuda_combine(int device, cudaStream_t stream, yk__binary op, yk_dtype dtype, bool mean,
                                      void *out, const void *in, int inputs, int64_t stride, int64_t count)
{
    static void (*const kernels[YK__DTYPES])(combine_job) = {combine_kernel<element_f32>, combine_kernel<element_f64>,
                                                             combine_kernel<element_f16>, combine_kernel<element_bf16>,
                                                             combine_kernel<element_i64>, combine_kernel<element_i32>,
                                                             combine_kernel<element_u8>,  combine_kernel<element_bool>};
    if (count == 0)
        return YK_OK;
    if (inputs < 1 || inputs >= 1 << DEPTH)
        return cuda_fail(YK_ERR_UNSUPPORTED, "cuda:%d: values of %d ranks: 1 to %d can be combined", device, inputs,
                         (1 << DEPTH) - 1);
    cudaStream_t own = NULL;
    yk_status status = cuda_use(device, &own);
    if (status)
        return status;
    combine_job job = {out, in, stride, count, inputs, mean ? inputs : 1, op};
    YK__LAUNCH("combine", kernels[dtype], dim3(walk_blocks(device, count)), dim3(WALK_THREADS), 0, stream, job);
    const yk__view view = {out, dtype, 1, {count}, {1}};
    const yk__view *views[] = {&view};
    return cuda_launched(device, "combine", 1, views);
}

/* ---- means ------------------------------------------------------------------------------------------------------- */
template <typename E> struct divide {
    int by;
    YK__DEVICE typename E::stored operator()(typename E::stored x) const
    {
        return E::store(E::load(x) / (typename E::number)by);
    }
};
template <typename E, int N> YK__KERNEL(WALK_THREADS) divide_kernel(divide<E> f, packed_loop packed)
{
    map_packs<typename E::stored, typename E::stored, N>(packed, f);
}

template <typename E> static void launch_divide(int device, cudaStream_t stream, const yk__loop &loop, int by)
{
    typedef typename E::stored stored;
    const size_t size[] = {sizeof(stored), sizeof(stored)};
    const int n = pack_of<stored>::N;
    packed_loop packed;
    if (pack_loop(&packed, loop, size, n)) {
        YK__LAUNCH("divide", (divide_kernel<E, n>), pack_blocks(device, loop.total, PACKS * n), WALK_THREADS, 0, stream,
                   divide<E>{by}, packed);
    } else {
        pack_loop(&packed, loop, size, 1);
        YK__LAUNCH("divide", (divide_kernel<E, 1>), pack_blocks(device, loop.total, PACKS), WALK_THREADS, 0, stream,
                   divide<E>{by}, packed);
    }
}

extern "C" yk_status yk__cuda_divide(int device, cudaStream_t stream, yk_dtype dtype, void *out, const void *in,
                                     int64_t count, int by)
{
    cudaStream_t own = NULL;
    if (count == 0)
        return YK_OK;
    yk_status status = cuda_use(device, &own);
    if (status)
        return status;
    const yk__view to = {out, dtype, 1, {count}, {1}}, from = {const_cast<void *>(in), dtype, 1, {count}, {1}};
    const yk__view *views[] = {&to, &from};
    yk__loop loop;
    yk__loop_init(&loop, 2, views, false);
#define DIVIDE(E) launch_divide<E>(device, stream, loop, by)
    FLOATING(dtype, DIVIDE);
#undef DIVIDE
    return cuda_launched(device, "divide", 2, views);
}
