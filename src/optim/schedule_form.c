/*
 * schedule_form.c - the closed forms of schedules: rates, names, comparison. Layer: optim.
 */
#include "optim/schedule_form.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double warmup_rate(const yk__schedule_form *f, double base, int64_t t)
{
    if (t < f->period)
        return base * (f->constant + (1 - f->constant) * (double)t / (double)f->period);
    return f->after ? yk__schedule_rate(f->after, base, t - f->period) : base;
}

const yk__schedule_form *yk__schedule_part(const yk__schedule_form *f, int64_t t, int64_t *own)
{
    int k = 0;
    while (k < f->n_milestones && f->milestones[k] <= t)
        k++;
    *own = k ? t - f->milestones[k - 1] : t;
    return f->parts[k];
}

void yk__schedule_restart(const yk__schedule_form *f, int64_t t, int64_t *since, double *length)
{
    double mult = f->numbers[YK__RESTARTS_MULT];
    *length = (double)f->period;
    if (mult == 1)
        t %= f->period;
    else
        for (; (double)t >= *length; *length *= mult)
            t -= (int64_t)*length;
    *since = t;
}

/* A phase of one_cycle_lr: how far it goes, from and to which rate, and which momentum. */
typedef struct phase {
    double end, from, to, momentum_from, momentum_to;
} phase;

/* The value between `from` and `to` of a one_cycle_lr. */
static double anneal(const yk__schedule_form *f, double from, double to, double part)
{
    return f->numbers[YK__ONE_CYCLE_LINEAR] != 0 ? (to - from) * part + from
                                                 : to + (from - to) / 2 * (cos(M_PI * part) + 1);
}

/* The rate at time t and, where *momentum is wanted, that. PyTorch has steps up to total_steps, too. */
static double one_cycle(const yk__schedule_form *f, int64_t t, double *momentum)
{
    const double *n = f->numbers, total = (double)f->period;
    double most = n[YK__CYCLE_MAX_LR], first = most / n[YK__ONE_CYCLE_DIV], least = first / n[YK__ONE_CYCLE_FINAL_DIV];
    double low = n[YK__CYCLE_MOMENTUM_BASE], high = n[YK__CYCLE_MOMENTUM_MAX], up = n[YK__ONE_CYCLE_PCT_START] * total;
    bool three = n[YK__ONE_CYCLE_THREE_PHASE] != 0;
    const phase two_phases[] = {{up - 1, first, most, high, low}, {total - 1, most, least, low, high}};
    const phase three_phases[] = {
        {up - 1, first, most, high, low}, {2 * up - 2, most, first, low, high}, {total - 1, first, least, high, high}};
    const phase *phases = three ? three_phases : two_phases;
    int last = three ? 2 : 1, k = 0;
    if (t > f->period) {
        yk__fail(YK_ERR_ARGUMENT, "one_cycle_lr: it has %lld steps, and this is step %lld", (long long)f->period,
                 (long long)t);
        return NAN;
    }
    while (k < last && (double)t > phases[k].end)
        k++;
    double begin = k ? phases[k - 1].end : 0, length = phases[k].end - begin;
    double part = length == 0 ? 1 : ((double)t - begin) / length;
    if (momentum)
        *momentum = anneal(f, phases[k].momentum_from, phases[k].momentum_to, part);
    return anneal(f, phases[k].from, phases[k].to, part);
}

/* The share of the way from the base to the most that a cyclic_lr has gone at time t. */
static double cyclic_height(const yk__schedule_form *f, int64_t t)
{
    double up = (double)f->period, total = up + f->numbers[YK__CYCLIC_STEP_SIZE_DOWN], ratio = up / total;
    double cycle = floor(1 + (double)t / total), x = 1 + (double)t / total - cycle;
    double height = x <= ratio ? x / ratio : (x - 1) / (ratio - 1);
    switch ((int)f->numbers[YK__CYCLIC_MODE]) {
    case 1: return height / pow(2, cycle - 1);
    case 2: return height * pow(f->numbers[YK__CYCLIC_GAMMA], (double)t);
    default: return height;
    }
}

