/*
 * schedule_form.h - a schedule as its kind and constants: what rates are computed from, what is printed, what a file
 * keeps and what PyTorch's state becomes. Layer: optim.
 */
#ifndef YOKE_OPTIM_SCHEDULE_FORM_H
#define YOKE_OPTIM_SCHEDULE_FORM_H

#include "base/core.h"

typedef enum yk__schedule_kind {
    YK__STEP_LR,
    YK__MULTI_STEP_LR,
    YK__COSINE_LR,
    YK__EXPONENTIAL_LR,
    YK__LINEAR_WARMUP_LR,
    YK__LAMBDA_LR,
    YK__LINEAR_LR,
    YK__CONSTANT_LR,
    YK__POLYNOMIAL_LR,
    YK__WARM_RESTARTS_LR,
    YK__ONE_CYCLE_LR,
    YK__CYCLIC_LR,
    YK__SEQUENTIAL_LR,
    YK__SCHEDULE_KINDS
} yk__schedule_kind;

/* The places of the numbers of kinds that have several. */
enum {
    YK__LINEAR_START = 0,
    YK__LINEAR_END,
    YK__CONSTANT_FACTOR = 0,
    YK__POLYNOMIAL_POWER = 0,
    YK__RESTARTS_MULT = 0,
    YK__RESTARTS_LEAST,
    YK__CYCLE_MAX_LR = 0, /* of one_cycle_lr and cyclic_lr */
    YK__CYCLE_MOMENTUM,   /* 1: the momentum moves against the rate, between these two */
    YK__CYCLE_MOMENTUM_BASE,
    YK__CYCLE_MOMENTUM_MAX,
    YK__ONE_CYCLE_PCT_START,
    YK__ONE_CYCLE_LINEAR, /* flags */
    YK__ONE_CYCLE_THREE_PHASE,
    YK__ONE_CYCLE_DIV,
    YK__ONE_CYCLE_FINAL_DIV,
    YK__CYCLIC_BASE_LR = YK__ONE_CYCLE_PCT_START,
    YK__CYCLIC_STEP_SIZE_DOWN,
    YK__CYCLIC_MODE, /* yk_cyclic_mode */
    YK__CYCLIC_GAMMA,
    YK__SCHEDULE_NUMBERS = 9
};

typedef struct yk__schedule_form {
    yk__schedule_kind kind;
    double constant;     /* gamma; of a cosine_lr the least rate, of a warm-up the start factor */
    int64_t period;      /* step_size, t_max, the steps of a warm-up, total_iters, t_0, total_steps, step_size_up */
    int64_t *milestones; /* rising */
    int n_milestones;
    double numbers[YK__SCHEDULE_NUMBERS];
    struct yk__schedule_form **parts; /* of a sequential_lr: one more than milestones */
    int n_parts;
    struct yk__schedule_form *after;     /* the form of what follows a warm-up, or NULL */
    double (*fn)(int64_t t, void *user); /* of a lambda_lr; a form that was read has none */
    void *user;
} yk__schedule_form;

/* The rate at time t of a group whose first rate is `base`. */
double yk__schedule_rate(const yk__schedule_form *f, double base, int64_t t);

/* The momentum at time t, NaN where the form leaves it alone. */
double yk__schedule_momentum(const yk__schedule_form *f, int64_t t);
/* The part of a sequential_lr that is at time t, and the time in it. */
const yk__schedule_form *yk__schedule_part(const yk__schedule_form *f, int64_t t, int64_t *own);
/* The place of time t in cosine restarts: the steps since the last one, and how many there are to the next. */
void yk__schedule_restart(const yk__schedule_form *f, int64_t t, int64_t *since, double *length);

/* The words of a kind in text and in files: its own name, those of its length (period), its constant and its numbers;
 * NULL for those that it has not. */
typedef struct yk__schedule_names {
    const char *kind, *length, *constant, *numbers[YK__SCHEDULE_NUMBERS];
} yk__schedule_names;
const yk__schedule_names *yk__schedule_names_of(yk__schedule_kind kind);
bool yk__schedule_has_milestones(yk__schedule_kind kind);

/* Fails where a form that was read, of parts that were checked, has numbers of which no rates can be computed. */
yk_status yk__schedule_check(const yk__schedule_form *f);

/* ---- schedule_text.c ---- */
/* "step_lr(step_size=30, gamma=0.1)", cut to `size`; returns `text`. */
const char *yk__schedule_print(const yk__schedule_form *f, char *text, size_t size);
/* The form that is printed so, which the caller frees; NULL and an error where no schedule is. Checkpoints of 0.1 and
 * 0.2 keep a schedule as this text. */
yk__schedule_form *yk__schedule_parse(const char *text);

/* Frees a form that was read, with all that it has; NULL is passed over. */
void yk__schedule_form_free(yk__schedule_form *f);
/* A form of this kind for yk__schedule_form_free, all else 0; NULL and an error without memory. */
yk__schedule_form *yk__schedule_form_new(yk__schedule_kind kind);

/* True if the two are equal; alike: if they differ in their lengths (step_size, t_max, milestones, steps) alone. */
bool yk__schedule_same(const yk__schedule_form *a, const yk__schedule_form *b);
bool yk__schedule_alike(const yk__schedule_form *a, const yk__schedule_form *b);
/* The time in `f` of the point that time t is in a form that is alike; negative where the lengths of one of them are
 * none that a schedule can have. Parts without a length go on step by step. */
int64_t yk__schedule_time_in(const yk__schedule_form *f, const yk__schedule_form *old, int64_t t);

#endif
