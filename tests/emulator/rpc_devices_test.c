/*
 * rpc_devices_test.c - tensors of (emulated) GPUs in calls, references, remote modules, distributed autograd and
 * optimizers: by maps of devices, in the order of what is queued, with the bits of one process.
 */
#include <stdatomic.h>

#include "tests/emulator/use_emulator.h"
#include "tests/rpc/workers.h"

static const yk_device cpu = {YK_CPU, 0}, cuda0 = {YK_CUDA, 0}, cuda1 = {YK_CUDA, 1};

static bool is_on(const yk_tensor *x, yk_device device)
{
    return x && yk_device_equal(yk_tensor_device(x), device);
}

/* True if all elements are v. */
static bool is_all(const yk_tensor *x, double v)
{
    double got[64];
    bool right = x && yk_numel(x) <= 64 && !yk_tensor_read(x, got, sizeof(double) * (size_t)yk_numel(x));
    for (int64_t i = 0; right && i < yk_numel(x); i++)
        right = got[i] == v;
    return right;
}

static yk_tensor *filled(double v, yk_device device)
{
    return yk_full(YK_SHAPE(5), v, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .device = device));
}

/* ---- what the workers offer -------------------------------------------------------------------------------------- */

static atomic_int doubled;

/* The device on which the argument came, and twice the argument, there. */
static yk_status twice(yk_call *call)
{
    yk_tensor *x = yk_call_tensor(call, 0);
    char name[16];
    doubled++;
    if (!x)
        return yk_last_error()->code;
    yk_value *device = yk_value_string(yk_device_format(yk_tensor_device(x), name));
    return yk_call_return(call, yk_args(device, yk_value_tensor(yk_mul_scalar(x, 2))));
}

static yk_status count(yk_call *call)
{
    return yk_call_return(call, yk_value_int(doubled));
}

/* Fives on that GPU of this worker. */
static yk_status fives(yk_call *call)
{
    yk_device device = {YK_CUDA, (int16_t)yk_call_int(call, 0)};
    return yk_call_return(call, yk_value_tensor(filled(5, device)));
}

/* A tensor of this worker's first GPU goes to another worker. */
static yk_status send_on(yk_call *call)
{
    return yk_call_return(
        call, yk_rpc_sync(yk_call_string(call, 0), "twice", yk_args(yk_value_tensor(filled(1, cuda0))), NULL));
}

static yk_status offer_twice(void)
{
    yk_status status = yk_rpc_register("twice", twice);
    status = status ? status : yk_rpc_register("count", count);
    status = status ? status : yk_rpc_register("fives", fives);
    return status ? status : yk_rpc_register("send_on", send_on);
}

/* ---- maps -------------------------------------------------------------------------------------------------------- */

static const yk_rpc_device_map maps_of_0[] = {{"worker1", {YK_CUDA, 0}, {YK_CUDA, 1}},
                                              {"worker1", {YK_CUDA, 1}, {YK_CPU, 0}},
                                              {"*", {YK_CUDA, 0}, {YK_CUDA, 0}},
                                              {NULL, {0, 0}, {0, 0}}};
static const yk_rpc_device_map maps_of_1[] = {
    {"worker0", {YK_CUDA, 0}, {YK_CUDA, 0}}, {"worker2", {YK_CUDA, 0}, {YK_CUDA, 7}}, {NULL, {0, 0}, {0, 0}}};

/* Calls twice with fives: true if they came to that device there, and tens came back to that one here. */
static yk_status sends(const char *worker, yk_device from, const char *there, yk_device back)
{
    yk_value *answer = yk_rpc_sync(worker, "twice", yk_args(yk_value_tensor(filled(5, from))), NULL);
    CHECK(answer && strcmp(yk_value_as_string(yk_value_at(answer, 0)), there) == 0);
    yk_tensor *tens = yk_value_as_tensor(yk_value_at(answer, 1));
    CHECK(is_on(tens, back) && is_all(tens, 10));
    return YK_OK;
}

