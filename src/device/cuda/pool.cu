/*
 * pool.cu - max, average and adaptive average pooling, and their backwards. Layer: device/cuda.
 *
 * A thread makes one output; in backward gradients of inputs, gathered from the outputs whose windows hold them, in
 * their order: no two threads write one element. Neighbours make what lies side by side in memory, pixels or channels.
 * Positions and offsets are numbers of 32 bits where those hold them: of 64 they take longer than memory does.
 */
#include "device/cuda/packs.h"

#include "device/cuda/elements.h"
#include "device/cuda/reciprocal.h"
#include "device/cuda/sums.h"

/* RUN: gradients of max pooling that lie side by side and are a thread's: it looks once at the outputs that they share.
 */
enum { THREADS = WALK_THREADS, RUN = 4 };

/* Division by a size that a launch knows. Of 32 bits by a product with its reciprocal, exact below 2^31, which takes a
 * few instructions; of 64 bits as it is, or by 32 where both fit, which takes a fifth of the time. */
template <typename I> struct divisor {
    int64_t size;
    YK__DEVICE int64_t divide(int64_t i, int64_t *rest) const
    {
        return walk_divide(i, size, rest);
    }
};
template <> struct divisor<int32_t> {
    uint32_t size;
    reciprocal by;
    YK__DEVICE int32_t divide(int32_t i, int32_t *rest) const
    {
        uint32_t quotient = size == 1 ? (uint32_t)i : reciprocal_quotient((uint32_t)i, by);
        *rest = (int32_t)((uint32_t)i - quotient * size);
        return (int32_t)quotient;
    }
};
static void set_divisor(divisor<int64_t> *by, int64_t size)
{
    by->size = size > 0 ? size : 1;
}
static void set_divisor(divisor<int32_t> *by, int64_t size)
{
    size = size > 0 ? size : 1;
    by->size = (uint32_t)size;
    by->by = reciprocal_of(size);
}
template <typename I> static YK__DEVICE I quotient(const divisor<I> &by, I i)
{
    I unused;
    return by.divide(i, &unused);
}

/* A map (N,C,H,W): its first element, and elements from one to the next along each dimension. */
template <typename I> struct pool_map {
    char *data;
    I shape[4], stride[4];
};

/* I: int32_t, where that holds every position, offset and product of them; else int64_t. */
template <typename I> struct pool_job {
    pool_map<I> in, out, index; /* x or gx; out or gout */
    I kernel[2], stride[2], padding[2], dilation[2];
    divisor<I> by_in[2], by_out[2], by_stride[2]; /* height and width */
    divisor<I> order[3];                          /* sizes in the order in which threads make elements */
    I total;                                      /* elements, or runs of them, that are made */
    double fixed; /* what every window's sum is divided by: of the caller's choice, or as all are of one size; or 0 */
    double times; /* the number that a product with does what that division does, or 0 */
    bool adaptive, count_exclude_pad;
    bool channels_last; /* the result has its channels side by side */
    bool packed;        /* a run can be written at once */
};

template <typename I> struct position {
    I n, c, y, x;
};

/* The position of element i, or of run i, in the order in which threads make them. */
template <typename I> static YK__DEVICE position<I> position_of(const pool_job<I> &j, I i)
{
    position<I> p;
    I first, second, third;
    i = j.order[0].divide(i, &first);
    i = j.order[1].divide(i, &second);
    p.n = j.order[2].divide(i, &third);
    p.c = j.channels_last ? first : third;
    p.x = j.channels_last ? second : first;
    p.y = j.channels_last ? third : second;
    return p;
}
template <typename I> static YK__DEVICE I offset_of(const pool_map<I> &m, const position<I> &p, I y, I x)
{
    return p.n * m.stride[0] + p.c * m.stride[1] + y * m.stride[2] + x * m.stride[3];
}
template <typename E, typename I> static YK__DEVICE typename E::number read(const pool_map<I> &m, I offset)
{
    typedef const typename E::stored stored;
    return E::load(yk__global<stored>(reinterpret_cast<stored *>(m.data))[offset]);
}
template <typename E, typename I> static YK__DEVICE void write(const pool_map<I> &m, I offset, typename E::number x)
{
    typedef typename E::stored stored;
    yk__global<stored>(reinterpret_cast<stored *>(m.data))[offset] = E::store(x);
}

