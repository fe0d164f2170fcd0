/*
 * losses.c - cross entropy of class indices and of probabilities, mean squared error. Layer: ops.
 *
 * cross_entropy keeps the logits and one number a row, log sum exp, not the probabilities (docs/autograd.md).
 */
#include "ops/cast_policy.h"

/* ---- cross entropy ---- */

typedef struct cross_entropy_context {
    yk__cross_entropy p;
    int8_t dtype;
} cross_entropy_context;

static yk_status cross_entropy_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    enum { G, LOGITS, LSE, TOTAL, TARGET, WEIGHT, READ };
    const cross_entropy_context *c = yk__context(node);
    yk_status status = YK_OK;
    yk_tensor *from[READ] = {gout}, *in[READ];
    for (int i = 1; i < READ; i++)
        from[i] = yk__saved(node, i - 1, &status);
    if (status || (status = yk__operands(YK__SLOT_cross_entropy, 1u << LOGITS, READ, from, in)))
        return status;
    yk_tensor *gx = yk__tensor_like(in[LOGITS], (yk_dtype)in[LOGITS]->dtype);
    status = yk__status_of(gx);
    if (gx && gx->numel) {
        yk__view vgx = yk__view_of(gx), v[READ];
        const yk__view *read[READ];
        for (int i = 0; i < READ; i++)
            read[i] = yk__optional_view(&v[i], in[i]);
        status = YK__SLOT(gx, cross_entropy_backward, &c->p, &vgx, read[G], read[LOGITS], read[LSE], read[TOTAL],
                          read[TARGET], read[WEIGHT]);
    }
    yk__release_all(READ, in);
    grads[0] = yk__narrow_to(yk__tensor_if_ok(gx, status), (yk_dtype)c->dtype);
    return yk__status_of(grads[0]);
}

/* gx = g (p a - b), with a number a for each row and b one for each class of it, which depend on no logit
 * (docs/autograd.md). */
static void cross_entropy_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    enum { LOGITS, LSE, TOTAL, TARGET, WEIGHT };
    const cross_entropy_context *c = yk__context(node);
    yk_tensor *logits = yk__recorded_wide(yk__saved_in_graph(node, LOGITS)), *target = yk__saved_in_graph(node, TARGET);
    yk_tensor *weight = yk__recorded_wide(yk__saved_in_graph(node, WEIGHT)), *total = yk__saved_in_graph(node, TOTAL);
    if (!logits || !target || !total || yk__error_code())
        return;
    yk_device device = yk__device_of(logits);
    double smoothing = c->p.label_smoothing / (double)logits->shape[1];
    yk_tensor *line = yk__scope_own(yk__raw_positions(logits->shape[1], 1, device));
    yk_tensor *counts = yk_ne(target, yk__recorded_number(target, (double)c->p.ignore_index));
    yk_tensor *hits = yk_logical_and(yk_eq(yk_unsqueeze(target, 1), line), yk_unsqueeze(counts, 1));
    yk_tensor *of_class = weight ? yk_detach(weight) : yk_ones_like(yk_select(logits, 0, 0));
    yk_tensor *b =
        yk__recorded_where(hits, yk_mul_scalar(yk_expand(of_class, 2, logits->shape), 1 - c->p.label_smoothing));
    if (c->p.label_smoothing > 0)
        b = yk_add(b, yk__recorded_where(yk_unsqueeze(counts, 1),
                                         yk_mul_scalar(yk_expand(of_class, 2, logits->shape), smoothing)));
    if (c->p.mean)
        b = yk_div(b, yk_cast(total, (yk_dtype)logits->dtype));
    yk_tensor *a = yk_sum_dims(b, (int[]){1}, 1, true);
    yk_tensor *slope = yk_sub(yk_mul(yk_softmax(logits, 1), a), b);
    grads[0] = yk_cast(yk_mul(yk__recorded_wide(gouts[0]), slope), (yk_dtype)c->dtype);
}

/* A target of floats and of more than a dimension: one of a dimension is taken for classes of a wrong type. */
static bool are_probabilities(const yk_tensor *target)
{
    bool floating = target->dtype == YK_F32 || target->dtype == YK_F64 || yk__is_half((yk_dtype)target->dtype);
    return floating && target->ndim >= 2;
}

