/*
 * events.c - the rings of events, one of each thread. Layer: base.
 *
 * A ring is a list of chunks, which grows until the recording's memory is used up; then its thread goes round in what
 * it has. Invariants: slot i of a ring is in chunk i / PER_CHUNK, modulo the number of chunks once that no longer
 * grows; a detail stands right behind its event. Rings of threads that have ended stay until the recording is released.
 */
#include "base/events.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/ticks.h"

enum { PER_CHUNK = 4096, DEEPEST = 32 /* ranges of the program, one in the other */ };
typedef struct event_chunk {
    yk__event slots[PER_CHUNK];
} event_chunk;

struct yk__event_ring {
    yk__event_ring *next;
    atomic_bool busy, dead;
    int thread;
    char name[32];
    event_chunk **chunks;
    size_t n_chunks, room; /* of the list */
    bool full;             /* goes round in its chunks */
    uint64_t written, lost;
};

atomic_bool yk__events_on, yk__events_with_shapes, yk__events_with_memory, yk__events_counting;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what follows, and of the list of rings */
static bool started, stopped;
static yk__event_ring *first;
static yk__events_options recording;
static int64_t steps;
static atomic_size_t chunks_left;
static yk__events_clock born;
static pthread_key_t ring_key;

static _Thread_local yk__event_ring *own_ring;
static _Thread_local yk__event_open *innermost;
static _Thread_local double flops_done;
static _Thread_local yk__event_open *ranges; /* DEEPEST, made at the first */
static _Thread_local int n_ranges;
static _Thread_local char thread_name[32];

/* ---- rings ------------------------------------------------------------------------------------------------------- */
static void thread_leave(void *ring)
{
    atomic_store(&((yk__event_ring *)ring)->dead, true);
    own_ring = NULL;
    innermost = NULL;
    free(ranges);
    ranges = NULL;
    n_ranges = 0;
}

/* In the child of a fork nothing is recorded; the rings stay what they were for its parent. */
static void child_begin(void)
{
    static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    memcpy(&lock, &fresh, sizeof(lock));
    atomic_store(&yk__events_on, false);
    atomic_store(&yk__events_counting, false);
    started = stopped = false;
    first = NULL;
    own_ring = NULL;
}

static void prepare(void)
{
    yk__ticks_choose();
    pthread_key_create(&ring_key, thread_leave);
    pthread_atfork(NULL, NULL, child_begin);
}

static void prepare_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, prepare);
}

/* NULL without memory: the thread's events are lost then. */
static yk__event_ring *ring_create(void)
{
    yk__event_ring *ring = calloc(1, sizeof(*ring));
    if (!ring)
        return NULL;
    ring->thread = (int)syscall(SYS_gettid);
    snprintf(ring->name, sizeof(ring->name), "%s",
             thread_name[0]                  ? thread_name
             : ring->thread == (int)getpid() ? "main"
                                             : "thread");
    pthread_setspecific(ring_key, ring);
    pthread_mutex_lock(&lock);
    ring->next = first;
    first = ring;
    pthread_mutex_unlock(&lock);
    own_ring = ring;
    return ring;
}

static bool chunk_may_be_made(void)
{
    size_t left = atomic_load_explicit(&chunks_left, memory_order_relaxed);
    while (left > 0) {
        if (atomic_compare_exchange_weak(&chunks_left, &left, left - 1))
            return true;
    }
    return false;
}

/* One more chunk; false where the ring is to go round. */
static bool ring_grow(yk__event_ring *ring)
{
    if (ring->n_chunks && !chunk_may_be_made())
        return false;
    if (ring->n_chunks == ring->room) {
        size_t room = ring->room ? 2 * ring->room : 8;
        event_chunk **chunks = realloc(ring->chunks, room * sizeof(*chunks));
        if (!chunks)
            return false;
        ring->chunks = chunks;
        ring->room = room;
    }
    event_chunk *chunk = malloc(sizeof(*chunk)); /* the system gives memory where it is touched */
    if (!chunk)
        return false;
    ring->chunks[ring->n_chunks++] = chunk;
    return true;
}

static yk__event *slot_at(const yk__event_ring *ring, uint64_t index)
{
    return &ring->chunks[index / PER_CHUNK % ring->n_chunks]->slots[index % PER_CHUNK];
}

/* The next slot, to be written; NULL without memory. */
static yk__event *slot_next(yk__event_ring *ring)
{
    if (ring->written % PER_CHUNK == 0 && !ring->full && ring->written / PER_CHUNK == ring->n_chunks)
        ring->full = !ring_grow(ring);
    if (ring->n_chunks == 0) {
        ring->full = false;
        ring->lost++;
        return NULL;
    }
    return slot_at(ring, ring->written++);
}

/* See Note [Rings of events]. */
static void write_event(const yk__event *event, const void *detail)
{
    yk__event_ring *ring = own_ring ? own_ring : ring_create();
    if (!ring)
        return;
    atomic_store(&ring->busy, true);
    if (atomic_load(&yk__events_on)) {
        yk__event *slot = slot_next(ring);
        if (slot) {
            *slot = *event;
            yk__event *behind = detail ? slot_next(ring) : NULL;
            if (behind)
                memcpy(behind, detail, sizeof(*behind));
        }
    }
    atomic_store_explicit(&ring->busy, false, memory_order_release);
}

