/*
 * ddp_faults_test.c - the errors of the other ranks when one fails, dies or stops in a backward, and their time.
 */
#include "tests/parallel/trainer.h"

#include <yoke/parallel.h>

static const int64_t image[3] = {1, 28, 28};

static yk_status step(yk_module *ddp, int rank)
{
    yk_module_zero_grad(ddp);
    yk_tensor *x = yk_cast(samples(1, rank * 2, 2, 3, image), YK_F32);
    return yk_backward(yk_cross_entropy(yk_forward(ddp, x), labels(rank * 2, 2), NULL));
}

/* A rank that is still at the end of its second step when the group breaks would fail there. */
static void wait_for_all(const rank_context *c)
{
    atomic_fetch_add(&c->signals[1], 1);
    for (int i = 0; i < 60000 && atomic_load(&c->signals[1]) < c->size; i++)
        usleep(1000);
}

/* Two good steps, then `hook` on a gradient in the middle of rank 1's backward. */
static yk_module *prepare(rank_context *c, yk_grad_hook hook)
{
    yk_module *net = lenet_of(YK_F32, 1);
    yk_module *ddp =
        yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group, .first_bucket_mb = 0.01, .bucket_cap_mb = 0.05));
    if (!ddp || step(ddp, c->rank) || step(ddp, c->rank))
        return NULL;
    wait_for_all(c);
    if (c->rank == 1 && !yk_register_hook(yk_module_get(net, "fc1.weight"), hook, NULL))
        return NULL;
    return ddp;
}

static yk_tensor *refuse(yk_tensor *grad, void *user)
{
    (void)grad;
    (void)user;
    yk_set_error(YK_ERR_NUMERIC, "this gradient is not wanted");
    return NULL;
}

static yk_tensor *die(yk_tensor *grad, void *user)
{
    (void)grad;
    (void)user;
    raise(SIGKILL);
    return NULL;
}

static yk_tensor *stop(yk_tensor *grad, void *user)
{
    (void)grad;
    (void)user;
    raise(SIGSTOP);
    return NULL;
}

static void failing_backward(rank_context *c)
{
    yk_module *ddp = prepare(c, refuse);
    CHECK(ddp, "%s", yk_last_error() ? yk_last_error()->message : "no record");
    double began = yk__now();
    if (c->rank == 1)
        CHECK_FAILS(step(ddp, 1), YK_ERR_NUMERIC, "this gradient is not wanted");
    else
        CHECK_FAILS(step(ddp, c->rank), YK_ERR_CONNECTION, "rank 1 (host ",
                    "backward failed: this gradient is not wanted");
    CHECK(yk__now() - began < patience(30), "it took %g s to know", yk__now() - began);
    /* The group is broken, and says why. */
    if (c->rank != 1)
        CHECK_FAILS(step(ddp, c->rank), YK_ERR_CONNECTION, "this gradient is not wanted");
}

static void test_failing_backward(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 3, failing_backward, NULL, patience(60), true);
    run_ranks(THREADS, 3, failing_backward, NULL, patience(60), true);
}

/* The ways in which rank 1's step fails: in its forward; in its loss, so that backward has no tensor; by a graph that
 * was freed. */
enum { IN_FORWARD, IN_LOSS, IN_GRAPH, WAYS };

