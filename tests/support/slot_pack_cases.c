/*
 * slot_pack_cases.c - operands that kernels read 16 bytes at a time (packs), and those that are just not so: rows with
 * gaps, an operand that has one element for a row or for a column, first elements that are not aligned, a few elements
 * after the last pack, dimensions that a copy reverses. Part of slot_cases.c.
 */
#include "tests/support/slot_pairs.h"

/* Memory of its own, seen from some element on with some strides. */
typedef struct region {
    pair memory;
    yk__view cpu, gpu;
} region;

/* Makes an operand in a region of memory, with special numbers, too, unless `plain`. */
static bool region_make(region *g, slot_report *r, yk_dtype dtype, int ndim, const int64_t *shape,
                        const int64_t *stride, int64_t first, uint32_t seed, bool plain)
{
    int64_t count = first + 1;
    memset(g, 0, sizeof(*g));
    for (int d = 0; d < ndim; d++)
        count += (shape[d] - 1) * stride[d];
    if (!pair_make(&g->memory, r, dtype, 1, &count, C_ORDER) ||
        !(plain ? pair_fill_range(&g->memory, r, seed, 0.25, 3) : pair_fill(&g->memory, r, seed)))
        return false;
    yk__view *views[] = {&g->cpu, &g->gpu};
    for (int k = 0; k < 2; k++) {
        const yk__view *all = k ? &g->memory.gpu : &g->memory.cpu;
        *views[k] =
            (yk__view){.data = (char *)all->data + first * (int64_t)yk_dtype_size(dtype), .dtype = dtype, .ndim = ndim};
        memcpy(views[k]->shape, shape, (size_t)ndim * sizeof(*shape));
        memcpy(views[k]->stride, stride, (size_t)ndim * sizeof(*stride));
    }
    return true;
}

static void region_free(region *g)
{
    pair_free(&g->memory);
}

/* The memory layouts of an operand of rows x columns. */
enum { DENSE, GAP_OF_A_PACK, GAP_OF_ONE, ONE_OF_A_ROW, ONE_OF_A_COLUMN, ONE, FORMS };

static bool matrix_make(region *g, slot_report *r, yk_dtype dtype, const int64_t *shape, int form, int64_t first,
                        uint32_t seed)
{
    int64_t width = shape[1] + (form == GAP_OF_A_PACK ? 16 : form == GAP_OF_ONE);
    const int64_t stride[] = {form == ONE_OF_A_COLUMN || form == ONE ? 0
                              : form == ONE_OF_A_ROW                 ? 1
                                                                     : width,
                              form == ONE_OF_A_ROW || form == ONE ? 0 : 1};
    return region_make(g, r, dtype, 2, shape, stride, first, seed, false);
}

static const int64_t matrices[][2] = {{3, 16}, {5, 48}, {1, 4103}, {7, 13}, {40, 112}};
static const yk_dtype dtypes[] = {YK_F32, YK_F16, YK_BF16, YK_F64, YK_I32, YK_U8};
enum { MATRICES = sizeof(matrices) / sizeof(matrices[0]), DTYPES = sizeof(dtypes) / sizeof(dtypes[0]) };

static void binary_packs(const slot_case *self, slot_report *r)
{
    static const yk__binary ops[] = {YK__ADD, YK__MUL, YK__SUB};
    (void)self;
    for (int k = 0; k < MATRICES * FORMS * 6 && slot_ready(r) && !r->failed; k++) {
        const int64_t *shape = matrices[k % MATRICES];
        yk_dtype dtype = dtypes[k / MATRICES % 4];
        int form = k / MATRICES % FORMS, turn = k / (MATRICES * FORMS);
        yk__binary op = ops[k % 3];
        region out, x, y;
        memset(&out, 0, sizeof(out)), x = y = out;
        if (matrix_make(&out, r, dtype, shape, turn == 1 ? GAP_OF_A_PACK : DENSE, turn == 2, 1) &&
            matrix_make(&x, r, dtype, shape, turn == 3 ? form : DENSE, turn == 4, 2) &&
            matrix_make(&y, r, dtype, shape, form, turn == 5 ? 3 : 0, 3)) {
            double alpha = k % 2 ? 1 : -0.5;
            if (slot_done(r, "cpu", slot_cpu->binary(0, op, &out.cpu, &x.cpu, &y.cpu, alpha)) &&
                slot_done(r, "cuda", slot_gpu->binary(0, op, &out.gpu, &x.gpu, &y.gpu, alpha)))
                pair_compare(r, yk_dtype_name(dtype), &out.memory, 0);
        }
        region_free(&y);
        region_free(&x);
        region_free(&out);
    }
}

