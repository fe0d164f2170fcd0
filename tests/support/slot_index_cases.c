/* slot_index_cases.c - indexing, sorting, scans: part of slot_cases.c. */
#include "tests/support/slot_pairs.h"

static const yk_device cuda = {YK_CUDA, 0};

/* Index tensors of a value of `shape`, in x of `x_shape`; kinds: 0 rows by one tensor (M), 1 pairs (M) of the first two
 * dimensions, 2 gather along dimension 0, 3 rows with a mask-like column index (M,1) (1,N); 4 and 5 rows whose bytes
 * can be moved by 16, 8 or 4. */
enum { INDEX_KINDS = 6, M = 37, COLUMNS = 11, X_ROWS = 7, X_COLUMNS = 13 };
typedef struct index_case_data {
    pair x, value, index[2];
    yk__indices cpu, gpu;
} index_case_data;

/* True if rows of columns_of(kind) elements are moved, not single elements. */
static bool of_rows(int kind)
{
    return kind == 0 || kind >= 4;
}
static int64_t columns_of(int kind)
{
    return kind == 4 ? 24 : kind == 5 ? 20 : COLUMNS;
}

static bool make_index(index_case_data *d, slot_report *r, yk_dtype dtype, int kind, bool wrap, int layout)
{
    const int64_t rows = M, x_shape[] = {X_ROWS, of_rows(kind) ? columns_of(kind) : X_COLUMNS};
    const int64_t value_shape[] = {M, columns_of(kind)};
    int value_dims = kind == 1 ? 1 : 2, tensors = kind == 1 || kind == 3 ? 2 : 1;
    memset(d, 0, sizeof(*d));
    if (!pair_make(&d->x, r, dtype, 2, x_shape, layout) || !pair_make(&d->value, r, dtype, value_dims, value_shape, 0))
        return false;
    d->cpu = (yk__indices){.name = "index_case", .count = tensors, .wrap = wrap};
    for (int k = 0; k < tensors; k++) {
        bool full = kind == 2, column = kind == 3 && k == 1;
        const int64_t own[] = {column ? COLUMNS : rows, COLUMNS};
        int64_t size = d->x.cpu.shape[k];
        if (!pair_make(&d->index[k], r, YK_I64, full ? 2 : 1, own, C_ORDER) ||
            !pair_fill_range(&d->index[k], r, (uint32_t)(5 + k), wrap ? -(double)size : 0, (double)size))
            return false;
        d->cpu.of[k].dim = k, d->cpu.of[k].size = size, d->cpu.of[k].stride = d->x.cpu.stride[k];
    }
    d->gpu = d->cpu;
    for (int k = 0; k < tensors; k++) {
        for (int side = 0; side < 2; side++) {
            yk__view v = side ? d->index[k].gpu : d->index[k].cpu;
            if (kind == 3 && k == 1) {
                v.stride[1] = v.stride[0];
                v.stride[0] = 0;
            } else if (of_rows(kind) || kind == 3) {
                v.stride[1] = 0;
            }
            v.ndim = value_dims;
            for (int i = 0; i < value_dims; i++)
                v.shape[i] = value_shape[i];
            (side ? &d->gpu : &d->cpu)->of[k].view = v;
        }
    }
    return true;
}

/* x as the slots take it: of the value's shape, still where only an index moves. */
static yk__view expanded(const yk__view *x, const yk__view *value, int kind)
{
    yk__view v = *x;
    v.ndim = value->ndim;
    for (int d = 0; d < value->ndim; d++)
        v.shape[d] = value->shape[d];
    v.stride[0] = 0;
    v.stride[1] = of_rows(kind) || kind == 2 ? x->stride[1] : 0;
    return v;
}

static void free_index(index_case_data *d)
{
    pair_free(&d->x);
    pair_free(&d->value);
    for (int k = 0; k < 2; k++)
        if (d->index[k].cpu.data)
            pair_free(&d->index[k]);
}

/* True if both backends declare the dtype for a slot. */
static bool both_take(yk__slot slot, yk_dtype dtype)
{
    return slot_cpu->takes[slot] & slot_gpu->takes[slot] & 1u << dtype;
}

/* op: 0 read, 1 write, 2 add */
static void index_case(const slot_case *self, slot_report *r)
{
    for (int k = 0; k < YK__DTYPES * INDEX_KINDS * 2 && slot_ready(r) && !r->failed; k++) {
        yk_dtype dtype = (yk_dtype)(k % YK__DTYPES);
        int kind = k / YK__DTYPES % INDEX_KINDS;
        if (self->op == 2 && !both_take(YK__SLOT_index_put, dtype))
            continue;
        index_case_data d;
        bool wrap = k / YK__DTYPES / INDEX_KINDS;
        if (make_index(&d, r, dtype, kind, wrap, kind >= 4 && wrap ? C_ORDER : k % LAYOUTS) &&
            pair_fill_range(&d.x, r, 1, -50, 50) && pair_fill_range(&d.value, r, 2, 0, 90)) {
            yk__view cpu = expanded(&d.x.cpu, &d.value.cpu, kind), gpu = expanded(&d.x.gpu, &d.value.cpu, kind);
            yk_status a, b;
            if (self->op == 0) {
                a = slot_cpu->index(0, &d.value.cpu, &cpu, &d.cpu);
                b = slot_gpu->index(0, &d.value.gpu, &gpu, &d.gpu);
            } else {
                a = slot_cpu->index_put(0, &cpu, &d.value.cpu, &d.cpu, self->op == 2);
                b = slot_gpu->index_put(0, &gpu, &d.value.gpu, &d.gpu, self->op == 2);
            }
            if (slot_done(r, "cpu", a) && slot_done(r, "cuda", b)) {
                pair_compare(r, "value", &d.value, 0);
                pair_compare(r, "x", &d.x, 0);
            }
        }
        free_index(&d);
    }
}

