/*
 * lstm_test.c - yk_lstm, yk_lstm_cell and the module LSTM: PyTorch's numbers in all forms, finite differences, sizes at
 * which the kernels change their ways against the same of single operations, dropout, dtypes, errors.
 */
#include <yoke/nn.h>

#include "tests/support/expect.h"
#include "tests/support/golden.h"

static const yk_tensor_options *const f64 = YK_OPTIONS(yk_tensor_options, .dtype = YK_F64);
static const yk_tensor_options *const f64_leaf = YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true);

enum { LSTM_INPUT = 2, LSTM_HIDDEN = 3, LSTM_N = 3, LSTM_STEPS = 5 };
typedef enum lstm_field {
    PARAMETERS,
    IN,
    OUTPUT,
    H_N,
    C_N,
    PULL,
    PULL_H,
    PULL_C,
    GPARAMETERS,
    GX,
    H_0,
    C_0,
    GH_0,
    GC_0,
    FIELDS
} lstm_field;
typedef struct lstm_case {
    char name[20];
    int num_layers;
    bool bias, batch_first, bidirectional, batch;
    const double *values[FIELDS]; /* from H_0 on NULL where no states are given */
} lstm_case;

static lstm_case read_case(const char *row)
{
    static const char *const fields[FIELDS] = {"parameters", "x",           "output", "h_n", "c_n", "pull", "pull_h",
                                               "pull_c",     "gparameters", "gx",     "h_0", "c_0", "gh_0", "gc_0"};
    lstm_case c = {.num_layers = 0};
    golden_word(&row, c.name, sizeof(c.name));
    c.num_layers = golden_integer(&row);
    c.bias = golden_integer(&row);
    c.batch_first = golden_integer(&row);
    c.bidirectional = golden_integer(&row);
    c.batch = golden_integer(&row);
    bool states = golden_integer(&row);
    for (int i = 0; i < (states ? (int)FIELDS : (int)H_0); i++) {
        char section[40];
        snprintf(section, sizeof(section), "%s_%s", c.name, fields[i]);
        c.values[i] = golden_numbers("lstm", section, NULL);
    }
    return c;
}

static void expect_numbers(const char *which, const char *name, yk_tensor *x, const double *expected, double room)
{
    if (!x)
        fail_msg("%s: %s is missing: %s", which, name, yk_last_error() ? yk_last_error()->message : "no record");
    size_t count = (size_t)yk_numel(x);
    double *values = malloc(sizeof(double) * (count + 1));
    assert_non_null(values);
    expect_ok(yk_tensor_read(yk_cast(x, YK_F64), values, sizeof(double) * count));
    for (size_t i = 0; i < count; i++)
        if (!(fabs(values[i] - expected[i]) <= room * (1 + fabs(expected[i]))))
            fail_msg("%s: %s[%zu] is %.17g, expected %.17g", which, name, i, values[i], expected[i]);
    free(values);
}

/* The greatest distance between two tensors of one shape. */
static double distance(yk_tensor *a, yk_tensor *b)
{
    if (!a || !b)
        fail_msg("a tensor is missing: %s", yk_last_error() ? yk_last_error()->message : "no record");
    assert_true(yk_same_shape(a, b));
    return yk_item(yk_max(yk_abs(yk_sub(yk_cast(a, YK_F64), yk_cast(b, YK_F64)))));
}

static yk_tensor *dot(yk_tensor *x, yk_tensor *pull)
{
    return yk_sum(yk_mul(x, pull));
}

static yk_module *module_of(const lstm_case *c)
{
    yk_module *m = yk_module_to_dtype(
        yk_lstm_create(LSTM_INPUT, LSTM_HIDDEN,
                       YK_OPTIONS(yk_lstm_module_options, .num_layers = c->num_layers, .bias = c->bias,
                                  .batch_first = c->batch_first, .bidirectional = c->bidirectional)),
        YK_F64);
    yk_parameters *parameters = yk_module_parameters(m);
    const double *values = c->values[PARAMETERS];
    bool before = yk_no_grad_begin();
    for (int64_t i = 0; i < yk_parameters_count(parameters); i++) {
        yk_tensor *p = yk_parameters_at(parameters, i);
        expect_ok(yk_tensor_write(p, values, sizeof(double) * (size_t)yk_numel(p)));
        values += yk_numel(p);
    }
    yk_no_grad_end(before);
    return m;
}

