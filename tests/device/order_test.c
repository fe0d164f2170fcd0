/*
 * The slot argsort on whole lines: short and long, of keys that take a bit, all bits of a word, and as many as leave
 * just room for a position, or not; both ways, in lines that follow each other and apart, against an insertion by
 * comparison; the same for several threads.
 */
#include "tests/support/views.h"

/* True if element a of the line comes before element b. */
static bool before(const yk__view *x, int64_t a, int64_t b, bool descending)
{
    if (x->dtype == YK_I64) {
        const int64_t *data = x->data;
        int64_t left = data[view_offset(x, a)], right = data[view_offset(x, b)];
        return descending ? left > right : left < right;
    }
    double left = view_get(x, a), right = view_get(x, b);
    if (isnan(left) || isnan(right))
        return descending ? isnan(left) && !isnan(right) : isnan(right) && !isnan(left);
    return descending ? left > right : left < right;
}

/* index has the order of each line of x (lines, length): no element twice, equal ones in the order of the input. */
static void check(const yk__view *index, const yk__view *x, bool descending, const char *what)
{
    int64_t lines = x->shape[0], length = x->shape[1], first = index->shape[1];
    bool *seen = calloc((size_t)length, sizeof(*seen));
    for (int64_t line = 0; line < lines; line++) {
        memset(seen, 0, (size_t)length * sizeof(*seen));
        for (int64_t i = 0; i < first; i++) {
            int64_t at = (int64_t)view_get(index, line * first + i);
            assert_true(at >= 0 && at < length && !seen[at]);
            seen[at] = true;
            int64_t last = i ? (int64_t)view_get(index, line * first + i - 1) : at;
            bool ordered = before(x, line * length + last, line * length + at, descending) ||
                           (!before(x, line * length + at, line * length + last, descending) && last <= at);
            if (!ordered)
                fail_msg("%s of %s, %lld a line, %s: place %lld of line %lld has element %lld", what,
                         yk_dtype_name(x->dtype), (long long)length, descending ? "descending" : "ascending",
                         (long long)i, (long long)line, (long long)at);
        }
        int64_t last = (int64_t)view_get(index, line * first + first - 1);
        for (int64_t i = 0; i < length; i++) /* elements that are left out do not come before the last one */
            assert_true(seen[i] || !before(x, line * length + i, line * length + last, descending));
    }
    free(seen);
}

static void check_all(const yk__view *x, const char *what)
{
    for (int descending = 0; descending < 2; descending++)
        for (int layout = 0; layout < LAYOUTS; layout++) {
            yk__view index = view_make(YK_I64, 2, x->shape, layout);
            expect_ok(cpu_backend()->argsort(0, &index, x, 1, descending));
            check(&index, x, descending, what);
            view_free(&index);
            if (x->shape[1] > 2) { /* more than are selected without sorting all */
                index = view_make(YK_I64, 2, (int64_t[]){x->shape[0], x->shape[1] / 2}, layout);
                expect_ok(cpu_backend()->argsort(0, &index, x, 1, descending));
                check(&index, x, descending, what);
                view_free(&index);
            }
        }
}

static const int64_t lengths[] = {1, 2, 3, 39, 40, 41, 63, 64, 65, 127, 129, 256, 257, 1000, 4097};
enum { LENGTHS = sizeof lengths / sizeof lengths[0] };

static uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33 ^ *state << 31;
}

/* Numbers from `low` to low + span, both among them where there are two elements. */
static void test_spans(void **state)
{
    (void)state;
    static const struct {
        int64_t low;
        int bits; /* of the span */
    } spans[] = {{0, 0},         {-4, 3},          {-1, 1},    {INT64_MAX - 255, 8},
                 {INT64_MIN, 9}, {-(1 << 30), 31}, {-100, 32}, {5, 51},
                 {5, 52},        {-77, 53},        {-77, 54},  {0, 55},
                 {-1, 56},       {-1, 57},         {-1, 58},   {-123456, 59},
                 {-9, 60},       {-9, 61},         {-9, 62},   {-9, 63},
                 {INT64_MIN, 64}};
    uint64_t seed = 3;
    for (size_t s = 0; s < sizeof spans / sizeof spans[0]; s++)
        for (int l = 0; l < LENGTHS; l++)
            for (int layout = 0; layout < LAYOUTS; layout++) {
                int64_t shape[] = {3, lengths[l]};
                uint64_t most = spans[s].bits == 64 ? UINT64_MAX : ((uint64_t)1 << spans[s].bits) - 1;
                yk__view x = view_make(YK_I64, 2, shape, layout);
                for (int64_t i = 0; i < 3 * shape[1]; i++) {
                    uint64_t value = i % 5 == 1 ? most : i % 5 == 3 ? 0 : draw(&seed) & most;
                    ((int64_t *)x.data)[view_offset(&x, i)] = (int64_t)((uint64_t)spans[s].low + value);
                }
                check_all(&x, "span");
                view_free(&x);
            }
}

/* Every dtype, with ties; of floats also NaN, infinities, zeros of both signs and the smallest. */
static void test_values(void **state)
{
    (void)state;
    static const yk_dtype dtypes[] = {YK_F32, YK_F64, YK_I64, YK_I32, YK_U8, YK_BOOL};
    static const double special[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, 1e-45, -1e-45, 1e30, -1e30, 0.5};
    for (int d = 0; d < 6; d++)
        for (int l = 0; l < LENGTHS; l++)
            for (int layout = 0; layout < INPUT_LAYOUTS; layout++)
                for (int mixed = 0; mixed < 2; mixed++) {
                    int64_t shape[] = {3, lengths[l]};
                    bool real = dtypes[d] == YK_F32 || dtypes[d] == YK_F64;
                    uint64_t seed = (uint64_t)l;
                    yk__view x = view_make(dtypes[d], 2, shape, layout);
                    for (int64_t i = 0; i < 3 * shape[1]; i++) {
                        uint64_t random = draw(&seed);
                        double whole = (double)(random % 40) - (d < 4 ? 20 : 0);
                        view_set(&x, i, real && mixed && random % 3 ? special[random / 64 % 10] : whole);
                    }
                    check_all(&x, mixed ? "special values" : "whole numbers");
                    view_free(&x);
                }
}

static void test_threads(void **state)
{
    (void)state;
    int64_t shape[] = {40, 3000};
    for (int wide = 0; wide < 2; wide++) {
        yk__view x = view_make(YK_I64, 2, shape, LAYOUT_C), index[4];
        uint64_t seed = 9;
        for (int64_t i = 0; i < shape[0] * shape[1]; i++)
            ((int64_t *)x.data)[i] = (int64_t)(wide ? draw(&seed) : draw(&seed) % 1000);
        for (int threads = 1; threads <= 3; threads++) {
            use_threads(threads);
            index[threads] = view_make(YK_I64, 2, shape, LAYOUT_C);
            expect_ok(cpu_backend()->argsort(0, &index[threads], &x, 1, false));
            check(&index[threads], &x, false, "threads");
        }
        assert_true(view_same_bits(&index[1], &index[2]) && view_same_bits(&index[1], &index[3]));
        for (int threads = 1; threads <= 3; threads++)
            view_free(&index[threads]);
        view_free(&x);
    }
    use_threads(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests_name("order", tests, NULL, NULL);
}
