/*
 * dnn_form.h - the convolution, or attention, that a plan of cuDNN's is for. Layer: device/cuda. Needs no header of
 * CUDA's: tests that have none include it.
 */
#ifndef YOKE_DEVICE_CUDA_DNN_FORM_H
#define YOKE_DEVICE_CUDA_DNN_FORM_H

#include "device/kernel_args.h"

/* The kinds of work that a library does, or one of our own kernels. */
enum cuda_work {
    CUDA_GEMM,
    CUDA_CONV,
    CUDA_CONV_INPUT,
    CUDA_CONV_WEIGHT,
    CUDA_ATTENTION,
    CUDA_ATTENTION_BACKWARD,
    CUDA_WORKS
};

/* The operands of attention that have strides. */
enum {
    DNN_STRIDES_Q,
    DNN_STRIDES_K,
    DNN_STRIDES_V,
    DNN_STRIDES_OUT,
    DNN_STRIDES_GOUT,
    DNN_STRIDES_GQ,
    DNN_STRIDES_GK,
    DNN_STRIDES_GV,
    DNN_STRIDED
};

/* Attention of queries (N,H,L,E) to keys (N,H,S,E) and values (N,H,S,V). The elements of a row lie side by side; what
 * is not there has strides of 0. */
typedef struct dnn_attention {
    int64_t batch, heads, queries, keys, width /* E */, values /* V */, causal;
    int64_t stride[DNN_STRIDED][3]; /* elements, from a batch, a head and a row to the next */
    float scale, unused;
} dnn_attention;

/* The form of a work; without padding between members, for it is compared byte by byte. x (N,C,H,W), w
 * (O,C/groups,KH,KW), out (N,O,OH,OW); of these `work` makes one: out, x or w. */
typedef struct dnn_form {
    int64_t device, work /* cuda_work */, dtype /* of all tensors */;
    int64_t deterministic, benchmark /* chosen by timing */;
    int64_t tf32 /* f32 factors may be rounded to it */, last /* the channels, in memory */;
    int64_t bias /* (O); CUDA_CONV alone */, relu /* after the bias */;
    union {
        struct {
            int64_t x[4], w[4], out[4], stride[2], padding[2], dilation[2];
            int64_t alignment[4]; /* bytes, of x, w, out and bias */
        };
        dnn_attention attention; /* of the works that are called so; all operands are aligned to 16 bytes */
    };
} dnn_form;

static inline bool dnn_is_attention(const dnn_form *f)
{
    return f->work == CUDA_ATTENTION || f->work == CUDA_ATTENTION_BACKWARD;
}

/* Bytes for the reason why there is no plan. */
enum { DNN_WHY = 600 };

/* True if cuDNN makes a plan of the form for a GPU that need not be there, given its properties as the library's JSON.
 * `why`, of DNN_WHY bytes, says why not, or which engine it is. False with an empty text where the library is not there
 * or cannot do this. The plug-in exports it for tests. */
__attribute__((visibility("default"))) bool yk__cuda_dnn_plan(const dnn_form *f, const char *properties, char *why);

#endif
