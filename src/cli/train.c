/*
 * train.c - `yoke train`: a ready-made network, a data set, SGD, and a test after every epoch. Layer: cli.
 *
 * Also the longest example of a training program: apart from the command line, the bar and the log it uses nothing but
 * the public headers. From top to bottom: one step, one epoch, a test, the run, the command line.
 */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <yoke/checkpoint.h>
#include <yoke/data.h>
#include <yoke/optim.h>

#include "base/core.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/run_log.h"
#include "cli/saver.h"

/* What the command line asks for. */
typedef struct settings {
    const char *model, *data, *dtype, *schedule, *device, *init, *save, *log, *checkpoint, *save_every;
    int64_t epochs, steps, batch_size, step_size, warmup, seed, num_classes, threads, workers, keep;
    double lr, momentum, weight_decay, gamma;
    bool no_shuffle, no_augment, no_eval, allow_nan, resume, async_save;
} settings;

typedef struct run {
    const settings *set;
    yk_dtype dtype;
    yk_device device;
    yk_module *model;
    yk_optimizer *optimizer;
    yk_schedule *schedule; /* NULL: the learning rate stays */
    yk_dataset *train_set, *test_set;
    yk_loader *train, *test;
    int64_t epochs, total; /* of the whole run; total: steps */
    int64_t epoch, step;   /* epoch from 0; step: how many are done */
    double loss;           /* of the last step */
    double accuracy;       /* of the last test; NaN before it */
    double loss_sum, seen; /* over this epoch's samples, and how many they are */
    bool resumed;          /* the loader stands in the middle of an epoch that another process began */
    progress progress;
    run_log log;
    saver saver;
    yk_checkpoint_state state; /* this and the rest: what the saver saves and compares */
    yk_metadata settings[9];
    yk_checkpoint_value values[4];
    char seed[32], lr[32], momentum[32], weight_decay[32];
} run;

/* ---- checkpoints ------------------------------------------------------------------------------------------------ */

/* What is logged reaches the file first: a run that goes on from here continues behind this step's line. */
static yk_status save_checkpoint(run *r)
{
    r->state.epoch = r->epoch;
    r->state.step = r->step;
    yk_status status = run_log_flush(&r->log);
    return status ? status : saver_save(&r->saver);
}

/* The shortest text that reads back as the same number. */
static const char *number_text(double number, char text[32])
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, 32, "%.*g", digits, number);
        if (strtod(text, NULL) == number)
            break;
    }
    return text;
}

/* What may not differ between the processes of one run. The schedule and the loader speak for themselves. */
static void describe_run(run *r)
{
    const settings *s = r->set;
    yk_metadata *to = r->settings;
    snprintf(r->seed, sizeof(r->seed), "%" PRId64, s->seed);
    *to++ = (yk_metadata){"model", s->model};
    *to++ = (yk_metadata){"data", yk_dataset_name(r->train_set)};
    *to++ = (yk_metadata){"dtype", s->dtype};
    *to++ = (yk_metadata){"seed", r->seed};
    *to++ = (yk_metadata){"lr", number_text(s->lr, r->lr)};
    *to++ = (yk_metadata){"momentum", number_text(s->momentum, r->momentum)};
    *to++ = (yk_metadata){"weight-decay", number_text(s->weight_decay, r->weight_decay)};
    *to++ = (yk_metadata){"augmentation", s->no_augment ? "off" : "on"};
}

/* Opens --checkpoint; with --resume the run stands where its newest checkpoint was saved. */
static yk_status open_checkpoints(run *r)
{
    const settings *s = r->set;
    if (!s->checkpoint)
        return YK_OK;
    describe_run(r);
    const yk_checkpoint_value values[] = {
        {"loss", &r->loss}, {"loss_sum", &r->loss_sum}, {"loss_samples", &r->seen}, {0}};
    memcpy(r->values, values, sizeof(values));
    r->state = (yk_checkpoint_state){.model = r->model,
                                     .optimizer = r->optimizer,
                                     .schedule = r->schedule,
                                     .loader = r->train,
                                     .settings = r->settings,
                                     .values = r->values};
    r->saver.state = &r->state;
    yk_status status = saver_open(&r->saver, s->checkpoint, s->keep, s->async_save, s->resume);
    if (status || !saver_resumed(&r->saver))
        return status;
    r->resumed = true;
    r->epoch = r->state.epoch;
    r->step = r->state.step;
    if (r->step > r->total && r->epochs)
        return yk_set_error(YK_ERR_ARGUMENT,
                            "--resume: the checkpoint is at step %" PRId64 ", and this run is to end at step %" PRId64,
                            r->step, r->total);
    return YK_OK;
}

