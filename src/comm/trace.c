/*
 * trace.c - the last operations of a rank, as JSON. Layer: comm.
 */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/ticks.h"
#include "comm/group.h"
#include "host/file.h"
#include "host/progress.h"

/* The texts of operations as the page has them, made once, since a collective may take less time than a printf. */
static char kind_names[YK__COMM_KINDS][16], dtype_names[YK__DTYPES][12], reduction_names[YK_OP_PRODUCT + 1][8];

static void names_make(void)
{
    for (int i = 0; i < YK__COMM_KINDS; i++)
        snprintf(kind_names[i], sizeof(kind_names[i]), "%s", yk__comm_kind_name((yk__comm_kind)i));
    for (int i = 0; i < YK__DTYPES; i++)
        snprintf(dtype_names[i], sizeof(dtype_names[i]), "%s", yk_dtype_name((yk_dtype)i));
    for (int i = 0; i <= YK_OP_PRODUCT; i++)
        snprintf(reduction_names[i], sizeof(reduction_names[i]), "%s", yk__comm_reduction_name((yk_reduce_op)i));
}

void yk__trace_begin(yk__group *g)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, names_make);
    snprintf(g->shown_name, sizeof(g->shown_name), "%s", g->name);
}

/* Notes the operation in the page that the launcher reads, and returns its entry there. */
static int page_operation_note(const yk__group *g, const yk__comm_op *op, uint64_t now)
{
    yk__page_operation o = {.number = op->number,
                            .count = op->kind == YK__COMM_ALL_TO_ALL ? 0 : op->count,
                            .world_size = g->world_size,
                            .began = now,
                            .what = YK__WHAT_COLLECTIVE,
                            .peer = op->peer,
                            .tag = op->tag};
    memcpy(o.kind, kind_names[op->kind], sizeof(o.kind));
    memcpy(o.group, g->shown_name, sizeof(o.group));
    if (op->kind != YK__COMM_BARRIER)
        memcpy(o.dtype, dtype_names[op->dtype], sizeof(o.dtype));
    if (yk__comm_reduces(op->kind))
        memcpy(o.reduction, reduction_names[op->reduction], sizeof(o.reduction));
    if (op->kind < YK__COMM_COLLECTIVES && !yk__comm_has_root(op->kind))
        o.peer = -1;
    return yk__progress_begin(&o);
}

uint64_t yk__trace_add(yk__group *g, const yk__comm_op *op, yk__trace_state state)
{
    uint64_t entry = g->traced++;
    yk__trace_entry *e = &g->trace[entry % YK__TRACE];
    uint64_t now = yk__ticks();
    if (g->traced > YK__TRACE && e->state != YK__TRACE_DONE && e->state != YK__TRACE_FAILED)
        yk__progress_end_at(e->shown, now); /* nobody would find it again */
    *e = (yk__trace_entry){.op = *op,
                           .state = state,
                           .queued = now,
                           .began = state == YK__TRACE_QUEUED ? 0 : now,
                           .shown = page_operation_note(g, op, now)};
    return entry;
}

void yk__trace_state_set(yk__group *g, uint64_t entry, yk__trace_state state)
{
    if (g->traced - entry > YK__TRACE)
        return; /* overwritten since */
    yk__trace_entry *e = &g->trace[entry % YK__TRACE];
    if (e->state == YK__TRACE_FAILED)
        return; /* at the end of an operation whose failure has been dumped */
    e->state = state;
    uint64_t now = yk__ticks();
    if (state == YK__TRACE_RUNNING)
        e->began = now;
    else
        e->ended = now;
    if (state == YK__TRACE_DONE || state == YK__TRACE_FAILED)
        yk__progress_end_at(e->shown, now);
}

/* Seconds from when the group was made; 0 where it has not come to that. */
static json_t *seconds_json(const yk__group *g, uint64_t ticks, double of_tick)
{
    return json_real(ticks ? (double)(ticks - g->born_ticks) * of_tick : 0);
}

