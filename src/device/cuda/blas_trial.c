/*
 * blas_trial.c - trials of cuBLASLt's epilogues. Layer: device/cuda.
 *
 * Note [Trials of epilogues]
 * The manual does not say what RELU_BIAS makes of NaN, nor in what BGRADA and BGRADB add. So a form with one of them is
 * carried out once on numbers whose result tells, before its first use, and left to others where that is not right:
 * with a bias of NaN and infinities, out must be NaN, infinity or 0; sums of equal terms must be those of f32, rounded
 * once. The trial waits for the GPU, so there is none while the stream is captured: then the form is not taken.
 */
#include "device/cuda/blas.h"

#ifdef HAS_BLAS
#include "device/convert.h"

/* Tries ReLU with a bias of NaN and infinities; out, which is written, shows what the epilogue makes of them. */
static yk_status try_relu(const cuda_blas_job *j, cuda_blas_plan *p, bool *good, cublasStatus_t *code)
{
    const yk__view *out = j->product->out;
    size_t count = (size_t)out->shape[2];
    yk__storage *memory = NULL;
    void *bias = cuda_workspace(j->device, count * yk__size_of(out->dtype), &memory);
    if (!bias)
        return YK_ERR_MEMORY;
    yk_status status = cuda_nan_trial_bias(j->device, j->stream, out->dtype, bias, (int64_t)count);
    if (!status)
        status = cuda_blas_multiply(j, p, j->first, j->second, bias, false, code);
    if (!status && !*code) /* the first row of the first matrix: (N) in memory */
        status =
            cuda_nan_trial_passed(j->device, j->stream, out->dtype, out->data, out->shape[2], 1, out->shape[2], good);
    cuda_yoke->storage_release(memory);
    return status;
}

/* Tries the sums of an a of one number, with b as it is; the sums show the type in which they were added. */
static yk_status try_sums_of(const cuda_blas_job *j, cuda_blas_plan *p, double term, bool *good, cublasStatus_t *code)
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
        status =
            cuda_blas_multiply(j, p, a_first ? same : j->first, a_first ? j->second : same, j->vector, false, code);
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
static yk_status try_sums(const cuda_blas_job *j, cuda_blas_plan *p, bool *good, cublasStatus_t *code)
{
    bool bf16 = j->product->out->dtype == YK_BF16;
    const double terms[] = {bf16 ? 1 + 85.0 / 128 : 1 + 683.0 / 1024, bf16 ? 1 + 107.0 / 128 : 1 + 857.0 / 1024};
    yk_status status = YK_OK;
    for (int i = 0; i < 2 && !status && !*code && *good; i++)
        status = try_sums_of(j, p, terms[i], good, code);
    return status;
}

yk_status cuda_blas_try(const cuda_blas_job *j, cuda_blas_plan *p, cublasStatus_t *code)
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

#endif
