/*
 * schedule_json.c - a schedule in state.json: an object of its kind, and its constants by the names that PyTorch's
 * arguments have. Layer: checkpoint.
 *
 *     {"kind": "linear_warmup_lr", "steps": 4, "start_factor": 0.25, "after": {"kind": "step_lr", ...}, "time": 7}
 *
 * Lengths are integers, flags true or false, constants numbers, or text where JSON has none for them (NaN, infinities).
 * A sequential_lr has "milestones" and a list "schedules". Only the outermost has a time. Checkpoints of 0.1 and 0.2
 * have all of it but the time as one text, under "kind".
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/training/training.h"
#include "optim/schedule_form.h"

/* Schedules inside one another; the values of .pt files are nested no deeper than twice that. */
enum { MOST_DEPTH = 90 };

/* True if the kind's number i is a flag. */
static bool is_flag(yk__schedule_kind kind, int i)
{
    bool cycle = kind == YK__ONE_CYCLE_LR || kind == YK__CYCLIC_LR;
    return (cycle && i == YK__CYCLE_MOMENTUM) ||
           (kind == YK__ONE_CYCLE_LR && (i == YK__ONE_CYCLE_LINEAR || i == YK__ONE_CYCLE_THREE_PHASE));
}

/* ---- out --------------------------------------------------------------------------------------------------------- */

static json_t *real_json(double value)
{
    char text[YK__NUMBER_ROOM];
    return isfinite(value) ? json_real(value) : json_string(yk__number_format(value, text));
}

static json_t *form_json(const yk__schedule_form *f, int depth)
{
    const yk__schedule_names *names = yk__schedule_names_of(f->kind);
    if (depth == MOST_DEPTH) {
        yk__fail(YK_ERR_UNSUPPORTED, "checkpoint: more than %d schedules inside one another", MOST_DEPTH);
        return NULL;
    }
    json_t *object = json_object();
    int failed = json_object_set_new(object, "kind", json_string(names->kind));
    if (names->length)
        failed |= json_object_set_new(object, names->length, json_integer(f->period));
    if (yk__schedule_has_milestones(f->kind)) {
        json_t *list = json_array();
        for (int i = 0; i < f->n_milestones; i++)
            failed |= json_array_append_new(list, json_integer(f->milestones[i]));
        failed |= json_object_set_new(object, "milestones", list);
    }
    if (names->constant)
        failed |= json_object_set_new(object, names->constant, real_json(f->constant));
    for (int i = 0; i < YK__SCHEDULE_NUMBERS && names->numbers[i]; i++)
        failed |=
            json_object_set_new(object, names->numbers[i],
                                is_flag(f->kind, i) ? json_boolean(f->numbers[i] != 0) : real_json(f->numbers[i]));
    if (f->n_parts) {
        json_t *list = json_array();
        for (int i = 0; i < f->n_parts; i++)
            failed |= json_array_append_new(list, form_json(f->parts[i], depth + 1));
        failed |= json_object_set_new(object, "schedules", list);
    }
    if (f->after)
        failed |= json_object_set_new(object, "after", form_json(f->after, depth + 1));
    if (!failed)
        return object;
    json_decref(object);
    return NULL;
}

json_t *yk__schedule_json(const yk__schedule_form *form, int64_t time)
{
    json_t *object = form_json(form, 0);
    if (!object || !json_object_set_new(object, "time", json_integer(time)))
        return object;
    json_decref(object);
    return NULL;
}

/* ---- in ---------------------------------------------------------------------------------------------------------- */

/* A schedule that is being read, for messages: its folder, and the keys that lead to it, "schedule.after.". */
typedef struct json_path {
    const char *dir;
    char prefix[120];
    int depth;
} json_path;

static yk_status form_wrong(const json_path *p, const char *key, const json_t *item, const char *expected)
{
    return yk__state_wrong(p->dir, p->prefix, key, item, expected);
}

static json_path path_inside(const json_path *p, const char *key, size_t i, bool in_list)
{
    json_path inside = {.dir = p->dir, .depth = p->depth + 1};
    if (in_list)
        snprintf(inside.prefix, sizeof(inside.prefix), "%.80s%s.%zu.", p->prefix, key, i);
    else
        snprintf(inside.prefix, sizeof(inside.prefix), "%.80s%s.", p->prefix, key);
    return inside;
}

static yk_status read_length(const json_path *p, const json_t *object, const char *key, int64_t *value)
{
    const json_t *item = json_object_get(object, key);
    *value = json_integer_value(item);
    return json_is_integer(item) ? YK_OK : form_wrong(p, key, item, "an integer");
}

