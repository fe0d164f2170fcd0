/*
 * value.c - nested state: making values, asking them, letting go. Layer: value.
 *
 * Invariants: every item of a container is not NULL; a dict's name table holds the positions of all its keys; no value
 * contains itself, so counting references is enough to free a tree.
 */
#include <stdlib.h>
#include <string.h>

#include "value/value.h"

static const char *const kind_names[YK__VALUE_KINDS] = {
    [YK_VALUE_NONE] = "none",           [YK_VALUE_BOOL] = "bool",     [YK_VALUE_INT] = "int",
    [YK_VALUE_REAL] = "real",           [YK_VALUE_STRING] = "string", [YK_VALUE_BYTES] = "bytes",
    [YK_VALUE_LIST] = "list",           [YK_VALUE_TUPLE] = "tuple",   [YK_VALUE_SET] = "set",
    [YK_VALUE_DICT] = "dict",           [YK_VALUE_TENSOR] = "tensor", [YK_VALUE_LEFT_OUT] = "left out",
    [YK_VALUE_REFERENCE] = "reference",
};

static bool is_container(yk_value_kind kind)
{
    return kind == YK_VALUE_LIST || kind == YK_VALUE_TUPLE || kind == YK_VALUE_SET || kind == YK_VALUE_DICT;
}

static void value_destroy(void *object)
{
    yk_value *value = object;
    if (is_container(value->kind)) {
        for (int64_t i = 0; i < value->as.list.count; i++) {
            yk_value_release(value->as.list.items[i]);
            if (value->as.list.keys)
                free(value->as.list.keys[i].text);
        }
        free(value->as.list.items);
        free(value->as.list.keys);
        yk__name_clear(&value->as.list.names);
    } else if (value->kind == YK_VALUE_STRING || value->kind == YK_VALUE_BYTES || value->kind == YK_VALUE_LEFT_OUT) {
        free(value->as.bytes.data);
    } else if (value->kind == YK_VALUE_TENSOR) {
        yk_tensor_release(value->as.tensor);
    } else if (value->kind == YK_VALUE_REFERENCE) {
        yk_object_release(value->as.reference);
    }
    yk_value_release(value->attributes);
    yk__object_free(value);
}

static const yk__type value_type = {"value", value_destroy};

/* ---- making ---------------------------------------------------------------------------------------------------- */

yk_value *yk__value_new(yk_value_kind kind)
{
    yk_value *value = yk__object_new(&value_type, sizeof(*value));
    if (!value)
        return NULL;
    value->kind = kind;
    return value;
}

yk_value *yk__value_text(yk_value_kind kind, const char *data, size_t size)
{
    yk_value *value = yk__value_new(kind);
    if (!value)
        return NULL;
    value->as.bytes.data = yk__calloc(size + 1, 1);
    if (!value->as.bytes.data) {
        yk_value_release(value);
        return NULL;
    }
    if (size)
        memcpy(value->as.bytes.data, data, size);
    value->as.bytes.size = size;
    return value;
}

yk_value *yk_value_none(void)
{
    return yk__scope_own(yk__value_new(YK_VALUE_NONE));
}

yk_value *yk_value_bool(bool boolean)
{
    yk_value *value = yk__value_new(YK_VALUE_BOOL);
    if (value)
        value->as.boolean = boolean;
    return yk__scope_own(value);
}

yk_value *yk_value_int(int64_t integer)
{
    yk_value *value = yk__value_new(YK_VALUE_INT);
    if (value)
        value->as.integer = integer;
    return yk__scope_own(value);
}

yk_value *yk_value_real(double real)
{
    yk_value *value = yk__value_new(YK_VALUE_REAL);
    if (value)
        value->as.real = real;
    return yk__scope_own(value);
}

