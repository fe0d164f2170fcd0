/*
 * rpc_stranger_test.c - whoever comes to a worker's own port: noise, peers of another job or none, what was recorded
 * from the network and is sent again, bytes that are changed on their way, and peers that have the secret and send what
 * no worker sends. Nothing of it runs a function, none gets an answer that it may not have, and the worker goes on.
 *
 * Worker w1 serves; w0 is the stranger, and calls it between, which shows that it goes on, and how many calls it has
 * run. What is done to the bytes of a call is done by a wire between the two: a thread of w0, which has it call w1 at
 * the thread's address.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "tests/rpc/workers.h"

#include "rpc/rpc_agent.h"

/* ---- the worker -------------------------------------------------------------------------------------------------- */

static atomic_int runs;

static yk_status count_run(yk_call *call)
{
    (void)call;
    runs++;
    return YK_OK;
}

static yk_status runs_so_far(yk_call *call)
{
    return yk_call_return(call, yk_value_int(runs));
}

/* Counts, and gives back what it got. */
static yk_status give_back(yk_call *call)
{
    runs++;
    return yk_call_return(call, yk_call_argument(call, 0));
}

static yk_status offer(void)
{
    yk_status status = yk_rpc_register("count", count_run);
    status = status ? status : yk_rpc_register("give_back", give_back);
    return status ? status : yk_rpc_register("runs", runs_so_far);
}

/* The worker is taken for alive again, whatever its connections have come to. */
static void revive(void)
{
    pthread_mutex_lock(&yk__rpc.lock);
    for (int i = 0; i < yk__rpc.member_count; i++)
        yk__rpc.members[i].gone = false;
    pthread_mutex_unlock(&yk__rpc.lock);
}

/* The address at which this process calls w1. */
static void call_at(const yk__address *address)
{
    pthread_mutex_lock(&yk__rpc.lock);
    for (int i = 0; i < yk__rpc.member_count; i++)
        if (strcmp(yk__rpc.members[i].name, "w1") == 0)
            yk__rpc.members[i].address = *address;
    pthread_mutex_unlock(&yk__rpc.lock);
}

/* The connection to w1, if there is one, is closed. */
static void disconnect(void)
{
    yk__rpc_lock();
    for (yk__rpc_link *link = yk__rpc.links, *next; link; link = next) {
        next = link->next;
        if (!link->accepted)
            yk__rpc_link_end(link, "the test closes it");
    }
    pthread_mutex_unlock(&yk__rpc.lock);
    revive();
}

static yk__address real;

/* w1 answers, and has run its functions so many times. */
static yk_status is_well(int expected)
{
    disconnect();
    call_at(&real);
    yk_value *there = yk_rpc_sync("w1", "runs", NULL, NULL);
    CHECK(there);
    if (yk_value_as_int(there) != expected)
        return yk_set_error(YK_ERR_CALLBACK, "w1 has run its functions %d times, and not %d",
                            (int)yk_value_as_int(there), expected);
    return YK_OK;
}

/* ---- noise ------------------------------------------------------------------------------------------------------- */

static int knock(void)
{
    yk__reason reason;
    char why[YK__WHY_SIZE];
    return yk__connect(&real, yk__now() + patience(10), &reason, why);
}

/* Sends bytes as far as they are taken and reads until the other side closes: the bytes that it sent; -1: it did not
 * close. */
static int64_t exchange(const void *bytes, size_t size, bool ends)
{
    char in[4096];
    size_t sent = 0;
    int64_t received = 0;
    int fd = knock();
    bool open = fd >= 0;
    for (double until = yk__now() + patience(10); open && yk__now() < until;) {
        struct pollfd p = {.fd = fd, .events = (short)(POLLIN | (sent < size ? POLLOUT : 0))};
        poll(&p, 1, 100);
        ssize_t n = sent < size ? send(fd, (const char *)bytes + sent, size - sent, MSG_NOSIGNAL) : 0;
        sent += n > 0 ? (size_t)n : 0;
        sent = n < 0 && errno != EAGAIN ? size : sent; /* it takes no more */
        if (sent == size && ends)
            shutdown(fd, SHUT_WR);
        n = recv(fd, in, sizeof(in), 0);
        received += n > 0 ? n : 0;
        open = n > 0 || (n < 0 && errno == EAGAIN);
    }
    yk__socket_close(fd);
    return open ? -1 : received;
}