/* Walks over elements, or runs, of the result: each thread takes i, and those `step` further. */
#define EACH_MADE(I, i, j)                                                                                             \
    YK__LOOP for (I i = (I)THREADS * (I)blockIdx.x + (I)threadIdx.x; i < (j).total; i += (I)THREADS * (I)gridDim.x)

/* The inputs of output o along axis d (0: height), cut to the input, and the window's size before that. */
template <typename I> struct window {
    I low, high, full;
    YK__DEVICE window(const pool_job<I> &j, int d, I o)
    {
        I size = j.in.shape[2 + d];
        if (j.adaptive) {
            low = quotient(j.by_out[d], (I)(o * size));
            high = quotient(j.by_out[d], (I)((o + 1) * size + j.out.shape[2 + d] - 1));
            full = high - low;
            return;
        }
        I start = o * j.stride[d] - j.padding[d], end = start + j.kernel[d], padded = size + j.padding[d];
        end = end < padded ? end : padded;
        full = end - start;
        low = start > 0 ? start : 0;
        high = end < size ? end : size;
    }
};

/* The sum of a window, or a part of a gradient, over the number of the window's elements. */
template <typename I>
static YK__DEVICE double averaged(const pool_job<I> &j, double sum, const window<I> &y, const window<I> &x)
{
    if (j.times != 0)
        return sum * j.times;
    return sum / (j.fixed != 0          ? j.fixed
                  : j.count_exclude_pad ? (double)((y.high - y.low) * (x.high - x.low))
                                        : (double)(y.full * x.full));
}

template <typename E, typename I> YK__KERNEL(THREADS) average_kernel(pool_job<I> j)
{
    enum { AT_ONCE = 4 };
    EACH_MADE(I, i, j)
    {
        position<I> p = position_of(j, i);
        window<I> along_y(j, 0, p.y), along_x(j, 1, p.x);
        double sum = 0;
        YK__LOOP for (I y = along_y.low; y < along_y.high; y++)
        {
            I row = offset_of(j.in, p, y, (I)0);
            YK__LOOP for (I x = along_x.low; x < along_x.high; x += AT_ONCE)
            {
                typename E::number some[AT_ONCE];
                YK__UNROLL for (int u = 0; u < AT_ONCE; u++) some[u] =
                    x + u < along_x.high ? read<E>(j.in, (I)(row + (x + u) * j.in.stride[3])) : 0;
                YK__UNROLL for (int u = 0; u < AT_ONCE; u++) if (x + u < along_x.high) sum += (double)some[u];
            }
        }
        write<E>(j.out, offset_of(j.out, p, p.y, p.x), (typename E::number)averaged(j, sum, along_y, along_x));
    }
}

/* The averages of whole planes that lie one behind the other. A thread adds up a plane in its order; a warp brings
 * pieces of 32 planes to shared memory, so that its lanes read side by side. */
template <typename E> struct plane_tile {
    enum { WIDE = sizeof(typename E::stored) == 8 ? 16 : 32, STEP = WIDE + 1, WARPS = THREADS / LANES };
    enum { BYTES = WARPS * LANES * STEP * sizeof(typename E::stored) };
};
template <typename E> YK__KERNEL(THREADS) plane_average_kernel(pool_job<int32_t> j)
{
    typedef typename E::stored stored;
    typedef plane_tile<E> tile;
    enum { AT_ONCE = 8 };
    YK__SHARED(stored, shared);
    int32_t size = j.in.shape[2] * j.in.shape[3], lane = (int32_t)threadIdx.x % LANES, thread = (int32_t)threadIdx.x;
    int32_t own = thread * tile::STEP, first_of_warp = (thread - lane) * tile::STEP;
    yk__global<const stored> from(reinterpret_cast<const stored *>(j.in.data));
    YK__LOOP for (int32_t first = THREADS * (int32_t)blockIdx.x; first < j.total; first += THREADS * (int32_t)gridDim.x)
    {
        double sum = 0;
        YK__LOOP for (int32_t column = 0; column < size; column += tile::WIDE)
        {
            __syncthreads();
            YK__LOOP for (int32_t some = 0; some < tile::WIDE; some += AT_ONCE)
            {
                stored x[AT_ONCE];
                int32_t to[AT_ONCE];
                YK__UNROLL for (int32_t u = 0; u < AT_ONCE; u++)
                {
                    int32_t i = (some + u) * LANES + lane, plane = i / tile::WIDE, at = i % tile::WIDE;
                    int32_t of_all = first + thread - lane + plane;
                    to[u] = first_of_warp + plane * tile::STEP + at;
                    x[u] = of_all < j.total && column + at < size ? from[of_all * size + column + at] : 0;
                }
                YK__UNROLL for (int32_t u = 0; u < AT_ONCE; u++) shared[to[u]] = x[u];
            }
            __syncthreads();
            YK__LOOP for (int32_t at = 0; at < tile::WIDE && column + at < size; at++) if (first + thread < j.total)
                sum += (double)E::load(shared[own + at]);
        }
        if (first + thread >= j.total)
            continue;
        position<int32_t> p = position_of(j, first + thread);
        window<int32_t> along_y(j, 0, 0), along_x(j, 1, 0);
        write<E>(j.out, offset_of(j.out, p, 0, 0), (typename E::number)averaged(j, sum, along_y, along_x));
    }
}

