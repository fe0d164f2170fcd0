/*
 * optimizer.c - parameter groups, state, and the step. Layer: optim.
 *
 * A step gathers the views of all parameters of a group that have a gradient and hands them to the table in one call,
 * or in one for each device, dtype and number of steps where these differ. The arrays for that are made with the
 * group; a step allocates nothing but the state of parameters that it sees for the first time.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/events.h"
#include "base/invariant.h"
#include "device/graph.h"
#include "host/progress.h"
#include "nn/module.h"
#include "optim/row_steps.h"

/* ---- making ------------------------------------------------------------------------------------------------------ */

static void group_clear(yk__optim_group *group)
{
    for (int64_t i = 0; group->states && i < group->count; i++) {
        for (int s = 0; s < YK__OPTIM_STATES; s++)
            yk_tensor_release(group->states[i].tensors[s]);
    }
    free(group->states);
    for (int i = 0; i < group->n_device_steps; i++)
        yk__storage_release(group->device_steps[i].memory);
    free(group->device_steps);
    yk_parameters_release(group->params);
}

static void optimizer_destroy(void *object)
{
    yk_optimizer *o = object;
    for (int g = 0; g < o->n_groups; g++)
        group_clear(&o->groups[g]);
    free(o->groups);
    free(o->batch.params);
    free(o->batch.grads);
    for (int s = 0; s < YK__OPTIM_STATES; s++)
        free(o->batch.states[s]);
    free(o->batch.indices);
    free(o->wide);
    free(o->pending);
    if (o->kind && o->kind->whole)
        o->kind->whole->free(o->whole);
    yk__object_free(o);
}

static const yk__type optimizer_type = {"optimizer", optimizer_destroy};

static yk_status states_reserve(yk_optimizer *o, int64_t count)
{
    if (count <= o->capacity)
        return YK_OK;
    yk__view **views[2 + YK__OPTIM_STATES] = {&o->batch.params, &o->batch.grads};
    for (int s = 0; s < YK__OPTIM_STATES; s++)
        views[2 + s] = &o->batch.states[s];
    for (int v = 0; v < 2 + YK__OPTIM_STATES; v++) {
        yk__view *grown = yk__realloc(*views[v], (size_t)count * sizeof(*grown));
        if (!grown)
            return YK_ERR_MEMORY;
        *views[v] = grown;
    }
    int64_t *indices = yk__realloc(o->batch.indices, (size_t)count * sizeof(*indices));
    if (indices)
        o->batch.indices = indices;
    yk_tensor **wide = indices ? yk__realloc(o->wide, (size_t)count * sizeof(*wide)) : NULL;
    if (wide)
        o->wide = wide;
    bool *pending = wide ? yk__realloc(o->pending, (size_t)count * sizeof(*pending)) : NULL;
    if (!pending)
        return YK_ERR_MEMORY;
    o->pending = pending;
    o->capacity = count;
    return YK_OK;
}

static const yk__optim_state *find_state(const yk_optimizer *o, const yk_tensor *parameter)
{
    for (int g = 0; g < o->n_groups; g++) {
        for (int64_t i = 0; i < o->groups[g].count; i++) {
            if (yk__parameters_at(o->groups[g].params, i) == parameter)
                return &o->groups[g].states[i];
        }
    }
    return NULL;
}

