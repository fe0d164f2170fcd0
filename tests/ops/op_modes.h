/*
 * op_modes.h - the ways in which a table of operations is checked, and main: for ops_test.c and its like, which
 * define ROWS, GROUP, LEAST_CHECKED and LEAST_MIXED, and whose golden file GROUP names.
 *
 * A row names a case of the golden file and makes the call; inputs and expected numbers come from there.
 */
#define CALL(name, ...)                                                                                                \
    static yk_tensor *call_##name(yk_tensor *const *x, int n_inputs, void *user)                                       \
    {                                                                                                                  \
        (void)n_inputs, (void)user;                                                                                    \
        return __VA_ARGS__;                                                                                            \
    }
ROWS(CALL)

#define ENTRY(name, ...) {#name, call_##name},
static const struct row {
    const char *name;
    yk_gradcheck_fn call;
} rows[] = {ROWS(ENTRY)};

enum { ROW_COUNT = sizeof(rows) / sizeof(rows[0]) };

/* ---- what PyTorch has ---- */

enum { GOLDEN_INPUTS = 5, GOLDEN_DIMS = 5 };
typedef struct golden_tensor {
    yk_dtype dtype;
    int ndim;
    int64_t shape[GOLDEN_DIMS];
    bool requires_grad;
    int at; /* the first of its numbers in golden_values, C order */
} golden_tensor;
typedef struct golden_case {
    char name[40];
    bool smooth; /* finite differences make sense at these inputs */
    int n_inputs;
    golden_tensor input[GOLDEN_INPUTS], output;
    int gradient;            /* of the output, in golden_values; -1: none */
    int grad[GOLDEN_INPUTS]; /* of the inputs; -1: none */
} golden_case;

static golden_case *golden_cases;
static size_t golden_count;
static const double *golden_values;

static golden_tensor read_golden_tensor(const char **row)
{
    golden_tensor t = {.dtype = golden_dtype(row), .ndim = golden_integer(row)};
    assert_in_range(t.ndim, 0, GOLDEN_DIMS);
    for (int d = 0; d < t.ndim; d++)
        t.shape[d] = golden_integer(row);
    t.requires_grad = golden_integer(row);
    t.at = golden_integer(row);
    return t;
}

static int read_golden_cases(void **state)
{
    (void)state;
    const char *const *lines = golden_rows(GROUP, "cases", &golden_count);
    golden_values = golden_numbers(GROUP, "values", NULL);
    golden_cases = calloc(golden_count, sizeof(*golden_cases));
    assert_non_null(golden_cases);
    for (size_t i = 0; i < golden_count; i++) {
        golden_case *c = &golden_cases[i];
        const char *row = lines[i];
        golden_word(&row, c->name, sizeof(c->name));
        c->smooth = golden_integer(&row);
        c->n_inputs = golden_integer(&row);
        assert_in_range(c->n_inputs, 0, GOLDEN_INPUTS);
        for (int k = 0; k < c->n_inputs; k++)
            c->input[k] = read_golden_tensor(&row);
        c->output = read_golden_tensor(&row);
        c->gradient = golden_integer(&row);
        for (int k = 0; k < c->n_inputs; k++)
            c->grad[k] = golden_integer(&row);
        assert_int_equal(*row, 0);
    }
    return 0;
}

static const golden_case *golden_of(const char *name)
{
    for (size_t i = 0; i < golden_count; i++) {
        if (strcmp(golden_cases[i].name, name) == 0)
            return &golden_cases[i];
    }
    fail_msg("row %s has no case in the golden file", name);
    return NULL;
}

static int64_t count_of(const golden_tensor *g)
{
    int64_t n = 1;
    for (int d = 0; d < g->ndim; d++)
        n *= g->shape[d];
    return n;
}

/* ---- inputs in several forms ---- */

enum layout {
    C_ORDER,
    REVERSED /* dense, first dimension innermost */,
    GAPS /* every third element of a larger block */
};
static const char *const layout_name[] = {"C order", "reversed order", "gaps"};

