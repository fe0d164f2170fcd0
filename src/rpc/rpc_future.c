/*
 * rpc_future.c - results that may not be there yet. Layer: rpc.
 *
 * Invariants: a future is in the list of its connection, or of the agent where it calls this process itself, from the
 * moment it has a number until it is finished; who puts it there holds a reference for the list. It is finished once.
 * One that is made from others (rpc_then.c) is in no list, has no time of its own, and holds itself until then.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/events.h"
#include "base/thread.h"
#include "rpc/dist_autograd.h"
#include "rpc/rpc_agent.h"
#include "rpc/value_wire.h"

static void future_destroy(void *object)
{
    yk_future *f = object;
    pthread_cond_destroy(&f->answered);
    yk__rpc_pins_taken(&f->head.pins);
    yk__dist_put(f->context);
    free(f->bytes);
    yk__loan_settle(f->loan);
    yk_value_release(f->value);
    for (int i = 0; i < f->all_count; i++)
        yk_future_release(f->all[i]);
    free(f->all);
    yk__object_free(f);
}

static const yk__type future_type = {"future", future_destroy};

yk_future *yk__rpc_future_new(void)
{
    yk_future *f = yk__object_new(&future_type, sizeof(*f));
    if (f)
        yk__condition_init(&f->answered);
    return f;
}

static void future_unlink(yk_future **list, yk_future *f)
{
    for (; *list; list = &(*list)->next)
        if (*list == f) {
            *list = f->next;
            break;
        }
    f->next = NULL;
}

void yk__rpc_future_finish(yk_future *f, unsigned char *bytes, size_t size, const yk_error *error)
{
    if (f->progress == YK__RPC_ANSWERED) {
        free(bytes);
        return;
    }
    if (f->progress == YK__RPC_SENT) {
        yk__progress_count(yk__rpc.counters.outstanding, -1);
        yk__progress_count(yk__rpc.counters.took, (int64_t)(1e9 * (yk__now() - f->sent)));
    }
    yk__progress_count(yk__rpc.counters.failed, error != NULL && !f->derived);
    f->progress = YK__RPC_ANSWERED;
    f->bytes = bytes;
    f->bytes_size = size;
    if (error)
        f->error = *error;
    yk__rpc_link *link = f->link;
    future_unlink(link ? &link->futures : &yk__rpc.futures, f);
    if (link) {
        link->last_future = link->last_future == f ? NULL : link->last_future;
        link->call_count--;
        link->call_bytes -= f->size;
    }
    f->link = NULL;
    f->call = NULL;
    pthread_cond_broadcast(&f->answered);
    pthread_cond_broadcast(&yk__rpc.changed);
    yk__rpc_listeners_wake(YK__BELL_WAITER);
    if (link)
        yk__rpc_link_release(link);
    yk__rpc_then_done(f);
    yk_future_release(f); /* the list's; whoever looks at it has one of their own */
}

void yk__rpc_future_fail(yk_future *f, yk_status code, const char *format, ...)
{
    yk_error error = {.code = code, .file = __FILE__, .line = __LINE__};
    va_list args;
    va_start(args, format);
    vsnprintf(error.message, sizeof(error.message), format, args);
    va_end(args);
    yk__rpc_future_finish(f, NULL, 0, &error);
}

/* The text about a call that will not be answered: it has left this process, or has not. */
static const char *future_may_have_run(const yk_future *f)
{
    bool unsent = f->progress == YK__RPC_UNSENT || (f->link && yk__rpc_link_unsent(f->link, f->number));
    return unsent ? "it has not run" : "it may have run";
}

/* The other side is told that nobody waits. */
static void future_forget_call(yk_future *f)
{
    if (f->call)
        yk__rpc_serve_cancel(f->call);
    if (!f->link || f->progress != YK__RPC_SENT)
        return;
    if (yk__rpc_link_withdraw(f->link, f->number)) {
        yk__rpc_unpin(f->link, f->pinned.first, f->pinned.count);
        return;
    }
    yk__wire wire = {0};
    yk__wire_put_u64(&wire, f->number);
    if (wire.failed)
        yk__wire_clear(&wire);
    else
        yk__rpc_link_send(f->link, YK__RPC_CANCEL, 0, wire.data, wire.size);
}

