/*
 * rpc_publish.c - state dicts that one worker publishes under a name, version after version, and others fetch.
 * Layer: rpc.
 *
 * Note [Published versions]
 * A version is one block of memory of yk_rpc_alloc, a *slot*: a table of names, dtypes and shapes, and the elements of
 * all tensors behind it. Publishing copies into a slot that nobody holds, and makes it the current one at the end, so a
 * slot that can be fetched is never written. It is fetched by a call, whose answer lends the slot (Note [Loans]): a
 * reader of the same host maps it, and as long as it holds a tensor of it, the slot is used for no other version.
 * Readers of another host ask one worker among them, the first that came, which keeps a copy in a slot of its own: so
 * a version crosses to each host once.
 *
 *     publisher P            host of P: A, B                 another host: R, S
 *     slot 3 (current) <---- A maps slot 3 (version 7)
 *     slot 1           <---- B maps slot 1 (version 5)       R: slot 0, a copy of version 7 <---- S maps it
 *
 * Keys of the store, all with the prefix "rpc/":
 *   publisher/NAME   the index of the worker that publishes the name
 *   published        how many names there have been; published/N  the N-th of them
 *   copy/HOST/NAME   the index of the worker that keeps the copy of that host
 *
 * Invariants: `lock` guards the list and all but `writing` in it, and is taken inside nothing but `writing`, which is
 * held by who fills a slot. Entries of the list stay until the process ends. A slot is free when the tensor has one
 * reference and its memory is not held: an answer that is on its way has a reference until its bytes lend the memory,
 * so they are looked at in this order.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "nn/state_dict.h"
#include "rpc/rpc_agent.h"
#include "rpc/rpc_publish.h"
#include "rpc/value_wire.h"
#include "tensor/host_tensor.h"

/* MOST_VERSIONS: of .versions. ALIGN: of the elements of a tensor in a slot. MOST_LISTED: names that an error looks
 * through for the nearest. */
enum { MOST_VERSIONS = 64, ALIGN = 64, MOST_LISTED = 200, NOT_FETCHED = -1 };

static const char fetch_name[] = "yoke.publish.fetch", copy_name[] = "yoke.publish.copy";

/* A call that waits for a version. */
typedef struct waiter {
    yk_call *call;
    int64_t at_least;
    struct waiter *next;
} waiter;

typedef struct publication {
    char name[YK__RPC_NAME];
    bool is_copy;            /* of what a worker of another host publishes, or of nothing; else it is published here */
    pthread_mutex_t writing; /* held by who makes a version */
    yk_tensor *slots[MOST_VERSIONS];
    int current;        /* the slot of the version that can be fetched; -1: none */
    int64_t version;    /* 0: none yet */
    uint32_t origin;    /* the index of the worker whose version that is */
    uint32_t relay;     /* of a copy: the worker of this host that keeps it; 0: not known */
    uint32_t publisher; /* of a copy: the worker that publishes the name, as it was last seen; 0: not known */
    bool claimed;       /* the name is this worker's in the store, or is being made so */
    bool by_call;       /* the youngest version was published by a function that another worker called */
    bool closed;        /* no version follows */
    waiter *waiters;
    struct publication *next;
} publication;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t published; /* with `lock`; made with the first entry */
static publication *publications;

/* ---- the list ---------------------------------------------------------------------------------------------------- */

/* With the lock: the entry of the name, or NULL. */
static publication *publication_search(const char *name, bool is_copy)
{
    publication *p = publications;
    while (p && (p->is_copy != is_copy || strcmp(p->name, name) != 0))
        p = p->next;
    return p;
}

/* The entry of the name; NULL: there is none. */
static publication *publication_find(const char *name, bool is_copy)
{
    pthread_mutex_lock(&lock);
    publication *p = publication_search(name, is_copy);
    pthread_mutex_unlock(&lock);
    return p;
}

/* The entry of the name, made where there is none; NULL and an error on failure. */
static publication *publication_make(const char *name, bool is_copy)
{
    static bool prepared;
    pthread_mutex_lock(&lock);
    if (!prepared)
        yk__condition_init(&published);
    prepared = true;
    publication *p = publication_search(name, is_copy);
    if (!p && (p = yk__calloc(1, sizeof(*p)))) {
        snprintf(p->name, sizeof(p->name), "%s", name);
        pthread_mutex_init(&p->writing, NULL);
        p->is_copy = is_copy;
        p->current = -1;
        p->next = publications;
        publications = p;
    }
    pthread_mutex_unlock(&lock);
    return p;
}

