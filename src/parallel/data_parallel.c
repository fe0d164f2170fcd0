/*
 * data_parallel.c - DataParallel as a module: split, run on all devices, join; and the loss that stays on its devices.
 * Layer: parallel.
 */
#include <stdlib.h>
#include <string.h>

#include "parallel/data_parallel.h"

static void data_parallel_destroy(yk_module *m)
{
    yk__data_parallel *d = yk__module_data(m);
    yk__replicas_free(d->replicas);
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* Fails unless the parts that the program's own scatter gave fit. */
static yk_status check_parts(const yk__data_parallel *d, yk_tensor **parts, int n_inputs, int used)
{
    if (used < 1 || used > d->count)
        return yk__fail(YK_ERR_ARGUMENT, "data_parallel: scatter used %d of %d devices", used, d->count);
    for (int i = 0; i < used; i++) {
        for (int k = 0; k < n_inputs; k++) {
            yk_tensor *x = parts[i * n_inputs + k];
            if (yk__is_freed(x))
                return yk__fail_freed("data_parallel: scatter", x);
            if (!x || yk_device_equal(yk__device_of(x), d->devices[i]))
                continue;
            char there[16], wanted[16];
            return yk__fail(YK_ERR_DEVICE, "data_parallel: scatter gave part %d of input %d on %s, not on %s", i, k,
                            yk_device_format(yk__device_of(x), there), yk_device_format(d->devices[i], wanted));
        }
    }
    return YK_OK;
}

static yk_status split(const yk__data_parallel *d, yk_tensor *const *inputs, int n_inputs, yk_tensor **parts, int *used)
{
    if (!d->scatter)
        return yk__scatter_list("data_parallel", inputs, n_inputs, d->devices, d->count, d->dim, parts, used);
    memset(parts, 0, sizeof(*parts) * (size_t)d->count * (size_t)n_inputs);
    yk_status status = d->scatter(inputs, n_inputs, d->devices, d->count, parts, used, d->scatter_user);
    if (yk__error_code())
        return yk__error_code();
    if (status)
        return yk__fail(status, "data_parallel: scatter failed with status %d and no message", (int)status);
    return check_parts(d, parts, n_inputs, *used);
}

static int64_t size_along(const yk_tensor *x, int dim)
{
    return x && x->ndim ? yk_size(x, dim) : 0;
}

static void count_forward(yk__data_parallel *d, yk_tensor *const *parts, int n_inputs, int used, const double *seconds)
{
    double slowest = 0;
    for (int i = 0; i < used; i++)
        slowest = seconds[i] > slowest ? seconds[i] : slowest;
    d->forwards++;
    for (int i = 0; i < used; i++) {
        yk__device_clock *c = &d->clocks[i];
        int64_t samples = 0;
        for (int k = 0; k < n_inputs && !samples; k++)
            samples = size_along(parts[i * n_inputs + k], d->dim);
        c->forwards++;
        c->samples += samples;
        c->forward += seconds[i];
        c->wait += slowest - seconds[i];
    }
}

/* Nothing along dim, like `x`, on the device. */
static yk_tensor *nothing_like(const yk_tensor *x, int dim, yk_device device)
{
    int64_t shape[YK_MAX_DIMS] = {0};
    int ndim = x->ndim ? x->ndim : 1;
    if (x->ndim) {
        memcpy(shape, x->shape, sizeof(shape[0]) * (size_t)ndim);
        shape[dim < 0 ? dim + ndim : dim] = 0;
    }
    return yk_empty(ndim, shape, YK_OPTIONS(yk_tensor_options, .dtype = (yk_dtype)x->dtype, .device = device));
}

/* Output `o` of the `each` that every replica gave: made[] has references, outputs[] get what the scope owns. */
static yk_status outputs_join(const yk__data_parallel *d, yk_tensor *const *made, int each, int used, int o,
                              yk_tensor **outputs)
{
    yk_tensor *parts[YK__MOST_REPLICAS];
    for (int i = 0; i < used; i++)
        parts[i] = made[i * each + o];
    if (!d->no_gather) {
        outputs[o] = yk_device_gather(parts, used, d->dim, d->output_device);
        return outputs[o] ? YK_OK : yk__error_code();
    }
    if (parts[0]->ndim && yk__wrap_dim("data_parallel", parts[0], &(int){d->dim}))
        return yk__error_code();
    for (int i = 0; i < d->count; i++) {
        yk_tensor **to = &outputs[i * each + o];
        *to = i < used ? yk__scope_own(yk_tensor_retain(parts[i])) : nothing_like(parts[0], d->dim, d->devices[i]);
        if (!*to)
            return yk__error_code();
    }
    return YK_OK;
}

static yk_status forward_on_one(yk__data_parallel *d, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs,
                                int n_outputs)
{
    yk_tensor **here = yk__calloc((size_t)n_inputs, sizeof(*here));
    double began = yk__now(), seconds = 0;
    int used = 1;
    yk_status status = here ? yk__replicas_update(d->replicas, "data_parallel", 1) : YK_ERR_MEMORY;
    if (!status && d->scatter)
        status = split(d, inputs, n_inputs, here, &used);
    for (int k = 0; !status && !d->scatter && k < n_inputs; k++) {
        here[k] = inputs[k] ? yk__on_device(inputs[k], d->devices[0]) : NULL;
        status = inputs[k] && !here[k] ? yk__error_code() : YK_OK;
    }
    if (!status)
        status = yk_forward_list(d->inner, here, n_inputs, outputs, n_outputs);
    seconds = yk__now() - began;
    if (!status)
        count_forward(d, here, n_inputs, 1, &seconds);
    for (int o = 0; !status && !d->no_gather && o < n_outputs; o++) {
        outputs[o] = yk__on_device(outputs[o], d->output_device);
        status = outputs[o] ? YK_OK : yk__error_code();
    }
    free(here);
    return status;
}

static yk_status forward_on_all(yk__data_parallel *d, yk_tensor **parts, int n_inputs, int used, yk_tensor **outputs,
                                int each)
{
    yk_module *replicas[YK__MOST_REPLICAS];
    double seconds[YK__MOST_REPLICAS] = {0};
    yk_tensor **made = yk__calloc((size_t)(used * each), sizeof(*made));
    yk_status status = made ? yk__replicas_update(d->replicas, "data_parallel", used) : YK_ERR_MEMORY;
    for (int i = 0; !status && i < used; i++)
        replicas[i] = yk__replicas_at(d->replicas, i);
    if (!status)
        status = yk__parallel_apply(replicas, d->devices, used, parts, n_inputs, made, each, seconds);
    if (!status)
        count_forward(d, parts, n_inputs, used, seconds);
    for (int o = 0; !status && o < each; o++)
        status = outputs_join(d, made, each, used, o, outputs);
    for (int i = 0; made && i < used * each; i++)
        yk_tensor_release(made[i]);
    free(made);
    return status;
}

static yk_status data_parallel_forward(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs,
                                       int n_outputs)
{
    yk__data_parallel *d = yk__module_data(m);
    if (d->no_gather && n_outputs % d->count)
        return yk__fail(YK_ERR_ARGUMENT,
                        "data_parallel: %d outputs were asked for; without gather they are as many, or a multiple, of "
                        "the %d devices",
                        n_outputs, d->count);
    if (d->count == 1)
        return forward_on_one(d, inputs, n_inputs, outputs, n_outputs);
    yk_tensor **parts = yk__calloc((size_t)d->count * (size_t)n_inputs, sizeof(*parts));
    int used = 0;
    yk_status status = parts ? split(d, inputs, n_inputs, parts, &used) : YK_ERR_MEMORY;
    if (!status)
        status = forward_on_all(d, parts, n_inputs, used, outputs, d->no_gather ? n_outputs / d->count : n_outputs);
    free(parts);
    return status;
}

static const yk_module_class data_parallel_class = {.name = "DataParallel",
                                                    .data_size = sizeof(yk__data_parallel),
                                                    .forward_list = data_parallel_forward,
                                                    .destroy = data_parallel_destroy};

/* ---- making ------------------------------------------------------------------------------------------------------ */

static yk_status data_parallel_fill(yk__data_parallel *d, yk_module *module, const yk_data_parallel_options *o)
{
    yk_device first = {0};
    yk_device_type type = yk__module_device(module, &first) ? (yk_device_type)first.type : YK_CPU;
    d->count = o->devices ? o->count : yk_device_count(type);
    if (!o->devices && o->count)
        return yk__fail(YK_ERR_ARGUMENT, "data_parallel: %d devices in a list that is NULL", o->count);
    if (d->count < 1 || d->count > YK__MOST_REPLICAS)
        return yk__fail(YK_ERR_ARGUMENT, "data_parallel: %d devices; 1 to %d are possible", d->count,
                        YK__MOST_REPLICAS);
    for (int i = 0; i < d->count; i++)
        d->devices[i] = o->devices ? o->devices[i] : (yk_device){(int16_t)type, (int16_t)i};
    yk_status status = yk__devices_check("data_parallel", d->devices, d->count);
    d->output_device = o->output_device ? *o->output_device : d->devices[0];
    if (!status)
        status = yk__device_check(d->output_device);
    if (!status && (o->dim < -YK_MAX_DIMS || o->dim >= YK_MAX_DIMS))
        status = yk__fail(YK_ERR_ARGUMENT, "data_parallel: no tensor has a dimension %d", o->dim);
    if (status)
        return status;
    d->dim = o->dim;
    d->scatter = o->scatter;
    d->scatter_user = o->scatter_user;
    d->no_gather = !o->gather;
    d->inner = module;
    for (int i = 0; i < d->count; i++)
        d->clocks[i].backward_before = yk__backward_seconds(d->devices[i]);
    d->replicas = yk__replicas_create(module, d->devices, d->count);
    return d->replicas ? YK_OK : YK_ERR_MEMORY;
}

yk_module *yk_data_parallel(yk_module *module, const yk_data_parallel_options *options)
{
    YK__LIVE(module);
    yk_data_parallel_options o;
    if (!yk__module_usable("data_parallel", module) ||
        YK__OPTIONS_TAKE("data_parallel", yk_data_parallel_options, options, &o))
        return NULL;
    yk_module *m = yk_module_create(&data_parallel_class);
    if (!m || !yk_module_add(m, "module", module) || data_parallel_fill(yk_module_data(m), module, &o))
        return NULL;
    m->training = yk_module_is_training(module);
    return m;
}

bool yk_is_data_parallel(const yk_module *m)
{
    YK__LIVE(m);
    return m && m->cls == &data_parallel_class;
}

yk__data_parallel *yk__data_parallel_of(const char *what, yk_module *m)
{
    if (!yk__is_there(what, "module", m))
        return NULL;
    if (yk_is_data_parallel(m))
        return yk_module_data(m);
    yk__fail(YK_ERR_ARGUMENT, "%s: the module is a %s, not one of yk_data_parallel", what, m->cls->name);
    return NULL;
}

yk_module *yk_data_parallel_module(yk_module *m)
{
    YK__LIVE(m);
    return yk_is_data_parallel(m) ? ((yk__data_parallel *)m->data)->inner : NULL;
}

int yk_data_parallel_count(const yk_module *m)
{
    YK__LIVE(m);
    return yk_is_data_parallel(m) ? ((const yk__data_parallel *)m->data)->count : 0;
}

/* ---- a loss on every device -------------------------------------------------------------------------------------- */

typedef struct losses {
    yk_tensor *const *outputs;
    yk_tensor **targets;
    yk_tensor *made[YK__MOST_REPLICAS]; /* references */
    double weights[YK__MOST_REPLICAS];
    yk_criterion_fn criterion;
    void *user;
} losses;

static yk_status one_loss(int i, void *user)
{
    losses *l = user;
    yk_tensor *loss = l->criterion(l->outputs[i], l->targets[i], l->user);
    if (!loss)
        return yk__error_code() ? yk__error_code()
                                : yk__fail(YK_ERR_CALLBACK, "the criterion gave NULL without an error");
    if (loss->ndim) {
        char shape[200];
        return yk__fail(YK_ERR_SHAPE, "the criterion gave shape %s, not a loss without dimensions",
                        yk_shape_format(loss, shape, sizeof(shape)));
    }
    if (l->weights[i] != 1)
        loss = yk_mul_scalar(loss, l->weights[i]);
    l->made[i] = yk_tensor_retain(loss);
    return loss ? YK_OK : yk__error_code();
}

/* The number of outputs with something in them: the first ones. */
static int outputs_used(const yk__data_parallel *d, yk_tensor *const *outputs)
{
    int used = 0;
    while (used < d->count && (outputs[used]->ndim == 0 || yk_size(outputs[used], d->dim) > 0))
        used++;
    return used ? used : 1;
}

static yk_status check_outputs(const yk__data_parallel *d, yk_tensor *const *outputs, int count)
{
    if (!outputs || count != d->count)
        return yk__fail(YK_ERR_ARGUMENT, "data_parallel_criterion: %d outputs%s for %d devices", count,
                        outputs ? "" : " in a list that is NULL", d->count);
    for (int i = 0; i < count; i++) {
        if (!yk__is_there("data_parallel_criterion", "output", outputs[i]))
            return yk__error_code();
        char there[16], wanted[16];
        if (!yk_device_equal(yk__device_of(outputs[i]), d->devices[i]))
            return yk__fail(YK_ERR_DEVICE, "data_parallel_criterion: output %d is on %s, not on %s", i,
                            yk_device_format(yk__device_of(outputs[i]), there),
                            yk_device_format(d->devices[i], wanted));
    }
    return YK_OK;
}

static yk_tensor *join_losses(const yk__data_parallel *d, losses *l, yk_tensor *target, int used,
                              yk_reduction reduction)
{
    double all = (double)size_along(target, d->dim);
    double seconds[YK__MOST_REPLICAS] = {0};
    for (int i = 0; i < used; i++)
        l->weights[i] = reduction == YK_REDUCE_MEAN ? (double)size_along(l->targets[i], d->dim) / all : 1;
    yk__parallel_work work = {.member = "replica", .fn = one_loss, .user = l};
    yk_status status = yk__parallel_run(d->devices, used, &work, seconds);
    yk__data_parallel *clocks = (yk__data_parallel *)(uintptr_t)d;
    double slowest = 0;
    for (int i = 0; i < used; i++)
        slowest = seconds[i] > slowest ? seconds[i] : slowest;
    for (int i = 0; i < used; i++) {
        clocks->clocks[i].forward += seconds[i];
        clocks->clocks[i].wait += slowest - seconds[i];
    }
    yk_tensor *sum = status ? NULL : yk__on_device(l->made[0], d->output_device);
    for (int i = 1; sum && i < used; i++) {
        yk_tensor *part = yk__on_device(l->made[i], d->output_device);
        sum = part ? yk_add(sum, part) : NULL;
    }
    for (int i = 0; i < used; i++)
        yk_tensor_release(l->made[i]);
    return sum;
}

yk_tensor *yk_data_parallel_criterion(yk_module *m, yk_tensor *const *outputs, int count, yk_tensor *target,
                                      yk_criterion_fn criterion, void *user, yk_reduction reduction)
{
    YK__LIVE(m);
    YK__LIVE(target);
    for (int i = 0; outputs && i < count; i++) {
        if (yk__is_freed(outputs[i])) {
            yk__fail_freed("data_parallel_criterion", outputs[i]);
            return NULL;
        }
    }
    yk__data_parallel *d = yk__data_parallel_of("data_parallel_criterion", m);
    if (!d || !yk__is_there("data_parallel_criterion", "target", target) || check_outputs(d, outputs, count))
        return NULL;
    if (!criterion || (reduction != YK_REDUCE_MEAN && reduction != YK_REDUCE_SUM)) {
        yk__fail(YK_ERR_ARGUMENT, "data_parallel_criterion: %s",
                 criterion ? "the reduction is neither a mean nor a sum" : "the criterion is NULL");
        return NULL;
    }
    if (!yk__scope_check("data_parallel_criterion"))
        return NULL;
    YK__OWN_RECORD;
    yk_scope scope = yk_scope_begin();
    yk_tensor *targets[YK__MOST_REPLICAS], *loss = NULL;
    losses l = {.outputs = outputs, .targets = targets, .criterion = criterion, .user = user};
    int used = outputs_used(d, outputs), parts = 0;
    if (!yk__scatter_list("data_parallel_criterion", &target, 1, d->devices, d->count, d->dim, targets, &parts)) {
        char shape[200];
        if (parts == used)
            loss = yk_scope_return(scope, join_losses(d, &l, target, used, reduction));
        else
            yk__fail(YK_ERR_SHAPE,
                     "data_parallel_criterion: %d devices have an output, but a target of shape %s splits "
                     "into %d parts",
                     used, yk_shape_format(target, shape, sizeof(shape)), parts);
    }
    yk_scope_end(scope);
    return loss;
}
