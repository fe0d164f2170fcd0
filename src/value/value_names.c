/*
 * value_names.c - the leaves of nested state by dotted names, and the model's weights among them. Layer: value.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "nn/module.h"
#include "value/value.h"

/* ---- walking ---------------------------------------------------------------------------------------------------- */

typedef struct walk {
    yk__leaf_fn fn;
    void *user;
    char *name;
    size_t capacity;
    uint64_t total; /* of all names so far */
} walk;

/* Puts ".part" after the first `length` bytes of the name. */
static yk_status name_add(walk *w, size_t length, const char *part, size_t *longer)
{
    *longer = length + (length > 0) + strlen(part);
    if (*longer > YK__VALUE_NAME)
        return yk__fail(YK_ERR_FORMAT, "the name '%.60s...' has %zu bytes; %d are allowed", length ? w->name : part,
                        *longer, YK__VALUE_NAME);
    if (*longer >= w->capacity) {
        size_t capacity = 2 * *longer + 64;
        char *name = yk__realloc(w->name, capacity);
        if (!name)
            return YK_ERR_MEMORY;
        w->name = name;
        w->capacity = capacity;
    }
    if (length)
        w->name[length++] = '.';
    memcpy(w->name + length, part, strlen(part) + 1);
    return YK_OK;
}

static yk_status walk_value(walk *w, size_t length, yk_value *value, int depth)
{
    int64_t count = yk_value_count(value);
    if (!count && (w->total += length) > YK__VALUE_NAMES)
        return yk__fail(YK_ERR_FORMAT, "the names in it have more than %" PRIu64 " bytes together", YK__VALUE_NAMES);
    if (!count)
        return w->fn(length ? w->name : "", value, w->user);
    if (depth == YK__VALUE_DEPTH)
        return yk__fail(YK_ERR_ARGUMENT, "%.200s: more than %d containers inside one another", w->name,
                        YK__VALUE_DEPTH);
    for (int64_t i = 0; i < count; i++) {
        char digits[24];
        int64_t number = i;
        const char *key = value->kind == YK_VALUE_DICT ? yk_value_key(value, i, &number) : NULL;
        if (!key) {
            snprintf(digits, sizeof(digits), "%" PRId64, number);
            key = digits;
        }
        size_t longer;
        yk_status status = name_add(w, length, key, &longer);
        if (!status)
            status = walk_value(w, longer, yk_value_at(value, i), depth + 1);
        if (status)
            return status;
    }
    return YK_OK;
}

yk_status yk__value_walk(const yk_value *value, yk__leaf_fn fn, void *user)
{
    walk w = {.fn = fn, .user = user};
    yk_status status = walk_value(&w, 0, (yk_value *)value, 0);
    free(w.name);
    return status;
}

uint64_t yk__value_text_most(uint64_t bytes)
{
    enum { FREE = 1 << 20, RATIO = 256 };
    return bytes < (YK__VALUE_NAMES - FREE) / RATIO ? FREE + RATIO * bytes : YK__VALUE_NAMES;
}

size_t yk__value_digits(int64_t number)
{
    size_t digits = number < 0 ? 2 : 1;
    while (number /= 10)
        digits++;
    return digits;
}

/* The leaves of a value, the bytes of their names and texts, and of the longest name. */
typedef struct extent {
    uint64_t leaves, text, longest;
} extent;

static extent names_measure(const yk_value *value)
{
    int64_t count = yk_value_count(value);
    extent all = {.leaves = count ? 0 : 1, .text = value->kind == YK_VALUE_STRING ? value->as.bytes.size : 0};
    for (int64_t i = 0; i < count; i++) {
        int64_t number = i;
        const char *key = value->kind == YK_VALUE_DICT ? yk_value_key(value, i, &number) : NULL;
        uint64_t length = 1 + (key ? strlen(key) : yk__value_digits(number));
        extent item = names_measure(yk_value_at(value, i));
        all.leaves += item.leaves;
        all.text += item.text + item.leaves * length;
        all.longest = item.longest + length > all.longest ? item.longest + length : all.longest;
    }
    return all;
}

yk_status yk__value_check_names(const char *path, const yk_value *value, uint64_t bytes)
{
    extent all = names_measure(value);
    if (all.longest > YK__VALUE_NAME)
        return yk__fail(YK_ERR_FORMAT, "%s: a name of %" PRIu64 " bytes; %d are allowed", path, all.longest,
                        YK__VALUE_NAME);
    if (all.text > yk__value_text_most(bytes))
        return yk__fail(YK_ERR_FORMAT,
                        "%s: the names and texts in it have %" PRIu64 " bytes, their description %" PRIu64 "; %" PRIu64
                        " are allowed",
                        path, all.text, bytes, yk__value_text_most(bytes));
    return YK_OK;
}