/* ---- training --------------------------------------------------------------------------------------------------- */

static yk_status train_step(run *r, const yk_batch *batch)
{
    yk_tensor *output = yk_forward(r->model, yk_to(batch->input, r->device));
    yk_tensor *loss = yk_cross_entropy(output, yk_to(batch->target, r->device), NULL);
    if (!loss)
        return yk__error_code();
    r->loss = yk_item(loss);
    if (!isfinite(r->loss) && !r->set->allow_nan)
        return yk_set_error(YK_ERR_NUMERIC,
                            "the loss is %s at step %" PRId64 " (epoch %" PRId64
                            ", learning rate %g); this step was not taken. Lower --lr, or go on with --allow-nan",
                            isnan(r->loss) ? "NaN" : "infinite", r->step + 1, r->epoch + 1,
                            yk_optimizer_lr(r->optimizer, 0));
    yk_optimizer_zero_grad(r->optimizer);
    yk_status status = yk_backward(loss);
    if (!status)
        status = yk_optimizer_step(r->optimizer);
    yk_schedule_step(r->schedule);
    return status;
}

/* One step, with all that comes after it. `before` is when the last one ended. */
static yk_status take_step(run *r, const yk_batch *batch, double *before)
{
    yk_scope scope = yk_scope_begin();
    yk_status status = train_step(r, batch);
    yk_scope_end(scope);
    if (status)
        return status;
    r->step++;
    r->loss_sum += r->loss * (double)batch->count;
    r->seen += (double)batch->count;
    double now = yk__now();
    status = run_log_step(&r->log, r->epoch, r->step, r->loss, (double)batch->count / (now - *before));
    *before = now;
    progress_step(&r->progress, r->loss, batch->count);
    r->state.step = r->step;
    return !status && saver_due(&r->saver) ? save_checkpoint(r) : status;
}

/* Writes the mean loss of the epoch's samples. Ends early when the run's steps are done or it is interrupted. */
static yk_status train_epoch(run *r, double *mean_loss, double *images_per_second)
{
    if (!r->resumed) {
        yk_loader_start(r->train, r->epoch);
        r->loss_sum = r->seen = 0;
    }
    r->resumed = false;
    double begun = yk__now(), before = begun, seen = r->seen;
    yk_batch batch;
    progress_epoch(&r->progress, r->epoch, yk_loader_length(r->train), yk_loader_get_state(r->train).batch);
    while (r->step < r->total && !cli_interrupted() && yk_loader_next(r->train, &batch)) {
        yk_status status = take_step(r, &batch, &before);
        if (status)
            return status;
    }
    *mean_loss = r->loss_sum / r->seen;
    *images_per_second = before > begun ? (r->seen - seen) / (before - begun) : 0;
    return yk__error_code();
}

/* ---- testing ---------------------------------------------------------------------------------------------------- */

/* Writes the mean loss over the test set and the share of it that the network gets right. */
static yk_status test_network(run *r, double *mean_loss, double *accuracy)
{
    double sum = 0;
    int64_t right = 0, samples = 0;
    yk_batch batch;
    bool recording = yk_no_grad_begin();
    yk_module_eval(r->model);
    yk_loader_start(r->test, 0);
    while (!yk_last_error() && !cli_interrupted() && yk_loader_next(r->test, &batch)) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *target = yk_to(batch.target, r->device);
        yk_tensor *output = yk_forward(r->model, yk_to(batch.input, r->device));
        sum += yk_item(yk_cross_entropy(output, target, NULL)) * (double)batch.count;
        right += yk_item_i64(yk_sum(yk_eq(yk_argmax(output, 1, false), target)));
        samples += batch.count;
        yk_scope_end(scope);
        progress_other(&r->progress, "test", batch.index + 1, yk_loader_length(r->test));
    }
    yk_module_train(r->model, true);
    yk_no_grad_end(recording);
    *mean_loss = sum / (double)samples;
    *accuracy = (double)right / (double)samples;
    return yk__error_code();
}

/* ---- the run ---------------------------------------------------------------------------------------------------- */

static yk_status save(run *r)
{
    if (!r->set->save)
        return YK_OK;
    yk_scope scope = yk_scope_begin();
    yk_status status = yk_safetensors_save(r->set->save, yk_module_state_dict(r->model),
                                           (yk_metadata[]){{"format", "pt"}, {"model", r->set->model}, {0}});
    yk_scope_end(scope);
    return status;
}

