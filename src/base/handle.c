/*
 * handle.c - the memory of counted objects, and how a freed one is recognised. Layer: base.
 *
 * A program may use an object after it was freed (its scope has ended). So that this is an error and never another
 * object's data, the memory of objects is never returned to the system, keeps its mark (a negative count of references)
 * while it is free, and is reused oldest first, after at least QUARANTINE others of its size that were freed later.
 *
 *     yk__object_free -> local queue of the thread -> (QUARANTINE later) -> yk__object_new
 *                              |  too long                     ^  the local queue is too short
 *                              +--------> shared queue --------+
 *
 * Threads that free what others made (the caller of a loader) pass their oldest slots on through the shared queue.
 *
 * Invariants: a slot is in one queue, or in the `ready` list of one thread, or holds a live object; a slot that holds a
 * live object is known to nobody here, so that a leak checker finds objects that nobody releases. In builds with the
 * address sanitizer the bytes behind the head of a free object are poisoned: uses inside the library, which do not
 * ask for the mark, are found as with free().
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/core.h"
#include "base/invariant.h"
#include "base/object_check.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define YK__POISON 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define YK__POISON 1
#endif
#ifdef YK__POISON
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size)   ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

enum {
    QUARANTINE = 4096,
    LONGEST_LOCAL = QUARANTINE + 1024, /* room for what one training step frees at once */
    MOVED = 64,                        /* slots that go to or come from the shared queue under one lock */
    AHEAD = 4,                         /* slots fetched into the cache before they are needed */
    LINE = 64,
    FREED = INT32_MIN / 2 /* the mark: far enough from 0 that stray retains and releases leave it negative */
};

/* The origin of an object and its end; kept while yk__debug is set. */
typedef struct origin {
    const char *maker; /* without the "yk_" */
    yk__ending ending;
} origin;

typedef struct slot {
    struct slot *next;
    origin *origin; /* NULL unless yk__debug was set when the object was made */
    _Alignas(max_align_t) unsigned char object[];
} slot;

typedef struct queue {
    slot *head, *tail;
    int64_t count;
} queue;

/* The local queue: the pointers stand in an array, so that those to come are known without reading what they point to,
 * which has left the cache since it was freed. */
typedef struct ring {
    slot **slots; /* LONGEST_LOCAL, or NULL before the first push and once the thread has ended */
    uint32_t first, count;
} ring;

/* Slots of 64, 128, ... 1,024 bytes, then of powers of two. */
enum { SMALL_CLASSES = 16, CLASSES = SMALL_CLASSES + 10 };

static _Thread_local ring local[CLASSES];
static _Thread_local slot *ready[CLASSES]; /* from the shared queue, to be used first */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static queue shared[CLASSES];
static _Atomic int64_t shared_count[CLASSES]; /* shared[].count, for a look without the lock */

_Thread_local yk__ending yk__object_ending;
bool yk__debug;

__attribute__((constructor)) static void read_environment(void)
{
    const char *text = getenv("YOKE_DEBUG");
#ifdef YK__SANITIZED
    yk__debug = !text || strcmp(text, "0") != 0;
#else
    yk__debug = text && *text && strcmp(text, "0") != 0;
#endif
}

static slot *slot_of(const void *object)
{
    return (slot *)((char *)object - offsetof(slot, object));
}

/* CLASSES where there is no class for an object of that size. */
static int class_of(size_t size)
{
    size_t lines = (sizeof(slot) + size + LINE - 1) / LINE;
    if (lines <= SMALL_CLASSES)
        return (int)lines - 1;
    int size_class = SMALL_CLASSES;
    for (size_t most = 2 * SMALL_CLASSES; size_class < CLASSES && lines > most; most *= 2)
        size_class++;
    return size_class;
}

static size_t class_bytes(int size_class)
{
    return size_class < SMALL_CLASSES ? (size_t)(size_class + 1) * LINE
                                      : (size_t)SMALL_CLASSES * LINE << (size_class - SMALL_CLASSES + 1);
}

/* ---- queues ------------------------------------------------------------------------------------------------------ */

static void push(queue *q, slot *s)
{
    s->next = NULL;
    if (q->tail)
        q->tail->next = s;
    else
        q->head = s;
    q->tail = s;
    q->count++;
}

static slot *pop(queue *q)
{
    slot *s = q->head;
    q->head = s->next;
    if (!q->head)
        q->tail = NULL;
    q->count--;
    return s;
}

