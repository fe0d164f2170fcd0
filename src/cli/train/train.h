/*
 * train.h - `yoke train`: what its parts share. Layer: cli.
 *
 * train.c reads the command line, train_data.c opens the data, train_build.c makes the rest of what it asks for,
 * train_loop.c trains, train_result.c judges the tests; train_queue.c has the steps of a device that carries work out
 * later, train_elastic.c the members that come and go.
 */
#ifndef YOKE_CLI_TRAIN_TRAIN_H
#define YOKE_CLI_TRAIN_TRAIN_H

#include <yoke/checkpoint.h>
#include <yoke/data.h>
#include <yoke/elastic.h>
#include <yoke/optim.h>

#include "cli/ranks.h"
#include "cli/run/run_log.h"
#include "cli/train/confusion.h"
#include "cli/train/loss_plot.h"
#include <yoke/summary.h>

#include "cli/train/net_form.h"
#include "cli/train/progress.h"
#include "cli/train/saver.h"

/* The settings of the command line. */
typedef struct settings {
    const char *model, *data, *dtype, *precision, *schedule, *device, *init, *save, *log, *trace, *tensorboard,
        *checkpoint, *save_every;
    const char *on_error;
    const char *optimizer, *target, *save_best;
    const char *recipe; /* what the data set's recipe set, as the user is told; NULL: it set nothing */
    int64_t epochs, steps, batch_size, accumulate, step_size, warmup, seed, num_classes, threads, workers, keep;
    int64_t image_height, image_width; /* 0: not given */
    int64_t early_stop;                /* 0: not given */
    int64_t virtual_ranks;             /* 0: not given */
    double lr, momentum, weight_decay, gamma;
    double val_split;                       /* NaN: not given */
    double mixup, cutmix;                   /* alphas; 0: not given */
    int64_t rand_augment, rand_augment_ops; /* the magnitude, -1: not given; operations, 0: not given */
    const char *tokenizer;                  /* of text; NULL: its bytes are the tokens */
    int64_t block, n_layer, n_head, n_embd; /* of gpt2; n_head 0: not given */
    double dropout;
    bool gradient_checkpointing;
    bool no_shuffle, no_augment, no_eval, allow_nan, resume, async_save, sharded_save, sync_bn, no_graph, confusion,
        balance, elastic;
} settings;

/* The best test so far, all numbers, as a checkpoint keeps them. */
typedef struct train_best {
    double accuracy, loss; /* NaN: there was none */
    double epoch;          /* from 0; -1: none */
} train_best;

typedef struct train_job train_job;
typedef struct train_queue train_queue;
typedef struct train_eval train_eval;

/* The network and all that trains it: made in train_build.c, and the same to the end. */
typedef struct train_learner {
    yk_module *net;      /* the network: what is tested and saved */
    yk_module *model;    /* what is trained: the network, on several ranks inside yk_ddp */
    int shards;          /* of a step: the processes, or the virtual ranks */
    yk_elastic *elastic; /* what computes them where the virtual ranks are more than the processes, else NULL */
    yk_optimizer *optimizer;
    yk_schedule *schedule;  /* NULL: the learning rate stays */
    yk_grad_scaler *scaler; /* of --precision fp16, else NULL */
} train_learner;

/* The data sets of training and test, with their loaders (train_data.c). */
typedef struct train_sets {
    yk_dataset *train_set, *test_set;
    yk_loader *train, *test; /* test: NULL with virtual ranks, whose parts are tested one by one */
    int64_t test_skipped;    /* with them: samples that could not be read in the last test, and the first fault */
    char test_fault[300];
    net_form form;        /* of the network: what is saved with its weights */
    yk_gpt2_options gpt2; /* of text: the network's sizes, in place of the form */
} train_sets;

/* The result of an epoch: the mean loss of its samples, and its speed; then that of its test. */
typedef struct train_epoch_result {
    double loss, images_per_second; /* NAN: no step was taken */
    double test_loss;               /* NAN: there was no test */
} train_epoch_result;

/* The run's progress in steps and epochs (train_loop.c; a checkpoint sets it, too). */
typedef struct train_course {
    int64_t length;        /* steps of a whole epoch */
    int64_t epochs, total; /* of the whole run; total: steps */
    int64_t epoch, step;   /* epoch from 0; step: how many are done */
    double begun;          /* when the training of this process began */
    bool failed;           /* in training; a run that was asked to end may do that too */
    bool due;              /* a checkpoint, before the next step */
    train_epoch_result result;
    bool resumed; /* the loader stands in the middle of an epoch that another process began */
} train_course;

