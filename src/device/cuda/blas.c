/*
 * blas.c - matrix products by cuBLASLt. Layer: device/cuda.
 *
 * The library's matrices are column-major. out (M,N) with rows in memory is to it the matrix (N,M) = b^T a^T; where out
 * has columns in memory, it is (M,N) = a b. Either way one of its factors' dimensions must have stride 1; what does not
 * fit (an expanded factor, a batch that overlaps) is left to our own kernel. The bias is added by the library's
 * epilogue where it can be and costs no more, else put into out before the product is added to that. Halves are added
 * up in f32 and rounded once. A form that the library has no algorithm for (blas_plan.c), or of which it refuses all,
 * is computed without its epilogue from then on, or by our own kernel where it has none.
 *
 * Invariant: an algorithm is asked for with the alignment that the pointers have, for it may rely on that. The library
 * has no word for that of an epilogue's vector, and loads it as it stores the result, by up to VECTOR_ALIGNMENT bytes
 * at once, also where the pointer that it was shown is aligned to less (as was found with PyTorch:
 * https://github.com/pytorch/pytorch/pull/194497). So a vector that is aligned to less is no epilogue's, and the result
 * is called no more aligned than the vector.
 */
#include <string.h>

#include "device/cuda/blas.h"

#ifdef HAS_BLAS
/* Two matrices of the library's are multiplied: first (rows,k), second (k,columns), result (rows,columns). */
typedef struct operand {
    int64_t ld, batch; /* elements from a column to the next, and from a matrix to the next */
    bool transposed;   /* as it lies in memory */
} operand;

/* The factor's dimensions `inner` and `outer` as a matrix of `rows` rows (of inner, where it is not transposed): false
 * where neither lies contiguous. A dimension of one element has any stride. */
static bool factor(operand *made, const yk__view *v, int row, int column)
{
    int64_t rows = v->shape[row], columns = v->shape[column];
    int64_t along_rows = rows == 1 ? 1 : v->stride[row], along_columns = columns == 1 ? 0 : v->stride[column];
    made->transposed = false;
    made->ld = columns == 1 ? rows : along_columns;
    if (along_rows != 1 || made->ld < rows) {
        along_rows = rows == 1 ? 0 : v->stride[row], along_columns = columns == 1 ? 1 : v->stride[column];
        made->transposed = true;
        made->ld = rows == 1 ? columns : along_rows;
        if (along_columns != 1 || made->ld < columns)
            return false;
    }
    made->batch = v->shape[0] == 1 ? 0 : v->stride[0];
    return made->batch >= 0;
}

/* The alignment of an address as the library is told it: at most that of cudaMalloc. */
static int64_t alignment(const void *data)
{
    uintptr_t bits = (uintptr_t)data | CUDA_MALLOC_ALIGNMENT;
    return (int64_t)(bits & -bits);
}

/* The computation that replaces a form that the library does not take, as text. */
static const char *instead_of(const cuda_blas_form *f, bool apart)
{
    switch (f->epilogue) {
    case CUBLASLT_EPILOGUE_BIAS:
        return apart ? " with a bias, which is added apart" : " with a bias: our own, slower kernel computes it";
    case CUBLASLT_EPILOGUE_RELU_BIAS: return " with bias and ReLU: ReLU is computed apart";
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB: return " with sums of rows: the sums are computed apart";
    default: return ": our own, slower kernel computes it";
    }
}

static void say_refused(int device, const cuda_blas_form *f, const char *call, bool apart)
{
    cuda_base->warn("cuda:%d: gemm: %s has no algorithm for (%lld,%lld) x (%lld,%lld), %lld of them, of %s%s", device,
                    call, (long long)f->rows, (long long)f->k, (long long)f->k, (long long)f->columns,
                    (long long)f->batches, cuda_yoke->dtype_name((yk_dtype)f->dtype), instead_of(f, apart));
}

