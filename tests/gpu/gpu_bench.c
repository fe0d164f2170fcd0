/*
 * gpu_bench.c - the speed of a GPU's slots: part of gpu_cases.c. A row is a slot at a shape that training has, with the
 * bytes that it must move and the multiply-adds that it must do; the median of several rounds, each of which waits for
 * the device once.
 */
#include "tests/gpu/gpu_bench.h"

#include <string.h>

#include "tests/support/slot_pairs.h"

enum { ROUNDS = 5, MOST = 12, SMALL = 6 };

typedef struct bench {
    yk__view v[MOST];
    int64_t reserved[MOST];
    int count;
    double bytes, flops;
    bool failed;
    const char *error;
} bench;

typedef struct row {
    const char *name;
    yk_status (*call)(bench *b,
                      const struct row *row); /* queues it once; the first call, of an empty bench, prepares */
    yk_dtype dtype;
    int64_t n[4];
    int op;
} row;

/* A dense tensor of the GPU's memory, with uniform numbers of [-1, 1) or [0, bound). */
static const yk__view *tensor(bench *b, yk_dtype dtype, int ndim, const int64_t *shape, double bound)
{
    yk__view *v = &b->v[b->count];
    *v = (yk__view){.dtype = dtype, .ndim = ndim};
    int64_t step = 1;
    for (int d = ndim - 1; d >= 0; d--) {
        v->shape[d] = shape[d];
        v->stride[d] = step;
        step *= shape[d];
    }
    int64_t bytes = step * (int64_t)yk_dtype_size(dtype);
    b->reserved[b->count] = bytes;
    yk_status status = slot_gpu->allocate(0, (size_t)bytes, &v->data);
    if (!status) {
        const yk__stream stream = {(uint64_t)b->count, YK__RANDOM_TEST, 1};
        status = yk_dtype_is_floating(dtype) ? slot_gpu->random(0, YK__RANDOM_UNIFORM, v, stream, NULL, -1, bound)
                                             : slot_gpu->random_integers(0, v, stream, NULL, 0, (int64_t)bound);
    }
    b->failed |= status != YK_OK;
    b->count++;
    return v;
}

/* A tensor (N,C,H,W) whose channels lie side by side. */
static void channels_last(yk__view *v)
{
    v->stride[1] = 1, v->stride[3] = v->shape[1], v->stride[2] = v->shape[1] * v->shape[3];
}

#define SHAPE(...)                                                                                                     \
    (const int64_t[])                                                                                                  \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define NEW(dtype, ndim, ...) tensor(b, dtype, ndim, SHAPE(__VA_ARGS__), 1)

static double size_of(const row *r)
{
    return (double)yk_dtype_size(r->dtype);
}