static bool loss_check(const yk_tensor *logits, const yk_tensor *target, const yk_cross_entropy_options *o)
{
    char a[200], b[200];
    bool soft = are_probabilities(target);
    bool fits = logits->ndim >= 2 && logits->shape[1] > 0 &&
                (soft ? yk_same_shape(logits, target)
                      : logits->ndim == 2 && target->ndim == 1 && target->shape[0] == logits->shape[0]);
    if (!fits) {
        yk__fail(YK_ERR_SHAPE,
                 "cross_entropy: logits %s and target %s, expected (N, C) and (N,) with C above 0, or probabilities of "
                 "the logits' shape",
                 yk_shape_format(logits, a, sizeof(a)), yk_shape_format(target, b, sizeof(b)));
        return false;
    }
    if (!soft && target->dtype != YK_I64 && target->dtype != YK_I32) {
        yk__fail(YK_ERR_DTYPE, "cross_entropy: target is %s, expected class indices as int64",
                 yk_dtype_name((yk_dtype)target->dtype));
        return false;
    }
    if (soft && target->dtype != logits->dtype) {
        yk__fail(YK_ERR_DTYPE, "cross_entropy: probabilities are %s, and the logits %s",
                 yk_dtype_name((yk_dtype)target->dtype), yk_dtype_name((yk_dtype)logits->dtype));
        return false;
    }
    if (yk__check_number("cross_entropy", "label_smoothing", o->label_smoothing, 0, 1))
        return false;
    if (!yk__reduction_check("cross_entropy", o->reduction, false))
        return false;
    bool as_logits = o->weight && o->weight->dtype == logits->dtype;
    return !yk__expect_floating("cross_entropy", "tensor of logits", logits) &&
           !yk__expect_vector("cross_entropy", "weight", o->weight, logits->shape[1], "class") &&
           (as_logits || !yk__expect_dtype("cross_entropy", "weight", o->weight, yk__wide_dtype(logits)));
}

/* The loss, its saved row sums and divisor from the kernel. */
static yk_tensor *reduced(const yk__op *op, yk_tensor *logits, yk_tensor *target, yk_tensor *weight,
                          const yk__cross_entropy *p)
{
    yk_tensor *from[2] = {logits, weight}, *wide[2];
    if (yk__operands(YK__SLOT_cross_entropy, 1u << 0, 2, from, wide))
        return NULL;
    yk_device device = yk__device_of(logits);
    yk_dtype dtype = yk__wide_dtype(wide[0]);
    yk_tensor *labels = yk__raw_cast(target, YK_I64), *lse = yk__tensor_new(1, logits->shape, NULL, dtype, device);
    yk_tensor *loss = yk__tensor_new(0, NULL, NULL, dtype, device),
              *total = yk__tensor_new(0, NULL, NULL, dtype, device);
    yk_status status = labels && lse && loss && total ? YK_OK : yk__status_of(NULL);
    if (!status) {
        yk__view vl = yk__view_of(loss), ve = yk__view_of(lse), vt = yk__view_of(total), vx = yk__view_of(wide[0]);
        yk__view vy = yk__view_of(labels), vw;
        status = YK__SLOT(logits, cross_entropy, p, &vl, &ve, &vt, &vx, &vy, yk__optional_view(&vw, wide[1]));
    }
    yk__release_all(2, wide);
    cross_entropy_context c = {*p, logits->dtype};
    yk_tensor *saved[5] = {logits, lse, total, labels, weight};
    loss = yk__narrow_to(yk__tensor_if_ok(loss, status), (yk_dtype)logits->dtype);
    loss = yk__record(loss, op, 1, &logits, 5, saved, &c, sizeof(c));
    yk__release_all(3, (yk_tensor *[]){labels, lse, total});
    return loss;
}

/* One loss a row, composed of other operations: -log p at the label, picked by a mask over the classes. The reduced
 * kernel runs once for its check of the labels. */
