/*
 * trace_file.c - writes recorded events. Layer: host.
 *
 * Invariant: on one thread events nest strictly, in whole nanoseconds: they are written in the order of their begins,
 * the longer first, and one that would end after what is around it ends with that.
 */
#include "host/trace_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/escape.h"
#include "base/events.h"
#include "host/file.h"
#include "host/process.h"
#include "host/rank_info.h"
#include "host/trace_line.h"

enum { DEEPEST = 256 /* events in each other that are looked at, far more than functions that are */ };

static yk__trace_clock own_clock;

void yk__trace_clock_set(yk__trace_clock clock)
{
    own_clock = clock;
}

yk__trace_clock yk__trace_clock_get(void)
{
    return own_clock;
}

/* ---- one rank ---------------------------------------------------------------------------------------------------- */
static const char *kind_category(unsigned kind)
{
    static const char *const names[YK__EVENT_KINDS] = {"op",      "backward", "optimizer", "kernel", "communication",
                                                       "message", "wait",     "loading",   "loader", "saving",
                                                       "rpc",     "range",    "step",      "memory"};
    return kind < YK__EVENT_KINDS ? names[kind] : "unknown";
}

/* A JSON string: anything but printable ASCII is escaped, bytes that are no UTF-8 become U+FFFD. */
static void put_text(FILE *to, const char *text)
{
    size_t size = strlen(text), length;
    fputc('"', to);
    for (size_t i = 0; i < size; i += length) {
        uint32_t code = 0xfffd;
        length = yk__utf8_decode((const unsigned char *)text + i, size - i, &code);
        if (!length) {
            code = 0xfffd;
            length = 1;
        }
        if (code == '"' || code == '\\')
            fprintf(to, "\\%c", (char)code);
        else if (code >= 32 && code < 127)
            fputc((int)code, to);
        else if (code < 0x10000)
            fprintf(to, "\\u%04x", code);
        else
            fprintf(to, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10), 0xdc00 + ((code - 0x10000) & 0x3ff));
    }
    fputc('"', to);
}

static void put_shapes(FILE *to, const yk__event_shapes *s)
{
    fputc('[', to);
    for (int at = 0; at < s->used && at < YK__EVENT_SIZES;) {
        int ndim = (int)s->sizes[at++];
        fputs(at > 1 ? ",[" : "[", to);
        for (int d = 0; d < ndim && at < s->used && at < YK__EVENT_SIZES; d++)
            fprintf(to, "%s%" PRIu32, d ? "," : "", s->sizes[at++]);
        fputc(']', to);
    }
    fputc(']', to);
}

/* The event's own facts: {"number":12,"shapes":[[4,1,28,28]]}. */
static void put_arguments(FILE *to, const yk__event *e, const yk__event *detail)
{
    const char *before = "";
    fputs(",\"args\":{", to);
    if (e->number) {
        fprintf(to, "\"number\":%" PRIu64, e->number);
        before = ",";
    }
    if (e->count) {
        fprintf(to, "%s\"count\":%" PRId64, before, e->count);
        before = ",";
    }
    if (e->peer >= 0) {
        fprintf(to, "%s\"peer\":%" PRId32, before, e->peer);
        before = ",";
    }
    if (e->kind == YK__EVENT_COLLECTIVE || e->kind == YK__EVENT_MESSAGE || e->kind == YK__EVENT_WAIT) {
        fprintf(to, "%s\"own\":%u", before, e->own);
        before = ",";
        if (e->sequence == YK__EVENT_FAILED)
            fputs(",\"failed\":true", to);
        else if (e->sequence)
            fprintf(to, ",\"tag\":%" PRId32 ",\"sequence\":%" PRIu32, e->tag, e->sequence);
    }
    if (e->flops > 0) {
        fprintf(to, "%s\"flops\":%.0f", before, e->flops);
        before = ",";
    }
    if (detail && e->detail == YK__DETAIL_SHAPES) {
        fprintf(to, "%s\"shapes\":", before);
        put_shapes(to, (const yk__event_shapes *)detail);
    } else if (detail && e->detail == YK__DETAIL_TEXT) {
        fprintf(to, "%s\"of\":", before);
        put_text(to, (const char *)detail);
    }
    fputs("}}", to);
}

/* An event that is to be written, in nanoseconds from the start of the recording. */
typedef struct shown_event {
    int64_t began, ended;
    size_t slot;
} shown_event;

