/*
 * attention.cu - the slots attention and attention_backward. Layer: device/cuda.
 *
 * What cuDNN's fused kernels take (dnn_attention.c) they compute, without scores in memory. All else is made here: both
 * are made of matrix products (the slot gemm, so of cuBLASLt's where it is there) around a pass over the scores, which
 * a workspace holds for as many heads at a time as MOST_SCORES allows. A warp takes a row of up to 1,024 scores, a
 * block one of up to 4,096 (f64: half as many), and holds it (rows.h), so that it is read once; of a longer one a block
 * reads the scores again. Backward makes the probabilities anew from the scores and from the logarithm of their sum
 * that forward kept; the sum of the row's gradients times its probabilities is taken from the row itself.
 *
 * Note [Attention of halves]
 * All products have factors of halves, for tensor cores: scores and gradients of probabilities come of them in f32, as
 * they were added up; probabilities, and gradients of scores, are rounded to the half that the next product takes. That
 * is what the fused kernels that PyTorch calls round, too. They lie where their row's scores lay, from its beginning. A
 * row of scores begins at a multiple of 8 elements, so that the library's fast algorithms take any number of keys, and
 * has room for whole packs: those of any number of keys are read and written at once. The numbers after the last key
 * nobody has written, or it is of an operation before: it may be NaN, and is no part of a sum.
 *
 * A product takes matrices that lie evenly. Heads that were split off a row of features do so within one batch alone,
 * (L, H, E) in memory: where a product takes more than one batch, they are copied to where they lie evenly, which moves
 * less than the scores do.
 */
#include "device/cuda/rows.h"

#include "device/cuda/libraries.h"
#include "device/cuda/powers.h"

enum { THREADS = WALK_THREADS, ROWS = THREADS / LANES, AT_ONCE = 4 };
static const int64_t MOST_SCORES = (int64_t)1 << 26;

/* Heads [first, first + count), counted over the batch. */
typedef struct score_job {
    void *scores, *gradients; /* (count, queries, keys), of f32 or f64, a row every `pitch` elements */
    yk__view lse, mask;       /* (batch, heads, queries), dense; (batch, heads, queries, keys) */
    bool has_mask, causal;
    bool mask_packs; /* packs of all of the mask's rows can be read at once */
    int64_t first, count, heads, queries, keys, pitch;
    double scale;
} score_job;

/* The position of a query row of the job: its batch, head and number there, and its element of lse. */
struct score_row {
    int64_t batch, head, query, lse;
};
/* a / b, and the rest. Most numbers have 32 bits: such a division takes a fifth of the time. */
static YK__DEVICE int64_t divided(int64_t a, int64_t b, int64_t *rest)
{
    int64_t quotient = (uint64_t)(a | b) <= UINT32_MAX ? (uint32_t)a / (uint32_t)b : a / b;
    *rest = a - quotient * b;
    return quotient;
}
static YK__DEVICE score_row row_of(const score_job &j, int64_t row)
{
    score_row r;
    int64_t head = j.first + divided(row, j.queries, &r.query);
    r.batch = divided(head, j.heads, &r.head);
    r.lse = head * j.queries + r.query;
    return r;
}

/* A score with its element of the mask, which is M's. */
template <typename M> struct masked {
    template <typename number> static YK__DEVICE number of(number x, typename M::stored mask)
    {
        return x + M::load(mask);
    }
};
template <> struct masked<element_bool> {
    template <typename number> static YK__DEVICE number of(number x, uint8_t mask)
    {
        return mask ? x : (number)-INFINITY;
    }
};

/* The last key that the query may look at, but for the mask. */
static YK__DEVICE int64_t last_key(const score_job &j, const score_row &r)
{
    return j.causal && r.query < j.keys ? r.query : j.keys - 1;
}

/* The query's element of the mask for key 0. */
static YK__DEVICE int64_t mask_at(const score_job &j, const score_row &r)
{
    return r.batch * j.mask.stride[0] + r.head * j.mask.stride[1] + r.query * j.mask.stride[2];
}

#define EACH_ROW(row, j, team)                                                                                         \
    YK__LOOP for (int64_t row = (int64_t)(THREADS / (team)) * blockIdx.x + threadIdx.x / (team);                       \
                  row < (j).count * (j).queries; row += (int64_t)(THREADS / (team)) * gridDim.x)

