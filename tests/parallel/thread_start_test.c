/*
 * thread_start_test.c - a device's thread that the system does not start: the error names the device, nobody is left
 * waiting, and the next attempt finds everything as it was.
 */
#include <dlfcn.h>
#include <errno.h>

#include "tests/parallel/pipelines.h"

/* ---- the fault --------------------------------------------------------------------------------------------------- */

/* The number of the thread that fails, of those that are started from now on: 1 is the next, 0 none. */
static atomic_int failing;

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *), void *argument)
{
    typedef int create_fn(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    static _Atomic(create_fn *) original;
    if (atomic_load(&failing) > 0 && atomic_fetch_sub(&failing, 1) == 1)
        return EAGAIN; /* the error that RLIMIT_NPROC gives */
    create_fn *call = atomic_load(&original);
    if (!call) {
        void *symbol = dlsym(RTLD_NEXT, "pthread_create");
        memcpy(&call, &symbol, sizeof(call));
        atomic_store(&original, call);
    }
    return call(thread, attributes, fn, argument);
}

/* The call that failed under the fault set this error. */
static void expect_thread_error(const char *text)
{
    assert_int_equal(atomic_load(&failing), 0); /* it was reached */
    assert_non_null(yk_last_error());
    assert_int_equal(yk_last_error()->code, YK_ERR_MEMORY);
    if (!strstr(yk_last_error()->message, device_text(text)))
        fail_msg("\"%s\" does not say \"%s\"", yk_last_error()->message, device_text(text));
    yk_clear_error();
}

/* ---- functions that need threads --------------------------------------------------------------------------------- */

static _Atomic int64_t sizes_seen[MOST];

static yk_tensor *note_forward(yk_module *m, yk_tensor *x)
{
    (void)m;
    atomic_store(&sizes_seen[yk_tensor_device(x).index], yk_size(x, 0));
    return yk_mul_scalar(x, 2);
}

static const yk_module_class note_class = {.name = "Note", .forward = note_forward};

/* Replicas on cpu:0 to cpu:3, none of which has a thread yet. */
static void a_replica_without_a_thread(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *dp = over(yk_module_create(&note_class), 4);
    yk_tensor *x = randn(YK_SHAPE(8, 3));
    atomic_store(&failing, 2);
    assert_null(yk_forward(dp, x));
    expect_thread_error("replica 2 on cpu:2: no thread for cpu:2 could be started");
    for (int i = 0; i < 4; i++) /* the others finished */
        assert_int_equal(atomic_load(&sizes_seen[i]), i == 2 ? 0 : 2);
    yk_tensor *y = yk_forward(dp, x);
    assert_true(distance(y, yk_mul_scalar(x, 2)) == 0);
    assert_int_equal(atomic_load(&sizes_seen[2]), 2);
    yk_scope_end(scope);
}

/* Three stages on cpu:4 to cpu:6: while the last one has no thread, the others wait for it. */
static void a_stage_without_a_thread(void **state)
{
    (void)state;
    for (int schedule = 0; schedule < 2; schedule++) {
        yk_scope scope = yk_scope_begin();
        yk_device three[3];
        yk_module *stages[3], *plain = make_plain(false);
        for (int s = 0; s < 3; s++)
            three[s] = test_device(schedule ? 2 * s + 1 : s + 4);
        make_stages(stages, 3, false);
        yk_module *pipeline =
            yk_pipeline(stages, 3,
                        YK_OPTIONS(yk_pipeline_options, .devices = three, .chunks = 4,
                                   .schedule = (yk_pipeline_schedule)schedule, .criterion = mean_cross_entropy));
        yk_tensor *x = randn(YK_SHAPE(8, 1, 12, 12)), *t = labels_of(8, 10);
        if (schedule == 0) { /* afterwards its threads are there */
            atomic_store(&failing, 2);
            assert_null(yk_pipeline_step(pipeline, x, t));
            expect_thread_error("stage 2 on cpu:6: no thread for cpu:6 could be started");
            for (int64_t i = 0; i < yk_parameters_count(yk_module_parameters(pipeline)); i++)
                expect_ok(yk_set_grad(yk_parameters_at(yk_module_parameters(pipeline), i), NULL));
        }
        yk_tensor *loss = yk_pipeline_step(pipeline, x, t);
        assert_non_null(loss);
        expect_ok(yk_backward(yk_cross_entropy(yk_forward(plain, x), t, NULL)));
        assert_true(grads_apart(plain, pipeline) < 1e-12);
        yk_scope_end(scope);
    }
}

/* A graph over cpu:7 and cpu:0, walked from cpu:7: the thread that is missing is cpu:0's, where only the calling thread
 * has worked so far. */
static void a_backward_without_a_thread(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *w = randn(YK_SHAPE(4, 4));
    expect_ok(yk_set_requires_grad(w, true));
    for (int attempt = 0; attempt < 2; attempt++) {
        yk_tensor *y = yk_to(yk_matmul(w, w), devices[7]);
        atomic_store(&failing, attempt == 0);
        yk_status status = yk_backward(yk_sum(yk_mul(y, y)));
        if (attempt == 0) {
            assert_int_equal(status, YK_ERR_MEMORY);
            expect_thread_error("backward: no thread for cpu:0 could be started");
            assert_null(yk_grad(w));
        } else {
            expect_ok(status);
        }
    }
    yk_tensor *again = yk_clone(yk_detach(w));
    expect_ok(yk_set_requires_grad(again, true));
    yk_tensor *y = yk_matmul(again, again);
    expect_ok(yk_backward(yk_sum(yk_mul(y, y))));
    assert_true(distance(yk_grad(w), yk_grad(again)) < 1e-12);
    yk_scope_end(scope);
}

int main(void)
{
    use_devices(8);
    setenv("OMP_NUM_THREADS", "1", 1); /* kernels have no threads of their own, which would count */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_backward_without_a_thread),
        cmocka_unit_test(a_replica_without_a_thread),
        cmocka_unit_test(a_stage_without_a_thread),
    };
    return cmocka_run_group_tests_name("parallel/thread_start", tests, NULL, NULL);
}
