/*
 * tensor.c - tensors and views: making, asking, releasing. Layer: tensor.
 *
 * Invariant: data points to the first element inside storage, and every element that shape and stride reach lies
 * inside storage.
 */
#include <stdlib.h>
#include <string.h>

#include "tensor/host_tensor.h"

static void node_release(struct yk__node *node)
{
    if (node)
        ((yk__node_head *)node)->release(node);
}

void yk__row_gradient_free(yk__row_gradient *rows)
{
    for (int i = 0; rows && i < rows->count; i++) {
        yk_tensor_release(rows->parts[i].index);
        yk_tensor_release(rows->parts[i].rows);
    }
    if (rows)
        free(rows->parts);
    free(rows);
}

static void leaf_gradient_free(yk__leaf_gradient *leaf)
{
    yk__row_gradient_free(leaf->rows);
    node_release(leaf->accumulator);
    yk_tensor_release(leaf->grad);
    yk_tensor_release(leaf->grad_buffer);
    free(leaf);
}

static void tensor_destroy(void *object)
{
    yk_tensor *x = object;
    node_release(x->node);
    if (x->leaf_gradient)
        leaf_gradient_free(x->leaf_gradient);
    if (x->base)
        yk_tensor_release(x->base);
    yk__storage_release(x->storage);
    yk__object_free(x);
}

_Thread_local bool yk__inference_mode, yk__recording_off;

static const yk__type tensor_type = {"tensor", tensor_destroy};

/* The elements of a shape. An error where there are more than bytes can be counted for, or where strides would be,
 * since a size of 0 counts as 1: nothing that follows from a tensor's sizes overflows then. */
static bool count_elements(int ndim, const int64_t *shape, int64_t *numel)
{
    const int64_t most = INT64_MAX / 16;
    int64_t room = 1;
    *numel = 1;
    for (int d = 0; d < ndim; d++) {
        int64_t size = shape[d] ? shape[d] : 1;
        if (__builtin_mul_overflow(room, size, &room) || room > most) {
            char text[200];
            yk__fail(YK_ERR_SHAPE, "shape %s has more elements than fit in memory",
                     yk__shape_text(ndim, shape, text, sizeof(text)));
            return false;
        }
        *numel *= shape[d];
    }
    return true;
}

static yk_tensor *tensor_make(int ndim, const int64_t *shape, const int64_t *stride, yk_dtype dtype)
{
    int64_t numel;
    if (!count_elements(ndim, shape, &numel))
        return NULL;
    yk_tensor *x = yk__object_alloc(&tensor_type, sizeof(*x));
    if (!x)
        return NULL;
    x->storage = NULL;
    x->data = NULL;
    x->requires_grad = false;
    x->node = NULL;
    x->leaf_gradient = NULL;
    x->base = NULL;
    x->output = 0;
    x->saved = false;
    x->inference = yk__inference_mode;
    x->numel = numel;
    x->dtype = (int8_t)dtype;
    x->ndim = (int8_t)ndim;
    yk__copy_sizes(x->shape, shape, ndim);
    if (stride)
        yk__copy_sizes(x->stride, stride, ndim);
    else
        yk__contiguous_strides(ndim, shape, x->stride);
    return x;
}

yk_tensor *yk__tensor_new(int ndim, const int64_t *shape, const int64_t *stride, yk_dtype dtype, yk_device device)
{
    yk_tensor *x = tensor_make(ndim, shape, stride, dtype);
    if (!x)
        return NULL;
    if (stride && x->numel == 0) /* those of an expanded tensor, say, which is dense if it has no elements */
        yk__contiguous_strides(ndim, shape, x->stride);
    x->storage = yk__storage_create(device, (size_t)x->numel * yk__size_of(dtype));
    if (!x->storage) {
        yk__object_free(x);
        return NULL;
    }
    x->data = x->storage->data;
    return x;
}

yk_tensor *yk__tensor_over(yk__storage *storage, int ndim, const int64_t *shape, yk_dtype dtype)
{
    yk_tensor *x = storage ? tensor_make(ndim, shape, NULL, dtype) : NULL;
    if (!x) {
        yk__storage_release(storage);
        return NULL;
    }
    x->storage = storage;
    x->data = storage->data;
    return x;
}

