/*
 * torch_schedule.c - a schedule's state as torch.optim.lr_scheduler keeps it, made of and into the text by which yoke
 * tells schedules from one another. Layer: checkpoint.
 *
 * There a schedule's kind is its class, which is not in the state; here it is known by the names of its constants.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/training/torch_state.h"
#include "optim/optimizer.h"
#include "value/value.h"

/* Bytes of a schedule as text; a longer one is refused. */
enum { TEXT_ROOM = 4096 };

/* ---- out: the text is read from its beginning to its end --------------------------------------------------------- */

typedef struct reader {
    const char *at;
    yk_value *base, *last; /* rates, one for each group */
} reader;

/* True, and moves past the word, if it is next. */
static bool accept(reader *r, const char *word)
{
    size_t length = strlen(word);
    if (strncmp(r->at, word, length) != 0)
        return false;
    r->at += length;
    return true;
}

static double number(reader *r)
{
    char *end;
    double value = yk__number_parse(r->at, &end);
    r->at = end;
    return value;
}

static int64_t integer(reader *r)
{
    char *end;
    int64_t value = strtoll(r->at, &end, 10);
    r->at = end;
    return value;
}

/* Adds an integer or a real under a key; a failure before stays. */
static void put_int(yk_status *status, yk_value *dict, const char *key, int64_t value)
{
    if (!*status)
        *status = yk_value_set(dict, key, yk_value_int(value));
}

static void put_real(yk_status *status, yk_value *dict, const char *key, double value)
{
    if (!*status)
        *status = yk_value_set(dict, key, yk_value_real(value));
}

/* Puts the keys that every schedule has. A time of -1 is that of one that has not begun. */
static yk_status put_common(const reader *r, yk_value *dict, int64_t time)
{
    yk_status status = yk_value_set(dict, "base_lrs", r->base);
    put_int(&status, dict, "last_epoch", time);
    put_int(&status, dict, "_step_count", time < 0 ? 1 : time == INT64_MAX ? time : time + 1);
    return status ? status : yk_value_set(dict, "_last_lr", r->last);
}

static yk_value *to_torch(reader *r, int64_t time);

/* PyTorch has a Counter, of which only the items are used; a plain dict is what its restricted reader takes. */
static yk_status put_milestones(reader *r, yk_value *dict)
{
    yk_value *milestones = yk_value_dict();
    yk_status status = milestones ? YK_OK : yk__error_code();
    int64_t last = -1, times = 0;
    while (!status && *r->at && *r->at != ']') {
        const char *before = r->at;
        int64_t milestone = integer(r), count = milestone == last ? times + 1 : 1;
        last = milestone;
        times = count;
        if (r->at == before)
            status = yk__fail(YK_ERR_FORMAT, "schedule: '%.60s' is no milestone", before);
        else
            status = yk_value_set_int(milestones, milestone, yk_value_int(count)); /* in place of the one before */
        accept(r, ", ");
    }
    accept(r, "], gamma=");
    return status ? status : yk_value_set(dict, "milestones", milestones);
}

/* LinearLR, or, where another follows, SequentialLR of both. */
static yk_value *warmup(reader *r, yk_value *linear, int64_t time)
{
    int64_t steps = integer(r);
    accept(r, ", start_factor=");
    double factor = number(r);
    bool more = accept(r, ", after=");
    yk_status status = steps >= 0 ? YK_OK : yk__fail(YK_ERR_FORMAT, "schedule: a warm-up of %" PRId64 " steps", steps);
    put_real(&status, linear, "start_factor", factor);
    put_real(&status, linear, "end_factor", 1);
    put_int(&status, linear, "total_iters", steps);
    if (!status)
        status = put_common(r, linear, more && time >= steps ? steps - 1 : time);
    if (status || !more)
        return status ? NULL : linear;
    yk_value *whole = yk_value_dict(), *both = yk_value_list(), *milestones = yk_value_list();
    yk_value *after = to_torch(r, time < steps ? -1 : time - steps);
    status = whole && both && milestones && after ? YK_OK : yk__error_code();
    if (!status)
        status = yk_value_append(milestones, yk_value_int(steps));
    if (!status)
        status = yk_value_set(whole, "_milestones", milestones);
    put_int(&status, whole, "last_epoch", time);
    if (!status)
        status = yk_value_set(whole, "_last_lr", r->last);
    if (!status)
        status = yk_value_append(both, linear);
    if (!status)
        status = yk_value_append(both, after);
    return status || yk_value_set(whole, "_schedulers", both) ? NULL : whole;
}