static void fail_on_purpose(yk_module *ddp, int way)
{
    yk_tensor *x = yk_cast(samples(1, 2, 2, 3, image), YK_F32);
    if (way == IN_FORWARD) /* one channel more than the first layer takes */
        (void)!yk_backward(yk_sum(yk_forward(ddp, yk_cat((yk_tensor *[]){x, x}, 2, 1))));
    const int64_t many = 99, count = 1;
    yk_tensor *wrong = yk_full(1, &count, (double)many, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    if (way == IN_LOSS)
        (void)!yk_backward(yk_cross_entropy(yk_forward(ddp, yk_narrow(x, 0, 0, 1)), wrong, NULL));
    if (way != IN_GRAPH)
        return;
    yk_tensor *leaf = yk_ones(1, &count, YK_OPTIONS(yk_tensor_options, .requires_grad = true)),
              *old = yk_sum(yk_mul(leaf, leaf));
    yk_forward(ddp, x);
    if (!yk_backward(old))
        (void)!yk_backward(old);
}

static void failing_before_the_walk(rank_context *c)
{
    int way = *(const int *)c->arg;
    static const char *const causes[WAYS] = {"(2, 2, 28, 28)", "99", "freed by an earlier backward"};
    yk_module *ddp = yk_ddp(lenet_of(YK_F32, 1), YK_OPTIONS(yk_ddp_options, .group = c->group));
    CHECK_OK(step(ddp, c->rank));
    wait_for_all(c);
    if (c->rank == 1) {
        fail_on_purpose(ddp, way);
        CHECK(yk_last_error() && strstr(yk_last_error()->message, causes[way]), "%s",
              yk_last_error() ? yk_last_error()->message : "no record");
        yk_clear_error();
        for (double until = yk__now() + patience(20); atomic_load(&c->signals[5]) < 2 && yk__now() < until;)
            usleep(1000); /* it lives on: its death would be seen, too */
    } else {
        CHECK_FAILS(step(ddp, c->rank), YK_ERR_CONNECTION, "rank 1 (host ", causes[way]);
        atomic_fetch_add(&c->signals[5], 1);
    }
}

static void test_failing_before_the_walk(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++)
        if (way != IN_LOSS || test_device_type == YK_CPU) /* a GPU finds a wrong label after the walk has begun */
            run_ranks(PROCESSES, 3, failing_before_the_walk, &way, patience(60), true);
}

static void killed(rank_context *c)
{
    yk_module *ddp = prepare(c, die);
    CHECK(ddp, "%s", yk_last_error() ? yk_last_error()->message : "no record");
    double began = yk__now();
    CHECK_FAILS(step(ddp, c->rank), YK_ERR_CONNECTION, "rank 1 (host ", "all_reduce");
    CHECK(yk__now() - began < patience(30), "it took %g s to know", yk__now() - began);
}

static void test_killed(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 3, killed, NULL, patience(60), true);
}

static void stopped(rank_context *c)
{
    yk_module *ddp = prepare(c, stop);
    CHECK(ddp, "%s", yk_last_error() ? yk_last_error()->message : "no record");
    if (c->rank == 1) {
        (void)!step(ddp, 1); /* goes on when it is continued, and finds a broken group */
        yk_clear_error();
        return;
    }
    CHECK_FAILS(step(ddp, c->rank), YK_ERR_STALLED, "rank 1 (host ", "all_reduce");
    atomic_fetch_add(&c->signals[0], 1);
    for (int i = 0; c->rank == 0 && i < 6000 && atomic_load(&c->signals[0]) < 2; i++)
        usleep(10000);
    if (c->rank == 0)
        kill(c->pids[1], SIGCONT);
}

static void test_stopped(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 3, stopped, NULL, patience(2), true);
}

/* A rank that makes another step than the others is told so. */
static void out_of_step(rank_context *c)
{
    yk_module *ddp = yk_ddp(lenet_of(YK_F32, 1), YK_OPTIONS(yk_ddp_options, .group = c->group));
    CHECK(ddp, "%s", yk_last_error()->message);
    if (c->rank == 1)
        CHECK_FAILS(yk_barrier(c->group), YK_ERR_MISMATCH, "barrier", "all_reduce");
    else
        CHECK_FAILS(step(ddp, c->rank), YK_ERR_MISMATCH, "barrier", "all_reduce", "rank 1");
}

static void test_out_of_step(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 2, out_of_step, NULL, patience(10), true);
}

int main(void)
{
    setenv("OMP_NUM_THREADS", "1", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_failing_backward),
                                       cmocka_unit_test(test_failing_before_the_walk), cmocka_unit_test(test_killed),
                                       cmocka_unit_test(test_stopped), cmocka_unit_test(test_out_of_step)};
    return cmocka_run_group_tests_name("ddp_faults", tests, NULL, NULL);
}
