/*
 * tensor.h - the tensor itself, and the raw kernels' front door. Layer: tensor.
 *
 * Everything here works without gradients and without scopes: functions that return a tensor return one reference
 * that the caller releases. NULL means failure with the error record set; NULL arguments are passed through.
 */
#ifndef YOKE_TENSOR_TENSOR_H
#define YOKE_TENSOR_TENSOR_H

#include <yoke/tensor.h>

#include "base/counter.h"
#include "base/events.h"
#include "device/table.h"

struct yk__node;
/* The beginning of a node of autograd's (autograd/node.h): all that a tensor needs of the operation that made it. */
typedef struct yk__node_head {
    void (*release)(struct yk__node *node); /* drops one reference */
    const char *name;                       /* of the operation; static */
} yk__node_head;

/* The gradient by rows of a leaf (V, D): terms for the rows that `index` names, which may name one several times;
 * autograd/row_gradient.c. */
typedef struct yk__row_part {
    yk_tensor *index; /* (M) i64 or i32 */
    yk_tensor *rows;  /* (M, D) */
    int64_t padding;  /* the index whose rows do not count; -1: none */
} yk__row_part;
typedef struct yk__row_gradient {
    yk__row_part *parts;
    int count, room;
    bool sorted; /* there is one part, its index ascends and names each row once, and its memory is nobody else's */
    bool fresh;  /* the backward that is under way has added to it */
} yk__row_gradient;

/* The gradient of a leaf, and how it is delivered; autograd/ reads and writes it. */
typedef struct yk__leaf_gradient {
    struct yk__node *accumulator; /* made when first needed */
    yk_tensor *grad;
    yk_tensor *grad_buffer; /* becomes grad when there is none */
    struct yk__collector *collector;
    int collector_index;
    yk__row_gradient *rows; /* NULL: none; never beside `grad` but while a backward is under way */
    bool by_rows;           /* the weight of an embedding that was made sparse */
} yk__leaf_gradient;

struct yk_tensor {
    yk__object object;
    yk__storage *storage;
    void *data; /* the first element, inside storage */
    int64_t numel;
    int8_t dtype, ndim;
    bool requires_grad;               /* a leaf that wants a gradient */
    bool saved;                       /* a node of the tape keeps it, or a view of it */
    bool inference;                   /* made in inference mode: yk_is_inference */
    int8_t view_kind;                 /* a yk__view_kind */
    struct yk__node *node;            /* of the tape: the operation that made the tensor; NULL for a leaf */
    yk__leaf_gradient *leaf_gradient; /* of a leaf that once wanted a gradient or has one; else NULL */
    /* For a view that an operation made: the tensor that it shows a part of, itself no view, retained; else NULL.
     * autograd/history.c explains the version. */
    yk_tensor *base;
    uint32_t base_version;
    int output; /* the index of the tensor among the node's outputs */
    int64_t shape[YK_MAX_DIMS];
    int64_t stride[YK_MAX_DIMS];
};

/* ---- making (tensor.c) ---- */
/* True while this thread is between yk_inference_mode_begin and end; between yk_no_grad_begin and end. autograd/ sets
 * both. */
