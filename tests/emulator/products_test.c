/* products_test.c - products that cuBLASLt has no algorithm for are our own kernel's, and counted. */
#include "tests/emulator/use_emulator.h"
#include "tests/support/expect.h"
#include "tests/support/slot_pairs.h"

#include <yoke/yoke.h>

static const yk_device gpu = {YK_CUDA, 0};

/* Whole numbers, whose products and sums are exact. */
static yk_tensor *numbers(int64_t rows, int64_t columns, yk_device device, yk_dtype dtype, int seed)
{
    float values[400];
    int64_t shape[] = {rows, columns};
    for (int64_t i = 0; i < rows * columns; i++)
        values[i] = (float)((i * 7 + seed) % 5 - 2);
    yk_tensor *t = yk_from_data(values, columns ? 2 : 1, shape, &(yk_tensor_options){.device = device});
    return yk_clone(yk_detach(yk_cast(t, dtype)));
}

static void read_values(yk_tensor *t, float *to, int64_t count)
{
    expect_ok(yk_tensor_read(yk_cast(t, YK_F32), to, (size_t)count * sizeof(float)));
}

/* "gemm: 12 by library, 3 by own kernel": the two. */
static void counted(const char *what, long long *library, long long *own)
{
    char text[1000] = "", pattern[80];
    slot_describe(text, sizeof(text));
    const char *at = strstr(text, what);
    assert_non_null(at);
    snprintf(pattern, sizeof(pattern), "%s: %%lld by library, %%lld by own", what);
    assert_int_equal(sscanf(at, pattern, library, own), 2);
}

/* The stand-in has no algorithm where the inner dimension is 29, and refuses the one that it gave where it is 31. */
static void refused_products_are_our_own(void **state)
{
    (void)state;
    static const int64_t inner[] = {16, 29, 31, 31};
    for (int i = 0; i < 4; i++) {
        yk_scope scope = yk_scope_begin();
        float out[2][7 * 11];
        long long library, own, library_after, own_after;
        counted("gemm", &library, &own);
        for (int d = 0; d < 2; d++) {
            yk_device device = d ? gpu : (yk_device){YK_CPU, 0};
            yk_tensor *y = yk_linear(numbers(7, inner[i], device, YK_F32, 1), numbers(11, inner[i], device, YK_F32, 2),
                                     yk_mul_scalar(yk_ones(YK_SHAPE(11), &(yk_tensor_options){.device = device}), 3));
            read_values(y, out[d], 7 * 11);
        }
        assert_memory_equal(out[0], out[1], sizeof(out[0]));
        counted("gemm", &library_after, &own_after);
        assert_true(library_after - library == (i == 0));
        assert_true(own_after - own == (i != 0));
        yk_scope_end(scope);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(refused_products_are_our_own)};
    if (!use_emulator())
        return 0;
    (void)yk_device_count(YK_CUDA); /* loads the backend, which counts from here on */
    return cmocka_run_group_tests_name("products", tests, NULL, NULL);
}
