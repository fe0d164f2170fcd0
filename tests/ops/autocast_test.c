/*
 * autocast_test.c - regions of autocast: what is cast where, the casts of parameters that are kept, gradients through
 * them, threads, custom functions, and what may not be. Which operations are cast is autocast_lists_test.c's.
 */
#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include <pthread.h>

#include "autograd/autocast.h"
#include "ops/op.h"
#include <yoke/yoke.h>

enum { ROWS = 5, IN = 7, OUT = 3 };

static yk_tensor *numbers(int ndim, const int64_t *shape, unsigned seed, bool requires_grad)
{
    float values[512];
    for (unsigned i = 0; i < 512; i++)
        values[i] = (float)((i * 2654435761u + seed * 40503u) >> 16 & 0xFFFF) / 32768 - 1;
    yk_tensor *x = yk_from_data(values, ndim, shape, NULL);
    if (requires_grad)
        expect_ok(yk_set_requires_grad(x, true));
    return x;
}

static void expect_equal(yk_tensor *a, yk_tensor *b)
{
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal(yk_tensor_dtype(a), yk_tensor_dtype(b));
    assert_true(yk_same_shape(a, b));
    size_t bytes = (size_t)yk_numel(a) * yk_dtype_size(yk_tensor_dtype(a));
    char *x = malloc(bytes), *y = malloc(bytes);
    expect_ok(yk_tensor_read(a, x, bytes));
    expect_ok(yk_tensor_read(b, y, bytes));
    assert_memory_equal(x, y, bytes);
    free(x);
    free(y);
}

typedef struct layer {
    yk_tensor *x, *w, *b;
} layer;

static layer make_layer(void)
{
    return (layer){numbers(YK_SHAPE(ROWS, IN), 1, true), numbers(YK_SHAPE(OUT, IN), 2, true),
                   numbers(YK_SHAPE(OUT), 3, true)};
}

/* The result and the gradients have the bits of casts by hand. */
static void casts_are_those_of_hand(void **state)
{
    (void)state;
    for (int half = 0; half < 2; half++) {
        yk_dtype lower = half ? YK_F16 : YK_BF16;
        yk_scope scope = yk_scope_begin();
        layer a = make_layer(), b = make_layer();
        yk_tensor *target = numbers(YK_SHAPE(ROWS, OUT), 4, false);
        yk_autocast before = yk_autocast_begin(test_device_type, lower, NULL);
        yk_tensor *out = yk_linear(a.x, a.w, a.b), *loss = yk_mse_loss(out, target, YK_REDUCE_MEAN);
        yk_autocast_end(before);
        yk_tensor *by_hand = yk_linear(yk_cast(b.x, lower), yk_cast(b.w, lower), yk_cast(b.b, lower));
        yk_tensor *loss_by_hand = yk_mse_loss(yk_cast(by_hand, YK_F32), target, YK_REDUCE_MEAN);
        expect_equal(out, by_hand);
        expect_equal(loss, loss_by_hand);
        assert_int_equal(yk_tensor_dtype(loss), YK_F32);
        expect_ok(yk_backward(loss));
        expect_ok(yk_backward(loss_by_hand));
        assert_int_equal(yk_tensor_dtype(yk_grad(a.w)), YK_F32);
        expect_equal(yk_grad(a.x), yk_grad(b.x));
        expect_equal(yk_grad(a.w), yk_grad(b.w));
        expect_equal(yk_grad(a.b), yk_grad(b.b));
        yk_scope_end(scope);
    }
}

