/* graph_test.c - steps that are recorded once and replayed on an (emulated) GPU: the same bits as steps that run as
 * they are, whatever else uses memory and random numbers in between; what is not recorded, and why; what makes a graph
 * be recorded anew.
 */
#include "tests/emulator/use_emulator.h"
#include "tests/support/expect.h"

#include <yoke/yoke.h>

#include "host/progress.h"
#include "tensor/tensor.h"

enum { BATCH = 4, SIDE = 3, HIDDEN = 2, CLASSES = 3, PIXELS = BATCH * SIDE * SIDE, STEPS = 100, WARM_UP = 3 };

static const yk_device gpu = {YK_CUDA, 0};

/* A network with dropout in training, and all that its step needs. */
typedef struct job {
    yk_module *net;
    yk_optimizer *optimizer;
    yk_schedule *schedule;
    yk_tensor *input, *target;
    yk_tensor *loss;        /* retained: of the last run, or the recording's */
    yk_grad_scaler *scaler; /* f16 autocast and clipping by norm; NULL: f32 */
    bool asks;              /* the host waits for what the scaler finds, and for the norm */
    int skipped;            /* steps that were left out, where it asks */
    bool reads;             /* the step waits for its loss */
    bool fails;
    int calls;
} job;

static yk_status scaled_step(job *j)
{
    double norm = 0;
    bool skipped = false;
    yk_status status = yk_grad_scaler_unscale(j->scaler, j->optimizer);
    if (!status)
        status = yk_clip_grad_norm(yk_module_parameters(j->net), 0.5, j->asks ? &norm : NULL);
    if (!status)
        status = yk_clip_grad_value(yk_module_parameters(j->net), 0.2);
    if (!status)
        status = yk_grad_scaler_step(j->scaler, j->optimizer, j->asks ? &skipped : NULL);
    j->skipped += skipped;
    return status ? status : yk_grad_scaler_update(j->scaler);
}

static yk_status step(void *user)
{
    job *j = user;
    j->calls++;
    if (j->fails)
        return yk_set_error(YK_ERR_ARGUMENT, "the step fails");
    yk_optimizer_zero_grad(j->optimizer);
    yk_autocast before = yk_autocast_begin(YK_CUDA, YK_F16, YK_OPTIONS(yk_autocast_options, .enabled = j->scaler));
    yk_tensor *loss = yk_cross_entropy(yk_forward(j->net, j->input), j->target, NULL);
    yk_autocast_end(before);
    yk_status status = yk_backward(j->scaler ? yk_grad_scaler_scale(j->scaler, loss) : loss);
    if (!status)
        status = j->scaler ? scaled_step(j) : yk_optimizer_step(j->optimizer);
    if (!status && j->reads)
        (void)yk_item(loss);
    yk_tensor_release(j->loss);
    j->loss = yk_tensor_retain(loss);
    return status;
}

/* The scale begins where f16 overflows, and comes there again and again. */
static void scale(job *j)
{
    j->scaler = yk_grad_scaler_create(YK_OPTIONS(yk_grad_scaler_options, .init_scale = 0x1p24, .growth_interval = 3));
    assert_non_null(j->scaler);
}

static job make(yk_device device, bool adam)
{
    job j = {0};
    yk_manual_seed(7);
    yk_module *conv = yk_conv2d_create(1, HIDDEN, 2, NULL), *norm = yk_batch_norm2d_create(HIDDEN, NULL);
    yk_module *last = yk_linear_create(HIDDEN * (SIDE - 1) * (SIDE - 1), CLASSES, NULL);
    j.net = yk_sequential(conv, norm, yk_relu_create(), yk_flatten_create(), yk_dropout_create(0.4), last);
    j.net = yk_module_to(j.net, device);
    yk_parameters *params = yk_module_parameters(j.net);
    j.optimizer = adam ? yk_adamw(params, YK_OPTIONS(yk_adam_options, .lr = 0.05))
                       : yk_sgd(params, YK_OPTIONS(yk_sgd_options, .lr = 0.1, .momentum = 0.9, .weight_decay = 1e-3));
    j.schedule = yk_cosine_lr(j.optimizer, STEPS, 1e-3);
    j.input = yk_zeros(YK_SHAPE(BATCH, 1, SIDE, SIDE), YK_OPTIONS(yk_tensor_options, .device = device));
    j.target = yk_zeros(YK_SHAPE(BATCH), YK_OPTIONS(yk_tensor_options, .device = device, .dtype = YK_I64));
    expect_ok(YK_OK);
    return j;
}

/* The batch of step `at`, brought to where the step reads it. */
static void load(const job *j, int at)
{
    float input[PIXELS];
    int64_t target[BATCH];
    for (int i = 0; i < PIXELS; i++)
        input[i] = sinf((float)(at * PIXELS + i));
    for (int i = 0; i < BATCH; i++)
        target[i] = (at + i * i) % CLASSES;
    expect_ok(yk_tensor_write(j->input, input, sizeof(input)));
    expect_ok(yk_tensor_write(j->target, target, sizeof(target)));
}

/* One run of the step, by the graph or (NULL) as it is; gives its loss. */
static float run(job *j, yk_graph *g, int at)
{
    yk_scope scope = yk_scope_begin();
    load(j, at);
    expect_ok(g ? yk_graph_run(g) : step(j));
    yk_schedule_step(j->schedule);
    float loss = (float)yk_item(j->loss);
    expect_ok(YK_OK);
    yk_scope_end(scope);
    return loss;
}

