/*
 * hostile_test.c - peers that send what they should not, before and after they have proved that they have the secret:
 * to a store, and to the port of a rank that waits for another. They are dropped, and nothing else happens: the job
 * goes on, and no descriptor, mapping or temporary file is left. A soak runs it with YOKE_HOSTILE=1000 messages of each
 * kind.
 */
#include "tests/comm/ranks.h"

#include "net/store_session.h"
#include "tests/support/hostile.h"

static const char secret[] = "what only the job's processes have";
static int messages(void)
{
    return hostile_messages(150);
}

/* ---- a store ----------------------------------------------------------------------------------------------------- */
static yk_store *open_store(int port, bool is_server)
{
    return yk_tcp_store(YK_OPTIONS(yk_tcp_store_options, .host = "127.0.0.1", .port = port, .is_server = is_server,
                                   .secret = secret, .secret_size = sizeof(secret), .job_id = "job",
                                   .timeout = patience(30)));
}

static void test_store(void **unused)
{
    (void)unused;
    char folder[] = "/tmp/yoke-hostile-XXXXXX";
    char *temporary = enter_folder(folder);
    yk_scope scope = yk_scope_begin();
    yk_store *server = open_store(0, true);
    assert_non_null(server);
    int port = yk_store_port(server);
    yk_store *client = open_store(port, false);
    assert_non_null(client);
    yk__identity of_stranger, of_member;
    expect_ok(yk__identity_init(&of_stranger, "store", "another secret altogether", 25, "job"));
    expect_ok(yk__identity_init(&of_member, "store", secret, sizeof(secret), "job"));
    /* The bytes that a member sends to be let in, for others to send again. */
    unsigned char recorded[2000];
    yk__channel c;
    yk__channel_init(&c, &of_member, false, 1000);
    size_t recorded_size = c.out.size;
    memcpy(recorded, c.out.data, recorded_size);
    int fd = connect_to(port);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    while (c.state == YK__REACHED && c.handshake.state == YK__HANDSHAKE_HELLO) {
        yk__channel_flush(&c, fd);
        yk__wait_fd(fd, POLLIN, yk__now() + 5);
        yk__channel_receive_exactly(&c, fd);
    }
    assert_true(c.out.size > c.sent && recorded_size + c.out.size - c.sent < sizeof(recorded));
    memcpy(recorded + recorded_size, c.out.data + c.sent, c.out.size - c.sent);
    recorded_size += c.out.size - c.sent;
    yk__channel_clear(&c);
    close(fd);

    static const unsigned char set[] = {3, 0, 'm', 'a', 'd', 2, 0, 0, 0, 'o', 'k'};
    expect_ok(yk_store_set(server, "wanted", "v", 1));
    belongings before = {0};
    for (int i = 0; i < messages() + 20; i++) {
        if (i == 20) { /* memory that is made once is there now */
            usleep(100000);
            before = count_all(folder);
        }
        stranger(port, &of_stranger, recorded, recorded_size);
        member(port, &of_member, YK__BROKEN, YK__SET, set, sizeof(set));
        if (i % 20 == 0) {
            void *value = NULL;
            expect_ok(yk_store_get(client, "wanted", &value, NULL, 20));
            free(value);
            expect_ok(yk_store_set(client, "wanted", "v", 1));
        }
    }
    expect_same(&before, folder);
    yk_scope_end(scope);
    assert_true(leave_folder(folder, temporary));
}

/* ---- a rank that waits for another ------------------------------------------------------------------------------- */
typedef struct said_hello { /* yk__native_hello of comm/native/links.h */
    uint64_t group;
    int32_t from, to, channel, unused;
} said_hello;

/* A rank's record goes from one store to the other. */
static bool hand_over(yk_store *from, yk_store *to, const char *key, int *port)
{
    char *record = NULL;
    if (yk_store_get(from, key, (void **)&record, NULL, 60))
        return false;
    const char *colon = strrchr(record, ':');
    *port = colon ? atoi(colon + 1) : 0;
    bool good = yk_store_set(to, key, record, strlen(record)) == YK_OK;
    free(record);
    return good;
}

/* Rank 1 is told where rank 0 listens when the others have been there. */
static void besieged(rank_context *c)
{
    yk_store *of_0 = yk_prefix_store("0", c->store), *of_1 = yk_prefix_store("1", c->store);
    int port = 0;
    CHECK(of_0 && of_1, "%s", yk_last_error()->message);
    if (c->rank == 2) { /* the others */
        CHECK(hand_over(of_1, of_0, "world/rank/1", &port), "no record of rank 1");
        char *record = NULL;
        CHECK_OK(yk_store_get(of_0, "world/rank/0", (void **)&record, NULL, 60));
        port = atoi(strrchr(record, ':') + 1);
        free(record);
        yk__identity of_stranger, of_member;
        CHECK_OK(yk__identity_init(&of_stranger, "comm", "another secret altogether", 25, NULL));
        CHECK_OK(yk__identity_init(&of_member, "comm", NULL, 0, NULL));
        unsigned char recorded[100];
        fill(recorded, sizeof(recorded));
        for (int i = 0; i < messages(); i++) {
            said_hello hello = {random_bits(), (int32_t)below(4) - 1, 0, (int32_t)below(3), 0};
            stranger(port, &of_stranger, recorded, sizeof(recorded));
            member(port, &of_member, 1, 1, &hello, sizeof(hello));
        }
        CHECK(hand_over(of_0, of_1, "world/rank/0", &port), "no record of rank 0");
        return;
    }
    c->group = yk_process_group_create(c->rank ? of_1 : of_0, c->rank, 2,
                                       YK_OPTIONS(yk_process_group_options, .timeout = patience(20),
                                                  .join_timeout = patience(600), .host_id = c->rank ? "a" : "b"));
    CHECK(c->group, "%s", yk_last_error()->message);
    yk_tensor *x = yk_full(YK_SHAPE(100), 1 + c->rank, NULL);
    CHECK_OK(yk_all_reduce(x, YK_OP_SUM, c->group));
    CHECK(yk_get(x, (int64_t[]){99}) == 3, "the sum is %g", yk_get(x, (int64_t[]){99}));
}

static void test_rank(void **unused)
{
    (void)unused;
    belongings before = count_all("/proc/self/task");
    run_ranks(THREADS, 3, besieged, NULL, patience(20), false);
    expect_same(&before, "/proc/self/task");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_store), cmocka_unit_test(test_rank)};
    return cmocka_run_group_tests_name("hostile peers", tests, NULL, NULL);
}
