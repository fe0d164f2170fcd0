/*
 * safetensors_header.c - parses the header of a safetensors file and refuses what the format does not allow.
 * Layer: checkpoint. Works on bytes in memory, so that a fuzzer reaches all of it.
 *
 * The file: 8 bytes with the header's length (little endian), the header (a JSON object, '{' first, spaces last), the
 * tensors' data. The header maps names to {"dtype", "shape", "data_offsets": [begin, end]}; "__metadata__" maps text
 * to text. Source: the format's description in the safetensors package.
 *
 * Invariant: what comes out has data ranges that are in order, fill the file exactly, and have the size that shape and
 * dtype ask for. That holds of tensors of the format's other dtypes, too, which are read by name alone.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/core.h"
#include "checkpoint/formats/safetensors.h"
#include "checkpoint/formats/sealed_json.h"
#include "tensor/tensor.h"

static const char *const dtype_names[YK__DTYPES] = {
    [YK_F32] = "F32", [YK_F64] = "F64", [YK_F16] = "F16", [YK_BF16] = "BF16",
    [YK_I64] = "I64", [YK_I32] = "I32", [YK_U8] = "U8",   [YK_BOOL] = "BOOL",
};

/* The format's other element types: torch's name where it has one, and the bits of an element. */
static const struct foreign_dtype {
    const char *name, *dtype;
    int bits;
} foreign_dtypes[] = {
    {"I8", "int8", 8},
    {"I16", "int16", 16},
    {"U16", "uint16", 16},
    {"U32", "uint32", 32},
    {"U64", "uint64", 64},
    {"C64", "complex64", 64},
    {"F8_E4M3", "float8_e4m3fn", 8},
    {"F8_E5M2", "float8_e5m2", 8},
    {"F8_E8M0", "float8_e8m0fnu", 8},
    {"F8_E4M3FNUZ", "float8_e4m3fnuz", 8},
    {"F8_E5M2FNUZ", "float8_e5m2fnuz", 8},
    {"F6_E2M3", "F6_E2M3", 6},
    {"F6_E3M2", "F6_E3M2", 6},
    {"F4", "F4", 4},
};

const char *yk__safetensors_dtype(yk_dtype dtype)
{
    return dtype_names[dtype];
}

yk_status yk__safetensors_length(const char *path, const unsigned char prefix[YK__SAFETENSORS_PREFIX],
                                 uint64_t file_size, size_t *header_size)
{
    *header_size = 0;
    if (file_size < YK__SAFETENSORS_PREFIX)
        return yk__fail(YK_ERR_FORMAT, "%s: not a safetensors file: %" PRIu64 " bytes, fewer than the %d of a prefix",
                        path, file_size, YK__SAFETENSORS_PREFIX);
    uint64_t length = 0;
    for (int i = YK__SAFETENSORS_PREFIX - 1; i >= 0; i--)
        length = length << 8 | prefix[i];
    if (length > YK__SAFETENSORS_HEADER_LIMIT)
        return yk__fail(YK_ERR_FORMAT,
                        "%s: not a safetensors file: it claims a header of %" PRIu64 " bytes; the format allows %d",
                        path, length, YK__SAFETENSORS_HEADER_LIMIT);
    if (length > file_size - YK__SAFETENSORS_PREFIX)
        return yk__fail(YK_ERR_FORMAT, "%s: the header is said to have %" PRIu64 " bytes but only %" PRIu64 " follow",
                        path, length, file_size - YK__SAFETENSORS_PREFIX);
    *header_size = (size_t)length;
    return YK_OK;
}

static const char *json_kind(const json_t *value)
{
    if (!value)
        return "nothing";
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a real number";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    default: return "null";
    }
}

/* One of an array's numbers, which may not be negative. */
static yk_status read_count(const char *path, const char *name, const char *field, const json_t *array, size_t i,
                            int64_t *value)
{
    const json_t *item = json_array_get(array, i);
    if (!json_is_integer(item))
        return yk__fail(YK_ERR_FORMAT, "%s: tensor '%s': %s[%zu] is %s, not an integer", path, name, field, i,
                        json_kind(item));
    *value = json_integer_value(item);
    if (*value < 0)
        return yk__fail(YK_ERR_FORMAT, "%s: tensor '%s': %s[%zu] is %" PRId64 ", below 0", path, name, field, i,
                        *value);
    return YK_OK;
}

