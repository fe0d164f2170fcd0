/*
 * history.c - views and writes in place: changes of a tensor's history, and of that of tensors that share its memory.
 * Layer: autograd.
 *
 * Note [Views and writes in place]
 * A view that an operation made knows its base, the tensor at the root whose memory it shows, and the version of that
 * memory for which its own node holds. A write in place on x bumps the version and gives x a new node. Where x is a
 * base, each view of it finds the version changed when its history is next asked for, and makes a new one: an
 * "as_strided" node, from the base as it is now. Where x is a view, it is the base that gets the new node,
 * "copy_slices": its gradient outside of x's part belongs to the base before the write, and inside to the operation,
 * whose own backward runs on that part. x and the other views then follow as above.
 *
 *     base --- "mul" <--- "copy_slices" [add_ on the part] <--- "as_strided" --- view
 *                              '--- what was added
 *
 * Invariants: a base is no view; a node holds no tensor that holds it. For the latter, what comes to be held by a graph
 * that it is saved in is replaced there by an alias, which has no history (drop_cycles).
 * Source: "View + Inplace detection" and CopySlices of PyTorch's autograd.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/engine.h"

/* ---- geometry ---- */

/* The positions of a view's elements among those of its base; strides and offset in elements. */
typedef struct geometry {
    int8_t dtype, base_ndim, ndim;
    int64_t base_shape[YK_MAX_DIMS], base_stride[YK_MAX_DIMS], shape[YK_MAX_DIMS], stride[YK_MAX_DIMS], offset;
} geometry;

static geometry geometry_of(const yk_tensor *view, const yk_tensor *base)
{
    geometry g = {.dtype = base->dtype, .base_ndim = base->ndim, .ndim = view->ndim};
    memcpy(g.base_shape, base->shape, sizeof(g.base_shape));
    memcpy(g.base_stride, base->stride, sizeof(g.base_stride));
    memcpy(g.shape, view->shape, sizeof(g.shape));
    memcpy(g.stride, view->stride, sizeof(g.stride));
    int64_t bytes = (char *)view->data - (char *)base->data;
    g.offset = bytes / (int64_t)yk_dtype_size((yk_dtype)base->dtype);
    return g;
}

/* A tensor with the shape and the very strides of the base, gaps included. */
static yk_tensor *like_base(const geometry *g, yk_device device)
{
    int64_t extent = 1;
    for (int d = 0; d < g->base_ndim; d++)
        extent = g->base_shape[d] ? extent + (g->base_shape[d] - 1) * g->base_stride[d] : 0;
    yk_tensor *flat = yk__tensor_new(1, &extent, NULL, (yk_dtype)g->dtype, device);
    yk_tensor *x = yk__tensor_view(flat, g->base_ndim, g->base_shape, g->base_stride, 0);
    yk_tensor_release(flat);
    return x;
}

/* The part of such a tensor that the view shows; where it repeats an element, that element once. */
static yk_tensor *part_of(yk_tensor *like, const geometry *g)
{
    int64_t shape[YK_MAX_DIMS];
    for (int d = 0; d < g->ndim; d++)
        shape[d] = g->stride[d] == 0 && g->shape[d] > 1 ? 1 : g->shape[d];
    return yk__tensor_view(like, g->ndim, shape, g->stride, g->offset);
}

bool yk__is_expanded(const yk_tensor *x)
{
    for (int d = 0; d < x->ndim; d++) {
        if (x->stride[d] == 0 && x->shape[d] > 1)
            return true;
    }
    return false;
}

/* ---- views ---- */

void yk__view_link(yk_tensor *out, yk_tensor *x, yk__view_kind kind)
{
    if (!out || out->storage != x->storage)
        return;
    bool of_view = x->base && x->base->storage == x->storage;
    if (kind == YK__VIEW_PLAIN && !yk_grad_enabled())
        kind = YK__VIEW_UNRECORDED;
    yk_tensor *old = out->base;
    out->base = yk_tensor_retain(of_view ? x->base : x);
    out->base_version = yk__version(x);
    out->view_kind = (int8_t)(kind == YK__VIEW_PLAIN && of_view ? x->view_kind : (int8_t)kind);
    yk_tensor_release(old);
}

yk_tensor *yk__record_view(yk_tensor *out, const yk__op *op, yk_tensor *x, const void *context, size_t context_size)
{
    out = yk__record(out, op, 1, &x, 0, NULL, context, context_size);
    yk__view_link(out, x, YK__VIEW_PLAIN);
    return out;
}

yk_status yk__record_views(int n_outputs, yk_tensor **outs, const yk__op *op, yk_tensor *x, const void *context,
                           size_t context_size)
{
    yk_status status = yk__record_list(n_outputs, outs, op, 1, &x, 0, NULL, context, context_size);
    for (int i = 0; !status && i < n_outputs; i++)
        yk__view_link(outs[i], x, yk_grad_enabled() ? YK__VIEW_SEVERAL : YK__VIEW_UNRECORDED);
    return status;
}

