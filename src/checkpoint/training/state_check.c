/*
 * state_check.c - checks of state.json, from which a run is to go on: every key that loading reads, its kind and its
 * range. Layer: checkpoint.
 *
 * The checksum tells that the text is the one that was written, not that the text makes sense: a program that edits the
 * file and seals it again can write anything. Loading and verifying both ask here, so that what is valid can be loaded.
 * What only a run can tell (its settings, its data set, its schedule) is compared in training_state.c.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/training/training.h"
#include "data/sampler.h"
#include "optim/optimizer.h"

/* The folder and the key of an object in state.json, for messages: "loader." and "param_groups.3." are prefixes. */
typedef struct json_context {
    const char *dir, *prefix;
} json_context;

/* The JSON of an item, shortened; the buffer is returned. */
static const char *item_text(const json_t *item, char text[64])
{
    char *whole =
        item ? json_dumps(item, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15)) : NULL;
    if (!item)
        snprintf(text, 64, "missing");
    else
        snprintf(text, 64, "%.56s%s", whole ? whole : "?", whole && strlen(whole) > 56 ? "..." : "");
    free(whole);
    return text;
}

yk_status yk__state_wrong(const char *dir, const char *prefix, const char *key, const json_t *item,
                          const char *expected)
{
    char text[64];
    return yk__fail(YK_ERR_FORMAT, "%s/state.json: %s%.100s is %s, expected %s", dir, prefix, key,
                    item_text(item, text), expected);
}

static yk_status wrong(const json_context *p, const char *key, const json_t *item, const char *expected)
{
    return yk__state_wrong(p->dir, p->prefix, key, item, expected);
}

static yk_status check_integer(const json_context *p, const json_t *object, const char *key, int64_t least,
                               int64_t most, int64_t *value)
{
    const json_t *item = json_object_get(object, key);
    *value = json_integer_value(item);
    if (json_is_integer(item) && *value >= least && *value <= most)
        return YK_OK;
    char expected[80];
    if (most == INT64_MAX)
        snprintf(expected, sizeof(expected), "an integer of at least %" PRId64, least);
    else
        snprintf(expected, sizeof(expected), "an integer of %" PRId64 " to %" PRId64, least, most);
    return wrong(p, key, item, least == INT64_MIN ? "an integer of 64 bits" : expected);
}

static yk_status check_kind(const json_context *p, const json_t *object, const char *key, json_type kind,
                            const char *expected)
{
    const json_t *item = json_object_get(object, key);
    return item && json_typeof(item) == kind ? YK_OK : wrong(p, key, item, expected);
}

static yk_status check_flag(const json_context *p, const json_t *object, const char *key)
{
    const json_t *item = json_object_get(object, key);
    return json_is_boolean(item) ? YK_OK : wrong(p, key, item, "true or false");
}

/* ---- the parts --------------------------------------------------------------------------------------------------- */

static yk_status check_generator(const json_context *p, const json_t *random)
{
    int64_t value;
    yk_status status = check_integer(p, random, "seed", INT64_MIN, INT64_MAX, &value);
    return status ? status : check_integer(p, random, "calls", 0, UINT32_MAX, &value);
}

static yk_status check_random(const char *dir, const json_t *json)
{
    const json_context p = {dir, ""};
    const json_t *ranks = json_object_get(json, "random_of_ranks");
    yk_status status = check_kind(&p, json, "random", JSON_OBJECT, "an object");
    if (!status)
        status = check_generator(&(json_context){dir, "random."}, json_object_get(json, "random"));
    if (!status && ranks)
        status = check_kind(&p, json, "random_of_ranks", JSON_ARRAY, "a list");
    for (size_t i = 0; i < json_array_size(ranks) && !status; i++) {
        char prefix[48];
        snprintf(prefix, sizeof(prefix), "random_of_ranks.%zu.", i);
        status = check_generator(&(json_context){dir, prefix}, json_array_get(ranks, i));
    }
    return status;
}

/* An object of texts, which are numbers where that is asked for. */
static yk_status check_texts(const char *dir, const json_t *json, const char *key, bool numbers)
{
    json_t *object = json_object_get(json, key), *item;
    yk_status status = object ? check_kind(&(json_context){dir, ""}, json, key, JSON_OBJECT, "an object") : YK_OK;
    char prefix[16];
    snprintf(prefix, sizeof(prefix), "%s.", key);
    const json_context p = {dir, prefix};
    const char *name;
    json_object_foreach(object, name, item)
    {
        const char *text = json_string_value(item);
        char *end = (char *)text;
        if (status)
            break;
        if (text && numbers)
            (void)yk__number_parse(text, &end);
        if (!text || (numbers && (end == text || *end)))
            status = wrong(&p, name, item, numbers ? "a number as text" : "text");
    }
    return status;
}

