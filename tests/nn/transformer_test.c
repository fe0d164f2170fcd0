/*
 * transformer_test.c - MultiheadAttention, the transformers and attention of grouped queries: PyTorch's numbers in all
 * forms, gradients of gradients, dropout, copies of layers, initial values, half precision, errors.
 */
#include "tests/nn/module_cases.h"

static const yk_tensor_options *const f64 = YK_OPTIONS(yk_tensor_options, .dtype = YK_F64);
static const yk_tensor_options *const f64_leaf = YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true);
enum { N = 2, L = 3, S = 4, E = 4, HEADS = 2 };

#define ATTENTION(...) yk_multihead_attention(E, HEADS, YK_OPTIONS(yk_multihead_attention_options, __VA_ARGS__))
#define ENCODER_LAYER(...)                                                                                             \
    yk_transformer_encoder_layer(E, HEADS,                                                                             \
                                 YK_OPTIONS(yk_transformer_encoder_layer_options, .dim_feedforward = 5, __VA_ARGS__))
#define DECODER_LAYER(...)                                                                                             \
    yk_transformer_decoder_layer(E, HEADS,                                                                             \
                                 YK_OPTIONS(yk_transformer_decoder_layer_options, .dim_feedforward = 5, __VA_ARGS__))
#define TRANSFORMER(...)                                                                                               \
    yk_transformer(YK_OPTIONS(yk_transformer_options, .d_model = E, .nhead = HEADS, .dim_feedforward = 5,              \
                              .dropout = 0, __VA_ARGS__))

/* The module of a case. */
static yk_module *make(const char *name)
{
#define CASE(label, ...)                                                                                               \
    if (strcmp(name, label) == 0)                                                                                      \
        return __VA_ARGS__;
    CASE("self", ATTENTION(.dropout = 0))
    CASE("self_output", ATTENTION(.bias = false))
    CASE("cross", ATTENTION(.dropout = 0))
    CASE("three", ATTENTION(.average_attn_weights = false))
    CASE("features", ATTENTION(.batch_first = true, .kdim = 3, .vdim = 5))
    CASE("bools", ATTENTION(.dropout = 0))
    CASE("bools_output", ATTENTION(.dropout = 0))
    CASE("padded", ATTENTION(.batch_first = true))
    CASE("added", ATTENTION(.dropout = 0))
    CASE("mixed", ATTENTION(.dropout = 0))
    CASE("more_keys", ATTENTION(.add_bias_kv = true, .add_zero_attn = true))
    CASE("zero_key", ATTENTION(.add_zero_attn = true, .bias = false))
    CASE("single", ATTENTION(.dropout = 0))
    CASE("single_self", ATTENTION(.batch_first = true))
    CASE("causal", ATTENTION(.batch_first = true, .is_causal = true))
    CASE("causal_weights", ATTENTION(.is_causal = true))
    CASE("causal_padded", ATTENTION(.batch_first = true, .is_causal = true, .add_bias_kv = true))
    CASE("encoder_layer", ENCODER_LAYER(.dropout = 0))
    CASE("encoder_layer_first", ENCODER_LAYER(.dropout = 0, .activation = yk_gelu, .batch_first = true,
                                              .norm_first = true, .bias = false, .layer_norm_eps = 1e-3))
    CASE("encoder_layer_causal", ENCODER_LAYER(.dropout = 0, .is_causal = true, .activation = yk_relu))
    CASE("decoder_layer", DECODER_LAYER(.dropout = 0))
    CASE("decoder_layer_masks",
         DECODER_LAYER(.dropout = 0, .activation = yk_gelu, .batch_first = true, .norm_first = true, .bias = false))
    CASE("encoder", yk_transformer_encoder(ENCODER_LAYER(.dropout = 0, .batch_first = true), 2,
                                           yk_layer_norm_create(YK_SHAPE(E), NULL)))
    CASE("decoder", yk_transformer_decoder(DECODER_LAYER(.dropout = 0), 2, NULL))
    CASE("transformer", TRANSFORMER(.num_encoder_layers = 2, .num_decoder_layers = 1))
    CASE("transformer_causal",
         TRANSFORMER(.num_encoder_layers = 1, .num_decoder_layers = 2, .activation = yk_gelu, .batch_first = true,
                     .norm_first = true, .bias = false, .tgt_is_causal = true))
#undef CASE
    fail_msg("no test makes %s", name);
    return NULL;
}