/* f, of the product's operands as the library sees them; false where it cannot take them. */
static bool form_of(cuda_blas_form *f, const void **first, const void **second, const yk__view *out, const yk__view *a,
                    const yk__view *b, bool columns)
{
    operand x, y, z;
    memset(f, 0, sizeof(*f));
    f->dtype = a->dtype, f->out_dtype = out->dtype, f->batches = out->shape[0], f->k = a->shape[2];
    if (columns) { /* out's columns lie in memory: (M,N) = a b */
        f->rows = out->shape[1], f->columns = out->shape[2];
        *first = a->data, *second = b->data;
        if (!factor(&z, out, 1, 2) || z.transposed || !factor(&x, a, 1, 2) || !factor(&y, b, 1, 2))
            return false;
    } else { /* (N,M) = b^T a^T */
        f->rows = out->shape[2], f->columns = out->shape[1];
        *first = b->data, *second = a->data;
        if (!factor(&z, out, 2, 1) || z.transposed || !factor(&x, b, 2, 1) || !factor(&y, a, 2, 1))
            return false;
    }
    f->first_ld = x.ld, f->first_batch = x.batch, f->first_transposed = x.transposed;
    f->second_ld = y.ld, f->second_batch = y.batch, f->second_transposed = y.transposed;
    f->result_ld = z.ld, f->result_batch = z.batch;
    f->first_alignment = alignment(*first), f->second_alignment = alignment(*second);
    f->result_alignment = alignment(out->data);
    const int64_t sizes[] = {f->rows, f->columns, f->k, f->batches, x.ld, y.ld, z.ld};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        if (sizes[i] < 1 || sizes[i] > INT32_MAX)
            return false;
    return f->batches <= MOST_BATCHES;
}

/* The bias as a matrix like out, for those products whose epilogue does not add it. */
static yk_status add_bias(int device, const yk__view *out, const yk__view *bias, bool accumulate)
{
    yk__view rows = *out;
    rows.data = bias->data;
    rows.stride[0] = rows.stride[1] = 0;
    rows.stride[2] = bias->stride[0];
    return accumulate ? cuda_binary(device, YK__ADD, out, out, &rows, 1) : cuda_copy(device, out, &rows);
}

/* True if the bias can be added by a call of its own, if there is one: before the product, which then is added to it in
 * f32 and rounded once. After a product that adds to out, a half would be rounded twice. */
static bool adds_apart(const cuda_product *p)
{
    return !p->bias || !p->accumulate || !cuda_blas_is_half(p->out->dtype);
}

/* True if the GPU has so many more multiprocessors than the result has tiles that the library should cut the inner
 * dimension into parts, which it may not with a bias in its epilogue. TILE: rows and columns of a tile of its kernels;
 * below LONG_K elements a part takes no longer than the call that puts the bias into out. Untimed. */
static bool gains_by_parts(const cuda_blas_job *j)
{
    enum { TILE = 128, LONG_K = 4096 };
    const cuda_blas_form *f = &j->of;
    int64_t tiles = (f->rows + TILE - 1) / TILE * ((f->columns + TILE - 1) / TILE) * f->batches;
    return cuda_blas_is_half(f->out_dtype) && f->k >= LONG_K && 2 * tiles <= cuda_processors(j->device);
}

/* The epilogue, and its vector, or NULL; false where the product is not the library's. */
static bool epilogue_of(cuda_blas_job *j, bool columns)
{
    const cuda_product *p = j->product;
    yk_dtype dtype = p->out->dtype;
    bool half = cuda_blas_is_half(dtype), dense = p->bias && (p->bias->stride[0] == 1 || p->bias->shape[0] == 1);
    bool added = dense && !columns && dtype != YK_F64 && alignment(p->bias->data) >= VECTOR_ALIGNMENT &&
                 (p->relu || !adds_apart(p) || !gains_by_parts(j));
    j->of.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    if (p->sums) { /* a is the second factor of (N,M) = b^T a^T, and the library adds it up where it lies by rows */
        bool lies_so = columns ? !j->of.first_transposed : j->of.second_transposed;
        if (!half || !lies_so || p->sums->stride[0] != 1 || p->a->shape[2] < LEAST_TERMS ||
            alignment(p->sums->data) < VECTOR_ALIGNMENT)
            return false;
        j->of.epilogue = columns ? CUBLASLT_EPILOGUE_BGRADA : CUBLASLT_EPILOGUE_BGRADB;
        j->vector = p->sums->data;
    } else if (p->relu && !added) {
        return false;
    } else if (added) {
        j->of.epilogue = p->relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
        j->vector = p->bias->data;
    } else if (!adds_apart(p)) {
        return false;
    }
    j->of.vector_alignment = j->vector ? alignment(j->vector) : 0;
    return true;
}

