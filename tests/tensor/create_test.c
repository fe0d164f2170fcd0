/* create_test.c - tensors out of nothing: values, dtypes, randomness, the caller's memory, impossible shapes. */
#include <float.h>

#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include "tensor/tensor.h"

static const yk_dtype dtypes[] = {YK_F32, YK_F64, YK_F16, YK_BF16, YK_I64, YK_I32, YK_U8, YK_BOOL};
enum { DTYPES = sizeof(dtypes) / sizeof(dtypes[0]), MANY = 100000 };

static yk_scope scope;

static int open_scope(void **state)
{
    (void)state;
    scope = yk_scope_begin();
    return 0;
}

static int close_scope(void **state)
{
    (void)state;
    yk_scope_end(scope);
    return yk_last_error() != NULL;
}

/* All elements as f64 in C order, to be freed. */
static double *values_of(yk_tensor *x)
{
    assert_non_null(x);
    yk_tensor *wide = yk__raw_cast(x, YK_F64);
    size_t bytes = (size_t)yk_numel(x) * sizeof(double);
    double *values = malloc(bytes + 1);
    expect_ok(yk_tensor_read(wide, values, bytes));
    yk_tensor_release(wide);
    return values;
}

static void expect_all(yk_tensor *x, double expected)
{
    double *values = values_of(x);
    for (int64_t i = 0; i < yk_numel(x); i++)
        expect_near(values[i], expected, 0, 0);
    free(values);
}

static void filled(void **state)
{
    (void)state;
    for (int i = 0; i < DTYPES; i++) {
        yk_tensor_options options = *YK_OPTIONS(yk_tensor_options, .dtype = dtypes[i], .device = test_device(i % 2));
        yk_tensor *x = yk_zeros(YK_SHAPE(2, 3, 5), &options);
        expect_all(x, 0);
        assert_int_equal(yk_tensor_dtype(x), dtypes[i]);
        assert_int_equal(yk_tensor_device(x).index, i % 2);
        assert_int_equal(yk_ndim(x), 3);
        assert_int_equal(yk_numel(x), 30);
        assert_true(yk_is_contiguous(x));
        assert_int_equal(yk_tensor_version(x), 0);
        expect_all(yk_ones(YK_SHAPE(70), &options), 1);
        expect_all(yk_full(YK_SHAPE(3, 3), dtypes[i] == YK_BOOL ? 1 : 7, &options), dtypes[i] == YK_BOOL ? 1 : 7);
        assert_int_equal(yk_ndim(yk_scalar(1, &options)), 0);
        assert_int_equal(yk_numel(yk_empty(YK_SHAPE(4, 5), &options)), 20);
        assert_int_equal(yk_numel(yk_zeros(YK_SHAPE(4, 0, 5), &options)), 0);
    }
    expect_all(yk_full(YK_SHAPE(2), NAN, NULL), NAN);
    expect_all(yk_full(YK_SHAPE(2), -INFINITY, NULL), -INFINITY);
    expect_all(yk_full(YK_SHAPE(2), 0.1, NULL), (double)0.1f);
    /* The ends of each dtype, and what is beyond them. */
    static const struct {
        yk_dtype dtype;
        double held, read, beyond;
    } ends[] = {{YK_F32, (double)FLT_MAX, (double)FLT_MAX, 1e39},
                {YK_F16, -65504, -65504, 70000},
                {YK_BF16, 0x1.FEp127, 0x1.FEp127, 3.4e38},
                {YK_I64, -0x1p63, -0x1p63, 1e19},
                {YK_I32, 2147483647, 2147483647, 2147483648.0},
                {YK_U8, 255, 255, 256},
                {YK_U8, -255, 1, -256},
                {YK_I32, -7.9, -7, NAN},
                {YK_I64, 7.9, 7, INFINITY}};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        yk_tensor_options options = *YK_OPTIONS(yk_tensor_options, .dtype = ends[i].dtype);
        expect_all(yk_full(YK_SHAPE(2), ends[i].held, &options), ends[i].read);
        char message[80];
        snprintf(message, sizeof message, "a tensor of %s cannot hold", yk_dtype_name(ends[i].dtype));
        yk_tensor *x = yk_zeros(YK_SHAPE(2), &options);
        assert_null(yk_full(YK_SHAPE(2), ends[i].beyond, &options));
        expect_error(YK_ERR_DTYPE, message);
        yk_tensor *number = yk_scalar(ends[i].beyond, &options);
        if (yk_dtype_is_floating(ends[i].dtype))
            expect_all(number, INFINITY);
        else
            expect_error(YK_ERR_DTYPE, message);
        assert_null(yk_full_like(x, ends[i].beyond));
        expect_error(YK_ERR_DTYPE, message);
        assert_null(yk_new_full(x, YK_SHAPE(1), ends[i].beyond, NULL));
        expect_error(YK_ERR_DTYPE, message);
    }
    assert_int_equal(yk_ndim(yk_zeros(8, (int64_t[]){1, 2, 1, 2, 1, 2, 1, 2}, NULL)), 8);
}

