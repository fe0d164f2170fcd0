/*
 * gpu_checks.c - checks of a GPU by the public functions alone: part of gpu_cases.c. Gradients of the operations
 * against finite differences in f64; 100 recorded steps against 100 that run as they are, to the bit; two logical
 * devices of one GPU against one.
 */
#include "tests/gpu/gpu_checks.h"
#include "tests/support/slot_pairs.h"

enum { STEPS = 100, BATCH = 8, SIDE = 6, CLASSES = 5, FEATURES = 6, MOST_INPUTS = 5 };

static const yk_device gpu = {YK_CUDA, 0};

/* ---- gradients ---- */
/* The call of an operation whose gradient is checked, and the shapes of its f64 leaves. */
typedef struct gradient {
    const char *name;
    yk_gradcheck_fn call;
    int inputs;
    int64_t shapes[MOST_INPUTS][5]; /* ndim, sizes */
    bool positive;                  /* numbers of [0.5, 1.5) */
} gradient;

/* i64 in [0, bound), on the GPU. */
static yk_tensor *whole_numbers(int64_t bound, int ndim, const int64_t *shape)
{
    int64_t values[64];
    for (int i = 0; i < 64; i++)
        values[i] = (int64_t)(slot_word(11, (uint64_t)i) % (uint32_t)bound);
    return yk_to(yk_from_data(values, ndim, shape, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64)), gpu);
}

#define GRADIENT(name, expression)                                                                                     \
    static yk_tensor *gradient_##name(yk_tensor *const *x, int count, void *user)                                      \
    {                                                                                                                  \
        (void)x, (void)count, (void)user;                                                                              \
        return expression;                                                                                             \
    }
GRADIENT(add, yk_add(x[0], x[1]))
GRADIENT(mul, yk_mul(x[0], x[1]))
GRADIENT(div, yk_div(x[0], x[1]))
GRADIENT(pow, yk_pow(x[0], x[1]))
GRADIENT(exp, yk_exp(x[0]))
GRADIENT(log, yk_log(x[0]))
GRADIENT(tanh, yk_tanh(x[0]))
GRADIENT(sigmoid, yk_sigmoid(x[0]))
GRADIENT(gelu, yk_gelu(x[0]))
GRADIENT(relu, yk_relu(x[0]))
GRADIENT(where, yk_where(yk_gt(x[0], x[1]), yk_mul(x[0], x[0]), x[1]))
GRADIENT(sum, yk_sum_dims(x[0], (const int[]){1}, 1, false))
GRADIENT(mean, yk_mean(yk_mul(x[0], x[0])))
GRADIENT(var, yk_var(x[0]))
GRADIENT(cumsum, yk_cumsum(x[0], 1))
GRADIENT(permute, yk_mul(yk_permute(x[0], (const int[]){1, 0}), x[1]))
GRADIENT(cat, yk_cat(x, 2, 1))
GRADIENT(softmax, yk_softmax(x[0], 1))
GRADIENT(log_softmax, yk_log_softmax(x[0], 0))
GRADIENT(matmul, yk_matmul(x[0], x[1]))
GRADIENT(linear, yk_linear(x[0], x[1], x[2]))
GRADIENT(conv2d, yk_conv2d(x[0], x[1], x[2], YK_OPTIONS(yk_conv2d_options, .stride = {2, 1}, .padding = {1, 1})))
GRADIENT(conv2d_groups, yk_conv2d(x[0], x[1], NULL, YK_OPTIONS(yk_conv2d_options, .groups = 2, .dilation = {1, 2})))
GRADIENT(max_pool2d, yk_max_pool2d(x[0], YK_OPTIONS(yk_pool2d_options, .kernel = {2, 2}, .padding = {1, 1})))
GRADIENT(avg_pool2d, yk_avg_pool2d(x[0], YK_OPTIONS(yk_pool2d_options, .kernel = {2, 2}, .stride = {1, 2})))
GRADIENT(adaptive_avg_pool2d, yk_adaptive_avg_pool2d(x[0], 2, 1))
GRADIENT(batch_norm, yk_batch_norm(x[0], x[1], x[2], NULL, NULL, YK_OPTIONS(yk_batch_norm_options, .training = true)))
GRADIENT(layer_norm, yk_layer_norm(x[0], 1, (const int64_t[]){FEATURES}, x[1], x[2], 1e-5))
GRADIENT(attention,
         yk_scaled_dot_product_attention(x[0], x[1], x[2], YK_OPTIONS(yk_attention_options, .is_causal = true)))
GRADIENT(embedding, yk_embedding(whole_numbers(4, 2, (const int64_t[]){2, 3}), x[0], -1))
GRADIENT(index_select, yk_index_select(x[0], 1, whole_numbers(5, 1, (const int64_t[]){7})))
GRADIENT(cross_entropy, yk_cross_entropy(x[0], whole_numbers(CLASSES, 1, (const int64_t[]){4}),
                                         YK_OPTIONS(yk_cross_entropy_options, .label_smoothing = 0.1)))
