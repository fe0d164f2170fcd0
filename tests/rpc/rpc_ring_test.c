/*
 * rpc_ring_test.c - rings of messages in shared memory: order and contents around the end of the ring, room, and what a
 * hostile process may write into one.
 */
#include <string.h>

#include "rpc/rpc_ring.h"
#include "tests/support/expect.h"

static yk__ring_words words;
static unsigned char bytes[YK__RING_BYTES + 64]; /* what lies behind is looked at, too */

typedef struct both {
    yk__ring in, out;
} both;

static both fresh(uint64_t at)
{
    memset(&words, 0, sizeof(words));
    memset(bytes, 0xa5, sizeof(bytes));
    words.written = words.read = at;
    yk__ring one = {.words = &words, .bytes = bytes, .at = at};
    return (both){one, one};
}

static void expect_untouched(void)
{
    for (size_t i = YK__RING_BYTES; i < sizeof(bytes); i++)
        assert_int_equal(bytes[i], 0xa5);
}

/* Frames of all sizes come out as they went in, at any position, also one past which 64 bits begin anew. */
static void test_frames(void **state)
{
    (void)state;
    static unsigned char sent[YK__RING_MOST];
    for (size_t i = 0; i < sizeof(sent); i++)
        sent[i] = (unsigned char)(i * 7 + i / 251);
    static const uint64_t starts[] = {0, YK__RING_BYTES - 8, UINT64_MAX - 7};
    for (int s = 0; s < 3; s++) {
        both b = fresh(starts[s]);
        yk__wire payload = {0};
        assert_int_equal(yk__ring_next(&b.in, &payload), 0);
        for (int i = 0; i < 3000; i++) {
            size_t size = i % 100 == 99 ? YK__RING_MOST : (size_t)i * 13 % 700, head = size / 3;
            assert_true(yk__ring_put(&b.out, 1 + (unsigned)i % 9, sent, head, sent + head, size - head));
            assert_true(yk__ring_has_frames(&b.in));
            assert_int_equal(yk__ring_next(&b.in, &payload), 1 + i % 9);
            assert_int_equal(payload.size, size);
            assert_memory_equal(payload.data, sent, size);
        }
        assert_false(yk__ring_has_frames(&b.in));
        yk__wire_clear(&payload);
    }
    expect_untouched();
}

/* A full ring takes nothing, and the reader learns that somebody waits. */
static void test_room(void **state)
{
    (void)state;
    both b = fresh(0);
    yk__wire payload = {0};
    int count = 0;
    char text[1000] = "";
    while (yk__ring_put(&b.out, 1, NULL, 0, text, sizeof(text)))
        count++;
    assert_int_equal(count, YK__RING_BYTES / 1008);
    assert_false(yk__ring_ask_room(&b.out));
    for (int i = 0; i < count; i++)
        assert_int_equal(yk__ring_next(&b.in, &payload), 1);
    assert_true(yk__ring_fed(&b.in) && !yk__ring_fed(&b.in));
    assert_true(yk__ring_ask_room(&b.out) && yk__ring_put(&b.out, 2, NULL, 0, NULL, 0));
    assert_int_equal(yk__ring_next(&b.in, &payload), 2);
    assert_int_equal(payload.size, 0);
    yk__wire_clear(&payload);
    expect_untouched();
}

/* Positions and frames that cannot be break the ring for its reader, or leave its writer without room. */
static void test_nonsense(void **state)
{
    (void)state;
    static const uint64_t positions[] = {1, 4, 12, YK__RING_BYTES + 8, UINT64_MAX, UINT64_MAX - 7, 1ull << 40};
    yk__wire payload = {0};
    for (size_t i = 0; i < sizeof(positions) / sizeof(positions[0]); i++) {
        both b = fresh(0);
        words.written = positions[i];
        assert_int_equal(yk__ring_next(&b.in, &payload), 0);
        assert_true(b.in.broken && !yk__ring_has_frames(&b.in));
        b = fresh(0);
        words.read = positions[i];
        bool fits = yk__ring_put(&b.out, 1, NULL, 0, "x", 1);
        assert_true(!fits || 0 - positions[i] < YK__RING_BYTES); /* the others cannot have been read */
    }
    static const uint32_t heads[][2] = {{0, 0}, {9, 1}, {YK__RING_MOST + 1, 1}, {UINT32_MAX, 1}, {UINT32_MAX - 7, 1}};
    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        both b = fresh(0);
        memcpy(bytes, heads[i], sizeof(heads[i]));
        words.written = 16;
        assert_int_equal(yk__ring_next(&b.in, &payload), 0);
        assert_true(b.in.broken);
    }
    yk__wire_clear(&payload);
    expect_untouched();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames),
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_nonsense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
