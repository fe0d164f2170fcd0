/*
 * lbfgs.c - LBFGS, a quasi-Newton method: directions by the last steps and the changes of the gradient over them.
 * Layer: optim.
 *
 * All parameters and gradients are one vector, flat. The state is the direction of the last step, how far it went, the
 * gradient before it, and up to history_size pairs of vectors: changes of the gradient (old_dirs) and steps (old_stps),
 * the oldest first. A direction is the gradient multiplied by the inverse of an approximate Hessian that these pairs
 * give, without the matrix (two loops over the pairs). The numbers that decide are read on the host: several in each
 * iteration. PyTorch's order of operations is kept, so that trajectories are the same.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn/module.h"
#include "optim/line_search.h"

/* The state; tensors are retained. */
typedef struct history {
    int64_t n_iter, func_evals;
    yk_tensor *direction, *previous; /* (numel); NULL before the first step */
    double length, scale, loss;      /* PyTorch's t, H_diag and prev_loss */
    int64_t count, room;
    yk_tensor **changes, **steps; /* old_dirs and old_stps */
    double *inverse;              /* ro: 1 / (change . step) */
} history;

static void history_free(void *state)
{
    history *h = state;
    if (!h)
        return;
    yk_tensor_release(h->direction);
    yk_tensor_release(h->previous);
    for (int64_t i = 0; i < h->count; i++) {
        yk_tensor_release(h->changes[i]);
        yk_tensor_release(h->steps[i]);
    }
    free(h->changes);
    free(h->steps);
    free(h->inverse);
    free(h);
}

static int64_t history_steps(const void *state)
{
    return ((const history *)state)->n_iter;
}

/* The oldest pair is forgotten. */
static void history_drop(history *h)
{
    yk_tensor_release(h->changes[0]);
    yk_tensor_release(h->steps[0]);
    h->count--;
    memmove(h->changes, h->changes + 1, (size_t)h->count * sizeof(yk_tensor *));
    memmove(h->steps, h->steps + 1, (size_t)h->count * sizeof(yk_tensor *));
    memmove(h->inverse, h->inverse + 1, (size_t)h->count * sizeof(*h->inverse));
}

/* Makes room for one pair more. */
static yk_status history_grow(history *h)
{
    if (h->count < h->room)
        return YK_OK;
    size_t room = h->room ? 2 * (size_t)h->room : 8;
    yk_tensor **changes = yk__realloc(h->changes, room * sizeof(yk_tensor *));
    h->changes = changes ? changes : h->changes;
    yk_tensor **steps = changes ? yk__realloc(h->steps, room * sizeof(yk_tensor *)) : NULL;
    h->steps = steps ? steps : h->steps;
    double *inverse = steps ? yk__realloc(h->inverse, room * sizeof(*inverse)) : NULL;
    if (!inverse)
        return YK_ERR_MEMORY;
    h->inverse = inverse;
    h->room = (int64_t)room;
    return YK_OK;
}

/* The newest pair, of which references are taken. */
static yk_status history_add(history *h, yk_tensor *change, yk_tensor *step, double inverse)
{
    yk_status status = history_grow(h);
    if (status)
        return status;
    h->changes[h->count] = yk_tensor_retain(change);
    h->steps[h->count] = yk_tensor_retain(step);
    h->inverse[h->count++] = inverse;
    return YK_OK;
}

static history *history_new(void)
{
    history *h = yk__calloc(1, sizeof(*h));
    if (h)
        h->scale = 1;
    return h;
}

/* `x`, owned by the scope, takes the place of *kept. */
static void keep(yk_tensor **kept, yk_tensor *x)
{
    yk_tensor_retain(x);
    yk_tensor_release(*kept);
    *kept = x;
}

/* ---- the vector of all parameters -------------------------------------------------------------------------------- */

