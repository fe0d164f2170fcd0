/*
 * tcp_store.c - the client of a TCP store, and its life. Layer: net.
 *
 * A call takes a connection that lies idle, or makes one, and puts it back when the reply has come; so calls of several
 * threads do not wait for each other. Invariant: an idle connection has no request under way. One on which anything
 * went wrong is closed. The child of a fork finds its copies closed (socket.c) and starts without any.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "net/store_link.h"
#include "net/store_server.h"
#include "net/store_session.h"
#include "net/store_table.h"

/* MAX_IDLE: connections kept for the next calls, one for each thread that calls at the same time; with more threads
 * some connect anew. MAX_ADDRESSES: of one host name; those beyond are not tried. */
enum { MAX_IDLE = 16, MAX_ADDRESSES = 16 };
/* Seconds: in which a client has to prove that it knows the secret, before the server drops it; in which a server
 * answers that a wait is cancelled; that one of several addresses of a host may take, so that one that drops all
 * packets leaves time for the others. */
static const double handshake_patience = 10, cancel_patience = 2, attempt_patience = 10;
/* Seconds: between looks whether a store that does not answer has moved; that one attempt to connect to it takes. */
static const double look_for_move = 1, move_patience = 2;

typedef struct tcp_store {
    yk_store store;
    pthread_mutex_t lock;
    pid_t pid; /* of the process that the idle connections belong to */
    yk__store_link *idle[MAX_IDLE];
    int idle_count;
    yk__address address; /* the one that answered */
    yk__identity identity;
    yk__store_server *server; /* NULL for a client */
    pid_t server_pid;

    /* A client that connects with its first request (yk__tcp_store_later); under later_lock. */
    pthread_mutex_t later_lock;
    bool later;
    const char *blame;
    char *host;
    yk_error never; /* why it has not been possible */

    yk_store *guide; /* says where the store is, which may move (yk__tcp_store_guide); NULL: it stays */
} tcp_store;

static yk_status connect_later(tcp_store *tcp);

/* ---- connections ----------------------------------------------------------------------------------------------- */
static void connection_free(yk__store_link *l)
{
    if (l)
        yk__store_link_close(l);
    free(l);
}

/* Drops the parent's connections after a fork: the sockets are closed already. With the lock held. */
static void check_pid(tcp_store *tcp)
{
    pid_t pid = getpid();
    if (tcp->pid == pid)
        return;
    tcp->pid = pid;
    tcp->identity.pid = (uint32_t)pid;
    while (tcp->idle_count) {
        yk__store_link *l = tcp->idle[--tcp->idle_count];
        l->fd = -1;
        connection_free(l);
    }
}

/* Connects and shakes hands once with this address; `early`: leaves the server's answer to the proof to the first
 * request; `patience`: yk__socket_patience. */
static yk__store_link *join_address(const yk__address *address, const yk__identity *identity, bool early,
                                    double patience, double deadline, yk__reason *reason, char why[YK__WHY_SIZE])
{
    yk__store_link *l = calloc(1, sizeof(*l));
    if (!l) {
        snprintf(why, YK__WHY_SIZE, "out of memory");
        *reason = YK__LOST;
        return NULL;
    }
    *reason = yk__store_link_connect(l, address, identity, deadline, why);
    if (*reason == YK__REACHED) {
        yk__socket_patience(l->fd, patience);
        *reason = early ? yk__store_link_wait_hello(l, deadline, why) : yk__store_link_wait_open(l, deadline, why);
    }
    if (*reason == YK__REACHED)
        return l;
    free(l);
    return NULL;
}

static yk__store_link *acquire_connection(tcp_store *tcp, double deadline, yk__reason *reason, char why[YK__WHY_SIZE])
{
    yk__store_link *l = NULL;
    pthread_mutex_lock(&tcp->lock);
    check_pid(tcp);
    while (!l && tcp->idle_count) {
        l = tcp->idle[--tcp->idle_count];
        if (l->channel.open && yk__wait_fd(l->fd, POLLIN, 0)) { /* nothing can have come but the end */
            connection_free(l);
            l = NULL;
        }
    }
    yk__identity identity = tcp->identity;
    pthread_mutex_unlock(&tcp->lock);
    *reason = YK__REACHED;
    if (!l) {
        l = join_address(&tcp->address, &identity, false, tcp->store.timeout, deadline, reason, why);
        if (!l && *reason == YK__REFUSED)
            snprintf(why, YK__WHY_SIZE, "the server is gone: nothing listens there any more");
    }
    yk__identity_clear(&identity);
    return l;
}

