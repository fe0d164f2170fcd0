/*
 * store_lists_test.c - the requests of the TCP store that launchers use: lists, values that are awaited while other
 * requests go on, and leases.
 */
#include "tests/support/expect.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "net/store_server.h"
#include "net/store_session.h"
#include "tests/support/machine.h"

typedef struct client {
    int fd;
    yk__channel channel;
} client;

static yk__identity identity;
static yk__store_server *server;
static yk__address bound;
static char turned_away[YK__WHY_SIZE];
static atomic_int refusals;

static void refused(void *arg, const char *why)
{
    snprintf(arg, YK__WHY_SIZE, "%s", why);
    atomic_fetch_add(&refusals, 1);
}

static int start(void **state)
{
    (void)state;
    yk__address any = {.size = sizeof(struct sockaddr_in)};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&any.storage;
    v4->sin_family = AF_INET;
    v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    expect_ok(yk__identity_init(&identity, "launch", "0123456789abcdef", 16, "job"));
    const yk__store_server_options options =
        *YK_OPTIONS(yk__store_server_options, .patience = 10, .refused = refused, .arg = turned_away);
    server = yk__store_server_start(&any, &identity, &options, &bound);
    return !server;
}

static int stop(void **state)
{
    (void)state;
    yk__store_server_stop(server);
    yk__identity_clear(&identity);
    return 0;
}

/* A connected client; requests that are queued before it opens follow the proof. */
static void connect_client(client *c)
{
    yk__reason reason;
    char why[YK__WHY_SIZE];
    c->fd = yk__connect(&bound, yk__now() + patience(10), &reason, why);
    assert_true(c->fd >= 0);
    yk__channel_init(&c->channel, &identity, false, YK__REQUEST_LIMIT);
}

static void close_client(client *c)
{
    yk__socket_close(c->fd);
    yk__channel_clear(&c->channel);
}

static void put(client *c, unsigned type, const char *key, const char *value)
{
    yk__channel_begin(&c->channel, type);
    yk__wire_put_key(&c->channel.message, key, strlen(key));
    if (value)
        yk__wire_put_value(&c->channel.message, value, strlen(value));
    yk__channel_end(&c->channel);
}

static void put_lease(client *c, const char *key, const char *ended, const char *silent, uint32_t milliseconds)
{
    yk__channel_begin(&c->channel, YK__LEASE);
    yk__wire_put_key(&c->channel.message, key, strlen(key));
    yk__wire_put_value(&c->channel.message, ended, strlen(ended));
    yk__wire_put_value(&c->channel.message, silent, strlen(silent));
    yk__wire_put_value(&c->channel.message, "damaged: ", 9);
    yk__wire_put_u32(&c->channel.message, milliseconds);
    yk__channel_end(&c->channel);
}

static unsigned take(client *c, yk__reader *reply)
{
    unsigned type = 0;
    assert_int_equal(yk__channel_wait_message(&c->channel, c->fd, yk__now() + patience(20), &type, reply), YK__REACHED);
    return type;
}

static void expect_number(client *c, int64_t number)
{
    yk__reader reply;
    assert_int_equal(take(c, &reply), YK__DONE);
    assert_int_equal(yk__read_u64(&reply), number);
    assert_true(yk__read_finished(&reply));
}

static void expect_done(client *c)
{
    yk__reader reply;
    assert_int_equal(take(c, &reply), YK__DONE);
    assert_true(yk__read_finished(&reply));
}

static void expect_arrived(client *c, const char *value)
{
    yk__reader reply;
    assert_int_equal(take(c, &reply), YK__ARRIVED);
    size_t size = yk__read_u32(&reply);
    const unsigned char *bytes = yk__read_bytes(&reply, size);
    assert_true(yk__read_finished(&reply));
    assert_int_equal(size, strlen(value));
    assert_memory_equal(bytes, value, size);
}

static void expect_closed(client *c)
{
    unsigned type;
    yk__reader reply;
    assert_int_equal(yk__channel_wait_message(&c->channel, c->fd, yk__now() + patience(20), &type, &reply), YK__LOST);
}

