/*
 * index.c - the slots index and index_put, and nonzero's (nonzero.c) into the table. Layer: device/cpu.
 *
 * A run of a loop is taken in blocks: the index tensors become byte offsets into x, checked on the way, then the
 * elements move; or whole rows of x, where no index tensor moves along the innermost dimension. Up to FUSED index
 * tensors are operands of the loop; more are added up in scratch memory first.
 *
 * What is written to one position comes in C order whatever the number of threads: they share a dimension along which x
 * itself moves, or no index tensor does, or else each goes through all indices and writes the targets that are its own.
 */
#include <stdatomic.h>

#include "device/cpu/elementwise/row_copy.h"
#include "device/cpu/index/nonzero.h"
#include "device/cpu/iterate.h"

/* BLOCK: offsets in a buffer of 4 KiB on the stack. FUSED: beside the output and x, all operands that a loop can have.
 * */
enum { BLOCK = 512, FUSED = 3 };

/* The index tensors of a call as operands of a loop, after the output and x. */
typedef struct targets {
    int count;
    bool wrap, checked;               /* checked: all are inside */
    int64_t size[FUSED], step[FUSED]; /* step: bytes of x */
    size_t element;
    atomic_bool *bad;
    /* index_put */
    bool accumulate, shared; /* shared: only the targets with the first index in [low, high) are this thread's */
    yk_dtype dtype;
    int64_t low, high;
} targets;

static inline int64_t wrapped(int64_t v, int64_t size)
{
    return v + ((v >> 63) & size);
}

/* The offset of an index. Far outside of its dimension the product does not fit in 64 bits: unsigned, it wraps around,
 * and nothing is read there. */
static inline int64_t offset_of(int64_t v, int64_t size, int64_t step)
{
    return (int64_t)((uint64_t)wrapped(v, size) * (uint64_t)step);
}

