/* recording_test.c - events beside the recording of a step on an (emulated) GPU: graphs that are released in it, and
 * other threads that go on using the device, whose work is done at once and is not replayed. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

#include "tests/emulator/use_emulator.h"
#include "tests/support/expect.h"

#include <yoke/yoke.h>

#include "device/graph.h"
#include "tensor/tensor.h"

enum { N = 3000, RUNS = 4 };

static const yk_device gpu = {YK_CUDA, 0}, second = {YK_CUDA, 1};
static const yk_tensor_options *const on_gpu = YK_OPTIONS(yk_tensor_options, .device = {YK_CUDA, 0});
static long long (*calls_of)(const char *name);

/* Recordings that were made and not destroyed. */
static long long recordings(void)
{
    return calls_of("cudaGraphInstantiate") - calls_of("cudaGraphExecDestroy");
}

static yk_status one_more(void *x)
{
    return yk_add_(x, yk_ones(YK_SHAPE(N), on_gpu), 1) ? YK_OK : yk_last_error()->code;
}

/* A graph that has been replayed and adds 1 to x each time. */
static yk_graph *recorded(yk_tensor *x)
{
    yk_graph *g = yk_graph_create(gpu, 1, one_more, x);
    for (int i = 0; i < 3; i++)
        expect_ok(yk_graph_run(g));
    assert_int_equal(yk_graph_get_info(g).replays, 2);
    return g;
}

static void expect_all(yk_tensor *x, double value)
{
    assert_true(yk_item(yk_min(x)) == value && yk_item(yk_max(x)) == value);
    expect_ok(YK_OK);
}

/* ---- released in a recording ---- */
typedef struct releasing {
    yk_tensor *x;
    yk_graph *other; /* released by the call that is recorded */
    bool by_thread;  /* of another thread */
    int calls;
} releasing;

static void *release(void *g)
{
    yk_graph_release(g);
    assert_null(yk_last_error());
    return NULL;
}

static yk_status releases(void *user)
{
    releasing *r = user;
    pthread_t thread;
    if (++r->calls == 2 && r->by_thread) {
        assert_int_equal(pthread_create(&thread, NULL, release, r->other), 0);
        pthread_join(thread, NULL);
    } else if (r->calls == 2) {
        yk_graph_release(r->other);
    }
    return one_more(r->x);
}

static void test_released_in_a_recording(void **state)
{
    (void)state;
    long long before = recordings();
    for (int by_thread = 0; by_thread < 2; by_thread++) {
        yk_scope scope = yk_scope_begin();
        releasing r = {.x = yk_zeros(YK_SHAPE(N), on_gpu), .by_thread = by_thread};
        yk_tensor *y = yk_zeros(YK_SHAPE(N), on_gpu);
        yk_scope inner = yk_scope_begin();
        r.other = yk_graph_retain(recorded(y));
        yk_scope_end(inner);
        yk_graph *g = yk_graph_create(gpu, 1, releases, &r);
        for (int i = 0; i < RUNS; i++)
            expect_ok(yk_graph_run(g));
        yk_graph_info info = yk_graph_get_info(g);
        if (info.why_not)
            fail_msg("it was not recorded: %s", info.why_not);
        assert_int_equal(info.replays, RUNS - 1);
        assert_int_equal(recordings(), before + 1); /* its own */
        expect_all(r.x, RUNS);
        expect_all(y, 3);
        assert_null(yk__memory_check(gpu));
        yk_scope_end(scope);
        assert_int_equal(recordings(), before);
        assert_null(yk__memory_check(gpu));
    }
}

static yk_status releases_itself(void *user)
{
    releasing *r = user;
    if (++r->calls == 3)
        yk_graph_release(r->other);
    return one_more(r->x);
}

