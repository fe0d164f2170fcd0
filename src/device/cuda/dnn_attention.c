/*
 * dnn_attention.c - attention of halves by cuDNN's fused kernels. Layer: device/cuda.
 *
 * The library has no operation of that name that all its versions take: it looks for the pattern of elementary ones,
 * which is what its own C++ frontend gives it (cudnn-frontend, "scaled dot product attention"), and computes all of it
 * in one kernel that keeps no scores in memory. Their order, and the types of what goes between them, are that
 * pattern's: a mask after the scale in forward, after the subtraction of lse in backward; keys come transposed;
 * probabilities and gradients of scores go into products as halves.
 *
 * Backward's gradient of q is summed in f32, by the kernels' atomic additions, in a tensor of its own. Under
 * yk_use_deterministic_algorithms it is one product more, of gradients of scores that the library keeps in its
 * workspace, as halves: where they do not fit there, attention.cu computes.
 *
 * Masks, f32 and f64, rows of odd lengths, and what lies otherwise than in rows are attention.cu's; so are the forms in
 * Note [Forms that the library computes wrongly].
 *
 * Note [Forms that the library computes wrongly]
 * What is known of its releases, from its release notes and its users' reports, and what its own frontend and PyTorch
 * keep from it. One key: no backward (release notes of 9.18.1). One query: backward gives NaN where lse is low, or
 * faults as the plan is made (cudnn-frontend, issues 1071 and 1072, with 9.25 and 9.26); forward with a causal mask is
 * advised against (9.18.1). More than 65,535 batches or heads: the call fails (PyTorch, issue 181235). Backward, before
 * 9.26, of a number of keys whose remainder to 128 is 64: the kernels for sm_90 take keys that are not there for zeros
 * and do not mask them, so that gradients are NaN where lse < -88.7 (cudnn-frontend, pull request 628; PyTorch, issue
 * 196678); a causal mask covers such keys where there are no more queries than keys.
 */
#include <math.h>
#include <string.h>

#include "device/cuda/dnn_graph.h"

#ifdef HAS_DNN

/* STEP: elements of which a row has a multiple. MOST_WIDTH: elements of a row that are taken, of backward's
 * MOST_WIDTH_BACKWARD. ALIGNMENT: bytes. FIRST_VIRTUAL: the first id of a tensor without memory. The versions are as
 * the frontend has them: 9.10.0 and 9.10.1 are known to be wrong, and up to 9.15 it gives backward a mask of its own
 * where the keys do not fill tiles, which the graph here has not. MOST_PLANE: batches, and heads. */
enum {
    STEP = 8,
    MOST_WIDTH = 256,
    MOST_WIDTH_BACKWARD = 128,
    ALIGNMENT = 16,
    FIRST_VIRTUAL = DNN_TENSORS + 1,
    TILE = 128,
    MOST_PLANE = 65535
};
enum { FIRST_VERSION = 91100, FIRST_WITH_ANY_KEYS = 91600, FIRST_WITH_HALF_TILES = 92600 };

/* ---- the graph ---- */
typedef struct maker {
    dnn_builder *b;
    const dnn_form *f;
    cudnnBackendDescriptor_t *operations;
    int64_t count, ids; /* of operations, of virtual tensors */
    cudnnDataType_t half;
} maker;

typedef cudnnBackendDescriptor_t tensor;

static void dense_strides(const int64_t shape[4], int64_t stride[4])
{
    for (int64_t d = 3, step = 1; d >= 0; step *= shape[d--])
        stride[d] = step;
}

/* A dense tensor, of memory or a value (an id), or without (id 0). */
static tensor dense(maker *m, int64_t id, cudnnDataType_t type, int64_t rows, int64_t columns, enum dnn_memory memory)
{
    const dnn_attention *a = &m->f->attention;
    const int64_t all[4] = {a->batch, a->heads, rows, columns}, one[4] = {1, 1, 1, 1};
    const int64_t *shape = memory == DNN_BY_VALUE ? one : all;
    int64_t stride[4];
    dense_strides(shape, stride);
    return dnn_tensor(m->b, id ? id : FIRST_VIRTUAL + m->ids++, type, shape, stride, ALIGNMENT, memory);
}

