/*
 * attention_body.h - scaled dot product attention of one dtype; included by attention.c with T, S_ (f32, f64), V and
 * TYPED(name) defined. attention.c says how the blocks go.
 */
#define WIDTH ((int64_t)(sizeof(V) / sizeof(T)))
#define PANEL (WIDTH * YK__GEMM_VECTORS)
#include "device/cpu/gemm/gemm_panels_body.h"

/* Scores of one query against keys [key, key + cols): -inf where it may not look, plus an additive mask. */
static void TYPED(mask_row)(const attention_job *job, const head *at, T *restrict scores, int64_t query, int64_t key,
                            int64_t cols)
{
    if (job->p->causal)
        for (int64_t j = MAX(0, query + 1 - key); j < cols; j++)
            scores[j] = (T)-INFINITY;
    if (!job->mask)
        return;
    int64_t step = job->mask->stride[3], row = query * job->mask->stride[2] + key * step;
    if (job->mask->dtype == YK_BOOL) {
        const uint8_t *mask = (const uint8_t *)at->mask + row;
        for (int64_t j = 0; j < cols; j++)
            scores[j] = mask[j * step] ? scores[j] : (T)-INFINITY;
    } else if (step == 1) { /* a loop of vectors */
        const T *mask = (const T *)at->mask + row;
        for (int64_t j = 0; j < cols; j++)
            scores[j] += mask[j];
    } else {
        const T *mask = (const T *)at->mask + row;
        for (int64_t j = 0; j < cols; j++)
            scores[j] += mask[j * step];
    }
}

/* The factors of dropout for the weights of one query against keys [key, key + cols): 0, or 1 / (1 - p). */
static void TYPED(keep_row)(const attention_job *job, const head *at, T *keep, int64_t query, int64_t key, int64_t cols)
{
    uint32_t words[BLOCK_WORDS] __attribute__((aligned(64)));
    int64_t first = at->first + query * job->keys + key, skip = first % 4;
    yk__philox_words(job->stream, (uint64_t)first / 4, (skip + cols + 3) / 4, words);
    const T kept = (T)job->kept;
    for (int64_t j = 0; j < cols; j++)
        keep[j] = words[skip + j] >> 8 >= job->threshold ? kept : 0;
}

/* The number of keys of the block from `key` on that queries below `end` may look at. */
static int64_t TYPED(visible)(const attention_job *job, int64_t key, int64_t end)
{
    int64_t cols = MIN(job->keys - key, BLOCK_KEYS);
    return job->p->causal ? MIN(cols, MAX(0, end - key)) : cols;
}

/* ---- forward ---- */

/* scores become e^(score - top) for the new running maximum; gives what earlier terms must be scaled by. */
static T TYPED(softmax_row)(T *scores, int64_t cols, T *top, T *sum)
{
    T before = *top, most = TYPED(yk__row_max)(scores, 1, cols);
    *top = most > before ? most : before;
    if (*top == (T)-INFINITY) { /* nothing to look at yet; NaN stays NaN */
        for (int64_t j = 0; j < cols; j++) {
            scores[j] = scores[j] != scores[j] ? scores[j] : 0;
            *sum += scores[j];
        }
        return 1;
    }
    T scale = TYPED(yk__exp)(before - *top);
    *sum = *sum * scale + (T)TYPED(yk__row_exp)(scores, 1, cols, *top, scores);
    return scale;
}

static int64_t TYPED(forward_scratch)(const attention_job *job)
{
    int64_t columns = (job->value_size + PANEL - 1) / PANEL * PANEL;
    return (job->size + columns + YK__GEMM_ROWS) * BLOCK_KEYS + 2 * CHUNK_ROWS;
}