static yk_status send_noise(void)
{
    static unsigned char noise[1 << 16];
    static const struct {
        const char *bytes;
        size_t size;
    } begins[] = {{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 26},
                  {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11},
                  {"yoke\xff\xff\xff\xff", 8},
                  {"yoke\x01\x00\x00\x00\x00", 9},
                  {"\0\0\0\0\0\0\0\0", 8},
                  {"SSH-2.0-x\r\n", 11}};
    for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++)
        CHECK(exchange(begins[i].bytes, begins[i].size, true) == 0);
    uint32_t x = 1;
    for (size_t i = 0; i < sizeof(noise); i++)
        noise[i] = (unsigned char)((x = x * 1664525u + 1013904223u) >> 24);
    noise[0] = 'z';
    CHECK(exchange(noise, sizeof(noise), false) == 0); /* it is closed while more comes */
    memcpy(noise, "yoke", 4);
    CHECK(exchange(noise, sizeof(noise), false) == 0);
    CHECK(exchange(noise, 0, true) == 0);
    CHECK(exchange("yo", 2, true) == 0);
    return is_well(0);
}

/* ---- peers of another job ---------------------------------------------------------------------------------------- */

/* A hello, a HELLO and a call with this identity; the end of it. */
static yk_status call_as(const yk__identity *identity, yk__reason *end, char why[YK__WHY_SIZE])
{
    yk__channel c;
    unsigned type = 0;
    yk__reader r;
    int fd = knock();
    CHECK(fd >= 0);
    yk__channel_init(&c, identity, false, YK__RPC_PART);
    yk__channel_begin(&c, YK__RPC_HELLO);
    yk__wire_put_u32(&c.message, yk__rpc.index);
    yk__wire_put_u32(&c.message, 2);
    yk__wire_put_text8(&c.message, "w0");
    yk__wire_put_u8(&c.message, 0);
    yk__wire_put_u64(&c.message, 1 << 20);
    yk__channel_end(&c);
    *end = yk__channel_wait_message(&c, fd, yk__now() + patience(10), &type, &r);
    snprintf(why, YK__WHY_SIZE, "%s", c.why);
    yk__channel_clear(&c);
    yk__socket_close(fd);
    return YK_OK;
}

static yk_status come_from_elsewhere(void)
{
    char why[YK__WHY_SIZE];
    yk__reason end;
    yk__identity other = yk__rpc.identity;
    CHECK(!call_as(&other, &end, why) && end == YK__REACHED); /* the test's own way of calling is right */
    other.key[7] ^= 1;
    CHECK(!call_as(&other, &end, why) && end == YK__REJECTED && strstr(why, "wrong secret"));
    CHECK(!yk__identity_init(&other, "rpc", "", 0, yk__rpc.identity.job) && !other.has_secret);
    CHECK(!call_as(&other, &end, why) && end == YK__REJECTED && strstr(why, "wrong secret"));
    other = yk__rpc.identity;
    snprintf(other.job, sizeof(other.job), "another job");
    CHECK(!call_as(&other, &end, why) && end == YK__REJECTED && strstr(why, "wrong job"));
    other = yk__rpc.identity;
    snprintf(other.service, sizeof(other.service), "store");
    CHECK(!call_as(&other, &end, why) && end == YK__REJECTED && strstr(why, "wrong service"));
    return is_well(0);
}

/* ---- a wire between the two -------------------------------------------------------------------------------------- */

enum deed {
    NOTHING,
    RECORD,      /* keep what the caller sends */
    REPEAT,      /* send the call's frame twice */
    LEAVE_OUT,   /* leave the call's frame out */
    REFLECT,     /* send the caller's frame back to it, as if it were the answer */
    CHANGE_CALL, /* change a byte of the contents of a large frame of the caller */
    CHANGE_HEAD, /* and of its header */
    CHANGE_REPLY /* change a byte of the contents of a large frame of the worker */
};

enum { SMALL = 300, KEPT = 1 << 17 }; /* bytes of a frame that is large; bytes that are kept */

/* Bytes of one direction. */
typedef struct side {
    unsigned char *bytes; /* what came and was not sent on */
    size_t size, room;
    int messages; /* of the hand-shake that were sent on; frames follow */
    int frames;
} side;

static struct wire {
    pthread_t thread;
    int listening;
    yk__address address;
    _Atomic enum deed deed;
    atomic_bool done; /* the deed */
    unsigned char kept[KEPT];
    atomic_size_t kept_size;
} wire;

