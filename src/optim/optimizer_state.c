/*
 * optimizer_state.c - an optimizer's state as a list of tensors, and back. Layer: optim.
 *
 * Loading prepares all groups beside the old ones and swaps them at the end, so an error leaves the optimizer as it
 * was.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn/module.h"
#include "optim/optimizer.h"

enum { NAME_ROOM = 640 }; /* for a parameter's name and the words around it */

static const yk__optim_number common[] = {{"lr", offsetof(yk__optim_group, lr), 1, false},
                                          {"initial_lr", offsetof(yk__optim_group, initial_lr), 1, false}};

const yk__optim_number *yk__optim_number_at(const yk__optim_kind *kind, int i)
{
    int shared = (int)(sizeof(common) / sizeof(*common));
    if (i < shared)
        return &common[i];
    i -= shared;
    return i < YK__OPTIM_NUMBERS && kind->numbers[i].name ? &kind->numbers[i] : NULL;
}

/* "state.NAME.WHAT" or "param_groups.N.WHAT". */
static yk_status state_name(char name[NAME_ROOM], const char *parameter, const char *what)
{
    if (snprintf(name, NAME_ROOM, "state.%s.%s", parameter, what) >= NAME_ROOM)
        return yk__fail(YK_ERR_ARGUMENT, "optimizer state: the parameter's name '%.60s...' is too long", parameter);
    return YK_OK;
}

static const char *group_name(char name[NAME_ROOM], int group, const char *what)
{
    snprintf(name, NAME_ROOM, "param_groups.%d.%s", group, what);
    return name;
}

/* ---- out --------------------------------------------------------------------------------------------------------- */

/* A new tensor on the CPU; ndim 0 or 1. */
static yk_status add_new(yk_state_dict *dict, const char *name, yk_dtype dtype, int64_t count, int ndim,
                         const void *values)
{
    yk_tensor *x = yk__tensor_new(ndim, &count, NULL, dtype, (yk_device){0});
    if (!x)
        return yk__error_code();
    memcpy(x->data, values, (size_t)count * yk_dtype_size(dtype));
    yk_status status = yk_state_dict_add(dict, name, x);
    yk_tensor_release(x);
    return status;
}

static yk_status add_parameter(const yk_optimizer *o, const yk__optim_group *group, int64_t i, yk_state_dict *dict)
{
    const yk__optim_state *state = &group->states[i];
    const char *parameter = yk__parameters_name(group->params, i);
    char name[NAME_ROOM];
    if (!state->step)
        return YK_OK;
    yk_status status = state_name(name, parameter, "step");
    if (!status)
        status = add_new(dict, name, YK_I64, 1, 0, &state->step);
    for (int s = 0; s < YK__OPTIM_STATES && !status; s++) {
        if (!state->tensors[s])
            continue;
        status = state_name(name, parameter, yk__optim_state_name(o->kind, s));
        if (!status)
            status = yk_state_dict_add(dict, name, state->tensors[s]);
    }
    return status;
}

static yk_status add_group(const yk_optimizer *o, int g, yk_state_dict *dict)
{
    const yk__optim_group *group = &o->groups[g];
    const yk__optim_number *number;
    char name[NAME_ROOM];
    yk_status status = YK_OK;
    for (int i = 0; (number = yk__optim_number_at(o->kind, i)) && !status; i++) {
        const void *value = (const char *)group + number->offset;
        if (value == &group->initial_lr && isnan(group->initial_lr))
            continue;
        status = number->count
                     ? add_new(dict, group_name(name, g, number->name), YK_F64, number->count, number->count > 1, value)
                     : add_new(dict, group_name(name, g, number->name), YK_BOOL, 1, 0, value);
    }
    return status ? status : add_new(dict, group_name(name, g, "params"), YK_I64, 1, 0, &group->count);
}

