/*
 * tape_test.c - versions of saved tensors, writes in place, hooks, custom functions, the gradient checker.
 */
#include "tests/support/expect.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <yoke/ops.h>

#include "base/core.h"
#include "tests/support/machine.h"

static const yk_tensor_options *const f64 = YK_OPTIONS(yk_tensor_options, .dtype = YK_F64);
static const yk_tensor_options *const f64_leaf = YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true);

static void test_saved_tensor_changed(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_full(YK_SHAPE(2, 2), 3, f64_leaf), *w = yk_full(YK_SHAPE(2, 2), 2, f64);
    yk_tensor *y = yk_sum(yk_mul(x, w));
    assert_non_null(yk_mul_scalar_(w, 10)); /* w is no part of the graph, but mul needs it */
    assert_int_equal(yk_backward(y), YK_ERR_STATE);
    expect_error(
        YK_ERR_STATE,
        "mul: a tensor of shape (2, 2) that its gradient needs has been modified by an inplace operation: it is at "
        "version 1, expected 0");
    yk_scope_end(scope);
}

static void test_in_place_rules(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_full(YK_SHAPE(3), 3, f64_leaf);
    assert_null(yk_mul_scalar_(x, 2));
    expect_error(YK_ERR_STATE, "a leaf that requires a gradient cannot be changed in place");
    bool previous = yk_no_grad_begin();
    assert_ptr_equal(yk_mul_scalar_(x, 2), x);
    yk_no_grad_end(previous);
    expect_near(yk_get(x, (int64_t[]){0}), 6, 0, 0);

    /* y = (2x) then y *= 3 in place: recorded, the gradient is 6. */
    yk_tensor *y = yk_mul_scalar(x, 2);
    assert_ptr_equal(yk_mul_scalar_(y, 3), y);
    expect_ok(yk_backward(yk_sum(y)));
    expect_near(yk_get(yk_grad(x), (int64_t[]){1}), 6, 0, 0);

    /* A plain tensor that takes up a tensor with history becomes part of the graph. */
    expect_ok(yk_set_grad(x, NULL));
    yk_tensor *sum = yk_zeros(YK_SHAPE(3), f64);
    assert_non_null(yk_add_(sum, yk_mul_scalar(x, 4), 1));
    assert_non_null(yk_add_(sum, x, 0.5));
    assert_true(yk_requires_grad(sum));
    expect_ok(yk_backward(yk_sum(sum)));
    expect_near(yk_get(yk_grad(x), (int64_t[]){2}), 4.5, 0, 0);

    /* exp needs its own result: what was overwritten is missed by backward, and no sooner. */
    yk_tensor *e = yk_exp(x);
    assert_non_null(yk_mul_scalar_(e, 2));
    assert_int_equal(yk_backward(yk_sum(e)), YK_ERR_STATE);
    expect_error(
        YK_ERR_STATE,
        "exp: a tensor of shape (3,) that its gradient needs has been modified by an inplace operation: it is at "
        "version 1, expected 0");

    yk_tensor *wide = yk_expand(yk_zeros(YK_SHAPE(1), NULL), YK_SHAPE(4));
    assert_null(yk_mul_scalar_(wide, 2));
    expect_error(YK_ERR_STATE, "several elements share memory");
    assert_null(
        yk_fill_(yk_expand(yk_select(yk_square(x), 0, 0), YK_SHAPE(4)), 1)); /* not where it would be recorded */
    expect_error(YK_ERR_STATE, "fill_: the tensor is expanded, so several elements share memory");
    assert_ptr_equal(yk_fill_(wide, 1), wide); /* the same for all: the one write that may go there */
    expect_near(yk_item(yk_sum(wide)), 4, 0, 0);
    yk_scope_end(scope);
}

typedef struct seen {
    int calls;
    double value;
} seen;

static yk_tensor *doubling_hook(yk_tensor *grad, void *user)
{
    seen *s = user;
    s->calls++;
    s->value = yk_item(grad);
    return yk_mul_scalar(grad, 2);
}

static yk_tensor *watching_hook(yk_tensor *grad, void *user)
{
    seen *s = user;
    s->calls++;
    s->value = yk_item(grad);
    return NULL;
}

static yk_tensor *misshaping_hook(yk_tensor *grad, void *user)
{
    (void)grad, (void)user;
    return yk_zeros(YK_SHAPE(7), f64);
}