static void counted(void **state)
{
    (void)state;
    static const struct {
        double start, end, step;
        int count;
    } ranges[] = {{0, 5, 1, 5},  {0, 5, 2, 3}, {1, 2, 0.25, 4}, {5, 0, -1, 5},
                  {5, 0, -2, 3}, {0, 0, 1, 0}, {-3, 3, 1.5, 4}};
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        for (int k = 0; k < DTYPES; k++) {
            bool fits = yk_dtype_is_floating(dtypes[k]) || ranges[i].step == floor(ranges[i].step);
            if (!fits || dtypes[k] == YK_BOOL || (dtypes[k] == YK_U8 && ranges[i].start < 0))
                continue;
            yk_tensor *x = yk_arange(ranges[i].start, ranges[i].end, ranges[i].step,
                                     YK_OPTIONS(yk_tensor_options, .dtype = dtypes[k]));
            double *values = values_of(x);
            assert_int_equal(yk_numel(x), ranges[i].count);
            for (int j = 0; j < ranges[i].count; j++)
                expect_near(values[j], ranges[i].start + j * ranges[i].step, 0, 0);
            free(values);
        }
    }
    static const double bad[][3] = {{0, 5, 0},  {0, 5, NAN}, {0, INFINITY, 1}, {NAN, 1, 1},
                                    {0, 5, -1}, {5, 0, 1},   {0, 1, INFINITY}, {-INFINITY, 0, 1}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_null(yk_arange(bad[i][0], bad[i][1], bad[i][2], NULL));
        expect_error(YK_ERR_ARGUMENT, "arange: from ");
    }
    assert_null(yk_arange(0, 1e300, 1, NULL));
    expect_error(YK_ERR_SHAPE, "more elements than fit in memory");
    yk_tensor_options integers = *YK_OPTIONS(yk_tensor_options, .dtype = YK_I64);
    static const double not_integers[][3] = {{0, 5, 0.5}, {0.5, 5, 1}, {1e300, 2e300, 1e299}, {0, 1e30, 4e18}};
    for (size_t i = 0; i < sizeof(not_integers) / sizeof(not_integers[0]); i++) {
        assert_null(yk_arange(not_integers[i][0], not_integers[i][1], not_integers[i][2], &integers));
        expect_error(YK_ERR_ARGUMENT, "is not a range of int64 integers");
    }
}

