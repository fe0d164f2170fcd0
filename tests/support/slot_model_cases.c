/* slot_model_cases.c - whole models trained on a GPU and on the CPU: part of slot_cases.c. */
#include "tests/support/slot_pairs.h"

enum { STEPS = 3, BATCH = 4 };

/* The losses of some steps, and the parameters' sum of magnitudes after them. */
typedef struct course {
    double loss[STEPS], size;
    bool done;
} course;

static yk_module *model_of(int which)
{
    if (which == 0)
        return yk_sequential(yk_conv2d_create(3, 8, 3, YK_OPTIONS(yk_conv2d_module_options, .padding = 1)),
                             yk_batch_norm2d_create(8, NULL), yk_relu_create(), yk_max_pool2d_create(2, 2, NULL),
                             yk_conv2d_create(8, 16, 3, YK_OPTIONS(yk_conv2d_module_options, .stride = 2)),
                             yk_gelu_create(), yk_adaptive_avg_pool2d_create(1, 1), yk_flatten_create(),
                             yk_linear_create(16, 10, NULL));
    return yk_sequential(yk_flatten_create(), yk_linear_create(192, 32, NULL),
                         yk_layer_norm_create(1, (const int64_t[]){32}, NULL), yk_tanh_create(),
                         yk_dropout_create(0.25), yk_linear_create(32, 10, NULL));
}

static course train(int which, yk_device device)
{
    course c = {.done = false};
    yk_manual_seed(7);
    yk_module *model = model_of(which);
    if (!model || !yk_module_to(model, device))
        return c;
    yk_parameters *parameters = yk_module_parameters(model);
    yk_optimizer *optimizer = which ? yk_adamw(parameters, YK_OPTIONS(yk_adam_options, .lr = 1e-2))
                                    : yk_sgd(parameters, YK_OPTIONS(yk_sgd_options, .lr = 0.05, .momentum = 0.9));
    float pixels[BATCH * 3 * 8 * 8];
    const int64_t shape[] = {BATCH, 3, 8, 8}, labels[BATCH] = {1, 7, 3, 0}, count = BATCH;
    for (size_t i = 0; i < sizeof(pixels) / sizeof(*pixels); i++)
        pixels[i] = (float)slot_word(3, i) * 0x1p-31f - 1;
    yk_tensor *x = yk_to(yk_from_data(pixels, 4, shape, NULL), device);
    yk_tensor *target = yk_to(yk_from_data(labels, 1, &count, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64)), device);
    for (int step = 0; step < STEPS; step++) {
        yk_optimizer_zero_grad(optimizer);
        yk_tensor *loss = yk_cross_entropy(yk_forward(model, x), target, NULL);
        float value;
        if (!loss || yk_backward(loss) || yk_optimizer_step(optimizer) || yk_tensor_read(loss, &value, sizeof(value)))
            return c;
        c.loss[step] = (double)value;
    }
    for (int64_t i = 0; i < yk_parameters_count(parameters); i++) {
        float sum;
        yk_tensor *size = yk_sum(yk_abs(yk_detach(yk_parameters_at(parameters, i))));
        if (!size || yk_tensor_read(size, &sum, sizeof(sum)))
            return c;
        c.size += (double)sum;
    }
    c.done = true;
    return c;
}

static void model_case(const slot_case *self, slot_report *r)
{
    if (!slot_ready(r))
        return;
    yk_scope scope = yk_scope_begin();
    course cpu = train(self->op, (yk_device){YK_CPU, 0});
    slot_done(r, "cpu", cpu.done ? YK_OK : YK_ERR_INTERNAL);
    course gpu = r->failed ? cpu : train(self->op, (yk_device){YK_CUDA, 0});
    slot_done(r, "cuda", gpu.done ? YK_OK : YK_ERR_INTERNAL);
    for (int step = 0; step < STEPS && !r->failed; step++, r->compared++)
        if (!(fabs(cpu.loss[step] - gpu.loss[step]) <= 2e-5 * cpu.loss[step]))
            slot_fail(r, "the loss of step %d is %.9g, the CPU's %.9g", step, gpu.loss[step], cpu.loss[step]);
    if (!(fabs(cpu.size - gpu.size) <= 2e-5 * cpu.size))
        slot_fail(r, "the parameters' magnitudes are %.9g in sum, the CPU's %.9g", gpu.size, cpu.size);
    yk_scope_end(scope);
}

const slot_case slot_model_cases[] = {
    {"model", "convolutions_sgd", model_case, 0},
    {"model", "dense_adamw", model_case, 1},
    {NULL, NULL, NULL, 0},
};
