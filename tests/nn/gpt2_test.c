/*
 * GPT-2: logits, loss and gradients of a twin in PyTorch (tests/golden/make_gpt2.py) from a checkpoint in the published
 * form, its sizes, and text that goes on, with kept keys and values and without.
 */
#include "tests/support/expect.h"

#include <unistd.h>

#include <yoke/checkpoint.h>
#include <yoke/ops.h>

#include "tests/support/golden.h"
#include "tests/support/test_device.h"

static yk_state_dict *golden_dict(void)
{
    return yk_safetensors_load(source_path("tests/golden/gpt2/model.safetensors"), (yk_device){YK_CPU, 0});
}

static yk_module *golden_model(yk_dtype dtype)
{
    yk_gpt2_options o;
    yk_state_dict *dict = golden_dict();
    expect_ok(yk_gpt2_sizes(dict, &o));
    assert_int_equal(o.vocab_size, 37);
    assert_int_equal(o.n_positions, 10);
    assert_int_equal(o.n_embd, 12);
    assert_int_equal(o.n_layer, 2);
    assert_int_equal(o.n_head, 1);
    assert_true(o.tied);
    o.n_head = 3;
    o.dropout = 0;
    yk_module *m = yk_module_to_dtype(yk_gpt2(&o), dtype);
    expect_ok(yk_gpt2_load_state_dict(m, dict));
    return m;
}

static yk_tensor *golden_ids(const char *section, int ndim, const int64_t *shape)
{
    size_t count;
    const double *numbers = golden_numbers("gpt2", section, &count);
    return yk_cast(yk_from_data(numbers, ndim, shape, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64)), YK_I64);
}

static void expect_golden(yk_tensor *x, const char *section, double tolerance)
{
    size_t count;
    const double *expected = golden_numbers("gpt2", section, &count);
    assert_non_null(x);
    assert_int_equal(yk_numel(x), count);
    yk_tensor *flat = yk_cast(yk_reshape(yk_detach(x), YK_SHAPE((int64_t)count)), YK_F64);
    const double *got = host_data(flat);
    for (size_t i = 0; i < count; i++) {
        if (!(fabs(got[i] - expected[i]) <= tolerance))
            fail_msg("%s: element %zu is %.17g, expected %.17g", section, i, got[i], expected[i]);
    }
}

static void twin_in(yk_dtype dtype, double tolerance)
{
    yk_scope scope = yk_scope_begin();
    yk_module *m = golden_model(dtype);
    yk_tensor *logits = yk_forward(m, golden_ids("ids", YK_SHAPE(2, 8)));
    expect_golden(logits, "logits", tolerance);
    yk_tensor *loss = yk_cross_entropy(yk_reshape(logits, YK_SHAPE(16, 37)), golden_ids("target", YK_SHAPE(16)), NULL);
    expect_golden(loss, "loss", tolerance);
    expect_ok(yk_backward(loss));
    static const char *const names[] = {"wte.weight", "wpe.weight", "h.0.attn.c_attn.weight", "h.1.mlp.c_proj.bias",
                                        "h.1.ln_2.weight"};
    for (int i = 0; i < 5; i++) {
        char name[64];
        snprintf(name, sizeof(name), "transformer.%s", names[i]);
        expect_golden(yk_grad(yk_module_get(m, name)), names[i], tolerance);
    }
    yk_scope_end(scope);
}

static void test_twin(void **state)
{
    (void)state;
    twin_in(YK_F64, 1e-12);
    twin_in(YK_F32, 1e-4);
}

