/*
 * class_margins.c - losses that keep the numbers of some classes above those of others by a margin. Layer: ops.
 *
 * Formulas are torch.nn.functional's. Both compute a loss for each row of classes and reduce.
 */
#include <float.h>

#include "ops/index.h"

/* Numbers of classes, targets that are classes, and a reduction. */
static bool classes_check(const char *name, yk_tensor *x, yk_tensor *target, yk_reduction reduction)
{
    if (target->dtype != YK_I64 && target->dtype != YK_I32) {
        yk__fail(YK_ERR_DTYPE, "%s: target is %s, expected int64 or int32: classes", name,
                 yk_dtype_name((yk_dtype)target->dtype));
        return false;
    }
    return yk__reduction_check(name, reduction, false) && !yk__expect_floating(name, "input", x);
}

/* A loss of each row, reduced; of a single row without its dimension. */
static yk_tensor *of_rows(yk_tensor *loss, yk_reduction reduction, bool row, yk_dtype dtype)
{
    loss = loss && row && reduction == YK_REDUCE_NONE ? yk_squeeze(loss, 0) : loss;
    loss = loss ? yk__reduced(loss, reduction) : NULL;
    return loss ? yk_cast(loss, dtype) : NULL;
}

/* The numbers 0 to n - 1 as a row of i64. */
static yk_tensor *row_of(int64_t n, const yk_tensor *x)
{
    return yk_transpose(yk__scope_own(yk__raw_positions(n, 2, yk__device_of(x))), 0, 1);
}

static yk_tensor *multi_margin(yk_tensor *x, yk_tensor *target, const yk_multi_margin_loss_options *o)
{
    const int classes = 1;
    bool row = x->ndim == 1;
    yk_tensor *wide = yk__recorded_wide(row ? yk_unsqueeze(x, 0) : x);
    yk_tensor *label = yk_cast(row ? yk_reshape(target, 1, (int64_t[]){1}) : target, YK_I64);
    yk_tensor *column = yk_unsqueeze(label, 1);
    yk_tensor *above = yk_relu(yk_add_scalar(yk_sub(wide, yk_gather_dim(wide, 1, column)), o->margin));
    if (o->p == 2)
        above = yk_square(above);
    if (o->weight)
        above = yk_mul(above, yk_unsqueeze(yk_index_select(yk__recorded_wide(o->weight), 0, label), 1));
    if (!above || !column)
        return NULL;
    above = yk__recorded_where_not(yk_eq(column, row_of(wide->shape[1], x)), above);
    yk_tensor *loss = yk_div_scalar(yk_sum_dims(above, &classes, 1, false), (double)wide->shape[1]);
    return of_rows(loss, o->reduction, row, (yk_dtype)x->dtype);
}

yk_tensor *yk_multi_margin_loss(yk_tensor *x, yk_tensor *target, const yk_multi_margin_loss_options *options)
{
    static const char name[] = "multi_margin_loss";
    yk_multi_margin_loss_options o;
    char a[200], b[200];
    YK__EVENT(YK__EVENT_OPERATION, "multi_margin_loss");
    if (YK__OPTIONS_TAKE(name, yk_multi_margin_loss_options, options, &o))
        return NULL;
    yk_tensor *inputs[3] = {x, target, o.weight};
    if (!yk__op_begin(name, 3, inputs, 1u << 2) || !classes_check(name, x, target, o.reduction) ||
        yk__check_number(name, "margin", o.margin, -DBL_MAX, DBL_MAX) || yk__check_integer(name, "p", o.p, 1, 2))
        return NULL;
    bool rows = x->ndim == 2 && target->ndim == 1 && target->shape[0] == x->shape[0];
    bool one = x->ndim == 1 && target->numel == 1 && target->ndim <= 1;
    if (!(rows || one) || !x->shape[x->ndim - 1]) {
        yk__fail(YK_ERR_SHAPE, "%s: input %s and target %s, expected (N, C) and (N), or (C) and ()", name,
                 yk_shape_format(x, a, sizeof(a)), yk_shape_format(target, b, sizeof(b)));
        return NULL;
    }
    int64_t classes = x->shape[x->ndim - 1];
    if (yk__expect_dtype(name, "weight", o.weight, (yk_dtype)x->dtype) ||
        yk__expect_vector(name, "weight", o.weight, classes, "class") || yk__index_check(name, target, 0, classes))
        return NULL;
    YK__WITHIN_SCOPE(multi_margin(x, target, &o));
}

/* The targets of the row that has most, at least 1; the host waits for it. -1 on failure. */
static int64_t longest_list(yk_tensor *counted)
{
    const int classes = 1;
    int64_t most = 0;
    if (!counted || !counted->numel)
        return counted ? counted->shape[1] : -1;
    yk_tensor *longest = yk_max(yk_sum_dims(yk_cast(counted, YK_I64), &classes, 1, false));
    if (!longest || yk_tensor_read(longest, &most, sizeof(most)))
        return -1;
    return most > 1 ? most : 1;
}