static yk_dtype common_dtype(const yk__optim_group *group)
{
    for (int64_t i = 0; i < group->count; i++) {
        if (yk__parameters_at(group->params, i)->dtype == YK_F64)
            return YK_F64;
    }
    return YK_F32;
}

/* One piece for each parameter, flat, in one vector; in a scope. */
static yk_tensor *flat(const yk__optim_group *group, bool gradients)
{
    yk_tensor **pieces = yk__calloc((size_t)group->count, sizeof(yk_tensor *));
    yk_dtype dtype = common_dtype(group);
    bool whole = pieces != NULL;
    for (int64_t i = 0; i < group->count && whole; i++) {
        yk_tensor *x = yk__parameters_at(group->params, i);
        yk_tensor *piece = gradients ? yk_grad_to_dense(x) : x;
        if (!piece && !yk__error_code())
            piece = yk_zeros_like(x);
        pieces[i] = yk_cast(yk_reshape(piece, 1, (const int64_t[]){-1}), dtype);
        whole = pieces[i] != NULL;
    }
    yk_tensor *vector = whole ? yk_cat(pieces, (int)group->count, 0) : NULL;
    free(pieces);
    return vector;
}

static yk_tensor *flat_gradient(const yk__optim_group *group)
{
    yk_tensor *g = flat(group, true);
    return group->options.lbfgs.maximize ? yk_neg(g) : g;
}

/* The vector's part of parameter i, which begins at *offset, in its shape and dtype. */
static yk_tensor *part_of(const yk__optim_group *group, int64_t i, yk_tensor *vector, int64_t *offset)
{
    const yk_tensor *x = yk__parameters_at(group->params, i);
    yk_tensor *part = yk_reshape(yk_narrow(vector, 0, *offset, x->numel), x->ndim, x->shape);
    *offset += x->numel;
    return yk_cast(part, (yk_dtype)x->dtype);
}

/* Parameters += length direction. */
static yk_status move(const yk__optim_group *group, double length, yk_tensor *direction)
{
    yk_scope scope = yk_scope_begin();
    yk_status status = YK_OK;
    int64_t offset = 0;
    for (int64_t i = 0; i < group->count && !status; i++) {
        yk_tensor *part = part_of(group, i, direction, &offset);
        if (!part || !yk_add_(yk__parameters_at(group->params, i), part, length))
            status = yk__error_code();
    }
    yk_scope_end(scope);
    return status;
}

/* Parameters = x. */
static yk_status put(const yk__optim_group *group, yk_tensor *x)
{
    yk_scope scope = yk_scope_begin();
    yk_status status = YK_OK;
    int64_t offset = 0;
    for (int64_t i = 0; i < group->count && !status; i++) {
        yk_tensor *part = part_of(group, i, x, &offset);
        if (!part || !yk_copy_(yk__parameters_at(group->params, i), part))
            status = yk__error_code();
    }
    yk_scope_end(scope);
    return status;
}

/* NaN on failure. */
static double number(yk_tensor *x)
{
    return x ? yk_item(x) : NAN;
}

static double dot(yk_tensor *a, yk_tensor *b)
{
    yk_scope scope = yk_scope_begin();
    double value = number(yk_sum(yk_mul(a, b)));
    yk_scope_end(scope);
    return value;
}

static double largest(yk_tensor *x)
{
    yk_scope scope = yk_scope_begin();
    double value = number(yk_max(yk_abs(x)));
    yk_scope_end(scope);
    return value;
}

/* ---- the search along a direction: line_search.c, of this objective ---- */

typedef struct objective {
    const yk__optim_group *group;
    yk_closure_fn closure;
    void *user;
    yk_tensor *start, *direction;
} objective;

/* The loss, to be made small, and its gradient where the parameters are. */
static yk_status measure(const objective *o, double *loss, yk_tensor **gradient)
{
    yk_status status = yk__optimizer_evaluate(o->closure, o->user, loss);
    if (status)
        return status;
    *loss = o->group->options.lbfgs.maximize ? -*loss : *loss;
    *gradient = flat_gradient(o->group);
    return *gradient ? YK_OK : yk__error_code();
}

