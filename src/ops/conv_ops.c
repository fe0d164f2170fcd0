/*
 * conv_ops.c - two-dimensional convolution. Layer: ops.
 *
 * The kernels choose the memory order of the result (slot conv2d_layout); gradients take that of what they belong to.
 */
#include "ops/conv.h"

typedef struct conv_context {
    yk__conv2d p;
    yk__tensor_spec x, weight;
} conv_context;

static void conv_describe(const void *context, yk__attributes *to)
{
    const conv_context *c = context;
    yk__attribute_list(to, "stride", 2, c->p.stride);
    yk__attribute_list(to, "padding", 2, c->p.padding);
    yk__attribute_list(to, "dilation", 2, c->p.dilation);
    yk__attribute_whole(to, "groups", c->p.groups);
}

/* The numbers of the options; false and an error where they are no options. */
static bool fill_options(const yk_conv2d_options *options, yk__conv *c, bool *relu)
{
    yk_conv2d_options o;
    if (YK__OPTIONS_TAKE("conv2d", yk_conv2d_options, options, &o))
        return false;
    *c = (yk__conv){.name = "conv2d", .axes = 2, .groups = o.groups};
    *relu = o.relu;
    for (int i = 0; i < 2; i++) {
        c->stride[i] = o.stride[i];
        c->dilation[i] = o.dilation[i];
        c->padding[i] = o.padding[i];
    }
    return true;
}

/* Multiplications and additions of a pass over y, its output or the gradient of that, and the weight. */
static double conv_flops(const yk_tensor *y, const yk_tensor *weight)
{
    return weight->shape[0] ? 2.0 * (double)y->numel * (double)(weight->numel / weight->shape[0]) : 0;
}

/* gw and gbias (NULL: not wanted) from one pass; gw is added to where `accumulate`. */
static yk_status weight_gradients(const yk__conv2d *p, yk_tensor *gw, yk_tensor *gbias, yk_tensor *g, yk_tensor *x,
                                  bool accumulate)
{
    yk_status status = YK_OK;
    if (!g->numel || !x->numel) {
        status = accumulate ? YK_OK : yk__raw_fill(gw, 0);
        return status || !gbias ? status : yk__raw_fill(gbias, 0);
    }
    yk__view vgw = yk__view_of(gw), vgb, vg = yk__view_of(g), vx = yk__view_of(x);
    yk__event_work(conv_flops(g, gw));
    if (accumulate)
        return YK__SLOT(g, conv2d_accumulate_weight, p, &vgw, yk__optional_view(&vgb, gbias), &vg, &vx);
    return YK__SLOT(g, conv2d_backward_weight, p, &vgw, yk__optional_view(&vgb, gbias), &vg, &vx);
}

static yk_status conv2d_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const conv_context *c = yk__context(node);
    yk_status status = YK_OK;
    yk_tensor *from[3] = {gout, yk__saved(node, 0, &status), yk__saved(node, 1, &status)}, *wide[3];
    yk_tensor *out = yk__saved(node, 2, &status), *masked = NULL;
    if (!status && c->p.relu) {
        from[0] = masked = yk__raw_binary("conv2d", YK__RELU_GRAD, gout, out, 1);
        status = yk__status_of(masked);
    }
    if (status || (status = yk__operands(YK__SLOT_conv2d, 7u, 3, from, wide))) {
        yk_tensor_release(masked);
        return status;
    }
    yk_tensor *g = wide[0], *x = wide[1], *w = wide[2], *gx = NULL, *gw = NULL, *gbias = NULL;
    yk_device device = yk__device_of(gout);
    bool wants_bias = yk__needs_grad(node, 2);
    if (yk__needs_grad(node, 0)) {
        gx = yk__spec_new(&c->x, device);
        status = yk__status_of(gx);
        if (!status && gx->numel && !g->numel) {
            status = yk__raw_fill(gx, 0);
        } else if (!status && gx->numel) {
            yk__view vgx = yk__view_of(gx), vg = yk__view_of(g), vw = yk__view_of(w);
            yk__event_work(conv_flops(g, w));
            status = YK__SLOT(g, conv2d_backward_input, &c->p, &vgx, &vg, &vw);
        }
    }
    if (!status && yk__needs_grad(node, 1)) {
        gw = yk__backend_for(g)->conv2d_accumulate_weight ? yk__gradient_sum(node, 1, &c->weight, 2, from) : NULL;
        bool accumulate = gw;
        if (!gw)
            gw = yk__gradient_new(node, 1, &c->weight, device);
        gbias = wants_bias ? yk__gradient_vector(node, 2, c->weight.shape[0], (yk_dtype)g->dtype, device) : NULL;
        status =
            gw && (gbias || !wants_bias) ? weight_gradients(&c->p, gw, gbias, g, x, accumulate) : yk__status_of(NULL);
    } else if (!status && wants_bias) {
        gbias = yk__raw_reduce("conv2d", YK__SUM, g, 1u << 0 | 1u << 2 | 1u << 3, false, 0);
        status = yk__status_of(gbias);
    }
    yk__release_all(3, wide);
    yk_tensor_release(masked);
    yk_tensor *made[3] = {gx, gw, gbias};
    for (int i = 0; i < 3; i++) {
        grads[i] = yk__narrow_to(made[i], (yk_dtype)gout->dtype);
        if (!status && made[i])
            status = yk__status_of(grads[i]);
    }
    return status;
}

