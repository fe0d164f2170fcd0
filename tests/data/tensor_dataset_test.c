/* Tensors in memory, sets one behind the other, parts at random, another transform. */
#include "tests/data/files.h"

#include <math.h>
#include <string.h>

#include <yoke/ops.h>

/* x (6, 2): 0 to 11; y: the classes 0, 1, 2, 0, 1, 2. */
static yk_dataset *six_rows(yk_tensor **x)
{
    *x = yk_reshape(yk_arange(0, 12, 1, NULL), 2, (int64_t[]){6, 2});
    yk_tensor *y =
        yk_from_data((int64_t[]){0, 1, 2, 0, 1, 2}, 1, (int64_t[]){6}, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    yk_dataset *set = yk_tensor_dataset(*x, y);
    assert_non_null(set);
    return set;
}

static double first_of(yk_dataset *set, int64_t i)
{
    yk_tensor *x = yk_dataset_get(set, i, YK_F64, NULL);
    assert_non_null(x);
    return yk_get(yk_flatten(x, 0, -1), (int64_t[]){0});
}

static void test_rows(void **state)
{
    (void)state;
    yk_tensor *x;
    yk_dataset *set = six_rows(&x);
    assert_int_equal(yk_dataset_length(set), 6);
    assert_int_equal(yk_dataset_label(set, 5), 2);
    assert_int_equal(yk_dataset_label(set, 6), -1);
    int64_t label = -1;
    yk_tensor *row = yk_dataset_get(set, 4, YK_F32, &label);
    assert_int_equal(label, 1);
    assert_int_equal(yk_ndim(row), 1);
    assert_int_equal(yk_size(row, 0), 2);
    assert_true(yk_get(row, (int64_t[]){1}) == 9);

    yk_loader *loader = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 4, .workers = 2));
    yk_batch batch;
    assert_true(yk_loader_next(loader, &batch));
    assert_int_equal(yk_size(batch.input, 0), 4);
    assert_int_equal(yk_size(batch.input, 1), 2);
    assert_true(yk_get(batch.input, (int64_t[]){3, 0}) == 6);
    assert_int_equal(yk_tensor_dtype(batch.target), YK_I64);
    assert_true(yk_get(batch.target, (int64_t[]){2}) == 2);
    assert_true(yk_loader_next(loader, &batch));
    assert_int_equal(batch.count, 2);
    assert_false(yk_loader_next(loader, &batch));
}

/* A tensor that is written to later changes its set; a transposed one, a leaf of a graph and any dtype are copied.
 */
static void test_forms(void **state)
{
    (void)state;
    yk_device host = {YK_CPU, 0};
    yk_tensor *x = yk_to(yk_zeros(2, (int64_t[]){3, 2}, NULL), host);
    yk_dataset *set = yk_tensor_dataset(x);
    assert_non_null(yk_fill_(x, 7));
    assert_true(first_of(set, 2) == 7);

    yk_tensor *wide = yk_reshape(yk_arange(0, 6, 1, NULL), 2, (int64_t[]){2, 3});
    expect_ok(yk_set_requires_grad(wide, true));
    yk_dataset *columns = yk_tensor_dataset(yk_transpose(wide, 0, 1), yk_ones(1, (int64_t[]){3}, NULL),
                                            yk_zeros(3, (int64_t[]){3, 0, 2}, NULL));
    assert_non_null(columns);
    assert_true(first_of(columns, 2) == 2);
    yk_tensor *all[YK_SAMPLE_TENSORS];
    int count = 0;
    expect_ok(yk_dataset_get_list(columns, 1, YK_F32, all, &count));
    assert_int_equal(count, 3);
    assert_true(yk_item(all[1]) == 1);
    assert_int_equal(yk_numel(all[2]), 0);

    yk_tensor *bytes = yk_full(2, (int64_t[]){2, 2}, 200, YK_OPTIONS(yk_tensor_options, .dtype = YK_U8));
    yk_loader *loader = yk_loader_create(yk_tensor_dataset(bytes), YK_OPTIONS(yk_loader_options, .batch_size = 2));
    yk_batch batch;
    assert_true(yk_loader_next(loader, &batch));
    assert_int_equal(yk_tensor_dtype(batch.input), YK_U8);
    assert_true(yk_get(batch.input, (int64_t[]){1, 1}) == 200);
    assert_null(batch.target);
}