/* Tests after the epoch, and says how the run stands, on stdout. Nothing is said when the test is interrupted. */
static yk_status end_epoch(run *r, double train_loss, double images_per_second)
{
    double loss = NAN;
    yk_status status = r->set->no_eval ? YK_OK : test_network(r, &loss, &r->accuracy);
    progress_clear(&r->progress);
    if (status || cli_interrupted())
        return status;
    printf("epoch %" PRId64 "/%" PRId64 "  train loss %.4f", r->epoch + 1, r->epochs, train_loss);
    if (!r->set->no_eval)
        printf("  test loss %.4f  test accuracy %.4f", loss, r->accuracy);
    printf("  %.0f images/s\n", images_per_second);
    fflush(stdout);
    return r->set->no_eval ? YK_OK : run_log_eval(&r->log, r->epoch, loss, r->accuracy);
}

static yk_status train_epochs(run *r)
{
    double loss = NAN, images_per_second = 0;
    progress_begin(&r->progress, r->epochs, r->total);
    progress_resume(&r->progress, r->step);
    if (r->epochs == 0) {
        yk_status status = save(r);
        return status || r->set->no_eval ? status : test_network(r, &loss, &r->accuracy);
    }
    /* A run that goes on at the end of an epoch has still to test; at the end of the last one that is all. */
    for (;; r->epoch++) {
        yk_status status = train_epoch(r, &loss, &images_per_second);
        if (!status && (r->step == r->total || !r->set->save_every || cli_interrupted()))
            status = save_checkpoint(r);
        if (!status)
            status = save(r);
        if (!status && !cli_interrupted())
            status = end_epoch(r, loss, images_per_second);
        if (status || cli_interrupted() || r->step >= r->total)
            return status;
    }
}

/* How a run ended that was asked to; returns the exit code. */
static int interrupted(const run *r)
{
    printf("interrupted after step %" PRId64 " of %" PRId64 ", in epoch %" PRId64 "/%" PRId64 ", loss %.4f\n", r->step,
           r->total, r->epoch + 1, r->epochs, r->loss);
    if (!r->saver.manager || r->epochs == 0)
        return EXIT_SIGNAL + cli_interrupted();
    printf("saved a checkpoint of step %" PRId64 " in %s; --resume goes on from it\n", r->step, r->set->checkpoint);
    return cli_interrupted() == SIGINT ? EXIT_SIGNAL + SIGINT : EXIT_AGAIN;
}

/* Trains and says how it ended; returns the exit code. */
static int conduct(run *r)
{
    cli_catch_signals();
    yk_status status = train_epochs(r);
    progress_clear(&r->progress);
    if (!status)
        status = saver_finish(&r->saver);
    if (run_log_close(&r->log) || status)
        return cli_failed();
    if (r->set->save)
        printf("saved %s\n", r->set->save);
    if (cli_interrupted())
        return interrupted(r);
    if (!r->set->no_eval)
        printf("test accuracy %.4f\n", r->accuracy);
    return EXIT_DONE;
}

/* ---- making what a run needs ------------------------------------------------------------------------------------ */

static yk_loader *make_loader(const run *r, yk_dataset *set, yk_data_split split)
{
    const settings *s = r->set;
    enum { TEST_BATCH = 64 }; /* at least: small batches train better, but only cost time in a test */
    yk_loader_options options = {.batch_size = s->batch_size,
                                 .shuffle = split == YK_TRAIN && !s->no_shuffle,
                                 .workers = (int)s->workers,
                                 .seed = (uint64_t)s->seed,
                                 .dtype = r->dtype};
    if (split == YK_TEST && options.batch_size < TEST_BATCH)
        options.batch_size = TEST_BATCH;
    return yk_loader_create(set, &options);
}

/* The same classes in the same order, or the numbers of the labels would mean different things. */
static yk_status check_classes(yk_dataset *train, yk_dataset *test)
{
    int64_t classes = yk_dataset_classes(train);
    if (yk_dataset_classes(test) != classes)
        return yk_set_error(YK_ERR_FORMAT, "%s: %" PRId64 " classes to train but %" PRId64 " to test",
                            yk_dataset_name(train), classes, yk_dataset_classes(test));
    for (int64_t i = 0; i < classes; i++) {
        const char *a = yk_dataset_class_name(train, i), *b = yk_dataset_class_name(test, i);
        if (strcmp(a, b) != 0)
            return yk_set_error(YK_ERR_FORMAT, "%s: class %" PRId64 " is '%s' in training but '%s' in the test",
                                yk_dataset_name(train), i, a, b);
    }
    return YK_OK;
}

