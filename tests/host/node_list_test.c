/*
 * node_list_test.c - lists of nodes as Slurm writes them: the first name and the number of nodes, and what is none.
 */
#include "tests/support/expect.h"

#include <stdlib.h>
#include <string.h>

#include "host/node_list.h"

static void test_lists(void **unused)
{
    (void)unused;
    static const struct {
        const char *list, *first;
        int64_t count;
    } cases[] = {
        {"n1", "n1", 1},
        {"n1,n2", "n1", 2},
        {"n[1-2]", "n1", 2},
        {"n[01-03]", "n01", 3},
        {"n[001,003-010]", "n001", 9},
        {"n[9-11]", "n9", 3},
        {"n[3,1-2]", "n3", 3},
        {"login,n[0-3]", "login", 5},
        {"n[0-3],login", "n0", 5},
        {"n[7]", "n7", 1},
        {"rack[0-1]n[08-11]", "rack0n08", 8},
        {"r[2,4]-c[1-3]-n[10-12].cluster", "r2-c1-n10.cluster", 18},
        {"n[0-1]x,m[5-6]", "n0x", 4},
        {"node-01.cluster.example", "node-01.cluster.example", 1},
        {"ip_10_0_0_1", "ip_10_0_0_1", 1},
        {"10.0.0.1,10.0.0.2", "10.0.0.1", 2},
        {"[1-3]", "1", 3},
        {"cn[0-1048575]", "cn0", 1 << 20},
        {"cn[000000000000001-000000000000004]", "cn000000000000001", 4},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char first[YK__NODE_NAME];
        int64_t count;
        if (yk__node_list_read("LIST", cases[i].list, first, &count))
            fail_msg("%s: %s", cases[i].list, yk_last_error()->message);
        assert_string_equal(first, cases[i].first);
        if (count != cases[i].count)
            fail_msg("%s: %lld nodes, not %lld", cases[i].list, (long long)count, (long long)cases[i].count);
        assert_int_equal(yk__node_list_read("LIST", cases[i].list, first, NULL), YK_OK);
    }
}

static void test_none(void **unused)
{
    (void)unused;
    static const struct {
        const char *list, *why;
    } cases[] = {
        {"", "LIST= is no list of nodes: a name is empty, at character 1"},
        {",n1", "LIST=,n1 is no list of nodes: a name is empty, at character 1"},
        {"n1,", "a name is empty, at character 4"},
        {"n1,,n2", "a name is empty, at character 4"},
        {"n[1-3", "a bracket has no end, at character 2"},
        {"n[1-", "a bracket has no end, at character 5"},
        {"n[", "a bracket has no end, at character 3"},
        {"n[1,", "a bracket has no end, at character 5"},
        {"n[]", "']' is no number, at character 3"},
        {"n[1,]", "']' is no number, at character 5"},
        {"n[a-b]", "'a' is no number, at character 3"},
        {"n[1-b]", "'b' is no number, at character 5"},
        {"n[1-2-3]", "'-' stands between numbers, at character 6"},
        {"n[-1]", "'-' is no number, at character 3"},
        {"n[[1-2]]", "'[' is no number, at character 3"},
        {"n[1 -2]", "' ' stands between numbers, at character 4"},
        {"n1]", "']' is in no name, at character 3"},
        {"n[3-1]", "3 to 1 is backwards, at character 3"},
        {"n[0-1048576]", "there are more than 1048576 nodes, at character 3"},
        {"n[0-9999999999]", "there are more than 1048576 nodes, at character 3"},
        {"n[0-99999999999999999999]", "the number has more than 15 digits, at character 5"},
        {"n[0-1048575],m", "there are more than 1048576 nodes, at character 15"},
        {"n[0-1023]m[0-1024]", "there are more than 1048576 nodes, at character 11"},
        {"n[0-1023]m[0-1023]x[0-1048575]y[0-1048575]z[0-1048575]w[0-1048575]", "there are more than 1048576 nodes"},
        {"-oProxyCommand=x", "'=' is in no name, at character 15"},
        {"-n1", "a name begins with '-', at character 1"},
        {"n1 n2", "the byte 0x20 is in no name, at character 3"},
        {"n1\n", "the byte 0x0a is in no name, at character 3"},
        {"n\xc3\xa4", "the byte 0xc3 is in no name, at character 2"},
        {"$(reboot)", "'$' is in no name, at character 1"},
        {"user@n1:22", "'@' is in no name, at character 5"},
        {"(null)", "'(' is in no name, at character 1"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char first[YK__NODE_NAME] = "before";
        int64_t count = 7;
        assert_int_equal(yk__node_list_read("LIST", cases[i].list, first, &count), YK_ERR_FORMAT);
        expect_error(YK_ERR_FORMAT, cases[i].why);
        assert_string_equal(first, "");
        assert_int_equal(count, 7);
    }
    /* Names and lists of any length. */
    char first[YK__NODE_NAME], *name = malloc(YK__NODE_LIST_MOST + 2);
    memset(name, 'n', YK__NODE_LIST_MOST + 1);
    name[YK__NODE_NAME - 1] = '\0';
    assert_int_equal(yk__node_list_read("LIST", name, first, NULL), YK_OK);
    assert_string_equal(first, name);
    name[YK__NODE_NAME - 1] = 'n';
    name[YK__NODE_NAME] = '\0';
    assert_int_equal(yk__node_list_read("LIST", name, first, NULL), YK_ERR_FORMAT);
    expect_error(YK_ERR_FORMAT, "nnn... is no list of nodes: the first name is longer than 255 bytes");
    name[YK__NODE_NAME] = 'n';
    name[YK__NODE_LIST_MOST + 1] = '\0';
    assert_int_equal(yk__node_list_read("LIST", name, first, NULL), YK_ERR_FORMAT);
    expect_error(YK_ERR_FORMAT, "LIST has more than 1048576 bytes");
    for (int i = 0; i < YK__NODE_LIST_MOST; i++)
        name[i] = i % 2 ? ',' : 'n';
    name[YK__NODE_LIST_MOST - 1] = '\0';
    int64_t count;
    assert_int_equal(yk__node_list_read("LIST", name, first, &count), YK_OK);
    assert_int_equal(count, YK__NODE_LIST_MOST / 2);
    free(name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lists), cmocka_unit_test(test_none)};
    return cmocka_run_group_tests_name("lists of nodes", tests, NULL, NULL);
}