/* Takes the calls off the list that this version answers, or all (INT64_MAX). With `lock`. */
static waiter *waiters_take(publication *p, int64_t version)
{
    waiter *taken = NULL;
    for (waiter **at = &p->waiters; *at;) {
        waiter *w = *at;
        if (w->at_least > version && !yk_call_cancelled(w->call)) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        w->next = taken;
        taken = w;
    }
    return taken;
}

/* ---- slots ------------------------------------------------------------------------------------------------------- */

/* The number of a slot of exactly `bytes` that nobody holds, one of at most `most`; -1 and an error. With `writing`. */
static int slot_take(publication *p, const char *what, int64_t bytes, int most)
{
    int unused = -1, held = 0;
    for (int i = 0; i < most; i++) {
        yk_tensor *x = p->slots[i];
        if (i == p->current)
            continue;
        bool referenced = x && atomic_load(&x->object.references) > 1; /* first: see above */
        yk__alloc_use use = x ? yk__alloc_used(x) : YK__ALLOC_FREE;
        if (x && !referenced && use == YK__ALLOC_FREE && x->numel == bytes)
            return i;
        if (x && (referenced || use == YK__ALLOC_HELD)) {
            held++;
            continue;
        }
        yk_tensor_release(x); /* of another size, or given up */
        p->slots[i] = NULL;
        unused = unused < 0 ? i : unused;
    }
    if (unused < 0) {
        yk__fail(YK_ERR_STATE,
                 "%s: '%s': readers hold %d earlier versions, and .versions is %d; they release what "
                 "they fetched, or .versions is larger",
                 what, p->name, held, most);
        return -1;
    }
    yk_scope scope = yk_scope_begin();
    p->slots[unused] = yk_tensor_retain(yk_rpc_alloc(YK_SHAPE(bytes), YK_OPTIONS(yk_tensor_options, .dtype = YK_U8)));
    yk_scope_end(scope);
    return p->slots[unused] ? unused : -1;
}

/* Makes the slot, which is filled, the one that is fetched, and answers who waited for it. With `writing`. */
static void slot_publish(publication *p, int slot, int64_t version, uint32_t origin)
{
    pthread_mutex_lock(&lock);
    p->current = slot;
    p->version = version;
    p->origin = origin;
    waiter *ready = waiters_take(p, version);
    pthread_cond_broadcast(&published);
    pthread_mutex_unlock(&lock);
    while (ready) {
        waiter *w = ready;
        ready = w->next;
        yk_scope scope = yk_scope_begin();
        yk_call_answer(w->call, yk_args(yk_value_int(origin), yk_value_int(version), yk_value_tensor(p->slots[slot])));
        yk_scope_end(scope);
        free(w);
    }
}

static int64_t aligned(int64_t bytes)
{
    return (bytes + ALIGN - 1) & ~(int64_t)(ALIGN - 1);
}

static int64_t tensor_bytes(const yk_tensor *x)
{
    return x->numel * (int64_t)yk_dtype_size((yk_dtype)x->dtype);
}

/* A tensor of this dtype and shape on the bytes of `flat` from `offset` on, which it keeps; one reference. */
static void flat_release(void *context)
{
    yk_tensor_release(context);
}

static yk_tensor *tensor_within(yk_tensor *flat, int64_t offset, int ndim, const int64_t *shape, yk_dtype dtype,
                                int64_t bytes)
{
    if (bytes == 0)
        return yk__host_zeros(ndim, shape, dtype);
    yk__storage *storage = yk__storage_wrap((yk_device){YK_CPU, 0}, (char *)flat->data + offset, (size_t)bytes,
                                            flat_release, yk_tensor_retain(flat));
    if (!storage)
        yk_tensor_release(flat);
    return yk__tensor_over(storage, ndim, shape, dtype);
}

/* The table at the beginning of a slot: u32 tensors; of each u8 dtype, u8 dimensions, u64 sizes, u64 offset of the
 * elements, u16 length and name. */
static yk_status table_encode(const yk_state_dict *dict, yk__wire *out, int64_t *total)
{
    int64_t count = yk__state_dict_count(dict), size = 4;
    for (int64_t i = 0; i < count; i++)
        size += 12 + 8 * (int64_t)yk__state_dict_at(dict, i)->ndim + (int64_t)strlen(yk__state_dict_name(dict, i));
    int64_t offset = aligned(size);
    yk__wire_put_u32(out, (uint32_t)count);
    for (int64_t i = 0; i < count; i++) {
        const yk_tensor *x = yk__state_dict_at(dict, i);
        const char *name = yk__state_dict_name(dict, i);
        if (strlen(name) > UINT16_MAX)
            return yk__fail(YK_ERR_ARGUMENT, "publish: the name of tensor %" PRId64 " has %zu bytes", i, strlen(name));
        yk__wire_put_u8(out, yk__dtype_to_wire((yk_dtype)x->dtype));
        yk__wire_put_u8(out, (unsigned)x->ndim);
        for (int d = 0; d < x->ndim; d++)
            yk__wire_put_u64(out, (uint64_t)x->shape[d]);
        yk__wire_put_u64(out, (uint64_t)offset);
        yk__wire_put_key(out, name, strlen(name));
        offset += aligned(tensor_bytes(x));
    }
    *total = offset;
    return out->failed ? yk__fail_memory(out->size) : YK_OK;
}

