/*
 * ckpt_file.c - checkpoints of any format as one value, and back. Layer: cli.
 *
 * What safetensors cannot hold, the shape of nested state and all that is no tensor, goes into its metadata as JSON;
 * its other metadata is an attribute of the outermost dict in .pt files. Each is put back by the way back.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/core.h"
#include "checkpoint/formats/safetensors.h"
#include "checkpoint/formats/value_json.h"
#include "checkpoint/formats/zip.h"
#include "checkpoint/training/training_value.h"
#include "cli/ckpt/ckpt.h"
#include "data/dataset.h"
#include "nn/module.h"
#include "tensor/tensor.h"

static const char STATE[] = "yoke.state", METADATA[] = "__metadata__";

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Keeps the metadata, without our own, with the value if that is a dict. */
static yk_status keep_metadata(yk_value *value, const yk_value *metadata)
{
    yk_value *rest = yk_value_dict();
    yk_status status = rest ? YK_OK : yk__error_code();
    for (int64_t i = 0; i < yk_value_count(metadata) && !status; i++) {
        const char *key = yk_value_key(metadata, i, NULL);
        if (strcmp(key, STATE) != 0)
            status = yk_value_set(rest, key, yk_value_at(metadata, i));
    }
    if (status || !yk_value_count(rest) || yk_value_kind_of(value) != YK_VALUE_DICT)
        return status;
    yk_value *attributes = yk_value_dict();
    for (int64_t i = 0; attributes && i < yk_value_count(value->attributes) && !status; i++) {
        const char *key = yk_value_key(value->attributes, i, NULL);
        if (key)
            status = yk_value_set(attributes, key, yk_value_at(value->attributes, i));
    }
    if (!status)
        status = yk_value_set(attributes, METADATA, rest);
    if (status)
        return status;
    yk_value_release(value->attributes);
    value->attributes = yk_value_retain(attributes);
    value->python_type = YK__PYTHON_ORDERED;
    return YK_OK;
}

static yk_value *load_safetensors(const char *path, yk_device device)
{
    yk_value *metadata;
    yk_state_dict *dict = yk__safetensors_read_all(path, device, &metadata);
    metadata = yk__scope_own(metadata);
    if (!dict || !metadata)
        return NULL;
    const yk_value *state = yk_value_get(metadata, STATE);
    yk_value *value = state ? yk__scope_own(yk__value_from_json(path, yk_value_as_string(state), dict))
                            : yk_value_from_state_dict(dict);
    const char *what, *name;
    for (size_t i = 0; value && !state && (name = yk__state_dict_left_out_at(dict, i, &what)); i++) {
        if (yk__value_put(value, name, strlen(name), 0, yk__value_text(YK_VALUE_LEFT_OUT, what, strlen(what))))
            return NULL;
    }
    return value && !keep_metadata(value, metadata) ? value : NULL;
}

bool ckpt_is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* True if the folder has that file. */
static bool has_file(const char *folder, const char *name)
{
    char *path = yk__format("%s/%s", folder, name);
    bool there = path && yk__is_file(path);
    free(path);
    return there;
}

bool ckpt_is_published(const char *path)
{
    return ckpt_is_folder(path) && !has_file(path, "state.json") &&
           (has_file(path, "model.safetensors.index.json") || has_file(path, "model.safetensors"));
}

char *ckpt_training_folder(const char *path, yk_checkpoint_found *found)
{
    *found = (yk_checkpoint_found){0};
    if (has_file(path, "state.json"))
        return yk__strdup(path);
    return yk_checkpoint_find_latest(path, found) ? NULL : yk__strdup(found->path);
}

static yk_value *load_training(const char *path)
{
    yk_checkpoint_found found;
    char *dir = ckpt_training_folder(path, &found);
    yk_value *value = dir ? yk__training_to_value(dir) : NULL;
    free(dir);
    return value;
}

