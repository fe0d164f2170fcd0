/*
 * parametrize_test.c - weight_norm and spectral_norm against PyTorch: names, training, evaluation, what removing
 * leaves; gradients of gradients, copies, moves, devices' replicas; refusals.
 */
#include "tests/support/expect.h"
#include "tests/support/golden.h"
#include "tests/support/test_device.h"

#include <pthread.h>
#include <stdio.h>

#include <yoke/yoke.h>

enum { STEPS = 4 };

static const char *const cases[] = {
    "linear",          "linear_all", "conv", "conv_dim", "bias", "spectral", "spectral_conv", "spectral_transposed",
    "spectral_vector", "lstm",       "gru"};
enum { CASES = sizeof(cases) / sizeof(*cases) };

static bool is(const char *name, const char *other)
{
    return strcmp(name, other) == 0;
}

static const char *weight_of(const char *name)
{
    return is(name, "bias") || is(name, "spectral_vector") ? "bias"
           : is(name, "lstm") || is(name, "gru")           ? "weight_hh_l0"
                                                           : "weight";
}

/* The module that make_parametrize.py has under this name, and its input. */
static yk_module *make(const char *name, yk_tensor **x)
{
    int64_t shape[4] = {5, 4};
    int ndim = 2;
    yk_module *m = NULL;
    if (is(name, "linear"))
        m = yk_weight_norm(yk_linear_create(4, 3, NULL), "weight", NULL);
    if (is(name, "linear_all"))
        m = yk_weight_norm(yk_linear_create(4, 3, NULL), "weight", YK_OPTIONS(yk_weight_norm_options, .dim = -1));
    if (is(name, "conv"))
        m = yk_weight_norm(yk_conv2d_create(2, 4, 3, YK_OPTIONS(yk_conv2d_module_options, .padding = 1)), "weight",
                           NULL);
    if (is(name, "conv_dim"))
        m = yk_weight_norm(yk_conv1d_create(3, 4, 3, NULL), "weight", YK_OPTIONS(yk_weight_norm_options, .dim = 1));
    if (is(name, "bias"))
        m = yk_weight_norm(yk_weight_norm(yk_linear_create(4, 3, NULL), "weight", NULL), "bias", NULL);
    if (is(name, "spectral"))
        m = yk_spectral_norm(yk_linear_create(4, 6, NULL), "weight", NULL);
    if (is(name, "spectral_conv"))
        m = yk_spectral_norm(yk_conv2d_create(2, 4, 3, NULL), "weight",
                             YK_OPTIONS(yk_spectral_norm_options, .n_power_iterations = 2));
    if (is(name, "spectral_transposed"))
        m = yk_spectral_norm(yk_conv_transpose2d_create(2, 4, 3, NULL), "weight", NULL);
    if (is(name, "spectral_vector"))
        m = yk_spectral_norm(yk_linear_create(4, 3, NULL), "bias", YK_OPTIONS(yk_spectral_norm_options, .eps = 1e-3));
    if (is(name, "lstm"))
        m = yk_weight_norm(yk_lstm_create(3, 2, NULL), "weight_hh_l0", NULL);
    if (is(name, "gru")) {
        m = yk_gru_create(3, 2, YK_OPTIONS(yk_gru_module_options, .num_layers = 2, .bidirectional = true));
        m = yk_weight_norm(yk_weight_norm(m, "weight_ih_l1_reverse", NULL), "weight_hh_l0",
                           YK_OPTIONS(yk_weight_norm_options, .dim = 1));
    }
    expect_ok(m == NULL);
    if (is(name, "lstm") || is(name, "gru")) {
        ndim = 3;
        shape[0] = 4, shape[1] = 2, shape[2] = 3;
    }
    if (is(name, "conv") || is(name, "spectral_conv") || is(name, "spectral_transposed")) {
        ndim = 4;
        shape[0] = shape[1] = 2;
        shape[2] = shape[3] = is(name, "spectral_transposed") ? 3 : 5;
    }
    if (is(name, "conv_dim")) {
        ndim = 3;
        shape[0] = 2, shape[1] = 3, shape[2] = 7;
    }
    double values[200];
    for (int i = 0; i < 200; i++)
        values[i] = sin(i * 0.7);
    *x = yk_from_data(values, ndim, shape, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    return yk_module_to_dtype(m, YK_F64);
}

/* All numbers of the state dict, in its order. */
static int64_t numbers_of(yk_module *m, double *numbers)
{
    yk_state_dict *dict = yk_module_state_dict(m);
    int64_t count = 0;
    for (int64_t i = 0; i < yk_state_dict_count(dict); i++) {
        yk_tensor *x = yk_state_dict_at(dict, i);
        expect_ok(yk_tensor_read(x, numbers + count, (size_t)yk_numel(x) * sizeof(double)));
        count += yk_numel(x);
    }
    return count;
}

static void load_state(yk_module *m, const char *name)
{
    char section[64];
    size_t count, taken = 0, names;
    snprintf(section, sizeof(section), "%s_names", name);
    const char *const *rows = golden_rows("parametrize", section, &names);
    snprintf(section, sizeof(section), "%s_state", name);
    const double *numbers = golden_numbers("parametrize", section, &count);
    yk_state_dict *dict = yk_module_state_dict(m);
    assert_int_equal(yk_state_dict_count(dict), names);
    for (size_t i = 0; i < names; i++) {
        yk_tensor *x = yk_state_dict_at(dict, (int64_t)i);
        assert_string_equal(yk_state_dict_name(dict, (int64_t)i), rows[i]);
        expect_ok(yk_tensor_write(x, numbers + taken, (size_t)yk_numel(x) * sizeof(double)));
        taken += (size_t)yk_numel(x);
    }
    assert_int_equal(taken, count);
}

static yk_tensor *loss_of(yk_tensor *out)
{
    double pull[500];
    for (int k = 0; k < 500; k++)
        pull[k] = (k % 5 + 1) / 8.0;
    yk_tensor *p = yk_from_data(pull, yk_ndim(out), yk_sizes(out), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    return yk_sum(yk_mul(yk_square(out), p));
}

static void expect_numbers(const double *found, const double *expected, int64_t count, const char *what)
{
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(found[i] - expected[i]) <= 1e-12))
            fail_msg("%s: number %lld is %.17g, PyTorch has %.17g", what, (long long)i, found[i], expected[i]);
}