static uint32_t ring_index(const ring *r, uint32_t i)
{
    uint32_t at = r->first + i;
    return at < LONGEST_LOCAL ? at : at - LONGEST_LOCAL;
}

static slot *ring_pop(ring *r)
{
    slot *s = r->slots[r->first];
    r->slots[r->first] = NULL; /* it will hold a live object */
    r->first = ring_index(r, 1);
    r->count--;
    return s;
}

static const char *check_slot(const slot *s, int size_class, const char *where)
{
    const yk__object *object = (const yk__object *)s->object;
    int references = atomic_load_explicit(&object->references, memory_order_relaxed);
    if (references >= 0)
        return yk__broken("%s memory of %zu bytes holds an object with %d references, which is not marked as freed",
                          where, class_bytes(size_class), references);
    if (object->size_class != size_class)
        return yk__broken("%s memory of class %d stands among that of class %d", where, object->size_class, size_class);
    return NULL;
}

static const char *check_local(int size_class)
{
    const ring *r = &local[size_class];
    const char *wrong = NULL;
    if (r->count > LONGEST_LOCAL || r->first >= LONGEST_LOCAL || (r->count && !r->slots))
        return yk__broken("this thread's queue of class %d begins at %u and has %u slots, of %d", size_class, r->first,
                          r->count, LONGEST_LOCAL);
    for (uint32_t i = 0; i < r->count && !wrong; i++)
        wrong = check_slot(r->slots[ring_index(r, i)], size_class, "this thread's");
    return wrong;
}

/* Locked. */
static const char *check_shared(int size_class)
{
    const queue *q = &shared[size_class];
    const char *wrong = NULL;
    int64_t count = 0;
    const slot *last = NULL;
    for (const slot *s = q->head; s && !wrong && count <= q->count; s = s->next, count++) {
        wrong = check_slot(s, size_class, "shared");
        last = s;
    }
    if (!wrong && (count != q->count || last != q->tail))
        wrong = yk__broken("the shared queue of class %d has %lld slots, and says %lld", size_class, (long long)count,
                           (long long)q->count);
    return wrong;
}

const char *yk__handles_check(void)
{
    const char *wrong = NULL;
    pthread_mutex_lock(&lock);
    for (int size_class = 0; size_class < CLASSES && !wrong; size_class++) {
        wrong = check_local(size_class);
        if (!wrong)
            wrong = check_shared(size_class);
    }
    pthread_mutex_unlock(&lock);
    return wrong;
}

