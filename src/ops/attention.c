/*
 * attention.c - scaled dot product attention. Layer: ops.
 *
 * One kernel that never holds the matrix of scores, where the inputs are of the usual form; else, and on a backend
 * without attention_mask_gradient where weights are dropped or the mask wants a gradient, matmul, softmax, dropout,
 * matmul, by which the same weights are dropped, of blocks of a large matrix (attention_blocks.c). Derivation of the
 * backward: docs/autograd.md. Heads that share a key are brought to the usual form by views: see grouped.
 */
#include <float.h>
#include <math.h>

#include "ops/attention.h"

#include "device/graph.h"
#include "ops/cast_policy.h"

enum { Q, K, V, MASK, INPUTS };

/* (B, H, rows, columns) of a tensor of 2 to 4 dimensions. */
static yk__view as_heads(const yk_tensor *x)
{
    yk__view v = {.data = x->data, .dtype = (yk_dtype)x->dtype, .ndim = 4, .shape = {1, 1}};
    for (int d = 0; d < x->ndim; d++) {
        v.shape[4 - x->ndim + d] = x->shape[d];
        v.stride[4 - x->ndim + d] = x->stride[d];
    }
    return v;
}

/* The mask as (B, H, L, S), stride 0 where it is broadcast. */
static const yk__view *mask_view(yk__view *v, const yk_tensor *mask, const yk__view *q, const yk__view *k)
{
    if (!mask)
        return NULL;
    const int64_t full[4] = {q->shape[0], q->shape[1], q->shape[2], k->shape[2]};
    *v = as_heads(mask);
    for (int d = 0; d < 4; d++) {
        if (v->shape[d] == 1)
            v->stride[d] = 0;
        v->shape[d] = full[d];
    }
    return v;
}

static yk__view lse_view(const yk_tensor *lse, const yk__view *q)
{
    yk__view v = {.data = lse->data, .dtype = (yk_dtype)lse->dtype, .ndim = 3};
    memcpy(v.shape, q->shape, sizeof(v.shape[0]) * 3);
    yk__contiguous_strides(3, v.shape, v.stride);
    return v;
}

/* to[i] = from[i] in the dtype of kernels, with columns next to each other. Nothing is left in to[] on failure. */
static yk_status operands_prepare(int count, yk_tensor *const *from, yk_tensor **to)
{
    yk_status status = yk__operands(YK__SLOT_attention, (1u << count) - 1, count, from, to);
    for (int i = 0; i < count && !status; i++) {
        yk_tensor *x = to[i];
        if (!x || x->stride[x->ndim - 1] == 1 || x->numel == 0)
            continue;
        to[i] = yk__raw_contiguous(x);
        yk_tensor_release(x);
        status = yk__status_of(to[i]);
    }
    if (status)
        yk__release_all(count, to);
    return status;
}

static yk_tensor *weights_of_heads(yk_tensor *const inputs[INPUTS], const yk__attention *p, int64_t first);

/* The gradient of the mask, in the dtype of kernels; in[] is as attention_backward has it. */
static yk_tensor *mask_gradient(const yk__attention *p, yk_tensor *const *in, const yk_tensor *out,
                                const yk_tensor *gout, const yk_tensor *lse)
{
    yk_tensor *made =
        yk__tensor_new(in[MASK]->ndim, in[MASK]->shape, NULL, (yk_dtype)in[MASK]->dtype, yk__device_of(in[MASK]));
    if (!made || !made->numel)
        return made;
    if (!in[Q]->numel || !in[V]->numel)
        return yk__tensor_if_ok(made, yk__raw_fill(made, 0));
    yk__view q = as_heads(in[Q]), k = as_heads(in[K]), v = as_heads(in[V]), g = as_heads(gout), mask;
    yk__view of_out = as_heads(out), l = lse_view(lse, &q), to = as_heads(made);
    yk_status status = YK__SLOT(in[Q], attention_mask_gradient, p, &to, &g, &q, &k, &v,
                                mask_view(&mask, in[MASK], &q, &k), &of_out, &l);
    return yk__tensor_if_ok(made, status);
}

