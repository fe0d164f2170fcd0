/*
 * attention_module.c - MultiheadAttention. Layer: nn.
 *
 * Inputs are looked at as (L,N,E) or (N,L,E), whatever batch_first says, and heads as (N,H,L,E/H), views of what one
 * product gives for all of those projections that have the same input. Masks are turned into the one of
 * yk_scaled_dot_product_attention, which is blockwise; only for weights that somebody asks for is the matrix made.
 */
#include <math.h>
#include <string.h>

#include "nn/module.h"
#include "ops/op.h"

enum { QUERY, KEY, VALUE, PADDING, MASK, INPUTS };

typedef struct attention {
    int64_t embed_dim, heads, sizes[3]; /* sizes: features of query, key and value */
    yk_tensor *in_proj, *proj[3];       /* the one, or all three */
    yk_tensor *bias, *bias_k, *bias_v;
    yk_module *out_proj;
    yk_multihead_attention_options o;
} attention;

static const char name[] = "multihead_attention";

/* ---- what is checked --------------------------------------------------------------------------------------------- */

static bool check_sequences(const attention *d, yk_tensor *const in[INPUTS])
{
    static const char *const role[] = {"query", "key", "value"};
    char a[200], b[200];
    int ndim = in[QUERY]->ndim;
    for (int i = QUERY; i <= VALUE; i++) {
        const yk_tensor *x = in[i];
        if ((x->ndim != 2 && x->ndim != 3) || x->ndim != ndim || x->shape[ndim - 1] != d->sizes[i]) {
            yk__fail(YK_ERR_SHAPE, "%s: %s has shape %s, expected (%s%lld)", name, role[i],
                     yk_shape_format(x, a, sizeof(a)),
                     i && ndim == 2          ? "S, "
                     : ndim == 2             ? "L, "
                     : d->o.batch_first && i ? "N, S, "
                     : d->o.batch_first      ? "N, L, "
                     : i                     ? "S, N, "
                                             : "L, N, ",
                     (long long)d->sizes[i]);
            return false;
        }
    }
    int batch = d->o.batch_first ? 0 : 1, length = ndim == 2 ? 0 : 1 - batch;
    if (ndim == 3 && in[KEY]->shape[batch] != in[QUERY]->shape[batch]) {
        yk__fail(YK_ERR_SHAPE, "%s: query %s and key %s have batches of %lld and %lld", name,
                 yk_shape_format(in[QUERY], a, sizeof(a)), yk_shape_format(in[KEY], b, sizeof(b)),
                 (long long)in[QUERY]->shape[batch], (long long)in[KEY]->shape[batch]);
        return false;
    }
    if (in[KEY]->shape[length] != in[VALUE]->shape[length] ||
        (ndim == 3 && in[KEY]->shape[batch] != in[VALUE]->shape[batch])) {
        yk__fail(YK_ERR_SHAPE, "%s: key %s and value %s differ in more than their features", name,
                 yk_shape_format(in[KEY], a, sizeof(a)), yk_shape_format(in[VALUE], b, sizeof(b)));
        return false;
    }
    return true;
}

static bool check_mask(const char *role, const yk_tensor *mask, int ndim, const int64_t *shape)
{
    char a[200], b[200];
    if (!mask)
        return true;
    if (mask->dtype != YK_BOOL && !yk_dtype_is_floating((yk_dtype)mask->dtype)) {
        yk__fail(YK_ERR_DTYPE, "%s: %s is %s, expected bool (true: not looked at) or floating (added)", name, role,
                 yk_dtype_name((yk_dtype)mask->dtype));
        return false;
    }
    if (mask->ndim == ndim && yk__equal_sizes(mask->shape, shape, ndim))
        return true;
    yk__fail(YK_ERR_SHAPE, "%s: %s has shape %s, expected %s", name, role, yk_shape_format(mask, a, sizeof(a)),
             yk__shape_text(ndim, shape, b, sizeof(b)));
    return false;
}

/* ---- masks ------------------------------------------------------------------------------------------------------- */

/* A mask of bool as numbers to add: -INFINITY where it is true; others in the dtype of x. */
static yk_tensor *as_numbers(yk_tensor *mask, const yk_tensor *x)
{
    if (!mask || mask->dtype != YK_BOOL)
        return yk_cast(mask, (yk_dtype)x->dtype);
    yk_tensor_options options = *YK_OPTIONS(yk_tensor_options, .dtype = (yk_dtype)x->dtype, .device = yk__device_of(x));
    return yk_where(mask, yk_scalar(-INFINITY, &options), yk_scalar(0, &options));
}

