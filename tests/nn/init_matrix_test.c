/*
 * init_matrix_test.c - truncated normal, orthogonal, identity and sparse initial values: their distributions, and what
 * makes an orthogonal matrix that of PyTorch's formula; refusals.
 */
#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include <stdlib.h>

#include <yoke/nn.h>
#include <yoke/ops.h>

enum { MOST = 20000 };

static yk_tensor *tensor(int ndim, const int64_t *shape, yk_dtype dtype)
{
    return yk_empty(ndim, shape, YK_OPTIONS(yk_tensor_options, .dtype = dtype, .device = test_device(0)));
}

static const double *read_all(yk_tensor *x)
{
    static double values[MOST];
    assert_true(yk_numel(x) <= MOST);
    expect_ok(yk_tensor_read(yk_cast(x, YK_F64), values, sizeof(double) * (size_t)yk_numel(x)));
    return values;
}

/* Mean and deviation of the normal distribution between a and b (deviations from its mean): with p its part there and f
 * its density, m = (f(a) - f(b)) / p and v = 1 + (a f(a) - b f(b)) / p - m^2. */
static void expect_truncated(yk_tensor *x, double mean, double deviation, double a, double b)
{
    const double *values = read_all(x);
    double n = (double)yk_numel(x), sum = 0, squares = 0, low = (a - mean) / deviation, high = (b - mean) / deviation;
    double fa = exp(-low * low / 2) / sqrt(2 * M_PI), fb = exp(-high * high / 2) / sqrt(2 * M_PI);
    double part = (erfc(-high / sqrt(2)) - erfc(-low / sqrt(2))) / 2;
    if (low > 4) /* the upper tails, whose difference is not lost */
        part = (erfc(low / sqrt(2)) - erfc(high / sqrt(2))) / 2;
    double m = (fa - fb) / part, v = 1 + (low * fa - high * fb) / part - m * m;
    for (int64_t i = 0; i < yk_numel(x); i++) {
        assert_true(values[i] >= (float)a && values[i] <= (float)b);
        sum += values[i] / n;
    }
    for (int64_t i = 0; i < yk_numel(x); i++)
        squares += (values[i] - sum) * (values[i] - sum) / n;
    expect_near(sum, mean + deviation * m, 0, 5 * deviation * sqrt(v / n));
    expect_near(sqrt(squares), deviation * sqrt(v), 5 / sqrt(n), 0);
}

