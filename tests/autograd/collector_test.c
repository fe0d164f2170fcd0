/*
 * collector_test.c - the engine and collectors of gradients: their calls and the order of those, and the memory of
 * gradients.
 */
#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include <stdio.h>

#include <yoke/autograd.h>
#include <yoke/ops.h>

#include "autograd/tape.h"

typedef struct diary {
    yk__collector collector;
    char text[400]; /* "begin 0 1; 1; 0; end ok" */
    yk_status begin, ready, end;
} diary;

static void note(diary *d, const char *text)
{
    snprintf(d->text + strlen(d->text), sizeof(d->text) - strlen(d->text), "%s%s", d->text[0] ? "; " : "", text);
}

static yk_status on_begin(yk__collector *self, int count, const int *places)
{
    char text[100] = "begin", *at = text + 5;
    for (int place = 0; place < 10; place++)
        for (int i = 0; i < count; i++)
            if (places[i] == place)
                at += sprintf(at, " %d", place);
    note((diary *)self, text);
    return ((diary *)self)->begin ? yk__fail(((diary *)self)->begin, "no begin") : YK_OK;
}

static yk_status on_ready(yk__collector *self, int place)
{
    char text[20];
    snprintf(text, sizeof(text), "%d", place);
    note((diary *)self, text);
    return ((diary *)self)->ready ? yk__fail(((diary *)self)->ready, "not ready") : YK_OK;
}

static yk_status on_end(yk__collector *self, yk_status status)
{
    note((diary *)self, status ? yk_status_name(status) : "end");
    assert_int_equal(status, yk_last_error() ? yk_last_error()->code : YK_OK);
    return ((diary *)self)->end ? yk__fail(((diary *)self)->end, "no end") : YK_OK;
}

static const yk__collector callbacks = {.begin = on_begin, .ready = on_ready, .end = on_end};
static const yk_tensor_options *const leaf = YK_OPTIONS(yk_tensor_options, .requires_grad = true);

static void test_order(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    diary one = {.collector = callbacks}, two = {.collector = callbacks};
    yk_tensor *a = yk_ones(YK_SHAPE(2), leaf), *b = yk_ones(YK_SHAPE(2), leaf), *c = yk_ones(YK_SHAPE(2), leaf);
    expect_ok(yk__collect_gradients(a, &one.collector, 0, NULL));
    expect_ok(yk__collect_gradients(b, &one.collector, 1, NULL));
    expect_ok(yk__collect_gradients(c, &two.collector, 5, NULL));
    assert_ptr_equal(yk__collector_of(a), &one.collector);
    expect_ok(yk_backward(yk_sum(yk_mul(yk_exp(a), b))));
    assert_string_equal(one.text, "begin 0 1; 1; 0; end");
    assert_string_equal(two.text, "");
    one.text[0] = 0;
    expect_ok(yk_backward(yk_sum(yk_mul(b, c))));
    assert_string_equal(one.text, "begin 1; 1; end");
    assert_string_equal(two.text, "begin 5; 5; end");
    /* A collector that was taken out is not called. */
    one.text[0] = two.text[0] = 0;
    expect_ok(yk__collect_gradients(b, NULL, 0, NULL));
    expect_ok(yk_backward(yk_sum(yk_mul(b, c))));
    assert_string_equal(one.text, "");
    assert_string_equal(two.text, "begin 5; 5; end");
    yk_scope_end(scope);
}

static yk_tensor *refuse(yk_tensor *grad, void *user)
{
    (void)grad;
    (void)user;
    yk_set_error(YK_ERR_NUMERIC, "refused");
    return NULL;
}

static void test_failures(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    diary d = {.collector = callbacks}, other = {.collector = callbacks};
    yk_tensor *a = yk_ones(YK_SHAPE(2), leaf), *b = yk_ones(YK_SHAPE(2), leaf);
    expect_ok(yk__collect_gradients(a, &d.collector, 0, NULL));
    expect_ok(yk__collect_gradients(b, &other.collector, 0, NULL));
    uint64_t id = yk_register_hook(a, refuse, NULL);
    assert_int_equal(yk_backward(yk_sum(a)), YK_ERR_NUMERIC);
    expect_error(YK_ERR_NUMERIC, "refused");
    assert_string_equal(d.text, "begin 0; numeric");
    expect_ok(yk_hook_remove(a, id));

    d.text[0] = 0;
    d.ready = YK_ERR_STATE;
    assert_int_equal(yk_backward(yk_sum(a)), YK_ERR_STATE);
    expect_error(YK_ERR_STATE, "not ready");
    assert_string_equal(d.text, "begin 0; 0; state");

    d = (diary){.collector = callbacks, .end = YK_ERR_CONNECTION};
    assert_int_equal(yk_backward(yk_sum(a)), YK_ERR_CONNECTION);
    expect_error(YK_ERR_CONNECTION, "no end");
    assert_string_equal(d.text, "begin 0; 0; end");

    /* A collector whose begin fails has no end; one that was begun before has one. Nothing ran. */
    d = (diary){.collector = callbacks};
    other = (diary){.collector = callbacks};
    expect_ok(yk_set_grad(a, NULL));
    other.begin = d.begin = YK_ERR_IO;
    assert_int_equal(yk_backward(yk_sum(yk_add(a, b))), YK_ERR_IO);
    expect_error(YK_ERR_IO, "no begin");
    assert_int_equal(strlen(d.text) + strlen(other.text), strlen("begin 0"));
    d = (diary){.collector = callbacks};
    other = (diary){.collector = callbacks, .ready = YK_ERR_IO};
    assert_int_equal(yk_backward(yk_sum(yk_mul(a, b))), YK_ERR_IO);
    expect_error(YK_ERR_IO, "not ready");
    assert_non_null(strstr(d.text, "; io"));
    assert_string_equal(other.text, "begin 0; 0; io");
    yk_scope_end(scope);
}