/* A row of scores in memory; its results are stored there, too. */
template <typename E> static YK__DEVICE char *row_at(const score_job &j, void *scores, int64_t row)
{
    return static_cast<char *>(scores) + row * j.pitch * (int64_t)sizeof(typename E::number);
}
template <typename E, typename Row>
static YK__DEVICE void load_row(const score_job &j, void *scores, int64_t row, Row *to)
{
    to->load(row_at<E>(j, scores, row), sizeof(typename E::number), j.keys, 0);
}
/* Stores the row as elements of E. Narrower ones are written over numbers that other threads of the team hold by now:
 * where the team is a block, the sum over the row has a barrier in between. */
template <typename E, bool PACKED, int TEAM, int HELD>
static YK__DEVICE void store_row(const score_job &j, void *scores, int64_t row,
                                 const held_row<typename E::statistic, PACKED, TEAM, HELD> &from)
{
    typedef held_row<E, PACKED, TEAM, HELD> results;
    results rounded = {};
    EACH_HELD(results, h, v, j.keys) rounded.x[h].of[v] = E::store(from.x[h].of[v]);
    if (TEAM == LANES && sizeof(typename E::stored) < sizeof(typename E::number))
        yk__sync_warp();
    rounded.store(row_at<E>(j, scores, row), sizeof(typename E::stored), j.keys);
}

/* Scores with their mask, up to `last`. The mask's elements for MASKED packs are read before one is used: at once,
 * where PACKED. */
template <typename M, bool PACKED, typename Row>
static YK__DEVICE void mask_held(const score_job &j, int64_t at, int last, Row *own)
{
    typedef const typename M::stored stored;
    typedef pack<typename M::stored, Row::V> packed;
    enum { V = Row::V, MASKED = Row::HELD < 4 ? Row::HELD : 4 };
    stored *from = static_cast<stored *>(j.mask.data) + at;
    YK__UNROLL for (int first = 0; first < Row::HELD; first += MASKED)
    {
        packed single[MASKED] = {};
        pack_words<packed> words[MASKED];
        YK__UNROLL for (int h = 0; h < MASKED; h++)
        {
            int i = Row::position(first + h);
            if constexpr (PACKED) {
                words[h].clear();
                if (i <= last)
                    words[h].load(reinterpret_cast<const char *>(from + i));
            } else {
                YK__UNROLL for (int v = 0; v < V; v++) if (i + v <= last) single[h].of[v] =
                    *yk__global<stored>(from + (i + v) * j.mask.stride[3]);
            }
        }
        YK__UNROLL for (int h = 0; h < MASKED; h++)
        {
            packed mask = single[h];
            if constexpr (PACKED)
                mask = words[h].elements();
            YK__UNROLL for (int v = 0; v < V; v++)
            {
                typename Row::E::number &x = own->x[first + h].of[v];
                if (Row::position(first + h) + v <= last)
                    x = masked<M>::of(x, mask.of[v]);
            }
        }
    }
}

/* The scaled scores of a row that was loaded, with their mask; -infinity where the query may not look at the key, and
 * after the row's end. */
template <typename E, bool MASKED, typename Row>
static YK__DEVICE void held_scores(const score_job &j, const score_row &r, Row *own)
{
    typedef typename E::number number;
    int last = (int)last_key(j, r);
    EACH_HELD(Row, h, v, j.keys)
    {
        number &x = own->x[h].of[v];
        x = Row::position(h) + v <= last ? x * (number)j.scale : (number)-INFINITY;
    }
    if (!MASKED || !j.has_mask)
        return;
    int64_t at = mask_at(j, r);
    if (j.mask.dtype == YK_BOOL && j.mask_packs)
        mask_held<element_bool, true>(j, at, last, own);
    else if (j.mask.dtype == YK_BOOL)
        mask_held<element_bool, false>(j, at, last, own);
    else if (j.mask_packs)
        mask_held<E, true>(j, at, last, own);
    else
        mask_held<E, false>(j, at, last, own);
}

/* The number to subtract from the scores of a row; of one whose query may look at no key, whose scores are all
 * -infinity, e^x is 0. */
template <typename number> static YK__DEVICE number base_of(number top)
{
    return top == (number)-INFINITY ? 0 : top;
}

/* Scores become probabilities; lse is written. Scores without a mask have a kernel of their own, of fewer registers
 * (MASKED: there may be one). */