double yk__schedule_momentum(const yk__schedule_form *f, int64_t t)
{
    double momentum = NAN;
    const double *n = f->numbers;
    if (f->kind == YK__SEQUENTIAL_LR) {
        const yk__schedule_form *part = yk__schedule_part(f, t, &t);
        return yk__schedule_momentum(part, t);
    }
    if (f->kind == YK__LINEAR_WARMUP_LR)
        return f->after && t >= f->period ? yk__schedule_momentum(f->after, t - f->period) : NAN;
    if ((f->kind != YK__ONE_CYCLE_LR && f->kind != YK__CYCLIC_LR) || n[YK__CYCLE_MOMENTUM] == 0)
        return NAN;
    if (f->kind == YK__ONE_CYCLE_LR)
        (void)one_cycle(f, t, &momentum);
    else
        momentum =
            n[YK__CYCLE_MOMENTUM_MAX] - (n[YK__CYCLE_MOMENTUM_MAX] - n[YK__CYCLE_MOMENTUM_BASE]) * cyclic_height(f, t);
    return momentum;
}

double yk__schedule_rate(const yk__schedule_form *f, double base, int64_t t)
{
    int passed = 0;
    const double *n = f->numbers;
    double length = (double)f->period, part = t < f->period ? (double)t / length : 1;
    int64_t own;
    switch (f->kind) {
    case YK__STEP_LR: return base * pow(f->constant, (double)(t / f->period));
    case YK__MULTI_STEP_LR:
        while (passed < f->n_milestones && f->milestones[passed] <= t)
            passed++;
        return base * pow(f->constant, passed);
    case YK__COSINE_LR: return f->constant + (base - f->constant) * (1 + cos(M_PI * (double)t / (double)f->period)) / 2;
    case YK__EXPONENTIAL_LR: return base * pow(f->constant, (double)t);
    case YK__LINEAR_WARMUP_LR: return warmup_rate(f, base, t);
    case YK__LINEAR_LR: return base * (n[YK__LINEAR_START] + (n[YK__LINEAR_END] - n[YK__LINEAR_START]) * part);
    case YK__CONSTANT_LR: return part < 1 ? base * n[YK__CONSTANT_FACTOR] : base;
    case YK__POLYNOMIAL_LR: return base * pow(1 - part, n[YK__POLYNOMIAL_POWER]);
    case YK__WARM_RESTARTS_LR:
        yk__schedule_restart(f, t, &own, &length);
        return n[YK__RESTARTS_LEAST] + (base - n[YK__RESTARTS_LEAST]) * (1 + cos(M_PI * (double)own / length)) / 2;
    case YK__ONE_CYCLE_LR: return one_cycle(f, t, NULL);
    case YK__CYCLIC_LR:
        return n[YK__CYCLIC_BASE_LR] + (n[YK__CYCLE_MAX_LR] - n[YK__CYCLIC_BASE_LR]) * cyclic_height(f, t);
    case YK__SEQUENTIAL_LR: f = yk__schedule_part(f, t, &own); return yk__schedule_rate(f, base, own);
    default: return base * f->fn(t, f->user);
    }
}

yk__schedule_form *yk__schedule_form_new(yk__schedule_kind kind)
{
    yk__schedule_form *f = yk__calloc(1, sizeof(*f));
    if (f)
        f->kind = kind;
    return f;
}

void yk__schedule_form_free(yk__schedule_form *f)
{
    while (f) {
        yk__schedule_form *after = f->after;
        for (int i = 0; i < f->n_parts; i++)
            yk__schedule_form_free(f->parts[i]);
        free(f->parts);
        free(f->milestones);
        free(f);
        f = after;
    }
}

/* ---- names and checks -------------------------------------------------------------------------------------------- */