static yk_status copy_row(bench *b, const row *r)
{
    if (!b->count) {
        NEW(r->dtype, 2, r->n[0], r->n[1]), NEW(r->dtype, 2, r->op ? r->n[1] : r->n[0], r->op ? r->n[0] : r->n[1]);
        b->bytes = 2 * (double)(r->n[0] * r->n[1]) * size_of(r);
        if (r->op) { /* transposed */
            yk__view *v = &b->v[1];
            v->shape[0] = r->n[0], v->shape[1] = r->n[1];
            v->stride[0] = 1, v->stride[1] = r->n[0];
        }
    }
    return slot_gpu->copy(0, &b->v[0], &b->v[1]);
}
static yk_status unary_row(bench *b, const row *r)
{
    if (!b->count) {
        NEW(r->dtype, 1, r->n[0]), NEW(r->dtype, 1, r->n[0]);
        b->bytes = 2 * (double)r->n[0] * size_of(r);
    }
    return slot_gpu->unary(0, (yk__unary)r->op, &b->v[0], &b->v[1], 1, 1);
}
static yk_status binary_row(bench *b, const row *r)
{
    if (!b->count) {
        for (int i = 0; i < 3; i++)
            NEW(r->dtype, 2, r->n[0], r->n[1]);
        b->bytes = 3 * (double)(r->n[0] * r->n[1]) * size_of(r);
        if (r->n[2]) { /* the last operand is one row */
            b->v[2].stride[0] = 0;
            b->bytes = 2 * (double)(r->n[0] * r->n[1]) * size_of(r);
        }
    }
    return slot_gpu->binary(0, (yk__binary)r->op, &b->v[0], &b->v[1], &b->v[2], 1);
}
static yk_status dropout_row(bench *b, const row *r)
{
    if (!b->count) {
        NEW(r->dtype, 1, r->n[0]), NEW(r->dtype, 1, r->n[0]);
        b->bytes = 2 * (double)r->n[0] * size_of(r);
    }
    return slot_gpu->dropout(0, &b->v[0], &b->v[1], (yk__stream){1, YK__RANDOM_TEST, 1}, NULL, 0, 0.1);
}
/* n[2]: which dimension is reduced; 2: both. */
static yk_status reduce_row(bench *b, const row *r)
{
    bool argument = r->op == YK__ARGMAX;
    if (!b->count) {
        NEW(argument ? YK_I64 : r->dtype, 2, r->n[2] != 1 ? 1 : r->n[0], r->n[2] != 0 ? 1 : r->n[1]);
        NEW(r->dtype, 2, r->n[0], r->n[1]);
        b->bytes = (double)(r->n[0] * r->n[1]) * size_of(r);
    }
    return slot_gpu->reduce(0, (yk__reduce)r->op, &b->v[0], &b->v[1], 0);
}
/* op 1: backward */
static yk_status softmax_row(bench *b, const row *r)
{
    if (!b->count) {
        for (int i = 0; i < 2 + r->op; i++)
            NEW(r->dtype, 2, r->n[0], r->n[1]);
        b->bytes = (2 + r->op) * (double)(r->n[0] * r->n[1]) * size_of(r);
    }
    return r->op ? slot_gpu->softmax_backward(0, &b->v[0], &b->v[1], &b->v[2], 1, false)
                 : slot_gpu->softmax(0, &b->v[0], &b->v[1], 1, false);
}
/* M, N, K, batches; op 1: with a bias, 2: the second factor transposed */
static yk_status gemm_row(bench *b, const row *r)
{
    int64_t batches = r->n[3] ? r->n[3] : 1;
    if (!b->count) {
        NEW(r->dtype, 3, batches, r->n[0], r->n[1]), NEW(r->dtype, 3, batches, r->n[0], r->n[2]);
        NEW(r->dtype, 3, batches, r->n[2], r->n[1]), NEW(r->dtype, 1, r->n[1]);
        if (r->op == 2)
            b->v[2].stride[1] = 1, b->v[2].stride[2] = r->n[2];
        b->flops = 2.0 * (double)batches * (double)r->n[0] * (double)r->n[1] * (double)r->n[2];
        b->bytes = (double)batches * (double)(r->n[0] * r->n[1] + r->n[0] * r->n[2] + r->n[1] * r->n[2]) * size_of(r);
    }
    return slot_gpu->gemm(0, &b->v[0], &b->v[1], &b->v[2], r->op == 1 ? &b->v[3] : NULL, false);
}
/* The gradients of a weight (M,N) and of its bias, of K rows. op 0: by a product and a sum, 1: by one product, where
 * the library does that. */
static yk_status row_sums_row(bench *b, const row *r)
{
    if (!b->count) {
        NEW(r->dtype, 3, 1, r->n[0], r->n[1]), NEW(r->dtype, 3, 1, r->n[0], r->n[2]);
        NEW(r->dtype, 3, 1, r->n[2], r->n[1]), NEW(r->dtype, 3, 1, r->n[0], 1);
        b->v[1].stride[1] = 1, b->v[1].stride[2] = r->n[0]; /* the gradient of the output, (K,M) in memory */
        b->flops = 2.0 * (double)r->n[0] * (double)r->n[1] * (double)r->n[2];
        b->bytes = (double)(r->n[0] * r->n[1] + r->n[0] * r->n[2] + r->n[1] * r->n[2]) * size_of(r);
    }
    yk__view sums = b->v[3];
    sums.ndim = 1, sums.shape[0] = r->n[0], sums.stride[0] = 1;
    bool done = false;
    yk_status status = r->op && slot_gpu->gemm_row_sums
                           ? slot_gpu->gemm_row_sums(0, &b->v[0], &sums, &b->v[1], &b->v[2], false, &done)
                           : YK_OK;
    if (status || done)
        return status;
    status = slot_gpu->gemm(0, &b->v[0], &b->v[1], &b->v[2], NULL, false);
    return status ? status : slot_gpu->reduce(0, YK__SUM, &b->v[3], &b->v[1], 0);
}
/* N, C, H (= W), O; 3x3, padding 1. op 0: forward, 1: gradient of the input, 2: of the weight; halves with channels
 * last, as networks have them */
