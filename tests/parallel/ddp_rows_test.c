/*
 * ddp_rows_test.c - sparse embeddings under DistributedDataParallel: the ranks exchange rows, and come to the gradient
 * of one process; ranks without rows, other uses of the weight, sums before a reduction, uneven inputs.
 */
#include "tests/parallel/trainer.h"

#include "parallel/reducer.h"

enum { ROWS = 50, WIDTH = 4, BATCH = 3 };

typedef struct recommender {
    yk_module *table, *head;
} recommender;

static yk_tensor *recommender_forward(yk_module *self, yk_tensor *x)
{
    recommender *r = yk_module_data(self);
    return yk_forward(r->head, yk_forward(r->table, x));
}

static yk_module *recommender_of(bool sparse)
{
    static const yk_module_class cls = {
        .name = "Recommender", .data_size = sizeof(recommender), .forward = recommender_forward};
    yk_module *m = yk_module_create(&cls);
    recommender *r = yk_module_data(m);
    r->table =
        yk_module_add(m, "table", yk_embedding_create(ROWS, WIDTH, YK_OPTIONS(yk_embedding_options, .sparse = sparse)));
    r->head = yk_module_add(m, "head", yk_linear_create(WIDTH, 2, NULL));
    return known_values(yk_module_to_dtype(m, YK_F64), 3);
}

static yk_tensor *weight_of(yk_module *m)
{
    return yk_module_get(yk_module_get_module(m, "table"), "weight");
}

/* Rank r looks up few rows, of which some are those of others; from the third step on rank 1 looks up none. */
static yk_tensor *loss_of(yk_module *m, int step, int rank)
{
    int64_t index[BATCH];
    int64_t n = step >= 2 && rank == 1 ? 0 : BATCH;
    for (int64_t i = 0; i < n; i++)
        index[i] = (step * 7 + (rank + 1) * i * 3) % ROWS;
    yk_tensor *x = n ? yk_from_data(index, YK_SHAPE(n), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64))
                     : yk_zeros(YK_SHAPE(0), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    return yk_sum(yk_square(yk_forward(m, x)));
}

static double distance_of(yk_tensor *a, yk_tensor *b)
{
    return a && b ? yk_item(yk_max(yk_abs(yk_sub(a, b)))) : NAN;
}

/* The mean of the ranks' gradients of a step, added to what `alone` has. */
static yk_status add_expected(yk_module *alone, int step, int size)
{
    for (int r = 0; r < size; r++)
        if (yk_backward(yk_mul_scalar(loss_of(alone, step, r), 1.0 / size)))
            return yk_last_error()->code;
    return YK_OK;
}

static void gradients_of_ranks(rank_context *c)
{
    yk_module *net = recommender_of(true), *alone = recommender_of(false);
    yk_module *ddp = yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group));
    CHECK(ddp, "%s", yk_last_error()->message);
    yk_optimizer *sgd = yk_sgd(yk_module_parameters(ddp), YK_OPTIONS(yk_sgd_options, .lr = 0.05));
    yk_optimizer *other = yk_sgd(yk_module_parameters(alone), YK_OPTIONS(yk_sgd_options, .lr = 0.05));
    for (int step = 0; step < 5; step++) {
        yk_scope scope = yk_scope_begin();
        yk_optimizer_zero_grad(sgd);
        yk_optimizer_zero_grad(other);
        if (step == 1) { /* two backwards, one of them without a reduction */
            bool before = yk_no_sync_begin(ddp);
            CHECK_OK(yk_backward(loss_of(ddp, 9, c->rank)));
            yk_no_sync_end(ddp, before);
            CHECK_OK(add_expected(alone, 9, c->size));
        }
        CHECK_OK(yk_backward(loss_of(ddp, step, c->rank)));
        CHECK_OK(add_expected(alone, step, c->size));
        yk_tensor *w = weight_of(net), *indices, *rows;
        CHECK_OK(yk_grad_rows(w, &indices, &rows));
        CHECK(indices && !yk_grad(w) && yk_numel(indices) <= 2 * BATCH * c->size, "no rows in step %d", step);
        double d = distance_of(yk_grad_to_dense(w), yk_grad(weight_of(alone)));
        CHECK(d < 1e-14, "step %d: the gradient is %g off", step, d);
        /* The same bits on all ranks. */
        yk_tensor *first = yk_clone(rows);
        CHECK_OK(yk_broadcast(first, 0, c->group));
        CHECK(distance_of(first, rows) == 0, "step %d: rank %d has other bits", step, c->rank);
        CHECK_OK(yk_clip_grad_norm(yk_module_parameters(ddp), 0.5, NULL));
        CHECK_OK(yk_clip_grad_norm(yk_module_parameters(alone), 0.5, NULL));
        CHECK_OK(yk_optimizer_step(sgd));
        CHECK_OK(yk_optimizer_step(other));
        yk_scope_end(scope);
    }
    double d = parameter_distance(net, alone);
    CHECK(d < 1e-13, "the model is %g from that of one process", d);
    /* Rank 0 uses the weight otherwise, too: all have the gradient of all elements. */
    yk_module_zero_grad(ddp);
    yk_module_zero_grad(alone);
    yk_tensor *loss = loss_of(ddp, 0, c->rank);
    if (c->rank == 0)
        loss = yk_add(loss, yk_sum(yk_square(weight_of(net))));
    CHECK_OK(yk_backward(loss));
    CHECK_OK(add_expected(alone, 0, c->size));
    CHECK_OK(yk_backward(yk_mul_scalar(yk_sum(yk_square(weight_of(alone))), 1.0 / c->size)));
    d = distance_of(yk_grad(weight_of(net)), yk_grad(weight_of(alone)));
    CHECK(d < 1e-13, "with another use it is %g off", d);
}

