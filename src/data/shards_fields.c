/*
 * shards_fields.c - the fields of a sample of tar shards: extensions that name them, and decoders. Layer: data.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "data/shards.h"

static const struct {
    const char *extension;
    yk__shards_decoder decoder;
} known[] = {{"jpg", YK__SHARDS_PICTURE},   {"jpeg", YK__SHARDS_PICTURE},  {"png", YK__SHARDS_PICTURE},
             {"bmp", YK__SHARDS_PICTURE},   {"tif", YK__SHARDS_PICTURE},   {"tiff", YK__SHARDS_PICTURE},
             {"pgm", YK__SHARDS_PICTURE},   {"ppm", YK__SHARDS_PICTURE},   {"webp", YK__SHARDS_PICTURE},
             {"cls", YK__SHARDS_INTEGER},   {"cls2", YK__SHARDS_INTEGER},  {"class", YK__SHARDS_INTEGER},
             {"count", YK__SHARDS_INTEGER}, {"index", YK__SHARDS_INTEGER}, {"inx", YK__SHARDS_INTEGER},
             {"id", YK__SHARDS_INTEGER},    {"txt", YK__SHARDS_BYTES},     {"text", YK__SHARDS_BYTES},
             {"json", YK__SHARDS_BYTES},    {"bin", YK__SHARDS_BYTES},     {"npy", YK__SHARDS_NPY}};

static yk_status add_choice(yk__shards_fields *s, int field, const char *text, size_t length)
{
    const char *last = text + length;
    while (last > text && last[-1] != '.')
        last--;
    size_t tail = (size_t)(text + length - last);
    const char *extensions[sizeof(known) / sizeof(*known)];
    yk__shards_choice *c = &s->choices[s->n_choices];
    bool found = false;
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
        extensions[i] = known[i].extension;
        if (strlen(known[i].extension) == tail && strncasecmp(known[i].extension, last, tail) == 0) {
            c->decoder = known[i].decoder;
            found = true;
        }
    }
    if (!found || length >= YK__SHARDS_EXTENSION) {
        char name[YK__SHARDS_EXTENSION];
        snprintf(name, sizeof(name), "%.*s", (int)(tail < YK__SHARDS_EXTENSION ? tail : YK__SHARDS_EXTENSION - 1),
                 last);
        const char *near = yk__nearest(name, extensions, sizeof(known) / sizeof(*known));
        return yk__fail(YK_ERR_ARGUMENT,
                        "shards: field \"%s\": no decoder for \"%s\"%s%s%s; there are jpg, jpeg, png, bmp, tif, tiff, "
                        "webp, pgm, ppm, cls, "
                        "txt, json, bin and npy",
                        s->texts[field], name, near ? ", did you mean " : "", near ? near : "", near ? "?" : "");
    }
    if (s->n_choices == YK__SHARDS_CHOICES - 1)
        return yk__fail(YK_ERR_ARGUMENT, "shards: more than %d extensions", YK__SHARDS_CHOICES - 1);
    c->field = field;
    snprintf(c->extension, sizeof(c->extension), "%.*s", (int)length, text);
    s->n_choices++;
    return YK_OK;
}

yk_status yk__shards_fields_take(yk__shards_fields *s, const char *const texts[YK_SAMPLE_TENSORS])
{
    static const char *const pictures[YK_SAMPLE_TENSORS] = {"jpg;jpeg;png;bmp;tif;tiff;webp;pgm;ppm", "cls"};
    if (!texts[0])
        texts = pictures;
    for (int i = 0; i < YK_SAMPLE_TENSORS && texts[i]; i++) {
        s->texts[i] = yk__strdup(texts[i]);
        if (!s->texts[i])
            return YK_ERR_MEMORY;
        s->count++;
        for (const char *at = s->texts[i], *end;; at = end + 1) {
            for (end = at; *end && *end != ';'; end++)
                continue;
            if (add_choice(s, i, at, (size_t)(end - at)))
                return yk__error_code();
            if (!*end)
                break;
        }
    }
    return YK_OK;
}

void yk__shards_fields_clear(yk__shards_fields *s)
{
    for (int i = 0; i < s->count; i++)
        free(s->texts[i]);
    *s = (yk__shards_fields){0};
}

bool yk__shards_of_pictures(const yk__shards_fields *s)
{
    for (int i = 0; i < s->n_choices; i++) {
        if (s->choices[i].field == 0 && s->choices[i].decoder != YK__SHARDS_PICTURE)
            return false;
    }
    return true;
}

/* ---- decoders ---- */
static void *room(yk_sample *sample, int i, yk_dtype dtype, int ndim, const int64_t *shape)
{
    return i ? yk_sample_allocate_at(sample, i, dtype, ndim, shape) : yk_sample_allocate(sample, dtype, ndim, shape);
}

static yk_status decode_bytes(const unsigned char *data, size_t length, yk_dtype dtype, int ndim, const int64_t *shape,
                              int i, yk_sample *sample)
{
    void *to = room(sample, i, dtype, ndim, shape);
    if (to && length)
        memcpy(to, data, length);
    return to ? YK_OK : yk__error_code();
}

