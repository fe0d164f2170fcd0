/*
 * rpc_ref.c - references to objects of workers: making them, calling by them, passing them on. Layer: rpc.
 *
 * Invariants: a reference is dropped at its owner once, after the calls that were made by it. One that a message
 * carries is pinned from the moment that the message is on its way until its receiver has said TAKEN, or the connection
 * has ended: Note [Passing references].
 */
#include <stdlib.h>
#include <string.h>

#include "rpc/dist_autograd.h"
#include "rpc/rpc_call.h"
#include "rpc/value_wire.h"
#include "value/value.h"

/* ---- making and letting go --------------------------------------------------------------------------------------- */

static void ref_drop(yk_ref *ref)
{
    bool ours = yk__rpc.running && ref->maker == yk__rpc.index;
    if (ours && ref->owner.index == yk__rpc.index) {
        yk__rpc_serve_drop(yk__rpc.index, ref->id);
    } else if (ours) {
        yk__rpc_link *link = yk__rpc.links;
        while (link && (link->accepted || link->index != ref->owner.index))
            link = link->next;
        yk__wire out = {0};
        yk__wire_put_u64(&out, ref->id);
        if (link && !out.failed)
            yk__rpc_link_send(link, YK__RPC_DROP, ref->id, out.data, out.size);
        else
            yk__wire_clear(&out);
    }
}

static void ref_destroy(void *object)
{
    yk_ref *ref = object;
    bool locked = yk__rpc_lock_if_free();
    ref_drop(ref);
    if (locked)
        pthread_mutex_unlock(&yk__rpc.lock);
    yk_future_release(ref->created);
    yk__object_free(ref);
}

static const yk__type ref_type = {"rpc reference", ref_destroy};

/* A reference of this worker's under a number of its own, without an owner yet, or NULL and an error. */
static yk_ref *ref_new(const char *what, const char *name)
{
    yk_ref *ref = yk__object_new(&ref_type, sizeof(*ref));
    if (!ref)
        return NULL;
    snprintf(ref->name, sizeof(ref->name), "%s", name);
    if (yk__rpc_enter(what)) {
        yk_ref_release(ref);
        return NULL;
    }
    ref->id = (uint64_t)yk__rpc.index << 40 | ++yk__rpc.references_made;
    yk__rpc_leave();
    return ref; /* its maker is 0: there is nothing to drop */
}

yk_ref *yk_rpc_remote(const char *worker, const char *name, yk_value *args, const yk_rpc_options *options)
{
    YK__LIVE(args);
    yk_rpc_options o;
    yk__rpc_target t = {.what = "rpc_remote", .worker = worker, .name = name, .kind = YK__RPC_CREATE};
    if (YK__OPTIONS_TAKE(t.what, yk_rpc_options, options, &o))
        return NULL;
    t.shared = o.shared_name;
    if (t.shared && yk__rpc_name_check(t.what, "shared object", t.shared))
        return NULL;
    if (yk__rpc_name_check(t.what, "worker", worker) || !yk__rpc_call_is_there(t.what, "class or function", name, args))
        return NULL;
    yk_ref *ref = ref_new(t.what, name);
    if (!ref)
        return NULL;
    t.object = ref->id;
    snprintf(ref->wished, sizeof(ref->wished), "%s", t.shared ? t.shared : "");
    ref->created = yk__rpc_call_begin(&t, args, options, &ref->owner);
    if (!ref->created) {
        yk_ref_release(ref);
        return NULL;
    }
    ref->maker = (uint32_t)(ref->id >> 40);
    return yk__scope_own(ref);
}

yk_ref *yk__rpc_remote_at(const yk__rpc_member *member, const char *what, const char *cls, yk_value *args,
                          const char *shared)
{
    yk_ref *ref = ref_new(what, cls);
    if (!ref)
        return NULL;
    ref->owner = *member;
    ref->maker = (uint32_t)(ref->id >> 40);
    yk__rpc_target t = {.what = what,
                        .name = cls,
                        .shared = shared,
                        .kind = YK__RPC_CREATE,
                        .object = ref->id,
                        .ref = ref,
                        .without_context = true};
    ref->created = yk__rpc_call_begin(&t, args, NULL, NULL);
    if (!ref->created) {
        ref->maker = 0; /* there is nothing to drop */
        yk_ref_release(ref);
        return NULL;
    }
    return ref;
}

