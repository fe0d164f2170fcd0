/*
 * pickle_value.c - makes values of a pickle's nodes. Layer: checkpoint.
 *
 * The tree was found to be free of cycles and shallow (pickle_read.c), so this may recurse; a node that stands in
 * several positions becomes one value. Keys are strings or integers; what is under another key is left out.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/formats/pickle.h"
#include "tensor/tensor.h"
#include "value/value.h"

static yk_tensor *whole_storage(const yk__storage_record *record, yk_dtype dtype)
{
    int64_t count = (int64_t)(record->bytes / yk_dtype_size(dtype));
    return yk__tensor_over(yk__storage_retain(record->storage), 1, &count, dtype);
}

static yk_value *tensor_value(yk_tensor *x)
{
    yk_value *value = x ? yk__value_new(YK_VALUE_TENSOR) : NULL;
    if (value)
        value->as.tensor = x;
    else
        yk_tensor_release(x);
    return value;
}

static yk_value *make_tensor(const yk__pickle *p, const yk__tensor_record *t)
{
    yk_tensor *all = whole_storage(&p->storages[t->storage], t->dtype);
    yk_tensor *x = yk__tensor_view(all, t->ndim, t->shape, t->stride, t->offset);
    yk_tensor_release(all);
    return tensor_value(x);
}

static yk_value *make_value(yk__pickle *p, yk_value **made, uint32_t index);

static yk_value *left_out(const char *what)
{
    return yk__value_text(YK_VALUE_LEFT_OUT, what, strlen(what));
}

/* Leaves out the value under a key of a type that dicts have not here, by a name that shows the key. */
static yk_status leave_pair_out(yk__pickle *p, yk_value *dict, uint32_t key)
{
    char shown[80], name[120], what[80];
    snprintf(name, sizeof(name), "%s", yk__pickle_key_name(p, key, shown));
    snprintf(what, sizeof(what), "what is under a key that is a %s",
             p->nodes[key].kind == YK__NODE_STRING ? "str with a zero byte" : yk__node_kind_name(&p->nodes[key]));
    if (yk_value_get(dict, name))
        snprintf(name, sizeof(name), "%s #%" PRId64, shown, yk_value_count(dict));
    return yk_value_get(dict, name) ? YK_OK : yk__value_put(dict, name, strlen(name), 0, left_out(what));
}

static yk_status add_pair(yk__pickle *p, yk_value **made, yk_value *dict, uint32_t key, uint32_t item)
{
    const yk__node *k = &p->nodes[key];
    bool text = k->kind == YK__NODE_STRING;
    if (text ? memchr(k->as.text.data, 0, k->as.text.size) != NULL : k->kind != YK__NODE_INT)
        return leave_pair_out(p, dict, key);
    return yk__value_put(dict, text ? k->as.text.data : NULL, text ? k->as.text.size : 0, text ? 0 : k->as.integer,
                         make_value(p, made, item));
}

static yk_value *make_container(yk__pickle *p, yk_value **made, const yk__node *node)
{
    static const yk_value_kind kinds[] = {[YK__NODE_LIST] = YK_VALUE_LIST,
                                          [YK__NODE_TUPLE] = YK_VALUE_TUPLE,
                                          [YK__NODE_SET] = YK_VALUE_SET,
                                          [YK__NODE_DICT] = YK_VALUE_DICT};
    yk_value *value = yk__value_new(kinds[node->kind]);
    yk_status status = value ? YK_OK : YK_ERR_MEMORY;
    const uint32_t *items = node->as.list.items;
    uint32_t step = node->kind == YK__NODE_DICT ? 2 : 1;
    for (uint32_t i = 0; i < node->as.list.count && !status; i += step) {
        if (step == 2)
            status = add_pair(p, made, value, items[i], items[i + 1]);
        else
            status = yk__value_push(value, make_value(p, made, items[i]));
    }
    if (!status && node->attributes) {
        value->attributes = make_value(p, made, node->attributes - 1);
        status = value->attributes ? YK_OK : yk__error_code();
    }
    if (!status) {
        value->python_type = node->python_type;
        return value;
    }
    yk_value_release(value);
    return NULL;
}

