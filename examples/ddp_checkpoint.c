/*
 * ddp_checkpoint.c - rank 0 saves, all ranks load. Follows seeds/002: demo_checkpoint of its spawn example.
 */
#include <stdlib.h>
#include <unistd.h>

#include <yoke/yoke.h>

static yk_status demo_checkpoint(int rank, void *path)
{
    yk_scope scope = yk_scope_begin();
    yk_status status = yk_init_process_group(NULL);
    if (status)
        return status;
    yk_device device = yk_device_local();
    yk_manual_seed((uint64_t)rank);
    yk_module *net1 = yk_linear_create(10, 10, NULL), *relu = yk_relu_create(), *net2 = yk_linear_create(10, 5, NULL);
    yk_module *ddp_model = yk_ddp(yk_module_to(yk_sequential(net1, relu, net2), device), NULL);
    yk_optimizer *optimizer = yk_sgd(yk_module_parameters(ddp_model), YK_OPTIONS(yk_sgd_options, .lr = 0.001));

    /* All processes have the same parameters: saving in one of them is enough. */
    if (rank == 0)
        status = yk_safetensors_save(path, yk_module_state_dict(ddp_model), NULL);
    /* Nobody loads before it is saved. */
    if (status || yk_barrier(NULL))
        return yk_last_error()->code;
    if (yk_init_constant(yk_module_get(ddp_model, "module.0.weight"), 0) || /* so that loading makes a difference */
        yk_module_load_state_dict(ddp_model, yk_safetensors_load(path, device), NULL, NULL))
        return yk_last_error()->code;
    printf("rank %d: sum of the loaded weights %.9g\n", rank,
           yk_item(yk_sum(yk_module_get(ddp_model, "module.0.weight"))));

    yk_optimizer_zero_grad(optimizer);
    yk_tensor *outputs =
        yk_forward(ddp_model, yk_randn(YK_SHAPE(20, 10), YK_OPTIONS(yk_tensor_options, .device = device)));
    yk_tensor *labels = yk_randn(YK_SHAPE(20, 5), YK_OPTIONS(yk_tensor_options, .device = device));
    if (yk_backward(yk_mse_loss(outputs, labels, YK_REDUCE_MEAN)) || yk_optimizer_step(optimizer))
        return yk_last_error()->code;
    printf("rank %d: sum of the weights after a step %.9g\n", rank,
           yk_item(yk_sum(yk_module_get(ddp_model, "module.0.weight"))));
    fflush(stdout);

    /* Nobody removes it before all have read it. */
    if (yk_barrier(NULL))
        return yk_last_error()->code;
    if (rank == 0)
        unlink(path);
    yk_destroy_process_group();
    yk_scope_end(scope);
    return YK_OK;
}

int main(void)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/model.checkpoint", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (yk_spawn(demo_checkpoint, path, 2, NULL))
        return yk_report_error(stderr);
    return 0;
}
