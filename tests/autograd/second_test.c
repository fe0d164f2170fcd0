/*
 * second_test.c - gradients of gradients: yk_autograd_grad, create_graph, backward to some inputs, gradgradcheck,
 * anomaly detection; WGAN-GP and MAML against PyTorch (tests/golden/make_second.py).
 */
#include "autograd/tape.h"
#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include <stdio.h>

#include <yoke/nn.h>
#include <yoke/ops.h>

#include "tests/support/golden.h"

static const yk_tensor_options *const f64 = YK_OPTIONS(yk_tensor_options, .dtype = YK_F64);
static const yk_tensor_options *const f64_leaf = YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true);
#define CREATE YK_OPTIONS(yk_autograd_grad_options, .create_graph = true)

static yk_tensor *numbers(int count, const double *values, bool leaf)
{
    return yk_from_data(values, YK_SHAPE(count), leaf ? f64_leaf : f64);
}

static double at(const yk_tensor *x, int i)
{
    double values[64];
    assert_non_null(x);
    assert_true(yk_numel(x) <= 64 && i < yk_numel(x));
    expect_ok(yk_tensor_read(x, values, sizeof(double) * (size_t)yk_numel(x)));
    return values[i];
}

/* The gradient of y, of one element or with ones, with respect to x. */
static yk_tensor *slope(yk_tensor *y, yk_tensor *x, const yk_autograd_grad_options *options)
{
    yk_tensor *g = NULL, *ones = y ? yk_ones_like(y) : NULL;
    expect_ok(yk_autograd_grad(&y, 1, &x, 1, &ones, &g, options));
    return g;
}

/* ---- PyTorch's numbers ---- */

/* Compares with a section of tests/golden/second.golden. */
static void expect_all(const yk_tensor *got, const char *name)
{
    double values[512], scale = 1;
    size_t count;
    const double *expected = golden_numbers("second", name, &count);
    assert_true(count <= sizeof(values) / sizeof(*values));
    if (!got || yk_numel(got) != (int64_t)count)
        fail_msg("%s: %lld elements, expected %zu", name, got ? (long long)yk_numel(got) : -1LL, count);
    expect_ok(yk_tensor_read(got, values, sizeof(double) * count));
    for (size_t i = 0; i < count; i++)
        scale = fmax(scale, fabs(expected[i]));
    for (size_t i = 0; i < count; i++)
        if (!(fabs(values[i] - expected[i]) <= 1e-12 * scale))
            fail_msg("%s: element %zu is %.17g, expected %.17g", name, i, values[i], expected[i]);
}

static yk_tensor *named(const char *name, int ndim, const int64_t *shape, const yk_tensor_options *options)
{
    size_t count;
    const double *values = golden_numbers("second", name, &count);
    yk_tensor *x = yk_from_data(values, ndim, shape, options);
    assert_int_equal(yk_numel(x), count);
    return x;
}

typedef yk_tensor *(*critic)(yk_tensor *x, yk_tensor *const *w);

static yk_tensor *leaky(yk_tensor *x)
{
    return yk_maximum(x, yk_mul_scalar(x, 0.2));
}

static yk_tensor *linear_critic(yk_tensor *x, yk_tensor *const *w)
{
    return yk_linear(yk_tanh(yk_linear(leaky(yk_linear(x, w[0], w[1])), w[2], w[3])), w[4], w[5]);
}

static yk_tensor *conv_critic(yk_tensor *x, yk_tensor *const *w)
{
    yk_tensor *y = yk_conv2d(x, w[0], w[1], YK_OPTIONS(yk_conv2d_options, .stride = {2, 2}, .padding = {1, 1}));
    y = leaky(yk_layer_norm(y, YK_SHAPE(3, 3, 3), w[2], w[3], 1e-5));
    return yk_linear(yk_flatten(yk_sigmoid(yk_conv2d(y, w[4], w[5], NULL)), 1, -1), w[6], w[7]);
}

