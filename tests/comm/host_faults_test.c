/*
 * host_faults_test.c - failures between hosts: the faults of faults_test.c with ranks on several hosts, and what only a
 * network has: a rank that cannot be reached, strangers, a process that is killed in the middle of large transfers.
 */
int faults_main(void);
#define main faults_main /* the cases are those of faults_test.c */
#include "tests/comm/faults_test.c"
#undef main

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "comm/group.h"
#include "comm/native/multihost.h"

static void test_faults_alone(void **unused)
{
    test_layout = EACH_ALONE;
    test_mismatch(unused);
    test_missing(unused);
    test_lost(unused);
    test_leaving(unused);
}

static void test_faults_uneven(void **unused)
{
    test_layout = UNEVEN;
    test_mismatch(unused);
    test_missing(unused);
    test_lost(unused);
    test_leaving(unused);
}

/* ---- a rank is killed while all of them move bytes --------------------------------------------------------------- */
static void killed_in_the_middle(rank_context *c)
{
    int what = *(const int *)c->arg;
    int64_t n = what == 2 ? 100 : 4000000;
    yk_tensor *x = yk_zeros(1, &n, NULL), *all = yk_zeros(2, (int64_t[]){c->size, n}, NULL);
    CHECK_MET(c);
    if (c->rank == 1 && fork() == 0) {
        usleep(200000);
        kill(getppid(), SIGKILL);
        _exit(0);
    }
    yk_status status = YK_OK;
    double begin = yk__now();
    for (int i = 0; !status && yk__now() - begin < patience(20); i++)
        status = what == 0   ? yk_all_reduce(x, YK_OP_SUM, c->group)
                 : what == 1 ? yk_all_gather(all, x, c->group)
                             : yk_all_reduce(x, YK_OP_SUM, c->group);
    double seconds = yk__now() - begin;
    CHECK(status == YK_ERR_CONNECTION, "%d after %g s: %s", status, seconds,
          yk_last_error() ? yk_last_error()->message : "");
    char culprit[80];
    /* Its end resets connections on which it had bytes to read: then both ends are named. */
    snprintf(culprit, sizeof(culprit), "pid %d) %s after", (int)c->pids[1],
             strstr(yk_last_error()->message, " broke after") ? "broke" : "ended");
    CHECK(strstr(yk_last_error()->message, culprit) && strstr(yk_last_error()->message, "rank 1 (host "), "%s",
          yk_last_error()->message);
    CHECK(seconds < patience(10), "%g s", seconds);
}

static void test_killed(void **unused)
{
    (void)unused;
    for (int what = 0; what < 3; what++) {
        test_layout = EACH_ALONE;
        run_ranks(PROCESSES, 3, killed_in_the_middle, &what, patience(30), true);
        test_layout = UNEVEN;
        run_ranks(PROCESSES, 5, killed_in_the_middle, &what, patience(30), true);
    }
}

/* The data connection alone breaks: who saw it, and both ends of it, on every rank. */
static void cut_connection(rank_context *c)
{
    int64_t n = 1000000;
    yk_tensor *x = yk_zeros(1, &n, NULL);
    CHECK_MET(c);
    native *g = c->group->group->state;
    if (c->rank == 2)
        shutdown(g->net->links[1].data, SHUT_RDWR);
    yk_status status = YK_OK;
    for (double begin = yk__now(); !status && yk__now() - begin < patience(20);)
        status = yk_all_reduce(x, YK_OP_SUM, c->group);
    const char *message = yk_last_error() ? yk_last_error()->message : "";
    CHECK(status == YK_ERR_CONNECTION, "%d: %s", status, message);
    const char *between = strstr(message, "the connection between rank ");
    CHECK(between && strstr(between, "rank 1 (host ") && strstr(between, "rank 2 (host "), "%s", message);
    CHECK(strstr(message, "(seen by rank 1)") || strstr(message, "(seen by rank 2)"), "%s", message);
    CHECK(!strstr(between, "rank 0 (host"), "%s", message);
}

static void test_cut_connection(void **unused)
{
    (void)unused;
    test_layout = EACH_ALONE;
    run_ranks(PROCESSES, 3, cut_connection, NULL, patience(30), true);
}

