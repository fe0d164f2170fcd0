/*
 * operation_build.c - an operation, its operands and one run of it, made from the text of a case. Layer: bench.
 *
 * The table at the end has a row per operation: what it takes, and the call; index_operations.c has those with indices
 * and masks. Weights of convolutions are those of a module, in the memory order that the device asks for.
 */
#include <stdlib.h>
#include <string.h>

#include "base/core.h"
#include "bench/operations/operations.h"

/* ---- the text ---------------------------------------------------------------------------------------------------- */

static const char *value_of(const char *text, const char *key)
{
    size_t length = strlen(key);
    for (const char *p = strchr(text, ' '); p; p = strchr(p + 1, ' ')) {
        if (strncmp(p + 1, key, length) == 0 && p[1 + length] == '=')
            return p + length + 2;
    }
    return NULL;
}

int ops_text_sizes(const char *text, const char *key, int64_t *shape)
{
    const char *p = value_of(text, key);
    int n = 0;
    while (p && n < 8) {
        char *end;
        shape[n++] = strtoll(p, &end, 10);
        p = *end == 'x' ? end + 1 : NULL;
    }
    return n;
}

double ops_text_number(const char *text, const char *key, double otherwise)
{
    const char *p = value_of(text, key);
    return p ? strtod(p, NULL) : otherwise;
}

bool ops_text_is(const char *text, const char *key, const char *word)
{
    const char *p = value_of(text, key);
    size_t length = strlen(word);
    return p && strncmp(p, word, length) == 0 && (p[length] == ' ' || p[length] == '\0');
}

void ops_text_word(const char *text, const char *key, char *word, size_t size)
{
    const char *p = value_of(text, key);
    snprintf(word, size, "%.*s", (int)strcspn(p ? p : "", " "), p ? p : "");
}

int64_t ops_whole(const ops_subject *s, const char *key, int64_t otherwise)
{
    return (int64_t)ops_text_number(s->text, key, (double)otherwise);
}

int ops_dim(const ops_subject *s)
{
    return (int)ops_whole(s, "dim", 0);
}

/* ---- operands ---------------------------------------------------------------------------------------------------- */

static yk_tensor *random_tensor(const ops_subject *s, int ndim, const int64_t *shape)
{
    return s->operation->positive ? yk_add_scalar(yk_rand(ndim, shape, NULL), 0.1) : yk_randn(ndim, shape, NULL);
}

/* The operand of a key in the memory order that the text asks for; NULL where the text does not have it. */
static yk_tensor *operand(const ops_subject *s, const char *key)
{
    int64_t n[8];
    int ndim = ops_text_sizes(s->text, key, n);
    if (ndim == 0)
        return NULL;
    if (ndim == 4 && ops_text_is(s->text, "layout", "inner"))
        return yk_permute(random_tensor(s, YK_SHAPE(n[2], n[3], n[0], n[1])), (int[]){2, 3, 0, 1});
    if (ndim == 4 && ops_text_is(s->text, "layout", "nhwc"))
        return yk_permute(random_tensor(s, YK_SHAPE(n[0], n[2], n[3], n[1])), (int[]){0, 3, 1, 2});
    if (strcmp(key, "y") == 0 && ops_text_is(s->text, "layout", "transposed"))
        return yk_transpose(random_tensor(s, YK_SHAPE(n[1], n[0])), 0, 1);
    return random_tensor(s, ndim, n);
}

static yk_status prepare_conv(ops_subject *s)
{
    int64_t x[8], w[8];
    if (ops_text_sizes(s->text, "x", x) != 4 || ops_text_sizes(s->text, "w", w) != 4)
        return yk_set_error(YK_ERR_ARGUMENT, "operation_times: %s: x and w have four dimensions", s->text);
    yk_module *m =
        yk_conv2d_create(x[1], w[0], 0,
                         YK_OPTIONS(yk_conv2d_module_options, .kernel_size = {w[2], w[3]},
                                    .groups = ops_whole(s, "groups", 1), .bias = ops_whole(s, "bias", 0) != 0));
    s->model = m;
    s->in[1] = m ? yk_detach(yk_module_get(m, "weight")) : NULL;
    s->in[2] = m && ops_whole(s, "bias", 0) ? yk_detach(yk_module_get(m, "bias")) : NULL;
    return yk__error_code();
}

