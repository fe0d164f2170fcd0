/* convolution_test.c - the choice among cuDNN's engines, as the stand-in's show: one whose sums have another order each
 * time only where nobody asked for the same bits, one that rounds to TF32 only where that is allowed, one with tensor
 * cores before one without, the fastest where it is asked for, one whose ReLU keeps NaN, and no engine that failed that
 * again. */
#include <dlfcn.h>

#include "tests/emulator/use_emulator.h"
#include "tests/support/expect.h"
#include "tests/support/slot_pairs.h"

#include <yoke/yoke.h>

/* ALL_SWALLOW: output channels for which every engine of the stand-in but its slow reference makes 0 of NaN. */
enum { ALL_SWALLOW = 37 };
enum { N = 7, C = 3, O = 4, SIDE = 5, K = 3, WEIGHTS = O * C * K * K, RUNS = 12 };

static const yk_device gpu = {YK_CUDA, 0};

static yk_tensor *numbers(const int64_t shape[4], yk_device device, int seed)
{
    static float values[N * O * SIDE * SIDE + N * C * SIDE * SIDE];
    int64_t count = shape[0] * shape[1] * shape[2] * shape[3];
    for (int64_t i = 0; i < count; i++)
        values[i] = sinf((float)(i * 7 + seed));
    yk_tensor *t = yk_from_data(values, 4, shape, YK_OPTIONS(yk_tensor_options, .device = device));
    expect_ok(YK_OK);
    return t;
}

/* The gradient of a weight, and the result. */
static void compute(yk_device device, float gradient[WEIGHTS], float out[N * O * SIDE * SIDE])
{
    yk_scope scope = yk_scope_begin();
    static const int64_t x_shape[] = {N, C, SIDE, SIDE}, w_shape[] = {O, C, K, K}, y_shape[] = {N, O, SIDE, SIDE};
    yk_tensor *x = numbers(x_shape, device, 1), *w = numbers(w_shape, device, 2), *scale = numbers(y_shape, device, 3);
    expect_ok(yk_set_requires_grad(w, true));
    yk_tensor *y = yk_conv2d(x, w, NULL, YK_OPTIONS(yk_conv2d_options, .padding = {1, 1}));
    expect_ok(yk_backward(yk_sum(yk_mul(y, scale))));
    expect_ok(yk_tensor_read(yk_grad(w), gradient, WEIGHTS * sizeof(float)));
    expect_ok(yk_tensor_read(y, out, N * O * SIDE * SIDE * sizeof(float)));
    yk_scope_end(scope);
}

/* The number of RUNS gradients that differ from the first. */
static int different(void)
{
    float first[WEIGHTS], again[WEIGHTS], out[N * O * SIDE * SIDE];
    int count = 0;
    compute(gpu, first, out);
    for (int i = 1; i < RUNS; i++) {
        compute(gpu, again, out);
        count += memcmp(first, again, sizeof(first)) != 0;
    }
    return count;
}

static void same_bits_where_they_are_asked_for(void **state)
{
    (void)state;
    assert_true(different() > 0); /* else the stand-in shows nothing */
    yk_use_deterministic_algorithms(true);
    assert_int_equal(different(), 0);
    yk_use_deterministic_algorithms(false);
}

static void tf32_where_it_is_allowed(void **state)
{
    (void)state;
    float gradient[WEIGHTS], expected[N * O * SIDE * SIDE], out[N * O * SIDE * SIDE];
    compute((yk_device){YK_CPU, 0}, gradient, expected);
    for (int tf32 = 0; tf32 < 2; tf32++) {
        double worst = 0;
        if (tf32)
            setenv("YOKE_CUDA_TF32", "1", 1);
        compute(gpu, gradient, out);
        for (int i = 0; i < N * O * SIDE * SIDE && !isnan(worst); i++) { /* fmax crashes gcc 12 for aarch64 here */
            double distance = fabs((double)out[i] - (double)expected[i]);
            if (!(distance <= worst))
                worst = distance;
        }
        if (tf32 ? !(worst >= 1e-5 && worst <= 1e-2) : !(worst <= 3e-6))
            fail_msg("TF32 %s: as far as %g from the CPU", tf32 ? "allowed" : "not allowed", worst);
    }
    unsetenv("YOKE_CUDA_TF32");
}

