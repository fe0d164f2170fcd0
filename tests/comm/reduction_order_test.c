/*
 * reduction_order_test.c - a reduced element depends on the ranks' values and their order alone: all_reduce, reduce and
 * reduce_scatter of random pieces of a buffer, in every dtype and by every reduction, give the bits of a scalar
 * reference, for any number of ranks and any layout over hosts.
 */
#include "tests/comm/reduction_pieces.h"

/* One layout: rank r is on host number hosts[r]; NULL: all on one. */
static void run_layout(enum rank_kind kind, int ranks, const char *hosts)
{
    test_layout = hosts ? NAMED : ONE_HOST;
    test_hosts = hosts;
    print_message("%d ranks on %s\n", ranks, hosts ? hosts : "one host");
    reduction_prepare(ranks);
    run_ranks(kind, ranks, reduce_at_random, NULL, patience(60), true);
}

static void test_one_host(void **unused)
{
    (void)unused;
    for (int n = 2; n <= 9; n++)
        run_layout(THREADS, n, NULL);
#ifndef __SANITIZE_THREAD__
    run_layout(PROCESSES, 2, NULL);
    run_layout(PROCESSES, 5, NULL);
#endif
}

/* Every rank on a host of its own. */
static void test_each_alone(void **unused)
{
    (void)unused;
    static const char alone[] = "012345678";
    for (int n = 2; n <= 9; n++)
        run_layout(THREADS, n, alone);
#ifndef __SANITIZE_THREAD__
    run_layout(PROCESSES, 3, alone);
#endif
}

static void test_several_hosts(void **unused)
{
    (void)unused;
    static const char *const layouts[] = {"0011", "000111", "0001",    "0111",      "01010101", "012012012",
                                          "0110", "00112",  "0012221", "000000011", "0100"};
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
        run_layout(THREADS, (int)strlen(layouts[i]), layouts[i]);
#ifndef __SANITIZE_THREAD__
    run_layout(PROCESSES, 4, "0011");
    run_layout(PROCESSES, 6, "000111");
    run_layout(PROCESSES, 4, "0001");
    run_layout(PROCESSES, 6, "010101");
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_host), cmocka_unit_test(test_each_alone),
                                       cmocka_unit_test(test_several_hosts)};
    return cmocka_run_group_tests_name("the order of a reduction", tests, NULL, NULL);
}
