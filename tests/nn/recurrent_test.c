/*
 * recurrent_test.c - GRU, RNN, their cells and packed sequences, of LSTMs too: PyTorch's numbers in all forms,
 * gradients of gradients, dropout, autocast, what is printed, errors.
 */
#include "tests/nn/module_cases.h"

static const yk_tensor_options *const f64_leaf = YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true);
static const yk_tensor_options *const i64 = YK_OPTIONS(yk_tensor_options, .dtype = YK_I64);
enum { IN = 2, HIDDEN = 3 };

/* ---- a module that packs, runs and pads -------------------------------------------------------------------------- */

typedef struct packing {
    yk_module *rnn;
    bool batch_first, sorted;
    int64_t total; /* 0: not given */
} packing;

/* x, lengths [, h_0 [, c_0]]: the padded output [, h_n [, c_n]] */
static yk_status packing_forward(yk_module *m, yk_tensor *const *in, int n_in, yk_tensor **out, int n_out)
{
    const packing *d = yk_module_data(m);
    yk_packed_sequence packed, made;
    yk_tensor *lengths;
    if (yk_pack_padded_sequence(in[0], yk_cpu(in[1]), d->batch_first, d->sorted, &packed) ||
        yk_forward_packed(d->rnn, &packed, in + 2, n_in - 2, &made, out + 1, n_out - 1) ||
        yk_pad_packed_sequence(&made, d->batch_first, 0.5, d->total ? d->total : YK_NOT_GIVEN, &out[0], &lengths))
        return YK_ERR_ARGUMENT;
    assert_true(yk_item(yk_all(yk_eq(lengths, yk_cpu(in[1])))) == 1);
    assert_true((made.sorted_indices == NULL) == d->sorted && made.batch_sizes == packed.batch_sizes);
    return YK_OK;
}

static yk_module *packing_of(yk_module *rnn, packing given)
{
    static const yk_module_class cls = {
        .name = "Packing", .data_size = sizeof(packing), .forward_list = packing_forward};
    yk_module *m = yk_module_create(&cls);
    packing *d = yk_module_data(m);
    *d = given;
    d->rnn = yk_module_add(m, "rnn", rnn);
    return yk_module_check(m);
}

#define LSTM_OF(...)     yk_lstm_create(IN, HIDDEN, YK_OPTIONS(yk_lstm_module_options, __VA_ARGS__))
#define GRU_OF(...)      yk_gru_create(IN, HIDDEN, YK_OPTIONS(yk_gru_module_options, __VA_ARGS__))
#define RNN_OF(...)      yk_rnn_create(IN, HIDDEN, YK_OPTIONS(yk_rnn_module_options, __VA_ARGS__))
#define PACKED(rnn, ...) packing_of(rnn, (packing){__VA_ARGS__})

