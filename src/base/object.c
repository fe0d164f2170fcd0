/*
 * object.c - reference counts, scopes, and allocation that reports. Layer: base.
 *
 * A thread has one stack of owned references; a scope is a depth in a second stack that holds where its part of the
 * first begins. Ending scope d releases everything above its start, newest first.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/core.h"
#include "base/counter.h"
#include "base/invariant.h"
#include "base/log.h"
#include "base/object_check.h"

typedef struct open_scope {
    size_t start;
    uint64_t serial;
    const char *file; /* of yk_scope_begin */
    int line;
} open_scope;

typedef struct scope_stack {
    yk__object **owned;
    size_t count, capacity;
    open_scope *scopes;
    size_t depth, depth_capacity;
    const char *maker; /* the function that makes something now, as given to yk__scope_check; with yk__debug */
} scope_stack;

static _Thread_local scope_stack stack;

/* No two scopes of a process have the same serial: each thread counts from a start of its own. */
static _Thread_local uint64_t last_serial;
static _Atomic uint64_t serial_blocks;

/* ---- counting ---------------------------------------------------------------------------------------------------- */

void *yk_object_retain(void *object)
{
    yk__object *head = object;
    if (head && yk__count_up(&head->references) < 0) {
        yk__count_down(&head->references);
        yk__fail_freed("retain", object);
        return NULL;
    }
    return object;
}

static inline void release(const char *what, void *object)
{
    yk__object *head = object;
    if (!head)
        return;
    int before = yk__count_down(&head->references);
    if (before == 1) {
        head->type->destroy(object);
    } else if (__builtin_expect(before <= 0, 0)) {
        yk__count_up(&head->references);
        yk__fail_released(what, object);
    }
}

void yk_object_release(void *object)
{
    release("release", object);
}

/* ---- the end of a thread ----------------------------------------------------------------------------------------- */

static pthread_key_t thread_key;
static bool has_thread_key;
static _Thread_local bool watched;

static void scopes_end(size_t depth, const char *file, int line);

static void thread_ends(void *unused)
{
    (void)unused;
    watched = false; /* what is destroyed here may need this function again; it is then called once more */
    if (stack.depth) {
        yk__log(YK_LOG_WARN, "a thread ended with %zu scopes open; what they own is released", stack.depth);
        scopes_end(1, "the end of its thread", 0);
    }
    yk__handles_leave_thread();
}

__attribute__((constructor)) static void make_thread_key(void)
{
    has_thread_key = pthread_key_create(&thread_key, thread_ends) == 0;
}

void yk__thread_watch(void)
{
    if (watched || !has_thread_key)
        return;
    watched = true;
    pthread_setspecific(thread_key, &thread_key); /* any value but NULL */
}

/* ---- scopes ------------------------------------------------------------------------------------------------------ */

yk_scope yk_scope_begin_at(const char *file, int line)
{
    if (stack.depth == stack.depth_capacity) {
        size_t capacity = stack.depth_capacity ? 2 * stack.depth_capacity : 32;
        open_scope *grown = yk__realloc(stack.scopes, capacity * sizeof(*grown));
        if (!grown)
            return (yk_scope){0};
        stack.scopes = grown;
        stack.depth_capacity = capacity;
        yk__thread_watch();
    }
    if (last_serial == 0)
        last_serial = atomic_fetch_add(&serial_blocks, 1) << 40;
    stack.scopes[stack.depth++] = (open_scope){stack.count, ++last_serial, file, line};
    return (yk_scope){stack.depth, last_serial};
}

yk_scope(yk_scope_begin)(void)
{
    return yk_scope_begin_at(NULL, 0);
}

static bool is_open(yk_scope scope)
{
    return scope.depth && scope.depth <= stack.depth && stack.scopes[scope.depth - 1].serial == scope.serial;
}