static void put_connection(tcp_store *tcp, yk__store_link *l)
{
    pthread_mutex_lock(&tcp->lock);
    check_pid(tcp);
    bool kept = tcp->idle_count < MAX_IDLE && (!tcp->guide || yk__address_equal(&l->far, &tcp->address));
    if (kept)
        tcp->idle[tcp->idle_count++] = l;
    pthread_mutex_unlock(&tcp->lock);
    if (!kept)
        connection_free(l);
}

static void pause_until(double deadline)
{
    double left = deadline - yk__now();
    if (left <= 0)
        return;
    struct timespec t = {.tv_sec = (time_t)left};
    t.tv_nsec = (long)((left - (double)t.tv_sec) * 1e9);
    nanosleep(&t, NULL);
}

/* ---- a store that moves ------------------------------------------------------------------------------------------ */
/* Asks the guide where the store is by now, where the next connection goes. True if that is another place than this
 * one; another thread may have found out before. */
static bool has_moved(tcp_store *tcp, const yk__address *from)
{
    YK__QUESTION;
    static const char *const key = YK__GUIDE_KEY;
    char host[YK__HOST_SIZE], why[YK__WHY_SIZE], *text = NULL;
    int port;
    yk__address address;
    bool there = false;
    yk_status status = yk_store_check(tcp->guide, (const char *const *)&key, 1, &there);
    if (!status && there)
        status = yk_store_get(tcp->guide, key, (void **)&text, NULL, move_patience);
    if (!status && text)
        status = yk__host_port_parse(text, -1, host, &port);
    if (!status && text && yk__resolve(host, port, yk__now() + move_patience, &address, 1, why)) {
        pthread_mutex_lock(&tcp->lock);
        check_pid(tcp);
        bool moved = !yk__address_equal(&tcp->address, &address);
        tcp->address = address;
        while (moved && tcp->idle_count)
            connection_free(tcp->idle[--tcp->idle_count]);
        pthread_mutex_unlock(&tcp->lock);
    }
    free(text);
    pthread_mutex_lock(&tcp->lock);
    bool elsewhere = !yk__address_equal(from, &tcp->address);
    pthread_mutex_unlock(&tcp->lock);
    return elsewhere;
}

/* ---- one request and its reply --------------------------------------------------------------------------------- */
typedef struct call {
    tcp_store *tcp;
    const char *what;
    yk__bytes key; /* for messages; of several keys the first */
    yk__until until;
    enum yk__request kind;
    yk__wire request; /* its payload */
    bool waits;
    bool counts;          /* an addition, of something */
    bool sent;            /* it may have been done */
    bool repeated;        /* sent again after a connection was lost: an earlier one may have been done */
    yk__store_link *link; /* on which the reply came: `reader` reads from its memory */
    yk__reader reader;    /* of the reply's payload */
    bool timed_out;
} call;

static call call_begin(yk_store *store, const char *what, enum yk__request kind, yk__bytes key, yk__until until)
{
    return (call){.tcp = (tcp_store *)store,
                  .what = what,
                  .key = key,
                  .until = until,
                  .kind = kind,
                  .waits = kind == YK__GET || kind == YK__WAIT || kind == YK__WATCH || kind == YK__GATHER};
}

static yk_status call_failed(const call *c, yk_status code, const char *why)
{
    int shown = (int)(c->key.size < 200 ? c->key.size : 200);
    if (!c->key.size)
        return yk__fail(code, "%s: store %s: %s", c->what, c->tcp->store.name, why);
    return yk__fail(code, "%s: key '%.*s': store %s: %s", c->what, shown, (const char *)c->key.data, c->tcp->store.name,
                    why);
}

