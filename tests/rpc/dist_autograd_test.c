/*
 * dist_autograd_test.c - gradients through several workers: the bits of one process, contexts, errors, ends.
 */
#include <stdatomic.h>

#include "rpc/dist_autograd.h"
#include "tests/rpc/workers.h"

/* ---- a network in three parts ------------------------------------------------------------------------------------ */

/* Every process makes all parameters, alike; the part of each worker uses its own. */
enum { W0, W1, B1, UNUSED, W2, PARAMETERS, WIDTH = 7, ROWS = 5 };
static yk_tensor *parameters[PARAMETERS], *input;

static yk_status parameters_make(void)
{
    yk_manual_seed(3);
    for (int i = 0; i < PARAMETERS; i++) {
        parameters[i] = yk_tensor_retain(
            yk_randn(YK_SHAPE(WIDTH, WIDTH), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true)));
        if (!parameters[i])
            return yk_last_error()->code;
    }
    input = yk_tensor_retain(yk_randn(YK_SHAPE(ROWS, WIDTH), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64)));
    return input ? YK_OK : yk_last_error()->code;
}

static yk_tensor *times(yk_tensor *x, int parameter)
{
    yk_tensor *w = parameters[parameter];
    return yk_matmul(yk_to(x, yk_tensor_device(w)), w);
}

/* The part of worker 2. */
static yk_tensor *inner(yk_tensor *x)
{
    return yk_sigmoid(times(x, W2));
}

static yk_status serve_inner(yk_call *call)
{
    return yk_call_return(call, yk_value_tensor(inner(yk_call_tensor(call, 0))));
}

/* The part of worker 1, by way of `through`, which is worker 2 or, if NULL, here: the second output is not always used.
 */
static yk_status middle(yk_tensor *x, yk_tensor *outputs[2], const char *through)
{
    yk_tensor *hidden = yk_add(yk_relu(times(x, W1)), times(x, B1)), *far = NULL;
    if (through) {
        yk_value *answer = yk_rpc_sync(through, "inner", yk_args(yk_value_tensor(hidden)), NULL);
        far = answer ? yk_value_as_tensor(answer) : NULL;
    } else {
        far = inner(hidden);
    }
    if (!far)
        return yk_last_error()->code;
    outputs[0] = yk_mul(yk_to(far, yk_tensor_device(hidden)), hidden); /* what was sent is used here as well */
    outputs[1] = yk_exp(times(hidden, UNUSED));
    return outputs[0] && outputs[1] ? YK_OK : yk_last_error()->code;
}

static yk_status serve_middle(yk_call *call)
{
    yk_tensor *outputs[2];
    yk_status status = middle(yk_call_tensor(call, 0), outputs, yk_call_string(call, 1));
    return status ? status : yk_call_return(call, yk_args(yk_value_tensor(outputs[0]), yk_value_tensor(outputs[1])));
}

/* The part of worker 0: two ways through the middle and one past it. */
static yk_tensor *loss_of(const char *middle_worker, const char *inner_worker, bool use_all)
{
    yk_tensor *first = yk_tanh(times(input, W0)), *sum = yk_sum(yk_square(first));
    for (int i = 0; i < 2; i++) {
        yk_tensor *outputs[2] = {NULL, NULL};
        if (middle_worker) {
            yk_value *answer = yk_rpc_sync(middle_worker, "middle",
                                           yk_args(yk_value_tensor(first), yk_value_string(inner_worker)), NULL);
            for (int o = 0; o < 2 && answer; o++)
                outputs[o] = yk_value_as_tensor(yk_value_at(answer, o));
        } else if (middle(first, outputs, NULL)) {
            return NULL;
        }
        for (int o = 0; o < (use_all ? 2 : 1) && sum && outputs[o]; o++)
            sum = yk_add(sum, yk_sum(yk_to(outputs[o], yk_tensor_device(sum))));
        first = yk_mul(first, first);
    }
    return sum;
}

/* ---- what the workers offer -------------------------------------------------------------------------------------- */

/* The gradient of parameter i of this worker in the caller's context, or none. */
static yk_status serve_gradient(yk_call *call)
{
    yk_tensor *p = parameters[yk_call_int(call, 0)];
    yk_tensor *g = yk_dist_gradient(yk_dist_autograd_current(), p);
    if (yk_grad(p))
        return yk_set_error(YK_ERR_STATE, "grad of a parameter was set");
    if (yk_last_error())
        return yk_last_error()->code;
    return yk_call_return(call, g ? yk_value_tensor(yk_detach(g)) : yk_value_none());
}