static yk_status measure_at(void *user, double length, double *loss, yk_tensor **gradient, double *slope)
{
    const objective *o = user;
    yk_status status = move(o->group, length, o->direction);
    if (!status)
        status = measure(o, loss, gradient);
    if (!status)
        *slope = dot(*gradient, o->direction);
    yk_status back = put(o->group, o->start);
    return status ? status : back;
}

/* ---- the step ---------------------------------------------------------------------------------------------------- */

/* The change of the gradient g since the last step and that step become the newest pair, where the loss is curved. In a
 * scope. */
static yk_status remember(history *h, yk_tensor *g, int64_t room)
{
    yk_tensor *change = yk_sub(g, h->previous), *step = yk_mul_scalar(h->direction, h->length);
    double curvature = dot(change, step);
    if (!change || !step || yk__error_code())
        return yk__error_code();
    if (!(curvature > 1e-10))
        return YK_OK;
    while (h->count >= room && h->count > 0)
        history_drop(h);
    yk_status status = history_add(h, change, step, 1 / curvature);
    h->scale = curvature / dot(change, change);
    return status;
}

/* -g multiplied by the inverse of the approximate Hessian. In a scope. */
static yk_tensor *quasi_newton(const history *h, yk_tensor *g)
{
    double *along = yk__calloc((size_t)h->count + 1, sizeof(*along));
    yk_tensor *d = along ? yk_neg(g) : NULL;
    for (int64_t i = h->count - 1; i >= 0 && d; i--) {
        along[i] = dot(h->steps[i], d) * h->inverse[i];
        d = yk_add_(d, h->changes[i], -along[i]);
    }
    d = d ? yk_mul_scalar(d, h->scale) : NULL;
    for (int64_t i = 0; i < h->count && d; i++)
        d = yk_add_(d, h->steps[i], along[i] - dot(h->changes[i], d) * h->inverse[i]);
    free(along);
    return d;
}

/* The state of an iteration: the loss and gradient of the parameters as they are now. */
typedef struct position {
    double loss;
    yk_tensor *gradient; /* retained */
    int64_t evaluations;
    bool done;
} position;

/* One iteration; p->done where there is no use in a further one. */
static yk_status iterate(const objective *base, history *h, position *p, bool last)
{
    const yk__lbfgs *o = &base->group->options.lbfgs;
    objective along = *base;
    yk_status status = YK_OK;
    h->n_iter++;
    if (h->n_iter > 1)
        status = remember(h, p->gradient, (int64_t)o->history_size);
    yk_tensor *d = status ? NULL : h->n_iter == 1 ? yk_neg(p->gradient) : quasi_newton(h, p->gradient);
    if (!d)
        return yk__error_code();
    keep(&h->direction, d);
    keep(&h->previous, p->gradient);
    double before = h->loss = p->loss;
    h->length = base->group->lr;
    if (h->n_iter == 1) {
        double shortest = 1 / number(yk_sum(yk_abs(p->gradient)));
        h->length *= shortest < 1 ? shortest : 1;
    }
    double slope = dot(p->gradient, d);
    if (yk__error_code())
        return yk__error_code();
    p->done = slope > -o->tolerance_change;
    if (p->done)
        return YK_OK;
    int64_t evaluations = 0;
    along.direction = d;
    yk_tensor *gradient = p->gradient;
    if (o->line_search != YK_NO_LINE_SEARCH) {
        along.start = flat(base->group, false);
        yk__wolfe_search search = {.measure = measure_at,
                                   .user = &along,
                                   .length = h->length,
                                   .loss = p->loss,
                                   .slope = slope,
                                   .gradient = gradient,
                                   .reach = largest(d),
                                   .tolerance = o->tolerance_change,
                                   .most = (int64_t)o->max_eval - p->evaluations};
        status = along.start ? yk__strong_wolfe(&search) : yk__error_code();
        h->length = search.length;
        p->loss = search.loss;
        gradient = search.gradient;
        evaluations = search.evaluations;
    }
    if (!status)
        status = move(base->group, h->length, d);
    if (!status && o->line_search == YK_NO_LINE_SEARCH && !last) {
        status = measure(base, &p->loss, &gradient);
        evaluations = 1;
    }
    if (status)
        return status;
    keep(&p->gradient, gradient);
    p->evaluations += evaluations;
    h->func_evals += evaluations;
    p->done = last || p->evaluations >= (int64_t)o->max_eval || largest(p->gradient) <= o->tolerance_grad ||
              fabs(h->length) * largest(d) <= o->tolerance_change || fabs(p->loss - before) < o->tolerance_change;
    return yk__error_code();
}

