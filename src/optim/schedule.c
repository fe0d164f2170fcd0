/*
 * schedule.c - learning rates as functions of time. Layer: optim.
 *
 * Every schedule is a closed form of (first learning rate, t), so any t can be reached at once and rounding does not
 * pile up. Where a group's rate is not the one that the closed form gave at t - 1 (the program has set it, a second
 * schedule has changed it, the group came late), a step multiplies the rate that is there, as PyTorch's chainable forms
 * do: what others made of it stays.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "optim/schedule.h"

static void schedule_destroy(void *object)
{
    yk_schedule *s = object;
    yk_object_release(s->optimizer);
    yk_object_release(s->after);
    for (int i = 0; i < s->form.n_parts; i++)
        yk_object_release(s->parts[i]);
    free(s->parts);
    free(s->form.parts);
    free(s->form.milestones);
    yk__object_free(s);
}

static const yk__type schedule_type = {"schedule", schedule_destroy};

/* The rate at time t where it was lr at t - 1; at t = 0 where it was lr before the schedule. Source: get_lr of
 * torch.optim.lr_scheduler. */
static double chained_rate(const yk__schedule_form *f, double lr, double base, int64_t t)
{
    switch (f->kind) {
    case YK__STEP_LR: return t && t % f->period == 0 ? lr * f->constant : lr;
    case YK__EXPONENTIAL_LR: return t ? lr * f->constant : lr;
    case YK__MULTI_STEP_LR: {
        int now = 0;
        for (int i = 0; i < f->n_milestones; i++)
            now += f->milestones[i] == t;
        return now ? lr * pow(f->constant, now) : lr;
    }
    case YK__COSINE_LR: {
        double step = M_PI / (double)f->period;
        if (t == 0)
            return lr;
        if ((t - 1) % f->period == 0 && (t - 1) / f->period % 2 == 1) /* up again from eta_min */
            return lr + (base - f->constant) * (1 - cos(step)) / 2;
        return f->constant + (lr - f->constant) * (1 + cos(step * (double)t)) / (1 + cos(step * (double)(t - 1)));
    }
    case YK__LINEAR_WARMUP_LR: {
        double steps = (double)f->period, slope = (1 - f->constant) / steps;
        double now = f->constant + slope * (double)t, before = t ? f->constant + slope * (double)(t - 1) : 1;
        if (t > f->period)
            return f->after ? chained_rate(f->after, lr, base, t - f->period) : lr;
        lr = before == 0 ? base * now : lr * (t == f->period ? 1 : now) / before;
        return t == f->period && f->after ? chained_rate(f->after, lr, base, 0) : lr;
    }
    case YK__LINEAR_LR:
    case YK__CONSTANT_LR:
    case YK__POLYNOMIAL_LR: {
        double before = t ? yk__schedule_rate(f, 1, t - 1) : 1, now = yk__schedule_rate(f, 1, t);
        return before > 0 ? lr * (now / before) : base * now;
    }
    case YK__SWA_LR: {
        double before = t ? yk__schedule_swa_part(f, t - 1) : 0, now = yk__schedule_swa_part(f, t);
        double rate = f->numbers[YK__SWA_RATE], first = t && before == 1 ? rate : (lr - before * rate) / (1 - before);
        return rate * now + first * (1 - now);
    }
    case YK__SEQUENTIAL_LR: {
        const yk__schedule_form *part = yk__schedule_part(f, t, &t);
        return chained_rate(part, lr, base, t);
    }
    default: return yk__schedule_rate(f, base, t); /* LambdaLR and the cycles have no other form */
    }
}

/* True if the rate at time t does not depend on the one before: of a lambda_lr, of a cycle, at the beginning of a part
 * of a sequential_lr. */
static bool is_closed_at(const yk__schedule_form *f, int64_t t)
{
    int64_t own;
    if (f->kind == YK__SEQUENTIAL_LR) {
        const yk__schedule_form *part = yk__schedule_part(f, t, &own);
        return own == 0 || is_closed_at(part, own);
    }
    if (f->kind == YK__LINEAR_WARMUP_LR)
        return f->after && t >= f->period && is_closed_at(f->after, t - f->period);
    return f->kind == YK__LAMBDA_LR || f->kind == YK__WARM_RESTARTS_LR || f->kind == YK__ONE_CYCLE_LR ||
           f->kind == YK__CYCLIC_LR;
}

