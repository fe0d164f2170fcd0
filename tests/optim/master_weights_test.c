/*
 * master_weights_test.c - optimizers of f16 and bf16 parameters that keep them in f32: the steps are those of an f32
 * optimizer, what is rounded away is not lost, state dicts and training checkpoints go on to the bit.
 */
#include "tests/support/expect.h"

#include <unistd.h>

#include "tensor/tensor.h"
#include <yoke/checkpoint.h>

enum { KINDS = 4 };
static const char *const kinds[KINDS] = {"sgd", "sgd with momentum", "adam", "adamw with amsgrad"};
static const yk_dtype halves[] = {YK_BF16, YK_F16};

static yk_optimizer *make(int kind, yk_module *m, double lr)
{
    yk_parameters *p = yk_module_parameters(m);
    if (kind < 2)
        return yk_sgd(p, YK_OPTIONS(yk_sgd_options, .lr = lr, .momentum = kind ? 0.9 : 0, .master_weights = true));
    const yk_adam_options o = *YK_OPTIONS(yk_adam_options, .lr = lr, .amsgrad = kind == 3, .master_weights = true);
    return kind == 2 ? yk_adam(p, &o) : yk_adamw(p, &o);
}

static yk_module *net_of(yk_dtype dtype)
{
    yk_manual_seed(5);
    return yk_module_to_dtype(yk_mlp(YK_OPTIONS(yk_mlp_options, .in_features = 6, .hidden = (int64_t[]){5},
                                                .hidden_count = 1, .num_classes = 3)),
                              dtype);
}

/* A gradient for every parameter, of numbers that `dtype` has; they depend on the step alone. */
static void set_grads(yk_module *m, yk_dtype dtype, int step)
{
    yk_parameters *list = yk_module_parameters(m);
    for (int64_t i = 0; i < yk_parameters_count(list); i++) {
        yk_tensor *x = yk_parameters_at(list, i);
        yk_manual_seed(1000 + (uint64_t)(step * 10 + i));
        yk_tensor *grad = yk_cast(yk_cast(yk_randn(yk_ndim(x), yk_sizes(x), NULL), dtype), yk_tensor_dtype(x));
        expect_ok(yk_set_grad(x, grad));
    }
}

static void expect_equal(yk_tensor *a, yk_tensor *b, const char *what)
{
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal(yk_tensor_dtype(a), yk_tensor_dtype(b));
    size_t bytes = (size_t)yk_numel(a) * yk_dtype_size(yk_tensor_dtype(a));
    char *x = malloc(bytes), *y = malloc(bytes);
    expect_ok(yk_tensor_read(a, x, bytes));
    expect_ok(yk_tensor_read(b, y, bytes));
    if (memcmp(x, y, bytes) != 0)
        fail_msg("%s: the bits differ", what);
    free(x);
    free(y);
}

/* Next to an f32 network that begins with the same numbers and gets the same gradients. */
static void steps_are_those_of_f32(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        for (int h = 0; h < 2; h++) {
            yk_scope scope = yk_scope_begin();
            yk_module *half = net_of(halves[h]), *full = yk_module_to_dtype(net_of(halves[h]), YK_F32);
            yk_optimizer *a = make(kind, half, 0.01), *b = make(kind, full, 0.01);
            assert_non_null(a);
            yk_parameters *p = yk_module_parameters(half), *q = yk_module_parameters(full);
            for (int step = 0; step < 20; step++) {
                set_grads(half, halves[h], step);
                set_grads(full, halves[h], step);
                expect_ok(yk_optimizer_step(a));
                expect_ok(yk_optimizer_step(b));
                for (int64_t i = 0; i < yk_parameters_count(p); i++) {
                    yk_tensor *x = yk_parameters_at(p, i), *y = yk_parameters_at(q, i);
                    expect_equal(yk_optimizer_state(a, x, "master_weight"), yk_detach(y), kinds[kind]);
                    expect_equal(yk_detach(x), yk_cast(yk_detach(y), halves[h]), kinds[kind]);
                    assert_null(yk_optimizer_state(b, y, "master_weight"));
                    const char *own = kind == 1 ? "momentum_buffer" : kind > 1 ? "exp_avg_sq" : NULL;
                    if (own)
                        expect_equal(yk_optimizer_state(a, x, own), yk_optimizer_state(b, y, own), own);
                }
            }
            yk_scope_end(scope);
        }
    }
}

