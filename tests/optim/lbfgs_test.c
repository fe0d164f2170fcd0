/*
 * lbfgs_test.c - LBFGS against PyTorch step by step: line search and fixed steps, tolerances, histories; state that
 * goes on to the bit and PyTorch's own; closures of other optimizers; what a failing closure leaves; refusals.
 */
#include "tests/support/expect.h"
#include "tests/support/golden.h"
#include "tests/support/test_device.h"

#include <stdio.h>
#include <unistd.h>

#include <yoke/checkpoint.h>

#include "optim/optimizer.h"

enum { A = 6, B = 4, ALL = A + B, STEPS = 4, ROW = ALL + 3 };

/* The data of a closure. */
typedef struct problem {
    yk_parameters *params;
    yk_optimizer *optimizer;
    double sign;
    int calls, fails_at; /* the call that fails, from 1; 0: none */
} problem;

static yk_tensor *slice(yk_tensor *x, int64_t from)
{
    return yk_narrow(x, 0, from, ALL - 1);
}

static yk_tensor *closure(void *user)
{
    problem *p = user;
    if (++p->calls == p->fails_at)
        return yk_reshape(yk_parameters_at(p->params, 0), 1, (const int64_t[]){5});
    yk_optimizer_zero_grad(p->optimizer);
    yk_tensor *parts[] = {yk_reshape(yk_parameters_at(p->params, 0), 1, (const int64_t[]){A}),
                          yk_parameters_at(p->params, 1)};
    yk_tensor *x = yk_cat(parts, 2, 0), *y = slice(x, 0), *z = slice(x, 1);
    yk_tensor *bend = yk_square(yk_sub(z, yk_square(y)));
    yk_tensor *pull = yk_div_scalar(yk_square(yk_sub_scalar(y, 1)), 4);
    yk_tensor *wall = yk_div_scalar(yk_square(yk_square(y)), 16);
    yk_tensor *loss = yk_mul_scalar(yk_sum(yk_add(yk_add(bend, pull), wall)), p->sign);
    return yk_backward(loss) ? NULL : loss;
}

static yk_parameters *parameters(bool columns, yk_dtype dtype)
{
    size_t count;
    const double *start = golden_numbers("lbfgs", "start", &count);
    const yk_tensor_options f64 = *YK_OPTIONS(yk_tensor_options, .dtype = YK_F64);
    yk_tensor *a = yk_from_data(start, YK_SHAPE(3, 2), &f64), *b = yk_from_data(start + A, YK_SHAPE(B), &f64);
    yk_parameters *p = yk_parameters_create();
    if (columns)
        a = yk_transpose(yk_contiguous(yk_transpose(a, 0, 1)), 0, 1);
    a = yk_detach(yk_cast(a, dtype));
    b = yk_detach(yk_cast(b, dtype));
    expect_ok(yk_set_requires_grad(a, true));
    expect_ok(yk_set_requires_grad(b, true));
    expect_ok(yk_parameters_add(p, "a", a));
    expect_ok(yk_parameters_add(p, "b", b));
    return p;
}

/* The options that make_lbfgs.py has under this name. */
static yk_optimizer *make(const char *name, yk_parameters *p)
{
#define CASE(text, ...)                                                                                                \
    if (strcmp(name, text) == 0)                                                                                       \
        return yk_lbfgs(p, YK_OPTIONS(yk_lbfgs_options, __VA_ARGS__));
    CASE("plain", .lr = 0.1)
    CASE("defaults", .lr = 0.3, .max_iter = 20)
    CASE("wolfe", .max_iter = 4, .line_search_fn = YK_STRONG_WOLFE)
    CASE("wolfe_long", .lr = 3, .max_iter = 6, .line_search_fn = YK_STRONG_WOLFE)
    CASE("wolfe_short", .lr = 1e-4, .max_iter = 3, .line_search_fn = YK_STRONG_WOLFE)
    CASE("history", .lr = 0.5, .max_iter = 6, .history_size = 3, .line_search_fn = YK_STRONG_WOLFE)
    CASE("evaluations", .lr = 0.1, .max_iter = 20, .max_eval = 5)
    CASE("wolfe_evaluations", .lr = 5, .max_iter = 20, .max_eval = 4, .line_search_fn = YK_STRONG_WOLFE)
    CASE("tolerance", .lr = 0.2, .max_iter = 50, .tolerance_grad = 1e-2)
    CASE("change", .max_iter = 50, .tolerance_change = 1e-2, .line_search_fn = YK_STRONG_WOLFE)
    CASE("maximize", .max_iter = 5, .maximize = true, .line_search_fn = YK_STRONG_WOLFE)
#undef CASE
    fail_msg("no test makes the optimizer %s", name);
    return NULL;
}
static const char *const cases[] = {"plain",       "defaults", "wolfe",       "wolfe_long",
                                    "wolfe_short", "history",  "evaluations", "wolfe_evaluations",
                                    "tolerance",   "change",   "maximize"};
