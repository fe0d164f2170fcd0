/*
 * profiler.c - recordings that the program asks for, or a launcher (YOKE_TRACE). Layer: host.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <yoke/profiler.h>

#include "base/events.h"
#include "base/thread.h"
#include "host/process.h"
#include "host/profiler.h"
#include "host/trace_file.h"

enum { LEAST_MEMORY = 1 << 20, MEMORY = 256 << 20 /* bytes of recordings that others ask for */ };

yk_status yk_profiler_start(const yk_profiler_options *options)
{
    YK__OWN_RECORD;
    yk_profiler_options o;
    yk_status status = YK__OPTIONS_TAKE("profiler_start", yk_profiler_options, options, &o);
    if (!status)
        status = yk__check_integer("profiler_start", "wait", o.wait, 0, INT64_MAX);
    if (!status)
        status = yk__check_integer("profiler_start", "active", o.active, 0, INT64_MAX);
    if (!status)
        status = yk__check_integer("profiler_start", "memory", o.memory, LEAST_MEMORY, INT64_MAX);
    if (status)
        return status;
    const yk__events_options recording = {.with_shapes = o.with_shapes,
                                          .with_memory = o.with_memory,
                                          .wait = o.wait,
                                          .active = o.active,
                                          .memory = (size_t)o.memory};
    if (yk__events_start(&recording))
        return YK_OK;
    return yk__fail(YK_ERR_STATE, "profiler_start: a recording is under way in this process already, by "
                                  "yk_profiler_start, yoke run --trace or yoke trace; end it first");
}

yk_status yk_profiler_stop(const char *file)
{
    YK__OWN_RECORD;
    if (!yk__events_stop())
        return yk__fail(YK_ERR_STATE, "profiler_stop: no recording is under way; yk_profiler_start begins one");
    yk_status status = file ? yk__trace_save(file) : YK_OK;
    yk__events_release();
    return status;
}

bool yk_profiler_enabled(void)
{
    return yk__events_started();
}

void yk_profiler_range_begin(const char *name)
{
    yk__event_range_begin(name);
}

void yk_profiler_range_end(void)
{
    yk__event_range_end();
}

/* ---- asked for by a launcher ------------------------------------------------------------------------------------- */
static char launcher_path[4096];
static pid_t launcher_rank; /* this process, as long as the launcher's recording is under way */

bool yk__profiler_is_asked(void)
{
    return launcher_rank == getpid();
}

/* At the end of the rank. A trace that cannot be written is no reason to end otherwise. */
static void launcher_save(void)
{
    if (!yk__profiler_is_asked() || !yk__events_stop())
        return;
    YK__QUESTION;
    if (yk__trace_save(launcher_path))
        fprintf(stderr, "yoke: the trace of this rank is lost: %s\n", yk_last_error()->message);
    yk__events_release();
}

void yk__profiler_look(void)
{
    const char *prefix = getenv("YOKE_TRACE"), *rank = getenv("RANK");
    if (!prefix || !*prefix || !rank || strlen(prefix) > 4000 || strlen(rank) > 64)
        return;
    snprintf(launcher_path, sizeof(launcher_path), "%.4000s.rank%.64s", prefix, rank);
    unsetenv("YOKE_TRACE"); /* of programs that this one starts, none is the rank */
    const yk__events_options options = {.with_shapes = true, .memory = MEMORY};
    if (yk__events_start(&options) && atexit(launcher_save) == 0)
        launcher_rank = getpid();
}

/* ---- asked for while it runs ------------------------------------------------------------------------------------- */
typedef struct request {
    yk__rank_page *page;
    unsigned number;
} request;

/* One at a time: a request is begun by the step that has met it, and a recording is one alone. */
static request under_way;
static atomic_uint recorded_for;    /* the number of the request for which is recorded; 0: none, or it is complete */
static atomic_int answer_file = -1; /* the descriptor of the last answer, until its request is taken back */

/* The rank's answer; the number is written last. */
static void request_answer(const request *r, int file)
{
    atomic_store(&r->page->trace_file, file);
    atomic_store_explicit(&r->page->trace_answered, r->number, memory_order_release);
}

/* The recording in a memory file of this process; -1 where there is no memory. */
static int recording_file(void)
{
    YK__QUESTION;
    int fd = memfd_create("yoke-trace", MFD_CLOEXEC), copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
    FILE *to = copy < 0 ? NULL : fdopen(copy, "w");
    bool failed = !to || yk__trace_write_events(to);
    if (to)
        failed |= fclose(to) != 0;
    else if (copy >= 0)
        close(copy);
    if (failed && fd >= 0)
        close(fd);
    return failed ? -1 : fd;
}