bool yk__utf8_valid(const char *text, size_t size)
{
    const unsigned char *s = (const unsigned char *)text, *end = s + size;
    while (s < end) {
        int more = *s < 0x80 ? 0 : *s < 0xC2 ? -1 : *s < 0xE0 ? 1 : *s < 0xF0 ? 2 : *s < 0xF5 ? 3 : -1;
        if (more < 0 || end - s <= more)
            return false;
        uint32_t code = more ? *s & (0x3Fu >> more) : *s;
        for (int i = 1; i <= more; i++) {
            if ((s[i] & 0xC0) != 0x80)
                return false;
            code = code << 6 | (s[i] & 0x3Fu);
        }
        bool overlong = (more == 2 && code < 0x800) || (more == 3 && code < 0x10000);
        if (overlong || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
            return false;
        s += more + 1;
    }
    return true;
}

yk_value *yk_value_string(const char *text)
{
    if (!text) {
        yk__fail(YK_ERR_ARGUMENT, "value_string: the text is NULL");
        return NULL;
    }
    if (!yk__utf8_valid(text, strlen(text))) {
        yk__fail(YK_ERR_ARGUMENT, "value_string: '%.200s' is not valid UTF-8", text);
        return NULL;
    }
    return yk__scope_own(yk__value_text(YK_VALUE_STRING, text, strlen(text)));
}

yk_value *yk_value_bytes(const void *data, size_t size)
{
    if (!data && size) {
        yk__fail(YK_ERR_ARGUMENT, "value_bytes: the memory is NULL");
        return NULL;
    }
    return yk__scope_own(yk__value_text(YK_VALUE_BYTES, data, size));
}

yk_value *yk_value_tensor(yk_tensor *x)
{
    YK__LIVE(x);
    if (!x) {
        yk__fail(YK_ERR_ARGUMENT, "value_tensor: the tensor is NULL");
        return NULL;
    }
    yk_value *value = yk__value_new(YK_VALUE_TENSOR);
    if (value)
        value->as.tensor = yk_tensor_retain(x);
    return yk__scope_own(value);
}

yk_value *yk__value_reference(void *object)
{
    yk_value *value = yk__value_new(YK_VALUE_REFERENCE);
    if (value)
        value->as.reference = yk_object_retain(object);
    return value;
}

yk_value *yk_value_list(void)
{
    return yk__scope_own(yk__value_new(YK_VALUE_LIST));
}

yk_value *yk_value_tuple(void)
{
    return yk__scope_own(yk__value_new(YK_VALUE_TUPLE));
}

yk_value *yk_value_dict(void)
{
    return yk__scope_own(yk__value_new(YK_VALUE_DICT));
}

/* ---- putting together ------------------------------------------------------------------------------------------- */

static yk_status make_room(yk_value *value)
{
    if (value->as.list.count < value->as.list.capacity)
        return YK_OK;
    int64_t capacity = value->as.list.capacity ? 2 * value->as.list.capacity : 8;
    if (capacity >= UINT32_MAX)
        return yk__fail(YK_ERR_ARGUMENT, "a %s of more than %u items", kind_names[value->kind], UINT32_MAX);
    yk_value **items = yk__realloc(value->as.list.items, (size_t)capacity * sizeof(*items));
    if (!items)
        return YK_ERR_MEMORY;
    value->as.list.items = items;
    if (value->kind == YK_VALUE_DICT) {
        yk__value_key *keys = yk__realloc(value->as.list.keys, (size_t)capacity * sizeof(*keys));
        if (!keys)
            return YK_ERR_MEMORY;
        value->as.list.keys = keys;
    }
    value->as.list.capacity = capacity;
    return YK_OK;
}

yk_status yk__value_push(yk_value *list, yk_value *item)
{
    yk_status status = item ? make_room(list) : yk__error_code();
    if (status) {
        yk_value_release(item);
        return status;
    }
    list->as.list.items[list->as.list.count++] = item;
    return YK_OK;
}

typedef struct wanted {
    const char *text;
    size_t length;
    int64_t number;
} wanted;

static bool same_key(const void *owner, uint32_t index, const void *key)
{
    const yk__value_key *have = &((const yk_value *)owner)->as.list.keys[index];
    const wanted *want = key;
    if (!have->text || !want->text)
        return !have->text && !want->text && have->number == want->number;
    return strncmp(have->text, want->text, want->length) == 0 && !have->text[want->length];
}

static uint32_t dict_entry_find(const yk_value *dict, const wanted *want, uint32_t *hash)
{
    *hash = want->text ? yk__name_hash(want->text, want->length) : yk__name_hash(&want->number, sizeof(want->number));
    return yk__name_find(&dict->as.list.names, *hash, same_key, dict, want);
}

yk_status yk__value_put(yk_value *dict, const char *key, size_t length, int64_t number, yk_value *item)
{
    wanted want = {key, length, number};
    uint32_t hash, at = item ? dict_entry_find(dict, &want, &hash) : 0;
    yk_status status = item ? YK_OK : yk__error_code();
    if (!status && at != UINT32_MAX) {
        yk_value_release(dict->as.list.items[at]);
        dict->as.list.items[at] = item;
        return YK_OK;
    }
    char *text = NULL;
    if (!status)
        status = make_room(dict);
    if (!status && key) {
        text = yk__calloc(length + 1, 1);
        if (text)
            memcpy(text, key, length);
        else
            status = YK_ERR_MEMORY;
    }
    if (!status)
        status = yk__name_add(&dict->as.list.names, hash, (uint32_t)dict->as.list.count);
    if (status) {
        free(text);
        yk_value_release(item);
        return status;
    }
    dict->as.list.keys[dict->as.list.count] = (yk__value_key){text, number};
    dict->as.list.items[dict->as.list.count++] = item;
    return YK_OK;
}

/* 1 if `value` is `looked_for` or has it somewhere inside, else 0; -1 beyond the greatest depth. */
static int contains(const yk_value *value, const yk_value *looked_for, int depth)
{
    if (value == looked_for)
        return 1;
    if (!is_container(value->kind))
        return 0;
    if (depth == YK__VALUE_DEPTH)
        return -1;
    for (int64_t i = 0; i < value->as.list.count; i++) {
        int found = contains(value->as.list.items[i], looked_for, depth + 1);
        if (found)
            return found;
    }
    return 0;
}

static yk_status check_item(const char *what, const yk_value *into, bool right_kind, const yk_value *item)
{
    if (!into || !item)
        return yk__fail(YK_ERR_ARGUMENT, "%s: the %s is NULL", what, into ? "item" : "container");
    if (!right_kind)
        return yk__fail(YK_ERR_ARGUMENT, "%s: into a %s", what, kind_names[into->kind]);
    int found = contains(item, into, 0);
    if (found > 0)
        return yk__fail(YK_ERR_ARGUMENT, "%s: the %s would contain itself", what, kind_names[into->kind]);
    if (found < 0)
        return yk__fail(YK_ERR_ARGUMENT, "%s: more than %d containers inside one another", what, YK__VALUE_DEPTH);
    return YK_OK;
}

yk_status yk_value_append(yk_value *list, yk_value *item)
{
    YK__LIVE(list);
    YK__LIVE(item);
    bool right = list && (list->kind == YK_VALUE_LIST || list->kind == YK_VALUE_TUPLE);
    yk_status status = check_item("value_append", list, right, item);
    if (!status)
        list->python_type = YK__PYTHON_PLAIN; /* a torch.Size holds no other items than its own */
    return status ? status : yk__value_push(list, yk_value_retain(item));
}

yk_status yk_value_set(yk_value *dict, const char *key, yk_value *item)
{
    YK__LIVE(dict);
    YK__LIVE(item);
    yk_status status = check_item("value_set", dict, dict && dict->kind == YK_VALUE_DICT, item);
    if (!status && !key)
        status = yk__fail(YK_ERR_ARGUMENT, "value_set: the key is NULL");
    if (!status && !yk__utf8_valid(key, strlen(key)))
        status = yk__fail(YK_ERR_ARGUMENT, "value_set: key '%.200s' is not valid UTF-8", key);
    return status ? status : yk__value_put(dict, key, strlen(key), 0, yk_value_retain(item));
}

yk_status yk_value_set_int(yk_value *dict, int64_t key, yk_value *item)
{
    YK__LIVE(dict);
    YK__LIVE(item);
    yk_status status = check_item("value_set_int", dict, dict && dict->kind == YK_VALUE_DICT, item);
    return status ? status : yk__value_put(dict, NULL, 0, key, yk_value_retain(item));
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

yk_value_kind yk_value_kind_of(const yk_value *value)
{
    YK__LIVE(value);
    return value ? value->kind : YK_VALUE_NONE;
}

const char *yk_value_kind_name(yk_value_kind kind)
{
    return (unsigned)kind < YK__VALUE_KINDS ? kind_names[kind] : "unknown";
}

int64_t yk_value_count(const yk_value *value)
{
    YK__LIVE(value);
    return value && is_container(value->kind) ? value->as.list.count : 0;
}

yk_value *yk_value_at(const yk_value *value, int64_t i)
{
    YK__LIVE(value);
    return i >= 0 && i < yk_value_count(value) ? value->as.list.items[i] : NULL;
}

const char *yk_value_key(const yk_value *dict, int64_t i, int64_t *number)
{
    YK__LIVE(dict);
    if (number)
        *number = 0;
    if (!dict || dict->kind != YK_VALUE_DICT || i < 0 || i >= dict->as.list.count)
        return NULL;
    if (number)
        *number = dict->as.list.keys[i].number;
    return dict->as.list.keys[i].text;
}

static yk_value *get(const yk_value *dict, wanted want)
{
    if (!dict || dict->kind != YK_VALUE_DICT)
        return NULL;
    uint32_t hash, at = dict_entry_find(dict, &want, &hash);
    return at == UINT32_MAX ? NULL : dict->as.list.items[at];
}

yk_value *yk_value_get(const yk_value *dict, const char *key)
{
    YK__LIVE(dict);
    return key ? get(dict, (wanted){key, strlen(key), 0}) : NULL;
}

yk_value *yk_value_get_int(const yk_value *dict, int64_t key)
{
    YK__LIVE(dict);
    return get(dict, (wanted){NULL, 0, key});
}

static bool is_kind(const yk_value *value, yk_value_kind kind, yk_value_kind other)
{
    if (value && (value->kind == kind || value->kind == other))
        return true;
    yk__fail(YK_ERR_ARGUMENT, "a %s is wanted, the value is %s", kind_names[kind],
             value ? kind_names[value->kind] : "NULL");
    return false;
}

bool yk_value_as_bool(const yk_value *value)
{
    YK__LIVE(value);
    return is_kind(value, YK_VALUE_BOOL, YK_VALUE_BOOL) && value->as.boolean;
}

int64_t yk_value_as_int(const yk_value *value)
{
    YK__LIVE(value);
    return is_kind(value, YK_VALUE_INT, YK_VALUE_INT) ? value->as.integer : 0;
}

double yk_value_as_real(const yk_value *value)
{
    YK__LIVE(value);
    if (!is_kind(value, YK_VALUE_REAL, YK_VALUE_INT))
        return __builtin_nan("");
    return value->kind == YK_VALUE_INT ? (double)value->as.integer : value->as.real;
}

const char *yk_value_as_string(const yk_value *value)
{
    YK__LIVE(value);
    return is_kind(value, YK_VALUE_STRING, YK_VALUE_BYTES) ? value->as.bytes.data : NULL;
}

const void *yk_value_as_bytes(const yk_value *value, size_t *size)
{
    YK__LIVE(value);
    bool right = is_kind(value, YK_VALUE_BYTES, YK_VALUE_STRING);
    if (size)
        *size = right ? value->as.bytes.size : 0;
    return right ? value->as.bytes.data : NULL;
}

yk_tensor *yk_value_as_tensor(const yk_value *value)
{
    YK__LIVE(value);
    return is_kind(value, YK_VALUE_TENSOR, YK_VALUE_TENSOR) ? value->as.tensor : NULL;
}

const char *yk_value_left_out(const yk_value *value)
{
    YK__LIVE(value);
    return value && value->kind == YK_VALUE_LEFT_OUT ? value->as.bytes.data : NULL;
}

yk_value *yk_value_retain(yk_value *value)
{
    return yk_object_retain(value);
}

void yk_value_release(yk_value *value)
{
    yk_object_release(value);
}
