/* number_test.c - numbers as text: they read back as they were, also where the program's locale writes a comma. */
#include "tests/support/expect.h"

#include <locale.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/core.h"

static void expect_text(double number, const char *text)
{
    char buffer[YK__NUMBER_ROOM];
    assert_string_equal(yk__number_format(number, buffer), text);
}

static void texts_and_back(void)
{
    expect_text(0.5, "0.5");
    expect_text(-1e-5, "-1e-05");
    expect_text(0.1 + 0.2, "0.30000000000000004");
    expect_text(123456789, "123456789");
    expect_text(INFINITY, "inf");
    const double numbers[] = {0, -0.0, 0x1p-1074, -0x1.fffffffffffffp1023, 1.0 / 3, 1e22, INFINITY};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        char buffer[YK__NUMBER_ROOM], *end;
        double back = yk__number_parse(yk__number_format(numbers[i], buffer), &end);
        assert_memory_equal(&back, &numbers[i], sizeof(back));
        assert_int_equal(*end, '\0');
    }
    char buffer[YK__NUMBER_ROOM];
    assert_true(isnan(yk__number_parse(yk__number_format(NAN, buffer), NULL)));
}

static void shortest(void **state)
{
    (void)state;
    texts_and_back();
}

/* A locale of its own, because none with a comma need be installed: glibc's LC_NUMERIC of de_DE without thousands
 * separators, which is its magic number, six offsets, and ",". */
static void in_a_locale_with_commas(void **state)
{
    (void)state;
    static const unsigned char numeric[] =
        "\x14\x11\x03\x20\x06\0\0\0\x20\0\0\0\x22\0\0\0\x24\0\0\0\x28\0\0\0\x2c\0\0\0\x30\0\0\0,\0\0\0\x7f\0\0\0,\0\0\0"
        "\0\0\0\0UTF-8";
    char folder[] = "/tmp/yoke-locale-XXXXXX", at[64], file[80];
    assert_non_null(mkdtemp(folder));
    snprintf(at, sizeof(at), "%s/comma", folder);
    snprintf(file, sizeof(file), "%s/LC_NUMERIC", at);
    assert_int_equal(mkdir(at, 0777), 0);
    FILE *out = fopen(file, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(numeric, 1, sizeof(numeric), out), sizeof(numeric));
    assert_int_equal(fclose(out), 0);
    setenv("LOCPATH", folder, 1);
    assert_non_null(setlocale(LC_NUMERIC, "comma"));
    char text[8];
    snprintf(text, sizeof(text), "%g", 0.5);
    assert_string_equal(text, "0,5");
    texts_and_back();
    snprintf(text, sizeof(text), "%g", 0.5);
    assert_string_equal(text, "0,5"); /* the program's own stays */
    assert_non_null(setlocale(LC_NUMERIC, "C"));
    unsetenv("LOCPATH");
    unlink(file);
    rmdir(at);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shortest),
        cmocka_unit_test(in_a_locale_with_commas),
    };
    return cmocka_run_group_tests_name("base/number", tests, NULL, NULL);
}
