/*
 * index.c - the slot index, which reads, and those of index_put.c and nonzero.c into the table. Layer: device/cpu.
 *
 * A run of a loop is taken in blocks: the index tensors become byte offsets into x, checked on the way, then the
 * elements move; or whole rows of x, where no index tensor moves along the innermost dimension. Up to FUSED index
 * tensors are operands of the loop; more are added up in scratch memory first.
 */
#include "device/cpu/index/index_targets.h"
#include "device/cpu/index/nonzero.h"

/* to[i] = AT(i) for i < n. Four are read before the first of them is written: one by one they take 1.4 times as long.
 */
#define GATHER_FOURS(T, AT)                                                                                            \
    {                                                                                                                  \
        int64_t i = 0;                                                                                                 \
        for (; i + 4 <= n; i += 4) {                                                                                   \
            T a = AT(i), b = AT(i + 1), c = AT(i + 2), d = AT(i + 3);                                                  \
            to[i] = a, to[i + 1] = b, to[i + 2] = c, to[i + 3] = d;                                                    \
        }                                                                                                              \
        for (; i < n; i++)                                                                                             \
            to[i] = AT(i);                                                                                             \
    }

#define AT_OFFSET(i) *(const value *)(x + offset[i])
#define GATHER(T)                                                                                                      \
    {                                                                                                                  \
        if (out_stride == (int64_t)sizeof(T) && x_stride == 0) {                                                       \
            typedef T value;                                                                                           \
            T *to = (T *)out;                                                                                          \
            GATHER_FOURS(T, AT_OFFSET)                                                                                 \
        } else {                                                                                                       \
            for (int64_t i = 0; i < n; i++)                                                                            \
                *(T *)(out + i * out_stride) = *(const T *)(x + i * x_stride + offset[i]);                             \
        }                                                                                                              \
        return;                                                                                                        \
    }

static void gather(size_t element, int64_t n, char *out, int64_t out_stride, const char *x, int64_t x_stride,
                   const int64_t *offset)
{
    switch (element) {
    case 1: GATHER(yk__raw8)
    case 2: GATHER(yk__raw16)
    case 4: GATHER(yk__raw32)
    default: GATHER(yk__raw64)
    }
}

#define GATHER_DIRECT(T)                                                                                               \
    {                                                                                                                  \
        T *to = (T *)out;                                                                                              \
        const T *row = (const T *)x;                                                                                   \
        GATHER_FOURS(T, AT_INDEX)                                                                                      \
        return;                                                                                                        \
    }

/* Reads each element from the position in x that its index is. */
static inline __attribute__((always_inline)) void gather_direct(const targets *p, int64_t n, char *out, const char *x,
                                                                const int64_t *index, const bool wrap)
{
    int64_t size = p->size[0];
    switch (p->element) {
    case 1: GATHER_DIRECT(yk__raw8)
    case 2: GATHER_DIRECT(yk__raw16)
    case 4: GATHER_DIRECT(yk__raw32)
    default: GATHER_DIRECT(yk__raw64)
    }
}

static void read_run(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)
{
    (void)first;
    const targets *p = context;
    int64_t offset[BLOCK];
    if (is_fixed(p, stride + 2)) {
        if (!offsets(p, 1, data + 2, stride + 2, offset)) {
            atomic_store_explicit(p->bad, true, memory_order_relaxed);
            return;
        }
        const char *from = data[1] + offset[0];
        if (stride[0] == (int64_t)p->element && stride[1] == (int64_t)p->element)
            memcpy(data[0], from, (size_t)n * p->element);
        else
            yk__copy_strided(data[0], stride[0], from, stride[1], p->element, n);
        return;
    }
    bool direct = is_direct(p, stride[0], stride[1], stride[2]);
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t m = n - i < BLOCK ? n - i : BLOCK;
        char *index[FUSED];
        for (int k = 0; k < p->count; k++)
            index[k] = data[2 + k] + i * stride[2 + k];
        if (direct) {
            const int64_t *at = (const int64_t *)index[0];
            uint64_t below = p->wrap ? (uint64_t)p->size[0] : 0;
            if (!p->checked && !yk__indices_inside(at, m, below, (uint64_t)p->size[0] + below)) {
                atomic_store_explicit(p->bad, true, memory_order_relaxed);
                return;
            }
            if (p->wrap)
                gather_direct(p, m, data[0] + i * stride[0], data[1], at, true);
            else
                gather_direct(p, m, data[0] + i * stride[0], data[1], at, false);
            continue;
        }
        if (!offsets(p, m, index, stride + 2, offset)) {
            atomic_store_explicit(p->bad, true, memory_order_relaxed);
            return;
        }
        gather(p->element, m, data[0] + i * stride[0], stride[0], data[1] + i * stride[1], stride[1], offset);
    }
}

