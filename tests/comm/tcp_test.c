/*
 * tcp_test.c - the suite of collectives_test.c with every rank on a host of its own: all bytes go over TCP.
 */
int collectives_main(void);
#define main collectives_main /* the cases are those of collectives_test.c */
#include "tests/comm/collectives_test.c"
#undef main

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_2_threads),   cmocka_unit_test(test_4_threads),   cmocka_unit_test(test_7_threads),
#ifndef __SANITIZE_THREAD__
        cmocka_unit_test(test_3_processes), cmocka_unit_test(test_8_processes),
#endif
    };
    const struct CMUnitTest few[] = {
        cmocka_unit_test(test_4_threads),
        cmocka_unit_test(test_7_threads),
#ifndef __SANITIZE_THREAD__
        cmocka_unit_test(test_3_processes),
#endif
    };
    test_layout = EACH_ALONE;
    if (!sanitized_size(1, 0))
        return cmocka_run_group_tests_name("collectives over TCP", few, NULL, NULL);
    return cmocka_run_group_tests_name("collectives over TCP", tests, NULL, NULL);
}