/* Comparisons, operations of whole numbers, and choices by a condition. */
static void choice_packs(const slot_case *self, slot_report *r)
{
    static const yk_dtype all[] = {YK_F32, YK_I32, YK_BF16, YK_I64, YK_F64, YK_U8, YK_F16};
    static const yk__binary ops[] = {YK__LT, YK__EQ, YK__GE, YK__NE};
    (void)self;
    for (int k = 0; k < MATRICES * FORMS * 7 && slot_ready(r) && !r->failed; k++) {
        const int64_t *shape = matrices[k % MATRICES];
        yk_dtype dtype = all[k / (MATRICES * FORMS)];
        int form = k / MATRICES % FORMS;
        bool odd = k % 4 == 3;
        region truth, out, x, y;
        memset(&truth, 0, sizeof(truth)), out = x = y = truth;
        if (matrix_make(&truth, r, YK_BOOL, shape, odd ? GAP_OF_ONE : DENSE, 0, 1) &&
            matrix_make(&out, r, dtype, shape, DENSE, odd, 2) && matrix_make(&x, r, dtype, shape, form, 0, 3) &&
            matrix_make(&y, r, dtype, shape, k % 3 ? DENSE : form, k % 5 == 4, 4)) {
            yk__binary op = ops[k % 4];
            if (slot_done(r, "cpu", slot_cpu->binary(0, op, &truth.cpu, &x.cpu, &y.cpu, 1)) &&
                slot_done(r, "cuda", slot_gpu->binary(0, op, &truth.gpu, &x.gpu, &y.gpu, 1)))
                pair_compare(r, "comparison", &truth.memory, 0);
            if (slot_done(r, "cpu", slot_cpu->where(0, &out.cpu, &truth.cpu, &x.cpu, &y.cpu)) &&
                slot_done(r, "cuda", slot_gpu->where(0, &out.gpu, &truth.gpu, &x.gpu, &y.gpu)))
                pair_compare(r, "where", &out.memory, 0);
            if (!yk_dtype_is_floating(dtype) && dtype != YK_U8 &&
                slot_done(r, "cpu", slot_cpu->binary(0, YK__ADD, &out.cpu, &x.cpu, &y.cpu, 2)) &&
                slot_done(r, "cuda", slot_gpu->binary(0, YK__ADD, &out.gpu, &x.gpu, &y.gpu, 2)))
                pair_compare(r, "sum of whole numbers", &out.memory, 0);
        }
        region_free(&y);
        region_free(&x);
        region_free(&out);
        region_free(&truth);
    }
}

/* Operations with one operand: unary operations, copies with and without a cast, fill. */
static void unary_packs(const slot_case *self, slot_report *r)
{
    (void)self;
    for (int k = 0; k < MATRICES * FORMS * DTYPES * 2 && slot_ready(r) && !r->failed; k++) {
        const int64_t *shape = matrices[k % MATRICES];
        int form = k / MATRICES % FORMS, turn = k / (MATRICES * FORMS);
        yk_dtype dtype = dtypes[turn % DTYPES], other = dtypes[k % 3];
        bool odd = turn / DTYPES;
        region out, x, cast;
        memset(&out, 0, sizeof(out)), x = cast = out;
        if (matrix_make(&out, r, dtype, shape, form < ONE_OF_A_ROW ? form : DENSE, odd && k % 2, 1) &&
            matrix_make(&cast, r, other, shape, DENSE, 0, 2) &&
            matrix_make(&x, r, dtype, shape, form, odd && k % 2 == 0, 3)) {
            if (slot_done(r, "cpu", slot_cpu->unary(0, YK__RELU, &out.cpu, &x.cpu, 0, 0)) &&
                slot_done(r, "cuda", slot_gpu->unary(0, YK__RELU, &out.gpu, &x.gpu, 0, 0)))
                pair_compare(r, "relu", &out.memory, 0);
            if (slot_done(r, "cpu", slot_cpu->copy(0, &cast.cpu, &x.cpu)) &&
                slot_done(r, "cuda", slot_gpu->copy(0, &cast.gpu, &x.gpu)))
                pair_compare(r, "cast", &cast.memory, 0);
            if (slot_done(r, "cpu", slot_cpu->copy(0, &out.cpu, &x.cpu)) &&
                slot_done(r, "cuda", slot_gpu->copy(0, &out.gpu, &x.gpu)))
                pair_compare(r, "copy", &out.memory, 0);
            if (slot_done(r, "cpu", slot_cpu->fill(0, &out.cpu, 3)) &&
                slot_done(r, "cuda", slot_gpu->fill(0, &out.gpu, 3)))
                pair_compare(r, "fill", &out.memory, 0);
        }
        region_free(&x);
        region_free(&cast);
        region_free(&out);
    }
}

