/* calls_test.c - the number of calls of the CUDA runtime and of its libraries that one step of training makes, as it is
 * and replayed: the host's time is theirs. The emulator counts them. Calls that are spared are not missing where other
 * libraries change the thread's GPU. */
#include <dlfcn.h>
#include <pthread.h>

#include "tests/emulator/use_emulator.h"
#include "tests/support/expect.h"

#include <yoke/yoke.h>

enum { BATCH = 4, SIDE = 6, CLASSES = 3, STEPS = 10 };

static const yk_device gpu = {YK_CUDA, 0};
static long long (*calls_of)(const char *name);
static const char *(*call_name)(int i);

typedef struct job {
    yk_module *net;
    yk_optimizer *optimizer;
    yk_tensor *input, *target;
} job;

static yk_status step(void *user)
{
    job *j = user;
    yk_optimizer_zero_grad(j->optimizer);
    yk_tensor *loss = yk_cross_entropy(yk_forward(j->net, j->input), j->target, NULL);
    yk_status status = yk_backward(loss);
    return status ? status : yk_optimizer_step(j->optimizer);
}

static job make(void)
{
    job j = {0};
    yk_module *first = yk_conv2d_create(3, 8, 3, YK_OPTIONS(yk_conv2d_module_options, .padding = 1));
    yk_module *second = yk_conv2d_create(8, 8, 3, YK_OPTIONS(yk_conv2d_module_options, .padding = 1, .bias = false));
    j.net =
        yk_module_to(yk_sequential(first, yk_relu_create(), second, yk_batch_norm2d_create(8, NULL), yk_relu_create(),
                                   yk_flatten_create(), yk_linear_create(8 * SIDE * SIDE, 16, NULL), yk_relu_create(),
                                   yk_linear_create(16, CLASSES, NULL)),
                     gpu);
    j.optimizer = yk_sgd(yk_module_parameters(j.net), YK_OPTIONS(yk_sgd_options, .lr = 0.1, .momentum = 0.9));
    j.input = yk_rand(YK_SHAPE(BATCH, 3, SIDE, SIDE), YK_OPTIONS(yk_tensor_options, .device = gpu));
    j.target = yk_zeros(YK_SHAPE(BATCH), YK_OPTIONS(yk_tensor_options, .device = gpu, .dtype = YK_I64));
    expect_ok(YK_OK);
    return j;
}

/* Prints the calls since `before`, a count for each name. */
static void print_calls(const char *what, const long long *before)
{
    const char *name;
    for (int i = 0; (name = call_name(i)); i++)
        if (calls_of(name) != before[i])
            print_error("%s: %lld %s\n", what, calls_of(name) - before[i], name);
}

enum { NAMES = 200 };
static void note(long long *of)
{
    for (int i = 0; i < NAMES; i++)
        of[i] = call_name(i) ? calls_of(call_name(i)) : 0;
}

static void expect_at_most(const char *what, const long long *before, const char *name, long long most)
{
    long long came = calls_of(name);
    for (int i = 0; call_name(i); i++)
        if (!name || strcmp(call_name(i), name) == 0)
            came -= before[i];
    if (came > most) {
        print_calls(what, before);
        fail_msg("%s makes %lld calls%s%s, more than %lld", what, came, name ? " of " : "", name ? name : "", most);
    }
}

/* Two convolutions of 3 and 2 directions, two linear layers of 3 products each, and 23 kernels: each has a call of its
 * own, and a question for the thread's GPU: others may have changed it. */
static void a_step_as_it_is(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    long long before[NAMES];
    job j = make();
    for (int i = 0; i < STEPS; i++) { /* plans are made, memory is allocated */
        yk_scope one = yk_scope_begin();
        expect_ok(step(&j));
        yk_scope_end(one);
    }
    expect_ok(yk_device_synchronize(gpu));
    note(before);
    yk_scope one = yk_scope_begin();
    expect_ok(step(&j));
    yk_scope_end(one);
    /* Resources that are made once are made once. */
    static const char *const once[] = {"cudaMalloc",
                                       "cudaSetDevice",
                                       "cudaGetLastError",
                                       "cudaFree",
                                       "cudaStreamSynchronize",
                                       "cudaEventCreateWithFlags",
                                       "cudaMemcpyAsync",
                                       "cublasLtMatmulDescInit_internal",
                                       "cublasLtMatmulDescSetAttribute",
                                       "cublasLtMatrixLayoutInit_internal",
                                       "cublasLtMatmulAlgoGetHeuristic",
                                       "cudnnBackendCreateDescriptor",
                                       "cudnnBackendFinalize",
                                       "cudnnSetStream"};
    for (size_t i = 0; i < sizeof(once) / sizeof(once[0]); i++)
        expect_at_most("a step", before, once[i], 0);
    expect_at_most("a step", before, "cublasLtMatmul", 6);
    expect_at_most("a step", before, "cudnnBackendExecute", 5);
    expect_at_most("a step", before, "cudaLaunchKernel", 23);
    expect_at_most("a step", before, NULL, 69);
    yk_scope_end(scope);
}

