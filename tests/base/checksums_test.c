/*
 * checksums_test.c - CRC-32 equals zlib's, and XXH3 its library's, for every short length and offset, whole and in
 * pieces.
 */
#include <zlib.h>

#include "base/core.h"
#include "base/xxh3.h"
#include "tests/support/expect.h"

static unsigned char bytes[5000];

static int fill(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++) {
        uint32_t words[4];
        yk__philox((yk__stream){1, YK__RANDOM_TEST, 0}, i, words);
        bytes[i] = (unsigned char)words[0];
    }
    return 0;
}

static void test_known(void **state)
{
    (void)state;
    assert_int_equal(yk__crc32(0, "123456789", 9), 0xCBF43926u);
    assert_int_equal(yk__crc32(0, "", 0), 0);
}

static void test_equals_zlib(void **state)
{
    (void)state;
    for (size_t size = 0; size < 700; size++) {
        for (size_t at = 0; at < 20; at += 3) {
            uint32_t start = (uint32_t)(size * 2654435761u);
            assert_int_equal(yk__crc32(start, bytes + at, size), crc32(start, bytes + at, (uInt)size));
        }
    }
    assert_int_equal(yk__crc32(0, bytes, sizeof(bytes)), crc32(0, bytes, sizeof(bytes)));
}

static void test_pieces(void **state)
{
    (void)state;
    uint32_t whole = yk__crc32(0, bytes, sizeof(bytes));
    for (size_t cut = 0; cut < sizeof(bytes); cut += 37)
        assert_int_equal(yk__crc32(yk__crc32(0, bytes, cut), bytes + cut, sizeof(bytes) - cut), whole);
}

/* Every form that the processor can run gives the library's values. */
static void test_xxh3(void **state)
{
    (void)state;
    XXH3_state_t a, b;
    for (size_t size = 0; size < sizeof(bytes); size += size < 600 ? 1 : 997) {
        assert_int_equal(yk__xxh3_64(bytes, size), XXH3_64bits(bytes, size));
        XXH128_hash_t x = yk__xxh3_128(bytes, size, size * 3), y = XXH3_128bits_withSeed(bytes, size, size * 3);
        assert_true(x.low64 == y.low64 && x.high64 == y.high64);
        XXH3_64bits_reset(&a);
        XXH3_64bits_reset(&b);
        for (size_t at = 0, piece = 1; at < size; at += piece, piece = piece * 3 + 7) {
            piece = piece < size - at ? piece : size - at;
            yk__xxh3_update(&a, bytes + at, piece);
            XXH3_64bits_update(&b, bytes + at, piece);
        }
        assert_int_equal(XXH3_64bits_digest(&a), XXH3_64bits_digest(&b));
    }
    assert_int_equal(yk__xxh3_64("", 0), 0x2d06800538d394c2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_equals_zlib),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_xxh3),
    };
    return cmocka_run_group_tests_name("checksums", tests, fill, NULL);
}
