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
    double lr YK_DEFAULT(YK_NOT_GIVEN);           /* no default: an error when it is not given */
    double momentum YK_DEFAULT(YK_NOT_GIVEN);     /* not given: 0 */
    double dampening YK_DEFAULT(YK_NOT_GIVEN);    /* not given: 0 */
    double weight_decay YK_DEFAULT(YK_NOT_GIVEN); /* not given: 0 */
    bool nesterov YK_DEFAULT(false), maximize YK_DEFAULT(false);
    bool master_weights YK_DEFAULT(false);  /* f16 and bf16 parameters: see above */
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_sgd_options;
#define yk_sgd_options_DEFAULTS                                                                                        \
    .yk__mark = YK__MARK, .lr = YK_NOT_GIVEN, .momentum = YK_NOT_GIVEN, .dampening = YK_NOT_GIVEN,                     \
    .weight_decay = YK_NOT_GIVEN
/* The list is read once; every parameter must be a leaf, and one of them require a gradient. */
YK_API yk_optimizer *yk_sgd(yk_parameters *params, const yk_sgd_options *options);

/* Source: Kingma and Ba, 2015; Loshchilov and Hutter, 2019. */
typedef struct yk_adam_options {
    double lr YK_DEFAULT(YK_NOT_GIVEN);           /* no default: an error when it is not given */
    double beta1 YK_DEFAULT(YK_NOT_GIVEN);        /* in [0, 1); not given: 0.9 */
    double beta2 YK_DEFAULT(YK_NOT_GIVEN);        /* in [0, 1); not given: 0.999 */
    double eps YK_DEFAULT(YK_NOT_GIVEN);          /* not given: 1e-8 */
    double weight_decay YK_DEFAULT(YK_NOT_GIVEN); /* not given: 0 for Adam, 1e-2 for AdamW */
    bool amsgrad YK_DEFAULT(false), maximize YK_DEFAULT(false);
    bool master_weights YK_DEFAULT(false);  /* f16 and bf16 parameters: see above */
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_adam_options;
#define yk_adam_options_DEFAULTS                                                                                       \
    .yk__mark = YK__MARK, .lr = YK_NOT_GIVEN, .beta1 = YK_NOT_GIVEN, .beta2 = YK_NOT_GIVEN, .eps = YK_NOT_GIVEN,       \
    .weight_decay = YK_NOT_GIVEN
YK_API yk_optimizer *yk_adam(yk_parameters *params, const yk_adam_options *options);
YK_API yk_optimizer *yk_adamw(yk_parameters *params, const yk_adam_options *options);

/* ---- other rules: g = grad (negated if maximize) + weight_decay p ---- */
/* s = alpha s + (1 - alpha) g^2;  centered: a = alpha a + (1 - alpha) g, else a = 0;  d = g / (sqrt(s - a^2) + eps);
 * with a momentum: d = b = momentum b + d;  p -= lr d. Source: Hinton, 2012; Graves, 2013 (centered). */
typedef struct yk_rmsprop_options {
    double lr YK_DEFAULT(YK_NOT_GIVEN);           /* not given: 1e-2 */
    double alpha YK_DEFAULT(YK_NOT_GIVEN);        /* not given: 0.99 */
    double eps YK_DEFAULT(YK_NOT_GIVEN);          /* not given: 1e-8 */
    double weight_decay YK_DEFAULT(YK_NOT_GIVEN); /* not given: 0 */
    double momentum YK_DEFAULT(YK_NOT_GIVEN);     /* not given: 0 */
    bool centered YK_DEFAULT(false), maximize YK_DEFAULT(false);
    bool master_weights YK_DEFAULT(false);  /* f16 and bf16 parameters: see above */
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_rmsprop_options;
#define yk_rmsprop_options_DEFAULTS                                                                                    \
    .yk__mark = YK__MARK, .lr = YK_NOT_GIVEN, .alpha = YK_NOT_GIVEN, .eps = YK_NOT_GIVEN,                              \
    .weight_decay = YK_NOT_GIVEN, .momentum = YK_NOT_GIVEN
YK_API yk_optimizer *yk_rmsprop(yk_parameters *params, const yk_rmsprop_options *options);

/* s += g^2, from initial_accumulator_value;  p -= lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps). Source: Duchi, Hazan
 * and Singer, 2011. */
typedef struct yk_adagrad_options {
    double lr YK_DEFAULT(YK_NOT_GIVEN);                        /* not given: 1e-2 */
    double lr_decay YK_DEFAULT(YK_NOT_GIVEN);                  /* not given: 0 */
    double weight_decay YK_DEFAULT(YK_NOT_GIVEN);              /* not given: 0 */
    double initial_accumulator_value YK_DEFAULT(YK_NOT_GIVEN); /* not given: 0 */
    double eps YK_DEFAULT(YK_NOT_GIVEN);                       /* not given: 1e-10 */
    bool maximize YK_DEFAULT(false);
    bool master_weights YK_DEFAULT(false);  /* f16 and bf16 parameters: see above */
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_adagrad_options;
#define yk_adagrad_options_DEFAULTS                                                                                    \
    .yk__mark = YK__MARK, .lr = YK_NOT_GIVEN, .lr_decay = YK_NOT_GIVEN, .weight_decay = YK_NOT_GIVEN,                  \
    .initial_accumulator_value = YK_NOT_GIVEN, .eps = YK_NOT_GIVEN
YK_API yk_optimizer *yk_adagrad(yk_parameters *params, const yk_adagrad_options *options);

/* s = rho s + (1 - rho) g^2;  d = sqrt(a + eps) / sqrt(s + eps) g;  a = rho a + (1 - rho) d^2;  p -= lr d. Source:
 * Zeiler, 2012. */
typedef struct yk_adadelta_options {
    double lr YK_DEFAULT(YK_NOT_GIVEN);           /* not given: 1 */
    double rho YK_DEFAULT(YK_NOT_GIVEN);          /* in [0, 1]; not given: 0.9 */
    double eps YK_DEFAULT(YK_NOT_GIVEN);          /* not given: 1e-6 */
    double weight_decay YK_DEFAULT(YK_NOT_GIVEN); /* not given: 0 */
    bool maximize YK_DEFAULT(false);
    bool master_weights YK_DEFAULT(false);  /* f16 and bf16 parameters: see above */
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_adadelta_options;
#define yk_adadelta_options_DEFAULTS                                                                                   \
    .yk__mark = YK__MARK, .lr = YK_NOT_GIVEN, .rho = YK_NOT_GIVEN, .eps = YK_NOT_GIVEN, .weight_decay = YK_NOT_GIVEN
YK_API yk_optimizer *yk_adadelta(yk_parameters *params, const yk_adadelta_options *options);

/* m = beta1 m + (1 - beta1) g;  u = max(beta2 u, |g| + eps);  p -= lr / (1 - beta1^t) m / u. Source: Kingma and Ba,
 * 2015. */
typedef struct yk_adamax_options {
    double lr YK_DEFAULT(YK_NOT_GIVEN);           /* not given: 2e-3 */
    double beta1 YK_DEFAULT(YK_NOT_GIVEN);        /* in [0, 1); not given: 0.9 */
    double beta2 YK_DEFAULT(YK_NOT_GIVEN);        /* in [0, 1); not given: 0.999 */
    double eps YK_DEFAULT(YK_NOT_GIVEN);          /* not given: 1e-8 */
    double weight_decay YK_DEFAULT(YK_NOT_GIVEN); /* not given: 0 */
    bool maximize YK_DEFAULT(false);
    bool master_weights YK_DEFAULT(false);  /* f16 and bf16 parameters: see above */
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_adamax_options;
#define yk_adamax_options_DEFAULTS                                                                                     \
    .yk__mark = YK__MARK, .lr = YK_NOT_GIVEN, .beta1 = YK_NOT_GIVEN, .beta2 = YK_NOT_GIVEN, .eps = YK_NOT_GIVEN,       \
    .weight_decay = YK_NOT_GIVEN
YK_API yk_optimizer *yk_adamax(yk_parameters *params, const yk_adamax_options *options);

/* Adam with Nesterov's momentum, whose coefficient at step t is beta1 (1 - 0.96^(t momentum_decay) / 2). With
 * decoupled_weight_decay p is multiplied by 1 - lr weight_decay, as by AdamW. PyTorch's mu_product, the product of the
 * coefficients so far, is computed from the options and the number of steps, and is no state. Source: Dozat, 2016. */
typedef struct yk_nadam_options {
    double lr YK_DEFAULT(YK_NOT_GIVEN);             /* not given: 2e-3 */
    double beta1 YK_DEFAULT(YK_NOT_GIVEN);          /* in [0, 1); not given: 0.9 */
    double beta2 YK_DEFAULT(YK_NOT_GIVEN);          /* in [0, 1); not given: 0.999 */
    double eps YK_DEFAULT(YK_NOT_GIVEN);            /* not given: 1e-8 */
    double weight_decay YK_DEFAULT(YK_NOT_GIVEN);   /* not given: 0 */
    double momentum_decay YK_DEFAULT(YK_NOT_GIVEN); /* not given: 4e-3 */
    bool decoupled_weight_decay YK_DEFAULT(false), maximize YK_DEFAULT(false);
    bool master_weights YK_DEFAULT(false);  /* f16 and bf16 parameters: see above */
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_nadam_options;
#define yk_nadam_options_DEFAULTS                                                                                      \
    .yk__mark = YK__MARK, .lr = YK_NOT_GIVEN, .beta1 = YK_NOT_GIVEN, .beta2 = YK_NOT_GIVEN, .eps = YK_NOT_GIVEN,       \
    .weight_decay = YK_NOT_GIVEN, .momentum_decay = YK_NOT_GIVEN
YK_API yk_optimizer *yk_nadam(yk_parameters *params, const yk_nadam_options *options);

/* Adam that is rectified: its second moment is used once so many steps are behind it that its variance is known.
 * Source: Liu et al., 2020. */
typedef struct yk_radam_options {
    double lr YK_DEFAULT(YK_NOT_GIVEN);           /* not given: 1e-3 */
    double beta1 YK_DEFAULT(YK_NOT_GIVEN);        /* in [0, 1); not given: 0.9 */
    double beta2 YK_DEFAULT(YK_NOT_GIVEN);        /* in [0, 1); not given: 0.999 */
    double eps YK_DEFAULT(YK_NOT_GIVEN);          /* not given: 1e-8 */
    double weight_decay YK_DEFAULT(YK_NOT_GIVEN); /* not given: 0 */
    bool decoupled_weight_decay YK_DEFAULT(false), maximize YK_DEFAULT(false);
    bool master_weights YK_DEFAULT(false);  /* f16 and bf16 parameters: see above */
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_radam_options;
#define yk_radam_options_DEFAULTS                                                                                      \
    .yk__mark = YK__MARK, .lr = YK_NOT_GIVEN, .beta1 = YK_NOT_GIVEN, .beta2 = YK_NOT_GIVEN, .eps = YK_NOT_GIVEN,       \
    .weight_decay = YK_NOT_GIVEN
YK_API yk_optimizer *yk_radam(yk_parameters *params, const yk_radam_options *options);

/* Adam for gradients by rows (yk_grad_rows), which alone it takes: it changes the rows that a gradient names, of the
 * parameter and of its moments, and no others. Source: torch.optim.SparseAdam. */
typedef struct yk_sparse_adam_options {
    double lr YK_DEFAULT(YK_NOT_GIVEN);    /* no default: an error when it is not given */
    double beta1 YK_DEFAULT(YK_NOT_GIVEN); /* in [0, 1); not given: 0.9 */
    double beta2 YK_DEFAULT(YK_NOT_GIVEN); /* in [0, 1); not given: 0.999 */
    double eps YK_DEFAULT(YK_NOT_GIVEN);   /* above 0; not given: 1e-8 */
    bool maximize YK_DEFAULT(false);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_sparse_adam_options;
#define yk_sparse_adam_options_DEFAULTS                                                                                \
    .yk__mark = YK__MARK, .lr = YK_NOT_GIVEN, .beta1 = YK_NOT_GIVEN, .beta2 = YK_NOT_GIVEN, .eps = YK_NOT_GIVEN
YK_API yk_optimizer *yk_sparse_adam(yk_parameters *params, const yk_sparse_adam_options *options);
YK_API yk_status yk_sparse_adam_add_group(yk_optimizer *o, yk_parameters *params,
                                          const yk_sparse_adam_options *options) YK_MUST_CHECK;

/*
 * Momentum whose direction is made orthogonal, for matrices alone: b = momentum b + (1 - momentum) g, u = nesterov ? (1
 * - momentum) g + momentum b : b, and o is u with its singular values brought near 1 (ns_steps of Newton-Schulz with
 * the coefficients ns_a, ns_b, ns_c, in bf16); p = (1 - lr weight_decay) p - lr r o. Of a matrix (A,B) r is, by
 * adjust_lr_fn: sqrt(max(1, A / B)); 0.2 sqrt(max(A, B)), with which AdamW's rate and decay fit; sqrt(A / B). A
 * parameter that has not two dimensions is an error: biases, norms and embeddings are for another optimizer, yk_adamw
 * say. A step cannot be in a recording (yk_graph). Source: Jordan, 2024; torch.optim.Muon.
 */
typedef enum yk_muon_adjust {
    YK_MUON_ORIGINAL = 0,
    YK_MUON_MATCH_RMS_ADAMW,
    YK_MUON_SPECTRAL_UNCLAMPED
} yk_muon_adjust;
typedef struct yk_muon_options {
    double lr YK_DEFAULT(YK_NOT_GIVEN);           /* not given: 1e-3 */
    double weight_decay YK_DEFAULT(YK_NOT_GIVEN); /* not given: 0.1 */
    double momentum YK_DEFAULT(YK_NOT_GIVEN);     /* not given: 0.95 */
    bool nesterov YK_DEFAULT(true);
    double ns_a YK_DEFAULT(YK_NOT_GIVEN);      /* not given: 3.4445; ns_coefficients */
    double ns_b YK_DEFAULT(YK_NOT_GIVEN);      /* not given: -4.775 */
    double ns_c YK_DEFAULT(YK_NOT_GIVEN);      /* not given: 2.0315 */
    double eps YK_DEFAULT(YK_NOT_GIVEN);       /* not given: 1e-7; the least norm that u is divided by */
    int64_t ns_steps YK_DEFAULT(YK_NOT_GIVEN); /* below 100; not given: 5 */
    yk_muon_adjust adjust_lr_fn YK_DEFAULT(YK_MUON_ORIGINAL);
    bool master_weights YK_DEFAULT(false);  /* f16 and bf16 parameters: see above */
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_muon_options;
#define yk_muon_options_DEFAULTS                                                                                       \
    .yk__mark = YK__MARK, .lr = YK_NOT_GIVEN, .weight_decay = YK_NOT_GIVEN, .momentum = YK_NOT_GIVEN,                  \
    .nesterov = true, .ns_a = YK_NOT_GIVEN, .ns_b = YK_NOT_GIVEN, .ns_c = YK_NOT_GIVEN, .eps = YK_NOT_GIVEN,           \
    .ns_steps = YK_NOT_GIVEN
YK_API yk_optimizer *yk_muon(yk_parameters *params, const yk_muon_options *options);
YK_API yk_status yk_muon_add_group(yk_optimizer *o, yk_parameters *params,
                                   const yk_muon_options *options) YK_MUST_CHECK;

/*
 * A quasi-Newton method: up to max_iter iterations in each step, of which each goes along the gradient multiplied by
 * the inverse of a Hessian that the last history_size changes of the gradient give; with YK_STRONG_WOLFE as far as that
 * line search finds best, else lr times it. It ends early where the gradient's largest element is at most
 * tolerance_grad, or the step or the loss change by no more than tolerance_change, or the loss was evaluated max_eval
 * times. All parameters are one group, on one device, f32 or f64, and one vector in the state, which PyTorch keeps for
 * the first of them: "state.FIRST.d", "...prev_flat_grad" (numel), "...old_dirs", "...old_stps" (pairs, numel) and
 * numbers. It is stepped by yk_optimizer_step_closure alone. Source: Liu and Nocedal, 1989; torch.optim.LBFGS.
 */
typedef enum yk_line_search { YK_NO_LINE_SEARCH = 0, YK_STRONG_WOLFE } yk_line_search;
typedef struct yk_lbfgs_options {
    double lr YK_DEFAULT(YK_NOT_GIVEN);               /* not given: 1 */
    int64_t max_iter YK_DEFAULT(20);                  /* at least 1, as the next ones */
    int64_t max_eval YK_DEFAULT(YK_NOT_GIVEN);        /* not given: 5 max_iter / 4 */
    double tolerance_grad YK_DEFAULT(YK_NOT_GIVEN);   /* not given: 1e-7 */
    double tolerance_change YK_DEFAULT(YK_NOT_GIVEN); /* not given: 1e-9 */
    int64_t history_size YK_DEFAULT(100);
    yk_line_search line_search_fn YK_DEFAULT(YK_NO_LINE_SEARCH);
    bool maximize YK_DEFAULT(false);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_lbfgs_options;
#define yk_lbfgs_options_DEFAULTS                                                                                      \
    .yk__mark = YK__MARK, .lr = YK_NOT_GIVEN, .max_iter = 20, .max_eval = YK_NOT_GIVEN,                                \
    .tolerance_grad = YK_NOT_GIVEN, .tolerance_change = YK_NOT_GIVEN, .history_size = 100
YK_API yk_optimizer *yk_lbfgs(yk_parameters *params, const yk_lbfgs_options *options);

/* In C a state dict in place of the list is an error of the compiler's; its tensors are not the parameters. */
#if !defined(__cplusplus) && defined(__GNUC__)
#define YK__NO_PARAMETERS __attribute__((error("a state dict is no list of parameters: use yk_module_parameters")))
yk_optimizer *yk__sgd_of_state_dict(yk_state_dict *dict, const yk_sgd_options *options) YK__NO_PARAMETERS;
yk_optimizer *yk__sparse_adam_of_state_dict(yk_state_dict *dict,
                                            const yk_sparse_adam_options *options) YK__NO_PARAMETERS;
yk_optimizer *yk__adam_of_state_dict(yk_state_dict *dict, const yk_adam_options *options) YK__NO_PARAMETERS;
yk_optimizer *yk__rmsprop_of_state_dict(yk_state_dict *dict, const yk_rmsprop_options *options) YK__NO_PARAMETERS;
yk_optimizer *yk__adagrad_of_state_dict(yk_state_dict *dict, const yk_adagrad_options *options) YK__NO_PARAMETERS;
yk_optimizer *yk__adadelta_of_state_dict(yk_state_dict *dict, const yk_adadelta_options *options) YK__NO_PARAMETERS;
yk_optimizer *yk__adamax_of_state_dict(yk_state_dict *dict, const yk_adamax_options *options) YK__NO_PARAMETERS;
yk_optimizer *yk__nadam_of_state_dict(yk_state_dict *dict, const yk_nadam_options *options) YK__NO_PARAMETERS;
yk_optimizer *yk__radam_of_state_dict(yk_state_dict *dict, const yk_radam_options *options) YK__NO_PARAMETERS;
yk_optimizer *yk__muon_of_state_dict(yk_state_dict *dict, const yk_muon_options *options) YK__NO_PARAMETERS;
yk_optimizer *yk__lbfgs_of_state_dict(yk_state_dict *dict, const yk_lbfgs_options *options) YK__NO_PARAMETERS;
#define yk_sgd(params, ...)                                                                                            \
    _Generic((params), yk_state_dict * : yk__sgd_of_state_dict, default : yk_sgd)(params, __VA_ARGS__)
#define yk_adam(params, ...)                                                                                           \
    _Generic((params), yk_state_dict * : yk__adam_of_state_dict, default : yk_adam)(params, __VA_ARGS__)
#define yk_sparse_adam(params, ...)                                                                                    \
    _Generic((params), yk_state_dict * : yk__sparse_adam_of_state_dict, default : yk_sparse_adam)(params, __VA_ARGS__)
#define yk_adamw(params, ...)                                                                                          \
    _Generic((params), yk_state_dict * : yk__adam_of_state_dict, default : yk_adamw)(params, __VA_ARGS__)
#define yk_rmsprop(params, ...)                                                                                        \
    _Generic((params), yk_state_dict * : yk__rmsprop_of_state_dict, default : yk_rmsprop)(params, __VA_ARGS__)
#define yk_adagrad(params, ...)                                                                                        \
    _Generic((params), yk_state_dict * : yk__adagrad_of_state_dict, default : yk_adagrad)(params, __VA_ARGS__)
#define yk_adadelta(params, ...)                                                                                       \
    _Generic((params), yk_state_dict * : yk__adadelta_of_state_dict, default : yk_adadelta)(params, __VA_ARGS__)
#define yk_adamax(params, ...)                                                                                         \
    _Generic((params), yk_state_dict * : yk__adamax_of_state_dict, default : yk_adamax)(params, __VA_ARGS__)
#define yk_nadam(params, ...)                                                                                          \
    _Generic((params), yk_state_dict * : yk__nadam_of_state_dict, default : yk_nadam)(params, __VA_ARGS__)
#define yk_radam(params, ...)                                                                                          \
    _Generic((params), yk_state_dict * : yk__radam_of_state_dict, default : yk_radam)(params, __VA_ARGS__)
#define yk_muon(params, ...)                                                                                           \
    _Generic((params), yk_state_dict * : yk__muon_of_state_dict, default : yk_muon)(params, __VA_ARGS__)
#define yk_lbfgs(params, ...)                                                                                          \
    _Generic((params), yk_state_dict * : yk__lbfgs_of_state_dict, default : yk_lbfgs)(params, __VA_ARGS__)
#endif

/*
 * Adds parameters with options of their own, to an optimizer of that kind; another is an error. A parameter that is in
 * the optimizer already is one too. Numbers that are not given, and with NULL the flags as well, are those that the
 * optimizer was made with. Source: add_param_group.
 */
YK_API yk_status yk_sgd_add_group(yk_optimizer *o, yk_parameters *params, const yk_sgd_options *options) YK_MUST_CHECK;
YK_API yk_status yk_adam_add_group(yk_optimizer *o, yk_parameters *params,
                                   const yk_adam_options *options) YK_MUST_CHECK;
YK_API yk_status yk_adamw_add_group(yk_optimizer *o, yk_parameters *params,
                                    const yk_adam_options *options) YK_MUST_CHECK;
YK_API yk_status yk_rmsprop_add_group(yk_optimizer *o, yk_parameters *params,
                                      const yk_rmsprop_options *options) YK_MUST_CHECK;
YK_API yk_status yk_adagrad_add_group(yk_optimizer *o, yk_parameters *params,
                                      const yk_adagrad_options *options) YK_MUST_CHECK;
YK_API yk_status yk_adadelta_add_group(yk_optimizer *o, yk_parameters *params,
                                       const yk_adadelta_options *options) YK_MUST_CHECK;
YK_API yk_status yk_adamax_add_group(yk_optimizer *o, yk_parameters *params,
                                     const yk_adamax_options *options) YK_MUST_CHECK;
YK_API yk_status yk_nadam_add_group(yk_optimizer *o, yk_parameters *params,
                                    const yk_nadam_options *options) YK_MUST_CHECK;
YK_API yk_status yk_radam_add_group(yk_optimizer *o, yk_parameters *params,
                                    const yk_radam_options *options) YK_MUST_CHECK;
/* The same for an optimizer of any kind, with all options that it was made with: yk_optimizer_set_option changes them.
 */
YK_API yk_status yk_optimizer_add_group(yk_optimizer *o, yk_parameters *params) YK_MUST_CHECK;
YK_API int yk_optimizer_group_count(const yk_optimizer *o) YK_QUESTION;
/* The parameters of a group, borrowed; NULL outside. */
YK_API yk_parameters *yk_optimizer_group(const yk_optimizer *o, int group) YK_QUESTION;

/* Changes every parameter that has a gradient; the others are left alone, their state too. Nothing is recorded. */
YK_API yk_status yk_optimizer_step(yk_optimizer *o) YK_MUST_CHECK;
/*
 * A step by a function that zeroes the gradients, computes the loss, one number, takes it backward and returns it, or
 * NULL with an error record. It is called with recording on, in a scope that ends behind it: once by all optimizers but
 * yk_lbfgs, which calls it several times and moves the parameters in between. *loss (may be NULL) is that of the first
 * call. On an error of the function a line search puts the parameters back where it began. Source:
 * optimizer.step(closure).
 */
typedef yk_tensor *(*yk_closure_fn)(void *user);
YK_API yk_status yk_optimizer_step_closure(yk_optimizer *o, yk_closure_fn closure, void *user,
                                           double *loss) YK_MUST_CHECK;
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

/*
 * An option of a group, by the name that it has in the options ("lr", "weight_decay", "beta1"); a flag is 0 or 1. For a
 * name that is none of them, which the error says with the nearest one, or a group that is not there: NaN. Setting
 * applies to one group, or to all for -1, and checks the number as the constructor does; what decides which state there
 * is (a momentum or none, centered, amsgrad) is fixed once a step was taken. Source: param_groups[group][name].
 */
YK_API double yk_optimizer_option(const yk_optimizer *o, int group, const char *name);
YK_API yk_status yk_optimizer_set_option(yk_optimizer *o, int group, const char *name, double value) YK_MUST_CHECK;

/* The state of a parameter, borrowed: "momentum_buffer" of SGD; "exp_avg", "exp_avg_sq", "max_exp_avg_sq" of Adam;
 * "square_avg", "momentum_buffer", "grad_avg" of RMSprop; "sum" of Adagrad; "square_avg", "acc_delta" of Adadelta;
 * "exp_avg", "exp_inf" of Adamax; "exp_avg", "exp_avg_sq" of NAdam and RAdam; "momentum_buffer" of Muon;
 * "master_weight" of all. NULL (no error is set) before the step that makes it. Shape and device of the parameter;
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
/* lr times a factor that goes in a straight line from start_factor, above 0 (PyTorch's default is 1/3), to end_factor
 * (1), both at most 1, in total_iters (5) steps, and stays. Source: LinearLR. */
YK_API yk_schedule *yk_linear_lr(yk_optimizer *o, double start_factor, double end_factor, int64_t total_iters);
/* lr factor, in [0, 1] (1/3), until t = total_iters (5), lr from there on. Source: ConstantLR. */
YK_API yk_schedule *yk_constant_lr(yk_optimizer *o, double factor, int64_t total_iters);
/* lr (1 - min(t, total_iters) / total_iters)^power; PyTorch's defaults are 5 and 1. Source: PolynomialLR. */
YK_API yk_schedule *yk_polynomial_lr(yk_optimizer *o, int64_t total_iters, double power);
/* A half of a cosine from lr to eta_min (0), in t_0 steps, then again from lr, each time t_mult (1) times as long.
 * Source: CosineAnnealingWarmRestarts. */
YK_API yk_schedule *yk_cosine_warm_restarts_lr(yk_optimizer *o, int64_t t_0, int64_t t_mult, double eta_min);
/* From lr to swa_lr, for all groups, in anneal_epochs steps (10), along half a cosine or, where linear is true, a
 * straight line, and stays. It starts from the rate that is there at its first step, so another schedule may have been
 * stepped until then. Source: SWALR. */
YK_API yk_schedule *yk_swa_lr(yk_optimizer *o, double swa_lr, int64_t anneal_epochs, bool linear);

/*
 * From max_lr / div_factor up to max_lr in the first pct_start of the steps, then down to that divided by
 * final_div_factor, whatever the optimizer's rate is; with three_phase first back to where it began. The momentum
 * (beta1 where the optimizer has betas) moves the other way, from max_momentum to base_momentum and back: SGD that has
 * taken steps without a momentum cannot get one. Lines are halves of a cosine, or straight. A step beyond total_steps
 * is an error. Source: OneCycleLR.
 */
typedef struct yk_one_cycle_options {
    double pct_start YK_DEFAULT(0.3);
    bool linear YK_DEFAULT(false); /* anneal_strategy="linear" */
    bool three_phase YK_DEFAULT(false);
    bool cycle_momentum YK_DEFAULT(true);
    double base_momentum YK_DEFAULT(0.85), max_momentum YK_DEFAULT(0.95); /* in [0, 1) */
    double div_factor YK_DEFAULT(25), final_div_factor YK_DEFAULT(1e4);   /* above 0 */
    unsigned yk__mark YK_DEFAULT(YK__MARK);                               /* private */
} yk_one_cycle_options;
#define yk_one_cycle_options_DEFAULTS                                                                                  \
    .yk__mark = YK__MARK, .pct_start = 0.3, .cycle_momentum = true, .base_momentum = 0.85, .max_momentum = 0.95,       \
    .div_factor = 25, .final_div_factor = 1e4
YK_API yk_schedule *yk_one_cycle_lr(yk_optimizer *o, double max_lr, int64_t total_steps,
                                    const yk_one_cycle_options *options);

/*
 * Between base_lr and max_lr, up in step_size_up steps and down in step_size_down, whatever the optimizer's rate is.
 * Each cycle's height is half of the one before with YK_TRIANGULAR2, and gamma^t of max_lr - base_lr with YK_EXP_RANGE.
 * The momentum moves the other way, as that of yk_one_cycle_lr. Source: CyclicLR.
 */
typedef enum yk_cyclic_mode { YK_TRIANGULAR, YK_TRIANGULAR2, YK_EXP_RANGE } yk_cyclic_mode;
typedef struct yk_cyclic_options {
    int64_t step_size_up YK_DEFAULT(2000);
    int64_t step_size_down YK_DEFAULT(YK_NOT_GIVEN); /* not given: step_size_up */
    yk_cyclic_mode mode YK_DEFAULT(YK_TRIANGULAR);
    double gamma YK_DEFAULT(1);
    bool cycle_momentum YK_DEFAULT(true);
    double base_momentum YK_DEFAULT(0.8), max_momentum YK_DEFAULT(0.9); /* in [0, 1) */
    unsigned yk__mark YK_DEFAULT(YK__MARK);                             /* private */
} yk_cyclic_options;
#define yk_cyclic_options_DEFAULTS                                                                                     \
    .yk__mark = YK__MARK, .step_size_up = 2000, .step_size_down = YK_NOT_GIVEN, .gamma = 1, .cycle_momentum = true,    \
    .base_momentum = 0.8, .max_momentum = 0.9
YK_API yk_schedule *yk_cyclic_lr(yk_optimizer *o, double base_lr, double max_lr, const yk_cyclic_options *options);

/*
 * `count` schedules one after another: the first until t = milestones[0], and so on, each as if it had begun then from
 * the first rates; count - 1 milestones, which increase. The schedules belong to this one from now on: do not step
 * them. Those of ChainedScheduler are made side by side, and each is stepped. Source: SequentialLR.
 */
YK_API yk_schedule *yk_sequential_lr(yk_optimizer *o, yk_schedule *const *schedules, int count,
                                     const int64_t *milestones);
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

/*
 * Multiplies every group's rate by a factor once a number (a validation loss) has got no better for more than
 * `patience` steps in a row, which begin anew after `cooldown` further ones. Better is below best (1 - threshold), or,
 * where absolute is set, below best - threshold; with `max` above best (1 + threshold) or best + threshold. A number
 * that is NaN is not better. Rates stay at min_lr at least, and a change of no more than eps is none. Source:
 * ReduceLROnPlateau.
 */
typedef struct yk_plateau_options {
    bool max YK_DEFAULT(false);    /* mode="max" */
    double factor YK_DEFAULT(0.1); /* below 1 */
    int64_t patience YK_DEFAULT(10);
    double threshold YK_DEFAULT(1e-4);
    bool absolute YK_DEFAULT(false); /* threshold_mode="abs" */
    int64_t cooldown YK_DEFAULT(0);
    double min_lr YK_DEFAULT(0), eps YK_DEFAULT(1e-8);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_plateau_options;
#define yk_plateau_options_DEFAULTS .yk__mark = YK__MARK, .factor = 0.1, .patience = 10, .threshold = 1e-4, .eps = 1e-8
typedef struct yk_plateau yk_plateau;
YK_API yk_plateau *yk_reduce_lr_on_plateau(yk_optimizer *o, const yk_plateau_options *options);
/* One epoch with this number behind it. For NULL only an error record remains (YK_ERR_ARGUMENT). */
YK_API void yk_plateau_step(yk_plateau *p, double metric);
/* The state, PyTorch's numbers, which a checkpoint takes as values of its own: {"best", &state.best}. The rates are the
 * optimizer's. Before the first step `best` is infinite. */
typedef struct yk_plateau_state {
    double best, num_bad_epochs, cooldown_counter, last_epoch;
} yk_plateau_state;
YK_API yk_plateau_state yk_plateau_get_state(const yk_plateau *p) YK_QUESTION;
YK_API yk_status yk_plateau_set_state(yk_plateau *p, const yk_plateau_state *state) YK_MUST_CHECK;
YK_API yk_plateau *yk_plateau_retain(yk_plateau *p);
YK_API void yk_plateau_release(yk_plateau *p);

/* ---- averages of weights ----------------------------------------------------------------------------------------- */
/*
 * A module whose child "module" is a copy of the model (yk_module_copy) on its device, and whose forward is that one's.
 * Each update makes the copy's parameters averages of what the model's were in all updates: with a decay the first
 * ones, then decay times the average plus (1 - decay) times the model's (EMA), without one the mean, all with one
 * weight (SWA). Buffers are the model's at the last update; with use_buffers they are averaged likewise. The number of
 * updates is the buffer "n_averaged", so a state dict of it goes on, here and in PyTorch. Source: Izmailov et al.,
 * 2018; torch.optim.swa_utils.AveragedModel, get_ema_multi_avg_fn, get_swa_multi_avg_fn.
 */
typedef struct yk_averaged_model_options {
    double decay YK_DEFAULT(YK_NOT_GIVEN); /* in [0, 1]; not given: the mean */
    bool use_buffers YK_DEFAULT(false);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_averaged_model_options;
#define yk_averaged_model_options_DEFAULTS .yk__mark = YK__MARK, .decay = YK_NOT_GIVEN
YK_API yk_module *yk_averaged_model(yk_module *model, const yk_averaged_model_options *options);
/* Takes the model's values of now into the averages. Parameters are matched by their order, so the model may have been
 * wrapped since; another number or shape is an error, and changes nothing. Source: update_parameters. */
YK_API yk_status yk_averaged_model_update(yk_module *averaged, yk_module *model) YK_MUST_CHECK;

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
/* The same by another norm: norm_type is p, above 0, or INFINITY; the host waits for it. 2 is yk_clip_grad_norm.
 * Source: clip_grad_norm_(norm_type=p). */
YK_API yk_status yk_clip_grad_norm_type(const yk_parameters *params, double max_norm, double norm_type,
                                        double *total) YK_MUST_CHECK;
/* The norm of all gradients together, computed in f64; 0 where there are none. Source: get_total_norm of them. */
YK_API yk_status yk_get_total_norm(const yk_parameters *params, double norm_type, double *total) YK_MUST_CHECK;
/* Brings every element into [-limit, limit]. Source: clip_grad_value_. */
YK_API yk_status yk_clip_grad_value(const yk_parameters *params, double limit) YK_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