static void test_faults(void **state)
{
    (void)state;
    yk_tensor *x = yk_zeros(2, (int64_t[]){3, 2}, NULL);
    assert_null(yk_tensor_dataset(x, yk_zeros(1, (int64_t[]){4}, NULL)));
    expect_error(YK_ERR_SHAPE, "tensor_dataset: tensor 0 has 3 rows and tensor 1 has 4");
    assert_null(yk_tensor_dataset(yk_scalar(1, NULL)));
    expect_error(YK_ERR_SHAPE, "tensor 0 of 1 is a single number");
    assert_null(yk_tensor_dataset(x, NULL));
    expect_error(YK_ERR_ARGUMENT, "tensor 1 of 2 is NULL");
    assert_null(yk_tensor_dataset(yk_zeros(2, (int64_t[]){3, 0}, NULL)));
    expect_error(YK_ERR_SHAPE, "the rows of the inputs, (3, 0), have no elements");
    assert_null(yk_tensor_dataset(x, x, x, x, x, x, x, x, x));
    expect_error(YK_ERR_ARGUMENT, "tensor_dataset: 9 tensors; expected 1 to 8");
    assert_int_equal(yk_dataset_length(yk_tensor_dataset(yk_zeros(2, (int64_t[]){0, 2}, NULL))), 0);
}

static void test_random_split(void **state)
{
    (void)state;
    yk_tensor *x;
    yk_dataset *set = six_rows(&x), *parts[3], *again[3];
    expect_ok(yk_random_split(set, (double[]){0.5, 0.25, 0.25}, 3, 7, parts)); /* 3, 1, 1, and one more for the first */
    assert_int_equal(yk_dataset_length(parts[0]), 4);
    assert_int_equal(yk_dataset_length(parts[1]), 1);
    assert_int_equal(yk_dataset_length(parts[2]), 1);
    expect_ok(yk_random_split(set, (double[]){4, 1, 1}, 3, 7, again));
    int seen[6] = {0};
    for (int p = 0; p < 3; p++) {
        for (int64_t i = 0; i < yk_dataset_length(parts[p]); i++) {
            double first = first_of(parts[p], i);
            assert_true(first == first_of(again[p], i));
            seen[(int)first / 2]++;
        }
    }
    for (int i = 0; i < 6; i++)
        assert_int_equal(seen[i], 1);
    expect_ok(yk_random_split(set, (double[]){6, 0}, 2, 8, parts));
    assert_int_equal(yk_dataset_length(parts[1]), 0);

    assert_int_equal(yk_random_split(set, (double[]){4, 1}, 2, 0, parts), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "random_split: the lengths sum to 5, and 6 samples are there");
    assert_int_equal(yk_random_split(set, (double[]){0.5, 0.4}, 2, 0, parts), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "length 0 of 2 is 0.5, and all sum to 0.9");
    assert_int_equal(yk_random_split(set, (double[]){7, -1}, 2, 0, parts), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "length 1 of 2 is -1");
    assert_int_equal(yk_random_split(set, (double[]){NAN}, 1, 0, parts), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "length 0 of 1 is nan");
    assert_int_equal(yk_random_split(set, NULL, 1, 0, parts), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "random_split: the array of lengths is NULL");
    assert_int_equal(yk_random_split(set, (double[]){1}, 0, 0, parts), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "random_split: 0 parts");
}

static yk_status add_hundred(void *user, yk_sample *sample)
{
    (void)user;
    int64_t n = sample->shape[0];
    const float *from = sample->data;
    float *to = yk_sample_allocate(sample, YK_F32, 1, &n);
    for (int64_t i = 0; to && i < n; i++)
        to[i] = from[i] + 100;
    return to ? YK_OK : YK_ERR_MEMORY;
}

