/*
 * trace_perfetto.c - a trace as Perfetto's TracePackets. Layer: observe.
 *
 * A file is packets: first what each process and thread is called, then beginnings and ends of slices, moments and
 * counters. Names and categories stand once, in the packet that first needs them, and have numbers from there on. The
 * lines of a thread are in the order of their beginnings and nest, so that its ends come from a stack. An arrow goes
 * out from the beginning of a slice and into the end of one, so that it points forward also where who receives was
 * there first. The numbers of fields are those of perfetto_trace.proto of perfetto 0.59.
 */
#include "observe/trace_perfetto.h"

#include <inttypes.h>

#include "base/hash.h"
#include "host/trace_line.h"
#include "observe/protobuf.h"

enum {
    DEEPEST = 512,
    SLICE_BEGIN = 1,
    SLICE_END = 2,
    INSTANT = 3,
    COUNTER = 4,
    STATE_CLEARED = 1, /* the sequence begins: no name has a number yet */
    STATE_NEEDED = 2,
    SEQUENCE = 1
};

/* A process has thread 0; the counters of a process are tracks as well, told by their name. */
typedef struct track {
    int64_t pid, tid;
    char name[64]; /* of a counter; "" else */
    int64_t ends[DEEPEST];
    bool linked[DEEPEST]; /* arrows may go in */
    int depth;
} track;

/* One end of an arrow; the file has them behind all slices. */
typedef struct arrow_end {
    int64_t pid, tid, at;
    int64_t id;
    bool in;
} arrow_end;

typedef struct converting {
    const char *path;
    FILE *from, *to;
    char *line;
    size_t room;
    int64_t base; /* ns, the earliest */
    track **tracks;
    int n_tracks;
    char **texts; /* names and categories; the number of one is its place, from 1 on */
    int n_texts;
    arrow_end *arrows; /* in the order of arrow_compare */
    size_t n_arrows, arrow_room;
    bool begun;
} converting;

/* Writes a packet, and empties it. */
static yk_status packet_write(converting *c, yk__proto *packet)
{
    yk__proto out = {0};
    yk__proto_int(packet, 10, SEQUENCE);
    yk__proto_int(packet, 13, c->begun ? STATE_NEEDED : STATE_CLEARED | STATE_NEEDED);
    c->begun = true;
    yk__proto_message(&out, 1, packet);
    bool fine = !out.failed && fwrite(out.data, 1, out.size, c->to) == out.size;
    yk_status status = fine         ? YK_OK
                       : out.failed ? yk__fail_memory(out.room)
                                    : yk__fail_errno("the trace cannot be written");
    free(out.data);
    return status;
}

static uint64_t track_id(int64_t pid, int64_t tid, const char *name)
{
    const int64_t numbers[2] = {pid, tid};
    uint64_t hash = yk__hash(yk__hash(YK__HASH_BASIS, numbers, sizeof(numbers)), name, strlen(name));
    return hash ? hash : 1;
}

/* Says what a process (tid 0), a thread or a counter is called. A number of a thread is one of the whole trace there,
 * so it is made of the rank and the thread's place. */
static yk_status track_describe(converting *c, const track *t, const char *name, int index)
{
    yk__proto packet = {0}, descriptor = {0}, inner = {0};
    bool counter = t->name[0];
    yk__proto_int(&descriptor, 1, (int64_t)track_id(t->pid, t->tid, t->name));
    if (counter) {
        yk__proto_text(&descriptor, 2, t->name);
        yk__proto_int(&descriptor, 5, (int64_t)track_id(t->pid, 0, ""));
        yk__proto_message(&descriptor, 8, &inner);
    } else {
        yk__proto_int(&inner, 1, t->pid + 1);
        if (t->tid)
            yk__proto_int(&inner, 2, (t->pid + 1) * 10000 + index);
        yk__proto_text(&inner, t->tid ? 5 : 6, name);
        yk__proto_message(&descriptor, t->tid ? 4 : 3, &inner);
    }
    yk__proto_message(&packet, 60, &descriptor);
    return packet_write(c, &packet);
}

