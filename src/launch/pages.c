/*
 * pages.c - the pages of a launcher's processes. Layer: launch.
 *
 * They lie one after the other in one memory file, behind a block with requests; it grows by one for each new process.
 * Invariants: a page belongs to one process and is given to no other, so what a process that was given up still writes
 * changes nothing that is read; the pages of the last YK__PAGES_KEPT processes before the newest stay, and the memory
 * of older ones is given back.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/json_line.h"
#include "host/process.h"
#include "launch/pages.h"

/* The pages of one index. */
typedef struct page_history {
    int number[YK__PAGES_KEPT + 1];          /* of the page in the file; the newest first */
    yk__rank_page *page[YK__PAGES_KEPT + 1]; /* mapped; NULL: none */
} page_history;

struct yk__pages {
    int fd, count, made; /* made: blocks of the file */
    page_history *of;
    yk__run_requests *requests;
};

/* The first block of the file. */
static bool requests_make(yk__pages *p)
{
    void *block = MAP_FAILED;
    if (ftruncate(p->fd, YK__PAGE_SIZE) == 0)
        block = mmap(NULL, YK__PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, p->fd, 0);
    if (block == MAP_FAILED) {
        yk__fail_errno("no memory to share with the processes");
        return false;
    }
    p->requests = block;
    p->requests->magic = YK__REQUESTS_MAGIC;
    p->requests->version = YK__REQUESTS_VERSION;
    p->requests->size = sizeof(*p->requests);
    p->made = 1;
    return true;
}

yk__pages *yk__pages_create(int count)
{
    yk__pages *p = yk__calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    p->fd = -1;
    p->count = count;
    p->of = yk__calloc((size_t)count, sizeof(*p->of));
    if (p->of && (p->fd = memfd_create("yoke-rank-pages", MFD_CLOEXEC | MFD_ALLOW_SEALING)) < 0)
        yk__fail_errno("no memory to share with the processes");
    if (p->fd >= 0 && requests_make(p)) {
        fcntl(p->fd, F_ADD_SEALS, F_SEAL_SHRINK);
        return p;
    }
    yk__pages_free(p);
    return NULL;
}

yk__run_requests *yk__pages_requests(const yk__pages *p)
{
    return p ? p->requests : NULL;
}

void yk__pages_free(yk__pages *p)
{
    if (!p)
        return;
    for (int i = 0; p->of && i < p->count; i++) {
        for (int k = 0; k <= YK__PAGES_KEPT; k++) {
            if (p->of[i].page[k])
                munmap(p->of[i].page[k], YK__PAGE_SIZE);
        }
    }
    if (p->requests)
        munmap(p->requests, YK__PAGE_SIZE);
    if (p->fd >= 0)
        close(p->fd);
    free(p->of);
    free(p);
}

/* The oldest page makes room, and its memory is the system's again; its process has ended long ago. */
static void page_drop(yk__pages *p, page_history *of)
{
    const int last = YK__PAGES_KEPT;
    if (of->page[last]) {
        munmap(of->page[last], YK__PAGE_SIZE);
        (void)!fallocate(p->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)of->number[last] * YK__PAGE_SIZE,
                         YK__PAGE_SIZE);
    }
    memmove(of->page + 1, of->page, YK__PAGES_KEPT * sizeof(*of->page));
    memmove(of->number + 1, of->number, YK__PAGES_KEPT * sizeof(*of->number));
}

yk_status yk__pages_renew(yk__pages *p, int index, const yk__page_owner *owner)
{
    int number = p->made;
    void *page = MAP_FAILED;
    if (ftruncate(p->fd, (off_t)(number + 1) * YK__PAGE_SIZE) == 0)
        page = mmap(NULL, YK__PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, p->fd, (off_t)number * YK__PAGE_SIZE);
    if (page == MAP_FAILED)
        return yk__fail_errno("no memory to share with process %d of %d", index + 1, p->count);
    page_drop(p, &p->of[index]);
    p->of[index].page[0] = page;
    p->of[index].number[0] = number;
    p->made++;
    yk__rank_page *head = page; /* the rest is zero, and costs no memory before the process writes there */
    head->magic = YK__PAGE_MAGIC;
    head->version = YK__PAGE_VERSION;
    head->size = sizeof(*head);
    head->rank = owner->rank;
    head->world_size = owner->world_size;
    head->local_rank = owner->local_rank;
    head->node = owner->node;
    head->role_rank = owner->role_rank;
    head->incarnation = owner->incarnation;
    snprintf(head->role, sizeof(head->role), "%s", owner->role ? owner->role : "");
    return YK_OK;
}

yk__rank_page *yk__pages_at(const yk__pages *p, int index)
{
    return yk__pages_before(p, index, 0);
}

yk__rank_page *yk__pages_before(const yk__pages *p, int index, int back)
{
    return p && back <= YK__PAGES_KEPT ? p->of[index].page[back] : NULL;
}

int yk__pages_descriptor(const yk__pages *p)
{
    return p->fd;
}

