/*
 * adam.c - Adam and AdamW: the same step, with the weight decay in the gradient or beside it. Layer: optim.
 */
#include <math.h>

#include "optim/optimizer.h"

static yk_status configure_as(const char *name, bool decoupled, const void *options, yk__optim_group *group)
{
    yk_adam_options o;
    if (YK__OPTIONS_TAKE(name, yk_adam_options, (const yk_adam_options *)options, &o))
        return YK_ERR_ARGUMENT;
    yk__adam p = {.beta1 = o.beta1,
                  .beta2 = o.beta2,
                  .eps = o.eps,
                  .weight_decay = yk__number_or(o.weight_decay, decoupled ? 1e-2 : 0),
                  .decoupled = decoupled,
                  .amsgrad = o.amsgrad,
                  .maximize = o.maximize};
    group->options.adam = p;
    group->master_weights = o.master_weights;
    yk_status status = yk__optimizer_rate(name, o.lr, &group->lr);
    if (!status)
        status = yk__check_number(name, "eps", p.eps, 0, INFINITY);
    if (!status)
        status = yk__check_below(name, "beta1", p.beta1, 0, 1);
    if (!status)
        status = yk__check_below(name, "beta2", p.beta2, 0, 1);
    if (!status)
        status = yk__check_number(name, "weight_decay", p.weight_decay, 0, INFINITY);
    return status;
}

static yk_status configure_adam(const yk__optim_kind *kind, const void *options, yk__optim_group *group)
{
    return configure_as(kind->name, false, options, group);
}

static yk_status configure_adamw(const yk__optim_kind *kind, const void *options, yk__optim_group *group)
{
    return configure_as(kind->name, true, options, group);
}

static int states(const yk__optim_group *group)
{
    return group->options.adam.amsgrad ? 3 : 2;
}

static yk_status call(const yk__backend *backend, yk_device device, const yk__optim_group *group, int64_t step,
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

static const yk__optim_kind adam_kind = {.name = "adam",
                                         .state_names = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
                                         .zeroed = true,
                                         .counts = true,
                                         .numbers = NUMBERS,
                                         .configure = configure_adam,
                                         .states = states,
                                         .call = call};
static const yk__optim_kind adamw_kind = {.name = "adamw",
                                          .state_names = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
                                          .zeroed = true,
                                          .counts = true,
                                          .numbers = NUMBERS,
                                          .configure = configure_adamw,
                                          .states = states,
                                          .call = call};

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
