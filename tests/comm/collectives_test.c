/*
 * collectives_test.c - the rules for every backend of collectives: each operation, by each dtype, at sizes from nothing
 * to more than the staging areas hold, against sums in float64; the same bits on every rank.
 */
#include "tests/comm/ranks.h"
#include "tests/comm/reduction_reference.h"
#include "tests/support/machine.h"
#include "tests/support/test_device.h"

#include <yoke/ops.h>

#include "tensor/tensor.h"

static const yk_dtype dtypes[] = {YK_F32, YK_F64, YK_F16, YK_BF16, YK_I64, YK_I32, YK_U8, YK_BOOL};
static const int64_t sizes[] = {0, 1, 7, 5003, 20011, 70001};

/* Element i of rank r: small integers and halves, which all dtypes hold, and whose sums and products are exact. */
static double value(yk_dtype dtype, int r, int64_t i)
{
    int v = (int)((i * 7 + r * 3 + i / 11) % 5);
    if (dtype == YK_BOOL)
        return v < 2;
    if (dtype == YK_U8)
        return v;
    return yk_dtype_is_floating(dtype) ? (v - 2) * 0.5 : v - 2;
}

static double combined(yk_reduce_op op, yk_dtype dtype, int ranks, int64_t i)
{
    double all = value(dtype, 0, i);
    for (int r = 1; r < ranks; r++) {
        double v = value(dtype, r, i);
        all = op == YK_OP_PRODUCT ? all * v : op == YK_OP_MIN ? fmin(all, v) : op == YK_OP_MAX ? fmax(all, v) : all + v;
    }
    if (dtype == YK_BOOL)
        return all != 0;
    return op == YK_OP_MEAN ? all / ranks : all;
}

/* A value of the dtype back as a double. */
static double element(yk_tensor *x, const void *data, int64_t i)
{
    const char *p = data;
    uint16_t h;
    float f;
    double d;
    int64_t l;
    int32_t n;
    switch (yk_tensor_dtype(x)) {
    case YK_F32: return memcpy(&f, p + 4 * i, 4), (double)f;
    case YK_F64: return memcpy(&d, p + 8 * i, 8), d;
    case YK_I64: return memcpy(&l, p + 8 * i, 8), (double)l;
    case YK_I32: return memcpy(&n, p + 4 * i, 4), (double)n;
    case YK_BF16: {
        memcpy(&h, p + 2 * i, 2);
        uint32_t bits = (uint32_t)h << 16;
        memcpy(&f, &bits, 4);
        return (double)f;
    }
    case YK_F16: {
        memcpy(&h, p + 2 * i, 2);
        int exponent = (h >> 10) & 31, mantissa = h & 1023;
        double m = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
        return h & 0x8000 ? -m : m;
    }
    default: return (double)(unsigned char)p[i];
    }
}

/* A tensor in one of three kinds of memory: shared, private, and private with holes. */
static yk_tensor *make(int kind, int64_t count, yk_dtype dtype)
{
    yk_tensor_options o = *YK_OPTIONS(yk_tensor_options, .dtype = dtype);
    if (kind == 0 && !test_gpus)
        return yk_comm_alloc(1, &count, &o);
    if (kind < 2)
        return yk_empty(1, &count, &o);
    yk_tensor *wide = yk_empty(2, (int64_t[]){count, 3}, &o);
    return yk_select(wide, 1, 1);
}

