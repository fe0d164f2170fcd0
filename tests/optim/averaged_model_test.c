/*
 * averaged_model_test.c - averages of weights after each update, statistics that are computed anew, and the rates of
 * yk_swa_lr behind another schedule, against PyTorch; copies of modules; checkpoints that go on; refusals.
 */
#include "tests/support/expect.h"
#include "tests/support/golden.h"
#include "tests/support/test_device.h"

#include <stdlib.h>

#include <yoke/autograd.h>
#include <yoke/checkpoint.h>
#include <yoke/data.h>
#include <yoke/ops.h>
#include <yoke/optim.h>

enum { UPDATES = 6, SAMPLES = 10, FEATURES = 3, CHANNELS = 4, ROOM = 64 };

static yk_module *model(void)
{
    yk_module *net = yk_sequential(yk_linear_create(FEATURES, CHANNELS, NULL), yk_batch_norm1d_create(CHANNELS, NULL),
                                   yk_linear_create(CHANNELS, 2, NULL));
    return yk_module_to(yk_module_to_dtype(net, YK_F64), test_device(0));
}

static yk_module *averaged_model(const char *name, yk_module *net)
{
    if (strcmp(name, "swa") == 0)
        return yk_averaged_model(net, NULL);
    if (strcmp(name, "swa_buffers") == 0)
        return yk_averaged_model(net, YK_OPTIONS(yk_averaged_model_options, .use_buffers = true));
    if (strcmp(name, "ema") == 0)
        return yk_averaged_model(net, YK_OPTIONS(yk_averaged_model_options, .decay = 0.9));
    if (strcmp(name, "ema_low") == 0)
        return yk_averaged_model(net, YK_OPTIONS(yk_averaged_model_options, .decay = 0.25));
    return yk_averaged_model(net, YK_OPTIONS(yk_averaged_model_options, .decay = 0.999, .use_buffers = true));
}