/* The loss of WGAN-GP; *g is the gradient with respect to what lies between real and fake. */
static yk_tensor *critic_loss(critic f, yk_tensor *const *w, yk_tensor *real, yk_tensor *fake, yk_tensor *mix,
                              yk_tensor **g)
{
    yk_tensor *between = yk_add(yk_mul(mix, real), yk_mul(yk_add_scalar(yk_neg(mix), 1), fake));
    expect_ok(yk_set_requires_grad(between, true));
    *g = slope(f(between, w), between, CREATE);
    const int dim = 1;
    yk_tensor *size = yk_norm(yk_flatten(*g, 1, -1), 2, &dim, 1, false);
    yk_tensor *term = yk_mean(yk_square(yk_add_scalar(size, -1)));
    yk_tensor *distance = yk_sub(yk_mean(f(fake, w)), yk_mean(f(real, w)));
    return yk_add(distance, yk_mul_scalar(term, 10));
}

#define LEAF(name, ...)     named(name, YK_SHAPE(__VA_ARGS__), f64_leaf)
#define CONSTANT(name, ...) named(name, YK_SHAPE(__VA_ARGS__), f64)

static void test_gradient_penalty(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *w[] = {LEAF("wgan_p0", 6, 4), LEAF("wgan_p1", 6),    LEAF("wgan_p2", 5, 6),
                      LEAF("wgan_p3", 5),    LEAF("wgan_p4", 1, 5), LEAF("wgan_p5", 1)};
    yk_tensor *g, *loss = critic_loss(linear_critic, w, CONSTANT("wgan_real", 3, 4), CONSTANT("wgan_fake", 3, 4),
                                      CONSTANT("wgan_mix", 3, 1), &g);
    expect_all(g, "wgan_input_grad");
    expect_all(loss, "wgan_loss");
    for (int i = 0; i < 6; i++)
        assert_null(yk_grad(w[i]));
    expect_ok(yk_backward(loss));
    expect_all(yk_grad(w[0]), "wgan_g0");
    expect_all(yk_grad(w[1]), "wgan_g1");
    expect_all(yk_grad(w[2]), "wgan_g2");
    expect_all(yk_grad(w[3]), "wgan_g3");
    expect_all(yk_grad(w[4]), "wgan_g4");
    expect_all(yk_grad(w[5]), "wgan_g5");
    yk_scope_end(scope);
}

static void test_gradient_penalty_of_convolutions(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *w[] = {LEAF("conv_p0", 3, 2, 3, 3), LEAF("conv_p1", 3),          LEAF("conv_p2", 3, 3, 3),
                      LEAF("conv_p3", 3, 3, 3),    LEAF("conv_p4", 2, 3, 2, 2), LEAF("conv_p5", 2),
                      LEAF("conv_p6", 1, 8),       LEAF("conv_p7", 1)};
    yk_tensor *g, *loss = critic_loss(conv_critic, w, CONSTANT("conv_real", 2, 2, 6, 6),
                                      CONSTANT("conv_fake", 2, 2, 6, 6), CONSTANT("conv_mix", 2, 1, 1, 1), &g);
    expect_all(g, "conv_input_grad");
    expect_all(loss, "conv_loss");
    expect_ok(yk_backward(loss));
    expect_all(yk_grad(w[0]), "conv_g0");
    expect_all(yk_grad(w[1]), "conv_g1");
    expect_all(yk_grad(w[2]), "conv_g2");
    expect_all(yk_grad(w[3]), "conv_g3");
    expect_all(yk_grad(w[4]), "conv_g4");
    expect_all(yk_grad(w[5]), "conv_g5");
    expect_all(yk_grad(w[6]), "conv_g6");
    expect_all(yk_grad(w[7]), "conv_g7");
    yk_scope_end(scope);
}

static yk_tensor *maml_model(yk_tensor *x, yk_tensor *const *w)
{
    return yk_linear(yk_tanh(yk_linear(x, w[0], w[1])), w[2], w[3]);
}