/* The outputs along axis d whose windows hold input i: [first, last]. */
template <typename I> static YK__DEVICE void holders_of(const pool_job<I> &j, int d, I i, I *first, I *last)
{
    I inputs = j.in.shape[2 + d], outputs = j.out.shape[2 + d];
    if (j.adaptive) {
        *first = quotient(j.by_in[d], (I)(i * outputs));
        *last = quotient(j.by_in[d], (I)((i + 1) * outputs + inputs - 1)) - 1;
    } else {
        I low = i + j.padding[d] - (j.kernel[d] - 1);
        *first = low > 0 ? quotient(j.by_stride[d], (I)(low + j.stride[d] - 1)) : 0;
        *last = quotient(j.by_stride[d], (I)(i + j.padding[d]));
    }
    *last = *last < outputs - 1 ? *last : outputs - 1;
}

template <typename E, typename I> YK__KERNEL(THREADS) average_backward_kernel(pool_job<I> j)
{
    EACH_MADE(I, i, j)
    {
        position<I> p = position_of(j, i);
        I top, bottom, left, right;
        double sum = 0;
        holders_of(j, 0, p.y, &top, &bottom);
        holders_of(j, 1, p.x, &left, &right);
        YK__LOOP for (I oy = top; oy <= bottom; oy++)
        {
            window<I> along_y(j, 0, oy);
            YK__LOOP for (I ox = left; ox <= right; ox++)
            {
                window<I> along_x(j, 1, ox);
                sum += averaged(j, (double)read<E>(j.out, offset_of(j.out, p, oy, ox)), along_y, along_x);
            }
        }
        write<E>(j.in, offset_of(j.in, p, p.y, p.x), (typename E::number)sum);
    }
}

/* The greatest of a window so far, and its position in the input's map: the first of equals, and NaN is beyond all. */
template <typename E, typename I> struct greatest {
    typename E::number x;
    I at; /* -1: nothing was seen */
    YK__DEVICE void see(typename E::number value, I index)
    {
        if (at < 0 || value > x || value != value) {
            x = value;
            at = index;
        }
    }
};

/* SIDE: the window's height and width, whose elements are all read before the first is looked at; 0: any. */
template <typename E, typename I, int SIDE> YK__KERNEL(THREADS) max_kernel(pool_job<I> j)
{
    EACH_MADE(I, i, j)
    {
        position<I> p = position_of(j, i);
        greatest<E, I> best = {-INFINITY, -1};
        I top = p.y * j.stride[0] - j.padding[0], left = p.x * j.stride[1] - j.padding[1];
        I first = offset_of(j.in, p, top, left);
        if constexpr (SIDE > 0) {
            typename E::number value[SIDE][SIDE];
            bool there[SIDE][SIDE];
            YK__UNROLL for (int ky = 0; ky < SIDE; ky++) YK__UNROLL for (int kx = 0; kx < SIDE; kx++)
            {
                I y = top + ky * j.dilation[0], x = left + kx * j.dilation[1];
                there[ky][kx] = y >= 0 && y < j.in.shape[2] && x >= 0 && x < j.in.shape[3];
                value[ky][kx] = there[ky][kx] ? read<E>(j.in, (I)(first + ky * j.dilation[0] * j.in.stride[2] +
                                                                  kx * j.dilation[1] * j.in.stride[3]))
                                              : 0;
            }
            YK__UNROLL for (int ky = 0; ky < SIDE; ky++) YK__UNROLL for (int kx = 0; kx < SIDE; kx++) if (there[ky][kx])
                best.see(value[ky][kx], (I)((top + ky * j.dilation[0]) * j.in.shape[3] + left + kx * j.dilation[1]));
        } else {
            YK__LOOP for (I ky = 0; ky < j.kernel[0]; ky++)
            {
                I y = top + ky * j.dilation[0];
                if (y < 0 || y >= j.in.shape[2])
                    continue;
                I row = offset_of(j.in, p, y, (I)0);
                YK__LOOP for (I kx = 0; kx < j.kernel[1]; kx++)
                {
                    I x = left + kx * j.dilation[1];
                    if (x >= 0 && x < j.in.shape[3])
                        best.see(read<E>(j.in, (I)(row + x * j.in.stride[3])), (I)(y * j.in.shape[3] + x));
                }
            }
        }
        write<E>(j.out, offset_of(j.out, p, p.y, p.x), best.x);
        write<element_i32>(j.index, offset_of(j.index, p, p.y, p.x), best.at);
    }
}