/* False where the store has moved while its answer was waited for, until the deadline at most. */
static bool answer_comes(const call *c, double deadline)
{
    for (;;) {
        double look = yk__now() + look_for_move;
        if (yk__wait_fd(c->link->fd, POLLIN, look < deadline ? look : deadline) || yk__now() >= deadline)
            return true;
        if (has_moved(c->tcp, &c->link->far))
            return false;
    }
}

/*
 * Note [Time-outs]: the client keeps the time. At the deadline it takes the request back, and the server answers either
 * that it has, or, when the two crossed, with the reply. So a time-out of a key and a server that does not answer are
 * told apart, and the connection stays usable.
 */
static yk__reason request_exchange(call *c, unsigned *type)
{
    yk__channel *channel = &c->link->channel;
    int fd = c->link->fd;
    yk__channel_send(channel, c->kind, c->request.data, c->request.size);
    double deadline = c->until.deadline, patience = c->kind == YK__GATHER ? c->until.timeout : 0;
    yk__reason reason = yk__channel_wait_sent(channel, fd, deadline + patience);
    if (reason)
        return reason;
    if (c->tcp->guide && !answer_comes(c, c->waits ? deadline : deadline + patience)) {
        snprintf(channel->why, sizeof(channel->why), "the store has moved");
        return YK__LOST;
    }
    if (c->waits && !yk__wait_fd(fd, POLLIN, deadline)) {
        deadline = yk__now() + (c->kind == YK__GATHER ? c->until.timeout : cancel_patience);
        yk__channel_send(channel, YK__CANCEL, NULL, 0);
        yk__channel_flush(channel, fd);
        if (c->tcp->guide && !answer_comes(c, deadline)) { /* that of a meeting may be waited for for long */
            snprintf(channel->why, sizeof(channel->why), "the store has moved");
            return YK__LOST;
        }
    } else if (c->waits) {
        deadline = yk__now() + cancel_patience + c->tcp->store.timeout;
    }
    return yk__channel_wait_message(channel, fd, deadline, type, &c->reader);
}

/* True if the request may be done twice. Of a store that moves all are asked again but those that add: a
 * compare-and-swap that was made gives the value that it made. */
static bool repeatable(const call *c)
{
    bool once = c->kind == YK__ADD || c->kind == YK__COMPARE_SET || c->kind == YK__DELETE;
    return c->tcp->guide ? !c->counts : !once;
}

/* True if a store that moves is to be asked again, here or elsewhere. */
static bool follows(const call *c, yk__reason reason, bool sent, double limit)
{
    bool gone = reason == YK__LOST || reason == YK__REFUSED || reason == YK__NO_ANSWER || reason == YK__UNREACHABLE ||
                reason == YK__NOT_RESOLVED;
    if (!c->tcp->guide || !gone || (sent && !repeatable(c)) || yk__now() >= limit)
        return false;
    (void)has_moved(c->tcp, &c->tcp->address);
    return true;
}

/* Sends the request until it is answered: a connection that is lost on the way is made again while there is time, but
 * where it is not known whether a request that counts was done. YK__REACHED with c->link and the reply's type, else the
 * last reason with its text; c->link is there where it failed in the exchange. */
static yk__reason send_until_answered(call *c, unsigned *type, char why[YK__WHY_SIZE])
{
    double patience = c->kind == YK__GATHER ? c->until.timeout : 0, pause = 0.01;
    double limit = yk__now() + c->tcp->store.timeout; /* for a store that moves */
    char lost[YK__WHY_SIZE / 2] = "";
    for (;;) {
        yk__reason reason;
        double connected = c->tcp->guide ? yk__now() + move_patience : c->until.deadline + patience;
        c->link = acquire_connection(c->tcp, connected, &reason, why);
        bool sent = c->link != NULL;
        if (sent) {
            reason = request_exchange(c, type);
            snprintf(why, YK__WHY_SIZE, "%s", c->link->channel.why);
            c->sent |= reason != YK__REJECTED; /* else it was not looked at */
        }
        bool again = reason == YK__LOST && (!sent || repeatable(c)) && yk__now() + pause < c->until.deadline + patience;
        if (!follows(c, reason, sent, limit) && !again) {
            char last[YK__WHY_SIZE];
            snprintf(last, sizeof(last), "%s", why);
            if (reason && lost[0])
                snprintf(why, YK__WHY_SIZE, "%s; then: %.200s", lost, last);
            return reason;
        }
        if (!lost[0])
            snprintf(lost, sizeof(lost), "%.*s", (int)sizeof(lost) - 1, why);
        connection_free(c->link);
        c->link = NULL;
        c->repeated |= sent;
        pause_until(yk__now() + pause);
        pause = pause < 0.5 ? 2 * pause : pause;
    }
}

