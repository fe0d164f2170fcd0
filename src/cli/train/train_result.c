/*
 * train_result.c - what the tests of `yoke train` are worth: the best so far, when to stop, whether anything was
 * learned. Layer: cli.
 *
 * All ranks have the same test loss and accuracy, so what is decided by them is decided alike. Rank 0 writes and
 * prints.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include <yoke/comm.h>

#include "base/core.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "cli/train/train.h"
#include "cli/train/train_text.h"
#include "comm/agreement.h"

/* More right answers, or as many with a lower loss. */
static bool is_better(const train_job *r, double test_loss)
{
    if (r->scores.best.epoch < 0 || isnan(r->scores.best.accuracy))
        return true;
    return r->scores.accuracy > r->scores.best.accuracy ||
           (r->scores.accuracy == r->scores.best.accuracy && test_loss < r->scores.best.loss);
}

yk_status train_note_test(train_job *r, double test_loss)
{
    if (!is_better(r, test_loss))
        return YK_OK;
    r->scores.best = (train_best){r->scores.accuracy, test_loss, (double)r->course.epoch};
    if (!r->set->save_best || r->ranks.rank != 0)
        return YK_OK;
    if (train_is_text(r->set->data))
        return train_text_save(r->set->save_best, r->learner.net, &r->data.gpt2, r->set->tokenizer);
    return net_form_save(r->set->save_best, r->learner.net, &r->data.form);
}

bool train_stops_early(const train_job *r)
{
    const settings *s = r->set;
    if (!s->early_stop || r->scores.best.epoch < 0 ||
        (double)r->course.epoch - r->scores.best.epoch < (double)s->early_stop)
        return false;
    train_say(
        r, "stopped early: %" PRId64 " epochs without a better test; the best, accuracy %.4f, was after epoch %.0f\n",
        s->early_stop, r->scores.best.accuracy, r->scores.best.epoch + 1);
    return true;
}

/* ---- confusion --------------------------------------------------------------------------------------------------- */

static yk_status count_batch(train_job *r, const yk_batch *batch, confusion *c)
{
    yk_scope scope = yk_scope_begin();
    yk_tensor *output, *target = yk_to(batch->target, r->device);
    yk_tensor *loss = train_loss(r, r->learner.net, yk_to(batch->input, r->device), target, &output);
    yk_tensor *answers = loss ? yk_argmax(output, 1, false) : NULL;
    int64_t *both = yk__calloc(2 * (size_t)batch->count, sizeof(*both));
    size_t bytes = (size_t)batch->count * sizeof(*both);
    yk_status status = answers && both ? YK_OK : yk__error_code();
    if (!status)
        status = yk_tensor_read(answers, both, bytes);
    if (!status)
        status = yk_tensor_read(target, both + batch->count, bytes);
    for (int64_t i = 0; i < batch->count && !status; i++)
        confusion_add(c, both[batch->count + i], both[i]);
    free(both);
    yk_scope_end(scope);
    return status;
}

static void count_part(train_job *r, yk_loader *part, int number, void *argument)
{
    yk_batch batch;
    (void)number;
    yk_loader_start(part, 0);
    while (!yk_last_error() && yk_loader_next(part, &batch))
        (void)!count_batch(r, &batch, argument); /* the record ends the loop */
}

/* The counts become their sums over the ranks. */
static yk_status sum_counts(const train_job *r, const confusion *c)
{
    if (r->ranks.world == 1)
        return YK_OK;
    yk_scope scope = yk_scope_begin();
    size_t bytes = (size_t)(c->size * c->size) * sizeof(*c->counts);
    yk_tensor *all =
        yk_from_data(c->counts, 1, (int64_t[]){c->size * c->size}, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    yk_status status = all ? YK__HOST_TENSORS(yk_all_reduce(all, YK_OP_SUM, NULL)) : yk__error_code();
    if (!status)
        status = yk_tensor_read(all, c->counts, bytes);
    yk_scope_end(scope);
    return status;
}

yk_status train_confusion(train_job *r)
{
    confusion c;
    yk_status status = confusion_create(&c, r->data.form.outputs);
    if (status)
        return status;
    bool recording = yk_no_grad_begin();
    yk_module_eval(r->learner.net);
    train_test_parts(r, count_part, &c);
    yk_module_train(r->learner.net, true);
    yk_no_grad_end(recording);
    status = yk__error_code();
    if (!status)
        status = sum_counts(r, &c);
    if (!status && r->ranks.rank == 0) {
        int columns = terminal_columns(STDOUT_FILENO);
        confusion_print(&c, &r->data.form, columns ? columns : 100, stdout);
        status = run_log_confusion(&r->display.log, confusion_json(&c, &r->data.form));
    }
    confusion_clear(&c);
    return status;
}

/* ---- chance ------------------------------------------------------------------------------------------------------ */

/* The share of right answers that always giving the most frequent class would have. */
static double accuracy_of_chance(const train_job *r)
{
    int64_t classes = yk_dataset_classes(r->data.test_set), length = yk_dataset_length(r->data.test_set), most = 0;
    int64_t *counts = yk__calloc((size_t)classes + 1, sizeof(*counts));
    for (int64_t i = 0; counts && i < length; i++) {
        int64_t label = yk_dataset_label(r->data.test_set, i); /* -1: it is not known; the classes are taken as equal */
        if (label >= 0 && label < classes && ++counts[label] > most)
            most = counts[label];
    }
    free(counts);
    return most ? (double)most / (double)length : 1.0 / (double)classes;
}

void train_tell_chance(const train_job *r, double test_loss)
{
    enum { LEAST_STEPS = 100 }; /* fewer need not have taught anything */
    int64_t classes = yk_dataset_classes(r->data.test_set);
    double tests = (double)yk_dataset_length(r->data.test_set);
    if (r->ranks.rank != 0 || classes < 2 || r->course.step < LEAST_STEPS || isnan(r->scores.accuracy))
        return;
    /* Within three deviations of a guess's count of right answers. */
    double chance = accuracy_of_chance(r), guess = log((double)classes);
    if (r->scores.accuracy > chance + 3 * sqrt(chance * (1 - chance) / tests) || r->scores.accuracy > 0.99)
        return;
    double lr = r->set->lr;
    fprintf(stderr,
            "yoke: notice: the network has learned nothing: its test accuracy, %.4f, is that of chance (%.4f with "
            "%" PRId64 " classes).\n",
            r->scores.accuracy, chance, classes);
    if (!isfinite(test_loss) || test_loss > 1.2 * guess)
        fprintf(stderr, "  The test loss, %.4g, is above that of guessing, %.4g: the rate is too high; try --lr %g\n",
                printed(test_loss), guess, lr / 10);
    else
        fprintf(stderr, "  Try another rate first: --lr %g, then --lr %g.\n", lr / 10, lr * 5);
    fprintf(stderr,
            "  Inputs should be about 0 with a deviation of about 1 (the data sets of yoke are normalised so).\n"
            "  Labels: look whether the images in a class's folder, or the rows of a class, are of that class%s%s.\n",
            yk_dataset_label(r->data.test_set, 0) >= 0 ? "; yoke data check " : "",
            yk_dataset_label(r->data.test_set, 0) >= 0 ? r->set->data : "");
}