GRADIENT(mse_loss, yk_mse_loss(x[0], x[1], YK_REDUCE_MEAN))

/* clang-format off */
#define MATRIX {2, 3, 5}
static const gradient gradients[] = {
    {"add", gradient_add, 2, {MATRIX, {1, 5}}, false},
    {"mul", gradient_mul, 2, {MATRIX, {2, 3, 1}}, false},
    {"div", gradient_div, 2, {MATRIX, MATRIX}, true},
    {"pow", gradient_pow, 2, {MATRIX, MATRIX}, true},
    {"exp", gradient_exp, 1, {MATRIX}, false},
    {"log", gradient_log, 1, {MATRIX}, true},
    {"tanh", gradient_tanh, 1, {MATRIX}, false},
    {"sigmoid", gradient_sigmoid, 1, {MATRIX}, false},
    {"gelu", gradient_gelu, 1, {MATRIX}, false},
    {"relu", gradient_relu, 1, {MATRIX}, false},
    {"where", gradient_where, 2, {MATRIX, MATRIX}, false},
    {"sum", gradient_sum, 1, {MATRIX}, false},
    {"mean", gradient_mean, 1, {MATRIX}, false},
    {"var", gradient_var, 1, {MATRIX}, false},
    {"cumsum", gradient_cumsum, 1, {MATRIX}, false},
    {"permute", gradient_permute, 2, {MATRIX, {2, 5, 3}}, false},
    {"cat", gradient_cat, 2, {MATRIX, {2, 3, 2}}, false},
    {"softmax", gradient_softmax, 1, {MATRIX}, false},
    {"log_softmax", gradient_log_softmax, 1, {MATRIX}, false},
    {"matmul", gradient_matmul, 2, {{3, 2, 3, 4}, {2, 4, 2}}, false},
    {"linear", gradient_linear, 3, {{3, 2, 2, 4}, {2, 3, 4}, {1, 3}}, false},
    {"conv2d", gradient_conv2d, 3, {{4, 1, 2, 4, 3}, {4, 2, 2, 3, 2}, {1, 2}}, false},
    {"conv2d_groups", gradient_conv2d_groups, 2, {{4, 1, 4, 2, 4}, {4, 2, 2, 2, 2}}, false},
    {"max_pool2d", gradient_max_pool2d, 1, {{4, 1, 2, 3, 4}}, false},
    {"avg_pool2d", gradient_avg_pool2d, 1, {{4, 1, 2, 3, 4}}, false},
    {"adaptive_avg_pool2d", gradient_adaptive_avg_pool2d, 1, {{4, 1, 2, 3, 4}}, false},
    {"batch_norm", gradient_batch_norm, 3, {{4, 3, 2, 2, 2}, {1, 2}, {1, 2}}, false},
    {"layer_norm", gradient_layer_norm, 3, {{2, 3, FEATURES}, {1, FEATURES}, {1, FEATURES}}, false},
    {"attention", gradient_attention, 3, {{4, 1, 2, 3, 4}, {4, 1, 2, 3, 4}, {4, 1, 2, 3, 4}}, false},
    {"embedding", gradient_embedding, 1, {{2, 4, 3}}, false},
    {"index_select", gradient_index_select, 1, {MATRIX}, false},
    {"cross_entropy", gradient_cross_entropy, 1, {{2, 4, CLASSES}}, false},
    {"mse_loss", gradient_mse_loss, 2, {MATRIX, MATRIX}, false},
};
/* clang-format on */

static void gradient_case(const slot_case *self, slot_report *r)
{
    const gradient *g = &gradients[self->op];
    yk_tensor *x[MOST_INPUTS];
    if (!slot_ready(r))
        return;
    yk_scope scope = yk_scope_begin();
    for (int i = 0; i < g->inputs; i++) {
        double values[256];
        int64_t count = 1;
        for (int d = 1; d <= g->shapes[i][0]; d++)
            count *= g->shapes[i][d];
        for (int64_t k = 0; k < count; k++)
            values[k] = (double)slot_word((uint32_t)(40 + i), (uint64_t)k) * (g->positive ? 0x1p-32 : 0x1p-31) +
                        (g->positive ? 0.5 : -1);
        x[i] = yk_to(yk_from_data(values, (int)g->shapes[i][0], &g->shapes[i][1],
                                  YK_OPTIONS(yk_tensor_options, .dtype = YK_F64)),
                     gpu);
        if (x[i])
            slot_done(r, "requires_grad", yk_set_requires_grad(x[i], true));
        r->compared += count;
    }
    slot_done(r, g->name, yk_gradcheck(g->call, x, g->inputs, NULL, NULL));
    yk_scope_end(scope);
}

