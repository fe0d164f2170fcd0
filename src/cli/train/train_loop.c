/*
 * train_loop.c - `yoke train` at work: steps, epochs, tests. Layer: cli.
 *
 * The longest example of a training program: apart from the bar, the log and the sums over the ranks it uses nothing
 * but the public headers. On several ranks all make the same calls in the same order; rank 0 alone prints.
 */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <yoke/parallel.h>

#include "base/core.h"
#include "cli/options.h"
#include "cli/train/train.h"
#include "cli/train/train_text.h"
#include "elastic/leaf_tree.h"

void train_say(const train_job *r, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (r->ranks.rank == 0)
        vprintf(format, list);
    va_end(list);
}

static bool stopped(const train_job *r)
{
    return ranks_stop(&r->ranks) != 0;
}

/* The log reaches its file first: a run that goes on from here continues after this step's line. */
static yk_status save_checkpoint(train_job *r)
{
    r->saved.state.epoch = r->course.epoch;
    r->saved.state.step = r->course.step;
    run_log_flush(&r->display.log);
    return saver_save(&r->saved.saver);
}

/* ---- training --------------------------------------------------------------------------------------------------- */

yk_tensor *train_loss(const train_job *r, yk_module *model, yk_tensor *input, yk_tensor *target, yk_tensor **output)
{
    yk_autocast_options options = *YK_OPTIONS(yk_autocast_options, .enabled = r->lower != r->dtype);
    yk_autocast before = yk_autocast_begin((yk_device_type)r->device.type, r->lower, &options);
    *output = train_text_flat(yk_forward(model, input), true);
    yk_tensor *loss = yk_cross_entropy(*output, train_text_flat(target, false), NULL);
    yk_autocast_end(before);
    return loss;
}

/* Forward and backward of one of a step's `parts` batches: the gradients are of the mean over them. */
static yk_status train_batch(train_job *r, const yk_batch *batch, int64_t parts)
{
    yk_tensor *output, *input = yk_to(batch->input, r->device), *target = yk_to(batch->target, r->device);
    yk_tensor *loss = train_loss(r, r->learner.model, input, target, &output);
    if (!loss)
        return yk__error_code();
    r->scores.loss += yk_item(loss) / (double)parts;
    if (parts != 1)
        loss = yk_mul_scalar(loss, 1.0 / (double)parts);
    return yk_backward(r->learner.scaler ? yk_grad_scaler_scale(r->learner.scaler, loss) : loss);
}

/* All batches of a step, the first of which was taken. Only the last one's backward goes over the ranks. */
static yk_status train_batches(train_job *r, yk_batch *batch, int64_t *samples)
{
    int64_t left = yk_loader_left(r->data.train), more = r->set->accumulate - 1,
            parts = 1 + (left < more ? left : more);
    yk_status status = YK_OK;
    r->scores.loss = 0;
    for (int64_t part = 0; part < parts && !status; part++) {
        if (part > 0 && !yk_loader_next(r->data.train, batch))
            return yk__error_code();
        bool alone = part < parts - 1, before = alone && yk_no_sync_begin(r->learner.model);
        yk_scope scope = yk_scope_begin();
        status = train_batch(r, batch, parts);
        yk_scope_end(scope);
        if (alone)
            yk_no_sync_end(r->learner.model, before);
        *samples += batch->count * r->ranks.world;
    }
    return status;
}

yk_status train_not_finite(const train_job *r, double loss, int64_t step, double lr)
{
    return yk_set_error(YK_ERR_NUMERIC,
                        "the loss is %s at step %" PRId64 " (epoch %" PRId64
                        ", learning rate %g); this step was not taken. Lower --lr, or go on with --allow-nan",
                        isnan(loss) ? "NaN" : "infinite", step, r->course.epoch + 1, lr);
}

/* The flags that the processes raise in a step of virtual ranks: rank 0's clock is that of all, and a signal that one
 * has got is for all. */
enum { FLAG_LATE = 1, FLAG_INTERRUPT = 2, FLAG_SAVE = 4, FLAG_TERMINATE = 8 };