static yk_tensor *per_row(const yk__op *op, yk_tensor *logits, yk_tensor *target, yk_tensor *weight,
                          const yk__cross_entropy *p)
{
    yk_scope scope = yk_scope_begin();
    bool previous = yk_no_grad_begin();
    yk_tensor *checked = reduced(op, logits, target, weight, p);
    yk_device device = yk__device_of(logits);
    int64_t classes = logits->shape[1];
    yk_tensor *counts = yk_ne(target, yk__scope_own(yk__raw_scalar((double)p->ignore_index, YK_I64, device)));
    yk_tensor *line = yk__scope_own(yk__raw_positions(classes, 1, device));
    yk_tensor *mask = checked ? yk_eq(yk_unsqueeze(target, 1), line) : NULL;
    yk_no_grad_end(previous);
    yk_tensor *surprise = yk_neg(yk_log_softmax(logits, 1));
    if (weight)
        surprise = yk_mul(surprise, yk_cast(weight, (yk_dtype)logits->dtype));
    yk_tensor *zero = yk__scope_own(yk__raw_scalar(0, (yk_dtype)logits->dtype, device));
    const int over_classes = 1;
    yk_tensor *loss = yk_sum_dims(yk_where(mask, surprise, zero), &over_classes, 1, false);
    if (p->label_smoothing > 0) {
        yk_tensor *smooth =
            yk_mul_scalar(yk_sum_dims(surprise, &over_classes, 1, false), p->label_smoothing / (double)classes);
        loss = yk_add(yk_mul_scalar(loss, 1 - p->label_smoothing), smooth);
    }
    loss = yk_scope_return(scope, yk_where(counts, loss, zero));
    yk_scope_end(scope);
    return loss;
}

/* -sum of t log p over the classes, dimension 1, with t the target, smoothed. The mean is over all but the classes. */
static yk_tensor *of_probabilities(yk_tensor *logits, yk_tensor *target, yk_tensor *weight, double smoothing,
                                   yk_reduction reduction)
{
    const int over_classes = 1;
    int64_t classes = logits->shape[1], of_class[YK_MAX_DIMS];
    for (int d = 0; d < logits->ndim; d++)
        of_class[d] = d == 1 ? classes : 1;
    yk_dtype dtype = (yk_dtype)logits->dtype;
    yk_scope scope = yk_scope_begin();
    yk_tensor *surprise = yk_neg(yk_log_softmax(yk__recorded_wide(logits), 1)), *share = yk__recorded_wide(target);
    if (smoothing > 0)
        share = yk_add_scalar(yk_mul_scalar(share, 1 - smoothing), smoothing / (double)classes);
    yk_tensor *loss = yk_mul(surprise, share);
    if (weight && loss)
        loss = yk_mul(loss, yk_cast(yk_reshape(weight, logits->ndim, of_class), (yk_dtype)loss->dtype));
    if (reduction == YK_REDUCE_NONE)
        loss = yk_sum_dims(loss, &over_classes, 1, false);
    else
        loss = yk_sum(loss);
    if (reduction == YK_REDUCE_MEAN)
        loss = yk_div_scalar(loss, (double)(logits->numel / classes));
    loss = yk_scope_return(scope, loss ? yk_cast(loss, dtype) : NULL);
    yk_scope_end(scope);
    return loss;
}

yk_tensor *yk_cross_entropy(yk_tensor *logits, yk_tensor *target, const yk_cross_entropy_options *options)
{
    static const yk__op op = {
        .name = "cross_entropy", .backward = cross_entropy_backward, .recorded = cross_entropy_recorded};
    yk_cross_entropy_options o;
    if (YK__OPTIONS_TAKE("cross_entropy", yk_cross_entropy_options, options, &o))
        return NULL;
    yk_tensor *inputs[3] = {logits, target, o.weight};
    if (logits && !target && !yk__error_code()) {
        yk__fail(YK_ERR_ARGUMENT, "cross_entropy: the target is NULL; a batch of samples without labels has none");
        return NULL;
    }
    YK__AUTOCAST(cross_entropy, 3, inputs, (o.weight = inputs[2], yk_cross_entropy(inputs[0], inputs[1], &o)));
    YK__EVENT(YK__EVENT_OPERATION, "cross_entropy");
    if (!yk__op_begin("cross_entropy", 3, inputs, 1u << 2) || !loss_check(logits, target, &o))
        return NULL;
    if (yk__wants_grad(o.weight) && yk_grad_enabled()) {
        yk__fail(YK_ERR_UNSUPPORTED, "cross_entropy: the class weights have no gradient; detach them");
        return NULL;
    }
    if (are_probabilities(target))
        return of_probabilities(logits, target, o.weight, o.label_smoothing, o.reduction);
    yk__cross_entropy p = {
        .ignore_index = o.ignore_index, .label_smoothing = o.label_smoothing, .mean = o.reduction == YK_REDUCE_MEAN};
    return o.reduction == YK_REDUCE_NONE ? per_row(&op, logits, target, o.weight, &p)
                                         : reduced(&op, logits, target, o.weight, &p);
}