/* Sends the request and takes the reply; c->timed_out when the server says so, else the payload is at c->reader. */
static yk_status call_run(call *c)
{
    if (c->request.failed)
        return yk__fail_memory(c->request.size);
    double began = yk__now();
    if (c->tcp->host && connect_later(c->tcp))
        return yk__error_code();
    c->until.deadline += yk__now() - began; /* connecting has the store's time-out, the request its own */
    char why[YK__WHY_SIZE] = "";
    unsigned type = 0;
    yk__reason reason = send_until_answered(c, &type, why);
    if (!c->link)
        return call_failed(c, YK_ERR_CONNECTION, why);
    if (!reason && (type == YK__DONE || (type == YK__TIMED_OUT && c->waits))) {
        c->timed_out = type == YK__TIMED_OUT;
        return YK_OK;
    }
    yk_status code = YK_ERR_CONNECTION;
    if (reason == YK__NO_ANSWER) {
        snprintf(why, sizeof(why), "the server does not answer (it was given %g s)", c->until.timeout);
    } else if (yk__store_link_fault(c->link, type, &c->reader, &code, why)) {
        put_connection(c->tcp, c->link);
        c->link = NULL;
    }
    connection_free(c->link);
    c->link = NULL;
    return call_failed(c, code, why);
}

/* Frees the call's memory; fails when the reply was malformed. */
static yk_status call_end(call *c, yk_status status)
{
    if (!status && !c->timed_out && !yk__read_finished(&c->reader))
        status = call_failed(c, YK_ERR_CONNECTION, "the server's reply is malformed");
    if (c->link)
        put_connection(c->tcp, c->link);
    yk__wire_clear(&c->request);
    return status;
}

static void put_keys(call *c, const yk__bytes *keys, size_t count)
{
    yk__wire_put_u32(&c->request, (uint32_t)count);
    for (size_t i = 0; i < count; i++)
        yk__wire_put_key(&c->request, (const char *)keys[i].data, keys[i].size);
}

static void put_key(call *c)
{
    yk__wire_put_key(&c->request, (const char *)c->key.data, c->key.size);
}

static yk_status read_copy(call *c, yk__store_value *value)
{
    yk__bytes bytes;
    bytes.size = yk__read_u32(&c->reader);
    bytes.data = yk__read_bytes(&c->reader, bytes.size);
    return yk__read_finished(&c->reader) ? yk__store_copy(bytes, value) : YK_OK; /* else call_end complains */
}

/* The same with a byte in front that says whether there is a value at all; if not, *value is left alone. */
static yk_status read_optional(call *c, yk__store_value *value)
{
    bool there = yk__read_u8(&c->reader) != 0;
    yk__store_value now = {0};
    yk_status status = read_copy(c, &now);
    if (there)
        *value = now;
    else
        free(now.data);
    return status;
}

/* ---- the table ------------------------------------------------------------------------------------------------- */
static yk_status tcp_set(yk_store *store, yk__bytes key, yk__bytes value, yk__until until)
{
    call c = call_begin(store, "set", YK__SET, key, until);
    put_key(&c);
    yk__wire_put_value(&c.request, value.data, value.size);
    return call_end(&c, call_run(&c));
}

static yk_status tcp_get(yk_store *store, yk__bytes key, yk__store_value *value, yk__until until)
{
    call c = call_begin(store, "get", YK__GET, key, until);
    put_key(&c);
    yk_status status = call_run(&c);
    if (!status)
        status =
            c.timed_out ? yk__store_key_timeout(store, "get", key, "was not set", until.timeout) : read_copy(&c, value);
    return call_end(&c, status);
}