static void raise_flags(const train_job *r)
{
    int caught = cli_interrupted();
    yk_elastic_raise_flags(r->learner.elastic, (r->ranks.rank == 0 && saver_late(&r->saved.saver) ? FLAG_LATE : 0) |
                                                   (caught == SIGINT    ? FLAG_INTERRUPT
                                                    : caught == SIGUSR1 ? FLAG_SAVE
                                                    : caught == SIGTERM ? FLAG_TERMINATE
                                                                        : 0));
}

static void take_flags(train_job *r)
{
    uint32_t flags = yk_elastic_flags(r->learner.elastic);
    r->saved.saver.late = (flags & FLAG_LATE) != 0;
    if (!r->ranks.stop)
        r->ranks.stop = flags & FLAG_INTERRUPT   ? SIGINT
                        : flags & FLAG_TERMINATE ? SIGTERM
                        : flags & FLAG_SAVE      ? SIGUSR1
                                                 : 0;
}

/* The batches of a step's virtual ranks, as far as they are this process's. r->scores.loss is then that of all. */
static yk_status train_shards(train_job *r, yk_batch *batch, int64_t *samples)
{
    yk_status status = YK_OK;
    int64_t own = 0;
    while (!status && (raise_flags(r), yk_elastic_next(r->learner.elastic, batch))) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *output, *input = yk_to(batch->input, r->device), *target = yk_to(batch->target, r->device);
        status = yk_elastic_backward(r->learner.elastic, train_loss(r, r->learner.model, input, target, &output));
        yk_scope_end(scope);
        own += batch->count;
    }
    *samples = own / yk_elastic_count(r->learner.elastic) * r->learner.shards; /* equally many of each */
    r->scores.loss = yk_elastic_loss(r->learner.elastic);
    return status ? status : yk__error_code();
}

/* The rest of a step whose gradients are there. */
static yk_status update_parameters(train_job *r)
{
    if (r->learner.elastic)
        return yk_elastic_step(r->learner.elastic);
    yk_status status = r->learner.scaler ? yk_grad_scaler_step(r->learner.scaler, r->learner.optimizer, NULL)
                                         : yk_optimizer_step(r->learner.optimizer);
    if (!status && r->learner.scaler)
        status = yk_grad_scaler_update(r->learner.scaler);
    if (r->learner.schedule)
        yk_schedule_step(r->learner.schedule);
    return status;
}

static yk_status train_step(train_job *r, yk_batch *batch, int64_t *samples)
{
    if (!r->learner.elastic)
        yk_optimizer_zero_grad(r->learner.optimizer);
    yk_status status = (r->learner.elastic ? train_shards : train_batches)(r, batch, samples);
    double sums[] = {r->scores.loss,
                     r->ranks.rank == 0 && saver_late(&r->saved.saver)}; /* rank 0's clock is that of all */
    if (!status && !r->learner.elastic)
        status = ranks_sum(&r->ranks, sums, 2);
    if (status)
        return status;
    if (r->learner.elastic) {
        take_flags(r);
    } else {
        r->scores.loss = sums[0] / r->ranks.world;
        r->saved.saver.late = sums[1] > 0;
    }
    if (!isfinite(r->scores.loss) && !r->set->allow_nan)
        return train_not_finite(r, r->scores.loss, r->course.step + 1, yk_optimizer_lr(r->learner.optimizer, 0));
    return update_parameters(r);
}

/* Counts a step whose loss is known, and logs it. */
static yk_status note_step(train_job *r, int64_t samples, double seconds)
{
    r->scores.loss_sum += r->scores.loss * (double)samples;
    r->scores.seen += (double)samples;
    loss_plot_step(&r->display.plot, r->course.step, r->scores.loss);
    train_board_step(r, r->course.step, r->scores.loss);
    yk_progress_loss(r->scores.loss, samples / r->ranks.world);
    return run_log_step(&r->display.log, r->course.epoch, r->course.step, r->scores.loss, (double)samples / seconds);
}

