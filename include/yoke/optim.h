/*
 * yoke/optim.h - optimizers, learning rate schedules, gradient clipping.
 *
 * Layer: optim. Optimizers and schedules are counted and owned by the thread's current scope when made. Names,
 * defaults and formulas are those of torch.optim.
 */
#ifndef YOKE_OPTIM_H
#define YOKE_OPTIM_H

#include <yoke/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct yk_optimizer yk_optimizer;

/*
 * ---- optimizers: one pass over memory per step for all parameters of a group -------------------------------------
 *
 * Parameters are f32 or f64. With master_weights they may be f16 or bf16, too: of each the optimizer keeps an f32 copy,
 * made at its first step, which steps change, and from which the parameter is rounded; all other state is f32 as well.
 * Values that are written to such a parameter otherwise (by a state dict, an operation in place, a broadcast) are where
 * the next step begins: elements of the parameter that are no longer the copy's, rounded, become the copy's, and after
 * a collective all do. Writes through yk_data's pointer alone are not seen. f32 and f64 parameters have no copy.
 * Source: apex.amp's O2, Megatron's main parameters.
 */
/* Nesterov needs a momentum and no dampening.
 *     g = grad (negated if maximize) + weight_decay p;  b = momentum b + (1 - dampening) g, at first b = g;
 *     p -= lr (nesterov ? g + momentum b : b) */