static void expect_same_parameters(const job *a, const job *b)
{
    yk_state_dict *of[2] = {yk_module_state_dict(a->net), yk_module_state_dict(b->net)};
    for (int64_t i = 0; i < yk_state_dict_count(of[0]); i++) {
        static unsigned char bytes[2][4096];
        for (int k = 0; k < 2; k++) {
            yk_tensor *x = yk_state_dict_at(of[k], i);
            size_t size = (size_t)yk_numel(x) * yk_dtype_size(yk_tensor_dtype(x));
            assert_true(size <= sizeof(bytes[k]));
            expect_ok(yk_tensor_read(x, bytes[k], size));
            if (k && memcmp(bytes[0], bytes[1], size))
                fail_msg("%s differs", yk_state_dict_name(of[0], i));
        }
    }
}

/* Somebody else's tensors between the steps: they take whatever memory is free, and write it. */
static void disturb(void)
{
    yk_scope scope = yk_scope_begin();
    for (int64_t n = 1; n <= 1024; n *= 4) {
        for (int i = 0; i < 3; i++)
            assert_non_null(yk_full(YK_SHAPE(n), 1e30, YK_OPTIONS(yk_tensor_options, .device = gpu)));
    }
    yk_scope_end(scope);
}

/* Tensors that the program makes and holds between replays: no replay writes them. */
enum { HELD = 24 };
static void hold(yk_tensor *held[HELD])
{
    for (int i = 0; i < HELD; i++)
        held[i] = yk_full(YK_SHAPE((int64_t)16 << i % 6), 5, YK_OPTIONS(yk_tensor_options, .device = gpu));
}

static void expect_held(yk_tensor *const held[HELD])
{
    float got[16 << 5];
    for (int i = 0; i < HELD; i++) {
        expect_ok(yk_tensor_read(held[i], got, (size_t)yk_numel(held[i]) * sizeof(*got)));
        for (int64_t k = 0; k < yk_numel(held[i]); k++)
            assert_true(got[k] == 5);
    }
}

static void replays_equal_steps(bool adam)
{
    yk_tensor *others[HELD];
    yk_scope scope = yk_scope_begin();
    float losses[STEPS];
    job plain = make(gpu, adam);
    for (int i = 0; i < STEPS; i++)
        losses[i] = run(&plain, NULL, i);
    yk_random_state drawn = yk_random_get_state();
    job replayed = make(gpu, adam);
    yk_graph *g = yk_graph_create(gpu, 0, step, &replayed);
    uint64_t counted = atomic_load(&yk__progress_page()->steps);
    for (int i = 0; i < STEPS; i++) {
        float loss = run(&replayed, g, i);
        if (loss != losses[i])
            fail_msg("step %d: the loss is %.9g, and %.9g as it is", i, (double)loss, (double)losses[i]);
        if (i % 10 == 9)
            disturb();
        if (i == STEPS / 2)
            hold(others);
    }
    expect_held(others);
    yk_graph_info info = yk_graph_get_info(g);
    assert_int_equal(info.calls, STEPS);
    assert_int_equal(info.replays, STEPS - WARM_UP);
    assert_null(info.why_not);
    assert_int_equal(replayed.calls, WARM_UP + 1);
    assert_int_equal(atomic_load(&yk__progress_page()->steps) - counted, STEPS); /* the recording is none */
    expect_same_parameters(&plain, &replayed);
    assert_true(yk_random_get_state().calls == drawn.calls);
    yk_tensor *first = yk_parameters_at(yk_module_parameters(replayed.net), 0);
    assert_int_equal(yk_optimizer_state_step(replayed.optimizer, first), STEPS);
    /* A result of the graph is good for as long as it is held, and the graph's memory is the device's again. */
    float last = (float)yk_item(replayed.loss);
    yk_tensor_release(plain.loss);
    yk_scope_end(scope);
    disturb();
    assert_true((float)yk_item(replayed.loss) == last);
    yk_tensor_release(replayed.loss);
    assert_null(yk__memory_check(gpu));
    yk_memory_info held;
    expect_ok(yk_device_memory(gpu, &held));
    assert_int_equal(held.allocated, 0);
    yk_device_empty_cache(gpu);
    expect_ok(yk_device_memory(gpu, &held));
    assert_int_equal(held.reserved, 0);
}

static void test_sgd(void **state)
{
    (void)state;
    replays_equal_steps(false);
}

static void test_adam(void **state)
{
    (void)state;
    replays_equal_steps(true);
}

/* f16, a scaler that leaves steps out, clipping, dropout and a schedule: 100 replayed steps, 100 that run as they are
 * and 100 in which the host asks what was found have the same bits. */
