/*
 * averaged_model.c - a copy of a model whose parameters are averages of what the model's were. Layer: optim.
 *
 * Parameters of the two are matched by their order, as in PyTorch, so the model may be one that yk_ddp has wrapped.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <yoke/autograd.h>
#include <yoke/ops.h>

#include "nn/module.h"
#include "optim/optimizer.h"
#include "tensor/tensor.h"

typedef struct averaged {
    yk_module *module;
    yk_tensor *n_averaged;
    double decay; /* NaN: all have the same weight */
    bool use_buffers;
} averaged;

static yk_status averaged_forward(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs,
                                  int n_outputs)
{
    const averaged *d = yk_module_data(m);
    return yk_forward_list(d->module, inputs, n_inputs, outputs, n_outputs);
}

static const yk_module_class averaged_class = {
    .name = "AveragedModel", .data_size = sizeof(averaged), .forward_list = averaged_forward};

yk_module *yk_averaged_model(yk_module *model, const yk_averaged_model_options *options)
{
    static const char what[] = "averaged_model";
    yk_averaged_model_options o;
    YK__LIVE(model);
    if (YK__OPTIONS_TAKE(what, yk_averaged_model_options, options, &o) || !yk__module_usable(what, model))
        return NULL;
    bool ema = o.decay != YK_NOT_GIVEN;
    if (ema && yk__check_number(what, "decay", o.decay, 0, 1))
        return NULL;
    yk_module *m = yk_module_create(&averaged_class);
    if (!m)
        return NULL;
    averaged *d = yk_module_data(m);
    d->decay = ema ? o.decay : NAN;
    d->use_buffers = o.use_buffers;
    yk_tensor *count = yk__module_tensor(what, 0, NULL, YK_I64);
    if (count && yk__raw_fill(count, 0)) {
        yk_tensor_release(count);
        count = NULL;
    }
    d->n_averaged = yk__module_take_buffer(m, "n_averaged", count);
    d->module = yk_module_add(m, "module", yk_module_copy(model));
    return yk_module_check(m);
}

/* ---- updates ----------------------------------------------------------------------------------------------------- */

/* The buffers of a tree, each once, borrowed. */
typedef struct buffers {
    yk_tensor **items;
    int64_t count;
} buffers;

static yk_status collect_buffers(yk_module *m, buffers *list)
{
    for (int64_t i = 0; i < m->buffers.count; i++) {
        yk_tensor *x = m->buffers.items[i].object;
        bool listed = false;
        for (int64_t k = 0; k < list->count; k++)
            listed |= list->items[k] == x;
        if (listed)
            continue;
        yk_tensor **items = yk__realloc(list->items, (size_t)(list->count + 1) * sizeof(yk_tensor *));
        if (!items)
            return YK_ERR_MEMORY;
        list->items = items;
        items[list->count++] = x;
    }
    yk_status status = YK_OK;
    for (int64_t i = 0; i < m->children.count && !status; i++)
        status = collect_buffers(m->children.items[i].object, list);
    return status;
}

static yk_status check_pair(const char *kind, const char *name, const yk_tensor *to, const yk_tensor *from)
{
    char a[200], b[200];
    if (yk_same_shape(to, from))
        return YK_OK;
    return yk__fail(YK_ERR_SHAPE, "averaged_model_update: %s %s of the model has shape %s, expected %s", kind, name,
                    yk_shape_format(from, a, sizeof(a)), yk_shape_format(to, b, sizeof(b)));
}

static yk_status fail_count(const char *kind, int64_t count, int64_t expected)
{
    return yk__fail(YK_ERR_SHAPE, "averaged_model_update: the model has %lld %s, expected %lld", (long long)count, kind,
                    (long long)expected);
}

/* The new average of one tensor, owned by the scope. What PyTorch computes of integers, which count batches, is a
 * float32, and cut. */