/* Steps of 1e-4 from 1 are below what bf16 tells apart there, 2^-8; a thousand of them are not. */
static void small_steps_add_up(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_full(YK_SHAPE(4), 1, YK_OPTIONS(yk_tensor_options, .dtype = YK_BF16, .requires_grad = true));
    yk_parameters *list = yk_parameters_create();
    expect_ok(yk_parameters_add(list, "x", x));
    yk_optimizer *sgd = yk_sgd(list, YK_OPTIONS(yk_sgd_options, .lr = 1e-4, .master_weights = true));
    yk_tensor *one = yk_ones(YK_SHAPE(4), YK_OPTIONS(yk_tensor_options, .dtype = YK_BF16));
    for (int i = 0; i < 1000; i++) {
        expect_ok(yk_set_grad(x, one));
        uint32_t version = yk_tensor_version(x);
        expect_ok(yk_optimizer_step(sgd));
        assert_true(yk_tensor_version(x) > version);
        if (i == 0)
            assert_true(yk_get(x, (int64_t[]){0}) == 1);
    }
    expect_near(yk_get(x, (int64_t[]){0}), 0.9, 0.002, 0);
    yk_scope_end(scope);
}

static void train(yk_module *m, yk_optimizer *o, yk_dtype dtype, int from, int to)
{
    for (int step = from; step < to; step++) {
        set_grads(m, dtype, step);
        expect_ok(yk_optimizer_step(o));
    }
}

static void expect_same_networks(yk_module *a, yk_module *b, const char *what)
{
    yk_parameters *p = yk_module_parameters(a), *q = yk_module_parameters(b);
    for (int64_t i = 0; i < yk_parameters_count(p); i++)
        expect_equal(yk_detach(yk_parameters_at(p, i)), yk_detach(yk_parameters_at(q, i)), what);
}

/* A run that goes on from state dicts, or from a training checkpoint, has the bits of one that was not broken. */
static void a_run_goes_on_to_the_bit(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        for (int by_files = 0; by_files < 2; by_files++) {
            char dir[] = "/tmp/yoke-master-XXXXXX", path[64];
            yk_scope scope = yk_scope_begin();
            yk_module *whole = net_of(YK_BF16), *first = net_of(YK_BF16), *second = net_of(YK_BF16);
            yk_optimizer *a = make(kind, whole, 0.003), *b = make(kind, first, 0.003), *c = make(kind, second, 0.003);
            train(whole, a, YK_BF16, 0, 30);
            train(first, b, YK_BF16, 0, 13);
            if (by_files) {
                assert_non_null(mkdtemp(dir));
                snprintf(path, sizeof(path), "%s/step", dir);
                yk_checkpoint_state from = {.model = first, .optimizer = b}, to = {.model = second, .optimizer = c};
                expect_ok(yk_checkpoint_save(path, &from));
                expect_ok(yk_checkpoint_load(path, &to, NULL, NULL));
                char command[100];
                snprintf(command, sizeof(command), "rm -r %s", dir);
                assert_int_equal(system(command), 0);
            } else {
                expect_ok(yk_module_load_state_dict(second, yk_module_state_dict(first), NULL, NULL));
                expect_ok(yk_optimizer_load_state_dict(c, yk_optimizer_state_dict(b)));
            }
            train(second, c, YK_BF16, 13, 30);
            expect_same_networks(whole, second, kinds[kind]);
            yk_scope_end(scope);
        }
    }
}

/* PyTorch's form has the master weights as state, too. */
static void pytorch_s_form_goes_there_and_back(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        yk_scope scope = yk_scope_begin();
        yk_module *whole = net_of(YK_F16), *first = net_of(YK_F16), *second = net_of(YK_F16);
        yk_optimizer *a = make(kind, whole, 0.003), *b = make(kind, first, 0.003), *c = make(kind, second, 0.003);
        train(whole, a, YK_F16, 0, 9);
        train(first, b, YK_F16, 0, 4);
        expect_ok(yk_module_load_state_dict(second, yk_module_state_dict(first), NULL, NULL));
        expect_ok(yk_optimizer_load_value(c, yk_value_from_optimizer(b)));
        train(second, c, YK_F16, 4, 9);
        expect_same_networks(whole, second, kinds[kind]);
        yk_scope_end(scope);
    }
}

