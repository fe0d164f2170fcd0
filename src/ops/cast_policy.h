/*
 * cast_policy.h - the operations that autocast casts, with their dtypes, as in PyTorch's two lists, and the macro by
 * which one does. Layer: ops.
 *
 * An operation on a list begins with YK__AUTOCAST, which costs one look at a variable of the thread where autocast is
 * off. Where it is on and there is something to do, the operation is called again with its inputs cast, and whatever
 * it is made of inside is not cast a second time.
 */
#ifndef YOKE_OPS_CAST_POLICY_H
#define YOKE_OPS_CAST_POLICY_H

#include "ops/op.h"

/* The casts of floating inputs other than f64: none; all to the region's dtype; all to f32; all to the widest of
 * them. */
typedef enum yk__cast_policy { YK__CAST_NONE, YK__CAST_LOWER, YK__CAST_WIDE, YK__CAST_WIDEST } yk__cast_policy;

/* Operation, on CPUs, on GPUs. Source: aten/src/ATen/autocast_mode.h. */
/* clang-format off */
#define YK__CAST_LISTS(X)                                                                                              \
    X(linear,           LOWER,  LOWER)                                                                                 \
    X(matmul,           LOWER,  LOWER)                                                                                 \
    X(conv2d,           LOWER,  LOWER)                                                                                 \
    X(conv1d,           LOWER,  LOWER)                                                                                \
    X(conv3d,           LOWER,  LOWER)                                                                                \
    X(conv_transpose1d, LOWER,  LOWER)                                                                                \
    X(conv_transpose2d, LOWER,  LOWER)                                                                                \
    X(conv_transpose3d, LOWER,  LOWER)                                                                                \
    X(attention,        LOWER,  LOWER)                                                                                 \
    X(einsum,           NONE,   LOWER)                                                                                 \
    X(lstm,             LOWER,  LOWER)                                                                                 \
    X(lstm_cell,        NONE,   LOWER)                                                                                 \
    X(mse_loss,         WIDE,   WIDE)                                                                                  \
    X(cross_entropy,    WIDE,   WIDE)                                                                                  \
    X(cdist,            WIDE,   WIDE)                                                                                  \
    X(prod,             WIDE,   WIDE)                                                                                  \
    X(quantile,         WIDE,   NONE)                                                                                  \
    X(exp,              NONE,   WIDE)                                                                                  \
    X(expm1,            NONE,   WIDE)                                                                                  \
    X(log,              NONE,   WIDE)                                                                                  \
    X(log1p,            NONE,   WIDE)                                                                                  \
    X(log2,             NONE,   WIDE)                                                                                  \
    X(log10,            NONE,   WIDE)                                                                                  \
    X(tan,              NONE,   WIDE)                                                                                  \
    X(asin,             NONE,   WIDE)                                                                                  \
    X(acos,             NONE,   WIDE)                                                                                  \
    X(sinh,             NONE,   WIDE)                                                                                  \
    X(cosh,             NONE,   WIDE)                                                                                  \
    X(reciprocal,       NONE,   WIDE)                                                                                  \
    X(rsqrt,            NONE,   WIDE)                                                                                  \
    X(pow,              NONE,   WIDE)                                                                                  \
    X(sum,              NONE,   WIDE)                                                                                  \
    X(cumsum,           NONE,   WIDE)                                                                                  \
    X(cumprod,          NONE,   WIDE)                                                                                  \
    X(norm,             NONE,   WIDE)                                                                                  \
    X(logsumexp,        NONE,   WIDE)                                                                                  \
    X(softmax,          NONE,   WIDE)                                                                                  \
    X(log_softmax,      NONE,   WIDE)                                                                                  \
    X(layer_norm,       NONE,   WIDE)                                                                                  \
    X(group_norm,       NONE,   WIDE)                                                                                  \
    X(rms_norm,         NONE,   WIDE)                                                                                  \
    X(local_response_norm, NONE,   WIDE)                                                                               \
    X(avg_pool3d,       WIDE,   NONE)                                                                                  \
    X(max_pool3d,       WIDE,   NONE)                                                                                  \
    X(adaptive_avg_pool3d, WIDE,   NONE)                                                                               \
    X(adaptive_max_pool3d, WIDE,   NONE)                                                                               \
    X(grid_sample,      WIDE,   WIDEST)                                                                                \
    X(affine_grid,      LOWER,  LOWER)                                                                                 \
    X(max_unpool,       WIDE,   NONE)                                                                                  \
    X(cat,              WIDEST, NONE)                                                                                  \
    X(stack,            WIDEST, NONE)                                                                                  \
    X(addcmul,          NONE,   WIDEST)                                                                                \
    X(addcdiv,          NONE,   WIDEST)                                                                                \
    X(atan2,            NONE,   WIDEST)
#define YK__CAST_NAME(op, cpu, cuda) YK__CAST_OP_##op,
typedef enum yk__cast_op { YK__CAST_LISTS(YK__CAST_NAME) YK__CAST_OPS } yk__cast_op;
#undef YK__CAST_NAME
/* clang-format on */

/* A call within: the scope of the casts, and what this thread casted before. */
typedef struct yk__cast_call {
    yk_scope scope;
    uint32_t types;
} yk__cast_call;

/* inputs[] (NULL entries are passed over) cast in place, in the current scope; where one cannot be, all become NULL,
 * with the error set. */
void yk__autocast_inputs(yk__cast_op op, int count, yk_tensor **inputs);
/* The same in a scope of its own, and nothing more is cast until close, which gives `out` to the scope around. False
 * where the operation is not to be cast: then close is not called. */
bool yk__autocast_open(yk__cast_call *call, yk__cast_op op, int count, yk_tensor **inputs);
yk_tensor *yk__autocast_close(yk__cast_call *call, yk_tensor *out);

/* The first statement of an operation: inputs is a local array of its tensors; again is the same call, of inputs[]. */
#define YK__AUTOCAST(op, count, inputs, again)                                                                         \
    do {                                                                                                               \
        yk__cast_call within;                                                                                          \
        if (__builtin_expect(yk__autocast_types != 0, 0) &&                                                            \
            yk__autocast_open(&within, YK__CAST_OP_##op, count, inputs))                                               \
            return yk__autocast_close(&within, again);                                                                 \
    } while (0)

#endif
