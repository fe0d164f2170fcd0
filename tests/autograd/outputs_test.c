/*
 * outputs_test.c - nodes with several outputs: the gradients that come, sums, hooks, retained gradients, and custom
 * functions of several inputs and outputs.
 */
#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include <yoke/ops.h>

#include "base/core.h"

static const yk_tensor_options *const f64 = YK_OPTIONS(yk_tensor_options, .dtype = YK_F64);
static const yk_tensor_options *const f64_leaf = YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true);

/* ---- f(a, b) = (a b, a + b, which of a and b is larger) ---- */

typedef struct calls {
    int backward, released;
    bool got[3]; /* gradients that came in the last backward */
    bool fail_forward, leave_null, input_back;
} calls;

static yk_status pair_forward(yk_custom *context, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs,
                              int n_outputs)
{
    calls *c = yk_custom_user(context);
    assert_int_equal(n_inputs, 2);
    assert_int_equal(n_outputs, 3);
    assert_false(yk_grad_enabled());
    for (int i = 0; i < 2; i++)
        if (yk_custom_save(context, inputs[i]))
            return YK_ERR_MEMORY;
    if (c->fail_forward)
        return YK_ERR_CALLBACK;
    outputs[0] = yk_mul(inputs[0], inputs[1]);
    outputs[1] = c->leave_null ? NULL : c->input_back ? inputs[0] : yk_add(inputs[0], inputs[1]);
    outputs[2] = yk_gt(inputs[0], inputs[1]);
    return yk_custom_save(context, outputs[0]);
}

static yk_status pair_backward(yk_custom *context, yk_tensor *const *gouts, int n_outputs, yk_tensor **grads,
                               int n_inputs)
{
    calls *c = yk_custom_user(context);
    assert_int_equal(n_outputs, 3);
    assert_int_equal(n_inputs, 2);
    c->backward++;
    for (int i = 0; i < 3; i++)
        c->got[i] = gouts[i] != NULL;
    yk_tensor *a = yk_custom_saved(context, 0), *b = yk_custom_saved(context, 1);
    if (!yk_custom_saved(context, 2))
        return YK_ERR_CALLBACK;
    for (int i = 0; i < 2; i++) {
        yk_tensor *product = gouts[0] ? yk_mul(gouts[0], i ? a : b) : NULL;
        grads[i] = product && gouts[1] ? yk_add(product, gouts[1]) : product ? product : gouts[1];
    }
    return YK_OK;
}

static void pair_release(void *user)
{
    ((calls *)user)->released++;
}

static const yk_custom_function pair = {
    .name = "pair", .forward_list = pair_forward, .backward_list = pair_backward, .release = pair_release};

static yk_tensor *call_pair(yk_tensor *const *inputs, int n, void *user)
{
    yk_tensor *out[3];
    return yk_custom_apply_list(&pair, inputs, n, out, 3, user) ? NULL : yk_add_scaled(out[0], out[1], 0.25);
}

static yk_status list_pair(yk_tensor *const *inputs, int n, yk_tensor **outputs, int n_outputs, void *user)
{
    return yk_custom_apply_list(&pair, inputs, n, outputs, n_outputs, user);
}

/* The first gradient is right, that of the second output is twice what it should be. */
static yk_status wrong_backward(yk_custom *context, yk_tensor *const *gouts, int n_outputs, yk_tensor **grads,
                                int n_inputs)
{
    yk_tensor *doubled[3] = {gouts[0], gouts[1] ? yk_mul_scalar(gouts[1], 2) : NULL, gouts[2]};
    return pair_backward(context, doubled, n_outputs, grads, n_inputs);
}

static yk_status list_wrong(yk_tensor *const *inputs, int n, yk_tensor **outputs, int n_outputs, void *user)
{
    static const yk_custom_function wrong = {
        .name = "wrong", .forward_list = pair_forward, .backward_list = wrong_backward, .release = pair_release};
    return yk_custom_apply_list(&wrong, inputs, n, outputs, n_outputs, user);
}