static yk_status open_data(run *r)
{
    const settings *s = r->set;
    r->train_set = yk_dataset_open(s->data, YK_TRAIN, yk_default_transform(s->data, YK_TRAIN, !s->no_augment));
    r->train = make_loader(r, r->train_set, YK_TRAIN);
    if (!r->train)
        return yk__error_code();
    int64_t length = yk_loader_length(r->train);
    r->epochs = s->epochs >= 0 ? s->epochs : s->steps ? (s->steps + length - 1) / length : 5;
    r->total = r->epochs * length;
    if (s->steps && s->steps < r->total) {
        r->total = s->steps;
        r->epochs = (s->steps + length - 1) / length;
    }
    if (s->no_eval)
        return YK_OK;
    r->test_set = yk_dataset_open(s->data, YK_TEST, yk_default_transform(s->data, YK_TEST, false));
    r->test = make_loader(r, r->test_set, YK_TEST);
    return r->test ? check_classes(r->train_set, r->test_set) : yk__error_code();
}

/* A network for images like the data set's first. */
static yk_module *make_model(const run *r)
{
    const settings *s = r->set;
    yk_scope scope = yk_scope_begin();
    yk_tensor *image = yk_dataset_get(r->train_set, 0, r->dtype, NULL);
    yk_module *model = NULL;
    if (image)
        model = yk_model_create(s->model,
                                &(yk_model_options){
                                    .in_channels = yk_size(image, 0),
                                    .image_size = yk_size(image, 1),
                                    .num_classes = s->num_classes ? s->num_classes : yk_dataset_classes(r->train_set),
                                });
    model = yk_module_to(yk_module_to_dtype(model, r->dtype), r->device);
    if (model && s->init) {
        if (yk_module_load_state_dict(model, yk_safetensors_load(s->init, r->device), NULL, NULL)) {
            if (!strstr(yk_last_error()->message, s->init))
                yk__error_prefix("%s", s->init);
            model = NULL;
        }
    }
    model = yk_scope_return_object(scope, model);
    yk_scope_end(scope);
    return model;
}

static yk_schedule *make_schedule(const run *r)
{
    const settings *s = r->set;
    yk_schedule *schedule = NULL;
    int64_t left = r->total > s->warmup ? r->total - s->warmup : 1;
    if (strcmp(s->schedule, "step") == 0)
        schedule = yk_step_lr(r->optimizer, s->step_size ? s->step_size * yk_loader_length(r->train) : (left + 2) / 3,
                              s->gamma);
    else if (strcmp(s->schedule, "cosine") == 0)
        schedule = yk_cosine_lr(r->optimizer, left, 0);
    return s->warmup ? yk_linear_warmup_lr(r->optimizer, s->warmup, 1.0 / (double)s->warmup, schedule) : schedule;
}

/* Fails now rather than after an hour of training. */
static yk_status check_save_path(const char *path)
{
    char *directory = path ? strdup(path) : NULL;
    if (!directory)
        return YK_OK;
    char *slash = strrchr(directory, '/');
    strcpy(slash ? slash + 1 : directory, slash ? "" : "."); /* "a/b" to "a/", "b" to "." */
    yk_status status = YK_OK;
    if (access(directory, W_OK | X_OK) != 0)
        status = yk__fail_errno("--save %s: no file can be written in %s", path, directory);
    free(directory);
    return status;
}

/* Device and data: what can only fail when the command line asks for something that is not there. */
static yk_status find(run *r)
{
    const settings *s = r->set;
    yk_manual_seed((uint64_t)s->seed);
    r->device = yk_device_local();
    yk_status status = yk_dtype_parse(s->dtype, &r->dtype);
    if (!status && strcmp(s->device, "auto") != 0)
        status = yk_device_parse(s->device, &r->device);
    if (!status && s->threads)
        status = yk_set_num_threads(r->device, (int)s->threads);
    if (!status)
        status = open_data(r);
    int64_t classes = yk_dataset_classes(r->train_set);
    if (!status && s->num_classes && s->num_classes < classes)
        status = yk_set_error(YK_ERR_ARGUMENT, "--num-classes %" PRId64 ": %s has %" PRId64 " classes", s->num_classes,
                              s->data, classes);
    return status;
}

