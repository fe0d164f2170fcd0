/*
 * param_server.c - LeNet on FashionMNIST with one parameter server and three trainers, each of one thread, none of
 * which waits for another: once with a server that is an object of its own class, as in examples/parameter_server.c,
 * and once with yk_parameter_server. Prints the images per second of each trainer, as lines of name and number with a
 * tab between them; bench/param_server_compare adds them up and sets them beside those of bench/peer_param_server.py.
 *
 * Usage: param_server DATA [steps]        DATA: fashion-mnist, fashion-mnist:DIR, glyphs; default: 300 steps
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yoke/yoke.h>

#include "base/core.h"

enum { TRAINERS = 3, BATCH = 64, WARM = 10 };
static const double RATE = 0.05;
static const char *data;
static int steps = 300;

/* ---- a server of its own class ----------------------------------------------------------------------------------- */

typedef struct server {
    yk_module *net;
    yk_optimizer *sgd;
} server;

static yk_status server_create(yk_call *call)
{
    yk_module *net = yk_lenet(NULL);
    yk_optimizer *sgd = yk_sgd(yk_module_parameters(net), YK_OPTIONS(yk_sgd_options, .lr = RATE));
    server *s = sgd ? malloc(sizeof(*s)) : NULL;
    if (!s)
        return yk_set_error(YK_ERR_MEMORY, "no server");
    *s = (server){yk_module_retain(net), yk_optimizer_retain(sgd)};
    yk_call_set_object(call, s);
    return YK_OK;
}

static void server_destroy(void *object)
{
    server *s = object;
    yk_optimizer_release(s->sgd);
    yk_module_release(s->net);
    free(s);
}

static yk_status server_pull(yk_call *call)
{
    const server *s = yk_call_object(call);
    return yk_call_return(call, yk_value_from_state_dict(yk_module_state_dict(s->net)));
}

static yk_status server_push(yk_call *call)
{
    const server *s = yk_call_object(call);
    yk_parameters *all = yk_module_parameters(s->net);
    yk_value *gradients = yk_call_argument(call, 0);
    for (int64_t i = 0; i < yk_parameters_count(all); i++)
        if (yk_set_grad(yk_parameters_at(all, i), yk_value_as_tensor(yk_value_at(gradients, i))))
            return yk_last_error()->code;
    return yk_optimizer_step(s->sgd);
}

static const yk_rpc_class server_class = {
    .name = "server",
    .create = server_create,
    .destroy = server_destroy,
    .methods = (const yk_rpc_method[]){{"pull", server_pull}, {"push", server_push}, {NULL, NULL}}};

/* ---- trainers ---------------------------------------------------------------------------------------------------- */

static yk_ref *there;
static yk_parameter_server *parameters;

/* A step with the object: its weights, this batch's gradients. */
static yk_status object_step(yk_module *net, const yk_batch *batch)
{
    yk_value *weights = yk_ref_call(there, "pull", NULL, NULL);
    if (!weights || yk_module_load_state_dict(net, yk_value_flatten(weights), NULL, NULL))
        return yk_last_error()->code;
    yk_module_zero_grad(net);
    if (yk_backward(yk_cross_entropy(yk_forward(net, batch->input), batch->target, NULL)))
        return yk_last_error()->code;
    yk_value *gradients = yk_value_list();
    yk_parameters *all = yk_module_parameters(net);
    for (int64_t i = 0; i < yk_parameters_count(all); i++)
        if (yk_value_append(gradients, yk_value_tensor(yk_grad(yk_parameters_at(all, i)))))
            return yk_last_error()->code;
    return yk_ref_call(there, "push", yk_args(gradients), NULL) ? YK_OK : yk_last_error()->code;
}

static yk_status parameters_step(yk_module *net, const yk_batch *batch)
{
    yk_module_zero_grad(net);
    if (yk_backward(yk_cross_entropy(yk_forward(net, batch->input), batch->target, NULL)))
        return yk_last_error()->code;
    return yk_parameter_server_step(parameters);
}

static yk_status train(const char *name, int trainer, yk_module *net,
                       yk_status (*step)(yk_module *net, const yk_batch *batch))
{
    yk_dataset *set = yk_dataset_open(data, YK_TRAIN, yk_default_transform(data, YK_TRAIN, false));
    yk_loader *loader = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = BATCH, .shuffle = true,
                                                         .rank = trainer, .world_size = TRAINERS));
    double began = 0;
    int done = -WARM;
    for (int epoch = 0; done < steps && !yk_last_error(); epoch++) {
        yk_batch batch;
        for (yk_loader_start(loader, epoch); done < steps && yk_loader_next(loader, &batch); done++) {
            yk_scope scope = yk_scope_begin();
            began = done == 0 ? yk__now() : began;
            yk_status status = step(net, &batch);
            yk_scope_end(scope);
            if (status)
                return status;
        }
    }
    if (yk_last_error())
        return yk_last_error()->code;
    printf("%s\t%.1f\n", name, steps * BATCH / (yk__now() - began));
    fflush(stdout);
    return YK_OK;
}

static yk_status worker_run(int rank, void *arg)
{
    (void)arg;
    static const char *const servers[] = {"worker0"};
    yk_scope scope = yk_scope_begin();
    yk_status status = yk_rpc_register_class(&server_class);
    status = status ? status : yk_set_num_threads((yk_device){YK_CPU, 0}, 1);
    status = status ? status : yk_rpc_init(NULL, NULL);
    if (!status && rank > 0) {
        yk_module *net = yk_lenet(NULL);
        there = yk_rpc_remote("worker0", "server", NULL, YK_OPTIONS(yk_rpc_options, .shared_name = "network"));
        status = train("a server that is an object", rank - 1, net, object_step);
        parameters = status ? NULL
                            : yk_parameter_server_join(servers, 1, yk_module_parameters(net),
                                                       YK_OPTIONS(yk_parameter_server_options, .rank = rank - 1,
                                                                  .trainers = TRAINERS,
                                                                  .sgd = YK_OPTIONS(yk_sgd_options, .lr = RATE)));
        status = status ? status : train("yk_parameter_server", rank - 1, net, parameters_step);
    }
    status = status ? status : yk_rpc_shutdown(YK_RPC_GRACEFUL, YK_NOT_GIVEN);
    yk_scope_end(scope);
    return status;
}

int main(int argc, char **argv)
{
    data = argc > 1 ? argv[1] : "";
    steps = argc > 2 ? atoi(argv[2]) : steps;
    if (argc < 2 || argc > 3 || steps < 1) {
        fprintf(stderr, "usage: param_server DATA [steps]\n");
        return 2;
    }
    return yk_spawn(worker_run, NULL, 1 + TRAINERS, NULL) ? yk_report_error(stderr) : 0;
}
