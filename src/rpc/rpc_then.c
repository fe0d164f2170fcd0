/*
 * rpc_then.c - futures that are made from others: by a function that runs when one is done, of several together, and of
 * one call to a list of workers. Layer: rpc.
 *
 * Invariants: such a future is in no list, has no time of its own and no number; it holds a reference to itself until
 * it is finished. A call of kind THEN is in the list of the future that it follows until that is done, then in the
 * queue of calls that are ready, so that its function always runs. A future of yk_future_all holds its futures, and
 * those of them that are not done hold it: each has a `part` for it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/dist_autograd.h"
#include "rpc/rpc_call.h"
#include "value/value.h"

/* A future of several waits for the one that has this in its list. */
typedef struct yk__rpc_part {
    yk_future *whole; /* retained */
    struct yk__rpc_part *next;
} part;

/* A future that is not done, with two references: the caller's, and its own. */
static yk_future *derived_new(void)
{
    yk_future *f = yk__rpc_future_new();
    if (!f)
        return NULL;
    f->derived = true;
    f->deadline = INFINITY;
    return yk_future_retain(f);
}

/* ---- done -------------------------------------------------------------------------------------------------------- */

void yk__rpc_then_done(yk_future *f)
{
    for (yk_call *call; (call = f->thens);) {
        f->thens = call->next_ready;
        yk__rpc_serve_then(call);
    }
    for (part *p; (p = f->parts);) {
        f->parts = p->next;
        yk_future *whole = p->whole;
        free(p);
        whole->missing--;
        if (f->error.code)
            yk__rpc_future_finish(whole, NULL, 0, &f->error);
        else if (whole->missing == 0)
            yk__rpc_future_finish(whole, NULL, 0, NULL);
        yk_future_release(whole);
    }
}

void yk__rpc_then_run(yk_call *call)
{
    struct yk_dist_context *before = yk__dist_enter(call->context);
    yk_value *value = call->then(call->after, call->then_ctx);
    YK__LIVE(value);
    yk__dist_enter(before);
    bool failed = yk_last_error() != NULL;
    value = failed ? NULL : value ? yk_value_retain(value) : yk__value_new(YK_VALUE_NONE);
    yk_error error;
    yk__error_take(&error);
    yk__rpc_lock();
    yk_future *f = call->local;
    if (f->progress != YK__RPC_ANSWERED) { /* else it was cancelled */
        f->value = yk_value_retain(value);
        yk__rpc_future_finish(f, NULL, 0, value ? NULL : &error);
    }
    yk_value_release(value);
    yk__rpc.thens -= !yk__rpc_is_left();
    pthread_cond_broadcast(&yk__rpc.changed);
    pthread_mutex_unlock(&yk__rpc.lock);
}

yk_value *yk__rpc_all_value(yk_future *f)
{
    yk_value *list = yk__value_new(YK_VALUE_LIST);
    for (int i = 0; i < f->all_count && list; i++) {
        yk_value *item = yk__rpc_future_value(f->all[i]);
        if (!item || yk__value_push(list, item)) {
            yk_value_release(list);
            list = NULL;
        }
    }
    return list;
}

/* ---- public ------------------------------------------------------------------------------------------------------ */

yk_future *yk_future_then(yk_future *future, yk_future_fn fn, void *ctx)
{
    YK__LIVE(future);
    static const char what[] = "future_then";
    if (!yk__is_there(what, "future", future) || !yk__scope_check(what))
        return NULL;
    if (!fn) {
        yk__fail(YK_ERR_ARGUMENT, "%s: the function is NULL", what);
        return NULL;
    }
    const yk_call *outer = yk__rpc_current();
    yk_future *f = derived_new();
    yk_call *call = f ? yk__calloc(1, sizeof(*call)) : NULL;
    if (!call || yk__rpc_enter(what)) {
        free(call);
        yk_future_release(f);
        yk_future_release(f);
        return NULL;
    }
    snprintf(f->what, sizeof(f->what), "the function after %.360s", future->what);
    *call = (yk_call){.kind = YK__RPC_THEN,
                      .references = 1,
                      .local = yk_future_retain(f),
                      .after = yk_future_retain(future),
                      .then = fn,
                      .then_ctx = ctx,
                      .context = yk__dist_hold(yk__dist_current()),
                      .deadline = outer ? outer->deadline : INFINITY};
    snprintf(call->caller_name, sizeof(call->caller_name), "%s", yk__rpc.name);
    snprintf(call->name, sizeof(call->name), "then");
    yk__rpc.thens++;
    yk_call **at = &future->thens;
    while (*at)
        at = &(*at)->next_ready;
    if (future->progress == YK__RPC_ANSWERED)
        yk__rpc_serve_then(call);
    else
        *at = call;
    yk__rpc_leave();
    return yk__scope_own(f);
}

