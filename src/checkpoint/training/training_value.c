/*
 * training_value.c - a training checkpoint as one nested value, and back. Layer: checkpoint.
 *
 * PyTorch's parts stand under the names that its programs use; what only yoke has (its random generator, the loader's
 * position, settings, the exact schedule) is in "yoke", as it stands in state.json. By the way back the former win,
 * since a PyTorch program may have trained on; "yoke" gives what they do not hold.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/formats/value_json.h"
#include "checkpoint/training/torch_state.h"
#include "checkpoint/training/training.h"
#include "checkpoint/training/training_value.h"
#include "nn/state_dict.h"

/* ---- JSON and values --------------------------------------------------------------------------------------------- */

static yk_value *from_json(const json_t *json)
{
    yk_value *value;
    yk_status status = YK_OK;
    const char *key;
    json_t *item;
    size_t i;
    switch (json_typeof(json)) {
    case JSON_TRUE:
    case JSON_FALSE: return yk_value_bool(json_is_true(json));
    case JSON_INTEGER: return yk_value_int(json_integer_value(json));
    case JSON_REAL: return yk_value_real(json_real_value(json));
    case JSON_STRING: return yk_value_string(json_string_value(json));
    case JSON_NULL: return yk_value_none();
    case JSON_ARRAY:
        value = yk_value_list();
        json_array_foreach((json_t *)json, i, item) status = status ? status : yk_value_append(value, from_json(item));
        return status ? NULL : value;
    case JSON_OBJECT: break;
    }
    value = yk_value_dict();
    json_object_foreach((json_t *)json, key, item) status = status ? status : yk_value_set(value, key, from_json(item));
    return status ? NULL : value;
}

/* NULL for what JSON has no form for: tensors, bytes, keys that are numbers, NaN. */
static json_t *to_json(const yk_value *value)
{
    switch (yk_value_kind_of(value)) {
    case YK_VALUE_NONE: return json_null();
    case YK_VALUE_BOOL: return json_boolean(value->as.boolean);
    case YK_VALUE_INT: return json_integer(value->as.integer);
    case YK_VALUE_REAL: return json_real(value->as.real);
    case YK_VALUE_STRING: return json_stringn(value->as.bytes.data, value->as.bytes.size);
    case YK_VALUE_LIST:
    case YK_VALUE_TUPLE:
    case YK_VALUE_DICT: break;
    default: return NULL;
    }
    bool dict = value->kind == YK_VALUE_DICT;
    json_t *json = dict ? json_object() : json_array();
    for (int64_t i = 0; json && i < yk_value_count(value); i++) {
        const char *key = dict ? yk_value_key(value, i, NULL) : "";
        json_t *item = key ? to_json(yk_value_at(value, i)) : NULL;
        if (item && !(dict ? json_object_set_new(json, key, item) : json_array_append_new(json, item)))
            continue;
        json_decref(json);
        json = NULL;
    }
    return json;
}

/* ---- out --------------------------------------------------------------------------------------------------------- */

/* The names of each group's parameters, as state.json has them. */
static yk_value *saved_names(const json_t *optimizer)
{
    yk_value *names = yk_value_list();
    yk_status status = names ? YK_OK : yk__error_code();
    json_t *group;
    size_t i;
    json_array_foreach(json_object_get(optimizer, "param_groups"), i, group)
    {
        const json_t *params = json_object_get(group, "params");
        if (!status)
            status = json_is_array(params) ? yk_value_append(names, from_json(params))
                                           : yk__fail(YK_ERR_FORMAT, "state.json has no names of parameters");
    }
    return status ? NULL : names;
}

