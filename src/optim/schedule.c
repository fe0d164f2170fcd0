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

#include "optim/optimizer.h"

struct yk_schedule {
    yk__object object;
    yk_optimizer *optimizer;
    int64_t t;
    double (*rate)(const yk_schedule *s, double base, int64_t t);
    double gamma; /* or the start factor of a warm-up, or the least rate */
    int64_t period;
    int64_t *milestones;
    int n_milestones;
    yk_schedule *after;
    double (*fn)(int64_t t, void *user);
    void *user;
};

static void schedule_destroy(void *object)
{
    yk_schedule *s = object;
    yk_object_release(s->optimizer);
    yk_object_release(s->after);
    free(s->milestones);
    yk__object_free(s);
}

static const yk__type schedule_type = {"schedule", schedule_destroy};

static double step_rate(const yk_schedule *s, double base, int64_t t)
{
    return base * pow(s->gamma, (double)(t / s->period));
}

static double multi_step_rate(const yk_schedule *s, double base, int64_t t)
{
    int passed = 0;
    while (passed < s->n_milestones && s->milestones[passed] <= t)
        passed++;
    return base * pow(s->gamma, passed);
}

static double cosine_rate(const yk_schedule *s, double base, int64_t t)
{
    return s->gamma + (base - s->gamma) * (1 + cos(M_PI * (double)t / (double)s->period)) / 2;
}

static double exponential_rate(const yk_schedule *s, double base, int64_t t)
{
    return base * pow(s->gamma, (double)t);
}

static double warmup_rate(const yk_schedule *s, double base, int64_t t)
{
    if (t < s->period)
        return base * (s->gamma + (1 - s->gamma) * (double)t / (double)s->period);
    return s->after ? s->after->rate(s->after, base, t - s->period) : base;
}

static double lambda_rate(const yk_schedule *s, double base, int64_t t)
{
    return base * s->fn(t, s->user);
}

/* The rate at time t where it was lr at t - 1; at t = 0 where it was lr before the schedule. Source: get_lr of
 * torch.optim.lr_scheduler. */
static double chained_rate(const yk_schedule *s, double lr, double base, int64_t t)
{
    if (s->rate == step_rate)
        return t && t % s->period == 0 ? lr * s->gamma : lr;
    if (s->rate == exponential_rate)
        return t ? lr * s->gamma : lr;
    if (s->rate == multi_step_rate) {
        int now = 0;
        for (int i = 0; i < s->n_milestones; i++)
            now += s->milestones[i] == t;
        return now ? lr * pow(s->gamma, now) : lr;
    }
    if (s->rate == cosine_rate) {
        double step = M_PI / (double)s->period;
        if (t == 0)
            return lr;
        if ((t - 1) % s->period == 0 && (t - 1) / s->period % 2 == 1) /* up again from eta_min */
            return lr + (base - s->gamma) * (1 - cos(step)) / 2;
        return s->gamma + (lr - s->gamma) * (1 + cos(step * (double)t)) / (1 + cos(step * (double)(t - 1)));
    }
    if (s->rate == warmup_rate) {
        double steps = (double)s->period, slope = (1 - s->gamma) / steps;
        double now = s->gamma + slope * (double)t, before = t ? s->gamma + slope * (double)(t - 1) : 1;
        if (t > s->period)
            return s->after ? chained_rate(s->after, lr, base, t - s->period) : lr;
        lr = before == 0 ? base * now : lr * (t == s->period ? 1 : now) / before;
        return t == s->period && s->after ? chained_rate(s->after, lr, base, 0) : lr;
    }
    return s->rate(s, base, t); /* LambdaLR has no other form */
}

/* True if a lambda_lr decides the rate at time t. */
static bool is_lambda_at(const yk_schedule *s, int64_t t)
{
    if (s->rate == warmup_rate)
        return s->after && t >= s->period && is_lambda_at(s->after, t - s->period);
    return s->rate == lambda_rate;
}

/* The group's first rate: where there was none at the first schedule's beginning, what it has now. A lambda_lr, whose
 * rates are products with the first one, goes on from there for a group that came at time t. */