static yk_value *text_value(yk_value_kind kind, const char *text, size_t size, yk__python_type type)
{
    yk_value *value = yk__value_text(kind, text, size);
    if (value)
        value->python_type = type;
    return value;
}

static yk_value *make_global(const yk__pickle *p, const yk__node *node)
{
    bool is_dtype;
    const char *name = yk__pickle_global_name(node->as.index, &is_dtype);
    if (is_dtype)
        return text_value(YK_VALUE_STRING, name, strlen(name), YK__PYTHON_DTYPE);
    yk__pickle_fail(p, YK_ERR_UNSUPPORTED, "%s itself is kept in it, which is refused", name);
    return NULL;
}

/* The value, with the names of a tensor's Python attributes; what they hold is left out. */
static yk_value *note_attributes(const yk__pickle *p, yk_value *value, const yk__node *state)
{
    yk_status status = (value->attributes = yk__value_new(YK_VALUE_DICT)) ? YK_OK : yk__error_code();
    for (uint32_t i = 0; i < state->as.list.count && !status; i += 2) {
        const yk__node *key = &p->nodes[state->as.list.items[i]];
        char name[80];
        yk__pickle_describe(key->as.text.data, key->kind == YK__NODE_STRING ? key->as.text.size : 0, name);
        status = yk__value_put(value->attributes, name, strlen(name), 0, left_out("Python attribute of a tensor"));
    }
    if (!status)
        return value;
    yk_value_release(value);
    return NULL;
}

/* A node's value, made at its first use. */
static yk_value *make_new(yk__pickle *p, yk_value **made, const yk__node *node)
{
    yk_value *value;
    switch ((yk__node_kind)node->kind) {
    case YK__NODE_NONE: return yk__value_new(YK_VALUE_NONE);
    case YK__NODE_BOOL:
        value = yk__value_new(YK_VALUE_BOOL);
        if (value)
            value->as.boolean = node->as.boolean;
        return value;
    case YK__NODE_INT:
        value = yk__value_new(YK_VALUE_INT);
        if (value)
            value->as.integer = node->as.integer;
        return value;
    case YK__NODE_REAL:
        value = yk__value_new(YK_VALUE_REAL);
        if (value)
            value->as.real = node->as.real;
        return value;
    case YK__NODE_STRING: return text_value(YK_VALUE_STRING, node->as.text.data, node->as.text.size, node->python_type);
    case YK__NODE_BYTES: return text_value(YK_VALUE_BYTES, node->as.text.data, node->as.text.size, node->python_type);
    case YK__NODE_GLOBAL: return make_global(p, node);
    case YK__NODE_LEFT_OUT: return text_value(YK_VALUE_LEFT_OUT, node->as.text.data, node->as.text.size, 0);
    case YK__NODE_STORAGE:
        if (p->storages[node->as.index].foreign) {
            char what[80];
            snprintf(what, sizeof(what), "storage of %s", p->storages[node->as.index].foreign);
            return left_out(what);
        }
        return tensor_value(whole_storage(&p->storages[node->as.index], p->storages[node->as.index].dtype));
    case YK__NODE_TENSOR:
        value = make_tensor(p, &p->tensors[node->as.index]);
        return value && node->attributes ? note_attributes(p, value, &p->nodes[node->attributes - 1]) : value;
    case YK__NODE_CLASS:
    case YK__NODE_OBJECT: /* refused when the tree was looked at */
    case YK__NODE_LIST:
    case YK__NODE_TUPLE:
    case YK__NODE_SET:
    case YK__NODE_DICT: break;
    }
    return make_container(p, made, node);
}

/* One reference of the caller's; `made` keeps another. */
static yk_value *make_value(yk__pickle *p, yk_value **made, uint32_t index)
{
    if (!made[index])
        made[index] = make_new(p, made, &p->nodes[index]);
    return yk_value_retain(made[index]);
}

yk_value *yk__pickle_value(yk__pickle *p)
{
    yk_value **made = yk__calloc(p->node_count, sizeof(*made));
    if (!made)
        return NULL;
    yk_value *root = make_value(p, made, p->root);
    for (size_t i = 0; i < p->node_count; i++)
        yk_value_release(made[i]);
    free(made);
    return root;
}
