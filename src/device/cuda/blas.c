/*
 * blas.c - matrix products by cuBLASLt. Layer: device/cuda.
 *
 * The library's matrices are column-major. out (M,N) with rows in memory is to it the matrix (N,M) = b^T a^T; where out
 * has columns in memory, it is (M,N) = a b. Either way one of its factors' dimensions must have stride 1; what does not
 * fit (an expanded factor, a batch that overlaps) is left to our own kernel. Which algorithm does a product is asked
 * once for each form of it, and kept: the same form gives the same bits. The bias is added by the library's epilogue
 * where it can be. Halves are added up in f32 and rounded once. A form that the library has no algorithm for, or
 * refuses when it comes to it, is our own kernel's from then on.
 *
 * Invariant: an algorithm is asked for with the alignment that the pointers have, for it may rely on that.
 */
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
#include "device/cuda/libraries.h"

#ifdef HAS_BLAS
#include <cublasLt.h>

/* PLANS: each form has one slot, by its hash; of two forms in one slot the later stays, and the other is planned again.
 * MOST_ALIGNMENT: what the library is told at most, that of cudaMalloc. */
enum { MOST_GPUS = 64, PLANS = 1024, MOST_ALIGNMENT = 256, WORKSPACE_ALIGNMENT = 256 };
static const size_t MOST_WORKSPACE = (size_t)32 << 20; /* what NVIDIA advises for sm_90 */

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
    __typeof__(cublasLtMatmul) *matmul;
    bool there;
    char text[CUDA_WHY];
} blas;

/* Two matrices of the library's are multiplied: first (rows,k), second (k,columns), result (rows,columns). */
typedef struct operand {
    int64_t ld, batch; /* elements from a column to the next, and from a matrix to the next */
    bool transposed;   /* as it lies in memory */
} operand;

/* What an algorithm is chosen for; without padding, for it is compared byte by byte. */
typedef struct form {
    int64_t gpu, dtype, rows, columns, k, batches;
    int64_t first_ld, first_batch, second_ld, second_batch, result_ld, result_batch;
    int64_t first_transposed, second_transposed, accumulate, tf32;
    int64_t epilogue; /* cublasLtEpilogue_t: none, or a bias */
    int64_t first_alignment, second_alignment, result_alignment, bias_alignment;
} form;

typedef struct plan {
    form of;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace;
    bool known, usable;
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

static int64_t alignment(const void *data)
{
    uintptr_t bits = (uintptr_t)data | MOST_ALIGNMENT;
    return (int64_t)(bits & -bits);
}

/* The library cannot do it, which is no mistake of ours and no failure of the device. */
static bool is_refusal(cublasStatus_t code)
{
    return code == CUBLAS_STATUS_NOT_SUPPORTED || code == CUBLAS_STATUS_ARCH_MISMATCH;
}

static cudaDataType_t type_of(yk_dtype dtype)
{
    return dtype == YK_F64 ? CUDA_R_64F : dtype == YK_F16 ? CUDA_R_16F : dtype == YK_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* The library's descriptions of a product. */
typedef struct description {
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t first, second, result;
} description;

static cublasStatus_t lay_out(cublasLtMatrixLayoutOpaque_t *made, const form *f, int64_t rows, int64_t columns,
                              int64_t ld, int64_t batch)
{
    int32_t count = (int32_t)f->batches;
    cublasStatus_t code =
        blas.layout_init(made, sizeof(*made), type_of((yk_dtype)f->dtype), (uint64_t)rows, (uint64_t)columns, ld);
    if (!code && count > 1)
        code = blas.layout_set(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count));
    if (!code && count > 1)
        code = blas.layout_set(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &batch, sizeof(batch));
    return code;
}

static cublasStatus_t describe(description *d, const form *f, const void *bias)
{
    cudaDataType_t type = type_of((yk_dtype)f->dtype), scale = f->dtype == YK_F64 ? CUDA_R_64F : CUDA_R_32F;
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
        int32_t bias_type = (int32_t)type;
        code = blas.desc_set(&d->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue));
        if (!code)
            code = blas.desc_set(&d->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type, sizeof(bias_type));
        if (!code)
            code = blas.desc_set(&d->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias));
    }
    if (!code)
        code = f->first_transposed ? lay_out(&d->first, f, f->k, f->rows, f->first_ld, f->first_batch)
                                   : lay_out(&d->first, f, f->rows, f->k, f->first_ld, f->first_batch);
    if (!code)
        code = f->second_transposed ? lay_out(&d->second, f, f->columns, f->k, f->second_ld, f->second_batch)
                                    : lay_out(&d->second, f, f->k, f->columns, f->second_ld, f->second_batch);
    return code ? code : lay_out(&d->result, f, f->rows, f->columns, f->result_ld, f->result_batch);
}

