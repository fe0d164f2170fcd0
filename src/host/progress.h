/*
 * progress.h - a rank notes what it is doing in its page (host/rank_page.h). Layer: host.
 *
 * YOKE_RANK_PAGE, "PID:DESCRIPTOR:NUMBER:SIGNAL", says where the page is: of the launcher's memory file
 * (host/process.h) the page with this number. A process maps it when it first joins a process group; without a
 * launcher, and before, it notes the same in a page of its own, which costs no look at who watches. With SIGNAL, a rank
 * that gets it prints the stack of the thread that took it to stderr. Nothing here waits or fails: a page that is not
 * there, or not to be mapped, is that of the process itself.
 */
#ifndef YOKE_HOST_PROGRESS_H
#define YOKE_HOST_PROGRESS_H

#include "base/ticks.h"
#include "host/rank_page.h"

/* Never NULL. The child of a fork has a page of its own: it is no rank. */
extern yk__rank_page *_Atomic yk__progress_own;

static inline yk__rank_page *yk__progress_page(void)
{
    return atomic_load_explicit(&yk__progress_own, memory_order_acquire);
}

/* In a new process: this is its page, whatever its parent and its variables say. */
void yk__progress_adopt(yk__rank_page *page);
/* Looks for the launcher's page, once in a process. */
void yk__progress_look(void);
/* This process is in one more group, or one less (-1). */
void yk__progress_join(int change);
/* A group has failed, or cannot be joined; to be called before the others can learn of it from this rank. */
void yk__progress_failed(void);

/* An operation begins: gives its entry, -1 where all are taken. `began` 0 is now. Any thread. */
int yk__progress_begin(const yk__page_operation *operation);
/* Ends it at these ticks; 0: now. -1 is allowed. */
void yk__progress_end_at(int entry, uint64_t now);
static inline void yk__progress_end(int entry)
{
    yk__progress_end_at(entry, 0);
}

/* A thread waits for the answer to a call, until the end. One thread of the process at a time may be in either; -1: all
 * slots are taken, which yk__progress_call_end takes. */
int yk__progress_call_begin(const yk__page_operation *call);
void yk__progress_call_end(int entry);

/* The rank gets on: a batch, a step of an optimizer, a file. */
static inline void yk__progress_mark(void)
{
    atomic_store_explicit(&yk__progress_page()->progressed, yk__ticks(), memory_order_relaxed);
}

/* Adds the time in the phase of a word that is replaced; `since` are the ticks from the page's birth to now. A phase
 * inside another has none of its own. */
static inline void yk__progress_phase_ended(yk__rank_page *page, uint64_t word, uint64_t since)
{
    uint64_t began = word & (((uint64_t)1 << 48) - 1), ended = since >> 8;
    unsigned kind = yk__page_phase_kind(word);
    if (began && ended > began && kind < YK__PHASES)
        atomic_store_explicit(&page->phase_times[kind],
                              atomic_load_explicit(&page->phase_times[kind], memory_order_relaxed) + ended - began,
                              memory_order_relaxed);
}

/* The rank is in this phase from here on, unless the program has set a text of its own; of several threads the last
 * one counts. Gives the ticks of now, 0 where nothing had to be noted. */
static inline uint64_t yk__progress_phase(yk__phase phase)
{
    yk__rank_page *page = yk__progress_page();
    uint64_t word = atomic_load_explicit(&page->phase, memory_order_relaxed);
    unsigned before = yk__page_phase_kind(word);
    if (before == (unsigned)phase || before == YK__PHASE_OWN)
        return 0;
    uint64_t now = yk__ticks();
    uint64_t since = now - atomic_load_explicit(&page->born_ticks, memory_order_relaxed);
    atomic_store_explicit(&page->progressed, now, memory_order_relaxed);
    atomic_store_explicit(&page->phase, yk__page_phase_word(phase, 0, since), memory_order_relaxed);
    yk__progress_phase_ended(page, word, since);
    return now;
}

/* For YK__IN_PHASE. */
typedef struct yk__phase_inside {
    yk__rank_page *page;
    uint64_t word; /* of the phase around it */
} yk__phase_inside;
static inline yk__phase_inside yk__progress_phase_in(yk__phase phase)
{
    yk__rank_page *page = yk__progress_page();
    yk__phase_inside inside = {page, atomic_load_explicit(&page->phase, memory_order_relaxed)};
    unsigned before = yk__page_phase_kind(inside.word);
    if (before != (unsigned)phase && before != YK__PHASE_OWN)
        atomic_store_explicit(&page->phase, yk__page_phase_word(phase, 0, 0), memory_order_relaxed);
    return inside;
}
static inline void yk__progress_phase_out(const yk__phase_inside *inside)
{
    uint64_t now = atomic_load_explicit(&inside->page->phase, memory_order_relaxed);
    if (now != inside->word && yk__page_phase_kind(now) != YK__PHASE_OWN &&
        yk__page_phase_kind(inside->word) != YK__PHASE_OWN)
        atomic_store_explicit(&inside->page->phase, inside->word, memory_order_relaxed);
}
/* The rank is in this phase until the end of the block, then in the one before, since when it was. What begins the
 * phase is followed by something that takes the time, so this does not (Note [Fields of a page]). */
#define YK__IN_PHASE(phase)                                                                                            \
    __attribute__((cleanup(yk__progress_phase_out), unused)) const yk__phase_inside phase_around =                     \
        yk__progress_phase_in(phase)

/* A step of an optimizer was applied at these ticks, 0: now. The rank gets on, and a trace that somebody asks for
 * begins or ends. */
void yk__progress_step_at(uint64_t now);
static inline void yk__progress_step(void)
{
    yk__progress_step_at(0);
}

/* The counter of this name in this process's page, made where there is none; -1: all are taken. At most 51 bytes. */
int yk__progress_counter(const char *name);
static inline void yk__progress_count(int counter, int64_t amount)
{
    if (counter >= 0)
        atomic_fetch_add_explicit(&yk__progress_page()->counters[counter].value, amount, memory_order_relaxed);
}
static inline void yk__progress_gauge(int counter, int64_t value)
{
    if (counter >= 0)
        atomic_store_explicit(&yk__progress_page()->counters[counter].value, value, memory_order_relaxed);
}

#endif