enum { CASES = sizeof(cases) / sizeof(*cases) };

static void read_values(yk_parameters *p, double values[ALL])
{
    expect_ok(yk_tensor_read(yk_cast(yk_detach(yk_parameters_at(p, 0)), YK_F64), values, A * sizeof(double)));
    expect_ok(yk_tensor_read(yk_cast(yk_detach(yk_parameters_at(p, 1)), YK_F64), values + A, B * sizeof(double)));
}

static bool same(yk_parameters *p, yk_parameters *q)
{
    double a[ALL], b[ALL];
    read_values(p, a);
    read_values(q, b);
    return memcmp(a, b, sizeof(a)) == 0;
}

static double state_number(yk_optimizer *o, const char *name)
{
    yk_tensor *x = yk_state_dict_get(yk_optimizer_state_dict(o), name);
    return x ? yk_item(yk_cast(x, YK_F64)) : 0;
}

/* Steps from `from` on, compared with rows of the golden file. */
static void follow(const char *name, problem *p, int from, int to, double tolerance)
{
    size_t count;
    const double *rows = golden_numbers("lbfgs", name, &count);
    assert_int_equal(count, STEPS * ROW);
    for (int step = from; step < to; step++) {
        const double *row = rows + step * ROW;
        double loss, values[ALL];
        p->calls = 0;
        double before = state_number(p->optimizer, "state.a.func_evals");
        expect_ok(yk_optimizer_step_closure(p->optimizer, closure, p, &loss));
        read_values(p->params, values);
        if (!(fabs(loss - row[0]) <= tolerance))
            fail_msg("%s: step %d, the loss is %.17g, PyTorch has %.17g", name, step, loss, row[0]);
        for (int i = 0; i < ALL; i++)
            if (!(fabs(values[i] - row[3 + i]) <= tolerance))
                fail_msg("%s: step %d, element %d is %.17g, PyTorch has %.17g", name, step, i, values[i], row[3 + i]);
        assert_int_equal(yk_optimizer_state_step(p->optimizer, yk_parameters_at(p->params, 1)), row[1]);
        assert_int_equal(state_number(p->optimizer, "state.a.func_evals"), row[2]);
        assert_int_equal(p->calls, row[2] - before);
    }
}

static void follow_all(bool columns, yk_dtype dtype, int steps, double tolerance)
{
    for (int k = 0; k < CASES; k++) {
        yk_scope scope = yk_scope_begin();
        problem p = {.params = parameters(columns, dtype), .sign = strcmp(cases[k], "maximize") ? 1 : -1};
        p.optimizer = make(cases[k], p.params);
        expect_ok(p.optimizer == NULL);
        follow(cases[k], &p, 0, steps, tolerance);
        yk_scope_end(scope);
    }
    assert_null(yk_last_error());
}

static void test_pytorch(void **state)
{
    (void)state;
    follow_all(false, YK_F64, STEPS, 1e-8);
    follow_all(true, YK_F64, STEPS, 1e-8);
}

/* f32: one step, before roundings grow. */
static void test_f32(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    problem p = {.params = parameters(false, YK_F32), .sign = 1};
    p.optimizer = make("wolfe", p.params);
    follow("wolfe", &p, 0, 1, 1e-4);
    yk_scope_end(scope);
}

