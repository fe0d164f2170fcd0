/*
 * special_test.c - special values: NaN, infinities, signed zeros, denormals, the largest numbers, empty and
 * 0-dimensional tensors, in every dtype, forward and backward, and what is refused: as PyTorch
 * (tests/golden/make_special.py).
 */
#include "tests/support/expect.h"
#include "tests/support/golden.h"

#include <float.h>
#include <stdio.h>

#include "tensor/tensor.h"
#include <yoke/ops.h>

typedef struct special_tensor {
    yk_dtype dtype;
    int ndim;
    int64_t shape[4];
    int values; /* the first in [values] */
} special_tensor;

typedef struct special_case {
    char name[20];
    double args[11];
    int count;
    special_tensor inputs[3];
    bool refused; /* PyTorch refuses the call: there is no result */
    special_tensor out;
    int gout;     /* -1: no gradient */
    int grads[3]; /* -1: none */
} special_case;

static const double *special_values;

static special_tensor read_tensor(const char **row)
{
    special_tensor t = {.dtype = golden_dtype(row), .ndim = golden_integer(row)};
    assert_in_range(t.ndim, 0, 4);
    for (int d = 0; d < t.ndim; d++)
        t.shape[d] = golden_integer(row);
    t.values = golden_integer(row);
    return t;
}

static special_case read_case(const char *row)
{
    special_case c = {.count = 0};
    golden_word(&row, c.name, sizeof(c.name));
    int args = golden_integer(&row);
    assert_in_range(args, 0, 11);
    for (int i = 0; i < args; i++)
        c.args[i] = golden_number(&row);
    c.count = golden_integer(&row);
    assert_in_range(c.count, 1, 3);
    for (int i = 0; i < c.count; i++)
        c.inputs[i] = read_tensor(&row);
    c.refused = strncmp(row, "refused ", 8) == 0;
    if (c.refused)
        row += 8;
    else
        c.out = read_tensor(&row);
    c.gout = golden_integer(&row);
    for (int i = 0; i < 3; i++)
        c.grads[i] = golden_integer(&row);
    assert_int_equal(*row, 0);
    return c;
}

static const yk_dtype dtypes[] = {YK_F32, YK_F64, YK_F16, YK_BF16, YK_I64, YK_I32, YK_U8, YK_BOOL};

/* ---- calls by name ---- */

typedef yk_tensor *(*call_fn)(yk_tensor *const *x, const double *a);

#define ONE(name)                                                                                                      \
    static yk_tensor *call_##name(yk_tensor *const *x, const double *a)                                                \
    {                                                                                                                  \
        (void)a;                                                                                                       \
        return yk_##name(x[0]);                                                                                        \
    }
#define TWO(name)                                                                                                      \
    static yk_tensor *call_##name(yk_tensor *const *x, const double *a)                                                \
    {                                                                                                                  \
        (void)a;                                                                                                       \
        return yk_##name(x[0], x[1]);                                                                                  \
    }
#define WITH(name, call)                                                                                               \
    static yk_tensor *call_##name(yk_tensor *const *x, const double *a)                                                \
    {                                                                                                                  \
        (void)a;                                                                                                       \
        return call;                                                                                                   \
    }
#define EACH_ONE(X)                                                                                                    \
    X(neg)                                                                                                             \
    X(abs)                                                                                                             \
    X(exp)                                                                                                             \
    X(log)                                                                                                             \
    X(sqrt)                                                                                                            \
    X(rsqrt)                                                                                                           \
    X(reciprocal)                                                                                                      \
    X(square)                                                                                                          \
    X(sin)                                                                                                             \
    X(cos)                                                                                                             \
    X(tanh)                                                                                                            \
    X(sigmoid)                                                                                                         \
    X(relu)                                                                                                            \
    X(sign)                                                                                                            \
    X(floor)                                                                                                           \
    X(ceil) X(round) X(logical_not) X(gelu) X(is_finite) X(sum) X(mean) X(max) X(min) X(any) X(all) X(prod) X(var)
#define EACH_TWO(X)                                                                                                    \
    X(add)                                                                                                             \
    X(sub)                                                                                                             \
    X(mul)                                                                                                             \
    X(div) X(pow) X(maximum) X(minimum) X(eq) X(ne) X(lt) X(le) X(gt) X(ge) X(logical_and) X(logical_or) X(matmul)

