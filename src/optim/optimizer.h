/*
 * optimizer.h - declarations that the files of optim/ share. Layer: optim.
 *
 * An optimizer is groups of parameters and a kind: SGD, Adam, RMSprop and so on. The kind knows its options, the names
 * of its state, and the table slot; optimizer.c knows everything else.
 */
#ifndef YOKE_OPTIM_OPTIMIZER_H
#define YOKE_OPTIM_OPTIMIZER_H

#include <yoke/optim.h>

#include "autograd/tape.h"
#include "optim/schedule_form.h"

/* Up to three of a kind's own, and the master weight. */
enum { YK__OPTIM_MASTER = 3, YK__OPTIM_STATES };

/* The state of a parameter: its optimizer's tensors and its number of steps. */
typedef struct yk__optim_state {
    int64_t step; /* the number of steps that have changed the parameter: Note [Steps that the device leaves out] */
    int record;   /* of the group's device_steps, from 1, the one that the last step took; 0: none, or others took it
                   * since */
    yk_tensor *tensors[YK__OPTIM_STATES];
    uint32_t version, exchanged; /* of the parameter when its master weight was last the same: master_weights.c */
    bool loaded;                 /* the master weight is that of a state dict, and was in no step since */
} yk__optim_state;

/*
 * Note [Steps that the device leaves out]
 * yk_optimizer_step_unless queues a step that the device leaves out where it finds a number that is not 0, which the
 * host does not wait for. The device's number of steps is right then, and the host counts each as taken: `unsure` is
 * set in the record until yk__optimizer_settle has read it and taken back what was left out, from the record and from
 * each parameter whose last step took it. Whoever needs the number settles first. Until then a batch of parameters
 * takes the record that all of them took in the step before, or the numbers are settled: two that were left out another
 * number of times may have the same number on the host.
 */
/* A learning rate and a step's number in a device's memory, and the values that they have once everything queued is
 * done. */
typedef struct yk__device_step {
    yk__storage *memory; /* a yk__step_state */
    double lr;
    int64_t step;
    bool unsure; /* steps may have been left out: `step` is the most that it can be */
} yk__device_step;

/* The options of Muon; `adjust` is a yk_muon_adjust. Whole numbers are doubles, as all that state dicts have. */
typedef struct yk__muon {
    double momentum, weight_decay, eps, ns_steps, ns_coefficients[3], adjust;
    bool nesterov;
} yk__muon;

/* The options of LBFGS; `line_search` is a yk_line_search, and a max_eval of NaN stands for 5 max_iter / 4. */
typedef struct yk__lbfgs {
    double max_iter, max_eval, tolerance_grad, tolerance_change, history_size, line_search;
    bool maximize;
} yk__lbfgs;

typedef struct yk__optim_group {
    yk_parameters *params; /* our own list */
    int64_t count;
    yk__optim_state *states; /* one for each parameter */
    double lr;
    yk__device_step *device_steps; /* see yk__optimizer_keep_steps_on_device */
    int n_device_steps;
    double initial_lr; /* the rate that schedules start from; NaN until the first one is made */
    bool master_weights;
    union {
        yk__sgd sgd;
        yk__adam adam;
        yk__descent descent;
        yk__muon muon;
        yk__lbfgs lbfgs;
    } options; /* the lr here is not used */
} yk__optim_group;

/* The tensors of one call of the slot: all of one device and dtype, that have taken the same number of steps. */
typedef struct yk__optim_batch {
    yk__view *params, *grads, *states[YK__OPTIM_STATES];
    int64_t *indices; /* in the group */
    int64_t count;
} yk__optim_batch;

/* A hyper-parameter as it stands in a state dict: `count` doubles, or a bool, inside a group. */
typedef struct yk__optim_number {
    const char *name;
    size_t offset;
    int count;  /* at most YK__OPTIM_ROW; 0: a bool */
    bool fixed; /* tells this kind from another: another value is refused */
} yk__optim_number;

/* The longest row of numbers under one name: betas are two. */
enum { YK__OPTIM_ROW = 3 };

/* The state that belongs to all parameters of an optimizer together, where the kind has such. It is in state dicts as
 * "state.FIRST.NAME", FIRST the name of the first parameter, since PyTorch keeps it there. */
typedef struct yk__optim_whole {
    const char *const *names; /* of the entries, ended by NULL */
    /* The step, which evaluates the closure itself; unrecorded. *loss, which may be NULL, is that of the first
     * evaluation. */
    yk_status (*step)(yk_optimizer *o, yk_closure_fn closure, void *user, double *loss);
    yk_status (*save)(const yk_optimizer *o, yk_state_dict *dict);
    /* *state is made of the dict's entries, of which *used are counted; NULL where it has none. */
    yk_status (*load)(const yk_optimizer *o, const yk_state_dict *dict, void **state, int64_t *used);
    void (*free)(void *state);
    int64_t (*steps)(const void *state);
} yk__optim_whole;