static json_t *entry_json(const yk__group *g, const yk__trace_entry *e, double of_tick)
{
    static const char *const states[] = {"queued", "running", "done", "failed"};
    const yk__comm_op *op = &e->op;
    json_t *o = json_object();
    json_object_set_new(o, "number", json_integer((json_int_t)op->number));
    json_object_set_new(o, "operation", json_string(yk__comm_kind_name(op->kind)));
    if (op->recorded)
        json_object_set_new(o, "recorded", json_integer(op->recorded));
    if (op->kind != YK__COMM_BARRIER)
        json_object_set_new(o, "dtype", json_string(yk_dtype_name(op->dtype)));
    if (op->kind != YK__COMM_BARRIER && op->kind != YK__COMM_ALL_TO_ALL)
        json_object_set_new(o, "count", json_integer(op->count));
    if (yk__comm_reduces(op->kind))
        json_object_set_new(o, "reduction", json_string(yk__comm_reduction_name(op->reduction)));
    if (yk__comm_has_root(op->kind))
        json_object_set_new(o, "root", json_integer(op->peer));
    if (op->kind == YK__COMM_SEND || op->kind == YK__COMM_RECV) {
        json_object_set_new(o, "peer", json_integer(op->peer));
        json_object_set_new(o, "tag", json_integer(op->tag));
    }
    json_object_set_new(o, "state", json_string(states[e->state]));
    json_object_set_new(o, "queued_s", seconds_json(g, e->queued, of_tick));
    if (e->state != YK__TRACE_QUEUED)
        json_object_set_new(o, "began_s", seconds_json(g, e->began, of_tick));
    if (e->state == YK__TRACE_DONE || e->state == YK__TRACE_FAILED)
        json_object_set_new(o, "ended_s", seconds_json(g, e->ended, of_tick));
    return o;
}

/* JSON takes UTF-8 alone; a reason that the user gave, or one that was cut short, may be something else. */
static json_t *text_json(const char *text)
{
    json_t *o = json_string(text);
    char *plain = o ? NULL : yk__strdup(text);
    for (char *c = plain; c && *c; c++)
        *c = (unsigned char)*c < 128 ? *c : '?';
    if (plain)
        o = json_string(plain);
    free(plain);
    return o;
}

yk_status yk__trace_write(yk__group *g, const yk_error *cause, FILE *to)
{
    json_t *o = json_object(), *list = json_array();
    json_object_set_new(o, "group", text_json(g->name));
    json_object_set_new(o, "backend", json_string(g->backend->name));
    json_object_set_new(o, "rank", json_integer(g->rank));
    json_object_set_new(o, "world_size", json_integer(g->world_size));
    json_object_set_new(o, "host", text_json(g->host_name));
    json_object_set_new(o, "pid", json_integer((json_int_t)getpid()));
    json_object_set_new(o, "error", cause ? text_json(cause->message) : json_null());
    if (cause)
        json_object_set_new(o, "code", json_string(yk_status_name(cause->code)));
    pthread_mutex_lock(&g->lock);
    double of_tick = (yk__now() - g->born) / (double)(yk__ticks() - g->born_ticks);
    uint64_t from = g->traced > YK__TRACE ? g->traced - YK__TRACE : 0;
    for (uint64_t i = from; i < g->traced; i++)
        json_array_append_new(list, entry_json(g, &g->trace[i % YK__TRACE], of_tick));
    pthread_mutex_unlock(&g->lock);
    json_object_set_new(o, "operations", list);
    int failed = !o || !list || json_dumpf(o, to, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) || fputc('\n', to) == EOF;
    json_decref(o);
    return failed || ferror(to) ? yk__fail(YK_ERR_IO, "the trace of group '%s' cannot be written", g->name) : YK_OK;
}

/* A new file in place of what is there: `path` may lie where others can put a link. */
static yk_status write_dump(yk__group *g, const yk_error *cause, const char *path)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    yk_status status = to ? yk__trace_write(g, cause, to) : YK_ERR_MEMORY;
    if (to && fclose(to))
        status = YK_ERR_MEMORY;
    yk__file_writer *file = status ? NULL : yk__file_create(path);
    if (file && !(status = yk__file_write(file, text, size)))
        status = yk__file_commit(file);
    else if (file)
        yk__file_abort(file);
    free(text);
    return file ? status : YK_ERR_IO;
}

void yk__trace_dump_failure(yk__group *g)
{
    const char *prefix = getenv("YOKE_COMM_DUMP");
    pthread_mutex_lock(&g->lock);
    bool first = !g->dumped;
    g->dumped = true;
    pthread_mutex_unlock(&g->lock);
    const yk_error *cause = yk_last_error();
    if (!first || !cause)
        return;
    yk__progress_failed();
    yk__log(YK_LOG_ERROR, "group '%s', rank %d: %s", g->name, g->rank, cause->message);
    if (!prefix || !*prefix)
        return;
    yk_error kept;
    yk__error_take(&kept);
    char name[320];
    snprintf(name, sizeof(name), "%s", g->name);
    for (char *c = name; *c; c++)
        *c = *c == '/' ? '.' : *c;
    char *path = yk__format("%s.%s.rank%d.json", prefix, name, g->rank);
    if (!path || write_dump(g, &kept, path))
        yk__log(YK_LOG_WARN, "the trace of group '%s' cannot be written to %s", g->name, path ? path : prefix);
    free(path);
    yk_clear_error();
    yk__error_put(&kept);
}

void yk__trace_fail(yk__group *g, uint64_t entry)
{
    pthread_mutex_lock(&g->lock);
    yk__trace_state_set(g, entry, YK__TRACE_FAILED);
    pthread_mutex_unlock(&g->lock);
    yk__trace_dump_failure(g);
}