static void test_golden(void **state)
{
    (void)state;
    size_t count;
    const char *const *names = golden_rows("transformer", "cases", &count);
    assert_int_equal(count, 26);
    for (size_t i = 0; i < count; i++) {
        yk_scope scope = yk_scope_begin();
        case_run("transformer", names[i], make(names[i]), 1e-12);
        yk_scope_end(scope);
    }
}

/* ---- grouped queries --------------------------------------------------------------------------------------------- */

static yk_tensor *mask_of_thirds(int ndim, const int64_t *shape)
{
    bool values[128];
    int64_t count = 1;
    for (int d = 0; d < ndim; d++)
        count *= shape[d];
    assert_true(count <= 128);
    for (int64_t i = 0; i < count; i++)
        values[i] = i % 3 != 0;
    return yk_from_data(values, ndim, shape, YK_OPTIONS(yk_tensor_options, .dtype = YK_BOOL));
}

static void test_grouped_queries(void **state)
{
    (void)state;
    const struct {
        const char *name;
        int ndim, mask;
        int64_t shape[3][5], mask_shape[4];
        bool causal;
    } cases[] = {
        {"gqa_plain", 4, 0, {{2, 4, 3, 2}, {2, 2, 5, 2}, {2, 2, 5, 3}}, {0}, false},
        {"gqa_causal", 4, 0, {{2, 6, 3, 2}, {2, 2, 3, 2}, {2, 2, 3, 3}}, {0}, true},
        {"gqa_mask", 4, 4, {{2, 4, 3, 2}, {2, 2, 5, 2}, {2, 2, 5, 3}}, {2, 4, 3, 5}, false},
        {"gqa_three", 3, 2, {{4, 3, 2}, {1, 5, 2}, {1, 5, 3}}, {3, 5}, false},
        {"gqa_apart", 4, 0, {{2, 4, 3, 2}, {2, 2, 5, 2}, {2, 1, 5, 3}}, {0}, false},
        {"gqa_five", 5, 0, {{1, 2, 4, 3, 2}, {1, 2, 2, 5, 2}, {1, 2, 2, 5, 3}}, {0}, false},
    };
    for (size_t c = 0; c < sizeof(cases) / sizeof(*cases); c++) {
        yk_scope scope = yk_scope_begin();
        const double *values = golden_numbers("transformer", cases[c].name, NULL);
        int ndim = cases[c].ndim;
        yk_tensor *in[3];
        for (int i = 0; i < 3; i++) {
            in[i] = yk_from_data(values, ndim, cases[c].shape[i], f64_leaf);
            values += yk_numel(in[i]);
        }
        int64_t out_shape[5];
        memcpy(out_shape, cases[c].shape[0], sizeof(out_shape));
        out_shape[ndim - 1] = cases[c].shape[2][ndim - 1];
        yk_tensor *pull = yk_from_data(values, ndim, out_shape, f64);
        values += yk_numel(pull);
        yk_attention_options options =
            *YK_OPTIONS(yk_attention_options, .enable_gqa = true, .is_causal = cases[c].causal,
                        .attn_mask = cases[c].mask ? mask_of_thirds(cases[c].mask, cases[c].mask_shape) : NULL);
        yk_tensor *out = yk_scaled_dot_product_attention(in[0], in[1], in[2], &options);
        case_expect(cases[c].name, "the output", out, values, 1e-13);
        assert_int_equal(yk_ndim(out), ndim);
        values += yk_numel(out);
        expect_ok(yk_backward(yk_sum(yk_mul(out, pull))));
        for (int i = 0; i < 3; i++) {
            case_expect(cases[c].name, "a gradient", yk_grad(in[i]), values, 1e-12);
            values += yk_numel(in[i]);
        }
        yk_scope_end(scope);
    }
    yk_scope scope = yk_scope_begin();
    yk_tensor *q = yk_randn(YK_SHAPE(2, 4, 3, 2), f64), *k = yk_randn(YK_SHAPE(2, 2, 3, 2), f64);
    yk_attention_options grouped = *YK_OPTIONS(yk_attention_options, .enable_gqa = true, .dropout_p = 1);
    assert_true(yk_item(yk_max(yk_abs(yk_scaled_dot_product_attention(q, k, k, &grouped)))) == 0);
    grouped.dropout_p = 0;
    yk_tensor *same = yk_scaled_dot_product_attention(q, q, q, &grouped);
    assert_true(yk_item(yk_max(yk_abs(yk_sub(same, yk_scaled_dot_product_attention(q, q, q, NULL))))) == 0);
    /* Inputs that are views in another order, and a mask of numbers that wants a gradient. */
    yk_tensor *turned = yk_transpose(yk_contiguous(yk_transpose(q, 1, 2)), 1, 2);
    yk_tensor *mask = yk_zeros(YK_SHAPE(1, 4, 3, 3), f64_leaf);
    yk_tensor *first = yk_scaled_dot_product_attention(q, k, k, &grouped);
    yk_tensor *second = yk_scaled_dot_product_attention(turned, k, k, &grouped);
    assert_true(yk_item(yk_max(yk_abs(yk_sub(first, second)))) < 1e-14);
    grouped.attn_mask = mask;
    second = yk_scaled_dot_product_attention(q, k, k, &grouped);
    assert_true(yk_item(yk_max(yk_abs(yk_sub(first, second)))) < 1e-14);
    expect_ok(yk_backward(yk_sum(yk_square(second))));
    assert_true(yk_item(yk_max(yk_abs(yk_grad(mask)))) > 1e-3);
    grouped.attn_mask = NULL;
    assert_null(yk_scaled_dot_product_attention(q, yk_randn(YK_SHAPE(2, 3, 3, 2), f64), k, &grouped));
    expect_error(YK_ERR_SHAPE, "enable_gqa takes query (..., Hq, L, E), key (..., H, S, E) and value (..., H, S, D)");
    assert_null(yk_scaled_dot_product_attention(yk_select(q, 0, 0), k, k, &grouped));
    expect_error(YK_ERR_SHAPE, "of as many dimensions, Hq a multiple of each H, got (4, 3, 2), (2, 2, 3, 2)");
    assert_null(yk_scaled_dot_product_attention(yk_ones(YK_SHAPE(3, 2), f64), yk_ones(YK_SHAPE(3, 2), f64),
                                                yk_ones(YK_SHAPE(3, 2), f64), &grouped));
    expect_error(YK_ERR_SHAPE, "enable_gqa takes query (..., Hq, L, E)");
    yk_scope_end(scope);
}