/* Why a view that is not plain cannot follow a write. */
static const char *kind_text(const yk_tensor *x)
{
    switch ((yk__view_kind)x->view_kind) {
    case YK__VIEW_UNRECORDED: return "a view that was made while nothing was recorded";
    case YK__VIEW_SEVERAL: return "one of several views that one operation made";
    case YK__VIEW_CUSTOM: return "a view that a custom function gave back";
    default: return "a view";
    }
}

/* A gradient of the part in zeros of the base's shape; one reference. */
static yk_tensor *part_put(yk_tensor *gout, const geometry *g)
{
    int64_t once[YK_MAX_DIMS];
    for (int d = 0; d < g->ndim; d++)
        once[d] = g->stride[d] == 0 && g->shape[d] > 1 ? 1 : g->shape[d];
    yk_tensor *sum = yk__raw_sum_to(gout, g->ndim, once), *grad = sum ? like_base(g, yk__device_of(gout)) : NULL;
    yk_tensor *part = grad ? part_of(grad, g) : NULL;
    yk_status status = part ? yk__raw_fill(grad, 0) : yk__error_code();
    if (!status)
        status = yk__raw_copy(part, sum);
    yk_tensor_release(part);
    yk_tensor_release(sum);
    return yk__tensor_if_ok(grad, status);
}

/* The part of a gradient of the base's shape, in memory of its own; one reference. */
static yk_tensor *part_taken(yk_tensor *gbase, const geometry *g)
{
    yk_tensor *like = like_base(g, yk__device_of(gbase)), *out = NULL;
    yk_tensor *part =
        like && !yk__raw_copy(like, gbase) ? yk__tensor_view(like, g->ndim, g->shape, g->stride, g->offset) : NULL;
    if (part)
        out = yk__raw_clone(part);
    yk_tensor_release(part);
    yk_tensor_release(like);
    return out;
}

/* Each of the two is the gradient of the other: as_strided, and its backward. */
static yk_status as_strided_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    grads[0] = part_put(gout, yk__context(node));
    return grads[0] ? YK_OK : yk__error_code();
}

static yk_status part_put_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    grads[0] = part_taken(gout, yk__context(node));
    return grads[0] ? YK_OK : yk__error_code();
}

static void as_strided_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads);
static void part_put_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads);
static const yk__op as_strided_op = {.name = "as_strided",
                                     .backward = as_strided_backward,
                                     .recorded = as_strided_recorded},
                    part_put_op = {
                        .name = "as_strided_backward", .backward = part_put_backward, .recorded = part_put_recorded};

static void as_strided_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const geometry *g = yk__context(node);
    grads[0] = yk__record(part_put(gouts[0], g), &part_put_op, 1, gouts, 0, NULL, g, sizeof(*g));
}

static void part_put_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const geometry *g = yk__context(node);
    grads[0] = yk__record(part_taken(gouts[0], g), &as_strided_op, 1, gouts, 0, NULL, g, sizeof(*g));
}

/* x gets a new node (one reference, taken over); a wish to keep its gradient goes on. */
static void set_node(yk_tensor *x, yk__node *node)
{
    yk__node *old = x->node;
    if (old)
        node->outputs[0].keep_grad = old->outputs[x->output].keep_grad;
    x->node = node;
    x->output = 0;
    yk__node_release(old);
}

yk_status yk__view_refresh(yk_tensor *x)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* two threads may read one view */
    if (x->view_kind != YK__VIEW_PLAIN || yk__is_expanded(x->base)) {
        char shape[200];
        return yk__fail(YK_ERR_STATE,
                        "the tensor of shape %s is %s, and what it shows was changed in place since: it was made at "
                        "version %u and is at version %u; its gradient would come out wrong",
                        yk_shape_format(x, shape, sizeof(shape)), kind_text(x), x->base_version, yk__version(x));
    }
    pthread_mutex_lock(&lock);
    yk_status status = YK_OK;
    if (yk__view_stale(x)) {
        geometry g = geometry_of(x, x->base);
        yk__node *node = yk__node_record(1, &x, &as_strided_op, 1, &x->base, 0, NULL, &g, sizeof(g));
        if (node) {
            set_node(x, node);
            __atomic_store_n(&x->base_version, yk__version(x), __ATOMIC_RELEASE);
        } else {
            status = yk__error_code();
        }
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- a write to a part of a base ---- */

typedef struct slices {
    yk__node *inner; /* the operation on the part */
    geometry g;
} slices;

static void slices_clear(void *context)
{
    slices *s = context;
    yk__node_release(s->inner);
    s->inner = NULL;
}

static yk_status slices_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    slices *s = yk__context(node);
    yk_tensor *rest = like_base(&s->g, yk__device_of(gout)), *part = rest ? part_of(rest, &s->g) : NULL, *g = NULL;
    yk_status status = part ? yk__raw_copy(rest, gout) : yk__error_code();
    if (!status) {
        g = yk__raw_clone(part);
        status = g ? s->inner->op->backward(s->inner, g, grads) : yk__error_code();
    }
    /* The base before the write gets its own gradient outside of the part, the operation's inside. */
    if (!status && yk__needs_grad(node, 0)) {
        status = grads[0] ? yk__raw_copy(part, grads[0]) : yk__raw_fill(part, 0);
        yk_tensor_release(grads[0]);
        grads[0] = yk_tensor_retain(rest);
    }
    yk_tensor_release(g);
    yk_tensor_release(part);
    yk_tensor_release(rest);
    return status;
}