static void expect_section(yk_tensor *x, const char *name, const char *what)
{
    char section[64];
    size_t count;
    double found[500];
    snprintf(section, sizeof(section), "%s_%s", name, what);
    const double *expected = golden_numbers("parametrize", section, &count);
    assert_int_equal(yk_numel(x), count);
    expect_ok(yk_tensor_read(yk_detach(x), found, count * sizeof(double)));
    expect_numbers(found, expected, (int64_t)count, section);
}

static void test_pytorch(void **state)
{
    (void)state;
    for (int k = 0; k < CASES; k++) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *x;
        yk_module *m = make(cases[k], &x);
        const char *weight = weight_of(cases[k]);
        load_state(m, cases[k]);
        yk_optimizer *sgd = yk_sgd(yk_module_parameters(m), YK_OPTIONS(yk_sgd_options, .lr = 0.05, .momentum = 0.9));
        size_t count;
        const double *rows = golden_numbers("parametrize", cases[k], &count);
        double numbers[500];
        for (int step = 0; step < STEPS; step++) {
            yk_optimizer_zero_grad(sgd);
            yk_tensor *loss = loss_of(yk_forward(m, x));
            expect_ok(yk_backward(loss));
            expect_ok(yk_optimizer_step(sgd));
            const double value = yk_item(loss);
            expect_numbers(&value, rows, 1, cases[k]);
            int64_t taken = numbers_of(m, numbers);
            expect_numbers(numbers, rows + 1, taken, cases[k]);
            rows += 1 + taken;
            count -= 1 + (size_t)taken;
        }
        assert_int_equal(count, 0);
        yk_module_eval(m);
        expect_section(yk_forward(m, x), cases[k], "eval");
        assert_true(yk_is_parametrized(m, weight) && yk_is_parametrized(m, NULL) && !yk_is_parametrized(m, "other"));
        assert_null(yk_module_get(m, weight));
        yk_tensor *before = yk_parametrized(m, weight);
        expect_section(before, cases[k], "removed");
        expect_ok(yk_remove_parametrizations(m, weight, true));
        assert_true(!yk_is_parametrized(m, weight));
        expect_section(yk_module_get(m, weight), cases[k], "removed");
        expect_section(yk_forward(m, x), cases[k], "eval");
        assert_true(yk_requires_grad(yk_module_get(m, weight)));
        yk_scope_end(scope);
    }
    assert_null(yk_last_error());
}

/* The user data of a gradient check. */
typedef struct check {
    yk_module *m;
    yk_tensor *x;
} check;

