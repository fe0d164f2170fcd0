/* print_test.c - tensors as text, against what PyTorch prints (golden/make_print.py). */
#include "tests/support/expect.h"
#include "tests/support/golden.h"
#include "tests/support/test_device.h"

#include "tensor/tensor.h"

typedef struct print_case {
    yk_dtype dtype;
    int ndim;
    int64_t shape[YK_MAX_DIMS];
    bool given;           /* bytes: of the elements; else element i is first + i * step */
    uint64_t bytes[1024]; /* aligned for every dtype */
    double first, step;
    bool has_options; /* else the default profile */
    char profile[40];
    yk_print_options options;
    char *expected;
} print_case;

static print_case *print_cases;
static size_t case_count;

static void read_bytes(const char **row, print_case *c)
{
    size_t count = 0;
    for (; **row != ' '; *row += **row == '-' ? 1 : 2) {
        unsigned byte;
        assert_true(count < sizeof(c->bytes));
        if (sscanf(*row, "%2x", &byte) == 1)
            ((unsigned char *)c->bytes)[count++] = (unsigned char)byte;
    }
    ++*row;
}

/* One "key=value". */
static void read_option(const char *word, print_case *c)
{
    char key[20], value[40];
    yk_print_options *o = &c->options;
    assert_int_equal(sscanf(word, "%19[a-z_]=%39s", key, value), 2);
    c->has_options = true;
    if (strcmp(key, "profile") == 0) {
        snprintf(c->profile, sizeof(c->profile), "%s", value);
        o->profile = c->profile;
    } else if (strcmp(key, "precision") == 0) {
        o->precision = atoi(value);
    } else if (strcmp(key, "threshold") == 0) {
        o->threshold = atoll(value);
    } else if (strcmp(key, "edgeitems") == 0) {
        o->edgeitems = atoll(value);
    } else if (strcmp(key, "linewidth") == 0) {
        o->linewidth = atoll(value);
    } else if (strcmp(key, "sci_mode") == 0) {
        o->sci_mode = strcmp(value, "on") == 0 ? YK_SCI_ON : strcmp(value, "off") == 0 ? YK_SCI_OFF : YK_SCI_AUTO;
    } else {
        fail_msg("'%s' is no option of printing", key);
    }
}

/* The text of a row, with its lines. */
static char *read_text(const char *row)
{
    char *text = strdup(row), *to = text;
    assert_non_null(text);
    for (const char *from = text; *from; from++)
        if (from[0] == '\\' && from[1] == 'n')
            *to++ = '\n', from++;
        else
            *to++ = *from;
    *to = 0;
    return text;
}

static void read_case(const char *row, print_case *c)
{
    char word[60];
    c->options = *YK_OPTIONS(yk_print_options);
    c->dtype = golden_dtype(&row);
    c->ndim = golden_integer(&row);
    assert_in_range(c->ndim, 0, YK_MAX_DIMS);
    for (int d = 0; d < c->ndim; d++)
        c->shape[d] = golden_integer(&row);
    c->given = strcmp(golden_word(&row, word, sizeof(word)), "bytes") == 0;
    if (c->given) {
        read_bytes(&row, c);
    } else {
        c->first = golden_number(&row);
        c->step = golden_number(&row);
    }
    while (strcmp(golden_word(&row, word, sizeof(word)), "prints") != 0)
        read_option(word, c);
    c->expected = read_text(row);
}

static int read_cases(void **state)
{
    (void)state;
    const char *const *rows = golden_rows("print", "cases", &case_count);
    print_cases = calloc(case_count, sizeof(*print_cases));
    assert_non_null(print_cases);
    for (size_t i = 0; i < case_count; i++)
        read_case(rows[i], &print_cases[i]);
    return 0;
}

static int free_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < case_count; i++)
        free(print_cases[i].expected);
    free(print_cases);
    return 0;
}

static yk_tensor *build(const print_case *c)
{
    yk_tensor_options options = *YK_OPTIONS(yk_tensor_options, .dtype = c->dtype);
    if (c->given)
        return yk_from_data(c->bytes, c->ndim, c->shape, &options);
    yk_tensor *x = yk_empty(c->ndim, c->shape, &options);
    for (int64_t i = 0; i < yk_numel(x); i++) {
        double value = c->first + (double)i * c->step;
        void *data = yk_tensor_data(x);
        switch (c->dtype) {
        case YK_F32: ((float *)data)[i] = (float)value; break;
        case YK_F64: ((double *)data)[i] = value; break;
        case YK_I64: ((int64_t *)data)[i] = (int64_t)value; break;
        case YK_I32: ((int32_t *)data)[i] = (int32_t)value; break;
        case YK_U8: ((uint8_t *)data)[i] = (uint8_t)(int64_t)value; break;
        default: fail_msg("a large case of %s", yk_dtype_name(c->dtype));
        }
    }
    return x;
}