static yk_tensor *conv(ops_subject *s)
{
    int64_t stride = ops_whole(s, "stride", 1), dilation = ops_whole(s, "dilation", 1), padding[8] = {0};
    bool one = ops_text_sizes(s->text, "padding", padding) < 2;
    return yk_conv2d(s->in[0], s->in[1], s->in[2],
                     YK_OPTIONS(yk_conv2d_options, .stride = {stride, stride},
                                .padding = {padding[0], padding[one ? 0 : 1]}, .dilation = {dilation, dilation},
                                .groups = ops_whole(s, "groups", 1)));
}

static yk_status prepare_linear(ops_subject *s)
{
    if (ops_whole(s, "bias", 0))
        s->in[2] = random_tensor(s, YK_SHAPE(yk_size(s->in[1], 0)));
    return yk__error_code();
}

static yk_tensor *linear(ops_subject *s)
{
    return yk_linear(s->in[0], s->in[1], s->in[2]);
}

static yk_tensor *linear_relu(ops_subject *s)
{
    return yk_linear_relu(s->in[0], s->in[1], s->in[2]);
}

static yk_tensor *matmul(ops_subject *s)
{
    yk_tensor *y = s->in[1];
    return yk_matmul(s->in[0], ops_whole(s, "transposed", 0) ? yk_transpose(y, -1, -2) : y);
}

static yk_status prepare_attention(ops_subject *s)
{
    s->in[1] = operand(s, "x");
    s->in[2] = operand(s, "x");
    return yk__error_code();
}

/* softmax(q k^T / 8) v, of operations that exist: two products, a scaling, a softmax. */
static yk_tensor *attention(ops_subject *s)
{
    yk_tensor *scores = yk_matmul(yk_mul_scalar(s->in[0], 0.125), yk_transpose(s->in[1], -1, -2));
    return yk_matmul(yk_softmax(scores, -1), s->in[2]);
}

/* in: x, w_ih, w_hh, b_ih, b_hh; of a cell also h and c. */
static yk_status prepare_lstm(ops_subject *s)
{
    int64_t batch = yk_size(s->in[0], 0), gates = yk_size(s->in[1], 0);
    s->in[2] = random_tensor(s, YK_SHAPE(gates, gates / 4));
    for (int i = 3; i < 5; i++)
        s->in[i] = random_tensor(s, YK_SHAPE(gates));
    for (int i = 5; i < 7 && yk_ndim(s->in[0]) == 2; i++)
        s->in[i] = random_tensor(s, YK_SHAPE(batch, gates / 4));
    return yk__error_code();
}

static yk_tensor *lstm_cell(ops_subject *s)
{
    yk_tensor *const *in = s->in, *out;
    return yk_lstm_cell(in[0], in[5], in[6], in[1], in[2], in[3], in[4], &out, NULL) ? NULL : out;
}

static yk_tensor *lstm(ops_subject *s)
{
    yk_tensor *out;
    return yk_lstm(s->in[0], NULL, NULL, s->in + 1, 4, NULL, &out, NULL, NULL) ? NULL : out;
}

static yk_status prepare_norm(ops_subject *s)
{
    int dim = strncmp(s->text, "batch", 5) == 0 ? 1 : -1;
    s->in[1] = yk_ones(YK_SHAPE(yk_size(s->in[0], dim)), NULL);
    s->in[2] = yk_zeros(YK_SHAPE(yk_size(s->in[0], dim)), NULL);
    return yk__error_code();
}