static yk_status conv_row(bench *b, const row *r)
{
    const yk__conv2d p = {.stride = {1, 1}, .padding = {1, 1}, .dilation = {1, 1}, .groups = 1};
    if (!b->count) {
        NEW(r->dtype, 4, r->n[0], r->n[1], r->n[2], r->n[2]), NEW(r->dtype, 4, r->n[3], r->n[1], 3, 3);
        NEW(r->dtype, 4, r->n[0], r->n[3], r->n[2], r->n[2]);
        for (int i = 0; i < 3 && r->dtype != YK_F32; i++)
            channels_last(&b->v[i]);
        double pixels = (double)(r->n[0] * r->n[2] * r->n[2]);
        b->flops = 18 * pixels * (double)r->n[1] * (double)r->n[3];
        b->bytes = pixels * (double)(r->n[1] + r->n[3]) * size_of(r);
    }
    return r->op == 0   ? slot_gpu->conv2d(0, &p, &b->v[2], &b->v[0], &b->v[1], NULL)
           : r->op == 1 ? slot_gpu->conv2d_backward_input(0, &p, &b->v[0], &b->v[2], &b->v[1])
                        : slot_gpu->conv2d_backward_weight(0, &p, &b->v[1], NULL, &b->v[2], &b->v[0]);
}
/* N, C, H (= W), O; 1x1, stride 2, channels last: what cuDNN 9.19 puts an engine without tensor cores first for */
static yk_status shortcut_row(bench *b, const row *r)
{
    const yk__conv2d p = {.stride = {2, 2}, .dilation = {1, 1}, .groups = 1};
    int64_t half = (r->n[2] - 1) / 2 + 1;
    if (!b->count) {
        NEW(r->dtype, 4, r->n[0], r->n[1], r->n[2], r->n[2]), NEW(r->dtype, 4, r->n[3], r->n[1], 1, 1);
        NEW(r->dtype, 4, r->n[0], r->n[3], half, half);
        for (int i = 0; i < 3; i++)
            channels_last(&b->v[i]);
        double pixels = (double)(r->n[0] * half * half);
        b->flops = 2 * pixels * (double)r->n[1] * (double)r->n[3];
        b->bytes = pixels * (double)(r->n[1] + r->n[3]) * size_of(r);
    }
    return slot_gpu->conv2d(0, &p, &b->v[2], &b->v[0], &b->v[1], NULL);
}
/* N, C, H (= W), with ReLU, as training has it: where it cuts is told by x (yk__batch_norm.edges). Halves with channels
 * last. op 0: forward; 1: backward; 2: backward with a residual, whose gradient is out's where it was not cut */
