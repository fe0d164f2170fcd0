/*
 * trace_merge.c - makes one trace of several, on one clock, with arrows from who sends to who receives. Layer: host.
 *
 * Note [Clocks of traces]
 * Times of ranks of one host are brought together by its clock, which they share. For another host the difference x of
 * its clock and that of the reference, which is the host of the lowest rank, is estimated: from what was measured over
 * the network, or else by the time of day. What the ranks did together then bounds it. A receive ends after its send
 * began, and no rank leaves an all_reduce before all have come to it:
 *
 *     end of a + x of a's host >= begin of b + x of b's host
 *
 * Such pairs give the largest W[a][b] with x[a] - x[b] >= W[a][b], and these inequalities the least and the most that
 * each x may be (shortest paths). If they can be met, x is the middle of the two, which meets all of them, and half of
 * what is between is the bound of its error. They cannot where clocks drifted by more than that while the recording was
 * made; what was measured stays as it was then, with its bound.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "host/trace_file.h"
#include "host/trace_line.h"

#define DRIFT 1e-4            /* of clocks against each other, without a server of time, with room to spare */
#define FAR   (INT64_MAX / 8) /* ns: not bounded */

/* A file that is merged: the numbers of its first rank, and the texts of all its ranks. */
typedef struct part {
    FILE *from;
    const char *name;
    char *line; /* the head */
    size_t room;
    char *ranks; /* in `line`: {...},{...} */
    char machine[YK__TRACE_CLOCK_NAME];
    int64_t base, real, duration, to_rank0, error;
    bool known;
    int rank, host;
} part;

/* The parts whose clock is one. */
typedef struct merge_host {
    const part *part;    /* its first */
    int64_t shift;       /* to be added to the times of that part for those of the reference */
    int64_t least, most; /* what it may be; FAR: not bounded */
    int64_t error;       /* < 0: not known */
} merge_host;

/* The part that an event has in what several ranks do together. */
typedef enum note_role {
    ROLE_TOGETHER, /* nobody leaves it before all have come */
    ROLE_ALONG,    /* nobody is waited for, or not by all */
    ROLE_SOURCE,   /* the root from which all have it, or a send */
    ROLE_SINK      /* whoever has it from the source, the root that has it from all, or the end of a receive */
} note_role;

typedef struct note {
    uint64_t key;         /* of the operation */
    int64_t began, ended; /* ns, of the clock of its host's first part */
    int64_t pid, tid;
    int part;
    note_role role;
    char name[16];
} note;

typedef struct merging {
    part *parts;
    int count, n_hosts;
    merge_host *hosts;
    int64_t *lead; /* W of hosts a and b, at a * n_hosts + b; -FAR: none */
    note *notes;
    size_t n_notes, note_room;
    FILE *to;
    bool any; /* an event was written */
    int64_t arrows;
} merging;

/* ---- heads ------------------------------------------------------------------------------------------------------- */
static yk_status part_open(part *p, const yk__trace_clock *clock)
{
    static const char mark[] = "\"yoke_trace\":1,\"ranks\":[";
    int64_t rank = 0;
    rewind(p->from);
    ssize_t size = getline(&p->line, &p->room, p->from);
    char *at = size > 0 ? strstr(p->line, mark) : NULL, *end = at ? strstr(at, "]},\"traceEvents\":[") : NULL;
    const char *machine = at ? yk__trace_member(at, "machine") : NULL;
    if (!at || !end || !machine || *machine != '"' || !yk__trace_number(at, "base_ns", &p->base) ||
        !yk__trace_number(at, "real_ns", &p->real) || !yk__trace_number(at, "rank", &rank))
        return yk__fail(YK_ERR_FORMAT, "%s is no trace of yoke's: its first line has no \"yoke_trace\":1", p->name);
    p->ranks = at + strlen(mark);
    *end = '\0';
    p->rank = (int)rank;
    if (!yk__trace_number(at, "duration_ns", &p->duration))
        p->duration = 0;
    if (clock && clock->known) {
        p->known = true;
        p->to_rank0 = clock->to_rank0_ns;
        p->error = clock->error_ns + (clock->error_ns ? (int64_t)(DRIFT * (double)p->duration) : 0);
    } else {
        p->known = yk__trace_number(at, "to_rank0_ns", &p->to_rank0) && yk__trace_number(at, "error_ns", &p->error);
    }
    snprintf(p->machine, sizeof(p->machine), "%.*s", (int)yk__trace_length(machine + 1), machine + 1);
    return YK_OK;
}