/* A gradient of the base with zeros in the part; its own gradient is of the same form. One reference. */
static yk_tensor *without_part(yk_tensor *gbase, const geometry *g)
{
    yk_tensor *rest = like_base(g, yk__device_of(gbase)), *part = rest ? part_of(rest, g) : NULL;
    yk_status status = part ? yk__raw_copy(rest, gbase) : yk__error_code();
    if (!status)
        status = yk__raw_fill(part, 0);
    yk_tensor_release(part);
    return yk__tensor_if_ok(rest, status);
}

static yk_status without_part_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    grads[0] = without_part(gout, yk__context(node));
    return grads[0] ? YK_OK : yk__error_code();
}

static void without_part_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    static const yk__op op = {
        .name = "copy_slices_backward", .backward = without_part_backward, .recorded = without_part_recorded};
    const geometry *g = yk__context(node);
    grads[0] = yk__record(without_part(gouts[0], g), &op, 1, gouts, 0, NULL, g, sizeof(*g));
}

static void slices_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    static const yk__op rest_op = {
        .name = "copy_slices_backward", .backward = without_part_backward, .recorded = without_part_recorded};
    const slices *s = yk__context(node);
    if (!s->inner->op->recorded) {
        yk__fail(YK_ERR_UNSUPPORTED, "%s: its gradient has no gradient yet, so create_graph cannot go through it",
                 s->inner->head.name);
        return;
    }
    yk_tensor *part = yk__record(part_taken(gouts[0], &s->g), &as_strided_op, 1, gouts, 0, NULL, &s->g, sizeof(s->g));
    if (!part)
        return;
    s->inner->op->recorded(s->inner, &part, grads);
    if (yk__error_code() || !yk__needs_grad(node, 0))
        return;
    yk_tensor *rest = yk__record(without_part(gouts[0], &s->g), &rest_op, 1, gouts, 0, NULL, &s->g, sizeof(s->g));
    if (rest && grads[0]) {
        yk_tensor *put = yk__record(part_put(grads[0], &s->g), &part_put_op, 1, grads, 0, NULL, &s->g, sizeof(s->g));
        rest = put ? yk__scope_own(yk__recorded_sum(rest, put)) : NULL;
    }
    grads[0] = rest;
}

static const yk__op slices_op = {
    .name = "copy_slices", .backward = slices_backward, .recorded = slices_recorded, .clear = slices_clear};

/* ---- no cycles ---- */

static yk_status replace_saved(yk__node *node, const yk_tensor *base)
{
    for (int i = 0; i < node->n_saved; i++) {
        yk_tensor *saved = node->saved[i].tensor;
        if (!saved || (saved != base && saved->base != base))
            continue;
        yk_tensor *alias = yk__tensor_alias(saved);
        if (!alias)
            return YK_ERR_MEMORY;
        node->saved[i].tensor = alias;
        yk_tensor_release(saved);
    }
    return YK_OK;
}

/* Replaces the saved tensors that are `base`, or a view of it, by aliases, in all nodes that `root` reaches: a cycle of
 * references would keep them alive. Only a tensor that was saved and is then written needs this walk, and a backward
 * that asks for such a one fails by its version. */
static yk_status drop_cycles(yk__node *root, const yk_tensor *base)
{
    static atomic_ullong marks;
    uint64_t mark = atomic_fetch_add(&marks, 1) + 1;
    size_t count = 0, capacity = 64;
    yk__node **stack = yk__calloc(capacity, sizeof(*stack));
    yk_status status = stack ? YK_OK : YK_ERR_MEMORY;
    if (stack)
        stack[count++] = root;
    while (!status && count) {
        yk__node *node = stack[--count];
        if (node->mark == mark)
            continue;
        node->mark = mark;
        status = replace_saved(node, base);
        if (!status && node->op == &slices_op && !node->freed)
            status = replace_saved(((slices *)yk__context(node))->inner, base);
        if (!status && count + (size_t)node->n_inputs > capacity) {
            capacity = 2 * (count + (size_t)node->n_inputs);
            yk__node **grown = yk__realloc(stack, capacity * sizeof(*stack));
            status = grown ? YK_OK : YK_ERR_MEMORY;
            stack = grown ? grown : stack;
        }
        for (int i = 0; i < node->n_inputs && !status; i++) {
            if (node->edges[i].node && node->edges[i].node->mark != mark)
                stack[count++] = node->edges[i].node;
        }
    }
    free(stack);
    return status;
}