/* The outputs along axis d whose windows may hold one of the inputs `from` to `to`: [first, last]. */
template <typename I> static YK__DEVICE void outputs_of(const pool_job<I> &j, int d, I from, I to, I *first, I *last)
{
    I low = from + j.padding[d] - j.dilation[d] * (j.kernel[d] - 1);
    *first = low > 0 ? quotient(j.by_stride[d], (I)(low + j.stride[d] - 1)) : 0;
    *last = quotient(j.by_stride[d], (I)(to + j.padding[d]));
    *last = *last < j.out.shape[2 + d] - 1 ? *last : j.out.shape[2 + d] - 1;
}

/* Gradients of a run are added to in the order of the outputs, as those of single inputs would be. */
template <typename E, typename I> YK__KERNEL(THREADS) max_backward_kernel(pool_job<I> j)
{
    typedef typename E::stored stored;
    EACH_MADE(I, i, j)
    {
        position<I> p = position_of(j, i);
        p.x *= RUN;
        I y0, y1, x0, x1, own = p.y * j.in.shape[3] + p.x, there = j.in.shape[3] - p.x;
        there = there < RUN ? there : (I)RUN;
        outputs_of(j, 0, p.y, p.y, &y0, &y1);
        outputs_of(j, 1, p.x, (I)(p.x + there - 1), &x0, &x1);
        typename E::number sum[RUN];
        YK__UNROLL for (int u = 0; u < RUN; u++) sum[u] = 0;
        YK__LOOP for (I oy = y0; oy <= y1; oy++)
        {
            YK__LOOP for (I ox = x0; ox <= x1; ox++)
            {
                I at = (I)read<element_i32>(j.index, offset_of(j.index, p, oy, ox)) - own;
                typename E::number gradient = read<E>(j.out, offset_of(j.out, p, oy, ox));
                YK__UNROLL for (int u = 0; u < RUN; u++) if (at == u) sum[u] += gradient;
            }
        }
        I to = offset_of(j.in, p, p.y, p.x);
        if (j.packed) {
            pack<stored, RUN> result;
            YK__UNROLL for (int u = 0; u < RUN; u++) result.of[u] = E::store(sum[u]);
            *yk__global<pack<stored, RUN>>(
                reinterpret_cast<pack<stored, RUN> *>(reinterpret_cast<stored *>(j.in.data) + to)) = result;
        } else {
            YK__UNROLL for (int u = 0; u < RUN; u++) if (u < there)
                write<E>(j.in, (I)(to + u * j.in.stride[3]), sum[u]);
        }
    }
}

/* ---- jobs ---- */
template <typename I> static void set_map(pool_map<I> *map, const yk__view *v)
{
    map->data = static_cast<char *>(v->data);
    for (int d = 0; d < 4; d++)
        map->shape[d] = (I)v->shape[d], map->stride[d] = (I)v->stride[d];
}

/* The divisor of every sum where all windows are of one size, or 0. */
static double fixed_divisor(const yk__pool2d *p, const yk__view *in, const yk__view *out)
{
    int64_t size = 1;
    if (p && p->divisor)
        return (double)p->divisor;
    for (int d = 0; d < 2; d++) {
        int64_t inputs = in->shape[2 + d], outputs = out->shape[2 + d];
        bool cut = p ? p->padding[d] || (outputs - 1) * p->stride[d] + p->kernel[d] > inputs
                     : outputs == 0 || inputs % outputs;
        if (cut)
            return 0;
        size *= p ? p->kernel[d] : inputs / outputs;
    }
    return (double)size;
}