/* A parameter is cast once for as long as it holds what was cast. */
static void parameters_are_cast_once(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    layer a = make_layer();
    yk_autocast before = yk_autocast_begin(test_device_type, YK_BF16, NULL);
    assert_null(yk__autocast_cached(a.w, YK_BF16));
    assert_non_null(yk_linear(a.x, a.w, a.b));
    yk_tensor *kept = yk__autocast_cached(a.w, YK_BF16);
    assert_non_null(kept);
    yk_autocast inner = yk_autocast_begin(test_device_type, YK_BF16, NULL);
    assert_non_null(yk_linear(a.x, a.w, NULL));
    yk_autocast_end(inner);
    assert_ptr_equal(yk__autocast_cached(a.w, YK_BF16), kept);
    /* A tensor that is no parameter is not kept. */
    yk_tensor *plain = numbers(YK_SHAPE(ROWS, IN), 5, false);
    yk_tensor *made = yk_mul_scalar(a.w, 2), *view = yk_narrow(a.w, 0, 0, 2);
    assert_non_null(yk_linear(plain, made, NULL));
    assert_non_null(yk_linear(plain, view, NULL));
    assert_null(yk__autocast_cached(plain, YK_BF16));
    assert_null(yk__autocast_cached(made, YK_BF16));
    assert_null(yk__autocast_cached(view, YK_BF16));
    /* Written, as by an optimizer's step, it is cast anew. */
    bool recording = yk_no_grad_begin();
    yk_zero_(a.w);
    yk_no_grad_end(recording);
    yk_tensor *out = yk_linear(a.x, a.w, NULL);
    assert_true(yk_item(yk_sum(yk_abs(yk_cast(out, YK_F32)))) == 0);
    assert_ptr_not_equal(yk__autocast_cached(a.w, YK_BF16), kept);
    yk_autocast_clear_cache();
    assert_null(yk__autocast_cached(a.w, YK_BF16));
    assert_non_null(yk_linear(a.x, a.w, NULL));
    yk_autocast_end(before);
    assert_null(yk__autocast_cached(a.w, YK_BF16));
    before = yk_autocast_begin(test_device_type, YK_BF16, YK_OPTIONS(yk_autocast_options, .cache_enabled = false));
    assert_non_null(yk_linear(a.x, a.w, a.b));
    assert_null(yk__autocast_cached(a.w, YK_BF16));
    yk_autocast_end(before);
    yk_scope_end(scope);
}

/* More parameters than the table begins with. */
static void many_parameters_are_kept(void **state)
{
    (void)state;
    enum { COUNT = 300 };
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = numbers(YK_SHAPE(1, 4), 1, false), *w[COUNT], *kept[COUNT], *sum = NULL;
    yk_autocast before = yk_autocast_begin(test_device_type, YK_BF16, NULL);
    for (int i = 0; i < COUNT; i++) {
        w[i] = numbers(YK_SHAPE(4, 4), (unsigned)i, true);
        yk_tensor *out = yk_linear(x, w[i], NULL);
        sum = sum ? yk_add(sum, out) : out;
        kept[i] = yk__autocast_cached(w[i], YK_BF16);
        assert_non_null(kept[i]);
    }
    for (int i = 0; i < COUNT; i++)
        assert_ptr_equal(yk__autocast_cached(w[i], YK_BF16), kept[i]);
    yk_autocast_end(before);
    expect_ok(yk_backward(yk_sum(sum)));
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(yk_tensor_dtype(yk_grad(w[i])), YK_F32);
    yk_scope_end(scope);
}

/* A cast made without recording has no way back to the parameter; a test before the training must not take its
 * gradient. */
static void a_cast_of_no_grad_is_not_trained_through(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    layer a = make_layer();
    yk_autocast before = yk_autocast_begin(test_device_type, YK_BF16, NULL);
    bool recording = yk_no_grad_begin();
    assert_non_null(yk_linear(a.x, a.w, a.b));
    yk_no_grad_end(recording);
    bool inference = yk_inference_mode_begin();
    assert_non_null(yk_linear(a.x, a.w, a.b));
    yk_inference_mode_end(inference);
    yk_tensor *out = yk_linear(a.x, a.w, a.b);
    yk_autocast_end(before);
    expect_ok(yk_backward(yk_sum(out)));
    assert_non_null(yk_grad(a.w));
    assert_non_null(yk_grad(a.b));
    yk_scope_end(scope);
}

