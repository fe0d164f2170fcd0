/*
 * handover_test.c - training that goes on elsewhere: half of a run, a .pt in PyTorch's form, and the other half are to
 * the bit what the whole run is.
 *
 * With arguments this is yoke's half of tests/parity/handover.py:
 *     handover_test IN.pt OUT.pt STEPS
 * IN: {"kind": "sgd", "adamw" and so on, "model": state_dict, "optimizer": state_dict, "scheduler": state_dict,
 * "start", "x": (steps, N, 3, H, W), "y": (steps, N)} of a ResNet-18; OUT: the same keys after STEPS steps, and
 * "losses".
 */
#include "tests/support/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <yoke/checkpoint.h>

enum { HALF = 4 };

typedef struct run {
    yk_module *model;
    yk_optimizer *optimizer;
    yk_schedule *schedule;
} run;

static yk_optimizer *make_optimizer(const char *kind, yk_parameters *params)
{
    if (strcmp(kind, "sgd") == 0)
        return yk_sgd(params, YK_OPTIONS(yk_sgd_options, .lr = 0.01, .momentum = 0.9, .weight_decay = 1e-4));
    if (strcmp(kind, "rmsprop") == 0)
        return yk_rmsprop(params,
                          YK_OPTIONS(yk_rmsprop_options, .lr = 1e-4, .momentum = 0.9, .centered = true, .eps = 1e-3));
    if (strcmp(kind, "adagrad") == 0)
        return yk_adagrad(
            params, YK_OPTIONS(yk_adagrad_options, .lr = 1e-3, .lr_decay = 0.1, .initial_accumulator_value = 0.1));
    if (strcmp(kind, "adadelta") == 0)
        return yk_adadelta(params, YK_OPTIONS(yk_adadelta_options, .lr = 0.1));
    if (strcmp(kind, "adamax") == 0)
        return yk_adamax(params, YK_OPTIONS(yk_adamax_options, .lr = 1e-3));
    if (strcmp(kind, "nadam") == 0)
        return yk_nadam(params,
                        YK_OPTIONS(yk_nadam_options, .lr = 1e-3, .weight_decay = 0.01, .decoupled_weight_decay = true));
    if (strcmp(kind, "radam") == 0)
        return yk_radam(params, YK_OPTIONS(yk_radam_options, .lr = 1e-3));
    return yk_adamw(params, YK_OPTIONS(yk_adam_options, .lr = 1e-3));
}

static yk_status train_step(const run *r, yk_tensor *x, yk_tensor *y, double *loss)
{
    yk_scope scope = yk_scope_begin();
    yk_tensor *l = yk_cross_entropy(yk_forward(r->model, x), y, NULL);
    yk_optimizer_zero_grad(r->optimizer);
    yk_status status = yk_backward(l);
    if (!status) {
        *loss = yk_item(l);
        status = yk_optimizer_step(r->optimizer);
    }
    yk_schedule_step(r->schedule);
    yk_scope_end(scope);
    return status;
}

/* ---- as a program ------------------------------------------------------------------------------------------------ */

static yk_status save_run(const char *path, const run *r, yk_value *losses)
{
    yk_value *out = yk_value_dict();
    yk_status status = yk_value_set(out, "model", yk_value_from_state_dict(yk_module_state_dict(r->model)));
    if (!status)
        status = yk_value_set(out, "optimizer", yk_value_from_optimizer(r->optimizer));
    if (!status)
        status = yk_value_set(out, "scheduler", yk_value_from_schedule(r->schedule));
    if (!status)
        status = yk_value_set(out, "losses", losses);
    return status ? status : yk_pt_save(path, out);
}

static yk_status load_run(const yk_value *in, run *r)
{
    r->model = yk_resnet18(YK_OPTIONS(yk_resnet_options, .num_classes = 10));
    r->model = yk_module_to_dtype(r->model, YK_F64);
    r->optimizer =
        make_optimizer(yk_value_as_string(yk_value_get(in, "kind")), yk_module_parameters(yk_module_check(r->model)));
    r->schedule = yk_step_lr(r->optimizer, 7, 0.5);
    yk_state_dict *weights = yk_value_weights(in, NULL);
    yk_status status = yk_module_load_state_dict(r->model, weights, NULL, NULL);
    if (!status)
        status = yk_optimizer_load_value(r->optimizer, yk_value_get(in, "optimizer"));
    return status ? status : yk_schedule_load_value(r->schedule, yk_value_get(in, "scheduler"));
}