static yk_status check_optimizer(const char *dir, const json_t *optimizer)
{
    const json_context p = {dir, "optimizer."};
    const json_t *groups = json_object_get(optimizer, "param_groups");
    yk_status status = check_kind(&p, optimizer, "kind", JSON_STRING, "text");
    if (!status)
        status = check_kind(&p, optimizer, "param_groups", JSON_ARRAY, "a list");
    for (size_t g = 0; g < json_array_size(groups) && !status; g++) {
        char prefix[56];
        snprintf(prefix, sizeof(prefix), "optimizer.param_groups.%zu.", g);
        const json_t *group = json_array_get(groups, g), *params = json_object_get(group, "params");
        status = check_kind(&(json_context){dir, prefix}, group, "params", JSON_ARRAY, "a list of names");
        for (size_t i = 0; i < json_array_size(params) && !status; i++) {
            if (!json_is_string(json_array_get(params, i)))
                status = wrong(&(json_context){dir, prefix}, "params", params, "a list of names");
        }
    }
    return status;
}

/* One that is not known here, of a newer yoke, is another schedule than the run's, no nonsense. */
static yk_status check_schedule(const char *dir, const json_t *schedule)
{
    YK__OWN_RECORD;
    const json_context p = {dir, "schedule."};
    int64_t time;
    yk__schedule_form *form = yk__schedule_from_json(dir, schedule);
    yk_status status = form ? YK_OK : yk__error_code();
    yk__schedule_form_free(form);
    if (status == YK_ERR_UNSUPPORTED) {
        yk_clear_error();
        status = YK_OK;
    }
    return status ? status : check_integer(&p, schedule, "time", 0, INT64_MAX, &time);
}

/* The ranges of yk_loader_set_state. */
static yk_status check_loader(const char *dir, const json_t *loader)
{
    const json_context p = {dir, "loader."};
    int64_t epoch, start = 0, batch, seed, rank, world = 1;
    yk__sampler s = {.rank = 0}; /* no rank has more batches */
    yk_status status = check_integer(&p, loader, "epoch", 0, UINT32_MAX, &epoch);
    if (!status)
        status = check_integer(&p, loader, "dataset_length", 0, INT64_MAX, &s.length);
    if (!status && json_object_get(loader, "start"))
        status = check_integer(&p, loader, "start", 0, s.length, &start);
    if (!status)
        status = check_integer(&p, loader, "batch_size", 1, YK__MOST_BATCH, &s.batch_size);
    if (!status)
        status = check_integer(&p, loader, "seed", INT64_MIN, INT64_MAX, &seed);
    if (!status)
        status = check_flag(&p, loader, "shuffle");
    if (!status)
        status = check_flag(&p, loader, "drop_last");
    if (!status)
        status = check_integer(&p, loader, "world_size", 1, INT32_MAX, &world);
    if (!status)
        status = check_integer(&p, loader, "rank", 0, world - 1, &rank);
    if (status)
        return status;
    s.start = start;
    s.world = (int)world;
    s.drop_last = json_is_true(json_object_get(loader, "drop_last"));
    return check_integer(&p, loader, "batch", 0, yk__sampler_batches(&s), &batch);
}

static yk_status check_number(const json_context *p, const json_t *object, const char *key, double above, double below,
                              const char *expected)
{
    const json_t *item = json_object_get(object, key);
    double value = json_number_value(item);
    return json_is_number(item) && value > above && value < below ? YK_OK : wrong(p, key, item, expected);
}

/* The ranges of yk_grad_scaler_set_state. */
static yk_status check_scaler(const char *dir, const json_t *scaler)
{
    const json_context p = {dir, "scaler."};
    int64_t interval, tracker;
    yk_status status = check_number(&p, scaler, "scale", 0, INFINITY, "a positive number");
    float scale = (float)json_number_value(json_object_get(scaler, "scale"));
    if (!status && (!(scale > 0) || !isfinite(scale)))
        status = wrong(&p, "scale", json_object_get(scaler, "scale"), "a number that float32 has");
    if (!status)
        status = check_number(&p, scaler, "growth_factor", 1, INFINITY, "a number above 1");
    if (!status)
        status = check_number(&p, scaler, "backoff_factor", 0, 1, "a number between 0 and 1");
    if (!status)
        status = check_integer(&p, scaler, "growth_interval", 1, INT64_MAX, &interval);
    return status ? status : check_integer(&p, scaler, "growth_tracker", 0, INT32_MAX, &tracker);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

yk_status yk__state_check(const char *dir, const json_t *json)
{
    static const struct {
        const char *key;
        yk_status (*check)(const char *dir, const json_t *part);
    } parts[] = {{"optimizer", check_optimizer},
                 {"schedule", check_schedule},
                 {"loader", check_loader},
                 {"scaler", check_scaler},
                 {"extra", NULL}};
    const json_context p = {dir, ""};
    int64_t value;
    yk_status status = check_integer(&p, json, "epoch", 0, INT64_MAX, &value);
    if (!status)
        status = check_integer(&p, json, "step", 0, INT64_MAX, &value);
    if (!status)
        status = check_random(dir, json);
    if (!status)
        status = check_texts(dir, json, "settings", false);
    if (!status)
        status = check_texts(dir, json, "values", true);
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts) && !status; i++) {
        const json_t *part = json_object_get(json, parts[i].key);
        if (part)
            status = check_kind(&p, json, parts[i].key, JSON_OBJECT, "an object");
        if (part && !status && parts[i].check)
            status = parts[i].check(dir, part);
    }
    return status;
}