/* Asks for an algorithm; one that is not there is a plan that cannot be used. */
static cublasStatus_t choose(plan *p, description *d)
{
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t best;
    const uint64_t workspace = MOST_WORKSPACE;
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        int64_t bytes;
    } alignments[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p->of.first_alignment},
                      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p->of.second_alignment},
                      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p->of.result_alignment},
                      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p->of.result_alignment}};
    cublasStatus_t code = blas.preference_init(&preference, sizeof(preference));
    if (!code)
        code =
            blas.preference_set(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace));
    /* Where k is cut into parts, halves are added in f32, in the workspace: the other ways round every part. */
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (!code && (p->of.dtype == YK_F16 || p->of.dtype == YK_BF16))
        code = blas.preference_set(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof(schemes));
    for (int i = 0; i < 4 && !code; i++) {
        uint32_t bytes = (uint32_t)alignments[i].bytes;
        code = blas.preference_set(&preference, alignments[i].attribute, &bytes, sizeof(bytes));
    }
    int found = 0;
    memset(&best, 0, sizeof(best));
    if (!code)
        code = blas.heuristic(gpus[p->of.gpu].handle, &d->desc, &d->first, &d->second, &d->result, &d->result,
                              &preference, 1, &best, &found);
    p->usable = !code && found > 0 && best.state == CUBLAS_STATUS_SUCCESS;
    p->algorithm = best.algo;
    p->workspace = best.workspaceSize;
    return is_refusal(code) || code == CUBLAS_STATUS_INVALID_VALUE ? CUBLAS_STATUS_SUCCESS : code;
}

static plan *place_of(const form *f)
{
    return &gpus[f->gpu].plans[(yk__hash(YK__HASH_BASIS, f, sizeof(*f)) >> 32) % PLANS];
}

static void say_refused(int device, const form *f, const char *call)
{
    char text[300];
    snprintf(text, sizeof(text),
             "cuda:%d: gemm: %s has no algorithm for (%lld,%lld) x (%lld,%lld), %lld of them, of %s: our own, slower "
             "kernel computes it",
             device, call, (long long)f->rows, (long long)f->k, (long long)f->k, (long long)f->columns,
             (long long)f->batches, cuda_yoke->dtype_name((yk_dtype)f->dtype));
    cuda_base->warn("%s", text);
}

/* The plan of a form, made where there is none yet. */
static yk_status plan_of(int device, const form *f, description *d, plan *found)
{
    gpu_state *gpu = &gpus[f->gpu];
    cublasStatus_t code = CUBLAS_STATUS_SUCCESS;
    const char *call = "cublasLtCreate";
    bool refused = false;
    pthread_mutex_lock(&gpu->lock);
    if (!gpu->plans && !(gpu->plans = calloc(PLANS, sizeof(*gpu->plans))))
        code = CUBLAS_STATUS_ALLOC_FAILED;
    if (!code && !gpu->handle)
        code = blas.create(&gpu->handle);
    plan *kept = code ? NULL : place_of(f);
    if (kept && (!kept->known || memcmp(&kept->of, f, sizeof(*f)) != 0)) {
        call = "cublasLtMatmulAlgoGetHeuristic";
        kept->of = *f;
        code = choose(kept, d);
        kept->known = !code;
        refused = !code && !kept->usable;
    }
    if (kept)
        *found = *kept;
    pthread_mutex_unlock(&gpu->lock);
    if (refused)
        say_refused(device, f, call);
    return code ? failed(device, code, call) : YK_OK;
}

/* The library's algorithm was refused when it came to it: the form is left to our own kernel from here on. */
static void forget_algorithm(int device, const form *f)
{
    gpu_state *gpu = &gpus[f->gpu];
    plan *kept = place_of(f);
    pthread_mutex_lock(&gpu->lock);
    if (memcmp(&kept->of, f, sizeof(*f)) == 0)
        kept->usable = false;
    pthread_mutex_unlock(&gpu->lock);
    say_refused(device, f, "cublasLtMatmul");
}