static yk_status batch_norm_row(bench *b, const row *r)
{
    yk__batch_norm p = {.momentum = 0.1, .eps = 1e-5, .training = true, .relu = true};
    bool residual = r->op == 2, told = slot_gpu->batch_norm_edges && !residual;
    yk__view *v = b->v;
    if (!b->count) {
        yk_dtype statistic = r->dtype == YK_F64 ? YK_F64 : YK_F32;
        for (int i = 0; i < 5; i++) { /* x, out, gout, gx, gresidual */
            NEW(r->dtype, 4, r->n[0], r->n[1], r->n[2], r->n[2]);
            if (r->dtype != YK_F32)
                channels_last(&v[i]);
        }
        for (int i = 0; i < 6; i++) /* weight, bias, mean, invstd, gweight, gbias */
            NEW(statistic, 1, r->n[1]);
        NEW(YK_F64, 2, r->n[1], 2);
        p.edges = told ? v[11].data : NULL;
        if (!b->failed && r->op) /* the results that backward reads */
            b->failed = slot_gpu->batch_norm(0, &p, &v[1], &v[7], &v[8], &v[0], residual ? &v[2] : NULL, &v[5], &v[6],
                                             NULL, NULL) != YK_OK;
        double maps = r->op ? residual ? 5 : told ? 3 : 4 : 2;
        b->bytes = maps * (double)(r->n[0] * r->n[1] * r->n[2] * r->n[2]) * size_of(r);
    }
    p.edges = told ? v[11].data : NULL;
    return r->op ? slot_gpu->batch_norm_backward(0, &p, &v[3], residual ? &v[4] : NULL, &v[9], &v[10], &v[2], NULL,
                                                 &v[0], told ? NULL : &v[1], &v[5], &v[7], &v[8])
                 : slot_gpu->batch_norm(0, &p, &v[1], &v[7], &v[8], &v[0], NULL, &v[5], &v[6], NULL, NULL);
}
static yk_status layer_norm_row(bench *b, const row *r)
{
    if (!b->count) {
        yk_dtype statistic = r->dtype == YK_F64 ? YK_F64 : YK_F32;
        for (int i = 0; i < 4; i++) /* x, out, gout, gx */
            NEW(r->dtype, 2, r->n[0], r->n[1]);
        for (int i = 0; i < 6; i++) /* weight, bias, gweight, gbias; mean, invstd */
            NEW(statistic, 1, i < 4 ? r->n[1] : r->n[0]);
        b->bytes = (r->op ? 3 : 2) * (double)(r->n[0] * r->n[1]) * size_of(r);
    }
    const yk__view *v = b->v;
    return r->op ? slot_gpu->layer_norm_backward(0, &v[3], &v[6], &v[7], &v[2], &v[0], &v[4], &v[8], &v[9])
                 : slot_gpu->layer_norm(0, 1e-5, &v[1], &v[8], &v[9], &v[0], &v[4], &v[5]);
}
/* N, C, H (= W); 3x3, stride 2. op 0: max, 1: its backward, 2: average over all */
static yk_status pool_row(bench *b, const row *r)
{
    const yk__pool2d p = {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .dilation = {1, 1}};
    int64_t half = (r->n[2] + 1) / 2, to = r->op == 2 ? 1 : half;
    if (!b->count) {
        NEW(r->dtype, 4, r->n[0], r->n[1], r->n[2], r->n[2]), NEW(r->dtype, 4, r->n[0], r->n[1], to, to);
        tensor(b, YK_I32, 4, SHAPE(r->n[0], r->n[1], to, to), (double)(r->n[2] * r->n[2]));
        b->bytes = (double)(r->n[0] * r->n[1]) * (double)(r->n[2] * r->n[2] + to * to) * size_of(r);
    }
    return r->op == 0   ? slot_gpu->max_pool2d(0, &p, &b->v[1], &b->v[2], &b->v[0])
           : r->op == 1 ? slot_gpu->max_pool2d_backward(0, &p, &b->v[0], &b->v[1], &b->v[2])
                        : slot_gpu->adaptive_avg_pool2d(0, &b->v[1], &b->v[0]);
}
static yk_status cross_entropy_row(bench *b, const row *r)
{
    const yk__cross_entropy p = {.ignore_index = -100, .mean = true};
    if (!b->count) {
        NEW(r->dtype, 2, r->n[0], r->n[1]), NEW(r->dtype, 2, r->n[0], r->n[1]);
        tensor(b, YK_I64, 1, SHAPE(r->n[0]), (double)r->n[1]);
        NEW(YK_F32, 0, 1), NEW(YK_F32, 1, r->n[0]), NEW(YK_F32, 0, 1), NEW(YK_F32, 0, 1);
        b->bytes = (1 + r->op) * (double)(r->n[0] * r->n[1]) * size_of(r);
    }
    const yk__view *v = b->v;
    return r->op ? slot_gpu->cross_entropy_backward(0, &p, &v[1], &v[6], &v[0], &v[4], &v[5], &v[2], NULL)
                 : slot_gpu->cross_entropy(0, &p, &v[3], &v[4], &v[5], &v[0], &v[2], NULL);
}
/* V, D, M */
static yk_status embedding_row(bench *b, const row *r)
{
    if (!b->count) {
        NEW(r->dtype, 2, r->n[0], r->n[1]), NEW(r->dtype, 2, r->n[2], r->n[1]);
        tensor(b, YK_I64, 1, SHAPE(r->n[2]), (double)r->n[0]);
        b->bytes = (r->op ? (double)(r->n[0] + r->n[2]) : 2.0 * (double)r->n[2]) * (double)r->n[1] * size_of(r);
    }
    return r->op ? slot_gpu->embedding_backward(0, &b->v[0], &b->v[1], &b->v[2], -1)
                 : slot_gpu->embedding(0, &b->v[1], &b->v[0], &b->v[2]);
}
/* So many parameters in one tensor. */
static yk_status adam_row(bench *b, const row *r)
{
    const yk__adam p = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .decoupled = true, .step = 3};
    if (!b->count) {
        for (int i = 0; i < 4; i++)
            NEW(r->dtype, 1, r->n[0]);
        b->bytes = 7 * (double)r->n[0] * size_of(r);
    }
    return slot_gpu->adam(0, &p, 1, &b->v[0], &b->v[1], &b->v[2], &b->v[3], NULL);
}
static yk_status argsort_row(bench *b, const row *r)
{
    if (!b->count) {
        NEW(r->dtype, 2, r->n[0], r->n[1]), tensor(b, YK_I64, 2, SHAPE(r->n[0], r->n[1]), 1);
        b->bytes = (double)(r->n[0] * r->n[1]) * (size_of(r) + 8);
    }
    return slot_gpu->argsort(0, &b->v[1], &b->v[0], 1, false);
}
static yk_status scan_row(bench *b, const row *r)
{
    if (!b->count) {
        NEW(r->dtype, 2, r->n[0], r->n[1]), NEW(r->dtype, 2, r->n[0], r->n[1]);
        b->bytes = 2 * (double)(r->n[0] * r->n[1]) * size_of(r);
    }
    return slot_gpu->scan(0, YK__CUMSUM, &b->v[1], &b->v[0], (int)r->n[2], false);
}
/* Rows of a table (V, D), M of them. op 0: read, 1: add */
static yk_status index_row(bench *b, const row *r)
{
    if (!b->count) {
        NEW(r->dtype, 2, r->n[0], r->n[1]), NEW(r->dtype, 2, r->n[2], r->n[1]);
        tensor(b, YK_I64, 1, SHAPE(r->n[2]), (double)r->n[0]);
        b->bytes = (2 + r->op) * (double)(r->n[1] * r->n[2]) * size_of(r);
    }
    yk__indices p = {.name = "index", .count = 1};
    yk__view x = b->v[0], index = b->v[2];
    x.shape[0] = r->n[2], x.stride[0] = 0;
    index.ndim = 2, index.shape[1] = r->n[1], index.stride[1] = 0;
    p.of[0].view = index, p.of[0].size = r->n[0], p.of[0].stride = r->n[1];
    return r->op ? slot_gpu->index_put(0, &x, &b->v[1], &p, true) : slot_gpu->index(0, &b->v[1], &x, &p);
}
/* B, H, L (= S), E. op 1: backward */
static yk_status attention_row(bench *b, const row *r)
{
    const yk__attention p = {.scale = 0.125, .causal = true};
    if (!b->count) {
        for (int i = 0; i < 8; i++) /* q k v out, gq gk gv gout */
            NEW(r->dtype, 4, r->n[0], r->n[1], r->n[2], r->n[3]);
        NEW(YK_F32, 3, r->n[0], r->n[1], r->n[2]);
        b->flops = (r->op ? 10.0 : 4.0) * (double)(r->n[0] * r->n[1]) * (double)(r->n[2] * r->n[2]) * (double)r->n[3];
        b->bytes = (r->op ? 8 : 4) * (double)(r->n[0] * r->n[1] * r->n[2] * r->n[3]) * size_of(r);
    }
    const yk__view *v = b->v;
    if (!slot_gpu->attention) {
        b->error = "there is no such slot";
        return YK_ERR_UNSUPPORTED;
    }
    return r->op ? slot_gpu->attention_backward(0, &p, &v[4], &v[5], &v[6], &v[7], &v[0], &v[1], &v[2], NULL, &v[3],
                                                &v[8])
                 : slot_gpu->attention(0, &p, &v[3], &v[8], &v[0], &v[1], &v[2], NULL);
}