static int shown_compare(const void *a, const void *b)
{
    const shown_event *x = a, *y = b;
    if (x->began != y->began)
        return x->began < y->began ? -1 : 1;
    if (x->ended != y->ended)
        return x->ended > y->ended ? -1 : 1;
    return x->slot > y->slot ? -1 : 1; /* what is around another was written after it */
}

/* The ring's events in the order of their begins, nesting. NULL without memory, or where there are none. */
static shown_event *ring_events(const yk__event_ring *ring, const yk__events_clock *clock, size_t *count)
{
    size_t slots = yk__event_ring_count(ring);
    shown_event *all = slots ? malloc(slots * sizeof(*all)) : NULL;
    *count = 0;
    for (size_t i = 0; all && i < slots; i++) {
        const yk__event *e = yk__event_ring_slot(ring, i);
        if (e->detail == YK__DETAIL_ITSELF || e->began < yk__events_began())
            continue;
        all[(*count)++] = (shown_event){.began = yk__events_ns(clock, e->began) - clock->monotonic[0],
                                        .ended = yk__events_ns(clock, e->ended) - clock->monotonic[0],
                                        .slot = i};
    }
    if (!all)
        return NULL;
    qsort(all, *count, sizeof(*all), shown_compare);
    int64_t ends[DEEPEST];
    int depth = 0;
    for (size_t i = 0; i < *count; i++) {
        if (all[i].ended < all[i].began)
            all[i].ended = all[i].began;
        while (depth && ends[depth - 1] <= all[i].began)
            depth--;
        if (depth && all[i].ended > ends[depth - 1])
            all[i].ended = ends[depth - 1];
        if (depth < DEEPEST)
            ends[depth++] = all[i].ended;
    }
    return all;
}

static void put_event(FILE *to, const yk__event_ring *ring, const shown_event *s, int rank, int thread)
{
    const yk__event *e = yk__event_ring_slot(ring, s->slot), *detail = NULL;
    if (e->detail != YK__DETAIL_NONE && s->slot + 1 < yk__event_ring_count(ring))
        detail = yk__event_ring_slot(ring, s->slot + 1);
    if (detail && detail->detail != YK__DETAIL_ITSELF)
        detail = NULL;
    fputs(",\n{\"ts\":", to);
    yk__trace_put_time(to, s->began);
    if (e->kind == YK__EVENT_MEMORY) {
        fprintf(to, ",\"ph\":\"C\",\"pid\":%d,\"cat\":\"memory\",\"name\":", rank);
        put_text(to, e->name);
        fprintf(to, ",\"args\":{\"bytes\":%" PRId64 "}}", e->count);
        return;
    }
    if (e->kind == YK__EVENT_STEP) {
        fprintf(to, ",\"ph\":\"i\",\"s\":\"p\",\"pid\":%d,\"tid\":%d", rank, thread);
    } else {
        fputs(",\"dur\":", to);
        yk__trace_put_time(to, s->ended - s->began);
        fprintf(to, ",\"ph\":\"X\",\"pid\":%d,\"tid\":%d", rank, thread);
    }
    fprintf(to, ",\"cat\":\"%s\",\"name\":", kind_category(e->kind));
    put_text(to, e->detail == YK__DETAIL_NAME && detail ? (const char *)detail : e->name);
    put_arguments(to, e, detail);
}

static void put_meta(FILE *to, const char *what, int rank, int thread, const char *before, const char *name)
{
    fprintf(to, "%s{\"ts\":0.000,\"ph\":\"M\",\"pid\":%d", before, rank);
    if (thread)
        fprintf(to, ",\"tid\":%d", thread);
    fprintf(to, ",\"name\":\"%s\",\"args\":{\"name\":", what);
    put_text(to, name);
    fputs("}}", to);
}

static int own_rank(int *world_size)
{
    int rank = 0;
    yk__rank_info info;
    if (yk__job_rank_get(&rank, world_size))
        return rank;
    YK__QUESTION;
    *world_size = 1;
    if (yk__rank_info_read(&info))
        return 0;
    *world_size = info.world_size;
    return info.rank;
}

