/*
 * pool_ops.c - max, average and adaptive average pooling of (N,C,H,W) or (C,H,W). Layer: ops.
 *
 * The result follows the memory order of the input, the gradient that of the input too. Max pooling keeps nothing but
 * the positions of the maxima.
 */
#include "ops/pool.h"

typedef struct pool_context {
    yk__pool2d p;
    yk__tensor_spec x; /* dtype: of the kernels */
} pool_context;

static void pool_describe(const void *context, yk__attributes *to)
{
    const pool_context *c = context;
    yk__attribute_list(to, "kernel", 2, c->p.kernel);
    yk__attribute_list(to, "stride", 2, c->p.stride);
    yk__attribute_list(to, "padding", 2, c->p.padding);
    yk__attribute_list(to, "dilation", 2, c->p.dilation);
    yk__attribute_whole(to, "count_exclude_pad", c->p.count_exclude_pad);
    yk__attribute_whole(to, "divisor", c->p.divisor);
}

static const char *const axis_name[2] = {"height", "width"};

static bool check_input(const char *name, const yk_tensor *x)
{
    char text[200];
    bool some = x->ndim == 4 || x->ndim == 3;
    for (int d = x->ndim - 3; some && d < x->ndim; d++)
        some = x->shape[d] != 0;
    if (some)
        return !yk__expect_floating(name, "input", x);
    yk__fail(YK_ERR_SHAPE, "%s: input has shape %s, expected (N, C, H, W) or (C, H, W) with C, H and W above 0", name,
             yk_shape_format(x, text, sizeof(text)));
    return false;
}

/* The result of a pool of one input without N. */
#define OF_ONE(x, pooled)                                                                                              \
    do {                                                                                                               \
        if ((x)->ndim == 3) {                                                                                          \
            yk_tensor *batch = NULL;                                                                                   \
            YK__WITHIN_SCOPE(((batch = yk_unsqueeze(x, 0)) && (batch = (pooled))) ? yk_squeeze(batch, 0) : NULL);      \
        }                                                                                                              \
    } while (0)

bool yk__pool_windows(const char *name, const yk__pool_axis *a, const yk_tensor *x, int64_t *count)
{
    int64_t reach, padded;
    if (a->kernel < 1 || a->stride < 1 || a->padding < 0 || a->dilation < 1 || (!a->max && a->dilation != 1) ||
        !yk__window(a->size, a->kernel, a->stride, a->padding, a->dilation, &reach, &padded)) {
        yk__fail(YK_ERR_ARGUMENT, "%s: kernel %lld, stride %lld, padding %lld, dilation %lld of the %s is not possible",
                 name, (long long)a->kernel, (long long)a->stride, (long long)a->padding, (long long)a->dilation,
                 a->name);
        return false;
    }
    if (a->padding > reach / 2) {
        yk__fail(YK_ERR_ARGUMENT, "%s: padding %lld of the %s is more than half of the kernel's %lld", name,
                 (long long)a->padding, a->name, (long long)reach);
        return false;
    }
    /* With ceil_mode the last window may reach beyond the padding, and the first one, too. */
    int64_t room = padded - reach + (a->ceil_mode ? a->stride - 1 : 0);
    *count = room < 0 ? 0 : room / a->stride + 1;
    if (a->ceil_mode && (*count - 1) * a->stride >= a->size + a->padding) /* would start beyond the input */
        --*count;
    if (*count < 1) {
        char text[200];
        yk__fail(YK_ERR_SHAPE, "%s: the kernel covers %lld of the %s, but input %s with padding %lld has %lld", name,
                 (long long)reach, a->name, yk_shape_format(x, text, sizeof(text)), (long long)a->padding,
                 (long long)padded);
        return false;
    }
    return true;
}

/* Fills *p and the result's shape from the options: PyTorch's rules and rounding. */
static bool plan(const char *name, const yk_tensor *x, const yk_pool2d_options *options, bool max, yk__pool2d *p,
                 int64_t shape[4])
{
    yk_pool2d_options o;
    if (YK__OPTIONS_TAKE(name, yk_pool2d_options, options, &o))
        return false;
    if (o.kernel[0] == YK_NOT_GIVEN || o.kernel[1] == YK_NOT_GIVEN) {
        yk__fail(YK_ERR_ARGUMENT, "%s: the kernel was not given, and has no default", name);
        return false;
    }
    bool divides = o.divisor_override != YK_NOT_GIVEN;
    if (divides && yk__check_integer(name, "divisor_override", o.divisor_override, 1, INT64_MAX))
        return false;
    *p = (yk__pool2d){.count_exclude_pad = !o.count_include_pad, .divisor = divides ? o.divisor_override : 0};
    shape[0] = x->shape[0];
    shape[1] = x->shape[1];
    for (int i = 0; i < 2; i++) {
        yk__pool_axis a = {.name = axis_name[i],
                           .size = x->shape[2 + i],
                           .kernel = o.kernel[i],
                           .stride = yk__integer_or(o.stride[i], o.kernel[i]),
                           .padding = o.padding[i],
                           .dilation = o.dilation[i],
                           .ceil_mode = o.ceil_mode,
                           .max = max};
        if (!yk__pool_windows(name, &a, x, &shape[2 + i]))
            return false;
        p->kernel[i] = a.kernel;
        p->stride[i] = a.stride;
        p->padding[i] = a.padding;
        p->dilation[i] = a.dilation;
    }
    return true;
}