/* Values are numbered in the order in which they came, whoever sent them; all before the connection is open. */
static void lists(void **state)
{
    (void)state;
    client a, b;
    connect_client(&a);
    connect_client(&b);
    put(&a, YK__PUSH, "list", "one");
    put(&a, YK__PUSH, "list", "two");
    expect_number(&a, 1);
    expect_number(&a, 2);
    put(&b, YK__PUSH, "list", "three");
    expect_number(&b, 3);
    static const char *const keys[] = {"list/1", "list/2", "list/3", "list"}, *const values[] = {"one", "two", "three",
                                                                                                 "3"};
    for (int i = 0; i < 4; i++) {
        put(&b, YK__AWAIT, keys[i], NULL);
        expect_arrived(&b, values[i]);
    }
    put(&a, YK__SET, "text", "no number");
    expect_done(&a);
    put(&a, YK__PUSH, "text", "x");
    yk__reader reply;
    assert_int_equal(take(&a, &reply), YK__FAILED);
    assert_int_equal(yk__read_u8(&reply), YK__FAILED_ARGUMENT);
    close_client(&a);
    close_client(&b);
}

/* Other requests go on while a value is awaited, and have their replies first. */
static void awaiting(void **state)
{
    (void)state;
    client a, b;
    connect_client(&a);
    connect_client(&b);
    put(&a, YK__AWAIT, "later/1", NULL);
    put(&a, YK__SET, "other", "x");
    put(&a, YK__PUSH, "elsewhere", "y");
    yk__channel_send(&a.channel, YK__RENEW, NULL, 0);
    expect_done(&a);
    expect_number(&a, 1);
    expect_done(&a);
    put(&b, YK__PUSH, "later", "now");
    expect_number(&b, 1);
    expect_arrived(&a, "now");
    /* A client that awaits two values at once, or waits in another way meanwhile, breaks the rules. */
    static const unsigned kinds[] = {YK__AWAIT, YK__GET, YK__WAIT, YK__WATCH, YK__GATHER};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        client c;
        connect_client(&c);
        put(&c, YK__AWAIT, "never/1", NULL);
        put(&c, kinds[i], "never/2", NULL);
        expect_closed(&c);
        close_client(&c);
    }
    /* It can be taken back. */
    put(&a, YK__AWAIT, "never/3", NULL);
    yk__channel_send(&a.channel, YK__CANCEL, NULL, 0);
    yk__reader reply;
    assert_int_equal(take(&a, &reply), YK__TIMED_OUT);
    put(&a, YK__AWAIT, "other", NULL);
    expect_arrived(&a, "x");
    close_client(&a);
    close_client(&b);
}

/* The value that a client left for its end is pushed at its end, or when it falls silent: once. */
static void leases(void **state)
{
    (void)state;
    client watcher, ends, silent;
    connect_client(&watcher);
    put(&watcher, YK__AWAIT, "ends/1", NULL);
    connect_client(&ends);
    put_lease(&ends, "ends", "a ended", "a silent", 0);
    expect_done(&ends);
    close_client(&ends);
    expect_arrived(&watcher, "a ended");
    connect_client(&silent);
    put_lease(&silent, "ends", "b ended", "b silent", 600);
    expect_done(&silent);
    put(&watcher, YK__AWAIT, "ends/2", NULL);
    yk__channel_flush(&watcher.channel, watcher.fd);
    for (int i = 0; i < 8; i++) { /* 1.2 s, twice as long as the lease */
        assert_false(yk__wait_fd(watcher.fd, POLLIN, yk__now() + 0.15));
        yk__channel_send(&silent.channel, YK__RENEW, NULL, 0);
        expect_done(&silent);
    }
    double begin = yk__now();
    expect_arrived(&watcher, "b silent");
    assert_true(yk__now() - begin > 0.4);
    put(&silent, YK__SET, "alive", "still"); /* the connection goes on */
    expect_done(&silent);
    close_client(&silent);
    put(&watcher, YK__AWAIT, "ends/3", NULL);
    yk__channel_flush(&watcher.channel, watcher.fd);
    assert_false(yk__wait_fd(watcher.fd, POLLIN, yk__now() + 0.3));
    close_client(&watcher);
    client twice;
    connect_client(&twice);
    put_lease(&twice, "twice", "x", "y", 0);
    expect_done(&twice);
    put_lease(&twice, "twice", "x", "y", 0);
    expect_closed(&twice);
    close_client(&twice);
}

