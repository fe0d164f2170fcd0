/*
 * standstill.h - time in which a process did not run. Layer: base.
 *
 * Note [Time that stood still]
 * A process that is stopped (Ctrl-Z, a batch system that suspends a job, a debugger) finds when it goes on that its
 * clock went on without it. What it waits for may have been stopped as well. So whoever waits with a time-out looks at
 * the clock every tenth of a second or more often, and leaves out a look that comes later than a second after the one
 * before it: in that time it did not wait. Nobody learns how to tell the reasons apart, and none of them counts.
 */
#ifndef YOKE_BASE_STANDSTILL_H
#define YOKE_BASE_STANDSTILL_H

/* Seconds between two looks at the clock from which on they are none of waiting: ten times what is between two. */
#define YK__STANDSTILL 1.0

/* Seconds that stood still since the last look, `*seen`, 0 before the first; the look at `now` is the last one then. */
static inline double yk__standstill(double *seen, double now)
{
    double since = *seen > 0 ? now - *seen : 0;
    *seen = now;
    return since > YK__STANDSTILL ? since : 0;
}

#endif
