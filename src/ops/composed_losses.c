/*
 * composed_losses.c - losses that are made of other operations: binary cross entropies, distances of numbers and of
 * vectors, likelihoods, margins. Layer: ops.
 *
 * Formulas are torch.nn.functional's. Each checks its arguments, computes a loss for each element or row, and reduces.
 */
#include <float.h>
#include <math.h>

#include "ops/op.h"

/* Computes `expression` of these tensors, those of f16 and bf16 in f32, and gives it in the first one's dtype. */
#define WIDE(x, expression)                                                                                            \
    yk_dtype dtype = (yk_dtype)(x)[0]->dtype;                                                                          \
    YK__WITHIN_SCOPE(narrowed(widen((x), (int)(sizeof(x) / sizeof(*(x)))) ? (expression) : NULL, dtype))

static bool widen(yk_tensor **x, int count)
{
    for (int i = 0; i < count; i++)
        x[i] = x[i] && yk__is_half((yk_dtype)x[i]->dtype) ? yk_cast(x[i], YK_F32) : x[i];
    return !yk__error_code();
}

static yk_tensor *narrowed(yk_tensor *x, yk_dtype dtype)
{
    return x ? yk_cast(x, dtype) : NULL;
}

/* Both floating, of one shape. */
static bool alike_check(const char *name, yk_tensor *x, yk_tensor *target, yk_reduction reduction)
{
    char a[200], b[200];
    yk_tensor *inputs[2] = {x, target};
    if (!yk__op_begin(name, 2, inputs, 0) || yk__expect_floating(name, "input", x) ||
        yk__expect_floating(name, "target", target) || !yk__reduction_check(name, reduction, false))
        return false;
    if (yk_same_shape(x, target))
        return true;
    yk__fail(YK_ERR_SHAPE, "%s: input %s and target %s; the shapes must be equal", name,
             yk_shape_format(x, a, sizeof(a)), yk_shape_format(target, b, sizeof(b)));
    return false;
}

/* A weight, which may be NULL, must broadcast to the shape of x. */
static bool weight_check(const char *name, const char *role, yk_tensor *x, yk_tensor *weight)
{
    int ndim;
    int64_t shape[YK_MAX_DIMS];
    char a[200], b[200];
    if (!weight)
        return true;
    if (yk__is_freed(weight)) {
        yk__fail_freed(name, weight);
        return false;
    }
    if (yk__same_device(name, 2, (yk_tensor *[]){x, weight}) || yk__expect_floating(name, role, weight))
        return false;
    if (!yk__broadcast(name, x, weight, &ndim, shape) && ndim == x->ndim && yk__equal_sizes(shape, x->shape, ndim))
        return true;
    yk_clear_error();
    yk__fail(YK_ERR_SHAPE, "%s: %s %s does not broadcast to the input's %s", name, role,
             yk_shape_format(weight, a, sizeof(a)), yk_shape_format(x, b, sizeof(b)));
    return false;
}

static yk_tensor *one_less(yk_tensor *x)
{
    return yk_add_scalar(yk_neg(x), 1);
}

/* ---- binary cross entropies ---- */

/* With t the target: gx = g (x - t) / (x (1 - x)), finite at 0 and 1 by PyTorch's least divisor, a float32; gt = g
 * (log(1 - x) - log x). */
static void bce_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    yk_tensor *x = yk__saved_in_graph(node, 0), *target = yk__saved_in_graph(node, 1);
    if (yk__needs_grad(node, 0)) {
        yk_tensor *spread = yk_clamp(yk_mul(x, one_less(x)), (double)1e-12f, INFINITY);
        grads[0] = yk_mul(gouts[0], yk_div(yk_sub(x, target), spread));
    }
    if (yk__needs_grad(node, 1))
        grads[1] = yk_mul(gouts[0], yk_sub(yk_log(one_less(x)), yk_log(x)));
}

/* The loss of each element, whose logarithms are at least -100. */
static yk_tensor *bce(yk_tensor *x, yk_tensor *target)
{
    static const yk__op op = {.name = "binary_cross_entropy", .recorded = bce_recorded};
    yk_tensor *inputs[2] = {x, target};
    bool before = yk_no_grad_begin();
    yk_tensor *yes = yk_clamp(yk_log(x), -100, INFINITY), *no = yk_clamp(yk_log1p(yk_neg(x)), -100, INFINITY);
    yk_tensor *loss = yk_sub(yk_mul(yk_add_scalar(target, -1), no), yk_mul(target, yes));
    yk_no_grad_end(before);
    return yk__record(loss ? yk_tensor_retain(loss) : NULL, &op, 2, inputs, 2, inputs, NULL, 0);
}

