/*
 * models_test.c - the ready-made models: names, shapes, order and counts against PyTorch's, sizes, errors.
 */
#include "tests/support/expect.h"

#include <yoke/nn.h>

#include "tests/support/golden.h"

static yk_module *make(const char *name)
{
    if (strcmp(name, "mlp") == 0)
        return yk_model("mlp", NULL);
    if (strcmp(name, "lenet") == 0)
        return yk_model("lenet", NULL);
    if (strcmp(name, "lenet_32") == 0)
        return yk_model("lenet", YK_OPTIONS(yk_model_options, .in_channels = 3, .image_size = 32, .num_classes = 7));
    if (strcmp(name, "resnet18") == 0)
        return yk_model("resnet18", NULL);
    if (strcmp(name, "resnet18_cifar") == 0)
        return yk_model("resnet18-cifar", NULL);
    fail_msg("no test makes %s", name);
    return NULL;
}

/* Names, dtypes and sizes of a model's state, the rows of "names of MODEL" in tests/golden/nn.golden. */
static void expect_names(const char *model, yk_state_dict *state, yk_module *m)
{
    char section[60], name[60];
    size_t count;
    snprintf(section, sizeof(section), "names of %s", model);
    const char *const *rows = golden_rows("nn", section, &count);
    yk_parameters *parameters = yk_module_parameters(m);
    int64_t parameter = 0;
    assert_int_equal(yk_state_dict_count(state), count);
    for (size_t k = 0; k < count; k++) {
        const char *row = rows[k];
        yk_tensor *x = yk_state_dict_at(state, (int64_t)k);
        assert_string_equal(yk_state_dict_name(state, (int64_t)k), golden_word(&row, name, sizeof(name)));
        assert_int_equal(yk_tensor_dtype(x), golden_dtype(&row));
        assert_int_equal(yk_ndim(x), golden_integer(&row));
        for (int d = 0; d < yk_ndim(x); d++)
            assert_int_equal(yk_size(x, d), golden_integer(&row));
        if (strstr(name, "running") || strstr(name, "tracked"))
            continue;
        assert_string_equal(yk_parameters_name(parameters, parameter), name);
        yk_tensor *own = yk_parameters_at(parameters, parameter++);
        assert_ptr_equal(own, yk_module_get(m, name));
        assert_true(yk_requires_grad(own));
    }
    assert_int_equal(parameter, yk_parameters_count(parameters));
}

static void test_names(void **unused)
{
    (void)unused;
    size_t count;
    const char *const *rows = golden_rows("nn", "models", &count);
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) {
        const char *row = rows[i];
        char name[40];
        yk_scope scope = yk_scope_begin();
        yk_module *m = make(golden_word(&row, name, sizeof(name)));
        expect_ok(m == NULL);
        assert_int_equal(yk_module_parameter_count(m), golden_integer(&row));
        assert_int_equal(yk_parameters_count(yk_module_parameters(m)), golden_integer(&row));
        expect_names(name, yk_module_state_dict(m), m);
        yk_scope_end(scope);
    }
}