static void scaled_replays_equal_steps(bool adam, int count)
{
    yk_scope scope = yk_scope_begin();
    float losses[STEPS];
    job asking = make(gpu, adam);
    scale(&asking);
    asking.asks = true;
    for (int i = 0; i < count; i++)
        losses[i] = run(&asking, NULL, i);
    job plain = make(gpu, adam);
    scale(&plain);
    for (int i = 0; i < count; i++)
        assert_true(run(&plain, NULL, i) == losses[i]);
    job replayed = make(gpu, adam);
    scale(&replayed);
    yk_graph *g = yk_graph_create(gpu, 0, step, &replayed);
    for (int i = 0; i < count; i++) {
        float loss = run(&replayed, g, i);
        if (loss != losses[i])
            fail_msg("step %d: the loss is %.9g, and %.9g as it is", i, (double)loss, (double)losses[i]);
        if (i % 25 == 24)
            disturb();
        if (i % 20 == 19) { /* a question in between changes nothing */
            assert_true(yk_grad_scaler_get_state(replayed.scaler).scale > 0);
            yk_tensor *any = yk_parameters_at(yk_module_parameters(replayed.net), 1);
            assert_true(yk_optimizer_state_step(replayed.optimizer, any) <= i + 1);
        }
    }
    assert_int_equal(yk_graph_get_info(g).replays, count - WARM_UP);
    assert_null(yk_graph_get_info(g).why_not);
    assert_in_range(asking.skipped, count / 10, count / 2);
    job *others[] = {&plain, &replayed};
    yk_grad_scaler_state state = yk_grad_scaler_get_state(asking.scaler);
    for (int k = 0; k < 2; k++) {
        expect_same_parameters(&asking, others[k]);
        yk_grad_scaler_state other = yk_grad_scaler_get_state(others[k]->scaler);
        assert_true(other.scale == state.scale && other.growth_tracker == state.growth_tracker);
        for (int64_t p = 0; p < yk_parameters_count(yk_module_parameters(plain.net)); p++) {
            yk_tensor *x = yk_parameters_at(yk_module_parameters(others[k]->net), p);
            assert_int_equal(yk_optimizer_state_step(others[k]->optimizer, x), count - asking.skipped);
        }
    }
    yk_tensor_release(asking.loss);
    yk_tensor_release(plain.loss);
    yk_tensor_release(replayed.loss);
    yk_scope_end(scope);
    assert_null(yk__memory_check(gpu));
}

static void test_scaled_sgd(void **state)
{
    (void)state;
    scaled_replays_equal_steps(false, STEPS / 4);
}

static void test_scaled_adam(void **state)
{
    (void)state;
    scaled_replays_equal_steps(true, STEPS);
}

/* A recording that fails between the scaler's step and its update: the step runs as it is, once. */
static void test_scaled_fails_in_recording(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    job plain = make(gpu, true), j = make(gpu, true);
    scale(&plain);
    scale(&j);
    yk_graph *g = yk_graph_create(gpu, 2, step, &j);
    for (int k = 0; k < 2; k++) {
        job *of = k ? &j : &plain;
        yk_manual_seed(11);
        for (int i = 0; i < 5; i++) {
            of->asks = i >= 2;
            run(of, k ? g : NULL, i);
        }
    }
    assert_int_equal(yk_graph_get_info(g).replays, 0);
    assert_true(expect_says(yk_graph_get_info(g).why_not, "the host reads what the device computed"));
    assert_int_equal(j.calls, 6);
    expect_same_parameters(&plain, &j);
    yk_tensor_release(plain.loss);
    yk_tensor_release(j.loss);
    yk_scope_end(scope);
}

/* Steps that are left out by a number of the program's own, of parameters that do not all have a gradient in each. */
static void test_step_unless(void **state)
{
    (void)state;
    enum { COUNT = 3, ROUNDS = 8 };
    static const int skip[ROUNDS] = {0, 1, 0, 1, 1, 0, 0, 1}, has[ROUNDS] = {7, 7, 5, 7, 6, 7, 3, 7};
    for (int variant = 0; variant < 4; variant++) {
        const yk_device device = variant & 2 ? gpu : (yk_device){YK_CPU, 0};
        yk_scope scope = yk_scope_begin();
        float last[2][COUNT];
        int64_t steps[2][COUNT];
        for (int queued = 0; queued < 2; queued++) {
            yk_parameters *params = yk_parameters_create();
            yk_tensor *x[COUNT],
                *found = yk_zeros(0, NULL, YK_OPTIONS(yk_tensor_options, .device = device, .dtype = YK_I32));
            for (int p = 0; p < COUNT; p++) {
                char name[16];
                snprintf(name, sizeof(name), "p%d", p);
                x[p] =
                    yk_full(YK_SHAPE(1), p + 1, YK_OPTIONS(yk_tensor_options, .device = device, .requires_grad = true));
                expect_ok(yk_parameters_add(params, name, x[p]));
            }
            yk_optimizer *o = variant & 1 ? yk_adamw(params, YK_OPTIONS(yk_adam_options, .lr = 0.1))
                                          : yk_sgd(params, YK_OPTIONS(yk_sgd_options, .lr = 0.1, .momentum = 0.5));
            for (int r = 0; r < ROUNDS; r++) {
                for (int p = 0; p < COUNT; p++)
                    expect_ok(yk_set_grad(x[p], has[r] & 1 << p ? yk_full_like(x[p], r + p - 3) : NULL));
                if (queued)
                    expect_ok(yk_optimizer_step_unless(o, yk_fill_(found, skip[r])));
                else if (!skip[r])
                    expect_ok(yk_optimizer_step(o));
            }
            for (int p = 0; p < COUNT; p++) {
                steps[queued][p] = yk_optimizer_state_step(o, x[p]);
                last[queued][p] = (float)yk_item(x[p]);
            }
        }
        for (int p = 0; p < COUNT; p++) {
            assert_int_equal(steps[1][p], steps[0][p]);
            assert_true(last[1][p] == last[0][p]);
        }
        assert_int_equal(steps[0][0], 4);
        yk_scope_end(scope);
    }
}

/* A parameter that has no gradient any more is none of the steps that are left out later; and without it the host waits
 * for nothing, so that such steps can be recorded. */
typedef struct two_parameters {
    yk_optimizer *optimizer;
    yk_tensor *x[2], *found;
} two_parameters;

static yk_status step_of_one(void *user)
{
    two_parameters *p = user;
    yk_status status = yk_set_grad(p->x[0], yk_ones_like(p->x[0]));
    return status ? status : yk_optimizer_step_unless(p->optimizer, p->found);
}

