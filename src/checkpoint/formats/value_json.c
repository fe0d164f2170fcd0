/*
 * value_json.c - the shape of nested state as JSON and back. Layer: checkpoint.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/formats/pickle.h"
#include "checkpoint/formats/sealed_json.h"
#include "checkpoint/formats/value_json.h"
#include "nn/state_dict.h"

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* {kind: content}; takes the content's reference. */
static json_t *tagged(const char *kind, json_t *content)
{
    json_t *object = json_object();
    if (!object || !content || json_object_set_new(object, kind, content)) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static json_t *hex(const char *data, size_t size)
{
    char *text = yk__calloc(2 * size + 1, 1);
    for (size_t i = 0; text && i < size; i++)
        snprintf(text + 2 * i, 3, "%02x", (unsigned char)data[i]);
    json_t *string = text ? json_string(text) : NULL;
    free(text);
    return string;
}

/* "NAME.part", which the caller frees; "part" where there is no name yet. */
static char *text_join(const char *name, const yk_value *value, int64_t i)
{
    int64_t number = i;
    const char *key = value->kind == YK_VALUE_DICT ? yk_value_key(value, i, &number) : NULL;
    const char *dot = *name ? "." : "";
    return key ? yk__format("%s%s%s", name, dot, key) : yk__format("%s%s%" PRId64, name, dot, number);
}

static json_t *to_json(const yk_value *value, const char *name);

static json_t *items_to_json(const yk_value *value, const char *name)
{
    json_t *array = json_array();
    for (int64_t i = 0; array && i < yk_value_count(value); i++) {
        char *longer = name ? text_join(name, value, i) : NULL;
        json_t *item = name && !longer ? NULL : to_json(yk_value_at(value, i), longer);
        free(longer);
        if (item && value->kind == YK_VALUE_DICT) {
            int64_t number;
            const char *text = yk_value_key(value, i, &number);
            item = json_pack("[o, o]", text ? json_string(text) : json_integer((json_int_t)number), item);
        }
        if (!item || json_array_append_new(array, item)) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *dict_to_json(const yk_value *value, const char *name)
{
    const char *kind = value->python_type == YK__PYTHON_ORDERED   ? "ordered"
                       : value->python_type == YK__PYTHON_COUNTER ? "counter"
                                                                  : "dict";
    json_t *object = tagged(kind, items_to_json(value, name));
    if (!object || !value->attributes)
        return object;
    json_t *attributes = to_json(value->attributes, NULL);
    if (!attributes || json_object_set_new(object, "attributes", attributes)) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static json_t *text_to_json(const yk_value *value)
{
    if (memchr(value->as.bytes.data, 0, value->as.bytes.size))
        return tagged("text", hex(value->as.bytes.data, value->as.bytes.size));
    json_t *text = json_stringn(value->as.bytes.data, value->as.bytes.size);
    if (value->python_type == YK__PYTHON_PLAIN)
        return text;
    return tagged(value->python_type == YK__PYTHON_DTYPE ? "dtype" : "device", text);
}

/* NULL on failure: an error of yoke's, or no memory. `name` NULL: inside attributes, which have no tensors. */
static json_t *to_json(const yk_value *value, const char *name)
{
    switch (value->kind) {
    case YK_VALUE_NONE: return json_null();
    case YK_VALUE_BOOL: return json_boolean(value->as.boolean);
    case YK_VALUE_INT: return json_integer((json_int_t)value->as.integer);
    case YK_VALUE_REAL:
        if (isfinite(value->as.real))
            return json_real(value->as.real);
        return tagged("real", json_string(isnan(value->as.real) ? "nan" : value->as.real > 0 ? "inf" : "-inf"));
    case YK_VALUE_STRING: return text_to_json(value);
    case YK_VALUE_BYTES:
        return tagged(value->python_type == YK__PYTHON_BYTEARRAY ? "bytearray" : "bytes",
                      hex(value->as.bytes.data, value->as.bytes.size));
    case YK_VALUE_LIST: return items_to_json(value, name);
    case YK_VALUE_TUPLE:
        return tagged(value->python_type == YK__PYTHON_SIZE ? "size" : "tuple", items_to_json(value, name));
    case YK_VALUE_SET: return tagged("set", items_to_json(value, name));
    case YK_VALUE_DICT: return dict_to_json(value, name);
    case YK_VALUE_TENSOR:
        if (name)
            return tagged("tensor", json_string(*name ? name : "tensor"));
        yk__fail(YK_ERR_UNSUPPORTED, "a tensor in the attributes of a dict has no name");
        return NULL;
    case YK_VALUE_LEFT_OUT:
        yk__fail(YK_ERR_UNSUPPORTED, "something was left out when it was read (%s): there is nothing to write",
                 value->as.bytes.data);
        return NULL;
    case YK_VALUE_REFERENCE:
        yk__fail(YK_ERR_UNSUPPORTED, "a reference to an object of another process cannot be written to a file");
        return NULL;
    case YK__VALUE_KINDS: break;
    }
    return NULL;
}

char *yk__value_to_json(const yk_value *value)
{
    json_t *json = to_json(value, "");
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17)) : NULL;
    if (!text)
        yk__fail_memory(sizeof(json_t *)); /* the record keeps an earlier error */
    json_decref(json);
    return text;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

typedef struct source {
    const char *path;
    const yk_state_dict *dict;
    bool *taken; /* by index: the tensor was used */
} source;

static yk_value *fail_json(const source *s, const char *what)
{
    yk__fail(YK_ERR_FORMAT, "%s: the state's description has %s", s->path, what);
    return NULL;
}

static yk_value *from_json(const source *s, const json_t *json);

static yk_value *from_hex(const source *s, const char *text, yk_value_kind kind)
{
    size_t length = strlen(text);
    if (length % 2 || strspn(text, "0123456789abcdef") != length)
        return fail_json(s, "bytes that are not hexadecimal");
    char *data = yk__calloc(length / 2 + 1, 1);
    for (size_t i = 0; data && i < length; i += 2) {
        char digits[3] = {text[i], text[i + 1], 0};
        data[i / 2] = (char)strtoul(digits, NULL, 16);
    }
    yk_value *value = data ? yk__value_text(kind, data, length / 2) : NULL;
    if (value && kind == YK_VALUE_STRING && !yk__utf8_valid(data, length / 2)) {
        yk_value_release(value);
        value = fail_json(s, "text that is not valid UTF-8");
    }
    free(data);
    return value;
}

static yk_value *items_from_json(const source *s, const json_t *array, yk_value_kind kind)
{
    if (!json_is_array(array))
        return fail_json(s, "a container without a list of items");
    yk_value *value = yk__value_new(kind);
    yk_status status = value ? YK_OK : YK_ERR_MEMORY;
    for (size_t i = 0; i < json_array_size(array) && !status; i++) {
        const json_t *item = json_array_get(array, i);
        if (kind != YK_VALUE_DICT) {
            status = yk__value_push(value, from_json(s, item));
            continue;
        }
        const json_t *key = json_array_get(item, 0), *content = json_array_get(item, 1);
        if (json_array_size(item) != 2 || (!json_is_string(key) && !json_is_integer(key)))
            status = fail_json(s, "a dict without keys") ? YK_OK : YK_ERR_FORMAT;
        else if (json_is_string(key))
            status = yk__value_put(value, json_string_value(key), json_string_length(key), 0, from_json(s, content));
        else
            status = yk__value_put(value, NULL, 0, json_integer_value(key), from_json(s, content));
    }
    if (!status)
        return value;
    yk_value_release(value);
    return NULL;
}

static yk_value *real_from_json(const source *s, const char *text)
{
    bool nan = strcmp(text, "nan") == 0;
    if (!nan && strcmp(text, "inf") != 0 && strcmp(text, "-inf") != 0)
        return fail_json(s, "an unknown number");
    yk_value *value = yk__value_new(YK_VALUE_REAL);
    if (value)
        value->as.real = nan ? NAN : *text == '-' ? -INFINITY : INFINITY;
    return value;
}

static yk_value *tensor_from_json(const source *s, const char *name)
{
    yk_tensor *x = yk_state_dict_get(s->dict, name);
    if (!x) {
        yk__fail(YK_ERR_NOT_FOUND, "%s: there is no tensor \"%s\" among %lld", s->path, name,
                 (long long)yk__state_dict_count(s->dict));
        return NULL;
    }
    bool *taken = &s->taken[yk_state_dict_find(s->dict, name)];
    if (*taken) { /* or a short text would stand for any number of elements */
        yk__fail(YK_ERR_FORMAT, "%s: the state's description has tensor '%.200s' twice", s->path, name);
        return NULL;
    }
    *taken = true;
    yk_value *value = yk__value_new(YK_VALUE_TENSOR);
    if (value)
        value->as.tensor = yk_tensor_retain(x);
    return value;
}

/* A dtype's name becomes an instruction of a pickle: only known ones. */
static yk_value *form_from_json(const source *s, const char *text, yk__python_type type)
{
    if (type == YK__PYTHON_DTYPE && !yk__pickle_is_dtype(text))
        return fail_json(s, "an unknown dtype");
    yk_value *value = yk__value_text(YK_VALUE_STRING, text, strlen(text));
    if (value)
        value->python_type = type;
    return value;
}

static bool all_integers(const yk_value *value)
{
    bool all = true;
    for (int64_t i = 0; i < yk_value_count(value); i++)
        all &= yk_value_at(value, i)->kind == YK_VALUE_INT;
    return all;
}

static yk_value *object_from_json(const source *s, const json_t *json)
{
    static const struct {
        const char *name;
        yk_value_kind kind;
        yk__python_type python_type;
    } kinds[] = {{"tuple", YK_VALUE_TUPLE, YK__PYTHON_PLAIN},    {"size", YK_VALUE_TUPLE, YK__PYTHON_SIZE},
                 {"set", YK_VALUE_SET, YK__PYTHON_PLAIN},        {"dict", YK_VALUE_DICT, YK__PYTHON_PLAIN},
                 {"ordered", YK_VALUE_DICT, YK__PYTHON_ORDERED}, {"counter", YK_VALUE_DICT, YK__PYTHON_COUNTER}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        const json_t *content = json_object_get(json, kinds[i].name);
        if (!content)
            continue;
        yk_value *value = items_from_json(s, content, kinds[i].kind);
        const json_t *attributes = json_object_get(json, "attributes");
        if (value)
            value->python_type = kinds[i].python_type;
        if (value && value->python_type == YK__PYTHON_SIZE && !all_integers(value)) {
            yk_value_release(value);
            return fail_json(s, "a size that is not of integers");
        }
        if (value && value->python_type == YK__PYTHON_ORDERED) {
            value->attributes = attributes ? from_json(s, attributes) : NULL;
            if (attributes && !value->attributes) {
                yk_value_release(value);
                return NULL;
            }
        }
        return value;
    }
    const char *text;
    if ((text = json_string_value(json_object_get(json, "tensor"))))
        return tensor_from_json(s, text);
    if ((text = json_string_value(json_object_get(json, "bytes"))))
        return from_hex(s, text, YK_VALUE_BYTES);
    if ((text = json_string_value(json_object_get(json, "bytearray")))) {
        yk_value *value = from_hex(s, text, YK_VALUE_BYTES);
        if (value)
            value->python_type = YK__PYTHON_BYTEARRAY;
        return value;
    }
    if ((text = json_string_value(json_object_get(json, "text"))))
        return from_hex(s, text, YK_VALUE_STRING);
    if ((text = json_string_value(json_object_get(json, "dtype"))))
        return form_from_json(s, text, YK__PYTHON_DTYPE);
    if ((text = json_string_value(json_object_get(json, "device"))))
        return form_from_json(s, text, YK__PYTHON_DEVICE);
    if ((text = json_string_value(json_object_get(json, "real"))))
        return real_from_json(s, text);
    return fail_json(s, "an object of an unknown kind");
}

/* jansson bounds the depth. */
static yk_value *from_json(const source *s, const json_t *json)
{
    yk_value *value;
    switch (json_typeof(json)) {
    case JSON_OBJECT: return object_from_json(s, json);
    case JSON_ARRAY: return items_from_json(s, json, YK_VALUE_LIST);
    case JSON_STRING: return yk__value_text(YK_VALUE_STRING, json_string_value(json), json_string_length(json));
    case JSON_INTEGER:
        value = yk__value_new(YK_VALUE_INT);
        if (value)
            value->as.integer = json_integer_value(json);
        return value;
    case JSON_REAL:
        value = yk__value_new(YK_VALUE_REAL);
        if (value)
            value->as.real = json_real_value(json);
        return value;
    case JSON_TRUE:
    case JSON_FALSE:
        value = yk__value_new(YK_VALUE_BOOL);
        if (value)
            value->as.boolean = json_is_true(json);
        return value;
    case JSON_NULL: break;
    }
    return yk__value_new(YK_VALUE_NONE);
}

yk_value *yk__value_from_json(const char *path, const char *text, const yk_state_dict *dict)
{
    json_error_t why;
    json_t *json = json_loads(text, JSON_DECODE_ANY, &why);
    if (!json) {
        if (!yk__json_no_memory(path, strlen(text), &why))
            yk__fail(YK_ERR_FORMAT, "%s: the state's description is not JSON: byte %d: %s", path, why.position,
                     why.text);
        return NULL;
    }
    int64_t count = yk__state_dict_count(dict);
    source s = {path, dict, yk__calloc((size_t)count + 1, sizeof(*s.taken))};
    yk_value *value = s.taken ? from_json(&s, json) : NULL;
    for (int64_t i = 0; value && i < count; i++) {
        if (s.taken[i])
            continue;
        yk__fail(YK_ERR_FORMAT, "%s: tensor '%.200s' is not in the state's description", path,
                 yk__state_dict_name(dict, i));
        yk_value_release(value);
        value = NULL;
    }
    if (value && yk__value_check_names(path, value, strlen(text))) {
        yk_value_release(value);
        value = NULL;
    }
    free(s.taken);
    json_decref(json);
    return value;
}