const yk__schedule_names *yk__schedule_names_of(yk__schedule_kind kind)
{
    static const yk__schedule_names all[YK__SCHEDULE_KINDS] = {
        [YK__STEP_LR] = {"step_lr", "step_size", "gamma", {NULL}},
        [YK__MULTI_STEP_LR] = {"multi_step_lr", NULL, "gamma", {NULL}},
        [YK__COSINE_LR] = {"cosine_lr", "t_max", "eta_min", {NULL}},
        [YK__EXPONENTIAL_LR] = {"exponential_lr", NULL, "gamma", {NULL}},
        [YK__LINEAR_WARMUP_LR] = {"linear_warmup_lr", "steps", "start_factor", {NULL}},
        [YK__LAMBDA_LR] = {"lambda_lr", NULL, NULL, {NULL}},
        [YK__LINEAR_LR] = {"linear_lr", "total_iters", NULL, {"start_factor", "end_factor"}},
        [YK__CONSTANT_LR] = {"constant_lr", "total_iters", NULL, {"factor"}},
        [YK__POLYNOMIAL_LR] = {"polynomial_lr", "total_iters", NULL, {"power"}},
        [YK__WARM_RESTARTS_LR] = {"cosine_warm_restarts_lr", "t_0", NULL, {"t_mult", "eta_min"}},
        [YK__ONE_CYCLE_LR] = {"one_cycle_lr",
                              "total_steps",
                              NULL,
                              {"max_lr", "cycle_momentum", "base_momentum", "max_momentum", "pct_start", "linear",
                               "three_phase", "div_factor", "final_div_factor"}},
        [YK__CYCLIC_LR] = {"cyclic_lr",
                           "step_size_up",
                           NULL,
                           {"max_lr", "cycle_momentum", "base_momentum", "max_momentum", "base_lr", "step_size_down",
                            "mode", "gamma"}},
        [YK__SEQUENTIAL_LR] = {"sequential_lr", NULL, NULL, {NULL}},
    };
    return &all[kind];
}

bool yk__schedule_has_milestones(yk__schedule_kind kind)
{
    return kind == YK__MULTI_STEP_LR || kind == YK__SEQUENTIAL_LR;
}

yk_status yk__schedule_check(const yk__schedule_form *f)
{
    bool fits = f->kind <= YK__LAMBDA_LR || f->kind == YK__SEQUENTIAL_LR || f->period >= 1;
    int64_t before = 0;
    char text[61];
    if (f->kind == YK__WARM_RESTARTS_LR)
        fits = fits && f->numbers[YK__RESTARTS_MULT] >= 1 &&
               floor(f->numbers[YK__RESTARTS_MULT]) == f->numbers[YK__RESTARTS_MULT];
    if (f->kind == YK__CYCLIC_LR)
        fits = fits && f->numbers[YK__CYCLIC_STEP_SIZE_DOWN] >= 1;
    if (!fits)
        return yk__fail(YK_ERR_FORMAT, "schedule: '%s' has numbers that no schedule has",
                        yk__schedule_print(f, text, sizeof(text)));
    if (f->kind == YK__LINEAR_WARMUP_LR && f->period < 0)
        return yk__fail(YK_ERR_FORMAT, "schedule: a warm-up of %lld steps", (long long)f->period);
    for (int i = 0; f->kind == YK__SEQUENTIAL_LR && i < f->n_milestones; before = f->milestones[i++]) {
        if (f->milestones[i] <= before)
            return yk__fail(YK_ERR_FORMAT, "schedule: milestone %lld of a sequential_lr comes after %lld",
                            (long long)f->milestones[i], (long long)before);
    }
    if (f->kind == YK__SEQUENTIAL_LR && f->n_parts != f->n_milestones + 1)
        return yk__fail(YK_ERR_FORMAT, "schedule: a sequential_lr of %d milestones needs %d schedules", f->n_milestones,
                        f->n_milestones + 1);
    return YK_OK;
}

/* ---- two of them ------------------------------------------------------------------------------------------------- */

static bool numbers_same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

