/*
 * sync_batch_norm_test.c - SyncBatchNorm on parts of a batch against BatchNorm on the whole, in float64.
 */
#include "tests/parallel/trainer.h"

#include "nn/module.h"
#include "parallel/reducer.h"

enum { CHANNELS = 3, SIZE = 4 };
static const int64_t image[3] = {CHANNELS, SIZE, SIZE};

typedef struct parts {
    int64_t samples[4]; /* per rank */
    bool relu, residual, no_affine;
    double momentum;
} parts;

typedef struct result {
    yk_tensor *out, *gx, *gresidual;
} result;

/* Forward and backward of samples [first, first + count), with a loss that weighs every element differently. */
static yk_status pass(yk_module *bn, const parts *p, int64_t first, int64_t count, result *r)
{
    yk_tensor *x = samples(1, first, count, 3, image), *residual = samples(2, first, count, 3, image);
    yk_tensor *weights = samples(3, first, count, 3, image);
    if (yk_set_requires_grad(x, true) || yk_set_requires_grad(residual, true))
        return yk_last_error()->code;
    r->out = yk_batch_norm2d_forward(bn, x, p->residual ? residual : NULL, p->relu);
    yk_status status = yk_backward(yk_sum(yk_mul(r->out, weights)));
    r->gx = yk_grad(x);
    r->gresidual = p->residual ? yk_grad(residual) : NULL;
    return status;
}

/* Rows [first, first + count) of the first dimension. */
static yk_tensor *rows(yk_tensor *x, int64_t first, int64_t count)
{
    return yk_narrow(x, 0, first, count);
}

/* True if m is printed as a SyncBatchNorm; a conversion leaves its class. */
static bool printed_as_synchronised(yk_module *m)
{
    char *text;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    bool is = yk_module_print(to, m) == YK_OK && fclose(to) == 0 && strncmp(text, "SyncBatchNorm(3, eps=", 21) == 0;
    free(text);
    return is;
}

static void against_whole(rank_context *c)
{
    const parts *p = c->arg;
    int64_t first = 0, total = 0;
    for (int r = 0; r < c->size; r++) {
        first += r < c->rank ? p->samples[r] : 0;
        total += p->samples[r];
    }
    int64_t count = p->samples[c->rank];
    const yk_batch_norm2d_options o =
        *YK_OPTIONS(yk_batch_norm2d_options, .momentum = p->momentum, .affine = !p->no_affine);
    yk_module *bn = yk_module_to_dtype(known_values(yk_sync_batch_norm2d_create(CHANNELS, &o, c->group), 1), YK_F64);
    yk_module *plain = yk_module_to_dtype(known_values(yk_batch_norm2d_create(CHANNELS, &o), 1), YK_F64);
    CHECK(bn && plain, "%s", yk_last_error()->message);
    CHECK(printed_as_synchronised(bn) && !printed_as_synchronised(plain), "the names as printed");
    result part = {0}, whole = {0};
    CHECK_OK(pass(bn, p, first, count, &part));
    CHECK_OK(pass(plain, p, 0, total, &whole));
    if (count) {
        double d = distance(part.out, rows(whole.out, first, count));
        CHECK(d < 1e-13, "outputs are %g apart", d);
        d = distance(part.gx, rows(whole.gx, first, count));
        CHECK(d < 1e-12, "gradients of the input are %g apart", d);
        d = p->residual ? distance(part.gresidual, rows(whole.gresidual, first, count)) : 0;
        CHECK(d < 1e-13, "gradients of the residual are %g apart", d);
    }
    static const char *const parameters[] = {"weight", "bias"}, *const statistics[] = {"running_mean", "running_var"};
    for (int i = 0; i < 2; i++) {
        double d = distance(yk_module_get(bn, statistics[i]), yk_module_get(plain, statistics[i]));
        CHECK(d < 1e-13, "%s is %g off", statistics[i], d);
        if (p->no_affine)
            continue;
        yk_tensor *g = yk_grad(yk_module_get(bn, parameters[i]));
        CHECK(g, "no gradient of %s", parameters[i]);
        CHECK_OK(yk_all_reduce(g, YK_OP_SUM, c->group));
        d = distance(g, yk_grad(yk_module_get(plain, parameters[i])));
        CHECK(d < 1e-12, "the gradient of %s is %g off", parameters[i], d);
    }
    CHECK(yk_item_i64(yk_module_get(bn, "num_batches_tracked")) == 1, "batches are not counted");
    yk_module_eval(bn);
    yk_module_eval(plain);
    yk_tensor *x = samples(9, c->rank, 1, 3, image); /* each rank its own: nobody communicates */
    double d = distance(yk_forward(bn, x), yk_forward(plain, x));
    CHECK(d < 1e-13, "in evaluation mode outputs are %g apart", d);
}

static void test_against_whole(void **state)
{
    (void)state;
    static const parts cases[] = {
        {{2, 2, 2, 2}, false, false, false, 0.3}, {{5, 1, 2, 3}, true, false, false, 0.3},
        {{1, 4, 0, 2}, true, true, false, 0.3},   {{3, 2, 2, 1}, false, true, false, 0.3},
        {{0, 3, 1, 1}, false, false, true, 0.1},  {{2, 1, 1, 2}, false, false, false, 0},
    };
    for (int i = 0; i < 6; i++) {
        run_ranks(THREADS, 4, against_whole, &cases[i], patience(10), true);
        run_ranks(PROCESSES, 2, against_whole, &cases[i], patience(10), true);
    }
}