static void settle_first_rate(const yk_schedule *s, yk__optim_group *group, int64_t t)
{
    if (!isnan(group->initial_lr))
        return;
    double factor = t > 0 && is_lambda_at(s, INT64_MAX) ? s->rate(s, 1, t - 1) : 1;
    group->initial_lr = factor > 0 && isfinite(factor) ? group->lr / factor : group->lr;
}

/* Sets the rates of s->t by the closed form. A function of the program's (yk_lambda_lr) that sets an error has failed.
 */
static yk_status schedule_jump(yk_schedule *s)
{
    YK__OWN_RECORD;
    for (int g = 0; g < s->optimizer->n_groups; g++) {
        yk__optim_group *group = &s->optimizer->groups[g];
        settle_first_rate(s, group, 0);
        double lr = s->rate(s, group->initial_lr, s->t);
        if (yk__error_code())
            return yk__error_code();
        group->lr = lr;
    }
    return YK_OK;
}

/* Sets the rates of s->t from those of the time before. */
static yk_status schedule_advance(yk_schedule *s)
{
    YK__OWN_RECORD;
    int64_t t = s->t;
    for (int g = 0; g < s->optimizer->n_groups; g++) {
        yk__optim_group *group = &s->optimizer->groups[g];
        settle_first_rate(s, group, t);
        double base = group->initial_lr;
        bool closed = is_lambda_at(s, t) || group->lr == (t ? s->rate(s, base, t - 1) : base);
        double lr = closed ? s->rate(s, base, t) : chained_rate(s, group->lr, base, t);
        if (yk__error_code())
            return yk__error_code();
        group->lr = lr;
    }
    return YK_OK;
}

/* A schedule of `rate` without its numbers, not yet owned; NULL for a NULL optimizer. */
static yk_schedule *schedule_make(const char *what, yk_optimizer *o,
                                  double (*rate)(const yk_schedule *s, double base, int64_t t))
{
    if (!o) {
        yk__fail(YK_ERR_ARGUMENT, "%s: the optimizer is NULL", what);
        return NULL;
    }
    yk_schedule *s = yk__scope_check(what) ? yk__object_new(&schedule_type, sizeof(*s)) : NULL;
    if (!s)
        return NULL;
    s->optimizer = yk_object_retain(o);
    s->rate = rate;
    return s;
}

/* Sets the rates of t = 0, which for most kinds are those that are there, and hands the schedule to the scope. */
static yk_schedule *schedule_start(yk_schedule *s)
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
    yk_schedule *s = schedule_make("step_lr", o, step_rate);
    if (s) {
        s->period = step_size;
        s->gamma = gamma;
    }
    return schedule_start(s);
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
    yk_schedule *s = schedule_make("multi_step_lr", o, multi_step_rate);
    if (!s)
        return NULL;
    s->gamma = gamma;
    s->milestones = yk__calloc((size_t)count, sizeof(*s->milestones));
    if (!s->milestones) {
        yk_object_release(s);
        return NULL;
    }
    if (count)
        memcpy(s->milestones, milestones, (size_t)count * sizeof(*milestones));
    s->n_milestones = count;
    return schedule_start(s);
}

yk_schedule *yk_cosine_lr(yk_optimizer *o, int64_t t_max, double eta_min)
{
    YK__LIVE(o);
    if (yk__check_integer("cosine_lr", "t_max", t_max, 1, INT64_MAX) ||
        yk__check_number("cosine_lr", "eta_min", eta_min, 0, INFINITY))
        return NULL;
    yk_schedule *s = schedule_make("cosine_lr", o, cosine_rate);
    if (s) {
        s->period = t_max;
        s->gamma = eta_min;
    }
    return schedule_start(s);
}

yk_schedule *yk_exponential_lr(yk_optimizer *o, double gamma)
{
    YK__LIVE(o);
    if (yk__check_number("exponential_lr", "gamma", gamma, 0, INFINITY))
        return NULL;
    yk_schedule *s = schedule_make("exponential_lr", o, exponential_rate);
    if (s)
        s->gamma = gamma;
    return schedule_start(s);
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
    yk_schedule *s = schedule_make("linear_warmup_lr", o, warmup_rate);
    if (s) {
        s->period = steps;
        s->gamma = start_factor;
        s->after = yk_object_retain(after);
    }
    return schedule_start(s);
}