typedef struct yk_sgd_options {
    double lr YK_DEFAULT(YK_NOT_GIVEN); /* no default: an error when it is not given */
    double momentum YK_DEFAULT(0), dampening YK_DEFAULT(0), weight_decay YK_DEFAULT(0);
    bool nesterov YK_DEFAULT(false), maximize YK_DEFAULT(false);
    bool master_weights YK_DEFAULT(false);  /* f16 and bf16 parameters: see above */
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_sgd_options;
#define yk_sgd_options_DEFAULTS .yk__mark = YK__MARK, .lr = YK_NOT_GIVEN
/* The list is read once; every parameter must be a leaf, and one of them require a gradient. */
YK_API yk_optimizer *yk_sgd(yk_parameters *params, const yk_sgd_options *options);

/* Source: Kingma and Ba, 2015; Loshchilov and Hutter, 2019. */
typedef struct yk_adam_options {
    double lr YK_DEFAULT(YK_NOT_GIVEN);                    /* no default: an error when it is not given */
    double beta1 YK_DEFAULT(0.9), beta2 YK_DEFAULT(0.999); /* in [0, 1) */
    double eps YK_DEFAULT(1e-8);
    double weight_decay YK_DEFAULT(YK_NOT_GIVEN); /* not given: 0 for Adam, 1e-2 for AdamW */
    bool amsgrad YK_DEFAULT(false), maximize YK_DEFAULT(false);
    bool master_weights YK_DEFAULT(false);  /* f16 and bf16 parameters: see above */
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_adam_options;
#define yk_adam_options_DEFAULTS                                                                                       \
    .yk__mark = YK__MARK, .lr = YK_NOT_GIVEN, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = YK_NOT_GIVEN
YK_API yk_optimizer *yk_adam(yk_parameters *params, const yk_adam_options *options);
YK_API yk_optimizer *yk_adamw(yk_parameters *params, const yk_adam_options *options);

/* Adam for gradients by rows (yk_grad_rows), which alone it takes: it changes the rows that a gradient names, of the
 * parameter and of its moments, and no others. Source: torch.optim.SparseAdam. */
typedef struct yk_sparse_adam_options {
    double lr YK_DEFAULT(YK_NOT_GIVEN);                    /* no default: an error when it is not given */
    double beta1 YK_DEFAULT(0.9), beta2 YK_DEFAULT(0.999); /* in [0, 1) */
    double eps YK_DEFAULT(1e-8);                           /* above 0 */
    bool maximize YK_DEFAULT(false);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_sparse_adam_options;
#define yk_sparse_adam_options_DEFAULTS                                                                                \
    .yk__mark = YK__MARK, .lr = YK_NOT_GIVEN, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8
YK_API yk_optimizer *yk_sparse_adam(yk_parameters *params, const yk_sparse_adam_options *options);
YK_API yk_status yk_sparse_adam_add_group(yk_optimizer *o, yk_parameters *params,
                                          const yk_sparse_adam_options *options) YK_MUST_CHECK;

/* In C a state dict in place of the list is an error of the compiler's; its tensors are not the parameters. */
#if !defined(__cplusplus) && defined(__GNUC__)
#define YK__NO_PARAMETERS __attribute__((error("a state dict is no list of parameters: use yk_module_parameters")))
yk_optimizer *yk__sgd_of_state_dict(yk_state_dict *dict, const yk_sgd_options *options) YK__NO_PARAMETERS;
yk_optimizer *yk__sparse_adam_of_state_dict(yk_state_dict *dict,
                                            const yk_sparse_adam_options *options) YK__NO_PARAMETERS;
yk_optimizer *yk__adam_of_state_dict(yk_state_dict *dict, const yk_adam_options *options) YK__NO_PARAMETERS;
#define yk_sgd(params, ...)                                                                                            \
    _Generic((params), yk_state_dict * : yk__sgd_of_state_dict, default : yk_sgd)(params, __VA_ARGS__)
#define yk_adam(params, ...)                                                                                           \
    _Generic((params), yk_state_dict * : yk__adam_of_state_dict, default : yk_adam)(params, __VA_ARGS__)
#define yk_sparse_adam(params, ...)                                                                                    \
    _Generic((params), yk_state_dict * : yk__sparse_adam_of_state_dict, default : yk_sparse_adam)(params, __VA_ARGS__)
#define yk_adamw(params, ...)                                                                                          \
    _Generic((params), yk_state_dict * : yk__adam_of_state_dict, default : yk_adamw)(params, __VA_ARGS__)
#endif

/* Adds parameters with options of their own, to an optimizer of that kind; another is an error. A parameter that is in
 * the optimizer already is one too. Source: add_param_group. */
YK_API yk_status yk_sgd_add_group(yk_optimizer *o, yk_parameters *params, const yk_sgd_options *options) YK_MUST_CHECK;
YK_API yk_status yk_adam_add_group(yk_optimizer *o, yk_parameters *params,
                                   const yk_adam_options *options) YK_MUST_CHECK;
YK_API yk_status yk_adamw_add_group(yk_optimizer *o, yk_parameters *params,
                                    const yk_adam_options *options) YK_MUST_CHECK;
YK_API int yk_optimizer_group_count(const yk_optimizer *o) YK_QUESTION;
/* The parameters of a group, borrowed; NULL outside. */
YK_API yk_parameters *yk_optimizer_group(const yk_optimizer *o, int group) YK_QUESTION;

/* Changes every parameter that has a gradient; the others are left alone, their state too. Nothing is recorded. */
YK_API yk_status yk_optimizer_step(yk_optimizer *o) YK_MUST_CHECK;
/*
 * The step, which the device leaves out, the state and its number of steps with it, where *found, one int32 on the
 * device of all parameters that have a gradient, is not 0 when the step is carried out. The host does not wait for it:
 * a question for the number of steps, or for the state, does. Source: found_inf of torch's fused optimizers.
 */
YK_API yk_status yk_optimizer_step_unless(yk_optimizer *o, yk_tensor *found) YK_MUST_CHECK;
/* Drops the gradients of all parameters: the next backward sets them. */
YK_API void yk_optimizer_zero_grad(yk_optimizer *o);

/* The learning rate of a group (NaN outside); setting applies to one group, or to all for -1. */
YK_API double yk_optimizer_lr(const yk_optimizer *o, int group) YK_QUESTION;
YK_API yk_status yk_optimizer_set_lr(yk_optimizer *o, int group, double lr) YK_MUST_CHECK;

/* The state of a parameter, borrowed: "momentum_buffer" of SGD; "exp_avg", "exp_avg_sq", "max_exp_avg_sq" of Adam;
 * "master_weight" of both. NULL (no error is set) before the step that makes it. Shape and device of the parameter;
 * dtype as well, but f32 where there is a master weight. */
YK_API yk_tensor *yk_optimizer_state(const yk_optimizer *o, const yk_tensor *parameter, const char *name) YK_QUESTION;
/* The number of steps that have changed this parameter; 0 for one that is not in the optimizer. */
YK_API int64_t yk_optimizer_state_step(const yk_optimizer *o, const yk_tensor *parameter) YK_QUESTION;

/*
 * All state as one list of tensors. The state of each parameter, under its dotted name, as PyTorch has it under a
 * number: "state.fc.weight.momentum_buffer" (or exp_avg, exp_avg_sq, max_exp_avg_sq, master_weight), which share the
 * optimizer's memory, and "state.fc.weight.step", i64. Every group's numbers: "param_groups.0.lr", "...momentum",
 * "...betas" (2), f64; flags bool; "...params", i64, the number of its parameters; "...initial_lr" where there is a
 * schedule. Except for the parameters' state these are scalars. Source: Optimizer.state_dict.
 */
YK_API yk_state_dict *yk_optimizer_state_dict(const yk_optimizer *o);
/*
 * Copies such a list into an optimizer of the same kind with the same groups; numbers that the list has replace the
 * optimizer's own, state is cast and brought to its parameter's device, and a parameter without any in the list has
 * none afterwards. Names may have a "module." in front on either side. On an error nothing was changed. Source:
 * Optimizer.load_state_dict.
 */
YK_API yk_status yk_optimizer_load_state_dict(yk_optimizer *o, const yk_state_dict *dict) YK_MUST_CHECK;

/* One reference more, for a holder beyond the scope; one less. NULL is passed over. */
YK_API yk_optimizer *yk_optimizer_retain(yk_optimizer *o);
YK_API void yk_optimizer_release(yk_optimizer *o);

/* ---- schedules --------------------------------------------------------------------------------------------------- */
/*
 * A schedule sets every group's learning rate to a function of the group's first one (its rate when the optimizer's
 * first schedule was made) and of the number of schedule steps, t: to that of t + 1 at each yk_schedule_step. Where a
 * rate is another one, since the program set it, several schedules change it, or the group came later, a step
 * multiplies the rate that is there, as PyTorch's chainable forms do: so two schedules multiply, and a rate set by hand
 * goes on from there, also in a new schedule. yk_lambda_lr alone has no such form, as in PyTorch: it always starts from
 * the first rate. A schedule retains the optimizer.
 */
typedef struct yk_schedule yk_schedule;
/* lr gamma^floor(t / step_size); gamma here and below as it is given, at least 0: PyTorch's default is 0.1. */
YK_API yk_schedule *yk_step_lr(yk_optimizer *o, int64_t step_size, double gamma);
/* lr gamma^(number of milestones <= t); milestones that increase, copied; one that is named twice counts twice. */
YK_API yk_schedule *yk_multi_step_lr(yk_optimizer *o, const int64_t *milestones, int count, double gamma);
/* eta_min + (lr - eta_min) (1 + cos(pi t / t_max)) / 2. Source: CosineAnnealingLR. */
YK_API yk_schedule *yk_cosine_lr(yk_optimizer *o, int64_t t_max, double eta_min);
/* lr gamma^t. */
YK_API yk_schedule *yk_exponential_lr(yk_optimizer *o, double gamma);
/*
 * Rises in a straight line from start_factor, in [0, 1] (PyTorch's default is 1/3), times lr at t = 0 to lr at t =
 * steps; from there on `after` decides, as if it had begun then (NULL: lr stays). `after` belongs to this schedule from
 * now on: do not step it. Source: SequentialLR of LinearLR and the other.
 */
YK_API yk_schedule *yk_linear_warmup_lr(yk_optimizer *o, int64_t steps, double start_factor, yk_schedule *after);
/* lr fn(t, user). Source: LambdaLR. */
YK_API yk_schedule *yk_lambda_lr(yk_optimizer *o, double (*fn)(int64_t t, void *user), void *user);
/* Advances t by one. For NULL, as from a call that failed, only an error record remains (YK_ERR_ARGUMENT). */
YK_API void yk_schedule_step(yk_schedule *s);
/* t, and setting it, which sets the rates to the functions of t and of the first rates, whatever they are now. In a run
 * that goes on, checkpoints and yk_schedule_load_value keep the rates of the optimizer's state instead. */
YK_API int64_t yk_schedule_time(const yk_schedule *s) YK_QUESTION;
YK_API yk_status yk_schedule_set_time(yk_schedule *s, int64_t t) YK_MUST_CHECK;
/* The name of the schedule with its constants: "step_lr(step_size=30, gamma=0.1)"; written into `text`, which is
 * returned. Equal texts are equal functions, except for the function of a lambda_lr. */
YK_API const char *yk_schedule_describe(const yk_schedule *s, char *text, size_t size) YK_QUESTION;
YK_API yk_schedule *yk_schedule_retain(yk_schedule *s);
YK_API void yk_schedule_release(yk_schedule *s);

/* ---- loss scaling: small gradients kept above the numbers that float16 rounds to zero
 * ---------------------------------------- */
/* Disabled, the functions do what a program without a scaler does. */
typedef struct yk_grad_scaler_options {
    double init_scale YK_DEFAULT(65536);      /* above 0, a float32 */
    double growth_factor YK_DEFAULT(2);       /* above 1 */
    double backoff_factor YK_DEFAULT(0.5);    /* between 0 and 1 */
    int64_t growth_interval YK_DEFAULT(2000); /* at least 1 */
    bool enabled YK_DEFAULT(true);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_grad_scaler_options;
#define yk_grad_scaler_options_DEFAULTS                                                                                \
    .yk__mark = YK__MARK, .init_scale = 65536, .growth_factor = 2, .backoff_factor = 0.5, .growth_interval = 2000,     \
    .enabled = true
/*
 * Multiplies the loss by a factor, and divides the gradients by it after backward. Where one of them is not finite the
 * step is left out and the factor multiplied by backoff_factor; after growth_interval steps in a row that were taken it
 * is multiplied by growth_factor. Source: torch.amp.GradScaler.
 *
 *     yk_backward(yk_grad_scaler_scale(s, loss)); yk_grad_scaler_step(s, o, NULL); yk_grad_scaler_update(s);
 */
typedef struct yk_grad_scaler yk_grad_scaler;
YK_API yk_grad_scaler *yk_grad_scaler_create(const yk_grad_scaler_options *options);
/* loss times the factor: recorded; float32 for a float16 or bfloat16 loss. Disabled: the loss itself. The factor lies
 * in the memory of the first loss's device, where an update writes it: backward comes before the update. */
YK_API yk_tensor *yk_grad_scaler_scale(const yk_grad_scaler *s, yk_tensor *loss);
/* Divides the optimizer's gradients by the factor, once between updates: to clip them before the step, which does it
 * otherwise. Source: unscale_. */
YK_API yk_status yk_grad_scaler_unscale(yk_grad_scaler *s, yk_optimizer *o) YK_MUST_CHECK;
/* The optimizer's step, unless a gradient is not finite; *skipped (may be NULL) tells. Once between updates; an error
 * where no parameter has a gradient. Where all gradients are on one GPU and `skipped` is NULL the host does not wait
 * for it: the step is yk_optimizer_step_unless. */
YK_API yk_status yk_grad_scaler_step(yk_grad_scaler *s, yk_optimizer *o, bool *skipped) YK_MUST_CHECK;
/* Changes the factor by the gradients that the steps since the last update found; an error where none looked at
 * gradients. */
YK_API yk_status yk_grad_scaler_update(yk_grad_scaler *s) YK_MUST_CHECK;
YK_API bool yk_grad_scaler_enabled(const yk_grad_scaler *s) YK_QUESTION;

/* The state that a resumed run needs, taken after an update; the scale is a float32. Waits for a GPU that has updated
 * it. Source: GradScaler.state_dict. */
typedef struct yk_grad_scaler_state {
    double scale, growth_factor, backoff_factor;
    int64_t growth_interval;
    int64_t growth_tracker; /* steps taken since the factor changed */
} yk_grad_scaler_state;
YK_API yk_grad_scaler_state yk_grad_scaler_get_state(const yk_grad_scaler *s) YK_QUESTION;
YK_API yk_status yk_grad_scaler_set_state(yk_grad_scaler *s, const yk_grad_scaler_state *state) YK_MUST_CHECK;
YK_API yk_grad_scaler *yk_grad_scaler_retain(yk_grad_scaler *s);
YK_API void yk_grad_scaler_release(yk_grad_scaler *s);

/* ---- clipping: parameters without a gradient are passed over ----------------------------------------------------- */
/* Multiplies all gradients by min(1, max_norm / (norm + 1e-6)), where norm is the 2-norm of all of them together; it
 * goes to *total unless that is NULL. A norm that is not finite makes the gradients NaN or zero, as in PyTorch: check
 * *total. Where all gradients are on one GPU the host waits for it only for *total. Source: clip_grad_norm_. */
YK_API yk_status yk_clip_grad_norm(const yk_parameters *params, double max_norm, double *total) YK_MUST_CHECK;
/* Brings every element into [-limit, limit]. Source: clip_grad_value_. */
YK_API yk_status yk_clip_grad_value(const yk_parameters *params, double limit) YK_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
