/*
 * engine_test.c - backward: values, accumulation, retain_graph, order, memory, several devices.
 */
#include "tests/support/expect.h"
#include "tests/support/machine.h"
#include "tests/support/test_device.h"

#include <pthread.h>

#include <yoke/ops.h>

static const yk_tensor_options *const f64_leaf = YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true);

static yk_tensor *leaf(double value)
{
    return yk_scalar(value, f64_leaf);
}

static void test_chain_and_accumulation(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = leaf(3);
    /* y = x^2 + 2x: dy/dx = 2x + 2 = 8; x is used twice in the first term. */
    expect_ok(yk_backward(yk_add(yk_mul(x, x), yk_mul_scalar(x, 2))));
    expect_near(yk_item(yk_grad(x)), 8, 0, 0);
    expect_ok(yk_backward(yk_mul_scalar(x, 5)));
    expect_near(yk_item(yk_grad(x)), 13, 0, 0);
    expect_ok(yk_set_grad(x, NULL));
    assert_null(yk_grad(x));
    yk_scope_end(scope);
}

/* z = a*b with a = x+1, b = a*x: a diamond in which every node has several consumers. */
static void test_diamond(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = leaf(2);
    yk_tensor *a = yk_add_scalar(x, 1), *b = yk_mul(a, x), *z = yk_mul(a, b);
    expect_ok(yk_backward(z)); /* z = (x+1)^2 x: z' = 2(x+1)x + (x+1)^2 = 12 + 9 */
    expect_near(yk_item(yk_grad(x)), 21, 0, 0);
    yk_scope_end(scope);
}

static void test_retain_graph(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = leaf(3), *y = yk_mul(x, x);
    expect_ok(yk_backward_with(y, YK_OPTIONS(yk_backward_options, .retain_graph = true)));
    expect_ok(yk_backward(y));
    expect_near(yk_item(yk_grad(x)), 12, 0, 0);
    assert_int_equal(yk_backward(y), YK_ERR_STATE);
    expect_error(YK_ERR_STATE, "the graph was freed by an earlier backward (at mul)");
    yk_scope_end(scope);
}

