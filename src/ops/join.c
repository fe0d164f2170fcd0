/*
 * join.c - several tensors made into one: cat and stack. Layer: ops.
 *
 * The gradient of each input is its part of the gradient, as a view.
 */
#include <stdlib.h>

#include "ops/cast_policy.h"

typedef struct piece {
    int64_t start, length;
    int8_t dtype;
    bool empty; /* the legacy (0,) that fits any shape: left out */
} piece;

typedef struct join_context {
    int dim;
    bool stacked;
    int count;
    piece pieces[];
} join_context;

static void join_describe(const void *context, yk__attributes *to)
{
    yk__attribute_whole(to, "dim", ((const join_context *)context)->dim);
}

/* The part of `x` that a piece takes; without the dimension where the tensors were stacked. */
static void piece_of(const yk_tensor *x, const join_context *c, const piece *p, yk__view *part)
{
    part->dtype = (yk_dtype)x->dtype;
    part->ndim = 0;
    for (int d = 0; d < x->ndim; d++) {
        if (d == c->dim && c->stacked)
            continue;
        part->shape[part->ndim] = d == c->dim ? p->length : x->shape[d];
        part->stride[part->ndim++] = x->stride[d];
    }
    int64_t offset = p->length ? p->start * x->stride[c->dim] : 0;
    part->data = (char *)x->data + offset * (int64_t)yk_dtype_size(part->dtype);
}

/* Makes `part` and `all` the views of a copy of `x` to that part, in memory's order where it is the same in both. */
static void piece_views(const yk_tensor *x, yk__view *part, yk__view *all)
{
    bool line = yk__is_dense(x);
    for (int d = 0; line && d < x->ndim; d++)
        line = x->shape[d] == 1 || x->stride[d] == part->stride[d];
    all->data = x->data;
    all->dtype = (yk_dtype)x->dtype;
    all->ndim = x->ndim;
    if (line) {
        part->ndim = all->ndim = 1;
        part->shape[0] = all->shape[0] = x->numel;
        part->stride[0] = all->stride[0] = 1;
        return;
    }
    for (int d = 0; d < x->ndim; d++) {
        all->shape[d] = x->shape[d];
        all->stride[d] = x->stride[d];
    }
}

static yk_status copy_pieces(yk_tensor *out, yk_tensor *const *xs, const join_context *c)
{
    enum { FEW = 8 };
    yk__view few[2 * FEW], *outs = c->count > FEW ? yk__calloc(2 * (size_t)c->count, sizeof(*outs)) : few;
    if (!outs)
        return yk__error_code();
    yk__view *ins = outs + c->count;
    int count = 0;
    for (int i = 0; i < c->count; i++) {
        if (xs[i]->numel == 0)
            continue;
        piece_of(out, c, &c->pieces[i], &outs[count]);
        piece_views(xs[i], &outs[count], &ins[count]);
        count++;
    }
    yk_status status = count ? YK__SLOT(out, copy_parts, count, outs, ins) : YK_OK;
    if (outs != few)
        free(outs);
    return status;
}

static yk_status join_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const join_context *c = yk__context(node);
    for (int i = 0; i < c->count; i++) {
        if (!yk__needs_grad(node, i) || c->pieces[i].empty)
            continue;
        yk__view part;
        piece_of(gout, c, &c->pieces[i], &part);
        int64_t offset = c->pieces[i].length ? c->pieces[i].start * gout->stride[c->dim] : 0;
        grads[i] = yk__narrow_to(yk__tensor_view(gout, part.ndim, part.shape, part.stride, offset),
                                 (yk_dtype)c->pieces[i].dtype);
        if (!grads[i])
            return yk__status_of(NULL);
    }
    return YK_OK;
}

static void join_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const join_context *c = yk__context(node);
    for (int i = 0; i < c->count; i++) {
        const piece *p = &c->pieces[i];
        if (!yk__needs_grad(node, i) || p->empty)
            continue;
        yk_tensor *part =
            c->stacked ? yk_select(gouts[0], c->dim, p->start) : yk_narrow(gouts[0], c->dim, p->start, p->length);
        grads[i] = yk_cast(part, (yk_dtype)p->dtype);
    }
}

static bool joinable(const char *name, const yk_tensor *first, const yk_tensor *x, int number, int except)
{
    bool fits = first->ndim == x->ndim;
    for (int d = 0; fits && d < x->ndim; d++)
        fits = d == except || x->shape[d] == first->shape[d];
    if (!fits) {
        char a[200], b[200];
        yk__fail(YK_ERR_SHAPE, "%s: tensor %d has shape %s, which does not fit %s%s", name, number,
                 yk_shape_format(x, a, sizeof(a)), yk_shape_format(first, b, sizeof(b)),
                 except >= 0 ? " outside the joined dimension" : "");
    }
    return fits;
}

/* Everything but recording: checks, the result's shape in *shape, pieces in c. The first tensor that counts, or NULL.
 */
