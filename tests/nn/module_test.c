/*
 * module_test.c - the module tree: names, walking, moving, errors with paths, a user's own module.
 */
#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include <stdio.h>

#include <yoke/optim.h>

#include <yoke/nn.h>

#include "nn/module.h"
#include "tests/support/golden.h"

/* ---- a user's own module: a gate with a parameter, a buffer, and a child used twice ---- */

typedef struct gate {
    yk_tensor *scale, *offset;
    yk_module *fc;
} gate;

static int gates_destroyed;

static yk_tensor *gate_forward(yk_module *self, yk_tensor *x)
{
    gate *g = yk_module_data(self);
    yk_tensor *h = yk_sigmoid(yk_forward(g->fc, x));
    return yk_add(yk_mul(yk_forward(g->fc, h), g->scale), g->offset);
}

static void gate_destroy(yk_module *self)
{
    gate *g = yk_module_data(self);
    assert_non_null(g->fc); /* still there: children go after the data */
    gates_destroyed++;
}

static const yk_module_class gate_class = {
    .name = "Gate", .data_size = sizeof(gate), .forward = gate_forward, .destroy = gate_destroy};

static yk_module *gate_create(int64_t size)
{
    yk_module *m = yk_module_create(&gate_class);
    if (!m)
        return NULL;
    gate *g = yk_module_data(m);
    g->scale = yk_module_add_parameter(m, "scale", yk_full(YK_SHAPE(size), 2, NULL));
    g->offset = yk_module_add_buffer(m, "offset", yk_full(YK_SHAPE(size), 0.5, NULL));
    g->fc = yk_module_add(m, "fc", yk_linear_create(size, size, NULL));
    return yk_module_check(m);
}

static void test_own_module(void **unused)
{
    (void)unused;
    gates_destroyed = 0;
    yk_scope scope = yk_scope_begin();
    yk_module *m = gate_create(3);
    assert_non_null(m);
    assert_int_equal(yk_module_parameter_count(m), 3 + 9 + 3);
    bool previous = yk_no_grad_begin();
    yk_fill_(yk_module_get(m, "fc.weight"), 0);
    yk_fill_(yk_module_get(m, "fc.bias"), 0.25);
    yk_no_grad_end(previous);
    yk_tensor *out = yk_forward(m, yk_ones(YK_SHAPE(2, 3), NULL));
    expect_near(yk_get(out, (int64_t[]){1, 2}), 1.0, 1e-6, 0); /* 0.25 * 2 + 0.5 */
    expect_ok(yk_backward(yk_sum(out)));
    expect_near(yk_get(yk_grad(yk_module_get(m, "scale")), (int64_t[]){0}), 0.5, 1e-6, 0);
    /* fc ran twice: directly, and through the sigmoid with weight 0 */
    expect_near(yk_get(yk_grad(yk_module_get(m, "fc.bias")), (int64_t[]){0}), 4, 1e-6, 0);
    assert_null(yk_grad(yk_module_get(m, "offset")));
    yk_module_zero_grad(m);
    assert_null(yk_grad(yk_module_get(m, "scale")));
    assert_null(yk_grad(yk_module_get(m, "fc.bias")));
    assert_int_equal(gates_destroyed, 0);
    yk_scope_end(scope);
    assert_int_equal(gates_destroyed, 1);
    assert_null(yk_last_error());
}

/* ---- the tree ---- */

static void keep_message(yk_log_level level, const char *message, void *user)
{
    (void)level;
    snprintf(user, 300, "%s", message);
}

