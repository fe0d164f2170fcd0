/*
 * lists_test.c - modules of several inputs and outputs: an LSTM cell and an attention with a mask against PyTorch and
 * by finite differences; hooks around a forward.
 */
#include "tests/nn/attention.h"
#include "tests/support/expect.h"

#include "tests/golden/lists_golden.h"

static const yk_tensor_options *const f64 = YK_OPTIONS(yk_tensor_options, .dtype = YK_F64);
static const yk_tensor_options *const f64_leaf = YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true);
enum { STEPS = 3, N = 2, IN = 3, HIDDEN = 2, T = 4, D = 3 };

static void expect_numbers(const char *name, yk_tensor *x, const double *expected, size_t count)
{
    double values[64];
    assert_true(count <= 64);
    if (!x)
        fail_msg("%s is missing: %s", name, yk_last_error() ? yk_last_error()->message : "no record");
    expect_ok(yk_tensor_read(x, values, sizeof(double) * count));
    for (size_t i = 0; i < count; i++)
        if (!(fabs(values[i] - expected[i]) <= 1e-13 + 1e-12 * fabs(expected[i])))
            fail_msg("%s[%zu] is %.17g, expected %.17g", name, i, values[i], expected[i]);
}
#define EXPECT(x, golden) expect_numbers(#golden, x, golden, sizeof(golden) / sizeof(double))

static yk_tensor *of(const double *values, int ndim, const int64_t *shape, bool leaf)
{
    return yk_from_data(values, ndim, shape, leaf ? f64_leaf : f64);
}

static yk_module *golden_cell(void)
{
    static const struct {
        const char *name;
        const double *values;
    } parameters[] = {{"weight_ih", lstm_weight_ih},
                      {"weight_hh", lstm_weight_hh},
                      {"bias_ih", lstm_bias_ih},
                      {"bias_hh", lstm_bias_hh}};
    yk_module *cell = yk_module_to_dtype(yk_lstm_cell_create(IN, HIDDEN, NULL), YK_F64);
    for (int i = 0; i < 4; i++) {
        yk_tensor *p = yk_module_get(cell, parameters[i].name);
        assert_non_null(p);
        bool previous = yk_no_grad_begin();
        expect_ok(yk_tensor_write(p, parameters[i].values, sizeof(double) * (size_t)yk_numel(p)));
        yk_no_grad_end(previous);
    }
    return cell;
}

static yk_tensor *dot(yk_tensor *x, yk_tensor *pull)
{
    return yk_sum(yk_mul(x, pull));
}

static void test_lstm_cell(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *cell = golden_cell();
    yk_tensor *x = of(lstm_x, YK_SHAPE(STEPS, N, IN), true), *steps[STEPS];
    yk_tensor *h0 = of(lstm_h0, YK_SHAPE(N, HIDDEN), true), *c0 = of(lstm_c0, YK_SHAPE(N, HIDDEN), true);
    yk_tensor *state_of[2] = {h0, c0};
    int count;
    expect_ok(yk_unbind(x, 0, steps, STEPS, &count));
    for (int t = 0; t < STEPS; t++)
        expect_ok(yk_forward_list(cell, (yk_tensor *[]){steps[t], state_of[0], state_of[1]}, 3, state_of, 2));
    EXPECT(state_of[0], lstm_h);
    EXPECT(state_of[1], lstm_c);
    expect_ok(yk_backward(yk_add(dot(state_of[0], of(lstm_pull_h, YK_SHAPE(N, HIDDEN), false)),
                                 dot(state_of[1], of(lstm_pull_c, YK_SHAPE(N, HIDDEN), false)))));
    EXPECT(yk_grad(x), lstm_gx);
    EXPECT(yk_grad(h0), lstm_gh0);
    EXPECT(yk_grad(c0), lstm_gc0);
    EXPECT(yk_grad(yk_module_get(cell, "weight_ih")), lstm_gweight_ih);
    EXPECT(yk_grad(yk_module_get(cell, "weight_hh")), lstm_gweight_hh);
    EXPECT(yk_grad(yk_module_get(cell, "bias_ih")), lstm_gbias_ih);
    EXPECT(yk_grad(yk_module_get(cell, "bias_hh")), lstm_gbias_hh);

    /* A state that is not given is zeros, and one output is enough: the easy form. */
    yk_tensor *zeros[2] = {yk_zeros(YK_SHAPE(N, HIDDEN), f64), yk_zeros(YK_SHAPE(N, HIDDEN), f64)}, *out[2];
    expect_ok(yk_forward_list(cell, (yk_tensor *[]){steps[0], zeros[0], zeros[1]}, 3, out, 2));
    yk_tensor *easy = yk_forward(cell, steps[0]);
    for (int64_t i = 0; i < N * HIDDEN; i++)
        expect_near(yk_get(easy, (int64_t[]){i / HIDDEN, i % HIDDEN}),
                    yk_get(out[0], (int64_t[]){i / HIDDEN, i % HIDDEN}), 0, 0);
    yk_scope_end(scope);
}

