/* Samples that cannot be read: an error, or the next sample in their place, equal for any workers and ranks. */
#include "tests/data/files.h"

#include "tests/data/jpeg.h"

enum { LENGTH = 40, BATCH = 4 };

/* True for the samples that cannot be read, of a set of numbers: 3, 4, 17 and 39. */
static bool is_bad(int64_t index)
{
    return index == 3 || index == 4 || index == 17 || index == 39;
}

static yk_status get(void *context, int64_t index, yk_sample *sample)
{
    const int64_t *limit = context;
    if (is_bad(index) || index >= *limit)
        return yk_set_error(YK_ERR_IO, "file %lld is gone", (long long)index);
    float *value = yk_sample_allocate(sample, YK_F32, YK_SHAPE(1));
    if (!value)
        return YK_ERR_MEMORY;
    *value = (float)index + (float)yk_sample_uniform(sample) / 2; /* its own draw, whatever place it is in */
    yk_sample_label(sample, index);
    return YK_OK;
}

static yk_dataset *make_set(int64_t *limit, int64_t length)
{
    return yk_dataset_create(&(yk_dataset_table){.name = "files", .length = length, .get = get}, limit, NULL);
}

static int64_t stand_in(int64_t index)
{
    while (is_bad(index))
        index = (index + 1) % LENGTH;
    return index;
}

/* One epoch's samples in the order given, in `indices`, and the values in `values`; how many were skipped. */
static int64_t run_epoch(yk_dataset *set, int workers, int rank, int world, bool shuffle, int64_t *indices,
                         float *values, int64_t *count)
{
    yk_loader *l =
        yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = BATCH, .workers = workers, .shuffle = shuffle,
                                         .rank = rank, .world_size = world, .seed = 5, .on_error = YK_SKIP));
    assert_non_null(l);
    yk_batch batch;
    int64_t skipped = 0;
    *count = 0;
    for (yk_loader_start(l, 1); yk_loader_next(l, &batch);) {
        const float *x = yk_tensor_data(batch.input);
        const int64_t *labels = yk_tensor_data(batch.target);
        for (int64_t i = 0; i < batch.count; i++) {
            assert_int_equal(labels[i], batch.samples[i]);
            indices[*count] = batch.samples[i];
            values[(*count)++] = x[i];
        }
        skipped += batch.skipped;
        assert_int_equal(yk_loader_skipped(l), skipped);
    }
    expect_ok(0);
    assert_int_equal(*count, yk_loader_samples(l));
    yk_loader_start(l, 2);
    assert_int_equal(yk_loader_skipped(l), 0);
    return skipped;
}

static void test_the_next_stands_in(void **state)
{
    (void)state;
    int64_t limit = LENGTH, count, indices[LENGTH], again[LENGTH];
    float values[LENGTH], others[LENGTH];
    yk_dataset *set = make_set(&limit, LENGTH);
    assert_int_equal(run_epoch(set, 0, 0, 1, false, indices, values, &count), 4);
    for (int64_t i = 0; i < LENGTH; i++)
        assert_int_equal(indices[i], stand_in(i));
    assert_true(values[3] == values[4] && values[3] == values[5]); /* the same sample, draws included */
    assert_true(values[39] == values[0]);
    int64_t skipped = run_epoch(set, 0, 0, 1, true, indices, values, &count);
    assert_int_equal(skipped, 4);
    for (int workers = 1; workers <= 3; workers++) {
        assert_int_equal(run_epoch(set, workers, 0, 1, true, again, others, &count), skipped);
        assert_memory_equal(again, indices, sizeof(indices));
        assert_memory_equal(others, values, sizeof(values));
    }
    /* Three ranks: equally many batches, and together what one has, but for the samples that fill up the epoch. */
    int64_t all = 0, most = 0;
    for (int rank = 0; rank < 3; rank++) {
        int64_t part[LENGTH];
        all += run_epoch(set, 1, rank, 3, true, part, others, &count);
        assert_int_equal(count, (LENGTH + 2) / 3);
        for (int64_t i = 0; i < count && rank + 3 * i < LENGTH; i++)
            assert_int_equal(part[i], indices[rank + 3 * i]);
        most += count;
    }
    assert_true(all >= 4 && all <= 4 + most - LENGTH);
}

/* Errors where unreadable samples are not replaced, and where no sample nearby can be read. */
static void test_errors(void **state)
{
    (void)state;
    int64_t limit = LENGTH;
    yk_batch batch;
    yk_dataset *set = make_set(&limit, LENGTH);
    yk_loader *l = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = BATCH));
    assert_false(yk_loader_next(l, &batch));
    expect_error(YK_ERR_IO, "files: sample 3: file 3 is gone");
    assert_int_equal(yk_loader_skipped(l), 0);
    assert_int_equal(yk_loader_skipped(NULL), 0);
    assert_null(yk_loader_skipped_message(NULL));
    assert_null(yk_loader_skipped_message(l));
    limit = 0;
    l = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = BATCH, .on_error = YK_SKIP));
    assert_false(yk_loader_next(l, &batch));
    expect_error(YK_ERR_IO, "files: sample 0: file 0 is gone; nor can the 39 samples after it be read");
    l = yk_loader_create(make_set(&limit, 5000),
                         YK_OPTIONS(yk_loader_options, .batch_size = BATCH, .on_error = YK_SKIP));
    assert_false(yk_loader_next(l, &batch));
    expect_error(YK_ERR_IO, "files: sample 0: file 0 is gone; nor can the 999 samples after it be read");
    assert_null(yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 1, .on_error = (yk_on_error)7)));
    expect_error(YK_ERR_ARGUMENT, "loader of files: on_error is 7, expected YK_FAIL or YK_SKIP");
}

