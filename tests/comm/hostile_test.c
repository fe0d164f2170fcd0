/*
 * hostile_test.c - peers that send what they should not, before and after they have proved that they have the secret:
 * to a store, and to the port of a rank that waits for another. They are dropped, and nothing else happens: the job
 * goes on, and no descriptor, mapping or temporary file is left. A soak runs it with YOKE_HOSTILE=1000 messages of each
 * kind.
 */
#include "tests/comm/ranks.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include "net/store_session.h"
#include "tests/support/machine.h"

static const char secret[] = "what only the job's processes have";
static uint64_t state = 20260731;

static uint64_t random_bits(void) /* splitmix64 */
{
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static size_t below(size_t bound)
{
    return (size_t)(random_bits() % bound);
}

static void fill(unsigned char *to, size_t size)
{
    for (size_t i = 0; i < size; i++)
        to[i] = (unsigned char)random_bits();
}

static int messages(void)
{
    const char *many = getenv("YOKE_HOSTILE");
    return many ? atoi(many) : 150;
}

/* ---- one peer ---------------------------------------------------------------------------------------------------- */
static int connect_to(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)))
        return -1;
    /* What the other side has dropped is reset: no port is left waiting. */
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
    return fd;
}

static void put(int fd, const void *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        size_t piece = below(4) ? size - done : 1 + below(size - done);
        ssize_t n = send(fd, (const char *)bytes + done, piece, MSG_NOSIGNAL);
        if (n <= 0)
            return;
        done += (size_t)n;
    }
}

/* Takes what comes until the other side says no more, for a moment at most. */
static void hear(int fd)
{
    char bytes[4096];
    double until = yk__now() + 0.02;
    while (yk__wait_fd(fd, POLLIN, until) && recv(fd, bytes, sizeof(bytes), 0) > 0)
        ;
}

/* Somebody without the secret. `recorded`: what a member has once sent. */
static void stranger(int port, const yk__identity *identity, const unsigned char *recorded, size_t recorded_size)
{
    unsigned char bytes[1200];
    int fd = connect_to(port);
    if (fd < 0)
        return;
    yk__channel c;
    yk__channel_init(&c, identity, false, 1000); /* its hello is in `out` */
    size_t size = c.out.size;
    memcpy(bytes, c.out.data, size);
    switch (below(8)) {
    case 0: fill(bytes, size = below(sizeof(bytes))); break;
    case 1: /* a hello with some bytes changed */
        for (size_t i = 1 + below(4); i > 0; i--)
            bytes[below(size)] ^= (unsigned char)(1 + below(255));
        break;
    case 2: size = below(size); break;
    case 3: /* of another length */
        for (int i = 0; i < 4; i++)
            bytes[4 + i] = (unsigned char)random_bits();
        fill(bytes + size, 400);
        size += 400;
        break;
    case 4: /* a hello, and a proof that is made up */
        put(fd, bytes, size);
        hear(fd);
        size = 4 + below(600);
        fill(bytes, size);
        bytes[0] = (unsigned char)(size - 4);
        bytes[1] = (unsigned char)((size - 4) >> 8);
        bytes[2] = bytes[3] = 0;
        break;
    case 5: /* what a member sent in another session */
        put(fd, recorded, recorded_size);
        size = 0;
        break;
    case 6: /* frames before any proof */
        put(fd, bytes, size);
        fill(bytes, size = YK__FRAME_HEADER + below(200));
        break;
    default: /* another protocol */ bytes[8] ^= (unsigned char)(1 + below(7)); break;
    }
    put(fd, bytes, size);
    if (below(3))
        hear(fd);
    yk__channel_clear(&c);
    close(fd);
}

/* A member that sends nonsense: messages of the types 1 to `most` and some above. `valid` is a payload of type 1. */
static void member(int port, const yk__identity *identity, unsigned most, const void *valid, size_t valid_size)
{
    static unsigned char payload[70000];
    int fd = connect_to(port);
    yk__channel c;
    if (fd < 0)
        return;
    yk__channel_init(&c, identity, false, sizeof(payload));
    fcntl(fd, F_SETFL, O_NONBLOCK);
    if (yk__channel_wait_open(&c, fd, yk__now() + 20) == YK__REACHED) {
        fcntl(fd, F_SETFL, 0);
        unsigned type = 1 + (unsigned)below(most + 2);
        size_t size = below(below(4) ? 60 : sizeof(payload)), begin = c.out.size;
        fill(payload, size);
        switch (below(6)) {
        case 0: break; /* nonsense of a right length and tag */
        case 1: /* lengths and counts of the largest kind */ memset(payload, 0xff, size < 16 ? size : 16); break;
        case 2: /* a right message, cut off or with more behind it */
            memcpy(payload, valid, valid_size);
            size = below(valid_size + 9);
            type = 1;
            break;
        case 3: /* a right message, changed */
            memcpy(payload, valid, size = valid_size);
            payload[below(size)] ^= (unsigned char)(1 + below(255));
            type = 1;
            break;
        case 4: /* no payload */ size = 0; break;
        default: /* several messages at once */
            for (size_t i = below(20); i > 0; i--)
                yk__channel_send(&c, 1 + (unsigned)below(most), payload, below(40));
            break;
        }
        yk__channel_send(&c, type, payload, size);
        unsigned char *out = c.out.data;
        size_t left = c.out.size;
        switch (below(5)) {
        case 0: /* damaged on its way */ out[begin + below(left - begin)] ^= (unsigned char)(1 + below(255)); break;
        case 1: /* it ends in the middle */ left = begin + below(left - begin); break;
        case 2: /* twice */ put(fd, out + c.sent, left - c.sent); break;
        default: break;
        }
        put(fd, out + c.sent, left - c.sent);
        if (below(3))
            hear(fd);
    }
    yk__channel_clear(&c);
    close(fd);
}