static void to_shared(int size_class, int64_t count)
{
    YK__ASSERT_SOUND(check_local(size_class));
    pthread_mutex_lock(&lock);
    while (count-- > 0)
        push(&shared[size_class], ring_pop(&local[size_class]));
    atomic_store_explicit(&shared_count[size_class], shared[size_class].count, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
}

/* Puts a slot at the end of the local queue, or of the shared one where there is no memory for the local one. */
static void ring_push(int size_class, slot *s)
{
    ring *r = &local[size_class];
    if (r->count == LONGEST_LOCAL)
        to_shared(size_class, MOVED);
    if (!r->slots) {
        yk__thread_watch();
        r->slots = malloc(LONGEST_LOCAL * sizeof(slot *));
    }
    if (r->slots) {
        r->slots[ring_index(r, r->count++)] = s;
        return;
    }
    pthread_mutex_lock(&lock);
    push(&shared[size_class], s);
    atomic_store_explicit(&shared_count[size_class], shared[size_class].count, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
}

static void from_shared(int size_class)
{
    yk__thread_watch(); /* what is not used goes back when the thread ends, also where it never freed an object */
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOVED && shared[size_class].count > QUARANTINE; i++) {
        slot *s = pop(&shared[size_class]);
        s->next = ready[size_class];
        ready[size_class] = s;
    }
    YK__ASSERT_SOUND(check_shared(size_class));
    atomic_store_explicit(&shared_count[size_class], shared[size_class].count, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
}

void yk__handles_leave_thread(void)
{
    for (int size_class = 0; size_class < CLASSES; size_class++) {
        for (slot *next, *s = ready[size_class]; s; s = next) {
            next = s->next;
            ring_push(size_class, s);
        }
        ready[size_class] = NULL;
        to_shared(size_class, local[size_class].count);
        free(local[size_class].slots);
        local[size_class] = (ring){NULL, 0, 0};
    }
}

static slot *slot_take(int size_class)
{
    ring *r = &local[size_class];
    if (r->count > QUARANTINE) {
        const char *later = (const char *)r->slots[ring_index(r, AHEAD)];
        for (int line = 0; line < 3; line++)
            __builtin_prefetch(later + line * LINE, 1);
        return ring_pop(r);
    }
    if (!ready[size_class] && atomic_load_explicit(&shared_count[size_class], memory_order_relaxed) > QUARANTINE)
        from_shared(size_class);
    slot *s = ready[size_class];
    if (s) {
        ready[size_class] = s->next;
        return s;
    }
    void *memory = NULL;
    if (posix_memalign(&memory, LINE, class_bytes(size_class)))
        return NULL;
    s = memory;
    s->origin = NULL;
    return s;
}

/* ---- objects ----------------------------------------------------------------------------------------------------- */

void *yk__object_alloc(const yk__type *type, size_t size)
{
    int size_class = class_of(size);
    slot *s = size_class < CLASSES ? slot_take(size_class) : NULL;
    if (!s) {
        yk__fail_memory(size);
        return NULL;
    }
    yk__object *object = (yk__object *)s->object;
    ASAN_UNPOISON_MEMORY_REGION(object, class_bytes(size_class) - sizeof(slot));
    ASAN_POISON_MEMORY_REGION((char *)object + size, class_bytes(size_class) - sizeof(slot) - size);
    object->type = type;
    object->size_class = size_class;
    atomic_init(&object->references, 1);
    if (yk__debug && !s->origin)
        s->origin =
            calloc(1, sizeof(*s->origin)); /* without it the object is only recognised, and its origin is not known */
    if (s->origin)
        *s->origin = (origin){0};
    return object;
}

void *yk__object_new(const yk__type *type, size_t size)
{
    yk__object *object = yk__object_alloc(type, size);
    if (object)
        memset(object + 1, 0, size - sizeof(*object));
    return object;
}

void yk__object_free(void *memory)
{
    yk__object *object = memory;
    if (!object)
        return;
    slot *s = slot_of(object);
    int size_class = object->size_class;
    atomic_store_explicit(&object->references, FREED, memory_order_relaxed);
    if (s->origin)
        s->origin->ending = yk__object_ending;
    ASAN_POISON_MEMORY_REGION(object + 1, class_bytes(size_class) - sizeof(slot) - sizeof(*object));
    ring_push(size_class, s);
}

void yk__object_set_maker(void *object, const char *maker)
{
    origin *o = slot_of(object)->origin;
    if (o && !o->maker)
        o->maker = strncmp(maker, "yk_", 3) == 0 ? maker + 3 : maker;
}

/* ---- a freed one ------------------------------------------------------------------------------------------------- */

static const char *keep_hint(const yk__object *object)
{
    return strcmp(object->type->name, "tensor") == 0
               ? "keep it with yk_tensor_retain or move it out with yk_scope_return"
               : "keep it with a retain or move it out with yk_scope_return_object";
}

yk_status yk__fail_freed(const char *what, const void *freed)
{
    const yk__object *object = freed;
    const origin *o = slot_of(object)->origin;
    const char *type = object->type->name;
    if (strncmp(what, "yk_", 3) == 0)
        what += 3;
    if (!o)
        return yk__fail(
            YK_ERR_STATE,
            "%s: this %s has been freed: its scope has ended, or it was released once too often; %s (YOKE_DEBUG=1 "
            "names what made it and the scope)",
            what, type, keep_hint(object));
    const yk__ending *e = &o->ending;
    const char *maker = o->maker ? o->maker : "yoke itself";
    if (e->scope_end_file)
        return yk__fail(YK_ERR_STATE,
                        "%s: this %s, made by %s, is used after its scope ended: begun at %s:%d, it ended at %s:%d; %s",
                        what, type, maker, e->scope_begin_file ? e->scope_begin_file : "?", e->scope_begin_line,
                        e->scope_end_file, e->scope_end_line, keep_hint(object));
    return yk__fail(YK_ERR_STATE, "%s: this %s, made by %s, has been freed: %s; %s", what, type, maker,
                    e->how ? e->how : "its last reference was released", keep_hint(object));
}

void yk__fail_released(const char *what, const void *freed)
{
    const yk__object *object = freed;
    const origin *o = slot_of(object)->origin;
    yk__fail(YK_ERR_STATE,
             "%s: this %s%s%s was released once too often: its scope releases what it owns, a program only what it "
             "retained",
             what, object->type->name, o && o->maker ? ", made by " : "", o && o->maker ? o->maker : "");
}
