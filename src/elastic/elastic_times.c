/*
 * elastic_times.c - what the time of a run goes into: steps that count, steps that are made again, changes of members,
 * actions between two steps. Layer: elastic.
 *
 * All members count the same steps and wait for each other in each, so the sums of one of them are those of the run. A
 * newcomer gets them with the state, and they are counters in each member's page, which the launcher reads when the run
 * is over (launch/member_changes.c).
 */
#include "elastic/elastic_job.h"

#include "host/progress.h"

static const char *const counter_names[YK__TIMES] = {
    [YK__TIME_STEPS] = "elastic_steps_nanoseconds_total",
    [YK__TIME_AGAIN] = "elastic_again_nanoseconds_total",
    [YK__TIME_CHANGES] = "elastic_changes_nanoseconds_total",
    [YK__TIME_TOGETHER] = "elastic_together_nanoseconds_total",
};

static void show(const yk_elastic *e, int which)
{
    yk__progress_gauge(yk__progress_counter(counter_names[which]), (int64_t)(1e9 * e->times.spent[which]));
}

void yk__elastic_spent(yk_elastic *e, yk__time_into into)
{
    double now = yk__now();
    /* A newcomer for whom no time is counted so far may have met members that have ended since. */
    if (into != YK__TIME_OTHER && e->times.mark > 0) {
        e->times.spent[into] += now - e->times.mark;
        show(e, (int)into);
    }
    e->times.mark = now;
}

void yk__elastic_times_show(const yk_elastic *e)
{
    for (int i = 0; i < YK__TIMES; i++)
        show(e, i);
}