static void test_step_unless_frozen(void **state)
{
    (void)state;
    for (int recorded = 0; recorded < 2; recorded++) {
        yk_scope scope = yk_scope_begin();
        two_parameters p = {.found = yk_zeros(0, NULL, YK_OPTIONS(yk_tensor_options, .device = gpu, .dtype = YK_I32))};
        yk_parameters *params = yk_parameters_create();
        for (int i = 0; i < 2; i++) {
            p.x[i] = yk_ones(YK_SHAPE(2), YK_OPTIONS(yk_tensor_options, .device = gpu, .requires_grad = true));
            expect_ok(yk_parameters_add(params, i ? "frozen" : "trained", p.x[i]));
            expect_ok(yk_set_grad(p.x[i], yk_ones_like(p.x[i])));
        }
        p.optimizer = yk_adam(params, YK_OPTIONS(yk_adam_options, .lr = 0.1));
        yk_graph *g = yk_graph_create(gpu, 2, step_of_one, &p);
        expect_ok(yk_optimizer_step_unless(p.optimizer, p.found));
        expect_ok(yk_set_grad(p.x[1], NULL));
        for (int i = 0; i < 8; i++) {
            yk_fill_(p.found, i % 2 == 0);
            expect_ok(recorded ? yk_graph_run(g) : step_of_one(&p));
        }
        if (recorded && yk_graph_get_info(g).why_not)
            fail_msg("it was not recorded: %s", yk_graph_get_info(g).why_not);
        assert_int_equal(yk_optimizer_state_step(p.optimizer, p.x[0]), 5);
        assert_int_equal(yk_optimizer_state_step(p.optimizer, p.x[1]), 1);
        /* All take part again, then the one alone by the recording: what came before stays as it was. */
        for (int i = 0; i < 4; i++) {
            yk_fill_(p.found, i == 2);
            expect_ok(yk_set_grad(p.x[1], i % 2 ? NULL : yk_ones_like(p.x[1])));
            if (i % 2)
                expect_ok(recorded ? yk_graph_run(g) : step_of_one(&p));
            else
                expect_ok(yk_optimizer_step_unless(p.optimizer, p.found));
        }
        assert_int_equal(yk_optimizer_state_step(p.optimizer, p.x[0]), 8);
        assert_int_equal(yk_optimizer_state_step(p.optimizer, p.x[1]), 2);
        yk_scope_end(scope);
        assert_null(yk__memory_check(gpu));
    }
}

/* The first step is left out: there is no state yet; and what is loaded after steps that were left out stands. */
static void test_step_unless_state(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    job j = make(gpu, false);
    yk_tensor *x = yk_parameters_at(yk_module_parameters(j.net), 0);
    yk_tensor *found = yk_full(0, NULL, 1, YK_OPTIONS(yk_tensor_options, .device = gpu, .dtype = YK_I32));
    load(&j, 0);
    expect_ok(yk_backward(yk_cross_entropy(yk_forward(j.net, j.input), j.target, NULL)));
    expect_ok(yk_optimizer_step_unless(j.optimizer, found));
    assert_null(yk_optimizer_state(j.optimizer, x, "momentum_buffer"));
    assert_int_equal(yk_state_dict_find(yk_optimizer_state_dict(j.optimizer), "state.0.weight.step"), -1);
    yk_fill_(found, 0);
    expect_ok(yk_optimizer_step_unless(j.optimizer, found));
    yk_state_dict *saved = yk_optimizer_state_dict(j.optimizer);
    assert_int_equal(yk_item_i64(yk_state_dict_get(saved, "state.0.weight.step")), 1);
    yk_fill_(found, 1);
    expect_ok(yk_optimizer_step_unless(j.optimizer, found));
    expect_ok(yk_optimizer_load_state_dict(j.optimizer, saved));
    expect_ok(yk_optimizer_step(j.optimizer));
    assert_int_equal(yk_optimizer_state_step(j.optimizer, x), 2);
    assert_non_null(yk_optimizer_state(j.optimizer, x, "momentum_buffer"));
    const yk_tensor_options on_cpu = *YK_OPTIONS(yk_tensor_options, .dtype = YK_I32);
    assert_int_equal(yk_optimizer_step_unless(j.optimizer, yk_zeros(0, NULL, &on_cpu)), YK_ERR_DEVICE);
    expect_error(YK_ERR_DEVICE, "the tensor is on cpu:0, but parameter 0.weight is on cuda:0");
    assert_int_equal(yk_optimizer_step_unless(j.optimizer, j.input), YK_ERR_DTYPE);
    expect_error(YK_ERR_DTYPE, "float32 of shape (4, 1, 3, 3), expected one int32");
    yk_scope_end(scope);
}

/* Clipping on a GPU gives what it gives on the CPU, for gradients of several dtypes, and not a bit changes below the
 * limit; with and without a question for the norm. */
