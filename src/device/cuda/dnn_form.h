/*
 * dnn_form.h - which convolution a plan of cuDNN's is for. Layer: device/cuda. Needs no header of CUDA's: tests that
 * have none include it.
 */
#ifndef YOKE_DEVICE_CUDA_DNN_FORM_H
#define YOKE_DEVICE_CUDA_DNN_FORM_H

#include "device/kernel_args.h"

/* What a library does, or one of our own kernels. */
enum cuda_work { CUDA_GEMM, CUDA_CONV, CUDA_CONV_INPUT, CUDA_CONV_WEIGHT, CUDA_WORKS };

/* Without padding between members, for it is compared byte by byte. x (N,C,H,W), w (O,C/groups,KH,KW), out (N,O,OH,OW);
 * of these `work` says which is made: out, x or w. */
typedef struct dnn_form {
    int64_t device, work /* cuda_work */, dtype /* of all tensors */, last /* the channels, in memory */;
    int64_t tf32 /* f32 factors may be rounded to it */, deterministic, benchmark /* chosen by timing */;
    int64_t bias /* (O); CUDA_CONV alone */, relu /* behind the bias */;
    int64_t x[4], w[4], out[4], stride[2], padding[2], dilation[2];
    int64_t alignment[4]; /* bytes, of x, w, out and bias */
} dnn_form;

/* Room for why there is no plan. */
enum { DNN_WHY = 600 };

/* Whether cuDNN makes a plan of the form for a GPU that need not be there, given its properties as the library's JSON.
 * `why`, of DNN_WHY bytes, says why not, or which engine it is. False with an empty text where the library is not there
 * or cannot do this. The plug-in exports it for tests. */
__attribute__((visibility("default"))) bool yk__cuda_dnn_plan(const dnn_form *f, const char *properties, char *why);

#endif