/* The golden file has a divisor for both poolings, which only the average knows. */
static yk_pool2d_options pooling(const double *a, bool average)
{
    yk_pool2d_options o = *YK_OPTIONS(yk_pool2d_options, .ceil_mode = a[8] != 0, .count_include_pad = a[9] == 0,
                                      .divisor_override = average && a[10] ? (int64_t)a[10] : YK_NOT_GIVEN);
    for (int i = 0; i < 2; i++) {
        o.kernel[i] = (int64_t)a[i];
        o.stride[i] = (int64_t)a[2 + i];
        o.padding[i] = (int64_t)a[4 + i];
        o.dilation[i] = (int64_t)a[6 + i];
    }
    return o;
}

static yk_conv2d_options convolution(const double *a)
{
    yk_conv2d_options o = *YK_OPTIONS(yk_conv2d_options, .groups = (int64_t)a[6]);
    for (int i = 0; i < 2; i++) {
        o.stride[i] = (int64_t)a[i];
        o.padding[i] = (int64_t)a[2 + i];
        o.dilation[i] = (int64_t)a[4 + i];
    }
    return o;
}

#define EACH_OTHER(X)                                                                                                  \
    X(pow_scalar, yk_pow_scalar(x[0], a[0]))                                                                           \
    X(add_scalar, yk_add_scalar(x[0], a[0]))                                                                           \
    X(sub_scalar, yk_sub_scalar(x[0], a[0]))                                                                           \
    X(mul_scalar, yk_mul_scalar(x[0], a[0]))                                                                           \
    X(div_scalar, yk_div_scalar(x[0], a[0]))                                                                           \
    X(clamp, yk_clamp(x[0], a[0], a[1]))                                                                               \
    X(cast, yk_cast(x[0], dtypes[(int)a[0]]))                                                                          \
    X(where, yk_where(x[0], x[1], x[2]))                                                                               \
    X(sum_dims, yk_sum_dims(x[0], (int[]){(int)a[0]}, 1, false))                                                       \
    X(mean_dims, yk_mean_dims(x[0], (int[]){(int)a[0]}, 1, false))                                                     \
    X(var_dims, yk_var_dims(x[0], (int[]){(int)a[0]}, 1, a[1], false))                                                 \
    X(max_dim, yk_max_dim(x[0], (int)a[0], false, NULL))                                                               \
    X(min_dim, yk_min_dim(x[0], (int)a[0], false, NULL))                                                               \
    X(argmax, yk_argmax(x[0], (int)a[0], false))                                                                       \
    X(argmin, yk_argmin(x[0], (int)a[0], false))                                                                       \
    X(softmax, yk_softmax(x[0], (int)a[0]))                                                                            \
    X(log_softmax, yk_log_softmax(x[0], (int)a[0]))                                                                    \
    X(max_pool2d, yk_max_pool2d(x[0], (yk_pool2d_options[]){pooling(a, false)}))                                       \
    X(avg_pool2d, yk_avg_pool2d(x[0], (yk_pool2d_options[]){pooling(a, true)}))                                        \
    X(adaptive_avg_pool2d, yk_adaptive_avg_pool2d(x[0], (int64_t)a[0], (int64_t)a[1]))                                 \
    X(linear, yk_linear(x[0], x[1], x[2]))                                                                             \
    X(layer_norm, yk_layer_norm(x[0], 1, (int64_t[]){(int64_t)a[0]}, NULL, NULL, 1e-5))                                \
    X(cross_entropy, yk_cross_entropy(x[0], x[1], NULL))                                                               \
    X(mse_loss, yk_mse_loss(x[0], x[1], YK_REDUCE_MEAN))                                                               \
    X(embedding, yk_embedding(x[0], x[1], -1))                                                                         \
    X(conv2d, yk_conv2d(x[0], x[1], x[2], (yk_conv2d_options[]){convolution(a)}))                                      \
    X(batch_norm, yk_batch_norm(x[0], x[1], x[2], NULL, NULL, YK_OPTIONS(yk_batch_norm_options, .training = true)))    \
    X(batch_norm_given, yk_batch_norm(x[0], NULL, NULL, yk_detach(x[1]), yk_detach(x[2]), NULL))                       \
    X(layer_norm_affine, yk_layer_norm(x[0], 1, (int64_t[]){(int64_t)a[0]}, x[1], x[2], 1e-5))                         \
    X(dropout, yk_dropout(x[0], a[0], a[1] != 0))                                                                      \
    X(relu_, yk_relu_(yk_clone(x[0])))                                                                                 \
    X(mul_, yk_mul_(yk_clone(x[0]), x[1]))                                                                             \
    X(add_, yk_add_(yk_clone(x[0]), x[1], a[0]))                                                                       \
    X(mul_scalar_, yk_mul_scalar_(yk_clone(x[0]), a[0]))                                                               \
    X(fill_, yk_fill_(yk_clone(x[0]), a[0]))                                                                           \
    X(copy_, yk_copy_(yk_clone(x[0]), x[1]))                                                                           \
    X(reshape, yk_reshape(x[0], 1, (int64_t[]){(int64_t)a[0]}))                                                        \
    X(flatten, yk_flatten(x[0], 0, 1))                                                                                 \
    X(transpose, yk_transpose(x[0], 0, 1))                                                                             \
    X(unsqueeze, yk_unsqueeze(x[0], (int)a[0]))                                                                        \
    X(squeeze, yk_squeeze(x[0], (int)a[0]))                                                                            \
    X(expand, yk_expand(x[0], 3, (int64_t[]){(int64_t)a[0], (int64_t)a[1], (int64_t)a[2]}))                            \
    X(clone, yk_clone(x[0]))                                                                                           \
    X(contiguous, yk_contiguous(yk_transpose(x[0], 0, 1)))                                                             \
    X(slice, yk_slice(x[0], (int)a[0], (int64_t)a[1], (int64_t)a[2], (int64_t)a[3]))                                   \
    X(select, yk_select(x[0], (int)a[0], (int64_t)a[1]))                                                               \
    X(narrow, yk_narrow(x[0], (int)a[0], (int64_t)a[1], (int64_t)a[2]))                                                \
    X(cat, yk_cat((yk_tensor *[]){x[0], x[1]}, 2, (int)a[0]))                                                          \
    X(stack, yk_stack((yk_tensor *[]){x[0], x[1]}, 2, (int)a[0]))                                                      \
    X(attention,                                                                                                       \
      yk_scaled_dot_product_attention(x[0], x[1], x[2], YK_OPTIONS(yk_attention_options, .is_causal = a[0] != 0)))