static void test_gradients(void **state)
{
    (void)state;
    run_ranks(THREADS, 3, gradients_of_ranks, NULL, patience(10), true);
    run_ranks(PROCESSES, 2, gradients_of_ranks, NULL, patience(10), true);
}

/* With a communication hook, and where nothing else is trained, rows are in the buckets, as all elements. */
static yk_work *plain_start(yk_ddp_bucket *bucket, void *user)
{
    (void)user;
    return yk_all_reduce_async(bucket->gradients, YK_OP_MEAN, bucket->group);
}

static void in_buckets(rank_context *c)
{
    yk_ddp_comm_hook hook = {.start = plain_start};
    for (int way = 0; way < 2; way++) {
        yk_module *net = recommender_of(true), *alone = recommender_of(false);
        yk_module *table = yk_module_get_module(net, "table"), *inner = way ? table : net;
        yk_module *ddp = yk_ddp(inner, YK_OPTIONS(yk_ddp_options, .group = c->group, .comm_hook = way ? NULL : &hook));
        CHECK(ddp, "%s", yk_last_error()->message);
        int64_t index[1] = {c->rank};
        yk_tensor *x = yk_from_data(index, YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
        CHECK_OK(yk_backward(way ? yk_sum(yk_square(yk_forward(ddp, x))) : loss_of(ddp, 0, c->rank)));
        yk_tensor *w = weight_of(net);
        CHECK(yk_grad(w), "no gradient of all elements");
        if (!way)
            CHECK_OK(add_expected(alone, 0, c->size));
        for (int r = 0; r < c->size && way; r++)
            CHECK_OK(yk_backward(yk_mul_scalar(yk_sum(yk_square(yk_select(weight_of(alone), 0, r))), 1.0 / c->size)));
        double d = distance_of(yk_grad(w), yk_grad(weight_of(alone)));
        CHECK(d < 1e-14, "way %d: the gradient is %g off", way, d);
    }
}

static void test_in_buckets(void **state)
{
    (void)state;
    run_ranks(THREADS, 2, in_buckets, NULL, patience(10), true);
}

static void uneven(rank_context *c)
{
    static const int batches[] = {3, 1, 2};
    const bool by_active = *(const bool *)c->arg;
    yk_module *net = recommender_of(true), *alone = recommender_of(false);
    yk_module *ddp = yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group));
    CHECK(ddp, "%s", yk_last_error()->message);
    yk_optimizer *sgd = yk_sgd(yk_module_parameters(ddp), YK_OPTIONS(yk_sgd_options, .lr = 0.05));
    yk_optimizer *other = yk_sgd(yk_module_parameters(alone), YK_OPTIONS(yk_sgd_options, .lr = 0.05));
    CHECK_OK(yk_join_begin(ddp, YK_OPTIONS(yk_join_options, .divide_by_active = by_active)));
    for (int step = 0; step < batches[c->rank]; step++) {
        yk_scope scope = yk_scope_begin();
        yk_optimizer_zero_grad(sgd);
        CHECK_OK(yk_backward(loss_of(ddp, step, c->rank)));
        CHECK_OK(yk_optimizer_step(sgd));
        yk_scope_end(scope);
    }
    CHECK_OK(yk_join_end(ddp));
    for (int step = 0; step < 3; step++) {
        yk_optimizer_zero_grad(other);
        int active = (batches[0] > step) + (batches[1] > step) + (batches[2] > step);
        for (int r = 0; r < 3; r++)
            if (batches[r] > step)
                CHECK_OK(yk_backward(yk_mul_scalar(loss_of(alone, step, r), 1.0 / (by_active ? active : 3))));
        CHECK_OK(yk_optimizer_step(other));
    }
    double d = parameter_distance(net, alone);
    CHECK(d < 1e-13, "the model is %g from that of one process", d);
}

static void test_uneven_inputs(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        run_ranks(THREADS, 3, uneven, &(bool){i}, patience(10), true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_in_buckets),
        cmocka_unit_test(test_uneven_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
