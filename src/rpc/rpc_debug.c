/*
 * rpc_debug.c - what a worker knows of its calls and objects, for those who look for a hang. Layer: rpc.
 *
 * The lock is held while numbers and names are copied, and not while values are made.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "rpc/rpc_agent.h"

enum { MOST_SHOWN = 64 /* calls, the oldest; and objects, those with most calls that wait */ };

typedef struct seen_call {
    char what[3 * YK__RPC_NAME];
    double seconds;
    bool sent;
} seen_call;

typedef struct seen_object {
    char name[YK__RPC_NAME], shared[YK__RPC_NAME];
    int references, running, waiting;
    bool made, failed;
} seen_object;

typedef struct seen_worker {
    yk__rpc_member member;
    int waited_for, serving; /* calls of this worker to it without an answer, and its calls here */
    const char *by;
} seen_worker;

typedef struct seen {
    yk__rpc_member own;
    seen_call calls[MOST_SHOWN], runs[MOST_SHOWN]; /* calls of this worker, and those that it runs */
    seen_object objects[MOST_SHOWN];
    seen_worker *workers;
    int call_count, calls_shown, running_shown, object_count, objects_shown, worker_count;
    int running, ready, waiting, threads, idle, limit, held; /* held: references of others */
} seen;

/* ---- copying, with the lock -------------------------------------------------------------------------------------- */

/* The place of a call in the list, the oldest first; NULL: the list is full of older ones. */
static seen_call *calls_place(seen_call *calls, int *shown, double seconds)
{
    int at = *shown;
    while (at > 0 && calls[at - 1].seconds < seconds)
        at--;
    if (at == MOST_SHOWN)
        return NULL;
    *shown += *shown < MOST_SHOWN;
    memmove(&calls[at + 1], &calls[at], (size_t)(*shown - 1 - at) * sizeof(calls[0]));
    calls[at] = (seen_call){.seconds = seconds};
    return &calls[at];
}

static void seen_add_call(seen *s, const yk_future *f, double now)
{
    s->call_count++;
    bool sent = f->progress == YK__RPC_SENT;
    seen_call *c = calls_place(s->calls, &s->calls_shown, sent ? now - f->sent : 0);
    if (!c)
        return;
    c->sent = sent;
    memcpy(c->what, f->what, sizeof(f->what));
}

static void seen_add_run(seen *s, const yk__rpc_server *server, double now)
{
    seen_call *c = calls_place(s->runs, &s->running_shown, now - server->since);
    if (c)
        yk__rpc_call_describe(server->call, c->what, sizeof(c->what));
}

/* Keeps those in which most calls wait. */
static void seen_add_object(seen *s, const yk__rpc_object *o)
{
    int waiting = 0;
    for (const yk_call *call = o->first; call; call = call->next_ready)
        waiting += call->kind != YK__RPC_DESTROY;
    s->object_count++;
    s->waiting += waiting;
    int at = s->objects_shown;
    while (at > 0 && s->objects[at - 1].waiting < waiting)
        at--;
    if (at == MOST_SHOWN)
        return;
    s->objects_shown += s->objects_shown < MOST_SHOWN;
    memmove(&s->objects[at + 1], &s->objects[at], (size_t)(s->objects_shown - 1 - at) * sizeof(s->objects[0]));
    s->objects[at] = (seen_object){.references = o->references,
                                   .running = o->running,
                                   .waiting = waiting,
                                   .made = o->made,
                                   .failed = o->error.code != YK_OK};
    memcpy(s->objects[at].name, o->name, sizeof(o->name));
    memcpy(s->objects[at].shared, o->shared, sizeof(o->shared));
}

static void seen_add_link(seen *s, const yk__rpc_link *link, double now)
{
    for (const yk_future *f = link->futures; f; f = f->next)
        seen_add_call(s, f, now);
    for (int i = 0; i < s->worker_count; i++) {
        seen_worker *w = &s->workers[i];
        if (w->member.index != link->index || !link->ready)
            continue;
        *(link->accepted ? &w->serving : &w->waited_for) += link->call_count;
        w->by = link->pair && link->pair->open ? "shared memory" : "tcp";
    }
}