/* ---- events ------------------------------------------------------------------------------------------------------ */
yk__event_open *yk__event_innermost(void)
{
    return innermost;
}

void yk__event_begin_now(yk__event_open *open, yk__event_kind kind, const char *name)
{
    open->event.name = name;
    open->event.kind = (uint8_t)kind;
    open->event.detail = YK__DETAIL_NONE;
    open->event.number = 0;
    open->event.count = 0;
    open->event.peer = -1;
    open->event.own = 0;
    open->event.sequence = 0;
    open->event.tag = 0;
    open->shapes.used = 0;
    open->flops_before = flops_done;
    open->outer = innermost;
    innermost = open;
    open->began = yk__ticks();
}

void yk__event_end_now(yk__event_open *open)
{
    yk__event detail = {0};
    yk__event *e = &open->event;
    innermost = open->outer;
    e->began = open->began;
    e->ended = yk__ticks();
    e->flops = flops_done - open->flops_before;
    if (e->detail == YK__DETAIL_NONE && open->shapes.used == 0) {
        write_event(e, NULL);
        return;
    }
    if (e->detail == YK__DETAIL_NONE) {
        e->detail = YK__DETAIL_SHAPES;
        memcpy(&detail, &open->shapes, sizeof(detail));
    } else {
        memcpy(&detail, open->text, sizeof(open->text));
    }
    detail.detail = YK__DETAIL_ITSELF;
    write_event(e, &detail);
}

/* The events that are under way on this thread end with the recording. */
static void end_all(void)
{
    while (innermost) {
        yk__event_open *open = innermost;
        yk__event_end_now(open);
        open->began = 0;
    }
}

void yk__event_add_shape(yk__event_open *open, int ndim, const int64_t *shape)
{
    yk__event_shapes *s = &open->shapes;
    if (s->used + 1 + ndim > YK__EVENT_SIZES)
        return;
    s->sizes[s->used++] = (uint32_t)ndim;
    for (int d = 0; d < ndim; d++)
        s->sizes[s->used++] = shape[d] > UINT32_MAX ? UINT32_MAX : (uint32_t)shape[d];
}

void yk__event_set_text(yk__event_open *open, const char *text)
{
    snprintf(open->text, sizeof(open->text), "%s", text);
    open->event.detail = YK__DETAIL_TEXT;
}

void yk__event_add_work(double flops)
{
    flops_done += flops;
}

uint64_t yk__event_ticks(void)
{
    return yk__ticks();
}

void yk__event_kernel_now(uint64_t began, const char *name)
{
    const yk__event event = {.began = began, .ended = yk__ticks(), .name = name, .peer = -1, .kind = YK__EVENT_KERNEL};
    write_event(&event, NULL);
}

void yk__event_thread_name(const char *name, const char *of)
{
    snprintf(thread_name, sizeof(thread_name), "%s%s%s", name, of ? " " : "", of ? of : "");
}

void yk__event_moment(yk__event_kind kind, const char *name, uint64_t number, int64_t count)
{
    uint64_t now = yk__ticks();
    const yk__event event = {
        .began = now, .ended = now, .name = name, .number = number, .count = count, .peer = -1, .kind = (uint8_t)kind};
    write_event(&event, NULL);
}

void yk__event_range_begin(const char *name)
{
    if (!ranges && yk__events_recorded())
        ranges = calloc(DEEPEST, sizeof(*ranges));
    if (ranges && n_ranges < DEEPEST) {
        ranges[n_ranges].began = 0;
        if (yk__events_recorded()) {
            yk__event_begin_now(&ranges[n_ranges], YK__EVENT_RANGE, "range");
            yk__event_set_text(&ranges[n_ranges], name ? name : "(null)");
            ranges[n_ranges].event.detail = YK__DETAIL_NAME;
            innermost = ranges[n_ranges].outer; /* what is inside may end later */
        }
    }
    if (ranges)
        n_ranges++;
}

void yk__event_range_end(void)
{
    if (n_ranges == 0)
        return;
    n_ranges--;
    if (n_ranges >= DEEPEST || !ranges[n_ranges].began)
        return;
    ranges[n_ranges].outer = innermost;
    yk__event_end_now(&ranges[n_ranges]);
}