/* Channels last, so that products on tensor cores find them so; casts and gradients follow, f64 does not. */
static void weights_lie_with_channels_last(void **state)
{
    (void)state;
    static const yk_dtype dtypes[] = {YK_F32, YK_F64, YK_BF16};
    yk_scope scope = yk_scope_begin();
    yk_module *conv = yk_module_to(yk_conv2d_create(C, O, K, NULL), gpu);
    yk_tensor *weight = yk_module_get(conv, "weight");
    for (int i = 0; i < 3; i++) {
        conv = yk_module_to_dtype(conv, dtypes[i]);
        expect_ok(YK_OK);
        bool last = dtypes[i] != YK_F64;
        assert_int_equal(yk_stride(weight, 1), last ? 1 : K * K);
        assert_int_equal(yk_stride(weight, 3), last ? C : 1);
        assert_int_equal(yk_stride(weight, 0), C * K * K);
    }
    conv = yk_module_to_dtype(conv, YK_F32);
    assert_int_equal(yk_stride(yk_cast(weight, YK_F16), 1), 1);
    yk_tensor *x = yk_zeros(YK_SHAPE(1, C, SIDE, SIDE), YK_OPTIONS(yk_tensor_options, .device = gpu));
    expect_ok(yk_backward(yk_sum(yk_forward(conv, x))));
    assert_int_equal(yk_stride(yk_grad(weight), 1), 1);
    yk_scope_end(scope);
}

/* 2048 and 16 times 1, which are lost where each sum is rounded to f16: as the stand-in's engine does whose note of
 * that stands after others that are not known. */
static void sums_are_of_f32(void **state)
{
    (void)state;
    enum { TERMS = 17 };
    static const yk_dtype dtypes[] = {YK_F16, YK_BF16};
    float x[TERMS], w[TERMS], out = 0;
    for (int i = 0; i < TERMS; i++)
        x[i] = i ? 1 : 64, w[i] = i ? 1 : 32;
    for (int i = 0; i < 2; i++) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *first = yk_from_data(x, YK_SHAPE(1, TERMS, 1, 1), YK_OPTIONS(yk_tensor_options, .device = gpu));
        yk_tensor *second = yk_from_data(w, YK_SHAPE(1, TERMS, 1, 1), YK_OPTIONS(yk_tensor_options, .device = gpu));
        yk_tensor *y = yk_conv2d(yk_cast(first, dtypes[i]), yk_cast(second, dtypes[i]), NULL, NULL);
        expect_ok(yk_tensor_read(yk_cast(y, YK_F32), &out, sizeof(out)));
        assert_true(out == 2048 + TERMS - 1);
        yk_scope_end(scope);
    }
}

/* The emulator's count of a library's calls. */
static long long (*calls_of_emulator(void))(const char *name)
{
    long long (*calls_of)(const char *name) = NULL;
    char path[4200];
    snprintf(path, sizeof(path), "%.4000s/yoke-cuda.so", getenv("YOKE_BACKEND_PATH"));
    void *plugin = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(plugin);
    *(void **)&calls_of = dlsym(plugin, "emulator_calls");
    assert_non_null(calls_of);
    dlclose(plugin); /* it stays loaded */
    return calls_of;
}

/* The stand-in proposes an engine for halves that does not use them before those that do. */
static void tensor_cores_come_first(void **state)
{
    (void)state;
    static const char call[] = "cudnnBackendExecute without tensor cores";
    static const int64_t x_shape[] = {4, 8, SIDE, SIDE}, w_shape[] = {8, 8, 1, 1}, odd_shape[] = {4, 8, 1, 1};
    long long (*calls_of)(const char *name) = calls_of_emulator();
    yk_scope scope = yk_scope_begin();
    long long before = calls_of(call), library = slot_work_done("conv2d", true);
    yk_tensor *x = yk_cast(numbers(x_shape, gpu, 1), YK_BF16), *w = yk_cast(numbers(w_shape, gpu, 2), YK_BF16);
    assert_non_null(yk_conv2d(x, w, NULL, YK_OPTIONS(yk_conv2d_options, .stride = {2, 2})));
    assert_non_null(yk_conv2d(x, yk_cast(numbers(odd_shape, gpu, 2), YK_BF16), NULL, NULL));
    expect_ok(yk_device_synchronize(gpu));
    assert_true(slot_work_done("conv2d", true) == library + 2);
    assert_true(calls_of(call) == before);
    yk_scope_end(scope);
}