static void test_with_transform(void **state)
{
    (void)state;
    yk_tensor *x;
    yk_dataset *set = six_rows(&x);
    yk_dataset *more = yk_dataset_with_transform(set, yk_transform_create("add", add_hundred, NULL, NULL));
    assert_true(first_of(more, 1) == 102);
    assert_true(first_of(set, 1) == 2);
    assert_int_equal(yk_dataset_label(more, 1), 1);
    assert_true(first_of(yk_dataset_with_transform(more, NULL), 1) == 2); /* in place of it, not behind it */
    yk_dataset *pictures = yk_glyphs(YK_TEST, yk_default_transform("glyphs", YK_TEST, false), 1);
    yk_tensor *plain = yk_dataset_get(yk_dataset_with_transform(pictures, NULL), 3, YK_F32, NULL),
              *same = yk_dataset_get(yk_glyphs(YK_TEST, NULL, 1), 3, YK_F32, NULL);
    float a[28 * 28], b[28 * 28];
    expect_ok(yk_tensor_read(plain, a, sizeof(a)));
    expect_ok(yk_tensor_read(same, b, sizeof(b)));
    assert_memory_equal(a, b, sizeof(a));
    assert_null(yk_dataset_with_transform(NULL, NULL));
    expect_error(YK_ERR_ARGUMENT, "dataset_with_transform: the data set is NULL");
}

static void test_concat(void **state)
{
    (void)state;
    yk_tensor *x;
    yk_dataset *set = six_rows(&x);
    yk_dataset *hundreds = yk_dataset_with_transform(set, yk_transform_create("add", add_hundred, NULL, NULL));
    yk_dataset *none = yk_subset(set, NULL, 0);
    yk_dataset *both = yk_concat_dataset(set, none, hundreds, yk_subset(set, (int64_t[]){5}, 1));
    assert_non_null(both);
    assert_int_equal(yk_dataset_length(both), 13);
    assert_true(first_of(both, 5) == 10);
    assert_true(first_of(both, 6) == 100);
    assert_true(first_of(both, 11) == 110);
    assert_true(first_of(both, 12) == 10);
    assert_int_equal(yk_dataset_label(both, 7), 1);
    char text[64];
    assert_string_equal(yk_dataset_describe(both, 12, text, sizeof(text)), "tensors sample 5");

    assert_null(yk_concat_dataset(set, NULL));
    expect_error(YK_ERR_ARGUMENT, "concat_dataset: data set 1 of 2 is NULL");
    assert_null(yk_concat_dataset(yk_glyphs(YK_TEST, NULL, 1), set));
    expect_error(YK_ERR_ARGUMENT, "glyphs has 10 classes, and data set 1, tensors, has 0");
}

/* Pictures through their own transforms, and through a common one, have the bits that they have alone. */
static void test_concat_of_pictures(void **state)
{
    (void)state;
    yk_transform *usual = yk_default_transform("glyphs", YK_TRAIN, true);
    yk_transform *crop = yk_compose(yk_resize(20), yk_center_crop(28));
    yk_dataset *a = yk_glyphs(YK_TEST, usual, 1), *b = yk_glyphs(YK_TRAIN, usual, 1), *c = yk_glyphs(YK_TEST, crop, 1),
               *common = yk_concat_dataset(a, b), *own = yk_concat_dataset(c, b);
    yk_dataset *alone[] = {a, c}, *joined[] = {common, own};
    for (int k = 0; k < 2; k++) {
        yk_tensor *x = yk_dataset_get(alone[k], 11, YK_F32, NULL), *y = yk_dataset_get(joined[k], 11, YK_F32, NULL);
        assert_int_equal(yk_tensor_dtype(y), YK_F32);
        float p[28 * 28], q[28 * 28];
        expect_ok(yk_tensor_read(x, p, sizeof(p)));
        expect_ok(yk_tensor_read(y, q, sizeof(q)));
        assert_memory_equal(p, q, sizeof(p));
    }
    assert_int_equal(yk_dataset_classes(own), 10);
    assert_non_null(yk_dataset_get(own, 2000 + 5, YK_F32, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {data_test(test_rows),
                                       data_test(test_forms),
                                       data_test(test_faults),
                                       data_test(test_random_split),
                                       data_test(test_with_transform),
                                       data_test(test_concat),
                                       data_test(test_concat_of_pictures)};
    return cmocka_run_group_tests_name("tensor_dataset", tests, NULL, NULL);
}