/* ---- gradients of gradients -------------------------------------------------------------------------------------- */

static yk_status run(yk_tensor *const *in, int n, yk_tensor **out, int n_out, void *module)
{
    (void)n;
    return yk_forward_list(module, in, 2, out, n_out); /* what follows are the module's parameters */
}

static yk_status attend(yk_tensor *const *in, int n, yk_tensor **out, int n_out, void *user)
{
    (void)n, (void)n_out, (void)user;
    out[0] = yk_scaled_dot_product_attention(in[0], in[1], in[2],
                                             YK_OPTIONS(yk_attention_options, .enable_gqa = true, .is_causal = true));
    return out[0] ? YK_OK : YK_ERR_ARGUMENT;
}

static void test_second(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(4);
    yk_module *modules[] = {ATTENTION(.add_bias_kv = true), DECODER_LAYER(.dropout = 0, .activation = yk_gelu)};
    for (int i = 0; i < 2; i++) {
        yk_module *m = yk_module_to_dtype(modules[i], YK_F64);
        yk_tensor *in[4] = {yk_randn(YK_SHAPE(2, 1, E), f64_leaf), yk_randn(YK_SHAPE(3, 1, E), f64_leaf)};
        in[2] = yk_module_get(m, i ? "multihead_attn.in_proj_weight" : "in_proj_weight");
        in[3] = yk_module_get(m, i ? "linear1.bias" : "bias_k");
        expect_ok(yk_gradcheck_list(run, in, 4, i ? 1 : 2, m, NULL));
        expect_ok(yk_gradgradcheck_list(run, in, 4, i ? 1 : 2, m, NULL));
    }
    yk_tensor *grouped[3] = {yk_randn(YK_SHAPE(1, 4, 2, 2), f64_leaf), yk_randn(YK_SHAPE(1, 2, 2, 2), f64_leaf),
                             yk_randn(YK_SHAPE(1, 2, 2, 3), f64_leaf)};
    expect_ok(yk_gradcheck_list(attend, grouped, 3, 1, NULL, NULL));
    expect_ok(yk_gradgradcheck_list(attend, grouped, 3, 1, NULL, NULL));
    yk_scope_end(scope);
}