static yk_tensor *plan(const char *name, yk_tensor *const *xs, int dim, join_context *c, int64_t *shape, int *ndim,
                       yk_dtype *dtype)
{
    yk_tensor *first = NULL;
    *dtype = (yk_dtype)xs[0]->dtype;
    for (int i = 0; i < c->count; i++) {
        c->pieces[i] = (piece){.dtype = xs[i]->dtype, .empty = !c->stacked && xs[i]->ndim == 1 && xs[i]->numel == 0};
        *dtype = yk_dtype_promote(*dtype, (yk_dtype)xs[i]->dtype);
        if (!first && !c->pieces[i].empty)
            first = xs[i];
    }
    if (!first)
        first = xs[0];
    int least = c->stacked ? -first->ndim - 1 : -first->ndim, most = c->stacked ? first->ndim : first->ndim - 1;
    char text[200];
    if (dim < least || dim > most) {
        yk__fail(YK_ERR_SHAPE, "%s: dimension %d of tensors of shape %s", name, dim,
                 yk_shape_format(first, text, sizeof(text)));
        return NULL;
    }
    *ndim = first->ndim + c->stacked;
    if (*ndim > YK_MAX_DIMS) {
        yk__fail(YK_ERR_SHAPE, "%s: %d dimensions; a tensor has 0 to %d", name, *ndim, YK_MAX_DIMS);
        return NULL;
    }
    c->dim = dim < 0 ? dim + *ndim : dim;
    int64_t total = 0;
    for (int i = 0; i < c->count; i++) {
        piece *p = &c->pieces[i];
        if (p->empty)
            continue;
        if (!joinable(name, first, xs[i], i, c->stacked ? -1 : c->dim))
            return NULL;
        p->start = total;
        p->length = c->stacked ? 1 : xs[i]->shape[c->dim];
        if (__builtin_add_overflow(total, p->length, &total)) {
            yk__fail(YK_ERR_SHAPE, "%s: %d tensors like %s have more elements than fit in memory", name, c->count,
                     yk_shape_format(first, text, sizeof(text)));
            return NULL;
        }
    }
    for (int d = 0; d < *ndim; d++)
        shape[d] = d == c->dim ? total : first->shape[c->stacked && d > c->dim ? d - 1 : d];
    return first;
}

static yk_tensor *join(const yk__op *op, bool stacked, yk_tensor *const *xs, int count, int dim);

/* Joins under autocast: the tensors are cast to one dtype, the widest of theirs. */
static yk_tensor *join_widest(const yk__op *op, bool stacked, yk_tensor *const *xs, int count, int dim)
{
    yk_tensor **inputs = yk__calloc((size_t)count, sizeof(*inputs)), *out = NULL;
    uint32_t types = yk__autocast_types;
    yk__cast_call within;
    if (!inputs)
        return NULL;
    memcpy(inputs, xs, sizeof(*xs) * (size_t)count);
    if (yk__autocast_open(&within, stacked ? YK__CAST_OP_stack : YK__CAST_OP_cat, count, inputs)) {
        out = yk__autocast_close(&within, join(op, stacked, inputs, count, dim));
    } else {
        yk__autocast_types = 0;
        out = join(op, stacked, inputs, count, dim);
        yk__autocast_types = types;
    }
    free(inputs);
    return out;
}

static yk_tensor *join(const yk__op *op, bool stacked, yk_tensor *const *xs, int count, int dim)
{
    if (count < 1) {
        yk__fail(YK_ERR_ARGUMENT, "%s: expected at least one tensor", op->name);
        return NULL;
    }
    if (!yk__is_there(op->name, "array of tensors", xs))
        return NULL;
    if (__builtin_expect(yk__autocast_types != 0, 0))
        return join_widest(op, stacked, xs, count, dim);
    YK__EVENT(YK__EVENT_OPERATION, op->name);
    if (!yk__op_begin(op->name, count, xs, 0))
        return NULL;
    size_t bytes = sizeof(join_context) + sizeof(piece) * (size_t)count;
    join_context *c = yk__calloc(1, bytes);
    if (!c)
        return NULL;
    c->stacked = stacked;
    c->count = count;
    int ndim = 0;
    yk_dtype dtype;
    int64_t shape[YK_MAX_DIMS], stride[YK_MAX_DIMS];
    yk_tensor *first = plan(op->name, xs, dim, c, shape, &ndim, &dtype), *out = NULL;
    if (first) {
        if (!stacked)
            yk__strides_in_order(first, shape, stride);
        out = yk__tensor_new(ndim, shape, stacked ? NULL : stride, dtype, yk__device_of(first));
    }
    out = out ? yk__tensor_if_ok(out, copy_pieces(out, xs, c)) : NULL;
    out = out ? yk__record(out, op, count, xs, 0, NULL, c, bytes) : NULL;
    free(c);
    return out;
}

yk_tensor *yk_cat(yk_tensor *const *xs, int count, int dim)
{
    static const yk__op op = {
        .name = "cat", .backward = join_backward, .recorded = join_recorded, .describe = join_describe};
    return join(&op, false, xs, count, dim);
}

yk_tensor *yk_stack(yk_tensor *const *xs, int count, int dim)
{
    static const yk__op op = {
        .name = "stack", .backward = join_backward, .recorded = join_recorded, .describe = join_describe};
    return join(&op, true, xs, count, dim);
}
