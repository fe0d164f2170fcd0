/*
 * op.c - functions that the operations share. Layer: ops.
 */
#include "ops/op.h"

/* True if all floating tensors of the set have one half-precision dtype that the slot takes. */
static bool stays_half(yk__slot slot, uint32_t data, int count, yk_tensor *const *from)
{
    const yk_tensor *first = NULL;
    for (int i = 0; i < count; i++) {
        const yk_tensor *x = data & 1u << i ? from[i] : NULL;
        if (!x || !yk_dtype_is_floating((yk_dtype)x->dtype))
            continue;
        first = first ? first : x;
        if (!yk__is_half((yk_dtype)x->dtype) || x->dtype != first->dtype)
            return false;
    }
    return first && yk__slot_dtype(first, slot, (yk_dtype)first->dtype) == (yk_dtype)first->dtype;
}

yk_status yk__operands(yk__slot slot, uint32_t data, int count, yk_tensor *const *from, yk_tensor **to)
{
    bool half = stays_half(slot, data, count, from);
    for (int i = 0; i < count; i++) {
        bool kept = half && data & 1u << i;
        to[i] = !from[i] ? NULL : kept ? yk_tensor_retain(from[i]) : yk__raw_cast(from[i], yk__wide_dtype(from[i]));
        if (from[i] && !to[i]) {
            yk__release_all(i, to);
            return yk__status_of(NULL);
        }
    }
    return YK_OK;
}

void yk__release_all(int count, yk_tensor **tensors)
{
    for (int i = 0; i < count; i++) {
        yk_tensor_release(tensors[i]);
        tensors[i] = NULL;
    }
}

bool yk__is_number_for(const yk_tensor *x, const yk_tensor *y)
{
    return y->ndim == 0 && yk__device_of(y).type == YK_CPU && yk__device_of(x).type != YK_CPU;
}

void yk__take_numbers_there(int count, yk_tensor **inputs)
{
    const yk_tensor *where = NULL; /* the first that is not on a CPU */
    for (int i = 0; i < count; i++) {
        if (!inputs[i] || yk__is_freed(inputs[i]))
            return; /* yk__op_begin names it */
        if (!where && yk__device_of(inputs[i]).type != YK_CPU)
            where = inputs[i];
    }
    for (int i = 0; where && i < count; i++) {
        if (yk__is_number_for(where, inputs[i]))
            inputs[i] = yk_to(inputs[i], yk__device_of(where));
    }
}

yk_tensor *yk__without_nan(yk_tensor *x)
{
    yk_tensor *same = yk__raw_binary("where", YK__EQ, x, x, 1);
    yk_tensor *zero = same ? yk__raw_scalar(0, (yk_dtype)x->dtype, yk__device_of(x)) : NULL;
    yk_tensor *out = zero ? yk__raw_where(same, x, zero) : NULL;
    yk_tensor_release(same);
    yk_tensor_release(zero);
    return out;
}

yk_tensor *yk__narrow_to(yk_tensor *x, yk_dtype dtype)
{
    if (!x || (yk_dtype)x->dtype == dtype)
        return x;
    yk_tensor *out = yk__raw_cast(x, dtype);
    yk_tensor_release(x);
    return out;
}

yk_status yk__expect_floating(const char *name, const char *role, const yk_tensor *x)
{
    if (!x || yk_dtype_is_floating((yk_dtype)x->dtype))
        return YK_OK;
    return yk__fail(YK_ERR_DTYPE, "%s: expected a floating %s, this one is %s", name, role,
                    yk_dtype_name((yk_dtype)x->dtype));
}

yk_status yk__expect_dtype(const char *name, const char *role, const yk_tensor *x, yk_dtype dtype)
{
    if (!x || (yk_dtype)x->dtype == dtype)
        return YK_OK;
    return yk__fail(YK_ERR_DTYPE, "%s: %s is %s, expected %s; cast it with yk_cast", name, role,
                    yk_dtype_name((yk_dtype)x->dtype), yk_dtype_name(dtype));
}

yk_status yk__expect_input(const char *name, const yk_tensor *x, const yk_tensor *weight, const yk_tensor *bias)
{
    if (!weight || weight->dtype == x->dtype || (bias && bias->dtype == x->dtype))
        return YK_OK;
    return yk__fail(YK_ERR_DTYPE, "%s: input is %s, expected %s as the weight is; cast it with yk_cast", name,
                    yk_dtype_name((yk_dtype)x->dtype), yk_dtype_name((yk_dtype)weight->dtype));
}