/* The size of the next message of the hand-shake (hello, then one with its size before it) or frame; 0: it is not whole
 * yet. */
static size_t next_size(const side *s)
{
    size_t size = 0;
    if (s->messages == 0)
        size = s->size >= 8 ? 8 + (size_t)yk__load_u32(s->bytes + 4) : SIZE_MAX;
    else if (s->messages == 1)
        size = s->size >= 4 ? 4 + (size_t)yk__load_u32(s->bytes) : SIZE_MAX;
    else
        size = s->size >= YK__FRAME_HEADER ? YK__FRAME_HEADER + (size_t)yk__load_u32(s->bytes) : SIZE_MAX;
    return size <= s->size ? size : 0;
}

static void send_whole(int fd, const void *bytes, size_t size)
{
    char why[YK__WHY_SIZE];
    (void)yk__send_all(fd, bytes, size, yk__now() + patience(10), why);
}

/* Sends one message on, with what is done to it. */
static void pass_on(side *s, size_t size, bool caller, int from, int to)
{
    bool frame = s->messages == 2, large = frame && size > YK__FRAME_HEADER + SMALL;
    /* The first frame of a caller is its HELLO; the next one is the first call's. */
    bool call = frame && caller && s->frames == 1;
    int times = 1;
    if (wire.deed == RECORD && caller && wire.kept_size + size <= KEPT) {
        memcpy(wire.kept + wire.kept_size, s->bytes, size);
        wire.kept_size += size;
        wire.done = true;
    }
    if (!wire.done && call && wire.deed == REPEAT)
        times = 2;
    if (!wire.done && call && wire.deed == LEAVE_OUT)
        times = 0;
    bool reflect = !wire.done && call && wire.deed == REFLECT;
    times = reflect ? 0 : times;
    bool change = (wire.deed == CHANGE_CALL && large && caller) || (wire.deed == CHANGE_REPLY && large && !caller) ||
                  (wire.deed == CHANGE_HEAD && call);
    change = change && !wire.done;
    if (change)
        s->bytes[wire.deed == CHANGE_HEAD ? 4 : size - 100] ^= 0x10;
    wire.done = wire.done || change || times != 1; /* before anybody can see it */
    if (reflect)
        send_whole(from, s->bytes, size);
    for (int i = 0; i < times; i++)
        send_whole(to, s->bytes, size);
    *(frame ? &s->frames : &s->messages) += 1;
    memmove(s->bytes, s->bytes + size, s->size - size);
    s->size -= size;
}

/* Takes what is there; false at the end. */
static bool take(side *s, int fd)
{
    char why[YK__WHY_SIZE];
    size_t done = 0;
    if (s->room - s->size < 65536) {
        s->room = 2 * s->room + 65536;
        s->bytes = realloc(s->bytes, s->room);
    }
    yk__reason state = yk__receive_some(fd, s->bytes + s->size, s->room - s->size, &done, why);
    s->size += done;
    return state != YK__LOST;
}