static yk_status serve_count(yk_call *call)
{
    return yk_call_return(call, yk_value_int(yk__dist_count()));
}

static yk_tensor *same_forward(yk_custom *context, yk_tensor *const *inputs, int n)
{
    (void)context, (void)n;
    return yk_clone(inputs[0]);
}

static yk_status fail_backward(yk_custom *context, yk_tensor *grad, yk_tensor **grads, int n)
{
    (void)context, (void)grad, (void)grads, (void)n;
    return yk_set_error(YK_ERR_NUMERIC, "this gradient is not to my taste");
}

static yk_status die_backward(yk_custom *context, yk_tensor *grad, yk_tensor **grads, int n)
{
    (void)context, (void)grad, (void)grads, (void)n;
    kill(getpid(), SIGKILL);
    return YK_OK;
}

static yk_status hang_backward(yk_custom *context, yk_tensor *grad, yk_tensor **grads, int n)
{
    (void)context, (void)n;
    usleep(1500000);
    grads[0] = grad;
    return YK_OK;
}

/* The argument as it is; its backward does what the second one says. */
static yk_status serve_custom(yk_call *call)
{
    static const yk_custom_function all[] = {{.name = "fail", .forward = same_forward, .backward = fail_backward},
                                             {.name = "die", .forward = same_forward, .backward = die_backward},
                                             {.name = "hang", .forward = same_forward, .backward = hang_backward}};
    yk_tensor *x = yk_call_tensor(call, 0);
    return yk_call_return(call, yk_value_tensor(yk_custom_apply(&all[yk_call_int(call, 1)], &x, 1, NULL)));
}

/* A context of this worker's own: the gradient of W2 of worker 2 for the input times a number. */
static yk_status serve_train(yk_call *call)
{
    yk_value *gradient = NULL;
    for (int i = 0; i < 5 && !yk_last_error(); i++) {
        yk_dist_context *c = yk_dist_autograd_begin();
        yk_tensor *x = yk_mul_scalar(input, yk_call_real(call, 0));
        yk_value *answer = yk_rpc_sync("worker2", "inner", yk_args(yk_value_tensor(x)), NULL);
        yk_tensor *loss = answer ? yk_sum(yk_value_as_tensor(answer)) : NULL;
        if (!loss || yk_dist_backward(c, &loss, 1, NULL))
            return yk_last_error()->code;
        gradient = yk_rpc_sync("worker2", "gradient", yk_args(yk_value_int(W2)), NULL);
        if (yk_dist_autograd_end(c))
            return yk_last_error()->code;
    }
    return yk_call_return(call, gradient);
}

static yk_status offer(void)
{
    static const struct {
        const char *name;
        yk_rpc_fn fn;
    } all[] = {{"inner", serve_inner}, {"middle", serve_middle}, {"gradient", serve_gradient},
               {"count", serve_count}, {"custom", serve_custom}, {"train", serve_train}};
    yk_status status = parameters_make();
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && !status; i++)
        status = yk_rpc_register(all[i].name, all[i].fn);
    return status;
}

/* ---- bits -------------------------------------------------------------------------------------------------------- */

static bool same_bits(yk_tensor *a, yk_tensor *b)
{
    if (!a || !b)
        return !a && !b;
    a = yk_contiguous(yk_to(a, (yk_device){YK_CPU, 0}));
    b = yk_contiguous(yk_to(b, (yk_device){YK_CPU, 0}));
    return yk_same_shape(a, b) && yk_tensor_dtype(a) == YK_F64 &&
           memcmp(yk_tensor_data(a), yk_tensor_data(b), (size_t)yk_numel(a) * sizeof(double)) == 0;
}

/* The gradients of one process, in the leaves themselves: the last thing that worker0 does. */
static yk_status compare_with_one_process(yk_tensor *const found[PARAMETERS], double loss, bool use_all,
                                          int times_added)
{
    for (int i = 0; i < times_added; i++) {
        yk_tensor *alone = loss_of(NULL, NULL, use_all);
        CHECK(alone && yk_item(alone) == loss && !yk_backward(alone));
    }
    for (int i = 0; i < PARAMETERS; i++) {
        CHECK(same_bits(found[i], yk_grad(parameters[i])));
        CHECK(!yk_set_grad(parameters[i], NULL));
    }
    return YK_OK;
}