static yk_tensor *both(yk_tensor *a, yk_tensor *b, const yk_tensor *x)
{
    if (!a || !b)
        return a ? a : b;
    if (a->dtype == YK_BOOL && b->dtype == YK_BOOL)
        return yk_logical_or(a, b);
    return yk_add(as_numbers(a, x), as_numbers(b, x));
}

/* true above the diagonal of (queries, keys) */
static yk_tensor *later_keys(int64_t queries, int64_t keys, yk_device device)
{
    yk_tensor *row = yk__scope_own(yk__raw_positions(queries, 2, device));
    return yk_lt(row, yk__scope_own(yk__raw_positions(keys, 1, device)));
}

/* The mask of (N,H,L,S), or what broadcasts to it, for the attention, NULL for none; *causal: it is the causal one and
 * not made. `added` keys, which all may look at, come last. */
static yk_status mask_of(const attention *d, yk_tensor *const in[INPUTS], const yk_tensor *q, const yk_tensor *k,
                         int added, bool *causal, yk_tensor **mask)
{
    int64_t batch = q->shape[0], queries = q->shape[2], keys = k->shape[2] - added;
    yk_tensor *padding = in[PADDING], *given = in[MASK];
    bool wanted = padding || given;
    *causal = d->o.is_causal && !wanted && !added;
    *mask = NULL;
    if (padding)
        padding = yk_reshape(padding, 4, (int64_t[]){batch, 1, 1, keys});
    if (given && given->ndim == 3)
        given = yk_reshape(given, 4, (int64_t[]){batch, d->heads, queries, keys});
    if ((in[PADDING] && !padding) || (in[MASK] && !given))
        return yk__status_of(NULL);
    yk_tensor *out = both(given, padding, q);
    if (d->o.is_causal && !*causal) {
        yk_tensor *later = later_keys(queries, keys, yk__device_of(q));
        wanted = true;
        out = later && (out || !(padding || given)) ? both(out, later, q) : NULL;
    }
    if (!wanted)
        return YK_OK;
    if (added && out)
        out = yk_pad(out, (int64_t[]){0, added}, 2, YK_PAD_CONSTANT, 0);
    *mask = out && out->dtype == YK_BOOL ? yk_logical_not(out) : out ? yk_cast(out, (yk_dtype)q->dtype) : NULL;
    return yk__status_of(*mask);
}

/* ---- projections ------------------------------------------------------------------------------------------------- */

/* x (A,B,in) by `count` of the projections at once: heads[i] (A,B,H,E/H). */
static yk_status project(const attention *d, yk_tensor *x, yk_tensor *weight, yk_tensor *bias, int count,
                         yk_tensor **heads)
{
    yk_tensor *y = yk_linear(x, weight, bias);
    if (!y)
        return yk__status_of(NULL);
    const int64_t size = d->embed_dim / d->heads, shape[5] = {y->shape[0], y->shape[1], count, d->heads, size};
    y = yk_reshape(y, 5, shape);
    if (count == 1) {
        heads[0] = yk_select(y, 2, 0);
        return yk__status_of(heads[0]);
    }
    return y ? yk_unbind(y, 2, heads, count, NULL) : yk__status_of(NULL);
}

/* Query, key and value as heads (A,B,H,E/H), by as few products as their inputs allow. */
static yk_status project_all(const attention *d, yk_tensor *const in[INPUTS], yk_tensor *heads[3])
{
    bool packed = d->in_proj != NULL, pair = in[KEY] == in[VALUE];
    if (packed && pair && in[QUERY] == in[KEY])
        return project(d, in[QUERY], d->in_proj, d->bias, 3, heads);
    int64_t e = d->embed_dim, sizes[3] = {e, packed && pair ? 2 * e : e, e};
    int parts = packed && pair ? 2 : 3;
    yk_tensor *weights[3] = {d->proj[0], d->proj[1], d->proj[2]}, *biases[3] = {NULL};
    yk_status status = packed ? yk_split_sizes(d->in_proj, sizes, parts, 0, weights) : YK_OK;
    if (!status && d->bias)
        status = yk_split_sizes(d->bias, sizes, parts, 0, biases);
    for (int i = 0; i < parts && !status; i++)
        status = project(d, in[i], weights[i], biases[i], sizes[i] > e ? 2 : 1, heads + i);
    return status;
}