/* The launch of a graph, and little more. */
static void a_step_that_is_replayed(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    long long before[NAMES];
    job j = make();
    yk_graph *g = yk_graph_create(gpu, 2, step, &j);
    for (int i = 0; i < STEPS; i++)
        expect_ok(yk_graph_run(g));
    assert_true(yk_graph_get_info(g).replays > 0);
    note(before);
    expect_ok(yk_graph_run(g));
    expect_at_most("a replayed step", before, "cudaGraphLaunch", 1);
    expect_at_most("a replayed step", before, NULL, 4);
    yk_scope_end(scope);
}

static int (*set_device)(int gpu);
static int (*set_context)(const void *context);
static const char somebodys; /* its address is another library's context */

/* Changes that other libraries may make to a thread's GPU, by the number `i`. */
static void change_gpu(int i)
{
    switch (i % 5) {
    case 0: set_device(1); break;
    case 1: set_context(&somebodys); break;
    case 2: set_context(NULL); break;
    case 3: set_device(0); break;
    default: break;
    }
}

static void compute_behind_changes(const char *who)
{
    yk_scope scope = yk_scope_begin();
    for (int i = 0; i < 50; i++) {
        int16_t at = (int16_t)(i / 5 % 2);
        yk_tensor_options on = *YK_OPTIONS(yk_tensor_options, .device = {YK_CUDA, at});
        float got[4] = {0};
        change_gpu(i);
        yk_tensor *x = yk_full(YK_SHAPE(2, 2), i, &on);
        change_gpu(i + 1);
        yk_tensor *y = yk_matmul(x, x);
        change_gpu(i + 2);
        y = yk_to(yk_add(x, y), (yk_device){YK_CUDA, (int16_t)!at});
        change_gpu(i + 3);
        expect_ok(yk_tensor_read(y, got, sizeof(got)));
        if (got[3] != (float)(i + 2 * i * i))
            fail_msg("%s, round %d: %g", who, i, (double)got[3]);
    }
    yk_scope_end(scope);
}

static void *compute_in_thread(void *unused)
{
    compute_behind_changes("a thread that chose no GPU");
    return unused;
}

static void others_change_the_gpu(void **state)
{
    (void)state;
    pthread_t thread;
    compute_behind_changes("the first thread");
    assert_int_equal(pthread_create(&thread, NULL, compute_in_thread, NULL), 0);
    compute_behind_changes("beside it");
    assert_int_equal(pthread_join(thread, NULL), 0);
    set_device(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_step_as_it_is), cmocka_unit_test(a_step_that_is_replayed),
                                       cmocka_unit_test(others_change_the_gpu)};
    setenv("YOKE_EMULATOR_GPUS", "2", 1);
    if (!use_emulator())
        return 0;
    (void)yk_device_count(YK_CUDA); /* loads the backend */
    char path[4200];
    snprintf(path, sizeof(path), "%.4000s/yoke-cuda.so", getenv("YOKE_BACKEND_PATH"));
    void *plugin = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    *(void **)&calls_of = plugin ? dlsym(plugin, "emulator_calls") : NULL;
    *(void **)&call_name = plugin ? dlsym(plugin, "emulator_call_name") : NULL;
    *(void **)&set_device = plugin ? dlsym(plugin, "cudaSetDevice") : NULL;
    *(void **)&set_context = plugin ? dlsym(plugin, "cuCtxSetCurrent") : NULL;
    if (!calls_of || !call_name || !set_device || !set_context)
        return 1;
    return cmocka_run_group_tests_name("calls of CUDA", tests, NULL, NULL);
}