/* Copies the table, and the elements to where it says they are. */
static yk_status slot_fill(yk_tensor *slot, const yk_state_dict *dict, const yk__wire *table)
{
    memcpy(slot->data, table->data, table->size);
    yk_status status = YK_OK;
    int64_t offset = aligned((int64_t)table->size);
    for (int64_t i = 0; i < yk__state_dict_count(dict) && !status; i++) {
        const yk_tensor *x = yk__state_dict_at(dict, i);
        int64_t bytes = tensor_bytes(x);
        yk_tensor *to = tensor_within(slot, offset, x->ndim, x->shape, (yk_dtype)x->dtype, bytes);
        status = to ? yk__state_dict_copy(dict, i, to) : yk__error_code();
        yk_tensor_release(to);
        offset += aligned(bytes);
    }
    return status;
}

static yk_status table_malformed(void)
{
    return yk__fail(YK_ERR_FORMAT, "fetch: a published state dict that no yoke of this version publishes");
}

/* Reads one entry of the table and adds its tensor. */
static yk_status entry_decode(yk__reader *r, yk_tensor *flat, yk_state_dict *dict)
{
    char name[UINT16_MAX + 1];
    yk_dtype dtype = YK_F32;
    bool right = yk__dtype_from_wire(yk__read_u8(r), &dtype);
    unsigned ndim = yk__read_u8(r);
    if (r->bad || !right || ndim > YK_MAX_DIMS)
        return table_malformed();
    int64_t shape[YK_MAX_DIMS], bytes = (int64_t)yk_dtype_size(dtype);
    for (unsigned d = 0; d < ndim; d++) {
        shape[d] = (int64_t)yk__read_u64(r);
        if (shape[d] < 0 || __builtin_mul_overflow(bytes, shape[d], &bytes))
            return table_malformed();
    }
    uint64_t offset = yk__read_u64(r);
    unsigned length = yk__read_u16(r);
    const unsigned char *text = yk__read_bytes(r, length);
    if (r->bad || !text || memchr(text, 0, length) || offset % ALIGN || offset > (uint64_t)flat->numel ||
        bytes > flat->numel - (int64_t)offset)
        return table_malformed();
    memcpy(name, text, length);
    name[length] = 0;
    yk_tensor *x = tensor_within(flat, (int64_t)offset, (int)ndim, shape, dtype, bytes);
    yk_status status = x ? yk_state_dict_add(dict, name, x) : yk__error_code();
    yk_tensor_release(x);
    return status;
}

/* The state dict of a slot, whose tensors are on its memory; one reference, NULL and an error. */
static yk_state_dict *dict_over(yk_tensor *flat)
{
    yk__reader r = {flat->data, (unsigned char *)flat->data + flat->numel, false};
    uint32_t count = yk__read_u32(&r);
    yk_state_dict *dict = yk__state_dict_new();
    yk_status status = !dict ? YK_ERR_MEMORY : r.bad ? table_malformed() : YK_OK;
    for (uint32_t i = 0; i < count && !status; i++)
        status = entry_decode(&r, flat, dict);
    if (!status)
        return dict;
    yk_state_dict_release(dict);
    return NULL;
}

/* ---- the store --------------------------------------------------------------------------------------------------- */

static void publisher_key(char key[2 * YK__RPC_NAME], const char *name)
{
    snprintf(key, 2 * YK__RPC_NAME, "rpc/publisher/%s", name);
}

/* Gives the key to the worker of index `to` where `from` has it (0: nobody); *holder is who has it then. */
static yk_status index_swap(const char *key, uint32_t from, uint32_t to, uint32_t *holder, bool *swapped)
{
    char before[16] = "", later[16];
    void *held = NULL;
    size_t size = 0;
    if (from)
        snprintf(before, sizeof(before), "%u", from);
    snprintf(later, sizeof(later), "%u", to);
    yk_status status =
        yk_store_compare_set(yk__rpc.store, key, before, strlen(before), later, strlen(later), &held, &size, swapped);
    *holder = !status && held ? (uint32_t)strtoul(held, NULL, 10) : 0; /* a NUL byte follows the value */
    free(held);
    return status;
}

