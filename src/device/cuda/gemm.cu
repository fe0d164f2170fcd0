/*
 * gemm.cu - the slot gemm: by cuBLASLt (blas.c), or by the kernel here. Layer: device/cuda.
 *
 * A block makes a tile of 64 x 64 of out: it brings tiles of a and b, 16 deep, to shared memory, and each of its 256
 * threads adds up 4 x 4 elements, 16 apart in both directions, so that neighbours read neighbouring words. An element
 * is summed in the order of k by fused multiply-adds, whatever the shape: the same bits for the same operands. It reads
 * what is there by any strides, along whichever dimension is contiguous.
 *
 * Beside the slot's dtypes, cuda_gemm takes factors of halves with out, and a bias, of f32, which attention wants.
 */
#include "device/cuda/walk.h"

#include "device/cuda/elements.h"
#include "device/cuda/libraries.h"

enum { TILE = 64, DEPTH = 16, THREADS = 256, SIDE = 16, EACH = TILE / SIDE, PITCH = TILE + 1 };
/* The most blocks of a grid in z, also of libraries' kernels, which have a plane for each matrix of a batch; and in y,
 * where a block goes on with rows of tiles further down: enough to fill any GPU. */
static const int64_t MOST_BLOCKS = 65535, MOST_ROWS = 1024;

typedef struct product {
    void *out, *bias;
    const void *a, *b;
    int64_t batches, m, n, k;
    int64_t out_stride[3], a_stride[3], b_stride[3], bias_stride; /* batch, row, column, in elements */
    bool accumulate;
} product;

/* Factors of E, out and bias of R; both are computed in the same type. */
template <typename E, typename R> YK__KERNEL(THREADS) gemm_kernel(product p)
{
    typedef typename E::number T;
    typedef typename E::stored stored;
    typedef typename R::stored stored_out;
    YK__SHARED(T, shared);
    yk__block<T> tile_a = shared, tile_b = shared + DEPTH * PITCH;
    yk__global<const stored> a(static_cast<const stored *>(p.a)), b(static_cast<const stored *>(p.b));
    yk__global<const stored_out> bias(static_cast<const stored_out *>(p.bias));
    yk__global<stored_out> out(static_cast<stored_out *>(p.out));
    int thread = (int)threadIdx.x, row = thread / SIDE, column = thread % SIDE;
    int64_t first_column = (int64_t)TILE * blockIdx.x, tile_rows = (p.m + TILE - 1) / TILE;
    int64_t own_rows = (tile_rows - blockIdx.y + gridDim.y - 1) / gridDim.y;
    bool a_along_k = p.a_stride[2] == 1, b_along_n = p.b_stride[2] == 1;
    int64_t own_batches = (p.batches - blockIdx.z + gridDim.z - 1) / gridDim.z;
    YK__LOOP for (int64_t tile = 0; tile < own_batches * own_rows; tile++)
    {
        int64_t batch = tile / own_rows * gridDim.z + blockIdx.z,
                first_row = (tile % own_rows * gridDim.y + blockIdx.y) * TILE;
        T sum[EACH][EACH];
        for (int i = 0; i < EACH; i++)
            for (int j = 0; j < EACH; j++)
                sum[i][j] = 0;
        YK__LOOP for (int64_t first_k = 0; first_k < p.k; first_k += DEPTH)
        {
            for (int e = thread; e < TILE * DEPTH; e += THREADS) {
                int i = a_along_k ? e / DEPTH : e % TILE, k = a_along_k ? e % DEPTH : e / TILE;
                bool inside = first_row + i < p.m && first_k + k < p.k;
                tile_a[k * PITCH + i] = inside ? E::load(a[batch * p.a_stride[0] + (first_row + i) * p.a_stride[1] +
                                                           (first_k + k) * p.a_stride[2]])
                                               : (T)0;
                int j = b_along_n ? e % TILE : e / DEPTH;
                k = b_along_n ? e / TILE : e % DEPTH;
                inside = first_column + j < p.n && first_k + k < p.k;
                tile_b[k * PITCH + j] = inside ? E::load(b[batch * p.b_stride[0] + (first_k + k) * p.b_stride[1] +
                                                           (first_column + j) * p.b_stride[2]])
                                               : (T)0;
            }
            __syncthreads();
            int depth = p.k - first_k < DEPTH ? (int)(p.k - first_k) : (int)DEPTH;
            for (int k = 0; k < depth; k++) {
                T x[EACH], y[EACH];
                for (int i = 0; i < EACH; i++)
                    x[i] = tile_a[k * PITCH + row + SIDE * i];
                for (int j = 0; j < EACH; j++)
                    y[j] = tile_b[k * PITCH + column + SIDE * j];
                for (int i = 0; i < EACH; i++)
                    for (int j = 0; j < EACH; j++)
                        sum[i][j] = multiply_add(x[i], y[j], sum[i][j]);
            }
            __syncthreads();
        }
        YK__UNROLL for (int i = 0; i < EACH; i++)
        {
            YK__UNROLL for (int j = 0; j < EACH; j++)
            {
                int64_t m = first_row + row + SIDE * i, n = first_column + column + SIDE * j;
                if (m >= p.m || n >= p.n)
                    continue;
                int64_t at = batch * p.out_stride[0] + m * p.out_stride[1] + n * p.out_stride[2];
                T value = sum[i][j];
                if (p.bias)
                    value += R::load(bias[n * p.bias_stride]);
                if (p.accumulate)
                    value += R::load(out[at]);
                out[at] = R::store(value);
            }
        }
    }
}