static void test_golden(void **state)
{
    (void)state;
    size_t count;
    const char *const *rows = golden_rows("lstm", "cases", &count);
    assert_int_equal(count, 8);
    for (size_t k = 0; k < count; k++) {
        lstm_case read = read_case(rows[k]);
        const lstm_case *c = &read;
        yk_scope scope = yk_scope_begin();
        yk_module *m = module_of(c);
        int64_t directions = c->bidirectional ? 2 : 1, states = c->num_layers * directions;
        int64_t lead[2] = {c->batch_first ? LSTM_N : LSTM_STEPS, c->batch_first ? LSTM_STEPS : LSTM_N};
        if (!c->batch)
            lead[0] = LSTM_STEPS;
        int ndim = c->batch ? 3 : 2;
        const int64_t x_shape[3] = {lead[0], c->batch ? lead[1] : LSTM_INPUT, LSTM_INPUT};
        const int64_t out_shape[3] = {lead[0], c->batch ? lead[1] : directions * LSTM_HIDDEN, directions * LSTM_HIDDEN};
        const int64_t state_shape[3] = {states, c->batch ? LSTM_N : LSTM_HIDDEN, LSTM_HIDDEN};
        yk_tensor *in[3] = {yk_from_data(c->values[IN], ndim, x_shape, f64_leaf)}, *out[3];
        for (int i = 0; i < 2; i++)
            in[1 + i] = c->values[H_0 + i] ? yk_from_data(c->values[H_0 + i], ndim, state_shape, f64_leaf) : NULL;
        /* Twice: the second backward adds to the gradients of the first. */
        for (int round = 1; round <= 2; round++) {
            expect_ok(yk_forward_list(m, in, 3, out, 3));
            assert_int_equal(yk_ndim(out[0]), ndim);
            for (int i = 0; i < 3; i++)
                expect_numbers(c->name, i ? "state" : "output", out[i], c->values[OUTPUT + i], 1e-13);
            yk_tensor *loss = dot(out[0], yk_from_data(c->values[PULL], ndim, out_shape, f64));
            for (int i = 0; i < 2; i++)
                loss = yk_add(loss, dot(out[1 + i], yk_from_data(c->values[PULL_H + i], ndim, state_shape, f64)));
            expect_ok(yk_backward(loss));
            for (int i = 0; i < 3; i++)
                if (in[i])
                    expect_numbers(c->name, i ? "a state's gradient" : "gx", yk_div_scalar(yk_grad(in[i]), round),
                                   c->values[i ? GH_0 + i - 1 : GX], 1e-12);
            yk_parameters *parameters = yk_module_parameters(m);
            const double *expected = c->values[GPARAMETERS];
            assert_int_equal(yk_parameters_count(parameters), states * (c->bias ? 4 : 2));
            for (int64_t i = 0; i < yk_parameters_count(parameters); i++) {
                yk_tensor *p = yk_parameters_at(parameters, i);
                expect_numbers(c->name, yk_parameters_name(parameters, i), yk_div_scalar(yk_grad(p), round), expected,
                               1e-12);
                expected += yk_numel(p);
            }
        }
        yk_scope_end(scope);
    }
}

/* ---- against single operations ----------------------------------------------------------------------------------- */

enum { W_IH, W_HH, B_IH, B_HH, WEIGHTS };

/* One layer in one direction of its gates; x (T,N,in), states (N,H) or NULL. */
static void by_operations(yk_tensor *x, yk_tensor *h, yk_tensor *c, yk_tensor *const *w, bool reverse, yk_tensor **out)
{
    enum { MOST = 64 };
    yk_tensor *step[MOST], *all[MOST], *part[4];
    int steps;
    expect_ok(yk_unbind(x, 0, step, MOST, &steps));
    for (int i = 0; i < steps; i++) {
        int t = reverse ? steps - 1 - i : i;
        yk_tensor *gates = yk_linear(step[t], w[W_IH], w[B_IH]);
        if (h)
            gates = yk_add(gates, yk_linear(h, w[W_HH], NULL));
        if (w[B_HH])
            gates = yk_add(gates, w[B_HH]);
        expect_ok(yk_chunk(gates, 4, 1, part, 4, NULL));
        yk_tensor *taken = yk_mul(yk_sigmoid(part[0]), yk_tanh(part[2]));
        c = c ? yk_add(yk_mul(yk_sigmoid(part[1]), c), taken) : taken;
        all[t] = h = yk_mul(yk_sigmoid(part[3]), yk_tanh(c));
    }
    out[0] = yk_stack(all, steps, 0);
    out[1] = yk_unsqueeze(h, 0);
    out[2] = yk_unsqueeze(c, 0);
}

/* T, N, input, hidden: one row, one step, few products and many, depths of one block and of several, odd ones. */
static const int64_t sizes[][4] = {{1, 1, 1, 1},  {1, 9, 3, 5},   {2, 4, 3, 17},   {9, 1, 2, 3},
                                   {3, 30, 4, 9}, {3, 5, 2, 130}, {2, 11, 3, 300}, {4, 3, 40, 16}};

