/*
 * train_lenet.c - trains LeNet on the built-in glyphs for three epochs and prints the test accuracy after each.
 *
 * cc -O2 train_lenet.c $(pkg-config --cflags --libs yoke)
 */
#include <yoke/yoke.h>

/* The share of the test set that the network gets right; negative when a batch fails. */
static double accuracy(yk_module *net, yk_loader *test)
{
    bool recording = yk_no_grad_begin();
    int64_t right = 0;
    yk_batch batch;
    yk_module_eval(net);
    for (yk_loader_start(test, 0); yk_loader_next(test, &batch);) {
        yk_scope step = yk_scope_begin();
        yk_tensor *guess = yk_argmax(yk_forward(net, batch.input), 1, false);
        right += yk_item_i64(yk_sum(yk_eq(guess, batch.target)));
        yk_scope_end(step);
    }
    yk_module_train(net, true);
    yk_no_grad_end(recording);
    return yk_last_error() ? -1 : (double)right / (double)yk_loader_samples(test);
}

int main(void)
{
    yk_scope program = yk_scope_begin();
    yk_device device = yk_device_local(); /* cuda:0, or cpu:0 where there is no GPU */
    yk_module *net = yk_module_to(yk_lenet(NULL), device);
    yk_optimizer *sgd = yk_sgd(yk_module_parameters(net), YK_OPTIONS(yk_sgd_options, .lr = 0.05, .momentum = 0.9));
    yk_loader *train = yk_loader_create(
        yk_dataset_open("glyphs", YK_TRAIN, yk_default_transform("glyphs", YK_TRAIN, true)),
        YK_OPTIONS(yk_loader_options, .batch_size = 64, .shuffle = true, .workers = 1, .device = device));
    yk_loader *test =
        yk_loader_create(yk_dataset_open("glyphs", YK_TEST, yk_default_transform("glyphs", YK_TEST, false)),
                         YK_OPTIONS(yk_loader_options, .batch_size = 500, .device = device));
    for (int epoch = 0; epoch < 3 && !yk_last_error(); epoch++) {
        double sum = 0;
        yk_batch batch;
        for (yk_loader_start(train, epoch); yk_loader_next(train, &batch);) {
            yk_scope step = yk_scope_begin();
            yk_tensor *loss = yk_cross_entropy(yk_forward(net, batch.input), batch.target, NULL);
            yk_optimizer_zero_grad(sgd);
            if (yk_backward(loss) || yk_optimizer_step(sgd))
                return yk_report_error(stderr); /* names the operation, the shapes and the line */
            sum += yk_item(loss);
            yk_scope_end(step);
        }
        double right = accuracy(net, test);
        if (right >= 0)
            printf("epoch %d: loss %.4f, test accuracy %.4f\n", epoch, sum / (double)yk_loader_length(train), right);
    }
    int failed = yk_report_error(stderr);
    yk_scope_end(program);
    return failed;
}