/* ---- mean squared error ---- */

typedef struct mse_context {
    double factor; /* 2, or 2 / count for the mean */
    yk__tensor_spec spec[2];
} mse_context;

/* Keeps the difference d: gx = factor d g, gtarget = -gx. */
static yk_status mse_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const mse_context *c = yk__context(node);
    yk_status status = YK_OK;
    yk_tensor *difference = yk__saved(node, 0, &status);
    if (status)
        return status;
    for (int i = 0; i < 2 && !status; i++) {
        if (!yk__needs_grad(node, i))
            continue;
        yk_tensor *scale = yk__raw_unary("mse_loss", YK__MUL_SCALAR, gout, i ? -c->factor : c->factor, 0);
        grads[i] = yk__sum_to_spec(yk__raw_binary("mse_loss", YK__MUL, difference, scale, 1), &c->spec[i]);
        yk_tensor_release(scale);
        status = yk__status_of(grads[i]);
    }
    return status;
}

/* The difference as it was made of the inputs. */
static yk_status difference_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const mse_context *c = yk__context(node);
    yk_status status = YK_OK;
    for (int i = 0; i < 2 && !status; i++) {
        if (!yk__needs_grad(node, i))
            continue;
        yk_tensor *term = i ? yk__raw_unary("mse_loss", YK__NEG, gout, 0, 0) : yk_tensor_retain(gout);
        grads[i] = yk__sum_to_spec(term, &c->spec[i]);
        status = yk__status_of(grads[i]);
    }
    return status;
}

static void difference_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const mse_context *c = yk__context(node);
    grads[0] = yk__recorded_sum_to(gouts[0], &c->spec[0]);
    grads[1] = yk__recorded_sum_to(yk_neg(gouts[0]), &c->spec[1]);
}

static void mse_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    static const yk__op op = {.name = "sub", .backward = difference_backward, .recorded = difference_recorded};
    const mse_context *c = yk__context(node);
    yk_tensor *difference = yk__saved_made_by(node, 0, &op, c, sizeof(*c));
    for (int i = 0; i < 2; i++) {
        if (yk__needs_grad(node, i)) {
            yk_tensor *scale = yk_mul_scalar(gouts[0], i ? -c->factor : c->factor);
            grads[i] = yk__recorded_sum_to(yk_mul(difference, scale), &c->spec[i]);
        }
    }
}

yk_tensor *yk_mse_loss(yk_tensor *x, yk_tensor *target, yk_reduction reduction)
{
    static const yk__op op = {.name = "mse_loss", .backward = mse_backward, .recorded = mse_recorded};
    yk_tensor *inputs[2] = {x, target};
    char a[200], b[200];
    YK__AUTOCAST(mse_loss, 2, inputs, yk_mse_loss(inputs[0], inputs[1], reduction));
    YK__EVENT(YK__EVENT_OPERATION, "mse_loss");
    if (!yk__op_begin("mse_loss", 2, inputs, 0))
        return NULL;
    if (!yk_same_shape(x, target)) {
        yk__fail(YK_ERR_SHAPE, "mse_loss: input %s and target %s; the shapes must be equal",
                 yk_shape_format(x, a, sizeof(a)), yk_shape_format(target, b, sizeof(b)));
        return NULL;
    }
    if (!yk__reduction_check("mse_loss", reduction, false))
        return NULL;
    if (yk__expect_floating("mse_loss", "input", x) || yk__expect_floating("mse_loss", "target", target))
        return NULL;
    yk_tensor *difference = yk__raw_binary("mse_loss", YK__SUB, x, target, 1), *out;
    double count = (double)x->numel;
    if (reduction == YK_REDUCE_NONE) {
        out = yk__raw_binary("mse_loss", YK__MUL, difference, difference, 1);
    } else {
        yk_tensor *sum = yk__raw_reduce("mse_loss", YK__SUM_SQUARES, difference, 0, false, 0);
        out = reduction == YK_REDUCE_SUM ? yk_tensor_retain(sum)
                                         : yk__raw_unary("mse_loss", YK__MUL_SCALAR, sum, 1 / count, 0);
        yk_tensor_release(sum);
    }
    mse_context c = {reduction == YK_REDUCE_MEAN ? 2 / count : 2, {yk__spec_of(x), yk__spec_of(target)}};
    out = yk__record(out, &op, 2, inputs, 1, &difference, &c, sizeof(c));
    yk_tensor_release(difference);
    return out;
}
