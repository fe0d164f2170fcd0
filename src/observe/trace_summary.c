/*
 * trace_summary.c - adds up a trace. Layer: observe.
 *
 * The file is read line by line, since it may be larger than the memory; of an event 48 bytes are kept. Invariant:
 * lines are of the form that host/trace_file.c writes, or the file is refused.
 */
#include "observe/trace_summary.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/escape.h"
#include "host/trace_line.h"

/* The classes of moments (Note [Where time goes]). */
typedef enum moment_class {
    CLASS_NONE,
    CLASS_COMPUTE,
    CLASS_COMMUNICATION,
    CLASS_LOADING,
    CLASS_SAVING,
    CLASSES
} moment_class;

typedef struct read_event {
    int64_t began, ended; /* ns */
    double flops;
    int rank, thread, operation; /* indices */
} read_event;

/* A collective as one rank has it. */
typedef struct arrival {
    uint64_t key; /* of its group and number */
    int64_t began;
    int rank;
} arrival;

/* The threads of ranks, in the order in which they are met. */
typedef struct read_thread {
    int64_t pid, tid;
} read_thread;

/* A moment at which a thread goes from one class to another. */
typedef struct change {
    int64_t at;
    int before, after; /* moment_class */
} change;

typedef struct reading {
    const char *path;
    int64_t line;
    yk__trace_summary *to;
    size_t n_events, event_room, n_arrivals, arrival_room;
    read_event *events;
    arrival *arrivals;
    int n_threads, thread_room;
    read_thread *threads;
    int *classes; /* of the operations */
    int operation_room;
    int *slots; /* a table of the operations by their name: index + 1; 0: empty */
    int n_slots;
    int64_t *first, *last, *first_step, *last_step; /* of ranks */
} reading;

/* ---- lines ------------------------------------------------------------------------------------------------------- */
static yk_status line_fail(const reading *r, const char *line, const char *what)
{
    char shown[160];
    yk__escape(line, strnlen(line, 100), shown, sizeof(shown));
    return yk__fail(YK_ERR_FORMAT, "%s, line %" PRId64 ": %s: %s", r->path, r->line, what, shown);
}

static uint64_t text_hash(uint64_t hash, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    return hash;
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */
static int category_class(const char *category, size_t size, const char *name)
{
    static const struct {
        const char *category;
        moment_class is;
    } rows[] = {{"op", CLASS_COMPUTE},
                {"backward", CLASS_COMPUTE},
                {"optimizer", CLASS_COMPUTE},
                {"kernel", CLASS_COMPUTE},
                {"communication", CLASS_COMMUNICATION},
                {"message", CLASS_COMMUNICATION},
                {"wait", CLASS_COMMUNICATION},
                {"rpc", CLASS_COMMUNICATION},
                {"loading", CLASS_LOADING},
                {"saving", CLASS_SAVING}};
    if (strncmp(name, "serve call", 10) == 0)
        return CLASS_COMPUTE;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        if (strlen(rows[i].category) == size && memcmp(rows[i].category, category, size) == 0)
            return rows[i].is;
    }
    return CLASS_NONE;
}

/* True where the name says what the operation is; not so "conv2d (backward)". */
static bool name_is_plain(const char *name, size_t length, const char *category, size_t size)
{
    bool back = size == 8 && memcmp(category, "backward", 8) == 0,
         kernel = size == 6 && memcmp(category, "kernel", 6) == 0;
    return !kernel && (!back || (length == 8 && memcmp(name, "backward", 8) == 0));
}

static yk_status slots_grow(reading *r)
{
    int count = r->n_slots ? 2 * r->n_slots : 256;
    int *slots = yk__calloc((size_t)count, sizeof(*slots));
    if (!slots)
        return yk__error_code();
    for (int i = 0; i < r->to->n_operations; i++) {
        const char *name = r->to->operations[i].name;
        uint64_t at = text_hash(0xcbf29ce484222325u, name, strlen(name)) % (uint64_t)count;
        while (slots[at])
            at = (at + 1) % (uint64_t)count;
        slots[at] = i + 1;
    }
    free(r->slots);
    r->slots = slots;
    r->n_slots = count;
    return YK_OK;
}