/*
 * Note [Gradients of a convolution's gradients]
 * Convolution is linear in x and in w, and so are its two gradients, gx(g, w) and gw(g, x), in both of theirs: each of
 * the three is a sum of products of three tensors, of which it reads two. So the gradients of each are the other two.
 */
static yk_tensor *convolved(const yk__conv2d *p, yk_tensor *x, yk_tensor *w, yk_tensor *bias, const int64_t shape[4]);
static yk_tensor *recorded_conv(const conv_context *c, yk_tensor *x, yk_tensor *w);
static yk_tensor *recorded_input_gradient(const conv_context *c, yk_tensor *g, yk_tensor *w);
static yk_tensor *recorded_weight_gradient(const conv_context *c, yk_tensor *g, yk_tensor *x);

/* gx(g, w); one reference. */
static yk_tensor *input_gradient(const conv_context *c, yk_tensor *g, yk_tensor *w)
{
    yk_tensor *wide[2], *gx = NULL;
    if (!g || !w || yk__operands(YK__SLOT_conv2d, 3u, 2, (yk_tensor *[]){g, w}, wide))
        return NULL;
    yk__tensor_spec spec = c->x;
    spec.dtype = wide[0]->dtype;
    gx = yk__spec_new(&spec, yk__device_of(g));
    if (gx && gx->numel && !g->numel) {
        gx = yk__tensor_if_ok(gx, yk__raw_fill(gx, 0));
    } else if (gx && gx->numel) {
        yk__view vgx = yk__view_of(gx), vg = yk__view_of(wide[0]), vw = yk__view_of(wide[1]);
        gx = yk__tensor_if_ok(gx, YK__SLOT(g, conv2d_backward_input, &c->p, &vgx, &vg, &vw));
    }
    yk__release_all(2, wide);
    return yk__narrow_to(gx, (yk_dtype)g->dtype);
}

/* gw(g, x); one reference. */
static yk_tensor *weight_gradient(const conv_context *c, yk_tensor *g, yk_tensor *x)
{
    yk_tensor *wide[2];
    if (!g || !x || yk__operands(YK__SLOT_conv2d, 3u, 2, (yk_tensor *[]){g, x}, wide))
        return NULL;
    yk__tensor_spec spec = c->weight;
    spec.dtype = wide[0]->dtype;
    yk_tensor *gw = yk__spec_new(&spec, yk__device_of(g));
    gw = gw ? yk__tensor_if_ok(gw, weight_gradients(&c->p, gw, NULL, wide[0], wide[1], false)) : NULL;
    yk__release_all(2, wide);
    return yk__narrow_to(gw, (yk_dtype)g->dtype);
}

static yk_status input_gradient_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const conv_context *c = yk__context(node);
    yk_status status = YK_OK;
    yk_tensor *g = yk__saved(node, 0, &status), *w = yk__saved(node, 1, &status);
    if (!status && yk__needs_grad(node, 0)) {
        grads[0] = convolved(&c->p, gout, w, NULL, g->shape);
        status = yk__status_of(grads[0]);
    }
    if (!status && yk__needs_grad(node, 1)) {
        grads[1] = weight_gradient(c, g, gout);
        status = yk__status_of(grads[1]);
    }
    return status;
}