static yk_status check_parameter(const yk_optimizer *o, const yk__optim_group *group, const char *name, yk_tensor *x)
{
    const yk_parameters *before = group->params;
    if (!yk_is_leaf(x))
        return yk__fail(YK_ERR_ARGUMENT, "%s: parameter %s was made by %s and is no leaf", o->kind->name, name,
                        yk_grad_fn_name(x));
    if (x->dtype != YK_F32 && x->dtype != YK_F64 && !yk__optim_has_master(group, x))
        return yk__fail(YK_ERR_DTYPE, "%s: parameter %s is %s, expected float32 or float64%s", o->kind->name, name,
                        yk_dtype_name((yk_dtype)x->dtype),
                        yk__is_half((yk_dtype)x->dtype) ? ", or .master_weights, which keeps it in float32" : "");
    yk_status status = o->kind->accept ? o->kind->accept(o->kind, name, x) : YK_OK;
    if (status)
        return status;
    bool twice = find_state(o, x) != NULL;
    for (int64_t i = 0; !twice && i < yk__parameters_count(before); i++)
        twice = yk__parameters_at(before, i) == x;
    return twice ? yk__fail(YK_ERR_ARGUMENT, "%s: parameter %s is in the optimizer twice", o->kind->name, name) : YK_OK;
}

static yk_status group_fill(const yk_optimizer *o, yk__optim_group *group, const yk_parameters *params)
{
    int64_t count = yk__parameters_count(params);
    group->params = yk__parameters_new();
    group->states = group->params ? yk__calloc((size_t)count, sizeof(*group->states)) : NULL;
    yk_status status = group->states ? YK_OK : YK_ERR_MEMORY;
    for (int64_t i = 0; i < count && !status; i++) {
        const char *name = yk__parameters_name(params, i);
        yk_tensor *x = yk__parameters_at(params, i);
        status = check_parameter(o, group, name, x);
        if (!status)
            status = yk_parameters_add(group->params, name, x);
    }
    group->count = count;
    return status;
}

static yk_status add_group(yk_optimizer *o, yk_parameters *params, const void *options)
{
    if (yk__parameters_count(params) == 0)
        return yk__fail(YK_ERR_ARGUMENT, "%s: the list of parameters is empty", o->kind->name);
    if (o->kind->whole && o->n_groups)
        return yk__fail(YK_ERR_ARGUMENT, "%s: it has one group, since its state is of all parameters together",
                        o->kind->name);
    yk__optim_group group = o->n_groups ? o->defaults : o->kind->preset;
    group.initial_lr = NAN;
    yk_status status = options || !o->n_groups ? o->kind->configure(o->kind, options, &group) : YK_OK;
    if (!status)
        status = yk__check_number(o->kind->name, "lr", group.lr, 0, INFINITY);
    if (!status)
        status = o->kind->check(o->kind, &group);
    if (!status && !o->n_groups)
        o->defaults = group;
    if (!status)
        status = group_fill(o, &group, params);
    if (!status)
        status = states_reserve(o, group.count);
    yk__optim_group *groups = NULL;
    if (!status) {
        groups = yk__realloc(o->groups, (size_t)(o->n_groups + 1) * sizeof(*groups));
        status = groups ? YK_OK : YK_ERR_MEMORY;
    }
    if (status) {
        group_clear(&group);
        return status;
    }
    o->groups = groups;
    groups[o->n_groups++] = group;
    YK__ASSERT_SOUND(yk__optimizer_check(o));
    return YK_OK;
}

yk_status yk__optimizer_add_group(const yk__optim_kind *kind, yk_optimizer *o, yk_parameters *params,
                                  const void *options)
{
    if (yk__is_freed(o) || yk__is_freed(params))
        return yk__fail_freed("optimizer_add_group", yk__is_freed(o) ? (void *)o : params);
    if (!o || !params)
        return yk__error_code()
                   ? yk__error_code()
                   : yk__fail(YK_ERR_ARGUMENT, "%s_add_group: the %s is NULL", kind->name, o ? "list" : "optimizer");
    if (o->kind != kind)
        return yk__fail(YK_ERR_ARGUMENT, "%s_add_group: the optimizer is %s, so it is %s_add_group with its options",
                        kind->name, o->kind->name, o->kind->name);
    return add_group(o, params, options);
}

yk_status yk_optimizer_add_group(yk_optimizer *o, yk_parameters *params)
{
    YK__LIVE(o);
    if (!o)
        return yk__error_code() ? yk__error_code()
                                : yk__fail(YK_ERR_ARGUMENT, "optimizer_add_group: the optimizer is NULL");
    return yk__optimizer_add_group(o->kind, o, params, NULL);
}

