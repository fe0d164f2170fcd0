/*
 * kernel_args.h - the arguments of the device table's slots: views, operations, and the numbers of each. Layer: device.
 * C and C++: kernels for GPUs read it, too.
 */
#ifndef YOKE_DEVICE_KERNEL_ARGS_H
#define YOKE_DEVICE_KERNEL_ARGS_H

#include <yoke/device.h>

#include "base/philox.h"

/* yk_dtype_size and yk_dtype_is_floating, for plug-ins, which link nothing of yoke. */
static inline size_t yk__size_of(yk_dtype dtype)
{
    bool eight = dtype == YK_F64 || dtype == YK_I64, four = dtype == YK_F32 || dtype == YK_I32;
    return eight ? 8 : four ? 4 : dtype == YK_F16 || dtype == YK_BF16 ? 2 : 1;
}
static inline bool yk__is_real(yk_dtype dtype)
{
    return dtype == YK_F32 || dtype == YK_F64 || dtype == YK_F16 || dtype == YK_BF16;
}

/* A strided block of memory as kernels see it. */
typedef struct yk__view {
    void *data; /* the first element */
    yk_dtype dtype;
    int ndim;
    int64_t shape[YK_MAX_DIMS];
    int64_t stride[YK_MAX_DIMS];
} yk__view;

/* The queues of a device's work (CUDA's streams). Work on one queue is carried out in order; between two there is no
 * order but that of yk__queue_order. Kernels are on the first; copies that overlap with them, and collectives, have
 * their own. */
typedef enum yk__queue { YK__QUEUE_COMPUTE, YK__QUEUE_COPY, YK__QUEUE_COMM, YK__QUEUES } yk__queue;
/* A place on a queue: passed once everything that was put there before is done. */
typedef struct yk__event yk__event;
/* Work that was recorded and can be queued again and again (CUDA's graph exec). */
typedef struct yk__graph_exec yk__graph_exec;

/* clang-format off */
typedef enum yk__unary {
    YK__NEG, YK__ABS, YK__EXP, YK__LOG, YK__SQRT, YK__RSQRT, YK__RECIPROCAL, YK__SIN, YK__COS, YK__TANH,
    YK__LOG1P, YK__EXPM1, YK__ERF,
    YK__SIGMOID, YK__RELU, YK__GELU, /* the exact one, with erf */
    YK__GELU_TANH, YK__SILU, YK__MISH, YK__LOG_SIGMOID, YK__HARDSWISH, YK__HARDSIGMOID,
    YK__LEAKY_RELU /* p0 x below 0 */, YK__ELU /* p0 (e^x - 1) below 0 */,
    YK__SOFTPLUS /* log(1 + e^(p0 x)) / p0, x where p0 x > p1 */, YK__SOFTPLUS_SLOPE /* its derivative */,
    YK__THRESHOLD /* p1 up to p0 */, YK__HARDSHRINK /* 0 where |x| <= p0 */,
    YK__SOFTSHRINK /* x nearer to 0 by p0, but not past it */,
    YK__TAN, YK__ASIN, YK__ACOS, YK__ATANH, YK__LOG2, YK__LOG10,
    YK__REPLACE_INFINITY /* by p0, -infinity by p1 */, YK__NAN_TO_NUM /* p0 for NaN, others to [-p1, p1] */,
    YK__SIGN, YK__FLOOR, YK__CEIL, YK__ROUND /* half to even */, YK__LOGICAL_NOT /* any dtype to bool */,
    YK__IS_FINITE /* float to bool */,
    YK__ADD_SCALAR /* x + p0 */, YK__MUL_SCALAR /* x * p0 */, YK__POW_SCALAR /* x ^ p0 */, YK__CLAMP /* to [p0, p1] */
} yk__unary;

typedef enum yk__binary {
    YK__ADD /* a + alpha b */, YK__SUB /* a - alpha b */, YK__MUL, YK__DIV, YK__POW, YK__MAXIMUM, YK__MINIMUM, YK__ATAN2,
    /* quotients rounded down and to zero, and what they leave; of integers by 0: 0 */
    YK__FLOOR_DIVIDE, YK__TRUNC_DIVIDE, YK__REMAINDER, YK__FMOD,
    YK__EQ, YK__NE, YK__LT, YK__LE, YK__GT, YK__GE, YK__AND, YK__OR, /* out is bool */
    /* losses of each element: d = a - b, d^2 / (2 alpha) up to |d| = alpha and |d| - alpha / 2 beyond; b log b - b a */
    YK__SMOOTH_L1, YK__KL_DIV,
    YK__LERP_NUMBER /* a + alpha (b - a), from the end that is nearer */, YK__PRELU /* a, or a b where a <= 0 */,
    /* gradients: a is the gradient of the output, b what the op kept */
    YK__RELU_GRAD /* b = out */, YK__TANH_GRAD /* b = out */, YK__SIGMOID_GRAD /* b = out */, YK__GELU_GRAD /* b = x */,
    YK__GELU_TANH_GRAD, YK__SILU_GRAD, YK__MISH_GRAD, YK__LOG_SIGMOID_GRAD, YK__HARDSWISH_GRAD, YK__HARDSIGMOID_GRAD,
    YK__LEAKY_RELU_GRAD /* alpha: p0 */, YK__ELU_GRAD /* alpha: p0 */, YK__THRESHOLD_GRAD /* alpha: p0 */,
    YK__SHRINK_GRAD /* of both, alpha: p0 */, /* b = x in these, too */
    YK__ABOVE_GRAD, YK__BELOW_GRAD, /* a where b > alpha, b < alpha, else 0 */
    YK__SMOOTH_L1_GRAD /* b = d */,
    YK__ABS_GRAD /* b = x */
} yk__binary;