/* One row more at the end of the keys: `row` (1,1,E), or zeros for NULL. x (N,H,S,D). */
static yk_tensor *with_row(const attention *d, yk_tensor *x, yk_tensor *row)
{
    if (!x)
        return NULL;
    int64_t size = x->shape[3], shape[4] = {x->shape[0], x->shape[1], 1, size};
    yk_tensor *last =
        row ? yk_expand(yk_reshape(yk_cast(row, (yk_dtype)x->dtype), 4, (int64_t[]){1, d->heads, 1, size}), 4, shape)
            : yk_zeros(4, shape,
                       YK_OPTIONS(yk_tensor_options, .dtype = (yk_dtype)x->dtype, .device = yk__device_of(x)));
    return yk_cat((yk_tensor *[]){x, last}, 2, 2);
}

/* ---- the module -------------------------------------------------------------------------------------------------- */

static yk_status attention_run(yk_module *m, yk_tensor *const in[INPUTS], yk_tensor **out, int n_outputs)
{
    const attention *d = yk__module_data(m);
    bool single = in[QUERY]->ndim == 2;
    int64_t length = in[QUERY]->shape[single || !d->o.batch_first ? 0 : 1];
    int64_t keys = in[KEY]->shape[single || !d->o.batch_first ? 0 : 1];
    int64_t batch = single ? 1 : in[QUERY]->shape[d->o.batch_first ? 0 : 1];
    bool per_head = in[MASK] && in[MASK]->ndim == 3;
    const int64_t padding[2] = {batch, keys}, scores[3] = {batch * d->heads, length, keys};
    if (!check_mask("key_padding_mask", in[PADDING], single ? 1 : 2, padding + single) ||
        !check_mask("attn_mask", in[MASK], per_head ? 3 : 2, scores + !per_head))
        return yk__error_code();

    /* (N,L,E) where the batch comes first, else (L,N,E) */
    yk_tensor *x[INPUTS] = {in[QUERY], in[KEY], in[VALUE], in[PADDING], in[MASK]}, *heads[3];
    for (int i = QUERY; single && i <= VALUE; i++)
        x[i] = i && in[i] == in[i - 1] ? x[i - 1] : yk_unsqueeze(in[i], 1);
    if (single && in[QUERY] == in[VALUE])
        x[VALUE] = x[QUERY];
    if (!x[QUERY] || !x[KEY] || !x[VALUE])
        return yk__status_of(NULL);
    yk_status status = project_all(d, x, heads);
    if (status)
        return status;
    bool first = d->o.batch_first && !single;
    const int *order = first ? (const int[]){0, 2, 1, 3} : (const int[]){1, 2, 0, 3};
    const int *back = first ? (const int[]){0, 2, 1, 3} : (const int[]){2, 0, 1, 3};
    for (int i = 0; i < 3; i++)
        heads[i] = yk_permute(heads[i], order);
    int added = 0;
    if (d->bias_k) {
        heads[KEY] = with_row(d, heads[KEY], d->bias_k), heads[VALUE] = with_row(d, heads[VALUE], d->bias_v);
        added++;
    }
    if (d->o.add_zero_attn) {
        heads[KEY] = with_row(d, heads[KEY], NULL), heads[VALUE] = with_row(d, heads[VALUE], NULL);
        added++;
    }
    if (!heads[QUERY] || !heads[KEY] || !heads[VALUE])
        return yk__status_of(NULL);
    bool causal;
    yk_tensor *mask, *y, *weights = NULL;
    status = mask_of(d, x, heads[QUERY], heads[KEY], added, &causal, &mask);
    if (status)
        return status;
    double dropout = m->training ? d->o.dropout : 0;
    if (n_outputs > 1) {
        weights = yk_dropout(yk__attention_weights(heads[QUERY], heads[KEY], mask, causal), dropout, true);
        y = yk_matmul(weights, heads[VALUE]);
    } else {
        y = yk_scaled_dot_product_attention(
            heads[QUERY], heads[KEY], heads[VALUE],
            YK_OPTIONS(yk_attention_options, .attn_mask = mask, .is_causal = causal, .dropout_p = dropout));
    }
    const int64_t shape[3] = {first ? batch : length, first ? length : batch, d->embed_dim};
    y = yk_reshape(yk_permute(y, back), 3, shape);
    out[0] = yk__forward_part(d->out_proj, single ? yk_squeeze(y, 1) : y);
    if (n_outputs > 1) {
        const int head = 1;
        weights = d->o.average_attn_weights ? yk_mean_dims(weights, &head, 1, false) : weights;
        out[1] = single ? yk_squeeze(weights, 0) : weights;
    }
    return yk__status_of(out[n_outputs - 1]);
}