/* Notes a new name, for errors that list what there is. */
static yk_status name_note(const char *name)
{
    int64_t number = 0;
    char key[40];
    yk_status status = yk_store_add(yk__rpc.store, "rpc/published", 1, &number);
    snprintf(key, sizeof(key), "rpc/published/%" PRId64, number);
    return status ? status : yk_store_set(yk__rpc.store, key, name, strlen(name));
}

/* Makes the name this worker's: nobody has it, or one that has ended. */
static yk_status name_claim(const char *name)
{
    char key[2 * YK__RPC_NAME];
    publisher_key(key, name);
    uint32_t before = 0, holder = 0;
    bool swapped = false;
    for (;;) {
        yk_status status = index_swap(key, before, yk__rpc.index, &holder, &swapped);
        if (!status && swapped)
            return before ? YK_OK : name_note(name);
        if (status || holder == yk__rpc.index)
            return status;
        if (holder == 0) { /* it was taken off */
            before = 0;
            continue;
        }
        yk__rpc_member m;
        status = yk__rpc_member_at(holder, &m);
        if (status)
            return status;
        bool ended;
        {
            YK__QUESTION;
            ended = yk__rpc_member_has_ended(&m);
        }
        if (!ended)
            return yk__fail(YK_ERR_ARGUMENT, "publish: '%s' is published by worker '%s' (host %s, process %d)", name,
                            m.name, m.host, m.pid);
        before = holder;
    }
}

/* Nobody published the name in time: the nearest of those that there are. */
static yk_status name_unknown(const char *name, double seconds)
{
    char list[300] = "", *names[MOST_LISTED] = {NULL};
    const char *near[MOST_LISTED];
    int64_t count = 0;
    size_t there = 0;
    const char *nearest = NULL;
    {
        YK__QUESTION;
        if (yk_store_add(yk__rpc.store, "rpc/published", 0, &count))
            count = 0;
        for (int64_t i = 1; i <= count && there < MOST_LISTED; i++) {
            char key[40];
            void *data = NULL;
            snprintf(key, sizeof(key), "rpc/published/%" PRId64, i);
            if (!yk_store_get(yk__rpc.store, key, &data, NULL, 1))
                names[there++] = data;
        }
        for (size_t i = 0; i < there; i++)
            near[i] = names[i];
        nearest = yk__nearest(name, near, there);
        for (size_t i = 0, at = 0; i < there && at < sizeof(list) - 64; i++)
            at += (size_t)snprintf(list + at, sizeof(list) - at, "%s'%.50s'", i ? ", " : "", names[i]);
    }
    yk_status status = yk__fail(YK_ERR_TIMEOUT, "fetch: nobody has published '%s' within %g s%s%s%s; %s%s", name,
                                seconds, nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "",
                                there ? "published are " : "nothing is published", list);
    for (size_t i = 0; i < there; i++)
        free(names[i]);
    return status;
}

/* The worker that publishes the name, waited for until the deadline; *cached: as it was known, without the store. */
static yk_status publisher_find(publication *p, double begin, double deadline, bool *cached, yk__rpc_member *m)
{
    pthread_mutex_lock(&lock);
    uint32_t index = *cached ? p->publisher : 0;
    pthread_mutex_unlock(&lock);
    *cached = index != 0;
    if (!index) {
        char key[2 * YK__RPC_NAME];
        void *data = NULL;
        double left = deadline - yk__now();
        publisher_key(key, p->name);
        yk_status status;
        {
            YK__OWN_RECORD;
            status = yk_store_get(yk__rpc.store, key, &data, NULL, left > 0.001 ? left : 0.001);
            if (status && status != YK_ERR_TIMEOUT)
                yk__error_prefix("fetch: '%s'", p->name);
            else if (status)
                yk_clear_error();
        }
        if (status == YK_ERR_TIMEOUT)
            return name_unknown(p->name, deadline - begin);
        if (status)
            return yk__fail(status, "fetch: '%s': the store cannot be asked", p->name);
        index = (uint32_t)strtoul(data, NULL, 10);
        free(data);
        pthread_mutex_lock(&lock);
        p->publisher = index;
        pthread_mutex_unlock(&lock);
    }
    return yk__rpc_member_at(index, m);
}

/* ---- publishing -------------------------------------------------------------------------------------------------- */