/* ---- recording --------------------------------------------------------------------------------------------------- */
static int64_t clock_ns(clockid_t which)
{
    struct timespec t;
    clock_gettime(which, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Takes the clocks within 3,000 ticks of each other, unless the machine is busy. */
static void clock_take(yk__events_clock *clock, int which)
{
    enum { TRIES = 10, NEAR = 3000 };
    uint64_t before, after;
    int tries = 0;
    do {
        before = yk__ticks();
        clock->monotonic[which] = clock_ns(CLOCK_MONOTONIC);
        after = yk__ticks();
    } while (after - before > NEAR && ++tries < TRIES);
    clock->ticks[which] = before + (after - before) / 2;
    clock->real[which] = clock_ns(CLOCK_REALTIME) - (clock_ns(CLOCK_MONOTONIC) - clock->monotonic[which]);
}

void yk__events_clock_read(yk__events_clock *clock)
{
    *clock = born;
    clock_take(clock, 1);
}

int64_t yk__events_ns(const yk__events_clock *c, uint64_t ticks)
{
    double passed = (double)(int64_t)(c->ticks[1] - c->ticks[0]);
    double scale = passed > 0 ? (double)(c->monotonic[1] - c->monotonic[0]) / passed : 1;
    return c->monotonic[0] + (int64_t)((double)(int64_t)(ticks - c->ticks[0]) * scale);
}

bool yk__events_start(const yk__events_options *options)
{
    prepare_once();
    pthread_mutex_lock(&lock);
    bool fine = !started;
    if (fine) {
        started = true;
        stopped = false;
        recording = *options;
        steps = 0;
        atomic_store(&chunks_left, options->memory / sizeof(event_chunk));
        atomic_store(&yk__events_with_shapes, options->with_shapes);
        atomic_store(&yk__events_with_memory, options->with_memory);
        clock_take(&born, 0);
        atomic_store(&yk__events_counting, true);
        atomic_store(&yk__events_on, options->wait <= 0);
    }
    pthread_mutex_unlock(&lock);
    return fine;
}

bool yk__events_started(void)
{
    pthread_mutex_lock(&lock);
    bool is = started;
    pthread_mutex_unlock(&lock);
    return is;
}

void yk__events_step_now(uint64_t number)
{
    void (*complete)(void *) = NULL;
    void *argument = NULL;
    pthread_mutex_lock(&lock);
    bool counts = started && !stopped;
    steps += counts;
    bool begins = counts && recording.wait > 0 && steps == recording.wait;
    bool ends = counts && recording.active > 0 && steps == recording.wait + recording.active;
    if (begins)
        atomic_store(&yk__events_on, true);
    if (ends) {
        complete = recording.complete;
        argument = recording.argument;
    }
    pthread_mutex_unlock(&lock);
    if (!begins && yk__events_recorded()) /* the step that has ended is not in it */
        yk__event_moment(YK__EVENT_STEP, "step", number, 0);
    if (ends) {
        end_all();
        atomic_store(&yk__events_on, false);
    }
    if (complete)
        complete(argument);
}

bool yk__events_stop(void)
{
    pthread_mutex_lock(&lock);
    bool mine = started && !stopped;
    if (mine && yk__events_recorded()) {
        pthread_mutex_unlock(&lock);
        end_all();
        pthread_mutex_lock(&lock);
        mine = started && !stopped;
    }
    if (mine) {
        stopped = true;
        atomic_store(&yk__events_counting, false);
        atomic_store(&yk__events_on, false);
    }
    yk__event_ring *rings = first;
    pthread_mutex_unlock(&lock);
    for (yk__event_ring *ring = rings; mine && ring; ring = ring->next) {
        while (atomic_load(&ring->busy))
            sched_yield();
    }
    return mine;
}

static void ring_empty(yk__event_ring *ring)
{
    for (size_t i = 0; i < ring->n_chunks; i++)
        free(ring->chunks[i]);
    free(ring->chunks);
    ring->chunks = NULL;
    ring->n_chunks = ring->room = 0;
    ring->full = false;
    ring->written = ring->lost = 0;
}

void yk__events_release(void)
{
    pthread_mutex_lock(&lock);
    for (yk__event_ring **at = &first; *at;) {
        yk__event_ring *ring = *at;
        while (atomic_load(&ring->busy)) /* one that was made since the stop; it finds that nothing is recorded */
            sched_yield();
        ring_empty(ring);
        if (atomic_load(&ring->dead)) {
            *at = ring->next;
            free(ring);
        } else {
            at = &ring->next;
        }
    }
    started = stopped = false;
    pthread_mutex_unlock(&lock);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */
yk__event_ring *yk__event_rings(void)
{
    pthread_mutex_lock(&lock);
    yk__event_ring *ring = first;
    pthread_mutex_unlock(&lock);
    return ring;
}

yk__event_ring *yk__event_ring_next(const yk__event_ring *ring)
{
    return ring->next;
}

int yk__event_ring_thread(const yk__event_ring *ring, char name[32])
{
    memcpy(name, ring->name, sizeof(ring->name));
    return ring->thread;
}

/* The number of the first slot that is still there. */
static uint64_t ring_from(const yk__event_ring *ring)
{
    uint64_t most = (uint64_t)ring->n_chunks * PER_CHUNK;
    return ring->written > most ? ring->written - most : 0;
}

size_t yk__event_ring_count(const yk__event_ring *ring)
{
    return (size_t)(ring->written - ring_from(ring));
}

const yk__event *yk__event_ring_slot(const yk__event_ring *ring, size_t index)
{
    return slot_at(ring, ring_from(ring) + index);
}

uint64_t yk__event_ring_lost(const yk__event_ring *ring)
{
    return ring_from(ring) + ring->lost;
}

uint64_t yk__events_began(void)
{
    return born.ticks[0];
}