/* Runs forward and backward over the workers, and compares all gradients with those of one process. */
static yk_status train_over(const char *middle_worker, const char *inner_worker, bool use_all, bool twice)
{
    const char *owners[PARAMETERS] = {"worker0", middle_worker, middle_worker, middle_worker, inner_worker};
    yk_tensor *found[PARAMETERS];
    yk_dist_context *c = yk_dist_autograd_begin();
    yk_tensor *loss = loss_of(middle_worker, inner_worker, use_all);
    CHECK(c && c == yk_dist_autograd_current() && loss);
    if (twice)
        CHECK(!yk_dist_backward(c, &loss, 1, YK_OPTIONS(yk_dist_backward_options, .retain_graph = true)));
    CHECK(!yk_dist_backward(c, &loss, 1, NULL));
    CHECK(yk_dist_backward(c, &loss, 1, NULL) && failed_with(YK_ERR_STATE, "freed by an earlier backward", ""));
    for (int i = 0; i < PARAMETERS; i++) {
        yk_value *g = yk_rpc_sync(owners[i], "gradient", yk_args(yk_value_int(i)), NULL);
        CHECK(g);
        found[i] = yk_value_kind_of(g) == YK_VALUE_NONE ? NULL : yk_value_as_tensor(g);
    }
    CHECK(!yk_dist_autograd_end(c) && !yk_dist_autograd_current());
    CHECK((found[UNUSED] != NULL) == use_all && found[W0] && found[W2]);
    return compare_with_one_process(found, yk_item(loss), use_all, twice ? 2 : 1);
}

/* True if all workers have forgotten all contexts, soon. */
static bool contexts_are_gone(int workers)
{
    int64_t left = -1;
    for (int i = 0; i < 500 && left; i++) {
        left = yk__dist_count();
        for (int w = 1; w < workers; w++) {
            char name[20];
            snprintf(name, sizeof(name), "worker%d", w);
            yk_value *there = yk_rpc_sync(name, "count", NULL, NULL);
            left = there ? left + yk_value_as_int(there) : -1;
        }
        if (left)
            usleep(10000);
    }
    return left == 0;
}

static yk_status train_over_two(void)
{
    for (int all = 0; all < 2; all++) {
        CHECK(!train_over("worker1", "worker0", all, false)); /* there and back again */
        CHECK(!train_over("worker1", "worker1", all, false)); /* a worker that calls itself */
    }
    CHECK(!train_over("worker1", "worker0", false, true));
    CHECK(contexts_are_gone(2));
    return YK_OK;
}

static yk_status train_over_three(void)
{
    for (int all = 0; all < 2; all++)
        CHECK(!train_over("worker1", "worker2", all, all));
    CHECK(!train_over("worker2", "worker2", false, false));
    CHECK(contexts_are_gone(3));
    return YK_OK;
}

static void test_two_processes(void **state)
{
    (void)state;
    act_with(offer, train_over_two, 2);
}

static void test_three_processes(void **state)
{
    (void)state;
    act_with(offer, train_over_three, 3);
}

/* Results that stay where they were made, methods, several roots, and calls that record nothing. */
static yk_status other_ways(void)
{
    yk_dist_context *c = yk_dist_autograd_begin();
    yk_tensor *x = yk_mul_scalar(parameters[W0], 0.5);
    yk_ref *there = yk_rpc_remote("worker1", "inner", yk_args(yk_value_tensor(x)), NULL);
    yk_future *later = yk_rpc_async("worker1", "inner", yk_args(yk_value_tensor(x)), NULL);
    yk_value *a = yk_ref_to_here(there, NULL), *b = yk_future_wait(later, YK_NOT_GIVEN);
    CHECK(a && b && yk_requires_grad(yk_value_as_tensor(a)) && !yk_is_leaf(yk_value_as_tensor(a)));
    bool recorded = yk_no_grad_begin();
    yk_value *plain = yk_rpc_sync("worker1", "inner", yk_args(yk_value_tensor(x)), NULL);
    yk_no_grad_end(recorded);
    CHECK(plain && !yk_requires_grad(yk_value_as_tensor(plain)));
    yk_tensor *roots[2] = {yk_sum(yk_value_as_tensor(a)), yk_sum(yk_value_as_tensor(b))};
    yk_tensor *wrong = yk_sum(yk_value_as_tensor(a));
    CHECK(yk_backward_with(wrong, YK_OPTIONS(yk_backward_options, .retain_graph = true)) &&
          failed_with(YK_ERR_STATE, "goes on in worker 'worker1'", "yk_dist_backward"));
    CHECK(yk_backward_with(yk_sum(yk_value_as_tensor(b)), YK_OPTIONS(yk_backward_options, .create_graph = true)) &&
          failed_with(YK_ERR_UNSUPPORTED, "rpc_recv", "no gradient yet"));
    CHECK(!yk_dist_backward(c, roots, 2, NULL));
    yk_tensor *g = yk_dist_gradient(c, parameters[W0]);
    yk_value *w2 = yk_rpc_sync("worker1", "gradient", yk_args(yk_value_int(W2)), NULL);
    CHECK(g && w2 && !yk_grad(parameters[W0]) && !yk_dist_gradient(c, parameters[W1]) && !yk_last_error());
    CHECK(yk_dist_autograd_begin() == NULL && failed_with(YK_ERR_STATE, "in a context already", "end"));
    CHECK(!yk_dist_autograd_end(c));
    yk_tensor *alone =
        yk_add(yk_sum(inner(yk_mul_scalar(parameters[W0], 0.5))), yk_sum(inner(yk_mul_scalar(parameters[W0], 0.5))));
    CHECK(!yk_backward(alone) && same_bits(yk_value_as_tensor(w2), yk_grad(parameters[W2])));
    CHECK(same_bits(g, yk_grad(parameters[W0])));
    /* Outside of a context nothing of a graph is sent. */
    plain = yk_rpc_sync("worker1", "inner", yk_args(yk_value_tensor(parameters[W0])), NULL);
    CHECK(plain && !yk_requires_grad(yk_value_as_tensor(plain)) && !yk_dist_autograd_current());
    return YK_OK;
}

