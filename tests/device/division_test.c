/*
 * Divisions that leave a rest, of the slot binary: remainder, fmod and floor_divide of f32 and f64 have the bits that
 * the C library's fmod gives them, on every instruction set: of special numbers, of numbers of any size, and of those
 * next to a multiple of the divisor, up to the quotients at which the kernels change their way.
 */
#include "tests/device/elementwise_sets.h"
#include "tests/support/views.h"

#include "device/elementwise_ops.h"

static const double special[] = {0.0,       -0.0,       1.0,       -1.0,     0.1,     3.0,      -3.0,
                                 0.5,       -0.5,       7.0,       0.999,    1e-40,   -1e-40,   1e30,
                                 -1e30,     16777215.0, 0x1p27,    0x1p-27,  -0x1p51, 0x1p-51,  0x1p1000,
                                 0x1p-1000, 0x1p-1074,  -0x1p-149, INFINITY, NAN,     -INFINITY};
enum {
    SPECIAL = sizeof special / sizeof special[0],
    PAIRS = SPECIAL * SPECIAL,
    RANDOM = 40000,
    COUNT = PAIRS + RANDOM
};

static uint64_t next(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* Pair i of a dtype: special ones first; then divisors of any size, each third with a multiple of up to 2^60, or what
 * is next to that, each third with a number of any size, each third with one not much greater. */
static void pair_of(int i, bool wide, uint64_t *seed, double *x, double *y)
{
    if (i < PAIRS) {
        *x = special[i / SPECIAL], *y = special[i % SPECIAL];
        return;
    }
    int range = wide ? 900 : 100;
    double mantissa = 1.0 + (double)(next(seed) >> 12) * 0x1p-52;
    *y = ldexp(next(seed) & 1 ? mantissa : -mantissa, (int)(next(seed) % (uint64_t)range) - range / 2);
    *y = wide ? *y : (double)(float)*y;
    double any = (double)(next(seed) >> (11 + next(seed) % 50)); /* up to 53 bits */
    any = next(seed) & 1 ? any : -any;
    if (i % 3 == 0) {
        int step = (int)(next(seed) % 3) - 1;
        any = ldexp(any, (int)(next(seed) % 8)) * *y;
        *x = wide ? any : (double)(float)any;
        if (step)
            *x = wide ? nextafter(*x, step * INFINITY) : (double)nextafterf((float)*x, (float)step * INFINITY);
    } else {
        *x = ldexp(any, i % 3 == 1 ? (int)(next(seed) % (uint64_t)range) - range : -40);
        *x = i % 3 == 1 ? *x : *x * *y;
    }
}

static double reference(yk__binary op, yk_dtype dtype, double x, double y)
{
    if (dtype == YK_F64)
        return op == YK__FMOD ? fmod(x, y) : op == YK__REMAINDER ? yk__remainder_f64(x, y) : yk__floor_divide_f64(x, y);
    float a = (float)x, b = (float)y;
    return (double)(op == YK__FMOD        ? fmodf(a, b)
                    : op == YK__REMAINDER ? yk__remainder_f32(a, b)
                                          : yk__floor_divide_f32(a, b));
}

static void division_check(yk_dtype dtype)
{
    static const yk__binary ops[] = {YK__FMOD, YK__REMAINDER, YK__FLOOR_DIVIDE};
    static const char *const names[] = {"fmod", "remainder", "floor_divide"};
    yk__backend tables[YK__LEVELS];
    int count = instruction_sets(tables);
    int64_t shape[] = {COUNT};
    yk__view a = view_make(dtype, 1, shape, LAYOUT_C), b = view_make(dtype, 1, shape, LAYOUT_C);
    yk__view out = view_make(dtype, 1, shape, LAYOUT_C);
    uint64_t seed = 5;
    for (int i = 0; i < COUNT; i++) {
        /* Runs of 1,024 with small quotients alone, as those with a great one go another way as a whole. */
        double x, y;
        pair_of(i, dtype == YK_F64, &seed, &x, &y);
        if (i >= PAIRS && i / 1024 % 2 == 0 && !(fabs(x) < 0x1p27 * fabs(y)))
            x = y * 0.75;
        view_set(&a, i, x);
        view_set(&b, i, y);
    }
    for (int k = 0; k < count; k++)
        for (int u = 0; u < 3; u++) {
            expect_ok(tables[k].binary(0, ops[u], &out, &a, &b, 1));
            for (int i = 0; i < COUNT; i++) {
                double x = view_get(&a, i), y = view_get(&b, i), got = view_get(&out, i);
                double want = reference(ops[u], dtype, x, y);
                if (isnan(want) ? !isnan(got) : got != want || !signbit(got) != !signbit(want))
                    fail_msg("%s %s, instruction set %d: of %a and %a is %a, expected %a", names[u],
                             yk_dtype_name(dtype), k, x, y, got, want);
            }
        }
    view_free(&a);
    view_free(&b);
    view_free(&out);
}

static void test_division_f32(void **state)
{
    (void)state;
    division_check(YK_F32);
}

static void test_division_f64(void **state)
{
    (void)state;
    division_check(YK_F64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_division_f32), cmocka_unit_test(test_division_f64)};
    return cmocka_run_group_tests_name("division", tests, NULL, NULL);
}