static yk_tensor *call_cell(yk_tensor *const *inputs, int n, void *user)
{
    yk_tensor *out[2];
    return yk_forward_list(user, inputs, n, out, 2) ? NULL : yk_add_scaled(out[0], out[1], 0.5);
}

static yk_tensor *call_attention(yk_tensor *const *inputs, int n, void *user)
{
    yk_tensor *out[2], *all[4] = {inputs[0], inputs[1], inputs[2], attention_mask(2, 4)};
    assert_int_equal(n, 3);
    if (yk_forward_list(user, all, 4, out, 2))
        return NULL;
    return yk_cat((yk_tensor *[]){out[0], out[1]}, 2, 2);
}

static void test_gradients(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *in[3] = {yk_randn(YK_SHAPE(N, IN), f64_leaf), yk_randn(YK_SHAPE(N, HIDDEN), f64_leaf),
                        yk_randn(YK_SHAPE(N, HIDDEN), f64_leaf)};
    expect_ok(yk_gradcheck(call_cell, in, 3, golden_cell(), NULL));
    yk_tensor *qkv[3];
    for (int i = 0; i < 3; i++)
        qkv[i] = yk_randn(YK_SHAPE(2, 4, 3), f64_leaf);
    expect_ok(yk_gradcheck(call_attention, qkv, 3, attention_create(), NULL));
    yk_scope_end(scope);
}

static void test_attention(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *m = attention_create();
    yk_tensor *in[4] = {of(attention_q, YK_SHAPE(N, T, D), true), of(attention_k, YK_SHAPE(N, T, D), true),
                        of(attention_v, YK_SHAPE(N, T, D), true), attention_mask(N, T)},
              *out[2];
    expect_ok(yk_forward_list(m, in, 4, out, 2));
    EXPECT(out[0], attention_out);
    EXPECT(out[1], attention_weights);
    expect_ok(yk_backward(yk_add(dot(out[0], of(attention_pull_out, YK_SHAPE(N, T, D), false)),
                                 dot(out[1], of(attention_pull_weights, YK_SHAPE(N, T, T), false)))));
    EXPECT(yk_grad(in[0]), attention_gq);
    EXPECT(yk_grad(in[1]), attention_gk);
    EXPECT(yk_grad(in[2]), attention_gv);
    /* Without a mask, and without the weights. */
    in[3] = NULL;
    expect_ok(yk_forward_list(m, in, 4, out, 1));
    expect_ok(yk_forward_list(m, in, 3, &out[1], 1));
    expect_near(yk_get(out[0], (int64_t[]){1, 2, 0}), yk_get(out[1], (int64_t[]){1, 2, 0}), 0, 0);
    yk_scope_end(scope);
}

static void test_refusals(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *cell = golden_cell(), *fc = yk_module_to_dtype(yk_linear_create(3, 2, NULL), YK_F64);
    yk_module *both = yk_sequential(fc, yk_linear_create(2, 2, NULL));
    yk_tensor *x = yk_zeros(YK_SHAPE(2, 3), f64), *out[3] = {x, x, x};
    assert_int_equal(yk_forward_list(fc, (yk_tensor *[]){x, x}, 2, out, 1), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "forward of Linear: it takes one tensor and gives one, not 2 for 1");
    assert_null(out[0]);
    assert_int_equal(yk_forward_list(cell, &x, 1, out, 3), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "lstm_cell: 1 inputs for 3 outputs");
    assert_null(out[2]);
    assert_int_equal(yk_forward_list(cell, (yk_tensor *[]){x, x}, 2, out, 1), YK_ERR_SHAPE);
    expect_error(YK_ERR_SHAPE, "lstm_cell: h has shape (2, 3), expected (2, 2)");
    assert_int_equal(yk_forward_list(cell, &x, 1, out, 0), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "LSTMCell: 1 inputs, 0 outputs");
    assert_null(yk_forward(both, yk_zeros(YK_SHAPE(2, 5), f64)));
    expect_error(YK_ERR_SHAPE, "0: linear");
    /* A NULL that an earlier error left is that error, not an optional input. */
    yk_tensor *wrong = yk_add(x, yk_zeros(YK_SHAPE(7), f64));
    assert_null(wrong);
    assert_int_equal(yk_forward_list(cell, (yk_tensor *[]){x, wrong}, 2, out, 1), YK_ERR_SHAPE);
    expect_error(YK_ERR_SHAPE, "add: shapes");
    assert_null(yk_lstm_cell_create(0, 2, NULL));
    expect_error(YK_ERR_ARGUMENT, "lstm_cell_create: input_size 0");
    yk_scope_end(scope);
}

/* ---- hooks ------------------------------------------------------------------------------------------------------- */

typedef struct seen {
    int before, after;
    double in, out;
    uint64_t remove; /* in the walk */
    bool fail, replace;
} seen;

static yk_status before(yk_module *m, yk_tensor **inputs, int n_inputs, void *user)
{
    seen *s = user;
    s->before++;
    assert_true(n_inputs >= 1);
    s->in = yk_item(yk_sum(inputs[0]));
    if (s->replace)
        inputs[0] = yk_mul_scalar(inputs[0], 2);
    if (s->remove)
        expect_ok(yk_module_hook_remove(m, s->remove));
    s->remove = 0;
    return s->fail ? YK_ERR_CALLBACK : YK_OK;
}