/* The receiver of a large message is killed, the sender of one, and the sender alone is stopped. */
static void large_message(rank_context *c)
{
    int victim = *(const int *)c->arg;
    int64_t n = 20000000;
    yk_tensor *x = yk_zeros(1, &n, NULL);
    CHECK_MET(c);
    if (c->rank == victim)
        kill(getpid(), SIGKILL);
    if (c->rank == 0)
        CHECK_FAILS(yk_send(x, 1, 0, c->group), YK_ERR_CONNECTION, "send #1", "rank 1 (host ", "ended");
    else
        CHECK_FAILS(yk_recv(x, 0, 0, c->group), YK_ERR_CONNECTION, "recv #1", "rank 0 (host ", "ended");
}

/* Nobody takes the message: the sender's time is over, and the memory is its own again. */
static void unwanted_message(rank_context *c)
{
    int64_t n = 1000000;
    CHECK_MET(c);
    if (c->rank == 1) {
        for (int i = 0; i < 10000 && !atomic_load(&c->signals[0]); i++)
            usleep(1000);
        CHECK_FAILS(yk_barrier(c->group), YK_ERR_STALLED, "send #1", "waited 0.5 s for rank 1 (host ");
        return;
    }
    yk_tensor *x = yk_zeros(1, &n, NULL);
    CHECK_FAILS(yk_send(x, 1, 9, c->group), YK_ERR_STALLED, "send #1 (float32, 1000000 elements, to rank 1, tag 9)",
                "waited 0.5 s for rank 1 (host ");
    atomic_store(&c->signals[0], 1);
}

/* The bytes that the library sends are looked at here: none may come out of memory that was given back. */
static char *_Atomic freed_memory;
static _Atomic size_t freed_bytes;
static atomic_int freed_sent;

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    char *freed = freed_memory;
    for (size_t i = 0; i < message->msg_iovlen; i++) {
        const char *at = message->msg_iov[i].iov_base;
        if (freed && message->msg_iov[i].iov_len && at >= freed && at < freed + freed_bytes)
            atomic_fetch_add(&freed_sent, 1);
    }
    return syscall(SYS_sendmsg, fd, message, flags);
}

static bool wait_for_signal(rank_context *c, int signal)
{
    for (int i = 0; i < 60000 && !atomic_load(&c->signals[signal]); i++)
        usleep(1000);
    return atomic_load(&c->signals[signal]);
}

/* The group breaks when the receiver has just asked for the bytes of a large message. */
static void abandoned_message(rank_context *c)
{
    yk_scope scope = yk_scope_begin();
    c->group = yk_process_group_create(
        c->store, c->rank, 2,
        YK_OPTIONS(yk_process_group_options, .timeout = c->timeout, .host_id = c->rank ? "a" : "b"));
    CHECK(c->group, "%s", yk_last_error()->message);
    yk_scope inner = yk_scope_begin();
    int64_t n = 16 << 20;
    yk_tensor *x = yk_zeros(1, &n, NULL);
    if (c->rank == 1) {
        CHECK(wait_for_signal(c, 0), "nothing was sent");
        yk_work *work = yk_irecv(x, 0, 3, c->group);
        for (int i = 0; work && i < 100 && !yk_work_test(work); i++) /* as long as the offer may take */
            usleep(1000);
        atomic_store(&c->signals[1], 1);
        CHECK(wait_for_signal(c, 2), "rank 0 did not leave");
        CHECK_FAILS(yk_work_wait(work), YK_ERR_CONNECTION, "given up by rank 0 (host ", "enough");
        return;
    }
    char *memory = yk_tensor_data(x);
    yk_work *work = yk_isend(x, 1, 3, c->group);
    CHECK(!yk_work_test(work), "the message is done");
    atomic_store(&c->signals[0], 1);
    CHECK(wait_for_signal(c, 1), "nothing was received");
    yk_process_group_abort(c->group, "enough");
    CHECK_FAILS(yk_work_wait(work), YK_ERR_CONNECTION, "given up by rank 0 (host ", "enough");
    yk_scope_end(inner);
    freed_bytes = (size_t)n * sizeof(float);
    freed_memory = memory;
    yk_scope_end(scope);
    freed_memory = NULL;
    atomic_store(&c->signals[2], 1);
    CHECK(freed_sent == 0, "sent %d times out of freed memory", freed_sent);
}