/* ---- in place ---- */

static yk_tensor *base_of(const yk_tensor *x)
{
    return x->base && x->base->storage == x->storage ? x->base : NULL;
}

yk_status yk__in_place_begin(const char *name, yk_tensor *x, int n_inputs, yk_tensor *const *inputs)
{
    yk__operation_name = name;
    if (yk__is_expanded(x))
        return yk__fail(YK_ERR_STATE, "%s: the tensor is expanded, so several elements share memory; clone it first",
                        name);
    if (x->inference && !yk__inference_mode)
        return yk__fail(YK_ERR_STATE,
                        "%s: the tensor was made in inference mode and cannot be changed in place outside "
                        "of it; clone it first",
                        name);
    if (!yk__will_record(n_inputs, inputs))
        return YK_OK;
    yk_tensor *base = base_of(x);
    if (base && x->view_kind != YK__VIEW_PLAIN)
        return yk__fail(YK_ERR_STATE,
                        "%s: the tensor is %s; changed in place, gradients would come out wrong: take a part with "
                        "yk_select or yk_narrow where operations are recorded, or clone it first",
                        name, kind_text(x));
    if (base && yk__is_expanded(base))
        return yk__fail(YK_ERR_STATE, "%s: the tensor shows part of an expanded one, whose elements share memory",
                        name);
    for (int i = 0; i < n_inputs; i++) { /* before anything is written */
        if (inputs[i] && yk__view_stale(inputs[i]) && yk__view_refresh(inputs[i]))
            return yk__error_code();
    }
    const char *what = base && yk_is_leaf(base) && yk__wants_grad(x) ? "a view of a leaf" : "a leaf";
    if ((base && yk_is_leaf(base) && yk__wants_grad(x)) || (yk_is_leaf(x) && yk__wants_grad(x)))
        return yk__fail(YK_ERR_STATE,
                        "%s: %s that requires a gradient cannot be changed in place while operations are recorded; "
                        "put the change between yk_no_grad_begin and yk_no_grad_end",
                        name, what);
    return YK_OK;
}

/* Makes `inner`, which wrote to x, the maker of that part of base. Takes over inner, on failure too. */
static yk_status write_through(yk_tensor *x, yk_tensor *base, yk__node *inner)
{
    slices s = {.inner = inner, .g = geometry_of(x, base)};
    inner->of_part = true;
    yk__node *outer = yk__node_make(&slices_op, slices_op.name, 1, &base, inner->n_inputs, 0, sizeof(s));
    if (!outer) {
        yk__node_release(inner);
        return yk__error_code();
    }
    for (int i = 0; i < inner->n_inputs; i++)
        yk__edge_copy(outer, inner, i);
    memcpy(outer->context, &s, sizeof(s));
    set_node(base, outer);
    return YK_OK;
}

yk_status yk__in_place_end(yk_tensor *x, const yk__op *op, int n_inputs, yk_tensor *const *inputs, int n_saved,
                           yk_tensor *const *saved, const void *context, size_t context_size)
{
    yk__tell(op, context, n_inputs, inputs, 1, &x);
    if (!yk__will_record(n_inputs, inputs) || !yk_dtype_is_floating((yk_dtype)x->dtype)) {
        yk__drop_context(op, context);
        yk__bump_version(x);
        return YK_OK;
    }
    yk_tensor *few[4], *base = base_of(x), *target = base ? base : x;
    if (n_inputs > 4) /* there is no such operation */
        return yk__fail(YK_ERR_INTERNAL, "%s: %d inputs of an operation in place", op->name, n_inputs);
    memcpy(few, inputs, sizeof(*few) * (size_t)n_inputs);
    few[0] = target; /* the gradient of what was there before goes to where x's memory comes from */
    yk__node *node = yk__node_record(1, &x, op, n_inputs, few, n_saved, saved, context, context_size);
    yk__bump_version(x);
    if (!node) {
        yk__drop_context(op, context);
        return yk__error_code();
    }
    for (int i = 0; i < n_saved; i++) {
        if (saved[i] == x)
            node->saved[i].version = yk__version(x);
    }
    yk_status status = YK_OK;
    if (base)
        status = write_through(x, base, node);
    else
        set_node(x, node);
    if (!status && __atomic_load_n(&target->saved, __ATOMIC_RELAXED))
        status = drop_cycles(target->node, target);
    return status;
}