/* clang-format off */
enum { MEGA = 1 << 20 };
static const row rows[] = {
    {"launch of one element", binary_row, YK_F32, {1, 1}, YK__MUL},
    {"copy float32 256 MiB", copy_row, YK_F32, {8192, 8192}, 0},
    {"copy float32 transposed", copy_row, YK_F32, {8192, 8192}, 1},
    {"add float32", binary_row, YK_F32, {8192, 8192}, YK__ADD},
    {"add bfloat16", binary_row, YK_BF16, {8192, 8192}, YK__ADD},
    {"add a row float32", binary_row, YK_F32, {8192, 8192, 1}, YK__ADD},
    {"gelu float32", unary_row, YK_F32, {64 * MEGA}, YK__GELU},
    {"gelu bfloat16", unary_row, YK_BF16, {64 * MEGA}, YK__GELU},
    {"dropout float32", dropout_row, YK_F32, {64 * MEGA}, 0},
    {"sum of all float32", reduce_row, YK_F32, {8192, 8192, 2}, YK__SUM},
    {"sum of rows float32", reduce_row, YK_F32, {8192, 8192, 1}, YK__SUM},
    {"sum of columns float32", reduce_row, YK_F32, {8192, 8192, 0}, YK__SUM},
    {"sum of columns bfloat16", reduce_row, YK_BF16, {8192, 8192, 0}, YK__SUM},
    {"variance of rows float32", reduce_row, YK_F32, {8192, 8192, 1}, YK__VAR},
    {"argmax of rows float32", reduce_row, YK_F32, {65536, 1024, 1}, YK__ARGMAX},
    {"softmax float32 32768 x 1024", softmax_row, YK_F32, {32768, 1024}, 0},
    {"softmax float32 512 x 50257", softmax_row, YK_F32, {512, 50257}, 0},
    {"softmax backward float32", softmax_row, YK_F32, {32768, 1024}, 1},
    {"layer_norm float32", layer_norm_row, YK_F32, {32768, 1024}, 0},
    {"layer_norm bfloat16", layer_norm_row, YK_BF16, {32768, 1024}, 0},
    {"layer_norm backward float32", layer_norm_row, YK_F32, {32768, 1024}, 1},
    {"batch_norm float32 128x64x56x56", batch_norm_row, YK_F32, {128, 64, 56}, 0},
    {"batch_norm backward float32", batch_norm_row, YK_F32, {128, 64, 56}, 1},
    {"batch_norm bfloat16 512x64x32x32", batch_norm_row, YK_BF16, {512, 64, 32}, 0},
    {"batch_norm backward bfloat16", batch_norm_row, YK_BF16, {512, 64, 32}, 1},
    {"batch_norm backward bfloat16, residual", batch_norm_row, YK_BF16, {512, 64, 32}, 2},
    {"max_pool2d float32", pool_row, YK_F32, {128, 64, 112}, 0},
    {"max_pool2d backward float32", pool_row, YK_F32, {128, 64, 112}, 1},
    {"adaptive_avg_pool2d float32", pool_row, YK_F32, {2048, 512, 8}, 2},
    {"gemm float32 4096", gemm_row, YK_F32, {4096, 4096, 4096}, 0},
    {"gemm bfloat16 4096", gemm_row, YK_BF16, {4096, 4096, 4096}, 0},
    {"gemm bfloat16 8192", gemm_row, YK_BF16, {8192, 8192, 8192}, 0},
    {"gemm float16 8192", gemm_row, YK_F16, {8192, 8192, 8192}, 0},
    {"gemm float64 4096", gemm_row, YK_F64, {4096, 4096, 4096}, 0},
    {"linear bfloat16 8192x4096x1024", gemm_row, YK_BF16, {8192, 4096, 1024}, 1},
    {"gemm bfloat16 1024x1024x8192", gemm_row, YK_BF16, {1024, 1024, 8192}, 0},
    {"linear bfloat16 1024x1024x8192", gemm_row, YK_BF16, {1024, 1024, 8192}, 1},
    {"linear float32 weight^T", gemm_row, YK_F32, {8192, 1024, 1024}, 2},
    {"weight and bias gradients bfloat16", row_sums_row, YK_BF16, {4096, 1024, 8192}, 0},
    {"weight and bias gradients bfloat16, fused", row_sums_row, YK_BF16, {4096, 1024, 8192}, 1},
    {"conv2d shortcut bfloat16 512x64x32 to 128", shortcut_row, YK_BF16, {512, 64, 32, 128}, 0},
    {"gemm float32 batch of 512 64x64", gemm_row, YK_F32, {64, 64, 64, 512}, 0},
    {"conv2d float32 32x64x32 to 64", conv_row, YK_F32, {32, 64, 32, 64}, 0},
    {"conv2d gradient of input", conv_row, YK_F32, {32, 64, 32, 64}, 1},
    {"conv2d gradient of weight", conv_row, YK_F32, {32, 64, 32, 64}, 2},
    {"conv2d bfloat16 512x64x32 to 64", conv_row, YK_BF16, {512, 64, 32, 64}, 0},
    {"conv2d gradient of input bfloat16", conv_row, YK_BF16, {512, 64, 32, 64}, 1},
    {"conv2d gradient of weight bfloat16", conv_row, YK_BF16, {512, 64, 32, 64}, 2},
    {"attention float32 8x12x1024x64", attention_row, YK_F32, {8, 12, 1024, 64}, 0},
    {"attention backward float32", attention_row, YK_F32, {8, 12, 1024, 64}, 1},
    {"attention bfloat16 8x12x1024x64", attention_row, YK_BF16, {8, 12, 1024, 64}, 0},
    {"attention backward bfloat16", attention_row, YK_BF16, {8, 12, 1024, 64}, 1},
    {"cross_entropy float32 8192x50257", cross_entropy_row, YK_F32, {8192, 50257}, 0},
    {"cross_entropy backward", cross_entropy_row, YK_F32, {8192, 50257}, 1},
    {"embedding float32", embedding_row, YK_F32, {50257, 1024, 65536}, 0},
    {"embedding backward float32", embedding_row, YK_F32, {50257, 1024, 65536}, 1},
    {"adam float32 64 Mi", adam_row, YK_F32, {64 * MEGA}, 0},
    {"index rows float32", index_row, YK_F32, {50257, 1024, 65536}, 0},
    {"index_put add rows float32", index_row, YK_F32, {50257, 1024, 65536}, 1},
    {"argsort float32 one line of 1 Mi", argsort_row, YK_F32, {1, MEGA}, 0},
    {"argsort float32 8192 x 1024", argsort_row, YK_F32, {8192, 1024}, 0},
    {"cumsum float32 rows of 8192", scan_row, YK_F32, {8192, 8192, 1}, 0},
    {"cumsum float32 columns of 8192", scan_row, YK_F32, {8192, 8192, 0}, 0},
};
/* clang-format on */