/* `used`: bits of the inputs that want a gradient, x, h, c and the weights; `given`: states are. */
static void compare(const int64_t *size, yk_dtype dtype, bool reverse, bool given, bool biases, unsigned used)
{
    yk_scope scope = yk_scope_begin();
    yk_tensor_options options = *YK_OPTIONS(yk_tensor_options, .dtype = dtype);
    int64_t t = size[0], n = size[1], hidden = size[3], h_shape[3] = {1, n, hidden};
    double bound = 1 / sqrt((double)hidden), room = dtype == YK_F64 ? 1e-13 : 3e-6;
    enum { INPUTS = 3 + WEIGHTS };
    yk_tensor *first[INPUTS] = {yk_randn(YK_SHAPE(t, n, size[2]), &options)}, *in[2][INPUTS] = {{NULL}}, *out[2][3];
    for (int i = 0; i < 2; i++)
        first[1 + i] = given ? yk_randn(3, h_shape, &options) : NULL;
    for (int i = 0; i < WEIGHTS; i++)
        first[3 + i] =
            i < B_IH || biases
                ? yk_mul_scalar(yk_randn(i < B_IH ? 2 : 1, (int64_t[]){4 * hidden, i ? hidden : size[2]}, &options),
                                bound)
                : NULL;
    for (int way = 0; way < 2; way++) {
        for (int i = 0; i < INPUTS; i++) {
            in[way][i] = first[i] ? yk_clone(first[i]) : NULL;
            if (first[i])
                expect_ok(yk_set_requires_grad(in[way][i], used >> i & 1));
        }
    }
    /* A reverse layer alone is the second direction of two, whose first is left out of the loss. */
    int pairs = biases ? WEIGHTS : 2, count = reverse ? 2 * pairs : pairs;
    yk_tensor *weights[2 * WEIGHTS], *states[2] = {NULL};
    for (int i = 0; i < count; i++)
        weights[i] = i < count - pairs ? yk_clone(first[3 + i]) : in[0][3 + i % pairs];
    for (int i = 0; i < 2; i++)
        states[i] = !given    ? NULL
                    : reverse ? yk_cat((yk_tensor *[]){yk_clone(first[1 + i]), in[0][1 + i]}, 2, 0)
                              : in[0][1 + i];
    expect_ok(yk_lstm(in[0][0], states[0], states[1], weights, count,
                      YK_OPTIONS(yk_lstm_options, .bidirectional = reverse, .bias = biases), &out[0][0], &out[0][1],
                      &out[0][2]));
    if (reverse) {
        out[0][0] = yk_narrow(out[0][0], 2, hidden, hidden);
        for (int i = 1; i < 3; i++)
            out[0][i] = yk_narrow(out[0][i], 0, 1, 1);
    }
    by_operations(in[1][0], given ? yk_select(in[1][1], 0, 0) : NULL, given ? yk_select(in[1][2], 0, 0) : NULL,
                  in[1] + 3, reverse, out[1]);
    yk_tensor *loss[2] = {NULL};
    for (int i = 0; i < 3; i++) {
        if (!(distance(out[0][i], out[1][i]) <= room))
            fail_msg("%lld steps, %lld rows, %lld hidden: result %d is off by %g", (long long)t, (long long)n,
                     (long long)hidden, i, distance(out[0][i], out[1][i]));
        yk_tensor *pull = yk_randn(3, (int64_t[]){i ? 1 : t, n, hidden}, &options);
        for (int way = 0; way < 2; way++)
            loss[way] = loss[way] ? yk_add(loss[way], dot(out[way][i], pull)) : dot(out[way][i], pull);
    }
    for (int way = 0; way < 2 && used; way++)
        expect_ok(yk_backward(loss[way]));
    for (int i = 0; i < INPUTS && used; i++) {
        if (!first[i] || !(used >> i & 1)) {
            assert_true(!first[i] || !yk_grad(in[0][i]));
            continue;
        }
        yk_tensor *a = yk_grad(in[0][i]), *b = yk_grad(in[1][i]);
        if (!b && (i == 3 + W_HH || i == 3 + B_HH)) /* of operations that were never called */
            b = yk_zeros_like(a);
        double scale = 1 + yk_item(yk_max(yk_abs(b)));
        if (!(distance(a, b) <= 10 * room * scale))
            fail_msg("%lld steps, %lld rows, %lld hidden: gradient %d is off by %g of %g", (long long)t, (long long)n,
                     (long long)hidden, i, distance(a, b), scale);
    }
    yk_scope_end(scope);
}

static void test_sizes(void **state)
{
    (void)state;
    yk_manual_seed(5);
    for (size_t k = 0; k < sizeof(sizes) / sizeof(*sizes); k++)
        for (int form = 0; form < 8; form++)
            compare(sizes[k], form & 1 ? YK_F64 : YK_F32, form & 2, form & 4, true, 127);
    for (unsigned used = 0; used < 127; used += 9)
        compare(sizes[4], YK_F64, used & 2, used & 5, used & 16, used);
}