static yk_status read_dtype(const char *path, const json_t *entry, yk__safetensor *tensor, int *bits)
{
    const json_t *value = json_object_get(entry, "dtype");
    if (!json_is_string(value))
        return yk__fail(YK_ERR_FORMAT, "%s: tensor '%s': dtype is %s, not a string", path, tensor->name,
                        json_kind(value));
    const char *text = json_string_value(value);
    for (int i = 0; i < YK__DTYPES; i++) {
        if (strcmp(text, dtype_names[i]) == 0) {
            tensor->dtype = (yk_dtype)i;
            *bits = 8 * (int)yk_dtype_size(tensor->dtype);
            return YK_OK;
        }
    }
    for (size_t i = 0; i < sizeof(foreign_dtypes) / sizeof(*foreign_dtypes); i++) {
        if (strcmp(text, foreign_dtypes[i].name) == 0) {
            tensor->foreign = foreign_dtypes[i].dtype;
            *bits = foreign_dtypes[i].bits;
            return YK_OK;
        }
    }
    return yk__fail(YK_ERR_DTYPE, "%s: tensor '%s': '%.32s' is no dtype of the format", path, tensor->name, text);
}

char *yk__safetensors_left_out(const yk__safetensor *tensor)
{
    char shape[200];
    yk__shape_text(tensor->ndim, tensor->shape, shape, sizeof(shape));
    return yk__format("%s tensor of shape %s", tensor->foreign, shape);
}

static yk_status read_shape(const char *path, const json_t *entry, int bits, yk__safetensor *tensor, uint64_t *bytes)
{
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape))
        return yk__fail(YK_ERR_FORMAT, "%s: tensor '%s': shape is %s, not an array", path, tensor->name,
                        json_kind(shape));
    if (json_array_size(shape) > YK_MAX_DIMS)
        return yk__fail(YK_ERR_SHAPE, "%s: tensor '%s' has %zu dimensions; at most %d are possible", path, tensor->name,
                        json_array_size(shape), YK_MAX_DIMS);
    tensor->ndim = (int)json_array_size(shape);
    bool empty = false, overflow = false;
    int64_t total = bits % 8 ? bits : bits / 8; /* bytes, or bits where an element has no whole bytes */
    for (int i = 0; i < tensor->ndim; i++) {
        if (read_count(path, tensor->name, "shape", shape, (size_t)i, &tensor->shape[i]))
            return YK_ERR_FORMAT;
        empty |= tensor->shape[i] == 0;
        overflow |= !empty && __builtin_mul_overflow(total, tensor->shape[i], &total);
    }
    /* As the package does, an overflow counts even where a later size is 0. */
    if (overflow)
        return yk__fail(YK_ERR_FORMAT, "%s: tensor '%s': its shape has more bytes than 64 bits count", path,
                        tensor->name);
    if (bits % 8 && !empty && total % 8)
        return yk__fail(YK_ERR_FORMAT, "%s: tensor '%s': its %" PRId64 " bits are no whole bytes", path, tensor->name,
                        total);
    *bytes = empty ? 0 : (uint64_t)(bits % 8 ? total / 8 : total);
    return YK_OK;
}

static yk_status read_tensor(const char *path, const json_t *entry, uint64_t data_size, yk__safetensor *tensor)
{
    if (!json_is_object(entry))
        return yk__fail(YK_ERR_FORMAT, "%s: tensor '%s': its entry is %s, not an object", path, tensor->name,
                        json_kind(entry));
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)entry, key, value)
    {
        if (strcmp(key, "dtype") != 0 && strcmp(key, "shape") != 0 && strcmp(key, "data_offsets") != 0)
            return yk__fail(YK_ERR_FORMAT, "%s: tensor '%s': unknown field '%.64s'", path, tensor->name, key);
    }
    uint64_t bytes = 0;
    int bits = 8;
    yk_status status = read_dtype(path, entry, tensor, &bits);
    if (!status)
        status = read_shape(path, entry, bits, tensor, &bytes);
    if (status)
        return status;
    const json_t *offsets = json_object_get(entry, "data_offsets");
    if (!json_is_array(offsets) || json_array_size(offsets) != 2)
        return yk__fail(YK_ERR_FORMAT, "%s: tensor '%s': data_offsets is not an array of two", path, tensor->name);
    int64_t begin, end;
    if (read_count(path, tensor->name, "data_offsets", offsets, 0, &begin) ||
        read_count(path, tensor->name, "data_offsets", offsets, 1, &end))
        return YK_ERR_FORMAT;
    if (end < begin || (uint64_t)end > data_size)
        return yk__fail(YK_ERR_FORMAT,
                        "%s: tensor '%s': data_offsets [%" PRId64 ", %" PRId64 "] lie outside the %" PRIu64
                        " bytes of data",
                        path, tensor->name, begin, end, data_size);
    if ((uint64_t)(end - begin) != bytes)
        return yk__fail(YK_ERR_FORMAT,
                        "%s: tensor '%s': data_offsets [%" PRId64 ", %" PRId64 "] hold %" PRId64
                        " bytes, its shape and dtype need %" PRIu64,
                        path, tensor->name, begin, end, end - begin, bytes);
    tensor->begin = (uint64_t)begin;
    tensor->end = (uint64_t)end;
    return YK_OK;
}