yk_state_dict *yk_optimizer_state_dict(const yk_optimizer *o)
{
    YK__LIVE(o);
    if (!o) {
        yk__fail(YK_ERR_ARGUMENT, "optimizer_state_dict: the optimizer is NULL");
        return NULL;
    }
    yk_state_dict *dict = yk__scope_check("optimizer_state_dict") ? yk__state_dict_new() : NULL;
    yk_status status = dict ? yk__optimizer_settle(o) : yk__error_code();
    if (!status)
        status = yk__optimizer_follow(o);
    for (int g = 0; g < o->n_groups && !status; g++) {
        for (int64_t i = 0; i < o->groups[g].count && !status; i++)
            status = add_parameter(o, &o->groups[g], i, dict);
    }
    if (!status && o->whole)
        status = o->kind->whole->save(o, dict);
    for (int g = 0; g < o->n_groups && !status; g++)
        status = add_group(o, g, dict);
    if (status) {
        yk_state_dict_release(dict);
        return NULL;
    }
    return yk__scope_own(dict);
}

/* A tensor on the CPU of x's shape, and of its order where it is dense, whose data is NULL. */
static yk_tensor *outline_of(const yk_tensor *x, yk_dtype dtype)
{
    size_t bytes = (size_t)x->numel * yk_dtype_size(dtype);
    yk_tensor *outline =
        yk__tensor_over(yk__storage_wrap((yk_device){0}, NULL, bytes, NULL, NULL), x->ndim, x->shape, dtype);
    if (outline && yk__is_dense(x))
        memcpy(outline->stride, x->stride, sizeof(outline->stride));
    return outline;
}

static yk_status add_outline(const yk_optimizer *o, const yk__optim_group *group, int64_t i, yk_state_dict *dict)
{
    const yk_tensor *x = yk__parameters_at(group->params, i);
    yk_status status = YK_OK;
    for (int s = 0; s < YK__OPTIM_STATES && !status; s++) {
        char name[NAME_ROOM];
        if (!yk__optim_uses(o->kind, group, x, s))
            continue;
        status = state_name(name, yk__parameters_name(group->params, i), yk__optim_state_name(o->kind, s));
        if (status)
            break;
        yk_tensor *outline = outline_of(x, yk__optim_state_dtype(group, x));
        status = yk_state_dict_add(dict, name, outline);
        yk_tensor_release(outline);
    }
    return status;
}

yk_state_dict *yk__optimizer_state_outline(const yk_optimizer *o)
{
    yk_state_dict *dict = yk__state_dict_new();
    yk_status status = dict ? YK_OK : YK_ERR_MEMORY;
    for (int g = 0; g < o->n_groups && !status; g++) {
        for (int64_t i = 0; i < o->groups[g].count && !status; i++)
            status = add_outline(o, &o->groups[g], i, dict);
    }
    if (!status)
        return dict;
    yk_state_dict_release(dict);
    return NULL;
}

/* ---- in ---------------------------------------------------------------------------------------------------------- */

yk_status yk__optimizer_numbers(const char *name, yk_tensor *x, int64_t count, double *values)
{
    if (yk_numel(x) != count)
        return yk__fail(YK_ERR_SHAPE, "optimizer state: %s has %lld elements, expected %lld", name,
                        (long long)yk_numel(x), (long long)count);
    yk_tensor *wide = yk__raw_cast(x, YK_F64);
    yk_status status = wide ? yk_tensor_read(wide, values, (size_t)count * sizeof(*values)) : yk__error_code();
    yk_tensor_release(wide);
    return status;
}

static yk_status load_number(const yk_optimizer *o, yk__optim_group *group, int g, const yk__optim_number *number,
                             bool required, const yk_state_dict *dict)
{
    char name[NAME_ROOM];
    int64_t at = yk_state_dict_find(dict, group_name(name, g, number->name));
    if (at < 0)
        return required ? yk__fail(YK_ERR_NOT_FOUND, "%s: the state has no '%s': it is not of this kind of optimizer",
                                   o->kind->name, name)
                        : YK_OK;
    double values[YK__OPTIM_ROW];
    yk_status status =
        yk__optimizer_numbers(name, yk__state_dict_at(dict, at), number->count ? number->count : 1, values);
    if (status)
        return status;
    void *field = (char *)group + number->offset;
    if (number->fixed && *(bool *)field != (values[0] != 0))
        return yk__fail(YK_ERR_ARGUMENT, "%s: the state has %s %s: it is not of this kind of optimizer", o->kind->name,
                        name, values[0] != 0 ? "true" : "false");
    if (number->count)
        memcpy(field, values, (size_t)number->count * sizeof(*values));
    else
        *(bool *)field = values[0] != 0;
    return YK_OK;
}

