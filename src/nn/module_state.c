/*
 * module_state.c - a module's state dict, and loading one. Layer: nn.
 *
 * Loading checks everything before it writes anything.
 */
#include <stdlib.h>
#include <string.h>

#include "nn/module.h"

yk_state_dict *yk_module_state_dict(yk_module *m)
{
    YK__LIVE(m);
    if (!yk__module_usable("module_state_dict", m) || !yk__scope_check("module_state_dict"))
        return NULL;
    yk_state_dict *dict = yk__state_dict_new();
    if (dict && yk__module_collect(m, YK__STATE, dict)) {
        yk_state_dict_release(dict);
        dict = NULL;
    }
    return yk__scope_own(dict);
}

/* A growing list of texts. */
typedef struct names {
    char **items;
    int64_t count;
} names;

/* Takes over `text`. */
static yk_status names_add(names *list, char *text)
{
    char **items = text ? yk__realloc(list->items, (size_t)(list->count + 1) * sizeof(*items)) : NULL;
    if (!items) {
        free(text);
        return YK_ERR_MEMORY;
    }
    list->items = items;
    items[list->count++] = text;
    return YK_OK;
}

static void names_clear(names *list)
{
    for (int64_t i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
    *list = (names){0};
}

/* Appends "; KIND: a, b and 7 more" to a text of `size` bytes, in at most `room` of them. */
static void append_list(char *text, size_t size, size_t room, const char *kind, const names *list)
{
    if (!list->count)
        return;
    size_t start = strlen(text), used = start;
    size_t end = start + room < size ? start + room : size;
    used += (size_t)snprintf(text + used, size - used, "%s %s: ", start && text[start - 1] != ':' ? ";" : "", kind);
    for (int64_t i = 0; i < list->count && used < size; i++) {
        enum { MORE = 32 };
        if (used + MORE >= end || (used + strlen(list->items[i]) + MORE > end && i)) {
            snprintf(text + used, size - used, "%s%lld more", i ? " and " : "", (long long)(list->count - i));
            return;
        }
        size_t fits = end - used - MORE; /* a name from a file may be of any length */
        used += (size_t)snprintf(text + used, size - used, "%s%.*s%s", i ? ", " : "", (int)fits, list->items[i],
                                 strlen(list->items[i]) > fits ? "..." : "");
    }
}

static char *mismatch(const char *name, const yk_tensor *own, const yk_tensor *given)
{
    char a[200], b[200];
    if (!yk_same_shape(own, given))
        return yk__format("%s has shape %s, expected %s", name, yk_shape_format(given, a, sizeof(a)),
                          yk_shape_format(own, b, sizeof(b)));
    return yk__format("%s is %s, expected %s", name, yk_dtype_name(yk_tensor_dtype(given)),
                      yk_dtype_name(yk_tensor_dtype(own)));
}

static bool fits(const yk_tensor *own, const yk_tensor *given)
{
    return yk_same_shape(own, given) &&
           yk_dtype_is_floating(yk_tensor_dtype(own)) == yk_dtype_is_floating(yk_tensor_dtype(given));
}

static bool last_part_is(const char *name, const char *part)
{
    const char *dot = strrchr(name, '.');
    return strcmp(dot ? dot + 1 : name, part) == 0;
}

/* True if the dict has statistics of batch norms of before PyTorch 0.4.1, which did not count their batches. */
static bool without_counts(const yk_state_dict *dict)
{
    bool statistics = false;
    for (int64_t i = 0; i < yk__state_dict_count(dict); i++) {
        if (last_part_is(yk__state_dict_name(dict, i), "num_batches_tracked"))
            return false;
        statistics = statistics || last_part_is(yk__state_dict_name(dict, i), "running_var");
    }
    return statistics;
}

static yk_status compare(const yk_state_dict *own, const yk_state_dict *given, names *missing, names *unexpected,
                         names *wrong)
{
    yk_status status = YK_OK;
    bool old = without_counts(given);
    for (int64_t i = 0; !status && i < yk__state_dict_count(own); i++) {
        const char *name = yk__state_dict_name(own, i);
        int64_t at = yk__state_dict_find_module(given, name);
        if (at < 0 && old && last_part_is(name, "num_batches_tracked"))
            continue;
        if (at < 0)
            status = names_add(missing, yk__strdup(name));
        else if (!fits(yk__state_dict_at(own, i), yk__state_dict_at(given, at)))
            status = names_add(wrong, mismatch(name, yk__state_dict_at(own, i), yk__state_dict_at(given, at)));
    }
    for (int64_t i = 0; !status && i < yk__state_dict_count(given); i++) {
        /* "module.x" beside "x" is not what x is loaded from. */
        int64_t at = yk__state_dict_find_module(own, yk__state_dict_name(given, i));
        if (at < 0 || yk__state_dict_find_module(given, yk__state_dict_name(own, at)) != i)
            status = names_add(unexpected, yk__strdup(yk__state_dict_name(given, i)));
    }
    return status;
}

/* Copies the missing names to *explained, each with the reason why a file's entry of that name was left out. */
static yk_status explain(const names *missing, const yk_state_dict *given, names *explained)
{
    yk_status status = YK_OK;
    for (int64_t i = 0; i < missing->count && !status; i++) {
        const char *what = yk_state_dict_left_out(given, missing->items[i]);
        status = names_add(explained, what ? yk__format("%s (left out: %s)", missing->items[i], what)
                                           : yk__strdup(missing->items[i]));
    }
    return status;
}

static yk_status refuse(const yk_module *m, const names *missing, const names *unexpected, const names *wrong)
{
    char text[900] = "";
    int kinds = (missing->count > 0) + (unexpected->count > 0) + (wrong->count > 0);
    size_t room = (sizeof(text) - 80) / (size_t)(kinds ? kinds : 1);
    snprintf(text, sizeof(text), "load_state_dict of %s:", m->shown_name);
    append_list(text, sizeof(text), room, "missing", missing);
    append_list(text, sizeof(text), room, "unexpected", unexpected);
    append_list(text, sizeof(text), room, "does not fit", wrong);
    yk_status code = missing->count || unexpected->count ? YK_ERR_NOT_FOUND : YK_ERR_SHAPE;
    return yk__fail(code, "%s", text);
}

static yk_status copy_values(const yk_state_dict *own, const yk_state_dict *given)
{
    YK__OWN_RECORD;
    for (int64_t i = 0; i < yk__state_dict_count(own); i++) {
        int64_t at = yk__state_dict_find_module(given, yk__state_dict_name(own, i));
        if (at < 0)
            continue;
        yk_tensor *to = yk__state_dict_at(own, i);
        yk_status status = yk__state_dict_copy(given, at, to);
        if (status) {
            yk__error_prefix("load_state_dict: %s", yk__state_dict_name(own, i));
            return status;
        }
        yk__bump_version(to);
    }
    return YK_OK;
}

static yk_status load(yk_module *m, const yk_state_dict *dict, const yk_load_options *options, yk_load_report *report,
                      bool check_only)
{
    yk_load_options o;
    if (report)
        *report = (yk_load_report){0};
    if (YK__OPTIONS_TAKE("load_state_dict", yk_load_options, options, &o))
        return YK_ERR_ARGUMENT;
    if (!m || !dict)
        return yk__fail(YK_ERR_ARGUMENT, "load_state_dict: the %s is NULL", m ? "dict" : "module");
    if (!yk__module_usable("load_state_dict", m))
        return YK_ERR_STATE;
    names missing = {0}, unexpected = {0}, wrong = {0};
    yk_state_dict *own = yk__state_dict_new();
    yk_status status = own ? yk__module_collect(m, YK__STATE, own) : YK_ERR_MEMORY;
    if (!status)
        status = compare(own, dict, &missing, &unexpected, &wrong);
    if (!status) {
        bool strict = o.strict;
        if (wrong.count || (strict && (missing.count || unexpected.count))) {
            static const names none;
            names explained = {0};
            status = strict ? explain(&missing, dict, &explained) : YK_OK;
            if (!status)
                status = refuse(m, &explained, strict ? &unexpected : &none, &wrong);
            names_clear(&explained);
        } else if (!check_only) {
            status = copy_values(own, dict);
        }
        if (report) {
            *report = (yk_load_report){missing.count, unexpected.count, missing.items, unexpected.items};
            missing = unexpected = (names){0};
        }
    }
    names_clear(&missing);
    names_clear(&unexpected);
    names_clear(&wrong);
    yk_state_dict_release(own);
    return status;
}

yk_status yk_module_load_state_dict(yk_module *m, const yk_state_dict *dict, const yk_load_options *options,
                                    yk_load_report *report)
{
    YK__LIVE(m);
    YK__LIVE(dict);
    return load(m, dict, options, report, false);
}

yk_status yk__module_check_state_dict(yk_module *m, const yk_state_dict *dict, const yk_load_options *options)
{
    return load(m, dict, options, NULL, true);
}

void yk_load_report_clear(yk_load_report *report)
{
    if (!report)
        return;
    names missing = {report->missing, report->missing_count},
          unexpected = {report->unexpected, report->unexpected_count};
    names_clear(&missing);
    names_clear(&unexpected);
    *report = (yk_load_report){0};
}
