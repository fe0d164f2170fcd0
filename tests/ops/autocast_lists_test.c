/*
 * autocast_lists_test.c - under autocast every operation gives the dtype that PyTorch's gives, for inputs of every
 * dtype, on the CPU and on a GPU (the emulator's).
 *
 * A row names a case of tests/golden/make_autocast.py and makes the call.
 */
#include "tests/support/expect.h"
#include "tests/support/golden.h"

#include "tensor/host_tensor.h"
#include "tests/emulator/use_emulator.h"
#include <yoke/yoke.h>

enum { MOST = 7 };

/* ---- what PyTorch has ---- */

static struct autocast_case {
    char op[32];
    yk_device_type device;
    yk_dtype lower, in[2], out;
    bool refused; /* there is no out */
} * golden;
static size_t golden_count;

static int read_golden(void **state)
{
    (void)state;
    const char *const *rows = golden_rows("autocast", "cases", &golden_count);
    golden = calloc(golden_count, sizeof(*golden));
    assert_non_null(golden);
    for (size_t i = 0; i < golden_count; i++) {
        struct autocast_case *c = &golden[i];
        const char *row = rows[i];
        char device[8];
        golden_word(&row, c->op, sizeof(c->op));
        c->device = strcmp(golden_word(&row, device, sizeof(device)), "cpu") == 0 ? YK_CPU : YK_CUDA;
        c->lower = golden_dtype(&row);
        int inputs = golden_integer(&row);
        assert_in_range(inputs, 1, 2);
        for (int k = 0; k < inputs; k++)
            c->in[k] = golden_dtype(&row);
        c->refused = strcmp(row, "refused") == 0;
        if (!c->refused)
            c->out = golden_dtype(&row);
    }
    return 0;
}

typedef struct row {
    const char *op;
    yk_tensor *(*run)(yk_tensor **x);
    int count; /* of inputs */
    struct {
        int ndim;
        int64_t size[5];
    } shape[MOST];
} row;

#define DIMS(...) (int[]){__VA_ARGS__}, (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int))
#define RUN(name, expression)                                                                                          \
    static yk_tensor *run_##name(yk_tensor **x)                                                                        \
    {                                                                                                                  \
        return (expression);                                                                                           \
    }
/* X(name, expression, count, shapes...) */
#define M                                                                                                              \
    {                                                                                                                  \
        2,                                                                                                             \
        {                                                                                                              \
            2, 3                                                                                                       \
        }                                                                                                              \
    }
#define V                                                                                                              \
    {                                                                                                                  \
        1,                                                                                                             \
        {                                                                                                              \
            3                                                                                                          \
        }                                                                                                              \
    }
#define S                                                                                                              \
    {                                                                                                                  \
        0,                                                                                                             \
        {                                                                                                              \
            0                                                                                                          \
        }                                                                                                              \
    }
#define HEADS                                                                                                          \
    {                                                                                                                  \
        4,                                                                                                             \
        {                                                                                                              \
            1, 2, 4, 8                                                                                                 \
        }                                                                                                              \
    }
#define VOLUME                                                                                                         \
    {                                                                                                                  \
        5,                                                                                                             \
        {                                                                                                              \
            1, 2, 4, 4, 4                                                                                              \
        }                                                                                                              \
    }
#define IMAGE                                                                                                          \
    {                                                                                                                  \
        4,                                                                                                             \
        {                                                                                                              \
            1, 2, 4, 4                                                                                                 \
        }                                                                                                              \
    }
