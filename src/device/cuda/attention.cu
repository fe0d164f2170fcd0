/*
 * attention.cu - the slots attention and attention_backward. Layer: device/cuda.
 *
 * Both are made of matrix products (the slot gemm, so of cuBLASLt's where it is there) around a pass over the scores,
 * which a workspace holds for as many heads at a time as MOST_SCORES allows. A warp takes a row of scores. Backward
 * makes the probabilities anew from the scores and from the logarithm of their sum that forward kept; the sum of the
 * row's gradients times its probabilities is taken from the row itself.
 */
#include "device/cuda/walk.h"

#include "device/cuda/exponential.h"
#include "device/cuda/sums.h"

enum { THREADS = WALK_THREADS, ROWS = THREADS / LANES };
static const int64_t MOST_SCORES = (int64_t)1 << 26;

/* Heads [first, first + count), counted over the batch. */
typedef struct score_job {
    void *scores, *gradients; /* (count, queries, keys) */
    yk__view lse, mask;       /* (batch, heads, queries), dense; (batch, heads, queries, keys) */
    bool has_mask, causal;
    int64_t first, count, heads, queries, keys;
    double scale;
} score_job;

/* Of query row `row` of the job: its head and its number there. */
struct score_row {
    int64_t batch, head, query, lse;
};
static YK__DEVICE score_row row_of(const score_job &j, int64_t row)
{
    score_row r;
    int64_t head = j.first + row / j.queries;
    r.batch = head / j.heads;
    r.head = head % j.heads;
    r.query = row % j.queries;
    r.lse = head * j.queries + r.query;
    return r;
}

/* The scaled score with its mask; -infinity where the query may not look at the key. */
template <typename E>
static YK__DEVICE typename E::number score(const score_job &j, const score_row &r, int64_t key, typename E::number x)
{
    typedef typename E::number number;
    if (j.causal && key > r.query)
        return -INFINITY;
    x *= (number)j.scale;
    if (!j.has_mask)
        return x;
    int64_t at =
        r.batch * j.mask.stride[0] + r.head * j.mask.stride[1] + r.query * j.mask.stride[2] + key * j.mask.stride[3];
    if (j.mask.dtype == YK_BOOL)
        return get<element_bool>(j.mask, at) ? x : (number)-INFINITY;
    return x + get<E>(j.mask, at);
}

#define EACH_ROW(row, j)                                                                                               \
    YK__LOOP for (int64_t row = (int64_t)ROWS * blockIdx.x + threadIdx.x / LANES; row < (j).count * (j).queries;       \
                  row += (int64_t)ROWS * gridDim.x)

/* Scores become probabilities; lse is written. */
template <typename E> YK__KERNEL(THREADS) probability_kernel(score_job j)
{
    typedef typename E::number number;
    int lane = (int)threadIdx.x % LANES;
    yk__global<number> scores(static_cast<number *>(j.scores));
    EACH_ROW(row, j)
    {
        score_row r = row_of(j, row);
        yk__global<number> own = scores + row * j.keys;
        number top = -INFINITY;
        YK__LOOP for (int64_t i = lane; i < j.keys; i += LANES)
        {
            number x = score<E>(j, r, i, own[i]);
            top = top != top || top > x ? top : x;
        }
        top = warp_max(top);
        bool none = top == -INFINITY; /* the query may look at no key */
        double sum = 0;
        YK__LOOP for (int64_t i = lane; i < j.keys && !none; i += LANES) sum +=
            (double)exponential(score<E>(j, r, i, own[i]) - top);
        sum = warp_sum(sum);
        number share = none ? 0 : (number)(1.0 / sum);
        YK__LOOP for (int64_t i = lane; i < j.keys; i += LANES) own[i] =
            none ? 0 : exponential(score<E>(j, r, i, own[i]) - top) * share;
        if (lane == 0)
            put<E>(j.lse, r.lse, none ? (number)-INFINITY : (number)((double)top + log(sum)));
    }
}

/* Scores become probabilities, by lse. */
template <typename E> YK__KERNEL(THREADS) again_kernel(score_job j)
{
    typedef typename E::number number;
    int lane = (int)threadIdx.x % LANES;
    yk__global<number> scores(static_cast<number *>(j.scores));
    EACH_ROW(row, j)
    {
        score_row r = row_of(j, row);
        yk__global<number> own = scores + row * j.keys;
        number lse = get<E>(j.lse, r.lse);
        YK__LOOP for (int64_t i = lane; i < j.keys; i += LANES) own[i] =
            lse == -INFINITY ? 0 : exponential(score<E>(j, r, i, own[i]) - lse);
    }
}

