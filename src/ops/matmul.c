/*
 * matmul.c - the matrix product of torch.matmul: batches broadcast, 1-d operands are rows or columns. Layer: ops.
 *
 * Operands are brought to views (batch..., M, K) and (batch..., K, N) with stride 0 along broadcast batches, without a
 * copy. The kernel takes one batch dimension; batch dimensions that lie evenly in memory are folded into it, a single
 * right-hand side for a whole batch is folded into M, and only what is left is a loop.
 * Gradients: ga = g b^T, gb = a^T g, each summed over the batches that its operand was repeated along.
 */
#include "ops/cast_policy.h"

typedef struct product_context {
    yk__tensor_spec a, b;
    bool hides; /* yk__matmul_hiding */
} product_context;

/* x as matrices; a 1-d operand is a row on the left and a column on the right. */
static yk__view matrices(const yk_tensor *x, bool left)
{
    yk__view v = yk__view_of(x);
    if (v.ndim > 1)
        return v;
    v.ndim = 2;
    v.shape[left ? 1 : 0] = x->shape[0];
    v.stride[left ? 1 : 0] = x->stride[0];
    v.shape[left ? 0 : 1] = 1;
    v.stride[left ? 0 : 1] = 0;
    return v;
}

static yk__view transposed(yk__view v)
{
    int n = v.ndim;
    int64_t size = v.shape[n - 1], step = v.stride[n - 1];
    v.shape[n - 1] = v.shape[n - 2];
    v.stride[n - 1] = v.stride[n - 2];
    v.shape[n - 2] = size;
    v.stride[n - 2] = step;
    return v;
}

/* v with `ndim` dimensions, its batches repeated to those of `shape`. */
static yk__view batched(const yk__view *v, int ndim, const int64_t *shape)
{
    yk__view out = {.data = v->data, .dtype = v->dtype, .ndim = ndim};
    for (int d = 0; d < ndim; d++) {
        int own = d - (ndim - v->ndim);
        bool matrix = d >= ndim - 2;
        out.shape[d] = matrix ? v->shape[own] : shape[d];
        out.stride[d] = own < 0 || (!matrix && v->shape[own] == 1) ? 0 : v->stride[own];
    }
    return out;
}

/* True if dimensions d and d + 1 of v have the strides of a single one; a dimension of size 1 merges with any
 * neighbour. */
static bool mergeable(const yk__view *v, int d)
{
    return v->shape[d] == 1 || v->shape[d + 1] == 1 || v->stride[d] == v->stride[d + 1] * v->shape[d + 1];
}

/* Takes dimension d out of v, merged into d + 1. */
static void merge(yk__view *v, int d)
{
    if (v->shape[d + 1] == 1)
        v->stride[d + 1] = v->stride[d];
    v->shape[d + 1] *= v->shape[d];
    for (int k = d; k < v->ndim - 1; k++) {
        v->shape[k] = v->shape[k + 1];
        v->stride[k] = v->stride[k + 1];
    }
    v->ndim--;
}