/* An index outside: the error names it and its dimension, and a write has changed nothing. */
static void outside_case(const slot_case *self, slot_report *r)
{
    for (int kind = 0; kind < INDEX_KINDS && slot_ready(r) && !r->failed; kind++) {
        index_case_data d;
        if (make_index(&d, r, YK_F32, kind, true, C_ORDER) && pair_fill_range(&d.x, r, 1, -50, 50)) {
            int64_t *index = d.index[kind == 1].cpu.data;
            index[9] = 99, index[30] = -99;
            pair_upload(&d.index[kind == 1], r);
            yk__view gpu = expanded(&d.x.gpu, &d.value.cpu, kind);
            yk_status queued = self->op ? slot_gpu->index_put(0, &gpu, &d.value.gpu, &d.gpu, kind % 2)
                                        : slot_gpu->index(0, &d.value.gpu, &gpu, &d.gpu);
            slot_done(r, "the call", queued);
            yk_status found = slot_gpu->synchronize(0);
            char text[100];
            snprintf(text, sizeof(text), "index_case: index 99 is outside dimension %d of size %d", kind == 1,
                     kind == 1 ? X_COLUMNS : X_ROWS);
            if (found != YK_ERR_ARGUMENT || !yk_last_error() || !strstr(yk_last_error()->message, text))
                slot_fail(r, "status %d, '%s', expected '%s'", found, yk_last_error() ? yk_last_error()->message : "",
                          text);
            yk_clear_error();
            pair_compare(r, "x", &d.x, 0);
            slot_done(r, "the next", slot_gpu->synchronize(0));
        }
        free_index(&d);
    }
}

static void nonzero_case(const slot_case *self, slot_report *r)
{
    static const int64_t shapes[][3] = {{3, 5, 7}, {1, 1, 1}, {40, 61, 3}, {4, 0, 2}};
    (void)self;
    for (int k = 0; k < 4 * (LAYOUTS + 1) && slot_ready(r) && !r->failed; k++) {
        const int64_t *shape = shapes[k % 4];
        pair x = {0}, out = {0};
        int64_t count = -1, found = -1;
        if (pair_make(&x, r, YK_BOOL, 3, shape, k / 4) && pair_fill_range(&x, r, (uint32_t)k, 0, k % 3 ? 2 : 1.01) &&
            slot_done(r, "cpu", slot_cpu->nonzero(0, &x.cpu, &count, NULL)) &&
            slot_done(r, "cuda", slot_gpu->nonzero(0, &x.gpu, &found, NULL))) {
            const int64_t positions[] = {count, 3};
            r->compared++;
            if (found != count)
                slot_fail(r, "%lld elements are found, the CPU finds %lld", (long long)found, (long long)count);
            if (!r->failed && pair_make(&out, r, YK_I64, 2, positions, k % LAYOUTS) &&
                slot_done(r, "cpu", slot_cpu->nonzero(0, &x.cpu, &count, &out.cpu)) &&
                slot_done(r, "cuda", slot_gpu->nonzero(0, &x.gpu, &found, &out.gpu)))
                pair_compare(r, "positions", &out, 0);
            pair_free(&out);
        }
        pair_free(&x);
    }
}

static void argsort_case(const slot_case *self, slot_report *r)
{
    static const int64_t shapes[][3] = {{3, 5, 7}, {1, 1, 1}, {2, 700, 2}, {4, 0, 2}};
    for (int k = 0; k < YK__DTYPES * 4 * 3 && slot_ready(r) && !r->failed; k++) {
        yk_dtype dtype = (yk_dtype)(k % YK__DTYPES);
        const int64_t *shape = shapes[k / YK__DTYPES % 4];
        int dim = k / YK__DTYPES / 4;
        if (!both_take(YK__SLOT_argsort, dtype) || shape[dim] == 0)
            continue;
        int64_t some[3] = {shape[0], shape[1], shape[2]}; /* all of each line, half, or about a tenth */
        some[dim] = k % 3 ? shape[dim] / (k % 3 == 1 ? 2 : 10) : shape[dim];
        pair x = {0}, index = {0};
        if (pair_make(&x, r, dtype, 3, shape, k % (LAYOUTS + 1)) && pair_fill(&x, r, (uint32_t)k) &&
            pair_make(&index, r, YK_I64, 3, some, k % LAYOUTS) &&
            slot_done(r, "cpu", slot_cpu->argsort(0, &index.cpu, &x.cpu, dim, self->op)) &&
            slot_done(r, "cuda", slot_gpu->argsort(0, &index.gpu, &x.gpu, dim, self->op)))
            pair_compare(r, yk_dtype_name(dtype), &index, 0);
        pair_free(&index);
        pair_free(&x);
    }
}