static yk_status read_number(const json_path *p, const json_t *object, const char *key, bool flag, double *value)
{
    const json_t *item = json_object_get(object, key);
    const char *text = json_string_value(item);
    char *end = (char *)text;
    if (flag) {
        *value = json_is_true(item);
        return json_is_boolean(item) ? YK_OK : form_wrong(p, key, item, "true or false");
    }
    *value = text ? yk__number_parse(text, &end) : json_number_value(item);
    return json_is_number(item) || (end > text && !*end) ? YK_OK : form_wrong(p, key, item, "a number");
}

static yk_status read_milestones(const json_path *p, const json_t *object, yk__schedule_form *f)
{
    const json_t *list = json_object_get(object, "milestones");
    size_t count = json_array_size(list);
    if (!json_is_array(list) || count > INT32_MAX / 2)
        return form_wrong(p, "milestones", list, "a list of integers");
    f->milestones = yk__calloc(count ? count : 1, sizeof(*f->milestones));
    if (!f->milestones)
        return YK_ERR_MEMORY;
    for (size_t i = 0; i < count; i++) {
        if (!json_is_integer(json_array_get(list, i)))
            return form_wrong(p, "milestones", list, "a list of integers");
        f->milestones[f->n_milestones++] = json_integer_value(json_array_get(list, i));
    }
    return YK_OK;
}

static yk_status form_read(const json_path *p, const json_t *object, yk__schedule_form **made);

static yk_status read_parts(const json_path *p, const json_t *object, yk__schedule_form *f)
{
    const json_t *list = json_object_get(object, "schedules");
    size_t count = json_array_size(list);
    yk_status status = YK_OK;
    if (count != (size_t)f->n_milestones + 1)
        return form_wrong(p, "schedules", list, "a list of one more than there are milestones");
    f->parts = yk__calloc(count, sizeof(*f->parts));
    if (!f->parts)
        return YK_ERR_MEMORY;
    for (size_t i = 0; i < count && !status; i++) {
        json_path inside = path_inside(p, "schedules", i, true);
        status = form_read(&inside, json_array_get(list, i), &f->parts[f->n_parts++]);
    }
    return status;
}

static yk_status read_kind(const json_path *p, const json_t *object, yk__schedule_kind *kind)
{
    const json_t *item = json_object_get(object, "kind");
    const char *name = json_string_value(item);
    if (!name)
        return form_wrong(p, "kind", item, "text");
    for (int i = 0; i < YK__SCHEDULE_KINDS; i++) {
        *kind = (yk__schedule_kind)i;
        if (strcmp(name, yk__schedule_names_of(*kind)->kind) == 0)
            return YK_OK;
    }
    return yk__fail(YK_ERR_UNSUPPORTED, "%s/state.json: schedule '%.60s' is none of those that are known here", p->dir,
                    name);
}

/* The form goes to *made, also where reading it fails. */
static yk_status form_read(const json_path *p, const json_t *object, yk__schedule_form **made)
{
    yk__schedule_kind kind = YK__STEP_LR;
    if (p->depth == MOST_DEPTH)
        return yk__fail(YK_ERR_FORMAT, "%s/state.json: more than %d schedules inside one another", p->dir, MOST_DEPTH);
    yk_status status = read_kind(p, object, &kind);
    yk__schedule_form *f = *made = status ? NULL : yk__schedule_form_new(kind);
    if (!f)
        return status ? status : YK_ERR_MEMORY;
    const yk__schedule_names *names = yk__schedule_names_of(kind);
    const json_t *after = kind == YK__LINEAR_WARMUP_LR ? json_object_get(object, "after") : NULL;
    if (names->length)
        status = read_length(p, object, names->length, &f->period);
    if (!status && yk__schedule_has_milestones(kind))
        status = read_milestones(p, object, f);
    if (!status && names->constant)
        status = read_number(p, object, names->constant, false, &f->constant);
    for (int i = 0; i < YK__SCHEDULE_NUMBERS && names->numbers[i] && !status; i++)
        status = read_number(p, object, names->numbers[i], is_flag(kind, i), &f->numbers[i]);
    if (!status && kind == YK__SEQUENTIAL_LR)
        status = read_parts(p, object, f);
    if (!status && after) {
        json_path inside = path_inside(p, "after", 0, false);
        status = form_read(&inside, after, &f->after);
    }
    if (!status && (status = yk__schedule_check(f)))
        yk__error_prefix("%s/state.json", p->dir);
    return status;
}

yk__schedule_form *yk__schedule_from_json(const char *dir, const json_t *schedule)
{
    yk__schedule_form *f = NULL;
    const json_path path = {.dir = dir, .prefix = "schedule."};
    const char *kind = json_string_value(json_object_get(schedule, "kind"));
    if (kind && strchr(kind, '(')) {
        f = yk__schedule_parse(kind);
        if (!f)
            yk__error_prefix("%s/state.json", dir);
        return f;
    }
    if (!form_read(&path, schedule, &f))
        return f;
    yk__schedule_form_free(f);
    return NULL;
}
