/*
 * gemm_test.c - the matrix product slot of the CPU against plain float64 loops: sizes around the kernels' tiles,
 * strides of every operand, batches, bias, accumulation, and the same bits on one, two and three threads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/isa.h"
#include "tests/support/machine.h"
#include "tests/support/reference.h"

#include "device/table.h"

static const yk_device cpu = {0};

enum order { ROWS, COLUMNS, SPARSE /* neither dimension next to each other */, PADDED /* rows with a gap */, ORDERS };
enum batch { DENSE, SHARED /* stride 0 */ };

REFERENCE static double noise(uint64_t seed, uint64_t i)
{
    uint64_t z = seed * 0x9E3779B97F4A7C15u + i * 0xBF58476D1CE4E5B9u + 0x94D049BB133111EBu;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (double)(float)((double)((z ^ (z >> 31)) >> 40) * 0x1p-23 - 1.0);
}

/* A (batch, rows, cols) view of memory of its own, exactly as long as it must be, full of NaN. */
static yk__view make(yk_dtype dtype, int64_t batch, int64_t rows, int64_t cols, enum order order, enum batch shared)
{
    yk__view v = {.dtype = dtype, .ndim = 3, .shape = {batch, rows, cols}};
    int64_t row = order == ROWS ? cols : order == COLUMNS ? 1 : order == SPARSE ? 2 * cols + 1 : cols + 3;
    int64_t col = order == COLUMNS ? rows : order == SPARSE ? 2 : 1;
    v.stride[1] = row;
    v.stride[2] = col;
    v.stride[0] = shared == SHARED ? 0 : rows * row + cols * col;
    int64_t n = (batch - 1) * v.stride[0] + (rows - 1) * row + (cols - 1) * col + 1;
    size_t bytes = batch && rows && cols ? (size_t)n * yk_dtype_size(dtype) : 0;
    v.data = malloc(bytes ? bytes : 1);
    assert_non_null(v.data);
    memset(v.data, 0xFF, bytes);
    return v;
}

REFERENCE static int64_t at(const yk__view *v, int64_t b, int64_t i, int64_t j)
{
    return b * v->stride[0] + i * v->stride[1] + j * v->stride[2];
}

REFERENCE static double get(const yk__view *v, int64_t i)
{
    if (v->dtype == YK_BF16) {
        uint32_t bits = (uint32_t)((uint16_t *)v->data)[i] << 16;
        float value;
        memcpy(&value, &bits, sizeof(value));
        return (double)value;
    }
    return v->dtype == YK_F32 ? (double)((float *)v->data)[i] : ((double *)v->data)[i];
}

/* Rounded down: which of its neighbours a number becomes is nothing here. */
REFERENCE static uint16_t bf16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return (uint16_t)(bits >> 16);
}

REFERENCE static void fill(const yk__view *v, uint64_t seed)
{
    uint64_t n = 0;
    for (int64_t b = 0; b < v->shape[0]; b++)
        for (int64_t i = 0; i < v->shape[1]; i++)
            for (int64_t j = 0; j < v->shape[2]; j++) {
                double value = noise(seed, n++);
                if (v->dtype == YK_BF16)
                    ((uint16_t *)v->data)[at(v, b, i, j)] = bf16_of((float)value);
                else if (v->dtype == YK_F32)
                    ((float *)v->data)[at(v, b, i, j)] = (float)value;
                else
                    ((double *)v->data)[at(v, b, i, j)] = value;
            }
}

struct problem {
    int64_t batch, m, n, k;
    enum order a, b, out;
    enum batch a_batch, b_batch;
    bool bias, accumulate;
};

/* The sum of each element of the product, and its sum of absolute values. They depend on the values of a and b alone,
 * which are the same in every order: kept for the next call with the same sizes. */
struct products {
    struct problem of;
    double *sum, *size;
};