static yk_status check_devices(const yk__optim_group *group)
{
    yk_device first = yk__device_of(yk__parameters_at(group->params, 0));
    for (int64_t i = 1; i < group->count; i++) {
        yk_device device = yk__device_of(yk__parameters_at(group->params, i));
        char a[16], b[16];
        if (!yk_device_equal(device, first))
            return yk__fail(YK_ERR_DEVICE,
                            "lbfgs: parameter %s is on %s, but %s on %s: they are one vector, on one device",
                            yk__parameters_name(group->params, i), yk_device_format(device, a),
                            yk__parameters_name(group->params, 0), yk_device_format(first, b));
    }
    return YK_OK;
}

/* Brings the state to the device and dtype of the parameters, where these were moved. */
static yk_status follow(history *h, const yk__optim_group *group)
{
    yk_device device = yk__device_of(yk__parameters_at(group->params, 0));
    yk_dtype dtype = common_dtype(group);
    if (!h->direction ||
        (yk_device_equal(yk__device_of(h->direction), device) && (yk_dtype)h->direction->dtype == dtype))
        return YK_OK;
    yk_scope scope = yk_scope_begin();
    yk_status status = YK_OK;
    for (int64_t i = -2; i < 2 * h->count && !status; i++) {
        yk_tensor **x = i == -2        ? &h->direction
                        : i == -1      ? &h->previous
                        : i < h->count ? &h->changes[i]
                                       : &h->steps[i - h->count];
        yk_tensor *moved = yk_cast(yk_to(*x, device), dtype);
        if (moved)
            keep(x, moved);
        else
            status = yk__error_code();
    }
    yk_scope_end(scope);
    return status;
}

static yk_status lbfgs_step(yk_optimizer *o, yk_closure_fn closure, void *user, double *loss)
{
    const yk__optim_group *group = &o->groups[0];
    yk_status status = check_devices(group);
    if (status)
        return status;
    if (!o->whole)
        o->whole = history_new();
    history *h = o->whole;
    if (!h)
        return YK_ERR_MEMORY;
    status = follow(h, group);
    if (status)
        return status;
    objective base = {.group = group, .closure = closure, .user = user};
    position p = {.evaluations = 1};
    yk_scope scope = yk_scope_begin();
    yk_tensor *gradient;
    status = measure(&base, &p.loss, &gradient);
    if (!status) {
        keep(&p.gradient, gradient);
        h->func_evals++;
        if (loss)
            *loss = group->options.lbfgs.maximize ? -p.loss : p.loss;
        p.done = largest(gradient) <= group->options.lbfgs.tolerance_grad;
        status = yk__error_code();
    }
    yk_scope_end(scope);
    int64_t most = (int64_t)group->options.lbfgs.max_iter;
    for (int64_t i = 1; i <= most && !p.done && !status; i++) {
        scope = yk_scope_begin();
        status = iterate(&base, h, &p, i == most);
        yk_scope_end(scope);
    }
    yk_tensor_release(p.gradient);
    return status;
}