static void test_tree(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_module *shared = yk_linear_create(2, 2, NULL);
    yk_module *inner = yk_sequential(shared, yk_relu_create(), shared);
    yk_module *m = yk_sequential(inner, yk_linear_create(2, 1, YK_OPTIONS(yk_linear_options, .bias = false)));
    assert_non_null(m);

    static const char *const names[] = {"0.0.weight", "0.0.bias", "1.weight"};
    yk_parameters *parameters = yk_module_parameters(m);
    assert_int_equal(yk_parameters_count(parameters), 3);
    for (int i = 0; i < 3; i++)
        assert_string_equal(yk_parameters_name(parameters, i), names[i]);
    assert_null(yk_parameters_name(parameters, 3));
    assert_null(yk_parameters_at(parameters, -1));
    assert_int_equal(yk_module_parameter_count(m), 8);
    static const char *const state[] = {"0.0.weight", "0.0.bias", "0.2.weight", "0.2.bias", "1.weight"};
    yk_state_dict *dict = yk_module_state_dict(m);
    assert_int_equal(yk_state_dict_count(dict), 5);
    for (int i = 0; i < 5; i++)
        assert_string_equal(yk_state_dict_name(dict, i), state[i]);

    assert_ptr_equal(yk_module_get(m, "0.2.weight"), yk_module_get(shared, "weight"));
    assert_ptr_equal(yk_module_get_module(m, "0.2"), shared);
    assert_ptr_equal(yk_module_get_module(m, ""), m);
    assert_int_equal(yk_module_child_count(inner), 3);
    assert_ptr_equal(yk_module_child(m, 0), inner);
    assert_string_equal(yk_module_child_name(inner, 1), "1");
    assert_null(yk_module_child(m, 2));
    assert_string_equal(yk_module_class_of(yk_module_child(inner, 1))->name, "ReLU");

    assert_true(yk_module_is_training(shared));
    yk_module_eval(m);
    assert_false(yk_module_is_training(m));
    assert_false(yk_module_is_training(shared));
    yk_module_train(inner, true);
    assert_false(yk_module_is_training(m));
    assert_true(yk_module_is_training(shared));

    expect_ok(yk_module_requires_grad(inner, false));
    assert_false(yk_requires_grad(yk_module_get(m, "0.0.bias")));
    assert_true(yk_requires_grad(yk_module_get(m, "1.weight")));

    /* Questions leave no error; the log has the nearest name. */
    char said[300] = "";
    yk_log_set(YK_LOG_INFO, keep_message, said);
    assert_null(yk_module_get(m, "0.0.weigth"));
    assert_non_null(strstr(said, "\"0.0.weigth\"; did you mean \"0.0.weight\"?"));
    assert_null(yk_module_get(m, "0.9.weight"));
    assert_non_null(strstr(said, "\"0.9.weight\""));
    assert_null(yk_module_get_module(m, "0.2.1"));
    assert_non_null(strstr(said, "\"0.2.1\"; did you mean \"0."));
    yk_log_set(YK_LOG_OFF, NULL, NULL);
    assert_null(yk_last_error());
    yk_scope_end(scope);
}

static yk_status note(yk_module *m, void *user)
{
    char *text = user;
    strcat(text, yk_module_class_of(m)->name);
    strcat(text, " ");
    return strcmp(yk_module_class_of(m)->name, "Tanh") ? YK_OK : YK_ERR_CALLBACK;
}

static void test_apply(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    char text[200] = "";
    yk_module *m = yk_sequential(yk_sequential(yk_relu_create(), yk_gelu_create()), yk_identity_create());
    expect_ok(yk_module_apply(m, note, text));
    assert_string_equal(text, "ReLU GELU Sequential Identity Sequential ");
    text[0] = '\0';
    assert_int_equal(yk_module_apply(yk_sequential(yk_tanh_create(), yk_relu_create()), note, text), YK_ERR_CALLBACK);
    expect_error(YK_ERR_CALLBACK, "module_apply: the function failed at Tanh");
    assert_string_equal(text, "Tanh ");
    yk_scope_end(scope);
}

static char *printed(yk_module *m)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    expect_ok(yk_module_print(to, m));
    fclose(to);
    return text;
}

/* Frees the text, which must be the section of tests/golden/nn.golden, line by line. */
static void expect_printed(char *text, const char *section)
{
    size_t count;
    const char *const *rows = golden_rows("nn", section, &count);
    char *line = text;
    for (size_t i = 0; i < count; i++) {
        char *end = strchr(line, '\n');
        assert_non_null(end);
        *end = 0;
        assert_string_equal(line, rows[i]);
        line = end + 1;
    }
    assert_string_equal(line, "");
    free(text);
}

