/*
 * batched_updates.c - a parameter server with one update for the gradients of all trainers: it keeps their calls until
 * the last of them has come, makes one step with the mean of the gradients, and answers all of them with the new
 * weights. Follows PyTorch's tutorial rpc_async_execution (batch RPC processing with asynchronous executions).
 *
 * The gradients are added in the order of the trainers, whichever comes first, so the weights are those of one process
 * that goes through all batches, to the last bit: worker1 trains once more alone, and compares.
 *
 * cc -O2 batched_updates.c $(pkg-config --cflags --libs yoke)
 * yoke run -n 4 ./a.out          worker0 is the server, worker1 to worker3 train
 */
#include <stdlib.h>

#include <yoke/yoke.h>

enum { TRAINERS_MOST = 64, UPDATES = 90, BATCH = 32 };

/* ---- a network, and its update by the gradients of all ----------------------------------------------------------- */

typedef struct model {
    yk_module *net;
    yk_optimizer *adam;
} model;

/* Equal in every process. */
static model model_create(void)
{
    yk_manual_seed(1);
    yk_module *net = yk_lenet(NULL);
    return (model){net, yk_adam(yk_module_parameters(net), YK_OPTIONS(yk_adam_options, .lr = 4e-3))};
}

/* One step with the mean of the trainers' gradients. gradients[t] is the list of trainer t, one for each parameter. */
static yk_status update(model *m, yk_value *const *gradients, int trainers)
{
    yk_parameters *all = yk_module_parameters(m->net);
    for (int64_t i = 0; i < yk_parameters_count(all); i++) {
        yk_tensor *sum = yk_value_as_tensor(yk_value_at(gradients[0], i));
        for (int t = 1; t < trainers; t++)
            sum = yk_add(sum, yk_value_as_tensor(yk_value_at(gradients[t], i)));
        if (yk_set_grad(yk_parameters_at(all, i), yk_mul_scalar(sum, 1.0 / trainers)))
            return yk_last_error()->code;
    }
    return yk_optimizer_step(m->adam);
}

/* ---- the server: an object, whose methods run one at a time ------------------------------------------------------ */

typedef struct server {
    model model;
    int trainers, came;
    yk_call *waiting[TRAINERS_MOST];    /* of each trainer, not answered yet; NULL: it has not come */
    yk_value *gradients[TRAINERS_MOST]; /* arguments of these calls, which are there until the answer */
} server;

/* Argument: the number of trainers. */
static yk_status server_create(yk_call *call)
{
    int64_t trainers = yk_call_int(call, 0);
    model m = model_create();
    server *s = m.adam ? calloc(1, sizeof(*s)) : NULL;
    if (!s)
        return yk_last_error() ? yk_last_error()->code : YK_ERR_MEMORY;
    s->model = (model){yk_module_retain(m.net), yk_optimizer_retain(m.adam)};
    s->trainers = (int)trainers;
    yk_call_set_object(call, s);
    return YK_OK;
}

static void server_destroy(void *object)
{
    server *s = object;
    yk_optimizer_release(s->model.adam);
    yk_module_release(s->model.net);
    free(s);
}

/* Gives the weights, by name. */
static yk_status server_fetch(yk_call *call)
{
    server *s = yk_call_object(call);
    return yk_call_return(call, yk_value_from_state_dict(yk_module_state_dict(s->model.net)));
}

/* Arguments: the number of the trainer, and a list of its gradients. Gives the weights after the update that has the
 * gradients of all trainers: the last one to come makes it, and answers the others, too. */
static yk_status server_update_and_fetch(yk_call *call)
{
    server *s = yk_call_object(call);
    int64_t trainer = yk_call_int(call, 0);
    yk_value *gradients = yk_call_argument(call, 1);
    if (!gradients || trainer < 0 || trainer >= s->trainers || s->waiting[trainer])
        return yk_set_error(YK_ERR_ARGUMENT, "no gradients of a trainer that has sent none for this update");
    yk_call_later(call);
    s->waiting[trainer] = call;
    s->gradients[trainer] = gradients;
    if (++s->came < s->trainers)
        return YK_OK;
    yk_value *weights = NULL;
    if (!update(&s->model, s->gradients, s->trainers))
        weights = yk_value_from_state_dict(yk_module_state_dict(s->model.net));
    const yk_error *why = yk_last_error();
    yk_error error = why ? *why : (yk_error){.code = YK_OK};
    for (int t = 0; t < s->trainers; t++) {
        if (!weights)
            (void)yk_set_error(error.code, "%s", error.message);
        yk_call_answer(s->waiting[t], weights);
        s->waiting[t] = NULL;
    }
    s->came = 0;
    return YK_OK;
}

static const yk_rpc_class server_class = {
    .name = "server",
    .create = server_create,
    .destroy = server_destroy,
    .methods =
        (const yk_rpc_method[]){{"fetch", server_fetch}, {"update_and_fetch", server_update_and_fetch}, {NULL, NULL}},
};

/* ---- a trainer --------------------------------------------------------------------------------------------------- */

static yk_loader *loader(bool train, int rank, int trainers)
{
    yk_dataset *glyphs = yk_dataset_open("glyphs", train ? YK_TRAIN : YK_TEST,
                                         yk_default_transform("glyphs", train ? YK_TRAIN : YK_TEST, false));
    return yk_loader_create(glyphs, YK_OPTIONS(yk_loader_options, .batch_size = BATCH, .shuffle = train, .rank = rank,
                                               .world_size = trainers));
}