typedef enum yk__ternary {
    YK__LERP,    /* a + c (b - a), from the end that is nearer */
    YK__ADDCMUL, /* a + value b c */
    YK__ADDCDIV  /* a + value b / c */
} yk__ternary;

typedef enum yk__reduce {
    YK__SUM, YK__MEAN, YK__PROD, YK__AMAX, YK__AMIN, YK__ANY, YK__ALL, /* any and all: out is bool */
    YK__ARGMAX, YK__ARGMIN, /* one dimension reduced; out is i64; the first of equals, NaN counts as the extreme */
    YK__VAR,                /* divided by count - p0 */
    YK__SUM_SQUARES
} yk__reduce;
/* clang-format on */

typedef enum yk__scan { YK__CUMSUM, YK__CUMPROD } yk__scan;

typedef enum yk__random_kind {
    YK__RANDOM_UNIFORM, /* [p0, p1) */
    YK__RANDOM_NORMAL,  /* mean p0, deviation p1 */
} yk__random_kind;

/* Index tensors: the positions of elements along some dimensions of x. Every view is i64 and has the shape of the
 * values that are read or written, with stride 0 where its tensor has no such dimension. */
typedef struct yk__indices {
    const char *name; /* of the operation, for errors */
    int count;        /* 1 to YK_MAX_DIMS */
    bool wrap;        /* -1 is the last element */
    struct {
        yk__view view;
        int dim;              /* of x, for errors: the first, where several that lie evenly are one */
        int64_t size, stride; /* of x there, in elements */
    } of[YK_MAX_DIMS];
} yk__indices;

typedef struct yk__conv2d {
    int64_t stride[2], padding[2], dilation[2], groups; /* height, width */
    bool relu; /* forward: out = max(0, ...): the activation is fused; nothing to the backward slots */
} yk__conv2d;

typedef struct yk__pool2d {
    int64_t kernel[2], stride[2], padding[2], dilation[2]; /* height, width; dilation for max only */
    bool count_exclude_pad;                                /* average: padding does not count */
    int64_t divisor;                                       /* average: fixed divisor, 0: the window's size */
} yk__pool2d;

/* A reading of planes at the points of a grid; the numbers are those of yk_grid_mode and yk_grid_padding. */
typedef enum yk__grid_mode { YK__GRID_BILINEAR = 0, YK__GRID_NEAREST, YK__GRID_BICUBIC } yk__grid_mode;
typedef enum yk__grid_padding {
    YK__GRID_PADDING_ZEROS = 0,
    YK__GRID_PADDING_BORDER,
    YK__GRID_PADDING_REFLECTION
} yk__grid_padding;
typedef struct yk__grid_sampling {
    yk__grid_mode mode;
    yk__grid_padding padding;
    bool align_corners;
} yk__grid_sampling;

/* The elements, along one dimension, that each of `size` elements of a result comes from, and their weights. Tap k of
 * element i is at [k size + i]; it is there for k below taps[i], which is at most `most`. Host memory. */
typedef struct yk__taps {
    int64_t size, most;
    bool full;            /* taps[i] is `most` for all i */
    const int32_t *taps;  /* (size) */
    const int32_t *index; /* (most,size) */
    const double *weight; /* (most,size) */
} yk__taps;

typedef struct yk__batch_norm {
    double momentum, eps;
    bool training; /* statistics of the batch; else the running ones */
    bool relu;     /* out = max(0, ...): the activation is fused */
    /* In the device's memory, or NULL, as it always is where the backend does not say `batch_norm_edges`. */
    int64_t *batches; /* forward: += 1 */
    double *edges; /* (C,2), with relu and without a residual: where relu cuts, which forward leaves for backward, which
                      then reads it in place of out */
} yk__batch_norm;

typedef struct yk__attention {
    double scale; /* of the scores */
    bool causal;  /* query i looks at keys 0 to i only */
    /* Weight i (C order of (B,H,L,S)) is multiplied by keep / (1 - dropout), as the slot dropout does it with these; 0
     * for a backend without attention_mask_gradient. */
    double dropout;
    yk__stream stream;
    const uint32_t *calls;
} yk__attention;

