/*
 * The slot resize of every instruction set, against sums in f64: rows and columns that grow, shrink, stay and are read
 * near and far from each other, with as many taps for each element and with none for some; the same bits for 1, 2 and 3
 * threads.
 */
#include "tests/device/isa_tables.h"
#include "tests/support/views.h"

enum { MOST = 5, LARGEST = 80 };

typedef struct made {
    yk__taps taps;
    int32_t counts[LARGEST], index[MOST * LARGEST];
    double weight[MOST * LARGEST];
} made;

/* Taps of `to` elements made of `from`, neighbours of where the element lies, or any; `uneven`: from 0 to `most`. */
static void taps_make(made *m, int64_t from, int64_t to, int most, bool uneven, bool scattered)
{
    m->taps = (yk__taps){to, most, !uneven, m->counts, m->index, m->weight};
    for (int64_t i = 0; i < to; i++) {
        m->counts[i] = (int32_t)(uneven ? (i + 2) % (most + 1) : most);
        for (int64_t k = 0; k < most; k++) {
            int64_t at = scattered ? (i * 37 + k * 11) % from : i * from / to + k - most / 2;
            m->index[k * to + i] = (int32_t)(at < 0 ? 0 : at >= from ? from - 1 : at);
            m->weight[k * to + i] = 0.25 + (double)((i * 7 + k * 3) % 11) / 8; /* exact in f32 */
        }
    }
}

static double reference(const yk__view *x, const made *rows, const made *columns, int64_t p, int64_t y, int64_t at)
{
    double sum = 0;
    int rows_count = rows ? rows->counts[y] : 1, columns_count = columns ? columns->counts[at] : 1;
    for (int i = 0; i < rows_count; i++)
        for (int k = 0; k < columns_count; k++) {
            int64_t row = rows ? rows->index[i * rows->taps.size + y] : y;
            int64_t column = columns ? columns->index[k * columns->taps.size + at] : at;
            double weight = rows ? rows->weight[i * rows->taps.size + y] : 1;
            weight *= columns ? columns->weight[k * columns->taps.size + at] : 1;
            sum += weight * view_get(x, (p * x->shape[1] + row) * x->shape[2] + column);
        }
    return sum;
}

static void check(const yk__backend *table, yk_dtype dtype, const int64_t from[2], const int64_t to[2], int variant)
{
    static const int most[] = {1, 2, 4, MOST};
    made rows, columns;
    taps_make(&rows, from[0], to[0], most[variant % 4], variant & 4, variant & 8);
    taps_make(&columns, from[1], to[1], most[(variant + variant / 4) % 4], variant & 8, variant & 16);
    const made *r = from[0] == to[0] && variant % 3 == 0 ? NULL : &rows;
    const made *c = from[1] == to[1] && variant % 3 == 1 ? NULL : &columns;
    int64_t shape[3] = {3, from[0], from[1]}, out_shape[3] = {3, to[0], to[1]};
    yk__view x = view_make(dtype, 3, shape, LAYOUT_C), out[4];
    view_random(&x, (uint32_t)variant, -1, 1);
    for (int threads = 1; threads <= 3; threads++) {
        use_threads(threads);
        out[threads] = view_make(dtype, 3, out_shape, LAYOUT_C);
        expect_ok(table->resize(0, &out[threads], &x, r ? &r->taps : NULL, c ? &c->taps : NULL));
    }
    use_threads(1);
    assert_true(view_same_bits(&out[1], &out[2]) && view_same_bits(&out[1], &out[3]));
    for (int64_t i = 0; i < view_count(&out[1]); i++) {
        double want = reference(&x, r, c, i / to[1] / to[0], i / to[1] % to[0], i % to[1]), got = view_get(&out[1], i);
        double room = (dtype == YK_F32 ? 1e-5 : 1e-13) * (1 + fabs(want));
        if (!(fabs(got - want) <= room))
            fail_msg("%s variant %d, %lldx%lld to %lldx%lld: element %lld is %.9g, expected %.9g", yk_dtype_name(dtype),
                     variant, (long long)from[0], (long long)from[1], (long long)to[0], (long long)to[1], (long long)i,
                     got, want);
    }
    for (int threads = 1; threads <= 3; threads++)
        view_free(&out[threads]);
    view_free(&x);
}

static void test_resize(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{1, 1}, {3, 5}, {9, 37}, {18, 74}, {18, 37}, {20, 16}};
    enum { SIZES = sizeof(sizes) / sizeof(sizes[0]), VARIANTS = 32 };
    for (int isa = 0; isa < isa_count(); isa++) {
        yk__backend table = *cpu_backend();
        isa_fill(isa, &table);
        for (int a = 0; a < SIZES; a++)
            for (int b = 0; b < SIZES; b++)
                for (int v = (a + b) % 3; v < VARIANTS; v += 3)
                    check(&table, v % 2 ? YK_F64 : YK_F32, sizes[a], sizes[b], v);
    }
}

/* Pieces of several rows, and of several planes. */
static void test_threads(void **state)
{
    (void)state;
    made rows, columns;
    taps_make(&rows, 40, 80, 2, false, false);
    taps_make(&columns, 40, 80, 2, false, false);
    int64_t shape[3] = {60, 40, 40}, out_shape[3] = {60, 80, 80};
    yk__view x = view_make(YK_F32, 3, shape, LAYOUT_C), out[4];
    view_random(&x, 1, -1, 1);
    for (int threads = 1; threads <= 3; threads++) {
        use_threads(threads);
        out[threads] = view_make(YK_F32, 3, out_shape, LAYOUT_C);
        expect_ok(cpu_backend()->resize(0, &out[threads], &x, &rows.taps, &columns.taps));
    }
    use_threads(1);
    assert_true(view_same_bits(&out[1], &out[2]) && view_same_bits(&out[1], &out[3]));
    for (int64_t i = 0; i < view_count(&out[1]); i += 977)
        expect_near(view_get(&out[1], i), reference(&x, &rows, &columns, i / 6400, i / 80 % 80, i % 80), 1e-5, 1e-5);
    for (int threads = 1; threads <= 3; threads++)
        view_free(&out[threads]);
    view_free(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resize),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests_name("resize", tests, NULL, NULL);
}