static tensor virtual_of(maker *m, cudnnDataType_t type, int64_t rows, int64_t columns)
{
    return dense(m, 0, type, rows, columns, DNN_VIRTUAL);
}

static tensor scores_of(maker *m, cudnnDataType_t type)
{
    return virtual_of(m, type, m->f->attention.queries, m->f->attention.keys);
}

static tensor sums_of(maker *m)
{
    return virtual_of(m, CUDNN_DATA_FLOAT, m->f->attention.queries, 1);
}

static tensor by_value(maker *m, int64_t id)
{
    return dense(m, id, CUDNN_DATA_FLOAT, 1, 1, DNN_BY_VALUE);
}

/* An operand of the form, or the same transposed, as the library takes keys, and values in backward. */
static tensor operand(maker *m, int64_t id, int which, int64_t rows, int64_t columns, bool transposed)
{
    const dnn_attention *a = &m->f->attention;
    const int64_t *s = a->stride[which];
    int64_t shape[4] = {a->batch, a->heads, transposed ? columns : rows, transposed ? rows : columns};
    int64_t stride[4] = {s[0], s[1], transposed ? 1 : s[2], transposed ? s[2] : 1};
    return dnn_tensor(m->b, id, m->half, shape, stride, ALIGNMENT, DNN_IN_MEMORY);
}

static void graph_add(maker *m, cudnnBackendDescriptor_t operation)
{
    if (m->count < DNN_MOST_OPERATIONS)
        m->operations[m->count++] = operation;
}

static void matmul(maker *m, tensor a, tensor b, tensor out)
{
    static const char what[] = "a product of attention";
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t p = dnn_create(m->b, CUDNN_BACKEND_MATMUL_DESCRIPTOR, what);
    dnn_set(m->b, p, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute, what);
    p = dnn_finalized(m->b, p, what);
    cudnnBackendDescriptor_t o = dnn_create(m->b, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, what);
    dnn_set_descriptor(m->b, o, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a, what);
    dnn_set_descriptor(m->b, o, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b, what);
    dnn_set_descriptor(m->b, o, CUDNN_ATTR_OPERATION_MATMUL_CDESC, out, what);
    dnn_set_descriptor(m->b, o, CUDNN_ATTR_OPERATION_MATMUL_DESC, p, what);
    graph_add(m, dnn_finalized(m->b, o, what));
}

static void reduce(maker *m, cudnnReduceTensorOp_t mode, tensor x, tensor out)
{
    static const char what[] = "a reduction of attention";
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t r = dnn_create(m->b, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, what);
    dnn_set(m->b, r, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode, what);
    dnn_set(m->b, r, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute, what);
    r = dnn_finalized(m->b, r, what);
    cudnnBackendDescriptor_t o = dnn_create(m->b, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, what);
    dnn_set_descriptor(m->b, o, CUDNN_ATTR_OPERATION_REDUCTION_DESC, r, what);
    dnn_set_descriptor(m->b, o, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x, what);
    dnn_set_descriptor(m->b, o, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, out, what);
    graph_add(m, dnn_finalized(m->b, o, what));
}

static void reshape(maker *m, tensor x, tensor out)
{
    static const char what[] = "a transposition of attention";
    cudnnBackendDescriptor_t o = dnn_create(m->b, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, what);
    dnn_set_descriptor(m->b, o, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x, what);
    dnn_set_descriptor(m->b, o, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, out, what);
    graph_add(m, dnn_finalized(m->b, o, what));
}

/* out = mode(x, other), in f32. */
static tensor pointwise(maker *m, cudnnPointwiseMode_t mode, tensor x, tensor other, tensor out)
{
    graph_add(m, dnn_pointwise(m->b, mode, CUDNN_DATA_FLOAT, 0, x, other, NULL, out));
    return out;
}

static tensor scaled(maker *m, tensor x, tensor scale)
{
    return pointwise(m, CUDNN_POINTWISE_MUL, x, scale, scores_of(m, CUDNN_DATA_FLOAT));
}