static yk_tensor *average(const averaged *d, yk_tensor *to, yk_tensor *from, int64_t count)
{
    if (!yk_dtype_is_floating((yk_dtype)to->dtype)) {
        yk_tensor *a = yk_cast(to, YK_F32), *b = yk_cast(from, YK_F32);
        a = isnan(d->decay) ? yk_add(a, yk_div_scalar(yk_cast(yk_sub(from, to), YK_F32), (double)(count + 1)))
                            : yk_add(yk_mul_scalar(a, d->decay), yk_mul_scalar(b, 1 - d->decay));
        return yk_cast(a, (yk_dtype)to->dtype);
    }
    return isnan(d->decay) ? yk_add(to, yk_div_scalar(yk_sub(from, to), (double)(count + 1)))
                           : yk_lerp_scalar(to, from, 1 - d->decay);
}

static yk_status update_tensor(const averaged *d, yk_tensor *to, yk_tensor *from, int64_t count, bool copies)
{
    yk_scope scope = yk_scope_begin();
    yk_tensor *now = from;
    if (!copies) {
        now = yk_cast(yk_to(yk_detach(from), yk__device_of(to)), (yk_dtype)to->dtype);
        now = now ? average(d, yk_detach(to), now, count) : NULL;
    }
    yk_status status = now ? yk__raw_copy(to, now) : yk__error_code();
    if (!status)
        yk__bump_version(to);
    yk_scope_end(scope);
    return status;
}

/* The lists of what is averaged and of what it is made from. */
typedef struct sides {
    yk_parameters *to, *from;
    buffers to_buffers, from_buffers;
} sides;

static yk_status collect_sides(sides *s, yk_module *to, yk_module *from)
{
    s->to = yk_module_parameters(to);
    s->from = s->to ? yk_module_parameters(from) : NULL;
    if (!s->from)
        return yk__error_code();
    int64_t count = yk__parameters_count(s->to);
    yk_status status =
        yk__parameters_count(s->from) == count ? YK_OK : fail_count("parameters", yk__parameters_count(s->from), count);
    for (int64_t i = 0; i < count && !status; i++)
        status = check_pair("parameter", yk__parameters_name(s->from, i), yk__parameters_at(s->to, i),
                            yk__parameters_at(s->from, i));
    if (!status)
        status = collect_buffers(to, &s->to_buffers);
    if (!status)
        status = collect_buffers(from, &s->from_buffers);
    if (!status && s->to_buffers.count != s->from_buffers.count)
        status = fail_count("buffers", s->from_buffers.count, s->to_buffers.count);
    for (int64_t i = 0; i < s->to_buffers.count && !status; i++) {
        char number[32];
        snprintf(number, sizeof(number), "%lld", (long long)i);
        status = check_pair("buffer", number, s->to_buffers.items[i], s->from_buffers.items[i]);
    }
    return status;
}

static yk_status update(const averaged *d, yk_module *model)
{
    sides s = {0};
    int64_t count = 0;
    yk_status status = collect_sides(&s, d->module, model);
    if (!status)
        status = yk_tensor_read(d->n_averaged, &count, sizeof(count));
    for (int64_t i = 0; i < yk__parameters_count(s.to) && !status; i++)
        status = update_tensor(d, yk__parameters_at(s.to, i), yk__parameters_at(s.from, i), count, count == 0);
    for (int64_t i = 0; i < s.to_buffers.count && !status; i++)
        status = update_tensor(d, s.to_buffers.items[i], s.from_buffers.items[i], count, count == 0 || !d->use_buffers);
    if (!status)
        status = yk__raw_fill(d->n_averaged, (double)(count + 1));
    if (!status)
        yk__bump_version(d->n_averaged);
    free(s.to_buffers.items);
    free(s.from_buffers.items);
    return status;
}

yk_status yk_averaged_model_update(yk_module *m, yk_module *model)
{
    static const char what[] = "averaged_model_update";
    YK__LIVE(m);
    YK__LIVE(model);
    YK__OWN_RECORD;
    if (!yk__module_usable(what, m) || !yk__module_usable(what, model))
        return yk__error_code();
    if (m->cls != &averaged_class)
        return yk__fail(YK_ERR_ARGUMENT, "%s: the first module is a %s, expected one of yk_averaged_model", what,
                        m->shown_name);
    bool before = yk_no_grad_begin();
    yk_scope scope = yk_scope_begin();
    yk_status status = update(yk_module_data(m), model);
    yk_scope_end(scope);
    yk_no_grad_end(before);
    return status;
}
