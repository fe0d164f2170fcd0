/*
 * npy.c - reads and writes NumPy's arrays: .npy, and .npz, a zip file of them. Layer: checkpoint.
 *
 * An array is a magic text, a header that is a dict of Python in text ({'descr': '<f4', 'fortran_order': False,
 * 'shape': (3, 4), }), and the elements. Nothing of the header is believed beyond what the file holds.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <yoke/checkpoint.h>
#include <yoke/ops.h>

#include "checkpoint/formats/npy.h"
#include "nn/module.h"
#include "nn/state_dict.h"
#include "tensor/tensor.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "elements are copied as they are");

/* MOST_HEADER: NumPy itself refuses more. PIECE: what is converted at once, bytes. */
enum { PREFIX = 8, MOST_HEADER = 10000, ALIGNMENT = 64, PIECE = 1 << 16, MOST_TEXT = 64 };
static const char magic[] = "\x93NUMPY";

/* ---- the elements' types ----------------------------------------------------------------------------------------- */

/* An element type of NumPy, by its letter and size, and the dtype that holds all its values. */
typedef struct npy_type {
    char kind;
    unsigned size;
    yk_dtype dtype;
} npy_type;
static const npy_type npy_types[] = {
    {'f', 4, YK_F32},  {'f', 8, YK_F64}, {'f', 2, YK_F16}, {'i', 8, YK_I64}, {'i', 4, YK_I32}, {'u', 1, YK_U8},
    {'b', 1, YK_BOOL}, {'i', 2, YK_I32}, {'i', 1, YK_I32}, {'u', 2, YK_I32}, {'u', 4, YK_I64}, {'u', 8, YK_I64},
};

static bool is_plain(const npy_type *type)
{
    return yk_dtype_size(type->dtype) == type->size && !(type->kind == 'u' && type->size == 8);
}

/* The integer of an element of `type`, little-endian. */
static int64_t element_value(const npy_type *type, const unsigned char *at)
{
    uint64_t bits = 0;
    memcpy(&bits, at, type->size);
    unsigned unused = 64 - 8 * type->size;
    return type->kind == 'u' ? (int64_t)bits : (int64_t)(bits << unused) >> unused;
}

