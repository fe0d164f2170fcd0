/*
 * train_elastic.c - `yoke train --elastic`: members of the run come and go, and it goes on. Layer: cli.
 *
 * yk_elastic takes back what a step has changed, and brings what the others have to who is behind or joins. What this
 * program counts beside it (steps, losses, tests, lines of the log) is in one block of memory, which goes with it:
 * train_members_keep copies it there before a step and before what all do together, train_members_take back.
 *
 * Rank 0 prints and writes. Where it ends another process is rank 0, and takes over where that one stood: the log goes
 * on behind the last line that all members know of, so each step is in it once. What is made again may be printed
 * again.
 */
#include <math.h>
#include <signal.h>
#include <time.h>

#include "base/core.h"
#include "cli/options.h"
#include "cli/train/train.h"
#include "elastic/elastic_job.h"

/* ---- the program's own part of the state ------------------------------------------------------------------------- */

static void train_members_keep(train_job *r)
{
    r->members.own = (train_own){.epoch = r->course.epoch,
                                 .step = r->course.step,
                                 .epochs = r->course.epochs,
                                 .total = r->course.total,
                                 .due = r->course.due,
                                 .stop = r->ranks.stop,
                                 .saved = r->saved.saver.saved,
                                 .lines = r->display.log.lines,
                                 .scores = r->scores};
}

static void train_members_take(train_job *r)
{
    const train_own *own = &r->members.own;
    r->course.epoch = own->epoch;
    r->course.step = own->step;
    r->course.epochs = own->epochs;
    r->course.total = own->total;
    r->course.due = own->due;
    r->ranks.stop = (int)own->stop;
    r->saved.saver.saved = own->saved;
    r->display.log.lines = own->lines;
    r->scores = own->scores;
    r->saved.state.epoch = own->epoch;
    r->saved.state.step = own->step;
}

/* ---- other members ----------------------------------------------------------------------------------------------- */

/* The log is from here on this process's to write: behind the line of the last step, which it adds where the one before
 * it had no time to. */
static yk_status take_over_log(train_job *r)
{
    bool missing;
    run_log *log = &r->display.log;
    run_log_close(log);
    run_log_take_over(log, r->set->log, &missing);
    if (!log->file || !missing)
        return YK_OK;
    log->lines--;
    return run_log_step(log, r->course.epoch, r->course.step, r->scores.loss, NAN);
}

/* This process has become rank 0. */
static yk_status take_over(train_job *r)
{
    r->display.progress.silent = false;
    yk_status status = take_over_log(r);
    return status ? status : train_board_begin(r);
}