/* out (batch..., M, N) = a (batch..., M, K) b (batch..., K, N): views of one number of dimensions. */
static yk_status multiply(yk_tensor *owner, yk__view out, yk__view a, yk__view b)
{
    for (int d = out.ndim - 4; d >= 0; d--) {
        if (mergeable(&out, d) && mergeable(&a, d) && mergeable(&b, d)) {
            merge(&out, d);
            merge(&a, d);
            merge(&b, d);
        }
    }
    bool shared = out.ndim == 3 && b.stride[0] == 0 && out.shape[0] > 1;
    if (shared && mergeable(&out, 0) && mergeable(&a, 0)) {
        merge(&out, 0);
        merge(&a, 0);
        b.ndim = 2;
        memmove(b.shape, b.shape + 1, 2 * sizeof(b.shape[0]));
        memmove(b.stride, b.stride + 1, 2 * sizeof(b.stride[0]));
    }
    yk__view part[3] = {out, a, b};
    int outer = out.ndim > 3 ? out.ndim - 3 : 0;
    int64_t index[YK_MAX_DIMS] = {0};
    for (int i = 0; i < 3; i++) {
        const yk__view *from = i == 0 ? &out : i == 1 ? &a : &b;
        int lead = from->ndim > 2 ? from->ndim - 3 : -1; /* -1: there is no batch dimension, one is put in front */
        part[i].ndim = 3;
        for (int d = 0; d < 3; d++) {
            part[i].shape[d] = lead + d < 0 ? 1 : from->shape[lead + d];
            part[i].stride[d] = lead + d < 0 ? 0 : from->stride[lead + d];
        }
    }
    for (;;) {
        yk__event_work(yk__gemm_flops(&part[0], &part[1]));
        yk_status status = YK__SLOT(owner, gemm, &part[0], &part[1], &part[2], NULL, false);
        if (status)
            return status;
        int d = outer - 1;
        for (; d >= 0; d--) {
            const yk__view *all[3] = {&out, &a, &b};
            bool carry = ++index[d] == out.shape[d];
            for (int i = 0; i < 3; i++) {
                int64_t steps = carry ? -(index[d] - 1) : 1;
                part[i].data = (char *)part[i].data + steps * all[i]->stride[d] * (int64_t)yk_dtype_size(part[i].dtype);
            }
            if (!carry)
                break;
            index[d] = 0;
        }
        if (d < 0)
            return YK_OK;
    }
}

/* A new tensor (batch..., M, N) in C order. */
static yk_tensor *product(const yk__view *a, const yk__view *b, int ndim, const int64_t *shape, yk_device device)
{
    yk_tensor *out = yk__tensor_new(ndim, shape, NULL, a->dtype, device);
    if (!out || !out->numel)
        return out;
    if (a->shape[a->ndim - 1] == 0)
        return yk__tensor_if_ok(out, yk__raw_fill(out, 0));
    return yk__tensor_if_ok(out, multiply(out, yk__view_of(out), batched(a, ndim, shape), batched(b, ndim, shape)));
}

/* The sum of a^T g over the batch, where b is one matrix for all: the batch is folded into the sum of the product. NULL
 * without an error where the memory of a or g does not allow it. */
static yk_tensor *folded_gradient(yk__view a, yk__view g, yk_device device)
{
    while (a.ndim > 2) {
        if (!mergeable(&a, a.ndim - 3) || !mergeable(&g, g.ndim - 3))
            return NULL;
        merge(&a, a.ndim - 3);
        merge(&g, g.ndim - 3);
    }
    yk__view at = transposed(a);
    return product(&at, &g, 2, (int64_t[]){at.shape[0], g.shape[1]}, device);
}

/* The gradient of one operand: from the shape of the whole batch to the operand's. Takes over `full`. */
static yk_tensor *to_operand(yk_tensor *full, const yk__tensor_spec *spec, bool left)
{
    yk__tensor_spec matrix = *spec;
    if (spec->ndim == 1) {
        matrix.ndim = 2;
        matrix.shape[left ? 1 : 0] = spec->shape[0];
        matrix.shape[left ? 0 : 1] = 1;
    }
    yk_tensor *sum = yk__sum_to_spec(full, &matrix);
    if (!sum || spec->ndim != 1)
        return sum;
    yk_tensor *out = yk__raw_reshape(sum, 1, spec->shape);
    yk_tensor_release(sum);
    return out;
}

