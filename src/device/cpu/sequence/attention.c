/*
 * attention.c - the slots attention, attention_backward and attention_mask_gradient. Layer: device/cpu.
 *
 * The matrix of scores is never whole (Dao et al., FlashAttention, 2022): a block of keys and values is packed for the
 * register tiles and meets all queries of a piece, a tile of rows at a time. A row keeps the maximum and the sum of
 * what it has seen; what it has summed up is scaled when the maximum grows. Kept for backward is one number per row,
 * the logarithm of the sum; backward makes each block of scores anew.
 *
 * Pieces of work are CHUNK_ROWS queries of a head (forward), whole heads (backward) and parts of the mask (its
 * gradient, for which the scores are made once more, so that heads that share a mask are added up in order): they do
 * not depend on the number of threads, and so the bits do not.
 *
 * Dropout multiplies a row's block of weights by factors that are made from the words of the stream for these elements,
 * in backward again: no mask is kept, and the size of a block changes no bit of it.
 */
#include <math.h>

#include "base/philox_words.h"
#include "device/cpu/gemm/gemm_micro.h"
#include "device/cpu/rows.h"

enum {
    BLOCK_KEYS = 128,               /* a block of scores of one tile stays in the first-level cache */
    BLOCK_ROWS = YK__GEMM_ROWS * 4, /* backward: rows of one block; so many are summed into gk and gv in registers */
    CHUNK_ROWS = 512,
    BLOCK_WORDS = BLOCK_KEYS + 64, /* those of a block of keys, from a whole Philox block to 8 of them */
};

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* The views are (batch, heads, rows, columns); those of the mask may have stride 0. */
typedef struct attention_job {
    const yk__attention *p;
    const yk__view *q, *k, *v, *mask, *out, *lse;
    const yk__view *gout, *gq, *gk, *gv; /* backward only */
    const yk__view *gmask;               /* (batch or 1, heads or 1, queries or 1, keys or 1), of the mask's gradient */
    yk__stream stream;                   /* of dropout */
    uint32_t threshold;                  /* a weight is kept from this on, of 2^24; 0 without dropout */
    double kept;                         /* the factor of those that are kept */
    int64_t queries, keys, size, value_size, chunks;
    char *scratch;
    int64_t scratch_bytes; /* of a thread */
} attention_job;

/* The first elements of one head's matrices. */
typedef struct head {
    const void *q, *k, *v, *mask, *gout;
    void *out, *lse, *gq, *gk, *gv;
    int64_t first; /* the position of the head's first weight among all, in C order */
} head;

static void *head_of(const yk__view *view, int64_t index)
{
    if (!view)
        return NULL;
    int64_t batch = index / view->shape[1], which = index % view->shape[1];
    return (char *)view->data +
           (batch * view->stride[0] + which * view->stride[1]) * (int64_t)yk_dtype_size(view->dtype);
}

static head heads(const attention_job *job, int64_t index)
{
    return (head){head_of(job->q, index),    head_of(job->k, index),          head_of(job->v, index),
                  head_of(job->mask, index), head_of(job->gout, index),       head_of(job->out, index),
                  head_of(job->lse, index),  head_of(job->gq, index),         head_of(job->gk, index),
                  head_of(job->gv, index),   index * job->queries * job->keys};
}

/* A range of queries or keys. */
typedef struct part {
    int64_t first, end;
} part;

/* That of a piece of the mask's gradient, of `grain` elements; all of them where the gradient's size is 1 there. */
static part part_of(int64_t size, int64_t piece, int64_t grain, int64_t all)
{
    return size > 1 ? (part){piece * grain, MIN((piece + 1) * grain, all)} : (part){0, all};
}

#define TYPED(name)  TYPED_(name)
#define T            float
#define V            yk__vf32
#define TYPED_(name) name##_f32
#include "device/cpu/sequence/attention_body.h"
#undef T
#undef V
#undef TYPED_

#define T            double
#define V            yk__vf64
#define TYPED_(name) name##_f64
#include "device/cpu/sequence/attention_body.h"

static void forward_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    const attention_job *job = arg;
    void *scratch = job->scratch + thread * job->scratch_bytes;
    for (int64_t piece = begin; piece < end; piece++) {
        head at = heads(job, piece / job->chunks);
        int64_t first = piece % job->chunks * CHUNK_ROWS, last = MIN(first + CHUNK_ROWS, job->queries);
        (job->q->dtype == YK_F32 ? forward_f32 : forward_f64)(job, &at, first, last, scratch);
    }
}

static void backward_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    const attention_job *job = arg;
    for (int64_t piece = begin; piece < end; piece++) {
        head at = heads(job, piece);
        (job->q->dtype == YK_F32 ? backward_f32 : backward_f64)(job, &at, job->scratch + thread * job->scratch_bytes);
    }
}

/* The pieces of the mask's gradient along queries, and along keys. */
static int64_t row_pieces(const attention_job *job)
{
    return job->gmask->shape[2] > 1 ? job->chunks : 1;
}