/* Members begin to change now, for what this process knows. */
static void notice(train_job *r)
{
    struct timespec now;
    if (r->members.noticed > 0)
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    r->members.noticed = yk__now();
    r->members.noticed_at = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

yk_status train_members_stepped(train_job *r)
{
    if (r->members.noticed == 0)
        return YK_OK;
    bool changed = yk_elastic_view(r->learner.elastic) != r->members.logged;
    const run_log_members_line line = {.view = yk_elastic_view(r->learner.elastic),
                                       .epoch = r->course.epoch,
                                       .step = r->course.step,
                                       .members = r->ranks.world,
                                       .why = yk__elastic_who(r->learner.elastic),
                                       .time = r->members.noticed_at,
                                       .seconds = yk__now() - r->members.noticed};
    r->members.noticed = 0;
    r->members.logged = line.view;
    return changed ? run_log_members(&r->display.log, &line) : YK_OK;
}

yk_status train_members_renew(train_job *r)
{
    int64_t view = yk_elastic_view(r->learner.elastic);
    if (!r->members.survives || view == r->members.view)
        return YK_OK;
    if (r->members.view == 0)
        r->members.logged = view;
    else
        notice(r);
    bool first = r->members.view == 0, wrote = r->ranks.rank == 0;
    r->members.view = view;
    yk_status status = first && !yk_elastic_joined(r->learner.elastic) ? YK_OK : ranks_renew(&r->ranks);
    if (first)
        return status;
    saver_renew(&r->saved.saver);
    return !status && !wrote && r->ranks.rank == 0 ? take_over(r) : status;
}

yk_status train_members_recover(train_job *r, yk_status failed)
{
    if (!r->members.survives || failed == YK_ERR_NUMERIC) /* the same on all members */
        return failed;
    train_spent(r, TIME_AGAIN);
    notice(r);
    yk_status status = yk_elastic_recover(r->learner.elastic);
    if (status)
        return status;
    train_members_take(r);
    status = train_members_renew(r);
    train_spent(r, TIME_CHANGES);
    return status;
}

bool train_members_begin(train_job *r)
{
    train_members_keep(r);
    if (!yk_elastic_begin(r->learner.elastic)) {
        if (yk_elastic_left_together(r->learner.elastic))
            r->ranks.stop = SIGTERM;
        return false;
    }
    if (!r->members.survives || r->members.view == yk_elastic_view(r->learner.elastic))
        return true;
    yk_status status = train_members_renew(r);
    train_spent(r, TIME_CHANGES);
    return status == YK_OK;
}

bool train_members_left(const train_job *r)
{
    return yk_elastic_left(r->learner.elastic) && !yk_elastic_left_together(r->learner.elastic);
}

/* ---- what all do together ---------------------------------------------------------------------------------------- */

/* The action, for the first time or once more. */
static yk_status action_run(void *argument)
{
    train_job *r = argument;
    bool again = r->members.acted;
    r->members.acted = true;
    if (again) {
        train_spent(r, TIME_CHANGES);
        train_members_take(r);
        if (r->ranks.rank == 0 && take_over_log(r))
            return yk__error_code();
    }
    yk_status status = train_members_renew(r);
    return status ? status : r->members.action(r);
}

yk_status train_together(train_job *r, int spends, yk_status (*action)(train_job *r))
{
    train_spent(r, -1);
    if (!r->members.survives || yk_elastic_left(r->learner.elastic)) {
        yk_status alone = action(r);
        train_spent(r, spends);
        return alone;
    }
    train_members_keep(r);
    r->members.acted = false;
    r->members.action = action;
    yk_status status = yk_elastic_together(r->learner.elastic, action_run, r);
    train_spent(r, spends);
    return status ? status : train_members_renew(r);
}

/* ---- time ------------------------------------------------------------------------------------------------------- */

void train_spent(train_job *r, int into)
{
    double now = yk__now();
    if (into >= 0)
        r->members.spent[into] += now - r->members.mark;
    r->members.mark = now;
}

void train_tell_time(train_job *r)
{
    if (!r->set->elastic || r->ranks.rank != 0)
        return;
    const double *spent = r->members.spent;
    double wall = yk__now() - r->members.begun, other = wall;
    for (int i = 0; i < TIMES; i++)
        other -= spent[i];
    train_say(r,
              "%.1f%% of %.2f s went into steps that count; steps made again %.2f s, changes of members %.2f s, "
              "checkpoints %.2f s, tests %.2f s, all else %.2f s\n",
              100 * spent[TIME_STEPS] / wall, wall, spent[TIME_AGAIN], spent[TIME_CHANGES], spent[TIME_SAVING],
              spent[TIME_TESTS], other);
    (void)!run_log_time(&r->display.log,
                        &(run_log_time_line){wall, spent[TIME_STEPS], spent[TIME_AGAIN], spent[TIME_CHANGES],
                                             spent[TIME_SAVING], spent[TIME_TESTS], other});
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

/* All processes make it together; who joins a run under way returns when it is a member, with the others' state. */
yk_status train_members_make(train_job *r, const char *alike)
{
    bool survive = r->set->elastic;
    if (survive)
        cli_give_sigterm(); /* a process that gets it leaves the run, which is yk_elastic's */
    r->learner.elastic = yk_elastic_create(
        YK_OPTIONS(yk_elastic_options, .model = r->learner.net, .optimizer = r->learner.optimizer,
                   .schedule = r->learner.schedule, .scaler = r->learner.scaler, .loader = r->data.train,
                   .virtual_ranks = r->learner.shards, .accumulate = r->set->accumulate, .balance = r->set->balance,
                   .survive = survive, .own = survive ? &r->members.own : NULL,
                   .own_bytes = survive ? sizeof(r->members.own) : 0, .alike = survive ? alike : NULL));
    r->learner.model = yk_elastic_model(r->learner.elastic);
    if (!r->learner.elastic)
        return yk__error_code();
    r->members.survives = survive && yk_elastic_view(r->learner.elastic) > 0;
    if (survive && !r->members.survives) /* alone */
        cli_take_sigterm();
    if (yk_elastic_left(r->learner.elastic)) /* a spare that was not needed */
        return YK_OK;
    if (yk_elastic_joined(r->learner.elastic)) {
        train_members_take(r);
        r->course.resumed = true;
    }
    return train_members_renew(r);
}