yk_status yk__expect_wide_input(const char *name, const yk_tensor *x, const char *const *role,
                                yk_tensor *const *parameter, int count)
{
    int odd = -1, given = 0;
    for (int i = 0; i < count; i++) {
        const yk_tensor *p = parameter[i];
        if (!p)
            continue;
        given++;
        if (p->dtype == x->dtype || (yk_dtype)p->dtype == yk__wide_dtype(x) ||
            (odd >= 0 && p->dtype != parameter[odd]->dtype))
            return YK_OK;
        odd = odd < 0 ? i : odd;
    }
    if (odd < 0 || (given == 1 && odd > 0))
        return YK_OK;
    return yk__fail(YK_ERR_DTYPE, "%s: input is %s, expected %s as the %s is; cast it with yk_cast", name,
                    yk_dtype_name((yk_dtype)x->dtype), yk_dtype_name((yk_dtype)parameter[odd]->dtype), role[odd]);
}

yk_status yk__expect_vector(const char *name, const char *role, const yk_tensor *x, int64_t size, const char *unit)
{
    if (!x || (x->ndim == 1 && x->shape[0] == size))
        return YK_OK;
    char text[200];
    return yk__fail(YK_ERR_SHAPE, "%s: %s has shape %s, expected (%lld,): one value per %s", name, role,
                    yk_shape_format(x, text, sizeof(text)), (long long)size, unit);
}

yk__tensor_spec yk__spec_of(const yk_tensor *x)
{
    yk__tensor_spec spec;
    spec.dtype = x->dtype;
    spec.ndim = x->ndim;
    size_t bytes = sizeof(x->shape[0]) * (size_t)x->ndim;
    memcpy(spec.shape, x->shape, bytes);
    if (yk__is_dense(x))
        memcpy(spec.stride, x->stride, bytes);
    else
        yk__contiguous_strides(x->ndim, x->shape, spec.stride);
    return spec;
}

yk_tensor *yk__spec_new(const yk__tensor_spec *spec, yk_device device)
{
    return yk__tensor_new(spec->ndim, spec->shape, spec->stride, (yk_dtype)spec->dtype, device);
}

yk_tensor *yk__spec_zeros(const yk__tensor_spec *spec, yk_device device)
{
    yk_tensor *x = yk__spec_new(spec, device);
    return x ? yk__tensor_if_ok(x, yk__raw_fill(x, 0)) : NULL;
}

static bool has_spec(const yk_tensor *x, const yk__tensor_spec *spec, yk_device device)
{
    size_t bytes = sizeof(spec->shape[0]) * (size_t)spec->ndim;
    return x->dtype == spec->dtype && x->ndim == spec->ndim && memcmp(x->shape, spec->shape, bytes) == 0 &&
           memcmp(x->stride, spec->stride, bytes) == 0 && yk_device_equal(yk__device_of(x), device);
}

yk_tensor *yk__gradient_new(const yk__node *node, int input, const yk__tensor_spec *spec, yk_device device)
{
    yk_tensor *grad_buffer = yk__grad_buffer_for(node, input);
    if (grad_buffer && has_spec(grad_buffer, spec, device))
        return grad_buffer;
    yk_tensor_release(grad_buffer);
    return yk__spec_new(spec, device);
}

yk_tensor *yk__gradient_sum(const yk__node *node, int input, const yk__tensor_spec *spec, int count,
                            yk_tensor *const *from)
{
    yk_tensor *sum = yk__grad_to_add_to(node, input);
    bool usable = sum && has_spec(sum, spec, yk__device_of(from[0])) && yk__is_dense(sum);
    for (int i = 0; usable && i < count; i++)
        usable = !from[i] || from[i]->storage->data != sum->storage->data;
    if (usable)
        return sum;
    yk_tensor_release(sum);
    return NULL;
}

yk_tensor *yk__gradient_over(const yk__node *node, const yk__tensor_spec *spec, yk_tensor *part)
{
    return part && has_spec(part, spec, yk__device_of(part)) ? yk__own_part(node, part) : NULL;
}

yk_tensor *yk__gradient_vector(const yk__node *node, int input, int64_t size, yk_dtype dtype, yk_device device)
{
    yk__tensor_spec spec = {.dtype = (int8_t)dtype, .ndim = 1, .shape = {size}, .stride = {1}};
    return yk__gradient_new(node, input, &spec, device);
}

yk_tensor *yk__sum_to_spec(yk_tensor *grad, const yk__tensor_spec *spec)
{
    if (!grad)
        return NULL;
    if (yk_dtype_size(spec->dtype) > yk_dtype_size((yk_dtype)grad->dtype)) /* the sum is not rounded to less */
        grad = yk__narrow_to(grad, spec->dtype);
    yk_tensor *sum = grad ? yk__raw_sum_to(grad, spec->ndim, spec->shape) : NULL;
    yk_tensor_release(grad);
    return yk__narrow_to(sum, (yk_dtype)spec->dtype);
}

