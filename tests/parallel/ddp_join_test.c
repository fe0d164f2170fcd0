/*
 * ddp_join_test.c - ranks with different numbers of batches: gradients against plain sums, and the model at the end.
 */
#include "tests/parallel/trainer.h"

#include "parallel/reducer.h"

static const int64_t image[3] = {1, 28, 28};
enum { PART = 2, LR_DENOMINATOR = 20 };

typedef struct uneven {
    int batches[4]; /* per rank */
    bool divide_by_active, find_unused;
} uneven;

static yk_tensor *loss_of(yk_module *net, int step, int rank, int size)
{
    return yk_cross_entropy(yk_forward(net, samples((uint32_t)step, rank * PART, PART, 3, image)),
                            labels(size * PART * step + rank * PART, PART), NULL);
}

/* The model that all ranks should have at the end: steps made by one process of the ranks that have input. */
static yk_status expected_model(yk_module *net, const uneven *u, int size)
{
    yk_optimizer *sgd = yk_sgd(yk_module_parameters(net), YK_OPTIONS(yk_sgd_options, .lr = 1.0 / LR_DENOMINATOR));
    for (int step = 0;; step++) {
        int active = 0;
        for (int r = 0; r < size; r++)
            active += step < u->batches[r];
        if (!active)
            return YK_OK;
        yk_scope scope = yk_scope_begin();
        yk_optimizer_zero_grad(sgd);
        for (int r = 0; r < size; r++) {
            if (step >= u->batches[r])
                continue;
            yk_tensor *loss = yk_mul_scalar(loss_of(net, step, r, size), 1.0 / (u->divide_by_active ? active : size));
            if (yk_backward(loss))
                return yk_last_error()->code;
        }
        if (yk_optimizer_step(sgd))
            return yk_last_error()->code;
        yk_scope_end(scope);
    }
}

static void uneven_inputs(rank_context *c)
{
    const uneven *u = c->arg;
    yk_module *net = lenet_of(YK_F64, 1), *alone = lenet_of(YK_F64, 1);
    yk_module *ddp = yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group, .first_bucket_mb = 0.02,
                                            .bucket_cap_mb = 0.1, .find_unused_parameters = u->find_unused));
    CHECK(ddp, "%s", yk_last_error()->message);
    yk_optimizer *sgd = yk_sgd(yk_module_parameters(ddp), YK_OPTIONS(yk_sgd_options, .lr = 1.0 / LR_DENOMINATOR));
    CHECK_OK(yk_join_begin(ddp, YK_OPTIONS(yk_join_options, .divide_by_active = u->divide_by_active)));
    for (int step = 0; step < u->batches[c->rank]; step++) {
        yk_scope scope = yk_scope_begin();
        yk_optimizer_zero_grad(sgd);
        CHECK_OK(yk_backward(loss_of(ddp, step, c->rank, c->size)));
        CHECK_OK(yk_optimizer_step(sgd));
        yk_scope_end(scope);
    }
    CHECK_OK(yk_join_end(ddp));
    CHECK_OK(expected_model(alone, u, c->size));
    double d = parameter_distance(net, alone);
    CHECK(d < 1e-12, "the model is %g from that of one process", d);
    /* And then it goes on as before. */
    yk_module_zero_grad(ddp);
    yk_module_zero_grad(alone);
    CHECK_OK(yk_backward(loss_of(ddp, 50, 0, c->size)));
    CHECK_OK(yk_backward(loss_of(alone, 50, 0, c->size)));
    d = gradient_distance(net, alone);
    CHECK(d < 1e-12, "after the join the gradients are %g off", d);
}

static void test_uneven_inputs(void **state)
{
    (void)state;
    static const uneven cases[] = {
        {{3, 1, 2, 4}, false, false}, {{0, 3, 1, 2}, true, false}, {{2, 2, 2, 2}, true, false},
        {{0, 0, 0, 0}, false, false}, {{1, 3, 0, 2}, true, true},  {{0, 1, 1, 1}, false, false},
        {{1, 0, 1, 0}, false, false}, /* a rank without input in the only step knows no order of gradients */
    };
    for (int i = 0; i < 7; i++) {
        run_ranks(THREADS, 4, uneven_inputs, &cases[i], patience(10), true);
        run_ranks(PROCESSES, 2 + i % 2, uneven_inputs, &cases[i], patience(10), true);
    }
}

/* Buffers come from a rank that has input. */
static void buffers(rank_context *c)
{
    yk_module *net = yk_sequential(yk_batch_norm2d_create(2, YK_OPTIONS(yk_batch_norm2d_options, .momentum = 0.5)));
    yk_module *ddp = yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group));
    CHECK(ddp, "%s", yk_last_error()->message);
    yk_tensor *mean = yk_module_get(net, "0.running_mean");
    CHECK_OK(yk_join_begin(ddp, NULL));
    for (int step = 0; step < (c->rank == 1 ? 3 : 1); step++) {
        yk_tensor *x = yk_add_scalar(yk_randn(YK_SHAPE(4, 2, 3, 3), NULL), 10);
        yk_tensor *y = yk_forward(ddp, x);
        CHECK_OK(yk_backward(yk_mean(yk_mul(y, y))));
    }
    double before = yk_get(mean, (int64_t[]){0});
    CHECK_OK(yk_join_end(ddp));
    double after = yk_get(mean, (int64_t[]){0});
    CHECK(c->rank == 1 ? after == before : after != before && after > 7, "rank %d: %g, then %g", c->rank, before,
          after);
}