static yk_status fill(yk_tensor *x, const double *values)
{
    int64_t n = yk_numel(x);
    yk_tensor *wide = yk_from_data(values, 1, &n, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    return wide ? yk__raw_copy(x, wide) : YK_ERR_MEMORY;
}

static double *values_of(yk_tensor *x)
{
    size_t bytes = (size_t)yk_numel(x) * yk_dtype_size(yk_tensor_dtype(x));
    char *raw = calloc(bytes + 1, 1);
    double *out = calloc((size_t)yk_numel(x) + 1, sizeof(double));
    if (yk_tensor_read(x, raw, bytes) == YK_OK)
        for (int64_t i = 0; i < yk_numel(x); i++)
            out[i] = element(x, raw, i);
    free(raw);
    return out;
}

/* x has the values `expected(i)`; the expression may use i. */
#define CHECK_VALUES(x, expression)                                                                                    \
    do {                                                                                                               \
        double *got = values_of(x);                                                                                    \
        for (int64_t i = 0; i < yk_numel(x); i++) {                                                                    \
            double want = (expression), tolerance = mean ? fabs(want) * 4e-3 : 0, is = got[i];                         \
            if (!(fabs(is - want) <= tolerance))                                                                       \
                free(got);                                                                                             \
            CHECK(fabs(is - want) <= tolerance, "%s of %lld %s (memory %d): element %lld is %g, not %g", what,         \
                  (long long)n, yk_dtype_name(dtype), kind, (long long)i, is, want);                                   \
        }                                                                                                              \
        free(got);                                                                                                     \
    } while (0)
#define FILL(x, expression)                                                                                            \
    do {                                                                                                               \
        double *filling = calloc((size_t)yk_numel(x) + 1, sizeof(double));                                             \
        for (int64_t i = 0; i < yk_numel(x); i++)                                                                      \
            filling[i] = (expression);                                                                                 \
        yk_status filled = fill(x, filling);                                                                           \
        free(filling);                                                                                                 \
        CHECK_OK(filled);                                                                                              \
    } while (0)

static void one_case(rank_context *c, yk_dtype dtype, int64_t n, int kind)
{
    int me = c->rank, ranks = c->size;
    int64_t all = n * ranks;
    yk_process_group *g = c->group;
    for (int op = YK_OP_SUM; op <= YK_OP_PRODUCT; op++) {
        bool mean = op == YK_OP_MEAN;
        if (mean && !yk_dtype_is_floating(dtype))
            continue;
        const char *what = "all_reduce";
        yk_tensor *x = make(kind, n, dtype);
        CHECK(x, "%s", yk_last_error()->message);
        FILL(x, value(dtype, me, i));
        CHECK_OK(yk_all_reduce(x, (yk_reduce_op)op, g));
        CHECK_VALUES(x, combined((yk_reduce_op)op, dtype, ranks, i));
        what = "reduce";
        FILL(x, value(dtype, me, i));
        CHECK_OK(yk_reduce(x, ranks - 1, (yk_reduce_op)op, g));
        CHECK_VALUES(x, me == ranks - 1 ? combined((yk_reduce_op)op, dtype, ranks, i) : value(dtype, me, i));
        what = "reduce_scatter";
        yk_tensor *in = make(kind, all, dtype);
        FILL(in, value(dtype, me, i));
        CHECK_OK(yk_reduce_scatter(x, in, (yk_reduce_op)op, g));
        CHECK_VALUES(x, combined((yk_reduce_op)op, dtype, ranks, i + me * n));
    }
    bool mean = false;
    const char *what = "broadcast";
    yk_tensor *x = make(kind, n, dtype), *wide = make(kind, all, dtype), *other = make(kind, all, dtype);
    int root = (int)(n % ranks);
    FILL(x, value(dtype, me, i));
    CHECK_OK(yk_broadcast(x, root, g));
    CHECK_VALUES(x, value(dtype, root, i));
    what = "all_gather";
    FILL(x, value(dtype, me, i));
    FILL(wide, 0);
    CHECK_OK(yk_all_gather(wide, x, g));
    CHECK_VALUES(wide, value(dtype, (int)(i / n), i % n));
    what = "gather";
    FILL(wide, 0);
    CHECK_OK(yk_gather(me == root ? wide : NULL, x, root, g));
    CHECK_VALUES(wide, me == root ? value(dtype, (int)(i / n), i % n) : 0);
    what = "scatter";
    FILL(wide, value(dtype, me, i));
    CHECK_OK(yk_scatter(x, me == root ? wide : NULL, root, g));
    CHECK_VALUES(x, value(dtype, root, i + me * n));
    what = "all_to_all";
    CHECK_OK(yk_all_to_all(other, wide, NULL, NULL, g));
    CHECK_VALUES(other, value(dtype, (int)(i / n), i % n + me * n));
}

static void test_rank_values(rank_context *c)
{
    for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++) {
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            if ((sizes[s] > 6000 && d > 2) || (sizes[s] > 60000 && c->size > 3))
                continue; /* every path is taken by three dtypes; the rest are about arithmetic */
            if (test_gpus && sizes[s] > 100 && d > 0)
                continue; /* kernels are emulated */
            if (test_layout != ONE_HOST && c->size > 4 && d % 3 != 0)
                continue; /* many ranks on few cores take turns: fewer ranks do the other dtypes */
            yk_scope scope = yk_scope_begin();
            one_case(c, dtypes[d], sizes[s], (int)((s + d) % 3));
            if (c->failure[0])
                return;
            yk_scope_end(scope);
        }
    }
}