static yk_status after(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs, int n_outputs,
                       void *user)
{
    seen *s = user;
    s->after++;
    assert_true(n_inputs >= 1 && n_outputs >= 1 && inputs[0]);
    s->in = yk_item(yk_sum(inputs[0]));
    s->out = yk_item(yk_sum(outputs[n_outputs - 1]));
    if (s->replace)
        outputs[n_outputs - 1] = yk_mul_scalar(outputs[n_outputs - 1], 3);
    if (s->remove)
        expect_ok(yk_module_hook_remove(m, s->remove));
    s->remove = 0;
    return s->fail ? yk_set_error(YK_ERR_CALLBACK, "seen enough") : YK_OK;
}

static void test_hooks(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *m = yk_identity_create();
    yk_tensor *x = yk_full(YK_SHAPE(2), 3, f64_leaf);
    seen first = {.replace = true}, last = {.replace = true}, third = {0};
    uint64_t id = yk_module_register_forward_pre_hook(m, before, &first);
    uint64_t id_after = yk_module_register_forward_hook(m, after, &last);
    assert_true(id && id_after && id != id_after);
    expect_ok(yk_backward(yk_sum(yk_forward(m, x))));
    expect_near(first.in, 6, 0, 0);
    expect_near(last.in, 12, 0, 0);
    expect_near(last.out, 12, 0, 0);
    expect_near(yk_get(yk_grad(x), (int64_t[]){0}), 6, 0, 0); /* 2 by one, 3 by the other */

    /* One that removes itself while the hooks are walked: the one after it is called all the same. */
    assert_true(yk_module_register_forward_hook(m, after, &third));
    last.remove = id_after;
    assert_non_null(yk_forward(m, x));
    assert_int_equal(last.after, 2);
    assert_int_equal(third.after, 1);
    /* One that removes another that has not been called yet. */
    uint64_t fourth = yk_module_register_forward_hook(m, after, &last);
    third.remove = fourth;
    assert_non_null(yk_forward(m, x));
    assert_int_equal(third.after, 2);
    assert_int_equal(last.after, 2);
    assert_int_equal(yk_module_hook_remove(m, fourth), YK_ERR_NOT_FOUND);
    expect_error(YK_ERR_NOT_FOUND, "Identity has no hook");

    first.fail = true;
    assert_null(yk_forward(m, x));
    expect_error(YK_ERR_CALLBACK, "a forward hook of Identity failed");
    assert_int_equal(third.after, 2);
    first.fail = false;
    third.fail = true;
    assert_null(yk_forward(m, x));
    expect_error(YK_ERR_CALLBACK, "seen enough");
    assert_int_equal(yk_module_register_forward_hook(NULL, after, &third), 0);
    yk_clear_error();
    yk_scope_end(scope);
}

/* Hooks see all tensors of a list, and a batch norm's own result where it would be joined with what follows. */
static void test_hooks_of_lists_and_pairs(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *cell = golden_cell();
    seen s = {.replace = true};
    assert_true(yk_module_register_forward_hook(cell, after, &s));
    yk_tensor *in[3] = {of(lstm_x, YK_SHAPE(N, IN), false), of(lstm_h0, YK_SHAPE(N, HIDDEN), false), NULL}, *out[2],
              *one[1];
    expect_ok(yk_forward_list(cell, in, 3, out, 2));
    expect_near(yk_item(yk_sum(out[1])), 3 * s.out, 1e-12, 0); /* two sums, rounded differently */
    expect_ok(yk_forward_list(cell, in, 3, one, 1));
    assert_int_equal(s.after, 2);

    yk_tensor *x = yk_randn(YK_SHAPE(4, 3, 5, 5), NULL);
    for (int which = 0; which < 2; which++) {
        yk_module *bn = yk_batch_norm2d_create(3, NULL), *relu = yk_relu_create();
        yk_module *pair = yk_sequential(bn, relu);
        yk_tensor *joined = yk_forward(pair, x);
        seen own = {0};
        assert_true(yk_module_register_forward_hook(which ? relu : bn, after, &own));
        yk_tensor *apart = yk_forward(pair, x);
        assert_int_equal(own.after, 1);
        if (which)
            expect_near(own.out, yk_item(yk_sum(apart)), 1e-6, 0);
        else
            expect_near(own.out, 0, 0, 1e-4); /* normalised, not yet cut off */
        expect_near(yk_item(yk_max(yk_abs(yk_sub(joined, apart)))), 0, 0, 1e-6);
        yk_module_eval(bn);
        yk_tensor *tail = yk_batch_norm2d_forward(bn, x, x, true);
        expect_near(yk_item(yk_min(tail)), 0, 0, 0);
    }
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lstm_cell), cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_attention), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_hooks),     cmocka_unit_test(test_hooks_of_lists_and_pairs),
    };
    return cmocka_run_group_tests_name("lists", tests, NULL, NULL);
}
