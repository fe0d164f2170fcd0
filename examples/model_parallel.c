/*
 * model_parallel.c - one network whose parts are on two devices: two towers that see the same images run at once, each
 * on its own device, and their results are joined on the second. Follows seeds/001, which puts two parts one after the
 * other.
 *
 * Gradients find their way back by themselves: yk_backward has a thread for each device. The same network on one
 * device, from the same start, must come to the same losses.
 */
#include <math.h>
#include <stdlib.h>

#include <yoke/yoke.h>

typedef struct towers {
    yk_module *part_1, *part_2, *head;
    yk_device dev_1, dev_2;
} towers;

static yk_tensor *towers_forward(yk_module *self, yk_tensor *x)
{
    towers *t = yk_module_data(self);
    yk_module *parts[] = {t->part_1, t->part_2};
    yk_tensor *inputs[] = {yk_to(x, t->dev_1), yk_to(x, t->dev_2)}, *found[2];
    if (yk_device_equal(t->dev_1, t->dev_2)) { /* one after the other */
        found[0] = yk_forward(t->part_1, inputs[0]);
        found[1] = yk_forward(t->part_2, inputs[1]);
    } else if (yk_parallel_apply(parts, 2, inputs, 1, found, 1)) {
        return NULL;
    }
    return yk_forward(t->head, yk_device_gather(found, 2, 1, t->dev_2));
}

static const yk_module_class towers_class = {.name = "Towers", .data_size = sizeof(towers), .forward = towers_forward};

static yk_module *tower(int64_t kernel)
{
    return yk_sequential(yk_conv2d_create(1, 8, kernel, NULL), yk_relu_create(), yk_adaptive_avg_pool2d_create(6, 6),
                         yk_flatten_create(), yk_linear_create(8 * 6 * 6, 32, NULL), yk_relu_create());
}

static yk_module *make_towers(yk_device dev_1, yk_device dev_2)
{
    yk_manual_seed(1);
    yk_module *m = yk_module_create(&towers_class);
    if (!m)
        return NULL;
    towers *t = yk_module_data(m);
    t->dev_1 = dev_1;
    t->dev_2 = dev_2;
    t->part_1 = yk_module_add(m, "part_1", yk_module_to(tower(3), dev_1));
    t->part_2 = yk_module_add(m, "part_2", yk_module_to(tower(7), dev_2));
    t->head = yk_module_add(m, "head", yk_module_to(yk_linear_create(64, 10, NULL), dev_2));
    return yk_module_check(m);
}

/* The mean loss of each of three passes over 30 batches, and what the devices' tensors held at most. */
static yk_status train(yk_device dev_1, yk_device dev_2, double losses[3])
{
    yk_scope program = yk_scope_begin();
    yk_module *model = make_towers(dev_1, dev_2);
    yk_optimizer *sgd = yk_sgd(yk_module_parameters(model), YK_OPTIONS(yk_sgd_options, .lr = 0.05, .momentum = 0.9));
    yk_dataset *glyphs = yk_dataset_open("glyphs", YK_TRAIN, yk_default_transform("glyphs", YK_TRAIN, false));
    yk_loader *loader = yk_loader_create(glyphs, YK_OPTIONS(yk_loader_options, .batch_size = 64));
    for (int epoch = 0; epoch < 3; epoch++) {
        yk_batch batch;
        losses[epoch] = 0;
        yk_loader_start(loader, 0);
        for (int i = 0; i < 30 && yk_loader_next(loader, &batch); i++) {
            yk_scope step = yk_scope_begin();
            yk_tensor *loss = yk_cross_entropy(yk_forward(model, batch.input), yk_to(batch.target, dev_2), NULL);
            yk_optimizer_zero_grad(sgd);
            if (yk_backward(loss) || yk_optimizer_step(sgd))
                return yk_last_error()->code;
            losses[epoch] += yk_item(loss) / 30;
            yk_scope_end(step);
        }
    }
    for (int i = 0; i <= dev_2.index; i++) {
        yk_memory_info memory;
        char name[16];
        yk_device device = {dev_1.type, (int16_t)i};
        if (yk_device_memory(device, &memory))
            return yk_last_error()->code;
        printf("%s: %.2f MiB at most\n", yk_device_format(device, name), (double)memory.peak_allocated / (1 << 20));
    }
    yk_scope_end(program);
    return yk_last_error() ? yk_last_error()->code : YK_OK;
}

int main(void)
{
    setenv("YOKE_CPU_DEVICES", "2", 1); /* cpu:0 and cpu:1, each with its share of the cores */
    int16_t type = yk_device_count(YK_CUDA) > 1 ? YK_CUDA : YK_CPU; /* cuda:0 and cuda:1, where they are */
    double split[3], whole[3];
    if (train((yk_device){type, 0}, (yk_device){type, 1}, split) ||
        train((yk_device){type, 0}, (yk_device){type, 0}, whole))
        return yk_report_error(stderr);
    int apart = 0;
    for (int epoch = 0; epoch < 3; epoch++) {
        printf("epoch %d: loss %.4f on two devices, %.4f on one\n", epoch, split[epoch], whole[epoch]);
        apart |= !(fabs(split[epoch] - whole[epoch]) < 1e-3);
    }
    return apart;
}
