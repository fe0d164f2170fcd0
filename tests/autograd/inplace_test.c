/*
 * inplace_test.c - views and writes in place: hundreds of random programs against PyTorch, and by hand what makes them:
 * history through a view and under one, what is refused, versions in messages, cycles.
 */
#include "tests/support/expect.h"
#include "tests/support/golden.h"

#include <yoke/ops.h>

static const yk_tensor_options *const f64 = YK_OPTIONS(yk_tensor_options, .dtype = YK_F64);
static const yk_tensor_options *const f64_leaf = YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true);

/* ---- random programs --------------------------------------------------------------------------------------------- */

/* In the order of op_names. */
enum {
    IN_CLONE,
    IN_SCALE,
    IN_MUL,
    IN_ADD,
    IN_EXP,
    IN_SELECT,
    IN_NARROW,
    IN_TRANSPOSE,
    IN_FLATTEN,
    IN_UNBIND,
    IN_DETACH,
    IN_ADD_,
    IN_MUL_,
    IN_SCALE_,
    IN_RELU_,
    IN_COPY_,
    IN_FILL_,
    IN_NO_GRAD,
    IN_GRAD,
    IN_OPS
};
static const char *const op_names[IN_OPS] = {"clone",     "scale",   "mul",    "add",     "exp",  "select", "narrow",
                                             "transpose", "flatten", "unbind", "detach",  "add_", "mul_",   "scale_",
                                             "relu_",     "copy_",   "fill_",  "no_grad", "grad"};

enum { IN_STEPS = 9, IN_REGISTERS = 12 };
typedef struct inplace_step {
    int op, a, b, p, q;
    double number;
    int fails;
} inplace_step;
typedef struct inplace_case {
    int seed;
    inplace_step steps[IN_STEPS];
    int registers, refused;
    int backward; /* 0: nothing requires a gradient, 1: it works, 2: it fails */
    double grads[16];
    double sums[IN_REGISTERS];
} inplace_case;

static int op_named(const char *name)
{
    for (int i = 0; i < IN_OPS; i++)
        if (strcmp(name, op_names[i]) == 0)
            return i;
    fail_msg("no step is called %s", name);
    return 0;
}

static inplace_case read_program(const char *row)
{
    inplace_case c = {.seed = golden_integer(&row)};
    for (int i = 0; i < IN_STEPS; i++) {
        inplace_step *s = &c.steps[i];
        char name[20];
        s->op = op_named(golden_word(&row, name, sizeof(name)));
        s->a = golden_integer(&row);
        s->b = golden_integer(&row);
        s->p = golden_integer(&row);
        s->q = golden_integer(&row);
        s->number = golden_number(&row);
        s->fails = golden_integer(&row);
    }
    c.registers = golden_integer(&row);
    assert_in_range(c.registers, 3, IN_REGISTERS);
    c.refused = golden_integer(&row);
    c.backward = golden_integer(&row);
    for (int i = 0; i < 16; i++)
        c.grads[i] = golden_number(&row);
    for (int i = 0; i < c.registers; i++)
        c.sums[i] = golden_number(&row);
    assert_int_equal(*row, 0);
    return c;
}

static void make_leaves(yk_tensor **r)
{
    double a[12], c[12];
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 4; j++) {
            a[4 * i + j] = (7 * i + 3 * j) % 11 / 8.0 - 0.6;
            c[4 * i + j] = (5 * i + 2 * j) % 7 / 4.0 - 0.7;
        }
    }
    r[0] = yk_from_data(a, YK_SHAPE(3, 4), f64_leaf);
    r[1] = yk_from_data((double[]){0.5, -0.75, 1.25, -0.25}, YK_SHAPE(4), f64_leaf);
    r[2] = yk_from_data(c, YK_SHAPE(3, 4), f64);
}

static yk_tensor *unbound(yk_tensor *x, int dim, int index)
{
    yk_tensor *parts[12];
    int count;
    return yk_unbind(x, dim, parts, 12, &count) ? NULL : parts[index];
}

