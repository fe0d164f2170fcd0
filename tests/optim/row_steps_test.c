/*
 * row_steps_test.c - gradients by rows against PyTorch: what backward gives, how they add up, what SGD, Adagrad
 * and SparseAdam do with them; clipping, the gradient scaler, other uses of the weight; refusals.
 */
#include "tests/support/expect.h"
#include "tests/support/golden.h"
#include "tests/support/test_device.h"

#include <string.h>

#include <yoke/yoke.h>

#include "tensor/tensor.h"

enum { V = 7, D = 3, LOOKED_UP = 6 };

static yk_module *table_with(bool sparse, int64_t padding)
{
    yk_module *m = yk_module_to_dtype(
        yk_embedding_create(V, D, YK_OPTIONS(yk_embedding_options, .padding_idx = padding, .sparse = sparse)), YK_F64);
    double start[V * D];
    for (int i = 0; i < V * D; i++)
        start[i] = (5 * i % 11 - 4) / 8.0;
    bool recording = yk_no_grad_begin();
    expect_ok(yk_tensor_write(yk_module_get(m, "weight"), start, sizeof(start)));
    yk_no_grad_end(recording);
    return m;
}

static yk_module *table(bool sparse)
{
    return table_with(sparse, 2);
}

static yk_tensor *weight_of(yk_module *m)
{
    return yk_module_get(m, "weight");
}