static void *answer_thread(void *argument)
{
    const request r = *(request *)argument;
    int fd = yk__events_stop() ? recording_file() : -1;
    yk__events_release();
    if (atomic_load(&r.page->trace_asked) != r.number) { /* nobody waits for it any more */
        close(fd);
        return NULL;
    }
    atomic_store(&answer_file, fd);
    request_answer(&r, fd < 0 ? YK__NO_TRACE_MEMORY : fd);
    return NULL;
}

/* By the thread that has applied the last step, which goes on at once. */
static void request_complete(void *argument)
{
    pthread_t thread;
    unsigned number = ((const request *)argument)->number;
    if (!atomic_compare_exchange_strong(&recorded_for, &number, 0)) /* it was taken back */
        return;
    if (yk__thread_create(&thread, answer_thread, argument) == 0) {
        pthread_detach(thread);
        return;
    }
    if (yk__events_stop())
        yk__events_release();
    request_answer(argument, YK__NO_TRACE_MEMORY);
}

void yk__profiler_asked(yk__rank_page *page, unsigned number)
{
    int old = atomic_exchange(&answer_file, -1);
    if (old >= 0)
        close(old);
    if (atomic_exchange(&recorded_for, 0) && yk__events_stop()) /* nobody waits for that any more */
        yk__events_release();
    if (number % 2 == 0) /* it was taken back */
        return;
    const request r = {page, number};
    int64_t steps = atomic_load(&page->trace_steps);
    uint64_t behind = atomic_load(&page->trace_behind), now = atomic_load(&page->steps);
    yk__events_options options = {.with_shapes = true,
                                  .wait = behind > now ? (int64_t)(behind - now) : 0,
                                  .active = steps > 0 ? steps : 1,
                                  .memory = MEMORY,
                                  .complete = request_complete,
                                  .argument = &under_way};
    if (yk__events_started()) {
        request_answer(&r, YK__NO_TRACE_BUSY);
        return;
    }
    under_way = r;
    atomic_store(&recorded_for, number);
    if (!yk__events_start(&options)) {
        atomic_store(&recorded_for, 0);
        request_answer(&r, YK__NO_TRACE_BUSY);
    }
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */
uint64_t yk__trace_meeting(yk__rank_page *const *pages, int count, uint64_t ahead)
{
    uint64_t most = 0;
    for (int i = 0; i < count; i++) {
        uint64_t steps = atomic_load(&pages[i]->steps);
        most = steps > most ? steps : most;
    }
    return count ? most + ahead : 0;
}

void yk__trace_ask(yk__asked_rank *asked, yk__rank_page *page, unsigned steps, uint64_t behind, uint64_t far)
{
    unsigned before = atomic_load(&page->trace_asked);
    uint64_t now = atomic_load(&page->steps), apart = behind > now ? behind - now : now - behind;
    *asked = (yk__asked_rank){.page = page, .number = before + 1 + before % 2};
    atomic_store(&page->trace_steps, steps);
    atomic_store(&page->trace_behind, apart <= far ? behind : 0);
    atomic_store_explicit(&page->trace_asked, asked->number, memory_order_release);
}

bool yk__trace_look(yk__asked_rank *asked)
{
    asked->answered = atomic_load_explicit(&asked->page->trace_answered, memory_order_acquire) == asked->number;
    return asked->answered || atomic_load(&asked->page->trace_asked) != asked->number;
}

int yk__trace_open(const yk__asked_rank *asked, bool ended)
{
    int file = asked->answered                                           ? atomic_load(&asked->page->trace_file)
               : ended                                                   ? YK__NO_TRACE_ENDED
               : atomic_load(&asked->page->trace_asked) != asked->number ? YK__NO_TRACE_BUSY
                                                                         : YK__NO_TRACE_LATE;
    if (file < 0)
        return file < -YK__NO_TRACES ? YK__NO_TRACE_LOST : file;
    struct stat about;
    int fd = yk__process_open(atomic_load(&asked->page->pid), file);
    if (fd >= 0 && (fstat(fd, &about) || !S_ISREG(about.st_mode))) { /* reading another thing could wait */
        close(fd);
        return YK__NO_TRACE_LOST;
    }
    return fd >= 0 ? fd : ended ? YK__NO_TRACE_ENDED : YK__NO_TRACE_LOST;
}

void yk__trace_take_back(const yk__asked_rank *asked)
{
    unsigned number = asked->number;
    atomic_compare_exchange_strong(&asked->page->trace_asked, &number, asked->number + 1);
}
