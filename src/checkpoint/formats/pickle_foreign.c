/*
 * pickle_foreign.c - plain data of Python's and PyTorch's that yoke has no kind for: left out, by name.
 * Layer: checkpoint.
 *
 * A file is not refused for one such value: a node tells what it was, and becomes a value of kind YK_VALUE_LEFT_OUT in
 * its position. Nothing of it is kept but a short text. What only code could make is refused all the same
 * (pickle_module.c).
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/formats/pickle.h"

yk_status yk__pickle_leave_out(yk__pickle *p, const char *format, ...)
{
    char what[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    char *text = yk__strdup(what);
    yk__node *node = text ? yk__pickle_push(p, YK__NODE_LEFT_OUT) : NULL;
    if (!node) {
        free(text);
        return yk__error_code();
    }
    node->owned = true;
    node->as.text.data = text;
    node->as.text.size = (uint32_t)strlen(text);
    return YK_OK;
}

yk_status yk__pickle_leave_out_tensor(yk__pickle *p, const char *what, uint32_t size)
{
    const yk__node *tuple = &p->nodes[size];
    char shape[160] = "(";
    size_t used = 1;
    if (tuple->kind != YK__NODE_TUPLE)
        return yk__pickle_fail(p, YK_ERR_FORMAT, "the size of a tensor is a %s", yk__node_kind_name(tuple));
    uint32_t count = tuple->as.list.count;
    if (count > YK_MAX_DIMS)
        return yk__pickle_leave_out(p, "%s tensor of %u dimensions", what, count);
    for (uint32_t i = 0; i < count && used < sizeof(shape); i++) {
        const yk__node *item = &p->nodes[tuple->as.list.items[i]];
        if (item->kind != YK__NODE_INT)
            return yk__pickle_fail(p, YK_ERR_FORMAT, "the size of a tensor has a %s in it", yk__node_kind_name(item));
        used += (size_t)snprintf(shape + used, sizeof(shape) - used, "%s%" PRId64, i ? ", " : "", item->as.integer);
    }
    return yk__pickle_leave_out(p, "%s tensor of shape %s%s", what, shape, count == 1 ? ",)" : ")");
}

void yk__pickle_note_attributes(yk__pickle *p, uint32_t state)
{
    yk__node *tensor = &p->nodes[p->stack[p->stack_count - 1]];
    const yk__node *dict = &p->nodes[state];
    bool any = false, buffer = false;
    for (uint32_t i = 0; dict->kind == YK__NODE_DICT && i < dict->as.list.count; i += 2) {
        const yk__node *key = &p->nodes[dict->as.list.items[i]];
        any = any || !(yk__pickle_is_text(key, "persistent") || yk__pickle_is_text(key, "_is_buffer"));
        buffer = buffer || yk__pickle_is_text(key, "_is_buffer");
    }
    /* torch.nn.Buffer is a tensor with two attributes, which say that it is one. */
    if (tensor->kind == YK__NODE_TENSOR && dict->kind == YK__NODE_DICT && dict->as.list.count && (any || !buffer))
        tensor->attributes = state + 1;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

enum { KEY_ROOM = 80, KEY_DEPTH = 4 };

typedef struct key_writer {
    const yk__pickle *p;
    char *text;
    size_t used;
} key_writer;

static void put(key_writer *w, const char *format, ...) YK_PRINTF(2, 3);
static void put(key_writer *w, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (w->used < KEY_ROOM) {
        int length = vsnprintf(w->text + w->used, KEY_ROOM - w->used, format, arguments);
        w->used += length > 0 ? (size_t)length : 0;
    }
    va_end(arguments);
}

static void put_key(key_writer *w, uint32_t index, int depth)
{
    const yk__node *node = &w->p->nodes[index];
    char text[80];
    switch ((yk__node_kind)node->kind) {
    case YK__NODE_NONE: put(w, "None"); break;
    case YK__NODE_BOOL: put(w, "%s", node->as.boolean ? "True" : "False"); break;
    case YK__NODE_INT: put(w, "%" PRId64, node->as.integer); break;
    case YK__NODE_REAL: put(w, "%.17g", node->as.real); break;
    case YK__NODE_STRING: put(w, "'%s'", yk__pickle_describe(node->as.text.data, node->as.text.size, text)); break;
    case YK__NODE_BYTES: put(w, "b'%s'", yk__pickle_describe(node->as.text.data, node->as.text.size, text)); break;
    case YK__NODE_TUPLE:
        put(w, "(");
        for (uint32_t i = 0; i < node->as.list.count && w->used < KEY_ROOM && depth < KEY_DEPTH; i++) {
            put(w, "%s", i ? ", " : "");
            put_key(w, node->as.list.items[i], depth + 1);
        }
        put(w, "%s", node->as.list.count == 1 ? ",)" : ")");
        break;
    default: put(w, "<%s>", yk__node_kind_name(node)); break;
    }
}

const char *yk__pickle_key_name(const yk__pickle *p, uint32_t key, char text[KEY_ROOM])
{
    key_writer w = {p, text, 0};
    *text = 0;
    put_key(&w, key, 0);
    if (w.used >= KEY_ROOM)
        memcpy(text + KEY_ROOM - 4, "...", 4);
    return text;
}