static pool_context context_of(const yk_tensor *x, yk_dtype dtype, const yk__pool2d *p)
{
    pool_context c = {.x = yk__spec_of(x)};
    if (p)
        c.p = *p;
    c.x.dtype = (int8_t)dtype;
    return c;
}

/* The result for x, uninitialised, in x's memory order. */
static yk_tensor *result_for(const yk_tensor *x, const int64_t shape[4], yk_dtype dtype)
{
    int64_t stride[4];
    yk__strides_in_order(x, shape, stride);
    return yk__tensor_new(4, shape, stride, dtype, yk__device_of(x));
}

/* ---- max ---- */

static yk_status max_pool2d_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const pool_context *c = yk__context(node);
    yk_status status = YK_OK;
    yk_tensor *index = yk__saved(node, 0, &status), *g = status ? NULL : yk__raw_cast(gout, (yk_dtype)c->x.dtype);
    yk_tensor *gx = g ? yk__spec_new(&c->x, yk__device_of(g)) : NULL;
    if (gx && gx->numel) {
        yk__view vgx = yk__view_of(gx), vg = yk__view_of(g), vi = yk__view_of(index);
        gx = yk__tensor_if_ok(gx, YK__SLOT(g, max_pool2d_backward, &c->p, &vgx, &vg, &vi));
    }
    yk_tensor_release(g);
    grads[0] = yk__narrow_to(gx, (yk_dtype)gout->dtype);
    return yk__status_of(grads[0]);
}

static void max_pool2d_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const pool_context *c = yk__context(node);
    yk_tensor *g = gouts[0], *index = yk__saved_in_graph(node, 0);
    yk__tensor_spec planes = {.dtype = g->dtype, .ndim = 3, .shape = {c->x.shape[0], c->x.shape[1]}};
    planes.shape[2] = c->x.shape[2] * c->x.shape[3];
    yk__contiguous_strides(3, planes.shape, planes.stride);
    int64_t windows[3] = {g->shape[0], g->shape[1], g->shape[2] * g->shape[3]};
    yk_tensor *sum = yk_scatter_add_(yk__recorded_zeros(&planes, yk__device_of(g)), 2, yk_reshape(index, 3, windows),
                                     yk_reshape(g, 3, windows));
    grads[0] = yk_reshape(sum, 4, c->x.shape);
}

yk_tensor *yk__max_pool2d_indexed(const char *name, yk_tensor *x, const yk_pool2d_options *options, yk_tensor **kept)
{
    static const yk__op op = {.name = "max_pool2d",
                              .backward = max_pool2d_backward,
                              .recorded = max_pool2d_recorded,
                              .describe = pool_describe};
    yk__pool2d p;
    int64_t shape[4];
    yk_tensor *wide;
    if (!plan(name, x, options, true, &p, shape) || yk__operands(YK__SLOT_max_pool2d, 1u, 1, &x, &wide))
        return NULL;
    yk_tensor *out = result_for(wide, shape, (yk_dtype)wide->dtype), *index = result_for(wide, shape, YK_I32);
    yk_status status = out && index ? YK_OK : yk__status_of(NULL);
    if (!status && out->numel) {
        yk__view vo = yk__view_of(out), vi = yk__view_of(index), vx = yk__view_of(wide);
        status = YK__SLOT(x, max_pool2d, &p, &vo, &vi, &vx);
    }
    pool_context c = context_of(x, (yk_dtype)wide->dtype, &p);
    yk_tensor_release(wide);
    out = yk__narrow_to(yk__tensor_if_ok(out, status), (yk_dtype)x->dtype);
    out = yk__record(out, &op, 1, &x, 1, &index, &c, sizeof(c));
    if (kept && out)
        *kept = index;
    else
        yk_tensor_release(index);
    return out;
}

yk_tensor *yk_max_pool2d(yk_tensor *x, const yk_pool2d_options *options)
{
    YK__EVENT(YK__EVENT_OPERATION, "max_pool2d");
    if (!yk__op_begin("max_pool2d", 1, &x, 0) || !check_input("max_pool2d", x))
        return NULL;
    OF_ONE(x, yk_max_pool2d(batch, options));
    return yk__max_pool2d_indexed("max_pool2d", x, options, NULL);
}

/* ---- averages: the adaptive one has no options ---- */

/* The gradient of the input; one reference. */
static yk_tensor *average_gradient(yk_tensor *gout, const pool_context *c)
{
    yk_tensor *g = yk__raw_cast(gout, (yk_dtype)c->x.dtype), *gx = g ? yk__spec_new(&c->x, yk__device_of(g)) : NULL;
    if (gx && gx->numel) {
        yk__view vgx = yk__view_of(gx), vg = yk__view_of(g);
        gx = yk__tensor_if_ok(gx, c->p.kernel[0] ? YK__SLOT(g, avg_pool2d_backward, &c->p, &vgx, &vg)
                                                 : YK__SLOT(g, adaptive_avg_pool2d_backward, &vgx, &vg));
    }
    yk_tensor_release(g);
    return yk__narrow_to(gx, (yk_dtype)gout->dtype);
}