/* The elements in C order. */
REFERENCE static double *elements(const yk__view *v)
{
    int64_t count = 0;
    double *all = malloc((size_t)(v->shape[0] * v->shape[1] * v->shape[2] + 1) * sizeof *all);
    assert_non_null(all);
    for (int64_t b = 0; b < v->shape[0]; b++)
        for (int64_t i = 0; i < v->shape[1]; i++)
            for (int64_t j = 0; j < v->shape[2]; j++)
                all[count++] = get(v, at(v, b, i, j));
    return all;
}

REFERENCE static void multiply(const struct products *p, const yk__view *a, const yk__view *b)
{
    int64_t m = p->of.m, n = p->of.n, k = p->of.k;
    double *left = elements(a), *right = elements(b);
    for (int64_t i = 0; i < p->of.batch * m; i++)
        for (int64_t l = 0; l < k; l++) {
            const double *row = right + (i / m * k + l) * n;
            for (int64_t j = 0; j < n; j++) {
                double product = left[i * k + l] * row[j];
                p->sum[i * n + j] += product;
                p->size[i * n + j] += fabs(product);
            }
        }
    free(left), free(right);
}

static const struct products *products_of(const struct problem *q, const yk__view *a, const yk__view *b)
{
    static struct products kept[3];
    struct products *p = &kept[a->dtype == YK_F64 ? 0 : a->dtype == YK_F32 ? 1 : 2];
    const struct problem *of = &p->of;
    if (p->sum && of->batch == q->batch && of->m == q->m && of->n == q->n && of->k == q->k &&
        of->a_batch == q->a_batch && of->b_batch == q->b_batch)
        return p;
    free(p->sum), free(p->size);
    size_t count = (size_t)(q->batch * q->m * q->n) + 1;
    *p = (struct products){*q, calloc(count, sizeof(double)), calloc(count, sizeof(double))};
    assert_true(p->sum && p->size);
    multiply(p, a, b);
    return p;
}

REFERENCE static void compare(const struct problem *q, const yk__view *out, const struct products *p,
                              const yk__view *bias, const yk__view *before)
{
    double eps = out->dtype == YK_F64 ? 0x1p-53 : 0x1p-24, rounding = out->dtype == YK_BF16 ? 0x1.01p-8 : 0;
    int64_t element = 0;
    for (int64_t s = 0; s < q->batch; s++)
        for (int64_t i = 0; i < q->m; i++)
            for (int64_t j = 0; j < q->n; j++, element++) {
                double got = get(out, at(out, s, i, j));
                double want = p->sum[element] + ((q->bias ? get(bias, j * bias->stride[0]) : 0) +
                                                 (q->accumulate ? get(before, at(before, s, i, j)) : 0));
                double allowed = 32 * eps * (p->size[element] + 2) + rounding * fabs(want);
                if (!(fabs(got - want) <= allowed))
                    fail_msg("%s, batch %d, m %d, n %d, k %d, orders %d %d %d, bias %d, accumulate %d: at (%d, %d, %d) "
                             "got %.9g, expected %.9g",
                             yk_dtype_name(out->dtype), (int)q->batch, (int)q->m, (int)q->n, (int)q->k, q->a, q->b,
                             q->out, q->bias, q->accumulate, (int)s, (int)i, (int)j, got, want);
            }
}

REFERENCE static void compare_bits(const yk__view *a, const yk__view *b, int threads)
{
    for (int64_t s = 0; s < a->shape[0]; s++)
        for (int64_t i = 0; i < a->shape[1]; i++)
            for (int64_t j = 0; j < a->shape[2]; j++)
                if (get(a, at(a, s, i, j)) != get(b, at(b, s, i, j)))
                    fail_msg("other bits on %d threads", threads);
}

