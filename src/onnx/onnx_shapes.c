/*
 * onnx_shapes.c - views, joins, choices by index and borders as nodes of ONNX. Layer: onnx.
 */
#include "onnx/onnx_graph.h"

#define EMITTER(name)    static bool emit_##name(yk__onnx *g, const yk__traced_op *op, const char **results)
#define GIVE(expression) return (results[0] = (expression)) != NULL

static const yk_tensor *x_tensor(const yk__onnx *g, const yk__traced_op *op)
{
    return yk__onnx_of_a(g, op->values[0]);
}

static const yk_tensor *result_tensor(const yk__onnx *g, const yk__traced_op *op)
{
    return yk__onnx_of_a(g, yk__onnx_out(op, 0));
}

static const char *one(yk__onnx *g, int64_t value)
{
    return yk__onnx_list(g, 1, &value);
}

static const char *with_int(yk__onnx *g, const char *type, const char *attribute, int64_t value, int count,
                            const char *const *inputs)
{
    yk__proto attributes = {0};
    yk__onnx_int(&attributes, attribute, value);
    return yk__onnx_node(g, type, &attributes, count, inputs);
}

static const char *transposed(yk__onnx *g, const char *x, int ndim, const int64_t *order)
{
    yk__proto attributes = {0};
    yk__onnx_ints(&attributes, "perm", ndim, order);
    return YK__ONNX_NODE(g, "Transpose", &attributes, x);
}

/* x[start : end : step] of one dimension; an end of INT64_MAX is that of any size. */
static const char *sliced(yk__onnx *g, const char *x, int64_t dim, int64_t start, int64_t end, int64_t step)
{
    return YK__ONNX_NODE(g, "Slice", NULL, x, one(g, start), one(g, end), one(g, dim), one(g, step));
}

EMITTER(reshape)
{
    GIVE(yk__onnx_reshape_as(g, yk__onnx_input(g, op, 0), yk__onnx_out(op, 0)));
}

EMITTER(permute)
{
    int count;
    const int64_t *order = yk__onnx_ints_of(op, "dims", &count);
    GIVE(transposed(g, yk__onnx_input(g, op, 0), x_tensor(g, op)->ndim, order));
}

EMITTER(expand)
{
    int out = yk__onnx_out(op, 0);
    GIVE(YK__ONNX_NODE(
        g, "Expand", NULL, yk__onnx_input(g, op, 0),
        yk__onnx_sizes(g, yk__onnx_of_a(g, out)->ndim, yk__onnx_of_a(g, out)->shape, yk__onnx_of_b(g, out)->shape)));
}

/* slice, narrow and select. */
EMITTER(part)
{
    int64_t dim = yk__onnx_whole(op, "dim"), start = yk__onnx_whole(op, "start"), step = yk__onnx_whole(op, "step");
    int64_t length = yk__onnx_whole(op, "length");
    const char *x = yk__onnx_input(g, op, 0);
    if (result_tensor(g, op)->ndim < x_tensor(g, op)->ndim) {
        const char *inputs[2] = {x, yk__onnx_number(g, YK_I64, (double)start)};
        GIVE(with_int(g, "Gather", "axis", dim, 2, inputs));
    }
    GIVE(sliced(g, x, dim, start, length ? start + (length - 1) * step + 1 : start, step));
}

/* x[items] of numbers and slices, and x[index] of one tensor. */
EMITTER(index)
{
    int count, known;
    const int64_t *start = yk__onnx_ints_of(op, "start", &known), *from = yk__onnx_ints_of(op, "from", &count);
    const int64_t *step = yk__onnx_ints_of(op, "step", &count);
    const char *x = yk__onnx_input(g, op, 0);
    const yk_tensor *in = x_tensor(g, op), *out = result_tensor(g, op);
    int of[YK_MAX_DIMS];
    if (!start) {
        const int64_t *dim = yk__onnx_ints_of(op, "dim", &count), *span = yk__onnx_ints_of(op, "span", &known);
        const char *inputs[2] = {x, yk__onnx_input(g, op, 1)};
        if (count != 1 || span[0] != 1)
            return false;
        GIVE(with_int(g, yk__onnx_whole(op, "along") ? "GatherElements" : "Gather", "axis", dim[0], 2, inputs));
    }
    for (int d = 0; d < in->ndim; d++)
        of[d] = -1;
    for (int d = 0; d < out->ndim && from; d++)
        if (from[d] >= 0)
            of[from[d]] = d;
    for (int d = 0; d < in->ndim; d++) {
        int to = of[d];
        int64_t by = to >= 0 ? step[to] : 1, length = to >= 0 ? out->shape[to] : 1;
        bool all = start[d] == 0 && by == 1 && length == in->shape[d];
        if (!all && to >= 0 && out->shape[to] != yk__onnx_of_b(g, yk__onnx_out(op, 0))->shape[to])
            return false;
        if (!all)
            x = sliced(g, x, d, start[d], length ? start[d] + (length - 1) * by + 1 : start[d], by);
    }
    GIVE(yk__onnx_reshape_as(g, x, yk__onnx_out(op, 0)));
}