yk_ref *yk_ref_create(yk_value *value)
{
    YK__LIVE(value);
    if (!yk__is_there("ref_create", "value", value) || !yk__scope_check("ref_create"))
        return NULL;
    yk_ref *ref = ref_new("ref_create", "value");
    if (!ref)
        return NULL;
    yk_status status = yk__rpc_enter("ref_create");
    if (!status) {
        status = yk__rpc_serve_value(ref->id, value);
        ref->owner = (yk__rpc_member){.index = yk__rpc.index, .pid = yk__rpc.pid};
        snprintf(ref->owner.name, sizeof(ref->owner.name), "%s", yk__rpc.name);
        snprintf(ref->owner.host, sizeof(ref->owner.host), "%s", yk__rpc.identity.host);
        ref->maker = status ? 0 : yk__rpc.index;
        yk__rpc_leave();
    }
    if (status) {
        yk_ref_release(ref);
        return NULL;
    }
    return yk__scope_own(ref);
}

yk_ref *yk_ref_retain(yk_ref *ref)
{
    return yk_object_retain(ref);
}

void yk_ref_release(yk_ref *ref)
{
    yk_object_release(ref);
}

/* ---- calling by a reference -------------------------------------------------------------------------------------- */

/* Fails where the reference was never registered with its owner. */
static yk_status ref_check_registered(const char *what, const yk_ref *ref)
{
    if (!ref->broken.code)
        return YK_OK;
    yk__error_put(&ref->broken);
    yk__error_prefix("%s: '%s' of worker '%s' (host %s, process %d)", what, ref->name, ref->owner.name, ref->owner.host,
                     ref->owner.pid);
    return yk__error_code();
}

/* With the lock: true if its object has snapshots. The owner says it when it has made the object. */
static bool ref_is_kept(yk_ref *ref)
{
    const yk_future *f = ref->created;
    if (!ref->shared[0] && ref->wished[0] && f && f->progress == YK__RPC_ANSWERED && !f->error.code && f->kept)
        memcpy(ref->shared, ref->wished, sizeof(ref->shared));
    return ref->shared[0] != 0;
}

static bool owner_is_gone(const yk_ref *ref)
{
    for (int i = 0; i < yk__rpc.member_count; i++)
        if (yk__rpc.members[i].index == ref->owner.index)
            return yk__rpc.members[i].gone;
    return false;
}

/*
 * Has the reference refer to a worker that has joined under the name of its owner since that has ended, under a new
 * number. An error where there is none, or it has not got the object; nothing where the object has no snapshots.
 */
static yk_status ref_come_back(const char *what, yk_ref *ref, const yk_rpc_options *options)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    if (yk__rpc_enter(what))
        return yk__error_code();
    bool lost = ref_is_kept(ref) && owner_is_gone(ref) && ref->maker == yk__rpc.index;
    yk__rpc_member before = ref->owner, now;
    yk__rpc_leave();
    if (!lost)
        return YK_OK;
    yk_status status = yk__rpc_member_find(what, before.name, 0, &now);
    if (status)
        return status;
    if (now.index == before.index || now.gone)
        return yk__fail(YK_ERR_CONNECTION,
                        "%s: worker '%s' (host %s, process %d) has ended, and has not come back yet with its object "
                        "'%s'; the call has not run",
                        what, before.name, before.host, before.pid, ref->shared);
    pthread_mutex_lock(&one_at_a_time);
    yk__rpc_lock();
    bool done = ref->owner.index == now.index;
    uint64_t id = (uint64_t)yk__rpc.index << 40 | ++yk__rpc.references_made;
    pthread_mutex_unlock(&yk__rpc.lock);
    if (!done) {
        yk__rpc_target t = {.what = what,
                            .name = ref->name,
                            .shared = ref->shared,
                            .kind = YK__RPC_BACK,
                            .object = id,
                            .ref = ref,
                            .owner = now,
                            .without_context = true};
        yk_scope scope = yk_scope_begin();
        status = yk__rpc_call_wait(yk__rpc_call_begin(&t, NULL, options, NULL)) ? YK_OK : yk__error_code();
        if (status)
            yk__error_prefix("the call has not run");
        yk_scope_end(scope);
        yk__rpc_lock();
        if (!status) { /* the name stays as it is: it may be read at this moment */
            ref->owner.index = now.index;
            ref->owner.pid = now.pid;
            ref->owner.address = now.address;
            ref->owner.gone = false;
            memcpy(ref->owner.host, now.host, sizeof(ref->owner.host));
            ref->id = id;
        }
        pthread_mutex_unlock(&yk__rpc.lock);
    }
    pthread_mutex_unlock(&one_at_a_time);
    return status;
}