typedef struct yk__lstm {
    bool reverse; /* from the last step to the first */
    bool want_h0; /* backward: the gradient of the state before the first step, which is a product */
} yk__lstm;

typedef struct yk__cross_entropy {
    int64_t ignore_index;
    double label_smoothing; /* [0, 1] */
    bool mean;              /* divide by the number (or the weight) of the targets that count; else the sum */
} yk__cross_entropy;

/*
 * Note [What changes from step to step]
 * A step that a device recorded once and repeats has its arguments frozen, so what differs between steps lies in the
 * device's memory: the learning rate and the number of the step (yk__step_state), the loss scale and whether a gradient
 * was found that is not finite (yk__scale_state), the number of calls that the random generator has had. Slots that are
 * given a pointer to these read them when they are carried out, in place of the numbers in their arguments; the results
 * have the same bits. The host sets a field by `fill`, and reads it by `download`.
 */
typedef struct yk__step_state {
    double lr;
    int64_t step; /* from 1 */
} yk__step_state;

typedef struct yk__scale_state {
    float scale;            /* of the loss */
    float inverse;          /* 1 / scale */
    int32_t growth_tracker; /* of 32 bits, as PyTorch's is */
    int32_t found;          /* 1: a gradient was not finite */
} yk__scale_state;

typedef struct yk__scaling {
    double growth_factor, backoff_factor;
    int64_t growth_interval;
} yk__scaling;

typedef struct yk__sgd {
    double lr, momentum, dampening, weight_decay;
    bool nesterov, maximize;
    bool first;                  /* the momentum buffer is not yet set: it becomes the gradient */
    const yk__step_state *state; /* in the device's memory, in place of lr and first (step 1), or NULL */
    const int32_t *skip;         /* in the device's memory, or NULL; where it is not 0 nothing is changed */
} yk__sgd;

typedef struct yk__adam {
    double lr, beta1, beta2, eps, weight_decay;
    bool decoupled; /* AdamW */
    bool amsgrad, maximize;
    int64_t step;                /* from 1 */
    const yk__step_state *state; /* in the device's memory, in place of lr and step, or NULL */
    const int32_t *skip;         /* as above */
} yk__adam;

/* The other rules of a step; optimizer_rules.h has their formulas. */
typedef enum yk__rule { YK__RMSPROP, YK__ADAGRAD, YK__ADADELTA, YK__ADAMAX, YK__NADAM, YK__RADAM, YK__RULES } yk__rule;
/* Numbers of a step by one of them, in the words of torch.optim; each rule reads those that it has there. */
typedef struct yk__descent {
    yk__rule rule;
    double lr, eps, weight_decay;
    double rho;                  /* RMSprop's alpha, Adadelta's rho */
    double momentum;             /* RMSprop */
    double beta1, beta2;         /* Adamax, NAdam, RAdam */
    double lr_decay, initial;    /* Adagrad; `initial` is what the sum begins with */
    double momentum_decay;       /* NAdam */
    double fade;                 /* NAdam: 0.96^momentum_decay, so that no kernel computes it */
    bool centered;               /* RMSprop */
    bool decoupled, maximize;    /* decoupled: NAdam, RAdam */
    int64_t step;                /* from 1 */
    const yk__step_state *state; /* in the device's memory, in place of lr and step, or NULL */
    const int32_t *skip;         /* as above */
} yk__descent;

/* ---- augmentation: where a sample's image lies, and what of it is wanted; six numbers of i64 ---- */
typedef struct yk__crop {
    int64_t from;          /* its first byte; it is (C, height, width) in C order */
    int64_t height, width; /* may be 0 */
    int64_t top, left; /* the output's first row and column, before mirroring, in the image; outside of it: byte 0 */
    int64_t mirrored;  /* 1: the last column comes first */
} yk__crop;
enum { YK__CROP_NUMBERS = sizeof(yk__crop) / sizeof(int64_t) };

/* ---- images: host memory, whatever the device ---- */
enum {
    YK__RESAMPLE_FRACTION = 22, /* bits after the point of a weight: PIL's, which makes the bytes equal */
    YK__RESAMPLE_GROUP = 64     /* rows that are done together */
};
/* For each of `out` positions: the first source position, their number, and their weights (`most` apart). first[]
 * rises. */
typedef struct yk__resample_filter {
    int64_t out, most;
    const int *first, *count, *weights;
} yk__resample_filter;
/* Planes of bytes to (planes, vertical.out, horizontal.out): rows first, each pass rounded to bytes. */
typedef struct yk__resample {
    const unsigned char *from; /* the offset of position 0 of both filters */
    int64_t planes, plane_stride, row_stride;
    yk__resample_filter horizontal, vertical;
    unsigned char *between; /* memory for (source rows, horizontal.out) */
    unsigned char *scratch; /* and for (source columns + horizontal.out, YK__RESAMPLE_GROUP) */
    unsigned char *to;
} yk__resample;

#endif