yk_schedule *yk_lambda_lr(yk_optimizer *o, double (*fn)(int64_t t, void *user), void *user)
{
    YK__LIVE(o);
    if (!fn) {
        yk__fail(YK_ERR_ARGUMENT, "lambda_lr: the function is NULL");
        return NULL;
    }
    yk_schedule *s = schedule_make("lambda_lr", o, lambda_rate);
    if (s) {
        s->fn = fn;
        s->user = user;
    }
    return schedule_start(s);
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
    yk_status status = schedule_jump(s);
    if (status)
        s->t = before;
    return status;
}

yk_optimizer *yk__schedule_optimizer(const yk_schedule *s)
{
    return s ? s->optimizer : NULL;
}

/* A growing text that stops at its end. */
typedef struct writer {
    char *text;
    size_t size, used;
    const int64_t *lengths, *lengths_end; /* to write in place of the schedule's own; NULL: its own */
} writer;

__attribute__((format(printf, 2, 3))) static void put(writer *w, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = w->used < w->size ? vsnprintf(w->text + w->used, w->size - w->used, format, arguments) : 0;
    w->used += n > 0 ? (size_t)n : 0;
    va_end(arguments);
}

static void put_number(writer *w, double number)
{
    char text[YK__NUMBER_ROOM];
    put(w, "%s", yk__number_format(number, text));
}

static void put_length(writer *w, const char *name, int64_t own)
{
    if (w->lengths)
        own = w->lengths < w->lengths_end ? *w->lengths++ : 0;
    put(w, "%s%lld", name, (long long)own);
}

static void describe(writer *w, const yk_schedule *s)
{
    if (s->rate == step_rate || s->rate == cosine_rate) {
        bool step = s->rate == step_rate;
        put_length(w, step ? "step_lr(step_size=" : "cosine_lr(t_max=", s->period);
        put(w, step ? ", gamma=" : ", eta_min=");
        put_number(w, s->gamma);
    } else if (s->rate == multi_step_rate) {
        put(w, "multi_step_lr(milestones=[");
        for (int i = 0; i < s->n_milestones; i++)
            put_length(w, i ? ", " : "", s->milestones[i]);
        put(w, "], gamma=");
        put_number(w, s->gamma);
    } else if (s->rate == exponential_rate) {
        put(w, "exponential_lr(gamma=");
        put_number(w, s->gamma);
    } else if (s->rate == warmup_rate) {
        put_length(w, "linear_warmup_lr(steps=", s->period);
        put(w, ", start_factor=");
        put_number(w, s->gamma);
        if (s->after) {
            put(w, ", after=");
            describe(w, s->after);
        }
    } else {
        put(w, "lambda_lr(");
    }
    put(w, ")");
}

const char *yk_schedule_describe(const yk_schedule *s, char *text, size_t size)
{
    YK__LIVE(s);
    if (!size)
        return text;
    writer w = {.text = text, .size = size};
    *text = 0;
    if (s)
        describe(&w, s);
    return text;
}

/* ---- the same schedule in steps of another length ---------------------------------------------------------------- */

/* The lengths that a description holds, in its order, to `lengths`; how many they are. */
static int read_lengths(const char *text, int64_t *lengths, int room)
{
    static const char *const names[] = {"(step_size=", "(t_max=", "(steps=", "(milestones=["};
    int count = 0;
    for (const char *at = text; (at = strchr(at, '(')) != NULL; at++) {
        for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
            size_t n = strlen(names[i]);
            char *end = (char *)at + n;
            for (bool more = strncmp(at, names[i], n) == 0; more && count < room; end++) {
                lengths[count++] = strtoll(end, &end, 10);
                more = *end == ',' && i == 3;
            }
        }
    }
    return count;
}

/* t of `old` steps in a stretch that has `now` of them. */
static int64_t time_scale(int64_t t, int64_t now, int64_t old)
{
    return now == old ? t : llround((double)t * (double)now / (double)old);
}

/* The time in s of the point that time t is in the schedule with these old lengths; negative where no schedule can have
 * those lengths. Parts without a length go on step by step. */
