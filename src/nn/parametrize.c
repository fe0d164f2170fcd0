/*
 * parametrize.c - weights that are computed from other parameters in each forward: weight_norm and spectral_norm.
 * Layer: nn.
 *
 * A module m whose weight is parametrized has a child "parametrizations", a ModuleDict, with a ParametrizationList
 * called "weight", as PyTorch has it: its parameters are the originals, and its child "0" computes the weight of them.
 * m itself has in place of the parameter a stand-in, a temporary buffer of that name and shape without values, to which
 * the pointers in m's data lead. For the time of a forward these pointers lead to the weight instead, which is computed
 * when the forward begins and dies with it; so a module needs to know nothing of this, unless it is one of those that
 * look for their parameters by name (yk__finds_by_name), and finds these in the lists. A forward inside a forward of
 * the same module takes the weight that is there; one of another thread is refused, since both would use one pointer.
 */
#include <string.h>

#include "nn/module.h"

/* ---- the two kinds: modules that make a weight of the originals -------------------------------------------------- */

typedef struct weight_norm {
    int dim; /* -1: one norm of all */
} weight_norm;

/* Norms of x over all dimensions but `dim`, which keep their places, with sizes of 1; of all for -1. */
static yk_tensor *norm_except(yk_tensor *x, int dim)
{
    int dims[YK_MAX_DIMS], count = 0;
    if (dim < 0)
        return yk_norm(x, 2, NULL, 0, false);
    for (int d = 0; d < yk_ndim(x); d++) {
        if (d != dim)
            dims[count++] = d;
    }
    return count ? yk_norm(x, 2, dims, count, true) : yk_abs(x);
}

static yk_status weight_norm_forward(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs,
                                     int n_outputs)
{
    const weight_norm *d = yk__module_data(m);
    if (n_inputs != 2 || n_outputs != 1)
        return yk__fail(YK_ERR_ARGUMENT, "_WeightNorm: it takes a norm and a direction and gives one tensor");
    outputs[0] = yk_mul(inputs[1], yk_div(inputs[0], norm_except(inputs[1], d->dim)));
    return outputs[0] ? YK_OK : yk__error_code();
}

static const yk_module_class weight_norm_class = {
    .name = "_WeightNorm", .data_size = sizeof(weight_norm), .forward_list = weight_norm_forward};

typedef struct spectral_norm {
    yk_tensor *u, *v; /* NULL: the weight is a vector */
    int64_t iterations;
    double eps;
    int dim;
} spectral_norm;

/* x as a matrix whose rows are the indices of `dim`. */
static yk_tensor *as_matrix(yk_tensor *x, int dim)
{
    int order[YK_MAX_DIMS], count = 1;
    order[0] = dim;
    for (int d = 0; d < yk_ndim(x); d++) {
        if (d != dim)
            order[count++] = d;
    }
    return yk_reshape(dim ? yk_permute(x, order) : x, 2, (const int64_t[]){yk_size(x, dim), -1});
}

/* u and v of the largest singular value of the matrix, nearer by each iteration. Source: Miyato et al., 2018. */
static yk_status power_method(const spectral_norm *d, yk_tensor *matrix, int64_t iterations)
{
    bool recording = yk_no_grad_begin();
    yk_status status = YK_OK;
    for (int64_t i = 0; i < iterations && !status; i++) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *u = yk_normalize_dim(yk_matmul(matrix, d->v), 2, 0, d->eps);
        if (!u || !yk_copy_(d->u, u) ||
            !yk_copy_(d->v, yk_normalize_dim(yk_matmul(yk_transpose(matrix, 0, 1), d->u), 2, 0, d->eps)))
            status = yk__error_code();
        yk_scope_end(scope);
    }
    yk_no_grad_end(recording);
    return status;
}