/* One step, with all that comes after it. `before` is when the last one ended. */
static yk_status step_and_report(train_job *r, yk_batch *batch, double *before)
{
    int64_t samples = 0;
    yk_scope scope = yk_scope_begin();
    yk_status status = (r->queue ? train_queue_step : train_step)(r, batch, &samples);
    yk_scope_end(scope);
    if (status)
        return status;
    r->course.step++;
    r->saved.state.step = r->course.step;
    double now = yk__now();
    if (!r->queue)
        status = note_step(r, samples, now - *before);
    else if (train_queue_is_due(r))
        status = train_queue_read(r);
    *before = now;
    if (status)
        return status;
    progress_step(&r->display.progress, r->scores.loss, samples);
    r->course.due = saver_due(&r->saved.saver);
    return YK_OK;
}

/* Saves where the step before asked for it. */
static yk_status save_due(train_job *r)
{
    yk_status status = r->course.due ? train_together(r, TIME_SAVING, save_checkpoint) : YK_OK;
    r->course.due = false;
    return status;
}

/* Reads the losses that are still on the device. What failed first stands: a loss that is not finite is of a step
 * before the one that failed otherwise. */
static yk_status read_rest(train_job *r, yk_status failed)
{
    yk_error before;
    yk__error_take(&before);
    yk_status status = train_queue_read(r);
    if (!failed || status == YK_ERR_NUMERIC)
        return status;
    yk_clear_error();
    yk__error_put(&before);
    return failed;
}

/* Goes on to the next step: its first batch, or that there is one where virtual ranks take the batches. */
static bool step_begins(train_job *r, yk_batch *batch)
{
    return r->learner.elastic ? train_members_begin(r) : yk_loader_next(r->data.train, batch);
}

/* Trains for an epoch. Ends early when the run's steps are done or it is interrupted. */
static yk_status train_epoch(train_job *r)
{
    train_epoch_result *result = &r->course.result;
    if (!r->course.resumed) {
        yk_loader_start(r->data.train, r->course.epoch);
        r->scores.loss_sum = r->scores.seen = 0;
    }
    r->course.resumed = false;
    double begun = yk__now(), before = begun, seen = r->scores.seen;
    yk_batch batch;
    int64_t taken = yk_loader_get_state(r->data.train).batch / r->set->accumulate;
    train_spent(r, -1);
    if (r->queue)
        train_queue_begin(r);
    *result = (train_epoch_result){NAN, NAN, NAN};
    progress_epoch(&r->display.progress, r->course.epoch, taken + train_steps_left(r), taken);
    yk_status status = YK_OK;
    while (!status && !(status = save_due(r)) && r->course.step < r->course.total && !stopped(r) &&
           step_begins(r, &batch)) {
        status = step_and_report(r, &batch, &before);
        if (status) {
            status = train_members_recover(r, status);
            continue;
        }
        train_spent(r, TIME_STEPS);
        status = train_members_stepped(r);
    }
    status = status ? status : yk__error_code();
    if (r->queue)
        status = read_rest(r, status);
    if (status)
        return status;
    before = r->queue ? yk__now() : before;
    result->loss = r->scores.loss_sum / r->scores.seen;
    result->images_per_second = before > begun ? (r->scores.seen - seen) / (before - begun) : NAN;
    return YK_OK;
}

/* ---- testing ---------------------------------------------------------------------------------------------------- */

enum { TEST_SUMS = 4 };

/* A part of the test: the sum of its samples' losses, how many the network gets right, how many they are, how many have
 * their class among the five likeliest. `argument`: room for the sums of all parts. On a device that carries work out
 * later all but the third are summed there, and read once. */