static yk_status act_maps(void)
{
    CHECK(!sends("worker1", cuda0, "cuda:1", cuda0));
    CHECK(!sends("worker1", cuda1, "cpu:0", cuda1));
    CHECK(!sends("worker1", cpu, "cpu:0", cuda1)); /* a result goes the way back of its device */
    CHECK(!sends("worker2", cuda0, "cuda:0", cuda0));
    CHECK(!sends("worker2", cpu, "cpu:0", cpu));
    CHECK(!sends("worker0", cuda1, "cuda:1", cuda1)); /* to itself */

    /* No way there: nothing is sent. */
    yk_value *args = yk_args(yk_value_tensor(filled(5, cuda1)));
    CHECK(!yk_rpc_sync("worker2", "twice", args, NULL) &&
          failed_with(YK_ERR_ARGUMENT,
                      "rpc_sync: the arguments of 'twice': a tensor on cuda:1 has no device at worker "
                      "'worker2'",
                      "device_maps of rpc_init"));
    CHECK(!yk_rpc_async("worker2", "twice", args, NULL) && failed_with(YK_ERR_ARGUMENT, "rpc_async", "device_maps"));
    CHECK(!yk_rpc_remote("worker2", "twice", args, NULL) && failed_with(YK_ERR_ARGUMENT, "rpc_remote", "device_maps"));
    yk_value *counted = yk_rpc_sync("worker2", "count", NULL, NULL);
    CHECK(counted && yk_value_as_int(counted) == 2);

    /* No way back: by the other's own map, and else an error. */
    yk_value *back = yk_rpc_sync("worker1", "fives", yk_args(yk_value_int(0)), NULL);
    CHECK(back && is_on(yk_value_as_tensor(back), cuda0) && is_all(yk_value_as_tensor(back), 5));
    CHECK(!yk_rpc_sync("worker2", "fives", yk_args(yk_value_int(1)), NULL) &&
          failed_with(YK_ERR_ARGUMENT, "the result of 'fives': a tensor on cuda:1 has no device at worker 'worker0'",
                      "device_maps"));
    CHECK(!yk_rpc_sync("worker1", "send_on", yk_args(yk_value_string("worker2")), NULL) &&
          failed_with(YK_ERR_DEVICE, "a tensor for cuda:7 of this worker", "device cuda:7 does not exist"));

    /* References. */
    yk_ref *ref = yk_rpc_remote("worker1", "twice", yk_args(yk_value_tensor(filled(3, cuda0))), NULL);
    yk_value *here = yk_ref_to_here(ref, NULL);
    CHECK(here && strcmp(yk_value_as_string(yk_value_at(here, 0)), "cuda:1") == 0);
    CHECK(is_on(yk_value_as_tensor(yk_value_at(here, 1)), cuda0) &&
          is_all(yk_value_as_tensor(yk_value_at(here, 1)), 6));
    yk_ref *own = yk_ref_create(yk_value_tensor(filled(4, cuda1)));
    here = yk_ref_to_here(own, NULL);
    CHECK(here && is_on(yk_value_as_tensor(here), cuda1) && is_all(yk_value_as_tensor(here), 4));
    return YK_OK;
}

/* The work that is queued before the call is in what is sent, and that which is queued after it is not; large ones, and
 * strides. */
static yk_status act_order(void)
{
    enum { ROWS = 130, COLUMNS = 170 };
    yk_tensor *x = yk_zeros(YK_SHAPE(ROWS, COLUMNS), YK_OPTIONS(yk_tensor_options, .device = cuda0));
    yk_tensor *transposed = yk_transpose(x, 0, 1);
    for (int round = 0; round < 3; round++) {
        yk_future *f[2];
        for (int i = 0; i < 40; i++)
            CHECK(yk_copy_(x, yk_add_scalar(x, 1)));
        f[0] = yk_rpc_async("worker1", "twice", yk_args(yk_value_tensor(x)), NULL);
        f[1] = yk_rpc_async("worker1", "twice", yk_args(yk_value_tensor(transposed)), NULL);
        CHECK(f[0] && f[1] && yk_fill_(x, 1000 * (round + 1)));
        for (int i = 0; i < 2; i++) {
            yk_value *answer = yk_future_wait(f[i], YK_NOT_GIVEN);
            yk_tensor *y = answer ? yk_value_as_tensor(yk_value_at(answer, 1)) : NULL;
            CHECK(is_on(y, cuda0) && yk_size(y, 0) == (i ? COLUMNS : ROWS));
            yk_tensor *wrong = yk_sum(yk_abs(yk_add_scalar(y, -2.0 * (1000 * round + 40))));
            CHECK(wrong && yk_item(wrong) == 0);
        }
    }
    yk_tensor *rows = yk_reshape(yk_arange(0, 12, 1, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64)), YK_SHAPE(3, 4));
    yk_value *answer =
        yk_rpc_sync("worker1", "twice", yk_args(yk_value_tensor(yk_transpose(yk_to(rows, cuda0), 0, 1))), NULL);
    double got[12];
    CHECK(answer && !yk_tensor_read(yk_value_as_tensor(yk_value_at(answer, 1)), got, sizeof(got)));
    for (int i = 0; i < 12; i++)
        CHECK(got[i] == 2 * (i % 3 * 4 + i / 3));
    return YK_OK;
}

