/*
 * training_state.c - from the objects of a run to a snapshot and back. Layer: checkpoint.
 *
 * Loading compares everything first: model, settings, schedule, loader. The optimizer is loaded next, which changes
 * all or nothing; what comes after it cannot fail for what the checkpoint holds.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/random_branch.h"
#include "checkpoint/training/training.h"
#include "nn/module.h"
#include "optim/optimizer.h"

/* Bytes of a schedule as text in an error, which cuts a longer one. */
enum { SCHEDULE_ROOM = 1000 };

void yk__snapshot_clear(yk__snapshot *snapshot)
{
    yk_state_dict_release(snapshot->model);
    yk_state_dict_release(snapshot->optimizer);
    json_decref(snapshot->state);
    *snapshot = (yk__snapshot){0};
}

/* ---- out --------------------------------------------------------------------------------------------------------- */

/* A number or flag of a group, for people and scripts that read state.json; the tensors are what is loaded. */
static json_t *number_json(yk_tensor *x)
{
    if (x->dtype == YK_BOOL)
        return json_boolean(*(bool *)x->data);
    if (x->dtype == YK_I64)
        return json_integer(*(int64_t *)x->data);
    const double *values = x->data;
    if (x->ndim == 0)
        return json_real(*values);
    json_t *list = json_array();
    for (int64_t i = 0; i < x->numel; i++)
        json_array_append_new(list, json_real(values[i]));
    return list;
}

json_t *yk__group_json(const yk_state_dict *dict, int64_t g)
{
    json_t *group = json_object();
    char prefix[40];
    size_t length = (size_t)snprintf(prefix, sizeof(prefix), "param_groups.%" PRId64 ".", g);
    for (int64_t i = 0; i < yk__state_dict_count(dict); i++) {
        const char *name = yk__state_dict_name(dict, i);
        if (strncmp(name, prefix, length) == 0)
            json_object_set_new(group, name + length, number_json(yk__state_dict_at(dict, i)));
    }
    return group;
}

static json_t *optimizer_json(const yk_optimizer *o, const yk_state_dict *dict)
{
    json_t *groups = json_array();
    for (int g = 0; g < o->n_groups; g++) {
        json_t *group = yk__group_json(dict, g), *names = json_array();
        for (int64_t i = 0; i < o->groups[g].count; i++)
            json_array_append_new(names, json_string(yk__parameters_name(o->groups[g].params, i)));
        json_object_set_new(group, "params", names);
        json_array_append_new(groups, group);
    }
    return json_pack("{s:s, s:o}", "kind", o->kind->name, "param_groups", groups);
}

static int64_t batches_per_step(const yk_checkpoint_state *state)
{
    return state->accumulate > 1 ? state->accumulate : 1;
}

static json_t *loader_json(const yk_checkpoint_state *state)
{
    yk_loader_state s = yk_loader_get_state(state->loader);
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:i, s:i}", "accumulate",
                     (json_int_t)batches_per_step(state), "epoch", (json_int_t)s.epoch, "start", (json_int_t)s.start,
                     "batch", (json_int_t)s.batch, "dataset_length", (json_int_t)s.dataset_length, "batch_size",
                     (json_int_t)s.batch_size, "seed", (json_int_t)s.seed, "shuffle", s.shuffle, "drop_last",
                     s.drop_last, "rank", s.rank, "world_size", s.world_size);
}

static json_t *settings_json(const yk_metadata *settings)
{
    json_t *object = json_object();
    for (; settings && settings->key; settings++)
        json_object_set_new(object, settings->key, json_string(settings->value));
    return object;
}

/* Adds numbers as text: JSON has neither NaN nor infinities. */
static void add_values(json_t *object, const yk_checkpoint_value *values)
{
    for (; values && values->name; values++) {
        char text[YK__NUMBER_ROOM];
        json_object_set_new(object, values->name, json_string(yk__number_format(*values->value, text)));
    }
}

static json_t *values_json(const yk_checkpoint_state *state)
{
    json_t *object = json_object();
    add_values(object, state->values);
    add_values(object, state->optional_values);
    return object;
}

/* Sets the values that were saved. */
static void values_load(const json_t *saved, const yk_checkpoint_value *values)
{
    for (; values && values->name; values++) {
        const char *text = json_string_value(json_object_get(saved, values->name));
        if (text)
            *values->value = yk__number_parse(text, NULL);
    }
}

static yk_status check_value_list(const yk_checkpoint_value *values)
{
    for (; values && values->name; values++) {
        if (!values->value)
            return yk__fail(YK_ERR_ARGUMENT, "checkpoint: value '%s' is NULL", values->name);
    }
    return YK_OK;
}

