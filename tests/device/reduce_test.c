/*
 * The slot reduce: every operation over every set of dimensions in several layouts and dtypes against loops in double,
 * NaN, short rows and empty input, the accuracy of long f32 sums, and the same bits for 1, 2 and 3 threads.
 */
#include <float.h>

#include "tests/support/machine.h"
#include "tests/support/views.h"

static const struct {
    int ndim;
    int64_t shape[4];
} shapes[] = {
    {0, {0}},      {1, {1}},        {1, {37}},          {1, {5000}},       {2, {64, 120}},   {2, {3, 300}},
    {2, {300, 3}}, {3, {5, 1, 70}}, {4, {2, 17, 5, 6}}, {4, {3, 4, 9, 9}}, {2, {0, 3}},      {3, {2, 0, 4}},
    {2, {70, 32}}, {3, {4, 20, 5}}, {2, {400, 5}},      {2, {75, 2}},      {3, {3, 500, 7}},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static const char *const op_names[] = {"sum", "mean",   "prod",   "amax", "amin",          "any",
                                       "all", "argmax", "argmin", "var",  "sum of squares"};

/* The view of an output with size 1 where bit d of `dims` is set. */
static yk__view output(yk_dtype dtype, const yk__view *in, unsigned dims, int layout)
{
    int64_t shape[YK_MAX_DIMS];
    for (int d = 0; d < in->ndim; d++)
        shape[d] = dims >> d & 1 ? 1 : in->shape[d];
    return view_make(dtype, in->ndim, shape, layout);
}

typedef struct reference {
    long double sum, squares, deviations;
    double product, most, least, magnitude;
    int64_t count, argmost, argleast;
    bool any, all;
} reference;

/* For each output in C order, of the elements of `in` that it stands for when the dimensions of the bits of `dims` are
 * reduced; two passes, for the variance. */
REFERENCE static reference *references_of(const yk__view *in, unsigned dims)
{
    int64_t outputs = 1;
    for (int d = 0; d < in->ndim; d++)
        outputs *= dims >> d & 1 ? 1 : in->shape[d];
    reference *all = calloc((size_t)outputs + 1, sizeof *all);
    assert_non_null(all);
    for (int64_t o = 0; o < outputs; o++)
        all[o] =
            (reference){.product = 1, .most = -INFINITY, .least = INFINITY, .all = true, .argmost = -1, .argleast = -1};
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0, n = view_count(in); i < n; i++) {
            int64_t rest = i, at = 0, step = 1;
            for (int d = in->ndim - 1; d >= 0; d--) {
                if (!(dims >> d & 1)) {
                    at += rest % in->shape[d] * step;
                    step *= in->shape[d];
                }
                rest /= in->shape[d];
            }
            reference *r = &all[at];
            double x = view_get(in, i);
            if (pass == 1) {
                long double d = x - r->sum / r->count;
                r->deviations += d * d;
                continue;
            }
            r->sum += x;
            r->magnitude += fabs(x);
            r->product *= x;
            r->squares += (long double)x * x;
            if ((x > r->most || isnan(x) || r->argmost < 0) && !isnan(r->most))
                r->most = x, r->argmost = r->count;
            if ((x < r->least || isnan(x) || r->argleast < 0) && !isnan(r->least))
                r->least = x, r->argleast = r->count;
            r->any |= x != 0;
            r->all &= x != 0;
            r->count++;
        }
    return all;
}

static yk_dtype result_dtype(yk__reduce op, yk_dtype in)
{
    switch (op) {
    case YK__ANY:
    case YK__ALL: return YK_BOOL;
    case YK__ARGMAX:
    case YK__ARGMIN: return YK_I64;
    case YK__SUM:
    case YK__PROD:
    case YK__SUM_SQUARES: return yk_dtype_is_floating(in) ? in : YK_I64;
    default: return in;
    }
}