static yk_tensor *weighted(yk_tensor *loss, yk_tensor *weight, yk_reduction reduction)
{
    return yk__reduced(weight ? yk_mul(loss, weight) : loss, reduction);
}

/* Fails where an element is not in [least, most]; a host waits for that, so it is looked at on CPUs. */
static bool range_check(const char *name, const char *role, yk_tensor *x, double least, double most)
{
    double low = least, high = most;
    if (!x->numel || yk__device_of(x).type != YK_CPU)
        return true;
    yk_tensor *ends[2] = {yk__raw_reduce(name, YK__AMIN, x, 0, false, 0),
                          yk__raw_reduce(name, YK__AMAX, x, 0, false, 0)};
    bool fine = ends[0] && ends[1] && !yk__item(name, ends[0], &low) && !yk__item(name, ends[1], &high);
    yk__release_all(2, ends);
    if (fine && (low < least || high > most)) {
        yk__fail(YK_ERR_ARGUMENT, "%s: %s has the value %g, expected all between %g and %g", name, role,
                 low < least ? low : high, least, most);
        fine = false;
    }
    return fine;
}

yk_tensor *yk_binary_cross_entropy(yk_tensor *x, yk_tensor *target, const yk_binary_cross_entropy_options *options)
{
    static const char name[] = "binary_cross_entropy";
    yk_binary_cross_entropy_options o;
    if (YK__OPTIONS_TAKE(name, yk_binary_cross_entropy_options, options, &o) ||
        !alike_check(name, x, target, o.reduction) || yk__expect_dtype(name, "target", target, (yk_dtype)x->dtype) ||
        !weight_check(name, "weight", x, o.weight) || !range_check(name, "input", x, 0, 1))
        return NULL;
    if (o.pos_weight) {
        yk__fail(YK_ERR_ARGUMENT, "%s: pos_weight is for the form with logits", name);
        return NULL;
    }
    yk_tensor *in[] = {x, target, o.weight};
    WIDE(in, weighted(bce(in[0], in[1]), in[2], o.reduction));
}

/* (1 - t) x - w log sigmoid(x), with w = 1 + (pos_weight - 1) t. */
static yk_tensor *bce_with_logits(yk_tensor *const in[4], yk_reduction reduction)
{
    yk_tensor *x = in[0], *target = in[1], *weight = in[2], *pos_weight = in[3], *yes = yk_log_sigmoid(x);
    if (pos_weight)
        yes = yk_mul(yes, yk_add_scalar(yk_mul(yk_add_scalar(pos_weight, -1), target), 1));
    return weighted(yk_sub(yk_mul(one_less(target), x), yes), weight, reduction);
}

yk_tensor *yk_binary_cross_entropy_with_logits(yk_tensor *x, yk_tensor *target,
                                               const yk_binary_cross_entropy_options *options)
{
    static const char name[] = "binary_cross_entropy_with_logits";
    yk_binary_cross_entropy_options o;
    if (YK__OPTIONS_TAKE(name, yk_binary_cross_entropy_options, options, &o) ||
        !alike_check(name, x, target, o.reduction) || !weight_check(name, "weight", x, o.weight) ||
        !weight_check(name, "pos_weight", x, o.pos_weight))
        return NULL;
    yk_tensor *in[] = {x, target, o.weight, o.pos_weight};
    WIDE(in, bce_with_logits(in, o.reduction));
}

/* ---- distances of numbers ---- */

yk_tensor *yk_l1_loss(yk_tensor *x, yk_tensor *target, yk_reduction reduction)
{
    if (!alike_check("l1_loss", x, target, reduction))
        return NULL;
    yk_tensor *in[] = {x, target};
    WIDE(in, yk__reduced(yk_abs(yk_sub(in[0], in[1])), reduction));
}

/* A kernel takes two of one dtype; those who listen hear the operations that the loss is composed of. */
static bool fits_kernel(const yk_tensor *x, const yk_tensor *target)
{
    return x && target && x->dtype == target->dtype && !yk__listening;
}