/* Finds the format of a file, "pt" or "safetensors", by its first bytes and its name. */
static yk_status find_format(const char *path, const char **format)
{
    unsigned char head[9] = {0};
    yk__source file;
    if (yk__source_open(path, false, &file))
        return yk__error_code();
    bool read = file.size >= sizeof(head) && !yk__source_read(&file, 0, head, sizeof(head));
    yk__source_close(&file);
    size_t length = strlen(path);
    bool named = length > 12 && strcasecmp(path + length - 12, ".safetensors") == 0;
    bool torch = memcmp(head, "PK", 2) == 0 || head[0] == 0x80;
    *format = (read && head[8] == '{' && memcmp(head, "PK\3\4", 4) != 0) || (named && !torch) ? "safetensors" : "pt";
    return YK_OK;
}

void ckpt_name_file(const char *path)
{
    const char *message = yk_last_error()->message;
    size_t length = strlen(path);
    if (strncmp(message, path, length) != 0 || (message[length] != ':' && message[length] != '/'))
        yk__error_prefix("%s", path);
}

yk_state_dict *ckpt_load_weights(const char *path, yk_device device)
{
    const yk_value *metadata;
    return ckpt_load_described(path, device, &metadata);
}

yk_state_dict *ckpt_load_described(const char *path, yk_device device, const yk_value **metadata)
{
    const char *format;
    yk_state_dict *dict = NULL;
    *metadata = NULL;
    if (ckpt_is_published(path)) {
        dict = yk_pretrained_load(path, device);
    } else if (ckpt_is_folder(path)) {
        yk_checkpoint_found found;
        char *dir = ckpt_training_folder(path, &found);
        dict = dir ? yk_checkpoint_load_weights(dir, device) : NULL;
        free(dir);
    } else if (!find_format(path, &format)) {
        yk_value *value = *format == 's' ? load_safetensors(path, device)
                                         : yk_pt_load(path, YK_OPTIONS(yk_pt_options, .map_location = device));
        dict = value ? yk_value_weights(value, NULL) : NULL;
        *metadata = value ? yk_value_get(value->attributes, METADATA) : NULL;
    }
    if (!dict)
        ckpt_name_file(path);
    return dict;
}

yk_value *ckpt_load(const char *path, const char **format)
{
    *format = "training";
    if (ckpt_is_folder(path))
        return load_training(path);
    if (find_format(path, format))
        return NULL;
    return **format == 's' ? load_safetensors(path, (yk_device){0}) : yk_pt_load(path, NULL);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static bool ends_with(const char *path, const char *ending)
{
    size_t length = strlen(path), tail = strlen(ending);
    return length > tail && strcasecmp(path + length - tail, ending) == 0;
}

/* True for a name without an ending, or with a slash at its end, or of a folder. */
static bool names_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    return !strchr(name, '.') || ckpt_is_folder(path);
}

yk_status ckpt_check_output(const char *path)
{
    if (ends_with(path, ".pt") || ends_with(path, ".pth") || ends_with(path, ".safetensors") || names_folder(path))
        return YK_OK;
    return yk__fail(
        YK_ERR_ARGUMENT,
        "%s: the format is told by the ending: .pt, .pth or .safetensors, or none for a training checkpoint", path);
}

/* The value without the metadata that its outermost dict keeps: a new dict, or the value itself. */
static yk_value *without_metadata(yk_value *value, const yk_value **metadata)
{
    *metadata = yk_value_get(value->attributes, METADATA);
    if (yk_value_kind_of(*metadata) != YK_VALUE_DICT)
        *metadata = NULL;
    if (!*metadata)
        return value;
    yk_value *copy = yk_value_dict(), *attributes = yk_value_dict();
    yk_status status = copy && attributes ? YK_OK : yk__error_code();
    for (int64_t i = 0; i < yk_value_count(value) && !status; i++) {
        int64_t number;
        const char *key = yk_value_key(value, i, &number);
        yk_value *item = yk_value_at(value, i);
        status = key ? yk_value_set(copy, key, item) : yk_value_set_int(copy, number, item);
    }
    for (int64_t i = 0; i < yk_value_count(value->attributes) && !status; i++) {
        const char *key = yk_value_key(value->attributes, i, NULL);
        if (key && strcmp(key, METADATA) != 0)
            status = yk_value_set(attributes, key, yk_value_at(value->attributes, i));
    }
    if (status)
        return NULL;
    copy->python_type = value->python_type;
    copy->attributes = yk_value_count(attributes) ? yk_value_retain(attributes) : NULL;
    return copy;
}