/* True if a lambda_lr decides the rate at time t. */
static bool is_lambda_at(const yk__schedule_form *f, int64_t t)
{
    if (f->kind == YK__SEQUENTIAL_LR) {
        const yk__schedule_form *part = yk__schedule_part(f, t, &t);
        return is_lambda_at(part, t);
    }
    if (f->kind == YK__LINEAR_WARMUP_LR)
        return f->after && t >= f->period && is_lambda_at(f->after, t - f->period);
    return f->kind == YK__LAMBDA_LR;
}

/* The group's first rate: where there was none at the first schedule's beginning, what it has now. A lambda_lr, whose
 * rates are products with the first one, goes on from there for a group that came at time t. */
static void settle_first_rate(const yk__schedule_form *f, yk__optim_group *group, int64_t t)
{
    if (!isnan(group->initial_lr))
        return;
    double factor = t > 0 && is_lambda_at(f, INT64_MAX) ? yk__schedule_rate(f, 1, t - 1) : 1;
    group->initial_lr = factor > 0 && isfinite(factor) ? group->lr / factor : group->lr;
}

/* Sets the momentum of s->t in all groups, where the schedule moves it. */
static yk_status set_momentum(const yk_schedule *s)
{
    double momentum = yk__schedule_momentum(&s->form, s->t);
    if (yk__error_code() || isnan(momentum))
        return yk__error_code();
    return yk_optimizer_set_option(s->optimizer, -1, yk__schedule_momentum_name(s->optimizer), momentum);
}

/* Sets the rates of s->t by the closed form. A function of the program's (yk_lambda_lr) that sets an error has failed.
 */
yk_status yk__schedule_jump(yk_schedule *s)
{
    YK__OWN_RECORD;
    for (int g = 0; g < s->optimizer->n_groups; g++) {
        yk__optim_group *group = &s->optimizer->groups[g];
        settle_first_rate(&s->form, group, 0);
        double lr = yk__schedule_rate(&s->form, group->initial_lr, s->t);
        if (yk__error_code())
            return yk__error_code();
        group->lr = lr;
    }
    return set_momentum(s);
}

/* Sets the rates of s->t from those of the time before. */
static yk_status schedule_advance(yk_schedule *s)
{
    YK__OWN_RECORD;
    const yk__schedule_form *f = &s->form;
    int64_t t = s->t;
    for (int g = 0; g < s->optimizer->n_groups; g++) {
        yk__optim_group *group = &s->optimizer->groups[g];
        settle_first_rate(&s->form, group, t);
        double base = group->initial_lr;
        bool closed = is_closed_at(f, t) || group->lr == (t ? yk__schedule_rate(f, base, t - 1) : base);
        double lr = closed ? yk__schedule_rate(f, base, t) : chained_rate(f, group->lr, base, t);
        if (yk__error_code())
            return yk__error_code();
        group->lr = lr;
    }
    return set_momentum(s);
}

yk_schedule *yk__schedule_make(const char *what, yk_optimizer *o, yk__schedule_kind kind)
{
    if (!o) {
        yk__fail(YK_ERR_ARGUMENT, "%s: the optimizer is NULL", what);
        return NULL;
    }
    yk_schedule *s = yk__scope_check(what) ? yk__object_new(&schedule_type, sizeof(*s)) : NULL;
    if (!s)
        return NULL;
    s->optimizer = yk_object_retain(o);
    s->form.kind = kind;
    return s;
}

yk_schedule *yk__schedule_start(yk_schedule *s)
{
    if (s && schedule_advance(s)) {
        yk_object_release(s);
        return NULL;
    }
    return yk__scope_own(s);
}

