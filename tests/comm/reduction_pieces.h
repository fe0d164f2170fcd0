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
    uint64_t random;
    size_t size;
    char *values, *results; /* values: rank r's from r * count * size on */
} reduction_plan;

static inline uint64_t reduction_draw(reduction_plan *p, uint64_t below)
{
    p->random = reference_hash(p->random + 0x9E3779B97F4A7C15u);
    return p->random % below;
}

static inline bool reduction_plan_init(reduction_plan *p, int ranks, yk_dtype dtype, yk_reduce_op op, int64_t count)
{
    *p = (reduction_plan){
        dtype, op, count, (uint64_t)dtype * 97 + (uint64_t)op * 31 + (uint64_t)count, yk_dtype_size(dtype), NULL, NULL};
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
static inline yk_tensor *reduction_buffer(reduction_plan *p, int64_t count, bool shared, const void *values)
{
    int64_t offset = (int64_t)reduction_draw(p, 40), all = offset + count + 1;
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
              what, yk_dtype_name(p.dtype), reduction_names[p.op], (long long)i, (long long)(n), (long long)at,        \
              (unsigned long long)is_bits, (unsigned long long)want_bits);                                             \
    }

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
            CHECK_BITS(yk_tensor_data(out), want + (size_t)(c->rank * part) * p.size, part, "reduce_scatter");
        } else {
            yk_tensor *x = reduction_buffer(&p, n, shared, mine);
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

/* Small pieces in all reduction_dtypes and by all reductions, then pieces that go in several segments. */
static inline void reduce_at_random(rank_context *c)
{
    int64_t large = c->size > 4 ? 60000 : 400000;
    for (size_t d = 0; d < sizeof(reduction_dtypes) / sizeof(reduction_dtypes[0]); d++)
        for (int op = YK_OP_SUM; op <= YK_OP_PRODUCT && !c->failure[0]; op++)
            if (op != YK_OP_MEAN || yk_dtype_is_floating(reduction_dtypes[d]))
                reduce_pieces(c, reduction_dtypes[d], (yk_reduce_op)op, 2500, 1500);
    static const struct {
        yk_dtype dtype;
        yk_reduce_op op;
    } larger[] = {
        {YK_F32, YK_OP_SUM}, {YK_BF16, YK_OP_MEAN}, {YK_F64, YK_OP_MEAN}, {YK_F16, YK_OP_SUM}, {YK_U8, YK_OP_MAX}};
    for (int i = 0; i < 5 && !c->failure[0]; i++)
        reduce_pieces(c, larger[i].dtype, larger[i].op, large, large);
}

#endif
