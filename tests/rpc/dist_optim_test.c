/*
 * dist_optim_test.c - optimizers for parameters of several workers, and modules that are in another one: the weights of
 * one process, bit for bit.
 */
#include <stdatomic.h>

#include "tests/rpc/workers.h"

enum { WIDTH = 6, ROWS = 4, STEPS = 4, MOST = 8 };

/* ---- modules ----------------------------------------------------------------------------------------------------- */

static atomic_int living;

static void counted_destroy(yk_module *self)
{
    (void)self;
    living--;
}

static yk_tensor *counted_forward(yk_module *self, yk_tensor *x)
{
    return yk_forward(yk_module_child(self, 0), x);
}

static const yk_module_class counted_class = {
    .name = "Counted", .forward = counted_forward, .destroy = counted_destroy};

/* Two layers, in f64, from a seed. */
static yk_module *net_make(int64_t seed)
{
    yk_manual_seed((uint64_t)seed);
    yk_module *m = yk_module_create(&counted_class);
    living += m != NULL;
    yk_module *first = yk_linear_create(WIDTH, WIDTH, NULL), *last = yk_linear_create(WIDTH, WIDTH, NULL);
    yk_module_add(m, "net", yk_sequential(first, yk_tanh_create(), last));
    return yk_module_to_dtype(m, YK_F64);
}

static yk_module *serve_net(yk_call *call)
{
    int64_t seed = yk_call_int(call, 0);
    if (seed < 0) {
        yk_set_error(YK_ERR_ARGUMENT, "a seed of %lld", (long long)seed);
        return NULL;
    }
    return net_make(seed);
}

static yk_module *serve_dropout(yk_call *call)
{
    (void)call;
    return yk_dropout_create(0.5);
}

/* ---- what the workers offer -------------------------------------------------------------------------------------- */

static yk_tensor *own;

/* A parameter of this worker's own, outside of a module. */
static yk_status serve_own(yk_call *call)
{
    return yk_call_return(call, yk_value_tensor(own));
}

static yk_status serve_scale(yk_call *call)
{
    yk_tensor *x = yk_to(yk_call_tensor(call, 0), yk_tensor_device(own));
    return yk_call_return(call, yk_value_tensor(yk_mul(x, own)));
}

static yk_status serve_living(yk_call *call)
{
    return yk_call_return(call, yk_value_int(living));
}

static yk_tensor *own_make(void)
{
    return yk_full(YK_SHAPE(1), 1.5, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true));
}

