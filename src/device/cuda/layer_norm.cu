/*
 * layer_norm.cu - the slots layer_norm and layer_norm_backward. Layer: device/cuda.
 *
 * A warp takes a row of up to 1,024 elements, a block one of up to 4,096 (f64: half as many), and holds it (rows.h), so
 * that it is read once; of a longer one a block reads the elements again. Sums are kept in f64 and added in an order
 * that the sizes give alone. The gradients of weight and bias are sums over the rows: blocks add up parts of the rows,
 * COLUMNS threads V columns each side by side, and a second launch adds the parts. Derivations: docs/autograd.md.
 */
#include "device/cuda/rows.h"

/* ENOUGH_BLOCKS fill any GPU there is, four to a multiprocessor. */
enum { THREADS = WALK_THREADS, WARPS = THREADS / LANES, ENOUGH_BLOCKS = 528 };
enum { COLUMNS = 64, DOWN = THREADS / COLUMNS };

typedef struct layer_job {
    yk__view x, to, gout, weight, bias, mean, invstd, gweight, gbias;
    bool has_to, has_weight, has_bias, has_gweight, has_gbias;
    bool aligned;                /* packs of all rows can be read at once */
    bool held_aligned;           /* and of weight and bias */
    int64_t groups, parts, part; /* of COLUMNS * V columns; of the rows, and the rows of one */
    double *sums;                /* (2, parts, width): of gradients, and of their products with the normalised x */
    double eps;
} layer_job;

template <typename S> static YK__DEVICE double vector_at(const yk__view &v, int64_t c)
{
    return (double)get<S>(v, c * v.stride[0]);
}
template <typename S> static YK__DEVICE typename S::number number_at(const yk__view &v, int64_t c)
{
    return get<S>(v, c * v.stride[0]);
}
template <typename S> static YK__DEVICE void vector_put(const yk__view &v, int64_t c, double x)
{
    put<S>(v, c * v.stride[0], (typename S::number)x);
}
template <typename E> static YK__DEVICE double matrix_at(const yk__view &v, int64_t row, int64_t i)
{
    return (double)get<E>(v, row * v.stride[0] + i * v.stride[1]);
}

/* A row of a matrix, brought to registers and back. */
template <typename Row>
static YK__DEVICE void load_row(const yk__view &v, int64_t row, typename Row::stored none, Row *to)
{
    int64_t size = sizeof(typename Row::stored);
    to->load(static_cast<const char *>(v.data) + row * v.stride[0] * size, v.stride[1] * size, v.shape[1], none);
}
template <typename Row> static YK__DEVICE void store_row(const yk__view &v, int64_t row, const Row &from)
{
    int64_t size = sizeof(typename Row::stored);
    from.store(static_cast<char *>(v.data) + row * v.stride[0] * size, v.stride[1] * size, v.shape[1]);
}

/* Weights or biases of the row's pack h; `none` after the end, and where there are none. */
template <typename Row>
static YK__DEVICE pack<typename Row::E::number, Row::V> vector_pack(const yk__view &v, bool there, int64_t width, int h,
                                                                    typename Row::E::number none)
{
    typedef typename Row::E::statistic S;
    typedef pack<typename Row::E::number, Row::V> packed;
    int i = Row::position(h);
    packed x;
    YK__UNROLL for (int k = 0; k < Row::V; k++) x.of[k] = none;
    if constexpr (Row::IN_PACKS) {
        if (there && i < (int)width)
            x = *yk__global<const packed>(static_cast<const packed *>(v.data) + i / Row::V);
    } else if (there) {
        YK__UNROLL for (int k = 0; k < Row::V; k++) if (i + k < (int)width) x.of[k] = number_at<S>(v, i + k);
    }
    return x;
}

#define EACH_ROW(row, rows, team)                                                                                      \
    YK__LOOP for (int64_t row = (int64_t)(THREADS / (team)) * blockIdx.x + threadIdx.x / (team); row < (rows);         \
                  row += (int64_t)(THREADS / (team)) * gridDim.x)

