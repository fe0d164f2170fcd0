/*
 * adam.c - Adam and AdamW: the same step, with the weight decay in the gradient or beside it. Layer: optim.
 */
#include <math.h>

#include "optim/optimizer.h"

static yk_status adam_configure(const yk__optim_kind *kind, const void *options, yk__optim_group *group)
{
    yk_adam_options o;
    if (YK__OPTIONS_TAKE(kind->name, yk_adam_options, (const yk_adam_options *)options, &o))
        return YK_ERR_ARGUMENT;
    yk__adam *p = &group->options.adam;
    yk__optim_take(&p->beta1, o.beta1);
    yk__optim_take(&p->beta2, o.beta2);
    yk__optim_take(&p->eps, o.eps);
    yk__optim_take(&p->weight_decay, o.weight_decay);
    p->amsgrad = o.amsgrad;
    p->maximize = o.maximize;
    group->master_weights = o.master_weights;
    return yk__optimizer_rate(kind->name, o.lr, &group->lr);
}

static yk_status adam_check(const yk__optim_kind *kind, const yk__optim_group *group)
{
    const yk__adam *p = &group->options.adam;
    yk_status status = yk__check_number(kind->name, "eps", p->eps, 0, INFINITY);
    if (!status)
        status = yk__check_below(kind->name, "beta1", p->beta1, 0, 1);
    if (!status)
        status = yk__check_below(kind->name, "beta2", p->beta2, 0, 1);
    if (!status)
        status = yk__check_number(kind->name, "weight_decay", p->weight_decay, 0, INFINITY);
    return status;
}

static unsigned adam_states(const yk__optim_group *group)
{
    return group->options.adam.amsgrad ? 7 : 3;
}

static yk_status adam_call(const yk__backend *backend, yk_device device, const yk__optim_group *group, int64_t step,
                           const yk__step_state *state, const int32_t *skip, const yk__optim_batch *batch)
{
    if (!backend->adam)
        return yk__slot_missing(device, "adam");
    yk__adam p = group->options.adam;
    p.lr = group->lr;
    p.state = state;
    p.skip = skip;
    p.step = step;
    return backend->adam(device.index, &p, batch->count, batch->params, batch->grads, batch->states[0],
                         batch->states[1], p.amsgrad ? batch->states[2] : NULL);
}

#define NUMBERS                                                                                                        \
    {                                                                                                                  \
        {"betas", offsetof(yk__optim_group, options.adam.beta1), 2, false},                                            \
            {"eps", offsetof(yk__optim_group, options.adam.eps), 1, false},                                            \
            {"weight_decay", offsetof(yk__optim_group, options.adam.weight_decay), 1, false},                          \
            {"amsgrad", offsetof(yk__optim_group, options.adam.amsgrad), 0, false},                                    \
            {"maximize", offsetof(yk__optim_group, options.adam.maximize), 0, false},                                  \
            {"decoupled_weight_decay", offsetof(yk__optim_group, options.adam.decoupled), 0, true},                    \
    }
_Static_assert(offsetof(yk__adam, beta2) == offsetof(yk__adam, beta1) + sizeof(double), "betas are two in a row");

static const yk__optim_kind adam_kind = {
    .name = "adam",
    .state_names = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
    .zeroed = true,
    .counts = true,
    .numbers = NUMBERS,
    .preset = {.lr = NAN, .options.adam = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}},
    .configure = adam_configure,
    .check = adam_check,
    .states = adam_states,
    .call = adam_call};
static const yk__optim_kind adamw_kind = {
    .name = "adamw",
    .state_names = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
    .zeroed = true,
    .counts = true,
    .numbers = NUMBERS,
    .preset = {.lr = NAN,
               .options.adam = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 1e-2, .decoupled = true}},
    .configure = adam_configure,
    .check = adam_check,
    .states = adam_states,
    .call = adam_call};

yk_optimizer *(yk_adam)(yk_parameters *params, const yk_adam_options *options)
{
    YK__LIVE(params);
    return yk__optimizer_create(&adam_kind, params, options);
}

yk_optimizer *(yk_adamw)(yk_parameters *params, const yk_adam_options *options)
{
    YK__LIVE(params);
    return yk__optimizer_create(&adamw_kind, params, options);
}

yk_status yk_adam_add_group(yk_optimizer *o, yk_parameters *params, const yk_adam_options *options)
{
    return yk__optimizer_add_group(&adam_kind, o, params, options);
}

yk_status yk_adamw_add_group(yk_optimizer *o, yk_parameters *params, const yk_adam_options *options)
{
    return yk__optimizer_add_group(&adamw_kind, o, params, options);
}