/* ---- dropout, copies, initial values, half precision ------------------------------------------------------------- */

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
    yk_manual_seed(6);
    yk_tensor *x = yk_randn(YK_SHAPE(L, N, E), NULL), *out[2];
    yk_module *m = ATTENTION(.dropout = 1);
    expect_ok(yk_init_constant(yk_module_get(m, "out_proj.bias"), 0.25));
    assert_true(distance(yk_forward(m, x), yk_full_like(x, 0.25)) == 0);
    expect_ok(yk_forward_list(m, &x, 1, out, 2));
    assert_true(distance(out[0], yk_full_like(x, 0.25)) == 0 && yk_item(yk_max(out[1])) == 0);
    yk_module_eval(m);
    expect_ok(yk_forward_list(m, &x, 1, out, 2));
    assert_true(distance(out[0], yk_forward(m, x)) < 1e-6);
    assert_true(distance(yk_sum_dims(out[1], (int[]){2}, 1, false), yk_ones(YK_SHAPE(N, L), NULL)) < 1e-6);

    /* Half of the weights, the others doubled: what comes out is the mean over many draws. */
    m = ATTENTION(.dropout = 0.5);
    expect_ok(yk_forward_list(m, &x, 1, out, 2));
    double low = yk_item(yk_min(out[1]));
    yk_module_eval(m);
    expect_ok(yk_forward_list(m, &x, 1, out, 2));
    assert_true(low < 1e-3 && yk_item(yk_min(out[1])) > 0.01);
    yk_module *layer = ENCODER_LAYER(.dropout = 1);
    /* Nothing but the sum of the input and zeros is left, which two norms normalise. */
    yk_tensor *expected = yk_layer_norm(yk_layer_norm(x, YK_SHAPE(E), NULL, NULL, 1e-5), YK_SHAPE(E), NULL, NULL, 1e-5);
    assert_true(distance(yk_forward(layer, x), expected) < 1e-6);
    yk_module_eval(layer);
    assert_true(distance(yk_forward(layer, x), expected) > 1e-3);
    yk_scope_end(scope);
}