static void test_maml(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *w[] = {LEAF("maml_p0", 5, 2), LEAF("maml_p1", 5), LEAF("maml_p2", 1, 5), LEAF("maml_p3", 1)},
              *total = NULL;
    for (int task = 0; task < 2; task++) {
        yk_tensor *x = CONSTANT(task ? "maml_x1" : "maml_x0", 4, 2), *y = CONSTANT(task ? "maml_y1" : "maml_y0", 4, 1);
        yk_tensor *query_x = CONSTANT(task ? "maml_query_x1" : "maml_query_x0", 4, 2);
        yk_tensor *query_y = CONSTANT(task ? "maml_query_y1" : "maml_query_y0", 4, 1), *fast[4], *grads[4];
        memcpy(fast, w, sizeof(w));
        for (int step = 0; step < 2; step++) {
            yk_tensor *inner = yk_mse_loss(maml_model(x, fast), y, YK_REDUCE_MEAN);
            expect_ok(yk_autograd_grad(&inner, 1, fast, 4, NULL, grads, CREATE));
            for (int i = 0; i < 4; i++)
                fast[i] = yk_add_scaled(fast[i], grads[i], -0.1);
        }
        yk_tensor *loss = yk_mse_loss(maml_model(query_x, fast), query_y, YK_REDUCE_MEAN);
        total = total ? yk_add(total, loss) : loss;
    }
    expect_ok(yk_backward(total));
    expect_all(total, "maml_loss");
    expect_all(yk_grad(w[0]), "maml_g0");
    expect_all(yk_grad(w[1]), "maml_g1");
    expect_all(yk_grad(w[2]), "maml_g2");
    expect_all(yk_grad(w[3]), "maml_g3");
    yk_scope_end(scope);
}

/* ---- yk_autograd_grad ---- */

/* x^4: 4 x^3, 12 x^2, 24 x, 24, and then nothing. */
static void test_derivatives_of_any_order(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = numbers(1, (double[]){1.5}, true), *y = yk_pow_scalar(x, 4);
    const double expected[] = {4 * 1.5 * 1.5 * 1.5, 12 * 1.5 * 1.5, 24 * 1.5, 24};
    for (int i = 0; i < 4; i++) {
        y = slope(y, x, CREATE);
        expect_near(at(y, 0), expected[i], 1e-13, 0);
    }
    /* The third derivative of sin is -cos. */
    y = yk_sin(x);
    for (int i = 0; i < 3; i++)
        y = slope(y, x, CREATE);
    expect_near(at(y, 0), -cos(1.5), 1e-13, 0);
    yk_scope_end(scope);
}

static void test_grad_leaves_leaves_alone(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = numbers(2, (double[]){2, 3}, true), *w = numbers(2, (double[]){5, 7}, true);
    yk_tensor *h = yk_mul(x, w), *loss = yk_sum(yk_square(h)), *grads[3];
    yk_tensor *inputs[3] = {h, x, h};
    expect_ok(yk_autograd_grad(&loss, 1, inputs, 3, NULL, grads, NULL));
    expect_near(at(grads[0], 1), 2 * 21, 0, 0);
    expect_near(at(grads[1], 1), 2 * 21 * 7, 0, 0);
    expect_near(at(grads[2], 1), 2 * 21, 0, 0);
    assert_true(!yk_grad(x) && !yk_grad(w) && !yk_grad(h) && !yk_requires_grad(grads[1]));
    /* The graph is gone where it was walked, and said so. */
    assert_true(yk_autograd_grad(&loss, 1, inputs, 1, NULL, grads, NULL) != YK_OK);
    expect_error(YK_ERR_STATE, "autograd_grad: the graph was freed by an earlier backward");
    assert_null(grads[0]);
    yk_scope_end(scope);
}

/* Only what leads to the inputs is walked: the rest of the graph stays as it is. */
static void test_what_is_not_asked_for(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = numbers(1, (double[]){2}, true), *w = numbers(1, (double[]){5}, true);
    yk_tensor *kept = yk_square(w), *h = yk_square(x), *y = yk_mul(h, kept), *g;
    expect_ok(yk_autograd_grad(&y, 1, &h, 1, NULL, &g, NULL)); /* frees y's node alone */
    expect_near(at(g, 0), 25, 0, 0);
    yk_tensor *both = yk_add(kept, h), *inputs[2] = {w, x}, *grads[2];
    expect_ok(yk_autograd_grad(&both, 1, inputs, 2, NULL, grads, NULL));
    expect_near(at(grads[0], 0), 10, 0, 0);
    expect_near(at(grads[1], 0), 4, 0, 0);
    yk_scope_end(scope);
}

