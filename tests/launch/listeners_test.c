/*
 * listeners_test.c - the table that tells ranks where all others listen, and the sockets that a launcher opens for its
 * own: what is no table, or no socket of this rank, is not used.
 */
#include "tests/support/expect.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launch/listeners.h"
#include "tests/support/machine.h"

static void expect_table(const char *const *words, const int *ranks, int nodes, const char *expected)
{
    yk__wire table = {0};
    for (int i = 0; i < nodes; i++)
        yk__listeners_append(&table, words[i], ranks[i]);
    yk__wire_put_u8(&table, 0);
    assert_false(table.failed);
    assert_string_equal((char *)table.data, expected);
    yk__wire_clear(&table);
}

static void test_append(void **unused)
{
    (void)unused;
    const char *const good[] = {"10.0.0.1:40001,40002,40003", "[fe80::1]:7", NULL};
    expect_table(good, (const int[]){2, 1, 3}, 3, "10.0.0.1:40001,40002 [fe80::1]:7 -,-,-");
    /* Texts that another host may send in place of a word, and too few ports. */
    static const char *const bad[] = {
        "",
        "x",
        ":1",
        "10.0.0.1:",
        "10.0.0.1:0",
        "10.0.0.1:65536",
        "10.0.0.1:1,",
        "10.0.0.1:,1",
        "10.0.0.1:1 2",
        "10.0.0.1:1\n",
        "10.0.0.1:-1",
        "10.0.0.1:1;reboot",
        "host name:1",
        "host\x1b[2J:1",
        "10.0.0.1:000001",
        "1111111111111111111111111111111111111111111111111111111111111111111111111111111:1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        expect_table(&bad[i], (const int[]){1}, 1, "-");
    expect_table(good, (const int[]){4}, 1, "-,-,-,-");
    /* Node 0 that only keeps the list, and a word in the middle that nobody needs. */
    expect_table((const char *const[]){NULL, "[fe80::1]:7", "10.0.0.1:40001", "10.0.0.2:9"}, (const int[]){0, 1, 0, 1},
                 4, "[fe80::1]:7 10.0.0.2:9");
}

static void expect_rank(const char *table, int rank, int node, const char *address)
{
    int found_node;
    char found[YK__ADDRESS_TEXT];
    yk__listeners_find(table, rank, &found_node, found);
    assert_int_equal(found_node, node);
    assert_string_equal(found, address);
}

static void test_find(void **unused)
{
    (void)unused;
    const char *table = "10.0.0.1:40001,40002 -,- [fe80::1]:7";
    assert_int_equal(yk__listeners_ranks(table), 5);
    expect_rank(table, 0, 0, "10.0.0.1:40001");
    expect_rank(table, 1, 0, "10.0.0.1:40002");
    expect_rank(table, 2, 1, "");
    expect_rank(table, 3, 1, "");
    expect_rank(table, 4, 2, "[fe80::1]:7");
    static const char *const none[] = {NULL, "",   " ", "10.0.0.1:1 ", " 10.0.0.1:1", "10.0.0.1:1  10.0.0.2:1",
                                       "--", "-,", ",-"};
    for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++)
        assert_int_equal(yk__listeners_ranks(none[i]), 0);
    char many[2 * YK__MOST_LISTENERS + 4];
    for (int i = 0; i <= YK__MOST_LISTENERS; i++)
        memcpy(many + 2 * i, "-,", 3);
    many[2 * YK__MOST_LISTENERS - 1] = '\0';
    assert_int_equal(yk__listeners_ranks(many), YK__MOST_LISTENERS);
    many[2 * YK__MOST_LISTENERS - 1] = ',';
    many[2 * YK__MOST_LISTENERS + 1] = '\0';
    assert_int_equal(yk__listeners_ranks(many), 0);
}

static void name_descriptor(int fd)
{
    char number[16];
    snprintf(number, sizeof(number), "%d", fd);
    setenv("YOKE_LISTENER_FD", number, 1);
}

static void test_sockets(void **unused)
{
    (void)unused;
    /* A connected socket, from whose address those of the ranks are. */
    yk__address any, bound;
    char why[YK__WHY_SIZE], first[YK__ADDRESS_TEXT], second[YK__ADDRESS_TEXT];
    assert_int_equal(yk__resolve("127.0.0.1", 0, yk__now() + patience(10), &any, 1, why), 1);
    int server = yk__listen(&any, 4, &bound);
    yk__reason reason;
    int connected = yk__connect(&bound, yk__now() + patience(10), &reason, why), node;
    assert_true(server >= 0 && connected >= 0);
    yk__listeners l = {0};
    yk__listeners_open(&l, connected, false, 2);
    assert_int_equal(l.count, 2);
    assert_memory_equal(l.text, "127.0.0.1:", 10);
    assert_int_equal(yk__listeners_ranks(l.text), 2);
    yk__listeners_find(l.text, 0, &node, first);
    yk__listeners_find(l.text, 1, &node, second);
    assert_string_not_equal(first, second);
    /* Not one that is none, that does not listen, or that listens elsewhere: those are some other file by now. */
    unsetenv("YOKE_LISTENER_FD");
    assert_int_equal(yk__listener_take(first), -1);
    name_descriptor(connected);
    assert_int_equal(yk__listener_take(first), -1);
    name_descriptor(l.fds[1]);
    assert_int_equal(yk__listener_take(first), -1);
    setenv("YOKE_LISTENER_FD", "many", 1);
    assert_int_equal(yk__listener_take(first), -1);
    name_descriptor(l.fds[0]);
    int own = fcntl(l.fds[0], F_DUPFD, 100);
    name_descriptor(own);
    assert_int_equal(yk__listener_take(first), own);
    assert_int_equal(fcntl(own, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(yk__listener_take(first), -1); /* a second group has one of its own */
    yk__socket_close(own);
    /* Node 0 that knows itself by a name alone. */
    yk__address at;
    yk__listeners_open(&l, connected, true, 2);
    assert_int_equal(yk__listeners_ranks(l.text), 2);
    yk__listeners_find(l.text, 1, &node, second);
    char host[YK__HOST_SIZE];
    int port;
    assert_int_equal(yk__host_port_parse(second, -1, host, &port), YK_OK);
    assert_int_equal(yk__resolve(host, port, yk__now() + patience(10), &at, 1, why), 1);
    assert_true(yk__address_is_any(&at));
    at = bound; /* it has the address of the loopback interface too */
    yk__address_set_port(&at, port);
    int other = yk__connect(&at, yk__now() + patience(10), &reason, why);
    assert_true(other >= 0);
    yk__socket_close(other);
    /* Too many, or nowhere to listen: none. */
    yk__listeners_open(&l, connected, false, YK__MOST_LISTENERS + 1);
    assert_true(!l.count && !l.text && !l.fds);
    yk__listeners_open(&l, -1, false, 1);
    assert_true(!l.count && !l.text && !l.fds);
    assert_null(yk_last_error());
    yk__socket_close(connected);
    yk__socket_close(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_append), cmocka_unit_test(test_find),
                                       cmocka_unit_test(test_sockets)};
    return cmocka_run_group_tests_name("listeners", tests, NULL, NULL);
}