/* The scores where key j <= query i; -infinity elsewhere. */
static tensor masked(maker *m, tensor scores)
{
    tensor query = scores_of(m, CUDNN_DATA_INT32), key = scores_of(m, CUDNN_DATA_INT32);
    tensor seen = scores_of(m, CUDNN_DATA_BOOLEAN), kept = scores_of(m, CUDNN_DATA_FLOAT);
    graph_add(m, dnn_pointwise(m->b, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, 2, scores, NULL, NULL, query));
    graph_add(m, dnn_pointwise(m->b, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, 3, scores, NULL, NULL, key));
    graph_add(m, dnn_pointwise(m->b, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, 0, query, key, NULL, seen));
    graph_add(m, dnn_pointwise(m->b, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, 0, scores,
                               by_value(m, DNN_MINUS_INFINITY), seen, kept));
    return kept;
}

static void forward(maker *m)
{
    const dnn_attention *a = &m->f->attention;
    tensor q = operand(m, DNN_Q, DNN_STRIDES_Q, a->queries, a->width, false);
    tensor k = operand(m, DNN_K, DNN_STRIDES_K, a->keys, a->width, true);
    tensor v = operand(m, DNN_V, DNN_STRIDES_V, a->keys, a->values, false);
    tensor out = operand(m, DNN_ATTENDED, DNN_STRIDES_OUT, a->queries, a->values, false);
    tensor lse = dense(m, DNN_LSE, CUDNN_DATA_FLOAT, a->queries, 1, DNN_IN_MEMORY);
    tensor products = scores_of(m, CUDNN_DATA_FLOAT);
    matmul(m, q, k, products);
    tensor scores = scaled(m, products, by_value(m, DNN_SCALE));
    if (a->causal)
        scores = masked(m, scores);
    tensor top = sums_of(m), sum = sums_of(m);
    reduce(m, CUDNN_REDUCE_TENSOR_MAX, scores, top);
    tensor below = pointwise(m, CUDNN_POINTWISE_SUB, scores, top, scores_of(m, CUDNN_DATA_FLOAT));
    tensor powers = pointwise(m, CUDNN_POINTWISE_EXP, below, NULL, scores_of(m, CUDNN_DATA_FLOAT));
    reduce(m, CUDNN_REDUCE_TENSOR_ADD, powers, sum);
    pointwise(m, CUDNN_POINTWISE_ADD, top, pointwise(m, CUDNN_POINTWISE_LOG, sum, NULL, sums_of(m)), lse);
    matmul(m, pointwise(m, CUDNN_POINTWISE_DIV, powers, sum, scores_of(m, m->half)), v, out);
}

/* x (..., rows, columns) as halves, transposed, which alone moves no element. */
static tensor transposed(maker *m, tensor x)
{
    const dnn_attention *a = &m->f->attention;
    const int64_t shape[4] = {a->batch, a->heads, a->keys, a->queries};
    const int64_t stride[4] = {a->heads * a->queries * a->keys, a->queries * a->keys, 1, a->keys};
    tensor t = dnn_tensor(m->b, FIRST_VIRTUAL + m->ids++, m->half, shape, stride, ALIGNMENT, DNN_VIRTUAL);
    reshape(m, x, t);
    return t;
}

