/*
 * events.h - what a thread did, and when: the hooks of traces (yoke/profiler.h). Layer: base.
 *
 * A hook costs a load and a branch while nothing is recorded. While something is, each thread writes its events into a
 * ring of its own, which holds the last of them, and nobody waits for anybody.
 *
 * Note [Rings of events]
 * A ring is written by its thread alone. Around a write it is marked as busy, and the thread looks again whether events
 * are recorded; who stops the recording waits until no ring is busy. From then until the rings are released they stand
 * still, and anybody may read them. Both sides store and then load, in one order for all (seq_cst), so that one of them
 * sees the other.
 */
#ifndef YOKE_BASE_EVENTS_H
#define YOKE_BASE_EVENTS_H

#include "base/core.h"

typedef enum yk__event_kind {
    YK__EVENT_OPERATION, /* forward, on the host */
    YK__EVENT_BACKWARD,  /* of an operation, or a whole backward pass */
    YK__EVENT_OPTIMIZER,
    YK__EVENT_KERNEL,     /* put on the queue of a device that is no CPU */
    YK__EVENT_COLLECTIVE, /* carried out by this thread */
    YK__EVENT_MESSAGE,    /* begun by this thread */
    YK__EVENT_WAIT,       /* for a collective or a message */
    YK__EVENT_LOAD,       /* the program takes a batch */
    YK__EVENT_WORKER,     /* a thread of a loader makes one */
    YK__EVENT_SAVE,
    YK__EVENT_CALL,   /* of another process (RPC), or for one */
    YK__EVENT_RANGE,  /* that the program has named */
    YK__EVENT_STEP,   /* a moment: a step of an optimizer was applied */
    YK__EVENT_MEMORY, /* a moment: `count` bytes are in use */
    YK__EVENT_KINDS
} yk__event_kind;

typedef enum yk__event_detail {
    YK__DETAIL_NONE,
    YK__DETAIL_SHAPES, /* the next slot is a yk__event_shapes */
    YK__DETAIL_TEXT,   /* the next slot is a text that ends */
    YK__DETAIL_NAME,   /* likewise, and it is the event's name */
    YK__DETAIL_ITSELF  /* this slot is the detail of the one before */
} yk__event_detail;

enum { YK__EVENT_BYTES = 64, YK__EVENT_SIZES = 13, YK__EVENT_TEXT = 52 };
/* The `sequence` of an operation that has failed. */
#define YK__EVENT_FAILED UINT32_MAX

typedef struct yk__event {
    uint64_t began, ended; /* ticks (base/ticks.h) */
    const char *name;      /* static */
    double flops;          /* multiplications and additions of products and convolutions; 0: none, or not known */
    uint64_t number;       /* of a collective or a message of its group, of a step, of a batch */
    int64_t count;         /* elements, samples or bytes; 0: not said */
    int32_t peer;          /* rank; -1: none */
    uint8_t kind, detail;  /* yk__event_kind, yk__event_detail */
    uint16_t own;          /* this rank in the group of a collective or a message */
    uint32_t sequence;     /* of a message: among those of its pair of ranks and tag, from 1; 0: not counted */
    int32_t tag;           /* of a message */
} yk__event;
_Static_assert(sizeof(yk__event) == YK__EVENT_BYTES, "an event is a line of a cache");

/* Sizes of tensors: for each the number of dimensions, then those. What does not fit is left out. */
typedef struct yk__event_shapes {
    uint32_t sizes[YK__EVENT_SIZES];
    uint8_t used, detail; /* detail: YK__DETAIL_ITSELF, where an event has its own */
    uint8_t unused[10];
} yk__event_shapes;
_Static_assert(sizeof(yk__event_shapes) == YK__EVENT_BYTES &&
                   offsetof(yk__event_shapes, detail) == offsetof(yk__event, detail),
               "the detail of an event is a slot, and is told from one");

/* An event that is under way, on the stack of its function. */
typedef struct yk__event_open {
    uint64_t began; /* 0: nothing is recorded, and nothing else is set */
    yk__event event;
    double flops_before;
    struct yk__event_open *outer;
    yk__event_shapes shapes;
    char text[YK__EVENT_TEXT];
} yk__event_open;

extern atomic_bool yk__events_on;
extern atomic_bool yk__events_with_shapes, yk__events_with_memory; /* of the recording */
extern atomic_bool yk__events_counting;                            /* steps are counted, though nothing is recorded */

static inline bool yk__events_recorded(void)
{
    return __builtin_expect(atomic_load_explicit(&yk__events_on, memory_order_relaxed), 0);
}

