/*
 * diloco.c - training that seldom communicates (DiLoCo): each process makes many steps by itself, then all average how
 * far they have come, and an outer optimizer with Nesterov momentum takes that average for a gradient. Beside it the
 * same network under DistributedDataParallel, which exchanges the gradients of every step. Prints losses, accuracies
 * and the bytes that each process gave to all_reduce.
 *
 * cc -O2 diloco.c $(pkg-config --cflags --libs yoke)
 * yoke run -n 2 ./a.out [EPOCHS]
 *
 * Source: Douillard et al., DiLoCo: distributed low-communication training of language models, 2023.
 */
#include <stdlib.h>

#include <yoke/yoke.h>

enum { EPOCHS = 6, BATCH = 64, INNER_STEPS = 10 };

typedef struct result {
    double loss, accuracy; /* of the last epoch, on average over the processes; on the test set */
    int64_t bytes, steps;
} result;

static yk_loader *loader(bool train)
{
    yk_dataset *glyphs = yk_dataset_open("glyphs", train ? YK_TRAIN : YK_TEST,
                                         yk_default_transform("glyphs", train ? YK_TRAIN : YK_TEST, false));
    return yk_loader_create(glyphs,
                            YK_OPTIONS(yk_loader_options, .batch_size = BATCH, .shuffle = train, .distributed = train));
}

static int64_t bytes_of(yk_parameters *list)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < yk_parameters_count(list); i++)
        bytes += yk_numel(yk_parameters_at(list, i)) * (int64_t)sizeof(float);
    return bytes;
}

/* ---- the outer step ---------------------------------------------------------------------------------------------- */

/* The outer parameters take a step along the mean of the ways that the processes went from them; all go on from there.
 */
static yk_status outer_step(yk_parameters *outer, yk_optimizer *nesterov, yk_parameters *inner, result *r)
{
    bool recording = yk_no_grad_begin();
    yk_status status = YK_OK;
    for (int64_t i = 0; i < yk_parameters_count(outer) && !status; i++) {
        yk_tensor *way = yk_sub(yk_parameters_at(outer, i), yk_parameters_at(inner, i));
        status = yk_all_reduce(way, YK_OP_MEAN, NULL);
        status = status ? status : yk_set_grad(yk_parameters_at(outer, i), way);
    }
    r->bytes += bytes_of(outer);
    status = status ? status : yk_optimizer_step(nesterov);
    for (int64_t i = 0; i < yk_parameters_count(outer) && !status; i++)
        if (!yk_copy_(yk_parameters_at(inner, i), yk_parameters_at(outer, i)))
            status = yk_last_error()->code;
    yk_no_grad_end(recording);
    return status;
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

/* The share of the test set that the network recognizes; every process looks at all of it. */
static double accuracy_of(yk_module *net)
{
    int64_t right = 0;
    yk_loader *test = loader(false);
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

static yk_status train(bool diloco, int epochs, result *r)
{
    yk_manual_seed(1); /* the same weights in all processes */
    yk_module *outer_net = yk_lenet(NULL);
    yk_manual_seed(1);
    yk_module *net = yk_lenet(NULL), *model = diloco ? net : yk_ddp(net, NULL);
    yk_parameters *inner = yk_module_parameters(net), *outer = yk_module_parameters(outer_net);
    yk_optimizer *adam = yk_adamw(inner, YK_OPTIONS(yk_adam_options, .lr = 2e-3));
    yk_optimizer *nesterov = yk_sgd(outer, YK_OPTIONS(yk_sgd_options, .lr = 0.7, .momentum = 0.9, .nesterov = true));
    yk_loader *data = loader(true);
    for (int epoch = 0; epoch < epochs && !yk_last_error(); epoch++) {
        yk_batch batch;
        double sum = 0;
        int64_t steps = 0;
        for (yk_loader_start(data, epoch); yk_loader_next(data, &batch); steps++) {
            yk_scope step = yk_scope_begin();
            yk_tensor *loss = yk_cross_entropy(yk_forward(model, batch.input), batch.target, NULL);
            yk_optimizer_zero_grad(adam);
            if (yk_backward(loss) || yk_optimizer_step(adam))
                return yk_last_error()->code;
            sum += yk_item(loss);
            r->steps++;
            r->bytes += diloco ? 0 : bytes_of(inner);
            if (diloco && r->steps % INNER_STEPS == 0 && outer_step(outer, nesterov, inner, r))
                return yk_last_error()->code;
            yk_scope_end(step);
        }
        yk_tensor *mean = yk_full(0, NULL, sum / (double)steps, NULL);
        if (yk_all_reduce(mean, YK_OP_MEAN, NULL))
            return yk_last_error()->code;
        r->loss = yk_item(mean);
    }
    if (diloco && !yk_last_error() && outer_step(outer, nesterov, inner, r)) /* what the last steps found */
        return yk_last_error()->code;
    r->accuracy = accuracy_of(net);
    return yk_last_error() ? yk_last_error()->code : YK_OK;
}

int main(int argc, char **argv)
{
    int epochs = argc > 1 ? atoi(argv[1]) : EPOCHS;
    yk_scope program = yk_scope_begin();
    if (yk_init_process_group(NULL))
        return yk_report_error(stderr);
    for (int diloco = 0; diloco < 2; diloco++) {
        yk_scope run = yk_scope_begin();
        result r = {0};
        if (train(diloco, epochs, &r))
            return yk_report_error(stderr);
        printf("rank %d, %s: %lld steps, loss %.4f, test accuracy %.4f, bytes to all_reduce %lld\n", yk_rank(NULL),
               diloco ? "diloco" : "ddp", (long long)r.steps, r.loss, r.accuracy, (long long)r.bytes);
        yk_scope_end(run);
    }
    yk_destroy_process_group();
    yk_scope_end(program);
    return 0;
}