static yk_status tcp_add(yk_store *store, yk__bytes key, int64_t amount, int64_t *sum, yk__until until)
{
    call c = call_begin(store, "add", YK__ADD, key, until);
    put_key(&c);
    yk__wire_put_u64(&c.request, (uint64_t)amount);
    c.counts = amount != 0;
    yk_status status = call_run(&c);
    if (!status)
        *sum = (int64_t)yk__read_u64(&c.reader);
    return call_end(&c, status);
}

static yk_status tcp_wait(yk_store *store, const yk__bytes *keys, size_t count, yk__until until)
{
    call c = call_begin(store, "wait", YK__WAIT, keys[0], until);
    put_keys(&c, keys, count);
    yk_status status = call_run(&c);
    if (!status && c.timed_out) {
        uint32_t missing_count = yk__read_u32(&c.reader), missing[YK__MISSING_SHOWN] = {0};
        for (uint32_t i = 0; i < missing_count && i < YK__MISSING_SHOWN; i++) {
            missing[i] = yk__read_u32(&c.reader);
            if (missing[i] >= count)
                c.reader.bad = true;
        }
        status = !yk__read_finished(&c.reader)
                     ? call_failed(&c, YK_ERR_CONNECTION, "the server's reply is malformed")
                     : yk__store_wait_timeout(store, keys, count, missing, missing_count, until.timeout);
    }
    return call_end(&c, status);
}

static yk_status tcp_check(yk_store *store, const yk__bytes *keys, size_t count, bool *there, yk__until until)
{
    call c = call_begin(store, "check", YK__CHECK, count ? keys[0] : (yk__bytes){0}, until);
    put_keys(&c, keys, count);
    yk_status status = call_run(&c);
    if (!status)
        *there = yk__read_u8(&c.reader) != 0;
    return call_end(&c, status);
}

static yk_status tcp_compare_set(yk_store *store, yk__bytes key, yk__bytes expected, yk__bytes desired,
                                 yk__store_value *value, bool *swapped, yk__until until)
{
    call c = call_begin(store, "compare_set", YK__COMPARE_SET, key, until);
    put_key(&c);
    yk__wire_put_value(&c.request, expected.data, expected.size);
    yk__wire_put_value(&c.request, desired.data, desired.size);
    yk_status status = call_run(&c);
    if (!status) {
        *swapped = yk__read_u8(&c.reader) != 0;
        status = read_optional(&c, value);
        *swapped |= c.repeated && value->data && value->size == desired.size &&
                    memcmp(value->data, desired.data, desired.size) == 0;
    }
    return call_end(&c, status);
}

static yk_status tcp_remove(yk_store *store, yk__bytes key, bool *deleted, yk__until until)
{
    call c = call_begin(store, "delete", YK__DELETE, key, until);
    put_key(&c);
    yk_status status = call_run(&c);
    if (!status)
        *deleted = yk__read_u8(&c.reader) != 0;
    return call_end(&c, status);
}

static yk_status tcp_watch(yk_store *store, yk__bytes key, yk__bytes old, yk__store_value *value, yk__until until)
{
    call c = call_begin(store, "watch", YK__WATCH, key, until);
    put_key(&c);
    yk__wire_put_u8(&c.request, old.data != NULL);
    yk__wire_put_value(&c.request, old.data, old.data ? old.size : 0);
    yk_status status = call_run(&c);
    if (!status && c.timed_out) {
        status = yk__store_key_timeout(store, "watch", key, "did not change", until.timeout);
    } else if (!status) {
        status = read_optional(&c, value);
    }
    return call_end(&c, status);
}

static yk_status tcp_count(yk_store *store, yk__bytes prefix, int64_t *count, yk__until until)
{
    call c = call_begin(store, "count", YK__COUNT, (yk__bytes){0}, until);
    yk__wire_put_key(&c.request, (const char *)prefix.data, prefix.size);
    yk_status status = call_run(&c);
    if (!status)
        *count = (int64_t)yk__read_u64(&c.reader);
    return call_end(&c, status);
}

/* A value with a byte in front that says whether it is there, with more after it. */
static yk_status read_next(call *c, yk__store_value *value)
{
    yk__bytes bytes;
    bool there = yk__read_u8(&c->reader) != 0;
    bytes.size = yk__read_u32(&c->reader);
    bytes.data = yk__read_bytes(&c->reader, bytes.size);
    return there && !c->reader.bad ? yk__store_copy(bytes, value) : YK_OK;
}