/* Copies all; the caller frees s->workers. */
static yk_status seen_take(seen *s)
{
    double now = yk__now();
    *s = (seen){.own = {.index = yk__rpc.index, .pid = yk__rpc.pid},
                .running = yk__rpc.executing,
                .threads = yk__rpc.threads,
                .idle = yk__rpc.idle,
                .limit = yk__rpc.threads_limit};
    snprintf(s->own.name, sizeof(s->own.name), "%s", yk__rpc.name);
    snprintf(s->own.host, sizeof(s->own.host), "%s", yk__rpc.identity.host);
    s->workers = yk__calloc((size_t)yk__rpc.member_count + 1, sizeof(*s->workers));
    if (!s->workers)
        return YK_ERR_MEMORY;
    s->worker_count = yk__rpc.member_count;
    for (int i = 0; i < s->worker_count; i++)
        s->workers[i] = (seen_worker){.member = yk__rpc.members[i], .by = ""};
    for (const yk__rpc_server *server = yk__rpc.servers; server; server = server->next)
        if (server->call)
            seen_add_run(s, server, now);
    for (const yk_future *f = yk__rpc.futures; f; f = f->next)
        seen_add_call(s, f, now);
    for (const yk__rpc_link *link = yk__rpc.links; link; link = link->next)
        seen_add_link(s, link, now);
    for (const yk_call *call = yk__rpc.ready_first; call; call = call->next_ready)
        s->ready += call->kind != YK__RPC_DESTROY;
    for (const yk__rpc_object *o = yk__rpc.objects; o; o = o->next)
        seen_add_object(s, o);
    for (size_t i = 0; i < sizeof(yk__rpc.held) / sizeof(yk__rpc.held[0]); i++)
        for (const yk__rpc_held *h = yk__rpc.held[i]; h; h = h->next)
            s->held += h->holder != yk__rpc.index;
    return YK_OK;
}

/* ---- as a value -------------------------------------------------------------------------------------------------- */

static bool set_int(yk_value *dict, const char *key, int64_t value)
{
    return !yk_value_set(dict, key, yk_value_int(value));
}

static bool set_text(yk_value *dict, const char *key, const char *text)
{
    return !yk_value_set(dict, key, yk_value_string(text));
}

static yk_value *calls_value(const seen *s)
{
    yk_value *list = yk_value_list();
    for (int i = 0; i < s->calls_shown; i++) {
        yk_value *one = yk_value_dict();
        if (!set_text(one, "call", s->calls[i].what) ||
            yk_value_set(one, "seconds", yk_value_real(s->calls[i].seconds)) ||
            yk_value_set(one, "sent", yk_value_bool(s->calls[i].sent)) || yk_value_append(list, one))
            return NULL;
    }
    return list;
}

static yk_value *running_value(const seen *s)
{
    yk_value *list = yk_value_list();
    for (int i = 0; i < s->running_shown; i++) {
        yk_value *one = yk_value_dict();
        if (!set_text(one, "call", s->runs[i].what) ||
            yk_value_set(one, "seconds", yk_value_real(s->runs[i].seconds)) || yk_value_append(list, one))
            return NULL;
    }
    return list;
}

static yk_value *objects_value(const seen *s)
{
    yk_value *list = yk_value_list();
    for (int i = 0; i < s->objects_shown; i++) {
        const seen_object *o = &s->objects[i];
        yk_value *one = yk_value_dict();
        if (!set_text(one, "name", o->name) || !set_text(one, "shared", o->shared) ||
            !set_text(one, "state",
                      o->failed ? "could not be made"
                      : o->made ? "made"
                                : "being made") ||
            !set_int(one, "references", o->references) || !set_int(one, "running", o->running) ||
            !set_int(one, "waiting", o->waiting) || yk_value_append(list, one))
            return NULL;
    }
    return list;
}