static yk_status attention_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    enum { OUT = INPUTS, GOUT, READ };
    const yk__attention *p = yk__context(node);
    yk_status status = YK_OK;
    yk_tensor *from[READ], *in[READ], *made[INPUTS] = {NULL};
    for (int i = 0; i < GOUT; i++)
        from[i] = yk__saved(node, i, &status);
    from[GOUT] = gout;
    yk_tensor *lse = yk__saved(node, GOUT, &status);
    if (status || (status = operands_prepare(READ, from, in)))
        return status;
    if (p->causal || in[MASK]) { /* a query whose key holds NaN has NaN in lse, and so in its gradient */
        yk_tensor *k = yk__without_nan(in[K]);
        yk_tensor_release(in[K]);
        in[K] = k;
        status = yk__status_of(k);
    }
    for (int i = 0; i < 3 && !status; i++) {
        made[i] = yk__tensor_new(in[i]->ndim, in[i]->shape, NULL, (yk_dtype)in[i]->dtype, yk__device_of(in[i]));
        status = yk__status_of(made[i]);
    }
    if (!status && in[Q]->numel && in[V]->numel) {
        yk__view q = as_heads(in[Q]), k = as_heads(in[K]), v = as_heads(in[V]), g = as_heads(in[GOUT]), mask;
        yk__view out = as_heads(in[OUT]), l = lse_view(lse, &q);
        yk__view gq = as_heads(made[Q]), gk = as_heads(made[K]), gv = as_heads(made[V]);
        status = YK__SLOT(in[Q], attention_backward, p, &gq, &gk, &gv, &g, &q, &k, &v,
                          mask_view(&mask, in[MASK], &q, &k), &out, &l);
    } else {
        for (int i = 0; i < 3 && !status; i++)
            status = yk__raw_fill(made[i], 0);
    }
    if (!status && yk__needs_grad(node, MASK)) {
        made[MASK] = mask_gradient(p, in, in[OUT], in[GOUT], lse);
        status = yk__status_of(made[MASK]);
    }
    yk__release_all(READ, in);
    for (int i = 0; i < INPUTS; i++) {
        grads[i] = made[i] ? yk__narrow_to(made[i], (yk_dtype)from[i]->dtype) : NULL;
        if (!status && made[i])
            status = yk__status_of(grads[i]);
    }
    return status;
}

/* The factors of dropout for all weights (...,L,S): 0, or 1 / (1 - p). */
static yk_tensor *dropout_factors(const yk__attention *p, const yk_tensor *weights)
{
    yk_dtype dtype = (yk_dtype)weights->dtype;
    yk_tensor *out = yk__scope_own(yk__tensor_new(weights->ndim, weights->shape, NULL, dtype, yk__device_of(weights)));
    if (!out || yk__raw_fill(out, p->dropout < 1) || !out->numel || p->dropout == 1)
        return out;
    yk__view view = yk__view_of(out);
    return YK__SLOT(out, dropout, &view, &view, p->stream, p->calls, 0, p->dropout) ? NULL : out;
}

/* The whole matrix of weights is in memory here, where it is no larger than a block. */
static void attention_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const yk__attention *p = yk__context(node);
    yk_tensor *in[INPUTS], *kept_inputs[INPUTS], *g = yk__recorded_wide(gouts[0]);
    uint32_t wanted = 0;
    for (int i = 0; i < INPUTS; i++) {
        kept_inputs[i] = yk__saved_in_graph(node, i);
        wanted |= (uint32_t)yk__needs_grad(node, i) << i;
    }
    if (yk__error_code())
        return;
    if (yk__attention_is_large(kept_inputs)) {
        yk__attention_gradients(kept_inputs, gouts[0], p, wanted, grads);
        return;
    }
    for (int i = 0; i < INPUTS; i++)
        in[i] = kept_inputs[i] && kept_inputs[i]->dtype != YK_BOOL ? yk__recorded_wide(kept_inputs[i]) : kept_inputs[i];
    if (yk__error_code())
        return;
    const int keys = -1;
    yk_tensor *weights = weights_of_heads(in, p, 0), *gweights = yk_matmul(g, yk_transpose(in[V], -1, -2));
    yk_tensor *kept = weights, *factors = weights && p->dropout > 0 ? dropout_factors(p, weights) : NULL;
    if (factors) {
        kept = yk_mul(weights, factors);
        gweights = yk_mul(gweights, factors);
    }
    yk_tensor *sums = yk_sum_dims(yk_mul(weights, gweights), &keys, 1, true);
    yk_tensor *gmask = yk_mul(weights, yk_sub(gweights, sums)), *gscores = yk_mul_scalar(gmask, p->scale);
    yk_tensor *made[INPUTS] = {yk_matmul(gscores, in[K]),
                               gscores ? yk_matmul(yk_transpose(gscores, -1, -2), in[Q]) : NULL,
                               kept ? yk_matmul(yk_transpose(kept, -1, -2), g) : NULL, gmask};
    for (int i = 0; i < INPUTS; i++) {
        if (!yk__needs_grad(node, i) || !made[i])
            continue;
        yk__tensor_spec spec = yk__spec_of(in[i]);
        spec.dtype = gouts[0]->dtype;
        grads[i] = i == MASK ? yk__recorded_sum_to(made[i], &spec) : yk_cast(made[i], (yk_dtype)gouts[0]->dtype);
    }
}

