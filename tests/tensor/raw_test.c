/* raw_test.c - the raw kernels' front door: dtype and shape rules, layouts, devices, against float64 loops. */
#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include "tensor/tensor.h"
#include "tests/golden/promotion_golden.h"

static yk_scope scope;

static int open_scope(void **state)
{
    (void)state;
    yk_clear_error();
    scope = yk_scope_begin();
    return 0;
}

static int close_scope(void **state)
{
    (void)state;
    yk_scope_end(scope);
    return yk_last_error() != NULL;
}

/* The raw functions give references; here the scope takes them. */
static yk_tensor *own(yk_tensor *x)
{
    return yk__scope_own(x);
}

/* All elements as f64 in C order; the memory is the scope's. */
static const double *values_of(yk_tensor *x)
{
    if (!x)
        fail_msg("no tensor: %s", yk_last_error() ? yk_last_error()->message : "no record");
    yk_tensor *wide = own(yk__raw_cast(x, YK_F64));
    return host_data(own(yk__raw_contiguous(wide)));
}

enum { C_ORDER, REVERSED, GAPS, LAYOUTS };

/* Small integers, different for each `salt`, that every dtype holds; in C order, the reverse, or with gaps between. */
static yk_tensor *numbers(yk_dtype dtype, int ndim, const int64_t *shape, int layout, unsigned salt)
{
    int64_t stride[YK_MAX_DIMS], step = 1, numel = 1;
    for (int k = 0; k < ndim; k++) {
        int d = layout == C_ORDER ? ndim - 1 - k : k;
        stride[d] = step;
        step *= layout == GAPS ? 2 * shape[d] + 1 : shape[d];
        numel *= shape[d];
    }
    yk_tensor *base = own(yk__tensor_new(1, (int64_t[]){step + 1}, NULL, dtype, test_device(0)));
    expect_ok(yk__raw_fill(base, 1));
    yk_tensor *x = own(yk__tensor_view(base, ndim, shape, stride, 0));
    yk_tensor *host = own(yk__tensor_new(ndim, shape, NULL, YK_F64, (yk_device){0}));
    for (int64_t i = 0; i < numel; i++) {
        int value = (int)((unsigned)(i + 1) * (salt * 2 + 1) * 2654435761u >> 16) % 7;
        ((double *)host->data)[i] = dtype == YK_BOOL ? value % 2 : dtype == YK_U8 ? value : value - 3;
    }
    expect_ok(yk__raw_copy(x, host));
    return x;
}

static bool floating(yk_dtype dtype)
{
    return yk_dtype_is_floating(dtype);
}

static double epsilon(yk_dtype dtype)
{
    return dtype == YK_F64 ? 4e-16 : dtype == YK_F32 ? 2e-7 : dtype == YK_F16 ? 1e-3 : dtype == YK_BF16 ? 8e-3 : 0;
}

/* A number as an element of the dtype: u8 wraps around. */
static double as_dtype(double value, yk_dtype dtype)
{
    return dtype == YK_BOOL ? value != 0 : dtype == YK_U8 ? (double)(uint8_t)(int64_t)value : value;
}

static double binary_reference(yk__binary op, double a, double b, yk_dtype joint)
{
    a = as_dtype(a, op == YK__DIV ? YK_F64 : joint);
    b = as_dtype(b, op == YK__DIV ? YK_F64 : joint);
    switch (op) {
    case YK__ADD: return as_dtype(a + b, joint);
    case YK__MUL: return as_dtype(a * b, joint);
    case YK__DIV: return a / b;
    case YK__MAXIMUM: return a > b ? a : b;
    case YK__MINIMUM: return a < b ? a : b;
    case YK__EQ: return a == b;
    case YK__LT: return a < b;
    case YK__GE: return a >= b;
    case YK__AND: return a != 0 && b != 0;
    default: fail_msg("no reference for operation %d", op); return 0;
    }
}

