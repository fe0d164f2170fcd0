/*
 * parameter_server.c - a server keeps the network, the other workers train it: each pulls the weights, computes the
 * gradient of a batch of its own and pushes that. No trainer waits for another (asynchronous SGD).
 *
 * cc -O2 parameter_server.c $(pkg-config --cflags --libs yoke)
 * yoke run -n 4 ./a.out          worker0 is the server, worker1 to worker3 train
 */
#include <stdlib.h>

#include <yoke/yoke.h>

/* ---- the server: an object, whose methods run one at a time ------------------------------------------------------ */

enum { TRAINERS_MOST = 64 };

typedef struct server {
    yk_module *net;
    yk_optimizer *sgd;
    yk_schedule *rate;
    int64_t updates, last;           /* of all trainers: so far, and in the end */
    yk_call *waiting[TRAINERS_MOST]; /* for the last update */
    int n_waiting;
} server;

/* Arguments: the learning rate at the beginning, and the number of updates over which it falls to 0. */
static yk_status server_create(yk_call *call)
{
    double lr = yk_call_real(call, 0);
    int64_t updates = yk_call_int(call, 1);
    yk_module *net = yk_lenet(NULL);
    yk_optimizer *sgd = yk_sgd(yk_module_parameters(net), YK_OPTIONS(yk_sgd_options, .lr = lr));
    yk_schedule *rate = yk_cosine_lr(sgd, updates, 0);
    if (!rate)
        return yk_last_error()->code;
    server *s = calloc(1, sizeof(*s));
    s->net = yk_module_retain(net);
    s->sgd = yk_optimizer_retain(sgd);
    s->rate = yk_schedule_retain(rate);
    s->last = updates;
    yk_call_set_object(call, s);
    return YK_OK;
}

static void server_destroy(void *object)
{
    server *s = object;
    yk_schedule_release(s->rate);
    yk_optimizer_release(s->sgd);
    yk_module_release(s->net);
    free(s);
}

static yk_value *weights_of(const server *s)
{
    return yk_value_from_state_dict(yk_module_state_dict(s->net));
}

/* Gives the weights, by name. */
static yk_status server_pull(yk_call *call)
{
    return yk_call_return(call, weights_of(yk_call_object(call)));
}

/* Gives the weights after the last update: the answer waits for it, the server does not. */
static yk_status server_final(yk_call *call)
{
    server *s = yk_call_object(call);
    if (s->updates >= s->last)
        return yk_call_return(call, weights_of(s));
    if (s->n_waiting == TRAINERS_MOST)
        return yk_set_error(YK_ERR_STATE, "more than %d trainers", TRAINERS_MOST);
    yk_call_later(call);
    s->waiting[s->n_waiting++] = call;
    return YK_OK;
}

/* Arguments: a list of gradients, in the order of the parameters. Gives the number of updates. */
static yk_status server_push(yk_call *call)
{
    server *s = yk_call_object(call);
    yk_parameters *all = yk_module_parameters(s->net);
    yk_value *gradients = yk_call_argument(call, 0);
    for (int64_t i = 0; i < yk_parameters_count(all); i++)
        if (yk_set_grad(yk_parameters_at(all, i), yk_value_as_tensor(yk_value_at(gradients, i))))
            return yk_last_error()->code;
    if (yk_optimizer_step(s->sgd))
        return yk_last_error()->code;
    yk_schedule_step(s->rate);
    if (++s->updates == s->last)
        while (s->n_waiting > 0)
            yk_call_answer(s->waiting[--s->n_waiting], weights_of(s));
    return yk_call_return(call, yk_value_int(s->updates));
}

static const yk_rpc_class server_class = {
    .name = "server",
    .create = server_create,
    .destroy = server_destroy,
    .methods =
        (const yk_rpc_method[]){{"pull", server_pull}, {"push", server_push}, {"final", server_final}, {NULL, NULL}},
};

/* ---- a trainer --------------------------------------------------------------------------------------------------- */