static yk_status gemm_of_few(int device, const yk__view *out, const yk__view *a, const yk__view *b,
                             const yk__view *bias, bool accumulate)
{
    const yk__view *views[] = {out, a, b};
    product p = {};
    p.out = out->data, p.a = a->data, p.b = b->data, p.bias = bias ? bias->data : NULL;
    p.batches = out->shape[0], p.m = out->shape[1], p.n = out->shape[2], p.k = a->shape[2];
    p.bias_stride = bias ? bias->stride[0] : 0;
    p.accumulate = accumulate;
    for (int d = 0; d < 3; d++)
        p.out_stride[d] = out->stride[d], p.a_stride[d] = a->stride[d], p.b_stride[d] = b->stride[d];
    if (p.batches == 0 || p.m == 0 || p.n == 0)
        return YK_OK;
    bool taken = false;
    cudaStream_t stream = NULL;
    const cuda_product all = {out, a, b, bias, NULL, accumulate, false};
    yk_status status = cuda_blas_gemm(device, &all, &taken);
    if (!status && !taken)
        status = cuda_use(device, &stream);
    if (status)
        return status;
    cuda_count_work(CUDA_GEMM, taken);
    if (taken)
        return YK_OK;
    int64_t rows = (p.m + TILE - 1) / TILE, columns = (p.n + TILE - 1) / TILE; /* these have room for 2^37 */
    dim3 grid((unsigned)columns, (unsigned)(rows < MOST_ROWS ? rows : MOST_ROWS),
              (unsigned)(p.batches < MOST_BLOCKS ? p.batches : MOST_BLOCKS));
    size_t shared = 2 * DEPTH * PITCH * (out->dtype == YK_F64 ? sizeof(double) : sizeof(float));
    void (*kernel)(product);
    bool same = out->dtype == a->dtype;
#define GEMM(E) kernel = same ? gemm_kernel<E, E> : gemm_kernel<E, E::statistic>
    FLOATING(a->dtype, GEMM);
    YK__LAUNCH("gemm", kernel, grid, THREADS, shared, stream, p);
    return cuda_launched(device, "gemm", 3, views);
}

/* `count` matrices of the batch, from `first` on. */
static yk__view matrices_of(const yk__view *v, int64_t first, int64_t count)
{
    yk__view part = *v;
    part.shape[0] = count;
    part.data = static_cast<char *>(v->data) + first * v->stride[0] * (int64_t)yk__size_of(v->dtype);
    return part;
}

/* Computes as many matrices at once as libraries take. */
yk_status cuda_gemm(int device, const yk__view *out, const yk__view *a, const yk__view *b, const yk__view *bias,
                    bool accumulate)
{
    yk_status status = YK_OK;
    int64_t batches = out->shape[0];
    if (batches <= MOST_BLOCKS)
        return gemm_of_few(device, out, a, b, bias, accumulate);
    for (int64_t first = 0; first < batches && !status; first += MOST_BLOCKS) {
        int64_t count = batches - first < MOST_BLOCKS ? batches - first : MOST_BLOCKS;
        yk__view outs = matrices_of(out, first, count), as = matrices_of(a, first, count);
        yk__view bs = matrices_of(b, first, count);
        status = gemm_of_few(device, &outs, &as, &bs, bias, accumulate);
    }
    return status;
}

yk_status cuda_gemm_relu(int device, const yk__view *out, const yk__view *a, const yk__view *b, const yk__view *bias)
{
    bool taken = false;
    const cuda_product all = {out, a, b, bias, NULL, false, true};
    yk_status status = out->shape[0] && out->shape[1] && out->shape[2] ? cuda_blas_gemm(device, &all, &taken) : YK_OK;
    if (taken)
        cuda_count_work(CUDA_GEMM, true);
    if (status || taken)
        return status;
    status = cuda_gemm(device, out, a, b, bias, false);
    return status ? status : cuda_unary(device, YK__RELU, out, out, 0, 0);
}

yk_status cuda_gemm_row_sums(int device, const yk__view *out, const yk__view *sums, const yk__view *a,
                             const yk__view *b, bool accumulate, bool *done)
{
    const cuda_product all = {out, a, b, NULL, sums, accumulate, false};
    *done = false;
    if (!out->shape[1] || !out->shape[2] || !a->shape[2])
        return YK_OK;
    yk_status status = cuda_blas_gemm(device, &all, done);
    if (*done)
        cuda_count_work(CUDA_GEMM, true);
    return status;
}