/* The index of an operation of this name, made where there is none; -1 without memory. */
static int operation_find(reading *r, const char *name, size_t length, const char *category, size_t size)
{
    char text[256];
    if (name_is_plain(name, length, category, size))
        snprintf(text, sizeof(text), "%.*s", (int)length, name);
    else
        snprintf(text, sizeof(text), "%.*s (%.*s)", (int)length, name, (int)size, category);
    if (2 * (r->to->n_operations + 1) > r->n_slots && slots_grow(r))
        return -1;
    uint64_t at = text_hash(0xcbf29ce484222325u, text, strlen(text)) % (uint64_t)r->n_slots;
    for (; r->slots[at]; at = (at + 1) % (uint64_t)r->n_slots) {
        if (strcmp(r->to->operations[r->slots[at] - 1].name, text) == 0)
            return r->slots[at] - 1;
    }
    if (r->to->n_operations == r->operation_room) {
        int room = r->operation_room ? 2 * r->operation_room : 128;
        yk__trace_operation *operations = yk__realloc(r->to->operations, (size_t)room * sizeof(*operations));
        if (!operations)
            return -1;
        r->to->operations = operations;
        int *classes = yk__realloc(r->classes, (size_t)room * sizeof(*classes));
        if (!classes)
            return -1;
        r->classes = classes;
        r->operation_room = room;
    }
    int index = r->to->n_operations;
    r->to->operations[index] = (yk__trace_operation){.name = yk__strdup(text)};
    if (!r->to->operations[index].name)
        return -1;
    r->classes[index] = category_class(category, size, name);
    r->slots[at] = ++r->to->n_operations;
    return index;
}

static int thread_find(reading *r, int64_t pid, int64_t tid)
{
    for (int i = r->n_threads - 1; i >= 0; i--) {
        if (r->threads[i].pid == pid && r->threads[i].tid == tid)
            return i;
    }
    if (r->n_threads == r->thread_room) {
        int room = r->thread_room ? 2 * r->thread_room : 16;
        read_thread *threads = yk__realloc(r->threads, (size_t)room * sizeof(*threads));
        if (!threads)
            return -1;
        r->threads = threads;
        r->thread_room = room;
    }
    r->threads[r->n_threads] = (read_thread){pid, tid};
    return r->n_threads++;
}

