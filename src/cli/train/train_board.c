/*
 * train_board.c - `yoke train --tensorboard DIR`: curves of loss, rate, tests and speed, the distribution of each
 * parameter after every epoch, the settings, and the modules. Layer: cli.
 *
 * Rank 0 writes. What goes wrong once the file is there is said once, and ends nothing.
 */
#include <math.h>
#include <stdio.h>

#include "base/core.h"
#include "cli/options.h"
#include "cli/train/train.h"
#include "data/loader.h"

/* Says what has failed, and writes nothing any more. */
static void board_fail(train_job *r)
{
    fprintf(stderr, "yoke train: --tensorboard: %s; the run goes on without it\n",
            yk_last_error() ? yk_last_error()->message : "no memory");
    yk_clear_error();
    yk_summary_release(r->display.board);
    r->display.board = NULL;
}

/* The network, as it takes the first sample; without one that can be read, its modules. */
static yk_status board_graph(train_job *r)
{
    yk_tensor *sample = yk_dataset_get(r->data.train->dataset, 0, r->dtype, NULL);
    yk_tensor *input = sample ? yk_to(yk_unsqueeze(sample, 0), r->device) : NULL;
    if (!input)
        yk_clear_error();
    return yk_summary_graph(r->display.board, r->learner.net, &input, input ? 1 : 0);
}

yk_status train_board_begin(train_job *r)
{
    if (!r->set->tensorboard || r->ranks.rank != 0)
        return YK_OK;
    yk_scope scope = yk_scope_begin();
    r->display.board = yk_summary_retain(yk_summary_create(r->set->tensorboard, NULL));
    yk_status status = yk__error_code();
    yk_summary_hparam hparams[sizeof(r->saved.settings) / sizeof(*r->saved.settings)];
    int count = 0;
    for (const yk_metadata *m = r->saved.settings; m->key; m++) {
        char *end;
        double number = yk__number_parse(m->value, &end);
        bool is_number = *m->value && !*end;
        hparams[count++] =
            (yk_summary_hparam){.name = m->key, .text = is_number ? NULL : m->value, .number = is_number ? number : 0};
    }
    static const char *const metrics[] = {"accuracy/test", "loss/test"};
    if (!status &&
        (yk_summary_hparams(r->display.board, hparams, count, metrics, r->set->no_eval ? 0 : 2) || board_graph(r)))
        board_fail(r);
    yk_scope_end(scope);
    return status;
}

void train_board_step(train_job *r, int64_t step, double loss)
{
    if (r->display.board &&
        (yk_summary_scalar(r->display.board, "loss/train", loss, step) ||
         yk_summary_scalar(r->display.board, "rate", yk_optimizer_lr(r->learner.optimizer, 0), step)))
        board_fail(r);
}

void train_board_epoch(train_job *r, double test_loss, double images_per_second)
{
    if (!r->display.board)
        return;
    yk_scope scope = yk_scope_begin();
    yk_status status = YK_OK;
    if (!isnan(images_per_second))
        status = yk_summary_scalar(r->display.board, "images per second", images_per_second, r->course.step);
    if (!r->set->no_eval && !status)
        status = yk_summary_scalar(r->display.board, "loss/test", test_loss, r->course.step);
    if (!r->set->no_eval && !status)
        status = yk_summary_scalar(r->display.board, "accuracy/test", r->scores.accuracy, r->course.step);
    yk_parameters *all = yk_module_parameters(r->learner.net);
    for (int64_t i = 0; i < yk_parameters_count(all) && !status; i++)
        status = yk_summary_histogram(r->display.board, yk_parameters_name(all, i), yk_parameters_at(all, i),
                                      r->course.step);
    if (!status)
        status = yk_summary_flush(r->display.board);
    if (status)
        board_fail(r);
    yk_scope_end(scope);
}

void train_board_end(train_job *r)
{
    yk_error before;
    yk__error_take(&before);
    if (r->display.board && yk_summary_flush(r->display.board))
        board_fail(r);
    yk_summary_release(r->display.board);
    r->display.board = NULL;
    yk__error_put(&before);
}
