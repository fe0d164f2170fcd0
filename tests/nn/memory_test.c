/*
 * memory_test.c - activations die when nothing needs them, and training keeps nothing from step to step.
 */
#include "tests/support/expect.h"
#include "tests/support/machine.h"
#include "tests/support/test_device.h"

#include <yoke/nn.h>
#include <yoke/optim.h>

static size_t allocated(void)
{
    yk_memory_info info;
    expect_ok(yk_device_memory(test_device(0), &info));
    return info.allocated;
}

static size_t peak(void)
{
    yk_memory_info info;
    expect_ok(yk_device_memory(test_device(0), &info));
    return info.peak_allocated;
}

enum { ROWS = 1024, WIDTH = 256, LAYERS = 10 };
#define ACTIVATION ((size_t)(ROWS * WIDTH) * sizeof(float))

/* Without recording, a chain of layers holds two activations at a time: what goes in and what comes out. */
static void test_no_grad(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_module *layers[LAYERS];
    for (int i = 0; i < LAYERS; i++)
        layers[i] = i % 2 ? yk_relu_create() : yk_linear_create(WIDTH, WIDTH, NULL);
    yk_module *m = yk_sequential_list(layers, LAYERS);
    yk_tensor *x = yk_randn(YK_SHAPE(ROWS, WIDTH), NULL);
    bool previous = yk_no_grad_begin();
    size_t before = allocated();
    yk_device_reset_peak_memory(test_device(0));
    yk_scope inner = yk_scope_begin();
    assert_non_null(yk_forward(m, x));
    assert_true(peak() - before >= 2 * ACTIVATION); /* the measure sees activations at all */
    assert_true(peak() - before < 3 * ACTIVATION);
    assert_int_equal(allocated() - before, ACTIVATION);
    yk_scope_end(inner);
    assert_int_equal(allocated(), before);
    yk_no_grad_end(previous);

    /* With recording the inputs of the linear layers stay: the outputs of the ReLUs. */
    yk_device_reset_peak_memory(test_device(0));
    assert_non_null(yk_forward(m, x));
    assert_true(allocated() - before >= LAYERS / 2 * ACTIVATION);
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

/* A result that is not saved for backward dies within the module's forward: three temporary results here. */
static yk_tensor *wasteful_forward(yk_module *self, yk_tensor *x)
{
    (void)self;
    return yk_add_scalar(yk_add_scalar(yk_add_scalar(yk_add_scalar(x, 1), 1), 1), 1);
}

static void test_own_scope(void **unused)
{
    (void)unused;
    static const yk_module_class wasteful = {.name = "Wasteful", .forward = wasteful_forward};
    yk_scope scope = yk_scope_begin();
    yk_module *m = yk_module_create(&wasteful);
    yk_tensor *x = yk_randn(YK_SHAPE(ROWS, WIDTH), YK_OPTIONS(yk_tensor_options, .requires_grad = true));
    size_t before = allocated();
    yk_tensor *out = yk_forward(m, x);
    assert_non_null(out);
    assert_int_equal(allocated() - before, ACTIVATION);
    expect_ok(yk_backward(yk_sum(out)));
    assert_true(yk_item(yk_mean(yk_grad(x))) == 1);
    yk_scope_end(scope);
}

static void train(yk_module *net, yk_optimizer *o, yk_tensor *x, yk_tensor *y, int steps, double *total)
{
    size_t after_first = 0;
    for (int step = 0; step < steps; step++) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *loss = yk_cross_entropy(yk_forward(net, x), y, NULL);
        yk_optimizer_zero_grad(o);
        expect_ok(yk_backward(loss));
        expect_ok(yk_optimizer_step(o));
        *total += yk_item(loss);
        yk_scope_end(scope);
        if (step == 0)
            after_first = allocated();
        assert_int_equal(allocated(), after_first);
    }
}

static void test_steps(void **unused)
{
    (void)unused;
    static const char *const models[] = {"lenet", "resnet18-cifar"};
    for (int i = 0; i < work_size(2, 1); i++) {
        size_t outside = allocated();
        yk_scope scope = yk_scope_begin();
        yk_manual_seed(1);
        yk_module *net =
            yk_model(models[i], YK_OPTIONS(yk_model_options, .in_channels = 3, .image_size = 16, .num_classes = 4));
        yk_optimizer *o = yk_sgd(yk_module_parameters(net), YK_OPTIONS(yk_sgd_options, .lr = 0.01, .momentum = 0.9));
        yk_tensor *x = yk_randn(YK_SHAPE(4, 3, 16, 16), NULL);
        yk_tensor *y = yk_randint(0, 4, YK_SHAPE(4), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
        double first = 0, total = 0;
        train(net, o, x, y, 1, &first);
        const int steps = sanitized_size(9, 4);
        train(net, o, x, y, steps, &total);
        assert_true(total / steps < first); /* and it learned something */
        yk_scope_end(scope);
        assert_int_equal(allocated(), outside);
    }
    assert_null(yk_last_error());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_grad),
        cmocka_unit_test(test_own_scope),
        cmocka_unit_test(test_steps),
    };
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
