/*
 * The slots softmax and softmax_backward, with and without logarithm, along every dimension and in every layout,
 * against double; shifted and infinite input; rows beyond a chunk; the same bits for 1, 2 and 3 threads.
 */
#include "tests/support/views.h"

static const struct {
    int ndim;
    int64_t shape[4];
} shapes[] = {
    {0, {0}},       {1, {1}},          {1, {10}},      {1, {2500}}, {2, {64, 10}}, {2, {5, 1000}},
    {2, {1030, 7}}, {4, {2, 5, 9, 8}}, {3, {3, 1, 4}}, {2, {0, 3}}, {2, {3, 0}},   {3, {2, 70, 130}},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* The index in C order of the first element of the row that element i is in, and the step along the row. */
static int64_t row_start(const yk__view *v, int dim, int64_t i, int64_t *step)
{
    *step = 1;
    for (int d = v->ndim - 1; d > dim; d--)
        *step *= v->shape[d];
    return v->ndim == 0 ? 0 : i - i / *step % v->shape[dim] * *step;
}

/* The row of `length` elements from `first` on, `step` apart in C order. */
static void check_row(const yk__view *x, const yk__view *g, const yk__view *y, const yk__view *gx, int64_t first,
                      int64_t length, int64_t step, bool log_too, double epsilon)
{
    double sum = 0, dot = 0, total = 0;
    for (int64_t k = first; k < first + length * step; k += step) {
        sum += exp(view_get(x, k) - 100);
        dot += view_get(g, k) * exp(view_get(x, k) - 100);
        total += view_get(g, k);
    }
    for (int64_t k = first; k < first + length * step; k += step) {
        double p = exp(view_get(x, k) - 100) / sum, slope = view_get(g, k);
        double want = log_too ? view_get(x, k) - 100 - log(sum) : p;
        expect_near(view_get(y, k), want, epsilon, log_too ? epsilon : 0);
        expect_near(view_get(gx, k), log_too ? slope - p * total : p * (slope - dot / sum), 3 * epsilon, 3 * epsilon);
    }
}

static void test_forward_and_backward(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++)
        for (int s = 0; s < SHAPES; s++)
            for (int dim = 0; dim < (shapes[s].ndim ? shapes[s].ndim : 1); dim++)
                for (int layout = 0; layout < LAYOUTS * INPUT_LAYOUTS; layout++)
                    for (int log_too = 0; log_too < 2; log_too++) {
                        yk_dtype dtype = t ? YK_F64 : YK_F32;
                        int ndim = shapes[s].ndim;
                        const int64_t *shape = shapes[s].shape;
                        double epsilon = t ? 1e-13 : 1e-6;
                        yk__view x = view_make(dtype, ndim, shape, layout % INPUT_LAYOUTS);
                        yk__view g = view_make(dtype, ndim, shape, layout % INPUT_LAYOUTS);
                        yk__view y = view_make(dtype, ndim, shape, layout / INPUT_LAYOUTS);
                        yk__view gx = view_make(dtype, ndim, shape, layout / INPUT_LAYOUTS);
                        view_random(&x, 1, 90, 110); /* without the shift by the maximum f32 would overflow */
                        view_random(&g, 2, -1, 1);
                        expect_ok(cpu_backend()->softmax(0, &y, &x, dim, log_too));
                        expect_ok(cpu_backend()->softmax_backward(0, &gx, &g, &y, dim, log_too));
                        for (int64_t i = 0, n = view_count(&x); i < n; i++) {
                            int64_t step, length = ndim ? shape[dim] : 1;
                            if (row_start(&x, dim, i, &step) == i)
                                check_row(&x, &g, &y, &gx, i, length, step, log_too, epsilon);
                        }
                        view_free(&x);
                        view_free(&g);
                        view_free(&y);
                        view_free(&gx);
                    }
}

static void test_special_values(void **state)
{
    (void)state;
    int64_t shape[] = {3, 4};
    static const double values[12] = {1, -INFINITY, 1,         -INFINITY, 1,         NAN,
                                      0, 0,         -INFINITY, -INFINITY, -INFINITY, -INFINITY};
    for (int layout = 0; layout < LAYOUTS; layout++)
        for (int log_too = 0; log_too < 2; log_too++) {
            yk__view x = view_make(YK_F32, 2, shape, layout), y = view_make(YK_F32, 2, shape, layout);
            for (int i = 0; i < 12; i++)
                view_set(&x, i, values[i]);
            expect_ok(cpu_backend()->softmax(0, &y, &x, 1, log_too));
            for (int i = 0; i < 4; i++) {
                double want = i % 2 ? 0 : 0.5;
                expect_near(view_get(&y, i), log_too ? log(want) : want, 1e-6, 0);
                assert_true(isnan(view_get(&y, 4 + i)));
                assert_true(isnan(view_get(&y, 8 + i)));
            }
            view_free(&x);
            view_free(&y);
        }
}

/* The exponents are taken from the greatest of a long row, wherever it is. Any other would give infinity. */
static void test_greatest_of_a_row(void **state)
{
    (void)state;
    int64_t shape[] = {1, 101};
    for (int t = 0; t < 2; t++) {
        yk__view x = view_make(t ? YK_F64 : YK_F32, 2, shape, LAYOUT_C), y = view_make(x.dtype, 2, shape, LAYOUT_C);
        for (int at = 0; at < 101; at++) {
            for (int i = 0; i < 101; i++)
                view_set(&x, i, i == at ? 3000 : -i);
            expect_ok(cpu_backend()->softmax(0, &y, &x, 1, false));
            for (int i = 0; i < 101; i++)
                assert_true(view_get(&y, i) == (i == at));
        }
        view_free(&x);
        view_free(&y);
    }
}

static void test_in_place_and_threads(void **state)
{
    (void)state;
    int64_t shape[] = {40, 1100, 5};
    for (int dim = 0; dim < 3; dim++)
        for (int layout = 0; layout < LAYOUTS; layout++) {
            yk__view x = view_make(YK_F32, 3, shape, layout), y[4], gx[4];
            view_random(&x, 5, -3, 3);
            for (int threads = 1; threads <= 3; threads++) {
                use_threads(threads);
                y[threads] = view_make(YK_F32, 3, shape, layout);
                gx[threads] = view_make(YK_F32, 3, shape, layout);
                expect_ok(cpu_backend()->softmax(0, &y[threads], &x, dim, false));
                expect_ok(cpu_backend()->softmax_backward(0, &gx[threads], &x, &y[threads], dim, false));
            }
            assert_true(view_same_bits(&y[1], &y[2]) && view_same_bits(&y[1], &y[3]));
            assert_true(view_same_bits(&gx[1], &gx[2]) && view_same_bits(&gx[1], &gx[3]));
            expect_ok(cpu_backend()->softmax(0, &x, &x, dim, false));
            assert_true(view_same_bits(&x, &y[1]));
            for (int threads = 1; threads <= 3; threads++) {
                view_free(&y[threads]);
                view_free(&gx[threads]);
            }
            view_free(&x);
        }
    use_threads(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward_and_backward),
        cmocka_unit_test(test_special_values),
        cmocka_unit_test(test_greatest_of_a_row),
        cmocka_unit_test(test_in_place_and_threads),
    };
    return cmocka_run_group_tests_name("softmax", tests, NULL, NULL);
}