void yk__optim_take(double *kept, double number)
{
    *kept = yk__number_or(number, *kept);
}

yk_status yk__optimizer_rate(const char *what, double lr, double *rate)
{
    if (lr == YK_NOT_GIVEN && isnan(*rate))
        return yk__fail(YK_ERR_ARGUMENT, "%s: lr was not given, and has no default", what);
    yk__optim_take(rate, lr);
    return YK_OK;
}

/* Refuses a list of which no parameter requires a gradient (a frozen model, a list of copies): no step would ever
 * change anything. */
static yk_status check_trainable(const char *name, const yk_parameters *params)
{
    for (int64_t i = 0; i < yk__parameters_count(params); i++) {
        if (yk__wants_grad(yk__parameters_at(params, i)))
            return YK_OK;
    }
    return yk__fail(YK_ERR_ARGUMENT, "%s: none of the %lld parameters requires a gradient, so it would train nothing",
                    name, (long long)yk__parameters_count(params));
}

yk_optimizer *yk__optimizer_create(const yk__optim_kind *kind, yk_parameters *params, const void *options)
{
    if (yk__is_freed(params)) {
        yk__fail_freed(kind->name, params);
        return NULL;
    }
    if (!params || !yk__scope_check(kind->name)) {
        yk__fail(YK_ERR_ARGUMENT, "%s: the list of parameters is NULL", kind->name);
        return NULL;
    }
    yk_optimizer *o = yk__object_new(&optimizer_type, sizeof(*o));
    if (!o)
        return NULL;
    o->kind = kind;
    if (add_group(o, params, options) || check_trainable(kind->name, params)) {
        yk_object_release(o);
        return NULL;
    }
    return yk__scope_own(o);
}

/* ---- the step ---------------------------------------------------------------------------------------------------- */

/* State s of a parameter: made at its first step, moved after it where the parameter was. A master weight begins as the
 * parameter. */
static yk_status settle_state(const yk__optim_kind *kind, const yk__optim_group *group, yk__optim_state *state, int s,
                              yk_tensor *x)
{
    yk_dtype dtype = yk__optim_state_dtype(group, x);
    yk_tensor *old = state->tensors[s];
    if (old && (yk_dtype)old->dtype == dtype && yk_device_equal(yk__device_of(old), yk__device_of(x)))
        return YK_OK;
    yk__operation_name = "optimizer";
    yk_tensor *made = yk__tensor_like(x, dtype);
    yk_status status = !made                   ? yk__error_code()
                       : old                   ? yk__raw_copy(made, old)
                       : s == YK__OPTIM_MASTER ? yk__raw_copy(made, x)
                       : kind->zeroed          ? yk__raw_fill(made, kind->initial ? kind->initial(group) : 0)
                                               : YK_OK;
    if (status) {
        yk_tensor_release(made);
        return status;
    }
    yk_tensor_release(old);
    state->tensors[s] = made;
    if (!old && s == YK__OPTIM_MASTER)
        yk__master_same(state, x);
    return YK_OK;
}

yk_status yk__optimizer_settle_state(yk_optimizer *o, yk__optim_group *group, int64_t i, int s)
{
    return settle_state(o->kind, group, &group->states[i], s, yk__parameters_at(group->params, i));
}

/* ---- steps that a device may have left out ---- */

static yk_status settle_record(const yk__optim_group *group, int record)
{
    yk__device_step *there = &group->device_steps[record - 1];
    yk_device device = there->memory->device;
    yk__step_state state;
    yk__operation_name = "optimizer";
    yk_status status = yk__backend_of(device)->download(device.index, &state, there->memory->data, sizeof(state));
    if (status)
        return status;
    for (int64_t i = 0; i < group->count; i++) {
        if (group->states[i].record == record)
            group->states[i].step -= there->step - state.step;
    }
    there->step = state.step;
    there->unsure = false;
    return YK_OK;
}