/* The steps that each parameter has taken, by its number: PyTorch's SGD does not count them. */
static yk_value *steps_of(const yk_state_dict *dict, const yk_value *names)
{
    yk_value *steps = yk_value_list();
    yk_status status = steps ? YK_OK : yk__error_code();
    for (int64_t g = 0; g < yk_value_count(names) && !status; g++) {
        const yk_value *group = yk_value_at(names, g);
        for (int64_t i = 0; i < yk_value_count(group) && !status; i++) {
            char *name = yk__format("state.%s.step", yk_value_as_string(yk_value_at(group, i)));
            int64_t at = name ? yk_state_dict_find(dict, name) : -1;
            free(name);
            double step = at < 0 ? 0 : yk_item(yk__state_dict_at(dict, at));
            status = yk_value_append(steps, yk_value_int((int64_t)step));
        }
    }
    return status ? NULL : steps;
}

/* The groups' numbers of one name, or `other` where a group has none of it. */
static yk_value *rates_of(const json_t *optimizer, const char *name, const char *other)
{
    yk_value *rates = yk_value_list();
    yk_status status = rates ? YK_OK : yk__error_code();
    json_t *group;
    size_t i;
    json_array_foreach(json_object_get(optimizer, "param_groups"), i, group)
    {
        const json_t *rate = json_object_get(group, name);
        rate = rate ? rate : json_object_get(group, other);
        if (!status)
            status = yk_value_append(rates, yk_value_real(json_number_value(rate)));
    }
    return status ? NULL : rates;
}

/* "optimizer" and "scheduler"; what they cannot hold goes to `rest`. */
static yk_status put_optimizer(const char *dir, const yk__snapshot *snapshot, yk_value *value, yk_value *rest)
{
    const json_t *optimizer = json_object_get(snapshot->state, "optimizer");
    const json_t *schedule = json_object_get(snapshot->state, "schedule");
    const char *kind = json_string_value(json_object_get(optimizer, "kind"));
    if (!optimizer)
        return YK_OK;
    yk_value *names = saved_names(optimizer), *own = yk_value_dict();
    if (!names || !own || !kind)
        return yk__fail(YK_ERR_FORMAT, "state.json has no optimizer, or not of the right kind");
    yk_status status = yk_value_set(value, "optimizer", yk__optimizer_to_torch(kind, snapshot->optimizer, names));
    if (!status)
        status = yk_value_set(own, "kind", yk_value_string(kind));
    if (!status)
        status = yk_value_set(own, "steps", steps_of(snapshot->optimizer, names));
    if (!status)
        status = yk_value_set(rest, "optimizer", own);
    if (status || !schedule)
        return status;
    yk__schedule_form *form = yk__schedule_from_json(dir, schedule);
    if (!form)
        return yk__error_code();
    if (yk__schedule_has_torch_form(form)) /* else it is in the rest alone */
        status = yk_value_set(value, "scheduler",
                              yk__schedule_to_torch(form, json_integer_value(json_object_get(schedule, "time")),
                                                    rates_of(optimizer, "initial_lr", "lr"),
                                                    rates_of(optimizer, "lr", "lr")));
    yk__schedule_form_free(form);
    return status;
}

static yk_status put_rest(const char *dir, const yk__snapshot *snapshot, yk_value *value)
{
    static const char *const kept[] = {"random", "schedule", "loader", "settings", "values"};
    yk_value *rest = yk_value_dict();
    yk_state_dict *empty = yk_state_dict_create();
    yk_status status = rest && empty ? put_optimizer(dir, snapshot, value, rest) : yk__error_code();
    json_t *scaler = json_object_get(snapshot->state, "scaler"), *extra = json_object_get(snapshot->state, "extra");
    yk_grad_scaler_state scale;
    if (!status && scaler)
        status = yk__scaler_from_json(dir, scaler, &scale);
    if (!status && scaler)
        status = yk_value_set(value, "scaler", yk__scaler_to_torch(&scale));
    for (size_t i = 0; i < sizeof(kept) / sizeof(*kept) && !status; i++) {
        const json_t *part = json_object_get(snapshot->state, kept[i]);
        if (part)
            status = yk_value_set(rest, kept[i], from_json(part));
    }
    const char *key;
    json_t *item;
    json_object_foreach(extra, key, item)
    {
        char *text = status ? NULL : json_dumps(item, JSON_ENCODE_ANY | JSON_COMPACT);
        if (!status)
            status = yk_value_set(value, key, text ? yk__scope_own(yk__value_from_json(dir, text, empty)) : NULL);
        free(text);
    }
    return status ? status : yk_value_set(value, "yoke", rest);
}