static void test_clip(void **state)
{
    (void)state;
    enum { COUNT = 4, N = 5 };
    static const yk_dtype mixed[COUNT] = {YK_F32, YK_F64, YK_BF16, YK_F32}, f32[COUNT] = {0};
    static const double limits[] = {0, 0.3, 1e3};
    for (int variant = 0; variant < 24; variant++) {
        const yk_dtype *dtypes = variant < 12 ? mixed : f32;
        yk_scope scope = yk_scope_begin();
        double got[2][COUNT][N], norm[2] = {0};
        double limit = limits[variant % 3], bad = variant % 12 >= 9 ? NAN : 0;
        bool asks = variant & 1;
        for (int d = 0; d < 2; d++) {
            const yk_device device = d ? gpu : (yk_device){YK_CPU, 0};
            yk_parameters *params = yk_parameters_create();
            for (int p = 0; p < COUNT; p++) {
                char name[16];
                double values[N];
                for (int i = 0; i < N; i++)
                    values[i] = sin(p * N + i + 1) + (p == 1 && i == 2 ? bad : 0);
                snprintf(name, sizeof(name), "p%d", p);
                yk_tensor *grad = yk_cast(
                    yk_from_data(values, YK_SHAPE(N), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64)), dtypes[p]);
                yk_tensor *x = yk_zeros(YK_SHAPE(N), YK_OPTIONS(yk_tensor_options, .dtype = dtypes[p], .device = device,
                                                                .requires_grad = true));
                expect_ok(yk_set_grad(x, yk_to(grad, device)));
                expect_ok(yk_parameters_add(params, name, x));
            }
            expect_ok(yk_clip_grad_norm(params, limit, asks ? &norm[d] : NULL));
            for (int p = 0; p < COUNT; p++)
                expect_ok(yk_tensor_read(yk_cast(yk_grad(yk_parameters_at(params, p)), YK_F64), got[d][p],
                                         sizeof(got[d][p])));
        }
        expect_near(norm[1], norm[0], 1e-6, 0);
        assert_true(!asks || bad != 0 || norm[0] > 1);
        for (int p = 0; p < COUNT; p++) {
            for (int i = 0; i < N; i++)
                expect_near(got[1][p][i], got[0][p][i], limit == 1e3 ? 0 : dtypes[p] == YK_BF16 ? 1e-2 : 1e-6, 0);
        }
        yk_scope_end(scope);
    }
}

/* A function that waits for the device runs as it is, as long as it does. */
static void test_not_recorded(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    job j = make(gpu, false);
    yk_graph *g = yk_graph_create(gpu, 2, step, &j);
    j.reads = true;
    for (int i = 0; i < 5; i++)
        run(&j, g, i);
    yk_graph_info info = yk_graph_get_info(g);
    assert_int_equal(info.replays, 0);
    assert_int_equal(j.calls, 5);
    assert_non_null(info.why_not);
    assert_true(expect_says(info.why_not, "cuda:0: item: the host reads what the device computed"));
    j.reads = false;
    for (int i = 0; i < 5; i++)
        run(&j, g, i);
    assert_int_equal(yk_graph_get_info(g).replays, 3);
    assert_int_equal(j.calls, 8);
    yk_tensor_release(j.loss);
    yk_scope_end(scope);
}

/* A function that waits for the device for the first time while it is recorded: the call runs it as it is, and it stays
 * so. */
static void test_fails_in_recording(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    job plain = make(gpu, true);
    for (int i = 0; i < 5; i++)
        run(&plain, NULL, i);
    job j = make(gpu, true);
    yk_graph *g = yk_graph_create(gpu, 2, step, &j);
    for (int i = 0; i < 5; i++) {
        j.reads = i >= 2;
        run(&j, g, i);
    }
    yk_graph_info info = yk_graph_get_info(g);
    assert_int_equal(info.replays, 0);
    assert_true(expect_says(info.why_not, "the host reads what the device computed"));
    assert_int_equal(j.calls, 6);
    expect_same_parameters(&plain, &j);
    yk_tensor_release(plain.loss);
    yk_tensor_release(j.loss);
    yk_scope_end(scope);
    assert_null(yk__memory_check(gpu));
}

/* The function no longer does what was recorded. */
static void test_recorded_anew(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    job plain = make(gpu, false), j = make(gpu, false);
    yk_graph *g = yk_graph_create(gpu, 1, step, &j);
    yk_state_dict *saved = NULL;
    for (int i = 0; i < 9; i++) {
        for (int k = 0; k < 2; k++) {
            job *of = k ? &j : &plain;
            if (i == 4)
                expect_ok(yk_optimizer_load_state_dict(of->optimizer, saved)); /* with another momentum */
            yk_random_set_state((yk_random_state){i < 7 ? 3 : 4, (uint32_t)i});
            run(of, k ? g : NULL, i);
        }
        if (i == 3) {
            saved = yk_optimizer_state_dict(plain.optimizer);
            yk_tensor *momentum = yk_state_dict_get(saved, "param_groups.0.momentum");
            assert_non_null(momentum);
            assert_non_null(yk_fill_(momentum, 0.5));
        }
        expect_same_parameters(&plain, &j);
    }
    /* Recorded at steps 1, 5 and 8; 4 and 7 found it stale. */
    assert_int_equal(yk_graph_get_info(g).replays, 9 - 3);
    assert_int_equal(j.calls, 6);
    yk_tensor_release(plain.loss);
    yk_tensor_release(j.loss);
    yk_scope_end(scope);
}

/* A part that is frozen, and trained again later, also where that falls on the call that would record. */
static void test_frozen(void **state)
{
    (void)state;
    for (int scaled = 0; scaled < 2; scaled++) {
        yk_scope scope = yk_scope_begin();
        job jobs[2] = {make(gpu, true), make(gpu, true)}; /* as it is, and by the graph */
        yk_graph *g = yk_graph_create(gpu, 1, step, &jobs[1]);
        for (int k = 0; k < 2 && scaled; k++)
            scale(&jobs[k]);
        for (int i = 0; i < 12; i++) {
            for (int k = 0; k < 2; k++) {
                if (i == 1 || i == 4 || i == 8)
                    expect_ok(yk_module_requires_grad(yk_module_get_module(jobs[k].net, "0"), i == 4));
                yk_random_set_state((yk_random_state){3, (uint32_t)i});
                run(&jobs[k], k ? g : NULL, i);
            }
            expect_same_parameters(&jobs[0], &jobs[1]);
        }
        /* Recorded at steps 2, 5 and 9; where steps may have been left out, freezing asks the device how many were, so
         * at 3, 5 and 10. */
        if (yk_graph_get_info(g).why_not)
            fail_msg("it was not recorded: %s", yk_graph_get_info(g).why_not);
        assert_int_equal(yk_graph_get_info(g).replays, scaled ? 12 - 6 : 12 - 4);
        for (int k = 0; k < 2; k++)
            yk_tensor_release(jobs[k].loss);
        yk_scope_end(scope);
    }
}