/* A call by a reference. NULL and an error. */
static yk_future *ref_call_begin(const char *what, yk_ref *ref, const char *method, yk_value *args,
                                 const yk_rpc_options *options, yk__rpc_kind kind)
{
    if (!yk__is_there(what, "reference", ref) || !yk__rpc_call_is_there(what, "method", method, args) ||
        ref_check_registered(what, ref) || ref_come_back(what, ref, options))
        return NULL;
    yk__rpc_target t = {.what = what, .name = method, .kind = kind, .ref = ref};
    yk__rpc_lock();
    t.object = ref->id;
    t.owner = ref->owner;
    pthread_mutex_unlock(&yk__rpc.lock);
    t.sync = strcmp(what, "ref_call_async") != 0;
    return yk__rpc_call_begin(&t, args, options, NULL);
}

yk_value *yk_ref_call(yk_ref *ref, const char *method, yk_value *args, const yk_rpc_options *options)
{
    YK__LIVE(ref);
    YK__LIVE(args);
    return yk__rpc_call_wait(ref_call_begin("ref_call", ref, method, args, options, YK__RPC_METHOD));
}

yk_future *yk_ref_call_async(yk_ref *ref, const char *method, yk_value *args, const yk_rpc_options *options)
{
    YK__LIVE(ref);
    YK__LIVE(args);
    return yk__scope_own(ref_call_begin("ref_call_async", ref, method, args, options, YK__RPC_METHOD));
}

yk_value *yk_ref_to_here(yk_ref *ref, const yk_rpc_options *options)
{
    YK__LIVE(ref);
    return yk__rpc_call_wait(ref_call_begin("ref_to_here", ref, "to_here", NULL, options, YK__RPC_FETCH));
}