static yk_tensor *apply(const inplace_step *s, yk_tensor **r)
{
    yk_tensor *x = r[s->a], *y = s->b >= 0 ? r[s->b] : NULL;
    switch (s->op) {
    case IN_CLONE: return yk_clone(x);
    case IN_SCALE: return yk_mul_scalar(x, s->number);
    case IN_MUL: return yk_mul(x, y);
    case IN_ADD: return yk_add(x, y);
    case IN_EXP: return yk_exp(yk_mul_scalar(x, 0.25));
    case IN_SELECT: return yk_select(x, s->p, s->q);
    case IN_NARROW: return yk_narrow(x, s->p, s->q, yk_size(x, s->p) - s->q);
    case IN_TRANSPOSE: return yk_transpose(x, 0, 1);
    case IN_FLATTEN: return yk_view(x, YK_SHAPE(-1));
    case IN_UNBIND: return unbound(x, s->p, s->q);
    case IN_DETACH: return yk_detach(x);
    case IN_ADD_: return yk_add_(x, y, s->number);
    case IN_MUL_: return yk_mul_(x, y);
    case IN_SCALE_: return yk_mul_scalar_(x, s->number);
    case IN_RELU_: return yk_relu_(x);
    case IN_COPY_: return yk_copy_(x, y);
    default: return yk_fill_(x, s->number);
    }
}

/* The sum over all registers that can still be used; which cannot goes to *refused. */
static yk_tensor *weigh(yk_tensor **r, int count, int *refused)
{
    yk_tensor *total = NULL;
    *refused = 0;
    for (int i = 0; i < count; i++) {
        yk_tensor *term = r[i] ? yk_sum(yk_mul_scalar(r[i], 0.1 * (i + 1))) : NULL;
        if (!term)
            *refused |= 1 << i;
        yk_clear_error();
        total = term && total ? yk_add(total, term) : term ? term : total;
    }
    return total;
}

static void expect_close(const inplace_case *c, const char *what, int i, double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-12 + 1e-12 * fabs(expected)))
        fail_msg("program %d: %s %d is %.17g, expected %.17g", c->seed, what, i, value, expected);
}

static void run_program(const inplace_case *c)
{
    yk_tensor *r[IN_REGISTERS] = {NULL};
    int count = 3, refused = 0;
    bool recording = true;
    make_leaves(r);
    for (int i = 0; i < IN_STEPS; i++) {
        const inplace_step *s = &c->steps[i];
        if (s->op == IN_NO_GRAD || s->op == IN_GRAD) {
            bool off = recording ? yk_no_grad_begin() : false;
            recording = s->op == IN_GRAD;
            if (recording)
                yk_no_grad_end(off);
            continue;
        }
        yk_tensor *made = apply(s, r);
        if ((made == NULL) != (s->fails != 0))
            fail_msg("program %d, step %d: %s, expected that it %s", c->seed, i,
                     made ? "it works" : yk_last_error()->message, s->fails ? "fails" : "works");
        yk_clear_error();
        if (s->op < IN_ADD_)
            r[count++] = made;
    }
    yk_no_grad_end(false);
    assert_int_equal(count, c->registers);
    yk_tensor *total = weigh(r, count, &refused);
    if (refused != c->refused)
        fail_msg("program %d: registers %x are refused, expected %x", c->seed, refused, c->refused);
    for (int i = 0; i < count; i++) {
        double values[12], sum = 0;
        int64_t n = yk_numel(r[i]);
        if (r[i])
            expect_ok(yk_tensor_read(r[i], values, sizeof(double) * (size_t)n));
        for (int64_t k = 0; k < n; k++)
            sum += values[k] * (double)(k + 1);
        expect_close(c, "register", i, sum, c->sums[i]);
    }
    assert_int_equal(yk_requires_grad(total), c->backward != 0);
    if (!c->backward)
        return;
    yk_status status = yk_backward(total);
    if ((status != YK_OK) != (c->backward == 2))
        fail_msg("program %d: backward: %s, expected that it %s", c->seed, status ? yk_last_error()->message : "works",
                 c->backward == 2 ? "fails" : "works");
    if (status)
        expect_error(YK_ERR_STATE, "has been modified by an inplace operation: it is at version ");
    for (int i = 0; i < 16 && !status; i++) {
        yk_tensor *grad = yk_grad(r[i >= 12]);
        int64_t index[2] = {i < 12 ? i / 4 : i - 12, i % 4};
        expect_close(c, "gradient", i, grad ? yk_get(grad, index) : 0, c->grads[i]);
    }
}