static void expect_tokens(yk_tensor *ids, const char *section)
{
    size_t count;
    const double *expected = golden_numbers("gpt2", section, &count);
    assert_non_null(ids);
    assert_int_equal(yk_numel(ids), count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal((int64_t)yk_get(ids, &(int64_t){(int64_t)i}), (int64_t)expected[i]);
}

static bool same(yk_tensor *a, yk_tensor *b)
{
    size_t size = yk_dtype_size(yk_tensor_dtype(a)) * (size_t)yk_numel(a);
    return yk_numel(a) == yk_numel(b) && memcmp(host_data(a), host_data(b), size) == 0;
}

typedef struct heard {
    int64_t ids[64], count, most;
} heard;

static yk_status hear(void *user, int64_t id)
{
    heard *h = user;
    h->ids[h->count++] = id;
    return h->count == h->most ? yk_set_error(YK_ERR_CALLBACK, "enough") : YK_OK;
}

/* The greedy text is the twin's, and that of a model which forgets is the same with kept keys and values. */
static void test_generate(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *m = golden_model(YK_F64);
    yk_tensor *start = yk_from_data((int64_t[]){3, 1, 4}, YK_SHAPE(3), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    for (int cache = 0; cache < 2; cache++)
        expect_tokens(yk_gpt2_generate(
                          m, start, YK_OPTIONS(yk_generate_options, .max_tokens = 7, .temperature = 0, .cache = cache)),
                      "greedy");
    assert_true(yk_module_is_training(m));
    const yk_generate_options kinds[] = {
        *YK_OPTIONS(yk_generate_options, .max_tokens = 40, .temperature = 0),
        *YK_OPTIONS(yk_generate_options, .max_tokens = 40, .seed = 3),
        *YK_OPTIONS(yk_generate_options, .max_tokens = 40, .seed = 3, .temperature = 0.7, .top_k = 5),
        *YK_OPTIONS(yk_generate_options, .max_tokens = 40, .seed = 3, .temperature = 2, .top_p = 0.8),
    };
    yk_tensor *made[4];
    for (int i = 0; i < 4; i++) {
        yk_generate_options o = kinds[i];
        heard h = {.most = -1};
        o.on_token = hear;
        o.user = &h;
        made[i] = yk_gpt2_generate(m, start, &o);
        assert_non_null(made[i]);
        assert_int_equal(h.count, 40);
        for (int64_t k = 0; k < 40; k++)
            assert_int_equal(h.ids[k], (int64_t)yk_get(made[i], &(int64_t){k + 3}));
        o.cache = false;
        o.on_token = NULL;
        assert_true(same(made[i], yk_gpt2_generate(m, start, &o)));
        o.seed++;
        assert_int_equal(same(made[i], yk_gpt2_generate(m, start, &o)), i == 0);
    }
    assert_true(same(
        made[0], yk_gpt2_generate(m, start, YK_OPTIONS(yk_generate_options, .max_tokens = 40, .top_k = 1, .seed = 9))));
    assert_true(
        same(made[0],
             yk_gpt2_generate(m, start, YK_OPTIONS(yk_generate_options, .max_tokens = 40, .top_p = 1e-9, .seed = 9))));
    int64_t stop = (int64_t)yk_get(made[0], &(int64_t){5});
    yk_tensor *stopped =
        yk_gpt2_generate(m, start, YK_OPTIONS(yk_generate_options, .max_tokens = 40, .temperature = 0, .stop = stop));
    assert_true(yk_numel(stopped) <= 6);
    assert_int_equal((int64_t)yk_get(stopped, &(int64_t){yk_numel(stopped) - 1}), stop);
    heard h = {.most = 2};
    assert_null(yk_gpt2_generate(m, start, YK_OPTIONS(yk_generate_options, .on_token = hear, .user = &h)));
    expect_error(YK_ERR_CALLBACK, "enough");
    assert_null(yk_gpt2_generate(m, yk_mul_scalar(start, 20), NULL));
    expect_error(YK_ERR_ARGUMENT, "gpt2_generate: id 60 at position 0 is outside of the vocabulary, 37");
    assert_null(yk_gpt2_generate(m, yk_zeros(YK_SHAPE(3), NULL), NULL));
    expect_error(YK_ERR_SHAPE, "gpt2_generate: the ids are (3,) of float32");
    assert_null(yk_gpt2_generate(yk_relu_create(), start, NULL));
    expect_error(YK_ERR_ARGUMENT, "gpt2_generate: the module is a ReLU; expected one of yk_gpt2");
    yk_scope_end(scope);
}

/* The share of each token among many draws is the probability that the model gives it. */
static void test_draws(void **state)
{
    (void)state;
    enum { DRAWS = 1500 };
    yk_scope scope = yk_scope_begin();
    yk_module *m = golden_model(YK_F32);
    yk_module_eval(m);
    yk_tensor *start = yk_from_data((int64_t[]){3, 1}, YK_SHAPE(2), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    yk_tensor *p =
        yk_softmax(yk_div_scalar(yk_select(yk_select(yk_forward(m, yk_unsqueeze(start, 0)), 0, 0), 0, 1), 3), -1);
    double counts[37] = {0}, chi = 0;
    for (uint64_t seed = 0; seed < DRAWS; seed++) {
        yk_scope one = yk_scope_begin();
        yk_tensor *made = yk_gpt2_generate(
            m, start, YK_OPTIONS(yk_generate_options, .max_tokens = 1, .temperature = 3, .seed = seed));
        counts[(int)yk_get(made, &(int64_t){2})]++;
        yk_scope_end(one);
    }
    for (int64_t i = 0; i < 37; i++) {
        double expected = DRAWS * yk_get(p, &i);
        chi += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    assert_true(chi < 80); /* 36 degrees of freedom: one in 30,000 is above */
    yk_scope_end(scope);
}

static void test_sizes(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_gpt2_options o;
    expect_ok(yk_gpt2_named("gpt2-xl", &o));
    assert_int_equal(o.n_embd, 1600);
    assert_int_equal(o.n_layer, 48);
    assert_int_equal(o.n_head, 25);
    assert_int_equal(yk_gpt2_named("gpt2-lagre", &o), YK_ERR_NOT_FOUND);
    expect_error(YK_ERR_NOT_FOUND, "gpt2_named: there is no 'gpt2-lagre'; did you mean 'gpt2-large'?");
    o = *YK_OPTIONS(yk_gpt2_options, .vocab_size = 11, .n_positions = 6, .n_embd = 8, .n_layer = 1, .n_head = 2);
    yk_module *tied = yk_gpt2(&o);
    o.tied = false;
    yk_module *own = yk_gpt2(&o);
    int64_t block = 2 * 16 + (8 * 24 + 24) + (8 * 8 + 8) + (8 * 32 + 32) + (32 * 8 + 8);
    assert_int_equal(yk_module_parameter_count(tied), 11 * 8 + 6 * 8 + block + 16);
    assert_int_equal(yk_module_parameter_count(own), yk_module_parameter_count(tied) + 11 * 8);
    assert_non_null(yk_module_get(own, "lm_head.weight"));
    assert_int_equal(yk_gpt2_load_state_dict(tied, golden_dict()), YK_ERR_SHAPE);
    expect_error(
        YK_ERR_SHAPE,
        "gpt2_load_state_dict: the checkpoint has n_embd 12, n_layer 2, n_positions 10, vocab_size 37, and the "
        "model 8, 1, 6, 11; the published size nearest to the checkpoint is gpt2");
    /* One's own state dict has "transformer." in front; the output layer is looked at where it is not tied. */
    expect_ok(yk_gpt2_load_state_dict(own, yk_module_state_dict(own)));
    expect_ok(yk_gpt2_load_state_dict(tied, yk_module_state_dict(own)));
    assert_true(same(yk_module_get(tied, "transformer.wte.weight"), yk_module_get(own, "transformer.wte.weight")));
    assert_int_equal(yk_gpt2_load_state_dict(own, yk_module_state_dict(tied)), YK_ERR_NOT_FOUND);
    expect_error(YK_ERR_NOT_FOUND, "lm_head.weight");
    assert_int_equal(yk_gpt2_load_state_dict(yk_relu_create(), golden_dict()), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "gpt2_load_state_dict: the module is a ReLU");
    assert_int_equal(yk_gpt2_sizes(yk_state_dict_create(), &o), YK_ERR_NOT_FOUND);
    expect_error(YK_ERR_NOT_FOUND, "gpt2_sizes: there is no GPT-2 in it");
    assert_null(yk_gpt2(YK_OPTIONS(yk_gpt2_options, .n_head = 7)));
    expect_error(YK_ERR_ARGUMENT, "gpt2: n_embd is 768, which n_head, 7, does not divide");
    assert_null(yk_forward(own, yk_zeros(YK_SHAPE(1, 7), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64))));
    expect_error(YK_ERR_SHAPE, "the tokens have shape (1, 7); expected (N, T), T from 1 to n_positions, 6");
    yk_scope_end(scope);
}

/* In training dropout changes the logits, in evaluation it does not. */
static void test_dropout(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *m = yk_gpt2(YK_OPTIONS(yk_gpt2_options, .vocab_size = 11, .n_positions = 6, .n_embd = 8, .n_layer = 1,
                                      .n_head = 2, .dropout = 0.3));
    yk_tensor *ids = yk_zeros(YK_SHAPE(1, 4), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    assert_false(same(yk_forward(m, ids), yk_forward(m, ids)));
    yk_module_eval(m);
    assert_true(same(yk_forward(m, ids), yk_forward(m, ids)));
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_twin),  cmocka_unit_test(test_generate), cmocka_unit_test(test_draws),
        cmocka_unit_test(test_sizes), cmocka_unit_test(test_dropout),
    };
    return cmocka_run_group_tests_name("gpt2", tests, NULL, NULL);
}