const char *yk__pages_variable(const yk__pages *p, int index, int number, char text[YK__PAGES_VARIABLE])
{
    snprintf(text, YK__PAGES_VARIABLE, "%d:%d:%d:%d", (int)getpid(), p->fd, p->of[index].number[0], number);
    return text;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */
static json_t *text_json(const char *text)
{
    return yk__json_text(text, strlen(text));
}

/* Seconds from the moment of reading back to a time of the page; null where there is none. */
static json_t *ago_json(const yk__rank_page *page, uint64_t ticks)
{
    return ticks ? yk__json_fixed(yk__now() - yk__page_time(page, ticks), 6) : json_null();
}

/* null where the program has given none, and "NaN" where it has given that. */
static json_t *loss_json(const yk__rank_page *page)
{
    if (!atomic_load(&page->losses))
        return json_null();
    double loss = atomic_load(&page->loss);
    return isfinite(loss) ? yk__json_number(loss, YK__JSON_DIGITS)
                          : json_string(isnan(loss) ? "NaN"
                                        : loss > 0  ? "Infinity"
                                                    : "-Infinity");
}

static json_t *operation_json(const yk__rank_page *page, const yk__page_operation *o)
{
    json_t *object = json_pack("{s:s,s:o,s:I,s:o,s:o,s:o}", "what", yk__operation_what_name((unsigned)o->what), "kind",
                               text_json(o->kind), "number", (json_int_t)o->number, "of", text_json(o->group),
                               "began_s_ago", ago_json(page, o->began), "ended_s_ago", ago_json(page, o->ended));
    if (object && o->dtype[0])
        json_object_set_new(object, "dtype", text_json(o->dtype));
    if (object && o->count)
        json_object_set_new(object, "count", json_integer((json_int_t)o->count));
    if (object && o->reduction[0])
        json_object_set_new(object, "reduction", text_json(o->reduction));
    if (object && o->peer >= 0)
        json_object_set_new(object, "peer", json_integer(o->peer));
    if (object && o->tag >= 0)
        json_object_set_new(object, "tag", json_integer(o->tag));
    if (object && o->world_size)
        json_object_set_new(object, "world_size", json_integer(o->world_size));
    return object;
}

/* Those that are under way, or have ended, in the order in which they began; calls stand behind the others. */
static json_t *operations_json(const yk__rank_page *page, bool ended)
{
    json_t *list = json_array();
    yk__page_operation o[YK__PAGE_RING];
    int order[YK__PAGE_RING], count = 0;
    for (int i = 0; i < YK__PAGE_RING; i++) {
        if (!yk__page_read(&page->ring[i], &o[i]) || (o[i].ended > 0) != ended)
            continue;
        int at = count++;
        for (; at > 0 && o[order[at - 1]].began > o[i].began; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    for (int i = 0; list && i < count; i++)
        json_array_append_new(list, operation_json(page, &o[order[i]]));
    for (int i = 0; list && !ended && i < YK__PAGE_CALLS; i++) {
        if (yk__page_read(&page->calls[i], &o[0]))
            json_array_append_new(list, operation_json(page, &o[0]));
    }
    return list;
}

static json_t *counters_json(const yk__rank_page *page)
{
    json_t *object = json_object();
    char name[52];
    int64_t value;
    for (int i = 0; object && i < YK__PAGE_COUNTERS; i++) {
        json_t *number = yk__page_counter(page, i, name, &value) ? json_integer((json_int_t)value) : NULL;
        if (number && json_object_set_new(object, name, number)) /* a name that is no UTF-8 */
            json_object_set_new(object, "?", json_integer((json_int_t)value));
    }
    return object;
}

/* "runs", "stopped" (SIGSTOP, a debugger) or "ended"; null where the page has no process. */
static json_t *process_json(const yk__rank_page *page)
{
    char state;
    uint64_t start;
    int pid = atomic_load(&page->pid);
    if (pid <= 0)
        return json_null();
    if (!yk__process_state(pid, &state, &start) || state == 'Z' || state == 'X')
        return json_string("ended");
    return json_string(state == 'T' || state == 't' ? "stopped" : "runs");
}

char *yk__page_json(const yk__rank_page *page)
{
    char text[YK__PAGE_TEXT];
    double since, now = yk__now(), failed = atomic_load(&page->failed);
    yk__phase phase = yk__page_phase(page, text, &since);
    json_t *phase_object =
        json_pack("{s:s,s:o,s:o}", "name", yk__phase_name(phase), "text", *text ? text_json(text) : json_null(),
                  "since_s_ago", since > 0 ? yk__json_fixed(now - since, 6) : json_null());
    json_t *object =
        json_pack("{s:i,s:i,s:i,s:i,s:i,s:o,s:i,s:i,s:i,s:o,s:I,s:o,s:I,s:o,s:i,s:o,s:o,s:o,s:I,s:o,s:o,s:o,s:o}",
                  "version", YK__PAGE_VERSION, "rank", page->rank, "world_size", page->world_size, "local_rank",
                  page->local_rank, "node", page->node, "role", text_json(page->role), "role_rank", page->role_rank,
                  "incarnation", page->incarnation, "pid", atomic_load(&page->pid), "phase", phase_object, "steps",
                  (json_int_t)atomic_load(&page->steps), "stepped_s_ago", ago_json(page, atomic_load(&page->stepped)),
                  "samples", (json_int_t)atomic_load(&page->samples), "loss", loss_json(page), "groups",
                  atomic_load(&page->groups), "progressed_s_ago", ago_json(page, atomic_load(&page->progressed)),
                  "failed_s_ago", failed > 0 ? yk__json_fixed(now - failed, 6) : json_null(), "counters",
                  counters_json(page), "begun", (json_int_t)atomic_load(&page->begun), "under_way",
                  operations_json(page, false), "last", operations_json(page, true), "process", process_json(page),
                  "worker", atomic_load(&page->worker) > 0 ? json_integer(atomic_load(&page->worker)) : json_null());
    return yk__json_line(object, YK__JSON_DIGITS);
}
