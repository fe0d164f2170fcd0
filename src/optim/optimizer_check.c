/*
 * optimizer_check.c - the invariants of an optimizer's groups and state. Layer: optim.
 */
#include <inttypes.h>
#include <math.h>

#include "base/invariant.h"
#include "nn/state_dict.h"
#include "optim/optimizer.h"

/* The number of times that the tensor is a parameter of the optimizer. */
static int times(const yk_optimizer *o, const yk_tensor *x)
{
    int count = 0;
    for (int g = 0; g < o->n_groups; g++)
        for (int64_t i = 0; i < o->groups[g].count; i++)
            count += yk__parameters_at(o->groups[g].params, i) == x;
    return count;
}

static const char *check_state(const yk_optimizer *o, const yk__optim_group *group, int64_t i)
{
    const yk__optim_state *state = &group->states[i];
    const yk_tensor *x = yk__parameters_at(group->params, i);
    const char *name = yk__parameters_name(group->params, i);
    if (!x || yk__is_freed(x))
        return yk__broken("%s: parameter %s %s", o->kind->name, name, x ? "was freed" : "is NULL");
    if (times(o, x) != 1)
        return yk__broken("%s: parameter %s is in the groups %d times", o->kind->name, name, times(o, x));
    if (state->step < 0)
        return yk__broken("%s: parameter %s has %" PRId64 " steps behind it", o->kind->name, name, state->step);
    for (int s = 0; s < YK__OPTIM_STATES; s++) {
        const yk_tensor *tensor = state->tensors[s];
        const char *what = yk__optim_state_name(o->kind, s) ? yk__optim_state_name(o->kind, s) : "(no name)";
        if (tensor && (yk__is_freed(tensor) || !yk_same_shape(tensor, x))) {
            char a[200], b[200];
            return yk__broken("%s: parameter %s has the shape %s, its %s %s", o->kind->name, name,
                              yk_shape_format(x, a, sizeof(a)), what,
                              yk__is_freed(tensor) ? "was freed" : yk_shape_format(tensor, b, sizeof(b)));
        }
        if (yk__optim_uses(o->kind, group, x, s) && state->step && !tensor)
            return yk__broken("%s: parameter %s has %" PRId64 " steps behind it and no %s", o->kind->name, name,
                              state->step, what);
    }
    return NULL;
}

const char *yk__optimizer_check(const yk_optimizer *o)
{
    const char *wrong = NULL;
    if (o->n_groups < 1)
        return yk__broken("%s has %d groups", o->kind->name, o->n_groups);
    for (int g = 0; g < o->n_groups && !wrong; g++) {
        const yk__optim_group *group = &o->groups[g];
        if (group->count != yk__parameters_count(group->params) || group->count > o->capacity)
            return yk__broken("%s: group %d has %" PRId64 " parameters and counts %" PRId64 ", with room for %" PRId64,
                              o->kind->name, g, yk__parameters_count(group->params), group->count, o->capacity);
        if (!(group->lr >= 0) || isinf(group->lr))
            return yk__broken("%s: group %d has the learning rate %g", o->kind->name, g, group->lr);
        for (int64_t i = 0; i < group->count && !wrong; i++)
            wrong = check_state(o, group, i);
        for (int d = 0; d < group->n_device_steps && !wrong; d++)
            if (!group->device_steps[d].memory || group->device_steps[d].step < 0)
                wrong =
                    yk__broken("%s: group %d has step %" PRId64 " in %s of a device", o->kind->name, g,
                               group->device_steps[d].step, group->device_steps[d].memory ? "the memory" : "no memory");
    }
    return wrong;
}