static void test_part(train_job *r, yk_loader *part, int number, void *argument)
{
    double *sums = (double *)argument + (size_t)number * TEST_SUMS;
    yk_batch batch;
    if (r->queue && train_eval_begin(r))
        return;
    yk_loader_start(part, 0);
    while (!yk_last_error() && !cli_interrupted() && yk_loader_next(part, &batch)) {
        yk_scope scope = yk_scope_begin();
        if (r->queue) {
            (void)train_eval_batch(r, &batch); /* the record ends the loop */
        } else {
            yk_tensor *output, *target = yk_to(batch.target, r->device);
            yk_tensor *loss = train_loss(r, r->learner.net, yk_to(batch.input, r->device), target, &output);
            sums[0] += yk_item(loss) * (double)batch.count;
            target = train_text_flat(target, false); /* of a block the share of tokens counts */
            double parts = (double)yk_numel(target) / (double)batch.count;
            sums[1] += (double)yk_item_i64(yk_sum(yk_eq(yk_argmax(output, 1, false), target))) / parts;
            if (train_has_top5(r))
                sums[3] += (double)yk_item_i64(train_count_top5(output, target));
        }
        sums[2] += (double)batch.count;
        yk_scope_end(scope);
        progress_other(&r->display.progress, "test", batch.index + 1, yk_loader_length(part));
    }
    if (r->queue && !yk_last_error())
        train_eval_read(r, &sums[0], &sums[1], &sums[3]);
}

/* Adds the sums of all parts, in the order in which as many ranks as parts would. */
static yk_status add_parts(train_job *r, double *all, double sums[TEST_SUMS])
{
    int parts = r->learner.shards;
    double *column = yk__calloc((size_t)parts, sizeof(*column)), signals[1] = {0};
    yk_status status = column ? ranks_sum_list(&r->ranks, all, (int64_t)parts * TEST_SUMS) : YK_ERR_MEMORY;
    if (!status) /* a signal that one has got in the test is known to all */
        status = ranks_sum(&r->ranks, signals, 1);
    for (int i = 0; i < TEST_SUMS && !status; i++) {
        for (int p = 0; p < parts; p++)
            column[p] = all[p * TEST_SUMS + i];
        sums[i] = yk__leaves_sum(column, parts);
    }
    free(column);
    return status;
}

/* Writes the mean loss over the test set, and to r the shares of it that the network gets right. Each rank tests a
 * part, or those of its virtual ranks; every image is in one part. */
static yk_status test_network(train_job *r, double *mean_loss)
{
    double sums[TEST_SUMS] = {0}, *all = yk__calloc((size_t)r->learner.shards * TEST_SUMS, sizeof(*all));
    yk_status status = all ? ranks_broadcast_buffers(&r->ranks, r->learner.net) : YK_ERR_MEMORY;
    if (status) {
        free(all);
        return status;
    }
    bool recording = yk_no_grad_begin();
    yk_module_eval(r->learner.net);
    train_test_parts(r, test_part, all);
    yk_module_train(r->learner.net, true);
    yk_no_grad_end(recording);
    status = yk__error_code();
    if (!status)
        status = add_parts(r, all, sums);
    free(all);
    *mean_loss = sums[0] / sums[2];
    r->scores.accuracy = sums[1] / sums[2];
    r->scores.top5 = train_has_top5(r) ? sums[3] / sums[2] : NAN;
    return status;
}

/* ---- the run ---------------------------------------------------------------------------------------------------- */

static yk_status save_weights(train_job *r)
{
    if (!r->set->save || r->ranks.rank != 0)
        return YK_OK;
    if (train_is_text(r->set->data))
        return train_text_save(r->set->save, r->learner.net, &r->data.gpt2, r->set->tokenizer);
    return net_form_save(r->set->save, r->learner.net, &r->data.form);
}

/* The name of the samples that are counted by the second. */
static const char *unit_of(const train_job *r)
{
    return train_is_text(r->set->data) ? "samples" : train_is_csv(r->set->data) ? "rows" : "images";
}

/* Prints the losses and the speed of an epoch, once. */
static void say_epoch(train_job *r, bool tested)
{
    double train_loss = r->course.result.loss, test_loss = r->course.result.test_loss,
           images_per_second = r->course.result.images_per_second;
    if (r->members.said == r->course.epoch + 1)
        return;
    r->members.said = r->course.epoch + 1;
    train_say(r, "epoch %" PRId64 "/%" PRId64 "  train loss %.4f", r->course.epoch + 1, r->course.epochs,
              printed(train_loss));
    if (tested)
        train_say(r, "  test loss %.4f  test accuracy %.4f", printed(test_loss), r->scores.accuracy);
    if (images_per_second > 0) /* of a run that went on at the end of the epoch there is no rate */
        train_say(r, "  %.0f %s/s", images_per_second, unit_of(r));
    train_say(r, "\n");
    fflush(stdout);
}

