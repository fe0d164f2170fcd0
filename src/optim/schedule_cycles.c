/*
 * schedule_cycles.c - schedules with several numbers: linear, constant and polynomial stretches, restarts, cycles, and
 * any of them one after another. Layer: optim.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "optim/schedule.h"

static yk_schedule *make(const char *what, yk_optimizer *o, yk__schedule_kind kind, int64_t period,
                         const double *numbers, int count)
{
    yk_schedule *s = yk__schedule_make(what, o, kind);
    if (!s)
        return NULL;
    s->form.period = period;
    memcpy(s->form.numbers, numbers, (size_t)count * sizeof(*numbers));
    return s;
}

yk_schedule *yk_linear_lr(yk_optimizer *o, double start_factor, double end_factor, int64_t total_iters)
{
    static const char what[] = "linear_lr";
    YK__LIVE(o);
    if (yk__check_number(what, "start_factor", start_factor, DBL_MIN, 1) ||
        yk__check_number(what, "end_factor", end_factor, 0, 1) ||
        yk__check_integer(what, "total_iters", total_iters, 1, INT64_MAX))
        return NULL;
    if (end_factor == 1) /* one form of what is the same, for checkpoints of both */
        return yk_linear_warmup_lr(o, total_iters, start_factor, NULL);
    const double numbers[] = {[YK__LINEAR_START] = start_factor, [YK__LINEAR_END] = end_factor};
    return yk__schedule_start(make(what, o, YK__LINEAR_LR, total_iters, numbers, 2));
}

yk_schedule *yk_constant_lr(yk_optimizer *o, double factor, int64_t total_iters)
{
    static const char what[] = "constant_lr";
    YK__LIVE(o);
    if (yk__check_number(what, "factor", factor, 0, 1) ||
        yk__check_integer(what, "total_iters", total_iters, 1, INT64_MAX))
        return NULL;
    return yk__schedule_start(make(what, o, YK__CONSTANT_LR, total_iters, &factor, 1));
}

yk_schedule *yk_polynomial_lr(yk_optimizer *o, int64_t total_iters, double power)
{
    static const char what[] = "polynomial_lr";
    YK__LIVE(o);
    if (yk__check_integer(what, "total_iters", total_iters, 1, INT64_MAX) ||
        yk__check_number(what, "power", power, 0, INFINITY))
        return NULL;
    return yk__schedule_start(make(what, o, YK__POLYNOMIAL_LR, total_iters, &power, 1));
}

yk_schedule *yk_cosine_warm_restarts_lr(yk_optimizer *o, int64_t t_0, int64_t t_mult, double eta_min)
{
    static const char what[] = "cosine_warm_restarts_lr";
    YK__LIVE(o);
    if (yk__check_integer(what, "t_0", t_0, 1, INT64_MAX) || yk__check_integer(what, "t_mult", t_mult, 1, INT64_MAX) ||
        yk__check_number(what, "eta_min", eta_min, 0, INFINITY))
        return NULL;
    const double numbers[] = {[YK__RESTARTS_MULT] = (double)t_mult, [YK__RESTARTS_LEAST] = eta_min};
    return yk__schedule_start(make(what, o, YK__WARM_RESTARTS_LR, t_0, numbers, 2));
}

yk_schedule *yk_swa_lr(yk_optimizer *o, double swa_lr, int64_t anneal_epochs, bool linear)
{
    static const char what[] = "swa_lr";
    YK__LIVE(o);
    if (yk__check_number(what, "swa_lr", swa_lr, 0, INFINITY) ||
        yk__check_integer(what, "anneal_epochs", anneal_epochs, 0, INT64_MAX))
        return NULL;
    const double numbers[] = {[YK__SWA_RATE] = swa_lr, [YK__SWA_LINEAR] = linear};
    return yk__schedule_start(make(what, o, YK__SWA_LR, anneal_epochs, numbers, 2));
}

/* ---- cycles ------------------------------------------------------------------------------------------------------ */

const char *yk__schedule_momentum_name(const yk_optimizer *o)
{
    const yk__optim_number *number;
    for (int i = 0; (number = yk__optim_number_at(o->kind, i)); i++) {
        if (strcmp(number->name, "momentum") == 0)
            return "momentum";
        if (strcmp(number->name, "betas") == 0)
            return "beta1";
    }
    return NULL;
}