yk_status yk__optimizer_settle(const yk_optimizer *o)
{
    yk_status status = YK_OK;
    for (int g = 0; g < o->n_groups; g++) {
        for (int r = 1; r <= o->groups[g].n_device_steps && !status; r++) {
            if (o->groups[g].device_steps[r - 1].unsure)
                status = settle_record(&o->groups[g], r);
        }
    }
    return status;
}

/* True if the pending parameters may be told apart by the host's numbers of steps: where one is unsure, all whose last
 * step took the same record are pending, of one dtype and on one device. */
static bool steps_are_sure(const yk_optimizer *o, const yk__optim_group *group)
{
    for (int r = 1; r <= group->n_device_steps; r++) {
        const yk_tensor *leader = NULL;
        if (!group->device_steps[r - 1].unsure)
            continue;
        for (int64_t i = 0; i < group->count; i++) {
            const yk_tensor *x = yk__parameters_at(group->params, i);
            if (group->states[i].record != r)
                continue;
            leader = leader ? leader : x;
            if (!o->pending[i] || x->dtype != leader->dtype ||
                !yk_device_equal(yk__device_of(x), yk__device_of(leader)))
                return false;
        }
    }
    return true;
}

/* True if a step of parameter i can go with that of the first: they have the same number, which the device counts in
 * one place where it may have left some out. */
static bool goes_with(const yk__optim_group *group, int64_t i, int64_t first)
{
    const yk__optim_state *a = &group->states[i], *b = &group->states[first];
    bool unsure = (a->record && group->device_steps[a->record - 1].unsure) ||
                  (b->record && group->device_steps[b->record - 1].unsure);
    return a->step == b->step && (!unsure || a->record == b->record);
}

/* Gathers what can go with the first pending parameter, at `first`, into the batch. */
static yk_status gather(yk_optimizer *o, yk__optim_group *group, int64_t first)
{
    yk__optim_batch *batch = &o->batch;
    const yk_tensor *leader = yk__parameters_at(group->params, first);
    batch->count = 0;
    for (int64_t i = first; i < group->count; i++) {
        yk_tensor *x = yk__parameters_at(group->params, i);
        yk__optim_state *state = &group->states[i];
        if (!o->pending[i] || !goes_with(group, i, first) || x->dtype != leader->dtype ||
            !yk_device_equal(yk__device_of(x), yk__device_of(leader)))
            continue;
        int64_t n = batch->count;
        for (int s = 0; s < YK__OPTIM_STATES; s++) {
            if (!yk__optim_uses(o->kind, group, x, s))
                continue;
            yk_status status = settle_state(o->kind, group, state, s, x);
            if (status)
                return status;
            batch->states[s][n] = yk__view_of(state->tensors[s]);
        }
        bool master = yk__optim_has_master(group, x);
        /* A recording does it before each replay instead: graph_member.c. */
        yk_status status = master && !yk__graph_records(yk__device_of(x)) ? yk__master_follow(group, i) : YK_OK;
        if (status)
            return status;
        o->wide[n] = yk__raw_cast(yk_grad(x), yk__optim_state_dtype(group, x));
        if (!o->wide[n])
            return yk__error_code();
        batch->count++;
        batch->params[n] = master ? batch->states[YK__OPTIM_MASTER][n] : yk__view_of(x);
        batch->grads[n] = yk__view_of(o->wide[n]);
        batch->indices[n] = i;
    }
    return YK_OK;
}

void yk__optimizer_keep_steps_on_device(yk_optimizer *o)
{
    o->steps_on_device = true;
}

