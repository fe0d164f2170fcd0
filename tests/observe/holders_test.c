/*
 * holders_test.c - what is told of a process, of those that hold a file, and of the machine: this one, and children.
 */
#include "tests/support/expect.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "observe/holders.h"
#include "observe/machine.h"

static void needs_proc(void)
{
    if (access("/proc/self/stat", F_OK))
        skip();
}

/* The port of a new socket that listens there. */
static int listen_on(int family, int *fd)
{
    struct sockaddr_storage any = {.ss_family = (sa_family_t)family};
    socklen_t size = sizeof(any);
    if (family == AF_INET6)
        ((struct sockaddr_in6 *)&any)->sin6_addr = in6addr_loopback;
    else
        ((struct sockaddr_in *)&any)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    *fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd < 0 || bind(*fd, (struct sockaddr *)&any, sizeof(any)) || listen(*fd, 1) ||
        getsockname(*fd, (struct sockaddr *)&any, &size))
        return -1;
    return ntohs(family == AF_INET6 ? ((struct sockaddr_in6 *)&any)->sin6_port
                                    : ((struct sockaddr_in *)&any)->sin_port);
}

static bool has_port(const yk__holder *h, const char *format, int port)
{
    char text[64];
    snprintf(text, sizeof(text), format, port);
    for (int i = 0; i < h->n_ports; i++) {
        if (strcmp(h->ports[i], text) == 0)
            return true;
    }
    return false;
}

static void of_this_process(void **state)
{
    (void)state;
    needs_proc();
    yk__holder h;
    int fd, other = -1, silent = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int port = listen_on(AF_INET, &fd), port6 = listen_on(AF_INET6, &other);
    assert_true(port > 0);
    yk__holder_read((int)getpid(), &h);
    assert_true(h.here && h.own);
    assert_true(h.user[0] && h.name[0]);
    assert_non_null(strstr(h.command, "holders_test"));
    assert_true(h.since > 1.6e9 && h.since < (double)time(NULL) + 1);
    assert_true(h.resident > 1e5);
    assert_true(h.cores[0] >= '0' && h.cores[0] <= '9');
    assert_true(has_port(&h, "127.0.0.1:%d", port));
    assert_int_equal(h.n_ports, port6 > 0 ? 2 : 1);
    if (port6 > 0)
        assert_true(has_port(&h, "[::1]:%d", port6));
    close(fd);
    close(other);
    close(silent);
}

/* A child that says when it is ready, and waits for its end. */
static pid_t child_begin(const char *path)
{
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(sched_getcpu(), &one);
        sched_setaffinity(0, sizeof(one), &one);
        if (path) {
            int fd = open(path, O_RDWR);
            char *mapped = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
            close(fd);
            if (mapped == MAP_FAILED)
                _exit(1);
        }
        (void)!write(ready[1], "r", 1);
        for (;;)
            pause();
    }
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

static void child_end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void of_others(void **state)
{
    (void)state;
    needs_proc();
    yk__holder h;
    pid_t pid = child_begin(NULL);
    yk__holder_read((int)pid, &h);
    assert_true(h.here && h.own);
    assert_int_equal(strspn(h.cores, "0123456789"), strlen(h.cores)); /* one core */
    assert_int_equal(h.supervisor, 0);
    assert_false(h.launcher_gone);
    child_end(pid);
    yk__holder_read((int)pid, &h);
    assert_false(h.here);
    assert_true(h.since < 0 && h.resident < 0 && !h.user[0] && !h.command[0]);
    yk__holder_read(0, &h);
    assert_false(h.here);
    yk__holder_read(1, &h);
    assert_true(h.here && h.since > 0);
}

static void of_a_file(void **state)
{
    (void)state;
    needs_proc();
    char path[] = "/tmp/yoke-held-XXXXXX";
    int pids[4], fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_int_equal(yk__file_holders(path, pids, 4), 0); /* whoever asks does not count */
    pid_t mapped = child_begin(path);
    int count = yk__file_holders(path, pids, 4); /* it has the descriptor of this process, too, and is one */
    assert_int_equal(count, 1);
    assert_int_equal(pids[0], mapped);
    child_end(mapped);
    assert_int_equal(yk__file_holders(path, pids, 4), 0);
    close(fd);
    unlink(path);
}

static void of_the_machine(void **state)
{
    (void)state;
    needs_proc();
    yk__machine m = {0};
    yk__machine_read(&m);
    assert_true(m.cores >= 1);
    assert_true(m.memory > 1e8 && m.available >= 0 && m.available <= m.memory);
    assert_true(isnan(m.busy)); /* of the time since the look before, and there is none */
    for (double until = yk__now() + 0.5; yk__now() < until;)
        ;
    yk__machine_read(&m);
    assert_true(m.busy > 0 && m.busy <= 100);
    double busy = m.busy;
    yk__machine_read(&m); /* at once: what it was */
    assert_float_equal(m.busy, busy, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(of_this_process), cmocka_unit_test(of_others),
                                       cmocka_unit_test(of_a_file), cmocka_unit_test(of_the_machine)};
    return cmocka_run_group_tests_name("holders", tests, NULL, NULL);
}