/* The module of a case. */
static yk_module *make(const char *name)
{
#define CASE(label, ...)                                                                                               \
    if (strcmp(name, label) == 0)                                                                                      \
        return __VA_ARGS__;
    CASE("gru_plain", yk_gru_create(IN, HIDDEN, NULL))
    CASE("gru_both", GRU_OF(.num_layers = 2, .bidirectional = true))
    CASE("gru_first", GRU_OF(.num_layers = 2, .batch_first = true, .bias = false))
    CASE("gru_single", GRU_OF(.bidirectional = true))
    CASE("rnn_plain", yk_rnn_create(IN, HIDDEN, NULL))
    CASE("rnn_both", RNN_OF(.num_layers = 2, .bidirectional = true))
    CASE("rnn_first", RNN_OF(.num_layers = 2, .batch_first = true, .bias = false))
    CASE("rnn_single", RNN_OF(.bidirectional = true))
    CASE("rnn_relu", RNN_OF(.num_layers = 2, .nonlinearity = YK_NONLINEARITY_RELU))
    CASE("gru_cell", yk_gru_cell_create(IN, HIDDEN, NULL))
    CASE("gru_cell_bare", yk_gru_cell_create(IN, HIDDEN, YK_OPTIONS(yk_gru_cell_options, .bias = false)))
    CASE("rnn_cell", yk_rnn_cell_create(IN, HIDDEN, NULL))
    CASE("rnn_cell_relu",
         yk_rnn_cell_create(IN, HIDDEN, YK_OPTIONS(yk_rnn_cell_options, .nonlinearity = YK_NONLINEARITY_RELU)))
    CASE("packed_lstm", PACKED(LSTM_OF(.num_layers = 2, .bidirectional = true)))
    CASE("packed_lstm_bare",
         PACKED(LSTM_OF(.batch_first = true, .bidirectional = true), .batch_first = true, .total = 6))
    CASE("packed_lstm_sorted", PACKED(LSTM_OF(.num_layers = 1), .sorted = true))
    CASE("packed_gru", PACKED(GRU_OF(.num_layers = 2, .bidirectional = true, .batch_first = true), .batch_first = true))
    CASE("packed_gru_equal", PACKED(GRU_OF(.num_layers = 1), .sorted = true))
    CASE("packed_rnn",
         PACKED(RNN_OF(.num_layers = 2, .bidirectional = true, .bias = false, .nonlinearity = YK_NONLINEARITY_RELU)))
#undef CASE
    fail_msg("no test makes %s", name);
    return NULL;
}

static void test_golden(void **state)
{
    (void)state;
    size_t count;
    const char *const *names = golden_rows("recurrent", "cases", &count);
    assert_int_equal(count, 19);
    for (size_t i = 0; i < count; i++) {
        yk_scope scope = yk_scope_begin();
        case_run("recurrent", names[i], make(names[i]), 1e-13);
        yk_scope_end(scope);
    }
}

/* ---- packing ----------------------------------------------------------------------------------------------------- */

static yk_tensor *lengths_of(int count, const int64_t *values)
{
    return yk_cpu(yk_from_data(values, 1, (int64_t[]){count}, i64));
}

static void test_packing(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_reshape(yk_arange(0, 12, 1, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64)), YK_SHAPE(4, 3));
    yk_packed_sequence p;
    expect_ok(yk_pack_padded_sequence(x, lengths_of(3, (int64_t[]){2, 4, 1}), false, false, &p));
    const double *values = golden_numbers("recurrent", "pack", NULL);
    yk_tensor *parts[] = {p.data, p.batch_sizes, p.sorted_indices, p.unsorted_indices};
    for (int i = 0; i < 4; i++) {
        case_expect("pack", "a part", parts[i], values, 0);
        values += yk_numel(parts[i]);
    }
    yk_tensor *back, *lengths;
    expect_ok(yk_pad_packed_sequence(&p, true, 7, YK_NOT_GIVEN, &back, &lengths));
    assert_true(yk_size(back, 0) == 3 && yk_size(back, 1) == 4);
    for (int n = 0; n < 3; n++)
        for (int t = 0; t < 4; t++)
            assert_true(yk_get(back, (int64_t[]){n, t}) == (t < yk_get(lengths, (int64_t[]){n}) ? 3 * t + n : 7));
    expect_ok(yk_pad_packed_sequence(&p, true, 7, YK_NOT_GIVEN, NULL, NULL));
    yk_tensor *rows[] = {yk_narrow(x, 0, 0, 2), x, yk_narrow(x, 0, 0, 1)};
    case_expect("pad", "the padded", yk_pad_sequence(rows, 3, false, -1), golden_numbers("recurrent", "pad", NULL), 0);
    back = yk_pad_sequence(rows, 3, true, -1);
    assert_true(yk_size(back, 0) == 3 && yk_size(back, 1) == 4 && yk_get(back, (int64_t[]){2, 1, 0}) == -1);
    /* Integers are packed as well. */
    expect_ok(yk_pack_padded_sequence(yk_cast(x, YK_I64), lengths_of(3, (int64_t[]){4, 4, 1}), false, true, &p));
    assert_true(yk_tensor_dtype(p.data) == YK_I64 && yk_size(p.data, 0) == 9 && !p.sorted_indices);
    yk_scope_end(scope);
}

