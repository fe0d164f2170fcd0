/*
 * rpc_watch.c - workers that are watched: how they end is told once. Layer: rpc.
 *
 * A thread looks after all watches of this process. It keeps a connection to each worker that is watched, whose end it
 * notices at once, and asks over it (PING) whether the worker is still there. Of one that has ended it finds out how,
 * from the store: `left/N`, which the worker set itself; `ended/N`, the record of the launcher, "STATUS WHY" and lines
 * of stderr (cli/run/run_job.c); `name/NAME`, its successor.
 *
 * Invariants: a watch is in the list until its function has returned, or until it is ended; it is told once. Only this
 * thread, with the lock, makes a watch `telling`, and only who takes it out of the list frees it.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/log.h"
#include "base/thread.h"
#include "launch/outcome.h"
#include "rpc/rpc_agent.h"

/* Seconds: between two looks; the least silence that means something; the longest pause between two questions; of one
 * attempt to connect; for the launcher's record of a process that has just ended; a piece of that, after which the end
 * of this worker is noticed. */
static const double LOOK = 0.05, LEAST = 0.2, ASK = 1, ATTEMPT = 1, RECORD = 5, PIECE = 0.2;

typedef yk__rpc_watch watch;

void yk__rpc_watch_free(watch *w)
{
    yk_ref_release(w->ref);
    free(w->last_lines);
    free(w);
}

static void watch_unlist(const watch *w)
{
    for (watch **at = &yk__rpc.watches; *at; at = &(*at)->next)
        if (*at == w) {
            *at = w->next;
            return;
        }
}

static watch *watch_find(int64_t id)
{
    watch *w = yk__rpc.watches;
    while (w && w->id != id)
        w = w->next;
    return w;
}

void yk__rpc_watch_run(watch *w)
{
    yk__rpc_lock();
    bool wanted = !w->unwanted && !yk__rpc.stopping;
    w->running = wanted;
    w->thread = pthread_self();
    pthread_mutex_unlock(&yk__rpc.lock);
    const yk_rpc_end end = {.kind = w->kind,
                            .worker = w->member.name,
                            .host = w->member.host,
                            .pid = w->member.pid,
                            .exit_code = w->exit_code,
                            .signal = w->signal,
                            .successor = w->successor,
                            .text = w->text,
                            .last_lines = w->last_lines ? w->last_lines : ""};
    if (wanted)
        w->fn(&end, w->ctx);
    yk__rpc_lock();
    watch_unlist(w); /* the call frees it */
    pthread_cond_broadcast(&yk__rpc.watching);
    pthread_mutex_unlock(&yk__rpc.lock);
}

/* ---- how it ended ------------------------------------------------------------------------------------------------ */

static bool stopping(void)
{
    yk__rpc_lock();
    bool stops = yk__rpc.stopping;
    pthread_mutex_unlock(&yk__rpc.lock);
    return stops;
}

/* The launcher's record of the end of a worker, which the caller frees; NULL: there is none. */
static char *record_read(uint32_t index)
{
    char key[40], *text = NULL;
    snprintf(key, sizeof(key), "rpc/ended/%u", index);
    double until = yk__now() + (yk__rpc.has_launcher ? RECORD : 0);
    do {
        text = yk__rpc_store_text(key, yk__now() + PIECE);
    } while (!text && yk__now() < until && !stopping());
    return text;
}

/* Takes over the launcher's record: the first line is a status and why the launcher killed it. */
static void watch_take_record(watch *w, char *record)
{
    char *lines = strchrnul(record, '\n'), *why = NULL, ending[YK__ENDING_TEXT];
    int status = (int)strtol(record, &why, 10);
    if (*lines)
        *lines++ = 0;
    why += *why == ' ';
    w->kind = WIFSIGNALED(status) ? YK_RPC_SIGNALLED : YK_RPC_EXITED;
    w->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    w->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    snprintf(w->why, sizeof(w->why), "%s%s%.300s", yk__ending_describe(status, ending),
             *why ? ", by its launcher: " : "", why);
    w->last_lines = *lines ? yk__strdup(lines) : NULL;
    free(record);
}