#define UNARY(X, name) X(name, yk_##name(x[0]), 1, M)
#define TWO(X, name)   X(name, yk_##name(x[0], x[1]), 2, M, M)
/* clang-format off */
#define ROWS(X)                                                                                                        \
    UNARY(X, neg) UNARY(X, abs) UNARY(X, exp) UNARY(X, log) UNARY(X, sqrt) UNARY(X, rsqrt) UNARY(X, reciprocal)        \
    UNARY(X, square) UNARY(X, sin) UNARY(X, cos) UNARY(X, tanh) UNARY(X, sigmoid) UNARY(X, relu) UNARY(X, sign)        \
    UNARY(X, floor) UNARY(X, ceil) UNARY(X, round) UNARY(X, log1p) UNARY(X, expm1) UNARY(X, erf) UNARY(X, gelu)        \
    UNARY(X, tan) UNARY(X, asin) UNARY(X, acos) UNARY(X, atan) UNARY(X, sinh) UNARY(X, cosh) UNARY(X, asinh)           \
    UNARY(X, acosh) UNARY(X, atanh) UNARY(X, log2) UNARY(X, log10)                                                     \
    X(nan_to_num, yk_nan_to_num(x[0], 0, NAN, NAN), 1, M)                                                              \
    X(clamp, yk_clamp(x[0], 0.5, 1), 1, M)                                                                             \
    X(add_scalar, yk_add_scalar(x[0], 2), 1, M) X(mul_scalar, yk_mul_scalar(x[0], 2), 1, M)                            \
    X(div_scalar, yk_div_scalar(x[0], 3), 1, M) X(pow_scalar, yk_pow_scalar(x[0], 3), 1, M)                            \
    X(pow_scalar_half, yk_pow_scalar(x[0], 0.5), 1, M)                                                                 \
    TWO(X, add) TWO(X, sub) TWO(X, mul) TWO(X, div) TWO(X, pow) TWO(X, maximum) TWO(X, minimum) TWO(X, atan2)          \
    X(atan2_scalar, yk_atan2(x[0], x[1]), 2, M, S)                                                                     \
    X(add_scaled, yk_add_scaled(x[0], x[1], 2), 2, M, M)                                                               \
    X(where, yk_where(yk_gt(x[0], yk_zeros_like(x[0])), x[0], x[1]), 2, M, M)                                          \
    X(lerp_scalar, yk_lerp_scalar(x[0], x[1], 0.25), 2, M, M) X(lerp, yk_lerp(x[0], x[1], x[2]), 3, M, M, M)           \
    X(mse_loss, yk_mse_loss(x[0], x[1], YK_REDUCE_MEAN), 2, M, M)                                                      \
    X(outer, yk_outer(x[0], x[1]), 2, V, V) X(cdist, yk_cdist(x[0], x[1], 2), 2, M, M)                                 \
    X(addcmul, yk_addcmul(x[0], x[1], x[2], 1), 3, M, M, M)                                                            \
    X(addcmul_scalar, yk_addcmul(x[0], x[1], x[2], 1), 3, M, M, S)                                                     \
    X(addcdiv, yk_addcdiv(x[0], x[1], x[2], 1), 3, M, M, M)                                                            \
    UNARY(X, sum) UNARY(X, mean) UNARY(X, var) UNARY(X, std) UNARY(X, prod) UNARY(X, max) UNARY(X, median)             \
    X(sum_dims, yk_sum_dims(x[0], DIMS(0, 1), false), 1, M) X(mean_dims, yk_mean_dims(x[0], DIMS(0, 1), false), 1, M)  \
    X(max_dim, yk_max_dim(x[0], 1, false, NULL), 1, M) X(logsumexp, yk_logsumexp(x[0], DIMS(1), false), 1, M)          \
    X(norm, yk_norm(x[0], 2, DIMS(1), false), 1, M)                                                                    \
    X(softmax, yk_softmax(x[0], 1), 1, M) X(log_softmax, yk_log_softmax(x[0], 1), 1, M)                                \
    X(cumsum, yk_cumsum(x[0], 1), 1, M) X(cumprod, yk_cumprod(x[0], 1), 1, M)                                          \
    X(sort, yk_sort(x[0], 1, false, NULL), 1, M) X(topk, yk_topk(x[0], 2, 1, true, NULL), 1, M)                        \
    X(quantile, yk_quantile(x[0], 0.5, 1, false), 1, M)                                                                \
    X(reshape, yk_reshape(x[0], YK_SHAPE(3, 2)), 1, M) UNARY(X, clone) X(repeat, yk_repeat(x[0], YK_SHAPE(2, 1)), 1, M)\
    X(flip, yk_flip(x[0], DIMS(1)), 1, M) X(tril, yk_tril(x[0], 0), 1, M)                                              \
    X(index_select, yk_index_select(x[0], 1, labels(x[0], 1)), 1, M)                                                   \
    X(cat, yk_cat(x, 2, 0), 2, M, M) X(cat_three, yk_cat(x, 3, 0), 3, M, M, M) X(stack, yk_stack(x, 2, 0), 2, M, M)    \
    X(matmul, yk_matmul(x[0], x[1]), 2, {2, {2, 3}}, {2, {3, 4}})                                                      \
    X(matmul_batch, yk_matmul(x[0], x[1]), 2, {3, {5, 2, 3}}, {3, {5, 3, 4}})                                          \
    X(matmul_vector, yk_matmul(x[0], x[1]), 2, M, V) X(matmul_dot, yk_matmul(x[0], x[1]), 2, V, V)                     \
    X(linear, yk_linear(x[0], x[1], x[2]), 3, M, {2, {4, 3}}, {1, {4}})                                                \
    X(linear_plain, yk_linear(x[0], x[1], NULL), 2, M, {2, {4, 3}})                                                    \
    X(conv2d, yk_conv2d(x[0], x[1], x[2], NULL), 3, IMAGE, {4, {3, 2, 3, 3}}, V)                                       \
    X(conv1d, yk_conv1d(x[0], x[1], x[2], NULL), 3, {3, {1, 2, 4}}, {3, {3, 2, 3}}, V)                                 \
    X(conv3d, yk_conv3d(x[0], x[1], x[2], NULL), 3, {5, {1, 2, 4, 4, 4}}, {5, {3, 2, 3, 3, 3}}, V)                     \
    X(conv_transpose1d, yk_conv_transpose1d(x[0], x[1], x[2], NULL), 3, {3, {1, 3, 4}}, {3, {3, 2, 3}}, {1, {2}})      \
    X(conv_transpose2d, yk_conv_transpose2d(x[0], x[1], x[2], NULL), 3, {4, {1, 3, 4, 4}}, {4, {3, 2, 3, 3}}, {1, {2}})\
    X(conv_transpose3d, yk_conv_transpose3d(x[0], x[1], x[2], NULL), 3, {5, {1, 3, 2, 2, 2}}, {5, {3, 2, 3, 3, 3}},    \
      {1, {2}})                                                                                                        \
    X(einsum, yk_einsum("ij,jk->ik", x, 2), 2, {2, {2, 3}}, {2, {3, 4}})                                               \
    X(einsum_sum, yk_einsum("ij->i", x, 1), 1, M)                                                                      \
    X(einsum_outer, yk_einsum("i,j->ij", x, 2), 2, {1, {2}}, V)                                                        \
    X(attention, yk_scaled_dot_product_attention(x[0], x[1], x[2], NULL), 3, HEADS, HEADS, HEADS)                      \
    X(attention_mask, yk_scaled_dot_product_attention(x[0], x[1], x[2], YK_OPTIONS(yk_attention_options, .attn_mask = x[3])),   \
      4, HEADS, HEADS, HEADS, {2, {4, 4}})                                                                             \
    X(max_pool2d, yk_max_pool2d(x[0], pool), 1, IMAGE) X(avg_pool2d, yk_avg_pool2d(x[0], pool), 1, IMAGE)            \
    X(adaptive_avg_pool2d, yk_adaptive_avg_pool2d(x[0], 1, 1), 1, IMAGE)                                               \
    X(dropout, dropout(x[0]), 1, M)                                                                                    \
    X(layer_norm_plain, yk_layer_norm(x[0], YK_SHAPE(3), NULL, NULL, 1e-5), 1, M)                                      \
    X(layer_norm, yk_layer_norm(x[0], YK_SHAPE(3), x[1], x[2], 1e-5), 3, M, V, V)                                      \
    X(group_norm_plain, yk_group_norm(x[0], 2, NULL, NULL, 1e-5), 1, {3, {2, 4, 2}})                                   \
    X(group_norm, yk_group_norm(x[0], 3, x[1], x[2], 1e-5), 3, {3, {2, 3, 2}}, V, V)                                   \
    X(instance_norm, yk_instance_norm(x[0], NULL, NULL, NULL, NULL, NULL), 1, {3, {2, 3, 2}})                          \
    X(rms_norm_plain, yk_rms_norm(x[0], YK_SHAPE(3), NULL, YK_NOT_GIVEN), 1, M)                                        \
    X(rms_norm, yk_rms_norm(x[0], YK_SHAPE(3), x[1], YK_NOT_GIVEN), 2, M, V)                                           \
    X(local_response_norm, yk_local_response_norm(x[0], 2, 1e-4, 0.75, 1), 1, {3, {2, 3, 2}})                          \
    X(avg_pool1d, yk_avg_pool1d(x[0], one), 1, {3, {1, 2, 4}}) X(max_pool1d, yk_max_pool1d(x[0], one), 1, {3, {1, 2, 4}})\
    X(avg_pool3d, yk_avg_pool3d(x[0], one), 1, VOLUME) X(max_pool3d, yk_max_pool3d(x[0], one), 1, VOLUME)              \
    X(adaptive_avg_pool1d, yk_adaptive_avg_pool1d(x[0], 1), 1, {3, {1, 2, 4}})                                         \
    X(adaptive_avg_pool3d, yk_adaptive_avg_pool3d(x[0], 1, 1, 1), 1, VOLUME)                                           \
    X(adaptive_max_pool1d, yk_adaptive_max_pool1d(x[0], 1), 1, {3, {1, 2, 4}})                                         \
    X(adaptive_max_pool2d, yk_adaptive_max_pool2d(x[0], 1, 1), 1, IMAGE)                                               \
    X(adaptive_max_pool3d, yk_adaptive_max_pool3d(x[0], 1, 1, 1), 1, VOLUME)                                           \
    X(batch_norm_plain, yk_batch_norm(x[0], NULL, NULL, NULL, NULL, norm), 1, {4, {2, 3, 2, 2}})                      \
    X(batch_norm, yk_batch_norm(x[0], x[1], x[2], NULL, NULL, norm), 3, {4, {2, 3, 2, 2}}, V, V)                      \
    X(embedding, yk_embedding(labels(x[0], 2), x[0], -1), 1, {2, {4, 3}})                                              \
    X(cross_entropy_mean, yk_cross_entropy(x[0], labels(x[0], 2), NULL), 1, M)                                         \
    X(cross_entropy_none, yk_cross_entropy(x[0], labels(x[0], 2), each_row), 1, M)                                    \
    X(lstm_cell, cell(x, 0), 7, M, M, M, {2, {12, 3}}, {2, {12, 3}}, {1, {12}}, {1, {12}})                             \
    X(lstm_cell_state, cell(x, 1), 7, M, M, M, {2, {12, 3}}, {2, {12, 3}}, {1, {12}}, {1, {12}})