REFERENCE static void check(yk__reduce op, const yk__view *out, const yk__view *in, const reference *all,
                            const char *where)
{
    bool f16 = in->dtype == YK_F16, bf16 = in->dtype == YK_BF16;
    bool f64 = in->dtype == YK_F64; /* the others are added up in it */
    double epsilon = f64 ? 1e-14 : 3e-7;
    for (int64_t o = 0, n = view_count(out); o < n; o++) {
        reference r = all[o];
        double got = view_get(out, o), want = 0, scale = 0;
        switch (op) {
        case YK__SUM: want = (double)r.sum, scale = r.magnitude; break;
        case YK__MEAN: want = (double)(r.sum / r.count), scale = r.magnitude / (double)r.count; break;
        case YK__PROD: want = r.product, scale = 10 * fabs(want); break;
        case YK__AMAX: want = r.most; break;
        case YK__AMIN: want = r.least; break;
        case YK__ANY: want = r.any; break;
        case YK__ALL: want = r.all; break;
        case YK__ARGMAX: want = (double)r.argmost; break;
        case YK__ARGMIN: want = (double)r.argleast; break;
        case YK__VAR:
            want = (double)r.deviations / fmax((double)r.count - 1, 0), scale = 5 * want + 1e-12 * (double)r.squares;
            break;
        case YK__SUM_SQUARES: want = (double)r.squares, scale = want; break;
        }
        /* Halves are rounded once more, which a difference of `epsilon` may make another number. */
        double ulp = f16 ? fmax(fabs(want) * 0x1p-11, 0x1p-25) : bf16 ? fabs(want) * 0x1p-8 : 0;
        want = f16                    ? (double)yk__from_f16(yk__to_f16((float)want))
               : bf16                 ? (double)yk__from_bf16(yk__to_bf16((float)want))
               : out->dtype == YK_F32 ? (double)(float)want
                                      : want;
        if (!(got == want || (isnan(got) && isnan(want)) ||
              (isfinite(want) && fabs(got - want) <= epsilon * scale * (f64 ? 1 + 1e-3 * (double)r.count : 1) + ulp)))
            fail_msg("%s of %s, %s: element %lld is %.17g, expected %.17g", op_names[op], yk_dtype_name(in->dtype),
                     where, (long long)o, got, want);
    }
}

/* A product takes numbers near one. */
static void fill_for(const yk__view *in, bool product)
{
    bool real = yk_dtype_is_floating(in->dtype);
    if (product)
        view_random(in, 3, real ? 0.9 : 1, real ? 1.1 : 2);
    else
        view_random(in, 1, in->dtype == YK_BOOL ? -1 : 0 - 5 * real, in->dtype == YK_U8 ? 60 : 7);
}

static void check_all(int s, unsigned dims, int layout, yk_dtype dtype)
{
    bool real = yk_dtype_is_floating(dtype), empty = false;
    int reduced = 0;
    for (int d = 0; d < shapes[s].ndim; d++)
        if (dims >> d & 1)
            reduced++, empty |= shapes[s].shape[d] == 0;
    char where[80];
    snprintf(where, sizeof where, "shape %d, dims %#x, layout %d", s, dims, layout);
    for (int product = 0; product < 2; product++) {
        yk__view in = view_make(dtype, shapes[s].ndim, shapes[s].shape, layout);
        fill_for(&in, product);
        reference *all = references_of(&in, dims);
        for (int op = YK__SUM; op <= YK__SUM_SQUARES; op++) {
            bool arg = op == YK__ARGMAX || op == YK__ARGMIN, extreme = op == YK__AMAX || op == YK__AMIN;
            if ((op == YK__PROD) != product || (!real && (op == YK__MEAN || op == YK__VAR)) || (arg && reduced != 1) ||
                ((arg || extreme) && empty))
                continue;
            yk__view out = output(result_dtype((yk__reduce)op, dtype), &in, dims, (layout + s) % LAYOUTS);
            expect_ok(cpu_backend()->reduce(0, (yk__reduce)op, &out, &in, 1));
            check((yk__reduce)op, &out, &in, all, where);
            view_free(&out);
        }
        free(all);
        view_free(&in);
    }
}

static void test_all(void **state)
{
    (void)state;
    static const yk_dtype dtypes[] = {YK_F32, YK_F64, YK_F16, YK_BF16, YK_I64, YK_I32, YK_U8, YK_BOOL};
    for (int s = 0; s < SHAPES; s++)
        for (unsigned dims = 0; dims < 1u << shapes[s].ndim; dims++)
            for (int layout = 0; layout < INPUT_LAYOUTS; layout++)
                for (int t = 0; t < 8; t++)
                    check_all(s, dims, layout, dtypes[t]);
}

