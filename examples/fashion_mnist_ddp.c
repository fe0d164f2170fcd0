/*
 * fashion_mnist_ddp.c - LeNet on FashionMNIST, data-parallel, in batches of 4. Follows seeds/004: its DDP section.
 *
 * yoke run -n 2 -- fashion_mnist_ddp [DATA [EPOCHS]]
 *
 * DATA is fashion-mnist, which is looked for under $YOKE_DATA, fashion-mnist:DIR, or another set of such images (glyphs
 * is built in). The weights go to saved_model.safetensors.
 */
#include <stdlib.h>
#include <time.h>

#include <yoke/yoke.h>

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Over all ranks: each image is tested by one of them. */
static double accuracy(yk_module *net, yk_loader *test)
{
    yk_tensor *sums = yk_zeros(YK_SHAPE(2), &(yk_tensor_options){.dtype = YK_I64});
    int64_t *right = yk_tensor_data(sums), *seen = right + 1;
    yk_batch batch;
    yk_module_eval(net);
    bool recording = yk_no_grad_begin();
    for (yk_loader_start(test, 0); yk_loader_next(test, &batch);) {
        yk_scope step = yk_scope_begin();
        yk_tensor *predicted = yk_argmax(yk_forward(net, batch.input), 1, false);
        *right += yk_item_i64(yk_sum(yk_eq(predicted, batch.target)));
        *seen += batch.count;
        yk_scope_end(step);
    }
    yk_no_grad_end(recording);
    yk_module_train(net, true);
    return yk_all_reduce(sums, YK_OP_SUM, NULL) ? -1 : (double)*right / (double)*seen;
}

int main(int argc, char **argv)
{
    const char *data = argc > 1 ? argv[1] : "fashion-mnist";
    int epochs = argc > 2 ? atoi(argv[2]) : 2;
    if (epochs < 1 || argc > 3) {
        fprintf(stderr, "usage: fashion_mnist_ddp [DATA [EPOCHS]]\n");
        return 2;
    }
    setlinebuf(stdout); /* lines are seen at once, also through the launcher */
    yk_scope program = yk_scope_begin();
    if (yk_init_process_group(NULL))
        return yk_report_error(stderr);
    int rank = yk_rank(NULL);
    yk_module *net = yk_ddp(yk_lenet(NULL), NULL);
    yk_optimizer *sgd = yk_sgd(yk_module_parameters(net), &(yk_sgd_options){.lr = 0.001, .momentum = 0.9});
    yk_loader_options part = {.batch_size = 4, .workers = 2, .distributed = true, .shuffle = true};
    yk_loader *trainloader =
        yk_loader_create(yk_dataset_open(data, YK_TRAIN, yk_default_transform(data, YK_TRAIN, true)), &part);
    part.shuffle = false;
    part.no_padding = true; /* no image is counted twice */
    yk_loader *testloader =
        yk_loader_create(yk_dataset_open(data, YK_TEST, yk_default_transform(data, YK_TEST, false)), &part);
    for (int epoch = 0; epoch < epochs && !yk_last_error(); epoch++) {
        double begun = seconds(), running_loss = 0;
        yk_batch batch;
        for (yk_loader_start(trainloader, YK_NEXT_EPOCH); yk_loader_next(trainloader, &batch);) {
            yk_scope step = yk_scope_begin();
            if (epoch == 0 && batch.index == 0) /* each rank sees other images */
                printf("rank %d: the first inputs' sum is %.4f\n", rank, yk_item(yk_sum(batch.input)));
            yk_tensor *loss = yk_cross_entropy(yk_forward(net, batch.input), batch.target, NULL);
            yk_optimizer_zero_grad(sgd);
            if (yk_backward(loss) || yk_optimizer_step(sgd))
                return yk_report_error(stderr);
            running_loss += yk_item(loss);
            yk_scope_end(step);
        }
        double it = (double)yk_loader_length(trainloader), took = seconds() - begun, right = accuracy(net, testloader);
        if (rank == 0)
            printf("epoch %d: %.0fit [%.2f s, %.2fit/s] x %d, loss %.4f, test accuracy %.4f\n", epoch + 1, it, took,
                   it / took, yk_world_size(NULL), running_loss / it, right);
    }
    if (rank == 0 && !yk_last_error() && /* the same on every rank: once is enough */
        yk_safetensors_save("saved_model.safetensors", yk_module_state_dict(yk_ddp_module(net)), NULL))
        return yk_report_error(stderr);
    if (yk_last_error())
        return yk_report_error(stderr);
    yk_destroy_process_group();
    yk_scope_end(program);
    return 0;
}
