/*
 * yoke/nn.h - modules: trees of layers with named parameters and buffers; state dicts; ready-made layers and models.
 *
 * Layer: nn. Modules, parameter lists and state dicts are counted and owned by the thread's current scope when made;
 * a parent retains its children. Names, defaults, shapes and initial distributions are those of torch.nn. Functions
 * given NULL because an earlier call failed return NULL and leave the error record alone.
 */
#ifndef YOKE_NN_H
#define YOKE_NN_H

#include <yoke/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- lists of named tensors -------------------------------------------------------------------------------------- */
/*
 * An ordered list of named tensors, each name once: a state dict, a list of parameters, the content of a checkpoint
 * file. It retains its tensors.
 */
typedef struct yk_state_dict yk_state_dict;
YK_API yk_state_dict *yk_state_dict_create(void);
/* Appends; the name is copied. A name that is there already is an error. NULL x: fails, leaving an earlier error. */
YK_API yk_status yk_state_dict_add(yk_state_dict *dict, const char *name, yk_tensor *x) YK_MUST_CHECK;
YK_API int64_t yk_state_dict_count(const yk_state_dict *dict) YK_QUESTION;
/* The i-th tensor and name, borrowed; NULL (no error is set) outside [0, count). */
YK_API yk_tensor *yk_state_dict_at(const yk_state_dict *dict, int64_t i) YK_QUESTION;
YK_API const char *yk_state_dict_name(const yk_state_dict *dict, int64_t i) YK_QUESTION;
/* The position of a name, -1 (no error is set) where it is not there. */
YK_API int64_t yk_state_dict_find(const yk_state_dict *dict, const char *name) YK_QUESTION;
/* The tensor of a name, borrowed; NULL where it is not there (YOKE_LOG=info tells the nearest). */
YK_API yk_tensor *yk_state_dict_get(const yk_state_dict *dict, const char *name) YK_QUESTION;
/* A description of the tensor that a file had under a name (with or without "module.") and the dict has not, as yoke
 * has no dtype for it: "complex64 tensor of shape (2, 3)"; NULL where nothing was left out there. Borrowed. */
YK_API const char *yk_state_dict_left_out(const yk_state_dict *dict, const char *name) YK_QUESTION;
YK_API yk_state_dict *yk_state_dict_retain(yk_state_dict *dict);
YK_API void yk_state_dict_release(yk_state_dict *dict);

/*
 * The list of parameters that an optimizer updates: the parameters themselves, with names. It is a type of its own,
 * because a state dict, whose tensors share the parameters' memory but are not the parameters, would train nothing.
 */
typedef struct yk_parameters yk_parameters;
/* An empty list, to be added to by hand: a tensor must be a leaf, its name new; the list retains it. */
YK_API yk_parameters *yk_parameters_create(void);
YK_API yk_status yk_parameters_add(yk_parameters *parameters, const char *name, yk_tensor *x) YK_MUST_CHECK;
/* The same as of a state dict: 0 for NULL; borrowed, NULL (no error is set) outside [0, count). */
YK_API int64_t yk_parameters_count(const yk_parameters *parameters) YK_QUESTION;
YK_API yk_tensor *yk_parameters_at(const yk_parameters *parameters, int64_t i) YK_QUESTION;
YK_API const char *yk_parameters_name(const yk_parameters *parameters, int64_t i) YK_QUESTION;
YK_API yk_parameters *yk_parameters_retain(yk_parameters *parameters);
YK_API void yk_parameters_release(yk_parameters *parameters);

/* ---- modules ----------------------------------------------------------------------------------------------------- */
typedef struct yk_module yk_module;

/*
 * The functions of a kind of module: forward or forward_list is needed, the rest may be NULL or 0. They run in a scope
 * of their own; what they return goes to the caller's scope, everything else that they made and backward does not need
 * dies with it.
 *
 * forward takes one tensor and returns one. forward_list takes n_inputs, of which some may be NULL where the module
 * says so (a mask, a state), and fills outputs[0] to outputs[n_outputs - 1]; how many are wanted is the caller's
 * choice, so a module need not compute what nobody asks for, and fails where it cannot give so many. A class with
 * forward_list alone serves one tensor for one as well.
 */
typedef struct yk_module_class {
    const char *name; /* "Linear", as printing shows it; static */
    size_t data_size; /* bytes of the module's own data, zeroed when it is made: yk_module_data */
    yk_tensor *(*forward)(yk_module *self, yk_tensor *x);
    yk_status (*forward_list)(yk_module *self, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs,
                              int n_outputs);
    void (*destroy)(yk_module *self); /* releases memory and objects that the data holds; children and tensors are
                                       * released by yoke */
    /* Writes the text between the parentheses of the printed module: "in_features=4, out_features=3". */
    void (*describe)(yk_module *self, char *buffer, size_t size);
    /* Writes the strides in which `parameter` should be kept for a dtype and device, dense ones, or returns false
     * (NULL: always) to keep its order of dimensions; asked when the module moves. */
    bool (*parameter_strides)(yk_module *self, const yk_tensor *parameter, yk_dtype dtype, yk_device device,
                              int64_t *stride);
} yk_module_class;

/* A new module, in training mode, without children. The class stays the caller's and must outlive the module. */
YK_API yk_module *yk_module_create(const yk_module_class *cls);
YK_API void *yk_module_data(yk_module *m) YK_QUESTION;
YK_API const yk_module_class *yk_module_class_of(const yk_module *m) YK_QUESTION;

/*
 * Add a child, a parameter (marked as requiring a gradient), a buffer (no gradient; part of the state dict unless
 * told otherwise) under a name without dots, and return it, borrowed. The module retains it. A tensor stays the same
 * object when the module moves to another device or dtype, so a module may keep the pointer in its data. A part of that
 * name that is there is replaced, as `net.fc = ...` does, and pointers to it in the module's data become pointers to
 * the new one: giving one layer the parameter of another shares it. An optimizer made before has the old one still.
 * A module to which something could not be added (an error, or NULL because of an earlier one) is incomplete:
 * yk_module_check and everything else that takes a module treat it as NULL, so a constructor that has its module
 * needs no check but the last: return yk_module_check(m);
 */
YK_API yk_module *yk_module_add(yk_module *parent, const char *name, yk_module *child);
YK_API yk_tensor *yk_module_add_parameter(yk_module *m, const char *name, yk_tensor *x);
YK_API yk_tensor *yk_module_add_buffer(yk_module *m, const char *name, yk_tensor *x);
YK_API yk_tensor *yk_module_add_temporary_buffer(yk_module *m, const char *name, yk_tensor *x); /* persistent=False */
/* m, or NULL if it is incomplete. */
YK_API yk_module *yk_module_check(yk_module *m);

/* The module's forward at x: in a scope of its own, with the module's path ("layer1.0.conv1: ") put before an error. */
YK_API yk_tensor *yk_forward(yk_module *m, yk_tensor *x);
/* The same for a module that takes or gives several: n_inputs tensors, NULL where the module allows it, for n_outputs,
 * at least one, which are written to outputs[] (owned by the scope; all NULL on failure). A NULL among the inputs right
 * after a failure, before anything else was made, is taken for the result that failed, and fails the call with that
 * error. */
YK_API yk_status yk_forward_list(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs,
                                 int n_outputs) YK_MUST_CHECK;

/*
 * Hooks around a module's forward, in the order of registering. One before may put other tensors into inputs[]; one
 * after sees the inputs that were taken and may put others into outputs[]. They run in the module's scope, which owns
 * what they make; a failure is the forward's. They may remove themselves or one another; one that is added takes part
 * from the next forward on. A batch norm with hooks is not fused with the module after it, so they see its own result.
 * `user` stays the caller's. register returns an id for yk_module_hook_remove, 0 on failure. Source:
 * Module.register_forward_pre_hook, register_forward_hook.
 */
typedef yk_status (*yk_forward_pre_hook)(yk_module *m, yk_tensor **inputs, int n_inputs, void *user);
typedef yk_status (*yk_forward_hook)(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs,
                                     int n_outputs, void *user);
YK_API uint64_t yk_module_register_forward_pre_hook(yk_module *m, yk_forward_pre_hook hook, void *user);
YK_API uint64_t yk_module_register_forward_hook(yk_module *m, yk_forward_hook hook, void *user);
YK_API yk_status yk_module_hook_remove(yk_module *m, uint64_t id) YK_MUST_CHECK;

/* Training or evaluation mode of the whole tree; new modules train. */
YK_API void yk_module_train(yk_module *m, bool training);
YK_API void yk_module_eval(yk_module *m);
YK_API bool yk_module_is_training(const yk_module *m) YK_QUESTION;
/* Move the parameters, buffers and gradients of the whole tree and return m; to_dtype changes floating tensors only.
 * The tensors stay the same objects: optimizers made before keep working. NULL and an error on failure. */
