/*
 * pipeline.c - a network whose first half is on one device and whose second half is on another, at work at the same
 * time, each on another part of the batch. Follows seeds/001's ModelParallel, in which one of the two always waits.
 *
 * Prints what a step takes, and how long the devices are idle, for batches cut into 1, 2, 4 and 8 micro-batches; then
 * trains, and compares the losses with those of the same network on one device. With GPUs "idle" is what the host sees,
 * which queues their work and goes on.
 */
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include <yoke/yoke.h>

enum { STAGES = 2, BATCH = 64 };

static yk_tensor *cross_entropy(yk_tensor *output, yk_tensor *target, void *user)
{
    (void)user;
    return yk_cross_entropy(output, target, NULL);
}

static void make_parts(yk_module *parts[STAGES])
{
    yk_manual_seed(1);
    parts[0] = yk_sequential(yk_conv2d_create(1, 16, 5, NULL), yk_relu_create(), yk_max_pool2d_create(2, 0, NULL),
                             yk_conv2d_create(16, 16, 3, NULL), yk_relu_create());
    parts[1] = yk_sequential(yk_conv2d_create(16, 32, 3, NULL), yk_relu_create(), yk_max_pool2d_create(2, 0, NULL),
                             yk_flatten_create(), yk_linear_create(512, 64, NULL), yk_relu_create(),
                             yk_linear_create(64, 10, NULL));
}

/* cuda:0 and cuda:1 where there are two GPUs, else cpu:0 and cpu:1. */
static yk_device device_of(int stage)
{
    return (yk_device){yk_device_count(YK_CUDA) >= STAGES ? YK_CUDA : YK_CPU, (int16_t)stage};
}

static yk_module *make_pipeline(int chunks, yk_pipeline_schedule schedule)
{
    yk_device devices[STAGES] = {device_of(0), device_of(1)};
    yk_module *parts[STAGES];
    make_parts(parts);
    return yk_pipeline(parts, STAGES,
                       YK_OPTIONS(yk_pipeline_options, .devices = devices, .chunks = chunks, .schedule = schedule,
                                  .criterion = cross_entropy));
}

static yk_loader *open_glyphs(void)
{
    yk_dataset *glyphs = yk_dataset_open("glyphs", YK_TRAIN, yk_default_transform("glyphs", YK_TRAIN, false));
    return yk_loader_create(glyphs, YK_OPTIONS(yk_loader_options, .batch_size = BATCH, .shuffle = true,
                                               .drop_last = true, .device = device_of(0)));
}

/* A GPU computes beside the host, whose clock it is. */
static yk_status wait_for_devices(void)
{
    return yk_device_synchronize(device_of(0)) || yk_device_synchronize(device_of(1)) ? yk_last_error()->code : YK_OK;
}

/* Ten steps for each number of micro-batches. */
static yk_status measure(void)
{
    yk_loader *loader = open_glyphs();
    yk_batch batch;
    yk_loader_start(loader, 0);
    if (!yk_loader_next(loader, &batch))
        return yk_last_error()->code;
    for (int chunks = 1; chunks <= 8; chunks *= 2) {
        yk_scope scope = yk_scope_begin();
        yk_module *pipeline = make_pipeline(chunks, YK_PIPELINE_1F1B);
        yk_stage_times times[STAGES];
        struct timespec from, to;
        for (int step = 0; step < 12; step++) {
            if (step == 2) { /* the first ones warm up */
                if (wait_for_devices())
                    return yk_last_error()->code;
                yk_pipeline_report_reset(pipeline);
                clock_gettime(CLOCK_MONOTONIC, &from);
            }
            yk_module_zero_grad(pipeline);
            if (!yk_pipeline_step(pipeline, batch.input, batch.target))
                return yk_last_error()->code;
        }
        if (wait_for_devices())
            return yk_last_error()->code;
        clock_gettime(CLOCK_MONOTONIC, &to);
        if (yk_pipeline_report(pipeline, times))
            return yk_last_error()->code;
        printf("%d micro-batches: %.2f ms a step, idle %.0f %% and %.0f %% of it, ideal %.0f %%\n", chunks,
               ((double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6) / 10,
               times[0].idle * 100, times[1].idle * 100, times[0].ideal_idle * 100);
        if (chunks == 8 && yk_pipeline_report_print(stdout, times, STAGES))
            return yk_last_error()->code;
        yk_scope_end(scope);
    }
    return YK_OK;
}

/* In double precision, so that rounding does not grow over the steps. The loss, averaged over the last 10 of 60 steps,
 * of the pipeline or of its parts one after the other on the first device. */
static double train(yk_module *model, bool is_pipeline)
{
    yk_module_to_dtype(model, YK_F64);
    yk_optimizer *sgd = yk_sgd(yk_module_parameters(model), YK_OPTIONS(yk_sgd_options, .lr = 0.1, .momentum = 0.9));
    yk_loader *loader = open_glyphs();
    yk_batch batch;
    double mean = 0;
    yk_loader_start(loader, 0);
    for (int i = 0; i < 60 && yk_loader_next(loader, &batch); i++) {
        yk_scope step = yk_scope_begin();
        yk_optimizer_zero_grad(sgd);
        yk_tensor *x = yk_cast(batch.input, YK_F64);
        yk_tensor *loss = is_pipeline ? yk_pipeline_step(model, x, batch.target)
                                      : yk_cross_entropy(yk_forward(model, x), batch.target, NULL);
        if (!loss || (!is_pipeline && yk_backward(loss)) || yk_optimizer_step(sgd))
            return NAN;
        mean += i >= 50 ? yk_item(loss) / 10 : 0;
        yk_scope_end(step);
    }
    return mean;
}

int main(void)
{
    setenv("YOKE_CPU_DEVICES", "2", 1);    /* cpu:0 and cpu:1, each with its share of the cores */
    yk_use_deterministic_algorithms(true); /* both schedules have the same bits then, on GPUs too */
    yk_scope program = yk_scope_begin();
    if (measure())
        return yk_report_error(stderr);
    yk_module *parts[STAGES];
    make_parts(parts);
    double plain = train(yk_module_to(yk_sequential_list(parts, STAGES), device_of(0)), false);
    double one = train(make_pipeline(6, YK_PIPELINE_1F1B), true); /* 64 in 6: 11, 11, 11, 11, 10, 10 */
    double all = train(make_pipeline(6, YK_PIPELINE_GPIPE), true);
    printf("loss %.9f with 1F1B, %.9f with GPipe, %.9f on one device\n", one, all, plain);
    if (yk_report_error(stderr))
        return 1;
    yk_scope_end(program);
    return !(one == all && fabs(one - plain) < 1e-6);
}
