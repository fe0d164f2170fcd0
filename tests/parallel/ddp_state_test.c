/*
 * ddp_state_test.c - tensors of a model that DistributedDataParallel writes, which others have to notice: master
 * weights after the first broadcast and after yk_join_end, buffers between two forwards of one backward.
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

/* Two forwards, then one backward, of a model that keeps a buffer for its gradient: a factor, or the statistics of a
 * batch norm that does not train. */
typedef struct keeper {
    yk_tensor *scale, *buffer;
    yk_module *norm;
} keeper;

static yk_tensor *keeper_forward(yk_module *self, yk_tensor *x)
{
    keeper *k = yk_module_data(self);
    if (k->buffer)
        return yk_sum(yk_mul(yk_mul(x, k->scale), k->buffer));
    yk_tensor *image = yk_reshape(x, YK_SHAPE(1, 2, 1, 1));
    return yk_sum(yk_mul(yk_forward(k->norm, image), yk_reshape(k->scale, YK_SHAPE(1, 2, 1, 1))));
}

static void two_forwards(rank_context *c)
{
    static const yk_module_class keeper_class = {
        .name = "Keeper", .data_size = sizeof(keeper), .forward = keeper_forward};
    for (int norm = 1; norm >= 0; norm--) {
        yk_module *m = yk_module_create(&keeper_class);
        keeper *k = yk_module_data(m);
        k->scale = yk_module_add_parameter(m, "scale", yk_ones(YK_SHAPE(2), NULL));
        if (norm)
            k->norm = yk_module_add(m, "norm", yk_batch_norm2d_create(2, NULL));
        else
            k->buffer = yk_module_add_buffer(m, "buffer", yk_full(YK_SHAPE(2), 1 + c->rank, NULL));
        yk_module *ddp = yk_ddp(m, YK_OPTIONS(yk_ddp_options, .group = c->group, .find_unused_parameters = true));
        CHECK(ddp, "%s", yk_last_error()->message);
        if (norm)
            yk_module_eval(k->norm);
        yk_tensor *x = yk_from_data(c->rank ? (float[]){3, 4} : (float[]){1, 2}, YK_SHAPE(1, 2), NULL);
        yk_tensor *first = yk_forward(ddp, x), *second = yk_forward(ddp, x);
        CHECK_OK(yk_backward(yk_add(first, second)));
        for (int64_t i = 0; i < 2; i++)
            CHECK(fabs(yk_get(yk_grad(k->scale), &i) - (4 + 2 * (double)i)) < 1e-4, "gradient %d is %g", (int)i,
                  yk_get(yk_grad(k->scale), &i));
        /* A write by the program between the two is still noticed, and gives up the group. */
        yk_module_zero_grad(m);
        first = yk_forward(ddp, x);
        if (!norm) {
            yk_fill_(k->buffer, 7);
            second = yk_forward(ddp, x);
            CHECK(second, "%s", yk_last_error()->message);
            CHECK(yk_backward(yk_add(first, second)) != YK_OK, "a buffer that was written was not noticed");
            CHECK(expect_says(yk_last_error()->message, "modified by an inplace"), "%s", yk_last_error()->message);
            yk_clear_error();
        }
    }
}

static void test_two_forwards(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 2, two_forwards, NULL, patience(20), true);
}

/* A parameter that is wrapped already: an error on all ranks, and the group works on. */
static void wrapped_twice(rank_context *c)
{
    yk_module *shared = yk_linear_create(2, 2, NULL);
    yk_module *ddp = yk_ddp(shared, YK_OPTIONS(yk_ddp_options, .group = c->group));
    CHECK(ddp, "%s", yk_last_error()->message);
    yk_module *both = yk_sequential(shared, yk_linear_create(2, 2, NULL));
    CHECK_FAILS(yk_ddp(both, YK_OPTIONS(yk_ddp_options, .group = c->group)), YK_ERR_STATE,
                "ddp: parameter 0.weight belongs to another module of yk_ddp already");
    /* On one rank alone: all fail, and say whose. */
    yk_module *own = yk_sequential(c->rank ? shared : yk_linear_create(2, 2, NULL));
    CHECK_FAILS(yk_ddp(own, YK_OPTIONS(yk_ddp_options, .group = c->group)), YK_ERR_MISMATCH, "rank 1",
                "belongs to another module of yk_ddp");
    CHECK_OK(yk_barrier(c->group));
    CHECK_OK(yk_backward(yk_sum(yk_forward(ddp, yk_ones(YK_SHAPE(1, 2), NULL)))));
}

static void test_wrapped_twice(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 2, wrapped_twice, NULL, patience(20), true);
    run_ranks(THREADS, 2, wrapped_twice, NULL, patience(20), true);
}

/* A process that a launcher made one of several ranks, and that made no group. */
static void test_no_group(void **state)
{
    (void)state;
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "4", 1);
    yk_scope scope = yk_scope_begin();
    yk_module *m = yk_sequential(yk_conv2d_create(1, 2, 1, NULL), yk_batch_norm2d_create(2, NULL));
    assert_null(yk_ddp(m, NULL));
    expect_error(YK_ERR_STATE, "ddp: this process is rank 1 of 4");
    assert_null(yk_convert_sync_batch_norm(m, NULL));
    expect_error(YK_ERR_STATE, "call yk_init_process_group");
    assert_null(yk_sync_batch_norm2d_create(2, NULL, NULL));
    expect_error(YK_ERR_STATE, "convert_sync_batch_norm: this process is rank 1 of 4");
    setenv("WORLD_SIZE", "1", 1);
    setenv("RANK", "0", 1);
    assert_non_null(yk_ddp(m, NULL));
    unsetenv("RANK");
    setenv("WORLD_SIZE", "2", 1);
    assert_null(yk_ddp(m, NULL));
    expect_error(YK_ERR_ARGUMENT, "ddp: RANK is not set, though WORLD_SIZE is");
    unsetenv("WORLD_SIZE");
    assert_non_null(yk_ddp(m, NULL));
    yk_scope_end(scope);
}

int main(void)
{
    setenv("OMP_NUM_THREADS", "1", 1); /* ranks are forked: no pool of the parent's may be half there */
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_master_weights), cmocka_unit_test(test_two_forwards),
                                       cmocka_unit_test(test_wrapped_twice), cmocka_unit_test(test_no_group)};
    return cmocka_run_group_tests_name("ddp_state", tests, NULL, NULL);
}