static yk_value *workers_value(const seen *s)
{
    yk_value *list = yk_value_list();
    for (int i = 0; i < s->worker_count; i++) {
        const seen_worker *w = &s->workers[i];
        yk_value *one = yk_value_dict();
        if (!set_text(one, "name", w->member.name) || !set_text(one, "host", w->member.host) ||
            !set_int(one, "pid", w->member.pid) || yk_value_set(one, "gone", yk_value_bool(w->member.gone)) ||
            !set_text(one, "connected_by", w->by) || !set_int(one, "waited_for", w->waited_for) ||
            !set_int(one, "serving", w->serving) || yk_value_append(list, one))
            return NULL;
    }
    return list;
}

static yk_value *seen_value(const seen *s)
{
    yk_value *all = yk_value_dict();
    if (!set_text(all, "name", s->own.name) || !set_text(all, "host", s->own.host) ||
        !set_int(all, "pid", s->own.pid) || !set_int(all, "outstanding_calls", s->call_count) ||
        !set_int(all, "running_calls", s->running) || !set_int(all, "queued_calls", s->ready + s->waiting) ||
        !set_int(all, "threads", s->threads) || !set_int(all, "idle_threads", s->idle) ||
        !set_int(all, "most_running", s->limit) || !set_int(all, "objects", s->object_count) ||
        !set_int(all, "references_held_by_others", s->held) || yk_value_set(all, "running_list", running_value(s)) ||
        yk_value_set(all, "oldest_outstanding", calls_value(s)) || yk_value_set(all, "object_list", objects_value(s)) ||
        yk_value_set(all, "workers", workers_value(s)))
        return NULL;
    return all;
}

yk_value *yk_rpc_debug_info(void)
{
    seen *s = yk__calloc(1, sizeof(*s));
    yk_status status = s ? yk__rpc_enter("rpc_debug_info") : YK_ERR_MEMORY;
    if (!status) {
        status = seen_take(s);
        yk__rpc_leave();
    }
    yk_value *value = status ? NULL : seen_value(s);
    if (s)
        free(s->workers);
    free(s);
    return value;
}

/* ---- as a line of the log ---------------------------------------------------------------------------------------- */

void yk__rpc_debug_log(const char *what)
{
    static double last; /* with the agent's lock */
    double now = yk__now();
    if (!yk__log_enabled(YK_LOG_WARN) || (last > 0 && now - last < 1))
        return;
    seen *s = calloc(1, sizeof(*s));
    if (!s || seen_take(s)) {
        free(s);
        return;
    }
    last = now;
    char workers[300] = "", objects[300] = "";
    size_t at = 0;
    for (int i = 0; i < s->worker_count && at < sizeof(workers); i++)
        if (s->workers[i].waited_for)
            at += (size_t)snprintf(workers + at, sizeof(workers) - at, "%s%d to '%.60s'", at ? ", " : ": ",
                                   s->workers[i].waited_for, s->workers[i].member.name);
    at = 0;
    for (int i = 0; i < s->objects_shown && at < sizeof(objects) && s->objects[i].waiting; i++)
        at += (size_t)snprintf(objects + at, sizeof(objects) - at, "%s%d for '%.60s'", at ? ", " : ": ",
                               s->objects[i].waiting, s->objects[i].name);
    yk__log(
        YK_LOG_WARN,
        "rpc: %s: worker '%s' waits for %d calls%s; it runs %d with %d threads of at most %d; %d wait here%s; it has "
        "%d objects, to which others hold %d references",
        what, s->own.name, s->call_count, workers, s->running, s->threads, s->limit, s->ready + s->waiting, objects,
        s->object_count, s->held);
    for (int i = 0; i < s->calls_shown && i < 3; i++)
        yk__log(YK_LOG_WARN, "rpc: it waits since %.3g s for %s%s", s->calls[i].seconds, s->calls[i].what,
                s->calls[i].sent ? "" : ", which is not sent yet");
    for (int i = 0; i < s->running_shown && i < 3; i++)
        yk__log(YK_LOG_WARN, "rpc: it runs since %.3g s %s", s->runs[i].seconds, s->runs[i].what);
    free(s->workers);
    free(s);
}
