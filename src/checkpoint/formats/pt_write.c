/*
 * pt_write.c - writes .pt files that torch.load reads. Layer: checkpoint.
 *
 * The pickle is protocol 2 in the words that PyTorch's restricted reader knows, and no others. A first walk over the
 * value finds the storages and which part of each the tensors reach; the pickle is made in a second; then the parts
 * are written as they are in memory, in the order of their first tensors.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/events.h"
#include "base/name_table.h"
#include "checkpoint/formats/zip.h"
#include "host/progress.h"
#include "tensor/tensor.h"
#include "value/value.h"

/* The part of a storage that is written. */
typedef struct part {
    yk_tensor *any;      /* one of the tensors on it: borrowed */
    uint64_t begin, end; /* bytes, from the storage's first */
} part;

typedef enum word {
    ORDERED_DICT,
    REBUILD,
    ENCODE,
    SET,
    FIRST_STORAGE,
    COUNTER = FIRST_STORAGE + YK__DTYPES,
    SIZE,
    DEVICE,
    BYTEARRAY,
    WORDS
} word;

static const char *const words[WORDS] = {
    [ORDERED_DICT] = "collections\nOrderedDict\n",
    [REBUILD] = "torch._utils\n_rebuild_tensor_v2\n",
    [ENCODE] = "_codecs\nencode\n",
    [SET] = "__builtin__\nset\n",
    [FIRST_STORAGE + YK_F32] = "torch\nFloatStorage\n",
    [FIRST_STORAGE + YK_F64] = "torch\nDoubleStorage\n",
    [FIRST_STORAGE + YK_F16] = "torch\nHalfStorage\n",
    [FIRST_STORAGE + YK_BF16] = "torch\nBFloat16Storage\n",
    [FIRST_STORAGE + YK_I64] = "torch\nLongStorage\n",
    [FIRST_STORAGE + YK_I32] = "torch\nIntStorage\n",
    [FIRST_STORAGE + YK_U8] = "torch\nByteStorage\n",
    [FIRST_STORAGE + YK_BOOL] = "torch\nBoolStorage\n",
    [COUNTER] = "collections\nCounter\n",
    [SIZE] = "torch\nSize\n",
    [DEVICE] = "torch\ndevice\n",
    [BYTEARRAY] = "__builtin__\nbytearray\n",
};

typedef struct output {
    const char *path;
    unsigned char *bytes;
    size_t size, capacity;
    yk_status failed;
    bool known[WORDS]; /* the word is in the memo, under its number */
    part *parts;
    size_t part_count, part_room;
    yk__name_table storages; /* of storages among the parts */
} output;

/* ---- the storages ------------------------------------------------------------------------------------------------ */

static bool same_part(const void *owner, uint32_t index, const void *key)
{
    return ((const output *)owner)->parts[index].any->storage == key;
}

static uint32_t storage_hash(const yk__storage *storage)
{
    return yk__name_hash(&storage, sizeof(storage));
}

static uint32_t part_of(const output *o, const yk_tensor *x)
{
    return yk__name_find(&o->storages, storage_hash(x->storage), same_part, o, x->storage);
}

/* The bytes of its storage that the tensor reaches: none of an empty one, which may begin beyond the storage, as the
 * last rows of a tensor of shape (5, 0) do. */
static yk_status reach(const output *o, const char *name, const yk_tensor *x, uint64_t *begin, uint64_t *end)
{
    uint64_t size = yk_dtype_size((yk_dtype)x->dtype), last = 0;
    *begin = x->numel ? (uint64_t)((const char *)x->data - (const char *)x->storage->data) : 0;
    for (int d = 0; d < x->ndim; d++) {
        if (x->stride[d] < 0)
            return yk__fail(YK_ERR_UNSUPPORTED, "%s: '%.200s' has the negative stride %" PRId64, o->path, name,
                            x->stride[d]);
        if (x->shape[d])
            last += (uint64_t)(x->shape[d] - 1) * (uint64_t)x->stride[d];
    }
    *end = *begin + (x->numel ? (last + 1) * size : 0);
    return YK_OK;
}

