/*
 * descent.c - RMSprop, Adagrad, Adadelta, Adamax, NAdam and RAdam: the optimizers whose steps are one slot, `descend`,
 * by a rule of device/optimizer_rules.h. Layer: optim.
 */
#include <math.h>

#include "optim/optimizer.h"
#include "optim/row_steps.h"

/* ---- what they share --------------------------------------------------------------------------------------------- */

static unsigned descent_states(const yk__optim_group *group)
{
    const yk__descent *p = &group->options.descent;
    switch (p->rule) {
    case YK__RMSPROP: return 1 | (p->momentum != 0 ? 2 : 0) | (p->centered ? 4 : 0);
    case YK__ADAGRAD: return 1;
    default: return 3;
    }
}

static yk_status descent_call(const yk__backend *backend, yk_device device, const yk__optim_group *group, int64_t step,
                              const yk__step_state *state, const int32_t *skip, const yk__optim_batch *batch)
{
    if (!backend->descend)
        return yk__slot_missing(device, "descend");
    yk__descent p = group->options.descent;
    unsigned used = descent_states(group);
    p.lr = group->lr;
    p.fade = pow(0.96, p.momentum_decay);
    p.state = state;
    p.skip = skip;
    p.step = step;
    return backend->descend(device.index, &p, batch->count, batch->params, batch->grads, batch->states[0],
                            used & 2 ? batch->states[1] : NULL, used & 4 ? batch->states[2] : NULL);
}

/* Those that a rule does not have are 0. */
static yk_status descent_check(const yk__optim_kind *kind, const yk__optim_group *group)
{
    const yk__descent *p = &group->options.descent;
    const struct {
        const char *name;
        double value, high;
    } numbers[] = {{"eps", p->eps, INFINITY},
                   {"weight_decay", p->weight_decay, INFINITY},
                   {"alpha", p->rule == YK__RMSPROP ? p->rho : 0, INFINITY},
                   {"rho", p->rule == YK__RMSPROP ? 0 : p->rho, 1},
                   {"momentum", p->momentum, INFINITY},
                   {"lr_decay", p->lr_decay, INFINITY},
                   {"initial_accumulator_value", p->initial, INFINITY},
                   {"momentum_decay", p->momentum_decay, INFINITY}};
    yk_status status = YK_OK;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers) && !status; i++)
        status = yk__check_number(kind->name, numbers[i].name, numbers[i].value, 0, numbers[i].high);
    if (!status)
        status = yk__check_below(kind->name, "beta1", p->beta1, 0, 1);
    if (!status)
        status = yk__check_below(kind->name, "beta2", p->beta2, 0, 1);
    return status;
}

/* The options that all of them have. */
#define TAKE_COMMON(p, group, o)                                                                                       \
    do {                                                                                                               \
        yk__optim_take(&(p)->eps, (o).eps);                                                                            \
        yk__optim_take(&(p)->weight_decay, (o).weight_decay);                                                          \
        (p)->maximize = (o).maximize;                                                                                  \
        (group)->master_weights = (o).master_weights;                                                                  \
    } while (0)

/* Places of numbers in a state dict. */
#define NUMBER(name, member, count)                                                                                    \
    {                                                                                                                  \
        name, offsetof(yk__optim_group, options.descent.member), count, false                                          \
    }
#define REAL(name, member) NUMBER(name, member, 1)
#define FLAG(name, member) NUMBER(name, member, 0)
#define BETAS              NUMBER("betas", beta1, 2)
_Static_assert(offsetof(yk__descent, beta2) == offsetof(yk__descent, beta1) + sizeof(double), "betas are two in a row");