static void test_several_outputs(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = numbers(2, (double[]){2, 3}, true), *a = yk_square(x), *b = yk_mul(a, x), *c = yk_sum(b);
    yk_tensor *outputs[4] = {a, c, a, b}, *g,
              *given[4] = {numbers(2, (double[]){1, 2}, false), NULL, numbers(2, (double[]){10, 20}, false),
                           numbers(2, (double[]){3, 4}, false)};
    expect_ok(yk_autograd_grad(outputs, 4, &x, 1, given, &g, NULL));
    for (int i = 0; i < 2; i++) {
        double v = i ? 3 : 2, of_a = i ? 22 : 11, of_b = (i ? 4 : 3) + 1;
        expect_near(at(g, i), of_a * 2 * v + of_b * 3 * v * v, 1e-15, 0);
    }
    /* An output that is an input. */
    yk_tensor *same;
    expect_ok(yk_autograd_grad(&x, 1, &x, 1, &given[0], &same, NULL));
    expect_near(at(same, 1), 2, 0, 0);
    yk_scope_end(scope);
}

static void test_unused_inputs(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = numbers(1, (double[]){2}, true), *w = numbers(1, (double[]){5}, true), *y = yk_square(x);
    yk_tensor *inputs[2] = {x, w}, *grads[2];
    assert_int_equal(
        yk_autograd_grad(&y, 1, inputs, 2, NULL, grads, YK_OPTIONS(yk_autograd_grad_options, .retain_graph = true)),
        YK_ERR_STATE);
    expect_error(YK_ERR_STATE, "autograd_grad: input 1 of 2 has no part in the outputs; allow_unused NULL");
    assert_true(!grads[0] && !grads[1]);
    expect_ok(yk_autograd_grad(&y, 1, inputs, 2, NULL, grads,
                               YK_OPTIONS(yk_autograd_grad_options, .allow_unused = true, .retain_graph = true)));
    expect_near(at(grads[0], 0), 4, 0, 0);
    assert_null(grads[1]);
    expect_ok(yk_autograd_grad(&y, 1, &w, 1, NULL, grads, YK_OPTIONS(yk_autograd_grad_options, .allow_unused = true)));
    assert_null(grads[0]);
    expect_ok(yk_backward(y)); /* nothing of it was walked */
    yk_scope_end(scope);
}

static void test_misuse(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = numbers(2, (double[]){2, 3}, true), *y = yk_square(x), *constant = numbers(1, (double[]){1}, false);
    yk_tensor *g, *none = NULL;
    assert_true(yk_autograd_grad(&y, 1, &x, 1, NULL, &g, NULL) != YK_OK);
    expect_error(YK_ERR_SHAPE, "autograd_grad: the tensor has shape (2,)");
    assert_true(yk_autograd_grad(&y, 1, &x, 1, &constant, &g, NULL) != YK_OK);
    expect_error(YK_ERR_SHAPE, "autograd_grad: the gradient is (1,) of float64, the tensor (2,) of float64");
    assert_true(yk_autograd_grad(&y, 1, &constant, 1, &x, &g, NULL) != YK_OK);
    expect_error(YK_ERR_STATE, "autograd_grad: input 0 of 1 does not require a gradient");
    assert_true(yk_autograd_grad(&constant, 1, &x, 1, NULL, &g, NULL) != YK_OK);
    expect_error(YK_ERR_STATE, "autograd_grad: the tensor does not require a gradient");
    assert_true(yk_autograd_grad(&none, 1, &x, 1, NULL, &g, NULL) != YK_OK);
    expect_error(YK_ERR_ARGUMENT, "autograd_grad: the tensor is NULL");
    assert_true(yk_autograd_grad(&y, 0, &x, 1, NULL, &g, NULL) != YK_OK);
    expect_error(YK_ERR_ARGUMENT, "autograd_grad: 0 tensors were given");
    assert_true(yk_autograd_grad(&y, 1, &x, 0, NULL, &g, NULL) != YK_OK);
    expect_error(YK_ERR_ARGUMENT, "autograd_grad: 0 inputs were given");
    assert_true(yk_autograd_grad(&y, 1, NULL, 1, NULL, &g, NULL) != YK_OK);
    expect_error(YK_ERR_ARGUMENT, "autograd_grad: array of inputs is NULL");
    assert_true(yk_autograd_grad(&y, 1, &x, 1, NULL, NULL, NULL) != YK_OK);
    expect_error(YK_ERR_ARGUMENT, "autograd_grad: array of gradients is NULL");
    assert_true(yk_backward_with(y, YK_OPTIONS(yk_backward_options, .inputs = &x)) != YK_OK);
    expect_error(YK_ERR_ARGUMENT, "backward: n_inputs is 0, and inputs is given");
    assert_true(yk_backward_with(y, YK_OPTIONS(yk_backward_options, .n_inputs = 2)) != YK_OK);
    expect_error(YK_ERR_ARGUMENT, "backward: n_inputs is 2, and inputs is NULL");
    yk_scope_end(scope);
    yk_tensor *kept = numbers(1, (double[]){1}, true);
    assert_null(kept);
    yk_clear_error();
}

