/*
 * torch_scaler.c - a gradient scaler's state as torch.amp.GradScaler keeps it, and in state.json. Layer: checkpoint.
 */
#include "checkpoint/training/torch_state.h"
#include "checkpoint/training/training.h"
#include "optim/optimizer.h"
#include "value/value.h"

static yk_status scaler_state_fill(yk_value *dict, const yk_grad_scaler_state *s)
{
    yk_status status = yk_value_set(dict, "scale", yk_value_real(s->scale));
    if (!status)
        status = yk_value_set(dict, "growth_factor", yk_value_real(s->growth_factor));
    if (!status)
        status = yk_value_set(dict, "backoff_factor", yk_value_real(s->backoff_factor));
    if (!status)
        status = yk_value_set(dict, "growth_interval", yk_value_int(s->growth_interval));
    return status ? status : yk_value_set(dict, "_growth_tracker", yk_value_int(s->growth_tracker));
}

yk_value *yk__scaler_to_torch(const yk_grad_scaler_state *state)
{
    yk_scope scope = yk_scope_begin();
    yk_value *dict = yk_value_dict();
    dict = yk_scope_return_object(scope, dict && !scaler_state_fill(dict, state) ? dict : NULL);
    yk_scope_end(scope);
    return dict;
}

yk_status yk__scaler_from_torch(const yk_value *value, yk_grad_scaler_state *state)
{
    static const char *const names[] = {"scale", "growth_factor", "backoff_factor", "growth_interval",
                                        "_growth_tracker"};
    double numbers[5];
    for (int i = 0; i < 5; i++) {
        yk_status status = yk__torch_number(names[i], yk_value_get(value, names[i]), &numbers[i]);
        if (!status && i > 2 && !(numbers[i] >= 0 && numbers[i] < 0x1p53))
            status = yk__fail(YK_ERR_FORMAT, "%s is %g", names[i], numbers[i]);
        if (status) {
            yk__error_prefix("scaler state");
            return status;
        }
    }
    *state = (yk_grad_scaler_state){numbers[0], numbers[1], numbers[2], (int64_t)numbers[3], (int64_t)numbers[4]};
    return YK_OK;
}

yk_value *yk_value_from_grad_scaler(const yk_grad_scaler *s)
{
    YK__LIVE(s);
    if (!s) {
        yk__fail(YK_ERR_ARGUMENT, "value_from_grad_scaler: the scaler is NULL");
        return NULL;
    }
    yk_grad_scaler_state state = yk_grad_scaler_get_state(s);
    return yk_grad_scaler_enabled(s) ? yk__scaler_to_torch(&state) : yk_value_dict();
}

yk_status yk_grad_scaler_load_value(yk_grad_scaler *s, const yk_value *value)
{
    YK__OWN_RECORD;
    YK__LIVE(s);
    YK__LIVE(value);
    if (!s || !value)
        return yk__error_code()
                   ? yk__error_code()
                   : yk__fail(YK_ERR_ARGUMENT, "grad_scaler_load_value: the %s is NULL", s ? "value" : "scaler");
    if (!yk_grad_scaler_enabled(s))
        return YK_OK;
    if (yk_value_kind_of(value) == YK_VALUE_DICT && !yk_value_count(value))
        return yk__fail(YK_ERR_FORMAT, "scaler state: it is empty, as a disabled scaler saves it");
    yk_grad_scaler_state state;
    yk_status status = yk__scaler_from_torch(value, &state);
    return status ? status : yk_grad_scaler_set_state(s, &state);
}

json_t *yk__scaler_json(const yk_grad_scaler_state *s)
{
    return json_pack("{s:f, s:f, s:f, s:I, s:I}", "scale", s->scale, "growth_factor", s->growth_factor,
                     "backoff_factor", s->backoff_factor, "growth_interval", (json_int_t)s->growth_interval,
                     "growth_tracker", (json_int_t)s->growth_tracker);
}

yk_status yk__scaler_from_json(const char *dir, json_t *json, yk_grad_scaler_state *state)
{
    json_int_t interval, tracker;
    if (json_unpack(json, "{s:F, s:F, s:F, s:I, s:I}", "scale", &state->scale, "growth_factor", &state->growth_factor,
                    "backoff_factor", &state->backoff_factor, "growth_interval", &interval, "growth_tracker", &tracker))
        return yk__fail(YK_ERR_FORMAT, "%s: state.json has no scaler, or not of the right kind", dir);
    state->growth_interval = interval;
    state->growth_tracker = tracker;
    return yk__grad_scaler_check(dir, state);
}