template <typename Row> HELD_KERNEL(Row) held_norm_kernel(layer_job j)
{
    typedef typename Row::E E;
    typedef typename E::statistic S;
    typedef typename E::number number;
    typedef typename E::stored stored;
    enum { V = Row::V, TEAM = Row::TEAM };
    YK__SHARED(double, shared);
    int64_t width = j.x.shape[1];
    EACH_ROW(row, j.x.shape[0], TEAM)
    {
        Row x;
        stored first = yk__global<const stored>(static_cast<const stored *>(j.x.data))[row * j.x.stride[0]];
        double sum = 0, squares = 0, pivot = (double)E::load(first);
        pivot = pivot - pivot == 0 ? pivot : 0;
        load_row(j.x, row, first, &x); /* filled with `first`, whose distance from the pivot is 0, after the row's
                                        * end */
        EACH_HELD(Row, h, v, width)
        {
            double d = (double)E::load(x.x[h].of[v]) - pivot;
            sum += d;
            squares = yk__fma_f64(d, d, squares);
        }
        sum = team_sum<TEAM, double>(shared, sum);
        squares = team_sum<TEAM, double>(shared, squares) - sum / (double)width * sum;
        double mean = pivot + sum / (double)width;
        double invstd = 1.0 / sqrt((squares < 0 ? 0 : squares) / (double)width + j.eps);
        if (threadIdx.x % TEAM == 0) {
            vector_put<S>(j.mean, row, mean);
            vector_put<S>(j.invstd, row, invstd);
        }
        number center = (number)mean, scale = (number)invstd;
        EACH_HELD_PACK(Row, h, width)
        {
            pack<number, V> weight = vector_pack<Row>(j.weight, j.has_weight, width, h, 1);
            pack<number, V> bias = vector_pack<Row>(j.bias, j.has_bias, width, h, 0);
            YK__UNROLL for (int v = 0; v < V; v++)
            {
                number y = (E::load(x.x[h].of[v]) - center) * scale;
                x.x[h].of[v] = E::store(y * weight.of[v] + bias.of[v]);
            }
        }
        store_row(j.to, row, x);
    }
}

template <typename Row> HELD_KERNEL(Row) held_gradient_kernel(layer_job j)
{
    typedef typename Row::E E;
    typedef typename E::statistic S;
    typedef typename E::number number;
    enum { V = Row::V, TEAM = Row::TEAM };
    YK__SHARED(double, shared);
    int64_t width = j.x.shape[1];
    EACH_ROW(row, j.x.shape[0], TEAM)
    {
        Row x, gout;
        double mean = vector_at<S>(j.mean, row), invstd = vector_at<S>(j.invstd, row), sum = 0, dot = 0;
        load_row(j.x, row, 0, &x);
        load_row(j.gout, row, 0, &gout);
        EACH_HELD_PACK(Row, h, width)
        {
            pack<number, V> weight = vector_pack<Row>(j.weight, j.has_weight, width, h, 1);
            YK__UNROLL for (int v = 0; v < V; v++)
            {
                double g = (double)E::load(gout.x[h].of[v]) * (double)weight.of[v];
                sum += g;
                dot = yk__fma_f64(g, (double)E::load(x.x[h].of[v]) - mean, dot);
            }
        }
        sum = team_sum<TEAM, double>(shared, sum) / (double)width;
        dot = team_sum<TEAM, double>(shared, dot) * invstd * invstd / (double)width;
        number center = (number)mean, scale = (number)invstd, even = (number)sum, along = (number)dot;
        EACH_HELD_PACK(Row, h, width)
        {
            pack<number, V> weight = vector_pack<Row>(j.weight, j.has_weight, width, h, 1);
            YK__UNROLL for (int v = 0; v < V; v++)
            {
                number g = E::load(gout.x[h].of[v]) * weight.of[v];
                x.x[h].of[v] = E::store(scale * (g - even - (E::load(x.x[h].of[v]) - center) * along));
            }
        }
        store_row(j.to, row, x);
    }
}

/* ---- rows that no team holds ---- */
template <typename E> YK__KERNEL(THREADS) long_norm_kernel(layer_job j)
{
    typedef typename E::statistic S;
    YK__SHARED(double, shared);
    int64_t width = j.x.shape[1];
    EACH_ROW(row, j.x.shape[0], THREADS)
    {
        double sum = 0, squares = 0;
        YK__LOOP for (int64_t i = threadIdx.x; i < width; i += THREADS) sum += matrix_at<E>(j.x, row, i);
        double mean = block_sum<double>(shared, sum) / (double)width;
        YK__LOOP for (int64_t i = threadIdx.x; i < width; i += THREADS)
        {
            double d = matrix_at<E>(j.x, row, i) - mean;
            squares = yk__fma_f64(d, d, squares);
        }
        double invstd = 1.0 / sqrt(block_sum<double>(shared, squares) / (double)width + j.eps);
        if (threadIdx.x == 0) {
            vector_put<S>(j.mean, row, mean);
            vector_put<S>(j.invstd, row, invstd);
        }
        YK__LOOP for (int64_t i = threadIdx.x; i < width; i += THREADS)
        {
            double y = (matrix_at<E>(j.x, row, i) - mean) * invstd;
            y = y * (j.has_weight ? vector_at<S>(j.weight, i) : 1.0) + (j.has_bias ? vector_at<S>(j.bias, i) : 0.0);
            put<E>(j.to, row * j.to.stride[0] + i * j.to.stride[1], (typename E::number)y);
        }
    }
}