/* The most numbers that a kind saves; in a shorter list the first without a name is the end. */
enum { YK__OPTIM_NUMBERS = 8 };

typedef struct yk__optim_kind {
    const char *name;
    const char *state_names[YK__OPTIM_MASTER];
    bool zeroed; /* new state starts as zeros, or as `initial` says; else the slot writes it at the first step */
    bool counts; /* the step's number changes the step: state without it is refused */
    /* Besides lr and initial_lr; the first is one that every state dict of this kind has. */
    yk__optim_number numbers[YK__OPTIM_NUMBERS];
    /* The first group's options where none are given. An lr of NaN has to be given. */
    yk__optim_group preset;
    /* Puts the options that are given (NULL: none) in place of the group's. */
    yk_status (*configure)(const struct yk__optim_kind *kind, const void *options, yk__optim_group *group);
    /* Refuses a group's options that are out of range. */
    yk_status (*check)(const struct yk__optim_kind *kind, const yk__optim_group *group);
    /* Refuses a parameter; NULL: all are right. */
    yk_status (*accept)(const struct yk__optim_kind *kind, const char *name, const yk_tensor *x);
    /* The state's tensors that these options need: bit s for state s. */
    unsigned (*states)(const yk__optim_group *group);
    /* The value of each element of new state; NULL: 0. */
    double (*initial)(const yk__optim_group *group);
    /* `step` counts from 1; `state` is the same and the rate in the device's memory, or NULL; `skip` as in yk__sgd. */
    yk_status (*call)(const yk__backend *backend, yk_device device, const yk__optim_group *group, int64_t step,
                      const yk__step_state *state, const int32_t *skip, const yk__optim_batch *batch);
    /* The step of parameter i by a gradient of rows, sorted, in a scope, unrecorded; NULL: there is none (row_steps.c).
     */
    yk_status (*rows)(yk_optimizer *o, yk__optim_group *group, int64_t i, yk_tensor *indices, yk_tensor *rows);
    /* In place of `call`: the step of one parameter by operations, in a scope, unrecorded. x and grad have the dtype of
     * the state. Such a step is in no recording. */
    yk_status (*compose)(const yk__optim_group *group, const yk__optim_state *state, yk_tensor *x, yk_tensor *grad);
    const yk__optim_whole *whole; /* in place of both; NULL: the kind's state is of each parameter alone */
} yk__optim_kind;

/* True if the optimizer keeps an f32 copy of x. */
static inline bool yk__optim_has_master(const yk__optim_group *group, const yk_tensor *x)
{
    return group->master_weights && yk__is_half((yk_dtype)x->dtype);
}
/* The dtype of a parameter's state. */
static inline yk_dtype yk__optim_state_dtype(const yk__optim_group *group, const yk_tensor *x)
{
    return yk__optim_has_master(group, x) ? YK_F32 : (yk_dtype)x->dtype;
}
/* True if x has state s. */
static inline bool yk__optim_uses(const yk__optim_kind *kind, const yk__optim_group *group, const yk_tensor *x, int s)
{
    return s == YK__OPTIM_MASTER ? yk__optim_has_master(group, x) : kind->states(group) >> s & 1;
}
/* NULL where the kind has no such state. */
static inline const char *yk__optim_state_name(const yk__optim_kind *kind, int s)
{
    return s == YK__OPTIM_MASTER ? "master_weight" : kind->state_names[s];
}

struct yk_optimizer {
    yk__object object;
    const yk__optim_kind *kind;
    yk__optim_group *groups;
    int n_groups;
    yk__optim_group defaults; /* the options of the first group as it was made, which further ones take over */
    yk__optim_batch batch;    /* room for the largest group */
    yk_tensor **wide;         /* of the batch: gradients brought to f32 for their master weights */
    bool *pending;            /* likewise: parameters that this step has yet to change */
    int64_t capacity;
    bool steps_on_device;
    void *whole; /* state of the kind's `whole`; NULL: none yet */
};

yk_optimizer *yk__optimizer_create(const yk__optim_kind *kind, yk_parameters *params, const void *options);
/* Adds a group with options of that kind to an optimizer that must be of it. */
yk_status yk__optimizer_add_group(const yk__optim_kind *kind, yk_optimizer *o, yk_parameters *params,
                                  const void *options);
/* The fault of the groups and their state, NULL for none (base/invariant.h). */
const char *yk__optimizer_check(const yk_optimizer *o);
/* From now on the learning rate and the step's number are read from the devices' memory, where the optimizer writes
 * them: Note [What changes from step to step] in device/kernel_args.h. The results have the same bits. */
void yk__optimizer_keep_steps_on_device(yk_optimizer *o);
/* The step of an optimizer inside a function that is recorded and replayed: graph_member.c. begin tells the graph of
 * it, before anything else; each batch is noted, with the index of its record of the group's device_steps; end counts
 * the step in this process's page (host/progress.h), at these ticks (0: now), or in each replay. */