yk_status yk__shards_integer(const unsigned char *data, size_t length, int64_t *number)
{
    char text[32], *end;
    if (length >= sizeof(text))
        return yk__fail(YK_ERR_FORMAT, "%zu bytes are no whole number", length);
    memcpy(text, data, length);
    text[length] = 0;
    errno = 0;
    *number = strtoll(text, &end, 10);
    bool whole = end > text && !errno;
    while (*end == ' ' || *end == '\n' || *end == '\r' || *end == '\t')
        end++;
    if (!whole || end != text + length)
        return yk__fail(YK_ERR_FORMAT, "\"%.*s\" is no whole number", (int)strcspn(text, "\r\n"), text);
    return YK_OK;
}

static yk_status decode_integer(const unsigned char *data, size_t length, int i, yk_sample *sample)
{
    int64_t number;
    yk_status status = yk__shards_integer(data, length, &number);
    return status ? status : decode_bytes((const unsigned char *)&number, sizeof(number), YK_I64, 0, NULL, i, sample);
}

/* The input keeps the worker's plans for the first tensor; another picture is decoded whole. */
static yk_status decode_picture(const unsigned char *data, size_t length, int i, yk_sample *sample)
{
    if (i == 0)
        return yk__image_decode(data, length, sample);
    yk__data_worker *worker = sample->worker;
    const yk_transform *resize = worker->resize;
    yk_sample picture = *sample;
    worker->resize = NULL;
    yk_status status = yk__image_decode(data, length, &picture);
    worker->resize = resize;
    return status ? status : decode_bytes(picture.data, yk__sample_numel(&picture), YK_U8, 3, picture.shape, i, sample);
}

/* The text behind a key of NumPy's header. */
static const char *npy_value(const char *header, const char *key)
{
    const char *at = strstr(header, key);
    at = at ? at + strlen(key) : NULL;
    while (at && *at == ' ')
        at++;
    return at;
}

static yk_status decode_npy(const unsigned char *data, size_t length, int i, yk_sample *sample)
{
    static const struct {
        const char *name;
        yk_dtype dtype;
    } types[] = {{"'|u1'", YK_U8},  {"'<i4'", YK_I32}, {"'<i8'", YK_I64}, {"'<f2'", YK_F16},
                 {"'<f4'", YK_F32}, {"'<f8'", YK_F64}, {"'|b1'", YK_BOOL}};
    char header[1025];
    if (length < 12 || memcmp(data, "\x93NUMPY", 6) != 0)
        return yk__fail(YK_ERR_FORMAT, "no .npy array: wrong magic number");
    size_t begin = data[6] == 1 ? 10 : 12, size = (size_t)data[8] | (size_t)data[9] << 8;
    bool longer = data[6] > 1 && (data[10] || data[11]);
    if (data[6] < 1 || data[6] > 3 || longer || size >= sizeof(header) || size > length - begin)
        return yk__fail(YK_ERR_FORMAT, "a .npy array of another version, or with a header of %zu bytes", size);
    memcpy(header, data + begin, size);
    header[size] = 0;
    const char *descr = npy_value(header, "'descr':"), *order = npy_value(header, "'fortran_order':"),
               *at = npy_value(header, "'shape':");
    size_t type = 0, types_count = sizeof(types) / sizeof(*types);
    while (descr && type < types_count && strncmp(descr, types[type].name, 5) != 0)
        type++;
    if (!descr || type == types_count || !order || strncmp(order, "False", 5) != 0 || !at || *at++ != '(')
        return yk__fail(YK_ERR_FORMAT,
                        "a .npy array that is not of u1, i4, i8, f2, f4, f8 or b1 in C order, little-endian");
    int64_t shape[YK_MAX_DIMS - 1];
    uint64_t numel = 1;
    int ndim = 0;
    while (*at && *at != ')' && ndim < YK_MAX_DIMS - 1) {
        char *end;
        long long n = strtoll(at, &end, 10);
        if (end == at || n < 0 || n > (long long)length + 1)
            return yk__fail(YK_ERR_FORMAT, "a .npy array whose shape %lld bytes cannot hold", (long long)length);
        numel *= (uint64_t)n;
        if (numel > length)
            return yk__fail(YK_ERR_FORMAT, "a .npy array whose shape %lld bytes cannot hold", (long long)length);
        shape[ndim++] = n;
        for (at = end; *at == ',' || *at == ' ';)
            at++;
    }
    size_t bytes = (size_t)numel * yk_dtype_size(types[type].dtype);
    if (*at != ')' || bytes != length - begin - size)
        return yk__fail(YK_ERR_FORMAT, "a .npy array of %zu bytes, of which %zu are there", bytes,
                        length - begin - size);
    return decode_bytes(data + begin + size, bytes, types[type].dtype, ndim, shape, i, sample);
}

yk_status yk__shards_decode(const yk__shards_choice *choice, const unsigned char *data, size_t length,
                            yk_sample *sample)
{
    int i = choice->field;
    switch (choice->decoder) {
    case YK__SHARDS_PICTURE: return decode_picture(data, length, i, sample);
    case YK__SHARDS_INTEGER: return decode_integer(data, length, i, sample);
    case YK__SHARDS_NPY: return decode_npy(data, length, i, sample);
    default: return decode_bytes(data, length, YK_U8, 1, (int64_t[]){(int64_t)length}, i, sample);
    }
}