/* Not before the call ends. */
static void test_releases_itself(void **state)
{
    (void)state;
    long long before = recordings();
    yk_scope scope = yk_scope_begin();
    releasing r = {.x = yk_zeros(YK_SHAPE(N), on_gpu)};
    yk_scope inner = yk_scope_begin();
    yk_graph *g = yk_graph_retain(yk_graph_create(gpu, 2, releases_itself, &r));
    yk_scope_end(inner);
    r.other = g;
    for (int i = 0; i < 3; i++)
        expect_ok(yk_graph_run(g));
    assert_int_equal(r.calls, 3);
    expect_all(r.x, 3);
    yk_scope_end(scope);
    assert_int_equal(recordings(), before);
    assert_null(yk__memory_check(gpu));
}

/* ---- other threads ---- */
static void *run_another(void *g)
{
    for (int i = 0; i < 3; i++)
        expect_ok(yk_graph_run(g));
    assert_int_equal(yk_graph_get_info(g).replays, 0);
    return NULL;
}

static yk_status beside_another(void *user)
{
    releasing *r = user;
    pthread_t thread;
    if (++r->calls == 2) {
        assert_int_equal(pthread_create(&thread, NULL, run_another, r->other), 0);
        pthread_join(thread, NULL);
    }
    return one_more(r->x);
}

/* One that comes to its recording while another thread records on the device is recorded later. */
static void test_two_recordings(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *y = yk_zeros(YK_SHAPE(N), on_gpu);
    releasing r = {.x = yk_zeros(YK_SHAPE(N), on_gpu), .other = yk_graph_create(gpu, 1, one_more, y)};
    yk_graph *g = yk_graph_create(gpu, 1, beside_another, &r);
    for (int i = 0; i < RUNS; i++)
        expect_ok(yk_graph_run(g));
    assert_int_equal(yk_graph_get_info(g).replays, RUNS - 1);
    assert_true(expect_says(yk_graph_get_info(r.other).why_not, "another thread records on cuda:0"));
    for (int i = 0; i < 2; i++)
        expect_ok(yk_graph_run(r.other));
    assert_null(yk_graph_get_info(r.other).why_not);
    assert_int_equal(yk_graph_get_info(r.other).replays, 2);
    expect_all(r.x, RUNS);
    expect_all(y, 5);
    yk_scope_end(scope);
    assert_null(yk__memory_check(gpu));
}

typedef struct beside {
    yk_tensor *x;
    atomic_int turns; /* of the other thread */
    atomic_bool stop;
    bool failed;
    int calls;
} beside;

/* Everything that puts work on the device, or waits for it, on the queue of kernels and on that of copies. */
static bool one_turn(void)
{
    const yk__backend *cuda = yk__backend_of(gpu);
    yk_scope scope = yk_scope_begin();
    float values[N], *pinned = NULL;
    void *room = NULL;
    for (int i = 0; i < N; i++)
        values[i] = (float)i;
    yk_tensor *x = yk_from_data(values, YK_SHAPE(N), on_gpu), *y = yk_mul_scalar(x, 2);
    bool good = y && yk_item(yk_sum(y)) == (double)N * (N - 1) && !yk_device_synchronize(gpu);
    yk_tensor *there = yk_to(y, second);
    good &= there && yk_item(yk_max(there)) == 2 * (N - 1);
    /* As a loader does: a copy beside the kernels, which then read it, and one after them. */
    good &= !cuda->allocate_pinned(0, sizeof(values), &room);
    pinned = room;
    memcpy(pinned, values, good ? sizeof(values) : 0);
    yk__queue before = yk__queue_begin(YK__QUEUE_COPY);
    yk_tensor *copied = yk__scope_own(yk__tensor_new(YK_SHAPE(N), NULL, YK_F32, gpu));
    good &= copied && !cuda->queue_upload(0, copied->data, pinned, sizeof(values));
    yk__queue_end(before);
    good &= !yk__queue_order(gpu, YK__QUEUE_COMPUTE, gpu, YK__QUEUE_COPY);
    yk__storage_used_on(copied->storage, YK__QUEUE_COMPUTE);
    yk_tensor *z = yk_add_scalar(copied, 1);
    good &= z && !yk__queue_order(gpu, YK__QUEUE_COPY, gpu, YK__QUEUE_COMPUTE);
    before = yk__queue_begin(YK__QUEUE_COPY);
    good &= !cuda->queue_download(0, pinned, z->data, sizeof(values));
    yk__event *event = NULL;
    good &= !cuda->event_record(0, YK__QUEUE_COPY, &event) && !cuda->event_wait(event);
    cuda->event_release(event);
    yk__queue_end(before);
    for (int i = 0; i < N && good; i++)
        good = pinned[i] == (float)i + 1;
    cuda->release_pinned(0, room);
    yk_scope_end(scope);
    if (good)
        yk_device_empty_cache(gpu);
    good &= !yk__memory_check(gpu);
    if (yk_last_error())
        print_error("beside a recording: %s\n", yk_last_error()->message);
    return good && !yk_last_error();
}