static yk_status note_tensor(const char *name, yk_value *leaf, void *user)
{
    output *o = user;
    if (leaf->kind == YK_VALUE_LEFT_OUT)
        return yk__fail(YK_ERR_UNSUPPORTED,
                        "%s: '%.200s' was left out when it was read (%s): there is nothing to write", o->path, name,
                        leaf->as.bytes.data);
    if (leaf->kind == YK_VALUE_REFERENCE)
        return yk__fail(YK_ERR_UNSUPPORTED,
                        "%s: '%.200s' is a reference to an object of another process, which no file holds", o->path,
                        name);
    if (leaf->kind != YK_VALUE_TENSOR)
        return YK_OK;
    yk_tensor *x = leaf->as.tensor;
    uint64_t begin = 0, end = 0;
    yk_status status = reach(o, name, x, &begin, &end);
    if (status)
        return status;
    uint32_t at = part_of(o, x);
    if (at != UINT32_MAX) {
        part *known = &o->parts[at];
        if (known->any->dtype != x->dtype)
            return yk__fail(YK_ERR_DTYPE, "%s: '%.200s' and another tensor see the same memory as %s and as %s",
                            o->path, name, yk_dtype_name((yk_dtype)x->dtype),
                            yk_dtype_name((yk_dtype)known->any->dtype));
        bool first = known->begin == known->end; /* the tensors before it are empty */
        if (x->numel) {
            known->begin = first || begin < known->begin ? begin : known->begin;
            known->end = end > known->end ? end : known->end;
        }
        return YK_OK;
    }
    if (o->part_count == o->part_room) {
        size_t room = o->part_room ? 2 * o->part_room : 64;
        part *parts = yk__realloc(o->parts, room * sizeof(*parts));
        if (!parts)
            return YK_ERR_MEMORY;
        o->parts = parts;
        o->part_room = room;
    }
    status = yk__name_add(&o->storages, storage_hash(x->storage), (uint32_t)o->part_count);
    if (!status)
        o->parts[o->part_count++] = (part){x, begin, end};
    return status;
}

/* ---- the pickle -------------------------------------------------------------------------------------------------- */

static void emit(output *o, const void *data, size_t size)
{
    if (o->failed)
        return;
    if (size > o->capacity - o->size) {
        size_t capacity = 2 * o->capacity + size + 4096;
        unsigned char *bytes = yk__realloc(o->bytes, capacity);
        if (!bytes) {
            o->failed = YK_ERR_MEMORY;
            return;
        }
        o->bytes = bytes;
        o->capacity = capacity;
    }
    if (size)
        memcpy(o->bytes + o->size, data, size);
    o->size += size;
}

static void emit_op(output *o, char op)
{
    emit(o, &op, 1);
}

static void emit_number(output *o, char op, int width, uint64_t value)
{
    unsigned char bytes[9] = {(unsigned char)op};
    for (int i = 0; i < width; i++)
        bytes[i + 1] = (unsigned char)(value >> 8 * i);
    emit(o, bytes, 1 + (size_t)width);
}

static void emit_int(output *o, int64_t value)
{
    if (value >= 0 && value < 1 << 8)
        emit_number(o, 'K', 1, (uint64_t)value);
    else if (value >= 0 && value < 1 << 16)
        emit_number(o, 'M', 2, (uint64_t)value);
    else if (value >= INT32_MIN && value <= INT32_MAX)
        emit_number(o, 'J', 4, (uint64_t)value);
    else {
        emit(o, "\x8A\x08", 2);
        emit(o, &value, 8);
    }
}

static void emit_text(output *o, const char *text, size_t size)
{
    if (size > INT32_MAX && !o->failed)
        o->failed = yk__fail(YK_ERR_UNSUPPORTED, "%s: a text of %zu bytes", o->path, size);
    emit_number(o, 'X', 4, size);
    emit(o, text, size);
}

static void emit_real(output *o, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    emit_number(o, 'G', 8, __builtin_bswap64(bits));
}

/* A name is written once and then taken from the memo. */
static void emit_word(output *o, word w)
{
    if (o->known[w]) {
        emit_number(o, 'h', 1, (uint64_t)w);
        return;
    }
    emit_op(o, 'c');
    emit(o, words[w], strlen(words[w]));
    emit_number(o, 'q', 1, (uint64_t)w);
    o->known[w] = true;
}

static void emit_ordered(output *o)
{
    emit_word(o, ORDERED_DICT);
    emit(o, ")R", 2);
}

