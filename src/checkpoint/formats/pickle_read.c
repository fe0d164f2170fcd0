/*
 * pickle_read.c - runs the instructions of a pickle that make plain data. Layer: checkpoint.
 *
 * Invariants: the stack is never popped below the last mark; every number on the stack, in the memo and in a container
 * is that of a node; what the instructions that call or import name is looked up in a table (pickle_names.c) and
 * nowhere else. Source: the descriptions of the instructions in Python's pickletools.py, protocols 2 to 5.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/formats/pickle.h"
#include "value/value.h"

yk_status yk__pickle_fail(const yk__pickle *p, yk_status code, const char *format, ...)
{
    char text[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return yk__fail(code, "%s: %s, byte %zu: %s", p->path, p->part, p->op, text);
}

const char *yk__pickle_describe(const char *text, size_t size, char buffer[80])
{
    size_t n = 0;
    for (; n < size && n < 79; n++)
        buffer[n] = text[n] >= 32 && text[n] < 127 ? text[n] : '?';
    buffer[n] = 0;
    return buffer;
}

const char *yk__node_kind_name(const yk__node *node)
{
    static const char *const names[] = {
        "None",  "bool",  "int",  "float",  "str",     "bytes",  "list",
        "tuple", "set",   "dict", "global", "storage", "tensor", "value that is left out",
        "class", "object"};
    return names[node->kind];
}

bool yk__pickle_is_text(const yk__node *node, const char *text)
{
    return node->kind == YK__NODE_STRING && node->as.text.size == strlen(text) &&
           memcmp(node->as.text.data, text, node->as.text.size) == 0;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

yk_status yk__pickle_room(void **array, size_t size, size_t count, size_t *room)
{
    if (count < *room)
        return YK_OK;
    size_t larger = *room ? 2 * *room : 64;
    void *moved = yk__realloc(*array, larger * size);
    if (!moved)
        return YK_ERR_MEMORY;
    *array = moved;
    *room = larger;
    return YK_OK;
}

static yk_status count_item(yk__pickle *p)
{
    if (++p->item_count > YK__PICKLE_ITEMS)
        return yk__pickle_fail(p, YK_ERR_FORMAT, "more than %d items", YK__PICKLE_ITEMS);
    return YK_OK;
}

static yk_status push_number(yk__pickle *p, uint32_t node)
{
    yk_status status = p->stack_count < YK__PICKLE_ITEMS
                           ? yk__pickle_room((void **)&p->stack, sizeof(*p->stack), p->stack_count, &p->stack_room)
                           : yk__pickle_fail(p, YK_ERR_FORMAT, "more than %d items on the stack", YK__PICKLE_ITEMS);
    if (!status)
        p->stack[p->stack_count++] = node;
    return status;
}

yk__node *yk__pickle_push(yk__pickle *p, yk__node_kind kind)
{
    if (p->node_count == YK__PICKLE_NODES) {
        yk__pickle_fail(p, YK_ERR_FORMAT, "more than %d objects", YK__PICKLE_NODES);
        return NULL;
    }
    if (yk__pickle_room((void **)&p->nodes, sizeof(*p->nodes), p->node_count, &p->node_room) ||
        push_number(p, (uint32_t)p->node_count))
        return NULL;
    yk__node *node = &p->nodes[p->node_count++];
    memset(node, 0, sizeof(*node));
    node->kind = (uint8_t)kind;
    return node;
}

yk_status yk__pickle_append(yk__pickle *p, uint32_t list, uint32_t item)
{
    yk__node *node = &p->nodes[list];
    yk_status status = count_item(p);
    if (!status && node->as.list.count == node->as.list.capacity) {
        uint32_t capacity = node->as.list.capacity ? 2 * node->as.list.capacity : 4;
        uint32_t *items = yk__realloc(node->as.list.items, (size_t)capacity * sizeof(*items));
        if (!items)
            return YK_ERR_MEMORY;
        node->as.list.items = items;
        node->as.list.capacity = capacity;
    }
    if (!status)
        node->as.list.items[node->as.list.count++] = item;
    return status;
}

/* ---- the stack --------------------------------------------------------------------------------------------------- */

