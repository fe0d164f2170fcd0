/*
 * plateau.c - learning rates that fall where a number gets no better. Layer: optim.
 */
#include <math.h>

#include "optim/optimizer.h"

struct yk_plateau {
    yk__object object;
    yk_optimizer *optimizer;
    yk_plateau_options options;
    yk_plateau_state state;
};

static void plateau_destroy(void *object)
{
    yk_plateau *p = object;
    yk_object_release(p->optimizer);
    yk__object_free(p);
}

static const yk__type plateau_type = {"plateau", plateau_destroy};

yk_plateau *yk_reduce_lr_on_plateau(yk_optimizer *o, const yk_plateau_options *options)
{
    static const char what[] = "reduce_lr_on_plateau";
    yk_plateau_options p;
    YK__LIVE(o);
    if (YK__OPTIONS_TAKE(what, yk_plateau_options, options, &p))
        return NULL;
    if (!o) {
        if (!yk__error_code())
            yk__fail(YK_ERR_ARGUMENT, "%s: the optimizer is NULL", what);
        return NULL;
    }
    if (yk__check_below(what, "factor", p.factor, 0, 1) ||
        yk__check_integer(what, "patience", p.patience, 0, INT64_MAX) ||
        yk__check_number(what, "threshold", p.threshold, 0, INFINITY) ||
        yk__check_integer(what, "cooldown", p.cooldown, 0, INT64_MAX) ||
        yk__check_number(what, "min_lr", p.min_lr, 0, INFINITY) || yk__check_number(what, "eps", p.eps, 0, INFINITY) ||
        !yk__scope_check(what))
        return NULL;
    yk_plateau *made = yk__object_new(&plateau_type, sizeof(*made));
    if (!made)
        return NULL;
    made->optimizer = yk_object_retain(o);
    made->options = p;
    made->state.best = p.max ? -INFINITY : INFINITY;
    return yk__scope_own(made);
}

static bool is_better(const yk_plateau_options *p, double a, double best)
{
    double sign = p->max ? 1 : -1;
    double needed = p->absolute ? best + sign * p->threshold : best * (1 + sign * p->threshold);
    return p->max ? a > needed : a < needed;
}

static void reduce_rates(const yk_plateau *p)
{
    for (int g = 0; g < p->optimizer->n_groups; g++) {
        double *lr = &p->optimizer->groups[g].lr, now = fmax(*lr * p->options.factor, p->options.min_lr);
        if (*lr - now > p->options.eps)
            *lr = now;
    }
}

void yk_plateau_step(yk_plateau *p, double metric)
{
    YK__LIVE(p);
    if (!yk__is_there("plateau_step", "schedule", p))
        return;
    yk_plateau_state *s = &p->state;
    s->last_epoch++;
    if (is_better(&p->options, metric, s->best)) {
        s->best = metric;
        s->num_bad_epochs = 0;
    } else {
        s->num_bad_epochs++;
    }
    if (s->cooldown_counter > 0) {
        s->cooldown_counter--;
        s->num_bad_epochs = 0;
    }
    if (s->num_bad_epochs > (double)p->options.patience) {
        reduce_rates(p);
        s->cooldown_counter = (double)p->options.cooldown;
        s->num_bad_epochs = 0;
    }
}

yk_plateau_state yk_plateau_get_state(const yk_plateau *p)
{
    YK__LIVE(p);
    return p ? p->state : (yk_plateau_state){0};
}

yk_status yk_plateau_set_state(yk_plateau *p, const yk_plateau_state *state)
{
    YK__LIVE(p);
    if (!p || !state)
        return yk__fail(YK_ERR_ARGUMENT, "plateau_set_state: the %s is NULL", p ? "state" : "schedule");
    const double counts[] = {state->num_bad_epochs, state->cooldown_counter, state->last_epoch};
    static const char *const names[] = {"num_bad_epochs", "cooldown_counter", "last_epoch"};
    for (int i = 0; i < 3; i++) {
        if (!(counts[i] >= 0 && counts[i] < 0x1p53 && counts[i] == floor(counts[i])))
            return yk__fail(YK_ERR_ARGUMENT, "plateau_set_state: %s is %g, expected a number of epochs", names[i],
                            counts[i]);
    }
    if (isnan(state->best))
        return yk__fail(YK_ERR_ARGUMENT, "plateau_set_state: best is nan");
    p->state = *state;
    return YK_OK;
}

yk_plateau *yk_plateau_retain(yk_plateau *p)
{
    return yk_object_retain(p);
}

void yk_plateau_release(yk_plateau *p)
{
    yk_object_release(p);
}
