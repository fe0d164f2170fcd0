/*
 * op.h - declarations that the operations share: slots, dtypes for kernels, shapes kept for backward. Layer: ops.
 *
 * As in tensor.h, everything here gives one reference that the caller releases, and NULL with the error record set on
 * failure.
 */
#ifndef YOKE_OPS_OP_H
#define YOKE_OPS_OP_H

#include <string.h>

#include <yoke/ops.h>

#include "autograd/autocast.h"
#include "autograd/tape.h"

/* The status of a call that gave `x`: what went wrong where it is NULL. */
static inline yk_status yk__status_of(const void *x)
{
    return x ? YK_OK : yk__error_code() ? yk__error_code() : YK_ERR_INTERNAL;
}

/* The view of an optional tensor, in *v; NULL for none. */
static inline const yk__view *yk__optional_view(yk__view *v, const yk_tensor *x)
{
    if (!x)
        return NULL;
    *v = yk__view_of(x);
    return v;
}

/* ---- dtypes: a slot is given f16 and bf16 where its backend takes them, else f32 ---- */
/* The dtype of tensors that the table calls statistics (device/table.h), beside data of this dtype. */
static inline yk_dtype yk__statistic_dtype(yk_dtype dtype)
{
    return yk__is_half(dtype) ? YK_F32 : dtype;
}
static inline yk_dtype yk__wide_dtype(const yk_tensor *x)
{
    return yk__statistic_dtype((yk_dtype)x->dtype);
}
/* to[i] = from[i] in the dtype that the slot is called with (retained where it has it already); NULL entries stay NULL.
 * `data` has a bit for each entry that may be f16 or bf16 there, which they are where the slot takes it and all of them
 * agree; the others are statistics. On failure nothing is left in to[]. */
yk_status yk__operands(yk__slot slot, uint32_t data, int count, yk_tensor *const *from, yk_tensor **to);
void yk__release_all(int count, yk_tensor **tensors);
/*
 * Elementwise operations take one number, a 0-dimensional tensor, from a CPU where their other operands are on a GPU,
 * as PyTorch's do. yk__take_numbers puts a copy there in its place, in the scope, with a gradient where it has one;
 * NULL and the record set where that fails. yk__is_number_for: whether it would, of y for x; neither is NULL or freed.
 */
bool yk__is_number_for(const yk_tensor *x, const yk_tensor *y);
void yk__take_numbers_there(int count, yk_tensor **inputs);
static inline void yk__take_numbers(int count, yk_tensor **inputs)
{
    for (int i = 0; i < count; i++) {
        if (inputs[i] && !yk__is_freed(inputs[i]) && inputs[i]->ndim == 0) {
            yk__take_numbers_there(count, inputs);
            return;
        }
    }
}
/* x, retained, with 0 in the place of NaN. */
yk_tensor *yk__without_nan(yk_tensor *x);
/* x, taken over, in the dtype. */
yk_tensor *yk__narrow_to(yk_tensor *x, yk_dtype dtype);
/* `role` ("weight") of operation `name` must be floating, or of exactly this dtype. NULL tensors pass. */
yk_status yk__expect_floating(const char *name, const char *role, const yk_tensor *x);
yk_status yk__expect_dtype(const char *name, const char *role, const yk_tensor *x, yk_dtype dtype);
/* The factor of b in a + alpha b: where both are integers it is one, too. */
yk_status yk__check_alpha(const char *name, const yk_tensor *a, const yk_tensor *b, double alpha);
/* The input must have the weight's dtype. Where the bias, which may be NULL, has the input's, the weight is the odd
 * one, and left to yk__expect_dtype. */
yk_status yk__expect_input(const char *name, const yk_tensor *x, const yk_tensor *weight, const yk_tensor *bias);
/* The same for an operation that computes in the wide dtype of x (f32 for f16 and bf16), in which its parameters may
 * be, too: the input is the odd one where the first, or several, are given (NULL: not) and all have one other dtype. */
yk_status yk__expect_wide_input(const char *name, const yk_tensor *x, const char *const *role,
                                yk_tensor *const *parameter, int count);
/* `role` must be (size): one value per `unit`. NULL tensors pass. */
yk_status yk__expect_vector(const char *name, const char *role, const yk_tensor *x, int64_t size, const char *unit);

/* ---- the dtype, shape and strides of an input, for a context: its gradient is brought back to them ---- */
typedef struct yk__tensor_spec {
    int8_t dtype, ndim;
    int64_t shape[YK_MAX_DIMS];
    int64_t stride[YK_MAX_DIMS]; /* dense: the input's own, or C order where it has gaps */
} yk__tensor_spec;
yk__tensor_spec yk__spec_of(const yk_tensor *x);
/* An uninitialised tensor of the spec; one of zeros. */
yk_tensor *yk__spec_new(const yk__tensor_spec *spec, yk_device device);
yk_tensor *yk__spec_zeros(const yk__tensor_spec *spec, yk_device device);
/* The memory for the gradient of an input in backward: its gradient buffer if that has the spec, else a new tensor.
 * Uninitialised. */