/* The next `size` bytes; NULL and an error where there are fewer. */
static const unsigned char *take(yk__pickle *p, uint64_t size)
{
    if (size > p->size - p->at) {
        p->ended_early = true;
        yk__pickle_fail(p, YK_ERR_FORMAT, "truncated: %" PRIu64 " bytes are needed, %zu are left", size,
                        p->size - p->at);
        return NULL;
    }
    p->at += (size_t)size;
    return p->bytes + p->at - size;
}

static size_t base(const yk__pickle *p)
{
    return p->mark_count ? p->marks[p->mark_count - 1] : 0;
}

/* Fails unless `count` nodes stand above the last mark. */
static yk_status need(const yk__pickle *p, size_t count)
{
    return p->stack_count - base(p) >= count ? YK_OK : yk__pickle_fail(p, YK_ERR_FORMAT, "the stack has too few items");
}

/* Takes the last mark away; the nodes above it begin at *from. */
static yk_status pop_mark(yk__pickle *p, size_t *from)
{
    if (!p->mark_count)
        return yk__pickle_fail(p, YK_ERR_FORMAT, "there is no mark on the stack");
    *from = p->marks[--p->mark_count];
    return YK_OK;
}

static yk_status push_mark(yk__pickle *p)
{
    if (p->mark_count >= YK__PICKLE_NODES)
        return yk__pickle_fail(p, YK_ERR_FORMAT, "more than %d marks", YK__PICKLE_NODES);
    yk_status status = yk__pickle_room((void **)&p->marks, sizeof(*p->marks), p->mark_count, &p->mark_room);
    if (!status)
        p->marks[p->mark_count++] = (uint32_t)p->stack_count;
    return status;
}

static uint64_t little(const unsigned char *bytes, int size)
{
    uint64_t value = 0;
    while (size-- > 0)
        value = value << 8 | bytes[size];
    return value;
}

