/*
 * reduction_pieces.h - random pieces of a buffer, reduced in every dtype and by every reduction, have the bits of a
 * scalar reference: what each backend and layout must pass.
 */
#ifndef YOKE_TESTS_REDUCTION_PIECES_H
#define YOKE_TESTS_REDUCTION_PIECES_H

#include "tests/comm/ranks.h"
#include "tests/comm/reduction_reference.h"

#include <yoke/ops.h>

static const yk_dtype reduction_dtypes[] = {YK_F32, YK_F64, YK_F16, YK_BF16, YK_I64, YK_I32, YK_U8, YK_BOOL};

static const char *const reduction_names[] = {"sum", "mean", "min", "max", "product"};

/* The values of all ranks, and the results. */
typedef struct reduction_plan {
    yk_dtype dtype;
    yk_reduce_op op;
    int64_t count;
    uint64_t random; /* the seed of a rank's draws */
    size_t size;
    const char *values; /* rank r's from r * count * size on */
    const char *results;
} reduction_plan;

static inline uint64_t reduction_draw(reduction_plan *p, uint64_t below)
{
    p->random = reference_hash(p->random + 0x9E3779B97F4A7C15u);
    return p->random % below;
}

/* The values of a rank do not depend on how many ranks there are: they are made once for all numbers of ranks, results
 * once for each number, and all ranks of a process read them. */
typedef struct reduction_values {
    yk_dtype dtype;
    yk_reduce_op op;
    int64_t count;
    int filled, reduced; /* ranks that have values; ranks that the results are of */
    char *values, *results;
} reduction_values;

enum { REDUCTION_PLANS = 128 };
static reduction_values reduction_kept[REDUCTION_PLANS];
static pthread_mutex_t reduction_lock = PTHREAD_MUTEX_INITIALIZER;

static inline bool reduction_fill(reduction_values *v, int ranks, uint64_t seed)
{
    size_t size = yk_dtype_size(v->dtype), bytes = (size_t)v->count * size;
    if (v->filled < ranks) {
        char *more = realloc(v->values, (size_t)ranks * bytes + 1);
        if (!more)
            return false;
        v->values = more;
        for (; v->filled < ranks; v->filled++)
            for (int64_t i = 0; i < v->count; i++)
                reference_fill(v->dtype, seed, v->filled, i, more + (size_t)v->filled * bytes + (size_t)i * size);
    }
    if (!v->results && !(v->results = malloc(bytes + 1)))
        return false;
    for (int64_t i = 0; i < v->count && v->reduced != ranks; i++) {
        const void *at[MOST_REFERENCE_RANKS];
        for (int r = 0; r < ranks; r++)
            at[r] = v->values + (size_t)r * bytes + (size_t)i * size;
        reference_reduce(v->dtype, v->op, ranks, at, v->results + (size_t)i * size);
    }
    v->reduced = ranks;
    return true;
}

/* All ranks of a process that run at the same time are of one number of ranks. */
static inline bool reduction_plan_init(reduction_plan *p, int ranks, yk_dtype dtype, yk_reduce_op op, int64_t count)
{
    uint64_t seed = (uint64_t)dtype * 97 + (uint64_t)op * 31 + (uint64_t)count;
    pthread_mutex_lock(&reduction_lock);
    reduction_values *v = reduction_kept;
    while (v->values && (v->dtype != dtype || v->op != op || v->count != count) &&
           v < reduction_kept + REDUCTION_PLANS - 1)
        v++;
    bool good = !v->values || (v->dtype == dtype && v->op == op && v->count == count);
    if (good) {
        v->dtype = dtype, v->op = op, v->count = count;
        good = reduction_fill(v, ranks, seed);
    }
    *p = (reduction_plan){dtype, op, count, seed, yk_dtype_size(dtype), v->values, v->results};
    pthread_mutex_unlock(&reduction_lock);
    return good;
}

/* A buffer of `count` elements at some offset of a larger one, in memory that the host shares or in its own. */
static inline yk_tensor *reduction_buffer(reduction_plan *p, int64_t count, bool shared, const void *values)
{
    int64_t offset = (int64_t)reduction_draw(p, 40), all = offset + count + 1;
    const yk_tensor_options o = *YK_OPTIONS(yk_tensor_options, .dtype = p->dtype);
    yk_tensor *x = shared && test_device_type == YK_CPU ? yk_comm_alloc(1, &all, &o) : yk_empty(1, &all, &o);
    yk_tensor *part = x ? yk_narrow(x, 0, offset, count) : NULL;
    if (part && values)
        host_write(part, 0, values, (size_t)count * p->size);
    return part;
}

/* The first of n elements whose bits are others, NaNs aside; -1: none. */
static inline int64_t reduction_differs(const reduction_plan *p, const char *got, const char *want, int64_t n)
{
    if (memcmp(got, want, (size_t)n * p->size) == 0)
        return -1;
    for (int64_t i = 0; i < n; i++)
        if (!reference_equal(p->dtype, got + (size_t)i * p->size, want + (size_t)i * p->size))
            return i;
    return -1;
}