static inline int64_t sum_of(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

/* Computes the offsets of n elements; true if all indices are inside. */
static bool offsets(const targets *p, int64_t n, char *const *index, const int64_t *stride, int64_t *to)
{
    uint64_t outside = 0;
    for (int k = 0; k < p->count; k++) {
        int64_t size = p->size[k], step = p->step[k];
        uint64_t below = p->wrap ? (uint64_t)size : 0, room = (uint64_t)size + below;
        if (stride[k] == (int64_t)sizeof(int64_t)) {
            const int64_t *from = (const int64_t *)index[k];
            if (k == 0) {
                for (int64_t i = 0; i < n; i++) {
                    outside |= (uint64_t)from[i] + below >= room;
                    to[i] = offset_of(from[i], size, step);
                }
            } else {
                for (int64_t i = 0; i < n; i++) {
                    outside |= (uint64_t)from[i] + below >= room;
                    to[i] = sum_of(to[i], offset_of(from[i], size, step));
                }
            }
        } else {
            for (int64_t i = 0; i < n; i++) {
                int64_t v = *(const int64_t *)(index[k] + i * stride[k]);
                outside |= (uint64_t)v + below >= room;
                to[i] = sum_of(k ? to[i] : 0, offset_of(v, size, step));
            }
        }
    }
    return outside == 0;
}

/* True if no index tensor moves along a run. */
static bool is_fixed(const targets *p, const int64_t *index_stride)
{
    for (int k = 0; k < p->count; k++)
        if (index_stride[k] != 0)
            return false;
    return true;
}

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

/* True if all n indices are inside their dimension: from -`below` on, `room` of them. */
static bool all_inside(const int64_t *index, int64_t n, uint64_t below, uint64_t room)
{
    uint64_t outside = 0;
    for (int64_t i = 0; i < n; i++)
        outside |= (uint64_t)index[i] + below >= room;
    return outside == 0;
}

/* True if the index itself is the position in x, along a run: one index tensor, everything else dense or fixed. */
static bool is_direct(const targets *p, int64_t other_stride, int64_t x_stride, int64_t index_stride)
{
    int64_t element = (int64_t)p->element;
    return p->count == 1 && p->step[0] == element && other_stride == element && x_stride == 0 &&
           index_stride == (int64_t)sizeof(int64_t);
}

#define AT_INDEX(i) row[wrap ? wrapped(index[i], size) : index[i]]
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
            if (!p->checked && !all_inside(at, m, below, (uint64_t)p->size[0] + below)) {
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

/* True if each index tensor moves along the outer one of two dimensions alone: then rows of x are moved. */
static bool is_rows(const targets *p, const yk__loop *loop)
{
    return loop->ndim == 2 && is_fixed(p, loop->stride[0] + 2);
}

typedef void (*row_fn)(const targets *p, int64_t n, char *x, int64_t x_stride, char *other, int64_t other_stride);

/* Computes elements [begin, end) of such a loop: rows and, at both ends, parts of some. False at an index outside; rows
 * before it in its block have not been done then. */
static inline __attribute__((always_inline)) bool rows_piece(const yk__loop *loop, const targets *p, int64_t begin,
                                                             int64_t end, row_fn fn)
{
    const int64_t width = loop->shape[0], *inner = loop->stride[0], *outer = loop->stride[1];
    int64_t offset[BLOCK];
    while (begin < end) {
        int64_t row = begin / width, column = begin % width, rows = column ? 0 : (end - begin) / width;
        int64_t n = rows ? width : width - column < end - begin ? width - column : end - begin;
        rows = rows == 0 ? 1 : rows < BLOCK ? rows : BLOCK;
        char *data[2 + FUSED];
        for (int k = 0; k < 2 + p->count; k++)
            data[k] = loop->data[k] + row * outer[k] + column * inner[k];
        if (!offsets(p, rows, data + 2, outer + 2, offset))
            return false;
        int64_t ahead = yk__rows_ahead(n * (int64_t)p->element);
        for (int64_t r = 0; r < rows; r++) {
            if (r + ahead < rows)
                yk__fetch_row(data[1] + (r + ahead) * outer[1] + offset[r + ahead], n * (int64_t)p->element);
            fn(p, n, data[1] + r * outer[1] + offset[r], inner[1], data[0] + r * outer[0], inner[0]);
        }
        begin += rows == 1 ? n : rows * width;
    }
    return true;
}

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

/* Elements along a dimension that has few: the lines of x, of the index and of the other operand follow each other, so
 * that a call for each line would weigh more than its elements. */
enum { SHORT_LINE = 64 };

typedef struct short_lines {
    const yk__loop *loop;
    const targets *at;
} short_lines;

static bool is_short_lines(const targets *p, const yk__loop *loop)
{
    return loop->ndim == 2 && loop->shape[0] <= SHORT_LINE && !p->wrap && !p->shared &&
           is_direct(p, loop->stride[0][0], loop->stride[0][1], loop->stride[0][2]);
}

/* `lines` of n elements each, of which 2, 3 and 4 are constants. */
#define LINES(T, EACH)                                                                                                 \
    {                                                                                                                  \
        if (n == 2)                                                                                                    \
            LINES_OF(T, 2, EACH)                                                                                       \
        else if (n == 3)                                                                                               \
            LINES_OF(T, 3, EACH)                                                                                       \
        else if (n == 4)                                                                                               \
            LINES_OF(T, 4, EACH)                                                                                       \
        else                                                                                                           \
            LINES_OF(T, n, EACH)                                                                                       \
        return;                                                                                                        \
    }
#define LINES_OF(T, N, EACH)                                                                                           \
    for (int64_t r = 0; r < lines; r++, x += step[1], other += step[0], index += step[2]) {                            \
        T *row = (T *)x, *line = (T *)other;                                                                           \
        const int64_t *at = (const int64_t *)index;                                                                    \
        for (int64_t i = 0; i < N; i++) {                                                                              \
            EACH;                                                                                                      \
        }                                                                                                              \
    }
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
        if (!p->checked && !all_inside((const int64_t *)data[2], m * n, 0, (uint64_t)p->size[0])) {
            atomic_store_explicit(p->bad, true, memory_order_relaxed);
            return;
        }
        read_lines(p, n, m, data[0], data[1], data[2], step);
        for (int k = 0; k < 3; k++)
            data[k] += m * step[k];
    }
}

