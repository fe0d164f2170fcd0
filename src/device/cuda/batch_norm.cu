/*
 * batch_norm.cu - the slots batch_norm and batch_norm_backward. Layer: device/cuda.
 *
 * Three launches: sums of parts of each channel; from these each channel's statistics, or sums of its gradient, and the
 * numbers that an element needs; the elements. Sums are kept in f64; the parts, and the order within them and among
 * them, follow from the sizes, the order of the dimensions, and whether packs can be read (packs.h). Where the channels
 * lie side by side (channels last, or a matrix), a thread takes V channels of every so manieth position, and neighbours
 * the channels beside them; else a block takes a part of one channel, its threads V positions each. V is 1 where the
 * operands allow no packs. Derivations: docs/autograd.md.
 *
 * Sums begin with the last parts, and the elements with the first: what the caches still hold is read again first.
 *
 * Note [Where relu cuts]
 * What backward needs of the result is where relu made it 0. Without a residual the result is f(x) = slope x + rest,
 * rounded to f64, to the number that E computes in and to what it stores, each of which keeps order: so of a channel
 * those x are cut that lie on one side of an edge, and comparing x with it is exactly what looking at the result would
 * be. Forward finds the edge among the numbers that E stores, next to -rest / slope, by evaluating f: where x is cut is
 * sign x < edge, sign being that of the slope (0: of none, or of all, but for x that are not finite, whose product with
 * 0 is NaN, as f is). NaN is on neither side and is not cut, as relu keeps it.
 *
 * With a residual backward's first pass leaves the gradient that relu let through where the residual's is wanted, and
 * the second pass reads it there. Where the gradient comes in two parts, the first pass adds them, and leaves the sum
 * there or in gx.
 */
#include "device/cuda/packs.h"

#include "device/cuda/elements.h"
#include "device/cuda/sums.h"

/* ENOUGH_BLOCKS fill any GPU there is, BLOCKS to a multiprocessor. */
enum { THREADS = WALK_THREADS, WARPS = THREADS / LANES, BLOCKS = 4, ENOUGH_BLOCKS = 132 * BLOCKS, MOST_COLUMNS = 64 };

/* A tensor (N,C,...) as channels: operand k of `inside` is the first element of a channel 0, and channels are step[k]
 * bytes apart. Operands: x, then out or gx, residual, gout, out again, by their roles. */
enum { X, TO, RESIDUAL, GOUT, GRESIDUAL, ROLES };
typedef struct batch_job {
    yk__loop inside;
    int64_t channels, step[YK__LOOP_OPERANDS];
    int operand[ROLES]; /* operand, or -1 */
    int64_t addend;     /* bytes from an element of gout to what is added to it; batch_way.ADDS says whether */
    bool packs;         /* V elements of every operand can be read at once */
    bool channels_last;
    int columns;            /* threads side by side that take V channels each; a power of two */
    int64_t groups;         /* of channels; a block takes one of them, or a channel */
    int64_t parts, part;    /* of a channel, and the positions of one */
    double *sums, *numbers; /* (channels, parts, 2); (channels, NUMBERS) */
    double *edges;          /* (channels, 2), or NULL: Note [Where relu cuts] */
    int64_t *batches;
    yk__view mean, invstd, weight, bias, running_mean, running_var, gweight, gbias;
    bool has_weight, has_bias, has_running, has_gweight, has_gbias, training, relu;
    double momentum, eps;
} batch_job;

/* What an element needs of its channel: forward, y = SLOPE x + REST; backward, gx = SLOPE g + ALONG x + REST. */
enum { SLOPE, REST, ALONG, NUMBERS };

/* How a kernel takes elements: V at a time; across channels, or along them. TIMES: packs of x that it reads before it
 * uses the first; GRADIENT_TIMES: of each operand, in backward. */