yk_status yk_ref_save(yk_ref *ref, const yk_rpc_options *options)
{
    YK__LIVE(ref);
    yk_scope scope = yk_scope_begin();
    yk_future *f = ref_call_begin("ref_save", ref, "save", NULL, options, YK__RPC_SAVE);
    yk_status status = yk__rpc_call_wait(f) ? YK_OK : yk__error_code();
    yk_scope_end(scope);
    return status;
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

const char *yk_ref_owner_name(const yk_ref *ref)
{
    YK__LIVE(ref);
    return ref ? ref->owner.name : NULL;
}

bool yk_ref_is_owner(const yk_ref *ref)
{
    YK__LIVE(ref);
    if (!ref)
        return false;
    bool locked = yk__rpc_lock_if_free();
    bool owner = ref->owner.index == ref->maker;
    if (locked)
        pthread_mutex_unlock(&yk__rpc.lock);
    return owner;
}

bool yk_ref_confirmed(const yk_ref *ref)
{
    YK__LIVE(ref);
    YK__QUESTION;
    if (!ref || ref->broken.code)
        return false;
    if (!ref->created)
        return true;
    yk__rpc_lock();
    bool confirmed = ref->created->progress == YK__RPC_ANSWERED && !ref->created->error.code;
    pthread_mutex_unlock(&yk__rpc.lock);
    return confirmed;
}

/* Seconds until a deadline, as the time-out of a call; 0: none. */
static double time_left(double deadline)
{
    static const double LEAST = 0.001;
    double left = deadline - yk__now();
    return deadline == 0 ? YK_NOT_GIVEN : left > LEAST ? left : LEAST;
}

/* Waits until the owner has made the object, or until the deadline (0: the time that making it was given); an error
 * where it could not. */
static yk_status ref_await(const char *what, yk_ref *ref, double deadline)
{
    yk_status status = ref_check_registered(what, ref);
    if (status || !ref->created)
        return status;
    yk_scope scope = yk_scope_begin();
    if (!yk_future_wait(ref->created, time_left(deadline))) {
        bool late = yk__error_code() == YK_ERR_TIMEOUT && !yk_future_done(ref->created);
        yk__error_prefix("%s: the object '%s' %s", what, ref->name, late ? "is not made yet" : "could not be made");
        status = yk__error_code();
    }
    yk_scope_end(scope);
    return status;
}

/* The object, which is this worker's; NULL and an error. */
static yk__rpc_object *ref_local_object(const char *what, yk_ref *ref)
{
    if (!yk__is_there(what, "reference", ref) || ref_await(what, ref, 0) || yk__rpc_enter(what))
        return NULL;
    bool stale = ref->maker != yk__rpc.index, owner = ref->owner.index == ref->maker;
    yk__rpc_object *o = stale || !owner ? NULL : yk__rpc_serve_object(ref->id);
    yk__rpc_leave();
    if (stale)
        yk__fail(YK_ERR_STATE, "%s: the reference to '%s' is of before rpc_shutdown", what, ref->name);
    else if (!owner)
        yk__fail(YK_ERR_STATE, "%s: '%s' is an object of worker '%s', and this is worker '%s'; ref_to_here copies it",
                 what, ref->name, ref->owner.name, yk__rpc.name);
    return o;
}

yk_value *yk_ref_local_value(yk_ref *ref)
{
    YK__LIVE(ref);
    if (!yk__scope_check("ref_local_value"))
        return NULL;
    const yk__rpc_object *o = ref_local_object("ref_local_value", ref);
    if (o && o->cls)
        yk__fail(YK_ERR_ARGUMENT, "ref_local_value: '%s' is an object of a class and no value; ref_local gives it",
                 ref->name);
    return o && !o->cls ? yk__scope_own(yk_value_retain(o->value)) : NULL;
}

void *yk_ref_local(yk_ref *ref)
{
    YK__LIVE(ref);
    const yk__rpc_object *o = ref_local_object("ref_local", ref);
    if (o && !o->cls)
        yk__fail(YK_ERR_ARGUMENT, "ref_local: '%s' is a result and no object of a class; ref_local_value gives it",
                 ref->name);
    return o && o->cls ? o->data : NULL;
}

/* ---- as a value -------------------------------------------------------------------------------------------------- */

yk_value *yk_value_ref(yk_ref *ref)
{
    YK__LIVE(ref);
    return yk__is_there("value_ref", "reference", ref) ? yk__scope_own(yk__value_reference(ref)) : NULL;
}

yk_ref *yk_value_as_ref(const yk_value *value)
{
    YK__LIVE(value);
    if (value && value->kind == YK_VALUE_REFERENCE)
        return value->as.reference;
    yk__fail(YK_ERR_ARGUMENT, "a reference is wanted, the value is %s",
             value ? yk_value_kind_name(value->kind) : "NULL");
    return NULL;
}

/* ---- pins -------------------------------------------------------------------------------------------------------- */

enum { MOST_CARRIED = 1 << 20 /* references in one message */ };

typedef struct yk__rpc_pin {
    uint64_t number;
    const yk__rpc_link *link; /* over which it is passed; NULL: to this process */
    yk_ref *ref;              /* retained */
    struct yk__rpc_pin *next;
} pin;

/* References that are on their way, youngest first. With the lock. */
static pin *pins;
static uint64_t pins_made;

void yk__rpc_head_put(yk__wire *out, yk__rpc_carried *carried)
{
    carried->head = out->size;
    yk__wire_put_u64(out, 0);
    yk__wire_put_u32(out, 0);
    yk__wire_put_u64(out, 0);
    yk__wire_put_u64(out, 0);
}

static void number_put(unsigned char *at, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)(number >> (8 * i));
}