static yk_status refuse(void *user, yk_sample *sample)
{
    (void)user, (void)sample;
    return yk_set_error(YK_ERR_FORMAT, "no");
}

/* A transform that fails is the program's mistake, and no damaged file. */
static void test_a_transform_is_not_skipped(void **state)
{
    (void)state;
    int64_t limit = LENGTH;
    yk_batch batch;
    yk_dataset *set = yk_dataset_create(&(yk_dataset_table){.name = "files", .length = LENGTH, .get = get}, &limit,
                                        yk_transform_create("refuse", refuse, NULL, NULL));
    yk_loader *l = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = BATCH, .on_error = YK_SKIP));
    assert_false(yk_loader_next(l, &batch));
    expect_error(YK_ERR_FORMAT, "files: sample 0: no");
}

static yk_status sum_up(void *user, const yk_sample *samples, int64_t count, yk_tensor **tensors, int *n_tensors)
{
    (void)user;
    tensors[0] =
        yk_zeros(YK_SHAPE(count), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64, .device = (yk_device){YK_CPU, 0}));
    int64_t *to = yk_tensor_data(tensors[0]);
    for (int64_t i = 0; i < count; i++)
        to[i] = samples[i].index;
    *n_tensors = 1;
    return YK_OK;
}

/* A collate gets the samples that stand in, and a resumed epoch is the same from there on. */
static void test_collate_and_seek(void **state)
{
    (void)state;
    int64_t limit = LENGTH;
    yk_dataset *set = make_set(&limit, LENGTH);
    yk_loader *l = yk_loader_create(
        set, YK_OPTIONS(yk_loader_options, .batch_size = BATCH, .workers = 2, .collate = sum_up, .on_error = YK_SKIP));
    yk_loader_start(l, 0);
    expect_ok(yk_loader_seek(l, 4));
    yk_batch batch;
    assert_true(yk_loader_next(l, &batch));
    const int64_t *indices = yk_tensor_data(batch.input);
    for (int64_t i = 0; i < BATCH; i++) {
        assert_int_equal(indices[i], stand_in(16 + i));
        assert_int_equal(batch.samples[i], stand_in(16 + i));
    }
    assert_int_equal(batch.skipped, 1);
    assert_string_equal(yk_loader_skipped_message(l), "files: sample 17: file 17 is gone");
    yk_loader_start(l, 0);
    assert_null(yk_loader_skipped_message(l));
}

/* A folder of pictures of which the first is damaged: its size is that of the first that can be read. */
static void test_a_damaged_picture(void **state)
{
    (void)state;
    unsigned char pixels[12 * 10 * 3], *jpeg;
    golden_pixels(pixels, sizeof(pixels));
    size_t size = make_jpeg(&jpeg, pixels, 12, 10, 3, JCS_RGB, 90, 0, 1, 1);
    static const char *const folders[] = {"d", "d/train", "d/train/a", "d/train/b"};
    for (int i = 0; i < 4; i++)
        assert_int_equal(mkdir(folders[i], 0755), 0);
    write_file("d/train/a/0.jpg", jpeg, size / 2);
    write_file("d/train/a/1.jpg", jpeg, size);
    write_file("d/train/b/0.jpg", jpeg, size);
    free(jpeg);
    yk_transform *transform = yk_default_transform("image-folder:d", YK_TRAIN, false);
    expect_ok(!transform);
    yk_dataset *set = yk_dataset_open("image-folder:d", YK_TRAIN, transform);
    yk_loader *l = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 3, .on_error = YK_SKIP));
    yk_batch batch;
    assert_true(yk_loader_next(l, &batch));
    assert_int_equal(batch.skipped, 1);
    assert_int_equal(batch.samples[0], 1);
    assert_int_equal(yk_size(batch.input, 2), 10);
    l = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 3));
    assert_false(yk_loader_next(l, &batch));
    expect_error(YK_ERR_FORMAT, "image-folder: sample 0 (d/train/a/0.jpg): bad JPEG: Premature end of JPEG file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {data_test(test_the_next_stands_in), data_test(test_errors),
                                       data_test(test_a_transform_is_not_skipped), data_test(test_collate_and_seek),
                                       data_test(test_a_damaged_picture)};
    return cmocka_run_group_tests_name("unreadable", tests, NULL, NULL);
}
