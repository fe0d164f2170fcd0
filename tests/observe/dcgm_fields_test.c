/*
 * dcgm_fields_test.c - dcgm-exporter's files of collectors: what is read, and what each mistake is told.
 */
#include "tests/support/expect.h"

#include <stdio.h>
#include <unistd.h>

#include "observe/dcgm_fields.h"

static char path[64];

static yk_status read_text(const char *text, yk__dcgm_collectors *collectors)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    return yk__dcgm_collectors_read(path, collectors);
}

static void lines(void **state)
{
    (void)state;
    yk__dcgm_collectors c;
    expect_ok(read_text("# comment, with, commas\r\n\r\n"
                        "  DCGM_FI_DEV_GPU_TEMP ,gauge,\tThe heat.  \n"
                        "DCGM_FI_DEV_GPU_UTIL, counter, \"Busy, in \"\"%\"\"\" \n"
                        "DCGM_FI_DRIVER_VERSION,label,v\n"
                        "DCGM_FI_DEV_XID_ERRORS, gauge,",
                        &c));
    assert_int_equal(c.count, 4);
    assert_string_equal(c.all[0].field->name, "DCGM_FI_DEV_GPU_TEMP");
    assert_string_equal(c.all[0].type, "gauge");
    assert_string_equal(c.all[0].help, "The heat.");
    assert_string_equal(c.all[1].type, "counter");
    assert_string_equal(c.all[1].help, "Busy, in \"%\"");
    assert_int_equal(c.all[2].field->kind, YK__DCGM_DRIVER);
    assert_int_equal(c.all[3].field->kind, YK__DCGM_NONE);
    assert_string_equal(c.all[3].help, "");
    yk__dcgm_collectors_clear(&c);
    assert_int_equal(c.count, 0);
}

/* deploy/default-counters.csv is what there is without a file. */
static void the_default(void **state)
{
    (void)state;
    yk__dcgm_collectors own, file;
    expect_ok(yk__dcgm_collectors_read(NULL, &own));
    expect_ok(yk__dcgm_collectors_read("deploy/default-counters.csv", &file));
    assert_int_equal(own.count, file.count);
    assert_true(own.count > 20);
    for (int i = 0; i < own.count; i++) {
        assert_ptr_equal(own.all[i].field, file.all[i].field);
        assert_string_equal(own.all[i].type, file.all[i].type);
        assert_string_equal(own.all[i].help, file.all[i].help);
    }
    yk__dcgm_collectors_clear(&own);
    yk__dcgm_collectors_clear(&file);
}

/* deploy/dcp-metrics-included.csv has these, and all else of GPM that NVML is asked for. */
static void the_larger_one(void **state)
{
    (void)state;
    yk__dcgm_collectors own, file;
    int served = 0;
    expect_ok(yk__dcgm_collectors_read(NULL, &own));
    expect_ok(yk__dcgm_collectors_read("deploy/dcp-metrics-included.csv", &file));
    assert_int_equal(file.count, own.count + 2);
    for (int i = 0; i < own.count; i++) {
        int at = 0;
        while (at < file.count && file.all[at].field != own.all[i].field)
            at++;
        assert_true(at < file.count);
        assert_string_equal(own.all[i].help, file.all[at].help);
    }
    for (int i = 0; i < file.count; i++) {
        assert_int_not_equal(file.all[i].field->kind, YK__DCGM_NONE);
        served += strncmp(file.all[i].field->name, "DCGM_FI_PROF_", 13) == 0;
    }
    assert_int_equal(served, 7);
    yk__dcgm_collectors_clear(&own);
    yk__dcgm_collectors_clear(&file);
}

static void mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"# none\n\n", "there is no field in it"},
        {"DCGM_FI_DEV_GPU_TMP, gauge, x",
         ":1: unknown field 'DCGM_FI_DEV_GPU_TMP', did you mean 'DCGM_FI_DEV_GPU_TEMP'?"},
        {"\nbogus, gauge, x", ":2: unknown field 'bogus'"},
        {"DCGM_FI_DEV_GPU_TEMP, gage, x",
         ":1: unknown type 'gage'; expected gauge, counter, histogram, summary or label"},
        {"DCGM_FI_DEV_GPU_TEMP, gauge", ":1: 2 columns; expected FIELD, TYPE, HELP"},
        {"DCGM_FI_DEV_GPU_TEMP, gauge, a, b", ":1: 4 columns; expected FIELD, TYPE, HELP"},
        {"DCGM_FI_DEV_GPU_TEMP, gauge, \"a", ":1: a quote does not end"},
        {"DCGM_FI_DEV_GPU_TEMP, label, x", ":1: DCGM_FI_DEV_GPU_TEMP is a number, and no label here"},
        {"DCGM_FI_DRIVER_VERSION, gauge, x", ":1: DCGM_FI_DRIVER_VERSION is a text: its type is label"},
        {"DCGM_FI_DEV_GPU_TEMP, gauge, x\nDCGM_FI_DEV_GPU_TEMP, gauge, y",
         ":2: DCGM_FI_DEV_GPU_TEMP stands there twice"},
        {"\x1b[31m, gauge, x", ":1: unknown field '\\x1b[31m'"},
    };
    yk__dcgm_collectors c;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_int_equal(read_text(cases[i].text, &c), YK_ERR_FORMAT);
        const yk_error *error = yk_last_error();
        assert_non_null(error);
        assert_non_null(strstr(error->message, path));
        if (!strstr(error->message, cases[i].message))
            fail_msg("'%s' does not say '%s'", error->message, cases[i].message);
        yk_clear_error();
        assert_int_equal(c.count, 0);
    }
    assert_int_not_equal(yk__dcgm_collectors_read("/no/such/file.csv", &c), YK_OK);
    assert_non_null(strstr(yk_last_error()->message, "/no/such/file.csv"));
    yk_clear_error();
}

static int begin(void **state)
{
    (void)state;
    strcpy(path, "/tmp/yoke-collectors-XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 || close(fd);
}

static int end(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lines), cmocka_unit_test(the_default),
                                       cmocka_unit_test(the_larger_one), cmocka_unit_test(mistakes)};
    return cmocka_run_group_tests_name("collectors", tests, begin, end);
}