/* Writes the numbers to the module's state, in its order; what follows them. */
static const double *write_state(yk_module *m, const double *numbers)
{
    yk_state_dict *own = yk_module_state_dict(m), *dict = yk_state_dict_create();
    for (int64_t i = 0; i < yk_state_dict_count(own); i++) {
        yk_tensor *x = yk_state_dict_at(own, i);
        yk_tensor *from =
            yk_from_data(numbers, yk_ndim(x), yk_sizes(x), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
        expect_ok(yk_state_dict_add(dict, yk_state_dict_name(own, i), yk_cast(from, yk_tensor_dtype(x))));
        numbers += yk_numel(x);
    }
    expect_ok(yk_module_load_state_dict(m, dict, NULL, NULL));
    return numbers;
}

static const double *expect_state(const char *which, yk_module *m, const double *expected)
{
    yk_state_dict *state = yk_module_state_dict(m);
    for (int64_t i = 0; i < yk_state_dict_count(state); i++) {
        yk_tensor *x = yk_state_dict_at(state, i);
        double values[ROOM];
        assert_true(yk_numel(x) <= ROOM);
        expect_ok(yk_tensor_read(yk_cast(x, YK_F64), values, sizeof(double) * (size_t)yk_numel(x)));
        for (int64_t k = 0; k < yk_numel(x); k++, expected++)
            if (!(fabs(values[k] - *expected) <= 1e-14 * (1 + fabs(*expected))))
                fail_msg("%s: %s[%d] is %.17g, PyTorch has %.17g", which, yk_state_dict_name(state, i), (int)k,
                         values[k], *expected);
    }
    return expected;
}

static void test_pytorch(void **state)
{
    (void)state;
    static const char *const cases[] = {"swa", "swa_buffers", "ema", "ema_low", "ema_buffers"};
    size_t count, names_count;
    const double *states = golden_numbers("averages", "states", &count);
    const char *const *names = golden_rows("averages", "names", &names_count);
    for (size_t c = 0; c < sizeof(cases) / sizeof(*cases); c++) {
        yk_scope scope = yk_scope_begin();
        yk_module *net = model(), *averaged = averaged_model(cases[c], net);
        const double *now = states, *expected = golden_numbers("averages", cases[c], NULL);
        yk_state_dict *dict = yk_module_state_dict(averaged);
        assert_int_equal(yk_state_dict_count(dict), names_count);
        for (size_t i = 0; i < names_count; i++)
            assert_string_equal(yk_state_dict_name(dict, (int64_t)i), names[i]);
        for (int update = 0; update < UPDATES; update++) {
            now = write_state(net, now);
            expect_ok(yk_averaged_model_update(averaged, net));
            expected = expect_state(cases[c], averaged, expected);
        }
        assert_true(now == states + count);
        yk_scope_end(scope);
    }
    assert_null(yk_last_error());
}

static yk_loader *samples_loader(void)
{
    const double *samples = golden_numbers("averages", "samples", NULL);
    yk_tensor *x = yk_from_data(samples, YK_SHAPE(SAMPLES, FEATURES), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    return yk_loader_create(yk_tensor_dataset(x), YK_OPTIONS(yk_loader_options, .batch_size = 4, .dtype = YK_F64));
}

static void test_update_bn(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    const double *states = golden_numbers("averages", "states", NULL),
                 *expected = golden_numbers("averages", "bn", NULL);
    yk_module *net = model();
    for (int update = 0; update < UPDATES; update++)
        states = write_state(net, states);
    yk_module_eval(net);
    yk_module_train(yk_module_child(net, 2), true);
    for (int twice = 0; twice < 2; twice++) {
        expect_ok(yk_update_bn(samples_loader(), net));
        expect_near(yk_item(yk_module_get(net, "1.num_batches_tracked")), expected[2 * CHANNELS], 0, 0);
        double values[CHANNELS];
        expect_ok(yk_tensor_read(yk_module_get(net, "1.running_mean"), values, sizeof(values)));
        for (int i = 0; i < CHANNELS; i++)
            expect_near(values[i], expected[i], 1e-14, 1e-14);
        expect_ok(yk_tensor_read(yk_module_get(net, "1.running_var"), values, sizeof(values)));
        for (int i = 0; i < CHANNELS; i++)
            expect_near(values[i], expected[CHANNELS + i], 1e-14, 1e-14);
    }
    assert_false(yk_module_is_training(net) || yk_module_is_training(yk_module_child(net, 1)));
    assert_true(yk_module_is_training(yk_module_child(net, 2)));

    /* The momentum is the module's own again: 0.1 of the batch, whose mean is that of two rows of zeros. */
    double values[CHANNELS];
    yk_module_train(net, true);
    yk_tensor *zeros = yk_zeros(YK_SHAPE(2, FEATURES), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    expect_ok(yk_forward(net, yk_to(zeros, test_device(0))) == NULL);
    expect_ok(yk_tensor_read(
        yk_sub(yk_module_get(net, "1.running_mean"), yk_mul_scalar(yk_detach(yk_module_get(net, "0.bias")), 0.1)),
        values, sizeof(values)));
    for (int i = 0; i < CHANNELS; i++)
        expect_near(values[i], 0.9 * expected[i], 1e-14, 1e-14);

    yk_loader *loader = samples_loader(); /* without batch norms nothing runs: the linear layer would fail */
    expect_ok(yk_update_bn(loader, yk_linear_create(7, 2, NULL)));
    assert_null(yk_last_error());
    yk_module *narrow = yk_sequential(yk_batch_norm1d_create(5, NULL));
    assert_int_equal(yk_update_bn(loader, narrow), YK_ERR_SHAPE);
    expect_error(YK_ERR_SHAPE, "batch_norm1d: input has shape (4, 3), expected (N, 5) or (N, C, L)");
    assert_int_equal(yk_update_bn(NULL, net), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "update_bn: the loader is NULL");
    assert_int_equal(yk_update_bn(loader, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "update_bn: the module is NULL");
    yk_scope_end(scope);
}

/* A schedule that was stepped first: yk_swa_lr goes on from its rate. */
static void test_rates(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    size_t count;
    const double *rates = golden_numbers("averages", "rates", &count);
    yk_module *net = yk_linear_create(2, 1, NULL);
    yk_optimizer *o = yk_sgd(yk_module_parameters(net), YK_OPTIONS(yk_sgd_options, .lr = 0.4));
    yk_schedule *first = yk_exponential_lr(o, 0.9), *then = yk_swa_lr(o, 0.05, 5, false);
    for (size_t t = 0; t < count; t++) {
        expect_near(yk_optimizer_lr(o, 0), rates[t], 1e-14, 0);
        yk_schedule_step(t < 6 ? first : then);
    }
    assert_null(yk_swa_lr(o, -1, 5, false));
    expect_error(YK_ERR_ARGUMENT, "swa_lr: swa_lr is -1");
    assert_null(yk_swa_lr(o, 1, -1, false));
    expect_error(YK_ERR_ARGUMENT, "swa_lr: anneal_epochs is -1");
    assert_null(yk_swa_lr(NULL, 1, 5, false));
    expect_error(YK_ERR_ARGUMENT, "swa_lr: the optimizer is NULL");
    yk_scope_end(scope);
}

/* A copy has the same values and names in memory of its own, a part that stands twice in the tree stands twice, and the
 * copy is a module like any other: it outlives the original, trains, takes other parts. */
static void test_copy(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin(), inner = yk_scope_begin();
    yk_module *shared = yk_linear_create(3, 3, NULL);
    yk_module *net = yk_module_to(
        yk_sequential(shared, yk_dropout_create(0.5), yk_batch_norm1d_create(3, NULL), shared), test_device(0));
    expect_ok(yk_set_requires_grad(yk_module_get(net, "0.bias"), false));
    yk_module_train(yk_module_child(net, 1), false);
    yk_tensor *x = yk_from_data((float[]){1, 2, 3, -4, 5, 6}, YK_SHAPE(2, 3),
                                YK_OPTIONS(yk_tensor_options, .device = test_device(0)));
    yk_module *copy = yk_module_copy(net);
    assert_true(yk_module_parameter_count(copy) == 18 && yk_module_child(copy, 0) == yk_module_child(copy, 3));
    assert_true(yk_module_child(copy, 0) != shared && yk_module_class_of(copy) == yk_module_class_of(net));
    assert_true(yk_module_is_training(copy) && !yk_module_is_training(yk_module_child(copy, 1)));
    assert_false(yk_requires_grad(yk_module_get(copy, "0.bias")));
    assert_true(yk_requires_grad(yk_module_get(copy, "0.weight")));
    yk_tensor *a = yk_forward(net, x), *b = yk_forward(copy, x);
    expect_near(yk_item(yk_sum(yk_abs(yk_sub(a, b)))), 0, 0, 0);
    expect_ok(yk_backward(yk_sum(yk_square(b))));
    assert_null(yk_grad(yk_module_get(net, "0.weight")));
    expect_ok(yk_grad(yk_module_get(copy, "0.weight")) == NULL);
    expect_ok(yk_optimizer_step(yk_sgd(yk_module_parameters(copy), YK_OPTIONS(yk_sgd_options, .lr = 0.1))));
    yk_tensor *way = yk_sub(yk_detach(yk_module_get(net, "0.weight")), yk_detach(yk_module_get(copy, "0.weight")));
    assert_true(yk_item(yk_sum(yk_abs(way))) > 0);
    expect_near(yk_item(yk_module_get(net, "2.num_batches_tracked")), 1, 0, 0);
    yk_module *kept = yk_scope_return_object(inner, copy);
    yk_scope_end(inner);

    expect_ok(yk_module_add(kept, "0", yk_linear_create(3, 3, NULL)) == NULL);
    expect_ok(yk_module_add(yk_module_child(kept, 2), "more", yk_identity_create()) == NULL);
    expect_ok(yk_module_check(kept) == NULL);
    yk_module_to(kept, test_device(0));
    yk_tensor *y = yk_rand(YK_SHAPE(2, 3), YK_OPTIONS(yk_tensor_options, .device = test_device(0)));
    expect_ok(yk_forward(kept, y) == NULL);
    expect_ok(yk_module_copy(kept) == NULL);
    yk_scope_end(scope);
    assert_null(yk_last_error());
    scope = yk_scope_begin();
    assert_null(yk_module_copy(NULL));
    expect_error(YK_ERR_ARGUMENT, "module_copy: the module is NULL");
    yk_scope_end(scope);
}

/* Steps of training, each averaged. */
static void train(yk_module *net, yk_module *averaged, yk_optimizer *o, int from, int to)
{
    for (int step = from; step < to; step++) {
        yk_scope scope = yk_scope_begin();
        yk_manual_seed((uint64_t)step);
        yk_tensor *x = yk_rand(YK_SHAPE(4, FEATURES), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
        yk_optimizer_zero_grad(o);
        expect_ok(yk_backward(yk_sum(yk_square(yk_forward(net, yk_to(x, test_device(0)))))));
        expect_ok(yk_optimizer_step(o));
        expect_ok(yk_averaged_model_update(averaged, net));
        yk_scope_end(scope);
    }
}

/* A run and its average, each saved in its checkpoint after 3 steps, go on as one that was not interrupted. */
static void test_checkpoint(void **state)
{
    (void)state;
    char folder[] = "/tmp/yoke_averages_XXXXXX", path[64], text[100];
    assert_non_null(mkdtemp(folder));
    double expected[ROOM], got[ROOM];
    for (int part = 0; part < 3; part++) {
        yk_scope scope = yk_scope_begin();
        yk_manual_seed(5);
        yk_module *net = model(), *averaged = averaged_model("ema", net);
        yk_optimizer *o = yk_sgd(yk_module_parameters(net), YK_OPTIONS(yk_sgd_options, .lr = 0.01, .momentum = 0.9));
        yk_checkpoint_state run = {.model = net, .optimizer = o}, average = {.model = averaged};
        if (part == 2) {
            snprintf(path, sizeof(path), "%s/run", folder);
            expect_ok(yk_checkpoint_load(path, &run, NULL, NULL));
            snprintf(path, sizeof(path), "%s/average", folder);
            expect_ok(yk_checkpoint_load(path, &average, NULL, NULL));
        }
        train(net, averaged, o, part == 2 ? 3 : 0, part == 1 ? 3 : UPDATES);
        if (part == 1) {
            snprintf(path, sizeof(path), "%s/run", folder);
            expect_ok(yk_checkpoint_save(path, &run));
            snprintf(path, sizeof(path), "%s/average", folder);
            expect_ok(yk_checkpoint_save(path, &average));
        } else {
            double *to = part ? got : expected;
            yk_state_dict *dict = yk_module_state_dict(averaged);
            for (int64_t i = 0; i < yk_state_dict_count(dict); to += yk_numel(yk_state_dict_at(dict, i++)))
                expect_ok(yk_tensor_read(yk_cast(yk_state_dict_at(dict, i), YK_F64), to,
                                         sizeof(double) * (size_t)yk_numel(yk_state_dict_at(dict, i))));
            if (part)
                assert_memory_equal(got, expected, (size_t)(to - got) * sizeof(double));
            assert_true(expected[0] == UPDATES);
        }
        yk_scope_end(scope);
    }
    snprintf(text, sizeof(text), "rm -r '%s'", folder);
    assert_int_equal(system(text), 0);
    assert_null(yk_last_error());
}

static void test_refusals(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *net = model(), *averaged = yk_averaged_model(net, NULL);
    assert_null(yk_averaged_model(NULL, NULL));
    expect_error(YK_ERR_ARGUMENT, "averaged_model: the module is NULL");
    assert_null(yk_averaged_model(net, YK_OPTIONS(yk_averaged_model_options, .decay = 1.5)));
    expect_error(YK_ERR_ARGUMENT, "averaged_model: decay is 1.5");
    assert_int_equal(yk_averaged_model_update(net, net), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "the first module is a Sequential, expected one of yk_averaged_model");
    assert_int_equal(yk_averaged_model_update(NULL, net), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "averaged_model_update: the module is NULL");
    assert_int_equal(yk_averaged_model_update(averaged, yk_linear_create(FEATURES, CHANNELS, NULL)), YK_ERR_SHAPE);
    expect_error(YK_ERR_SHAPE, "averaged_model_update: the model has 2 parameters, expected 6");
    yk_module *wide = yk_sequential(yk_linear_create(5, CHANNELS, NULL), yk_batch_norm1d_create(CHANNELS, NULL),
                                    yk_linear_create(CHANNELS, 2, NULL));
    assert_int_equal(yk_averaged_model_update(averaged, wide), YK_ERR_SHAPE);
    expect_error(YK_ERR_SHAPE, "parameter 0.weight of the model has shape (4, 5), expected (4, 3)");
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pytorch), cmocka_unit_test(test_update_bn),  cmocka_unit_test(test_rates),
        cmocka_unit_test(test_copy),    cmocka_unit_test(test_checkpoint), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("averaged_model", tests, NULL, NULL);
}
