/*
 * muon.c - Muon: momentum whose direction is made orthogonal, for matrices. Layer: optim.
 *
 * The update is a polynomial in the matrix X, scaled to a norm of 1: with each step X becomes a X + (b A + c A A) X,
 * where A is X X^T, which brings all singular values near 1. It is computed in bf16, as PyTorch does it, with sums in
 * f32: on CPUs as products of f32 that are rounded, on GPUs by their units for bf16. A tall matrix is transposed for
 * that, so that A is the smaller one of the two.
 */
#include <math.h>

#include "nn/state_dict.h"
#include "optim/optimizer.h"

static yk_status muon_configure(const yk__optim_kind *kind, const void *options, yk__optim_group *group)
{
    yk_muon_options o;
    if (YK__OPTIONS_TAKE(kind->name, yk_muon_options, (const yk_muon_options *)options, &o))
        return YK_ERR_ARGUMENT;
    yk__muon *p = &group->options.muon;
    yk__optim_take(&p->weight_decay, o.weight_decay);
    yk__optim_take(&p->momentum, o.momentum);
    yk__optim_take(&p->eps, o.eps);
    yk__optim_take(&p->ns_coefficients[0], o.ns_a);
    yk__optim_take(&p->ns_coefficients[1], o.ns_b);
    yk__optim_take(&p->ns_coefficients[2], o.ns_c);
    yk__optim_take(&p->ns_steps, (double)o.ns_steps);
    p->adjust = (int)o.adjust_lr_fn;
    p->nesterov = o.nesterov;
    group->master_weights = o.master_weights;
    return yk__optimizer_rate(kind->name, o.lr, &group->lr);
}

static yk_status muon_check(const yk__optim_kind *kind, const yk__optim_group *group)
{
    const yk__muon *p = &group->options.muon;
    static const char *const names[] = {"ns_a", "ns_b", "ns_c"};
    yk_status status = yk__check_number(kind->name, "weight_decay", p->weight_decay, 0, INFINITY);
    if (!status)
        status = yk__check_number(kind->name, "momentum", p->momentum, 0, INFINITY);
    if (!status)
        status = yk__check_number(kind->name, "eps", p->eps, 0, INFINITY);
    for (int i = 0; i < 3 && !status; i++)
        status = yk__check_number(kind->name, names[i], p->ns_coefficients[i], -INFINITY, INFINITY);
    if (!status)
        status = yk__check_number(kind->name, "ns_steps", p->ns_steps, 0, 99);
    if (!status && p->ns_steps != floor(p->ns_steps))
        status = yk__fail(YK_ERR_ARGUMENT, "muon: ns_steps is %g, expected a whole number", p->ns_steps);
    if (!status && p->adjust != YK_MUON_ORIGINAL && p->adjust != YK_MUON_MATCH_RMS_ADAMW &&
        p->adjust != YK_MUON_SPECTRAL_UNCLAMPED)
        status = yk__fail(YK_ERR_ARGUMENT,
                          "muon: adjust_lr_fn is %g, expected YK_MUON_ORIGINAL, YK_MUON_MATCH_RMS_ADAMW or "
                          "YK_MUON_SPECTRAL_UNCLAMPED",
                          p->adjust);
    return status;
}

static yk_status accept(const yk__optim_kind *kind, const char *name, const yk_tensor *x)
{
    char shape[200];
    return x->ndim == 2 ? YK_OK
                        : yk__fail(YK_ERR_SHAPE,
                                   "%s: parameter %s has shape %s, and only matrices, of two dimensions, are made "
                                   "orthogonal: give it to another optimizer, yk_adamw say",
                                   kind->name, name, yk_shape_format(x, shape, sizeof(shape)));
}

static unsigned muon_states(const yk__optim_group *group)
{
    (void)group;
    return 1;
}

/* `x` rounded to bf16, in the dtype in which products are taken. */
static yk_tensor *rounded(yk_tensor *x, yk_dtype product)
{
    return yk_cast(yk_cast(x, YK_BF16), product);
}

/* beta x + alpha (a b), summed in f32 and rounded. */
static yk_tensor *product_added(yk_tensor *x, yk_tensor *a, yk_tensor *b, double beta, double alpha, yk_dtype product)
{
    yk_tensor *sum = yk_mul_scalar(yk_cast(yk_matmul(a, b), YK_F32), alpha);
    return rounded(yk_add_scaled(sum, yk_cast(x, YK_F32), beta), product);
}