static void attention_describe(const void *context, yk__attributes *to)
{
    const yk__attention *p = context;
    yk__attribute_real(to, "scale", p->scale);
    yk__attribute_whole(to, "causal", p->causal);
    yk__attribute_real(to, "dropout_p", p->dropout);
}

static yk_tensor *blockwise(yk_tensor *const inputs[INPUTS], const yk__attention *form)
{
    static const yk__op op = {.name = "scaled_dot_product_attention",
                              .backward = attention_backward,
                              .recorded = attention_recorded,
                              .describe = attention_describe};
    yk_tensor *in[INPUTS];
    yk__attention drawn = *form, *p = &drawn;
    if (operands_prepare(INPUTS, inputs, in))
        return NULL;
    if (p->dropout > 0)
        p->stream = yk__random_draw(yk__device_of(in[Q]), &p->calls);
    int ndim = in[Q]->ndim;
    int64_t shape[4], stride[4];
    memcpy(shape, in[Q]->shape, sizeof(shape[0]) * (size_t)ndim);
    shape[ndim - 1] = in[V]->shape[ndim - 1];
    yk__strides_in_order(in[Q], shape, stride);
    yk_device device = yk__device_of(in[Q]);
    yk_dtype dtype = (yk_dtype)in[Q]->dtype;
    bool in_order = stride[ndim - 1] == 1;
    yk_tensor *out = yk__tensor_new(ndim, shape, in_order ? stride : NULL, dtype, device);
    yk_tensor *lse = yk__tensor_new(ndim - 1, shape, NULL, yk__statistic_dtype(dtype), device);
    yk_status status = out && lse ? YK_OK : yk__status_of(NULL);
    if (!status && out->numel) {
        yk__view q = as_heads(in[Q]), k = as_heads(in[K]), v = as_heads(in[V]), o = as_heads(out);
        yk__view l = lse_view(lse, &q), mask;
        yk__event_work(2.0 * (double)(l.shape[0] * l.shape[1] * l.shape[2]) *
                       (double)(k.shape[2] * (q.shape[3] + v.shape[3])));
        status = YK__SLOT(in[Q], attention, p, &o, &l, &q, &k, &v, mask_view(&mask, in[MASK], &q, &k));
    }
    yk__release_all(INPUTS, in);
    out = yk__narrow_to(yk__tensor_if_ok(out, status), (yk_dtype)inputs[Q]->dtype);
    yk_tensor *saved[] = {inputs[Q], inputs[K], inputs[V], inputs[MASK], out, lse};
    out = yk__record(out, &op, INPUTS, inputs, 6, saved, p, sizeof(*p));
    yk_tensor_release(lse);
    return out;
}

/* The softmax of rows, 0 where a row is -INFINITY alone. */
static yk_tensor *weights_of(yk_tensor *scores)
{
    if (!scores || !scores->numel)
        return yk_softmax(scores, -1);
    yk_tensor_options options =
        *YK_OPTIONS(yk_tensor_options, .dtype = (yk_dtype)scores->dtype, .device = yk__device_of(scores));
    yk_tensor *zero = yk_scalar(0, &options);
    yk_tensor *nothing = yk_eq(yk_max_dim(yk_detach(scores), -1, true, NULL), yk_scalar(-INFINITY, &options));
    return yk_where(nothing, zero, yk_softmax(yk_where(nothing, zero, scores), -1));
}

/* The weights of each query, (..., L, S), of which `first` is the number among all of the first one; those of one that
 * may look at nothing are 0. */
