/*
 * rank_page.c - reading the page of a rank. Layer: host.
 *
 * Invariant: what comes out is whole and ends, whatever the rank wrote or was killed in.
 */
#include <string.h>

#include "base/ticks.h"
#include "host/rank_page.h"

const char *yk__phase_name(unsigned phase)
{
    static const char *const names[YK__PHASES] = {"none",          "joining",   "loading", "forward", "backward",
                                                  "communication", "optimizer", "saving",  "own"};
    return phase < YK__PHASES ? names[phase] : "unknown";
}

const char *yk__operation_what_name(unsigned what)
{
    static const char *const names[YK__WHATS] = {"collective", "call", "load", "save"};
    return what < YK__WHATS ? names[what] : "unknown";
}

bool yk__page_is_known(const yk__rank_page *page)
{
    return page->magic == YK__PAGE_MAGIC && page->version == YK__PAGE_VERSION && page->size == sizeof(*page);
}

/* Ticks of the page's clock, whatever this process has chosen for itself. */
static uint64_t ticks_of(const yk__rank_page *page)
{
#ifdef __x86_64__
    if (atomic_load(&page->counted))
        return __builtin_ia32_rdtsc();
#else
    (void)page;
#endif
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

double yk__page_time(const yk__rank_page *page, uint64_t ticks)
{
    uint64_t born_ticks = atomic_load(&page->born_ticks);
    double born = atomic_load(&page->born);
    if (!ticks || !born_ticks)
        return 0;
    if (!atomic_load(&page->counted))
        return born + 1e-9 * (double)(int64_t)(ticks - born_ticks);
    double passed = (double)(int64_t)(ticks_of(page) - born_ticks), now = yk__now();
    return passed > 0 ? born + (now - born) * ((double)(int64_t)(ticks - born_ticks) / passed) : born;
}

double yk__page_seconds(const yk__rank_page *page, uint64_t ticks)
{
    uint64_t born_ticks = atomic_load(&page->born_ticks);
    if (!atomic_load(&page->counted))
        return 1e-9 * (double)ticks;
    double passed = (double)(int64_t)(ticks_of(page) - born_ticks), lived = yk__now() - atomic_load(&page->born);
    return passed > 0 && lived > 0 ? (double)ticks * (lived / passed) : 0;
}

double yk__page_phase_seconds(const yk__rank_page *page, yk__phase phase)
{
    return yk__page_seconds(page, atomic_load(&page->phase_times[phase]) << 8);
}

bool yk__page_read(const yk__page_slot *slot, yk__page_operation *o)
{
    for (int tries = 0; tries < 100; tries++) {
        unsigned version = atomic_load_explicit(&slot->version, memory_order_acquire);
        memcpy(o, &slot->operation, sizeof(*o));
        atomic_thread_fence(memory_order_acquire);
        if (version % 2 == 0 && atomic_load_explicit(&slot->version, memory_order_relaxed) == version) {
            o->kind[sizeof(o->kind) - 1] = o->dtype[sizeof(o->dtype) - 1] = '\0';
            o->reduction[sizeof(o->reduction) - 1] = o->group[sizeof(o->group) - 1] = '\0';
            return o->number != 0;
        }
    }
    return false;
}

yk__phase yk__page_phase(const yk__rank_page *page, char text[YK__PAGE_TEXT], double *since)
{
    uint64_t word = atomic_load_explicit(&page->phase, memory_order_acquire);
    unsigned kind = yk__page_phase_kind(word);
    for (int tries = 0; tries < 100; tries++) {
        unsigned index = (unsigned)(word >> 48 & 0xff) % YK__PAGE_TEXTS;
        unsigned version = atomic_load_explicit(&page->text[index].version, memory_order_acquire);
        memcpy(text, page->text[index].text, YK__PAGE_TEXT);
        atomic_thread_fence(memory_order_acquire);
        uint64_t again = atomic_load_explicit(&page->phase, memory_order_relaxed);
        if (again == word && (version % 2 == 0 && atomic_load(&page->text[index].version) == version))
            break;
        word = again;
        kind = yk__page_phase_kind(word);
        text[0] = '\0';
    }
    text[YK__PAGE_TEXT - 1] = '\0';
    if (kind != YK__PHASE_OWN)
        text[0] = '\0';
    uint64_t passed = (word & (((uint64_t)1 << 48) - 1)) << 8;
    uint64_t ticks = passed ? atomic_load(&page->born_ticks) + passed : atomic_load(&page->progressed);
    *since = word ? yk__page_time(page, ticks) : 0;
    return kind < YK__PHASES ? (yk__phase)kind : YK__PHASE_NONE;
}

const char *yk__page_counter(const yk__rank_page *page, int index, char name[52], int64_t *value)
{
    if (atomic_load_explicit(&page->counters[index].state, memory_order_acquire) != 2)
        return NULL;
    memcpy(name, page->counters[index].name, 52);
    name[51] = '\0';
    *value = atomic_load(&page->counters[index].value);
    return name;
}