/* The epoch as a line of the log, with what was tested. */
static yk_status log_epoch(train_job *r)
{
    const train_epoch_result *of = &r->course.result;
    yk_status status = YK_OK;
    if (!r->set->no_eval)
        status = run_log_eval(&r->display.log, r->course.epoch, of->test_loss, r->scores.accuracy);
    const run_log_epoch_line line = {.epoch = r->course.epoch,
                                     .step = r->course.step,
                                     .train_loss = of->loss,
                                     .test_loss = of->test_loss,
                                     .accuracy = r->scores.accuracy,
                                     .top5 = r->scores.top5,
                                     .lr = yk_optimizer_lr(r->learner.optimizer, 0),
                                     .samples_per_second = of->images_per_second,
                                     .seconds = yk__now() - r->course.begun};
    return status ? status : run_log_epoch(&r->display.log, &line);
}

/* Tests after the epoch, and says how the run stands. Nothing is said when the test is interrupted. */
static yk_status end_epoch(train_job *r)
{
    train_epoch_result *of = &r->course.result;
    of->test_loss = NAN;
    yk_status status = r->set->no_eval ? YK_OK : test_network(r, &of->test_loss);
    progress_clear(&r->display.progress);
    if (status || stopped(r))
        return status;
    say_epoch(r, !r->set->no_eval);
    train_board_epoch(r, of->test_loss, of->images_per_second);
    status = log_epoch(r);
    return status || r->set->no_eval ? status : train_note_test(r, of->test_loss);
}

/* A run without training tests once, and then what is written. */
static yk_status only_test(train_job *r)
{
    double loss = NAN;
    yk_status status = save_weights(r);
    if (!status && !r->set->no_eval)
        status = test_network(r, &loss);
    if (!status && !r->set->no_eval && !stopped(r))
        status = train_note_test(r, loss);
    return status;
}

/* Prints the result at the end of all epochs. */
static void conclude(train_job *r)
{
    progress_clear(&r->display.progress);
    if (r->ranks.rank == 0)
        loss_plot_draw(&r->display.plot);
    if (!r->set->no_eval)
        train_tell_chance(r, r->course.result.test_loss);
}

static yk_status save_all(train_job *r)
{
    bool due = r->course.step == r->course.total || !r->set->save_every || stopped(r);
    yk_status status = due ? save_checkpoint(r) : YK_OK;
    return status ? status : save_weights(r);
}

static yk_status train_epochs(train_job *r)
{
    r->course.result = (train_epoch_result){NAN, NAN, NAN};
    progress_begin(&r->display.progress, r->course.epochs, r->course.total);
    r->display.progress.unit = unit_of(r);
    progress_resume(&r->display.progress, r->course.step);
    r->display.progress.silent = r->ranks.rank != 0;
    if (r->course.epochs == 0)
        return train_together(r, TIME_TESTS, only_test);
    /* A run that goes on at the end of an epoch has still to test; at the end of the last one that is all. */
    for (;; r->course.epoch++) {
        yk_status status = train_epoch(r);
        bool trained = !status;
        if (train_members_left(r))
            return status;
        if (!status)
            status = train_together(r, TIME_SAVING, save_all);
        if (status && trained && !stopped(r)) { /* what was computed is told, though the run ends here */
            progress_clear(&r->display.progress);
            say_epoch(r, false);
        }
        if (!status && !stopped(r))
            status = train_together(r, TIME_TESTS, end_epoch);
        if (!status && !stopped(r))
            loss_plot_test(&r->display.plot, r->course.step, r->course.result.test_loss);
        if (!status && stopped(r)) /* in the test */
            status = train_together(r, TIME_SAVING, save_checkpoint);
        if (status || stopped(r))
            return status;
        bool early = r->course.step < r->course.total && train_stops_early(r);
        if (early)
            status = train_together(r, TIME_SAVING, save_checkpoint);
        if (status || early || r->course.step >= r->course.total) {
            conclude(r);
            return status;
        }
    }
}

