/*
 * The slots random, random_integers and dropout: Philox against its published vectors and a second implementation, each
 * value against the words it is made of, layouts and threads, and the moments of the distributions.
 */
#include "tests/support/views.h"

/* Philox 4x32-10 once more, from the paper's description: a 128-bit product per half, written with 64-bit words. */
static void philox_again(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint64_t left = (uint64_t)counter[1] << 32 | counter[0], right = (uint64_t)counter[3] << 32 | counter[2];
    for (int round = 0; round < 10; round++) {
        uint64_t k0 = (key[0] + UINT64_C(0x9E3779B9) * (uint64_t)round) & 0xFFFFFFFF;
        uint64_t k1 = (key[1] + UINT64_C(0xBB67AE85) * (uint64_t)round) & 0xFFFFFFFF;
        uint64_t a = (left & 0xFFFFFFFF) * UINT64_C(0xD2511F53), b = (right & 0xFFFFFFFF) * UINT64_C(0xCD9E8D57);
        uint64_t next_left = ((b >> 32) ^ (left >> 32) ^ k0) | b << 32;
        right = ((a >> 32) ^ (right >> 32) ^ k1) | a << 32;
        left = next_left;
    }
    out[0] = (uint32_t)left, out[1] = (uint32_t)(left >> 32), out[2] = (uint32_t)right,
    out[3] = (uint32_t)(right >> 32);
}

/* The known answers published with Random123 (kat_vectors, philox4x32 10). */
static void test_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
        const uint32_t *c = known[k].counter, *key = known[k].key;
        uint32_t words[4], again[4];
        yk__stream s = {(uint64_t)key[1] << 32 | key[0], c[3], c[2]};
        yk__philox(s, (uint64_t)c[1] << 32 | c[0], words);
        philox_again(c, key, again);
        assert_memory_equal(words, known[k].out, sizeof words);
        assert_memory_equal(again, known[k].out, sizeof words);
    }
}

/* Word i of a stream, one block at a time. */
static uint32_t word(yk__stream s, uint64_t i)
{
    uint32_t counter[4] = {(uint32_t)(i / 4), (uint32_t)(i / 4 >> 32), s.epoch, s.purpose};
    uint32_t key[2] = {(uint32_t)s.key, (uint32_t)(s.key >> 32)}, out[4];
    philox_again(counter, key, out);
    return out[i % 4];
}

static const yk__stream stream = {0x0123456789ABCDEFull, YK__RANDOM_TEST, 77};

