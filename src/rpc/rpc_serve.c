/*
 * rpc_serve.c - the calls of other workers: objects with their order, and the threads that run what is called.
 * Layer: rpc.
 *
 * Invariants: a call is in one place: in its object's queue, in the queue of those that are ready, with a thread that
 * runs it, or with the user who answers it later. It is answered once. Of an object that is not concurrent at most one
 * call is ready or runs (`busy`), and the others wait in the order in which they came. An object leaves the table with
 * its last call, DESTROY, after which none comes. A thread whose function does not return within the time of the
 * worker's end is `left`: it is in no list then, and changes nothing of the agent.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/events.h"
#include "base/log.h"
#include "base/thread.h"
#include "rpc/dist_autograd.h"
#include "rpc/rpc_agent.h"
#include "rpc/rpc_devices.h"
#include "rpc/value_wire.h"
#include "value/value.h"

enum { MOST_POOL = 512 /* threads, those included that wait for calls of their own */ };

static _Thread_local yk_call *current;
static _Thread_local yk__rpc_server *server; /* NULL: a thread that is not of the pool */

yk_call *yk__rpc_current(void)
{
    return current;
}

bool yk__rpc_is_left(void)
{
    return server && server->left;
}

void yk__rpc_call_describe(const yk_call *call, char *text, size_t room)
{
    const char *cls = call->kind == YK__RPC_METHOD && call->object ? call->object->name : "";
    const char *what = call->kind == YK__RPC_THEN      ? "a function of yk_future_then"
                       : call->kind == YK__RPC_TELL    ? "the function of a watch"
                       : call->kind == YK__RPC_DESTROY ? "destroy of "
                       : call->kind == YK__RPC_SAVE    ? "save of "
                                                       : "";
    if (call->kind == YK__RPC_THEN)
        snprintf(text, room, "%s", what);
    else if (call->kind == YK__RPC_TELL)
        snprintf(text, room, "%s of '%.60s'", what, call->caller_name);
    else if (call->kind >= YK__RPC_DESTROY)
        snprintf(text, room, "%s'%.60s'", what, call->name);
    else
        snprintf(text, room, "%s'%.60s%s%.60s' for '%.60s'", what, cls, cls[0] ? "." : "", call->name,
                 call->caller_name);
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* With the lock: drops a reference, and frees with the last. */
static void call_release(yk_call *call)
{
    if (--call->references > 0)
        return;
    yk__rpc_pins_taken(&call->head.pins);
    yk__dist_put(call->context);
    free(call->bytes);
    yk__loan_settle(call->loan);
    free(call->chain);
    yk_value_release(call->args);
    yk_value_release(call->result);
    if (call->local)
        yk_future_release(call->local);
    if (call->watch)
        yk__rpc_watch_free(call->watch);
    if (call->after)
        yk_future_release(call->after);
    free(call);
}

/* Gives back the credit of a call, and drops its connection. With the lock. */
static void call_unlink(yk_call *call)
{
    yk__rpc_link *link = call->link;
    if (!link)
        return;
    for (yk_call **at = &link->calls; *at; at = &(*at)->next_of_link)
        if (*at == call) {
            *at = call->next_of_link;
            break;
        }
    call->next_of_link = NULL;
    link->last_call = link->last_call == call ? NULL : link->last_call;
    link->call_count--;
    link->call_bytes -= call->size;
    call->link = NULL;
    yk__rpc_link_release(link);
}

/* Puts a REPLY together: of the value, or of this thread's error, which it empties. */
static void reply_encode(const yk_call *call, const yk_value *value, bool ran, yk__wire *out, yk__rpc_carried *carried)
{
    yk__wire_put_u64(out, call->number);
    if (!yk_last_error()) {
        yk__wire_put_u8(out, 1);
        carried->context = call->context;
        carried->deadline = call->deadline < INFINITY ? call->deadline : 0;
        yk__rpc_head_put(out, carried);
        if (!yk__value_encode(value, out, carried) && !yk__dist_sent(carried))
            return;
        yk__rpc_carried_clear(carried);
        yk__error_prefix("the result of '%s'", call->name);
    }
    yk_error error;
    yk__error_take(&error);
    yk__lender_drop();
    out->size = 0;
    out->failed = false;
    const char *file = error.file ? error.file : "";
    yk__wire_put_u64(out, call->number);
    yk__wire_put_u8(out, 0);
    yk__wire_put_u32(out, (uint32_t)error.code);
    yk__wire_put_u8(out, ran);
    yk__wire_put_u32(out, (uint32_t)error.line);
    yk__wire_put_u8(out, (unsigned)strnlen(file, 200));
    yk__wire_put(out, file, strnlen(file, 200));
    yk__wire_put(out, error.message, strlen(error.message));
}

/* Answers with the value, or with this thread's error, once, and drops a reference. Without the lock. */
static void call_answer(yk_call *call, const yk_value *value, bool ran)
{
    yk__wire out = {0};
    yk__rpc_carried carried = {0};
    yk__lender lender = {0};
    yk__rpc_devices devices;
    yk__rpc_lock();
    carried.devices = yk__devices_of_caller(&devices, call);
    size_t takes = call->link ? call->link->takes : 0;
    bool wanted = !call->cancelled && !call->answered, lends = yk__rpc_link_lends(call->link);
    yk__progress_count(yk__rpc.counters.served, !call->answered);
    call->answered = true;
    if (server && server->call == call && current != call) /* its function has returned */
        server->call = NULL;
    pthread_mutex_unlock(&yk__rpc.lock);
    yk__lender_use(lends ? &lender : NULL);
    if (wanted)
        reply_encode(call, value, ran, &out, &carried);
    if (wanted && yk__rpc_is_too_large(out.size, takes)) {
        yk__fail(YK_ERR_ARGUMENT,
                 "the result of '%s' takes %zu bytes, and worker '%s' takes messages of up to %zu (max_message of its "
                 "rpc_init)",
                 call->name, out.size, call->caller_name, takes);
        yk__rpc_carried_clear(&carried);
        out.size = 0;
        reply_encode(call, NULL, ran, &out, &carried);
    }
    yk__lender_use(NULL);
    yk__lender_put(&lender, &out);
    yk_clear_error();
    if (wanted) { /* what they lend is returned before the answer, and with the same wake-up */
        yk_value_release(call->args);
        call->args = NULL;
    }
    yk__rpc_lock();
    wanted = wanted && !call->cancelled;
    yk__rpc_link *link = call->link;
    if (wanted && call->local && out.failed) {
        yk__rpc_future_fail(call->local, YK_ERR_MEMORY, "%s: no memory for the answer", call->local->what);
    } else if (wanted && call->local) {
        yk__reader r = {out.data + sizeof(call->number), out.data + out.size, false};
        yk__rpc_pin(&carried, NULL, out.data);
        yk__rpc_reply_local(call->local, NULL, &r, NULL);
    } else if (wanted && link) {
        link->references++;
        call_unlink(call); /* the credit is back before the other side can know */
        if (!out.failed)
            yk__rpc_pin(&carried, link, out.data);
        bool lent = lender.count > 0;
        yk__rpc.quiet = link;
        yk__rpc_loans_send();
        yk__rpc.quiet = NULL;
        yk__rpc_lease_add(link, call->number, &lender);
        if (out.failed)
            yk__rpc_link_end(link, "no memory for an answer");
        else
            yk__rpc_link_send(link, YK__RPC_REPLY | (lent ? YK__RPC_LENT : 0u), 0, out.data, out.size);
        out = out.failed ? out : (yk__wire){0};
        yk__rpc_link_release(link);
    }
    call_unlink(call);
    call_release(call);
    pthread_mutex_unlock(&yk__rpc.lock);
    yk__lender_clear(&lender, false); /* it was not sent */
    yk__wire_clear(&out);
    yk__rpc_carried_clear(&carried);
}

void yk__rpc_serve_cancel(yk_call *call)
{
    call->cancelled = true;
    call_unlink(call);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static void *serve_run(void *arg);

void yk__rpc_serve_hurry(void)
{
    if (!yk__rpc.ready_first || yk__rpc.executing >= yk__rpc.threads_limit || yk__rpc.stopping)
        return;
    if (yk__rpc.idle > 0) {
        yk__rpc.idle--;
        yk__rpc.waking++;
        pthread_cond_signal(&yk__rpc.ready);
        return;
    }
    if (yk__rpc.listening & YK__BELL_SERVER) {
        yk__rpc_listeners_wake(YK__BELL_SERVER);
        return;
    }
    if (yk__rpc.threads >= MOST_POOL)
        return;
    pthread_t thread;
    if (yk__thread_create(&thread, serve_run, NULL) == 0) {
        pthread_setname_np(thread, "yoke-rpc-call");
        pthread_detach(thread);
        yk__rpc.threads++;
        yk__rpc.starting++;
    } else {
        yk__log(YK_LOG_WARN, "rpc: no thread for a call: %d run", yk__rpc.threads);
    }
}

/*
 * A thread for what is ready, where there is none that will look for it and more may run. Most calls take less time
 * than it takes to wake a thread. So a call is left to a thread that runs another call, and the helper has one woken
 * only if that does not come soon.
 */
static void serve_wake(void)
{
    if (!yk__rpc.helper_runs) {
        yk__rpc_serve_hurry();
        return;
    }
    if (!yk__rpc.ready_first || yk__rpc.server_takes || yk__rpc.executing >= yk__rpc.threads_limit)
        return;
    if (yk__rpc.executing + yk__rpc.waking + yk__rpc.starting > 0)
        yk__rpc_listeners_wake(YK__BELL_HELPER);
    else
        yk__rpc_serve_hurry();
}

static void call_make_ready(yk_call *call)
{
    call->next_ready = NULL;
    *(yk__rpc.ready_last ? &yk__rpc.ready_last->next_ready : &yk__rpc.ready_first) = call;
    yk__rpc.ready_last = call;
    serve_wake();
}

/* DESTROY and the like are no calls of anybody's. */
static bool is_own(const yk_call *call)
{
    return call->kind >= YK__RPC_DESTROY || (call->kind == YK__RPC_SAVE && !call->caller);
}

static void queued_count(const yk_call *call, int change)
{
    if (!is_own(call))
        yk__progress_count(yk__rpc.counters.queued, change);
}

/* True if no other call of its object may run with it. */
static bool call_is_alone(const yk_call *call)
{
    const yk_rpc_class *cls = call->object->cls;
    return call->kind == YK__RPC_CREATE || call->kind == YK__RPC_DESTROY || call->kind == YK__RPC_SAVE || !cls ||
           !cls->concurrent;
}

/* Makes the call ready if it is its turn, else appends it to the object's queue. */
static void call_enqueue(yk_call *call)
{
    queued_count(call, 1);
    yk__rpc_object *o = call->object;
    bool alone = o && call_is_alone(call);
    if (!o || (!o->first && !o->busy && !(alone && o->running))) {
        if (o) {
            o->busy = alone;
            o->running++;
        }
        call_make_ready(call);
        return;
    }
    call->next_ready = NULL;
    *(o->last ? &o->last->next_ready : &o->first) = call;
    o->last = call;
}

/* A call of the object has run: those that may run now are ready. */
static void object_next(yk__rpc_object *o)
{
    o->running--;
    o->busy = false;
    while (o->first && !o->busy) {
        yk_call *call = o->first;
        bool alone = call_is_alone(call);
        if (alone && o->running)
            return;
        o->first = call->next_ready;
        if (!o->first)
            o->last = NULL;
        o->busy = alone;
        o->running++;
        call_make_ready(call);
    }
}

bool yk__rpc_blocked_begin(void)
{
    if (!current || yk__rpc_is_left())
        return false;
    yk__rpc.executing--;
    serve_wake();
    return true;
}

void yk__rpc_blocked_end(bool counted)
{
    if (counted && !yk__rpc_is_left())
        yk__rpc.executing++;
}

/* ---- objects ----------------------------------------------------------------------------------------------------- */

uint64_t yk__rpc_object_number(const yk__rpc_object *o)
{
    return (uint64_t)yk__rpc.index << 32 | o->serial;
}

static yk__rpc_held **held_slot(uint64_t id)
{
    uint64_t mixed = id * 0x9E3779B97F4A7C15u;
    yk__rpc_held **at = &yk__rpc.held[mixed >> 54];
    while (*at && (*at)->id != id)
        at = &(*at)->next;
    return at;
}

static void object_free(yk__rpc_object *o)
{
    if (o->kept && o->made && o->released && !o->back) {
        yk__keep_remove(o);
    } else if (o->kept && o->made && yk__keep_save(o)) {
        yk__log(YK_LOG_WARN, "rpc: %s", yk_last_error()->message);
        yk_clear_error();
    }
    yk__rpc_lock();
    yk__rpc.changed_count -= o->changed;
    pthread_mutex_unlock(&yk__rpc.lock);
    if (o->cls && o->made && o->cls->destroy)
        o->cls->destroy(o->data);
    yk_value_release(o->value);
    free(o);
}

static void object_unlist(yk__rpc_object *o)
{
    for (yk__rpc_object **at = &yk__rpc.objects; *at; at = &(*at)->next)
        if (*at == o) {
            *at = o->next;
            return;
        }
}

/* Frees the reference at the slot; with the last one the object's end is queued after its calls. */
static void held_drop(yk__rpc_held **slot)
{
    yk__rpc_held *held = *slot;
    yk__rpc_object *o = held->object;
    *slot = held->next;
    free(held);
    if (--o->references > 0 || o->back)
        return;
    yk_call *call = calloc(1, sizeof(*call));
    if (!call)
        return; /* the object is destroyed with the worker */
    call->kind = YK__RPC_DESTROY;
    call->references = 1;
    call->object = o;
    memcpy(call->name, o->name, sizeof(call->name)); /* the object goes before the call */
    call_enqueue(call);
}

void yk__rpc_serve_drop(uint32_t holder, uint64_t id)
{
    enum { SLOTS = sizeof(yk__rpc.held) / sizeof(yk__rpc.held[0]) };
    if (id) {
        yk__rpc_held **slot = held_slot(id);
        if (*slot && (*slot)->holder == holder) {
            (*slot)->object->released = true;
            held_drop(slot);
        }
        return;
    }
    for (int i = 0; i < SLOTS; i++)
        for (yk__rpc_held **slot = &yk__rpc.held[i]; *slot;)
            if ((*slot)->holder == holder) {
                (*slot)->object->released = false;
                held_drop(slot);
            } else {
                slot = &(*slot)->next;
            }
}

void yk__rpc_serve_save(yk__rpc_object *o)
{
    yk_call *call = calloc(1, sizeof(*call));
    if (!call) { /* a later look tries again */
        o->saving = false;
        return;
    }
    *call = (yk_call){.kind = YK__RPC_SAVE, .references = 1, .object = o, .deadline = INFINITY};
    call_enqueue(call);
}

bool yk__rpc_serve_tell(yk__rpc_watch *watch, const char *worker)
{
    yk_call *call = calloc(1, sizeof(*call));
    if (!call)
        return false;
    *call = (yk_call){.kind = YK__RPC_TELL, .references = 1, .watch = watch, .deadline = INFINITY};
    snprintf(call->caller_name, sizeof(call->caller_name), "%s", worker);
    snprintf(call->name, sizeof(call->name), "watch");
    call_enqueue(call);
    return true;
}

void yk__rpc_serve_then(yk_call *call)
{
    call_enqueue(call);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* The state of the object, or its value, where the creating function has given it. */
static yk_status object_take(yk_call *call)
{
    yk__rpc_object *o = call->object;
    if (o->cls && !call->new_object)
        return yk__fail(YK_ERR_STATE, "the class '%s' made no object: its create did not call yk_call_set_object",
                        o->cls->name);
    yk__rpc_lock(); /* yk_rpc_debug_info looks at it */
    o->data = call->new_object;
    o->value = o->cls ? NULL : yk_value_retain(call->result);
    o->saved = yk__now();
    o->made = true;
    pthread_mutex_unlock(&yk__rpc.lock);
    return YK_OK;
}

static yk_status call_run_function(yk_call *call)
{
    YK__EVENT(YK__EVENT_CALL, "serve call");
    yk__reader r = {call->bytes + call->begin, call->bytes + call->begin + call->size, false};
    yk__rpc_arrived arrived = {0};
    struct yk_dist_context *before = yk__dist_enter(call->context);
    yk__rpc_loan *outer = yk__loan_use(call->loan);
    call->args = yk__value_decode(&r, &arrived);
    yk__loan_use(outer);
    yk__loan_settle(call->loan);
    call->loan = NULL;
    yk__rpc_pins_taken(&call->head.pins);
    yk_status status =
        call->args ? yk__dist_received(call->context, call->caller, call->head.message, &arrived) : yk__error_code();
    free(arrived.tensors);
    status = status ? status : call->fn(call);
    yk__dist_enter(before);
    if (!status && yk_last_error()) /* it went on after a failure */
        status = yk__error_code();
    if (status && !yk_last_error())
        yk__fail(status < YK_OK ? YK_ERR_CALLBACK : status, "it failed without saying why");
    return status;
}

/* Runs a call, and returns true if the function itself has run; the error stays on record. Without the lock, in a
 * scope. */
static bool call_run(yk_call *call)
{
    yk__rpc_object *o = call->object;
    if (call->refusal.code) {
        yk__error_put(&call->refusal);
        return false;
    }
    if (call->deadline <= yk__now()) {
        yk__fail(YK_ERR_TIMEOUT, "its time was over before its turn came");
        return false;
    }
    if (o && call->kind != YK__RPC_CREATE && !o->made) {
        yk__error_put(&o->error);
        yk__error_prefix("the object could not be made");
        return false;
    }
    if (call->kind == YK__RPC_ATTACH) { /* the answer tells it from one that was made now, which has no value */
        call->result = o->kept ? yk__value_new(YK_VALUE_INT) : yk__value_new(YK_VALUE_BOOL);
        return call->result != NULL;
    }
    if (call->kind == YK__RPC_SAVE) {
        if (o->kept) {
            (void)!yk__keep_save(o); /* the record has it */
            return true;
        }
        yk__fail(YK_ERR_STATE, "the worker keeps no snapshots of '%s': %s", o->name,
                 !o->cls || !o->cls->save ? "its class has no save and load"
                 : !o->shared[0]          ? "it was made without a shared name"
                                          : "yk_rpc_init was given no folder for them");
        return false;
    }
    if (call->kind == YK__RPC_ADD)
        return true;
    if (call->head.context && !(call->context = yk__dist_get(call->head.context)))
        return false;
    if (call->kind == YK__RPC_FETCH) {
        if (o->cls)
            yk__fail(YK_ERR_ARGUMENT, "an object of class '%s' is no value; call its methods", o->cls->name);
        call->result = o->cls ? NULL : yk_value_retain(o->value);
        return true;
    }
    current = call;
    yk_status status = call_run_function(call);
    current = NULL;
    if (call->kind == YK__RPC_CREATE) {
        if (!status && call->later)
            status = yk__fail(YK_ERR_UNSUPPORTED, "what makes an object cannot answer later");
        status = status ? status : object_take(call);
        if (status) {
            yk__rpc_lock();
            o->error = *yk_last_error();
            pthread_mutex_unlock(&yk__rpc.lock);
        }
        yk_value_release(call->result);
        call->result = !status && o->kept ? yk__value_new(YK_VALUE_INT) : NULL;
    } else if (o && o->kept && !status && yk__keep_after(o)) {
        yk__error_prefix("it has run");
    }
    return true;
}

/* A method has run after the worker's end: with the last the object goes. With the lock, which is released meanwhile.
 */
static void object_leave(yk__rpc_object *o)
{
    if (!o || --o->running > 0)
        return;
    pthread_mutex_unlock(&yk__rpc.lock);
    yk_scope scope = yk_scope_begin();
    object_free(o);
    yk_clear_error();
    yk_scope_end(scope);
    yk__rpc_lock();
}

/* Runs one call with the lock held before and after. */
static void call_serve(yk_call *call)
{
    yk__rpc_object *o = call->object;
    bool cancelled = call->cancelled && call->kind != YK__RPC_CREATE, destroys = call->kind == YK__RPC_DESTROY;
    if (destroys)
        object_unlist(o);
    bool gathers = yk__rpc.helper_runs;
    pthread_mutex_unlock(&yk__rpc.lock);
    yk_scope scope = yk_scope_begin();
    bool answered = true; /* or somebody will, and the reference of this thread is left to be dropped */
    if (destroys) {
        object_free(o);
        o = NULL;
        answered = false;
    } else if (is_own(call) && call->kind == YK__RPC_SAVE) {
        if (yk__keep_save(o))
            yk__log(YK_LOG_WARN, "rpc: %s", yk_last_error()->message);
        o->saving = false;
        answered = false;
    } else if (call->kind == YK__RPC_TELL) {
        current = call;
        yk__rpc_watch_run(call->watch);
        current = NULL;
        answered = false;
    } else if (call->kind == YK__RPC_THEN) {
        current = call;
        yk__rpc_then_run(call);
        current = NULL;
        answered = false;
    } else if (cancelled) {
        call_answer(call, NULL, false);
    } else {
        bool ran = call_run(call);
        yk__loans_gather(gathers); /* what is released from here on is returned below */
        answered = !call->later || yk_last_error();
        if (answered)
            call_answer(call, call->result, ran);
    }
    yk_clear_error();
    yk_scope_end(scope);
    yk__loans_gather(false);
    yk__rpc_lock();
    if (!answered)
        call_release(call);
    yk__rpc_loans_send();
    if (yk__rpc_is_left()) {
        object_leave(o);
        return;
    }
    if (o && o->error.code) {
        o->shared[0] = 0; /* whoever asks for it from here on makes another */
        o->kept = o->back = false;
    }
    if (o) {
        yk__rpc.server_takes = yk__rpc.helper_runs; /* this thread runs the next call */
        object_next(o);
        yk__rpc.server_takes = false;
    }
}

/* Waits until this thread is woken for a call: whoever does that has counted it among those that are woken. */
static void serve_idle(void)
{
    yk__rpc.idle++;
    do {
        yk__rpc_wait(&yk__rpc.ready, 0);
    } while (!yk__rpc.waking && !yk__rpc.stopping);
    if (yk__rpc.waking)
        yk__rpc.waking--;
    else
        yk__rpc.idle--;
}

/* The next call that a thread may run, taken from the queue: at the worker's end only what follows a future. */
static yk_call *ready_take(void)
{
    yk_call *before = NULL, *call = yk__rpc.ready_first;
    if (!yk__rpc.stopping && yk__rpc.executing >= yk__rpc.threads_limit)
        return NULL;
    while (call && yk__rpc.stopping && call->kind != YK__RPC_THEN) {
        before = call;
        call = call->next_ready;
    }
    if (!call)
        return NULL;
    *(before ? &before->next_ready : &yk__rpc.ready_first) = call->next_ready;
    if (!call->next_ready)
        yk__rpc.ready_last = before;
    return call;
}

static void *serve_run(void *arg)
{
    (void)arg;
    yk__rpc_lock();
    yk__rpc_server self = {.next = yk__rpc.servers};
    yk__rpc.servers = &self;
    server = &self;
    yk__rpc.starting--;
    for (;;) {
        if (yk__rpc.helper_runs && !yk__rpc.stopping) { /* calls that have come meanwhile */
            yk__rpc.server_takes = true;
            yk__rpc_pairs_take();
            yk__rpc.server_takes = false;
        }
        yk_call *call = ready_take();
        if (!call && yk__rpc.stopping)
            break;
        if (!call && yk__rpc_may_listen(YK__BELL_SERVER)) {
            yk__rpc_listen(YK__BELL_SERVER, 0);
            continue;
        }
        if (!call) {
            serve_idle();
            continue;
        }
        yk__rpc.begun++;
        yk__rpc.executing++;
        queued_count(call, -1);
        serve_wake();
        self.call = call;
        self.since = yk__now();
        call_serve(call);
        if (self.left) {
            server = NULL;
            pthread_mutex_unlock(&yk__rpc.lock);
            return NULL;
        }
        self.call = NULL;
        yk__rpc.executing--;
        if (!yk__rpc.helper_runs) /* else this thread looks for the next call */
            serve_wake();
    }
    for (yk__rpc_server **at = &yk__rpc.servers; *at; at = &(*at)->next)
        if (*at == &self) {
            *at = self.next;
            break;
        }
    server = NULL;
    yk__rpc.threads--;
    pthread_cond_broadcast(&yk__rpc.changed);
    pthread_mutex_unlock(&yk__rpc.lock);
    return NULL;
}

/* ---- the worker's end -------------------------------------------------------------------------------------------- */

/* True for functions of users, which may not return; those of the library do, and use what ends with the worker. */
static bool call_may_be_left(const yk_call *call)
{
    const char *cls = call->kind == YK__RPC_METHOD && call->object ? call->object->name : call->name;
    return strncmp(cls, "yoke.", 5) != 0 || strcmp(cls, "yoke.module") == 0;
}

/* The number of threads that run functions of users. */
static int servers_in_functions(void)
{
    int count = 0;
    for (const yk__rpc_server *s = yk__rpc.servers; s; s = s->next)
        count += s->call && call_may_be_left(s->call);
    return count;
}

static bool then_is_ready(void)
{
    for (const yk_call *call = yk__rpc.ready_first; call; call = call->next_ready)
        if (call->kind == YK__RPC_THEN)
            return true;
    return false;
}

/* Names the functions that run. */
static void servers_describe(char text[400])
{
    double now = yk__now();
    size_t at = 0;
    for (const yk__rpc_server *s = yk__rpc.servers; s && at < 200; s = s->next) {
        char call[250];
        if (!s->call)
            continue;
        yk__rpc_call_describe(s->call, call, sizeof(call));
        at +=
            (size_t)snprintf(text + at, 400 - at, "%s%.190s has run for %.3g s", at ? ", " : "", call, now - s->since);
    }
}

/* A further thread for what follows a future, where all others run functions. */
static void then_run_ready(void)
{
    pthread_t thread;
    if (yk__rpc.threads < MOST_POOL && yk__thread_create(&thread, serve_run, NULL) == 0) {
        pthread_detach(thread);
        yk__rpc.threads++;
        yk__rpc.starting++;
        return;
    }
    yk_call *call = ready_take();
    if (call)
        call_serve(call);
}

/* Waits for the threads; after so many seconds those that run functions of users are left. With the lock. */
static void servers_await(double seconds, char text[400])
{
    static const double USUAL = 5, LOOK = 0.05;
    double began = yk__now(), limit = began + seconds;
    bool warned = false;
    while (yk__rpc.threads > 0 || then_is_ready()) {
        int stuck = servers_in_functions();
        double now = yk__now();
        if (stuck == yk__rpc.threads && then_is_ready()) {
            then_run_ready();
            continue;
        }
        if (stuck == yk__rpc.threads && now >= limit)
            break;
        if (!warned && seconds > USUAL && now >= began + USUAL) {
            servers_describe(text);
            yk__log(YK_LOG_WARN, "rpc: rpc_shutdown waits: %s", text);
            warned = true;
        }
        pthread_cond_broadcast(&yk__rpc.ready);
        double until = now + LOOK < limit || now >= limit ? now + LOOK : limit;
        yk__rpc_wait(&yk__rpc.changed, until);
    }
    text[0] = 0;
    if (!yk__rpc.threads)
        return;
    servers_describe(text);
    for (yk__rpc_server *s; (s = yk__rpc.servers);) {
        yk__rpc.servers = s->next;
        s->left = s->call->cancelled = true;
        yk__rpc.thens -= s->call->kind == YK__RPC_THEN;
    }
    yk__rpc.threads = yk__rpc.executing = 0;
}

/* Takes the objects from the agent's list, but for those of methods that still run, which free them. With the lock. */
static yk__rpc_object *objects_take(void)
{
    yk__rpc_object *taken = NULL;
    for (yk__rpc_object *o; (o = yk__rpc.objects);) {
        yk__rpc.objects = o->next;
        if (o->running > 0) {
            o->left = true;
            o->kept = o->changed = false;
            o->next = NULL;
            continue;
        }
        o->next = taken;
        taken = o;
    }
    return taken;
}

void yk__rpc_serve_stop(double seconds, char text[400])
{
    enum { SLOTS = sizeof(yk__rpc.held) / sizeof(yk__rpc.held[0]) };
    yk__rpc_lock();
    servers_await(seconds, text);
    yk_call *calls = NULL;
    for (yk_call *call; (call = yk__rpc.ready_first);) {
        yk__rpc.ready_first = call->next_ready;
        if (call->object)
            call->object->running--;
        call->next_ready = calls;
        calls = call;
    }
    yk__rpc.ready_last = NULL;
    yk__progress_gauge(yk__rpc.counters.queued, 0);
    for (int i = 0; i < SLOTS; i++)
        for (yk__rpc_held *held; (held = yk__rpc.held[i]);) {
            yk__rpc.held[i] = held->next;
            free(held);
        }
    for (yk__rpc_object *o = yk__rpc.objects; o; o = o->next) {
        for (yk_call *call; (call = o->first);) {
            o->first = call->next_ready;
            call->next_ready = calls;
            calls = call;
        }
        o->last = NULL;
    }
    yk__rpc_object *objects = objects_take();
    pthread_mutex_unlock(&yk__rpc.lock);
    while (calls) {
        yk_call *next = calls->next_ready;
        call_release(calls);
        calls = next;
    }
    yk_scope scope = yk_scope_begin();
    while (objects) {
        yk__rpc_object *next = objects->next;
        object_free(objects);
        objects = next;
    }
    yk_scope_end(scope);
}

/* ---- a call that came -------------------------------------------------------------------------------------------- */

static bool call_parse(yk_call *call, yk__reader *r, uint64_t *object)
{
    call->number = yk__read_u64(r);
    call->kind = (yk__rpc_kind)yk__read_u8(r);
    *object = yk__read_u64(r);
    uint32_t milliseconds = yk__read_u32(r);
    call->sync = yk__read_u8(r);
    unsigned length = yk__read_u8(r);
    const unsigned char *name = yk__read_bytes(r, length);
    unsigned shared_length = yk__read_u8(r);
    const unsigned char *shared = yk__read_bytes(r, shared_length);
    call->chain_count = (int)yk__read_u8(r);
    if (r->bad || !name || length >= YK__RPC_NAME || !shared || shared_length >= YK__RPC_NAME ||
        call->chain_count > YK__RPC_MOST_CHAIN || call->kind < YK__RPC_FUNCTION || call->kind > YK__RPC_SAVE ||
        (call->kind == YK__RPC_FUNCTION) != (*object == 0))
        return false;
    call->deadline = yk__now() + milliseconds / 1e3;
    yk__escape((const char *)name, length, call->name, sizeof(call->name));
    yk__escape((const char *)shared, shared_length, call->shared, sizeof(call->shared));
    call->chain = call->chain_count ? calloc((size_t)call->chain_count, sizeof(*call->chain)) : NULL;
    for (int i = 0; i < call->chain_count; i++) {
        uint64_t id = yk__read_u64(r);
        unsigned size = yk__read_u8(r);
        const unsigned char *label = yk__read_bytes(r, size);
        if (!call->chain || r->bad || !label)
            return false;
        call->chain[i].object = id;
        yk__escape((const char *)label, size, call->chain[i].label, sizeof(call->chain[i].label));
    }
    return !r->bad;
}

yk_status yk__rpc_cycle_check(const yk_call *call)
{
    for (int i = 0; i < call->chain_count; i++) {
        if (call->chain[i].object != yk__rpc_object_number(call->object))
            continue;
        char cycle[600];
        size_t at = 0;
        for (int j = i; j < call->chain_count && at < sizeof(cycle) - 150; j++)
            at += (size_t)snprintf(cycle + at, sizeof(cycle) - at, "%.120s waits for ", call->chain[j].label);
        return yk__fail(YK_ERR_STATE, "the calls would wait for one another for ever: %s%s.%s.%s", cycle, yk__rpc.name,
                        call->object->name, call->name);
    }
    return YK_OK;
}

/* The living object of that name, or NULL. */
static yk__rpc_object *object_shared(const char *name)
{
    for (yk__rpc_object *o = yk__rpc.objects; o && name[0]; o = o->next)
        if ((o->references > 0 || o->back) && strcmp(o->shared, name) == 0)
            return o;
    return NULL;
}

static yk__rpc_object *object_new(const yk_call *call, const yk_rpc_class *cls)
{
    yk__rpc_object *o = yk__calloc(1, sizeof(*o));
    if (!o)
        return NULL;
    o->serial = ++yk__rpc.objects_made;
    o->cls = cls;
    snprintf(o->name, sizeof(o->name), "%s", call->name);
    snprintf(o->shared, sizeof(o->shared), "%s", call->shared);
    o->next = yk__rpc.objects;
    yk__rpc.objects = o;
    return o;
}

/* The reference of a worker under a number, which nobody has yet, to an object. */
static yk_status held_add(uint32_t holder, uint64_t id, yk__rpc_object *o)
{
    yk__rpc_held **slot = held_slot(id);
    yk__rpc_held *held = *slot ? NULL : yk__calloc(1, sizeof(*held));
    if (*slot)
        return yk__fail(YK_ERR_STATE, "there is a reference of this number already");
    if (!held)
        return YK_ERR_MEMORY;
    *held = (yk__rpc_held){.id = id, .holder = holder, .object = o};
    o->references++;
    *slot = held;
    return YK_OK;
}

yk_status yk__rpc_serve_add(uint32_t holder, uint64_t parent, uint64_t id)
{
    const yk__rpc_held *from = *held_slot(parent);
    if (!from)
        return yk__fail(YK_ERR_NOT_FOUND,
                        "the reference cannot be used: the worker that passed it on had ended when it came here");
    return held_add(holder, id, from->object);
}

yk__rpc_object *yk__rpc_serve_object(uint64_t id)
{
    const yk__rpc_held *held = *held_slot(id);
    if (!held)
        yk__fail(YK_ERR_NOT_FOUND, "there is no such object");
    return held ? held->object : NULL;
}

yk_status yk__rpc_serve_value(uint64_t id, yk_value *value)
{
    static const yk_call call = {.name = "value"};
    yk__rpc_object *o = object_new(&call, NULL);
    yk_status status = o ? held_add(yk__rpc.index, id, o) : YK_ERR_MEMORY;
    if (status && o) {
        object_unlist(o);
        free(o);
    } else if (o) {
        o->value = yk_value_retain(value);
        o->made = true;
    }
    return status;
}

/* A reference of the caller under this number, to a new object or to the one that is shared. */
static yk_status call_resolve_create(yk_call *call, uint64_t id)
{
    const yk_rpc_class *cls = yk__rpc_class_of(call->name);
    char suggestion[400];
    call->fn = cls ? cls->create : yk__rpc_function(call->name);
    if (!call->fn)
        return yk__fail(YK_ERR_NOT_FOUND, "there is no class or function of this name%s",
                        yk__rpc_suggest(NULL, call->name, suggestion));
    yk__rpc_object *there = object_shared(call->shared);
    if (there && strcmp(there->name, call->name) != 0)
        return yk__fail(YK_ERR_ARGUMENT, "'%s' is an object of '%s' already", call->shared, there->name);
    bool kept = false;
    if (!there && yk__keep_wanted(cls, call->shared, &kept))
        return yk__error_code();
    bool saved = kept && yk__keep_is_there(call->shared);
    if (!there && !saved && call->kind == YK__RPC_BACK)
        return yk__fail(YK_ERR_NOT_FOUND,
                        "the object '%s' ended with the worker that was here before, which left no "
                        "snapshot of it",
                        call->shared);
    if (saved)
        call->fn = yk__keep_load;
    yk__rpc_object *o = there ? there : object_new(call, cls);
    if (o && !there) {
        o->kept = kept;
        o->back = saved;
    }
    yk_status status = o ? held_add(call->caller, id, o) : YK_ERR_MEMORY;
    if (status && o && !there) {
        object_unlist(o);
        free(o);
    }
    if (status)
        return status;
    call->kind = there ? YK__RPC_ATTACH : YK__RPC_CREATE;
    call->object = o;
    return YK_OK;
}

/* Nothing is made for a CREATE that is refused; whoever uses the reference reads why. */
static void create_refuse(const yk_call *call, uint64_t id)
{
    YK__QUESTION;
    yk__rpc_object *o = object_new(call, NULL);
    if (!o)
        return;
    o->error = call->refusal;
    o->refused = true;
    o->shared[0] = 0;
    if (held_add(call->caller, id, o)) {
        object_unlist(o);
        free(o);
    }
}

static yk_status call_resolve(yk_call *call, uint64_t id)
{
    char suggestion[400];
    if (call->kind == YK__RPC_CREATE || call->kind == YK__RPC_BACK)
        return call_resolve_create(call, id);
    if (call->kind == YK__RPC_ADD) {
        yk__reader r = {call->bytes + call->begin, call->bytes + call->begin + call->size, false};
        uint64_t parent = yk__read_u64(&r);
        return yk__rpc_serve_add(call->caller, parent, id);
    }
    if (call->kind == YK__RPC_FUNCTION) {
        call->fn = yk__rpc_function(call->name);
        if (call->fn)
            return YK_OK;
        if (yk__rpc_class_of(call->name))
            return yk__fail(YK_ERR_ARGUMENT, "it is a class; rpc_remote makes an object of it");
        return yk__fail(YK_ERR_NOT_FOUND, "there is no function of this name%s",
                        yk__rpc_suggest(NULL, call->name, suggestion));
    }
    yk__rpc_held *held = *held_slot(id);
    if (!held || held->holder != call->caller)
        return yk__fail(YK_ERR_NOT_FOUND, "there is no such object, or it could not be made");
    yk__rpc_object *o = call->object = held->object;
    if (o->refused) {
        yk__error_put(&o->error);
        yk__error_prefix("the object could not be made");
        return yk__error_code();
    }
    if (call->kind == YK__RPC_METHOD) {
        call->fn = o->cls ? yk__rpc_method_of(o->cls, call->name) : NULL;
        if (!call->fn && !o->cls)
            return yk__fail(YK_ERR_ARGUMENT, "the reference is to a result of '%s', which has no methods", o->name);
        if (!call->fn)
            return yk__fail(YK_ERR_NOT_FOUND, "the class '%s' has no method of this name%s", o->name,
                            yk__rpc_suggest(o->cls, call->name, suggestion));
    }
    bool waits = call->sync && (!o->cls || !o->cls->concurrent);
    return waits ? yk__rpc_cycle_check(call) : YK_OK;
}

bool yk__rpc_serve(yk__rpc_link *link, yk_future *local, unsigned char *data, size_t size, bool lent)
{
    yk_call *call = calloc(1, sizeof(*call));
    uint64_t id = 0;
    yk__reader r = {data, data + size, false};
    if (call)
        call->references = 1;
    if (!call || !call_parse(call, &r, &id) || (lent && !(call->loan = yk__loan_new(link, call->number, &r)))) {
        if (call)
            call_release(call);
        free(data);
        return false;
    }
    call->caller = link ? link->index : yk__rpc.index;
    snprintf(call->caller_name, sizeof(call->caller_name), "%s", link ? link->name : yk__rpc.name);
    bool own = call->kind == YK__RPC_CREATE || call->kind == YK__RPC_ADD ||
               call->kind == YK__RPC_BACK; /* its number is one of the caller's */
    yk__rpc_head_read(&r, link, &call->head);
    if (r.bad || (own && id >> 40 != call->caller)) {
        call_release(call);
        free(data);
        return false;
    }
    call->size = (size_t)(r.end - r.at);
    call->begin = (size_t)(r.at - data);
    call->bytes = data;
    if (link) {
        link->references++;
        call->link = link;
        yk_call **at = link->last_call ? &link->last_call->next_of_link : &link->calls;
        while (*at)
            at = &(*at)->next_of_link;
        *at = link->last_call = call;
        link->call_count++;
        link->call_bytes += call->size;
    } else {
        call->local = yk_future_retain(local);
        local->call = call;
    }
    YK__OWN_RECORD;
    if (call_resolve(call, id)) {
        call->refusal = *yk_last_error();
        yk_clear_error();
        call->object = NULL;
        if (call->kind == YK__RPC_CREATE)
            create_refuse(call, id);
    }
    call_enqueue(call);
    return true;
}

/* ---- inside a call ----------------------------------------------------------------------------------------------- */

int64_t yk_call_count(const yk_call *call)
{
    return call ? yk_value_count(call->args) : 0;
}

yk_value *yk_call_argument(yk_call *call, int64_t i)
{
    if (!call) {
        yk__fail(YK_ERR_ARGUMENT, "call_argument: the call is NULL");
        return NULL;
    }
    int64_t count = yk_value_count(call->args);
    if (i < 0 || i >= count) {
        yk__fail(YK_ERR_ARGUMENT, "argument %lld is not there: %lld %s given", (long long)i, (long long)count,
                 count == 1 ? "was" : "were");
        return NULL;
    }
    return yk_value_at(call->args, i);
}

/* The argument, which has to be of that kind. */
static yk_value *argument_of_kind(yk_call *call, int64_t i, yk_value_kind kind)
{
    yk_value *value = yk_call_argument(call, i);
    yk_value_kind have = yk_value_kind_of(value);
    if (!value || have == kind || (kind == YK_VALUE_REAL && have == YK_VALUE_INT))
        return value;
    yk__fail(YK_ERR_ARGUMENT, "argument %lld is of kind %s, and %s is expected", (long long)i, yk_value_kind_name(have),
             yk_value_kind_name(kind));
    return NULL;
}

yk_tensor *yk_call_tensor(yk_call *call, int64_t i)
{
    yk_value *value = argument_of_kind(call, i, YK_VALUE_TENSOR);
    return value ? yk_value_as_tensor(value) : NULL;
}

int64_t yk_call_int(yk_call *call, int64_t i)
{
    yk_value *value = argument_of_kind(call, i, YK_VALUE_INT);
    return value ? yk_value_as_int(value) : 0;
}

yk_ref *yk_call_ref(yk_call *call, int64_t i)
{
    yk_value *value = argument_of_kind(call, i, YK_VALUE_REFERENCE);
    return value ? yk_value_as_ref(value) : NULL;
}

double yk_call_real(yk_call *call, int64_t i)
{
    yk_value *value = argument_of_kind(call, i, YK_VALUE_REAL);
    return value ? yk_value_as_real(value) : NAN;
}

const char *yk_call_string(yk_call *call, int64_t i)
{
    yk_value *value = argument_of_kind(call, i, YK_VALUE_STRING);
    return value ? yk_value_as_string(value) : NULL;
}

const char *yk_call_caller(const yk_call *call)
{
    return call ? call->caller_name : NULL;
}

void *yk_call_object(const yk_call *call)
{
    return call && call->object && call->kind == YK__RPC_METHOD ? call->object->data : NULL;
}

void yk_call_set_object(yk_call *call, void *object)
{
    if (!call || call->kind != YK__RPC_CREATE || !call->object->cls)
        yk__fail(YK_ERR_STATE, "call_set_object: this call makes no object of a class");
    else
        call->new_object = object;
}

bool yk_call_cancelled(const yk_call *call)
{
    if (!call)
        return false;
    yk__rpc_lock();
    bool cancelled = call->cancelled || call->deadline <= yk__now() || yk__rpc.stopping;
    pthread_mutex_unlock(&yk__rpc.lock);
    return cancelled;
}

yk_status yk_call_return(yk_call *call, yk_value *result)
{
    YK__LIVE(result);
    if (!call || !result)
        return yk__is_there("call_return", call ? "result" : "call", NULL) ? YK_OK : yk__error_code();
    yk_value_retain(result);
    yk_value_release(call->result);
    call->result = result;
    return YK_OK;
}

void yk_call_later(yk_call *call)
{
    if (!call || call->later)
        return;
    yk__rpc_lock();
    call->references++;
    call->later = true;
    pthread_mutex_unlock(&yk__rpc.lock);
}

void yk_call_answer(yk_call *call, yk_value *result)
{
    YK__LIVE(result);
    if (!call)
        return;
    if (result)
        yk_clear_error();
    else if (!yk_last_error())
        yk__fail(YK_ERR_CALLBACK, "it was answered without a result");
    call_answer(call, result, true);
}