static double reduce_values(yk__reduce op, yk_dtype dtype, int64_t n, const double *values, double p0)
{
    yk__view in = view_make(dtype, 1, &n, LAYOUT_C);
    yk__view out = view_make(result_dtype(op, dtype), 1, (int64_t[]){1}, LAYOUT_C);
    for (int64_t i = 0; i < n; i++)
        view_set(&in, i, values[i]);
    expect_ok(cpu_backend()->reduce(0, op, &out, &in, p0));
    double result = view_get(&out, 0);
    view_free(&in);
    view_free(&out);
    return result;
}

/* The greatest, the least and the first NaN at each place of rows that take one, four and more vectors, and a block. */
static void test_places(void **state)
{
    (void)state;
    static const yk_dtype dtypes[] = {YK_F32, YK_F64, YK_F16, YK_BF16, YK_I64, YK_I32, YK_U8};
    static const int64_t lengths[] = {7, 63, 64, 65, 127, 131, 1024, 1100};
    static double x[1100];
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        int64_t n = lengths[l], step = n > 200 ? 13 : 1;
        for (int64_t at = 0; at < n; at += step)
            for (int d = 0; d < 7; d++) {
                int64_t later = at + 1 + (n - 1 - at) / 2;
                for (int64_t i = 0; i < n; i++)
                    x[i] = 40 + (double)(i * 7 % 11);
                x[at] = 100;
                if (later < n)
                    x[later] = 100; /* an equal one after it */
                expect_near(reduce_values(YK__ARGMAX, dtypes[d], n, x, 0), (double)at, 0, 0);
                expect_near(reduce_values(YK__AMAX, dtypes[d], n, x, 0), 100, 0, 0);
                x[at] = 1;
                if (later < n)
                    x[later] = 1;
                expect_near(reduce_values(YK__ARGMIN, dtypes[d], n, x, 0), (double)at, 0, 0);
                if (!yk_dtype_is_floating(dtypes[d]))
                    continue;
                x[at] = NAN;
                expect_near(reduce_values(YK__ARGMAX, dtypes[d], n, x, 0), (double)at, 0, 0);
                expect_near(reduce_values(YK__ARGMIN, dtypes[d], n, x, 0), (double)at, 0, 0);
            }
    }
}

/* The same in many short rows, which are reduced together. */
static void test_short_rows(void **state)
{
    (void)state;
    enum { ROWS = 290 };
    static const yk_dtype dtypes[] = {YK_F32, YK_F64, YK_F16, YK_BF16, YK_I64, YK_I32, YK_U8};
    static const yk__reduce ops[] = {YK__ARGMAX, YK__AMAX, YK__ARGMIN, YK__AMIN};
    static const int64_t lengths[] = {1, 2, 5, 8, 17, 32};
    for (int l = 0; l < 6; l++)
        for (int d = 0; d < 7; d++)
            for (int op = 0; op < 4; op++) {
                int64_t n = lengths[l];
                bool least = op > 1, where = op % 2 == 0;
                yk__view in = view_make(dtypes[d], 2, (int64_t[]){ROWS, n}, LAYOUT_C);
                yk__view out = view_make(where ? YK_I64 : dtypes[d], 2, (int64_t[]){ROWS, 1}, LAYOUT_C);
                for (int64_t r = 0; r < ROWS; r++) {
                    for (int64_t i = 0; i < n; i++)
                        view_set(&in, r * n + i, 40 + (double)(i * 7 % 11));
                    int64_t at = r % n, later = at + 1 + (n - 1 - at) / 2; /* an equal one, or a second NaN, after it */
                    double best = d < 4 && r % 3 == 2 ? NAN : least ? 1 : 100;
                    view_set(&in, r * n + at, best);
                    if (later < n)
                        view_set(&in, r * n + later, best);
                }
                expect_ok(cpu_backend()->reduce(0, ops[op], &out, &in, 0));
                for (int64_t r = 0; r < ROWS; r++) {
                    double got = view_get(&out, r), want = where ? (double)(r % n) : view_get(&in, r * n + r % n);
                    if (got != want && !(isnan(got) && isnan(want)))
                        fail_msg("%s of %s: row %lld of %lld elements gives %g, expected %g", op_names[ops[op]],
                                 yk_dtype_name(dtypes[d]), (long long)r, (long long)n, got, want);
                }
                view_free(&in);
                view_free(&out);
            }
}

