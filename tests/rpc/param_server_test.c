/*
 * param_server_test.c - parameter servers: asynchronous, synchronous and bounded-stale updates of dense parameters and
 * of rows, against one process; trainers and servers that are killed.
 */
#include <sys/stat.h>
#include <time.h>

#include "tests/rpc/workers.h"

enum { WIDTH = 5, ROWS = 4, STEPS = 4, TRAINERS = 3, TABLE_ROWS = 11, DIM = 3 };

/* The servers of a job are the first ranks: worker0, worker1, ... */
static const char *const server_names[] = {"worker0", "worker1", "worker2", "worker3"};

typedef struct plan {
    int servers, trainers;
    yk_status (*train)(const struct plan *plan, int trainer);
    yk_server_mode mode;
    int kind; /* of the optimizer: kinds[] */
} plan;

static yk_status run_worker(int rank, void *arg)
{
    const plan *p = arg;
    yk_scope scope = yk_scope_begin();
    yk_status status = yk_rpc_init(NULL, NULL);
    if (!status && rank >= p->servers)
        status = p->train(p, rank - p->servers);
    if (!status)
        status = yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(30));
    yk_scope_end(scope);
    return status;
}

static void run_plan(plan p)
{
    if (yk_spawn(run_worker, &p, p.servers + p.trainers, NULL)) {
        yk_report_error(stderr);
        fail_msg("the workers failed");
    }
}

/* Two layers in f64, from a seed: of 5 x 5 + 5 + 5 + 1 elements. */
static yk_module *net_make(uint64_t seed)
{
    yk_manual_seed(seed);
    yk_module *first = yk_linear_create(WIDTH, WIDTH, NULL), *last = yk_linear_create(WIDTH, 1, NULL);
    return yk_module_to_dtype(yk_sequential(first, yk_tanh_create(), last), YK_F64);
}

static yk_tensor *input_of(int step, int trainer)
{
    yk_manual_seed(1000 + (uint64_t)(step * TRAINERS + trainer));
    return yk_randn(YK_SHAPE(ROWS, WIDTH), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
}

static yk_tensor *loss_of(yk_module *net, int step, int trainer)
{
    return yk_mean(yk_square(yk_forward(net, input_of(step, trainer))));
}

static bool same_bits(yk_tensor *a, yk_tensor *b)
{
    a = a ? yk_contiguous(yk_to(yk_detach(a), (yk_device){YK_CPU, 0})) : NULL;
    b = b ? yk_contiguous(yk_to(yk_detach(b), (yk_device){YK_CPU, 0})) : NULL;
    return a && b && yk_same_shape(a, b) && yk_tensor_dtype(a) == YK_F64 && yk_tensor_dtype(b) == YK_F64 &&
           memcmp(yk_tensor_data(a), yk_tensor_data(b), (size_t)yk_numel(a) * sizeof(double)) == 0;
}

static bool same_weights(yk_module *a, yk_module *b)
{
    yk_parameters *x = yk_module_parameters(a), *y = yk_module_parameters(b);
    for (int64_t i = 0; i < yk_parameters_count(x); i++)
        if (!same_bits(yk_parameters_at(x, i), yk_parameters_at(y, i)))
            return false;
    return true;
}

/* ---- asynchronous ------------------------------------------------------------------------------------------------ */

/* The gradient is the same at every point, so the order of the pushes does not matter. */
static yk_status train_async(const plan *p, int trainer)
{
    enum { PUSHES = 10 };
    yk_module *net = net_make(trainer == 0 ? 1 : 2);
    yk_parameter_server *ps = yk_parameter_server_join(
        server_names, p->servers, yk_module_parameters(net),
        YK_OPTIONS(yk_parameter_server_options, .rank = trainer, .trainers = p->trainers, .mode = p->mode,
                   .staleness = 3, .sgd = YK_OPTIONS(yk_sgd_options, .lr = 0.5)));
    CHECK(ps);
    for (int i = 0; i < PUSHES; i++) {
        yk_scope step = yk_scope_begin();
        yk_module_zero_grad(net);
        yk_tensor *loss = NULL;
        yk_parameters *all = yk_module_parameters(net);
        for (int64_t k = 0; k < yk_parameters_count(all); k++) {
            yk_tensor *sum = yk_sum(yk_parameters_at(all, k));
            loss = loss ? yk_add(loss, sum) : sum;
        }
        CHECK(!yk_backward(loss));
        CHECK(i % 2 ? !yk_parameter_server_step(ps) : !yk_parameter_server_push(ps));
        yk_scope_end(step);
    }
    /* All have pushed when all updates are there. */
    for (time_t end = time(NULL) + (time_t)patience(20);
         yk_parameter_server_updates(ps) < (int64_t)PUSHES * p->trainers;) {
        CHECK(time(NULL) < end);
        CHECK(!yk_parameter_server_pull(ps));
    }
    CHECK(yk_parameter_server_updates(ps) == (int64_t)PUSHES * p->trainers);
    double moved = 0.5 * PUSHES * p->trainers;
    /* The first trainer's numbers were where it began, or the second's: of each parameter the same. */
    yk_module *one = net_make(1), *two = net_make(2);
    double off[2] = {0, 0};
    for (int64_t k = 0; k < yk_parameters_count(yk_module_parameters(net)); k++)
        for (int i = 0; i < 2; i++) {
            yk_tensor *start = yk_parameters_at(yk_module_parameters(i ? two : one), k);
            yk_tensor *now = yk_parameters_at(yk_module_parameters(net), k);
            off[i] += yk_item(yk_sum(yk_abs(yk_sub(yk_add_scalar(yk_detach(now), moved), yk_detach(start)))));
        }
    CHECK(off[0] < 1e-9 || off[1] < 1e-9);
    return YK_OK;
}

static void test_async(void **state)
{
    (void)state;
    run_plan((plan){.servers = 1, .trainers = 2, .train = train_async, .mode = YK_SERVER_ASYNC});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_async),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