static void binary_of_all_dtypes(void **state)
{
    (void)state;
    static const yk__binary ops[] = {YK__ADD, YK__MUL, YK__DIV, YK__MAXIMUM, YK__MINIMUM,
                                     YK__EQ,  YK__LT,  YK__GE,  YK__AND};
    for (int a = 0; a < YK__DTYPES; a++) {
        for (int b = 0; b < YK__DTYPES; b++) {
            for (size_t k = 0; k < sizeof(ops) / sizeof(ops[0]); k++) {
                for (int scalar = 0; scalar < 3; scalar++) { /* none, b, a */
                    yk_scope inner = yk_scope_begin();
                    yk_dtype da = (yk_dtype)a, db = (yk_dtype)b;
                    yk_tensor *x = numbers(da, scalar == 2 ? 0 : 2, (int64_t[]){3, 5}, C_ORDER, 1);
                    yk_tensor *y = numbers(db, scalar == 1 ? 0 : 2, (int64_t[]){3, 5}, C_ORDER, 2);
                    yk_tensor *out = own(yk__raw_binary("op", ops[k], x, y, 1));
                    yk_dtype joint = scalar == 1   ? promoted_with_scalar[a][b]
                                     : scalar == 2 ? promoted_with_scalar[b][a]
                                                   : promoted[a][b];
                    yk_dtype expected = ops[k] >= YK__EQ                        ? YK_BOOL
                                        : ops[k] == YK__DIV && !floating(joint) ? YK_F32
                                                                                : joint;
                    const double *vx = values_of(x), *vy = values_of(y), *got = values_of(out);
                    if (yk_tensor_dtype(out) != expected)
                        fail_msg("operation %d of %s and %s gives %s, expected %s", ops[k], yk_dtype_name(da),
                                 yk_dtype_name(db), yk_dtype_name(yk_tensor_dtype(out)), yk_dtype_name(expected));
                    assert_int_equal(yk_numel(out), 15);
                    for (int i = 0; i < 15; i++) {
                        double reference =
                            binary_reference(ops[k], vx[scalar == 2 ? 0 : i], vy[scalar == 1 ? 0 : i], joint);
                        expect_near(got[i], reference, epsilon(expected), 0);
                    }
                    yk_scope_end(inner);
                }
            }
        }
    }
}

static void binary_of_shapes_and_layouts(void **state)
{
    (void)state;
    static const struct {
        int ndim_a, ndim_b, ndim;
        int64_t a[4], b[4], both[4];
    } shapes[] = {{2, 2, 2, {3, 4}, {3, 4}, {3, 4}},       {2, 1, 2, {3, 4}, {4}, {3, 4}},
                  {1, 2, 2, {4}, {3, 4}, {3, 4}},          {2, 2, 2, {3, 1}, {1, 4}, {3, 4}},
                  {3, 2, 3, {2, 1, 5}, {3, 1}, {2, 3, 5}}, {4, 3, 4, {2, 3, 4, 5}, {3, 1, 1}, {2, 3, 4, 5}},
                  {2, 2, 2, {0, 4}, {1, 4}, {0, 4}},       {0, 0, 0, {0}, {0}, {0}}};
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        for (int layouts = 0; layouts < LAYOUTS * LAYOUTS; layouts++) {
            yk_scope inner = yk_scope_begin();
            yk_tensor *x = numbers(YK_F64, shapes[s].ndim_a, shapes[s].a, layouts % LAYOUTS, 3);
            yk_tensor *y = numbers(YK_F64, shapes[s].ndim_b, shapes[s].b, layouts / LAYOUTS, 4);
            yk_tensor *out = own(yk__raw_binary("sub", YK__SUB, x, y, 2));
            assert_int_equal(yk_ndim(out), shapes[s].ndim);
            const double *got = values_of(out), *vx = values_of(x), *vy = values_of(y);
            for (int64_t i = 0; i < yk_numel(out); i++) {
                int64_t rest = i, ia = 0, ib = 0, step_a = 1, step_b = 1;
                for (int d = shapes[s].ndim - 1; d >= 0; d--) {
                    int da = d - (shapes[s].ndim - shapes[s].ndim_a), db = d - (shapes[s].ndim - shapes[s].ndim_b);
                    int64_t size = shapes[s].both[d], at = rest % size;
                    assert_int_equal(yk_size(out, d), size);
                    rest /= size;
                    ia += da >= 0 && shapes[s].a[da] > 1 ? at * step_a : 0;
                    ib += db >= 0 && shapes[s].b[db] > 1 ? at * step_b : 0;
                    step_a *= da >= 0 ? shapes[s].a[da] : 1;
                    step_b *= db >= 0 ? shapes[s].b[db] : 1;
                }
                expect_near(got[i], vx[ia] - 2 * vy[ib], 0, 0);
            }
            yk_scope_end(inner);
        }
    }
    /* A result takes over a dense operand's memory order. */
    yk_tensor *x = numbers(YK_F32, 2, (int64_t[]){3, 4}, REVERSED, 3),
              *y = numbers(YK_F32, 1, (int64_t[]){4}, C_ORDER, 3);
    assert_true(yk__same_strides(own(yk__raw_binary("add", YK__ADD, x, y, 1)), x));
    assert_true(yk__same_strides(own(yk__raw_binary("add", YK__ADD, y, x, 1)), x));
}