/* The value that is awaited: the connection is damaged, from where to where. */
static void expect_damage(client *watcher, const char *from, const char *to)
{
    yk__reader reply;
    char expected[3 * YK__ADDRESS_TEXT];
    assert_int_equal(take(watcher, &reply), YK__ARRIVED);
    yk__read_u32(&reply);
    const unsigned char *head = yk__read_bytes(&reply, 9);
    assert_non_null(head);
    assert_memory_equal(head, "damaged: ", 9);
    size_t size = yk__read_u32(&reply);
    const char *text = (const char *)yk__read_bytes(&reply, size);
    assert_true(yk__read_finished(&reply));
    int length =
        snprintf(expected, sizeof(expected), "the connection from %s to %s damages what is sent over it: ", from, to);
    assert_true(size > (size_t)length);
    assert_memory_equal(text, expected, (size_t)length);
    for (size_t i = 0; i < size; i++)
        assert_true(text[i] >= ' '); /* as it may reach a terminal */
}

/* The lease of a connection that damages bytes says so, and names both ends: for bytes from the client as the server
 * finds, and for bytes from the server as the client says with its last message. */
static void damage(void **state)
{
    (void)state;
    for (int at_client = 0; at_client < 2; at_client++) {
        client watcher, c;
        char list[16], key[20], ends[2][YK__ADDRESS_TEXT];
        yk__address near = {.size = sizeof(near.storage)};
        snprintf(list, sizeof(list), "damage%d", at_client);
        snprintf(key, sizeof(key), "%s/1", list);
        connect_client(&watcher);
        put(&watcher, YK__AWAIT, key, NULL);
        connect_client(&c);
        assert_int_equal(getsockname(c.fd, (struct sockaddr *)&near.storage, &near.size), 0);
        yk__address_format(&near, ends[0]);
        yk__address_format(&bound, ends[1]);
        put_lease(&c, list, "ended", "silent", 0);
        expect_done(&c);
        if (at_client) {
            yk__channel_send(&c.channel, YK__BROKEN, "frame 3 \x1b[2J", 11);
        } else {
            put(&c, YK__SET, "k", "value");
            c.channel.out.data[c.channel.out.size - 1] ^= 1;
        }
        assert_int_equal(yk__channel_wait_sent(&c.channel, c.fd, yk__now() + patience(10)), YK__REACHED);
        expect_damage(&watcher, ends[at_client], ends[1 - at_client]);
        yk__reader reply;
        if (!at_client)
            assert_int_equal(take(&c, &reply), YK__REPLY_DAMAGED);
        expect_closed(&c);
        close_client(&c);
        close_client(&watcher);
    }
}

/* The server's owner hears why a peer was turned away; not of one that does not speak the protocol. */
static void strangers(void **state)
{
    (void)state;
    yk__identity other;
    yk__reason reason;
    char why[YK__WHY_SIZE];
    expect_ok(yk__identity_init(&other, "launch", "fedcba9876543210", 16, "job"));
    int garbage = yk__connect(&bound, yk__now() + patience(10), &reason, why);
    assert_int_equal(write(garbage, "GET / HTTP/1.0\r\n\r\n", 18), 18);
    assert_true(yk__wait_fd(garbage, POLLIN, yk__now() + patience(10))); /* closed */
    int fd = yk__connect(&bound, yk__now() + patience(10), &reason, why);
    assert_int_equal(yk__handshake_run(fd, &other, false, yk__now() + patience(10), NULL, why), YK__REJECTED);
    for (double until = yk__now() + patience(10); !atomic_load(&refusals) && yk__now() < until;)
        usleep(1000);
    assert_int_equal(atomic_load(&refusals), 1);
    assert_non_null(strstr(turned_away, "wrong secret"));
    yk__socket_close(garbage);
    yk__socket_close(fd);
    yk__identity_clear(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lists), cmocka_unit_test(awaiting), cmocka_unit_test(leases),
                                       cmocka_unit_test(damage), cmocka_unit_test(strangers)};
    return cmocka_run_group_tests_name("lists and leases of the TCP store", tests, start, stop);
}