/* ---- errors ---- */

/* The view without the dimensions that it is only repeated along. */
static yk__view own_part(const yk__view *v)
{
    yk__view own = *v;
    for (int d = 0; d < own.ndim; d++)
        if (own.stride[d] == 0 && own.shape[d] > 1)
            own.shape[d] = 1;
    return own;
}

typedef struct search {
    uint64_t below, room;
    atomic_bool *bad;
    const int64_t *found; /* the first outside, where one thread looks */
} search;

static void check_run(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)
{
    (void)first;
    const search *s = context;
    uint64_t outside = 0;
    if (stride[0] == (int64_t)sizeof(int64_t)) {
        outside = !all_inside((const int64_t *)data[0], n, s->below, s->room);
    } else {
        for (int64_t i = 0; i < n; i++)
            outside |= (uint64_t) * (const int64_t *)(data[0] + i * stride[0]) + s->below >= s->room;
    }
    if (outside)
        atomic_store_explicit(s->bad, true, memory_order_relaxed);
}

static void find_run(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)
{
    (void)first;
    search *s = (search *)context;
    for (int64_t i = 0; i < n && !s->found; i++) {
        const int64_t *at = (const int64_t *)(data[0] + i * stride[0]);
        if ((uint64_t)*at + s->below >= s->room)
            s->found = at;
    }
}

static search search_of(const yk__indices *p, int k, atomic_bool *bad)
{
    uint64_t size = (uint64_t)p->of[k].size, below = p->wrap ? size : 0;
    return (search){.below = below, .room = size + below, .bad = bad};
}

/* The error of the first index, in C order, that is outside. */
static yk_status fail_outside(const yk__indices *p)
{
    for (int k = 0; k < p->count; k++) {
        search s = search_of(p, k, NULL);
        yk__view own = own_part(&p->of[k].view);
        const yk__view *views[] = {&own};
        yk__loop loop;
        yk__loop_init(&loop, 1, views, true);
        yk__loop_job job = {&loop, find_run, &s};
        if (loop.total)
            yk__loop_piece(&job, 0, loop.total, 0);
        if (s.found)
            return yk__fail(YK_ERR_ARGUMENT, "%s: index %lld is outside dimension %d of size %lld", p->name,
                            (long long)*s.found, p->of[k].dim, (long long)p->of[k].size);
    }
    return YK_OK;
}

static yk_status indices_check(int device, const yk__indices *p)
{
    atomic_bool bad = false;
    for (int k = 0; k < p->count; k++) {
        search s = search_of(p, k, &bad);
        yk__view own = own_part(&p->of[k].view);
        const yk__view *views[] = {&own};
        yk__loop loop;
        yk__loop_init(&loop, 1, views, false);
        yk__loop_run(device, &loop, YK__GRAIN, check_run, &s);
    }
    return atomic_load(&bad) ? fail_outside(p) : YK_OK;
}

/* ---- many index tensors ---- */

static void add_run(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)
{
    const targets *p = context;
    int64_t offset[BLOCK];
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t m = n - i < BLOCK ? n - i : BLOCK;
        char *index[] = {data[1] + i * stride[1]};
        offsets(p, m, index, stride + 1, offset);
        for (int64_t j = 0; j < m; j++) {
            int64_t *to = (int64_t *)(data[0] + (i + j) * stride[0]);
            *to = (p->accumulate ? *to : 0) + offset[j];
        }
    }
    (void)first;
}

/*
 * Fills in the operands of the loop over `shape_of` (the output, or the value) and x: views[2] and on. More than FUSED
 * index tensors, which are checked then, become one of elements of x in *scratch.
 */