static yk_status load_numbers(const yk_optimizer *o, yk__optim_group *group, int g, const yk_state_dict *dict)
{
    const yk__optim_number *number;
    yk_status status = YK_OK;
    for (int i = 0; (number = yk__optim_number_at(o->kind, i)) && !status; i++)
        status = load_number(o, group, g, number, i == 0 || number == o->kind->numbers, dict);
    char name[NAME_ROOM];
    int64_t at = status ? -1 : yk_state_dict_find(dict, group_name(name, g, "params"));
    double count;
    if (at < 0)
        return status;
    status = yk__optimizer_numbers(name, yk__state_dict_at(dict, at), 1, &count);
    if (!status && count != (double)group->count)
        status = yk__fail(YK_ERR_SHAPE, "%s: group %d has %lld parameters, but %.0f in the state", o->kind->name, g,
                          (long long)group->count, count);
    return status;
}

/* The place of a parameter's state, one reference: the tensor itself; or room for its values on the device, in the
 * dtype and order in which the parameter's state is kept, which is that of `old`, the state so far, where nobody else
 * has it. */
static yk_tensor *place_state(yk_tensor *given, yk_tensor *x, yk_dtype dtype, yk_tensor *old, bool adopt)
{
    if (adopt && given->data && (yk_dtype)given->dtype == dtype &&
        yk_device_equal(yk__device_of(given), yk__device_of(x)) && yk__same_strides(given, x) &&
        given->storage->bytes == (size_t)given->numel * yk_dtype_size(dtype))
        return yk_tensor_retain(given);
    if (old && atomic_load(&old->object.references) == 1 && atomic_load(&old->storage->references) == 1)
        return yk_tensor_retain(old);
    return yk__tensor_like(x, dtype);
}

/* The index in the group of the parameter whose state "state.PARAMETER.WHAT" is; -1 if it is no parameter's. */
static int64_t parameter_of(const yk__optim_group *group, const char *name, const char *what)
{
    static const char prefix[] = "state.";
    size_t begin = sizeof(prefix) - 1, all = strlen(name), end = strlen(what);
    if (strncmp(name, prefix, begin) != 0 || all < begin + end + 2 || name[all - end - 1] != '.' ||
        strcmp(name + all - end, what) != 0)
        return -1;
    char parameter[NAME_ROOM];
    snprintf(parameter, sizeof(parameter), "%.*s", (int)(all - begin - end - 1), name + begin);
    return yk_state_dict_find(yk__parameters_list(group->params), parameter);
}

bool yk__optimizer_adopts(const yk_optimizer *o, const char *name, yk_dtype dtype)
{
    for (int g = 0; g < o->n_groups; g++) {
        const yk__optim_group *group = &o->groups[g];
        for (int s = 0; s < YK__OPTIM_STATES; s++) {
            const char *what = yk__optim_state_name(o->kind, s);
            int64_t i = what ? parameter_of(group, name, what) : -1;
            const yk_tensor *x = i < 0 ? NULL : yk__parameters_at(group->params, i);
            if (x)
                return !group->states[i].tensors[s] && yk__optim_state_dtype(group, x) == dtype &&
                       yk_device_equal(yk__device_of(x), (yk_device){0}) && yk_is_contiguous(x);
        }
    }
    return false;
}

int64_t yk__optimizer_entry(const yk_state_dict *dict, const char *parameter, const char *what)
{
    static const char prefix[] = "module.";
    char name[NAME_ROOM];
    if (snprintf(name, sizeof(name), "state.%s.%s", parameter, what) >= NAME_ROOM)
        return -1;
    int64_t at = yk_state_dict_find(dict, name);
    if (at >= 0)
        return at;
    bool has = strncmp(parameter, prefix, sizeof(prefix) - 1) == 0;
    if (snprintf(name, sizeof(name), "state.%s%s.%s", has ? "" : prefix, parameter + (has ? sizeof(prefix) - 1 : 0),
                 what) >= NAME_ROOM)
        return -1;
    return yk_state_dict_find(dict, name);
}