static void *go_on(void *user)
{
    beside *b = user;
    while (!atomic_load(&b->stop)) {
        b->failed |= !one_turn();
        atomic_fetch_add(&b->turns, 1);
    }
    return NULL;
}

/* In the middle of the call that is recorded the other thread does all of that once, at least. */
static yk_status step_beside(void *user)
{
    beside *b = user;
    yk_tensor *y = yk_mul_scalar(b->x, 2);
    int seen = atomic_load(&b->turns);
    for (b->calls++; b->calls == 2 && atomic_load(&b->turns) < seen + 2;)
        usleep(100);
    return yk_copy_(b->x, yk_sub_scalar(y, 1)) ? YK_OK : yk_last_error()->code;
}

static void test_other_threads_go_on(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        yk_scope scope = yk_scope_begin();
        beside b = {.x = yk_full(YK_SHAPE(N), 2, on_gpu)};
        yk_graph *g = yk_graph_create(gpu, 1, step_beside, &b);
        expect_ok(yk_graph_run(g));
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, go_on, &b), 0);
        for (int i = 1; i < RUNS; i++)
            expect_ok(yk_graph_run(g));
        atomic_store(&b.stop, true);
        pthread_join(thread, NULL);
        assert_false(b.failed);
        yk_graph_info info = yk_graph_get_info(g);
        if (info.why_not)
            fail_msg("it was not recorded: %s", info.why_not);
        assert_int_equal(info.replays, RUNS - 1);
        expect_all(b.x, (1 << RUNS) + 1); /* x - 1 is doubled each time */
        assert_null(yk__memory_check(gpu));
        yk_scope_end(scope);
        assert_null(yk__memory_check(gpu));
    }
}

static void (*synchronize_devices)(void); /* cudaDeviceSynchronize of somebody else */

static void *wait_for_all(void *unused)
{
    synchronize_devices();
    return unused;
}

typedef struct spoilt {
    yk_tensor *x;
    int calls, times; /* the number of recordings that somebody else ends */
} spoilt;

static yk_status spoils(void *user)
{
    spoilt *s = user;
    yk_tensor *y = yk_mul_scalar(s->x, 2);
    pthread_t thread;
    if (++s->calls > 1 && yk__graph_recording() && s->times-- > 0) {
        assert_int_equal(pthread_create(&thread, NULL, wait_for_all, NULL), 0);
        pthread_join(thread, NULL);
    }
    yk_tensor *z = y ? yk_sub_scalar(y, 1) : NULL;
    return z && yk_copy_(s->x, z) ? YK_OK : yk_last_error()->code;
}

/* A wait for the whole device ends a recording, whoever waits. That is put up with twice; the third time it is how the
 * program is. */
