/*
 * json_line_test.c - a value as one line: numbers of so many digits, what JSON has no number for, text that is no UTF-8
 * and text that a terminal would obey.
 */
#include "base/json_line.h"
#include "tests/support/expect.h"

static void expect_line(json_t *value, int digits, const char *expected)
{
    char *line = yk__json_line(value, digits);
    assert_non_null(line);
    assert_string_equal(line, expected);
    free(line);
}

static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        double value;
        int digits;
        const char *text;
    } rows[] = {
        {2.30212345678, 9, "2.30212346\n"},
        {2.30212345678, 6, "2.30212\n"},
        {100, 6, "100\n"},
        {100.00000001, 6, "100\n"},
        {-0.0, 6, "0\n"},
        {1234567, 6, "1234570\n"},
        {1e30, 6, "1e30\n"},
        {9.99999951e-7, 6, "1e-6\n"},
        {0.1, 15, "0.1\n"},
        {1.0 / 3, 15, "0.333333333333333\n"},
        {(double)NAN, 6, "null\n"},
        {-(double)INFINITY, 6, "null\n"},
        {-812.512, 6, "-812.512\n"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char *line = yk__json_line(yk__json_number(rows[i].value, rows[i].digits), YK__JSON_DIGITS);
        assert_non_null(line);
        /* jansson's versions differ in how they write exponents: the number is what counts there */
        if (strpbrk(rows[i].text, "e"))
            assert_true(strtod(line, NULL) == strtod(rows[i].text, NULL));
        else
            assert_string_equal(line, rows[i].text);
        free(line);
    }
    expect_line(yk__json_fixed(1.2345, 3), YK__JSON_DIGITS, "1.234\n");
    expect_line(yk__json_fixed(12, 1), YK__JSON_DIGITS, "12\n");
    expect_line(yk__json_fixed(-0.0001, 3), YK__JSON_DIGITS, "0\n");
    expect_line(yk__json_fixed((double)INFINITY, 3), YK__JSON_DIGITS, "null\n");
    /* 17 digits bring back every double. */
    const double exact[] = {0.1 + 0.2, 1.0 / 3, 5e-324, 1.7976931348623157e308};
    for (int i = 0; i < 4; i++) {
        char *line = yk__json_line(yk__json_number(exact[i], 17), 17);
        assert_non_null(line);
        assert_true(strtod(line, NULL) == exact[i]);
        free(line);
    }
}

static void test_text(void **state)
{
    (void)state;
    static const struct {
        const char *text, *json;
    } rows[] = {
        {"plain \"quoted\" \\ /", "\"plain \\\"quoted\\\" \\\\ /\"\n"},
        {"a\nb\x01[2J", "\"a\\nb\\u0001[2J\"\n"},
        {"\x7f\xc2\x9b"
         "31m",
         "\"\\u007F\\u009B31m\"\n"},
        {"gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80", "\"gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80\"\n"},
        {"\xff\xc3(", "\"\xef\xbf\xbd\xef\xbf\xbd(\"\n"},
        {"\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"\n"}, /* a surrogate */
        {"cut \xe2\x82", "\"cut \xef\xbf\xbd\xef\xbf\xbd\"\n"},
        {"", "\"\"\n"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        expect_line(yk__json_text(rows[i].text, strlen(rows[i].text)), YK__JSON_DIGITS, rows[i].json);
    expect_line(yk__json_text("abcdef", 3), YK__JSON_DIGITS, "\"abc\"\n");
}

static void test_order(void **state)
{
    (void)state;
    expect_line(json_pack("{s:i,s:o,s:[b,n]}", "z", 1, "a", yk__json_number(0.5, 6), "m", 1), YK__JSON_DIGITS,
                "{\"z\":1,\"a\":0.5,\"m\":[true,null]}\n");
    assert_null(yk__json_line(NULL, YK__JSON_DIGITS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers), cmocka_unit_test(test_text),
                                       cmocka_unit_test(test_order)};
    return cmocka_run_group_tests_name("json_line", tests, NULL, NULL);
}