static void bytes_reverse(unsigned char *at, unsigned size)
{
    for (unsigned i = 0; i < size / 2; i++) {
        unsigned char byte = at[i];
        at[i] = at[size - 1 - i];
        at[size - 1 - i] = byte;
    }
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

typedef struct npy_header {
    const npy_type *type;
    bool big_endian, fortran;
    int ndim;
    int64_t shape[YK_MAX_DIMS];
    uint64_t data; /* the offset of the elements */
} npy_header;

/* The text of a header on its way through the parser. */
typedef struct npy_text {
    const char *path, *at;
} npy_text;

static yk_status header_bad(const npy_text *t, const char *expected)
{
    return yk__fail(YK_ERR_FORMAT, "%s: the header of the array is damaged: expected %s before \"%.20s\"", t->path,
                    expected, t->at);
}

static void spaces_skip(npy_text *t)
{
    while (*t->at == ' ' || *t->at == '\n')
        t->at++;
}

static bool text_accept(npy_text *t, const char *word)
{
    spaces_skip(t);
    size_t length = strlen(word);
    if (strncmp(t->at, word, length) != 0)
        return false;
    t->at += length;
    return true;
}

/* A text in quotes, without escapes, of less than MOST_TEXT bytes. */
static yk_status quoted_read(npy_text *t, char text[MOST_TEXT])
{
    spaces_skip(t);
    char quote = *t->at;
    const char *end = quote == '\'' || quote == '"' ? strchr(t->at + 1, quote) : NULL;
    size_t length = end ? (size_t)(end - t->at - 1) : MOST_TEXT;
    if (length >= MOST_TEXT)
        return header_bad(t, "a text in quotes");
    memcpy(text, t->at + 1, length);
    text[length] = '\0';
    t->at = end + 1;
    return YK_OK;
}

static yk_status descr_read(npy_text *t, npy_header *h)
{
    char text[MOST_TEXT];
    spaces_skip(t);
    if (*t->at == '[')
        return yk__fail(YK_ERR_FORMAT,
                        "%s: the array's elements are records of several fields; save each field as an array", t->path);
    if (quoted_read(t, text))
        return yk__error_code();
    char order = text[0], *end = NULL;
    unsigned long size = order && text[1] ? strtoul(text + 2, &end, 10) : 0;
    for (size_t i = 0; end && !*end && strchr("<>|=", order) && i < sizeof(npy_types) / sizeof(*npy_types); i++) {
        if (npy_types[i].kind == text[1] && npy_types[i].size == size)
            h->type = &npy_types[i];
    }
    h->big_endian = order == '>';
    if (h->type)
        return YK_OK;
    return yk__fail(
        YK_ERR_FORMAT,
        "%s: the array's elements are of type '%s'%s; known are floats of 16, 32 and 64 bits, integers, bytes "
        "and bool",
        t->path, text, text[1] == 'O' ? ", Python objects, which are code" : "");
}

static yk_status shape_read(npy_text *t, npy_header *h)
{
    if (!text_accept(t, "("))
        return header_bad(t, "a shape in parentheses");
    while (!text_accept(t, ")")) {
        char *end;
        spaces_skip(t);
        unsigned long long size = *t->at >= '0' && *t->at <= '9' ? strtoull(t->at, &end, 10) : ULLONG_MAX;
        if (size > INT64_MAX)
            return header_bad(t, "a size");
        if (h->ndim == YK_MAX_DIMS)
            return yk__fail(YK_ERR_FORMAT, "%s: the array has more than %d dimensions", t->path, YK_MAX_DIMS);
        h->shape[h->ndim++] = (int64_t)size;
        t->at = end;
        bool comma = text_accept(t, ",");
        spaces_skip(t);
        if (!comma && *t->at != ')')
            return header_bad(t, "a comma or the end of the shape");
    }
    return YK_OK;
}

/* Reads the dict, whose three keys come in any order. */
static yk_status dict_read(npy_text *t, npy_header *h)
{
    bool shape = false, order = false;
    if (!text_accept(t, "{"))
        return header_bad(t, "a dict");
    while (!text_accept(t, "}")) {
        char key[MOST_TEXT];
        if (quoted_read(t, key))
            return yk__error_code();
        if (!text_accept(t, ":"))
            return header_bad(t, "a colon");
        if (strcmp(key, "descr") == 0 && !h->type) {
            if (descr_read(t, h))
                return yk__error_code();
        } else if (strcmp(key, "shape") == 0 && !shape) {
            shape = true;
            if (shape_read(t, h))
                return yk__error_code();
        } else if (strcmp(key, "fortran_order") == 0 && !order) {
            order = true;
            h->fortran = text_accept(t, "True");
            if (!h->fortran && !text_accept(t, "False"))
                return header_bad(t, "True or False");
        } else {
            return header_bad(t, "descr, fortran_order and shape, once each,");
        }
        spaces_skip(t);
        if (!text_accept(t, ",") && *t->at != '}')
            return header_bad(t, "a comma or the end of the dict");
    }
    spaces_skip(t);
    return *t->at || !h->type || !shape || !order ? header_bad(t, "descr, fortran_order and shape, and no more,")
                                                  : YK_OK;
}

/* Reads and checks the header of an array that ends with the source. */
static yk_status header_read(const yk__source *source, npy_header *h)
{
    unsigned char prefix[PREFIX + 4];
    *h = (npy_header){0};
    if (source->size < PREFIX + 2)
        return yk__fail(YK_ERR_FORMAT, "%s: not a NumPy array: only %" PRIu64 " bytes", source->path, source->size);
    if (yk__source_read(source, 0, prefix, PREFIX + 2))
        return yk__error_code();
    if (memcmp(prefix, magic, sizeof(magic) - 1) != 0)
        return yk__fail(YK_ERR_FORMAT, "%s: not a NumPy array: it does not begin with \\x93NUMPY", source->path);
    int version = prefix[6], bytes = version == 1 ? 2 : 4;
    if (version < 1 || version > 3)
        return yk__fail(YK_ERR_FORMAT, "%s: version %d.%d of the format of arrays; known are 1.0, 2.0 and 3.0",
                        source->path, version, prefix[7]);
    uint64_t length = (uint64_t)prefix[8] | (uint64_t)prefix[9] << 8;
    if (bytes == 4) {
        if (source->size < PREFIX + 4 || yk__source_read(source, PREFIX, prefix + PREFIX, 4))
            return yk__error_code() ? yk__error_code()
                                    : yk__fail(YK_ERR_FORMAT, "%s: ends in its header", source->path);
        length |= (uint64_t)prefix[10] << 16 | (uint64_t)prefix[11] << 24;
    }
    h->data = PREFIX + (uint64_t)bytes + length;
    if (length > MOST_HEADER || h->data > source->size)
        return yk__fail(YK_ERR_FORMAT,
                        "%s: the array's header claims %" PRIu64 " bytes, of a file of %" PRIu64 " and at most %d",
                        source->path, length, source->size, MOST_HEADER);
    char text[MOST_HEADER + 1];
    if (yk__source_read(source, PREFIX + (uint64_t)bytes, text, length))
        return yk__error_code();
    text[length] = '\0';
    if (strlen(text) != length)
        return yk__fail(YK_ERR_FORMAT, "%s: the array's header holds a zero byte", source->path);
    npy_text t = {.path = source->path, .at = text};
    if (dict_read(&t, h))
        return yk__error_code();
    uint64_t size = h->type->size;
    bool fits = true, empty = false;
    for (int d = 0; d < h->ndim; d++)
        empty |= h->shape[d] == 0;
    for (int d = 0; d < h->ndim && !empty; d++)
        fits = fits && !__builtin_mul_overflow(size, (uint64_t)h->shape[d], &size);
    if (empty)
        size = 0;
    char shape[256];
    return fits && size == source->size - h->data
               ? YK_OK
               : yk__fail(YK_ERR_FORMAT, "%s: an array of %s %s is not the %" PRIu64 " bytes that follow its header",
                          source->path, yk_dtype_name(h->type->dtype),
                          yk__shape_text(h->ndim, h->shape, shape, sizeof(shape)), source->size - h->data);
}

/* Elements in the other order of bytes, or of a type that no dtype is, by pieces. */
static yk_status elements_convert(const yk__source *source, const npy_header *h, yk_tensor *x)
{
    unsigned char piece[PIECE];
    unsigned size = h->type->size;
    char *to = x->data;
    for (int64_t done = 0, count; done < x->numel; done += count) {
        count = x->numel - done < PIECE / size ? x->numel - done : PIECE / size;
        if (yk__source_read(source, h->data + (uint64_t)done * size, piece, (size_t)count * size))
            return yk__error_code();
        for (int64_t i = 0; i < count; i++) {
            unsigned char *at = piece + (size_t)i * size;
            if (h->big_endian)
                bytes_reverse(at, size);
            int64_t value = is_plain(h->type) ? 0 : element_value(h->type, at);
            if (h->type->kind == 'u' && size == 8 && value < 0)
                return yk__fail(YK_ERR_FORMAT, "%s: element %" PRId64 " of the array is %" PRIu64 ", beyond an int64",
                                source->path, done + i, (uint64_t)value);
            int32_t narrow = (int32_t)value;
            const void *from = is_plain(h->type)          ? (void *)at
                               : h->type->dtype == YK_I32 ? (void *)&narrow
                                                          : (void *)&value;
            memcpy(to, from, yk_dtype_size(x->dtype));
            to += yk_dtype_size(x->dtype);
        }
    }
    return YK_OK;
}

static yk_status elements_read(const yk__source *source, const npy_header *h, yk_tensor *x)
{
    if (!is_plain(h->type) || (h->big_endian && h->type->size > 1))
        return elements_convert(source, h, x);
    yk_status status = yk__source_read(source, h->data, x->data, (size_t)x->numel * h->type->size);
    for (int64_t i = 0; !status && x->dtype == YK_BOOL && i < x->numel; i++) {
        if (((unsigned char *)x->data)[i] > 1)
            status = yk__fail(YK_ERR_FORMAT, "%s: element %" PRId64 " of the array is %d, not a bool", source->path, i,
                              ((unsigned char *)x->data)[i]);
    }
    return status;
}

yk_tensor *yk__npy_read(const yk__source *source)
{
    npy_header h;
    if (header_read(source, &h))
        return NULL;
    int64_t shape[YK_MAX_DIMS];
    int reversed[YK_MAX_DIMS];
    for (int d = 0; d < h.ndim; d++) {
        reversed[d] = h.ndim - 1 - d;
        shape[d] = h.shape[h.fortran ? reversed[d] : d];
    }
    yk_tensor *x = yk__tensor_new(h.ndim, shape, NULL, h.type->dtype, (yk_device){0});
    if (!x)
        return NULL;
    if (elements_read(source, &h, x)) {
        yk_tensor_release(x);
        return NULL;
    }
    x = yk__scope_own(x);
    return h.fortran && h.ndim > 1 ? yk_permute(x, reversed) : x;
}

yk_tensor *yk_npy_load(const char *path)
{
    YK__OWN_RECORD;
    yk__source source;
    if (!yk__scope_check("npy_load") || !yk__is_there("npy_load", "path", path) ||
        yk__source_open(path, false, &source))
        return NULL;
    yk_tensor *x = yk__npy_read(&source);
    yk__source_close(&source);
    return x;
}

/* Adds the array in a member NAME.npy of a zip file to the dict, as NAME. */
static yk_status member_read(const yk__source *zip, const yk__zip_member *member, yk_state_dict *dict)
{
    static const char suffix[] = ".npy";
    size_t length = member->name_length, cut = sizeof(suffix) - 1;
    char *name = yk__calloc(1, length + 1);
    if (!name)
        return YK_ERR_MEMORY;
    memcpy(name, member->name, length);
    yk_status status = YK_OK;
    if (length > cut && strcmp(name + length - cut, suffix) == 0)
        name[length - cut] = '\0';
    else
        status =
            yk__fail(YK_ERR_FORMAT, "%s: member '%s' is no array: expected names that end with .npy", zip->path, name);
    size_t most = strlen(zip->path) + length + 4;
    char *path = status ? NULL : yk__calloc(1, most);
    unsigned char *bytes = path ? yk__calloc(1, member->size + 1) : NULL;
    if (!status && !bytes)
        status = YK_ERR_MEMORY;
    if (!status)
        status = yk__zip_read(zip, member, bytes);
    if (!status) {
        snprintf(path, most, "%s: '%s'", zip->path, name);
        yk_tensor *x = yk__npy_read(&(yk__source){.path = path, .fd = -1, .bytes = bytes, .size = member->size});
        status = x ? yk_state_dict_add(dict, name, x) : yk__error_code();
    }
    free(bytes);
    free(path);
    free(name);
    return status;
}

yk_state_dict *yk_npz_load(const char *path)
{
    YK__OWN_RECORD;
    yk__source source;
    if (!yk__scope_check("npz_load") || !yk__is_there("npz_load", "path", path) ||
        yk__source_open(path, false, &source))
        return NULL;
    yk__zip zip;
    yk_state_dict *dict = NULL;
    if (!yk__zip_open(&source, &zip)) {
        dict = yk_state_dict_create();
        for (uint32_t i = 0; dict && i < zip.count; i++) {
            if (member_read(&source, &zip.members[i], dict))
                dict = NULL;
        }
        yk__zip_clear(&zip);
    }
    yk__source_close(&source);
    return dict;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* The header for a tensor, in the form that NumPy writes: padded with spaces so that the elements begin at a multiple
 * of 64 bytes. Its length, 0 and an error for a dtype that NumPy has not. */
static size_t header_make(const char *what, const yk_tensor *x, unsigned char header[512])
{
    const npy_type *type = NULL;
    for (size_t i = 0; i < sizeof(npy_types) / sizeof(*npy_types) && !type; i++) {
        if ((int)npy_types[i].dtype == x->dtype && is_plain(&npy_types[i]))
            type = &npy_types[i];
    }
    if (!type) {
        yk__fail(YK_ERR_DTYPE, "%s: NumPy has no %s; convert the tensor with yk_to_dtype(x, YK_F32) first", what,
                 yk_dtype_name(x->dtype));
        return 0;
    }
    char *text = (char *)header + PREFIX + 2;
    int n = snprintf(text, 400, "{'descr': '%c%c%u', 'fortran_order': False, 'shape': (", type->size == 1 ? '|' : '<',
                     type->kind, type->size);
    for (int d = 0; d < x->ndim; d++)
        n += snprintf(text + n, 400 - (size_t)n, "%s%" PRId64, d ? ", " : "", x->shape[d]);
    n += snprintf(text + n, 400 - (size_t)n, "%s), }", x->ndim == 1 ? "," : "");
    size_t whole = (PREFIX + 2 + (size_t)n + 1 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    memset(text + n, ' ', whole - PREFIX - 2 - (size_t)n);
    header[whole - 1] = '\n';
    memcpy(header, magic, sizeof(magic) - 1);
    header[6] = 1;
    header[7] = 0;
    header[8] = (unsigned char)(whole - PREFIX - 2);
    header[9] = (unsigned char)((whole - PREFIX - 2) >> 8);
    return whole;
}

/* The tensor's elements in C order on the host, owned by the scope. */
static yk_tensor *on_host(yk_tensor *x)
{
    return yk_contiguous(yk_to(yk_detach(x), (yk_device){YK_CPU, 0}));
}

yk_status yk_npy_save(const char *path, yk_tensor *x)
{
    YK__LIVE(x);
    YK__OWN_RECORD;
    if (!yk__is_there("npy_save", "path", path) || !yk__is_there("npy_save", "tensor", x))
        return YK_ERR_ARGUMENT;
    yk_scope scope = yk_scope_begin();
    unsigned char header[512];
    size_t length = 0;
    yk_tensor *host = on_host(x);
    yk__file_writer *file = host && (length = header_make("npy_save", host, header)) ? yk__file_create(path) : NULL;
    yk_status status = file ? yk__file_write(file, header, length) : yk__error_code();
    if (!status)
        status = yk__file_write(file, host->data, (size_t)host->numel * yk_dtype_size(host->dtype));
    if (file && status)
        yk__file_abort(file);
    else if (file)
        status = yk__file_commit(file);
    yk_scope_end(scope);
    return status;
}

/* Writes a tensor as member NAME.npy. */
static yk_status member_write(yk__zip_writer *zip, const char *name, yk_tensor *x)
{
    yk_scope scope = yk_scope_begin();
    unsigned char header[512];
    yk_tensor *host = on_host(x);
    size_t length = host ? header_make("npz_save", host, header) : 0, bytes = 0;
    if (length)
        bytes = (size_t)host->numel * yk_dtype_size(host->dtype);
    size_t most = strlen(name) + 5;
    char *member = length ? yk__calloc(1, most) : NULL;
    unsigned char *array = member ? yk__calloc(1, length + bytes) : NULL;
    yk_status status = array ? YK_OK : yk__error_code();
    if (!status) {
        snprintf(member, most, "%s.npy", name);
        memcpy(array, header, length);
        if (bytes)
            memcpy(array + length, host->data, bytes);
        status = yk__zip_add(zip, member, array, length + bytes);
    }
    free(array);
    free(member);
    yk_scope_end(scope);
    return status;
}

yk_status yk_npz_save(const char *path, const yk_state_dict *dict)
{
    YK__LIVE(dict);
    YK__OWN_RECORD;
    if (!yk__is_there("npz_save", "path", path) || !yk__is_there("npz_save", "dict", dict))
        return YK_ERR_ARGUMENT;
    yk__zip_writer zip;
    yk_status status = yk__zip_create(&zip, path);
    if (status)
        return status;
    for (int64_t i = 0; i < yk__state_dict_count(dict) && !status; i++)
        status = member_write(&zip, yk__state_dict_name(dict, i), yk__state_dict_at(dict, i));
    if (status)
        yk__zip_abort(&zip);
    else
        status = yk__zip_commit(&zip);
    return status;
}