/* On a CPU it is the function; errors are the function's. */
static void test_cpu_and_errors(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    const yk_device cpu = {YK_CPU, 0};
    job j = make(cpu, false);
    yk_graph *g = yk_graph_create(cpu, 1, step, &j);
    for (int i = 0; i < 4; i++)
        run(&j, g, i);
    assert_int_equal(j.calls, 4);
    assert_int_equal(yk_graph_get_info(g).replays, 0);
    assert_true(expect_says(yk_graph_get_info(g).why_not, "cpu:0"));
    j.fails = true;
    assert_int_equal(yk_graph_run(g), YK_ERR_ARGUMENT);
    assert_true(expect_says(yk_last_error()->message, "the step fails"));
    yk_clear_error();
    yk_tensor_release(j.loss);
    assert_null(yk_graph_create(cpu, 0, NULL, NULL));
    yk_clear_error();
    assert_null(yk_graph_create(cpu, -1, step, &j));
    yk_clear_error();
    yk_graph *kept = yk_graph_retain(g);
    yk_scope_end(scope);
    assert_int_equal(yk_graph_get_info(kept).calls, 5);
    yk_graph_release(kept);
}

/* A function whose first calls fail; it is recorded when enough have not. */
static yk_status fails_at_first(void *user)
{
    int *calls = user;
    yk_tensor *a = yk_ones(YK_SHAPE(2, 3), YK_OPTIONS(yk_tensor_options, .device = gpu));
    return (*calls)++ < 3 && !yk_matmul(a, a) ? yk_last_error()->code : yk_sum(a) ? YK_OK : yk_last_error()->code;
}

static void test_a_function_that_fails(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    int calls = 0;
    yk_graph *g = yk_graph_create(gpu, 2, fails_at_first, &calls);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(yk_graph_run(g), YK_ERR_SHAPE);
        expect_error(YK_ERR_SHAPE, "matmul: shapes (2, 3) and (2, 3)");
        assert_true(expect_says(yk_graph_get_info(g).why_not, "the function failed: matmul: shapes (2, 3) and (2, 3)"));
    }
    for (int i = 0; i < 3; i++)
        expect_ok(yk_graph_run(g));
    assert_null(yk_graph_get_info(g).why_not);
    assert_int_equal(yk_graph_get_info(g).replays, 1);
    assert_int_equal(calls, 6);
    yk_scope_end(scope);
}

/* A chain of tensors, each of WIDE elements; one of them is said to be used by another queue, too. */
enum { WIDE = 3 << 16, CHAIN = 6 };
typedef struct chain {
    yk_tensor *x, *sum;
    bool used;
} chain;

static yk_status run_chain(void *user)
{
    chain *c = user;
    yk_tensor *all[CHAIN];
    for (int i = 0; i < CHAIN; i++) {
        all[i] = yk_add_scalar(i ? all[i - 1] : c->x, 1);
        if (all[i] && c->used && i == 1)
            yk__storage_used_on(all[i]->storage, YK__QUEUE_COPY);
    }
    return yk_copy_(c->sum, all[CHAIN - 1]) ? YK_OK : yk_last_error()->code;
}

static chain make_chain(bool used)
{
    const yk_tensor_options there = *YK_OPTIONS(yk_tensor_options, .device = gpu);
    return (chain){.x = yk_full(YK_SHAPE(WIDE), 1, &there), .sum = yk_zeros(YK_SHAPE(WIDE), &there), .used = used};
}

/* A recording takes the memory that the calls before it left: where there is none for a second time, too. */
static void test_memory_of_a_recording(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    chain c = make_chain(false);
    yk_graph *g = yk_graph_create(gpu, 2, run_chain, &c);
    yk_memory_info before, after;
    for (int i = 0; i < 2; i++)
        expect_ok(yk_graph_run(g));
    expect_ok(yk_device_memory(gpu, &before));
    expect_ok(yk_device_set_memory_limit(gpu, before.reserved + WIDE * sizeof(float)));
    for (int i = 0; i < 3; i++)
        expect_ok(yk_graph_run(g));
    expect_ok(yk_device_set_memory_limit(gpu, 0));
    yk_graph_info info = yk_graph_get_info(g);
    if (info.why_not)
        fail_msg("it was not recorded: %s", info.why_not);
    assert_int_equal(info.replays, 3);
    expect_ok(yk_device_memory(gpu, &after));
    assert_int_equal(after.reserved, before.reserved);
    assert_true(yk_item(yk_min(c.sum)) == 1 + CHAIN);
    yk_scope_end(scope);
    assert_null(yk__memory_check(gpu));
}

/* Memory of a recording that another queue used stays the recording's: what somebody else makes of that size when the
 * queue is done is not written by replays. */