/* Reads a number of `width` bytes. */
static yk_status read_number(yk__pickle *p, int width, uint64_t *value)
{
    const unsigned char *bytes = take(p, (uint64_t)width);
    if (!bytes)
        return YK_ERR_FORMAT;
    *value = little(bytes, width);
    return YK_OK;
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

static yk_status push_int(yk__pickle *p, int64_t value)
{
    yk__node *node = yk__pickle_push(p, YK__NODE_INT);
    if (!node)
        return yk__error_code();
    node->as.integer = value;
    return YK_OK;
}

static yk_status push_bool(yk__pickle *p, bool value)
{
    yk__node *node = yk__pickle_push(p, YK__NODE_BOOL);
    if (!node)
        return yk__error_code();
    node->as.boolean = value;
    return YK_OK;
}

static yk_status push_plain(yk__pickle *p, yk__node_kind kind)
{
    return yk__pickle_push(p, kind) ? YK_OK : yk__error_code();
}

/* Text or bytes whose length stands in `width` bytes. */
static yk_status push_text(yk__pickle *p, yk__node_kind kind, int width)
{
    uint64_t size = 0;
    yk_status status = read_number(p, width, &size);
    const char *data = status ? NULL : (const char *)take(p, size);
    if (!data)
        return yk__error_code();
    if (kind == YK__NODE_STRING && !yk__utf8_valid(data, (size_t)size))
        return yk__pickle_fail(p, YK_ERR_FORMAT, "a text of %" PRIu64 " bytes is not valid UTF-8", size);
    yk__node *node = yk__pickle_push(p, kind);
    if (!node)
        return yk__error_code();
    node->as.text.data = data;
    node->as.text.size = (uint32_t)size;
    return YK_OK;
}

static yk_status push_bytearray(yk__pickle *p)
{
    yk_status status = push_text(p, YK__NODE_BYTES, 8);
    if (!status)
        p->nodes[p->node_count - 1].python_type = YK__PYTHON_BYTEARRAY;
    return status;
}

static yk_status push_real(yk__pickle *p)
{
    const unsigned char *bytes = take(p, 8);
    yk__node *node = bytes ? yk__pickle_push(p, YK__NODE_REAL) : NULL;
    if (!node)
        return yk__error_code();
    uint64_t bits = 0;
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | bytes[i];
    memcpy(&node->as.real, &bits, sizeof(bits));
    return YK_OK;
}

/* A two's complement number of any length; what does not fit 64 bits is left out. */
static yk_status push_long(yk__pickle *p, int width)
{
    uint64_t size = 0;
    yk_status status = read_number(p, width, &size);
    const unsigned char *bytes = status ? NULL : take(p, size);
    if (!bytes)
        return yk__error_code();
    uint64_t whole = size;
    unsigned char sign = size && bytes[size - 1] & 0x80 ? 0xFF : 0;
    while (size > 8 && bytes[size - 1] == sign && (bytes[size - 2] & 0x80) == (sign & 0x80))
        size--;
    if (size > 8)
        return yk__pickle_leave_out(p, "integer of %" PRIu64 " bytes, which does not fit 64 bits", whole);
    uint64_t value = sign ? UINT64_MAX : 0;
    for (uint64_t i = size; i-- > 0;)
        value = value << 8 | bytes[i];
    return push_int(p, (int64_t)value);
}

/* The nodes above the last mark become a list, tuple, dict or frozen set. */
static yk_status push_marked(yk__pickle *p, yk__node_kind kind, size_t from)
{
    size_t count = p->stack_count - from;
    if (kind == YK__NODE_DICT && count % 2)
        return yk__pickle_fail(p, YK_ERR_FORMAT, "a dict of %zu keys and values", count);
    if (!yk__pickle_push(p, kind))
        return yk__error_code();
    uint32_t made = p->stack[p->stack_count - 1];
    for (size_t i = 0; i < count; i++) {
        yk_status status = yk__pickle_append(p, made, p->stack[from + i]);
        if (status)
            return status;
    }
    p->stack_count = from;
    return push_number(p, made);
}

static yk_status push_tuple(yk__pickle *p, size_t count)
{
    yk_status status = need(p, count);
    return status ? status : push_marked(p, YK__NODE_TUPLE, p->stack_count - count);
}

static yk_status push_from_mark(yk__pickle *p, yk__node_kind kind)
{
    size_t from = 0;
    yk_status status = pop_mark(p, &from);
    return status ? status : push_marked(p, kind, from);
}

/* Adds the nodes from `from` on to the container below them. */
static yk_status add_items(yk__pickle *p, size_t from, yk__node_kind kind)
{
    if (from == base(p))
        return yk__pickle_fail(p, YK_ERR_FORMAT, "there is nothing to add items to");
    uint32_t container = p->stack[from - 1];
    size_t count = p->stack_count - from;
    if (p->nodes[container].kind != kind)
        return yk__pickle_fail(p, YK_ERR_FORMAT, "adds items of a %s to a %s",
                               kind == YK__NODE_DICT  ? "dict"
                               : kind == YK__NODE_SET ? "set"
                                                      : "list",
                               yk__node_kind_name(&p->nodes[container]));
    if (kind == YK__NODE_DICT && count % 2)
        return yk__pickle_fail(p, YK_ERR_FORMAT, "a dict of %zu keys and values", count);
    for (size_t i = from; i < p->stack_count; i++) {
        yk_status status = yk__pickle_append(p, container, p->stack[i]);
        if (status)
            return status;
    }
    p->stack_count = from;
    return YK_OK;
}

static yk_status add_top(yk__pickle *p, size_t count, yk__node_kind kind)
{
    yk_status status = need(p, count + 1);
    return status ? status : add_items(p, p->stack_count - count, kind);
}

static yk_status add_marked(yk__pickle *p, yk__node_kind kind)
{
    size_t from = 0;
    yk_status status = pop_mark(p, &from);
    return status ? status : add_items(p, from, kind);
}

/* ---- the memo ---------------------------------------------------------------------------------------------------- */

static yk_status memo_put(yk__pickle *p, uint64_t index)
{
    yk_status status = need(p, 1);
    if (status)
        return status;
    if (index >= YK__PICKLE_NODES)
        return yk__pickle_fail(p, YK_ERR_FORMAT, "memo %" PRIu64 "; there are at most %d", index, YK__PICKLE_NODES);
    if (index >= p->memo_room) {
        size_t room = p->memo_room ? p->memo_room : 64;
        while (room <= index)
            room *= 2;
        uint32_t *memo = yk__realloc(p->memo, room * sizeof(*memo));
        if (!memo)
            return YK_ERR_MEMORY;
        memset(memo + p->memo_room, 0, (room - p->memo_room) * sizeof(*memo));
        p->memo = memo;
        p->memo_room = room;
    }
    p->memo[index] = p->stack[p->stack_count - 1] + 1;
    return YK_OK;
}

static yk_status memo_get(yk__pickle *p, uint64_t index)
{
    if (index >= p->memo_room || !p->memo[index])
        return yk__pickle_fail(p, YK_ERR_FORMAT, "memo %" PRIu64 " was never set", index);
    return push_number(p, p->memo[index] - 1);
}

/* MEMOIZE numbers by the count of what was put: the first number that is free. */
static yk_status memo_next(yk__pickle *p, size_t *next)
{
    while (*next < p->memo_room && p->memo[*next])
        ++*next;
    return memo_put(p, *next);
}

/* ---- names and calls --------------------------------------------------------------------------------------------- */

static yk_status read_line(yk__pickle *p, const char **line, size_t *size)
{
    enum { LONGEST = 256 };
    size_t left = p->size - p->at;
    const unsigned char *begin = p->bytes + p->at;
    const unsigned char *end = left ? memchr(begin, '\n', left < LONGEST ? left : LONGEST) : NULL;
    if (!end && left < LONGEST)
        return take(p, left + 1) ? YK_OK : YK_ERR_FORMAT;
    if (!end)
        return yk__pickle_fail(p, YK_ERR_FORMAT, "a name of more than %d bytes", LONGEST);
    *line = (const char *)begin;
    *size = (size_t)(end - begin);
    p->at += *size + 1;
    return YK_OK;
}

static yk_status run_global(yk__pickle *p)
{
    const char *module = NULL, *name = NULL;
    size_t module_size = 0, name_size = 0;
    yk_status status = read_line(p, &module, &module_size);
    if (!status)
        status = read_line(p, &name, &name_size);
    return status ? status : yk__pickle_global(p, module, module_size, name, name_size);
}

static yk_status run_stack_global(yk__pickle *p)
{
    yk_status status = need(p, 2);
    if (status)
        return status;
    const yk__node *name = &p->nodes[p->stack[p->stack_count - 1]];
    const yk__node *module = &p->nodes[p->stack[p->stack_count - 2]];
    if (name->kind != YK__NODE_STRING || module->kind != YK__NODE_STRING)
        return yk__pickle_fail(p, YK_ERR_FORMAT, "a module and a name are a %s and a %s", yk__node_kind_name(module),
                               yk__node_kind_name(name));
    p->stack_count -= 2;
    return yk__pickle_global(p, module->as.text.data, module->as.text.size, name->as.text.data, name->as.text.size);
}

/* INST names a class in the instruction itself: it is allowed under no name. */
static yk_status run_inst(yk__pickle *p)
{
    const char *module = NULL, *name = NULL;
    size_t module_size = 0, name_size = 0;
    char one[80], two[80];
    yk_status status = read_line(p, &module, &module_size);
    if (!status)
        status = read_line(p, &name, &name_size);
    return status ? status
                  : yk__pickle_fail(p, YK_ERR_UNSUPPORTED, "makes an object of %s.%s, which is refused",
                                    yk__pickle_describe(module, module_size, one),
                                    yk__pickle_describe(name, name_size, two));
}

static yk_status run_new_object(yk__pickle *p)
{
    yk_status status = need(p, 2);
    if (status)
        return status;
    uint32_t index = p->stack[p->stack_count - 2];
    const yk__node *cls = &p->nodes[index];
    if (cls->kind == YK__NODE_CLASS)
        return yk__pickle_new_object(p, index, p->stack[p->stack_count - 1]);
    bool is_dtype;
    return yk__pickle_fail(p, YK_ERR_UNSUPPORTED, "makes an object of %s, which is refused",
                           cls->kind == YK__NODE_GLOBAL ? yk__pickle_global_name(cls->as.index, &is_dtype)
                                                        : yk__node_kind_name(cls));
}

static yk_status run_two(yk__pickle *p, yk_status (*fn)(yk__pickle *, uint32_t, uint32_t))
{
    yk_status status = need(p, 2);
    return status ? status : fn(p, p->stack[p->stack_count - 2], p->stack[p->stack_count - 1]);
}

static yk_status run_persistent(yk__pickle *p)
{
    yk_status status = need(p, 1);
    return status ? status : yk__pickle_persistent(p, p->stack[--p->stack_count]);
}

/* ---- the machine ------------------------------------------------------------------------------------------------- */

static yk_status run_protocol(yk__pickle *p)
{
    uint64_t version = 0;
    yk_status status = read_number(p, 1, &version);
    if (!status && (version < 2 || version > 5))
        status = yk__pickle_fail(p, YK_ERR_UNSUPPORTED, "pickle protocol %" PRIu64 "; 2 to 5 are read", version);
    return status;
}

static yk_status run_pop(yk__pickle *p)
{
    if (p->mark_count && p->stack_count == base(p)) {
        p->mark_count--;
        return YK_OK;
    }
    yk_status status = need(p, 1);
    p->stack_count -= !status;
    return status;
}

static yk_status run_frame(yk__pickle *p)
{
    uint64_t size;
    return read_number(p, 8, &size); /* how far to read ahead; there is nothing to do */
}

static yk_status run_memo(yk__pickle *p, int width, yk_status (*fn)(yk__pickle *, uint64_t))
{
    uint64_t index = 0;
    yk_status status = read_number(p, width, &index);
    return status ? status : fn(p, index);
}

static yk_status run_int(yk__pickle *p, int width)
{
    uint64_t value = 0;
    yk_status status = read_number(p, width, &value);
    return status ? status : push_int(p, width == 4 ? (int64_t)(int32_t)value : (int64_t)value);
}

static yk_status run_one(yk__pickle *p, unsigned char op, size_t *next_memo)
{
    size_t from = 0;
    switch (op) {
    case 0x80: return run_protocol(p);
    case 0x95: return run_frame(p);
    case '(': return push_mark(p);
    case '0': return run_pop(p);
    case '1': return pop_mark(p, &from) ? YK_ERR_FORMAT : (p->stack_count = from, YK_OK);
    case '2': return need(p, 1) ? YK_ERR_FORMAT : push_number(p, p->stack[p->stack_count - 1]);
    case 'N': return push_plain(p, YK__NODE_NONE);
    case 0x88: return push_bool(p, true);
    case 0x89: return push_bool(p, false);
    case 'J': return run_int(p, 4);
    case 'K': return run_int(p, 1);
    case 'M': return run_int(p, 2);
    case 0x8A: return push_long(p, 1);
    case 0x8B: return push_long(p, 4);
    case 'G': return push_real(p);
    case 'X': return push_text(p, YK__NODE_STRING, 4);
    case 0x8C: return push_text(p, YK__NODE_STRING, 1);
    case 0x8D: return push_text(p, YK__NODE_STRING, 8);
    case 'U': return push_text(p, YK__NODE_STRING, 1); /* Python 2's str: text in the checkpoints of its time */
    case 'T': return push_text(p, YK__NODE_STRING, 4);
    case 'C': return push_text(p, YK__NODE_BYTES, 1);
    case 'B': return push_text(p, YK__NODE_BYTES, 4);
    case 0x8E: return push_text(p, YK__NODE_BYTES, 8);
    case 0x96: return push_bytearray(p);
    case ']': return push_plain(p, YK__NODE_LIST);
    case 'a': return add_top(p, 1, YK__NODE_LIST);
    case 'e': return add_marked(p, YK__NODE_LIST);
    case 'l': return push_from_mark(p, YK__NODE_LIST);
    case ')': return push_plain(p, YK__NODE_TUPLE);
    case 't': return push_from_mark(p, YK__NODE_TUPLE);
    case 0x85: return push_tuple(p, 1);
    case 0x86: return push_tuple(p, 2);
    case 0x87: return push_tuple(p, 3);
    case '}': return push_plain(p, YK__NODE_DICT);
    case 'd': return push_from_mark(p, YK__NODE_DICT);
    case 's': return add_top(p, 2, YK__NODE_DICT);
    case 'u': return add_marked(p, YK__NODE_DICT);
    case 0x8F: return push_plain(p, YK__NODE_SET);
    case 0x90: return add_marked(p, YK__NODE_SET);
    case 0x91: return push_from_mark(p, YK__NODE_SET);
    case 'h': return run_memo(p, 1, memo_get);
    case 'j': return run_memo(p, 4, memo_get);
    case 'q': return run_memo(p, 1, memo_put);
    case 'r': return run_memo(p, 4, memo_put);
    case 0x94: return memo_next(p, next_memo);
    case 'c': return run_global(p);
    case 0x93: return run_stack_global(p);
    case 'R': return run_two(p, yk__pickle_reduce);
    case 'b': return run_two(p, yk__pickle_build);
    case 'Q': return run_persistent(p);
    case 'i': return run_inst(p);
    case 0x81: return run_new_object(p);
    default: return yk__pickle_fail(p, YK_ERR_UNSUPPORTED, "instruction 0x%02x is refused", op);
    }
}

yk_status yk__pickle_run(yk__pickle *p, const char *path, const char *part, const unsigned char *bytes, size_t size,
                         size_t at)
{
    *p = (yk__pickle){.path = path, .part = part, .bytes = bytes, .size = size, .at = at};
    size_t next_memo = 0;
    for (;;) {
        p->op = p->at;
        const unsigned char *op = take(p, 1);
        if (!op)
            return YK_ERR_FORMAT;
        if (*op == '.')
            break;
        yk_status status = run_one(p, *op, &next_memo);
        if (status)
            return status;
    }
    if (p->mark_count)
        return yk__pickle_fail(p, YK_ERR_FORMAT, "it ends with a mark on the stack");
    if (p->stack_count != 1)
        return yk__pickle_fail(p, YK_ERR_FORMAT, "it ends with %zu items on the stack", p->stack_count);
    p->root = p->stack[0];
    return yk__pickle_survey(p, p->at - at);
}

void yk__pickle_clear(yk__pickle *p)
{
    for (size_t i = 0; i < p->node_count; i++) {
        yk__node *node = &p->nodes[i];
        if (node->kind >= YK__NODE_LIST && node->kind <= YK__NODE_DICT)
            free(node->as.list.items);
        else if (node->owned)
            free((void *)node->as.text.data);
    }
    for (size_t i = 0; i < p->storage_count; i++)
        yk__storage_release(p->storages[i].storage);
    free(p->nodes);
    free(p->stack);
    free(p->marks);
    free(p->memo);
    free(p->storages);
    free(p->tensors);
    yk__name_clear(&p->keys);
    *p = (yk__pickle){0};
}