template <typename E> YK__KERNEL(THREADS) long_gradient_kernel(layer_job j)
{
    typedef typename E::statistic S;
    YK__SHARED(double, shared);
    int64_t width = j.x.shape[1];
    EACH_ROW(row, j.x.shape[0], THREADS)
    {
        double mean = vector_at<S>(j.mean, row), invstd = vector_at<S>(j.invstd, row), sum = 0, dot = 0;
        YK__LOOP for (int64_t i = threadIdx.x; i < width; i += THREADS)
        {
            double g = matrix_at<E>(j.gout, row, i) * (j.has_weight ? vector_at<S>(j.weight, i) : 1.0);
            sum += g;
            dot = yk__fma_f64(g, matrix_at<E>(j.x, row, i) - mean, dot);
        }
        sum = block_sum<double>(shared, sum) / (double)width;
        dot = block_sum<double>(shared, dot) * invstd * invstd / (double)width;
        YK__LOOP for (int64_t i = threadIdx.x; i < width; i += THREADS)
        {
            double g = matrix_at<E>(j.gout, row, i) * (j.has_weight ? vector_at<S>(j.weight, i) : 1.0);
            double gx = invstd * (g - sum - (matrix_at<E>(j.x, row, i) - mean) * dot);
            put<E>(j.to, row * j.to.stride[0] + i * j.to.stride[1], (typename E::number)gx);
        }
    }
}

/* ---- gradients of weight and bias ---- */
template <typename E> YK__KERNEL(THREADS) column_sums_kernel(layer_job j)
{
    typedef typename E::statistic S;
    enum { V = row_pack<E>::V, TIMES = 2 };
    typedef pack<typename E::stored, V> packed;
    typedef typename E::stored stored;
    YK__SHARED(double, shared);
    yk__global<double> sums(j.sums);
    int64_t width = j.x.shape[1], rows = j.x.shape[0];
    int thread = (int)threadIdx.x, down = thread / COLUMNS;
    YK__LOOP for (int64_t piece = blockIdx.x; piece < j.groups * j.parts; piece += gridDim.x)
    {
        int64_t part = piece / j.groups, column = (piece % j.groups * COLUMNS + thread % COLUMNS) * V;
        int64_t to = (part + 1) * j.part < rows ? (part + 1) * j.part : rows;
        double sum[2][V];
        YK__UNROLL for (int v = 0; v < V; v++) sum[0][v] = sum[1][v] = 0;
        YK__LOOP for (int64_t first = part * j.part + down; first < to && column < width; first += TIMES * DOWN)
        {
            pack_words<packed> read[TIMES], gradients[TIMES];
            typename S::number mean[TIMES], invstd[TIMES];
            YK__UNROLL for (int u = 0; u < TIMES; u++)
            {
                int64_t row = first + u * DOWN;
                read[u].clear(), gradients[u].clear();
                mean[u] = invstd[u] = 0;
                if (row >= to)
                    continue;
                mean[u] = number_at<S>(j.mean, row), invstd[u] = number_at<S>(j.invstd, row);
                int64_t at = row * j.x.stride[0] + column * j.x.stride[1];
                int64_t other = row * j.gout.stride[0] + column * j.gout.stride[1];
                if (j.aligned) {
                    read[u].load(reinterpret_cast<const char *>(static_cast<const stored *>(j.x.data) + at));
                    gradients[u].load(reinterpret_cast<const char *>(static_cast<const stored *>(j.gout.data) + other));
                    continue;
                }
                packed x = {}, g = {};
                YK__UNROLL for (int v = 0; v < V; v++)
                {
                    if (column + v < width) {
                        x.of[v] =
                            yk__global<const stored>(static_cast<const stored *>(j.x.data))[at + v * j.x.stride[1]];
                        g.of[v] = yk__global<const stored>(
                            static_cast<const stored *>(j.gout.data))[other + v * j.gout.stride[1]];
                    }
                }
                read[u].set(x), gradients[u].set(g);
            }
            YK__UNROLL for (int u = 0; u < TIMES; u++)
            {
                if (first + u * DOWN >= to)
                    continue;
                packed x = read[u].elements(), g = gradients[u].elements();
                double center = (double)mean[u], scale = (double)invstd[u];
                YK__UNROLL for (int v = 0; v < V; v++)
                {
                    double gradient = (double)E::load(g.of[v]);
                    sum[0][v] += gradient;
                    sum[1][v] = yk__fma_f64(gradient, ((double)E::load(x.of[v]) - center) * scale, sum[1][v]);
                }
            }
        }
        YK__UNROLL for (int which = 0; which < 2; which++)
        {
            __syncthreads();
            YK__UNROLL for (int v = 0; v < V; v++) shared[thread * V + v] = sum[which][v];
            __syncthreads();
            for (int half = DOWN / 2; half > 0; half /= 2) {
                if (down < half)
                    YK__UNROLL for (int v = 0; v < V; v++) shared[thread * V + v] +=
                        shared[(thread + half * COLUMNS) * V + v];
                __syncthreads();
            }
            if (down == 0)
                YK__UNROLL for (int v = 0; v < V; v++) if (column + v < width)
                    sums[(which * j.parts + part) * width + column + v] = shared[thread * V + v];
        }
    }
}