static yk_status smooth_l1_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const double beta = *(const double *)yk__context(node);
    yk_status bad = YK_OK;
    yk_tensor *x = yk__saved(node, 0, &bad), *target = yk__saved(node, 1, &bad);
    if (bad)
        return bad;
    yk_tensor *difference = yk__raw_binary("smooth_l1_loss", YK__SUB, x, target, 1);
    yk_tensor *g = difference ? yk__raw_binary("smooth_l1_loss", YK__SMOOTH_L1_GRAD, gout, difference, beta) : NULL;
    yk_tensor_release(difference);
    if (g && yk__needs_grad(node, 1))
        grads[1] = yk__raw_unary("smooth_l1_loss", YK__NEG, g, 0, 0);
    if (!g || (yk__needs_grad(node, 1) && !grads[1])) {
        yk_tensor_release(g);
        return yk__status_of(NULL);
    }
    if (yk__needs_grad(node, 0))
        grads[0] = g;
    else
        yk_tensor_release(g);
    return YK_OK;
}

/* gx = g min(max(d / beta, -1), 1), and gt the opposite. */
static void smooth_l1_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const double beta = *(const double *)yk__context(node);
    yk_tensor *difference = yk_sub(yk__saved_in_graph(node, 0), yk__saved_in_graph(node, 1));
    yk_tensor *g = yk_mul(gouts[0], yk_clamp(yk_mul_scalar(difference, 1 / beta), -1, 1));
    if (yk__needs_grad(node, 0))
        grads[0] = g;
    if (yk__needs_grad(node, 1))
        grads[1] = yk_neg(g);
}

static yk_tensor *smooth_l1(yk_tensor *x, yk_tensor *target, double beta)
{
    static const yk__op op = {.name = "smooth_l1_loss", .backward = smooth_l1_backward, .recorded = smooth_l1_recorded};
    yk_tensor *inputs[2] = {x, target};
    yk_tensor *loss = yk__raw_binary("smooth_l1_loss", YK__SMOOTH_L1, x, target, beta);
    return yk__record(loss, &op, 2, inputs, 2, inputs, &beta, sizeof(beta));
}

/* scale d^2 / 2 where |d| < bend, else slope (|d| - bend / 2), with scale = slope / bend; reduced. */
static yk_tensor *bent(yk_tensor *x, yk_tensor *target, double bend, double slope, yk_reduction reduction)
{
    double scale = slope / bend;
    if (fits_kernel(x, target) && bend >= (double)FLT_MIN && bend <= (double)FLT_MAX) {
        yk_tensor *loss = yk__reduced(smooth_l1(x, target, bend), reduction);
        return slope == 1 ? loss : yk_mul_scalar(loss, slope);
    }
    yk_tensor *difference = yk_sub(x, target), *size = yk_abs(difference);
    yk_tensor *loss =
        yk_where(yk_lt(size, yk__recorded_number(size, bend)), yk_mul_scalar(yk_square(difference), 0.5 * scale),
                 yk_mul_scalar(yk_add_scalar(size, -0.5 * bend), slope));
    return yk__reduced(loss, reduction);
}

yk_tensor *yk_smooth_l1_loss(yk_tensor *x, yk_tensor *target, double beta, yk_reduction reduction)
{
    if (yk__check_number("smooth_l1_loss", "beta", beta, 0, DBL_MAX) ||
        !alike_check("smooth_l1_loss", x, target, reduction))
        return NULL;
    if (beta == 0)
        return yk_l1_loss(x, target, reduction);
    yk_tensor *in[] = {x, target};
    WIDE(in, bent(in[0], in[1], beta, 1, reduction));
}

yk_tensor *yk_huber_loss(yk_tensor *x, yk_tensor *target, double delta, yk_reduction reduction)
{
    if (yk__check_positive("huber_loss", "delta", delta) || !alike_check("huber_loss", x, target, reduction))
        return NULL;
    yk_tensor *in[] = {x, target};
    WIDE(in, bent(in[0], in[1], delta, delta, reduction));
}

/* ---- likelihoods ---- */

static yk_tensor *nll(yk_tensor *x, yk_tensor *target, const yk_nll_loss_options *o)
{
    yk_tensor *counts = yk_ne(target, yk__recorded_number(target, (double)o->ignore_index));
    yk_tensor *label = yk_where(counts, target, yk__recorded_number(target, 0));
    yk_tensor *picked = yk_squeeze(yk_gather_dim(x, 1, yk_unsqueeze(label, 1)), 1);
    yk_tensor *weight = yk_cast(counts, (yk_dtype)x->dtype);
    if (o->weight)
        weight = yk_mul(weight, yk_take(o->weight, label));
    yk_tensor *loss = yk_neg(yk_mul(yk__recorded_where(counts, picked), weight));
    return o->reduction == YK_REDUCE_MEAN ? yk_div(yk_sum(loss), yk_sum(weight)) : yk__reduced(loss, o->reduction);
}