yk_schedule *yk_step_lr(yk_optimizer *o, int64_t step_size, double gamma)
{
    YK__LIVE(o);
    if (yk__check_integer("step_lr", "step_size", step_size, 1, INT64_MAX))
        return NULL;
    if (yk__check_number("step_lr", "gamma", gamma, 0, INFINITY))
        return NULL;
    yk_schedule *s = yk__schedule_make("step_lr", o, YK__STEP_LR);
    if (s) {
        s->form.period = step_size;
        s->form.constant = gamma;
    }
    return yk__schedule_start(s);
}

yk_schedule *yk_multi_step_lr(yk_optimizer *o, const int64_t *milestones, int count, double gamma)
{
    YK__LIVE(o);
    if (count < 0 || (count && !milestones)) {
        yk__fail(YK_ERR_ARGUMENT, "multi_step_lr: %d milestones%s", count, milestones ? "" : " at NULL");
        return NULL;
    }
    for (int i = 1; i < count; i++) {
        if (milestones[i] < milestones[i - 1]) {
            yk__fail(YK_ERR_ARGUMENT, "multi_step_lr: milestone %d, %lld, comes before %lld; they must increase", i,
                     (long long)milestones[i], (long long)milestones[i - 1]);
            return NULL;
        }
    }
    if (yk__check_number("multi_step_lr", "gamma", gamma, 0, INFINITY))
        return NULL;
    yk_schedule *s = yk__schedule_make("multi_step_lr", o, YK__MULTI_STEP_LR);
    if (!s)
        return NULL;
    s->form.constant = gamma;
    s->form.milestones = yk__calloc((size_t)count, sizeof(*s->form.milestones));
    if (!s->form.milestones) {
        yk_object_release(s);
        return NULL;
    }
    if (count)
        memcpy(s->form.milestones, milestones, (size_t)count * sizeof(*milestones));
    s->form.n_milestones = count;
    return yk__schedule_start(s);
}

yk_schedule *yk_cosine_lr(yk_optimizer *o, int64_t t_max, double eta_min)
{
    YK__LIVE(o);
    if (yk__check_integer("cosine_lr", "t_max", t_max, 1, INT64_MAX) ||
        yk__check_number("cosine_lr", "eta_min", eta_min, 0, INFINITY))
        return NULL;
    yk_schedule *s = yk__schedule_make("cosine_lr", o, YK__COSINE_LR);
    if (s) {
        s->form.period = t_max;
        s->form.constant = eta_min;
    }
    return yk__schedule_start(s);
}

yk_schedule *yk_exponential_lr(yk_optimizer *o, double gamma)
{
    YK__LIVE(o);
    if (yk__check_number("exponential_lr", "gamma", gamma, 0, INFINITY))
        return NULL;
    yk_schedule *s = yk__schedule_make("exponential_lr", o, YK__EXPONENTIAL_LR);
    if (s)
        s->form.constant = gamma;
    return yk__schedule_start(s);
}

yk_schedule *yk_linear_warmup_lr(yk_optimizer *o, int64_t steps, double start_factor, yk_schedule *after)
{
    YK__LIVE(o);
    YK__LIVE(after);
    if (yk__check_integer("linear_warmup_lr", "steps", steps, 1, INT64_MAX) ||
        yk__check_number("linear_warmup_lr", "start_factor", start_factor, 0, 1))
        return NULL;
    if (after && after->optimizer != o) {
        yk__fail(YK_ERR_ARGUMENT, "linear_warmup_lr: the schedule that follows belongs to another optimizer");
        return NULL;
    }
    yk_schedule *s = yk__schedule_make("linear_warmup_lr", o, YK__LINEAR_WARMUP_LR);
    if (s) {
        s->form.period = steps;
        s->form.constant = start_factor;
        s->after = yk_object_retain(after);
        s->form.after = after ? &after->form : NULL;
    }
    return yk__schedule_start(s);
}

yk_schedule *yk_lambda_lr(yk_optimizer *o, double (*fn)(int64_t t, void *user), void *user)
{
    YK__LIVE(o);
    if (!fn) {
        yk__fail(YK_ERR_ARGUMENT, "lambda_lr: the function is NULL");
        return NULL;
    }
    yk_schedule *s = yk__schedule_make("lambda_lr", o, YK__LAMBDA_LR);
    if (s) {
        s->form.fn = fn;
        s->form.user = user;
    }
    return yk__schedule_start(s);
}