/* Refuses momenta that cannot move, and an optimizer that has none to be moved. */
static yk_status check_momentum(const char *what, const yk_optimizer *o, bool cycles, double base, double most)
{
    yk_status status = o ? yk__check_below(what, "base_momentum", base, 0, 1)
                         : yk__fail(YK_ERR_ARGUMENT, "%s: the optimizer is NULL", what);
    if (!status)
        status = yk__check_below(what, "max_momentum", most, 0, 1);
    if (!status && cycles && !yk__schedule_momentum_name(o))
        status =
            yk__fail(YK_ERR_ARGUMENT, "%s: %s has no momentum to move: .cycle_momentum = false", what, o->kind->name);
    return status;
}

yk_schedule *yk_one_cycle_lr(yk_optimizer *o, double max_lr, int64_t total_steps, const yk_one_cycle_options *options)
{
    static const char what[] = "one_cycle_lr";
    yk_one_cycle_options p;
    YK__LIVE(o);
    if (YK__OPTIONS_TAKE(what, yk_one_cycle_options, options, &p) ||
        yk__check_number(what, "max_lr", max_lr, 0, INFINITY) ||
        yk__check_integer(what, "total_steps", total_steps, 1, INT64_MAX) ||
        yk__check_number(what, "pct_start", p.pct_start, 0, 1) ||
        yk__check_number(what, "div_factor", p.div_factor, DBL_MIN, INFINITY) ||
        yk__check_number(what, "final_div_factor", p.final_div_factor, DBL_MIN, INFINITY) ||
        check_momentum(what, o, p.cycle_momentum, p.base_momentum, p.max_momentum))
        return NULL;
    const double numbers[YK__SCHEDULE_NUMBERS] = {[YK__CYCLE_MAX_LR] = max_lr,
                                                  [YK__CYCLE_MOMENTUM] = p.cycle_momentum,
                                                  [YK__CYCLE_MOMENTUM_BASE] = p.base_momentum,
                                                  [YK__CYCLE_MOMENTUM_MAX] = p.max_momentum,
                                                  [YK__ONE_CYCLE_PCT_START] = p.pct_start,
                                                  [YK__ONE_CYCLE_LINEAR] = p.linear,
                                                  [YK__ONE_CYCLE_THREE_PHASE] = p.three_phase,
                                                  [YK__ONE_CYCLE_DIV] = p.div_factor,
                                                  [YK__ONE_CYCLE_FINAL_DIV] = p.final_div_factor};
    return yk__schedule_start(make(what, o, YK__ONE_CYCLE_LR, total_steps, numbers, YK__SCHEDULE_NUMBERS));
}

yk_schedule *yk_cyclic_lr(yk_optimizer *o, double base_lr, double max_lr, const yk_cyclic_options *options)
{
    static const char what[] = "cyclic_lr";
    yk_cyclic_options p;
    YK__LIVE(o);
    if (YK__OPTIONS_TAKE(what, yk_cyclic_options, options, &p))
        return NULL;
    p.step_size_down = yk__integer_or(p.step_size_down, p.step_size_up);
    if (yk__check_number(what, "base_lr", base_lr, 0, INFINITY) ||
        yk__check_number(what, "max_lr", max_lr, 0, INFINITY) ||
        yk__check_integer(what, "step_size_up", p.step_size_up, 1, INT64_MAX) ||
        yk__check_integer(what, "step_size_down", p.step_size_down, 1, INT64_MAX) ||
        yk__check_integer(what, "mode", (int)p.mode, YK_TRIANGULAR, YK_EXP_RANGE) ||
        yk__check_number(what, "gamma", p.gamma, 0, INFINITY) ||
        check_momentum(what, o, p.cycle_momentum, p.base_momentum, p.max_momentum))
        return NULL;
    const double numbers[YK__SCHEDULE_NUMBERS] = {[YK__CYCLE_MAX_LR] = max_lr,
                                                  [YK__CYCLE_MOMENTUM] = p.cycle_momentum,
                                                  [YK__CYCLE_MOMENTUM_BASE] = p.base_momentum,
                                                  [YK__CYCLE_MOMENTUM_MAX] = p.max_momentum,
                                                  [YK__CYCLIC_BASE_LR] = base_lr,
                                                  [YK__CYCLIC_STEP_SIZE_DOWN] = (double)p.step_size_down,
                                                  [YK__CYCLIC_MODE] = p.mode,
                                                  [YK__CYCLIC_GAMMA] = p.gamma};
    return yk__schedule_start(make(what, o, YK__CYCLIC_LR, p.step_size_up, numbers, YK__SCHEDULE_NUMBERS));
}