/* The elements of a contiguous one in the host's memory; the scope's. */
static const float *floats_of(yk_tensor *x)
{
    return yk_tensor_data(yk_cpu(x));
}

/* The values of test_rank_bits and their sums, made once for each number of ranks. */
enum { MOST_BITS = 1200007 };
static struct bits_plan {
    int ranks;
    int64_t count;
    float *values, *sums; /* values: rank r's from r * count on */
} bits;
static pthread_mutex_t bits_lock = PTHREAD_MUTEX_INITIALIZER;

static int64_t most_bits(int ranks)
{
    return ranks > 4 || test_layout == ONE_HOST ? 300007 : MOST_BITS;
}

/* False where there is no memory. The main thread calls it before it forks, so that all have them. */
static bool prepare_bits(int ranks)
{
    pthread_mutex_lock(&bits_lock);
    int64_t count = most_bits(ranks);
    if (bits.ranks != ranks || bits.count != count) {
        free(bits.values);
        free(bits.sums);
        bits = (struct bits_plan){ranks, count, malloc((size_t)(ranks * count) * sizeof(float)),
                                  malloc((size_t)count * sizeof(float))};
        for (int64_t i = 0; i < count && bits.values && bits.sums; i++) {
            const void *at[MOST_TEST_RANKS];
            for (int r = 0; r < ranks; r++) {
                float *v = &bits.values[r * count + i];
                *v = sinf((float)i * 0.1f + (float)r) * powf(10, (float)((i + r) % 7));
                at[r] = v;
            }
            reference_reduce(YK_F32, YK_OP_SUM, ranks, at, &bits.sums[i]);
        }
    }
    bool good = bits.values && bits.sums;
    pthread_mutex_unlock(&bits_lock);
    return good;
}

/* The sum is that of reduction_reference.h, on every rank and every run, and whatever memory the ranks have. */
static void test_rank_bits(rank_context *c)
{
    const int64_t sizes_of[] = {5, 300007, MOST_BITS};
    CHECK(prepare_bits(c->size), "no memory");
    for (int s = 0; s < 3 && sizes_of[s] <= bits.count; s++) {
        int64_t n = sizes_of[s], bytes = n * 4;
        const float *first = NULL;
        for (int kind = 0; kind < 3; kind++) {
            yk_tensor *x = make(kind < 2 ? kind : c->rank % 2, n, YK_F32), *root = yk_empty(1, &n, NULL);
            CHECK_OK(yk_tensor_write(x, bits.values + c->rank * bits.count, (size_t)bytes));
            CHECK_OK(yk_all_reduce(x, YK_OP_SUM, c->group));
            const float *p = floats_of(x), *q;
            CHECK(p, "%s", yk_last_error()->message);
            for (int64_t i = 0; i < n; i++)
                CHECK(memcmp(&bits.sums[i], &p[i], 4) == 0, "element %lld is %a, not %a", (long long)i, (double)p[i],
                      (double)bits.sums[i]);
            CHECK_OK(yk_tensor_write(root, p, (size_t)bytes));
            CHECK_OK(yk_broadcast(root, 0, c->group));
            q = floats_of(root);
            CHECK(memcmp(q, p, (size_t)bytes) == 0, "not the bits of rank 0");
            CHECK(!first || memcmp(first, p, (size_t)bytes) == 0, "not the bits of the first run");
            first = q;
        }
    }
}