static yk_tensor *weights_of_heads(yk_tensor *const inputs[INPUTS], const yk__attention *p, int64_t first)
{
    yk_tensor *q = inputs[Q], *k = inputs[K], *mask = inputs[MASK];
    int64_t queries = q->shape[q->ndim - 2], keys = k->shape[k->ndim - 2];
    yk_tensor *scaled = yk_mul_scalar(q, p->scale), *turned = yk_transpose(k, -2, -1);
    yk_tensor *scores = p->causal || mask ? yk__matmul_hiding(scaled, turned) : yk_matmul(scaled, turned);
    if (p->causal) {
        yk_tensor *row = yk__scope_own(yk__raw_positions(first + queries, 2, yk__device_of(q)));
        row = first && row ? yk_narrow(row, 0, first, queries) : row;
        mask = yk_ge(row, yk__scope_own(yk__raw_positions(keys, 1, yk__device_of(q))));
    }
    if (mask && mask->dtype != YK_BOOL)
        return weights_of(yk_add(scores, mask));
    if (mask)
        scores =
            yk_where(mask, scores,
                     yk_full(0, NULL, -INFINITY,
                             YK_OPTIONS(yk_tensor_options, .dtype = (yk_dtype)q->dtype, .device = yk__device_of(q))));
    yk_tensor *weights = yk_softmax(scores, -1);
    return mask ? yk_where(mask, weights, yk_zeros_like(weights)) : weights;
}

yk_tensor *yk__attention_weights(yk_tensor *q, yk_tensor *k, yk_tensor *mask, bool causal)
{
    if (!q || !k)
        return NULL;
    yk__attention p = {.scale = 1 / sqrt((double)q->shape[q->ndim - 1]), .causal = causal};
    return weights_of_heads((yk_tensor *[INPUTS]){q, k, NULL, mask}, &p, 0);
}

/* True where the backend computes the form in blocks. */
static bool in_blocks(yk_tensor *const inputs[INPUTS], const yk_attention_options *o)
{
    const yk__backend *backend = yk__backend_for(inputs[Q]); /* one that lacks the slot has the others */
    bool more = o->dropout_p > 0 || (inputs[MASK] && yk__wants_grad(inputs[MASK]));
    return inputs[Q]->ndim <= 4 && backend->attention && (!more || backend->attention_mask_gradient);
}

yk_tensor *yk__attention_composed(yk_tensor *const inputs[INPUTS], const yk__attention *p, int64_t row,
                                  const yk__dropout *dropout)
{
    yk_tensor *weights = weights_of_heads(inputs, p, row);
    if (dropout && p->dropout > 0)
        return yk_matmul(yk__dropout_by(weights, dropout), inputs[V]);
    return yk_matmul(yk_dropout(weights, p->dropout, true), inputs[V]);
}

/* Any form, in several operations. */
static yk_tensor *composed(yk_tensor *const inputs[INPUTS], const yk__attention *p)
{
    return yk__attention_is_large(inputs) ? yk__attention_blocks(inputs, p)
                                          : yk__attention_composed(inputs, p, 0, NULL);
}

static bool check_mask(const yk_tensor *mask, const yk_tensor *q, const yk_tensor *k)
{
    char tm[200], tq[200], tk[200];
    if (mask->dtype != YK_BOOL && mask->dtype != q->dtype) {
        yk__fail(YK_ERR_DTYPE, "scaled_dot_product_attention: attn_mask is %s, expected bool or the query's %s",
                 yk_dtype_name((yk_dtype)mask->dtype), yk_dtype_name((yk_dtype)q->dtype));
        return false;
    }
    bool fits = mask->ndim >= 2 && (mask->ndim <= q->ndim || mask->ndim <= k->ndim);
    for (int d = 1; fits && d <= mask->ndim; d++) {
        int64_t size = mask->shape[mask->ndim - d], of_q = d <= q->ndim ? q->shape[q->ndim - d] : 1;
        int64_t full = d == 1                               ? k->shape[k->ndim - 2]
                       : of_q == 1 && d > 2 && d <= k->ndim ? k->shape[k->ndim - d]
                                                            : of_q;
        fits = size == 1 || size == full;
    }
    if (!fits)
        yk__fail(YK_ERR_SHAPE,
                 "scaled_dot_product_attention: attn_mask %s does not broadcast to (..., L, S) of query %s and key %s",
                 yk_shape_format(mask, tm, sizeof(tm)), yk_shape_format(q, tq, sizeof(tq)),
                 yk_shape_format(k, tk, sizeof(tk)));
    return fits;
}