static void random_numbers(void **state)
{
    (void)state;
    static const yk_dtype floating[] = {YK_F32, YK_F64, YK_F16, YK_BF16};
    for (int i = 0; i < 4; i++) {
        yk_tensor_options options = *YK_OPTIONS(yk_tensor_options, .dtype = floating[i]);
        yk_manual_seed(11);
        double *u = values_of(yk_rand(YK_SHAPE(MANY), &options)), *n = values_of(yk_randn(YK_SHAPE(MANY), &options));
        double mean = 0, square = 0, normal_mean = 0, normal_square = 0, fourth = 0, lag = 0;
        for (int k = 0; k < MANY; k++) {
            /* Rounding to half precision may reach 1. */
            assert_true(u[k] >= 0 && (u[k] < 1 || (i >= 2 && u[k] == 1)));
            mean += u[k] / MANY;
            square += u[k] * u[k] / MANY;
            normal_mean += n[k] / MANY;
            normal_square += n[k] * n[k] / MANY;
            fourth += n[k] * n[k] * n[k] * n[k] / MANY;
            lag += k ? n[k] * n[k - 1] / MANY : 0;
        }
        /* Four standard deviations of each mean of 100,000. */
        expect_near(mean, 0.5, 0, 4 * 0.2887 / 316.2 + (i >= 2 ? 2e-3 : 0));
        expect_near(square, 1.0 / 3, 0, 4 * 0.298 / 316.2 + (i >= 2 ? 2e-3 : 0));
        expect_near(normal_mean, 0, 0, 4 / 316.2);
        expect_near(normal_square, 1, 0, 4 * 1.414 / 316.2 + 1e-3);
        expect_near(fourth, 3, 0, 4 * 9.8 / 316.2 + 1e-2);
        expect_near(lag, 0, 0, 4 / 316.2);
        free(u);
        free(n);
    }
    assert_null(yk_rand(YK_SHAPE(2), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64)));
    expect_error(YK_ERR_DTYPE, "rand: expected a floating dtype, not int64");
    assert_null(yk_randn(YK_SHAPE(2), YK_OPTIONS(yk_tensor_options, .dtype = YK_BOOL)));
    expect_error(YK_ERR_DTYPE, "randn: expected a floating dtype, not bool");
}

static void random_numbers_come_again(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        double *drawn[4];
        static const int threads[] = {1, 1, 4, 3};
        for (int run = 0; run < 4; run++) {
            expect_ok(yk_set_num_threads((yk_device){0}, threads[run]));
            if (run != 1)
                yk_manual_seed(5); /* run 1 goes on where run 0 ended */
            yk_tensor *x = kind == 0   ? yk_rand(YK_SHAPE(MANY), NULL)
                           : kind == 1 ? yk_randn(YK_SHAPE(MANY), NULL)
                                       : yk_randint(0, 1000000, YK_SHAPE(MANY), NULL);
            drawn[run] = values_of(x);
        }
        assert_memory_not_equal(drawn[0], drawn[1], MANY * sizeof(double));
        assert_memory_equal(drawn[0], drawn[2], MANY * sizeof(double));
        assert_memory_equal(drawn[0], drawn[3], MANY * sizeof(double));
        for (int run = 0; run < 4; run++)
            free(drawn[run]);
    }
}

