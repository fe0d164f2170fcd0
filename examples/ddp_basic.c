/*
 * ddp_basic.c - one step of a small model in two processes, then of a model that is itself on two devices. Follows
 * seeds/002: demo_basic and demo_model_parallel of its spawn example.
 */
#include <stdlib.h>

#include <yoke/yoke.h>

/* ToyModel and ToyMpModel: the second layer may be on another device than the first. */
typedef struct toy {
    yk_module *net1, *net2;
    yk_device dev1;
} toy;

static yk_tensor *toy_forward(yk_module *self, yk_tensor *x)
{
    toy *t = yk_module_data(self);
    return yk_forward(t->net2, yk_to(yk_relu(yk_forward(t->net1, x)), t->dev1));
}

static const yk_module_class toy_class = {.name = "ToyModel", .data_size = sizeof(toy), .forward = toy_forward};

static yk_module *toy_model(yk_device dev0, yk_device dev1)
{
    yk_module *m = yk_module_create(&toy_class);
    if (!m)
        return NULL;
    toy *t = yk_module_data(m);
    t->dev1 = dev1;
    t->net1 = yk_module_add(m, "net1", yk_module_to(yk_linear_create(10, 10, NULL), dev0));
    t->net2 = yk_module_add(m, "net2", yk_module_to(yk_linear_create(10, 5, NULL), dev1));
    return yk_module_check(m);
}

static yk_status demo(int rank, void *parts)
{
    yk_device dev[2];
    char name[2][16];
    yk_scope scope = yk_scope_begin();
    yk_status status = yk_init_process_group(NULL);
    if (status)
        return status;
    int wanted = *(int *)parts, mine = yk_local_devices(yk_device_count(YK_CUDA) ? YK_CUDA : YK_CPU, dev, wanted);
    if (wanted < 2 || mine < 2) /* of two GPUs each process has one, of four two */
        dev[1] = dev[0];
    yk_manual_seed((uint64_t)rank); /* other inputs on each rank; the parameters become rank 0's */
    yk_module *ddp_model = yk_ddp(toy_model(dev[0], dev[1]), NULL);
    yk_optimizer *optimizer = yk_sgd(yk_module_parameters(ddp_model), YK_OPTIONS(yk_sgd_options, .lr = 0.001));
    yk_optimizer_zero_grad(optimizer);
    yk_tensor *outputs = yk_forward(ddp_model, yk_to(yk_randn(YK_SHAPE(20, 10), NULL), dev[0]));
    yk_tensor *labels = yk_to(yk_randn(YK_SHAPE(20, 5), NULL), dev[1]);
    yk_tensor *loss = yk_mse_loss(outputs, labels, YK_REDUCE_MEAN);
    if (yk_backward(loss) || yk_optimizer_step(optimizer))
        return yk_last_error()->code;
    printf("rank %d on %s and %s: loss %.6f, sum of net2's weights after the step %.9g\n", rank,
           yk_device_format(dev[0], name[0]), yk_device_format(dev[1], name[1]), yk_item(loss),
           yk_item(yk_sum(yk_module_get(ddp_model, "module.net2.weight"))));
    fflush(stdout);
    yk_destroy_process_group();
    yk_scope_end(scope);
    return YK_OK;
}

int main(void)
{
    setenv("YOKE_CPU_DEVICES", "4", 1); /* cpu:0 to cpu:3, each with its share of the cores */
    int one = 1, two = 2;
    if (yk_spawn(demo, &one, 2, NULL) || yk_spawn(demo, &two, 2, NULL))
        return yk_report_error(stderr);
    return 0;
}
