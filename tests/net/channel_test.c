/* channel_test.c - messages arrive as they were sent, or it is known that they did not. */
#include "tests/support/expect.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/channel.h"

enum { LIMIT = 1 << 20 };

static yk__identity identity_of(const char *secret, bool encrypt)
{
    yk__identity identity;
    expect_ok(yk__identity_init(&identity, "launch", secret, strlen(secret), "job"));
    identity.encrypt = encrypt;
    return identity;
}

/* All that a side wants to send, given to the other in pieces; returns the bytes. */
static size_t carry(yk__channel *from, yk__channel *to, size_t piece)
{
    size_t moved = 0;
    while (from->out.size > from->sent) {
        size_t n = from->out.size - from->sent;
        n = n < piece ? n : piece;
        yk__channel_feed(to, from->out.data + from->sent, n);
        from->sent += n;
        moved += n;
    }
    from->out.size = from->sent = 0;
    return moved;
}

static void open_pair(yk__channel *c, yk__channel *a, bool encrypt, size_t piece)
{
    yk__identity of_c = identity_of("good", encrypt), of_a = identity_of("good", encrypt);
    yk__channel_init(c, &of_c, false, LIMIT);
    yk__channel_init(a, &of_a, true, LIMIT);
    while (carry(c, a, piece) + carry(a, c, piece))
        ;
    assert_true(c->open && a->open);
    c->handshake.identity = a->handshake.identity = NULL; /* not needed any more */
}

static void clear_pair(yk__channel *c, yk__channel *a)
{
    yk__channel_clear(c);
    yk__channel_clear(a);
}

static void messages(void **state)
{
    (void)state;
    static const size_t pieces[] = {1, 13, 100000};
    static const size_t sizes[] = {0, 1, 47, 48, 4096, 70000, LIMIT};
    char *payload = malloc(LIMIT);
    for (size_t i = 0; i < LIMIT; i++)
        payload[i] = (char)(i * 7 + i / 251);
    for (int encrypt = 0; encrypt < 2; encrypt++) {
        for (size_t p = 0; p < 3; p++) {
            yk__channel c, a;
            open_pair(&c, &a, encrypt, pieces[p]);
            for (size_t s = 0; s < 7; s++) {
                yk__reader reader;
                yk__channel_send(&c, 1 + (unsigned)s, payload, sizes[s]);
                yk__channel_send(&c, 99, "x", 1);
                bool visible = sizes[s] > 40 && memmem(c.out.data, c.out.size, payload, 40);
                assert_int_equal(visible, sizes[s] > 40 && !encrypt);
                carry(&c, &a, pieces[p]);
                assert_int_equal(yk__channel_next(&a, &reader), 1 + s);
                assert_int_equal(reader.end - reader.at, sizes[s]);
                assert_memory_equal(reader.at, payload, sizes[s]);
                assert_int_equal(yk__channel_next(&a, &reader), 99);
                assert_int_equal(yk__channel_next(&a, &reader), 0);
                yk__channel_send(&a, 5, payload, sizes[s]);
                carry(&a, &c, pieces[p]);
                assert_int_equal(yk__channel_next(&c, &reader), 5);
                assert_memory_equal(reader.at, payload, sizes[s]);
            }
            assert_int_equal(c.state, YK__REACHED);
            clear_pair(&c, &a);
        }
    }
    free(payload);
}

/* Messages that the connecting side sends at once arrive after its proof; none arrives from a side that lacks the
 * secret. */