static void test_print(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_conv2d_module_options conv = *YK_OPTIONS(yk_conv2d_module_options, .kernel_size = {3, 1}, .stride = 2,
                                                .padding_size = {1, 0}, .dilation_size = {1, 2});
    conv.bias = false;
    yk_module *middle =
        yk_sequential(yk_relu_create(), yk_max_pool2d_create(3, 2, YK_OPTIONS(yk_pool2d_options, .padding = {1, 1})),
                      yk_avg_pool2d_create(0, 0, YK_OPTIONS(yk_pool2d_options, .kernel = {2, 1})));
    yk_module *m = yk_sequential(
        yk_conv2d_create(3, 8, 3, &conv), yk_batch_norm2d_create(8, NULL), middle, yk_adaptive_avg_pool2d_create(1, 2),
        yk_flatten_create(), yk_linear_create(16, 4, NULL), yk_layer_norm_create(YK_SHAPE(4), NULL),
        yk_dropout_create(0.25), yk_gelu_create(), yk_identity_create(), yk_sequential_list(NULL, 0));
    char *text = printed(m);
    expect_printed(text, "text of sequential");
    text = printed(yk_embedding_create(6, 3, YK_OPTIONS(yk_embedding_options, .padding_idx = 2)));
    expect_printed(text, "text of embedding");
    text = printed(yk_conv2d_create(4, 8, 1, YK_OPTIONS(yk_conv2d_module_options, .groups = 2)));
    expect_printed(text, "text of grouped");
    /* Numbers as Python prints a float. */
    text = printed(yk_batch_norm2d_create(4, YK_OPTIONS(yk_batch_norm2d_options, .eps = 1e-3, .momentum = 0)));
    assert_string_equal(text,
                        "BatchNorm2d(4, eps=0.001, momentum=0.0, affine=True, bias=True, track_running_stats=True)\n");
    free(text);
    text = printed(
        yk_layer_norm_create(YK_SHAPE(4), YK_OPTIONS(yk_layer_norm_options, .eps = 1, .elementwise_affine = false)));
    assert_string_equal(text, "LayerNorm((4,), eps=1.0, elementwise_affine=False, bias=False)\n");
    free(text);
    text = printed(yk_dropout_create(0.12345678));
    assert_string_equal(text, "Dropout(p=0.12345678, inplace=False)\n");
    free(text);
    text = printed(yk_lstm_create(3, 4, YK_OPTIONS(yk_lstm_module_options, .num_layers = 2, .dropout = 1)));
    assert_string_equal(text, "LSTM(3, 4, num_layers=2, dropout=1.0)\n");
    free(text);
    yk_scope_end(scope);
}

/* ---- adding ---- */

static void expect_incomplete(yk_module *m)
{
    assert_null(yk_module_check(m));
    yk_clear_error();
    assert_null(yk_module_parameters(m));
    expect_error(YK_ERR_STATE, "module_parameters: the module Gate is incomplete");
    assert_null(yk_forward(m, yk_ones(YK_SHAPE(2), NULL)));
    expect_error(YK_ERR_STATE, "forward: the module Gate is incomplete");
    assert_null(yk_module_add_buffer(m, "more", yk_ones(YK_SHAPE(2), NULL)));
    expect_error(YK_ERR_STATE, "module_add: the module Gate is incomplete");
    assert_null(yk_module_add(m, "more", yk_relu_create()));
    expect_error(YK_ERR_STATE, "module_add: the module Gate is incomplete");
    yk_module *parent = yk_sequential(yk_relu_create());
    assert_null(yk_module_add(parent, "part", m));
    yk_clear_error();
    assert_null(yk_module_check(parent));
    yk_clear_error();
}

static yk_module *plain_gate(void)
{
    static yk_module_class cls;
    cls = gate_class;
    cls.destroy = NULL;
    return yk_module_create(&cls);
}