static yk_tensor *output_of(yk_tensor *const *inputs, int n_inputs, void *user)
{
    const check *c = user;
    (void)inputs, (void)n_inputs;
    return yk_forward(c->m, c->x);
}

/* By finite differences: of all parameters, first derivatives and, of the small ones, second. */
static void test_gradcheck(void **state)
{
    (void)state;
    for (int k = 0; k < CASES; k++) {
        yk_scope scope = yk_scope_begin();
        check c;
        c.m = make(cases[k], &c.x);
        load_state(c.m, cases[k]);
        yk_module_eval(c.m);
        yk_parameters *p = yk_module_parameters(c.m);
        yk_tensor *inputs[8];
        int count = 0;
        for (int64_t i = 0; i < yk_parameters_count(p) && count < 8; i++)
            inputs[count++] = yk_parameters_at(p, i);
        expect_ok(yk_gradcheck(output_of, inputs, count, &c, NULL));
        if (yk_ndim(c.x) == 2 || is(cases[k], "lstm"))
            expect_ok(yk_gradgradcheck(output_of, inputs, count, &c, NULL));
        yk_scope_end(scope);
    }
    assert_null(yk_last_error());
}

/* A copy trains by itself; a state dict goes to another module; dtypes and devices change; frozen weights stay so. */
static void test_copies(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x, *other_x;
    yk_module *m = make("spectral", &x), *other = make("spectral", &other_x);
    yk_module *copy = yk_module_copy(m);
    yk_module_eval(m), yk_module_eval(other), yk_module_eval(copy);
    yk_tensor *out = yk_forward(m, x);
    assert_true(yk_item(yk_max(yk_abs(yk_sub(yk_forward(copy, x), out)))) == 0);
    expect_ok(yk_module_load_state_dict(other, yk_module_state_dict(m), NULL, NULL));
    assert_true(yk_item(yk_max(yk_abs(yk_sub(yk_forward(other, x), out)))) == 0);
    expect_ok(yk_init_constant(yk_module_get(copy, "parametrizations.weight.original"), 1));
    assert_true(yk_item(yk_max(yk_abs(yk_sub(yk_forward(copy, x), out)))) > 1e-3);
    assert_true(yk_item(yk_max(yk_abs(yk_sub(yk_forward(m, x), out)))) == 0);
    assert_non_null(yk_module_to(other, test_device(1)));
    yk_tensor *there = yk_forward(other, yk_to(x, test_device(1)));
    assert_true(yk_item(yk_max(yk_abs(yk_sub(yk_to(there, test_device(0)), out)))) < 1e-12);
    assert_non_null(yk_module_to_dtype(other, YK_F32));
    assert_non_null(yk_forward(other, yk_cast(yk_to(x, test_device(1)), YK_F32)));
    /* In training mode the vectors come nearer; in eval mode they stay. */
    yk_tensor *u = yk_module_get(m, "parametrizations.weight.0._u"), *kept = yk_clone(yk_detach(u));
    expect_ok(yk_init_normal(yk_module_get(m, "parametrizations.weight.original"), 0, 1));
    assert_non_null(yk_forward(m, x));
    assert_true(yk_item(yk_max(yk_abs(yk_sub(u, kept)))) == 0);
    yk_module_train(m, true);
    assert_non_null(yk_forward(m, x));
    assert_true(yk_item(yk_max(yk_abs(yk_sub(u, kept)))) > 0);
    yk_module *frozen = yk_linear_create(3, 3, NULL);
    expect_ok(yk_module_requires_grad(frozen, false));
    assert_non_null(yk_weight_norm(frozen, "weight", NULL));
    assert_true(!yk_requires_grad(yk_module_get(frozen, "parametrizations.weight.original0")));
    assert_true(!yk_requires_grad(yk_module_get(frozen, "parametrizations.weight.original1")));
    expect_ok(yk_remove_parametrizations(frozen, "weight", true));
    assert_true(!yk_requires_grad(yk_module_get(frozen, "weight")));
    /* The original, where it is wanted. */
    yk_module *plain = yk_linear_create(2, 2, NULL);
    yk_tensor *weight = yk_module_get(plain, "weight"), *value = yk_clone(yk_detach(weight));
    assert_non_null(yk_spectral_norm(plain, "weight", NULL));
    expect_ok(yk_remove_parametrizations(plain, "weight", false));
    assert_ptr_equal(yk_module_get(plain, "weight"), weight);
    assert_true(yk_item(yk_max(yk_abs(yk_sub(yk_detach(weight), value)))) == 0);
    assert_int_equal(yk_module_child_count(plain), 0);
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

/* A network on two devices gives what it gives on one, gradients too. */
static void test_replicas(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *net = yk_sequential(yk_weight_norm(yk_linear_create(4, 8, NULL), "weight", NULL), yk_tanh_create(),
                                   yk_spectral_norm(yk_linear_create(8, 3, NULL), "weight", NULL));
    yk_module *alone = yk_module_copy(net);
    yk_module_eval(net), yk_module_eval(alone);
    yk_device devices[] = {test_device(0), test_device(1)};
    yk_module *both = yk_data_parallel(net, YK_OPTIONS(yk_data_parallel_options, .devices = devices, .count = 2));
    expect_ok(both == NULL);
    yk_tensor *x = yk_randn(YK_SHAPE(6, 4), NULL);
    for (int pass = 0; pass < 2; pass++) {
        expect_ok(yk_backward(yk_sum(yk_square(yk_forward(both, x)))));
        expect_ok(yk_backward(yk_sum(yk_square(yk_forward(alone, x)))));
    }
    yk_parameters *p = yk_module_parameters(net), *q = yk_module_parameters(alone);
    assert_int_equal(yk_parameters_count(p), 5);
    for (int64_t i = 0; i < yk_parameters_count(p); i++)
        assert_true(yk_item(yk_max(yk_abs(yk_sub(yk_grad(yk_parameters_at(p, i)), yk_grad(yk_parameters_at(q, i)))))) <
                    1e-4);
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

/* A module that is in its own forward when another thread begins one. */
typedef struct busy {
    yk_module *m;
    yk_tensor *x;
    yk_status status;
    char text[1024];
} busy;

static void *other_thread(void *user)
{
    busy *b = user;
    yk_scope scope = yk_scope_begin();
    b->status = yk_forward(b->m, b->x) ? YK_OK : yk_last_error()->code;
    if (yk_last_error())
        snprintf(b->text, sizeof(b->text), "%s", yk_last_error()->message);
    yk_clear_error();
    yk_scope_end(scope);
    return NULL;
}

typedef struct waiting {
    yk_tensor *weight;
    busy *b;
} waiting;

static yk_tensor *waiting_forward(yk_module *m, yk_tensor *x)
{
    const waiting *w = yk_module_data(m);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, other_thread, w->b), 0);
    pthread_join(thread, NULL);
    return yk_mul(x, w->weight);
}