static yk_status check_metadata(const char *path, json_t *metadata)
{
    if (!json_is_object(metadata))
        return yk__fail(YK_ERR_FORMAT, "%s: __metadata__ is %s, not an object", path, json_kind(metadata));
    const char *key;
    json_t *value;
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return yk__fail(YK_ERR_FORMAT, "%s: __metadata__: '%.64s' is %s, not a string", path, key,
                            json_kind(value));
    }
    return YK_OK;
}

static int by_place(const void *a, const void *b)
{
    const yk__safetensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Sorts by offset; then each tensor must begin where the one before ends, and the last must end the file. */
static yk_status check_places(const char *path, yk__safetensors *parsed, uint64_t data_size)
{
    if (parsed->count)
        qsort(parsed->tensors, parsed->count, sizeof(*parsed->tensors), by_place);
    uint64_t offset = 0;
    for (size_t i = 0; i < parsed->count; i++) {
        const yk__safetensor *t = &parsed->tensors[i];
        if (t->begin < offset)
            return yk__fail(YK_ERR_FORMAT, "%s: the data of tensors '%s' and '%s' overlap at byte %" PRIu64, path,
                            parsed->tensors[i - 1].name, t->name, t->begin);
        if (t->begin > offset)
            return yk__fail(YK_ERR_FORMAT, "%s: bytes %" PRIu64 " to %" PRIu64 " before tensor '%s' belong to none",
                            path, offset, t->begin, t->name);
        offset = t->end;
    }
    if (offset != data_size)
        return yk__fail(YK_ERR_FORMAT,
                        "%s: the tensors end at byte %" PRIu64 " of the data but the file goes on to byte %" PRIu64,
                        path, offset, data_size);
    return YK_OK;
}

static yk_status parse_entries(const char *path, uint64_t data_size, yk__safetensors *parsed)
{
    const char *name;
    json_t *entry;
    json_object_foreach(parsed->json, name, entry)
    {
        yk_status status;
        if (strcmp(name, "__metadata__") == 0) {
            status = check_metadata(path, entry);
        } else {
            yk__safetensor *tensor = &parsed->tensors[parsed->count++];
            tensor->name = name;
            status = read_tensor(path, entry, data_size, tensor);
        }
        if (status)
            return status;
    }
    return check_places(path, parsed, data_size);
}

yk_status yk__safetensors_parse(const char *path, const char *header, size_t header_size, uint64_t data_size,
                                yk__safetensors *parsed)
{
    *parsed = (yk__safetensors){0};
    if (header_size == 0 || header[0] != '{')
        return yk__fail(YK_ERR_FORMAT, "%s: not a safetensors file: the header does not begin with '{'", path);
    json_error_t why;
    parsed->json = json_loadb(header, header_size, JSON_REJECT_DUPLICATES, &why);
    if (!parsed->json && yk__json_no_memory(path, header_size, &why))
        return YK_ERR_MEMORY;
    if (!parsed->json)
        return yk__fail(YK_ERR_FORMAT, "%s: bad header at byte %d: %s", path, why.position, why.text);
    yk_status status = YK_ERR_MEMORY;
    parsed->tensors = yk__calloc(json_object_size(parsed->json), sizeof(*parsed->tensors));
    if (parsed->tensors)
        status = parse_entries(path, data_size, parsed);
    if (status)
        yk__safetensors_clear(parsed);
    return status;
}

void yk__safetensors_clear(yk__safetensors *parsed)
{
    json_decref(parsed->json);
    free(parsed->tensors);
    *parsed = (yk__safetensors){0};
}