static yk_status load_tensor(const yk_optimizer *o, const yk__optim_group *group, yk__optim_state *state, int s,
                             const char *parameter, yk_tensor *x, const yk_state_dict *dict, int64_t at, yk_tensor *old,
                             bool adopt)
{
    const char *what = yk__optim_state_name(o->kind, s);
    char a[200], b[200];
    yk_tensor *given = yk__state_dict_at(dict, at);
    if (!yk_same_shape(given, x))
        return yk__fail(YK_ERR_SHAPE, "%s: %s of %s has shape %s, expected %s", o->kind->name, what, parameter,
                        yk_shape_format(given, a, sizeof(a)), yk_shape_format(x, b, sizeof(b)));
    if (!yk_dtype_is_floating((yk_dtype)given->dtype))
        return yk__fail(YK_ERR_DTYPE, "%s: %s of %s is %s", o->kind->name, what, parameter,
                        yk_dtype_name((yk_dtype)given->dtype));
    state->tensors[s] = place_state(given, x, yk__optim_state_dtype(group, x), old, adopt);
    return state->tensors[s] ? YK_OK : yk__error_code();
}

/* Loads the state of parameter i; counts the entries of the dict that were for it. */
static yk_status load_parameter(const yk_optimizer *o, yk__optim_group *group, int64_t i, const yk__optim_state *old,
                                const yk_state_dict *dict, bool adopt, int64_t *used)
{
    const char *parameter = yk__parameters_name(group->params, i);
    yk_tensor *x = yk__parameters_at(group->params, i);
    yk__optim_state *state = &group->states[i];
    int found = 0;
    const char *missing = NULL;
    for (int s = 0; s < YK__OPTIM_STATES; s++) {
        if (!yk__optim_uses(o->kind, group, x, s))
            continue;
        int64_t at = yk__optimizer_entry(dict, parameter, yk__optim_state_name(o->kind, s));
        if (at < 0) {
            missing = yk__optim_state_name(o->kind, s);
            continue;
        }
        yk_status status = load_tensor(o, group, state, s, parameter, x, dict, at, old->tensors[s], adopt);
        if (status)
            return status;
        found++;
    }
    int64_t at = yk__optimizer_entry(dict, parameter, "step");
    double step = found > 0;
    if (at >= 0) {
        yk_status status = yk__optimizer_numbers("step", yk__state_dict_at(dict, at), 1, &step);
        if (status)
            return status;
        if (!(step >= 1 && step < 0x1p53 && step == floor(step)))
            return yk__fail(YK_ERR_ARGUMENT, "%s: step of %s is %g, expected a positive integer", o->kind->name,
                            parameter, step);
    } else if (found && o->kind->counts) {
        missing = "step";
    }
    if (missing && (found || at >= 0))
        return yk__fail(YK_ERR_NOT_FOUND, "%s: the state of %s has no %s", o->kind->name, parameter, missing);
    state->step = (int64_t)step;
    state->loaded = true;
    *used += found + (at >= 0);
    return YK_OK;
}

/* Names an entry that belongs to no parameter. */
static yk_status refuse_entry(const yk_optimizer *o, const yk_state_dict *dict)
{
    for (int64_t n = 0; n < yk__state_dict_count(dict); n++) {
        const char *name = yk__state_dict_name(dict, n);
        bool known = strncmp(name, "state.", 6) != 0;
        const char *first = yk__parameters_name(o->groups[0].params, 0);
        for (int w = 0; o->kind->whole && o->kind->whole->names[w] && !known; w++)
            known = yk__optimizer_entry(dict, first, o->kind->whole->names[w]) == n;
        for (int g = 0; g < o->n_groups && !known; g++) {
            const yk__optim_group *group = &o->groups[g];
            for (int64_t i = 0; i < group->count && !known; i++) {
                const char *parameter = yk__parameters_name(group->params, i);
                known = yk__optimizer_entry(dict, parameter, "step") == n;
                for (int s = 0; s < YK__OPTIM_STATES && !known; s++) {
                    const char *what = yk__optim_state_name(o->kind, s);
                    known = what && yk__optimizer_entry(dict, parameter, what) == n;
                }
            }
        }
        if (!known)
            return yk__fail(YK_ERR_NOT_FOUND, "%s: '%s' is of no parameter of this optimizer", o->kind->name, name);
    }
    return yk__fail(YK_ERR_ARGUMENT, "%s: the state has tensors that these options do not use", o->kind->name);
}