static void test_programs(void **state)
{
    (void)state;
    size_t count;
    const char *const *programs = golden_rows("inplace", "programs", &count);
    assert_true(count >= 300);
    for (size_t i = 0; i < count; i++) {
        inplace_case c = read_program(programs[i]);
        yk_scope scope = yk_scope_begin();
        run_program(&c);
        yk_scope_end(scope);
    }
}

/* ---- by hand ----------------------------------------------------------------------------------------------------- */

static double grad_at(yk_tensor *x, int64_t i)
{
    return yk_get(yk_grad(x), &i);
}

/* x[0] += 1, gradients flowing to the maker of x and past it, and to what was added. */
static void test_through_a_view(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *w = yk_full(YK_SHAPE(3), 2, f64_leaf), *v = yk_full(YK_SHAPE(), 5, f64_leaf);
    yk_tensor *x = yk_mul(w, w), *first = yk_select(x, 0, 0), *other = yk_narrow(x, 0, 0, 2);
    assert_ptr_equal(yk_mul_scalar_(first, 3), first);
    assert_ptr_equal(yk_add_(first, v, 10), first);
    assert_string_equal(yk_grad_fn_name(x), "copy_slices");
    assert_string_equal(yk_grad_fn_name(first), "as_strided");
    expect_near(yk_get(x, (int64_t[]){0}), 62, 0, 0);
    expect_near(yk_get(other, (int64_t[]){0}), 62, 0, 0);
    /* x twice, the view that was written once, and another view, made before. */
    yk_tensor *loss = yk_add(yk_sum(yk_mul_scalar(x, 2)), yk_add(first, yk_sum(other)));
    expect_ok(yk_backward(loss));
    expect_near(grad_at(w, 0), 4 * (2 + 1 + 1) * 3, 0, 0);
    expect_near(grad_at(w, 1), 4 * (2 + 1), 0, 0);
    expect_near(grad_at(w, 2), 4 * 2, 0, 0);
    expect_near(yk_item(yk_grad(v)), 10 * 4, 0, 0);

    /* A buffer without history becomes part of a graph by its parts. */
    yk_tensor *buffer = yk_zeros(YK_SHAPE(2, 3), f64), *row = yk_select(buffer, 0, 1);
    expect_ok(yk_set_grad(w, NULL));
    assert_non_null(yk_copy_(row, w));
    assert_true(yk_requires_grad(buffer) && yk_requires_grad(row));
    assert_false(yk_is_leaf(buffer));
    assert_non_null(yk_fill_(yk_narrow(row, 0, 2, 1), 7)); /* a view of a view: the base is the buffer */
    expect_ok(yk_backward(yk_sum(yk_mul(buffer, buffer))));
    expect_near(grad_at(w, 0), 4, 0, 0);
    expect_near(grad_at(w, 2), 0, 0, 0);
    yk_scope_end(scope);
}