/* A future of all these: one reference, NULL and an error. */
static yk_future *all_of(yk_future *const *futures, int count, const char *text)
{
    yk_future *f = derived_new();
    yk_future **all = f && count ? yk__calloc((size_t)count, sizeof(yk_future *)) : NULL;
    part *spare = NULL; /* one for each future, so that nothing fails below */
    bool enough = f && (all || !count);
    for (int i = 0; i < count && enough; i++) {
        part *p = yk__calloc(1, sizeof(*p));
        enough = p != NULL;
        if (p) {
            p->next = spare;
            spare = p;
        }
    }
    if (enough) {
        snprintf(f->what, sizeof(f->what), "%s", text);
        yk__rpc_lock();
        f->all = all;
        f->all_count = f->missing = count;
        for (int i = 0; i < count; i++)
            all[i] = yk_future_retain(futures[i]);
        for (int i = 0; i < count; i++) {
            part *p = spare;
            spare = p->next;
            *p = (part){yk_future_retain(f), futures[i]->parts};
            futures[i]->parts = p;
        }
        for (int i = 0; i < count; i++)
            if (futures[i]->progress == YK__RPC_ANSWERED)
                yk__rpc_then_done(futures[i]);
        if (!count)
            yk__rpc_future_finish(f, NULL, 0, NULL);
        pthread_mutex_unlock(&yk__rpc.lock);
        return f;
    }
    while (spare) {
        part *p = spare;
        spare = p->next;
        free(p);
    }
    free(all);
    yk_future_release(f);
    yk_future_release(f);
    return NULL;
}

yk_future *yk_future_all(yk_future *const *futures, int count)
{
    static const char what[] = "future_all";
    if (count < 0 || (count > 0 && !futures)) {
        yk__fail(YK_ERR_ARGUMENT, "%s: %d futures%s", what, count, count > 0 ? ", and the array of them is NULL" : "");
        return NULL;
    }
    for (int i = 0; i < count; i++) {
        yk_future *f = futures[i];
        YK__LIVE(f);
        if (!yk__is_there(what, "future", f))
            return NULL;
    }
    if (!yk__scope_check(what))
        return NULL;
    char text[60];
    snprintf(text, sizeof(text), "%s of %d futures", what, count);
    return yk__scope_own(all_of(futures, count, text));
}

/* ---- a list of workers ------------------------------------------------------------------------------------------- */

/* A future that has failed with this thread's error, which is taken: one reference. NULL and an error. */
static yk_future *failed_new(void)
{
    yk_error error;
    yk__error_take(&error);
    yk_future *f = derived_new();
    if (!f)
        return NULL;
    yk__rpc_lock();
    yk__rpc_future_finish(f, NULL, 0, &error);
    pthread_mutex_unlock(&yk__rpc.lock);
    return f;
}

/* Every name is that of a worker; an error else, before anything is called. */
static yk_status workers_check(const char *what, const char *const *workers, int count)
{
    if (!workers || count < 1)
        return yk__fail(YK_ERR_ARGUMENT, "%s: %d workers%s", what, workers ? count : 0,
                        workers ? "" : "; the array of their names is NULL");
    yk_status status = YK_OK;
    for (int i = 0; i < count && !status; i++)
        status = yk__rpc_name_check(what, "worker", workers[i]);
    status = status ? status : yk__rpc_enter(what);
    if (status)
        return status;
    yk__rpc_leave();
    for (int i = 0; i < count && !status; i++) {
        yk__rpc_member m;
        status = yk__rpc_member_find(what, workers[i], 0, &m);
    }
    return status;
}

/* Calls them all: one reference to the future of the list, or NULL and an error. */
static yk_future *workers_call(yk__rpc_target *t, const char *const *workers, int count, yk_value *args,
                               const yk_rpc_options *options)
{
    if (!yk__rpc_call_is_there(t->what, "function", t->name, args) || workers_check(t->what, workers, count))
        return NULL;
    yk_future **futures = yk__calloc((size_t)count, sizeof(yk_future *));
    bool right = futures != NULL;
    for (int i = 0; i < count && right; i++) {
        t->worker = workers[i];
        futures[i] = yk__rpc_call_begin(t, args, options, NULL);
        if (!futures[i] && i > 0) /* those before it are under way */
            futures[i] = failed_new();
        right = futures[i] != NULL;
    }
    char text[3 * YK__RPC_NAME];
    snprintf(text, sizeof(text), "%s: '%s' at %d workers", t->what, t->name, count);
    yk_future *f = right ? all_of(futures, count, text) : NULL;
    if (f)
        f->all_calls = true;
    for (int i = 0; i < count && futures; i++)
        yk_future_release(futures[i]);
    free(futures);
    return f;
}

yk_value *yk_rpc_sync_all(const char *const *workers, int count, const char *function, yk_value *args,
                          const yk_rpc_options *options)
{
    YK__LIVE(args);
    yk__rpc_target t = {.what = "rpc_sync_all", .name = function, .kind = YK__RPC_FUNCTION, .sync = true};
    return yk__rpc_call_wait(workers_call(&t, workers, count, args, options));
}

yk_future *yk_rpc_async_all(const char *const *workers, int count, const char *function, yk_value *args,
                            const yk_rpc_options *options)
{
    YK__LIVE(args);
    yk__rpc_target t = {.what = "rpc_async_all", .name = function, .kind = YK__RPC_FUNCTION};
    return yk__scope_own(workers_call(&t, workers, count, args, options));
}