/* Also the running statistics, where they are used. */
static yk_status prepare_batch_norm(ops_subject *s)
{
    if (prepare_norm(s))
        return yk__error_code();
    if (ops_whole(s, "eval", 0)) {
        s->mean = yk_zeros(YK_SHAPE(yk_size(s->in[0], 1)), NULL);
        s->variance = yk_ones(YK_SHAPE(yk_size(s->in[0], 1)), NULL);
    }
    return yk__error_code();
}

static yk_tensor *batch_norm(ops_subject *s)
{
    return yk_batch_norm(s->in[0], s->in[1], s->in[2], s->mean, s->variance,
                         YK_OPTIONS(yk_batch_norm_options, .training = !s->mean, .relu = ops_whole(s, "relu", 0) != 0));
}

static yk_tensor *layer_norm(ops_subject *s)
{
    return yk_layer_norm(s->in[0], YK_SHAPE(yk_size(s->in[0], -1)), s->in[1], s->in[2], 1e-5);
}

static yk_pool2d_options pool_options(const ops_subject *s)
{
    int64_t kernel = ops_whole(s, "kernel", 2), stride = ops_whole(s, "stride", kernel),
            padding = ops_whole(s, "padding", 0);
    return *YK_OPTIONS(yk_pool2d_options, .kernel = {kernel, kernel}, .stride = {stride, stride},
                       .padding = {padding, padding});
}

static yk_tensor *max_pool2d(ops_subject *s)
{
    yk_pool2d_options o = pool_options(s);
    return yk_max_pool2d(s->in[0], &o);
}

static yk_tensor *avg_pool2d(ops_subject *s)
{
    yk_pool2d_options o = pool_options(s);
    return yk_avg_pool2d(s->in[0], &o);
}

static yk_tensor *adaptive_avg_pool2d(ops_subject *s)
{
    return yk_adaptive_avg_pool2d(s->in[0], ops_whole(s, "size", 1), ops_whole(s, "size", 1));
}

static yk_tensor *clamp(ops_subject *s)
{
    return yk_clamp(s->in[0], 0, 6);
}

static yk_tensor *pow_scalar(ops_subject *s)
{
    return yk_pow_scalar(s->in[0], ops_text_number(s->text, "exponent", 2));
}

static yk_tensor *dropout(ops_subject *s)
{
    return yk_dropout(s->in[0], 0.1, true);
}

static yk_tensor *cat(ops_subject *s)
{
    return yk_cat(s->in, 2, ops_dim(s));
}

/* A copy in C order, of a view with its dimensions in the order of `permute` where the text has that. */
static yk_tensor *contiguous(ops_subject *s)
{
    const char *digits = value_of(s->text, "permute");
    int dims[8];
    for (int d = 0; digits && d < yk_ndim(s->in[0]); d++)
        dims[d] = digits[d] - '0';
    return yk_contiguous(digits ? yk_permute(s->in[0], dims) : s->in[0]);
}

yk_dtype ops_text_dtype(const char *text, const char *key)
{
    char name[32] = "";
    yk_dtype dtype = YK_F32;
    ops_text_word(text, key, name, sizeof(name));
    if (*name && yk_dtype_parse(name, &dtype)) {
        char why[200];
        snprintf(why, sizeof(why), "%.190s", yk_last_error()->message);
        yk_clear_error();
        (void)yk_set_error(YK_ERR_ARGUMENT, "operation_times: %s: %s", text, why);
    }
    return dtype;
}

static yk_tensor *cast(ops_subject *s)
{
    return yk_cast(s->in[0], ops_text_dtype(s->text, "to"));
}

static yk_tensor *sum_dim(ops_subject *s)
{
    return yk_sum_dims(s->in[0], (int[]){ops_dim(s)}, 1, false);
}

static yk_tensor *max_dim(ops_subject *s)
{
    yk_tensor *index;
    return yk_max_dim(s->in[0], ops_dim(s), false, &index);
}

static yk_tensor *softmax(ops_subject *s)
{
    return yk_softmax(s->in[0], ops_dim(s));
}