EMITTER(cat)
{
    int64_t dim = yk__onnx_whole(op, "dim");
    yk_dtype dtype = yk_tensor_dtype(result_tensor(g, op));
    const char **parts = yk__calloc((size_t)op->n_inputs, sizeof(*parts));
    int count = 0;
    for (int i = 0; parts && i < op->n_inputs; i++) {
        if (yk_numel(yk__onnx_of_a(g, op->values[i])))
            parts[count++] = yk__onnx_input_as(g, op, i, dtype);
    }
    results[0] = parts && count ? with_int(g, "Concat", "axis", dim, count, parts) : NULL;
    free(parts);
    return results[0] != NULL;
}

EMITTER(stack)
{
    int64_t dim = yk__onnx_whole(op, "dim");
    yk_dtype dtype = yk_tensor_dtype(result_tensor(g, op));
    const char **parts = yk__calloc((size_t)op->n_inputs, sizeof(*parts));
    for (int i = 0; parts && i < op->n_inputs; i++)
        parts[i] = YK__ONNX_NODE(g, "Unsqueeze", NULL, yk__onnx_input_as(g, op, i, dtype), one(g, dim));
    results[0] = parts ? with_int(g, "Concat", "axis", dim, op->n_inputs, parts) : NULL;
    free(parts);
    return results[0] != NULL;
}

/* split, split_sizes, chunk and unbind; along the batch they depend on it, and are refused. */
EMITTER(split)
{
    int64_t dim = yk__onnx_whole(op, "dim"), drops = yk__onnx_whole(op, "drops"), start = 0;
    const yk_tensor *b = yk__onnx_of_b(g, op->values[0]);
    if (b->shape[dim] != x_tensor(g, op)->shape[dim])
        return false;
    for (int i = 0; i < op->n_outputs; i++) {
        int64_t length = drops ? 1 : yk__onnx_of_a(g, yk__onnx_out(op, i))->shape[dim];
        const char *inputs[2] = {yk__onnx_input(g, op, 0), drops ? yk__onnx_number(g, YK_I64, (double)start) : NULL};
        results[i] =
            drops ? with_int(g, "Gather", "axis", dim, 2, inputs) : sliced(g, inputs[0], dim, start, start + length, 1);
        if (!results[i])
            return false;
        start += length;
    }
    return true;
}

/* The positions of the first elements of each sorted line; PyTorch and ONNX both take the first of equal ones first. */
EMITTER(argsort)
{
    int64_t dim = yk__onnx_whole(op, "dim"), count = result_tensor(g, op)->shape[dim];
    const char *inputs[2] = {yk__onnx_input(g, op, 0), one(g, count)}, *made[2];
    yk__proto attributes = {0};
    if (x_tensor(g, op)->ndim == 0)
        return false;
    yk__onnx_int(&attributes, "axis", dim);
    yk__onnx_int(&attributes, "largest", yk__onnx_whole(op, "descending"));
    if (!yk__onnx_nodes(g, "TopK", &attributes, 2, inputs, 2, made))
        return false;
    GIVE(made[1]);
}

EMITTER(flip)
{
    int64_t mask = yk__onnx_whole(op, "mask");
    const char *x = yk__onnx_input(g, op, 0);
    for (int d = 0; d < x_tensor(g, op)->ndim; d++) {
        if (mask >> d & 1)
            x = sliced(g, x, d, -1, INT64_MIN, -1);
    }
    GIVE(mask ? x : YK__ONNX_NODE(g, "Identity", NULL, x));
}

EMITTER(pad)
{
    int count, ndim = x_tensor(g, op)->ndim;
    const int64_t *before = yk__onnx_ints_of(op, "before", &count);
    int64_t pads[2 * YK_MAX_DIMS];
    yk_dtype dtype = yk_tensor_dtype(x_tensor(g, op));
    for (int d = 0; d < ndim; d++) {
        pads[d] = before[d];
        pads[ndim + d] = result_tensor(g, op)->shape[d] - x_tensor(g, op)->shape[d] - before[d];
    }
    GIVE(YK__ONNX_NODE(g, "Pad", NULL, yk__onnx_input(g, op, 0), yk__onnx_list(g, 2 * ndim, pads),
                       yk__onnx_number(g, dtype, yk__onnx_real(op, "value"))));
}

/* ---- windows ---- */

