/* modes_test.c - recording by thread, tensors made in inference mode; data against detach. */
#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include <pthread.h>

#include <yoke/yoke.h>

static const yk_tensor_options *const leaf = YK_OPTIONS(yk_tensor_options, .requires_grad = true);

static yk_tensor *one_two_three(void)
{
    return yk_from_data((float[]){1, 2, 3}, YK_SHAPE(3), leaf);
}

/* The third document: zeroed through data, the gradient of sigmoid is 0, without an error. */
static void a_write_through_data_goes_unnoticed(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *a = one_two_three(), *out = yk_sigmoid(a), *c = yk_data(out);
    assert_false(yk_requires_grad(c));
    assert_true(data_ptr(c) == data_ptr(out));
    assert_non_null(yk_zero_(c));
    assert_int_equal(yk_tensor_version(c), 1);
    assert_int_equal(yk_tensor_version(out), 0);
    assert_true(yk_get(out, (int64_t[]){1}) == 0);
    expect_ok(yk_backward(yk_sum(out)));
    for (int64_t i = 0; i < 3; i++)
        assert_true(yk_get(yk_grad(a), &i) == 0);
    yk_scope_end(scope);
}

/* The same through detach: backward fails, and says which operation's tensor it was. */
static void a_write_through_detach_is_noticed(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *a = one_two_three(), *out = yk_sigmoid(a), *c = yk_detach(out);
    assert_non_null(yk_zero_(c));
    assert_int_equal(yk_tensor_version(out), 1);
    assert_int_equal(yk_backward(yk_sum(out)), YK_ERR_STATE);
    expect_error(YK_ERR_STATE,
                 "sigmoid: a tensor of shape (3,) that its gradient needs has been modified by an inplace "
                 "operation: it is at version 1, expected 0");
    assert_null(yk_grad(a));
    yk_scope_end(scope);
}

/* The result of yk_data holds the memory, and is no view of x: other views do not follow. */
static void data_outlives_what_it_shows(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin(), inner = yk_scope_begin();
    yk_tensor *x = yk_full(YK_SHAPE(100, 100), 3, NULL);
    yk_tensor *again = yk_data(yk_data(x)), *d = yk_scope_return(inner, again);
    yk_scope_end(inner);
    assert_true(yk_get(d, (int64_t[]){99, 99}) == 3);
    yk_tensor *sum = yk_sum(d);
    assert_true(yk_item(sum) == 30000);
    assert_null(yk_data(NULL));
    expect_error(YK_ERR_ARGUMENT, "data: the tensor is NULL");
    yk_scope_end(scope);
}

/* A gradient that a custom function gives as memory of something else must not be added to in place. */
static yk_tensor *kept;

static yk_tensor *same(yk_custom *context, yk_tensor *const *inputs, int n_inputs)
{
    (void)context, (void)n_inputs;
    return yk_clone(inputs[0]);
}

static yk_status give_data(yk_custom *context, yk_tensor *grad_output, yk_tensor **grad_inputs, int n_inputs)
{
    (void)context, (void)grad_output, (void)n_inputs;
    grad_inputs[0] = yk_data(kept);
    return YK_OK;
}

static void gradients_that_are_data_are_not_overwritten(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *a = one_two_three();
    kept = yk_full(YK_SHAPE(3), 5, NULL);
    yk_custom_function f = {.name = "give_data", .forward = same, .backward = give_data};
    yk_tensor *m = yk_mul_scalar(a, 1); /* not a leaf, so what comes is added up in the node */
    yk_tensor *y = yk_add(yk_add(yk_custom_apply(&f, &m, 1, NULL), yk_mul_scalar(m, 2)), yk_mul_scalar(m, 3));
    expect_ok(yk_backward(yk_sum(y)));
    for (int64_t i = 0; i < 3; i++) {
        assert_true(yk_get(yk_grad(a), &i) == 10);
        assert_true(yk_get(kept, &i) == 5);
    }
    yk_scope_end(scope);
}

static void recording_can_be_switched(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = one_two_three();
    assert_true(yk_set_grad_enabled(false));
    assert_false(yk_grad_enabled());
    assert_false(yk_requires_grad(yk_square(x)));
    assert_false(yk_set_grad_enabled(true));
    assert_true(yk_requires_grad(yk_square(x)));
    bool before = yk_no_grad_begin();
    assert_false(yk_set_grad_enabled(true)); /* true works inside no_grad */
    assert_true(yk_requires_grad(yk_square(x)));
    assert_true(yk_set_grad_enabled(false));
    bool off = yk_enable_grad_begin();
    assert_true(yk_requires_grad(yk_square(x)));
    yk_enable_grad_end(off);
    assert_false(yk_requires_grad(yk_square(x)));
    yk_no_grad_end(before);
    assert_true(yk_grad_enabled());
    yk_scope_end(scope);
}

static void *modes_of_a_thread(void *seen)
{
    *(int *)seen = (yk_grad_enabled() ? 1 : 0) + (yk_inference_mode_enabled() ? 2 : 0);
    return NULL;
}