static void expect_text(const yk_tensor *x, const char *expected)
{
    char *text = yk_to_string(x);
    if (!text)
        fail_msg("no text: %s", yk_last_error() ? yk_last_error()->message : "no record");
    if (strcmp(text, expected))
        fail_msg("printed:\n%s\nexpected:\n%s", text, expected);
    free(text);
}

/* The default profile, changed by the options of the case. */
static void set_options(const print_case *c)
{
    expect_ok(yk_set_printoptions(NULL));
    if (c->has_options)
        expect_ok(yk_set_printoptions(&c->options));
}

static void as_pytorch_prints(void **state)
{
    (void)state;
    for (size_t i = 0; i < case_count; i++) {
        yk_scope scope = yk_scope_begin();
        set_options(&print_cases[i]);
        expect_text(build(&print_cases[i]), print_cases[i].expected);
        yk_scope_end(scope);
    }
    expect_ok(yk_set_printoptions(NULL));
    assert_null(yk_last_error());
}

/* The same text for the same elements with other strides: every case of two dimensions or more, stored in the opposite
 * order of dimensions. */
static void strides_do_not_show(void **state)
{
    (void)state;
    int tried = 0;
    for (size_t i = 0; i < case_count; i++) {
        const print_case *c = &print_cases[i];
        yk_scope scope = yk_scope_begin();
        yk_tensor *x = build(c);
        set_options(c);
        if (yk_ndim(x) >= 2 && yk_numel(x)) {
            int64_t stride[YK_MAX_DIMS], step = 1;
            for (int d = 0; d < c->ndim; d++) {
                stride[d] = step;
                step *= c->shape[d];
            }
            yk_tensor *other = yk__tensor_new(c->ndim, c->shape, stride, c->dtype, test_device(0));
            expect_ok(yk__raw_copy(other, x));
            expect_text(other, c->expected);
            yk_tensor_release(other);
            tried++;
        }
        yk_scope_end(scope);
    }
    assert_true(tried > 10);
    expect_ok(yk_set_printoptions(NULL));
    float storage[6] = {1, 2, 3, 4, 5, 6};
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_from_data(storage, YK_SHAPE(6), NULL);
    yk_tensor *every_second = yk__tensor_view(x, 1, (int64_t[]){3}, (int64_t[]){2}, 1);
    expect_text(every_second, "tensor([2., 4., 6.])");
    yk_tensor *repeated = yk__tensor_view(x, 2, (int64_t[]){2, 3}, (int64_t[]){0, 1}, 0);
    expect_text(repeated, "tensor([[1., 2., 3.],\n        [1., 2., 3.]])");
    yk_tensor_release(every_second);
    yk_tensor_release(repeated);
    yk_scope_end(scope);
}

static void what_is_not_the_default_is_named(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor_options second = *YK_OPTIONS(yk_tensor_options, .device = {YK_CPU, 1}),
                      leaf = *YK_OPTIONS(yk_tensor_options, .requires_grad = true);
    yk_tensor_options all =
        *YK_OPTIONS(yk_tensor_options, .device = {YK_CPU, 1}, .dtype = YK_F64, .requires_grad = true);
    expect_text(yk_ones(YK_SHAPE(2), &second), "tensor([1., 1.], device=cpu:1)");
    expect_text(yk_ones(YK_SHAPE(2), &leaf), test_device_type == YK_CPU
                                                 ? "tensor([1., 1.], requires_grad=True)"
                                                 : "tensor([1., 1.], device=cuda:0, requires_grad=True)");
    expect_text(yk_ones(YK_SCALAR, &all), "tensor(1., device=cpu:1, dtype=float64, requires_grad=True)");
    expect_text(yk_ones(YK_SHAPE(0, 2), &all),
                "tensor([], device=cpu:1, size=(0, 2), dtype=float64, requires_grad=True)");
    expect_text(yk_full(YK_SHAPE(9), 100.5, &all),
                "tensor([100.5000, 100.5000, 100.5000, 100.5000, 100.5000, 100.5000, 100.5000,\n"
                "        100.5000, 100.5000], device=cpu:1, dtype=float64, requires_grad=True)");
    expect_text(yk_full(YK_SHAPE(4), 100.5, &all),
                "tensor([100.5000, 100.5000, 100.5000, 100.5000], device=cpu:1, dtype=float64,\n"
                "       requires_grad=True)");
    yk_scope_end(scope);
}