extern _Thread_local bool yk__inference_mode, yk__recording_off;
/* True while operations of this thread are recorded. */
static inline bool yk__recording(void)
{
    return !yk__recording_off && !yk__inference_mode;
}
/* Uninitialised; stride NULL for C order, else strides of a dense layout of the same number of elements. */
yk_tensor *yk__tensor_new(int ndim, const int64_t *shape, const int64_t *stride, yk_dtype dtype, yk_device device);
/* C order, checked: ndim in range, sizes not negative, no overflow. Errors in the name of `what`. */
yk_tensor *yk__tensor_from_options(const char *what, int ndim, const int64_t *shape, const yk_tensor_options *options);
yk_status yk__tensor_check(const char *what, int ndim, const int64_t *shape, const yk_tensor_options *options);
/* C order over all of `storage`, whose reference it takes over, on failure too; NULL is passed through. */
yk_tensor *yk__tensor_over(yk__storage *storage, int ndim, const int64_t *shape, yk_dtype dtype);
/* Releases all of it; NULL is passed over. */
void yk__row_gradient_free(yk__row_gradient *rows);
/* Makes a leaf one that wants a gradient, and drops its base; in the name of set_requires_grad. */
yk_status yk__tensor_require_grad(yk_tensor *x);
/* The leaf's gradient, made where there is none yet; NULL for want of memory. */
yk__leaf_gradient *yk__leaf_gradient_of(yk_tensor *x);
/* Fails in the name of `what`: a tensor made in inference mode cannot `do` that outside of it. */
yk_status yk__fail_inference(const char *what, const yk_tensor *x, const char *do_what);
/* Shares the storage of base; `offset` elements after its first. */
yk_tensor *yk__tensor_view(yk_tensor *base, int ndim, const int64_t *shape, const int64_t *stride, int64_t offset);
/* Another tensor object on the same storage, without autograd. */
yk_tensor *yk__tensor_alias(yk_tensor *x);
/* The same on `device`, which has the same memory; own_versions as in yk__storage_share. */
yk_tensor *yk__tensor_share(yk_tensor *x, yk_device device, bool own_versions);
/* The same shape; the same strides where x is dense, C order otherwise. */
yk_tensor *yk__tensor_like(const yk_tensor *x, yk_dtype dtype);
yk_tensor *yk__tensor_full_like(const yk_tensor *x, double value);

/* ---- asking ---- */
/* True for a view whose node is not that of the elements it shows any more: its base was changed in place since, and is
 * in a graph (autograd/history.c). */
bool yk__base_changed(const yk_tensor *view);
static inline bool yk__view_stale(const yk_tensor *x)
{
    return x->base && yk__base_changed(x);
}
/* yk_requires_grad, of a live tensor or NULL. */
static inline bool yk__wants_grad(const yk_tensor *x)
{
    return x && (x->requires_grad || x->node || yk__view_stale(x));
}
/* yk_grad_fn_name of a live tensor or NULL. */
const char *yk__grad_fn_name(const yk_tensor *x);
static inline yk_device yk__device_of(const yk_tensor *x)
{
    return x->storage->device;
}
static inline const yk__backend *yk__backend_for(const yk_tensor *x)
{
    return yk__backend_of(x->storage->device);
}
/* n numbers, which are few: a call of memcpy takes longer than they do. The empty statement keeps the compiler from
 * making one. */
