/*
 * rpc_call.c - calling functions and objects of other workers. Layer: rpc.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "rpc/dist_autograd.h"
#include "rpc/rpc_call.h"
#include "rpc/rpc_devices.h"
#include "rpc/value_wire.h"
#include "value/value.h"

yk_value *yk_args_counted(int count, ...)
{
    yk_value *list = yk_value_list();
    va_list items;
    va_start(items, count);
    for (int i = 0; i < count; i++) {
        yk_value *item = va_arg(items, yk_value *);
        if (list && yk_value_append(list, item))
            list = NULL; /* the scope has it; the error is on record */
    }
    va_end(items);
    return list;
}

/* The number of seconds for this call: what is asked for, and no more than a call that runs here has left. */
static yk_status call_deadline(const yk__rpc_target *t, const yk_rpc_options *options, double *deadline)
{
    yk__rpc_lock();
    double seconds = yk__rpc.timeout;
    pthread_mutex_unlock(&yk__rpc.lock);
    if (yk__check_timeout(t->what, "timeout", options->timeout, seconds, &seconds))
        return yk__error_code();
    *deadline = yk__now() + seconds;
    const yk_call *outer = yk__rpc_current();
    if (outer && outer->deadline < *deadline)
        *deadline = outer->deadline;
    return YK_OK;
}

/* A CALL's payload; the number is put in when it has one. */
static yk_status call_encode(const yk__rpc_target *t, yk_value *args, double deadline, yk__wire *out,
                             yk__rpc_carried *carried)
{
    const yk_call *outer = yk__rpc_current();
    double left = deadline - yk__now();
    bool waits = outer && outer->object && !(outer->object->cls && outer->object->cls->concurrent);
    int chain = outer ? outer->chain_count : 0;
    if (left <= 0)
        return yk__fail(YK_ERR_TIMEOUT, "%s: '%s' has not run: the time of the call that makes it is over", t->what,
                        t->name);
    if (chain + waits > YK__RPC_MOST_CHAIN)
        return yk__fail(YK_ERR_STATE, "%s: '%s' has not run: %d methods wait for one another already", t->what, t->name,
                        chain);
    yk__wire_put_u64(out, 0);
    yk__wire_put_u8(out, t->kind);
    yk__wire_put_u64(out, t->object);
    yk__wire_put_u32(out, left * 1e3 < UINT32_MAX ? (uint32_t)ceil(left * 1e3) : UINT32_MAX);
    yk__wire_put_u8(out, t->sync);
    yk__wire_put_text8(out, t->name);
    yk__wire_put_text8(out, t->shared ? t->shared : "");
    yk__wire_put_u8(out, (unsigned)(chain + waits));
    for (int i = 0; i < chain; i++) {
        yk__wire_put_u64(out, outer->chain[i].object);
        yk__wire_put_text8(out, outer->chain[i].label);
    }
    if (waits) {
        char label[YK__RPC_NAME];
        snprintf(label, sizeof(label), "%.60s.%.30s.%.30s", yk__rpc.name, outer->object->name, outer->name);
        yk__wire_put_u64(out, yk__rpc_object_number(outer->object));
        yk__wire_put_text8(out, label);
    }
    yk__rpc_head_put(out, carried);
    if (t->kind == YK__RPC_ADD) {
        yk__wire_put_u64(out, t->parent);
        return out->failed ? yk__fail_memory(out->size) : YK_OK;
    }
    yk_value *none = args ? NULL : yk__value_new(YK_VALUE_LIST);
    yk_status status = args || none ? yk__value_encode(args ? args : none, out, carried) : yk__error_code();
    yk_value_release(none);
    if (status)
        yk__error_prefix("%s: the arguments of '%s'", t->what, t->name);
    return status;
}

static void call_number_put(unsigned char *data, uint64_t number)
{
    for (int i = 0; i < 8; i++)
        data[i] = (unsigned char)(number >> (8 * i));
}