/* Bytes: _codecs.encode(the text that they are in latin-1, "latin1"). */
static void emit_bytes(output *o, const unsigned char *data, size_t size)
{
    char *text = yk__calloc(2 * size + 1, 1);
    size_t length = 0;
    if (!text) {
        o->failed = o->failed ? o->failed : YK_ERR_MEMORY;
        return;
    }
    for (size_t i = 0; i < size; i++) {
        if (data[i] >= 0x80)
            text[length++] = (char)(0xC0 | data[i] >> 6);
        text[length++] = (char)(data[i] >= 0x80 ? 0x80 | (data[i] & 0x3F) : data[i]);
    }
    emit_word(o, ENCODE);
    emit_text(o, text, length);
    emit_text(o, "latin1", 6);
    emit(o, "\x86R", 2);
    free(text);
}

static void emit_tuple(output *o, const int64_t *numbers, int count)
{
    emit_op(o, '(');
    for (int i = 0; i < count; i++)
        emit_int(o, numbers[i]);
    emit_op(o, 't');
}

static void emit_tensor(output *o, const yk_tensor *x)
{
    uint32_t at = part_of(o, x);
    const part *storage = &o->parts[at];
    uint64_t size = yk_dtype_size((yk_dtype)x->dtype);
    uint64_t begin = (uint64_t)((const char *)x->data - (const char *)x->storage->data);
    uint64_t offset = x->numel ? (begin - storage->begin) / size : 0;
    char key[16];
    snprintf(key, sizeof(key), "%u", at);
    emit_word(o, REBUILD);
    emit(o, "((", 2);
    emit_text(o, "storage", 7);
    emit_word(o, (word)(FIRST_STORAGE + x->dtype));
    emit_text(o, key, strlen(key));
    emit_text(o, "cpu", 3);
    emit_int(o, (int64_t)((storage->end - storage->begin) / size));
    emit(o, "tQ", 2);
    emit_int(o, (int64_t)offset);
    emit_tuple(o, x->shape, x->ndim);
    emit_tuple(o, x->stride, x->ndim);
    emit_op(o, (char)0x89);
    emit_ordered(o);
    emit(o, "tR", 2);
}

static void emit_value(output *o, const yk_value *value);

static void emit_items(output *o, const yk_value *value, const char *begin, char end)
{
    emit(o, begin, strlen(begin));
    for (int64_t i = 0; i < value->as.list.count && !o->failed; i++)
        emit_value(o, value->as.list.items[i]);
    emit_op(o, end);
}

static void emit_string(output *o, const yk_value *value)
{
    static const char module[] = "torch.";
    if (value->python_type != YK__PYTHON_DTYPE) {
        emit_text(o, value->as.bytes.data, value->as.bytes.size);
        return;
    }
    emit(o, "ctorch\n", 7);
    emit(o, value->as.bytes.data + sizeof(module) - 1, value->as.bytes.size - (sizeof(module) - 1));
    emit_op(o, '\n');
}

static void emit_dict(output *o, const yk_value *value)
{
    bool ordered = value->python_type == YK__PYTHON_ORDERED;
    if (ordered)
        emit_ordered(o);
    else
        emit_op(o, '}');
    if (value->as.list.count) {
        emit_op(o, '(');
        for (int64_t i = 0; i < value->as.list.count && !o->failed; i++) {
            const yk__value_key *key = &value->as.list.keys[i];
            if (key->text)
                emit_text(o, key->text, strlen(key->text));
            else
                emit_int(o, key->number);
            emit_value(o, value->as.list.items[i]);
        }
        emit_op(o, 'u');
    }
    if (ordered && value->attributes) {
        emit_value(o, value->attributes);
        emit_op(o, 'b');
    }
}

/* The function that makes the object again, called with the value as its only argument; WORDS: none. */
static word maker_of(const yk_value *value)
{
    switch (value->python_type) {
    case YK__PYTHON_COUNTER: return COUNTER;
    case YK__PYTHON_SIZE: return SIZE;
    case YK__PYTHON_DEVICE: return DEVICE;
    case YK__PYTHON_BYTEARRAY: return BYTEARRAY;
    default: return value->kind == YK_VALUE_SET ? SET : WORDS;
    }
}

