/*
 * network_object_test.c - networks of shared objects are made and tried; files, versions, names and outputs that do not
 * fit are named.
 */
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <yoke/nn.h>

#include "tests/support/expect.h"

static char folder[4200];
static const yk_network_input digits = {1, 4, 5, 3};

static yk_module *load(const char *name, const yk_network_input *input)
{
    char path[4300];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return yk_network_load(path, input);
}

static void test_a_network_is_made(void **state)
{
    (void)state;
    static const char *const names[] = {"good.so", "linked.so", "good.so"};
    yk_scope scope = yk_scope_begin();
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        yk_random_state before = yk_random_get_state();
        yk_module *net = load(names[i], &digits);
        expect_ok(net == NULL);
        assert_true(yk_module_is_training(net));
        assert_int_equal(yk_module_parameter_count(net), 4 * 5 * 3 + 3);
        yk_random_state after = yk_random_get_state();
        assert_int_equal(after.calls - before.calls, 2); /* weight and bias: trying draws nothing */
        yk_tensor *y = yk_forward(net, yk_randn(YK_SHAPE(7, 1, 4, 5), NULL));
        expect_ok(yk_backward(yk_sum(y)));
        assert_int_equal(yk_size(y, 0), 7);
        assert_int_equal(yk_size(y, 1), 3);
    }
    yk_scope_end(scope);
}

static void test_it_is_owned_by_the_scope(void **state)
{
    (void)state;
    yk_scope outer = yk_scope_begin(), inner = yk_scope_begin();
    yk_module *net = load("good.so", &digits);
    assert_non_null(net);
    yk_module *kept = yk_scope_return_object(inner, net);
    expect_ok(kept == NULL);
    yk_scope_end(inner);
    assert_int_equal(yk_module_parameter_count(kept), 63);
    yk_scope_end(outer);
}

static void test_what_does_not_fit_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        yk_status code;
        const char *says;
    } cases[] = {
        {"none.so", YK_ERR_NOT_FOUND, "none.so: there is no such file"},
        {"text.so", YK_ERR_FORMAT, "is no shared object; a network's source is built with: cc -shared"},
        {"short.so", YK_ERR_FORMAT, "short.so is no shared object"},
        {"", YK_ERR_FORMAT, "no regular file"},
        {"symbol.so", YK_ERR_FORMAT,
         "symbol.so exports no yk_network (the nearest name is yk_netwrok): its source ends with "
         "YK_NETWORK(FUNCTION);"},
        {"undefined.so", YK_ERR_FORMAT,
         "undefined.so cannot be loaded: it calls yk_linear_creat, which is nowhere; did you mean yk_linear_create?"},
        {"old.so", YK_ERR_UNSUPPORTED,
         "old.so is a network of version 1, and this is yoke 0.3.0, whose networks have version 2: build it anew"},
        {"copy.so", YK_ERR_UNSUPPORTED, "copy.so would use another libyoke than this program does"},
        {"silent.so", YK_ERR_CALLBACK, "silent.so: yk_network gave no module"},
        {"fails.so", YK_ERR_ARGUMENT, "fails.so: images of 1 channels are not for this network"},
        {"outputs.so", YK_ERR_SHAPE,
         "outputs.so: its network gives (2, 4) for inputs (2, 1, 4, 5), and (2, 3) is expected"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        yk_scope scope = yk_scope_begin();
        assert_null(load(cases[i].name, &digits));
        expect_error(cases[i].code, cases[i].says);
        yk_scope_end(scope);
    }
}

static void test_wrong_arguments(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    assert_null(yk_network_load(NULL, &digits));
    expect_error(YK_ERR_ARGUMENT, "the path is NULL");
    assert_null(yk_network_load("x.so", NULL));
    expect_error(YK_ERR_ARGUMENT, "the input is NULL");
    static const yk_network_input wrong[] = {{0, 4, 5, 3}, {1, -4, 5, 3}, {1, 4, (int64_t)1 << 31, 3}, {1, 4, 5, 0}};
    static const char *const says[] = {"channels is 0,", "height is -4,", "width is 2147483648,", "num_classes is 0,"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        assert_null(load("good.so", &wrong[i]));
        expect_error(YK_ERR_ARGUMENT, says[i]);
    }
    yk_scope_end(scope);
    assert_null(load("good.so", &digits));
    expect_error(YK_ERR_STATE, "scope");
}

static void write_file(const char *name, const char *text, size_t size)
{
    char path[4300];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fwrite(text, 1, size, file);
    fclose(file);
}

int main(int argc, char **argv)
{
    (void)argc;
    snprintf(folder, sizeof(folder), "%s/../networks", dirname(argv[0]));
    write_file("text.so", "int main(void);", 15);
    write_file("short.so",
               "\x7f"
               "ELF",
               4);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_network_is_made),
        cmocka_unit_test(test_it_is_owned_by_the_scope),
        cmocka_unit_test(test_what_does_not_fit_is_named),
        cmocka_unit_test(test_wrong_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
