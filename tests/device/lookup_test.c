/*
 * The slots embedding and embedding_backward: against loops, with repeated and padding indices, bad indices, and the
 * same bits for 1, 2 and 3 threads.
 */
#include "tests/support/views.h"

enum { V = 23, M = 61 };

static void test_lookup(void **state)
{
    (void)state;
    static const int64_t widths[] = {1, 3, 16, 130, 0};
    for (int t = 0; t < 4; t++)
        for (int w = 0; w < 5; w++)
            for (int layout = 0; layout < LAYOUTS * LAYOUTS; layout++) {
                yk_dtype dtype = t & 1 ? YK_F64 : YK_F32;
                int64_t table_shape[] = {V, widths[w]}, rows_shape[] = {M, widths[w]}, index_shape[] = {M};
                yk__view weight = view_make(dtype, 2, table_shape, layout % LAYOUTS);
                yk__view gweight = view_make(dtype, 2, table_shape, layout % LAYOUTS);
                yk__view out = view_make(dtype, 2, rows_shape, layout / LAYOUTS);
                yk__view index = view_make(t & 2 ? YK_I32 : YK_I64, 1, index_shape, layout / LAYOUTS);
                view_random(&weight, 1, -1, 1);
                for (int64_t i = 0; i < M; i++)
                    view_set(&index, i, (double)(i * i % V)); /* squares: some rows often, some never */
                expect_ok(cpu_backend()->embedding(0, &out, &weight, &index));
                for (int64_t i = 0; i < M * widths[w]; i++)
                    expect_near(view_get(&out, i),
                                view_get(&weight, (int64_t)view_get(&index, i / widths[w]) * widths[w] + i % widths[w]),
                                0, 0);
                for (int64_t padding = -1; padding < 10; padding += 5) {
                    expect_ok(cpu_backend()->embedding_backward(0, &gweight, &out, &index, padding));
                    for (int64_t i = 0; i < V * widths[w]; i++) {
                        double want = 0;
                        for (int64_t m = 0; m < M; m++)
                            if ((int64_t)view_get(&index, m) == i / widths[w] && i / widths[w] != padding)
                                want += view_get(&out, m * widths[w] + i % widths[w]);
                        expect_near(view_get(&gweight, i), want, 1e-6, 1e-6);
                    }
                }
                view_free(&weight);
                view_free(&gweight);
                view_free(&out);
                view_free(&index);
            }
}

static void test_bad_index(void **state)
{
    (void)state;
    int64_t table_shape[] = {V, 2}, rows_shape[] = {3, 2}, index_shape[] = {3};
    yk__view weight = view_make(YK_F32, 2, table_shape, LAYOUT_C), out = view_make(YK_F32, 2, rows_shape, LAYOUT_C);
    yk__view index = view_make(YK_I64, 1, index_shape, LAYOUT_C);
    view_random(&weight, 1, -1, 1);
    view_set(&index, 0, 0);
    view_set(&index, 1, V - 1);
    view_set(&index, 2, V);
    assert_int_equal(cpu_backend()->embedding(0, &out, &weight, &index), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "embedding: index 23 at position 2 is outside [0, 23)");
    view_set(&index, 1, -4);
    assert_int_equal(cpu_backend()->embedding_backward(0, &weight, &out, &index, -1), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "embedding: index -4 at position 1 is outside [0, 23)");
    view_free(&weight);
    view_free(&out);
    view_free(&index);
}

static void test_threads(void **state)
{
    (void)state;
    int64_t table_shape[] = {100, 65}, rows_shape[] = {2000, 65}, index_shape[] = {2000};
    yk__view weight = view_make(YK_F32, 2, table_shape, LAYOUT_C);
    yk__view index = view_make(YK_I64, 1, index_shape, LAYOUT_C), out[4], gradient[4];
    view_random(&weight, 1, -1, 1);
    view_random(&index, 2, 0, 100);
    for (int threads = 1; threads <= 3; threads++) {
        use_threads(threads);
        out[threads] = view_make(YK_F32, 2, rows_shape, LAYOUT_C);
        gradient[threads] = view_make(YK_F32, 2, table_shape, LAYOUT_C);
        expect_ok(cpu_backend()->embedding(0, &out[threads], &weight, &index));
        expect_ok(cpu_backend()->embedding_backward(0, &gradient[threads], &out[threads], &index, 7));
    }
    use_threads(1);
    assert_true(view_same_bits(&out[1], &out[2]) && view_same_bits(&out[1], &out[3]));
    assert_true(view_same_bits(&gradient[1], &gradient[2]) && view_same_bits(&gradient[1], &gradient[3]));
    for (int64_t j = 0; j < 65; j++)
        expect_near(view_get(&gradient[2], 7 * 65 + j), 0, 0, 0);
    for (int threads = 1; threads <= 3; threads++) {
        view_free(&out[threads]);
        view_free(&gradient[threads]);
    }
    view_free(&weight);
    view_free(&index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lookup),
        cmocka_unit_test(test_bad_index),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests_name("lookup", tests, NULL, NULL);
}
