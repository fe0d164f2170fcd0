/*
 * attention.cu - the slots attention and attention_backward. Layer: device/cuda.
 *
 * Both are made of matrix products (the slot gemm, so of cuBLASLt's where it is there) around a pass over the scores,
 * which a workspace holds for as many heads at a time as MOST_SCORES allows. A warp takes a row of scores. Backward
 * makes the probabilities anew from the scores and from the logarithm of their sum that forward kept; the sum of the
 * row's gradients times its probabilities is taken from the row itself.
 *
 * Note [Attention of halves]
 * All products have factors of halves, for tensor cores: scores and gradients of probabilities come of them in f32, as
 * they were added up; probabilities, and gradients of scores, are rounded to the half that the next product takes. That
 * is what the fused kernels that PyTorch calls round, too. A row of scores begins at a multiple of 8 elements, so that
 * the library's fast algorithms take any number of keys.
 *
 * A product takes matrices that lie evenly. Heads that were split off a row of features do so within one batch alone,
 * (L, H, E) in memory: where a product takes more than one batch, they are copied to where they lie evenly, which moves
 * less than the scores do.
 */
#include "device/cuda/walk.h"

#include "device/cuda/exponential.h"
#include "device/cuda/libraries.h"
#include "device/cuda/sums.h"

enum { THREADS = WALK_THREADS, ROWS = THREADS / LANES };
static const int64_t MOST_SCORES = (int64_t)1 << 26;