static yk_status publish_check(const yk_state_dict *dict)
{
    for (int64_t i = 0; i < yk__state_dict_count(dict); i++)
        if (!yk__state_dict_at(dict, i))
            return yk__fail(YK_ERR_ARGUMENT, "publish: tensor '%s' is NULL", yk__state_dict_name(dict, i));
    return yk__state_dict_count(dict) ? YK_OK : yk__fail(YK_ERR_ARGUMENT, "publish: the state dict is empty");
}

static void waiters_fail(waiter *left, yk_status code, const char *why);

/* Makes the name this worker's, unless it is; calls for it wait meanwhile. With `writing`. */
static yk_status publication_claim(publication *p)
{
    pthread_mutex_lock(&lock);
    bool claimed = p->claimed;
    p->claimed = true;
    p->closed = false;
    p->by_call = yk__rpc_current() != NULL;
    pthread_mutex_unlock(&lock);
    yk_status status = claimed ? YK_OK : name_claim(p->name);
    if (!status)
        return YK_OK;
    pthread_mutex_lock(&lock);
    p->claimed = false;
    waiter *left = waiters_take(p, INT64_MAX);
    pthread_mutex_unlock(&lock);
    YK__QUESTION;
    waiters_fail(left, YK_ERR_NOT_FOUND, "the name is another worker's");
    return status;
}

/* Makes the next version. With `writing`. */
static yk_status version_make(publication *p, const yk_state_dict *dict, int most)
{
    yk__wire table = {0};
    int64_t bytes = 0;
    bool first = p->version == 0;
    yk_status status = publication_claim(p);
    status = status ? status : table_encode(dict, &table, &bytes);
    int slot = status ? -1 : slot_take(p, "publish", bytes, most);
    status = status || slot >= 0 ? status : yk__error_code();
    status = status ? status : slot_fill(p->slots[slot], dict, &table);
    yk__wire_clear(&table);
    if (status)
        return status;
    slot_publish(p, slot, p->version + 1, yk__rpc.index);
    /* The system gives memory page by page when it is first written: that of the second version is had now. */
    int next = first ? slot_take(p, "publish", bytes, most) : -1;
    if (next >= 0)
        memset(p->slots[next]->data, 0, (size_t)bytes);
    return YK_OK;
}

yk_status yk_publish(const char *name, const yk_state_dict *dict, int64_t *version, const yk_publish_options *options)
{
    YK__LIVE(dict);
    yk_publish_options o;
    yk_status status = yk__rpc_name_check("publish", "published state dict", name);
    status = status ? status : YK__OPTIONS_TAKE("publish", yk_publish_options, options, &o);
    status = status ? status : yk__check_integer("publish", "versions", o.versions, 2, MOST_VERSIONS);
    if (!status && !yk__is_there("publish", "state dict", dict))
        status = yk__error_code();
    status = status ? status : publish_check(dict);
    status = status ? status : yk__rpc_enter("publish");
    if (status)
        return status;
    yk__rpc_leave();
    YK__OWN_RECORD;
    publication *p = publication_make(name, false);
    if (!p)
        return yk__error_code();
    pthread_mutex_lock(&p->writing);
    status = version_make(p, dict, o.versions);
    if (!status && version)
        *version = p->version;
    pthread_mutex_unlock(&p->writing);
    return status;
}

/* ---- serving ----------------------------------------------------------------------------------------------------- */

static yk_status not_published(const char *name)
{
    return yk__fail(YK_ERR_NOT_FOUND, "this worker does not publish '%s'", name);
}

/* Arguments: name; the least version that is wanted; the version that the caller has. The answer: the index of this
 * worker, the version, and, unless the caller has that one or does not want it (NOT_FETCHED), the slot. */
static yk_status serve_fetch(yk_call *call)
{
    const char *name = yk_call_string(call, 0);
    int64_t at_least = yk_call_int(call, 1), have = yk_call_int(call, 2);
    if (!name || yk__error_code())
        return yk__error_code();
    publication *p = publication_find(name, false);
    if (!p)
        return not_published(name);
    waiter *w = yk__calloc(1, sizeof(*w));
    if (!w)
        return yk__error_code();
    pthread_mutex_lock(&lock);
    bool waits = p->version < at_least, ends = (waits && p->closed) || !p->claimed;
    int64_t version = p->version;
    yk_tensor *slot = !waits && p->current >= 0 ? yk_tensor_retain(p->slots[p->current]) : NULL;
    if (waits && !ends) {
        *w = (waiter){call, at_least, p->waiters};
        p->waiters = w;
        yk_call_later(call);
        w = NULL;
    }
    pthread_mutex_unlock(&lock);
    free(w);
    if (waits && !ends)
        return YK_OK;
    if (ends)
        return version ? yk__fail(YK_ERR_STATE,
                                  "this worker publishes no version of '%s' beyond %" PRId64
                                  ", for it is at its rpc_shutdown",
                                  name, version)
                       : not_published(name);
    yk_value *list = yk_args(yk_value_int(yk__rpc.index), yk_value_int(version));
    if (list && have != version && have != NOT_FETCHED && yk_value_append(list, yk_value_tensor(slot)))
        list = NULL;
    yk_tensor_release(slot);
    return yk_call_return(call, list);
}