static void test_other_ways(void **state)
{
    (void)state;
    act_with(offer, other_ways, 2);
}

/* A leaf's own gradient is left alone, also where a backward that failed was about to add to it. */
static yk_status keep_own_gradient(void)
{
    yk_tensor *w = parameters[W1], *y = yk_linear(input, w, NULL);
    static const yk_custom_function failing = {.name = "fail", .forward = same_forward, .backward = fail_backward};
    yk_tensor *ones = yk_ones_like(w), *loss = yk_sum(yk_custom_apply(&failing, &y, 1, NULL));
    CHECK(!yk_set_grad(w, ones) && yk_backward(loss) && failed_with(YK_ERR_NUMERIC, "not to my taste", ""));
    yk_dist_context *c = yk_dist_autograd_begin();
    loss = yk_sum(yk_linear(input, w, NULL));
    CHECK(!yk_dist_backward(c, &loss, 1, NULL));
    yk_tensor *found = yk_dist_gradient(c, w);
    CHECK(yk_grad(w) == ones && yk_item(yk_sum(ones)) == WIDTH * WIDTH);
    CHECK(!yk_set_grad(w, NULL) && !yk_backward(yk_sum(yk_linear(input, w, NULL))));
    CHECK(same_bits(found, yk_grad(w)) && !yk_dist_autograd_end(c));
    return YK_OK;
}

static void test_own_gradients(void **state)
{
    (void)state;
    act_with(offer, keep_own_gradient, 1);
}

/* Three trainers at once, each with its own context, use the parameter of a fourth. */
static yk_status train_together(void)
{
    static const char *const trainers[] = {"worker0", "worker1", "worker3"};
    yk_future *trains[3];
    for (int i = 0; i < 3; i++)
        CHECK((trains[i] = yk_rpc_async(trainers[i], "train", yk_args(yk_value_real(i + 1)), NULL)));
    for (int i = 0; i < 3; i++) {
        yk_value *found = yk_future_wait(trains[i], YK_NOT_GIVEN);
        CHECK(found && yk_value_kind_of(found) == YK_VALUE_TENSOR);
        CHECK(!yk_backward(yk_sum(inner(yk_mul_scalar(input, i + 1)))));
        CHECK(same_bits(yk_value_as_tensor(found), yk_grad(parameters[W2])));
        CHECK(!yk_set_grad(parameters[W2], NULL));
    }
    CHECK(contexts_are_gone(4));
    return YK_OK;
}

