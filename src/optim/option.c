/*
 * option.c - a group's options by the names that they have in torch.optim's param_groups. Layer: optim.
 */
#include <math.h>
#include <string.h>

#include "nn/module.h"
#include "optim/optimizer.h"

enum { MOST_NAMES = YK__OPTIM_NUMBERS + 4 };

/* An option: `count` as in yk__optim_number, but a single number of several is one, too. */
typedef struct field {
    size_t offset;
    bool flag, fixed;
} field;

/* Finds an option of the kind; else lists the names that there are. */
static bool find(const yk__optim_kind *kind, const char *name, field *found, const char **names, size_t *count)
{
    const yk__optim_number *number;
    *count = 0;
    for (int i = 0; (number = yk__optim_number_at(kind, i)); i++) {
        static const char *const pair[] = {"beta1", "beta2"}, *const triple[] = {"ns_a", "ns_b", "ns_c"};
        if (strcmp(number->name, "initial_lr") == 0)
            continue;
        for (int k = 0; k < (number->count > 1 ? number->count : 1); k++) {
            const char *own = number->count > 2 ? triple[k] : number->count > 1 ? pair[k] : number->name;
            names[(*count)++] = own;
            if (strcmp(own, name) == 0) {
                *found = (field){number->offset + (size_t)k * sizeof(double), number->count == 0, number->fixed};
                return true;
            }
        }
    }
    return false;
}

/* The group with the option in `found`; an error in the name of `what` where one of them is not there. */
static yk_status look_up(const char *what, const yk_optimizer *o, int group, const char *name, field *found)
{
    const char *names[MOST_NAMES];
    size_t count;
    if (!o || !name)
        return yk__error_code() ? yk__error_code()
                                : yk__fail(YK_ERR_ARGUMENT, "%s: the %s is NULL", what, o ? "name" : "optimizer");
    if (group < 0 || group >= o->n_groups)
        return yk__fail(YK_ERR_ARGUMENT, "%s: there is no group %d; the optimizer has %d", what, group, o->n_groups);
    if (find(o->kind, name, found, names, &count))
        return YK_OK;
    const char *near = yk__nearest(name, names, count);
    return yk__fail(YK_ERR_NOT_FOUND, "%s: %s has no option '%.60s'%s%s%s", what, o->kind->name, name,
                    near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

double yk_optimizer_option(const yk_optimizer *o, int group, const char *name)
{
    YK__LIVE(o);
    field found;
    if (look_up("optimizer_option", o, group, name, &found))
        return NAN;
    const char *at = (const char *)&o->groups[group] + found.offset;
    return found.flag ? *(const bool *)at : *(const double *)(const void *)at;
}

static bool has_steps(const yk__optim_group *group)
{
    for (int64_t i = 0; i < group->count; i++) {
        if (group->states[i].step > 0)
            return true;
    }
    return false;
}

static yk_status set_option(const yk_optimizer *o, yk__optim_group *group, const char *name, const field *at,
                            double value)
{
    yk__optim_group changed = *group;
    void *number = (char *)&changed + at->offset;
    if (at->flag && value != 0 && value != 1)
        return yk__fail(YK_ERR_ARGUMENT, "optimizer_set_option: %s is %g, expected 0 or 1", name, value);
    if (at->fixed && *(bool *)number != (value != 0))
        return yk__fail(YK_ERR_ARGUMENT, "optimizer_set_option: %s of %s stays %d", name, o->kind->name,
                        *(bool *)number);
    if (at->flag)
        *(bool *)number = value != 0;
    else
        *(double *)number = value;
    yk_status status = yk__check_number(o->kind->name, "lr", changed.lr, 0, INFINITY);
    if (!status)
        status = o->kind->check(o->kind, &changed);
    if (!status && o->kind->states(&changed) != o->kind->states(group) && has_steps(group))
        status = yk__fail(YK_ERR_STATE,
                          "optimizer_set_option: %s of %s decides which state there is, so it cannot become %g after "
                          "the first step",
                          name, o->kind->name, value);
    if (!status) {
        group->lr = changed.lr;
        group->options = changed.options;
    }
    return status;
}

yk_status yk_optimizer_set_option(yk_optimizer *o, int group, const char *name, double value)
{
    YK__LIVE(o);
    field found;
    yk_status status = look_up("optimizer_set_option", o, group == -1 ? 0 : group, name, &found);
    for (int pass = 0; pass < 2 && !status; pass++) { /* the second one changes: all groups, or none */
        for (int g = 0; g < o->n_groups && !status; g++) {
            yk__optim_group tried = o->groups[g];
            if (group == -1 || group == g)
                status = set_option(o, pass ? &o->groups[g] : &tried, name, &found, value);
        }
    }
    return status;
}
