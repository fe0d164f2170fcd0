/*
 * fashion_mnist_ddp.c - LeNet on FashionMNIST, data-parallel, in batches of 4. Follows seeds/004: its DDP section.
 *
 * yoke run -n 2 -- fashion_mnist_ddp [DATA [EPOCHS]]
 * fashion_mnist_ddp --table [DATA]
 *
 * DATA is fashion-mnist, which is looked for under $YOKE_DATA, fashion-mnist:DIR, or another set of such images (glyphs
 * is built in). The weights go to saved_model.safetensors. --table starts 1, 2 and 4 processes by itself, one number
 * after the other, and prints the table of seeds/004: with more processes an epoch has fewer steps, after which the
 * loss is higher, and as many epochs as processes have the same number of steps again.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <yoke/yoke.h>

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Over all ranks: each image is tested by one of them. */
static double accuracy(yk_module *net, yk_device device, yk_loader *test)
{
    int64_t counts[2] = {0}; /* right ones, and all */
    yk_batch batch;
    yk_module_eval(net);
    bool recording = yk_no_grad_begin();
    for (yk_loader_start(test, 0); yk_loader_next(test, &batch);) {
        yk_scope step = yk_scope_begin();
        yk_tensor *predicted = yk_argmax(yk_forward(net, batch.input), 1, false);
        counts[0] += yk_item_i64(yk_sum(yk_eq(predicted, batch.target)));
        counts[1] += batch.count;
        yk_scope_end(step);
    }
    yk_no_grad_end(recording);
    yk_module_train(net, true);
    yk_tensor *sums =
        yk_from_data(counts, YK_SHAPE(2), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64, .device = device));
    return yk_all_reduce(sums, YK_OP_SUM, NULL) ? -1 : yk_get(sums, (int64_t[]){0}) / yk_get(sums, (int64_t[]){1});
}

typedef struct plan {
    const char *data;
    int epochs;
    bool table; /* a row at the end; else a line for each epoch, and the weights */
} plan;

/* The length and loss of an epoch on this rank. */
typedef struct epoch_times {
    double iterations, seconds, loss; /* the mean over the iterations */
} epoch_times;

static yk_status train_epoch(const plan *p, int epoch, yk_module *net, yk_optimizer *sgd, yk_loader *trainloader,
                             epoch_times *times)
{
    double begun = seconds(), running_loss = 0;
    yk_batch batch;
    for (yk_loader_start(trainloader, YK_NEXT_EPOCH); yk_loader_next(trainloader, &batch);) {
        yk_scope step = yk_scope_begin();
        if (epoch == 0 && batch.index == 0 && !p->table) /* each rank sees other images */
            printf("rank %d: the first inputs' sum is %.4f\n", yk_rank(NULL), yk_item(yk_sum(batch.input)));
        yk_tensor *loss = yk_cross_entropy(yk_forward(net, batch.input), batch.target, NULL);
        yk_optimizer_zero_grad(sgd);
        if (yk_backward(loss) || yk_optimizer_step(sgd))
            return yk_last_error()->code;
        running_loss += yk_item(loss);
        yk_scope_end(step);
    }
    double iterations = (double)yk_loader_length(trainloader);
    *times = (epoch_times){iterations, seconds() - begun, running_loss / iterations};
    return yk_last_error() ? yk_last_error()->code : YK_OK;
}

/* The loss as the mean over the ranks, and the most memory that each one's tensors have held. */
static yk_status print_row(const plan *p, yk_device device, epoch_times times)
{
    int size = yk_world_size(NULL);
    yk_memory_info memory;
    yk_tensor_options there = *YK_OPTIONS(yk_tensor_options, .device = device);
    yk_tensor *loss = yk_full(YK_SCALAR, times.loss, &there), *peaks = yk_zeros(YK_SHAPE(size), &there);
    if (yk_device_memory(device, &memory) || yk_all_reduce(loss, YK_OP_MEAN, NULL) ||
        yk_all_gather(peaks, yk_full(YK_SHAPE(1), (double)memory.peak_allocated / (1 << 20), &there), NULL))
        return yk_last_error()->code;
    if (yk_rank(NULL) != 0)
        return YK_OK;
    char speed[64], held[200] = "";
    snprintf(speed, sizeof(speed), "%.0fit [%.2f s, %.2fit/s] x %d", times.iterations, times.seconds,
             times.iterations / times.seconds, size * p->epochs);
    for (int i = 0; i < size; i++)
        snprintf(held + strlen(held), sizeof(held) - strlen(held), "%s%.1f", i ? "," : "",
                 yk_get(peaks, (int64_t[]){i}));
    printf("%-38s  %5d  %7d  %-19s  %6d  %.4f\n", speed, size, yk_get_num_threads((yk_device){YK_CPU, 0}), held,
           p->epochs, yk_item(loss));
    fflush(stdout);
    return YK_OK;
}