/* The state of a run in a new optimizer goes on with the same bits, as a dict and in PyTorch's form; a history that has
 * become shorter drops the oldest pairs. */
static void test_resume(void **state)
{
    (void)state;
    for (int form = 0; form < 2; form++) {
        yk_scope scope = yk_scope_begin();
        problem p = {.params = parameters(false, YK_F64), .sign = 1};
        problem q = {.params = parameters(false, YK_F64), .sign = 1};
        p.optimizer = make("history", p.params);
        q.optimizer = yk_lbfgs(q.params, NULL);
        follow("history", &p, 0, 2, 1e-8);
        if (form)
            expect_ok(yk_optimizer_load_value(q.optimizer, yk_value_from_optimizer(p.optimizer)));
        else
            expect_ok(yk_optimizer_load_state_dict(q.optimizer, yk_optimizer_state_dict(p.optimizer)));
        bool recording = yk_no_grad_begin();
        for (int i = 0; i < 2; i++)
            assert_non_null(yk_copy_(yk_parameters_at(q.params, i), yk_parameters_at(p.params, i)));
        yk_no_grad_end(recording);
        assert_true(yk_optimizer_option(q.optimizer, 0, "history_size") == 3);
        assert_true(yk_optimizer_option(q.optimizer, 0, "line_search_fn") == YK_STRONG_WOLFE);
        follow("history", &p, 2, STEPS, 1e-8);
        follow("history", &q, 2, STEPS, 1e-8);
        assert_true(same(p.params, q.params));
        expect_ok(yk_optimizer_set_option(q.optimizer, 0, "history_size", 1));
        expect_ok(yk_optimizer_step_closure(q.optimizer, closure, &q, NULL));
        assert_int_equal(yk_sizes(yk_state_dict_get(yk_optimizer_state_dict(q.optimizer), "state.a.old_dirs"))[0], 1);
        yk_scope_end(scope);
    }
    assert_null(yk_last_error());
}

/* PyTorch's file: its optimizer's state after two steps. */
static void test_pytorch_file(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    problem p = {.params = parameters(false, YK_F64), .sign = 1};
    p.optimizer = yk_lbfgs(p.params, NULL);
    yk_value *file = yk_pt_load(source_path("tests/golden/lbfgs.pt"), NULL);
    expect_ok(file == NULL);
    expect_ok(yk_optimizer_load_value(p.optimizer, yk_value_get(file, "optimizer")));
    bool recording = yk_no_grad_begin();
    assert_non_null(yk_copy_(yk_parameters_at(p.params, 0), yk_value_as_tensor(yk_value_get(file, "a"))));
    assert_non_null(yk_copy_(yk_parameters_at(p.params, 1), yk_value_as_tensor(yk_value_get(file, "b"))));
    yk_no_grad_end(recording);
    follow("wolfe", &p, 2, STEPS, 1e-8);
    /* The value that is written has the keys of the one that was read, but for the room of one direction. */
    yk_value *own = yk_value_get_int(yk_value_get(yk_value_from_optimizer(p.optimizer), "state"), 0);
    yk_value *theirs = yk_value_get_int(yk_value_get(yk_value_get(file, "optimizer"), "state"), 0);
    for (int64_t i = 0; i < yk_value_count(theirs); i++) {
        const char *key = yk_value_key(theirs, i, NULL);
        assert_true(strcmp(key, "al") == 0 || yk_value_get(own, key));
    }
    yk_value *group = yk_value_at(yk_value_get(yk_value_from_optimizer(p.optimizer), "param_groups"), 0);
    yk_value *their_group = yk_value_at(yk_value_get(yk_value_get(file, "optimizer"), "param_groups"), 0);
    for (int64_t i = 0; i < yk_value_count(their_group); i++)
        assert_non_null(yk_value_get(group, yk_value_key(their_group, i, NULL)));
    assert_string_equal(yk_value_as_string(yk_value_get(group, "line_search_fn")), "strong_wolfe");
    expect_ok(yk_value_set(group, "line_search_fn", yk_value_string("armijo")));
    yk_value *whole = yk_value_get(file, "optimizer");
    expect_ok(
        yk_value_set(yk_value_at(yk_value_get(whole, "param_groups"), 0), "line_search_fn", yk_value_string("armijo")));
    assert_int_equal(yk_optimizer_load_value(p.optimizer, whole), YK_ERR_FORMAT);
    expect_error(YK_ERR_FORMAT, "optimizer state: line_search_fn is armijo, which is none of its words");
    yk_scope_end(scope);
}