static yk_status go_on(char **arguments)
{
    const yk_value *in = yk_pt_load(arguments[1], NULL);
    run r;
    yk_status status = in ? load_run(in, &r) : yk_last_error()->code;
    yk_value *losses = yk_value_list();
    yk_tensor *x = yk_value_as_tensor(yk_value_get(in, "x")), *y = yk_value_as_tensor(yk_value_get(in, "y"));
    int64_t start = yk_value_as_int(yk_value_get(in, "start")), steps = atoll(arguments[3]);
    for (int64_t i = start; i < start + steps && !status; i++) {
        double loss = 0;
        status = train_step(&r, yk_select(x, 0, i), yk_select(y, 0, i), &loss);
        if (!status)
            status = yk_value_append(losses, yk_value_real(loss));
    }
    return status ? status : save_run(arguments[2], &r, losses);
}

/* ---- as a test --------------------------------------------------------------------------------------------------- */

static run small_run(const char *kind)
{
    yk_manual_seed(3);
    run r;
    r.model = yk_sequential(yk_conv2d_create(3, 8, 3, NULL), yk_batch_norm2d_create(8, NULL), yk_flatten_create(),
                            yk_linear_create(8 * 36, 10, NULL));
    r.optimizer = make_optimizer(kind, yk_module_parameters(yk_module_check(r.model)));
    r.schedule = yk_step_lr(r.optimizer, 3, 0.5);
    assert_non_null(r.schedule);
    return r;
}

static void batch(int64_t i, yk_tensor **x, yk_tensor **y)
{
    yk_manual_seed(100 + (uint64_t)i);
    *x = yk_randn(4, (int64_t[]){6, 3, 8, 8}, NULL);
    int64_t labels[6];
    for (int64_t n = 0; n < 6; n++)
        labels[n] = (7 * n + i) % 10;
    *y = yk_from_data(labels, 1, (int64_t[]){6}, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
}

static void steps(const run *r, int64_t from, int64_t to, double *losses)
{
    for (int64_t i = from; i < to; i++) {
        yk_tensor *x, *y;
        batch(i, &x, &y);
        expect_ok(train_step(r, x, y, &losses[i]));
    }
}

static void check_handover(const char *kind)
{
    yk_scope scope = yk_scope_begin();
    double whole[2 * HALF], parts[2 * HALF];
    run one = small_run(kind), two = small_run(kind), three = small_run(kind);
    steps(&one, 0, 2 * HALF, whole);
    steps(&two, 0, HALF, parts);
    char path[] = "/tmp/yoke-handover-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    expect_ok(save_run(path, &two, yk_value_list()));
    const yk_value *saved = yk_pt_load(path, NULL);
    assert_non_null(saved);
    unlink(path);
    expect_ok(yk_module_load_state_dict(three.model, yk_value_weights(saved, NULL), NULL, NULL));
    expect_ok(yk_optimizer_load_value(three.optimizer, yk_value_get(saved, "optimizer")));
    expect_ok(yk_schedule_load_value(three.schedule, yk_value_get(saved, "scheduler")));
    steps(&three, HALF, 2 * HALF, parts);
    for (int i = 0; i < 2 * HALF; i++)
        assert_true(whole[i] == parts[i]);
    yk_scope_end(scope);
}

static void test_sgd(void **state)
{
    (void)state;
    check_handover("sgd");
}

static void test_adamw(void **state)
{
    (void)state;
    check_handover("adamw");
}

int main(int argc, char **argv)
{
    if (argc == 4) {
        yk_scope scope = yk_scope_begin();
        yk_status status = go_on(argv);
        if (status)
            yk_report_error(stderr);
        yk_scope_end(scope);
        return status ? 1 : 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sgd),
        cmocka_unit_test(test_adamw),
    };
    return cmocka_run_group_tests_name("handover", tests, NULL, NULL);
}
