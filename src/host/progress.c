/*
 * progress.c - what this rank is doing, noted in its page, and its stack on request. Layer: host.
 *
 * Invariants: a slot of the ring is written by one thread at a time: by the one that made its version odd, then, while
 * its operation is under way, by the one that ends that; nobody waits for another (Note [Fields of a page]). The
 * signal's handler calls only what may be called in one: backtrace() has loaded its library before.
 */
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <yoke/base.h>

#include "base/events.h"
#include "host/process.h"
#include "host/profiler.h"
#include "host/progress.h"

/* Frames of a stack that are printed; those further out are left out. */
enum { DEEPEST = 64 };

static yk__rank_page local; /* of a process without a launcher; memory is taken where it is touched */
yk__rank_page *_Atomic yk__progress_own = &local;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool looked;                          /* below the lock */
static atomic_bool under_way[YK__PAGE_RING]; /* the page's slots that are not to be used for another operation */
static atomic_uint trace_seen;               /* the last request for a trace that a step has met */
static atomic_flag printing = ATOMIC_FLAG_INIT;

/* ---- the stack --------------------------------------------------------------------------------------------------- */
static size_t put_number(char *to, unsigned number)
{
    char digits[12];
    size_t count = 0, size = 0;
    do
        digits[count++] = (char)('0' + number % 10);
    while (number /= 10);
    while (count)
        to[size++] = digits[--count];
    return size;
}

static void print_stack(int signal)
{
    (void)signal;
    int before = errno;
    char text[64] = "yoke: stack of thread ";
    size_t size = strlen(text);
    void *frames[DEEPEST];
    int count = backtrace(frames, DEEPEST);
    size += put_number(text + size, (unsigned)syscall(SYS_gettid));
    text[size++] = '\n';
    while (atomic_flag_test_and_set(&printing)) /* one thread after the other; each is in its own handler */
        sched_yield();
    if (write(2, text, size) == (ssize_t)size)
        backtrace_symbols_fd(frames + 1, count > 1 ? count - 1 : 0, 2);
    atomic_flag_clear(&printing);
    errno = before;
}

/* Only where the program has no use of its own for the signal. */
static void answer(yk__rank_page *page, int number)
{
    struct sigaction action = {.sa_handler = print_stack, .sa_flags = SA_RESTART}, old;
    void *frame;
    if (number < 1 || number > SIGRTMAX || sigaction(number, NULL, &old) || old.sa_handler != SIG_DFL)
        return;
    (void)backtrace(&frame, 1);
    sigemptyset(&action.sa_mask);
    if (sigaction(number, &action, NULL) == 0)
        atomic_store(&page->answers, number);
}

/* ---- the page ---------------------------------------------------------------------------------------------------- */
static void page_begin(yk__rank_page *page)
{
    yk__ticks_choose();
    atomic_store(&page->counted, atomic_load(&yk__ticks_counted));
    enum { TRIES = 10, NEAR = 3000 }; /* ticks within which both clocks are to be read, unless the machine is busy */
    uint64_t before, after;
    int tries = 0;
    do {
        before = yk__ticks();
        atomic_store(&page->born, yk__now());
        after = yk__ticks();
    } while (after - before > NEAR && ++tries < TRIES);
    atomic_store(&page->born_ticks, before);
    atomic_store(&page->progressed, before);
    atomic_store(&page->pid, (int)getpid());
    memset(under_way, 0, sizeof(under_way));
    atomic_store_explicit(&yk__progress_own, page, memory_order_release);
}

/* A launcher that wants a trace says so when the process begins (host/profiler.h). */
__attribute__((constructor)) static void look_for_trace(void)
{
    yk__profiler_look();
}

/* In the child of a fork, which has its parent's mapping and is no rank. */
static void page_leave(void)
{
    static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    memcpy(&lock, &fresh, sizeof(lock));
    memset(&local, 0, sizeof(local));
    memset(under_way, 0, sizeof(under_way));
    atomic_store(&trace_seen, 0);
    atomic_store(&yk__progress_own, &local);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, page_leave);
}

void yk__progress_adopt(yk__rank_page *page)
{
    looked = true;
    page_begin(page);
}

