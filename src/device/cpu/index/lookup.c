/*
 * lookup.c - the slots embedding, embedding_backward and embedding_bag. Layer: device/cpu.
 *
 * The gradient is summed in the order of the indices: each piece owns a range of rows of the table and goes through
 * all indices, so nothing depends on the number of threads.
 */
#include "device/cpu/elementwise/row_copy.h"
#include "device/cpu/iterate.h"

typedef struct lookup {
    const yk__view *table, *rows, *index; /* (V,D), (M,D), (M) */
    int64_t padding_idx;
} lookup;

static int64_t index_at(const yk__view *index, int64_t i)
{
    int64_t at = i * index->stride[0];
    return index->dtype == YK_I64 ? ((const int64_t *)index->data)[at] : ((const int32_t *)index->data)[at];
}

static yk_status rows_check(const char *name, const yk__view *index, int64_t size)
{
    for (int64_t i = 0; i < index->shape[0]; i++) {
        int64_t at = index_at(index, i);
        if (at < 0 || at >= size)
            return yk__fail(YK_ERR_ARGUMENT, "%s: index %lld at position %lld is outside [0, %lld)", name,
                            (long long)at, (long long)i, (long long)size);
    }
    return YK_OK;
}

static void gather(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const lookup *l = arg;
    int64_t width = l->rows->shape[1], size = (int64_t)yk_dtype_size(l->rows->dtype), bytes = width * size;
    int64_t from_step = l->table->stride[1] * size, to_step = l->rows->stride[1] * size;
    int64_t table_row = l->table->stride[0] * size, rows_row = l->rows->stride[0] * size;
    const char *table = l->table->data;
    char *rows = l->rows->data;
    bool dense = from_step == size && to_step == size;
    int64_t ahead = yk__rows_ahead(bytes);
    for (int64_t i = begin; i < end; i++) {
        const char *from = table + index_at(l->index, i) * table_row;
        if (!dense) {
            yk__copy_strided(rows + i * rows_row, to_step, from, from_step, (size_t)size, width);
            continue;
        }
        if (i + ahead < end)
            yk__fetch_row(table + index_at(l->index, i + ahead) * table_row, bytes);
        if (bytes == YK__LINE) /* a line of code each, as neither a loop nor a call is */
            memcpy(rows + i * rows_row, from, YK__LINE);
        else
            yk__copy_row(rows + i * rows_row, from, bytes);
    }
}

static int64_t rows_per_piece(int64_t width)
{
    return width >= YK__GRAIN ? 1 : YK__GRAIN / (width > 0 ? width : 1);
}

static yk_status embedding(int device, const yk__view *out, const yk__view *weight, const yk__view *index)
{
    if (rows_check("embedding", index, weight->shape[0]))
        return yk__error_code();
    lookup l = {.table = weight, .rows = out, .index = index};
    yk__cpu_parallel(device, index->shape[0], rows_per_piece(out->shape[1]), gather, &l);
    return YK_OK;
}

#define SCATTER(T)                                                                                                     \
    {                                                                                                                  \
        T *gw = l->table->data;                                                                                        \
        const T *g = l->rows->data;                                                                                    \
        for (int64_t v = begin; v < end; v++)                                                                          \
            for (int64_t j = 0; j < width; j++)                                                                        \
                gw[v * table[0] + j * table[1]] = 0;                                                                   \
        for (int64_t i = 0; i < count; i++) {                                                                          \
            int64_t v = index_at(l->index, i);                                                                         \
            if (v < begin || v >= end || v == l->padding_idx)                                                          \
                continue;                                                                                              \
            T *to = gw + v * table[0];                                                                                 \
            const T *from = g + i * rows[0];                                                                           \
            if (table[1] == 1 && rows[1] == 1) {                                                                       \
                YK__INDEPENDENT for (int64_t j = 0; j < width; j++)                                                    \
                {                                                                                                      \
                    to[j] += from[j];                                                                                  \
                }                                                                                                      \
            } else {                                                                                                   \
                for (int64_t j = 0; j < width; j++)                                                                    \
                    to[j * table[1]] += from[j * rows[1]];                                                             \
            }                                                                                                          \
        }                                                                                                              \
    }

static void scatter(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const lookup *l = arg;
    int64_t width = l->rows->shape[1], count = l->index->shape[0];
    const int64_t *table = l->table->stride, *rows = l->rows->stride;
    if (l->rows->dtype == YK_F32)
        SCATTER(float)
    else
        SCATTER(double)
}