yk_tensor *yk_nll_loss(yk_tensor *x, yk_tensor *target, const yk_nll_loss_options *options)
{
    yk_nll_loss_options o;
    char a[200], b[200];
    if (YK__OPTIONS_TAKE("nll_loss", yk_nll_loss_options, options, &o))
        return NULL;
    yk_tensor *inputs[3] = {x, target, o.weight};
    YK__EVENT(YK__EVENT_OPERATION, "nll_loss");
    if (!yk__op_begin("nll_loss", 3, inputs, 1u << 2) || yk__expect_floating("nll_loss", "input", x) ||
        !yk__reduction_check("nll_loss", o.reduction, false))
        return NULL;
    bool fits = x->ndim >= 2 && target->ndim == x->ndim - 1 && x->shape[1] > 0;
    for (int d = 0; fits && d < target->ndim; d++)
        fits = target->shape[d] == x->shape[d ? d + 1 : 0];
    if (!fits) {
        yk__fail(YK_ERR_SHAPE, "nll_loss: input %s and target %s, expected (N, C, ...) and (N, ...) with C above 0",
                 yk_shape_format(x, a, sizeof(a)), yk_shape_format(target, b, sizeof(b)));
        return NULL;
    }
    if (target->dtype != YK_I64 && target->dtype != YK_I32) {
        yk__fail(YK_ERR_DTYPE, "nll_loss: target is %s, expected class indices as int64",
                 yk_dtype_name((yk_dtype)target->dtype));
        return NULL;
    }
    if (yk__expect_vector("nll_loss", "weight", o.weight, x->shape[1], "class") ||
        yk__expect_dtype("nll_loss", "weight", o.weight, (yk_dtype)x->dtype))
        return NULL;
    yk_tensor *in[] = {x, o.weight};
    WIDE(in, (o.weight = in[1], nll(in[0], target, &o)));
}

/* t (log t - x), 0 where t is; of logarithms e^t (t - x). */
/* With t the target: gx = -g t, gt = g (log t + 1 - x), where t is 0 -g x. */
static void kl_div_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    yk_tensor *x = yk__saved_in_graph(node, 0), *target = yk__saved_in_graph(node, 1);
    if (yk__needs_grad(node, 0))
        grads[0] = yk_neg(yk_mul(gouts[0], target));
    if (yk__needs_grad(node, 1)) {
        yk_tensor *none = yk_eq(target, yk__recorded_number(target, 0));
        yk_tensor *log = yk_log(yk_where(none, yk__recorded_number(target, 1), target));
        yk_tensor *slope = yk__recorded_where_not(none, yk_add_scalar(log, 1));
        grads[1] = yk_mul(gouts[0], yk_sub(slope, x));
    }
}

/* The divergence of each element, t log t - t x, of a target that is no logarithm. */
static yk_tensor *kl_div_at_once(yk_tensor *x, yk_tensor *target)
{
    static const yk__op op = {.name = "kl_div", .recorded = kl_div_recorded};
    yk_tensor *inputs[2] = {x, target};
    return yk__record(yk__raw_binary("kl_div", YK__KL_DIV, x, target, 1), &op, 2, inputs, 2, inputs, NULL, 0);
}

static yk_tensor *kl_div(yk_tensor *x, yk_tensor *target, const yk_kl_div_options *o)
{
    yk_tensor *loss;
    if (o->log_target) {
        loss = yk_mul(yk_exp(target), yk_sub(target, x));
    } else if (fits_kernel(x, target)) {
        loss = kl_div_at_once(x, target);
    } else {
        yk_tensor *none = yk_eq(target, yk__recorded_number(target, 0));
        yk_tensor *log = yk_log(yk_where(none, yk__recorded_number(target, 1), target));
        loss = yk_sub(yk_mul(target, log), yk_mul(target, x));
    }
    if (o->reduction != YK_REDUCE_BATCHMEAN)
        return yk__reduced(loss, o->reduction);
    return yk_div_scalar(yk_sum(loss), x->ndim ? (double)x->shape[0] : 1);
}

