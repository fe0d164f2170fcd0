/*
 * batch_norm.cu - the slots batch_norm and batch_norm_backward. Layer: device/cuda.
 *
 * Three launches: sums of parts of each channel; from these each channel's statistics, or sums of its gradient, and the
 * numbers that an element needs; the elements. Sums are kept in f64; the parts, and the order within them and among
 * them, follow from the sizes, the order of the dimensions, and whether packs can be read (packs.h). Where the channels
 * lie side by side (channels last, or a matrix), a thread takes V channels of positions at a fixed distance, and its
 * neighbours take the channels beside them; else a block takes a part of one channel, its threads V positions each. V
 * is 1 where the operands allow no packs. Derivations: docs/autograd.md.
 *
 * Sums begin with the last parts, and the elements with the first: the parts that the caches still hold are read again
 * first.
 *
 * Note [Where relu cuts]
 * Backward needs to know of the result where relu made it 0. Without a residual the result is f(x) = slope x + rest,
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
#include "device/cuda/reciprocal.h"
#include "device/cuda/sums.h"

/* ENOUGH_BLOCKS fill any GPU there is, BLOCKS to a multiprocessor. */
enum { THREADS = WALK_THREADS, WARPS = THREADS / LANES, BLOCKS = 4, ENOUGH_BLOCKS = 132 * BLOCKS, MOST_COLUMNS = 64 };
/* The most positions of a part: an int holds them, and a few steps more. */
static const int64_t MOST_POSITIONS = 1 << 30;

/* A tensor (N,C,...) as channels: operand k of `inside` is the first element of a channel 0, and channels are step[k]
 * bytes apart. Operands by their roles: x, then out or gx, residual (in backward: the result, as far as it is read),
 * gout, the residual's gradient; one that is not there is x once more. */
enum { X, TO, RESIDUAL, GOUT, GRESIDUAL, ROLES };
typedef struct batch_job {
    yk__loop inside;
    int64_t channels, step[ROLES];
    bool there[ROLES];
    int64_t addend; /* bytes from an element of gout to what is added to it; batch_way.ADDS says whether */
    bool packs;     /* V elements of every operand can be read at once */
    bool channels_last;
    int columns;            /* threads side by side that take V channels each; a power of two */
    int position_stride;    /* positions from one that a thread takes to its next */
    int64_t advance[ROLES]; /* and bytes, with channels last */
    /* For packs along channels: a division by the length of a row; bytes from one row to
     * the next, and those on top between the last row of dimension d and the first of the next. */
    reciprocal row_length;
    uint32_t row_step[ROLES];
    int64_t carry[YK_MAX_DIMS][ROLES];
    int64_t groups;         /* of channels; a block takes one of them, or a channel */
    int64_t parts, part;    /* of a channel, and the positions of one */
    double *sums, *numbers; /* (channels, parts, 2); (channels, NUMBERS) */
    double *edges;          /* (channels, 2), or NULL: Note [Where relu cuts] */
    int64_t *batches;
    yk__view mean, invstd, weight, bias, running_mean, running_var, gweight, gbias;
    bool has_weight, has_bias, has_running, has_gweight, has_gbias, training, relu;
    double momentum, eps;
} batch_job;

/* The numbers of its channel that an element needs: forward, y = SLOPE x + REST; backward, gx = SLOPE g + ALONG x +
 * REST. */
enum { SLOPE, REST, ALONG, NUMBERS };

/* The operand that tells backward where relu cut: Note [Where relu cuts]. */
enum { CUT_NOWHERE, CUT_BY_X, CUT_BY_OUT };

/* The order in which a kernel takes elements: V at a time; across channels, or along them. TIMES: packs of x that it
 * reads before it uses the first, for the sums; ELEMENT_TIMES: for the results; GRADIENT_TIMES: of each operand, in
 * backward. On an H200 kernels with 16 bytes of a thread under way moved 2.4 TB/s, with 24 to 32 up to 3.8. */