static yk_loader *loader(bool train, int rank, int trainers)
{
    yk_dataset *glyphs = yk_dataset_open("glyphs", train ? YK_TRAIN : YK_TEST,
                                         yk_default_transform("glyphs", train ? YK_TRAIN : YK_TEST, false));
    return yk_loader_create(glyphs, YK_OPTIONS(yk_loader_options, .batch_size = 64, .shuffle = train, .rank = rank,
                                               .world_size = trainers));
}

/* The server's weights become those of the network. */
static yk_status pull(yk_ref *there, const char *method, yk_module *net)
{
    yk_value *weights = yk_ref_call(there, method, NULL, NULL);
    return weights ? yk_module_load_state_dict(net, yk_value_flatten(weights), NULL, NULL) : yk_last_error()->code;
}

static yk_status train(int trainer, int trainers)
{
    enum { EPOCHS = 6 };
    yk_module *net = yk_lenet(NULL);
    yk_loader *data = loader(true, trainer, trainers);
    int64_t last = EPOCHS * trainers * yk_loader_length(data);
    yk_ref *there = yk_rpc_remote("worker0", "server", yk_args(yk_value_real(0.15), yk_value_int(last)),
                                  YK_OPTIONS(yk_rpc_options, .shared_name = "network"));
    for (int epoch = 0; epoch < EPOCHS && !yk_last_error(); epoch++) {
        yk_batch batch;
        for (yk_loader_start(data, epoch); yk_loader_next(data, &batch);) {
            yk_scope step = yk_scope_begin();
            yk_tensor *loss =
                pull(there, "pull", net) ? NULL : yk_cross_entropy(yk_forward(net, batch.input), batch.target, NULL);
            yk_module_zero_grad(net);
            if (yk_backward(loss))
                return yk_last_error()->code;
            yk_value *gradients = yk_value_list();
            yk_parameters *all = yk_module_parameters(net);
            for (int64_t i = 0; i < yk_parameters_count(all); i++)
                if (yk_value_append(gradients, yk_value_tensor(yk_grad(yk_parameters_at(all, i)))))
                    return yk_last_error()->code;
            yk_value *updates = yk_ref_call(there, "push", yk_args(gradients), NULL);
            if (!updates)
                return yk_last_error()->code;
            if (yk_value_as_int(updates) % 50 == 0)
                printf("%s: update %lld, loss %.4f\n", yk_rpc_name(), (long long)yk_value_as_int(updates),
                       yk_item(loss));
            yk_scope_end(step);
        }
    }
    /* The weights that the server has in the end, on the test set. */
    int64_t right = 0;
    yk_loader *test = loader(false, 0, 1);
    yk_batch batch;
    bool recording = yk_no_grad_begin();
    if (pull(there, "final", net))
        return yk_last_error()->code;
    for (yk_loader_start(test, 0); yk_loader_next(test, &batch);) {
        yk_scope step = yk_scope_begin();
        right += yk_item_i64(yk_sum(yk_eq(yk_argmax(yk_forward(net, batch.input), 1, false), batch.target)));
        yk_scope_end(step);
    }
    yk_no_grad_end(recording);
    if (!yk_last_error())
        printf("%s: test accuracy %.4f\n", yk_rpc_name(), (double)right / (double)yk_loader_samples(test));
    return yk_last_error() ? yk_last_error()->code : YK_OK;
}

int main(void)
{
    const char *rank = getenv("RANK"), *size = getenv("WORLD_SIZE");
    int worker = rank ? atoi(rank) : 0, workers = size ? atoi(size) : 1;
    yk_scope program = yk_scope_begin();
    if (workers < 2) {
        fprintf(stderr, "start it with: yoke run -n 4 ./parameter_server\n");
        return 2;
    }
    if (yk_rpc_register_class(&server_class) || yk_rpc_init(NULL, NULL))
        return yk_report_error(stderr);
    if (worker > 0 && train(worker - 1, workers - 1))
        return yk_report_error(stderr);
    if (yk_rpc_shutdown(YK_RPC_GRACEFUL, YK_NOT_GIVEN)) /* the server answers until all have come here */
        return yk_report_error(stderr);
    yk_scope_end(program);
    return 0;
}