/* ---- gradients of gradients -------------------------------------------------------------------------------------- */

static yk_status run(yk_tensor *const *in, int n, yk_tensor **out, int n_out, void *module)
{
    (void)n;
    return yk_forward_list(module, in, 2, out, n_out); /* what follows are the module's parameters */
}

static yk_status run_packed(yk_tensor *const *in, int n, yk_tensor **out, int n_out, void *module)
{
    (void)n, (void)n_out;
    yk_packed_sequence packed, made;
    if (yk_pack_padded_sequence(in[0], lengths_of(2, (int64_t[]){1, 2}), true, false, &packed) ||
        yk_forward_packed(module, &packed, in + 1, 1, &made, out + 1, 1))
        return YK_ERR_ARGUMENT;
    return yk_pad_packed_sequence(&made, true, 0, YK_NOT_GIVEN, &out[0], NULL);
}

static void test_second(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(3);
    yk_module *modules[] = {yk_gru_create(2, 2, NULL), yk_rnn_create(2, 2, NULL), yk_lstm_create(2, 2, NULL)};
    for (int i = 0; i < 3; i++) {
        yk_module *m = yk_module_to_dtype(modules[i], YK_F64);
        yk_tensor *in[6] = {yk_randn(YK_SHAPE(2, 2, 2), f64_leaf), yk_randn(YK_SHAPE(1, 2, 2), f64_leaf)};
        for (int k = 0; k < 4; k++)
            in[2 + k] = yk_parameters_at(yk_module_parameters(m), k);
        expect_ok(yk_gradcheck_list(run, in, 6, 2, m, NULL));
        expect_ok(yk_gradgradcheck_list(run, in, 6, 2, m, NULL));
        expect_ok(yk_gradcheck_list(run_packed, in, 6, 2, m, NULL));
        expect_ok(yk_gradgradcheck_list(run_packed, in, 6, 2, m, NULL));
    }
    yk_scope_end(scope);
}

/* ---- dropout, autocast, print ------------------------------------------------------------------------------------ */

static double distance(yk_tensor *a, yk_tensor *b)
{
    if (!a || !b)
        fail_msg("a tensor is missing: %s", yk_last_error() ? yk_last_error()->message : "no record");
    assert_true(yk_same_shape(a, b));
    return yk_item(yk_max(yk_abs(yk_sub(yk_cast(a, YK_F64), yk_cast(b, YK_F64)))));
}

static void test_dropout(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(5);
    yk_module *m = GRU_OF(.num_layers = 2, .dropout = 1);
    yk_tensor *x = yk_randn(YK_SHAPE(3, 2, IN), NULL), *other = yk_randn(YK_SHAPE(3, 2, IN), NULL);
    assert_true(distance(yk_forward(m, x), yk_forward(m, other)) == 0); /* the second layer sees zeros */
    yk_module_eval(m);
    assert_true(distance(yk_forward(m, x), yk_forward(m, other)) > 1e-3);
    yk_scope_end(scope);
}

static void test_autocast(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(6);
    yk_tensor *x = yk_randn(YK_SHAPE(3, 2, IN), NULL);
    yk_module *modules[] = {yk_gru_create(IN, HIDDEN, NULL), yk_rnn_create(IN, HIDDEN, NULL),
                            yk_gru_cell_create(IN, HIDDEN, NULL), yk_rnn_cell_create(IN, HIDDEN, NULL)};
    for (int i = 0; i < 4; i++) {
        yk_tensor *in = i < 2 ? x : yk_select(x, 0, 0), *exact = yk_forward(modules[i], in);
        yk_autocast before = yk_autocast_begin(YK_CPU, YK_BF16, NULL);
        yk_tensor *out = yk_forward(modules[i], in);
        yk_autocast_end(before);
        assert_true(distance(exact, out) < 0.03);
        expect_ok(yk_backward(yk_sum(out)));
        assert_non_null(yk_grad(yk_module_get(modules[i], i < 2 ? "weight_hh_l0" : "weight_hh")));
        yk_module *half = yk_module_to_dtype(modules[i], YK_BF16);
        out = yk_forward(half, yk_cast(in, YK_BF16));
        assert_true(yk_tensor_dtype(out) == YK_BF16 && distance(exact, out) < 0.05);
    }
    yk_scope_end(scope);
}