/* A sanitizer's own memory cannot be limited. */
#ifdef YK__SANITIZED
enum { LIMITS_MEMORY = 0 };
#else
enum { LIMITS_MEMORY = 1 };
#endif

/* A message for which one side has no memory: both know which side, and the group is broken. */
static void message_without_memory(rank_context *c)
{
    int without = *(const int *)c->arg;
    yk_tensor *x = yk_zeros(YK_SHAPE(15000), NULL);
    const char *text = without ? ") is out of memory for a frame of 60000 bytes from rank 0 (host "
                               : "send #1 (float32, 15000 elements, to rank 1, tag 9) of rank 0 (host ";
    CHECK_MET(c);
    if (c->rank == without) {
        struct rlimit before, none;
        CHECK(getrlimit(RLIMIT_AS, &before) == 0, "%s", strerror(errno));
        none = before;
        none.rlim_cur = 0;
        void *spare = malloc(16384); /* for the small things: the failure itself */
        CHECK(setrlimit(RLIMIT_AS, &none) == 0, "%s", strerror(errno));
        for (void *volatile block = spare; block;)
            block = malloc(30000);
        free(spare);
        CHECK_FAILS(without ? yk_recv(x, 0, 9, c->group) : yk_send(x, 1, 9, c->group), YK_ERR_MEMORY, text,
                    "out of memory");
        CHECK(setrlimit(RLIMIT_AS, &before) == 0, "%s", strerror(errno));
    } else if (without) {
        CHECK_OK(yk_send(x, 1, 9, c->group));
        CHECK_FAILS(yk_barrier(c->group), YK_ERR_MEMORY, text);
    } else {
        CHECK_FAILS(yk_recv(x, 0, 9, c->group), YK_ERR_MEMORY, text, "out of memory");
    }
}

static void test_messages(void **unused)
{
    (void)unused;
    run_ranks(THREADS, 2, abandoned_message, NULL, patience(20), false);
    test_layout = EACH_ALONE;
    for (int without = 0; without < 2 && LIMITS_MEMORY; without++)
        run_ranks(PROCESSES, 2, message_without_memory, &without, patience(20), true);
    for (int victim = 0; victim < 2; victim++)
        run_ranks(PROCESSES, 2, large_message, &victim, patience(30), true);
    run_ranks(PROCESSES, 2, unwanted_message, NULL, 0.5, true);
}

/* ---- a rank stops that the others have heard of ------------------------------------------------------------------ */
/* Rank 0 waits for rank 2, which comes late, and is stopped meanwhile. What is left of the operation goes round a ring:
 * rank 3 waits for rank 2, that one for rank 1, and that one for rank 0. */
static void stopped_in_a_ring(rank_context *c)
{
    yk_tensor *x = yk_zeros(YK_SHAPE(300000), NULL), *all = yk_zeros(YK_SHAPE(4, 300000), NULL);
    CHECK_MET(c);
    if (c->rank == 0 && fork() == 0) {
        usleep(300000);
        kill(getppid(), SIGSTOP);
        _exit(0);
    }
    if (c->rank == 2)
        usleep(600000);
    yk_status status = yk_all_gather(all, x, c->group);
    if (c->rank != 0 && atomic_fetch_add(&c->signals[1], 1) == 2)
        kill(c->pids[0], SIGCONT);
    CHECK(status == YK_ERR_STALLED && expect_says(yk_last_error()->message, "all_gather #2 s for rank 0 (host "),
          "%d: %s", status, yk_last_error() ? yk_last_error()->message : "");
    yk_clear_error();
}

static void test_stopped_in_a_ring(void **unused)
{
    (void)unused;
    test_layout = EACH_ALONE;
    run_ranks(PROCESSES, 4, stopped_in_a_ring, NULL, patience(2), true);
}