/* The update (M,N) with singular values near 1, in bf16. */
static yk_tensor *orthogonal(const yk__muon *p, yk_tensor *update)
{
    yk_dtype product = yk__device_of(update).type == YK_CPU ? YK_F32 : YK_BF16;
    bool tall = update->shape[0] > update->shape[1];
    yk_tensor *x = yk_cast(update, YK_BF16);
    x = tall ? yk_contiguous(yk_transpose(x, 0, 1)) : x;
    yk_tensor *norm = x ? yk_cast(yk_norm(yk_cast(x, YK_F32), 2, NULL, 0, false), YK_BF16) : NULL;
    yk_tensor *least = norm ? yk_full(0, NULL, p->eps,
                                      YK_OPTIONS(yk_tensor_options, .dtype = YK_BF16, .device = yk__device_of(update)))
                            : NULL;
    x = rounded(yk_div(x, yk_maximum(norm, least)), product);
    for (int i = 0; i < (int)p->ns_steps && x; i++) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *gram = rounded(yk_matmul(x, yk_transpose(x, 0, 1)), product);
        yk_tensor *change = product_added(gram, gram, gram, p->ns_coefficients[1], p->ns_coefficients[2], product);
        x = yk_scope_return(scope, product_added(x, change, x, p->ns_coefficients[0], 1, product));
        yk_scope_end(scope);
    }
    return tall && x ? yk_transpose(x, 0, 1) : x;
}

/* The learning rate of a matrix of M rows and N columns. */
static double adjusted(double lr, const yk__muon *p, const yk_tensor *x)
{
    double rows = (double)x->shape[0], columns = (double)x->shape[1];
    if (p->adjust == YK_MUON_MATCH_RMS_ADAMW)
        return lr * 0.2 * sqrt(fmax(rows, columns));
    return lr * sqrt(p->adjust == YK_MUON_ORIGINAL ? fmax(1, rows / columns) : rows / columns);
}

static yk_status compose(const yk__optim_group *group, const yk__optim_state *state, yk_tensor *x, yk_tensor *grad)
{
    const yk__muon *p = &group->options.muon;
    yk_tensor *buffer = state->tensors[0];
    if (x->numel == 0)
        return YK_OK;
    if (!yk_copy_(buffer, yk_lerp_scalar(buffer, grad, 1 - p->momentum)))
        return yk__error_code();
    yk_tensor *update = orthogonal(p, p->nesterov ? yk_lerp_scalar(grad, buffer, p->momentum) : buffer);
    if (!update || !yk_mul_scalar_(x, 1 - group->lr * p->weight_decay) ||
        !yk_add_(x, yk_cast(update, (yk_dtype)x->dtype), -adjusted(group->lr, p, x)))
        return yk__error_code();
    return YK_OK;
}

#define NUMBER(name, member, count)                                                                                    \
    {                                                                                                                  \
        name, offsetof(yk__optim_group, options.muon.member), count, false                                             \
    }
static const yk__optim_kind muon_kind = {
    .name = "muon",
    .state_names = {"momentum_buffer"},
    .zeroed = true,
    .numbers = {NUMBER("ns_coefficients", ns_coefficients, 3), NUMBER("momentum", momentum, 1),
                NUMBER("weight_decay", weight_decay, 1), NUMBER("eps", eps, 1), NUMBER("ns_steps", ns_steps, 1),
                NUMBER("adjust_lr_fn", adjust, 1), NUMBER("nesterov", nesterov, 0)},
    .preset = {.lr = 1e-3,
               .options.muon = {.momentum = 0.95,
                                .weight_decay = 0.1,
                                .eps = 1e-7,
                                .ns_steps = 5,
                                .ns_coefficients = {3.4445, -4.7750, 2.0315},
                                .nesterov = true}},
    .configure = muon_configure,
    .check = muon_check,
    .accept = accept,
    .states = muon_states,
    .compose = compose};

yk_optimizer *(yk_muon)(yk_parameters *params, const yk_muon_options *options)
{
    YK__LIVE(params);
    return yk__optimizer_create(&muon_kind, params, options);
}

yk_status yk_muon_add_group(yk_optimizer *o, yk_parameters *params, const yk_muon_options *options)
{
    return yk__optimizer_add_group(&muon_kind, o, params, options);
}
