/*
 * variables_test.c - the environment of a process that is to be started: all of it, or none where memory is short.
 */
#include "tests/support/expect.h"

#include <stdlib.h>
#include <string.h>

#include "host/rank_info.h"
#include "launch/variables.h"

static int left = -1; /* copies of text that there is memory for; -1: any number */

char *strdup(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = left == 0 ? NULL : malloc(size);
    left -= left > 0;
    return copy ? memcpy(copy, text, size) : NULL;
}

static char **make(void)
{
    static const char *const dropped[] = {"RANK", "MASTER_ADDR", NULL};
    yk__variables v = {0};
    yk__variables_inherit(&v, dropped);
    yk__rank_variables_put(
        &(yk__rank_variables){.rank = 3, .world_size = 4, .port = 7, .address = "a", .job = "j", .role = "r"},
        yk__variables_put, &v);
    return yk__variables_take(&v);
}

static int count_of(char **list, const char *entry)
{
    int count = 0;
    for (char **e = list; *e; e++)
        count += strcmp(*e, entry) == 0;
    return count;
}

static void test_all(void **unused)
{
    (void)unused;
    setenv("RANK", "9", 1);
    setenv("RANKING", "9", 1);
    char **list = make();
    assert_non_null(list);
    assert_int_equal(count_of(list, "RANK=3"), 1);
    assert_int_equal(count_of(list, "RANK=9"), 0);
    assert_int_equal(count_of(list, "RANKING=9"), 1);
    assert_int_equal(count_of(list, "WORLD_SIZE=4"), 1);
    assert_int_equal(count_of(list, "MASTER_ADDR=a"), 1);
    yk__variables_free(list);
    unsetenv("RANK");
}

/* Whichever copy fails, there is no list; it used to end where the memory did. */
static void test_short_of_memory(void **unused)
{
    (void)unused;
    int memory = 0;
    char **list;
    for (left = 0; !(list = make()); left = ++memory) {
        yk_clear_error();
        assert_true(memory < 10000);
    }
    left = -1;
    yk__variables_free(list);
    assert_true(memory > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all), cmocka_unit_test(test_short_of_memory)};
    return cmocka_run_group_tests_name("variables", tests, NULL, NULL);
}