static void modes_are_of_a_thread(void **state)
{
    (void)state;
    bool grad = yk_set_grad_enabled(false), inference = yk_inference_mode_begin();
    int seen = -1;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, modes_of_a_thread, &seen), 0);
    pthread_join(thread, NULL);
    assert_int_equal(seen, 1);
    yk_inference_mode_end(inference);
    yk_set_grad_enabled(grad);
}

static void inference_tensors(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *w = one_two_three(), *plain = yk_full(YK_SHAPE(3), 1, NULL);
    bool before = yk_inference_mode_begin();
    assert_true(yk_inference_mode_enabled());
    assert_false(yk_grad_enabled());
    yk_tensor *y = yk_mul(w, w), *part = yk_narrow(plain, 0, 0, 2);
    assert_true(yk_is_inference(y));
    assert_true(yk_is_inference(yk_narrow(y, 0, 0, 1)));
    assert_false(yk_is_inference(part)); /* a view of a tensor that was made outside */
    assert_false(yk_is_inference(w));
    assert_false(yk_requires_grad(y));
    assert_non_null(yk_mul_scalar_(y, 2)); /* inside it may be written, and so may those from outside */
    assert_non_null(yk_add_(plain, y, 1));
    bool inner = yk_inference_mode_begin();
    yk_inference_mode_end(inner);
    assert_true(yk_inference_mode_enabled());
    yk_inference_mode_end(before);
    assert_false(yk_inference_mode_enabled());
    assert_true(yk_get(plain, (int64_t[]){2}) == 19);

    assert_null(yk_mul(w, y));
    expect_error(YK_ERR_STATE, "mul: the tensor of shape (3,) was made in inference mode and cannot be kept for a "
                               "gradient outside of it; clone it first");
    assert_non_null(yk_mul(plain, y)); /* nothing is kept where nothing is recorded */
    assert_non_null(yk_add(w, y));     /* nor where backward does not need it */
    assert_null(yk_add_(y, plain, 1));
    expect_error(YK_ERR_STATE,
                 "was made in inference mode and cannot be changed in place outside of it; clone it first");
    assert_int_equal(yk_set_requires_grad(y, true), YK_ERR_STATE);
    expect_error(YK_ERR_STATE, "cannot require a gradient outside of it");
    yk_tensor *copy = yk_clone(y);
    assert_false(yk_is_inference(copy));
    expect_ok(yk_backward(yk_sum(yk_mul(w, copy))));
    assert_true(yk_get(yk_grad(w), (int64_t[]){1}) == 8);
    assert_false(yk_is_inference(NULL));
    yk_scope_end(scope);
}

/* Rows 22 and 53: N backwards of losses need the memory of one, one backward of their sum that of all; summing the loss
 * tensors keeps every step's graph, summing numbers none. */
static size_t peak_of(int steps, bool sum_first, bool numbers)
{
    enum { SIZE = 1 << 16 };
    const yk_device device = test_device(0);
    yk_memory_info info;
    yk_device_empty_cache(device);
    yk_scope program = yk_scope_begin();
    yk_tensor *w = yk_full(YK_SHAPE(SIZE), 0.5, leaf), *total = NULL;
    yk_device_reset_peak_memory(device);
    expect_ok(yk_device_memory(device, &info));
    size_t before = info.allocated;
    double sum = 0;
    for (int i = 0; i < steps; i++) {
        yk_scope step = yk_scope_begin();
        yk_tensor *loss = yk_sum(yk_exp(yk_mul_scalar(w, 1)));
        if (numbers)
            sum += yk_item(loss);
        else if (sum_first)
            total = yk_scope_return(step, total ? yk_add(total, loss) : loss);
        else
            expect_ok(yk_backward(loss));
        yk_scope_end(step);
    }
    if (total)
        expect_ok(yk_backward(total));
    expect_ok(yk_device_memory(device, &info));
    yk_scope_end(program);
    assert_true(numbers ? sum > 0 : sum == 0);
    return info.peak_allocated - before;
}

static void memory_of_sums_of_losses(void **state)
{
    (void)state;
    size_t one = peak_of(1, false, false), each = peak_of(16, false, false), summed = peak_of(16, true, false);
    assert_true(each <= one + (one / 2));                 /* the gradient that is there from the second on */
    assert_true(summed >= each + 10 * ((size_t)4 << 16)); /* the results that exp keeps, in every step */
    assert_true(peak_of(16, false, true) <= one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_write_through_data_goes_unnoticed),
        cmocka_unit_test(a_write_through_detach_is_noticed),
        cmocka_unit_test(data_outlives_what_it_shows),
        cmocka_unit_test(gradients_that_are_data_are_not_overwritten),
        cmocka_unit_test(recording_can_be_switched),
        cmocka_unit_test(modes_are_of_a_thread),
        cmocka_unit_test(inference_tensors),
        cmocka_unit_test(memory_of_sums_of_losses),
    };
    return cmocka_run_group_tests_name("autograd/modes", tests, NULL, NULL);
}