/* ---- one after another ------------------------------------------------------------------------------------------- */

static yk_status check_parts(const char *what, const yk_optimizer *o, yk_schedule *const *schedules, int count,
                             const int64_t *milestones)
{
    if (!o || !schedules || count < 1 || (count > 1 && !milestones))
        return yk__error_code() ? yk__error_code()
               : !o             ? yk__fail(YK_ERR_ARGUMENT, "%s: the optimizer is NULL", what)
                    : yk__fail(YK_ERR_ARGUMENT, "%s: %d schedules%s%s", what, count, schedules ? "" : " at NULL",
                               milestones ? "" : ", milestones at NULL");
    for (int i = 0; i < count; i++) {
        if (!schedules[i])
            return yk__error_code() ? yk__error_code() : yk__fail(YK_ERR_ARGUMENT, "%s: schedule %d is NULL", what, i);
        if (schedules[i]->optimizer != o)
            return yk__fail(YK_ERR_ARGUMENT, "%s: schedule %d belongs to another optimizer", what, i);
        int64_t before = i > 1 ? milestones[i - 2] : 0;
        if (i && milestones[i - 1] <= before)
            return yk__fail(YK_ERR_ARGUMENT, "%s: milestone %d is %lld, expected one after %lld", what, i - 1,
                            (long long)milestones[i - 1], (long long)before);
    }
    return YK_OK;
}

/* Sets the rates of t = 0 from the first ones: the making of each schedule has set rates of its own. */
static yk_schedule *start_closed(yk_schedule *s)
{
    if (yk__schedule_jump(s)) {
        yk_object_release(s);
        return NULL;
    }
    return yk__scope_own(s);
}

yk_schedule *yk_sequential_lr(yk_optimizer *o, yk_schedule *const *schedules, int count, const int64_t *milestones)
{
    static const char what[] = "sequential_lr";
    YK__LIVE(o);
    for (int i = 0; i < count && schedules; i++)
        if (yk__is_freed(schedules[i])) {
            yk__fail_freed(__func__, schedules[i]);
            return NULL;
        }
    if (check_parts(what, o, schedules, count, milestones))
        return NULL;
    const yk__schedule_form *first = &schedules[0]->form;
    bool warmup = count == 2 && first->kind == YK__LINEAR_WARMUP_LR && !first->after && first->period == milestones[0];
    yk_schedule *s = yk__schedule_make(what, o, warmup ? YK__LINEAR_WARMUP_LR : YK__SEQUENTIAL_LR);
    if (!s)
        return NULL;
    if (warmup) { /* the same form as that of yk_linear_warmup_lr */
        s->form.period = first->period;
        s->form.constant = first->constant;
        s->after = yk_object_retain(schedules[1]);
        s->form.after = &s->after->form;
        return start_closed(s);
    }
    s->form.milestones = yk__calloc((size_t)count, sizeof(*s->form.milestones));
    s->form.parts = yk__calloc((size_t)count, sizeof(*s->form.parts));
    s->parts = yk__calloc((size_t)count, sizeof(yk_schedule *));
    if (!s->form.milestones || !s->form.parts || !s->parts) {
        yk_object_release(s);
        return NULL;
    }
    for (int i = 0; i < count; i++) {
        s->parts[i] = yk_object_retain(schedules[i]);
        s->form.parts[i] = &schedules[i]->form;
        if (i)
            s->form.milestones[i - 1] = milestones[i - 1];
    }
    s->form.n_parts = count;
    s->form.n_milestones = count - 1;
    return start_closed(s);
}
