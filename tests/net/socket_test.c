/* socket_test.c - addresses, reasons of failure, deadlines. */
#include "tests/support/expect.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

#include "net/handshake.h"
#include "tests/support/machine.h"

static void parsing(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host;
        int fallback, port;
    } good[] = {
        {"node0:29500", "node0", -1, 29500}, {"10.0.0.1:1", "10.0.0.1", -1, 1}, {"[::1]:80", "::1", -1, 80},
        {"[fe80::2]", "fe80::2", 7, 7},      {"node0", "node0", 5, 5},          {"node0:0", "node0", 5, 0},
    };
    char host[YK__HOST_SIZE];
    int port;
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        expect_ok(yk__host_port_parse(good[i].text, good[i].fallback, host, &port));
        assert_string_equal(host, good[i].host);
        assert_int_equal(port, good[i].port);
    }
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"node0", "address 'node0': expected host:port"},
        {":80", "there is no host in it"},
        {"", "there is no host in it"},
        {"node0:", "expected a port from 0 to 65535 behind the host, got ''"},
        {"node0:65536", "got '65536'"},
        {"node0:-1", "got '-1'"},
        {"node0:8x", "got '8x'"},
        {"::1:80", "stands in brackets, as in [::1]:29500"},
        {"[::1", "no ']' ends"},
        {"[::1]80", "got '80'"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        assert_int_equal(yk__host_port_parse(bad[i].text, -1, host, &port), YK_ERR_ARGUMENT);
        expect_error(YK_ERR_ARGUMENT, bad[i].message);
    }
}

static yk__address resolve_one(const char *host, int port)
{
    yk__address address;
    char why[YK__WHY_SIZE] = "";
    if (!yk__resolve(host, port, yk__now() + 5, &address, 1, why))
        fail_msg("%s: %s", host, why);
    return address;
}

static void addresses(void **state)
{
    (void)state;
    char text[YK__ADDRESS_TEXT], why[YK__WHY_SIZE];
    yk__address a = resolve_one("127.0.0.1", 80);
    assert_string_equal(yk__address_format(&a, text), "127.0.0.1:80");
    assert_true(yk__address_is_loopback(&a));
    char name[32];
    yk__interface_of(&a, name, sizeof(name));
    assert_string_equal(name, "lo");
    a = resolve_one("[::1]", 81);
    assert_string_equal(yk__address_format(&a, text), "[::1]:81");
    assert_true(yk__address_is_loopback(&a));
    a = resolve_one("::ffff:127.0.0.1", 81);
    assert_true(yk__address_is_loopback(&a));
    a = resolve_one("192.0.2.3", 82);
    assert_false(yk__address_is_loopback(&a));
    yk__interface_of(&a, name, sizeof(name));
    assert_string_equal(name, "");
    a = resolve_one("localhost", 83);
    assert_true(yk__address_is_loopback(&a));
    assert_int_equal(yk__resolve("no-such-host.invalid", 1, yk__now() + 5, &a, 1, why), 0);
    assert_non_null(strstr(why, "name 'no-such-host.invalid' not resolved"));
    yk__address local, peer = resolve_one("127.3.2.1", 0);
    assert_true(yk__route_to(&peer, &local, why));
    assert_string_equal(yk__address_format(&local, text), "127.0.0.1:0");
}

/* A listener whose queue is full answers no more, as one behind a firewall that drops packets. */
/* Addresses that must not change their meaning by Note [A host's own name]: numbers, localhost, and any name without a
 * secret. The names themselves take an /etc/hosts of their own: tests/cli/hosts.sh. */
static void own_names(void **state)
{
    (void)state;
    static const char *const plain[] = {"127.0.0.1", "[::1]", "::1", "localhost", "LocalHost"};
    yk__address a[8];
    char why[YK__WHY_SIZE] = "", host[YK__HOST_SIZE] = "";
    for (size_t i = 0; i < sizeof(plain) / sizeof(*plain); i++) {
        size_t count = yk__resolve_to_listen(plain[i], 80, true, yk__now() + patience(10), a, 8, why);
        assert_true(count >= 1);
        for (size_t k = 0; k < count; k++)
            assert_true(yk__address_is_loopback(&a[k]) && yk__address_port(&a[k]) == 80);
    }
    if (gethostname(host, sizeof(host) - 1) == 0 && *host &&
        yk__resolve_to_listen(host, 80, false, yk__now() + patience(10), a, 8, why))
        assert_false(yk__address_is_any(&a[0]));
    /* An IPv4 client of a socket for both families is named as by another socket. */
    yk__address any, bound, peer = {.size = sizeof(peer.storage)};
    char text[YK__ADDRESS_TEXT];
    yk__reason reason;
    yk__address_any(0, &any);
    int server = yk__listen(&any, 4, &bound);
    assert_true(server >= 0 && yk__address_is_any(&bound));
    yk__address to = resolve_one("127.0.0.1", yk__address_port(&bound));
    int client = yk__connect(&to, yk__now() + patience(10), &reason, why);
    assert_true(client >= 0 && yk__wait_fd(server, POLLIN, yk__now() + patience(10)));
    int accepted = accept(server, (struct sockaddr *)&peer.storage, &peer.size);
    assert_true(accepted >= 0);
    assert_string_equal(yk__address_host(&peer, text), "127.0.0.1");
    assert_true(yk__address_is_loopback(&peer));
    close(accepted);
    yk__socket_close(client);
    yk__socket_close(server);
    /* Without a secret only loopback is left of a name, where it has such an address. */
    yk__identity nobody = {0};
    a[0] = resolve_one("192.0.2.1", 80);
    a[1] = resolve_one("127.0.0.1", 80);
    a[2] = resolve_one("192.0.2.2", 80);
    assert_int_equal(yk__identity_narrow(&nobody, a, 3), 1);
    assert_true(yk__address_is_loopback(&a[0]));
    a[0] = a[2];
    assert_int_equal(yk__identity_narrow(&nobody, a, 1), 1);
    nobody.has_secret = true;
    a[1] = a[2];
    assert_int_equal(yk__identity_narrow(&nobody, a, 2), 2);
}