static int part_compare(const void *a, const void *b)
{
    return ((const part *)a)->rank - ((const part *)b)->rank;
}

/* The shift as it was measured, or by what the clocks say of the time of day. */
static void host_estimate(merge_host *h, const part *reference)
{
    const part *p = h->part;
    h->least = -FAR;
    h->most = FAR;
    h->error = -1;
    if (p->known && reference->known) {
        h->shift = p->base - reference->base + p->to_rank0 - reference->to_rank0;
        h->error = p->error + reference->error;
        h->least = h->shift - h->error;
        h->most = h->shift + h->error;
    } else {
        h->shift = p->real - reference->real; /* which may be hours */
    }
}

/* The hosts; the first is the reference. */
static yk_status hosts_make(merging *m)
{
    m->hosts = yk__calloc((size_t)m->count + 1, sizeof(*m->hosts));
    if (!m->hosts)
        return yk__error_code();
    for (int i = 0; i < m->count; i++) {
        part *p = &m->parts[i];
        while (p->host < m->n_hosts && strcmp(m->hosts[p->host].part->machine, p->machine) != 0)
            p->host++;
        if (p->host < m->n_hosts)
            continue;
        m->hosts[m->n_hosts] = (merge_host){.part = p};
        if (m->n_hosts++)
            host_estimate(&m->hosts[p->host], m->hosts[0].part);
    }
    m->lead = yk__calloc((size_t)m->n_hosts * (size_t)m->n_hosts + 1, sizeof(*m->lead));
    for (int i = 0; m->lead && i < m->n_hosts * m->n_hosts; i++)
        m->lead[i] = -FAR;
    return m->lead ? YK_OK : yk__error_code();
}

/* Nanoseconds from the start of its host's first part to that of a part. */
static int64_t part_offset(const merging *m, const part *p)
{
    return p->base - m->hosts[p->host].part->base;
}

/* ---- what ranks did together ------------------------------------------------------------------------------------- */
static uint64_t text_hash(uint64_t hash, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    return hash;
}

static bool text_is(const char *text, size_t size, const char *word)
{
    return size == strlen(word) && memcmp(text, word, size) == 0;
}

/* A line that may be of use, without its end. False where it is not. */
static bool note_read(const char *line, note *n)
{
    static const char *const together[] = {"all_reduce", "all_gather", "reduce_scatter", "barrier"};
    const char *category = yk__trace_member(line, "cat"), *name = yk__trace_member(line, "name"),
               *args = yk__trace_member(line, "args"), *at;
    int64_t number, own, peer = -1, count = 0, tag = 0, sequence = 0, duration;
    if (!category || !name || !args || *category++ != '"' || *name++ != '"' || strstr(args, "\"failed\":true"))
        return false;
    size_t size = yk__trace_length(category), length = yk__trace_length(name);
    bool collective = text_is(category, size, "communication"), wait = text_is(category, size, "wait");
    bool sends = text_is(category, size, "message") && text_is(name, length, "send"),
         receives = wait && text_is(name, length, "wait recv");
    const char *of = yk__trace_member(args, "of");
    if ((!collective && !sends && !receives) || !of || *of++ != '"' || !yk__trace_number(args, "number", &number) ||
        !yk__trace_number(args, "own", &own) || !yk__trace_number(line, "pid", &n->pid) ||
        !yk__trace_number(line, "tid", &n->tid) || !yk__trace_time(line + strlen("{\"ts\":"), &n->began, &at) ||
        strncmp(at, ",\"dur\":", 7) != 0 || !yk__trace_time(at + 7, &duration, &at))
        return false;
    bool rooted = yk__trace_number(args, "peer", &peer);
    n->ended = n->began + duration;
    n->key = text_hash(0xcbf29ce484222325u, of, yk__trace_length(of));
    if (!collective) {
        if (!yk__trace_number(args, "sequence", &sequence) || !yk__trace_number(args, "tag", &tag))
            return false;
        const int64_t pair[4] = {sends ? own : peer, sends ? peer : own, tag, sequence};
        n->key = text_hash(n->key, (const char *)pair, sizeof(pair));
        n->role = sends ? ROLE_SOURCE : ROLE_SINK;
        snprintf(n->name, sizeof(n->name), "message");
        return true;
    }
    n->key = text_hash(text_hash(n->key, name, length), (const char *)&number, sizeof(number));
    snprintf(n->name, sizeof(n->name), "%.*s", (int)length, name);
    n->role = ROLE_ALONG;
    if (rooted && (text_is(name, length, "broadcast") || text_is(name, length, "scatter")))
        n->role = own == peer ? ROLE_SOURCE : ROLE_SINK;
    else if (rooted && own == peer)
        n->role = ROLE_SINK;
    else if (rooted)
        n->role = ROLE_SOURCE;
    bool any = text_is(name, length, "barrier") || (yk__trace_number(args, "count", &count) && count > 0);
    for (size_t i = 0; i < sizeof(together) / sizeof(*together) && any; i++) {
        if (text_is(name, length, together[i]))
            n->role = ROLE_TOGETHER;
    }
    return true;
}