/* ---- joining ----------------------------------------------------------------------------------------------------- */
/* A rank 0 on another host, in the store alone: its record, and the address where it says it listens. */
static yk_store *impostor(const char *address)
{
    yk_store *store = yk_hash_store();
    uint64_t members = 0xCBF29CE484222325u;
    for (const char *c = "native"; *c; c++)
        members = (members ^ (unsigned char)*c) * 0x100000001B3u;
    char text[200];
    int n = snprintf(text, sizeof(text), "2 99 1 %llx -1 1 elsewhere nowhere %s", (unsigned long long)members, address);
    assert_int_equal(yk_store_set(store, "world/rank/0", text, (size_t)n), YK_OK);
    return store;
}

static void expect_unreached(const char *address, yk_status code, const char *why)
{
    yk_scope scope = yk_scope_begin();
    yk_store *store = impostor(address);
    double begin = yk__now();
    assert_null(yk_process_group_create(store, 1, 2,
                                        YK_OPTIONS(yk_process_group_options, .join_timeout = 1, .host_id = "here")));
    assert_true(yk__now() - begin < patience(20));
    char text[300];
    snprintf(text, sizeof(text), "cannot reach rank 0 (host nowhere, pid 99) at %s: %s", address, why);
    expect_error(code, text);
    char *told = NULL; /* the others are told */
    assert_int_equal(yk_store_get(store, "world/failed", (void **)&told, NULL, 1), YK_OK);
    assert_non_null(strstr(told, text));
    free(told);
    yk_scope_end(scope);
}

static int listen_on(char address[40])
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(to);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&to, size), 0);
    assert_int_equal(listen(fd, 4), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&to, &size), 0);
    snprintf(address, 40, "127.0.0.1:%d", ntohs(to.sin_port));
    return fd;
}

static void test_unreached(void **unused)
{
    (void)unused;
    char address[40];
    int fd = listen_on(address);
    expect_unreached(address, YK_ERR_TIMEOUT, "no answer to the handshake");
    close(fd);
    expect_unreached(address, YK_ERR_CONNECTION, "connection refused");
}