static void input_gradient_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const conv_context *c = yk__context(node);
    yk_tensor *g = yk__saved_in_graph(node, 0), *w = yk__saved_in_graph(node, 1);
    if (yk__needs_grad(node, 0))
        grads[0] = recorded_conv(c, gouts[0], w);
    if (yk__needs_grad(node, 1))
        grads[1] = recorded_weight_gradient(c, g, gouts[0]);
}

static yk_status weight_gradient_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const conv_context *c = yk__context(node);
    yk_status status = YK_OK;
    yk_tensor *g = yk__saved(node, 0, &status), *x = yk__saved(node, 1, &status);
    if (!status && yk__needs_grad(node, 0)) {
        grads[0] = convolved(&c->p, x, gout, NULL, g->shape);
        status = yk__status_of(grads[0]);
    }
    if (!status && yk__needs_grad(node, 1)) {
        grads[1] = input_gradient(c, g, gout);
        status = yk__status_of(grads[1]);
    }
    return status;
}

static void weight_gradient_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const conv_context *c = yk__context(node);
    yk_tensor *g = yk__saved_in_graph(node, 0), *x = yk__saved_in_graph(node, 1);
    if (yk__needs_grad(node, 0))
        grads[0] = recorded_conv(c, x, gouts[0]);
    if (yk__needs_grad(node, 1))
        grads[1] = recorded_input_gradient(c, g, gouts[0]);
}

static yk_tensor *recorded_conv(const conv_context *c, yk_tensor *x, yk_tensor *w)
{
    const yk__conv2d *p = &c->p;
    return yk_conv2d(x, w, NULL,
                     YK_OPTIONS(yk_conv2d_options, .stride = {p->stride[0], p->stride[1]},
                                .padding = {p->padding[0], p->padding[1]}, .dilation = {p->dilation[0], p->dilation[1]},
                                .groups = p->groups));
}

static yk_tensor *recorded_input_gradient(const conv_context *c, yk_tensor *g, yk_tensor *w)
{
    static const yk__op op = {
        .name = "conv2d_backward_input", .backward = input_gradient_backward, .recorded = input_gradient_recorded};
    yk_tensor *both[2] = {g, w};
    return yk__record(input_gradient(c, g, w), &op, 2, both, 2, both, c, sizeof(*c));
}

static yk_tensor *recorded_weight_gradient(const conv_context *c, yk_tensor *g, yk_tensor *x)
{
    static const yk__op op = {
        .name = "conv2d_backward_weight", .backward = weight_gradient_backward, .recorded = weight_gradient_recorded};
    yk_tensor *both[2] = {g, x};
    return yk__record(weight_gradient(c, g, x), &op, 2, both, 2, both, c, sizeof(*c));
}

static void conv2d_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    conv_context c = *(const conv_context *)yk__context(node);
    yk_tensor *g = c.p.relu ? yk__recorded_relu(gouts[0], yk__saved_in_graph(node, 2)) : gouts[0];
    c.p.relu = false;
    if (yk__needs_grad(node, 0))
        grads[0] = recorded_input_gradient(&c, g, yk__saved_in_graph(node, 1));
    if (yk__needs_grad(node, 1))
        grads[1] = recorded_weight_gradient(&c, g, yk__saved_in_graph(node, 0));
    if (yk__needs_grad(node, 2))
        grads[2] = yk_sum_dims(g, (int[]){0, 2, 3}, 3, false);
}

/* The convolution of operands that fit; the result has the shape. One reference. */
static yk_tensor *convolved(const yk__conv2d *p, yk_tensor *x, yk_tensor *w, yk_tensor *bias, const int64_t shape[4])
{
    yk_tensor *wide[3];
    int64_t stride[4];
    if (yk__operands(YK__SLOT_conv2d, 7u, 3, (yk_tensor *[]){x, w, bias}, wide))
        return NULL;
    yk__view vx = yk__view_of(wide[0]), vw = yk__view_of(wide[1]), vbias;
    const yk__backend *backend = yk__backend_for(x);
    if (backend->conv2d_layout)
        backend->conv2d_layout(p, &vx, &vw, shape, stride);
    else
        yk__contiguous_strides(4, shape, stride);
    yk_tensor *out = yk__tensor_new(4, shape, stride, vx.dtype, yk__device_of(x));
    if (out && out->numel) {
        yk__view vo = yk__view_of(out);
        yk__event_work(conv_flops(out, w));
        out = yk__tensor_if_ok(out, YK__SLOT(x, conv2d, p, &vo, &vx, &vw, yk__optional_view(&vbias, wide[2])));
    }
    yk__release_all(3, wide);
    return yk__narrow_to(out, (yk_dtype)x->dtype);
}