/* The same in few columns, of which rows are taken together, and in pieces. */
static void test_few_columns(void **state)
{
    (void)state;
    static const yk_dtype dtypes[] = {YK_F32, YK_F64, YK_F16, YK_BF16, YK_I64, YK_I32, YK_U8};
    static const yk__reduce ops[] = {YK__ARGMAX, YK__AMAX, YK__ARGMIN, YK__AMIN};
    static const int64_t several[][2] = {{512, 2}, {1111, 2}, {300, 3},  {270, 4},
                                         {261, 5}, {333, 7},  {270, 15}, {40000, 3}};
    for (int l = 0; l < 8; l++)
        for (int d = 0; d < 7; d++)
            for (int op = 0; op < 4; op++) {
                int64_t rows = several[l][0], n = several[l][1], step = rows > 1000 ? 7919 : rows / 17 + 1;
                bool least = op > 1, where = op % 2 == 0;
                yk__view in = view_make(dtypes[d], 2, several[l], LAYOUT_C);
                yk__view out = view_make(where ? YK_I64 : dtypes[d], 2, (int64_t[]){1, n}, LAYOUT_C);
                for (int64_t at = 0; at < rows; at += step) {
                    for (int64_t i = 0; i < rows * n; i++)
                        view_set(&in, i, 40 + (double)(i * 7 % 11));
                    for (int64_t j = 0; j < n; j++) {
                        double best = d < 4 && (at + j) % 3 == 2 ? NAN : least ? 1 : 100;
                        int64_t first = (at + j) % rows, later = first + 1 + (rows - 1 - first) / 3;
                        view_set(&in, first * n + j, best);
                        if (later < rows)
                            view_set(&in, later * n + j, best); /* an equal one, or a second NaN, after it */
                    }
                    expect_ok(cpu_backend()->reduce(0, ops[op], &out, &in, 0));
                    for (int64_t j = 0; j < n; j++) {
                        int64_t first = (at + j) % rows;
                        double got = view_get(&out, j), want = where ? (double)first : view_get(&in, first * n + j);
                        if (got != want && !(isnan(got) && isnan(want)))
                            fail_msg("%s of %s: column %lld of %lld x %lld gives %g, expected %g", op_names[ops[op]],
                                     yk_dtype_name(dtypes[d]), (long long)j, (long long)rows, (long long)n, got, want);
                    }
                }
                view_free(&in);
                view_free(&out);
            }
}

/* A column has the same sum, and sum of squares, beside any number of others: their vectors differ. */
static void test_widths(void **state)
{
    (void)state;
    static const yk_dtype dtypes[] = {YK_F32, YK_F64, YK_F16, YK_BF16};
    static const yk__reduce ops[] = {YK__SUM, YK__MEAN, YK__SUM_SQUARES};
    enum { ROWS = 29, MOST = 48 };
    for (int d = 0; d < 4; d++)
        for (int op = 0; op < 3; op++)
            for (int64_t rows = 1; rows <= ROWS; rows++) {
                yk__view in = view_make(dtypes[d], 2, (int64_t[]){rows, MOST}, LAYOUT_C);
                yk__view all = view_make(dtypes[d], 2, (int64_t[]){1, MOST}, LAYOUT_C);
                view_random(&in, 5, -3, 3);
                view_set(&in, (rows - 1) * MOST + 5, NAN);
                expect_ok(cpu_backend()->reduce(0, ops[op], &all, &in, 0));
                reference *expected = references_of(&in, 1);
                check(ops[op], &all, &in, expected, "widths");
                free(expected);
                for (int64_t width = 4; width < MOST; width++) { /* fewer are added up one by one */
                    yk__view some = in, out = view_make(dtypes[d], 2, (int64_t[]){1, width}, LAYOUT_C);
                    some.shape[1] = width;
                    expect_ok(cpu_backend()->reduce(0, ops[op], &out, &some, 0));
                    if (memcmp(out.data, all.data, (size_t)width * yk_dtype_size(dtypes[d])) != 0)
                        fail_msg("%s of %s: %lld rows of %lld columns differ from those of %d", op_names[ops[op]],
                                 yk_dtype_name(dtypes[d]), (long long)rows, (long long)width, MOST);
                    view_free(&out);
                }
                view_free(&in);
                view_free(&all);
            }
}