static void early_messages(void **state)
{
    (void)state;
    for (int wrong = 0; wrong < 2; wrong++) {
        yk__identity of_c = identity_of(wrong ? "evil" : "good", false), of_a = identity_of("good", false);
        yk__channel c, a;
        yk__reader reader;
        yk__channel_init(&c, &of_c, false, LIMIT);
        yk__channel_init(&a, &of_a, true, LIMIT);
        yk__channel_send(&c, 7, "first", 5);
        yk__channel_send(&c, 8, "second", 6);
        int trips = 0;
        for (; !yk__channel_next(&a, &reader) && a.state == YK__REACHED; trips++) {
            carry(&c, &a, 100000);
            if (!a.open)
                carry(&a, &c, 100000);
        }
        assert_int_equal(a.state, wrong ? YK__REJECTED : YK__REACHED);
        if (!wrong) {
            assert_int_equal(trips, 2); /* hello, proof and messages */
            assert_memory_equal(reader.at, "first", 5);
            assert_int_equal(yk__channel_next(&a, &reader), 8);
            assert_memory_equal(reader.at, "second", 6);
        } else {
            assert_non_null(strstr(a.why, "wrong secret"));
            carry(&a, &c, 100000);
            assert_int_equal(c.state, YK__REJECTED);
            assert_non_null(strstr(c.why, "wrong secret: that of process"));
        }
        clear_pair(&c, &a);
    }
}

/* Three messages are sent; `change` works on their bytes, frame i being at at[i] up to at[i + 1]. */
typedef size_t change_fn(unsigned char *bytes, const size_t at[4], size_t n);

static void expect_damage(change_fn *change, size_t n, bool encrypt, unsigned before, const char *text)
{
    yk__channel c, a;
    yk__reader reader;
    unsigned char bytes[4096];
    size_t at[4] = {0};
    open_pair(&c, &a, encrypt, 100000);
    for (unsigned i = 0; i < 3; i++) {
        char payload[100];
        memset(payload, 'a' + (int)i, sizeof(payload));
        yk__channel_send(&c, i + 1, payload, sizeof(payload));
        at[i + 1] = c.out.size;
    }
    memcpy(bytes, c.out.data, c.out.size);
    size_t size = change(bytes, at, n);
    unsigned got = 0, type;
    for (size_t i = 0; i < size; i++) {
        yk__channel_feed(&a, bytes + i, 1);
        while ((type = yk__channel_next(&a, &reader))) {
            assert_int_equal(type, got + 1);
            assert_int_equal(reader.at[0], 'a' + got);
            got++;
        }
    }
    if (got != before || a.state != YK__DAMAGED || !strstr(a.why, text))
        fail_msg("change %zu: %u messages, state %d, '%s'; expected %u and '%s'", n, got, a.state, a.why, before, text);
    clear_pair(&c, &a);
}

static size_t flip(unsigned char *bytes, const size_t at[4], size_t n)
{
    bytes[at[1] + n / 8] ^= (unsigned char)(1 << n % 8);
    return at[3];
}

static size_t drop(unsigned char *bytes, const size_t at[4], size_t n)
{
    memmove(bytes + at[n], bytes + at[n + 1], at[3] - at[n + 1]);
    return at[3] - (at[n + 1] - at[n]);
}

static size_t repeat(unsigned char *bytes, const size_t at[4], size_t n)
{
    memmove(bytes + at[n + 1], bytes + at[n], at[3] - at[n]);
    return at[3] + at[n + 1] - at[n];
}

static size_t reorder(unsigned char *bytes, const size_t at[4], size_t n)
{
    unsigned char first[2048];
    size_t size = at[n + 1] - at[n];
    memcpy(first, bytes + at[n], size);
    memmove(bytes + at[n], bytes + at[n + 1], size); /* both have the same */
    memcpy(bytes + at[n + 1], first, size);
    return at[3];
}

static size_t remove_byte(unsigned char *bytes, const size_t at[4], size_t n)
{
    memmove(bytes + n, bytes + n + 1, at[3] - n - 1);
    return at[3] - 1;
}