static void test_adding(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_module *m = plain_gate();
    yk_tensor *x = yk_ones(YK_SHAPE(2), NULL);
    assert_ptr_equal(yk_module_add_parameter(m, "a", x), x);
    assert_true(yk_requires_grad(x));
    assert_null(yk_module_add_buffer(m, "a.b", yk_ones(YK_SHAPE(2), NULL)));
    expect_error(YK_ERR_ARGUMENT, "Gate: \"a.b\" is not a name for a part");
    expect_incomplete(m);
    /* A part of a name that is there is replaced, at its place or, being of another kind, at the end of its own. */
    yk_module *net = yk_mlp(NULL), *head = yk_linear_create(128, 3, NULL);
    assert_ptr_equal(yk_module_add(net, "fc2", head), head);
    assert_ptr_equal(yk_module_get(net, "fc2.weight"), yk_module_get(head, "weight"));
    assert_int_equal(yk_size(yk_forward(net, yk_ones(YK_SHAPE(2, 784), NULL)), 1), 3);
    expect_ok(YK_OK);
    m = plain_gate();
    assert_non_null(yk_module_add_parameter(m, "a", yk_ones(YK_SHAPE(2), NULL)));
    assert_non_null(yk_module_add(m, "a", yk_relu_create()));
    assert_int_equal(yk_parameters_count(yk_module_parameters(m)), 0);
    assert_string_equal(yk_module_child_name(m, 0), "a");
    /* A parameter of two layers: one tensor, in the list once, in the state dict under both names. */
    yk_module *tied = yk_sequential(yk_linear_create(4, 4, NULL), yk_linear_create(4, 4, NULL));
    yk_module *one = yk_module_child(tied, 0), *two = yk_module_child(tied, 1);
    yk_tensor *shared = yk_module_get(one, "weight");
    assert_ptr_equal(yk_module_add_parameter(two, "weight", shared), shared);
    assert_int_equal(yk_parameters_count(yk_module_parameters(tied)), 3);
    assert_int_equal(yk_state_dict_count(yk_module_state_dict(tied)), 4);
    yk_optimizer *sgd = yk_sgd(yk_module_parameters(tied), YK_OPTIONS(yk_sgd_options, .lr = 1));
    yk_tensor *out = yk_forward(tied, yk_ones(YK_SHAPE(1, 4), NULL));
    yk_tensor *by_hand = yk_linear(yk_linear(yk_ones(YK_SHAPE(1, 4), NULL), shared, yk_module_get(one, "bias")), shared,
                                   yk_module_get(two, "bias"));
    for (int64_t i = 0; i < 4; i++)
        expect_near(yk_get(out, (int64_t[]){0, i}), yk_get(by_hand, (int64_t[]){0, i}), 0, 0);
    expect_ok(yk_backward(yk_sum(out)));
    expect_ok(yk_optimizer_step(sgd));
    assert_int_equal(yk_optimizer_state_step(sgd, shared), 1);

    m = plain_gate();
    assert_null(yk_module_add_buffer(m, "a.b", yk_ones(YK_SHAPE(2), NULL)));
    expect_error(YK_ERR_ARGUMENT, "Gate: \"a.b\" is not a name for a part");
    expect_incomplete(m);

    /* An earlier failure: its own message stays, and the constructor's one check sees it. */
    m = plain_gate();
    assert_null(yk_module_add(m, "fc", yk_linear_create(-1, 2, NULL)));
    expect_error(YK_ERR_ARGUMENT, "linear_create: in_features -1");
    expect_incomplete(m);
    m = plain_gate();
    assert_null(yk_module_add_parameter(m, "w", NULL));
    expect_error(YK_ERR_ARGUMENT, "Gate: \"w\" is NULL");
    expect_incomplete(m);
    assert_null(yk_sequential(yk_relu_create(), yk_linear_create(2, 0, NULL), yk_relu_create()));
    expect_error(YK_ERR_ARGUMENT, "linear_create: in_features 2, out_features 0");
    yk_module *parts[3] = {yk_relu_create(), NULL, yk_relu_create()};
    assert_null(yk_sequential_list(parts, 3));
    expect_error(YK_ERR_ARGUMENT, "Sequential: \"1\" is NULL");

    m = plain_gate();
    assert_null(yk_module_add_parameter(m, "w", yk_mul_scalar(x, 2)));
    expect_error(YK_ERR_ARGUMENT, "Gate: \"w\" was made by mul_scalar; a parameter must be a leaf");
    m = plain_gate();
    assert_null(yk_module_add_parameter(m, "w", yk_ones(YK_SHAPE(2), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64))));
    expect_error(YK_ERR_DTYPE, "only floating tensors can require a gradient");

    yk_module *child = yk_sequential(yk_relu_create()), *parent = yk_sequential(child);
    assert_null(yk_module_add(child, "loop", parent));
    expect_error(YK_ERR_ARGUMENT, "Sequential: \"loop\" would contain itself");

    assert_null(yk_module_create(&(yk_module_class){.name = "Nothing"}));
    expect_error(YK_ERR_ARGUMENT, "module_create: the class needs a name and a forward");
    yk_scope_end(scope);
    assert_null(yk_relu_create());
    expect_error(YK_ERR_STATE, "ReLU: no scope is open");
}