static void expect_print(yk_module *m, const char *expected)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    assert_non_null(to);
    expect_ok(yk_module_print(to, m));
    fclose(to);
    assert_string_equal(text, expected);
    free(text);
}

static void test_print(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    expect_print(GRU_OF(.num_layers = 2, .bias = false, .batch_first = true, .dropout = 0.1, .bidirectional = true),
                 "GRU(2, 3, num_layers=2, bias=False, batch_first=True, dropout=0.1, bidirectional=True)\n");
    expect_print(yk_rnn_create(IN, HIDDEN, NULL), "RNN(2, 3)\n");
    expect_print(yk_rnn_cell_create(
                     IN, HIDDEN, YK_OPTIONS(yk_rnn_cell_options, .bias = false, .nonlinearity = YK_NONLINEARITY_RELU)),
                 "RNNCell(2, 3, bias=False, nonlinearity=relu)\n");
    yk_scope_end(scope);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static void refused(yk_module *m, yk_tensor *const *in, int n, yk_status code, const char *message)
{
    yk_tensor *out[1];
    assert_int_equal(yk_forward_list(m, in, n, out, 1), code);
    expect_error(code, message);
    assert_null(out[0]);
}

static void test_errors(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    assert_null(yk_gru_create(0, 3, NULL));
    expect_error(YK_ERR_ARGUMENT, "gru_create: input_size 0, hidden_size 3: both must be at least 1");
    assert_null(RNN_OF(.nonlinearity = (yk_nonlinearity)4));
    expect_error(YK_ERR_ARGUMENT, "rnn_create: nonlinearity 4 is neither tanh nor relu");
    assert_null(GRU_OF(.num_layers = 0));
    expect_error(YK_ERR_ARGUMENT, "gru_create: num_layers is 0, expected 1 to 10000");
    yk_module *gru = yk_gru_create(IN, HIDDEN, NULL), *cell = yk_gru_cell_create(IN, HIDDEN, NULL);
    yk_tensor *x = yk_ones(YK_SHAPE(4, 3, IN), NULL), *h = yk_ones(YK_SHAPE(1, 3, HIDDEN), NULL);
    refused(gru, (yk_tensor *[]){yk_ones(YK_SHAPE(4, 3, 5), NULL)}, 1, YK_ERR_SHAPE,
            "gru: input (4, 3, 5) has 5 features, but weight_ih_l0 expects an input_size of 2");
    refused(gru, (yk_tensor *[]){x, yk_ones(YK_SHAPE(1, 2, HIDDEN), NULL)}, 2, YK_ERR_SHAPE,
            "gru: h_0 has shape (1, 2, 3), expected (1, 3, 3)");
    refused(gru, (yk_tensor *[]){yk_cast(x, YK_F64)}, 1, YK_ERR_DTYPE, "gru: input is float64, expected float32");
    refused(gru, (yk_tensor *[]){x, h, NULL, NULL}, 4, YK_ERR_ARGUMENT,
            "gru: 4 inputs for 1 outputs; expected x [, h_0 [, batch_sizes]] for output [, h_n]");
    refused(cell, (yk_tensor *[]){x}, 1, YK_ERR_SHAPE, "gru_cell: input has shape (4, 3, 2), expected (N, 2)");
    refused(cell, (yk_tensor *[]){yk_select(x, 0, 0), yk_ones(YK_SHAPE(2, 3), NULL)}, 2, YK_ERR_SHAPE,
            "gru_cell: h has shape (2, 3), expected (3, 3)");
    refused(cell, (yk_tensor *[]){yk_select(x, 0, 0), NULL, NULL}, 3, YK_ERR_ARGUMENT, "expected x [, h] for h'");
    yk_tensor *out, *weight = yk_ones(YK_SHAPE(9, 2), NULL), *own = yk_ones(YK_SHAPE(8, 3), NULL);
    assert_int_equal(yk_gru(x, NULL, &weight, 1, NULL, &out, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "gru: 1 weights for num_layers 1, expected 4 for each layer");
    assert_int_equal(
        yk_gru(x, NULL, (yk_tensor *[]){weight, own}, 2, YK_OPTIONS(yk_gru_options, .bias = false), &out, NULL),
        YK_ERR_SHAPE);
    expect_error(YK_ERR_SHAPE, "gru: weight_hh_l0 has shape (8, 3), expected (3 hidden_size, hidden_size)");
    assert_int_equal(
        yk_rnn(x, NULL, (yk_tensor *[]){weight, own}, 2, YK_OPTIONS(yk_rnn_options, .bias = false), &out, NULL),
        YK_ERR_SHAPE);
    expect_error(YK_ERR_SHAPE, "rnn: weight_hh_l0 has shape (8, 3), expected (hidden_size, hidden_size)");
    assert_null(
        yk_gru_cell(yk_select(x, 0, 0), NULL, weight, yk_ones(YK_SHAPE(9, 3), NULL), NULL, yk_ones(YK_SHAPE(8), NULL)));
    yk_clear_error(); /* a NULL among the biases is a tensor that could not be made, unless both are */
    assert_null(yk_gru_cell(yk_select(x, 0, 0), NULL, weight, own, NULL, NULL));
    expect_error(YK_ERR_SHAPE, "gru_cell: weight_hh has shape (8, 3), expected (3 hidden_size, hidden_size)");
    assert_null(yk_rnn_cell(x, NULL, weight, own, NULL, NULL, (yk_nonlinearity)-1));
    expect_error(YK_ERR_ARGUMENT, "rnn_cell: nonlinearity -1 is neither tanh nor relu");
    yk_scope_end(scope);
}

static void test_packing_errors(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_ones(YK_SHAPE(4, 3, IN), NULL), *out;
    yk_packed_sequence p, q;
    const struct {
        yk_tensor *x, *lengths;
        bool sorted;
        const char *message;
    } packs[] = {
        {x, lengths_of(3, (int64_t[]){1, 5, 2}), false, "lengths[1] is 5, expected 1 to the 4 steps"},
        {x, lengths_of(3, (int64_t[]){1, 0, 2}), false, "lengths[1] is 0, expected 1 to the 4 steps"},
        {x, lengths_of(3, (int64_t[]){3, 1, 2}), true, "lengths[2] is 2, above the 1 before it; sort them, or set"},
        {x, lengths_of(2, (int64_t[]){3, 1}), true, "lengths is (2) of int64, expected (3) of int64 on a CPU"},
        {x, yk_cpu(yk_ones(YK_SHAPE(3), NULL)), true, "lengths is (3) of float32, expected (3) of int64 on a CPU"},
        {yk_ones(YK_SHAPE(4), NULL), lengths_of(3, (int64_t[]){1, 1, 1}), true,
         "input has shape (4), expected (T, N, ...)"},
        {yk_ones(YK_SHAPE(0, 3), NULL), lengths_of(3, (int64_t[]){1, 1, 1}), true, "neither of them 0"},
    };
    for (size_t i = 0; i < sizeof(packs) / sizeof(*packs); i++) {
        yk_status status = yk_pack_padded_sequence(packs[i].x, packs[i].lengths, false, packs[i].sorted, &p);
        assert_true(status == YK_ERR_ARGUMENT || status == YK_ERR_SHAPE);
        expect_error(status, packs[i].message);
        assert_true(!p.data && !p.batch_sizes && !p.sorted_indices && !p.unsorted_indices);
    }
    assert_true(yk_pack_padded_sequence(NULL, NULL, false, false, &p) != YK_OK);
    yk_clear_error();
    assert_int_equal(yk_pack_padded_sequence(x, packs[0].lengths, false, false, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "pack_padded_sequence");
    expect_ok(yk_pack_padded_sequence(x, lengths_of(3, (int64_t[]){1, 4, 2}), false, false, &p));
    assert_int_equal(yk_pad_packed_sequence(&p, false, 0, 3, &out, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "total_length is 3, but the longest sequence has 4 steps");
    q = p;
    q.batch_sizes = lengths_of(2, (int64_t[]){3, 1});
    assert_int_equal(yk_pad_packed_sequence(&q, false, 0, YK_NOT_GIVEN, &out, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "batch_sizes add up to 4, but data has 7 rows");
    q.batch_sizes = lengths_of(3, (int64_t[]){2, 3, 2});
    assert_int_equal(yk_pad_packed_sequence(&q, false, 0, YK_NOT_GIVEN, &out, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "batch_sizes[1] is 3, which does not fit data of 7 rows");
    q = p;
    q.sorted_indices = yk_from_data((int64_t[]){0, 1, 9}, YK_SHAPE(3), i64);
    assert_int_equal(yk_pad_packed_sequence(&q, false, 0, YK_NOT_GIVEN, &out, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "sorted_indices do not fit batch_sizes");

    yk_module *gru = yk_gru_create(IN, HIDDEN, NULL);
    yk_tensor *ends[2], *wrong = yk_ones(YK_SHAPE(1, 2, HIDDEN), NULL);
    assert_int_equal(yk_forward_packed(yk_relu_create(), &p, NULL, 0, &q, NULL, 0), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "forward_packed: the module is a ReLU, expected LSTM, GRU or RNN");
    assert_int_equal(yk_forward_packed(gru, &p, NULL, 0, &q, ends, 2), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "forward_packed: 0 states for 2 ends; GRU has 1");
    assert_int_equal(yk_forward_packed(gru, &(yk_packed_sequence){.data = x}, NULL, 0, &q, NULL, 0), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "forward_packed: the packed sequence has no batch_sizes");
    assert_true(yk_forward_packed(gru, &p, &wrong, 1, &q, ends, 1) != YK_OK);
    yk_clear_error();
    assert_null(q.data);
    yk_tensor *in[] = {p.data, NULL, lengths_of(2, (int64_t[]){3, 1})};
    refused(gru, in, 3, YK_ERR_ARGUMENT, "gru: batch_sizes add up to 4, but input has 7 rows");
    in[2] = lengths_of(3, (int64_t[]){2, 3, 2});
    refused(gru, in, 3, YK_ERR_ARGUMENT, "gru: batch_sizes[1] is 3: they are at least 1, none above the one before");
    in[0] = x;
    refused(gru, in, 3, YK_ERR_SHAPE, "gru: input has shape (4, 3, 2), expected (sum of batch_sizes, input_size)");

    assert_null(yk_pad_sequence(NULL, 0, true, 0));
    expect_error(YK_ERR_ARGUMENT, "pad_sequence: 0 sequences, expected at least one");
    assert_null(yk_pad_sequence((yk_tensor *[]){x, yk_ones(YK_SHAPE(4, 2, IN), NULL)}, 2, true, 0));
    expect_error(YK_ERR_SHAPE,
                 "pad_sequence: sequence 1 is (4, 2, 2) of float32, the first (4, 3, 2) of float32; they may");
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),  cmocka_unit_test(test_packing),        cmocka_unit_test(test_second),
        cmocka_unit_test(test_dropout), cmocka_unit_test(test_autocast),       cmocka_unit_test(test_print),
        cmocka_unit_test(test_errors),  cmocka_unit_test(test_packing_errors),
    };
    return cmocka_run_group_tests_name("recurrent", tests, NULL, NULL);
}
