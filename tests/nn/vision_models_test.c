/*
 * vision_models_test.c - ResNets, VGGs, MobileNetV2 and vision transformers against torchvision: names, shapes and
 * order of their state dicts, what they give in evaluation with the same values, gradients that reach all, errors.
 */
#include "tests/nn/module_cases.h"
#include "tests/support/test_device.h"

/* As in tests/golden/make_models.py: numbers in [-0.5, 0.5) that depend on their position and the seed. */
static double spread(uint64_t i, uint64_t seed)
{
    uint32_t h = (uint32_t)(i * 2654435761u + seed * 40503u);
    h ^= h >> 15;
    h *= 2246822519u;
    h ^= h >> 13;
    return h / 4294967296.0 - 0.5;
}

static bool ends_with(const char *name, const char *end)
{
    size_t length = strlen(name), tail = strlen(end);
    return length >= tail && strcmp(name + length - tail, end) == 0;
}

static void fill(yk_state_dict *state)
{
    bool before = yk_no_grad_begin();
    for (int64_t k = 0; k < yk_state_dict_count(state); k++) {
        yk_tensor *x = yk_state_dict_at(state, k);
        if (!yk_dtype_is_floating(yk_tensor_dtype(x)))
            continue;
        const char *name = yk_state_dict_name(state, k);
        int64_t count = yk_numel(x), shape[YK_MAX_DIMS];
        double scale = 0.2, shift = 0, *values = malloc(sizeof(double) * (size_t)count);
        assert_non_null(values);
        for (int d = 0; d < yk_ndim(x); d++)
            shape[d] = yk_size(x, d);
        if (yk_ndim(x) >= 2)
            scale = 2 * sqrt(6 / ((double)count / (double)shape[0]));
        else if (ends_with(name, "running_var") || ends_with(name, "weight"))
            scale = 0.5, shift = ends_with(name, "running_var") ? 1 : 0.5;
        for (int64_t i = 0; i < count; i++)
            values[i] = shift + scale * spread((uint64_t)i, (uint64_t)k + 1);
        yk_scope scope = yk_scope_begin();
        yk_tensor *from = yk_from_data(values, yk_ndim(x), shape, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
        expect_ok(yk_copy_(x, from) ? YK_OK : YK_ERR_ARGUMENT);
        yk_scope_end(scope);
        free(values);
    }
    yk_no_grad_end(before);
}

static void expect_names(const char *name, const yk_state_dict *state)
{
    size_t count;
    const char *const *rows = golden_rows("models", name, &count);
    assert_int_equal(yk_state_dict_count(state), count);
    for (size_t i = 0; i < count; i++) {
        const char *row = rows[i];
        char word[128];
        golden_word(&row, word, sizeof(word));
        golden_word(&row, word, sizeof(word));
        assert_string_equal(yk_state_dict_name(state, (int64_t)i), word);
        case_expect_shape(name, word, yk_state_dict_at(state, (int64_t)i), &row);
    }
}

static const yk_vgg_options *vgg(bool batch_norm)
{
    static yk_vgg_options o;
    o = *YK_OPTIONS(yk_vgg_options, .num_classes = 5, .width = 8, .classifier_size = 6, .batch_norm = batch_norm);
    return &o;
}

/* The module of a case, and the size of its image. */
static yk_module *make(const char *name, int64_t *side)
{
#define CASE(label, size, ...)                                                                                         \
    if (strcmp(name, label) == 0) {                                                                                    \
        *side = size;                                                                                                  \
        return __VA_ARGS__;                                                                                            \
    }
#define RESNET(...) YK_OPTIONS(yk_resnet_options, .num_classes = 5, __VA_ARGS__)
    CASE("resnet18", 32, yk_resnet18(RESNET(.width = 8)))
    CASE("resnet34", 32, yk_resnet34(RESNET(.width = 8)))
    CASE("resnet50", 40, yk_resnet50(RESNET(.width = 8, .groups = 2, .width_per_group = 16)))
    CASE("resnet101", 32, yk_resnet101(RESNET(.width = 8)))
    CASE("resnet152", 32, yk_resnet152(RESNET(.width = 8)))
    CASE("vgg11", 32, yk_vgg11(vgg(false)))
    CASE("vgg11_bn", 64, yk_vgg11(vgg(true)))
    CASE("vgg13", 32, yk_vgg13(vgg(false)))
    CASE("vgg13_bn", 32, yk_vgg13(vgg(true)))
    CASE("vgg16", 32, yk_vgg16(vgg(false)))
    CASE("vgg16_bn", 32, yk_vgg16(vgg(true)))
    CASE("vgg19", 32, yk_vgg19(vgg(false)))
    CASE("vgg19_bn", 32, yk_vgg19(vgg(true)))
    CASE("mobilenet_v2", 40, yk_mobilenet_v2(YK_OPTIONS(yk_mobilenet_v2_options, .num_classes = 5)))
    CASE("efficientnet_b0", 40, yk_efficientnet_b0(YK_OPTIONS(yk_efficientnet_options, .num_classes = 5)))
    CASE("vit", 24,
         yk_vit_b_16(YK_OPTIONS(yk_vit_options, .image_size = 24, .patch_size = 8, .num_layers = 2, .num_heads = 3,
                                .hidden_dim = 12, .mlp_dim = 20, .num_classes = 5)))
#undef CASE
    fail_msg("no test makes %s", name);
    return NULL;
}

static void test_torchvision(void **unused)
{
    (void)unused;
    size_t count;
    const char *const *names = golden_rows("models", "cases", &count);
    assert_int_equal(count, 16);
    for (size_t i = 0; i < count; i++) {
        char section[40];
        int64_t side = 0;
        yk_scope scope = yk_scope_begin();
        yk_module *m = make(names[i], &side);
        expect_ok(m ? YK_OK : YK_ERR_ARGUMENT);
        yk_state_dict *state = yk_module_state_dict(m);
        expect_names(names[i], state);
        fill(state);
        yk_module_eval(m);
        double image[3 * 64 * 64];
        for (int64_t k = 0; k < 3 * side * side; k++)
            image[k] = 2 * spread((uint64_t)k, 1000);
        yk_tensor *x = yk_from_data(image, YK_SHAPE(1, 3, side, side), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
        bool before = yk_no_grad_begin();
        yk_tensor *out = yk_forward(m, yk_cast(x, YK_F32));
        snprintf(section, sizeof(section), "%s_out", names[i]);
        case_expect(names[i], "the output", out, golden_numbers("models", section, NULL), 1e-4);
        yk_no_grad_end(before);
        yk_scope_end(scope);
    }
}

/* EfficientNet's blocks leave out images at random in training, and none in evaluation. */
static void test_stochastic_depth(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_module *m = yk_efficientnet_b0(
        YK_OPTIONS(yk_efficientnet_options, .num_classes = 3, .dropout = 0, .stochastic_depth_prob = 1));
    yk_module *block = yk_module_get_module(m, "features.6.3"); /* left out with a probability of 14 / 16 */
    yk_tensor *x = yk_randn(YK_SHAPE(64, 192, 2, 2), NULL);
    bool before = yk_no_grad_begin();
    yk_manual_seed(3);
    yk_tensor *change = yk_sum_dims(yk_abs(yk_sub(yk_forward(block, x), x)), (int[]){1, 2, 3}, 3, false);
    int left_out = 0;
    for (int64_t i = 0; i < 64; i++)
        left_out += yk_get(change, (int64_t[]){i}) == 0;
    assert_in_range(left_out, 44, 63);
    yk_module_eval(block);
    change = yk_sum_dims(yk_abs(yk_sub(yk_forward(block, x), x)), (int[]){1, 2, 3}, 3, false);
    for (int64_t i = 0; i < 64; i++)
        assert_true(yk_get(change, (int64_t[]){i}) > 0);
    yk_no_grad_end(before);
    yk_scope_end(scope);
}

/* Training of small ones: every parameter gets a gradient, and running statistics move. */
static void test_training(void **unused)
{
    (void)unused;
    static const char *const names[] = {"resnet50", "mobilenet_v2", "vit", "efficientnet_b0"};
    for (int i = work_size(0, 1); i < work_size(4, 3); i++) {
        yk_scope scope = yk_scope_begin();
        int64_t side;
        yk_manual_seed(2);
        yk_module *m = make(names[i], &side);
        if (i == 2) /* a head of zeros lets nothing through */
            expect_ok(yk_init_uniform(yk_module_get(m, "heads.head.weight"), -1, 1));
        yk_tensor *out = yk_forward(m, yk_randn(YK_SHAPE(2, 3, side, side), NULL));
        expect_ok(yk_backward(yk_sum(yk_square(out))));
        yk_parameters *parameters = yk_module_parameters(m);
        for (int64_t k = 0; k < yk_parameters_count(parameters); k++)
            if (!yk_grad(yk_parameters_at(parameters, k)))
                fail_msg("%s has no gradient", yk_parameters_name(parameters, k));
        if (i == 1 || i == 3)
            assert_true(yk_item(yk_module_get(m, "features.0.1.num_batches_tracked")) == 1);
        yk_scope_end(scope);
    }
}

static void test_errors(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    assert_null(yk_resnet34(YK_OPTIONS(yk_resnet_options, .groups = 2)));
    expect_error(YK_ERR_ARGUMENT, "resnet34: groups 2, width_per_group 64: its basic blocks have 1 and 64 alone");
    assert_null(yk_resnet50(YK_OPTIONS(yk_resnet_options, .groups = 5000)));
    expect_error(YK_ERR_ARGUMENT, "resnet50: groups 5000, width_per_group 64, width 64: they must be at most 4096");
    assert_null(yk_resnet152(YK_OPTIONS(yk_resnet_options, .num_classes = 0)));
    expect_error(YK_ERR_ARGUMENT, "resnet152: num_classes is 0, it must be at least 1");
    assert_null(yk_vgg16(YK_OPTIONS(yk_vgg_options, .dropout = 2)));
    expect_error(YK_ERR_ARGUMENT, "vgg16: dropout is 2");
    assert_null(yk_vgg13(YK_OPTIONS(yk_vgg_options, .in_channels = 0)));
    expect_error(YK_ERR_ARGUMENT, "vgg13: in_channels is 0");
    assert_null(yk_mobilenet_v2(YK_OPTIONS(yk_mobilenet_v2_options, .num_classes = -1)));
    expect_error(YK_ERR_ARGUMENT, "mobilenet_v2: num_classes is -1");
    assert_null(yk_efficientnet_b0(YK_OPTIONS(yk_efficientnet_options, .num_classes = 0)));
    expect_error(YK_ERR_ARGUMENT, "efficientnet_b0: num_classes is 0");
    assert_null(yk_efficientnet_b0(YK_OPTIONS(yk_efficientnet_options, .stochastic_depth_prob = 1.5)));
    expect_error(YK_ERR_ARGUMENT, "efficientnet_b0: stochastic_depth_prob is 1.5");
    assert_null(yk_vit_b_16(YK_OPTIONS(yk_vit_options, .image_size = 30)));
    expect_error(YK_ERR_ARGUMENT,
                 "vit_b_16: image_size 30 must be a multiple of patch_size 16, hidden_dim 768 of num_heads 12");
    assert_null(yk_vit_b_16(YK_OPTIONS(yk_vit_options, .num_layers = 0)));
    expect_error(YK_ERR_ARGUMENT, "vit_b_16: num_layers is 0, it must be at least 1");
    assert_null(yk_model("vgg16_bn", YK_OPTIONS(yk_model_options, .image_size = 28)));
    expect_error(YK_ERR_ARGUMENT, "vgg16: image_size is 28, it must be at least 32");
    assert_null(yk_model("vit_b_16", YK_OPTIONS(yk_model_options, .image_size = 28)));
    expect_error(YK_ERR_ARGUMENT, "vit_b_16: image_size 28 must be a multiple of patch_size 16");
    assert_null(yk_model("vgg15", NULL));
    expect_error(YK_ERR_NOT_FOUND, "unknown model \"vgg15\"; did you mean \"vgg11\"?");
    int64_t side;
    yk_module *m = make("vit", &side);
    assert_null(yk_forward(m, yk_ones(YK_SHAPE(1, 3, 32, 32), NULL)));
    expect_error(YK_ERR_SHAPE, "vit_b_16: input has shape (1, 3, 32, 32), expected (N, 3, 24, 24)");
    m = yk_model("mobilenet_v2", YK_OPTIONS(yk_model_options, .in_channels = 1, .image_size = 32, .num_classes = 3));
    yk_module_eval(m);
    yk_tensor *out = yk_forward(m, yk_ones(YK_SHAPE(2, 1, 32, 32), NULL));
    assert_true(yk_size(out, 0) == 2 && yk_size(out, 1) == 3);
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torchvision),
        cmocka_unit_test(test_training),
        cmocka_unit_test(test_stochastic_depth),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests_name("vision models", tests, NULL, NULL);
}