static void silent_host(void **state)
{
    (void)state;
    yk__address any = resolve_one("127.0.0.1", 0), at;
    int listener = yk__listen(&any, 0, &at);
    assert_true(listener >= 0);
    int filling[8], count = 0;
    char why[YK__WHY_SIZE];
    yk__reason reason = YK__REACHED;
    double begin = yk__now();
    while (count < 8 && (filling[count] = yk__connect(&at, yk__now() + 0.2, &reason, why)) >= 0)
        count++;
    assert_true(count < 8);
    assert_int_equal(reason, YK__NO_ANSWER);
    assert_non_null(strstr(why, "does a firewall drop the packets?"));
    assert_true(yk__now() - begin < patience(10));
    for (int i = 0; i < count; i++)
        yk__socket_close(filling[i]);
    yk__socket_close(listener);
    assert_int_equal(yk__connect(&at, yk__now() + 5, &reason, why), -1);
    assert_int_equal(reason, YK__REFUSED);
    assert_string_equal(why, "connection refused: nothing listens there");
}

static void deadlines(void **state)
{
    (void)state;
    int ends[2];
    char why[YK__WHY_SIZE];
    static char block[8 << 20];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    double begin = yk__now();
    assert_int_equal(yk__receive_all(ends[0], block, 4, yk__now() + 0.1, why), YK__NO_ANSWER);
    assert_int_equal(yk__send_all(ends[0], block, sizeof(block), yk__now() + 0.1, why), YK__NO_ANSWER);
    double took = yk__now() - begin;
    assert_true(took >= 0.2 && took < patience(10));
    assert_non_null(strstr(why, "could not be sent in time"));
    close(ends[1]);
    assert_int_equal(yk__send_all(ends[0], block, 1, yk__now() + patience(10), why), YK__LOST);
    assert_string_equal(why, "the connection was closed by the other side");
    close(ends[0]);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    assert_int_equal(yk__send_all(ends[0], "ab", 2, yk__now() + patience(10), why), YK__REACHED);
    close(ends[0]);
    assert_int_equal(yk__receive_all(ends[1], block, 4, yk__now() + patience(10), why), YK__LOST);
    close(ends[1]);
}

static void frames(void **state)
{
    (void)state;
    int ends[2];
    char why[YK__WHY_SIZE];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    yk__wire out = {0}, in = {0};
    size_t begin = yk__wire_frame_begin(&out, 42);
    yk__wire_put(&out, "payload", 7);
    yk__wire_frame_end(&out, begin);
    yk__wire_put_u32(&out, 0x7fffffff); /* and one that is too long */
    assert_int_equal(yk__send_all(ends[0], out.data, out.size, yk__now() + patience(10), why), YK__REACHED);
    assert_int_equal(yk__frame_receive(ends[1], &in, 100, yk__now() + patience(10), why), YK__REACHED);
    assert_int_equal(in.size, 8);
    assert_memory_equal(in.data, "\x2apayload", 8);
    assert_int_equal(yk__frame_receive(ends[1], &in, 100, yk__now() + patience(10), why), YK__LOST);
    assert_string_equal(why, "a message of 2147483647 bytes where 1 to 100 are possible");
    yk__wire_clear(&in);
    yk__wire_clear(&out);
    close(ends[0]);
    close(ends[1]);
}

/* A connection of this process to itself. */
static void connect_pair(int *near, int *far)
{
    yk__address any = resolve_one("127.0.0.1", 0), at;
    yk__reason reason;
    char why[YK__WHY_SIZE] = "";
    int listener = yk__listen(&any, 4, &at);
    *near = yk__connect(&at, yk__now() + patience(10), &reason, why);
    assert_true(listener >= 0 && *near >= 0);
    assert_true(yk__wait_fd(listener, POLLIN, yk__now() + patience(10)));
    *far = accept(listener, NULL, NULL);
    assert_true(*far >= 0);
    yk__socket_close(listener);
}

/* A reset tells a process that lives from one that has ended. */
static void resets(void **state)
{
    (void)state;
    int near, far;
    char byte;
    connect_pair(&near, &far);
    yk__socket_close(near);
    assert_true(yk__wait_fd(far, POLLIN, yk__now() + patience(10)));
    assert_int_equal(read(far, &byte, 1), 0);
    yk__socket_close(far);
    connect_pair(&near, &far);
    yk__socket_reset(near);
    assert_true(yk__wait_fd(far, POLLIN, yk__now() + patience(10)));
    assert_int_equal(read(far, &byte, 1), -1);
    assert_int_equal(errno, ECONNRESET);
    yk__socket_close(far);
    yk__socket_reset(-1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parsing),     cmocka_unit_test(addresses), cmocka_unit_test(own_names),
        cmocka_unit_test(silent_host), cmocka_unit_test(deadlines), cmocka_unit_test(frames),
        cmocka_unit_test(resets),
    };
    return cmocka_run_group_tests_name("sockets", tests, NULL, NULL);
}