static int rank_find(const reading *r, int64_t rank)
{
    for (int i = 0; i < r->to->n_ranks; i++) {
        if (r->to->ranks[i].rank == rank)
            return i;
    }
    return -1;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */
static double seconds_of(const json_t *rank, const char *name, double fallback)
{
    const json_t *value = json_object_get(rank, name);
    return json_is_number(value) ? 1e-9 * json_number_value(value) : fallback;
}

static int rank_compare(const void *a, const void *b)
{
    return ((const yk__trace_rank *)a)->rank - ((const yk__trace_rank *)b)->rank;
}

/* The head of the file (Note [Files of traces]): its ranks. */
static yk_status head_read(reading *r, const char *line)
{
    json_t *list = NULL, *other = NULL;
    char *whole = yk__format("%.*s]}", (int)strcspn(line, "\n"), line);
    json_t *head = whole ? json_loads(whole, 0, NULL) : NULL;
    free(whole);
    other = json_object_get(head, "otherData");
    list = json_object_get(other, "ranks");
    size_t count = json_array_size(list);
    const char *machine = NULL;
    if (json_integer_value(json_object_get(other, "yoke_trace")) != 1 || !count || count > 1 << 20) {
        json_decref(head);
        return yk__fail(
            YK_ERR_FORMAT,
            "%s is no trace of yoke's: its first line has no \"yoke_trace\":1; yoke run --trace, yoke trace and "
            "yk_profiler_stop write them",
            r->path);
    }
    r->to->ranks = yk__calloc(count, sizeof(*r->to->ranks));
    r->first = yk__calloc(4 * count, sizeof(*r->first));
    if (!r->to->ranks || !r->first) {
        json_decref(head);
        return yk__error_code();
    }
    r->last = r->first + count;
    r->first_step = r->last + count;
    r->last_step = r->first_step + count;
    for (size_t i = 0; i < count; i++) {
        const json_t *from = json_array_get(list, i);
        const char *host = json_string_value(json_object_get(from, "host"));
        const char *own = json_string_value(json_object_get(from, "machine"));
        machine = machine ? machine : own;
        yk__trace_rank *rank = &r->to->ranks[r->to->n_ranks++];
        rank->rank = (int)json_integer_value(json_object_get(from, "rank"));
        rank->lost = json_integer_value(json_object_get(from, "lost"));
        rank->clock_error = machine && own && strcmp(machine, own) == 0 ? 0 : seconds_of(from, "error_ns", -1);
        snprintf(rank->host, sizeof(rank->host), "%s", host ? host : "");
    }
    json_decref(head);
    qsort(r->to->ranks, count, sizeof(*r->to->ranks), rank_compare);
    for (size_t i = 0; i < count; i++) {
        r->first[i] = r->first_step[i] = INT64_MAX;
        r->last[i] = r->last_step[i] = INT64_MIN;
    }
    return YK_OK;
}

static yk_status arrival_add(reading *r, const char *line, int rank, int64_t began, const char *name, size_t length)
{
    const char *number = yk__trace_member(line, "number"), *of = yk__trace_member(line, "of");
    if (!number)
        return YK_OK;
    if (r->n_arrivals == r->arrival_room) {
        size_t room = r->arrival_room ? 2 * r->arrival_room : 1024;
        arrival *arrivals = yk__realloc(r->arrivals, room * sizeof(*arrivals));
        if (!arrivals)
            return yk__error_code();
        r->arrivals = arrivals;
        r->arrival_room = room;
    }
    uint64_t key = text_hash(0xcbf29ce484222325u, name, length);
    key = text_hash(key, number, strspn(number, "0123456789"));
    key = of && *of == '"' ? text_hash(key, of + 1, yk__trace_length(of + 1)) : key;
    r->arrivals[r->n_arrivals++] = (arrival){key, began, rank};
    return YK_OK;
}

static yk_status event_add(reading *r, const read_event *e)
{
    if (r->n_events == r->event_room) {
        size_t room = r->event_room ? 2 * r->event_room : 4096;
        read_event *events = yk__realloc(r->events, room * sizeof(*events));
        if (!events)
            return yk__error_code();
        r->events = events;
        r->event_room = room;
    }
    r->events[r->n_events++] = *e;
    return YK_OK;
}

static yk_status line_read(reading *r, const char *line)
{
    read_event e = {0};
    const char *at;
    int64_t duration = 0;
    if (strncmp(line, "{\"ts\":", 6) != 0 || !yk__trace_time(line + 6, &e.began, &at))
        return line_fail(r, line, "no event of a trace");
    const char *phase = yk__trace_member(line, "ph"), *pid = yk__trace_member(line, "pid"),
               *tid = yk__trace_member(line, "tid"), *category = yk__trace_member(line, "cat"),
               *name = yk__trace_member(line, "name");
    if (!phase || phase[0] != '"' || !pid)
        return line_fail(r, line, "an event without phase or rank");
    if (phase[1] == 'M' || phase[1] == 'C' || phase[1] == 's' || phase[1] == 'f') /* arrows */
        return YK_OK;
    e.rank = rank_find(r, strtoll(pid, NULL, 10));
    if (e.rank < 0)
        return line_fail(r, line, "an event of a rank that the file does not have");
    r->to->events++;
    if (phase[1] == 'i') {
        r->to->ranks[e.rank].steps++;
        r->first_step[e.rank] = e.began < r->first_step[e.rank] ? e.began : r->first_step[e.rank];
        r->last_step[e.rank] = e.began > r->last_step[e.rank] ? e.began : r->last_step[e.rank];
        return YK_OK;
    }
    if (strncmp(at, ",\"dur\":", 7) != 0 || !yk__trace_time(at + 7, &duration, &at) || duration < 0 || !category ||
        !tid || !name || *category++ != '"' || *name++ != '"')
        return line_fail(r, line, "an event that is not complete");
    size_t size = yk__trace_length(category), length = yk__trace_length(name);
    const char *flops = yk__trace_member(line, "flops");
    e.ended = e.began + duration;
    e.flops = flops ? yk__number_parse(flops, NULL) : 0;
    e.thread = thread_find(r, strtoll(pid, NULL, 10), strtoll(tid, NULL, 10));
    e.operation = operation_find(r, name, length, category, size);
    if (e.thread < 0 || e.operation < 0)
        return yk__error_code();
    r->first[e.rank] = e.began < r->first[e.rank] ? e.began : r->first[e.rank];
    r->last[e.rank] = e.ended > r->last[e.rank] ? e.ended : r->last[e.rank];
    if (size == 13 && memcmp(category, "communication", 13) == 0 && arrival_add(r, line, e.rank, e.began, name, length))
        return yk__error_code();
    return event_add(r, &e);
}

static yk_status lines_read(reading *r, FILE *from)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t size;
    yk_status status = YK_OK;
    bool ended = false;
    while (!status && (size = getline(&line, &room, from)) > 0) {
        r->line++;
        bool whole = line[size - 1] == '\n';
        while (size && (line[size - 1] == '\n' || line[size - 1] == ','))
            line[--size] = '\0';
        if (r->line == 1)
            status = head_read(r, line);
        else if (strcmp(line, "]}") == 0)
            ended = true;
        else if (size && (whole || line[size - 1] == '}'))
            status = line_read(r, line);
    }
    if (!status && ferror(from))
        status = yk__fail_errno("%s cannot be read", r->path);
    if (!status && r->line == 0)
        status = yk__fail(YK_ERR_FORMAT, "%s is no trace: it is empty", r->path);
    r->to->cut = !ended;
    free(line);
    return status;
}