bool yk__schedule_alike(const yk__schedule_form *a, const yk__schedule_form *b)
{
    for (; a && b; a = a->after, b = b->after) {
        if (a->kind != b->kind || !numbers_same(a->constant, b->constant) || a->n_milestones != b->n_milestones)
            return false;
        for (int i = 0; i < YK__SCHEDULE_NUMBERS; i++)
            if (!numbers_same(a->numbers[i], b->numbers[i]))
                return false;
        for (int i = 0; i < a->n_parts; i++)
            if (!yk__schedule_alike(a->parts[i], b->parts[i]))
                return false;
    }
    return a == b; /* both have ended */
}

bool yk__schedule_same(const yk__schedule_form *a, const yk__schedule_form *b)
{
    if (!yk__schedule_alike(a, b))
        return false;
    for (; a; a = a->after, b = b->after) {
        if (a->period != b->period)
            return false;
        for (int i = 0; i < a->n_milestones; i++)
            if (a->milestones[i] != b->milestones[i])
                return false;
        for (int i = 0; i < a->n_parts; i++)
            if (!yk__schedule_same(a->parts[i], b->parts[i]))
                return false;
    }
    return true;
}

/* t of `old` steps in a stretch that has `now` of them. */
static int64_t time_scale(int64_t t, int64_t now, int64_t old)
{
    return now == old ? t : llround((double)t * (double)now / (double)old);
}

static int64_t time_between_milestones(const yk__schedule_form *f, const yk__schedule_form *old, int64_t t)
{
    for (int i = 0; i < f->n_milestones; i++)
        if (old->milestones[i] < 1 || f->milestones[i] < 1 || (i && old->milestones[i] < old->milestones[i - 1]))
            return -1;
    int64_t from = 0, begin = 0; /* of a stretch between milestones, before and now */
    for (int i = 0; i < f->n_milestones; i++) {
        if (t < old->milestones[i])
            return begin + time_scale(t - from, f->milestones[i] - begin, old->milestones[i] - from);
        from = old->milestones[i];
        begin = f->milestones[i];
    }
    return begin + t - from;
}

/* The time in a sequential_lr of the point that is at time t of another one. */
static int64_t time_in_part(const yk__schedule_form *f, const yk__schedule_form *old, int64_t t)
{
    int64_t own, begin = 0;
    const yk__schedule_form *part = yk__schedule_part(old, t, &own);
    int k = 0;
    while (old->parts[k] != part)
        k++;
    begin = k ? f->milestones[k - 1] : 0;
    int64_t rest = yk__schedule_time_in(f->parts[k], part, own);
    if (rest >= 0 && k < f->n_milestones && begin + rest >= f->milestones[k])
        rest = f->milestones[k] - begin - 1; /* still in that part */
    return rest < 0 ? -1 : begin + rest;
}

int64_t yk__schedule_time_in(const yk__schedule_form *f, const yk__schedule_form *old, int64_t t)
{
    if (yk__schedule_names_of(f->kind)->length && old->period < 1)
        return -1;
    if (f->kind == YK__SEQUENTIAL_LR)
        return time_in_part(f, old, t);
    if (f->kind == YK__LINEAR_LR || f->kind == YK__CONSTANT_LR || f->kind == YK__POLYNOMIAL_LR)
        return t < old->period ? time_scale(t, f->period, old->period) : f->period + (t - old->period);
    if (f->kind == YK__CYCLIC_LR && f->period != old->period)
        return -1; /* the steps down stand among its numbers */
    if (f->kind == YK__WARM_RESTARTS_LR || f->kind == YK__ONE_CYCLE_LR || f->kind == YK__CYCLIC_LR)
        return time_scale(t, f->period, old->period);
    if (f->kind == YK__STEP_LR || f->kind == YK__COSINE_LR || (f->kind == YK__LINEAR_WARMUP_LR && t < old->period))
        return time_scale(t, f->period, old->period);
    if (f->kind == YK__MULTI_STEP_LR)
        return time_between_milestones(f, old, t);
    if (f->kind != YK__LINEAR_WARMUP_LR)
        return t;
    int64_t rest = f->after ? yk__schedule_time_in(f->after, old->after, t - old->period) : t - old->period;
    return rest < 0 ? -1 : f->period + rest;
}
