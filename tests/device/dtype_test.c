/* dtype_test.c - names, sizes, and PyTorch's promotion table. */
#include "tests/support/expect.h"

#include <yoke/tensor.h>

#include "tests/golden/promotion_golden.h"

static const struct {
    const char *name, *brief;
    size_t size;
    bool floating;
} facts[YK__DTYPES] = {
    [YK_F32] = {"float32", "f32", 4, true}, [YK_F64] = {"float64", "f64", 8, true},
    [YK_F16] = {"float16", "f16", 2, true}, [YK_BF16] = {"bfloat16", "bf16", 2, true},
    [YK_I64] = {"int64", "i64", 8, false},  [YK_I32] = {"int32", "i32", 4, false},
    [YK_U8] = {"uint8", "u8", 1, false},    [YK_BOOL] = {"bool", "bool", 1, false},
};

static void names_and_sizes(void **state)
{
    (void)state;
    for (int i = 0; i < YK__DTYPES; i++) {
        yk_dtype dtype = (yk_dtype)i, parsed;
        assert_string_equal(yk_dtype_name(dtype), facts[i].name);
        assert_int_equal(yk_dtype_size(dtype), facts[i].size);
        assert_int_equal(yk_dtype_is_floating(dtype), facts[i].floating);
        expect_ok(yk_dtype_parse(facts[i].name, &parsed));
        assert_int_equal(parsed, dtype);
        expect_ok(yk_dtype_parse(facts[i].brief, &parsed));
        assert_int_equal(parsed, dtype);
    }
    assert_int_equal(YK_F32, 0); /* the default where a dtype is zero */
    static const yk_dtype outside[] = {YK__DTYPES, (yk_dtype)-1};
    for (int i = 0; i < 2; i++) {
        assert_string_equal(yk_dtype_name(outside[i]), "unknown");
        assert_int_equal(yk_dtype_size(outside[i]), 0);
        assert_false(yk_dtype_is_floating(outside[i]));
    }
    yk_dtype dtype;
    assert_int_equal(yk_dtype_parse("f8", &dtype), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "unknown dtype 'f8': expected f32, f64");
    assert_int_equal(yk_dtype_parse(NULL, &dtype), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "the name is NULL");
}

static void promotion_is_pytorchs(void **state)
{
    (void)state;
    for (int a = 0; a < YK__DTYPES; a++) {
        for (int b = 0; b < YK__DTYPES; b++) {
            yk_dtype got = yk_dtype_promote((yk_dtype)a, (yk_dtype)b);
            if (got != promoted[a][b])
                fail_msg("%s and %s give %s, expected %s", facts[a].name, facts[b].name, yk_dtype_name(got),
                         yk_dtype_name(promoted[a][b]));
        }
    }
    assert_int_equal(promoted_with_scalar[YK_I32][YK_I64], YK_I32); /* used in raw_test.c */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_sizes),
        cmocka_unit_test(promotion_is_pytorchs),
    };
    return cmocka_run_group_tests_name("device/dtype", tests, NULL, NULL);
}