static yk_status spectral_norm_forward(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs,
                                       int n_outputs)
{
    const spectral_norm *d = yk__module_data(m);
    if (n_inputs != 1 || n_outputs != 1)
        return yk__fail(YK_ERR_ARGUMENT, "_SpectralNorm: it takes one weight and gives one");
    yk_tensor *weight = inputs[0];
    if (!d->u) {
        outputs[0] = yk_normalize_dim(weight, 2, 0, d->eps);
        return outputs[0] ? YK_OK : yk__error_code();
    }
    yk_tensor *matrix = as_matrix(weight, d->dim);
    if (!matrix || (m->training && power_method(d, yk_detach(matrix), d->iterations)))
        return yk__error_code();
    /* Copies: backward needs the vectors of this forward, and the next one writes to the buffers. */
    yk_tensor *u = yk_clone(d->u), *v = yk_clone(d->v);
    yk_tensor *sigma = yk_sum(yk_mul(u, yk_matmul(matrix, v)));
    outputs[0] = yk_div(weight, sigma);
    return outputs[0] ? YK_OK : yk__error_code();
}

static const yk_module_class spectral_norm_class = {
    .name = "_SpectralNorm", .data_size = sizeof(spectral_norm), .forward_list = spectral_norm_forward};

/* ---- the list: originals, and what computes the weight of them --------------------------------------------------- */

typedef struct weight_list {
    yk_tensor *current; /* during a forward of the module, borrowed from its scope; else NULL */
    int depth;          /* forwards of the module that are under way, one inside another */
} weight_list;

/* The weight now, in the current scope: in its own precision, whatever region of autocast the forward is in. */
static yk_tensor *list_weight(yk_module *list)
{
    yk_tensor *originals[2] = {NULL}, *out = NULL;
    int count = (int)list->parameters.count;
    yk_module *part = list->children.items[0].object;
    for (int i = 0; i < count; i++)
        originals[i] = list->parameters.items[i].object;
    yk_autocast autocast =
        yk_autocast_begin(yk__device_of(originals[0]).type, YK_BF16, YK_OPTIONS(yk_autocast_options, .enabled = false));
    yk_status status = part->cls->forward_list(part, originals, count, &out, 1);
    yk_autocast_end(autocast);
    return status ? NULL : out;
}

static yk_tensor *list_forward(yk_module *m, yk_tensor *x)
{
    (void)x;
    return list_weight(m);
}

static const yk_module_class list_class = {
    .name = "ParametrizationList", .data_size = sizeof(weight_list), .forward = list_forward};

/* The ModuleDict of a module's lists; NULL where nothing is parametrized. */
static yk_module *lists_of(const yk_module *m)
{
    for (int64_t i = m->parametrized ? m->children.count - 1 : -1; i >= 0; i--) {
        if (strcmp(m->children.items[i].name, "parametrizations") == 0)
            return m->children.items[i].object;
    }
    return NULL;
}

static yk_module *list_find(const yk_module *m, const char *name)
{
    const yk_module *lists = lists_of(m);
    for (int64_t i = 0; lists && i < lists->children.count; i++) {
        if (strcmp(lists->children.items[i].name, name) == 0)
            return lists->children.items[i].object;
    }
    return NULL;
}

const char *yk__parametrized_weight(const yk_module *m, int64_t i, yk_tensor **weight)
{
    const yk_module *lists = lists_of(m);
    if (!lists || i >= lists->children.count)
        return NULL;
    *weight = ((const weight_list *)yk__module_data(lists->children.items[i].object))->current;
    return lists->children.items[i].name;
}

bool yk__is_stand_in(const yk_module *m, const char *name)
{
    return list_find(m, name) != NULL;
}

/* The stand-in of that name. */
static yk_tensor *stand_in_of(const yk_module *m, const char *name)
{
    for (int64_t i = 0; i < m->buffers.count; i++) {
        if (strcmp(m->buffers.items[i].name, name) == 0)
            return m->buffers.items[i].object;
    }
    return NULL;
}

/* The first `count` lists no longer have a weight. */
static void lists_leave(yk_module *m, const yk_module *lists, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        weight_list *d = yk__module_data(lists->children.items[i].object);
        if (--d->depth == 0) {
            yk__module_point(m, d->current, stand_in_of(m, lists->children.items[i].name));
            d->current = NULL;
        }
    }
}