yk_tensor *yk_kl_div(yk_tensor *x, yk_tensor *target, const yk_kl_div_options *options)
{
    yk_kl_div_options o;
    if (YK__OPTIONS_TAKE("kl_div", yk_kl_div_options, options, &o) ||
        !yk__reduction_check("kl_div", o.reduction, true) || !alike_check("kl_div", x, target, YK_REDUCE_NONE))
        return NULL;
    yk_tensor *in[] = {x, target};
    WIDE(in, kl_div(in[0], in[1], &o));
}

/* (log v + (x - t)^2 / v) / 2, with v at least eps; the gradient of v does not know of that. */
static yk_tensor *gaussian_nll(yk_tensor *x, yk_tensor *target, yk_tensor *var, const yk_gaussian_nll_loss_options *o)
{
    yk_tensor *plain = yk_detach(var), *v = yk_add(var, yk_sub(yk_clamp(plain, o->eps, INFINITY), plain));
    yk_tensor *loss = yk_mul_scalar(yk_add(yk_log(v), yk_div(yk_square(yk_sub(x, target)), v)), 0.5);
    return yk__reduced(o->full ? yk_add_scalar(loss, 0.5 * log(2 * M_PI)) : loss, o->reduction);
}

yk_tensor *yk_gaussian_nll_loss(yk_tensor *x, yk_tensor *target, yk_tensor *var,
                                const yk_gaussian_nll_loss_options *options)
{
    static const char name[] = "gaussian_nll_loss";
    yk_gaussian_nll_loss_options o;
    yk_tensor *inputs[3] = {x, target, var};
    if (YK__OPTIONS_TAKE(name, yk_gaussian_nll_loss_options, options, &o) || yk__check_positive(name, "eps", o.eps) ||
        !yk__op_begin(name, 3, inputs, 0) || !alike_check(name, x, target, o.reduction) ||
        !weight_check(name, "var", x, var) || !range_check(name, "var", var, 0, INFINITY))
        return NULL;
    WIDE(inputs, gaussian_nll(inputs[0], inputs[1], inputs[2], &o));
}

/* ---- vectors ---- */

static bool pair_check(const char *name, yk_tensor *a, yk_tensor *b)
{
    int ndim;
    int64_t shape[YK_MAX_DIMS];
    yk_tensor *inputs[2] = {a, b};
    return yk__op_begin(name, 2, inputs, 0) && !yk__expect_floating(name, "tensor", a) &&
           !yk__expect_dtype(name, "second tensor", b, (yk_dtype)a->dtype) && !yk__broadcast(name, a, b, &ndim, shape);
}

static yk_tensor *normalized(yk_tensor *x, double p, int dim, double eps)
{
    return yk_div(x, yk_clamp(yk_norm(x, p, &dim, 1, true), eps, INFINITY));
}

yk_tensor *yk_normalize_dim(yk_tensor *x, double p, int dim, double eps)
{
    YK__EVENT(YK__EVENT_OPERATION, "normalize_dim");
    if (!yk__op_begin("normalize_dim", 1, &x, 0) || yk__expect_floating("normalize_dim", "input", x) ||
        yk__check_number("normalize_dim", "eps", eps, 0, DBL_MAX) || yk__wrap_dim("normalize_dim", x, &dim))
        return NULL;
    yk_tensor *in[] = {x};
    WIDE(in, normalized(in[0], p, dim, eps));
}

static yk_tensor *cosine(yk_tensor *a, yk_tensor *b, int dim, double eps)
{
    return yk_sum_dims(yk_mul(normalized(a, 2, dim, eps), normalized(b, 2, dim, eps)), &dim, 1, false);
}

yk_tensor *yk_cosine_similarity(yk_tensor *a, yk_tensor *b, int dim, double eps)
{
    if (!pair_check("cosine_similarity", a, b) || yk__check_number("cosine_similarity", "eps", eps, 0, DBL_MAX))
        return NULL;
    if (a->ndim != b->ndim) {
        char ta[200], tb[200];
        yk__fail(YK_ERR_SHAPE, "cosine_similarity: %s and %s have different numbers of dimensions",
                 yk_shape_format(a, ta, sizeof(ta)), yk_shape_format(b, tb, sizeof(tb)));
        return NULL;
    }
    if (yk__wrap_dim("cosine_similarity", a, &dim))
        return NULL;
    yk_tensor *in[] = {a, b};
    WIDE(in, cosine(in[0], in[1], dim, eps));
}