static void test_rank_splits(rank_context *c)
{
    /* Rank i sends (i + 2 j) % 4 rows of 3 to rank j. */
    int64_t in_splits[MOST_TEST_RANKS], out_splits[MOST_TEST_RANKS], in_rows = 0, out_rows = 0;
    for (int j = 0; j < c->size; j++) {
        in_splits[j] = (c->rank + 2 * j) % 4;
        out_splits[j] = (j + 2 * c->rank) % 4;
        in_rows += in_splits[j];
        out_rows += out_splits[j];
    }
    yk_tensor *in = yk_empty(2, (int64_t[]){in_rows, 3}, NULL), *out = yk_zeros(2, (int64_t[]){out_rows, 3}, NULL);
    float p[MOST_TEST_RANKS * 3 * 3];
    for (int64_t i = 0; i < in_rows * 3; i++)
        p[i] = (float)(c->rank * 1000 + i);
    CHECK_OK(yk_tensor_write(in, p, (size_t)in_rows * 3 * sizeof(*p)));
    CHECK_OK(yk_all_to_all(out, in, out_splits, in_splits, c->group));
    const float *q = floats_of(out);
    for (int from = 0, at = 0; from < c->size; from++) {
        int64_t before = 0;
        for (int j = 0; j < c->rank; j++)
            before += (from + 2 * j) % 4;
        for (int64_t i = 0; i < out_splits[from] * 3; i++, at++)
            CHECK(q[at] == (float)(from * 1000 + before * 3 + i), "element %d is %g", at, (double)q[at]);
    }
    if (c->size > 1) {
        in_splits[0]++;
        CHECK_FAILS(yk_all_to_all(out, in, out_splits, in_splits, c->group), YK_ERR_SHAPE, "all_to_all: split",
                    "of in (");
    }
    /* Two halves of one tensor do as well, two that overlap do not. */
    int64_t n = c->size;
    yk_tensor *both = yk_full(YK_SHAPE(2 * n), c->rank, NULL);
    in = yk_narrow(both, 0, 0, n);
    CHECK_OK(yk_all_to_all(yk_narrow(both, 0, n, n), in, NULL, NULL, c->group));
    for (int64_t i = 0; i < n; i++)
        CHECK(yk_get(both, &(int64_t){n + i}) == (double)i, "part %lld", (long long)i);
    CHECK_FAILS(yk_all_to_all(yk_narrow(both, 0, n - 1, n), in, NULL, NULL, c->group), YK_ERR_ARGUMENT,
                "all_to_all: in and out share memory");
}

/* Payloads around those that go with a round, with barriers between, so that they come in even rounds and in odd ones;
 * ranks come late by turns. */
static void test_rank_tiny(rank_context *c)
{
    static const yk_dtype kinds[] = {YK_F32, YK_F64, YK_U8, YK_BF16};
    for (int64_t n = 0; n < 33; n++) {
        yk_tensor_options o = *YK_OPTIONS(yk_tensor_options, .dtype = kinds[n % 4]);
        int root = (int)n % c->size;
        double sum = c->size * (c->size + 1) / 2.0;
        yk_tensor *x = yk_full(YK_SHAPE(n), c->rank + 1, &o), *y = yk_full(YK_SHAPE(n), c->rank + 1, &o);
        if (n % c->size == c->rank)
            usleep(200);
        CHECK_OK(yk_all_reduce(x, YK_OP_SUM, c->group));
        if (n % 3 == 0)
            CHECK_OK(yk_barrier(c->group));
        CHECK_OK(yk_reduce(y, root, YK_OP_MAX, c->group));
        double largest = c->rank == root ? c->size : c->rank + 1;
        for (int64_t i = 0; i<n; i += n> 1 ? n - 1 : 1) /* the first and the last */
            CHECK(yk_get(x, &i) == sum && yk_get(y, &i) == largest, "element %lld of %lld: %g and %g, not %g and %g",
                  (long long)i, (long long)n, yk_get(x, &i), yk_get(y, &i), sum, largest);
    }
}

/* True if a work that was waited for is done. With NCCL it is the device that waits, so it is done within some time. */
static bool is_done(const rank_context *c, yk_work *work)
{
    bool queued = strcmp(yk_process_group_backend(c->group), "nccl") == 0;
    for (int i = 0; i < 10000 && queued && !yk_work_test(work); i++)
        usleep(500);
    return yk_work_test(work);
}