static bool shapes_check(yk_tensor *const inputs[INPUTS], const yk_attention_options *o)
{
    static const char name[] = "scaled_dot_product_attention", *const role[] = {"query", "key", "value"};
    const yk_tensor *q = inputs[Q], *k = inputs[K], *v = inputs[V];
    char tq[200], tk[200], tv[200];
    for (int i = 0; i < 3; i++)
        if (yk__expect_floating(name, role[i], inputs[i]) ||
            (i && yk__expect_dtype(name, role[i], inputs[i], (yk_dtype)q->dtype)))
            return false;
    if (q->ndim < 2 || k->ndim < 2 || v->ndim < 2 || q->shape[q->ndim - 1] != k->shape[k->ndim - 1] ||
        k->shape[k->ndim - 2] != v->shape[v->ndim - 2]) {
        yk__fail(YK_ERR_SHAPE,
                 "%s: expected query (..., L, E), key (..., S, E) and value (..., S, D), got %s, %s and %s", name,
                 yk_shape_format(q, tq, sizeof(tq)), yk_shape_format(k, tk, sizeof(tk)),
                 yk_shape_format(v, tv, sizeof(tv)));
        return false;
    }
    if (o->is_causal && o->attn_mask) {
        yk__fail(YK_ERR_ARGUMENT, "%s: is_causal is a mask of its own; give it or attn_mask", name);
        return false;
    }
    if (yk__check_number(name, "dropout_p", o->dropout_p, 0, 1) ||
        yk__check_number(name, "scale", o->scale, -DBL_MAX, DBL_MAX))
        return false;
    return !o->attn_mask || check_mask(o->attn_mask, q, k);
}

/* ---- grouped queries --------------------------------------------------------------------------------------------- */

static bool heads_check(yk_tensor *const inputs[INPUTS])
{
    const yk_tensor *q = inputs[Q], *k = inputs[K], *v = inputs[V];
    int at = q->ndim - 3;
    char tq[200], tk[200], tv[200];
    bool fits = at >= 0 && k->ndim == q->ndim && v->ndim == q->ndim;
    for (int i = K; fits && i <= V; i++)
        fits = inputs[i]->shape[at] >= 1 && q->shape[at] % inputs[i]->shape[at] == 0 &&
               yk__equal_sizes(q->shape, inputs[i]->shape, at);
    if (!fits)
        yk__fail(YK_ERR_SHAPE,
                 "scaled_dot_product_attention: enable_gqa takes query (..., Hq, L, E), key (..., H, S, E) and value "
                 "(..., H, S, D) of as many dimensions, Hq a multiple of each H, got %s, %s and %s",
                 yk_shape_format(q, tq, sizeof(tq)), yk_shape_format(k, tk, sizeof(tk)),
                 yk_shape_format(v, tv, sizeof(tv)));
    return fits;
}

/* x (...,H,rows,columns) with each head `times` times in a row. */
static yk_tensor *repeat_heads(yk_tensor *x, int64_t times)
{
    if (!x || times == 1)
        return x;
    int ndim = x->ndim, at = ndim - 3;
    int64_t shape[YK_MAX_DIMS + 1], whole[YK_MAX_DIMS];
    if (ndim >= YK_MAX_DIMS) {
        yk__fail(YK_ERR_SHAPE, "scaled_dot_product_attention: enable_gqa takes at most %d dimensions", YK_MAX_DIMS - 1);
        return NULL;
    }
    memcpy(whole, x->shape, sizeof(whole[0]) * (size_t)ndim);
    memcpy(shape, x->shape, sizeof(shape[0]) * (size_t)(at + 1));
    shape[at + 1] = times;
    memcpy(shape + at + 2, x->shape + at + 1, sizeof(shape[0]) * 2);
    whole[at] *= times;
    return yk_reshape(yk_expand(yk_unsqueeze(x, at + 1), ndim + 1, shape), ndim, whole);
}