/* Two of the stand-in's engines fail where there are 11 output channels: the next computes it, with its gradients. */
static void an_engine_that_fails_gives_way(void **state)
{
    (void)state;
    enum { FAILING = 11 };
    static const char *const works[] = {"conv2d", "conv2d_backward_input", "conv2d_backward_weight"};
    static const int64_t x_shape[] = {2, C, SIDE, SIDE}, w_shape[] = {FAILING, C, K, K};
    float out[2][2 * FAILING * SIDE * SIDE], gx[2][2 * C * SIDE * SIDE], gw[2][FAILING * C * K * K];
    long long failed = slot_counted("algorithms that failed: "), before[3];
    for (int i = 0; i < 3; i++)
        before[i] = slot_work_done(works[i], true);
    yk_use_deterministic_algorithms(true); /* else the atomic engine computes the weight's, before those */
    for (int d = 0; d < 3; d++) {          /* again on the GPU: what failed is not tried again */
        yk_scope scope = yk_scope_begin();
        yk_device device = d ? gpu : (yk_device){YK_CPU, 0};
        yk_tensor *x = numbers(x_shape, device, 1), *w = numbers(w_shape, device, 2);
        expect_ok(yk_set_requires_grad(x, true));
        expect_ok(yk_set_requires_grad(w, true));
        yk_tensor *y = yk_conv2d(x, w, NULL, YK_OPTIONS(yk_conv2d_options, .padding = {1, 1}));
        expect_ok(yk_backward(yk_sum(y)));
        expect_ok(yk_tensor_read(y, out[d > 0], sizeof(out[0])));
        expect_ok(yk_tensor_read(yk_grad(x), gx[d > 0], sizeof(gx[0])));
        expect_ok(yk_tensor_read(yk_grad(w), gw[d > 0], sizeof(gw[0])));
        yk_scope_end(scope);
    }
    yk_use_deterministic_algorithms(false);
    for (size_t i = 0; i < sizeof(out[0]) / sizeof(float); i++)
        assert_true(fabsf(out[0][i] - out[1][i]) <= 1e-5f);
    for (size_t i = 0; i < sizeof(gx[0]) / sizeof(float); i++)
        assert_true(fabsf(gx[0][i] - gx[1][i]) <= 1e-5f);
    for (size_t i = 0; i < sizeof(gw[0]) / sizeof(float); i++)
        assert_true(fabsf(gw[0][i] - gw[1][i]) <= 1e-5f);
    for (int i = 0; i < 3; i++)
        assert_true(slot_work_done(works[i], true) == before[i] + 2);
    assert_int_equal(slot_counted("algorithms that failed: ") - failed, 3 * 2);
}

/* The result of a convolution of `images` images, by its own form. */
static yk_tensor *convolution_of(int64_t images)
{
    const int64_t x_shape[] = {images, C, SIDE, SIDE}, w_shape[] = {O, C, K, K};
    return yk_conv2d(numbers(x_shape, gpu, 1), numbers(w_shape, gpu, 2), NULL, NULL);
}

enum { RESULT = O * (SIDE - K + 1) * (SIDE - K + 1) };

static void read_convolution(int64_t images, float out[N * RESULT])
{
    yk_scope scope = yk_scope_begin();
    expect_ok(yk_tensor_read(convolution_of(images), out, (size_t)images * RESULT * sizeof(float)));
    yk_scope_end(scope);
}

/* The stand-in's quick engine is proposed after the good one, of which there are more plans than are timed, and adds in
 * another order. */