static void random_integers(void **state)
{
    (void)state;
    for (int i = 0; i < DTYPES; i++) {
        int64_t low = dtypes[i] == YK_U8 ? 0 : dtypes[i] == YK_BOOL ? 0 : -3, high = dtypes[i] == YK_BOOL ? 2 : 4;
        double *values =
            values_of(yk_randint(low, high, YK_SHAPE(MANY), YK_OPTIONS(yk_tensor_options, .dtype = dtypes[i])));
        int64_t counts[8] = {0};
        for (int k = 0; k < MANY; k++) {
            assert_true(values[k] >= (double)low && values[k] < (double)high && values[k] == floor(values[k]));
            counts[(int64_t)values[k] - low]++;
        }
        double chi = 0, expected = (double)MANY / (double)(high - low);
        for (int64_t k = 0; k < high - low; k++)
            chi += ((double)counts[k] - expected) * ((double)counts[k] - expected) / expected;
        assert_true(chi < 22.5); /* at most 6 degrees of freedom: one in a thousand is above */
        free(values);
    }
    assert_int_equal(yk_tensor_dtype(yk_randint(0, 2, YK_SHAPE(1), NULL)), YK_I64);
    expect_all(yk_randint(41, 42, YK_SHAPE(9), NULL), 41);
    assert_null(yk_randint(3, 3, YK_SHAPE(1), NULL));
    expect_error(YK_ERR_ARGUMENT, "randint: the range [3, 3) is empty");
    assert_null(yk_randint(0, 257, YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .dtype = YK_U8)));
    expect_error(YK_ERR_ARGUMENT, "randint: the range [0, 257) does not fit in uint8");
    assert_non_null(yk_randint(0, 256, YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .dtype = YK_U8)));
    assert_null(yk_randint(-1, 2, YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .dtype = YK_BOOL)));
    expect_error(YK_ERR_ARGUMENT, "does not fit in bool");
    /* Every number of i64 can be drawn, also those that no double holds. */
    static const int64_t whole[][2] = {{(INT64_C(1) << 53) + 1, (INT64_C(1) << 53) + 2},
                                       {(INT64_C(1) << 60) + 3, (INT64_C(1) << 60) + 6},
                                       {INT64_MAX - 1, INT64_MAX},
                                       {INT64_MIN, INT64_MIN + 2}};
    for (int i = 0; i < 4; i++) {
        yk_tensor *x = yk_randint(whole[i][0], whole[i][1], YK_SHAPE(100), NULL);
        int64_t drawn[100];
        expect_ok(yk_tensor_read(x, drawn, sizeof(drawn)));
        for (int k = 0; k < 100; k++)
            assert_true(drawn[k] >= whole[i][0] && drawn[k] < whole[i][1]);
    }
    /* A floating dtype gets the numbers that it holds. */
    static const struct {
        yk_dtype dtype;
        int64_t low, high;
        double least, most;
    } held[] = {{YK_BF16, 0, 260, 0, 258},
                {YK_BF16, 257, 259, 258, 258},
                {YK_F16, -65504, 65505, -65504, 65504},
                {YK_F16, 2049, 2052, 2050, 2050},
                {YK_F32, (1 << 24) + 1, (1 << 24) + 4, 0x1p24 + 2, 0x1p24 + 2},
                {YK_F32, -(1 << 24) - 3, -(1 << 24) - 1, -0x1p24 - 2, -0x1p24 - 2},
                {YK_F32, INT64_MIN, INT64_MAX, -0x1p63, 0x1p63 - 0x1p39},
                {YK_F64, INT64_MAX - 1500, INT64_MAX, 0x1p63 - 1024, 0x1p63 - 1024}};
    for (size_t i = 0; i < sizeof held / sizeof held[0]; i++) {
        yk_tensor_options o = *YK_OPTIONS(yk_tensor_options, .dtype = held[i].dtype);
        double *values = values_of(yk_randint(held[i].low, held[i].high, YK_SHAPE(MANY), &o));
        for (int k = 0; k < MANY; k++)
            assert_true(values[k] >= held[i].least && values[k] <= held[i].most);
        free(values);
    }
    assert_null(yk_randint(257, 258, YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .dtype = YK_BF16)));
    expect_error(YK_ERR_ARGUMENT, "randint: no integer in [257, 258) is a bfloat16");
    assert_null(yk_randint(INT64_MAX - 1, INT64_MAX, YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .dtype = YK_F32)));
    expect_error(YK_ERR_ARGUMENT, "is a float32");
    assert_int_equal(yk_tensor_dtype(yk_randint(0, 2, YK_SHAPE(1), YK_OPTIONS(yk_tensor_options))), YK_I64);
    assert_null(yk_randint(0, 65506, YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .dtype = YK_F16)));
    expect_error(YK_ERR_ARGUMENT, "randint: the range [0, 65506) does not fit in float16");
    double *order = values_of(yk_randperm(1000));
    bool seen[1000] = {false}, moved = false;
    for (int k = 0; k < 1000; k++) {
        assert_true(order[k] >= 0 && order[k] < 1000 && !seen[(int)order[k]]);
        seen[(int)order[k]] = true;
        moved = moved || order[k] != k;
    }
    assert_true(moved);
    free(order);
    assert_int_equal(yk_numel(yk_randperm(0)), 0);
    assert_null(yk_randperm(-1));
    expect_error(YK_ERR_SHAPE, "randperm: size -1 of dimension 0 is negative");
}