static yk_status operands(int device, const yk__view *shape_of, const yk__indices *p, targets *to, yk__view *sum,
                          const yk__view **views, yk__storage **scratch)
{
    to->wrap = p->wrap;
    to->count = p->count;
    *scratch = NULL;
    if (p->count <= FUSED) {
        for (int k = 0; k < p->count; k++) {
            views[2 + k] = &p->of[k].view;
            to->size[k] = p->of[k].size;
            to->step[k] = p->of[k].stride * (int64_t)to->element;
        }
        return YK_OK;
    }
    *sum = *shape_of;
    sum->dtype = YK_I64;
    int64_t step = 1, extent = 1;
    for (int d = sum->ndim - 1; d >= 0; d--) {
        sum->stride[d] = step;
        step *= sum->shape[d];
    }
    if (indices_check(device, p))
        return yk__error_code();
    sum->data = yk__workspace_get((yk_device){YK_CPU, (int16_t)device}, (size_t)step * sizeof(int64_t), scratch);
    if (!sum->data)
        return yk__error_code();
    for (int k = 0; k < p->count; k++) {
        targets one = {
            .count = 1, .wrap = p->wrap, .size = {p->of[k].size}, .step = {p->of[k].stride}, .accumulate = k > 0};
        const yk__view *pair[] = {sum, &p->of[k].view};
        yk__loop loop;
        yk__loop_init(&loop, 2, pair, false);
        yk__loop_run(device, &loop, YK__GRAIN, add_run, &one);
        extent += (p->of[k].size - 1) * p->of[k].stride;
    }
    views[2] = sum;
    to->count = 1;
    to->wrap = false;
    to->size[0] = extent;
    to->step[0] = (int64_t)to->element;
    return YK_OK;
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
    if (operands(device, out, p, &at, &sum, views, &scratch))
        return yk__error_code();
    yk__loop loop;
    yk__loop_init(&loop, 2 + at.count, views, false);
    yk__loop_job job = {&loop, read_run, &at};
    yk_status status = YK_OK;
    if (is_rows(&at, &loop)) {
        yk__cpu_parallel(device, loop.total, YK__GRAIN, read_rows, &job);
    } else {
        at.checked = is_repeated(&at, &loop);
        status = at.checked ? indices_check(device, p) : YK_OK;
        short_lines lines = {&loop, &at};
        if (!status && loop.total && is_short_lines(&at, &loop))
            yk__cpu_parallel(device, loop.shape[1], YK__GRAIN / loop.shape[0], read_short_lines, &lines);
        else if (!status)
            yk__loop_run(device, &loop, YK__GRAIN, read_run, &at);
    }
    yk__storage_release(scratch);
    return atomic_load(&bad) ? fail_outside(p) : status;
}

/* ---- index_put ---- */

/* The loop of one dtype: PUT(type, statement that writes or adds v to *to). */
#define PUT_TYPES(p, PUT)                                                                                              \
    if (!(p)->accumulate) {                                                                                            \
        switch ((p)->element) {                                                                                        \
        case 1: PUT(yk__raw8, *to = v)                                                                                 \
        case 2: PUT(yk__raw16, *to = v)                                                                                \
        case 4: PUT(yk__raw32, *to = v)                                                                                \
        default: PUT(yk__raw64, *to = v)                                                                               \
        }                                                                                                              \
    }                                                                                                                  \
    switch ((p)->dtype) {                                                                                              \
    case YK_F32: PUT(float, *to += v)                                                                                  \
    case YK_F64: PUT(double, *to += v)                                                                                 \
    case YK_I64: PUT(uint64_t, *to += v)                                                                               \
    case YK_I32: PUT(uint32_t, *to += v)                                                                               \
    case YK_U8: PUT(uint8_t, *to = (uint8_t)(*to + v))                                                                 \
    default: PUT(uint8_t, *to = (*to || v))                                                                            \
    }

/* The i-th of n elements, or the chosen[i]-th. */
#define PUT_EACH(T, WRITE)                                                                                             \
    {                                                                                                                  \
        if (chosen) {                                                                                                  \
            for (int64_t j = 0; j < n; j++) {                                                                          \
                int64_t i = chosen[j];                                                                                 \
                T *to = (T *)(x + i * x_stride + offset[i]);                                                           \
                T v = *(const T *)(value + i * value_stride);                                                          \
                WRITE;                                                                                                 \
            }                                                                                                          \
        } else {                                                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                T *to = (T *)(x + i * x_stride + offset[i]);                                                           \
                T v = *(const T *)(value + i * value_stride);                                                          \
                WRITE;                                                                                                 \
            }                                                                                                          \
        }                                                                                                              \
        return;                                                                                                        \
    }