/* The track, described with the name where it is new; NULL and an error. */
static track *track_find(converting *c, int64_t pid, int64_t tid, const char *counter, const char *name)
{
    for (int i = c->n_tracks - 1; i >= 0; i--) {
        if (c->tracks[i]->pid == pid && c->tracks[i]->tid == tid && strcmp(c->tracks[i]->name, counter) == 0)
            return c->tracks[i];
    }
    track **tracks = yk__realloc(c->tracks, (size_t)(c->n_tracks + 1) * sizeof(*tracks));
    if (!tracks)
        return NULL;
    c->tracks = tracks;
    track *t = yk__calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    t->pid = pid;
    t->tid = tid;
    snprintf(t->name, sizeof(t->name), "%s", counter);
    c->tracks[c->n_tracks++] = t;
    return track_describe(c, t, name, c->n_tracks) ? NULL : t;
}

/* The number of a text; where it is new it goes into `interned`, as field 1 (categories) or 2 (names). 0 without
 * memory. */
static int text_number(converting *c, const char *text, size_t size, int field, yk__proto *interned)
{
    for (int i = 0; i < c->n_texts; i++) {
        if (c->texts[i][0] == (char)('0' + field) && strlen(c->texts[i]) == size + 1 &&
            memcmp(c->texts[i] + 1, text, size) == 0)
            return i + 1;
    }
    char **texts = yk__realloc(c->texts, (size_t)(c->n_texts + 1) * sizeof(*texts));
    if (!texts)
        return 0;
    c->texts = texts;
    if (!(c->texts[c->n_texts] = yk__format("%d%.*s", field, (int)size, text)))
        return 0;
    yk__proto one = {0};
    yk__proto_int(&one, 1, ++c->n_texts);
    yk__proto_bytes(&one, 2, text, size);
    yk__proto_message(interned, field, &one);
    return c->n_texts;
}

static int arrow_compare(const void *a, const void *b)
{
    const arrow_end *x = a, *y = b;
    if (x->pid != y->pid)
        return x->pid < y->pid ? -1 : 1;
    if (x->tid != y->tid)
        return x->tid < y->tid ? -1 : 1;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return x->in - y->in;
}