/* The network and the optimizer. */
static yk_status build(run *r)
{
    const settings *s = r->set;
    r->accuracy = r->loss = NAN;
    r->model = make_model(r);
    r->optimizer = yk_sgd(yk_module_parameters(r->model), &(yk_sgd_options){.lr = s->lr == 0 ? YK_ZERO : s->lr,
                                                                            .momentum = s->momentum,
                                                                            .weight_decay = s->weight_decay});
    if (!r->optimizer)
        return yk__error_code();
    r->schedule = make_schedule(r);
    if (yk_last_error() || check_save_path(s->save))
        return yk__error_code();
    char device[16];
    printf("%s (%" PRId64 " parameters, %s) on %s (%" PRId64 " images, %" PRId64 " classes), batches of %" PRId64
           ", %s with %d threads\n",
           s->model, yk_module_parameter_count(r->model), s->dtype, s->data, yk_dataset_length(r->train_set),
           yk_dataset_classes(r->train_set), s->batch_size, yk_device_format(r->device, device),
           yk_get_num_threads(r->device));
    yk_status status = open_checkpoints(r);
    fflush(stdout);
    if (status)
        return status;
    return saver_resumed(&r->saver) ? run_log_resume(&r->log, s->log, r->dtype, r->step)
                                    : run_log_open(&r->log, s->log, r->dtype);
}

/* ---- the command line ------------------------------------------------------------------------------------------- */

static const char about[] =
    "Data sets: glyphs (built in), fashion-mnist, mnist, cifar10, image-folder. A DIR that is not given or not there\n"
    "is looked up under $YOKE_DATA.\n"
    "\n"
    "A bar (or a line every few seconds) goes to stderr, results go to stdout; its last line is the test accuracy.\n"
    "Ctrl-C ends the run after the step, saves where --save or --checkpoint is given, and exits with 130; a second "
    "one\n"
    "exits at once.\n"
    "\n"
    "--checkpoint keeps in DIR what --resume needs to go on, to the bit, in the middle of an epoch, after whatever "
    "ended\n"
    "the run; the same command line with --resume can be repeated until the run is done. SIGTERM and SIGUSR1 then "
    "save\n"
    "after the step and exit with 75: start me again.\n"
    "\n"
    "Exit codes: 0 done, 1 failed, 2 wrong usage, 75 saved and to be resumed, 128 + N ended by signal N.\n";

static const char examples[] = "  yoke train\n"
                               "  yoke train --model lenet --data fashion-mnist --batch-size 4 --lr 0.001 --epochs 10\n"
                               "  yoke train --model resnet18 --data cifar10 --batch-size 256 --lr 0.1 --weight-decay "
                               "1e-5 --save net.safetensors\n"
                               "  yoke train --model resnet18 --data cifar10 --checkpoint run1 --save-every 60s "
                               "--async-save --resume\n"
                               "  yoke train --model resnet18 --data cifar10 --init net.safetensors --epochs 0\n";