yk_status yk__parametrized_begin(yk_module *m)
{
    static _Thread_local char this_thread;
    const yk_module *lists = lists_of(m);
    const void *nobody = NULL;
    if (!atomic_compare_exchange_strong(&m->computing, &nobody, &this_thread) && nobody != &this_thread)
        return yk__fail(
            YK_ERR_STATE,
            "the weights of %s are parametrized, and two threads run its forward at once: each needs a copy "
            "of the module",
            m->shown_name);
    for (int64_t i = 0; lists && i < lists->children.count; i++) {
        weight_list *d = yk__module_data(lists->children.items[i].object);
        if (!d->depth) {
            d->current = list_weight(lists->children.items[i].object);
            yk_tensor *stand_in = stand_in_of(m, lists->children.items[i].name);
            if (!d->current || !stand_in) {
                lists_leave(m, lists, i);
                if (!nobody)
                    atomic_store(&m->computing, NULL);
                yk__error_prefix("parametrizations.%s", lists->children.items[i].name);
                return yk__error_code();
            }
            yk__module_point(m, stand_in, d->current);
        }
        d->depth++;
    }
    return YK_OK;
}

void yk__parametrized_end(yk_module *m)
{
    const yk_module *lists = lists_of(m);
    const weight_list *first = lists && lists->children.count ? yk__module_data(lists->children.items[0].object) : NULL;
    bool last = !first || first->depth == 1;
    if (lists)
        lists_leave(m, lists, lists->children.count);
    if (last)
        atomic_store(&m->computing, NULL);
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

/* The parameter that is to be parametrized; NULL and an error where it cannot be. */
static yk_tensor *parameter_of(const char *what, yk_module *m, const char *name)
{
    if (!yk__module_usable(what, m) || !yk__is_there(what, "name", name) || !yk__scope_check(what))
        return NULL;
    if (list_find(m, name)) {
        yk__fail(YK_ERR_ARGUMENT, "%s: %s of %s is parametrized already", what, name, m->shown_name);
        return NULL;
    }
    const char *names[64];
    size_t count = 0;
    yk_tensor *found = NULL;
    for (int64_t i = 0; i < m->parameters.count && count < 64; i++) {
        names[count++] = m->parameters.items[i].name;
        if (strcmp(m->parameters.items[i].name, name) == 0)
            found = m->parameters.items[i].object;
    }
    if (!found) {
        const char *near = yk__nearest(name, names, count);
        yk__fail(YK_ERR_NOT_FOUND, "%s: %s has no parameter '%.60s' of its own%s%s%s", what, m->shown_name, name,
                 near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
        return NULL;
    }
    if (yk__finds_by_name(m))
        return found;
    void *const *words = m->data;
    for (size_t i = 0; i < m->cls->data_size / sizeof(*words); i++) {
        if (words[i] == found)
            return found;
    }
    yk__fail(YK_ERR_UNSUPPORTED,
             "%s: %s keeps no pointer to %s in its data (yk_module_class.data_size), so its forward would not find the "
             "computed one",
             what, m->shown_name, name);
    return NULL;
}

/* A tensor of the shape of x that takes no memory. */
static yk_tensor *stand_in_make(const yk_tensor *x)
{
    yk_tensor *zero =
        yk_zeros(0, NULL, YK_OPTIONS(yk_tensor_options, .dtype = (yk_dtype)x->dtype, .device = yk__device_of(x)));
    return yk_expand(zero, x->ndim, x->shape);
}

/* Puts the list in the place of the parameter. */
static yk_module *list_install(yk_module *m, const char *name, yk_tensor *weight, yk_module *list)
{
    yk_tensor *stand_in = stand_in_make(weight);
    if (!stand_in || !yk_module_check(list))
        return NULL;
    yk_module *lists = lists_of(m);
    if (!lists)
        lists = yk_module_add(m, "parametrizations", yk_module_dict(NULL, NULL, 0));
    if (!lists || !yk_module_add(lists, name, list))
        return NULL;
    m->parametrized = true;
    yk__module_point(m, weight, stand_in);
    return yk_module_add_temporary_buffer(m, name, stand_in) ? m : NULL;
}

/* The parameter as one of the originals, with the requires_grad that it had. */
static bool original_add(yk_module *list, const char *name, yk_tensor *x, bool wants)
{
    return yk_module_add_parameter(list, name, x) && (wants || !yk_set_requires_grad(x, false));
}

yk_module *yk_weight_norm(yk_module *m, const char *name, const yk_weight_norm_options *options)
{
    YK__LIVE(m);
    yk_weight_norm_options o;
    if (YK__OPTIONS_TAKE("weight_norm", yk_weight_norm_options, options, &o))
        return NULL;
    yk_tensor *weight = parameter_of("weight_norm", m, name);
    if (!weight)
        return NULL;
    if (o.dim < -1 || o.dim >= weight->ndim) {
        char shape[200];
        yk__fail(YK_ERR_ARGUMENT, "weight_norm: dim is %d, but %s has shape %s; -1 is one norm of all", o.dim, name,
                 yk_shape_format(weight, shape, sizeof(shape)));
        return NULL;
    }
    bool wants = yk__wants_grad(weight);
    bool recording = yk_no_grad_begin();
    yk_tensor *g = yk_detach(yk_contiguous(norm_except(weight, o.dim)));
    yk_no_grad_end(recording);
    yk_module *list = yk_module_create(&list_class), *part = list ? yk_module_create(&weight_norm_class) : NULL;
    if (!part || !g || !yk_module_add(list, "0", part))
        return NULL;
    *(weight_norm *)yk_module_data(part) = (weight_norm){.dim = o.dim};
    yk_tensor *kept = yk_tensor_retain(weight);
    yk_module *made = original_add(list, "original0", g, wants) && original_add(list, "original1", weight, wants)
                          ? list_install(m, name, weight, list)
                          : NULL;
    yk_tensor_release(kept);
    return made;
}

static bool is_transposed(const yk_module *m)
{
    return strncmp(m->cls->name, "ConvTranspose", strlen("ConvTranspose")) == 0;
}

/* The vectors u and v, random at first, of a weight of two dimensions or more. */
static yk_status vectors_make(yk_module *part, spectral_norm *d, yk_tensor *weight)
{
    bool recording = yk_no_grad_begin();
    yk_tensor *matrix = as_matrix(weight, d->dim);
    const yk_tensor_options like =
        *YK_OPTIONS(yk_tensor_options, .dtype = (yk_dtype)weight->dtype, .device = yk__device_of(weight));
    yk_tensor *u = matrix ? yk_randn(1, &matrix->shape[0], &like) : NULL;
    yk_tensor *v = u ? yk_randn(1, &matrix->shape[1], &like) : NULL;
    u = yk_normalize_dim(u, 2, 0, d->eps);
    v = yk_normalize_dim(v, 2, 0, d->eps);
    d->u = u ? yk_module_add_buffer(part, "_u", u) : NULL;
    d->v = v ? yk_module_add_buffer(part, "_v", v) : NULL;
    yk_status status = d->u && d->v ? power_method(d, yk_detach(matrix), 15) : yk__error_code();
    yk_no_grad_end(recording);
    return status;
}

yk_module *yk_spectral_norm(yk_module *m, const char *name, const yk_spectral_norm_options *options)
{
    YK__LIVE(m);
    yk_spectral_norm_options o;
    if (YK__OPTIONS_TAKE("spectral_norm", yk_spectral_norm_options, options, &o) ||
        yk__check_integer("spectral_norm", "n_power_iterations", o.n_power_iterations, 1, 10000) ||
        yk__check_positive("spectral_norm", "eps", o.eps))
        return NULL;
    yk_tensor *weight = parameter_of("spectral_norm", m, name);
    if (!weight)
        return NULL;
    int dim = o.dim != YK_NOT_GIVEN ? o.dim : is_transposed(m) && weight->ndim > 1;
    if (dim < 0 || dim >= weight->ndim || !weight->numel) {
        char shape[200];
        yk__fail(YK_ERR_ARGUMENT, "spectral_norm: dim is %d, but %s has shape %s", dim, name,
                 yk_shape_format(weight, shape, sizeof(shape)));
        return NULL;
    }
    bool wants = yk__wants_grad(weight);
    yk_module *list = yk_module_create(&list_class), *part = list ? yk_module_create(&spectral_norm_class) : NULL;
    if (!part || !yk_module_add(list, "0", part))
        return NULL;
    spectral_norm *d = yk_module_data(part);
    *d = (spectral_norm){.iterations = o.n_power_iterations, .eps = o.eps, .dim = dim};
    if (weight->ndim > 1 && vectors_make(part, d, weight))
        return NULL;
    yk_module_train(part, m->training);
    yk_tensor *kept = yk_tensor_retain(weight);
    yk_module *made = original_add(list, "original", weight, wants) ? list_install(m, name, weight, list) : NULL;
    yk_tensor_release(kept);
    return made;
}

/* ---- asking and removing ----------------------------------------------------------------------------------------- */

/* The list of that name; NULL and an error in the name of `what` where there is none. */
static yk_module *list_needed(const char *what, yk_module *m, const char *name)
{
    if (!yk__module_usable(what, m) || !yk__is_there(what, "name", name) || !yk__scope_check(what))
        return NULL;
    yk_module *list = list_find(m, name);
    if (!list)
        yk__fail(YK_ERR_NOT_FOUND, "%s: '%.60s' of %s is not parametrized", what, name, m->shown_name);
    return list;
}

bool yk_is_parametrized(const yk_module *m, const char *name)
{
    YK__LIVE(m);
    YK__QUESTION;
    return m && (name ? list_find(m, name) != NULL : lists_of(m) != NULL);
}

yk_tensor *yk_parametrized(yk_module *m, const char *name)
{
    YK__LIVE(m);
    yk_module *list = list_needed("parametrized", m, name);
    return list ? yk_forward(list, list->parameters.items[0].object) : NULL;
}

yk_status yk_remove_parametrizations(yk_module *m, const char *name, bool leave_parametrized)
{
    YK__LIVE(m);
    yk_module *list = list_needed("remove_parametrizations", m, name);
    if (!list)
        return yk__error_code();
    if (!leave_parametrized && list->parameters.count > 1)
        return yk__fail(YK_ERR_ARGUMENT,
                        "remove_parametrizations: %s of %s has %lld originals, none of which is the weight: leave it "
                        "parametrized",
                        name, m->shown_name, (long long)list->parameters.count);
    yk_scope scope = yk_scope_begin();
    bool recording = yk_no_grad_begin(), wants = false;
    for (int64_t i = 0; i < list->parameters.count; i++)
        wants |= yk__wants_grad(list->parameters.items[i].object);
    yk_tensor *last = list->parameters.items[list->parameters.count - 1].object;
    yk_tensor *value = leave_parametrized ? yk_forward(list, last) : NULL;
    yk_status status = value || !leave_parametrized ? YK_OK : yk__error_code();
    /* The weight that was given is a parameter again, the same object: an optimizer that has it goes on. */
    if (value && !yk_copy_(last, value))
        status = yk__error_code();
    yk_no_grad_end(recording);
    if (!status) {
        yk_tensor_retain(last);
        yk__module_point(m, stand_in_of(m, name), last);
        status = yk_module_add_parameter(m, name, last) ? YK_OK : yk__error_code();
        if (!status && !wants)
            status = yk_set_requires_grad(last, false);
        yk_tensor_release(last);
    }
    if (!status) {
        yk_module *lists = lists_of(m);
        yk__module_remove_child(lists, name);
        if (!lists->children.count) {
            yk__module_remove_child(m, "parametrizations");
            m->parametrized = false;
        }
    }
    yk_scope_end(scope);
    return status;
}
