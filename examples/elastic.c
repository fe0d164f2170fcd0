/*
 * elastic.c - LeNet on the built-in digits in virtual ranks: the same weights from any number of processes, which may
 * be another one each time the run goes on.
 *
 * yoke run --virtual-ranks 12 -n 3 -- elastic [FOLDER [EPOCHS]]
 *
 * A checkpoint is kept in FOLDER after each epoch, and the run goes on from the last one that is there. Without a
 * launcher one process computes all virtual ranks; without --virtual-ranks there are 12.
 */
#include <inttypes.h>
#include <stdlib.h>

#include <yoke/yoke.h>

typedef struct run {
    yk_elastic *job;
    yk_loader *loader;
    yk_checkpoint_manager *checkpoints; /* NULL: none are kept */
    yk_checkpoint_state state;
} run;

/* One step: the batches of the virtual ranks that are here, then the optimizer. */
static yk_status train_step(run *r)
{
    yk_module *model = yk_elastic_model(r->job);
    yk_batch part;
    while (yk_elastic_next(r->job, &part)) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *loss = yk_cross_entropy(yk_forward(model, part.input), part.target, NULL);
        yk_status status = yk_elastic_backward(r->job, loss);
        yk_scope_end(scope);
        if (status)
            return status;
    }
    return yk_elastic_step(r->job);
}

static yk_status train_epoch(run *r)
{
    double sum = 0, steps = 0;
    yk_loader_start(r->loader, r->state.epoch);
    while (yk_elastic_begin(r->job)) {
        yk_scope scope = yk_scope_begin();
        yk_status status = train_step(r);
        yk_scope_end(scope);
        if (status)
            return status;
        sum += yk_elastic_loss(r->job);
        steps++;
        r->state.step++;
    }
    if (yk_last_error())
        return yk_last_error()->code;
    r->state.epoch++;
    if (yk_elastic_first(r->job) == 0)
        printf("epoch %" PRId64 ": loss %.17g\n", r->state.epoch, sum / steps);
    return r->checkpoints ? yk_checkpoint_manager_save(r->checkpoints, &r->state) : YK_OK;
}

/* Goes on from the last checkpoint in the folder, if there is one. */
static yk_status resume(run *r, const char *folder)
{
    yk_checkpoint_found found;
    yk_process_group *group = yk_default_process_group();
    r->checkpoints = yk_checkpoint_manager_create(folder, YK_OPTIONS(yk_checkpoint_manager_options, .group = group));
    if (!r->checkpoints)
        return yk_last_error()->code;
    yk_status status =
        yk_checkpoint_load_latest(folder, &r->state, YK_OPTIONS(yk_checkpoint_options, .group = group), &found);
    if (status != YK_ERR_NOT_FOUND)
        return status;
    yk_clear_error();
    return YK_OK;
}

int main(int argc, char **argv)
{
    int epochs = argc > 2 ? atoi(argv[2]) : 2;
    setenv("YOKE_VIRTUAL_RANKS", "12", 0); /* divided by 1, 2, 3, 4, 6 and 12 processes */
    yk_scope program = yk_scope_begin();
    if (yk_init_process_group(NULL))
        return yk_report_error(stderr);
    yk_manual_seed(7); /* the same in all processes */
    yk_module *net = yk_module_to(yk_lenet(NULL), yk_device_local());
    yk_optimizer *sgd = yk_sgd(yk_module_parameters(net), YK_OPTIONS(yk_sgd_options, .lr = 0.05, .momentum = 0.9));
    yk_dataset *digits = yk_dataset_open("glyphs", YK_TRAIN, yk_default_transform("glyphs", YK_TRAIN, true));
    run r = {.loader = yk_loader_create(digits, YK_OPTIONS(yk_loader_options, .batch_size = 16, .shuffle = true,
                                                           .workers = 1, .device = yk_device_local()))};
    r.job = yk_elastic_create(
        YK_OPTIONS(yk_elastic_options, .model = net, .optimizer = sgd, .loader = r.loader, .different_seeds = true));
    if (!r.job || yk_elastic_describe(r.job, &r.state) || (argc > 1 && resume(&r, argv[1])))
        return yk_report_error(stderr);
    while (r.state.epoch < epochs)
        if (train_epoch(&r))
            return yk_report_error(stderr);
    yk_destroy_process_group();
    yk_scope_end(program);
    return 0;
}