/* ---- tensors by name --------------------------------------------------------------------------------------------- */

typedef struct gather {
    yk_state_dict *dict;
    const char *prefix; /* taken off the names */
} gather;

static yk_status gather_tensor(const char *name, yk_value *leaf, void *user)
{
    gather *g = user;
    const char *left_out = yk_value_left_out(leaf);
    if (yk_value_kind_of(leaf) != YK_VALUE_TENSOR && !left_out)
        return YK_OK;
    size_t length = strlen(g->prefix);
    if (length && strncmp(name, g->prefix, length) == 0)
        name += length;
    if (left_out)
        return yk__state_dict_leave_out(g->dict, *name ? name : "tensor", left_out);
    return yk_state_dict_add(g->dict, *name ? name : "tensor", yk_value_as_tensor(leaf));
}

yk_state_dict *yk_value_flatten(const yk_value *value)
{
    YK__OWN_RECORD;
    YK__LIVE(value);
    if (!value) {
        yk__fail(YK_ERR_ARGUMENT, "value_flatten: the value is NULL");
        return NULL;
    }
    yk_scope scope = yk_scope_begin();
    gather g = {yk_state_dict_create(), ""};
    bool done = g.dict && !yk__value_walk(value, gather_tensor, &g);
    yk_state_dict *dict = done ? yk_scope_return_object(scope, g.dict) : NULL;
    yk_scope_end(scope);
    return dict;
}

yk_value *yk_value_from_state_dict(const yk_state_dict *dict)
{
    YK__LIVE(dict);
    if (!dict) {
        yk__fail(YK_ERR_ARGUMENT, "value_from_state_dict: the state dict is NULL");
        return NULL;
    }
    yk_value *value = yk__value_new(YK_VALUE_DICT);
    for (int64_t i = 0; value && i < yk__state_dict_count(dict); i++) {
        const char *name = yk__state_dict_name(dict, i);
        yk_value *item = yk__value_new(YK_VALUE_TENSOR);
        if (item)
            item->as.tensor = yk_tensor_retain(yk__state_dict_at(dict, i));
        bool bad = !yk__utf8_valid(name, strlen(name));
        if (bad)
            yk__fail(YK_ERR_ARGUMENT, "value_from_state_dict: name '%.200s' is not valid UTF-8", name);
        if (yk__value_put(value, name, strlen(name), 0, item) || bad) {
            yk_value_release(value);
            return NULL;
        }
    }
    if (value)
        value->python_type = YK__PYTHON_ORDERED;
    return yk__scope_own(value);
}

/* ---- the weights ------------------------------------------------------------------------------------------------- */

static const char *const weight_keys[] = {"model",   "state_dict", "model_state_dict", "model_state", "net",
                                          "network", "module",     "params",           "weights"};

static yk_status find_tensor(const char *name, yk_value *leaf, void *user)
{
    (void)name;
    *(bool *)user |= yk_value_kind_of(leaf) == YK_VALUE_TENSOR;
    return YK_OK;
}

static bool has_tensors(const yk_value *value)
{
    bool found = false;
    return !yk__value_walk(value, find_tensor, &found) && found;
}

/* The dict in which the weights are: a checkpoint may keep {"model": {"state_dict": ...}}. */
const yk_value *yk__value_weights_in(const yk_value *value)
{
    for (int depth = 0; depth < 3; depth++) {
        const yk_value *inner = NULL;
        for (size_t i = 0; !inner && i < sizeof(weight_keys) / sizeof(*weight_keys); i++) {
            const yk_value *named = yk_value_get(value, weight_keys[i]);
            if (yk_value_kind_of(named) == YK_VALUE_DICT && has_tensors(named))
                inner = named;
        }
        if (!inner)
            break;
        value = inner;
    }
    return value;
}