yk_tensor *yk__gradient_new(const yk__node *node, int input, const yk__tensor_spec *spec, yk_device device);
/* In backward, the gradient that an input has from earlier ones, if it has the spec and backward may add to it in place
 * (yk__grad_to_add_to); else NULL, without an error. from[]: what backward reads, which must be other memory. */
yk_tensor *yk__gradient_sum(const yk__node *node, int input, const yk__tensor_spec *spec, int count,
                            yk_tensor *const *from);
/* In backward, for a gradient of the spec: memory of a part of the gradient that it got, `part`, where it may write
 * over that (yk__own_part) and it has the spec; else NULL, without an error. */
yk_tensor *yk__gradient_over(const yk__node *node, const yk__tensor_spec *spec, yk_tensor *part);
/* yk__gradient_new of a vector. */
yk_tensor *yk__gradient_vector(const yk__node *node, int input, int64_t size, yk_dtype dtype, yk_device device);
/* Sums a gradient, taken over, to the shape of the spec and casts it to its dtype. */
yk_tensor *yk__sum_to_spec(yk_tensor *grad, const yk__tensor_spec *spec);

/* ---- for recorded backwards (yk__op.recorded): operations of the public kind, which the scope owns ---- */
/* g summed to the shape of an input, and in its dtype: as yk__sum_to_spec. */
yk_tensor *yk__recorded_sum_to(yk_tensor *g, const yk__tensor_spec *spec);
/* g where the mask is true, else 0; where it is false. */
yk_tensor *yk__recorded_where(yk_tensor *mask, yk_tensor *g);
yk_tensor *yk__recorded_where_not(yk_tensor *mask, yk_tensor *g);
/* A number of x's dtype on its device; a tensor of zeros of the spec. */
yk_tensor *yk__recorded_number(const yk_tensor *x, double value);
yk_tensor *yk__recorded_zeros(const yk__tensor_spec *spec, yk_device device);
/* g where x is above 0, else 0: the gradient of a ReLU whose input or result is x. */
yk_tensor *yk__recorded_relu(yk_tensor *g, yk_tensor *x);
/* x, NULL passed through, in the dtype that sums of its dtype are made in. */
yk_tensor *yk__recorded_wide(yk_tensor *x);
/* recorded of an operation that hands on the gradient of its result as that of its first input. */
void yk__recorded_same(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads);
/* A saved tensor that has the values of an input, in another shape or dtype: as that input, of the spec. */
yk_tensor *yk__saved_input(yk__node *node, int i, int input, const yk__tensor_spec *spec);

/* ---- products with a weight (out, in) ---- */
/* x as one matrix (1, M, size) for gemm; a view where the leading dimensions lie evenly, else a copy. */
yk_tensor *yk__as_rows(yk_tensor *x);
/* A matrix as the batch of one, or its transpose. */
yk__view yk__matrix_of(const yk_tensor *m, bool transpose);
/* out = a b [+ bias], or out += a b, or what remains of it when the inner dimension is empty. */
yk_status yk__multiply(yk_tensor *out, const yk__view *vo, const yk__view *a, const yk__view *b, yk_tensor *bias,
                       bool accumulate);
/* out = max(0, a b [+ bias]) */
yk_status yk__multiply_relu(yk_tensor *out, const yk__view *vo, const yk__view *a, const yk__view *b, yk_tensor *bias);
/* gw = or += g^T x, of rows g (1, M, out) and x (1, M, in). */
yk_status yk__add_weight_gradient(yk_tensor *gw, const yk_tensor *g, const yk_tensor *x, bool accumulate);
/* Computes, in a backward, the gradient g^T x of an input that is a weight. Adds it in place to a gradient that is
 * there, if that is allowed; else writes it to the gradient's buffer, or to a new tensor. One reference. */
yk_tensor *yk__weight_gradient(const yk__node *node, int input, const yk__tensor_spec *spec, yk_tensor *g,
                               yk_tensor *x);
/* The same; the sum of g's rows goes to gbias (out), or NULL, if the backend computes both at once: *summed. */
yk_tensor *yk__weight_and_bias_gradient(const yk__node *node, int input, const yk__tensor_spec *spec, yk_tensor *g,
                                        yk_tensor *x, yk_tensor *gbias, bool *summed);