/* The mask, or NULL, of heads (B H, times, L, S), of one for (B, H times, L, S); *ok is false after a failure. */
static yk_tensor *grouped_mask(yk_tensor *mask, const yk_tensor *q, int64_t heads, bool *ok)
{
    if (!mask || mask->ndim == 2)
        return mask;
    int64_t groups = q->shape[q->ndim - 3] / heads, rows = mask->shape[mask->ndim - 2];
    int64_t columns = mask->shape[mask->ndim - 1], batch = q->ndim == 4 ? q->shape[0] : 1;
    const int64_t whole[4] = {batch, heads * groups, rows, columns}, split[4] = {batch * heads, groups, rows, columns};
    yk_tensor *out = yk_reshape(yk_expand(mask, 4, whole), 4, split);
    *ok = out != NULL;
    return out;
}

/* Each head of key and value serves several of query's: (B, H times) as (B H, times), where all of a row have the same
 * key, in a view of stride 0 on a CPU; other devices have copies. */
static yk_tensor *grouped(yk_tensor *const inputs[INPUTS], const yk__attention *p, const yk_attention_options *o)
{
    yk_tensor *in[INPUTS];
    memcpy(in, inputs, sizeof(in));
    const yk_tensor *q = inputs[Q];
    int ndim = q->ndim, at = ndim - 3;
    int64_t heads = inputs[K]->shape[at], times = q->shape[at] / heads;
    bool blocks = in_blocks(inputs, o);
    bool usual = blocks && inputs[V]->shape[at] == heads && yk__device_of(q).type == YK_CPU;
    if (!usual) {
        for (int i = K; i <= V; i++)
            in[i] = repeat_heads(in[i], q->shape[at] / in[i]->shape[at]);
        if (!in[K] || !in[V])
            return NULL;
        return blocks ? blockwise(in, p) : composed(in, p);
    }
    bool ok = true;
    in[MASK] = grouped_mask(in[MASK], q, heads, &ok);
    int64_t rows = (ndim == 4 ? q->shape[0] : 1) * heads;
    for (int i = Q; i <= V && ok; i++) {
        int64_t shape[4] = {rows, i == Q ? times : 1, in[i]->shape[at + 1], in[i]->shape[at + 2]};
        in[i] = yk_reshape(in[i], 4, shape);
        shape[1] = times;
        in[i] = yk_expand(in[i], 4, shape);
        ok = in[i] != NULL;
    }
    int64_t shape[4];
    memcpy(shape, q->shape, sizeof(shape[0]) * (size_t)ndim);
    shape[ndim - 1] = inputs[V]->shape[ndim - 1];
    return ok ? yk_reshape(blockwise(in, p), ndim, shape) : NULL;
}

yk_tensor *yk_scaled_dot_product_attention(yk_tensor *query, yk_tensor *key, yk_tensor *value,
                                           const yk_attention_options *options)
{
    yk_attention_options o;
    if (YK__OPTIONS_TAKE("scaled_dot_product_attention", yk_attention_options, options, &o))
        return NULL;
    yk_tensor *inputs[INPUTS] = {query, key, value, o.attn_mask};
    YK__AUTOCAST(attention, INPUTS, inputs,
                 (o.attn_mask = inputs[MASK], yk_scaled_dot_product_attention(inputs[Q], inputs[K], inputs[V], &o)));
    YK__EVENT(YK__EVENT_OPERATION, "scaled_dot_product_attention");
    if (!yk__op_begin("scaled_dot_product_attention", INPUTS, inputs, 1u << MASK) || !shapes_check(inputs, &o))
        return NULL;
    int ndim = query->ndim;
    double size = (double)query->shape[ndim - 1];
    yk__attention p = {.scale = yk__number_or(o.scale, 1 / sqrt(size)), .causal = o.is_causal};
    p.dropout = o.dropout_p;
    if (o.enable_gqa && !heads_check(inputs))
        return NULL;
    if (o.enable_gqa &&
        (key->shape[ndim - 3] != query->shape[ndim - 3] || value->shape[ndim - 3] != query->shape[ndim - 3])) {
        YK__WITHIN_SCOPE(grouped(inputs, &p, &o));
    }
    bool usual = key->ndim == ndim && value->ndim == ndim && in_blocks(inputs, &o);
    for (int d = 0; usual && d < ndim - 2; d++)
        usual = query->shape[d] == key->shape[d] && query->shape[d] == value->shape[d];
    return usual ? blockwise(inputs, &p) : composed(inputs, &p);
}