/* Queries [first, end) of one head, at most CHUNK_ROWS. */
static void TYPED(forward)(const attention_job *job, const head *at, int64_t first, int64_t end, void *scratch)
{
    T *turned = scratch, *values = turned + job->size * BLOCK_KEYS;
    T *scores = values + (job->value_size + PANEL - 1) / PANEL * PANEL * BLOCK_KEYS;
    T *top = scores + YK__GEMM_ROWS * BLOCK_KEYS, *sum = top + CHUNK_ROWS;
    const T *q = at->q;
    T *out = at->out;
    int64_t q_row = job->q->stride[2], out_row = job->out->stride[2];
    for (int64_t i = first; i < end; i++) {
        top[i - first] = (T)-INFINITY, sum[i - first] = 0;
        for (int64_t d = 0; d < job->value_size; d++)
            out[i * out_row + d] = 0;
    }
    for (int64_t key = 0; key < job->keys; key += BLOCK_KEYS) {
        int64_t most = TYPED(visible)(job, key, end);
        if (most == 0)
            break;
        const T *k = (const T *)at->k + key * job->k->stride[2], *v = (const T *)at->v + key * job->v->stride[2];
        TYPED(pack_panels)(turned, k, job->size, job->k->stride[3], most, job->k->stride[2]);
        for (int64_t i = 0, n = (most + PANEL - 1) / PANEL * PANEL * job->size; i < n; i++)
            turned[i] *= (T)job->p->scale;
        TYPED(pack_panels)(values, v, most, job->v->stride[2], job->value_size, job->v->stride[3]);
        for (int64_t i = first; i < end; i += YK__GEMM_ROWS) {
            int64_t rows = MIN(end - i, YK__GEMM_ROWS), cols = TYPED(visible)(job, key, i + rows);
            if (cols == 0)
                continue;
            TYPED(multiply)
            (YK__GEMM_A_ROWS, scores, BLOCK_KEYS, q + i * q_row, q_row, turned, rows, cols, job->size, false, true);
            for (int64_t r = 0; r < rows; r++) {
                TYPED(mask_row)(job, at, scores + r * BLOCK_KEYS, i + r, key, cols);
                T scale = TYPED(softmax_row)(scores + r * BLOCK_KEYS, cols, &top[i + r - first], &sum[i + r - first]);
                if (key > 0 && scale != 1)
                    for (int64_t d = 0; d < job->value_size; d++)
                        out[(i + r) * out_row + d] *= scale;
                if (job->threshold) {
                    T keep[BLOCK_KEYS];
                    TYPED(keep_row)(job, at, keep, i + r, key, cols);
                    for (int64_t j = 0; j < cols; j++)
                        scores[r * BLOCK_KEYS + j] *= keep[j];
                }
            }
            /* The panels were packed for `most` keys; the last of them count for nothing here. */
            for (int64_t j = 0; j < job->value_size; j += PANEL)
                TYPED(multiply)
            (YK__GEMM_A_ROWS, out + i * out_row + j, out_row, scores, BLOCK_KEYS, values + j * most, rows,
             MIN(job->value_size - j, PANEL), cols, true, false);
        }
    }
    for (int64_t i = first; i < end; i++) {
        T total = sum[i - first];
        T scale = total == 0 ? 0 : 1 / total; /* a query that may look at nothing gives 0 */
        for (int64_t d = 0; d < job->value_size; d++)
            out[i * out_row + d] *= scale;
        ((T *)at->lse)[i] = total == 0 ? (T)-INFINITY : top[i - first] + (T)log((double)total);
    }
}

/* ---- backward ---- */

static int64_t TYPED(backward_scratch)(const attention_job *job)
{
    int64_t size = (job->size + PANEL - 1) / PANEL * PANEL;
    int64_t value_size = (job->value_size + PANEL - 1) / PANEL * PANEL;
    return (job->size + job->value_size + size) * BLOCK_KEYS + (size + value_size + 2 * BLOCK_KEYS) * BLOCK_ROWS +
           job->queries;
}

static void TYPED(clear_rows)(T *x, int64_t rows, int64_t row, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            x[i * row + j] = 0;
}

/* Scores q k^T of query i become what gv's product takes, P, times the factors of dropout, and g = gout v^T becomes the
 * gradient of the scores times `factor`: P (g times those factors - dot), with dot = gout . out. */
static void TYPED(gradient_row)(const attention_job *job, const head *at, T *restrict row, T *restrict g, int64_t i,
                                int64_t key, int64_t cols, T dot, T factor)
{
    T shift = ((const T *)at->lse)[i];
    TYPED(mask_row)(job, at, row, i, key, cols);
    if (shift == (T)-INFINITY) {
        for (int64_t j = 0; j < cols; j++)
            row[j] = g[j] = 0;
        return;
    }
    for (int64_t j = 0; j < cols; j++)
        row[j] = TYPED(yk__exp)(row[j] - shift);
    if (job->threshold) {
        T keep[BLOCK_KEYS];
        TYPED(keep_row)(job, at, keep, i, key, cols);
        for (int64_t j = 0; j < cols; j++) {
            g[j] = row[j] * (g[j] * keep[j] - dot) * factor;
            row[j] *= keep[j];
        }
        return;
    }
    for (int64_t j = 0; j < cols; j++)
        g[j] = row[j] * (g[j] - dot) * factor;
}

