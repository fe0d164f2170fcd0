/*
 * elastic.c - LeNet on the built-in digits in virtual ranks: the same weights from any number of processes, which may
 * come and go while it trains.
 *
 * yoke run --virtual-ranks 12 -n 3 [--max-restarts 2] -- elastic [FOLDER [EPOCHS]]
 *
 * A checkpoint is kept in FOLDER after each epoch, and the run goes on from the last one that is there. A process that
 * is killed does not end the run: the others make the step again, and go on; with --max-restarts it is started again,
 * and takes part. One that gets SIGTERM leaves. Without a launcher one process computes all virtual ranks; without
 * --virtual-ranks there are 12.
 */
#include <inttypes.h>
#include <stdlib.h>

#include <yoke/yoke.h>

/* Counts of the program. They go back where a step is made again, and come to a process that joins. */
typedef struct counts {
    int64_t epoch, step;
    double sum, steps; /* of this epoch's losses */
} counts;

typedef struct run {
    yk_elastic *job;
    yk_loader *loader;
    yk_checkpoint_state state;
    const char *folder; /* of checkpoints; NULL: none are kept */
    counts now;
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

/* Members make a manager together, so one that has other members is another. */
static yk_status save(void *argument)
{
    run *r = argument;
    yk_scope scope = yk_scope_begin();
    yk_checkpoint_manager *manager = yk_checkpoint_manager_create(
        r->folder, YK_OPTIONS(yk_checkpoint_manager_options, .group = yk_default_process_group()));
    r->state.epoch = r->now.epoch;
    r->state.step = r->now.step;
    yk_status status = manager ? yk_checkpoint_manager_save(manager, &r->state) : yk_last_error()->code;
    yk_scope_end(scope);
    return status;
}

static yk_status train_epoch(run *r)
{
    yk_loader_start(r->loader, YK_NEXT_EPOCH); /* or the rest of the one in which this process has joined */
    while (yk_elastic_begin(r->job)) {
        yk_scope scope = yk_scope_begin();
        yk_status status = train_step(r);
        yk_scope_end(scope);
        if (status && yk_elastic_recover(r->job))
            return yk_last_error()->code;
        if (status)
            continue; /* a member is gone: the step is made again without it */
        r->now.sum += yk_elastic_loss(r->job);
        r->now.steps++;
        r->now.step++;
    }
    if (yk_last_error())
        return yk_last_error()->code;
    if (yk_elastic_left(r->job))
        return r->folder && yk_elastic_left_together(r->job) ? save(r) : YK_OK;
    r->now.epoch++;
    if (yk_elastic_first(r->job) == 0)
        printf("epoch %" PRId64 ": loss %.17g\n", r->now.epoch, r->now.sum / r->now.steps);
    r->now.sum = r->now.steps = 0;
    return r->folder ? yk_elastic_together(r->job, save, r) : YK_OK;
}

/* Goes on from the last checkpoint in the folder, if there is one. */
static yk_status resume(run *r)
{
    yk_checkpoint_found found;
    yk_status status = yk_checkpoint_load_latest(
        r->folder, &r->state, YK_OPTIONS(yk_checkpoint_options, .group = yk_default_process_group()), &found);
    r->now.epoch = r->state.epoch;
    r->now.step = r->state.step;
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
    run r = {.folder = argc > 1 && *argv[1] ? argv[1] : NULL,
             .loader = yk_loader_create(digits, YK_OPTIONS(yk_loader_options, .batch_size = 16, .shuffle = true,
                                                           .workers = 1, .device = yk_device_local()))};
    r.job = yk_elastic_create(YK_OPTIONS(yk_elastic_options, .model = net, .optimizer = sgd, .loader = r.loader,
                                         .different_seeds = true, .survive = true, .own = &r.now,
                                         .own_bytes = sizeof(r.now)));
    const yk_checkpoint_value values[] = {{"sum", &r.now.sum}, {"steps", &r.now.steps}, {NULL, NULL}};
    r.state.values = values;
    if (!r.job || yk_elastic_describe(r.job, &r.state) || (r.folder && !yk_elastic_joined(r.job) && resume(&r)))
        return yk_report_error(stderr);
    while (r.now.epoch < epochs && !yk_elastic_left(r.job))
        if (train_epoch(&r))
            return yk_report_error(stderr);
    yk_destroy_process_group();
    yk_scope_end(program);
    return 0;
}