void yk__event_begin_now(yk__event_open *open, yk__event_kind kind, const char *name);
void yk__event_end_now(yk__event_open *open);
static inline void yk__event_end(yk__event_open *open)
{
    if (__builtin_expect(open->began != 0, 0))
        yk__event_end_now(open);
}
/* From here to the end of the block is an event. `name` is static. */
#define YK__EVENT(kind, name)                                                                                          \
    __attribute__((cleanup(yk__event_end))) yk__event_open event_here;                                                 \
    event_here.began = 0;                                                                                              \
    (void)(yk__events_recorded() && (yk__event_begin_now(&event_here, (kind), (name)), true))
/* The same where it has a number, a count and a peer; they are evaluated where events are recorded alone. */
#define YK__EVENT_OF(kind, name, its_number, its_count, its_peer)                                                      \
    YK__EVENT(kind, name);                                                                                             \
    if (__builtin_expect(event_here.began != 0, 0)) {                                                                  \
        event_here.event.number = (uint64_t)(its_number);                                                              \
        event_here.event.count = (int64_t)(its_count);                                                                 \
        event_here.event.peer = (int32_t)(its_peer);                                                                   \
    }                                                                                                                  \
    ((void)0)

/* The innermost event of this thread that is under way; NULL: none. */
yk__event_open *yk__event_innermost(void);
/* Adds the sizes of a tensor to the event under way, where shapes are recorded. */
void yk__event_add_shape(yk__event_open *open, int ndim, const int64_t *shape);
/* A text that says more, cut to YK__EVENT_TEXT - 1 bytes. */
void yk__event_set_text(yk__event_open *open, const char *text);

/* The events under way on this thread have done so many floating-point operations. */
void yk__event_add_work(double flops);
static inline void yk__event_work(double flops)
{
    if (yk__events_recorded())
        yk__event_add_work(flops);
}

/* A kernel that was queued since then; 0: none. */
uint64_t yk__event_ticks(void);
void yk__event_kernel_now(uint64_t began, const char *name);
static inline void yk__event_kernel(uint64_t began, const char *name)
{
    if (__builtin_expect(began != 0, 0))
        yk__event_kernel_now(began, name);
}

/* The name of this thread in traces, as "loader"; `of` is put behind it, or NULL. Costs a copy of 31 bytes. */
void yk__event_thread_name(const char *name, const char *of);

/* Notes a moment of this thread; `number` is of a step, `count` of bytes. */
void yk__event_moment(yk__event_kind kind, const char *name, uint64_t number, int64_t count);
/* An event whose name is copied (YK__EVENT_TEXT - 1 bytes), of ranges that the program begins and ends. */
void yk__event_range_begin(const char *name);
void yk__event_range_end(void);

/* A step was applied. `number` counts the process's. */
void yk__events_step_now(uint64_t number);
static inline void yk__events_step(uint64_t number)
{
    if (__builtin_expect(atomic_load_explicit(&yk__events_counting, memory_order_relaxed), 0))
        yk__events_step_now(number);
}

/* ---- recording --------------------------------------------------------------------------------------------------- */
typedef struct yk__events_options {
    bool with_shapes, with_memory;
    int64_t wait, active; /* steps before the recording, and in it; active 0: until it is stopped */
    size_t memory;        /* bytes that rings may take in all; each thread has a quarter of a megabyte at least */
    void (*complete)(void *argument); /* called by the thread that applied the last step of `active`; or NULL */
    void *argument;
} yk__events_options;
/* Begins, or waits for the steps; false where a recording is under way, or not released yet. */
bool yk__events_start(const yk__events_options *options);
bool yk__events_started(void);
/* Stops writing. The rings stand still until yk__events_release. False where nothing was started, or it was stopped
 * already by another thread. */
bool yk__events_stop(void);
void yk__events_release(void);

/* The ticks, and nanoseconds of CLOCK_MONOTONIC and CLOCK_REALTIME, of two moments: of the start and of now. */
typedef struct yk__events_clock {
    uint64_t ticks[2];
    int64_t monotonic[2], real[2];
} yk__events_clock;
void yk__events_clock_read(yk__events_clock *clock);
int64_t yk__events_ns(const yk__events_clock *clock, uint64_t ticks); /* of CLOCK_MONOTONIC */

/* ---- reading, between stop and release --------------------------------------------------------------------------- */
typedef struct yk__event_ring yk__event_ring;
yk__event_ring *yk__event_rings(void); /* the first; NULL: none */
yk__event_ring *yk__event_ring_next(const yk__event_ring *ring);
int yk__event_ring_thread(const yk__event_ring *ring, char name[32]); /* its number in the system, and its name */
/* Slots are numbered from the first that is still there. */
size_t yk__event_ring_count(const yk__event_ring *ring);
const yk__event *yk__event_ring_slot(const yk__event_ring *ring, size_t index);
uint64_t yk__event_ring_lost(const yk__event_ring *ring); /* slots that newer ones have replaced, or had no memory */
uint64_t yk__events_began(void);                          /* ticks; what began earlier is not to be shown */

#endif
