/*
 * order.c - the slots argsort and scan: what goes along one dimension. Layer: device/cpu.
 *
 * Elements become unsigned keys of the same order, which are sorted with their positions, eight bits at a time from the
 * lowest (radix sort), so that equal ones stay in order; a short line by insertion. The lines are shared by the
 * threads.
 */
#include <math.h>
#include <stdlib.h>

#include "device/cpu/iterate.h"

/* The line through an element: the other dimensions are the loop's. */
typedef struct lines {
    yk__loop loop;                        /* out, x at the beginning of each line */
    int64_t length, out_stride, x_stride; /* bytes */
    yk_dtype dtype;
    bool flipped; /* descending, or reverse */
    yk__scan op;
} lines;

static lines lines_of(const yk__view *out, const yk__view *x, int dim, bool flipped)
{
    yk__view first[2] = {*out, *x};
    lines l = {.dtype = x->dtype, .flipped = flipped, .length = 1};
    if (x->ndim) {
        l.length = x->shape[dim];
        l.out_stride = out->stride[dim] * (int64_t)yk_dtype_size(out->dtype);
        l.x_stride = x->stride[dim] * (int64_t)yk_dtype_size(x->dtype);
        first[0].shape[dim] = first[1].shape[dim] = 1;
    }
    const yk__view *views[] = {&first[0], &first[1]};
    yk__loop_init(&l.loop, 2, views, false);
    return l;
}

static int64_t lines_per_piece(const lines *l)
{
    return l->length >= YK__GRAIN ? 1 : YK__GRAIN / l->length;
}

/* ---- argsort ---- */

typedef struct entry {
    uint64_t key;
    int64_t at;
} entry;

enum { SHORT = 40, DIGITS = 256 };

/* NaN behind everything, -0 as 0; integers with their sign bit turned. */
static inline uint64_t key_of(const char *x, yk_dtype dtype)
{
    switch (dtype) {
    case YK_F32: {
        float value = *(const float *)x;
        uint32_t bits;
        if (value != value)
            return UINT32_MAX;
        value = value == 0 ? 0 : value;
        memcpy(&bits, &value, sizeof(bits));
        return bits >> 31 ? ~bits : bits | 0x80000000u;
    }
    case YK_F64: {
        double value = *(const double *)x;
        uint64_t bits;
        if (value != value)
            return UINT64_MAX;
        value = value == 0 ? 0 : value;
        memcpy(&bits, &value, sizeof(bits));
        return bits >> 63 ? ~bits : bits | ((uint64_t)1 << 63);
    }
    case YK_I64: return (uint64_t) * (const int64_t *)x ^ ((uint64_t)1 << 63);
    case YK_I32: return (uint32_t) * (const int32_t *)x ^ 0x80000000u;
    case YK_BOOL: return *(const uint8_t *)x != 0;
    default: return *(const uint8_t *)x;
    }
}

static entry *sort_entries(entry *from, entry *to, int64_t n, int bytes)
{
    if (n <= SHORT) {
        for (int64_t i = 1; i < n; i++) {
            entry e = from[i];
            int64_t j = i;
            for (; j > 0 && from[j - 1].key > e.key; j--)
                from[j] = from[j - 1];
            from[j] = e;
        }
        return from;
    }
    for (int digit = 0; digit < bytes; digit++) {
        int64_t count[DIGITS] = {0}, sum = 0;
        int shift = 8 * digit;
        for (int64_t i = 0; i < n; i++)
            count[from[i].key >> shift & 255]++;
        if (count[from[0].key >> shift & 255] == n)
            continue;
        for (int k = 0; k < DIGITS; k++) {
            int64_t here = count[k];
            count[k] = sum;
            sum += here;
        }
        for (int64_t i = 0; i < n; i++)
            to[count[from[i].key >> shift & 255]++] = from[i];
        entry *swap = from;
        from = to;
        to = swap;
    }
    return from;
}

/* Of one thread, or with room for all. */
typedef struct sorting {
    const lines *l;
    entry *scratch; /* 2 lines for each thread */
} sorting;