template <typename E, bool PACKS_OF, bool CHANNELS_LAST, int CUT_BY = CUT_NOWHERE, bool ADDS_TO = false>
struct batch_way {
    typedef E element;
    typedef typename E::number number;
    enum { WIDEST = sizeof(typename E::stored) == 8 ? 2 : 4, V = PACKS_OF ? WIDEST : 1 };
    enum { LAST = CHANNELS_LAST, CHANNELS = LAST ? V : 1 };
    enum { BY_X = CUT_BY == CUT_BY_X, BY_OUT = CUT_BY == CUT_BY_OUT };
    enum { ADDS = ADDS_TO }; /* forward: a residual; backward: gout comes in two parts */
    /* True if backward may leave the gradient in GRESIDUAL: by x relu cuts only where there is no residual. */
    enum { LEAVES = ADDS_TO || CUT_BY != CUT_BY_X };
    enum { MANY = sizeof(typename E::stored) == 2 && CHANNELS_LAST };
    enum { TIMES = MANY ? 4 : 2 };
    enum { ELEMENT_TIMES = !MANY ? 2 : ADDS_TO ? 3 : 4 };
    enum { GRADIENT_TIMES = sizeof(typename E::stored) == 2 ? 2 : 1 };
    typedef pack<typename E::stored, V> packed;
};

template <typename S> static YK__DEVICE double vector_at(const yk__view &v, int64_t c)
{
    return (double)get<S>(v, c * v.stride[0]);
}
template <typename S> static YK__DEVICE void vector_put(const yk__view &v, int64_t c, double x)
{
    put<S>(v, c * v.stride[0], (typename S::number)x);
}

/* The range of a group that a thread takes; its block takes one part: channel c (and those beside it), and of `count`
 * positions from `from` on those that are j.position_stride apart. */
typedef struct batch_range {
    int64_t c, part, from;
    int count;
} batch_range;
template <typename Way> static YK__DEVICE batch_range range_of(const batch_job &j, int64_t group, bool last_first)
{
    int thread = (int)threadIdx.x;
    batch_range r;
    r.part = last_first ? gridDim.y - 1 - blockIdx.y : blockIdx.y;
    r.c = Way::LAST ? (group * j.columns + thread % j.columns) * Way::V : group;
    r.from = r.part * j.part + (Way::LAST ? thread / j.columns : thread * Way::V);
    int64_t to = (r.part + 1) * j.part < j.inside.total ? (r.part + 1) * j.part : j.inside.total;
    r.count = r.c < j.channels ? (int)(to - r.from) : 0;
    return r;
}

/* True if the u-th of a thread's next places is inside the part, of which `left` positions are left, at least one. */
static YK__DEVICE bool is_there(const batch_job &j, int u, int left)
{
    return u == 0 || u * j.position_stride < left;
}

/* V elements of each operand: channels c, c + 1, ... at a position, or positions i, i + 1, ... of channel c. */
template <typename Way> struct batch_address {
    char *of[ROLES];
    YK__DEVICE yk__global<typename Way::packed> at(int role) const
    {
        return yk__global<typename Way::packed>(reinterpret_cast<typename Way::packed *>(of[role]));
    }
};

/* From one of a thread's places to the next: each operand has a pointer, which goes on. Along channels one division
 * tells for all operands how many rows (of `inside`, whose first dimension is one) are passed; where single elements
 * may lie in any way, it finds their place from the channel's first. */
template <typename Way> struct batch_walk {
    char *next[ROLES];
    int64_t position;         /* of single elements along channels */
    uint32_t at, row, before; /* of packs there: where they are, and positions to the next */
    YK__DEVICE batch_walk(const batch_job &j, const batch_range &r)
        : position(r.from), at(0), row(0), before((uint32_t)r.from)
    {
        YK__UNROLL for (int k = 0; k < ROLES; k++) next[k] =
            j.inside.data[k] + r.c * j.step[k] + (Way::LAST ? r.from * j.inside.stride[0][k] : 0);
    }
    YK__DEVICE void go(const batch_job &j)
    {
        uint32_t to = at + before, rows = reciprocal_quotient(to, j.row_length);
        to -= rows * (uint32_t)j.inside.shape[0];
        int64_t along = (int64_t)(int)(to - at) * (int64_t)sizeof(typename Way::element::stored);
        YK__UNROLL for (int k = 0; k < ROLES; k++) next[k] += along + (int64_t)((uint64_t)rows * j.row_step[k]);
        at = to, before = (uint32_t)j.position_stride;
        if (j.inside.ndim > 2)
            carry(j, rows);
    }
    YK__DEVICE void carry(const batch_job &j, uint32_t rows)
    {
        uint32_t from = row, to = row + rows;
        row = to;
        YK__LOOP for (int d = 1; d + 1 < j.inside.ndim; d++)
        {
            from /= (uint32_t)j.inside.shape[d], to /= (uint32_t)j.inside.shape[d];
            YK__UNROLL for (int k = 0; k < ROLES; k++) next[k] += (int64_t)(to - from) * j.carry[d][k];
        }
    }
    /* Takes all places before the first is used, so that their loads are under way together. */
    template <int TIMES> YK__DEVICE void take(const batch_job &j, batch_address<Way> (&address)[TIMES])
    {
        YK__UNROLL for (int u = 0; u < TIMES; u++) address[u] = take_one(j);
    }
    YK__DEVICE batch_address<Way> take_one(const batch_job &j)
    {
        batch_address<Way> address;
        int64_t offset[ROLES] = {};
        if (!Way::LAST && Way::V > 1)
            go(j);
        else if (!Way::LAST)
            walk_offsets<ROLES>(j.inside, position, offset);
        YK__UNROLL for (int k = 0; k < ROLES; k++)
        {
            address.of[k] = next[k] + offset[k];
            next[k] += Way::LAST ? j.advance[k] : 0;
        }
        position += j.position_stride;
        return address;
    }
};

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
    typedef const typename E::stored stored;
    double x = (double)E::load(*yk__global<stored>(reinterpret_cast<stored *>(j.inside.data[X] + c * j.step[X])));
    return x - x == 0 ? x : 0;
}