/* A network with shared statistics, under DDP: the gradients are those of one process on the joined batch. */
static yk_module *network(void)
{
    yk_module *net = yk_sequential_list(
        (yk_module *[]){
            yk_conv2d_create(CHANNELS, 8, 3, YK_OPTIONS(yk_conv2d_module_options, .padding = 1, .bias = false)),
            yk_batch_norm2d_create(8, NULL), yk_relu_create(),
            yk_conv2d_create(8, 4, 3, YK_OPTIONS(yk_conv2d_module_options, .bias = false)),
            yk_batch_norm2d_create(4, NULL), yk_flatten_create(), yk_linear_create(16, 10, NULL)},
        7);
    return known_values(yk_module_to_dtype(net, YK_F64), 2);
}

static void under_ddp(rank_context *c)
{
    yk_module *net = yk_convert_sync_batch_norm(network(), c->group), *alone = network();
    yk_module *ddp =
        yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group, .bucket_cap_mb = 0.001, .first_bucket_mb = 0.001));
    CHECK(ddp, "%s", yk_last_error()->message);
    CHECK(yk__has_sync_batch_norm(net) && !yk__has_sync_batch_norm(alone), "the conversion");
    for (uint32_t step = 0; step < 3; step++) {
        yk_module_zero_grad(ddp);
        yk_module_zero_grad(alone);
        CHECK_OK(yk_backward(
            yk_cross_entropy(yk_forward(ddp, samples(step, 3 * c->rank, 3, 3, image)), labels(3 * c->rank, 3), NULL)));
        CHECK_OK(yk_backward(yk_cross_entropy(yk_forward(alone, samples(step, 0, 3 * c->size, 3, image)),
                                              labels(0, 3 * c->size), NULL)));
        double d = gradient_distance(net, alone);
        CHECK(d < 1e-11, "step %u: the gradients are %g apart", step, d);
    }
}

/* Its gradient has none: an error that names it. */
static void no_second_gradient(rank_context *c)
{
    yk_module *bn = yk_module_to_dtype(yk_sync_batch_norm2d_create(CHANNELS, NULL, c->group), YK_F64);
    yk_tensor *x = samples(1, c->rank, 1, 3, image), *g;
    CHECK_OK(yk_set_requires_grad(x, true));
    yk_tensor *loss = yk_sum(yk_square(yk_forward(bn, x)));
    CHECK_FAILS(yk_autograd_grad(&loss, 1, &x, 1, NULL, &g, YK_OPTIONS(yk_autograd_grad_options, .create_graph = true)),
                YK_ERR_UNSUPPORTED, "sync_batch_norm: its gradient has no gradient yet");
}

static void test_no_second_gradient(void **state)
{
    (void)state;
    run_ranks(THREADS, 2, no_second_gradient, NULL, patience(10), true);
}

static void single_values(rank_context *c)
{
    yk_module *bn = yk_sync_batch_norm2d_create(2, NULL, c->group);
    CHECK(yk_forward(bn, yk_ones(YK_SHAPE(1, 2, 1, 1), NULL)), "%s", yk_last_error()->message); /* two in all */
    yk_tensor *x = yk_ones(YK_SHAPE(c->rank == 0, 2, 1, 1), NULL);
    CHECK_FAILS(yk_forward(bn, x), YK_ERR_SHAPE, "expected more than 1 value per channel", "all ranks together have 1");
    CHECK_FAILS(yk_forward(bn, yk_ones(YK_SHAPE(1, 3, 1, 1), NULL)), YK_ERR_SHAPE, "expected (N, 2, H, W)");
    yk_module *again = yk_convert_sync_batch_norm(bn, c->group);
    CHECK(again == bn && yk_forward(bn, yk_ones(YK_SHAPE(2, 2, 1, 1), NULL)), "converted twice");
}

/* Nothing on any rank: an empty result, gradients of 0, statistics that stay, and a group that goes on. */
static void nothing_at_all(rank_context *c)
{
    yk_module *bn = yk_sync_batch_norm2d_create(2, NULL, c->group);
    yk_tensor *x = yk_zeros(YK_SHAPE(0, 2, 3, 3), YK_OPTIONS(yk_tensor_options, .requires_grad = true));
    yk_tensor *y = yk_forward(bn, x);
    CHECK(y && yk_size(y, 0) == 0 && yk_size(y, 1) == 2, "%s", yk_last_error()->message);
    CHECK_OK(yk_backward(yk_sum(y)));
    CHECK(yk_item(yk_sum(yk_abs(yk_grad(yk_module_get(bn, "weight"))))) == 0, "the weight's gradient");
    CHECK(yk_item(yk_sum(yk_module_get(bn, "running_mean"))) == 0, "the running mean moved");
    CHECK(yk_item(yk_sum(yk_module_get(bn, "running_var"))) == 2, "the running variance moved");
    CHECK(yk_item_i64(yk_module_get(bn, "num_batches_tracked")) == 1, "the batch was not counted");
    CHECK_OK(yk_barrier(c->group));
    CHECK(yk_forward(bn, yk_ones(YK_SHAPE(c->rank ? 2 : 0, 2, 1, 1), NULL)), "%s", yk_last_error()->message);
}

static void test_in_networks(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 2, under_ddp, NULL, patience(10), true);
    run_ranks(THREADS, 3, under_ddp, NULL, patience(10), true);
    run_ranks(THREADS, 2, single_values, NULL, patience(10), true);
    run_ranks(THREADS, 2, nothing_at_all, NULL, patience(10), true);
    run_ranks(PROCESSES, 2, nothing_at_all, NULL, patience(10), true);
}

int main(void)
{
    setenv("OMP_NUM_THREADS", "1", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_whole), cmocka_unit_test(test_in_networks),
                                       cmocka_unit_test(test_no_second_gradient)};
    return cmocka_run_group_tests_name("sync_batch_norm", tests, NULL, NULL);
}