/* Two losses share the cast, and each has a backward of its own. */
static void two_backwards_share_a_cast(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    layer a = make_layer();
    yk_autocast before = yk_autocast_begin(test_device_type, YK_BF16, NULL);
    yk_tensor *first = yk_sum(yk_linear(a.x, a.w, NULL)), *second = yk_sum(yk_linear(a.x, a.w, a.b));
    yk_autocast_end(before);
    expect_ok(yk_backward(first));
    yk_tensor *once = yk_clone(yk_grad(a.w));
    expect_ok(yk_backward(second));
    expect_equal(yk_grad(a.w), yk_mul_scalar(once, 2));
    assert_non_null(yk_grad(a.b));
    /* The same for one that is called inside. */
    before = yk_autocast_begin(test_device_type, YK_BF16, NULL);
    for (int i = 0; i < 2; i++)
        expect_ok(yk_backward(yk_sum(yk_linear(a.x, a.w, a.b))));
    yk_autocast_end(before);
    expect_equal(yk_grad(a.w), yk_mul_scalar(once, 4));
    yk_scope_end(scope);
}

static yk_dtype dtype_of_product(void)
{
    yk_tensor *x = numbers(YK_SHAPE(2, 2), 1, false), *out = yk_matmul(x, x);
    assert_non_null(out);
    return yk_tensor_dtype(out);
}

static void regions_nest(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    assert_false(yk_autocast_enabled(test_device_type));
    assert_int_equal(yk_autocast_dtype(YK_CPU), YK_BF16);
    assert_int_equal(yk_autocast_dtype(YK_CUDA), YK_F16);
    yk_device_type other = test_device_type == YK_CPU ? YK_CUDA : YK_CPU;
    yk_autocast a = yk_autocast_begin(test_device_type, YK_F16, NULL);
    assert_true(yk_autocast_enabled(test_device_type));
    assert_false(yk_autocast_enabled(other));
    assert_int_equal(dtype_of_product(), YK_F16);
    yk_autocast b = yk_autocast_begin(test_device_type, YK_BF16, NULL);
    assert_int_equal(dtype_of_product(), YK_BF16);
    yk_autocast c = yk_autocast_begin(test_device_type, YK_F32, YK_OPTIONS(yk_autocast_options, .enabled = false));
    assert_false(yk_autocast_enabled(test_device_type));
    assert_int_equal(dtype_of_product(), YK_F32);
    yk_autocast_end(c);
    /* A region of GPUs does not matter to tensors of the CPU, nor one of the CPU to those of GPUs. */
    yk_autocast d = yk_autocast_begin(other, YK_F16, NULL);
    assert_int_equal(dtype_of_product(), YK_BF16);
    yk_autocast_end(d);
    yk_autocast_end(b);
    assert_int_equal(dtype_of_product(), YK_F16);
    yk_autocast_end(a);
    assert_int_equal(dtype_of_product(), YK_F32);
    assert_int_equal(yk_autocast_dtype(test_device_type), test_device_type == YK_CPU ? YK_BF16 : YK_F16);
    yk_scope_end(scope);
}

static void *product_elsewhere(void *dtype)
{
    yk_scope scope = yk_scope_begin();
    *(yk_dtype *)dtype = dtype_of_product();
    yk_scope_end(scope);
    return NULL;
}

static void a_thread_has_its_own(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_autocast before = yk_autocast_begin(test_device_type, YK_BF16, NULL);
    yk_dtype found = YK_F64;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, product_elsewhere, &found), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(found, YK_F32);
    assert_int_equal(dtype_of_product(), YK_BF16);
    yk_autocast_end(before);
    yk_scope_end(scope);
}

static void refused(yk_device_type type, yk_dtype dtype, yk_status code, const char *text)
{
    yk_autocast outer = yk_autocast_begin(test_device_type, YK_BF16, NULL),
                inner = yk_autocast_begin(type, dtype, NULL);
    expect_error(code, text);
    assert_int_equal(dtype_of_product(), YK_BF16);
    yk_autocast_end(inner);
    assert_int_equal(dtype_of_product(), YK_BF16);
    yk_autocast_end(outer);
    assert_int_equal(dtype_of_product(), YK_F32);
}