template <typename E, typename Row, bool MASKED> HELD_KERNEL(Row) held_probability_kernel(score_job j)
{
    typedef typename E::number number;
    typedef typename E::statistic S;
    enum { TEAM = Row::TEAM };
    YK__SHARED(double, shared);
    EACH_ROW(row, j, TEAM)
    {
        score_row r = row_of(j, row);
        Row x;
        number top = -INFINITY;
        load_row<E>(j, j.scores, row, &x);
        held_scores<E, MASKED>(j, r, &x);
        EACH_HELD(Row, h, v, j.keys) top = yk__greater(top, x.x[h].of[v]);
        top = team_max<TEAM, number>(shared, top);
        bool none = top == (number)-INFINITY; /* the query may look at no key */
        number less = base_of(top);
        double sum = 0;
        EACH_HELD(Row, h, v, j.keys)
        {
            x.x[h].of[v] = exponential(x.x[h].of[v] - less);
            sum += (double)x.x[h].of[v];
        }
        sum = team_sum<TEAM, double>(shared, sum);
        number share = none ? 0 : (number)(1.0 / sum);
        EACH_HELD(Row, h, v, j.keys) x.x[h].of[v] *= share;
        store_row<E>(j, j.scores, row, x);
        if (threadIdx.x % TEAM == 0)
            put<S>(j.lse, r.lse, none ? (number)-INFINITY : (number)((double)top + yk__log_f64(sum)));
    }
}

/* Scores become probabilities, by lse, and gradients of the probabilities those of the unscaled scores. */
template <typename E, typename Row, bool MASKED> HELD_KERNEL(Row) held_gradient_kernel(score_job j)
{
    typedef typename E::number number;
    typedef typename E::statistic S;
    enum { TEAM = Row::TEAM };
    YK__SHARED(double, shared);
    EACH_ROW(row, j, TEAM)
    {
        score_row r = row_of(j, row);
        Row p, g;
        number less = base_of(get<S>(j.lse, r.lse));
        double sum = 0;
        load_row<E>(j, j.scores, row, &p);
        load_row<E>(j, j.gradients, row, &g);
        held_scores<E, MASKED>(j, r, &p);
        g.cut(j.keys, 0);
        EACH_HELD(Row, h, v, j.keys)
        {
            p.x[h].of[v] = exponential(p.x[h].of[v] - less);
            sum += (double)g.x[h].of[v] * (double)p.x[h].of[v];
        }
        number all = (number)team_sum<TEAM, double>(shared, sum);
        EACH_HELD(Row, h, v, j.keys) g.x[h].of[v] = p.x[h].of[v] * (g.x[h].of[v] - all) * (number)j.scale;
        store_row<E>(j, j.scores, row, p);
        store_row<E>(j, j.gradients, row, g);
    }
}

/* ---- rows that no team holds ---- */
/* The loop over pieces of a row. Results may be stored where others of the row are still to be read: so all threads of
 * the block read their elements from `first` on before one of them writes, and go on together. */
#define EACH_PIECE(first, j) YK__LOOP for (int64_t first = 0; first < (j).keys; first += AT_ONCE * THREADS)

/* Elements first + t, first + t + THREADS, ... of a row; `none` after its end. */
template <typename E>
static YK__DEVICE void read_some(const score_job &j, void *scores, int64_t row, int64_t first, typename E::number none,
                                 typename E::number *x)
{
    typedef typename E::number number;
    yk__global<const number> own(reinterpret_cast<const number *>(row_at<E>(j, scores, row)));
    YK__UNROLL for (int u = 0; u < AT_ONCE; u++)
    {
        int64_t i = first + threadIdx.x + u * THREADS;
        x[u] = i < j.keys ? own[i] : none;
    }
}
template <typename M, typename number>
static YK__DEVICE void mask_some(const score_job &j, int64_t at, int64_t first, int64_t last, number *x)
{
    typedef const typename M::stored stored;
    yk__global<stored> from(static_cast<stored *>(j.mask.data) + at);
    typename M::stored mask[AT_ONCE] = {};
    YK__UNROLL for (int u = 0; u < AT_ONCE; u++)
    {
        int64_t i = first + threadIdx.x + u * THREADS;
        if (i <= last)
            mask[u] = from[i * j.mask.stride[3]];
    }
    YK__UNROLL for (int u = 0; u < AT_ONCE; u++) if (first + threadIdx.x + u * THREADS <= last) x[u] =
        masked<M>::of(x[u], mask[u]);
}
/* The same as scores with their mask. */
template <typename E>
static YK__DEVICE void read_scores(const score_job &j, const score_row &r, int64_t row, int64_t first,
                                   typename E::number *x)
{
    typedef typename E::number number;
    int64_t last = last_key(j, r);
    read_some<E>(j, j.scores, row, first, -INFINITY, x);
    YK__UNROLL for (int u = 0; u < AT_ONCE; u++) x[u] =
        first + threadIdx.x + u * THREADS <= last ? x[u] * (number)j.scale : (number)-INFINITY;
    if (!j.has_mask)
        return;
    if (j.mask.dtype == YK_BOOL)
        mask_some<element_bool>(j, mask_at(j, r), first, last, x);
    else
        mask_some<E>(j, mask_at(j, r), first, last, x);
}
template <typename E>
static YK__DEVICE void write_some(const score_job &j, void *scores, int64_t row, int64_t first,
                                  const typename E::number *x)
{
    typedef typename E::stored stored;
    yk__global<stored> own(reinterpret_cast<stored *>(row_at<E>(j, scores, row)));
    YK__UNROLL for (int u = 0; u < AT_ONCE; u++)
    {
        int64_t i = first + threadIdx.x + u * THREADS;
        if (i < j.keys)
            own[i] = E::store(x[u]);
    }
}

