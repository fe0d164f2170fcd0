/*
 * row_steps.c - steps by gradients of rows: SGD, Adagrad, and SparseAdam, which takes no other gradients. Layer: optim.
 *
 * A step reads and writes the rows that the gradient names, of the parameter and of its state, and no others. Weight
 * decay and momentum would change all of them: they are refused.
 */
#include <math.h>

#include "optim/optimizer.h"
#include "optim/row_steps.h"

/* x (V, D): rows [indices] += alpha rows. In a scope. */
static yk_status rows_change(yk_tensor *x, yk_tensor *indices, yk_tensor *rows, double alpha)
{
    return yk_index_add_(x, 0, indices, rows, alpha) ? YK_OK : yk__error_code();
}

yk_status yk__sgd_rows(yk_optimizer *o, yk__optim_group *group, int64_t i, yk_tensor *indices, yk_tensor *rows)
{
    const yk__sgd *p = &group->options.sgd;
    yk_tensor *x = yk__parameters_at(group->params, i);
    (void)o;
    if (p->momentum != 0 || p->weight_decay != 0)
        return yk__fail(YK_ERR_UNSUPPORTED,
                        "sgd: the gradient of parameter %s is by rows, and %s %g would change all "
                        "rows; leave it out, or make the embedding without .sparse",
                        yk__parameters_name(group->params, i), p->momentum != 0 ? "a momentum of" : "a weight decay of",
                        p->momentum != 0 ? p->momentum : p->weight_decay);
    return rows_change(x, indices, rows, p->maximize ? group->lr : -group->lr);
}

yk_status yk__adagrad_rows(yk_optimizer *o, yk__optim_group *group, int64_t i, yk_tensor *indices, yk_tensor *rows)
{
    const yk__descent *p = &group->options.descent;
    yk__optim_state *state = &group->states[i];
    yk_tensor *x = yk__parameters_at(group->params, i);
    if (p->weight_decay != 0)
        return yk__fail(YK_ERR_UNSUPPORTED,
                        "adagrad: the gradient of parameter %s is by rows, and a weight decay of %g would change all "
                        "rows; leave it out, or make the embedding without .sparse",
                        yk__parameters_name(group->params, i), p->weight_decay);
    if (yk__optimizer_settle_state(o, group, i, 0))
        return yk__error_code();
    double rate = group->lr / (1 + (double)state->step * p->lr_decay);
    yk_tensor *sum = state->tensors[0];
    if (rows_change(sum, indices, yk_square(rows), 1))
        return yk__error_code();
    yk_tensor *root = yk_add_scalar(yk_sqrt(yk_index_select(sum, 0, indices)), p->eps);
    yk_tensor *quotient = yk_div(rows, root);
    return quotient ? rows_change(x, indices, quotient, p->maximize ? rate : -rate) : yk__error_code();
}

static yk_status sparse_adam_configure(const yk__optim_kind *kind, const void *options, yk__optim_group *group)
{
    yk_sparse_adam_options o;
    if (YK__OPTIONS_TAKE(kind->name, yk_sparse_adam_options, (const yk_sparse_adam_options *)options, &o))
        return YK_ERR_ARGUMENT;
    yk__adam *p = &group->options.adam;
    yk__optim_take(&p->beta1, o.beta1);
    yk__optim_take(&p->beta2, o.beta2);
    yk__optim_take(&p->eps, o.eps);
    p->maximize = o.maximize;
    return yk__optimizer_rate(kind->name, o.lr, &group->lr);
}

static yk_status sparse_adam_check(const yk__optim_kind *kind, const yk__optim_group *group)
{
    const yk__adam *p = &group->options.adam;
    yk_status status = yk__check_positive(kind->name, "eps", p->eps);
    if (!status)
        status = yk__check_below(kind->name, "beta1", p->beta1, 0, 1);
    return status ? status : yk__check_below(kind->name, "beta2", p->beta2, 0, 1);
}

static unsigned sparse_adam_states(const yk__optim_group *group)
{
    (void)group;
    return 3;
}

/* A gradient of all elements. */
static yk_status sparse_adam_call(const yk__backend *backend, yk_device device, const yk__optim_group *group,
                                  int64_t step, const yk__step_state *state, const int32_t *skip,
                                  const yk__optim_batch *batch)
{
    (void)backend;
    (void)device;
    (void)step;
    (void)state;
    (void)skip;
    return yk__fail(YK_ERR_UNSUPPORTED,
                    "sparse_adam: the gradient of parameter %s is of all elements; it takes those by "
                    "rows, of embeddings that were made with .sparse, and adam takes this one",
                    yk__parameters_name(group->params, batch->indices[0]));
}