static void future_expire(yk_future *f)
{
    yk_future_retain(f);
    const char *ran = future_may_have_run(f);
    yk__rpc_debug_log("a call's time is over");
    future_forget_call(f);
    yk__rpc_future_fail(f, YK_ERR_TIMEOUT, "%s has not answered within the call's time; %s", f->what, ran);
    yk_future_release(f);
}

/* The first of the list whose time is over; the next deadline of the others goes into *next. */
static yk_future *future_expired(yk_future *list, double now, double *next)
{
    for (yk_future *f = list; f; f = f->next) {
        if (f->deadline <= now)
            return f;
        if (*next == 0 || f->deadline < *next)
            *next = f->deadline;
    }
    return NULL;
}

double yk__rpc_futures_expire(double now)
{
    for (;;) { /* a connection may end by what is sent when one expires, so the lists are looked at anew */
        double next = 0;
        yk_future *expired = future_expired(yk__rpc.futures, now, &next);
        for (yk__rpc_link *link = yk__rpc.links; link && !expired; link = link->next)
            expired = future_expired(link->futures, now, &next);
        if (!expired)
            return next;
        future_expire(expired);
    }
}

void yk__rpc_futures_abandon(const char *why)
{
    for (yk_future *f; (f = yk__rpc.futures);)
        yk__rpc_future_fail(f, YK_ERR_STATE, "%s was not answered: %s", f->what, why);
}

/* Reads the error of a REPLY, after its number and the 0. */
static bool reply_error(const yk_future *f, yk__reader *r, yk_error *error)
{
    unsigned code = yk__read_u32(r), ran = yk__read_u8(r);
    uint32_t line = yk__read_u32(r);
    unsigned length = yk__read_u8(r);
    const unsigned char *file = yk__read_bytes(r, length);
    if (r->bad || !file)
        return false;
    char text[600], source[80];
    yk__escape((const char *)r->at, (size_t)(r->end - r->at), text, sizeof(text));
    yk__escape((const char *)file, length, source, sizeof(source));
    bool known = code > YK_OK && strcmp(yk_status_name((yk_status)code), "unknown") != 0;
    *error = (yk_error){.code = known ? (yk_status)code : YK_ERR_CALLBACK, .file = __FILE__, .line = __LINE__};
    snprintf(error->message, sizeof(error->message), "%.250s: %s%s", f->what, text, ran ? "" : "; it has not run");
    if (source[0] && ran) {
        size_t at = strlen(error->message);
        snprintf(error->message + at, sizeof(error->message) - at, " (there at %s:%u)", source, line);
    }
    return true;
}

bool yk__rpc_reply_local(yk_future *f, yk__rpc_link *link, yk__reader *r, unsigned char *owned)
{
    yk_error error = {0};
    if (!yk__read_u8(r)) {
        bool right = reply_error(f, r, &error);
        free(owned);
        if (right)
            yk__rpc_future_finish(f, NULL, 0, &error);
        return right;
    }
    yk__rpc_head head;
    yk__rpc_head_read(r, link, &head);
    size_t size = (size_t)(r->end - r->at);
    unsigned char *bytes = r->bad || owned ? owned : malloc(size ? size : 1);
    f->bytes_begin = owned ? (size_t)(r->at - owned) : 0;
    if (r->bad) {
        free(owned);
    } else if (bytes) {
        if (!owned)
            memcpy(bytes, r->at, size);
        f->head = head;
        f->kept = size && bytes[f->bytes_begin] == YK__VALUE_WIRE_INT;
        yk__rpc_future_finish(f, bytes, size, NULL);
    } else {
        yk__rpc_pins_taken(&head.pins);
        yk__rpc_future_fail(f, YK_ERR_MEMORY, "%s has answered, and there is no memory for the %zu bytes", f->what,
                            size);
    }
    return !r->bad;
}

bool yk__rpc_reply(yk__rpc_link *link, yk__reader *r, bool lent, unsigned char *owned)
{
    uint64_t number = yk__read_u64(r);
    yk__rpc_loan *loan = NULL;
    if (r->bad || (lent && !(loan = yk__loan_new(link, number, r)))) {
        free(owned);
        return false;
    }
    yk_future *f = link->futures;
    while (f && f->number != number)
        f = f->next;
    if (f && f->deadline <= yk__now()) { /* whoever waits for it has not woken yet, or nobody does */
        future_expire(f);
        f = NULL;
    }
    if (f) {
        f->loan = loan;
        return yk__rpc_reply_local(f, link, r, owned);
    }
    yk__rpc_head head = {0}; /* nobody waits for it: its time was over, or it was cancelled */
    if (yk__read_u8(r))
        yk__rpc_head_read(r, link, &head);
    yk__rpc_pins_taken(&head.pins);
    yk__loan_settle(loan);
    bool right = !r->bad;
    free(owned);
    return right;
}