/* The gradients of the batch's loss, a list, and the loss. */
static yk_value *gradients_of(yk_module *net, const yk_batch *batch, double *loss)
{
    yk_tensor *of = yk_cross_entropy(yk_forward(net, batch->input), batch->target, NULL);
    yk_module_zero_grad(net);
    yk_value *list = yk_backward(of) ? NULL : yk_value_list();
    yk_parameters *all = yk_module_parameters(net);
    for (int64_t i = 0; i < yk_parameters_count(all); i++)
        if (!list || yk_value_append(list, yk_value_tensor(yk_clone(yk_grad(yk_parameters_at(all, i))))))
            return NULL;
    *loss = yk_item(of);
    return list;
}

static yk_status weights_take(yk_module *net, const yk_value *weights)
{
    return weights ? yk_module_load_state_dict(net, yk_value_flatten(weights), NULL, NULL) : yk_last_error()->code;
}

/* Trains with the others; the network has the server's weights in the end. */
static yk_status train(yk_module *net, int trainer, int trainers)
{
    yk_loader *data = loader(true, trainer, trainers);
    yk_ref *there = yk_rpc_remote("worker0", "server", yk_args(yk_value_int(trainers)),
                                  YK_OPTIONS(yk_rpc_options, .shared_name = "network"));
    if (weights_take(net, yk_ref_call(there, "fetch", NULL, NULL)))
        return yk_last_error()->code;
    yk_batch batch;
    yk_loader_start(data, 0);
    for (int step = 0; step < UPDATES && yk_loader_next(data, &batch); step++) {
        yk_scope scope = yk_scope_begin();
        double loss = 0;
        yk_value *gradients = gradients_of(net, &batch, &loss);
        yk_value *args = yk_args(yk_value_int(trainer), gradients);
        if (weights_take(net, yk_ref_call(there, "update_and_fetch", args, NULL)))
            return yk_last_error()->code;
        if (step % 10 == 0)
            printf("%s: update %d, loss %.4f\n", yk_rpc_name(), step, loss);
        yk_scope_end(scope);
    }
    return yk_last_error() ? yk_last_error()->code : YK_OK;
}

/* The share of the test set that the network recognizes. */
static double accuracy_of(yk_module *net)
{
    int64_t right = 0;
    yk_loader *test = loader(false, 0, 1);
    yk_batch batch;
    bool recording = yk_no_grad_begin();
    for (yk_loader_start(test, 0); yk_loader_next(test, &batch);) {
        yk_scope step = yk_scope_begin();
        right += yk_item_i64(yk_sum(yk_eq(yk_argmax(yk_forward(net, batch.input), 1, false), batch.target)));
        yk_scope_end(step);
    }
    yk_no_grad_end(recording);
    return (double)right / (double)yk_loader_samples(test);
}

/* ---- the same in one process ------------------------------------------------------------------------------------- */

static yk_status train_alone(model *m, int trainers)
{
    yk_loader *data[TRAINERS_MOST];
    for (int t = 0; t < trainers; t++)
        yk_loader_start(data[t] = loader(true, t, trainers), 0);
    for (int step = 0; step < UPDATES; step++) {
        yk_scope scope = yk_scope_begin();
        yk_value *gradients[TRAINERS_MOST];
        for (int t = 0; t < trainers; t++) {
            yk_batch batch;
            double loss;
            if (!yk_loader_next(data[t], &batch))
                return yk_last_error() ? yk_last_error()->code : YK_OK; /* the data are over, as for the trainers */
            if (!(gradients[t] = gradients_of(m->net, &batch, &loss)))
                return yk_last_error()->code;
        }
        if (update(m, gradients, trainers))
            return yk_last_error()->code;
        yk_scope_end(scope);
    }
    return YK_OK;
}

/* The number of elements that differ. */
static int64_t differences(yk_module *a, yk_module *b)
{
    int64_t sum = 0;
    yk_parameters *as = yk_module_parameters(a), *bs = yk_module_parameters(b);
    for (int64_t i = 0; i < yk_parameters_count(as); i++)
        sum += yk_item_i64(yk_sum(yk_ne(yk_parameters_at(as, i), yk_parameters_at(bs, i))));
    return sum;
}

static yk_status work(int trainer, int trainers)
{
    yk_module *net = yk_lenet(NULL);
    if (train(net, trainer, trainers))
        return yk_last_error()->code;
    double accuracy = accuracy_of(net);
    printf("%s: test accuracy %.4f\n", yk_rpc_name(), accuracy);
    if (trainer > 0)
        return yk_last_error() ? yk_last_error()->code : YK_OK;
    model alone = model_create();
    if (train_alone(&alone, trainers))
        return yk_last_error()->code;
    int64_t other = differences(net, alone.net);
    if (other || yk_last_error())
        return yk_set_error(YK_ERR_NUMERIC, "%lld weights are not those of one process", (long long)other);
    printf("%s: the weights are those of one process\n", yk_rpc_name());
    return YK_OK;
}

int main(void)
{
    const char *rank = getenv("RANK"), *size = getenv("WORLD_SIZE");
    int worker = rank ? atoi(rank) : 0, workers = size ? atoi(size) : 1;
    yk_scope program = yk_scope_begin();
    if (workers < 2 || workers > TRAINERS_MOST + 1) {
        fprintf(stderr, "start it with: yoke run -n 4 ./batched_updates; there are 1 to %d trainers\n", TRAINERS_MOST);
        return 2;
    }
    if (yk_rpc_register_class(&server_class) || yk_rpc_init(NULL, NULL))
        return yk_report_error(stderr);
    if (worker > 0 && work(worker - 1, workers - 1))
        return yk_report_error(stderr);
    if (yk_rpc_shutdown(YK_RPC_GRACEFUL, YK_NOT_GIVEN)) /* the server answers until all have come here */
        return yk_report_error(stderr);
    yk_scope_end(program);
    return 0;
}