static json_t *state_json(const yk_checkpoint_state *state, const yk_state_dict *optimizer)
{
    yk_random_state random = yk_random_get_state();
    json_t *object = json_pack("{s:s, s:i, s:I, s:I, s:{s:I, s:I}}", "format", "yoke training checkpoint", "version", 1,
                               "epoch", (json_int_t)state->epoch, "step", (json_int_t)state->step, "random", "seed",
                               (json_int_t)random.seed, "calls", (json_int_t)random.calls);
    if (!object)
        return NULL;
    int failed = 0;
    if (state->schedule)
        failed |= json_object_set_new(
            object, "schedule",
            yk__schedule_json(yk__schedule_form_of(state->schedule), yk_schedule_time(state->schedule)));
    if (state->loader)
        failed |= json_object_set_new(object, "loader", loader_json(state));
    if (state->optimizer)
        failed |= json_object_set_new(object, "optimizer", optimizer_json(state->optimizer, optimizer));
    yk_grad_scaler_state scaler = yk_grad_scaler_get_state(state->scaler);
    if (yk_grad_scaler_enabled(state->scaler))
        failed |= json_object_set_new(object, "scaler", yk__scaler_json(&scaler));
    failed |= json_object_set_new(object, "settings", settings_json(state->settings));
    failed |= json_object_set_new(object, "values", values_json(state));
    if (!failed)
        return object;
    json_decref(object);
    return NULL;
}

static yk_status check_texts(const yk_checkpoint_state *state)
{
    for (const yk_metadata *s = state->settings; s && s->key; s++) {
        json_t *probe = s->value ? json_pack("{s:s}", s->key, s->value) : NULL;
        json_decref(probe);
        if (!probe)
            return yk__fail(YK_ERR_ARGUMENT, "checkpoint: setting '%s' is %s", s->key,
                            s->value ? "not valid UTF-8" : "NULL");
    }
    if (check_value_list(state->values) || check_value_list(state->optional_values))
        return YK_ERR_ARGUMENT;
    if (!state->model)
        return yk__fail(YK_ERR_ARGUMENT, "checkpoint: the model is NULL");
    return YK_OK;
}

yk_status yk__snapshot_take(const yk_checkpoint_state *state, yk__snapshot *snapshot)
{
    *snapshot = (yk__snapshot){0};
    yk_status status = state ? check_texts(state) : yk__fail(YK_ERR_ARGUMENT, "checkpoint: the state is NULL");
    if (status)
        return status;
    yk_scope scope = yk_scope_begin();
    snapshot->model = yk_state_dict_retain(yk_module_state_dict(state->model));
    if (snapshot->model && state->optimizer)
        snapshot->optimizer = yk_state_dict_retain(yk_optimizer_state_dict(state->optimizer));
    yk_scope_end(scope);
    if (!snapshot->model || (state->optimizer && !snapshot->optimizer))
        status = yk__error_code();
    if (!status && !(snapshot->state = state_json(state, snapshot->optimizer)))
        status = yk__fail(YK_ERR_MEMORY, "checkpoint: out of memory, or a name is not valid UTF-8");
    if (!status && state->n_generators) {
        yk__random_follow(state->generators, state->n_generators);
        status = yk__snapshot_note_random(snapshot, state->generators, state->n_generators);
    }
    if (status)
        yk__snapshot_clear(snapshot);
    return status;
}

/* ---- in ---------------------------------------------------------------------------------------------------------- */

static yk_status lacks(const char *dir, const char *what)
{
    return yk__fail(YK_ERR_FORMAT, "%s: state.json has no %s, or not of the right kind", dir, what);
}

static yk_status check_settings(const char *dir, const json_t *saved, const yk_metadata *settings)
{
    for (; settings && settings->key; settings++) {
        const char *before = json_string_value(json_object_get(saved, settings->key));
        if (!before)
            return yk__fail(YK_ERR_ARGUMENT, "%s: was saved without '%s', which is '%s' now", dir, settings->key,
                            settings->value);
        if (strcmp(before, settings->value) != 0)
            return yk__fail(YK_ERR_ARGUMENT, "%s: was saved with %s '%s', which is '%s' now", dir, settings->key,
                            before, settings->value);
    }
    return YK_OK;
}