static yk_status leaf_hook(yk_tensor *x, void *user)
{
    seen *s = user;
    s->calls++;
    s->value = yk_item(yk_grad(x));
    return YK_OK;
}

static void test_hooks(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_scalar(3, f64_leaf);
    yk_tensor *y = yk_mul(x, x), *z = yk_mul_scalar(y, 5);
    seen on_y = {0}, on_x = {0}, after = {0};
    assert_int_not_equal(yk_register_hook(y, doubling_hook, &on_y), 0);
    uint64_t id = yk_register_hook(x, watching_hook, &on_x);
    assert_int_not_equal(id, 0);
    assert_int_not_equal(yk_register_post_accumulate_hook(x, leaf_hook, &after), 0);
    expect_ok(yk_retain_grad(y));
    expect_ok(yk_backward(z));
    assert_int_equal(on_y.calls, 1);
    expect_near(on_y.value, 5, 0, 0);
    expect_near(yk_item(yk_grad(y)), 10, 0, 0); /* the hook's result */
    assert_int_equal(on_x.calls, 1);            /* once, after both uses of x have delivered */
    expect_near(on_x.value, 60, 0, 0);
    assert_int_equal(after.calls, 1);
    expect_near(after.value, 60, 0, 0);

    expect_ok(yk_hook_remove(x, id));
    assert_int_equal(yk_hook_remove(x, id), YK_ERR_NOT_FOUND);
    expect_error(YK_ERR_NOT_FOUND, "no hook");
    expect_ok(yk_backward(yk_mul_scalar(x, 1)));
    assert_int_equal(on_x.calls, 1);
    assert_int_equal(after.calls, 2);
    expect_near(after.value, 61, 0, 0);

    assert_int_equal(yk_register_hook(yk_scalar(1, NULL), watching_hook, &on_x), 0);
    expect_error(YK_ERR_STATE, "does not require a gradient");
    assert_int_equal(yk_register_post_accumulate_hook(yk_mul_scalar(x, 1), leaf_hook, &after), 0);
    expect_error(YK_ERR_STATE, "only leaves accumulate");
    yk_tensor *bad = yk_mul_scalar(x, 1);
    assert_int_not_equal(yk_register_hook(bad, misshaping_hook, NULL), 0);
    assert_int_equal(yk_backward(bad), YK_ERR_SHAPE);
    expect_error(YK_ERR_SHAPE, "shape (7,)");
    yk_scope_end(scope);
}

/* The gradient that yk_retain_grad keeps has memory of its own, also where an operation's gradient is that of its
 * result: of a view, of a sum's terms, of a tensor whose gradient was given from outside. */
