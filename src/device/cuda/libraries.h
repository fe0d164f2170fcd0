/*
 * libraries.h - NVIDIA's libraries, opened when an operation first wants one. Layer: device/cuda. C and C++.
 *
 * The plug-in is built with their headers where they are there, and links none of them: a machine may lack one. Then,
 * and in cases that a library does not take, our own kernels do the work; both are counted.
 */
#ifndef YOKE_DEVICE_CUDA_LIBRARIES_H
#define YOKE_DEVICE_CUDA_LIBRARIES_H

#include "device/cuda/cuda.h"
#include "device/cuda/dnn_form.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A function of a library: its name, and where its address goes. */
typedef struct cuda_symbol {
    const char *name;
    void **address;
} cuda_symbol;

/* Opens `file` at the first of the places of host/library_path.h that has all its `count` functions. False where none
 * does, or YOKE_CUDA_LIBRARIES=0 keeps to our own kernels; `why`, of CUDA_WHY bytes, says which. */
enum { CUDA_WHY = 500 };
bool cuda_library_open(const char *file, const cuda_symbol *symbols, int count, char *why);

/* Memory for one call, as aligned as cudaMalloc's, which is what libraries are told: yk__workspace_get's contract. */
enum { CUDA_MALLOC_ALIGNMENT = 256 };
void *cuda_workspace(int device, size_t bytes, yk__storage **memory);

extern const char *const cuda_work_names[CUDA_WORKS]; /* as the slots are called */
/* Notes that a library did a piece of work, or one of our own kernels. */
void cuda_count_work(enum cuda_work work, bool by_library);
/* Notes that a plan was chosen by timing. */
void cuda_count_timed(void);
/* Notes that a library's call did more than the product or the convolution: ReLU, or the sums of rows. */
enum cuda_fusion { CUDA_CONV_RELU, CUDA_GEMM_RELU, CUDA_GEMM_ROW_SUMS, CUDA_FUSIONS };
void cuda_count_fused(enum cuda_fusion fusion);
/* Notes that another algorithm takes the place of one that failed, which is counted, and warned of; `code` and its name
 * are the library's. False where none may: the stream is recorded, or an error is in it. */
bool cuda_note_replaced(int device, cudaStream_t stream, const char *call, int code, const char *name);
/* Computes a convolution by cuDNN. CUDA_CONV writes out, with a bias where that is not NULL and ReLU where p->relu;
 * CUDA_CONV_INPUT writes x, the gradient of the input; CUDA_CONV_WEIGHT writes w, that of the weight. *taken is false
 * if cuDNN is missing or does not support the call. (dnn.c) */
yk_status cuda_dnn_conv(int device, enum cuda_work work, const yk__conv2d *p, const yk__view *x, const yk__view *w,
                        const yk__view *out, const yk__view *bias, bool *taken);
/* Computes attention by cuDNN, or its backward where gout is not NULL, as the slots have it. *taken is false if cuDNN
 * is missing or does not support the call: nothing was written then. (dnn_attention.c) */
typedef struct cuda_attended {
    const yk__view *q, *k, *v, *mask, *out, *lse, *gout, *gq, *gk, *gv;
} cuda_attended;
yk_status cuda_dnn_attention(int device, const yk__attention *p, const cuda_attended *c, bool *taken);
/* cuDNN's version, or why there is none, for reports. (dnn_plan.c) */
const char *cuda_dnn_described(void);

/* The libraries that were found, "gemm: 12 by library, 0 by own kernel" for each kind of work, and "plans timed: 3".
 * The plug-in exports it for tests and reports. */
__attribute__((visibility("default"))) void yk__cuda_describe(char *text, size_t size);
/* True if f32 products may round their factors to TF32: YOKE_CUDA_TF32=1. */
bool cuda_allows_tf32(void);
/* True if cuDNN's fused kernels compute attention: unless YOKE_CUDA_FUSED_ATTENTION=0. */
bool cuda_fuses_attention(void);

/* out = or += a b [+ bias], perhaps with ReLU after it, or with the sums of a over K beside it; bias and sums may be
 * NULL. All are of one dtype, or a and b of a half, out and bias of f32; then there are no sums. */
typedef struct cuda_product {
    const yk__view *out, *a, *b, *bias, *sums;
    bool accumulate, relu;
} cuda_product;
/* The product by cuBLASLt. *taken is false where it was not done, and is to be done otherwise: the library is not here,
 * takes no such layout, or has no algorithm for it; out may have been written then, but not where it is added to. */
yk_status cuda_blas_gemm(int device, const cuda_product *p, bool *taken);
/* A trial of a fused ReLU on a bias of NaN and infinities (nan_trial.c): the first fills the bias, the second checks
 * out, dense, where element i belongs to the channel (i / inner) % channels. Waits for the stream. */
yk_status cuda_nan_trial_bias(int device, cudaStream_t stream, yk_dtype dtype, void *bias, int64_t count);
yk_status cuda_nan_trial_passed(int device, cudaStream_t stream, yk_dtype dtype, const void *out, int64_t count,
                                int64_t inner, int64_t channels, bool *passed);
/* cuBLASLt's version, or why there is none, for reports. */
const char *cuda_blas_described(void);

#ifdef __cplusplus
}
#endif
#endif