/* The expression's tensor, computed in a scope of its own, out of which it alone comes, and without autocast: the end
 * of a function that is made of other operations. */
#define YK__WITHIN_SCOPE(expression)                                                                                   \
    yk_scope within = yk_scope_begin();                                                                                \
    uint32_t cast_types = yk__autocast_pause();                                                                        \
    yk_tensor *result_within = (expression);                                                                           \
    yk__autocast_types = cast_types;                                                                                   \
    result_within = result_within ? yk_scope_return(within, result_within) : NULL;                                     \
    yk_scope_end(within);                                                                                              \
    return result_within

/* yk_matmul, in whose backward a gradient of 0 takes nothing from NaN in b: what a mask hides stays hidden. */
yk_tensor *yk__matmul_hiding(yk_tensor *a, yk_tensor *b);

/* Dropout of a tensor, or of a part of one: the elements of x, in C order, are `parts` runs of as many of the whole
 * tensor's, the first of which begins at its element `first` and each other one `step` after the one before. */
typedef struct yk__dropout {
    yk__stream stream;
    const uint32_t *calls; /* of a recorded call, in the graph's memory; else NULL */
    double p;
    int64_t first, parts, step;
} yk__dropout;
yk_tensor *yk__dropout_by(yk_tensor *x, const yk__dropout *c);

/* The weights of scaled dot product attention, (...,L,S), by operations; mask (bool: true where a query may look, or
 * added) or NULL. */
yk_tensor *yk__attention_weights(yk_tensor *q, yk_tensor *k, yk_tensor *mask, bool causal);

/* ---- batch normalisation ---- */
/* yk_batch_norm, in whose kernels `batches` (0-dim, i64; NULL: none) grows by 1; only where yk__batch_norm_counts. */
yk_tensor *yk__batch_norm_counting(yk_tensor *x, yk_tensor *weight, yk_tensor *bias, yk_tensor *running_mean,
                                   yk_tensor *running_var, yk_tensor *batches, const yk_batch_norm_options *options);
bool yk__batch_norm_counts(const yk_tensor *x, const yk_tensor *batches);

/* ---- activations of one kernel, of floating x that was checked ---- */
yk_tensor *yk__threshold_at_once(yk_tensor *x, double threshold, double value);
yk_tensor *yk__hardshrink_at_once(yk_tensor *x, double lambd);
yk_tensor *yk__softshrink_at_once(yk_tensor *x, double lambd);

/* ---- windows ---- */
/* The reach of a kernel along one axis and the padded size that it slides over; false where a number is beyond what can
 * be counted with. */
static inline bool yk__window(int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation,
                              int64_t *reach, int64_t *padded)
{
    const int64_t most = INT32_MAX;
    if (size > INT64_MAX - 4 * most || kernel > most || stride > most || padding > most || dilation > most)
        return false;
    *reach = dilation * (kernel - 1) + 1;
    *padded = size + 2 * padding;
    return true;
}

/* ---- along one dimension ---- */
/* Cumulative sums or products of a floating or i64 tensor, from the first element or, reversed, from the last on; f16
 * and bf16 are summed in f32. Has no shape checks. */
yk_tensor *yk__raw_scan(yk__scan op, yk_tensor *x, int dim, bool reverse);

/* Sets *has to whether an element is zero; the host waits for it. */
yk_status yk__has_zero(const char *name, yk_tensor *x, bool *has) YK_MUST_CHECK;

/* ---- small makers ---- */
yk_tensor *yk__raw_scalar(double value, yk_dtype dtype, yk_device device);
/* False, with an error, for a reduction that a loss has not; `batchmean`: it has that one as well. */
bool yk__reduction_check(const char *name, yk_reduction reduction, bool batchmean);
/* The losses of elements or rows, reduced; any but mean and sum leaves them as they are. NULL stays NULL. */
yk_tensor *yk__reduced(yk_tensor *loss, yk_reduction reduction);
/* 0, 1, ..., n - 1 as i64 of shape (n, 1, ..., 1) with `ndim` dimensions. */
yk_tensor *yk__raw_positions(int64_t n, int ndim, yk_device device);
/* The same elements in another shape (of as many): a view where the strides allow it, else a copy. */
yk_tensor *yk__raw_reshape(yk_tensor *x, int ndim, const int64_t *shape);
/* The strides of that view; false where a copy would be needed. */
bool yk__reshape_strides(const yk_tensor *x, int ndim, const int64_t *shape, int64_t *stride);
/* Dense strides for `shape` (x's number of dimensions) that follow the memory order of x: a layout like [H][W][N][C]
 * is kept from operation to operation. */
void yk__strides_in_order(const yk_tensor *x, const int64_t *shape, int64_t *stride);

#endif