yk_status yk__optimizer_graph_begin(yk_optimizer *o);
void yk__optimizer_graph_end(const yk_optimizer *o, uint64_t now);
yk_status yk__optimizer_graph_note(const yk_optimizer *o, const yk__optim_group *group, int record, bool skips);
/* yk_optimizer_step; where `skip` is there, a number in the memory of `device` that the parameters are on, yet the step
 * is left out where that is not 0. */
yk_status yk__optimizer_step_skipping(yk_optimizer *o, yk_device device, const int32_t *skip);
/* Waits for the devices and takes back, on the host, the steps that they left out: Note [Steps that the device leaves
 * out]. Nothing to do where there are none that could have been. */
yk_status yk__optimizer_settle(const yk_optimizer *o);
/* The last step of these parameters took the record, and that of no others: the steps that the device leaves out from
 * here on are not theirs. The others' numbers must be settled. (optimizer.c) */
void yk__optimizer_take_record(yk__optim_group *group, int record, const int64_t *indices, int64_t count);
/* Writes the record's rate and step, if it has others. (optimizer.c) */
yk_status yk__optimizer_set_device_step(yk__device_step *record, double lr, int64_t step);
/* Values that were written to a parameter reach its master weight, if there is one: master_weights.c. */
yk_status yk__master_follow(const yk__optim_group *group, int64_t i);
/* The same for all parameters, except where the master weight was loaded: its parameter may be loaded after it. */
yk_status yk__optimizer_follow(const yk_optimizer *o);
/* Notes that the parameter is its master weight, rounded. */
void yk__master_same(yk__optim_state *state, const yk_tensor *x);
/* The number takes the place of *kept where it was given. */
void yk__optim_take(double *kept, double number);
/* The same for a learning rate: an error where it was not given, and *rate is NaN. */
yk_status yk__optimizer_rate(const char *what, double lr, double *rate);
/* One evaluation of a closure, in a scope and recorded: *loss is its number, which is read where `loss` is there. */
yk_status yk__optimizer_evaluate(yk_closure_fn closure, void *user, double *loss);
/* The position of "state.PARAMETER.WHAT" in the dict, with or without "module." before the parameter; -1 where it is
 * not there. */
int64_t yk__optimizer_entry(const yk_state_dict *dict, const char *parameter, const char *what);
/* The `count` elements of any dtype of an entry, as doubles. */
yk_status yk__optimizer_numbers(const char *name, yk_tensor *x, int64_t count, double *values);
/* The i-th number of a kind that state dicts have, the common ones first; NULL after the last. */
const yk__optim_number *yk__optim_number_at(const yk__optim_kind *kind, int i);

/* yk_optimizer_load_state_dict; `adopt`: the dict's tensors may become the state, the caller gives them up. The
 * state that is there gets the other values, once everything has been checked. */
yk_status yk__optimizer_load_state(yk_optimizer *o, const yk_state_dict *dict, bool adopt);

/* True if a tensor in C order on cpu:0, of that name in a state dict and of that dtype, becomes the state in
 * yk__optimizer_load_state with `adopt`, where there is none yet. */
bool yk__optimizer_adopts(const yk_optimizer *o, const char *name, yk_dtype dtype);
/* One reference to tensors without memory that have dtype, shape and order of those that the state dict has for the
 * parameters once all have been stepped, under their names. */
yk_state_dict *yk__optimizer_state_outline(const yk_optimizer *o);

/* The optimizer whose rates the schedule sets, borrowed. */
yk_optimizer *yk__schedule_optimizer(const yk_schedule *s);

/* Its kind and constants, borrowed. */
const yk__schedule_form *yk__schedule_form_of(const yk_schedule *s);
/* The time of s that corresponds to time t of a form that differs in its lengths alone; -1 where it differs in more. */
int64_t yk__schedule_carry(const yk_schedule *s, const yk__schedule_form *old, int64_t t);
/* Makes s go on, after the optimizer's state was loaded, from time t of `old`, a form that was read (NULL: the form of
 * s), which gets the functions of s. The rates stay the loaded ones, which the program may have set; where the lengths
 * of the two differ, s moves to the corresponding time and rates. */
yk_status yk__schedule_resume(yk_schedule *s, yk__schedule_form *old, int64_t t);

/* Fails in the name of `what` where no scaler could be in this state. */
yk_status yk__grad_scaler_check(const char *what, const yk_grad_scaler_state *state);

/* Tells a scaler's step whether other ranks found a gradient that is not finite (parallel/scaler_group.c): agree is
 * called once in every step, also in one that failed, with the error in the record; it makes *found true where it is on
 * one of them. */
typedef struct yk__found_agreement {
    yk_status (*agree)(void *user, bool *found);
    void (*release)(void *user);
    void *user;
} yk__found_agreement;
/* Sets the agreement in place of the one before, which is released; agree NULL: a step looks at this rank's gradients
 * alone. */
void yk__grad_scaler_set_agreement(yk_grad_scaler *s, yk__found_agreement others);

#endif
