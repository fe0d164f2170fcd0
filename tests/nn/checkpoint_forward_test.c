/* Gradient checkpointing: the bits of gradients, with dropout and under autocast; the peak of memory; hooks, parts that
 * are frozen, gradients of gradients. */
#include "tests/support/expect.h"

#include <yoke/nn.h>
#include <yoke/optim.h>

#include "tests/support/test_device.h"

enum { WIDTH = 24, LAYERS = 6 };

static yk_module *layer(double dropout)
{
    return yk_sequential(yk_linear_create(WIDTH, 4 * WIDTH, NULL), yk_gelu_create(), yk_dropout_create(dropout),
                         yk_linear_create(4 * WIDTH, WIDTH, NULL), yk_tanh_create());
}

static yk_module *chain(int layers, double dropout)
{
    yk_manual_seed(4);
    yk_module *all = yk_sequential_list(NULL, 0);
    for (int i = 0; i < layers; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%d", i);
        yk_module_add(all, name, layer(dropout));
    }
    return all;
}

static yk_tensor *run(yk_module *all, yk_tensor *x, bool checkpoint)
{
    for (int64_t i = 0; i < yk_module_child_count(all); i++) {
        yk_module *m = yk_module_child(all, i);
        x = checkpoint ? yk_checkpoint_forward(m, x) : yk_forward(m, x);
    }
    return x;
}

static bool same(yk_tensor *a, yk_tensor *b)
{
    size_t size = yk_dtype_size(yk_tensor_dtype(a)) * (size_t)yk_numel(a);
    return yk_numel(a) == yk_numel(b) && memcmp(host_data(a), host_data(b), size) == 0;
}

/* Output, gradients and what the generator gives afterwards, one way and the other. */
static void expect_same_bits(double dropout, bool autocast, bool input_wants)
{
    yk_scope scope = yk_scope_begin();
    yk_module *all[2] = {chain(LAYERS, dropout), chain(LAYERS, dropout)};
    yk_tensor *x[2], *y[2], *after[2];
    for (int k = 0; k < 2; k++) {
        yk_manual_seed(9);
        x[k] = yk_randn(YK_SHAPE(5, WIDTH), YK_OPTIONS(yk_tensor_options, .requires_grad = input_wants));
        yk_autocast before = yk_autocast_begin(YK_CPU, YK_BF16, YK_OPTIONS(yk_autocast_options, .enabled = autocast));
        y[k] = run(all[k], x[k], k == 1);
        yk_autocast_end(before);
        expect_ok(yk_backward(yk_sum(yk_square(yk_cast(y[k], YK_F32)))));
        after[k] = yk_rand(YK_SHAPE(3), NULL);
    }
    assert_true(same(y[0], y[1]));
    assert_true(same(after[0], after[1]));
    if (input_wants)
        assert_true(same(yk_grad(x[0]), yk_grad(x[1])));
    yk_parameters *p[2] = {yk_module_parameters(all[0]), yk_module_parameters(all[1])};
    for (int64_t i = 0; i < yk_parameters_count(p[0]); i++)
        assert_true(same(yk_grad(yk_parameters_at(p[0], i)), yk_grad(yk_parameters_at(p[1], i))));
    yk_scope_end(scope);
}

static void test_bits(void **state)
{
    (void)state;
    expect_same_bits(0, false, true);
    expect_same_bits(0.3, false, true);
    expect_same_bits(0.3, false, false);
    expect_same_bits(0.3, true, true);
}

/* The peak of memory over forward and backward, above what there was before. */
static size_t peak_of(bool checkpoint)
{
    enum { ROWS = 512 };
    yk_scope scope = yk_scope_begin();
    yk_module *all = chain(12, 0.1);
    yk_device device = test_device(0);
    yk_memory_info before, after;
    yk_tensor *x = yk_randn(YK_SHAPE(ROWS, WIDTH), NULL);
    expect_ok(yk_device_memory(device, &before));
    yk_device_reset_peak_memory(device);
    expect_ok(yk_backward(yk_sum(run(all, x, checkpoint))));
    expect_ok(yk_device_memory(device, &after));
    yk_scope_end(scope);
    return after.peak_allocated - before.allocated;
}