static void test_two_threads(void **state)
{
    (void)state;
    static const yk_module_class cls = {.name = "Waiting", .data_size = sizeof(waiting), .forward = waiting_forward};
    yk_scope scope = yk_scope_begin();
    busy b = {.x = yk_ones(YK_SHAPE(3), NULL)};
    yk_module *m = b.m = yk_module_create(&cls);
    waiting *w = yk_module_data(m);
    w->weight = yk_module_add_parameter(m, "weight", yk_rand(YK_SHAPE(3), NULL));
    w->b = &b;
    assert_non_null(yk_weight_norm(m, "weight", NULL));
    assert_non_null(yk_forward(m, b.x));
    assert_int_equal(b.status, YK_ERR_STATE);
    assert_non_null(strstr(b.text, "two threads run its forward at once"));
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

static void test_print(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    expect_ok(yk_module_print(to, yk_weight_norm(yk_linear_create(4, 3, NULL), "weight", NULL)));
    assert_int_equal(fclose(to), 0);
    assert_string_equal(text, "ParametrizedLinear(in_features=4, out_features=3, bias=True\n"
                              "  (parametrizations): ModuleDict(\n"
                              "    (weight): ParametrizationList(\n"
                              "      (0): _WeightNorm()\n"
                              "    )\n"
                              "  )\n"
                              ")\n");
    free(text);
    yk_scope_end(scope);
}

#define REFUSED(call, code, text)                                                                                      \
    do {                                                                                                               \
        assert_null(call);                                                                                             \
        expect_error(code, text);                                                                                      \
    } while (0)

static yk_tensor *bare_forward(yk_module *m, yk_tensor *x)
{
    (void)m;
    return x;
}

/* A weight that is a parameter again is the last one in its list: the others keep their meaning, and a copy has them.
 */
static void test_recurrent(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *m = yk_lstm_create(3, 2, YK_OPTIONS(yk_lstm_module_options, .num_layers = 2));
    yk_tensor *x = yk_randn(YK_SHAPE(4, 2, 3), NULL), *before = yk_forward(m, x);
    assert_non_null(yk_weight_norm(m, "weight_ih_l0", NULL));
    assert_non_null(yk_weight_norm(m, "bias_hh_l1", NULL));
    yk_module *copy = yk_module_copy(m);
    assert_true(yk_item(yk_max(yk_abs(yk_sub(yk_forward(m, x), before)))) < 1e-5);
    assert_true(yk_item(yk_max(yk_abs(yk_sub(yk_forward(copy, x), before)))) < 1e-5);
    expect_ok(yk_remove_parametrizations(m, "weight_ih_l0", true));
    assert_true(yk_item(yk_max(yk_abs(yk_sub(yk_forward(m, x), before)))) < 1e-5);
    expect_ok(yk_remove_parametrizations(m, "bias_hh_l1", true));
    assert_true(yk_item(yk_max(yk_abs(yk_sub(yk_forward(m, x), before)))) < 1e-5);
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

static void test_refusals(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *m = yk_linear_create(4, 3, NULL);
    REFUSED(yk_weight_norm(NULL, "weight", NULL), YK_ERR_ARGUMENT, "weight_norm: the module is NULL");
    REFUSED(yk_weight_norm(m, NULL, NULL), YK_ERR_ARGUMENT, "weight_norm: the name is NULL");
    REFUSED(yk_weight_norm(m, "wieght", NULL), YK_ERR_NOT_FOUND,
            "weight_norm: Linear has no parameter 'wieght' of its own; did you mean 'weight'?");
    REFUSED(yk_weight_norm(m, "weight", YK_OPTIONS(yk_weight_norm_options, .dim = 2)), YK_ERR_ARGUMENT,
            "weight_norm: dim is 2, but weight has shape (3, 4); -1 is one norm of all");
    REFUSED(yk_spectral_norm(m, "weight", YK_OPTIONS(yk_spectral_norm_options, .dim = -2)), YK_ERR_ARGUMENT,
            "spectral_norm: dim is -2, but weight has shape (3, 4)");
    REFUSED(yk_spectral_norm(m, "weight", YK_OPTIONS(yk_spectral_norm_options, .n_power_iterations = 0)),
            YK_ERR_ARGUMENT, "spectral_norm: n_power_iterations is 0, expected a number in [1, 10000]");
    REFUSED(yk_spectral_norm(m, "weight", YK_OPTIONS(yk_spectral_norm_options, .eps = 0)), YK_ERR_ARGUMENT,
            "spectral_norm: eps is 0");
    static const yk_module_class cls = {.name = "Bare", .forward = bare_forward};
    yk_module *bare = yk_module_create(&cls);
    assert_non_null(yk_module_add_parameter(bare, "weight", yk_rand(YK_SHAPE(3), NULL)));
    REFUSED(yk_weight_norm(bare, "weight", NULL), YK_ERR_UNSUPPORTED,
            "weight_norm: Bare keeps no pointer to weight in its data");
    REFUSED(yk_weight_norm(yk_sequential(yk_linear_create(2, 2, NULL)), "weight", NULL), YK_ERR_NOT_FOUND,
            "weight_norm: Sequential has no parameter 'weight' of its own");
    REFUSED(yk_parametrized(m, "weight"), YK_ERR_NOT_FOUND, "parametrized: 'weight' of Linear is not parametrized");
    assert_int_equal(yk_remove_parametrizations(m, "weight", true), YK_ERR_NOT_FOUND);
    expect_error(YK_ERR_NOT_FOUND, "remove_parametrizations: 'weight' of Linear is not parametrized");
    assert_non_null(yk_weight_norm(m, "weight", NULL));
    REFUSED(yk_spectral_norm(m, "weight", NULL), YK_ERR_ARGUMENT,
            "spectral_norm: weight of Linear is parametrized already");
    assert_int_equal(yk_remove_parametrizations(m, "weight", false), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "remove_parametrizations: weight of Linear has 2 originals, none of which is the "
                                  "weight: leave it parametrized");
    assert_true(!yk_is_parametrized(NULL, NULL));
    yk_scope_end(scope);
}

int main(void)
{
    use_devices(2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pytorch),   cmocka_unit_test(test_gradcheck),   cmocka_unit_test(test_copies),
        cmocka_unit_test(test_replicas),  cmocka_unit_test(test_two_threads), cmocka_unit_test(test_print),
        cmocka_unit_test(test_recurrent), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("parametrize", tests, NULL, NULL);
}
