/*
 * object.c - counted objects, scopes, and allocation that reports. Layer: base.
 *
 * A thread has one stack of owned references; a scope is a depth in a second stack that holds where its part of the
 * first begins. Ending scope d releases everything above its start, newest first.
 */
#include <stdlib.h>
#include <string.h>

#include "base/core.h"

typedef struct open_scope {
    size_t start;
    uint64_t serial;
} open_scope;

typedef struct scope_stack {
    yk__object **owned;
    size_t count, capacity;
    open_scope *scopes;
    size_t depth, depth_capacity;
} scope_stack;

static _Thread_local scope_stack stack;

/* No two scopes of a process have the same serial: each thread counts from a start of its own. */
static _Thread_local uint64_t last_serial;
static _Atomic uint64_t serial_blocks;

void *yk_object_retain(void *object)
{
    if (object)
        atomic_fetch_add_explicit(&((yk__object *)object)->references, 1, memory_order_relaxed);
    return object;
}

void yk_object_release(void *object)
{
    yk__object *head = object;
    if (head && atomic_fetch_sub_explicit(&head->references, 1, memory_order_acq_rel) == 1)
        head->type->destroy(object);
}

yk_scope yk_scope_begin(void)
{
    if (stack.depth == stack.depth_capacity) {
        size_t capacity = stack.depth_capacity ? 2 * stack.depth_capacity : 32;
        open_scope *grown = yk__realloc(stack.scopes, capacity * sizeof(*grown));
        if (!grown)
            return (yk_scope){0};
        stack.scopes = grown;
        stack.depth_capacity = capacity;
    }
    if (last_serial == 0)
        last_serial = atomic_fetch_add(&serial_blocks, 1) << 40;
    stack.scopes[stack.depth++] = (open_scope){stack.count, ++last_serial};
    return (yk_scope){stack.depth, last_serial};
}

static bool is_open(yk_scope scope)
{
    return scope.depth && scope.depth <= stack.depth && stack.scopes[scope.depth - 1].serial == scope.serial;
}

void yk_scope_end(yk_scope scope)
{
    if (!is_open(scope)) {
        yk__fail(YK_ERR_STATE, "scope_end: this scope is not open on this thread (ended twice, or begun elsewhere)");
        return;
    }
    size_t start = stack.scopes[scope.depth - 1].start;
    /* The scope stays open while it empties: destroying one object may release others, but never adds any. */
    while (stack.count > start)
        yk_object_release(stack.owned[--stack.count]);
    stack.depth = scope.depth - 1;
    if (stack.depth == 0) {
        free(stack.owned);
        free(stack.scopes);
        stack = (scope_stack){0};
    }
}

bool yk__scope_check(const char *what)
{
    if (stack.depth)
        return true;
    yk__fail(YK_ERR_STATE, "%s: no scope is open on this thread; call yk_scope_begin first", what);
    return false;
}

/* Makes room for `count` more objects. */
static bool scope_grow(size_t count)
{
    size_t capacity = stack.capacity ? 2 * stack.capacity : 256;
    while (capacity - stack.count < count)
        capacity *= 2;
    yk__object **grown = yk__realloc(stack.owned, capacity * sizeof(*grown));
    if (!grown)
        return false;
    stack.owned = grown;
    stack.capacity = capacity;
    return true;
}

bool yk__scope_reserve(const char *what, size_t count)
{
    return yk__scope_check(what) && (stack.capacity - stack.count >= count || scope_grow(count));
}

void *yk__scope_own(void *object)
{
    if (!object)
        return NULL;
    if (!yk__scope_reserve(((yk__object *)object)->type->name, 1)) {
        yk_object_release(object);
        return NULL;
    }
    stack.owned[stack.count++] = object;
    return object;
}

void *yk_scope_return_object(yk_scope scope, void *object)
{
    if (!object)
        return NULL;
    if (!is_open(scope)) {
        yk__fail(YK_ERR_STATE, "scope_return: this scope is not open on this thread");
        return NULL;
    }
    if (scope.depth == 1) {
        yk__fail(YK_ERR_STATE, "scope_return: there is no scope around this one");
        return NULL;
    }
    size_t start = stack.scopes[scope.depth - 1].start;
    for (size_t i = stack.count; i-- > start;) {
        if (stack.owned[i] != object)
            continue;
        /* Swapped to the front of the scope's part, and the parts' borders moved past it. */
        size_t at = i;
        for (size_t depth = stack.depth; depth >= scope.depth; depth--) {
            size_t border = stack.scopes[depth - 1].start;
            if (border > at)
                continue;
            yk__object *other = stack.owned[border];
            stack.owned[border] = object;
            stack.owned[at] = other;
            at = border;
            stack.scopes[depth - 1].start++;
        }
        return object;
    }
    yk__fail(YK_ERR_STATE, "scope_return: the object is not owned by this scope");
    return NULL;
}

void *yk__calloc(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size ? size : 1);
    if (!memory)
        yk__fail(YK_ERR_MEMORY, "out of memory: %zu times %zu bytes were asked for", count, size);
    return memory;
}

void *yk__realloc(void *old, size_t bytes)
{
    void *memory = realloc(old, bytes ? bytes : 1);
    if (!memory)
        yk__fail_memory(bytes);
    return memory;
}

char *yk__strdup(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = yk__calloc(size, 1);
    if (copy)
        memcpy(copy, text, size);
    return copy;
}

char *yk__format(const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0) {
        text = NULL;
        yk__fail(YK_ERR_MEMORY, "out of memory for a text");
    }
    va_end(arguments);
    return text;
}