static void binary_refuses(void **state)
{
    (void)state;
    yk_tensor *x = numbers(YK_F32, 2, (int64_t[]){3, 4}, C_ORDER, 1),
              *y = numbers(YK_F32, 1, (int64_t[]){3}, C_ORDER, 1);
    yk_tensor *flags = numbers(YK_BOOL, 1, (int64_t[]){3}, C_ORDER, 1);
    yk_tensor *away = own(yk__raw_to(y, test_device(1)));
    assert_null(yk__raw_binary("add", YK__ADD, x, y, 1));
    expect_error(YK_ERR_SHAPE, "add: shapes (3, 4) and (3,) do not broadcast: 4 against 3 in dimension 1");
    assert_null(yk__raw_binary("sub", YK__SUB, flags, flags, 1));
    expect_error(YK_ERR_DTYPE, "sub: bool minus bool");
    assert_null(yk__raw_binary("mul", YK__MUL, y, away, 1));
    expect_error(YK_ERR_DEVICE, device_text("mul: the tensors are on two devices, cpu:0 and cpu:1"));
    assert_null(yk__raw_binary("mul", YK__MUL, y, NULL, 1));
    assert_null(yk__raw_binary("mul", YK__MUL, NULL, y, 1));
    assert_null(yk_last_error());
}

static void unary_dtypes(void **state)
{
    (void)state;
    enum { KEEP, FLOAT }; /* the dtype itself, and an error for bool; f32 for integers */
    static const struct {
        yk__unary op;
        int rule;
        double p0;
        double (*reference)(double);
    } cases[] = {
        {YK__ABS, KEEP, 0, fabs}, {YK__FLOOR, KEEP, 0, floor}, {YK__CEIL, KEEP, 0, ceil}, {YK__ROUND, KEEP, 0, rint},
        {YK__EXP, FLOAT, 0, exp}, {YK__SQRT, FLOAT, 0, sqrt},  {YK__SIN, FLOAT, 0, sin},  {YK__TANH, FLOAT, 0, tanh},
    };
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        for (int i = 0; i < YK__DTYPES; i++) {
            for (int layout = 0; layout < LAYOUTS; layout++) {
                yk_scope inner = yk_scope_begin();
                yk_dtype dtype = (yk_dtype)i;
                yk_tensor *x = numbers(dtype, 2, (int64_t[]){4, 5}, layout, 6);
                yk_tensor *out = own(yk__raw_unary("op", cases[k].op, x, 0, 0));
                if (cases[k].rule == KEEP && dtype == YK_BOOL) {
                    assert_null(out);
                    expect_error(YK_ERR_DTYPE, "op: not defined for bool tensors");
                } else {
                    yk_dtype expected = cases[k].rule == KEEP || floating(dtype) ? dtype : YK_F32;
                    assert_int_equal(yk_tensor_dtype(out), expected);
                    const double *vx = values_of(x), *got = values_of(out);
                    for (int j = 0; j < 20; j++)
                        expect_near(got[j], cases[k].reference(vx[j]), 4 * epsilon(expected), epsilon(expected) / 8);
                    assert_int_equal(yk__same_strides(out, x), layout != GAPS);
                }
                yk_scope_end(inner);
            }
        }
    }
}