yk_status yk__tensor_check(const char *what, int ndim, const int64_t *shape, const yk_tensor_options *options)
{
    yk_tensor_options o = yk__default_options(options);
    if (o.yk__mark != YK__MARK)
        return yk__fail_options(what, "yk_tensor_options");
    if (ndim < 0 || ndim > YK_MAX_DIMS)
        return yk__fail(YK_ERR_SHAPE, "%s: %d dimensions; a tensor has 0 to %d", what, ndim, YK_MAX_DIMS);
    if (ndim && !shape)
        return yk__fail(YK_ERR_ARGUMENT, "%s: the shape is NULL", what);
    if ((unsigned)o.dtype >= YK__DTYPES)
        return yk__fail(YK_ERR_DTYPE, "%s: %d is not a dtype", what, (int)o.dtype);
    int64_t elements = 1, most = INT64_MAX / 16;
    for (int d = 0; d < ndim; d++) {
        char text[200];
        if (shape[d] < 0)
            return yk__fail(YK_ERR_SHAPE, "%s: size %lld of dimension %d is negative in shape %s", what,
                            (long long)shape[d], d, yk__shape_text(ndim, shape, text, sizeof(text)));
        int64_t size = shape[d] ? shape[d] : 1; /* strides must not overflow either, where there are no elements */
        if (elements > most / size)
            return yk__fail(YK_ERR_SHAPE, "%s: shape %s has more elements than fit in memory", what,
                            yk__shape_text(ndim, shape, text, sizeof(text)));
        elements *= size;
    }
    if (o.requires_grad && !yk_dtype_is_floating(o.dtype))
        return yk__fail(YK_ERR_DTYPE, "%s: only floating tensors can require a gradient, this one is %s", what,
                        yk_dtype_name(o.dtype));
    return yk__device_check(o.device);
}

yk_tensor *yk__host_zeros(int ndim, const int64_t *shape, yk_dtype dtype)
{
    yk_tensor *x = yk__tensor_new(ndim, shape, NULL, dtype, (yk_device){YK_CPU, 0});
    if (x)
        memset(x->data, 0, (size_t)x->numel * yk_dtype_size(dtype));
    return x;
}

yk_device_type yk__default_device_type;

yk_tensor_options yk__default_options(const yk_tensor_options *options)
{
    yk_tensor_options o = options ? *options : *YK_OPTIONS(yk_tensor_options);
    if (o.dtype == YK_DTYPE_NOT_GIVEN)
        o.dtype = YK_F32;
    if (yk_device_equal(o.device, YK_DEVICE_NOT_GIVEN))
        o.device =
            yk__default_device_type == YK_CPU ? (yk_device){YK_CPU, 0} : yk_current_device(yk__default_device_type);
    return o;
}

yk_tensor *yk__tensor_from_options(const char *what, int ndim, const int64_t *shape, const yk_tensor_options *options)
{
    yk_tensor_options o = yk__default_options(options);
    return yk__tensor_check(what, ndim, shape, &o) ? NULL : yk__tensor_new(ndim, shape, NULL, o.dtype, o.device);
}

yk_tensor *yk__tensor_view(yk_tensor *base, int ndim, const int64_t *shape, const int64_t *stride, int64_t offset)
{
    if (!base)
        return NULL;
    yk_tensor *x = tensor_make(ndim, shape, stride, (yk_dtype)base->dtype);
    if (!x)
        return NULL;
    x->storage = yk__storage_retain(base->storage);
    x->inference = base->inference; /* a view is what its memory is */
    x->data = (char *)base->data + offset * (int64_t)yk_dtype_size((yk_dtype)base->dtype);
    return x;
}

yk_tensor *yk__tensor_alias(yk_tensor *x)
{
    return x ? yk__tensor_view(x, x->ndim, x->shape, x->stride, 0) : NULL;
}

yk_tensor *yk__tensor_share(yk_tensor *x, yk_device device, bool own_versions)
{
    yk__storage *storage = x ? yk__storage_share(x->storage, device, own_versions) : NULL;
    yk_tensor *out = storage ? yk__tensor_alias(x) : NULL;
    if (!out) {
        yk__storage_release(storage);
        return NULL;
    }
    yk__storage_release(out->storage);
    out->storage = storage;
    return out;
}

yk_tensor *yk__tensor_like(const yk_tensor *x, yk_dtype dtype)
{
    return x ? yk__tensor_new(x->ndim, x->shape, yk__is_dense(x) ? x->stride : NULL, dtype, yk__device_of(x)) : NULL;
}

yk_tensor *yk__tensor_full_like(const yk_tensor *x, double value)
{
    yk_tensor *out = x ? yk__tensor_like(x, (yk_dtype)x->dtype) : NULL;
    if (out && yk__raw_fill(out, value)) {
        yk_tensor_release(out);
        out = NULL;
    }
    return out;
}

void yk__contiguous_strides(int ndim, const int64_t *shape, int64_t *stride)
{
    int64_t step = 1;
    for (int d = ndim - 1; d >= 0; d--) {
        stride[d] = step;
        step *= shape[d] ? shape[d] : 1;
    }
}

bool yk_is_contiguous(const yk_tensor *x)
{
    YK__LIVE(x);
    return x && yk__in_c_order(x);
}