/* ---- steps ---- */
typedef struct course {
    yk_module *net, *model; /* the network, and what is called: itself, or DataParallel's */
    yk_optimizer *optimizer;
    yk_schedule *schedule;
    yk_tensor *input, *target, *loss; /* loss: retained */
} course;

static yk_status one_step(void *user)
{
    course *c = user;
    yk_optimizer_zero_grad(c->optimizer);
    yk_tensor *loss = yk_cross_entropy(yk_forward(c->model, c->input), c->target, NULL);
    yk_status status = yk_backward(loss);
    if (!status)
        status = yk_optimizer_step(c->optimizer);
    yk_tensor_release(c->loss);
    c->loss = yk_tensor_retain(loss);
    return status;
}

static course course_make(bool adam, double dropout)
{
    course c = {0};
    yk_manual_seed(7);
    c.net = yk_sequential(yk_conv2d_create(1, 4, 3, NULL), yk_batch_norm2d_create(4, NULL), yk_relu_create(),
                          yk_flatten_create(), yk_dropout_create(dropout),
                          yk_linear_create(4 * (SIDE - 2) * (SIDE - 2), CLASSES, NULL));
    c.model = c.net = yk_module_to(c.net, gpu);
    yk_parameters *parameters = yk_module_parameters(c.net);
    c.optimizer =
        adam ? yk_adamw(parameters, YK_OPTIONS(yk_adam_options, .lr = 0.01))
             : yk_sgd(parameters, YK_OPTIONS(yk_sgd_options, .lr = 0.05, .momentum = 0.9, .weight_decay = 1e-3));
    c.schedule = yk_cosine_lr(c.optimizer, STEPS, 1e-4);
    c.input = yk_zeros(YK_SHAPE(BATCH, 1, SIDE, SIDE), YK_OPTIONS(yk_tensor_options, .device = gpu));
    c.target = yk_zeros(YK_SHAPE(BATCH), YK_OPTIONS(yk_tensor_options, .device = gpu, .dtype = YK_I64));
    return c;
}

/* Runs step `at`, by the graph where there is one, and gives its loss. */
static float course_step(course *c, yk_graph *g, uint32_t at)
{
    float input[BATCH * SIDE * SIDE], loss = NAN;
    int64_t target[BATCH];
    for (int i = 0; i < BATCH * SIDE * SIDE; i++)
        input[i] = (float)slot_word(at, (uint64_t)i) * 0x1p-31f - 1;
    for (int i = 0; i < BATCH; i++)
        target[i] = (int64_t)(slot_word(at + 1000, (uint64_t)i) % CLASSES);
    yk_scope scope = yk_scope_begin();
    if (!yk_tensor_write(c->input, input, sizeof(input)) && !yk_tensor_write(c->target, target, sizeof(target)) &&
        !(g ? yk_graph_run(g) : one_step(c))) {
        yk_schedule_step(c->schedule);
        if (yk_tensor_read(c->loss, &loss, sizeof(loss)))
            loss = NAN;
    }
    yk_scope_end(scope);
    return loss;
}

static void record_case(const slot_case *self, slot_report *r)
{
    float losses[STEPS];
    if (!slot_ready(r))
        return;
    yk_use_deterministic_algorithms(true); /* bits are compared */
    yk_scope scope = yk_scope_begin();
    course plain = course_make(self->op, 0.3);
    for (uint32_t i = 0; i < STEPS && slot_done(r, "a step", YK_OK); i++)
        losses[i] = course_step(&plain, NULL, i);
    course replayed = course_make(self->op, 0.3);
    yk_graph *g = r->failed ? NULL : yk_graph_create(gpu, 0, one_step, &replayed);
    for (uint32_t i = 0; i < STEPS && slot_done(r, "a recorded step", YK_OK); i++, r->compared++) {
        float loss = course_step(&replayed, g, i);
        if (!(loss == losses[i]) && !yk_last_error())
            slot_fail(r, "step %u: the loss is %.9g, and %.9g as it is", i, (double)loss, (double)losses[i]);
    }
    yk_graph_info info = g ? yk_graph_get_info(g) : (yk_graph_info){0};
    if (!r->failed && (info.replays < STEPS - 10 || info.why_not))
        slot_fail(r, "%lld of %d steps were replayed: %s", (long long)info.replays, STEPS,
                  info.why_not ? info.why_not : "no reason was given");
    yk_state_dict *of[2] = {yk_module_state_dict(plain.net), yk_module_state_dict(replayed.net)};
    for (int64_t i = 0; !r->failed && i < yk_state_dict_count(of[0]); i++) {
        static unsigned char bytes[2][1 << 14];
        for (int k = 0; k < 2; k++) {
            yk_tensor *x = yk_state_dict_at(of[k], i);
            slot_done(r, "read", yk_tensor_read(x, bytes[k], (size_t)yk_numel(x) * yk_dtype_size(yk_tensor_dtype(x))));
        }
        yk_tensor *x = yk_state_dict_at(of[0], i);
        r->compared += yk_numel(x);
        if (!r->failed && memcmp(bytes[0], bytes[1], (size_t)yk_numel(x) * yk_dtype_size(yk_tensor_dtype(x))) != 0)
            slot_fail(r, "%s differs after %d steps", yk_state_dict_name(of[0], i), STEPS);
    }
    yk_tensor_release(plain.loss);
    yk_tensor_release(replayed.loss);
    yk_scope_end(scope);
}

