/*
 * rpc_pipeline.c - the two halves of a ResNet-18 in two processes, and a third that trains them: each batch is cut into
 * micro-batches, so that both halves are at work at once. Gradients go through all three (distributed autograd), and
 * each half is changed where it is (distributed optimizer). Follows PyTorch's tutorial dist_pipeline_parallel.
 *
 * The trainer has the same network in its own process too, and the losses must be the same, to the last bit.
 *
 * cc -O2 rpc_pipeline.c $(pkg-config --cflags --libs yoke)
 * yoke run -n 3 ./a.out          worker0 trains, worker1 and worker2 have a half each
 */
#include <stdlib.h>

#include <yoke/yoke.h>

enum { HALVES = 2, CLASSES = 10, BATCH = 8, MICRO_BATCHES = 4, STEPS = 3, PARAMETERS_MOST = 64 };

/* ---- a half: an object, whose methods run one at a time, in the order in which the trainer calls them ------------ */

/* One half of the network, which is the same in all processes. */
static yk_module *half_make(int half)
{
    yk_manual_seed(5);
    yk_module *net = yk_resnet18(YK_OPTIONS(yk_resnet_options, .num_classes = CLASSES));
    if (half == 0)
        return yk_sequential(yk_module_get_module(net, "conv1"), yk_module_get_module(net, "bn1"), yk_relu_create(),
                             yk_module_get_module(net, "maxpool"), yk_module_get_module(net, "layer1"),
                             yk_module_get_module(net, "layer2"));
    return yk_sequential(yk_module_get_module(net, "layer3"), yk_module_get_module(net, "layer4"),
                         yk_module_get_module(net, "avgpool"), yk_flatten_create(), yk_module_get_module(net, "fc"));
}

/* Argument: which half. */
static yk_status half_create(yk_call *call)
{
    yk_module *m = half_make((int)yk_call_int(call, 0));
    if (m)
        yk_call_set_object(call, yk_module_retain(m));
    return m ? YK_OK : yk_last_error()->code;
}

static void half_destroy(void *object)
{
    yk_module_release(object);
}

/* Argument: what the half before it has made. In the trainer's context this goes on its graph. */
static yk_status half_forward(yk_call *call)
{
    yk_module *m = yk_call_object(call);
    yk_device device = yk_tensor_device(yk_parameters_at(yk_module_parameters(m), 0)), cpu = {YK_CPU, 0};
    yk_tensor *output = yk_forward(m, yk_to(yk_call_tensor(call, 0), device));
    return yk_call_return(call, yk_value_tensor(yk_to(output, cpu))); /* processes may have GPUs of any number */
}

/* References to the parameters, which stay here: for the optimizer. */
static yk_status half_parameters(yk_call *call)
{
    yk_parameters *all = yk_module_parameters(yk_call_object(call));
    yk_value *list = yk_value_list();
    for (int64_t i = 0; i < yk_parameters_count(all); i++)
        if (yk_value_append(list, yk_value_ref(yk_ref_create(yk_value_tensor(yk_parameters_at(all, i))))))
            return yk_last_error()->code;
    return yk_call_return(call, list);
}

static const yk_rpc_class half_class = {
    .name = "half",
    .create = half_create,
    .destroy = half_destroy,
    .methods = (const yk_rpc_method[]){{"forward", half_forward}, {"parameters", half_parameters}, {NULL, NULL}},
};

/* ---- the trainer ------------------------------------------------------------------------------------------------- */

/* The outputs of all micro-batches, joined. A half works on one while the other half works on the one before. */
static yk_tensor *forward_there(yk_ref *const halves[HALVES], yk_tensor *const *inputs)
{
    yk_future *calls[HALVES][MICRO_BATCHES];
    yk_tensor *outputs[MICRO_BATCHES];
    for (int i = 0; i < MICRO_BATCHES; i++)
        calls[0][i] = yk_ref_call_async(halves[0], "forward", yk_args(yk_value_tensor(inputs[i])), NULL);
    for (int h = 1; h < HALVES; h++)
        for (int i = 0; i < MICRO_BATCHES; i++)
            calls[h][i] =
                yk_ref_call_async(halves[h], "forward", yk_args(yk_future_wait(calls[h - 1][i], YK_NOT_GIVEN)), NULL);
    for (int i = 0; i < MICRO_BATCHES; i++) {
        yk_value *output = yk_future_wait(calls[HALVES - 1][i], YK_NOT_GIVEN);
        outputs[i] = output ? yk_value_as_tensor(output) : NULL;
    }
    return yk_cat(outputs, MICRO_BATCHES, 0);
}