static void the_fastest_where_it_is_asked_for(void **state)
{
    (void)state;
    float proposed[N * RESULT], fastest[N * RESULT], out[N * RESULT];
    read_convolution(N, proposed);
    long long before = slot_counted("plans timed: ");
    setenv("YOKE_BENCHMARK", "1", 1);
    read_convolution(N, fastest);
    assert_true(memcmp(proposed, fastest, sizeof(out)) != 0);
    for (int i = 0; i < N * RESULT; i++)
        assert_true(fabsf(proposed[i] - fastest[i]) <= 1e-5f);
    assert_true(slot_counted("plans timed: ") == before + 1);
    read_convolution(N, out); /* the plan is kept */
    assert_memory_equal(fastest, out, sizeof(out));
    assert_true(slot_counted("plans timed: ") == before + 1);
    yk_use_deterministic_algorithms(true); /* another run may time them otherwise */
    read_convolution(N, out);
    assert_memory_equal(proposed, out, sizeof(out));
    assert_true(slot_counted("plans timed: ") == before + 1);
    yk_use_deterministic_algorithms(false);
    unsetenv("YOKE_BENCHMARK");
    read_convolution(N, out);
    assert_memory_equal(proposed, out, sizeof(out));
    yk_use_benchmark(true);
    assert_true(yk_benchmark_enabled());
    read_convolution(N, out);
    assert_memory_equal(fastest, out, sizeof(out));
    setenv("YOKE_BENCHMARK", "1", 1);
    yk_use_benchmark(false); /* the program's choice goes before the environment's */
    assert_false(yk_benchmark_enabled());
    read_convolution(N, out);
    assert_memory_equal(proposed, out, sizeof(out));
    unsetenv("YOKE_BENCHMARK");
}

static void keep_chosen(yk_log_level level, const char *message, void *user)
{
    if (level == YK_LOG_DEBUG && strstr(message, "cuDNN: "))
        snprintf(user, 400, "%s", message);
}

/* A report can say which engine a GPU took. */
static void the_log_says_which_engine(void **state)
{
    (void)state;
    char said[400] = "";
    yk_scope scope = yk_scope_begin();
    static const int64_t x_shape[] = {2, 5, 4, 6}, w_shape[] = {3, 5, 2, 2};
    yk_log_set(YK_LOG_DEBUG, keep_chosen, said);
    assert_non_null(yk_conv2d(numbers(x_shape, gpu, 1), numbers(w_shape, gpu, 2), NULL, NULL));
    yk_log_set(YK_LOG_OFF, NULL, NULL);
    const char *engine = strstr(said, ": engine ");
    assert_non_null(engine);
    assert_true(strtoll(engine + strlen(": engine "), NULL, 10) >= 60);
    assert_non_null(
        strstr(said, "conv2d of (2,5,4,6) by (3,5,2,2), stride 1 x 1, of float32, channels first: engine "));
    assert_non_null(strstr(said, " bytes of workspace, candidate "));
    yk_scope_end(scope);
}

typedef struct recorded {
    yk_tensor *x, *w, *b, *out;
    int calls;
} recorded;

/* A form that comes for the first time in the call that is recorded. */
static yk_status new_form_when_recorded(void *user)
{
    recorded *r = user;
    bool last = ++r->calls == 3;
    yk_tensor *x = last ? r->x : yk_narrow(r->x, 0, 0, 1);
    yk_tensor *y = yk_conv2d(x, r->w, r->b, NULL);
    yk_tensor_release(r->out);
    r->out = yk_tensor_retain(yk_conv2d(y, yk_narrow(r->w, 1, 0, 1), NULL, YK_OPTIONS(yk_conv2d_options, .groups = O)));
    return r->out ? YK_OK : yk_last_error()->code;
}

/* A trial would wait for the GPU, which a capture forbids. */
static void nothing_is_tried_in_a_recording(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    static const int64_t x_shape[] = {2, C, 7, 6}, w_shape[] = {O, C, K, K}, o = O;
    static const float bias[O] = {0.5f, 0.5f, 0.5f, 0.5f};
    recorded r = {.x = numbers(x_shape, gpu, 1), .w = numbers(w_shape, gpu, 2)};
    r.b = yk_from_data(bias, 1, &o, YK_OPTIONS(yk_tensor_options, .device = gpu));
    yk_use_benchmark(true);
    yk_graph *g = yk_graph_create(gpu, 2, new_form_when_recorded, &r);
    expect_ok(yk_graph_run(g));
    expect_ok(yk_graph_run(g));
    long long timed = slot_counted("plans timed: ");
    expect_ok(yk_graph_run(g));
    assert_int_equal(yk_graph_get_info(g).replays, 1);
    assert_true(slot_counted("plans timed: ") == timed);
    float replayed[2 * O * 3 * 2], eager[2 * O * 3 * 2];
    expect_ok(yk_tensor_read(r.out, replayed, sizeof(replayed)));
    r.calls = 2;
    expect_ok(new_form_when_recorded(&r));
    expect_ok(yk_tensor_read(r.out, eager, sizeof(eager)));
    assert_true(slot_counted("plans timed: ") > timed); /* now they are */
    for (size_t i = 0; i < sizeof(eager) / sizeof(eager[0]); i++)
        assert_true(fabsf(replayed[i] - eager[i]) <= 1e-5f);
    yk_tensor_release(r.out);
    yk_use_benchmark(false);
    yk_scope_end(scope);
}