/* ---- copies for a host ------------------------------------------------------------------------------------------- */

/* The answer to a call for a version. */
typedef struct answer {
    uint32_t origin;
    int64_t version;
    yk_tensor *flat; /* NULL: the caller has it */
} answer;

/* Reads an answer to a caller that has this version, or wants no tensor (NOT_FETCHED); the tensor has a reference. A
 * version that the caller has not got comes with its bytes. */
static yk_status answer_read(const yk_value *list, int64_t have, answer *a)
{
    *a = (answer){0};
    if (!list)
        return yk__error_code();
    int64_t count = yk_value_count(list), origin = yk_value_as_int(yk_value_at(list, 0));
    int64_t version = yk_value_as_int(yk_value_at(list, 1));
    yk_tensor *flat = count == 3 ? yk_value_as_tensor(yk_value_at(list, 2)) : NULL;
    bool whole = flat ? flat->dtype == YK_U8 && yk__in_c_order(flat) : have == NOT_FETCHED || have == version;
    if (yk__error_code() || count > 3 || origin < 1 || origin > UINT32_MAX || version < 1 || !whole)
        return table_malformed();
    *a = (answer){(uint32_t)origin, version, have == NOT_FETCHED ? NULL : yk_tensor_retain(flat)};
    return YK_OK;
}

static double seconds_left(double deadline)
{
    double left = deadline - yk__now();
    return left > 0.001 ? left : 0.001;
}

/* Asks the publisher for a version. In a scope. */
static yk_status publisher_ask(const char *worker, const char *name, int64_t at_least, int64_t have, double deadline,
                               answer *a)
{
    yk_value *args = yk_args(yk_value_string(name), yk_value_int(at_least), yk_value_int(have));
    yk_value *list =
        yk_rpc_sync(worker, fetch_name, args, YK_OPTIONS(yk_rpc_options, .timeout = seconds_left(deadline)));
    return answer_read(list, have, a);
}

/* Copies a version that came into a slot of this host. With `writing`. */
static yk_status copy_take(publication *c, const answer *a)
{
    int slot = slot_take(c, "fetch", a->flat->numel, MOST_VERSIONS);
    if (slot < 0)
        return yk__error_code();
    memcpy(c->slots[slot]->data, a->flat->data, (size_t)a->flat->numel);
    slot_publish(c, slot, a->version, a->origin);
    return YK_OK;
}

/*
 * Brings this host's copy to the version that the publisher has now, at least `at_least`. Who waits for one that is not
 * there yet does so before the copy is locked. *a is the current version, with its slot. In a scope.
 */
static yk_status copy_refresh(publication *c, const char *worker, int64_t at_least, double deadline, answer *a)
{
    yk_status status = publisher_ask(worker, c->name, at_least, NOT_FETCHED, deadline, a);
    if (status)
        return status;
    pthread_mutex_lock(&c->writing);
    if (a->origin != c->origin || a->version > c->version || c->current < 0) {
        answer news;
        int64_t have = a->origin == c->origin && c->current >= 0 ? c->version : 0;
        status = publisher_ask(worker, c->name, at_least, have, deadline, &news);
        if (!status && news.flat)
            status = copy_take(c, &news);
        yk_tensor_release(news.flat);
    }
    if (!status)
        *a = (answer){c->origin, c->version, yk_tensor_retain(c->slots[c->current])};
    pthread_mutex_unlock(&c->writing);
    return status;
}

/* Arguments: the name of the publisher; name; the least version. The answer is that of serve_fetch; or none, where the
 * publisher cannot be asked, with the code and text of that. */
static yk_status serve_copy(yk_call *call)
{
    const char *worker = yk_call_string(call, 0), *name = yk_call_string(call, 1);
    int64_t at_least = yk_call_int(call, 2);
    if (!worker || !name || yk__error_code())
        return yk__error_code();
    publication *c = publication_make(name, true);
    answer a;
    if (!c)
        return yk__error_code();
    if (copy_refresh(c, worker, at_least, call->deadline, &a)) {
        yk_error error;
        yk__error_take(&error);
        yk_value *failed = yk_args(yk_value_none(), yk_value_int(error.code), yk_value_string(error.message));
        return yk_call_return(call, failed);
    }
    yk_value *list = yk_args(yk_value_int(a.origin), yk_value_int(a.version), yk_value_tensor(a.flat));
    yk_tensor_release(a.flat);
    return yk_call_return(call, list);
}

