/*
 * blas.h - products by cuBLASLt, for blas.c, blas_plan.c and blas_trial.c. Layer: device/cuda.
 */
#ifndef YOKE_DEVICE_CUDA_BLAS_H
#define YOKE_DEVICE_CUDA_BLAS_H

#include "device/cuda/libraries.h"

#if defined(__has_include)
#if __has_include(<cublasLt.h>)
#define HAS_BLAS 1
#endif
#endif

#ifdef HAS_BLAS
#include <cublasLt.h>

/* LEAST_TERMS: of a sum that a trial can judge. MOST_BATCHES: planes of a grid, of which the library's kernels have one
 * for each matrix; cuda_gemm cuts what has more. */
enum { LEAST_TERMS = 16, MOST_ALGORITHMS = 4, VECTOR_ALIGNMENT = 16, MOST_BATCHES = 65535 };

/* The key that an algorithm is chosen for; without padding, for it is compared byte by byte. */
typedef struct cuda_blas_form {
    int64_t gpu, dtype /* of the factors */, out_dtype, rows, columns, k, batches;
    int64_t first_ld, first_batch, second_ld, second_batch, result_ld, result_batch;
    int64_t first_transposed, second_transposed, accumulate, tf32;
    int64_t epilogue; /* cublasLtEpilogue_t */
    int64_t first_alignment, second_alignment, result_alignment, vector_alignment;
} cuda_blas_form;

/* The library's descriptions of a product. */
typedef struct cuda_blas_description {
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t first, second, result;
    const void *vector; /* that desc has */
} cuda_blas_description;

typedef struct cuda_blas_algorithm {
    cublasLtMatmulAlgo_t made;
    size_t workspace;
} cuda_blas_algorithm;

/* The first of `left` algorithms is taken, the fastest by the library's estimate. */
typedef struct cuda_blas_plan {
    cuda_blas_form of;
    cuda_blas_description described;
    cuda_blas_algorithm algorithms[MOST_ALGORITHMS];
    int left;
    bool known, usable, tried;
} cuda_blas_plan;

/* A product for the library: its operands, the form that chooses the algorithm, the device and the stream. */
typedef struct cuda_blas_job {
    const cuda_product *product;
    cuda_blas_form of;
    const void *first, *second, *vector;
    int device;
    cudaStream_t stream;
} cuda_blas_job;

static inline bool cuda_blas_is_half(int64_t dtype)
{
    return dtype == YK_F16 || dtype == YK_BF16;
}

/* ---- blas_plan.c ---- */
/* Opens the library, once; false where it is not there. */
bool cuda_blas_open(void);
const char *cuda_blas_text(void); /* its version, or why it is not there */
/* A GPU's handle and plans are used by one thread at a time. */
void cuda_blas_lock(int64_t gpu);
void cuda_blas_unlock(int64_t gpu);
/* The error of a call that failed. */
yk_status cuda_blas_failed(int device, cublasStatus_t code, const char *call);
/* True if an algorithm that answered with this code may be replaced by the next: one algorithm's failure is not the
 * step's. */
bool cuda_blas_gives_way(int device, cudaStream_t stream, const char *call, cublasStatus_t code);
/* The plan of the job's form, made where there is none yet, in the mode in which a recording allows what the library
 * may do then: load kernels, allocate. Under the lock. */
yk_status cuda_blas_plan_of(const cuda_blas_job *j, cuda_blas_plan **found, bool *refused);
/* Queues the product, with these operands; *code is the library's answer. An algorithm that it refuses gives way to the
 * next, but not after a trial, which was that one's. Under the lock. */
yk_status cuda_blas_multiply(const cuda_blas_job *j, cuda_blas_plan *p, const void *first, const void *second,
                             const void *vector, bool accumulate, cublasStatus_t *code);

/* ---- blas_trial.c ---- */
/* Finds out, once, whether the plan's epilogue does what it should; *code is the library's answer. */
yk_status cuda_blas_try(const cuda_blas_job *j, cuda_blas_plan *p, cublasStatus_t *code);

#endif
#endif