/* f, of the product's operands as the library sees them; false where it cannot take them. */
static bool form_of(form *f, const void **first, const void **second, const yk__view *out, const yk__view *a,
                    const yk__view *b, bool columns)
{
    operand x, y, z;
    memset(f, 0, sizeof(*f));
    f->dtype = out->dtype, f->batches = out->shape[0], f->k = a->shape[2];
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
    return true;
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

/* The epilogue, and its vector, or NULL; false where the product is not the library's. */
static bool epilogue_of(form *f, const yk__view *out, const yk__view *bias, bool columns, const void **vector)
{
    bool half = out->dtype == YK_F16 || out->dtype == YK_BF16;
    bool dense = bias && (bias->stride[0] == 1 || bias->shape[0] == 1);
    f->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    *vector = NULL;
    if (dense && !columns && out->dtype != YK_F64) {
        f->epilogue = CUBLASLT_EPILOGUE_BIAS;
        *vector = bias->data;
    } else if (bias && half) {
        return false; /* it would be rounded twice */
    }
    f->bias_alignment = *vector ? alignment(*vector) : 0;
    return true;
}

yk_status cuda_blas_gemm(int device, const yk__view *out, const yk__view *a, const yk__view *b, const yk__view *bias,
                         bool accumulate, bool *taken)
{
    const yk__view *views[] = {out, a, b};
    const void *first, *second, *vector;
    cudaStream_t stream = NULL;
    form f;
    *taken = false;
    pthread_once(&once, open_library);
    if (!blas.there)
        return YK_OK;
    bool columns = false;
    if (!form_of(&f, &first, &second, out, a, b, false)) {
        columns = true;
        if (!form_of(&f, &first, &second, out, a, b, true))
            return YK_OK;
    }
    if (!epilogue_of(&f, out, bias, columns, &vector))
        return YK_OK;
    bool apart = bias && f.epilogue != CUBLASLT_EPILOGUE_BIAS; /* before the product, or behind one that adds to out */
    f.gpu = cuda_gpu_of(device);
    f.accumulate = accumulate || apart;
    f.tf32 = out->dtype == YK_F32 && cuda_allows_tf32();
    plan p;
    description d;
    yk_status status = cuda_use(device, &stream);
    if (status)
        return status;
    cublasStatus_t code = describe(&d, &f, vector);
    if (code)
        return is_refusal(code) ? YK_OK : failed(device, code, "description of a matrix product");
    status = plan_of(device, &f, &d, &p);
    if (status || !p.usable)
        return status;
    if (apart && !accumulate)
        status = add_bias(device, out, bias, false);
    if (status)
        return status;
    yk__storage *memory = NULL;
    void *workspace = NULL;
    if (p.workspace) {
        char *got =
            cuda_yoke->workspace_get((yk_device){YK_CUDA, (int16_t)device}, p.workspace + WORKSPACE_ALIGNMENT, &memory);
        if (!got)
            return YK_ERR_MEMORY;
        workspace = got + (-(uintptr_t)got & (WORKSPACE_ALIGNMENT - 1));
    }
    const double one = 1, zero = 0;
    const float one_f32 = 1, zero_f32 = 0;
    bool wide = out->dtype == YK_F64;
    const void *alpha = wide ? (const void *)&one : &one_f32, *beta = wide ? (const void *)&zero : &zero_f32;
    code =
        blas.matmul(gpus[f.gpu].handle, &d.desc, alpha, first, &d.first, second, &d.second, f.accumulate ? alpha : beta,
                    out->data, &d.result, out->data, &d.result, &p.algorithm, workspace, p.workspace, stream);
    if (memory)
        cuda_yoke->storage_release(memory); /* for those behind on the device's queue */
    if (is_refusal(code)) {
        forget_algorithm(device, &f);
        return YK_OK;
    }
    if (code)
        return failed(device, code, "cublasLtMatmul");
    *taken = true;
    status = cuda_launched(device, "gemm (cuBLASLt)", 3, views);
    return status || !apart || !accumulate ? status : add_bias(device, out, bias, true);
}

const char *cuda_blas_described(void)
{
    pthread_once(&once, open_library);
    return blas.text;
}

#else /* built without its headers */

yk_status cuda_blas_gemm(int device, const yk__view *out, const yk__view *a, const yk__view *b, const yk__view *bias,
                         bool accumulate, bool *taken)
{
    (void)device, (void)out, (void)a, (void)b, (void)bias, (void)accumulate;
    *taken = false;
    return YK_OK;
}

const char *cuda_blas_described(void)
{
    return "built without cuBLASLt's headers";
}

#endif
