/* handshake_test.c - the sources of the job's secret, without which no connection is accepted. */
#include "tests/support/expect.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/handshake.h"

static yk__identity identity_of(const void *secret, size_t size)
{
    yk__identity identity;
    expect_ok(yk__identity_init(&identity, "store", secret, size, "job"));
    return identity;
}

static void with_descriptor(int fd)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", fd);
    setenv("YOKE_JOB_SECRET_FD", text, 1);
}

static void secret_from_the_environment(void **state)
{
    (void)state;
    yk__identity expected = identity_of("abcdefghijklmnop", 16), other = identity_of("abcdefghijklmnoq", 16), found;
    assert_memory_not_equal(expected.key, other.key, YK__KEY_SIZE);
    char path[] = "/tmp/yoke-secret.XXXXXX";
    int fd = mkstemp(path);
    assert_int_equal(write(fd, "abcdefghijklmnop\n", 17), 17); /* as echo writes it */
    setenv("YOKE_JOB_SECRET_FILE", path, 1);
    found = identity_of(NULL, 0);
    assert_memory_equal(found.key, expected.key, YK__KEY_SIZE);
    assert_true(found.has_secret);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(yk__identity_init(&found, "store", NULL, 0, NULL), YK_ERR_FORMAT);
    expect_error(YK_ERR_FORMAT, "the job secret is empty");
    assert_int_equal(pwrite(fd, "fifteen letters\n", 16, 0), 16);
    assert_int_equal(yk__identity_init(&found, "store", NULL, 0, NULL), YK_ERR_FORMAT);
    expect_error(YK_ERR_FORMAT, "fewer than 16 bytes, which can be guessed: make one with openssl rand");
    static const mode_t modes[] = {0640, 0604, 0620, 0677};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(fchmod(fd, modes[i]), 0);
        assert_int_equal(yk__identity_init(&found, "store", NULL, 0, NULL), YK_ERR_IO);
        expect_error(YK_ERR_IO, "others may read or change it (chmod 600)");
    }
    assert_int_equal(fchmod(fd, 0600), 0);
    if (geteuid() == 0) {
        assert_int_equal(fchown(fd, 65534, (gid_t)-1), 0);
        assert_int_equal(yk__identity_init(&found, "store", NULL, 0, NULL), YK_ERR_IO);
        expect_error(YK_ERR_IO, "another user owns it");
        assert_int_equal(fchown(fd, 0, (gid_t)-1), 0);
    }
    assert_int_equal(ftruncate(fd, 5000), 0);
    assert_int_equal(yk__identity_init(&found, "store", NULL, 0, NULL), YK_ERR_FORMAT);
    expect_error(YK_ERR_FORMAT, "longer than 4096 bytes");
    close(fd);
    unlink(path);
    assert_int_equal(yk__identity_init(&found, "store", NULL, 0, NULL), YK_ERR_IO);
    assert_non_null(strstr(yk_last_error()->message, "YOKE_JOB_SECRET_FILE=/tmp/yoke-secret."));
    expect_error(YK_ERR_IO, "No such file");
    unsetenv("YOKE_JOB_SECRET_FILE");

    fd = memfd_create("secret", MFD_CLOEXEC);
    assert_int_equal(write(fd, "abcdefghijklmnop", 16), 16);
    with_descriptor(fd);
    for (int i = 0; i < 2; i++) { /* the place of reading, shared with other processes, is left alone */
        found = identity_of(NULL, 0);
        assert_memory_equal(found.key, expected.key, YK__KEY_SIZE);
    }
    assert_int_equal(lseek(fd, 0, SEEK_CUR), 16);
    close(fd);
    assert_int_equal(yk__identity_init(&found, "store", NULL, 0, NULL), YK_ERR_IO);
    expect_error(YK_ERR_IO, "Bad file descriptor");

    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "abcdefghijklmnop", 16), 16);
    close(ends[1]);
    with_descriptor(ends[0]);
    for (int i = 0; i < 2; i++) { /* a pipe gives it once, and it is remembered */
        found = identity_of(NULL, 0);
        assert_memory_equal(found.key, expected.key, YK__KEY_SIZE);
    }
    close(ends[0]);
    unsetenv("YOKE_JOB_SECRET_FD");
    found = identity_of(NULL, 0);
    assert_false(found.has_secret);

    setenv("YOKE_JOB_ID", "from-environment", 1);
    expect_ok(yk__identity_init(&found, "store", "", 0, NULL));
    assert_string_equal(found.job, "from-environment");
    unsetenv("YOKE_JOB_ID");
    expect_ok(yk__identity_init(&found, "store", "", 0, NULL));
    assert_string_equal(found.job, "default");
    assert_int_equal(yk__identity_init(&found, "store", "", 0, "two\nlines"), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "job id 'two\\nlines': there are control characters in it");
    char longer[200];
    memset(longer, 'j', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = 0;
    assert_int_equal(yk__identity_init(&found, "store", "", 0, longer), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "199 bytes, at most 127");
}