/* ---- backward ---- */

static void test_backward_to_some_inputs(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = numbers(1, (double[]){2}, true), *w = numbers(1, (double[]){5}, true), *h = yk_mul(x, w);
    yk_tensor *y = yk_square(h), *inputs[2] = {w, h};
    expect_ok(
        yk_backward_with(y, YK_OPTIONS(yk_backward_options, .inputs = inputs, .n_inputs = 2, .retain_graph = true)));
    expect_near(at(yk_grad(w), 0), 40, 0, 0);
    expect_near(at(yk_grad(h), 0), 20, 0, 0);
    assert_null(yk_grad(x));
    expect_ok(yk_backward_with(y, YK_OPTIONS(yk_backward_options, .inputs = inputs, .n_inputs = 1)));
    expect_near(at(yk_grad(w), 0), 80, 0, 0); /* it accumulates */
    assert_null(yk_grad(x));
    yk_scope_end(scope);
}

/* A gradient that was recorded accumulates with its history, as PyTorch's does. */
static void test_backward_that_is_recorded(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = numbers(1, (double[]){2}, true);
    expect_ok(yk_backward_with(yk_pow_scalar(x, 3), YK_OPTIONS(yk_backward_options, .create_graph = true)));
    expect_ok(yk_backward_with(yk_square(x), YK_OPTIONS(yk_backward_options, .create_graph = true)));
    yk_tensor *g = yk_tensor_retain(yk_grad(x)); /* 3 x^2 + 2 x */
    expect_near(at(g, 0), 16, 0, 0);
    expect_ok(yk_set_grad(x, NULL));
    expect_near(at(slope(g, x, NULL), 0), 6 * 2 + 2, 0, 0);
    /* A plain backward adds to such a gradient without changing the graph of the first. */
    expect_ok(yk_backward_with(yk_pow_scalar(x, 3), YK_OPTIONS(yk_backward_options, .create_graph = true)));
    yk_tensor *first = yk_tensor_retain(yk_grad(x));
    expect_ok(yk_backward(yk_square(x)));
    expect_near(at(yk_grad(x), 0), 16, 0, 0);
    expect_near(at(first, 0), 12, 0, 0);
    assert_false(yk_requires_grad(yk_grad(x)));
    expect_ok(yk_set_grad(x, NULL));
    yk_tensor_release(first);
    yk_tensor_release(g);
    yk_scope_end(scope);
}

static yk_tensor *doubled(yk_tensor *grad, void *user)
{
    (*(int *)user)++;
    return yk_mul_scalar(grad, 2);
}

/* Hooks see what is asked for, and what they give has its history. */
static void test_hooks(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    int calls = 0;
    yk_tensor *x = numbers(1, (double[]){2}, true), *h = yk_square(x), *y = yk_square(h);
    assert_true(yk_register_hook(h, doubled, &calls) && yk_register_hook(x, doubled, &calls));
    yk_tensor *g = slope(y, x, CREATE); /* 2 (2 (2 x^2) 2 x) = 16 x^3 */
    assert_int_equal(calls, 2);
    expect_near(at(g, 0), 16 * 8, 0, 0);
    expect_near(at(slope(yk_mul_scalar(g, 1), h, NULL), 0), 0, 0, INFINITY);
    yk_scope_end(scope);
}