/* Short lines; longer ones than a block has threads, few of them, each of which is a block, or side by side; and so
 * long ones that they are cut into parts. */
static void scan_case(const slot_case *self, slot_report *r)
{
    static const struct {
        int64_t shape[3];
        int dim;
    } of[] = {{{3, 5, 7}, 0},     {{3, 5, 7}, 1},    {{3, 5, 7}, 2},    {{1, 1, 1}, 1},    {{700, 2, 2}, 0},
              {{2, 700, 2}, 1},   {{2, 2, 700}, 2},  {{4, 0, 2}, 0},    {{2, 300, 40}, 1}, {{1100, 3, 11}, 0},
              {{1, 1100, 40}, 1}, {{1, 1, 9000}, 2}, {{2, 9001, 1}, 1}, {{1, 2, 2048}, 2}};
    enum { SHAPES = sizeof(of) / sizeof(of[0]) };
    for (int k = 0; k < YK__DTYPES * SHAPES * 2 && slot_ready(r) && !r->failed; k++) {
        yk_dtype dtype = (yk_dtype)(k % YK__DTYPES);
        const int64_t *shape = of[k / YK__DTYPES % SHAPES].shape;
        int dim = of[k / YK__DTYPES % SHAPES].dim;
        bool reverse = k / YK__DTYPES / SHAPES, product = self->op == YK__CUMPROD;
        double apart = shape[dim] < 1000 ? 0.1 : 0.001; /* of factors from 1: products stay near it */
        if (!both_take(YK__SLOT_scan, dtype))
            continue;
        for (int layout = 0; layout <= LAYOUTS && !r->failed; layout++) {
            pair x = {0}, out = {0};
            if (pair_make(&x, r, dtype, 3, shape, layout) &&
                pair_fill_range(&x, r, (uint32_t)k, product ? 1 - apart : -9, product ? 1 + apart : 9) &&
                pair_make(&out, r, dtype, 3, shape, layout ? k % LAYOUTS : 0) &&
                slot_done(r, "cpu", slot_cpu->scan(0, (yk__scan)self->op, &out.cpu, &x.cpu, dim, reverse)) &&
                slot_done(r, "cuda", slot_gpu->scan(0, (yk__scan)self->op, &out.gpu, &x.gpu, dim, reverse)))
                pair_compare_sums(r, yk_dtype_name(dtype), &out, dtype == YK_I64 ? 0 : dtype == YK_F64 ? 1e-13 : 1e-7);
            pair_free(&out);
            pair_free(&x);
        }
    }
}

/* The public functions above these slots, on tensors of a GPU. */
static void public_case(const slot_case *self, slot_report *r)
{
    (void)self;
    if (!slot_ready(r))
        return;
    yk_scope scope = yk_scope_begin();
    const float numbers[] = {3, -1, 4, -1, 5, -9, 2, 6};
    const int64_t shape[] = {2, 4}, expected_order[] = {1, 3, 0, 2, 1, 2, 0, 3};
    int64_t order[8];
    float total[8];
    yk_tensor *x = yk_to(yk_from_data(numbers, 2, shape, NULL), cuda);
    yk_tensor *sorted = yk_argsort(x, 1, false), *sums = yk_cumsum(x, 1);
    if (!slot_done(r, "argsort", yk_tensor_read(sorted, order, sizeof(order))) ||
        !slot_done(r, "cumsum", yk_tensor_read(sums, total, sizeof(total)))) {
        yk_scope_end(scope);
        return;
    }
    const float expected_sums[] = {3, 2, 6, 5, 5, -4, -2, 4};
    if (memcmp(order, expected_order, sizeof(order)) != 0 || memcmp(total, expected_sums, sizeof(total)) != 0)
        slot_fail(r, "the order or the running sums of a small matrix are wrong");
    r->compared += 16;
    yk_scope_end(scope);
}

const slot_case slot_index_cases[] = {
    {"index", "read", index_case, 0},
    {"index", "write", index_case, 1},
    {"index", "add", index_case, 2},
    {"index", "read_outside", outside_case, 0},
    {"index", "write_outside", outside_case, 1},
    {"nonzero", "all", nonzero_case, 0},
    {"argsort", "ascending", argsort_case, 0},
    {"argsort", "descending", argsort_case, 1},
    {"scan", "sums", scan_case, YK__CUMSUM},
    {"scan", "products", scan_case, YK__CUMPROD},
    {"index", "public", public_case, 0},
    {NULL, NULL, NULL, 0},
};