static T TYPED(dot_of)(const T *a, const T *b, int64_t size)
{
    double dot = 0;
    for (int64_t d = 0; d < size; d++)
        dot += (double)a[d] * (double)b[d];
    return (T)dot;
}

/* The gradients of one head: with P = softmax(scale q k^T) and D = rowsum(gout out), gv = P^T gout and, for G = P (gout
 * v^T - D) scale, gq = G k and gk = G^T q. */
static void TYPED(backward)(const attention_job *job, const head *at, void *scratch)
{
    const int64_t size = job->size, value_size = job->value_size, queries = job->queries;
    int64_t wide = (size + PANEL - 1) / PANEL * PANEL, value_wide = (value_size + PANEL - 1) / PANEL * PANEL;
    T *k_turned = scratch, *v_turned = k_turned + size * BLOCK_KEYS, *k_rows = v_turned + value_size * BLOCK_KEYS;
    T *q_rows = k_rows + wide * BLOCK_KEYS, *g_rows = q_rows + wide * BLOCK_ROWS;
    T *p = g_rows + value_wide * BLOCK_ROWS, *gp = p + BLOCK_ROWS * BLOCK_KEYS;
    T *dots = gp + BLOCK_ROWS * BLOCK_KEYS;
    const T *q = at->q, *out = at->out, *gout = at->gout;
    T *gq = at->gq;
    int64_t q_row = job->q->stride[2], g_row = job->gout->stride[2], out_row = job->out->stride[2];
    int64_t gq_row = job->gq->stride[2], gk_row = job->gk->stride[2], gv_row = job->gv->stride[2];
    const T scale = (T)job->p->scale;
    for (int64_t i = 0; i < queries; i++)
        dots[i] = TYPED(dot_of)(gout + i * g_row, out + i * out_row, value_size);
    if (job->keys == 0)
        TYPED(clear_rows)(gq, queries, gq_row, size);
    for (int64_t key = 0; key < job->keys; key += BLOCK_KEYS) {
        int64_t block = MIN(job->keys - key, BLOCK_KEYS), most = TYPED(visible)(job, key, queries);
        T *gk = (T *)at->gk + key * gk_row, *gv = (T *)at->gv + key * gv_row;
        TYPED(clear_rows)(gk, block, gk_row, size);
        TYPED(clear_rows)(gv, block, gv_row, value_size);
        if (most == 0)
            continue;
        const T *k = (const T *)at->k + key * job->k->stride[2], *v = (const T *)at->v + key * job->v->stride[2];
        TYPED(pack_panels)(k_turned, k, size, job->k->stride[3], most, job->k->stride[2]);
        for (int64_t i = 0, n = (most + PANEL - 1) / PANEL * PANEL * size; i < n; i++)
            k_turned[i] *= scale;
        TYPED(pack_panels)(v_turned, v, value_size, job->v->stride[3], most, job->v->stride[2]);
        TYPED(pack_panels)(k_rows, k, most, job->k->stride[2], size, job->k->stride[3]);
        for (int64_t i = 0; i < queries; i += BLOCK_ROWS) {
            int64_t rows = MIN(queries - i, BLOCK_ROWS), cols = TYPED(visible)(job, key, i + rows);
            if (cols == 0)
                continue;
            TYPED(pack_panels)(q_rows, q + i * q_row, rows, q_row, size, 1);
            TYPED(pack_panels)(g_rows, gout + i * g_row, rows, g_row, value_size, 1);
            TYPED(multiply)
            (YK__GEMM_A_ROWS, p, BLOCK_KEYS, q + i * q_row, q_row, k_turned, rows, cols, size, false, true);
            TYPED(multiply)
            (YK__GEMM_A_ROWS, gp, BLOCK_KEYS, gout + i * g_row, g_row, v_turned, rows, cols, value_size, false, true);
            for (int64_t r = 0; r < rows; r++)
                TYPED(gradient_row)
            (job, at, p + r * BLOCK_KEYS, gp + r * BLOCK_KEYS, i + r, key, cols, dots[i + r], scale);
            TYPED(multiply)(YK__GEMM_A_COLUMNS, gv, gv_row, p, BLOCK_KEYS, g_rows, cols, value_size, rows, true, false);
            TYPED(multiply)(YK__GEMM_A_COLUMNS, gk, gk_row, gp, BLOCK_KEYS, q_rows, cols, size, rows, true, false);
            for (int64_t j = 0; j < size; j += PANEL)
                TYPED(multiply)
            (YK__GEMM_A_ROWS, gq + i * gq_row + j, gq_row, gp, BLOCK_KEYS, k_rows + j * most, rows,
             MIN(size - j, PANEL), cols, key > 0, false);
        }
    }
}

