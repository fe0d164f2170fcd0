/*
 * descriptors_test.c - few descriptors are one clear error at once, and strangers do not take those of a job. A soak
 * runs it with YOKE_STRANGERS=1000000.
 */
#include "tests/support/expect.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <yoke/store.h>

#include "base/core.h"
#include "net/socket.h"
#include "tests/support/machine.h"

static yk_store *open_store(int port, bool is_server)
{
    return yk_tcp_store(YK_OPTIONS(yk_tcp_store_options, .host = "127.0.0.1", .port = port, .is_server = is_server,
                                   .secret = "sixteen letters.", .secret_size = 16, .job_id = "job",
                                   .timeout = patience(20)));
}

static void set_limit(rlim_t soft, rlim_t hard)
{
    struct rlimit limit = {soft, hard};
    if (setrlimit(RLIMIT_NOFILE, &limit))
        _exit(90);
}

/* The work of a child: a server and a client of its own, and a report of their errors. */
static void serve_with(int limit, int report)
{
    alarm((unsigned)patience(30));
    set_limit((rlim_t)limit, (rlim_t)limit);
    yk_scope scope = yk_scope_begin();
    yk_store *server = open_store(0, true), *client = server ? open_store(yk_store_port(server), false) : NULL;
    bool there = false;
    if (client && yk_store_set(client, "key", "v", 1) == YK_OK &&
        yk_store_check(server, (const char *[]){"key"}, 1, &there) == YK_OK && there)
        _exit(0);
    const char *message = yk_last_error() ? yk_last_error()->message : "no error";
    (void)!write(report, message, strlen(message));
    (void)scope;
    _exit(1);
}

static void few_descriptors(void **state)
{
    (void)state;
    int worked = 0, failed = 0;
    for (int limit = 4; limit <= 64; limit++) {
        int ends[2], status;
        char text[1000] = "";
        assert_int_equal(pipe(ends), 0);
        double begin = yk__now();
        pid_t pid = fork();
        if (pid == 0)
            serve_with(limit, ends[1]);
        close(ends[1]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        double seconds = yk__now() - begin;
        ssize_t n = read(ends[0], text, sizeof(text) - 1);
        close(ends[0]);
        if (!WIFEXITED(status) || WEXITSTATUS(status) > 1 || seconds > 10)
            fail_msg("limit %d: wait status %d after %g s: %s", limit, status, seconds, text);
        if (WEXITSTATUS(status) && (n <= 0 || (!strstr(text, "open files") && !strstr(text, "ulimit -n"))))
            fail_msg("limit %d: '%s'", limit, text);
        worked += WEXITSTATUS(status) == 0;
        failed += WEXITSTATUS(status) == 1;
        if (worked && WEXITSTATUS(status))
            fail_msg("limit %d does not work, though a lower one does: %s", limit, text);
    }
    assert_true(worked > 10 && failed > 10);
}

/* ---- strangers --------------------------------------------------------------------------------------------------- */
static int stranger(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
        fail_msg("stranger: %s", strerror(errno));
    return fd;
}

static int open_files(void)
{
    int count = 0;
    for (int fd = 0; fd < 5000; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* The job in a child with this limit. Its server tells the port, and when it is asked to, works, and reports the number
 * of its open files (-1: it could not work). */
static void be_the_job(int limit, int to_parent, int from_parent)
{
    alarm((unsigned)patience(3000));
    set_limit((rlim_t)limit / 2, (rlim_t)limit);
    yk_scope scope = yk_scope_begin();
    yk_store *server = open_store(0, true);
    int port = server ? yk_store_port(server) : 0;
    char byte;
    (void)!write(to_parent, &port, sizeof(port));
    while (read(from_parent, &byte, 1) == 1) {
        int files[20], opened = 0, result = open_files();
        for (; opened < 20 && (files[opened] = open("/dev/null", O_RDONLY)) >= 0; opened++)
            ;
        if (opened < 20 || yk_store_set(server, "checkpoint", "x", 1))
            result = -1;
        while (opened)
            close(files[--opened]);
        (void)!write(to_parent, &result, sizeof(result));
    }
    yk_scope_end(scope);
    _exit(0);
}

static int ask(int to, int from)
{
    int answer = -2;
    assert_int_equal(write(to, "?", 1), 1);
    assert_int_equal(read(from, &answer, sizeof(answer)), sizeof(answer));
    return answer;
}

static void among_strangers(int limit, int idle, int sequential)
{
    int to_child[2], to_parent[2], port = 0, status;
    assert_int_equal(pipe(to_child) | pipe(to_parent), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(to_child[1]);
        close(to_parent[0]);
        be_the_job(limit, to_parent[1], to_child[0]);
    }
    close(to_child[0]);
    close(to_parent[1]);
    assert_int_equal(read(to_parent[0], &port, sizeof(port)), sizeof(port));
    assert_true(port > 0);
    int before = ask(to_child[1], to_parent[0]), most = 0;
    int *fds = malloc((size_t)idle * sizeof(int));
    for (int i = 0; i < idle; i++) {
        fds[i] = stranger(port);
        if (i % 100 == 99) {
            int now = ask(to_child[1], to_parent[0]);
            if (now < 0)
                fail_msg("limit %d: with %d idle strangers the job has no descriptors", limit, i + 1);
            most = now > most ? now : most;
        }
    }
    if (most > before + limit / 8 + 8)
        fail_msg("limit %d: %d strangers took %d descriptors", limit, idle, most - before);
    /* A rank that comes now is let in. */
    yk_scope scope = yk_scope_begin();
    yk_store *client = open_store(port, false);
    if (!client)
        fail_msg("limit %d: %s", limit, yk_last_error()->message);
    assert_int_equal(yk_store_set(client, "rank", "1", 1), YK_OK);
    for (int i = 0; i < sequential; i++) {
        int fd = stranger(port);
        if (i % 3 == 0)
            (void)!send(fd, "yoke", 4, MSG_NOSIGNAL);
        struct linger reset = {1, 0}; /* no port is left waiting */
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        close(fd);
        if (i % 1000 == 999)
            assert_int_equal(yk_store_set(client, "rank", "1", 1), YK_OK);
    }
    yk_scope_end(scope);
    for (int i = 0; i < idle; i++)
        close(fds[i]);
    free(fds);
    int after = -1;
    for (double until = yk__now() + patience(10); yk__now() < until && after != before; usleep(20000))
        after = ask(to_child[1], to_parent[0]);
    assert_int_equal(after, before); /* nothing is left of them */
    close(to_child[1]);
    close(to_parent[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void strangers(void **state)
{
    (void)state;
    const char *many = getenv("YOKE_STRANGERS");
    int sequential = many ? atoi(many) : 3000;
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    int idle = limit.rlim_cur > 1200 ? 1005 : (int)limit.rlim_cur - 100;
    among_strangers(256, idle, sequential);
    among_strangers(1024, idle, 1000);
    among_strangers(4096, idle, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_descriptors),
        cmocka_unit_test(strangers),
    };
    return cmocka_run_group_tests_name("descriptors", tests, NULL, NULL);
}
