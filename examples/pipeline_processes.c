/*
 * pipeline_processes.c - a network in as many parts as there are processes, each at work on another part of the batch.
 * Follows seeds/002's distributed pipeline.
 *
 * yoke run -n 2 -- pipeline_processes
 *
 * With 1, 2, 3 or 5 processes the losses are the same, to the last digit. "saved" gets the weights of all processes,
 * under the names that they have in one.
 */
#include <stdlib.h>

#include <yoke/yoke.h>

enum { LAYERS = 5, MICRO_BATCHES = 8, EPOCHS = 2 };

/* Layer i of the network; a process makes those of its own stage alone. */
static yk_module *make_layer(int i)
{
    yk_manual_seed(1 + (uint64_t)i);
    switch (i) {
    case 0: return yk_sequential(yk_conv2d_create(1, 6, 5, NULL), yk_relu_create(), yk_max_pool2d_create(2, 0, NULL));
    case 1: return yk_sequential(yk_conv2d_create(6, 8, 3, NULL), yk_relu_create());
    case 2: return yk_sequential(yk_conv2d_create(8, 16, 3, NULL), yk_relu_create(), yk_max_pool2d_create(2, 0, NULL));
    case 3: return yk_sequential(yk_flatten_create(), yk_linear_create(256, 64, NULL), yk_relu_create());
    default: return yk_linear_create(64, 10, NULL);
    }
}

static yk_tensor *cross_entropy(yk_tensor *output, yk_tensor *target, void *user)
{
    (void)user;
    return yk_cross_entropy(output, target, NULL);
}

static yk_module *make_pipeline(int rank, int processes)
{
    yk_module *layers[LAYERS], *stages[LAYERS] = {NULL}; /* NULL: another process's */
    int count = 0;
    for (int i = rank * LAYERS / processes; i < (rank + 1) * LAYERS / processes; i++)
        layers[count++] = make_layer(i);
    stages[rank] = yk_module_to(yk_sequential_list(layers, count), yk_device_local());
    return yk_pipeline(stages, processes,
                       YK_OPTIONS(yk_pipeline_options, .group = yk_default_process_group(), .chunks = MICRO_BATCHES,
                                  .criterion = cross_entropy));
}

/* The first process looks at the images, the last one at the labels; all go through the same batches. */
static yk_loader *open_glyphs(yk_data_split split)
{
    yk_dataset *glyphs = yk_dataset_open("glyphs", split, yk_default_transform("glyphs", split, false));
    return yk_loader_create(
        glyphs, YK_OPTIONS(yk_loader_options, .batch_size = 64, .shuffle = split == YK_TRAIN, .drop_last = true));
}

static yk_status train(yk_module *model, int rank)
{
    yk_loader *loader = open_glyphs(YK_TRAIN);
    yk_optimizer *sgd = yk_sgd(yk_module_parameters(model), YK_OPTIONS(yk_sgd_options, .lr = 0.05, .momentum = 0.9));
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        yk_batch batch;
        double sum = 0;
        int64_t steps = 0;
        for (yk_loader_start(loader, epoch); yk_loader_next(loader, &batch); steps++) {
            yk_scope step = yk_scope_begin();
            yk_optimizer_zero_grad(sgd);
            yk_tensor *loss = yk_pipeline_step(model, batch.input, batch.target);
            if (!loss || yk_optimizer_step(sgd))
                return yk_last_error()->code;
            sum += yk_item(loss); /* every process has it */
            yk_scope_end(step);
        }
        if (rank == 0)
            printf("epoch %d: loss %.17g\n", epoch, sum / (double)steps);
    }
    return yk_last_error() ? yk_last_error()->code : YK_OK;
}

static yk_status test(yk_module *model, int rank, int processes)
{
    yk_loader *loader = open_glyphs(YK_TEST);
    yk_batch batch;
    double right = 0, count = 0;
    yk_module_eval(model);
    bool before = yk_no_grad_begin();
    for (yk_loader_start(loader, 0); yk_loader_next(loader, &batch);) {
        yk_scope step = yk_scope_begin();
        yk_tensor *scores = yk_forward(model, batch.input); /* of the last process; the others have none */
        if (rank == processes - 1) {
            yk_tensor *labels = yk_to(batch.target, yk_device_local());
            right += yk_item(yk_sum(yk_cast(yk_eq(yk_argmax(scores, 1, false), labels), YK_F32)));
            count += (double)yk_numel(labels);
        }
        yk_scope_end(step);
    }
    yk_no_grad_end(before);
    if (rank == processes - 1)
        printf("test accuracy %.4f\n", right / count);
    return yk_last_error() ? yk_last_error()->code : YK_OK;
}

static yk_status save(yk_module *model)
{
    yk_shard shards[2 * LAYERS];
    yk_state_dict *own = yk_module_state_dict(model);
    int64_t count = yk_state_dict_count(own);
    for (int64_t i = 0; i < count; i++)
        shards[i] = (yk_shard){.name = yk_state_dict_name(own, i), .part = yk_state_dict_at(own, i)};
    return yk_sharded_save("saved", shards, count, NULL, yk_default_process_group());
}

int main(void)
{
    yk_scope program = yk_scope_begin();
    if (yk_init_process_group(NULL))
        return yk_report_error(stderr);
    int rank = yk_rank(NULL), processes = yk_world_size(NULL);
    if (processes > LAYERS) {
        fprintf(stderr, "pipeline_processes: %d processes for %d layers\n", processes, LAYERS);
        return 2;
    }
    yk_module *model = make_pipeline(rank, processes);
    if (!model || train(model, rank) || test(model, rank, processes) || save(model))
        return yk_report_error(stderr);
    fflush(stdout);
    yk_destroy_process_group();
    yk_scope_end(program);
    return 0;
}