/* conv2d with ReLU of `outputs` channels, whose input and bias have a NaN and an infinity; how many were fused. */
static long long with_relu(yk_device device, yk_dtype dtype, int64_t outputs, float *out)
{
    long long before = slot_counted("conv2d with ReLU: ");
    yk_scope scope = yk_scope_begin();
    const int64_t x_shape[] = {2, C, SIDE, SIDE}, w_shape[] = {outputs, C, K, K};
    float bias[ALL_SWALLOW];
    for (int i = 0; i < ALL_SWALLOW; i++)
        bias[i] = i == 1 ? NAN : i == 2 ? INFINITY : 0.25f * (float)(i % 3 - 1);
    yk_tensor *x = numbers(x_shape, device, 1), *w = numbers(w_shape, device, 2);
    yk_tensor *b = yk_from_data(bias, 1, &outputs, YK_OPTIONS(yk_tensor_options, .device = device));
    assert_non_null(yk_fill_(yk_narrow(yk_select(x, 0, 1), 1, 0, 1), NAN));
    yk_tensor *y = yk_conv2d(yk_cast(x, dtype), yk_cast(w, dtype), yk_cast(b, dtype),
                             YK_OPTIONS(yk_conv2d_options, .padding = {1, 1}, .relu = true));
    expect_ok(yk_tensor_read(yk_cast(y, YK_F32), out, (size_t)(2 * outputs * SIDE * SIDE) * sizeof(float)));
    yk_scope_end(scope);
    return slot_counted("conv2d with ReLU: ") - before;
}

/* NaN and infinity are the CPU's everywhere; `timed`: among the plans that are timed, too. */
static void compare_relu(yk_dtype dtype, int64_t outputs, bool timed, bool fused)
{
    static float expected[2 * ALL_SWALLOW * SIDE * SIDE], out[2 * ALL_SWALLOW * SIDE * SIDE];
    float room = dtype == YK_BF16 ? 0.05f : 1e-5f;
    if (timed)
        yk_use_benchmark(true);
    assert_int_equal(with_relu((yk_device){YK_CPU, 0}, dtype, outputs, expected), 0);
    assert_int_equal(with_relu(gpu, dtype, outputs, out), fused);
    int64_t nans = 0;
    for (int64_t k = 0; k < 2 * outputs * SIDE * SIDE; k++) {
        nans += isnan(out[k]);
        assert_int_equal(isnan(out[k]), isnan(expected[k]));
        assert_true(isnan(out[k]) || out[k] == expected[k] || fabsf(out[k] - expected[k]) <= room);
    }
    assert_true(nans >= 2 * SIDE * SIDE);
    yk_use_benchmark(false);
}

static const yk_dtype relu_dtypes[] = {YK_F32, YK_F64, YK_BF16};

/* The stand-in proposes an engine that makes 0 of NaN, more often than plans are tried, and one that bounds infinity,
 * before those that keep both. */
static void relu_is_fused_where_it_keeps_nan(void **state)
{
    (void)state;
    for (int i = 0; i < 3 * 2; i++)
        compare_relu(relu_dtypes[i % 3], 5, i / 3, true);
}

/* An engine that fails is proposed more often than plans are tried, too. */
static void relu_is_fused_where_an_engine_fails(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        long long failed = slot_counted("algorithms that failed: ");
        compare_relu(relu_dtypes[i], 11, false, true);
        assert_int_equal(slot_counted("algorithms that failed: ") - failed, 2);
    }
}