yk_status yk__optimizer_set_device_step(yk__device_step *record, double lr, int64_t step)
{
    yk_device device = record->memory->device;
    const yk__backend *backend = yk__backend_of(device);
    yk__step_state *state = record->memory->data;
    if (record->step == step && record->lr == lr)
        return YK_OK;
    if (yk__graph_records(device)) /* it would be set to these in each replay */
        return yk__fail(YK_ERR_STATE, "the learning rate or the step's number was changed in the recording");
    yk_status status = YK_OK;
    if (record->step != step) {
        yk__view v = {.data = (char *)state + offsetof(yk__step_state, step), .dtype = YK_I64};
        status = backend->fill(device.index, &v, (double)step);
    }
    if (!status && record->lr != lr) {
        yk__view v = {.data = (char *)state + offsetof(yk__step_state, lr), .dtype = YK_F64};
        status = backend->fill(device.index, &v, lr);
    }
    record->step = status ? 0 : step; /* 0: the value there is not known */
    record->lr = status ? NAN : lr;
    return status;
}

static bool stands_at(const yk__device_step *record, yk_device device, int64_t step)
{
    return record->step == step && yk_device_equal(record->memory->device, device);
}

/* A record in the memory of `device` with this step and the group's rate: `last`, which the batch's last step took (0:
 * none), if it has them, else another one; its values are written where they differ. */
static yk_status settle_device_step(yk__optim_group *group, yk_device device, int64_t step, int last,
                                    yk__device_step **found)
{
    yk__device_step *record = last ? &group->device_steps[last - 1] : NULL;
    if (record && !stands_at(record, device, step))
        record = NULL;
    for (int i = 0; i < group->n_device_steps && !record; i++)
        if (!group->device_steps[i].unsure && stands_at(&group->device_steps[i], device, step))
            record = &group->device_steps[i];
    if (!record) {
        size_t count = (size_t)group->n_device_steps + 1;
        yk__device_step *grown = yk__realloc(group->device_steps, count * sizeof(*grown));
        if (!grown)
            return YK_ERR_MEMORY;
        group->device_steps = grown;
        record = &grown[count - 1];
        *record = (yk__device_step){.memory = yk__storage_create(device, sizeof(yk__step_state)), .lr = NAN};
        if (!record->memory)
            return yk__error_code();
        group->n_device_steps++;
    }
    *found = record;
    return yk__optimizer_set_device_step(record, group->lr, step);
}

void yk__optimizer_take_record(yk__optim_group *group, int record, const int64_t *indices, int64_t count)
{
    for (int64_t i = 0; i < group->count; i++) {
        if (group->states[i].record == record + 1)
            group->states[i].record = 0;
    }
    for (int64_t n = 0; n < count; n++)
        group->states[indices[n]].record = record + 1;
}

/* The steps of the batch's parameters by operations. */
static yk_status compose_batch(const yk_optimizer *o, const yk__optim_group *group)
{
    bool recording = yk_no_grad_begin();
    yk_autocast autocast = yk_autocast_begin(yk__device_of(yk__parameters_at(group->params, o->batch.indices[0])).type,
                                             YK_BF16, YK_OPTIONS(yk_autocast_options, .enabled = false));
    yk_status status = YK_OK;
    for (int64_t n = 0; n < o->batch.count && !status; n++) {
        int64_t i = o->batch.indices[n];
        const yk__optim_state *state = &group->states[i];
        yk_tensor *x = yk__parameters_at(group->params, i);
        yk_scope scope = yk_scope_begin();
        status = o->kind->compose(group, state, yk__optim_has_master(group, x) ? state->tensors[YK__OPTIM_MASTER] : x,
                                  o->wide[n]);
        yk_scope_end(scope);
    }
    yk_autocast_end(autocast);
    yk_no_grad_end(recording);
    return status;
}