/* Both or none have it. */
static yk_status check_presence(const char *dir, const json_t *saved, const char *what, bool wanted)
{
    if ((saved != NULL) == wanted)
        return YK_OK;
    return yk__fail(YK_ERR_ARGUMENT, "%s: was saved with%s a%s %s, this run has %s", dir, saved ? "" : "out",
                    what[0] == 'o' ? "n" : "", what, wanted ? "one" : "none");
}

/* Checks the saved schedule against the run's. Its lengths may differ where an epoch has other steps than before
 * (`relaid`). */
static yk_status check_schedule(const char *dir, const json_t *saved, const yk_schedule *schedule, bool relaid,
                                yk__schedule_form **form, int64_t *time)
{
    yk_status status = check_presence(dir, saved, "schedule", schedule != NULL);
    if (status || !schedule)
        return status;
    const char *kind = json_string_value(json_object_get(saved, "kind"));
    const yk__schedule_form *own = yk__schedule_form_of(schedule);
    char before[SCHEDULE_ROOM], now[SCHEDULE_ROOM];
    if (!kind)
        return lacks(dir, "schedule");
    *time = json_integer_value(json_object_get(saved, "time"));
    *form = yk__schedule_from_json(dir, saved);
    if (!*form)
        yk_clear_error(); /* a schedule that is not known here is another one */
    if (*form && (yk__schedule_same(own, *form) || (relaid && yk__schedule_carry(schedule, *form, *time) >= 0)))
        return YK_OK;
    return yk__fail(YK_ERR_ARGUMENT, "%s: was saved with the schedule %s, this run has %s", dir,
                    *form ? yk__schedule_print(*form, before, sizeof(before)) : kind,
                    yk__schedule_print(own, now, sizeof(now)));
}

/* *accumulate: batches of a step, 1 where it was not saved. */
static yk_status check_loader(const char *dir, json_t *saved, const yk_loader *loader, yk_loader_state *loader_state,
                              json_int_t *accumulate)
{
    *accumulate = 1;
    yk_status status = check_presence(dir, saved, "loader", loader != NULL);
    if (status || !loader)
        return status;
    json_int_t epoch, start = 0, batch, length, size, seed;
    int shuffle, drop_last, rank, world;
    if (json_unpack(saved, "{s?I, s:I, s?I, s:I, s:I, s:I, s:I, s:b, s:b, s:i, s:i}", "accumulate", accumulate, "epoch",
                    &epoch, "start", &start, "batch", &batch, "dataset_length", &length, "batch_size", &size, "seed",
                    &seed, "shuffle", &shuffle, "drop_last", &drop_last, "rank", &rank, "world_size", &world))
        return lacks(dir, "loader");
    *loader_state = (yk_loader_state){.epoch = epoch,
                                      .start = start,
                                      .batch = batch,
                                      .dataset_length = length,
                                      .batch_size = size,
                                      .seed = (uint64_t)seed,
                                      .shuffle = shuffle,
                                      .drop_last = drop_last,
                                      .rank = rank,
                                      .world_size = world};
    return YK_OK;
}

/* True if a step took more or fewer samples than now. */
static bool other_layout(const yk_loader_state *before, json_int_t accumulated, const yk_checkpoint_state *state)
{
    yk_loader_state now = yk_loader_get_state(state->loader);
    return (double)before->batch_size * before->world_size * (double)accumulated !=
           (double)now.batch_size * now.world_size * (double)batches_per_step(state);
}

static yk_status check_optimizer(const char *dir, const json_t *saved, const yk_optimizer *o)
{
    yk_status status = check_presence(dir, saved, "optimizer", o != NULL);
    if (status || !o)
        return status;
    const char *kind = json_string_value(json_object_get(saved, "kind"));
    if (!kind)
        return lacks(dir, "optimizer");
    if (strcmp(kind, o->kind->name) != 0)
        return yk__fail(YK_ERR_ARGUMENT, "%s: was saved with the optimizer %s, this run has %s", dir, kind,
                        o->kind->name);
    return YK_OK;
}

/* A disabled scaler takes nothing, whatever there is. */
static yk_status check_scaler(const char *dir, json_t *saved, const yk_grad_scaler *scaler, yk_grad_scaler_state *state)
{
    if (scaler && !yk_grad_scaler_enabled(scaler))
        return YK_OK;
    yk_status status = check_presence(dir, saved, "scaler", scaler != NULL);
    return status || !scaler ? status : yk__scaler_from_json(dir, saved, state);
}

static yk_status check_values(const char *dir, const json_t *saved, const yk_checkpoint_value *values)
{
    for (; values && values->name; values++) {
        if (!json_string_value(json_object_get(saved, values->name)))
            return yk__fail(YK_ERR_ARGUMENT, "%s: was saved without the value '%s'", dir, values->name);
    }
    return YK_OK;
}