/* The same in this process. */
static yk_tensor *forward_here(yk_module *const halves[HALVES], yk_tensor *const *inputs)
{
    yk_tensor *outputs[MICRO_BATCHES];
    for (int i = 0; i < MICRO_BATCHES; i++)
        outputs[i] = yk_forward(halves[1], yk_forward(halves[0], inputs[i]));
    return yk_cat(outputs, MICRO_BATCHES, 0);
}

static yk_status train(void)
{
    const yk_sgd_options *options = YK_OPTIONS(yk_sgd_options, .lr = 0.005, .momentum = 0.9);
    yk_ref *there[HALVES], *parameters[HALVES * PARAMETERS_MOST];
    yk_module *here[HALVES];
    int count = 0, same = 0;
    for (int h = 0; h < HALVES; h++) {
        char worker[20];
        snprintf(worker, sizeof(worker), "worker%d", h + 1);
        there[h] = yk_rpc_remote(worker, "half", yk_args(yk_value_int(h)), NULL);
        here[h] = half_make(h);
        yk_value *list = yk_ref_call(there[h], "parameters", NULL, NULL);
        for (int64_t i = 0; i < yk_value_count(list) && i < PARAMETERS_MOST; i++)
            parameters[count++] = yk_value_as_ref(yk_value_at(list, i));
    }
    yk_dist_optimizer *sgd_there = yk_dist_sgd(parameters, count, options);
    yk_module *net = yk_sequential(here[0], here[1]);
    yk_optimizer *sgd_here = yk_sgd(yk_module_parameters(net), options);
    yk_manual_seed(6);
    for (int step = 0; step < STEPS && !yk_last_error(); step++) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *target = yk_randint(0, CLASSES, YK_SHAPE(BATCH), NULL), *inputs[MICRO_BATCHES];
        for (int i = 0; i < MICRO_BATCHES; i++)
            inputs[i] = yk_randn(YK_SHAPE(BATCH / MICRO_BATCHES, 3, 32, 32), NULL);

        yk_dist_context *context = yk_dist_autograd_begin();
        yk_tensor *output = yk_to(forward_there(there, inputs), yk_tensor_device(target));
        yk_tensor *loss = yk_cross_entropy(output, target, NULL);
        if (yk_dist_backward(context, &loss, 1, NULL) || yk_dist_optimizer_step(sgd_there, context) ||
            yk_dist_autograd_end(context))
            return yk_last_error()->code;

        yk_tensor *alone = yk_cross_entropy(forward_here(here, inputs), target, NULL);
        yk_optimizer_zero_grad(sgd_here);
        if (yk_backward(alone) || yk_optimizer_step(sgd_here))
            return yk_last_error()->code;
        double a = yk_item(loss), b = yk_item(alone);
        printf("step %d: loss %.6f in three processes, %.6f in one\n", step, a, b);
        same += a == b;
        yk_scope_end(scope);
    }
    if (!yk_last_error() && same < STEPS)
        return yk_set_error(YK_ERR_NUMERIC, "%d of %d losses differ", STEPS - same, STEPS);
    return yk_last_error() ? yk_last_error()->code : YK_OK;
}

int main(void)
{
    const char *rank = getenv("RANK"), *size = getenv("WORLD_SIZE");
    yk_scope program = yk_scope_begin();
    if (!size || atoi(size) != 1 + HALVES) {
        fprintf(stderr, "start it with: yoke run -n %d ./rpc_pipeline\n", 1 + HALVES);
        return 2;
    }
    if (yk_rpc_register_class(&half_class) || yk_rpc_init(NULL, NULL))
        return yk_report_error(stderr);
    if (rank && atoi(rank) == 0 && train())
        return yk_report_error(stderr);
    if (yk_rpc_shutdown(YK_RPC_GRACEFUL, YK_NOT_GIVEN)) /* the halves answer until the trainer has come here */
        return yk_report_error(stderr);
    yk_scope_end(program);
    return 0;
}