/* ---- adding up --------------------------------------------------------------------------------------------------- */
static int event_compare(const void *a, const void *b)
{
    const read_event *x = a, *y = b;
    if (x->thread != y->thread)
        return x->thread - y->thread;
    if (x->began != y->began)
        return x->began < y->began ? -1 : 1;
    return x->ended != y->ended ? (x->ended > y->ended ? -1 : 1) : 0;
}

static int change_compare(const void *a, const void *b)
{
    const change *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

enum { DEEPEST = 512 };
/* The events of one thread that are under way, and the changes of its class. */
typedef struct thread_walk {
    reading *r;
    const read_event *open[DEEPEST];
    double inside[DEEPEST], flops[DEEPEST]; /* of what is directly inside */
    int depth, class;
    change *changes;
    size_t *n_changes;
} thread_walk;

static void walk_class(thread_walk *w, int64_t at)
{
    int now = CLASS_NONE;
    for (int i = w->depth - 1; i >= 0 && now == CLASS_NONE; i--) /* a range that is named counts as what it is in */
        now = w->r->classes[w->open[i]->operation];
    if (now == w->class)
        return;
    w->changes[(*w->n_changes)++] = (change){at, w->class, now};
    w->class = now;
}

static void walk_close(thread_walk *w)
{
    int i = --w->depth;
    const read_event *e = w->open[i];
    yk__trace_operation *o = &w->r->to->operations[e->operation];
    o->calls++;
    o->self += 1e-9 * (double)(e->ended - e->began) - w->inside[i];
    o->flops += e->flops - w->flops[i] > 0 ? e->flops - w->flops[i] : 0;
    if (i) {
        w->inside[i - 1] += 1e-9 * (double)(e->ended - e->began);
        w->flops[i - 1] += e->flops;
    }
    walk_class(w, e->ended);
}

/* Closes what has ended by then. */
static void walk_until(thread_walk *w, int64_t at)
{
    while (w->depth && w->open[w->depth - 1]->ended <= at)
        walk_close(w);
}

static void walk_thread(thread_walk *w, const read_event *events, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        walk_until(w, events[i].began);
        if (w->depth == DEEPEST)
            continue;
        w->inside[w->depth] = w->flops[w->depth] = 0;
        w->open[w->depth++] = &events[i];
        walk_class(w, events[i].began);
    }
    walk_until(w, INT64_MAX);
}

/* The parts of a rank's time, by the changes of all its threads. */
static void rank_add(yk__trace_rank *rank, change *changes, size_t count, int64_t first, int64_t last)
{
    int in[CLASSES] = {0};
    double part[CLASSES] = {0};
    int64_t before = first;
    qsort(changes, count, sizeof(*changes), change_compare);
    for (size_t i = 0; i <= count; i++) {
        int64_t at = i < count ? changes[i].at : last;
        int now = in[CLASS_COMPUTE]         ? CLASS_COMPUTE
                  : in[CLASS_COMMUNICATION] ? CLASS_COMMUNICATION
                  : in[CLASS_LOADING]       ? CLASS_LOADING
                  : in[CLASS_SAVING]        ? CLASS_SAVING
                                            : CLASS_NONE;
        part[now] += 1e-9 * (double)(at - before);
        if (now == CLASS_COMPUTE && in[CLASS_COMMUNICATION])
            rank->overlapped += 1e-9 * (double)(at - before);
        before = at;
        if (i < count) {
            in[changes[i].before]--;
            in[changes[i].after]++;
        }
    }
    rank->seconds = 1e-9 * (double)(last - first);
    rank->compute = part[CLASS_COMPUTE];
    rank->exposed = part[CLASS_COMMUNICATION];
    rank->loading = part[CLASS_LOADING];
    rank->saving = part[CLASS_SAVING];
    rank->other = part[CLASS_NONE];
}

