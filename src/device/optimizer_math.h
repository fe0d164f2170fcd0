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