static void put(const targets *p, int64_t n, const int64_t *chosen, char *x, int64_t x_stride, const char *value,
                int64_t value_stride, const int64_t *offset)
{
    PUT_TYPES(p, PUT_EACH)
}

/* Sums in fours, as GATHER_FOURS, written in order, for two targets may be one; plain writes take 1.4 times as long in
 * fours where the targets are far apart. */
#define PUT_DIRECT(T, WRITE)                                                                                           \
    {                                                                                                                  \
        T *row = (T *)x;                                                                                               \
        const T *from = (const T *)value;                                                                              \
        int64_t i = 0;                                                                                                 \
        for (; p->accumulate && i + 4 <= n; i += 4) {                                                                  \
            T *at[4] = {&AT_INDEX(i), &AT_INDEX(i + 1), &AT_INDEX(i + 2), &AT_INDEX(i + 3)};                           \
            const T values[4] = {from[i], from[i + 1], from[i + 2], from[i + 3]};                                      \
            for (int k = 0; k < 4; k++) {                                                                              \
                T *to = at[k], v = values[k];                                                                          \
                WRITE;                                                                                                 \
            }                                                                                                          \
        }                                                                                                              \
        for (; i < n; i++) {                                                                                           \
            T *to = &AT_INDEX(i), v = from[i];                                                                         \
            WRITE;                                                                                                     \
        }                                                                                                              \
        return;                                                                                                        \
    }

/* Writes each element to the position in x that its index is. */
static inline __attribute__((always_inline)) void put_direct(const targets *p, int64_t n, char *x, const char *value,
                                                             const int64_t *index, const bool wrap)
{
    int64_t size = p->size[0];
    PUT_TYPES(p, PUT_DIRECT)
}

/* Writes a run with one stride in x and one in value: no two of its targets are one. */
#define PUT_ROW(T, WRITE)                                                                                              \
    {                                                                                                                  \
        if (x_stride == (int64_t)sizeof(T) && value_stride == (int64_t)sizeof(T)) {                                    \
            T *row = (T *)x;                                                                                           \
            const T *from = (const T *)value;                                                                          \
            YK__INDEPENDENT for (int64_t i = 0; i < n; i++)                                                            \
            {                                                                                                          \
                T *to = row + i;                                                                                       \
                T v = from[i];                                                                                         \
                WRITE;                                                                                                 \
            }                                                                                                          \
        } else {                                                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                T *to = (T *)(x + i * x_stride);                                                                       \
                T v = *(const T *)(value + i * value_stride);                                                          \
                WRITE;                                                                                                 \
            }                                                                                                          \
        }                                                                                                              \
        return;                                                                                                        \
    }

static inline __attribute__((always_inline)) void put_row(const targets *p, int64_t n, char *x, int64_t x_stride,
                                                          char *value, int64_t value_stride)
{
    if (!p->accumulate) {
        yk__copy_strided(x, x_stride, value, value_stride, p->element, n);
        return;
    }
    switch (p->dtype) {
    case YK_F32: PUT_ROW(float, *to += v)
    case YK_F64: PUT_ROW(double, *to += v)
    case YK_I64: PUT_ROW(uint64_t, *to += v)
    case YK_I32: PUT_ROW(uint32_t, *to += v)
    case YK_U8: PUT_ROW(uint8_t, *to = (uint8_t)(*to + v))
    default: PUT_ROW(uint8_t, *to = (*to || v))
    }
}

static inline bool is_ours(const targets *p, const char *index)
{
    int64_t v = wrapped(*(const int64_t *)index, p->size[0]);
    return v >= p->low && v < p->high;
}