/* Losses of the steps and results of the tests so far (train_loop.c, train_queue.c). */
typedef struct train_scores {
    double loss;     /* of the last step, over all ranks */
    double accuracy; /* of the last test; NaN before it */
    double top5;     /* likewise: the share whose class is among the five likeliest; NaN: too few classes */
    train_best best;
    double loss_sum, seen; /* over this epoch's samples, and how many they are */
} train_scores;

/* Bars, plots and logs while it runs. */
typedef struct train_display {
    loss_plot plot;
    bool traced;              /* --trace, on all ranks */
    yk_summary_writer *board; /* --tensorboard, on rank 0; NULL: none, or it cannot be written any more */
    progress progress;
    run_log log;
} train_display;

/* The run's state as the saver saves it, and compares it with one that was saved (train_build.c). */
typedef struct train_saved {
    saver saver;
    yk_checkpoint_state state;
    yk_metadata settings[14];
    yk_checkpoint_value values[4], best_values[4];
    char dtype_text[48], seed[32], lr[32], momentum[32], weight_decay[32], schedule_text[96], size_text[80], mixup[32],
        cutmix[32], rand_augment[48];
} train_saved;

/* The program's counts, which go back with a step that is made again, and come to who joins (train_elastic.c). */
typedef struct train_own {
    int64_t epoch, step, epochs, total;
    int64_t due, stop, saved, lines; /* lines: of the log */
    train_scores scores;
} train_own;

/* The seconds of this process by what they went into. */
enum { TIME_STEPS, TIME_AGAIN /* steps that were given up */, TIME_CHANGES, TIME_SAVING, TIME_TESTS, TIMES };

/* The members of a run of --elastic (train_elastic.c). */
typedef struct train_members {
    double begun; /* when this process began */
    double mark;  /* until then the time is accounted for */
    double spent[TIMES];
    bool survives; /* members may come and go */
    bool acted;    /* the action that all make together was made before */
    int64_t view;  /* the list of members that all here is for */
    double noticed,
        noticed_at; /* when they began to change, by yk__now and since 1970; 0: the step since is complete */
    int64_t logged; /* the last view that the log has, or that it began with */
    int64_t said;   /* the epoch, from 1, whose line was printed last */
    yk_status (*action)(struct train_job *r);
    train_own own;
} train_members;

struct train_job {
    const settings *set;
    ranks ranks;
    yk_dtype dtype;
    yk_dtype lower; /* what autocast computes in; dtype: there is none */
    yk_device device;
    train_learner learner;
    train_sets data;
    train_course course;
    train_scores scores;
    train_display display;
    train_saved saved;
    train_eval *eval;   /* what a test needs on a device; NULL on a CPU, and before the first */
    train_queue *queue; /* NULL on a CPU: the scores are those of the step */
    train_members members;
};

/* A CSV file by its name, "csv:FILE" or FILE.csv. */
bool train_is_csv(const char *spec);
/* Tar shards, "shards:PATTERN". */
bool train_is_shards(const char *spec);
/* The data sets, their loaders, and the network's form. */
yk_status train_open_data(train_job *r);

/* Device and data: what can only fail when the command line asks for something that is not there. */
yk_status train_find(train_job *r);
/* The network, the optimizer, the log, the checkpoints; says on stdout what is trained. */
yk_status train_build(train_job *r);
/* Trains and says how it ended; returns the exit code. */
int train_conduct(train_job *r);

/* --tensorboard: the file and what is known at the start; a step; the end of an epoch; the end. */
yk_status train_board_begin(train_job *r);
void train_board_step(train_job *r, int64_t step, double loss);
void train_board_epoch(train_job *r, double test_loss, double images_per_second);
void train_board_end(train_job *r);

/* --trace: begins to record, and writes what all ranks have recorded, or after a failure (`status`) this one alone. */
void train_trace_begin(train_job *r);
void train_trace_end(train_job *r, yk_status status);

/* The loss of a batch, and what `model` gives for it, in --precision. */
yk_tensor *train_loss(const train_job *r, yk_module *model, yk_tensor *input, yk_tensor *target, yk_tensor **output);
/* Fails: the loss of `step`, from 1, is not finite, at a learning rate. */
yk_status train_not_finite(const train_job *r, double loss, int64_t step, double lr);

/* True if virtual ranks take the batches, whatever the number of processes. */
bool train_is_virtual(const train_job *r);
/* A loader of a virtual rank's part of the test set; of the current scope. */
yk_loader *train_make_test_loader(const train_job *r, int rank);
/* Calls `each` with a loader of each part of the test set that is this process's, and the part's number: that of its
 * rank or of a virtual one. */
void train_test_parts(train_job *r, void (*each)(train_job *r, yk_loader *part, int number, void *argument),
                      void *argument);