/* ---- rows ---- */

static inline __attribute__((always_inline)) void read_row(const targets *p, int64_t n, char *x, int64_t x_stride,
                                                           char *out, int64_t out_stride)
{
    if (out_stride == (int64_t)p->element && x_stride == (int64_t)p->element)
        yk__copy_row(out, x, n * (int64_t)p->element);
    else
        yk__copy_strided(out, out_stride, x, x_stride, p->element, n);
}

static void read_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const yk__loop_job *job = arg;
    const targets *p = job->context;
    if (!rows_piece(job->loop, p, begin, end, read_row))
        atomic_store_explicit(p->bad, true, memory_order_relaxed);
}

/* ---- short lines ---- */

#define READ_LINES(T) LINES(T, line[i] = row[at[i]])

static void read_lines(const targets *p, int64_t n, int64_t lines, char *other, char *x, const char *index,
                       const int64_t *step)
{
    switch (p->element) {
    case 1: READ_LINES(yk__raw8)
    case 2: READ_LINES(yk__raw16)
    case 4: READ_LINES(yk__raw32)
    default: READ_LINES(yk__raw64)
    }
}

static void read_short_lines(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const short_lines *s = arg;
    const targets *p = s->at;
    const int64_t n = s->loop->shape[0], *step = s->loop->stride[1];
    const int64_t most =
        step[2] == n * (int64_t)sizeof(int64_t) ? BLOCK / n : 1; /* lines whose indices are checked at once */
    char *data[3];
    for (int k = 0; k < 3; k++)
        data[k] = s->loop->data[k] + begin * step[k];
    for (int64_t r = begin, m; r < end; r += m) {
        m = p->checked ? end - r : end - r < most ? end - r : most;
        if (!p->checked && !yk__indices_inside((const int64_t *)data[2], m * n, 0, (uint64_t)p->size[0])) {
            atomic_store_explicit(p->bad, true, memory_order_relaxed);
            return;
        }
        read_lines(p, n, m, data[0], data[1], data[2], step);
        for (int k = 0; k < 3; k++)
            data[k] += m * step[k];
    }
}

/* True if one index tensor is read again for each row of the output: it is checked once, ahead of the loop. */
static bool is_repeated(const targets *p, const yk__loop *loop)
{
    return loop->ndim == 2 && p->count == 1 && loop->stride[1][2] == 0 &&
           is_direct(p, loop->stride[0][0], loop->stride[0][1], loop->stride[0][2]);
}

static yk_status index_read(int device, const yk__view *out, const yk__view *x, const yk__indices *p)
{
    atomic_bool bad = false;
    targets at = {.element = yk_dtype_size(x->dtype), .bad = &bad};
    const yk__view *views[2 + FUSED] = {out, x};
    yk__view sum;
    yk__storage *scratch;
    if (yk__index_operands(device, out, p, &at, &sum, views, &scratch))
        return yk__error_code();
    yk__loop loop;
    yk__loop_init(&loop, 2 + at.count, views, false);
    yk__loop_job job = {&loop, read_run, &at};
    yk_status status = YK_OK;
    if (is_rows(&at, &loop)) {
        yk__cpu_parallel(device, loop.total, YK__GRAIN, read_rows, &job);
    } else {
        at.checked = is_repeated(&at, &loop);
        status = at.checked ? yk__indices_check(device, p) : YK_OK;
        short_lines lines = {&loop, &at};
        if (!status && loop.total && is_short_lines(&at, &loop))
            yk__cpu_parallel(device, loop.shape[1], YK__GRAIN / loop.shape[0], read_short_lines, &lines);
        else if (!status)
            yk__loop_run(device, &loop, YK__GRAIN, read_run, &at);
    }
    yk__storage_release(scratch);
    return atomic_load(&bad) ? yk__indices_fail(p) : status;
}

void YK__ISA_NAME(yk__cpu_fill_index)(yk__backend *table)
{
    table->index = index_read;
    table->index_put = YK__ISA_NAME(yk__cpu_index_put);
    YK__ISA_NAME(yk__cpu_fill_nonzero)(table);
}
