/*
 * resnet_ddp.c - ResNet-18 on CIFAR-10, data-parallel. Follows seeds/002: resnet_ddp.py, flag for flag.
 *
 * yoke run -n 2 -- resnet_ddp --num_epochs 20 --batch_size 128
 *
 * CIFAR-10's binary files are in $YOKE_DATA, or else in data/. The folder --model_dir has to be there. Its file is
 * PyTorch's: the Python program can go on from it, and this one from the Python program's.
 */
#include <getopt.h>
#include <stdlib.h>

#include <yoke/yoke.h>

/* The number that `text` is, at least `least` and whole unless `real`; else the end of the program. */
static double number(const char *flag, const char *text, double least, bool real)
{
    char *end;
    double x = strtod(text, &end);
    if (end == text || *end || !(x >= least && x < 1e9) || (!real && x != (double)(int)x)) {
        fprintf(stderr, "--%s %s: expected %s from %g\n", flag, text, real ? "a number" : "an integer", least);
        exit(2);
    }
    return x;
}

static double evaluate(yk_module *model, yk_loader *test_loader)
{
    int64_t correct = 0, total = 0;
    yk_batch batch;
    yk_module_eval(model);
    bool recording = yk_no_grad_begin();
    for (yk_loader_start(test_loader, 0); yk_loader_next(test_loader, &batch);) {
        yk_scope step = yk_scope_begin();
        yk_tensor *predicted = yk_argmax(yk_forward(model, batch.input), 1, false);
        correct += yk_item_i64(yk_sum(yk_eq(predicted, batch.target)));
        total += batch.count;
        yk_scope_end(step);
    }
    yk_no_grad_end(recording);
    yk_module_train(model, true);
    return (double)correct / (double)total;
}

static yk_status train_epoch(yk_module *model, yk_optimizer *optimizer, yk_loader *train_loader)
{
    yk_status status = YK_OK;
    yk_batch batch;
    for (yk_loader_start(train_loader, YK_NEXT_EPOCH); !status && yk_loader_next(train_loader, &batch);) {
        yk_scope step = yk_scope_begin();
        yk_optimizer_zero_grad(optimizer);
        status = yk_backward(yk_cross_entropy(yk_forward(model, batch.input), batch.target, NULL));
        if (!status)
            status = yk_optimizer_step(optimizer);
        yk_scope_end(step);
    }
    return status;
}

int main(int argc, char **argv)
{
    const char *value[] = {getenv("LOCAL_RANK"),     "10000", "256", "0.1", "0", "saved_models",
                           "resnet_distributed.pth", NULL};
    enum { LOCAL_RANK, NUM_EPOCHS, BATCH_SIZE, LEARNING_RATE, RANDOM_SEED, MODEL_DIR, MODEL_FILENAME, RESUME };
    static const struct option flags[] = {
        {"local_rank", 1, NULL, 'v'},     {"num_epochs", 1, NULL, 'v'},  {"batch_size", 1, NULL, 'v'},
        {"learning_rate", 1, NULL, 'v'},  {"random_seed", 1, NULL, 'v'}, {"model_dir", 1, NULL, 'v'},
        {"model_filename", 1, NULL, 'v'}, {"resume", 0, NULL, 'v'},      {0}};
    for (int flag, letter; (letter = getopt_long(argc, argv, "", flags, &flag)) != -1;) {
        if (letter != 'v')
            return 2;
        value[flag] = optarg ? optarg : "yes";
    }
    int local_rank = (int)number("local_rank", value[LOCAL_RANK] ? value[LOCAL_RANK] : "0", 0, false);
    int num_epochs = (int)number("num_epochs", value[NUM_EPOCHS], 0, false);
    int batch_size = (int)number("batch_size", value[BATCH_SIZE], 1, false);
    double learning_rate = number("learning_rate", value[LEARNING_RATE], 0, true);
    uint64_t seed = (uint64_t)number("random_seed", value[RANDOM_SEED], 0, false);
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", value[MODEL_DIR], value[MODEL_FILENAME]);

    setlinebuf(stdout); /* lines are seen at once, also through the launcher */
    yk_scope program = yk_scope_begin();
    yk_manual_seed(seed);
    if (yk_init_process_group(NULL))
        return yk_report_error(stderr);
    yk_device device = yk_device_local(); /* cuda:LOCAL_RANK, or cpu:0 where there is no GPU */
    yk_module *model = yk_ddp(yk_module_to(yk_resnet18(NULL), device),
                              YK_OPTIONS(yk_ddp_options, .devices = &device, .count = 1, .output_device = &device));
    if (value[RESUME] &&
        yk_module_load_state_dict(
            model, yk_value_weights(yk_pt_load(path, YK_OPTIONS(yk_pt_options, .map_location = device)), NULL), NULL,
            NULL))
        return yk_report_error(stderr);

    const char *root = getenv("YOKE_DATA") ? getenv("YOKE_DATA") : "data";
    yk_loader *train_loader =
        yk_loader_create(yk_cifar10(root, YK_TRAIN, yk_default_transform("cifar10", YK_TRAIN, true)),
                         YK_OPTIONS(yk_loader_options, .batch_size = batch_size, .distributed = true, .shuffle = true,
                                    .workers = 8, .seed = seed, .device = device));
    yk_loader *test_loader = /* not distributed: local rank 0 tests alone */
        yk_loader_create(yk_cifar10(root, YK_TEST, yk_default_transform("cifar10", YK_TEST, false)),
                         YK_OPTIONS(yk_loader_options, .batch_size = 128, .workers = 8, .device = device));
    yk_optimizer *optimizer =
        yk_sgd(yk_module_parameters(model), YK_OPTIONS(yk_sgd_options, .lr = learning_rate == 0 ? 0 : learning_rate,
                                                       .momentum = 0.9, .weight_decay = 1e-5));
    for (int epoch = 0; epoch < num_epochs && !yk_last_error(); epoch++) {
        printf("Local Rank: %d, Epoch: %d, Training ...\n", local_rank, epoch);
        if (epoch % 10 == 0 && local_rank == 0) { /* on each node: they need not have one file system */
            double accuracy = evaluate(model, test_loader);
            if (yk_pt_save(path, yk_value_from_state_dict(yk_module_state_dict(model))))
                break;
            static const char line[] = "---------------------------------------------------------------------------";
            printf("%s\nEpoch: %d, Accuracy: %g\n%s\n", line, epoch, accuracy, line);
        }
        if (train_epoch(model, optimizer, train_loader))
            break;
    }
    if (yk_last_error())
        return yk_report_error(stderr);
    yk_destroy_process_group();
    yk_scope_end(program);
    return 0;
}