/* The gradient is in its grad_buffer, whatever made it. */
static void expect_home(yk_tensor *x, yk_tensor *grad_buffer, const double *values)
{
    assert_ptr_equal(yk_grad(x), grad_buffer);
    for (int64_t i = 0; i < yk_numel(x); i++)
        expect_near(((const float *)host_data(grad_buffer))[i], values[i], 1e-6, 0);
}

static void test_home(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    diary d = {.collector = callbacks};
    yk_tensor *w = yk_ones(YK_SHAPE(1, 2), leaf), *grad_buffer = yk_full(YK_SHAPE(1, 2), 99, NULL);
    yk_tensor *x = yk_from_data((float[]){1, 2, 3, 4}, YK_SHAPE(2, 2), NULL);
    expect_ok(yk__collect_gradients(w, &d.collector, 0, grad_buffer));
    assert_ptr_equal(yk__grad_buffer_of(w), grad_buffer);
    expect_ok(yk_backward(yk_sum(yk_linear(x, w, NULL)))); /* written there by the operation */
    expect_home(w, grad_buffer, (double[]){4, 6});
    expect_ok(yk_backward(yk_sum(yk_linear(x, w, NULL)))); /* added */
    expect_home(w, grad_buffer, (double[]){8, 12});
    expect_ok(yk_set_grad(w, NULL));
    expect_ok(yk_backward(yk_sum(yk_mul_scalar(w, 3)))); /* copied there */
    expect_home(w, grad_buffer, (double[]){3, 3});
    expect_ok(yk_set_grad(w, NULL));
    expect_ok(yk_backward(yk_sum(yk_add(yk_linear(x, w, NULL), yk_linear(x, w, NULL))))); /* two terms */
    expect_home(w, grad_buffer, (double[]){8, 12});
    expect_ok(yk_set_grad(w, NULL));
    expect_ok(yk_backward(yk_sum(yk_linear(w, w, NULL)))); /* one operation, twice */
    expect_home(w, grad_buffer, (double[]){2, 2});

    expect_ok(yk_set_grad(w, NULL)); /* and without a grad_buffer */
    expect_ok(yk__collect_gradients(w, NULL, 0, NULL));
    expect_ok(yk_backward(yk_sum(yk_linear(x, w, NULL))));
    assert_ptr_not_equal(yk_grad(w), grad_buffer);
    yk_scope_end(scope);
}

static yk_tensor *remember(yk_tensor *grad, void *user)
{
    *(yk_tensor **)user = grad;
    return NULL;
}

static void test_home_and_hook(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    diary d = {.collector = callbacks};
    yk_tensor *w = yk_ones(YK_SHAPE(1, 2), leaf), *grad_buffer = yk_zeros(YK_SHAPE(1, 2), NULL), *seen = NULL;
    yk_tensor *x = yk_from_data((float[]){1, 2, 3, 4}, YK_SHAPE(2, 2), NULL);
    expect_ok(yk__collect_gradients(w, &d.collector, 0, grad_buffer));
    assert_true(yk_register_hook(w, remember, &seen));
    expect_ok(yk_backward(yk_sum(yk_linear(x, w, NULL))));
    assert_non_null(seen);
    assert_ptr_not_equal(seen, grad_buffer); /* a gradient that a hook may keep is not in memory that the next backward
                                              * writes over */
    expect_home(w, grad_buffer, (double[]){4, 6});
    yk_scope_end(scope);
}

/* Room for the gradient of a large weight is not taken a second time. */
static void test_no_second_memory(void **state)
{
    (void)state;
    enum { N = 1024 };
    size_t grown[2];
    for (int homed = 0; homed < 2; homed++) {
        yk_scope scope = yk_scope_begin();
        diary d = {.collector = callbacks};
        yk_tensor *w = yk_ones(YK_SHAPE(N, N), leaf), *x = yk_ones(YK_SHAPE(2, N), NULL);
        yk_tensor *grad_buffer = yk_zeros(YK_SHAPE(N, N), NULL), *loss = yk_sum(yk_linear(x, w, NULL));
        if (homed)
            expect_ok(yk__collect_gradients(w, &d.collector, 0, grad_buffer));
        yk_memory_info before, after;
        yk_device_reset_peak_memory(test_device(0));
        expect_ok(yk_device_memory(test_device(0), &before));
        expect_ok(yk_backward(loss));
        expect_ok(yk_device_memory(test_device(0), &after));
        grown[homed] = after.peak_allocated - before.allocated;
        yk_scope_end(scope);
    }
    assert_true(grown[0] >= N * N * sizeof(float));
    assert_true(grown[1] + N * N * sizeof(float) <= grown[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),         cmocka_unit_test(test_failures),         cmocka_unit_test(test_home),
        cmocka_unit_test(test_home_and_hook), cmocka_unit_test(test_no_second_memory),
    };
    return cmocka_run_group_tests_name("collector", tests, NULL, NULL);
}
