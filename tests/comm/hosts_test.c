/*
 * hosts_test.c - the suite of collectives_test.c over hosts with several ranks each, unequal in number: shared memory
 * inside a host and TCP between hosts, together.
 */
int collectives_main(void);
#define main collectives_main /* the cases are those of collectives_test.c */
#include "tests/comm/collectives_test.c"
#undef main

static void test_uneven(void **unused)
{
    test_layout = UNEVEN;
    test_3_threads(unused);
    test_7_threads(unused);
}

static void test_blocks(void **unused)
{
    test_layout = BLOCKS;
    test_8_threads(unused);
}

#ifndef __SANITIZE_THREAD__
static void test_processes(void **unused)
{
    test_layout = UNEVEN;
    test_3_processes(unused);
    if (sanitized_size(1, 0)) {
        test_layout = BLOCKS;
        test_8_processes(unused);
    }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uneven),
        cmocka_unit_test(test_blocks),
#ifndef __SANITIZE_THREAD__
        cmocka_unit_test(test_processes),
#endif
    };
    return cmocka_run_group_tests_name("collectives over several hosts", tests, NULL, NULL);
}
