/*
 * progress.c - the record of what this rank is doing, and its stack on request. Layer: base.
 *
 * Invariants: entries are written under one lock, with an odd version meanwhile; nothing here fails a program: a
 * record that is not there, or not to be mapped, is none. The signal's handler calls only what may be called in one:
 * backtrace() has loaded its library before.
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

#include "base/process.h"
#include "base/progress.h"

/* Frames of a stack that are printed; those further out are left out. */
enum { DEEPEST = 64 };

yk__progress_record *_Atomic yk__progress_own;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static yk__progress_record *mapped; /* also where nobody watches; both below the lock */
static bool looked;
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
static void answer(yk__progress_record *record, int number)
{
    struct sigaction action = {.sa_handler = print_stack, .sa_flags = SA_RESTART}, old;
    void *frame;
    if (number < 1 || number > SIGRTMAX || sigaction(number, NULL, &old) || old.sa_handler != SIG_DFL)
        return;
    (void)backtrace(&frame, 1);
    sigemptyset(&action.sa_mask);
    if (sigaction(number, &action, NULL) == 0)
        atomic_store(&record->answers, number);
}

/* ---- the record -------------------------------------------------------------------------------------------------- */
/* With the lock held, or before there is another thread. */
static void begin_record(yk__progress_record *record, bool watched)
{
    yk__progress_set_time(record);
    atomic_store(&record->pid, (int)getpid());
    mapped = record;
    atomic_store_explicit(&yk__progress_own, watched ? record : NULL, memory_order_release);
}

void yk__progress_adopt(yk__progress_record *record, bool watched)
{
    looked = true;
    begin_record(record, watched);
}

/* With the lock held. */
static void look(void)
{
    const char *text = getenv("YOKE_PROGRESS");
    int launcher, descriptor, index = -1, watched = 0, number = 0;
    struct stat about;
    looked = true;
    if (!text || sscanf(text, "%d:%d:%d:%d:%d", &launcher, &descriptor, &index, &watched, &number) < 4 || index < 0)
        return;
    int fd = yk__process_open(launcher, descriptor);
    if (fd < 0)
        return;
    off_t at = (off_t)index * YK__PROGRESS_PAGE;
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_size >= at + YK__PROGRESS_PAGE) {
        yk__progress_record *record = mmap(NULL, YK__PROGRESS_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, at);
        if (record != MAP_FAILED) {
            memset(record, 0, sizeof(*record));
            answer(record, number);
            begin_record(record, watched);
        }
    }
    close(fd);
}

void yk__progress_set_time(yk__progress_record *record)
{
    atomic_store_explicit(&record->progressed, yk__now(), memory_order_relaxed);
}

void yk__progress_join(int change)
{
    pthread_mutex_lock(&lock);
    if (!looked)
        look();
    pthread_mutex_unlock(&lock);
    yk__progress_record *record = atomic_load(&yk__progress_own);
    if (!record || atomic_load(&record->pid) != (int)getpid()) /* a fork is no rank */
        return;
    yk__progress_set_time(record);
    atomic_fetch_add(&record->groups, change);
}

void yk__progress_failed(void)
{
    pthread_mutex_lock(&lock);
    if (!looked)
        look();
    if (mapped && atomic_load(&mapped->pid) == (int)getpid() && atomic_load(&mapped->failed) == 0)
        atomic_store(&mapped->failed, yk__now());
    pthread_mutex_unlock(&lock);
}

/* The entry of the operation that ended first, and is wanted least; -1 where all are under way. */
static int oldest_entry(const yk__progress_record *record)
{
    int oldest = -1;
    for (int i = 0; i < YK__PROGRESS_OPERATIONS; i++) {
        const yk__progress_operation *o = &record->entries[i].operation;
        if (!o->number)
            return i;
        if (o->ended > 0 && (oldest < 0 || o->ended < record->entries[oldest].operation.ended))
            oldest = i;
    }
    return oldest;
}

int yk__progress_begin(const yk__progress_operation *operation)
{
    yk__progress_record *record = atomic_load_explicit(&yk__progress_own, memory_order_acquire);
    if (!record)
        return -1;
    yk__progress_set_time(record);
    pthread_mutex_lock(&lock);
    int entry = oldest_entry(record);
    if (entry >= 0) {
        atomic_fetch_add(&record->entries[entry].version, 1);
        record->entries[entry].operation = *operation;
        record->entries[entry].operation.began = yk__now();
        record->entries[entry].operation.ended = 0;
        atomic_fetch_add(&record->entries[entry].version, 1);
    }
    pthread_mutex_unlock(&lock);
    return entry;
}

void yk__progress_end(int entry)
{
    yk__progress_record *record = atomic_load_explicit(&yk__progress_own, memory_order_acquire);
    if (!record || entry < 0)
        return;
    yk__progress_set_time(record);
    pthread_mutex_lock(&lock);
    atomic_fetch_add(&record->entries[entry].version, 1);
    record->entries[entry].operation.ended = yk__now();
    atomic_fetch_add(&record->entries[entry].version, 1);
    pthread_mutex_unlock(&lock);
}
