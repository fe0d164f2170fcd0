/* escape_test.c - no text from elsewhere gives orders to a terminal. */
#include "tests/support/expect.h"

#include "base/core.h"

static void expect_escaped(const char *text, const char *expected)
{
    char out[256];
    assert_string_equal(yk__escape(text, strlen(text), out, sizeof(out)), expected);
}

static void characters(void **state)
{
    (void)state;
    expect_escaped("", "");
    expect_escaped("plain text, \\ and 'quotes'", "plain text, \\ and 'quotes'");
    expect_escaped("sch\u00f6n \u4e2d\u6587 \U0001F600", "sch\u00f6n \u4e2d\u6587 \U0001F600");
    expect_escaped("a\x1b[2Jb", "a\\x1b[2Jb");
    expect_escaped("\x1b]0;title\x07", "\\x1b]0;title\\x07");
    expect_escaped("two\nlines\tand\rmore", "two\\nlines\\tand\\x0dmore");
    expect_escaped("\x7f", "\\x7f");
    expect_escaped("\xc2\x9b"
                   "2J",
                   "\\xc2\\x9b2J"); /* CSI as one character of C1 */
    expect_escaped("\x9b"
                   "2J",
                   "\\x9b2J");
    expect_escaped("user\u202egnp.exe", "user\\xe2\\x80\\xaegnp.exe"); /* turns the direction */
    expect_escaped("\xc0\x9b|\xed\xa0\x80|\xf4\x90\x80\x80|\xe4\xb8",
                   "\\xc0\\x9b|\\xed\\xa0\\x80|\\xf4\\x90\\x80\\x80|\\xe4\\xb8"); /* no UTF-8 */
    char out[8];
    assert_string_equal(yk__escape("a\0b", 3, out, sizeof(out)), "a\\x00b");
}

/* No byte of any pair of bytes is left that a terminal obeys; and nothing is written past the end. */
static void all_pairs(void **state)
{
    (void)state;
    for (int pair = 0; pair < 65536; pair++) {
        char text[2] = {(char)(pair >> 8), (char)pair}, out[16];
        yk__escape(text, 2, out, sizeof(out));
        for (const unsigned char *at = (const unsigned char *)out; *at; at++)
            if (*at < 32 || *at == 127 || (*at >= 0x80 && *at < 0xA0 && at == (const unsigned char *)out))
                fail_msg("%04x leaves %02x", (unsigned)pair, *at);
    }
    for (size_t capacity = 1; capacity < 24; capacity++) {
        char *out = malloc(capacity);
        yk__escape("\u00e4\x1b\u4e2d\n\x80", 8, out, capacity);
        assert_true(strlen(out) < capacity);
        free(out);
    }
}

/* Every error message is fit for a terminal, whatever was quoted in it. */
static void messages(void **state)
{
    (void)state;
    yk_status status = yk__fail(YK_ERR_FORMAT, "tensor '%s'\n\tsecond line", "a\x1b[2J\xc2\x9b\x7f");
    assert_int_equal(status, YK_ERR_FORMAT);
    yk__error_prefix("%s", "dir\x1b]0;x\x07");
    assert_string_equal(yk_last_error()->message,
                        "dir\\x1b]0;x\\x07: tensor 'a\\x1b[2J\\xc2\\x9b\\x7f'\n\tsecond line");
    yk_clear_error();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters),
        cmocka_unit_test(all_pairs),
        cmocka_unit_test(messages),
    };
    return cmocka_run_group_tests_name("escape", tests, NULL, NULL);
}