/* ---- state ------------------------------------------------------------------------------------------------------- */

static const char *const entry_names[] = {"n_iter", "func_evals",     "d",         "t", "old_dirs", "old_stps", "ro",
                                          "H_diag", "prev_flat_grad", "prev_loss", NULL};

static yk_status add_entry(const yk_optimizer *o, yk_state_dict *dict, const char *what, yk_tensor *x)
{
    char name[640];
    const char *first = yk__parameters_name(o->groups[0].params, 0);
    if (!x)
        return yk__error_code();
    if (snprintf(name, sizeof(name), "state.%s.%s", first, what) >= (int)sizeof(name))
        return yk__fail(YK_ERR_ARGUMENT, "optimizer state: the parameter's name '%.60s...' is too long", first);
    return yk_state_dict_add(dict, name, x);
}

static yk_tensor *numbers(const double *values, int64_t count, int ndim, yk_dtype dtype)
{
    yk_tensor *x = yk_from_data(values, ndim, &count, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    return yk_cast(x, dtype);
}

static yk_status save(const yk_optimizer *o, yk_state_dict *dict)
{
    const history *h = o->whole;
    if (!h->n_iter)
        return YK_OK;
    yk_scope scope = yk_scope_begin();
    bool recording = yk_no_grad_begin();
    double counts[] = {(double)h->n_iter, (double)h->func_evals};
    yk_status status = add_entry(o, dict, "n_iter", numbers(&counts[0], 1, 0, YK_I64));
    if (!status)
        status = add_entry(o, dict, "func_evals", numbers(&counts[1], 1, 0, YK_I64));
    if (!status)
        status = add_entry(o, dict, "d", h->direction);
    if (!status)
        status = add_entry(o, dict, "t", numbers(&h->length, 1, 0, YK_F64));
    if (!status && h->count)
        status = add_entry(o, dict, "old_dirs", yk_stack(h->changes, (int)h->count, 0));
    if (!status && h->count)
        status = add_entry(o, dict, "old_stps", yk_stack(h->steps, (int)h->count, 0));
    if (!status && h->count)
        status = add_entry(o, dict, "ro", numbers(h->inverse, h->count, 1, YK_F64));
    if (!status)
        status = add_entry(o, dict, "H_diag", numbers(&h->scale, 1, 0, YK_F64));
    if (!status)
        status = add_entry(o, dict, "prev_flat_grad", h->previous);
    if (!status)
        status = add_entry(o, dict, "prev_loss", numbers(&h->loss, 1, 0, YK_F64));
    yk_no_grad_end(recording);
    yk_scope_end(scope);
    return status;
}

/* A scalar of the state. */
static yk_status load_number(const yk_state_dict *dict, const char *first, const char *what, double *value,
                             int64_t *used)
{
    int64_t at = yk__optimizer_entry(dict, first, what);
    if (at < 0)
        return yk__fail(YK_ERR_NOT_FOUND, "lbfgs: the state of %s has no %s", first, what);
    ++*used;
    return yk__optimizer_numbers(what, yk__state_dict_at(dict, at), 1, value);
}

/* An entry of `count` rows of all parameters' elements, or of one that is flat for -1, on the device of the parameters;
 * owned by the scope. */
static yk_tensor *load_rows(const yk_optimizer *o, const yk_state_dict *dict, const char *what, int64_t count,
                            int64_t *used)
{
    const yk__optim_group *group = &o->groups[0];
    const char *first = yk__parameters_name(group->params, 0);
    int64_t at = yk__optimizer_entry(dict, first, what), numel = 0;
    char shape[200];
    for (int64_t i = 0; i < group->count; i++)
        numel += yk__parameters_at(group->params, i)->numel;
    if (at < 0) {
        yk__fail(YK_ERR_NOT_FOUND, "lbfgs: the state of %s has no %s", first, what);
        return NULL;
    }
    yk_tensor *x = yk__state_dict_at(dict, at);
    bool right =
        count < 0 ? x->ndim == 1 && x->shape[0] == numel : x->ndim == 2 && x->shape[0] == count && x->shape[1] == numel;
    if (!right || !yk_dtype_is_floating((yk_dtype)x->dtype)) {
        yk__fail(right ? YK_ERR_DTYPE : YK_ERR_SHAPE,
                 "lbfgs: %s is %s of shape %s, expected floats, %lld for each of %lld vectors", what,
                 yk_dtype_name((yk_dtype)x->dtype), yk_shape_format(x, shape, sizeof(shape)), (long long)numel,
                 (long long)(count < 0 ? 1 : count));
        return NULL;
    }
    ++*used;
    return yk_to(yk_cast(yk_clone(x), common_dtype(group)), yk__device_of(yk__parameters_at(group->params, 0)));
}

static yk_status load_history(const yk_optimizer *o, const yk_state_dict *dict, history *h, int64_t *used)
{
    const char *first = yk__parameters_name(o->groups[0].params, 0);
    double n_iter, func_evals;
    yk_status status = load_number(dict, first, "n_iter", &n_iter, used);
    if (!status)
        status = load_number(dict, first, "func_evals", &func_evals, used);
    if (!status && !(n_iter >= 1 && n_iter < 0x1p53 && n_iter == floor(n_iter) && func_evals >= 1 &&
                     func_evals < 0x1p53 && func_evals == floor(func_evals)))
        status = yk__fail(YK_ERR_ARGUMENT, "lbfgs: n_iter is %g and func_evals %g, expected positive integers", n_iter,
                          func_evals);
    if (status)
        return status;
    h->n_iter = (int64_t)n_iter;
    h->func_evals = (int64_t)func_evals;
    int64_t at = yk__optimizer_entry(dict, first, "ro"), count = at < 0 ? 0 : yk_numel(yk__state_dict_at(dict, at));
    status = load_number(dict, first, "t", &h->length, used);
    if (!status)
        status = load_number(dict, first, "H_diag", &h->scale, used);
    if (!status)
        status = load_number(dict, first, "prev_loss", &h->loss, used);
    yk_tensor *d = status ? NULL : load_rows(o, dict, "d", -1, used);
    yk_tensor *previous = d ? load_rows(o, dict, "prev_flat_grad", -1, used) : NULL;
    if (!previous)
        return yk__error_code();
    keep(&h->direction, d);
    keep(&h->previous, previous);
    if (!count)
        return YK_OK;
    ++*used;
    double *inverse = yk__calloc((size_t)count, sizeof(*inverse));
    status = inverse ? yk__optimizer_numbers("ro", yk__state_dict_at(dict, at), count, inverse) : YK_ERR_MEMORY;
    yk_tensor *changes = status ? NULL : load_rows(o, dict, "old_dirs", count, used);
    yk_tensor *steps = changes ? load_rows(o, dict, "old_stps", count, used) : NULL;
    for (int64_t i = 0; i < count && steps && !status; i++) {
        yk_tensor *change = yk_clone(yk_select(changes, 0, i)), *step = yk_clone(yk_select(steps, 0, i));
        status = step ? history_add(h, change, step, inverse[i]) : yk__error_code();
    }
    free(inverse);
    return steps ? status : yk__error_code();
}

static yk_status load(const yk_optimizer *o, const yk_state_dict *dict, void **state, int64_t *used)
{
    const char *first = yk__parameters_name(o->groups[0].params, 0);
    bool any = false;
    for (int i = 0; entry_names[i] && !any; i++)
        any = yk__optimizer_entry(dict, first, entry_names[i]) >= 0;
    if (!any)
        return YK_OK;
    history *h = history_new();
    if (!h)
        return YK_ERR_MEMORY;
    yk_scope scope = yk_scope_begin();
    bool recording = yk_no_grad_begin();
    yk_status status = load_history(o, dict, h, used);
    yk_no_grad_end(recording);
    yk_scope_end(scope);
    *state = h;
    return status;
}

/* ---- the kind ---------------------------------------------------------------------------------------------------- */

static yk_status lbfgs_configure(const yk__optim_kind *kind, const void *options, yk__optim_group *group)
{
    yk_lbfgs_options o;
    if (YK__OPTIONS_TAKE(kind->name, yk_lbfgs_options, (const yk_lbfgs_options *)options, &o))
        return YK_ERR_ARGUMENT;
    yk__lbfgs *p = &group->options.lbfgs;
    p->max_iter = (double)o.max_iter;
    p->max_eval = o.max_eval == YK_NOT_GIVEN ? floor(p->max_iter * 5 / 4) : (double)o.max_eval;
    p->history_size = (double)o.history_size;
    yk__optim_take(&p->tolerance_grad, o.tolerance_grad);
    yk__optim_take(&p->tolerance_change, o.tolerance_change);
    p->line_search = (int)o.line_search_fn;
    p->maximize = o.maximize;
    return yk__optimizer_rate(kind->name, o.lr, &group->lr);
}

static yk_status check_count(const char *kind, const char *name, double count)
{
    return count >= 1 && count <= 0x1p31 && count == floor(count)
               ? YK_OK
               : yk__fail(YK_ERR_ARGUMENT, "%s: %s is %g, expected a whole number, at least 1", kind, name, count);
}

static yk_status lbfgs_check(const yk__optim_kind *kind, const yk__optim_group *group)
{
    const yk__lbfgs *p = &group->options.lbfgs;
    yk_status status = check_count(kind->name, "max_iter", p->max_iter);
    if (!status)
        status = check_count(kind->name, "max_eval", p->max_eval);
    if (!status)
        status = check_count(kind->name, "history_size", p->history_size);
    if (!status)
        status = yk__check_number(kind->name, "tolerance_grad", p->tolerance_grad, 0, INFINITY);
    if (!status)
        status = yk__check_number(kind->name, "tolerance_change", p->tolerance_change, 0, INFINITY);
    if (!status && p->line_search != YK_NO_LINE_SEARCH && p->line_search != YK_STRONG_WOLFE)
        status = yk__fail(YK_ERR_ARGUMENT, "lbfgs: line_search_fn is %g, expected YK_NO_LINE_SEARCH or YK_STRONG_WOLFE",
                          p->line_search);
    return status;
}

static unsigned lbfgs_states(const yk__optim_group *group)
{
    (void)group;
    return 0;
}

static const yk__optim_whole whole = {
    .names = entry_names, .step = lbfgs_step, .save = save, .load = load, .free = history_free, .steps = history_steps};

#define NUMBER(name, member, count, fixed)                                                                             \
    {                                                                                                                  \
        name, offsetof(yk__optim_group, options.lbfgs.member), count, fixed                                            \
    }
static const yk__optim_kind lbfgs_kind = {
    .name = "lbfgs",
    .numbers = {NUMBER("history_size", history_size, 1, false), NUMBER("max_iter", max_iter, 1, false),
                NUMBER("max_eval", max_eval, 1, false), NUMBER("tolerance_grad", tolerance_grad, 1, false),
                NUMBER("tolerance_change", tolerance_change, 1, false), NUMBER("line_search_fn", line_search, 1, false),
                NUMBER("maximize", maximize, 0, false)},
    .preset = {.lr = 1, .options.lbfgs = {.tolerance_grad = 1e-7, .tolerance_change = 1e-9}},
    .configure = lbfgs_configure,
    .check = lbfgs_check,
    .states = lbfgs_states,
    .whole = &whole};

yk_optimizer *(yk_lbfgs)(yk_parameters *params, const yk_lbfgs_options *options)
{
    YK__LIVE(params);
    return yk__optimizer_create(&lbfgs_kind, params, options);
}