void yk__trace_clock_name(char name[YK__TRACE_CLOCK_NAME])
{
    char host[65] = "", space[32] = "";
    if (!yk__machine_name(name, 200)) {
        gethostname(host, sizeof(host) - 1);
        snprintf(name, 200, "%s", host);
    }
    ssize_t size = readlink("/proc/self/ns/time", space, sizeof(space) - 1);
    snprintf(name + strlen(name), YK__TRACE_CLOCK_NAME - strlen(name), "/%.*s", size > 0 ? (int)size : 0, space);
}

static void put_head(FILE *to, int rank, int world_size, const yk__events_clock *clock)
{
    char host[256] = "", machine[YK__TRACE_CLOCK_NAME];
    uint64_t lost = 0;
    gethostname(host, sizeof(host) - 1);
    yk__trace_clock_name(machine);
    for (const yk__event_ring *r = yk__event_rings(); r; r = yk__event_ring_next(r))
        lost += yk__event_ring_lost(r);
    fprintf(to, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"yoke_trace\":1,\"ranks\":[{\"rank\":%d,\"world_size\":%d",
            rank, world_size);
    fprintf(to, ",\"pid\":%d,\"host\":", (int)getpid());
    put_text(to, host);
    fputs(",\"machine\":", to);
    put_text(to, machine);
    fprintf(to, ",\"base_ns\":%" PRId64 ",\"real_ns\":%" PRId64 ",\"duration_ns\":%" PRId64, clock->monotonic[0],
            clock->real[0], clock->monotonic[1] - clock->monotonic[0]);
    if (own_clock.known || rank == 0)
        fprintf(to, ",\"to_rank0_ns\":%" PRId64 ",\"error_ns\":%" PRId64, own_clock.to_rank0_ns, own_clock.error_ns);
    else
        fputs(",\"to_rank0_ns\":null,\"error_ns\":null", to);
    fprintf(to, ",\"lost\":%" PRIu64 "}]},\"traceEvents\":[\n", lost);
}

yk_status yk__trace_write_events(FILE *to)
{
    yk__events_clock clock;
    yk__events_clock_read(&clock);
    int world_size, rank = own_rank(&world_size);
    char host[200] = "", name[256];
    gethostname(host, sizeof(host) - 1);
    put_head(to, rank, world_size, &clock);
    snprintf(name, sizeof(name), "rank %d (%s)", rank, host);
    put_meta(to, "process_name", rank, 0, "", name);
    fprintf(to,
            ",\n{\"ts\":0.000,\"ph\":\"M\",\"pid\":%d,\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%d}}",
            rank, rank);
    for (const yk__event_ring *r = yk__event_rings(); r && !ferror(to); r = yk__event_ring_next(r)) {
        char thread_name[32];
        int thread = yk__event_ring_thread(r, thread_name);
        size_t count;
        shown_event *all = ring_events(r, &clock, &count);
        if (count)
            put_meta(to, "thread_name", rank, thread, ",\n", thread_name);
        for (size_t i = 0; i < count; i++)
            put_event(to, r, &all[i], rank, thread);
        if (!all && yk__event_ring_count(r))
            return yk__fail_memory(yk__event_ring_count(r) * sizeof(*all));
        free(all);
    }
    fputs("\n]}\n", to);
    return ferror(to) || fflush(to) ? yk__fail_errno("the trace cannot be written") : YK_OK;
}

/* ---- a file ------------------------------------------------------------------------------------------------------ */
static ssize_t writer_take(void *writer, const char *data, size_t size)
{
    return yk__file_write(writer, data, size) ? 0 : (ssize_t)size;
}

yk_status yk__trace_save_with(const char *path, yk_status (*body)(void *argument, FILE *to), void *argument)
{
    YK__OWN_RECORD;
    yk__file_writer *writer = yk__file_create(path);
    if (!writer)
        return yk__error_code();
    FILE *to = fopencookie(writer, "w", (cookie_io_functions_t){.write = writer_take});
    if (!to) {
        yk__file_abort(writer);
        return yk__fail_memory(sizeof(*to));
    }
    yk_status status = body(argument, to);
    if (fclose(to) && !status)
        status = yk__error_code() ? yk__error_code() : yk__fail(YK_ERR_IO, "%s: the trace cannot be written", path);
    if (status)
        yk__file_abort(writer);
    else
        status = yk__file_commit(writer);
    return status;
}

static yk_status events_body(void *argument, FILE *to)
{
    (void)argument;
    return yk__trace_write_events(to);
}

yk_status yk__trace_save(const char *path)
{
    return yk__trace_save_with(path, events_body, NULL);
}