static void test_retained_gradients_are_apart(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *a = yk_ones(YK_SHAPE(2), f64_leaf), *r = yk_mul_scalar(a, 1), *s = yk_mul_scalar(a, 1);
    yk_tensor *v = yk_view(r, YK_SHAPE(2, 1)), *sum = yk_add(v, yk_view(s, YK_SHAPE(2, 1)));
    yk_tensor *all[] = {r, s, v, sum},
              *given = yk_full(YK_SHAPE(2, 1), 3, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    for (int i = 0; i < 4; i++)
        expect_ok(yk_retain_grad(all[i]));
    expect_ok(yk_backward_with(sum, YK_OPTIONS(yk_backward_options, .gradient = given)));
    for (int i = 0; i < 4; i++) {
        expect_near(yk_item(yk_sum(yk_grad(all[i]))), 6, 0, 0);
        yk_mul_scalar_(yk_grad(all[i]), 9);
    }
    expect_near(yk_item(yk_sum(given)), 6, 0, 0);
    expect_near(yk_item(yk_sum(yk_grad(a))), 12, 0, 0);
    /* The gradient of a sum is one number for all elements: kept, each has its own. */
    yk_tensor *t = yk_mul_scalar(a, 1);
    expect_ok(yk_retain_grad(t));
    expect_ok(yk_backward(yk_sum(t)));
    yk_fill_(yk_select(yk_grad(t), 0, 1), 5);
    expect_near(yk_item(yk_sum(yk_grad(t))), 6, 0, 0);
    yk_scope_end(scope);
}

/* f(a, b) = a^2 b, with what backward needs saved by hand; user counts calls. */
static yk_tensor *custom_forward(yk_custom *context, yk_tensor *const *inputs, int n)
{
    assert_int_equal(n, 2);
    assert_false(yk_grad_enabled());
    if (yk_custom_save(context, inputs[0]) || yk_custom_save(context, inputs[1]))
        return NULL;
    return yk_mul(yk_mul(inputs[0], inputs[0]), inputs[1]);
}

static yk_status custom_backward(yk_custom *context, yk_tensor *grad, yk_tensor **grads, int n)
{
    assert_int_equal(n, 2);
    (*(int *)yk_custom_user(context))++;
    yk_tensor *a = yk_custom_saved(context, 0), *b = yk_custom_saved(context, 1);
    if (yk_custom_needs_grad(context, 0))
        grads[0] = yk_mul(grad, yk_mul_scalar(yk_mul(a, b), 2));
    if (yk_custom_needs_grad(context, 1))
        grads[1] = yk_mul(grad, yk_mul(a, a));
    return YK_OK;
}

static const yk_custom_function square_times = {
    .name = "square_times", .forward = custom_forward, .backward = custom_backward};

static yk_tensor *call_custom(yk_tensor *const *inputs, int n, void *user)
{
    return yk_custom_apply(&square_times, inputs, n, user);
}

static void test_custom(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    int calls = 0;
    yk_tensor *inputs[2] = {yk_randn(YK_SHAPE(3, 2), f64_leaf), yk_randn(YK_SHAPE(3, 2), f64_leaf)};
    expect_ok(yk_gradcheck(call_custom, inputs, 2, &calls, NULL));
    assert_int_equal(calls, 1);
    yk_tensor *y = yk_custom_apply(&square_times, inputs, 2, &calls);
    assert_string_equal(yk_grad_fn_name(y), "square_times");

    /* Only the second input needs a gradient. */
    yk_tensor *mixed[2] = {yk_randn(YK_SHAPE(3, 2), f64), inputs[1]};
    expect_ok(yk_gradcheck(call_custom, mixed, 2, &calls, NULL));

    /* A saved tensor that was changed since. */
    yk_tensor *plain = yk_randn(YK_SHAPE(3, 2), f64);
    yk_tensor *two[2] = {inputs[0], plain};
    yk_tensor *z = yk_sum(yk_custom_apply(&square_times, two, 2, &calls));
    assert_non_null(yk_fill_(plain, 0));
    assert_int_equal(yk_backward(z), YK_ERR_STATE);
    expect_error(YK_ERR_STATE,
                 "square_times: saved tensor 1 of shape (3, 2) has been modified by an inplace operation");
    yk_scope_end(scope);
}

/* The struct that says what the function is may be gone, or another one, when backward runs. */
static yk_tensor *apply_for_a_while(yk_tensor *const *inputs, int *calls)
{
    static yk_custom_function kept;
    kept = square_times;
    yk_tensor *y = yk_custom_apply(&kept, inputs, 2, calls);
    kept = (yk_custom_function){.name = "none"};
    return y;
}

static void test_custom_struct_is_copied(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    int calls = 0;
    yk_tensor *inputs[2] = {yk_randn(YK_SHAPE(3, 2), f64_leaf), yk_randn(YK_SHAPE(3, 2), f64_leaf)};
    expect_ok(yk_backward(yk_sum(apply_for_a_while(inputs, &calls))));
    assert_int_equal(calls, 1);
    assert_non_null(yk_grad(inputs[1]));
    yk_scope_end(scope);
}

static yk_tensor *exp_forward(yk_custom *context, yk_tensor *const *inputs, int n)
{
    (void)n;
    yk_tensor *out = yk_exp(inputs[0]);
    return yk_custom_save(context, out) ? NULL : out;
}

static yk_status exp_backward(yk_custom *context, yk_tensor *grad, yk_tensor **grads, int n)
{
    (void)n;
    grads[0] = yk_mul(grad, yk_custom_saved(context, 0));
    return YK_OK;
}

static yk_status wrong_backward(yk_custom *context, yk_tensor *grad, yk_tensor **grads, int n)
{
    (void)context, (void)n;
    grads[0] = yk_mul_scalar(grad, 3);
    return YK_OK;
}

static yk_tensor *call_any(yk_tensor *const *inputs, int n, void *user)
{
    return yk_custom_apply(user, inputs, n, NULL);
}

/* A saved output must not keep itself alive (the leak checker sees it), and a wrong backward must be caught. */
static void test_custom_saved_output_and_gradcheck_failure(void **state)
{
    (void)state;
    static yk_custom_function right = {.name = "own_exp", .forward = exp_forward, .backward = exp_backward};
    static yk_custom_function wrong = {.name = "wrong_exp", .forward = exp_forward, .backward = wrong_backward};
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_randn(YK_SHAPE(5), f64_leaf);
    expect_ok(yk_gradcheck(call_any, &x, 1, &right, NULL));
    assert_int_equal(yk_gradcheck(call_any, &x, 1, &wrong, NULL), YK_ERR_NUMERIC);
    expect_error(YK_ERR_NUMERIC, "gradcheck: input 0, element 0: backward gives");
    yk_tensor *narrow = yk_randn(YK_SHAPE(5), YK_OPTIONS(yk_tensor_options, .requires_grad = true));
    assert_int_equal(yk_gradcheck(call_any, &narrow, 1, &right, NULL), YK_ERR_DTYPE);
    expect_error(YK_ERR_DTYPE, "must be float64");
    yk_scope_end(scope);
}

static yk_tensor *null_forward(yk_custom *context, yk_tensor *const *inputs, int n)
{
    (void)context, (void)inputs, (void)n;
    return NULL;
}

static void test_misuse(void **state)
{
    (void)state;
    static const yk_custom_function null = {.name = "nothing", .forward = null_forward, .backward = exp_backward};
    assert_null(yk_zeros(YK_SHAPE(2), NULL));
    expect_error(YK_ERR_STATE, "zeros: no scope is open");
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_zeros(YK_SHAPE(2), f64_leaf);
    assert_null(yk_custom_apply(&null, &x, 1, NULL));
    expect_error(YK_ERR_CALLBACK, "nothing: forward returned NULL");
    /* The first error of an expression stays; what is built on it keeps quiet. */
    assert_null(yk_relu(yk_add(yk_matmul(x, yk_zeros(YK_SHAPE(3), f64)), x)));
    expect_error(YK_ERR_SHAPE, "matmul");
    assert_null(yk_relu(NULL));
    expect_error(YK_ERR_ARGUMENT, "relu: argument 1 is NULL");
    yk_scope_end(scope);
}

/* The scope cannot grow just as a custom operation's result is handed out: an error, and its context is freed once. */
static yk_tensor *same_forward(yk_custom *context, yk_tensor *const *inputs, int n)
{
    (void)n;
    return yk_custom_save(context, inputs[0]) ? NULL : inputs[0];
}

static void apply_without_room(void)
{
    static const yk_custom_function same = {.name = "same", .forward = same_forward, .backward = exp_backward};
    yk_scope_begin();
    yk_tensor *x = yk_zeros(YK_SHAPE(2), f64_leaf);
    for (int owned = 1; owned < 1 << 20; owned++) /* the list is 8 MB and full; the next is 16 */
        if (!yk__scope_own(yk_object_retain(x)))
            _exit(2);
    long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    if (!statm || fscanf(statm, "%ld", &pages) != 1 || fclose(statm))
        _exit(3);
    rlim_t bytes = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (1 << 20);
    if (setrlimit(RLIMIT_AS, &(struct rlimit){bytes, bytes}))
        _exit(4);
    bool failed = !yk_custom_apply(&same, &x, 1, NULL);
    _exit(failed && yk_last_error()->code == YK_ERR_MEMORY ? 0 : 5);
}

static void test_no_room_in_the_scope(void **state)
{
    (void)state;
#ifdef YK__SANITIZED
    skip(); /* a sanitizer's own memory cannot be limited so */
#endif
    if (!has_proc())
        skip(); /* the memory that is mapped already is not known */
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        apply_without_room();
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_saved_tensor_changed),
        cmocka_unit_test(test_in_place_rules),
        cmocka_unit_test(test_hooks),
        cmocka_unit_test(test_retained_gradients_are_apart),
        cmocka_unit_test(test_custom),
        cmocka_unit_test(test_custom_struct_is_copied),
        cmocka_unit_test(test_custom_saved_output_and_gradcheck_failure),
        cmocka_unit_test(test_misuse),
        cmocka_unit_test(test_no_room_in_the_scope),
    };
    return cmocka_run_group_tests_name("tape", tests, NULL, NULL);
}