/* Two sides, and all that each sent. */
typedef struct pair {
    yk__handshake c, a;
    yk__wire to_a, to_c;
} pair;

/* Carries the bytes between them until nothing moves. */
static void run_pair(pair *p, const yk__identity *connects, const yk__identity *accepts)
{
    memset(p, 0, sizeof(*p));
    yk__handshake_init(&p->c, connects, false, &p->to_a);
    yk__handshake_init(&p->a, accepts, true, &p->to_c);
    size_t at_a = 0, at_c = 0, moved;
    do {
        moved = 0;
        if (p->to_a.size > at_a)
            moved += yk__handshake_feed(&p->a, p->to_a.data + at_a, p->to_a.size - at_a, &p->to_c);
        at_a += moved;
        size_t back = 0;
        if (p->to_c.size > at_c)
            back = yk__handshake_feed(&p->c, p->to_c.data + at_c, p->to_c.size - at_c, &p->to_a);
        at_c += back;
        moved += back;
    } while (moved);
}

static void clear_pair(pair *p)
{
    yk__wire_clear(&p->to_a);
    yk__wire_clear(&p->to_c);
}

static void both_sides_agree(void **state)
{
    (void)state;
    yk__identity c = identity_of("same", 4), a = identity_of("same", 4);
    c.pid = 4711;
    pair p;
    run_pair(&p, &c, &a);
    assert_int_equal(p.c.state, YK__HANDSHAKE_DONE);
    assert_int_equal(p.a.state, YK__HANDSHAKE_DONE);
    assert_int_equal(p.a.peer.pid, 4711);
    assert_string_equal(p.a.peer.job, "job");
    assert_string_equal(p.c.peer.host, a.host);
    assert_string_equal(p.c.peer.job, ""); /* the accepting side does not tell */
    clear_pair(&p);
}

/* True if a wire holds this text. */
static bool holds(const yk__wire *wire, const char *text)
{
    return memmem(wire->data, wire->size, text, strlen(text)) != NULL;
}

static void they_differ(void **state)
{
    (void)state;
    static const char *const expected[] = {"wrong secret", "wrong job", "wrong version", "wrong service",
                                           "wrong version"};
    for (int i = 0; i < 5; i++) {
        yk__identity c = identity_of(i == 0 ? "evil" : "good", 4), a = identity_of("good", 4);
        snprintf(a.host, sizeof(a.host), "host-of-a");
        snprintf(c.host, sizeof(c.host), "host-of-c");
        if (i == 1)
            snprintf(c.job, sizeof(c.job), "another");
        if (i == 2)
            snprintf(c.version, sizeof(c.version), "0.0.9");
        if (i == 3)
            snprintf(c.service, sizeof(c.service), "comm");
        if (i == 4)
            c.protocol = YK__PROTOCOL + 1;
        pair p;
        run_pair(&p, &c, &a);
        assert_int_equal(p.c.state, YK__HANDSHAKE_FAILED);
        assert_int_equal(p.a.state, YK__HANDSHAKE_FAILED);
        assert_non_null(strstr(p.c.why, expected[i]));
        assert_non_null(strstr(p.a.why, expected[i]));
        /* A peer that lacks the secret or names another job is told nothing, nor is anybody who listens in. */
        bool may_know = i == 2 || i == 3;
        assert_int_equal(strstr(p.c.why, "host-of-a") != NULL, may_know);
        assert_int_equal(strstr(p.a.why, "host-of-c") != NULL, may_know || i == 1);
        assert_int_equal(strstr(p.a.why, "'job'") != NULL, i < 2);
        if (i == 1)
            assert_null(strstr(p.c.why, "'job'"));
        if (i == 2) /* of two releases: both sides name both */
            assert_true(strstr(p.c.why, "0.0.9") && strstr(p.c.why, YK_VERSION) && strstr(p.a.why, "0.0.9") &&
                        strstr(p.a.why, YK_VERSION));
        assert_false(holds(&p.to_c, "host-of-a") || holds(&p.to_a, "host-of-c"));
        assert_false(holds(&p.to_c, YK_VERSION) || holds(&p.to_a, YK_VERSION));
        assert_false(holds(&p.to_c, "job") || holds(&p.to_a, "job"));
        clear_pair(&p);
    }
}