static void test_copies(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(7);
    yk_module *layer = yk_module_to_dtype(ENCODER_LAYER(.activation = yk_gelu), YK_F64);
    expect_ok(yk_set_requires_grad(yk_module_get(layer, "linear1.weight"), false));
    yk_module_eval(layer);
    yk_module *encoder = yk_transformer_encoder(layer, 3, NULL);
    yk_tensor *x = yk_randn(YK_SHAPE(L, N, E), f64), *y = x;
    for (int i = 0; i < 3; i++)
        y = yk_forward(layer, y);
    yk_tensor *out = yk_forward(encoder, x);
    assert_true(out && distance(out, y) == 0);
    assert_false(yk_requires_grad(yk_module_get(encoder, "layers.2.linear1.weight")));
    assert_true(yk_requires_grad(yk_module_get(encoder, "layers.2.linear1.bias")));
    yk_tensor *own = yk_module_get(layer, "linear1.bias");
    expect_ok(yk_init_constant(own, 9)); /* the copies are apart from it, and from one another */
    assert_true(distance(yk_forward(encoder, x), out) == 0);
    expect_ok(yk_init_constant(yk_module_get(encoder, "layers.0.linear1.bias"), 9));
    assert_true(distance(yk_module_get(encoder, "layers.1.linear1.bias"), own) > 1);
    yk_scope_end(scope);
}

static void test_initial_values(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(8);
    yk_module *m = yk_multihead_attention(64, 4, YK_OPTIONS(yk_multihead_attention_options, .add_bias_kv = true));
    double bound = sqrt(6.0 / (4 * 64)), most = yk_item(yk_max(yk_abs(yk_module_get(m, "in_proj_weight"))));
    assert_true(most <= bound && most > 0.97 * bound);
    assert_true(yk_item(yk_max(yk_abs(yk_module_get(m, "in_proj_bias")))) == 0);
    assert_true(yk_item(yk_max(yk_abs(yk_module_get(m, "out_proj.bias")))) == 0);
    most = yk_item(yk_max(yk_abs(yk_module_get(m, "out_proj.weight"))));
    assert_true(most <= 0.125 && most > 0.12);
    double deviation = yk_item(yk_std(yk_module_get(m, "bias_k")));
    assert_true(deviation > 0.08 && deviation < 0.17);
    yk_module *whole = yk_transformer(YK_OPTIONS(yk_transformer_options, .d_model = 32, .num_encoder_layers = 1,
                                                 .num_decoder_layers = 1, .dim_feedforward = 64));
    most = yk_item(yk_max(yk_abs(yk_module_get(whole, "decoder.layers.0.linear1.weight"))));
    assert_true(most <= 0.25 && most > 0.24); /* sqrt(6 / (32 + 64)) */
    yk_tensor *mask = yk_generate_square_subsequent_mask(3, f64);
    for (int i = 0; i < 9; i++)
        assert_true(yk_get(mask, (int64_t[]){i / 3, i % 3}) == (i % 3 > i / 3 ? -INFINITY : 0));
    yk_scope_end(scope);
}

/* A query that may look at no key attends to zeros, with weights and without; PyTorch has NaN with them. */
static void test_nothing_to_see(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *m = ATTENTION(.dropout = 0);
    expect_ok(yk_init_constant(yk_module_get(m, "out_proj.bias"), 0.5));
    yk_tensor *x = yk_randn(YK_SHAPE(L, 1, E), YK_OPTIONS(yk_tensor_options, .requires_grad = true)), *out[2];
    yk_tensor *padding = yk_cast(yk_ones(YK_SHAPE(1, L), NULL), YK_BOOL);
    for (int wanted = 1; wanted <= 2; wanted++) {
        expect_ok(yk_forward_list(m, (yk_tensor *[]){x, x, x, padding}, 4, out, wanted));
        assert_true(distance(yk_detach(out[0]), yk_full(YK_SHAPE(L, 1, E), 0.5, NULL)) == 0);
        expect_ok(yk_backward(yk_sum(out[0])));
        assert_true(yk_item(yk_max(yk_abs(yk_grad(x)))) == 0);
    }
    yk_scope_end(scope);
}