/* ---- the mask's gradient ---- */

static int64_t TYPED(mask_scratch)(const attention_job *job)
{
    return (job->size + job->value_size + 2 * BLOCK_ROWS + 1) * BLOCK_KEYS;
}

/* The element of the mask's gradient for a query and a key. */
static T *TYPED(mask_at)(const yk__view *g, void *to, int64_t query, int64_t key)
{
    return (T *)to + (g->shape[2] > 1 ? query * g->stride[2] : 0) + (g->shape[3] > 1 ? key * g->stride[3] : 0);
}

static void TYPED(mask_clear)(const attention_job *job, void *to, part queries, part keys)
{
    int64_t rows = job->gmask->shape[2] > 1 ? queries.end : MIN(job->gmask->shape[2], 1);
    int64_t columns = job->gmask->shape[3] > 1 ? keys.end : MIN(job->gmask->shape[3], 1);
    for (int64_t i = queries.first; i < rows; i++)
        for (int64_t j = keys.first; j < columns; j++)
            *TYPED(mask_at)(job->gmask, to, i, j) = 0;
}

/* Adds the gradients of the scores of one head, of a block of queries and keys at a time, and of each block's sums
 * where the mask has one element for all. */
static void TYPED(mask_add)(const attention_job *job, const head *at, void *to, part queries, part keys, void *scratch)
{
    const yk__view *gmask = job->gmask;
    const int64_t size = job->size, value_size = job->value_size;
    T *k_turned = scratch, *v_turned = k_turned + size * BLOCK_KEYS, *p = v_turned + value_size * BLOCK_KEYS;
    T *gp = p + BLOCK_ROWS * BLOCK_KEYS, *sums = gp + BLOCK_ROWS * BLOCK_KEYS;
    const T *q = at->q, *out = at->out, *gout = at->gout;
    int64_t q_row = job->q->stride[2], g_row = job->gout->stride[2], out_row = job->out->stride[2];
    bool all_rows = gmask->shape[2] == 1, all_keys = gmask->shape[3] == 1;
    for (int64_t key = keys.first; key < keys.end; key += BLOCK_KEYS) {
        int64_t cols = MIN(keys.end - key, BLOCK_KEYS);
        const T *k = (const T *)at->k + key * job->k->stride[2], *v = (const T *)at->v + key * job->v->stride[2];
        TYPED(pack_panels)(k_turned, k, size, job->k->stride[3], cols, job->k->stride[2]);
        for (int64_t i = 0, n = (cols + PANEL - 1) / PANEL * PANEL * size; i < n; i++)
            k_turned[i] *= (T)job->p->scale;
        TYPED(pack_panels)(v_turned, v, value_size, job->v->stride[3], cols, job->v->stride[2]);
        for (int64_t i = queries.first; i < queries.end; i += BLOCK_ROWS) {
            int64_t rows = MIN(queries.end - i, BLOCK_ROWS);
            TYPED(multiply)
            (YK__GEMM_A_ROWS, p, BLOCK_KEYS, q + i * q_row, q_row, k_turned, rows, cols, size, false, true);
            TYPED(multiply)
            (YK__GEMM_A_ROWS, gp, BLOCK_KEYS, gout + i * g_row, g_row, v_turned, rows, cols, value_size, false, true);
            TYPED(clear_rows)(sums, 1, BLOCK_KEYS, BLOCK_KEYS);
            for (int64_t r = 0; r < rows; r++) {
                T *g = gp + r * BLOCK_KEYS;
                T dot = TYPED(dot_of)(gout + (i + r) * g_row, out + (i + r) * out_row, value_size);
                TYPED(gradient_row)(job, at, p + r * BLOCK_KEYS, g, i + r, key, cols, dot, 1);
                T *to_row = all_rows ? sums : TYPED(mask_at)(gmask, to, i + r, key);
                for (int64_t j = 1; j < cols && all_keys; j++)
                    g[0] += g[j];
                for (int64_t j = 0; j < (all_keys ? 1 : cols); j++)
                    to_row[j] += g[j];
            }
            T *first = TYPED(mask_at)(gmask, to, i, key);
            for (int64_t j = 0; j < (all_keys ? 1 : cols) && all_rows; j++)
                first[j] += sums[j];
        }
    }
}

#undef WIDTH
#undef PANEL