static void scalars_choose_dtypes(void **state)
{
    (void)state;
    static const struct {
        yk__unary op;
        yk_dtype in;
        double p0, p1;
        yk_dtype out;
    } cases[] = {
        {YK__ADD_SCALAR, YK_F32, 1.5, 0, YK_F32},  {YK__ADD_SCALAR, YK_F16, 1, 0, YK_F16},
        {YK__ADD_SCALAR, YK_I64, 2, 0, YK_I64},    {YK__ADD_SCALAR, YK_I64, 2.5, 0, YK_F32},
        {YK__ADD_SCALAR, YK_U8, 2, 0, YK_U8},      {YK__ADD_SCALAR, YK_BOOL, 2, 0, YK_I64},
        {YK__ADD_SCALAR, YK_BOOL, 0.5, 0, YK_F32}, {YK__MUL_SCALAR, YK_I32, 3, 0, YK_I32},
        {YK__MUL_SCALAR, YK_I32, 1e30, 0, YK_F32}, {YK__MUL_SCALAR, YK_I32, INFINITY, 0, YK_F32},
        {YK__POW_SCALAR, YK_I64, 2, 0, YK_I64},    {YK__POW_SCALAR, YK_I64, 0.5, 0, YK_F32},
        {YK__POW_SCALAR, YK_F64, 2, 0, YK_F64},    {YK__CLAMP, YK_I32, -1, 1, YK_I32},
        {YK__CLAMP, YK_I32, -INFINITY, 1, YK_I32}, {YK__CLAMP, YK_I32, -0.5, 1, YK_F32},
        {YK__CLAMP, YK_BOOL, 0, INFINITY, YK_I64}, {YK__POW_SCALAR, YK_BOOL, 2, 0, YK_I64},
        {YK__CLAMP, YK_BF16, 0, 1, YK_BF16},       {YK__LOGICAL_NOT, YK_F16, 0, 0, YK_BOOL},
        {YK__LOGICAL_NOT, YK_I64, 0, 0, YK_BOOL},  {YK__IS_FINITE, YK_F64, 0, 0, YK_BOOL},
        {YK__IS_FINITE, YK_I32, 0, 0, YK_BOOL},    {YK__IS_FINITE, YK_F16, 0, 0, YK_BOOL},
        {YK__IS_FINITE, YK_BOOL, 0, 0, YK_BOOL},
    };
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        yk_tensor *x = numbers(cases[k].in, 1, (int64_t[]){9}, C_ORDER, 6);
        yk_tensor *out = own(yk__raw_unary("op", cases[k].op, x, cases[k].p0, cases[k].p1));
        const double *vx = values_of(x), *got = values_of(out);
        if (yk_tensor_dtype(out) != cases[k].out)
            fail_msg("case %d gives %s, expected %s", (int)k, yk_dtype_name(yk_tensor_dtype(out)),
                     yk_dtype_name(cases[k].out));
        for (int i = 0; i < 9; i++) {
            double v = vx[i], p0 = cases[k].p0, p1 = cases[k].p1, expected = 0;
            switch (cases[k].op) {
            case YK__ADD_SCALAR: expected = v + p0; break;
            case YK__MUL_SCALAR: expected = v * p0; break;
            case YK__POW_SCALAR: expected = pow(v, p0); break;
            case YK__CLAMP: expected = v < p0 ? p0 : v > p1 ? p1 : v; break;
            case YK__LOGICAL_NOT: expected = v == 0; break;
            default: expected = 1; break;
            }
            expect_near(got[i], expected, 4 * epsilon(cases[k].out), 0);
        }
    }
    yk_tensor *integers = numbers(YK_I64, 1, (int64_t[]){3}, C_ORDER, 1);
    assert_null(yk__raw_unary("pow", YK__POW_SCALAR, integers, -2, 0));
    expect_error(YK_ERR_DTYPE, "pow: an integer to the power of -2 is no integer");
    assert_null(yk__raw_unary("exp", YK__EXP, NULL, 0, 0));
    assert_null(yk_last_error());
}