/* state = the state's rows, moved towards `target` by `share`; gives the rows as they are then. In a scope. */
static yk_tensor *state_move(yk_tensor *state, yk_tensor *indices, yk_tensor *target, double share)
{
    yk_tensor *before = yk_index_select(state, 0, indices);
    yk_tensor *change = yk_mul_scalar(yk_sub(target, before), share);
    return change && !rows_change(state, indices, change, 1) ? yk_add(change, before) : NULL;
}

static yk_status sparse_adam_rows(yk_optimizer *o, yk__optim_group *group, int64_t i, yk_tensor *indices,
                                  yk_tensor *rows)
{
    const yk__adam *p = &group->options.adam;
    yk__optim_state *state = &group->states[i];
    yk_tensor *x = yk__parameters_at(group->params, i);
    for (int s = 0; s < 2; s++) {
        yk_status status = yk__optimizer_settle_state(o, group, i, s);
        if (status)
            return status;
    }
    double step = (double)(state->step + 1);
    double correction = sqrt(1 - pow(p->beta2, step)) / (1 - pow(p->beta1, step));
    yk_tensor *g = p->maximize ? yk_neg(rows) : rows;
    yk_tensor *mean = state_move(state->tensors[0], indices, g, 1 - p->beta1);
    yk_tensor *square = mean ? state_move(state->tensors[1], indices, yk_square(g), 1 - p->beta2) : NULL;
    yk_tensor *quotient = yk_div(mean, yk_add_scalar(yk_sqrt(square), p->eps));
    return quotient ? rows_change(x, indices, quotient, -group->lr * correction) : yk__error_code();
}

static const yk__optim_kind sparse_adam_kind = {
    .name = "sparse_adam",
    .state_names = {"exp_avg", "exp_avg_sq"},
    .zeroed = true,
    .counts = true,
    .numbers = {{"betas", offsetof(yk__optim_group, options.adam.beta1), 2, false},
                {"eps", offsetof(yk__optim_group, options.adam.eps), 1, false},
                {"maximize", offsetof(yk__optim_group, options.adam.maximize), 0, false}},
    .preset = {.lr = NAN, .options.adam = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}},
    .configure = sparse_adam_configure,
    .check = sparse_adam_check,
    .states = sparse_adam_states,
    .call = sparse_adam_call,
    .rows = sparse_adam_rows};

yk_optimizer *(yk_sparse_adam)(yk_parameters *params, const yk_sparse_adam_options *options)
{
    YK__LIVE(params);
    return yk__optimizer_create(&sparse_adam_kind, params, options);
}

yk_status yk_sparse_adam_add_group(yk_optimizer *o, yk_parameters *params, const yk_sparse_adam_options *options)
{
    return yk__optimizer_add_group(&sparse_adam_kind, o, params, options);
}

/* One parameter's step. */
static yk_status parameter_step(yk_optimizer *o, yk__optim_group *group, int64_t i)
{
    yk_tensor *x = yk__parameters_at(group->params, i);
    const char *name = yk__parameters_name(group->params, i);
    if (!o->kind->rows)
        return yk__fail(YK_ERR_UNSUPPORTED,
                        "%s: the gradient of parameter %s is by rows; sgd, adagrad and sparse_adam take those",
                        o->kind->name, name);
    if (yk__optim_has_master(group, x))
        return yk__fail(YK_ERR_UNSUPPORTED,
                        "%s: the gradient of parameter %s is by rows, and a master weight takes one "
                        "of all elements",
                        o->kind->name, name);
    const yk__row_part *part = yk__rows_sorted(x);
    if (!part)
        return yk__error_code();
    bool recording = yk_no_grad_begin();
    yk_scope scope = yk_scope_begin();
    yk_status status = o->kind->rows(o, group, i, part->index, part->rows);
    yk_scope_end(scope);
    yk_no_grad_end(recording);
    group->states[i].step += !status;
    return status;
}

yk_status yk__optimizer_step_rows(yk_optimizer *o, yk__optim_group *group, bool skips)
{
    yk_status status = YK_OK;
    for (int64_t i = 0; i < group->count && !status; i++) {
        yk_tensor *x = yk__parameters_at(group->params, i);
        if (!yk__has_rows(x))
            continue;
        if (skips || yk__graph_records(yk__device_of(x)))
            return yk__fail(YK_ERR_UNSUPPORTED,
                            "%s: the gradient of parameter %s is by rows, whose number the device "
                            "cannot know before: such a step is neither left out by a device nor recorded",
                            o->kind->name, yk__parameters_name(group->params, i));
        status = parameter_step(o, group, i);
    }
    return status;
}