template <typename E, bool PACKS_OF, bool CHANNELS_LAST, bool ADDS_TO = false> struct batch_way {
    typedef E element;
    typedef typename E::number number;
    enum { WIDEST = sizeof(typename E::stored) == 8 ? 2 : 4, V = PACKS_OF ? WIDEST : 1 };
    enum { LAST = CHANNELS_LAST, CHANNELS = LAST ? V : 1 };
    enum { ADDS = ADDS_TO }; /* gout comes in two parts */
    enum { TIMES = sizeof(typename E::stored) == 2 && CHANNELS_LAST ? 4 : 2 };
    enum { GRADIENT_TIMES = sizeof(typename E::stored) == 2 || (LAST && sizeof(typename E::stored) == 4) ? 2 : 1 };
    /* Of a multiprocessor, that backward's registers leave room for: along channels all that there are, but where one
     * operand more is read. */
    enum { GRADIENT_BLOCKS = LAST || ADDS ? BLOCKS - 1 : BLOCKS };
    typedef pack<typename E::stored, V> packed;

    /* V elements: channels c, c + 1, ... at position i, or positions i, i + 1, ... of channel c. */
    static YK__DEVICE char *address(const batch_job &j, int role, int64_t c, int64_t i)
    {
        int k = j.operand[role];
        int64_t offset = LAST ? i * j.inside.stride[0][k] : walk_offset(j.inside, k, i);
        return j.inside.data[k] + c * j.step[k] + offset;
    }
    static YK__DEVICE yk__global<packed> at(const batch_job &j, int role, int64_t c, int64_t i)
    {
        return yk__global<packed>(reinterpret_cast<packed *>(address(j, role, c, i)));
    }
};

template <typename S> static YK__DEVICE double vector_at(const yk__view &v, int64_t c)
{
    return (double)get<S>(v, c * v.stride[0]);
}
template <typename S> static YK__DEVICE void vector_put(const yk__view &v, int64_t c, double x)
{
    put<S>(v, c * v.stride[0], (typename S::number)x);
}

/* What a thread takes of a group, of which the block takes part blockIdx.y: channel c (and those beside it), positions
 * from `from`. */
typedef struct batch_range {
    int64_t c, from, to, step, part;
} batch_range;
template <typename Way> static YK__DEVICE batch_range range_of(const batch_job &j, int64_t group, bool last_first)
{
    int thread = (int)threadIdx.x;
    batch_range r;
    r.part = last_first ? gridDim.y - 1 - blockIdx.y : blockIdx.y;
    r.from = r.part * j.part;
    r.to = r.from + j.part < j.inside.total ? r.from + j.part : j.inside.total;
    r.c = Way::LAST ? (group * j.columns + thread % j.columns) * Way::V : group;
    r.step = Way::LAST ? THREADS / j.columns : THREADS * Way::V;
    r.from += Way::LAST ? thread / j.columns : thread * Way::V;
    if (r.c >= j.channels)
        r.to = r.from;
    return r;
}

/* The sums over the block's threads that have the same channel go to j.sums. */
template <typename Way>
static YK__DEVICE void sums_put(const batch_job &j, const batch_range &r, yk__block<double> shared, double *sum,
                                double *other)
{
    const int v = Way::V;
    int thread = (int)threadIdx.x;
    yk__global<double> sums(j.sums);
    if (!Way::LAST) {
        double all = sum[0], rest = other[0];
        YK__UNROLL for (int k = 1; k < v; k++) all += sum[k], rest += other[k];
        all = block_sum<double>(shared, all);
        rest = block_sum<double>(shared, rest);
        if (thread == 0) {
            sums[(r.c * j.parts + r.part) * 2] = all;
            sums[(r.c * j.parts + r.part) * 2 + 1] = rest;
        }
        return;
    }
    int columns = j.columns, down = thread / columns;
    YK__UNROLL for (int which = 0; which < 2; which++)
    {
        double *own = which ? other : sum;
        for (int half = THREADS / columns / 2; half > 0; half /= 2) {
            __syncthreads();
            if (down >= half && down < 2 * half)
                YK__UNROLL for (int k = 0; k < v; k++) shared[(thread - half * columns) * v + k] = own[k];
            __syncthreads();
            if (down < half)
                YK__UNROLL for (int k = 0; k < v; k++) own[k] += shared[thread * v + k];
        }
    }
    if (down == 0 && r.c < j.channels)
        YK__UNROLL for (int k = 0; k < v; k++)
        {
            sums[((r.c + k) * j.parts + r.part) * 2] = sum[k];
            sums[((r.c + k) * j.parts + r.part) * 2 + 1] = other[k];
        }
}

/* The channel's number that its elements are taken as distances from, so that the sum of squares loses nothing. */
template <typename E> static YK__DEVICE double pivot_of(const batch_job &j, int64_t c)
{
    double x = (double)E::load(batch_way<E, false, false>::at(j, X, c, 0)->of[0]);
    return x - x == 0 ? x : 0;
}