yk_rpc_fn yk__publish_function(const char *name)
{
    if (strncmp(name, "yoke.publish.", 13) != 0)
        return NULL;
    return strcmp(name, fetch_name) == 0 ? serve_fetch : strcmp(name, copy_name) == 0 ? serve_copy : NULL;
}

/* ---- fetching ---------------------------------------------------------------------------------------------------- */

/* A version of this worker's own publication, waited for; mapped as other workers map it. */
static yk_status own_fetch(const char *name, int64_t at_least, double deadline, answer *a)
{
    publication *p = publication_find(name, false);
    if (!p)
        return not_published(name);
    yk_status status = YK_OK;
    pthread_mutex_lock(&lock);
    while (p->version < at_least && !p->closed && !status) {
        if (!yk__condition_wait(&published, &lock, deadline))
            status = YK_ERR_TIMEOUT;
    }
    yk_tensor *slot = p->version >= at_least ? p->slots[p->current] : NULL;
    *a = (answer){yk__rpc.index, p->version, slot ? yk__alloc_snapshot(slot) : NULL};
    pthread_mutex_unlock(&lock);
    if (a->flat)
        return YK_OK;
    return slot ? yk__error_code()
                : yk__fail(status ? status : YK_ERR_STATE, "this worker itself has published version %" PRId64,
                           a->version);
}

/* The worker that keeps this host's copy: who came first, or this one for `gone`. */
static yk_status relay_find(publication *c, uint32_t gone, uint32_t *relay)
{
    pthread_mutex_lock(&lock);
    *relay = c->relay == gone ? 0 : c->relay;
    pthread_mutex_unlock(&lock);
    if (*relay)
        return YK_OK;
    char key[2 * YK__RPC_NAME + 64];
    bool swapped = false;
    snprintf(key, sizeof(key), "rpc/copy/%s/%s", yk__rpc.identity.host, c->name);
    yk_status status = index_swap(key, gone, yk__rpc.index, relay, &swapped);
    if (!status && !swapped && *relay == 0) /* `gone` is not there any more either */
        status = index_swap(key, 0, yk__rpc.index, relay, &swapped);
    pthread_mutex_lock(&lock);
    c->relay = *relay;
    pthread_mutex_unlock(&lock);
    return status;
}

/* Asks the worker that keeps the copy. *lost: that one is gone. */
static yk_status relay_ask(publication *c, const yk__rpc_member *relay, const char *publisher, int64_t at_least,
                           double deadline, answer *a, bool *lost)
{
    yk_value *args = yk_args(yk_value_string(publisher), yk_value_string(c->name), yk_value_int(at_least));
    yk_value *list =
        yk_rpc_sync(relay->name, copy_name, args, YK_OPTIONS(yk_rpc_options, .timeout = seconds_left(deadline)));
    yk_status status = list ? YK_OK : yk__error_code();
    *lost = status == YK_ERR_CONNECTION || status == YK_ERR_NOT_FOUND;
    if (!status && yk_value_kind_of(yk_value_at(list, 0)) == YK_VALUE_NONE && yk_value_count(list) == 3) {
        const char *why = yk_value_as_string(yk_value_at(list, 2));
        int64_t code = yk_value_as_int(yk_value_at(list, 1));
        return yk__fail(code > 0 ? (yk_status)code : YK_ERR_CONNECTION, "%s", why ? why : "");
    }
    return status ? status : answer_read(list, 0, a);
}

/* A version that a worker of another host publishes, out of this host's copy. */
static yk_status copy_fetch(publication *c, const char *publisher, int64_t at_least, double deadline, answer *a)
{
    uint32_t relay = 0, gone = 0;
    for (;;) {
        yk__rpc_member m;
        bool lost = false;
        yk_status status = relay_find(c, gone, &relay);
        if (!status && relay == yk__rpc.index) {
            status = copy_refresh(c, publisher, at_least, deadline, a);
            yk_tensor *slot = a->flat;
            if (!status) {
                a->flat = yk__alloc_snapshot(slot);
                status = a->flat ? YK_OK : yk__error_code();
                yk_tensor_release(slot);
            }
            return status;
        }
        status = status ? status : yk__rpc_member_at(relay, &m);
        if (status)
            return status;
        {
            YK__OWN_RECORD;
            status = relay_ask(c, &m, publisher, at_least, deadline, a, &lost);
            if (lost)
                yk_clear_error();
        }
        if (!lost)
            return status;
        gone = relay;
    }
}

