/*
 * torch_schedule.c - a schedule's state as torch.optim.lr_scheduler keeps it, made of and into yoke's form of one.
 * Layer: checkpoint.
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

/* Bytes of a schedule as text in an error, which cuts a longer one. */
enum { TEXT_ROOM = 1000 };
/* Milestones of a schedule that is read, and schedules of a SequentialLR: a small file asks for no more memory. */
enum { MOST_MILESTONES = 2048, MOST_PARTS = 4096 };

/* ---- out --------------------------------------------------------------------------------------------------------- */

/* Rates, one for each group. */
typedef struct rates {
    yk_value *base, *last;
} rates;

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
static yk_status put_common(const rates *r, yk_value *dict, int64_t time)
{
    yk_status status = yk_value_set(dict, "base_lrs", r->base);
    put_int(&status, dict, "last_epoch", time);
    put_int(&status, dict, "_step_count", time < 0 ? 1 : time == INT64_MAX ? time : time + 1);
    return status ? status : yk_value_set(dict, "_last_lr", r->last);
}

static yk_value *to_torch(const yk__schedule_form *f, const rates *r, int64_t time);

/* PyTorch has a Counter, of which only the items are used; a plain dict is what its restricted reader takes. */
static yk_status put_milestones(const yk__schedule_form *f, yk_value *dict)
{
    yk_value *milestones = yk_value_dict();
    yk_status status = milestones ? YK_OK : yk__error_code();
    int64_t times = 0;
    for (int i = 0; i < f->n_milestones && !status; i++) {
        times = i && f->milestones[i] == f->milestones[i - 1] ? times + 1 : 1;
        status = yk_value_set_int(milestones, f->milestones[i], yk_value_int(times)); /* in place of the one before */
    }
    return status ? status : yk_value_set(dict, "milestones", milestones);
}