static void test_memory_used_elsewhere(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    chain c = make_chain(true);
    yk_graph *g = yk_graph_create(gpu, 1, run_chain, &c);
    yk_tensor *others[2 * CHAIN];
    for (int i = 0; i < 2; i++)
        expect_ok(yk_graph_run(g));
    assert_null(yk_graph_get_info(g).why_not);
    expect_ok(yk_device_synchronize(gpu));
    for (int i = 0; i < 2 * CHAIN; i++)
        assert_non_null(others[i] = yk_full(YK_SHAPE(WIDE), -5, YK_OPTIONS(yk_tensor_options, .device = gpu)));
    expect_ok(yk_graph_run(g));
    for (int i = 0; i < 2 * CHAIN; i++)
        assert_true(yk_item(yk_max(others[i])) == -5);
    assert_true(yk_item(yk_max(c.sum)) == 1 + CHAIN);
    assert_null(yk__memory_check(gpu));
    yk_scope_end(scope);
    assert_null(yk__memory_check(gpu));
    /* The memory is the device's when the recording is released. */
    yk_device_empty_cache(gpu);
    yk_memory_info held;
    expect_ok(yk_device_memory(gpu, &held));
    assert_int_equal(held.reserved, held.allocated);
}

/* Each reason names the operation that the program called, and what to do in its place. */
static const yk_tensor_options *const on_gpu = YK_OPTIONS(yk_tensor_options, .device = {YK_CUDA, 0});
static const yk_tensor_options *const on_other = YK_OPTIONS(yk_tensor_options, .device = {YK_CUDA, 1});
static yk_parameters *clipped;

static yk_status calls_item(void *x)
{
    (void)yk_item(yk_sum(x));
    return YK_OK;
}

static yk_status calls_read(void *x)
{
    float got[6];
    return yk_tensor_read(x, got, sizeof(got));
}

static yk_status calls_write(void *x)
{
    static const float values[6];
    return yk_tensor_write(x, values, sizeof(values));
}

static yk_status calls_from_data(void *x)
{
    static const float values[6];
    return yk_add_(x, yk_from_data(values, YK_SHAPE(2, 3), on_gpu), 1) ? YK_OK : yk_last_error()->code;
}

static yk_status calls_arange(void *x)
{
    return yk_add_(x, yk_arange(0, 3, 1, on_gpu), 1) ? YK_OK : yk_last_error()->code;
}

static yk_status calls_to(void *x)
{
    return yk_to(x, (yk_device){YK_CPU, 0}) ? YK_OK : yk_last_error()->code;
}

static yk_status calls_copy(void *x)
{
    return yk_copy_(x, yk_zeros(YK_SHAPE(2, 3), NULL)) ? YK_OK : yk_last_error()->code;
}

static yk_status calls_copy_peer(void *x)
{
    return yk_copy_(x, yk_parameters_at(clipped, 1)) ? YK_OK : yk_last_error()->code;
}

static yk_status calls_other(void *x)
{
    (void)x;
    return yk_ones(YK_SHAPE(3), on_other) ? YK_OK : yk_last_error()->code;
}

static yk_status calls_synchronize(void *x)
{
    yk_relu(x);
    return yk_device_synchronize(gpu);
}

static yk_status calls_select(void *x)
{
    return yk_masked_select(x, yk_eq(x, x)) ? YK_OK : yk_last_error()->code;
}

static yk_status calls_multinomial(void *x)
{
    return yk_multinomial(yk_add_scalar(yk_square(x), 1), 1, true) ? YK_OK : yk_last_error()->code;
}

static yk_status calls_clip(void *x)
{
    double norm;
    (void)x;
    return yk_clip_grad_norm(clipped, 1, &norm);
}

static yk_status calls_median(void *x)
{
    yk_tensor *leaf = yk_add_scalar(x, 0);
    return yk_set_requires_grad(leaf, true) ? yk_last_error()->code : yk_backward(yk_median(leaf));
}

/* The losses of all rows, with weights of the program's own, are recorded: the classes are counted on the device. */
static yk_status loss_of_rows(void *user)
{
    job *j = user;
    yk_optimizer_zero_grad(j->optimizer);
    const yk_cross_entropy_options rows =
        *YK_OPTIONS(yk_cross_entropy_options, .reduction = YK_REDUCE_NONE, .label_smoothing = 0.1);
    yk_tensor *loss = yk_mean(yk_square(yk_cross_entropy(yk_forward(j->net, j->input), j->target, &rows)));
    yk_status status = yk_backward(loss);
    if (!status)
        status = yk_optimizer_step(j->optimizer);
    yk_tensor_release(j->loss);
    j->loss = yk_tensor_retain(loss);
    return status;
}

static void test_loss_of_rows(void **state)
{
    (void)state;
    enum { RUNS = 6 };
    yk_scope scope = yk_scope_begin();
    float losses[2][RUNS];
    for (int recorded = 0; recorded < 2; recorded++) {
        job j = make(gpu, false);
        yk_graph *g = yk_graph_create(gpu, 2, loss_of_rows, &j);
        for (int i = 0; i < RUNS; i++) {
            load(&j, i);
            expect_ok(recorded ? yk_graph_run(g) : loss_of_rows(&j));
            losses[recorded][i] = (float)yk_item(j.loss);
        }
        if (recorded && yk_graph_get_info(g).why_not)
            fail_msg("it was not recorded: %s", yk_graph_get_info(g).why_not);
        yk_tensor_release(j.loss);
    }
    assert_memory_equal(losses[0], losses[1], sizeof(losses[0]));
    yk_scope_end(scope);
    assert_null(yk__memory_check(gpu));
}

/* Positions that operations compare are counted on the device, too: triangles, and causal attention with dropout. */
typedef struct masked {
    yk_tensor *x, *whole, *attended;
} masked;

static yk_status mask_by_position(void *user)
{
    masked *m = user;
    const yk_attention_options causal = *YK_OPTIONS(yk_attention_options, .is_causal = true, .dropout_p = 0.5);
    yk_tensor *whole = yk_add(yk_tril(m->x, 0), yk_triu(m->x, 1));
    yk_tensor *attended = yk_scaled_dot_product_attention(m->x, m->x, m->x, &causal);
    return yk_copy_(m->whole, whole) && yk_copy_(m->attended, attended) ? YK_OK : yk_last_error()->code;
}