static void test_rank_messages(rank_context *c)
{
    int next = (c->rank + 1) % c->size, before = (c->rank + c->size - 1) % c->size;
    const int64_t counts[] = {0, 1, 200, 100000};
    for (int kind = 0; kind < 3; kind++) {
        for (int s = 0; s < 4; s++) {
            yk_tensor *out = make(kind, counts[s], YK_F32), *in = make(kind, counts[s], YK_F32);
            FILL(out, c->rank * 10 + i % 7);
            yk_work *sent = yk_isend(out, next, s, c->group);
            CHECK_OK(yk_recv(in, before, s, c->group));
            CHECK_OK(yk_work_wait(sent));
            CHECK(is_done(c, sent) && !yk_work_error(sent), "the work is not done");
            bool mean = false;
            const char *what = "send";
            int64_t n = counts[s];
            yk_dtype dtype = YK_F32;
            CHECK_VALUES(in, before * 10 + i % 7);
        }
    }
    /* Tags choose, and equal tags keep their order; forty are more than a channel holds. */
    yk_work *works[80];
    yk_tensor *in[40];
    for (int k = 0; k < 40; k++) {
        in[k] = yk_empty(YK_SHAPE(1), NULL);
        works[k] = yk_isend(yk_full(YK_SHAPE(1), c->rank * 100 + k, NULL), next, k % 2, c->group);
    }
    for (int k = 0; k < 40; k++) /* those of tag 1 are asked for first */
        works[40 + k] = yk_irecv(in[k], before, k < 20, c->group);
    for (int k = 0; k < 80; k++)
        CHECK_OK(yk_work_wait(works[k]));
    for (int k = 0; k < 40; k++) {
        int sent = k < 20 ? 2 * k + 1 : 2 * (k - 20);
        CHECK(yk_item(in[k]) == before * 100 + sent, "message %d is %g", k, yk_item(in[k]));
    }
    CHECK_OK(yk_barrier(c->group));
}

/* Asynchronous operations, blocking ones between them, and works that nobody waits for. */
static void test_rank_async(rank_context *c)
{
    enum { WORKS = 24 };
    yk_tensor *x[WORKS];
    yk_work *works[WORKS];
    for (int k = 0; k < WORKS; k++) {
        x[k] = yk_full(YK_SHAPE(k % 3 ? 100 : 90000), c->rank + k, NULL);
        works[k] = yk_all_reduce_async(x[k], YK_OP_SUM, c->group);
        CHECK(works[k], "%s", yk_last_error()->message);
    }
    yk_tensor *y = yk_full(YK_SHAPE(3), c->rank, NULL);
    CHECK_OK(yk_all_reduce(y, YK_OP_MAX, c->group));
    CHECK(yk_get(y, (int64_t[]){0}) == c->size - 1, "max");
    int sum = c->size * (c->size - 1) / 2;
    for (int k = WORKS - 1; k >= 0; k--) {
        CHECK_OK(yk_work_wait(works[k]));
        CHECK(is_done(c, works[k]), "done");
        const float *p = floats_of(x[k]);
        for (int64_t i = 0; i < yk_numel(x[k]); i++)
            CHECK(p[i] == (float)(sum + k * c->size), "work %d: element %lld is %g", k, (long long)i, (double)p[i]);
    }
    yk_scope scope = yk_scope_begin();
    yk_tensor *dropped = yk_ones(YK_SHAPE(50000), NULL);
    CHECK(yk_all_reduce_async(dropped, YK_OP_SUM, c->group), "started");
    CHECK(yk_barrier_async(c->group), "started");
    yk_scope_end(scope); /* the group's end waits for them */
}