/* An input of the case; real ones in `dtype`. A leaf that wants a gradient where the case's does and `grads` says so.
 */
static yk_tensor *make_input(const golden_tensor *g, yk_dtype dtype, enum layout layout, yk_device device, bool grads)
{
    dtype = g->dtype == YK_F64 ? dtype : g->dtype;
    int64_t stride[YK_MAX_DIMS], step = layout == GAPS ? 3 : 1, elements = 3 * count_of(g) + 1;
    for (int i = 0; i < g->ndim; i++) {
        int d = layout == REVERSED ? i : g->ndim - 1 - i;
        stride[d] = step;
        step *= g->shape[d] ? g->shape[d] : 1;
    }
    yk_tensor *block = yk__tensor_new(1, &elements, NULL, dtype, device);
    yk_tensor *x = yk__tensor_view(block, g->ndim, g->shape, stride, 0);
    yk_tensor *values = yk__tensor_new(g->ndim, g->shape, NULL, YK_F64, device);
    assert_true(block && x && values);
    expect_ok(yk__raw_fill(block, 77));
    expect_ok(yk_tensor_write(values, golden_values + g->at, sizeof(double) * (size_t)count_of(g)));
    expect_ok(yk__raw_copy(x, values));
    if (grads && g->requires_grad)
        expect_ok(yk_set_requires_grad(x, true));
    yk_tensor_release(block);
    yk_tensor_release(values);
    return yk__scope_own(x);
}

static void make_inputs(const golden_case *c, yk_dtype dtype, enum layout layout, yk_device device, bool grads,
                        yk_tensor *x[GOLDEN_INPUTS])
{
    for (int i = 0; i < c->n_inputs; i++)
        x[i] = make_input(&c->input[i], dtype, layout, device, grads);
}

static yk_tensor *make_gradient(const golden_case *c, const yk_tensor *like)
{
    golden_tensor g = c->output;
    g.at = c->gradient;
    return make_input(&g, yk_tensor_dtype(like), C_ORDER, yk_tensor_device(like), false);
}

/* ---- comparison ---- */

static double *values_of(const yk_tensor *x)
{
    yk_tensor *wide = yk__raw_cast((yk_tensor *)x, YK_F64);
    double *values = calloc((size_t)yk_numel(x) + 1, sizeof(double));
    assert_true(wide && values);
    expect_ok(yk_tensor_read(wide, values, sizeof(double) * (size_t)yk_numel(x)));
    yk_tensor_release(wide);
    return values;
}

static void compare(const char *row, const char *form, const char *what, int number, const double *got,
                    const double *expected, int64_t n, double tolerance)
{
    double scale = 1;
    for (int64_t i = 0; i < n; i++)
        scale = fabs(expected[i]) > scale ? fabs(expected[i]) : scale;
    for (int64_t i = 0; i < n; i++) {
        if (!(fabs(got[i] - expected[i]) <= tolerance * scale))
            fail_msg("%s, %s: %s %d, element %lld is %.17g, expected %.17g", row, form, what, number, (long long)i,
                     got[i], expected[i]);
    }
}

static void compare_tensor(const char *row, const char *form, const char *what, int number, const yk_tensor *got,
                           const golden_tensor *shape, const double *expected, double tolerance)
{
    char text[200], wanted[200];
    if (yk_ndim(got) != shape->ndim || memcmp(yk_sizes(got), shape->shape, sizeof(int64_t) * (size_t)shape->ndim))
        fail_msg("%s, %s: %s %d has shape %s, expected %s", row, form, what, number,
                 yk_shape_format(got, text, sizeof(text)),
                 yk__shape_text(shape->ndim, shape->shape, wanted, sizeof(wanted)));
    double *values = values_of(got);
    compare(row, form, what, number, values, expected, count_of(shape), tolerance);
    free(values);
}

/* ---- the modes ---- */

static void test_every_case_has_a_row(void **state)
{
    (void)state;
    for (size_t i = 0; i < golden_count; i++) {
        int found = 0;
        for (int r = 0; r < ROW_COUNT; r++)
            found += strcmp(rows[r].name, golden_cases[i].name) == 0;
        if (found != 1)
            fail_msg("case %s of the golden file has %d rows", golden_cases[i].name, found);
    }
    assert_int_equal((int)ROW_COUNT, (int)golden_count);
}