/* Connections one after the other, until the listening socket is shut. */
static void *wire_run(void *arg)
{
    (void)arg;
    for (int near; (near = accept4(wire.listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        int far = knock();
        side sides[2] = {{0}, {0}}; /* of the caller, of the worker */
        bool open = far >= 0;
        while (open) {
            struct pollfd both[2] = {{.fd = near, .events = POLLIN}, {.fd = far, .events = POLLIN}};
            poll(both, 2, -1);
            for (int i = 0; i < 2; i++) {
                if (both[i].revents)
                    open = take(&sides[i], both[i].fd) && open;
                for (size_t size; (size = next_size(&sides[i]));)
                    pass_on(&sides[i], size, i == 0, both[i].fd, both[!i].fd);
            }
        }
        for (int i = 0; i < 2; i++) {
            send_whole(i ? near : far, sides[i].bytes, sides[i].size);
            free(sides[i].bytes);
        }
        yk__socket_close(near);
        yk__socket_close(far);
    }
    return NULL;
}

static yk_status wire_begin(void)
{
    yk__address any = real;
    yk__address_set_port(&any, 0);
    wire.listening = yk__listen(&any, 4, &wire.address);
    CHECK(wire.listening >= 0);
    int flags = fcntl(wire.listening, F_GETFL);
    CHECK(fcntl(wire.listening, F_SETFL, flags & ~O_NONBLOCK) == 0);
    CHECK(pthread_create(&wire.thread, NULL, wire_run, NULL) == 0);
    return YK_OK;
}

static void wire_end(void)
{
    disconnect();
    shutdown(wire.listening, SHUT_RDWR);
    pthread_join(wire.thread, NULL);
    yk__socket_close(wire.listening);
}

/* The next calls go by way of the wire, which does this once. */
static void wire_do(enum deed deed)
{
    disconnect();
    wire.deed = deed;
    wire.done = false;
    call_at(&wire.address);
}

/* The bytes of a caller, hand-shake and call, are sent again: they are refused at the second message, as a proof is
 * good for one connection, and all that follows is not looked at. */
static yk_status send_again(void)
{
    wire_do(RECORD);
    CHECK(yk_rpc_sync("w1", "count", NULL, NULL));
    disconnect();
    CHECK(wire.kept_size > 300 && !is_well(1));
    size_t hello = YK__HELLO_SIZE, proof = hello + 4 + yk__load_u32(wire.kept + hello);
    int64_t first = exchange(wire.kept, hello, true), whole = exchange(wire.kept, wire.kept_size, true);
    CHECK(first >= YK__HELLO_SIZE && whole >= YK__HELLO_SIZE && whole < 2 * YK__HELLO_SIZE);
    CHECK(exchange(wire.kept, proof, true) == whole);
    CHECK(exchange(wire.kept + hello, wire.kept_size - hello, false) == 0); /* without a beginning */
    CHECK(exchange(wire.kept + proof, wire.kept_size - proof, false) == 0);
    return is_well(1);
}

/* Within a connection, a frame that comes twice, is missing, or comes back, ends it. */
static yk_status change_the_order(int *expected)
{
    static const enum deed deeds[] = {REPEAT, LEAVE_OUT, REFLECT, CHANGE_HEAD};
    for (int i = 0; i < 4; i++) {
        wire_do(deeds[i]);
        yk_scope scope = yk_scope_begin();
        yk_future *first = yk_rpc_async("w1", "count", NULL, NULL);
        if (deeds[i] == LEAVE_OUT) /* which shows by the frame that follows */
            (void)yk_rpc_async("w1", "count", NULL, NULL);
        yk_clear_error();
        yk_value *result = first ? yk_future_wait(first, patience(20)) : NULL;
        CHECK(first && wire.done && (!result || deeds[i] == REPEAT));
        CHECK(result || failed_with(YK_ERR_CONNECTION, "worker 'w1'", "it may have run"));
        yk_scope_end(scope);
        /* The first of two is a call as any, which runs unless the second ends the connection before. */
        *expected += deeds[i] == REPEAT && (result || is_well(*expected));
        yk_clear_error();
        CHECK(!is_well(*expected));
    }
    return YK_OK;
}

/* A changed byte among those of a tensor is found, in a call, which does not run, and in an answer. */
static yk_status change_bytes(int *expected)
{
    yk_value *args = yk_args(yk_value_tensor(yk_to(yk_arange(0, 50000, 1, NULL), (yk_device){YK_CPU, 0})));
    yk_rpc_options *soon = YK_OPTIONS(yk_rpc_options, .timeout = patience(20));
    wire_do(NOTHING);
    yk_value *back = yk_rpc_sync("w1", "give_back", args, NULL);
    CHECK(back && yk_get(yk_value_as_tensor(back), (int64_t[]){49999}) == 49999 && !is_well(++*expected));
    static const enum deed deeds[] = {CHANGE_CALL, CHANGE_REPLY};
    for (int i = 0; i < 2; i++) {
        wire_do(deeds[i]);
        CHECK(!yk_rpc_sync("w1", "give_back", args, soon) && wire.done);
        /* Some parts of a call may have been on their way. */
        CHECK(failed_with(YK_ERR_CONNECTION, "worker 'w1'", deeds[i] == CHANGE_CALL ? "run" : "it may have run"));
        *expected += deeds[i] == CHANGE_REPLY;
        CHECK(!is_well(*expected));
    }
    return YK_OK;
}

/* ---- peers that have the secret ---------------------------------------------------------------------------------- */

/* A connection that is open and greeted. */
static yk_status greet(yk__channel *c, int *fd, uint32_t wanted)
{
    unsigned type = 0;
    yk__reader r;
    *fd = knock();
    CHECK(*fd >= 0);
    yk__channel_init(c, &yk__rpc.identity, false, YK__RPC_PART);
    yk__channel_begin(c, YK__RPC_HELLO);
    yk__wire_put_u32(&c->message, 99); /* a number that no worker has: nobody is to be taken for gone by its end */
    yk__wire_put_u32(&c->message, wanted);
    yk__wire_put_text8(&c->message, "hostile");
    yk__wire_put_u8(&c->message, 0);
    yk__wire_put_u64(&c->message, 1 << 20);
    yk__channel_end(c);
    CHECK(yk__channel_wait_message(c, *fd, yk__now() + patience(10), &type, &r) == YK__REACHED);
    CHECK(type == YK__RPC_WELCOME);
    return YK_OK;
}

/* A CALL of a function, up to its arguments. */
static void call_put(yk__channel *c, uint64_t number, const char *name)
{
    yk__channel_begin(c, YK__RPC_CALL);
    yk__wire_put_u64(&c->message, number);
    yk__wire_put_u8(&c->message, YK__RPC_FUNCTION);
    yk__wire_put_u64(&c->message, 0);
    yk__wire_put_u32(&c->message, 60000);
    yk__wire_put_u8(&c->message, 1);
    yk__wire_put_text8(&c->message, name);
    yk__wire_put_text8(&c->message, "");
    yk__wire_put_u8(&c->message, 0); /* nobody waits for it */
    yk__wire_put_u64(&c->message, 0);
    yk__wire_put_u32(&c->message, 0);
    yk__wire_put_u64(&c->message, 0);
    yk__wire_put_u64(&c->message, 0); /* a head of nothing */
}

static void list_put(yk__channel *c, uint32_t count)
{
    yk__wire_put_u8(&c->message, 7);
    yk__wire_put_u32(&c->message, count);
}

/* The text of the error that answers the call; "": there is a result; NULL: the connection ended. */
static const char *answer_text(yk__channel *c, int fd)
{
    static char text[600];
    unsigned type = 0;
    yk__reader r;
    if (yk__channel_wait_message(c, fd, yk__now() + patience(10), &type, &r) != YK__REACHED || type != YK__RPC_REPLY)
        return NULL;
    (void)yk__read_u64(&r);
    if (yk__read_u8(&r))
        return "";
    (void)yk__read_u32(&r);
    (void)yk__read_u8(&r);
    (void)yk__read_u32(&r);
    (void)yk__read_bytes(&r, yk__read_u8(&r));
    snprintf(text, sizeof(text), "%.*s", (int)(r.end - r.at), (const char *)r.at);
    return text;
}

static void part_put(yk__channel *c, uint64_t parcel, uint64_t whole, unsigned type)
{
    yk__channel_begin(c, YK__RPC_PART_OF);
    yk__wire_put_u64(&c->message, parcel);
    yk__wire_put_u64(&c->message, whole);
    yk__wire_put_u8(&c->message, type);
    yk__wire_put(&c->message, "some of it", 10);
    yk__channel_end(c);
}

/* Calls that are answered by an error: arguments that are nested too deep, or claim more than there is. */
static yk_status send_bad_arguments(void)
{
    yk__channel c;
    int fd;
    CHECK(!greet(&c, &fd, 2));
    call_put(&c, 1, "count");
    list_put(&c, 0);
    yk__channel_end(&c);
    const char *answer = answer_text(&c, fd);
    CHECK(answer && !*answer); /* the test's way of calling is right */
    static const int depths[] = {201, 250, 20000};
    for (int i = 0; i < 3; i++) {
        call_put(&c, 2 + (uint64_t)i, "count");
        for (int k = 0; k < depths[i]; k++)
            list_put(&c, 1);
        yk__wire_put_u8(&c.message, 1);
        yk__channel_end(&c);
        answer = answer_text(&c, fd);
        CHECK(answer && strstr(answer, "containers that are nested too deep"));
    }
    call_put(&c, 9, "count");
    list_put(&c, UINT32_MAX);
    yk__channel_end(&c);
    answer = answer_text(&c, fd);
    CHECK(answer && strstr(answer, "larger than the message"));
    yk__channel_clear(&c);
    yk__socket_close(fd);
    return YK_OK;
}

/* Messages that end the connection of who sends them. */
static yk_status send_nonsense(void)
{
    enum { AS_ANOTHER, UNKNOWN, REPLY_OF_CALLER, HUGE_PART, PARTS, MANY_CALLS, NO_CALL, KINDS };
    for (int kind = 0; kind < KINDS; kind++) {
        yk__channel c;
        yk__reader r;
        unsigned type = 0;
        int fd;
        CHECK(!greet(&c, &fd, kind == AS_ANOTHER ? 7 : 2));
        if (kind == UNKNOWN)
            yk__channel_send(&c, 77, "what", 4);
        if (kind == REPLY_OF_CALLER)
            yk__channel_send(&c, YK__RPC_REPLY, "\1\0\0\0\0\0\0\0\1", 9);
        if (kind == HUGE_PART)
            part_put(&c, 1, (uint64_t)yk__rpc.max_message + 1, YK__RPC_CALL);
        for (uint64_t i = 1; kind == PARTS && i <= 65; i++)
            part_put(&c, i, 1 << 20, YK__RPC_CALL);
        for (uint64_t i = 1; kind == MANY_CALLS && i <= 3 * YK__RPC_MOST_CALLS; i++) {
            call_put(&c, i, "nap");
            list_put(&c, 0);
            yk__channel_end(&c);
        }
        if (kind == NO_CALL)
            yk__channel_send(&c, YK__RPC_CALL, "\1\2\3", 3);
        yk__reason end = YK__REACHED;
        for (double until = yk__now() + patience(20); end == YK__REACHED && yk__now() < until;)
            end = yk__channel_wait_message(&c, fd, until, &type, &r);
        CHECK(end == YK__LOST);
        yk__channel_clear(&c);
        yk__socket_close(fd);
    }
    return YK_OK;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static yk_status nap(yk_call *call)
{
    for (double until = yk__now() + patience(20); !yk_call_cancelled(call) && yk__now() < until;)
        usleep(1000);
    return YK_OK;
}

static yk_status offer_all(void)
{
    yk_status status = offer();
    return status ? status : yk_rpc_register("nap", nap);
}

static yk_status be_strange(void)
{
    yk__rpc_member m;
    int expected = 1;
    CHECK(!yk__rpc_member_find("test", "w1", 0, &m) && m.index == 2);
    real = m.address;
    CHECK(yk__rpc.identity.has_secret && !is_well(0));
    CHECK(!send_noise() && !come_from_elsewhere());
    CHECK(!wire_begin() && !send_again()); /* a call that was recorded */
    CHECK(!change_the_order(&expected) && !change_bytes(&expected));
    wire_end();
    CHECK(!send_bad_arguments() && !is_well(++expected));
    CHECK(!send_nonsense());
    return is_well(expected);
}

static yk_status stranger(int rank, const char *path)
{
    yk_scope scope = yk_scope_begin();
    if (rank == 1)
        CHECK(!await_key(path, "w0 is there")); /* it is the first to join, and so number 1 */
    yk_status status;
    if (rank == 0) {
        CHECK(!join_with(offer_all, path, "w0", 1));
        CHECK(!yk_store_set(yk_file_store(path), "w0 is there", "1", 1) && !yk_rpc_wait_for("w1", patience(20)));
        status = be_strange();
    } else {
        status = join_with(offer_all, path, "w1", 2);
    }
    status = status ? status : yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(20));
    yk_scope_end(scope);
    return status;
}

static void with_secret(void)
{
    char path[] = "/tmp/yoke-stranger-XXXXXX", secret[] = "/tmp/yoke-secret-XXXXXX";
    int fd = mkstemp(secret);
    assert_int_equal(write(fd, "a secret that nobody else has, of this test\n", 44), 44);
    close(fd);
    close(mkstemp(path));
    setenv("YOKE_JOB_SECRET_FILE", secret, 1);
    setenv("YOKE_SHARED_MEMORY", "0", 1);
    pid_t pids[2];
    fork_workers(stranger, path, 2, pids);
    expect_end(pids[0], 0);
    expect_end(pids[1], 0);
    unsetenv("YOKE_SHARED_MEMORY");
    unsetenv("YOKE_JOB_SECRET_FILE");
    unlink(path);
    unlink(secret);
}

static void test_authenticated(void **state)
{
    (void)state;
    with_secret();
}

static void test_encrypted(void **state)
{
    (void)state;
    setenv("YOKE_ENCRYPT", "1", 1);
    with_secret();
    unsetenv("YOKE_ENCRYPT");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_authenticated),
        cmocka_unit_test(test_encrypted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