static yk_status tcp_gather(yk_store *store, yk__store_gather *g, yk__until until);

/* With the answer that a value is there already no others come: asks for them. */
static yk_status gather_others(yk_store *store, yk__store_gather *g, yk__until until)
{
    yk__store_gather others = *g;
    free(g->stopped.data);
    others.stopped = g->stopped = (yk__store_value){0};
    others.own = others.value = (yk__bytes){0};
    yk_status status = tcp_gather(store, &others, until);
    g->complete = others.complete;
    g->stopped = others.stopped;
    return status;
}

static yk_status tcp_gather(yk_store *store, yk__store_gather *g, yk__until until)
{
    bool own_is_there = false;
    call c = call_begin(store, "gather", YK__GATHER, g->own.data ? g->own : g->keys[0], until);
    yk__wire_put_u8(&c.request, g->own.data != NULL);
    if (g->own.data) {
        yk__wire_put_key(&c.request, (const char *)g->own.data, g->own.size);
        yk__wire_put_value(&c.request, g->value.data, g->value.size);
    }
    yk__wire_put_key(&c.request, (const char *)g->stop.data, g->stop.size);
    put_keys(&c, g->keys, g->count);
    yk_status status = call_run(&c);
    g->sent = c.sent;
    if (!status) {
        c.timed_out = false; /* the reply has the same form */
        g->complete = yk__read_u8(&c.reader) != 0;
        c.reader.bad |= yk__read_u32(&c.reader) != g->count;
        for (size_t i = 0; i < g->count && !status; i++)
            status = read_next(&c, &g->values[i]);
        status = status ? status : read_next(&c, &g->stopped);
        status = status ? status : read_next(&c, &g->conflict);
        /* The value that is there already may be the one that this call has set, before its connection was lost. */
        if (c.repeated && g->conflict.data && g->conflict.size == g->value.size &&
            memcmp(g->conflict.data, g->value.data, g->value.size) == 0) {
            free(g->conflict.data);
            g->conflict = (yk__store_value){0};
            own_is_there = true;
        }
    }
    status = call_end(&c, status);
    return !status && own_is_there ? gather_others(store, g, until) : status;
}

static void tcp_destroy(yk_store *store)
{
    tcp_store *tcp = (tcp_store *)store;
    check_pid(tcp);
    while (tcp->idle_count)
        connection_free(tcp->idle[--tcp->idle_count]);
    if (tcp->server_pid == tcp->pid) /* in the child of a fork there is no such thread to stop */
        yk__store_server_stop(tcp->server);
    yk__identity_clear(&tcp->identity);
    pthread_mutex_destroy(&tcp->lock);
    pthread_mutex_destroy(&tcp->later_lock);
    free(tcp->host);
    yk_store_release(tcp->guide);
}

static const yk__store_table tcp_table = {
    .set = tcp_set,
    .get = tcp_get,
    .add = tcp_add,
    .wait = tcp_wait,
    .check = tcp_check,
    .compare_set = tcp_compare_set,
    .remove = tcp_remove,
    .watch = tcp_watch,
    .count = tcp_count,
    .gather = tcp_gather,
    .destroy = tcp_destroy,
};

/* ---- joining --------------------------------------------------------------------------------------------------- */
/* Tries every address of the name once: a connection, or NULL with the last reason. */
static yk__store_link *try_host(const char *host, int port, const yk__identity *identity, bool early, double patience,
                                double deadline, yk__address *answered, yk__reason *reason, char why[YK__WHY_SIZE])
{
    yk__address addresses[MAX_ADDRESSES];
    size_t count =
        yk__identity_narrow(identity, addresses, yk__resolve(host, port, deadline, addresses, MAX_ADDRESSES, why));
    *reason = YK__NOT_RESOLVED;
    for (size_t i = 0; i < count; i++) {
        /* One address that drops everything leaves time for the others. */
        double now = yk__now(), share = (deadline - now) / (double)(count - i);
        double until = now + (share < attempt_patience || count == 1 ? share : attempt_patience);
        yk__store_link *l = join_address(&addresses[i], identity, early, patience, until, reason, why);
        if (l) {
            *answered = addresses[i];
            return l;
        }
        char text[YK__ADDRESS_TEXT], plain[YK__WHY_SIZE];
        snprintf(plain, sizeof(plain), "%s", why);
        if (strcmp(yk__address_host(&addresses[i], text), host) != 0)
            snprintf(why, YK__WHY_SIZE, "%.400s (at %.60s)", plain, text);
        if (*reason == YK__REJECTED || *reason == YK__EXHAUSTED)
            return NULL;
    }
    return NULL;
}