static yk_tensor *log_softmax(ops_subject *s)
{
    return yk_log_softmax(s->in[0], ops_dim(s));
}

static yk_tensor *logsumexp(ops_subject *s)
{
    return yk_logsumexp(s->in[0], (int[]){ops_dim(s)}, 1, false);
}

static yk_status prepare_classes(ops_subject *s)
{
    s->index = yk_randint(0, yk_size(s->in[0], 1), YK_SHAPE(yk_size(s->in[0], 0)), NULL);
    return yk__error_code();
}

static yk_tensor *cross_entropy(ops_subject *s)
{
    return yk_cross_entropy(s->in[0], s->index, NULL);
}

static yk_tensor *mse_loss(ops_subject *s)
{
    return yk_mse_loss(s->in[0], s->in[1], YK_REDUCE_MEAN);
}

static yk_tensor *cumsum(ops_subject *s)
{
    return yk_cumsum(s->in[0], ops_dim(s));
}

static yk_tensor *topk(ops_subject *s)
{
    yk_tensor *index;
    return yk_topk(s->in[0], ops_whole(s, "k", 1), ops_dim(s), true, &index);
}

#define UNARY(name)                                                                                                    \
    static yk_tensor *name##_(ops_subject *s)                                                                          \
    {                                                                                                                  \
        return yk_##name(s->in[0]);                                                                                    \
    }
#define BINARY(name)                                                                                                   \
    static yk_tensor *name##_(ops_subject *s)                                                                          \
    {                                                                                                                  \
        return yk_##name(s->in[0], s->in[1]);                                                                          \
    }
UNARY(relu)
UNARY(gelu)
UNARY(exp)
UNARY(log)
UNARY(tanh)
UNARY(sigmoid)
UNARY(sin)
UNARY(cos)
UNARY(sqrt)
UNARY(log1p)
UNARY(expm1)
UNARY(erf)
UNARY(abs)
UNARY(neg)
UNARY(sign)
UNARY(sum)
BINARY(add)
BINARY(mul)
BINARY(div)
BINARY(pow)
BINARY(atan2)
BINARY(maximum)

/* ---- optimizers and training steps ------------------------------------------------------------------------------- */

/* `tensors` parameters of x's shape, each with a gradient. */
static yk_status prepare_parameters(ops_subject *s)
{
    s->parameters = yk_parameters_create();
    int64_t count = ops_whole(s, "tensors", 1);
    for (int64_t i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof(name), "p%d", (int)i);
        yk_tensor *p = operand(s, "x");
        if (!p || yk_set_requires_grad(p, true) || yk_set_grad(p, operand(s, "x")) ||
            yk_parameters_add(s->parameters, name, p))
            return yk__error_code();
    }
    s->in[0] = NULL;
    return YK_OK;
}

static yk_status prepare_sgd(ops_subject *s)
{
    if (prepare_parameters(s))
        return yk__error_code();
    s->optimizer = yk_sgd(s->parameters, YK_OPTIONS(yk_sgd_options, .lr = 1e-3, .momentum = 0.9, .weight_decay = 1e-5));
    return yk__error_code();
}

static yk_status prepare_adam(ops_subject *s)
{
    if (prepare_parameters(s))
        return yk__error_code();
    s->optimizer = yk_adam(s->parameters, YK_OPTIONS(yk_adam_options, .lr = 1e-3));
    return yk__error_code();
}

static yk_status optimizer_step(ops_subject *s)
{
    return yk_optimizer_step(s->optimizer);
}

static yk_status clip_grad_norm(ops_subject *s)
{
    double norm;
    return yk_clip_grad_norm(s->parameters, 1, &norm);
}

static yk_status prepare_step(ops_subject *s)
{
    char name[32];
    ops_text_word(s->text, "model", name, sizeof(name));
    return ops_prepare_network(s, name, ops_whole(s, "batch", 1), ops_whole(s, "size", 32));
}