/* ---- public ------------------------------------------------------------------------------------------------------ */

bool yk_future_done(yk_future *f)
{
    YK__LIVE(f);
    YK__QUESTION;
    if (!f)
        return false;
    yk__rpc_lock();
    bool done = f->progress == YK__RPC_ANSWERED;
    pthread_mutex_unlock(&yk__rpc.lock);
    return done;
}

bool yk__rpc_wait_for_answers(pthread_cond_t *condition, double deadline)
{
    if (!yk__rpc_may_listen(YK__BELL_WAITER))
        return yk__rpc_wait(condition, deadline);
    yk__rpc_listen(YK__BELL_WAITER, deadline);
    return !deadline || yk__now() < deadline;
}

/* Copies a text up to `end` or its own, cut to the room; the rest is 0 already. A call may take less time than a
 * printf.
 */
static void text_cut(char *to, size_t room, const char *from, char end)
{
    for (size_t i = 0; i + 1 < room && from[i] && from[i] != end; i++)
        to[i] = from[i];
}

/* With the lock held: notes in the page of this rank that a thread waits for the answer. */
static int future_note(const yk_future *f)
{
    yk__page_operation call = {.number = f->number ? f->number : 1, .what = YK__WHAT_CALL, .tag = -1};
    const char *name = strstr(f->what, "), '"); /* "rpc_sync: worker 'ps0' (host h, process 12), 'add'" */
    call.peer = (int32_t)(f->link ? f->link->index : yk__rpc.index);
    text_cut(call.kind, sizeof(call.kind), name ? name + strlen("), '") : f->what, '\'');
    text_cut(call.group, sizeof(call.group), f->link ? f->link->name : yk__rpc.name, '\0');
    return yk__progress_call_begin(&call);
}

/* Waits with the lock held until it is done; false when the deadline (0: none) is over. */
static bool future_wait_done(yk_future *f, double deadline)
{
    double until = isinf(f->deadline) || (deadline && deadline < f->deadline) ? deadline : f->deadline;
    if (f->progress == YK__RPC_ANSWERED)
        return true;
    bool blocked = yk__rpc_blocked_begin();
    int noted = future_note(f);
    while (f->progress != YK__RPC_ANSWERED) {
        double now = yk__now();
        if (f->deadline <= now)
            future_expire(f);
        else if (!yk__rpc_wait_for_answers(&f->answered, until) && deadline && yk__now() >= deadline)
            break;
    }
    yk__progress_call_end(noted);
    yk__rpc_blocked_end(blocked);
    return f->progress == YK__RPC_ANSWERED;
}

/* Decodes the result of a call. */
static yk_value *future_decode(yk_future *f, unsigned char *bytes, yk__rpc_loan *loan)
{
    yk__reader reader = {bytes + f->bytes_begin, bytes + f->bytes_begin + f->bytes_size, false};
    yk__rpc_arrived arrived = {0};
    yk__rpc_loan *outer = yk__loan_use(loan);
    double before = yk__rpc_ref_until(f->deadline > yk__now() ? f->deadline : 0);
    yk_value *value = yk__value_decode(&reader, &arrived);
    yk__rpc_ref_until(before);
    yk__loan_use(outer);
    yk__loan_settle(loan);
    if (value && yk__dist_received(f->context, f->peer, f->head.message, &arrived)) {
        yk_value_release(value);
        value = NULL;
    }
    free(arrived.tensors);
    if (!value)
        yk__error_prefix("%s has answered", f->what);
    yk__rpc_pins_taken(&f->head.pins);
    free(bytes);
    return value;
}