/* Calls the slot for the batch, whose parameters have taken `step` - 1 steps. */
static yk_status call_slot(yk_optimizer *o, yk__optim_group *group, yk_device device, int64_t step, const int32_t *skip)
{
    const yk__backend *backend = yk__backend_of(device);
    if (o->kind->compose)
        return compose_batch(o, group);
    if (!o->steps_on_device)
        return o->kind->call(backend, device, group, step, NULL, NULL, &o->batch);
    yk__device_step *record = NULL;
    int last = group->states[o->batch.indices[0]].record;
    yk_status status = backend->step_advance ? settle_device_step(group, device, step, last, &record)
                                             : yk__slot_missing(device, "step_advance");
    if (status)
        return status;
    int number = (int)(record - group->device_steps);
    status = yk__optimizer_graph_note(o, group, number, skip != NULL);
    if (!status)
        status = o->kind->call(backend, device, group, step, record->memory->data, skip, &o->batch);
    if (!status)
        status = backend->step_advance(device.index, record->memory->data, skip);
    if (status || yk__graph_records(device))
        return status;
    record->step++;
    record->unsure |= skip != NULL;
    yk__optimizer_take_record(group, number, o->batch.indices, o->batch.count);
    return YK_OK;
}

/* The batch's parameters that have master weights become what those are, rounded. */
static yk_status round_from_masters(const yk_optimizer *o, yk__optim_group *group)
{
    yk_status status = YK_OK;
    for (int64_t n = 0; n < o->batch.count && !status; n++) {
        int64_t i = o->batch.indices[n];
        yk_tensor *x = yk__parameters_at(group->params, i);
        if (yk__optim_has_master(group, x))
            status = yk__raw_copy(x, group->states[i].tensors[YK__OPTIM_MASTER]);
    }
    return status;
}

static yk_status fail_devices(const yk__optim_group *group, int64_t i, yk_device device)
{
    char own[16], other[16];
    return yk__fail(YK_ERR_DEVICE, "optimizer_step_unless: the tensor is on %s, but parameter %s is on %s",
                    yk_device_format(device, other), yk__parameters_name(group->params, i),
                    yk_device_format(yk__device_of(yk__parameters_at(group->params, i)), own));
}

static yk_status group_step(yk_optimizer *o, yk__optim_group *group, yk_device device, const int32_t *skip)
{
    int64_t left = 0;
    yk_status by_rows = yk__optimizer_step_rows(o, group, skip != NULL);
    if (by_rows)
        return by_rows;
    for (int64_t i = 0; i < group->count; i++) {
        o->pending[i] = yk_grad(yk__parameters_at(group->params, i)) != NULL;
        left += o->pending[i];
    }
    if (!steps_are_sure(o, group)) {
        yk_status settled = yk__optimizer_settle(o);
        if (settled)
            return settled;
    }
    for (int64_t first = 0; left > 0; first++) {
        if (!o->pending[first])
            continue;
        const yk_tensor *leader = yk__parameters_at(group->params, first);
        yk_status status = gather(o, group, first);
        if (!status && skip && !yk_device_equal(yk__device_of(leader), device))
            status = fail_devices(group, first, device);
        if (!status)
            status = call_slot(o, group, yk__device_of(leader), group->states[first].step + 1, skip);
        for (int64_t n = 0; n < o->batch.count; n++)
            yk_tensor_release(o->wide[n]);
        if (!status)
            status = round_from_masters(o, group);
        if (status)
            return status;
        bool recorded = yk__graph_records(yk__device_of(leader)); /* nothing was computed */
        for (int64_t n = 0; n < o->batch.count; n++) {
            int64_t index = o->batch.indices[n];
            o->pending[index] = false;
            group->states[index].step += !recorded;
            yk__bump_version(yk__parameters_at(group->params, index));
            yk__master_same(&group->states[index], yk__parameters_at(group->params, index));
        }
        left -= o->batch.count;
    }
    return YK_OK;
}