static void sort_run(const lines *l, entry *a, int64_t n, char *const *data, const int64_t *stride)
{
    int bytes = (int)yk_dtype_size(l->dtype);
    uint64_t mask = bytes == 8 ? UINT64_MAX : ((uint64_t)1 << (8 * bytes)) - 1;
    for (int64_t i = 0; i < n; i++) {
        const char *x = data[1] + i * stride[1];
        char *out = data[0] + i * stride[0];
        for (int64_t k = 0; k < l->length; k++) {
            uint64_t key = key_of(x + k * l->x_stride, l->dtype);
            a[k] = (entry){l->flipped ? ~key & mask : key, k};
        }
        const entry *sorted = sort_entries(a, a + l->length, l->length, bytes);
        for (int64_t k = 0; k < l->length; k++)
            *(int64_t *)(out + k * l->out_stride) = sorted[k].at;
    }
}

static void sort_lines(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)
{
    (void)first;
    const sorting *c = context;
    sort_run(c->l, c->scratch, n, data, stride);
}

static void sort_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    const sorting *s = arg;
    sorting c = {s->l, s->scratch + 2 * s->l->length * thread};
    yk__loop_job job = {&s->l->loop, sort_lines, &c};
    yk__loop_piece(&job, begin, end, thread);
}

static yk_status argsort(int device, const yk__view *index, const yk__view *x, int dim, bool descending)
{
    lines l = lines_of(index, x, dim, descending);
    if (l.loop.total == 0)
        return YK_OK;
    int64_t grain = lines_per_piece(&l);
    int threads = l.loop.total > grain ? yk__cpu_threads(device) : 1;
    yk__storage *handle = NULL;
    sorting s = {.l = &l};
    s.scratch = yk__workspace_get((yk_device){YK_CPU, (int16_t)device},
                                  2 * (size_t)l.length * (size_t)threads * sizeof(entry), &handle);
    if (!s.scratch)
        return yk__error_code();
    if (threads == 1)
        sort_piece(&s, 0, l.loop.total, 0);
    else
        yk__cpu_parallel(device, l.loop.total, grain, sort_piece, &s);
    yk__storage_release(handle);
    return YK_OK;
}

/* ---- scan ---- */

#define SCAN(T, Sum, combine)                                                                                          \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        int64_t last = l->length - 1;                                                                                  \
        const char *x = data[1] + i * stride[1] + (l->flipped ? last * l->x_stride : 0);                               \
        char *out = data[0] + i * stride[0] + (l->flipped ? last * l->out_stride : 0);                                 \
        int64_t x_step = l->flipped ? -l->x_stride : l->x_stride;                                                      \
        int64_t out_step = l->flipped ? -l->out_stride : l->out_stride;                                                \
        Sum sum = (Sum) * (const T *)x;                                                                                \
        *(T *)out = (T)sum;                                                                                            \
        for (int64_t k = 1; k < l->length; k++) {                                                                      \
            sum = sum combine(Sum) * (const T *)(x + k * x_step);                                                      \
            *(T *)(out + k * out_step) = (T)sum;                                                                       \
        }                                                                                                              \
    }                                                                                                                  \
    return;

static void scan_lines(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)
{
    (void)first;
    const lines *l = context;
    bool adds = l->op == YK__CUMSUM;
    switch (l->dtype) {
    case YK_F32:
        if (adds) {
            SCAN(float, double, +)
        }
        SCAN(float, double, *)
    case YK_F64:
        if (adds) {
            SCAN(double, double, +)
        }
        SCAN(double, double, *)
    default:
        if (adds) {
            SCAN(uint64_t, uint64_t, +)
        }
        SCAN(uint64_t, uint64_t, *)
    }
}

static yk_status scan(int device, yk__scan op, const yk__view *out, const yk__view *x, int dim, bool reverse)
{
    lines l = lines_of(out, x, dim, reverse);
    l.op = op;
    yk__loop_run(device, &l.loop, lines_per_piece(&l), scan_lines, &l);
    return YK_OK;
}

void YK__ISA_NAME(yk__cpu_fill_order)(yk__backend *table)
{
    table->argsort = argsort;
    table->scan = scan;
}