/* The job of p, or without it of adaptive pooling; `made` is the view that threads make `run` elements of at a time. */
template <typename I>
static pool_job<I> job_of(const yk__pool2d *p, const yk__view *in, const yk__view *out, const yk__view *index,
                          const yk__view *made, int64_t run)
{
    pool_job<I> j = {};
    set_map(&j.in, in), set_map(&j.out, out);
    if (index)
        set_map(&j.index, index);
    j.adaptive = p == NULL;
    j.fixed = fixed_divisor(p, in, out);
    int power;
    j.times = j.fixed > 0 && frexp(j.fixed, &power) == 0.5 ? 1 / j.fixed : 0;
    j.count_exclude_pad = p && p->count_exclude_pad;
    for (int d = 0; d < 2; d++) {
        j.kernel[d] = p ? (I)p->kernel[d] : 1, j.stride[d] = p ? (I)p->stride[d] : 1;
        j.padding[d] = p ? (I)p->padding[d] : 0, j.dilation[d] = p ? (I)p->dilation[d] : 1;
        set_divisor(&j.by_in[d], in->shape[2 + d]);
        set_divisor(&j.by_out[d], out->shape[2 + d]);
        set_divisor(&j.by_stride[d], j.stride[d]);
    }
    j.channels_last = made->stride[1] < made->stride[3];
    int64_t runs = (made->shape[3] + run - 1) / run;
    set_divisor(&j.order[0], j.channels_last ? made->shape[1] : runs);
    set_divisor(&j.order[1], j.channels_last ? runs : made->shape[2]);
    set_divisor(&j.order[2], j.channels_last ? made->shape[2] : made->shape[1]);
    j.total = (I)(made->shape[0] * made->shape[1] * made->shape[2] * runs);
    int64_t bytes = run * (int64_t)yk__size_of(made->dtype);
    bytes = bytes < (int64_t)PACK_BYTES ? bytes : (int64_t)PACK_BYTES;
    j.packed = made->stride[3] == 1 && made->shape[3] % run == 0 && (uintptr_t)made->data % (uintptr_t)bytes == 0;
    for (int d = 0; d < 3; d++)
        j.packed = j.packed && made->stride[d] % run == 0;
    return j;
}

/* True if 32 bits hold whatever kernels compute of these views: positions, offsets, also of a window's elements beyond
 * the map, and products of sizes. */
static bool is_narrow(const yk__pool2d *p, const yk__view *const *views, int count)
{
    const int64_t most = 1 << 28, most_size = 1 << 13, most_stride = 1 << 17;
    for (int k = 0; k < count; k++) {
        int64_t total = 1, reach = 0;
        for (int d = 0; d < 4; d++) {
            total *= views[k]->shape[d];
            reach += views[k]->shape[d] * yk__magnitude(views[k]->stride[d]);
            if (d >= 2 && (views[k]->shape[d] > most_size || yk__magnitude(views[k]->stride[d]) > most_stride))
                return false;
        }
        if (total > most || reach > most)
            return false;
    }
    for (int d = 0; p && d < 2; d++)
        if (p->kernel[d] > most_size || p->dilation[d] > most_size || p->stride[d] > most_size ||
            p->padding[d] > most_size || p->kernel[d] * p->dilation[d] > most_size)
            return false;
    return true;
}

/* One launch: its operands, and the view that a thread makes `run` elements of at a time. */
struct pool_launch {
    int device;
    const char *name;
    const yk__pool2d *p;
    const yk__view *in, *out, *index, *made;
    int64_t run;
    cudaStream_t stream;

    bool narrow() const
    {
        const yk__view *views[] = {in, out, index};
        return is_narrow(p, views, index ? 3 : 2);
    }
    template <typename I> void with(void (*kernel)(pool_job<I>), size_t shared) const
    {
        pool_job<I> j = job_of<I>(p, in, out, index, made, run);
        YK__LAUNCH(name, kernel, walk_blocks(device, j.total * (run > 1 ? WALK_ITEMS : 1)), THREADS, shared, stream, j);
    }
    void start(void (*narrow_kernel)(pool_job<int32_t>), void (*wide_kernel)(pool_job<int64_t>)) const
    {
        if (narrow())
            with<int32_t>(narrow_kernel, 0);
        else
            with<int64_t>(wide_kernel, 0);
    }
    bool is_empty() const
    {
        return made->shape[0] * made->shape[1] * made->shape[2] * made->shape[3] == 0;
    }
    yk_status end() const
    {
        const yk__view *views[] = {in, out};
        return cuda_launched(device, name, 2, views);
    }
};

