/*
 * value_test.c - values of every kind: made, asked, read as C values, written and read again.
 */
#include "tests/support/expect.h"

#include <unistd.h>

#include <yoke/checkpoint.h>

static yk_value *one_of_each(void)
{
    yk_value *list = yk_value_list(), *tuple = yk_value_tuple(), *dict = yk_value_dict();
    expect_ok(yk_value_append(list, yk_value_none()));
    expect_ok(yk_value_append(list, yk_value_bool(true)));
    expect_ok(yk_value_append(tuple, yk_value_int(-3)));
    expect_ok(yk_value_append(tuple, yk_value_real(0.5)));
    expect_ok(yk_value_set(dict, "list", list));
    expect_ok(yk_value_set(dict, "tuple", tuple));
    expect_ok(yk_value_set(dict, "text", yk_value_string("\xc3\xa4")));
    expect_ok(yk_value_set(dict, "bytes", yk_value_bytes("a\0b", 3)));
    expect_ok(yk_value_set(dict, "off", yk_value_bool(false)));
    expect_ok(yk_value_set_int(dict, 7, yk_value_tensor(yk_arange(0, 3, 1, NULL))));
    return dict;
}

static void check_one_of_each(const yk_value *dict)
{
    static const yk_value_kind kinds[] = {YK_VALUE_LIST,  YK_VALUE_TUPLE, YK_VALUE_STRING,
                                          YK_VALUE_BYTES, YK_VALUE_BOOL,  YK_VALUE_TENSOR};
    static const char *const names[] = {"list", "tuple", "string", "bytes", "bool", "tensor"};
    static const char *const keys[] = {"list", "tuple", "text", "bytes", "off", NULL};
    assert_int_equal(yk_value_kind_of(dict), YK_VALUE_DICT);
    assert_int_equal(yk_value_count(dict), 6);
    for (int i = 0; i < 6; i++) {
        int64_t number = 0;
        const char *key = yk_value_key(dict, i, &number);
        yk_value_kind kind = yk_value_kind_of(yk_value_at(dict, i));
        assert_int_equal(kind, kinds[i]);
        assert_string_equal(yk_value_kind_name(kind), names[i]);
        if (keys[i])
            assert_string_equal(key, keys[i]);
        else
            assert_true(!key && number == 7);
    }
    const yk_value *list = yk_value_get(dict, "list"), *tuple = yk_value_get(dict, "tuple");
    assert_int_equal(yk_value_kind_of(yk_value_at(list, 0)), YK_VALUE_NONE);
    assert_true(yk_value_as_bool(yk_value_at(list, 1)));
    assert_false(yk_value_as_bool(yk_value_get(dict, "off")));
    assert_int_equal(yk_value_as_int(yk_value_at(tuple, 0)), -3);
    expect_near(yk_value_as_real(yk_value_at(tuple, 0)), -3, 0, 0);
    expect_near(yk_value_as_real(yk_value_at(tuple, 1)), 0.5, 0, 0);
    assert_string_equal(yk_value_as_string(yk_value_get(dict, "text")), "\xc3\xa4");
    size_t size = 0;
    const char *bytes = yk_value_as_bytes(yk_value_get(dict, "bytes"), &size);
    assert_int_equal(size, 3);
    assert_memory_equal(bytes, "a\0b", 4); /* and the zero beyond them */
    expect_near(yk_get(yk_value_as_tensor(yk_value_get_int(dict, 7)), (int64_t[]){2}), 2, 0, 0);
    assert_null(yk_last_error());
}

static void every_kind(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    check_one_of_each(one_of_each());
    assert_string_equal(yk_value_kind_name(YK_VALUE_NONE), "none");
    assert_string_equal(yk_value_kind_name(YK_VALUE_INT), "int");
    assert_string_equal(yk_value_kind_name(YK_VALUE_REAL), "real");
    assert_string_equal(yk_value_kind_name(YK_VALUE_SET), "set");
    assert_string_equal(yk_value_kind_name(YK_VALUE_DICT), "dict");
    yk_scope_end(scope);
}

static void saved_and_read(void **state)
{
    (void)state;
    char path[] = "/tmp/yoke-value-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    yk_scope scope = yk_scope_begin();
    expect_ok(yk_pt_save(path, one_of_each()));
    check_one_of_each(yk_pt_load(path, NULL));
    yk_scope_end(scope);
    assert_int_equal(unlink(path), 0);
}

/* Another kind is an error that names both. */
static void other_kinds(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    assert_false(yk_value_as_bool(yk_value_int(1)));
    expect_error(YK_ERR_ARGUMENT, "bool");
    assert_int_equal(yk_value_as_int(yk_value_real(1)), 0);
    expect_error(YK_ERR_ARGUMENT, "real");
    assert_true(isnan(yk_value_as_real(yk_value_string("1"))));
    expect_error(YK_ERR_ARGUMENT, "string");
    assert_null(yk_value_as_string(yk_value_list()));
    expect_error(YK_ERR_ARGUMENT, "list");
    assert_null(yk_value_as_tensor(yk_value_tuple()));
    expect_error(YK_ERR_ARGUMENT, "tuple");
    assert_null(yk_value_string("\xff"));
    assert_non_null(yk_last_error());
    yk_clear_error();
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind),
        cmocka_unit_test(saved_and_read),
        cmocka_unit_test(other_kinds),
    };
    return cmocka_run_group_tests_name("value", tests, NULL, NULL);
}