static void other_dtypes_are_refused(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    refused(test_device_type, YK_F32, YK_ERR_DTYPE,
            "autocast_begin: the dtype is float32, expected bfloat16 or float16");
    refused(test_device_type, YK_F64, YK_ERR_DTYPE,
            "autocast_begin: the dtype is float64, expected bfloat16 or float16");
    refused(YK_CUDA, YK_I64, YK_ERR_DTYPE, "autocast_begin: the dtype is int64, expected bfloat16 or float16");
    refused(test_device_type, (yk_dtype)77, YK_ERR_DTYPE, "autocast_begin: 77 is not a dtype");
    refused((yk_device_type)7, YK_BF16, YK_ERR_ARGUMENT, "autocast_begin: 7 is no type of device");
    assert_false(yk_autocast_enabled((yk_device_type)7));
    yk_scope_end(scope);
}

/* Errors are the same as without autocast. */
static void bad_input_is_refused_as_ever(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    layer a = make_layer();
    yk_tensor *half = yk_cast(a.x, YK_F16), *lower = yk_cast(a.x, YK_BF16);
    yk_autocast before = yk_autocast_begin(test_device_type, YK_BF16, NULL);
    assert_null(yk_linear(a.x, NULL, NULL));
    expect_error(YK_ERR_ARGUMENT, "linear: argument 2 is NULL");
    assert_null(yk_linear(a.x, a.b, NULL));
    expect_error(YK_ERR_SHAPE, "linear: weight has shape (3,), expected (out, in)");
    if (test_device_type == YK_CPU) { /* on GPUs autocast leaves cat alone */
        assert_null(yk_cat((yk_tensor *[]){half, half}, 2, 0));
        expect_error(YK_ERR_DTYPE, "cat: a float16 tensor under autocast to bfloat16; cast it with yk_cast");
    }
    assert_null(yk_cat((yk_tensor *[]){lower, NULL}, 2, 0));
    expect_error(YK_ERR_ARGUMENT, "cat: argument 2 is NULL");
    assert_int_equal(yk_tensor_dtype(yk_cat((yk_tensor *[]){lower, a.x}, 2, 0)), YK_F32);
    assert_true(yk_autocast_enabled(test_device_type) && yk__autocast_types);
    yk_scope_end(scope);
    assert_null(yk_linear(NULL, NULL, NULL));
    expect_error(YK_ERR_ARGUMENT, "linear: argument 1 is NULL");
    scope = yk_scope_begin();
    yk_tensor *x = yk_tensor_retain(numbers(YK_SHAPE(2, 2), 1, false));
    yk_scope_end(scope);
    assert_null(yk_matmul(x, x)); /* no scope is open */
    assert_non_null(yk_last_error());
    yk_clear_error();
    yk_tensor_release(x);
    yk_autocast_end(before);
}

/* An end too many does no harm. */
static void ends_are_counted(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_autocast before = yk_autocast_begin(test_device_type, YK_BF16, NULL);
    yk_autocast_end(before);
    yk_autocast_end(before);
    layer a = make_layer();
    before = yk_autocast_begin(test_device_type, YK_BF16, NULL);
    assert_non_null(yk_linear(a.x, a.w, a.b));
    assert_non_null(yk__autocast_cached(a.w, YK_BF16));
    yk_autocast_end(before);
    assert_null(yk__autocast_cached(a.w, YK_BF16));
    yk_scope_end(scope);
}

/* ---- custom functions: forward and backward in the modes of the call ---- */

static yk_dtype seen[2];

static yk_tensor *product_forward(yk_custom *context, yk_tensor *const *inputs, int n_inputs)
{
    (void)n_inputs;
    if (yk_custom_save(context, inputs[0]) || yk_custom_save(context, inputs[1]))
        return NULL;
    yk_tensor *out = yk_matmul(inputs[0], inputs[1]);
    seen[0] = yk_tensor_dtype(out);
    return out;
}

