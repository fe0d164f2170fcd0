/*
 * blas.c - matrix products by cuBLASLt. Layer: device/cuda.
 *
 * The library's matrices are column-major. out (M,N) with rows in memory is to it the matrix (N,M) = b^T a^T; where out
 * has columns in memory, it is (M,N) = a b. Either way one of its factors' dimensions must have stride 1; what does not
 * fit (an expanded factor, a batch that overlaps) is left to our own kernel. Which algorithm does a product is asked
 * once for each form of it, and kept with the library's descriptions: the same form gives the same bits, and a product
 * whose form is known is one call, or two where an epilogue has a vector. The bias is added by the library's epilogue
 * where it can be and costs no more, else put into out before the product is added to that. Halves are added up in f32
 * and rounded once. An algorithm that the library proposed and then refuses, or that fails while the GPU is well, gives
 * way to the next. A form that it has none for, or of which it refuses all, is computed without its epilogue from then
 * on, or by our own kernel where it has none.
 *
 * Note [Trials of epilogues]
 * The manual does not say what RELU_BIAS makes of NaN, nor in what BGRADA and BGRADB add. So a form with one of them is
 * carried out once on numbers whose result tells, before its first use, and left to others where that is not right:
 * with a bias of NaN and infinities, out must be NaN, infinity or 0; sums of equal terms must be those of f32, rounded
 * once. The trial waits for the GPU, so there is none while the stream is captured: then the form is not taken.
 *
 * Invariant: an algorithm is asked for with the alignment that the pointers have, for it may rely on that. The library
 * has no word for that of an epilogue's vector, and loads it as it stores the result, by up to VECTOR_ALIGNMENT bytes
 * at once, also where the pointer that it was shown is aligned to less (as was found with PyTorch:
 * https://github.com/pytorch/pytorch/pull/194497). So a vector that is aligned to less is no epilogue's, and the result
 * is called no more aligned than the vector.
 * A GPU's handle and plans are used by one thread at a time, under its lock.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__has_include)
#if __has_include(<cublasLt.h>)
#define HAS_BLAS 1
#endif
#endif

#include "base/hash.h"
#include "device/convert.h"
#include "device/cuda/libraries.h"

#ifdef HAS_BLAS
#include <cublasLt.h>

/* PLANS: each form has PROBES slots, from its hash on; where others have all of them, the first gives way, and is
 * planned again when it comes. MOST_BATCHES: planes of a grid, of which the library's kernels have one for each matrix;
 * cuda_gemm cuts what has more. */
enum {
    MOST_GPUS = 64,
    PLANS = 1024,
    PROBES = 16,
    LEAST_TERMS = 16,
    MOST_ALGORITHMS = 4,
    VECTOR_ALIGNMENT = 16,
    MOST_BATCHES = 65535
};
static const size_t MOST_WORKSPACE = (size_t)32 << 20; /* as NVIDIA advises for sm_90 */

static struct {
    __typeof__(cublasLtGetVersion) *version;
    __typeof__(cublasLtCreate) *create;
    __typeof__(cublasLtGetStatusString) *status_string;
    __typeof__(cublasLtMatrixLayoutInit_internal) *layout_init;
    __typeof__(cublasLtMatrixLayoutSetAttribute) *layout_set;
    __typeof__(cublasLtMatmulDescInit_internal) *desc_init;
    __typeof__(cublasLtMatmulDescSetAttribute) *desc_set;
    __typeof__(cublasLtMatmulPreferenceInit_internal) *preference_init;
    __typeof__(cublasLtMatmulPreferenceSetAttribute) *preference_set;
    __typeof__(cublasLtMatmulAlgoGetHeuristic) *heuristic;
    __typeof__(cublasLtMatmulAlgoConfigGetAttribute) *algorithm_get;
    __typeof__(cublasLtMatmul) *matmul;
    bool there;
    char text[CUDA_WHY];
} blas;

/* Two matrices of the library's are multiplied: first (rows,k), second (k,columns), result (rows,columns). */
typedef struct operand {
    int64_t ld, batch; /* elements from a column to the next, and from a matrix to the next */
    bool transposed;   /* as it lies in memory */
} operand;