typedef struct plan {
    yk_status (*offer)(void);
    act_fn act;
    const yk_rpc_device_map *maps[3];
} plan;

static yk_status worker_run(int rank, void *arg)
{
    const plan *p = arg;
    yk_scope scope = yk_scope_begin();
    yk_status status = p->offer();
    status = status ? status : yk_rpc_init(NULL, YK_OPTIONS(yk_rpc_init_options, .device_maps = p->maps[rank]));
    if (!status && rank == 0)
        status = p->act();
    status = status ? status : yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(30));
    yk_scope_end(scope);
    return status;
}

static void run(plan p, int workers)
{
    if (yk_spawn(worker_run, &p, workers, NULL)) {
        yk_report_error(stderr);
        fail_msg("the workers failed");
    }
}

static void maps(void **state)
{
    (void)state;
    run((plan){offer_twice, act_maps, {maps_of_0, maps_of_1, NULL}}, 3);
    setenv("YOKE_SHARED_MEMORY", "0", 1);
    run((plan){offer_twice, act_maps, {maps_of_0, maps_of_1, NULL}}, 3);
    unsetenv("YOKE_SHARED_MEMORY");
}

static void order_of_what_is_queued(void **state)
{
    (void)state;
    run((plan){offer_twice, act_order, {maps_of_0, maps_of_1}}, 2);
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */

/* Every process makes the same parameters: one of worker 0 on its cuda:1, two of worker 1 on its cuda:0 and a CPU. */
enum { OWN, FAR, FAR_CPU, PARAMETERS, WIDTH = 6, STEPS = 3 };
static const yk_device places[PARAMETERS] = {{YK_CUDA, 1}, {YK_CUDA, 0}, {YK_CPU, 0}};
static yk_tensor *weights[PARAMETERS];

static yk_status weights_make(void)
{
    yk_manual_seed(11);
    for (int i = 0; i < PARAMETERS; i++) {
        yk_tensor *w = yk_randn(YK_SHAPE(WIDTH, WIDTH), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
        weights[i] = w ? yk_tensor_retain(yk_clone(yk_to(w, places[i]))) : NULL;
        if (!weights[i])
            return yk_last_error()->code;
        if (yk_set_requires_grad(weights[i], true))
            return yk_last_error()->code;
    }
    return YK_OK;
}

/* Half of the model, of worker 1; a part of it is on a CPU. */
static yk_tensor *half(yk_tensor *x)
{
    yk_tensor *h = yk_tanh(yk_matmul(x, weights[FAR]));
    return yk_mul(h, yk_to(yk_matmul(yk_to(x, cpu), weights[FAR_CPU]), yk_tensor_device(h)));
}

static yk_status serve_half(yk_call *call)
{
    return yk_call_return(call, yk_value_tensor(half(yk_to(yk_call_tensor(call, 0), cuda0))));
}

static yk_status serve_weight(yk_call *call)
{
    return yk_call_return(call, yk_value_ref(yk_ref_create(yk_value_tensor(weights[yk_call_int(call, 0)]))));
}

static yk_module *linear_make(yk_call *call)
{
    yk_manual_seed(5);
    yk_module *m = yk_linear_create(WIDTH, yk_call_int(call, 0), NULL);
    return yk_module_to(m, cuda1);
}

static yk_status offer_half(void)
{
    yk_status status = weights_make();
    status = status ? status : yk_rpc_register("half", serve_half);
    status = status ? status : yk_rpc_register_module("linear", linear_make);
    return status ? status : yk_rpc_register("weight", serve_weight);
}

/* The sum of the model over an input of a GPU and one of a CPU: NULL worker: all in this process. */
static yk_tensor *loss_of(const char *worker, yk_tensor *const *inputs)
{
    yk_tensor *sum = NULL;
    for (int i = 0; i < 2; i++) {
        yk_tensor *x = yk_sigmoid(yk_matmul(yk_to(inputs[i], cuda1), weights[OWN]));
        x = i ? yk_to(x, cpu) : x; /* which the map brings to another GPU there */
        yk_tensor *y = NULL;
        if (worker) {
            yk_value *answer = yk_rpc_sync(worker, "half", yk_args(yk_value_tensor(x)), NULL);
            y = answer ? yk_value_as_tensor(answer) : NULL;
        } else {
            y = half(yk_to(x, cuda0));
        }
        y = y ? yk_sum(yk_square(yk_to(y, cuda1))) : NULL;
        sum = sum && y ? yk_add(sum, y) : y;
    }
    return sum;
}

/* True if both have the same bits. */
static bool are_equal(const yk_tensor *a, const yk_tensor *b)
{
    double x[WIDTH * WIDTH], y[WIDTH * WIDTH];
    return a && b && yk_numel(a) == WIDTH * WIDTH && yk_numel(b) == WIDTH * WIDTH && !yk_tensor_read(a, x, sizeof(x)) &&
           !yk_tensor_read(b, y, sizeof(y)) && memcmp(x, y, sizeof(x)) == 0;
}

static yk_status act_gradients(void)
{
    yk_tensor *inputs[2];
    for (int i = 0; i < 2; i++)
        CHECK((inputs[i] = yk_randn(YK_SHAPE(3, WIDTH), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64))));
    inputs[0] = yk_to(inputs[0], cuda0);

    yk_ref *refs[PARAMETERS];
    refs[OWN] = yk_ref_create(yk_value_tensor(weights[OWN]));
    for (int i = FAR; i < PARAMETERS; i++) {
        yk_value *answer = yk_rpc_sync("worker1", "weight", yk_args(yk_value_int(i)), NULL);
        CHECK(answer && (refs[i] = yk_value_as_ref(answer)));
    }
    yk_dist_optimizer *sgd = yk_dist_sgd(refs, PARAMETERS, YK_OPTIONS(yk_sgd_options, .lr = 0.05, .momentum = 0.9));
    CHECK(sgd);
    yk_tensor *alone[PARAMETERS]; /* this process' own run begins with its own copies */
    double losses[STEPS];
    for (int i = 0; i < PARAMETERS; i++)
        CHECK((alone[i] = yk_clone(yk_detach(weights[i]))));
    for (int step = 0; step < STEPS; step++) {
        yk_dist_context *context = yk_dist_autograd_begin();
        yk_tensor *loss = loss_of("worker1", inputs);
        CHECK(loss && !yk_dist_backward(context, &loss, 1, NULL));
        losses[step] = yk_item(loss);
        yk_tensor *gradient = yk_dist_gradient(context, weights[OWN]);
        CHECK(is_on(gradient, places[OWN]));
        CHECK(!yk_dist_optimizer_step(sgd, context) && !yk_dist_autograd_end(context));
    }
    yk_tensor *trained[PARAMETERS];
    for (int i = 0; i < PARAMETERS; i++) {
        yk_value *answer = yk_ref_to_here(refs[i], NULL);
        CHECK(answer && (trained[i] = yk_clone(yk_detach(yk_value_as_tensor(answer)))));
        CHECK(yk_copy_(yk_detach(weights[i]), alone[i]));
    }

    yk_parameters *all = yk_parameters_create();
    for (int i = 0; i < PARAMETERS; i++)
        CHECK(!yk_parameters_add(all, (const char *[]){"own", "far", "far_cpu"}[i], weights[i]));
    yk_optimizer *own = yk_sgd(all, YK_OPTIONS(yk_sgd_options, .lr = 0.05, .momentum = 0.9));
    for (int step = 0; step < STEPS; step++) {
        yk_optimizer_zero_grad(own);
        yk_tensor *loss = loss_of(NULL, inputs);
        CHECK(loss && !yk_backward(loss) && yk_item(loss) == losses[step] && !yk_optimizer_step(own));
    }
    for (int i = 0; i < PARAMETERS; i++)
        CHECK(are_equal(trained[i], weights[i]) && !are_equal(alone[i], weights[i]));
    return YK_OK;
}

/* A remote module needs no map: what goes there comes to its device, and what it gives to that of the input. */
static yk_status act_module(void)
{
    yk_module *remote = yk_remote_module_create("worker1", "linear", yk_args(yk_value_int(WIDTH)));
    yk_tensor *x = yk_to(yk_full(YK_SHAPE(2, WIDTH), 0.5, NULL), cuda0);
    CHECK(!yk_set_requires_grad(x, true));
    yk_dist_context *context = yk_dist_autograd_begin();
    yk_tensor *y = remote ? yk_forward(remote, x) : NULL;
    CHECK(is_on(y, cuda0));
    yk_tensor *loss = yk_sum(yk_square(y));
    CHECK(!yk_dist_backward(context, &loss, 1, NULL));
    yk_tensor *gradient = yk_dist_gradient(context, x);
    CHECK(is_on(gradient, cuda0));

    yk_manual_seed(5);
    yk_module *here = yk_linear_create(WIDTH, WIDTH, NULL);
    CHECK(yk_module_to(here, cuda0));
    yk_tensor *same = yk_sum(yk_square(yk_forward(here, x)));
    CHECK(same && yk_item(same) == yk_item(loss) && !yk_backward(same));
    float a[2 * WIDTH], b[2 * WIDTH];
    CHECK(!yk_tensor_read(gradient, a, sizeof(a)) && !yk_tensor_read(yk_grad(x), b, sizeof(b)) &&
          memcmp(a, b, sizeof(a)) == 0);
    return yk_dist_autograd_end(context);
}

static const yk_rpc_device_map maps_of_gradients[] = {
    {"worker1", {YK_CUDA, 1}, {YK_CUDA, 0}}, {"worker1", {YK_CPU, 0}, {YK_CUDA, 1}}, {NULL, {0, 0}, {0, 0}}};

static void gradients(void **state)
{
    (void)state;
    run((plan){offer_half, act_gradients, {maps_of_gradients, NULL}}, 2);
}

static void remote_modules(void **state)
{
    (void)state;
    run((plan){offer_half, act_module, {NULL, NULL}}, 2);
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static bool refused_with(const yk_rpc_device_map *given, yk_status code, const char *a, const char *b)
{
    yk_rpc_init_options o = *YK_OPTIONS(yk_rpc_init_options, .device_maps = given);
    o.store = yk_hash_store();
    return yk_rpc_init("solo", &o) && failed_with(code, a, b);
}

static bool refuses(void)
{
#define REFUSED(code, a, b, ...)                                                                                       \
    refused_with((const yk_rpc_device_map[]){__VA_ARGS__, {NULL, {0, 0}, {0, 0}}}, code, a, b)
    return REFUSED(YK_ERR_DEVICE, "device_maps[0].from", "cuda:9 does not exist", {"w", {YK_CUDA, 9}, cuda0}) &&
           REFUSED(YK_ERR_ARGUMENT, "device_maps[1].to, at worker 'w'", "index -1", {"w", cuda0, cuda0},
                   {"w", cuda1, {YK_CUDA, -1}}) &&
           REFUSED(YK_ERR_ARGUMENT, "cuda:0 goes to both cuda:0 and cuda:1 of worker 'w'", "", {"w", cuda0, cuda0},
                   {"w", cuda0, cuda1}) &&
           REFUSED(YK_ERR_ARGUMENT, "both cuda:0 and cuda:1 go to cuda:5 of worker '*'", "no way back",
                   {"*", cuda0, {YK_CUDA, 5}}, {"*", cuda1, {YK_CUDA, 5}}) &&
           REFUSED(YK_ERR_ARGUMENT, "device_maps", "space", {"a worker", cuda0, cuda0});
#undef REFUSED
}

static yk_status refuses_there(int rank, void *arg)
{
    (void)rank, (void)arg;
    yk_scope scope = yk_scope_begin();
    bool right = refuses();
    yk_status status =
        right ? YK_OK : yk_set_error(YK_ERR_CALLBACK, "%s", yk_last_error() ? yk_last_error()->message : "taken");
    yk_scope_end(scope);
    return status;
}

static void refused(void **state)
{
    (void)state;
    expect_ok(yk_spawn(refuses_there, NULL, 1, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(maps), cmocka_unit_test(order_of_what_is_queued),
                                       cmocka_unit_test(gradients), cmocka_unit_test(remote_modules),
                                       cmocka_unit_test(refused)};
    if (!use_emulator())
        return 0;
    setenv("YOKE_EMULATOR_GPUS", "2", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    return cmocka_run_group_tests_name("rpc devices", tests, NULL, NULL);
}