YK_API yk_module *yk_module_to(yk_module *m, yk_device device);
YK_API yk_module *yk_module_to_dtype(yk_module *m, yk_dtype dtype);
/* Drops every parameter's gradient. */
YK_API void yk_module_zero_grad(yk_module *m);
/* requires_grad of every parameter of the tree: freezing. */
YK_API yk_status yk_module_requires_grad(yk_module *m, bool requires_grad) YK_MUST_CHECK;

/* All parameters in registration order with dotted names ("layer1.0.conv1.weight"), a shared one once, under its
 * first name. Source: named_parameters. */
YK_API yk_parameters *yk_module_parameters(yk_module *m);
YK_API int64_t yk_module_parameter_count(yk_module *m) YK_QUESTION; /* numbers, not tensors */
/* A parameter or buffer by its dotted name, a module by its dotted path ("" is m itself); borrowed. Where there is
 * none: NULL (YOKE_LOG=info tells the nearest). */
YK_API yk_tensor *yk_module_get(yk_module *m, const char *name) YK_QUESTION;
YK_API yk_module *yk_module_get_module(yk_module *m, const char *path) YK_QUESTION;
YK_API int64_t yk_module_child_count(const yk_module *m) YK_QUESTION;
YK_API yk_module *yk_module_child(const yk_module *m, int64_t i) YK_QUESTION; /* borrowed; NULL outside */
YK_API const char *yk_module_child_name(const yk_module *m, int64_t i) YK_QUESTION;
/* Calls fn for every module of the tree, children before their parents; a failure ends it. Source: Module.apply. */
YK_API yk_status yk_module_apply(yk_module *m, yk_status (*fn)(yk_module *m, void *user), void *user) YK_MUST_CHECK;
/* Prints the tree as PyTorch's repr does. */
YK_API yk_status yk_module_print(FILE *to, yk_module *m) YK_MUST_CHECK;

/*
 * A module of the same kind and names, whose parameters and buffers have the same values in memory of their own,
 * without gradients; modes and hooks are the same. A part that stands in the tree twice does so in the copy. What a
 * module of the program's own keeps in its data is copied as it is, and its pointers, but those to its parts, are
 * shared: the original is retained for them. A module that yk_ddp or yk_data_parallel has wrapped is an error. Source:
 * copy.deepcopy.
 */
YK_API yk_module *yk_module_copy(yk_module *m);

/* One reference more, for a holder beyond the scope; one less. NULL is passed over. */
YK_API yk_module *yk_module_retain(yk_module *m);
YK_API void yk_module_release(yk_module *m);

/* ---- weights that are computed in each forward ------------------------------------------------------------------- */
/*
 * The weight `name` of m becomes original0 original1 / |original1|: of length original0 and in the direction of
 * original1, with a norm for each index of dimension dim. Both are parameters, called
 * "parametrizations.weight.original0" and so on below m; m has no parameter of the name any more, and each forward
 * computes it (yk_parametrized gives it). original1 is the parameter that was there. Make it before yk_ddp and the
 * optimizer. The module's forward finds the weight by the pointer to the parameter in its data, an LSTM, GRU or RNN by
 * its name; one that keeps none is an error, as is a forward in a second thread at once. Returns m, or NULL. Source:
 * Salimans and Kingma, 2016; torch.nn.utils.parametrizations.weight_norm.
 */