/* With the lock: waits until the worker has answered enough for one more call of `size` bytes. */
static yk_status credit_wait(const yk__rpc_target *t, yk__rpc_link *link, size_t size, double deadline)
{
    link->references++;
    bool blocked = yk__rpc_blocked_begin();
    yk_status status = YK_OK;
    while (link->fd >= 0 && link->call_count > 0 &&
           (link->call_count >= YK__RPC_MOST_CALLS ||
            (size > YK__RPC_SMALL && link->call_bytes + size > yk__rpc.most_bytes)) &&
           !status)
        if (!yk__rpc_wait_for_answers(&yk__rpc.changed, deadline))
            status = yk__fail(YK_ERR_TIMEOUT,
                              "%s: worker '%s' has %d calls of this process to answer, and did not answer one in time; "
                              "'%s' has not run",
                              t->what, link->name, link->call_count, t->name);
    yk__rpc_blocked_end(blocked);
    if (!status && link->fd < 0)
        status = yk__fail(YK_ERR_CONNECTION, "%s: worker '%s' (host %s, process %d) is gone: %s; '%s' has not run",
                          t->what, link->name, link->host, link->pid, link->why, t->name);
    yk__rpc_link_release(link);
    return status;
}

/* The call is on its way, and is counted until yk__rpc_future_finish. Unless its caller waits for it at once (`sync`),
 * the I/O thread sees to it that it ends in time. */
static void future_sent(yk_future *f, bool sync)
{
    if (!sync && !yk__rpc.ticking) {
        yk__rpc.ticking = true;
        eventfd_write(yk__rpc.wake, 1);
    }
    f->progress = YK__RPC_SENT;
    f->sent = yk__now();
    yk__progress_count(yk__rpc.counters.calls, 1);
    yk__progress_count(yk__rpc.counters.outstanding, 1);
}

/* With the lock: sends the payload to this worker and remembers the future. Takes over `out`. */
static yk_status call_send(const yk__rpc_target *t, const yk__rpc_member *m, yk_future *f, yk__wire *out,
                           yk__rpc_carried *carried, yk__lender *lender, double deadline)
{
    if (m->index == yk__rpc.index) {
        f->next = yk__rpc.futures;
        yk__rpc.futures = yk_future_retain(f);
        future_sent(f, t->sync);
        yk_future_retain(f);
        yk__rpc_pin(carried, NULL, out->data);
        bool right = yk__rpc_serve(NULL, f, out->data, out->size, false);
        *out = (yk__wire){0};
        if (!right)
            yk__rpc_future_fail(f, YK_ERR_MEMORY, "%s: no memory for the call", f->what);
        yk_future_release(f);
        return YK_OK;
    }
    yk__rpc_link *link = yk__rpc_link_to(t->what, m, deadline);
    size_t size = out->size + lender->copied, lent = lender->count;
    yk_status status = link ? YK_OK : yk__error_code();
    if (!status && yk__rpc_is_too_large(out->size, link->takes))
        status = yk__fail(YK_ERR_ARGUMENT,
                          "%s: the arguments of '%s' take %zu bytes, and worker '%s' takes messages of up to %zu "
                          "(max_message of its rpc_init); it has not run",
                          t->what, t->name, out->size, m->name, link->takes);
    status = status ? status : credit_wait(t, link, size, deadline);
    if (!status && lent && !yk__rpc_link_lends(link)) /* another connection than that which it was encoded for */
        status = yk__fail(YK_ERR_CONNECTION, "%s: worker '%s' (host %s, process %d) was lost; '%s' has not run",
                          t->what, m->name, m->host, m->pid, t->name);
    if (status)
        return status;
    f->number = ++link->numbers;
    f->size = size;
    f->link = link;
    future_sent(f, t->sync);
    link->references++;
    yk_future **at = link->last_future ? &link->last_future->next : &link->futures;
    while (*at)
        at = &(*at)->next;
    *at = link->last_future = yk_future_retain(f);
    link->call_count++;
    link->call_bytes += size;
    call_number_put(out->data, f->number);
    yk__rpc_pin(carried, link, out->data);
    f->pinned = (yk__rpc_pins){.first = carried->first_pin, .count = carried->pin_count};
    link->references++;
    yk__rpc_lease_add(link, f->number, lender);
    yk__rpc_link_send(link, YK__RPC_CALL | (lent ? YK__RPC_LENT : 0u), t->object, out->data,
                      out->size); /* if the connection ends, the future
                                   * fails */
    yk__rpc_link_release(link);
    *out = (yk__wire){0};
    return YK_OK;
}