/* ---- what is there ----------------------------------------------------------------------------------------------- */
typedef struct belongings {
    int files, maps, temporary;
} belongings;

static int entries(const char *folder)
{
    int count = 0;
    DIR *dir = opendir(folder);
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

static belongings count_all(const char *folder)
{
    belongings b = {.files = open_descriptors(), .temporary = entries(folder)};
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[1000];
    while (maps && fgets(line, sizeof(line), maps))
        b.maps += strchr(line, '/') != NULL; /* of files and shared memory: what malloc keeps is its own affair */
    if (maps)
        fclose(maps);
    return b;
}

static void expect_same(const belongings *before, const char *folder)
{
    belongings now = count_all(folder);
    for (double until = yk__now() + 20; now.files != before->files && yk__now() < until; now = count_all(folder))
        usleep(20000);
    assert_int_equal(now.files, before->files);
    assert_int_equal(now.maps, before->maps);
    assert_int_equal(now.temporary, before->temporary);
}

/* ---- a store ----------------------------------------------------------------------------------------------------- */
static yk_store *open_store(int port, bool is_server)
{
    return yk_tcp_store(&(yk_tcp_store_options){.host = "127.0.0.1",
                                                .port = port,
                                                .is_server = is_server,
                                                .secret = secret,
                                                .secret_size = sizeof(secret),
                                                .job_id = "job",
                                                .timeout = 30});
}

static void test_store(void **unused)
{
    (void)unused;
    char folder[] = "/tmp/yoke-hostile-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *temporary = getenv("TMPDIR") ? strdup(getenv("TMPDIR")) : NULL;
    setenv("TMPDIR", folder, 1);
    yk_scope scope = yk_scope_begin();
    yk_store *server = open_store(0, true);
    assert_non_null(server);
    int port = yk_store_port(server);
    yk_store *client = open_store(port, false);
    assert_non_null(client);
    yk__identity of_stranger, of_member;
    expect_ok(yk__identity_init(&of_stranger, "store", "another secret altogether", 25, "job"));
    expect_ok(yk__identity_init(&of_member, "store", secret, sizeof(secret), "job"));
    /* What a member sends to be let in, for others to send again. */
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
        if (i == 20) { /* what is made once is there now */
            usleep(100000);
            before = count_all(folder);
        }
        stranger(port, &of_stranger, recorded, recorded_size);
        member(port, &of_member, YK__GATHER, set, sizeof(set));
        if (i % 20 == 0) {
            void *value = NULL;
            expect_ok(yk_store_get(client, "wanted", &value, NULL, 20));
            free(value);
            expect_ok(yk_store_set(client, "wanted", "v", 1));
        }
    }
    expect_same(&before, folder);
    yk_scope_end(scope);
    if (temporary)
        setenv("TMPDIR", temporary, 1);
    else
        unsetenv("TMPDIR");
    free(temporary);
    assert_int_equal(rmdir(folder), 0);
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
            member(port, &of_member, 1, &hello, sizeof(hello));
        }
        CHECK(hand_over(of_0, of_1, "world/rank/0", &port), "no record of rank 0");
        return;
    }
    c->group = yk_process_group_create(
        c->rank ? of_1 : of_0, c->rank, 2,
        &(yk_process_group_options){.timeout = 20, .join_timeout = 600, .host_id = c->rank ? "a" : "b"});
    CHECK(c->group, "%s", yk_last_error()->message);
    yk_tensor *x = yk_full(YK_SHAPE(100), 1 + c->rank, NULL);
    CHECK_OK(yk_all_reduce(x, YK_OP_SUM, c->group));
    CHECK(yk_get(x, (int64_t[]){99}) == 3, "the sum is %g", yk_get(x, (int64_t[]){99}));
}

static void test_rank(void **unused)
{
    (void)unused;
    belongings before = count_all("/proc/self/task");
    run_ranks(THREADS, 3, besieged, NULL, 20, false);
    expect_same(&before, "/proc/self/task");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_store), cmocka_unit_test(test_rank)};
    return cmocka_run_group_tests_name("hostile peers", tests, NULL, NULL);
}