static yk_value *to_value(const char *dir, const yk__snapshot *snapshot)
{
    yk_value *value = yk_value_dict();
    yk_status status =
        value ? yk_value_set(value, "model", yk_value_from_state_dict(snapshot->model)) : yk__error_code();
    static const char *const counters[] = {"epoch", "step"};
    for (int i = 0; i < 2 && !status; i++) {
        const json_t *number = json_object_get(snapshot->state, counters[i]);
        status = json_is_integer(number) ? yk_value_set(value, counters[i], from_json(number))
                                         : yk__fail(YK_ERR_FORMAT, "state.json has no %s", counters[i]);
    }
    if (!status)
        status = put_rest(dir, snapshot, value);
    if (!status)
        return value;
    yk__error_prefix("%s", dir);
    return NULL;
}

yk_value *yk__training_to_value(const char *dir)
{
    yk__snapshot snapshot;
    if (!yk__scope_check("training_to_value") ||
        yk__snapshot_read(dir, false, YK_OPTIONS(yk_read_options), NULL, &snapshot))
        return NULL;
    yk_scope scope = yk_scope_begin();
    bool sound = !yk__state_check(dir, snapshot.state);
    yk_value *value = yk_scope_return_object(scope, sound ? to_value(dir, &snapshot) : NULL);
    yk_scope_end(scope);
    yk__snapshot_clear(&snapshot);
    return value;
}

/* ---- in: names for the optimizer's parameters -------------------------------------------------------------------- */

/* True if a tensor of a model can be a parameter: a floating one that is no running statistic. */
static bool may_train(const char *name, const yk_tensor *x)
{
    static const char *const statistics[] = {"running_mean", "running_var", "num_batches_tracked"};
    const char *dot = strrchr(name, '.');
    for (int i = 0; i < 3; i++) {
        if (strcmp(dot ? dot + 1 : name, statistics[i]) == 0)
            return false;
    }
    return yk_dtype_is_floating(yk_tensor_dtype(x));
}

/* The weights' names in their order, for a single group of as many parameters. */
static yk_value *guess_names(const yk_state_dict *weights, const yk_value *group)
{
    yk_value *names = yk_value_list();
    yk_status status = names ? YK_OK : yk__error_code();
    for (int64_t i = 0; i < yk__state_dict_count(weights) && !status; i++) {
        const char *name = yk__state_dict_name(weights, i);
        if (may_train(name, yk__state_dict_at(weights, i)))
            status = yk_value_append(names, yk_value_string(name));
    }
    int64_t count = yk_value_count(yk_value_get(group, "params"));
    if (!status && yk_value_count(names) != count)
        status = yk__fail(YK_ERR_UNSUPPORTED,
                          "the optimizer has %" PRId64 " parameters without names, the model %" PRId64
                          " tensors that may be trained: which is which cannot be told",
                          count, yk_value_count(names));
    return status ? NULL : names;
}

/* A list for each group, of its parameters' names: those it has, or those of the weights. */
static yk_value *names_for(const yk_value *optimizer, const yk_state_dict *weights)
{
    const yk_value *groups = yk_value_get(optimizer, "param_groups");
    yk_value *names = yk_value_list();
    yk_status status = names ? YK_OK : yk__error_code();
    for (int64_t g = 0; g < yk_value_count(groups) && !status; g++) {
        const yk_value *group = yk_value_at(groups, g);
        yk_value *own = yk_value_get(group, "param_names");
        for (int64_t i = 0; i < yk_value_count(own) && !status; i++) {
            if (yk_value_kind_of(yk_value_at(own, i)) != YK_VALUE_STRING)
                status = yk__fail(YK_ERR_FORMAT, "param_names of group %" PRId64 " are no texts", g);
        }
        if (!status && !own && yk_value_count(groups) > 1)
            status = yk__fail(YK_ERR_UNSUPPORTED,
                              "the optimizer has %" PRId64 " groups of parameters without names (param_names): which "
                              "is which cannot be told",
                              yk_value_count(groups));
        if (!status)
            status = yk_value_append(names, own ? own : guess_names(weights, group));
    }
    return status ? NULL : names;
}