static yk_tensor *distance(yk_tensor *a, yk_tensor *b, double p, double eps, bool keepdim)
{
    const int last = -1;
    return yk_norm(yk_add_scalar(yk_sub(a, b), eps), p, &last, 1, keepdim);
}

yk_tensor *yk_pairwise_distance(yk_tensor *a, yk_tensor *b, double p, double eps, bool keepdim)
{
    if (!pair_check("pairwise_distance", a, b) || yk__check_number("pairwise_distance", "eps", eps, -DBL_MAX, DBL_MAX))
        return NULL;
    yk_tensor *in[] = {a, b};
    WIDE(in, distance(in[0], in[1], p, eps, keepdim));
}

/* 1 - c where the target is 1, max(0, c - margin) where it is -1, with c the cosine; else 0. */
static yk_tensor *cosine_embedding(yk_tensor *a, yk_tensor *b, yk_tensor *target, double margin, yk_reduction reduction)
{
    const double eps = 1e-12;
    const int last = -1;
    yk_tensor *product = yk_sum_dims(yk_mul(a, b), &last, 1, false);
    yk_tensor *sizes = yk_mul(yk_add_scalar(yk_sum_dims(yk_square(a), &last, 1, false), eps),
                              yk_add_scalar(yk_sum_dims(yk_square(b), &last, 1, false), eps));
    yk_tensor *c = yk_div(product, yk_sqrt(sizes));
    yk_tensor *near = yk__recorded_where(yk_eq(target, yk__recorded_number(target, 1)), one_less(c));
    yk_tensor *far = yk__recorded_where(yk_eq(target, yk__recorded_number(target, -1)),
                                        yk_clamp(yk_add_scalar(c, -margin), 0, INFINITY));
    return yk__reduced(yk_add(near, far), reduction);
}

yk_tensor *yk_cosine_embedding_loss(yk_tensor *a, yk_tensor *b, yk_tensor *target, double margin,
                                    yk_reduction reduction)
{
    static const char name[] = "cosine_embedding_loss";
    yk_tensor *inputs[3] = {a, b, target};
    char ta[200], tb[200], tt[200];
    if (!yk__op_begin(name, 3, inputs, 0) || !pair_check(name, a, b) || !yk__reduction_check(name, reduction, false) ||
        yk__check_number(name, "margin", margin, -DBL_MAX, DBL_MAX))
        return NULL;
    bool rows = a->ndim == 2 && target->ndim == 1 && target->shape[0] == a->shape[0];
    if (!yk_same_shape(a, b) || !(rows || (a->ndim == 1 && target->ndim == 0))) {
        yk__fail(YK_ERR_SHAPE,
                 "%s: tensors %s and %s and target %s, expected (N, D), (N, D) and (N), or (D), (D) and ()", name,
                 yk_shape_format(a, ta, sizeof(ta)), yk_shape_format(b, tb, sizeof(tb)),
                 yk_shape_format(target, tt, sizeof(tt)));
        return NULL;
    }
    yk_tensor *in[] = {a, b};
    WIDE(in, cosine_embedding(in[0], in[1], target, margin, reduction));
}

static yk_tensor *triplet(yk_tensor *const x[3], const yk_triplet_margin_loss_options *o)
{
    yk_tensor *near = distance(x[0], x[1], o->p, o->eps, false), *far = distance(x[0], x[2], o->p, o->eps, false);
    if (o->swap)
        far = yk_minimum(far, distance(x[1], x[2], o->p, o->eps, false));
    return yk__reduced(yk_clamp(yk_add_scalar(yk_sub(near, far), o->margin), 0, INFINITY), o->reduction);
}

yk_tensor *yk_triplet_margin_loss(yk_tensor *anchor, yk_tensor *positive, yk_tensor *negative,
                                  const yk_triplet_margin_loss_options *options)
{
    static const char name[] = "triplet_margin_loss";
    yk_triplet_margin_loss_options o;
    yk_tensor *x[3] = {anchor, positive, negative};
    if (YK__OPTIONS_TAKE(name, yk_triplet_margin_loss_options, options, &o) || !yk__op_begin(name, 3, x, 0) ||
        !pair_check(name, anchor, positive) || !pair_check(name, anchor, negative) ||
        !yk__reduction_check(name, o.reduction, false) ||
        yk__check_number(name, "margin", o.margin, -DBL_MAX, DBL_MAX) || yk__check_positive(name, "p", o.p) ||
        yk__check_number(name, "eps", o.eps, 0, DBL_MAX))
        return NULL;
    WIDE(x, triplet(x, &o));
}