#define CHECK_BITS(got, want, n, what)                                                                                 \
    do {                                                                                                               \
        const char *is_ = host_data(got), *want_ = (want);                                                             \
        int64_t i_ = reduction_differs(&p, is_, want_, (n));                                                           \
        uint64_t is_bits = 0, want_bits = 0;                                                                           \
        if (i_ >= 0) {                                                                                                 \
            memcpy(&is_bits, is_ + (size_t)i_ * p.size, p.size);                                                       \
            memcpy(&want_bits, want_ + (size_t)i_ * p.size, p.size);                                                   \
        }                                                                                                              \
        CHECK(i_ < 0, "%s of %s, %s: element %lld of %lld at %lld is %llx, not %llx", what, yk_dtype_name(p.dtype),    \
              reduction_names[p.op], (long long)i_, (long long)(n), (long long)at, (unsigned long long)is_bits,        \
              (unsigned long long)want_bits);                                                                          \
    } while (0)

static inline void reduce_pieces(rank_context *c, yk_dtype dtype, yk_reduce_op op, int64_t count, int64_t longest)
{
    reduction_plan p;
    CHECK(reduction_plan_init(&p, c->size, dtype, op, count), "no memory");
    for (int64_t at = 0, n; at < count; at += n) {
        yk_scope scope = yk_scope_begin();
        n = 1 + (int64_t)reduction_draw(&p, reduction_draw(&p, 2) ? 40 : (uint64_t)longest);
        n = n < count - at ? n : count - at;
        int kind = (int)reduction_draw(&p, 4), root = (int)reduction_draw(&p, (uint64_t)c->size);
        int memory = (int)reduction_draw(&p, 3); /* shared, not, or not on all ranks */
        bool shared = memory == 0 || (memory == 2 && c->rank % 2);
        const char *mine = p.values + (size_t)(c->rank * count + at) * p.size;
        const char *want = p.results + (size_t)at * p.size;
        if (kind == 3 && n >= c->size) { /* reduce_scatter; the rest is left to the next piece */
            int64_t part = n / c->size;
            n = part * c->size;
            yk_tensor *in = reduction_buffer(&p, n, shared, mine), *out = reduction_buffer(&p, part, shared, NULL);
            CHECK(in && out, "%s", yk_last_error()->message);
            CHECK_OK(yk_reduce_scatter(out, in, op, c->group));
            CHECK_BITS(out, want + (size_t)(c->rank * part) * p.size, part, "reduce_scatter");
        } else {
            yk_tensor *x = reduction_buffer(&p, n, shared, mine);
            CHECK(x, "%s", yk_last_error()->message);
            if (kind == 2) {
                CHECK_OK(yk_reduce(x, root, op, c->group));
                CHECK_BITS(x, c->rank == root ? want : mine, n, "reduce");
            } else {
                CHECK_OK(yk_all_reduce(x, op, c->group));
                CHECK_BITS(x, want, n, "all_reduce");
            }
        }
        yk_scope_end(scope);
    }
}

/* A reduction by so many ranks, of which reduction_cases makes the list and returns its length: small pieces in all
 * dtypes and by all operations, then pieces that go in several segments. */
typedef struct reduction_case {
    yk_dtype dtype;
    yk_reduce_op op;
    int64_t count, longest;
} reduction_case;

static inline int reduction_cases(int ranks, reduction_case cases[REDUCTION_PLANS])
{
    int n = 0;
    for (size_t d = 0; d < sizeof(reduction_dtypes) / sizeof(reduction_dtypes[0]); d++)
        for (int op = YK_OP_SUM; op <= YK_OP_PRODUCT; op++)
            if (op != YK_OP_MEAN || yk_dtype_is_floating(reduction_dtypes[d]))
                cases[n++] = (reduction_case){reduction_dtypes[d], (yk_reduce_op)op, 2500, 1500};
    int64_t large = ranks > 4 ? 60000 : 400000;
    cases[n++] = (reduction_case){YK_F32, YK_OP_SUM, large, large};
    cases[n++] = (reduction_case){YK_BF16, YK_OP_MEAN, large, large};
    cases[n++] = (reduction_case){YK_F64, YK_OP_MEAN, large, large};
    cases[n++] = (reduction_case){YK_F16, YK_OP_SUM, large, large};
    cases[n++] = (reduction_case){YK_U8, YK_OP_MAX, large, large};
    return n;
}

static inline void reduce_at_random(rank_context *c)
{
    reduction_case cases[REDUCTION_PLANS];
    for (int i = 0, n = reduction_cases(c->size, cases); i < n && !c->failure[0]; i++)
        reduce_pieces(c, cases[i].dtype, cases[i].op, cases[i].count, cases[i].longest);
}

/* Makes the plans before ranks are forked, which all have them then. */
static inline void reduction_prepare(int ranks)
{
    reduction_case cases[REDUCTION_PLANS];
    reduction_plan p;
    for (int i = 0, n = reduction_cases(ranks, cases); i < n; i++)
        assert_true(reduction_plan_init(&p, ranks, cases[i].dtype, cases[i].op, cases[i].count));
}

#endif