/* State must be of its parameter's shape: names that were told by order are checked by it. */
static yk_status check_shapes(const yk_state_dict *state, const yk_state_dict *weights)
{
    for (int64_t i = 0; i < yk__state_dict_count(weights); i++) {
        const char *name = yk__state_dict_name(weights, i);
        static const char *const kinds[] = {"momentum_buffer", "exp_avg", "square_avg", "sum"};
        for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
            char *full = yk__format("state.%s.%s", name, kinds[k]), a[200], b[200];
            int64_t at = full ? yk_state_dict_find(state, full) : -1;
            free(full);
            if (at < 0 || yk_same_shape(yk__state_dict_at(state, at), yk__state_dict_at(weights, i)))
                continue;
            return yk__fail(YK_ERR_SHAPE, "%s of %s has shape %s, the parameter %s", kinds[k], name,
                            yk_shape_format(yk__state_dict_at(state, at), a, sizeof(a)),
                            yk_shape_format(yk__state_dict_at(weights, i), b, sizeof(b)));
        }
    }
    return YK_OK;
}

/* ---- in: the parts ----------------------------------------------------------------------------------------------- */

/* The snapshot that is being made of a value. */
typedef struct making {
    yk__snapshot *snapshot;
    const yk_value *value, *rest;
    yk_state_dict *weights;
    bool foreign_schedule; /* one that yoke has not: kept for PyTorch */
    char *notice;          /* a list of what is lost, grown by notice_add */
} making;

/* Adds to the notice. */
static void notice_add(making *m, const char *what, const char *name)
{
    char *longer = m->notice ? yk__format("%s; %s%s", m->notice, what, name) : yk__format("%s%s", what, name);
    if (longer) {
        free(m->notice);
        m->notice = longer;
    }
}