static yk_status note_add(merging *m, const note *n)
{
    if (m->n_notes == m->note_room) {
        size_t room = m->note_room ? 2 * m->note_room : 1024;
        note *notes = yk__realloc(m->notes, room * sizeof(*notes));
        if (!notes)
            return yk__error_code();
        m->notes = notes;
        m->note_room = room;
    }
    m->notes[m->n_notes++] = *n;
    return YK_OK;
}

static yk_status part_note(merging *m, int index)
{
    part *p = &m->parts[index];
    int64_t offset = part_offset(m, p);
    char *line = NULL;
    size_t room = 0;
    yk_status status = YK_OK;
    while (!status && getline(&line, &room, p->from) > 0) {
        note n = {.part = index};
        if (strncmp(line, "{\"ts\":", 6) != 0 || !note_read(line, &n))
            continue;
        n.began += offset;
        n.ended += offset;
        status = note_add(m, &n);
    }
    free(line);
    return !status && ferror(p->from) ? yk__fail_errno("%s cannot be read", p->name) : status;
}

static int note_compare(const void *a, const void *b)
{
    const note *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

/* True if each rank is once in the operation, so that its events are of one; and there are several ranks. */
static bool notes_are_one(const note *n, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        if (n[i].pid == n[i - 1].pid)
            return false;
    }
    return count > 1;
}

static bool note_waits_for(const note *n, const note *other)
{
    return n != other && (n->role == ROLE_TOGETHER || (n->role == ROLE_SINK && other->role == ROLE_SOURCE));
}

/* Adds what one operation says of the clocks (Note [Clocks of traces]). */
static void lead_add(merging *m, const note *n, size_t count, int64_t *begins, int64_t *ends)
{
    for (int h = 0; h < m->n_hosts; h++) {
        begins[h] = -FAR;
        ends[h] = FAR;
    }
    for (size_t i = 0; i < count; i++) {
        int h = m->parts[n[i].part].host;
        if (n[i].role != ROLE_SINK && n[i].role != ROLE_ALONG && n[i].began > begins[h])
            begins[h] = n[i].began;
        if (n[i].role != ROLE_SOURCE && n[i].role != ROLE_ALONG && n[i].ended < ends[h])
            ends[h] = n[i].ended;
    }
    for (int a = 0; a < m->n_hosts; a++) {
        for (int b = 0; b < m->n_hosts && ends[a] < FAR; b++) {
            int64_t *lead = &m->lead[a * m->n_hosts + b];
            if (a != b && begins[b] > -FAR && begins[b] - ends[a] > *lead)
                *lead = begins[b] - ends[a];
        }
    }
}

/* Calls `each` for every operation with several ranks. */
static yk_status operations_each(merging *m,
                                 void (*each)(merging *m, const note *n, size_t count, int64_t *begins, int64_t *ends))
{
    int64_t *room = yk__calloc(2 * (size_t)m->n_hosts + 1, sizeof(*room));
    if (!room)
        return yk__error_code();
    for (size_t i = 0, next; i < m->n_notes; i = next) {
        for (next = i; next < m->n_notes && m->notes[next].key == m->notes[i].key; next++)
            continue;
        if (notes_are_one(m->notes + i, next - i))
            each(m, m->notes + i, next - i, room, room + m->n_hosts);
    }
    free(room);
    return YK_OK;
}