static void too_early(rank_context *c)
{
    yk_module *net = yk_sequential(yk_linear_create(3, 2, NULL));
    yk_module *ddp = yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group));
    CHECK(ddp, "%s", yk_last_error()->message);
    CHECK_FAILS(yk_join_end(ddp), YK_ERR_STATE, "no join_begin");
    CHECK_OK(yk_join_begin(ddp, YK_OPTIONS(yk_join_options, .throw_on_early_termination = true)));
    CHECK_FAILS(yk_join_begin(ddp, NULL), YK_ERR_STATE, "begun already");
    yk_tensor *x = yk_ones(YK_SHAPE(1, 3), NULL);
    CHECK_OK(yk_backward(yk_sum(yk_forward(ddp, x))));
    if (c->rank != 1) {
        CHECK(!yk_forward(ddp, x) && yk_last_error(), "a forward without rank 1");
        CHECK(yk_join_end(ddp) == YK_ERR_STATE, "the end of the join forgot the error");
        CHECK(strstr(yk_last_error()->message, "rank 1 has no more input"), "%s", yk_last_error()->message);
        yk_clear_error();
    } else {
        CHECK_FAILS(yk_join_end(ddp), YK_ERR_STATE, "rank 1 has no more input");
    }
    CHECK_OK(yk_barrier(c->group)); /* it is not broken */
    CHECK_OK(yk_backward(yk_sum(yk_forward(ddp, x))));
    CHECK(yk_convert_sync_batch_norm(net, c->group), "%s", yk_last_error()->message);
}

/* It is forwards that are counted: a rank that has ended answers what is left of the others' last one. */
static void another_backward(rank_context *c)
{
    yk_module *net = yk_sequential(yk_linear_create(3, 2, YK_OPTIONS(yk_linear_options, .bias = false)));
    yk_module *ddp = yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group));
    CHECK_OK(yk_join_begin(ddp, YK_OPTIONS(yk_join_options, .throw_on_early_termination = true)));
    yk_tensor *loss = yk_sum(yk_forward(ddp, yk_ones(YK_SHAPE(1, 3), NULL)));
    CHECK_OK(yk_backward_with(loss, YK_OPTIONS(yk_backward_options, .retain_graph = true)));
    if (c->rank == 1) {
        CHECK_OK(yk_backward(loss));
        double got = yk_get(yk_grad(yk_module_get(net, "0.weight")), (int64_t[]){1, 2});
        CHECK(fabs(got - 1) < 1e-6, "the gradient is %g: (1 + 1) of this rank and nothing of the other make 1", got);
    }
    CHECK_OK(yk_join_end(ddp));
}

static void sync_batch_norm_needs_all(rank_context *c)
{
    yk_module *net = yk_sequential(yk_sync_batch_norm2d_create(2, NULL, c->group));
    yk_module *ddp = yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group));
    CHECK_FAILS(yk_join_begin(ddp, NULL), YK_ERR_UNSUPPORTED, "SyncBatchNorm", "throw_on_early_termination");
    CHECK_OK(yk_join_begin(ddp, YK_OPTIONS(yk_join_options, .throw_on_early_termination = true)));
    CHECK_OK(yk_join_end(ddp));
}

/* An error between begin and end reaches the others, who would wait. */
static void error_inside(rank_context *c)
{
    yk_module *net = yk_sequential(yk_linear_create(3, 2, NULL));
    yk_module *ddp = yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group));
    CHECK_OK(yk_join_begin(ddp, NULL));
    if (c->rank == 1) {
        CHECK(!yk_forward(ddp, yk_ones(YK_SHAPE(1, 7), NULL)), "a wrong shape went through");
        CHECK(yk_join_end(ddp) == YK_ERR_SHAPE, "%s", yk_last_error() ? yk_last_error()->message : "no record");
        yk_clear_error();
        return;
    }
    double began = yk__now();
    yk_status status = YK_OK;
    for (int step = 0; step < 3 && !status; step++)
        status = yk_backward(yk_sum(yk_forward(ddp, yk_ones(YK_SHAPE(1, 3), NULL))));
    if (!status)
        status = yk_join_end(ddp);
    CHECK(status == YK_ERR_CONNECTION && strstr(yk_last_error()->message, "given up by rank 1"), "status %d: %s",
          (int)status, yk_last_error() ? yk_last_error()->message : "no record");
    CHECK(yk__now() - began < patience(15), "it took %g s", yk__now() - began); /* of 20 */
    yk_clear_error();
    CHECK(yk_join_end(ddp) != YK_OK, "the end of a broken join");
    yk_clear_error();
}

/* Ranks that have input and do not do the same. */
static void different_ways(rank_context *c)
{
    yk_module *net = yk_sequential(yk_batch_norm2d_create(2, NULL));
    yk_module *ddp = yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group));
    CHECK_OK(yk_join_begin(ddp, NULL));
    if (c->rank == 1)
        yk_module_eval(ddp);
    double began = yk__now();
    CHECK_FAILS(yk_forward(ddp, yk_ones(YK_SHAPE(2, 2, 3, 3), NULL)), YK_ERR_MISMATCH,
                "rank 0 is at a forward, rank 1 at a forward with other settings");
    CHECK(yk__now() - began < patience(8), "it took %g s", yk__now() - began);
}

static void test_ends(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 3, buffers, NULL, patience(10), true);
    run_ranks(THREADS, 3, too_early, NULL, patience(10), true);
    run_ranks(THREADS, 2, another_backward, NULL, patience(10), true);
    run_ranks(THREADS, 2, sync_batch_norm_needs_all, NULL, patience(10), true);
    run_ranks(THREADS, 2, different_ways, NULL, patience(10), true);
    run_ranks(PROCESSES, 3, error_inside, NULL, patience(20), true);
}

int main(void)
{
    setenv("OMP_NUM_THREADS", "1", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_uneven_inputs), cmocka_unit_test(test_ends)};
    return cmocka_run_group_tests_name("ddp_join", tests, NULL, NULL);
}
