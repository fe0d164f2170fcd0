/*
 * train_trace.c - `yoke train --trace FILE`. Layer: cli.
 *
 * A trace ends no run: what goes wrong with it is a line on stderr.
 */
#include <stdio.h>

#include <yoke/comm.h>
#include <yoke/profiler.h>

#include "base/core.h"
#include "cli/options.h"
#include "cli/train/train.h"

static void trace_fail(const train_job *r)
{
    fprintf(stderr, "yoke train: --trace %s: %s; the run goes on without it\n", cli_plain(r->set->trace),
            yk_last_error() ? yk_last_error()->message : "another process has none");
    yk_clear_error();
}

void train_trace_begin(train_job *r)
{
    if (!r->set->trace)
        return;
    double started[] = {yk_profiler_start(NULL) == YK_OK};
    bool own = started[0] > 0;
    if (!own)
        trace_fail(r);
    r->display.traced = !ranks_sum(&r->ranks, started, 1) && started[0] == r->ranks.world; /* all end it together */
    if (own && !r->display.traced)
        (void)!yk_profiler_stop(NULL);
}

void train_trace_end(train_job *r, yk_status status)
{
    if (!r->display.traced)
        return;
    yk_error before;
    yk__error_take(&before);
    if (r->ranks.world == 1) {
        status = yk_profiler_stop(r->set->trace);
    } else if (!status) {
        status = yk_profiler_stop_group(r->set->trace, NULL);
    } else { /* the others may be gone: what this process did is there at least */
        char path[4200];
        snprintf(path, sizeof(path), "%.4000s.rank%d", r->set->trace, r->ranks.rank);
        status = yk_profiler_stop(path);
    }
    if (status)
        trace_fail(r);
    yk__error_put(&before);
}
