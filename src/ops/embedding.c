/*
 * embedding.c - rows of a table by index. Layer: ops.
 */
#include "ops/index.h"

typedef struct embedding_context {
    yk__tensor_spec weight; /* dtype: of the kernels */
    int64_t padding_idx;
    bool sparse;
} embedding_context;

/* Reshapes x, whose last dimension is `size`, to (M, size); one reference. */
static yk_tensor *as_list(yk_tensor *x, int64_t size)
{
    int64_t shape[2] = {size ? x->numel / size : 0, size};
    return yk__raw_reshape(x, 2, shape);
}

static yk_status embedding_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const embedding_context *c = yk__context(node);
    yk_status status = YK_OK;
    yk_tensor *index = yk__saved(node, 0, &status);
    if (status || !yk__needs_grad(node, 1))
        return status;
    yk_tensor *leaf = c->sparse ? yk__rows_leaf(node, 1) : NULL;
    if (leaf && leaf->dtype == gout->dtype) {
        yk_tensor *terms = as_list(gout, c->weight.shape[1]);
        status = terms ? yk__rows_add(leaf, index, terms, c->padding_idx) : yk__status_of(NULL);
        yk_tensor_release(terms);
        return status;
    }
    yk_tensor *g = yk__raw_cast(gout, (yk_dtype)c->weight.dtype),
              *gw = yk__gradient_new(node, 1, &c->weight, yk__device_of(gout));
    yk_tensor *rows = g && gout->numel ? as_list(g, c->weight.shape[1]) : NULL;
    if (gw && g && !gout->numel) {
        status = yk__raw_fill(gw, 0);
    } else if (gw && rows) {
        yk__view vgw = yk__view_of(gw), vg = yk__view_of(rows), vi = yk__view_of(index);
        status = YK__SLOT(gw, embedding_backward, &vgw, &vg, &vi, c->padding_idx);
    } else {
        status = yk__status_of(NULL);
    }
    yk_tensor_release(rows);
    yk_tensor_release(g);
    grads[1] = yk__narrow_to(yk__tensor_if_ok(gw, status), (yk_dtype)gout->dtype);
    return yk__status_of(grads[1]);
}

static void embedding_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const embedding_context *c = yk__context(node);
    yk_tensor *index = yk__saved_in_graph(node, 0), *g = gouts[0];
    if (!index || !yk__needs_grad(node, 1))
        return;
    yk_tensor *rows = yk_reshape(g, 2, (int64_t[]){index->numel, c->weight.shape[1]});
    if (c->padding_idx >= 0) {
        yk_tensor *padding = yk_eq(index, yk__recorded_number(index, (double)c->padding_idx));
        rows = yk__recorded_where_not(yk_unsqueeze(padding, 1), rows);
    }
    yk__tensor_spec spec = c->weight;
    spec.dtype = g->dtype;
    grads[1] = yk_index_add_(yk__recorded_zeros(&spec, yk__device_of(g)), 0, index, rows, 1);
}

static yk_tensor *embed(yk_tensor *index, yk_tensor *weight, int64_t padding_idx, bool sparse)
{
    static const yk__op op = {.name = "embedding", .backward = embedding_backward, .recorded = embedding_recorded};
    yk_tensor *inputs[2] = {index, weight}, *wide;
    char text[200];
    YK__EVENT(YK__EVENT_OPERATION, "embedding");
    if (!yk__op_begin("embedding", 2, inputs, 0))
        return NULL;
    if (weight->ndim != 2 || index->ndim == YK_MAX_DIMS) {
        yk__fail(YK_ERR_SHAPE, "embedding: weight has shape %s, expected (V, D), and the index at most %d dimensions",
                 yk_shape_format(weight, text, sizeof(text)), YK_MAX_DIMS - 1);
        return NULL;
    }
    if (index->dtype != YK_I64 && index->dtype != YK_I32) {
        yk__fail(YK_ERR_DTYPE, "embedding: index is %s, expected int64 or int32",
                 yk_dtype_name((yk_dtype)index->dtype));
        return NULL;
    }
    if (padding_idx < -1 || padding_idx >= weight->shape[0]) {
        yk__fail(YK_ERR_ARGUMENT, "embedding: padding_idx %lld is outside weight %s; -1 means none",
                 (long long)padding_idx, yk_shape_format(weight, text, sizeof(text)));
        return NULL;
    }
    if (yk__expect_floating("embedding", "weight", weight) || yk__operands(YK__SLOT_embedding, 1u, 1, &weight, &wide))
        return NULL;
    int64_t shape[YK_MAX_DIMS], rows[2] = {index->numel, weight->shape[1]};
    memcpy(shape, index->shape, sizeof(shape[0]) * (size_t)index->ndim);
    shape[index->ndim] = rows[1];
    yk_tensor *out = yk__tensor_new(index->ndim + 1, shape, NULL, (yk_dtype)wide->dtype, yk__device_of(weight));
    yk_tensor *list = yk__raw_reshape(index, 1, rows);
    yk_status status = out && list ? YK_OK : yk__status_of(NULL);
    if (!status && !out->numel)
        status = yk__index_check("embedding", list, 0, weight->shape[0]);
    if (!status && out->numel) {
        yk__view vo = {.data = out->data, .dtype = (yk_dtype)out->dtype, .ndim = 2, .shape = {rows[0], rows[1]}};
        yk__contiguous_strides(2, vo.shape, vo.stride);
        yk__view vw = yk__view_of(wide), vi = yk__view_of(list);
        status = YK__SLOT(weight, embedding, &vo, &vw, &vi);
    }
    embedding_context c = {.weight = yk__spec_of(weight), .padding_idx = padding_idx, .sparse = sparse};
    c.weight.dtype = wide->dtype;
    yk_tensor_release(wide);
    out = yk__narrow_to(yk__tensor_if_ok(out, status), (yk_dtype)weight->dtype);
    out = yk__record(out, &op, 2, inputs, 1, &list, &c, sizeof(c));
    yk_tensor_release(list);
    return out;
}

yk_tensor *yk_embedding(yk_tensor *index, yk_tensor *weight, int64_t padding_idx)
{
    return embed(index, weight, padding_idx, false);
}

yk_tensor *yk_embedding_sparse(yk_tensor *index, yk_tensor *weight, int64_t padding_idx)
{
    return embed(index, weight, padding_idx, true);
}