template <typename Way> YK__KERNEL(THREADS) batch_sums_kernel(batch_job j)
{
    typedef typename Way::element E;
    enum { V = Way::V, TIMES = Way::TIMES };
    YK__SHARED(double, shared);
    YK__LOOP for (int64_t group = blockIdx.x; group < j.groups; group += gridDim.x)
    {
        batch_range r = range_of<Way>(j, group, true);
        double pivot[Way::CHANNELS], sum[V], squares[V];
        YK__UNROLL for (int v = 0; v < Way::CHANNELS; v++) pivot[v] = r.c < j.channels ? pivot_of<E>(j, r.c + v) : 0;
        YK__UNROLL for (int v = 0; v < V; v++) sum[v] = squares[v] = 0;
        YK__LOOP for (int64_t i = r.from; i < r.to; i += TIMES * r.step)
        {
            pack_words<typename Way::packed> read[TIMES];
            YK__UNROLL for (int u = 0; u < TIMES; u++)
            {
                read[u].clear();
                if (i + u * r.step < r.to)
                    read[u].load(Way::address(j, X, r.c, i + u * r.step));
            }
            YK__UNROLL for (int u = 0; u < TIMES; u++)
            {
                if (i + u * r.step >= r.to)
                    continue;
                typename Way::packed x = read[u].elements();
                YK__UNROLL for (int v = 0; v < V; v++)
                {
                    double d = (double)E::load(x.of[v]) - pivot[v % Way::CHANNELS];
                    sum[v] += d;
                    squares[v] = yk__fma_f64(d, d, squares[v]);
                }
            }
        }
        sums_put<Way>(j, r, shared, sum, squares);
    }
}

/* The channel's sums over its parts, for all threads of the block. */
static YK__DEVICE void sums_of(const batch_job &j, yk__block<double> shared, int64_t c, double *sum, double *other)
{
    yk__global<const double> sums(j.sums);
    double a = 0, b = 0;
    YK__LOOP for (int64_t part = threadIdx.x; part < j.parts; part += THREADS)
    {
        a += sums[(c * j.parts + part) * 2];
        b += sums[(c * j.parts + part) * 2 + 1];
    }
    *sum = block_sum<double>(shared, a);
    *other = block_sum<double>(shared, b);
}

/* ---- Note [Where relu cuts] ---- */

/* The numbers that E stores, in their order: 0, and those above and below it counted from there. */
template <typename E> struct ordered {
    typedef typename E::stored stored;
    static YK__DEVICE int64_t infinity()
    {
        return key_of(E::store((typename E::number)INFINITY));
    }
    static YK__DEVICE int64_t key_of(stored x)
    {
        uint64_t bits = 0, sign = (uint64_t)1 << (8 * sizeof(x) - 1);
        memcpy(&bits, &x, sizeof(x));
        return bits & sign ? -(int64_t)(bits - sign) : (int64_t)bits;
    }
    static YK__DEVICE double value_of(int64_t key)
    {
        uint64_t bits = key < 0 ? (uint64_t)-key + ((uint64_t)1 << (8 * sizeof(stored) - 1)) : (uint64_t)key;
        stored x;
        memcpy(&x, &bits, sizeof(x));
        return (double)E::load(x);
    }
};

/* Whether relu keeps the result of x. */
template <typename E> static YK__DEVICE bool relu_keeps(double x, double slope, double rest)
{
    double y = yk__fma_f64(x, slope, rest);
    y = y <= 0 ? 0 : y;
    return !(E::load(E::store((typename E::number)y)) <= 0);
}

/* Sets *sign and *edge. `low` is cut always, `high` never: what is between them is halved once steps away from the
 * guess that double have passed the edge. */