/* LinearLR, or, where another follows, SequentialLR of both. */
static yk_value *warmup(const yk__schedule_form *f, const rates *r, yk_value *linear, int64_t time)
{
    yk_status status = YK_OK;
    put_real(&status, linear, "start_factor", f->constant);
    put_real(&status, linear, "end_factor", 1);
    put_int(&status, linear, "total_iters", f->period);
    if (!status)
        status = put_common(r, linear, f->after && time >= f->period ? f->period - 1 : time);
    if (status || !f->after)
        return status ? NULL : linear;
    yk_value *whole = yk_value_dict(), *both = yk_value_list(), *milestones = yk_value_list();
    yk_value *after = to_torch(f->after, r, time < f->period ? -1 : time - f->period);
    status = whole && both && milestones && after ? YK_OK : yk__error_code();
    if (!status)
        status = yk_value_append(milestones, yk_value_int(f->period));
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

/* Kinds whose constants are numbers of their own, and their names in PyTorch's order; its CyclicLR and OneCycleLR keep
 * theirs among the optimizer's. */
static const struct named {
    yk__schedule_kind kind;
    const char *length, *numbers[2];
    bool whole; /* the first number is an integer there */
} named_kinds[] = {{YK__LINEAR_LR, "total_iters", {"start_factor", "end_factor"}, false},
                   {YK__CONSTANT_LR, "total_iters", {"factor"}, false},
                   {YK__POLYNOMIAL_LR, "total_iters", {"power"}, false},
                   {YK__WARM_RESTARTS_LR, "T_0", {"T_mult", "eta_min"}, true}};
enum { NAMED_KINDS = sizeof(named_kinds) / sizeof(*named_kinds) };

static const struct named *named_of(yk__schedule_kind kind)
{
    for (int i = 0; i < NAMED_KINDS; i++) {
        if (named_kinds[i].kind == kind)
            return &named_kinds[i];
    }
    return NULL;
}

static yk_value *named_to_torch(const struct named *names, const yk__schedule_form *f, const rates *r, yk_value *dict,
                                int64_t time)
{
    yk_status status = YK_OK;
    put_int(&status, dict, names->length, f->period);
    for (int i = 0; i < 2 && names->numbers[i]; i++) {
        if (i == 0 && names->whole)
            put_int(&status, dict, names->numbers[i], (int64_t)f->numbers[i]);
        else
            put_real(&status, dict, names->numbers[i], f->numbers[i]);
    }
    if (f->kind == YK__WARM_RESTARTS_LR) {
        int64_t since;
        double length;
        yk__schedule_restart(f, time < 0 ? 0 : time, &since, &length);
        put_int(&status, dict, "T_cur", since);
        put_int(&status, dict, "T_i", (int64_t)length);
    }
    return status || put_common(r, dict, time) ? NULL : dict;
}

/* SequentialLR: parts that are over keep the time of their last step, those to come have not begun. */
static yk_value *sequence(const yk__schedule_form *f, const rates *r, yk_value *dict, int64_t time)
{
    yk_value *parts = yk_value_list(), *milestones = yk_value_list();
    yk_status status = parts && milestones ? YK_OK : yk__error_code();
    for (int i = 0; i < f->n_parts && !status; i++) {
        int64_t begin = i ? f->milestones[i - 1] : 0, end = i < f->n_milestones ? f->milestones[i] : INT64_MAX;
        yk_value *part = to_torch(f->parts[i], r, time < begin ? -1 : (time < end ? time : end - 1) - begin);
        status = part ? yk_value_append(parts, part) : yk__error_code();
        if (!status && i < f->n_milestones)
            status = yk_value_append(milestones, yk_value_int(f->milestones[i]));
    }
    if (!status)
        status = yk_value_set(dict, "_milestones", milestones);
    put_int(&status, dict, "last_epoch", time);
    if (!status)
        status = yk_value_set(dict, "_last_lr", r->last);
    return status || yk_value_set(dict, "_schedulers", parts) ? NULL : dict;
}

static yk_value *to_torch(const yk__schedule_form *f, const rates *r, int64_t time)
{
    yk_value *dict = yk_value_dict();
    yk_status status = dict ? YK_OK : yk__error_code();
    if (!status && f->kind == YK__LINEAR_WARMUP_LR)
        return warmup(f, r, dict, time);
    if (!status && f->kind == YK__SEQUENTIAL_LR)
        return sequence(f, r, dict, time);
    if (!status && named_of(f->kind))
        return named_to_torch(named_of(f->kind), f, r, dict, time);
    if (!status && (f->kind == YK__ONE_CYCLE_LR || f->kind == YK__CYCLIC_LR)) {
        yk__fail(YK_ERR_UNSUPPORTED, "schedule state: PyTorch keeps the numbers of %s among the optimizer's",
                 f->kind == YK__CYCLIC_LR ? "a CyclicLR" : "a OneCycleLR");
        return NULL;
    }
    if (f->kind == YK__STEP_LR)
        put_int(&status, dict, "step_size", f->period);
    else if (f->kind == YK__COSINE_LR)
        put_int(&status, dict, "T_max", f->period);
    else if (f->kind == YK__MULTI_STEP_LR)
        status = status ? status : put_milestones(f, dict);
    if (f->kind == YK__LAMBDA_LR) {
        yk_value *lambdas = yk_value_list();
        for (int64_t g = 0; g < yk_value_count(r->base) && !status; g++)
            status = yk_value_append(lambdas, yk_value_none());
        status = status ? status : yk_value_set(dict, "lr_lambdas", lambdas);
    } else {
        put_real(&status, dict, f->kind == YK__COSINE_LR ? "eta_min" : "gamma", f->constant);
    }
    return status || put_common(r, dict, time) ? NULL : dict;
}

bool yk__schedule_has_torch_form(const yk__schedule_form *f)
{
    bool has = f->kind != YK__ONE_CYCLE_LR && f->kind != YK__CYCLIC_LR;
    for (int i = 0; i < f->n_parts; i++)
        has = has && yk__schedule_has_torch_form(f->parts[i]);
    return has && (!f->after || yk__schedule_has_torch_form(f->after));
}

yk_value *yk__schedule_to_torch(const yk__schedule_form *form, int64_t time, yk_value *base_rates, yk_value *last_rates)
{
    yk_scope scope = yk_scope_begin();
    yk_value *value = yk_scope_return_object(scope, to_torch(form, &(rates){base_rates, last_rates}, time));
    yk_scope_end(scope);
    return value;
}

/* ---- in ---------------------------------------------------------------------------------------------------------- */

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

/* The milestones, how often each stands, in rising order. */
static yk_status read_milestones(const yk_value *milestones, yk__schedule_form *f)
{
    enum { MOST = MOST_MILESTONES };
    yk_status status = YK_OK;
    f->milestones = yk__calloc(MOST, sizeof(*f->milestones));
    if (!f->milestones)
        return YK_ERR_MEMORY;
    for (int64_t i = 0; i < yk_value_count(milestones) && !status; i++) {
        int64_t milestone;
        const char *text = yk_value_key(milestones, i, &milestone);
        const yk_value *item = yk_value_at(milestones, i);
        int64_t times = yk_value_kind_of(item) == YK_VALUE_INT ? yk_value_as_int(item) : 0;
        if (text || times < 1)
            status = yk__fail(YK_ERR_UNSUPPORTED,
                              "schedule state: a milestone that is no integer, or stands %" PRId64 " times", times);
        else if (times > MOST - f->n_milestones)
            status = yk__fail(YK_ERR_UNSUPPORTED, "schedule state: more than %d milestones", MOST);
        for (; !status && times > 0; times--)
            f->milestones[f->n_milestones++] = milestone;
    }
    qsort(f->milestones, (size_t)f->n_milestones, sizeof(*f->milestones), ascending);
    return status;
}

/* LinearLR up to the full rate, a warm-up here, or to another one. */
static yk_status read_linear(const yk_value *value, yk__schedule_form *f)
{
    double start, end;
    yk_status status = get_int(value, "total_iters", &f->period);
    if (!status)
        status = get_real(value, "start_factor", &start);
    if (!status)
        status = get_real(value, "end_factor", &end);
    if (status)
        return status;
    if (end == 1) {
        f->kind = YK__LINEAR_WARMUP_LR;
        f->constant = start;
        return YK_OK;
    }
    f->kind = YK__LINEAR_LR;
    f->numbers[YK__LINEAR_START] = start;
    f->numbers[YK__LINEAR_END] = end;
    return YK_OK;
}

/* A kind with numbers of its own. */
static yk_status read_named(const yk_value *value, yk__schedule_form *f)
{
    const struct named *names = named_of(f->kind);
    yk_status status = get_int(value, names->length, &f->period);
    for (int i = 0; i < 2 && names->numbers[i] && !status; i++)
        status = get_real(value, names->numbers[i], &f->numbers[i]);
    if (!status && f->kind == YK__WARM_RESTARTS_LR &&
        !(f->numbers[YK__RESTARTS_MULT] >= 1 && f->numbers[YK__RESTARTS_MULT] == floor(f->numbers[YK__RESTARTS_MULT])))
        status = yk__fail(YK_ERR_FORMAT, "schedule state: T_mult is %g", f->numbers[YK__RESTARTS_MULT]);
    return status;
}

static yk_status read_form(const yk_value *value, int depth, yk__schedule_form **form);

/* A warm-up and what follows it at its end are one form here; other sequences are a list. */
static yk_status read_sequence(const yk_value *value, int depth, yk__schedule_form *f)
{
    const yk_value *parts = yk_value_get(value, "_schedulers"), *milestones = yk_value_get(value, "_milestones");
    int64_t count = yk_value_count(parts), before = 0;
    if (depth > 8 || count < 1 || count > MOST_PARTS || yk_value_count(milestones) != count - 1)
        return yk__fail(YK_ERR_UNSUPPORTED,
                        "schedule state: a SequentialLR of %" PRId64 " schedules with %" PRId64
                        " milestones, in %d others",
                        count, yk_value_count(milestones), depth);
    f->kind = YK__SEQUENTIAL_LR;
    f->milestones = yk__calloc((size_t)count, sizeof(*f->milestones));
    f->parts = yk__calloc((size_t)count, sizeof(*f->parts));
    yk_status status = f->milestones && f->parts ? YK_OK : YK_ERR_MEMORY;
    for (int64_t i = 0; i < count && !status; i++) {
        const yk_value *milestone = i ? yk_value_at(milestones, i - 1) : NULL;
        int64_t at = yk_value_kind_of(milestone) == YK_VALUE_INT ? yk_value_as_int(milestone) : 0;
        if (i && at <= before)
            return yk__fail(YK_ERR_UNSUPPORTED, "schedule state: milestones of a SequentialLR that do not increase");
        if (i)
            f->milestones[f->n_milestones++] = before = at;
        status = read_form(yk_value_at(parts, i), depth + 1, &f->parts[f->n_parts++]);
    }
    const yk__schedule_form *first = status ? NULL : f->parts[0];
    if (first && count == 2 && first->kind == YK__LINEAR_WARMUP_LR && !first->after &&
        first->period == f->milestones[0]) {
        f->kind = YK__LINEAR_WARMUP_LR;
        f->period = first->period;
        f->constant = first->constant;
        f->after = f->parts[1];
        f->n_milestones = 0;
        yk__schedule_form_free(f->parts[0]);
        f->n_parts = 0;
    }
    return status;
}

/* Fails where there is a constant that no schedule here has: CyclicLR has a gamma too, as ExponentialLR. What begins
 * with '_' is PyTorch's own business. */
static yk_status check_constants(const yk_value *value)
{
    static const char *const known[] = {"base_lrs",     "last_epoch", "verbose", "step_size",  "gamma",
                                        "milestones",   "T_max",      "eta_min", "lr_lambdas", "total_iters",
                                        "start_factor", "end_factor", "factor",  "power",      "T_0",
                                        "T_mult",       "T_i",        "T_cur"};
    for (int64_t i = 0; i < yk_value_count(value); i++) {
        const char *key = yk_value_key(value, i, NULL);
        bool found = key && *key == '_';
        for (size_t k = 0; k < sizeof(known) / sizeof(*known) && !found; k++)
            found = key && strcmp(key, known[k]) == 0;
        if (!found)
            return yk__fail(YK_ERR_UNSUPPORTED,
                            "schedule state: '%.60s' is a constant of none of StepLR, MultiStepLR, CosineAnnealingLR, "
                            "ExponentialLR, LinearLR, ConstantLR, PolynomialLR, CosineAnnealingWarmRestarts, LambdaLR "
                            "and SequentialLR",
                            key ? key : "a number");
    }
    return YK_OK;
}

/* The kind of a schedule with these constants. */
static yk_status read_kind(const yk_value *value, yk__schedule_kind *kind)
{
    static const struct {
        const char *constant;
        yk__schedule_kind kind;
    } marks[] = {{"_schedulers", YK__SEQUENTIAL_LR}, {"milestones", YK__MULTI_STEP_LR}, {"start_factor", YK__LINEAR_LR},
                 {"factor", YK__CONSTANT_LR},        {"power", YK__POLYNOMIAL_LR},      {"T_0", YK__WARM_RESTARTS_LR},
                 {"step_size", YK__STEP_LR},         {"T_max", YK__COSINE_LR},          {"lr_lambdas", YK__LAMBDA_LR},
                 {"gamma", YK__EXPONENTIAL_LR}};
    for (size_t i = 0; i < sizeof(marks) / sizeof(*marks); i++) {
        *kind = marks[i].kind;
        if (yk_value_get(value, marks[i].constant))
            return YK_OK;
    }
    return yk__fail(YK_ERR_UNSUPPORTED, "schedule state: its constants are none of StepLR, MultiStepLR, "
                                        "CosineAnnealingLR, ExponentialLR, LinearLR, ConstantLR, PolynomialLR, "
                                        "CosineAnnealingWarmRestarts, LambdaLR or SequentialLR");
}

/* The form goes to *form, also where reading it fails. */
static yk_status read_form(const yk_value *value, int depth, yk__schedule_form **form)
{
    yk__schedule_kind kind;
    yk_status status = check_constants(value);
    if (!status)
        status = read_kind(value, &kind);
    if (status)
        return status;
    yk__schedule_form *f = *form = yk__schedule_form_new(kind);
    if (!f)
        return YK_ERR_MEMORY;
    if (yk_value_get(value, "_schedulers"))
        return read_sequence(value, depth, f);
    if (kind == YK__LINEAR_LR)
        return read_linear(value, f);
    if (named_of(kind))
        return read_named(value, f);
    if (kind == YK__MULTI_STEP_LR)
        status = read_milestones(yk_value_get(value, "milestones"), f);
    else if (kind == YK__STEP_LR || kind == YK__COSINE_LR)
        status = get_int(value, kind == YK__STEP_LR ? "step_size" : "T_max", &f->period);
    if (status || kind == YK__LAMBDA_LR)
        return status;
    return get_real(value, kind == YK__COSINE_LR ? "eta_min" : "gamma", &f->constant);
}

yk__schedule_form *yk__schedule_from_torch(const yk_value *value, int64_t *time)
{
    yk__schedule_form *form = NULL;
    yk_status status = get_int(value, "last_epoch", time);
    if (!status)
        status = read_form(value, 0, &form);
    if (!status && *time < 0)
        status = yk__fail(YK_ERR_FORMAT, "schedule state: last_epoch is %" PRId64, *time);
    if (!status)
        return form;
    yk__schedule_form_free(form);
    return NULL;
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
    const yk__schedule_form *form = yk__schedule_form_of(s);
    yk_scope scope = yk_scope_begin();
    yk_optimizer *o = yk__schedule_optimizer(s);
    yk_value *base = yk_value_list(), *last = yk_value_list();
    yk_status status = base && last ? YK_OK : yk__error_code();
    for (int g = 0; g < yk_optimizer_group_count(o) && !status; g++) {
        double first = o->groups[g].initial_lr; /* of a group that came since the last step, none */
        status = yk_value_append(base, yk_value_real(isnan(first) ? yk_optimizer_lr(o, g) : first));
        status = status ? status : yk_value_append(last, yk_value_real(yk_optimizer_lr(o, g)));
    }
    yk_value *value = status ? NULL : yk__schedule_to_torch(form, yk_schedule_time(s), base, last);
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
    yk__schedule_form *given = yk__schedule_from_torch(value, &time);
    if (!given)
        return yk__error_code();
    char own[TEXT_ROOM], other[TEXT_ROOM];
    yk_status status = !yk__schedule_same(given, yk__schedule_form_of(s))
                           ? yk__fail(YK_ERR_ARGUMENT, "schedule state: it is of %s, this schedule is %s",
                                      yk__schedule_print(given, other, TEXT_ROOM),
                                      yk__schedule_print(yk__schedule_form_of(s), own, TEXT_ROOM))
                       : has_rates(s, value) ? yk__schedule_resume(s, given, time)
                                             : yk_schedule_set_time(s, time);
    yk__schedule_form_free(given);
    return status;
}