/* Result and gradients against PyTorch, in f64. */
static void against_golden(const struct row *row, const golden_case *c, const char *form, enum layout layout,
                           yk_device device)
{
    yk_scope scope = yk_scope_begin();
    yk_tensor *x[GOLDEN_INPUTS] = {NULL};
    make_inputs(c, YK_F64, layout, device, true, x);
    yk_tensor *out = row->call(x, c->n_inputs, NULL);
    if (!out)
        fail_msg("%s, %s: %s", row->name, form, yk_last_error() ? yk_last_error()->message : "NULL without an error");
    assert_true(yk_device_equal(yk_tensor_device(out), device));
    if (yk_tensor_dtype(out) != c->output.dtype)
        fail_msg("%s: result is %s, expected %s", row->name, yk_dtype_name(yk_tensor_dtype(out)),
                 yk_dtype_name(c->output.dtype));
    compare_tensor(row->name, form, "result", 0, out, &c->output, golden_values + c->output.at, 1e-13);
    assert_int_equal(yk_requires_grad(out), c->gradient >= 0);
    if (c->gradient >= 0)
        expect_ok(yk_backward_with(out, YK_OPTIONS(yk_backward_options, .gradient = make_gradient(c, out))));
    for (int i = 0; i < c->n_inputs; i++) {
        if (c->grad[i] < 0) {
            assert_null(yk_grad(x[i]));
        } else if (!yk_grad(x[i])) { /* no gradient at all means zeros */
            for (int64_t k = 0; k < count_of(&c->input[i]); k++) {
                if (golden_values[c->grad[i] + k] != 0)
                    fail_msg("%s, %s: input %d got no gradient", row->name, form, i);
            }
        } else {
            compare_tensor(row->name, form, "gradient of input", i, yk_grad(x[i]), &c->input[i],
                           golden_values + c->grad[i], 1e-12);
        }
    }
    yk_scope_end(scope);
}

static void test_golden(void **state)
{
    (void)state;
    for (int r = 0; r < ROW_COUNT; r++) {
        const golden_case *c = golden_of(rows[r].name);
        for (int layout = C_ORDER; layout <= GAPS; layout++)
            against_golden(&rows[r], c, layout_name[layout], (enum layout)layout, test_device(0));
    }
}

static void test_second_device(void **state)
{
    (void)state;
    yk_device second = test_device(1);
    for (int r = 0; r < ROW_COUNT; r++)
        against_golden(&rows[r], golden_of(rows[r].name), "on the second device", C_ORDER, second);
}

static void test_gradcheck(void **state)
{
    (void)state;
    int checked = 0;
    for (int r = 0; r < ROW_COUNT; r++) {
        const golden_case *c = golden_of(rows[r].name);
        if (!c->smooth || c->gradient < 0 || strcmp(c->name, "cast") == 0) /* f32 inside: differences drown */
            continue;
        for (int k = 0; k < work_size(GAPS + 1, 1); k++) { /* all orders, or another one for each row */
            const int layout = (r + k) % (GAPS + 1);
            yk_scope scope = yk_scope_begin();
            yk_tensor *x[GOLDEN_INPUTS] = {NULL};
            make_inputs(c, YK_F64, (enum layout)layout, test_device(0), true, x);
            if (yk_gradcheck(rows[r].call, x, c->n_inputs, NULL, NULL))
                fail_msg("%s, %s: %s", c->name, layout_name[layout], yk_last_error()->message);
            checked++;
            yk_scope_end(scope);
        }
    }
    assert_true(checked > work_size(3, 1) * LEAST_CHECKED);
}

/* ---- gradients of gradients ---- */