static yk_status fail_no_weights(const yk_value *value)
{
    char keys[400] = "";
    size_t used = 0;
    for (int64_t i = 0; i < yk_value_count(value) && used < sizeof(keys); i++) {
        int64_t number;
        const char *key = yk_value_key(value, i, &number);
        if (key)
            used += (size_t)snprintf(keys + used, sizeof(keys) - used, "%s%s", i ? ", " : "", key);
        else
            used += (size_t)snprintf(keys + used, sizeof(keys) - used, "%s%" PRId64, i ? ", " : "", number);
    }
    if (yk_value_kind_of(value) != YK_VALUE_DICT)
        return yk__fail(YK_ERR_NOT_FOUND, "no model weights: the checkpoint is a %s, not a dict",
                        yk_value_kind_name(yk_value_kind_of(value)));
    return yk__fail(YK_ERR_NOT_FOUND, "no model weights among the keys of the checkpoint: %s", *keys ? keys : "none");
}

/* True for a pickled module of PyTorch (pickle_module.c). */
static bool is_module(const yk_value *value)
{
    return yk_value_kind_of(value) == YK_VALUE_DICT &&
           yk_value_kind_of(yk_value_get(value, "_parameters")) == YK_VALUE_DICT &&
           yk_value_kind_of(yk_value_get(value, "_buffers")) == YK_VALUE_DICT &&
           yk_value_kind_of(yk_value_get(value, "_modules")) == YK_VALUE_DICT;
}

static bool is_listed(const yk_value *set, const char *name)
{
    for (int64_t i = 0; i < yk_value_count(set); i++) {
        const char *item = yk_value_as_string(yk_value_at(set, i));
        if (item && strcmp(item, name) == 0)
            return true;
    }
    return false;
}

/* The tensors that its state_dict would have, under their names there. */
static yk_status gather_module(const yk_value *module, const char *path, gather *g)
{
    static const char *const kinds[] = {"_parameters", "_buffers", "_modules"};
    const yk_value *passing = yk_value_get(module, "_non_persistent_buffers_set");
    yk_status status = YK_OK;
    for (int k = 0; k < 3 && !status; k++) {
        const yk_value *dict = yk_value_get(module, kinds[k]);
        for (int64_t i = 0; i < yk_value_count(dict) && !status; i++) {
            const char *key = yk_value_key(dict, i, NULL);
            yk_value *item = yk_value_at(dict, i);
            if (!key || (k == 1 && is_listed(passing, key)))
                continue;
            char *name = yk__format("%s%s%s", path, *path ? "." : "", key);
            if (!name)
                return YK_ERR_MEMORY;
            if (strlen(name) > YK__VALUE_NAME)
                status = yk__fail(YK_ERR_FORMAT, "the name '%.60s...' has %zu bytes; %d are allowed", name,
                                  strlen(name), YK__VALUE_NAME);
            else
                status = k < 2 ? gather_tensor(name, item, g) : is_module(item) ? gather_module(item, name, g) : YK_OK;
            free(name);
        }
    }
    return status;
}

yk_state_dict *yk_value_weights(const yk_value *value, const yk_weights_options *options)
{
    YK__OWN_RECORD;
    YK__LIVE(value);
    if (!value) {
        yk__fail(YK_ERR_ARGUMENT, "value_weights: the value is NULL");
        return NULL;
    }
    yk_weights_options o;
    if (YK__OPTIONS_TAKE("value_weights", yk_weights_options, options, &o))
        return NULL;
    const char *prefix = o.strip_module ? "module." : "";
    const yk_value *inner = yk__value_weights_in(value);
    yk_scope scope = yk_scope_begin();
    gather g = {yk_state_dict_create(), prefix};
    yk_status status = g.dict ? YK_OK : yk__error_code();
    const char *what;
    bool whole = is_module(inner), found = inner != value;
    if (!status && whole)
        status = gather_module(inner, "", &g);
    else if (!status && found)
        status = yk__value_walk(inner, gather_tensor, &g);
    if (!status && !whole && !found && inner->kind == YK_VALUE_DICT) {
        for (int64_t i = 0; i < yk_value_count(inner) && !status; i++) {
            const char *key = yk_value_key(inner, i, NULL);
            if (key)
                status = gather_tensor(key, yk_value_at(inner, i), &g);
        }
    }
    if (!status && !yk__state_dict_count(g.dict) && yk__state_dict_left_out_at(g.dict, 0, &what))
        status = yk__fail(YK_ERR_NOT_FOUND, "no model weights that yoke has a dtype for: '%.200s' was left out, as %s",
                          yk__state_dict_left_out_at(g.dict, 0, &what), what);
    else if (!status && !yk__state_dict_count(g.dict))
        status = fail_no_weights(value);
    yk_state_dict *dict = status ? NULL : yk_scope_return_object(scope, g.dict);
    yk_scope_end(scope);
    return dict;
}