void gpu_bench_list(void)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        puts(rows[i].name);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds for one call of `count` that are queued and waited for. */
static double timed(bench *b, const row *r, int count)
{
    double start = yk__now();
    for (int i = 0; i < count && !b->failed; i++)
        b->failed = r->call(b, r) != YK_OK;
    b->failed |= slot_gpu->synchronize(0) != YK_OK;
    return (yk__now() - start) / count;
}

int gpu_bench_run(const char *name, bool small)
{
    slot_report report = {0};
    if (!slot_ready(&report)) {
        printf("{\"bench\": \"%s\", \"error\": \"no GPU\"}\n", name);
        return 1;
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        row own = rows[i];
        const row *r = &own;
        if (strcmp(r->name, name) != 0)
            continue;
        for (int d = 0; d < 4 && small; d++)
            own.n[d] = own.n[d] < SMALL ? own.n[d] : SMALL;
        static const double ROUND = 0.05; /* seconds, about */
        static bench b;                   /* large */
        memset(&b, 0, sizeof(b));
        double times[ROUNDS], first = timed(&b, r, 1), once = b.failed || small ? 2 : timed(&b, r, 2);
        int count = once > ROUND ? 1 : once > 1e-4 ? (int)(ROUND / once) : 500, rounds = once > 1 ? 1 : ROUNDS;
        for (int k = 0; k < rounds && !b.failed; k++)
            times[k] = timed(&b, r, count);
        if (b.failed) {
            const yk_error *error = yk_last_error();
            printf("{\"bench\": \"%s\", \"error\": \"", name);
            for (const char *c = b.error ? b.error : error ? error->message : "failed"; *c; c++)
                putchar(*c == '"' || *c == '\\' || (unsigned char)*c < ' ' ? '\'' : *c);
            puts("\"}");
            return 1;
        }
        qsort(times, (size_t)rounds, sizeof(*times), by_value);
        double median = times[rounds / 2];
        char described[1000];
        slot_describe(described, sizeof(described));
        printf(
            "{\"bench\": \"%s\", \"microseconds\": %.2f, \"least\": %.2f, \"first\": %.0f, \"gigabytes_per_second\": "
            "%.1f, \"teraflops\": %.2f, \"libraries\": \"%s\"}\n",
            name, median * 1e6, times[0] * 1e6, first * 1e6, b.bytes / median * 1e-9, b.flops / median * 1e-12,
            described);
        for (int k = 0; k < b.count; k++)
            slot_gpu->release(0, b.v[k].data, (size_t)b.reserved[k]);
        return 0;
    }
    fprintf(stderr, "gpu_cases: there is no bench '%s'\n", name);
    return 2;
}