int cli_train(int argc, char **argv)
{
    settings s = {.model = "lenet",
                  .data = "glyphs",
                  .dtype = "f32",
                  .schedule = "none",
                  .device = "auto",
                  .epochs = -1,
                  .batch_size = 64,
                  .workers = 1,
                  .keep = 3,
                  .lr = 0.05,
                  .momentum = 0.9,
                  .gamma = 0.1};
    static const char *const dtypes[] = {"f32", "f64", NULL}, *const schedules[] = {"none", "step", "cosine", NULL};
    const double big = 1e15;
    const cli_option options[] = {
        {"model", "NAME", CLI_CHOICE, &s.model, "the network", .choices = yk_model_names()},
        {"data", "NAME[:DIR]", CLI_TEXT, &s.data, .help = "the data set"},
        {"dtype", "TYPE", CLI_CHOICE, &s.dtype, "numbers to compute with", .choices = dtypes},
        {"epochs", "N", CLI_INT, &s.epochs, "passes over the data; 0 only tests", .most = 1e9,
         .default_text = "5, or what --steps needs"},
        {"steps", "N", CLI_INT, &s.steps, "stop after this many steps in all", .least = 1, .most = big,
         .default_text = ""},
        {"batch-size", "N", CLI_INT, &s.batch_size, "images per step", .least = 1, .most = 1e6},
        {"lr", "X", CLI_REAL, &s.lr, .help = "learning rate of SGD"},
        {"momentum", "X", CLI_REAL, &s.momentum, .help = "momentum of SGD"},
        {"weight-decay", "X", CLI_REAL, &s.weight_decay, .help = "weight decay of SGD"},
        {"schedule", "NAME", CLI_CHOICE, &s.schedule, "how the learning rate falls", .choices = schedules},
        {"step-size", "N", CLI_INT, &s.step_size, "step: epochs until it falls", .least = 1, .most = 1e9,
         .default_text = "a third of the run"},
        {"gamma", "X", CLI_REAL, &s.gamma, .help = "step: the factor it falls by"},
        {"warmup", "N", CLI_INT, &s.warmup, "steps in which it first rises from 1/N of --lr", .most = 1e9},
        {"seed", "N", CLI_INT, &s.seed, "of initial weights, order and augmentation", .most = big},
        {"num-classes", "N", CLI_INT, &s.num_classes, "outputs of the network", .least = 1, .most = 1e9,
         .default_text = "the data set's classes"},
        {"device", "NAME", CLI_TEXT, &s.device, .help = "auto, cpu, cpu:1, ..."},
        {"threads", "N", CLI_INT, &s.threads, "threads of one operation", .least = 1, .most = 4096,
         .default_text = "the cores there are"},
        {"workers", "N", CLI_INT, &s.workers, "threads that read data; 0 reads between steps", .most = 1024},
        {"no-shuffle", NULL, CLI_FLAG, &s.no_shuffle, .help = "take the files' order"},
        {"no-augment", NULL, CLI_FLAG, &s.no_augment, .help = "leave out random crops and flips"},
        {"no-eval", NULL, CLI_FLAG, &s.no_eval, .help = "do not test"},
        {"allow-nan", NULL, CLI_FLAG, &s.allow_nan, .help = "go on when the loss is not a finite number"},
        {"init", "FILE", CLI_TEXT, &s.init, .help = "start from these weights (safetensors, torchvision's names)"},
        {"save", "FILE", CLI_TEXT, &s.save, .help = "write the weights after every epoch and at the end (safetensors)"},
        {"checkpoint", "DIR", CLI_TEXT, &s.checkpoint, .help = "save all state to DIR/step-N/, and at the end"},
        {"save-every", "N|Ns", CLI_TEXT, &s.save_every, .help = "checkpoint every N steps, or every N seconds",
         .default_text = "every epoch"},
        {"keep", "K", CLI_INT, &s.keep, "checkpoints that stay", .least = 1, .most = 1e6},
        {"resume", NULL, CLI_FLAG, &s.resume, .help = "go on from the newest checkpoint, if there is one"},
        {"async-save", NULL, CLI_FLAG, &s.async_save, .help = "train on while a checkpoint is written"},
        {"log", "FILE", CLI_TEXT, &s.log, .help = "write every step and test as a line of JSON"},
        {0},
    };
    const cli_verb verb = {"yoke train", "Trains a ready-made network on a data set and tests it after every epoch.",
                           about, examples, .options = options};
    int code;
    if (!cli_parse(&verb, argc, argv, &code))
        return code;
    int64_t world_size;
    if (yk__env_int("WORLD_SIZE", 1, 1, INT32_MAX, &world_size))
        return cli_failed();
    if (world_size > 1) { /* each would train for itself and write over the others' files */
        yk_set_error(YK_ERR_UNSUPPORTED,
                     "train: WORLD_SIZE is %" PRId64 ", but this yoke trains in one process; data-parallel training is "
                     "not there yet",
                     world_size);
        return cli_failed();
    }
    run r = {.set = &s};
    if (s.save_every && !saver_parse_every(&r.saver, s.save_every))
        return cli_usage_error(&verb, "--save-every %s: expected a number of steps (500) or of seconds (30s)",
                               s.save_every);
    if (!s.checkpoint && (s.save_every || s.resume || s.async_save))
        return cli_usage_error(&verb, "--%s needs --checkpoint DIR",
                               s.save_every ? "save-every"
                               : s.resume   ? "resume"
                                            : "async-save");
    if (s.checkpoint)
        cli_catch_signals_to_save();
    yk_scope program = yk_scope_begin();
    yk_status status = find(&r);
    if (status || build(&r)) {
        code = cli_failed();
        if (status == YK_ERR_ARGUMENT || status == YK_ERR_NOT_FOUND || status == YK_ERR_DEVICE)
            code = EXIT_USAGE;
    } else {
        code = conduct(&r);
    }
    yk_scope_end(program);
    return code;
}