static void test_trunc_normal(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(3);
    static const double cases[][4] = {{0, 1, -2, 2},   {0, 0.02, -2, 2},   {1, 0.5, 0.8, 1.6}, {0, 1, 0.1, 0.3},
                                      {0, 1, -0.5, 4}, {0, 1, 6, 1000000}, {3, 2, -1, 0.5}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const double *c = cases[i];
        yk_tensor *x = tensor(YK_SHAPE(100, 50, 4), i % 2 ? YK_F64 : YK_F32);
        expect_ok(yk_init_trunc_normal(x, c[0], c[1], c[2], c[3]));
        expect_truncated(x, c[0], c[1], c[2], c[3]);
    }
    yk_tensor *x = tensor(YK_SHAPE(3), YK_F32);
    expect_ok(yk_init_trunc_normal(x, 0, 1, 0.5, 0.5));
    expect_near(yk_item(yk_sum(x)), 1.5, 0, 0);
    yk_tensor *scalar = tensor(0, NULL, YK_F16);
    expect_ok(yk_init_trunc_normal(scalar, 0, 1, -2, 2));
    assert_true(fabs(yk_item(scalar)) <= 2);
    expect_ok(yk_init_trunc_normal(tensor(YK_SHAPE(0, 3), YK_F32), 0, 1, -2, 2));
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

/*
 * With A the normal numbers that are drawn, Q has orthonormal rows or columns, and the other factor of A = QR, or of
 * the transposed where there are more columns, is upper triangular with a positive diagonal: there is one such Q,
 * PyTorch's.
 */
static void expect_orthogonal(yk_tensor *x, double gain, double room)
{
    int64_t rows = yk_size(x, 0), columns = yk_numel(x) / rows;
    yk_manual_seed(4);
    yk_tensor *a = yk_empty(YK_SHAPE(rows, columns), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    expect_ok(yk_init_normal(a, 0, 1));
    yk_manual_seed(4);
    expect_ok(yk_init_orthogonal(x, gain));
    yk_device cpu = {YK_CPU, 0};
    yk_tensor *q = yk_reshape(yk_to(yk_cast(x, YK_F64), cpu), YK_SHAPE(rows, columns));
    a = yk_to(a, cpu);
    if (rows < columns) {
        q = yk_transpose(q, 0, 1);
        a = yk_transpose(a, 0, 1);
    }
    int64_t n = yk_size(q, 1);
    const double *product = read_all(yk_matmul(yk_transpose(q, 0, 1), q));
    for (int64_t i = 0; i < n * n; i++)
        expect_near(product[i], i / n == i % n ? gain * gain : 0, 0, room * gain * gain);
    const double *r = read_all(yk_matmul(yk_transpose(q, 0, 1), a));
    for (int64_t i = 0; i < n; i++) {
        assert_true(r[i * n + i] / gain > 0);
        for (int64_t j = 0; j < i; j++)
            expect_near(r[i * n + j], 0, 0, 30 * room * fabs(gain));
    }
}

static void test_orthogonal(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    expect_orthogonal(tensor(YK_SHAPE(30, 30), YK_F64), 1, 1e-14);
    expect_orthogonal(tensor(YK_SHAPE(40, 25), YK_F64), 2.5, 1e-14);
    expect_orthogonal(tensor(YK_SHAPE(8, 5, 3, 3), YK_F64), -0.5, 1e-14);
    expect_orthogonal(tensor(YK_SHAPE(50, 3, 3), YK_F32), sqrt(2), 1e-6);
    expect_orthogonal(tensor(YK_SHAPE(1, 7), YK_F64), 1, 1e-14);
    expect_ok(yk_init_orthogonal(tensor(YK_SHAPE(0, 3), YK_F32), 1));
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

static void test_identities(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    for (int wide = 0; wide < 2; wide++) {
        int64_t rows = wide ? 3 : 5, columns = wide ? 5 : 3;
        yk_tensor *x = tensor(YK_SHAPE(rows, columns), YK_F32);
        expect_ok(yk_init_eye(x));
        for (int64_t i = 0; i < rows * columns; i++)
            expect_near(read_all(x)[i], i / columns == i % columns, 0, 0);
    }

    /* A convolution with it passes on the channels: 2 of each of 2 groups, whose third output is 0. */
    const int64_t shapes[][5] = {{6, 2, 3, 3, 3}, {6, 2, 4, 1, 1}};
    for (int ndim = 3; ndim <= 5; ndim++) {
        for (int s = 0; s < 2; s++) {
            yk_tensor *w = tensor(ndim, shapes[s], YK_F64);
            expect_ok(yk_init_dirac(w, 2));
            int64_t field = yk_numel(w) / 12, middle = 0, ones = 0;
            for (int d = 2; d < ndim; d++)
                middle = middle * shapes[s][d] + shapes[s][d] / 2;
            const double *values = read_all(w);
            for (int64_t i = 0; i < yk_numel(w); i++) {
                int64_t out = i / (2 * field), in = i / field % 2;
                bool one = out % 3 == in && i % field == middle;
                expect_near(values[i], one, 0, 0);
                ones += one;
            }
            assert_int_equal(ones, 4);
        }
    }
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

static void test_sparse(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(5);
    enum { ROWS = 37, COLUMNS = 300 };
    yk_tensor *x = tensor(YK_SHAPE(ROWS, COLUMNS), YK_F32);
    expect_ok(yk_init_sparse(x, 0.3, 0.1));
    const double *values = read_all(x);
    int of_row[ROWS] = {0}, zeros = 12; /* ceil(0.3 * 37) */
    double squares = 0;
    for (int c = 0; c < COLUMNS; c++) {
        int found = 0;
        for (int r = 0; r < ROWS; r++) {
            bool zero = values[r * COLUMNS + c] == 0;
            found += zero;
            of_row[r] += zero;
            squares += values[r * COLUMNS + c] * values[r * COLUMNS + c];
        }
        assert_int_equal(found, zeros);
    }
    double n = (ROWS - zeros) * COLUMNS, chance = (double)zeros / ROWS;
    expect_near(sqrt(squares / n), 0.1, 5 / sqrt(2 * n), 0);
    for (int r = 0; r < ROWS; r++) /* every row is as likely as another */
        expect_near(of_row[r], COLUMNS * chance, 0, 5 * sqrt(COLUMNS * chance * (1 - chance)));
    expect_ok(yk_init_sparse(x, 1, 0.1));
    expect_near(yk_item(yk_sum(yk_abs(x))), 0, 0, 0);
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

static void test_refusals(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *line = yk_ones(YK_SHAPE(4), NULL), *matrix = yk_ones(YK_SHAPE(4, 3), NULL);
    yk_tensor *whole = yk_ones(YK_SHAPE(4, 3), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
#define REFUSED(call, code, text)                                                                                      \
    do {                                                                                                               \
        assert_int_equal(call, code);                                                                                  \
        expect_error(code, text);                                                                                      \
    } while (0)
    REFUSED(yk_init_trunc_normal(NULL, 0, 1, -2, 2), YK_ERR_ARGUMENT, "init_trunc_normal: the tensor is NULL");
    REFUSED(yk_init_trunc_normal(whole, 0, 1, -2, 2), YK_ERR_DTYPE,
            "init_trunc_normal: expected a floating tensor, this one is int64");
    REFUSED(yk_init_trunc_normal(line, 0, 0, -2, 2), YK_ERR_ARGUMENT, "deviation is 0");
    REFUSED(yk_init_trunc_normal(line, 0, 1, 2, -2), YK_ERR_ARGUMENT, "b is -2");
    REFUSED(yk_init_trunc_normal(line, NAN, 1, -2, 2), YK_ERR_ARGUMENT, "mean is nan");
    REFUSED(yk_init_orthogonal(line, 1), YK_ERR_SHAPE, "init_orthogonal: shape (4,), expected at least 2 dimensions");
    REFUSED(yk_init_orthogonal(matrix, NAN), YK_ERR_ARGUMENT, "gain is nan");
    REFUSED(yk_init_eye(line), YK_ERR_SHAPE, "init_eye: shape (4,), expected 2 dimensions");
    REFUSED(yk_init_eye(NULL), YK_ERR_ARGUMENT, "init_eye: the tensor is NULL");
    REFUSED(yk_init_dirac(matrix, 1), YK_ERR_SHAPE, "init_dirac: shape (4, 3), expected 3 to 5 dimensions");
    REFUSED(yk_init_dirac(yk_ones(YK_SHAPE(4, 3, 1), NULL), 3), YK_ERR_SHAPE,
            "init_dirac: 4 channels are not a multiple of 3 groups");
    REFUSED(yk_init_dirac(yk_ones(YK_SHAPE(4, 3, 1), NULL), 0), YK_ERR_ARGUMENT, "groups is 0");
    REFUSED(yk_init_sparse(matrix, 1.5, 1), YK_ERR_ARGUMENT, "sparsity is 1.5");
    REFUSED(yk_init_sparse(line, 0.5, 1), YK_ERR_SHAPE, "init_sparse: shape (4,), expected 2 dimensions");
#undef REFUSED
    expect_near(yk_item(yk_sum(matrix)), 12, 0, 0); /* untouched */
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trunc_normal), cmocka_unit_test(test_orthogonal), cmocka_unit_test(test_identities),
        cmocka_unit_test(test_sparse),       cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("init_matrix", tests, NULL, NULL);
}