/* An engine that failed is not tried for the dtype's next form: REFUSED_LATE, GOOD's trial, and GOOD for the numbers.
 */
static void an_engine_is_tried_once(void **state)
{
    (void)state;
    long long (*calls_of)(const char *name) = calls_of_emulator();
    for (int i = 0; i < 3; i++) {
        long long before = calls_of("cudnnBackendExecute");
        compare_relu(relu_dtypes[i], 6, false, true);
        assert_true(calls_of("cudnnBackendExecute") == before + 3);
    }
}

/* For ALL_SWALLOW outputs every engine makes 0 of NaN but the slow reference, which is not taken: ReLU is computed
 * apart. The last of the tests, for the engines are done with. */
static void relu_is_apart_where_none_keeps_nan(void **state)
{
    (void)state;
    for (int i = 0; i < 3 * 2; i++)
        compare_relu(relu_dtypes[i % 3], ALL_SWALLOW, i / 3, false);
}

static yk_status relu_when_recorded(void *user)
{
    recorded *r = user;
    bool last = ++r->calls == 3;
    yk_tensor *x = last ? r->x : yk_narrow(r->x, 0, 0, 1);
    yk_tensor_release(r->out);
    r->out = yk_tensor_retain(yk_conv2d(x, r->w, r->b, YK_OPTIONS(yk_conv2d_options, .relu = true)));
    return r->out ? YK_OK : yk_last_error()->code;
}

/* A form with ReLU that was not seen before the recording is computed without trial: apart. */
static void no_trial_of_relu_in_a_recording(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    static const int64_t x_shape[] = {2, C, 6, 7}, w_shape[] = {O, C, K, K}, o = O;
    static const float bias[O] = {0.5f, 0.5f, -0.5f, 0.5f};
    recorded r = {.x = numbers(x_shape, gpu, 1), .w = numbers(w_shape, gpu, 2)};
    r.b = yk_from_data(bias, 1, &o, YK_OPTIONS(yk_tensor_options, .device = gpu));
    yk_graph *g = yk_graph_create(gpu, 2, relu_when_recorded, &r);
    long long before = slot_counted("conv2d with ReLU: ");
    for (int i = 0; i < 3; i++)
        expect_ok(yk_graph_run(g));
    assert_int_equal(yk_graph_get_info(g).replays, 1);
    assert_int_equal(slot_counted("conv2d with ReLU: "), before + 2);
    float replayed[2 * O * 4 * 5], eager[2 * O * 4 * 5];
    expect_ok(yk_tensor_read(r.out, replayed, sizeof(replayed)));
    r.calls = 2;
    expect_ok(relu_when_recorded(&r));
    assert_int_equal(slot_counted("conv2d with ReLU: "), before + 3);
    expect_ok(yk_tensor_read(r.out, eager, sizeof(eager)));
    for (size_t i = 0; i < sizeof(eager) / sizeof(eager[0]); i++)
        assert_true(fabsf(replayed[i] - eager[i]) <= 1e-5f);
    yk_tensor_release(r.out);
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits_where_they_are_asked_for),
                                       cmocka_unit_test(tf32_where_it_is_allowed),
                                       cmocka_unit_test(weights_lie_with_channels_last),
                                       cmocka_unit_test(the_fastest_where_it_is_asked_for),
                                       cmocka_unit_test(nothing_is_tried_in_a_recording),
                                       cmocka_unit_test(relu_is_fused_where_it_keeps_nan),
                                       cmocka_unit_test(an_engine_is_tried_once),
                                       cmocka_unit_test(relu_is_fused_where_an_engine_fails),
                                       cmocka_unit_test(the_log_says_which_engine),
                                       cmocka_unit_test(sums_are_of_f32),
                                       cmocka_unit_test(an_engine_that_fails_gives_way),
                                       cmocka_unit_test(no_trial_of_relu_in_a_recording),
                                       cmocka_unit_test(tensor_cores_come_first),
                                       cmocka_unit_test(relu_is_apart_where_none_keeps_nan)};
    if (!use_emulator())
        return 0;
    return cmocka_run_group_tests_name("convolutions", tests, NULL, NULL);
}
