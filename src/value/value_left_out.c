/*
 * value_left_out.c - the objects that were left out of a value when a file was read: a list of them, and the value
 * without them. Layer: value.
 */
#include <stdlib.h>
#include <string.h>

#include "value/value.h"

/* ---- the list ---------------------------------------------------------------------------------------------------- */

static yk_status list_add(yk_value *list, const char *name, const char *what)
{
    return yk__value_put(list, name, strlen(name), 0, yk__value_text(YK_VALUE_STRING, what, strlen(what)));
}

static yk_status list_leaf(const char *name, yk_value *leaf, void *user)
{
    yk_value *list = user;
    name = *name ? name : "value";
    if (leaf->kind == YK_VALUE_LEFT_OUT)
        return list_add(list, name, leaf->as.bytes.data);
    yk_status status = YK_OK;
    for (int64_t i = 0; leaf->kind == YK_VALUE_TENSOR && i < yk_value_count(leaf->attributes) && !status; i++) {
        char *full = yk__format("%s.%s", name, yk_value_key(leaf->attributes, i, NULL));
        status = full ? list_add(list, full, yk_value_left_out(yk_value_at(leaf->attributes, i))) : YK_ERR_MEMORY;
        free(full);
    }
    return status;
}

yk_value *yk_value_left_out_list(const yk_value *value)
{
    YK__OWN_RECORD;
    YK__LIVE(value);
    if (!value) {
        yk__fail(YK_ERR_ARGUMENT, "value_left_out_list: the value is NULL");
        return NULL;
    }
    yk_value *list = yk_value_dict();
    return list && !yk__value_walk(value, list_leaf, list) ? list : NULL;
}

/* ---- the value without it ---------------------------------------------------------------------------------------- */

static bool has_left_out(const yk_value *value)
{
    bool has = value->kind == YK_VALUE_LEFT_OUT;
    for (int64_t i = 0; !has && i < yk_value_count(value); i++)
        has = has_left_out(yk_value_at(value, i));
    return has;
}

static yk_value *copy_without(yk_value *value);

static yk_status copy_item(yk_value *copy, yk_value *value, int64_t i)
{
    int64_t number;
    yk_value *item = yk_value_at(value, i);
    bool out = item->kind == YK_VALUE_LEFT_OUT;
    if (value->kind == YK_VALUE_DICT) {
        const char *key = yk_value_key(value, i, &number);
        return out ? YK_OK : yk__value_put(copy, key, key ? strlen(key) : 0, number, copy_without(item));
    }
    if (out && value->kind == YK_VALUE_SET)
        return YK_OK;
    return yk__value_push(copy, out ? yk__value_new(YK_VALUE_NONE) : copy_without(item));
}

/* One reference. The depth was bounded by the reader. */
static yk_value *copy_without(yk_value *value)
{
    if (!has_left_out(value))
        return yk_value_retain(value);
    yk_value *copy = yk__value_new(value->kind);
    yk_status status = copy ? YK_OK : yk__error_code();
    for (int64_t i = 0; i < yk_value_count(value) && !status; i++)
        status = copy_item(copy, value, i);
    if (!status) {
        copy->python_type = value->python_type;
        copy->attributes = yk_value_retain(value->attributes);
        return copy;
    }
    yk_value_release(copy);
    return NULL;
}

yk_value *yk__value_without_left_out(yk_value *value)
{
    if (value->kind != YK_VALUE_LEFT_OUT)
        return copy_without(value);
    yk__fail(YK_ERR_UNSUPPORTED, "all that it holds was left out: %s", value->as.bytes.data);
    return NULL;
}