/* Operands: value, x, the index tensors; the indices were checked. */
static void write_run(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)
{
    (void)first;
    const targets *p = context;
    int64_t offset[BLOCK], chosen[BLOCK];
    if (is_fixed(p, stride + 2)) {
        offsets(p, 1, data + 2, stride + 2, offset);
        if (!p->shared || is_ours(p, data[2]))
            put_row(p, n, data[1] + offset[0], stride[1], data[0], stride[0]);
        return;
    }
    if (!p->shared && is_direct(p, stride[0], stride[1], stride[2])) {
        if (p->wrap)
            put_direct(p, n, data[1], data[0], (const int64_t *)data[2], true);
        else
            put_direct(p, n, data[1], data[0], (const int64_t *)data[2], false);
        return;
    }
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t m = n - i < BLOCK ? n - i : BLOCK, ours = m;
        char *index[FUSED];
        for (int k = 0; k < p->count; k++)
            index[k] = data[2 + k] + i * stride[2 + k];
        if (p->shared) {
            ours = 0;
            for (int64_t j = 0; j < m; j++) {
                chosen[ours] = j;
                ours += is_ours(p, index[0] + j * stride[2]);
            }
        }
        offsets(p, m, index, stride + 2, offset);
        put(p, ours, p->shared ? chosen : NULL, data[1] + i * stride[1], stride[1], data[0] + i * stride[0], stride[0],
            offset);
    }
}

#define WRITE_LINE(T, WRITE) LINES(T, T *to = row + at[i]; T v = line[i]; WRITE)

static void write_lines(const targets *p, int64_t n, int64_t lines, char *other, char *x, const char *index,
                        const int64_t *step)
{
    PUT_TYPES(p, WRITE_LINE)
}

/* Runs write_run over a piece, as yk__loop_piece does. */
static void write_piece(const yk__loop *loop, const targets *p, int thread)
{
    yk__loop_job job = {loop, write_run, p};
    if (is_short_lines(p, loop))
        write_lines(p, loop->shape[0], loop->shape[1], loop->data[0], loop->data[1], loop->data[2], loop->stride[1]);
    else if (is_rows(p, loop) && !p->shared)
        rows_piece(loop, p, 0, loop->total, put_row);
    else
        yk__loop_piece(&job, 0, loop->total, thread);
}

typedef struct share {
    const yk__loop *loop;
    const targets *at;
    int dim; /* that the threads share; -1: the range of the first index */
    int64_t pieces;
} share;

static void write_share(void *arg, int64_t begin, int64_t end, int thread)
{
    const share *s = arg;
    for (int64_t piece = begin; piece < end; piece++) {
        yk__loop loop = *s->loop;
        targets at = *s->at;
        int64_t size = s->dim < 0 ? at.size[0] : loop.shape[s->dim];
        int64_t from = size / s->pieces * piece + (piece < size % s->pieces ? piece : size % s->pieces);
        int64_t length = size / s->pieces + (piece < size % s->pieces);
        if (s->dim < 0) {
            at.shared = true;
            at.low = from;
            at.high = from + length;
        } else {
            loop.shape[s->dim] = length;
            loop.total = loop.total / size * length;
            for (int k = 0; k < loop.operands; k++)
                loop.data[k] += from * loop.stride[s->dim][k];
        }
        if (length)
            write_piece(&loop, &at, thread);
    }
}

/*
 * Writing along a leading dimension: each row of the index names rows of x, far apart, and a row of x comes back to the
 * cache for every element. So a few columns of x at a time are copied into a block that stays in the second-level
 * cache, all their elements are written there, and the block is copied back.
 */
/* COLUMNS_BYTES: four cache lines of each row. COLUMNS_BLOCK: bytes of a block, half of a second-level cache of 1 MiB.
 * COLUMNS_LEAST: bytes of x below which its rows stay in the cache as they are. */
enum { COLUMNS_BYTES = 256, COLUMNS_BLOCK = 512 * 1024, COLUMNS_LEAST = 1024 * 1024 };

typedef struct columns {
    const yk__loop *loop;
    const targets *at;
    char *blocks; /* one for each thread */
    int64_t width, block_bytes;
} columns;