/* Both sides derive the same keys, and other ones in every session; what is encrypted depends on both. */
static void sessions(void **state)
{
    (void)state;
    unsigned char before[YK__SESSION_KEY] = {0};
    for (int wishes = 0; wishes < 4; wishes++) {
        yk__identity c = identity_of("good", 4), a = identity_of("good", 4);
        c.encrypt = wishes & 1;
        a.encrypt = wishes & 2;
        pair p;
        run_pair(&p, &c, &a);
        assert_int_equal(p.a.state, YK__HANDSHAKE_DONE);
        assert_int_equal(p.c.state, YK__HANDSHAKE_DONE);
        assert_memory_equal(p.a.session, p.c.session, YK__SESSION_KEY);
        assert_memory_not_equal(p.a.session, before, YK__SESSION_KEY);
        memcpy(before, p.a.session, YK__SESSION_KEY);
        assert_int_equal(p.a.cipher, p.c.cipher);
        assert_int_equal(p.a.cipher != YK__CIPHER_NONE, wishes != 0);
        clear_pair(&p);
    }
}

/* A peer that has no secret repeats what it heard: an old proof, its own hello, the other side's proof sent back. */
static void replays(void **state)
{
    (void)state;
    yk__identity member = identity_of("good", 4), server = identity_of("good", 4);
    pair recorded;
    run_pair(&recorded, &member, &server);
    assert_int_equal(recorded.a.state, YK__HANDSHAKE_DONE);
    yk__handshake again;
    yk__wire out = {0};
    yk__handshake_init(&again, &server, true, &out);
    size_t used = yk__handshake_feed(&again, recorded.to_a.data, recorded.to_a.size, &out);
    assert_int_equal(again.state, YK__HANDSHAKE_PROOF);
    yk__handshake_feed(&again, recorded.to_a.data + used, recorded.to_a.size - used, &out);
    assert_int_equal(again.state, YK__HANDSHAKE_FAILED);
    assert_non_null(strstr(again.why, "wrong secret"));
    yk__wire_clear(&out);
    /* A false server that sends the client's own proof back as its acceptance. */
    yk__identity liar = identity_of("evil", 4);
    yk__handshake client, acceptor;
    yk__wire to_server = {0}, to_client = {0};
    yk__handshake_init(&client, &member, false, &to_server);
    yk__handshake_init(&acceptor, &liar, true, &to_client);
    used = yk__handshake_feed(&acceptor, to_server.data, to_server.size, &to_client);
    assert_int_equal(used, to_server.size);
    yk__handshake_feed(&client, to_client.data, to_client.size, &to_server);
    assert_int_equal(client.state, YK__HANDSHAKE_PROOF);
    assert_true(to_server.size > used + YK__FRAME_HEAD + 1 + YK__PROOF_SIZE);
    to_server.data[used + YK__FRAME_HEAD] = 2; /* an acceptance */
    yk__handshake_feed(&client, to_server.data + used, to_server.size - used, &to_client);
    assert_int_equal(client.state, YK__HANDSHAKE_FAILED);
    assert_non_null(strstr(client.why, "wrong secret"));
    yk__wire_clear(&to_server);
    yk__wire_clear(&to_client);
    clear_pair(&recorded);
}

/* A connecting side does not get in if any bit that it sends is changed; and it does in pieces of any size. */
static void changed_bits_and_pieces(void **state)
{
    (void)state;
    yk__identity member = identity_of("good", 4), server = identity_of("good", 4);
    int done = 0;
    for (size_t bit = 0; bit < 3000; bit++) {
        yk__handshake c, a;
        yk__wire to_a = {0}, to_c = {0};
        yk__handshake_init(&c, &member, false, &to_a);
        yk__handshake_init(&a, &server, true, &to_c);
        size_t hello = to_a.size, at = 0;
        if (bit / 8 < hello)
            to_a.data[bit / 8] ^= (unsigned char)(1 << bit % 8);
        for (size_t end = 1; end <= to_a.size && a.state < YK__HANDSHAKE_DONE; end++) {
            size_t used = yk__handshake_feed(&a, to_a.data + at, end - at, &to_c);
            at += used;
            if (a.state != YK__HANDSHAKE_PROOF || !used)
                continue;
            yk__handshake_feed(&c, to_c.data, to_c.size, &to_a);
            if (bit / 8 >= hello && bit / 8 < to_a.size)
                to_a.data[bit / 8] ^= (unsigned char)(1 << bit % 8);
        }
        done += a.state == YK__HANDSHAKE_DONE;
        if ((a.state == YK__HANDSHAKE_DONE) != (bit / 8 >= to_a.size && to_a.size > hello))
            fail_msg("bit %zu of %zu bytes changed, and the state is %d", bit, to_a.size, a.state);
        yk__wire_clear(&to_a);
        yk__wire_clear(&to_c);
    }
    assert_true(done > 0); /* those beyond the last byte */
}

