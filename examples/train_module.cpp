/*
 * train_module.cpp - a module of one's own, trained by SGD on the built-in digits, in C++20.
 *
 *     g++ -std=c++20 train_module.cpp -o train_module $(pkg-config --cflags --libs yoke)
 */
#include <yoke/yoke.h>

#include <cstdio>

namespace
{

/* Two linear layers with a skip connection around the second: y = fc2(h) + skip(h), h = relu(fc1(x)). */
struct residual {
    yk_module *fc1, *fc2, *skip;
};

yk_tensor *forward(yk_module *self, yk_tensor *x)
{
    auto *d = static_cast<residual *>(yk_module_data(self));
    yk_tensor *h = yk_relu(yk_forward(d->fc1, yk_flatten(x, 1, -1)));
    return yk_add(yk_forward(d->fc2, h), yk_forward(d->skip, h));
}

yk_module *residual_create(int64_t in, int64_t hidden, int64_t classes)
{
    static const yk_module_class cls = [] {
        yk_module_class made{};
        made.name = "Residual";
        made.data_size = sizeof(residual);
        made.forward = forward;
        return made;
    }();
    yk_module *m = yk_module_create(&cls);
    if (!m)
        return nullptr;
    auto *d = static_cast<residual *>(yk_module_data(m));
    d->fc1 = yk_module_add(m, "fc1", yk_linear_create(in, hidden, nullptr));
    d->fc2 = yk_module_add(m, "fc2", yk_linear_create(hidden, classes, nullptr));
    d->skip = yk_module_add(m, "skip", yk_linear_create(hidden, classes, YK_OPTIONS(yk_linear_options, .bias = false)));
    return yk_module_check(m);
}

} // namespace

int main()
{
    yk_scope program = yk_scope_begin();
    yk_device device = yk_device_local(); /* cuda:0, or cpu:0 where there is no GPU */
    yk_module *net = yk_module_to(residual_create(28 * 28, 32, 10), device);
    yk_optimizer *sgd = yk_sgd(yk_module_parameters(net), YK_OPTIONS(yk_sgd_options, .lr = 0.05, .momentum = 0.9));
    yk_dataset *digits = yk_glyphs(YK_TRAIN, yk_default_transform("glyphs", YK_TRAIN, false), 0);
    yk_loader *loader = yk_loader_create(digits, YK_OPTIONS(yk_loader_options, .batch_size = 64, .shuffle = true,
                                                            .drop_last = true, .workers = 1, .device = device));
    double total = 0, first = 0;
    yk_batch batch;
    yk_loader_start(loader, 0);
    while (yk_loader_next(loader, &batch)) {
        yk_scope step = yk_scope_begin();
        yk_tensor *loss = yk_cross_entropy(yk_forward(net, batch.input), batch.target, nullptr);
        yk_optimizer_zero_grad(sgd);
        if (yk_backward(loss) || yk_optimizer_step(sgd))
            return yk_report_error(stderr);
        if (batch.index == 0)
            first = yk_item(loss);
        total += yk_item(loss);
        yk_scope_end(step);
    }
    std::printf("loss of the first batch %.3f, mean of the epoch %.3f\n", first,
                total / static_cast<double>(yk_loader_length(loader)));
    /* A shape made of variables. */
    int rows = 2;
    yk_tensor *logits =
        yk_forward(net, yk_zeros(YK_SHAPE(rows, 1, 28, 28), YK_OPTIONS(yk_tensor_options, .device = device)));
    std::printf("logits of %d images: %d classes\n", rows, static_cast<int>(yk_size(logits, 1)));
    yk_scope_end(program);
    return yk_report_error(stderr);
}