/* Gradients of gradients over two devices, and repeated: bits do not differ. */
static void test_two_devices(void **state)
{
    (void)state;
    double first = 0;
    for (int i = 0; i < 20; i++) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *x = numbers(3, (double[]){0.3, -0.7, 1.1}, true);
        yk_tensor *there = yk_to(x, test_device(1)), *y = yk_exp(yk_mul(there, there));
        yk_tensor *back = yk_to(y, yk_tensor_device(x)), *sum = yk_sum(yk_add(yk_mul(back, yk_sin(x)), yk_square(x)));
        yk_tensor *g = slope(sum, x, CREATE), *gg = slope(yk_sum(yk_square(g)), x, NULL);
        if (i == 0)
            first = at(gg, 2);
        assert_true(at(gg, 2) == first);
        yk_scope_end(scope);
    }
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = numbers(2, (double[]){0.5, 2}, true), *w = yk_to(x, test_device(1)), *h = yk_square(w);
    yk_tensor *y = yk_sum(yk_mul(h, w)), *inputs[2] = {h, x}, *grads[2]; /* not recorded: a thread for each device */
    expect_ok(yk_autograd_grad(&y, 1, inputs, 2, NULL, grads, NULL));
    expect_near(at(grads[0], 1), 2, 0, 0);
    expect_near(at(grads[1], 1), 12, 0, 0);
    assert_true(yk_device_equal(yk_tensor_device(grads[0]), test_device(1)));
    yk_scope_end(scope);
}

/* ---- writes in place and views ---- */

static yk_tensor *written(yk_tensor *const *in, int n, void *user)
{
    (void)n;
    yk_tensor *x = yk_mul(in[0], in[0]), *row = yk_select(x, 0, 0);
    switch (*(int *)user) {
    case 0: yk_add_(row, in[1], 2); break;
    case 1: yk_copy_(row, yk_square(in[1])); break;
    case 2: yk_mul_scalar_(row, 3); break;
    case 3: yk_fill_(row, 3); break;
    case 4: yk_mul_(x, in[1]); break;
    case 5: yk_relu_(x); break;
    case 6: yk_mul_(x, x); break;
    default: {
        yk_index_item item = {.kind = YK_INDEX_TENSOR,
                              .tensor = yk_arange(0, 2, 1, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64))};
        yk_index_put_(yk_select(x, 1, 1), &item, 1, yk_select(in[1], 0, 0), *(int *)user == 8);
    }
    }
    return yk_mul(yk_exp(x), yk_sin(row));
}

static void test_writes_in_place(void **state)
{
    (void)state;
    for (int which = 0; which < 9; which++) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *inputs[2] = {yk_from_data((double[]){0.3, 0.6, -0.4, 0.9}, YK_SHAPE(2, 2), f64_leaf),
                                numbers(2, (double[]){0.7, -1.1}, true)};
        if (yk_gradcheck(written, inputs, 2, &which, NULL) || yk_gradgradcheck(written, inputs, 2, &which, NULL))
            fail_msg("write %d: %s", which, yk_last_error()->message);
        yk_scope_end(scope);
    }
    /* A gradient that needs the old value of a part is refused, not wrong. */
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_from_data((double[]){0.3, 0.6, -0.4, 0.9}, YK_SHAPE(2, 2), f64_leaf), *y = yk_square(x), *g;
    assert_non_null(yk_relu_(yk_select(y, 0, 0)));
    y = yk_sum(yk_square(y));
    assert_true(yk_autograd_grad(&y, 1, &x, 1, NULL, &g, CREATE) != YK_OK);
    expect_error(YK_ERR_UNSUPPORTED, "relu_: its gradient has no gradient yet where it wrote to a part of a tensor");
    yk_scope_end(scope);
}

/* A saved tensor that was overwritten is noticed, as in a first backward. */
static void test_versions(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = numbers(1, (double[]){2}, true), *h = yk_mul_scalar(x, 1), *y = yk_square(h), *g;
    assert_non_null(yk_add_(h, yk_ones_like(h), 1));
    assert_true(yk_autograd_grad(&y, 1, &x, 1, NULL, &g, CREATE) != YK_OK);
    expect_error(YK_ERR_STATE, "square: a tensor of shape (1,) that its gradient needs has been modified");
    yk_scope_end(scope);
}

/* ---- custom functions ---- */

/* x^2 y; saved are the inputs, the result, a mask, and in one form an intermediate. */
static yk_tensor *product_forward(yk_custom *context, yk_tensor *const *in, int n)
{
    (void)n;
    yk_tensor *out = yk_mul(yk_mul(in[0], in[0]), in[1]), *middle = yk_mul(in[0], in[0]);
    bool bad = yk_custom_save(context, in[0]) || yk_custom_save(context, in[1]) || yk_custom_save(context, out) ||
               yk_custom_save(context, *(bool *)yk_custom_user(context) ? middle : yk_gt(middle, in[1]));
    return bad ? NULL : out;
}