/* A write of the base is seen by views that an operation repeats, transposes, reshapes. */
static void test_under_views(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *w = yk_arange(0, 3, 1, f64_leaf), *x = yk_mul_scalar(yk_reshape(w, YK_SHAPE(3, 1)), 1);
    yk_tensor *wide = yk_expand(x, YK_SHAPE(3, 4)), *turned = yk_transpose(wide, 0, 1);
    expect_ok(yk_retain_grad(x));
    assert_non_null(yk_mul_scalar_(x, 5));
    expect_ok(yk_backward(yk_sum(yk_add(turned, yk_transpose(wide, 0, 1)))));
    for (int64_t i = 0; i < 3; i++)
        expect_near(grad_at(w, i), 40, 0, 0);
    expect_near(yk_get(yk_grad(x), (int64_t[]){1, 0}), 8, 0, 0); /* of x as it is now */

    /* A view kept alone holds what it needs; detach does not follow. */
    yk_tensor *y = yk_mul_scalar(w, 1), *part = yk_tensor_retain(yk_narrow(y, 0, 1, 2)), *off = yk_detach(y);
    assert_non_null(yk_mul_scalar_(y, 2));
    assert_false(yk_requires_grad(off));
    expect_near(yk_get(off, (int64_t[]){2}), 4, 0, 0);
    expect_ok(yk_set_grad(w, NULL));
    expect_ok(yk_backward(yk_sum(part)));
    expect_near(grad_at(w, 2), 2, 0, 0);
    yk_tensor_release(part);
    yk_scope_end(scope);
}

static yk_tensor *view_forward(yk_custom *context, yk_tensor *const *inputs, int n)
{
    (void)context, (void)n;
    return yk_narrow(inputs[0], 0, 0, 2);
}

static yk_status view_backward(yk_custom *context, yk_tensor *grad, yk_tensor **grads, int n)
{
    (void)context, (void)n;
    grads[0] = yk_cat((yk_tensor *[]){grad, yk_zeros(YK_SHAPE(1), f64)}, 2, 0);
    return YK_OK;
}

/* A tensor that is filled with zeros passes no gradient on, and is zeros whatever was there (NaN, infinity). */
static void test_zeroed(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *leaf = yk_full(YK_SHAPE(2, 3), INFINITY, YK_OPTIONS(yk_tensor_options, .requires_grad = true));
    yk_tensor *y = yk_mul_scalar(leaf, 2), *row = yk_select(y, 0, 1);
    assert_ptr_equal(yk_zero_(row), row);
    expect_near(yk_get(y, (int64_t[]){1, 2}), 0, 0, 0);
    expect_near(yk_get(y, (int64_t[]){0, 2}), INFINITY, 0, 0);
    expect_ok(yk_backward(yk_sum(y)));
    for (int64_t i = 0; i < 3; i++) {
        expect_near(yk_get(yk_grad(leaf), (int64_t[]){0, i}), 2, 0, 0);
        expect_near(yk_get(yk_grad(leaf), (int64_t[]){1, i}), 0, 0, 0);
    }
    yk_tensor *nan = yk_full(YK_SHAPE(3), NAN, NULL);
    assert_ptr_equal(yk_zero_(nan), nan);
    expect_near(yk_item(yk_sum(nan)), 0, 0, 0);
    yk_scope_end(scope);
}