/* The page that the variable names, mapped; NULL: none. *number is the signal to answer. */
static yk__rank_page *page_find(int *number)
{
    const char *text = getenv("YOKE_RANK_PAGE");
    int launcher, descriptor, position = -1;
    struct stat about;
    if (!text || sscanf(text, "%d:%d:%d:%d", &launcher, &descriptor, &position, number) < 3 || position < 0)
        return NULL;
    int fd = yk__process_open(launcher, descriptor);
    if (fd < 0)
        return NULL;
    off_t at = (off_t)position * YK__PAGE_SIZE;
    void *page = MAP_FAILED;
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_size >= at + YK__PAGE_SIZE)
        page = mmap(NULL, YK__PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, at);
    close(fd);
    if (page == MAP_FAILED)
        return NULL;
    if (!yk__page_is_known(page)) { /* the launcher's is another version */
        munmap(page, YK__PAGE_SIZE);
        return NULL;
    }
    /* A program that the rank ran before may have written there. */
    if (atomic_load(&((yk__rank_page *)page)->pid))
        memset((char *)page + offsetof(yk__rank_page, pid), 0, sizeof(yk__rank_page) - offsetof(yk__rank_page, pid));
    return page;
}

void yk__progress_look(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    int number = 0;
    yk__rank_page *page = looked ? NULL : page_find(&number);
    if (page) {
        answer(page, number);
        page_begin(page);
    } else if (!looked) {
        page_begin(&local);
    }
    looked = true;
    pthread_mutex_unlock(&lock);
}

void yk__progress_join(int change)
{
    yk__progress_look();
    yk__rank_page *page = yk__progress_page();
    yk__progress_mark();
    atomic_fetch_add(&page->groups, change);
}

void yk__progress_failed(void)
{
    yk__progress_look();
    double never = 0; /* in seconds, since launchers compare it between ranks */
    atomic_compare_exchange_strong(&yk__progress_page()->failed, &never, yk__now());
}

/* ---- phases, steps, counters ------------------------------------------------------------------------------------- */
void yk_progress_phase(const char *text)
{
    yk__progress_look();
    yk__rank_page *page = yk__progress_page();
    uint64_t now = yk__ticks(), ticks = now - atomic_load(&page->born_ticks), before = atomic_load(&page->phase);
    atomic_store_explicit(&page->progressed, now, memory_order_relaxed);
    if (!text) {
        yk__progress_phase_ended(page, before, ticks);
        atomic_store_explicit(&page->phase, yk__page_phase_word(YK__PHASE_NONE, 0, ticks), memory_order_release);
        return;
    }
    unsigned index = atomic_fetch_add(&page->texts, 1) % YK__PAGE_TEXTS;
    unsigned version = atomic_load(&page->text[index].version);
    if (version % 2 || !atomic_compare_exchange_strong(&page->text[index].version, &version, version + 1))
        return; /* seven other threads have been here since: theirs counts */
    size_t length = strnlen(text, YK__PAGE_TEXT - 1);
    memcpy(page->text[index].text, text, length);
    memset(page->text[index].text + length, 0, YK__PAGE_TEXT - length);
    atomic_store_explicit(&page->text[index].version, version + 2, memory_order_release);
    yk__progress_phase_ended(page, before, ticks);
    atomic_store_explicit(&page->phase, yk__page_phase_word(YK__PHASE_OWN, index, ticks), memory_order_release);
}

void yk__progress_step_at(uint64_t now)
{
    yk__rank_page *page = yk__progress_page();
    now = now ? now : yk__ticks();
    atomic_store_explicit(&page->stepped, now, memory_order_relaxed);
    atomic_store_explicit(&page->progressed, now,
                          memory_order_relaxed); /* phases do not where the program has its own */
    uint64_t number = 1 + atomic_fetch_add_explicit(&page->steps, 1, memory_order_relaxed);
    yk__events_step(number);
    unsigned asked = atomic_load_explicit(&page->trace_asked, memory_order_acquire);
    if (__builtin_expect(asked != atomic_load_explicit(&trace_seen, memory_order_relaxed), 0) &&
        atomic_exchange(&trace_seen, asked) != asked)
        yk__profiler_asked(page, asked);
}

void yk_progress_loss(double loss, int64_t samples)
{
    yk__progress_look();
    yk__rank_page *page = yk__progress_page();
    if (samples > 0)
        atomic_fetch_add_explicit(&page->samples, (uint64_t)samples, memory_order_relaxed);
    atomic_store_explicit(&page->loss, loss, memory_order_relaxed);
    atomic_fetch_add_explicit(&page->losses, 1, memory_order_release);
}

