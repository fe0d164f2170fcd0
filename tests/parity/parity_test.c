/*
 * parity_test.c - whole training runs against PyTorch: float64 losses step by step, and float32 gradients held to
 * twice the error of PyTorch's own float32.
 *
 * Weights and images come from Philox by the rule of tests/golden/make_parity.py, which wrote the expected numbers.
 */
#include "tests/support/expect.h"

#include <stdio.h>

#include <yoke/nn.h>
#include <yoke/optim.h>

#include "tests/golden/parity_golden.h"
#include "tests/parity/runs.h"

static const run lenet = {"lenet", 4, 1, 28, 0.001, 0};
static const run resnet18 = {"resnet18", 32, 3, 32, 0.01, 1e-5};

static yk_tensor *loss_of(const run *r, yk_module *net, int step, yk_dtype dtype)
{
    yk_tensor *x, *y;
    make_batch(r, step, dtype, &x, &y);
    return yk_cross_entropy(yk_forward(net, x), y, NULL);
}

static void follow(const run *r, const double *losses, int steps)
{
    yk_scope scope = yk_scope_begin();
    yk_module *net = make_model(r, YK_F64);
    yk_optimizer *sgd = yk_sgd(yk_module_parameters(net), YK_OPTIONS(yk_sgd_options, .lr = r->lr, .momentum = 0.9,
                                                                     .weight_decay = r->weight_decay));
    double worst = 0;
    for (int step = 0; step < steps; step++) {
        yk_scope inner = yk_scope_begin();
        yk_tensor *loss = loss_of(r, net, step, YK_F64);
        double value = yk_item(loss), error = fabs(value - losses[step]) / fabs(losses[step]);
        worst = error > worst ? error : worst;
        if (!(error <= 1e-9))
            fail_msg("%s step %d: loss %.17g, PyTorch has %.17g", r->model, step, value, losses[step]);
        yk_optimizer_zero_grad(sgd);
        expect_ok(yk_backward(loss));
        expect_ok(yk_optimizer_step(sgd));
        yk_scope_end(inner);
    }
    print_message("# %s: %d float64 steps, largest difference %.2g\n", r->model, steps, worst);
    yk_scope_end(scope);
}

typedef struct gradient {
    const char *name;
    double norm, error;
} gradient;

static double *doubles(yk_tensor *x)
{
    double *values = malloc(sizeof(double) * (size_t)yk_numel(x));
    expect_ok(yk_tensor_read(yk_cast(x, YK_F64), values, sizeof(double) * (size_t)yk_numel(x)));
    return values;
}

enum { BATCHES = 5, MOST_PARAMETERS = 80 };

static double median(const double *values)
{
    double sorted[BATCHES];
    for (int i = 0; i < BATCHES; i++) {
        int at = i;
        for (; at > 0 && sorted[at - 1] > values[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = values[i];
    }
    return sorted[BATCHES / 2];
}

/* Norm of the difference over the norm of the second, which is also returned. */
static double relative_error(yk_tensor *x, yk_tensor *reference, double *norm)
{
    double *a = doubles(x), *b = doubles(reference), difference = 0, squares = 0;
    for (int64_t i = 0; i < yk_numel(x); i++) {
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        squares += b[i] * b[i];
    }
    free(a);
    free(b);
    *norm = sqrt(squares);
    return sqrt(difference / squares);
}

/* The first step on several batches; medians, because a ReLU whose input is within rounding of zero may fall on
 * different sides in float32 and float64, and that batch's gradients then differ in whole terms (in PyTorch too). */
static void compare_first_step(const run *r, double loss_error, const gradient *golden, int count)
{
    static double errors[MOST_PARAMETERS][BATCHES];
    double loss_square = 0;
    for (int k = 0; k < BATCHES; k++) {
        yk_scope scope = yk_scope_begin();
        yk_module *wide = make_model(r, YK_F64), *narrow = make_model(r, YK_F32);
        yk_tensor *loss64 = loss_of(r, wide, k, YK_F64), *loss32 = loss_of(r, narrow, k, YK_F32);
        expect_ok(yk_backward(loss64));
        expect_ok(yk_backward(loss32));
        loss_square += pow(yk_item(loss32) / yk_item(loss64) - 1, 2) / BATCHES;
        yk_parameters *p64 = yk_module_parameters(wide), *p32 = yk_module_parameters(narrow);
        assert_int_equal(yk_parameters_count(p64), count);
        for (int p = 0; p < count; p++) {
            double norm;
            assert_string_equal(yk_parameters_name(p64, p), golden[p].name);
            errors[p][k] = relative_error(yk_grad(yk_parameters_at(p32, p)), yk_grad(yk_parameters_at(p64, p)), &norm);
            if (k == 0)
                expect_near(norm, golden[p].norm, 1e-9, 0);
        }
        yk_scope_end(scope);
    }
    /* One number's error is chance (PyTorch's own two memory formats differ sevenfold on ResNet-18), and no float32
     * number is nearer than its own rounding. */
    double loss_rms = sqrt(loss_square), allowed = fmax(2 * loss_error, 0x1p-23), worst = 0;
    if (!(loss_rms <= allowed))
        fail_msg("%s: the float32 loss is %.3g from float64, PyTorch's %.3g", r->model, loss_rms, loss_error);
    for (int p = 0; p < count; p++) {
        double ratio = median(errors[p]) / golden[p].error;
        worst = ratio > worst ? ratio : worst;
        if (!(ratio <= 2))
            fail_msg("%s: the float32 gradient of %s is %.3g from float64, PyTorch's %.3g", r->model, golden[p].name,
                     median(errors[p]), golden[p].error);
    }
    print_message("# %s: float32 gradients, largest error over PyTorch's %.2f, loss %.2f\n", r->model, worst,
                  loss_rms / loss_error);
}

#define COUNT(array) (int)(sizeof(array) / sizeof((array)[0]))

static void test_lenet_losses(void **state)
{
    (void)state;
    follow(&lenet, lenet_losses, work_size(COUNT(lenet_losses), 20));
}

static void test_resnet18_losses(void **state)
{
    (void)state;
    follow(&resnet18, resnet18_losses, COUNT(resnet18_losses));
}

static void test_lenet_gradients(void **state)
{
    (void)state;
    compare_first_step(&lenet, lenet_loss_error, (const gradient *)lenet_gradients, COUNT(lenet_gradients));
}

static void test_resnet18_gradients(void **state)
{
    (void)state;
    compare_first_step(&resnet18, resnet18_loss_error, (const gradient *)resnet18_gradients, COUNT(resnet18_gradients));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lenet_losses),
        cmocka_unit_test(test_lenet_gradients),
        cmocka_unit_test(test_resnet18_losses),
        cmocka_unit_test(test_resnet18_gradients),
    };
    return cmocka_run_group_tests_name("parity", tests, NULL, NULL);
}