static void test_sizes(void **unused)
{
    (void)unused;
    const struct {
        const char *name;
        const yk_model_options *options;
        int64_t batch;
    } cases[] = {
        {"mlp", YK_OPTIONS(yk_model_options, .in_channels = 3, .image_size = 8, .num_classes = 5), 2},
        {"lenet", YK_OPTIONS(yk_model_options, .in_channels = 1, .image_size = 28, .num_classes = 10), 3},
        {"lenet", YK_OPTIONS(yk_model_options, .in_channels = 3, .image_size = 16, .num_classes = 4), 2},
        {"lenet", YK_OPTIONS(yk_model_options, .in_channels = 2, .image_size = 33, .num_classes = 4), 1},
        {"resnet18", YK_OPTIONS(yk_model_options, .in_channels = 3, .image_size = 32, .num_classes = 10), 2},
        {"resnet18", YK_OPTIONS(yk_model_options, .in_channels = 1, .image_size = 65, .num_classes = 7), 2},
        {"resnet18-cifar", YK_OPTIONS(yk_model_options, .in_channels = 3, .image_size = 20), 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        yk_scope scope = yk_scope_begin();
        const yk_model_options *o = cases[i].options;
        yk_module *m = yk_model(cases[i].name, o);
        yk_tensor *out =
            yk_forward(m, yk_randn(YK_SHAPE(cases[i].batch, o->in_channels, o->image_size, o->image_size), NULL));
        expect_ok(out == NULL);
        assert_int_equal(yk_ndim(out), 2);
        assert_int_equal(yk_size(out, 0), cases[i].batch);
        assert_int_equal(yk_size(out, 1), o->num_classes == YK_NOT_GIVEN ? 10 : o->num_classes);
        yk_scope_end(scope);
    }
}

static void test_errors(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    assert_null(yk_model("resnet19", NULL));
    expect_error(YK_ERR_NOT_FOUND,
                 "unknown model \"resnet19\"; did you mean \"resnet18\"? (known: mlp, lenet, resnet18, "
                 "resnet18-cifar, resnet34, resnet50, resnet101, resnet152, vgg11, vgg11_bn, vgg13, vgg13_bn, vgg16, "
                 "vgg16_bn, vgg19, vgg19_bn, mobilenet_v2, efficientnet_b0, vit_b_16)");
    assert_null(yk_model("transformer", NULL));
    expect_error(YK_ERR_NOT_FOUND, "unknown model \"transformer\" (known: mlp");
    assert_null(yk_model("lenet", YK_OPTIONS(yk_model_options, .image_size = 15)));
    expect_error(YK_ERR_ARGUMENT, "lenet: image_size is 15, it must be at least 16");
    assert_null(yk_model("lenet", YK_OPTIONS(yk_model_options, .num_classes = -1)));
    expect_error(YK_ERR_ARGUMENT, "lenet: num_classes is -1");
    assert_null(yk_model("resnet18-cifar", YK_OPTIONS(yk_model_options, .in_channels = -3)));
    expect_error(YK_ERR_ARGUMENT, "resnet18-cifar: in_channels is -3");
    assert_null(yk_model("mlp", YK_OPTIONS(yk_model_options, .image_size = -3)));
    expect_error(YK_ERR_ARGUMENT, "mlp: image_size is -3");
    assert_null(yk_mlp(YK_OPTIONS(yk_mlp_options, .hidden = (int64_t[]){8, 0}, .hidden_count = 2)));
    expect_error(YK_ERR_ARGUMENT, "mlp: hidden 0");

    assert_null(yk_forward(yk_lenet(NULL), yk_ones(YK_SHAPE(2, 3, 28, 28), NULL)));
    expect_error(YK_ERR_SHAPE, "lenet: input has shape (2, 3, 28, 28), expected (N, 1, 28, 28)");
    yk_module *net = yk_resnet18(YK_OPTIONS(yk_resnet_options, .num_classes = 2, .cifar = true));
    assert_null(yk_forward(net, yk_ones(YK_SHAPE(1, 4, 8, 8), NULL)));
    const yk_error *error = yk_last_error();
    assert_non_null(error);
    assert_ptr_equal(strstr(error->message, "conv1: conv2d: "), error->message);
    yk_clear_error();
    yk_scope_end(scope);
    assert_string_equal(yk_model_names()[0], "mlp");
    assert_string_equal(yk_model_names()[18], "vit_b_16");
    assert_null(yk_model_names()[19]);
}

/* The order of construction does not show: the values come from the seed alone. */
static void test_seed(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(3);
    yk_module *a = yk_lenet(NULL);
    yk_manual_seed(3);
    yk_module *b = yk_lenet(NULL);
    yk_manual_seed(4);
    yk_module *c = yk_lenet(NULL);
    yk_tensor *wa = yk_module_get(a, "conv2.weight"), *wb = yk_module_get(b, "conv2.weight");
    assert_true(yk_item(yk_all(yk_eq(wa, wb))) == 1);
    assert_true(yk_item(yk_any(yk_eq(wa, yk_module_get(c, "conv2.weight")))) == 0);
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_seed),
    };
    return cmocka_run_group_tests_name("models", tests, NULL, NULL);
}