/* Bounds the shifts by what ranks did together; false where they cannot all be met. */
static bool shifts_bound(merging *m)
{
    merge_host *h = m->hosts;
    bool changed = true;
    for (int round = 0; changed && round <= m->n_hosts; round++) {
        changed = false;
        for (int a = 0; a < m->n_hosts; a++) {
            for (int b = 0; b < m->n_hosts; b++) {
                int64_t lead = m->lead[a * m->n_hosts + b];
                if (lead > -FAR && h[b].least > -FAR && h[b].least + lead > h[a].least) {
                    h[a].least = h[b].least + lead;
                    changed = true;
                }
                if (lead > -FAR && h[a].most < FAR && h[a].most - lead < h[b].most) {
                    h[b].most = h[a].most - lead;
                    changed = true;
                }
            }
        }
    }
    for (int a = 0; a < m->n_hosts && !changed; a++)
        changed = h[a].least > h[a].most;
    return !changed;
}

static void shifts_choose(merging *m)
{
    int64_t longest = 0;
    for (int i = 0; i < m->count; i++)
        longest = m->parts[i].duration > longest ? m->parts[i].duration : longest;
    if (!shifts_bound(m))
        return;
    for (int a = 1; a < m->n_hosts; a++) {
        merge_host *h = &m->hosts[a];
        if (h->least == -FAR || h->most == FAR) {
            h->shift = h->shift < h->least ? h->least : h->shift > h->most ? h->most : h->shift;
            continue;
        }
        int64_t error = (h->most - h->least + 1) / 2 + (int64_t)(DRIFT * (double)longest);
        h->shift = h->least + (h->most - h->least) / 2;
        h->error = h->error >= 0 && h->error < error ? h->error : error;
    }
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */
/* The ranks of a part's head, with what is known now of the clock of its host. */
static void ranks_write(const merging *m, const part *p, FILE *to)
{
    const merge_host *h = &m->hosts[p->host];
    const char *at = p->ranks, *number;
    while ((number = strstr(at, "\"to_rank0_ns\":"))) {
        const char *end = strstr(number, ",\"lost\":"), *machine = yk__trace_member(at, "machine");
        bool same = machine && *machine == '"' && strlen(p->machine) == yk__trace_length(machine + 1) &&
                    memcmp(p->machine, machine + 1, strlen(p->machine)) == 0;
        if (!end)
            break;
        fwrite(at, 1, (size_t)(number - at), to);
        if (p->host && same && h->error >= 0)
            fprintf(to, "\"to_rank0_ns\":%" PRId64 ",\"error_ns\":%" PRId64,
                    h->shift - (h->part->base - m->hosts[0].part->base) + m->hosts[0].part->to_rank0, h->error);
        else
            fwrite(number, 1, (size_t)(end - number), to);
        at = end;
    }
    fputs(at, to);
}

static void event_begin(merging *m)
{
    fputs(m->any ? ",\n" : "", m->to);
    m->any = true;
}

/* Copies the events of a part, on the reference's clock. */
static yk_status part_copy(merging *m, part *p)
{
    int64_t shift = m->hosts[p->host].shift + part_offset(m, p);
    ssize_t size;
    while ((size = getline(&p->line, &p->room, p->from)) > 0) {
        int64_t ns;
        const char *end = NULL;
        char *line = p->line;
        while (size && (line[size - 1] == '\n' || line[size - 1] == ','))
            line[--size] = '\0';
        if (size < 2 || strcmp(line, "]}") == 0 || line[size - 1] != '}') /* the rest of a file that was cut */
            continue;
        if (strncmp(line, "{\"ts\":", 6) != 0 || !yk__trace_time(line + 6, &ns, &end))
            return yk__fail(YK_ERR_FORMAT, "%s: a line of the trace is no event: %.60s", p->name, line);
        if (strstr(end, ",\"cat\":\"flow\",")) /* of a merge before */
            continue;
        bool meta = strncmp(end, ",\"ph\":\"M\"", 9) == 0;
        event_begin(m);
        fputs("{\"ts\":", m->to);
        yk__trace_put_time(m->to, meta ? 0 : ns + shift);
        fputs(end, m->to);
    }
    return ferror(p->from) ? yk__fail_errno("%s cannot be read", p->name) : YK_OK;
}

/* An arrow from the begin of one event to the end of another. */
static void arrow_write(merging *m, const note *from, const note *to)
{
    int64_t began = from->began + m->hosts[m->parts[from->part].host].shift,
            shift = m->hosts[m->parts[to->part].host].shift, ended = to->ended + shift;
    if (ended < began)
        return;
    if (ended - 1 >= began && to->ended > to->began) /* within the event */
        ended--;
    m->arrows++;
    event_begin(m);
    fputs("{\"ts\":", m->to);
    yk__trace_put_time(m->to, began);
    fprintf(m->to,
            ",\"ph\":\"s\",\"pid\":%" PRId64 ",\"tid\":%" PRId64 ",\"id\":%" PRId64
            ",\"cat\":\"flow\",\"name\":\"%s\",\"args\":{}}",
            from->pid, from->tid, m->arrows, from->name);
    event_begin(m);
    fputs("{\"ts\":", m->to);
    yk__trace_put_time(m->to, ended);
    fprintf(m->to,
            ",\"ph\":\"f\",\"bp\":\"e\",\"pid\":%" PRId64 ",\"tid\":%" PRId64 ",\"id\":%" PRId64
            ",\"cat\":\"flow\",\"name\":\"%s\",\"args\":{}}",
            to->pid, to->tid, m->arrows, to->name);
}

/* The arrows of one operation: from the one that came last, or the root, to each that waited for it. */
static void arrows_write(merging *m, const note *n, size_t count, int64_t *begins, int64_t *ends)
{
    const note *last = NULL;
    int64_t at = 0;
    (void)begins;
    (void)ends;
    for (size_t i = 0; i < count; i++) {
        int64_t began = n[i].began + m->hosts[m->parts[n[i].part].host].shift;
        if ((n[i].role == ROLE_TOGETHER || n[i].role == ROLE_SOURCE) && (!last || began > at)) {
            last = &n[i];
            at = began;
        }
    }
    for (size_t i = 0; last && i < count; i++) {
        if (note_waits_for(&n[i], last))
            arrow_write(m, last, &n[i]);
    }
}

static yk_status parts_write(merging *m)
{
    yk_status status = YK_OK;
    fputs("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"yoke_trace\":1,\"ranks\":[", m->to);
    for (int i = 0; i < m->count; i++) {
        fputs(i ? "," : "", m->to);
        ranks_write(m, &m->parts[i], m->to);
    }
    fputs("]},\"traceEvents\":[\n", m->to);
    for (int i = 0; i < m->count && !status; i++) {
        rewind(m->parts[i].from);
        status = getline(&m->parts[i].line, &m->parts[i].room, m->parts[i].from) < 0
                     ? yk__fail_errno("%s cannot be read again", m->parts[i].name)
                     : part_copy(m, &m->parts[i]);
    }
    status = status ? status : operations_each(m, arrows_write);
    fputs("\n]}\n", m->to);
    return status ? status : ferror(m->to) || fflush(m->to) ? yk__fail_errno("the trace cannot be written") : YK_OK;
}

yk_status yk__trace_merge(FILE *const *from, const char *const *names, const yk__trace_clock *clocks, int count,
                          FILE *to)
{
    merging m = {.count = count, .to = to};
    m.parts = yk__calloc((size_t)count + 1, sizeof(*m.parts));
    yk_status status = m.parts ? YK_OK : yk__error_code();
    for (int i = 0; i < count && !status; i++) {
        m.parts[i].from = from[i];
        m.parts[i].name = names[i];
        status = part_open(&m.parts[i], clocks ? &clocks[i] : NULL);
    }
    if (!status) {
        qsort(m.parts, (size_t)count, sizeof(*m.parts), part_compare);
        status = hosts_make(&m);
    }
    for (int i = 0; i < count && !status; i++)
        status = part_note(&m, i);
    if (!status && m.n_notes) {
        qsort(m.notes, m.n_notes, sizeof(*m.notes), note_compare);
        status = operations_each(&m, lead_add);
    }
    if (!status) {
        shifts_choose(&m);
        status = parts_write(&m);
    }
    for (int i = 0; m.parts && i < count; i++)
        free(m.parts[i].line);
    free(m.parts);
    free(m.hosts);
    free(m.lead);
    free(m.notes);
    return status;
}

typedef struct merge_arguments {
    FILE *const *from;
    const char *const *names;
    const yk__trace_clock *clocks;
    int count;
} merge_arguments;

static yk_status merge_body(void *argument, FILE *to)
{
    const merge_arguments *m = argument;
    return yk__trace_merge(m->from, m->names, m->clocks, m->count, to);
}

yk_status yk__trace_merge_save(FILE *const *from, const char *const *names, const yk__trace_clock *clocks, int count,
                               const char *path)
{
    return yk__trace_save_with(path, merge_body, &(merge_arguments){from, names, clocks, count});
}
