/*
 * index_test.c - x[items] against PyTorch: generated cases (golden/make_index.py) read, written and accumulated, with
 * gradients; what the tests by numbers there cannot say: views, dtypes, refusals, threads.
 */
#include "tests/support/expect.h"
#include "tests/support/golden.h"
#include "tests/support/test_device.h"

#include "tensor/tensor.h"
#include <yoke/ops.h>

enum { MAX_ITEMS = 32, MAX_NUMBERS = 4000 };

/* ---- a case ---- */

/* x holds 0, 1, 2, ...; so the elements of x[items] say which element of x each of them is. */
typedef struct index_case {
    int ndim, count, out_ndim, value_ndim;
    int64_t shape[YK_MAX_DIMS], out_shape[YK_MAX_DIMS], value_shape[YK_MAX_DIMS];
    yk_index_item items[MAX_ITEMS];
    int64_t out[1000], out_count;
    bool repeats; /* an element of x stands in x[items] twice: which value is written last is nobody's promise */
} index_case;

static int read_sizes(const char *text, int64_t *shape)
{
    int n = 0;
    if (*text == '-')
        return 0;
    for (char *end; n < YK_MAX_DIMS; text = end + 1) {
        shape[n++] = strtoll(text, &end, 10);
        if (*end != 'x')
            break;
    }
    return n;
}