/* Every collective in both forms, one after the other on the same values: the same results. */
static void test_rank_both_forms(rank_context *c)
{
    enum { N = 301 };
    int n = c->size, last = n - 1;
    yk_tensor *whole = yk_arange(0, (double)N * n, 1, NULL),
              *own = yk_add_scalar(yk_arange(0, N, 1, NULL), c->rank * 7);
    yk_tensor *wide = yk_add_scalar(whole, c->rank * 3);
    yk_tensor *outs[2][8];
    yk_work *works[8];
    for (int form = 0; form < 2; form++) {
        for (int k = 0; k < 8; k++) /* tensors that are written, or read and written */
            outs[form][k] = k == 2 || k == 3   ? yk_full(YK_SHAPE(N * n), -1, NULL)
                            : k == 6           ? yk_full(YK_SHAPE(N * n), -1, NULL)
                            : k == 4 || k == 5 ? yk_full(YK_SHAPE(N), -1, NULL)
                                               : yk_clone(own);
    }
    yk_tensor **a = outs[0], **b = outs[1];
    bool root = c->rank == last;
    works[0] = yk_reduce_async(b[0], last, YK_OP_MAX, c->group);
    works[1] = yk_broadcast_async(b[1], last, c->group);
    works[2] = yk_all_gather_async(b[2], own, c->group);
    works[3] = yk_gather_async(root ? b[3] : NULL, own, last, c->group);
    works[4] = yk_scatter_async(b[4], root ? wide : NULL, last, c->group);
    works[5] = yk_reduce_scatter_async(b[5], wide, YK_OP_SUM, c->group);
    works[6] = yk_all_to_all_async(b[6], wide, NULL, NULL, c->group);
    works[7] = yk_barrier_async(c->group);
    for (int k = 0; k < 8; k++)
        CHECK(works[k], "work %d: %s", k, yk_last_error() ? yk_last_error()->message : "no error");
    CHECK_OK(yk_reduce(a[0], last, YK_OP_MAX, c->group));
    CHECK_OK(yk_broadcast(a[1], last, c->group));
    CHECK_OK(yk_all_gather(a[2], own, c->group));
    CHECK_OK(yk_gather(root ? a[3] : NULL, own, last, c->group));
    CHECK_OK(yk_scatter(a[4], root ? wide : NULL, last, c->group));
    CHECK_OK(yk_reduce_scatter(a[5], wide, YK_OP_SUM, c->group));
    CHECK_OK(yk_all_to_all(a[6], wide, NULL, NULL, c->group));
    for (int k = 7; k >= 0; k--) {
        yk_work *kept = yk_work_retain(works[k]);
        CHECK_OK(yk_work_wait(kept));
        CHECK(is_done(c, kept) && !yk_work_error(kept), "work %d", k);
        yk_work_release(kept);
        if (k == 7)
            continue;
        const float *p = floats_of(a[k]), *q = floats_of(b[k]);
        CHECK(memcmp(p, q, sizeof(float) * (size_t)yk_numel(a[k])) == 0, "work %d differs from the call", k);
    }
    /* And what they are: each part in its place. */
    const float *all = floats_of(b[2]), *mine = floats_of(b[4]), *sum = floats_of(b[5]), *from = floats_of(b[6]);
    for (int r = 0; r < n; r++) {
        CHECK(all[r * N + 5] == (float)(5 + r * 7), "rank %d's part of all_gather is %g", r, (double)all[r * N + 5]);
        CHECK(from[r * N + 5] == (float)(c->rank * N + 5 + r * 3), "from rank %d: %g", r, (double)from[r * N + 5]);
    }
    CHECK(mine[5] == (float)(c->rank * N + 5 + last * 3), "scatter: %g", (double)mine[5]);
    CHECK(sum[5] == (float)(n * (c->rank * N + 5) + 3 * n * (n - 1) / 2), "reduce_scatter: %g", (double)sum[5]);
    if (root)
        CHECK(memcmp(floats_of(b[3]), all, sizeof(float) * (size_t)(N * n)) == 0, "gather");
}

static void test_rank_groups(rank_context *c)
{
    int even[MOST_TEST_RANKS] = {0}, odd[MOST_TEST_RANKS] = {0}, evens = 0, odds = 0;
    for (int r = c->size - 1; r >= 0; r--)
        *(r % 2 ? &odd[odds++] : &even[evens++]) = r; /* in falling order: rank 0 of a group is its highest */
    yk_process_group *a = yk_new_group(c->group, evens, even), *b = odds ? yk_new_group(c->group, odds, odd) : NULL;
    CHECK(a && (b || !odds), "%s", yk_last_error() ? yk_last_error()->message : "");
    yk_process_group *mine = c->rank % 2 ? b : a, *others = c->rank % 2 ? a : b;
    CHECK(yk_world_size(mine) == (c->rank % 2 ? odds : evens), "%d", yk_world_size(mine));
    CHECK((c->rank % 2 ? odd : even)[yk_rank(mine)] == c->rank, "%d", yk_rank(mine));
    yk_tensor *x = yk_full(YK_SHAPE(1000), c->rank, NULL);
    CHECK_OK(yk_all_reduce(x, YK_OP_SUM, mine));
    int sum = 0;
    for (int r = c->rank % 2; r < c->size; r += 2)
        sum += r;
    CHECK(yk_get(x, (int64_t[]){999}) == sum, "%g", yk_get(x, (int64_t[]){999}));
    x = yk_full(YK_SHAPE(1), c->rank, NULL);
    CHECK_OK(yk_broadcast(x, 0, mine));
    CHECK(yk_item(x) == (c->rank % 2 ? odd : even)[0], "%g", yk_item(x));
    if (others) {
        CHECK(yk_rank(others) == -1, "%d", yk_rank(others));
        CHECK_FAILS(yk_barrier(others), YK_ERR_STATE, "this rank is not in the group 'world/");
    }
    CHECK_OK(yk_barrier(c->group));
}

