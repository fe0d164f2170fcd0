/*
 * yoke/autograd.h - gradients: the tape, backward, hooks, custom functions, the gradient checker.
 *
 * Layer: autograd. Define by run: every operation on a tensor that requires a gradient leaves a node on the tape.
 * Gradients accumulate into the leaves' grad, as in PyTorch.
 */
#ifndef YOKE_AUTOGRAD_H
#define YOKE_AUTOGRAD_H

#include <yoke/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Marks a leaf (a tensor that no recorded operation made) as wanting a gradient, or not. Floating dtypes only. */
YK_API yk_status yk_set_requires_grad(yk_tensor *x, bool requires_grad) YK_MUST_CHECK;
YK_API bool yk_requires_grad(const yk_tensor *x) YK_QUESTION;
YK_API bool yk_is_leaf(const yk_tensor *x) YK_QUESTION;
/* The name of the operation that made x ("conv2d"), or NULL for a leaf. Static. */
YK_API const char *yk_grad_fn_name(const yk_tensor *x) YK_QUESTION;
/* The accumulated gradient, borrowed from x, or NULL when there is none yet. */
YK_API yk_tensor *yk_grad(const yk_tensor *x) YK_QUESTION;
/* Replaces the gradient (same shape, dtype and device), or drops it with NULL. */
YK_API yk_status yk_set_grad(yk_tensor *x, yk_tensor *grad) YK_MUST_CHECK;
/* A view of the same storage that is not on the tape. A write to it counts as one to x, so a backward that needs the
 * overwritten values fails. */
YK_API yk_tensor *yk_detach(yk_tensor *x);
/* The same memory with a count of writes of its own: a write to it goes unnoticed, and gradients that need the
 * overwritten values come out wrong without an error. Prefer yk_detach. Source: Tensor.data. */
YK_API yk_tensor *yk_data(yk_tensor *x);
/* By default only leaves keep their gradient; this makes x keep its own too. */
YK_API yk_status yk_retain_grad(yk_tensor *x) YK_MUST_CHECK;