bool yk__fills_block(const yk_tensor *x)
{
    bool used[YK_MAX_DIMS] = {false};
    int64_t expected = 1;
    for (int found = 0; found < x->ndim; found++) {
        int next = -1;
        for (int d = 0; d < x->ndim; d++) {
            if (!used[d] && (x->shape[d] == 1 || x->stride[d] == expected) && (next < 0 || x->shape[d] == 1))
                next = d;
        }
        if (next < 0)
            return false;
        used[next] = true;
        expected *= x->shape[next];
    }
    return true;
}

yk__view yk__view_of(const yk_tensor *x)
{
    yk__view v; /* sizes beyond ndim are not set: clearing them takes longer than the rest */
    v.data = x->data;
    v.dtype = (yk_dtype)x->dtype;
    v.ndim = x->ndim;
    yk__copy_sizes(v.shape, x->shape, x->ndim);
    yk__copy_sizes(v.stride, x->stride, x->ndim);
    return v;
}

yk__view yk__view_expanded(const yk_tensor *x, int ndim, const int64_t *shape)
{
    yk__view v; /* as above */
    v.data = x->data;
    v.dtype = (yk_dtype)x->dtype;
    v.ndim = ndim;
    for (int d = 0; d < ndim; d++) {
        int own = d - (ndim - x->ndim);
        v.shape[d] = shape[d];
        v.stride[d] = own >= 0 && x->shape[own] == shape[d] ? x->stride[own] : 0;
    }
    return v;
}

const char *yk__shape_text(int ndim, const int64_t *shape, char *buffer, size_t size)
{
    size_t used = (size_t)snprintf(buffer, size, "(");
    for (int d = 0; d < ndim && used < size; d++)
        used += (size_t)snprintf(buffer + used, size - used, "%s%lld", d ? ", " : "", (long long)shape[d]);
    if (used < size)
        snprintf(buffer + used, size - used, ndim == 1 ? ",)" : ")");
    return buffer;
}

yk_status yk__wrap_dim(const char *what, const yk_tensor *x, int *dim)
{
    int n = x->ndim ? x->ndim : 1;
    if (*dim < -n || *dim >= n) {
        char text[200];
        return yk__fail(YK_ERR_SHAPE, "%s: dimension %d is outside [%d, %d] of shape %s", what, *dim, -n, n - 1,
                        yk_shape_format(x, text, sizeof(text)));
    }
    if (*dim < 0)
        *dim += n;
    return YK_OK;
}

yk_status yk__same_device(const char *what, int count, yk_tensor *const *tensors)
{
    const yk_tensor *first = NULL;
    for (int i = 0; i < count; i++) {
        if (!tensors[i])
            continue;
        if (!first)
            first = tensors[i];
        if (!yk_device_equal(yk__device_of(first), yk__device_of(tensors[i]))) {
            char a[16], b[16], shape[200], other[200];
            return yk__fail(
                YK_ERR_DEVICE, "%s: the tensors are on two devices, %s and %s; move one with yk_to (shapes %s and %s)",
                what, yk_device_format(yk__device_of(first), a), yk_device_format(yk__device_of(tensors[i]), b),
                yk_shape_format(first, shape, sizeof(shape)), yk_shape_format(tensors[i], other, sizeof(other)));
        }
    }
    return YK_OK;
}

yk_status yk__broadcast(const char *what, const yk_tensor *a, const yk_tensor *b, int *ndim, int64_t *shape)
{
    *ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
    for (int d = 0; d < *ndim; d++) {
        int da = d - (*ndim - a->ndim), db = d - (*ndim - b->ndim);
        int64_t sa = da >= 0 ? a->shape[da] : 1, sb = db >= 0 ? b->shape[db] : 1;
        if (sa != sb && sa != 1 && sb != 1) {
            char ta[200], tb[200];
            return yk__fail(YK_ERR_SHAPE, "%s: shapes %s and %s do not broadcast: %lld against %lld in dimension %d",
                            what, yk_shape_format(a, ta, sizeof(ta)), yk_shape_format(b, tb, sizeof(tb)), (long long)sa,
                            (long long)sb, d);
        }
        shape[d] = sa == 1 ? sb : sa;
    }
    return YK_OK;
}

int yk_ndim(const yk_tensor *x)
{
    YK__LIVE(x);
    return x ? x->ndim : 0;
}

int64_t yk_size(const yk_tensor *x, int dim)
{
    YK__LIVE(x);
    if (!x)
        return 0;
    if (dim < 0)
        dim += x->ndim;
    return dim >= 0 && dim < x->ndim ? x->shape[dim] : -1;
}

int64_t yk_stride(const yk_tensor *x, int dim)
{
    YK__LIVE(x);
    if (!x)
        return 0;
    if (dim < 0)
        dim += x->ndim;
    return dim >= 0 && dim < x->ndim ? x->stride[dim] : 0;
}