typedef struct yk_weight_norm_options {
    int dim YK_DEFAULT(0);                  /* -1: one norm of all elements, dim=None */
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_weight_norm_options;
#define yk_weight_norm_options_DEFAULTS .yk__mark = YK__MARK
YK_API yk_module *yk_weight_norm(yk_module *m, const char *name, const yk_weight_norm_options *options);
/*
 * Likewise the weight is "parametrizations.weight.original" divided by its largest singular value, as a matrix whose
 * rows are the indices of dimension dim. The buffers "parametrizations.weight.0._u" and "..._v" are nearer to its
 * vectors by n_power_iterations in each forward in training mode. A weight of one dimension is divided by its norm.
 * Source: Miyato et al., 2018; torch.nn.utils.parametrizations.spectral_norm.
 */
typedef struct yk_spectral_norm_options {
    int64_t n_power_iterations YK_DEFAULT(1); /* at most 10,000 */
    double eps YK_DEFAULT(1e-12);             /* above 0; the least norm that is divided by */
    int dim YK_DEFAULT(YK_NOT_GIVEN);         /* not given: 0; 1 of a transposed convolution */
    unsigned yk__mark YK_DEFAULT(YK__MARK);   /* private */
} yk_spectral_norm_options;
#define yk_spectral_norm_options_DEFAULTS                                                                              \
    .yk__mark = YK__MARK, .n_power_iterations = 1, .eps = 1e-12, .dim = YK_NOT_GIVEN
YK_API yk_module *yk_spectral_norm(yk_module *m, const char *name, const yk_spectral_norm_options *options);
/* The weight computed now, recorded. In training mode spectral_norm iterates for it, too. Source: module.weight. */
YK_API yk_tensor *yk_parametrized(yk_module *m, const char *name);
/* True if m computes the weight of this name, or for NULL any. Source: torch.nn.utils.parametrize.is_parametrized. */
YK_API bool yk_is_parametrized(const yk_module *m, const char *name) YK_QUESTION;
/* The weight is a parameter again: the computed one, or the original, which weight_norm has not, where
 * leave_parametrized is false. Source: torch.nn.utils.parametrize.remove_parametrizations. */
YK_API yk_status yk_remove_parametrizations(yk_module *m, const char *name, bool leave_parametrized) YK_MUST_CHECK;

/* ---- state dicts ------------------------------------------------------------------------------------------------- */
/* Parameters and persistent buffers under PyTorch's names, in its order; the tensors share the module's memory. */
YK_API yk_state_dict *yk_module_state_dict(yk_module *m);

typedef struct yk_load_options {
    bool strict YK_DEFAULT(true);           /* false: missing and unexpected names are reported, not an error */
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_load_options;
#define yk_load_options_DEFAULTS .yk__mark = YK__MARK, .strict = true
/* Names that the module has and the dict has not, and the other way round. */
typedef struct yk_load_report {
    int64_t missing_count, unexpected_count;
    char **missing, **unexpected;
} yk_load_report;
/*
 * Copies the values of `dict` into the module's tensors, cast to their dtypes, kept in their memory order and on their
 * devices. Shapes must be equal; floating values go to floating tensors and integers to integers. A name that is not
 * there is also looked for with a "module." in front (as DataParallel and DDP save) or without. A dict that has running
 * statistics of batch norms and no num_batches_tracked at all is of before PyTorch 0.4.1: these are not missing, and
 * stay as they are. On an error, which lists every missing and unexpected name and every mismatch, nothing was changed;
 * a missing one that a file had and yoke could not read is told so: "fc.weight (left out: complex64 tensor of shape (2,
 * 3))".
 * `report` may be NULL; it is set whenever missing or unexpected names exist or all is well, and emptied by
 * yk_load_report_clear.
 * Source: load_state_dict.
 */
YK_API yk_status yk_module_load_state_dict(yk_module *m, const yk_state_dict *dict, const yk_load_options *options,
                                           yk_load_report *report) YK_MUST_CHECK;
YK_API void yk_load_report_clear(yk_load_report *report);

/* ---- initialisation (no gradient is recorded); element i in C order depends on the generator alone, not on the
 * memory order. fan_in is the product of all sizes but the first, fan_out of all but the second. ------------------- */
YK_API yk_status yk_init_uniform(yk_tensor *x, double low, double high) YK_MUST_CHECK;
YK_API yk_status yk_init_normal(yk_tensor *x, double mean, double deviation) YK_MUST_CHECK;
YK_API yk_status yk_init_constant(yk_tensor *x, double value) YK_MUST_CHECK;
/* `slope` of a leaky ReLU; 0 is ReLU. Source: He et al., 2015; torch.nn.init.kaiming_*. */
YK_API yk_status yk_init_kaiming_uniform(yk_tensor *x, double slope, bool fan_out) YK_MUST_CHECK;
YK_API yk_status yk_init_kaiming_normal(yk_tensor *x, double slope, bool fan_out) YK_MUST_CHECK;
/* `gain` as it is given, at least 0; PyTorch's default is 1. Source: Glorot and Bengio, 2010; torch.nn.init.xavier_*.
 */
YK_API yk_status yk_init_xavier_uniform(yk_tensor *x, double gain) YK_MUST_CHECK;
YK_API yk_status yk_init_xavier_normal(yk_tensor *x, double gain) YK_MUST_CHECK;
/* A normal distribution of which values outside [a, b] are left out; PyTorch's defaults are 0, 1, -2, 2. Source:
 * trunc_normal_. */
YK_API yk_status yk_init_trunc_normal(yk_tensor *x, double mean, double deviation, double a, double b) YK_MUST_CHECK;
/*
 * gain (1 in PyTorch) times a matrix with orthonormal rows or, where x (rows, ...), flattened behind its first
 * dimension, has no more columns than rows, columns: of a matrix of normal numbers the Q of the QR decomposition whose
 * R has a positive diagonal. Computed by the host, in f64. Source: Saxe et al., 2014; orthogonal_.
 */
YK_API yk_status yk_init_orthogonal(yk_tensor *x, double gain) YK_MUST_CHECK;
/* Ones where row and column of x (rows, columns) are the same, else zeros. Source: eye_. */
YK_API yk_status yk_init_eye(yk_tensor *x) YK_MUST_CHECK;
/* The weight (out, in/groups, ...), of 3 to 5 dimensions, of a convolution that passes on as many channels as it can in
 * each of `groups` (1 in PyTorch) groups of outputs. Source: dirac_. */
YK_API yk_status yk_init_dirac(yk_tensor *x, int64_t groups) YK_MUST_CHECK;
/* Normal numbers, of which in each column of x (rows, columns) ceil(sparsity rows), chosen at random, are 0; sparsity
 * is in [0, 1], PyTorch's default deviation 0.01. Source: Martens, 2010; sparse_. */
YK_API yk_status yk_init_sparse(yk_tensor *x, double sparsity, double deviation) YK_MUST_CHECK;

/* ---- layers: options may be NULL. Shapes are those of the operation of the same name in yoke/ops.h. ------------- */
/*
 * Names: the constructor of a module without children, a layer, ends in _create, because the plain name is the
 * operation's: yk_conv2d computes, yk_conv2d_create makes the layer. A module that holds others (containers, wrappers,
 * models) has no operation of its name, and carries the plain name of PyTorch's class or function: yk_sequential,
 * yk_ddp, yk_resnet18. The options of yk_X_create are yk_X_options, of several kinds what their names share
 * (yk_pool2d_options); yk_conv2d_module_options, because yk_conv2d_options are the operation's.
 */
typedef struct yk_linear_options {
    bool bias YK_DEFAULT(true);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_linear_options;
#define yk_linear_options_DEFAULTS .yk__mark = YK__MARK, .bias = true
YK_API yk_module *yk_linear_create(int64_t in_features, int64_t out_features, const yk_linear_options *options);
/* yk_bilinear with weight (out_features, in1_features, in2_features), of two inputs (yk_forward_list); initially
 * uniform in +-1 / sqrt(in1_features). */
YK_API yk_module *yk_bilinear_create(int64_t in1_features, int64_t in2_features, int64_t out_features,
                                     const yk_linear_options *options);

/* A kernel of `kernel` x `kernel`, or of kernel_size where that is given; pairs are height, width; the single numbers
 * apply to numbers of a pair that are not given. */
typedef struct yk_conv2d_module_options {
    int64_t kernel_size[2] YK_DEFAULT(YK_NOT_GIVEN, YK_NOT_GIVEN);               /* not given: kernel, the argument */
    int64_t stride YK_DEFAULT(1), padding YK_DEFAULT(0), dilation YK_DEFAULT(1); /* padding: YK_PADDING_SAME, too */
    int64_t stride_size[2] YK_DEFAULT(YK_NOT_GIVEN, YK_NOT_GIVEN);               /* not given: stride */
    int64_t padding_size[2] YK_DEFAULT(YK_NOT_GIVEN, YK_NOT_GIVEN);              /* not given: padding */
    int64_t dilation_size[2] YK_DEFAULT(YK_NOT_GIVEN, YK_NOT_GIVEN);             /* not given: dilation */
    int64_t groups YK_DEFAULT(1);
    bool bias YK_DEFAULT(true);
    yk_pad_mode padding_mode YK_DEFAULT(YK_PAD_CONSTANT); /* "zeros" */
    unsigned yk__mark YK_DEFAULT(YK__MARK);               /* private */
} yk_conv2d_module_options;
#define yk_conv2d_module_options_DEFAULTS                                                                              \
    .yk__mark = YK__MARK, .kernel_size = {YK_NOT_GIVEN, YK_NOT_GIVEN}, .stride = 1, .dilation = 1,                     \
    .stride_size = {YK_NOT_GIVEN, YK_NOT_GIVEN}, .padding_size = {YK_NOT_GIVEN, YK_NOT_GIVEN},                         \
    .dilation_size = {YK_NOT_GIVEN, YK_NOT_GIVEN}, .groups = 1, .bias = true
YK_API yk_module *yk_conv2d_create(int64_t in_channels, int64_t out_channels, int64_t kernel,
                                   const yk_conv2d_module_options *options);

/* The other convolutions, along N dimensions: a kernel of `kernel` in each, or the first N of kernel_size; likewise the
 * rest. "weight" and "bias" are those of the operation of the name. */
typedef struct yk_conv_module_options {
    int64_t kernel_size[3] YK_DEFAULT(YK_NOT_GIVEN, YK_NOT_GIVEN, YK_NOT_GIVEN);   /* not given: kernel, the argument */
    int64_t stride YK_DEFAULT(1), padding YK_DEFAULT(0), dilation YK_DEFAULT(1);   /* padding: YK_PADDING_SAME, too */
    int64_t output_padding YK_DEFAULT(0);                                          /* transposed only */
    int64_t stride_size[3] YK_DEFAULT(YK_NOT_GIVEN, YK_NOT_GIVEN, YK_NOT_GIVEN);   /* not given: stride */
    int64_t padding_size[3] YK_DEFAULT(YK_NOT_GIVEN, YK_NOT_GIVEN, YK_NOT_GIVEN);  /* not given: padding */
    int64_t dilation_size[3] YK_DEFAULT(YK_NOT_GIVEN, YK_NOT_GIVEN, YK_NOT_GIVEN); /* not given: dilation */
    /* not given: output_padding */
    int64_t output_padding_size[3] YK_DEFAULT(YK_NOT_GIVEN, YK_NOT_GIVEN, YK_NOT_GIVEN);
    int64_t groups YK_DEFAULT(1);
    bool bias YK_DEFAULT(true);
    yk_pad_mode padding_mode YK_DEFAULT(YK_PAD_CONSTANT); /* "zeros", the only one of transposed ones */
    unsigned yk__mark YK_DEFAULT(YK__MARK);               /* private */
} yk_conv_module_options;
#define yk_conv_module_options_DEFAULTS                                                                                \
    .yk__mark = YK__MARK, .kernel_size = {YK_NOT_GIVEN, YK_NOT_GIVEN, YK_NOT_GIVEN}, .stride = 1, .dilation = 1,       \
    .stride_size = {YK_NOT_GIVEN, YK_NOT_GIVEN, YK_NOT_GIVEN},                                                         \
    .padding_size = {YK_NOT_GIVEN, YK_NOT_GIVEN, YK_NOT_GIVEN},                                                        \
    .dilation_size = {YK_NOT_GIVEN, YK_NOT_GIVEN, YK_NOT_GIVEN},                                                       \
    .output_padding_size = {YK_NOT_GIVEN, YK_NOT_GIVEN, YK_NOT_GIVEN}, .groups = 1, .bias = true
YK_API yk_module *yk_conv1d_create(int64_t in_channels, int64_t out_channels, int64_t kernel,
                                   const yk_conv_module_options *options);
YK_API yk_module *yk_conv3d_create(int64_t in_channels, int64_t out_channels, int64_t kernel,
                                   const yk_conv_module_options *options);
YK_API yk_module *yk_conv_transpose1d_create(int64_t in_channels, int64_t out_channels, int64_t kernel,
                                             const yk_conv_module_options *options);
YK_API yk_module *yk_conv_transpose2d_create(int64_t in_channels, int64_t out_channels, int64_t kernel,
                                             const yk_conv_module_options *options);
YK_API yk_module *yk_conv_transpose3d_create(int64_t in_channels, int64_t out_channels, int64_t kernel,
                                             const yk_conv_module_options *options);

typedef struct yk_batch_norm2d_options {
    double eps YK_DEFAULT(1e-5);     /* above 0 */
    double momentum YK_DEFAULT(0.1); /* of the running statistics, in [0, 1]; 0: they stay as they are */
    bool affine YK_DEFAULT(true), bias YK_DEFAULT(true), track_running_stats YK_DEFAULT(true);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_batch_norm2d_options;
#define yk_batch_norm2d_options_DEFAULTS                                                                               \
    .yk__mark = YK__MARK, .eps = 1e-5, .momentum = 0.1, .affine = true, .bias = true, .track_running_stats = true
YK_API yk_module *yk_batch_norm2d_create(int64_t features, const yk_batch_norm2d_options *options);
/* The same for inputs (N,C) or (N,C,L), and (N,C,D,H,W). */
typedef struct yk_batch_norm_module_options {
    double eps YK_DEFAULT(1e-5);     /* above 0 */
    double momentum YK_DEFAULT(0.1); /* of the running statistics, in [0, 1]; 0: they stay as they are */
    bool affine YK_DEFAULT(true), bias YK_DEFAULT(true), track_running_stats YK_DEFAULT(true);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_batch_norm_module_options;
#define yk_batch_norm_module_options_DEFAULTS                                                                          \
    .yk__mark = YK__MARK, .eps = 1e-5, .momentum = 0.1, .affine = true, .bias = true, .track_running_stats = true
YK_API yk_module *yk_batch_norm1d_create(int64_t features, const yk_batch_norm_module_options *options);
YK_API yk_module *yk_batch_norm3d_create(int64_t features, const yk_batch_norm_module_options *options);
/* A batch norm's forward and the operations after it in one pass: + residual (or NULL), then ReLU if asked for. */
YK_API yk_tensor *yk_batch_norm2d_forward(yk_module *batch_norm, yk_tensor *x, yk_tensor *residual, bool relu);

typedef struct yk_layer_norm_options {
    double eps YK_DEFAULT(1e-5);
    bool elementwise_affine YK_DEFAULT(true), bias YK_DEFAULT(true);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_layer_norm_options;
#define yk_layer_norm_options_DEFAULTS .yk__mark = YK__MARK, .eps = 1e-5, .elementwise_affine = true, .bias = true
YK_API yk_module *yk_layer_norm_create(int ndim, const int64_t *normalized_shape, const yk_layer_norm_options *options);

typedef struct yk_group_norm_options {
    double eps YK_DEFAULT(1e-5); /* at least 0 */
    bool affine YK_DEFAULT(true), bias YK_DEFAULT(true);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_group_norm_options;
#define yk_group_norm_options_DEFAULTS .yk__mark = YK__MARK, .eps = 1e-5, .affine = true, .bias = true
YK_API yk_module *yk_group_norm_create(int64_t num_groups, int64_t num_channels, const yk_group_norm_options *options);

/* Inputs (N,C,L), (N,C,H,W), (N,C,D,H,W), or without N. Without track_running_stats, in evaluation too, each input is
 * normalised by its own statistics. */
typedef struct yk_instance_norm_module_options {
    double eps YK_DEFAULT(1e-5);     /* above 0 */
    double momentum YK_DEFAULT(0.1); /* of the running statistics, in [0, 1] */
    bool affine YK_DEFAULT(false);
    bool bias YK_DEFAULT(true); /* where affine is set */
    bool track_running_stats YK_DEFAULT(false);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_instance_norm_module_options;
#define yk_instance_norm_module_options_DEFAULTS .yk__mark = YK__MARK, .eps = 1e-5, .momentum = 0.1, .bias = true
YK_API yk_module *yk_instance_norm1d_create(int64_t features, const yk_instance_norm_module_options *options);
YK_API yk_module *yk_instance_norm2d_create(int64_t features, const yk_instance_norm_module_options *options);
YK_API yk_module *yk_instance_norm3d_create(int64_t features, const yk_instance_norm_module_options *options);

typedef struct yk_rms_norm_options {
    double eps YK_DEFAULT(YK_NOT_GIVEN); /* not given: the epsilon of the dtype; else at least 0 */
    bool elementwise_affine YK_DEFAULT(true);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_rms_norm_options;
#define yk_rms_norm_options_DEFAULTS .yk__mark = YK__MARK, .eps = YK_NOT_GIVEN, .elementwise_affine = true
YK_API yk_module *yk_rms_norm_create(int ndim, const int64_t *normalized_shape, const yk_rms_norm_options *options);

YK_API yk_module *yk_local_response_norm_create(int64_t size, double alpha, double beta, double k); /* 1e-4, 0.75, 1 */

YK_API yk_module *yk_dropout_create(double p); /* 0 <= p <= 1, as it is given; PyTorch's default is 0.5 */
YK_API yk_module *yk_dropout1d_create(double p);
YK_API yk_module *yk_dropout2d_create(double p);
YK_API yk_module *yk_dropout3d_create(double p);
YK_API yk_module *yk_alpha_dropout_create(double p);
YK_API yk_module *yk_feature_alpha_dropout_create(double p);

typedef struct yk_embedding_options {
    /* Its row starts as zeros and gets no gradient; negative counts from the end; not given: none. */
    int64_t padding_idx YK_DEFAULT(YK_NOT_GIVEN);
    /* The weight's gradient is by rows (yk_grad_rows): for yk_sgd without momentum and weight decay, yk_adagrad without
     * weight decay, yk_sparse_adam. */
    bool sparse YK_DEFAULT(false);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_embedding_options;
#define yk_embedding_options_DEFAULTS .yk__mark = YK__MARK, .padding_idx = YK_NOT_GIVEN
YK_API yk_module *yk_embedding_create(int64_t count, int64_t dim, const yk_embedding_options *options);
typedef struct yk_embedding_bag_module_options {
    yk_bag_mode mode YK_DEFAULT(YK_BAG_MEAN);
    bool include_last_offset YK_DEFAULT(false);
    int64_t padding_idx YK_DEFAULT(YK_NOT_GIVEN); /* as for yk_embedding_options */
    bool sparse YK_DEFAULT(false);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_embedding_bag_module_options;
#define yk_embedding_bag_module_options_DEFAULTS .yk__mark = YK__MARK, .padding_idx = YK_NOT_GIVEN
/* yk_embedding_bag of index (B,N), or of index, offsets and per-sample weights, each of the last two may be NULL or
 * left out (yk_forward_list). */
YK_API yk_module *yk_embedding_bag_create(int64_t count, int64_t dim, const yk_embedding_bag_module_options *options);

/*
 * One step of a recurrent network: x (N, input_size), h and c (N, hidden_size), or NULL or left out for zeros, give h'
 * and, where two are wanted, c' (yk_forward_list). Parameters weight_ih, weight_hh, bias_ih, bias_hh with the gates in
 * the order i, f, g, o. Source: Hochreiter and Schmidhuber, 1997; torch.nn.LSTMCell.
 */
typedef struct yk_lstm_cell_options {
    bool bias YK_DEFAULT(true);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_lstm_cell_options;
#define yk_lstm_cell_options_DEFAULTS .yk__mark = YK__MARK, .bias = true
YK_API yk_module *yk_lstm_cell_create(int64_t input_size, int64_t hidden_size, const yk_lstm_cell_options *options);

/*
 * Whole sequences: x [, h_0 [, c_0]] give output [, h_n [, c_n]] (yk_forward_list); the states may be NULL for zeros. A
 * fourth input are the batch_sizes of a packed sequence (yk_forward_packed).
 * Shapes are yk_lstm's. Parameters weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, with the suffix _reverse for the
 * other direction, then _l1 and so on. Source: torch.nn.LSTM.
 */
typedef struct yk_lstm_module_options {
    int64_t num_layers YK_DEFAULT(1);
    bool bias YK_DEFAULT(true), batch_first YK_DEFAULT(false), bidirectional YK_DEFAULT(false);
    double dropout YK_DEFAULT(0);           /* of every layer's output but the last one's, in training; in [0, 1] */
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_lstm_module_options;
#define yk_lstm_module_options_DEFAULTS .yk__mark = YK__MARK, .num_layers = 1, .bias = true
YK_API yk_module *yk_lstm_create(int64_t input_size, int64_t hidden_size, const yk_lstm_module_options *options);

/* As yk_lstm_cell_create: x [, h] give h'. Gates in the order r, z, n. Source: Cho et al., 2014; torch.nn.GRUCell. */
typedef struct yk_gru_cell_options {
    bool bias YK_DEFAULT(true);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_gru_cell_options;
#define yk_gru_cell_options_DEFAULTS .yk__mark = YK__MARK, .bias = true
YK_API yk_module *yk_gru_cell_create(int64_t input_size, int64_t hidden_size, const yk_gru_cell_options *options);
/* Source: torch.nn.RNNCell. */
typedef struct yk_rnn_cell_options {
    bool bias YK_DEFAULT(true);
    yk_nonlinearity nonlinearity YK_DEFAULT(YK_NONLINEARITY_TANH);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_rnn_cell_options;
#define yk_rnn_cell_options_DEFAULTS .yk__mark = YK__MARK, .bias = true
YK_API yk_module *yk_rnn_cell_create(int64_t input_size, int64_t hidden_size, const yk_rnn_cell_options *options);

/* As yk_lstm_create, with one state: x [, h_0 [, batch_sizes]] give output [, h_n]. Source: torch.nn.GRU. */
typedef struct yk_gru_module_options {
    int64_t num_layers YK_DEFAULT(1);
    bool bias YK_DEFAULT(true), batch_first YK_DEFAULT(false), bidirectional YK_DEFAULT(false);
    double dropout YK_DEFAULT(0);           /* of every layer's output but the last one's, in training; in [0, 1] */
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_gru_module_options;
#define yk_gru_module_options_DEFAULTS .yk__mark = YK__MARK, .num_layers = 1, .bias = true
YK_API yk_module *yk_gru_create(int64_t input_size, int64_t hidden_size, const yk_gru_module_options *options);
/* Source: torch.nn.RNN. */
typedef struct yk_rnn_module_options {
    int64_t num_layers YK_DEFAULT(1);
    yk_nonlinearity nonlinearity YK_DEFAULT(YK_NONLINEARITY_TANH);
    bool bias YK_DEFAULT(true), batch_first YK_DEFAULT(false), bidirectional YK_DEFAULT(false);
    double dropout YK_DEFAULT(0);           /* of every layer's output but the last one's, in training; in [0, 1] */
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_rnn_module_options;
#define yk_rnn_module_options_DEFAULTS .yk__mark = YK__MARK, .num_layers = 1, .bias = true
YK_API yk_module *yk_rnn_create(int64_t input_size, int64_t hidden_size, const yk_rnn_module_options *options);

/*
 * An LSTM, GRU or RNN over a packed sequence (yk_pack_padded_sequence), whatever its batch_first: `output` has data of
 * its own and the other tensors of x. states[] are n_states first states (layers,N,hidden_size), h then c, NULL for
 * zeros, and ends[] n_ends last ones, those of each sequence's own last step, both in the order before packing.
 * output->data and ends[] are the scope's, all NULL on failure. Source: what torch.nn.LSTM does with a PackedSequence.
 */
YK_API yk_status yk_forward_packed(yk_module *m, const yk_packed_sequence *x, yk_tensor *const *states, int n_states,
                                   yk_packed_sequence *output, yk_tensor **ends, int n_ends) YK_MUST_CHECK;

/* The operation of the name, element by element; identity gives its input. */
YK_API yk_module *yk_relu_create(void);
YK_API yk_module *yk_gelu_create(void);
YK_API yk_module *yk_tanh_create(void);
YK_API yk_module *yk_sigmoid_create(void);
YK_API yk_module *yk_identity_create(void);
YK_API yk_module *yk_silu_create(void);
YK_API yk_module *yk_mish_create(void);
YK_API yk_module *yk_gelu_tanh_create(void); /* nn.GELU(approximate="tanh") */
YK_API yk_module *yk_relu6_create(void);
YK_API yk_module *yk_selu_create(void);
YK_API yk_module *yk_hardswish_create(void);
YK_API yk_module *yk_hardsigmoid_create(void);
YK_API yk_module *yk_log_sigmoid_create(void);
YK_API yk_module *yk_leaky_relu_create(double negative_slope);          /* 0.01 by default in PyTorch */
YK_API yk_module *yk_elu_create(double alpha);                          /* 1 */
YK_API yk_module *yk_softplus_create(double beta, double threshold);    /* 1, 20 */
YK_API yk_module *yk_prelu_create(int64_t num_parameters, double init); /* 1, 0.25; "weight" (num_parameters) */
YK_API yk_module *yk_glu_create(int dim);                               /* -1 */
YK_API yk_module *yk_softmax_create(int dim);
YK_API yk_module *yk_log_softmax_create(int dim);
YK_API yk_module *yk_threshold_create(double threshold, double value);
YK_API yk_module *yk_hardtanh_create(double min_val, double max_val); /* -1, 1 */
YK_API yk_module *yk_hardshrink_create(double lambd);                 /* 0.5 */
YK_API yk_module *yk_softshrink_create(double lambd);                 /* 0.5 */
YK_API yk_module *yk_tanhshrink_create(void);
YK_API yk_module *yk_softsign_create(void);
YK_API yk_module *yk_celu_create(double alpha);                /* 1 */
YK_API yk_module *yk_rrelu_create(double lower, double upper); /* 1/8, 1/3 */
YK_API yk_module *yk_softmin_create(int dim);
YK_API yk_module *yk_softmax2d_create(void); /* over the channels of (N,C,H,W) or (C,H,W) */
/* Any function of one tensor as a layer without parameters: yk_function_create(yk_square). */
typedef yk_tensor *(*yk_function)(yk_tensor *x);
YK_API yk_module *yk_function_create(yk_function function);
/* yk_interpolate and the shuffles as layers. */
YK_API yk_module *yk_upsample_create(const yk_upsample_options *options);
YK_API yk_module *yk_pixel_shuffle_create(int64_t upscale_factor);
YK_API yk_module *yk_pixel_unshuffle_create(int64_t downscale_factor);
YK_API yk_module *yk_channel_shuffle_create(int64_t groups);
/* yk_unfold and yk_fold as layers. */
YK_API yk_module *yk_unfold_create(const yk_fold_options *options);
YK_API yk_module *yk_fold_create(int64_t height, int64_t width, const yk_fold_options *options);
/* Every dimension but the first becomes one. */
YK_API yk_module *yk_flatten_create(void);
YK_API yk_module *yk_flatten_dims_create(int start_dim, int end_dim); /* those from start_dim to end_dim become one */
YK_API yk_module *yk_unflatten_create(int dim, int n_sizes, const int64_t *sizes);
/* yk_pad of the last 1, 2 or 3 dimensions, two widths for each, from the last one on: as nn.ConstantPad2d, ZeroPad2d
 * (of the value 0), ReflectionPad2d, ReplicationPad2d and CircularPad2d. */
YK_API yk_module *yk_pad_create(int dims, const int64_t *padding, yk_pad_mode mode, double value);
/* Layers of two inputs (yk_forward_list); dim 1, eps 1e-8; p 2, eps 1e-6. */
YK_API yk_module *yk_cosine_similarity_create(int dim, double eps);
YK_API yk_module *yk_pairwise_distance_create(double p, double eps, bool keepdim);
/* A window of kernel x kernel, or options->kernel (height, width) where that is given. */
YK_API yk_module *yk_max_pool2d_create(int64_t kernel, int64_t stride /* 0: kernel */,
                                       const yk_pool2d_options *options);
YK_API yk_module *yk_avg_pool2d_create(int64_t kernel, int64_t stride /* 0: kernel */,
                                       const yk_pool2d_options *options);
/* YK_NOT_GIVEN: the input's size; so for all adaptive ones. */
YK_API yk_module *yk_adaptive_avg_pool2d_create(int64_t height, int64_t width);
/* The same along one and three dimensions: `kernel` in each, or options->kernel. */
YK_API yk_module *yk_max_pool1d_create(int64_t kernel, int64_t stride /* 0: kernel */, const yk_pool_options *options);
YK_API yk_module *yk_max_pool3d_create(int64_t kernel, int64_t stride /* 0: kernel */, const yk_pool_options *options);
YK_API yk_module *yk_avg_pool1d_create(int64_t kernel, int64_t stride /* 0: kernel */, const yk_pool_options *options);
YK_API yk_module *yk_avg_pool3d_create(int64_t kernel, int64_t stride /* 0: kernel */, const yk_pool_options *options);
YK_API yk_module *yk_adaptive_avg_pool1d_create(int64_t length);
YK_API yk_module *yk_adaptive_avg_pool3d_create(int64_t depth, int64_t height, int64_t width);
YK_API yk_module *yk_adaptive_max_pool1d_create(int64_t length);
YK_API yk_module *yk_adaptive_max_pool2d_create(int64_t height, int64_t width);
YK_API yk_module *yk_adaptive_max_pool3d_create(int64_t depth, int64_t height, int64_t width);
/* yk_fractional_max_pool; two outputs are maxima and indices. */
YK_API yk_module *yk_fractional_max_pool2d_create(const yk_fractional_max_pool_options *options);
YK_API yk_module *yk_fractional_max_pool3d_create(const yk_fractional_max_pool_options *options);
/* yk_max_unpool of x and indices (yk_forward_list); yk_lp_pool. */
YK_API yk_module *yk_max_unpool1d_create(const yk_max_unpool_options *options);
YK_API yk_module *yk_max_unpool2d_create(const yk_max_unpool_options *options);
YK_API yk_module *yk_max_unpool3d_create(const yk_max_unpool_options *options);
YK_API yk_module *yk_lp_pool1d_create(double p, const yk_pool_options *options);
YK_API yk_module *yk_lp_pool2d_create(double p, const yk_pool_options *options);
YK_API yk_module *yk_lp_pool3d_create(double p, const yk_pool_options *options);
/* One after the other, named "0", "1", ...: yk_sequential(a, b). The list ends by itself; a NULL in it, of a module
 * that could not be made, is an error, and so is one at its end. A batch norm followed by a ReLU runs as one pass.
 * Arguments are made in an order that C leaves open, and so are their random values. `count` is that of the arguments.
 */
YK_API yk_module *yk_sequential_counted(int count, ...);
#define yk_sequential(...) yk_sequential_counted(YK__COUNT(yk_module *, __VA_ARGS__), __VA_ARGS__)
/* The same from an array; an empty one is allowed and is the identity. */
YK_API yk_module *yk_sequential_list(yk_module *const *modules, int count);

/* ---- attention and transformers --------------------------------------------------------------------------------- */
/*
 * query [, key, value [, key_padding_mask [, attn_mask]]] give the output and, where two are wanted, the weights
 * (yk_forward_list); a key that is NULL or left out is the query, a value the key. query (L,N,embed_dim), key
 * (S,N,kdim) and value (S,N,vdim), or (N,L,...) with batch_first, or all without N; the output is of query's shape.
 * key_padding_mask (N,S), or (S), and attn_mask (L,S) or (N num_heads,L,S) are bool, true where nobody may look, or
 * floating, added: the opposite of yk_scaled_dot_product_attention's. A query that may look at nothing attends to
 * zeros. The weights are (N,L,S), the mean of all heads, or (N,num_heads,L,S), after dropout; without them the matrix
 * is never in memory as a whole where dropout is 0. Parameters in_proj_weight (3 embed_dim, embed_dim), or
 * q_proj_weight, k_proj_weight and v_proj_weight, in_proj_bias, bias_k, bias_v, out_proj. Source: Vaswani et al., 2017;
 * torch.nn.MultiheadAttention.
 */
typedef struct yk_multihead_attention_options {
    double dropout YK_DEFAULT(0); /* of the weights, in training; in [0, 1] */
    bool bias YK_DEFAULT(true);
    bool add_bias_kv YK_DEFAULT(false), add_zero_attn YK_DEFAULT(false);  /* one key more, of parameters; of zeros */
    int64_t kdim YK_DEFAULT(YK_NOT_GIVEN), vdim YK_DEFAULT(YK_NOT_GIVEN); /* not given: embed_dim */
    bool batch_first YK_DEFAULT(false);
    bool average_attn_weights YK_DEFAULT(true);
    bool is_causal YK_DEFAULT(false);       /* query i looks at keys 0 to i, without a mask or beside one */
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_multihead_attention_options;
#define yk_multihead_attention_options_DEFAULTS                                                                        \
    .yk__mark = YK__MARK, .bias = true, .kdim = YK_NOT_GIVEN, .vdim = YK_NOT_GIVEN, .average_attn_weights = true
YK_API yk_module *yk_multihead_attention(int64_t embed_dim, int64_t num_heads,
                                         const yk_multihead_attention_options *options);

/* src [, src_mask [, src_key_padding_mask]] give one of src's shape; masks are yk_multihead_attention's. Source:
 * torch.nn.TransformerEncoderLayer. */
typedef struct yk_transformer_encoder_layer_options {
    int64_t dim_feedforward YK_DEFAULT(2048);
    double dropout YK_DEFAULT(0.1);          /* in [0, 1] */
    yk_function activation YK_DEFAULT(NULL); /* NULL: yk_relu */
    double layer_norm_eps YK_DEFAULT(1e-5);  /* at least 0 */
    bool batch_first YK_DEFAULT(false);      /* (N,T,d_model) in place of (T,N,d_model) */
    bool norm_first YK_DEFAULT(false);       /* before each part in place of after its sum */
    bool bias YK_DEFAULT(true);              /* of all linear layers and norms */
    bool is_causal YK_DEFAULT(false);        /* position i looks at 0 to i; src_mask need not be given */
    unsigned yk__mark YK_DEFAULT(YK__MARK);  /* private */
} yk_transformer_encoder_layer_options;
#define yk_transformer_encoder_layer_options_DEFAULTS                                                                  \
    .yk__mark = YK__MARK, .dim_feedforward = 2048, .dropout = 0.1, .layer_norm_eps = 1e-5, .bias = true
YK_API yk_module *yk_transformer_encoder_layer(int64_t d_model, int64_t nhead,
                                               const yk_transformer_encoder_layer_options *options);

/* tgt, memory [, tgt_mask [, memory_mask [, tgt_key_padding_mask [, memory_key_padding_mask]]]] give one of tgt's
 * shape. Source: torch.nn.TransformerDecoderLayer. */
typedef struct yk_transformer_decoder_layer_options {
    int64_t dim_feedforward YK_DEFAULT(2048);
    double dropout YK_DEFAULT(0.1);          /* in [0, 1] */
    yk_function activation YK_DEFAULT(NULL); /* NULL: yk_relu */
    double layer_norm_eps YK_DEFAULT(1e-5);  /* at least 0 */
    bool batch_first YK_DEFAULT(false), norm_first YK_DEFAULT(false), bias YK_DEFAULT(true);
    bool tgt_is_causal YK_DEFAULT(false), memory_is_causal YK_DEFAULT(false); /* as the encoder layer's is_causal */
    unsigned yk__mark YK_DEFAULT(YK__MARK);                                   /* private */
} yk_transformer_decoder_layer_options;
#define yk_transformer_decoder_layer_options_DEFAULTS                                                                  \
    .yk__mark = YK__MARK, .dim_feedforward = 2048, .dropout = 0.1, .layer_norm_eps = 1e-5, .bias = true
YK_API yk_module *yk_transformer_decoder_layer(int64_t d_model, int64_t nhead,
                                               const yk_transformer_decoder_layer_options *options);

/* num_layers copies of a layer, which is not one of them, in "layers", then `norm`, or NULL for none. They take what
 * their layers take. Source: torch.nn.TransformerEncoder, TransformerDecoder. */
YK_API yk_module *yk_transformer_encoder(yk_module *encoder_layer, int64_t num_layers, yk_module *norm);
YK_API yk_module *yk_transformer_decoder(yk_module *decoder_layer, int64_t num_layers, yk_module *norm);

/* src, tgt [, src_mask [, tgt_mask [, memory_mask [, src_key_padding_mask [, tgt_key_padding_mask [,
 * memory_key_padding_mask]]]]]] give one of tgt's shape. Source: Vaswani et al., 2017; torch.nn.Transformer. */
typedef struct yk_transformer_options {
    int64_t d_model YK_DEFAULT(512), nhead YK_DEFAULT(8);
    int64_t num_encoder_layers YK_DEFAULT(6), num_decoder_layers YK_DEFAULT(6); /* at least 0 */
    int64_t dim_feedforward YK_DEFAULT(2048);
    double dropout YK_DEFAULT(0.1);          /* in [0, 1] */
    yk_function activation YK_DEFAULT(NULL); /* NULL: yk_relu */
    double layer_norm_eps YK_DEFAULT(1e-5);  /* at least 0 */
    bool batch_first YK_DEFAULT(false), norm_first YK_DEFAULT(false), bias YK_DEFAULT(true);
    bool src_is_causal YK_DEFAULT(false), tgt_is_causal YK_DEFAULT(false), memory_is_causal YK_DEFAULT(false);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_transformer_options;
#define yk_transformer_options_DEFAULTS                                                                                \
    .yk__mark = YK__MARK, .d_model = 512, .nhead = 8, .num_encoder_layers = 6, .num_decoder_layers = 6,                \
    .dim_feedforward = 2048, .dropout = 0.1, .layer_norm_eps = 1e-5, .bias = true
YK_API yk_module *yk_transformer(const yk_transformer_options *options);
/* (size,size) of 0 and, above the diagonal, -INFINITY. Source: nn.Transformer.generate_square_subsequent_mask. */
YK_API yk_tensor *yk_generate_square_subsequent_mask(int64_t size, const yk_tensor_options *options);

/*
 * Modules that are kept and not run: a forward of theirs is an error. A ModuleList has children "0", "1", ...; their
 * number is yk_module_child_count, and yk_module_child gives the i-th. Source: torch.nn.ModuleList.
 */
YK_API yk_module *yk_module_list(yk_module *const *modules, int count);
/* Add a child at the end, or before the index-th, which moves on with those after it: their names change. `list` is a
 * ModuleList or a Sequential; index may count from the end, -1 being the last child, or be the number of children.
 * Return the child, borrowed. */
YK_API yk_module *yk_module_list_append(yk_module *list, yk_module *child);
YK_API yk_module *yk_module_list_insert(yk_module *list, int64_t index, yk_module *child);
/* The index-th child of such a module, from the end where it is negative, borrowed; NULL (no error is set) outside. */
YK_API yk_module *yk_module_list_get(const yk_module *list, int64_t index) YK_QUESTION;
/* Children by name; yk_module_add adds one or replaces it, yk_module_get_module gives it, yk_module_child_name lists
 * the names in order. Source: torch.nn.ModuleDict. */
YK_API yk_module *yk_module_dict(const char *const *names, yk_module *const *modules, int count);

/* ---- models ------------------------------------------------------------------------------------------------------ */
/* (N, ...) is flattened; ReLU between the layers. Names: fc1, fc2, ... */
typedef struct yk_mlp_options {
    int64_t in_features YK_DEFAULT(784), num_classes YK_DEFAULT(10);
    const int64_t *hidden YK_DEFAULT(NULL);    /* sizes of the hidden layers */
    int hidden_count YK_DEFAULT(YK_NOT_GIVEN); /* of them; not given, and no `hidden`: one of 128; 0: none */
    double dropout YK_DEFAULT(0);              /* after each ReLU, in [0, 1] */
    unsigned yk__mark YK_DEFAULT(YK__MARK);    /* private */
} yk_mlp_options;
#define yk_mlp_options_DEFAULTS                                                                                        \
    .yk__mark = YK__MARK, .in_features = 784, .num_classes = 10, .hidden_count = YK_NOT_GIVEN
YK_API yk_module *yk_mlp(const yk_mlp_options *options);

/* conv 6@5x5, pool, conv 16@5x5, pool, 120, 84, num_classes. Names: conv1, conv2, fc1, fc2, fc3. Images below 16x16
 * are too small. Source: LeCun et al., 1998, with ReLU and max pooling. */
typedef struct yk_lenet_options {
    int64_t in_channels YK_DEFAULT(1), image_size YK_DEFAULT(28), num_classes YK_DEFAULT(10);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_lenet_options;
#define yk_lenet_options_DEFAULTS .yk__mark = YK__MARK, .in_channels = 1, .image_size = 28, .num_classes = 10
YK_API yk_module *yk_lenet(const yk_lenet_options *options);

/* Names, shapes and initial distributions: torchvision.models.resnet18 to resnet152; any image size. Source: He et al.,
 * 2016. */
typedef struct yk_resnet_options {
    int64_t in_channels YK_DEFAULT(3);
    int64_t num_classes YK_DEFAULT(YK_NOT_GIVEN); /* not given: 1000; 10 with cifar */
    bool cifar YK_DEFAULT(false);                 /* a 3x3 stem of stride 1 and no first pool */
    /* Numbers of the 3x3 convolutions of bottlenecks, from resnet50 on: ResNeXt's and wide ResNets' numbers; at most
     * 4096. */
    int64_t groups YK_DEFAULT(1), width_per_group YK_DEFAULT(64);
    int64_t width YK_DEFAULT(64);           /* channels of the stem and the first stage; at most 4096 */
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_resnet_options;
#define yk_resnet_options_DEFAULTS                                                                                     \
    .yk__mark = YK__MARK, .in_channels = 3, .num_classes = YK_NOT_GIVEN, .groups = 1, .width_per_group = 64, .width = 64
YK_API yk_module *yk_resnet18(const yk_resnet_options *options);
YK_API yk_module *yk_resnet34(const yk_resnet_options *options);
YK_API yk_module *yk_resnet50(const yk_resnet_options *options);
YK_API yk_module *yk_resnet101(const yk_resnet_options *options);
YK_API yk_module *yk_resnet152(const yk_resnet_options *options);

/* Names, shapes and initial distributions: torchvision.models.vgg11 to vgg19, and vgg11_bn to vgg19_bn; images of at
 * least 32x32. Source: Simonyan and Zisserman, 2015. */
typedef struct yk_vgg_options {
    int64_t in_channels YK_DEFAULT(3), num_classes YK_DEFAULT(1000);
    bool batch_norm YK_DEFAULT(false);
    double dropout YK_DEFAULT(0.5);           /* of the classifier, in [0, 1] */
    int64_t width YK_DEFAULT(64);             /* channels of the first part */
    int64_t classifier_size YK_DEFAULT(4096); /* of the classifier's two hidden layers */
    unsigned yk__mark YK_DEFAULT(YK__MARK);   /* private */
} yk_vgg_options;
#define yk_vgg_options_DEFAULTS                                                                                        \
    .yk__mark = YK__MARK, .in_channels = 3, .num_classes = 1000, .dropout = 0.5, .width = 64, .classifier_size = 4096
YK_API yk_module *yk_vgg11(const yk_vgg_options *options);
YK_API yk_module *yk_vgg13(const yk_vgg_options *options);
YK_API yk_module *yk_vgg16(const yk_vgg_options *options);
YK_API yk_module *yk_vgg19(const yk_vgg_options *options);

/* Names, shapes and initial distributions: torchvision.models.mobilenet_v2; any image size. Source: Sandler et al.,
 * 2018. */
typedef struct yk_mobilenet_v2_options {
    int64_t in_channels YK_DEFAULT(3), num_classes YK_DEFAULT(1000);
    double dropout YK_DEFAULT(0.2);         /* before the classifier, in [0, 1] */
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_mobilenet_v2_options;
#define yk_mobilenet_v2_options_DEFAULTS .yk__mark = YK__MARK, .in_channels = 3, .num_classes = 1000, .dropout = 0.2
YK_API yk_module *yk_mobilenet_v2(const yk_mobilenet_v2_options *options);

/* Names, shapes and initial distributions: torchvision.models.efficientnet_b0; any image size. In training a block with
 * a shortcut is left out of an image with a probability that grows to stochastic_depth_prob at the end. Source: Tan and
 * Le, 2019. */
typedef struct yk_efficientnet_options {
    int64_t in_channels YK_DEFAULT(3), num_classes YK_DEFAULT(1000);
    double dropout YK_DEFAULT(0.2);               /* before the classifier, in [0, 1] */
    double stochastic_depth_prob YK_DEFAULT(0.2); /* in [0, 1] */
    unsigned yk__mark YK_DEFAULT(YK__MARK);       /* private */
} yk_efficientnet_options;
#define yk_efficientnet_options_DEFAULTS                                                                               \
    .yk__mark = YK__MARK, .in_channels = 3, .num_classes = 1000, .dropout = 0.2, .stochastic_depth_prob = 0.2
YK_API yk_module *yk_efficientnet_b0(const yk_efficientnet_options *options);

/* Names, shapes and initial distributions: torchvision.models.vit_b_16, and VisionTransformer of other sizes. Images
 * are image_size square, a multiple of patch_size; hidden_dim is one of num_heads. Source: Dosovitskiy et al., 2021. */
typedef struct yk_vit_options {
    int64_t in_channels YK_DEFAULT(3), num_classes YK_DEFAULT(1000);
    int64_t image_size YK_DEFAULT(224), patch_size YK_DEFAULT(16);
    int64_t num_layers YK_DEFAULT(12), num_heads YK_DEFAULT(12);
    int64_t hidden_dim YK_DEFAULT(768), mlp_dim YK_DEFAULT(3072);
    double dropout YK_DEFAULT(0), attention_dropout YK_DEFAULT(0); /* in [0, 1] */
    unsigned yk__mark YK_DEFAULT(YK__MARK);                        /* private */
} yk_vit_options;
#define yk_vit_options_DEFAULTS                                                                                        \
    .yk__mark = YK__MARK, .in_channels = 3, .num_classes = 1000, .image_size = 224, .patch_size = 16,                  \
    .num_layers = 12, .num_heads = 12, .hidden_dim = 768, .mlp_dim = 3072
YK_API yk_module *yk_vit_b_16(const yk_vit_options *options);

/* A model by name, for square images of image_size: "mlp", "lenet", "resnet18-cifar", and by torchvision's names
 * "resnet18" to "resnet152", "vgg11" to "vgg19_bn", "mobilenet_v2", "efficientnet_b0" and "vit_b_16". An unknown name
 * is an error that names the nearest and all. Source: torchvision.models.get_model. */
typedef struct yk_model_options {
    /* Not given: the model's own; an mlp has 1, 28 and 10. */
    int64_t in_channels YK_DEFAULT(YK_NOT_GIVEN), image_size YK_DEFAULT(YK_NOT_GIVEN),
        num_classes YK_DEFAULT(YK_NOT_GIVEN);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_model_options;
#define yk_model_options_DEFAULTS                                                                                      \
    .yk__mark = YK__MARK, .in_channels = YK_NOT_GIVEN, .image_size = YK_NOT_GIVEN, .num_classes = YK_NOT_GIVEN
YK_API yk_module *yk_model(const char *name, const yk_model_options *options);
/* The names, ended by NULL; static. */
YK_API const char *const *yk_model_names(void) YK_QUESTION;

/* ---- networks in shared objects ---------------------------------------------------------------------------------- */
/* The numbers that a network for some data is made with: it takes (N,channels,height,width) and gives (N,num_classes).
 */
typedef struct yk_network_input {
    int64_t channels, height, width; /* of an image; of a row of numbers: its columns, 1 and 1 */
    int64_t num_classes;
} yk_network_input;

/* The number of these declarations and of the library's binary interface, as in libyoke.so.2: a shared object of
 * another one is not taken. */
#define YK_NETWORK_ABI 2
/*
 * Makes the source of a shared object the source of a network, which `yoke train --model ./libnet.so` and
 * yk_network_load take: once in it, `YK_NETWORK(function);`, where the function makes a module, owned by the current
 * scope, or leaves an error: yk_module *function(const yk_network_input *input). The object exports it as yk_network,
 * and the number above as yk_network_abi. Of C++, what the function throws is an error. Built with
 * `cc -shared -fPIC net.c -o libnet.so`, with or without -lyoke: there is one libyoke, the program's.
 */
#ifdef __cplusplus
#if defined(__cpp_exceptions) && __cplusplus >= 201703L
#define YK__NETWORK_CALL(function) yk_catch<function>
#else
#define YK__NETWORK_CALL(function) function
#endif
#define YK_NETWORK(function)                                                                                           \
    extern "C" YK_API yk_module *yk_network(const yk_network_input *input);                                            \
    yk_module *yk_network(const yk_network_input *input)                                                               \
    {                                                                                                                  \
        return YK__NETWORK_CALL(function)(input);                                                                      \
    }                                                                                                                  \
    extern "C" YK_API const int yk_network_abi;                                                                        \
    const int yk_network_abi = YK_NETWORK_ABI
#else
#define YK_NETWORK(function)                                                                                           \
    YK_API yk_module *yk_network(const yk_network_input *input);                                                       \
    yk_module *yk_network(const yk_network_input *input)                                                               \
    {                                                                                                                  \
        return function(input);                                                                                        \
    }                                                                                                                  \
    YK_API extern const int yk_network_abi;                                                                            \
    const int yk_network_abi = YK_NETWORK_ABI
#endif
/*
 * The network that the shared object makes for these numbers, tried once on two inputs of zeros, in evaluation mode.
 * The object's code runs in this process, and it stays loaded. Errors name the path: there is no such file
 * (YK_ERR_NOT_FOUND); it is no shared object, exports no yk_network or calls what there is not (YK_ERR_FORMAT, with the
 * nearest name), is of another version or brings a libyoke of its own (YK_ERR_UNSUPPORTED); the outputs have another
 * shape (YK_ERR_SHAPE); and what the network's own function left. On failure of any kind NULL.
 */
YK_API yk_module *yk_network_load(const char *path, const yk_network_input *input);

/* ---- gradient checkpointing -------------------------------------------------------------------------------------- */
/*
 * yk_forward(m, x) that keeps nothing for backward but x: what backward needs is computed again there, by the random
 * numbers (dropout) and in the autocast regions of the first time, so the gradients have the same bits. A long chain of
 * modules, each called so, takes the memory of one of them and of the tensors between, and one forward more. m is
 * retained. Its forward runs twice, hooks and running statistics of batch norms included. Gradients of gradients work.
 * Source: torch.utils.checkpoint.checkpoint; Chen et al., 2016.
 */
YK_API yk_tensor *yk_checkpoint_forward(yk_module *m, yk_tensor *x);

/* ---- GPT-2 ------------------------------------------------------------------------------------------------------- */
/*
 * Tokens (N, T), T up to n_positions, of i64 or i32 give logits (N, T, vocab_size): those of the token that follows.
 * Names and shapes of the parameters are the published ones (transformer.h.0.attn.c_attn.weight is (in, out)); dropout
 * is that of embeddings, attention weights and what blocks add. Initial weights: normal, 0.02, of the projections that
 * are added to their input 0.02 / sqrt(2 n_layer). Source: Radford et al., 2019; GPT2LMHeadModel of transformers.
 */
typedef struct yk_gpt2_options {
    int64_t vocab_size YK_DEFAULT(50257), n_positions YK_DEFAULT(1024);
    int64_t n_embd YK_DEFAULT(768), n_layer YK_DEFAULT(12), n_head YK_DEFAULT(12); /* n_head divides n_embd */
    double dropout YK_DEFAULT(0.1);                                                /* in [0, 1] */
    double layer_norm_epsilon YK_DEFAULT(1e-5);                                    /* above 0 */
    bool tied YK_DEFAULT(true); /* the output layer is the token embedding; false: lm_head.weight, of its own */
    bool gradient_checkpointing YK_DEFAULT(false); /* in training: yk_checkpoint_forward of each block */
    unsigned yk__mark YK_DEFAULT(YK__MARK);        /* private */
} yk_gpt2_options;
#define yk_gpt2_options_DEFAULTS                                                                                       \
    .yk__mark = YK__MARK, .vocab_size = 50257, .n_positions = 1024, .n_embd = 768, .n_layer = 12, .n_head = 12,        \
    .dropout = 0.1, .layer_norm_epsilon = 1e-5, .tied = true
YK_API yk_module *yk_gpt2(const yk_gpt2_options *options);
/* The options of a published size: "gpt2" (124 million numbers), "gpt2-medium" (355), "gpt2-large" (774), "gpt2-xl"
 * (1,558). An unknown name is an error that names the nearest. */
YK_API yk_status yk_gpt2_named(const char *name, yk_gpt2_options *options) YK_MUST_CHECK;
/* The options by which a checkpoint's tensors were made. Their shapes do not tell n_head: it is n_embd / 64, as in the
 * published sizes, where that is a whole number, else 1. */
YK_API yk_status yk_gpt2_sizes(const yk_state_dict *dict, yk_gpt2_options *options) YK_MUST_CHECK;
/*
 * yk_module_load_state_dict of a published checkpoint: with names that begin with "transformer." or without, and with
 * what is none of the module's (attention masks, the output layer where it is tied) passed over. One of another size
 * is an error (YK_ERR_SHAPE) that tells both and the published size that is nearest.
 */
YK_API yk_status yk_gpt2_load_state_dict(yk_module *m, const yk_state_dict *dict) YK_MUST_CHECK;

/* Is told each token as it is made; a failure ends the generation. */
typedef yk_status (*yk_token_fn)(void *user, int64_t id);
typedef struct yk_generate_options {
    int64_t max_tokens YK_DEFAULT(100);     /* new ones, at least 1 */
    double temperature YK_DEFAULT(1);       /* by which logits are divided, at least 0; 0: always the likeliest */
    int64_t top_k YK_DEFAULT(YK_NOT_GIVEN); /* draws among the k likeliest, at least 1; not given: among all */
    double top_p YK_DEFAULT(1);             /* among the likeliest that together have this probability, in (0, 1] */
    uint64_t seed YK_DEFAULT(0);            /* of the draws */
    int64_t stop YK_DEFAULT(YK_NOT_GIVEN);  /* the id after which it ends, <|endoftext|> say; not given: none */
    bool cache YK_DEFAULT(true);            /* false: all is computed anew for each token, with the same result */
    yk_token_fn on_token YK_DEFAULT(NULL);
    void *user YK_DEFAULT(NULL);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_generate_options;
#define yk_generate_options_DEFAULTS                                                                                   \
    .yk__mark = YK__MARK, .max_tokens = 100, .temperature = 1, .top_k = YK_NOT_GIVEN, .top_p = 1,                      \
    .stop = YK_NOT_GIVEN, .cache = true
/*
 * Goes on from ids, (T) with T at least 1: gives those and the new ones, (T + new) of i64 on the CPU. The model, of
 * yk_gpt2, computes in evaluation mode, without gradients. Where there are more than n_positions tokens the model
 * forgets: it goes on from the last half of them. Source: GenerationMixin.generate of transformers (do_sample).
 */
YK_API yk_tensor *yk_gpt2_generate(yk_module *m, yk_tensor *ids, const yk_generate_options *options);

#ifdef __cplusplus
}
#endif
#endif
