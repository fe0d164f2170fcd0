/*
 * train_build.c - what `yoke train` makes before it trains: data, network, optimizer, log, checkpoints. Layer: cli.
 */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <yoke/parallel.h>

#include "base/core.h"
#include "cli/ckpt/ckpt.h"
#include "cli/train/train.h"
#include "cli/train/train_text.h"

/* ---- when it ends ------------------------------------------------------------------------------------------------ */

/* A step takes --accumulate batches; the last one of an epoch may take fewer. */
static int64_t steps_of(const settings *s, int64_t batches)
{
    return (batches + s->accumulate - 1) / s->accumulate;
}

int64_t train_steps_left(const train_job *r)
{
    return steps_of(r->set, yk_loader_left(r->data.train));
}

/* When the run ends, counted from where it stands: `left` steps before the end of epoch r->course.epoch. */
static void plan(train_job *r, int64_t left)
{
    const settings *s = r->set;
    int64_t epochs = s->epochs >= 0 ? s->epochs : s->steps ? INT64_MAX : 5, beyond = s->steps - r->course.step - left;
    if (epochs != INT64_MAX)
        r->course.total = r->course.step + left + (epochs - 1 - r->course.epoch) * r->course.length;
    r->course.epochs = epochs;
    if (s->steps && (epochs == INT64_MAX || s->steps < r->course.total)) {
        r->course.total = s->steps;
        r->course.epochs = r->course.epoch + 1 + (beyond > 0 ? (beyond + r->course.length - 1) / r->course.length : 0);
    }
}

static yk_status open_data(train_job *r)
{
    yk_status status = train_open_data(r);
    if (status)
        return status;
    r->course.length = steps_of(r->set, yk_loader_length(r->data.train));
    plan(r, r->course.length);
    return YK_OK;
}

/* ---- the network ------------------------------------------------------------------------------------------------- */

/* Fails in one sentence where a file's weights are those of another network. */
static yk_status check_init(const train_job *r, const net_form *of)
{
    const net_form *form = &r->data.form;
    const char *file = r->set->init;
    if (!of->model)
        return YK_OK;
    if (strcmp(of->model, form->model) != 0)
        return yk_set_error(YK_ERR_ARGUMENT, "--init %s: its weights are of %s, and this run trains %s; add --model %s",
                            file, of->model, form->model, of->model);
    if (of->outputs != form->outputs)
        return yk_set_error(YK_ERR_ARGUMENT,
                            "--init %s: its network has %" PRId64 " outputs, and this run's has %" PRId64
                            ": the weights are for other classes",
                            file, of->outputs, form->outputs);
    bool sized = strcmp(form->model, "mlp") == 0 || strcmp(form->model, "lenet") == 0;
    if (of->channels != form->channels || (sized && (of->height != form->height || of->width != form->width)))
        return yk_set_error(YK_ERR_ARGUMENT,
                            "--init %s: its network is for inputs of %" PRId64 "x%" PRId64 "x%" PRId64
                            " (channels, height, width), and this run's is for %" PRId64 "x%" PRId64 "x%" PRId64
                            "; --image-size changes the last two",
                            file, of->channels, of->height, of->width, form->channels, form->height, form->width);
    return YK_OK;
}

static yk_status load_init(const train_job *r, yk_module *model)
{
    const char *file = r->set->init;
    net_form of = {0};
    yk_state_dict *weights = NULL;
    yk_status status = YK_OK;
    if (ckpt_is_folder(file))
        weights = ckpt_load_weights(file, r->device);
    else
        status = net_form_load(file, r->device, &of, &weights);
    status = status ? status : yk__error_code();
    if (!status)
        status = check_init(r, &of);
    bool text = train_is_text(r->set->data);
    if (!status && text && yk_gpt2_load_state_dict(model, weights)) {
        ckpt_name_file(file);
        yk__error_prefix("--init");
        status = yk__error_code();
    } else if (!status && !text && yk_module_load_state_dict(model, weights, NULL, NULL)) {
        ckpt_name_file(file);
        yk__error_prefix("--init: these weights do not fit %s with %" PRId64 " outputs", r->data.form.model,
                         r->data.form.outputs);
        status = yk__error_code();
    }
    net_form_clear(&of);
    return status;
}