/* ---- train_elastic.c: virtual ranks, whose processes come and go with --elastic ---- */
/* Makes learner.elastic and learner.model. `alike`: the settings that have to be the same in who joins. */
yk_status train_members_make(train_job *r, const char *alike);
/* Begins a step; false as yk_elastic_begin says it. */
bool train_members_begin(train_job *r);
/* True if this process has left the run, which the others go on with. */
bool train_members_left(const train_job *r);
/* A step has failed. YK_OK: a member has ended, and the step is to be begun again; else the error stays. */
yk_status train_members_recover(train_job *r, yk_status failed);
/* A step is complete: where it is the first with these members, the log has them. */
yk_status train_members_stepped(train_job *r);
/* Brings rank, test and log to the members that there are now, if they have changed. */
yk_status train_members_renew(train_job *r);
/* Runs an action with communication between two steps. If a member is lost meanwhile, the rest runs it again. The time
 * since the last step is counted as `spends`: TIME_SAVING or TIME_TESTS. */
yk_status train_together(train_job *r, int spends, yk_status (*action)(train_job *r));
/* The time since the last mark went into something; -1: into nothing of those, as starting does. */
void train_spent(train_job *r, int into);
/* Says at the end, on rank 0, how much of the time went into steps that count, and what the rest went into. */
void train_tell_time(train_job *r);

/* ---- train_queue.c: steps that the host queues, and does not wait for ---- */
/* r->queue, where the device is one for which there is any; free takes NULL. */
yk_status train_queue_create(train_job *r);
void train_queue_free(train_job *r);
/* An epoch's first step comes: from here on its time is measured. */
void train_queue_begin(train_job *r);
/* Queues a step, of which `batch` is the first; gives how many samples it has, over all ranks. The caller counts it in
 * r->course.step. */
yk_status train_queue_step(train_job *r, yk_batch *batch, int64_t *samples);
/* True if the losses are to be read now: to be shown, logged or saved, or because no more can be kept. */
bool train_queue_is_due(const train_job *r);
/* Waits for the device; brings r->scores.loss, loss_sum, seen and the log to the last step that was queued. Fails where
 * a loss was not finite, with the first step that had one; r->course.step is then the one before. */
yk_status train_queue_read(train_job *r);

/* Input and target of a batch. */
enum { INPUT, TARGET, BATCH_TENSORS };

/* A step that is made again and again, recorded where that can be. */
typedef struct train_recording {
    yk_graph *graph; /* NULL: nothing is recorded */
    bool said;       /* whether it is */
} train_recording;

/* Decides, once, if the steps are recorded: true at the first call when the recording is replayed, or should have been
 * by now, as info says. */
bool train_recording_decide(train_recording *of, yk_graph_info *info);
/* Copies a batch into the tensors that stay for a recording, which the first batch makes on the device; false where it
 * has another shape. The caller releases them. */
bool train_batch_stays(yk_tensor *stay[BATCH_TENSORS], const yk_batch *batch, yk_device device);

/* ---- train_eval.c: a test on such a device ---- */
/* Begins a test; a batch of it; the sums of the samples' losses, of those that are right, and of those that are among
 * the five likeliest, for which it waits. */
yk_status train_eval_begin(train_job *r);
yk_status train_eval_batch(train_job *r, const yk_batch *batch);
void train_eval_read(const train_job *r, double *loss, double *hits, double *top5);
void train_eval_free(train_job *r); /* takes NULL */

/* The number of samples of a batch, of outputs (N, classes) and targets (N), whose class is among the five likeliest:
 * no dimensions, i64. Of equal outputs the class counts as the likeliest. */
yk_tensor *train_count_top5(yk_tensor *output, yk_tensor *target);
/* True if there are enough classes for that to tell something. */
bool train_has_top5(const train_job *r);

/* ---- train_result.c: what a test is worth ---- */
/* Notes the test of an epoch, and saves the weights where they are the best so far and --save-best asks for that. */
yk_status train_note_test(train_job *r, double test_loss);
/* True if --early-stop ends the run now; then it is said. */
bool train_stops_early(const train_job *r);
/* Counts the test set's classes against those the network gives. On several ranks all call it. */
yk_status train_confusion(train_job *r);
/* Says on stderr that the network has learned nothing, and what to try, where that is so. */
void train_tell_chance(const train_job *r, double test_loss);

/* Steps that are left of the epoch that the loader stands in. */
int64_t train_steps_left(const train_job *r);
/* printf on rank 0, nothing on the others. */
void train_say(const train_job *r, const char *format, ...) YK_PRINTF(2, 3);

/* The names for --model of networks that train, ended by NULL. */
const char *const *train_model_names(void);

#endif