static void test_roots_that_cannot_be(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_ones(YK_SHAPE(2, 3), f64_leaf);
    assert_int_equal(yk_backward(yk_mul_scalar(x, 2)), YK_ERR_SHAPE);
    expect_error(YK_ERR_SHAPE, "the tensor has shape (2, 3)");
    yk_tensor *plain = yk_ones(YK_SCALAR, NULL);
    assert_int_equal(yk_backward(plain), YK_ERR_STATE);
    expect_error(YK_ERR_STATE, "does not require a gradient");
    yk_tensor *wrong = yk_ones(YK_SHAPE(3, 2), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    yk_tensor *y = yk_mul_scalar(x, 2);
    assert_int_equal(yk_backward_with(y, YK_OPTIONS(yk_backward_options, .gradient = wrong)), YK_ERR_SHAPE);
    expect_error(YK_ERR_SHAPE, "the gradient is (3, 2)");
    yk_tensor *weights = yk_full(YK_SHAPE(2, 3), 0.5, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    expect_ok(yk_backward_with(y, YK_OPTIONS(yk_backward_options, .gradient = weights)));
    expect_near(yk_get(yk_grad(x), (int64_t[]){1, 2}), 1, 0, 0);
    assert_int_equal(yk_backward(NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "the tensor is NULL");
    yk_scope_end(scope);
}

static void test_no_grad_and_detach(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = leaf(3);
    bool previous = yk_no_grad_begin();
    yk_tensor *y = yk_mul(x, x);
    bool inner = yk_no_grad_begin();
    yk_no_grad_end(inner);
    assert_false(yk_grad_enabled());
    yk_no_grad_end(previous);
    assert_true(yk_grad_enabled());
    assert_false(yk_requires_grad(y));
    assert_true(yk_is_leaf(y));
    yk_tensor *z = yk_mul(yk_detach(yk_mul(x, x)), x); /* 9 x */
    expect_ok(yk_backward(z));
    expect_near(yk_item(yk_grad(x)), 9, 0, 0);
    assert_string_equal(yk_grad_fn_name(z), "mul");
    assert_int_equal(yk_set_requires_grad(z, false), YK_ERR_STATE);
    expect_error(YK_ERR_STATE, "made by mul");
    yk_tensor *whole = yk_ones(YK_SHAPE(2), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    assert_int_equal(yk_set_requires_grad(whole, true), YK_ERR_DTYPE);
    expect_error(YK_ERR_DTYPE, "this one is int64");
    yk_scope_end(scope);
}

static size_t allocated(void)
{
    yk_memory_info info;
    assert_int_equal(yk_device_memory(test_device(0), &info), YK_OK);
    return info.allocated;
}

/* A loss summed over steps with yk_item keeps no graph alive: memory is the same after every step. */
static void test_item_keeps_no_graph(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *w = yk_randn(YK_SHAPE(64, 64), YK_OPTIONS(yk_tensor_options, .requires_grad = true));
    yk_tensor *x = yk_randn(YK_SHAPE(32, 64), NULL);
    double total = 0;
    size_t after_first = 0;
    for (int step = 0; step < 5; step++) {
        yk_scope inner = yk_scope_begin();
        yk_tensor *loss = yk_mean(yk_square(yk_matmul(x, w)));
        total += yk_item(loss);
        expect_ok(yk_backward(loss));
        yk_scope_end(inner);
        if (step == 0)
            after_first = allocated();
        assert_int_equal(allocated(), after_first);
    }
    assert_true(total > 0);
    yk_scope_end(scope);
}

/* 200,000 nodes in a row (with a sanitizer, whose frames are larger, 60,000): neither backward nor the release of an
 * unused tape may recurse. */
static void test_long_chain(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = leaf(1);
    const int nodes = sanitized_size(200000, 60000);
    for (int walk = 0; walk < 2; walk++) {
        yk_scope inner = yk_scope_begin();
        yk_tensor *y = x;
        for (int i = 0; i < nodes; i++)
            y = yk_add_scalar(y, 1);
        expect_near(yk_item(y), nodes + 1, 0, 0);
        if (walk == 0)
            expect_ok(yk_backward(y));
        yk_scope_end(inner);
    }
    expect_near(yk_item(yk_grad(x)), 1, 0, 0);
    yk_scope_end(scope);
}

static void test_two_devices(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_device second;
    expect_ok(yk_device_parse(device_text("cpu:1"), &second));
    yk_tensor *x = yk_full(YK_SHAPE(3), 2, f64_leaf);
    yk_tensor *w = yk_full(YK_SHAPE(3), 5,
                           YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true, .device = second));
    for (int repeat = 0; repeat < 50; repeat++) {
        yk_scope inner = yk_scope_begin();
        expect_ok(yk_set_grad(x, NULL));
        expect_ok(yk_set_grad(w, NULL));
        /* x goes to the second twice and back once; z = sum(x (w x)) + sum(w x) */
        yk_tensor *there = yk_mul(yk_to(x, second), w);
        yk_tensor *here = yk_mul(yk_to(there, test_device(0)), x);
        yk_tensor *z = yk_add(yk_sum(here), yk_to(yk_sum(there), test_device(0)));
        expect_ok(yk_backward(z));
        expect_near(yk_get(yk_grad(x), (int64_t[]){0}), 2 * 5 * 2 + 5, 0, 0);
        expect_near(yk_get(yk_grad(w), (int64_t[]){2}), 2 * 2 + 2, 0, 0);
        assert_int_equal(yk_tensor_device(yk_grad(w)).index, 1);
        yk_scope_end(inner);
    }
    assert_null(yk_mul(x, w));
    expect_error(YK_ERR_DEVICE, device_text("cpu:0 and cpu:1"));
    yk_scope_end(scope);
}

/* Backwards of separate graphs in several threads at once, over shared leaves that need no gradient. */
static void *one_thread(void *argument)
{
    yk_scope scope = yk_scope_begin();
    double value = *(double *)argument;
    double result = 0;
    for (int i = 0; i < 200; i++) {
        yk_scope inner = yk_scope_begin();
        yk_tensor *x = leaf(value);
        if (yk_backward(yk_mul(yk_mul(x, x), x)))
            result = NAN;
        else
            result = yk_item(yk_grad(x));
        yk_scope_end(inner);
    }
    yk_scope_end(scope);
    *(double *)argument = result;
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    pthread_t threads[4];
    double values[4] = {1, 2, 3, 4};
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, one_thread, &values[i]), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        expect_near(values[i], 3.0 * (i + 1) * (i + 1), 0, 0);
    }
}

static yk_status fail_backward(yk_custom *context, yk_tensor *grad, yk_tensor **grads, int n)
{
    (void)context, (void)grad, (void)grads, (void)n;
    return yk_set_error(YK_ERR_CALLBACK, "on purpose");
}

static yk_tensor *pass_forward(yk_custom *context, yk_tensor *const *inputs, int n)
{
    (void)context, (void)n;
    return yk_mul_scalar(inputs[0], 1);
}

/* A backward that fails leaves everything usable: the same leaves can be walked from again. */
static void test_failure_recovers(void **state)
{
    (void)state;
    static const yk_custom_function broken = {.name = "broken", .forward = pass_forward, .backward = fail_backward};
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = leaf(2);
    yk_tensor *y = yk_mul(yk_custom_apply(&broken, &x, 1, NULL), x);
    assert_int_equal(yk_backward_with(y, YK_OPTIONS(yk_backward_options, .retain_graph = true)), YK_ERR_CALLBACK);
    expect_error(YK_ERR_CALLBACK, "on purpose");
    expect_ok(yk_set_grad(x, NULL));
    expect_ok(yk_backward(yk_mul(x, x)));
    expect_near(yk_item(yk_grad(x)), 4, 0, 0);
    yk_scope_end(scope);
}

/* Gradients of parameters have the parameters' memory order, whatever order the operation produced. */
static void test_gradient_order_follows_leaf(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_randn(YK_SHAPE(3, 4), f64_leaf);
    expect_ok(yk_backward(yk_sum(yk_mul(yk_transpose(x, 0, 1), yk_transpose(x, 0, 1)))));
    assert_int_equal(yk_stride(yk_grad(x), 0), 4);
    assert_int_equal(yk_stride(yk_grad(x), 1), 1);
    for (int64_t i = 0; i < 3; i++) {
        for (int64_t j = 0; j < 4; j++)
            expect_near(yk_get(yk_grad(x), (int64_t[]){i, j}), 2 * yk_get(x, (int64_t[]){i, j}), 1e-15, 0);
    }
    yk_scope_end(scope);
}

static yk_status expanding_backward(yk_custom *context, yk_tensor *grad, yk_tensor **grads, int n)
{
    (void)context, (void)n;
    grads[0] = yk_expand(yk_mul_scalar(yk_select(grad, 0, 0), 1), YK_SHAPE(3)); /* one number, seen three times */
    return YK_OK;
}

/* A gradient whose elements share memory must not be added to in place, nor become a leaf's gradient as it is. */
static void test_expanded_gradient(void **state)
{
    (void)state;
    static const yk_custom_function expanding = {
        .name = "expanding", .forward = pass_forward, .backward = expanding_backward};
    yk_scope scope = yk_scope_begin();
    for (int order = 0; order < 2; order++) {
        yk_tensor *x = yk_ones(YK_SHAPE(3), f64_leaf),
                  *w = yk_arange(0, 3, 1, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
        yk_tensor *middle = yk_mul_scalar(x, 1), *first = order ? yk_mul(middle, w) : NULL;
        yk_tensor *custom = yk_custom_apply(&expanding, &middle, 1, NULL);
        yk_tensor *second = first ? first : yk_mul(middle, w);
        expect_ok(yk_backward(yk_sum(yk_add(custom, second))));
        for (int64_t i = 0; i < 3; i++)
            expect_near(yk_get(yk_grad(x), &i), 1 + (double)i, 0, 0);
        yk_tensor *z = yk_ones(YK_SHAPE(3), f64_leaf);
        expect_ok(yk_backward(yk_sum(yk_custom_apply(&expanding, &z, 1, NULL))));
        assert_int_equal(yk_stride(yk_grad(z), 0), 1);
        expect_ok(yk_backward(yk_sum(yk_mul(z, w))));
        for (int64_t i = 0; i < 3; i++)
            expect_near(yk_get(yk_grad(z), &i), 1 + (double)i, 0, 0);
    }
    yk_scope_end(scope);
}

/* ---- hooks that change the hooks while they are walked ---- */

typedef struct hook_board {
    yk_tensor *x;
    uint64_t ids[5];
    int calls[5];
} hook_board;

static hook_board board;

/* The second removes itself; the third removes the fourth, which has not been called; the fifth adds itself again. */
static void note_hook(int which)
{
    board.calls[which]++;
    if (which == 1)
        expect_ok(yk_hook_remove(board.x, board.ids[1]));
    if (which == 2 && board.calls[3] == 0 && board.calls[2] == 1)
        expect_ok(yk_hook_remove(board.x, board.ids[3]));
}

static yk_tensor *gradient_hook(yk_tensor *grad, void *user)
{
    (void)grad;
    int which = (int)(intptr_t)user;
    note_hook(which);
    if (which == 4 && board.calls[4] < 50)
        yk_register_hook(board.x, gradient_hook, user);
    return NULL;
}

static yk_status leaf_hook(yk_tensor *leaf, void *user)
{
    int which = (int)(intptr_t)user;
    note_hook(which);
    if (which == 4 && board.calls[4] < 50)
        yk_register_post_accumulate_hook(leaf, leaf_hook, user);
    return YK_OK;
}

static void test_hooks_that_remove_hooks(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    for (int leafs = 0; leafs < 2; leafs++) {
        board = (hook_board){.x = yk_full(1, (int64_t[]){2}, 3, YK_OPTIONS(yk_tensor_options, .requires_grad = true))};
        for (int i = 0; i < 5; i++)
            board.ids[i] = leafs ? yk_register_post_accumulate_hook(board.x, leaf_hook, (void *)(intptr_t)i)
                                 : yk_register_hook(board.x, gradient_hook, (void *)(intptr_t)i);
        static const int first[5] = {1, 1, 1, 0, 1}, second[5] = {2, 1, 2, 0, 3};
        expect_ok(yk_backward(yk_sum(board.x)));
        assert_memory_equal(board.calls, first, sizeof(first));
        expect_ok(yk_backward(yk_sum(board.x)));
        assert_memory_equal(board.calls, second, sizeof(second));
    }
    yk_scope_end(scope);
}

/* ---- gradients added where they are computed --------------------------------------------------------------------- */

static yk_tensor *random_leaf(int ndim, const int64_t *shape)
{
    yk_tensor *x = yk_randn(ndim, shape, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    expect_ok(yk_set_requires_grad(x, true));
    return x;
}

static void expect_close(yk_tensor *a, yk_tensor *b)
{
    assert_non_null(a);
    assert_non_null(b);
    expect_near(yk_item(yk_max(yk_abs(yk_sub(a, b)))), 0, 1e-12, 0);
}

static yk_tensor *shown;

static yk_tensor *keep_shown(yk_tensor *grad, void *user)
{
    (void)user;
    yk_tensor_release(shown);
    shown = yk_tensor_retain(grad);
    return NULL;
}

static yk_tensor *apply_to(yk_tensor *weight, yk_tensor *x)
{
    return yk_ndim(weight) == 4 ? yk_conv2d(x, weight, NULL, NULL) : yk_linear(x, weight, NULL);
}

/* The weights of a convolution that adds in place, of one that does not, and of a linear layer. */
static void test_weights_accumulate(void **state)
{
    (void)state;
    static const struct {
        int ndim;
        int64_t weight[4], x[4];
    } cases[] = {{4, {16, 16, 3, 3}, {5, 16, 4, 4}}, {4, {4, 2, 3, 3}, {3, 2, 6, 6}}, {2, {7, 12}, {5, 12}}};
    for (int c = 0; c < 3; c++) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *w = random_leaf(cases[c].ndim, cases[c].weight), *x[4], *each[4];
        for (int i = 0; i < 4; i++) {
            x[i] = random_leaf(cases[c].ndim, cases[c].x);
            expect_ok(yk_backward(yk_sum(apply_to(w, x[i]))));
            each[i] = yk_clone(yk_grad(w));
            expect_ok(yk_set_grad(w, NULL));
        }
        expect_ok(yk_backward(yk_sum(apply_to(w, x[0]))));
        yk_tensor *grad = yk_tensor_retain(yk_grad(w));
        expect_ok(yk_backward(yk_sum(apply_to(w, x[1]))));
        assert_ptr_equal(yk_grad(w), grad); /* whoever holds it sees it grow */
        expect_close(grad, yk_add(each[0], each[1]));
        yk_tensor_release(grad);
        /* Two uses in one graph, and a hook, which is shown what is new. */
        expect_ok(yk_backward(yk_add(yk_sum(apply_to(w, x[0])), yk_sum(apply_to(w, x[1])))));
        expect_close(yk_grad(w), yk_mul_scalar(yk_add(each[0], each[1]), 2));
        uint64_t hook = yk_register_hook(w, keep_shown, NULL);
        expect_ok(yk_backward(yk_sum(apply_to(w, x[2]))));
        expect_close(shown, each[2]);
        yk_tensor_release(shown);
        shown = NULL;
        expect_ok(yk_hook_remove(w, hook));
        /* A gradient in another memory order than the weight. */
        yk_tensor *other = yk_transpose(yk_contiguous(yk_transpose(yk_grad(w), 0, 1)), 0, 1);
        expect_ok(yk_set_grad(w, other));
        yk_tensor *before = yk_clone(other);
        expect_ok(yk_backward(yk_sum(apply_to(w, x[3]))));
        expect_close(yk_grad(w), yk_add(before, each[3]));
        /* A graph that was recorded with the gradient notices that the gradient was written. */
        yk_tensor *late = yk_sum(yk_mul(yk_grad(w), w));
        expect_ok(yk_backward(yk_sum(apply_to(w, x[0]))));
        assert_int_equal(yk_backward(late), YK_ERR_STATE);
        expect_error(YK_ERR_STATE, "mul: a tensor that its gradient needs has been modified by an inplace operation");
        yk_scope_end(scope);
    }
}

/* The gradient that backward begins with is the one that it would add to. */
static void test_gradient_that_is_the_root(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *w = random_leaf(2, (int64_t[]){4, 4}),
              *x = yk_randn(2, (int64_t[]){4, 4}, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    expect_ok(yk_backward(yk_sum(yk_linear(x, w, NULL))));
    yk_tensor *before = yk_clone(yk_grad(w));
    expect_ok(yk_backward_with(yk_linear(x, w, NULL), YK_OPTIONS(yk_backward_options, .gradient = yk_grad(w))));
    expect_close(yk_grad(w), yk_add(before, yk_matmul(yk_transpose(before, 0, 1), x)));
    yk_scope_end(scope);
}

/* The second backward needs no memory for another gradient of the weight; on a GPU a convolution's is made beside. */
static void test_memory_of_accumulation(void **state)
{
    (void)state;
    for (int convolution = 0; convolution < (test_device_type == YK_CPU ? 2 : 1); convolution++) {
        yk_scope scope = yk_scope_begin();
        int64_t shape[4] = {256, 256, 3, 3}, bytes = 256 * 256 * (convolution ? 9 : 1) * 4;
        yk_tensor *w = yk_randn(convolution ? 4 : 2, shape, YK_OPTIONS(yk_tensor_options, .requires_grad = true));
        yk_tensor *x = yk_randn(convolution ? 4 : 2, (int64_t[]){2, 256, 3, 3}, NULL);
        for (int i = 0; i < 3; i++) {
            yk_memory_info before, after;
            yk_device_reset_peak_memory(test_device(0));
            expect_ok(yk_device_memory(test_device(0), &before));
            yk_scope step = yk_scope_begin();
            expect_ok(yk_backward(yk_sum(apply_to(w, x))));
            yk_scope_end(step);
            expect_ok(yk_device_memory(test_device(0), &after));
            int64_t more = (int64_t)(after.peak_allocated - before.allocated);
            if (i == 0)
                assert_true(more >= bytes);
            else if (more > bytes / 2)
                fail_msg("backward %d needed %lld bytes, the gradient has %lld", i, (long long)more, (long long)bytes);
        }
        yk_scope_end(scope);
    }
}

int main(void)
{
    use_devices(2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain_and_accumulation),
        cmocka_unit_test(test_diamond),
        cmocka_unit_test(test_retain_graph),
        cmocka_unit_test(test_roots_that_cannot_be),
        cmocka_unit_test(test_no_grad_and_detach),
        cmocka_unit_test(test_item_keeps_no_graph),
        cmocka_unit_test(test_long_chain),
        cmocka_unit_test(test_two_devices),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_failure_recovers),
        cmocka_unit_test(test_gradient_order_follows_leaf),
        cmocka_unit_test(test_expanded_gradient),
        cmocka_unit_test(test_hooks_that_remove_hooks),
        cmocka_unit_test(test_weights_accumulate),
        cmocka_unit_test(test_gradient_that_is_the_root),
        cmocka_unit_test(test_memory_of_accumulation),
    };
    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
