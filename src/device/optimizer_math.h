/*
 * optimizer_math.h - the numbers of one optimizer step, for kernels of every device. Layer: device. C and C++.
 *
 * Taken from the arguments and, where there is one, the state in the device's memory: the same function for both, so
 * that both give the same bits.
 */
#ifndef YOKE_DEVICE_OPTIMIZER_MATH_H
#define YOKE_DEVICE_OPTIMIZER_MATH_H

#include "device/kernel_args.h"
#include "device/scalar_math.h"

/* Plain numbers of an update, ready for both dtypes. */
typedef struct yk__update {
    double lr, weight_decay, momentum, keep /* 1 - dampening */, beta1, beta2, eps;
    double step_size, root_scale; /* Adam: lr / (1 - beta1^t) and 1 / sqrt(1 - beta2^t) */
    double shrink;                /* AdamW: 1 - lr * weight_decay */
    bool nesterov, maximize, first, decoupled;
} yk__update;

YK__SCALAR yk__update yk__update_of_sgd(const yk__sgd *p, double lr, bool first)
{
    yk__update u;
    u.lr = lr, u.weight_decay = p->weight_decay, u.momentum = p->momentum, u.keep = 1.0 - p->dampening;
    u.beta1 = u.beta2 = u.eps = u.step_size = u.root_scale = 0, u.shrink = 1;
    u.nesterov = p->nesterov, u.maximize = p->maximize, u.first = first, u.decoupled = false;
    return u;
}

YK__SCALAR yk__update yk__update_of_adam(const yk__adam *p, double lr, int64_t step)
{
    yk__update u;
    u.lr = lr, u.weight_decay = p->weight_decay, u.momentum = 0, u.keep = 1;
    u.beta1 = p->beta1, u.beta2 = p->beta2, u.eps = p->eps;
    u.step_size = lr / (1.0 - yk__power_of_step(p->beta1, step));
    u.root_scale = 1.0 / sqrt(1.0 - yk__power_of_step(p->beta2, step));
    u.shrink = yk__fma_f64(-lr, p->weight_decay, 1.0);
    u.nesterov = false, u.maximize = p->maximize, u.first = false, u.decoupled = p->decoupled;
    return u;
}

/* ---- the other rules --------------------------------------------------------------------------------------------- */

/* Plain numbers of a step by a rule, ready for both dtypes; optimizer_rules.h says what they are there. */
typedef struct yk__factors {
    yk__rule rule;
    double decay, shrink;      /* the decay in the gradient, and the factor of the parameter beside it */
    double keep, toward, rest; /* of averages: rho or beta2; 1 - beta1 or 1 - rho; 1 - rho or 1 - beta2 */
    double eps, momentum;      /* RMSprop's momentum */
    double step_size, of_grad; /* the factor of the step; NAdam: of the mean's part and of the gradient's */
    double root_scale;         /* NAdam: 1 / sqrt(1 - beta2^t) */
    bool maximize, rectified;  /* rectified: RAdam divides by the root of the second moment */
} yk__factors;

/* The product of NAdam's momenta beta1 (1 - fade^i / 2) for i from 1 to `step`. Below 2^-70 it is nothing beside 1, and
 * the rest is left out, so the number of factors is bounded by beta1, not by `step`. */
YK__SCALAR double yk__nadam_product(const yk__descent *p, int64_t step)
{
    double product = 1, fade = 1;
    for (int64_t i = 0; i < step && product > 0x1p-70; i++) {
        fade *= p->fade;
        product *= p->beta1 * (1.0 - 0.5 * fade);
    }
    return product;
}

YK__SCALAR yk__factors yk__factors_of(const yk__descent *p, double lr, int64_t step)
{
    yk__factors f;
    bool moments = p->rule >= YK__ADAMAX;
    double bias1 = 1.0 - yk__power_of_step(p->beta1, moments ? step : 0);
    double bias2 = 1.0 - yk__power_of_step(p->beta2, moments ? step : 0);
    f.rule = p->rule, f.maximize = p->maximize, f.rectified = false;
    f.decay = p->decoupled ? 0 : p->weight_decay;
    f.shrink = p->decoupled ? yk__fma_f64(-lr, p->weight_decay, 1.0) : 1.0;
    f.keep = moments ? p->beta2 : p->rho, f.rest = 1.0 - f.keep, f.toward = 1.0 - (moments ? p->beta1 : p->rho);
    f.eps = p->eps, f.momentum = p->momentum, f.step_size = lr, f.of_grad = 0, f.root_scale = 1;
    if (p->rule == YK__ADAGRAD)
        f.step_size = lr / (1.0 + (double)(step - 1) * p->lr_decay);
    if (p->rule == YK__ADAMAX)
        f.step_size = lr / bias1;
    if (p->rule == YK__NADAM) {
        double fade = yk__power_of_step(p->fade, step), product = yk__nadam_product(p, step);
        double now = p->beta1 * (1.0 - 0.5 * fade), next = p->beta1 * (1.0 - 0.5 * (fade * p->fade));
        f.of_grad = lr * (1.0 - now) / (1.0 - product);
        f.step_size = lr * next / (1.0 - product * next);
        f.root_scale = 1.0 / sqrt(bias2);
    }
    if (p->rule == YK__RADAM) {
        double most = 2.0 / (1.0 - p->beta2) - 1.0;
        double length = most - 2.0 * (double)step * (1.0 - bias2) / bias2; /* of the moving average, in steps */
        f.rectified = length > 5.0;
        f.step_size = lr / bias1;
        if (f.rectified)
            f.step_size *=
                sqrt((length - 4.0) * (length - 2.0) * most / ((most - 4.0) * (most - 2.0) * length)) * sqrt(bias2);
    }
    return f;
}

/* True if the elements of tensor t are in one run of memory, in the same order in each of the operands: views[k] is an
 * array of one view per tensor, or NULL, and views[0] the parameters. A parameter does not overlap itself, so its
 * elements fill their span exactly when they are dense. For the host. */
static inline bool yk__update_is_linear(const yk__view *const *views, int operands, int64_t t, int64_t *numel)
{
    const yk__view *p = &views[0][t];
    int64_t span = 1;
    *numel = 1;
    for (int d = 0; d < p->ndim; d++) {
        *numel *= p->shape[d];
        if (p->shape[d] == 1)
            continue;
        span += (p->shape[d] - 1) * p->stride[d];
        for (int k = 1; k < operands; k++)
            if (views[k] && views[k][t].stride[d] != p->stride[d])
                return false;
        if (p->stride[d] < 0)
            return false;
    }
    return *numel == 0 || span == *numel;
}

/* The next scale of the loss, as torch._amp_update_scale_ finds it. */
YK__SCALAR void yk__scale_next(const yk__scaling *p, yk__scale_state *s)
{
    if (s->found) {
        s->scale = (float)((double)s->scale * p->backoff_factor);
        s->growth_tracker = 0;
    } else if (++s->growth_tracker == p->growth_interval) {
        float grown = (float)((double)s->scale * p->growth_factor);
        if (grown <= FLT_MAX)
            s->scale = grown;
        s->growth_tracker = 0;
    }
    s->inverse = (float)(1 / (double)s->scale);
    s->found = 0;
}

#endif