static void test_positions(void **state)
{
    (void)state;
    enum { SIZE = 5 };
    yk_scope scope = yk_scope_begin();
    masked m = {.whole = yk_zeros(YK_SHAPE(SIZE, SIZE), on_gpu), .attended = yk_zeros(YK_SHAPE(SIZE, SIZE), on_gpu)};
    m.x = yk_ones(YK_SHAPE(SIZE, SIZE), on_gpu);
    yk_graph *g = yk_graph_create(gpu, 2, mask_by_position, &m);
    float whole[SIZE * SIZE], attended[SIZE * SIZE];
    for (int run = 1; run < 8; run++) {
        assert_non_null(yk_fill_(m.x, run));
        expect_ok(yk_graph_run(g));
        expect_ok(yk_tensor_read(m.whole, whole, sizeof(whole)));
        expect_ok(yk_tensor_read(m.attended, attended, sizeof(attended)));
        for (int i = 0; i < SIZE * SIZE; i++)
            assert_true(whole[i] == (float)run);
        /* The first query has one key, whose weight is dropped or doubled. */
        assert_true(attended[0] == 0 || attended[0] == 2 * (float)run);
    }
    if (yk_graph_get_info(g).why_not)
        fail_msg("it was not recorded: %s", yk_graph_get_info(g).why_not);
    yk_scope_end(scope);
}

static void test_reasons(void **state)
{
    (void)state;
    static const struct {
        yk_status (*fn)(void *x);
        const char *why;
    } cases[] = {
        {calls_item, "cuda:0: item: the host reads what the device computed, which a recording cannot repeat; keep the "
                     "tensor, and read it after yk_graph_run"},
        {calls_read, "cuda:0: tensor_read: the host reads what the device computed"},
        {calls_write, "cuda:0: tensor_write: values are brought from the host, which a recording cannot repeat; bring "
                      "them before yk_graph_run, by yk_copy_ to a tensor that stays"},
        {calls_from_data, "cuda:0: from_data: values are brought from the host"},
        {calls_arange, "cuda:0: arange: values are brought from the host"},
        {calls_to, "cuda:0: to: the host reads what the device computed"},
        {calls_copy, "cuda:0: copy_: values are brought from the host"},
        {calls_copy_peer, "cuda:0: copy_: values come from another device"},
        {calls_other, "cuda:1: ones: it is work on another device than the graph's, cuda:0, which a recording cannot "
                      "repeat; keep it out of the function"},
        {calls_synchronize, "cuda:0: device_synchronize: the program waits for the device"},
        {calls_select, "cuda:0: masked_select: the host waits for the size of the result, which a recording cannot "
                       "repeat; take a form of fixed size, as yk_where or yk_masked_fill"},
        {calls_multinomial, "cuda:0: multinomial: the host reads what the device computed"},
        {calls_clip, "cuda:0: clip_grad_norm: the host reads what the device computed"},
        {calls_median, "cuda:0: backward of median: the host reads what the device computed"},
    };
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_ones(YK_SHAPE(2, 3), on_gpu);
    yk_tensor *parameter = yk_ones(YK_SHAPE(2, 3), YK_OPTIONS(yk_tensor_options, .device = gpu, .requires_grad = true));
    clipped = yk_parameters_create();
    expect_ok(yk_parameters_add(clipped, "a", parameter));
    expect_ok(yk_parameters_add(clipped, "b", yk_ones(YK_SHAPE(2, 3), on_other)));
    expect_ok(yk_backward(yk_sum(parameter)));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        yk_graph *g = yk_graph_create(gpu, 1, cases[i].fn, x);
        for (int k = 0; k < 3; k++) {
            expect_ok(yk_graph_run(g));
            const char *why = yk_graph_get_info(g).why_not;
            if (!why || strncmp(why, cases[i].why, strlen(cases[i].why)) != 0)
                fail_msg("case %zu, call %d: \"%s\", expected \"%s\"", i, k, why ? why : "recorded", cases[i].why);
        }
        assert_int_equal(yk_graph_get_info(g).replays, 0);
    }
    yk_scope_end(scope);
}

int main(void)
{
    setenv("YOKE_EMULATOR_GPUS", "2", 1);
    if (!use_emulator())
        return 0;
    yk_use_deterministic_algorithms(true); /* bits are compared */
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scaled_sgd),
                                       cmocka_unit_test(test_clip),
                                       cmocka_unit_test(test_scaled_adam),
                                       cmocka_unit_test(test_scaled_fails_in_recording),
                                       cmocka_unit_test(test_step_unless),
                                       cmocka_unit_test(test_step_unless_frozen),
                                       cmocka_unit_test(test_step_unless_state),
                                       cmocka_unit_test(test_sgd),
                                       cmocka_unit_test(test_adam),
                                       cmocka_unit_test(test_not_recorded),
                                       cmocka_unit_test(test_fails_in_recording),
                                       cmocka_unit_test(test_reasons),
                                       cmocka_unit_test(test_loss_of_rows),
                                       cmocka_unit_test(test_positions),
                                       cmocka_unit_test(test_recorded_anew),
                                       cmocka_unit_test(test_frozen),
                                       cmocka_unit_test(test_memory_of_a_recording),
                                       cmocka_unit_test(test_memory_used_elsewhere),
                                       cmocka_unit_test(test_cpu_and_errors),
                                       cmocka_unit_test(test_a_function_that_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