/* True if the value is nothing but tensors with names. */
static bool is_flat(const yk_value *value)
{
    bool flat = value->kind == YK_VALUE_DICT && !value->attributes;
    for (int64_t i = 0; flat && i < yk_value_count(value); i++)
        flat = yk_value_key(value, i, NULL) && yk_value_at(value, i)->kind == YK_VALUE_TENSOR;
    return flat;
}

static int by_address(const void *a, const void *b)
{
    uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return (x > y) - (x < y);
}

/* The number of tensors that have memory in common with another. */
static int64_t count_shared(const yk_state_dict *dict)
{
    int64_t count = yk_state_dict_count(dict), shared = 0;
    uintptr_t *storages = yk__calloc((size_t)count + 1, sizeof(*storages));
    for (int64_t i = 0; storages && i < count; i++)
        storages[i] = (uintptr_t)yk_state_dict_at(dict, i)->storage;
    if (storages)
        qsort(storages, (size_t)count, sizeof(*storages), by_address);
    for (int64_t i = 0; storages && i < count; i++)
        shared += (i > 0 && storages[i] == storages[i - 1]) || (i + 1 < count && storages[i] == storages[i + 1]);
    free(storages);
    return shared;
}

static yk_status save_safetensors(const char *path, yk_value *value, char **notice)
{
    const yk_value *kept;
    yk_value *bare = without_metadata(value, &kept);
    yk_state_dict *dict = bare ? yk_value_flatten(bare) : NULL;
    if (!dict)
        return yk__error_code();
    char *state = is_flat(bare) ? NULL : yk__value_to_json(bare);
    size_t count = (size_t)yk_value_count(kept), used = 0;
    yk_metadata *metadata = yk__calloc(count + 2, sizeof(*metadata));
    yk_status status = metadata && (state || is_flat(bare)) ? YK_OK : yk__error_code();
    for (size_t i = 0; i < count && !status; i++) {
        const yk_value *text = yk_value_at(kept, (int64_t)i);
        const char *key = yk_value_key(kept, (int64_t)i, NULL);
        if (key && yk_value_kind_of(text) == YK_VALUE_STRING)
            metadata[used++] = (yk_metadata){key, yk_value_as_string(text)};
    }
    if (!status && state)
        metadata[used++] = (yk_metadata){STATE, state};
    if (!status)
        status = yk_safetensors_save(path, dict, used ? metadata : NULL);
    int64_t shared = status ? 0 : count_shared(dict);
    if (shared)
        *notice = yk__format("%lld tensors share memory with others; a safetensors file holds each by itself",
                             (long long)shared);
    free(metadata);
    free(state);
    return status;
}

yk_status ckpt_save(const char *path, yk_value *value, char **notice)
{
    *notice = NULL;
    if (ends_with(path, ".safetensors"))
        return save_safetensors(path, value, notice);
    if (!ends_with(path, ".pt") && !ends_with(path, ".pth"))
        return yk__training_from_value(path, value, notice);
    return yk_pt_save(path, value);
}

yk_status ckpt_save_weights(const char *path, const yk_state_dict *dict, const yk_metadata *metadata)
{
    yk_value *value = yk_value_from_state_dict(dict), *texts = yk_value_dict();
    yk_status status = value && texts ? YK_OK : yk__error_code();
    for (; metadata && metadata->key && !status; metadata++) {
        yk_value *text = yk_value_string(metadata->value);
        status = text ? yk_value_set(texts, metadata->key, text) : yk__error_code();
    }
    if (!status)
        status = keep_metadata(value, texts);
    return status ? status : yk_pt_save(path, value);
}