/* clang-format on */

static const yk_pool_options *const one = YK_OPTIONS(yk_pool_options, .kernel = {1, 1, 1});
static const yk_pool2d_options *const pool = YK_OPTIONS(yk_pool2d_options, .kernel = {2, 2});
static const yk_batch_norm_options *const norm = YK_OPTIONS(yk_batch_norm_options, .training = true);
static const yk_cross_entropy_options *const each_row =
    YK_OPTIONS(yk_cross_entropy_options, .reduction = YK_REDUCE_NONE);

static yk_tensor *labels(yk_tensor *x, int64_t count)
{
    return yk_zeros(1, &count, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64, .device = yk_tensor_device(x)));
}

static yk_tensor *dropout(yk_tensor *x)
{
    yk_manual_seed(3);
    return yk_dropout(x, 0.5, true);
}

/* h' or c' of a cell whose parameters are x[3] to x[6]. */
static yk_tensor *cell(yk_tensor **x, int which)
{
    static const char *const names[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    yk_module *m = yk_lstm_cell_create(3, 3, NULL);
    yk_module_to_dtype(m, yk_tensor_dtype(x[3]));
    yk_module_to(m, yk_tensor_device(x[3]));
    bool before = yk_no_grad_begin();
    for (int i = 0; i < 4; i++)
        assert_non_null(yk_copy_(yk_module_get(m, names[i]), x[3 + i]));
    yk_no_grad_end(before);
    yk_tensor *out[2];
    return yk_forward_list(m, x, 3, out, 2) ? NULL : out[which];
}

#define RUN_OF(name, expression, ...) RUN(name, expression)
ROWS(RUN_OF)
#define ROW_OF(name, expression, inputs, ...) {#name, run_##name, inputs, {__VA_ARGS__}},
static const row rows[] = {ROWS(ROW_OF)};

static const row *find(const char *op)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (strcmp(rows[i].op, op) == 0)
            return &rows[i];
    return NULL;
}