/* ---- two logical devices ---- */
static const yk_device second = {YK_CUDA, 1};

static bool two_devices(slot_report *r)
{
    if (slot_ready(r) && yk_device_count(YK_CUDA) < 2)
        slot_fail(r, "there is one cuda device: YOKE_CUDA_DEVICES_PER_GPU=2 makes two of a GPU");
    return !r->failed;
}

static void copies_case(const slot_case *self, slot_report *r)
{
    enum { N = 10000 };
    (void)self;
    if (!two_devices(r))
        return;
    float *from = malloc(N * sizeof(float)), *to = malloc(N * sizeof(float));
    for (int round = 0; round < 5 && !r->failed; round++) {
        yk_scope scope = yk_scope_begin();
        for (int i = 0; i < N; i++)
            from[i] = (float)(round * N + i);
        yk_tensor *a = yk_to(yk_from_data(from, 1, (const int64_t[]){N}, NULL), gpu);
        yk_tensor *b = yk_mul_scalar(yk_to(yk_mul_scalar(a, 2), second), 0.5); /* each there where its operand is */
        yk_tensor *c = yk_add_scalar(yk_to(b, gpu), 1);
        if (slot_done(r, "copies", yk_tensor_read(c, to, N * sizeof(float))))
            for (int i = 0; i < N; i++, r->compared++)
                if (to[i] != from[i] + 1)
                    slot_fail(r, "element %d is %g and not %g", i, (double)to[i], (double)from[i] + 1);
        yk_scope_end(scope);
    }
    free(from);
    free(to);
}

/* DataParallel of a network without batch normalisation or dropout, which look at parts of a batch. */
static void data_parallel_case(const slot_case *self, slot_report *r)
{
    enum { ROUNDS = 5 };
    float losses[2][ROUNDS] = {{0}};
    (void)self;
    if (!two_devices(r))
        return;
    for (int devices = 1; devices <= 2; devices++) {
        yk_scope scope = yk_scope_begin();
        course c = course_make(false, 0);
        c.net = yk_sequential(yk_flatten_create(), yk_linear_create(SIDE * SIDE, 16, NULL), yk_tanh_create(),
                              yk_linear_create(16, CLASSES, NULL));
        c.model = c.net = yk_module_to(c.net, gpu);
        if (devices == 2)
            c.model = yk_data_parallel(
                c.net, YK_OPTIONS(yk_data_parallel_options, .devices = (const yk_device[]){gpu, second}, .count = 2));
        c.optimizer = yk_sgd(yk_module_parameters(c.net), YK_OPTIONS(yk_sgd_options, .lr = 0.1));
        for (uint32_t i = 0; i < ROUNDS && slot_done(r, "a step", YK_OK); i++)
            losses[devices - 1][i] = course_step(&c, NULL, i);
        slot_done(r, "a step", YK_OK);
        yk_tensor_release(c.loss);
        yk_scope_end(scope);
    }
    for (int i = 0; i < ROUNDS; i++, r->compared++)
        if (!(fabsf(losses[0][i] - losses[1][i]) <= 1e-5f * fabsf(losses[0][i])))
            slot_fail(r, "the loss of step %d is %.9g on two devices, and %.9g on one", i, (double)losses[1][i],
                      (double)losses[0][i]);
}

const slot_case *gpu_check_cases(void)
{
    enum { GRADIENTS = sizeof(gradients) / sizeof(gradients[0]) };
    static const slot_case others[] = {{"record", "sgd", record_case, 0},
                                       {"record", "adamw", record_case, 1},
                                       {"devices", "copies", copies_case, 0},
                                       {"devices", "data_parallel", data_parallel_case, 0}};
    static slot_case all[GRADIENTS + sizeof(others) / sizeof(others[0]) + 1];
    for (int i = 0; i < GRADIENTS; i++)
        all[i] = (slot_case){"gradient", gradients[i].name, gradient_case, i};
    memcpy(&all[GRADIENTS], others, sizeof(others));
    return all;
}