static yk_tensor *bf16_leaf(double value)
{
    return yk_full(YK_SHAPE(2), value, YK_OPTIONS(yk_tensor_options, .dtype = YK_BF16, .requires_grad = true));
}

/* A step of 0.1 down from wherever the parameter is, after which it is near `expected`. */
static void expect_step(yk_optimizer *o, yk_tensor *x, double expected)
{
    expect_ok(yk_set_grad(x, yk_ones(YK_SHAPE(2), YK_OPTIONS(yk_tensor_options, .dtype = YK_BF16))));
    expect_ok(yk_optimizer_step(o));
    for (int64_t i = 0; i < 2; i++) {
        expect_near(yk_get(x, &i), expected, 0.005, 0);
        expect_near(yk_get(yk_optimizer_state(o, x, "master_weight"), &i), expected, 1e-6, 0);
    }
}

static yk_tensor *same(yk_module *m, yk_tensor *x)
{
    (void)m;
    return x;
}

/* A value that is written to the parameter between two steps, by whatever writes, is where the next one begins. */
static void what_others_write_is_followed(void **state)
{
    (void)state;
    char dir[] = "/tmp/yoke-master-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/step", dir);
    yk_scope scope = yk_scope_begin();
    static const yk_module_class box = {.name = "Box", .forward = same};
    yk_module *m = yk_module_create(&box);
    yk_tensor *x = yk_module_add_parameter(m, "x", bf16_leaf(1));
    yk_optimizer *o = yk_sgd(yk_module_parameters(m), YK_OPTIONS(yk_sgd_options, .lr = 0.1, .master_weights = true));
    expect_step(o, x, 0.9);
    yk_state_dict *five = yk_state_dict_create();
    expect_ok(yk_state_dict_add(five, "x", yk_full(YK_SHAPE(2), 5, NULL)));
    expect_ok(yk_module_load_state_dict(m, five, NULL, NULL));
    expect_step(o, x, 4.9);
    expect_ok(yk_checkpoint_save(path, &(yk_checkpoint_state){.model = m, .optimizer = o}));
    bool before = yk_no_grad_begin();
    yk_fill_(x, 2);
    yk_no_grad_end(before);
    expect_step(o, x, 1.9);
    expect_ok(yk_checkpoint_load(path, &(yk_checkpoint_state){.model = m},
                                 YK_OPTIONS(yk_checkpoint_options, .weights_only = true), NULL));
    expect_step(o, x, yk_get(yk_module_get(m, "x"), (int64_t[]){0}) - 0.1);
    uint16_t three[2] = {0x4040, 0x4040};
    before = yk_no_grad_begin();
    expect_ok(yk_tensor_write(x, three, sizeof(three)));
    yk_no_grad_end(before);
    /* A state dict has what was written, too. */
    yk_state_dict *dict = yk_optimizer_state_dict(o);
    expect_near(yk_get(yk_state_dict_get(dict, "state.x.master_weight"), (int64_t[]){0}), 3, 0, 0);
    expect_step(o, x, 2.9);
    /* Elements that were not written keep what bf16 has no room for. */
    before = yk_no_grad_begin();
    yk_fill_(yk_select(x, 0, 1), 7);
    yk_no_grad_end(before);
    expect_ok(yk_set_grad(x, yk_zeros(YK_SHAPE(2), YK_OPTIONS(yk_tensor_options, .dtype = YK_BF16))));
    expect_ok(yk_optimizer_step(o));
    expect_near(yk_get(yk_optimizer_state(o, x, "master_weight"), (int64_t[]){0}), 2.9, 1e-6, 0);
    expect_near(yk_get(yk_optimizer_state(o, x, "master_weight"), (int64_t[]){1}), 7, 0, 0);
    yk_scope_end(scope);
    char command[100];
    snprintf(command, sizeof(command), "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

/* The optimizer's state first and the model's after it. */
static void the_order_of_loading_does_not_matter(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        yk_scope scope = yk_scope_begin();
        yk_module *whole = net_of(YK_BF16), *first = net_of(YK_BF16), *second = net_of(YK_BF16);
        yk_optimizer *a = make(kind, whole, 0.003), *b = make(kind, first, 0.003), *c = make(kind, second, 0.003);
        train(whole, a, YK_BF16, 0, 30);
        train(first, b, YK_BF16, 0, 13);
        train(second, c, YK_BF16, 40, 45);
        expect_ok(yk_optimizer_load_state_dict(c, yk_optimizer_state_dict(b)));
        assert_non_null(yk_optimizer_state_dict(c)); /* before the model is loaded: changes nothing */
        expect_ok(yk_module_load_state_dict(second, yk_module_state_dict(first), NULL, NULL));
        train(second, c, YK_BF16, 13, 30);
        expect_same_networks(whole, second, kinds[kind]);
        yk_scope_end(scope);
    }
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *half = net_of(YK_BF16);
    assert_null(yk_sgd(yk_module_parameters(half), YK_OPTIONS(yk_sgd_options, .lr = 1)));
    expect_error(YK_ERR_DTYPE,
                 "sgd: parameter fc1.weight is bfloat16, expected float32 or float64, or .master_weights");
    assert_null(yk_adam(yk_module_parameters(half), YK_OPTIONS(yk_adam_options, .lr = 1)));
    expect_error(YK_ERR_DTYPE, "adam: parameter fc1.weight is bfloat16");
    /* State of f32 parameters has no master weights. */
    yk_module *full = net_of(YK_F32);
    yk_optimizer *a = make(1, full, 0.1), *b = make(1, half, 0.1);
    train(full, a, YK_BF16, 0, 1);
    assert_int_equal(yk_optimizer_load_state_dict(b, yk_optimizer_state_dict(a)), YK_ERR_NOT_FOUND);
    expect_error(YK_ERR_NOT_FOUND, "sgd: the state of fc1.weight has no master_weight");
    /* State of half-precision parameters has master weights, which an f32 parameter does not use. */
    train(half, b, YK_BF16, 0, 1);
    assert_int_equal(yk_optimizer_load_state_dict(a, yk_optimizer_state_dict(b)), YK_ERR_ARGUMENT);
    yk_clear_error();
    yk_scope_end(scope);
}