static void test_memory(void **state)
{
    (void)state;
    size_t usual = peak_of(false), less = peak_of(true);
    if (less > usual / 2)
        fail_msg("a peak of %zu bytes with checkpoints, %zu without", less, usual);
}

static yk_status count_once(yk_tensor *x, void *user)
{
    (void)x;
    ++*(int *)user;
    return YK_OK;
}

/* Frozen parameters get no gradient; each parameter's hook runs once; without recording it is yk_forward. */
static void test_parts(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *m = layer(0.2);
    int calls = 0;
    assert_true(yk_register_post_accumulate_hook(yk_module_get(m, "0.weight"), count_once, &calls) != 0);
    expect_ok(yk_set_requires_grad(yk_module_get(m, "3.weight"), false));
    yk_tensor *x = yk_randn(YK_SHAPE(2, WIDTH), NULL);
    expect_ok(yk_backward(yk_sum(yk_checkpoint_forward(m, x))));
    assert_int_equal(calls, 1);
    assert_non_null(yk_grad(yk_module_get(m, "0.weight")));
    assert_null(yk_grad(yk_module_get(m, "3.weight")));
    bool before = yk_no_grad_begin();
    assert_false(yk_requires_grad(yk_checkpoint_forward(m, x)));
    yk_no_grad_end(before);
    assert_null(yk_checkpoint_forward(NULL, x));
    expect_error(YK_ERR_ARGUMENT, "checkpoint_forward: module is NULL");
    assert_null(yk_checkpoint_forward(m, NULL));
    expect_error(YK_ERR_ARGUMENT, "checkpoint_forward: tensor is NULL");
    assert_null(yk_checkpoint_forward(m, yk_randn(YK_SHAPE(2, 3), NULL)));
    expect_error(YK_ERR_SHAPE, "linear");
    yk_scope_end(scope);
}

static yk_tensor *twice(yk_tensor *const *inputs, int n_inputs, void *user)
{
    (void)n_inputs;
    return yk_checkpoint_forward(user, yk_checkpoint_forward(user, inputs[0]));
}

static void test_second(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(2);
    yk_module *m = yk_module_to_dtype(
        yk_sequential(yk_linear_create(3, 4, NULL), yk_tanh_create(), yk_linear_create(4, 3, NULL)), YK_F64);
    yk_tensor *x = yk_randn(YK_SHAPE(2, 3), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true));
    yk_tensor *inputs[] = {x, yk_module_get(m, "0.weight"), yk_module_get(m, "2.bias")};
    expect_ok(yk_gradcheck(twice, inputs, 3, m, NULL));
    expect_ok(yk_gradgradcheck(twice, inputs, 3, m, NULL));
    yk_scope_end(scope);
}

/* A GPT-2 with the option has the gradients of one without. */
static void test_gpt2(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *ids =
        yk_from_data((int64_t[]){1, 4, 2, 0, 3, 3}, YK_SHAPE(2, 3), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    yk_tensor *grads[2];
    for (int k = 0; k < 2; k++) {
        yk_manual_seed(5);
        yk_module *m = yk_gpt2(YK_OPTIONS(yk_gpt2_options, .vocab_size = 5, .n_positions = 4, .n_embd = 8, .n_layer = 3,
                                          .n_head = 2, .gradient_checkpointing = k == 1));
        expect_ok(yk_backward(yk_sum(yk_square(yk_forward(m, ids)))));
        grads[k] = yk_grad(yk_module_get(m, "transformer.h.1.attn.c_attn.weight"));
    }
    assert_true(same(grads[0], grads[1]));
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),   cmocka_unit_test(test_memory), cmocka_unit_test(test_parts),
        cmocka_unit_test(test_second), cmocka_unit_test(test_gpt2),
    };
    return cmocka_run_group_tests_name("checkpoint_forward", tests, NULL, NULL);
}
