/*
 * grad_scaler.c - a factor on the loss that keeps small gradients above what a narrow type rounds to zero, found by
 * trying. Layer: optim.
 *
 * The factor is a float32, as PyTorch's, so that both go through the same values. One pass over the gradients finds
 * whether all are finite: the sum of their squares is. Where it is not, it may only have overflowed; then each element
 * is looked at.
 */
#include <math.h>
#include <stdlib.h>

#include "optim/optimizer.h"

/* Where an optimizer is since the last update. */
typedef enum stage { READY, UNSCALED, STEPPED } stage;

typedef struct entry {
    yk_optimizer *optimizer;
    stage stage;
    bool checked, found; /* whether there were gradients, and one of them was not finite */
} entry;

struct yk_grad_scaler {
    yk__object object;
    yk_grad_scaler_state state;
    bool disabled;
    entry *entries;
    int count;
};

static void forget(yk_grad_scaler *s)
{
    for (int i = 0; i < s->count; i++)
        yk_object_release(s->entries[i].optimizer);
    s->count = 0;
}

static void scaler_destroy(void *object)
{
    yk_grad_scaler *s = object;
    forget(s);
    free(s->entries);
    yk__object_free(s);
}

static const yk__type scaler_type = {"grad_scaler", scaler_destroy};

yk_status yk__grad_scaler_check(const char *what, const yk_grad_scaler_state *state)
{
    if (!((float)state->scale > 0) || !isfinite((float)state->scale))
        return yk__fail(YK_ERR_ARGUMENT, "%s: the scale is %g, expected a positive float32", what, state->scale);
    if (!(state->growth_factor > 1) || !isfinite(state->growth_factor))
        return yk__fail(YK_ERR_ARGUMENT, "%s: growth_factor is %g, expected more than 1", what, state->growth_factor);
    if (!(state->backoff_factor > 0 && state->backoff_factor < 1))
        return yk__fail(YK_ERR_ARGUMENT, "%s: backoff_factor is %g, expected a number between 0 and 1", what,
                        state->backoff_factor);
    if (state->growth_interval < 1 || state->growth_tracker < 0)
        return yk__fail(YK_ERR_ARGUMENT, "%s: growth_interval is %lld and growth_tracker %lld", what,
                        (long long)state->growth_interval, (long long)state->growth_tracker);
    return YK_OK;
}

yk_grad_scaler *yk_grad_scaler_create(const yk_grad_scaler_options *options)
{
    yk_grad_scaler_options o = options ? *options : (yk_grad_scaler_options){0};
    yk_grad_scaler_state state = {.scale = yk__number_or(o.init_scale, 65536),
                                  .growth_factor = yk__number_or(o.growth_factor, 2),
                                  .backoff_factor = yk__number_or(o.backoff_factor, 0.5),
                                  .growth_interval = o.growth_interval ? o.growth_interval : 2000};
    if (!((float)state.scale > 0) || !isfinite((float)state.scale)) {
        yk__fail(YK_ERR_ARGUMENT, "grad_scaler_create: init_scale is %g, expected a positive float32", state.scale);
        return NULL;
    }
    if (yk__grad_scaler_check("grad_scaler_create", &state) || !yk__scope_check("grad_scaler_create"))
        return NULL;
    yk_grad_scaler *s = yk__object_new(&scaler_type, sizeof(*s));
    if (!s)
        return NULL;
    state.scale = (float)state.scale;
    s->state = state;
    s->disabled = o.disabled;
    return yk__scope_own(s);
}

yk_tensor *yk_grad_scaler_scale(const yk_grad_scaler *s, yk_tensor *loss)
{
    YK__LIVE(s);
    YK__LIVE(loss);
    if (!s) {
        yk__fail(YK_ERR_ARGUMENT, "grad_scaler_scale: the scaler is NULL");
        return NULL;
    }
    if (!yk__is_there("grad_scaler_scale", "loss", loss) || s->disabled)
        return loss;
    if (yk__is_half(yk_tensor_dtype(loss))) /* 65536 is beyond float16 */
        loss = yk_cast(loss, YK_F32);
    return yk_mul_scalar(loss, s->state.scale);
}

static yk_status entry_of(const char *what, yk_grad_scaler *s, yk_optimizer *o, entry **found)
{
    if (!s || !o)
        return yk__error_code() ? yk__error_code()
                                : yk__fail(YK_ERR_ARGUMENT, "%s: the %s is NULL", what, s ? "optimizer" : "scaler");
    for (int i = 0; i < s->count; i++) {
        if (s->entries[i].optimizer == o) {
            *found = &s->entries[i];
            return YK_OK;
        }
    }
    entry *grown = yk__realloc(s->entries, (size_t)(s->count + 1) * sizeof(*grown));
    if (!grown)
        return YK_ERR_MEMORY;
    s->entries = grown;
    *found = &grown[s->count++];
    **found = (entry){.optimizer = yk_object_retain(o)};
    return YK_OK;
}