template <typename E> static YK__DEVICE void find_edge(double slope, double rest, double *sign, double *edge)
{
    enum { STEPS = 12 };
    *sign = slope > 0 ? 1 : slope < 0 ? -1 : 0;
    if (*sign == 0 || rest != rest) {
        *sign = 0;
        *edge = relu_keeps<E>(0, slope, rest) ? -INFINITY : INFINITY;
        return;
    }
    int64_t high = ordered<E>::infinity(), low = -high - 1;
    double guess = *sign * (-rest / slope);
    int64_t at = guess == guess ? ordered<E>::key_of(E::store((typename E::number)guess)) : 0, step = 1;
    at = at < -high ? -high : at > high - 1 ? high - 1 : at;
    YK__LOOP for (int tries = 0; high > low + 1; tries++)
    {
        bool kept = relu_keeps<E>(*sign * ordered<E>::value_of(at), slope, rest);
        if (kept)
            high = at;
        else
            low = at;
        at = tries >= STEPS ? low : kept ? at - step : at + step;
        step = tries >= STEPS ? 0 : 2 * step;
        if (at <= low || at >= high)
            at = (low >> 1) + (high >> 1) + (low & high & 1);
    }
    *edge = ordered<E>::value_of(high);
}

template <typename E> YK__KERNEL(THREADS) batch_statistics_kernel(batch_job j)
{
    typedef typename E::statistic S;
    YK__SHARED(double, shared);
    double count = (double)j.inside.total;
    if (j.batches && blockIdx.x == 0 && threadIdx.x == 0)
        *yk__global<int64_t>(j.batches) += 1;
    YK__LOOP for (int64_t c = blockIdx.x; c < j.channels; c += gridDim.x)
    {
        double mean, var, sum = 0, squares = 0;
        if (j.training) {
            sums_of(j, shared, c, &sum, &squares);
            mean = pivot_of<E>(j, c) + sum / count;
            squares -= sum / count * sum;
            squares = squares < 0 ? 0 : squares;
            var = squares / count;
        } else {
            mean = vector_at<S>(j.running_mean, c);
            var = vector_at<S>(j.running_var, c);
        }
        if (threadIdx.x)
            continue;
        if (j.training && j.has_running) {
            double old_mean = vector_at<S>(j.running_mean, c), old_var = vector_at<S>(j.running_var, c);
            vector_put<S>(j.running_mean, c, old_mean + j.momentum * (mean - old_mean));
            vector_put<S>(j.running_var, c, old_var + j.momentum * (squares / (count - 1) - old_var));
        }
        double invstd = 1.0 / sqrt(var + j.eps), scale = invstd * (j.has_weight ? vector_at<S>(j.weight, c) : 1.0);
        yk__global<double> numbers(j.numbers);
        vector_put<S>(j.mean, c, mean);
        vector_put<S>(j.invstd, c, invstd);
        double rest = (j.has_bias ? vector_at<S>(j.bias, c) : 0.0) - mean * scale;
        numbers[c * NUMBERS + SLOPE] = scale;
        numbers[c * NUMBERS + REST] = rest;
        if (j.edges) {
            double sign, edge;
            find_edge<E>(scale, rest, &sign, &edge);
            yk__global<double> edges(j.edges);
            edges[c * 2] = sign;
            edges[c * 2 + 1] = edge;
        }
    }
}

/* Number `which` of the thread's channels. */
template <typename Way>
static YK__DEVICE void numbers_of(const batch_job &j, const batch_range &r, int which, double *to)
{
    yk__global<const double> numbers(j.numbers);
    YK__UNROLL for (int v = 0; v < Way::CHANNELS; v++) to[v] =
        r.c < j.channels ? numbers[(r.c + v) * NUMBERS + which] : 0;
}

template <typename Way> YK__KERNEL(THREADS) batch_norm_kernel(batch_job j)
{
    typedef typename Way::element E;
    enum { V = Way::V, TIMES = 2 };
    YK__LOOP for (int64_t group = blockIdx.x; group < j.groups; group += gridDim.x)
    {
        batch_range r = range_of<Way>(j, group, false);
        double slope[Way::CHANNELS], rest[Way::CHANNELS];
        numbers_of<Way>(j, r, SLOPE, slope);
        numbers_of<Way>(j, r, REST, rest);
        YK__LOOP for (int64_t i = r.from; i < r.to; i += TIMES * r.step)
        {
            pack_words<typename Way::packed> read[TIMES], residuals[TIMES];
            YK__UNROLL for (int u = 0; u < TIMES; u++)
            {
                read[u].clear(), residuals[u].clear();
                if (i + u * r.step < r.to) {
                    read[u].load(Way::address(j, X, r.c, i + u * r.step));
                    if (j.operand[RESIDUAL] >= 0)
                        residuals[u].load(Way::address(j, RESIDUAL, r.c, i + u * r.step));
                }
            }
            YK__UNROLL for (int u = 0; u < TIMES; u++)
            {
                typename Way::packed x = read[u].elements(), residual = residuals[u].elements();
                YK__UNROLL for (int v = 0; v < V; v++)
                {
                    double y = yk__fma_f64((double)E::load(x.of[v]), slope[v % Way::CHANNELS], rest[v % Way::CHANNELS]);
                    if (j.operand[RESIDUAL] >= 0)
                        y += (double)E::load(residual.of[v]);
                    if (j.relu)
                        y = y <= 0 ? 0 : y;
                    x.of[v] = E::store((typename E::number)y);
                }
                if (i + u * r.step < r.to)
                    *Way::at(j, TO, r.c, i + u * r.step) = x;
            }
        }
    }
}

