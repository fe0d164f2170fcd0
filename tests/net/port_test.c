/* port_test.c - ports for servers of other processes: each is given once, is free, and stays so. */
#include "tests/support/expect.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/socket.h"

enum { CLAIMS = 300, LISTENERS = 400, FIRST = 12000, LAST = 19999 };

static int server(int port, bool listens)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 && (!listens || listen(fd, 1) == 0))
        return fd;
    close(fd);
    return -1;
}

/* 300 of 8,000 at random: without the claims two would be alike nearly always. */
static void given_once(void **state)
{
    (void)state;
    static bool seen[65536];
    int held[CLAIMS];
    for (int i = 0; i < CLAIMS; i++) {
        int port = yk__port_claim(&held[i]);
        assert_in_range(port, FIRST, LAST);
        assert_true(held[i] >= 0);
        assert_false(seen[port]);
        seen[port] = true;
    }
    for (int i = 0; i < CLAIMS; i++)
        close(held[i]);
}

static void given_again(void **state)
{
    (void)state;
    for (int i = 0; i < 9000; i++) { /* more than there are */
        int held;
        assert_in_range(yk__port_claim(&held), FIRST, LAST);
        close(held);
    }
}

static void free_ports(void **state)
{
    (void)state;
    static bool taken[65536];
    int listeners[LISTENERS], held[CLAIMS];
    for (int i = 0; i < LISTENERS; i++) {
        int port = FIRST + i * ((LAST - FIRST) / LISTENERS);
        listeners[i] = server(port, true);
        taken[port] = true;
    }
    for (int i = 0; i < CLAIMS; i++) {
        int port = yk__port_claim(&held[i]);
        assert_false(taken[port]);
        int fd = server(port, false); /* it needs no option */
        assert_true(fd >= 0);
        close(fd);
    }
    for (int i = 0; i < CLAIMS; i++)
        close(held[i]);
    for (int i = 0; i < LISTENERS; i++) {
        if (listeners[i] >= 0)
            close(listeners[i]);
    }
}

/* A port that any program gets from the system is not one that was claimed. */
static void beside_the_systems(void **state)
{
    (void)state;
    int low = 32768, high = 60999;
    FILE *range = fopen("/proc/sys/net/ipv4/ip_local_port_range", "r");
    if (range) {
        assert_int_equal(fscanf(range, "%d %d", &low, &high), 2);
        fclose(range);
    }
    if (low <= LAST)
        skip(); /* this system gives all */
    int held, port = yk__port_claim(&held);
    assert_true(port < low);
    close(held);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_once),
        cmocka_unit_test(given_again),
        cmocka_unit_test(free_ports),
        cmocka_unit_test(beside_the_systems),
    };
    return cmocka_run_group_tests_name("ports", tests, NULL, NULL);
}