static void test_a_wait_for_the_whole_device(void **state)
{
    (void)state;
    static const char why[] = "something else in the process that waited for the whole device";
    for (int times = 1; times <= 3; times++) {
        yk_scope scope = yk_scope_begin();
        spoilt s = {.x = yk_full(YK_SHAPE(N), 2, on_gpu), .times = times};
        yk_graph *g = yk_graph_create(gpu, 1, spoils, &s);
        for (int i = 0; i < RUNS; i++) {
            expect_ok(yk_graph_run(g));
            if (i == 1)
                assert_true(expect_says(yk_graph_get_info(g).why_not, why));
        }
        yk_graph_info info = yk_graph_get_info(g);
        assert_int_equal(info.replays, times < 3 ? RUNS - 1 - times : 0);
        assert_int_equal(info.why_not != NULL, times == 3);
        expect_all(s.x, (1 << RUNS) + 1);
        assert_null(yk__memory_check(gpu));
        yk_scope_end(scope);
        assert_null(yk__memory_check(gpu));
    }
}

/* ---- threads that the function has work for it ---- */
typedef struct replicated {
    yk_module *replicas[2];
    yk_tensor *inputs[2];
    yk_tensor *sum;
    int calls, apart; /* the call from which both devices work */
} replicated;

static yk_status applies(void *user)
{
    replicated *r = user;
    yk_tensor *outputs[2] = {yk_forward(r->replicas[0], r->inputs[0])};
    if (++r->calls >= r->apart) {
        yk_status status = yk_parallel_apply(r->replicas, 2, r->inputs, 1, outputs, 1);
        if (status)
            return status;
    }
    return yk_add_(r->sum, yk_sum(outputs[0]), 1) ? YK_OK : yk_last_error()->code;
}

/* Found in the calls before, or in the one that would be recorded. */
static void test_threads_of_the_function(void **state)
{
    (void)state;
    for (int apart = 1; apart <= 2; apart++) {
        yk_scope scope = yk_scope_begin();
        const yk_device both[] = {gpu, second};
        replicated r = {.apart = apart, .sum = yk_zeros(0, NULL, on_gpu)};
        yk_module *net = yk_module_to(yk_linear_create(3, 2, NULL), gpu);
        bool before = yk_no_grad_begin();
        expect_ok(yk_replicate(net, both, 2, r.replicas));
        for (int i = 0; i < 2; i++)
            r.inputs[i] = yk_ones(YK_SHAPE(4, 3), YK_OPTIONS(yk_tensor_options, .device = both[i]));
        yk_graph *g = yk_graph_create(gpu, 1, applies, &r);
        for (int i = 0; i < RUNS; i++)
            expect_ok(yk_graph_run(g));
        double once = yk_item(yk_sum(yk_forward(net, r.inputs[0])));
        yk_no_grad_end(before);
        expect_near(yk_item(r.sum), RUNS * once, 1e-5, 1e-6);
        assert_int_equal(yk_graph_get_info(g).replays, 0);
        assert_true(expect_says(yk_graph_get_info(g).why_not,
                                "several threads work for devices, which a recording cannot repeat; run DataParallel "
                                "and pipelines without a graph"));
        yk_scope_end(scope);
    }
}

int main(void)
{
    setenv("YOKE_EMULATOR_GPUS", "2", 1);
    if (!use_emulator())
        return 0;
    char path[4300];
    snprintf(path, sizeof(path), "%s/yoke-cuda.so", getenv("YOKE_BACKEND_PATH"));
    assert_int_equal(yk_device_count(YK_CUDA), 2);
    void *plugin = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    *(void **)&calls_of = plugin ? dlsym(plugin, "emulator_calls") : NULL;
    *(void **)&synchronize_devices = plugin ? dlsym(plugin, "emulator_synchronize_devices") : NULL;
    assert_true(calls_of && synchronize_devices);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_released_in_a_recording),
                                       cmocka_unit_test(test_releases_itself),
                                       cmocka_unit_test(test_two_recordings),
                                       cmocka_unit_test(test_other_threads_go_on),
                                       cmocka_unit_test(test_a_wait_for_the_whole_device),
                                       cmocka_unit_test(test_threads_of_the_function)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