static void from_the_callers_data(void **state)
{
    (void)state;
    int32_t numbers[] = {5, -6, 7};
    yk_tensor *x = yk_from_data(numbers, YK_SHAPE(3), YK_OPTIONS(yk_tensor_options, .dtype = YK_I32));
    numbers[0] = 0; /* it was copied */
    assert_int_equal(yk_item_i64(yk_from_data(numbers + 1, YK_SCALAR, YK_OPTIONS(yk_tensor_options, .dtype = YK_I32))),
                     -6);
    assert_true(yk_get(x, (int64_t[]){0}) == 5);
    assert_int_equal(yk_numel(yk_from_data(NULL, YK_SHAPE(0), NULL)), 0);
    assert_null(yk_from_data(NULL, YK_SHAPE(2), NULL));
    expect_error(YK_ERR_ARGUMENT, "from_data: the data is NULL");
}

static void count_call(void *context)
{
    ++*(int *)context;
}

static void over_the_callers_memory(void **state)
{
    (void)state;
    float memory[6] = {1, 2, 3, 4, 5, 6};
    int calls = 0;
    yk_memory_info before, after;
    expect_ok(yk_device_memory(test_device(0), &before));
    yk_scope inner = yk_scope_begin();
    yk_tensor *x = yk_from_memory(memory, YK_SHAPE(2, 3), YK_F32, count_call, &calls);
    assert_ptr_equal(yk_tensor_data(x), memory);
    memory[4] = 50;
    assert_true(yk_get(x, (int64_t[]){1, 1}) == 50);
    yk_tensor *row = yk__tensor_view(x, 1, (int64_t[]){3}, (int64_t[]){1}, 3);
    expect_ok(yk_device_memory(test_device(0), &after));
    assert_int_equal(after.allocated, before.allocated);
    yk_scope_end(inner);
    assert_int_equal(calls, 0); /* a view is left */
    assert_true(yk_get(row, (int64_t[]){1}) == 50);
    yk_tensor_release(row);
    assert_int_equal(calls, 1);

    assert_null(yk_from_memory(NULL, YK_SHAPE(2), YK_F32, count_call, &calls));
    expect_error(YK_ERR_ARGUMENT, "from_memory: the memory is NULL");
    assert_null(yk_from_memory((char *)memory + 1, YK_SHAPE(2), YK_F32, count_call, &calls));
    expect_error(YK_ERR_ARGUMENT, "from_memory: the memory is not aligned to the 4 bytes of a float32");
    assert_null(yk_from_memory(memory, YK_SHAPE(-1), YK_F32, count_call, &calls));
    expect_error(YK_ERR_SHAPE, "from_memory: size -1");
    assert_int_equal(calls, 1); /* the calls that failed left the memory to its owner */
}

static void like_another(void **state)
{
    (void)state;
    yk_tensor_options options = *YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .device = test_device(1));
    yk_tensor *x = yk_ones(YK_SHAPE(2, 3, 4), &options);
    yk_tensor *turned = yk__tensor_view(x, 3, (int64_t[]){4, 2, 3}, (int64_t[]){1, 12, 4}, 0);
    yk_tensor *gaps = yk__tensor_view(x, 2, (int64_t[]){2, 2}, (int64_t[]){12, 2}, 0);
    yk_tensor *made[] = {yk_empty_like(turned), yk_zeros_like(turned), yk_ones_like(turned), yk_full_like(turned, 2),
                         yk_randn_like(turned)};
    for (int i = 0; i < 5; i++) {
        assert_true(yk_same_shape(made[i], turned));
        assert_int_equal(yk_tensor_dtype(made[i]), YK_F64);
        assert_int_equal(yk_tensor_device(made[i]).index, 1);
        assert_ptr_not_equal(data_ptr(made[i]), data_ptr(x));
        if (i < 4)
            assert_true(yk__same_strides(made[i], turned)); /* dense: the memory order is kept */
    }
    expect_all(made[1], 0);
    expect_all(made[2], 1);
    expect_all(made[3], 2);
    assert_true(yk_is_contiguous(yk_zeros_like(gaps)));
    assert_null(yk_zeros_like(NULL));
    expect_error(YK_ERR_ARGUMENT, "zeros_like: the tensor is NULL");
    assert_null(yk_randn_like(NULL));
    expect_error(YK_ERR_ARGUMENT, "randn_like: the tensor is NULL");
    yk_tensor_release(turned);
    yk_tensor_release(gaps);
}