void yk_schedule_step(yk_schedule *s)
{
    YK__LIVE(s);
    if (!yk__is_there("schedule_step", "schedule", s))
        return;
    if (s->t == INT64_MAX) {
        yk__fail(YK_ERR_STATE, "schedule_step: the time is %lld, and has no next", (long long)s->t);
        return;
    }
    s->t++;
    if (schedule_advance(s))
        s->t--;
}

int64_t yk_schedule_time(const yk_schedule *s)
{
    YK__LIVE(s);
    return s ? s->t : 0;
}

yk_status yk_schedule_set_time(yk_schedule *s, int64_t t)
{
    YK__LIVE(s);
    if (!s || t < 0)
        return yk__fail(YK_ERR_ARGUMENT, "schedule_set_time: %s", s ? "the time is negative" : "the schedule is NULL");
    int64_t before = s->t;
    s->t = t;
    yk_status status = yk__schedule_jump(s);
    if (status)
        s->t = before;
    return status;
}

yk_optimizer *yk__schedule_optimizer(const yk_schedule *s)
{
    return s ? s->optimizer : NULL;
}

const yk__schedule_form *yk__schedule_form_of(const yk_schedule *s)
{
    return &s->form;
}

const char *yk_schedule_describe(const yk_schedule *s, char *text, size_t size)
{
    YK__LIVE(s);
    if (size)
        *text = 0;
    return s && size ? yk__schedule_print(&s->form, text, size) : text;
}

/* ---- the same schedule in steps of another length ---------------------------------------------------------------- */

/* Copies the functions of `from` into f, a form that was read and differs in its lengths alone. */
static void functions_take(yk__schedule_form *f, const yk__schedule_form *from)
{
    for (; f && from; f = f->after, from = from->after) {
        f->fn = from->fn;
        f->user = from->user;
        for (int i = 0; i < f->n_parts; i++)
            functions_take(f->parts[i], from->parts[i]);
    }
}

/* Moves s to its time `to`, which corresponds to time t of `old`, a form that differs in its lengths alone
 * (yk__schedule_alike). A group's rate that was old's at t becomes that of s at `to`; one that the program has set
 * since is changed by the factor between these two, and stays where the old one is 0. */
static yk_status carry_rates(yk_schedule *s, const yk__schedule_form *old, int64_t t, int64_t to)
{
    YK__OWN_RECORD;
    for (int g = 0; g < s->optimizer->n_groups; g++) {
        yk__optim_group *group = &s->optimizer->groups[g];
        settle_first_rate(&s->form, group, 0);
        double before = yk__schedule_rate(old, group->initial_lr, t);
        double now = yk__schedule_rate(&s->form, group->initial_lr, to);
        if (yk__error_code())
            return yk__error_code();
        if (group->lr == before)
            group->lr = now;
        else if (before > 0) /* not those of the schedule alone: by the same factor */
            group->lr *= now / before;
    }
    s->t = to;
    return YK_OK;
}

int64_t yk__schedule_carry(const yk_schedule *s, const yk__schedule_form *old, int64_t t)
{
    return yk__schedule_alike(&s->form, old) ? yk__schedule_time_in(&s->form, old, t) : -1;
}

yk_status yk__schedule_resume(yk_schedule *s, yk__schedule_form *old, int64_t t)
{
    enum { ROOM = 4096 }; /* of a description in an error */
    char own[ROOM], other[ROOM];
    if (!old || yk__schedule_same(&s->form, old)) {
        s->t = t;
        return YK_OK;
    }
    int64_t to = yk__schedule_carry(s, old, t);
    if (to < 0)
        return yk__fail(YK_ERR_ARGUMENT, "schedule: %s does not go on as %s", yk__schedule_print(old, other, ROOM),
                        yk__schedule_print(&s->form, own, ROOM));
    functions_take(old, &s->form);
    return carry_rates(s, old, t, to);
}

yk_schedule *yk_schedule_retain(yk_schedule *s)
{
    return yk_object_retain(s);
}

void yk_schedule_release(yk_schedule *s)
{
    yk_object_release(s);
}