static yk_status attention_forward(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **out, int n_outputs)
{
    if (n_inputs < 1 || n_inputs > INPUTS || !inputs[QUERY] || n_outputs > 2)
        return yk__fail(YK_ERR_ARGUMENT,
                        "%s: %d inputs for %d outputs; expected query [, key, value [, key_padding_mask [, attn_mask]]]"
                        " for the output [and the weights]",
                        name, n_inputs, n_outputs);
    yk_tensor *in[INPUTS] = {NULL};
    memcpy(in, inputs, sizeof(in[0]) * (size_t)n_inputs);
    in[KEY] = in[KEY] ? in[KEY] : in[QUERY];
    in[VALUE] = in[VALUE] ? in[VALUE] : in[KEY];
    if (!check_sequences(yk__module_data(m), in))
        return yk__error_code();
    return attention_run(m, in, out, n_outputs);
}

static const yk_module_class attention_class = {
    .name = "MultiheadAttention", .data_size = sizeof(attention), .forward_list = attention_forward};

static yk_tensor *parameter(yk_module *m, const char *label, int ndim, const int64_t *shape)
{
    return yk__module_take_parameter(m, label, yk__module_tensor(name, ndim, shape, YK_F32));
}

/* PyTorch's initial values; the output's weight has those of any linear layer. */
static yk_status initialise(attention *d)
{
    yk_tensor *weights[4] = {d->in_proj, d->proj[0], d->proj[1], d->proj[2]};
    yk_status status = YK_OK;
    for (int i = 0; i < 4 && !status; i++)
        status = weights[i] ? yk_init_xavier_uniform(weights[i], 1) : YK_OK;
    if (!status && d->bias)
        status = yk_init_constant(d->bias, 0);
    yk_tensor *bias = yk_module_get(d->out_proj, "bias");
    if (!status && bias)
        status = yk_init_constant(bias, 0);
    /* xavier_normal_ of (1, 1, E): both fans are E */
    for (int i = 0; i < 2 && !status && d->bias_k; i++)
        status = yk_init_normal(i ? d->bias_v : d->bias_k, 0, sqrt(2.0 / (2.0 * (double)d->embed_dim)));
    return status;
}

yk_module *yk_multihead_attention(int64_t embed_dim, int64_t num_heads, const yk_multihead_attention_options *options)
{
    yk_multihead_attention_options o;
    const int64_t most = INT32_MAX;
    if (YK__OPTIONS_TAKE(name, yk_multihead_attention_options, options, &o) ||
        yk__check_integer(name, "embed_dim", embed_dim, 1, most) ||
        yk__check_integer(name, "num_heads", num_heads, 1, most) || yk__check_number(name, "dropout", o.dropout, 0, 1))
        return NULL;
    if (embed_dim % num_heads) {
        yk__fail(YK_ERR_ARGUMENT, "%s: embed_dim %lld is no multiple of num_heads %lld", name, (long long)embed_dim,
                 (long long)num_heads);
        return NULL;
    }
    int64_t kdim = yk__integer_or(o.kdim, embed_dim), vdim = yk__integer_or(o.vdim, embed_dim);
    if (yk__check_integer(name, "kdim", kdim, 1, most) || yk__check_integer(name, "vdim", vdim, 1, most))
        return NULL;
    yk_module *m = yk_module_create(&attention_class);
    if (!m)
        return NULL;
    attention *d = yk_module_data(m);
    d->embed_dim = embed_dim;
    d->heads = num_heads;
    d->sizes[QUERY] = embed_dim, d->sizes[KEY] = kdim, d->sizes[VALUE] = vdim;
    d->o = o;
    if (kdim == embed_dim && vdim == embed_dim) {
        d->in_proj = parameter(m, "in_proj_weight", 2, (int64_t[]){3 * embed_dim, embed_dim});
    } else {
        static const char *const names[] = {"q_proj_weight", "k_proj_weight", "v_proj_weight"};
        for (int i = 0; i < 3; i++)
            d->proj[i] = parameter(m, names[i], 2, (int64_t[]){embed_dim, d->sizes[i]});
    }
    if (o.bias)
        d->bias = parameter(m, "in_proj_bias", 1, (int64_t[]){3 * embed_dim});
    if (o.add_bias_kv) {
        d->bias_k = parameter(m, "bias_k", 3, (int64_t[]){1, 1, embed_dim});
        d->bias_v = parameter(m, "bias_v", 3, (int64_t[]){1, 1, embed_dim});
    }
    d->out_proj = yk_module_add(m, "out_proj",
                                yk_linear_create(embed_dim, embed_dim, YK_OPTIONS(yk_linear_options, .bias = o.bias)));
    return yk_module_check(m) && !initialise(d) ? m : NULL;
}