static void check(const struct problem *q, yk_dtype dtype, bool threads)
{
    const yk__backend *t = yk__backend_of(cpu);
    assert_non_null(t);
    if (!(t->takes[YK__SLOT_gemm] & 1u << dtype)) /* bf16, without AVX512-BF16: takes_what_the_processor_has */
        return;
    yk__view a = make(dtype, q->batch, q->m, q->k, q->a, q->a_batch);
    yk__view b = make(dtype, q->batch, q->k, q->n, q->b, q->b_batch);
    yk__view bias2 = make(dtype, 1, 1, q->n, q->a == SPARSE ? SPARSE : ROWS, DENSE);
    yk__view bias = {.data = bias2.data, .dtype = dtype, .ndim = 1, .shape = {q->n}, .stride = {bias2.stride[2]}};
    fill(&a, 1);
    fill(&b, 2);
    fill(&bias2, 3);
    const struct products *p = products_of(q, &a, &b);
    yk__view before = make(dtype == YK_BF16 ? YK_BF16 : YK_F64, q->batch, q->m, q->n, ROWS, DENSE);
    fill(&before, 4);
    yk__view first = {0};
    for (int count = 1; count <= (threads ? 3 : 1); count++) {
        assert_int_equal(yk_set_num_threads(cpu, count), YK_OK);
        yk__view out = make(dtype, q->batch, q->m, q->n, q->out, DENSE);
        if (q->accumulate)
            fill(&out, 4);
        assert_int_equal(t->gemm(0, &out, &a, &b, q->bias ? &bias : NULL, q->accumulate), YK_OK);
        if (count == 1) {
            compare(q, &out, p, &bias, &before);
            first = out;
        } else {
            compare_bits(&out, &first, count);
            free(out.data);
        }
    }
    free(before.data), free(first.data);
    free(a.data), free(b.data), free(bias2.data);
}

static void test_orders(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {
        {1, 1, 1},    {1, 10, 84}, {4, 120, 256}, {4, 256, 120}, {120, 256, 4}, {4, 84, 120},  {2, 16, 3},
        {3, 15, 33},  {5, 17, 16}, {8, 47, 40},   {9, 31, 70},   {14, 32, 20},  {29, 33, 34},  {64, 10, 84},
        {10, 84, 64}, {1, 70, 1},  {70, 1, 9},    {3, 2, 0},     {7, 100, 5},   {13, 64, 600}, {37, 1, 19},
        {1, 300, 19}, {70, 1, 33}, {19, 40, 1},   {37, 1, 1},    {1, 300, 1},   {66, 1, 4100}, {1, 66, 4100},
        {5, 5, 5},    {3, 3, 3},   {40, 3, 70},   {30, 13, 270}, {13, 30, 140}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int a = 0; a < ORDERS; a++)
            for (int b = 0; b < ORDERS; b++)
                for (int out = 0; out < ORDERS; out++)
                    for (int flags = 0; flags < 4; flags += sanitized_size(1, 3)) {
                        struct problem q = {
                            1,     sizes[i][0], sizes[i][1], sizes[i][2], (enum order)a, (enum order)b, (enum order)out,
                            DENSE, DENSE,       flags & 1,   flags & 2};
                        check(&q, YK_F32, false);
                        check(&q, YK_F64, false);
                        check(&q, YK_BF16, false);
                    }
}

/* Sizes that are cut into blocks, and rows a power of two apart. */
static void test_blocks(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {
        {130, 70, 1030}, {256, 130, 512}, {115, 200, 300}, {7, 520, 1500},
        {300, 5, 2100},  {300, 1, 1030},  {1, 700, 1030},  {600, 900, 1}, /* a matrix and a vector, two vectors */
        {9, 530, 300},   {14, 1040, 130}, {200, 3, 4500},  {12, 1024, 200}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int a = 0; a < SPARSE; a++)
            for (int b = 0; b < SPARSE; b++)
                for (int flags = 0; flags < 4; flags += sanitized_size(1, 3)) {
                    struct problem q = {1,    sizes[i][0], sizes[i][1], sizes[i][2], (enum order)a, (enum order)b,
                                        ROWS, DENSE,       DENSE,       flags & 1,   flags & 2};
                    check(&q, YK_F32, true);
                    check(&q, YK_F64, flags == 3);
                    check(&q, YK_BF16, flags == 3);
                }
    /* Some rows times a large B in order of k: edges of panels, groups of columns, blocks of k and sums. */
    static const struct problem turned[] = {
        {1, 33, 1030, 4100, ROWS, COLUMNS, ROWS, DENSE, DENSE, true, false},
        {1, 64, 8203, 513, COLUMNS, COLUMNS, PADDED, DENSE, DENSE, true, true},
        {1, 50, 517, 8195, PADDED, COLUMNS, ROWS, DENSE, DENSE, false, true},
    };
    for (size_t i = 0; i < sizeof turned / sizeof *turned; i++) {
        check(&turned[i], YK_F32, true);
        check(&turned[i], YK_F64, i == 0);
    }
    /* A k of several blocks, of one and of two lengths. */
    for (int64_t k = 8192; k <= 9001; k += 809)
        for (int flags = 0; flags < 4; flags++) {
            struct problem q = {1,     30,    70,        k,        ROWS, COLUMNS, flags & 2 ? COLUMNS : ROWS,
                                DENSE, DENSE, flags & 1, flags & 2};
            check(&q, YK_BF16, true);
        }
}