/* Says how a run ended that was asked to end; returns the exit code. */
static int interrupted(const train_job *r)
{
    int number = ranks_stop(&r->ranks);
    train_say(r, "interrupted after step %" PRId64 " of %" PRId64 ", in epoch %" PRId64 "/%" PRId64 ", loss %.4f\n",
              r->course.step, r->course.total, r->course.epoch + 1, r->course.epochs, printed(r->scores.loss));
    if (!r->saved.saver.root || r->course.epochs == 0)
        return EXIT_SIGNAL + number;
    train_say(r, "saved a checkpoint of step %" PRId64 " in %s; --resume goes on from it\n", r->course.step,
              r->set->checkpoint);
    return number == SIGINT ? EXIT_SIGNAL + SIGINT : EXIT_AGAIN;
}

static void tell_skipped_of(const char *what, int64_t skipped, const char *fault)
{
    if (skipped)
        fprintf(stderr,
                "yoke: notice: %" PRId64 " %s of the %s could not be read (%s); in %s place the next one was taken\n",
                skipped, skipped == 1 ? "sample" : "samples", what, cli_plain(fault), skipped == 1 ? "its" : "their");
}

/* Tells of samples that could not be read, of the training's or the test's last epoch. */
static void tell_skipped(const train_job *r)
{
    const yk_loader *train = r->data.train, *test = r->data.test;
    tell_skipped_of("last epoch", yk_loader_skipped(train), yk_loader_skipped_message(train));
    if (r->learner.elastic)
        tell_skipped_of("test", r->data.test_skipped, r->data.test_fault);
    else
        tell_skipped_of("test", yk_loader_skipped(test), yk_loader_skipped_message(test));
}

static yk_status finish_saving(train_job *r)
{
    return saver_finish(&r->saved.saver);
}

/* This process is no member any more: the others go on, and write. */
static int left(train_job *r)
{
    progress_clear(&r->display.progress);
    train_board_end(r);
    run_log_close(&r->display.log);
    return EXIT_DONE;
}

int train_conduct(train_job *r)
{
    cli_catch_signals();
    r->course.begun = yk__now();
    yk_status status = train_epochs(r);
    if (train_members_left(r) && !status)
        return left(r);
    if (!status && r->set->confusion && !stopped(r))
        status = train_together(r, TIME_TESTS, train_confusion);
    train_queue_free(r);
    train_eval_free(r);
    progress_clear(&r->display.progress);
    if (!status)
        status = train_together(r, TIME_SAVING, finish_saving);
    train_trace_end(r, status);
    train_board_end(r);
    if (!status)
        train_tell_time(r);
    run_log_close(&r->display.log);
    if (status) {
        int code = ranks_failed(&r->ranks);
        r->course.failed = true;
        /* Asked to end, and kept by the other ranks from saving: the newest checkpoint is that of an earlier step. */
        return cli_interrupted() && status == YK_ERR_CONNECTION ? EXIT_SIGNAL + cli_interrupted() : code;
    }
    tell_skipped(r);
    if (r->set->save)
        train_say(r, "saved %s\n", r->set->save);
    if (stopped(r))
        return interrupted(r);
    if (r->set->save_best && r->scores.best.epoch >= 0)
        train_say(r, "saved %s, the best of the tests: accuracy %.4f after epoch %.0f\n", r->set->save_best,
                  r->scores.best.accuracy, r->scores.best.epoch + 1);
    if (!r->set->no_eval && !isnan(r->scores.top5))
        train_say(r, "top-5 accuracy %.4f\n", r->scores.top5);
    if (!r->set->no_eval)
        train_say(r, "test accuracy %.4f\n", r->scores.accuracy);
    return EXIT_DONE;
}
