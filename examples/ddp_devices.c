/*
 * ddp_devices.c - DDP with a block of devices for each process of a host: with 8 devices and 2 processes, 0 to 3 and 4
 * to 7. Follows seeds/002: example.py, flag for flag.
 *
 * yoke run -n 8 -- ddp_devices --local_world_size=8
 * yoke run -n 2 -- ddp_devices --local_world_size=2
 *
 * There the model gets the whole block as its device_ids, which PyTorch refuses by now where they are more than one;
 * here its second layer is on the last of them then.
 */
#include <getopt.h>
#include <stdlib.h>
#include <unistd.h>

#include <yoke/yoke.h>

typedef struct toy {
    yk_module *net1, *net2;
    yk_device last;
} toy;

static yk_tensor *toy_forward(yk_module *self, yk_tensor *x)
{
    toy *t = yk_module_data(self);
    return yk_forward(t->net2, yk_to(yk_relu(yk_forward(t->net1, x)), t->last));
}

static const yk_module_class toy_class = {.name = "ToyModel", .data_size = sizeof(toy), .forward = toy_forward};

static yk_module *toy_model(yk_device first, yk_device last)
{
    yk_module *m = yk_module_create(&toy_class);
    if (!m)
        return NULL;
    toy *t = yk_module_data(m);
    t->last = last;
    t->net1 = yk_module_add(m, "net1", yk_module_to(yk_linear_create(10, 10, NULL), first));
    t->net2 = yk_module_add(m, "net2", yk_module_to(yk_linear_create(10, 5, NULL), last));
    return yk_module_check(m);
}

static yk_status demo_basic(int local_world_size, int local_rank)
{
    yk_device device_ids[64];
    yk_device_type type = yk_device_count(YK_CUDA) ? YK_CUDA : YK_CPU;
    int n = yk_device_count(type) / local_world_size;
    printf("[%d] rank = %d, world_size = %d, n = %d, device_ids = [", getpid(), yk_rank(NULL), yk_world_size(NULL), n);
    for (int i = 0; i < n; i++) {
        device_ids[i] = (yk_device){(int16_t)type, (int16_t)(local_rank * n + i)};
        printf("%s%d", i ? ", " : "", device_ids[i].index);
    }
    printf("]\n");
    if (n < 1)
        return yk_set_error(YK_ERR_ARGUMENT, "%d devices are not enough for %d processes", yk_device_count(type),
                            local_world_size);
    yk_device first = device_ids[0], last = device_ids[n - 1];
    yk_module *model = toy_model(first, last);
    yk_module *ddp_model = yk_ddp(model, n == 1 ? YK_OPTIONS(yk_ddp_options, .devices = device_ids, .count = 1) : NULL);
    yk_optimizer *optimizer = yk_sgd(yk_module_parameters(ddp_model), YK_OPTIONS(yk_sgd_options, .lr = 0.001));
    yk_optimizer_zero_grad(optimizer);
    yk_tensor *x = yk_randn(YK_SHAPE(20, 10), NULL); /* on cpu:0: with device_ids it moves by itself */
    yk_tensor *outputs = yk_forward(ddp_model, n == 1 ? x : yk_to(x, first));
    yk_tensor *labels = yk_to(yk_randn(YK_SHAPE(20, 5), NULL), last);
    if (yk_backward(yk_mse_loss(outputs, labels, YK_REDUCE_MEAN)) || yk_optimizer_step(optimizer))
        return yk_last_error()->code;
    return YK_OK;
}

static const char *variable(const char *name)
{
    return getenv(name) ? getenv(name) : "";
}

int main(int argc, char **argv)
{
    int local_rank = yk_local_rank(), local_world_size = 1;
    static const struct option flags[] = {{"local_rank", 1, NULL, 'r'}, {"local_world_size", 1, NULL, 'w'}, {0}};
    for (int letter; (letter = getopt_long(argc, argv, "", flags, NULL)) != -1;) {
        if (letter != 'r' && letter != 'w')
            return 2;
        *(letter == 'r' ? &local_rank : &local_world_size) = atoi(optarg);
    }
    if (local_world_size < 1 || local_rank < 0 || local_rank >= local_world_size) {
        fprintf(stderr, "--local_rank %d: expected one of --local_world_size %d\n", local_rank, local_world_size);
        return 2;
    }
    setenv("YOKE_CPU_DEVICES", "8", 0);
    setlinebuf(stdout);
    yk_scope program = yk_scope_begin();
    printf("[%d] Initializing process group with: {'MASTER_ADDR': '%s', 'MASTER_PORT': '%s', 'RANK': '%s', "
           "'WORLD_SIZE': '%s'}\n",
           getpid(), variable("MASTER_ADDR"), variable("MASTER_PORT"), variable("RANK"), variable("WORLD_SIZE"));
    if (yk_init_process_group(NULL)) /* also reads INIT_METHOD */
        return yk_report_error(stderr);
    printf("[%d]: world_size = %d, rank = %d, backend=%s\n", getpid(), yk_world_size(NULL), yk_rank(NULL),
           yk_process_group_backend(NULL));
    if (demo_basic(local_world_size, local_rank))
        return yk_report_error(stderr);
    yk_destroy_process_group();
    yk_scope_end(program);
    return 0;
}