/* Gradients of the probabilities become those of the unscaled scores. */
template <typename E> YK__KERNEL(THREADS) gradient_kernel(score_job j)
{
    typedef typename E::number number;
    int lane = (int)threadIdx.x % LANES;
    yk__global<number> gradients(static_cast<number *>(j.gradients));
    yk__global<const number> scores(static_cast<const number *>(j.scores));
    EACH_ROW(row, j)
    {
        yk__global<number> own = gradients + row * j.keys;
        yk__global<const number> p = scores + row * j.keys;
        double sum = 0;
        YK__LOOP for (int64_t i = lane; i < j.keys; i += LANES) sum += (double)own[i] * (double)p[i];
        number all = (number)warp_sum(sum);
        YK__LOOP for (int64_t i = lane; i < j.keys; i += LANES) own[i] = p[i] * (own[i] - all) * (number)j.scale;
    }
}

/* Heads [first, first + count) of v (batch, heads, rows, columns), which lie evenly, as matrices for gemm. */
static yk__view matrices(const yk__view *v, int64_t first, int64_t count, bool transposed)
{
    yk__view m;
    memset(&m, 0, sizeof(m));
    int64_t batch = first / v->shape[1], head = first % v->shape[1];
    m.data =
        static_cast<char *>(v->data) + (batch * v->stride[0] + head * v->stride[1]) * (int64_t)yk__size_of(v->dtype);
    m.dtype = v->dtype, m.ndim = 3;
    m.shape[0] = count, m.stride[0] = v->shape[1] == 1 ? v->stride[0] : v->stride[1];
    for (int d = 0; d < 2; d++) {
        m.shape[1 + d] = v->shape[transposed ? 3 - d : 2 + d];
        m.stride[1 + d] = v->stride[transposed ? 3 - d : 2 + d];
    }
    return m;
}

/* A workspace of scores, (batches, rows, columns) dense, or its matrices transposed. */
static yk__view dense(void *data, yk_dtype dtype, int64_t batches, int64_t rows, int64_t columns, bool transposed)
{
    yk__view m;
    memset(&m, 0, sizeof(m));
    m.data = data, m.dtype = dtype, m.ndim = 3;
    m.shape[0] = batches, m.stride[0] = rows * columns;
    m.shape[1] = transposed ? columns : rows, m.stride[1] = transposed ? 1 : columns;
    m.shape[2] = transposed ? rows : columns, m.stride[2] = transposed ? columns : 1;
    return m;
}

/* Whether the heads of several batches lie evenly, so that one product takes them all. */
static bool is_even(const yk__view *v)
{
    return v->shape[0] == 1 || v->shape[1] == 1 || v->stride[0] == v->shape[1] * v->stride[1];
}

static score_job job_of(const yk__attention *p, const yk__view *q, const yk__view *k, const yk__view *mask,
                        const yk__view *lse)
{
    score_job j;
    memset(&j, 0, sizeof(j));
    j.lse = *lse, j.has_mask = mask != NULL, j.causal = p->causal, j.scale = p->scale;
    if (mask)
        j.mask = *mask;
    j.heads = q->shape[1], j.queries = q->shape[2], j.keys = k->shape[2];
    return j;
}

static unsigned row_blocks(int device, const score_job *j)
{
    return walk_rows(device, (j->count * j->queries + ROWS - 1) / ROWS);
}

/* How many heads a chunk takes: within one batch, where `views` are not all even. */
static int64_t chunk_of(const score_job *j, const yk__view *const *views, int count)
{
    int64_t scores = j->queries * j->keys, most = scores > 0 ? MOST_SCORES / scores : MOST_SCORES;
    bool even = true;
    for (int i = 0; i < count; i++)
        even &= is_even(views[i]);
    most = most < 1 ? 1 : most;
    return even || most < j->heads ? most : j->heads;
}

/* The next chunk's heads, which end with a batch where they cannot go beyond it. */
static int64_t heads_from(const score_job *j, int64_t first, int64_t chunk, int64_t all, bool even)
{
    int64_t to = first + chunk < all ? first + chunk : all, end = (first / j->heads + 1) * j->heads;
    return (even || to < end ? to : end) - first;
}

#define BY_DTYPE(dtype, CALL)                                                                                          \
    do {                                                                                                               \
        if ((dtype) == YK_F64)                                                                                         \
            CALL(element_f64);                                                                                         \
        else                                                                                                           \
            CALL(element_f32);                                                                                         \
    } while (0)

