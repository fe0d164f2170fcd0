/*
 * crc32_test.c - the checksum equals zlib's for every short length and place, and may be taken in pieces.
 */
#include <zlib.h>

#include "base/core.h"
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_equals_zlib),
        cmocka_unit_test(test_pieces),
    };
    return cmocka_run_group_tests_name("crc32", tests, fill, NULL);
}