static void test_refused(void **state)
{
    (void)state;
    static const yk_custom_function shows = {.name = "shows", .forward = view_forward, .backward = view_backward};
    yk_scope scope = yk_scope_begin();
    yk_tensor *leaf = yk_full(YK_SHAPE(3), 2, f64_leaf), *x = yk_mul_scalar(leaf, 1), *parts[3];
    int count;
    assert_null(yk_fill_(leaf, 1));
    expect_error(YK_ERR_STATE, "fill_: a leaf that requires a gradient");
    assert_null(yk_fill_(yk_select(leaf, 0, 1), 1));
    expect_error(YK_ERR_STATE, "fill_: a view of a leaf that requires a gradient");
    expect_ok(yk_unbind(x, 0, parts, 3, &count));
    assert_null(yk_fill_(parts[0], 1));
    expect_error(YK_ERR_STATE, "fill_: the tensor is one of several views");
    bool previous = yk_no_grad_begin();
    yk_tensor *silent = yk_select(x, 0, 0);
    yk_no_grad_end(previous);
    assert_null(yk_add_(silent, yk_select(x, 0, 1), 1));
    expect_error(YK_ERR_STATE, "add_: the tensor is a view that was made while nothing was recorded");
    yk_tensor *shown = yk_custom_apply(&shows, &x, 1, NULL);
    assert_null(yk_fill_(shown, 1));
    expect_error(YK_ERR_STATE, "fill_: the tensor is a view that a custom function gave back");
    assert_null(yk_fill_(yk_expand(yk_select(x, 0, 0), YK_SHAPE(4)), 1));
    expect_error(YK_ERR_STATE, "fill_: the tensor is expanded, so several elements share memory");
    yk_tensor *empty = yk_expand(yk_zeros(YK_SHAPE(0, 1), NULL), YK_SHAPE(0, 4));
    assert_non_null(yk_fill_(yk_mul_scalar(empty, 1), 1)); /* the result of an operation on an expanded tensor is not
                                                            * expanded */
    yk_tensor *square = yk_mul_scalar(yk_ones(YK_SHAPE(3, 3), f64_leaf), 1);
    assert_null(yk_add_(square, yk_select(square, 0, 1), 1));
    expect_error(YK_ERR_STATE, "add_: the tensor of shape (3, 3) that is written shares some of its elements");
    assert_null(yk_copy_(square, yk_transpose(square, 0, 1)));
    expect_error(YK_ERR_STATE, "copy_: the tensor of shape (3, 3) that is written shares");
    assert_non_null(yk_add_(yk_select(square, 1, 0), yk_select(square, 1, 1), 1)); /* side by side */

    /* Such views are of no more use in a graph once their base was written; outside of one they are. */
    assert_non_null(yk_mul_scalar_(x, 2));
    assert_null(yk_mul_scalar(parts[1], 2));
    expect_error(YK_ERR_STATE,
                 "is one of several views that one operation made, and what it shows was changed in place "
                 "since: it was made at version 0 and is at version 1");
    assert_true(yk_requires_grad(parts[1]));
    previous = yk_no_grad_begin();
    expect_near(yk_item(yk_mul_scalar(parts[1], 2)), 8, 0, 0);
    yk_no_grad_end(previous);
    yk_scope_end(scope);
}

/* The leak checker sees what a cycle would keep: tensors that are saved, then written with the result. */
static void test_no_cycles(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *w = yk_full(YK_SHAPE(4), 2, f64_leaf);
    yk_tensor *plain = yk_ones(YK_SHAPE(4), f64);
    assert_non_null(yk_add_(plain, yk_mul(plain, w), 1)); /* mul keeps `plain`, whose maker now reaches mul */
    assert_int_equal(yk_backward(yk_sum(plain)), YK_ERR_STATE);
    expect_error(
        YK_ERR_STATE,
        "mul: a tensor of shape (4,) that its gradient needs has been modified by an inplace operation: it is at "
        "version 1, expected 0");
    yk_tensor *base = yk_ones(YK_SHAPE(4), f64), *part = yk_narrow(base, 0, 0, 2);
    assert_non_null(yk_add_(part, yk_mul(part, yk_narrow(w, 0, 0, 2)), 1));
    assert_non_null(yk_mul_(yk_narrow(base, 0, 2, 2), yk_mul(part, part)));
    yk_tensor *through = yk_ones(YK_SHAPE(2, 2), f64), *row = yk_select(through, 0, 0);
    assert_non_null(yk_mul_(row, yk_mul(yk_select(through, 0, 1), yk_narrow(w, 0, 0, 2))));
    assert_non_null(yk_add_(yk_select(through, 0, 1), row, 1));
    assert_int_equal(yk_backward(yk_sum(through)), YK_ERR_STATE);
    yk_clear_error();
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_programs), cmocka_unit_test(test_through_a_view), cmocka_unit_test(test_under_views),
        cmocka_unit_test(test_zeroed),   cmocka_unit_test(test_refused),        cmocka_unit_test(test_no_cycles),
    };
    return cmocka_run_group_tests_name("inplace", tests, NULL, NULL);
}