void yk__rpc_pin(yk__rpc_carried *carried, yk__rpc_link *link, unsigned char *data)
{
    if (!carried->head)
        return;
    number_put(data + carried->head + 12, carried->context ? carried->context->id : 0, 8);
    number_put(data + carried->head + 20, carried->message, 8);
    if (!carried->pins)
        return;
    carried->first_pin = pins_made + 1;
    pins_made += carried->pin_count;
    uint64_t number = pins_made;
    for (pin *p; (p = carried->pins);) {
        carried->pins = p->next;
        p->number = number--;
        p->link = link;
        p->next = pins;
        pins = p;
    }
    number_put(data + carried->head, carried->first_pin, 8);
    number_put(data + carried->head + 8, carried->pin_count, 4);
}

/* Takes the pins of [first, first + count) of a link out of the list, and lets go of their references then: what that
 * sends may end connections, and so change the list. */
static void pins_release(const yk__rpc_link *link, bool all, uint64_t first, uint32_t count)
{
    pin *released = NULL;
    for (pin **at = &pins; *at;) {
        pin *p = *at;
        if (p->link != link || (!all && (p->number < first || p->number - first >= count))) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        p->next = released;
        released = p;
    }
    while (released) {
        pin *p = released;
        released = p->next;
        yk_ref_release(p->ref);
        free(p);
    }
}

void yk__rpc_unpin(const yk__rpc_link *link, uint64_t first, uint32_t count)
{
    if (count)
        pins_release(link, false, first, count);
}

void yk__rpc_unpin_all(const yk__rpc_link *link)
{
    pins_release(link, true, 0, 0);
}

void yk__rpc_carried_clear(yk__rpc_carried *carried)
{
    for (pin *p; (p = carried->pins);) {
        carried->pins = p->next;
        yk_ref_release(p->ref);
        free(p);
    }
    for (int i = 0; i < carried->tensor_count; i++)
        yk_tensor_release(carried->tensors[i]);
    free(carried->tensors);
    carried->tensors = NULL;
    carried->tensor_count = carried->tensor_room = 0;
    carried->pin_count = 0;
    carried->message = carried->head = 0;
}

void yk__rpc_head_read(yk__reader *r, yk__rpc_link *link, yk__rpc_head *head)
{
    yk__rpc_pins *p = &head->pins;
    p->link = NULL;
    p->first = yk__read_u64(r);
    p->count = yk__read_u32(r);
    head->context = yk__read_u64(r);
    head->message = yk__read_u64(r);
    if (r->bad)
        p->count = 0;
    if (p->count && link) {
        p->link = link;
        link->references++;
    }
}

void yk__rpc_pins_taken(yk__rpc_pins *p)
{
    if (!p->count)
        return;
    bool locked = yk__rpc_lock_if_free();
    yk__rpc_pins said = *p;
    *p = (yk__rpc_pins){0};
    if (!said.link) {
        yk__rpc_unpin(NULL, said.first, said.count);
    } else {
        yk__wire out = {0};
        yk__wire_put_u64(&out, said.first);
        yk__wire_put_u32(&out, said.count);
        if (out.failed)
            yk__rpc_link_end(said.link, "out of memory");
        else
            yk__rpc_link_send(said.link, YK__RPC_TAKEN, 0, out.data, out.size);
        yk__rpc_link_release(said.link);
    }
    if (locked)
        pthread_mutex_unlock(&yk__rpc.lock);
}

/* ---- on the wire ------------------------------------------------------------------------------------------------- */

