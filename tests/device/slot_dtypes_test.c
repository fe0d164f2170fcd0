/* slot_dtypes_test.c - the dtypes that backends declare for their slots; f16 and bf16 taken natively give the bits of a
 * computation through f32 tensors: every operation, contiguous and strided, over itself, and of one element. */
#include <yoke/yoke.h>

#include "device/backend.h"
#include "device/elementwise_ops.h"
#include "tests/device/blocks.h"

enum { N = 1100, GAP = 3 }; /* more than a chunk of iterate.h, and a rest */

static const yk__backend *cpu;

static int setup(void **state)
{
    (void)state;
    cpu = yk__cpu_backend();
    return cpu ? 0 : -1;
}

static yk__view line(void *data, yk_dtype dtype, int64_t n, int64_t stride)
{
    return (yk__view){.data = data, .dtype = dtype, .ndim = 1, .shape = {n}, .stride = {stride}};
}

#define IS_THERE(slot)                                                                                                 \
    if (!cpu->slot != !cpu->takes[YK__SLOT_##slot])                                                                    \
        fail_msg("%s: the slot is %s, and declares %x", #slot, cpu->slot ? "there" : "NULL",                           \
                 (unsigned)cpu->takes[YK__SLOT_##slot]);
static void test_declared(void **state)
{
    (void)state;
    YK__TYPED_SLOTS(IS_THERE)
    for (int slot = 0; slot < YK__SLOTS; slot++)
        if (slot != YK__SLOT_nonzero) /* everything else that the CPU has is there in both */
            assert_int_equal(cpu->takes[slot] & YK__FLOATS, YK__FLOATS);
    assert_int_equal(cpu->takes[YK__SLOT_nonzero], 1 << YK_BOOL);
}

enum { LINE = 4 };

/* 1, 0, 1, 1 in a dtype; and what is there as doubles. */
static yk__view ones_and_a_zero(yk_dtype dtype, void *memory)
{
    double values[LINE] = {1, 0, 1, 1};
    yk__view from = line(values, YK_F64, LINE, 1), to = line(memory, dtype, LINE, 1);
    assert_int_equal(cpu->copy(0, &to, &from), YK_OK);
    return to;
}

static void expect_line(const char *name, const yk__view *view, const double expected[LINE])
{
    double values[LINE];
    yk__view to = line(values, YK_F64, LINE, 1);
    assert_int_equal(cpu->copy(0, &to, view), YK_OK);
    for (int i = 0; i < LINE; i++)
        if (values[i] != expected[i])
            fail_msg("%s of %s: element %d is %g, expected %g", name, yk_dtype_name(view->dtype), i, values[i],
                     expected[i]);
}

/* The slots of indexing and order compute the dtypes that they declare. */
static void test_index_and_order(void **state)
{
    (void)state;
    int64_t position[LINE] = {3, 3, 0, 1}, made[LINE], count;
    for (int d = 0; d < YK__DTYPES; d++) {
        yk_dtype dtype = (yk_dtype)d;
        uint64_t x_memory[LINE], y_memory[LINE] = {0};
        yk__view x = ones_and_a_zero(dtype, x_memory), y = line(y_memory, dtype, LINE, 1), still = x;
        yk__view positions = line(position, YK_I64, LINE, 1), order = line(made, YK_I64, LINE, 1);
        yk__indices p = {.name = "slots", .count = 1, .of[0] = {positions, 0, LINE, 1}};
        still.stride[0] = 0;
        if (cpu->takes[YK__SLOT_index] & 1u << d) {
            assert_int_equal(cpu->index(0, &y, &still, &p), YK_OK);
            expect_line("index", &y, (double[]){1, 1, 1, 0});
        }
        if (cpu->takes[YK__SLOT_index_put] & 1u << d) {
            yk__view at = y;
            at.stride[0] = 0;
            assert_int_equal(cpu->index_put(0, &at, &x, &p, true), YK_OK);
            bool truth = dtype == YK_BOOL;
            expect_line("index_put", &y, (double[]){truth ? 1 : 2, truth ? 1 : 2, 1, 1});
        }
        if (cpu->takes[YK__SLOT_argsort] & 1u << d) {
            assert_int_equal(cpu->argsort(0, &order, &x, 0, false), YK_OK);
            expect_line("argsort", &order, (double[]){1, 0, 2, 3});
        }
        if (cpu->takes[YK__SLOT_scan] & 1u << d) {
            assert_int_equal(cpu->scan(0, YK__CUMSUM, &y, &x, 0, false), YK_OK);
            expect_line("scan", &y, (double[]){1, 1, 2, 3});
        }
        if (cpu->takes[YK__SLOT_nonzero] & 1u << d) {
            yk__view found = {.data = made, .dtype = YK_I64, .ndim = 2, .shape = {3, 1}, .stride = {1, 1}};
            assert_int_equal(cpu->nonzero(0, &x, &count, &found), YK_OK);
            assert_true(count == 3 && made[0] == 0 && made[1] == 2 && made[2] == 3);
        }
    }
}

/* The operations above the slots take every dtype, whatever is declared. */
static void test_index_and_order_above(void **state)
{
    (void)state;
    for (int d = 0; d < YK__DTYPES; d++) {
        yk_scope scope = yk_scope_begin();
        yk_dtype dtype = (yk_dtype)d;
        const double values[LINE] = {1, 0, 1, 1};
        const int64_t twice[LINE] = {3, 3, 0, 1};
        yk_tensor *x =
            yk_cast(yk_from_data(values, 1, (int64_t[]){LINE}, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64)), dtype);
        yk_tensor *index = yk_from_data(twice, 1, (int64_t[]){LINE}, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
        yk_tensor *sums = yk_zeros(YK_SHAPE(LINE), YK_OPTIONS(yk_tensor_options, .dtype = dtype));
        assert_non_null(yk_index_add_(sums, 0, index, x, 1));
        double to[LINE];
        yk_tensor *results[] = {yk_argsort(x, 0, false), yk_cumsum(x, 0), yk_index_select(x, 0, index), sums,
                                yk_nonzero(x)};
        const double expected[][LINE] = {{1, 0, 2, 3}, {1, 1, 2, 3}, {1, 1, 1, 0}, {1, 1, 0, 1}, {0, 2, 3}};
        for (int i = 0; i < 5; i++) {
            yk_tensor *wide = yk_cast(results[i], YK_F64);
            assert_non_null(wide);
            assert_int_equal(yk_tensor_read(wide, to, (size_t)yk_numel(wide) * sizeof(double)), YK_OK);
            for (int k = 0; k < yk_numel(wide); k++)
                if (to[k] != expected[i][k])
                    fail_msg("result %d of %s: element %d is %g, expected %g", i, yk_dtype_name(dtype), k, to[k],
                             expected[i][k]);
        }
        yk_scope_end(scope);
    }
}

/* Halves of all sorts: what is in f16 special is in bf16, too. */
static uint16_t half_at(int i, uint32_t seed)
{
    static const uint16_t special[] = {0x0000, 0x8000, 0x3C00, 0xBC00, 0x3F80, 0x7C00, 0xFC00, 0x7F80, 0xFF80, 0x7E00};
    uint32_t words[4];
    yk__philox((yk__stream){seed, YK__RANDOM_TEST, 0}, (uint64_t)i, words);
    return words[1] % 8 == 0 ? special[words[0] % 10] : (uint16_t)words[0];
}

typedef struct operands {
    uint16_t x[N * GAP], y[N * GAP], native[N * GAP], expected[N * GAP];
    uint8_t native_truth[N * GAP], expected_truth[N * GAP];
    float wide_x[N], wide_y[N], wide[N];
} operands;

static bool is_nan(yk_dtype half, uint16_t x)
{
    return (x & 0x7FFF) > (half == YK_F16 ? 0x7C00 : 0x7F80);
}

/* Any NaN is like another. */
static void check_same(yk_dtype half, const char *name, const uint16_t *native, const uint16_t *expected, size_t n,
                       const uint16_t *x)
{
    for (size_t i = 0; i < n; i++)
        if (native[i] != expected[i] && !(is_nan(half, native[i]) && is_nan(half, expected[i])))
            fail_msg("%s: element %zu, of %04x, is %04x natively and %04x by way of f32", name, i, x[i], native[i],
                     expected[i]);
}

/* Both ways; `op` is a unary one where `right` is false. */
static void compare(const char *name, int op, bool right, bool truth, yk_dtype half, int64_t n, int64_t step, double p0,
                    double p1)
{
    operands *o = calloc(1, sizeof(*o));
    assert_non_null(o);
    for (int i = 0; i < N * GAP; i++)
        o->x[i] = half_at(i, 1), o->y[i] = half_at(i, 2), o->native[i] = o->expected[i] = 0x5A5A;
    yk__view x = line(o->x, half, n, step), y = line(o->y, half, n, step), wx = line(o->wide_x, YK_F32, n, 1),
             wy = line(o->wide_y, YK_F32, n, 1);
    yk__view made = truth ? line(o->native_truth, YK_BOOL, n, step) : line(o->native, half, n, step);
    yk__view wide = truth ? line(o->expected_truth, YK_BOOL, n, step) : line(o->wide, YK_F32, n, 1);
    yk__view rounded = line(o->expected, half, n, step);
    assert_int_equal(cpu->copy(0, &wx, &x), YK_OK);
    assert_int_equal(cpu->copy(0, &wy, &y), YK_OK);
    yk_status native =
        right ? cpu->binary(0, (yk__binary)op, &made, &x, &y, p0) : cpu->unary(0, (yk__unary)op, &made, &x, p0, p1);
    yk_status by_f32 =
        right ? cpu->binary(0, (yk__binary)op, &wide, &wx, &wy, p0) : cpu->unary(0, (yk__unary)op, &wide, &wx, p0, p1);
    assert_int_equal(native, YK_OK);
    assert_int_equal(by_f32, YK_OK);
    if (!truth)
        assert_int_equal(cpu->copy(0, &rounded, &wide), YK_OK);
    check_same(half, name, o->native, o->expected, N * GAP, o->x);
    assert_memory_equal(o->native_truth, o->expected_truth, sizeof(o->native_truth));
    if (!truth) { /* over itself */
        assert_int_equal(right ? cpu->binary(0, (yk__binary)op, &x, &x, &y, p0)
                               : cpu->unary(0, (yk__unary)op, &x, &x, p0, p1),
                         YK_OK);
        for (int64_t i = 0; i < n; i++)
            check_same(half, name, &o->x[i * step], &o->expected[i * step], 1, &o->y[i * step]);
    }
    free(o);
}

static void test_unary(void **state)
{
    (void)state;
    for (int op = 0; op <= YK__CLAMP; op++)
        for (int k = 0; k < 8; k++)
            compare(yk__unary_name((yk__unary)op), op, false, op == YK__LOGICAL_NOT || op == YK__IS_FINITE,
                    k & 1 ? YK_F16 : YK_BF16, k & 4 ? 1 : N, k & 2 ? GAP : 1, k & 1 ? 2 : -0.7, 3);
}

static void test_binary(void **state)
{
    (void)state;
    for (int op = 0; op <= YK__ABS_GRAD; op++)
        for (int k = 0; k < 8; k++)
            compare(yk__binary_name((yk__binary)op), op, true, op >= YK__EQ && op <= YK__OR, k & 1 ? YK_F16 : YK_BF16,
                    k & 4 ? 1 : N, k & 2 ? GAP : 1, k & 1 ? 1 : 0.3, 0);
}

static void test_dropout(void **state)
{
    (void)state;
    const yk__stream stream = {7, YK__RANDOM_TEST, 3};
    for (int k = 0; k < 4; k++) {
        operands *o = calloc(1, sizeof(*o));
        assert_non_null(o);
        yk_dtype half = k & 1 ? YK_F16 : YK_BF16;
        int64_t step = k & 2 ? GAP : 1;
        for (int i = 0; i < N * GAP; i++)
            o->x[i] = half_at(i, 3);
        yk__view x = line(o->x, half, N, step), made = line(o->native, half, N, step),
                 wide = line(o->wide, YK_F32, N, 1), rounded = line(o->expected, half, N, step);
        assert_int_equal(cpu->dropout(0, &made, &x, stream, NULL, 0, 0.4), YK_OK);
        assert_int_equal(cpu->copy(0, &wide, &x), YK_OK);
        assert_int_equal(cpu->dropout(0, &wide, &wide, stream, NULL, 0, 0.4), YK_OK);
        assert_int_equal(cpu->copy(0, &rounded, &wide), YK_OK);
        check_same(half, "dropout", o->native, o->expected, N * GAP, o->x);
        free(o);
    }
}

/* An operation on a dtype that its slot lacks is computed in f32, and a number that the dtype would round is not
 * rounded on the way in. */
static void test_above(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    const float values[] = {0.1f, -2.5f, 300.25f};
    const int64_t shape[] = {3};
    yk_tensor *x = yk_cast(yk_from_data(values, 1, shape, NULL), YK_F16), *s = yk_full(0, NULL, 1.0009765625 / 3, NULL);
    yk_tensor *native = yk_mul(x, x), *product = yk_mul(x, s), *sum = yk_sum(x);
    yk_tensor *expected = yk_cast(yk_mul(yk_cast(x, YK_F32), yk_cast(x, YK_F32)), YK_F16);
    yk_tensor *wide = yk_cast(yk_mul(yk_cast(x, YK_F32), s), YK_F16);
    assert_non_null(sum);
    assert_int_equal(yk_tensor_dtype(native), YK_F16);
    assert_int_equal(yk_tensor_dtype(product), YK_F16);
    assert_int_equal(yk_tensor_dtype(sum), YK_F16);
    assert_memory_equal(yk_tensor_data(native), yk_tensor_data(expected), 6);
    assert_memory_equal(yk_tensor_data(product), yk_tensor_data(wide), 6);
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_declared),
                                       cmocka_unit_test(test_index_and_order),
                                       cmocka_unit_test(test_index_and_order_above),
                                       cmocka_unit_test(test_unary),
                                       cmocka_unit_test(test_binary),
                                       cmocka_unit_test(test_dropout),
                                       cmocka_unit_test(test_above)};
    return cmocka_run_group_tests(tests, setup, NULL);
}