static yk_value *to_torch(reader *r, int64_t time)
{
    yk_value *dict = yk_value_dict();
    yk_status status = dict ? YK_OK : yk__error_code();
    if (!status && accept(r, "linear_warmup_lr(steps="))
        return warmup(r, dict, time);
    if (accept(r, "step_lr(step_size=")) {
        put_int(&status, dict, "step_size", integer(r));
        accept(r, ", gamma=");
        put_real(&status, dict, "gamma", number(r));
    } else if (accept(r, "multi_step_lr(milestones=[")) {
        status = status ? status : put_milestones(r, dict);
        put_real(&status, dict, "gamma", number(r));
    } else if (accept(r, "cosine_lr(t_max=")) {
        put_int(&status, dict, "T_max", integer(r));
        accept(r, ", eta_min=");
        put_real(&status, dict, "eta_min", number(r));
    } else if (accept(r, "exponential_lr(gamma=")) {
        put_real(&status, dict, "gamma", number(r));
    } else if (accept(r, "lambda_lr(")) {
        yk_value *lambdas = yk_value_list();
        for (int64_t g = 0; g < yk_value_count(r->base) && !status; g++)
            status = yk_value_append(lambdas, yk_value_none());
        status = status ? status : yk_value_set(dict, "lr_lambdas", lambdas);
    } else {
        status = yk__fail(YK_ERR_UNSUPPORTED, "schedule '%.60s' has no form in PyTorch that is known here", r->at);
    }
    accept(r, ")");
    return status || put_common(r, dict, time) ? NULL : dict;
}

yk_value *yk__schedule_to_torch(const char *text, int64_t time, yk_value *base_rates, yk_value *last_rates)
{
    enum { MOST = 1 << 16 }; /* bounds the recursion */
    if (strnlen(text, MOST) == MOST) {
        yk__fail(YK_ERR_FORMAT, "schedule '%.60s' has more than %d characters", text, MOST);
        return NULL;
    }
    yk_scope scope = yk_scope_begin();
    reader r = {text, base_rates, last_rates};
    yk_value *value = yk_scope_return_object(scope, to_torch(&r, time));
    yk_scope_end(scope);
    return value;
}

/* ---- in ---------------------------------------------------------------------------------------------------------- */

/* The text, and the end of what is written. */
typedef struct writer {
    char text[TEXT_ROOM];
    size_t used;
} writer;

__attribute__((format(printf, 2, 3))) static void put(writer *w, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(w->text + w->used, TEXT_ROOM - w->used, format, arguments);
    va_end(arguments);
    w->used += n > 0 ? (size_t)n : 0;
    w->used = w->used < TEXT_ROOM ? w->used : TEXT_ROOM - 1;
}

/* Puts a number as yk_schedule_describe prints it. */
static void put_shortest(writer *w, double value)
{
    char text[YK__NUMBER_ROOM];
    put(w, "%s", yk__number_format(value, text));
}

static yk_status get_int(const yk_value *value, const char *key, int64_t *result)
{
    const yk_value *item = yk_value_get(value, key);
    if (yk_value_kind_of(item) != YK_VALUE_INT)
        return yk__fail(YK_ERR_FORMAT, "schedule state: %s is a %s, expected an integer", key,
                        yk_value_kind_name(yk_value_kind_of(item)));
    *result = yk_value_as_int(item);
    return YK_OK;
}