yk_status yk__rpc_ref_encode(yk_ref *ref, yk__rpc_carried *carried, yk__wire *out)
{
    static const char what[] = "passing a reference on";
    yk_status status = ref_await(what, ref, carried->deadline);
    const yk_rpc_options *in_time = YK_OPTIONS(yk_rpc_options, .timeout = time_left(carried->deadline));
    status = status ? status : ref_come_back(what, ref, in_time);
    if (status)
        return status;
    if (ref->maker != yk__rpc.index)
        return yk__fail(YK_ERR_STATE, "the reference to '%s' is of before rpc_shutdown", ref->name);
    if (carried->pin_count == MOST_CARRIED)
        return yk__fail(YK_ERR_ARGUMENT, "more than %d references in one message", MOST_CARRIED);
    pin *p = yk__calloc(1, sizeof(*p));
    if (!p)
        return YK_ERR_MEMORY;
    *p = (pin){.ref = yk_ref_retain(ref), .next = carried->pins};
    carried->pins = p;
    carried->pin_count++;
    yk__rpc_lock();
    uint32_t owner = ref->owner.index;
    uint64_t id = ref->id;
    bool kept = ref_is_kept(ref);
    pthread_mutex_unlock(&yk__rpc.lock);
    yk__wire_put_u32(out, owner);
    yk__wire_put_u64(out, id);
    yk__wire_put_text8(out, ref->name);
    yk__wire_put_text8(out, kept ? ref->shared : "");
    return YK_OK;
}

/* The time of yk__rpc_ref_until. */
static _Thread_local double until;

double yk__rpc_ref_until(double deadline)
{
    double before = until;
    until = deadline;
    return before;
}

/* Registers the reference with its owner, beside that of number `parent`, and waits for the owner's answer. */
static yk_status ref_register(yk_ref *ref, uint64_t parent)
{
    if (ref->owner.index == yk__rpc.index) {
        yk_status status = yk__rpc_enter("rpc_ref");
        if (!status) {
            status = yk__rpc_serve_add(yk__rpc.index, parent, ref->id);
            yk__rpc_leave();
        }
        return status;
    }
    yk__rpc_target t = {.what = "the reference was not registered",
                        .name = ref->name,
                        .kind = YK__RPC_ADD,
                        .object = ref->id,
                        .parent = parent,
                        .ref = ref};
    yk_scope scope = yk_scope_begin();
    const yk_rpc_options *in_time = YK_OPTIONS(yk_rpc_options, .timeout = time_left(until));
    yk_status status = yk__rpc_call_wait(yk__rpc_call_begin(&t, NULL, in_time, NULL)) ? YK_OK : yk__error_code();
    yk_scope_end(scope);
    return status;
}

yk_ref *yk__rpc_ref_decode(yk__reader *r)
{
    uint32_t owner = yk__read_u32(r);
    uint64_t parent = yk__read_u64(r);
    unsigned length = yk__read_u8(r);
    const unsigned char *bytes = yk__read_bytes(r, length);
    unsigned shared_length = yk__read_u8(r);
    const unsigned char *shared = yk__read_bytes(r, shared_length);
    char name[YK__RPC_NAME];
    if (r->bad || !bytes || !shared || shared_length >= YK__RPC_NAME || owner == 0 || parent == 0) {
        yk__fail(YK_ERR_FORMAT, "a message with a reference that is cut short");
        return NULL;
    }
    yk__escape((const char *)bytes, length, name, sizeof(name));
    yk_ref *ref = ref_new("rpc_ref", name);
    if (!ref)
        return NULL;
    yk__escape((const char *)shared, shared_length, ref->shared, sizeof(ref->shared));
    YK__OWN_RECORD;
    yk_status status = yk__rpc_member_at(owner, &ref->owner);
    ref->maker = (uint32_t)(ref->id >> 40);
    status = status ? status : ref_register(ref, parent);
    if (status) /* it is there all the same: using it is the error */
        yk__error_take(&ref->broken);
    return ref;
}