static void impossible_tensors(void **state)
{
    (void)state;
    const struct {
        int ndim;
        int64_t shape[9];
        yk_status status;
        const char *message;
    } cases[] = {
        {2, {2, -3}, YK_ERR_SHAPE, "zeros: size -3 of dimension 1 is negative in shape (2, -3)"},
        {9, {1, 1, 1, 1, 1, 1, 1, 1, 1}, YK_ERR_SHAPE, "zeros: 9 dimensions; a tensor has 0 to 8"},
        {-1, {1}, YK_ERR_SHAPE, "zeros: -1 dimensions"},
        {1, {INT64_MAX}, YK_ERR_SHAPE, "zeros: shape (9223372036854775807,) has more elements than fit in memory"},
        {2, {(int64_t)1 << 32, (int64_t)1 << 32}, YK_ERR_SHAPE, "more elements than fit"},
        {3, {0, (int64_t)1 << 40, (int64_t)1 << 40}, YK_ERR_SHAPE, "more elements than fit"},
        {8,
         {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX},
         YK_ERR_SHAPE,
         "9223372036854775807) has more elements than fit"},
        {1, {(int64_t)1 << 58}, YK_ERR_MEMORY, "out of memory"},
        {2,
         {(int64_t)1 << 24, (int64_t)1 << 24},
         YK_ERR_MEMORY,
         test_device_type == YK_CPU ? "out of memory: 1125899906842624 bytes were asked for"
                                    : "cuda:0: out of memory: 1048576.00 GiB were asked for"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_null(yk_zeros(cases[i].ndim, cases[i].shape, NULL));
        expect_error(cases[i].status, cases[i].message);
    }
    assert_null(yk_zeros(2, NULL, NULL));
    expect_error(YK_ERR_ARGUMENT, "zeros: the shape is NULL");
    assert_null(yk_zeros(YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .dtype = (yk_dtype)42)));
    expect_error(YK_ERR_DTYPE, "zeros: 42 is not a dtype");
    assert_null(yk_zeros(YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64, .requires_grad = true)));
    expect_error(YK_ERR_DTYPE, "zeros: only floating tensors can require a gradient, this one is int64");
    assert_null(yk_zeros(YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .device = test_device(2))));
    expect_error(YK_ERR_DEVICE, device_text("device cpu:2 does not exist"));
    if (test_device_type == YK_CPU) {
        assert_null(yk_zeros(YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .device = {YK_CUDA, 0})));
        expect_error(YK_ERR_UNSUPPORTED, "cuda"); /* the plug-in, the driver or a GPU is missing (cuda.sh) */
    }
}

static void without_a_scope(void **state)
{
    (void)state;
    yk_tensor *kept = yk_tensor_retain(yk_ones(YK_SHAPE(2), NULL));
    yk_scope_end(scope);
    float number = 1;
    yk_tensor *made[] = {yk_zeros(YK_SHAPE(2), NULL),
                         yk_from_data(&number, YK_SCALAR, NULL),
                         yk_randperm(3),
                         yk_from_memory(&number, YK_SCALAR, YK_F32, NULL, NULL),
                         yk_zeros_like(kept),
                         yk_arange(0, 3, 1, NULL)};
    for (int i = 0; i < 6; i++)
        assert_null(made[i]);
    expect_error(YK_ERR_STATE, "zeros: no scope is open on this thread; call yk_scope_begin first");
    yk_tensor_release(kept);
    scope = yk_scope_begin();
    yk_memory_info info;
    expect_ok(yk_device_memory(test_device(0), &info));
    assert_int_equal(info.allocated, 0);
}

int main(void)
{
    use_devices(2);
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_scope, close_scope)
    const struct CMUnitTest tests[] = {
        TEST(filled),
        TEST(counted),
        TEST(random_numbers),
        TEST(random_integers),
        TEST(random_numbers_come_again),
        TEST(from_the_callers_data),
        TEST(over_the_callers_memory),
        TEST(like_another),
        TEST(impossible_tensors),
        TEST(without_a_scope),
    };
    return cmocka_run_group_tests_name("tensor/create", tests, NULL, NULL);
}