/* Refuses a recording of a kind whose steps are operations, and reads what such a step may be left out by. */
static yk_status compose_begin(const yk_optimizer *o, yk_device device, const int32_t *skip, int32_t *left_out)
{
    for (int g = 0; g < o->n_groups; g++) {
        if (yk__graph_records(yk__device_of(yk__parameters_at(o->groups[g].params, 0))))
            return yk__fail(YK_ERR_UNSUPPORTED,
                            "%s: its step has the learning rate of the moment in it, so it is not "
                            "recorded: step it beside the recorded function",
                            o->kind->name);
    }
    yk__operation_name = "optimizer";
    return skip ? yk__backend_of(device)->download(device.index, left_out, skip, sizeof(*left_out)) : YK_OK;
}

yk_status yk__optimizer_step_skipping(yk_optimizer *o, yk_device device, const int32_t *skip)
{
    YK__EVENT(YK__EVENT_OPTIMIZER, "optimizer_step");
    if (o->kind->whole)
        return yk__fail(YK_ERR_ARGUMENT, "%s: a step evaluates the loss several times: yk_optimizer_step_closure",
                        o->kind->name);
    (void)yk__progress_phase(YK__PHASE_OPTIMIZER);
    int32_t left_out = 0;
    if (skip && !o->kind->compose)
        yk__optimizer_keep_steps_on_device(o);
    yk_status joined = o->kind->compose ? compose_begin(o, device, skip, &left_out) : yk__optimizer_graph_begin(o);
    if (joined)
        return joined;
    if (left_out)
        return YK_OK;
    for (int g = 0; g < o->n_groups; g++) {
        yk_status status = group_step(o, &o->groups[g], device, skip);
        if (status)
            return status;
    }
    YK__ASSERT_SOUND(yk__optimizer_check(o));
    yk__optimizer_graph_end(o, yk__progress_phase(YK__PHASE_NONE));
    return YK_OK;
}

yk_status yk_optimizer_step(yk_optimizer *o)
{
    YK__LIVE(o);
    if (!o)
        return yk__fail(YK_ERR_ARGUMENT, "optimizer_step: the optimizer is NULL");
    return yk__optimizer_step_skipping(o, (yk_device){0}, NULL);
}

yk_status yk_optimizer_step_unless(yk_optimizer *o, yk_tensor *found)
{
    YK__LIVE(o);
    YK__LIVE(found);
    if (!o || !found)
        return yk__error_code()
                   ? yk__error_code()
                   : yk__fail(YK_ERR_ARGUMENT, "optimizer_step_unless: the %s is NULL", o ? "tensor" : "optimizer");
    if ((yk_dtype)found->dtype != YK_I32 || found->numel != 1) {
        char shape[200];
        return yk__fail((yk_dtype)found->dtype != YK_I32 ? YK_ERR_DTYPE : YK_ERR_SHAPE,
                        "optimizer_step_unless: the tensor is %s of shape %s, expected one int32",
                        yk_dtype_name((yk_dtype)found->dtype), yk_shape_format(found, shape, sizeof(shape)));
    }
    return yk__optimizer_step_skipping(o, yk__device_of(found), found->data);
}

yk_status yk__optimizer_evaluate(yk_closure_fn closure, void *user, double *loss)
{
    bool recording = yk_enable_grad_begin();
    yk_scope scope = yk_scope_begin();
    yk_tensor *value = closure(user);
    yk_status status = value ? YK_OK : yk__error_code();
    if (!value && !status)
        status = yk__fail(YK_ERR_ARGUMENT, "optimizer_step_closure: the closure gave NULL, expected the loss");
    if (!status && yk__is_freed(value))
        status = yk__fail_freed("optimizer_step_closure", value);
    if (!status && yk_numel(value) != 1) {
        char shape[200];
        status =
            yk__fail(YK_ERR_SHAPE, "optimizer_step_closure: the closure gave a tensor of shape %s, expected one number",
                     yk_shape_format(value, shape, sizeof(shape)));
    }
    if (!status && loss) {
        *loss = yk_item(value);
        status = yk__error_code();
    }
    yk_scope_end(scope);
    yk_enable_grad_end(recording);
    return status;
}