template <typename E> YK__KERNEL(THREADS) long_probability_kernel(score_job j)
{
    typedef typename E::number number;
    typedef typename E::statistic S;
    YK__SHARED(double, shared);
    EACH_ROW(row, j, THREADS)
    {
        score_row r = row_of(j, row);
        number x[AT_ONCE];
        powers<number> seen;
        EACH_PIECE(first, j)
        {
            read_scores<E>(j, r, row, first, x);
            seen.template add<AT_ONCE>(x);
        }
        number top = team_max<THREADS, number>(shared, seen.top);
        bool none = top == (number)-INFINITY;
        number less = base_of(top);
        double sum = block_sum<double>(shared, none ? 0 : seen.scaled_to(top));
        number share = none ? 0 : (number)(1.0 / sum);
        EACH_PIECE(first, j)
        {
            read_scores<E>(j, r, row, first, x);
            __syncthreads();
            YK__UNROLL for (int u = 0; u < AT_ONCE; u++) x[u] = exponential(x[u] - less) * share;
            write_some<E>(j, j.scores, row, first, x);
        }
        if (threadIdx.x == 0)
            put<S>(j.lse, r.lse, none ? (number)-INFINITY : (number)((double)top + yk__log_f64(sum)));
    }
}

template <typename E> YK__KERNEL(THREADS) long_gradient_kernel(score_job j)
{
    typedef typename E::number number;
    typedef typename E::statistic S;
    YK__SHARED(double, shared);
    EACH_ROW(row, j, THREADS)
    {
        score_row r = row_of(j, row);
        number p[AT_ONCE], g[AT_ONCE], less = base_of(get<S>(j.lse, r.lse));
        double sum = 0;
        EACH_PIECE(first, j)
        {
            read_scores<E>(j, r, row, first, p);
            read_some<E>(j, j.gradients, row, first, 0, g);
            YK__UNROLL for (int u = 0; u < AT_ONCE; u++) sum += (double)g[u] * (double)exponential(p[u] - less);
        }
        number all = (number)block_sum<double>(shared, sum);
        EACH_PIECE(first, j)
        {
            read_scores<E>(j, r, row, first, p);
            read_some<E>(j, j.gradients, row, first, 0, g);
            __syncthreads();
            YK__UNROLL for (int u = 0; u < AT_ONCE; u++)
            {
                p[u] = exponential(p[u] - less);
                g[u] = p[u] * (g[u] - all) * (number)j.scale;
            }
            write_some<E>(j, j.scores, row, first, p);
            write_some<E>(j, j.gradients, row, first, g);
        }
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

/* The job's scores, or their results, which may be narrower, as matrices for gemm. */
static yk__view score_matrices(const score_job *j, void *data, yk_dtype wide, yk_dtype dtype, bool transposed)
{
    yk__view m;
    int64_t pitch = j->pitch * (int64_t)(yk__size_of(wide) / yk__size_of(dtype));
    memset(&m, 0, sizeof(m));
    m.data = data, m.dtype = dtype, m.ndim = 3;
    m.shape[0] = j->count, m.stride[0] = j->queries * pitch;
    m.shape[1] = transposed ? j->keys : j->queries, m.stride[1] = transposed ? 1 : pitch;
    m.shape[2] = transposed ? j->queries : j->keys, m.stride[2] = transposed ? pitch : 1;
    return m;
}

/* True if the heads of several batches are at even distances, so that one product takes them all. */
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

/* Gives all operands back; dense copies that were written are copied to their tensors, unless something failed. */
static yk_status operands_give(operand *all, int count, int device, yk_status status)
{
    for (int i = 0; i < count; i++) {
        if (!all[i].memory)
            continue;
        if (!status && all[i].written)
            status = cuda_copy(device, all[i].own, &all[i].taken);
        cuda_yoke->storage_release(all[i].memory); /* only later work on the device's queue can take it */
    }
    return status;
}

/* The elements from a row of scores to the next: Note [Attention of halves]. */
static int64_t pitch_of(int64_t keys)
{
    enum { STEP = 8 };
    return (keys + STEP - 1) / STEP * STEP;
}

static bool packs_of_mask(const yk__view *mask)
{
    int64_t size = (int64_t)yk__size_of(mask->dtype);
    bool packs = true;
    for (int d = 0; d < 3; d++)
        packs = packs && rows_aligned(mask->data, mask->stride[3] * size,
                                      mask->shape[d] > 1 ? mask->stride[d] * size : 0, mask->shape[3], (size_t)size);
    return packs;
}

static score_job job_of(const yk__attention *p, const yk__view *q, const yk__view *k, const yk__view *mask,
                        const yk__view *lse)
{
    score_job j;
    memset(&j, 0, sizeof(j));
    j.lse = *lse, j.has_mask = mask != NULL, j.causal = p->causal, j.scale = p->scale;
    if (mask)
        j.mask = *mask, j.mask_packs = packs_of_mask(mask);
    j.heads = q->shape[1], j.queries = q->shape[2], j.keys = k->shape[2], j.pitch = pitch_of(j.keys);
    return j;
}

/* The number of heads, of `all`, that a chunk takes. */
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

/* Memory for the scores, backward for the gradients, too. */
static yk_status workspace_take(score_job *j, int device, yk_dtype wide, int64_t chunk, bool backward,
                                yk__storage **memory)
{
    size_t count = (size_t)(chunk * j->queries * j->pitch), size = yk__size_of(wide);
    size_t bytes = (count * size + CUDA_MALLOC_ALIGNMENT - 1) / CUDA_MALLOC_ALIGNMENT * CUDA_MALLOC_ALIGNMENT;
    char *data = static_cast<char *>(cuda_workspace(device, bytes * (backward ? 2 : 1), memory));
    if (!data)
        return YK_ERR_MEMORY;
    j->scores = data;
    j->gradients = backward ? data + bytes : NULL;
    return YK_OK;
}

/* Attention by cuDNN, where it takes the case; counted in both cases. */
static yk_status by_library(int device, const yk__attention *p, const cuda_attended *called, bool *taken)
{
    yk_status status = cuda_dnn_attention(device, p, called, taken);
    if (!status)
        cuda_count_work(called->gout ? CUDA_ATTENTION_BACKWARD : CUDA_ATTENTION, *taken);
    return status;
}

/* f64 has the kernels with a mask alone, and rows with a mask none for short ones: with all of them nvcc takes a sixth
 * longer. */
#define HELD_WITH_MASK(element) (sizeof(element::stored) == 8)
template <typename Row> struct masked_row {
    typedef Row type;
};
template <typename E> struct masked_row<held_row<E, true, LANES, SHORT_HOLDS>> {
    typedef held_row<E, true, LANES, WARP_HOLDS> type;
};

/* held(row) is a kernel of rows that are held, masked(row) that with a mask. */
#define LAUNCH_ROWS(name, held, masked, longer, E)                                                                     \
    do {                                                                                                               \
        void (*kernel)(score_job) = j.has_mask ? KERNEL_OF_HELD(E::statistic, j.keys, true, masked, longer<E>)         \
                                               : KERNEL_OF_HELD(E::statistic, j.keys, true, held, longer<E>);          \
        YK__LAUNCH(name, kernel, blocks_of_rows<E::statistic>(device, j.keys, j.count * j.queries), THREADS,           \
                   ROWS * sizeof(double), stream, j);                                                                  \
    } while (0)

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
    const cuda_attended called = {q, k, v, mask, out, lse, NULL, NULL, NULL, NULL};
    bool taken = false;
    yk_status status = all * j.queries > 0 ? by_library(device, p, &called, &taken) : YK_OK;
    if (!status && !taken)
        status = cuda_use(device, &stream);
    if (status || taken || all * j.queries == 0)
        return status;
    status = workspace_take(&j, device, wide, chunk, false, &memory);
    for (int i = 0; i < COUNT && !status; i++)
        status = operand_take(&of[i], device, views[i], chunk > j.heads, i == OUT);
    for (int64_t first = 0; first < all && !status; first += j.count) {
        j.first = first;
        j.count = heads_from(&j, first, chunk, all);
        yk__view queries = matrices(&of[Q].taken, first, j.count, false);
        yk__view keys = matrices(&of[K].taken, first, j.count, true);
        yk__view values = matrices(&of[V].taken, first, j.count, false);
        yk__view results = matrices(&of[OUT].taken, first, j.count, false);
        yk__view scores = score_matrices(&j, j.scores, wide, wide, false);
        yk__view shares = score_matrices(&j, j.scores, wide, dtype, false);
        status = cuda_gemm(device, &scores, &queries, &keys, NULL, false);
        if (status)
            break;
#define PROBABILITY(E)                                                                                                 \
    do {                                                                                                               \
        typedef E element;                                                                                             \
        LAUNCH_ROWS("attention", HELD_PROBABILITY, MASKED_PROBABILITY, long_probability_kernel, E);                    \
    } while (0)
#define HELD_PROBABILITY(...)   held_probability_kernel<element, __VA_ARGS__, HELD_WITH_MASK(element)>
#define MASKED_PROBABILITY(...) held_probability_kernel<element, masked_row<__VA_ARGS__>::type, true>
        FLOATING(dtype, PROBABILITY);
        status = cuda_gemm(device, &results, &shares, &values, NULL, false);
    }
    status = operands_give(of, COUNT, device, status);
    if (memory)
        cuda_yoke->storage_release(memory); /* only later work on the device's queue can take it */
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
    cudaStream_t stream = NULL;
    yk__storage *memory = NULL;
    const cuda_attended called = {q, k, v, mask, out, lse, gout, gq, gk, gv};
    bool taken = false;
    yk_status status = all > 0 ? by_library(device, p, &called, &taken) : YK_OK;
    if (!status && !taken)
        status = cuda_use(device, &stream);
    if (status || taken || all == 0)
        return status;
    status = workspace_take(&j, device, wide, chunk, true, &memory);
    for (int i = 0; i < COUNT && !status; i++)
        status = operand_take(&of[i], device, views[i], chunk > j.heads, i <= GV);
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
        yk__view scores = score_matrices(&j, j.scores, wide, wide, false);
        yk__view of_shares = score_matrices(&j, j.gradients, wide, wide, false);
        yk__view shares_t = score_matrices(&j, j.scores, wide, dtype, true);
        yk__view gradients = score_matrices(&j, j.gradients, wide, dtype, false);
        yk__view gradients_t = score_matrices(&j, j.gradients, wide, dtype, true);
        status = cuda_gemm(device, &scores, &queries, &keys_t, NULL, false);
        if (!status)
            status = cuda_gemm(device, &of_shares, &given, &values_t, NULL, false);
#define GRADIENT(E)                                                                                                    \
    do {                                                                                                               \
        typedef E element;                                                                                             \
        LAUNCH_ROWS("attention_backward", HELD_GRADIENT, MASKED_GRADIENT, long_gradient_kernel, E);                    \
    } while (0)
#define HELD_GRADIENT(...)   held_gradient_kernel<element, __VA_ARGS__, HELD_WITH_MASK(element)>
#define MASKED_GRADIENT(...) held_gradient_kernel<element, masked_row<__VA_ARGS__>::type, true>
        if (!status && j.queries)
            FLOATING(dtype, GRADIENT);
        if (!status)
            status = cuda_gemm(device, &to_v, &shares_t, &given, NULL, false);
        if (!status)
            status = cuda_gemm(device, &to_q, &gradients, &keys, NULL, false);
        if (!status)
            status = cuda_gemm(device, &to_k, &gradients_t, &queries, NULL, false);
    }
    status = operands_give(of, COUNT, device, status);
    if (memory)
        cuda_yoke->storage_release(memory); /* only later work on the device's queue can take it */
    return status ? status : cuda_launched(device, "attention_backward", COUNT, views);
}