static void to_a_stream(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    expect_ok(yk_print(stream, yk_ones(YK_SHAPE(2), NULL)));
    fclose(stream);
    assert_string_equal(text, test_device_type == YK_CPU ? "tensor([1., 1.])\n" : "tensor([1., 1.], device=cuda:0)\n");
    free(text);
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    setvbuf(full, NULL, _IONBF, 0);
    assert_int_equal(yk_print(full, yk_ones(YK_SHAPE(2), NULL)), YK_ERR_IO);
    expect_error(YK_ERR_IO, "print: No space left on device");
    fclose(full);
    assert_null(yk_to_string(NULL));
    expect_error(YK_ERR_ARGUMENT, "to_string: the tensor is NULL");
    assert_int_equal(yk_print(stdout, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "print: the tensor is NULL");
    yk_scope_end(scope);
}

/* Options that one call leaves alone stay; a profile sets all; a wrong value changes nothing. */
static void options_hold(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_full(YK_SHAPE(2), 1.0 / 3, NULL);
    expect_ok(yk_set_printoptions(YK_OPTIONS(yk_print_options, .precision = 2)));
    expect_ok(yk_set_printoptions(YK_OPTIONS(yk_print_options, .linewidth = 100)));
    yk_print_options now;
    yk_get_printoptions(&now);
    assert_int_equal(now.precision, 2);
    assert_int_equal(now.linewidth, 100);
    assert_int_equal(now.threshold, 1000);
    expect_text(x, "tensor([0.33, 0.33])");
    const struct {
        const yk_print_options *options;
        const char *text;
    } wrong[] = {
        {YK_OPTIONS(yk_print_options, .profile = "long", .precision = 1), "no profile is called long"},
        {YK_OPTIONS(yk_print_options, .precision = 61), "precision is 61, expected a number in [0, 60]"},
        {YK_OPTIONS(yk_print_options, .precision = 1, .edgeitems = -1), "edgeitems is -1, expected at least 1"},
        {YK_OPTIONS(yk_print_options, .precision = 1, .threshold = -5), "threshold is -5"},
        {YK_OPTIONS(yk_print_options, .precision = 1, .linewidth = -80), "linewidth is -80"},
        {YK_OPTIONS(yk_print_options, .precision = 1, .sci_mode = (yk_sci_mode)3), "3 is no sci_mode"}};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(yk_set_printoptions(wrong[i].options), YK_ERR_ARGUMENT);
        expect_error(YK_ERR_ARGUMENT, wrong[i].text);
    }
    expect_text(x, "tensor([0.33, 0.33])");
    expect_ok(yk_set_printoptions(YK_OPTIONS(yk_print_options, .precision = 60, .sci_mode = YK_SCI_OFF)));
    char *text = yk_to_string(yk_full(YK_SCALAR, 1.7e308, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64)));
    assert_non_null(text);
    free(text);
    /* All of 1,001 elements, in one line. */
    expect_ok(yk_set_printoptions(YK_OPTIONS(yk_print_options, .profile = "full", .linewidth = 16000)));
    text = yk_to_string(yk_arange(0, 1001, 1, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64)));
    assert_non_null(text);
    assert_null(strstr(text, "..."));
    assert_null(strchr(text, '\n'));
    assert_non_null(strstr(text, " 999, 1000])"));
    free(text);
    expect_ok(yk_set_printoptions(YK_OPTIONS(yk_print_options, .profile = "default")));
    yk_get_printoptions(&now);
    assert_true(now.precision == 4 && now.threshold == 1000 && now.edgeitems == 3 && now.linewidth == 80);
    expect_text(x, "tensor([0.3333, 0.3333])");
    yk_scope_end(scope);
}

int main(void)
{
    use_devices(2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_pytorch_prints),
        cmocka_unit_test(strides_do_not_show),
        cmocka_unit_test(what_is_not_the_default_is_named),
        cmocka_unit_test(to_a_stream),
        cmocka_unit_test(options_hold),
    };
    return cmocka_run_group_tests_name("tensor/print", tests, read_cases, free_cases);
}
