/*
 * ddp_state_test.c - what DistributedDataParallel writes to a model's tensors, and who else has to know: master weights
 * after the first broadcast and after yk_join_end, buffers between two forwards of one backward.
 */
#include "tests/parallel/trainer.h"

static yk_module *half_net(int rank)
{
    yk_module *m = yk_linear_create(3, 2, NULL);
    return yk_module_to_dtype(known_values(m, (uint32_t)rank), YK_BF16);
}

static yk_optimizer *half_sgd(yk_module *m)
{
    return yk_sgd(yk_module_parameters(m), YK_OPTIONS(yk_sgd_options, .lr = 0.003, .master_weights = true));
}

static yk_status half_step(yk_module *m, yk_optimizer *o)
{
    yk_optimizer_zero_grad(o);
    yk_tensor *x = yk_ones(YK_SHAPE(1, 3), YK_OPTIONS(yk_tensor_options, .dtype = YK_BF16));
    yk_status status = yk_backward(yk_sum(yk_forward(m, x)));
    return status ? status : yk_optimizer_step(o);
}

/* All ranks' parameters have the same bits, and so have their master weights. */
static void check_equal(rank_context *c, yk_module *m, yk_optimizer *o, const char *when)
{
    if (c->failure[0])
        return;
    yk_parameters *list = yk_module_parameters(m);
    for (int64_t i = 0; i < yk_parameters_count(list); i++) {
        yk_tensor *x = yk_parameters_at(list, i);
        yk_tensor *both[2] = {yk_cast(yk_detach(x), YK_F32), yk_optimizer_state(o, x, "master_weight")};
        for (int k = 0; k < 2 && both[k]; k++) {
            yk_tensor *first = yk_clone(both[k]);
            CHECK_OK(yk_broadcast(first, 0, c->group));
            CHECK(distance(first, both[k]) == 0, "%s: %s %s is not that of rank 0", when,
                  k ? "the master weight of" : "parameter", yk_parameters_name(list, i));
        }
    }
}

static void master_weights(rank_context *c)
{
    yk_module *net = half_net(c->rank);
    yk_optimizer *o = half_sgd(net);
    for (int i = 0; i < 7 + c->rank; i++) /* trained apart, before */
        CHECK_OK(half_step(net, o));
    yk_module *ddp = yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group));
    CHECK(ddp, "%s", yk_last_error()->message);
    for (int i = 0; i < 5; i++) {
        CHECK_OK(half_step(ddp, o));
        check_equal(c, net, o, "after yk_ddp");
    }
    CHECK_OK(yk_join_begin(ddp, NULL));
    for (int i = 0; i < 1 + 2 * c->rank; i++)
        CHECK_OK(half_step(ddp, o));
    CHECK_OK(yk_join_end(ddp));
    for (int i = 0; i < 5; i++) {
        CHECK_OK(half_step(ddp, o));
        check_equal(c, net, o, "after yk_join_end");
    }
    /* The same where the program itself reduces, or broadcasts, parameters of ranks that trained apart. */
    yk_module *own = half_net(c->rank);
    o = half_sgd(own);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 7 + c->rank; i++)
            CHECK_OK(half_step(own, o));
        yk_parameters *list = yk_module_parameters(own);
        bool before = yk_no_grad_begin();
        for (int64_t i = 0; i < yk_parameters_count(list); i++)
            CHECK_OK(round ? yk_broadcast(yk_parameters_at(list, i), 1, c->group)
                           : yk_all_reduce(yk_parameters_at(list, i), YK_OP_MAX, c->group));
        yk_no_grad_end(before);
        CHECK_OK(half_step(own, o));
        check_equal(c, own, o, round ? "after a broadcast" : "after a reduction");
    }
}

static void test_master_weights(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 2, master_weights, NULL, patience(20), true);
    run_ranks(THREADS, 3, master_weights, NULL, patience(20), true);
}

int main(void)
{
    setenv("OMP_NUM_THREADS", "1", 1); /* ranks are forked: no pool of the parent's may be half there */
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_master_weights)};
    return cmocka_run_group_tests_name("ddp_state", tests, NULL, NULL);
}