/* The numbers that the checks found in state.json. */
typedef struct found {
    json_int_t epoch, step, seed, calls;
    yk__schedule_form *schedule; /* as it was saved: the run's, or of other lengths; NULL without one */
    json_int_t accumulate;
    int64_t time;
    yk_loader_state loader_state;
    yk_grad_scaler_state scaler;
} found;

static yk_status check_state(const char *dir, json_t *json, const yk_checkpoint_state *state, found *f)
{
    if (yk__state_check(dir, json))
        return yk__error_code();
    if (json_unpack(json, "{s:I, s:I, s:{s:I, s:I}}", "epoch", &f->epoch, "step", &f->step, "random", "seed", &f->seed,
                    "calls", &f->calls))
        return lacks(dir, "epoch, step or random");
    yk_status status = check_settings(dir, json_object_get(json, "settings"), state->settings);
    if (!status)
        status = check_optimizer(dir, json_object_get(json, "optimizer"), state->optimizer);
    if (!status)
        status = check_loader(dir, json_object_get(json, "loader"), state->loader, &f->loader_state, &f->accumulate);
    if (!status)
        status = check_schedule(dir, json_object_get(json, "schedule"), state->schedule,
                                state->loader && other_layout(&f->loader_state, f->accumulate, state), &f->schedule,
                                &f->time);
    if (!status)
        status = check_scaler(dir, json_object_get(json, "scaler"), state->scaler, &f->scaler);
    return status ? status : check_values(dir, json_object_get(json, "values"), state->values);
}

/* With an optimizer, whose rates were loaded, the schedule goes on from these; without one it sets them. */
static yk_status load_schedule(yk_checkpoint_state *state, const found *f)
{
    if (state->optimizer)
        return yk__schedule_resume(state->schedule, f->schedule, f->time);
    bool same = yk__schedule_same(yk__schedule_form_of(state->schedule), f->schedule);
    return yk_schedule_set_time(state->schedule,
                                same ? f->time : yk__schedule_carry(state->schedule, f->schedule, f->time));
}

/* The loader goes first: it can be put back. */
static yk_status load_objects(yk__snapshot *snapshot, yk_checkpoint_state *state, found *f)
{
    yk_loader_state before = yk_loader_get_state(state->loader);
    yk_status status = state->loader ? yk_loader_set_state(state->loader, &f->loader_state) : YK_OK;
    if (!status && state->optimizer) {
        status = yk__optimizer_load_state(state->optimizer, snapshot->optimizer, !snapshot->mapped);
        if (status && state->loader && yk_loader_set_state(state->loader, &before))
            return status; /* the record has the first error */
    }
    if (!status && state->schedule)
        status = load_schedule(state, f);
    if (!status && yk_grad_scaler_enabled(state->scaler))
        status = yk_grad_scaler_set_state(state->scaler, &f->scaler);
    return status;
}

static yk_status snapshot_apply(const char *dir, yk__snapshot *snapshot, yk_checkpoint_state *state,
                                const yk_checkpoint_options *options, yk_load_report *report, found *f)
{
    const yk_load_options *load = YK_OPTIONS(yk_load_options, .strict = !options || options->strict);
    bool weights_only = options && options->weights_only;
    yk_status status = weights_only ? YK_OK : check_state(dir, snapshot->state, state, f);
    if (status)
        return status;
    status = yk__module_check_state_dict(state->model, snapshot->model, load);
    if (!status && !weights_only)
        status = load_objects(snapshot, state, f);
    if (!status)
        status = yk_module_load_state_dict(state->model, snapshot->model, load, report);
    if (status) {
        yk__error_prefix("%s", dir);
        return status;
    }
    if (weights_only)
        return YK_OK;
    state->epoch = f->epoch;
    state->step = f->step;
    json_t *values = json_object_get(snapshot->state, "values");
    values_load(values, state->values);
    values_load(values, state->optional_values);
    yk_random_set_state((yk_random_state){(uint64_t)f->seed, (uint32_t)f->calls});
    return YK_OK;
}

yk_status yk__snapshot_apply(const char *dir, yk__snapshot *snapshot, yk_checkpoint_state *state,
                             const yk_checkpoint_options *options, yk_load_report *report)
{
    found f = {0};
    yk_status status = snapshot_apply(dir, snapshot, state, options, report, &f);
    yk__schedule_form_free(f.schedule);
    return status;
}