/* A network for samples like the data set's first. */
static yk_module *make_network(const train_job *r)
{
    yk_scope scope = yk_scope_begin();
    yk_module *model = train_is_text(r->set->data) ? train_text_network(r) : net_form_network(&r->data.form);
    model = yk_module_to(yk_module_to_dtype(model, r->dtype), r->device);
    if (model && r->set->init && r->ranks.rank == 0 && load_init(r, model)) /* the others get it from here */
        model = NULL;
    model = yk_scope_return_object(scope, model);
    yk_scope_end(scope);
    return model;
}

static yk_optimizer *make_optimizer(const train_job *r)
{
    const settings *s = r->set;
    yk_parameters *parameters = yk_module_parameters(r->learner.net);
    if (strcmp(s->optimizer, "adam") == 0)
        return yk_adam(parameters, YK_OPTIONS(yk_adam_options, .lr = s->lr, .weight_decay = s->weight_decay));
    if (strcmp(s->optimizer, "adamw") == 0)
        return yk_adamw(parameters, YK_OPTIONS(yk_adam_options, .lr = s->lr, .weight_decay = s->weight_decay));
#define OTHER(kind)                                                                                                    \
    if (strcmp(s->optimizer, #kind) == 0)                                                                              \
        return yk_##kind(parameters, YK_OPTIONS(yk_##kind##_options, .lr = s->lr, .weight_decay = s->weight_decay));
    OTHER(rmsprop)
    OTHER(adagrad)
    OTHER(adadelta)
    OTHER(adamax)
    OTHER(nadam)
    OTHER(radam)
#undef OTHER
    return yk_sgd(parameters, YK_OPTIONS(yk_sgd_options, .lr = s->lr == 0 ? 0 : s->lr, .momentum = s->momentum,
                                         .weight_decay = s->weight_decay));
}

static yk_schedule *make_schedule(const train_job *r)
{
    const settings *s = r->set;
    yk_schedule *schedule = NULL;
    int64_t left = r->course.total > s->warmup ? r->course.total - s->warmup : 1;
    if (strcmp(s->schedule, "step") == 0)
        schedule =
            yk_step_lr(r->learner.optimizer, s->step_size ? s->step_size * r->course.length : (left + 2) / 3, s->gamma);
    else if (strcmp(s->schedule, "cosine") == 0)
        schedule = yk_cosine_lr(r->learner.optimizer, left, 0);
    return s->warmup ? yk_linear_warmup_lr(r->learner.optimizer, s->warmup, 1.0 / (double)s->warmup, schedule)
                     : schedule;
}

/* Fails now rather than after an hour of training. */
static yk_status check_save_path(const char *option, const char *path)
{
    struct stat about;
    if (path && stat(path, &about) == 0 && !S_ISREG(about.st_mode))
        return yk__fail(YK_ERR_IO, "--%s %s: %s", option, path,
                        S_ISDIR(about.st_mode) ? "it is a folder; give a file's name" : "it is not a regular file");
    char *directory = path ? strdup(path) : NULL;
    if (!directory)
        return YK_OK;
    char *slash = strrchr(directory, '/');
    strcpy(slash ? slash + 1 : directory, slash ? "" : "."); /* "a/b" to "a/", "b" to "." */
    yk_status status = YK_OK;
    if (access(directory, W_OK | X_OK) != 0)
        status = yk__fail_errno("--%s %s: no file can be written in %s", option, path, directory);
    free(directory);
    return status;
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------ */

/* The settings that make the schedule's length. The lengths themselves change with the number of processes. */
static const char *schedule_text(const settings *s, char text[96])
{
    bool whole_run = strcmp(s->schedule, "cosine") == 0 || (strcmp(s->schedule, "step") == 0 && !s->step_size);
    int n = snprintf(text, 96, "%s", s->schedule);
    if (whole_run && (s->epochs >= 0 || !s->steps))
        n += snprintf(text + n, 96 - (size_t)n, " over %" PRId64 " epochs", s->epochs >= 0 ? s->epochs : 5);
    if (whole_run && s->steps)
        snprintf(text + n, 96 - (size_t)n, "%s %" PRId64 " steps", s->epochs >= 0 ? ", at most" : " over", s->steps);
    return text;
}

/* Describes the settings that may not differ between the processes of one run. The loader's settings are compared by
 * the loader. */
static void describe_run(train_job *r)
{
    const settings *s = r->set;
    yk_metadata *to = r->saved.settings;
    snprintf(r->saved.seed, sizeof(r->saved.seed), "%" PRId64, s->seed);
    *to++ = (yk_metadata){"model", r->data.form.model};
    *to++ = (yk_metadata){"data", yk_dataset_name(r->data.train_set)};
    snprintf(r->saved.dtype_text, sizeof(r->saved.dtype_text), "%s%s%s", s->dtype,
             r->lower != r->dtype ? ", precision " : "", r->lower != r->dtype ? s->precision : "");
    *to++ = (yk_metadata){"dtype", r->saved.dtype_text};
    *to++ = (yk_metadata){"seed", r->saved.seed};
    *to++ = (yk_metadata){"lr", yk__number_format(s->lr, r->saved.lr)};
    *to++ = (yk_metadata){"momentum", yk__number_format(s->momentum, r->saved.momentum)};
    *to++ = (yk_metadata){"weight-decay", yk__number_format(s->weight_decay, r->saved.weight_decay)};
    *to++ = (yk_metadata){"augmentation", s->no_augment ? "off" : "on"};
    *to++ = (yk_metadata){"schedule", schedule_text(s, r->saved.schedule_text)};
    if (train_is_text(s->data)) {
        const yk_gpt2_options *o = &r->data.gpt2;
        snprintf(r->saved.size_text, sizeof(r->saved.size_text), "%" PRId64 " layers, %" PRId64 ", %" PRId64 " heads",
                 o->n_layer, o->n_embd, o->n_head);
        *to++ = (yk_metadata){"network", r->saved.size_text};
    }
    /* Runs of older versions know no sizes of pictures: it counts where it was asked for. */
    if (s->image_height > 0) {
        snprintf(r->saved.size_text, sizeof(r->saved.size_text), "%" PRId64 "x%" PRId64, s->image_height,
                 s->image_width);
        *to++ = (yk_metadata){"image-size", r->saved.size_text};
    }
    if (s->rand_augment >= 0) { /* likewise */
        snprintf(r->saved.rand_augment, sizeof(r->saved.rand_augment), "%" PRId64 ", %" PRId64 " operations",
                 s->rand_augment, s->rand_augment_ops);
        *to++ = (yk_metadata){"rand-augment", r->saved.rand_augment};
    }
    if (s->mixup > 0)
        *to++ = (yk_metadata){"mixup", yk__number_format(s->mixup, r->saved.mixup)};
    if (s->cutmix > 0)
        *to++ = (yk_metadata){"cutmix", yk__number_format(s->cutmix, r->saved.cutmix)};
}

__attribute__((format(printf, 2, 3))) static void add_line(char lines[RANKS_LINES], const char *format, ...)
{
    size_t n = strlen(lines);
    va_list list;
    va_start(list, format);
    vsnprintf(lines + n, RANKS_LINES - n, format, list);
    va_end(list);
}

static void add_flag(char lines[RANKS_LINES], const char *name, bool given)
{
    add_line(lines, "%s--%s\n", given ? "" : "no ", name);
}

static void add_data(char lines[RANKS_LINES], const char *what, yk_dataset *set)
{
    int64_t classes = yk_dataset_classes(set);
    const char *first = yk_dataset_class_name(set, 0), *last = yk_dataset_class_name(set, classes - 1);
    add_line(lines, "%" PRId64 " images to %s, of %" PRId64 " classes", yk_dataset_length(set), what, classes);
    if (first && last)
        add_line(lines, " from '%.100s' to '%.100s'", first, last);
    add_line(lines, "\n");
}

/* Ranks that learn other things in another way are an error, not a strange result. Each command line was typed on its
 * own host, and each host has its own copy of the data. */
static void list_settings(const train_job *r, char lines[RANKS_LINES])
{
    const settings *s = r->set;
    char number[YK__NUMBER_ROOM];
    *lines = '\0';
    const struct {
        const char *name;
        int64_t value;
    } integers[] = {
        {"epochs", s->epochs},           {"steps", s->steps},           {"batch-size", s->batch_size},
        {"accumulate", s->accumulate},   {"step-size", s->step_size},   {"warmup", s->warmup},
        {"num-classes", s->num_classes}, {"early-stop", s->early_stop}, {"virtual-ranks", r->learner.shards}};
    const struct {
        const char *name;
        bool given;
    } flags[] = {{"sync-bn", s->sync_bn},       {"no-shuffle", s->no_shuffle},
                 {"no-eval", s->no_eval},       {"allow-nan", s->allow_nan},
                 {"checkpoint", s->checkpoint}, {"resume", s->resume},
                 {"async-save", s->async_save}, {"sharded-save", s->sharded_save},
                 {"no-graph", s->no_graph},     {"save-best", s->save_best},
                 {"confusion", s->confusion},   {"balance", s->balance},
                 {"elastic", s->elastic},       {"trace", s->trace}};
    add_line(lines, "--optimizer %s\n", s->optimizer);
    add_line(lines, "%s as its --device\n", r->device.type == YK_CPU ? "a CPU" : "a GPU");
    for (const yk_metadata *m = r->saved.settings; m->key; m++)
        add_line(lines, strcmp(m->key, "augmentation") == 0 ? "%s %s\n" : "--%s %s\n", m->key, m->value);
    add_line(lines, "--gamma %s\n", yk__number_format(s->gamma, number));
    for (size_t i = 0; i < sizeof(integers) / sizeof(*integers); i++) {
        if (integers[i].value > 0 || (i == 0 && s->epochs == 0))
            add_line(lines, "--%s %" PRId64 "\n", integers[i].name, integers[i].value);
        else
            add_line(lines, "no --%s\n", integers[i].name);
    }
    for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++)
        add_flag(lines, flags[i].name, flags[i].given);
    add_line(lines, "--save-every %s\n", s->save_every ? s->save_every : "epoch");
    add_data(lines, "train on", r->data.train_set);
    if (r->data.test_set)
        add_data(lines, "test on", r->data.test_set);
}

/* Opens --checkpoint; with --resume the run stands where its newest checkpoint was saved. */
static yk_status open_checkpoints(train_job *r)
{
    const settings *s = r->set;
    if (!s->checkpoint)
        return YK_OK;
    const yk_checkpoint_value values[] = {
        {"loss", &r->scores.loss}, {"loss_sum", &r->scores.loss_sum}, {"loss_samples", &r->scores.seen}, {0}};
    const yk_checkpoint_value best[] = {{"best_accuracy", &r->scores.best.accuracy},
                                        {"best_loss", &r->scores.best.loss},
                                        {"best_epoch", &r->scores.best.epoch},
                                        {0}};
    memcpy(r->saved.values, values, sizeof(values));
    memcpy(r->saved.best_values, best, sizeof(best));
    r->saved.state = (yk_checkpoint_state){.model = r->learner.net,
                                           .optimizer = r->learner.optimizer,
                                           .schedule = r->learner.schedule,
                                           .scaler = r->learner.scaler,
                                           .loader = r->data.train,
                                           .settings = r->saved.settings,
                                           .accumulate = s->accumulate,
                                           .values = r->saved.values,
                                           .optional_values = r->saved.best_values};
    if (r->learner.elastic && yk_elastic_describe(r->learner.elastic, &r->saved.state))
        return yk__error_code();
    r->saved.saver.state = &r->saved.state;
    bool grouped = r->ranks.world > 1 || r->members.survives;
    yk_checkpoint_manager_options options = *YK_OPTIONS(yk_checkpoint_manager_options, .async = s->async_save,
                                                        .group = grouped ? yk_default_process_group() : NULL,
                                                        .sharded = s->sharded_save, .state = &r->saved.state);
    if (s->keep)
        options.keep = (int)s->keep;
    if (yk_elastic_joined(r->learner.elastic)) {
        saver_join(&r->saved.saver, s->checkpoint, &options);
        r->saved.saver.saved = r->members.own.saved;
        return YK_OK;
    }
    yk_status status = saver_open(&r->saved.saver, s->checkpoint, &options, s->resume);
    if (status || !saver_resumed(&r->saved.saver))
        return status;
    r->course.resumed = true;
    r->course.epoch = r->saved.state.epoch;
    r->course.step = r->saved.state.step;
    plan(r, train_steps_left(r)); /* with another batch size or number of processes the epochs have other lengths */
    if (r->course.step > r->course.total && r->course.epochs)
        return yk_set_error(YK_ERR_ARGUMENT,
                            "--resume: the checkpoint is at step %" PRId64 ", and this run is to end at step %" PRId64,
                            r->course.step, r->course.total);
    return YK_OK;
}

/* ---- all of it -------------------------------------------------------------------------------------------------- */

yk_status train_find(train_job *r)
{
    const settings *s = r->set;
    yk_manual_seed((uint64_t)s->seed);
    r->learner.shards = s->virtual_ranks ? (int)s->virtual_ranks : r->ranks.world;
    if (r->learner.shards < r->ranks.world)
        return yk_set_error(YK_ERR_ARGUMENT,
                            "--virtual-ranks %d: there are %d processes, each of which computes a virtual rank at "
                            "least; start %d or fewer, or give --virtual-ranks %d or more",
                            r->learner.shards, r->ranks.world, r->learner.shards, r->ranks.world);
    yk_status status = yk_dtype_parse(s->dtype, &r->dtype);
    r->lower = strcmp(s->precision, "bf16") == 0 ? YK_BF16 : strcmp(s->precision, "fp16") == 0 ? YK_F16 : r->dtype;
    if (!status)
        status = cli_device(s->device, &r->device);
    if (!status && s->threads)
        status = yk_set_num_threads(r->device, (int)s->threads);
    if (!status)
        status = open_data(r);
    int64_t classes = yk_dataset_classes(r->data.train_set);
    if (!status && s->num_classes && s->num_classes < classes)
        status = yk_set_error(YK_ERR_ARGUMENT, "--num-classes %" PRId64 ": %s has %" PRId64 " classes", s->num_classes,
                              s->data, classes);
    return status;
}

static yk_status make_model(train_job *r, const char *alike)
{
    const settings *s = r->set;
    bool plain = !train_is_virtual(r);
    r->learner.net = make_network(r);
    if (s->sync_bn)
        r->learner.net = yk_convert_sync_batch_norm(r->learner.net, NULL);
    r->learner.model = plain ? yk_ddp(r->learner.net, NULL) : r->learner.net;
    r->learner.optimizer = make_optimizer(r);
    if (r->lower == YK_F16)
        r->learner.scaler = yk_grad_scaler_create(NULL);
    /* All ranks have the same gradients. On a CPU, where it costs little, that is checked. */
    if (r->learner.scaler && r->ranks.world > 1 && r->device.type == YK_CPU &&
        yk_grad_scaler_set_group(r->learner.scaler, yk_default_process_group()))
        return yk__error_code();
    if (!r->learner.model || !r->learner.optimizer)
        return yk__error_code();
    r->learner.schedule = make_schedule(r);
    return yk_last_error() || plain ? yk__error_code() : train_members_make(r, alike);
}

static void introduce(const train_job *r)
{
    const settings *s = r->set;
    char device[16], batch[64], processes[96] = "", cores[32] = "";
    int threads = yk_get_num_threads(r->device);
    snprintf(batch, sizeof(batch), "%" PRId64, s->batch_size);
    if (s->accumulate > 1)
        snprintf(batch, sizeof(batch), "%" PRId64 " x %" PRId64, s->accumulate, s->batch_size);
    if (r->learner.elastic)
        snprintf(processes, sizeof(processes), " in each of %d virtual ranks on %d process%s", r->learner.shards,
                 r->ranks.world, r->ranks.world == 1 ? "" : "es");
    else if (r->ranks.world > 1)
        snprintf(processes, sizeof(processes), " in each of %d processes", r->ranks.world);
    if (r->device.type == YK_CPU)
        snprintf(cores, sizeof(cores), " with %d thread%s", threads, threads == 1 ? "" : "s");
    if (train_is_text(s->data))
        train_say(r,
                  "%s (%" PRId64 " parameters, %s) on %s (%" PRId64 " blocks of %" PRId64 ", %" PRId64 " tokens in the "
                  "vocabulary), batches of %s%s, %s%s\n",
                  s->model, yk_module_parameter_count(r->learner.net), r->saved.dtype_text, s->data,
                  yk_dataset_length(r->data.train_set), r->data.gpt2.n_positions, r->data.gpt2.vocab_size, batch,
                  processes, yk_device_format(r->device, device), cores);
    else
        train_say(
            r, "%s (%" PRId64 " parameters, %s) on %s (%" PRId64 " %s, %" PRId64 " classes), batches of %s%s, %s%s\n",
            s->model, yk_module_parameter_count(r->learner.net), r->saved.dtype_text, s->data,
            yk_dataset_length(r->data.train_set), r->data.form.fit == FORM_ROW ? "rows" : "images",
            yk_dataset_classes(r->data.train_set), batch, processes, yk_device_format(r->device, device), cores);
    if (yk_elastic_idle(r->learner.elastic) > 0)
        train_say(r,
                  "%d virtual ranks do not divide by %d processes: %.0f%% of their time is waited; none is where the "
                  "processes divide them\n",
                  r->learner.shards, r->ranks.world, 100 * yk_elastic_idle(r->learner.elastic));
    if (s->recipe)
        train_say(r, "%s\n", s->recipe);
}

/* All ranks know how many lines the log has. */
static yk_status count_lines(train_job *r)
{
    double lines[] = {r->ranks.rank == 0 ? (double)r->display.log.lines : 0};
    yk_status status = ranks_sum(&r->ranks, lines, 1);
    if (!status && r->ranks.world > 1)
        r->display.log.lines = (int64_t)lines[0];
    return status;
}

static yk_status open_log(train_job *r, const char *log)
{
    run_log *to = &r->display.log;
    yk_status status = saver_resumed(&r->saved.saver) ? run_log_resume(to, log, r->dtype, r->course.step)
                                                      : run_log_open(to, log, r->dtype);
    if (status)
        yk__error_prefix("--log");
    to->at_once = r->members.survives;
    if (yk_elastic_joined(r->learner.elastic))
        to->lines = r->members.own.lines;
    else if (!status && r->members.survives)
        status = train_together(r, TIME_SAVING, count_lines);
    return status;
}

yk_status train_build(train_job *r)
{
    const settings *s = r->set;
    bool writes = r->ranks.rank == 0; /* it alone writes files */
    const char *log = writes ? s->log : NULL;
    r->scores.accuracy = r->scores.top5 = r->scores.loss = NAN;
    r->scores.best = (train_best){NAN, NAN, -1};
    char alike[RANKS_LINES];
    describe_run(r);
    list_settings(r, alike);
    if (ranks_compare(&r->ranks, alike) || make_model(r, alike) || check_save_path("save", writes ? s->save : NULL) ||
        check_save_path("save-best", writes ? s->save_best : NULL))
        return yk__error_code();
    if (train_members_left(r)) /* before it was one: no more than this process's end is to come */
        return YK_OK;
    introduce(r);
    bool joined = yk_elastic_joined(r->learner.elastic);
    yk_status status = joined ? open_checkpoints(r) : train_together(r, TIME_SAVING, open_checkpoints);
    if (!status)
        status = train_queue_create(r);
    fflush(stdout);
    return status ? status : open_log(r, log);
}
