/* error_test.c - the error record: the first error wins, per thread, with names and places. */
#include "tests/support/expect.h"

#include <errno.h>
#include <pthread.h>

#include "base/core.h"

static void first_error_wins(void **state)
{
    (void)state;
    assert_null(yk_last_error());
    assert_int_equal(yk__fail(YK_ERR_SHAPE, "first %d", 1), YK_ERR_SHAPE);
    int line = __LINE__ - 1;
    assert_int_equal(yk__fail(YK_ERR_IO, "second"), YK_ERR_IO);
    const yk_error *record = yk_last_error();
    assert_non_null(record);
    assert_int_equal(record->code, YK_ERR_SHAPE);
    assert_string_equal(record->message, "first 1");
    assert_string_equal(record->file, __FILE__);
    assert_int_equal(record->line, line);
    assert_int_equal(yk__error_code(), YK_ERR_SHAPE);
    yk_clear_error();
    assert_null(yk_last_error());
    assert_int_equal(yk__error_code(), YK_OK);
    yk__fail(YK_ERR_IO, "third");
    expect_error(YK_ERR_IO, "third");
}

static void message_of_errno(void **state)
{
    (void)state;
    errno = ENOENT;
    assert_int_equal(yk__fail_errno("file %s", "x.bin"), YK_ERR_IO);
    assert_string_equal(yk_last_error()->message, "file x.bin: No such file or directory (errno 2)");
    yk_clear_error();
}

static void prefix_names_the_outer_thing(void **state)
{
    (void)state;
    yk__error_prefix("nothing"); /* without a record there is nothing to name */
    assert_null(yk_last_error());
    yk__fail(YK_ERR_FORMAT, "bad byte");
    yk__error_prefix("record %d", 7);
    yk__error_prefix("train.bin");
    assert_string_equal(yk_last_error()->message, "train.bin: record 7: bad byte");
    assert_int_equal(yk_last_error()->code, YK_ERR_FORMAT);
    yk_clear_error();
}

static void long_messages_are_cut(void **state)
{
    (void)state;
    char text[3000];
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    yk__fail(YK_ERR_ARGUMENT, "%s", text);
    assert_int_equal(strlen(yk_last_error()->message), sizeof(yk_last_error()->message) - 1);
    yk__error_prefix("%s", text);
    assert_true(strlen(yk_last_error()->message) < sizeof(yk_last_error()->message));
    assert_non_null(strstr(yk_last_error()->message, "a: a"));
    yk_clear_error();
    errno = EIO;
    yk__fail_errno("%s", text);
    assert_int_equal(strlen(yk_last_error()->message), sizeof(yk_last_error()->message) - 1);
    yk_clear_error();
}

static void *other_thread(void *argument)
{
    (void)argument;
    if (yk_last_error())
        return (void *)"the record of the first thread is seen in the second";
    yk__fail(YK_ERR_DTYPE, "of the second");
    return yk_last_error() && yk_last_error()->code == YK_ERR_DTYPE ? NULL : (void *)"no record in the second thread";
}

static void threads_have_their_own(void **state)
{
    (void)state;
    yk__fail(YK_ERR_SHAPE, "of the first");
    pthread_t thread;
    void *complaint;
    assert_int_equal(pthread_create(&thread, NULL, other_thread, NULL), 0);
    assert_int_equal(pthread_join(thread, &complaint), 0);
    if (complaint)
        fail_msg("%s", (const char *)complaint);
    expect_error(YK_ERR_SHAPE, "of the first");
}

static void records_move(void **state)
{
    (void)state;
    yk_error kept, none;
    yk__error_take(&none);
    assert_int_equal(none.code, YK_OK);
    yk__fail(YK_ERR_SHAPE, "moved");
    yk__error_take(&kept);
    assert_null(yk_last_error());
    yk__error_put(&none); /* nothing to put leaves nothing */
    assert_null(yk_last_error());
    yk__error_put(&kept);
    yk_error later = {.code = YK_ERR_IO, .message = "later"};
    yk__error_put(&later);
    expect_error(YK_ERR_SHAPE, "moved");
}

static void report_prints_and_clears(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    assert_int_equal(yk_report_error(stream), 0);
    yk__fail_at(YK_ERR_SHAPE, "ops/conv.c", 12, "conv2d: no");
    assert_int_equal(yk_report_error(stream), 1);
    yk_set_error(YK_ERR_NUMERIC, "loss is %s", "nan");
    assert_int_equal(yk_report_error(stream), 1);
    yk__fail_at(YK_ERR_NUMERIC, "", 0, "loss is %s", "nan"); /* the text of such an error from another process */
    assert_int_equal(yk_report_error(stream), 1);
    fclose(stream);
    assert_string_equal(text, "error: conv2d: no (shape, ops/conv.c:12)\nerror: loss is nan (numeric)\n"
                              "error: loss is nan (numeric)\n");
    free(text);
    assert_null(yk_last_error());
}

static void users_errors(void **state)
{
    (void)state;
    assert_int_equal(yk_set_error(YK_ERR_FORMAT, "row %d", 3), YK_ERR_FORMAT);
    expect_error(YK_ERR_FORMAT, "row 3");
    assert_int_equal(yk_set_error(YK_OK, "ok is no error"), YK_ERR_CALLBACK);
    expect_error(YK_ERR_CALLBACK, "ok is no error");
}

static void every_status_has_a_name(void **state)
{
    (void)state;
    static const struct {
        yk_status status;
        const char *name;
    } names[] = {{YK_OK, "ok"},
                 {YK_ERR_ARGUMENT, "argument"},
                 {YK_ERR_SHAPE, "shape"},
                 {YK_ERR_DTYPE, "dtype"},
                 {YK_ERR_DEVICE, "device"},
                 {YK_ERR_STATE, "state"},
                 {YK_ERR_IO, "io"},
                 {YK_ERR_FORMAT, "format"},
                 {YK_ERR_NOT_FOUND, "not found"},
                 {YK_ERR_UNSUPPORTED, "unsupported"},
                 {YK_ERR_NUMERIC, "numeric"},
                 {YK_ERR_CALLBACK, "callback"},
                 {YK_ERR_MEMORY, "memory"},
                 {YK_ERR_INTERNAL, "internal"},
                 {YK_ERR_TIMEOUT, "timeout"},
                 {YK_ERR_CONNECTION, "connection"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_string_equal(yk_status_name(names[i].status), names[i].name);
    assert_string_equal(yk_status_name((yk_status)99), "unknown");
    assert_string_equal(yk_status_name((yk_status)-1), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_error_wins),
        cmocka_unit_test(message_of_errno),
        cmocka_unit_test(prefix_names_the_outer_thing),
        cmocka_unit_test(long_messages_are_cut),
        cmocka_unit_test(threads_have_their_own),
        cmocka_unit_test(records_move),
        cmocka_unit_test(report_prints_and_clears),
        cmocka_unit_test(users_errors),
        cmocka_unit_test(every_status_has_a_name),
    };
    return cmocka_run_group_tests_name("base/error", tests, NULL, NULL);
}