static yk_status list_null(yk_tensor *const *inputs, int n, yk_tensor **outputs, int n_outputs, void *user)
{
    (void)n, (void)n_outputs, (void)user;
    outputs[0] = yk_neg(inputs[0]);
    return YK_OK;
}

/* The gradient checker on functions of several outputs, of which one is no floating tensor. */
static void test_gradcheck_of_lists(void **state)
{
    (void)state;
    calls c = {0};
    yk_scope scope = yk_scope_begin();
    yk_tensor *in[2] = {yk_randn(YK_SHAPE(3, 2), f64_leaf), yk_randn(YK_SHAPE(3, 2), f64_leaf)};
    expect_ok(yk_gradcheck_list(list_pair, in, 2, 3, &c, NULL));
    assert_int_equal(yk_gradcheck_list(list_wrong, in, 2, 3, &c, NULL), YK_ERR_NUMERIC);
    expect_error(YK_ERR_NUMERIC, "gradcheck: input 0, element 0");
    assert_int_equal(yk_gradcheck_list(list_null, in, 2, 2, NULL, NULL), YK_ERR_CALLBACK);
    expect_error(YK_ERR_CALLBACK, "left output 1 of 2 NULL");
    assert_int_equal(yk_gradcheck_list(list_null, in, 2, 0, NULL, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "0 outputs");
    yk_scope_end(scope);
}

static void test_custom_list(void **state)
{
    (void)state;
    calls c = {0};
    yk_scope scope = yk_scope_begin();
    yk_tensor *in[2] = {yk_randn(YK_SHAPE(3, 2), f64_leaf), yk_randn(YK_SHAPE(3, 2), f64_leaf)};
    expect_ok(yk_gradcheck(call_pair, in, 2, &c, NULL));
    assert_int_equal(c.backward, 1);

    yk_tensor *out[3];
    expect_ok(yk_custom_apply_list(&pair, in, 2, out, 3, &c));
    assert_string_equal(yk_grad_fn_name(out[0]), "pair");
    assert_string_equal(yk_grad_fn_name(out[1]), "pair");
    assert_null(yk_grad_fn_name(out[2])); /* bool */
    assert_false(yk_requires_grad(out[2]));
    yk_scope_end(scope);
    assert_true(c.released > 1);
}

/* A gradient that never came is NULL for backward, and where none came backward is not called. */
static void test_gradients_that_never_came(void **state)
{
    (void)state;
    calls c = {0};
    yk_scope scope = yk_scope_begin();
    yk_tensor *in[2] = {yk_full(YK_SHAPE(2), 3, f64_leaf), yk_full(YK_SHAPE(2), 5, f64_leaf)}, *out[3];
    for (int used = 0; used < 2; used++) {
        expect_ok(yk_set_grad(in[0], NULL));
        expect_ok(yk_custom_apply_list(&pair, in, 2, out, 3, &c));
        expect_ok(yk_backward(yk_sum(yk_mul_scalar(out[used], 2))));
        assert_int_equal(c.got[used], true);
        assert_int_equal(c.got[1 - used], false);
        assert_false(c.got[2]);
        expect_near(yk_get(yk_grad(in[0]), (int64_t[]){1}), used ? 2 : 10, 0, 0);
    }
    /* Both outputs, in one backward; and each in a backward of its own. */
    expect_ok(yk_set_grad(in[0], NULL));
    expect_ok(yk_custom_apply_list(&pair, in, 2, out, 3, &c));
    int before = c.backward;
    expect_ok(yk_backward_with(yk_sum(yk_add(out[0], out[1])), YK_OPTIONS(yk_backward_options, .retain_graph = true)));
    assert_int_equal(c.backward, before + 1);
    assert_true(c.got[0] && c.got[1]);
    expect_near(yk_get(yk_grad(in[0]), (int64_t[]){0}), 6, 0, 0);
    expect_ok(yk_backward_with(out[1], YK_OPTIONS(yk_backward_options, .gradient = yk_ones(YK_SHAPE(2), f64))));
    expect_near(yk_get(yk_grad(in[0]), (int64_t[]){0}), 7, 0, 0);
    assert_int_equal(yk_backward_with(out[0], YK_OPTIONS(yk_backward_options, .gradient = yk_ones(YK_SHAPE(2), f64))),
                     YK_ERR_STATE);
    expect_error(YK_ERR_STATE, "freed by an earlier backward");

    /* An output that is overwritten has a gradient of zero, as in PyTorch, and not none: it arrives. */
    expect_ok(yk_set_grad(in[0], NULL));
    expect_ok(yk_custom_apply_list(&pair, in, 2, out, 3, &c));
    before = c.backward;
    expect_ok(yk_backward(yk_sum(yk_fill_(yk_mul_scalar(out[0], 2), 1))));
    assert_int_equal(c.backward, before + 1);
    assert_true(c.got[0] && !c.got[1]);
    expect_near(yk_get(yk_grad(in[0]), (int64_t[]){0}), 0, 0, 0);
    yk_scope_end(scope);
}

/* The context is released once in every outcome. */
static void test_release(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *in[2] = {yk_full(YK_SHAPE(2), 3, f64_leaf), yk_full(YK_SHAPE(2), 5, f64)}, *out[3];
    calls kept = {0};
    yk_scope inner = yk_scope_begin();
    expect_ok(yk_custom_apply_list(&pair, in, 2, out, 3, &kept));
    yk_tensor *last = yk_tensor_retain(out[1]);
    yk_scope_end(inner);
    assert_int_equal(kept.released, 0);
    yk_tensor_release(last);
    assert_int_equal(kept.released, 1);

    calls walked = {0};
    expect_ok(yk_custom_apply_list(&pair, in, 2, out, 3, &walked));
    expect_ok(yk_backward(yk_sum(out[0])));
    assert_int_equal(walked.released, 1);

    calls unrecorded = {0};
    bool previous = yk_no_grad_begin();
    expect_ok(yk_custom_apply_list(&pair, in, 2, out, 3, &unrecorded));
    yk_no_grad_end(previous);
    assert_int_equal(unrecorded.released, 1);
    assert_null(yk_grad_fn_name(out[0]));

    calls failing = {.fail_forward = true};
    assert_int_equal(yk_custom_apply_list(&pair, in, 2, out, 3, &failing), YK_ERR_CALLBACK);
    expect_error(YK_ERR_CALLBACK, "pair: forward failed with status");
    assert_int_equal(failing.released, 1);
    assert_null(out[0]);
    calls partial = {.leave_null = true};
    assert_int_equal(yk_custom_apply_list(&pair, in, 2, out, 3, &partial), YK_ERR_CALLBACK);
    expect_error(YK_ERR_CALLBACK, "pair: forward left output 1 of 3 NULL");
    assert_int_equal(partial.released, 1);
    calls missing = {0};
    yk_tensor *without[2] = {in[0], NULL};
    assert_int_equal(yk_custom_apply_list(&pair, without, 2, out, 3, &missing), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "pair: argument 2 is NULL");
    assert_int_equal(missing.released, 1);
    static const yk_custom_function nameless = {.release = pair_release};
    assert_int_equal(yk_custom_apply_list(&nameless, in, 2, out, 3, &missing), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "needs a name");
    assert_int_equal(missing.released, 2);
    yk_scope_end(scope);
}

/* An input given back as it is becomes a tensor of its own, whose maker is the function. */
static void test_input_given_back(void **state)
{
    (void)state;
    calls c = {.input_back = true};
    yk_scope scope = yk_scope_begin();
    yk_tensor *in[2] = {yk_full(YK_SHAPE(2), 3, f64_leaf), yk_full(YK_SHAPE(2), 5, f64)}, *out[3];
    expect_ok(yk_custom_apply_list(&pair, in, 2, out, 3, &c));
    assert_true(out[1] != in[0]);
    assert_true(yk_is_leaf(in[0]));
    expect_ok(yk_backward(yk_sum(out[1])));
    expect_near(yk_get(yk_grad(in[0]), (int64_t[]){0}), 1, 0, 0);
    yk_scope_end(scope);
}

static yk_tensor *tripled(yk_tensor *grad, void *user)
{
    (*(int *)user)++;
    return yk_mul_scalar(grad, 3);
}

/* Hooks, kept gradients and sums belong to one output each. */
static void test_each_output_by_itself(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_arange(0, 6, 1, f64_leaf), *parts[3];
    int count = 0, calls_of_hook = 0;
    expect_ok(yk_chunk(yk_mul_scalar(x, 1), 3, 0, parts, 3, &count));
    assert_int_equal(count, 3);
    for (int i = 0; i < 3; i++)
        expect_ok(yk_retain_grad(parts[i]));
    uint64_t id = yk_register_hook(parts[1], tripled, &calls_of_hook);
    assert_int_not_equal(id, 0);
    assert_int_equal(yk_hook_remove(parts[0], id), YK_ERR_NOT_FOUND);
    expect_error(YK_ERR_NOT_FOUND, "no hook");
    /* parts[1] is used twice: 2 + 5, then tripled; parts[2] is not used. */
    yk_tensor *loss = yk_sum(yk_add(parts[0], yk_add(yk_mul_scalar(parts[1], 2), yk_mul_scalar(parts[1], 5))));
    expect_ok(yk_backward(loss));
    assert_int_equal(calls_of_hook, 1);
    expect_near(yk_get(yk_grad(parts[0]), (int64_t[]){0}), 1, 0, 0);
    expect_near(yk_get(yk_grad(parts[1]), (int64_t[]){0}), 21, 0, 0);
    assert_null(yk_grad(parts[2]));
    const double expected[6] = {1, 1, 21, 21, 0, 0};
    for (int64_t i = 0; i < 6; i++)
        expect_near(yk_get(yk_grad(x), &i), expected[i], 0, 0);
    yk_scope_end(scope);
}

/* Outputs whose gradients come from two devices' threads are added in the order of recording. */
static void test_two_devices(void **state)
{
    (void)state;
    const yk_device other = test_device(1);
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_randn(YK_SHAPE(64, 3), f64_leaf);
    double first[192], again[192];
    for (int round = 0; round < 20; round++) {
        yk_scope step = yk_scope_begin();
        expect_ok(yk_set_grad(x, NULL));
        yk_tensor *parts[3], *there[3];
        int count;
        expect_ok(yk_unbind(x, 1, parts, 3, &count));
        for (int i = 0; i < 3; i++)
            there[i] = yk_mul_scalar(yk_to(parts[i], other), 0.1 + i);
        yk_tensor *sum = yk_add(yk_to(yk_add(there[0], there[1]), test_device(0)), yk_mul(parts[0], parts[1]));
        expect_ok(yk_backward(yk_sum(sum)));
        expect_ok(yk_tensor_read(yk_grad(x), round ? again : first, sizeof(first)));
        if (round)
            assert_memory_equal(first, again, sizeof(first));
        yk_scope_end(step);
    }
    assert_true(first[2] == 0); /* the third column's gradient never came */
    yk_scope_end(scope);
}

int main(void)
{
    use_devices(2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradcheck_of_lists),
        cmocka_unit_test(test_custom_list),
        cmocka_unit_test(test_gradients_that_never_came),
        cmocka_unit_test(test_release),
        cmocka_unit_test(test_input_given_back),
        cmocka_unit_test(test_each_output_by_itself),
        cmocka_unit_test(test_two_devices),
    };
    return cmocka_run_group_tests_name("outputs", tests, NULL, NULL);
}