template <typename Way> YK__KERNEL(THREADS, BLOCKS) batch_sums_kernel(batch_job j)
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
        batch_walk<Way> walk(j, r);
        YK__LOOP for (int left = r.count; left > 0; left -= TIMES * j.position_stride)
        {
            pack_words<typename Way::packed> read[TIMES];
            batch_address<Way> address[TIMES];
            walk.take(j, address);
            YK__UNROLL for (int u = 0; u < TIMES; u++)
            {
                read[u].clear();
                if (is_there(j, u, left))
                    read[u].load(address[u].of[X]);
            }
            YK__UNROLL for (int u = 0; u < TIMES; u++)
            {
                if (!is_there(j, u, left))
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

/* True if relu keeps the result of x. */
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
    enum { V = Way::V, TIMES = Way::ELEMENT_TIMES };
    /* the lower bound of relu, or one that keeps all; rounding keeps the order, so relu may come before it */
    const typename E::number least = j.relu ? 0 : -INFINITY;
    YK__LOOP for (int64_t group = blockIdx.x; group < j.groups; group += gridDim.x)
    {
        batch_range r = range_of<Way>(j, group, false);
        double slope[Way::CHANNELS], rest[Way::CHANNELS];
        numbers_of<Way>(j, r, SLOPE, slope);
        numbers_of<Way>(j, r, REST, rest);
        batch_walk<Way> walk(j, r);
        YK__LOOP for (int left = r.count; left > 0; left -= TIMES * j.position_stride)
        {
            pack_words<typename Way::packed> read[TIMES], residuals[TIMES];
            batch_address<Way> address[TIMES];
            walk.take(j, address);
            YK__UNROLL for (int u = 0; u < TIMES; u++)
            {
                read[u].clear(), residuals[u].clear();
                if (is_there(j, u, left)) {
                    read[u].load(address[u].of[X]);
                    if (Way::ADDS)
                        residuals[u].load(address[u].of[RESIDUAL]);
                }
            }
            YK__UNROLL for (int u = 0; u < TIMES; u++)
            {
                typename Way::packed x = read[u].elements(), residual = residuals[u].elements();
                YK__UNROLL for (int v = 0; v < V; v++)
                {
                    double y = yk__fma_f64((double)E::load(x.of[v]), slope[v % Way::CHANNELS], rest[v % Way::CHANNELS]);
                    if (Way::ADDS)
                        y += (double)E::load(residual.of[v]);
                    x.of[v] = E::store(yk__greater((typename E::number)y, least));
                }
                if (is_there(j, u, left))
                    *address[u].at(TO) = x;
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

/* The part of the gradient g that relu let through: none where it cut. A select, for branches would part a warp. */
template <typename Way>
static YK__DEVICE typename Way::number let_through(typename Way::number g, typename Way::number x,
                                                   typename Way::number out, typename Way::number sign,
                                                   typename Way::number edge)
{
    if (!Way::BY_X && !Way::BY_OUT)
        return g;
    bool cut = Way::BY_OUT ? out <= 0 : sign * x < edge;
    return cut ? 0 : g;
}

/* V elements of x, and of the gradient that reaches the normalisation. */
template <typename Way> struct batch_terms {
    typename Way::packed x;
    typename Way::number g[Way::V];
};

/* Reads the gradient at the thread's next TIMES places, as far as they exist. */
template <typename Way, int TIMES>
static YK__DEVICE void read_gradient(const batch_job &j, const batch_address<Way> (&address)[TIMES], int left,
                                     bool needs_x, const typename Way::number *sign, const typename Way::number *edge,
                                     batch_terms<Way> *terms)
{
    typedef typename Way::element E;
    enum { READS = Way::ADDS ? 4 : 3 };
    pack_words<typename Way::packed> words[READS][TIMES]; /* all under way before the first is looked at */
    YK__UNROLL for (int u = 0; u < TIMES; u++)
    {
        YK__UNROLL for (int k = 0; k < READS; k++) words[k][u].clear();
        if (!is_there(j, u, left))
            continue;
        words[0][u].load(address[u].of[GOUT]);
        if (Way::ADDS)
            words[READS - 1][u].load(address[u].of[GOUT] + j.addend);
        if (needs_x)
            words[1][u].load(address[u].of[X]);
        if (Way::BY_OUT)
            words[2][u].load(address[u].of[RESIDUAL]);
    }
    YK__UNROLL for (int u = 0; u < TIMES; u++)
    {
        typename Way::packed g = words[0][u].elements(), x = words[1][u].elements(), out = words[2][u].elements(),
                             addend = words[READS - 1][u].elements();
        terms[u].x = x;
        YK__UNROLL for (int v = 0; v < Way::V; v++)
        {
            typename Way::number gradient = E::load(g.of[v]);
            if (Way::ADDS)
                gradient = E::rounded(gradient + E::load(addend.of[v]));
            terms[u].g[v] = let_through<Way>(gradient, E::load(x.of[v]), E::load(out.of[v]), sign[v % Way::CHANNELS],
                                             edge[v % Way::CHANNELS]);
        }
    }
}

template <typename Way> YK__KERNEL(THREADS, BLOCKS) gradient_sums_kernel(batch_job j)
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
        batch_walk<Way> walk(j, r);
        YK__LOOP for (int left = r.count; left > 0; left -= TIMES * j.position_stride)
        {
            batch_address<Way> address[TIMES];
            batch_terms<Way> terms[TIMES];
            walk.take(j, address);
            read_gradient(j, address, left, true, sign, edge, terms);
            YK__UNROLL for (int u = 0; u < TIMES; u++) if (is_there(j, u, left))
            {
                typename Way::packed g;
                YK__UNROLL for (int v = 0; v < V; v++)
                {
                    double gradient = (double)terms[u].g[v];
                    sum[v] += gradient;
                    dot[v] = yk__fma_f64(gradient, (double)E::load(terms[u].x.of[v]) - mean[v % Way::CHANNELS], dot[v]);
                    g.of[v] = E::store(terms[u].g[v]);
                }
                if (Way::LEAVES && j.there[GRESIDUAL])
                    *address[u].at(GRESIDUAL) = g;
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

template <typename Way> YK__KERNEL(THREADS, BLOCKS) batch_gradient_kernel(batch_job j)
{
    typedef typename Way::element E;
    enum { V = Way::V, TIMES = Way::GRADIENT_TIMES };
    /* Outside training x is not in it: 0 times one that is not finite would be NaN. */
    const bool by_x = Way::BY_X;
    YK__LOOP for (int64_t group = blockIdx.x; group < j.groups; group += gridDim.x)
    {
        batch_range r = range_of<Way>(j, group, false);
        double slope[Way::CHANNELS], along[Way::CHANNELS], rest[Way::CHANNELS];
        typename Way::number sign[Way::CHANNELS], edge[Way::CHANNELS];
        edges_of<Way>(j, r, sign, edge);
        numbers_of<Way>(j, r, SLOPE, slope);
        numbers_of<Way>(j, r, ALONG, along);
        numbers_of<Way>(j, r, REST, rest);
        batch_walk<Way> walk(j, r);
        YK__LOOP for (int left = r.count; left > 0; left -= TIMES * j.position_stride)
        {
            batch_address<Way> address[TIMES];
            batch_terms<Way> terms[TIMES];
            walk.take(j, address);
            read_gradient(j, address, left, by_x || j.training, sign, edge, terms);
            YK__UNROLL for (int u = 0; u < TIMES; u++)
            {
                typename Way::packed gx;
                YK__UNROLL for (int v = 0; v < V; v++)
                {
                    typename E::number x = by_x && !j.training ? 0 : E::load(terms[u].x.of[v]);
                    double known = yk__fma_f64((double)x, along[v % Way::CHANNELS], rest[v % Way::CHANNELS]);
                    gx.of[v] = E::store(
                        (typename E::number)yk__fma_f64((double)terms[u].g[v], slope[v % Way::CHANNELS], known));
                }
                if (is_there(j, u, left))
                    *address[u].at(TO) = gx;
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

/* Sets the numbers of batch_walk for packs along channels; false where 32 bits are not enough for them. The quotient is
 * exact for positions below 2^31. */
static bool batch_rows(batch_job *j)
{
    const yk__loop *loop = &j->inside;
    int64_t shape = loop->shape[0];
    if (loop->total > MOST_POSITIONS || shape < 2)
        return false;
    j->row_length = reciprocal_of(shape);
    for (int k = 0; k < ROLES; k++) {
        int64_t step = loop->ndim > 1 ? loop->stride[1][k] : 0;
        if (step < 0 || step > UINT32_MAX)
            return false;
        j->row_step[k] = (uint32_t)step;
        for (int d = 1; d + 1 < loop->ndim; d++)
            j->carry[d][k] = loop->stride[d + 1][k] - loop->shape[d] * loop->stride[d][k];
    }
    return true;
}

/* Fills the job's shape and operands from views[role], NULL for those that are not there; addend, of the strides of
 * GOUT, too. */
static void batch_shape(batch_job *j, const yk__view *const *views, const yk__view *addend)
{
    static_assert(ROLES <= YK__LOOP_OPERANDS, "each role is an operand of the loop");
    yk__view firsts[ROLES];
    const yk__view *all[ROLES];
    int64_t size = (int64_t)yk__size_of(views[X]->dtype), v = size == 8 ? 2 : 4, least;
    for (int k = 0; k < ROLES; k++) {
        j->there[k] = views[k] != NULL;
        firsts[k] = views[k] ? *views[k] : *views[X];
        j->step[k] = firsts[k].stride[1] * size;
        firsts[k].shape[1] = 1;
        all[k] = &firsts[k];
    }
    yk__loop_init(&j->inside, ROLES, all, false);
    j->channels = views[X]->shape[1];

    bool beside = j->channels > 1 && j->inside.ndim == 1, dense = true, multiples = true;
    for (int k = 0; k < ROLES; k++) {
        beside = beside && j->step[k] == size;
        dense = dense && j->inside.stride[0][k] == size;
    }
    j->channels_last = beside;
    int64_t run = beside ? j->channels : j->inside.shape[0];
    j->addend = addend ? (int64_t)((intptr_t)addend->data - (intptr_t)views[GOUT]->data) : 0;
    multiples = j->addend % (v * size) == 0;
    for (int k = 0; k < ROLES; k++) {
        multiples = multiples && (uintptr_t)j->inside.data[k] % (uintptr_t)(v * size) == 0;
        multiples = multiples && (beside || j->step[k] % (v * size) == 0);
        for (int d = beside ? 0 : 1; d < j->inside.ndim; d++)
            multiples = multiples && j->inside.stride[d][k] % (v * size) == 0;
    }
    j->packs = (beside || (dense && batch_rows(j))) && run % v == 0 && multiples;
    v = j->packs ? v : 1;

    j->columns = 1;
    while (beside && j->columns < MOST_COLUMNS && j->columns * v < j->channels)
        j->columns *= 2;
    j->groups = beside ? (j->channels + j->columns * v - 1) / (j->columns * v) : j->channels;
    least = beside ? THREADS / j->columns : THREADS * v; /* positions that a block takes at once */
    j->position_stride = (int)least;
    for (int k = 0; k < ROLES; k++)
        j->advance[k] = beside ? least * j->inside.stride[0][k] : 0;
    int64_t wanted = (ENOUGH_BLOCKS + j->groups - 1) / j->groups, count = j->inside.total;
    j->part = (count + wanted - 1) / wanted;
    j->part = (j->part + least - 1) / least * least;
    j->part = j->part < MOST_POSITIONS ? j->part : MOST_POSITIONS;
    j->parts = j->part ? (count + j->part - 1) / j->part : 0;
}

/* Gives the operand of role `from` the role `role` as well, from here on. */
static void batch_becomes(batch_job *j, int from, int role)
{
    j->there[role] = j->there[from];
    j->step[role] = j->step[from];
    j->advance[role] = j->advance[from];
    j->inside.data[role] = j->inside.data[from];
    for (int d = 0; d < j->inside.ndim; d++) {
        j->inside.stride[d][role] = j->inside.stride[d][from];
        j->carry[d][role] = j->carry[d][from];
    }
    j->row_step[role] = j->row_step[from];
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

#define EACH_WAY(kernel, E, cut, adds, name, shared)                                                                   \
    do {                                                                                                               \
        void (*packs)(batch_job) = j.channels_last ? kernel<batch_way<E, true, true, cut, adds>>                       \
                                                   : kernel<batch_way<E, true, false, cut, adds>>;                     \
        void (*single)(batch_job) = j.channels_last ? kernel<batch_way<E, false, true, cut, adds>>                     \
                                                    : kernel<batch_way<E, false, false, cut, adds>>;                   \
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
            EACH_WAY(batch_sums_kernel, E, CUT_NOWHERE, false, "batch_norm", SUMS(E));                                 \
        EACH_CHANNEL(batch_statistics_kernel, E, "batch_norm");                                                        \
        if (residual)                                                                                                  \
            EACH_WAY(batch_norm_kernel, E, CUT_NOWHERE, true, "batch_norm", 0);                                        \
        else                                                                                                           \
            EACH_WAY(batch_norm_kernel, E, CUT_NOWHERE, false, "batch_norm", 0);                                       \
    } while (0)
    FLOATING(x->dtype, BATCH_NORM);
    cuda_yoke->storage_release(memory); /* only later work on the device's queue can take it */
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
    int cut = j.edges ? CUT_BY_X : p->relu ? CUT_BY_OUT : CUT_NOWHERE;
    if ((addend || cut == CUT_BY_OUT) && !gresidual)
        batch_becomes(&j, TO, GRESIDUAL);
    set_vector(&j.weight, &j.has_weight, weight);
    set_vector(&j.gweight, &j.has_gweight, gweight);
    set_vector(&j.gbias, &j.has_gbias, gbias);
    if (j.channels == 0 || j.inside.total == 0)
        return YK_OK;
    yk_status status = batch_begin(device, &j, &stream, &memory);
    if (status)
        return status;
/* Without edges none is cut by x. */
#define BATCH_NORM_BACKWARD(E)                                                                                         \
    do {                                                                                                               \
        if (cut == CUT_BY_OUT && addend)                                                                               \
            EACH_WAY(gradient_sums_kernel, E, CUT_BY_OUT, true, "batch_norm_backward", SUMS(E));                       \
        else if (cut == CUT_BY_OUT)                                                                                    \
            EACH_WAY(gradient_sums_kernel, E, CUT_BY_OUT, false, "batch_norm_backward", SUMS(E));                      \
        else if (addend)                                                                                               \
            EACH_WAY(gradient_sums_kernel, E, CUT_BY_X, true, "batch_norm_backward", SUMS(E));                         \
        else if (cut == CUT_BY_X)                                                                                      \
            EACH_WAY(gradient_sums_kernel, E, CUT_BY_X, false, "batch_norm_backward", SUMS(E));                        \
        else                                                                                                           \
            EACH_WAY(gradient_sums_kernel, E, CUT_NOWHERE, false, "batch_norm_backward", SUMS(E));                     \
        EACH_CHANNEL(gradient_numbers_kernel, E, "batch_norm_backward");                                               \
        if (j.there[GRESIDUAL]) /* the first pass left it there */                                                     \
            batch_becomes(&j, GRESIDUAL, GOUT);                                                                        \
        if (gx && cut == CUT_BY_X && !j.there[GRESIDUAL])                                                              \
            EACH_WAY(batch_gradient_kernel, E, CUT_BY_X, false, "batch_norm_backward", 0);                             \
        else if (gx)                                                                                                   \
            EACH_WAY(batch_gradient_kernel, E, CUT_NOWHERE, false, "batch_norm_backward", 0);                          \
    } while (0)
    FLOATING(x->dtype, BATCH_NORM_BACKWARD);
    cuda_yoke->storage_release(memory); /* only later work on the device's queue can take it */
    return cuda_launched(device, "batch_norm_backward", 2, views);
}