static yk_status product_backward(yk_custom *context, yk_tensor *g, yk_tensor **grads, int n)
{
    (void)n;
    yk_tensor *x = yk_custom_saved(context, 0), *y = yk_custom_saved(context, 1), *out = yk_custom_saved(context, 2);
    yk_tensor *last = yk_custom_saved(context, 3);
    if (!last)
        return YK_ERR_CALLBACK;
    grads[0] = yk_mul_scalar(yk_mul(g, yk_mul(x, y)), 2);
    grads[1] = yk_mul(g, yk_div(out, y));
    return YK_OK;
}

static const yk_custom_function product_function = {
    .name = "product", .forward = product_forward, .backward = product_backward};

static yk_tensor *call_product(yk_tensor *const *in, int n, void *user)
{
    return yk_sin(yk_custom_apply(&product_function, (yk_tensor *[]){yk_exp(in[0]), in[1]}, n, user));
}

static void test_custom_functions(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    bool intermediate = false;
    yk_tensor *inputs[2] = {numbers(2, (double[]){0.4, -0.3}, true), numbers(2, (double[]){0.7, 0.2}, true)}, *grads[2];
    expect_ok(yk_gradcheck(call_product, inputs, 2, &intermediate, NULL));
    expect_ok(yk_gradgradcheck(call_product, inputs, 2, &intermediate, NULL));
    intermediate = true;
    yk_tensor *y = yk_sum(call_product(inputs, 2, &intermediate));
    assert_true(yk_autograd_grad(&y, 1, inputs, 2, NULL, grads, CREATE) != YK_OK);
    expect_error(YK_ERR_UNSUPPORTED, "product: saved tensor 3 is neither an input nor a result");
    yk_scope_end(scope);
}

/* ---- operations that only large tensors reach ---- */

/* Distances in blocks: the same gradients, by another path. */
static void test_distances_in_blocks(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    enum { ROWS = 24, OTHERS = 1000, SIZE = 3 };
    for (int which = 0; which < 2; which++) {
        double p = which ? 1 : 3;
        yk_tensor *x = yk_randn(YK_SHAPE(ROWS, SIZE), f64_leaf), *y = yk_randn(YK_SHAPE(OTHERS, SIZE), f64);
        yk_tensor *g[2];
        for (int blocks = 0; blocks < 2; blocks++) {
            yk_tensor *apart = yk_sub(yk_unsqueeze(x, 1), y), *out = yk_norm(apart, p, (int[]){-1}, 1, false);
            g[blocks] = slope(yk_sum(yk_square(blocks ? yk_cdist(x, y, p) : out)), x, CREATE);
            g[blocks] = slope(yk_sum(yk_square(g[blocks])), x, NULL);
        }
        assert_true(yk_all_close(g[1], g[0], 1e-9, 1e-9, false));
    }
    yk_scope_end(scope);
}

/* ---- operations without a recorded backward ---- */

static yk_status plain_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    (void)node;
    grads[0] = yk_tensor_retain(gout);
    return YK_OK;
}

/* An operation without one: an error that names it. */
static void test_operations_without(void **state)
{
    (void)state;
    static const yk__op op = {.name = "plain", .backward = plain_backward};
    yk_scope scope = yk_scope_begin();
    double values[12] = {0.1, -0.4, 0.3};
    yk_tensor *x = numbers(12, values, true), *g;
    yk_tensor *y = yk__record(yk__raw_clone(x), &op, 1, &x, 0, NULL, NULL, 0), *ones = yk_ones_like(y);
    assert_true(yk_autograd_grad(&y, 1, &x, 1, &ones, &g, CREATE) != YK_OK);
    expect_error(YK_ERR_UNSUPPORTED, "plain: its gradient has no gradient yet");
    assert_null(g);
    expect_ok(yk_autograd_grad(&y, 1, &x, 1, &ones, &g, NULL)); /* the graph is whole, and a first one is fine */
    yk_scope_end(scope);
}

/* ---- gradgradcheck ---- */