static int arrival_compare(const void *a, const void *b)
{
    const arrival *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->rank - y->rank;
}

/* Counts for each rank the collectives of all ranks to which it came last. */
static void arrivals_add(reading *r)
{
    size_t ranks = (size_t)r->to->n_ranks;
    if (r->n_arrivals)
        qsort(r->arrivals, r->n_arrivals, sizeof(*r->arrivals), arrival_compare);
    for (size_t i = 0, next; i < r->n_arrivals; i = next) {
        const arrival *last = &r->arrivals[i];
        double waited = 0;
        for (next = i; next < r->n_arrivals && r->arrivals[next].key == r->arrivals[i].key; next++)
            last = r->arrivals[next].began > last->began ? &r->arrivals[next] : last;
        if (next - i != ranks || ranks < 2)
            continue;
        for (size_t k = i; k < next; k++)
            waited += 1e-9 * (double)(last->began - r->arrivals[k].began);
        r->to->collectives++;
        r->to->ranks[last->rank].last++;
        r->to->ranks[last->rank].caused += waited;
    }
}

static int operation_compare(const void *a, const void *b)
{
    const yk__trace_operation *x = a, *y = b;
    return (x->self < y->self) - (x->self > y->self);
}

static yk_status summary_add(reading *r)
{
    change *changes = yk__calloc(2 * r->n_events + 1, sizeof(*changes));
    thread_walk *w = changes ? yk__calloc(1, sizeof(*w)) : NULL;
    if (!w) {
        free(changes);
        return yk__error_code();
    }
    qsort(r->events, r->n_events, sizeof(*r->events), event_compare);
    for (int rank = 0; rank < r->to->n_ranks; rank++) {
        size_t count = 0;
        for (size_t i = 0, next; i < r->n_events; i = next) {
            for (next = i; next < r->n_events && r->events[next].thread == r->events[i].thread; next++)
                continue;
            if (r->events[i].rank != rank)
                continue;
            *w = (thread_walk){.r = r, .changes = changes, .n_changes = &count};
            walk_thread(w, r->events + i, next - i);
        }
        yk__trace_rank *to = &r->to->ranks[rank];
        if (r->first[rank] <= r->last[rank])
            rank_add(to, changes, count, r->first[rank], r->last[rank]);
        if (to->steps > 1)
            to->step_seconds = 1e-9 * (double)(r->last_step[rank] - r->first_step[rank]) / (double)(to->steps - 1);
    }
    free(w);
    free(changes);
    arrivals_add(r);
    qsort(r->to->operations, (size_t)r->to->n_operations, sizeof(*r->to->operations), operation_compare);
    return YK_OK;
}

yk_status yk__trace_summary_read(const char *path, yk__trace_summary *summary)
{
    *summary = (yk__trace_summary){0};
    reading r = {.path = path, .to = summary};
    FILE *from = fopen(path, "re");
    yk_status status = from ? lines_read(&r, from) : yk__fail_errno("%s", path);
    if (from)
        fclose(from);
    if (!status && !r.n_events)
        status = yk__fail(YK_ERR_FORMAT, "%s is a trace without events: its ranks recorded nothing", path);
    if (!status)
        status = summary_add(&r);
    free(r.events);
    free(r.arrivals);
    free(r.threads);
    free(r.classes);
    free(r.slots);
    free(r.first);
    if (status)
        yk__trace_summary_clear(summary);
    return status;
}

void yk__trace_summary_clear(yk__trace_summary *summary)
{
    for (int i = 0; i < summary->n_operations; i++)
        free(summary->operations[i].name);
    free(summary->operations);
    free(summary->ranks);
    *summary = (yk__trace_summary){0};
}

const yk__trace_rank *yk__trace_critical(const yk__trace_summary *summary)
{
    const yk__trace_rank *critical = NULL;
    for (int i = 0; i < summary->n_ranks; i++) {
        if (summary->ranks[i].caused > (critical ? critical->caused : 0))
            critical = &summary->ranks[i];
    }
    return critical;
}