/* ---- gradients by differences ------------------------------------------------------------------------------------ */

static yk_status call_lstm(yk_tensor *const *in, int n, yk_tensor **out, int n_out, void *user)
{
    (void)user, (void)n_out;
    return yk_lstm(in[0], in[1], in[2], in + 3, n - 3,
                   YK_OPTIONS(yk_lstm_options, .num_layers = 2, .bidirectional = true), &out[0], &out[1], &out[2]);
}

static yk_status call_cell(yk_tensor *const *in, int n, yk_tensor **out, int n_out, void *user)
{
    (void)user, (void)n, (void)n_out;
    return yk_lstm_cell(in[0], in[1], in[2], in[3], in[4], in[5], in[6], &out[0], &out[1]);
}

/* Without states, biases and the cell. */
static yk_status call_bare(yk_tensor *const *in, int n, yk_tensor **out, int n_out, void *user)
{
    (void)user, (void)n, (void)n_out;
    return yk_lstm_cell(in[0], NULL, NULL, in[1], in[2], NULL, NULL, &out[0], NULL);
}

static void test_differences(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *m = yk_module_to_dtype(
        yk_lstm_create(2, 2, YK_OPTIONS(yk_lstm_module_options, .num_layers = 2, .bidirectional = true)), YK_F64);
    yk_parameters *parameters = yk_module_parameters(m);
    yk_tensor *in[3 + 16] = {yk_randn(YK_SHAPE(3, 4, 2), f64_leaf), yk_randn(YK_SHAPE(4, 4, 2), f64_leaf),
                             yk_randn(YK_SHAPE(4, 4, 2), f64_leaf)};
    assert_int_equal(yk_parameters_count(parameters), 16);
    for (int i = 0; i < 16; i++)
        in[3 + i] = yk_parameters_at(parameters, i);
    expect_ok(yk_gradcheck_list(call_lstm, in, 3 + 16, 3, NULL, NULL));
    yk_tensor *cell[7] = {yk_randn(YK_SHAPE(3, 2), f64_leaf),  yk_randn(YK_SHAPE(3, 4), f64_leaf),
                          yk_randn(YK_SHAPE(3, 4), f64_leaf),  yk_randn(YK_SHAPE(16, 2), f64_leaf),
                          yk_randn(YK_SHAPE(16, 4), f64_leaf), yk_randn(YK_SHAPE(16), f64_leaf),
                          yk_randn(YK_SHAPE(16), f64_leaf)};
    expect_ok(yk_gradcheck_list(call_cell, cell, 7, 2, NULL, NULL));
    /* Gradients of gradients: two steps, one row; a step of two rows. */
    in[0] = yk_randn(YK_SHAPE(2, 1, 2), f64_leaf);
    in[1] = yk_randn(YK_SHAPE(4, 1, 2), f64_leaf), in[2] = yk_randn(YK_SHAPE(4, 1, 2), f64_leaf);
    expect_ok(yk_gradgradcheck_list(call_lstm, in, 3 + 16, 3, NULL, NULL));
    yk_tensor *small[7] = {yk_randn(YK_SHAPE(2, 2), f64_leaf), yk_randn(YK_SHAPE(2, 2), f64_leaf),
                           yk_randn(YK_SHAPE(2, 2), f64_leaf), yk_randn(YK_SHAPE(8, 2), f64_leaf),
                           yk_randn(YK_SHAPE(8, 2), f64_leaf), yk_randn(YK_SHAPE(8), f64_leaf),
                           yk_randn(YK_SHAPE(8), f64_leaf)};
    expect_ok(yk_gradgradcheck_list(call_cell, small, 7, 2, NULL, NULL));
    small[1] = small[2] = small[5] = small[6] = NULL;
    expect_ok(yk_gradgradcheck_list(call_bare, (yk_tensor *[]){small[0], small[3], small[4]}, 3, 1, NULL, NULL));
    yk_scope_end(scope);
}

/* ---- threads, dropout, dtypes ------------------------------------------------------------------------------------ */

static void test_threads(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(8);
    yk_module *m =
        yk_lstm_create(20, 70, YK_OPTIONS(yk_lstm_module_options, .bidirectional = true, .batch_first = true));
    yk_tensor *x = yk_randn(YK_SHAPE(23, 6, 20), NULL), *out[4], *grad[4];
    yk_device cpu = {YK_CPU, 0};
    int before = yk_get_num_threads(cpu);
    for (int threads = 1; threads <= 4; threads++) {
        expect_ok(yk_set_num_threads(cpu, threads));
        yk_module_zero_grad(m);
        out[threads - 1] = yk_forward(m, x);
        expect_ok(yk_backward(yk_sum(yk_square(out[threads - 1]))));
        grad[threads - 1] = yk_clone(yk_grad(yk_module_get(m, "weight_hh_l0_reverse")));
    }
    expect_ok(yk_set_num_threads(cpu, before));
    for (int i = 1; i < 4; i++)
        assert_true(distance(out[0], out[i]) == 0 && distance(grad[0], grad[i]) == 0);
    yk_scope_end(scope);
}