/* The key that an algorithm is chosen for; without padding, for it is compared byte by byte. */
typedef struct form {
    int64_t gpu, dtype /* of the factors */, out_dtype, rows, columns, k, batches;
    int64_t first_ld, first_batch, second_ld, second_batch, result_ld, result_batch;
    int64_t first_transposed, second_transposed, accumulate, tf32;
    int64_t epilogue; /* cublasLtEpilogue_t */
    int64_t first_alignment, second_alignment, result_alignment, vector_alignment;
} form;

/* The library's descriptions of a product. */
typedef struct description {
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t first, second, result;
    const void *vector; /* that desc has */
} description;

typedef struct algorithm {
    cublasLtMatmulAlgo_t made;
    size_t workspace;
} algorithm;

/* The first of `left` algorithms is taken, the fastest by the library's estimate. */
typedef struct plan {
    form of;
    description described;
    algorithm algorithms[MOST_ALGORITHMS];
    int left;
    bool known, usable, tried;
} plan;

/* A GPU's handle, and what was asked by it; `plans` (PLANS) is made with the handle. */
typedef struct gpu_state {
    pthread_mutex_t lock;
    cublasLtHandle_t handle;
    plan *plans;
} gpu_state;

static gpu_state gpus[MOST_GPUS] = {[0 ... MOST_GPUS - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_library(void)
{
#define TEXT(x)    #x
#define VERSION(x) TEXT(x)
    static const char file[] = "libcublasLt.so." VERSION(CUBLAS_VER_MAJOR);
    const cuda_symbol symbols[] = {
        {"cublasLtGetVersion", (void **)&blas.version},
        {"cublasLtCreate", (void **)&blas.create},
        {"cublasLtGetStatusString", (void **)&blas.status_string},
        {"cublasLtMatrixLayoutInit_internal", (void **)&blas.layout_init},
        {"cublasLtMatrixLayoutSetAttribute", (void **)&blas.layout_set},
        {"cublasLtMatmulDescInit_internal", (void **)&blas.desc_init},
        {"cublasLtMatmulDescSetAttribute", (void **)&blas.desc_set},
        {"cublasLtMatmulPreferenceInit_internal", (void **)&blas.preference_init},
        {"cublasLtMatmulPreferenceSetAttribute", (void **)&blas.preference_set},
        {"cublasLtMatmulAlgoGetHeuristic", (void **)&blas.heuristic},
        {"cublasLtMatmulAlgoConfigGetAttribute", (void **)&blas.algorithm_get},
        {"cublasLtMatmul", (void **)&blas.matmul},
    };
    blas.there = cuda_library_open(file, symbols, sizeof(symbols) / sizeof(symbols[0]), blas.text);
    if (blas.there)
        snprintf(blas.text, sizeof(blas.text), "cuBLASLt %zu", blas.version());
}

static yk_status failed(int device, cublasStatus_t code, const char *call)
{
    return cuda_fail(code == CUBLAS_STATUS_ALLOC_FAILED ? YK_ERR_MEMORY : YK_ERR_DEVICE, "cuda:%d: %s: %s (%d)", device,
                     call, blas.status_string(code), (int)code);
}

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

/* True for an answer that the library cannot compute this. INVALID_VALUE is its answer to some algorithms that it
 * proposed itself. */
static bool is_refusal(cublasStatus_t code)
{
    return code == CUBLAS_STATUS_NOT_SUPPORTED || code == CUBLAS_STATUS_ARCH_MISMATCH ||
           code == CUBLAS_STATUS_INVALID_VALUE;
}

/* True if an algorithm that answered with this code may be replaced by the next: one algorithm's failure is not the
 * step's. */
static bool gives_way(int device, cudaStream_t stream, const char *call, cublasStatus_t code)
{
    bool fails = code == CUBLAS_STATUS_INTERNAL_ERROR || code == CUBLAS_STATUS_EXECUTION_FAILED;
    return is_refusal(code) || (fails && cuda_may_replace(device, stream, call, (int)code, blas.status_string(code)));
}

static bool is_half(int64_t dtype)
{
    return dtype == YK_F16 || dtype == YK_BF16;
}

static cudaDataType_t type_of(yk_dtype dtype)
{
    return dtype == YK_F64 ? CUDA_R_64F : dtype == YK_F16 ? CUDA_R_16F : dtype == YK_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static cublasStatus_t lay_out(cublasLtMatrixLayoutOpaque_t *made, const form *f, int64_t dtype, int64_t rows,
                              int64_t columns, int64_t ld, int64_t batch)
{
    int32_t count = (int32_t)f->batches;
    cublasStatus_t code =
        blas.layout_init(made, sizeof(*made), type_of((yk_dtype)dtype), (uint64_t)rows, (uint64_t)columns, ld);
    if (!code && count > 1)
        code = blas.layout_set(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count));
    if (!code && count > 1)
        code = blas.layout_set(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &batch, sizeof(batch));
    return code;
}

static cublasStatus_t describe(description *d, const form *f, const void *vector)
{
    cudaDataType_t scale = f->dtype == YK_F64 ? CUDA_R_64F : CUDA_R_32F;
    cublasComputeType_t compute = f->dtype == YK_F64 ? CUBLAS_COMPUTE_64F
                                  : f->tf32          ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                     : CUBLAS_COMPUTE_32F;
    cublasStatus_t code = blas.desc_init(&d->desc, sizeof(d->desc), compute, scale);
    int32_t first = f->first_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    int32_t second = f->second_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    if (!code)
        code = blas.desc_set(&d->desc, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof(first));
    if (!code)
        code = blas.desc_set(&d->desc, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof(second));
    if (!code && f->epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
        uint32_t epilogue = (uint32_t)f->epilogue;
        int32_t bias_type = (int32_t)type_of((yk_dtype)f->out_dtype);
        code = blas.desc_set(&d->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue));
        if (!code)
            code = blas.desc_set(&d->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type, sizeof(bias_type));
        if (!code)
            code = blas.desc_set(&d->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof(vector));
    }
    d->vector = vector;
    if (!code)
        code = f->first_transposed ? lay_out(&d->first, f, f->dtype, f->k, f->rows, f->first_ld, f->first_batch)
                                   : lay_out(&d->first, f, f->dtype, f->rows, f->k, f->first_ld, f->first_batch);
    if (!code)
        code = f->second_transposed ? lay_out(&d->second, f, f->dtype, f->columns, f->k, f->second_ld, f->second_batch)
                                    : lay_out(&d->second, f, f->dtype, f->k, f->columns, f->second_ld, f->second_batch);
    return code ? code : lay_out(&d->result, f, f->out_dtype, f->rows, f->columns, f->result_ld, f->result_batch);
}

/* Asks for algorithms; where there is none, the plan cannot be used. */
static cublasStatus_t choose(plan *p)
{
    description *d = &p->described;
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t best[MOST_ALGORITHMS];
    const uint64_t workspace = MOST_WORKSPACE;
    int64_t stored = p->of.result_alignment;
    if (p->of.vector_alignment && p->of.vector_alignment < stored)
        stored = p->of.vector_alignment;
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        int64_t bytes;
    } alignments[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p->of.first_alignment},
                      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p->of.second_alignment},
                      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p->of.result_alignment},
                      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, stored}};
    cublasStatus_t code = blas.preference_init(&preference, sizeof(preference));
    if (!code)
        code =
            blas.preference_set(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace));
    /* With k split into parts, halves are added in f32, in the workspace: the other schemes round every part. A bias is
     * added after that, to the rounded sum (https://github.com/pytorch/pytorch/pull/180875): then k stays whole. */
    bool biased = p->of.epilogue == CUBLASLT_EPILOGUE_BIAS || p->of.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
    const uint32_t schemes = biased ? CUBLASLT_REDUCTION_SCHEME_NONE : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (!code && is_half(p->of.out_dtype))
        code = blas.preference_set(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof(schemes));
    for (int i = 0; i < 4 && !code; i++) {
        uint32_t bytes = (uint32_t)alignments[i].bytes;
        code = blas.preference_set(&preference, alignments[i].attribute, &bytes, sizeof(bytes));
    }
    int found = 0;
    memset(best, 0, sizeof(best));
    if (!code)
        code = blas.heuristic(gpus[p->of.gpu].handle, &d->desc, &d->first, &d->second, &d->result, &d->result,
                              &preference, MOST_ALGORITHMS, best, &found);
    p->left = 0;
    for (int i = 0; i < found && !code; i++)
        if (best[i].state == CUBLAS_STATUS_SUCCESS)
            p->algorithms[p->left++] = (algorithm){best[i].algo, best[i].workspaceSize};
    p->usable = p->left > 0;
    return code;
}