static void write_columns(void *arg, int64_t begin, int64_t end, int thread)
{
    const columns *c = arg;
    const yk__loop *loop = c->loop;
    targets at = *c->at;
    const int64_t element = (int64_t)at.element, rows = at.size[0], step = at.step[0];
    char *block = c->blocks + thread * c->block_bytes;
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t first = piece * c->width, left = loop->shape[0] - first, width = left < c->width ? left : c->width;
        char *x = loop->data[1] + first * element;
        at.step[0] = width * element;
        for (int64_t r = 0; r < rows; r++)
            memcpy(block + r * at.step[0], x + r * step, (size_t)at.step[0]);
        for (int64_t i = 0; i < loop->shape[1]; i++) {
            char *data[YK__LOOP_OPERANDS] = {loop->data[0] + i * loop->stride[1][0] + first * loop->stride[0][0], block,
                                             loop->data[2] + i * loop->stride[1][2] + first * loop->stride[0][2]};
            write_run(&at, 0, width, data, loop->stride[0]);
        }
        for (int64_t r = 0; r < rows; r++)
            memcpy(x + r * step, block + r * at.step[0], (size_t)at.step[0]);
    }
}

/* Writes in blocks of columns where that pays, and sets *done. */
static yk_status put_columns(int device, const yk__loop *loop, const targets *at, bool *done)
{
    const int64_t element = (int64_t)at->element, width = COLUMNS_BYTES / element;
    *done = false;
    if (loop->ndim != 2 || at->count != 1 || loop->stride[0][1] != element || loop->stride[1][1] != 0 ||
        loop->stride[0][2] == 0 || loop->stride[1][2] == 0 || at->step[0] < loop->shape[0] * element ||
        loop->shape[0] < width || at->size[0] > 2 * loop->shape[1] || at->size[0] * COLUMNS_BYTES > COLUMNS_BLOCK ||
        at->size[0] * at->step[0] < COLUMNS_LEAST)
        return YK_OK;
    columns c = {.loop = loop, .at = at, .width = width, .block_bytes = at->size[0] * COLUMNS_BYTES};
    yk__storage *scratch;
    c.blocks = yk__workspace_get((yk_device){YK_CPU, (int16_t)device},
                                 (size_t)(yk__cpu_threads(device) * c.block_bytes), &scratch);
    if (!c.blocks)
        return yk__error_code();
    yk__cpu_parallel(device, yk__ceil_div(loop->shape[0], width), 1, write_columns, &c);
    yk__storage_release(scratch);
    *done = true;
    return YK_OK;
}

static yk_status index_put(int device, const yk__view *x, const yk__view *value, const yk__indices *p, bool accumulate)
{
    targets at = {.element = yk_dtype_size(x->dtype), .dtype = x->dtype, .accumulate = accumulate};
    const yk__view *views[2 + FUSED] = {value, x};
    yk__view sum;
    yk__storage *scratch;
    if (indices_check(device, p) || operands(device, value, p, &at, &sum, views, &scratch))
        return yk__error_code();
    yk__loop loop;
    yk__loop_init(&loop, 2 + at.count, views, true);
    share s = {.loop = &loop, .at = &at, .dim = -1, .pieces = yk__cpu_threads(device)};
    if (loop.total <= YK__GRAIN)
        s.pieces = 1;
    /* Elements that are apart along a dimension of x are two positions wherever the indices lead. */
    for (int d = loop.ndim - 1; d >= 0 && s.dim < 0; d--)
        if (loop.shape[d] >= s.pieces && loop.stride[d][1] != 0)
            s.dim = d;
    bool done = loop.total == 0;
    yk_status status = done ? YK_OK : put_columns(device, &loop, &at, &done);
    if (status || done)
        ;
    else if (s.pieces == 1)
        write_piece(&loop, &at, 0);
    else
        yk__cpu_parallel(device, s.pieces, 1, write_share, &s);
    yk__storage_release(scratch);
    return status;
}

void YK__ISA_NAME(yk__cpu_fill_index)(yk__backend *table)
{
    table->index = index_read;
    table->index_put = index_put;
    YK__ISA_NAME(yk__cpu_fill_nonzero)(table);
}