static void test_batches(void **state)
{
    (void)state;
    static const int64_t sizes[][4] = {{0, 3, 4, 5},   {3, 0, 4, 5},    {3, 4, 0, 5},    {3, 4, 5, 0},
                                       {2, 5, 40, 17}, {11, 20, 33, 9}, {9, 70, 90, 64}, {3, 90, 100, 50}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int a = 0; a < ORDERS; a++)
            for (int shared = 0; shared < 4; shared++)
                for (int flags = 0; flags < 4; flags++) {
                    struct problem q = {sizes[i][0],
                                        sizes[i][1],
                                        sizes[i][2],
                                        sizes[i][3],
                                        (enum order)a,
                                        a == ROWS ? COLUMNS : ROWS,
                                        (enum order)(a == SPARSE ? PADDED : ROWS),
                                        shared & 1 ? SHARED : DENSE,
                                        shared & 2 ? SHARED : DENSE,
                                        flags & 1,
                                        flags & 2};
                    check(&q, YK_F32, true);
                    check(&q, YK_F64, false);
                    check(&q, YK_BF16, true);
                }
}

static void takes_what_the_processor_has(void **state)
{
    (void)state;
    bool there = false;
#if defined(__x86_64__)
    there = __builtin_cpu_supports("avx512bf16") && yk__isa() == YK__LEVEL_v4;
#endif
    const yk__backend *t = yk__backend_of(cpu);
    if (!there)
        skip();
    assert_true(t->takes[YK__SLOT_gemm] & 1u << YK_BF16);
}

/* A NaN and an infinity in one element reach its row of the result, and no other. */
static void what_is_not_finite_stays_in_its_row(void **state)
{
    (void)state;
    const yk__backend *t = yk__backend_of(cpu);
    static const yk_dtype dtypes[] = {YK_F32, YK_BF16};
    for (int d = 0; d < 2; d++) {
        if (!(t->takes[YK__SLOT_gemm] & 1u << dtypes[d]))
            continue;
        for (int64_t m = 2; m <= 30; m += 14) {
            yk__view a = make(dtypes[d], 1, m, 33, ROWS, DENSE), b = make(dtypes[d], 1, 33, 40, COLUMNS, DENSE);
            yk__view out = make(dtypes[d], 1, m, 40, ROWS, DENSE);
            fill(&a, 1);
            fill(&b, 2);
            const float odd[2] = {INFINITY, NAN};
            for (int i = 0; i < 2; i++) {
                if (dtypes[d] == YK_F32)
                    ((float *)a.data)[i * 33 + 32] = odd[i];
                else
                    ((uint16_t *)a.data)[i * 33 + 32] = bf16_of(odd[i]);
            }
            assert_int_equal(t->gemm(0, &out, &a, &b, NULL, false), YK_OK);
            for (int64_t j = 0; j < 40; j++) {
                assert_false(isfinite(get(&out, j)));
                assert_true(isnan(get(&out, 40 + j)));
                for (int64_t i = 2; i < m; i++)
                    assert_true(isfinite(get(&out, i * 40 + j)));
            }
            free(a.data), free(b.data), free(out.data);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(takes_what_the_processor_has),
        cmocka_unit_test(what_is_not_finite_stays_in_its_row),
    };
    return cmocka_run_group_tests_name("gemm", tests, NULL, NULL);
}
