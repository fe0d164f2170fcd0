/*
 * host_soak_test.c - groups over TCP that come and go by the hundred, and more ranks than cores.
 */
int faults_main(void);
#define main faults_main /* the cases are those of faults_test.c */
#include "tests/comm/faults_test.c"
#undef main

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_soak),
        cmocka_unit_test(test_crowd),
    };
    setenv("YOKE_SHARED_MEMORY", "0", 1);
    return cmocka_run_group_tests_name("groups over TCP come and go", tests, NULL, NULL);
}
