/*
 * ddp_parity_test.c - training on two ranks against PyTorch's DDP with Gloo, in float64: every rank's loss, step by
 * step, and the parameters at the end.
 *
 * With the name of a file as argument it follows what tests/parity/ddp_compare.py wrote there instead.
 */
#include "tests/comm/ranks.h"

#include <yoke/optim.h>
#include <yoke/parallel.h>

#include "tests/golden/ddp_golden.h"
#include "tests/parity/runs.h"

enum { WORLD = 2 };

typedef struct expected {
    run r;
    int steps, parameters;
    const double (*losses)[WORLD];
    const double *norms;
} expected;

static double worst_of(double worst, double value, double wanted)
{
    double error = fabs(value - wanted) / fabs(wanted);
    return error > worst || isnan(error) ? error : worst;
}

static void follow(rank_context *c)
{
    const expected *e = c->arg;
    yk_module *net = make_model(&e->r, YK_F64);
    yk_parameters *list = yk_module_parameters(net);
    bool recording = yk_no_grad_begin();
    for (int64_t p = 0; c->rank && p < yk_parameters_count(list); p++)
        CHECK(yk_fill_(yk_parameters_at(list, p), 0), "%s", yk_last_error()->message);
    yk_no_grad_end(recording);
    yk_module *ddp = yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group));
    CHECK(ddp, "%s", yk_last_error()->message);
    yk_optimizer *sgd =
        yk_sgd(list, YK_OPTIONS(yk_sgd_options, .lr = e->r.lr, .momentum = 0.9, .weight_decay = e->r.weight_decay));
    double worst = 0;
    for (int step = 0; step < e->steps; step++) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *x, *y;
        make_batch(&e->r, step * WORLD + c->rank, YK_F64, &x, &y);
        yk_tensor *loss = yk_cross_entropy(yk_forward(ddp, x), y, NULL);
        worst = worst_of(worst, yk_item(loss), e->losses[step][c->rank]);
        CHECK(worst <= 1e-9, "%s step %d: loss %.17g, PyTorch has %.17g", e->r.model, step, yk_item(loss),
              e->losses[step][c->rank]);
        yk_optimizer_zero_grad(sgd);
        CHECK_OK(yk_backward(loss));
        CHECK_OK(yk_optimizer_step(sgd));
        yk_scope_end(scope);
    }
    CHECK(yk_parameters_count(list) == e->parameters, "%d parameters", (int)yk_parameters_count(list));
    double norms = 0;
    for (int p = 0; p < e->parameters; p++) {
        yk_tensor *w = yk_detach(yk_parameters_at(list, p));
        norms = worst_of(norms, sqrt(yk_item(yk_sum(yk_mul(w, w)))), e->norms[p]);
        CHECK(norms <= 1e-9, "%s: norm of %s is %g off", e->r.model, yk_parameters_name(list, p), norms);
    }
    if (c->rank == 0)
        printf("# %s: %d float64 steps on 2 ranks, largest difference %.2g in losses, %.2g in parameters\n", e->r.model,
               e->steps, worst, norms);
    fflush(stdout);
}

#define COUNT(array) (int)(sizeof(array) / sizeof((array)[0]))

static void test_lenet(void **state)
{
    (void)state;
    const expected e = {{"lenet", 4, 1, 28, 0.01, 0},
                        COUNT(ddp_lenet_losses),
                        COUNT(ddp_lenet_norms),
                        ddp_lenet_losses,
                        ddp_lenet_norms};
    run_ranks(PROCESSES, WORLD, follow, &e, patience(30), true);
}

static void test_resnet18(void **state)
{
    (void)state;
    const expected e = {{"resnet18", 4, 3, 32, 0.01, 1e-5},
                        COUNT(ddp_resnet18_losses),
                        COUNT(ddp_resnet18_norms),
                        ddp_resnet18_losses,
                        ddp_resnet18_norms};
    run_ranks(PROCESSES, WORLD, follow, &e, patience(30), true);
}

static const char *path;

static void test_file(void **state)
{
    (void)state;
    enum { MOST = 1000 };
    static double losses[MOST][WORLD], norms[MOST];
    static char model[40];
    expected e = {.r = {.model = model}, .losses = (const double(*)[WORLD])losses, .norms = norms};
    FILE *from = fopen(path, "r");
    assert_non_null(from);
    long long batch, channels, size;
    assert_int_equal(fscanf(from, "%39s %lld %lld %lld %lf %lf %d %d", model, &batch, &channels, &size, &e.r.lr,
                            &e.r.weight_decay, &e.steps, &e.parameters),
                     8);
    e.r.batch = batch, e.r.channels = channels, e.r.size = size;
    assert_true(e.steps > 0 && e.steps <= MOST && e.parameters > 0 && e.parameters <= MOST);
    for (int i = 0; i < e.steps; i++)
        assert_int_equal(fscanf(from, "%lf %lf", &losses[i][0], &losses[i][1]), 2);
    for (int i = 0; i < e.parameters; i++)
        assert_int_equal(fscanf(from, "%lf", &norms[i]), 1);
    fclose(from);
    run_ranks(PROCESSES, WORLD, follow, &e, patience(30), true);
}

int main(int argc, char **argv)
{
    setenv("OMP_NUM_THREADS", "1", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lenet), cmocka_unit_test(test_resnet18)};
    const struct CMUnitTest files[] = {cmocka_unit_test(test_file)};
    path = argc > 1 ? argv[1] : NULL;
    return path ? cmocka_run_group_tests_name("ddp_parity", files, NULL, NULL)
                : cmocka_run_group_tests_name("ddp_parity", tests, NULL, NULL);
}