/* "rpc_sync: worker 'ps0' (host h, process 12), 'add'". Every call has one, for which snprintf takes 0.7 us and this
 * 0.2. */
static void call_describe(const yk__rpc_target *t, const yk__rpc_member *m, bool method, char *text, size_t room)
{
    char pid[12] = "", *digit = pid + sizeof(pid) - 1;
    for (int left = m->pid; left > 0; left /= 10)
        *--digit = (char)('0' + left % 10);
    const char *const pieces[] = {t->what,
                                  ": worker '",
                                  m->name,
                                  "' (host ",
                                  m->host,
                                  ", process ",
                                  digit,
                                  "), '",
                                  method ? t->ref->name : "",
                                  method ? "." : "",
                                  t->name,
                                  "'"};
    size_t at = 0;
    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        size_t size = strnlen(pieces[i], room - 1 - at);
        memcpy(text + at, pieces[i], size);
        at += size;
    }
    text[at] = 0;
}

static yk_status call_where(const yk__rpc_target *t, yk__rpc_member *m)
{
    if (!t->ref)
        return yk__rpc_member_find(t->what, t->worker, 0, m);
    yk__rpc_lock();
    *m = t->owner.index ? t->owner : t->ref->owner;
    bool stale = t->ref->maker != yk__rpc.index;
    for (int i = 0; i < yk__rpc.member_count; i++)
        if (yk__rpc.members[i].index == m->index)
            m->gone = yk__rpc.members[i].gone;
    pthread_mutex_unlock(&yk__rpc.lock);
    if (stale)
        return yk__fail(YK_ERR_STATE, "%s: the reference to '%s' is of before rpc_shutdown", t->what, t->ref->name);
    if (m->gone)
        return yk__fail(YK_ERR_CONNECTION,
                        "%s: the object '%s' ended with its worker '%s' (host %s, process %d); '%s' has not run",
                        t->what, t->ref->name, m->name, m->host, m->pid, t->name);
    return YK_OK;
}

/* Connects to a worker of this host where no connection is: whether tensors can be lent to it is known before they are
 * encoded. */
static yk_status call_look(const yk__rpc_target *t, const yk__rpc_member *m, double deadline, bool *lends)
{
    if (m->index == yk__rpc.index || strcmp(m->host, yk__rpc.identity.host) != 0)
        return YK_OK;
    yk_status status = yk__rpc_enter(t->what);
    if (status)
        return status;
    const yk__rpc_link *link = yk__rpc_link_to(t->what, m, deadline);
    *lends = yk__rpc_link_lends(link);
    status = link ? YK_OK : yk__error_code();
    yk__rpc_leave();
    return status;
}

/* A call of the library's own, which takes tensors of all devices. */
static bool call_is_own(const yk__rpc_target *t)
{
    const char *object = t->ref ? t->ref->name : "";
    return t->without_context || strncmp(t->name, "yoke.", 5) == 0 || strncmp(object, "yoke.", 5) == 0;
}