/* The scopes of `depth` and above, and what they own. */
static const char *check_from(size_t depth)
{
    if (stack.depth > stack.depth_capacity || stack.count > stack.capacity)
        return yk__broken("%zu scopes are open in memory for %zu, and own %zu objects in memory for %zu", stack.depth,
                          stack.depth_capacity, stack.count, stack.capacity);
    for (size_t d = depth; d <= stack.depth; d++) {
        const open_scope *scope = &stack.scopes[d - 1];
        size_t end = d < stack.depth ? scope[1].start : stack.count;
        if (scope->start > end)
            return yk__broken("scope %zu begins at object %zu, behind its end, %zu", d, scope->start, end);
        if (d > 1 && scope->serial <= scope[-1].serial)
            return yk__broken("scope %zu has the serial %" PRIu64 ", the one around it %" PRIu64, d, scope->serial,
                              scope[-1].serial);
    }
    for (size_t i = depth <= stack.depth ? stack.scopes[depth - 1].start : stack.count; i < stack.count; i++) {
        const yk__object *object = stack.owned[i];
        int references = object ? atomic_load_explicit(&object->references, memory_order_relaxed) : 0;
        /* One that was released too often has the mark of freed objects (handle.c): releasing it here says so. */
        bool freed = references < INT32_MIN / 4;
        if (references < 1 && !freed)
            return yk__broken("object %zu of those that scopes own, %s, has %d references", i,
                              object ? object->type->name : "none", references);
    }
    return NULL;
}

const char *yk__scopes_check(void)
{
    return check_from(1);
}

/* Ends the scopes of `depth` and above. */
static void scopes_end(size_t depth, const char *file, int line)
{
    YK__ASSERT_SOUND(check_from(depth));
    const open_scope *scope = &stack.scopes[depth - 1];
    size_t start = scope->start;
    yk__ending before = {0};
    if (yk__debug) {
        before = yk__object_ending;
        yk__object_ending = (yk__ending){scope->file, file ? file : "a place unknown", scope->line, line, NULL};
    }
    /* The scope stays open while it empties: destroying one object may release others, but never adds any. */
    while (stack.count > start)
        release("scope_end", stack.owned[--stack.count]);
    if (yk__debug)
        yk__object_ending = before;
    stack.depth = depth - 1;
    if (stack.depth == 0) {
        free(stack.owned);
        free(stack.scopes);
        stack = (scope_stack){0};
    }
}

void yk_scope_end_at(yk_scope scope, const char *file, int line)
{
    if (is_open(scope))
        scopes_end(scope.depth, file, line);
    else
        yk__fail(YK_ERR_STATE, "scope_end: this scope is not open on this thread (ended twice, or begun elsewhere)");
}

void(yk_scope_end)(yk_scope scope)
{
    yk_scope_end_at(scope, NULL, 0);
}

bool yk__scope_check(const char *what)
{
    if (stack.depth) {
        stack.maker = what;
        return true;
    }
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

void *yk__scope_own_from(const char *function, void *object)
{
    if (!object)
        return NULL;
    if (yk__debug) /* a public function's own name, else what the operation calls itself */
        yk__object_set_maker(object, strncmp(function, "yk__", 4) == 0 || strncmp(function, "yk_", 3) != 0
                                         ? stack.maker ? stack.maker : function
                                         : function);
    const char *maker = stack.maker; /* which the next line would replace */
    if (!yk__scope_reserve(((yk__object *)object)->type->name, 1)) {
        yk_object_release(object);
        return NULL;
    }
    stack.maker = maker;
    stack.owned[stack.count++] = object;
    yk__made_since_error = true;
    return object;
}

void *yk_scope_own_object(void *object)
{
    YK__LIVE(object);
    if (!object || !yk__scope_reserve("scope_own", 1))
        return NULL;
    stack.owned[stack.count++] = yk_object_retain(object); /* its maker stays the one that made it */
    return object;
}

void *yk_scope_return_object(yk_scope scope, void *object)
{
    YK__LIVE(object);
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
        YK__ASSERT_SOUND(check_from(scope.depth));
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