/* A gradient that is right, and recorded wrong: it hides that it depends on x. */
static yk_status flat_backward(yk_custom *context, yk_tensor *g, yk_tensor **grads, int n)
{
    (void)n;
    grads[0] = yk_mul(g, yk_mul_scalar(yk_detach(yk_custom_saved(context, 0)), 2));
    return YK_OK;
}
static yk_tensor *flat_forward(yk_custom *context, yk_tensor *const *in, int n)
{
    (void)n;
    return yk_custom_save(context, in[0]) ? NULL : yk_square(in[0]);
}
static yk_tensor *call_flat(yk_tensor *const *in, int n, void *user)
{
    static const yk_custom_function f = {.name = "flat", .forward = flat_forward, .backward = flat_backward};
    return yk_custom_apply(&f, in, n, user);
}
static yk_status call_parts(yk_tensor *const *in, int n, yk_tensor **out, int n_outputs, void *user)
{
    (void)n, (void)user, (void)n_outputs;
    out[0] = yk_mul(in[0], in[1]);
    out[1] = yk_gt(in[0], in[1]);
    out[2] = yk_exp(in[0]);
    return YK_OK;
}

static void test_gradgradcheck(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x[2] = {numbers(2, (double[]){0.4, -0.3}, true), numbers(2, (double[]){0.7, 0.2}, true)};
    expect_ok(yk_gradcheck(call_flat, x, 1, NULL, NULL));
    assert_true(yk_gradgradcheck(call_flat, x, 1, NULL, NULL) != YK_OK);
    expect_error(YK_ERR_NUMERIC, "gradgradcheck: input 0, element 0: backward gives 0, differences give");
    expect_ok(yk_gradgradcheck_list(call_parts, x, 2, 3, NULL, NULL));
    assert_true(yk_gradgradcheck(NULL, x, 2, NULL, NULL) != YK_OK);
    expect_error(YK_ERR_ARGUMENT, "gradgradcheck: the function is NULL");
    assert_true(yk_gradgradcheck(call_flat, (yk_tensor *[]){numbers(1, (double[]){1}, false)}, 1, NULL, NULL) != YK_OK);
    expect_error(YK_ERR_ARGUMENT, "gradgradcheck: no output depends on an input that requires a gradient");
    yk_scope_end(scope);
}

/* ---- anomalies ---- */

static void test_anomaly(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    assert_false(yk_autograd_set_detect_anomaly(true));
    assert_true(yk_autograd_detect_anomaly());
    yk_tensor *x = numbers(2, (double[]){0, 4}, true), *zero = yk_zeros_like(x);
    expect_ok(yk_backward(yk_sum(yk_square(x))));
    yk_tensor *y = yk_sum(yk_mul(yk_sqrt(yk_mul_scalar(x, 1)), zero)); /* 0 times infinity */
    assert_true(yk_backward(y) != YK_OK);
    expect_error(YK_ERR_NUMERIC, "backward of sqrt gave NaN in the gradient of its input 0, of shape (2,) made by "
                                 "mul_scalar; the result has shape (2,)");
    y = yk_sum(yk_mul(yk_sqrt(x), zero));
    yk_tensor *g;
    assert_true(yk_autograd_grad(&y, 1, &x, 1, NULL, &g, CREATE) != YK_OK);
    expect_error(YK_ERR_NUMERIC, "backward of sqrt gave NaN");
    assert_true(yk_autograd_set_detect_anomaly(false));
    expect_ok(yk_backward(yk_sum(yk_mul(yk_sqrt(x), zero))));
    assert_true(isnan(at(yk_grad(x), 0)));
    yk_scope_end(scope);
}

int main(void)
{
    use_devices(2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradient_penalty),
        cmocka_unit_test(test_gradient_penalty_of_convolutions),
        cmocka_unit_test(test_maml),
        cmocka_unit_test(test_derivatives_of_any_order),
        cmocka_unit_test(test_grad_leaves_leaves_alone),
        cmocka_unit_test(test_what_is_not_asked_for),
        cmocka_unit_test(test_several_outputs),
        cmocka_unit_test(test_unused_inputs),
        cmocka_unit_test(test_misuse),
        cmocka_unit_test(test_backward_to_some_inputs),
        cmocka_unit_test(test_backward_that_is_recorded),
        cmocka_unit_test(test_hooks),
        cmocka_unit_test(test_two_devices),
        cmocka_unit_test(test_writes_in_place),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_custom_functions),
        cmocka_unit_test(test_distances_in_blocks),
        cmocka_unit_test(test_operations_without),
        cmocka_unit_test(test_gradgradcheck),
        cmocka_unit_test(test_anomaly),
    };
    return cmocka_run_group_tests_name("second", tests, NULL, NULL);
}