/* The edges of the thread's channels; none is cut where there are none. */
template <typename Way>
static YK__DEVICE void edges_of(const batch_job &j, const batch_range &r, typename Way::number *sign,
                                typename Way::number *edge)
{
    yk__global<const double> edges(j.edges);
    YK__UNROLL for (int v = 0; v < Way::CHANNELS; v++)
    {
        bool there = j.edges && r.c < j.channels;
        sign[v] = there ? (typename Way::number)edges[(r.c + v) * 2] : 0;
        edge[v] = there ? (typename Way::number)edges[(r.c + v) * 2 + 1] : 0;
    }
}

/* x, and the gradient that reaches the normalisation, of the thread's packs from position i on: none where relu cut,
 * which the result tells where it is there (as RESIDUAL), or the edges. */
template <typename Way, int TIMES>
static YK__DEVICE void read_gradient(const batch_job &j, const batch_range &r, int64_t i,
                                     const typename Way::number *sign, const typename Way::number *edge,
                                     typename Way::packed *x, typename Way::packed *g)
{
    typedef typename Way::element E;
    enum { READS = Way::ADDS ? 4 : 3 };
    pack_words<typename Way::packed> words[READS][TIMES]; /* all under way before the first is looked at */
    YK__UNROLL for (int u = 0; u < TIMES; u++)
    {
        YK__UNROLL for (int k = 0; k < READS; k++) words[k][u].clear();
        if (i + u * r.step >= r.to)
            continue;
        const char *gout = Way::address(j, GOUT, r.c, i + u * r.step);
        words[0][u].load(gout);
        if (Way::ADDS)
            words[READS - 1][u].load(gout + j.addend);
        words[1][u].load(Way::address(j, X, r.c, i + u * r.step));
        if (j.operand[RESIDUAL] >= 0)
            words[2][u].load(Way::address(j, RESIDUAL, r.c, i + u * r.step));
    }
    YK__UNROLL for (int u = 0; u < TIMES; u++)
    {
        typename Way::packed out = words[2][u].elements(), addend = words[READS - 1][u].elements();
        g[u] = words[0][u].elements(), x[u] = words[1][u].elements();
        YK__UNROLL for (int v = 0; v < Way::V; v++)
        {
            if (Way::ADDS)
                g[u].of[v] = E::store(E::load(g[u].of[v]) + E::load(addend.of[v]));
            bool cut = sign[v % Way::CHANNELS] * E::load(x[u].of[v]) < edge[v % Way::CHANNELS];
            if (j.operand[RESIDUAL] >= 0)
                cut = E::load(out.of[v]) <= 0;
            if (cut)
                g[u].of[v] = 0;
        }
    }
}