static yk_status product_backward(yk_custom *context, yk_tensor *g, yk_tensor **grads, int n_inputs)
{
    (void)n_inputs;
    yk_tensor *a = yk_custom_saved(context, 0), *b = yk_custom_saved(context, 1);
    grads[0] = yk_matmul(g, yk_transpose(b, 0, 1));
    grads[1] = yk_matmul(yk_transpose(a, 0, 1), g);
    seen[1] = grads[0] ? yk_tensor_dtype(grads[0]) : YK_BOOL;
    return YK_OK;
}

static void custom_functions_keep_their_modes(void **state)
{
    (void)state;
    static const yk_custom_function f = {.name = "product", .forward = product_forward, .backward = product_backward};
    for (int inside = 0; inside < 3; inside++) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *a = numbers(YK_SHAPE(4, 4), 1, true), *b = numbers(YK_SHAPE(4, 4), 2, true);
        yk_tensor *a2 = numbers(YK_SHAPE(4, 4), 1, true), *b2 = numbers(YK_SHAPE(4, 4), 2, true);
        /* Forward in one mode, backward called in another. */
        yk_autocast before = {0};
        if (inside)
            before = yk_autocast_begin(test_device_type, YK_BF16, NULL);
        yk_tensor *out = yk_custom_apply(&f, (yk_tensor *[]){a, b}, 2, NULL), *plain = yk_matmul(a2, b2);
        if (inside == 1)
            yk_autocast_end(before);
        yk_dtype lower = inside ? YK_BF16 : YK_F32;
        yk_autocast around = {0};
        if (!inside)
            around = yk_autocast_begin(test_device_type, YK_BF16, NULL);
        expect_ok(yk_backward(yk_sum(out)));
        if (!inside)
            yk_autocast_end(around);
        if (inside == 2)
            yk_autocast_end(before);
        assert_int_equal(seen[0], lower);
        assert_int_equal(seen[1], lower);
        assert_int_equal(yk_tensor_dtype(yk_grad(a)), YK_F32);
        expect_ok(yk_backward(yk_sum(plain)));
        expect_equal(yk_grad(a), yk_grad(a2));
        expect_equal(yk_grad(b), yk_grad(b2));
        yk_scope_end(scope);
    }
}

/* The gradient of a cast parameter goes into its gradient buffer, in the parameter's memory order. */
static void gradients_have_the_order_of_the_parameter(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *conv = yk_conv2d_create(4, 6, 3, NULL);
    yk_tensor *w = yk_module_get(conv, "weight"), *x = numbers(YK_SHAPE(1, 4, 5, 5), 6, false);
    yk_autocast before = yk_autocast_begin(test_device_type, YK_BF16, NULL);
    yk_tensor *out = yk_forward(conv, x);
    yk_autocast_end(before);
    assert_int_equal(yk_tensor_dtype(out), YK_BF16);
    expect_ok(yk_backward(yk_sum(out)));
    assert_int_equal(yk_tensor_dtype(yk_grad(w)), YK_F32);
    for (int d = 0; d < 4; d++)
        assert_int_equal(yk_stride(yk_grad(w), d), yk_stride(w, d));
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(casts_are_those_of_hand),
        cmocka_unit_test(parameters_are_cast_once),
        cmocka_unit_test(many_parameters_are_kept),
        cmocka_unit_test(a_cast_of_no_grad_is_not_trained_through),
        cmocka_unit_test(two_backwards_share_a_cast),
        cmocka_unit_test(regions_nest),
        cmocka_unit_test(a_thread_has_its_own),
        cmocka_unit_test(other_dtypes_are_refused),
        cmocka_unit_test(bad_input_is_refused_as_ever),
        cmocka_unit_test(ends_are_counted),
        cmocka_unit_test(custom_functions_keep_their_modes),
        cmocka_unit_test(gradients_have_the_order_of_the_parameter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