yk_status cuda_attention(int device, const yk__attention *p, const yk__view *out, const yk__view *lse,
                         const yk__view *q, const yk__view *k, const yk__view *v, const yk__view *mask)
{
    const yk__view *views[] = {out, q, k, v};
    score_job j = job_of(p, q, k, mask, lse);
    int64_t all = q->shape[0] * j.heads, chunk = chunk_of(&j, views, 4);
    bool even = is_even(out) && is_even(q) && is_even(k) && is_even(v);
    chunk = chunk < all ? chunk : all;
    cudaStream_t stream = NULL;
    yk__storage *memory = NULL;
    yk_device where = {YK_CUDA, (int16_t)device};
    yk_status status = cuda_use(device, &stream);
    if (status || all * j.queries == 0)
        return status;
    size_t bytes = (size_t)(chunk * j.queries * j.keys + 1) * yk__size_of(q->dtype);
    j.scores = cuda_yoke->workspace_get(where, bytes, &memory);
    if (!j.scores)
        return YK_ERR_MEMORY;
    for (int64_t first = 0; first < all && !status; first += j.count) {
        j.first = first;
        j.count = heads_from(&j, first, chunk, all, even);
        yk__view queries = matrices(q, first, j.count, false), keys = matrices(k, first, j.count, true);
        yk__view values = matrices(v, first, j.count, false), results = matrices(out, first, j.count, false);
        yk__view scores = dense(j.scores, q->dtype, j.count, j.queries, j.keys, false);
        status = cuda_gemm(device, &scores, &queries, &keys, NULL, false);
        if (status)
            break;
#define PROBABILITY(E) YK__LAUNCH("attention", probability_kernel<E>, row_blocks(device, &j), THREADS, 0, stream, j)
        BY_DTYPE(q->dtype, PROBABILITY);
        status = cuda_gemm(device, &results, &scores, &values, NULL, false);
    }
    cuda_yoke->storage_release(memory); /* for those behind on the device's queue */
    return status ? status : cuda_launched(device, "attention", 4, views);
}

yk_status cuda_attention_backward(int device, const yk__attention *p, const yk__view *gq, const yk__view *gk,
                                  const yk__view *gv, const yk__view *gout, const yk__view *q, const yk__view *k,
                                  const yk__view *v, const yk__view *mask, const yk__view *out, const yk__view *lse)
{
    const yk__view *views[] = {gq, gk, gv, gout, q, k, v};
    score_job j = job_of(p, q, k, mask, lse);
    int64_t all = q->shape[0] * j.heads, chunk = chunk_of(&j, views, 7);
    bool even = true;
    for (int i = 0; i < 7; i++)
        even &= is_even(views[i]);
    chunk = chunk < all ? chunk : all;
    (void)out;
    cudaStream_t stream = NULL;
    yk__storage *memory = NULL;
    yk_device where = {YK_CUDA, (int16_t)device};
    yk_status status = cuda_use(device, &stream);
    if (status || all == 0)
        return status;
    size_t size = yk__size_of(q->dtype), bytes = (size_t)(chunk * j.queries * j.keys + 1) * size;
    bytes = (bytes + 255) / 256 * 256;
    j.scores = cuda_yoke->workspace_get(where, 2 * bytes, &memory);
    if (!j.scores)
        return YK_ERR_MEMORY;
    j.gradients = static_cast<char *>(j.scores) + bytes;
    for (int64_t first = 0; first < all && !status; first += j.count) {
        j.first = first;
        j.count = heads_from(&j, first, chunk, all, even);
        yk__view queries = matrices(q, first, j.count, false), keys = matrices(k, first, j.count, false);
        yk__view keys_t = matrices(k, first, j.count, true), values_t = matrices(v, first, j.count, true);
        yk__view given = matrices(gout, first, j.count, false), to_v = matrices(gv, first, j.count, false);
        yk__view to_q = matrices(gq, first, j.count, false), to_k = matrices(gk, first, j.count, false);
        yk__view scores = dense(j.scores, q->dtype, j.count, j.queries, j.keys, false);
        yk__view scores_t = dense(j.scores, q->dtype, j.count, j.queries, j.keys, true);
        yk__view gradients = dense(j.gradients, q->dtype, j.count, j.queries, j.keys, false);
        yk__view gradients_t = dense(j.gradients, q->dtype, j.count, j.queries, j.keys, true);
        status = cuda_gemm(device, &scores, &queries, &keys_t, NULL, false);
#define AGAIN(E)    YK__LAUNCH("attention_backward", again_kernel<E>, row_blocks(device, &j), THREADS, 0, stream, j)
#define GRADIENT(E) YK__LAUNCH("attention_backward", gradient_kernel<E>, row_blocks(device, &j), THREADS, 0, stream, j)
        if (!status)
            BY_DTYPE(q->dtype, AGAIN);
        if (!status)
            status = cuda_gemm(device, &to_v, &scores_t, &given, NULL, false);
        if (!status)
            status = cuda_gemm(device, &gradients, &given, &values_t, NULL, false);
        if (!status)
            BY_DTYPE(q->dtype, GRADIENT);
        if (!status)
            status = cuda_gemm(device, &to_q, &gradients, &keys, NULL, false);
        if (!status)
            status = cuda_gemm(device, &to_k, &gradients_t, &queries, NULL, false);
    }
    cuda_yoke->storage_release(memory); /* for those behind on the device's queue */
    return status ? status : cuda_launched(device, "attention_backward", 7, views);
}