/*
 * The second layer gives the first one's output after dropout: gates that are open, and a cell that is a thousandth of
 * it. An element is 0 or 1 / (1 - p) of what it is without dropout, and 0 with probability p.
 */
static void test_dropout(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(3);
    enum { SIZE = 64, ROWS = 128 };
    const double p = 0.3, share = SIZE * ROWS * p, deviation = sqrt(share * (1 - p));
    yk_module *m = yk_lstm_create(2, SIZE, YK_OPTIONS(yk_lstm_module_options, .num_layers = 2, .dropout = p));
    bool before = yk_no_grad_begin();
    yk_tensor *w = yk_module_get(m, "weight_ih_l1"), *b = yk_module_get(m, "bias_ih_l1");
    yk_tensor *cell = yk_narrow(w, 0, 2 * SIZE, SIZE);
    expect_ok(yk_init_constant(w, 0));
    expect_ok(yk_init_constant(b, 30));
    expect_ok(yk_init_constant(yk_narrow(b, 0, 2 * SIZE, SIZE), 0));
    expect_ok(yk_init_constant(yk_module_get(m, "bias_hh_l1"), 0));
    expect_ok(yk_init_constant(yk_diagonal(cell, 0, 0, 1), 1e-3));
    yk_no_grad_end(before);
    yk_tensor *x = yk_randn(YK_SHAPE(1, ROWS, 2), NULL), *trained = yk_forward(m, x), *other = yk_forward(m, x);
    yk_module_eval(m);
    yk_tensor *plain = yk_forward(m, x), *zero = yk_zeros_like(plain);
    assert_true(distance(plain, yk_forward(m, x)) == 0);
    assert_true(distance(trained, other) > 0);
    double gone = yk_item(yk_sum(yk_cast(yk_eq(trained, zero), YK_F64)));
    if (!(fabs(gone - share) <= 5 * deviation))
        fail_msg("%g of %d elements were dropped, expected %g", gone, SIZE * ROWS, share);
    yk_tensor *kept = yk_where(yk_eq(trained, zero), zero, plain);
    assert_true(distance(yk_mul_scalar(trained, 1 - p), kept) <= 1e-8);
    assert_true(yk_item(yk_max(yk_abs(plain))) > 1e-5);
    /* No dropout after the last layer. */
    yk_module *one = yk_lstm_create(2, 3, YK_OPTIONS(yk_lstm_module_options, .dropout = 0.9));
    yk_tensor *train = yk_forward(one, x);
    yk_module_eval(one);
    assert_true(distance(train, yk_forward(one, x)) == 0);
    yk_scope_end(scope);
}

static void test_dtypes(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(4);
    yk_module *m = yk_lstm_create(6, 5, YK_OPTIONS(yk_lstm_module_options, .num_layers = 2, .bidirectional = true));
    yk_tensor *x = yk_randn(YK_SHAPE(4, 3, 6), NULL), *out[3], *cast[3];
    expect_ok(yk_forward_list(m, &x, 1, out, 3));
    /* Under autocast everything is in the region's dtype, as PyTorch's is, and gradients are the parameters'. */
    yk_autocast before = yk_autocast_begin(yk_tensor_device(x).type, YK_BF16, NULL);
    expect_ok(yk_forward_list(m, &x, 1, cast, 3));
    yk_autocast_end(before);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(yk_tensor_dtype(cast[i]), YK_BF16);
        assert_true(distance(out[i], cast[i]) <= 0.02);
    }
    expect_ok(yk_backward(yk_sum(cast[0])));
    assert_int_equal(yk_tensor_dtype(yk_grad(yk_module_get(m, "weight_hh_l1"))), YK_F32);
    /* In inference mode nothing is recorded. */
    bool mode = yk_inference_mode_begin();
    yk_tensor *y = yk_forward(m, x);
    yk_inference_mode_end(mode);
    assert_true(yk_is_inference(y) && !yk_requires_grad(y) && distance(y, out[0]) == 0);
    /* Halves. */
    yk_module_to_dtype(m, YK_F16);
    expect_ok(yk_forward_list(m, (yk_tensor *[]){yk_cast(x, YK_F16)}, 1, cast, 3));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(yk_tensor_dtype(cast[i]), YK_F16);
        assert_true(distance(out[i], cast[i]) <= 0.003);
    }
    expect_ok(yk_backward(yk_sum(yk_cast(cast[0], YK_F32))));
    assert_int_equal(yk_tensor_dtype(yk_grad(yk_module_get(m, "weight_ih_l0_reverse"))), YK_F16);
    yk_scope_end(scope);
}