static yk_status average_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    grads[0] = average_gradient(gout, yk__context(node));
    return yk__status_of(grads[0]);
}

/* The averages, for a result of the shape; p NULL: adaptive. One reference. */
static yk_tensor *averages(yk_tensor *x, const yk__pool2d *p, const int64_t shape[4])
{
    yk_tensor *wide;
    if (yk__operands(p ? YK__SLOT_avg_pool2d : YK__SLOT_adaptive_avg_pool2d, 1u, 1, &x, &wide))
        return NULL;
    yk_tensor *out = result_for(wide, shape, (yk_dtype)wide->dtype);
    if (out && out->numel) {
        yk__view vo = yk__view_of(out), vx = yk__view_of(wide);
        out = yk__tensor_if_ok(out,
                               p ? YK__SLOT(x, avg_pool2d, p, &vo, &vx) : YK__SLOT(x, adaptive_avg_pool2d, &vo, &vx));
    }
    yk_tensor_release(wide);
    return yk__narrow_to(out, (yk_dtype)x->dtype);
}

/* Average pooling is linear, and so is its backward, whose own backward is average pooling again. For that it needs the
 * shape of the averages, which pool_context has not. */
typedef struct spread_context {
    pool_context pool;
    int64_t shape[4]; /* of the averages */
} spread_context;

static yk_status spread_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const spread_context *c = yk__context(node);
    grads[0] = averages(gout, c->pool.p.kernel[0] ? &c->pool.p : NULL, c->shape);
    return yk__status_of(grads[0]);
}

static void spread_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads);

static void average_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    static const yk__op op = {.name = "avg_pool2d_backward", .backward = spread_backward, .recorded = spread_recorded};
    spread_context c = {.pool = *(const pool_context *)yk__context(node)};
    memcpy(c.shape, gouts[0]->shape, sizeof(c.shape));
    grads[0] = yk__record(average_gradient(gouts[0], &c.pool), &op, 1, gouts, 0, NULL, &c, sizeof(c));
}

static void spread_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    static const yk__op op = {
        .name = "avg_pool2d", .backward = average_backward, .recorded = average_recorded, .describe = pool_describe};
    const spread_context *c = yk__context(node);
    yk_tensor *out = averages(gouts[0], c->pool.p.kernel[0] ? &c->pool.p : NULL, c->shape);
    grads[0] = yk__record(out, &op, 1, gouts, 0, NULL, &c->pool, sizeof(c->pool));
}

static yk_tensor *average(const yk__op *op, yk_tensor *x, const yk__pool2d *p, const int64_t shape[4])
{
    yk__slot slot = p ? YK__SLOT_avg_pool2d : YK__SLOT_adaptive_avg_pool2d;
    pool_context c = context_of(x, yk__slot_dtype(x, slot, (yk_dtype)x->dtype), p);
    return yk__record(averages(x, p, shape), op, 1, &x, 0, NULL, &c, sizeof(c));
}

yk_tensor *yk_avg_pool2d(yk_tensor *x, const yk_pool2d_options *options)
{
    static const yk__op op = {
        .name = "avg_pool2d", .backward = average_backward, .recorded = average_recorded, .describe = pool_describe};
    yk__pool2d p;
    int64_t shape[4];
    YK__EVENT(YK__EVENT_OPERATION, "avg_pool2d");
    if (!yk__op_begin("avg_pool2d", 1, &x, 0) || !check_input("avg_pool2d", x))
        return NULL;
    OF_ONE(x, yk_avg_pool2d(batch, options));
    if (!plan("avg_pool2d", x, options, false, &p, shape))
        return NULL;
    return average(&op, x, &p, shape);
}

yk_tensor *yk_adaptive_avg_pool2d(yk_tensor *x, int64_t height, int64_t width)
{
    static const yk__op op = {.name = "adaptive_avg_pool2d",
                              .backward = average_backward,
                              .recorded = average_recorded,
                              .describe = pool_describe};
    YK__EVENT(YK__EVENT_OPERATION, "adaptive_avg_pool2d");
    if (!yk__op_begin("adaptive_avg_pool2d", 1, &x, 0) || !check_input("adaptive_avg_pool2d", x))
        return NULL;
    height = yk__integer_or(height, x->shape[x->ndim - 2]);
    width = yk__integer_or(width, x->shape[x->ndim - 1]);
    if (height < 1 || width < 1) {
        yk__fail(YK_ERR_ARGUMENT, "adaptive_avg_pool2d: a result of %lld by %lld", (long long)height, (long long)width);
        return NULL;
    }
    OF_ONE(x, yk_adaptive_avg_pool2d(batch, height, width));
    int64_t shape[4] = {x->shape[0], x->shape[1], height, width};
    return yk__tensor_check("adaptive_avg_pool2d", 4, shape, NULL) ? NULL : average(&op, x, NULL, shape);
}