/* The depth was bounded by the walk that noted the tensors. */
static void emit_value(output *o, const yk_value *value)
{
    word maker = maker_of(value);
    if (maker != WORDS)
        emit_word(o, maker);
    switch (value->kind) {
    case YK_VALUE_NONE: emit_op(o, 'N'); break;
    case YK_VALUE_BOOL: emit_op(o, (char)(value->as.boolean ? 0x88 : 0x89)); break;
    case YK_VALUE_INT: emit_int(o, value->as.integer); break;
    case YK_VALUE_REAL: emit_real(o, value->as.real); break;
    case YK_VALUE_STRING: emit_string(o, value); break;
    case YK_VALUE_BYTES: emit_bytes(o, (const unsigned char *)value->as.bytes.data, value->as.bytes.size); break;
    case YK_VALUE_LIST: emit_items(o, value, "](", 'e'); break;
    case YK_VALUE_TUPLE: emit_items(o, value, "(", 't'); break;
    case YK_VALUE_SET: emit_items(o, value, "](", 'e'); break;
    case YK_VALUE_DICT: emit_dict(o, value); break;
    case YK_VALUE_TENSOR: emit_tensor(o, value->as.tensor); break;
    case YK_VALUE_LEFT_OUT: /* the walk refused it */
    case YK_VALUE_REFERENCE:
    case YK__VALUE_KINDS: break;
    }
    if (maker != WORDS)
        emit(o, "\x85R", 2);
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static yk_status write_part(const output *o, yk__zip_writer *zip, size_t index)
{
    const part *p = &o->parts[index];
    char name[48];
    snprintf(name, sizeof(name), "archive/data/%zu", index);
    const yk__backend *backend = yk__backend_for(p->any);
    if (!backend)
        return yk__error_code();
    if (backend->host_memory)
        return yk__zip_add(zip, name, (const char *)p->any->storage->data + p->begin, p->end - p->begin);
    int64_t count = (int64_t)(p->end - p->begin), all = (int64_t)p->any->storage->bytes, one = 1;
    yk_tensor *bytes = yk__tensor_over(yk__storage_retain(p->any->storage), 1, &all, YK_U8);
    yk_tensor *reached = yk__tensor_view(bytes, 1, &count, &one, (int64_t)p->begin);
    yk_tensor *host = reached ? yk__raw_to(reached, (yk_device){0}) : NULL;
    yk_status status = host ? yk__zip_add(zip, name, host->data, (uint64_t)count) : yk__error_code();
    yk_tensor_release(host);
    yk_tensor_release(reached);
    yk_tensor_release(bytes);
    return status;
}

static yk_status write_members(const output *o)
{
    yk__zip_writer zip;
    yk_status status = yk__zip_create(&zip, o->path);
    if (status)
        return status;
    status = yk__zip_add(&zip, "archive/data.pkl", o->bytes, o->size);
    if (!status)
        status = yk__zip_add(&zip, "archive/byteorder", "little", 6);
    for (size_t i = 0; i < o->part_count && !status; i++)
        status = write_part(o, &zip, i);
    if (!status)
        status = yk__zip_add(&zip, "archive/version", "3\n", 2);
    if (!status)
        return yk__zip_commit(&zip);
    yk__zip_abort(&zip);
    return status;
}

/* Notes the tensors of a value, and of the attributes of the dicts in it. */
static yk_status note_all(output *o, const yk_value *value, int depth)
{
    yk_status status = depth ? YK_OK : yk__value_walk(value, note_tensor, o);
    if (!status && value->attributes && value->kind != YK_VALUE_TENSOR)
        status = note_all(o, value->attributes, 0);
    for (int64_t i = 0; i < yk_value_count(value) && !status; i++) {
        const yk_value *item = value->as.list.items[i];
        if (yk_value_count(item) || (item->attributes && item->kind != YK_VALUE_TENSOR))
            status = note_all(o, value->as.list.items[i], 1);
    }
    return status;
}

yk_status yk_pt_save(const char *path, const yk_value *value)
{
    YK__EVENT(YK__EVENT_SAVE, "pt_save");
    YK__IN_PHASE(YK__PHASE_SAVING);
    YK__OWN_RECORD;
    YK__LIVE(value);
    if (!path || !value)
        return yk__error_code() ? yk__error_code()
                                : yk__fail(YK_ERR_ARGUMENT, "pt_save: the %s is NULL", path ? "value" : "path");
    output o = {.path = path};
    yk_status status = note_all(&o, value, 0);
    if (!status) {
        emit(&o, "\x80\x02", 2);
        emit_value(&o, value);
        emit_op(&o, '.');
        status = o.failed;
    }
    if (!status)
        status = write_members(&o);
    free(o.bytes);
    free(o.parts);
    yk__name_clear(&o.storages);
    return status;
}