/* Heads [first, first + count), counted over the batch. */
typedef struct score_job {
    void *scores, *gradients; /* (count, queries, keys), of f32 or f64, a row every `pitch` elements */
    void *factor;             /* the same, of q's dtype: what a kernel makes for the next product */
    yk__view lse, mask;       /* (batch, heads, queries), dense; (batch, heads, queries, keys) */
    bool has_mask, causal;
    int64_t first, count, heads, queries, keys, pitch;
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

/* Scores become probabilities, in `factor`; lse is written. */
template <typename E> YK__KERNEL(THREADS) probability_kernel(score_job j)
{
    typedef typename E::number number;
    typedef typename E::stored stored;
    int lane = (int)threadIdx.x % LANES;
    yk__global<number> scores(static_cast<number *>(j.scores));
    yk__global<stored> factor(static_cast<stored *>(j.factor));
    EACH_ROW(row, j)
    {
        score_row r = row_of(j, row);
        yk__global<number> own = scores + row * j.pitch;
        yk__global<stored> made = factor + row * j.pitch;
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
        YK__LOOP for (int64_t i = lane; i < j.keys; i += LANES) made[i] =
            E::store(none ? (number)0 : exponential(score<E>(j, r, i, own[i]) - top) * share);
        if (lane == 0)
            put<typename E::statistic>(j.lse, r.lse, none ? (number)-INFINITY : (number)((double)top + log(sum)));
    }
}

/* Scores become probabilities, by lse, in their place and in `factor`, which may be one. */
template <typename E> YK__KERNEL(THREADS) again_kernel(score_job j)
{
    typedef typename E::number number;
    typedef typename E::stored stored;
    int lane = (int)threadIdx.x % LANES;
    yk__global<number> scores(static_cast<number *>(j.scores));
    yk__global<stored> factor(static_cast<stored *>(j.factor));
    EACH_ROW(row, j)
    {
        score_row r = row_of(j, row);
        yk__global<number> own = scores + row * j.pitch;
        yk__global<stored> made = factor + row * j.pitch;
        number lse = get<typename E::statistic>(j.lse, r.lse);
        YK__LOOP for (int64_t i = lane; i < j.keys; i += LANES)
        {
            number p = lse == -INFINITY ? (number)0 : exponential(score<E>(j, r, i, own[i]) - lse);
            own[i] = p;
            if (j.factor != j.scores)
                made[i] = E::store(p);
        }
    }
}

/* Gradients of the probabilities become those of the unscaled scores, in `factor`. */
template <typename E> YK__KERNEL(THREADS) gradient_kernel(score_job j)
{
    typedef typename E::number number;
    typedef typename E::stored stored;
    int lane = (int)threadIdx.x % LANES;
    yk__global<const number> gradients(static_cast<const number *>(j.gradients));
    yk__global<const number> scores(static_cast<const number *>(j.scores));
    yk__global<stored> factor(static_cast<stored *>(j.factor));
    EACH_ROW(row, j)
    {
        yk__global<const number> own = gradients + row * j.pitch, p = scores + row * j.pitch;
        yk__global<stored> made = factor + row * j.pitch;
        double sum = 0;
        YK__LOOP for (int64_t i = lane; i < j.keys; i += LANES) sum += (double)own[i] * (double)p[i];
        number all = (number)warp_sum(sum);
        YK__LOOP for (int64_t i = lane; i < j.keys; i += LANES) made[i] =
            E::store(p[i] * (own[i] - all) * (number)j.scale);
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

/* The job's scores, or what lies like them, as matrices for gemm. */
static yk__view score_matrices(const score_job *j, void *data, yk_dtype dtype, bool transposed)
{
    yk__view m;
    memset(&m, 0, sizeof(m));
    m.data = data, m.dtype = dtype, m.ndim = 3;
    m.shape[0] = j->count, m.stride[0] = j->queries * j->pitch;
    m.shape[1] = transposed ? j->keys : j->queries, m.stride[1] = transposed ? 1 : j->pitch;
    m.shape[2] = transposed ? j->queries : j->keys, m.stride[2] = transposed ? j->pitch : 1;
    return m;
}

/* Whether the heads of several batches lie evenly, so that one product takes them all. */
static bool is_even(const yk__view *v)
{
    return v->shape[0] == 1 || v->shape[1] == 1 || v->stride[0] == v->shape[1] * v->stride[1];
}

/* An operand of the slot: itself, or the dense copy that products take in its place. */
struct operand {
    const yk__view *own;
    yk__view taken;
    yk__storage *memory;
    bool written;
};

/* `others`: a product takes heads of several batches. */
static yk_status operand_take(operand *o, int device, const yk__view *own, bool others, bool written)
{
    yk_device where = {YK_CUDA, (int16_t)device};
    int64_t count = own->shape[0] * own->shape[1] * own->shape[2] * own->shape[3];
    o->own = own, o->taken = *own, o->written = written, o->memory = NULL;
    if (!others || is_even(own) || count == 0)
        return YK_OK;
    for (int64_t d = 3, step = 1; d >= 0; step *= own->shape[d--])
        o->taken.stride[d] = step;
    o->taken.data = cuda_yoke->workspace_get(where, (size_t)count * yk__size_of(own->dtype), &o->memory);
    if (!o->taken.data)
        return YK_ERR_MEMORY;
    return written ? YK_OK : cuda_copy(device, &o->taken, own);
}

/* All of them; what was written is copied to where it belongs, unless something failed. */
static yk_status operands_give(operand *all, int count, int device, yk_status status)
{
    for (int i = 0; i < count; i++) {
        if (!all[i].memory)
            continue;
        if (!status && all[i].written)
            status = cuda_copy(device, all[i].own, &all[i].taken);
        cuda_yoke->storage_release(all[i].memory); /* for those behind on the device's queue */
    }
    return status;
}

/* How many elements lie from a row of scores to the next: Note [Attention of halves]. */
static int64_t pitch_of(int64_t keys)
{
    enum { STEP = 8 };
    return (keys + STEP - 1) / STEP * STEP;
}

static score_job job_of(const yk__attention *p, const yk__view *q, const yk__view *k, const yk__view *mask,
                        const yk__view *lse)
{
    score_job j;
    memset(&j, 0, sizeof(j));
    j.lse = *lse, j.has_mask = mask != NULL, j.causal = p->causal, j.scale = p->scale;
    if (mask)
        j.mask = *mask;
    j.heads = q->shape[1], j.queries = q->shape[2], j.keys = k->shape[2], j.pitch = pitch_of(j.keys);
    return j;
}

static unsigned row_blocks(int device, const score_job *j)
{
    return walk_rows(device, (j->count * j->queries + ROWS - 1) / ROWS);
}

/* How many of `all` heads a chunk takes. */
static int64_t chunk_of(const score_job *j, int64_t all)
{
    int64_t scores = j->queries * j->pitch, most = scores > 0 ? MOST_SCORES / scores : all;
    most = most < 1 ? 1 : most;
    return most < all ? most : all;
}

/* The next chunk's heads, which end with a batch where no more than one batch's are taken at a time. */
static int64_t heads_from(const score_job *j, int64_t first, int64_t chunk, int64_t all)
{
    int64_t to = first + chunk < all ? first + chunk : all, end = (first / j->heads + 1) * j->heads;
    return (chunk > j->heads || to < end ? to : end) - first;
}

/* Memory for the scores, and, where they have another dtype than q, for `factor`; backward for the gradients, too. */
static yk_status workspace_take(score_job *j, int device, yk_dtype dtype, int64_t chunk, bool backward,
                                yk__storage **memory)
{
    yk_device where = {YK_CUDA, (int16_t)device};
    bool half = dtype == YK_F16 || dtype == YK_BF16;
    size_t count = (size_t)(chunk * j->queries * j->pitch + 1), size = dtype == YK_F64 ? sizeof(double) : sizeof(float);
    size_t bytes = (count * size + CUDA_MALLOC_ALIGNMENT - 1) / CUDA_MALLOC_ALIGNMENT * CUDA_MALLOC_ALIGNMENT;
    size_t scores = bytes * (backward ? 2 : 1);
    char *data =
        static_cast<char *>(cuda_yoke->workspace_get(where, scores + (half ? count * yk__size_of(dtype) : 0), memory));
    if (!data)
        return YK_ERR_MEMORY;
    j->scores = data;
    j->gradients = backward ? data + bytes : NULL;
    j->factor = half ? data + scores : data;
    return YK_OK;
}

yk_status cuda_attention(int device, const yk__attention *p, const yk__view *out, const yk__view *lse,
                         const yk__view *q, const yk__view *k, const yk__view *v, const yk__view *mask)
{
    enum { OUT, Q, K, V, COUNT };
    const yk__view *views[COUNT] = {out, q, k, v};
    score_job j = job_of(p, q, k, mask, lse);
    int64_t all = q->shape[0] * j.heads, chunk = chunk_of(&j, all);
    yk_dtype dtype = q->dtype, wide = dtype == YK_F64 ? YK_F64 : YK_F32;
    operand of[COUNT] = {};
    cudaStream_t stream = NULL;
    yk__storage *memory = NULL;
    yk_status status = cuda_use(device, &stream);
    if (status || all * j.queries == 0)
        return status;
    status = workspace_take(&j, device, dtype, chunk, false, &memory);
    for (int i = 0; i < COUNT && !status; i++)
        status = operand_take(&of[i], device, views[i], chunk > j.heads, i == OUT);
    for (int64_t first = 0; first < all && !status; first += j.count) {
        j.first = first;
        j.count = heads_from(&j, first, chunk, all);
        yk__view queries = matrices(&of[Q].taken, first, j.count, false);
        yk__view keys = matrices(&of[K].taken, first, j.count, true);
        yk__view values = matrices(&of[V].taken, first, j.count, false);
        yk__view results = matrices(&of[OUT].taken, first, j.count, false);
        yk__view scores = score_matrices(&j, j.scores, wide, false),
                 shares = score_matrices(&j, j.factor, dtype, false);
        status = cuda_gemm(device, &scores, &queries, &keys, NULL, false);
        if (status)
            break;
#define PROBABILITY(E) YK__LAUNCH("attention", probability_kernel<E>, row_blocks(device, &j), THREADS, 0, stream, j)
        FLOATING(dtype, PROBABILITY);
        status = cuda_gemm(device, &results, &shares, &values, NULL, false);
    }
    status = operands_give(of, COUNT, device, status);
    if (memory)
        cuda_yoke->storage_release(memory); /* for those behind on the device's queue */
    return status ? status : cuda_launched(device, "attention", COUNT, views);
}

yk_status cuda_attention_backward(int device, const yk__attention *p, const yk__view *gq, const yk__view *gk,
                                  const yk__view *gv, const yk__view *gout, const yk__view *q, const yk__view *k,
                                  const yk__view *v, const yk__view *mask, const yk__view *out, const yk__view *lse)
{
    enum { GQ, GK, GV, GOUT, Q, K, V, COUNT };
    const yk__view *views[COUNT] = {gq, gk, gv, gout, q, k, v};
    score_job j = job_of(p, q, k, mask, lse);
    int64_t all = q->shape[0] * j.heads, chunk = chunk_of(&j, all);
    yk_dtype dtype = q->dtype, wide = dtype == YK_F64 ? YK_F64 : YK_F32;
    operand of[COUNT] = {};
    (void)out;
    cudaStream_t stream = NULL;
    yk__storage *memory = NULL;
    yk_status status = cuda_use(device, &stream);
    if (status || all == 0)
        return status;
    status = workspace_take(&j, device, dtype, chunk, true, &memory);
    for (int i = 0; i < COUNT && !status; i++)
        status = operand_take(&of[i], device, views[i], chunk > j.heads, i <= GV);
    void *factor = j.factor, *made = factor == j.scores ? j.gradients : factor;
    for (int64_t first = 0; first < all && !status; first += j.count) {
        j.first = first;
        j.count = heads_from(&j, first, chunk, all);
        yk__view queries = matrices(&of[Q].taken, first, j.count, false);
        yk__view keys = matrices(&of[K].taken, first, j.count, false);
        yk__view keys_t = matrices(&of[K].taken, first, j.count, true);
        yk__view values_t = matrices(&of[V].taken, first, j.count, true);
        yk__view given = matrices(&of[GOUT].taken, first, j.count, false);
        yk__view to_q = matrices(&of[GQ].taken, first, j.count, false);
        yk__view to_k = matrices(&of[GK].taken, first, j.count, false);
        yk__view to_v = matrices(&of[GV].taken, first, j.count, false);
        yk__view scores = score_matrices(&j, j.scores, wide, false);
        yk__view gradients = score_matrices(&j, j.gradients, wide, false);
        yk__view shares_t = score_matrices(&j, factor, dtype, true);
        yk__view made_of = score_matrices(&j, made, dtype, false), made_t = score_matrices(&j, made, dtype, true);
        status = cuda_gemm(device, &scores, &queries, &keys_t, NULL, false);
#define AGAIN(E)    YK__LAUNCH("attention_backward", again_kernel<E>, row_blocks(device, &j), THREADS, 0, stream, j)
#define GRADIENT(E) YK__LAUNCH("attention_backward", gradient_kernel<E>, row_blocks(device, &j), THREADS, 0, stream, j)
        j.factor = factor;
        if (!status)
            FLOATING(dtype, AGAIN);
        if (!status)
            status = cuda_gemm(device, &to_v, &shares_t, &given, NULL, false);
        if (!status)
            status = cuda_gemm(device, &gradients, &given, &values_t, NULL, false);
        j.factor = made; /* the product has read what was there */
        if (!status)
            FLOATING(dtype, GRADIENT);
        if (!status)
            status = cuda_gemm(device, &to_q, &made_of, &keys, NULL, false);
        if (!status)
            status = cuda_gemm(device, &to_k, &made_t, &queries, NULL, false);
    }
    status = operands_give(of, COUNT, device, status);
    if (memory)
        cuda_yoke->storage_release(memory); /* for those behind on the device's queue */
    return status ? status : cuda_launched(device, "attention_backward", COUNT, views);
}