/* Numbers from 0.5 to 1.5 that f16 has and bf16 mostly has not. */
static yk_tensor *input(const row *r, int i, yk_dtype dtype, yk_device device)
{
    enum { MOST_VALUES = 256 };
    float values[MOST_VALUES];
    int64_t count = 1;
    for (int d = 0; d < r->shape[i].ndim; d++)
        count *= r->shape[i].size[d];
    assert_true(count <= MOST_VALUES);
    for (int k = 0; k < MOST_VALUES; k++)
        values[k] = 0.5f + (float)((k * 37 + i * 11) % 64) / 64 + (float)(k % 7) / 1024;
    yk_tensor *x = yk_from_data(values, r->shape[i].ndim, r->shape[i].size, NULL);
    return yk_to(yk_cast(x, dtype), device);
}

static void check(const row *r, const yk_tensor *out, size_t g)
{
    char of[100];
    snprintf(of, sizeof(of), "%s of %s, %s under autocast(%s, %s)", r->op, yk_dtype_name(golden[g].in[0]),
             r->count > 1 ? yk_dtype_name(golden[g].in[1]) : "none", golden[g].device == YK_CPU ? "cpu" : "cuda",
             yk_dtype_name(golden[g].lower));
    if (golden[g].refused) {
        if (out && strcmp(r->op, "quantile") != 0) /* PyTorch's has f32 and f64 alone */
            fail_msg("%s gives %s, PyTorch refuses it", of, yk_dtype_name(yk_tensor_dtype(out)));
        return;
    }
    if (!out)
        fail_msg("%s: %s", of, yk_last_error()->message);
    if (yk_tensor_dtype(out) != golden[g].out)
        fail_msg("%s gives %s, in PyTorch %s", of, yk_dtype_name(yk_tensor_dtype(out)), yk_dtype_name(golden[g].out));
}