static void backward(maker *m)
{
    const dnn_attention *a = &m->f->attention;
    tensor q = operand(m, DNN_Q, DNN_STRIDES_Q, a->queries, a->width, false);
    tensor k = operand(m, DNN_K, DNN_STRIDES_K, a->keys, a->width, true);
    tensor v = operand(m, DNN_V, DNN_STRIDES_V, a->keys, a->values, true);
    tensor out = operand(m, DNN_ATTENDED, DNN_STRIDES_OUT, a->queries, a->values, false);
    tensor given = operand(m, DNN_GOUT, DNN_STRIDES_GOUT, a->queries, a->values, false);
    tensor to_q = operand(m, DNN_GQ, DNN_STRIDES_GQ, a->queries, a->width, false);
    tensor to_k = operand(m, DNN_GK, DNN_STRIDES_GK, a->keys, a->width, false);
    tensor to_v = operand(m, DNN_GV, DNN_STRIDES_GV, a->keys, a->values, false);
    tensor lse = dense(m, DNN_LSE, CUDNN_DATA_FLOAT, a->queries, 1, DNN_IN_MEMORY), scale = by_value(m, DNN_SCALE);
    tensor one = by_value(m, DNN_ONE), out_sum = dense(m, DNN_OUT_SUM, CUDNN_DATA_FLOAT, a->queries, 1, DNN_IN_MEMORY);
    tensor sum = sums_of(m), products = scores_of(m, CUDNN_DATA_FLOAT), of_shares = scores_of(m, CUDNN_DATA_FLOAT);

    /* For each query: the sum of its probabilities times their gradients. The factor would be dropout's. */
    tensor both = virtual_of(m, CUDNN_DATA_FLOAT, a->queries, a->values);
    reduce(m, CUDNN_REDUCE_TENSOR_ADD, pointwise(m, CUDNN_POINTWISE_MUL, given, out, both), sum);
    pointwise(m, CUDNN_POINTWISE_MUL, sum, one, out_sum);

    matmul(m, q, k, products);
    tensor below = pointwise(m, CUDNN_POINTWISE_SUB, scaled(m, products, scale), lse, scores_of(m, CUDNN_DATA_FLOAT));
    if (a->causal)
        below = masked(m, below);
    tensor shares = pointwise(m, CUDNN_POINTWISE_EXP, below, NULL, scores_of(m, CUDNN_DATA_FLOAT));
    matmul(m, transposed(m, shares), given, to_v);

    matmul(m, given, v, of_shares);
    tensor less = pointwise(m, CUDNN_POINTWISE_SUB, of_shares, out_sum, scores_of(m, CUDNN_DATA_FLOAT));
    tensor gradient = scaled(m, pointwise(m, CUDNN_POINTWISE_MUL, less, shares, scores_of(m, CUDNN_DATA_FLOAT)), scale);
    matmul(m, transposed(m, gradient), q, to_k);

    const int64_t shape[4] = {a->batch, a->heads, a->keys, a->width}, *s = a->stride[DNN_STRIDES_K];
    const int64_t stride[4] = {s[0], s[1], s[2], 1};
    tensor keys = dnn_tensor(m->b, FIRST_VIRTUAL + m->ids++, CUDNN_DATA_FLOAT, shape, stride, ALIGNMENT, DNN_VIRTUAL);
    reshape(m, k, keys);
    if (m->f->deterministic) {
        matmul(m, gradient, keys, to_q);
        return;
    }
    tensor wide = dense(m, DNN_GQ_SUM, CUDNN_DATA_FLOAT, a->queries, a->width, DNN_IN_MEMORY);
    matmul(m, gradient, keys, wide);
    pointwise(m, CUDNN_POINTWISE_IDENTITY, wide, NULL, to_q);
}

int64_t dnn_attention_operations(dnn_builder *b, const dnn_form *f, cudnnBackendDescriptor_t *operations)
{
    maker m = {.b = b, .f = f, .operations = operations, .half = dnn_type_of(f->dtype)};
    if (f->work == CUDA_ATTENTION)
        forward(&m);
    else
        backward(&m);
    return m.count;
}

/* ---- the call ---- */
/* The strides of an operand, of which a dimension of one element says nothing; false where the library does not take
 * it: its rows have to lie side by side, and to begin at 16 bytes. */
static bool strides_of(const yk__view *v, int64_t stride[3])
{
    int64_t count = v->shape[3];
    if (v->stride[3] != 1 || (uintptr_t)v->data % ALIGNMENT)
        return false;
    for (int d = 2; d >= 0; d--) {
        if (v->shape[d] < 1 || v->shape[d] > INT32_MAX / count)
            return false;
        count *= v->shape[d];
        stride[d] = v->shape[d] > 1 ? v->stride[d] : d == 2 ? v->shape[3] : stride[d + 1] * v->shape[d + 1];
        if (stride[d] < STEP || stride[d] % STEP)
            return false;
    }
    return true;
}