static yk_status training_step(ops_subject *s)
{
    yk_optimizer_zero_grad(s->optimizer);
    yk_tensor *loss = yk_cross_entropy(yk_forward(s->model, s->in[0]), s->index, NULL);
    if (!loss || yk_backward(loss))
        return yk__error_code();
    return yk_optimizer_step(s->optimizer);
}

static const ops_operation operations[] = {
    {.name = "conv2d", conv, prepare_conv},
    {.name = "linear", linear, prepare_linear},
    {.name = "linear_relu", linear_relu, prepare_linear},
    {.name = "matmul", matmul},
    {.name = "attention", attention, prepare_attention},
    {.name = "lstm_cell", lstm_cell, prepare_lstm},
    {.name = "lstm", lstm, prepare_lstm},
    {.name = "batch_norm", batch_norm, prepare_batch_norm},
    {.name = "layer_norm", layer_norm, prepare_norm},
    {.name = "max_pool2d", max_pool2d},
    {.name = "avg_pool2d", avg_pool2d},
    {.name = "adaptive_avg_pool2d", adaptive_avg_pool2d},
    {.name = "relu", relu_},
    {.name = "gelu", gelu_},
    {.name = "clamp", clamp},
    {.name = "exp", exp_},
    {.name = "log", log_, .positive = true},
    {.name = "tanh", tanh_},
    {.name = "sigmoid", sigmoid_},
    {.name = "sin", sin_},
    {.name = "cos", cos_},
    {.name = "sqrt", sqrt_, .positive = true},
    {.name = "log1p", log1p_, .positive = true},
    {.name = "expm1", expm1_},
    {.name = "erf", erf_},
    {.name = "abs", abs_},
    {.name = "neg", neg_},
    {.name = "sign", sign_},
    {.name = "pow_scalar", pow_scalar, .positive = true},
    {.name = "dropout", dropout},
    {.name = "add", add_},
    {.name = "mul", mul_},
    {.name = "div", div_},
    {.name = "pow", pow_, .positive = true},
    {.name = "atan2", atan2_},
    {.name = "maximum", maximum_},
    {.name = "cat", cat},
    {.name = "contiguous", contiguous},
    {.name = "cast", cast},
    {.name = "sum", sum_},
    {.name = "sum_dim", sum_dim},
    {.name = "max_dim", max_dim},
    {.name = "softmax", softmax},
    {.name = "log_softmax", log_softmax},
    {.name = "logsumexp", logsumexp},
    {.name = "cross_entropy", cross_entropy, prepare_classes},
    {.name = "mse_loss", mse_loss},
    {.name = "cumsum", cumsum},
    {.name = "topk", topk},
    {.name = "sgd", NULL, prepare_sgd, optimizer_step},
    {.name = "adam", NULL, prepare_adam, optimizer_step},
    {.name = "clip_grad_norm", NULL, prepare_parameters, clip_grad_norm},
    {.name = "step", NULL, prepare_step, training_step},
};

/* ---- one run ----------------------------------------------------------------------------------------------------- */

const char *ops_direction_name(ops_direction direction)
{
    switch (direction) {
    case OPS_FORWARD: return "forward";
    case OPS_BACKWARD: return "backward";
    case OPS_GRAD_INPUT: return "grad_input";
    case OPS_GRAD_WEIGHT: return "grad_weight";
    case OPS_BOTH: return "both";
    case OPS_WHOLE_STEP: return "step";
    }
    return "";
}

const char *ops_bound_name(ops_bound bound)
{
    static const char *const names[OPS_BOUNDS] = {"arithmetic", "memory", "large", "small", "step"};
    return names[bound];
}

static yk_status compute_gradients(ops_subject *s, yk_tensor *out, bool keep)
{
    yk_status status =
        yk_backward_with(out, YK_OPTIONS(yk_backward_options, .gradient = s->gradient, .retain_graph = keep));
    for (int i = 0; i < OPS_OPERANDS && !status; i++) {
        if (s->in[i] && yk_requires_grad(s->in[i]))
            status = yk_set_grad(s->in[i], NULL);
    }
    if (s->model)
        yk_module_zero_grad(s->model);
    return status;
}