EACH_ONE(ONE)
EACH_TWO(TWO)
EACH_OTHER(WITH)

#define ROW(name)     {#name, call_##name},
#define ROW2(name, _) {#name, call_##name},
static const struct {
    const char *name;
    call_fn call;
} calls[] = {EACH_ONE(ROW) EACH_TWO(ROW) EACH_OTHER(ROW2)};

static call_fn find_call(const char *name)
{
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        if (strcmp(calls[i].name, name) == 0)
            return calls[i].call;
    }
    return NULL;
}

/* ---- comparing ---- */

static int failures;

static yk_tensor *make(const special_tensor *t, int values, bool leaf)
{
    yk_tensor *x =
        yk_from_data(special_values + values, t->ndim, t->shape, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    x = yk_detach(yk_cast(x, t->dtype));
    if (leaf)
        expect_ok(yk_set_requires_grad(x, true));
    return x;
}

/* PyTorch's result is rounded once more or less often: some units of the last place, and of the smallest number. */
static bool near(double got, double expected, yk_dtype dtype, bool cancels)
{
    if (isnan(got) || isnan(expected))
        return isnan(got) && isnan(expected);
    if (got == expected)
        return true;
    double relative = dtype == YK_F64 ? 1e-13 : dtype == YK_F32 ? 2e-6 : dtype == YK_F16 ? 2e-3 : 1.6e-2;
    double smallest = dtype == YK_F64 ? 1e-320 : dtype == YK_F32 ? 3e-45 : dtype == YK_F16 ? 1.2e-7 : 2e-40;
    if (isinf(got) || isinf(expected))
        return false;
    if (cancels) /* a difference of numbers near 1 */
        smallest = dtype == YK_F64 ? 1e-15 : dtype == YK_F32 ? 2e-7 : dtype == YK_F16 ? 2e-3 : 1.6e-2;
    return fabs(got - expected) <= relative * fabs(expected) + smallest;
}

static void describe(const special_case *c, char *text, size_t room)
{
    size_t n = (size_t)snprintf(text, room, "%s(", c->name);
    for (int i = 0; i < c->count && n < room; i++) {
        n += (size_t)snprintf(text + n, room - n, "%s%s(", i ? ", " : "", yk_dtype_name(c->inputs[i].dtype));
        for (int d = 0; d < c->inputs[i].ndim && n < room; d++)
            n += (size_t)snprintf(text + n, room - n, d ? ",%d" : "%d", (int)c->inputs[i].shape[d]);
        if (n < room)
            n += (size_t)snprintf(text + n, room - n, ")");
    }
    if (n < room)
        snprintf(text + n, room - n, "; %g %g %g %g %g %g)", c->args[0], c->args[1], c->args[2], c->args[3], c->args[4],
                 c->args[8]);
}

static void compare(const special_case *c, const char *what, yk_tensor *got, const special_tensor *expected, int values)
{
    char text[300];
    describe(c, text, sizeof(text));
    yk_tensor *wide = got ? yk_cast(yk_detach(got), YK_F64) : NULL;
    bool shaped = wide && wide->ndim == expected->ndim && (yk_dtype)got->dtype == expected->dtype;
    for (int d = 0; shaped && d < wide->ndim; d++)
        shaped = wide->shape[d] == expected->shape[d];
    if (!shaped) {
        char shape[100];
        print_message("%s: %s is %s%s%s\n", text, what, got ? yk_dtype_name((yk_dtype)got->dtype) : "none: ",
                      got ? yk_shape_format(got, shape, sizeof(shape)) : "",
                      yk_last_error() ? yk_last_error()->message : "");
        yk_clear_error();
        failures++;
        return;
    }
    bool cancels =
        strstr("gelu tanh softmax log_softmax cross_entropy batch_norm layer_norm_affine attention", c->name);
    double *numbers = malloc(((size_t)wide->numel + 1) * sizeof(*numbers));
    expect_ok(yk_tensor_read(yk_contiguous(wide), numbers, (size_t)wide->numel * sizeof(*numbers)));
    for (int64_t i = 0; i < wide->numel; i++) {
        double e = special_values[values + i];
        if (near(numbers[i], e, expected->dtype, cancels))
            continue;
        print_message("%s: %s[%d] is %.9g, PyTorch has %.9g\n", text, what, (int)i, numbers[i], e);
        failures++;
    }
    free(numbers);
}

static void run_case(const special_case *c)
{
    yk_scope scope = yk_scope_begin();
    call_fn call = find_call(c->name);
    if (!call)
        fail_msg("no call for '%s'", c->name);
    yk_tensor *x[3] = {NULL, NULL, NULL};
    for (int i = 0; i < c->count; i++)
        x[i] = make(&c->inputs[i], c->inputs[i].values, yk_dtype_is_floating(c->inputs[i].dtype) && c->gout >= 0);
    yk_tensor *out = call(x, c->args);
    if (c->refused) {
        char text[300];
        describe(c, text, sizeof(text));
        if (out) {
            print_message("%s: PyTorch refuses it\n", text);
            failures++;
        }
        yk_clear_error();
    } else {
        compare(c, "the result", out, &c->out, c->out.values);
    }
    if (out && !c->refused && c->gout >= 0 && yk_requires_grad(out)) {
        expect_ok(yk_backward_with(out, YK_OPTIONS(yk_backward_options, .gradient = make(&c->out, c->gout, false))));
        for (int i = 0; i < c->count; i++) {
            if (c->grads[i] >= 0)
                compare(c, i ? i == 2 ? "gradient 2" : "gradient 1" : "gradient 0", yk_grad(x[i]), &c->inputs[i],
                        c->grads[i]);
        }
    } else if (out && c->gout >= 0) {
        print_message("%s: no gradient, PyTorch has one\n", c->name);
        failures++;
    }
    yk_clear_error();
    yk_scope_end(scope);
}

static void test_special_values(void **state)
{
    (void)state;
    size_t count;
    const char *const *rows = golden_rows("special", "cases", &count);
    special_values = golden_numbers("special", "values", NULL);
    for (size_t i = 0; i < count; i++) {
        special_case c = read_case(rows[i]);
        run_case(&c);
    }
    assert_true(count > 4000);
    assert_int_equal(failures, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_special_values),
    };
    return cmocka_run_group_tests_name("ops/special", tests, NULL, NULL);
}