/* Whether an element is not finite. */
static yk_status look_at(const yk_tensor *x, bool *found)
{
    yk_tensor *wide = yk__raw_cast((yk_tensor *)x, YK_F64);
    size_t count = (size_t)yk_numel(x);
    double *values = wide ? yk__calloc(count + 1, sizeof(*values)) : NULL;
    yk_status status = values ? yk_tensor_read(wide, values, count * sizeof(*values)) : yk__error_code();
    for (size_t i = 0; i < count && !status && !*found; i++)
        *found = !isfinite(values[i]);
    free(values);
    yk_tensor_release(wide);
    return status;
}

static yk_status check_group(const yk_parameters *params, entry *e)
{
    double norm;
    yk_status status = yk__norm_of_grads(params, &norm);
    for (int64_t i = 0; i < yk_parameters_count(params) && !status; i++) {
        const yk_tensor *grad = yk_grad(yk_parameters_at(params, i));
        e->checked |= grad != NULL;
        if (grad && !isfinite(norm) && !e->found)
            status = look_at(grad, &e->found);
    }
    return status;
}

static yk_status unscale(const yk_grad_scaler *s, entry *e)
{
    const yk_optimizer *o = e->optimizer;
    double inverse = (float)(1 / s->state.scale);
    yk_status status = YK_OK;
    for (int g = 0; g < o->n_groups && !status; g++) {
        status = check_group(o->groups[g].params, e);
        if (!status)
            status = yk__change_grads(o->groups[g].params, YK__MUL_SCALAR, inverse, 0);
    }
    if (!status)
        e->stage = UNSCALED;
    return status;
}

yk_status yk_grad_scaler_unscale(yk_grad_scaler *s, yk_optimizer *o)
{
    YK__LIVE(s);
    YK__LIVE(o);
    if (s && s->disabled)
        return YK_OK;
    entry *e;
    yk_status status = entry_of("grad_scaler_unscale", s, o, &e);
    if (status)
        return status;
    if (e->stage != READY)
        return yk__fail(YK_ERR_STATE, "grad_scaler_unscale: this optimizer's %s since the last update",
                        e->stage == STEPPED ? "step was taken" : "gradients were unscaled");
    return unscale(s, e);
}

yk_status yk_grad_scaler_step(yk_grad_scaler *s, yk_optimizer *o, bool *skipped)
{
    YK__LIVE(s);
    YK__LIVE(o);
    if (skipped)
        *skipped = false;
    if (s && s->disabled)
        return yk_optimizer_step(o);
    entry *e;
    yk_status status = entry_of("grad_scaler_step", s, o, &e);
    if (!status && e->stage == STEPPED)
        status = yk__fail(YK_ERR_STATE, "grad_scaler_step: this optimizer's step was taken since the last update");
    if (!status && e->stage == READY)
        status = unscale(s, e);
    if (!status && !e->checked)
        status = yk__fail(YK_ERR_STATE, "grad_scaler_step: no parameter of the optimizer has a gradient");
    if (!status && !e->found)
        status = yk_optimizer_step(o);
    if (status)
        return status;
    if (skipped)
        *skipped = e->found;
    e->stage = STEPPED;
    return YK_OK;
}

yk_status yk_grad_scaler_update(yk_grad_scaler *s)
{
    YK__LIVE(s);
    if (!s)
        return yk__fail(YK_ERR_ARGUMENT, "grad_scaler_update: the scaler is NULL");
    if (s->disabled)
        return YK_OK;
    bool checked = false, found = false;
    for (int i = 0; i < s->count; i++) {
        checked |= s->entries[i].checked;
        found |= s->entries[i].found;
    }
    if (!checked)
        return yk__fail(YK_ERR_STATE, "grad_scaler_update: no gradients were looked at since the last update");
    yk_grad_scaler_state *state = &s->state;
    if (found) {
        state->scale = (float)((float)state->scale * state->backoff_factor);
        state->growth_tracker = 0;
    } else if (++state->growth_tracker == state->growth_interval) {
        float grown = (float)((float)state->scale * state->growth_factor);
        if (isfinite(grown))
            state->scale = grown;
        state->growth_tracker = 0;
    }
    forget(s);
    return YK_OK;
}

yk_grad_scaler_state yk_grad_scaler_get_state(const yk_grad_scaler *s)
{
    YK__LIVE(s);
    return s ? s->state : (yk_grad_scaler_state){0};
}

yk_status yk_grad_scaler_set_state(yk_grad_scaler *s, const yk_grad_scaler_state *state)
{
    YK__LIVE(s);
    if (!s || !state)
        return yk__fail(YK_ERR_ARGUMENT, "grad_scaler_set_state: the %s is NULL", s ? "state" : "scaler");
    yk_status status = yk__grad_scaler_check("grad_scaler_set_state", state);
    if (status)
        return status;
    s->state = *state;
    s->state.scale = (float)state->scale;
    return YK_OK;
}

bool yk_grad_scaler_enabled(const yk_grad_scaler *s)
{
    YK__LIVE(s);
    return s && !s->disabled;
}

yk_grad_scaler *yk_grad_scaler_retain(yk_grad_scaler *s)
{
    return yk_object_retain(s);
}

void yk_grad_scaler_release(yk_grad_scaler *s)
{
    yk_object_release(s);
}