const int64_t *yk_sizes(const yk_tensor *x)
{
    YK__LIVE(x);
    return x ? x->shape : NULL;
}

int64_t yk_numel(const yk_tensor *x)
{
    YK__LIVE(x);
    return x ? x->numel : 0;
}

yk_dtype yk_tensor_dtype(const yk_tensor *x)
{
    YK__LIVE(x);
    return x ? (yk_dtype)x->dtype : YK_F32;
}

yk_device yk_tensor_device(const yk_tensor *x)
{
    YK__LIVE(x);
    return x ? yk__device_of(x) : (yk_device){0};
}

int yk_get_device(const yk_tensor *x)
{
    YK__LIVE(x);
    if (!yk__is_there("get_device", "tensor", x))
        return -1;
    yk_device device = yk__device_of(x);
    if (device.type == YK_CUDA)
        return device.index;
    char text[16];
    yk__fail(YK_ERR_DEVICE,
             "get_device: the tensor is on %s, and only one on a GPU has such a number; ask "
             "yk_tensor_device",
             yk_device_format(device, text));
    return -1;
}

const char *yk_tensor_type(const yk_tensor *x)
{
    static const char *const names[2][YK__DTYPES] = {
        {"torch.FloatTensor", "torch.DoubleTensor", "torch.HalfTensor", "torch.BFloat16Tensor", "torch.LongTensor",
         "torch.IntTensor", "torch.ByteTensor", "torch.BoolTensor"},
        {"torch.cuda.FloatTensor", "torch.cuda.DoubleTensor", "torch.cuda.HalfTensor", "torch.cuda.BFloat16Tensor",
         "torch.cuda.LongTensor", "torch.cuda.IntTensor", "torch.cuda.ByteTensor", "torch.cuda.BoolTensor"}};
    YK__LIVE(x);
    return x ? names[yk__device_of(x).type == YK_CUDA][x->dtype] : NULL;
}

bool yk_same_shape(const yk_tensor *a, const yk_tensor *b)
{
    YK__LIVE(a);
    YK__LIVE(b);
    return a && b && a->ndim == b->ndim && memcmp(a->shape, b->shape, sizeof(a->shape[0]) * (size_t)a->ndim) == 0;
}

const char *yk_shape_format(const yk_tensor *x, char *buffer, size_t size)
{
    YK__LIVE(x);
    if (!x) {
        snprintf(buffer, size, "NULL");
        return buffer;
    }
    return yk__shape_text(x->ndim, x->shape, buffer, size);
}

uint32_t yk_tensor_version(const yk_tensor *x)
{
    YK__LIVE(x);
    return x ? yk__version(x) : 0;
}

yk_tensor *yk_tensor_retain(yk_tensor *x)
{
    return yk_object_retain(x);
}

void yk_tensor_release(yk_tensor *x)
{
    yk_object_release(x);
}

yk_tensor *yk_scope_return(yk_scope scope, yk_tensor *x)
{
    return yk_scope_return_object(scope, x);
}

/* ---- the gradient's side ---- */
yk__leaf_gradient *yk__leaf_gradient_of(yk_tensor *x)
{
    if (!x->leaf_gradient)
        x->leaf_gradient = yk__calloc(1, sizeof(*x->leaf_gradient));
    return x->leaf_gradient;
}

yk_status yk__fail_inference(const char *what, const yk_tensor *x, const char *do_what)
{
    char shape[200];
    return yk__fail(YK_ERR_STATE,
                    "%s: the tensor of shape %s was made in inference mode and cannot %s outside of it; "
                    "clone it first",
                    what, yk_shape_format(x, shape, sizeof(shape)), do_what);
}

yk_status yk__tensor_require_grad(yk_tensor *x)
{
    if (!yk_dtype_is_floating((yk_dtype)x->dtype))
        return yk__fail(YK_ERR_DTYPE, "set_requires_grad: only floating tensors can require a gradient, this one is %s",
                        yk_dtype_name((yk_dtype)x->dtype));
    if (x->inference && !yk__inference_mode)
        return yk__fail_inference("set_requires_grad", x, "require a gradient");
    if (!yk__leaf_gradient_of(x)) /* now: several threads may use it as soon as it is marked */
        return YK_ERR_MEMORY;
    x->requires_grad = true;
    yk_tensor_release(x->base); /* a leaf of its own, whatever memory it shows */
    x->base = NULL;
    return YK_OK;
}

bool yk__base_changed(const yk_tensor *view)
{
    return __atomic_load_n(&view->base_version, __ATOMIC_ACQUIRE) != yk__version(view) &&
           view->base->storage == view->storage && yk__wants_grad(view->base);
}

const char *yk__grad_fn_name(const yk_tensor *x)
{
    if (x && yk__view_stale(x))
        return "as_strided";
    return x && x->node ? ((const yk__node_head *)x->node)->name : NULL;
}