template <typename Way> YK__KERNEL(THREADS, Way::GRADIENT_BLOCKS) gradient_sums_kernel(batch_job j)
{
    typedef typename Way::element E;
    typedef typename E::statistic S;
    enum { V = Way::V, TIMES = Way::GRADIENT_TIMES };
    YK__SHARED(double, shared);
    YK__LOOP for (int64_t group = blockIdx.x; group < j.groups; group += gridDim.x)
    {
        batch_range r = range_of<Way>(j, group, true);
        double mean[Way::CHANNELS], sum[V], dot[V];
        typename Way::number sign[Way::CHANNELS], edge[Way::CHANNELS];
        edges_of<Way>(j, r, sign, edge);
        YK__UNROLL for (int v = 0; v < Way::CHANNELS; v++) mean[v] =
            r.c < j.channels ? vector_at<S>(j.mean, r.c + v) : 0;
        YK__UNROLL for (int v = 0; v < V; v++) sum[v] = dot[v] = 0;
        YK__LOOP for (int64_t i = r.from; i < r.to; i += TIMES * r.step)
        {
            typename Way::packed x[TIMES] = {}, g[TIMES] = {};
            read_gradient<Way, TIMES>(j, r, i, sign, edge, x, g);
            YK__UNROLL for (int u = 0; u < TIMES; u++) if (i + u * r.step < r.to)
            {
                YK__UNROLL for (int v = 0; v < V; v++)
                {
                    double gradient = (double)E::load(g[u].of[v]);
                    sum[v] += gradient;
                    dot[v] = yk__fma_f64(gradient, (double)E::load(x[u].of[v]) - mean[v % Way::CHANNELS], dot[v]);
                }
                if (j.operand[GRESIDUAL] >= 0)
                    *Way::at(j, GRESIDUAL, r.c, i + u * r.step) = g[u];
            }
        }
        sums_put<Way>(j, r, shared, sum, dot);
    }
}

template <typename E> YK__KERNEL(THREADS) gradient_numbers_kernel(batch_job j)
{
    typedef typename E::statistic S;
    YK__SHARED(double, shared);
    double count = (double)j.inside.total;
    YK__LOOP for (int64_t c = blockIdx.x; c < j.channels; c += gridDim.x)
    {
        double sum, dot, invstd = vector_at<S>(j.invstd, c);
        sums_of(j, shared, c, &sum, &dot);
        dot *= invstd;
        if (threadIdx.x)
            continue;
        yk__global<double> numbers(j.numbers);
        if (j.has_gweight)
            vector_put<S>(j.gweight, c, dot);
        if (j.has_gbias)
            vector_put<S>(j.gbias, c, sum);
        double scale = invstd * (j.has_weight ? vector_at<S>(j.weight, c) : 1.0);
        double along = j.training ? -scale * (dot / count * invstd) : 0;
        numbers[c * NUMBERS + SLOPE] = scale;
        numbers[c * NUMBERS + ALONG] = along;
        numbers[c * NUMBERS + REST] = j.training ? -scale * (sum / count) - along * vector_at<S>(j.mean, c) : 0;
    }
}

template <typename Way> YK__KERNEL(THREADS, Way::GRADIENT_BLOCKS) batch_gradient_kernel(batch_job j)
{
    typedef typename Way::element E;
    enum { V = Way::V, TIMES = Way::GRADIENT_TIMES };
    YK__LOOP for (int64_t group = blockIdx.x; group < j.groups; group += gridDim.x)
    {
        batch_range r = range_of<Way>(j, group, false);
        double slope[Way::CHANNELS], along[Way::CHANNELS], rest[Way::CHANNELS];
        typename Way::number sign[Way::CHANNELS], edge[Way::CHANNELS];
        edges_of<Way>(j, r, sign, edge);
        numbers_of<Way>(j, r, SLOPE, slope);
        numbers_of<Way>(j, r, ALONG, along);
        numbers_of<Way>(j, r, REST, rest);
        YK__LOOP for (int64_t i = r.from; i < r.to; i += TIMES * r.step)
        {
            typename Way::packed x[TIMES] = {}, g[TIMES] = {};
            read_gradient<Way, TIMES>(j, r, i, sign, edge, x, g);
            YK__UNROLL for (int u = 0; u < TIMES; u++)
            {
                YK__UNROLL for (int v = 0; v < V; v++)
                {
                    /* Outside training x is not in it: 0 times one that is not finite would be NaN. */
                    double from = j.training ? (double)E::load(x[u].of[v]) : 0;
                    double gx = yk__fma_f64(from, along[v % Way::CHANNELS], rest[v % Way::CHANNELS]);
                    x[u].of[v] = E::store(
                        (typename E::number)yk__fma_f64((double)E::load(g[u].of[v]), slope[v % Way::CHANNELS], gx));
                }
                if (i + u * r.step < r.to)
                    *Way::at(j, TO, r.c, i + u * r.step) = x[u];
            }
        }
    }
}

static void set_vector(yk__view *to, bool *there, const yk__view *from)
{
    *there = from != NULL;
    if (from)
        *to = *from;
}