static void binary_into_a_tensor(void **state)
{
    (void)state;
    yk_tensor *x = numbers(YK_F32, 2, (int64_t[]){3, 4}, GAPS, 1),
              *row = numbers(YK_F32, 1, (int64_t[]){4}, C_ORDER, 2);
    double before[12];
    memcpy(before, values_of(x), sizeof(before));
    uint32_t version = yk_tensor_version(x);
    expect_ok(yk__raw_binary_into("add_", YK__ADD, x, x, row, 3));
    assert_int_equal(yk_tensor_version(x), version); /* the caller notes the write */
    for (int i = 0; i < 12; i++)
        expect_near(values_of(x)[i], before[i] + 3 * values_of(row)[i % 4], 0, 0);

    static const yk_dtype kinds[] = {YK_F16, YK_BF16, YK_F64, YK_F32};
    for (int k = 0; k < 4; k++) { /* computed in the promoted dtype, kept in its own */
        yk_tensor *y = numbers(kinds[k], 2, (int64_t[]){3, 4}, REVERSED, 5);
        memcpy(before, values_of(y), sizeof(before));
        expect_ok(yk__raw_binary_into("mul_", YK__MUL, y, y, numbers(YK_F32, 2, (int64_t[]){3, 4}, C_ORDER, 7), 1));
        assert_int_equal(yk_tensor_dtype(y), kinds[k]);
        const double *other = values_of(numbers(YK_F32, 2, (int64_t[]){3, 4}, C_ORDER, 7));
        for (int i = 0; i < 12; i++)
            expect_near(values_of(y)[i], before[i] * other[i], 0, 0);
    }
    yk_tensor *integers = numbers(YK_I64, 1, (int64_t[]){4}, C_ORDER, 3);
    assert_int_equal(yk__raw_binary_into("add_", YK__ADD, integers, integers, row, 1), YK_ERR_DTYPE);
    expect_error(YK_ERR_DTYPE, "add_: a float32 result cannot be written into a int64 tensor");
    assert_int_equal(yk__raw_binary_into("add_", YK__ADD, row, row, x, 1), YK_ERR_SHAPE);
    expect_error(YK_ERR_SHAPE, "add_: the result has shape (3, 4) and cannot be written into (4,)");
    yk_tensor *away = own(yk__raw_to(row, test_device(1)));
    assert_int_equal(yk__raw_binary_into("add_", YK__ADD, away, row, row, 1), YK_ERR_DEVICE);
    expect_error(YK_ERR_DEVICE, "add_: the tensors are on two devices");
}

static void where_chooses(void **state)
{
    (void)state;
    for (int a = 0; a < YK__DTYPES; a++) {
        for (int layout = 0; layout < LAYOUTS; layout++) {
            yk_scope inner = yk_scope_begin();
            yk_tensor *condition = numbers(YK_BOOL, 3, (int64_t[]){2, 1, 4}, layout, 1);
            yk_tensor *x = numbers((yk_dtype)a, 2, (int64_t[]){3, 4}, layout, 2);
            yk_tensor *y = numbers(YK_I32, 1, (int64_t[]){1}, C_ORDER, 3);
            yk_tensor *out = own(yk__raw_where(condition, x, y));
            const double *vc = values_of(condition), *vx = values_of(x), *vy = values_of(y), *got = values_of(out);
            assert_int_equal(yk_tensor_dtype(out), promoted[a][YK_I32]);
            assert_int_equal(yk_numel(out), 24);
            for (int i = 0; i < 24; i++)
                expect_near(got[i], vc[i / 12 * 4 + i % 4] != 0 ? vx[i % 12] : vy[0], 0, 0);
            /* The memory order of a dense operand of the whole shape is taken over, whichever operand that is. */
            yk_tensor *mask = numbers(YK_BOOL, 2, (int64_t[]){3, 4}, layout, 4), *model[3] = {x, x, mask};
            yk_tensor *chosen[3] = {own(yk__raw_where(mask, x, y)), own(yk__raw_where(mask, y, x)),
                                    own(yk__raw_where(mask, y, y))};
            for (int k = 0; k < 3; k++)
                assert_int_equal(yk__same_strides(chosen[k], model[k]), layout != GAPS);
            yk_scope_end(inner);
        }
    }
    yk_tensor *x = numbers(YK_F32, 1, (int64_t[]){4}, C_ORDER, 2);
    assert_null(yk__raw_where(x, x, x));
    expect_error(YK_ERR_DTYPE, "where: the condition is float32, expected bool");
    assert_null(yk__raw_where(NULL, x, x));
    assert_null(yk_last_error());
}