/* The windows of one dimension become two, of which the second moves to the end. */
EMITTER(unfold)
{
    int axes, ndim = x_tensor(g, op)->ndim;
    const int64_t *kernel = yk__onnx_ints_of(op, "kernel", &axes), *stride = yk__onnx_ints_of(op, "stride", &axes);
    const int64_t *dilation = yk__onnx_ints_of(op, "dilation", &axes);
    int64_t first = yk__onnx_whole(op, "first");
    const char *x = yk__onnx_input(g, op, 0);
    for (int i = 0; i < axes && x; i++, ndim++) {
        int64_t dim = first + i, count = result_tensor(g, op)->shape[dim], order[YK_MAX_DIMS + 1];
        int64_t *index = yk__calloc((size_t)(count * kernel[i]), sizeof(*index));
        for (int64_t n = 0; index && n < count * kernel[i]; n++)
            index[n] = n / kernel[i] * stride[i] + n % kernel[i] * dilation[i];
        const char *inputs[2] = {x, index ? yk__onnx_bytes(g, YK_I64, 2, (int64_t[]){count, kernel[i]}, index) : NULL};
        free(index);
        x = with_int(g, "Gather", "axis", dim, 2, inputs);
        for (int d = 0; d <= ndim; d++)
            order[d] = d <= dim ? d : d < ndim ? d + 1 : dim + 1;
        x = transposed(g, x, ndim + 1, order);
    }
    GIVE(x);
}

/* Sums of windows as a product: of y (..., windows, ..., kernel), with both next to one another at the end, and a table
 * that has a 1 where an element of a window lies. */
EMITTER(fold)
{
    int axes;
    const yk_tensor *out = result_tensor(g, op);
    const int64_t *kernel = yk__onnx_ints_of(op, "kernel", &axes), *stride = yk__onnx_ints_of(op, "stride", &axes);
    const int64_t *dilation = yk__onnx_ints_of(op, "dilation", &axes);
    int64_t first = yk__onnx_whole(op, "first"), a[YK_MAX_DIMS + 1], b[YK_MAX_DIMS + 1];
    const char *x = yk__onnx_input(g, op, 0);
    int ndim = x_tensor(g, op)->ndim;
    for (int d = 0; d < ndim; d++) {
        a[d] = x_tensor(g, op)->shape[d];
        b[d] = yk__onnx_of_b(g, op->values[0])->shape[d];
    }
    for (int i = axes - 1; i >= 0 && x; i--, ndim--) { /* the kernel of axis i is the last dimension */
        int64_t dim = first + i, count = a[dim], size = out->shape[dim], order[YK_MAX_DIMS];
        for (int d = 0; d < ndim - 2; d++)
            order[d] = d < dim ? d : d + 1;
        order[ndim - 2] = dim;
        order[ndim - 1] = ndim - 1;
        x = transposed(g, x, ndim, order);
        for (int64_t d = dim; d < ndim - 2; d++) {
            a[d] = a[d + 1];
            b[d] = b[d + 1];
        }
        a[ndim - 2] = b[ndim - 2] = count * kernel[i];
        x = yk__onnx_reshape(g, x, ndim - 1, a, b);
        double *table = yk__calloc((size_t)(count * kernel[i] * size), sizeof(*table));
        for (int64_t n = 0; table && n < count * kernel[i]; n++)
            table[n * size + n / kernel[i] * stride[i] + n % kernel[i] * dilation[i]] = 1;
        const char *name = table ? yk__onnx_bytes(g, YK_F64, 2, (int64_t[]){count * kernel[i], size}, table) : NULL;
        free(table);
        yk__proto attributes = {0};
        yk__onnx_int(&attributes, "to", yk__onnx_dtype(yk_tensor_dtype(out)));
        x = YK__ONNX_NODE(g, "MatMul", NULL, x, YK__ONNX_NODE(g, "Cast", &attributes, name));
        for (int d = 0; d < ndim - 1; d++)
            order[d] = d < dim ? d : d == dim ? ndim - 2 : d - 1;
        x = transposed(g, x, ndim - 1, order);
        for (int d = ndim - 2; d > dim; d--) {
            a[d] = a[d - 1];
            b[d] = b[d - 1];
        }
        a[dim] = b[dim] = size;
    }
    GIVE(x);
}

const yk__onnx_row yk__onnx_shapes[] = {
    {"reshape", emit_reshape, NULL},
    {"view", emit_reshape, NULL},
    {"flatten", emit_reshape, NULL},
    {"squeeze", emit_reshape, NULL},
    {"unsqueeze", emit_reshape, NULL},
    {"permute", emit_permute, NULL},
    {"transpose", emit_permute, NULL},
    {"expand", emit_expand, NULL},
    {"slice", emit_part, NULL},
    {"narrow", emit_part, NULL},
    {"select", emit_part, NULL},
    {"index", emit_index, NULL},
    {"index_select", emit_index, NULL},
    {"gather_dim", emit_index, NULL},
    {"take_along_dim", emit_index, NULL},
    {"cat", emit_cat, NULL},
    {"stack", emit_stack, NULL},
    {"split", emit_split, NULL},
    {"split_sizes", emit_split, NULL},
    {"chunk", emit_split, NULL},
    {"unbind", emit_split, NULL},
    {"flip", emit_flip, NULL},
    {"pad", emit_pad, NULL},
    {"unfold", emit_unfold, NULL},
    {"fold", emit_fold, NULL},
    {"argsort", emit_argsort, NULL},
    {NULL, NULL, NULL},
};