/* Another optimizer's step evaluates the closure once. */
static void test_others(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    problem p = {.params = parameters(false, YK_F64), .sign = 1}, q = {.params = parameters(false, YK_F64), .sign = 1};
    p.optimizer = yk_sgd(p.params, YK_OPTIONS(yk_sgd_options, .lr = 0.01));
    q.optimizer = yk_sgd(q.params, YK_OPTIONS(yk_sgd_options, .lr = 0.01));
    double loss, first = golden_numbers("lbfgs", "wolfe", (size_t[1]){0})[0];
    expect_ok(yk_optimizer_step_closure(p.optimizer, closure, &p, &loss));
    assert_true(fabs(loss - first) < 1e-12);
    assert_int_equal(p.calls, 1);
    assert_non_null(closure(&q));
    expect_ok(yk_optimizer_step(q.optimizer));
    assert_true(same(p.params, q.params));
    /* A step where the gradient is flat changes nothing, and leaves no state. */
    p.optimizer = yk_lbfgs(p.params, YK_OPTIONS(yk_lbfgs_options, .tolerance_grad = 1e3));
    expect_ok(yk_optimizer_step_closure(p.optimizer, closure, &p, &loss));
    assert_true(same(p.params, q.params));
    assert_int_equal(yk_optimizer_state_step(p.optimizer, yk_parameters_at(p.params, 0)), 0);
    assert_int_equal(yk_state_dict_find(yk_optimizer_state_dict(p.optimizer), "state.a.n_iter"), -1);
    yk_scope_end(scope);
}

/* One parameter alone, half of whose list has no gradient: zeros. */
static void test_without_gradient(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    problem p = {.params = parameters(false, YK_F64), .sign = 1};
    yk_parameters *more = yk_parameters_create();
    const yk_tensor_options trained = *YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true);
    yk_tensor *idle = yk_ones(YK_SHAPE(3), &trained);
    for (int i = 0; i < 2; i++)
        expect_ok(yk_parameters_add(more, i ? "b" : "a", yk_parameters_at(p.params, i)));
    expect_ok(yk_parameters_add(more, "idle", idle));
    p.optimizer = make("wolfe", more);
    follow("wolfe", &p, 0, 2, 1e-8);
    assert_true(yk_item(yk_sum(idle)) == 3);
    yk_scope_end(scope);
}

static yk_tensor *whole_row(void *user)
{
    return yk_parameters_at(((problem *)user)->params, 1);
}

static yk_tensor *nothing(void *user)
{
    (void)user;
    return NULL;
}