/* Groups with and without; and a network with parameters of both kinds. */
static void groups_and_mixtures(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *full = net_of(YK_F32), *half = net_of(YK_F16), *other = net_of(YK_F16);
    yk_optimizer *o = yk_sgd(yk_module_parameters(full), YK_OPTIONS(yk_sgd_options, .lr = 0.1));
    assert_int_equal(yk_sgd_add_group(o, yk_module_parameters(half), YK_OPTIONS(yk_sgd_options, .lr = 0.1)),
                     YK_ERR_DTYPE);
    yk_clear_error();
    expect_ok(
        yk_sgd_add_group(o, yk_module_parameters(half), YK_OPTIONS(yk_sgd_options, .lr = 0.1, .master_weights = true)));
    yk_optimizer *alone =
        yk_sgd(yk_module_parameters(other), YK_OPTIONS(yk_sgd_options, .lr = 0.1, .master_weights = true));
    for (int step = 0; step < 3; step++) {
        set_grads(full, YK_F16, step);
        set_grads(half, YK_F16, step);
        set_grads(other, YK_F16, step);
        expect_ok(yk_optimizer_step(o));
        expect_ok(yk_optimizer_step(alone));
    }
    expect_same_networks(half, other, "in a group");
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_those_of_f32),        cmocka_unit_test(small_steps_add_up),
        cmocka_unit_test(a_run_goes_on_to_the_bit),      cmocka_unit_test(pytorch_s_form_goes_there_and_back),
        cmocka_unit_test(what_does_not_fit_is_refused),  cmocka_unit_test(groups_and_mixtures),
        cmocka_unit_test(what_others_write_is_followed), cmocka_unit_test(the_order_of_loading_does_not_matter),
    };
    return cmocka_run_group_tests_name("master_weights", tests, NULL, NULL);
}