static const struct {
    int ndim;
    int64_t shape[4];
} shapes[] = {{0, {0}}, {1, {1}}, {1, {0}}, {1, {3001}}, {2, {37, 5}}, {4, {3, 4, 5, 6}}, {3, {2, 700, 3}}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void test_uniform(void **state)
{
    (void)state;
    static const yk_dtype dtypes[] = {YK_F32, YK_F64, YK_F16, YK_BF16};
    static const struct {
        double low, high;
    } ranges[] = {{0, 1}, {-2, 3}, {1000, 1001}};
    for (int t = 0; t < 4; t++)
        for (int r = 0; r < 3; r++)
            for (int s = 0; s < SHAPES; s++)
                for (int layout = 0; layout < LAYOUTS; layout++) {
                    double low = ranges[r].low, high = ranges[r].high;
                    yk__view v = view_make(dtypes[t], shapes[s].ndim, shapes[s].shape, layout);
                    expect_ok(cpu_backend()->random(0, YK__RANDOM_UNIFORM, &v, stream, NULL, low, high));
                    for (int64_t i = 0, n = view_count(&v); i < n; i++) {
                        uint64_t u = (uint64_t)i;
                        double unit = v.dtype == YK_F64 ? yk__unit_double(word(stream, 2 * u), word(stream, 2 * u + 1))
                                                        : (double)yk__unit_float(word(stream, u));
                        double epsilon = v.dtype == YK_F64   ? 1e-15
                                         : v.dtype == YK_F32 ? 1.2e-7
                                         : v.dtype == YK_F16 ? 1e-3
                                                             : 8e-3;
                        double got = view_get(&v, i), want = low + (high - low) * unit;
                        if (r == 0 && yk_dtype_size(v.dtype) >= 4)
                            expect_near(got, want, 0, 0);
                        expect_near(got, want, epsilon, epsilon);
                        if (v.dtype != YK_BF16 || r < 2) /* bf16 has nothing in [1000, 1001) but 1000 */
                            assert_true(got >= low);
                        assert_true(got < high);
                    }
                    view_free(&v);
                }
}

static void test_normal(void **state)
{
    (void)state;
    static const yk_dtype dtypes[] = {YK_F32, YK_F64, YK_F16, YK_BF16};
    for (int t = 0; t < 4; t++)
        for (int s = 0; s < SHAPES; s++)
            for (int layout = 0; layout < LAYOUTS; layout++) {
                yk__view v = view_make(dtypes[t], shapes[s].ndim, shapes[s].shape, layout);
                expect_ok(cpu_backend()->random(0, YK__RANDOM_NORMAL, &v, stream, NULL, 0.5, 2));
                for (int64_t i = 0, n = view_count(&v); i < n; i++) {
                    uint64_t u = (uint64_t)i;
                    double first, turn;
                    if (v.dtype == YK_F64) {
                        first = yk__unit_double(word(stream, 4 * u), word(stream, 4 * u + 1)) + 0x1p-54;
                        turn = yk__unit_double(word(stream, 4 * u + 2), word(stream, 4 * u + 3));
                    } else {
                        first = (word(stream, 2 * u) + 0.5) * 0x1p-32;
                        turn = (word(stream, 2 * u + 1) >> 8) * 0x1p-24;
                    }
                    double want = 0.5 + 2 * sqrt(-2 * log(first)) * cos(2 * M_PI * turn);
                    double epsilon = v.dtype == YK_F64   ? 1e-13
                                     : v.dtype == YK_F32 ? 2e-6
                                     : v.dtype == YK_F16 ? 2e-3
                                                         : 2e-2;
                    expect_near(view_get(&v, i), want, epsilon, epsilon);
                }
                view_free(&v);
            }
}

static void test_integers(void **state)
{
    (void)state;
    static const yk_dtype dtypes[] = {YK_I64, YK_I32, YK_U8, YK_BOOL, YK_F32, YK_F64, YK_F16, YK_BF16};
    for (int t = 0; t < 8; t++)
        for (int s = 0; s < SHAPES; s++)
            for (int layout = 0; layout < LAYOUTS; layout++) {
                yk_dtype dtype = dtypes[t];
                int64_t low = dtype == YK_U8 ? 3 : dtype == YK_BOOL ? 0 : -50, high = dtype == YK_BOOL ? 2 : 150;
                yk__view v = view_make(dtype, shapes[s].ndim, shapes[s].shape, layout);
                expect_ok(cpu_backend()->random_integers(0, &v, stream, NULL, low, high));
                for (int64_t i = 0, n = view_count(&v); i < n; i++) {
                    uint32_t a = word(stream, 2 * (uint64_t)i), b = word(stream, 2 * (uint64_t)i + 1);
                    expect_near(view_get(&v, i), (double)low + (double)yk__below(a, b, (uint64_t)(high - low)), 0, 0);
                }
                view_free(&v);
            }
    int64_t shape[] = {4};
    yk__view v = view_make(YK_I64, 1, shape, LAYOUT_C);
    assert_int_equal(cpu_backend()->random_integers(0, &v, stream, NULL, 5, 5), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "randint: the range [5, 5) is empty");
    assert_int_equal(cpu_backend()->random(0, YK__RANDOM_NORMAL, &v, stream, NULL, 0, 1), YK_ERR_DTYPE);
    expect_error(YK_ERR_DTYPE, "int64");
    /* The whole range: neither the width nor the sum may overflow. */
    expect_ok(cpu_backend()->random_integers(0, &v, stream, NULL, INT64_MIN, INT64_MAX));
    bool negative = false, positive = false;
    for (uint32_t seed = 0; seed < 8; seed++) {
        yk__stream other = {seed, YK__RANDOM_TEST, 0};
        expect_ok(cpu_backend()->random_integers(0, &v, other, NULL, INT64_MIN, INT64_MAX));
        for (int i = 0; i < 4; i++) {
            negative |= ((int64_t *)v.data)[i] < -INT64_C(0x2000000000000000);
            positive |= ((int64_t *)v.data)[i] > INT64_C(0x2000000000000000);
        }
    }
    assert_true(negative && positive);
    /* Numbers that no double holds. */
    const int64_t near = INT64_C(1) << 60;
    expect_ok(cpu_backend()->random_integers(0, &v, stream, NULL, near + 1, near + 2));
    for (int i = 0; i < 4; i++)
        assert_true(((int64_t *)v.data)[i] == near + 1);
    view_free(&v);
}

/* A view's element is kept or dropped by its place in C order, whatever the two memory orders, and where the tensor
 * that it is a part of has its first one. */
static void check_dropout(yk_dtype dtype, int ndim, const int64_t *shape, int layout, double p)
{
    const uint64_t first = layout % 2 ? (uint64_t)layout : 0;
    yk__view x = view_make(dtype, ndim, shape, layout % INPUT_LAYOUTS);
    yk__view out = view_make(dtype, ndim, shape, layout / INPUT_LAYOUTS);
    view_random(&x, 11, 1, 2);
    expect_ok(cpu_backend()->dropout(0, &out, &x, stream, NULL, first, p));
    for (int64_t i = 0, n = view_count(&out); i < n; i++) {
        bool keep = (double)yk__unit_float(word(stream, first + (uint64_t)i)) >= p;
        expect_near(view_get(&out, i), keep ? view_get(&x, i) / (1 - p) : 0, 1e-6, 0);
    }
    if (layout % INPUT_LAYOUTS < LAYOUTS) { /* and in place */
        expect_ok(cpu_backend()->dropout(0, &x, &x, stream, NULL, first, p));
        for (int64_t i = 0, n = view_count(&out); i < n; i++)
            expect_near(view_get(&x, i), view_get(&out, i), 0, 0);
    }
    view_free(&x);
    view_free(&out);
}

static void test_dropout(void **state)
{
    (void)state;
    static const double rates[] = {0, 0.25, 0.5, 1};
    static const int64_t wide[][4] = {{2, 9, 3, 131}, {70, 2, 61, 1}, {3, 64, 1, 60}, {1, 130, 2, 2}};
    for (int t = 0; t < 2; t++)
        for (int layout = 0; layout < LAYOUTS * INPUT_LAYOUTS; layout++) {
            for (int s = 0; s < SHAPES; s++)
                for (int r = 0; r < 4; r++)
                    check_dropout(t ? YK_F64 : YK_F32, shapes[s].ndim, shapes[s].shape, layout, rates[r]);
            for (int s = 0; s < 4; s++)
                check_dropout(t ? YK_F64 : YK_F32, 4, wide[s], layout, 0.25);
        }
    yk__view x = view_make(YK_F32, 0, NULL, LAYOUT_C);
    view_set(&x, 0, NAN);
    expect_ok(cpu_backend()->dropout(0, &x, &x, stream, NULL, 0, 1));
    assert_true(isnan(view_get(&x, 0))); /* a dropped NaN is not hidden */
    view_free(&x);
}

/* Mean, variance and extremes of a million; a chi-square over 64 cells for the uniform ones. */
static void test_distributions(void **state)
{
    (void)state;
    int64_t shape[] = {1 << 20};
    double n = (double)shape[0];
    yk__view v = view_make(YK_F32, 1, shape, LAYOUT_C);
    float *x = v.data;
    for (uint32_t seed = 0; seed < 3; seed++) {
        yk__stream s = {seed, YK__RANDOM_TEST, 1};
        double cells[64] = {0}, chi = 0, sum = 0, squares = 0, cubes = 0, far = 0;
        expect_ok(cpu_backend()->random(0, YK__RANDOM_UNIFORM, &v, s, NULL, 0, 1));
        for (int i = 0; i < 1 << 20; i++)
            cells[(int)(x[i] * 64)]++;
        for (int c = 0; c < 64; c++)
            chi += (cells[c] - n / 64) * (cells[c] - n / 64) / (n / 64);
        assert_true(chi > 30 && chi < 115); /* 63 degrees of freedom: outside once in 10^4 */
        expect_ok(cpu_backend()->random(0, YK__RANDOM_NORMAL, &v, s, NULL, 0, 1));
        for (int i = 0; i < 1 << 20; i++) {
            double z = (double)x[i];
            sum += z;
            squares += z * z;
            cubes += z * z * z;
            far += fabs(z) > 3;
        }
        expect_near(sum / n, 0, 0, 4.5e-3);
        expect_near(squares / n, 1, 0, 6e-3);
        expect_near(cubes / n, 0, 0, 0.02);
        expect_near(far / n, 0.0026998, 0.1, 0);
    }
    view_free(&v);
}

/* The same bits for any number of threads. */
static void test_threads(void **state)
{
    (void)state;
    int64_t shape[] = {3, 50, 1001};
    for (int kind = 0; kind < 4; kind++)
        for (int layout = 0; layout < LAYOUTS; layout++) {
            yk__view v[4], x = view_make(YK_F32, 3, shape, LAYOUT_C);
            view_random(&x, 12, 1, 2);
            for (int threads = 1; threads <= 3; threads++) {
                use_threads(threads);
                v[threads] = view_make(YK_F32, 3, shape, layout);
                if (kind == 3)
                    expect_ok(cpu_backend()->dropout(0, &v[threads], &x, stream, NULL, 0, 0.3));
                else if (kind == 2)
                    expect_ok(cpu_backend()->random_integers(0, &v[threads], stream, NULL, 0, 5));
                else
                    expect_ok(cpu_backend()->random(0, (yk__random_kind)kind, &v[threads], stream, NULL, 0, 5));
            }
            assert_true(view_same_bits(&v[1], &v[2]) && view_same_bits(&v[1], &v[3]));
            assert_true(view_get(&v[1], 40000) != view_get(&v[1], 40001) || kind >= 2);
            for (int threads = 1; threads <= 3; threads++)
                view_free(&v[threads]);
            view_free(&x);
        }
    use_threads(1);
}

/* The number of calls read from memory is added to the stream's. */
static void test_calls_in_memory(void **state)
{
    (void)state;
    const uint32_t calls = 40;
    const yk__stream early = {9, YK__RANDOM_TEST, 2}, late = {9, YK__RANDOM_TEST, 42};
    const int64_t shape[] = {5, 7};
    yk__view v[2], out[2], x = view_make(YK_F32, 2, shape, LAYOUT_C);
    view_random(&x, 1, -1, 1);
    for (int kind = 0; kind < 4; kind++) {
        for (int memory = 0; memory < 2; memory++) {
            const yk__stream s = memory ? early : late;
            const uint32_t *at = memory ? &calls : NULL;
            v[memory] = view_make(YK_F32, 2, shape, memory);
            out[memory] = v[memory];
            if (kind < 2)
                expect_ok(cpu_backend()->random(0, (yk__random_kind)kind, &out[memory], s, at, 0, 5));
            else if (kind == 2)
                expect_ok(cpu_backend()->random_integers(0, &out[memory], s, at, 0, 5));
            else
                expect_ok(cpu_backend()->dropout(0, &out[memory], &x, s, at, 0, 0.5));
        }
        for (int64_t i = 0; i < 35; i++)
            expect_near(view_get(&v[0], i), view_get(&v[1], i), 0, 0);
        view_free(&v[0]);
        view_free(&v[1]);
    }
    view_free(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers), cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_normal),        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_dropout),       cmocka_unit_test(test_distributions),
        cmocka_unit_test(test_threads),       cmocka_unit_test(test_calls_in_memory),
    };
    return cmocka_run_group_tests_name("random kernels", tests, NULL, NULL);
}