static yk_status matmul_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const product_context *c = yk__context(node);
    yk_status status = YK_OK;
    yk_tensor *from[3] = {gout, yk__saved(node, 0, &status), yk__saved(node, 1, &status)}, *wide[3];
    if (status || (status = yk__operands(YK__SLOT_gemm, 7u, 3, from, wide)))
        return status;
    /* The gradient as matrices: dimensions that 1-d operands took away come back with size 1. */
    bool row = c->a.ndim == 1, column = c->b.ndim == 1;
    yk__view g = yk__view_of(wide[0]);
    if (column) {
        g.shape[g.ndim] = 1;
        g.stride[g.ndim++] = 0;
    }
    if (row) {
        int last = g.ndim++ - 1;
        g.shape[last + 1] = g.shape[last];
        g.stride[last + 1] = g.stride[last];
        g.shape[last] = 1;
        g.stride[last] = 0;
    }
    yk_device device = yk__device_of(gout);
    int64_t shape[YK_MAX_DIMS];
    memcpy(shape, g.shape, sizeof(shape));
    if (c->hides && yk__needs_grad(node, 0)) {
        yk_tensor *hidden = yk__without_nan(wide[2]);
        yk_tensor_release(wide[2]);
        wide[2] = hidden;
        status = yk__status_of(hidden);
    }
    if (!status && yk__needs_grad(node, 0)) {
        yk__view b = matrices(wide[2], false), bt = transposed(b);
        shape[g.ndim - 2] = g.shape[g.ndim - 2];
        shape[g.ndim - 1] = b.shape[b.ndim - 2];
        grads[0] = to_operand(product(&g, &bt, g.ndim, shape, device), &c->a, true);
        status = yk__status_of(grads[0]);
    }
    if (!status && yk__needs_grad(node, 1)) {
        yk__view a = matrices(wide[1], true), at = transposed(a);
        yk_tensor *full = c->b.ndim <= 2 && a.ndim == g.ndim ? folded_gradient(a, g, device) : NULL;
        if (!full && !yk__error_code()) {
            shape[g.ndim - 2] = a.shape[a.ndim - 1];
            shape[g.ndim - 1] = g.shape[g.ndim - 1];
            full = product(&at, &g, g.ndim, shape, device);
        }
        grads[1] = to_operand(full, &c->b, false);
        status = yk__status_of(grads[1]);
    }
    yk__release_all(3, wide);
    return status;
}

/* The same of matrices: 1-d operands are a row and a column, which the result has lost. */
static void matmul_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const product_context *c = yk__context(node);
    yk_tensor *g = gouts[0];
    if (c->b.ndim == 1)
        g = yk_unsqueeze(g, -1);
    if (c->a.ndim == 1)
        g = yk_unsqueeze(g, -2);
    if (yk__needs_grad(node, 0)) {
        yk_tensor *b = yk__saved_in_graph(node, 1);
        b = b && b->ndim == 1 ? yk_unsqueeze(b, -1) : b;
        yk_tensor *bt = b ? yk_transpose(b, -1, -2) : NULL;
        if (c->hides && bt)
            bt = yk__recorded_where(yk_eq(bt, bt), bt);
        yk_tensor *full = yk_matmul(g, bt);
        if (full && c->a.ndim == 1)
            full = yk_squeeze(full, -2);
        grads[0] = yk__recorded_sum_to(full, &c->a);
    }
    if (yk__needs_grad(node, 1)) {
        yk_tensor *a = yk__saved_in_graph(node, 0);
        a = a && a->ndim == 1 ? yk_unsqueeze(a, 0) : a;
        yk_tensor *full = yk_matmul(a ? yk_transpose(a, -1, -2) : NULL, g);
        if (full && c->b.ndim == 1)
            full = yk_squeeze(full, -1);
        grads[1] = yk__recorded_sum_to(full, &c->b);
    }
}

static bool factors_check(yk_tensor *a, yk_tensor *b)
{
    char ta[200], tb[200];
    if (!a->ndim || !b->ndim) {
        yk__fail(YK_ERR_SHAPE, "matmul: shapes %s and %s; both need at least one dimension",
                 yk_shape_format(a, ta, sizeof(ta)), yk_shape_format(b, tb, sizeof(tb)));
        return false;
    }
    if (a->dtype != b->dtype) {
        yk__fail(YK_ERR_DTYPE, "matmul: %s times %s; cast one with yk_cast", yk_dtype_name((yk_dtype)a->dtype),
                 yk_dtype_name((yk_dtype)b->dtype));
        return false;
    }
    int64_t ka = a->shape[a->ndim - 1], kb = b->shape[b->ndim > 1 ? b->ndim - 2 : 0];
    if (ka != kb) {
        yk__fail(YK_ERR_SHAPE, "matmul: shapes %s and %s: %lld columns times %lld rows",
                 yk_shape_format(a, ta, sizeof(ta)), yk_shape_format(b, tb, sizeof(tb)), (long long)ka, (long long)kb);
        return false;
    }
    return yk__expect_floating("matmul", "tensor", a) == YK_OK;
}