static yk_status tcp_store_join(tcp_store *tcp, const char *host, int port, bool early, double timeout)
{
    yk__address addresses[MAX_ADDRESSES];
    char why[YK__WHY_SIZE] = "";
    double begin = yk__now(), deadline = begin + timeout;
    /* A secret that is missing is an error at once and not after a minute of trying. */
    size_t count = 0;
    if (!tcp->identity.has_secret)
        count = yk__identity_narrow(&tcp->identity, addresses,
                                    yk__resolve(host, port, deadline, addresses, MAX_ADDRESSES, why));
    for (size_t i = 0; i < count; i++) {
        yk_status status = yk__identity_allows(&tcp->identity, &addresses[i], "tcp_store");
        if (status)
            return status;
    }
    /* A server that starts a moment later is found soon; one that never comes is not asked too often. */
    for (double wait = 0.005;; wait = wait < 0.4 ? 1.5 * wait : 0.5) {
        yk__reason reason;
        yk__store_link *l = try_host(host, port, &tcp->identity, early, timeout, deadline, &tcp->address, &reason, why);
        if (l) {
            yk_status status = yk__identity_allows(&tcp->identity, &tcp->address, "tcp_store");
            if (status)
                connection_free(l);
            else
                put_connection(tcp, l);
            return status;
        }
        bool rejected = reason == YK__REJECTED || reason == YK__EXHAUSTED;
        double now = yk__now();
        if (rejected || now + wait >= deadline) {
            if (rejected)
                return yk__fail(YK_ERR_CONNECTION, "tcp_store: %s: %s", tcp->store.name, why);
            return yk__fail(YK_ERR_CONNECTION, "tcp_store: %s: %s (tried for %.3g s)", tcp->store.name, why,
                            now - begin);
        }
        pause_until(now + wait);
    }
}

static yk_status connect_later(tcp_store *tcp)
{
    YK__OWN_RECORD;
    pthread_mutex_lock(&tcp->later_lock);
    yk_status status = tcp->never.code;
    if (status) {
        yk__error_put(&tcp->never);
    } else if (tcp->later) {
        static const yk__address nowhere = {.size = 0};
        tcp->later = false;
        if (!tcp->guide || !has_moved(tcp, &nowhere))
            status = tcp_store_join(tcp, tcp->host, tcp->store.port, true, tcp->store.timeout);
        if (status) {
            yk__error_prefix("%s", tcp->blame);
            tcp->never = *yk_last_error();
        }
    }
    pthread_mutex_unlock(&tcp->later_lock);
    return status;
}

/* The address that a server listens on. */
static yk_status server_address(const tcp_store *tcp, const yk_tcp_store_options *options, double deadline,
                                yk__address *address)
{
    char why[YK__WHY_SIZE];
    if (options->host || !options->peer) {
        const char *host = options->host ? options->host : "127.0.0.1";
        if (!yk__resolve_to_listen(host, options->port, tcp->identity.has_secret, deadline, address, 1, why))
            return yk__fail(YK_ERR_ARGUMENT, "tcp_store: cannot listen on '%s': %s", host, why);
        return YK_OK;
    }
    yk__address peer, local;
    char text[YK__ADDRESS_TEXT];
    if (!yk__resolve(options->peer, 0, deadline, &peer, 1, why) || !yk__route_to(&peer, &local, why))
        return yk__fail(YK_ERR_CONNECTION, "tcp_store: which interface leads to '%s'? %s", options->peer, why);
    return yk__resolve(yk__address_host(&local, text), options->port, deadline, address, 1, why)
               ? YK_OK
               : yk__fail(YK_ERR_INTERNAL, "tcp_store: %s", why);
}