/* Finds out how the worker of a watch ended, whose connection has ended for this reason. Without the lock. */
static void watch_explain(watch *w, const char *why)
{
    YK__QUESTION;
    yk__rpc_member successor;
    uint32_t youngest = yk__rpc_member_youngest(w->member.name);
    if (youngest > w->member.index && !yk__rpc_member_at(youngest, &successor))
        w->successor = successor.pid;
    char *record = NULL;
    if (yk__rpc_member_has_left(w->member.index)) {
        w->kind = YK_RPC_LEFT;
        snprintf(w->why, sizeof(w->why), "it came to its shutdown");
    } else if ((record = record_read(w->member.index))) {
        watch_take_record(w, record);
    } else if (w->successor) {
        w->kind = YK_RPC_REPLACED;
        snprintf(w->why, sizeof(w->why), "another process has its name");
    } else {
        w->kind = YK_RPC_LOST;
        snprintf(w->why, sizeof(w->why), "%.400s", why);
    }
}

/* The sentence. */
static void watch_describe(watch *w)
{
    char successor[60] = "";
    if (w->successor)
        snprintf(successor, sizeof(successor), "; process %d has its name now", w->successor);
    snprintf(w->text, sizeof(w->text), "worker '%s' (host %s, process %d) %s: %s%s", w->member.name, w->member.host,
             w->member.pid,
             w->kind == YK_RPC_LEFT       ? "has left"
             : w->kind == YK_RPC_SILENT   ? "does not answer"
             : w->kind == YK_RPC_LOST     ? "is lost"
             : w->kind == YK_RPC_NOT_MADE ? "could not make an object"
                                          : "has ended",
             w->why, successor);
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */

/* With the lock: its function is to be called. */
static void watch_tell(watch *w)
{
    watch_describe(w);
    w->telling = yk__rpc_serve_tell(w, w->member.name); /* without memory the next look tries again */
}

static yk__rpc_link *link_of(const watch *w)
{
    yk__rpc_link *link = yk__rpc.links;
    while (link && (link->accepted || !link->ready || link->index != w->member.index))
        link = link->next;
    return link;
}

/* With the lock: asks the worker where it is time; false where it has not answered for too long. */
static bool watch_ask(const watch *w, yk__rpc_link *link, double now)
{
    if (link->pinged > link->heard)
        return now - link->pinged < (w->silence > LEAST ? w->silence : LEAST);
    double pause = w->silence / 4 < ASK ? w->silence / 4 : ASK;
    if (now - link->pinged < pause)
        return true;
    yk__wire out = {0};
    yk__wire_put_u64(&out, (uint64_t)w->id);
    if (out.failed) {
        yk__wire_clear(&out);
        return true;
    }
    link->pinged = now;
    yk__rpc_link_send(link, YK__RPC_PING, 0, out.data, out.size); /* an end is seen at the next look */
    return true;
}

/* With the lock: notes in the watch that its object could not be made, and why; true if so. */
static bool watch_note_unmade(watch *w)
{
    const yk_future *created = w->ref ? w->ref->created : NULL;
    const yk_error *error = w->ref && w->ref->broken.code ? &w->ref->broken : NULL;
    if (created && created->progress == YK__RPC_ANSWERED && created->error.code &&
        created->error.code != YK_ERR_CONNECTION)
        error = &created->error;
    if (error) {
        w->kind = YK_RPC_NOT_MADE;
        snprintf(w->why, sizeof(w->why), "%.400s", error->message);
    }
    return error != NULL;
}

/* With the lock, which is released meanwhile; the watch is `busy`, so that nobody frees it. It is `telling` then if it
 * has ended. */
static void watch_look(watch *w)
{
    double now = yk__now();
    yk__rpc_link *link = link_of(w);
    if (watch_note_unmade(w)) {
        w->telling = true;
    } else if (link) {
        w->connected = true;
        w->since = 0;
        w->telling = !watch_ask(w, link, now);
    }
    if (w->telling && w->kind != YK_RPC_NOT_MADE) {
        w->kind = YK_RPC_SILENT;
        snprintf(w->why, sizeof(w->why), "nothing came from it for %.3g s", w->silence);
    }
    if (w->telling || link)
        return;
    char why[500] = "its connection has ended";
    bool ended = w->connected || w->member.gone, silent = false;
    for (int i = 0; i < yk__rpc.member_count; i++)
        ended = ended || (yk__rpc.members[i].index == w->member.index && yk__rpc.members[i].gone);
    w->since = w->since > 0 ? w->since : now;
    if (!ended) {
        YK__OWN_RECORD;
        double left = w->since + w->silence - now;
        if (!yk__rpc_link_to("rpc_watch", &w->member, now + (left < ATTEMPT ? left : ATTEMPT))) {
            const yk_error *error = yk_last_error();
            ended = error && error->code == YK_ERR_CONNECTION;
            snprintf(why, sizeof(why), "%.400s", error ? error->message : "no memory");
            silent = !ended && yk__now() - w->since >= w->silence;
        }
        yk_clear_error();
    }
    if (silent) {
        w->kind = YK_RPC_SILENT;
        snprintf(w->why, sizeof(w->why), "it could not be reached for %.3g s", w->silence);
    } else if (ended) {
        pthread_mutex_unlock(&yk__rpc.lock);
        watch_explain(w, why);
        yk__rpc_lock();
    }
    w->telling = silent || ended;
}

/* This process itself was stopped for a while: the others had no chance to be heard. */
static void pings_put_off(double late)
{
    for (yk__rpc_link *link = yk__rpc.links; link; link = link->next)
        if (link->pinged > link->heard)
            link->pinged += late;
    for (watch *w = yk__rpc.watches; w; w = w->next)
        w->since += w->since > 0 ? late : 0;
}

static void *watches_run(void *arg)
{
    (void)arg;
    yk_scope scope = yk_scope_begin();
    int64_t last = 0; /* the watch that was looked at: the list may change meanwhile */
    yk__rpc_lock();
    while (!yk__rpc.stopping) {
        watch *next = NULL;
        for (watch *w = yk__rpc.watches; w; w = w->next)
            if (w->id > last && !w->telling && !w->unwanted && (!next || w->id < next->id))
                next = w;
        if (next) {
            last = next->id;
            next->busy = true;
            watch_look(next);
            next->busy = false;
            if (next->telling && !yk__rpc.stopping)
                watch_tell(next);
            pthread_cond_broadcast(&yk__rpc.watching);
            continue;
        }
        last = 0;
        double until = yk__now() + LOOK;
        yk__rpc_wait(&yk__rpc.watching, yk__rpc.watches ? until : 0);
        double late = yk__now() - until;
        if (yk__rpc.watches && late > 1)
            pings_put_off(late);
    }
    pthread_mutex_unlock(&yk__rpc.lock);
    yk_scope_end(scope);
    return NULL;
}

void yk__rpc_watches_stop(void)
{
    yk__rpc_lock();
    bool runs = yk__rpc.watcher_runs;
    yk__rpc.watcher_runs = false;
    pthread_cond_broadcast(&yk__rpc.watching);
    pthread_mutex_unlock(&yk__rpc.lock);
    if (runs)
        pthread_join(yk__rpc.watcher, NULL);
    yk__rpc_lock();
    for (watch **at = &yk__rpc.watches; *at;) {
        watch *w = *at;
        if (w->running) { /* it takes itself out of the list when its function returns */
            at = &w->next;
            continue;
        }
        *at = w->next;
        if (!w->telling) /* else it is a call's */
            yk__rpc_watch_free(w);
    }
    pthread_cond_broadcast(&yk__rpc.watching);
    pthread_mutex_unlock(&yk__rpc.lock);
}

/* ---- public ------------------------------------------------------------------------------------------------------ */

/* Adds a watch of a worker, and of an object of its (NULL: of none). */
static int64_t watch_add(const char *what, const yk__rpc_member *m, yk_ref *ref, double silence, yk_rpc_end_fn fn,
                         void *ctx)
{
    watch *w = yk__calloc(1, sizeof(*w));
    if (!w)
        return 0;
    *w = (watch){.member = *m, .ref = yk_ref_retain(ref), .silence = silence, .fn = fn, .ctx = ctx};
    yk_status status = yk__rpc_enter(what);
    if (status) {
        yk__rpc_watch_free(w);
        return 0;
    }
    if (m->index == yk__rpc.index) {
        status = yk__fail(YK_ERR_ARGUMENT, "%s: '%s' is this worker itself", what, m->name);
    } else if (!yk__rpc.watcher_runs) {
        int error = yk__thread_create(&yk__rpc.watcher, watches_run, NULL);
        if (error)
            status = yk__fail(YK_ERR_IO, "%s: no thread: %s", what, strerror(error));
        else
            pthread_setname_np(yk__rpc.watcher, "yoke-rpc-watch");
        yk__rpc.watcher_runs = !error;
    }
    int64_t id = status ? 0 : ++yk__rpc.watches_made;
    if (id) {
        w->id = id;
        w->next = yk__rpc.watches;
        yk__rpc.watches = w;
        pthread_cond_broadcast(&yk__rpc.watching);
    } else {
        yk__rpc_watch_free(w);
    }
    yk__rpc_leave();
    return id;
}

/* The arguments of both. */
static yk_status watch_check(const char *what, double *silence, yk_rpc_end_fn fn)
{
    static const double usual = 30;
    if (!fn)
        return yk__fail(YK_ERR_ARGUMENT, "%s: the function is NULL", what);
    return yk__check_timeout(what, "silence", *silence, usual, silence);
}

int64_t yk_rpc_watch(const char *name, double silence, yk_rpc_end_fn fn, void *ctx)
{
    static const char what[] = "rpc_watch";
    yk__rpc_member m;
    if (yk__rpc_name_check(what, "worker", name) || watch_check(what, &silence, fn) || yk__rpc_enter(what))
        return 0;
    yk__rpc_leave();
    return yk__rpc_member_find(what, name, 0, &m) ? 0 : watch_add(what, &m, NULL, silence, fn, ctx);
}

int64_t yk_ref_watch(yk_ref *ref, double silence, yk_rpc_end_fn fn, void *ctx)
{
    YK__LIVE(ref);
    static const char what[] = "ref_watch";
    if (!yk__is_there(what, "reference", ref) || watch_check(what, &silence, fn) || yk__rpc_enter(what))
        return 0;
    bool stale = ref->maker != yk__rpc.index;
    yk__rpc_member owner = ref->owner;
    yk__rpc_leave();
    if (stale) {
        yk__fail(YK_ERR_STATE, "%s: the reference to '%s' is of before rpc_shutdown", what, ref->name);
        return 0;
    }
    return watch_add(what, &owner, ref, silence, fn, ctx);
}

void yk_rpc_unwatch(int64_t id)
{
    yk__rpc_lock();
    bool running = yk__rpc.running && !yk__rpc.forked, blocked = running && yk__rpc_blocked_begin();
    for (watch *w; running && (w = watch_find(id));) {
        if (w->running && pthread_equal(w->thread, pthread_self()))
            break;
        if (w->telling && !w->running) { /* its call will find that nobody wants it */
            w->unwanted = true;
            break;
        }
        if (!w->telling && !w->busy) {
            watch_unlist(w);
            yk__rpc_watch_free(w);
            break;
        }
        w->unwanted = true;
        yk__rpc_wait(&yk__rpc.watching, 0);
    }
    yk__rpc_blocked_end(blocked);
    pthread_mutex_unlock(&yk__rpc.lock);
}