static inline void yk__copy_sizes(int64_t *to, const int64_t *from, int n)
{
    for (int d = 0; d < n; d++) {
        to[d] = from[d];
        __asm__("");
    }
}
static inline bool yk__equal_sizes(const int64_t *a, const int64_t *b, int n)
{
    for (int d = 0; d < n; d++) {
        if (a[d] != b[d])
            return false;
    }
    return true;
}
yk__view yk__view_of(const yk_tensor *x);
/* The elements of a dense tensor as one line, in the order of memory. */
static inline yk__view yk__line_of(const yk_tensor *x)
{
    yk__view v;
    v.data = x->data;
    v.dtype = (yk_dtype)x->dtype;
    v.ndim = 1;
    v.shape[0] = x->numel;
    v.stride[0] = 1;
    return v;
}
/* x as a view of `ndim` dimensions of `shape`, broadcast with stride 0; the shapes were checked. */
yk__view yk__view_expanded(const yk_tensor *x, int ndim, const int64_t *shape);
/* yk_is_contiguous, of a live tensor. */
static inline bool yk__in_c_order(const yk_tensor *x)
{
    int64_t expected = 1;
    for (int d = x->ndim - 1; d >= 0; d--) {
        if (x->shape[d] != 1 && x->stride[d] != expected)
            return x->numel == 0;
        expected *= x->shape[d];
    }
    return true;
}
/* True if the elements fill a block of memory without gaps and overlaps, in any order of dimensions. */
bool yk__fills_block(const yk_tensor *x); /* the same, where they are not in C order */
static inline bool yk__is_dense(const yk_tensor *x)
{
    return yk__in_c_order(x) || yk__fills_block(x);
}
static inline bool yk__same_strides(const yk_tensor *a, const yk_tensor *b)
{
    if (a->ndim != b->ndim)
        return false;
    for (int d = 0; d < a->ndim; d++) {
        if (a->shape[d] != b->shape[d] || (a->shape[d] != 1 && a->stride[d] != b->stride[d]))
            return false;
    }
    return true;
}
/* True if element i in memory of one belongs to element i of the other: to kernels both are one dimension. */
static inline bool yk__same_line(const yk_tensor *a, const yk_tensor *b)
{
    return yk__same_strides(a, b) && yk__is_dense(a);
}
void yk__contiguous_strides(int ndim, const int64_t *shape, int64_t *stride);
/* Brings a negative dimension into [0, ndim) (a scalar counts as one dimension); an error names `what`. */
yk_status yk__wrap_dim(const char *what, const yk_tensor *x, int *dim);
/* "(2, 3)" of any shape. */
const char *yk__shape_text(int ndim, const int64_t *shape, char *buffer, size_t size);
/* All of one device, or an error in the name of `what` that names both. NULL entries are passed over. */
yk_status yk__same_device(const char *what, int count, yk_tensor *const *tensors);
/* The shape of two broadcast together, or an error in the name of `what`. */
yk_status yk__broadcast(const char *what, const yk_tensor *a, const yk_tensor *b, int *ndim, int64_t *shape);
/* Notes a write in place. */
static inline void yk__bump_version(yk_tensor *x)
{
    atomic_fetch_add_explicit(x->storage->versions, 1, memory_order_relaxed);
}
static inline uint32_t yk__version(const yk_tensor *x)
{
    return atomic_load_explicit(x->storage->versions, memory_order_relaxed);
}
/* Notes that the values are now the same on all ranks of a group: a copy of higher precision begins from them. */
static inline void yk__note_exchanged(yk_tensor *x)
{
    atomic_fetch_add_explicit(&x->storage->exchanged, 1, memory_order_relaxed);
}
static inline uint32_t yk__exchanged(const yk_tensor *x)
{
    return atomic_load_explicit(&x->storage->exchanged, memory_order_relaxed);
}
static inline bool yk__is_half(yk_dtype dtype)
{
    return dtype == YK_F16 || dtype == YK_BF16;
}