static yk_tensor *margin_ranking(yk_tensor *const in[3], double margin, yk_reduction reduction)
{
    yk_tensor *behind = yk_mul(yk_neg(in[2]), yk_sub(in[0], in[1]));
    return yk__reduced(yk_clamp(yk_add_scalar(behind, margin), 0, INFINITY), reduction);
}

yk_tensor *yk_margin_ranking_loss(yk_tensor *a, yk_tensor *b, yk_tensor *target, double margin, yk_reduction reduction)
{
    static const char name[] = "margin_ranking_loss";
    yk_tensor *inputs[3] = {a, b, target};
    if (!yk__op_begin(name, 3, inputs, 0) || !pair_check(name, a, b) || !pair_check(name, a, target) ||
        !yk__reduction_check(name, reduction, false) || yk__check_number(name, "margin", margin, -DBL_MAX, DBL_MAX))
        return NULL;
    WIDE(inputs, margin_ranking(inputs, margin, reduction));
}

/* ---- margins of numbers ---- */

/* As PyTorch's: a target that is neither 1 nor -1 has both terms. */
static yk_tensor *hinge_embedding(yk_tensor *x, yk_tensor *target, double margin, yk_reduction reduction)
{
    yk_tensor *far = yk__recorded_where(yk_ne_scalar(target, 1), yk_clamp(yk_rsub_scalar(x, margin), 0, INFINITY));
    return yk__reduced(yk_add(yk__recorded_where(yk_ne_scalar(target, -1), x), far), reduction);
}

yk_tensor *yk_hinge_embedding_loss(yk_tensor *x, yk_tensor *target, double margin, yk_reduction reduction)
{
    if (yk__check_number("hinge_embedding_loss", "margin", margin, -DBL_MAX, DBL_MAX) ||
        !alike_check("hinge_embedding_loss", x, target, reduction))
        return NULL;
    yk_tensor *in[] = {x, target};
    WIDE(in, hinge_embedding(in[0], in[1], margin, reduction));
}

yk_tensor *yk_soft_margin_loss(yk_tensor *x, yk_tensor *target, yk_reduction reduction)
{
    if (!alike_check("soft_margin_loss", x, target, reduction))
        return NULL;
    yk_tensor *in[] = {x, target};
    WIDE(in, yk__reduced(yk_neg(yk_log_sigmoid(yk_mul(in[1], in[0]))), reduction));
}

/* With p_t the probability of what the target says: ce (1 - p_t)^gamma, times alpha or 1 - alpha. */
static yk_tensor *focal(yk_tensor *x, yk_tensor *target, const yk_sigmoid_focal_loss_options *o)
{
    yk_tensor *p = yk_sigmoid(x), *rest = one_less(target);
    yk_tensor *ce = yk_binary_cross_entropy_with_logits(
        x, target, YK_OPTIONS(yk_binary_cross_entropy_options, .reduction = YK_REDUCE_NONE));
    yk_tensor *missed = yk_add(yk_mul(one_less(p), target), yk_mul(p, rest)); /* 1 - p_t */
    yk_tensor *loss = yk_mul(ce, o->gamma == 2 ? yk_square(missed) : yk_pow_scalar(missed, o->gamma));
    if (o->alpha >= 0)
        loss = yk_mul(loss, yk_add(yk_mul_scalar(target, o->alpha), yk_mul_scalar(rest, 1 - o->alpha)));
    return yk__reduced(loss, o->reduction);
}

yk_tensor *yk_sigmoid_focal_loss(yk_tensor *x, yk_tensor *target, const yk_sigmoid_focal_loss_options *options)
{
    static const char name[] = "sigmoid_focal_loss";
    yk_sigmoid_focal_loss_options o;
    if (YK__OPTIONS_TAKE(name, yk_sigmoid_focal_loss_options, options, &o) ||
        yk__check_number(name, "alpha", o.alpha, -DBL_MAX, 1) || yk__check_number(name, "gamma", o.gamma, 0, DBL_MAX) ||
        !alike_check(name, x, target, o.reduction))
        return NULL;
    yk_tensor *in[] = {x, target};
    WIDE(in, focal(in[0], in[1], &o));
}