static yk_tensor *read_tensor(char *text)
{
    int64_t shape[YK_MAX_DIMS], values[1000], count = 0;
    bool mask = *text == 'm';
    char *numbers = strchr(text, '=') + 1;
    int ndim = read_sizes(text + 1, shape);
    uint8_t bits[1000];
    if (mask) {
        for (; numbers[count]; count++)
            bits[count] = numbers[count] == '1';
        return yk_from_data(bits, ndim, shape, YK_OPTIONS(yk_tensor_options, .dtype = YK_BOOL));
    }
    while (*numbers) {
        values[count++] = strtoll(numbers, &numbers, 10);
        numbers += *numbers == ',';
    }
    return yk_from_data(values, ndim, shape, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
}

static yk_index_item read_item(char *text)
{
    char *at = text + 1;
    switch (*text) {
    case 'i': return yk_at(strtoll(at, NULL, 10));
    case 'n': return yk_newaxis();
    case 'e': return yk_ellipsis();
    case 's': {
        int64_t start = strtoll(at, &at, 10), stop = at[1] == 'e' ? YK_END : strtoll(at + 1, &at, 10);
        at = strrchr(at, ':');
        return yk_range_step(start, stop, strtoll(at + 1, NULL, 10));
    }
    default: return yk_by(read_tensor(text));
    }
}

static void read_case(const char *line, index_case *c)
{
    char copy[6000], *fields[5], *state, *p = copy;
    assert_true(strlen(line) < sizeof(copy));
    strcpy(copy, line);
    for (int i = 0; i < 5; i++) {
        fields[i] = p;
        p = strchr(p, '|');
        assert_true((p != NULL) == (i < 4));
        if (p)
            *p++ = 0;
    }
    memset(c, 0, sizeof(*c));
    c->ndim = read_sizes(fields[0], c->shape);
    for (char *word = strtok_r(fields[1], " ", &state); word; word = strtok_r(NULL, " ", &state))
        c->items[c->count++] = read_item(word);
    c->value_ndim = read_sizes(fields[2], c->value_shape);
    c->out_ndim = read_sizes(fields[3], c->out_shape);
    if (strcmp(fields[4], "none") != 0)
        for (const char *row = fields[4]; *row;)
            c->out[c->out_count++] = golden_integer(&row);
    for (int64_t i = 0; i < c->out_count; i++)
        for (int64_t k = 0; k < i; k++)
            c->repeats |= c->out[i] == c->out[k];
}

/* ---- what follows from x[items] ---- */

static int64_t elements(int ndim, const int64_t *shape)
{
    int64_t count = 1;
    for (int d = 0; d < ndim; d++)
        count *= shape[d];
    return count;
}

/* Element i of a gradient that comes in. */
static double weight_of(int64_t i)
{
    return 1 + (double)(i % 7);
}

/* The element of the value that broadcasts to element i of x[items]. */
static int64_t value_of(const index_case *c, int64_t i)
{
    int64_t at = 0, stride = 1;
    for (int d = c->out_ndim - 1, v = c->value_ndim - 1; d >= 0 && v >= 0; d--, v--) {
        at += c->value_shape[v] > 1 ? i % c->out_shape[d] * stride : 0;
        i /= c->out_shape[d];
        stride *= c->value_shape[v];
    }
    return at;
}

typedef struct index_expected {
    double grad[MAX_NUMBERS];                         /* of x[items] */
    double put[MAX_NUMBERS], put_grad[MAX_NUMBERS];   /* x[items] = value, the gradient of what was there */
    double sum[MAX_NUMBERS], value_grad[MAX_NUMBERS]; /* x[items] += value; the gradient of the value, in both */
} index_expected;

static void expect_by_definition(const index_case *c, index_expected *e)
{
    memset(e, 0, sizeof(*e));
    for (int64_t i = 0; i < elements(c->ndim, c->shape); i++) {
        e->put[i] = e->sum[i] = (double)i;
        e->put_grad[i] = weight_of(i);
    }
    for (int64_t i = 0; i < c->out_count; i++) {
        int64_t at = c->out[i], from = value_of(c, i);
        e->grad[at] += weight_of(i);
        e->put[at] = -1 - (double)from;
        e->put_grad[at] = 0;
        e->sum[at] += -1 - (double)from;
        e->value_grad[from] += weight_of(at);
    }
}

static void expect_values(const char *line, const char *what, const yk_tensor *x, const double *expected)
{
    double values[MAX_NUMBERS];
    char shape[200];
    if (!x)
        fail_msg("%s: no %s: %s", line, what, yk_last_error() ? yk_last_error()->message : "no record");
    expect_ok(yk_tensor_read(x, values, (size_t)yk_numel(x) * sizeof(double)));
    for (int64_t i = 0; i < yk_numel(x); i++)
        if (values[i] != expected[i])
            fail_msg("%s: element %lld of the %s, of shape %s, is %g, expected %g", line, (long long)i, what,
                     yk_shape_format(x, shape, sizeof(shape)), values[i], expected[i]);
}

enum layout { C_ORDER, REVERSED, GAPS };

/* first + i step, or 1 + i % 7 without a step, in C order, laid out otherwise. */
static yk_tensor *numbers(int ndim, const int64_t *shape, double first, double step, enum layout layout)
{
    int64_t stride[YK_MAX_DIMS], count = elements(ndim, shape), width = layout == GAPS ? 2 : 1, at = width;
    for (int i = 0; i < ndim; i++) {
        int d = layout == REVERSED ? i : ndim - 1 - i;
        stride[d] = at;
        at *= shape[d] ? shape[d] : 1;
    }
    double values[MAX_NUMBERS];
    for (int64_t i = 0; i < count; i++)
        values[i] = step != 0 ? first + (double)i * step : weight_of(i);
    yk_tensor *block = yk_zeros(1, (int64_t[]){count * width + 1}, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    yk_tensor *x = yk__scope_own(yk__tensor_view(block, ndim, shape, stride, 0));
    yk_tensor *plain = yk_from_data(values, ndim, shape, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    expect_ok(yk__raw_copy(x, plain));
    return x;
}

static yk_tensor *leaf(yk_tensor *x)
{
    expect_ok(yk_set_requires_grad(x, true));
    return x;
}

static void backward(yk_tensor *y)
{
    yk_tensor *g = numbers(yk_ndim(y), yk_sizes(y), 1, 0, C_ORDER);
    expect_ok(yk_backward_with(y, YK_OPTIONS(yk_backward_options, .gradient = g)));
}

static void check_case(const char *line, enum layout layout)
{
    index_case c;
    index_expected expected;
    read_case(line, &c);
    expect_by_definition(&c, &expected);
    bool advanced = false;
    for (int i = 0; i < c.count; i++)
        advanced =
            advanced || (c.items[i].kind == YK_INDEX_TENSOR && yk_ndim(c.items[i].tensor) > 0); /* else an integer */
    yk_tensor *x = leaf(numbers(c.ndim, c.shape, 0, 1, layout));
    yk_tensor *out = yk_index(x, c.items, c.count);
    if (!out)
        fail_msg("%s: no result: %s", line, yk_last_error() ? yk_last_error()->message : "no record");
    double read[1000];
    for (int64_t i = 0; i < c.out_count; i++)
        read[i] = (double)c.out[i];
    assert_int_equal(yk_ndim(out), c.out_ndim);
    assert_memory_equal(yk_sizes(out), c.out_shape, sizeof(int64_t) * (size_t)c.out_ndim);
    assert_int_equal(yk_numel(out), c.out_count);
    expect_values(line, "result", out, read);
    assert_true(advanced == (out->storage != x->storage));
    backward(out);
    expect_values(line, "gradient", yk_grad(x), expected.grad);
    for (int accumulate = c.repeats; accumulate < 2; accumulate++) {
        x = leaf(numbers(c.ndim, c.shape, 0, 1, layout));
        yk_tensor *y = yk_add_scalar(x, 0), *value = leaf(numbers(c.value_ndim, c.value_shape, -1, -1, layout));
        if (yk_index_put_(y, c.items, c.count, value, accumulate) != y)
            fail_msg("%s: put: %s", line, yk_last_error() ? yk_last_error()->message : "another tensor came back");
        expect_values(line, accumulate ? "sum" : "tensor that was put into", y,
                      accumulate ? expected.sum : expected.put);
        backward(y);
        if (!accumulate)
            expect_values(line, "gradient of what was put into", yk_grad(x) ? yk_grad(x) : yk_zeros_like(x),
                          expected.put_grad);
        else
            for (int64_t i = 0; i < yk_numel(x); i++)
                assert_true(((const double *)host_data(yk_contiguous(yk_grad(x))))[i] == weight_of(i));
        yk_tensor *grad = yk_grad(value) ? yk_grad(value) : yk_zeros_like(value);
        expect_values(line, "gradient of the value", grad, expected.value_grad);
    }
}

static void as_pytorch_indexes(void **state)
{
    (void)state;
    size_t count;
    const char *const *cases = golden_rows("index", "cases", &count);
    assert_int_equal(count, 2000);
    for (size_t i = 0; i < count; i++) {
        yk_scope scope = yk_scope_begin();
        check_case(cases[i], C_ORDER);
        yk_scope_end(scope);
    }
    assert_null(yk_last_error());
}

static void strides_do_not_matter(void **state)
{
    (void)state;
    size_t count;
    const char *const *cases = golden_rows("index", "cases", &count);
    for (size_t i = 0; i < count; i += 2) {
        yk_scope scope = yk_scope_begin();
        check_case(cases[i], i % 4 ? REVERSED : GAPS);
        yk_scope_end(scope);
    }
    assert_null(yk_last_error());
}

/* ---- by hand ---- */

static yk_tensor *integers(int ndim, const int64_t *shape, const int64_t *values)
{
    return yk_from_data(values, ndim, shape, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
}

static yk_tensor *counted(int64_t rows, int64_t columns, yk_dtype dtype)
{
    yk_tensor_options options = *YK_OPTIONS(yk_tensor_options, .dtype = dtype);
    return yk_reshape(yk_arange(0, (double)(rows * columns), 1, &options), YK_SHAPE(rows, columns));
}

static void expect_numbers(const yk_tensor *x, int count, const double *expected)
{
    assert_non_null(x);
    assert_int_equal(yk_numel(x), count);
    yk_tensor *flat = yk_cast(yk_reshape((yk_tensor *)x, YK_SHAPE(-1)), YK_F64);
    for (int i = 0; i < count; i++)
        expect_near(yk_get(flat, (int64_t[]){i}), expected[i], 0, 0);
}
#define NUMBERS(...)                                                                                                   \
    (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), (double[])                                                \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

/* The document's examples: x[[0, 1, 2], [0, 1, 0]] and index arrays of two dimensions. */
static void document_examples(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = counted(4, 3, YK_I64);
    yk_tensor *rows = integers(YK_SHAPE(3), (int64_t[]){0, 1, 2}),
              *columns = integers(YK_SHAPE(3), (int64_t[]){0, 1, 0});
    expect_numbers(yk_index(x, YK_INDEX(yk_by(rows), yk_by(columns))), NUMBERS(0, 4, 6));
    rows = integers(YK_SHAPE(2, 2), (int64_t[]){0, 0, 3, 3});
    columns = integers(YK_SHAPE(2, 2), (int64_t[]){0, 2, 0, 2});
    yk_tensor *corners = yk_index(x, YK_INDEX(yk_by(rows), yk_by(columns)));
    expect_numbers(corners, NUMBERS(0, 2, 9, 11));
    assert_int_equal(yk_ndim(corners), 2);
    expect_numbers(yk_index(x, NULL, 0), NUMBERS(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

static void masks_without_dimensions(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor_options boolean = *YK_OPTIONS(yk_tensor_options, .dtype = YK_BOOL);
    yk_tensor *x = counted(2, 3, YK_F32), *yes = yk_scalar(1, &boolean), *no = yk_scalar(0, &boolean);
    yk_tensor *all = yk_index(x, YK_INDEX(yk_by(yes))), *none = yk_index(x, YK_INDEX(yk_by(no)));
    assert_int_equal(yk_ndim(all), 3);
    expect_numbers(all, NUMBERS(0, 1, 2, 3, 4, 5));
    assert_int_equal(yk_size(none, 0), 0);
    assert_int_equal(yk_size(none, 2), 3);
    expect_numbers(yk_index(yk_scalar(5, NULL), YK_INDEX(yk_by(yes))), NUMBERS(5));
    /* An integer tensor without dimensions is an integer: a view. */
    yk_tensor *last = yk_index(x, YK_INDEX(yk_by(yk_cast(yk_scalar(-1, NULL), YK_I64))));
    expect_numbers(last, NUMBERS(3, 4, 5));
    assert_true(last->storage == x->storage);
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

static void every_dtype(void **state)
{
    (void)state;
    static const yk_dtype dtypes[] = {YK_F32, YK_F64, YK_F16, YK_BF16, YK_I64, YK_I32, YK_U8, YK_BOOL};
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        yk_scope scope = yk_scope_begin();
        yk_tensor_options options = *YK_OPTIONS(yk_tensor_options, .dtype = dtypes[i]);
        bool boolean = dtypes[i] == YK_BOOL;
        yk_tensor *x = yk_cast(counted(3, 2, YK_F32), dtypes[i]);
        yk_tensor *rows = yk_cast(integers(YK_SHAPE(3), (int64_t[]){2, -3, 2}), i % 2 ? YK_I32 : YK_I64);
        static const double read[2][6] = {{4, 5, 0, 1, 4, 5}, {1, 1, 0, 1, 1, 1}};
        static const double added[2][6] = {{1, 1, 0, 0, 2, 2}, {1, 1, 0, 0, 1, 1}};
        static const double put[2][6] = {{0, 1, 2, 3, 4, 1}, {0, 1, 1, 1, 1, 1}};
        expect_numbers(yk_index(x, YK_INDEX(yk_by(rows))), 6, read[boolean]);
        yk_tensor *sum = yk_zeros(YK_SHAPE(3, 2), &options), *ones = yk_ones(YK_SHAPE(2), &options);
        assert_ptr_equal(yk_index_put_(sum, YK_INDEX(yk_by(rows)), ones, true), sum);
        expect_numbers(sum, 6, added[boolean]);
        assert_ptr_equal(yk_index_put_(x, YK_INDEX(yk_by(rows), yk_at(1)), yk_scalar(1, NULL), false), x);
        expect_numbers(x, 6, put[boolean]);
        yk_scope_end(scope);
        assert_null(yk_last_error());
    }
}

/* In f16 a sum of many small parts is rounded once, not at each step. */
static void halves_are_summed_wide(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor_options half = *YK_OPTIONS(yk_tensor_options, .dtype = YK_F16),
                      whole = *YK_OPTIONS(yk_tensor_options, .dtype = YK_I64);
    yk_tensor *x = yk_full(YK_SHAPE(1), 2048, &half), *zeros = yk_zeros(YK_SHAPE(100), &whole);
    yk_index_put_(x, YK_INDEX(yk_by(zeros)), yk_ones(YK_SCALAR, &half), true);
    expect_numbers(x, NUMBERS(2148));
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

static void writes_read_what_was_there(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor_options whole = *YK_OPTIONS(yk_tensor_options, .dtype = YK_I64);
    yk_tensor *x = yk_arange(0, 4, 1, &whole), *reversed = integers(YK_SHAPE(4), (int64_t[]){3, 2, 1, 0});
    yk_index_put_(x, YK_INDEX(yk_by(reversed)), x, false);
    expect_numbers(x, NUMBERS(3, 2, 1, 0));
    yk_index_put_(x, YK_INDEX(yk_by(x)), yk_arange(10, 14, 1, &whole), false); /* x is the index, too */
    expect_numbers(x, NUMBERS(13, 12, 11, 10));
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

static yk_tensor *bits(int ndim, const int64_t *shape, const char *text)
{
    uint8_t values[32];
    for (int i = 0; text[i]; i++)
        values[i] = text[i] == '1';
    return yk_from_data(values, ndim, shape, YK_OPTIONS(yk_tensor_options, .dtype = YK_BOOL));
}

/* x[items with one mask] = one value takes another path than several values do: the same result and gradients. */
static void one_value_by_a_mask(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    const yk_tensor_options wide = *YK_OPTIONS(yk_tensor_options, .dtype = YK_F64);
    yk_tensor *whole = bits(YK_SHAPE(2, 3, 4), "110100000111010101100011"), *plane = bits(YK_SHAPE(2, 3), "101001");
    yk_tensor *inner = bits(YK_SHAPE(3, 4), "011010011100"), *row = bits(YK_SHAPE(4), "0110"),
              *none = bits(YK_SHAPE(2), "00");
    const yk_index_item items[][4] = {{yk_by(whole)},
                                      {yk_by(plane)},
                                      {yk_every(), yk_by(inner)},
                                      {yk_ellipsis(), yk_by(row)},
                                      {yk_at(1), yk_by(yk_transpose(inner, 0, 1))},
                                      {yk_range(1, YK_END), yk_newaxis(), yk_range(0, 2), yk_by(row)},
                                      {yk_by(none)}};
    const int counts[] = {1, 1, 2, 2, 2, 4, 1};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        bool turned = i == 4;
        yk_tensor *leaves[2], *results[2];
        for (int many = 0; many < 2; many++) {
            yk_tensor *x = leaves[many] = leaf(yk_reshape(yk_arange(0, 24, 1, &wide), YK_SHAPE(2, 3, 4)));
            yk_tensor *y = yk_mul_scalar(x, 2), *target = turned ? yk_transpose(y, 1, 2) : y;
            yk_tensor *region = yk_index(yk_detach(target), items[i], counts[i]);
            yk_tensor *value =
                many ? yk_full(yk_ndim(region), yk_sizes(region), -3, &wide) : yk_full(YK_SHAPE(1, 1), -3, &wide);
            assert_ptr_equal(yk_index_put_(target, items[i], counts[i], value, false), target);
            results[many] = y;
            expect_ok(yk_backward(yk_sum(yk_mul(y, y))));
        }
        assert_int_equal(yk_item_i64(yk_all(yk_eq(results[0], results[1]))), 1);
        assert_int_equal(yk_item_i64(yk_all(yk_eq(yk_grad(leaves[0]), yk_grad(leaves[1])))), 1);
    }
    /* A value that requires a gradient gets it; one of another dtype is cast where it has no dimensions. */
    yk_tensor *x = yk_zeros(YK_SHAPE(2, 3), &wide), *v = leaf(yk_full(YK_SCALAR, 4, &wide));
    yk_index_put_(x, YK_INDEX(yk_by(plane)), v, false);
    expect_numbers(x, NUMBERS(4, 0, 4, 0, 0, 4));
    expect_ok(yk_backward(yk_sum(x)));
    expect_numbers(yk_grad(v), NUMBERS(3));
    yk_tensor *whole_numbers = yk_zeros(YK_SHAPE(2, 3), YK_OPTIONS(yk_tensor_options, .dtype = YK_I32));
    yk_index_put_(whole_numbers, YK_INDEX(yk_by(plane)), yk_scalar(7, NULL), false);
    expect_numbers(whole_numbers, NUMBERS(7, 0, 7, 0, 0, 7));
    yk_tensor *made = yk_index_put_(yk_mul_scalar(leaf(yk_ones(YK_SHAPE(2, 3), NULL)), 1), YK_INDEX(yk_by(plane)),
                                    yk_scalar(0, NULL), false);
    assert_string_equal(yk_grad_fn_name(made), "index_put_");
    /* Mask and value are read before they are written. */
    yk_tensor *self = bits(YK_SHAPE(4), "0110"), *first = yk_arange(1, 5, 1, &wide);
    yk_index_put_(self, YK_INDEX(yk_by(self)), yk_select(self, 0, 0), false);
    expect_numbers(self, NUMBERS(0, 0, 0, 0));
    yk_index_put_(first, YK_INDEX(yk_by(bits(YK_SHAPE(4), "1101"))), yk_select(first, 0, 1), false);
    expect_numbers(first, NUMBERS(2, 2, 3, 2));
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

static void history_is_kept(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = counted(3, 2, YK_F32), *rows = integers(YK_SHAPE(2), (int64_t[]){0, 2});
    leaf(x);
    assert_null(yk_index_put_(x, YK_INDEX(yk_by(rows)), yk_scalar(1, NULL), false));
    expect_error(YK_ERR_STATE, "index_put_");
    assert_null(yk_index_put_(x, YK_INDEX(yk_at(0)), yk_scalar(1, NULL), false));
    expect_error(YK_ERR_STATE, "index_put_: a view of a leaf that requires a gradient cannot be changed in place");
    assert_null(yk_index_put_(x, YK_INDEX(yk_by(yk_gt(x, x))), yk_scalar(1, NULL), false));
    expect_error(YK_ERR_STATE, "index_put_: a leaf that requires a gradient cannot be changed in place");
    bool before = yk_no_grad_begin();
    assert_ptr_equal(yk_index_put_(x, YK_INDEX(yk_by(rows)), yk_scalar(1, NULL), false), x);
    yk_no_grad_end(before);
    assert_false(yk_requires_grad(rows));
    /* An index that changes between forward and backward is noticed. */
    yk_tensor *out = yk_sum(yk_index(x, YK_INDEX(yk_by(rows))));
    yk_fill_(rows, 1);
    assert_int_equal(yk_backward(out), YK_ERR_STATE);
    expect_error(YK_ERR_STATE,
                 "index: a tensor of shape (2,) that its gradient needs has been modified by an inplace operation");
    yk_scope_end(scope);
}

/* A mask of two dimensions whose inner one is expanded: the outer one has the stride of one element, too. */
static void masks_of_expanded_dimensions(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *mask = yk_cast(integers(YK_SHAPE(6), (int64_t[]){1, 1, 0, 0, 1, 1}), YK_BOOL);
    yk_tensor *column = yk_expand(counted(3, 1, YK_F32), YK_SHAPE(3, 2)), *line = yk_slice(mask, 0, 0, 2, 1);
    expect_numbers(yk_index(column, YK_INDEX(yk_by(yk_reshape(mask, YK_SHAPE(3, 2))))), NUMBERS(0, 0, 2, 2));
    expect_numbers(yk_masked_select(column, line), NUMBERS(0, 0, 1, 1, 2, 2));
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

/* A mask of two dimensions counts positions in the order of what is written; the gradient comes in another one. */
static void gradients_in_another_order(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *mask = yk_cast(integers(YK_SHAPE(6), (int64_t[]){1, 1, 0, 0, 1, 1}), YK_BOOL);
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        yk_tensor *x = leaf(counted(3, 2, YK_F32)), *value = leaf(yk_arange(10, 14, 1, NULL));
        yk_tensor *y = yk_add_scalar(x, 0), *gradient = yk_transpose(counted(2, 3, YK_F32), 0, 1);
        yk_index_item item = yk_by(yk_reshape(mask, YK_SHAPE(3, 2)));
        assert_ptr_equal(yk_index_put_(y, &item, 1, value, accumulate), y);
        expect_ok(yk_backward_with(y, YK_OPTIONS(yk_backward_options, .gradient = gradient)));
        expect_numbers(yk_grad(value), NUMBERS(0, 3, 2, 5));
        if (accumulate)
            expect_numbers(yk_grad(x), NUMBERS(0, 3, 1, 4, 2, 5));
        else
            expect_numbers(yk_grad(x), NUMBERS(0, 0, 1, 4, 0, 0));
    }
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

/* Results without elements: what PyTorch 2.15 takes and refuses, where no element is read. */
static void nothing_to_read(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    const yk_tensor_options i64 = *YK_OPTIONS(yk_tensor_options, .dtype = YK_I64);
    yk_tensor *rows = yk_zeros(YK_SHAPE(3, 0), NULL), *columns = yk_zeros(YK_SHAPE(0, 4), NULL);
    yk_tensor *both = yk_zeros(YK_SHAPE(0, 0), NULL), *x = yk_zeros(YK_SHAPE(3, 4), NULL);
    yk_tensor *five = yk_full(YK_SHAPE(1), 5, &i64), *zero = yk_zeros(YK_SHAPE(1), &i64);
    yk_tensor *none = yk_zeros(YK_SHAPE(0), &i64), *stack = yk_zeros(YK_SHAPE(0, 1), &i64);
    yk_tensor *value = yk_zeros(YK_SHAPE(1, 0), NULL);
    assert_int_equal(yk_size(yk_index(rows, YK_INDEX(yk_by(five))), 0), 1);
    assert_int_equal(yk_size(yk_index(x, YK_INDEX(yk_by(five), yk_by(none))), 0), 0);
    assert_int_equal(yk_size(yk_index(x, YK_INDEX(yk_by(stack), yk_by(five))), 1), 1);
    assert_int_equal(yk_size(yk_index(columns, YK_INDEX(yk_by(none))), 1), 4);
    assert_int_equal(yk_size(yk_index(columns, YK_INDEX(yk_by(stack), yk_by(zero))), 1), 1);
    assert_int_equal(yk_ndim(yk_index(both, YK_INDEX(yk_by(none), yk_by(five)))), 1);
    assert_non_null(yk_index_put_(rows, YK_INDEX(yk_by(five)), value, false));
    assert_non_null(yk_index_put_(rows, YK_INDEX(yk_by(five)), value, true));
    assert_non_null(yk_index_put_(x, YK_INDEX(yk_by(stack), yk_by(five)), yk_scalar(1, NULL), false));
    assert_non_null(yk_index_add_(rows, 0, five, value, 1));
    assert_int_equal(yk_size(yk_embedding(zero, rows, -1), 0), 1);
    assert_int_equal(yk_size(yk_index_select(rows, 0, yk_full(YK_SHAPE(2), 2, &i64)), 0), 2);
    expect_ok(YK_OK);
    assert_null(finished(yk_index(columns, YK_INDEX(yk_by(zero)))));
    expect_error(YK_ERR_ARGUMENT, "index: dimension 0 of size 0");
    assert_null(finished(yk_index(both, YK_INDEX(yk_by(five)))));
    expect_error(YK_ERR_ARGUMENT, "index: dimension 0 of size 0");
    assert_null(finished(yk_index_put_(both, YK_INDEX(yk_by(five)), value, false)));
    expect_error(YK_ERR_ARGUMENT, "index_put_: dimension 0 of size 0");
    assert_null(finished(yk_index_put_(columns, YK_INDEX(yk_by(zero)), yk_scalar(1, NULL), false)));
    expect_error(YK_ERR_ARGUMENT, "index_put_: dimension 0 of size 0");
    assert_null(finished(yk_take(none, zero)));
    expect_error(YK_ERR_ARGUMENT, "take: dimension 0 of size 0");
    assert_null(finished(yk_index_select(rows, 0, five)));
    expect_error(YK_ERR_ARGUMENT, "index_select: index 5 is outside dimension 0 of size 3");
    assert_null(finished(yk_index_select(rows, 0, yk_full(YK_SHAPE(1), -1, &i64))));
    expect_error(YK_ERR_ARGUMENT, "index_select: index -1 is outside dimension 0 of size 3");
    assert_null(finished(yk_index_select(columns, 1, five)));
    expect_error(YK_ERR_ARGUMENT, "index_select: index 5 is outside dimension 1 of size 4");
    assert_null(finished(yk_index_select(both, 0, zero)));
    expect_error(YK_ERR_ARGUMENT, "index_select: index 0 is outside dimension 0 of size 0");
    assert_null(finished(yk_embedding(five, rows, -1)));
    expect_error(YK_ERR_ARGUMENT, "embedding: index 5 is outside dimension 0 of size 3");
    yk_scope_end(scope);
}

static void refusals(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = counted(4, 3, YK_F32), *two = integers(YK_SHAPE(2), (int64_t[]){0, 1}),
              *three = integers(YK_SHAPE(3), (int64_t[]){0, 1, 2}), *far = integers(YK_SHAPE(2), (int64_t[]){1, 4}),
              *under = integers(YK_SHAPE(2), (int64_t[]){-5, 0});
    yk_tensor *bytes = yk_cast(two, YK_U8), *reals = yk_cast(two, YK_F32), *mask = yk_gt(x, yk_scalar(3, NULL));
    yk_tensor *elsewhere = yk_to(two, test_device(1));
#define REFUSED(code, text, ...)                                                                                       \
    assert_null(finished(yk_index(x, YK_INDEX(__VA_ARGS__))));                                                         \
    expect_error(code, device_text(text))
    REFUSED(YK_ERR_ARGUMENT, "index: index 4 is outside dimension 0 of size 4", yk_by(far));
    REFUSED(YK_ERR_ARGUMENT, "index: index -5 is outside dimension 0 of size 4", yk_by(under));
    REFUSED(YK_ERR_ARGUMENT, "index: index 4 is outside dimension 1 of size 3", yk_every(), yk_by(far));
    REFUSED(YK_ERR_ARGUMENT, "index: index 3 is outside dimension 1 of size 3", yk_at(0), yk_at(3));
    REFUSED(YK_ERR_ARGUMENT, "index: index 4 is outside dimension 1 of size 3", yk_at(0), yk_by(far));
    REFUSED(YK_ERR_ARGUMENT, "index: index 4 is outside dimension 0 of size 4", yk_newaxis(), yk_by(far));
    REFUSED(YK_ERR_ARGUMENT, "index: index -4 is outside dimension 1 of size 3", yk_every(), yk_at(-4));
    REFUSED(YK_ERR_SHAPE, "index: the items index 3 dimensions, but (4, 3) has 2", yk_at(0), yk_at(0), yk_at(0));
    REFUSED(YK_ERR_SHAPE, "index: mask (3, 4) does not fit dimension 0 of (4, 3)", yk_by(yk_transpose(mask, 0, 1)));
    REFUSED(YK_ERR_SHAPE, "index: index tensor 1 has shape (3,), which does not broadcast with (2,)", yk_by(two),
            yk_by(three));
    REFUSED(YK_ERR_DTYPE, "index: the index tensor is uint8, expected int64 or int32", yk_by(bytes));
    REFUSED(YK_ERR_DTYPE, "index: the index tensor is float32, expected int64 or int32", yk_by(reals));
    REFUSED(YK_ERR_DEVICE, "index: the tensors are on two devices, cpu:0 and cpu:1", yk_by(elsewhere));
    REFUSED(YK_ERR_ARGUMENT, "index: argument 2 is NULL", yk_by(NULL));
    REFUSED(YK_ERR_ARGUMENT, "index: the step of dimension 0 is -1, expected at least 1", yk_range_step(0, 4, -1));
    assert_null(yk_index(x, NULL, 2));
    expect_error(YK_ERR_ARGUMENT, "index: 2 items at NULL");
    assert_null(yk_index(NULL, NULL, 0));
    expect_error(YK_ERR_ARGUMENT, "index: argument 1 is NULL");
    /* Nothing is written where an index is wrong. */
    yk_tensor *before = yk_clone(x);
    assert_null(finished(yk_index_put_(x, YK_INDEX(yk_by(far)), yk_scalar(9, NULL), false)));
    expect_error(YK_ERR_ARGUMENT, "index_put_: index 4 is outside dimension 0 of size 4");
    assert_int_equal(yk_item_i64(yk_all(yk_eq(x, before))), 1);
    assert_null(yk_index_put_(x, YK_INDEX(yk_by(two)), yk_ones(YK_SHAPE(3, 3), NULL), false));
    expect_error(YK_ERR_SHAPE, "index_put_: value (3, 3) does not broadcast to (2, 3)");
    assert_null(yk_index_put_(x, YK_INDEX(yk_by(two)), yk_cast(yk_ones(YK_SHAPE(3), NULL), YK_I64), false));
    expect_error(YK_ERR_DTYPE, "index_put_: value is int64, expected float32");
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        assert_null(yk_index_put_(x, YK_INDEX(yk_at(1)), yk_ones(YK_SHAPE(2), NULL), accumulate));
        expect_error(YK_ERR_SHAPE, "index_put_: value (2,) does not broadcast to (3,), the shape of the indexed part");
        assert_null(yk_index_put_(x, YK_INDEX(yk_at(1)), yk_ones(YK_SHAPE(2, 3), NULL), accumulate));
        expect_error(YK_ERR_SHAPE, "index_put_: value (2, 3) does not broadcast to (3,)");
    }
    assert_null(yk_index_put_(x, YK_INDEX(yk_by(two)), NULL, false));
    expect_error(YK_ERR_ARGUMENT, "index_put_: argument 3 is NULL");
    yk_tensor *wide = yk_ones(YK_SHAPE(2, 1, 1, 1, 1), NULL), *ones = yk_zeros(YK_SHAPE(1, 1, 1, 1, 1), NULL);
    assert_null(yk_index(wide, YK_INDEX(yk_by(yk_cast(ones, YK_I64)))));
    expect_error(YK_ERR_SHAPE, "index: the result would have 9 dimensions; a tensor has at most 8");
    yk_scope_end(scope);
    assert_null(yk_index(NULL, NULL, 0));
    yk_clear_error();
}

/* Five index tensors: more than the kernels take at once. */
static void many_index_tensors(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x =
        yk_reshape(yk_arange(0, 243, 1, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64)), YK_SHAPE(3, 3, 3, 3, 3));
    yk_tensor *a = integers(YK_SHAPE(2), (int64_t[]){0, 2}), *b = integers(YK_SHAPE(2, 1), (int64_t[]){1, -1});
    yk_tensor *out = yk_index(x, YK_INDEX(yk_by(a), yk_by(b), yk_by(a), yk_by(b), yk_by(a)));
    /* (a b a b a) in base 3 */
    expect_numbers(out, NUMBERS(30, 2 * 81 + 30 + 18 + 2, 60, 2 * 81 + 60 + 18 + 2));
    yk_index_put_(x, YK_INDEX(yk_by(a), yk_by(b), yk_by(a), yk_by(b), yk_by(a)), yk_scalar(1000, NULL), true);
    expect_numbers(yk_index(x, YK_INDEX(yk_by(a), yk_by(b), yk_by(a), yk_by(b), yk_by(a))),
                   NUMBERS(1030, 1212, 1060, 1242));
    assert_null(finished(yk_index(x, YK_INDEX(yk_by(a), yk_by(b), yk_by(a), yk_by(yk_add_scalar(b, 2)), yk_by(a)))));
    expect_error(YK_ERR_ARGUMENT, "index: index 3 is outside dimension 3 of size 3");
    yk_scope_end(scope);
}

/* The same bits for every number of threads, of sums whose order shows. */
static void threads_do_not_show(void **state)
{
    (void)state;
    enum { ROWS = 700, WIDTH = 33 };
    const int many = work_size(40000, 2000);
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(3);
    yk_tensor *rows = yk_randint(-ROWS, ROWS, YK_SHAPE(many), NULL);
    yk_tensor *table = yk_randn(YK_SHAPE(ROWS, WIDTH), NULL), *values = yk_randn(YK_SHAPE(many, WIDTH), NULL);
    yk_tensor *flat = yk_randn(YK_SHAPE(many), NULL), *mask = yk_gt(values, yk_scalar(0.3, NULL));
    yk_tensor *first[5] = {NULL};
    for (int threads = 1; threads <= 4; threads++) {
        expect_ok(yk_set_num_threads((yk_device){0}, threads));
        yk_tensor *sum = yk_clone(table), *line = yk_zeros(YK_SHAPE(ROWS), NULL),
                  *last = yk_zeros(YK_SHAPE(ROWS), NULL);
        yk_index_put_(sum, YK_INDEX(yk_by(rows)), values, true);
        yk_index_put_(line, YK_INDEX(yk_by(rows)), flat, true);
        yk_index_put_(last, YK_INDEX(yk_by(rows)), flat, false);
        yk_tensor *results[5] = {sum, line, last, yk_index(values, YK_INDEX(yk_by(mask))),
                                 yk_index(table, YK_INDEX(yk_by(rows)))};
        for (int i = 0; i < 5; i++) {
            assert_non_null(results[i]);
            if (threads == 1)
                first[i] = results[i];
            assert_true(yk_same_shape(first[i], results[i]));
            assert_memory_equal(host_data(first[i]), host_data(results[i]), (size_t)yk_numel(first[i]) * sizeof(float));
        }
    }
    expect_ok(yk_set_num_threads((yk_device){0}, 2));
    /* The numbers themselves are right, too. */
    double expected[ROWS] = {0}, (*sums)[WIDTH] = calloc(ROWS, sizeof(*sums));
    float final[ROWS] = {0};
    const float *from = host_data(table), *part = host_data(values);
    assert_non_null(sums);
    for (int i = 0; i < many; i++) {
        int64_t row = ((const int64_t *)host_data(rows))[i];
        row += row < 0 ? ROWS : 0;
        assert_memory_equal((const float *)host_data(first[4]) + i * WIDTH, from + row * WIDTH, WIDTH * sizeof(float));
        for (int j = 0; j < WIDTH; j++)
            sums[row][j] += (double)part[i * WIDTH + j];
        final[row] = ((const float *)host_data(flat))[i];
        expected[row] += (double) final[row];
    }
    for (int i = 0; i < ROWS * WIDTH; i++)
        expect_near((double)((const float *)host_data(first[0]))[i], (double)from[i] + sums[i / WIDTH][i % WIDTH], 1e-4,
                    1e-4);
    free(sums);
    for (int i = 0; i < ROWS; i++) {
        expect_near((double)((const float *)host_data(first[1]))[i], expected[i], 1e-4, 1e-4);
        assert_true(((const float *)host_data(first[2]))[i] == final[i]);
    }
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

/* An index that is expanded leads all values to one position: they come there in order, for any number of threads. */
static void an_expanded_index(void **state)
{
    (void)state;
    const int64_t many = work_size(2000000, 1500);
    yk_tensor_options whole = *YK_OPTIONS(yk_tensor_options, .dtype = YK_I64);
    yk_scope scope = yk_scope_begin();
    yk_tensor *three = integers(YK_SHAPE(1), (int64_t[]){3}), *line = yk_expand(three, YK_SHAPE(many)),
              *rows = yk_expand(three, YK_SHAPE(many / 2, 2));
    yk_tensor *numbers = yk_arange(0, (double)many, 1, &whole), *ones = yk_ones(YK_SHAPE(many), &whole);
    for (int threads = 1; threads <= 4; threads++) {
        expect_ok(yk_set_num_threads((yk_device){0}, threads));
        yk_tensor *last = yk_zeros(YK_SHAPE(4), &whole), *sum = yk_zeros(YK_SHAPE(4), &whole),
                  *sums = yk_zeros(YK_SHAPE(4, 2), &whole);
        assert_non_null(yk_index_put_(last, YK_INDEX(yk_by(line)), numbers, false));
        assert_int_equal(yk_item_i64(yk_select(last, 0, 3)), many - 1);
        assert_non_null(yk_index_put_(sum, YK_INDEX(yk_by(line)), ones, true));
        assert_int_equal(yk_item_i64(yk_select(sum, 0, 3)), many);
        assert_non_null(yk_scatter_add_(sums, 0, rows, yk_reshape(ones, YK_SHAPE(many / 2, 2))));
        expect_numbers(sums, NUMBERS(0, 0, 0, 0, 0, 0, (double)(many / 2), (double)(many / 2)));
    }
    expect_ok(yk_set_num_threads((yk_device){0}, 2));
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

int main(void)
{
    use_devices(2);
    setenv("OMP_NUM_THREADS", "4", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_pytorch_indexes),
        cmocka_unit_test(strides_do_not_matter),
        cmocka_unit_test(document_examples),
        cmocka_unit_test(masks_without_dimensions),
        cmocka_unit_test(every_dtype),
        cmocka_unit_test(halves_are_summed_wide),
        cmocka_unit_test(writes_read_what_was_there),
        cmocka_unit_test(one_value_by_a_mask),
        cmocka_unit_test(history_is_kept),
        cmocka_unit_test(masks_of_expanded_dimensions),
        cmocka_unit_test(gradients_in_another_order),
        cmocka_unit_test(nothing_to_read),
        cmocka_unit_test(refusals),
        cmocka_unit_test(many_index_tensors),
        cmocka_unit_test(threads_do_not_show),
        cmocka_unit_test(an_expanded_index),
    };
    return cmocka_run_group_tests_name("ops/index", tests, NULL, NULL);
}