/* The constructor of a kind, and that of further groups. */
#define CONSTRUCTORS(kind)                                                                                             \
    yk_optimizer *(yk_##kind)(yk_parameters * params, const yk_##kind##_options *options)                              \
    {                                                                                                                  \
        YK__LIVE(params);                                                                                              \
        return yk__optimizer_create(&kind##_kind, params, options);                                                    \
    }                                                                                                                  \
    yk_status yk_##kind##_add_group(yk_optimizer *o, yk_parameters *params, const yk_##kind##_options *options)        \
    {                                                                                                                  \
        return yk__optimizer_add_group(&kind##_kind, o, params, options);                                              \
    }

/* ---- RMSprop ----------------------------------------------------------------------------------------------------- */

static yk_status configure_rmsprop(const yk__optim_kind *kind, const void *options, yk__optim_group *group)
{
    yk_rmsprop_options o;
    yk__descent *p = &group->options.descent;
    if (YK__OPTIONS_TAKE(kind->name, yk_rmsprop_options, (const yk_rmsprop_options *)options, &o))
        return YK_ERR_ARGUMENT;
    TAKE_COMMON(p, group, o);
    yk__optim_take(&p->rho, o.alpha);
    yk__optim_take(&p->momentum, o.momentum);
    p->centered = o.centered;
    return yk__optimizer_rate(kind->name, o.lr, &group->lr);
}

static const yk__optim_kind rmsprop_kind = {
    .name = "rmsprop",
    .state_names = {"square_avg", "momentum_buffer", "grad_avg"},
    .zeroed = true,
    .numbers = {REAL("alpha", rho), REAL("momentum", momentum), REAL("eps", eps), REAL("weight_decay", weight_decay),
                FLAG("centered", centered), FLAG("maximize", maximize)},
    .preset = {.lr = 1e-2, .options.descent = {.rule = YK__RMSPROP, .rho = 0.99, .eps = 1e-8}},
    .configure = configure_rmsprop,
    .check = descent_check,
    .states = descent_states,
    .call = descent_call};
CONSTRUCTORS(rmsprop)

/* ---- Adagrad ----------------------------------------------------------------------------------------------------- */

static yk_status configure_adagrad(const yk__optim_kind *kind, const void *options, yk__optim_group *group)
{
    yk_adagrad_options o;
    yk__descent *p = &group->options.descent;
    if (YK__OPTIONS_TAKE(kind->name, yk_adagrad_options, (const yk_adagrad_options *)options, &o))
        return YK_ERR_ARGUMENT;
    TAKE_COMMON(p, group, o);
    yk__optim_take(&p->lr_decay, o.lr_decay);
    yk__optim_take(&p->initial, o.initial_accumulator_value);
    return yk__optimizer_rate(kind->name, o.lr, &group->lr);
}

static double initial_sum(const yk__optim_group *group)
{
    return group->options.descent.initial;
}

static const yk__optim_kind adagrad_kind = {
    .name = "adagrad",
    .state_names = {"sum"},
    .zeroed = true,
    .counts = true,
    .numbers = {REAL("lr_decay", lr_decay), REAL("initial_accumulator_value", initial), REAL("eps", eps),
                REAL("weight_decay", weight_decay), FLAG("maximize", maximize)},
    .preset = {.lr = 1e-2, .options.descent = {.rule = YK__ADAGRAD, .eps = 1e-10}},
    .configure = configure_adagrad,
    .check = descent_check,
    .states = descent_states,
    .initial = initial_sum,
    .call = descent_call,
    .rows = yk__adagrad_rows};
CONSTRUCTORS(adagrad)

/* ---- Adadelta ---------------------------------------------------------------------------------------------------- */

static yk_status configure_adadelta(const yk__optim_kind *kind, const void *options, yk__optim_group *group)
{
    yk_adadelta_options o;
    yk__descent *p = &group->options.descent;
    if (YK__OPTIONS_TAKE(kind->name, yk_adadelta_options, (const yk_adadelta_options *)options, &o))
        return YK_ERR_ARGUMENT;
    TAKE_COMMON(p, group, o);
    yk__optim_take(&p->rho, o.rho);
    return yk__optimizer_rate(kind->name, o.lr, &group->lr);
}

static const yk__optim_kind adadelta_kind = {
    .name = "adadelta",
    .state_names = {"square_avg", "acc_delta"},
    .zeroed = true,
    .numbers = {REAL("rho", rho), REAL("eps", eps), REAL("weight_decay", weight_decay), FLAG("maximize", maximize)},
    .preset = {.lr = 1, .options.descent = {.rule = YK__ADADELTA, .rho = 0.9, .eps = 1e-6}},
    .configure = configure_adadelta,
    .check = descent_check,
    .states = descent_states,
    .call = descent_call};
CONSTRUCTORS(adadelta)

/* ---- Adamax, NAdam, RAdam ---------------------------------------------------------------------------------------- */

static yk_status configure_adamax(const yk__optim_kind *kind, const void *options, yk__optim_group *group)
{
    yk_adamax_options o;
    yk__descent *p = &group->options.descent;
    if (YK__OPTIONS_TAKE(kind->name, yk_adamax_options, (const yk_adamax_options *)options, &o))
        return YK_ERR_ARGUMENT;
    TAKE_COMMON(p, group, o);
    yk__optim_take(&p->beta1, o.beta1);
    yk__optim_take(&p->beta2, o.beta2);
    return yk__optimizer_rate(kind->name, o.lr, &group->lr);
}

static yk_status configure_nadam(const yk__optim_kind *kind, const void *options, yk__optim_group *group)
{
    yk_nadam_options o;
    yk__descent *p = &group->options.descent;
    if (YK__OPTIONS_TAKE(kind->name, yk_nadam_options, (const yk_nadam_options *)options, &o))
        return YK_ERR_ARGUMENT;
    TAKE_COMMON(p, group, o);
    yk__optim_take(&p->beta1, o.beta1);
    yk__optim_take(&p->beta2, o.beta2);
    yk__optim_take(&p->momentum_decay, o.momentum_decay);
    p->decoupled = o.decoupled_weight_decay;
    return yk__optimizer_rate(kind->name, o.lr, &group->lr);
}

static yk_status configure_radam(const yk__optim_kind *kind, const void *options, yk__optim_group *group)
{
    yk_radam_options o;
    yk__descent *p = &group->options.descent;
    if (YK__OPTIONS_TAKE(kind->name, yk_radam_options, (const yk_radam_options *)options, &o))
        return YK_ERR_ARGUMENT;
    TAKE_COMMON(p, group, o);
    yk__optim_take(&p->beta1, o.beta1);
    yk__optim_take(&p->beta2, o.beta2);
    p->decoupled = o.decoupled_weight_decay;
    return yk__optimizer_rate(kind->name, o.lr, &group->lr);
}

static const yk__optim_kind adamax_kind = {
    .name = "adamax",
    .state_names = {"exp_avg", "exp_inf"},
    .zeroed = true,
    .counts = true,
    .numbers = {BETAS, REAL("eps", eps), REAL("weight_decay", weight_decay), FLAG("maximize", maximize)},
    .preset = {.lr = 2e-3, .options.descent = {.rule = YK__ADAMAX, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}},
    .configure = configure_adamax,
    .check = descent_check,
    .states = descent_states,
    .call = descent_call};
static const yk__optim_kind nadam_kind = {
    .name = "nadam",
    .state_names = {"exp_avg", "exp_avg_sq"},
    .zeroed = true,
    .counts = true,
    .numbers = {REAL("momentum_decay", momentum_decay), BETAS, REAL("eps", eps), REAL("weight_decay", weight_decay),
                FLAG("decoupled_weight_decay", decoupled), FLAG("maximize", maximize)},
    .preset =
        {.lr = 2e-3,
         .options.descent = {.rule = YK__NADAM, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .momentum_decay = 4e-3}},
    .configure = configure_nadam,
    .check = descent_check,
    .states = descent_states,
    .call = descent_call};
static const yk__optim_kind radam_kind = {
    .name = "radam",
    .state_names = {"exp_avg", "exp_avg_sq"},
    .zeroed = true,
    .counts = true,
    .numbers = {BETAS, REAL("eps", eps), REAL("weight_decay", weight_decay), FLAG("decoupled_weight_decay", decoupled),
                FLAG("maximize", maximize)},
    .preset = {.lr = 1e-3, .options.descent = {.rule = YK__RADAM, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}},
    .configure = configure_radam,
    .check = descent_check,
    .states = descent_states,
    .call = descent_call};
CONSTRUCTORS(adamax)
CONSTRUCTORS(nadam)
CONSTRUCTORS(radam)