int yk__progress_counter(const char *name)
{
    yk__rank_page *page = yk__progress_page();
    char text[sizeof(page->counters[0].name)] = "";
    snprintf(text, sizeof(text), "%s", name);
    for (int i = 0; i < YK__PAGE_COUNTERS; i++) {
        unsigned state = 0;
        if (atomic_compare_exchange_strong(&page->counters[i].state, &state, 1)) {
            memcpy(page->counters[i].name, text, sizeof(text));
            atomic_store_explicit(&page->counters[i].state, 2, memory_order_release);
            return i;
        }
        for (int tries = 0; state == 1 && tries < 1000; tries++) /* another thread writes a name of 52 bytes */
            state = atomic_load_explicit(&page->counters[i].state, memory_order_acquire);
        if (state == 2 && memcmp(page->counters[i].name, text, sizeof(text)) == 0)
            return i;
    }
    return -1;
}

/* ---- operations -------------------------------------------------------------------------------------------------- */
/* A slot for one thread, its version odd; -1 where all are under way. */
static int slot_take(yk__rank_page *page, unsigned *version)
{
    for (int tries = 0; tries < YK__PAGE_RING; tries++) {
        int entry = (int)(atomic_fetch_add_explicit(&page->begun, 1, memory_order_relaxed) % YK__PAGE_RING);
        yk__page_slot *slot = &page->ring[entry];
        *version = atomic_load_explicit(&slot->version, memory_order_acquire);
        if (*version % 2 == 0 && !atomic_load_explicit(&under_way[entry], memory_order_relaxed) &&
            atomic_compare_exchange_strong_explicit(&slot->version, version, *version + 1, memory_order_acq_rel,
                                                    memory_order_relaxed)) {
            atomic_store_explicit(&under_way[entry], true, memory_order_relaxed);
            return entry;
        }
    }
    return -1;
}

int yk__progress_begin(const yk__page_operation *operation)
{
    yk__rank_page *page = yk__progress_page();
    uint64_t now = operation->began ? operation->began : yk__ticks();
    unsigned version;
    int entry = slot_take(page, &version);
    atomic_store_explicit(&page->progressed, now, memory_order_relaxed);
    if (entry < 0)
        return -1;
    yk__page_slot *slot = &page->ring[entry];
    slot->operation = *operation;
    slot->operation.began = now;
    slot->operation.ended = 0;
    atomic_store_explicit(&slot->version, version + 2, memory_order_release);
    return entry;
}

void yk__progress_end_at(int entry, uint64_t now)
{
    yk__rank_page *page = yk__progress_page();
    if (entry < 0)
        return;
    yk__page_slot *slot = &page->ring[entry];
    now = now ? now : yk__ticks();
    atomic_store_explicit(&page->progressed, now, memory_order_relaxed);
    if (!atomic_load_explicit(&under_way[entry], memory_order_relaxed))
        return; /* it began before this process had its launcher's page */
    unsigned version = atomic_load_explicit(&slot->version, memory_order_relaxed);
    atomic_store_explicit(&slot->version, version + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    slot->operation.ended = now;
    atomic_store_explicit(&slot->version, version + 2, memory_order_release);
    if (slot->operation.what == YK__WHAT_COLLECTIVE && now > slot->operation.began)
        atomic_fetch_add_explicit(&page->waited, now - slot->operation.began, memory_order_relaxed);
    atomic_store_explicit(&under_way[entry], false, memory_order_release);
}

/* Writes a slot of `calls`, which this process alone writes, and one thread at a time. */
static void call_write(yk__page_slot *slot, const yk__page_operation *call)
{
    unsigned version = atomic_load_explicit(&slot->version, memory_order_relaxed);
    atomic_store_explicit(&slot->version, version + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    slot->operation = *call;
    atomic_store_explicit(&slot->version, version + 2, memory_order_release);
}

int yk__progress_call_begin(const yk__page_operation *call)
{
    yk__rank_page *page = yk__progress_page();
    for (int entry = 0; entry < YK__PAGE_CALLS; entry++) {
        yk__page_slot *slot = &page->calls[entry];
        if (slot->operation.number)
            continue;
        yk__page_operation noted = *call;
        noted.began = yk__ticks();
        call_write(slot, &noted);
        return entry;
    }
    return -1;
}

void yk__progress_call_end(int entry)
{
    if (entry >= 0)
        call_write(&yk__progress_page()->calls[entry], &(yk__page_operation){0});
}