/* The entry of the form's plan, or the one that it will take: one of PROBES from that of its hash on. */
static plan *place_of(const form *f)
{
    uint64_t start = yk__hash(YK__HASH_BASIS, f, sizeof(*f)) >> 32;
    plan *plans = gpus[f->gpu].plans, *first = &plans[start % PLANS];
    for (uint64_t i = 0; i < PROBES; i++) {
        plan *p = &plans[(start + i) % PLANS];
        if (!p->known || memcmp(&p->of, f, sizeof(*f)) == 0)
            return p;
    }
    return first;
}

/* The computation that replaces a form that the library does not take, as text. */
static const char *instead_of(const form *f, bool apart)
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

static void say_refused(int device, const form *f, const char *call, bool apart)
{
    cuda_base->warn("cuda:%d: gemm: %s has no algorithm for (%lld,%lld) x (%lld,%lld), %lld of them, of %s%s", device,
                    call, (long long)f->rows, (long long)f->k, (long long)f->k, (long long)f->columns,
                    (long long)f->batches, cuda_yoke->dtype_name((yk_dtype)f->dtype), instead_of(f, apart));
}

/* f, of the product's operands as the library sees them; false where it cannot take them. */
static bool form_of(form *f, const void **first, const void **second, const yk__view *out, const yk__view *a,
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

/* A product for the library: its operands, the form that chooses the algorithm, the device and the stream. */
typedef struct job {
    const cuda_product *product;
    form of;
    const void *first, *second, *vector;
    int device;
    cudaStream_t stream;
} job;

/* True if the bias can be added by a call of its own, if there is one: before the product, which then is added to it in
 * f32 and rounded once. After a product that adds to out, a half would be rounded twice. */
static bool adds_apart(const cuda_product *p)
{
    return !p->bias || !p->accumulate || !is_half(p->out->dtype);
}

/* True if the GPU has so many more multiprocessors than the result has tiles that the library should cut the inner
 * dimension into parts, which it may not with a bias in its epilogue. TILE: rows and columns of a tile of its kernels;
 * below LONG_K elements a part takes no longer than the call that puts the bias into out. Untimed. */
static bool gains_by_parts(const job *j)
{
    enum { TILE = 128, LONG_K = 4096 };
    const form *f = &j->of;
    int64_t tiles = (f->rows + TILE - 1) / TILE * ((f->columns + TILE - 1) / TILE) * f->batches;
    return is_half(f->out_dtype) && f->k >= LONG_K && 2 * tiles <= cuda_processors(j->device);
}

/* The epilogue, and its vector, or NULL; false where the product is not the library's. */
static bool epilogue_of(job *j, bool columns)
{
    const cuda_product *p = j->product;
    yk_dtype dtype = p->out->dtype;
    bool half = is_half(dtype), dense = p->bias && (p->bias->stride[0] == 1 || p->bias->shape[0] == 1);
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

/* "cuda:0: cuBLASLt: (512,784) x (784,64), 1 of them, of bfloat16 with a bias: algorithm 66, 0 bytes of workspace, the
 * first of 4": for reports of what a GPU did, and how. */
static void say_chosen(int device, const plan *p)
{
    static const char *const epilogues[] = {"", " with a bias", " with bias and ReLU", " with sums of rows"};
    const form *f = &p->of;
    int32_t id = -1, cuts = 1;
    size_t written;
    int epilogue = f->epilogue == CUBLASLT_EPILOGUE_DEFAULT     ? 0
                   : f->epilogue == CUBLASLT_EPILOGUE_BIAS      ? 1
                   : f->epilogue == CUBLASLT_EPILOGUE_RELU_BIAS ? 2
                                                                : 3;
    const cublasLtMatmulAlgo_t *made = &p->algorithms[0].made;
    (void)blas.algorithm_get(made, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof(id), &written);
    (void)blas.algorithm_get(made, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &cuts, sizeof(cuts), &written);
    cuda_base->debug(
        "cuda:%d: cuBLASLt: (%lld,%lld) x (%lld,%lld), %lld of them, of %s%s%s: algorithm %d, %zu bytes of "
        "workspace, k in %d parts, the first of %d",
        device, (long long)f->rows, (long long)f->k, (long long)f->k, (long long)f->columns, (long long)f->batches,
        cuda_yoke->dtype_name((yk_dtype)f->dtype), f->tf32 ? " as TF32" : "", epilogues[epilogue], (int)id,
        p->algorithms[0].workspace, (int)cuts, p->left);
}

/* Makes the plan of the form; it cannot be used, and *refused is set, where the library has none. After a failure the
 * form is as before: not known. */
static cublasStatus_t make_plan(const job *j, plan *made, const char **call, bool *refused)
{
    *made = (plan){.of = j->of};
    *call = "description of a matrix product";
    cublasStatus_t code = describe(&made->described, &j->of, j->vector);
    if (!code) {
        *call = "cublasLtMatmulAlgoGetHeuristic";
        code = choose(made);
    }
    *refused = code ? gives_way(j->device, j->stream, *call, code) : !made->usable;
    if (*refused)
        code = CUBLAS_STATUS_SUCCESS;
    made->known = !code;
    if (made->usable)
        say_chosen(j->device, made);
    return code;
}

static yk_status not_made(const job *j, cublasStatus_t code, const char *call)
{
    bool unseen = code == CUBLAS_STATUS_INTERNAL_ERROR || code == CUBLAS_STATUS_NOT_INITIALIZED;
    if (!unseen || !cuda_is_captured(j->stream))
        return failed(j->device, code, call);
    return cuda_fail(YK_ERR_STATE,
                     "cuda:%d: gemm: this product was not seen before the recording, while which %s fails (%d): record "
                     "behind a call that has it",
                     j->device, call, (int)code);
}

/* The library's own memory is not the cache's: where there is none for it, cached memory goes back. */
static cublasStatus_t create_handle(int device, cublasLtHandle_t *made)
{
    cublasStatus_t code = blas.create(made);
    if (code != CUBLAS_STATUS_ALLOC_FAILED && code != CUBLAS_STATUS_NOT_INITIALIZED)
        return code;
    cuda_yoke->empty_cache((yk_device){YK_CUDA, device});
    return blas.create(made);
}

/* The plan of the job's form, made where there is none yet, in the mode in which a recording allows what the library
 * may do then: load kernels, allocate. Under the lock. */
static yk_status plan_of(const job *j, plan **found, bool *refused)
{
    gpu_state *gpu = &gpus[j->of.gpu];
    cublasStatus_t code = CUBLAS_STATUS_SUCCESS;
    const char *call = "cublasLtCreate";
    if (!gpu->plans && !(gpu->plans = calloc(PLANS, sizeof(*gpu->plans))))
        code = CUBLAS_STATUS_ALLOC_FAILED;
    plan *kept = *found = code ? NULL : place_of(&j->of);
    if (kept && gpu->handle && kept->known && memcmp(&kept->of, &j->of, sizeof(j->of)) == 0)
        return YK_OK;
    enum cudaStreamCaptureMode before = cuda_relaxed_begin();
    if (!code && !gpu->handle)
        code = create_handle(j->device, &gpu->handle);
    if (!code)
        code = make_plan(j, kept, &call, refused);
    cuda_relaxed_end(before);
    return code ? not_made(j, code, call) : YK_OK;
}

/* Queues the product by the plan's first algorithm. */
static yk_status multiply_once(const job *j, plan *p, const void *first, const void *second, bool accumulate,
                               cublasStatus_t *code)
{
    static const double one = 1, zero = 0;
    static const float one_f32 = 1, zero_f32 = 0;
    const yk__view *out = j->product->out;
    description *d = &p->described;
    const algorithm *a = &p->algorithms[0];
    yk__storage *memory = NULL;
    void *workspace = a->workspace ? cuda_workspace(j->device, a->workspace, &memory) : NULL;
    if (a->workspace && !workspace)
        return YK_ERR_MEMORY;
    bool wide = out->dtype == YK_F64;
    const void *alpha = wide ? (const void *)&one : &one_f32, *beta = wide ? (const void *)&zero : &zero_f32;
    *code = blas.matmul(gpus[p->of.gpu].handle, &d->desc, alpha, first, &d->first, second, &d->second,
                        accumulate ? alpha : beta, out->data, &d->result, out->data, &d->result, &a->made, workspace,
                        a->workspace, j->stream);
    if (memory)
        cuda_yoke->storage_release(memory); /* only later work on the device's queue can take it */
    return YK_OK;
}

/* Queues the product, with these operands; *code is the library's answer. An algorithm that it refuses gives way to the
 * next, but not after a trial, which was that one's. Under the lock. */
static yk_status multiply(const job *j, plan *p, const void *first, const void *second, const void *vector,
                          bool accumulate, cublasStatus_t *code)
{
    description *d = &p->described;
    *code = CUBLAS_STATUS_SUCCESS;
    if (vector != d->vector) {
        *code = blas.desc_set(&d->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof(vector));
        d->vector = *code ? NULL : vector;
        if (*code) /* no other algorithm may take what the descriptor has yet */
            return YK_OK;
    }
    yk_status status = multiply_once(j, p, first, second, accumulate, code);
    while (!status && *code && !p->tried && p->left > 1 && gives_way(j->device, j->stream, "cublasLtMatmul", *code)) {
        p->left--;
        memmove(&p->algorithms[0], &p->algorithms[1], (size_t)p->left * sizeof(p->algorithms[0]));
        say_chosen(j->device, p);
        status = multiply_once(j, p, first, second, accumulate, code);
    }
    return status;
}

/* ---- Note [Trials of epilogues] ---- */

/* Tries ReLU with a bias of NaN and infinities; out, which is written, shows what the epilogue makes of them. */
static yk_status try_relu(const job *j, plan *p, bool *good, cublasStatus_t *code)
{
    const yk__view *out = j->product->out;
    size_t count = (size_t)out->shape[2];
    yk__storage *memory = NULL;
    void *bias = cuda_workspace(j->device, count * yk__size_of(out->dtype), &memory);
    if (!bias)
        return YK_ERR_MEMORY;
    yk_status status = cuda_nan_trial_bias(j->device, j->stream, out->dtype, bias, (int64_t)count);
    if (!status)
        status = multiply(j, p, j->first, j->second, bias, false, code);
    if (!status && !*code) /* the first row of the first matrix: (N) in memory */
        status =
            cuda_nan_trial_passed(j->device, j->stream, out->dtype, out->data, out->shape[2], 1, out->shape[2], good);
    cuda_yoke->storage_release(memory);
    return status;
}

/* Tries the sums of an a of one number, with b as it is; the sums show the type in which they were added. */
static yk_status try_sums_of(const job *j, plan *p, double term, bool *good, cublasStatus_t *code)
{
    enum { SAMPLES = 64 };
    const cuda_product *of = j->product;
    bool bf16 = of->out->dtype == YK_BF16, a_first = j->first == of->a->data;
    size_t size = yk__size_of(of->a->dtype), last = 0; /* its last element, as it lies */
    for (int d = 1; d < 3; d++)
        last += (size_t)((of->a->shape[d] - 1) * of->a->stride[d]);
    yk__storage *memory = NULL;
    void *same = cuda_workspace(j->device, (last + 1) * size, &memory);
    if (!same)
        return YK_ERR_MEMORY;
    const yk__view all = {.data = same, .dtype = of->a->dtype, .ndim = 1, .shape = {(int64_t)last + 1}, .stride = {1}};
    yk_status status = cuda_fill(j->device, &all, term);
    if (!status)
        status = multiply(j, p, a_first ? same : j->first, a_first ? j->second : same, j->vector, false, code);
    uint16_t sums[SAMPLES];
    int64_t count = of->sums->shape[0] < SAMPLES ? of->sums->shape[0] : SAMPLES;
    cudaError_t error = cudaSuccess;
    if (!status && !*code)
        error = cudaMemcpyAsync(sums, of->sums->data, (size_t)count * size, cudaMemcpyDeviceToHost, j->stream);
    if (!status && !*code && !error)
        error = cudaStreamSynchronize(j->stream);
    float expected = (float)(term * (double)of->a->shape[2]); /* f16 makes infinity of it where it is too great */
    uint16_t right = bf16 ? yk__to_bf16(expected) : yk__to_f16(expected);
    for (int64_t i = 0; i < count && !status && !*code && !error; i++)
        *good = *good && sums[i] == right;
    cuda_yoke->storage_release(memory);
    return error ? cuda_failed(j->device, error, "trial of a sum") : status;
}

/* Sums of these that are rounded at each term differ from those that are rounded once, for one of the two at least,
 * wherever there are LEAST_TERMS or more. */
static yk_status try_sums(const job *j, plan *p, bool *good, cublasStatus_t *code)
{
    bool bf16 = j->product->out->dtype == YK_BF16;
    const double terms[] = {bf16 ? 1 + 85.0 / 128 : 1 + 683.0 / 1024, bf16 ? 1 + 107.0 / 128 : 1 + 857.0 / 1024};
    yk_status status = YK_OK;
    for (int i = 0; i < 2 && !status && !*code && *good; i++)
        status = try_sums_of(j, p, terms[i], good, code);
    return status;
}

/* Finds out, once, whether the plan's epilogue does what it should; *code is the library's answer. */
static yk_status try_epilogue(const job *j, plan *p, cublasStatus_t *code)
{
    bool good = true, relu = p->of.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
    yk_status status = relu ? try_relu(j, p, &good, code) : try_sums(j, p, &good, code);
    p->tried = !status && !*code;
    if (p->tried && !good) {
        p->usable = false;
        cuda_base->warn("cuda:%d: gemm: cuBLASLt's %s here: computed apart", j->device,
                        relu ? "RELU_BIAS does not keep NaN and infinities"
                             : "gradient of a bias is rounded more than once");
    }
    return status;
}

/* Runs the product. Under the lock. *refused: the reason why the library cannot, which is to be logged; *taken: it was
 * queued. */
static yk_status product_run(const job *j, bool apart, const char **refused, bool *taken)
{
    plan *p;
    cublasStatus_t code = CUBLAS_STATUS_SUCCESS;
    const cuda_product *of = j->product;
    bool none = false, doubtful = of->relu || of->sums;
    yk_status status = plan_of(j, &p, &none);
    if (none)
        *refused = "cublasLtMatmulAlgoGetHeuristic";
    if (status || !p->usable)
        return status;
    if (doubtful && !p->tried) {
        if (cuda_is_captured(j->stream) || (of->sums && of->accumulate)) /* nothing that must stay may be written */
            return YK_OK;
        status = try_epilogue(j, p, &code);
        if (status || (!code && !p->usable))
            return status;
    }
    if (!code && apart && !of->accumulate)
        status = add_bias(j->device, of->out, of->bias, false);
    if (!status && !code)
        status = multiply(j, p, j->first, j->second, j->vector, j->of.accumulate, &code);
    if (!status && code && gives_way(j->device, j->stream, "cublasLtMatmul", code)) {
        p->usable = false; /* the form is left to others from here on */
        *refused = "cublasLtMatmul";
        return status;
    }
    *taken = !status && !code;
    if (*taken && doubtful)
        cuda_count_fused(of->relu ? CUDA_GEMM_RELU : CUDA_GEMM_ROW_SUMS);
    return code && !status ? failed(j->device, code, "cublasLtMatmul") : status;
}

static yk_status run_and_say(job *j, bool *taken)
{
    const cuda_product *p = j->product;
    const char *refused = NULL;
    bool apart = p->bias && !j->vector; /* before the product, or after one that adds to out */
    j->of.accumulate = p->accumulate || apart;
    pthread_mutex_lock(&gpus[j->of.gpu].lock);
    yk_status status = product_run(j, apart, &refused, taken);
    pthread_mutex_unlock(&gpus[j->of.gpu].lock);
    if (refused)
        say_refused(j->device, &j->of, refused, adds_apart(p));
    return status;
}

/* The product without its epilogue: there are more algorithms of it. */
static void leave_bias(job *j)
{
    j->of.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    j->of.vector_alignment = 0;
    j->vector = NULL;
}

yk_status cuda_blas_gemm(int device, const cuda_product *p, bool *taken)
{
    const yk__view *views[] = {p->out, p->a, p->b};
    job j = {.product = p, .device = device};
    *taken = false;
    pthread_once(&once, open_library);
    if (!blas.there)
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
    pthread_once(&once, open_library);
    return blas.text;
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