/* Ranks 0 and 1 join; number 2 has read where rank 0 listens, and comes as a stranger. */
static void strangers(rank_context *c)
{
    if (c->rank < 2) {
        yk_process_group *g = yk_process_group_create(
            c->store, c->rank, 2,
            YK_OPTIONS(yk_process_group_options, .join_timeout = patience(15), .host_id = c->rank ? "a" : "b"));
        CHECK(g, "%s", yk_last_error()->message);
        CHECK_OK(yk_barrier(g));
        return;
    }
    char *address = NULL, answer[64];
    CHECK_OK(yk_store_get(c->store, "world/rank/0", (void **)&address, NULL, 10)); /* ends with it */
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    to.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
    free(address);
    int silent = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), loud = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct sockaddr *at = (const struct sockaddr *)&to;
    /* The group may be complete already, and nobody listens any more: that is as good. */
    if (connect(silent, at, sizeof(to)) == 0 && connect(loud, at, sizeof(to)) == 0 &&
        send(loud, "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL) == 18) {
        struct timeval limit = {.tv_sec = 15};
        setsockopt(loud, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
        ssize_t n = recv(loud, answer, sizeof(answer), 0);
        CHECK(n == 0 || (n < 0 && errno == ECONNRESET), "%zd bytes for a stranger", n);
    }
    close(silent);
    close(loud);
}

static bool hand_over(yk_store *from, yk_store *to, const char *key)
{
    void *value;
    size_t size;
    bool done = yk_store_get(from, key, &value, &size, 60) == YK_OK && yk_store_set(to, key, value, size) == YK_OK;
    if (done)
        free(value);
    return done;
}

/* Hundreds of strangers that say nothing come before rank 1 does: more than are kept, and in a process more than rank 0
 * has descriptors for. The oldest go, and rank 1 is let in. Each rank has a store of its own, and number 2, who plays
 * the strangers, hands over what they put into it, the address last. */
static void silent_strangers(rank_context *c)
{
    enum { MANY = 300 };
    yk_store *of_0 = yk_prefix_store("0", c->store), *of_1 = yk_prefix_store("1", c->store);
    CHECK(of_0 && of_1, "%s", yk_last_error()->message);
    if (c->rank < 2) {
        struct rlimit files;
        int next = dup(STDOUT_FILENO);
        CHECK(next >= 0 && getrlimit(RLIMIT_NOFILE, &files) == 0, "%s", strerror(errno));
        close(next);
        files.rlim_cur = (rlim_t)next + 40;
        CHECK(!c->process || setrlimit(RLIMIT_NOFILE, &files) == 0, "%s", strerror(errno));
        yk_process_group *g = yk_process_group_create(
            c->rank ? of_1 : of_0, c->rank, 2,
            YK_OPTIONS(yk_process_group_options, .join_timeout = patience(40), .host_id = c->rank ? "a" : "b"));
        CHECK(g, "%s", yk_last_error()->message);
        CHECK_OK(yk_barrier(g));
        return;
    }
    CHECK(hand_over(of_1, of_0, "world/rank/1"), "%s", yk_last_error()->message);
    char *address = NULL, byte;
    CHECK_OK(yk_store_get(of_0, "world/rank/0", (void **)&address, NULL, 60));
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    to.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
    free(address);
    struct timeval limit = {.tv_sec = 30};
    int silent[MANY], count = 0;
    while (count < MANY && (silent[count] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) >= 0) {
        setsockopt(silent[count], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
        setsockopt(silent[count], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
        CHECK(connect(silent[count], (const struct sockaddr *)&to, sizeof(to)) == 0, "stranger %d: %s", count,
              strerror(errno));
        count++;
    }
    ssize_t n = recv(silent[0], &byte, 1, 0);
    CHECK(n == 0 || (n < 0 && errno == ECONNRESET), "the oldest of %d strangers is still there", count);
    CHECK(hand_over(of_0, of_1, "world/rank/0"), "%s", yk_last_error()->message);
    n = recv(silent[count - 1], &byte, 1, 0); /* until all ranks are there */
    CHECK(n == 0 || (n < 0 && errno == ECONNRESET), "the last stranger is still there");
    while (count > 0)
        close(silent[--count]);
}

static void test_strangers(void **unused)
{
    (void)unused;
    run_ranks(THREADS, 3, strangers, NULL, patience(20), false);
    run_ranks(THREADS, 3, silent_strangers, NULL, patience(20), false);
    run_ranks(PROCESSES, 3, silent_strangers, NULL, patience(20), false);
}

/* YOKE_SHARED_MEMORY=0 makes a host of every rank. */
static void alone(rank_context *c)
{
    yk_tensor *x = yk_full(YK_SHAPE(50000), c->rank + 1, NULL);
    CHECK_OK(yk_all_reduce(x, YK_OP_SUM, c->group));
    CHECK(yk_get(x, (int64_t[]){49999}) == 6, "%g", yk_get(x, (int64_t[]){49999}));
    char *record = NULL, key[40];
    snprintf(key, sizeof(key), "world/rank/%d", c->rank);
    CHECK_OK(yk_store_get(c->store, key, (void **)&record, NULL, 1));
    CHECK(strstr(record, " 127.0.0.1:"), "%s", record);
    free(record);
}

static void test_alone(void **unused)
{
    (void)unused;
    test_layout = ONE_HOST;
    setenv("YOKE_SHARED_MEMORY", "0", 1);
    run_ranks(THREADS, 3, alone, NULL, patience(20), true);
    setenv("YOKE_SHARED_MEMORY", "no", 1);
    yk_scope scope = yk_scope_begin();
    assert_null(yk_process_group_create(NULL, 0, 1, NULL));
    expect_error(YK_ERR_ARGUMENT, "YOKE_SHARED_MEMORY");
    unsetenv("YOKE_SHARED_MEMORY");
    setenv("YOKE_COMM_TIMEOUT", "0", 1);
    assert_null(yk_process_group_create(NULL, 0, 1, NULL));
    expect_error(YK_ERR_ARGUMENT, "YOKE_COMM_TIMEOUT");
    unsetenv("YOKE_COMM_TIMEOUT");
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults_alone),
        cmocka_unit_test(test_faults_uneven),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_cut_connection),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_unreached),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_stopped_in_a_ring),
    };
    return cmocka_run_group_tests_name("comm faults between hosts", tests, NULL, NULL);
}