/* The gradients that are recorded are those of the kernels, in any memory order. */
static void test_recorded_against_golden(void **state)
{
    (void)state;
    for (int r = 0; r < ROW_COUNT; r++) {
        const golden_case *c = golden_of(rows[r].name);
        for (int layout = C_ORDER; layout <= GAPS && c->gradient >= 0; layout++) {
            yk_scope scope = yk_scope_begin();
            yk_tensor *x[GOLDEN_INPUTS] = {NULL}, *wanted[GOLDEN_INPUTS], *grads[GOLDEN_INPUTS];
            int of[GOLDEN_INPUTS], count = 0;
            make_inputs(c, YK_F64, (enum layout)layout, test_device(0), true, x);
            for (int i = 0; i < c->n_inputs; i++) {
                if (c->grad[i] >= 0) {
                    of[count] = i;
                    wanted[count++] = x[i];
                }
            }
            yk_tensor *out = rows[r].call(x, c->n_inputs, NULL), *g = out ? make_gradient(c, out) : NULL;
            yk_status status =
                yk_autograd_grad(&out, 1, wanted, count, &g, grads,
                                 YK_OPTIONS(yk_autograd_grad_options, .create_graph = true, .allow_unused = true));
            if (status)
                fail_msg("%s, %s: %s", c->name, layout_name[layout], yk_last_error()->message);
            for (int i = 0; i < count; i++) {
                if (grads[i])
                    compare_tensor(c->name, layout_name[layout], "recorded gradient of input", of[i], grads[i],
                                   &c->input[of[i]], golden_values + c->grad[of[i]], 1e-12);
                for (int64_t k = 0; k < count_of(&c->input[of[i]]) && !grads[i]; k++)
                    assert_true(golden_values[c->grad[of[i]] + k] == 0);
            }
            yk_scope_end(scope);
        }
    }
}

static void test_gradgradcheck(void **state)
{
    (void)state;
    int checked = 0;
    for (int r = 0; r < ROW_COUNT; r++) {
        const golden_case *c = golden_of(rows[r].name);
        if (!c->smooth || c->gradient < 0 || strcmp(c->name, "cast") == 0)
            continue;
        if (checked++ % work_size(1, 4))
            continue;
        yk_scope scope = yk_scope_begin();
        yk_tensor *x[GOLDEN_INPUTS] = {NULL};
        make_inputs(c, YK_F64, (enum layout)(r % 3), test_device(0), true, x);
        if (yk_gradgradcheck(rows[r].call, x, c->n_inputs, NULL, NULL))
            fail_msg("%s, %s: %s", c->name, layout_name[r % 3], yk_last_error()->message);
        yk_scope_end(scope);
    }
    assert_true(checked > LEAST_CHECKED);
}

/* Each input alone wants a gradient: what is saved and computed depends on who does. */
static void test_one_gradient_at_a_time(void **state)
{
    (void)state;
    for (int r = 0; r < ROW_COUNT; r++) {
        const golden_case *c = golden_of(rows[r].name);
        for (int only = 0; only < c->n_inputs; only++) {
            if (c->grad[only] < 0)
                continue;
            yk_scope scope = yk_scope_begin();
            yk_tensor *x[GOLDEN_INPUTS] = {NULL};
            make_inputs(c, YK_F64, C_ORDER, test_device(0), false, x);
            expect_ok(yk_set_requires_grad(x[only], true));
            yk_tensor *out = rows[r].call(x, c->n_inputs, NULL);
            assert_non_null(out);
            expect_ok(yk_backward_with(out, YK_OPTIONS(yk_backward_options, .gradient = make_gradient(c, out))));
            for (int i = 0; i < c->n_inputs; i++)
                assert_true(i == only || !yk_grad(x[i]));
            if (yk_grad(x[only]))
                compare_tensor(c->name, "alone", "gradient of input", only, yk_grad(x[only]), &c->input[only],
                               golden_values + c->grad[only], 1e-12);
            yk_scope_end(scope);
        }
    }
}