/* views[role], NULL for what is not there; addend, of the strides of GOUT, too. */
static void batch_shape(batch_job *j, const yk__view *const *views, const yk__view *addend)
{
    yk__view firsts[YK__LOOP_OPERANDS];
    const yk__view *all[YK__LOOP_OPERANDS];
    int operands = 0;
    int64_t size = (int64_t)yk__size_of(views[X]->dtype), v = size == 8 ? 2 : 4, least;
    for (int p = 0; p < ROLES; p++) {
        j->operand[p] = -1;
        if (!views[p])
            continue;
        yk__view *first = &firsts[operands];
        *first = *views[p];
        j->step[operands] = first->stride[1] * size;
        first->shape[1] = 1;
        all[operands] = first;
        j->operand[p] = operands++;
    }
    yk__loop_init(&j->inside, operands, all, false);
    j->channels = views[X]->shape[1];

    bool beside = j->channels > 1 && j->inside.ndim == 1, dense = true, multiples = true;
    for (int k = 0; k < operands; k++) {
        beside = beside && j->step[k] == size;
        dense = dense && j->inside.stride[0][k] == size;
    }
    j->channels_last = beside;
    int64_t run = beside ? j->channels : j->inside.shape[0];
    j->addend = addend ? (int64_t)((intptr_t)addend->data - (intptr_t)views[GOUT]->data) : 0;
    multiples = j->addend % (v * size) == 0;
    for (int k = 0; k < operands; k++) {
        multiples = multiples && (uintptr_t)j->inside.data[k] % (uintptr_t)(v * size) == 0;
        multiples = multiples && (beside || j->step[k] % (v * size) == 0);
        for (int d = beside ? 0 : 1; d < j->inside.ndim; d++)
            multiples = multiples && j->inside.stride[d][k] % (v * size) == 0;
    }
    j->packs = (beside || dense) && run % v == 0 && multiples;
    v = j->packs ? v : 1;

    j->columns = 1;
    while (beside && j->columns < MOST_COLUMNS && j->columns * v < j->channels)
        j->columns *= 2;
    j->groups = beside ? (j->channels + j->columns * v - 1) / (j->columns * v) : j->channels;
    least = beside ? THREADS / j->columns : THREADS * v; /* positions that a block takes at once */
    int64_t wanted = (ENOUGH_BLOCKS + j->groups - 1) / j->groups, count = j->inside.total;
    j->part = (count + wanted - 1) / wanted;
    j->part = (j->part + least - 1) / least * least;
    j->parts = j->part ? (count + j->part - 1) / j->part : 0;
}

/* Memory for sums and numbers. */
static yk_status batch_begin(int device, batch_job *j, cudaStream_t *stream, yk__storage **memory)
{
    yk_device where = {YK_CUDA, (int16_t)device};
    yk_status status = cuda_use(device, stream);
    if (status)
        return status;
    size_t sums = (size_t)(j->channels * j->parts * 2), numbers = (size_t)(j->channels * NUMBERS);
    j->sums = (double *)cuda_yoke->workspace_get(where, (sums + numbers) * sizeof(double), memory);
    j->numbers = j->sums ? j->sums + sums : NULL;
    return j->sums ? YK_OK : YK_ERR_MEMORY;
}

#define EACH_WAY(kernel, E, adds, name, shared)                                                                        \
    do {                                                                                                               \
        void (*packs)(batch_job) =                                                                                     \
            j.channels_last ? kernel<batch_way<E, true, true, adds>> : kernel<batch_way<E, true, false, adds>>;        \
        void (*single)(batch_job) =                                                                                    \
            j.channels_last ? kernel<batch_way<E, false, true, adds>> : kernel<batch_way<E, false, false, adds>>;      \
        void (*chosen)(batch_job) = j.packs ? packs : single;                                                          \
        YK__LAUNCH(name, chosen, dim3(walk_rows(device, j.groups), (unsigned)j.parts), THREADS, shared, stream, j);    \
    } while (0)
/* Shared memory of sums_put. */
#define SUMS(E) ((size_t)(THREADS * batch_way<E, true, true>::V) * sizeof(double))
#define EACH_CHANNEL(kernel, E, name)                                                                                  \
    YK__LAUNCH(name, kernel<E>, walk_rows(device, j.channels), THREADS, WARPS * sizeof(double), stream, j)

