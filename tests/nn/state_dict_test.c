/*
 * state_dict_test.c - lists of named tensors; saving and loading a module's state; the errors of a wrong dict.
 */
#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include <yoke/nn.h>

#include "nn/module.h"

static void test_list(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_state_dict *dict = yk_state_dict_create();
    assert_int_equal(yk_state_dict_count(dict), 0);
    assert_int_equal(yk_state_dict_find(dict, "a"), -1);
    enum { MANY = 500 };
    for (int i = 0; i < MANY; i++) {
        char name[20];
        snprintf(name, sizeof(name), "tensor.%d", i);
        expect_ok(yk_state_dict_add(dict, name, yk_scalar(i, NULL)));
    }
    assert_int_equal(yk_state_dict_count(dict), MANY);
    for (int i = 0; i < MANY; i++) {
        char name[20];
        snprintf(name, sizeof(name), "tensor.%d", i);
        assert_int_equal(yk_state_dict_find(dict, name), i);
        assert_string_equal(yk_state_dict_name(dict, i), name);
        assert_true(yk_item(yk_state_dict_get(dict, name)) == i);
        assert_ptr_equal(yk_state_dict_at(dict, i), yk_state_dict_get(dict, name));
    }
    assert_null(yk_state_dict_at(dict, MANY));
    assert_null(yk_state_dict_name(dict, -1));
    assert_null(yk_last_error());
    assert_int_equal(yk_state_dict_add(dict, "tensor.7", yk_scalar(0, NULL)), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "there is a tensor \"tensor.7\" already");
    assert_null(yk_state_dict_get(dict, "tensro.7"));
    assert_null(yk_last_error());
    assert_int_equal(yk_state_dict_add(dict, "x", NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "state_dict_add: the tensor is NULL");
    yk_scope_end(scope);
}

static yk_module *net_create(void)
{
    return yk_sequential(yk_conv2d_create(8, 16, 3, NULL), yk_batch_norm2d_create(16, NULL), yk_flatten_create(),
                         yk_linear_create(16, 2, NULL));
}

static void expect_equal_state(yk_module *a, yk_module *b)
{
    yk_state_dict *x = yk_module_state_dict(a), *y = yk_module_state_dict(b);
    assert_int_equal(yk_state_dict_count(x), yk_state_dict_count(y));
    for (int64_t i = 0; i < yk_state_dict_count(x); i++) {
        assert_string_equal(yk_state_dict_name(x, i), yk_state_dict_name(y, i));
        assert_true(yk_item(yk_all(yk_eq(yk_state_dict_at(x, i), yk_state_dict_at(y, i)))) == 1);
    }
}

static void test_round_trip(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_module *a = net_create(), *b = net_create();
    yk_tensor *x = yk_randn(YK_SHAPE(4, 8, 3, 3), NULL);
    for (int i = 0; i < 3; i++)
        assert_non_null(yk_forward(a, x));
    yk_tensor *w = yk_module_get(b, "0.weight");
    uint32_t version = yk_tensor_version(w);
    int64_t stride = yk_stride(w, 1);
    yk_load_report report;
    expect_ok(yk_module_load_state_dict(b, yk_module_state_dict(a), NULL, &report));
    assert_int_equal(report.missing_count + report.unexpected_count, 0);
    yk_load_report_clear(&report);
    expect_equal_state(a, b);
    assert_int_equal(yk_item_i64(yk_module_get(b, "1.num_batches_tracked")), 3);
    assert_true(yk_tensor_version(w) > version);
    assert_ptr_equal(w, yk_module_get(b, "0.weight"));
    yk_module_eval(a);
    yk_module_eval(b);
    assert_true(yk_item(yk_all(yk_eq(yk_forward(a, x), yk_forward(b, x)))) == 1);

    /* C-order tensors of another dtype: values are cast, our memory order stays */
    yk_state_dict *plain = yk_state_dict_create(), *state = yk_module_state_dict(a);
    for (int64_t i = 0; i < yk_state_dict_count(state); i++) {
        yk_tensor *value = yk_contiguous(yk_state_dict_at(state, i));
        value = yk_dtype_is_floating(yk_tensor_dtype(value)) ? yk_cast(value, YK_F64) : yk_cast(value, YK_I32);
        expect_ok(yk_state_dict_add(plain, yk_state_dict_name(state, i), value));
    }
    yk_module *c = net_create();
    expect_ok(yk_module_load_state_dict(c, plain, NULL, NULL));
    expect_equal_state(a, c);
    assert_int_equal(yk_stride(yk_module_get(c, "0.weight"), 1), stride);
    assert_int_equal(yk_tensor_dtype(yk_module_get(c, "0.weight")), YK_F32);

    /* The state dict shares memory with the module and is not on the tape. */
    yk_tensor *bias = yk_state_dict_get(state, "3.bias");
    assert_false(yk_requires_grad(bias));
    assert_ptr_equal(data_ptr(bias), data_ptr(yk_module_get(a, "3.bias")));
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

static void test_temporary_buffer(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_module *m = yk_linear_create(2, 2, NULL);
    assert_non_null(yk_module_add_temporary_buffer(m, "mask", yk_ones(YK_SHAPE(2), NULL)));
    assert_int_equal(yk_state_dict_count(yk_module_state_dict(m)), 2);
    assert_non_null(yk_module_get(m, "mask"));
    assert_non_null(yk_module_to_dtype(m, YK_F64));
    assert_int_equal(yk_tensor_dtype(yk_module_get(m, "mask")), YK_F64);
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

/* net_create's state with changes. */
static yk_state_dict *changed(yk_module *m, const char *leave_out, const char *replace, yk_tensor *by)
{
    yk_state_dict *state = yk_module_state_dict(m), *dict = yk_state_dict_create();
    for (int64_t i = 0; i < yk_state_dict_count(state); i++) {
        const char *name = yk_state_dict_name(state, i);
        bool out = leave_out && strstr(leave_out, name);
        bool other = replace && strcmp(replace, name) == 0;
        if (!out)
            expect_ok(yk_state_dict_add(dict, name, other ? by : yk_zeros_like(yk_state_dict_at(state, i))));
    }
    return dict;
}

static void test_refusals(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_module *m = net_create();
    yk_tensor *before = yk_clone(yk_detach(yk_module_get(m, "0.weight")));
    yk_load_report report;

    yk_state_dict *dict = changed(m, "0.bias 1.running_var", NULL, NULL);
    expect_ok(yk_state_dict_add(dict, "fc.weight", yk_ones(YK_SHAPE(1), NULL)));
    assert_int_equal(yk_module_load_state_dict(m, dict, NULL, &report), YK_ERR_NOT_FOUND);
    expect_error(YK_ERR_NOT_FOUND,
                 "load_state_dict of Sequential: missing: 0.bias, 1.running_var; unexpected: fc.weight");
    assert_int_equal(report.missing_count, 2);
    assert_string_equal(report.missing[0], "0.bias");
    assert_string_equal(report.missing[1], "1.running_var");
    assert_int_equal(report.unexpected_count, 1);
    assert_string_equal(report.unexpected[0], "fc.weight");
    yk_load_report_clear(&report);
    assert_int_equal(report.missing_count, 0);
    assert_true(yk_item(yk_all(yk_eq(yk_module_get(m, "0.weight"), before))) == 1); /* nothing was written */

    dict = changed(m, NULL, "3.weight", yk_ones(YK_SHAPE(2, 17), NULL));
    assert_int_equal(yk_module_load_state_dict(m, dict, YK_OPTIONS(yk_load_options, .strict = false), NULL),
                     YK_ERR_SHAPE);
    expect_error(YK_ERR_SHAPE, "does not fit: 3.weight has shape (2, 17), expected (2, 16)");
    dict = changed(m, NULL, "3.bias", yk_ones(YK_SHAPE(2), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64)));
    assert_int_equal(yk_module_load_state_dict(m, dict, NULL, NULL), YK_ERR_SHAPE);
    expect_error(YK_ERR_SHAPE, "does not fit: 3.bias is int64, expected float32");
    dict = changed(m, NULL, "1.num_batches_tracked", yk_scalar(1, NULL));
    assert_int_equal(yk_module_load_state_dict(m, dict, NULL, NULL), YK_ERR_SHAPE);
    expect_error(YK_ERR_SHAPE, "does not fit: 1.num_batches_tracked is float32, expected int64");
    assert_true(yk_item(yk_all(yk_eq(yk_module_get(m, "0.weight"), before))) == 1);

    dict = changed(m, "0.bias", NULL, NULL);
    expect_ok(yk_module_load_state_dict(m, dict, YK_OPTIONS(yk_load_options, .strict = false), &report));
    assert_int_equal(report.missing_count, 1);
    yk_load_report_clear(&report);
    assert_true(yk_item(yk_any(yk_module_get(m, "0.weight"))) == 0);
    assert_true(yk_item(yk_any(yk_module_get(m, "0.bias"))) == 1);

    assert_int_equal(yk_module_load_state_dict(m, NULL, NULL, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "load_state_dict: the dict is NULL");
    yk_scope_end(scope);
}

/* Weights of before PyTorch 0.4.1, as torchvision's ResNets still are: no batch norm counts its batches. */
static void test_without_counts(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_module *m = yk_resnet18(YK_OPTIONS(yk_resnet_options, .num_classes = 2));
    yk_tensor *count = yk_module_get(m, "layer4.1.bn2.num_batches_tracked");
    assert_non_null(yk_fill_(count, 7));
    yk_state_dict *state = yk_module_state_dict(m), *old = yk_state_dict_create(), *one = yk_state_dict_create();
    for (int64_t i = 0; i < yk_state_dict_count(state); i++) {
        const char *name = yk_state_dict_name(state, i);
        yk_tensor *zeros = yk_zeros_like(yk_state_dict_at(state, i));
        if (!strstr(name, "num_batches_tracked"))
            expect_ok(yk_state_dict_add(old, name, zeros));
        if (strcmp(name, "bn1.num_batches_tracked") != 0)
            expect_ok(yk_state_dict_add(one, name, zeros));
    }
    yk_load_report report;
    expect_ok(yk_module_load_state_dict(m, old, NULL, &report));
    assert_int_equal(report.missing_count + report.unexpected_count, 0);
    yk_load_report_clear(&report);
    assert_int_equal(yk_item_i64(count), 7);
    assert_true(yk_item(yk_any(yk_module_get(m, "layer4.1.bn2.running_var"))) == 0);

    /* A num_batches_tracked that is missing is reported where others are there; all entries are missing of a dict that
     * has none. */
    assert_int_equal(yk_module_load_state_dict(m, one, NULL, NULL), YK_ERR_NOT_FOUND);
    expect_error(YK_ERR_NOT_FOUND, "load_state_dict of ResNet: missing: bn1.num_batches_tracked");
    expect_ok(
        yk_module_load_state_dict(m, yk_state_dict_create(), YK_OPTIONS(yk_load_options, .strict = false), &report));
    assert_int_equal(report.missing_count, yk_state_dict_count(state));
    yk_load_report_clear(&report);
    yk_scope_end(scope);
}

/* A ResNet without its weights: the message names as many as fit and counts the rest; the report has all. */
static void test_long_lists(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_module *m = yk_resnet18(YK_OPTIONS(yk_resnet_options, .num_classes = 2));
    yk_load_report report;
    assert_int_equal(yk_module_load_state_dict(m, yk_state_dict_create(), NULL, &report), YK_ERR_NOT_FOUND);
    assert_int_equal(report.missing_count, 122);
    assert_string_equal(report.missing[121], "fc.bias");
    yk_load_report_clear(&report);
    const char *message = yk_last_error()->message, *more = strstr(message, " and ");
    assert_non_null(strstr(message, "missing: conv1.weight, bn1.weight, "));
    assert_non_null(more);
    int left = atoi(more + 5), named = 1;
    for (const char *comma = strchr(message, ','); comma; comma = strchr(comma + 1, ','))
        named++;
    assert_int_equal(left + named, 122);
    assert_string_equal(more + strlen(more) - 5, " more");
    assert_true(strlen(message) > 700);
    yk_clear_error();
    yk_scope_end(scope);
}

/* Names from a file may be of any length: of each list the message has the beginning, the report has all. */
static void test_long_names(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    static char a[3000], b[3000];
    memset(a, 'a', sizeof(a) - 1);
    memset(b, 'b', sizeof(b) - 1);
    yk_module *m = yk_linear_create(2, 2, NULL), *own = yk_sequential(m);
    assert_non_null(yk_module_add_buffer(own, a, yk_ones(YK_SHAPE(2), NULL)));
    yk_state_dict *given = yk_state_dict_create();
    expect_ok(yk_state_dict_add(given, b, yk_ones(YK_SHAPE(2), NULL)));
    expect_ok(yk_state_dict_add(given, "0.weight", yk_ones(YK_SHAPE(3), NULL)));
    yk_load_report report;
    assert_int_equal(yk_module_load_state_dict(own, given, NULL, &report), YK_ERR_NOT_FOUND);
    assert_int_equal(report.missing_count, 2);
    assert_int_equal(report.unexpected_count, 1);
    assert_string_equal(report.unexpected[0], b);
    yk_load_report_clear(&report);
    const char *message = yk_last_error()->message;
    assert_non_null(strstr(message, "missing: aaaa"));
    assert_non_null(strstr(message, "aaaa... and 1 more; unexpected: bbbb"));
    assert_non_null(strstr(message, "bbbb...; does not fit: 0.weight has shape (3,), expected (2, 2)"));
    yk_clear_error();
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_temporary_buffer),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_without_counts),
        cmocka_unit_test(test_long_lists),
        cmocka_unit_test(test_long_names),
    };
    return cmocka_run_group_tests_name("state dict", tests, NULL, NULL);
}