/* True for the forms that the library computes rightly: Note [Forms that the library computes wrongly]. */
static bool attention_computes(const cuda_attended *c, bool causal, bool backward)
{
    int64_t queries = c->q->shape[2], keys = c->k->shape[2];
    if (keys < 2 || (queries == 1 && (backward || causal)) || c->q->shape[0] > MOST_PLANE ||
        c->q->shape[1] > MOST_PLANE)
        return false;
    if (!backward || keys % TILE == 0)
        return true;
    if (dnn.version() < FIRST_WITH_ANY_KEYS)
        return false;
    return keys % TILE != TILE / 2 || dnn.version() >= FIRST_WITH_HALF_TILES || (causal && queries <= keys);
}

static bool attention_takes(const cuda_attended *c, bool causal, bool backward)
{
    int64_t width = c->q->shape[3], values = c->v->shape[3], most = backward ? MOST_WIDTH_BACKWARD : MOST_WIDTH;
    if ((c->q->dtype != YK_F16 && c->q->dtype != YK_BF16) || c->mask || (uintptr_t)c->lse->data % ALIGNMENT ||
        width < 1 || values < 1 || width % STEP || values % STEP || width > most || values > most ||
        !cuda_fuses_attention() || !dnn_open() || dnn.version() < FIRST_VERSION)
        return false;
    return attention_computes(c, causal, backward);
}

yk_status cuda_dnn_attention(int device, const yk__attention *p, const cuda_attended *c, bool *taken)
{
    const yk__view *operands[DNN_STRIDED] = {c->q, c->k, c->v, c->out, c->gout, c->gq, c->gk, c->gv};
    static const int ids[DNN_STRIDED] = {DNN_Q, DNN_K, DNN_V, DNN_ATTENDED, DNN_GOUT, DNN_GQ, DNN_GK, DNN_GV};
    bool backward = c->gout != NULL;
    void *memory[DNN_TENSORS] = {NULL};
    yk__storage *scratch = NULL;
    cudaStream_t stream = NULL;
    dnn_form f;
    *taken = false;
    if (!attention_takes(c, p->causal, backward))
        return YK_OK;
    memset(&f, 0, sizeof(f));
    f.device = device, f.work = backward ? CUDA_ATTENTION_BACKWARD : CUDA_ATTENTION, f.dtype = c->q->dtype;
    f.deterministic = cuda_yoke->deterministic();
    dnn_attention *a = &f.attention;
    a->batch = c->q->shape[0], a->heads = c->q->shape[1], a->queries = c->q->shape[2], a->keys = c->k->shape[2];
    a->width = c->q->shape[3], a->values = c->v->shape[3], a->causal = p->causal, a->scale = (float)p->scale;
    for (int i = 0; i < DNN_STRIDED; i++) {
        if (!operands[i])
            continue;
        if (!strides_of(operands[i], a->stride[i]))
            return YK_OK;
        memory[ids[i] - 1] = operands[i]->data;
    }
    memory[DNN_LSE - 1] = c->lse->data;
    yk_status status = cuda_use(device, &stream);
    if (status)
        return status;
    if (backward) {
        int64_t rows = a->batch * a->heads * a->queries, step = CUDA_MALLOC_ALIGNMENT / (int64_t)sizeof(float);
        int64_t sums = (rows + step - 1) / step * step, wide = f.deterministic ? 0 : rows * a->width;
        float *floats = cuda_workspace(device, (size_t)(sums + wide) * sizeof(float), &scratch);
        if (!floats)
            return YK_ERR_MEMORY;
        memory[DNN_OUT_SUM - 1] = floats;
        memory[DNN_GQ_SUM - 1] = wide ? floats + sums : NULL;
    }
    status = dnn_run(&f, stream, memory, taken);
    if (scratch)
        cuda_yoke->storage_release(scratch); /* only later work on the device's queue can take it */
    if (status || !*taken)
        return status;
    return cuda_launched(device, backward ? "attention_backward (cuDNN)" : "attention (cuDNN)", backward ? 8 : 4,
                         operands);
}

#else /* built without its headers */

yk_status cuda_dnn_attention(int device, const yk__attention *p, const cuda_attended *c, bool *taken)
{
    (void)device, (void)p, (void)c;
    *taken = false;
    return YK_OK;
}

#endif
