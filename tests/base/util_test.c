/* util_test.c - numbers from the environment, nearest names, time, log messages. */
#include "tests/support/expect.h"

#include "base/core.h"
#include "base/log.h"

static void integers_from_the_environment(void **state)
{
    (void)state;
    int64_t value = 0;
    unsetenv("YOKE_TEST_NUMBER");
    expect_ok(yk__env_int("YOKE_TEST_NUMBER", 7, 1, 10, &value));
    assert_int_equal(value, 7);
    setenv("YOKE_TEST_NUMBER", "", 1);
    expect_ok(yk__env_int("YOKE_TEST_NUMBER", 8, 1, 10, &value));
    assert_int_equal(value, 8);
    static const char *const good[] = {"1", "10", "3"}, *const bad[] = {"0",  "11",  "-1", "four",
                                                                        "3x", "1e1", "3 ", "99999999999999999999"};
    static const int64_t expected[] = {1, 10, 3};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        setenv("YOKE_TEST_NUMBER", good[i], 1);
        expect_ok(yk__env_int("YOKE_TEST_NUMBER", 5, 1, 10, &value));
        assert_int_equal(value, expected[i]);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char text[100];
        setenv("YOKE_TEST_NUMBER", bad[i], 1);
        assert_int_equal(yk__env_int("YOKE_TEST_NUMBER", 5, 1, 10, &value), YK_ERR_ARGUMENT);
        assert_int_equal(value, 5);
        snprintf(text, sizeof(text), "YOKE_TEST_NUMBER=%s: expected an integer from 1 to 10", bad[i]);
        expect_error(YK_ERR_ARGUMENT, text);
    }
}

static void nearest_names(void **state)
{
    (void)state;
    static const char *const names[] = {"lenet", "mlp", "resnet18", "resnet18-cifar", "fashion-mnist"};
    static const struct {
        const char *asked, *expected;
    } cases[] = {{"lenat", "lenet"},
                 {"LeNet", "lenet"},
                 {"resnet", "resnet18"},
                 {"resnet81", "resnet18"},
                 {"resnet18cifar", "resnet18-cifar"},
                 {"mpl", "mlp"},
                 {"fashion", "fashion-mnist"},
                 {"fashionmnist", "fashion-mnist"},
                 {"transformer", NULL},
                 {"xyz", NULL},
                 {"", NULL}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *got = yk__nearest(cases[i].asked, names, sizeof(names) / sizeof(names[0]));
        if (!cases[i].expected) {
            if (got)
                fail_msg("'%s' is near '%s'", cases[i].asked, got);
        } else if (!got || strcmp(got, cases[i].expected)) {
            fail_msg("'%s' is near '%s', expected '%s'", cases[i].asked, got ? got : "nothing", cases[i].expected);
        }
    }
    char huge[5000];
    memset(huge, 'a', sizeof(huge) - 1);
    huge[sizeof(huge) - 1] = 0;
    const char *long_name = huge;
    assert_null(yk__nearest(huge, names, 1));
    assert_null(yk__nearest("lenet", &long_name, 1));
    assert_null(yk__nearest("lenet", names, 0));
}

static void time_goes_forward(void **state)
{
    (void)state;
    double start = yk__now(), end = start;
    while (end - start < 1e-3)
        end = yk__now();
    assert_true(end - start < 10);
}

typedef struct heard {
    int count;
    yk_log_level level;
    char text[100];
} heard;

static void listen(yk_log_level level, const char *message, void *user)
{
    heard *h = user;
    h->count++;
    h->level = level;
    snprintf(h->text, sizeof(h->text), "%s", message);
}

static void log_goes_where_it_is_sent(void **state)
{
    (void)state;
    heard h = {0};
    assert_false(yk__log_enabled(YK_LOG_ERROR)); /* nothing is written unless asked for */
    yk_log_set(YK_LOG_WARN, listen, &h);
    assert_false(yk__log_enabled(YK_LOG_INFO));
    assert_true(yk__log_enabled(YK_LOG_WARN));
    yk__log_at(YK_LOG_ERROR, "rank %d", 3);
    assert_int_equal(h.count, 1);
    assert_int_equal(h.level, YK_LOG_ERROR);
    assert_string_equal(h.text, "rank 3");
    yk_log_set(YK_LOG_DEBUG, NULL, NULL);
    assert_false(yk__log_enabled(YK_LOG_ERROR));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_from_the_environment),
        cmocka_unit_test(nearest_names),
        cmocka_unit_test(time_goes_forward),
        cmocka_unit_test(log_goes_where_it_is_sent),
    };
    return cmocka_run_group_tests_name("base/util", tests, NULL, NULL);
}
