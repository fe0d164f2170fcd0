/*
 * reduction_order_test.c - a reduced element depends on the ranks' values and their order alone: all_reduce, reduce and
 * reduce_scatter of random pieces of a buffer, in every dtype and by every reduction, give the bits of a scalar
 * reference, for any number of ranks and any layout over hosts.
 */
#include "tests/comm/ranks.h"
#include "tests/comm/reduction_reference.h"

#include <yoke/ops.h>

static const yk_dtype dtypes[] = {YK_F32, YK_F64, YK_F16, YK_BF16, YK_I64, YK_I32, YK_U8, YK_BOOL};

static const char *const op_names[] = {"sum", "mean", "min", "max", "product"};

/* The values of all ranks, and the results. */
typedef struct plan {
    yk_dtype dtype;
    yk_reduce_op op;
    int64_t count;
    uint64_t random;
    size_t size;
    char *values, *results; /* values: rank r's from r * count * size on */
} plan;

static uint64_t draw(plan *p, uint64_t below)
{
    p->random = reference_hash(p->random + 0x9E3779B97F4A7C15u);
    return p->random % below;
}

static bool plan_init(plan *p, int ranks, yk_dtype dtype, yk_reduce_op op, int64_t count)
{
    *p = (plan){dtype, op,  count, (uint64_t)dtype * 97 + (uint64_t)op * 31 + (uint64_t)count, yk_dtype_size(dtype),
                NULL,  NULL};
    p->values = calloc((size_t)ranks * (size_t)count + 1, p->size);
    p->results = calloc((size_t)count + 1, p->size);
    if (!p->values || !p->results)
        return false;
    for (int r = 0; r < ranks; r++)
        for (int64_t i = 0; i < count; i++)
            reference_fill(dtype, p->random, r, i, p->values + (size_t)(r * count + i) * p->size);
    for (int64_t i = 0; i < count; i++) {
        const void *at[MOST_REFERENCE_RANKS];
        for (int r = 0; r < ranks; r++)
            at[r] = p->values + (size_t)(r * count + i) * p->size;
        reference_reduce(dtype, op, ranks, at, p->results + (size_t)i * p->size);
    }
    return true;
}

/* A buffer of `count` elements at some offset of a larger one, in memory that the host shares or in its own. */
static yk_tensor *buffer(plan *p, int64_t count, bool shared, const void *values)
{
    int64_t offset = (int64_t)draw(p, 40), all = offset + count + 1;
    const yk_tensor_options o = {.dtype = p->dtype};
    yk_tensor *x = shared ? yk_comm_alloc(1, &all, &o) : yk_empty(1, &all, &o);
    yk_tensor *part = x ? yk_narrow(x, 0, offset, count) : NULL;
    if (part && values)
        memcpy(yk_tensor_data(part), values, (size_t)count * p->size);
    return part;
}

#define CHECK_BITS(got, want, n, what)                                                                                 \
    for (int64_t i = 0; i < (n); i++) {                                                                                \
        const char *is_ = (const char *)(got) + (size_t)i * p.size, *want_ = (want) + (size_t)i * p.size;              \
        uint64_t is_bits = 0, want_bits = 0;                                                                           \
        memcpy(&is_bits, is_, p.size), memcpy(&want_bits, want_, p.size);                                              \
        CHECK(reference_equal(p.dtype, is_, want_), "%s of %s, %s: element %lld of %lld at %lld is %llx, not %llx",    \
              what, yk_dtype_name(p.dtype), op_names[p.op], (long long)i, (long long)(n), (long long)at,               \
              (unsigned long long)is_bits, (unsigned long long)want_bits);                                             \
    }