/* The batches of a and b together, in front of M and N. */
static bool result_shape(const yk_tensor *a, const yk_tensor *b, const yk__view *va, const yk__view *vb, int ndim,
                         int64_t *shape)
{
    for (int d = 0; d < ndim - 2; d++) {
        int da = d - (ndim - va->ndim), db = d - (ndim - vb->ndim);
        int64_t sa = da >= 0 ? va->shape[da] : 1, sb = db >= 0 ? vb->shape[db] : 1;
        if (sa != sb && sa != 1 && sb != 1) {
            char ta[200], tb[200];
            yk__fail(YK_ERR_SHAPE, "matmul: the batches of %s and %s do not broadcast: %lld against %lld",
                     yk_shape_format(a, ta, sizeof(ta)), yk_shape_format(b, tb, sizeof(tb)), (long long)sa,
                     (long long)sb);
            return false;
        }
        shape[d] = sa == 1 ? sb : sa;
    }
    shape[ndim - 2] = va->shape[va->ndim - 2];
    shape[ndim - 1] = vb->shape[vb->ndim - 1];
    return true;
}

/* The size-1 dimensions of 1-d operands leave the result, which is taken over. */
static yk_tensor *without_added(yk_tensor *out, const yk_tensor *a, const yk_tensor *b)
{
    if (!out || (a->ndim > 1 && b->ndim > 1))
        return out;
    int64_t shape[YK_MAX_DIMS];
    int ndim = out->ndim - 2;
    memcpy(shape, out->shape, sizeof(shape[0]) * (size_t)ndim);
    if (a->ndim > 1)
        shape[ndim++] = out->shape[out->ndim - 2];
    if (b->ndim > 1)
        shape[ndim++] = out->shape[out->ndim - 1];
    yk_tensor *less = yk__raw_reshape(out, ndim, shape);
    yk_tensor_release(out);
    return less;
}

static yk_tensor *matmul_of(yk_tensor *a, yk_tensor *b, bool hides)
{
    static const yk__op op = {.name = "matmul", .backward = matmul_backward, .recorded = matmul_recorded};
    yk_tensor *inputs[2] = {a, b}, *wide[2];
    YK__AUTOCAST(matmul, 2, inputs, matmul_of(inputs[0], inputs[1], hides));
    YK__EVENT(YK__EVENT_OPERATION, "matmul");
    if (!yk__op_begin("matmul", 2, inputs, 0) || !factors_check(a, b) ||
        yk__operands(YK__SLOT_gemm, 3u, 2, inputs, wide))
        return NULL;
    yk__view va = matrices(wide[0], true), vb = matrices(wide[1], false);
    int ndim = va.ndim > vb.ndim ? va.ndim : vb.ndim;
    int64_t shape[YK_MAX_DIMS];
    yk_tensor *out =
        result_shape(a, b, &va, &vb, ndim, shape) ? product(&va, &vb, ndim, shape, yk__device_of(a)) : NULL;
    out = yk__narrow_to(without_added(out, a, b), (yk_dtype)a->dtype);
    yk__release_all(2, wide);
    if (!out)
        return NULL;
    product_context c = {yk__spec_of(a), yk__spec_of(b), hides};
    yk_tensor *saved[2] = {yk__wants_grad(b) ? a : NULL, yk__wants_grad(a) ? b : NULL};
    return yk__record(out, &op, 2, inputs, 2, saved, &c, sizeof(c));
}

yk_tensor *yk_matmul(yk_tensor *a, yk_tensor *b)
{
    return matmul_of(a, b, false);
}

yk_tensor *yk__matmul_hiding(yk_tensor *a, yk_tensor *b)
{
    return matmul_of(a, b, true);
}