yk_future *yk__rpc_call_begin(const yk__rpc_target *t, yk_value *args, const yk_rpc_options *options,
                              yk__rpc_member *where)
{
    yk_value_kind kind = yk_value_kind_of(args);
    if (args && kind != YK_VALUE_LIST && kind != YK_VALUE_TUPLE) {
        yk__fail(YK_ERR_ARGUMENT, "%s: the arguments of '%s' are of kind %s; yk_args(...) makes a list of them",
                 t->what, t->name, yk_value_kind_name(kind));
        return NULL;
    }
    double deadline = 0;
    yk_rpc_options o;
    yk__rpc_member m;
    yk__wire out = {0};
    yk__rpc_carried carried = {.context = t->without_context || !yk_grad_enabled() ? NULL : yk__dist_current()};
    yk__lender lender = {0};
    yk__rpc_devices devices;
    yk_status status = yk__rpc_enter(t->what);
    if (!status)
        yk__rpc_leave();
    status = status ? status : YK__OPTIONS_TAKE(t->what, yk_rpc_options, options, &o);
    status = status ? status : call_deadline(t, &o, &deadline);
    carried.deadline = deadline;
    status = status ? status : call_where(t, &m);
    if (!status && carried.context)
        status = yk__dist_contact(carried.context, t->what, &m);
    bool lends = false;
    status = status ? status : call_look(t, &m, deadline, &lends);
    if (!status)
        carried.devices = yk__devices_of_callee(&devices, &m, call_is_own(t));
    yk__lender_use(lends ? &lender : NULL);
    status = status ? status : call_encode(t, args, deadline, &out, &carried);
    yk__lender_use(NULL);
    yk__lender_put(&lender, &out);
    if (!status && out.failed)
        status = yk__fail_memory(out.size);
    status = status ? status : yk__dist_sent(&carried);
    yk_future *f = status ? NULL : yk__rpc_future_new();
    if (f) {
        f->deadline = deadline;
        f->context = yk__dist_hold(carried.context);
        f->peer = m.index;
        bool method = t->kind == YK__RPC_METHOD || t->kind == YK__RPC_FETCH;
        call_describe(t, &m, method, f->what, sizeof(f->what));
        status = yk__rpc_enter(t->what);
        if (!status) {
            status = call_send(t, &m, f, &out, &carried, &lender, deadline);
            yk__rpc_leave();
        }
    }
    yk__lender_clear(&lender, false);
    yk__wire_clear(&out);
    yk__rpc_carried_clear(&carried);
    if (where)
        *where = m;
    if (status && f) {
        yk_future_release(f);
        return NULL;
    }
    return f;
}

bool yk__rpc_call_is_there(const char *what, const char *kind, const char *name, yk_value *args)
{
    if (!args && yk__error_is_fresh())
        return false; /* the arguments could not be made, as the record says */
    return !yk__rpc_name_check(what, kind, name) && yk__scope_check(what);
}

yk_value *yk__rpc_call_wait(yk_future *f)
{
    yk_value *value = f ? yk_future_wait(f, YK_NOT_GIVEN) : NULL;
    yk_future_release(f);
    return value;
}

yk_value *yk_rpc_sync(const char *worker, const char *function, yk_value *args, const yk_rpc_options *options)
{
    YK__LIVE(args);
    yk__rpc_target t = {.what = "rpc_sync", .worker = worker, .name = function, .kind = YK__RPC_FUNCTION, .sync = true};
    if (yk__rpc_name_check(t.what, "worker", worker) || !yk__rpc_call_is_there(t.what, "function", function, args))
        return NULL;
    return yk__rpc_call_wait(yk__rpc_call_begin(&t, args, options, NULL));
}

yk_future *yk_rpc_async(const char *worker, const char *function, yk_value *args, const yk_rpc_options *options)
{
    YK__LIVE(args);
    yk__rpc_target t = {.what = "rpc_async", .worker = worker, .name = function, .kind = YK__RPC_FUNCTION};
    if (yk__rpc_name_check(t.what, "worker", worker) || !yk__rpc_call_is_there(t.what, "function", function, args))
        return NULL;
    return yk__scope_own(yk__rpc_call_begin(&t, args, options, NULL));
}
