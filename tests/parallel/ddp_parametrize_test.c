/*
 * ddp_parametrize_test.c - weight_norm and spectral_norm under DistributedDataParallel: the ranks train as one process
 * does with all their samples.
 */
#include "tests/parallel/trainer.h"

enum { BATCH = 3, WIDTH = 4, STEPS = 4 };

static yk_module *network(void)
{
    yk_module *m = yk_sequential(yk_weight_norm(yk_linear_create(WIDTH, 5, NULL), "weight", NULL), yk_tanh_create(),
                                 yk_spectral_norm(yk_linear_create(5, 2, NULL), "weight", NULL));
    return known_values(yk_module_to_dtype(m, YK_F64), 3);
}

/* The inputs of `count` ranks from `first` on. */
static yk_tensor *inputs_of(int step, int first, int count)
{
    double values[16 * BATCH * WIDTH];
    int n = count * BATCH * WIDTH;
    for (int i = 0; i < n; i++)
        values[i] = sin(0.3 * (first * BATCH * WIDTH + i) + step);
    return yk_from_data(values, YK_SHAPE((int64_t)count * BATCH, WIDTH),
                        YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
}

static void trains_as_one(rank_context *c)
{
    yk_module *net = network(), *alone = network();
    CHECK_OK(yk_module_load_state_dict(net, yk_module_state_dict(alone), NULL, NULL));
    yk_module *ddp = yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group));
    CHECK(ddp, "%s", yk_last_error()->message);
    /* The random vectors of rank 0 are those of all. */
    CHECK_OK(yk_module_load_state_dict(alone, yk_module_state_dict(net), NULL, NULL));
    yk_optimizer *sgd = yk_sgd(yk_module_parameters(ddp), YK_OPTIONS(yk_sgd_options, .lr = 0.1));
    yk_optimizer *other = yk_sgd(yk_module_parameters(alone), YK_OPTIONS(yk_sgd_options, .lr = 0.1));
    for (int step = 0; step < STEPS; step++) {
        yk_scope scope = yk_scope_begin();
        yk_optimizer_zero_grad(sgd);
        yk_optimizer_zero_grad(other);
        CHECK_OK(yk_backward(yk_sum(yk_square(yk_forward(ddp, inputs_of(step, c->rank, 1))))));
        yk_tensor *all = yk_sum(yk_square(yk_forward(alone, inputs_of(step, 0, c->size))));
        CHECK_OK(yk_backward(yk_div_scalar(all, c->size)));
        CHECK_OK(yk_optimizer_step(sgd));
        CHECK_OK(yk_optimizer_step(other));
        yk_scope_end(scope);
    }
    double d = parameter_distance(net, alone);
    CHECK(d < 1e-13, "the model is %g from that of one process", d);
    yk_tensor *u = yk_module_get(net, "2.parametrizations.weight.0._u");
    d = yk_item(yk_max(yk_abs(yk_sub(u, yk_module_get(alone, "2.parametrizations.weight.0._u")))));
    CHECK(d < 1e-13, "the singular vector is %g off", d);
}

static void test_training(void **state)
{
    (void)state;
    run_ranks(THREADS, 2, trains_as_one, NULL, patience(10), true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_training)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