/* ---- errors ---- */

static yk_tensor *silent_forward(yk_module *self, yk_tensor *x)
{
    (void)self;
    (void)x;
    return NULL;
}

static void test_paths(void **unused)
{
    (void)unused;
    static const yk_module_class silent = {.name = "Silent", .forward = silent_forward};
    yk_scope scope = yk_scope_begin();
    yk_module *m = yk_sequential(yk_relu_create(), yk_sequential(yk_relu_create(), yk_linear_create(3, 4, NULL)));
    assert_null(yk_forward(m, yk_ones(YK_SHAPE(2, 5), NULL)));
    const yk_error *error = yk_last_error();
    assert_non_null(error);
    assert_ptr_equal(strstr(error->message, "1.1: linear: "), error->message);
    yk_clear_error();

    m = yk_sequential(yk_sequential(yk_module_create(&silent)));
    assert_null(yk_forward(m, yk_ones(YK_SHAPE(2, 5), NULL)));
    expect_error(YK_ERR_CALLBACK, "0.0: forward of Silent returned NULL without an error");

    /* A module that fails alone has no path; an error that was there before is not renamed. */
    assert_null(yk_forward(yk_linear_create(3, 4, NULL), yk_ones(YK_SHAPE(5), NULL)));
    assert_ptr_equal(strstr(yk_last_error()->message, "linear: "), yk_last_error()->message);
    yk_clear_error();
    yk_module *net = yk_sequential(yk_linear_create(3, 4, NULL));
    (void)yk_set_error(YK_ERR_IO, "before");
    assert_null(yk_forward(net, yk_ones(YK_SHAPE(5), NULL)));
    assert_string_equal(yk_last_error()->message, "before");
    assert_null(yk_forward(net, NULL));
    assert_null(yk_forward(NULL, NULL));
    assert_string_equal(yk_last_error()->message, "before");
    yk_clear_error();
    assert_null(yk_forward(net, NULL));
    expect_error(YK_ERR_ARGUMENT, "forward: the tensor is NULL");
    yk_scope_end(scope);
}

/* ---- moving ---- */