yk_status yk__has_zero(const char *name, yk_tensor *x, bool *has)
{
    yk_tensor *all = yk__raw_reduce(name, YK__ALL, x, 0, false, 0);
    double without = 0;
    yk_status status = all ? yk__item(name, all, &without) : yk__status_of(NULL);
    yk_tensor_release(all);
    *has = without == 0;
    return status;
}

yk_tensor *yk__raw_scalar(double value, yk_dtype dtype, yk_device device)
{
    yk_tensor *x = yk__tensor_new(0, NULL, NULL, dtype, device);
    return x ? yk__tensor_if_ok(x, yk__raw_fill(x, value)) : NULL;
}

bool yk__reduction_check(const char *name, yk_reduction reduction, bool batchmean)
{
    if ((unsigned)reduction <= YK_REDUCE_NONE || (batchmean && reduction == YK_REDUCE_BATCHMEAN))
        return true;
    yk__fail(YK_ERR_ARGUMENT, "%s: reduction %d is none of mean, sum and none%s", name, (int)reduction,
             batchmean ? ", nor batchmean" : "");
    return false;
}

yk_tensor *yk__reduced(yk_tensor *loss, yk_reduction reduction)
{
    return reduction == YK_REDUCE_MEAN ? yk_mean(loss) : reduction == YK_REDUCE_SUM ? yk_sum(loss) : loss;
}

/* Computed where they are wanted, as sums of ones: a step that is recorded can bring nothing from the host. */
yk_tensor *yk__raw_positions(int64_t n, int ndim, yk_device device)
{
    int64_t shape[YK_MAX_DIMS] = {n, 1, 1, 1, 1, 1, 1, 1};
    yk_tensor *ones = yk__tensor_new(ndim, shape, NULL, YK_I64, device);
    ones = ones ? yk__tensor_if_ok(ones, yk__raw_fill(ones, 1)) : NULL;
    yk_tensor *sums = ones ? yk__tensor_like(ones, YK_I64) : NULL;
    if (sums && n > 0) {
        yk__view to = yk__view_of(sums), from = yk__view_of(ones);
        sums = yk__tensor_if_ok(sums, YK__SLOT(sums, scan, YK__CUMSUM, &to, &from, 0, false));
    }
    yk_tensor *x = yk__raw_binary("arange", YK__SUB, sums, ones, 1);
    yk_tensor_release(ones);
    yk_tensor_release(sums);
    return x;
}

/*
 * Neighbouring dimensions that lie evenly in memory are one block. Each new dimension has to be cut off the front of
 * what is left of a block; one that would span two blocks has no stride.
 */
bool yk__reshape_strides(const yk_tensor *x, int ndim, const int64_t *shape, int64_t *stride)
{
    if (x->numel == 0) {
        yk__contiguous_strides(ndim, shape, stride);
        return true;
    }
    int blocks = 0, block = 0;
    int64_t size[YK_MAX_DIMS], step[YK_MAX_DIMS];
    for (int d = 0; d < x->ndim; d++) {
        if (x->shape[d] == 1)
            continue;
        if (blocks && step[blocks - 1] == x->stride[d] * x->shape[d]) {
            size[blocks - 1] *= x->shape[d];
            step[blocks - 1] = x->stride[d];
        } else {
            size[blocks] = x->shape[d];
            step[blocks++] = x->stride[d];
        }
    }
    int64_t left = blocks ? size[0] : 1;
    for (int d = 0; d < ndim; d++) {
        if (shape[d] != 1) {
            if (block == blocks || left % shape[d])
                return false;
            left /= shape[d];
        }
        stride[d] = block < blocks ? left * step[block] : 1;
        if (left == 1 && shape[d] != 1 && ++block < blocks)
            left = size[block];
    }
    return true;
}

yk_tensor *yk__raw_reshape(yk_tensor *x, int ndim, const int64_t *shape)
{
    if (!x)
        return NULL;
    int64_t stride[YK_MAX_DIMS];
    if (yk__reshape_strides(x, ndim, shape, stride))
        return yk__tensor_view(x, ndim, shape, stride, 0);
    yk_tensor *copy = yk__raw_contiguous(x), *out = NULL;
    if (copy && yk__reshape_strides(copy, ndim, shape, stride))
        out = yk__tensor_view(copy, ndim, shape, stride, 0);
    yk_tensor_release(copy);
    return out;
}

void yk__strides_in_order(const yk_tensor *x, const int64_t *shape, int64_t *stride)
{
    if (yk_is_contiguous(x)) {
        yk__contiguous_strides(x->ndim, shape, stride);
        return;
    }
    int order[YK_MAX_DIMS]; /* dimensions by falling stride; those of equal stride stay in their order */
    for (int d = 0; d < x->ndim; d++) {
        int at = d;
        for (; at > 0 && x->stride[order[at - 1]] < x->stride[d]; at--)
            order[at] = order[at - 1];
        order[at] = d;
    }
    int64_t step = 1;
    for (int i = x->ndim - 1; i >= 0; i--) {
        stride[order[i]] = step;
        step *= shape[order[i]] ? shape[order[i]] : 1;
    }
}