typedef struct yk_backward_options {
    yk_tensor *gradient YK_DEFAULT(NULL); /* gradient of the root; NULL: 1, and then the root must have one element */
    bool retain_graph YK_DEFAULT(false);  /* keep the tape for another backward; else it is freed as it is walked */
    bool create_graph YK_DEFAULT(false); /* record backward itself, for gradients of the gradients; keeps the tape, too.
                                          * A leaf and a grad with such a history are a reference cycle: drop the grad
                                          * with yk_set_grad(x, NULL), or use yk_autograd_grad */
    yk_tensor *const *inputs YK_DEFAULT(NULL); /* only these n_inputs tensors get a gradient, and only what leads to
                                                * them is computed; NULL: all leaves. What is no leaf keeps its own, as
                                                * after yk_retain_grad */
    int n_inputs YK_DEFAULT(0);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_backward_options;
#define yk_backward_options_DEFAULTS .yk__mark = YK__MARK

/* Computes the gradient of `root` in every leaf it was made from and adds it to their grads. */
YK_API yk_status yk_backward(yk_tensor *root) YK_MUST_CHECK;
YK_API yk_status yk_backward_with(yk_tensor *root, const yk_backward_options *options) YK_MUST_CHECK;

typedef struct yk_autograd_grad_options {
    bool retain_graph YK_DEFAULT(false);    /* keep the tape for another backward; create_graph keeps it as well */
    bool create_graph YK_DEFAULT(false);    /* record how the gradients are computed: they have gradients themselves */
    bool allow_unused YK_DEFAULT(false);    /* an input that has no part in the outputs: NULL, in place of an error */
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_autograd_grad_options;
#define yk_autograd_grad_options_DEFAULTS .yk__mark = YK__MARK
/*
 * The gradients of the sum of outputs[] with respect to inputs[], leaves or not: grads[i], owned by the scope, has the
 * shape of inputs[i]. No leaf's grad changes, and only what leads to the inputs is computed. grad_outputs[i], of the
 * shape of outputs[i], is the gradient that it begins with; NULL, or a NULL in it, stands for 1, where the output has
 * one element. With create_graph the gradients come from recorded operations, so that a loss made of them can be
 * differentiated again:
 *
 *     yk_tensor *g;
 *     yk_autograd_grad(&score, 1, &x, 1, &ones, &g, YK_OPTIONS(yk_autograd_grad_options, .create_graph = true));
 *     yk_tensor *penalty = yk_mean(yk_square(yk_add_scalar(yk_norm_dims(g, 2, (int[]){1}, 1, false), -1)));
 *     yk_backward(yk_add(loss, penalty));
 *
 * Errors: an operation on the way whose gradient has none yet (it is named); an input that does not require a gradient,
 * or, without allow_unused, has no part. On failure grads[] is NULL. Source: torch.autograd.grad.
 */
YK_API yk_status yk_autograd_grad(yk_tensor *const *outputs, int n_outputs, yk_tensor *const *inputs, int n_inputs,
                                  yk_tensor *const *grad_outputs, yk_tensor **grads,
                                  const yk_autograd_grad_options *options) YK_MUST_CHECK;

/*
 * While it is on, a backward of any thread fails at the first operation whose backward gives a NaN, and names that
 * operation, its input and the shapes. Every operation then waits for its result: for debugging. Returns whether it was
 * on. Source: torch.autograd.set_detect_anomaly, torch.is_anomaly_enabled.
 */
YK_API bool yk_autograd_set_detect_anomaly(bool enabled);
YK_API bool yk_autograd_detect_anomaly(void) YK_QUESTION;

/* Between begin and end this thread records nothing. Nests; end takes what begin returned.
 * Source: torch.no_grad. */
YK_API bool yk_no_grad_begin(void);
YK_API void yk_no_grad_end(bool previous);
YK_API bool yk_grad_enabled(void) YK_QUESTION;
/* The contrary, also inside no_grad; not in inference mode. Source: torch.enable_grad. */
YK_API bool yk_enable_grad_begin(void);
YK_API void yk_enable_grad_end(bool previous);
/* Records from here on, or not; returns whether this thread did before. Source: torch.set_grad_enabled. */
YK_API bool yk_set_grad_enabled(bool enabled);
/*
 * Between begin and end this thread records nothing, and tensors that it makes are inference tensors for good: an
 * operation that would keep one for backward, a write to one, and marking one as requiring a gradient are errors
 * outside; clone it there. Views of other tensors stay what those are. Nests; end takes what begin returned. Source:
 * torch.inference_mode.
 */
YK_API bool yk_inference_mode_begin(void);
YK_API void yk_inference_mode_end(bool previous);
YK_API bool yk_inference_mode_enabled(void) YK_QUESTION;
YK_API bool yk_is_inference(const yk_tensor *x) YK_QUESTION;

/*
 * Autocast, for mixed precision: between begin and end this thread's operations on devices of `type` run in the dtype
 * that suits each. Products and convolutions of f32 run in `dtype`, bf16 or f16; losses and operations that sum or
 * exponentiate, of f16 and bf16 tensors, in f32; the others as their tensors are (docs/mixed_precision.md has the
 * lists, which differ between CPUs and GPUs as PyTorch's do). f64 is left alone. Parameters and their gradients stay
 * f32: a cast is recorded, and backward goes through it. A parameter is cast once for all its uses in the outermost
 * region, again after it was written. Backward and the optimizer's step belong after the end.
 *
 *     yk_autocast before = yk_autocast_begin(YK_CPU, YK_BF16, NULL);
 *     yk_tensor *loss = yk_cross_entropy(yk_forward(net, x), target, NULL);
 *     yk_autocast_end(before);
 *
 * Nests; end takes what begin returned. Another dtype is an error, and the region then changes nothing. Custom
 * functions run backward in the modes that their forward had. Source: torch.autocast.
 */
typedef struct yk_autocast_options {
    bool enabled YK_DEFAULT(true);          /* false: off between begin and end; `dtype` is not looked at */
    bool cache_enabled YK_DEFAULT(true);    /* false: a parameter is cast anew for each use */
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_autocast_options;
#define yk_autocast_options_DEFAULTS .yk__mark = YK__MARK, .enabled = true, .cache_enabled = true
/* The modes of a thread, as begin found them: for end alone. */
typedef struct yk_autocast {
    yk_dtype dtype[YK__DEVICE_TYPES];
    bool enabled[YK__DEVICE_TYPES], no_cache;
} yk_autocast;
YK_API yk_autocast yk_autocast_begin(yk_device_type type, yk_dtype dtype, const yk_autocast_options *options);
YK_API void yk_autocast_end(yk_autocast previous);
/* Source: torch.is_autocast_enabled, torch.get_autocast_dtype: that of the innermost region that was not disabled; bf16
 * on CPUs and f16 on GPUs where there was none. */
YK_API bool yk_autocast_enabled(yk_device_type type) YK_QUESTION;
YK_API yk_dtype yk_autocast_dtype(yk_device_type type) YK_QUESTION;
/* Drops the casts that this thread keeps. Source: torch.clear_autocast_cache. */
YK_API void yk_autocast_clear_cache(void);

/*
 * A gradient by rows, which yk_embedding_sparse gives a leaf (V, D): those of the rows that were looked up. yk_grad is
 * NULL then. *indices (n) i64 ascend and name each row once, *rows (n, D) are its gradient, both borrowed until the
 * gradient is another one; NULL, and no error, where x has none of this kind. docs/sparse.md says what optimizers,
 * clipping and DDP do with it. Source: a sparse gradient's coalesce(), indices() and values().
 */
YK_API yk_status yk_grad_rows(yk_tensor *x, yk_tensor **indices, yk_tensor **rows) YK_MUST_CHECK;
/* Makes these the gradient of leaf x (V, D), in place of the one that it has: copies of indices (n) i64 or i32, in any
 * order, an index may come several times, and of rows (n, D) of the dtype and device of x. */
YK_API yk_status yk_set_grad_rows(yk_tensor *x, yk_tensor *indices, yk_tensor *rows) YK_MUST_CHECK;
/* The gradient of x with all its elements, owned by the scope: a new one where it is by rows, else yk_grad; NULL, and
 * no error, where there is none. Source: grad.to_dense(). */
YK_API yk_tensor *yk_grad_to_dense(yk_tensor *x);

/*
 * A hook sees the gradient of x when it is ready, before it is accumulated or passed on; it may return another
 * tensor of the same shape to use in its place, or NULL to leave it. Runs on the engine's thread of x's device.
 * Returns an id for yk_hook_remove, 0 on failure. Source: Tensor.register_hook.
 */
typedef yk_tensor *(*yk_grad_hook)(yk_tensor *grad, void *user);
YK_API uint64_t yk_register_hook(yk_tensor *x, yk_grad_hook hook, void *user);
/* Called after the gradient of leaf x has been accumulated into its grad: once per backward.
 * Source: Tensor.register_post_accumulate_grad_hook. */
typedef yk_status (*yk_leaf_hook)(yk_tensor *x, void *user);
YK_API uint64_t yk_register_post_accumulate_hook(yk_tensor *x, yk_leaf_hook hook, void *user);
YK_API yk_status yk_hook_remove(yk_tensor *x, uint64_t id) YK_MUST_CHECK;

/*
 * A function of the user's own with its own backward, from one tensor or several to one or several.
 *
 * `forward` gets the inputs and returns the output, computed with any yoke calls (nothing is recorded there); it saves
 * tensors that backward needs with yk_custom_save. `backward` gets the gradient of the output and writes one gradient
 * per input to grad_inputs (NULL: zero). forward_list and backward_list are the same for n_outputs results: outputs[]
 * is to be filled, and an entry of grad_outputs is NULL where no gradient came, which counts as zero (at least one is
 * not NULL). A function has one form of each, that of one result serving one alone.
 *
 * Tensors that either gives are owned by the scope that yoke opens around the callback. Results are on one device. An
 * input may be given back as it is. `release`, if not NULL, is called once for every call of apply, whatever becomes of
 * it: with the last of the graph that needs `user`, or at once where nothing is recorded or something fails. The struct
 * is copied; its name is static. Source: torch.autograd.Function.
 */
typedef struct yk_custom yk_custom;
typedef struct yk_custom_function {
    const char *name;
    yk_tensor *(*forward)(yk_custom *context, yk_tensor *const *inputs, int n_inputs);
    yk_status (*backward)(yk_custom *context, yk_tensor *grad_output, yk_tensor **grad_inputs, int n_inputs);
    yk_status (*forward_list)(yk_custom *context, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs,
                              int n_outputs);
    yk_status (*backward_list)(yk_custom *context, yk_tensor *const *grad_outputs, int n_outputs,
                               yk_tensor **grad_inputs, int n_inputs);
    void (*release)(void *user);
} yk_custom_function;
YK_API yk_tensor *yk_custom_apply(const yk_custom_function *function, yk_tensor *const *inputs, int n_inputs,
                                  void *user);
/* Fills outputs[] with n_outputs tensors owned by the scope; on failure with NULL. */
YK_API yk_status yk_custom_apply_list(const yk_custom_function *function, yk_tensor *const *inputs, int n_inputs,
                                      yk_tensor **outputs, int n_outputs, void *user) YK_MUST_CHECK;
YK_API yk_status yk_custom_save(yk_custom *context, yk_tensor *x) YK_MUST_CHECK; /* checked by version at backward */
YK_API yk_tensor *yk_custom_saved(yk_custom *context, int i);                    /* in the order of saving */
YK_API void *yk_custom_user(yk_custom *context) YK_QUESTION;
YK_API bool yk_custom_needs_grad(yk_custom *context, int input) YK_QUESTION;

/*
 * Compares the gradients of `function` at `inputs` (f64 leaves; those that require a gradient are checked) with
 * central differences of step `eps`; a difference above atol + rtol * |numeric| is an
 * error that names the input, the element and both values. The output may have any shape; it is reduced with fixed
 * random weights. Source: torch.autograd.gradcheck.
 */
typedef struct yk_gradcheck_options {
    double eps YK_DEFAULT(1e-6); /* above 0 */
    double atol YK_DEFAULT(1e-5), rtol YK_DEFAULT(1e-3);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_gradcheck_options;
#define yk_gradcheck_options_DEFAULTS .yk__mark = YK__MARK, .eps = 1e-6, .atol = 1e-5, .rtol = 1e-3
typedef yk_tensor *(*yk_gradcheck_fn)(yk_tensor *const *inputs, int n_inputs, void *user);
YK_API yk_status yk_gradcheck(yk_gradcheck_fn function, yk_tensor *const *inputs, int n_inputs, void *user,
                              const yk_gradcheck_options *options) YK_MUST_CHECK;
/* The same of a function that fills outputs[] with n_outputs tensors; those that are not floating do not count. */
typedef yk_status (*yk_gradcheck_list_fn)(yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs, int n_outputs,
                                          void *user);
YK_API yk_status yk_gradcheck_list(yk_gradcheck_list_fn function, yk_tensor *const *inputs, int n_inputs, int n_outputs,
                                   void *user, const yk_gradcheck_options *options) YK_MUST_CHECK;
/* The same of the gradients that yk_autograd_grad records with create_graph: their own gradients, with respect to the
 * inputs and to the gradients of the outputs, which are fixed random numbers, are compared with central differences.
 * Source: torch.autograd.gradgradcheck. */
YK_API yk_status yk_gradgradcheck(yk_gradcheck_fn function, yk_tensor *const *inputs, int n_inputs, void *user,
                                  const yk_gradcheck_options *options) YK_MUST_CHECK;
YK_API yk_status yk_gradgradcheck_list(yk_gradcheck_list_fn function, yk_tensor *const *inputs, int n_inputs,
                                       int n_outputs, void *user, const yk_gradcheck_options *options) YK_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
