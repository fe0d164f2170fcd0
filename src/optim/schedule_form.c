/*
 * schedule_form.c - the closed forms of schedules: rates, text, comparison. Layer: optim.
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

double yk__schedule_rate(const yk__schedule_form *f, double base, int64_t t)
{
    int passed = 0;
    switch (f->kind) {
    case YK__STEP_LR: return base * pow(f->constant, (double)(t / f->period));
    case YK__MULTI_STEP_LR:
        while (passed < f->n_milestones && f->milestones[passed] <= t)
            passed++;
        return base * pow(f->constant, passed);
    case YK__COSINE_LR: return f->constant + (base - f->constant) * (1 + cos(M_PI * (double)t / (double)f->period)) / 2;
    case YK__EXPONENTIAL_LR: return base * pow(f->constant, (double)t);
    case YK__LINEAR_WARMUP_LR: return warmup_rate(f, base, t);
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
        free(f->milestones);
        free(f);
        f = after;
    }
}

/* ---- as text ----------------------------------------------------------------------------------------------------- */

/* The words of each kind: before its length, before its constant. */
static const struct {
    const char *length, *constant;
} words[] = {
    [YK__STEP_LR] = {"step_lr(step_size=", ", gamma="},
    [YK__MULTI_STEP_LR] = {"multi_step_lr(milestones=[", "], gamma="},
    [YK__COSINE_LR] = {"cosine_lr(t_max=", ", eta_min="},
    [YK__EXPONENTIAL_LR] = {"exponential_lr(", "gamma="},
    [YK__LINEAR_WARMUP_LR] = {"linear_warmup_lr(steps=", ", start_factor="},
    [YK__LAMBDA_LR] = {"lambda_lr(", ""},
};
enum { KINDS = sizeof(words) / sizeof(*words) };

static bool has_period(yk__schedule_kind kind)
{
    return kind == YK__STEP_LR || kind == YK__COSINE_LR || kind == YK__LINEAR_WARMUP_LR;
}

/* A growing text that stops at its end. */
typedef struct writer {
    char *text;
    size_t size, used;
} writer;

__attribute__((format(printf, 2, 3))) static void put(writer *w, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = w->used < w->size ? vsnprintf(w->text + w->used, w->size - w->used, format, arguments) : 0;
    w->used += n > 0 ? (size_t)n : 0;
    va_end(arguments);
}

static void form_put(writer *w, const yk__schedule_form *f)
{
    char number[YK__NUMBER_ROOM];
    put(w, "%s", words[f->kind].length);
    if (has_period(f->kind))
        put(w, "%lld", (long long)f->period);
    for (int i = 0; i < f->n_milestones; i++)
        put(w, "%s%lld", i ? ", " : "", (long long)f->milestones[i]);
    put(w, "%s", words[f->kind].constant);
    if (f->kind != YK__LAMBDA_LR)
        put(w, "%s", yk__number_format(f->constant, number));
    if (f->after) {
        put(w, ", after=");
        form_put(w, f->after);
    }
    put(w, ")");
}

const char *yk__schedule_print(const yk__schedule_form *f, char *text, size_t size)
{
    writer w = {.text = text, .size = size};
    if (size)
        *text = 0;
    form_put(&w, f);
    return text;
}

/* True, and moves past the word, if it is next. */
static bool accept(const char **at, const char *word)
{
    size_t length = strlen(word);
    if (strncmp(*at, word, length) != 0)
        return false;
    *at += length;
    return true;
}

static bool read_integer(const char **at, int64_t *value)
{
    char *end;
    *value = strtoll(*at, &end, 10);
    bool read = end > *at;
    *at = end;
    return read;
}

static yk_status read_milestones(const char **at, yk__schedule_form *f)
{
    int count = **at != ']';
    for (const char *c = *at; *c && *c != ']'; c++)
        count += *c == ',';
    f->milestones = yk__calloc((size_t)count, sizeof(*f->milestones));
    if (!f->milestones)
        return YK_ERR_MEMORY;
    for (; f->n_milestones < count; f->n_milestones++) {
        const char *before = *at;
        if (!read_integer(at, &f->milestones[f->n_milestones]) || !(accept(at, ", ") || **at == ']'))
            return yk__fail(YK_ERR_FORMAT, "schedule: '%.60s' is no milestone", before);
    }
    return YK_OK;
}

static yk_status form_read(const char **at, yk__schedule_form **made)
{
    int kind = 0;
    const char *begin = *at;
    while (kind < KINDS && !accept(at, words[kind].length))
        kind++;
    if (kind == KINDS)
        return yk__fail(YK_ERR_UNSUPPORTED, "schedule '%.60s' is none of those that are known here", begin);
    yk__schedule_form *f = *made = yk__schedule_form_new((yk__schedule_kind)kind);
    yk_status status = f ? YK_OK : YK_ERR_MEMORY;
    if (!status && kind == YK__MULTI_STEP_LR)
        status = read_milestones(at, f);
    bool read = !status && (!has_period(f->kind) || read_integer(at, &f->period)) && accept(at, words[kind].constant);
    if (read && kind != YK__LAMBDA_LR) {
        char *end;
        f->constant = yk__number_parse(*at, &end);
        read = end > *at;
        *at = end;
    }
    if (read && kind == YK__LINEAR_WARMUP_LR && f->period < 0)
        status = yk__fail(YK_ERR_FORMAT, "schedule: a warm-up of %lld steps", (long long)f->period);
    else if (read && kind == YK__LINEAR_WARMUP_LR && accept(at, ", after="))
        status = form_read(at, &f->after);
    if (!status && !(read && accept(at, ")")))
        status = yk__fail(YK_ERR_FORMAT, "schedule: '%.60s' is not what a schedule goes on with", *at);
    return status;
}

yk__schedule_form *yk__schedule_parse(const char *text)
{
    enum { MOST = 1 << 16 }; /* bounds the recursion */
    yk__schedule_form *f = NULL;
    const char *at = text;
    yk_status status = strnlen(text, MOST) < MOST
                           ? form_read(&at, &f)
                           : yk__fail(YK_ERR_FORMAT, "schedule '%.60s' has more than %d characters", text, MOST);
    if (!status && *at)
        status = yk__fail(YK_ERR_FORMAT, "schedule: '%.60s' comes after its end", at);
    if (!status)
        return f;
    yk__schedule_form_free(f);
    return NULL;
}

/* ---- two of them ------------------------------------------------------------------------------------------------- */

static bool numbers_same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

bool yk__schedule_alike(const yk__schedule_form *a, const yk__schedule_form *b)
{
    for (; a && b; a = a->after, b = b->after)
        if (a->kind != b->kind || !numbers_same(a->constant, b->constant) || a->n_milestones != b->n_milestones)
            return false;
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

int64_t yk__schedule_time_in(const yk__schedule_form *f, const yk__schedule_form *old, int64_t t)
{
    if (has_period(f->kind) && old->period < 1)
        return -1;
    if (f->kind == YK__STEP_LR || f->kind == YK__COSINE_LR || (f->kind == YK__LINEAR_WARMUP_LR && t < old->period))
        return time_scale(t, f->period, old->period);
    if (f->kind == YK__MULTI_STEP_LR)
        return time_between_milestones(f, old, t);
    if (f->kind != YK__LINEAR_WARMUP_LR)
        return t;
    int64_t rest = f->after ? yk__schedule_time_in(f->after, old->after, t - old->period) : t - old->period;
    return rest < 0 ? -1 : f->period + rest;
}