/* ---- calling kernels ---- */
/* Calls a slot of x's backend, or fails when the backend has none. */
#define YK__SLOT(x, slot, ...)                                                                                         \
    ({                                                                                                                 \
        uint64_t slot_began = yk__slot_begin(x);                                                                       \
        yk_status slot_status = yk__backend_for(x)->slot                                                               \
                                    ? yk__backend_for(x)->slot(yk__device_of(x).index, __VA_ARGS__)                    \
                                    : yk__slot_missing(yk__device_of(x), #slot);                                       \
        yk__event_kernel(slot_began, #slot);                                                                           \
        slot_status;                                                                                                   \
    })
/* The ticks at which a kernel is queued, while events are recorded; 0 for a CPU, whose kernels take the operation's
 * time. */
static inline uint64_t yk__slot_begin(const yk_tensor *x)
{
    return yk__events_recorded() && !yk__backend_for(x)->host_memory ? yk__event_ticks() : 0;
}

/* Multiplications and additions of out = a b, both with a batch dimension in front. */
static inline double yk__gemm_flops(const yk__view *out, const yk__view *a)
{
    return 2.0 * (double)out->shape[0] * (double)out->shape[1] * (double)out->shape[2] * (double)a->shape[2];
}

/* Fills x by the next call of the generator. */
yk_status yk__raw_random(const char *what, yk_tensor *x, yk__random_kind kind, double p0, double p1);

/* The dtype that a slot of x's backend is called with for x: its own, or f32 for f16 and bf16 where it lacks them. */
static inline yk_dtype yk__slot_dtype(const yk_tensor *x, yk__slot slot, yk_dtype dtype)
{
    return yk__is_half(dtype) && !(yk__backend_for(x)->takes[slot] & 1u << dtype) ? YK_F32 : dtype;
}

/* x where the kernel that filled it succeeded; else x is released and the result NULL. */
static inline yk_tensor *yk__tensor_if_ok(yk_tensor *x, yk_status status)
{
    if (!status)
        return x;
    yk_tensor_release(x);
    return NULL;
}

/* ---- raw kernels (raw.c): shape and dtype rules of PyTorch ---- */
/* NULL for a NULL operand, so that expressions end at the first failure; the caller releases the tensors that were made
 * (yk__release_all). */
yk_tensor *yk__raw_unary(const char *what, yk__unary op, yk_tensor *x, double p0, double p1);
yk_tensor *yk__raw_binary(const char *what, yk__binary op, yk_tensor *a, yk_tensor *b, double alpha);
/* x = op(x) over itself; x keeps its dtype. Bumps no version. */
yk_status yk__raw_unary_into(const char *what, yk__unary op, yk_tensor *x, double p0, double p1);
yk_tensor *yk__raw_where(yk_tensor *condition, yk_tensor *a, yk_tensor *b);
/* An operation of three tensors of f32, or of f64, where x's device has these (yk__has_ternary); into the first of
 * them, which has the shape of all and shares memory with none, unless it is the same tensor. */
bool yk__has_ternary(const yk_tensor *x);
yk_tensor *yk__raw_ternary(const char *what, yk__ternary op, yk_tensor *a, yk_tensor *b, yk_tensor *c, double value);
yk_status yk__raw_ternary_into(yk__ternary op, yk_tensor *x, yk_tensor *b, yk_tensor *c, double value);
/* out (+= where asked) op(...), written in place over `out`, which keeps its dtype; bumps no version. */
yk_status yk__raw_binary_into(const char *what, yk__binary op, yk_tensor *out, yk_tensor *a, yk_tensor *b,
                              double alpha);
yk_status yk__raw_copy(yk_tensor *to, yk_tensor *from); /* casts, broadcasts `from`, crosses devices */
yk_status yk__raw_fill(yk_tensor *x, double value);
double yk__largest(yk_dtype dtype); /* the largest number of a floating dtype */
/* Fails unless a dtype holds the value. Integers drop its fraction; u8, which wraps, takes values down to -255. */
yk_status yk__check_value(const char *what, yk_dtype dtype, double value);
yk_tensor *yk__raw_clone(yk_tensor *x);                /* keeps dense strides */
yk_tensor *yk__raw_contiguous(yk_tensor *x);           /* x itself, retained, where it is C order */
yk_tensor *yk__raw_cast(yk_tensor *x, yk_dtype dtype); /* x itself, retained, where it has the dtype */
yk_tensor *yk__raw_to(yk_tensor *x, yk_device device); /* x itself, retained, where it is there */
/* yk_item, yk_item_i64 and yk_tensor_read for another operation, which errors then name. */
yk_status yk__item(const char *what, const yk_tensor *x, double *value) YK_MUST_CHECK;
yk_status yk__item_i64(const char *what, const yk_tensor *x, int64_t *value) YK_MUST_CHECK;
yk_status yk__tensor_read(const char *what, const yk_tensor *x, void *data, size_t bytes);
/* Reduces the dimensions of the mask (0: all). The dtype rules are PyTorch's: sums of integers are i64, means of
 * integers an error, arg results i64, any and all bool. */
yk_tensor *yk__raw_reduce(const char *what, yk__reduce op, yk_tensor *x, uint32_t mask, bool keepdim, double p0);
/* Sums x down to a shape it was broadcast from; x itself, retained, where it has that shape. */
yk_tensor *yk__raw_sum_to(yk_tensor *x, int ndim, const int64_t *shape);
/* (B,M,K) (B,K,N) with any strides and broadcast batches to a new C-order tensor; bias (N) or NULL. The shapes were
 * checked. Dtypes equal and floating. */
yk_tensor *yk__raw_gemm(const yk__view *a, const yk__view *b, yk_tensor *bias, yk_device device);

#endif