/* ---- the module -------------------------------------------------------------------------------------------------- */

static void test_module(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(6);
    yk_module *m = yk_lstm_create(3, 40,
                                  YK_OPTIONS(yk_lstm_module_options, .num_layers = 2, .batch_first = true,
                                             .dropout = 0.5, .bidirectional = true));
    static const char *const names[] = {
        "weight_ih_l0",         "weight_hh_l0",         "bias_ih_l0",         "bias_hh_l0",
        "weight_ih_l0_reverse", "weight_hh_l0_reverse", "bias_ih_l0_reverse", "bias_hh_l0_reverse",
        "weight_ih_l1",         "weight_hh_l1",         "bias_ih_l1",         "bias_hh_l1",
        "weight_ih_l1_reverse", "weight_hh_l1_reverse", "bias_ih_l1_reverse", "bias_hh_l1_reverse"};
    yk_parameters *parameters = yk_module_parameters(m);
    assert_int_equal(yk_parameters_count(parameters), 16);
    double bound = 1 / sqrt(40);
    for (int i = 0; i < 16; i++) {
        yk_tensor *p = yk_parameters_at(parameters, i), *size = yk_abs(p);
        assert_string_equal(yk_parameters_name(parameters, i), names[i]);
        assert_true(yk_requires_grad(p) && yk_size(p, 0) == 160);
        if (i % 4 < 2)
            assert_int_equal(yk_size(p, 1), i % 4 ? 40 : i < 8 ? 3 : 80);
        /* Uniform in [-bound, bound]. */
        assert_true(yk_item(yk_max(size)) <= bound && yk_item(yk_max(size)) > 0.9 * bound);
        assert_true(fabs(yk_item(yk_mean(size)) - bound / 2) < 0.1 * bound);
    }
    char *text = NULL;
    size_t length = 0;
    FILE *to = open_memstream(&text, &length);
    expect_ok(yk_module_print(to, m));
    expect_ok(yk_module_print(to, yk_lstm_create(3, 4, YK_OPTIONS(yk_lstm_module_options, .bias = false))));
    fclose(to);
    assert_string_equal(text, "LSTM(3, 40, num_layers=2, batch_first=True, dropout=0.5, bidirectional=True)\n"
                              "LSTM(3, 4, bias=False)\n");
    free(text);
    /* An empty batch: no rows, and gradients that are zero. */
    yk_tensor *none = yk_zeros(YK_SHAPE(0, 4, 3), NULL), *out[3];
    expect_ok(yk_forward_list(m, &none, 1, out, 3));
    assert_true(yk_size(out[0], 0) == 0 && yk_size(out[0], 2) == 80 && yk_size(out[2], 1) == 0);
    expect_ok(yk_backward(yk_sum(out[0])));
    assert_true(yk_item(yk_max(yk_abs(yk_grad(yk_module_get(m, "weight_hh_l0"))))) == 0);
    /* A result that was changed is not what backward needs. */
    yk_tensor *x = yk_randn(YK_SHAPE(2, 4, 3), NULL), *w = yk_module_get(m, "weight_hh_l1");
    yk_tensor *y = yk_forward(m, x);
    bool before = yk_no_grad_begin();
    assert_non_null(yk_copy_(w, yk_zeros_like(w)));
    yk_no_grad_end(before);
    assert_int_equal(yk_backward(yk_sum(y)), YK_ERR_STATE);
    expect_error(YK_ERR_STATE, "lstm: a tensor of shape (160, 40) that its gradient needs has been modified");
    yk_scope_end(scope);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static void test_errors(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *m = yk_lstm_create(5, 4, YK_OPTIONS(yk_lstm_module_options, .num_layers = 2, .bidirectional = true));
    yk_module *rows = yk_lstm_create(5, 4, YK_OPTIONS(yk_lstm_module_options, .batch_first = true));
    yk_tensor *out[4], *x = yk_zeros(YK_SHAPE(3, 2, 5), NULL), *h = yk_zeros(YK_SHAPE(4, 2, 4), NULL);
#define REFUSED(module, expected_code, expected_text, ...)                                                             \
    do {                                                                                                               \
        yk_tensor *in_[] = {__VA_ARGS__};                                                                              \
        out[0] = out[1] = out[2] = x;                                                                                  \
        assert_int_equal(yk_forward_list(module, in_, (int)(sizeof(in_) / sizeof(*in_)), out, 3), expected_code);      \
        expect_error(expected_code, expected_text);                                                                    \
        assert_true(!out[0] && !out[1] && !out[2]);                                                                    \
    } while (0)
    REFUSED(m, YK_ERR_SHAPE, "lstm: input has shape (3), expected (T, N, input_size) or (T, input_size)",
            yk_zeros(YK_SHAPE(3), NULL));
    REFUSED(rows, YK_ERR_SHAPE, "lstm: input has shape (1, 2, 3, 5), expected (N, T, input_size) or (T, input_size)",
            yk_zeros(YK_SHAPE(1, 2, 3, 5), NULL));
    REFUSED(m, YK_ERR_SHAPE, "lstm: input (3, 2, 6) has 6 features, but weight_ih_l0 expects an input_size of 5",
            yk_zeros(YK_SHAPE(3, 2, 6), NULL));
    REFUSED(m, YK_ERR_SHAPE, "lstm: input (0, 2, 5) has no time steps", yk_zeros(YK_SHAPE(0, 2, 5), NULL));
    REFUSED(rows, YK_ERR_SHAPE, "lstm: input (2, 0, 5) has no time steps", yk_zeros(YK_SHAPE(2, 0, 5), NULL));
    REFUSED(m, YK_ERR_SHAPE, "lstm: h_0 has shape (3, 2, 4), expected (4, 2, 4)", x, yk_zeros(YK_SHAPE(3, 2, 4), NULL),
            h);
    REFUSED(m, YK_ERR_SHAPE, "lstm: c_0 has shape (4, 2, 3), expected (4, 2, 4)", x, h,
            yk_zeros(YK_SHAPE(4, 2, 3), NULL));
    REFUSED(m, YK_ERR_SHAPE, "lstm: h_0 has shape (4, 1, 4), expected (4, 4)", yk_zeros(YK_SHAPE(3, 5), NULL),
            yk_zeros(YK_SHAPE(4, 1, 4), NULL), yk_zeros(YK_SHAPE(4, 1, 4), NULL));
    REFUSED(m, YK_ERR_DTYPE, "lstm: input is float64, expected float32 as the weight is", yk_cast(x, YK_F64));
    REFUSED(m, YK_ERR_DTYPE, "lstm: h_0 is float64, expected float32", x, yk_cast(h, YK_F64), h);
    REFUSED(m, YK_ERR_DTYPE, "lstm: expected a floating input, this one is int64", yk_cast(x, YK_I64));
    REFUSED(m, YK_ERR_ARGUMENT,
            "lstm: 5 inputs for 3 outputs; expected x [, h_0 [, c_0 [, batch_sizes]]] for output [, h_n [, c_n]]", x, h,
            h, NULL, h);
    assert_int_equal(yk_forward_list(m, &x, 1, out, 4), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "lstm: 1 inputs for 4 outputs");
    REFUSED(m, YK_ERR_SHAPE, "add: shapes", yk_add(x, yk_zeros(YK_SHAPE(7), NULL)));

    yk_tensor *w[4] = {yk_zeros(YK_SHAPE(16, 5), NULL), yk_zeros(YK_SHAPE(16, 4), NULL), yk_zeros(YK_SHAPE(16), NULL),
                       yk_zeros(YK_SHAPE(16), NULL)};
    static const struct {
        int which, ndim;
        int64_t shape[2];
        const char *text;
    } wrong[] = {
        {0, 2, {12, 5}, "lstm: weight_ih_l0 has shape (12, 5), expected (16, 5)"},
        {1, 2, {16, 5}, "lstm: weight_hh_l0 has shape (16, 5), expected (4 hidden_size, hidden_size)"},
        {1, 1, {16}, "lstm: weight_hh_l0 has shape (16), expected (4 hidden_size, hidden_size)"},
        {2, 1, {4}, "lstm: bias_ih_l0 has shape (4), expected (16)"},
        {3, 2, {4, 4}, "lstm: bias_hh_l0 has shape (4, 4), expected (16)"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        yk_tensor *odd[4] = {w[0], w[1], w[2], w[3]};
        odd[wrong[i].which] = yk_zeros(wrong[i].ndim, wrong[i].shape, NULL);
        out[0] = x;
        assert_int_equal(yk_lstm(x, NULL, NULL, odd, 4, NULL, out, NULL, NULL), YK_ERR_SHAPE);
        expect_error(YK_ERR_SHAPE, wrong[i].text);
        assert_null(out[0]);
    }
    yk_tensor *mixed[4] = {w[0], w[1], yk_cast(w[2], YK_F64), w[3]}, *missing[4] = {w[0], NULL, w[2], w[3]};
    assert_int_equal(yk_lstm(x, NULL, NULL, mixed, 4, NULL, out, NULL, NULL), YK_ERR_DTYPE);
    expect_error(YK_ERR_DTYPE, "lstm: bias_ih_l0 is float64, expected float32");
    assert_int_equal(yk_lstm(x, NULL, NULL, missing, 4, NULL, out, NULL, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "lstm: argument 2 is NULL");
    assert_int_equal(yk_lstm(x, NULL, NULL, w, 3, NULL, out, NULL, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "lstm: 3 weights for num_layers 1, expected 4 for each layer");
    yk_lstm_options both = *YK_OPTIONS(yk_lstm_options, .num_layers = 2, .bidirectional = true, .bias = false);
    assert_int_equal(yk_lstm(x, NULL, NULL, w, 4, &both, out, NULL, NULL), YK_ERR_ARGUMENT);
    expect_error(
        YK_ERR_ARGUMENT,
        "lstm: 4 weights for num_layers 2, bidirectional, without biases, expected 2 for each layer and direction");

    yk_tensor *row = yk_zeros(YK_SHAPE(2, 5), NULL), *c = yk_zeros(YK_SHAPE(2, 4), NULL);
#define CELL(expected_code, expected_text, ...)                                                                        \
    do {                                                                                                               \
        assert_int_equal(yk_lstm_cell(__VA_ARGS__, &out[0], &out[1]), expected_code);                                  \
        expect_error(expected_code, expected_text);                                                                    \
        assert_true(!out[0] && !out[1]);                                                                               \
    } while (0)
    CELL(YK_ERR_SHAPE, "lstm_cell: input has shape (3, 2, 5), expected (N, 5)", x, NULL, NULL, w[0], w[1], w[2], w[3]);
    CELL(YK_ERR_SHAPE, "lstm_cell: input has shape (2, 4), expected (N, 5)", c, c, c, w[0], w[1], w[2], w[3]);
    CELL(YK_ERR_SHAPE, "lstm_cell: c has shape (2, 5), expected (2, 4)", row, c, row, w[0], w[1], w[2], w[3]);
    CELL(YK_ERR_SHAPE, "lstm_cell: weight_ih has shape (16, 5, 1), expected (16, 5)", row, c, c, yk_unsqueeze(w[0], 2),
         w[1], w[2], w[3]);
    CELL(YK_ERR_SHAPE, "lstm_cell: weight_hh has shape (16, 5), expected (4 hidden_size, hidden_size)", row, c, c, w[0],
         w[0], w[2], w[3]);
    CELL(YK_ERR_SHAPE, "lstm_cell: bias_ih has shape (16, 1), expected (16)", row, c, c, w[0], w[1],
         yk_unsqueeze(w[2], 1), w[3]);
    CELL(YK_ERR_DTYPE, "lstm_cell: h is float64, expected float32", row, yk_cast(c, YK_F64), c, w[0], w[1], w[2], w[3]);
    CELL(YK_ERR_ARGUMENT, "lstm_cell: argument 7 is NULL", row, c, c, w[0], w[1], w[2], NULL);
    /* Without biases, for one result alone. */
    expect_ok(yk_lstm_cell(row, NULL, NULL, w[0], w[1], NULL, NULL, NULL, &out[0]));
    assert_true(yk_size(out[0], 1) == 4 && yk_item(yk_max(yk_abs(out[0]))) == 0);

    assert_null(yk_lstm_create(0, 2, NULL));
    expect_error(YK_ERR_ARGUMENT, "lstm_create: input_size 0, hidden_size 2: both must be at least 1");
    assert_null(yk_lstm_create(2, -1, NULL));
    expect_error(YK_ERR_ARGUMENT, "lstm_create: input_size 2, hidden_size -1: both must be at least 1");
    yk_scope_end(scope);
}

/* Wherever memory runs out on the way, that is the error, and nothing is lost: what could be made is freed. */
static void test_out_of_memory(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *m = yk_lstm_create(6, 8, YK_OPTIONS(yk_lstm_module_options, .num_layers = 2, .bidirectional = true));
    yk_tensor *x = yk_randn(YK_SHAPE(32, 4, 6), NULL), *out = NULL;
    yk_device device = yk_tensor_device(x);
    yk_memory_info before, behind;
    int failed = 0;
    for (size_t room = 1; !out; room += 2048) {
        yk_device_empty_cache(device);
        expect_ok(yk_device_memory(device, &before));
        expect_ok(yk_device_set_memory_limit(device, before.reserved + room));
        out = yk_forward(m, x);
        assert_int_equal(yk_device_set_memory_limit(device, 0), YK_OK);
        if (!out) {
            failed++;
            expect_error(YK_ERR_MEMORY, "out of memory");
            expect_ok(yk_device_memory(device, &behind));
            assert_int_equal(behind.allocated, before.allocated);
        }
    }
    assert_true(failed > 4);
    assert_int_equal(yk_size(out, 2), 16);
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),  cmocka_unit_test(test_sizes),   cmocka_unit_test(test_differences),
        cmocka_unit_test(test_threads), cmocka_unit_test(test_dropout), cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_module),  cmocka_unit_test(test_errors),  cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