yk_value *yk__rpc_future_value(yk_future *f)
{
    yk__rpc_lock();
    while (!f->value && !f->error.code && f->decoding) /* another thread decodes it at this moment */
        yk__rpc_wait(&f->answered, yk__now() + 1);
    yk_value *value = yk_value_retain(f->value);
    bool decodes = f->decoding = !value && !f->error.code;
    unsigned char *bytes = decodes ? f->bytes : NULL;
    yk__rpc_loan *loan = decodes ? f->loan : NULL;
    if (decodes) {
        f->bytes = NULL;
        f->loan = NULL;
    }
    pthread_mutex_unlock(&yk__rpc.lock);
    if (!decodes) {
        if (!value)
            yk__error_put(&f->error);
        return value;
    }
    value = bytes ? future_decode(f, bytes, loan) : yk__rpc_all_value(f);
    const yk_error *failed = value ? NULL : yk_last_error();
    yk__rpc_lock();
    f->value = yk_value_retain(value);
    if (failed)
        f->error = *failed;
    pthread_cond_broadcast(&f->answered);
    pthread_mutex_unlock(&yk__rpc.lock);
    return value;
}

yk_value *yk_future_wait(yk_future *f, double timeout)
{
    YK__LIVE(f);
    double seconds = 0;
    if (!yk__is_there("future_wait", "future", f) || !yk__scope_check("future_wait") ||
        (timeout != YK_NOT_GIVEN && yk__check_timeout("future_wait", "timeout", timeout, 0, &seconds)))
        return NULL;
    YK__EVENT(YK__EVENT_CALL, "future_wait");
    yk_future_retain(f); /* a scope may end meanwhile, on another thread */
    yk__rpc_lock();
    bool done = future_wait_done(f, seconds > 0 ? yk__now() + seconds : 0);
    pthread_mutex_unlock(&yk__rpc.lock);
    yk_value *value = NULL;
    if (done)
        value = yk__rpc_future_value(f);
    else
        yk__fail(YK_ERR_TIMEOUT, "future_wait: %s has not answered within %g s; the call goes on", f->what, seconds);
    yk_future_release(f);
    return yk__scope_own(value);
}

int yk_future_wait_any(yk_future *const *futures, int count, double timeout)
{
    double seconds = 0;
    if (count < 1 || !futures) {
        yk__fail(YK_ERR_ARGUMENT, "future_wait_any: %d futures", futures ? count : 0);
        return -1;
    }
    if (timeout != YK_NOT_GIVEN && yk__check_timeout("future_wait_any", "timeout", timeout, 0, &seconds))
        return -1;
    for (int i = 0; i < count; i++) {
        yk_future *f = futures[i];
        YK__LIVE(f);
        if (!yk__is_there("future_wait_any", "future", f))
            return -1;
    }
    double deadline = seconds > 0 ? yk__now() + seconds : 0;
    int found = -1;
    yk__rpc_lock();
    bool blocked = yk__rpc_blocked_begin();
    for (;;) {
        double now = yk__now(), next = deadline;
        for (int i = 0; i < count && found < 0; i++) {
            if (futures[i]->progress != YK__RPC_ANSWERED && futures[i]->deadline <= now)
                future_expire(futures[i]);
            if (futures[i]->progress == YK__RPC_ANSWERED)
                found = i;
            else if (!isinf(futures[i]->deadline) && (!next || futures[i]->deadline < next))
                next = futures[i]->deadline;
        }
        if (found >= 0 || (deadline && now >= deadline))
            break;
        yk__rpc_wait_for_answers(&yk__rpc.changed, next);
    }
    yk__rpc_blocked_end(blocked);
    pthread_mutex_unlock(&yk__rpc.lock);
    if (found < 0)
        yk__fail(YK_ERR_TIMEOUT, "future_wait_any: none of %d calls was answered within %g s", count, seconds);
    return found;
}

/* With the lock, of a future that the caller has a reference to. */
static void future_cancel(yk_future *f)
{
    if (f->progress != YK__RPC_ANSWERED) {
        future_forget_call(f);
        yk__rpc_future_fail(f, YK_ERR_STATE, "%s was cancelled", f->what);
    }
    for (int i = 0; i < f->all_count && f->all_calls; i++)
        future_cancel(f->all[i]);
}

void yk_future_cancel(yk_future *f)
{
    YK__LIVE(f);
    if (!yk__is_there("future_cancel", "future", f))
        return;
    yk__rpc_lock();
    future_cancel(f);
    pthread_mutex_unlock(&yk__rpc.lock);
}

yk_future *yk_future_retain(yk_future *f)
{
    return yk_object_retain(f);
}

void yk_future_release(yk_future *f)
{
    yk_object_release(f);
}