static void damage(void **state)
{
    (void)state;
    for (int encrypt = 0; encrypt < 2; encrypt++) {
        for (size_t bit = 0; bit < 8 * (YK__FRAME_HEADER + 101); bit++)
            expect_damage(flip, bit, encrypt, 1,
                          bit < 8 * YK__FRAME_HEADER ? "the header of frame 1"
                                                     : "the 101 bytes of frame 1 were changed");
        expect_damage(drop, 0, encrypt, 0, "frame 1 came where frame 0 was due");
        expect_damage(drop, 1, encrypt, 1, "frame 2 came where frame 1 was due");
        expect_damage(repeat, 0, encrypt, 1, "frame 0 came where frame 1 was due");
        expect_damage(repeat, 2, encrypt, 3, "frame 2 came where frame 3 was due");
        expect_damage(reorder, 1, encrypt, 1, "frame 2 came where frame 1 was due");
        expect_damage(remove_byte, 10, encrypt, 0, "the header of frame 0");
        expect_damage(remove_byte, 60, encrypt, 0, "the 101 bytes of frame 0");
    }
}

/* A size that a member claims is refused before the bytes come. */
static void too_large(void **state)
{
    (void)state;
    yk__channel c, a;
    yk__reader reader;
    open_pair(&c, &a, false, 100000);
    char *payload = calloc(1, LIMIT + 1);
    yk__channel_send(&c, 1, payload, LIMIT + 1);
    yk__channel_feed(&a, c.out.data, YK__FRAME_HEADER);
    assert_int_equal(yk__channel_next(&a, &reader), 0);
    assert_int_equal(a.state, YK__DAMAGED);
    assert_non_null(strstr(a.why, "where at most"));
    free(payload);
    clear_pair(&c, &a);
}

/* With sockets: waiting, the end of the other side after its last message, and no byte too many. */
static void sockets(void **state)
{
    (void)state;
    yk__identity identity = identity_of("good", true);
    yk__channel c, a;
    int ends[2];
    unsigned type;
    yk__reader reader;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    yk__channel_init(&c, &identity, false, LIMIT);
    yk__channel_init(&a, &identity, true, LIMIT);
    assert_int_equal(yk__channel_wait_open(&c, ends[0], yk__now() + 0.05), YK__NO_ANSWER);
    assert_string_equal(c.why, "no answer to the handshake");
    yk__channel_send(&c, 3, "hello", 5);
    for (int i = 0; i < 10 && !a.open; i++) {
        yk__channel_receive_exactly(&a, ends[1]);
        yk__channel_flush(&a, ends[1]);
        yk__channel_receive_exactly(&c, ends[0]);
        yk__channel_flush(&c, ends[0]);
    }
    assert_true(a.open);
    yk__channel_send(&c, 4, "more", 4);
    assert_int_equal(yk__channel_wait_sent(&c, ends[0], yk__now() + 1), YK__REACHED);
    yk__channel_receive_exactly(&a, ends[1]);
    assert_int_equal(yk__channel_next(&a, &reader), 3);
    assert_int_equal(a.in.size, a.taken); /* the second one is still with the system */
    assert_int_equal(yk__channel_wait_message(&a, ends[1], yk__now() + 1, &type, &reader), YK__REACHED);
    assert_int_equal(type, 4);
    assert_int_equal(yk__channel_wait_message(&a, ends[1], yk__now() + 0.05, &type, &reader), YK__NO_ANSWER);
    yk__channel_send(&c, 5, "last", 4);
    assert_int_equal(yk__channel_wait_sent(&c, ends[0], yk__now() + 1), YK__REACHED);
    close(ends[0]);
    yk__channel_receive(&a, ends[1], 100000);
    assert_int_equal(yk__channel_wait_message(&a, ends[1], yk__now() + 1, &type, &reader), YK__REACHED);
    assert_int_equal(type, 5);
    assert_int_equal(yk__channel_wait_message(&a, ends[1], yk__now() + 1, &type, &reader), YK__LOST);
    assert_string_equal(a.why, "the connection was closed by the other side");
    close(ends[1]);
    clear_pair(&c, &a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages),  cmocka_unit_test(early_messages), cmocka_unit_test(damage),
        cmocka_unit_test(too_large), cmocka_unit_test(sockets),
    };
    return cmocka_run_group_tests_name("channel", tests, NULL, NULL);
}