static void reduce_pieces(rank_context *c, yk_dtype dtype, yk_reduce_op op, int64_t count, int64_t longest)
{
    plan p;
    CHECK(plan_init(&p, c->size, dtype, op, count), "no memory");
    for (int64_t at = 0, n; at < count; at += n) {
        yk_scope scope = yk_scope_begin();
        n = 1 + (int64_t)draw(&p, draw(&p, 2) ? 40 : (uint64_t)longest);
        n = n < count - at ? n : count - at;
        int kind = (int)draw(&p, 4), root = (int)draw(&p, (uint64_t)c->size);
        int memory = (int)draw(&p, 3); /* shared, not, or not on all ranks */
        bool shared = memory == 0 || (memory == 2 && c->rank % 2);
        const char *mine = p.values + (size_t)(c->rank * count + at) * p.size;
        const char *want = p.results + (size_t)at * p.size;
        if (kind == 3 && n >= c->size) { /* reduce_scatter; the rest is left to the next piece */
            int64_t part = n / c->size;
            n = part * c->size;
            yk_tensor *in = buffer(&p, n, shared, mine), *out = buffer(&p, part, shared, NULL);
            CHECK(in && out, "%s", yk_last_error()->message);
            CHECK_OK(yk_reduce_scatter(out, in, op, c->group));
            CHECK_BITS(yk_tensor_data(out), want + (size_t)(c->rank * part) * p.size, part, "reduce_scatter");
        } else {
            yk_tensor *x = buffer(&p, n, shared, mine);
            CHECK(x, "%s", yk_last_error()->message);
            if (kind == 2) {
                CHECK_OK(yk_reduce(x, root, op, c->group));
                CHECK_BITS(yk_tensor_data(x), c->rank == root ? want : mine, n, "reduce");
            } else {
                CHECK_OK(yk_all_reduce(x, op, c->group));
                CHECK_BITS(yk_tensor_data(x), want, n, "all_reduce");
            }
        }
        yk_scope_end(scope);
    }
    free(p.values);
    free(p.results);
}

/* Small pieces in all dtypes and by all reductions, then pieces that go in several segments. */
static void test_rank(rank_context *c)
{
    int64_t large = c->size > 4 ? 60000 : 400000;
    for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++)
        for (int op = YK_OP_SUM; op <= YK_OP_PRODUCT && !c->failure[0]; op++)
            if (op != YK_OP_MEAN || yk_dtype_is_floating(dtypes[d]))
                reduce_pieces(c, dtypes[d], (yk_reduce_op)op, 2500, 1500);
    static const struct {
        yk_dtype dtype;
        yk_reduce_op op;
    } larger[] = {
        {YK_F32, YK_OP_SUM}, {YK_BF16, YK_OP_MEAN}, {YK_F64, YK_OP_MEAN}, {YK_F16, YK_OP_SUM}, {YK_U8, YK_OP_MAX}};
    for (int i = 0; i < 5 && !c->failure[0]; i++)
        reduce_pieces(c, larger[i].dtype, larger[i].op, large, large);
}

/* One layout: rank r is on host number hosts[r]; NULL: all on one. */
static void run_layout(enum rank_kind kind, int ranks, const char *hosts)
{
    test_layout = hosts ? NAMED : ONE_HOST;
    test_hosts = hosts;
    print_message("%d ranks on %s\n", ranks, hosts ? hosts : "one host");
    run_ranks(kind, ranks, test_rank, NULL, 60, true);
}

static void test_one_host(void **unused)
{
    (void)unused;
    for (int n = 2; n <= 9; n++)
        run_layout(THREADS, n, NULL);
#ifndef __SANITIZE_THREAD__
    run_layout(PROCESSES, 2, NULL);
    run_layout(PROCESSES, 5, NULL);
#endif
}

/* Every rank on a host of its own. */
static void test_each_alone(void **unused)
{
    (void)unused;
    static const char alone[] = "012345678";
    for (int n = 2; n <= 9; n++)
        run_layout(THREADS, n, alone);
#ifndef __SANITIZE_THREAD__
    run_layout(PROCESSES, 3, alone);
#endif
}

static void test_several_hosts(void **unused)
{
    (void)unused;
    static const char *const layouts[] = {"0011", "000111", "0001",    "0111",      "01010101", "012012012",
                                          "0110", "00112",  "0012221", "000000011", "0100"};
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
        run_layout(THREADS, (int)strlen(layouts[i]), layouts[i]);
#ifndef __SANITIZE_THREAD__
    run_layout(PROCESSES, 4, "0011");
    run_layout(PROCESSES, 6, "000111");
    run_layout(PROCESSES, 4, "0001");
    run_layout(PROCESSES, 6, "010101");
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_host), cmocka_unit_test(test_each_alone),
                                       cmocka_unit_test(test_several_hosts)};
    return cmocka_run_group_tests_name("the order of a reduction", tests, NULL, NULL);
}