/* A lane has a column, a warp every WARPS-th part of it. */
template <typename S> YK__KERNEL(THREADS) column_total_kernel(layer_job j)
{
    enum { TIMES = 4 };
    YK__SHARED(double, shared);
    yk__global<const double> sums(j.sums);
    int64_t width = j.x.shape[1], pieces = (width + LANES - 1) / LANES;
    int thread = (int)threadIdx.x, warp = thread / LANES;
    YK__LOOP for (int64_t piece = blockIdx.x; piece < 2 * pieces; piece += gridDim.x)
    {
        int64_t column = piece % pieces * LANES + thread % LANES, which = piece / pieces;
        double sum = 0;
        YK__LOOP for (int64_t part = warp; part < j.parts && column < width; part += TIMES * WARPS)
        {
            double x[TIMES];
            YK__UNROLL for (int u = 0; u < TIMES; u++) x[u] =
                part + u * WARPS < j.parts ? sums[(which * j.parts + part + u * WARPS) * width + column] : 0;
            YK__UNROLL for (int u = 0; u < TIMES; u++) sum += x[u];
        }
        __syncthreads();
        shared[thread] = sum;
        __syncthreads();
        if (warp || column >= width)
            continue;
        for (int w = 1; w < WARPS; w++)
            sum += shared[w * LANES + thread];
        if (which && j.has_gweight)
            vector_put<S>(j.gweight, column, sum);
        if (!which && j.has_gbias)
            vector_put<S>(j.gbias, column, sum);
    }
}

/* ---- slots ---- */
static void set_vector(yk__view *to, bool *there, const yk__view *from)
{
    *there = from != NULL;
    if (from)
        *to = *from;
}

/* True if a vector, NULL for none, can be read in packs of n. */
static bool vector_aligned(const yk__view *v, int64_t n)
{
    return !v || (v->stride[0] == 1 && v->shape[0] % n == 0 && (uintptr_t)v->data % PACK_BYTES == 0);
}

static bool matrix_aligned(const yk__view *v)
{
    size_t size = yk__size_of(v->dtype);
    return rows_aligned(v->data, v->stride[1] * (int64_t)size, v->stride[0] * (int64_t)size, v->shape[1], size);
}

/* held(row) is a kernel of rows that are held. */
#define LAUNCH_ROWS(name, held, longer, E)                                                                             \
    do {                                                                                                               \
        void (*kernel)(layer_job) = KERNEL_OF_ROWS(E, width, j.held_aligned, held, longer<E>);                         \
        YK__LAUNCH(name, kernel, blocks_of_rows<E>(device, width, rows), THREADS, WARPS * sizeof(double), stream, j);  \
    } while (0)
#define HELD_NORM(...)     held_norm_kernel<__VA_ARGS__>
#define HELD_GRADIENT(...) held_gradient_kernel<__VA_ARGS__>