/* (N, C, H, W) to and from channels last, and a transposed matrix, around the size of a tile. */
static void turned_copy(const slot_case *self, slot_report *r)
{
    static const int64_t shapes[][4] = {{1, 1, 67, 130}, {2, 65, 5, 7}, {3, 16, 4, 4}, {2, 3, 9, 11}, {1, 64, 8, 16}};
    (void)self;
    for (int k = 0; k < 5 * DTYPES * 3 && slot_ready(r) && !r->failed; k++) {
        const int64_t *n = shapes[k % 5], gap = k / (5 * DTYPES);
        yk_dtype dtype = dtypes[k / 5 % DTYPES];
        const int64_t first[] = {(n[1] + gap) * n[2] * n[3], n[2] * n[3], n[3], 1};
        const int64_t last[] = {(n[1] + gap) * n[2] * n[3], 1, (n[1] + gap) * n[3], n[1] + gap};
        const int64_t turned[] = {(n[1] + gap) * n[2] * n[3], n[2] * n[3], 1, n[2]};
        const int64_t *other = n[1] == 1 ? turned : last;
        region out, x;
        memset(&out, 0, sizeof(out)), x = out;
        if (region_make(&out, r, dtype, 4, n, k % 2 ? first : other, gap == 2, 1, false) &&
            region_make(&x, r, dtype, 4, n, k % 2 ? other : first, 0, 2, false) &&
            slot_done(r, "cpu", slot_cpu->copy(0, &out.cpu, &x.cpu)) &&
            slot_done(r, "cuda", slot_gpu->copy(0, &out.gpu, &x.gpu)))
            pair_compare(r, yk_dtype_name(dtype), &out.memory, 0);
        region_free(&x);
        region_free(&out);
    }
}

static void dropout_packs(const slot_case *self, slot_report *r)
{
    static const int64_t counts[] = {1, 3, 4, 1027, 2050};
    (void)self;
    for (int k = 0; k < 5 * 2 * 3 && slot_ready(r) && !r->failed; k++) {
        const int64_t one = 1, *count = &counts[k % 5];
        yk_dtype dtype = dtypes[k / 10];
        region out, x;
        memset(&out, 0, sizeof(out)), x = out;
        const yk__stream stream = {(uint64_t)k, YK__RANDOM_TEST, 7};
        if (region_make(&out, r, dtype, 1, count, &one, 0, 1, false) &&
            region_make(&x, r, dtype, 1, count, &one, k / 5 % 2, 2, false) &&
            slot_done(r, "cpu", slot_cpu->dropout(0, &out.cpu, &x.cpu, stream, NULL, 0, 0.3)) &&
            slot_done(r, "cuda", slot_gpu->dropout(0, &out.gpu, &x.gpu, stream, NULL, 0, 0.3)))
            pair_compare(r, yk_dtype_name(dtype), &out.memory, 0);
        region_free(&x);
        region_free(&out);
    }
}

/* Parameters and gradients that follow one another in one buffer. */
static void optimizer_packs(const slot_case *self, slot_report *r)
{
    enum { TENSORS = 5 };
    static const int64_t sizes[] = {5, 16, 1023, 4, 2051};
    const int64_t one = 1;
    (void)self;
    for (int k = 0; k < 2 * 2 * 2 && slot_ready(r) && !r->failed; k++) {
        yk_dtype dtype = k & 4 ? YK_F64 : YK_F32;
        region all[5][TENSORS];
        yk__view cpu[5][TENSORS], gpu[5][TENSORS];
        bool made = true;
        memset(all, 0, sizeof(all));
        for (int t = 0; t < TENSORS; t++) {
            for (int p = 0; p < 5; p++) {
                made = made && region_make(&all[p][t], r, dtype, 1, &sizes[t], &one, t == 3 ? p == 2 : t % 3,
                                           (uint32_t)(t * 5 + p), true);
                cpu[p][t] = all[p][t].cpu, gpu[p][t] = all[p][t].gpu;
            }
        }
        yk__adam a = {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.01, .step = 2};
        a.amsgrad = k & 1, a.decoupled = k & 1;
        const yk__sgd s = {.lr = 0.1, .momentum = k & 1 ? 0.9 : 0, .weight_decay = 0.01, .nesterov = k & 1};
        if (made && slot_done(r, "cpu",
                              k & 2 ? slot_cpu->adam(0, &a, TENSORS, cpu[0], cpu[1], cpu[2], cpu[3], cpu[4])
                                    : slot_cpu->sgd(0, &s, TENSORS, cpu[0], cpu[1], k & 1 ? cpu[2] : NULL)))
            slot_done(r, "cuda",
                      k & 2 ? slot_gpu->adam(0, &a, TENSORS, gpu[0], gpu[1], gpu[2], gpu[3], gpu[4])
                            : slot_gpu->sgd(0, &s, TENSORS, gpu[0], gpu[1], k & 1 ? gpu[2] : NULL));
        for (int t = 0; t < TENSORS; t++) {
            for (int p = 0; p < 5; p++) {
                if (made)
                    pair_compare(r, k & 2 ? "adam" : "sgd", &all[p][t].memory, 0);
                region_free(&all[p][t]);
            }
        }
    }
}

const slot_case slot_pack_cases[] = {
    {"binary", "packs", binary_packs, 0},
    {"unary", "packs", unary_packs, 0},
    {"where", "packs", choice_packs, 0},
    {"copy", "turned", turned_copy, 0},
    {"dropout", "packs", dropout_packs, 0},
    {"sgd", "packs_and_adam", optimizer_packs, 0},
    {NULL, NULL, NULL, 0},
};
