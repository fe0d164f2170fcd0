/*
 * torch_state.h - the state of optimizers and schedules in PyTorch's form, from and to yoke's own lists.
 * Layer: checkpoint.
 *
 * These work on lists of tensors and on forms of schedules, so that files can be converted without the objects. Values
 * that are returned are owned by the current scope.
 */
#ifndef YOKE_CHECKPOINT_TRAINING_TORCH_STATE_H
#define YOKE_CHECKPOINT_TRAINING_TORCH_STATE_H

#include <yoke/checkpoint.h>

#include "optim/schedule_form.h"

/* optimizer.state_dict(). `kind` is the optimizer's, "sgd" for yk_sgd; `names` is a list with, for each group, a list
 * of its parameters' names. */
yk_value *yk__optimizer_to_torch(const char *kind, const yk_state_dict *dict, const yk_value *names);
/* The list that yk_optimizer_state_dict would give; every group must have as many parameters as in `names`. */
yk_state_dict *yk__optimizer_from_torch(const yk_value *value, const yk_value *names);
/* The kind, "sgd" for yk_sgd, by the numbers of the first group, or by what was saved in "yoke" (`rest`, may be NULL);
 * *guessed where an old PyTorch does not tell. NULL and an error for one that yoke has not. */
const char *yk__optimizer_torch_kind(const yk_value *optimizer, const yk_value *rest, bool *guessed);

/* The state of an LBFGS, which PyTorch keeps for the first parameter, whose name it is; nothing for another's. */
yk_status yk__lbfgs_to_torch(const yk_state_dict *dict, const char *name, yk_value *state);
yk_status yk__lbfgs_from_torch(const yk_value *state, const char *name, yk_state_dict *dict);

/* scheduler.state_dict() of a schedule of this form, at `time`; the rates are lists of numbers. */
yk_value *yk__schedule_to_torch(const yk__schedule_form *form, int64_t time, yk_value *base_rates,
                                yk_value *last_rates);
/* False where PyTorch keeps the constants elsewhere: in a OneCycleLR, a CyclicLR and a SWALR. */
bool yk__schedule_has_torch_form(const yk__schedule_form *f);
/* The form, for yk__schedule_form_free. */
yk__schedule_form *yk__schedule_from_torch(const yk_value *value, int64_t *time);

/* GradScaler.state_dict(). */
yk_value *yk__scaler_to_torch(const yk_grad_scaler_state *state);
yk_status yk__scaler_from_torch(const yk_value *value, yk_grad_scaler_state *state);

/* A number, or a tensor that holds one, as a double; an error in the name of `what`. */
yk_status yk__torch_number(const char *what, const yk_value *value, double *number);

#endif