static int64_t key_pieces(const attention_job *job)
{
    return job->gmask->shape[3] > 1 ? (job->keys + BLOCK_KEYS - 1) / BLOCK_KEYS : 1;
}

static void mask_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    const attention_job *job = arg;
    const yk__view *g = job->gmask;
    int64_t rows = row_pieces(job), columns = key_pieces(job), batches = job->q->shape[0], count = job->q->shape[1];
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t of_mask = piece / (rows * columns);
        part queries = part_of(g->shape[2], piece / columns % rows, CHUNK_ROWS, job->queries);
        part keys = part_of(g->shape[3], piece % columns, BLOCK_KEYS, job->keys);
        void *to = head_of(g, of_mask), *scratch = job->scratch + thread * job->scratch_bytes;
        (g->dtype == YK_F32 ? mask_clear_f32 : mask_clear_f64)(job, to, queries, keys);
        for (int64_t index = 0; index < batches * count; index++) {
            int64_t batch = g->shape[0] > 1 ? index / count : 0, which = g->shape[1] > 1 ? index % count : 0;
            if (batch * g->shape[1] + which != of_mask)
                continue;
            head at = heads(job, index);
            (g->dtype == YK_F32 ? mask_add_f32 : mask_add_f64)(job, &at, to, queries, keys, scratch);
        }
    }
}

/* Runs over `pieces`, with `scratch` numbers of memory for each thread. */
static yk_status heads_run(int device, attention_job *job, int64_t pieces, int64_t scratch, yk__range_fn fn)
{
    int64_t threads = yk__cpu_threads(device), size = (int64_t)yk_dtype_size(job->q->dtype);
    job->scratch_bytes = (scratch * size + 63) / 64 * 64;
    yk__storage *handle;
    job->scratch =
        yk__workspace_get((yk_device){YK_CPU, (int16_t)device}, (size_t)(threads * job->scratch_bytes), &handle);
    if (!job->scratch)
        return yk__error_code();
    yk__cpu_parallel(device, pieces, 1, fn, job);
    yk__storage_release(handle);
    return YK_OK;
}

static attention_job job_of(const yk__attention *p, const yk__view *q, const yk__view *k, const yk__view *v,
                            const yk__view *mask, const yk__view *out, const yk__view *lse)
{
    yk__stream stream = p->stream;
    stream.epoch += p->calls ? *p->calls : 0;
    return (attention_job){.p = p,
                           .stream = stream,
                           .threshold = (uint32_t)ceil(p->dropout * 0x1p24),
                           .kept = p->dropout < 1 ? 1 / (1 - p->dropout) : 0,
                           .q = q,
                           .k = k,
                           .v = v,
                           .mask = mask,
                           .out = out,
                           .lse = lse,
                           .queries = q->shape[2],
                           .keys = k->shape[2],
                           .size = q->shape[3],
                           .value_size = v->shape[3],
                           .chunks = (q->shape[2] + CHUNK_ROWS - 1) / CHUNK_ROWS};
}

static yk_status attention(int device, const yk__attention *p, const yk__view *out, const yk__view *lse,
                           const yk__view *q, const yk__view *k, const yk__view *v, const yk__view *mask)
{
    attention_job job = job_of(p, q, k, v, mask, out, lse);
    int64_t scratch = q->dtype == YK_F32 ? forward_scratch_f32(&job) : forward_scratch_f64(&job);
    return heads_run(device, &job, q->shape[0] * q->shape[1] * job.chunks, scratch, forward_piece);
}

static yk_status attention_backward(int device, const yk__attention *p, const yk__view *gq, const yk__view *gk,
                                    const yk__view *gv, const yk__view *gout, const yk__view *q, const yk__view *k,
                                    const yk__view *v, const yk__view *mask, const yk__view *out, const yk__view *lse)
{
    attention_job job = job_of(p, q, k, v, mask, out, lse);
    job.gout = gout, job.gq = gq, job.gk = gk, job.gv = gv;
    int64_t scratch = q->dtype == YK_F32 ? backward_scratch_f32(&job) : backward_scratch_f64(&job);
    return heads_run(device, &job, q->shape[0] * q->shape[1], scratch, backward_piece);
}

static yk_status attention_mask_gradient(int device, const yk__attention *p, const yk__view *gmask,
                                         const yk__view *gout, const yk__view *q, const yk__view *k, const yk__view *v,
                                         const yk__view *mask, const yk__view *out, const yk__view *lse)
{
    attention_job job = job_of(p, q, k, v, mask, out, lse);
    job.gout = gout, job.gmask = gmask;
    int64_t scratch = q->dtype == YK_F32 ? mask_scratch_f32(&job) : mask_scratch_f64(&job);
    return heads_run(device, &job, gmask->shape[0] * gmask->shape[1] * row_pieces(&job) * key_pieces(&job), scratch,
                     mask_piece);
}

void YK__ISA_NAME(yk__cpu_fill_attention)(yk__backend *table)
{
    table->attention = attention;
    table->attention_backward = attention_backward;
    table->attention_mask_gradient = attention_mask_gradient;
}