/* Adds what is known of the number of steps of parameters that have state but no count: SGD's. */
static yk_status add_steps(const making *m, const yk_value *names, yk_state_dict *dict)
{
    const yk_value *steps = yk_value_get(yk_value_get(m->rest, "optimizer"), "steps");
    yk_status status = YK_OK;
    int64_t number = 0;
    for (int64_t g = 0; g < yk_value_count(names) && !status; g++) {
        const yk_value *group = yk_value_at(names, g);
        for (int64_t i = 0; i < yk_value_count(group) && !status; i++, number++) {
            const yk_value *known = yk_value_at(steps, number);
            const char *name = yk_value_as_string(yk_value_at(group, i));
            char *step = yk__format("state.%s.step", name), *buffer = yk__format("state.%s.momentum_buffer", name);
            int64_t count = yk_value_kind_of(known) == YK_VALUE_INT ? yk_value_as_int(known) : 0;
            bool wanted = step && buffer && yk_state_dict_find(dict, step) < 0;
            bool has = wanted && yk_state_dict_find(dict, buffer) >= 0;
            if (wanted && (has || count > 0)) {
                yk_tensor *x =
                    yk_full(0, NULL, (double)(count > 0 ? count : 1), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
                status = x ? yk_state_dict_add(dict, step, x) : yk__error_code();
            }
            free(step);
            free(buffer);
        }
    }
    return status;
}

/* The optimizer in state.json: its kind, and each group's numbers and names. */
static json_t *optimizer_json(const char *kind, const yk_state_dict *dict, const yk_value *names)
{
    json_t *groups = json_array();
    for (int64_t g = 0; g < yk_value_count(names); g++) {
        json_t *group = yk__group_json(dict, g);
        json_object_set_new(group, "params", to_json(yk_value_at(names, g)));
        json_array_append_new(groups, group);
    }
    return json_pack("{s:s, s:o}", "kind", kind, "param_groups", groups);
}

static yk_status read_optimizer(making *m, const yk_value *optimizer)
{
    bool guessed;
    const char *kind = yk__optimizer_torch_kind(optimizer, m->rest, &guessed);
    yk_value *names = kind ? names_for(optimizer, m->weights) : NULL;
    yk_state_dict *dict = names ? yk__optimizer_from_torch(optimizer, names) : NULL;
    yk_status status = dict ? check_shapes(dict, m->weights) : yk__error_code();
    if (!status && strcmp(kind, "sgd") == 0)
        status = add_steps(m, names, dict);
    if (status)
        return status;
    if (guessed)
        notice_add(m, "the optimizer is taken for AdamW, which this PyTorch does not tell from Adam", "");
    m->snapshot->optimizer = yk_state_dict_retain(dict);
    if (json_object_set_new(m->snapshot->state, "optimizer", optimizer_json(kind, dict, names)))
        status = yk__fail_memory(sizeof(json_t *));
    return status;
}

/* PyTorch's schedule, or, where it has none that is known here, the one that was saved with it; PyTorch's is then no
 * part that was taken. */
static yk_status read_schedule(making *m, const yk_value *scheduler)
{
    int64_t time;
    yk__schedule_form *form = scheduler ? yk__schedule_from_torch(scheduler, &time) : NULL;
    const yk_value *saved = yk_value_get(m->rest, "schedule");
    json_t *json = form ? yk__schedule_json(form, time) : NULL;
    m->foreign_schedule = scheduler && !form;
    if (m->foreign_schedule)
        notice_add(m, yk_last_error()->message, "; it is kept for PyTorch alone");
    yk_clear_error();
    yk__schedule_form_free(form);
    if (!json && saved)
        json = to_json(saved);
    return json && json_object_set_new(m->snapshot->state, "schedule", json) ? yk__fail_memory(sizeof(json_t *))
                                                                             : YK_OK;
}

static yk_status read_scaler(making *m, const yk_value *scaler)
{
    yk_grad_scaler_state state;
    if (yk_value_count(scaler) == 0) /* of a disabled one */
        return YK_OK;
    yk_status status = yk__scaler_from_torch(scaler, &state);
    if (!status && json_object_set_new(m->snapshot->state, "scaler", yk__scaler_json(&state)))
        status = yk__fail_memory(sizeof(json_t *));
    return status;
}

/* The item that the value has under the first of a NULL-ended list of keys that has one of this kind; NULL: none. */
static const yk_value *first_of(const yk_value *value, const char *const *keys, yk_value_kind kind)
{
    for (; *keys; keys++) {
        const yk_value *item = yk_value_get(value, *keys);
        if (item && item->kind == kind)
            return item;
    }
    return NULL;
}

static int64_t counter(const yk_value *value, const char *const *keys)
{
    const yk_value *item = first_of(value, keys, YK_VALUE_INT);
    return item && item->as.integer >= 0 ? item->as.integer : 0;
}

static const char *const optimizer_keys[] = {"optimizer", "optimizer_state_dict", "optimizer_state", "optim", NULL};
static const char *const schedule_keys[] = {"scheduler", "scheduler_state_dict", "lr_scheduler", "schedule", NULL};
static const char *const scaler_keys[] = {"scaler", "scaler_state_dict", "grad_scaler", NULL};
static const char *const epoch_keys[] = {"epoch", NULL};
static const char *const step_keys[] = {"step", "global_step", "iteration", NULL};

/* True if an item of the value was taken for one of the parts. */
static bool is_taken(const making *m, const yk_value *item)
{
    const char *const *const lists[] = {optimizer_keys, schedule_keys, scaler_keys, epoch_keys, step_keys};
    bool taken = item == m->rest;
    for (int i = 0; i < 5; i++)
        taken |= !(m->foreign_schedule && lists[i] == schedule_keys) &&
                 item == first_of(m->value, lists[i], i < 3 ? YK_VALUE_DICT : YK_VALUE_INT);
    return taken;
}

static yk_status find_leaf_tensor(const char *name, yk_value *leaf, void *user)
{
    (void)name;
    *(bool *)user |= leaf->kind == YK_VALUE_TENSOR;
    return YK_OK;
}

/* Puts items that are no weights and no part under "extra", where JSON can hold them. */
static yk_status read_extra(making *m)
{
    json_t *extra = json_object();
    const yk_value *weights = yk__value_weights_in(m->value);
    for (int64_t i = 0; extra && weights != m->value && i < yk_value_count(m->value); i++) {
        const yk_value *item = yk_value_at(m->value, i);
        int64_t number;
        const char *key = yk_value_key(m->value, i, &number);
        bool tensors = false;
        if (is_taken(m, item) || yk__value_weights_in(item) == weights)
            continue;
        if (yk__value_walk(item, find_leaf_tensor, &tensors))
            yk_clear_error();
        char *text = key && !tensors ? yk__value_to_json(item) : NULL;
        json_t *json = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
        free(text);
        yk_clear_error();
        if (!json || json_object_set_new(extra, key, json))
            notice_add(m, "a training checkpoint has no place for ", key ? key : "what has a number for a key");
    }
    if (extra && json_object_size(extra))
        return json_object_set_new(m->snapshot->state, "extra", extra) ? yk__fail_memory(sizeof(json_t *)) : YK_OK;
    json_decref(extra);
    return extra ? YK_OK : yk__fail_memory(sizeof(json_t *));
}

/* A part of "yoke" as it is; an empty object where there is none and one is needed. */
static yk_status read_kept(making *m, const char *name, const char *otherwise)
{
    const yk_value *kept = yk_value_get(m->rest, name);
    json_t *json = kept ? to_json(kept) : otherwise ? json_loads(otherwise, 0, NULL) : NULL;
    if (json && json_object_set_new(m->snapshot->state, name, json))
        return yk__fail_memory(sizeof(json_t *));
    return YK_OK;
}

static yk_status read_parts(making *m)
{
    m->snapshot->state =
        json_pack("{s:s, s:i, s:I, s:I}", "format", "yoke training checkpoint", "version", 1, "epoch",
                  (json_int_t)counter(m->value, epoch_keys), "step", (json_int_t)counter(m->value, step_keys));
    yk_status status =
        m->snapshot->state ? read_kept(m, "random", "{\"seed\": 0, \"calls\": 0}") : yk__fail_memory(sizeof(json_t *));
    const yk_value *optimizer = first_of(m->value, optimizer_keys, YK_VALUE_DICT);
    const yk_value *scaler = first_of(m->value, scaler_keys, YK_VALUE_DICT);
    if (!status)
        status = read_schedule(m, first_of(m->value, schedule_keys, YK_VALUE_DICT));
    if (!status)
        status = read_kept(m, "loader", NULL);
    if (!status && optimizer)
        status = read_optimizer(m, optimizer);
    if (!status && scaler)
        status = read_scaler(m, scaler);
    if (!status)
        status = read_kept(m, "settings", "{}");
    if (!status)
        status = read_kept(m, "values", "{}");
    return status ? status : read_extra(m);
}

yk_status yk__training_from_value(const char *dir, const yk_value *value, char **notice)
{
    *notice = NULL;
    yk__save save = {.step = 0};
    yk_scope scope = yk_scope_begin();
    making m = {.snapshot = &save.snapshot, .value = value, .rest = yk_value_get(value, "yoke")};
    m.weights = yk_value_weights(value, NULL);
    yk_status status = m.weights ? YK_OK : yk__error_code();
    if (!status) {
        save.snapshot.model = yk_state_dict_retain(m.weights);
        status = read_parts(&m);
    }
    if (!status) {
        yk__save_whole(&save);
        status = yk__save_write(&save, dir, NULL);
    } else {
        yk__error_prefix("%s", dir);
    }
    yk__save_clear(&save);
    yk_scope_end(scope);
    if (status)
        free(m.notice);
    else
        *notice = m.notice;
    return status;
}