static void copies_cast_broadcast_and_cross(void **state)
{
    (void)state;
    for (int a = 0; a < YK__DTYPES; a++) {
        for (int b = 0; b < YK__DTYPES; b++) {
            for (int form = 0; form < 2 * LAYOUTS * LAYOUTS; form++) {
                yk_scope inner = yk_scope_begin();
                yk_dtype from_type = (yk_dtype)a, to_type = (yk_dtype)b;
                if (to_type == YK_U8 && floating(from_type))
                    from_type = YK_U8; /* negative floats have no value in u8 */
                yk_tensor *from = numbers(from_type, 2, (int64_t[]){3, 5}, form % LAYOUTS, 1);
                yk_tensor *to = numbers(to_type, 3, (int64_t[]){2, 3, 5}, form / LAYOUTS % LAYOUTS, 2);
                if (form >= LAYOUTS * LAYOUTS) {
                    yk_tensor *there = own(yk__tensor_new(3, to->shape, NULL, to_type, test_device(1)));
                    if (form % 2)
                        there = own(yk__tensor_new(3, to->shape, (int64_t[]){15, 1, 3}, to_type, test_device(1)));
                    to = there;
                }
                expect_ok(yk__raw_copy(to, from));
                const double *vf = values_of(from), *got = values_of(to);
                for (int i = 0; i < 30; i++)
                    expect_near(got[i], as_dtype(vf[i % 15], to_type), 0, 0);
                yk_scope_end(inner);
            }
        }
    }
    yk_tensor *x = numbers(YK_F32, 2, (int64_t[]){3, 4}, C_ORDER, 2),
              *row = numbers(YK_F32, 1, (int64_t[]){4}, C_ORDER, 2);
    assert_int_equal(yk__raw_copy(row, x), YK_ERR_SHAPE);
    expect_error(YK_ERR_SHAPE, "copy: shape (3, 4) does not broadcast to (4,)");
    /* Floats lose their fraction; 2^53 + 1 goes from i64 to i64 whole. */
    double fractions[] = {-1.75, 1.75, 0.5};
    yk_tensor *f = yk_from_data(fractions, YK_SHAPE(3), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    assert_memory_equal(values_of(own(yk__raw_cast(f, YK_I32))), ((double[]){-1, 1, 0}), 24);
    assert_memory_equal(values_of(own(yk__raw_cast(f, YK_BOOL))), ((double[]){1, 1, 1}), 24);
    int64_t odd = ((int64_t)1 << 53) + 1;
    yk_tensor *large = yk_from_data(&odd, YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    assert_int_equal(yk_item_i64(own(yk__raw_clone(large))), odd);
}

static void what_is_there_is_not_copied(void **state)
{
    (void)state;
    yk_tensor *x = numbers(YK_F32, 2, (int64_t[]){3, 4}, C_ORDER, 2);
    assert_ptr_equal(own(yk__raw_contiguous(x)), x);
    assert_ptr_equal(own(yk__raw_cast(x, YK_F32)), x);
    assert_ptr_equal(own(yk__raw_to(x, test_device(0))), x);
    assert_ptr_not_equal(own(yk__raw_clone(x)), x);
    yk_tensor *turned = numbers(YK_F32, 2, (int64_t[]){3, 4}, REVERSED, 2);
    yk_tensor *copy = own(yk__raw_clone(turned));
    assert_true(yk__same_strides(copy, turned));
    assert_ptr_not_equal(copy->data, turned->data);
    assert_true(yk__same_strides(own(yk__raw_to(turned, test_device(1))), turned));
    assert_true(yk_is_contiguous(own(yk__raw_contiguous(turned))));
    assert_memory_equal(values_of(own(yk__raw_contiguous(turned))), values_of(turned), 12 * sizeof(double));
    assert_true(yk_is_contiguous(own(yk__raw_clone(numbers(YK_F32, 2, (int64_t[]){3, 4}, GAPS, 2)))));
    assert_null(yk__raw_clone(NULL));
    assert_null(yk__raw_cast(NULL, YK_F64));
    assert_null(yk__raw_to(NULL, test_device(0)));
    assert_null(yk__raw_contiguous(NULL));
    assert_null(yk_last_error());
}

/* One reduction by a loop over the reduced elements of each result. */
static double reduce_reference(yk__reduce op, const double *v, int64_t n)
{
    double sum = 0, product = 1, least = INFINITY, most = -INFINITY, squares = 0, var = 0;
    int64_t at_least = 0, at_most = 0;
    bool any = false, all = true;
    for (int64_t i = 0; i < n; i++) {
        sum += v[i], product *= v[i], squares += v[i] * v[i];
        at_most = v[i] > most ? i : at_most, most = v[i] > most ? v[i] : most;
        at_least = v[i] < least ? i : at_least, least = v[i] < least ? v[i] : least;
        any = any || v[i] != 0, all = all && v[i] != 0;
    }
    for (int64_t i = 0; i < n; i++)
        var += (v[i] - sum / (double)n) * (v[i] - sum / (double)n) / (double)(n - 1);
    switch (op) {
    case YK__SUM: return sum;
    case YK__MEAN: return sum / (double)n;
    case YK__PROD: return product;
    case YK__AMAX: return most;
    case YK__AMIN: return least;
    case YK__ANY: return any;
    case YK__ALL: return all;
    case YK__ARGMAX: return (double)at_most;
    case YK__ARGMIN: return (double)at_least;
    case YK__VAR: return n > 1 ? var : (double)NAN;
    case YK__SUM_SQUARES: return squares;
    }
    return 0;
}

static void reductions(void **state)
{
    (void)state;
    static const int64_t shape[3] = {2, 3, 4};
    for (int op = YK__SUM; op <= YK__SUM_SQUARES; op++) {
        for (int t = 0; t < YK__DTYPES; t++) {
            for (uint32_t mask = 0; mask < 8; mask++) {
                bool arg = op == YK__ARGMAX || op == YK__ARGMIN, single = mask && !(mask & (mask - 1));
                bool statistic = op == YK__MEAN || op == YK__VAR || op == YK__SUM_SQUARES;
                if (arg && !single)
                    continue; /* the slot takes one dimension */
                for (int form = 0; form < 2 * LAYOUTS; form++) {
                    yk_scope inner = yk_scope_begin();
                    yk_dtype dtype = (yk_dtype)t;
                    bool keepdim = form >= LAYOUTS;
                    yk_tensor *x = numbers(dtype, 3, shape, form % LAYOUTS, 9);
                    yk_tensor *out = own(yk__raw_reduce("red", (yk__reduce)op, x, mask, keepdim, 1));
                    if (statistic && !floating(dtype)) {
                        assert_null(out);
                        expect_error(YK_ERR_DTYPE, "red: expected a floating tensor, this one is ");
                        yk_scope_end(inner);
                        continue;
                    }
                    yk_dtype expected = op == YK__ANY || op == YK__ALL                          ? YK_BOOL
                                        : arg                                                   ? YK_I64
                                        : (op == YK__SUM || op == YK__PROD) && !floating(dtype) ? YK_I64
                                                                                                : dtype;
                    const double *v = values_of(x), *got = values_of(out);
                    assert_int_equal(yk_tensor_dtype(out), expected);
                    uint32_t every = mask ? mask : 7;
                    assert_int_equal(yk_ndim(out), keepdim ? 3 : 3 - __builtin_popcount(every));
                    int64_t results = 0;
                    for (int64_t i = 0; i < 24; i++) { /* i is the first element of a result */
                        int64_t at[3] = {i / 12, i / 4 % 3, i % 4}, n = 0;
                        if ((every & 1 && at[0]) || (every & 2 && at[1]) || (every & 4 && at[2]))
                            continue;
                        double gathered[24];
                        for (int64_t k = 0; k < 24; k++) {
                            int64_t other[3] = {k / 12, k / 4 % 3, k % 4};
                            bool mine = true;
                            for (int d = 0; d < 3; d++)
                                mine = mine && (every & (1u << d) || other[d] == at[d]);
                            if (mine)
                                gathered[n++] = v[k];
                        }
                        expect_near(got[results], reduce_reference((yk__reduce)op, gathered, n), 4 * epsilon(expected),
                                    epsilon(expected));
                        results++;
                    }
                    assert_int_equal(yk_numel(out), results);
                    yk_scope_end(inner);
                }
            }
        }
    }
}

static void reductions_of_nothing_and_of_scalars(void **state)
{
    (void)state;
    yk_tensor *empty = own(yk__tensor_new(2, (int64_t[]){0, 3}, NULL, YK_F32, test_device(0)));
    assert_true(yk_item(own(yk__raw_reduce("sum", YK__SUM, empty, 0, false, 0))) == 0);
    assert_true(yk_item(own(yk__raw_reduce("prod", YK__PROD, empty, 0, false, 0))) == 1);
    assert_true(isnan(yk_item(own(yk__raw_reduce("mean", YK__MEAN, empty, 0, false, 0)))));
    assert_true(yk_item(own(yk__raw_reduce("any", YK__ANY, empty, 0, false, 0))) == 0);
    assert_true(yk_item(own(yk__raw_reduce("all", YK__ALL, empty, 0, false, 0))) == 1);
    assert_int_equal(yk_numel(own(yk__raw_reduce("sum", YK__SUM, empty, 1, false, 0))), 3);
    assert_int_equal(yk_numel(own(yk__raw_reduce("max", YK__AMAX, empty, 2, false, 0))), 0);
    assert_null(yk__raw_reduce("max", YK__AMAX, empty, 1, false, 0));
    expect_error(YK_ERR_SHAPE, "max: no elements to choose from in shape (0, 3)");
    yk_tensor *scalar = yk_scalar(-4, NULL);
    assert_true(yk_item(own(yk__raw_reduce("sum", YK__SUM, scalar, 0, false, 0))) == -4);
    assert_true(yk_item(own(yk__raw_reduce("min", YK__AMIN, scalar, 0, true, 0))) == -4);
    assert_null(yk__raw_reduce("sum", YK__SUM, NULL, 0, false, 0));
    assert_null(yk_last_error());
}

static void sums_down_to_a_shape(void **state)
{
    (void)state;
    yk_tensor *x = numbers(YK_F64, 3, (int64_t[]){2, 3, 4}, REVERSED, 9);
    const double *v = values_of(x);
    static const struct {
        int ndim;
        int64_t shape[3], period, block; /* element i belongs to (i / block) % period */
    } cases[] = {{1, {4}, 4, 1},       {2, {3, 4}, 12, 1}, {2, {3, 1}, 3, 4}, {3, {2, 1, 1}, 2, 12},
                 {3, {1, 1, 4}, 4, 1}, {0, {0}, 1, 24},    {2, {1, 1}, 1, 24}};
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        yk_tensor *out = own(yk__raw_sum_to(x, cases[k].ndim, cases[k].shape));
        assert_int_equal(yk_ndim(out), cases[k].ndim);
        assert_int_equal(yk_numel(out), cases[k].period);
        for (int64_t r = 0; r < cases[k].period; r++) {
            double sum = 0;
            for (int64_t i = 0; i < 24; i++)
                sum += i / cases[k].block % cases[k].period == r ? v[i] : 0;
            expect_near(values_of(out)[r], sum, 1e-15, 0);
        }
    }
    assert_ptr_equal(own(yk__raw_sum_to(x, 3, x->shape)), x);
    assert_null(yk__raw_sum_to(NULL, 3, x->shape));
}

static void products(void **state)
{
    (void)state;
    static const int64_t sizes[][4] = {{1, 3, 4, 5}, {2, 3, 4, 5}, {3, 1, 7, 1},
                                       {2, 3, 0, 5}, {2, 0, 4, 5}, {1, 33, 40, 17}};
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (int form = 0; form < 16; form++) {
            yk_scope inner = yk_scope_begin();
            int64_t batch = sizes[s][0], m = sizes[s][1], k = sizes[s][2], n = sizes[s][3];
            yk_dtype dtype = form & 1 ? YK_F64 : YK_F32;
            bool shared = form & 2, biased = form & 4;
            yk_tensor *a = numbers(dtype, 3, (int64_t[]){batch, m, k}, form & 8 ? REVERSED : C_ORDER, 1);
            yk_tensor *b = numbers(dtype, 3, (int64_t[]){shared ? 1 : batch, k, n}, form & 8 ? GAPS : C_ORDER, 2);
            yk_tensor *bias = biased ? numbers(dtype, 1, (int64_t[]){n}, GAPS, 3) : NULL;
            yk__view va = yk__view_of(a), vb = yk__view_expanded(b, 3, (int64_t[]){batch, k, n});
            yk_tensor *out = own(yk__raw_gemm(&va, &vb, bias, test_device(0)));
            const double *xa = values_of(a), *xb = values_of(b), *xc = biased ? values_of(bias) : NULL,
                         *got = values_of(out);
            assert_int_equal(yk_numel(out), batch * m * n);
            for (int64_t i = 0; i < batch * m * n; i++) {
                int64_t at = i / (m * n), row = i / n % m, column = i % n;
                double sum = biased ? xc[column] : 0;
                for (int64_t l = 0; l < k; l++)
                    sum += xa[(at * m + row) * k + l] * xb[((shared ? 0 : at) * k + l) * n + column];
                expect_near(got[i], sum, 0, 0); /* small integers: exact */
            }
            yk_scope_end(inner);
        }
    }
}

int main(void)
{
    use_devices(2);
    start_devices();
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_scope, close_scope)
    const struct CMUnitTest tests[] = {
        TEST(binary_of_all_dtypes),
        TEST(binary_of_shapes_and_layouts),
        TEST(binary_refuses),
        TEST(unary_dtypes),
        TEST(scalars_choose_dtypes),
        TEST(binary_into_a_tensor),
        TEST(where_chooses),
        TEST(copies_cast_broadcast_and_cross),
        TEST(what_is_there_is_not_copied),
        TEST(reductions),
        TEST(reductions_of_nothing_and_of_scalars),
        TEST(sums_down_to_a_shape),
        TEST(products),
    };
    return cmocka_run_group_tests_name("tensor/raw", tests, NULL, NULL);
}