/* The loss of each row by a kernel, or its derivative; one reference. */
static yk_tensor *margins_raw(yk_tensor *x, yk_tensor *label, bool derivative)
{
    yk_tensor *out = yk__tensor_new(derivative ? 2 : 1, x->shape, NULL, (yk_dtype)x->dtype, yk__device_of(x));
    if (!out || !out->numel)
        return out;
    yk__view vo = yk__view_of(out), vx = yk__view_of(x), vl = yk__view_of(label);
    return yk__tensor_if_ok(out,
                            YK__SLOT(x, label_margins, derivative ? NULL : &vo, derivative ? &vo : NULL, &vx, &vl));
}

/* The loss is made of straight lines: its derivative has none of its own. */
static void margins_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    yk_tensor *x = yk__saved_in_graph(node, 0), *label = yk__saved_in_graph(node, 1);
    yk_tensor *slope = x && label ? yk__scope_own(margins_raw(x, label, true)) : NULL;
    grads[0] = slope ? yk_mul(yk_unsqueeze(gouts[0], 1), slope) : NULL;
}

static yk_tensor *multilabel_margin(yk_tensor *x, yk_tensor *target, yk_reduction reduction)
{
    static const yk__op op = {.name = "multilabel_margin_loss", .recorded = margins_recorded};
    static const int pairs[2] = {1, 2};
    bool row = x->ndim == 1;
    yk_tensor *wide = yk__recorded_wide(row ? yk_unsqueeze(x, 0) : x);
    yk_tensor *label = yk_cast(row ? yk_unsqueeze(target, 0) : target, YK_I64);
    if (!wide || !label)
        return NULL;
    if (yk__backend_for(wide)->label_margins && !yk__listening) {
        yk_tensor *both[2] = {wide, label};
        yk_tensor *each = yk__record(margins_raw(wide, label, false), &op, 2, both, 2, both, NULL, 0);
        return of_rows(each, reduction, row, (yk_dtype)x->dtype);
    }
    const int64_t rows = wide->shape[0], classes = wide->shape[1];
    yk_tensor *counted = yk_gt_scalar(yk_cumprod(yk_cast(yk_ge_scalar(label, 0), YK_I64), 1), 0);
    yk_tensor *none = yk__recorded_number(label, (double)classes);
    yk__tensor_spec spec = {.dtype = YK_I64, .ndim = 2, .shape = {rows, classes + 1}};
    yk__contiguous_strides(2, spec.shape, spec.stride);
    yk_tensor *marked =
        yk_scatter_dim_value_(yk__recorded_zeros(&spec, yk__device_of(x)), 1, yk_where(counted, label, none), 1);
    yk_tensor *others = yk_eq_scalar(yk_narrow(marked, 1, 0, classes), 0);
    int64_t most = longest_list(counted);
    if (most < 0)
        return NULL;
    label = yk_narrow(label, 1, 0, most);
    counted = yk_narrow(counted, 1, 0, most);
    yk_tensor *of_targets = yk_gather_dim(wide, 1, yk__recorded_where(counted, label));
    yk_tensor *above = yk_relu(yk_add_scalar(yk_sub(yk_unsqueeze(wide, 1), yk_unsqueeze(of_targets, 2)), 1));
    yk_tensor *both = yk_logical_and(yk_unsqueeze(counted, 2), yk_unsqueeze(others, 1));
    yk_tensor *loss = yk_sum_dims(both && above ? yk__recorded_where(both, above) : NULL, pairs, 2, false);
    return of_rows(yk_div_scalar(loss, (double)classes), reduction, row, (yk_dtype)x->dtype);
}

/* No label may be as large as the number of classes; below 0, it ends the list. */
static bool labels_check(const char *name, yk_tensor *target, int64_t classes)
{
    yk_tensor *known = yk__raw_unary(name, YK__RELU, target, 0, 0);
    bool fine = known && !yk__index_check(name, known, target->ndim - 1, classes);
    yk_tensor_release(known);
    return fine;
}

yk_tensor *yk_multilabel_margin_loss(yk_tensor *x, yk_tensor *target, yk_reduction reduction)
{
    static const char name[] = "multilabel_margin_loss";
    yk_tensor *inputs[2] = {x, target};
    char a[200], b[200];
    YK__EVENT(YK__EVENT_OPERATION, "multilabel_margin_loss");
    if (!yk__op_begin(name, 2, inputs, 0) || !classes_check(name, x, target, reduction))
        return NULL;
    if (x->ndim < 1 || x->ndim > 2 || !yk_same_shape(x, target) || !x->shape[x->ndim - 1]) {
        yk__fail(YK_ERR_SHAPE, "%s: input %s and target %s, expected (N, C) or (C) for both", name,
                 yk_shape_format(x, a, sizeof(a)), yk_shape_format(target, b, sizeof(b)));
        return NULL;
    }
    if (!labels_check(name, target, x->shape[x->ndim - 1]))
        return NULL;
    YK__WITHIN_SCOPE(multilabel_margin(x, target, reduction));
}