static void test_refusals(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    problem p = {.params = parameters(false, YK_F64), .sign = 1}, q = {.params = parameters(false, YK_F64), .sign = 1};
#define REFUSED(text, ...)                                                                                             \
    do {                                                                                                               \
        assert_null(yk_lbfgs(p.params, YK_OPTIONS(yk_lbfgs_options, __VA_ARGS__)));                                    \
        expect_error(YK_ERR_ARGUMENT, text);                                                                           \
    } while (0)
    REFUSED("lbfgs: lr is -1, expected at least 0", .lr = -1);
    REFUSED("lbfgs: max_iter is 0, expected a whole number, at least 1", .max_iter = 0);
    REFUSED("lbfgs: max_eval is -3", .max_eval = -3);
    REFUSED("lbfgs: history_size is 0", .history_size = 0);
    REFUSED("lbfgs: tolerance_grad is -1", .tolerance_grad = -1);
    REFUSED("lbfgs: tolerance_change is nan", .tolerance_change = NAN);
    REFUSED("lbfgs: line_search_fn is 7, expected YK_NO_LINE_SEARCH or YK_STRONG_WOLFE",
            .line_search_fn = (yk_line_search)7);
#undef REFUSED
    p.optimizer = make("wolfe", p.params);
    assert_int_equal(yk_optimizer_step(p.optimizer), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "lbfgs: a step evaluates the loss several times: yk_optimizer_step_closure");
    assert_int_equal(yk_optimizer_add_group(p.optimizer, q.params), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "lbfgs: it has one group");
    assert_int_equal(yk_optimizer_step_closure(p.optimizer, NULL, NULL, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "optimizer_step_closure: the closure is NULL");
    assert_int_equal(yk_optimizer_step_closure(NULL, closure, NULL, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "optimizer_step_closure: the optimizer is NULL");
    assert_int_equal(yk_optimizer_step_closure(p.optimizer, whole_row, &p, NULL), YK_ERR_SHAPE);
    expect_error(YK_ERR_SHAPE, "optimizer_step_closure: the closure gave a tensor of shape (4), expected one number");
    assert_int_equal(yk_optimizer_step_closure(p.optimizer, nothing, &p, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "optimizer_step_closure: the closure gave NULL, expected the loss");
    /* The search's second evaluation fails: the parameters are where it began. */
    p.fails_at = 3;
    p.calls = 0;
    assert_int_equal(yk_optimizer_step_closure(p.optimizer, closure, &p, NULL), YK_ERR_SHAPE);
    expect_error(YK_ERR_SHAPE, "reshape");
    assert_int_equal(p.calls, 3);
    /* Another problem's state. */
    p.fails_at = 0;
    yk_parameters *short_list = yk_parameters_create();
    expect_ok(yk_parameters_add(short_list, "a", yk_parameters_at(q.params, 0)));
    yk_optimizer *other = yk_lbfgs(short_list, NULL);
    yk_state_dict *dict = yk_optimizer_state_dict(p.optimizer);
    assert_int_equal(yk_optimizer_load_state_dict(other, dict), YK_ERR_SHAPE);
    expect_error(YK_ERR_SHAPE, "lbfgs: group 0 has 1 parameters, but 2 in the state");
    yk_optimizer *sgd = yk_sgd(q.params, YK_OPTIONS(yk_sgd_options, .lr = 1));
    assert_int_equal(yk_optimizer_load_state_dict(sgd, dict), YK_ERR_NOT_FOUND);
    expect_error(YK_ERR_NOT_FOUND, "sgd: the state has no 'param_groups.0.momentum'");
    assert_int_equal(yk_optimizer_load_state_dict(p.optimizer, yk_optimizer_state_dict(sgd)), YK_ERR_NOT_FOUND);
    expect_error(YK_ERR_NOT_FOUND, "lbfgs: the state has no 'param_groups.0.history_size'");
    yk_scope_end(scope);
}

/* A loss whose parameters are on two devices. */
static void test_devices(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    problem p = {.params = yk_parameters_create(), .sign = 1};
    for (int i = 0; i < 2; i++)
        expect_ok(yk_parameters_add(
            p.params, i ? "b" : "a",
            yk_ones(YK_SHAPE(4), YK_OPTIONS(yk_tensor_options, .device = test_device(i), .requires_grad = true))));
    p.optimizer = yk_lbfgs(p.params, NULL);
    assert_int_equal(yk_optimizer_step_closure(p.optimizer, closure, &p, NULL), YK_ERR_DEVICE);
    expect_error(YK_ERR_DEVICE, device_text("lbfgs: parameter b is on cpu:1, but a on cpu:0"));
    yk_scope_end(scope);
}

int main(void)
{
    use_devices(2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pytorch),      cmocka_unit_test(test_f32),     cmocka_unit_test(test_resume),
        cmocka_unit_test(test_pytorch_file), cmocka_unit_test(test_others),  cmocka_unit_test(test_without_gradient),
        cmocka_unit_test(test_refusals),     cmocka_unit_test(test_devices),
    };
    return cmocka_run_group_tests_name("lbfgs", tests, NULL, NULL);
}