/* One element that decides, at each place of a row of more than one block. */
static void test_truth(void **state)
{
    (void)state;
    static const yk_dtype dtypes[] = {YK_F32, YK_F64, YK_F16, YK_BF16, YK_I64, YK_I32, YK_U8, YK_BOOL};
    enum { N = 700 };
    static double x[N];
    for (int d = 0; d < 8; d++)
        for (int all = 0; all < 2; all++) {
            yk__reduce op = all ? YK__ALL : YK__ANY;
            for (int i = 0; i < N; i++)
                x[i] = all;
            expect_near(reduce_values(op, dtypes[d], N, x, 0), all, 0, 0);
            for (int at = 0; at < N; at++) {
                x[at] = !all;
                expect_near(reduce_values(op, dtypes[d], N, x, 0), !all, 0, 0);
                x[at] = all;
            }
        }
}

static void test_special_values(void **state)
{
    (void)state;
    static const yk_dtype dtypes[] = {YK_F32, YK_F64, YK_F16, YK_BF16};
    for (int t = 0; t < 4; t++) {
        yk_dtype d = dtypes[t];
        enum { N = 100 };
        double x[N];
        for (int nan_at = 0; nan_at < 97; nan_at += 8) { /* in the vectors, in the tail, first and alone */
            for (int i = 0; i < N; i++)
                x[i] = i == 50 ? 9 : i == 70 ? -9 : i % 5;
            expect_near(reduce_values(YK__ARGMAX, d, N, x, 0), 50, 0, 0);
            expect_near(reduce_values(YK__ARGMIN, d, N, x, 0), 70, 0, 0);
            x[nan_at] = NAN;
            x[97] = NAN;
            assert_true(isnan(reduce_values(YK__AMAX, d, N, x, 0)));
            assert_true(isnan(reduce_values(YK__AMIN, d, N, x, 0)));
            assert_true(isnan(reduce_values(YK__SUM, d, N, x, 0)));
            expect_near(reduce_values(YK__ARGMAX, d, N, x, 0), nan_at, 0, 0);
            expect_near(reduce_values(YK__ARGMIN, d, N, x, 0), nan_at, 0, 0);
        }
        double equal[] = {1, 4, 4, 0, 0, 4}, all_low[] = {-INFINITY, -INFINITY};
        expect_near(reduce_values(YK__ARGMAX, d, 6, equal, 0), 1, 0, 0);
        expect_near(reduce_values(YK__ARGMIN, d, 6, equal, 0), 3, 0, 0);
        expect_near(reduce_values(YK__ARGMAX, d, 2, all_low, 0), 0, 0, 0);
        expect_near(reduce_values(YK__AMAX, d, 2, all_low, 0), -INFINITY, 0, 0);
        double nan[] = {NAN};
        expect_near(reduce_values(YK__ANY, d, 1, nan, 0), 1, 0, 0);
        expect_near(reduce_values(YK__VAR, d, 6, equal, 0), 49.0 / 6 - (13.0 / 6) * (13.0 / 6), t < 2 ? 1e-6 : 1e-2, 0);
        assert_true(isnan(reduce_values(YK__VAR, d, 1, equal, 1)));
        /* of nothing */
        expect_near(reduce_values(YK__SUM, d, 0, NULL, 0), 0, 0, 0);
        expect_near(reduce_values(YK__PROD, d, 0, NULL, 0), 1, 0, 0);
        expect_near(reduce_values(YK__ANY, d, 0, NULL, 0), 0, 0, 0);
        expect_near(reduce_values(YK__ALL, d, 0, NULL, 0), 1, 0, 0);
        expect_near(reduce_values(YK__AMAX, d, 0, NULL, 0), -INFINITY, 0, 0);
        assert_true(isnan(reduce_values(YK__MEAN, d, 0, NULL, 0)));
        assert_true(isnan(reduce_values(YK__VAR, d, 0, NULL, 0)));
    }
    double large[] = {0x1p52, 1, -0x1p52, 200};
    expect_near(reduce_values(YK__SUM, YK_I64, 4, large, 0), 201, 0, 0);
    double bytes[] = {255, 255, 255};
    expect_near(reduce_values(YK__SUM, YK_U8, 3, bytes, 0), 765, 0, 0); /* i64, no wrapping */
    expect_near(reduce_values(YK__PROD, YK_U8, 3, bytes, 0), 16581375, 0, 0);
    yk__view b = view_make(YK_BOOL, 0, NULL, LAYOUT_C);
    assert_int_equal(cpu_backend()->reduce(0, YK__MEAN, &b, &b, 0), YK_ERR_DTYPE);
    expect_error(YK_ERR_DTYPE, "mean: not defined for bool");
    view_free(&b);
}