/* ---- leaves ------------------------------------------------------------------------------------------------------ */

static yk_status add_leaf(const char *name, yk_value *leaf, void *user)
{
    yk_value *leaves = user;
    if (!*name)
        name = leaf->kind == YK_VALUE_TENSOR ? "tensor" : "value";
    if (yk_value_get(leaves, name))
        return yk__fail(YK_ERR_FORMAT, "two values have the full name '%.200s'", name);
    return yk_value_set(leaves, name, leaf);
}

yk_value *ckpt_leaves(const char *path, yk_value *value)
{
    yk_value *leaves = yk_value_dict();
    if (leaves && !yk__value_walk(value, add_leaf, leaves))
        return leaves;
    ckpt_name_file(path);
    return NULL;
}

json_t *ckpt_leaf_json(const yk_value *leaf)
{
    switch (leaf->kind) {
    case YK_VALUE_NONE: return json_null();
    case YK_VALUE_BOOL: return json_boolean(leaf->as.boolean);
    case YK_VALUE_INT: return json_integer((json_int_t)leaf->as.integer);
    case YK_VALUE_REAL: return json_real(leaf->as.real) ?: json_sprintf("%g", leaf->as.real); /* nan, inf */
    case YK_VALUE_STRING: {
        json_t *text = json_stringn(leaf->as.bytes.data, leaf->as.bytes.size);
        return text ? text : json_null();
    }
    case YK_VALUE_BYTES: return json_pack("{s:I}", "bytes", (json_int_t)leaf->as.bytes.size);
    case YK_VALUE_DICT: return json_object();
    case YK_VALUE_TENSOR: {
        json_t *shape = json_array();
        for (int d = 0; d < yk_ndim(leaf->as.tensor); d++)
            json_array_append_new(shape, json_integer(yk_size(leaf->as.tensor, d)));
        return json_pack("{s:s, s:o}", "dtype", yk_dtype_name(yk_tensor_dtype(leaf->as.tensor)), "shape", shape);
    }
    default: return json_array();
    }
}

char *ckpt_leaf_text(const yk_value *leaf)
{
    if (leaf->kind == YK_VALUE_TENSOR) {
        char shape[200];
        return yk__format("%s %s", yk_dtype_name(yk_tensor_dtype(leaf->as.tensor)),
                          yk_shape_format(leaf->as.tensor, shape, sizeof(shape)));
    }
    if (leaf->kind == YK_VALUE_BYTES)
        return yk__format("%zu bytes", leaf->as.bytes.size);
    if (leaf->kind == YK_VALUE_REAL)
        return yk__format("%.17g", leaf->as.real);
    json_t *json = ckpt_leaf_json(leaf);
    char *text = json_dumps(json, JSON_ENCODE_ANY | JSON_COMPACT);
    json_decref(json);
    return text;
}

void ckpt_totals(const yk_value *leaves, int64_t *tensors, int64_t *elements, int64_t *bytes)
{
    *tensors = *elements = *bytes = 0;
    for (int64_t i = 0; i < yk_value_count(leaves); i++) {
        const yk_value *leaf = yk_value_at(leaves, i);
        if (leaf->kind != YK_VALUE_TENSOR)
            continue;
        ++*tensors;
        *elements += yk_numel(leaf->as.tensor);
        *bytes += yk_numel(leaf->as.tensor) * (int64_t)yk_dtype_size(yk_tensor_dtype(leaf->as.tensor));
    }
}

int ckpt_print_json(json_t *json)
{
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL; /* no control characters */
    json_decref(json);
    if (!text) {
        yk__fail_memory(sizeof(json_t *));
        return cli_failed();
    }
    puts(text);
    free(text);
    return EXIT_DONE;
}

int ckpt_failed(const ckpt_settings *s)
{
    const yk_error *error = yk_last_error();
    if (s->json && error)
        ckpt_print_json(json_pack("{s:s, s:b, s:s}", "path", s->paths[0], "valid", 0, "error", error->message));
    return cli_failed();
}
