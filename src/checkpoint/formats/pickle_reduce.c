/*
 * pickle_reduce.c - what is made of the names that a pickle may use (pickle_names.c). Layer: checkpoint.
 *
 * Nothing is called: each name is a case here that reads its arguments as data. Whatever else is made of one ends the
 * reading with that name in the error.
 *
 * Invariant: a tensor that is recorded lies inside its storage.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/formats/pickle_names.h"
#include "tensor/tensor.h"
#include "value/value.h"

/* The tensors of a file may take so many bytes plus so many times the bytes of their storages: views share memory, but
 * whoever writes or compares them does so one by one. */
static const uint64_t VIEWS_FREE = 1 << 30, VIEWS_RATIO = 256;

/* ---- arguments --------------------------------------------------------------------------------------------------- */

static const yk__node *argument(const yk__pickle *p, uint32_t tuple, uint32_t i)
{
    return &p->nodes[p->nodes[tuple].as.list.items[i]];
}

static yk_status fail_arguments(const yk__pickle *p, const char *name)
{
    return yk__pickle_fail(p, YK_ERR_FORMAT, "%s has wrong arguments", name);
}

/* Puts `node` in the place of function and arguments. */
static yk_status answer(yk__pickle *p, uint32_t node)
{
    p->stack[--p->stack_count - 1] = node;
    return YK_OK;
}