/* Runs the product. Under the lock. *refused: the reason why the library cannot, which is to be logged; *taken: it was
 * queued. */
static yk_status product_run(const cuda_blas_job *j, bool apart, const char **refused, bool *taken)
{
    cuda_blas_plan *p;
    cublasStatus_t code = CUBLAS_STATUS_SUCCESS;
    const cuda_product *of = j->product;
    bool none = false, doubtful = of->relu || of->sums;
    yk_status status = cuda_blas_plan_of(j, &p, &none);
    if (none)
        *refused = "cublasLtMatmulAlgoGetHeuristic";
    if (status || !p->usable)
        return status;
    if (doubtful && !p->tried) {
        if (cuda_is_captured(j->stream) || (of->sums && of->accumulate)) /* nothing that must stay may be written */
            return YK_OK;
        status = cuda_blas_try(j, p, &code);
        if (status || (!code && !p->usable))
            return status;
    }
    if (!code && apart && !of->accumulate)
        status = add_bias(j->device, of->out, of->bias, false);
    if (!status && !code)
        status = cuda_blas_multiply(j, p, j->first, j->second, j->vector, j->of.accumulate, &code);
    if (!status && code && cuda_blas_gives_way(j->device, j->stream, "cublasLtMatmul", code)) {
        p->usable = false; /* the form is left to others from here on */
        *refused = "cublasLtMatmul";
        return status;
    }
    *taken = !status && !code;
    if (*taken && doubtful)
        cuda_count_fused(of->relu ? CUDA_GEMM_RELU : CUDA_GEMM_ROW_SUMS);
    return code && !status ? cuda_blas_failed(j->device, code, "cublasLtMatmul") : status;
}

static yk_status run_and_say(cuda_blas_job *j, bool *taken)
{
    const cuda_product *p = j->product;
    const char *refused = NULL;
    bool apart = p->bias && !j->vector; /* before the product, or after one that adds to out */
    j->of.accumulate = p->accumulate || apart;
    cuda_blas_lock(j->of.gpu);
    yk_status status = product_run(j, apart, &refused, taken);
    cuda_blas_unlock(j->of.gpu);
    if (refused)
        say_refused(j->device, &j->of, refused, adds_apart(p));
    return status;
}

/* Leaves the bias out of the job's product, for which there are more algorithms than with that epilogue. */
static void leave_bias(cuda_blas_job *j)
{
    j->of.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    j->of.vector_alignment = 0;
    j->vector = NULL;
}

yk_status cuda_blas_gemm(int device, const cuda_product *p, bool *taken)
{
    const yk__view *views[] = {p->out, p->a, p->b};
    cuda_blas_job j = {.product = p, .device = device};
    *taken = false;
    if (!cuda_blas_open())
        return YK_OK;
    bool columns = false;
    if (!form_of(&j.of, &j.first, &j.second, p->out, p->a, p->b, false)) {
        columns = true;
        if (!form_of(&j.of, &j.first, &j.second, p->out, p->a, p->b, true))
            return YK_OK;
    }
    if (!epilogue_of(&j, columns))
        return YK_OK;
    j.of.gpu = cuda_gpu_of(device);
    j.of.tf32 = p->a->dtype == YK_F32 && cuda_allows_tf32();
    yk_status status = cuda_use(device, &j.stream);
    if (!status)
        status = run_and_say(&j, taken);
    if (!status && !*taken && j.of.epilogue == CUBLASLT_EPILOGUE_BIAS && adds_apart(p)) {
        leave_bias(&j);
        status = run_and_say(&j, taken);
    }
    if (status || !*taken)
        return status;
    status = cuda_launched(device, "gemm (cuBLASLt)", 3, views);
    return status || j.vector || !p->bias || !p->accumulate ? status : add_bias(device, p->out, p->bias, true);
}

const char *cuda_blas_described(void)
{
    (void)cuda_blas_open();
    return cuda_blas_text();
}

#else /* built without its headers */

yk_status cuda_blas_gemm(int device, const cuda_product *p, bool *taken)
{
    (void)device, (void)p;
    *taken = false;
    return YK_OK;
}

const char *cuda_blas_described(void)
{
    return "built without cuBLASLt's headers";
}

#endif