/* Adds the arrows at a moment of a thread to its event: field 47 those that go out, 48 those that go in. */
static void arrows_add(const converting *c, const track *t, int64_t at, bool in, yk__proto *event)
{
    const arrow_end key = {.pid = t->pid, .tid = t->tid, .at = at, .in = in};
    size_t low = 0, high = c->n_arrows;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (arrow_compare(&c->arrows[middle], &key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < c->n_arrows && arrow_compare(&c->arrows[low], &key) == 0; low++) {
        yk__proto_key(event, in ? 48 : 47, 1);
        yk__proto_fixed(event, (uint64_t)c->arrows[low].id, 8);
    }
}

/* Ends the innermost slice of a track. */
static yk_status end_write(converting *c, track *t)
{
    yk__proto packet = {0}, event = {0};
    int64_t at = t->ends[--t->depth];
    yk__proto_int(&packet, 8, at - c->base);
    yk__proto_int(&event, 9, SLICE_END);
    yk__proto_int(&event, 11, (int64_t)track_id(t->pid, t->tid, ""));
    if (t->linked[t->depth]) { /* an arrow ends within its slice */
        arrows_add(c, t, at - 1, true, &event);
        arrows_add(c, t, at, true, &event);
    }
    yk__proto_message(&packet, 11, &event);
    return packet_write(c, &packet);
}

/* Ends what has ended by then. */
static yk_status track_until(converting *c, track *t, int64_t at)
{
    yk_status status = YK_OK;
    while (!status && t->depth && t->ends[t->depth - 1] <= at)
        status = end_write(c, t);
    return status;
}

/* One line that is an event. */
typedef struct line_event {
    int64_t began, duration, pid, tid;
    char phase;
    int64_t id; /* of an arrow */
    const char *category, *name, *arguments;
    size_t category_size, name_size;
} line_event;

static bool line_parse(const char *line, line_event *e)
{
    const char *at;
    *e = (line_event){0};
    if (strncmp(line, "{\"ts\":", 6) != 0 || !yk__trace_time(line + 6, &e->began, &at))
        return false;
    if (strncmp(at, ",\"dur\":", 7) == 0 && !yk__trace_time(at + 7, &e->duration, &at))
        return false;
    const char *phase = yk__trace_member(line, "ph"), *pid = yk__trace_member(line, "pid"),
               *tid = yk__trace_member(line, "tid");
    e->category = yk__trace_member(line, "cat");
    e->name = yk__trace_member(line, "name");
    e->arguments = yk__trace_member(line, "args");
    if (!phase || *phase != '"' || !pid || !e->name || *e->name != '"' || !e->arguments)
        return false;
    e->phase = phase[1];
    e->pid = strtoll(pid, NULL, 10);
    e->tid = tid ? strtoll(tid, NULL, 10) : 0;
    if (!yk__trace_number(line, "id", &e->id))
        e->id = 0;
    e->name_size = yk__trace_length(++e->name);
    if (e->category && *e->category == '"')
        e->category_size = yk__trace_length(++e->category);
    return true;
}

static bool category_is(const line_event *e, const char *word)
{
    return e->category_size == strlen(word) && memcmp(e->category, word, e->category_size) == 0;
}

/* A number that the ranks' events of one collective share. */
static uint64_t event_correlation(const line_event *e)
{
    const char *number = yk__trace_member(e->arguments, "number"), *of = yk__trace_member(e->arguments, "of");
    if (!category_is(e, "communication") || !number || !of)
        return 0;
    uint64_t hash = yk__hash(YK__HASH_BASIS, number, strspn(number, "0123456789"));
    return yk__hash(hash, of, 1 + yk__trace_length(of + 1)) | 1;
}

static yk_status event_write(converting *c, const line_event *e)
{
    yk__proto packet = {0}, event = {0}, interned = {0}, note = {0};
    char counter[64] = "";
    if (e->phase == 'C')
        snprintf(counter, sizeof(counter), "%.*s", (int)e->name_size, e->name);
    track *t = track_find(c, e->pid, e->phase == 'C' ? 0 : e->tid, counter, "thread");
    if (!t || (e->phase != 'C' && track_until(c, t, e->began)))
        return yk__error_code();
    if (e->phase == 'X' && t->depth == DEEPEST)
        return YK_OK;
    yk__proto_int(&packet, 8, e->began - c->base);
    yk__proto_int(&event, 9, e->phase == 'X' ? SLICE_BEGIN : e->phase == 'C' ? COUNTER : INSTANT);
    yk__proto_int(&event, 11, (int64_t)track_id(t->pid, t->tid, t->name));
    if (e->phase == 'C') {
        const char *bytes = yk__trace_member(e->arguments, "bytes");
        yk__proto_int(&event, 30, bytes ? strtoll(bytes, NULL, 10) : 0);
    } else {
        int category = text_number(c, e->category ? e->category : "", e->category_size, 1, &interned);
        int name = text_number(c, e->name, e->name_size, 2, &interned);
        uint64_t correlation = event_correlation(e);
        yk__proto_int(&event, 3, category);
        yk__proto_int(&event, 10, name);
        if (correlation)
            yk__proto_int(&event, 52, (int64_t)correlation);
        size_t size = strlen(e->arguments);
        if (size > 3) { /* "{...}}" with the event's own end */
            yk__proto_text(&note, 10, "args");
            yk__proto_bytes(&note, 9, e->arguments, size - 1);
            yk__proto_message(&event, 4, &note);
        }
    }
    if (e->phase == 'X') {
        bool collective = category_is(e, "communication");
        if (collective || category_is(e, "message"))
            arrows_add(c, t, e->began, false, &event);
        t->linked[t->depth] = collective || category_is(e, "wait");
        t->ends[t->depth++] = e->began + e->duration;
    }
    if (interned.size)
        yk__proto_message(&packet, 12, &interned);
    yk__proto_message(&packet, 11, &event);
    return packet_write(c, &packet);
}

/* "process_name", "thread_name". */
static yk_status name_write(converting *c, const line_event *e)
{
    char name[200];
    const char *text = yk__trace_member(e->arguments, "name");
    bool process = strncmp(e->name, "process_name", 12) == 0;
    if (!text || *text != '"' || (!process && strncmp(e->name, "thread_name", 11) != 0))
        return YK_OK;
    snprintf(name, sizeof(name), "%.*s", (int)yk__trace_length(text + 1), text + 1);
    return track_find(c, e->pid, process ? 0 : e->tid, "", name) ? YK_OK : yk__error_code();
}

/* Calls `each` with the event of every line. */
static yk_status lines_each(converting *c, yk_status (*each)(converting *c, const line_event *e))
{
    yk_status status = YK_OK;
    ssize_t size;
    int64_t number = 0;
    rewind(c->from);
    while (!status && (size = getline(&c->line, &c->room, c->from)) > 0) {
        line_event e;
        while (size && (c->line[size - 1] == '\n' || c->line[size - 1] == ','))
            c->line[--size] = '\0';
        if (++number == 1 && !strstr(c->line, "\"yoke_trace\":1"))
            return yk__fail(YK_ERR_FORMAT, "%s is no trace of yoke's: its first line has no \"yoke_trace\":1", c->path);
        if (number == 1 || size < 3 || c->line[size - 1] != '}' || strcmp(c->line, "]}") == 0)
            continue;
        if (!line_parse(c->line, &e))
            return yk__fail(YK_ERR_FORMAT, "%s, line %" PRId64 ": no event of a trace", c->path, number);
        status = each(c, &e);
    }
    if (!status && number == 0)
        status = yk__fail(YK_ERR_FORMAT, "%s is no trace: it is empty", c->path);
    return !status && ferror(c->from) ? yk__fail_errno("%s cannot be read", c->path) : status;
}

/* "s" and "f": where an arrow begins and ends. */
static bool event_is_arrow(const line_event *e)
{
    return e->phase == 's' || e->phase == 'f';
}

static yk_status arrow_keep(converting *c, const line_event *e)
{
    if (c->n_arrows == c->arrow_room) {
        size_t room = c->arrow_room ? 2 * c->arrow_room : 256;
        arrow_end *arrows = yk__realloc(c->arrows, room * sizeof(*arrows));
        if (!arrows)
            return yk__error_code();
        c->arrows = arrows;
        c->arrow_room = room;
    }
    c->arrows[c->n_arrows++] =
        (arrow_end){.pid = e->pid, .tid = e->tid, .at = e->began, .id = e->id, .in = e->phase == 'f'};
    return YK_OK;
}

static yk_status first_pass(converting *c, const line_event *e)
{
    if (event_is_arrow(e))
        return arrow_keep(c, e);
    if (e->phase == 'M')
        return name_write(c, e);
    c->base = e->began < c->base ? e->began : c->base;
    return YK_OK;
}

static yk_status second_pass(converting *c, const line_event *e)
{
    return e->phase == 'M' || event_is_arrow(e) ? YK_OK : event_write(c, e);
}

yk_status yk__trace_to_perfetto(const char *path, FILE *to)
{
    converting c = {.path = path, .to = to, .from = fopen(path, "re"), .base = INT64_MAX};
    yk_status status = c.from ? lines_each(&c, first_pass) : yk__fail_errno("%s", path);
    if (c.n_arrows)
        qsort(c.arrows, c.n_arrows, sizeof(*c.arrows), arrow_compare);
    if (!status)
        status = lines_each(&c, second_pass);
    for (int i = 0; i < c.n_tracks; i++) {
        if (!status)
            status = track_until(&c, c.tracks[i], INT64_MAX);
        free(c.tracks[i]);
    }
    for (int i = 0; i < c.n_texts; i++)
        free(c.texts[i]);
    free(c.texts);
    free(c.arrows);
    free(c.tracks);
    free(c.line);
    if (c.from)
        fclose(c.from);
    return status ? status : fflush(to) ? yk__fail_errno("the trace cannot be written") : YK_OK;
}