static yk_status train(int started_as, void *argument)
{
    const plan *p = argument;
    (void)started_as; /* the group knows it, whatever launched the process */
    yk_scope program = yk_scope_begin();
    if (yk_init_process_group(NULL))
        return yk_last_error()->code;
    int rank = yk_rank(NULL);
    yk_manual_seed(1);
    yk_device device = yk_device_local(); /* cuda:LOCAL_RANK, or cpu:0 where there is no GPU */
    yk_module *net = yk_ddp(yk_module_to(yk_lenet(NULL), device), NULL);
    yk_optimizer *sgd = yk_sgd(yk_module_parameters(net), YK_OPTIONS(yk_sgd_options, .lr = 0.001, .momentum = 0.9));
    yk_loader_options part = *YK_OPTIONS(yk_loader_options, .batch_size = 4, .workers = 2, .distributed = true,
                                         .shuffle = true, .device = device);
    yk_loader *trainloader =
        yk_loader_create(yk_dataset_open(p->data, YK_TRAIN, yk_default_transform(p->data, YK_TRAIN, true)), &part);
    part.shuffle = false;
    part.padding = false; /* no image is counted twice */
    yk_loader *testloader =
        yk_loader_create(yk_dataset_open(p->data, YK_TEST, yk_default_transform(p->data, YK_TEST, false)), &part);
    epoch_times times = {0};
    for (int epoch = 0; epoch < p->epochs && !yk_last_error(); epoch++) {
        if (train_epoch(p, epoch, net, sgd, trainloader, &times))
            return yk_last_error()->code;
        double right = p->table ? 0 : accuracy(net, device, testloader);
        if (rank == 0 && !p->table)
            printf("epoch %d: %.0fit [%.2f s, %.2fit/s] x %d, loss %.4f, test accuracy %.4f\n", epoch + 1,
                   times.iterations, times.seconds, times.iterations / times.seconds, yk_world_size(NULL), times.loss,
                   right);
    }
    if (p->table && !yk_last_error() && print_row(p, device, times))
        return yk_last_error()->code;
    if (rank == 0 && !p->table && !yk_last_error() && /* the same on every rank: once is enough */
        yk_safetensors_save("saved_model.safetensors", yk_module_state_dict(yk_ddp_module(net)), NULL))
        return yk_last_error()->code;
    if (yk_last_error())
        return yk_last_error()->code;
    yk_destroy_process_group();
    yk_scope_end(program);
    return YK_OK;
}

static yk_status print_table(const char *data)
{
    static const int ranks_and_epochs[][2] = {{1, 1}, {2, 1}, {4, 1}, {2, 2}, {4, 4}};
    printf("%-38s  ranks  threads  peak memory, MiB     epochs  loss\n", "steps of an epoch x ranks and epochs");
    fflush(stdout);
    for (int i = 0; i < 5; i++) {
        plan p = {.data = data, .epochs = ranks_and_epochs[i][1], .table = true};
        yk_status status = yk_spawn(train, &p, ranks_and_epochs[i][0], NULL);
        if (status)
            return status;
    }
    return YK_OK;
}

int main(int argc, char **argv)
{
    bool table = argc > 1 && strcmp(argv[1], "--table") == 0;
    char **arguments = argv + 1 + table;
    int count = argc - 1 - table;
    plan p = {.data = count > 0 ? arguments[0] : "fashion-mnist", .epochs = count > 1 ? atoi(arguments[1]) : 2};
    if (p.epochs < 1 || count > (table ? 1 : 2) || p.data[0] == '-') {
        fprintf(stderr, "usage: fashion_mnist_ddp [DATA [EPOCHS]]\n       fashion_mnist_ddp --table [DATA]\n");
        return 2;
    }
    setlinebuf(stdout); /* lines are seen at once, also through the launcher */
    if (table ? print_table(p.data) : train(0, &p))
        return yk_report_error(stderr);
    return 0;
}