static void test_several_trainers(void **state)
{
    (void)state;
    act_with(offer, train_together, 4);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static yk_status fail_there(void)
{
    for (int i = 0; i < 3; i++) { /* in the middle of a graph; the next context is not concerned */
        yk_dist_context *c = yk_dist_autograd_begin();
        yk_value *x = yk_value_tensor(yk_mul(parameters[W0], parameters[W1]));
        yk_value *failing = yk_rpc_sync("worker1", "custom", yk_args(x, yk_value_int(0)), NULL);
        CHECK(failing);
        yk_value *answer = yk_rpc_sync("worker2", "inner", yk_args(failing), NULL);
        CHECK(answer);
        yk_tensor *loss = yk_sum(yk_value_as_tensor(answer));
        CHECK(yk_dist_backward(c, &loss, 1, NULL));
        CHECK(failed_with(YK_ERR_NUMERIC, "worker 'worker1'", "not to my taste"));
        CHECK(!yk_dist_autograd_end(c));
        c = yk_dist_autograd_begin();
        answer = yk_rpc_sync("worker1", "custom", yk_args(x, yk_value_int(2)), NULL);
        CHECK(answer);
        loss = yk_sum(yk_value_as_tensor(answer));
        if (i == 0) {
            CHECK(yk_dist_backward(c, &loss, 1, YK_OPTIONS(yk_dist_backward_options, .timeout = 0.3)) &&
                  failed_with(YK_ERR_TIMEOUT, "dist_backward", "time"));
        } else {
            CHECK(yk_dist_backward(c, &loss, 0, NULL) && failed_with(YK_ERR_ARGUMENT, "0 roots", ""));
            CHECK(yk_dist_backward(NULL, &loss, 1, NULL) && failed_with(YK_ERR_ARGUMENT, "context", "NULL"));
            yk_tensor *wide = parameters[W0], *constant = yk_ones(YK_SHAPE(1), NULL);
            CHECK(yk_dist_backward(c, &wide, 1, NULL) && failed_with(YK_ERR_SHAPE, "root 0", "(7, 7)"));
            CHECK(yk_dist_backward(c, &constant, 1, NULL) && failed_with(YK_ERR_STATE, "root 0", "does not require"));
        }
        CHECK(!yk_dist_autograd_end(c));
        CHECK(yk_dist_autograd_end(NULL) && failed_with(YK_ERR_ARGUMENT, "context", "NULL"));
    }
    CHECK(contexts_are_gone(3));
    return YK_OK;
}

static void test_errors_of_others(void **state)
{
    (void)state;
    act_with(offer, fail_there, 3);
}

/* w1 is killed in the middle of a backward of w0: an error by name. Then w0 is killed in a context: w2 forgets it. */
static yk_status worker_dies(int rank, const char *path)
{
    yk_scope scope = yk_scope_begin();
    char name[20];
    snprintf(name, sizeof(name), "w%d", rank);
    yk_status status = join_with(offer, path, name, 3);
    if (!status && rank == 0) {
        yk_dist_context *c = yk_dist_autograd_begin();
        yk_value *x = yk_value_tensor(yk_mul(parameters[W0], parameters[W1]));
        yk_value *dying = yk_rpc_sync("w1", "custom", yk_args(x, yk_value_int(1)), NULL);
        CHECK(dying);
        yk_value *answer = yk_rpc_sync("w2", "inner", yk_args(dying), NULL);
        CHECK(answer);
        yk_tensor *loss = yk_sum(yk_value_as_tensor(answer));
        CHECK(yk_dist_backward(c, &loss, 1, NULL) && failed_with(YK_ERR_CONNECTION, "worker 'w1'", "run"));
        yk_value *there = yk_rpc_sync("w2", "count", NULL, NULL);
        CHECK(there && yk_value_as_int(there) == 1 && !yk_store_set(yk_file_store(path), "test/failed", "1", 1));
        CHECK(!await_key(path, "test/seen"));
        kill(getpid(), SIGKILL);
    }
    if (!status && rank == 2) {
        CHECK(!await_key(path, "test/failed") && yk__dist_count() == 1);
        CHECK(!yk_store_set(yk_file_store(path), "test/seen", "1", 1));
        for (int i = 0; i < 3000 && yk__dist_count(); i++)
            usleep(10000);
        CHECK(yk__dist_count() == 0);
    }
    if (!status && rank == 1)
        pause();
    status = status ? status : yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(20));
    yk_scope_end(scope);
    return status;
}

static void test_workers_that_die(void **state)
{
    (void)state;
    char path[] = "/tmp/yoke-rpc-XXXXXX";
    close(mkstemp(path));
    pid_t pids[3];
    fork_workers(worker_dies, path, 3, pids);
    expect_end(pids[0], SIGKILL);
    expect_end(pids[1], SIGKILL);
    expect_end(pids[2], 0);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_processes),    cmocka_unit_test(test_three_processes),
        cmocka_unit_test(test_other_ways),       cmocka_unit_test(test_own_gradients),
        cmocka_unit_test(test_several_trainers), cmocka_unit_test(test_errors_of_others),
        cmocka_unit_test(test_workers_that_die),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