/* True if every output is the average of a whole plane, and planes lie one behind the other. */
static bool is_of_planes(const yk__pool2d *p, const yk__view *out, const yk__view *x)
{
    int64_t step = 1;
    for (int d = 3; d >= 0; d--) {
        if (x->shape[d] != 1 && x->stride[d] != step)
            return false;
        step *= x->shape[d];
    }
    return !p && out->shape[2] == 1 && out->shape[3] == 1 && x->shape[2] * x->shape[3] > 1;
}

#define POOL_BEGIN(...)                                                                                                \
    pool_launch l = {__VA_ARGS__};                                                                                     \
    yk_status status = cuda_use(device, &l.stream);                                                                    \
    if (status || l.is_empty())                                                                                        \
    return status

yk_status cuda_max_pool2d(int device, const yk__pool2d *p, const yk__view *out, const yk__view *index,
                          const yk__view *x)
{
    POOL_BEGIN(device, "max_pool2d", p, x, out, index, out, 1, NULL);
    int side = p->kernel[0] == p->kernel[1] ? (int)p->kernel[0] : 0;
#define MAX(E)                                                                                                         \
    l.start(side == 3   ? max_kernel<E, int32_t, 3>                                                                    \
            : side == 2 ? max_kernel<E, int32_t, 2>                                                                    \
                        : max_kernel<E, int32_t, 0>,                                                                   \
            max_kernel<E, int64_t, 0>)
    FLOATING(x->dtype, MAX);
    return l.end();
}
yk_status cuda_max_pool2d_backward(int device, const yk__pool2d *p, const yk__view *gx, const yk__view *gout,
                                   const yk__view *index)
{
    POOL_BEGIN(device, "max_pool2d_backward", p, gx, gout, index, gx, RUN, NULL);
#define MAX_BACKWARD(E) l.start(max_backward_kernel<E, int32_t>, max_backward_kernel<E, int64_t>)
    FLOATING(gx->dtype, MAX_BACKWARD);
    return l.end();
}

/* p: NULL for adaptive pooling. */
static yk_status average(int device, const char *name, const yk__pool2d *p, const yk__view *out, const yk__view *x)
{
    POOL_BEGIN(device, name, p, x, out, NULL, out, 1, NULL);
#define AVERAGE(E)       l.start(average_kernel<E, int32_t>, average_kernel<E, int64_t>)
#define PLANE_AVERAGE(E) l.with<int32_t>(plane_average_kernel<E>, plane_tile<E>::BYTES)
    if (is_of_planes(p, out, x) && l.narrow())
        FLOATING(x->dtype, PLANE_AVERAGE);
    else
        FLOATING(x->dtype, AVERAGE);
    return l.end();
}
static yk_status average_backward(int device, const char *name, const yk__pool2d *p, const yk__view *gx,
                                  const yk__view *gout)
{
    POOL_BEGIN(device, name, p, gx, gout, NULL, gx, 1, NULL);
#define AVERAGE_BACKWARD(E) l.start(average_backward_kernel<E, int32_t>, average_backward_kernel<E, int64_t>)
    FLOATING(gx->dtype, AVERAGE_BACKWARD);
    return l.end();
}

yk_status cuda_avg_pool2d(int device, const yk__pool2d *p, const yk__view *out, const yk__view *x)
{
    return average(device, "avg_pool2d", p, out, x);
}
yk_status cuda_avg_pool2d_backward(int device, const yk__pool2d *p, const yk__view *gx, const yk__view *gout)
{
    return average_backward(device, "avg_pool2d_backward", p, gx, gout);
}
yk_status cuda_adaptive_avg_pool2d(int device, const yk__view *out, const yk__view *x)
{
    return average(device, "adaptive_avg_pool2d", NULL, out, x);
}
yk_status cuda_adaptive_avg_pool2d_backward(int device, const yk__view *gx, const yk__view *gout)
{
    return average_backward(device, "adaptive_avg_pool2d_backward", NULL, gx, gout);
}