static void test_autocast(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(9);
    yk_module *m = TRANSFORMER(.num_encoder_layers = 1, .num_decoder_layers = 1);
    yk_module *attention = ATTENTION(.dropout = 0);
    yk_tensor *in[] = {yk_randn(YK_SHAPE(S, N, E), NULL), yk_randn(YK_SHAPE(L, N, E), NULL), NULL,
                       yk_generate_square_subsequent_mask(L, NULL)};
    yk_tensor *exact, *out, *pair[2], *exact_pair[2],
        *given[] = {in[0], NULL, NULL, NULL, yk_generate_square_subsequent_mask(S, NULL)};
    expect_ok(yk_forward_list(m, in, 4, &exact, 1));
    expect_ok(yk_forward_list(attention, given, 5, exact_pair, 2));
    yk_autocast before = yk_autocast_begin(YK_CPU, YK_BF16, NULL);
    yk_status status = yk_forward_list(m, in, 4, &out, 1), second = yk_forward_list(attention, given, 5, pair, 2);
    yk_autocast_end(before);
    expect_ok(status);
    expect_ok(second);
    assert_true(distance(exact, out) < 0.1 && distance(exact_pair[0], pair[0]) < 0.03);
    assert_true(distance(exact_pair[1], pair[1]) < 0.03);
    expect_ok(yk_backward(yk_sum(yk_square(out))));
    yk_module *half = yk_module_to_dtype(attention, YK_BF16);
    given[0] = yk_cast(given[0], YK_BF16);
    expect_ok(yk_forward_list(half, given, 5, pair, 2));
    assert_true(yk_tensor_dtype(pair[0]) == YK_BF16 && distance(exact_pair[0], pair[0]) < 0.03);
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
    assert_null(yk_multihead_attention(6, 4, NULL));
    expect_error(YK_ERR_ARGUMENT, "multihead_attention: embed_dim 6 is no multiple of num_heads 4");
    assert_null(yk_multihead_attention(0, 1, NULL));
    expect_error(YK_ERR_ARGUMENT, "multihead_attention: embed_dim is 0");
    assert_null(yk_multihead_attention(4, -2, NULL));
    expect_error(YK_ERR_ARGUMENT, "multihead_attention: num_heads is -2");
    assert_null(ENCODER_LAYER(.dropout = 2));
    expect_error(YK_ERR_ARGUMENT, "transformer_encoder_layer: dropout is 2");
    assert_null(yk_transformer_decoder_layer(6, 4, NULL));
    expect_error(YK_ERR_ARGUMENT, "transformer_decoder_layer: d_model 6 is no multiple of nhead 4");
    assert_null(yk_transformer(YK_OPTIONS(yk_transformer_options, .num_encoder_layers = -1)));
    expect_error(YK_ERR_ARGUMENT, "transformer: num_encoder_layers is -1");
    assert_null(yk_transformer_encoder(DECODER_LAYER(.dropout = 0), 2, NULL));
    expect_error(YK_ERR_ARGUMENT, "transformer_encoder: the layer is a TransformerDecoderLayer, expected a "
                                  "TransformerEncoderLayer");
    assert_null(yk_transformer_decoder(DECODER_LAYER(.dropout = 0), 0, NULL));
    expect_error(YK_ERR_ARGUMENT, "transformer_decoder: num_layers is 0");
    assert_null(yk_transformer_encoder(NULL, 2, NULL));
    expect_error(YK_ERR_ARGUMENT, "transformer_encoder");
    assert_null(yk_generate_square_subsequent_mask(-1, NULL));
    expect_error(YK_ERR_ARGUMENT, "generate_square_subsequent_mask: size is -1");

    yk_module *m = ATTENTION(.batch_first = true);
    yk_tensor *q = yk_ones(YK_SHAPE(N, L, E), NULL), *k = yk_ones(YK_SHAPE(N, S, E), NULL);
    refused(m, (yk_tensor *[]){yk_ones(YK_SHAPE(N, L, 5), NULL)}, 1, YK_ERR_SHAPE,
            "multihead_attention: query has shape (2, 3, 5), expected (N, L, 4)");
    refused(m, (yk_tensor *[]){q, yk_ones(YK_SHAPE(S, E), NULL)}, 2, YK_ERR_SHAPE,
            "key has shape (4, 4), expected (N, S");
    refused(m, (yk_tensor *[]){q, yk_ones(YK_SHAPE(3, S, E), NULL)}, 2, YK_ERR_SHAPE,
            "query (2, 3, 4) and key (3, 4, 4) have batches of 2 and 3");
    refused(m, (yk_tensor *[]){q, k, q}, 3, YK_ERR_SHAPE, "key (2, 4, 4) and value (2, 3, 4) differ in more than");
    refused(m, (yk_tensor *[]){q, k, k, NULL, yk_ones(YK_SHAPE(S, L), NULL)}, 5, YK_ERR_SHAPE,
            "attn_mask has shape (4, 3), expected (3, 4)");
    refused(m, (yk_tensor *[]){q, k, k, NULL, yk_ones(YK_SHAPE(N, L, S), NULL)}, 5, YK_ERR_SHAPE,
            "attn_mask has shape (2, 3, 4), expected (4, 3, 4)");
    refused(m, (yk_tensor *[]){q, k, k, yk_ones(YK_SHAPE(N, L), NULL)}, 4, YK_ERR_SHAPE,
            "key_padding_mask has shape (2, 3), expected (2, 4)");
    refused(m, (yk_tensor *[]){q, k, k, yk_cast(yk_ones(YK_SHAPE(N, S), NULL), YK_I64)}, 4, YK_ERR_DTYPE,
            "key_padding_mask is int64, expected bool (true: not looked at) or floating (added)");
    refused(m, (yk_tensor *[]){yk_cast(q, YK_F64)}, 1, YK_ERR_DTYPE, "linear: input is float64, expected float32");
    refused(m, (yk_tensor *[]){q, k, k, NULL, NULL, NULL}, 6, YK_ERR_ARGUMENT,
            "6 inputs for 1 outputs; expected query [, key, value");
    yk_module *encoder = ENCODER_LAYER(.dropout = 0), *decoder = DECODER_LAYER(.dropout = 0);
    refused(encoder, (yk_tensor *[]){q, NULL, NULL, NULL}, 4, YK_ERR_ARGUMENT, "expected src [, src_mask");
    refused(encoder, (yk_tensor *[]){yk_ones(YK_SHAPE(N, L, 3), NULL)}, 1, YK_ERR_SHAPE,
            "self_attn: multihead_attention: query has shape (2, 3, 3), expected (L, N, 4)");
    refused(decoder, (yk_tensor *[]){q}, 1, YK_ERR_ARGUMENT, "1 inputs for 1 outputs; expected tgt, memory [,");
    refused(TRANSFORMER(.num_encoder_layers = 1), (yk_tensor *[]){q}, 1, YK_ERR_ARGUMENT,
            "expected src, tgt [, src_mask");
    refused(yk_transformer_encoder(encoder, 1, NULL), (yk_tensor *[]){q, NULL, NULL, NULL}, 4, YK_ERR_ARGUMENT,
            "layers.0: transformer_encoder_layer: 4 inputs");
    refused(yk_module_get_module(yk_transformer_encoder(encoder, 1, NULL), "layers"), &q, 1, YK_ERR_ARGUMENT,
            "ModuleList: a list of modules has no forward of its own");
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),         cmocka_unit_test(test_grouped_queries),
        cmocka_unit_test(test_second),         cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_copies),         cmocka_unit_test(test_initial_values),
        cmocka_unit_test(test_nothing_to_see), cmocka_unit_test(test_autocast),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests_name("transformer", tests, NULL, NULL);
}
