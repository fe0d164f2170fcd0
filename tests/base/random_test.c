/* random_test.c - Philox against the authors' known answers, and what is made of its bits. */
#include "tests/support/expect.h"

#include "base/core.h"
#include "base/random_branch.h"

static void philox_known_answers(void **state)
{
    (void)state;
    /* Random123's kat_vectors for philox4x32 with 10 rounds. Its counter is (index low, index high, epoch, purpose). */
    static const struct {
        uint32_t counter[4], key[2], expected[4];
    } answers[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        const uint32_t *c = answers[i].counter, *k = answers[i].key;
        yk__stream s = {.key = (uint64_t)k[1] << 32 | k[0], .epoch = c[2], .purpose = c[3]};
        uint32_t out[4];
        yk__philox(s, (uint64_t)c[1] << 32 | c[0], out);
        assert_memory_equal(out, answers[i].expected, sizeof(out));
    }
}

static void unit_numbers(void **state)
{
    (void)state;
    assert_true(yk__unit_float(0) == 0.0f);
    assert_true(yk__unit_float(UINT32_MAX) == 1.0f - 0x1p-24f);
    assert_true(yk__unit_float(0x80000000u) == 0.5f);
    assert_true(yk__unit_double(0, 0) == 0.0);
    assert_true(yk__unit_double(UINT32_MAX, UINT32_MAX) == 1.0 - 0x1p-53);
    assert_true(yk__unit_double(0x40000000u, 0) == 0.25);
    assert_int_equal(yk__below(0, 0, 10), 0);
    assert_int_equal(yk__below(UINT32_MAX, UINT32_MAX, 10), 9);
    assert_int_equal(yk__below(0x80000000u, 0, 10), 5);
    assert_int_equal(yk__below(UINT32_MAX, UINT32_MAX, UINT64_MAX), UINT64_MAX - 1);
}

static void below_is_even(void **state)
{
    (void)state;
    enum { BOUND = 7, DRAWS = 70000 };
    int counts[BOUND] = {0};
    for (int i = 0; i < DRAWS; i++) {
        uint32_t words[4];
        yk__philox((yk__stream){.key = 3, .purpose = YK__RANDOM_TEST}, (uint64_t)i, words);
        counts[yk__below(words[0], words[1], BOUND)]++;
    }
    double chi = 0, expected = (double)DRAWS / BOUND;
    for (int k = 0; k < BOUND; k++)
        chi += (counts[k] - expected) * (counts[k] - expected) / expected;
    assert_true(chi < 22.5); /* 6 degrees of freedom: one in a thousand is above */
}

static void permutations_hold_each_number_once(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 2, 3, 10, 257, 1000};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        int64_t order[1001], n = sizes[i];
        bool seen[1001] = {false};
        order[n] = -77;
        yk__random_permutation((yk__stream){.key = 5, .purpose = YK__RANDOM_SHUFFLE, .epoch = (uint32_t)i}, order, n);
        for (int64_t k = 0; k < n; k++) {
            assert_true(order[k] >= 0 && order[k] < n && !seen[order[k]]);
            seen[order[k]] = true;
        }
        assert_int_equal(order[n], -77);
    }
}

/* The same loop written out, from the definition in core.h: Fisher-Yates from the end, two draws a block. */
static void permutations_follow_the_stream(void **state)
{
    (void)state;
    enum { N = 700 };
    yk__stream s = {.key = 12345, .purpose = YK__RANDOM_SHUFFLE, .epoch = 2};
    int64_t order[N], expected[N];
    for (int64_t i = 0; i < N; i++)
        expected[i] = i;
    for (int64_t last = N - 1; last > 0; last--) {
        uint64_t draw = (uint64_t)(N - 1 - last);
        uint32_t words[4];
        yk__philox(s, draw / 2, words);
        uint64_t bits = (uint64_t)words[draw % 2 * 2] << 32 | words[draw % 2 * 2 + 1];
        int64_t pick = (int64_t)((unsigned __int128)bits * (unsigned __int128)(last + 1) >> 64);
        int64_t kept = expected[last];
        expected[last] = expected[pick];
        expected[pick] = kept;
    }
    yk__random_permutation(s, order, N);
    assert_memory_equal(order, expected, sizeof(order));
    yk__random_permutation(s, order, N);
    assert_memory_equal(order, expected, sizeof(order));
    s.epoch++;
    yk__random_permutation(s, order, N);
    assert_memory_not_equal(order, expected, sizeof(order));
}

static void all_permutations_of_four_are_as_likely(void **state)
{
    (void)state;
    enum { DRAWS = 48000 };
    int counts[256] = {0};
    for (int i = 0; i < DRAWS; i++) {
        int64_t o[4];
        yk__random_permutation((yk__stream){.key = 9, .purpose = YK__RANDOM_TEST, .epoch = (uint32_t)i}, o, 4);
        counts[o[0] << 6 | o[1] << 4 | o[2] << 2 | o[3]]++;
    }
    double chi = 0, expected = DRAWS / 24.0;
    int kinds = 0;
    for (int k = 0; k < 256; k++) {
        kinds += counts[k] > 0;
        if (counts[k])
            chi += (counts[k] - expected) * (counts[k] - expected) / expected;
    }
    assert_int_equal(kinds, 24);
    assert_true(chi < 49.7); /* 23 degrees of freedom: one in a thousand is above */
}

static void the_process_generator(void **state)
{
    (void)state;
    yk_manual_seed(42);
    yk__stream a = yk__random_next(), b = yk__random_next();
    assert_int_equal(a.key, 42);
    assert_int_equal(a.purpose, YK__RANDOM_USER);
    assert_int_equal(a.epoch, 0);
    assert_int_equal(b.epoch, 1);
    yk_manual_seed(42);
    yk__stream again = yk__random_next();
    assert_int_equal(again.epoch, 0);
    yk_manual_seed(UINT64_MAX);
    assert_true(yk__random_next().key == UINT64_MAX);
}

/* Generators that stood elsewhere move as far as the process's, also where that was seeded anew. */
static void generators_follow(void **state)
{
    (void)state;
    yk_random_set_state((yk_random_state){40, 10});
    yk_random_state all[] = {{40, 10}, {41, 10}, {42, UINT32_MAX}};
    yk__random_follow(all, 3);
    assert_true(all[0].calls == 10 && all[1].calls == 10 && all[2].calls == UINT32_MAX && all[2].seed == 42);
    (void)yk__random_next();
    (void)yk__random_next();
    yk__random_follow(all, 3);
    assert_true(all[0].calls == 12 && all[1].calls == 12 && all[2].calls == 1 && all[1].seed == 41);
    yk_manual_seed(7);
    (void)yk__random_next();
    yk__random_follow(all, 3);
    for (int i = 0; i < 3; i++)
        assert_true(all[i].seed == 7 + (uint64_t)i && all[i].calls == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(unit_numbers),
        cmocka_unit_test(below_is_even),
        cmocka_unit_test(permutations_hold_each_number_once),
        cmocka_unit_test(permutations_follow_the_stream),
        cmocka_unit_test(all_permutations_of_four_are_as_likely),
        cmocka_unit_test(the_process_generator),
        cmocka_unit_test(generators_follow),
    };
    return cmocka_run_group_tests_name("base/random", tests, NULL, NULL);
}
