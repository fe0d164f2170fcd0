/*
 * row_steps.h - steps by gradients of rows (docs/sparse.md). Layer: optim.
 */
#ifndef YOKE_OPTIM_ROW_STEPS_H
#define YOKE_OPTIM_ROW_STEPS_H

#include <yoke/ops.h>

#include "device/graph.h"
#include "nn/state_dict.h"
#include "optim/optimizer.h"

/* The step of all parameters of a group whose gradient is by rows. `skips`: a device may leave the step out. */
yk_status yk__optimizer_step_rows(yk_optimizer *o, yk__optim_group *group, bool skips);
/* yk__optim_kind.rows of SGD and of Adagrad. */
yk_status yk__sgd_rows(yk_optimizer *o, yk__optim_group *group, int64_t i, yk_tensor *indices, yk_tensor *rows);
yk_status yk__adagrad_rows(yk_optimizer *o, yk__optim_group *group, int64_t i, yk_tensor *indices, yk_tensor *rows);
/* Makes state s of parameter i, or moves it to where the parameter is. (optimizer.c) */
yk_status yk__optimizer_settle_state(yk_optimizer *o, yk__optim_group *group, int64_t i, int s);

#endif