/* f32, f16 and bf16 against f64 at the same, rounded, inputs. */
static void against_f64(const struct row *row, const golden_case *c, yk_dtype dtype, double tolerance)
{
    yk_scope scope = yk_scope_begin();
    yk_tensor *x[GOLDEN_INPUTS] = {NULL}, *exact[GOLDEN_INPUTS] = {NULL};
    make_inputs(c, dtype, C_ORDER, test_device(0), true, x);
    for (int i = 0; i < c->n_inputs; i++) {
        exact[i] = c->input[i].dtype == YK_F64 ? yk_detach(yk_cast(x[i], YK_F64)) : x[i];
        if (c->input[i].requires_grad)
            expect_ok(yk_set_requires_grad(exact[i], true));
    }
    /* Statistics and class weights are f32 beside f16 and bf16. */
    bool statistics = strcmp(c->name, "batch_norm_eval") == 0;
    for (int i = statistics ? 3 : c->n_inputs; i < c->n_inputs; i++) {
        if (yk__is_half(dtype))
            x[i] = yk_cast(x[i], YK_F32);
    }
    const char *form = yk_dtype_name(dtype);
    yk_tensor *out = row->call(x, c->n_inputs, NULL), *expected = row->call(exact, c->n_inputs, NULL);
    if (!out || !expected)
        fail_msg("%s, %s: %s", c->name, form, yk_last_error() ? yk_last_error()->message : "NULL without an error");
    yk_dtype result = c->output.dtype == YK_F64 ? dtype : c->output.dtype;
    if (yk_tensor_dtype(out) != result)
        fail_msg("%s, %s: result is %s", c->name, form, yk_dtype_name(yk_tensor_dtype(out)));
    double *numbers = values_of(expected);
    compare_tensor(c->name, form, "result", 0, out, &c->output, numbers, tolerance);
    free(numbers);
    if (c->gradient >= 0) {
        yk_tensor *g = make_gradient(c, out), *exact_g = yk_cast(g, YK_F64);
        expect_ok(yk_backward_with(out, YK_OPTIONS(yk_backward_options, .gradient = g)));
        expect_ok(yk_backward_with(expected, YK_OPTIONS(yk_backward_options, .gradient = exact_g)));
    }
    for (int i = 0; i < c->n_inputs; i++) {
        if (c->grad[i] < 0)
            continue;
        assert_int_equal(!yk_grad(x[i]), !yk_grad(exact[i]));
        if (!yk_grad(x[i]))
            continue;
        assert_int_equal(yk_tensor_dtype(yk_grad(x[i])), dtype);
        numbers = values_of(yk_grad(exact[i]));
        compare_tensor(c->name, form, "gradient of input", i, yk_grad(x[i]), &c->input[i], numbers, 4 * tolerance);
        free(numbers);
    }
    yk_scope_end(scope);
}

static void test_other_dtypes(void **state)
{
    (void)state;
    for (int r = 0; r < ROW_COUNT; r++) {
        const golden_case *c = golden_of(rows[r].name);
        against_f64(&rows[r], c, YK_F32, 4e-7);
        against_f64(&rows[r], c, YK_F16, 2e-3);
        against_f64(&rows[r], c, YK_BF16, 1.6e-2);
    }
}

/* ---- what holds for every operation ---- */

static void test_null_is_passed_through(void **state)
{
    (void)state;
    for (int r = 0; r < ROW_COUNT; r++) {
        const golden_case *c = golden_of(rows[r].name);
        yk_scope scope = yk_scope_begin();
        yk_tensor *x[GOLDEN_INPUTS] = {NULL};
        make_inputs(c, YK_F64, C_ORDER, test_device(0), false, x);
        x[0] = NULL;
        yk_set_error(YK_ERR_IO, "the first error");
        assert_null(rows[r].call(x, c->n_inputs, NULL));
        expect_error(YK_ERR_IO, "the first error");
        yk_scope_end(scope);
    }
}