yk_tensor *yk__as_rows(yk_tensor *x)
{
    int64_t size = x->shape[x->ndim - 1], shape[3] = {1, 1, size};
    for (int d = 0; d < x->ndim - 1; d++)
        shape[1] *= x->shape[d];
    return yk__raw_reshape(x, 3, shape);
}

yk__view yk__matrix_of(const yk_tensor *m, bool transpose)
{
    yk__view v = {.data = m->data, .dtype = (yk_dtype)m->dtype, .ndim = 3, .shape = {1}};
    v.shape[1] = m->shape[transpose];
    v.stride[1] = m->stride[transpose];
    v.shape[2] = m->shape[!transpose];
    v.stride[2] = m->stride[!transpose];
    return v;
}

yk_status yk__multiply(yk_tensor *out, const yk__view *vo, const yk__view *a, const yk__view *b, yk_tensor *bias,
                       bool accumulate)
{
    if (!out->numel || (accumulate && a->shape[2] == 0))
        return YK_OK;
    if (a->shape[2] == 0)
        return bias ? yk__raw_copy(out, bias) : yk__raw_fill(out, 0);
    yk__view vbias;
    yk__event_work(yk__gemm_flops(vo, a));
    return YK__SLOT(out, gemm, vo, a, b, yk__optional_view(&vbias, bias), accumulate);
}

yk_status yk__multiply_relu(yk_tensor *out, const yk__view *vo, const yk__view *a, const yk__view *b, yk_tensor *bias)
{
    const yk__backend *backend = yk__backend_for(out);
    yk__view vbias;
    if (backend->gemm_relu && out->numel && a->shape[2]) {
        uint64_t began = yk__slot_begin(out);
        yk__event_work(yk__gemm_flops(vo, a));
        yk_status queued = backend->gemm_relu(yk__device_of(out).index, vo, a, b, yk__optional_view(&vbias, bias));
        yk__event_kernel(began, "gemm_relu");
        return queued;
    }
    yk_status status = yk__multiply(out, vo, a, b, bias, false);
    return status || !out->numel ? status : YK__SLOT(out, unary, YK__RELU, vo, vo, 0, 0);
}

/* g (1, M, out) as g^T (1, out, M). */
static yk__view transposed_rows(const yk_tensor *g)
{
    yk__view v = yk__view_of(g);
    int64_t rows = v.shape[1], step = v.stride[1];
    v.shape[1] = v.shape[2], v.stride[1] = v.stride[2];
    v.shape[2] = rows, v.stride[2] = step;
    return v;
}

yk_status yk__add_weight_gradient(yk_tensor *gw, const yk_tensor *g, const yk_tensor *x, bool accumulate)
{
    yk__view vg = transposed_rows(g), vx = yk__view_of(x), vgw = yk__matrix_of(gw, false);
    return yk__multiply(gw, &vgw, &vg, &vx, NULL, accumulate);
}

yk_tensor *yk__weight_gradient(const yk__node *node, int input, const yk__tensor_spec *spec, yk_tensor *g, yk_tensor *x)
{
    bool summed;
    return yk__weight_and_bias_gradient(node, input, spec, g, x, NULL, &summed);
}

yk_tensor *yk__weight_and_bias_gradient(const yk__node *node, int input, const yk__tensor_spec *spec, yk_tensor *g,
                                        yk_tensor *x, yk_tensor *gbias, bool *summed)
{
    *summed = false;
    if (!g || !x)
        return NULL;
    yk_tensor *gw = yk__gradient_sum(node, input, spec, 2, (yk_tensor *[]){g, x});
    bool accumulate = gw;
    if (!gw)
        gw = yk__gradient_new(node, input, spec, yk__device_of(g));
    if (!gw)
        return NULL;
    if (gbias && g->numel && x->numel && yk__backend_for(g)->gemm_row_sums) {
        yk__view vg = transposed_rows(g), vx = yk__view_of(x), vgw = yk__matrix_of(gw, false),
                 sums = yk__view_of(gbias);
        yk_status status = YK__SLOT(g, gemm_row_sums, &vgw, &sums, &vg, &vx, accumulate, summed);
        if (*summed)
            yk__event_work(yk__gemm_flops(&vgw, &vg));
        if (status || *summed)
            return yk__tensor_if_ok(gw, status);
    }
    return yk__tensor_if_ok(gw, yk__add_weight_gradient(gw, g, x, accumulate));
}