/* Mistakes that one rank can see do not break the group. */
static void test_rank_arguments(rank_context *c)
{
    yk_tensor *x = yk_zeros(YK_SHAPE(2, 3), NULL),
              *i = yk_zeros(YK_SHAPE(2), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    CHECK_FAILS(yk_broadcast(x, c->size, c->group), YK_ERR_ARGUMENT, "broadcast: src", "outside group 'world'");
    CHECK_FAILS(yk_reduce(x, -1, YK_OP_SUM, c->group), YK_ERR_ARGUMENT, "reduce: dst -1");
    CHECK_FAILS(yk_all_reduce(i, YK_OP_MEAN, c->group), YK_ERR_DTYPE, "a mean of int64");
    CHECK_FAILS(yk_all_reduce(x, (yk_reduce_op)9, c->group), YK_ERR_ARGUMENT, "9 is not a reduction");
    CHECK_FAILS(yk_all_reduce(NULL, YK_OP_SUM, c->group), YK_ERR_ARGUMENT, "all_reduce: the tensor is NULL");
    CHECK_FAILS(yk_all_gather(x, i, c->group), YK_ERR_DTYPE, "out is float32 but in is int64");
    CHECK_FAILS(yk_all_gather(yk_zeros(YK_SHAPE(1000), NULL), x, c->group), YK_ERR_SHAPE, "out (1000,) has 1000");
    CHECK_FAILS(yk_send(x, 0, -5, c->group), YK_ERR_ARGUMENT, "send: tag -5");
    CHECK_FAILS(yk_recv(x, 99, 0, c->group), YK_ERR_ARGUMENT, "recv: src 99");
    CHECK_FAILS(yk_new_group(c->group, 1, (int[]){c->size}), YK_ERR_ARGUMENT, "new_group: rank");
    CHECK_OK(yk_barrier(c->group));
}

typedef struct suite_entry {
    const char *name;
    rank_fn fn;
} suite_entry;
static const suite_entry suite[] = {
    {"values", test_rank_values},         {"bits", test_rank_bits},           {"splits", test_rank_splits},
    {"messages", test_rank_messages},     {"async", test_rank_async},         {"groups", test_rank_groups},
    {"both forms", test_rank_both_forms}, {"arguments", test_rank_arguments}, {"tiny", test_rank_tiny},
};

static void run_suite(enum rank_kind kind, int size)
{
    assert_true(prepare_bits(size));
    for (size_t i = 0; i < sizeof(suite) / sizeof(suite[0]); i++)
        run_ranks(kind, size, suite[i].fn, NULL, patience(20), true);
}

#define SUITE(name, kind, size)                                                                                        \
    static void name(void **unused)                                                                                    \
    {                                                                                                                  \
        (void)unused;                                                                                                  \
        run_suite(kind, size);                                                                                         \
    }
SUITE(test_1_thread, THREADS, 1)
SUITE(test_2_threads, THREADS, 2)
SUITE(test_3_threads, THREADS, 3)
SUITE(test_4_threads, THREADS, 4)
SUITE(test_7_threads, THREADS, 7)
SUITE(test_8_threads, THREADS, 8)
#ifndef __SANITIZE_THREAD__ /* it does not follow a fork */
SUITE(test_2_processes, PROCESSES, 2)
SUITE(test_3_processes, PROCESSES, 3)
SUITE(test_8_processes, PROCESSES, 8)
#endif

/* With a sanitizer, or on the emulator, a size of each kind: one rank, a power of two, others, threads and processes.
 */
int main(void)
{
    const struct CMUnitTest few[] = {
        cmocka_unit_test(test_1_thread),
        cmocka_unit_test(test_4_threads),
        cmocka_unit_test(test_7_threads),
#ifndef __SANITIZE_THREAD__
        cmocka_unit_test(test_3_processes),
#endif
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_1_thread),    cmocka_unit_test(test_2_threads),   cmocka_unit_test(test_3_threads),
        cmocka_unit_test(test_4_threads),   cmocka_unit_test(test_7_threads),   cmocka_unit_test(test_8_threads),
#ifndef __SANITIZE_THREAD__
        cmocka_unit_test(test_2_processes), cmocka_unit_test(test_3_processes), cmocka_unit_test(test_8_processes),
#endif
    };
    return work_size(sanitized_size(1, 0), 0) ? cmocka_run_group_tests_name("collectives", tests, NULL, NULL)
                                              : cmocka_run_group_tests_name("collectives", few, NULL, NULL);
}