static yk_status offer(void)
{
    own = yk_tensor_retain(own_make());
    yk_status status = own ? yk_rpc_register_module("net", serve_net) : yk_last_error()->code;
    status = status ? status : yk_rpc_register_module("dropout", serve_dropout);
    status = status ? status : yk_rpc_register("own", serve_own);
    status = status ? status : yk_rpc_register("scale", serve_scale);
    return status ? status : yk_rpc_register("living", serve_living);
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

static yk_tensor *input_of(int step)
{
    yk_manual_seed(100 + (uint64_t)step);
    return yk_randn(YK_SHAPE(ROWS, WIDTH), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
}

static bool same_bits(yk_tensor *a, yk_tensor *b)
{
    if (!a || !b)
        return false;
    a = yk_contiguous(yk_to(yk_detach(a), (yk_device){YK_CPU, 0}));
    b = yk_contiguous(yk_to(yk_detach(b), (yk_device){YK_CPU, 0}));
    return yk_same_shape(a, b) && yk_tensor_dtype(a) == YK_F64 &&
           memcmp(yk_tensor_data(a), yk_tensor_data(b), (size_t)yk_numel(a) * sizeof(double)) == 0;
}

static const yk_sgd_options *const sgd_options =
    YK_OPTIONS(yk_sgd_options, .lr = 0.1, .momentum = 0.9, .weight_decay = 1e-3, .nesterov = true);
static const yk_adam_options *const adam_options =
    YK_OPTIONS(yk_adam_options, .lr = 0.01, .beta1 = 0.8, .amsgrad = true);

static const yk_rmsprop_options *const rmsprop_options =
    YK_OPTIONS(yk_rmsprop_options, .momentum = 0.8, .centered = true, .weight_decay = 1e-3);
static const yk_adagrad_options *const adagrad_options =
    YK_OPTIONS(yk_adagrad_options, .lr_decay = 0.1, .initial_accumulator_value = 0.5);
static const yk_adadelta_options *const adadelta_options =
    YK_OPTIONS(yk_adadelta_options, .rho = 0.8, .weight_decay = 1e-3);
static const yk_adamax_options *const adamax_options = YK_OPTIONS(yk_adamax_options, .lr = 0.01, .beta2 = 0.9);
static const yk_nadam_options *const nadam_options =
    YK_OPTIONS(yk_nadam_options, .momentum_decay = 0.1, .weight_decay = 0.1, .decoupled_weight_decay = true);
static const yk_radam_options *const radam_options =
    YK_OPTIONS(yk_radam_options, .lr = 0.01, .beta2 = 0.9, .eps = 1e-6);
enum { KINDS = 9 };

static yk_optimizer *alone_optimizer(int kind, yk_parameters *all)
{
    switch (kind) {
    case 0: return yk_sgd(all, sgd_options);
    case 1: return yk_adam(all, adam_options);
    case 2: return yk_adamw(all, adam_options);
    case 3: return yk_rmsprop(all, rmsprop_options);
    case 4: return yk_adagrad(all, adagrad_options);
    case 5: return yk_adadelta(all, adadelta_options);
    case 6: return yk_adamax(all, adamax_options);
    case 7: return yk_nadam(all, nadam_options);
    default: return yk_radam(all, radam_options);
    }
}

static yk_dist_optimizer *dist_optimizer(int kind, yk_ref *const *refs, int count)
{
    switch (kind) {
    case 0: return yk_dist_sgd(refs, count, sgd_options);
    case 1: return yk_dist_adam(refs, count, adam_options);
    case 2: return yk_dist_adamw(refs, count, adam_options);
    case 3: return yk_dist_rmsprop(refs, count, rmsprop_options);
    case 4: return yk_dist_adagrad(refs, count, adagrad_options);
    case 5: return yk_dist_adadelta(refs, count, adadelta_options);
    case 6: return yk_dist_adamax(refs, count, adamax_options);
    case 7: return yk_dist_nadam(refs, count, nadam_options);
    default: return yk_dist_radam(refs, count, radam_options);
    }
}

/* Nets 1 and 2 and a factor, of three workers, against the same in this one. */
static yk_status train_with(int kind)
{
    yk_module *first = yk_remote_module_create("worker1", "net", yk_args(yk_value_int(1)));
    yk_module *second = yk_remote_module_create("worker0", "net", yk_args(yk_value_int(2)));
    yk_ref *refs[2 * MOST + 1];
    int count = 0, more = 0;
    CHECK(first && second && yk_module_parameter_count(first) == 0);
    CHECK(!yk_remote_parameters(first, refs, MOST, &count) && count == 4);
    CHECK(!yk_remote_parameters(second, refs + count, MOST, &more) && more == 4);
    count += more;
    refs[count++] = yk_rpc_remote("worker2", "own", NULL, NULL);
    yk_dist_optimizer *o = dist_optimizer(kind, refs, count);
    CHECK(o);
    yk_module *alone[2] = {net_make(1), net_make(2)};
    yk_tensor *factor = own_make();
    if (kind > 0) { /* a worker keeps its factor from one kind to the next */
        yk_value *now = yk_ref_to_here(refs[count - 1], NULL);
        factor = yk_clone(yk_to(yk_value_as_tensor(now), yk_tensor_device(factor)));
        CHECK(!yk_set_requires_grad(factor, true));
    }
    yk_parameters *all = yk_parameters_create();
    for (int m = 0; m < 2; m++)
        for (int64_t i = 0; i < 4; i++) {
            char name[20];
            snprintf(name, sizeof(name), "%d-%d", m, (int)i);
            CHECK(!yk_parameters_add(all, name, yk_parameters_at(yk_module_parameters(alone[m]), i)));
        }
    CHECK(!yk_parameters_add(all, "factor", factor));
    yk_optimizer *plain = alone_optimizer(kind, all);
    CHECK(plain);
    for (int step = 0; step < STEPS; step++) {
        yk_dist_context *c = yk_dist_autograd_begin();
        yk_tensor *hidden = yk_forward(first, input_of(step));
        yk_value *scaled = hidden ? yk_rpc_sync("worker2", "scale", yk_args(yk_value_tensor(hidden)), NULL) : NULL;
        CHECK(scaled);
        yk_tensor *y = yk_forward(second, yk_to(yk_value_as_tensor(scaled), yk_tensor_device(factor)));
        yk_tensor *loss = y ? yk_mean(yk_square(y)) : NULL;
        CHECK(loss && !yk_dist_backward(c, &loss, 1, NULL));
        CHECK(!yk_dist_optimizer_step(o, c) && !yk_dist_autograd_end(c));
        yk_optimizer_zero_grad(plain);
        yk_tensor *same =
            yk_mean(yk_square(yk_forward(alone[1], yk_mul(yk_forward(alone[0], input_of(step)), factor))));
        CHECK(same && yk_item(same) == yk_item(loss));
        CHECK(!yk_backward(same) && !yk_optimizer_step(plain));
        if (step == 1)
            CHECK(!yk_dist_optimizer_set_lr(o, 0.05) && !yk_optimizer_set_lr(plain, -1, 0.05));
    }
    for (int i = 0; i < count; i++) {
        yk_value *there = yk_ref_to_here(refs[i], NULL);
        CHECK(there && same_bits(yk_value_as_tensor(there), yk_parameters_at(all, i)));
    }
    return YK_OK;
}

static yk_status train_all(void)
{
    for (int kind = 0; kind < KINDS; kind++) {
        yk_scope scope = yk_scope_begin();
        yk_status status = train_with(kind);
        yk_scope_end(scope);
        if (status)
            return status;
    }
    /* The modules there have gone with those here. */
    yk_value *left = NULL;
    for (int i = 0; i < 500; i++) {
        left = yk_rpc_sync("worker1", "living", NULL, NULL);
        CHECK(left);
        if (yk_value_as_int(left) == 0)
            break;
        usleep(10000);
    }
    CHECK(yk_value_as_int(left) == 0);
    return YK_OK;
}

static void test_training(void **state)
{
    (void)state;
    act_with(offer, train_all, 3);
}

/* ---- modes and errors -------------------------------------------------------------------------------------------- */

static yk_status use_wrongly(void)
{
    yk_module *dropout = yk_remote_module_create("worker1", "dropout", NULL);
    yk_tensor *ones = yk_ones(YK_SHAPE(64), NULL);
    yk_tensor *y = yk_forward(dropout, ones);
    CHECK(y && yk_item(yk_sum(yk_ne(y, ones))) > 0);
    yk_module_eval(dropout);
    y = yk_forward(dropout, ones);
    CHECK(y && yk_item(yk_sum(yk_ne(y, ones))) == 0);
    char printed[200] = "";
    FILE *to = fmemopen(printed, sizeof(printed), "w");
    CHECK(to && !yk_module_print(to, dropout) && !fclose(to) && strstr(printed, "RemoteModule(dropout at worker1)"));
    CHECK(!yk_remote_module_create("worker1", "dropuot", NULL) &&
          failed_with(YK_ERR_NOT_FOUND, "worker 'worker1'", "did you mean 'dropout'?"));
    CHECK(!yk_remote_module_create("worker7", "dropout", NULL) &&
          failed_with(YK_ERR_NOT_FOUND, "no worker 'worker7'", ""));
    CHECK(!yk_remote_module_create("worker1", "net", yk_args(yk_value_int(-3))) &&
          failed_with(YK_ERR_ARGUMENT, "worker1", "a seed of -3"));
    CHECK(!yk_remote_module_create("worker1", "net", NULL) &&
          failed_with(YK_ERR_ARGUMENT, "argument 0 is not there", "0"));
    yk_module *net = yk_remote_module_create("worker1", "net", yk_args(yk_value_int(3)));
    CHECK(net && !yk_forward(net, yk_ones(YK_SHAPE(2, WIDTH + 1), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64))) &&
          failed_with(YK_ERR_SHAPE, "worker 'worker1'", "linear"));
    yk_ref *refs[MOST];
    int count;
    CHECK(yk_remote_parameters(net, refs, 3, &count) && failed_with(YK_ERR_ARGUMENT, "has 4 parameters", "room for 3"));
    CHECK(yk_remote_parameters(yk_linear_create(2, 2, NULL), refs, 3, &count) &&
          failed_with(YK_ERR_ARGUMENT, "a Linear is here", "yk_module_parameters"));
    CHECK(!yk_remote_parameters(net, refs, MOST, &count));
    CHECK(!yk_dist_sgd(refs, count, NULL) && failed_with(YK_ERR_ARGUMENT, "lr", ""));
    CHECK(!yk_dist_sgd(refs, 0, sgd_options) && failed_with(YK_ERR_ARGUMENT, "0 parameters", ""));
    yk_ref *number = yk_ref_create(yk_value_int(3));
    CHECK(!yk_dist_adam(&number, 1, adam_options) && failed_with(YK_ERR_ARGUMENT, "parameter 0", "a tensor is wanted"));
    CHECK(yk_dist_optimizer_step(NULL, NULL) && failed_with(YK_ERR_ARGUMENT, "optimizer", "NULL"));
    /* A step writes to what a backward still needs: an error that says so. */
    yk_dist_optimizer *o = yk_dist_sgd(refs, count, sgd_options);
    yk_dist_optimizer *kept = yk_dist_optimizer_retain(o);
    yk_dist_optimizer_release(kept);
    yk_dist_context *c = yk_dist_autograd_begin();
    yk_tensor *x = yk_ones(YK_SHAPE(2, WIDTH), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    yk_tensor *first = yk_sum(yk_forward(net, x)), *second = yk_sum(yk_forward(net, x));
    CHECK(!yk_dist_backward(c, &first, 1, NULL) && !yk_dist_optimizer_step(o, c));
    CHECK(yk_dist_backward(c, &second, 1, NULL) &&
          failed_with(YK_ERR_STATE, "worker 'worker1'", "modified by an inplace operation"));
    CHECK(!yk_dist_autograd_end(c));
    CHECK(yk_rpc_register_module("net", serve_dropout) && failed_with(YK_ERR_ARGUMENT, "'net'", "another module"));
    CHECK(yk_rpc_register_module("net", NULL) && failed_with(YK_ERR_ARGUMENT, "NULL", ""));
    return YK_OK;
}

static void test_modes_and_errors(void **state)
{
    (void)state;
    act_with(offer, use_wrongly, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_training),
        cmocka_unit_test(test_modes_and_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
