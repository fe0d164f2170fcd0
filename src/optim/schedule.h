/*
 * schedule.h - a schedule as the files of optim/ share it. Layer: optim.
 */
#ifndef YOKE_OPTIM_SCHEDULE_H
#define YOKE_OPTIM_SCHEDULE_H

#include "optim/optimizer.h"

struct yk_schedule {
    yk__object object;
    yk_optimizer *optimizer;
    int64_t t;
    yk__schedule_form form;
    yk_schedule *after;  /* the one whose form is form.after, retained */
    yk_schedule **parts; /* those whose forms are form.parts, retained */
};

/* A schedule without its numbers, not yet owned; NULL for a NULL optimizer. */
yk_schedule *yk__schedule_make(const char *what, yk_optimizer *o, yk__schedule_kind kind);
/* Sets the rates of t = 0, which for most kinds are those that are there, and hands the schedule to the scope. */
yk_schedule *yk__schedule_start(yk_schedule *s);
/* "momentum" or "beta1", whichever option this kind of optimizer has; NULL for none. */
const char *yk__schedule_momentum_name(const yk_optimizer *o);
/* Sets the rates and momenta of s->t by the closed form. */
yk_status yk__schedule_jump(yk_schedule *s);

#endif