static void run(yk_device_type type)
{
    int known = 0;
    for (size_t g = 0; g < golden_count; g++) {
        const row *r = find(golden[g].op);
        if (!r)
            fail_msg("no row is called %s", golden[g].op);
        if (golden[g].device != type)
            continue;
        known++;
        yk_scope scope = yk_scope_begin();
        yk_tensor *x[MOST];
        for (int i = 0; i < r->count; i++)
            x[i] = input(r, i, golden[g].in[i > 0], (yk_device){.type = (int16_t)type});
        yk_autocast before = yk_autocast_begin(type, golden[g].lower, NULL);
        yk_tensor *out = r->run(x);
        yk_autocast_end(before);
        check(r, out, g);
        yk_clear_error();
        yk_scope_end(scope);
    }
    assert_true(known > 900);
}

static void on_the_cpu(void **state)
{
    (void)state;
    yk_device_type usual = yk__default_device_type;
    yk__default_device_type = YK_CPU;
    run(YK_CPU);
    yk__default_device_type = usual;
}

static bool emulated;

static void on_a_gpu(void **state)
{
    (void)state;
    if (!emulated)
        skip();
    run(YK_CUDA);
}

static void every_row_has_a_case(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        bool found = false;
        for (size_t g = 0; g < golden_count; g++)
            found = found || strcmp(golden[g].op, rows[i].op) == 0;
        if (!found)
            fail_msg("%s: there is no such case", rows[i].op);
    }
}

int main(void)
{
    emulated = find_emulator();
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row_has_a_case), cmocka_unit_test(on_the_cpu),
                                       cmocka_unit_test(on_a_gpu)};
    return cmocka_run_group_tests(tests, read_golden, NULL);
}