static void states_free(yk__optim_state *states, int64_t count)
{
    for (int64_t i = 0; states && i < count; i++) {
        for (int s = 0; s < YK__OPTIM_STATES; s++)
            yk_tensor_release(states[i].tensors[s]);
    }
    free(states);
}

static int groups_of(const yk_state_dict *dict)
{
    char name[NAME_ROOM];
    int n = 0;
    while (yk_state_dict_find(dict, group_name(name, n, "lr")) >= 0)
        n++;
    return n;
}

static yk_status state_room_make(const yk_optimizer *o, const yk_state_dict *dict, bool adopt, yk__optim_group *groups,
                                 void **whole)
{
    int64_t entries = 0, used = 0;
    yk_status status = YK_OK;
    for (int64_t n = 0; n < yk__state_dict_count(dict); n++)
        entries += strncmp(yk__state_dict_name(dict, n), "state.", 6) == 0;
    for (int g = 0; g < o->n_groups && !status; g++) {
        groups[g] = o->groups[g];
        groups[g].states = yk__calloc((size_t)groups[g].count, sizeof(*groups[g].states));
        status = groups[g].states ? load_numbers(o, &groups[g], g, dict) : YK_ERR_MEMORY;
        for (int64_t i = 0; i < groups[g].count && !status; i++)
            status = load_parameter(o, &groups[g], i, &o->groups[g].states[i], dict, adopt, &used);
    }
    if (!status && o->kind->whole)
        status = o->kind->whole->load(o, dict, whole, &used);
    return !status && used != entries ? refuse_entry(o, dict) : status;
}

/* Puts the values where state_room_make made room for them. */
static yk_status state_fill(const yk_optimizer *o, const yk_state_dict *dict, const yk__optim_group *groups)
{
    yk_status status = YK_OK;
    for (int g = 0; g < o->n_groups; g++) {
        for (int64_t i = 0; i < groups[g].count; i++) {
            for (int s = 0; s < YK__OPTIM_STATES && !status; s++) {
                yk_tensor *to = groups[g].states[i].tensors[s];
                const char *parameter = yk__parameters_name(groups[g].params, i);
                int64_t at = to ? yk__optimizer_entry(dict, parameter, yk__optim_state_name(o->kind, s)) : -1;
                if (at < 0 || yk__state_dict_at(dict, at) == to)
                    continue;
                status = yk__state_dict_copy(dict, at, to);
                yk__bump_version(to);
            }
        }
    }
    return status;
}

yk_status yk__optimizer_load_state(yk_optimizer *o, const yk_state_dict *dict, bool adopt)
{
    if (!o || !dict)
        return yk__error_code()
                   ? yk__error_code()
                   : yk__fail(YK_ERR_ARGUMENT, "optimizer_load_state_dict: the %s is NULL", o ? "state" : "optimizer");
    int found = groups_of(dict);
    if (found != o->n_groups)
        return yk__fail(YK_ERR_SHAPE, "%s: the optimizer has %d groups of parameters, but the state has %d",
                        o->kind->name, o->n_groups, found);
    yk_status status = yk__optimizer_settle(o); /* the records stay, and are brought to the steps that are loaded */
    if (status)
        return status;
    yk__optim_group *groups = yk__calloc((size_t)o->n_groups, sizeof(*groups));
    if (!groups)
        return YK_ERR_MEMORY;
    void *whole = NULL;
    status = state_room_make(o, dict, adopt, groups, &whole);
    if (!status)
        status = state_fill(o, dict, groups);
    for (int g = 0; g < o->n_groups; g++) {
        if (status) {
            states_free(groups[g].states, groups[g].count);
            continue;
        }
        states_free(o->groups[g].states, o->groups[g].count);
        o->groups[g] = groups[g];
    }
    if (o->kind->whole) {
        o->kind->whole->free(status ? whole : o->whole);
        o->whole = status ? o->whole : whole;
    }
    free(groups);
    return status;
}

yk_status yk_optimizer_load_state_dict(yk_optimizer *o, const yk_state_dict *dict)
{
    YK__LIVE(o);
    YK__LIVE(dict);
    return yk__optimizer_load_state(o, dict, false);
}