yk_status cuda_layer_norm(int device, double eps, const yk__view *out, const yk__view *mean, const yk__view *invstd,
                          const yk__view *x, const yk__view *weight, const yk__view *bias)
{
    const yk__view *views[] = {out, x};
    layer_job j = {};
    cudaStream_t stream = NULL;
    int64_t rows = x->shape[0], width = x->shape[1];
    j.x = *x, j.to = *out, j.mean = *mean, j.invstd = *invstd, j.eps = eps;
    j.aligned = matrix_aligned(x) && matrix_aligned(out);
    j.held_aligned = j.aligned && vector_aligned(weight, x->dtype == YK_F64 ? 2 : 4) &&
                     vector_aligned(bias, x->dtype == YK_F64 ? 2 : 4);
    set_vector(&j.weight, &j.has_weight, weight);
    set_vector(&j.bias, &j.has_bias, bias);
    yk_status status = cuda_use(device, &stream);
    if (status || rows == 0 || width == 0)
        return status;
#define LAYER_NORM(E) LAUNCH_ROWS("layer_norm", HELD_NORM, long_norm_kernel, E)
    FLOATING(x->dtype, LAYER_NORM);
    return cuda_launched(device, "layer_norm", 2, views);
}

yk_status cuda_layer_norm_backward(int device, const yk__view *gx, const yk__view *gweight, const yk__view *gbias,
                                   const yk__view *gout, const yk__view *x, const yk__view *weight,
                                   const yk__view *mean, const yk__view *invstd)
{
    const yk__view *views[] = {gout, x};
    layer_job j = {};
    cudaStream_t stream = NULL;
    yk__storage *memory = NULL;
    int64_t rows = x->shape[0], width = x->shape[1], v = x->dtype == YK_F64 ? 2 : 4;
    j.x = *x, j.gout = *gout, j.mean = *mean, j.invstd = *invstd;
    j.aligned = matrix_aligned(x) && matrix_aligned(gout) && (!gx || matrix_aligned(gx));
    j.held_aligned = j.aligned && vector_aligned(weight, v);
    set_vector(&j.to, &j.has_to, gx);
    set_vector(&j.weight, &j.has_weight, weight);
    set_vector(&j.gweight, &j.has_gweight, gweight);
    set_vector(&j.gbias, &j.has_gbias, gbias);
    yk_status status = cuda_use(device, &stream);
    if (status || width == 0)
        return status;
    if (j.has_gweight || j.has_gbias) {
        j.groups = (width + COLUMNS * v - 1) / (COLUMNS * v);
        int64_t wanted = (ENOUGH_BLOCKS + j.groups - 1) / j.groups, most = (rows + 2 * DOWN - 1) / (2 * DOWN);
        j.part = (rows + wanted - 1) / wanted;
        j.part = most < wanted ? (int64_t)(2 * DOWN) : j.part;
        j.parts = rows ? (rows + j.part - 1) / j.part : 0;
        yk_device where = {YK_CUDA, (int16_t)device};
        size_t bytes = (size_t)(2 * j.parts * width + 1) * sizeof(double);
        j.sums = (double *)cuda_yoke->workspace_get(where, bytes, &memory);
        if (!j.sums)
            return YK_ERR_MEMORY;
    }
#define LAYER_NORM_BACKWARD(E)                                                                                         \
    do {                                                                                                               \
        if (j.has_to && rows)                                                                                          \
            LAUNCH_ROWS("layer_norm_backward", HELD_GRADIENT, long_gradient_kernel, E);                                \
        if (j.has_gweight || j.has_gbias) {                                                                            \
            if (rows)                                                                                                  \
                YK__LAUNCH("layer_norm_backward", column_sums_kernel<E>, walk_rows(device, j.groups *j.parts),         \
                           THREADS, THREADS *row_pack<E>::V * sizeof(double), stream, j);                              \
            YK__LAUNCH("layer_norm_backward", column_total_kernel<E::statistic>,                                       \
                       walk_rows(device, 2 * ((width + LANES - 1) / LANES)), THREADS, THREADS * sizeof(double),        \
                       stream, j);                                                                                     \
        }                                                                                                              \
    } while (0)
    FLOATING(x->dtype, LAYER_NORM_BACKWARD);
    if (memory)
        cuda_yoke->storage_release(memory); /* only later work on the device's queue can take it */
    return cuda_launched(device, "layer_norm_backward", 2, views);
}