/* Both sides on sockets, between which bytes are carried in pieces; the connecting side's next words follow its proof
 * at once. */
static void greet_in_pieces(size_t piece, const char *key_of_a)
{
    yk__identity member = identity_of("good", 4), server = identity_of(key_of_a, 4);
    char why_c[YK__WHY_SIZE], why_a[YK__WHY_SIZE], buffer[2048];
    int c[2], a[2], came = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, c), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, a), 0);
    yk__greeting of_c, of_a;
    yk__greeting_init(&of_c, &member, false);
    yk__greeting_init(&of_a, &server, true);
    yk__reason at_c, at_a = YK__NO_ANSWER;
    size_t held = 0;
    for (int round = 0; round < 5000 && at_a == YK__NO_ANSWER; round++) {
        at_c = yk__greeting_move(&of_c, c[0], why_c);
        assert_int_equal(at_c, YK__NO_ANSWER);
        ssize_t n = recv(c[1], buffer + held, sizeof(buffer) - held - 4, 0);
        held += n > 0 ? (size_t)n : 0;
        if (n > 0 && ++came == 2) { /* the hello, then the proof */
            memcpy(buffer + held, "next", 4);
            held += 4;
        }
        size_t now = held < piece ? held : piece;
        assert_int_equal(send(a[1], buffer, now, 0), now);
        memmove(buffer, buffer + now, held -= now);
        at_a = yk__greeting_move(&of_a, a[0], why_a);
        assert_int_equal(yk__greeting_waits_for(&of_a), POLLIN);
        char back[2048];
        n = recv(a[1], back, sizeof(back), 0);
        if (n > 0)
            assert_int_equal(send(c[1], back, (size_t)n, 0), n);
    }
    assert_int_equal(came, 2);
    at_c = yk__greeting_move(&of_c, c[0], why_c);
    bool fits = strcmp(key_of_a, "good") == 0;
    assert_int_equal(at_a, fits ? YK__REACHED : YK__REJECTED);
    assert_int_equal(at_c, at_a);
    if (fits) {
        assert_int_equal(yk__greeting_move(&of_a, a[0], why_a), YK__REACHED);
        if (held)
            assert_int_equal(send(a[1], buffer, held, 0), held);
        assert_int_equal(recv(a[0], buffer, sizeof(buffer), 0), 4);
        assert_memory_equal(buffer, "next", 4);
    } else {
        assert_non_null(strstr(why_a, "wrong secret"));
        assert_non_null(strstr(why_c, "wrong secret"));
    }
    yk__greeting_clear(&of_c);
    yk__greeting_clear(&of_a);
    for (int i = 0; i < 2; i++) {
        close(c[i]);
        close(a[i]);
    }
}

static void greetings(void **state)
{
    (void)state;
    greet_in_pieces(1, "good");
    greet_in_pieces(7, "good");
    greet_in_pieces(2000, "good");
    greet_in_pieces(2000, "evil");
    /* Bytes that are no hello are recognised by the first of them, and get no answer. */
    yk__identity server = identity_of("good", 4);
    yk__greeting g;
    char why[YK__WHY_SIZE], byte;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    yk__greeting_init(&g, &server, true);
    assert_int_equal(yk__greeting_move(&g, ends[0], why), YK__NO_ANSWER);
    assert_int_equal(send(ends[1], "GET / HT", 8, 0), 8);
    assert_int_equal(yk__greeting_move(&g, ends[0], why), YK__REJECTED);
    assert_non_null(strstr(why, "does not speak yoke's protocol"));
    assert_int_equal(recv(ends[1], &byte, 1, 0), -1);
    yk__greeting_clear(&g);
    yk__greeting_init(&g, &server, true);
    close(ends[1]);
    assert_int_equal(yk__greeting_move(&g, ends[0], why), YK__LOST);
    assert_non_null(strstr(why, "closed by the other side during the handshake"));
    yk__greeting_clear(&g);
    close(ends[0]);
}

int main(void)
{
    unsetenv("YOKE_JOB_SECRET_FILE");
    unsetenv("YOKE_JOB_SECRET_FD");
    unsetenv("YOKE_JOB_ID");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(secret_from_the_environment),
        cmocka_unit_test(both_sides_agree),
        cmocka_unit_test(they_differ),
        cmocka_unit_test(sessions),
        cmocka_unit_test(replays),
        cmocka_unit_test(changed_bits_and_pieces),
        cmocka_unit_test(greetings),
    };
    return cmocka_run_group_tests_name("handshake", tests, NULL, NULL);
}