yk_status yk_optimizer_step_closure(yk_optimizer *o, yk_closure_fn closure, void *user, double *loss)
{
    YK__LIVE(o);
    if (!o || !closure)
        return yk__error_code()
                   ? yk__error_code()
                   : yk__fail(YK_ERR_ARGUMENT, "optimizer_step_closure: the %s is NULL", o ? "closure" : "optimizer");
    if (!o->kind->whole) {
        yk_status status = yk__optimizer_evaluate(closure, user, loss);
        return status ? status : yk_optimizer_step(o);
    }
    if (yk__graph_current())
        return yk__fail(YK_ERR_UNSUPPORTED, "%s: a step decides by the loss, so it is in no recording", o->kind->name);
    bool recording = yk_no_grad_begin();
    yk_status status = o->kind->whole->step(o, closure, user, loss);
    yk_no_grad_end(recording);
    if (!status)
        yk__progress_step_at(0);
    return status;
}

void yk_optimizer_zero_grad(yk_optimizer *o)
{
    YK__LIVE(o);
    if (!yk__is_there("optimizer_zero_grad", "optimizer", o))
        return;
    for (int g = 0; g < o->n_groups; g++) {
        for (int64_t i = 0; i < o->groups[g].count; i++) {
            yk_status dropped = yk_set_grad(yk__parameters_at(o->groups[g].params, i), NULL);
            (void)dropped; /* dropping has no way to fail */
        }
    }
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

int yk_optimizer_group_count(const yk_optimizer *o)
{
    YK__LIVE(o);
    return o ? o->n_groups : 0;
}

yk_parameters *yk_optimizer_group(const yk_optimizer *o, int group)
{
    YK__LIVE(o);
    return o && group >= 0 && group < o->n_groups ? o->groups[group].params : NULL;
}

double yk_optimizer_lr(const yk_optimizer *o, int group)
{
    YK__LIVE(o);
    return o && group >= 0 && group < o->n_groups ? o->groups[group].lr : NAN;
}

yk_status yk_optimizer_set_lr(yk_optimizer *o, int group, double lr)
{
    YK__LIVE(o);
    if (!o)
        return yk__fail(YK_ERR_ARGUMENT, "optimizer_set_lr: the optimizer is NULL");
    if (group < -1 || group >= o->n_groups)
        return yk__fail(YK_ERR_ARGUMENT, "optimizer_set_lr: there is no group %d; the optimizer has %d", group,
                        o->n_groups);
    yk_status status = yk__check_number("optimizer_set_lr", "lr", lr, 0, INFINITY);
    for (int g = 0; g < o->n_groups && !status; g++) {
        if (group == -1 || group == g)
            o->groups[g].lr = lr;
    }
    return status;
}

yk_tensor *yk_optimizer_state(const yk_optimizer *o, const yk_tensor *parameter, const char *name)
{
    YK__LIVE(o);
    YK__LIVE(parameter);
    YK__QUESTION;
    const yk__optim_state *state = o && parameter && name ? find_state(o, parameter) : NULL;
    if (state && yk__optimizer_settle(o))
        return NULL;
    for (int s = 0; state && state->step && s < YK__OPTIM_STATES; s++) {
        const char *own = yk__optim_state_name(o->kind, s);
        if (own && strcmp(own, name) == 0)
            return state->tensors[s];
    }
    return NULL;
}

int64_t yk_optimizer_state_step(const yk_optimizer *o, const yk_tensor *parameter)
{
    YK__LIVE(o);
    YK__LIVE(parameter);
    YK__QUESTION;
    const yk__optim_state *state = o && parameter ? find_state(o, parameter) : NULL;
    if (state && yk__optimizer_settle(o))
        return 0;
    if (state && o->whole)
        return o->kind->whole->steps(o->whole);
    return state ? state->step : 0;
}

yk_optimizer *yk_optimizer_retain(yk_optimizer *o)
{
    return yk_object_retain(o);
}

void yk_optimizer_release(yk_optimizer *o)
{
    yk_object_release(o);
}