static yk_status get_real(const yk_value *value, const char *key, double *result)
{
    const yk_value *item = yk_value_get(value, key);
    if (yk_value_kind_of(item) != YK_VALUE_INT && yk_value_kind_of(item) != YK_VALUE_REAL)
        return yk__fail(YK_ERR_FORMAT, "schedule state: %s is a %s, expected a number", key,
                        yk_value_kind_name(yk_value_kind_of(item)));
    *result = yk_value_as_real(item);
    return YK_OK;
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static yk_status put_multi_step(writer *w, const yk_value *value)
{
    const yk_value *milestones = yk_value_get(value, "milestones");
    int64_t sorted[TEXT_ROOM / 2], count = 0; /* more have no room in the text */
    double gamma = 0;
    yk_status status = get_real(value, "gamma", &gamma);
    for (int64_t i = 0; i < yk_value_count(milestones) && !status; i++) {
        int64_t milestone;
        const char *text = yk_value_key(milestones, i, &milestone);
        const yk_value *item = yk_value_at(milestones, i);
        int64_t times = yk_value_kind_of(item) == YK_VALUE_INT ? yk_value_as_int(item) : 0;
        if (text || times < 1)
            status = yk__fail(YK_ERR_UNSUPPORTED,
                              "schedule state: a milestone that is no integer, or stands %" PRId64 " times", times);
        else if (times > TEXT_ROOM / 2 - count)
            status = yk__fail(YK_ERR_UNSUPPORTED, "schedule state: more than %d milestones", TEXT_ROOM / 2);
        for (; !status && times > 0; times--)
            sorted[count++] = milestone;
    }
    if (!status) {
        qsort(sorted, (size_t)count, sizeof(*sorted), ascending);
        put(w, "multi_step_lr(milestones=[");
        for (int64_t i = 0; i < count; i++)
            put(w, "%s%" PRId64, i ? ", " : "", sorted[i]);
        put(w, "], gamma=");
        put_shortest(w, gamma);
        put(w, ")");
    }
    return status;
}

/* LinearLR up to the full rate, without the closing bracket. */
static yk_status put_warmup(writer *w, const yk_value *value, int64_t *steps)
{
    double start = 0, end = 0;
    yk_status status = get_int(value, "total_iters", steps);
    if (!status)
        status = get_real(value, "start_factor", &start);
    if (!status)
        status = get_real(value, "end_factor", &end);
    if (!status && end != 1)
        status =
            yk__fail(YK_ERR_UNSUPPORTED, "schedule state: a LinearLR to the factor %g; only one to 1 is read", end);
    if (status)
        return status;
    put(w, "linear_warmup_lr(steps=%" PRId64 ", start_factor=", *steps);
    put_shortest(w, start);
    return YK_OK;
}

static yk_status put_schedule(writer *w, const yk_value *value, int depth);

static yk_status put_sequence(writer *w, const yk_value *value, int depth)
{
    const yk_value *both = yk_value_get(value, "_schedulers"), *milestones = yk_value_get(value, "_milestones");
    int64_t steps = 0;
    const yk_value *first = yk_value_at(both, 0), *milestone = yk_value_at(milestones, 0);
    if (depth > 8 || yk_value_count(both) != 2 || yk_value_count(milestones) != 1 ||
        yk_value_kind_of(milestone) != YK_VALUE_INT || !yk_value_get(first, "total_iters") ||
        !yk_value_get(first, "start_factor"))
        return yk__fail(YK_ERR_UNSUPPORTED,
                        "schedule state: a SequentialLR that is not LinearLR and then one other schedule");
    yk_status status = put_warmup(w, first, &steps);
    if (!status && steps != yk_value_as_int(milestone))
        status = yk__fail(YK_ERR_UNSUPPORTED, "schedule state: a LinearLR of %" PRId64 " steps is left after %" PRId64,
                          steps, yk_value_as_int(milestone));
    if (status)
        return status;
    put(w, ", after=");
    status = put_schedule(w, yk_value_at(both, 1), depth + 1);
    put(w, ")");
    return status;
}

/* Fails where there is a constant that no schedule here has: CyclicLR has a gamma too, as ExponentialLR. What begins
 * with '_' is PyTorch's own business. */
static yk_status check_constants(const yk_value *value)
{
    static const char *const known[] = {"base_lrs",   "last_epoch",  "verbose",      "step_size",
                                        "gamma",      "milestones",  "T_max",        "eta_min",
                                        "lr_lambdas", "total_iters", "start_factor", "end_factor"};
    for (int64_t i = 0; i < yk_value_count(value); i++) {
        const char *key = yk_value_key(value, i, NULL);
        bool found = key && *key == '_';
        for (size_t k = 0; k < sizeof(known) / sizeof(*known) && !found; k++)
            found = key && strcmp(key, known[k]) == 0;
        if (!found)
            return yk__fail(YK_ERR_UNSUPPORTED,
                            "schedule state: '%.60s' is a constant of none of StepLR, MultiStepLR, CosineAnnealingLR, "
                            "ExponentialLR, LinearLR, LambdaLR and SequentialLR",
                            key ? key : "a number");
    }
    return YK_OK;
}

/* The schedule that is known by these constants. */
static yk_status put_schedule(writer *w, const yk_value *value, int depth)
{
    int64_t count;
    double constant = 0;
    yk_status status = check_constants(value);
    if (status)
        return status;
    if (yk_value_get(value, "_schedulers"))
        return put_sequence(w, value, depth);
    if (yk_value_get(value, "milestones"))
        return put_multi_step(w, value);
    if (yk_value_get(value, "start_factor")) {
        status = put_warmup(w, value, &count);
    } else if (yk_value_get(value, "step_size") || yk_value_get(value, "T_max")) {
        bool step = yk_value_get(value, "step_size");
        status = get_int(value, step ? "step_size" : "T_max", &count);
        status = status ? status : get_real(value, step ? "gamma" : "eta_min", &constant);
        if (!status) {
            put(w, step ? "step_lr(step_size=%" PRId64 ", gamma=" : "cosine_lr(t_max=%" PRId64 ", eta_min=", count);
            put_shortest(w, constant);
        }
    } else if (yk_value_get(value, "lr_lambdas")) {
        put(w, "lambda_lr(");
        status = YK_OK;
    } else if (yk_value_get(value, "gamma")) {
        status = get_real(value, "gamma", &constant);
        if (!status) {
            put(w, "exponential_lr(gamma=");
            put_shortest(w, constant);
        }
    } else {
        status = yk__fail(YK_ERR_UNSUPPORTED, "schedule state: its constants are none of StepLR, MultiStepLR, "
                                              "CosineAnnealingLR, ExponentialLR, LinearLR, LambdaLR or SequentialLR");
    }
    put(w, ")");
    return status;
}

/* A text that fills its room was cut. */
static yk_status check_room(const char *text)
{
    if (strlen(text) + 1 < TEXT_ROOM)
        return YK_OK;
    return yk__fail(YK_ERR_UNSUPPORTED, "schedule state: of more than %d characters: %.60s...", TEXT_ROOM, text);
}

char *yk__schedule_from_torch(const yk_value *value, int64_t *time)
{
    writer w = {.used = 0};
    if (get_int(value, "last_epoch", time) || put_schedule(&w, value, 0) || check_room(w.text))
        return NULL;
    if (*time < 0) {
        yk__fail(YK_ERR_FORMAT, "schedule state: last_epoch is %" PRId64, *time);
        return NULL;
    }
    return yk__strdup(w.text);
}

/* ---- objects ----------------------------------------------------------------------------------------------------- */

yk_value *yk_value_from_schedule(const yk_schedule *s)
{
    YK__LIVE(s);
    if (!s) {
        yk__fail(YK_ERR_ARGUMENT, "value_from_schedule: the schedule is NULL");
        return NULL;
    }
    if (!yk__scope_check("value_from_schedule"))
        return NULL;
    char text[TEXT_ROOM];
    yk_schedule_describe(s, text, sizeof(text));
    if (check_room(text))
        return NULL;
    yk_scope scope = yk_scope_begin();
    yk_optimizer *o = yk__schedule_optimizer(s);
    yk_value *base = yk_value_list(), *last = yk_value_list();
    yk_status status = base && last ? YK_OK : yk__error_code();
    for (int g = 0; g < yk_optimizer_group_count(o) && !status; g++) {
        double first = o->groups[g].initial_lr; /* of a group that came since the last step, none */
        status = yk_value_append(base, yk_value_real(isnan(first) ? yk_optimizer_lr(o, g) : first));
        status = status ? status : yk_value_append(last, yk_value_real(yk_optimizer_lr(o, g)));
    }
    yk_value *value = status ? NULL : yk__schedule_to_torch(text, yk_schedule_time(s), base, last);
    value = yk_scope_return_object(scope, value);
    yk_scope_end(scope);
    return value;
}

/* True if the optimizer has the rates that the schedule was saved with: its state was loaded before. */
static bool has_rates(const yk_schedule *s, const yk_value *value)
{
    const yk_value *last = yk_value_get(value, "_last_lr");
    const yk_optimizer *o = yk__schedule_optimizer(s);
    bool same = yk_value_kind_of(last) == YK_VALUE_LIST && yk_value_count(last) == yk_optimizer_group_count(o);
    for (int g = 0; same && g < yk_optimizer_group_count(o); g++)
        same = yk_value_as_real(yk_value_at(last, g)) == yk_optimizer_lr(o, g);
    return same;
}

yk_status yk_schedule_load_value(yk_schedule *s, const yk_value *value)
{
    YK__OWN_RECORD;
    YK__LIVE(s);
    YK__LIVE(value);
    if (!s || !value)
        return yk__error_code()
                   ? yk__error_code()
                   : yk__fail(YK_ERR_ARGUMENT, "schedule_load_value: the %s is NULL", s ? "value" : "schedule");
    int64_t time;
    char own[TEXT_ROOM], *given = yk__schedule_from_torch(value, &time);
    if (!given)
        return yk__error_code();
    yk_schedule_describe(s, own, sizeof(own));
    yk_status status = strcmp(own, given) == 0
                           ? has_rates(s, value) ? yk__schedule_resume(s, given, time) : yk_schedule_set_time(s, time)
                           : yk__fail(YK_ERR_ARGUMENT, "schedule state: it is of %s, this schedule is %s", given, own);
    free(given);
    return status;
}
