/*
 * blas_plan.c - cuBLASLt itself: its handles, descriptions of products, the algorithms that it proposes, and a product
 * by the first of them. Layer: device/cuda.
 *
 * Which algorithm does a product is asked once for each form of it, and kept with the library's descriptions: the same
 * form gives the same bits, and a product whose form is known is one call, or two where an epilogue has a vector. An
 * algorithm that the library proposed and then refuses, or that fails while the GPU is well, gives way to the next.
 */
#include "device/cuda/blas.h"

#ifdef HAS_BLAS
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

/* PLANS: each form has PROBES slots, from its hash on; where others have all of them, the first gives way, and is
 * planned again when it comes. */
enum { MOST_GPUS = 64, PLANS = 1024, PROBES = 16 };
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

/* A GPU's handle, and what was asked by it; `plans` (PLANS) is made with the handle. */
typedef struct gpu_state {
    pthread_mutex_t lock;
    cublasLtHandle_t handle;
    cuda_blas_plan *plans;
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

yk_status cuda_blas_failed(int device, cublasStatus_t code, const char *call)
{
    return cuda_fail(code == CUBLAS_STATUS_ALLOC_FAILED ? YK_ERR_MEMORY : YK_ERR_DEVICE, "cuda:%d: %s: %s (%d)", device,
                     call, blas.status_string(code), (int)code);
}

/* True for an answer that the library cannot compute this. INVALID_VALUE is its answer to some algorithms that it
 * proposed itself. */
static bool is_refusal(cublasStatus_t code)
{
    return code == CUBLAS_STATUS_NOT_SUPPORTED || code == CUBLAS_STATUS_ARCH_MISMATCH ||
           code == CUBLAS_STATUS_INVALID_VALUE;
}

bool cuda_blas_gives_way(int device, cudaStream_t stream, const char *call, cublasStatus_t code)
{
    bool fails = code == CUBLAS_STATUS_INTERNAL_ERROR || code == CUBLAS_STATUS_EXECUTION_FAILED;
    return is_refusal(code) || (fails && cuda_note_replaced(device, stream, call, (int)code, blas.status_string(code)));
}

bool cuda_blas_open(void)
{
    pthread_once(&once, open_library);
    return blas.there;
}

const char *cuda_blas_text(void)
{
    return blas.text;
}

void cuda_blas_lock(int64_t gpu)
{
    pthread_mutex_lock(&gpus[gpu].lock);
}

void cuda_blas_unlock(int64_t gpu)
{
    pthread_mutex_unlock(&gpus[gpu].lock);
}

static cudaDataType_t type_of(yk_dtype dtype)
{
    return dtype == YK_F64 ? CUDA_R_64F : dtype == YK_F16 ? CUDA_R_16F : dtype == YK_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static cublasStatus_t lay_out(cublasLtMatrixLayoutOpaque_t *made, const cuda_blas_form *f, int64_t dtype, int64_t rows,
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

static cublasStatus_t describe(cuda_blas_description *d, const cuda_blas_form *f, const void *vector)
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
static cublasStatus_t choose(cuda_blas_plan *p)
{
    cuda_blas_description *d = &p->described;
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
    if (!code && cuda_blas_is_half(p->of.out_dtype))
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
            p->algorithms[p->left++] = (cuda_blas_algorithm){best[i].algo, best[i].workspaceSize};
    p->usable = p->left > 0;
    return code;
}

/* The entry of the form's plan, or the one that it will take: one of PROBES from that of its hash on. */
static cuda_blas_plan *place_of(const cuda_blas_form *f)
{
    uint64_t start = yk__hash(YK__HASH_BASIS, f, sizeof(*f)) >> 32;
    cuda_blas_plan *plans = gpus[f->gpu].plans, *first = &plans[start % PLANS];
    for (uint64_t i = 0; i < PROBES; i++) {
        cuda_blas_plan *p = &plans[(start + i) % PLANS];
        if (!p->known || memcmp(&p->of, f, sizeof(*f)) == 0)
            return p;
    }
    return first;
}

/* "cuda:0: cuBLASLt: (512,784) x (784,64), 1 of them, of bfloat16 with a bias: algorithm 66, 0 bytes of workspace, the
 * first of 4": for reports of what a GPU did, and how. */
static void say_chosen(int device, const cuda_blas_plan *p)
{
    static const char *const epilogues[] = {"", " with a bias", " with bias and ReLU", " with sums of rows"};
    const cuda_blas_form *f = &p->of;
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
static cublasStatus_t make_plan(const cuda_blas_job *j, cuda_blas_plan *made, const char **call, bool *refused)
{
    *made = (cuda_blas_plan){.of = j->of};
    *call = "description of a matrix product";
    cublasStatus_t code = describe(&made->described, &j->of, j->vector);
    if (!code) {
        *call = "cublasLtMatmulAlgoGetHeuristic";
        code = choose(made);
    }
    *refused = code ? cuda_blas_gives_way(j->device, j->stream, *call, code) : !made->usable;
    if (*refused)
        code = CUBLAS_STATUS_SUCCESS;
    made->known = !code;
    if (made->usable)
        say_chosen(j->device, made);
    return code;
}

static yk_status not_made(const cuda_blas_job *j, cublasStatus_t code, const char *call)
{
    bool unseen = code == CUBLAS_STATUS_INTERNAL_ERROR || code == CUBLAS_STATUS_NOT_INITIALIZED;
    if (!unseen || !cuda_is_captured(j->stream))
        return cuda_blas_failed(j->device, code, call);
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

yk_status cuda_blas_plan_of(const cuda_blas_job *j, cuda_blas_plan **found, bool *refused)
{
    gpu_state *gpu = &gpus[j->of.gpu];
    cublasStatus_t code = CUBLAS_STATUS_SUCCESS;
    const char *call = "cublasLtCreate";
    if (!gpu->plans && !(gpu->plans = calloc(PLANS, sizeof(*gpu->plans))))
        code = CUBLAS_STATUS_ALLOC_FAILED;
    cuda_blas_plan *kept = *found = code ? NULL : place_of(&j->of);
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
static yk_status multiply_once(const cuda_blas_job *j, cuda_blas_plan *p, const void *first, const void *second,
                               bool accumulate, cublasStatus_t *code)
{
    static const double one = 1, zero = 0;
    static const float one_f32 = 1, zero_f32 = 0;
    const yk__view *out = j->product->out;
    cuda_blas_description *d = &p->described;
    const cuda_blas_algorithm *a = &p->algorithms[0];
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

yk_status cuda_blas_multiply(const cuda_blas_job *j, cuda_blas_plan *p, const void *first, const void *second,
                             const void *vector, bool accumulate, cublasStatus_t *code)
{
    cuda_blas_description *d = &p->described;
    *code = CUBLAS_STATUS_SUCCESS;
    if (vector != d->vector) {
        *code = blas.desc_set(&d->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof(vector));
        d->vector = *code ? NULL : vector;
        if (*code) /* no other algorithm may take what the descriptor has yet */
            return YK_OK;
    }
    yk_status status = multiply_once(j, p, first, second, accumulate, code);
    while (!status && *code && !p->tried && p->left > 1 &&
           cuda_blas_gives_way(j->device, j->stream, "cublasLtMatmul", *code)) {
        p->left--;
        memmove(&p->algorithms[0], &p->algorithms[1], (size_t)p->left * sizeof(p->algorithms[0]));
        say_chosen(j->device, p);
        status = multiply_once(j, p, first, second, accumulate, code);
    }
    return status;
}

#endif