yk_tensor *yk__conv2d_transposed(const yk__conv2d *p, yk_tensor *x, yk_tensor *w, const int64_t shape[4])
{
    static const yk__op op = {.name = "conv_transpose2d",
                              .backward = input_gradient_backward,
                              .recorded = input_gradient_recorded,
                              .describe = conv_describe};
    conv_context c = {.p = *p, .x = {.dtype = x->dtype, .ndim = 4}, .weight = yk__spec_of(w)};
    if (yk__tensor_check("conv_transpose2d", 4, shape, NULL))
        return NULL;
    memcpy(c.x.shape, shape, sizeof(c.x.shape[0]) * 4);
    yk__strides_in_order(x, shape, c.x.stride);
    c.weight.dtype = (int8_t)yk__slot_dtype(x, YK__SLOT_conv2d, (yk_dtype)x->dtype);
    yk_tensor *both[2] = {x, w};
    yk__event_work(conv_flops(x, w));
    return yk__record(input_gradient(&c, x, w), &op, 2, both, 2, both, &c, sizeof(c));
}

/* The convolution of a batch, checked, to a result of the shape. */
static yk_tensor *conv_batch(const yk__conv2d *p, yk_tensor *x, yk_tensor *weight, yk_tensor *bias,
                             const int64_t shape[4])
{
    static const yk__op op = {
        .name = "conv2d", .backward = conv2d_backward, .recorded = conv2d_recorded, .describe = conv_describe};
    static const yk__op op_relu = {
        .name = "conv2d_relu", .backward = conv2d_backward, .recorded = conv2d_recorded, .describe = conv_describe};
    yk_tensor *inputs[3] = {x, weight, bias}, *out = convolved(p, x, weight, bias, shape);
    if (!out || !yk__will_tell(3, inputs))
        return yk__scope_own(out);
    conv_context c = {.p = *p, .x = yk__spec_of(x), .weight = yk__spec_of(weight)};
    c.x.dtype = c.weight.dtype = (int8_t)yk__slot_dtype(x, YK__SLOT_conv2d, (yk_dtype)x->dtype);
    yk_tensor *saved[3] = {yk__wants_grad(weight) ? x : NULL, yk__wants_grad(x) ? weight : NULL, p->relu ? out : NULL};
    return yk__record(out, p->relu ? &op_relu : &op, 3, inputs, 3, saved, &c, sizeof(c));
}

/* The same of one input without N, or with more padding at its end. */
static yk_tensor *conv_arranged(const yk__conv *plan, const yk__conv2d *p, yk_tensor *x, yk_tensor *weight,
                                yk_tensor *bias, const int64_t shape[4])
{
    bool unbatched = x->ndim == 3;
    yk_tensor *in = yk__conv_padded(plan, unbatched ? yk_unsqueeze(x, 0) : x);
    yk_tensor *out = in ? conv_batch(p, in, weight, bias, shape) : NULL;
    return out && unbatched ? yk_squeeze(out, 0) : out;
}

yk_tensor *yk_conv2d(yk_tensor *x, yk_tensor *weight, yk_tensor *bias, const yk_conv2d_options *options)
{
    yk_tensor *inputs[3] = {x, weight, bias};
    yk__conv plan;
    yk__conv2d p = {.relu = false};
    bool unbatched;
    int64_t sizes[3];
    YK__AUTOCAST(conv2d, 3, inputs, yk_conv2d(inputs[0], inputs[1], inputs[2], options));
    YK__EVENT(YK__EVENT_OPERATION, "conv2d");
    if (!yk__op_begin("conv2d", 3, inputs, 1u << 2) || !fill_options(options, &plan, &p.relu) ||
        !yk__conv_check(&plan, x, weight, bias, &unbatched, sizes))
        return NULL;
    p.groups = plan.groups;
    for (int i = 0; i < 2; i++) {
        p.stride[i] = plan.stride[i];
        p.padding[i] = plan.padding[i];
        p.dilation[i] = plan.dilation[i];
    }
    int64_t shape[4] = {unbatched ? 1 : x->shape[0], weight->shape[0], sizes[0], sizes[1]};
    if (!unbatched && !plan.more[0] && !plan.more[1])
        return conv_batch(&p, x, weight, bias, shape);
    YK__WITHIN_SCOPE(conv_arranged(&plan, &p, x, weight, bias, shape));
}