static yk_status embedding_backward(int device, const yk__view *gweight, const yk__view *gout, const yk__view *index,
                                    int64_t padding_idx)
{
    int64_t size = gweight->shape[0], width = gweight->shape[1];
    if (rows_check("embedding", index, size))
        return yk__error_code();
    lookup l = {.table = gweight, .rows = gout, .index = index, .padding_idx = padding_idx};
    int64_t pieces = (size + index->shape[0]) * width < YK__GRAIN ? 1 : yk__cpu_threads(device);
    if (size > 0)
        yk__cpu_parallel(device, size, (size + pieces - 1) / pieces, scatter, &l);
    return YK_OK;
}

/* ---- bags ---- */

typedef struct bag_job {
    const yk__view *out, *weight, *index, *ends;
    int64_t padding_idx, ahead;
    bool mean;
} bag_job;

/* Columns are summed COLUMNS at a time, which stay in registers and the first-level cache. */
enum { COLUMNS = 64 };
#define BAG(S, T)                                                                                                      \
    static void bag_##S(const bag_job *job, int64_t bag, int64_t begin, int64_t end)                                   \
    {                                                                                                                  \
        const yk__view *w = job->weight, *to = job->out;                                                               \
        const T *weight = w->data;                                                                                     \
        T *out = (T *)to->data + bag * to->stride[0];                                                                  \
        const int64_t width = to->shape[1], bytes = width * (int64_t)sizeof(T);                                        \
        int64_t kept = 0;                                                                                              \
        for (int64_t i = begin; i < end; i++)                                                                          \
            kept += index_at(job->index, i) != job->padding_idx;                                                       \
        for (int64_t first = 0; first < width; first += COLUMNS) {                                                     \
            int64_t n = width - first < COLUMNS ? width - first : COLUMNS;                                             \
            T sum[COLUMNS] = {0};                                                                                      \
            for (int64_t i = begin; i < end; i++) {                                                                    \
                int64_t at = index_at(job->index, i);                                                                  \
                if (first == 0 && i + job->ahead < job->index->shape[0])                                               \
                    yk__fetch_row((const char *)(weight + index_at(job->index, i + job->ahead) * w->stride[0]),        \
                                  bytes);                                                                              \
                if (at == job->padding_idx)                                                                            \
                    continue;                                                                                          \
                const T *from = weight + at * w->stride[0] + first * w->stride[1];                                     \
                if (w->stride[1] == 1 && n == COLUMNS)                                                                 \
                    for (int64_t c = 0; c < COLUMNS; c++)                                                              \
                        sum[c] += from[c];                                                                             \
                else                                                                                                   \
                    for (int64_t c = 0; c < n; c++)                                                                    \
                        sum[c] += from[c * w->stride[1]];                                                              \
            }                                                                                                          \
            for (int64_t c = 0; c < n; c++)                                                                            \
                out[(first + c) * to->stride[1]] = job->mean && kept > 1 ? sum[c] / (T)kept : sum[c];                  \
        }                                                                                                              \
    }
BAG(f32, float)
BAG(f64, double)

static void bag_piece(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const bag_job *job = arg;
    for (int64_t bag = first; bag < last; bag++) {
        int64_t begin = bag ? index_at(job->ends, bag - 1) : 0;
        (job->out->dtype == YK_F32 ? bag_f32 : bag_f64)(job, bag, begin, index_at(job->ends, bag));
    }
}

static yk_status embedding_bag(int device, const yk__view *out, const yk__view *weight, const yk__view *index,
                               const yk__view *ends, int64_t padding_idx, bool mean)
{
    if (rows_check("embedding_bag", index, weight->shape[0]))
        return yk__error_code();
    bag_job job = {out, weight, index, ends, padding_idx, 0, mean};
    int64_t bags = out->shape[0], items = bags ? index->shape[0] / bags + 1 : 1;
    job.ahead = yk__rows_ahead(out->shape[1] * (int64_t)yk_dtype_size(out->dtype));
    yk__cpu_parallel(device, bags, rows_per_piece(out->shape[1] * items), bag_piece, &job);
    return YK_OK;
}

void YK__ISA_NAME(yk__cpu_fill_lookup)(yk__backend *table)
{
    table->embedding_bag = embedding_bag;
    table->embedding = embedding;
    table->embedding_backward = embedding_backward;
}