yk_status cuda_batch_norm(int device, const yk__batch_norm *p, const yk__view *out, const yk__view *mean,
                          const yk__view *invstd, const yk__view *x, const yk__view *residual, const yk__view *weight,
                          const yk__view *bias, const yk__view *running_mean, const yk__view *running_var)
{
    const yk__view *views[] = {out, x}, *roles[ROLES] = {x, out, residual, NULL, NULL};
    batch_job j = {};
    bool unused;
    cudaStream_t stream = NULL;
    yk__storage *memory = NULL;
    batch_shape(&j, roles, NULL);
    j.mean = *mean, j.invstd = *invstd, j.training = p->training, j.relu = p->relu;
    j.momentum = p->momentum, j.eps = p->eps;
    j.edges = p->edges, j.batches = p->batches;
    set_vector(&j.weight, &j.has_weight, weight);
    set_vector(&j.bias, &j.has_bias, bias);
    set_vector(&j.running_mean, &j.has_running, running_mean);
    set_vector(&j.running_var, &unused, running_var);
    if (j.channels == 0 || j.inside.total == 0)
        return YK_OK;
    yk_status status = batch_begin(device, &j, &stream, &memory);
    if (status)
        return status;
#define BATCH_NORM(E)                                                                                                  \
    do {                                                                                                               \
        if (j.training)                                                                                                \
            EACH_WAY(batch_sums_kernel, E, false, "batch_norm", SUMS(E));                                              \
        EACH_CHANNEL(batch_statistics_kernel, E, "batch_norm");                                                        \
        EACH_WAY(batch_norm_kernel, E, false, "batch_norm", 0);                                                        \
    } while (0)
    FLOATING(x->dtype, BATCH_NORM);
    cuda_yoke->storage_release(memory); /* for those behind on the device's queue */
    return cuda_launched(device, "batch_norm", 2, views);
}

yk_status cuda_batch_norm_backward(int device, const yk__batch_norm *p, const yk__view *gx, const yk__view *gresidual,
                                   const yk__view *gweight, const yk__view *gbias, const yk__view *gout,
                                   const yk__view *addend, const yk__view *x, const yk__view *out,
                                   const yk__view *weight, const yk__view *mean, const yk__view *invstd)
{
    const yk__view *views[] = {gout, x}, *roles[ROLES] = {x, gx, p->relu && !p->edges ? out : NULL, gout, gresidual};
    batch_job j = {};
    cudaStream_t stream = NULL;
    yk__storage *memory = NULL;
    batch_shape(&j, roles, addend);
    j.mean = *mean, j.invstd = *invstd, j.training = p->training, j.edges = p->relu ? p->edges : NULL;
    if (addend && !gresidual)
        j.operand[GRESIDUAL] = j.operand[TO];
    set_vector(&j.weight, &j.has_weight, weight);
    set_vector(&j.gweight, &j.has_gweight, gweight);
    set_vector(&j.gbias, &j.has_gbias, gbias);
    if (j.channels == 0 || j.inside.total == 0)
        return YK_OK;
    yk_status status = batch_begin(device, &j, &stream, &memory);
    if (status)
        return status;
#define BATCH_NORM_BACKWARD(E)                                                                                         \
    do {                                                                                                               \
        if (addend)                                                                                                    \
            EACH_WAY(gradient_sums_kernel, E, true, "batch_norm_backward", SUMS(E));                                   \
        else                                                                                                           \
            EACH_WAY(gradient_sums_kernel, E, false, "batch_norm_backward", SUMS(E));                                  \
        EACH_CHANNEL(gradient_numbers_kernel, E, "batch_norm_backward");                                               \
        if (j.operand[GRESIDUAL] >= 0) { /* the first pass left it there */                                            \
            j.operand[GOUT] = j.operand[GRESIDUAL];                                                                    \
            j.operand[RESIDUAL] = -1;                                                                                  \
            j.edges = NULL;                                                                                            \
        }                                                                                                              \
        if (gx)                                                                                                        \
            EACH_WAY(batch_gradient_kernel, E, false, "batch_norm_backward", 0);                                       \
    } while (0)
    FLOATING(x->dtype, BATCH_NORM_BACKWARD);
    cuda_yoke->storage_release(memory); /* for those behind on the device's queue */
    return cuda_launched(device, "batch_norm_backward", 2, views);
}