static int64_t time_carry(const yk_schedule *s, const int64_t *old, int64_t t)
{
    if (s->rate == step_rate || s->rate == cosine_rate)
        return old[0] < 1 ? -1 : time_scale(t, s->period, old[0]);
    if (s->rate == warmup_rate) {
        if (old[0] < 1)
            return -1;
        if (t < old[0])
            return time_scale(t, s->period, old[0]);
        int64_t rest = s->after ? time_carry(s->after, old + 1, t - old[0]) : t - old[0];
        return rest < 0 ? -1 : s->period + rest;
    }
    if (s->rate != multi_step_rate)
        return t;
    for (int i = 0; i < s->n_milestones; i++)
        if (old[i] < 1 || s->milestones[i] < 1 || (i && old[i] < old[i - 1]))
            return -1;
    int64_t from = 0, begin = 0; /* of a stretch between milestones, before and now */
    for (int i = 0; i < s->n_milestones; i++) {
        if (t < old[i])
            return begin + time_scale(t - from, s->milestones[i] - begin, old[i] - from);
        from = old[i];
        begin = s->milestones[i];
    }
    return begin + t - from;
}

/* Exchanges the lengths of s, in the order of its description, with those of the list; gives the list's rest. Twice, it
 * changes nothing. */
static int64_t *swap_lengths(yk_schedule *s, int64_t *lengths)
{
    bool milestones = s->rate == multi_step_rate;
    bool period = s->rate == step_rate || s->rate == cosine_rate || s->rate == warmup_rate;
    int64_t *own = milestones ? s->milestones : &s->period;
    for (int i = 0, n = milestones ? s->n_milestones : period; i < n; i++) {
        int64_t kept = own[i];
        own[i] = *lengths;
        *lengths++ = kept;
    }
    return s->after ? swap_lengths(s->after, lengths) : lengths;
}

/* Moves s from time t of a schedule that differs in its `lengths` alone to the corresponding time `to` of its own. A
 * group's rate that was the other schedule's at t becomes that of s at `to`; any other is changed by the same
 * factor. */
static yk_status carry_rates(yk_schedule *s, int64_t *lengths, int64_t t, int64_t to)
{
    YK__OWN_RECORD;
    for (int g = 0; g < s->optimizer->n_groups; g++) {
        yk__optim_group *group = &s->optimizer->groups[g];
        settle_first_rate(s, group, 0);
        swap_lengths(s, lengths);
        double before = s->rate(s, group->initial_lr, t);
        swap_lengths(s, lengths);
        double now = s->rate(s, group->initial_lr, to);
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

enum { MOST_LENGTHS = 256, DESCRIPTION_ROOM = 4096 };

yk_status yk__schedule_resume(yk_schedule *s, const char *description, int64_t t)
{
    char text[DESCRIPTION_ROOM];
    int64_t lengths[MOST_LENGTHS], to = yk__schedule_carry(s, description, t);
    if (to < 0)
        return yk__fail(YK_ERR_ARGUMENT, "schedule: %s does not go on as %s", description,
                        yk_schedule_describe(s, text, sizeof(text)));
    yk_schedule_describe(s, text, sizeof(text));
    if (strcmp(text, description) == 0) {
        s->t = t;
        return YK_OK;
    }
    read_lengths(description, lengths, MOST_LENGTHS);
    return carry_rates(s, lengths, t, to);
}

int64_t yk__schedule_carry(const yk_schedule *s, const char *description, int64_t t)
{
    int64_t lengths[MOST_LENGTHS];
    char text[DESCRIPTION_ROOM];
    int count = read_lengths(description, lengths, MOST_LENGTHS);
    writer w = {.text = text, .size = sizeof(text), .lengths = lengths, .lengths_end = lengths + count};
    *text = 0;
    describe(&w, s);
    return strcmp(text, description) == 0 ? time_carry(s, lengths, t) : -1;
}

yk_schedule *yk_schedule_retain(yk_schedule *s)
{
    return yk_object_retain(s);
}

void yk_schedule_release(yk_schedule *s)
{
    yk_object_release(s);
}
