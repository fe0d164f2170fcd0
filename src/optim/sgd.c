/*
 * sgd.c - stochastic gradient descent with momentum. Layer: optim.
 */
#include <float.h>
#include <math.h>

#include "optim/row_steps.h"

static yk_status sgd_configure(const yk__optim_kind *kind, const void *options, yk__optim_group *group)
{
    yk_sgd_options o;
    if (YK__OPTIONS_TAKE(kind->name, yk_sgd_options, (const yk_sgd_options *)options, &o))
        return YK_ERR_ARGUMENT;
    yk__sgd *p = &group->options.sgd;
    yk__optim_take(&p->momentum, o.momentum);
    yk__optim_take(&p->dampening, o.dampening);
    yk__optim_take(&p->weight_decay, o.weight_decay);
    p->nesterov = o.nesterov;
    p->maximize = o.maximize;
    group->master_weights = o.master_weights;
    return yk__optimizer_rate(kind->name, o.lr, &group->lr);
}

static yk_status sgd_check(const yk__optim_kind *kind, const yk__optim_group *group)
{
    const yk__sgd *p = &group->options.sgd;
    yk_status status = yk__check_number(kind->name, "momentum", p->momentum, 0, INFINITY);
    if (!status)
        status = yk__check_number(kind->name, "dampening", p->dampening, -DBL_MAX, DBL_MAX);
    if (!status)
        status = yk__check_number(kind->name, "weight_decay", p->weight_decay, 0, INFINITY);
    if (!status && p->nesterov && (p->momentum <= 0 || p->dampening != 0))
        status = yk__fail(YK_ERR_ARGUMENT, "sgd: nesterov needs a momentum and no dampening; they are %g and %g",
                          p->momentum, p->dampening);
    return status;
}

static unsigned sgd_states(const yk__optim_group *group)
{
    return group->options.sgd.momentum != 0;
}

static yk_status sgd_call(const yk__backend *backend, yk_device device, const yk__optim_group *group, int64_t step,
                          const yk__step_state *state, const int32_t *skip, const yk__optim_batch *batch)
{
    if (!backend->sgd)
        return yk__slot_missing(device, "sgd");
    yk__sgd p = group->options.sgd;
    p.lr = group->lr;
    p.state = state;
    p.skip = skip;
    p.first = step == 1;
    return backend->sgd(device.index, &p, batch->count, batch->params, batch->grads,
                        p.momentum != 0 ? batch->states[0] : NULL);
}

static const yk__optim_kind sgd_kind = {
    .name = "sgd",
    .state_names = {"momentum_buffer"},
    .numbers = {{"momentum", offsetof(yk__optim_group, options.sgd.momentum), 1, false},
                {"dampening", offsetof(yk__optim_group, options.sgd.dampening), 1, false},
                {"weight_decay", offsetof(yk__optim_group, options.sgd.weight_decay), 1, false},
                {"nesterov", offsetof(yk__optim_group, options.sgd.nesterov), 0, false},
                {"maximize", offsetof(yk__optim_group, options.sgd.maximize), 0, false}},
    .preset = {.lr = NAN},
    .configure = sgd_configure,
    .check = sgd_check,
    .states = sgd_states,
    .call = sgd_call,
    .rows = yk__sgd_rows};

yk_optimizer *(yk_sgd)(yk_parameters *params, const yk_sgd_options *options)
{
    YK__LIVE(params);
    return yk__optimizer_create(&sgd_kind, params, options);
}

yk_status yk_sgd_add_group(yk_optimizer *o, yk_parameters *params, const yk_sgd_options *options)
{
    return yk__optimizer_add_group(&sgd_kind, o, params, options);
}