yk_status ops_once(ops_subject *s, ops_direction direction)
{
    yk_scope scope = yk_scope_begin();
    yk_status status = YK_OK;
    if (direction == OPS_WHOLE_STEP) {
        status = s->operation->step(s);
    } else if (direction == OPS_FORWARD || direction == OPS_BOTH) {
        yk_tensor *out = s->operation->forward(s);
        status = out ? YK_OK : yk__error_code();
        if (direction == OPS_BOTH && !status)
            status = compute_gradients(s, out, false);
    } else {
        status = compute_gradients(s, s->out, true);
    }
    yk_scope_end(scope);
    return status;
}

/* "dtype=f64" and the like: all operands. */
static yk_status cast_operands(ops_subject *s)
{
    yk_dtype dtype = ops_text_dtype(s->text, "dtype");
    for (int i = 0; i < OPS_OPERANDS && dtype != YK_F32; i++)
        s->in[i] = s->in[i] ? yk_cast(s->in[i], dtype) : NULL;
    return yk__error_code();
}

static const ops_operation *find_operation(const ops_operation *table, int count, const char *text)
{
    size_t length = strcspn(text, " ");
    for (int i = 0; i < count; i++) {
        if (strlen(table[i].name) == length && strncmp(table[i].name, text, length) == 0)
            return &table[i];
    }
    return NULL;
}

yk_status ops_prepare(ops_subject *s, const char *text, ops_direction direction)
{
    *s = (ops_subject){.text = text};
    const struct {
        const ops_operation *table;
        int count;
    } tables[] = {
        {operations, sizeof(operations) / sizeof(*operations)}, {ops_index_operations, ops_index_operation_count},
        {ops_reduce_operations, ops_reduce_operation_count},    {ops_layer_operations, ops_layer_operation_count},
        {ops_plain_operations, ops_plain_operation_count},      {ops_volume_operations, ops_volume_operation_count},
        {ops_sequence_operations, ops_sequence_operation_count}};
    for (size_t i = 0; i < sizeof(tables) / sizeof(*tables) && !s->operation; i++)
        s->operation = find_operation(tables[i].table, tables[i].count, text);
    if (!s->operation)
        return yk_set_error(YK_ERR_ARGUMENT, "operation_times: %s: there is no such operation", text);
    static const char *const keys[] = {"x", "y", "w"};
    int count = 0;
    for (int i = 0; i < 3; i++) {
        yk_tensor *x = operand(s, keys[i]);
        if (x || yk__error_code())
            s->in[count++] = x;
    }
    if (yk__error_code() || (s->operation->prepare && s->operation->prepare(s)) || cast_operands(s))
        return yk__error_code();
    if (direction == OPS_FORWARD && s->model)
        return yk_module_requires_grad(s->model, false);
    if (direction == OPS_FORWARD || direction == OPS_WHOLE_STEP)
        return YK_OK;
    for (int i = 0; i < OPS_OPERANDS; i++) {
        bool wanted = i == 0 ? direction != OPS_GRAD_WEIGHT : direction != OPS_GRAD_INPUT;
        if (s->in[i] && wanted && yk_set_requires_grad(s->in[i], true))
            return yk__error_code();
    }
    s->out = s->operation->forward(s);
    if (!s->out)
        return yk__error_code();
    if (yk_ndim(s->out) > 0) {
        /* In the memory order of the output, as the operation after it would give it. */
        yk_tensor *like = ops_text_is(text, "grad", "nchw") ? yk_empty(yk_ndim(s->out), yk_sizes(s->out), NULL)
                                                            : yk_empty_like(s->out);
        s->gradient = yk_normal_(like, 0, 1);
    }
    return yk__error_code();
}