static yk_status server_run(tcp_store *tcp, const yk_tcp_store_options *options)
{
    YK__OWN_RECORD;
    yk__address address, bound;
    char text[YK__ADDRESS_TEXT];
    yk_status status = server_address(tcp, options, yk__now() + tcp->store.timeout, &address);
    if (!status)
        status = yk__identity_allows(&tcp->identity, &address, "tcp_store");
    if (status)
        return status;
    tcp->server = yk__store_server_start(
        &address, &tcp->identity,
        YK_OPTIONS(yk__store_server_options, .patience = handshake_patience, .silence = tcp->store.timeout), &bound);
    if (!tcp->server) {
        yk__error_prefix("tcp_store");
        return yk__error_code();
    }
    /* The name that was given says more than the address of all interfaces. */
    bool everywhere = yk__address_is_any(&bound) && strcmp(yk__address_host(&bound, text), options->host) != 0;
    free(tcp->store.name);
    tcp->store.port = yk__address_port(&bound);
    tcp->store.name = everywhere ? yk__format("tcp://%s:%d", options->host, tcp->store.port)
                                 : yk__format("tcp://%s", yk__address_format(&bound, text));
    if (!tcp->store.name)
        return YK_ERR_MEMORY;
    return tcp_store_join(tcp, everywhere ? "127.0.0.1" : yk__address_host(&bound, text), tcp->store.port, false,
                          tcp->store.timeout);
}

/* `blame`: see yk__tcp_store_later; NULL: connects now. */
static yk_store *tcp_store_create(const char *service, const yk_tcp_store_options *options, const char *blame)
{
    if (!yk__scope_check("tcp_store"))
        return NULL;
    yk_tcp_store_options o;
    double timeout;
    if (YK__OPTIONS_TAKE("tcp_store", yk_tcp_store_options, options, &o) ||
        yk__check_timeout("tcp_store", "timeout", o.timeout, YK__STORE_TIMEOUT, &timeout))
        return NULL;
    if (!o.is_server && !o.host) {
        yk__fail(YK_ERR_ARGUMENT, "tcp_store: a client needs the host of its server");
        return NULL;
    }
    if (yk__check_integer("tcp_store", "port", o.port, o.is_server ? 0 : 1, 65535))
        return NULL;
    bool bare_v6 = o.host && strchr(o.host, ':') && o.host[0] != '[';
    char *name = yk__format(bare_v6 ? "tcp://[%s]:%d" : "tcp://%s:%d", o.host ? o.host : "", o.port);
    yk_store *store = name ? yk__store_new(&tcp_table, sizeof(tcp_store), name) : NULL;
    free(name);
    if (!store)
        return NULL;
    tcp_store *tcp = (tcp_store *)store;
    pthread_mutex_init(&tcp->lock, NULL);
    pthread_mutex_init(&tcp->later_lock, NULL);
    tcp->pid = tcp->server_pid = getpid();
    store->timeout = timeout;
    store->port = o.port;
    yk_status status = yk__identity_init(&tcp->identity, service, o.secret, o.secret_size, o.job_id);
    tcp->later = blame != NULL;
    tcp->blame = blame;
    if (!status && tcp->later && !(tcp->host = yk__strdup(o.host)))
        status = YK_ERR_MEMORY;
    if (!status && !tcp->later)
        status = o.is_server ? server_run(tcp, &o) : tcp_store_join(tcp, o.host, o.port, false, timeout);
    if (status) {
        yk_store_release(store);
        return NULL;
    }
    return yk__scope_own(store);
}

void yk__tcp_store_guide(yk_store *store, yk_store *guide)
{
    tcp_store *tcp = (tcp_store *)store;
    tcp->guide = yk_store_retain(guide);
}

yk_store *yk_tcp_store(const yk_tcp_store_options *options)
{
    return tcp_store_create("store", options, NULL);
}

yk_store *yk__tcp_store_later(const yk_tcp_store_options *options, const char *blame)
{
    return tcp_store_create("store", options, blame);
}

yk_store *yk__tcp_store_of_service(const char *service, const yk_tcp_store_options *options, const char *blame)
{
    return tcp_store_create(service, options, blame);
}