/* The node that was pushed last takes the place of function and arguments below it. */
static yk_status answer_pushed(yk__pickle *p)
{
    uint32_t made = p->stack[--p->stack_count];
    return answer(p, made);
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static bool read_sizes(const yk__pickle *p, const yk__node *tuple, int64_t *sizes)
{
    if (tuple->kind != YK__NODE_TUPLE || tuple->as.list.count > YK_MAX_DIMS)
        return false;
    for (uint32_t i = 0; i < tuple->as.list.count; i++) {
        const yk__node *item = &p->nodes[tuple->as.list.items[i]];
        if (item->kind != YK__NODE_INT || item->as.integer < 0)
            return false;
        sizes[i] = item->as.integer;
    }
    return true;
}

static bool is_empty(const yk__tensor_record *t)
{
    for (int d = 0; d < t->ndim; d++) {
        if (t->shape[d] == 0)
            return true;
    }
    return false;
}

/* True if every element that offset, shape and stride reach is one of the storage's; for tensors that are not empty. */
static bool inside(const yk__tensor_record *t, uint64_t bytes)
{
    int64_t last = t->offset, most = (int64_t)(bytes / yk_dtype_size(t->dtype));
    for (int d = 0; d < t->ndim; d++) {
        int64_t step;
        if (__builtin_mul_overflow(t->shape[d] - 1, t->stride[d], &step) || __builtin_add_overflow(last, step, &last))
            return false;
    }
    return last < most;
}

static yk_status check_tensor(yk__pickle *p, yk__tensor_record *t)
{
    yk__storage_record *storage = &p->storages[t->storage];
    char text[200];
    yk__shape_text(t->ndim, t->shape, text, sizeof(text));
    if (yk__tensor_check("a tensor", t->ndim, t->shape, YK_OPTIONS(yk_tensor_options, .dtype = t->dtype))) {
        yk__error_prefix("%s: %s, byte %zu", p->path, p->part, p->op);
        return yk__error_code();
    }
    if (is_empty(t))
        t->offset = 0; /* PyTorch's x[3:] of x of shape (5, 0) has offset 3 in a storage of no bytes */
    else if (!inside(t, storage->bytes))
        return yk__pickle_fail(p, YK_ERR_FORMAT,
                               "a %s tensor of shape %s at element %" PRId64 " lies outside its storage of %" PRIu64
                               " bytes",
                               yk_dtype_name(t->dtype), text, t->offset, storage->bytes);
    uint64_t bytes = yk_dtype_size(t->dtype);
    for (int d = 0; d < t->ndim; d++)
        bytes *= (uint64_t)t->shape[d];
    p->tensor_bytes = bytes > UINT64_MAX - p->tensor_bytes ? UINT64_MAX : p->tensor_bytes + bytes;
    if (p->tensor_bytes > VIEWS_FREE + VIEWS_RATIO * p->storage_bytes)
        return yk__pickle_fail(p, YK_ERR_FORMAT,
                               "a tensor of shape %s: the tensors take %" PRIu64 " bytes, their storages %" PRIu64,
                               text, p->tensor_bytes, p->storage_bytes);
    if (t->dtype == YK_BOOL)
        storage->booleans = true;
    return YK_OK;
}

static bool is_empty_container(const yk__node *node)
{
    return node->kind == YK__NODE_NONE || (node->kind == YK__NODE_DICT && node->as.list.count == 0);
}

static yk_status leave_out_tensor(yk__pickle *p, const char *what, uint32_t size)
{
    yk_status status = yk__pickle_leave_out_tensor(p, what, size);
    return status ? status : answer_pushed(p);
}

/* (storage, offset, size, stride[, requires_grad, hooks[, dtype][, metadata]]) */
static yk_status rebuild_tensor(yk__pickle *p, const yk__pickle_name *g, uint32_t args)
{
    uint32_t count = p->nodes[args].as.list.count;
    uint32_t least = g->role == YK__ROLE_TENSOR_V1 ? 4 : g->role == YK__ROLE_TENSOR_V2 ? 6 : 7;
    yk__tensor_record t = {0};
    if (count < least || count > least + (g->role != YK__ROLE_TENSOR_V1))
        return fail_arguments(p, g->name);
    const yk__node *storage = argument(p, args, 0), *offset = argument(p, args, 1);
    const yk__node *size = argument(p, args, 2), *stride = argument(p, args, 3);
    if (storage->kind != YK__NODE_STORAGE || offset->kind != YK__NODE_INT || offset->as.integer < 0)
        return fail_arguments(p, g->name);
    if (least >= 6 && (argument(p, args, 4)->kind != YK__NODE_BOOL || !is_empty_container(argument(p, args, 5))))
        return fail_arguments(p, g->name);
    t.storage = storage->as.index;
    t.dtype = p->storages[t.storage].dtype;
    t.offset = offset->as.integer;
    const char *foreign = p->storages[t.storage].foreign;
    if (g->role == YK__ROLE_TENSOR_V3) {
        const yk__node *dtype = argument(p, args, 6);
        if (dtype->kind != YK__NODE_GLOBAL || yk__pickle_names[dtype->as.index].role != YK__ROLE_DTYPE)
            return fail_arguments(p, g->name);
        t.dtype = yk__pickle_names[dtype->as.index].dtype;
        foreign = t.dtype == YK__DTYPES ? yk__pickle_names[dtype->as.index].name + strlen("torch.") : NULL;
    }
    bool many = size->kind == YK__NODE_TUPLE && size->as.list.count > YK_MAX_DIMS;
    if (foreign || many)
        return leave_out_tensor(p, foreign ? foreign : yk_dtype_name(t.dtype), p->nodes[args].as.list.items[2]);
    if (!read_sizes(p, size, t.shape) || !read_sizes(p, stride, t.stride) ||
        size->as.list.count != stride->as.list.count)
        return fail_arguments(p, g->name);
    t.ndim = (int)size->as.list.count;
    if (count > least && !is_empty_container(argument(p, args, count - 1)))
        return leave_out_tensor(p, "conjugated or negated", p->nodes[args].as.list.items[2]);
    yk_status status = check_tensor(p, &t);
    if (!status)
        status = yk__pickle_room((void **)&p->tensors, sizeof(*p->tensors), p->tensor_count, &p->tensor_room);
    yk__node *node = status ? NULL : yk__pickle_push(p, YK__NODE_TENSOR);
    if (!node)
        return yk__error_code();
    node->as.index = (uint32_t)p->tensor_count;
    p->tensors[p->tensor_count++] = t;
    return answer_pushed(p);
}

/* ---- the other names --------------------------------------------------------------------------------------------- */

/* () is an empty dict; Python 2 gave a list of pairs. */
static yk_status make_ordered(yk__pickle *p, const yk__pickle_name *g, uint32_t args)
{
    uint32_t count = p->nodes[args].as.list.count;
    uint32_t pairs = count == 1 ? p->nodes[args].as.list.items[0] : 0;
    if (count > 1 || (count == 1 && p->nodes[pairs].kind != YK__NODE_LIST))
        return fail_arguments(p, g->name);
    if (!yk__pickle_push(p, YK__NODE_DICT))
        return yk__error_code();
    uint32_t made = (uint32_t)p->node_count - 1;
    p->nodes[made].python_type = YK__PYTHON_ORDERED;
    for (uint32_t i = 0; count && i < p->nodes[pairs].as.list.count; i++) {
        const yk__node *pair = &p->nodes[p->nodes[pairs].as.list.items[i]];
        if ((pair->kind != YK__NODE_LIST && pair->kind != YK__NODE_TUPLE) || pair->as.list.count != 2)
            return fail_arguments(p, g->name);
        yk_status status = yk__pickle_append(p, made, pair->as.list.items[0]);
        if (!status)
            status = yk__pickle_append(p, made, pair->as.list.items[1]);
        if (status)
            return status;
    }
    return answer_pushed(p);
}

static yk_status make_set(yk__pickle *p, const yk__pickle_name *g, uint32_t args)
{
    const yk__node *node = &p->nodes[args];
    uint32_t from = node->as.list.count == 1 ? node->as.list.items[0] : 0;
    if (node->as.list.count > 1 || (node->as.list.count == 1 && p->nodes[from].kind != YK__NODE_LIST))
        return fail_arguments(p, g->name);
    bool filled = node->as.list.count == 1;
    if (!yk__pickle_push(p, YK__NODE_SET))
        return yk__error_code();
    uint32_t made = (uint32_t)p->node_count - 1;
    for (uint32_t i = 0; filled && i < p->nodes[from].as.list.count; i++) {
        yk_status status = yk__pickle_append(p, made, p->nodes[from].as.list.items[i]);
        if (status)
            return status;
    }
    return answer_pushed(p);
}

/* Bytes are written in protocol 2 as the text that latin-1 would decode them to. */
static yk_status make_bytes(yk__pickle *p, const yk__pickle_name *g, uint32_t args)
{
    const yk__node *text = argument(p, args, 0);
    const yk__node *coding = argument(p, args, 1);
    if (text->kind != YK__NODE_STRING ||
        !(yk__pickle_is_text(coding, "latin1") || yk__pickle_is_text(coding, "latin-1")))
        return fail_arguments(p, g->name);
    const unsigned char *s = (const unsigned char *)text->as.text.data, *end = s + text->as.text.size;
    unsigned char *bytes = yk__calloc((size_t)text->as.text.size + 1, 1);
    uint32_t size = 0;
    if (!bytes)
        return YK_ERR_MEMORY;
    while (s < end && *s < 0xC4) { /* the text is UTF-8: what begins with C2 or C3 has a second byte */
        bytes[size++] = *s < 0x80 ? *s : (unsigned char)(*s << 6 | (s[1] & 0x3F));
        s += *s < 0x80 ? 1 : 2;
    }
    bool whole = s == end;
    yk__node *node = whole ? yk__pickle_push(p, YK__NODE_BYTES) : NULL;
    if (!node) {
        free(bytes);
        return whole ? yk__error_code() : fail_arguments(p, g->name);
    }
    node->owned = true;
    node->as.text.data = (char *)bytes;
    node->as.text.size = size;
    return answer_pushed(p);
}

/* ("cuda", 0), ("cuda:0",) or ("cpu",): the text "cuda:0". */
static yk_status make_device(yk__pickle *p, const yk__pickle_name *g, uint32_t args)
{
    uint32_t count = p->nodes[args].as.list.count;
    if (count < 1 || count > 2 || argument(p, args, 0)->kind != YK__NODE_STRING)
        return fail_arguments(p, g->name);
    char type[80];
    const yk__node *name = argument(p, args, 0), *index = count == 2 ? argument(p, args, 1) : NULL;
    if (index && index->kind != YK__NODE_INT)
        return fail_arguments(p, g->name);
    yk__pickle_describe(name->as.text.data, name->as.text.size, type);
    char *text = index ? yk__format("%s:%" PRId64, type, index->as.integer) : yk__strdup(type);
    yk__node *node = text ? yk__pickle_push(p, YK__NODE_STRING) : NULL;
    if (!node) {
        free(text);
        return yk__error_code();
    }
    node->owned = true;
    node->python_type = YK__PYTHON_DEVICE;
    node->as.text.data = text;
    node->as.text.size = (uint32_t)strlen(text);
    return answer_pushed(p);
}

/* (tensor, requires_grad, hooks[, attributes]) */
static yk_status make_parameter(yk__pickle *p, const yk__pickle_name *g, uint32_t args)
{
    uint32_t count = g->role == YK__ROLE_PARAMETER ? 3 : 4;
    if (p->nodes[args].as.list.count != count ||
        (argument(p, args, 0)->kind != YK__NODE_TENSOR && argument(p, args, 0)->kind != YK__NODE_LEFT_OUT))
        return fail_arguments(p, g->name);
    yk_status status = answer(p, p->nodes[args].as.list.items[0]);
    if (count == 4)
        yk__pickle_note_attributes(p, p->nodes[args].as.list.items[3]);
    return status;
}

static yk_status call(yk__pickle *p, const yk__pickle_name *g, uint32_t args);

/* (function that makes a tensor, type, its arguments, attributes): the type is that of tensors, or of parameters or
 * buffers, which are tensors here. */
static yk_status make_of_type(yk__pickle *p, const yk__pickle_name *g, uint32_t args)
{
    if (p->nodes[args].as.list.count != 4)
        return fail_arguments(p, g->name);
    const yk__node *function = argument(p, args, 0), *type = argument(p, args, 1), *inner = argument(p, args, 2);
    uint32_t state = p->nodes[args].as.list.items[3];
    if (type->kind == YK__NODE_CLASS)
        return yk__pickle_refuse(p, p->nodes[args].as.list.items[1]);
    const yk__pickle_name *maker = function->kind == YK__NODE_GLOBAL ? &yk__pickle_names[function->as.index] : NULL;
    if (type->kind != YK__NODE_GLOBAL || yk__pickle_names[type->as.index].role != YK__ROLE_TENSOR_TYPE ||
        inner->kind != YK__NODE_TUPLE || !maker ||
        !(maker->role == YK__ROLE_TENSOR_V2 || maker->role == YK__ROLE_TENSOR_V3 || maker->role >= YK__ROLE_SPARSE))
        return fail_arguments(p, g->name);
    yk_status status = call(p, maker, p->nodes[args].as.list.items[2]);
    if (!status)
        yk__pickle_note_attributes(p, state);
    return status;
}

/* (bytes,), (text, "latin-1") or (). */
static yk_status make_bytearray(yk__pickle *p, const yk__pickle_name *g, uint32_t args)
{
    uint32_t count = p->nodes[args].as.list.count;
    if (count == 2 && yk__pickle_is_text(argument(p, args, 1), "latin-1")) {
        yk_status status = make_bytes(p, g, args);
        if (!status)
            p->nodes[p->stack[p->stack_count - 1]].python_type = YK__PYTHON_BYTEARRAY;
        return status;
    }
    if (count > 1 || (count && argument(p, args, 0)->kind != YK__NODE_BYTES))
        return fail_arguments(p, g->name);
    if (!yk__pickle_push(p, YK__NODE_BYTES))
        return yk__error_code();
    yk__node *made = &p->nodes[p->node_count - 1];
    made->as.text.data = "";
    if (count)
        made->as = argument(p, args, 0)->as; /* whose bytes last as long */
    made->python_type = YK__PYTHON_BYTEARRAY;
    return answer_pushed(p);
}

/* Leaves out an object that yk_value has no kind for, with a text that describes it. */
static yk_status leave_out(yk__pickle *p, const yk__pickle_name *g, uint32_t args)
{
    char text[80];
    uint32_t count = p->nodes[args].as.list.count;
    yk_status status;
    if (count < 1)
        return fail_arguments(p, g->name);
    const yk__node *first = argument(p, args, 0);
    if (g->role == YK__ROLE_LAYOUT && first->kind == YK__NODE_STRING)
        status =
            yk__pickle_leave_out(p, "layout %s", yk__pickle_describe(first->as.text.data, first->as.text.size, text));
    else if (g->role == YK__ROLE_COMPLEX && count == 2)
        status = yk__pickle_leave_out(p, "complex number");
    else if (g->role == YK__ROLE_META && count >= 2)
        return leave_out_tensor(p, "meta", p->nodes[args].as.list.items[1]);
    else if (g->role == YK__ROLE_QUANTIZED && count >= 3 && first->kind == YK__NODE_STORAGE)
        return leave_out_tensor(p, "quantized", p->nodes[args].as.list.items[2]);
    else if (g->role == YK__ROLE_SPARSE && count == 2)
        status = yk__pickle_leave_out(p, "sparse tensor");
    else
        return fail_arguments(p, g->name);
    return status ? status : answer_pushed(p);
}

/* One argument, a tuple or dict, of which a value of another Python type is made: Size's or Counter's. The argument
 * itself may stand elsewhere too. */
static yk_status make_typed(yk__pickle *p, const yk__pickle_name *g, uint32_t args, yk__node_kind kind,
                            yk__python_type type)
{
    if (p->nodes[args].as.list.count != 1 || argument(p, args, 0)->kind != kind)
        return fail_arguments(p, g->name);
    uint32_t from = p->nodes[args].as.list.items[0];
    if (!yk__pickle_push(p, kind))
        return yk__error_code();
    uint32_t made = (uint32_t)p->node_count - 1;
    p->nodes[made].python_type = (uint8_t)type;
    for (uint32_t i = 0; i < p->nodes[from].as.list.count; i++) {
        uint32_t item = p->nodes[from].as.list.items[i];
        if (type == YK__PYTHON_SIZE && p->nodes[item].kind != YK__NODE_INT)
            return fail_arguments(p, g->name);
        yk_status status = yk__pickle_append(p, made, item);
        if (status)
            return status;
    }
    return answer_pushed(p);
}

/* Function and arguments are on the stack's top; `args` is a tuple, perhaps another one. */
static yk_status call(yk__pickle *p, const yk__pickle_name *g, uint32_t args)
{
    uint32_t count = p->nodes[args].as.list.count;
    switch (g->role) {
    case YK__ROLE_ORDERED_DICT: return make_ordered(p, g, args);
    case YK__ROLE_COUNTER: return make_typed(p, g, args, YK__NODE_DICT, YK__PYTHON_COUNTER);
    case YK__ROLE_SET: return make_set(p, g, args);
    case YK__ROLE_ENCODE: return count == 2 ? make_bytes(p, g, args) : fail_arguments(p, g->name);
    case YK__ROLE_SIZE: return make_typed(p, g, args, YK__NODE_TUPLE, YK__PYTHON_SIZE);
    case YK__ROLE_DEVICE: return make_device(p, g, args);
    case YK__ROLE_PARAMETER:
    case YK__ROLE_PARAMETER_WITH_STATE: return make_parameter(p, g, args);
    case YK__ROLE_TENSOR_OF_TYPE: return make_of_type(p, g, args);
    case YK__ROLE_BYTEARRAY: return make_bytearray(p, g, args);
    case YK__ROLE_COMPLEX:
    case YK__ROLE_LAYOUT:
    case YK__ROLE_SPARSE:
    case YK__ROLE_META:
    case YK__ROLE_QUANTIZED: return leave_out(p, g, args);
    case YK__ROLE_TENSOR_V1:
    case YK__ROLE_TENSOR_V2:
    case YK__ROLE_TENSOR_V3: return rebuild_tensor(p, g, args);
    case YK__ROLE_BYTES:
        if (count || !yk__pickle_push(p, YK__NODE_BYTES))
            return count ? fail_arguments(p, g->name) : yk__error_code();
        p->nodes[p->node_count - 1].as.text.data = "";
        return answer_pushed(p);
    case YK__ROLE_TENSOR_TYPE:
    case YK__ROLE_DTYPE:
    case YK__ROLE_STORAGE: break;
    }
    return yk__pickle_fail(p, YK_ERR_UNSUPPORTED, "calls %s, which is refused", g->name);
}

yk_status yk__pickle_reduce(yk__pickle *p, uint32_t function, uint32_t args)
{
    if (p->nodes[function].kind == YK__NODE_CLASS)
        return yk__pickle_refuse(p, function);
    if (p->nodes[function].kind != YK__NODE_GLOBAL)
        return yk__pickle_fail(p, YK_ERR_FORMAT, "calls a %s", yk__node_kind_name(&p->nodes[function]));
    const yk__pickle_name *g = &yk__pickle_names[p->nodes[function].as.index];
    return p->nodes[args].kind == YK__NODE_TUPLE ? call(p, g, args) : fail_arguments(p, g->name);
}

yk_status yk__pickle_build(yk__pickle *p, uint32_t object, uint32_t state)
{
    yk__node *node = &p->nodes[object];
    if (node->kind == YK__NODE_OBJECT)
        return yk__pickle_build_object(p, object, state);
    if (node->python_type != YK__PYTHON_ORDERED)
        return yk__pickle_fail(p, YK_ERR_UNSUPPORTED, "sets the state of a %s, which is refused",
                               yk__node_kind_name(node));
    if (p->nodes[state].kind != YK__NODE_DICT)
        return yk__pickle_fail(p, YK_ERR_FORMAT, "the attributes of an OrderedDict are a %s",
                               yk__node_kind_name(&p->nodes[state]));
    node->attributes = state + 1;
    p->stack_count--;
    return YK_OK;
}

/* ---- storages ---------------------------------------------------------------------------------------------------- */

static bool same_storage(const void *owner, uint32_t index, const void *key)
{
    const yk__storage_record *record = &((const yk__pickle *)owner)->storages[index];
    const yk__node *want = key;
    return record->key_size == want->as.text.size && memcmp(record->key, want->as.text.data, record->key_size) == 0;
}

/* Finds the record of a key, or makes one. `location` is where it was saved from; the first description of a storage
 * tells. */
static yk_status storage_index(yk__pickle *p, const yk__node *key, const yk__node *location,
                               const yk__pickle_name *type, uint64_t count, uint32_t *index)
{
    const char *foreign = NULL;
    yk_dtype dtype = type->dtype == YK__DTYPES ? YK_U8 : type->dtype;
    uint32_t element = (uint32_t)yk_dtype_size(dtype);
    if (type->dtype == YK__DTYPES)
        foreign = yk__pickle_foreign_storage(type->name, &element);
    uint64_t bytes = count * element;
    char text[80];
    uint32_t hash = yk__name_hash(key->as.text.data, key->as.text.size);
    *index = yk__name_find(&p->keys, hash, same_storage, p, key);
    if (*index != UINT32_MAX) {
        const yk__storage_record *record = &p->storages[*index];
        if (record->bytes != bytes || record->dtype != dtype || record->foreign != foreign)
            return yk__pickle_fail(p, YK_ERR_FORMAT, "storage '%s' is described in two ways",
                                   yk__pickle_describe(record->key, record->key_size, text));
        return YK_OK;
    }
    yk_status status = yk__pickle_room((void **)&p->storages, sizeof(*p->storages), p->storage_count, &p->storage_room);
    *index = (uint32_t)p->storage_count;
    if (!status)
        status = yk__name_add(&p->keys, hash, *index);
    p->storage_bytes += bytes < UINT64_MAX / 1024 - p->storage_bytes ? bytes : 0;
    if (!status)
        p->storages[p->storage_count++] = (yk__storage_record){.key = key->as.text.data,
                                                               .key_size = key->as.text.size,
                                                               .location = location->as.text.data,
                                                               .location_size = location->as.text.size,
                                                               .dtype = dtype,
                                                               .foreign = foreign,
                                                               .element = element,
                                                               .booleans = dtype == YK_BOOL,
                                                               .bytes = bytes};
    return status;
}

/* ("storage", type, key, location, count[, view]) */
yk_status yk__pickle_persistent(yk__pickle *p, uint32_t id)
{
    const yk__node *tuple = &p->nodes[id];
    char text[80];
    if (tuple->kind != YK__NODE_TUPLE || tuple->as.list.count < 1 || argument(p, id, 0)->kind != YK__NODE_STRING)
        return yk__pickle_fail(p, YK_ERR_FORMAT, "the persistent id is a %s, not a tuple that describes a storage",
                               yk__node_kind_name(tuple));
    const yk__node *kind = argument(p, id, 0);
    /* A class with its file and source, in the form before the zip: it stands for the class. */
    if (yk__pickle_is_text(kind, "module") && tuple->as.list.count == 4 && argument(p, id, 1)->kind == YK__NODE_CLASS) {
        if (!yk__pickle_push(p, YK__NODE_NONE)) /* which makes room on the stack */
            return yk__error_code();
        p->stack[p->stack_count - 1] = p->nodes[id].as.list.items[1];
        return YK_OK;
    }
    if (!yk__pickle_is_text(kind, "storage"))
        return yk__pickle_fail(p, YK_ERR_UNSUPPORTED, "a persistent '%s' is refused: only storages are read",
                               yk__pickle_describe(kind->as.text.data, kind->as.text.size, text));
    if (tuple->as.list.count < 5 || tuple->as.list.count > 6)
        return fail_arguments(p, "a storage");
    const yk__node *type = argument(p, id, 1), *key = argument(p, id, 2), *location = argument(p, id, 3),
                   *count = argument(p, id, 4);
    if (type->kind != YK__NODE_GLOBAL || yk__pickle_names[type->as.index].role != YK__ROLE_STORAGE ||
        key->kind != YK__NODE_STRING || location->kind != YK__NODE_STRING || count->kind != YK__NODE_INT ||
        count->as.integer < 0 || count->as.integer >= INT64_MAX / 16)
        return fail_arguments(p, "a storage");
    if (tuple->as.list.count == 6 && argument(p, id, 5)->kind != YK__NODE_NONE)
        return yk__pickle_fail(p, YK_ERR_UNSUPPORTED, "a storage that is a view of another is refused");
    uint32_t index;
    yk_status status =
        storage_index(p, key, location, &yk__pickle_names[type->as.index], (uint64_t)count->as.integer, &index);
    yk__node *node = status ? NULL : yk__pickle_push(p, YK__NODE_STORAGE);
    if (!node)
        return yk__error_code();
    node->as.index = index;
    return YK_OK;
}