static void test_no_scope(void **state)
{
    (void)state;
    for (int r = 0; r < ROW_COUNT; r++) {
        const golden_case *c = golden_of(rows[r].name);
        yk_tensor *x[GOLDEN_INPUTS] = {NULL};
        yk_scope scope = yk_scope_begin();
        make_inputs(c, YK_F64, C_ORDER, test_device(0), false, x);
        for (int i = 0; i < c->n_inputs; i++)
            yk_tensor_retain(x[i]);
        yk_scope_end(scope);
        if (rows[r].call(x, c->n_inputs, NULL))
            fail_msg("%s works without a scope", c->name);
        expect_error(YK_ERR_STATE, "no scope is open on this thread");
        for (int i = 0; i < c->n_inputs; i++)
            yk_tensor_release(x[i]);
    }
}

static void test_no_grad_records_nothing(void **state)
{
    (void)state;
    for (int r = 0; r < ROW_COUNT; r++) {
        const golden_case *c = golden_of(rows[r].name);
        yk_scope scope = yk_scope_begin();
        yk_tensor *x[GOLDEN_INPUTS] = {NULL};
        make_inputs(c, YK_F64, C_ORDER, test_device(0), true, x);
        bool previous = yk_no_grad_begin();
        yk_tensor *out = rows[r].call(x, c->n_inputs, NULL);
        yk_no_grad_end(previous);
        assert_non_null(out);
        assert_true(out == x[0] || !yk_requires_grad(out));
        compare_tensor(c->name, "no grad", "result", 0, out, &c->output, golden_values + c->output.at, 1e-13);
        yk_scope_end(scope);
    }
}

/* copy_ is the one that crosses devices. */
static void test_mixed_devices(void **state)
{
    (void)state;
    int mixed = 0;
    for (int r = 0; r < ROW_COUNT; r++) {
        const golden_case *c = golden_of(rows[r].name);
        for (int moved = 1; moved < c->n_inputs; moved++) {
            if (strcmp(c->name, "copy_in_place") == 0)
                continue;
            yk_scope scope = yk_scope_begin();
            yk_tensor *x[GOLDEN_INPUTS] = {NULL};
            make_inputs(c, YK_F64, C_ORDER, test_device(0), false, x);
            x[moved] = yk_to(x[moved], test_device(1));
            yk_tensor *out = rows[r].call(x, c->n_inputs, NULL);
            if (out)
                fail_msg("%s takes input %d on another device", c->name, moved);
            const char *message = yk_last_error() ? yk_last_error()->message : "no error";
            if (!strstr(message, device_text("cpu:0")) || !strstr(message, device_text("cpu:1")))
                fail_msg("%s with input %d on another device says '%s'", c->name, moved, message);
            yk_clear_error();
            mixed++;
            yk_scope_end(scope);
        }
    }
    assert_true(mixed > LEAST_MIXED);
}

/* Everything that a forward and a backward take is given back. */
static void test_memory_comes_back(void **state)
{
    (void)state;
    yk_memory_info before, after;
    for (int r = 0; r < ROW_COUNT; r++) {
        const golden_case *c = golden_of(rows[r].name);
        for (int device = 0; device < 2; device++) {
            yk_device d = test_device(device);
            expect_ok(yk_device_memory(d, &before));
            against_golden(&rows[r], c, "memory", REVERSED, d);
            expect_ok(yk_device_memory(d, &after));
            if (after.allocated != before.allocated)
                fail_msg("%s leaves %zd bytes on device %d", c->name, (ptrdiff_t)(after.allocated - before.allocated),
                         device);
        }
    }
}

int main(void)
{
    use_devices(2);
    start_devices();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_case_has_a_row),    cmocka_unit_test(test_golden),
        cmocka_unit_test(test_second_device),           cmocka_unit_test(test_gradcheck),
        cmocka_unit_test(test_recorded_against_golden), cmocka_unit_test(test_gradgradcheck),
        cmocka_unit_test(test_one_gradient_at_a_time),  cmocka_unit_test(test_other_dtypes),
        cmocka_unit_test(test_null_is_passed_through),  cmocka_unit_test(test_no_scope),
        cmocka_unit_test(test_no_grad_records_nothing), cmocka_unit_test(test_mixed_devices),
        cmocka_unit_test(test_memory_comes_back),
    };
    return cmocka_run_group_tests_name(GROUP, tests, read_golden_cases, NULL);
}