/* Ten million times 0.1, in a row and in columns: adding one after the other would be off by a tenth. */
static void test_long_sums(void **state)
{
    (void)state;
    int64_t long_shape[] = {10000000}, tall_shape[] = {2500000, 4};
    for (int tall = 0; tall < 2; tall++) {
        yk__view in = view_make(YK_F32, 1 + tall, tall ? tall_shape : long_shape, LAYOUT_C);
        yk__view out = output(YK_F32, &in, 1, LAYOUT_C);
        expect_ok(cpu_backend()->fill(0, &in, 0.1));
        double n = tall ? 2.5e6 : 1e7, exact = n * (double)0.1f;
        expect_ok(cpu_backend()->reduce(0, YK__SUM, &out, &in, 0));
        for (int64_t i = 0; i < view_count(&out); i++)
            expect_near(view_get(&out, i), exact, 2e-7, 0);
        expect_ok(cpu_backend()->reduce(0, YK__MEAN, &out, &in, 0));
        expect_near(view_get(&out, 0), (double)0.1f, 2e-7, 0);
        view_free(&in);
        view_free(&out);
    }
    /* A variance far from zero: the naive formula would lose it. */
    int64_t n = 100000;
    yk__view in = view_make(YK_F32, 1, &n, LAYOUT_C), out = output(YK_F32, &in, 1, LAYOUT_C);
    for (int64_t i = 0; i < n; i++)
        view_set(&in, i, 10000 + (double)(i % 2));
    expect_ok(cpu_backend()->reduce(0, YK__VAR, &out, &in, 0));
    expect_near(view_get(&out, 0), 0.25, 1e-6, 0);
    view_free(&in);
    view_free(&out);
}

/* Shapes that are cut by pieces of what is reduced, by outputs, and not at all. */
static void test_threads(void **state)
{
    (void)state;
    static const struct {
        int64_t shape[3];
        unsigned dims;
    } cases[] = {{{70, 90, 33}, 7},  {{3000, 5, 21}, 1}, {{40, 30, 200}, 5}, {{500, 40, 11}, 4}, {{9, 4000, 8}, 2},
                 {{2, 1000, 97}, 6}, {{4, 5, 6}, 2},     {{37, 11, 131}, 5}, {{4, 3, 2801}, 5}};
    static const yk_dtype dtypes[] = {YK_F32, YK_F64, YK_F16, YK_BF16};
    for (size_t c = 0; c < 4 * (sizeof cases / sizeof cases[0]); c++)
        for (int layout = 0; layout < INPUT_LAYOUTS; layout += sanitized_size(1, 2))
            for (int product = 0; product < 2; product++) {
                unsigned dims = cases[c / 4].dims;
                yk_dtype dtype = dtypes[c % 4];
                yk__view in = view_make(dtype, 3, cases[c / 4].shape, layout), out[4];
                view_random(&in, 17, product ? 0.99 : -1, product ? 1.01 : 1);
                reference *all = references_of(&in, dims);
                for (int op = YK__SUM; op <= YK__SUM_SQUARES; op++) {
                    if ((op == YK__PROD) != product || ((op == YK__ARGMAX || op == YK__ARGMIN) && (dims & (dims - 1))))
                        continue;
                    for (int threads = 1; threads <= 3; threads++) {
                        use_threads(threads);
                        out[threads] = output(result_dtype((yk__reduce)op, dtype), &in, dims, LAYOUT_C);
                        expect_ok(cpu_backend()->reduce(0, (yk__reduce)op, &out[threads], &in, 1));
                    }
                    assert_true(view_same_bits(&out[1], &out[2]) && view_same_bits(&out[1], &out[3]));
                    if (dtype != YK_F16 || op != YK__PROD) /* f16, whose range some products leave */
                        check((yk__reduce)op, &out[1], &in, all, "threads");
                    for (int threads = 1; threads <= 3; threads++)
                        view_free(&out[threads]);
                }
                free(all);
                view_free(&in);
            }
    use_threads(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all),       cmocka_unit_test(test_places),         cmocka_unit_test(test_few_columns),
        cmocka_unit_test(test_truth),     cmocka_unit_test(test_special_values), cmocka_unit_test(test_short_rows),
        cmocka_unit_test(test_long_sums), cmocka_unit_test(test_threads),        cmocka_unit_test(test_widths),
    };
    return cmocka_run_group_tests_name("reduce", tests, NULL, NULL);
}