static yk_tensor *index_of(int step)
{
    size_t count;
    const double *all = golden_numbers("sparse", "indices", &count);
    int64_t index[LOOKED_UP];
    for (int i = 0; i < LOOKED_UP; i++)
        index[i] = (int64_t)all[step * LOOKED_UP + i];
    return yk_from_data(index, YK_SHAPE(2, 3), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
}

static yk_tensor *loss_of(yk_module *m, int step)
{
    double pull[LOOKED_UP * D];
    for (int k = 0; k < LOOKED_UP * D; k++)
        pull[k] = (k % 5 - 1) / 4.0;
    yk_tensor *out = yk_forward(m, index_of(step));
    yk_tensor *p = yk_from_data(pull, YK_SHAPE(2, 3, D), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    return yk_sum(yk_mul(yk_square(out), p));
}

static void expect_values(yk_tensor *x, const char *section, double tolerance)
{
    size_t count;
    const double *expected = golden_numbers("sparse", section, &count);
    assert_non_null(x);
    assert_int_equal(yk_numel(x), count);
    double *read = malloc(count * sizeof(*read));
    expect_ok(yk_tensor_read(yk_cast(x, YK_F64), read, count * sizeof(*read)));
    for (size_t i = 0; i < count; i++)
        if (!(fabs(read[i] - expected[i]) <= tolerance))
            fail_msg("%s[%zu] is %.17g, expected %.17g", section, i, read[i], expected[i]);
    free(read);
}

static double distance(yk_tensor *a, yk_tensor *b)
{
    return yk_item(yk_max(yk_abs(yk_sub(a, b))));
}

static void rows_of(yk_tensor *x, yk_tensor **indices, yk_tensor **rows)
{
    expect_ok(yk_grad_rows(x, indices, rows));
    assert_non_null(*indices);
    assert_non_null(*rows);
}

static void test_gradients(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *m = table(true), *dense = table(false);
    yk_tensor *w = weight_of(m), *indices, *rows;
    expect_ok(yk_grad_rows(w, &indices, &rows));
    assert_true(!indices && !rows && !yk_grad_to_dense(w) && !yk_last_error());
    for (int step = 0; step < 2; step++) {
        expect_ok(yk_backward(loss_of(m, step)));
        expect_ok(yk_backward(loss_of(dense, step)));
    }
    assert_null(yk_grad(w));
    rows_of(w, &indices, &rows);
    assert_int_equal(yk_tensor_dtype(indices), YK_I64);
    expect_values(indices, "grad_indices", 0);
    expect_values(rows, "grad_rows", 1e-15);
    assert_true(distance(yk_grad_to_dense(w), yk_grad(weight_of(dense))) < 1e-15);
    /* Many backwards without a step add up in few parts. */
    for (int n = 0; n < 30; n++) {
        expect_ok(yk_backward(loss_of(m, n % 3)));
        expect_ok(yk_backward(loss_of(dense, n % 3)));
    }
    assert_true(w->leaf_gradient->rows->count <= 8);
    assert_true(distance(yk_grad_to_dense(w), yk_grad(weight_of(dense))) < 1e-13);
    yk_module_zero_grad(m);
    assert_true(!yk_grad_to_dense(w) && !w->leaf_gradient->rows);
    /* Padding alone: there is a gradient, of no rows. */
    expect_ok(yk_backward(
        yk_sum(yk_embedding_sparse(yk_full(YK_SHAPE(3), 2, YK_OPTIONS(yk_tensor_options, .dtype = YK_I32)), w, 2))));
    rows_of(w, &indices, &rows);
    assert_int_equal(yk_numel(indices) + yk_numel(rows), 0);
    assert_true(yk_item(yk_sum(yk_abs(yk_grad_to_dense(w)))) == 0);
    yk_scope_end(scope);
}

/* One backward with several uses of the weight, others than look-ups among them: the sum of all, of all elements. */
static yk_tensor *mixed_loss(yk_module *m)
{
    yk_tensor *w = weight_of(m);
    return yk_add(loss_of(m, 0), yk_add(yk_sum(yk_square(w)), loss_of(m, 1)));
}

static void test_other_uses(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *m = table(true), *dense = table(false);
    yk_tensor *w = weight_of(m), *dw = weight_of(dense);
    expect_ok(yk_backward(mixed_loss(m)));
    expect_ok(yk_backward(mixed_loss(dense)));
    assert_non_null(yk_grad(w));
    assert_true(distance(yk_grad(w), yk_grad(dw)) < 1e-14);
    /* Rows after a gradient of all elements, and the other way round. */
    expect_ok(yk_backward(loss_of(m, 2)));
    expect_ok(yk_backward(loss_of(dense, 2)));
    assert_true(yk_grad(w) && distance(yk_grad(w), yk_grad(dw)) < 1e-14);
    yk_module_zero_grad(m);
    yk_module_zero_grad(dense);
    for (int i = 0; i < 2; i++) {
        yk_module *each = i ? dense : m;
        expect_ok(yk_backward(loss_of(each, 1)));
        expect_ok(yk_backward(yk_sum(yk_square(weight_of(each)))));
    }
    assert_true(yk_grad(w) && distance(yk_grad(w), yk_grad(dw)) < 1e-14);
    /* Asked for by itself, it is of all elements; so is a gradient of the gradient. */
    yk_tensor *loss = loss_of(m, 0), *grad;
    yk_module_zero_grad(m);
    expect_ok(
        yk_autograd_grad(&loss, 1, &w, 1, NULL, &grad, YK_OPTIONS(yk_autograd_grad_options, .create_graph = true)));
    assert_true(yk_same_shape(grad, w) && yk_requires_grad(grad));
    expect_ok(yk_backward(yk_sum(yk_square(grad))));
    assert_non_null(yk_grad_to_dense(w));
    yk_scope_end(scope);
}

static yk_optimizer *make(const char *name, yk_module *m)
{
    yk_parameters *p = yk_module_parameters(m);
    if (strcmp(name, "sgd") == 0)
        return yk_sgd(p, YK_OPTIONS(yk_sgd_options, .lr = 0.1));
    if (strcmp(name, "sgd_maximize") == 0)
        return yk_sgd(p, YK_OPTIONS(yk_sgd_options, .lr = 0.1, .maximize = true));
    if (strcmp(name, "adagrad") == 0)
        return yk_adagrad(p, YK_OPTIONS(yk_adagrad_options, .lr = 0.1));
    if (strcmp(name, "adagrad_options") == 0)
        return yk_adagrad(p, YK_OPTIONS(yk_adagrad_options, .lr = 0.2, .lr_decay = 0.1,
                                        .initial_accumulator_value = 0.3, .eps = 1e-3, .maximize = true));
    if (strcmp(name, "sparse_adam") == 0)
        return yk_sparse_adam(p, YK_OPTIONS(yk_sparse_adam_options, .lr = 0.01));
    return yk_sparse_adam(
        p, YK_OPTIONS(yk_sparse_adam_options, .lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .maximize = true));
}

static void test_steps(void **state)
{
    (void)state;
    static const char *const names[] = {"sgd",         "sgd_maximize",       "adagrad", "adagrad_options",
                                        "sparse_adam", "sparse_adam_options"};
    for (int n = 0; n < 6; n++) {
        yk_scope scope = yk_scope_begin();
        yk_module *m = table(true);
        yk_optimizer *o = make(names[n], m);
        yk_state_dict *saved = NULL;
        for (int step = 0; step < 3; step++) {
            yk_optimizer_zero_grad(o);
            expect_ok(yk_backward(loss_of(m, step)));
            expect_ok(yk_optimizer_step(o));
            if (step == 1) { /* another optimizer goes on from the state */
                saved = yk_optimizer_state_dict(o);
                assert_non_null(saved);
                yk_optimizer *other = make(names[n], m);
                expect_ok(yk_optimizer_load_state_dict(other, saved));
                o = other;
            }
        }
        expect_values(weight_of(m), names[n], 1e-14);
        assert_int_equal(yk_optimizer_state_step(o, weight_of(m)), 3);
        if (n == 2)
            expect_values(yk_optimizer_state(o, weight_of(m), "sum"), "adagrad_sum", 1e-15);
        if (n == 4) {
            expect_values(yk_optimizer_state(o, weight_of(m), "exp_avg"), "exp_avg", 1e-15);
            expect_values(yk_optimizer_state(o, weight_of(m), "exp_avg_sq"), "exp_avg_sq", 1e-15);
        }
        yk_scope_end(scope);
    }
}

/* The rows are the gradient: its norm, its factor, its bounds; those that padding left out do not count. */
static void test_clipping_and_scaling(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *m = table(true), *dense = table(false);
    double norm, dense_norm;
    for (int i = 0; i < 2; i++)
        expect_ok(yk_backward(loss_of(i ? dense : m, 0)));
    expect_ok(yk_clip_grad_norm(yk_module_parameters(m), 0.25, &norm));
    expect_ok(yk_clip_grad_norm(yk_module_parameters(dense), 0.25, &dense_norm));
    assert_true(fabs(norm - dense_norm) < 1e-15);
    assert_true(distance(yk_grad_to_dense(weight_of(m)), yk_grad(weight_of(dense))) < 1e-15);
    expect_ok(yk_clip_grad_value(yk_module_parameters(m), 0.05));
    expect_ok(yk_clip_grad_value(yk_module_parameters(dense), 0.05));
    assert_true(distance(yk_grad_to_dense(weight_of(m)), yk_grad(weight_of(dense))) < 1e-15);
    yk_scope_end(scope);
    scope = yk_scope_begin();
    m = table(true);
    yk_optimizer *o = make("sgd", m);
    yk_grad_scaler *s = yk_grad_scaler_create(NULL);
    bool skipped = true;
    for (int step = 0; step < 3; step++) {
        yk_optimizer_zero_grad(o);
        expect_ok(yk_backward(yk_grad_scaler_scale(s, loss_of(m, step))));
        expect_ok(yk_grad_scaler_step(s, o, &skipped));
        expect_ok(yk_grad_scaler_update(s));
        assert_false(skipped);
    }
    expect_values(weight_of(m), "sgd", 1e-14);
    yk_tensor *before = yk_clone(yk_detach(weight_of(m)));
    yk_optimizer_zero_grad(o);
    expect_ok(yk_backward(yk_mul_scalar(yk_grad_scaler_scale(s, loss_of(m, 0)), INFINITY)));
    expect_ok(yk_grad_scaler_step(s, o, &skipped));
    assert_true(skipped && distance(weight_of(m), before) == 0);
    yk_scope_end(scope);
}

static yk_status count_calls(yk_tensor *x, void *user)
{
    (void)x;
    ++*(int *)user;
    return YK_OK;
}

static yk_tensor *twice(yk_tensor *grad, void *user)
{
    (void)user;
    return yk_mul_scalar(grad, 2);
}

static void test_hooks_and_moves(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *m = table(true), *dense = table(false);
    yk_tensor *w = weight_of(m), *indices, *rows;
    int calls = 0;
    assert_true(yk_register_post_accumulate_hook(w, count_calls, &calls) != 0);
    expect_ok(yk_backward(loss_of(m, 0)));
    assert_int_equal(calls, 1);
    rows_of(w, &indices, &rows);
    /* The module takes another dtype, and its gradient with it. */
    assert_non_null(yk_module_to_dtype(m, YK_F32));
    rows_of(w, &indices, &rows);
    assert_int_equal(yk_tensor_dtype(rows), YK_F32);
    assert_non_null(yk_module_to_dtype(m, YK_F64));
    /* A hook that changes gradients sees all elements. */
    yk_module_zero_grad(m);
    assert_true(yk_register_hook(w, twice, NULL) != 0);
    expect_ok(yk_backward(loss_of(m, 1)));
    expect_ok(yk_backward(loss_of(dense, 1)));
    assert_int_equal(calls, 2);
    assert_true(yk_grad(w) && distance(yk_grad(w), yk_mul_scalar(yk_grad(weight_of(dense)), 2)) < 1e-6);
    /* By hand: any order, an index twice. */
    yk_tensor *x = yk_zeros(YK_SHAPE(4, 2), YK_OPTIONS(yk_tensor_options, .requires_grad = true));
    const int64_t i[] = {3, 1, 3};
    yk_tensor *index = yk_from_data(i, YK_SHAPE(3), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    yk_tensor *three = yk_reshape(yk_arange(0, 6, 1, NULL), YK_SHAPE(3, 2));
    expect_ok(yk_set_grad(x, yk_ones(YK_SHAPE(4, 2), NULL)));
    expect_ok(yk_set_grad_rows(x, index, three));
    assert_true(yk_fill_(three, 99) && !yk_grad(x));
    rows_of(x, &indices, &rows);
    assert_true(yk_numel(indices) == 2 && yk_get(indices, (int64_t[]){0}) == 1 &&
                yk_get(rows, (int64_t[]){0, 1}) == 3 && yk_get(rows, (int64_t[]){1, 0}) == 4 &&
                yk_get(rows, (int64_t[]){1, 1}) == 6);
    yk_scope_end(scope);
}

static void test_refusals(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *m = table(true), *dense = table(false);
    yk_parameters *p = yk_module_parameters(m);
    expect_ok(yk_backward(loss_of(m, 0)));
    expect_ok(yk_backward(loss_of(dense, 0)));
    yk_tensor *before = yk_clone(yk_detach(weight_of(m)));
#define REFUSED(optimizer, ...)                                                                                        \
    do {                                                                                                               \
        assert_int_equal(yk_optimizer_step(optimizer), YK_ERR_UNSUPPORTED);                                            \
        expect_error(YK_ERR_UNSUPPORTED, __VA_ARGS__);                                                                 \
    } while (0)
    REFUSED(yk_sgd(p, YK_OPTIONS(yk_sgd_options, .lr = 0.1, .momentum = 0.9)),
            "sgd: the gradient of parameter weight is by rows, and a momentum of 0.9 would change all rows");
    REFUSED(yk_sgd(p, YK_OPTIONS(yk_sgd_options, .lr = 0.1, .weight_decay = 0.5)), "a weight decay of 0.5");
    REFUSED(yk_adagrad(p, YK_OPTIONS(yk_adagrad_options, .weight_decay = 0.5)),
            "adagrad: the gradient of parameter weight is by rows, and a weight decay of 0.5 would change all rows");
    REFUSED(yk_adam(p, YK_OPTIONS(yk_adam_options, .lr = 0.1)),
            "adam: the gradient of parameter weight is by rows; sgd, adagrad and sparse_adam take those");
    REFUSED(yk_sparse_adam(yk_module_parameters(dense), YK_OPTIONS(yk_sparse_adam_options, .lr = 0.1)),
            "sparse_adam: the gradient of parameter weight is of all elements");
    assert_true(distance(weight_of(m), before) == 0);
    assert_null(yk_sparse_adam(p, NULL));
    expect_error(YK_ERR_ARGUMENT, "sparse_adam: lr was not given");
    yk_optimizer *o = yk_sparse_adam(p, YK_OPTIONS(yk_sparse_adam_options, .lr = 0.1));
    expect_ok(yk_sparse_adam_add_group(o, yk_module_parameters(dense), YK_OPTIONS(yk_sparse_adam_options, .lr = 1)));
    assert_int_equal(yk_optimizer_group_count(o), 2);
    yk_tensor *x = yk_zeros(YK_SHAPE(4, 2), YK_OPTIONS(yk_tensor_options, .requires_grad = true));
    const int64_t wrong[] = {1, 4};
    yk_tensor *index = yk_from_data(wrong, YK_SHAPE(2), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    assert_int_equal(yk_set_grad_rows(x, index, yk_ones(YK_SHAPE(2, 2), NULL)), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "set_grad_rows: index 4 at position 1 is outside [0, 4)");
    assert_int_equal(yk_set_grad_rows(x, index, yk_ones(YK_SHAPE(2, 3), NULL)), YK_ERR_SHAPE);
    expect_error(YK_ERR_SHAPE, "expected (n) and (n, 2)");
    assert_int_equal(yk_set_grad_rows(x, yk_ones(YK_SHAPE(2), NULL), yk_ones(YK_SHAPE(2, 2), NULL)), YK_ERR_DTYPE);
    expect_error(YK_ERR_DTYPE, "indices of float32");
    assert_int_equal(yk_set_grad_rows(NULL, index, x), YK_ERR_ARGUMENT);
    yk_clear_error();
    assert_int_equal(yk_grad_rows(x, NULL, NULL), YK_ERR_ARGUMENT);
    yk_clear_error();
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),       cmocka_unit_test(test_other_uses),
        cmocka_unit_test(test_steps),           cmocka_unit_test(test_clipping_and_scaling),
        cmocka_unit_test(test_hooks_and_moves), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