static void test_dtype(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_module *m = yk_sequential(yk_conv2d_create(8, 16, 3, NULL), yk_batch_norm2d_create(16, NULL));
    yk_tensor *w = yk_module_get(m, "0.weight"), *count = yk_module_get(m, "1.num_batches_tracked");
    yk_tensor *values = yk_clone(yk_detach(w));
    yk_tensor *x = yk_randn(YK_SHAPE(2, 8, 5, 5), NULL);
    expect_ok(yk_backward(yk_sum(yk_square(yk_forward(m, x)))));
    assert_ptr_equal(yk_module_to_dtype(m, YK_F64), m);
    assert_int_equal(yk_tensor_dtype(w), YK_F64);
    assert_int_equal(yk_tensor_dtype(yk_grad(w)), YK_F64);
    assert_int_equal(yk_tensor_dtype(yk_module_get(m, "1.running_var")), YK_F64);
    assert_int_equal(yk_tensor_dtype(count), YK_I64);
    assert_true(yk_item(yk_all(yk_eq(yk_cast(values, YK_F64), yk_detach(w)))) == 1);
    /* the strides are the ones that the device asks for in this dtype */
    int64_t stride[4];
    yk__backend_of((yk_device){0})
        ->conv2d_weight_layout(&(yk__conv2d){.stride = {1, 1}, .dilation = {1, 1}, .groups = 1}, YK_F64, yk_sizes(w),
                               stride);
    for (int d = 0; d < 4; d++)
        assert_int_equal(yk_stride(w, d), stride[d]);
    /* gradients go on in the new dtype */
    expect_ok(yk_backward(yk_sum(yk_square(yk_forward(m, yk_cast(x, YK_F64))))));
    assert_int_equal(yk_tensor_dtype(yk_grad(w)), YK_F64);
    /* in halves, statistics included, the network trains and tests as well */
    for (yk_dtype half = YK_F16; half <= YK_BF16; half++) {
        assert_ptr_equal(yk_module_to_dtype(m, half), m);
        assert_int_equal(yk_tensor_dtype(yk_module_get(m, "1.running_var")), half);
        yk_module_train(m, true);
        expect_ok(yk_backward(yk_sum(yk_square(yk_forward(m, yk_cast(x, half))))));
        assert_int_equal(yk_tensor_dtype(yk_grad(w)), half);
        yk_module_eval(m);
        assert_non_null(yk_forward(m, yk_cast(x, half)));
    }
    assert_int_equal(yk_item_i64(count), 4);
    assert_null(yk_module_to_dtype(m, YK_I64));
    expect_error(YK_ERR_DTYPE, "module_to_dtype: int64 is not a floating dtype");
    yk_scope_end(scope);
}

static void test_moves(void **unused)
{
    (void)unused;
    yk_device second = test_device(1);
    yk_scope scope = yk_scope_begin();
    yk_module *m = yk_sequential(yk_conv2d_create(8, 16, 3, NULL), yk_batch_norm2d_create(16, NULL));
    yk_tensor *w = yk_module_get(m, "0.weight"), *x = yk_randn(YK_SHAPE(2, 8, 5, 5), NULL);
    yk_module_eval(m);
    yk_tensor *before = yk_forward(m, x);
    expect_ok(yk_backward(yk_sum(yk_square(before))));
    yk_tensor *graph = yk_forward(m, x);
    assert_ptr_equal(yk_module_to(m, second), m);
    assert_true(yk_device_equal(yk_tensor_device(w), second));
    assert_true(yk_device_equal(yk_tensor_device(yk_grad(w)), second));
    assert_true(yk_device_equal(yk_tensor_device(yk_module_get(m, "1.num_batches_tracked")), second));
    yk_tensor *after = yk_forward(m, yk_to(x, second));
    yk_tensor *kept = yk_clone(yk_grad(w));
    expect_ok(yk_backward(yk_sum(yk_square(after))));
    yk_tensor *twice = yk_grad(w);
    assert_true(yk_device_equal(yk_tensor_device(twice), second));
    assert_true(yk_item(yk_all(yk_eq(yk_mul_scalar(kept, 2), twice))) == 1); /* added to what moved along */
    assert_true(yk_item(yk_all(yk_eq(yk_to(yk_detach(after), test_device(0)), yk_detach(before)))) == 1);
    /* a graph that was recorded before the move notices */
    assert_int_not_equal(yk_backward(yk_sum(yk_square(graph))), YK_OK);
    assert_non_null(strstr(yk_last_error()->message, "modified by an inplace operation"));
    yk_clear_error();
    assert_null(yk_forward(m, x));
    assert_non_null(strstr(yk_last_error()->message, "0: conv2d: the tensors are on two devices"));
    yk_clear_error();
    assert_null(yk_module_to(m, test_device(7)));
    assert_non_null(yk_last_error());
    yk_clear_error();
    yk_scope_end(scope);
}

int main(void)
{
    use_devices(2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_module), cmocka_unit_test(test_tree),   cmocka_unit_test(test_apply),
        cmocka_unit_test(test_print),      cmocka_unit_test(test_adding), cmocka_unit_test(test_paths),
        cmocka_unit_test(test_dtype),      cmocka_unit_test(test_moves),
    };
    return cmocka_run_group_tests_name("module", tests, NULL, NULL);
}