/* One attempt. *again: what was known of the publisher was old. In a scope. */
static yk_status fetch_once(publication *c, int64_t at_least, double begin, double deadline, bool *again, answer *a)
{
    yk__rpc_member m;
    bool cached = *again;
    *again = false;
    yk_status status = publisher_find(c, begin, deadline, &cached, &m);
    if (status)
        return status;
    if (m.index == yk__rpc.index)
        status = own_fetch(c->name, at_least, deadline, a);
    else if (strcmp(m.host, yk__rpc.identity.host) == 0)
        status = publisher_ask(m.name, c->name, at_least, 0, deadline, a);
    else
        status = copy_fetch(c, m.name, at_least, deadline, a);
    if (!status)
        return YK_OK;
    bool lost = status == YK_ERR_CONNECTION || status == YK_ERR_NOT_FOUND;
    *again = lost && cached;
    pthread_mutex_lock(&lock);
    c->publisher = lost ? 0 : c->publisher;
    pthread_mutex_unlock(&lock);
    if (lost)
        yk__error_prefix("fetch: '%s': worker '%s' (host %s, process %d), which published it, is gone, and its "
                         "versions with it",
                         c->name, m.name, m.host, m.pid);
    else
        yk__error_prefix("fetch: '%s', version %" PRId64 " of worker '%s'", c->name, at_least, m.name);
    return status;
}

yk_state_dict *yk_fetch(const char *name, int64_t *version, const yk_fetch_options *options)
{
    yk_fetch_options o;
    double seconds = 0;
    yk_status status = yk__rpc_name_check("fetch", "published state dict", name);
    status = status ? status : YK__OPTIONS_TAKE("fetch", yk_fetch_options, options, &o);
    status = status ? status : yk__check_integer("fetch", "at_least", o.at_least, 1, INT64_MAX);
    status = status ? status : yk__rpc_enter("fetch");
    if (status)
        return NULL;
    seconds = yk__rpc.timeout;
    yk__rpc_leave();
    publication *c = NULL;
    if (yk__check_timeout("fetch", "timeout", o.timeout, seconds, &seconds) || !yk__scope_check("fetch") ||
        !(c = publication_make(name, true)))
        return NULL;
    double begin = yk__now(), deadline = begin + seconds;
    const yk_call *outer = yk__rpc_current();
    if (outer && outer->deadline < deadline)
        deadline = outer->deadline;
    answer a = {0};
    yk_scope scope = yk_scope_begin();
    for (bool again = true; again;) {
        YK__OWN_RECORD;
        status = fetch_once(c, o.at_least, begin, deadline, &again, &a);
        if (again)
            yk_clear_error();
    }
    yk_scope_end(scope);
    yk_state_dict *dict = status ? NULL : dict_over(a.flat);
    yk_tensor_release(a.flat);
    if (dict && version)
        *version = a.version;
    return yk__scope_own(dict);
}

/* ---- ending ------------------------------------------------------------------------------------------------------ */

/* Fails the calls of a list, which is freed. */
static void waiters_fail(waiter *left, yk_status code, const char *why)
{
    while (left) {
        waiter *w = left;
        left = w->next;
        yk__fail(code, "%s", why);
        yk_call_answer(w->call, NULL);
        free(w);
    }
}

void yk__publications_close(bool all)
{
    YK__QUESTION;
    pthread_mutex_lock(&lock);
    waiter *left = NULL;
    for (publication *p = publications; p; p = p->next) {
        if (p->by_call && !all)
            continue;
        p->closed = true;
        for (waiter *w = waiters_take(p, INT64_MAX), *next; w; w = next) {
            next = w->next;
            w->next = left;
            left = w;
        }
    }
    if (publications)
        pthread_cond_broadcast(&published);
    pthread_mutex_unlock(&lock);
    waiters_fail(left, YK_ERR_STATE, "this worker publishes nothing more, for it is at its rpc_shutdown");
}

void yk__publications_clear(void)
{
    pthread_mutex_lock(&lock);
    publication *first = publications;
    pthread_mutex_unlock(&lock);
    for (publication *p = first; p; p = p->next) {
        pthread_mutex_lock(&p->writing);
        pthread_mutex_lock(&lock);
        p->current = -1;
        p->version = 0;
        p->origin = p->relay = p->publisher = 0;
        p->claimed = p->by_call = p->closed = false;
        for (int i = 0; i < MOST_VERSIONS; i++) {
            yk_tensor_release(p->slots[i]);
            p->slots[i] = NULL;
        }
        pthread_mutex_unlock(&lock);
        pthread_mutex_unlock(&p->writing);
    }
}
