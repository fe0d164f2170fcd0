/* Samplers: orders of a program's own, draws by weights, over several ranks and after resuming. */
#include <math.h>

#include "tests/data/files.h"

#include <yoke/ops.h>

static yk_dataset *rows(int64_t count)
{
    return yk_tensor_dataset(yk_reshape(yk_arange(0, (double)count, 1, NULL), YK_SHAPE(count, 1)));
}

/* The samples of the epoch that comes next, as many as fit. */
static int epoch_read(yk_loader *loader, int64_t *samples, int most)
{
    yk_batch batch;
    int count = 0;
    yk_loader_start(loader, YK_NEXT_EPOCH);
    while (yk_loader_next(loader, &batch)) {
        for (int64_t i = 0; i < batch.count && count < most; i++) {
            samples[count] = batch.samples[i];
            assert_true(yk_get(batch.input, (int64_t[]){i, 0}) == (double)samples[count++]);
        }
    }
    return count;
}

static int released;

static void count_release(void *user)
{
    (void)user;
    released++;
}

/* From the epoch's number downwards. */
static yk_status falling(void *user, uint64_t seed, int64_t epoch, int64_t *indices, int64_t count)
{
    (void)user, (void)seed;
    for (int64_t i = 0; i < count; i++)
        indices[i] = 5 + epoch - i;
    return YK_OK;
}

static void test_own(void **state)
{
    (void)state;
    released = 0;
    yk_scope scope = yk_scope_begin();
    yk_loader *loader =
        yk_loader_create(rows(8), YK_OPTIONS(yk_loader_options, .batch_size = 2, .workers = 1,
                                             .sampler = yk_sampler_create("falling", 5, falling, NULL, count_release)));
    assert_int_equal(yk_loader_length(loader), 3);
    assert_int_equal(yk_loader_samples(loader), 5);
    int64_t samples[8];
    assert_int_equal(epoch_read(loader, samples, 8), 5);
    assert_memory_equal(samples, ((int64_t[]){5, 4, 3, 2, 1}), 5 * sizeof(int64_t));
    assert_int_equal(epoch_read(loader, samples, 8), 5);
    assert_int_equal(samples[0], 6);
    assert_int_equal(epoch_read(loader, samples, 8), 5);
    yk_loader_start(loader, YK_NEXT_EPOCH); /* 8 is no sample */
    expect_error(YK_ERR_CALLBACK,
                 "loader of tensors: falling, epoch 3: index 0 of 5 is 8, and the data set has 8 samples");
    yk_batch batch;
    assert_false(yk_loader_next(loader, &batch));
    yk_clear_error();
    yk_loader_start(loader, 0);
    assert_true(yk_loader_next(loader, &batch));
    assert_int_equal(released, 0);
    yk_scope_end(scope);
    assert_int_equal(released, 1);
    assert_null(yk_sampler_create("none", 5, NULL, NULL, count_release));
    expect_error(YK_ERR_ARGUMENT, "sampler_create: the order function is NULL");
    assert_int_equal(released, 2);
}

/* Ranks divide the order as they divide a shuffle, and a state goes on in the middle of it. */
static void test_ranks(void **state)
{
    (void)state;
    yk_sampler *sampler = yk_sampler_retain(yk_sampler_create("falling", 6, falling, NULL, NULL));
    for (int rank = 0; rank < 2; rank++) {
        yk_loader *loader = yk_loader_create(
            rows(8), YK_OPTIONS(yk_loader_options, .batch_size = 1, .rank = rank, .world_size = 2, .sampler = sampler));
        int64_t samples[8];
        assert_int_equal(epoch_read(loader, samples, 8), 3);
        assert_int_equal(samples[0], 5 - rank);
        assert_int_equal(samples[2], 1 - rank);
        yk_batch batch;
        yk_loader_start(loader, 1);
        assert_true(yk_loader_next(loader, &batch));
        yk_loader_state at = yk_loader_get_state(loader);
        yk_loader *alone =
            yk_loader_create(rows(8), YK_OPTIONS(yk_loader_options, .batch_size = 1, .sampler = sampler));
        expect_ok(yk_loader_set_state(alone, &at));
        assert_true(yk_loader_next(alone, &batch));
        assert_int_equal(batch.samples[0], 4); /* 6 and 5 were taken */
        yk_loader *other = yk_loader_create(rows(8), YK_OPTIONS(yk_loader_options, .batch_size = 1));
        assert_int_equal(yk_loader_set_state(other, &at), YK_ERR_ARGUMENT);
        expect_error(YK_ERR_ARGUMENT, "samples in the data set is 8, but it was 6");
    }
    yk_sampler_release(sampler);
}

static void test_weights(void **state)
{
    (void)state;
    enum { DRAWS = 20000 };
    static int64_t samples[DRAWS], again[DRAWS];
    yk_sampler *sampler = yk_weighted_sampler((double[]){1, 0, 3, 0.5, 0}, 5, DRAWS, true);
    yk_loader *loader = yk_loader_create(rows(5), YK_OPTIONS(yk_loader_options, .batch_size = 100, .sampler = sampler));
    assert_int_equal(epoch_read(loader, samples, DRAWS), DRAWS);
    int64_t seen[5] = {0};
    for (int i = 0; i < DRAWS; i++)
        seen[samples[i]]++;
    assert_int_equal(seen[1] + seen[4], 0);
    const double expected[] = {DRAWS / 4.5, 0, 3 * DRAWS / 4.5, 0.5 * DRAWS / 4.5, 0};
    for (int i = 0; i < 5; i++)
        assert_true(fabs((double)seen[i] - expected[i]) < 5 * sqrt(expected[i] + 1));
    assert_int_equal(epoch_read(loader, again, DRAWS), DRAWS);
    assert_memory_not_equal(samples, again, sizeof(samples));
    yk_loader *same = yk_loader_create(rows(5), YK_OPTIONS(yk_loader_options, .batch_size = 100, .sampler = sampler));
    assert_int_equal(epoch_read(same, again, DRAWS), DRAWS);
    assert_memory_equal(samples, again, sizeof(samples));
}

/* Each sample once at most, and the first one of an epoch by the weights. */
static void test_without_replacement(void **state)
{
    (void)state;
    yk_sampler *sampler = yk_weighted_sampler((double[]){1, 0, 3, 1}, 4, 3, false);
    yk_loader *loader = yk_loader_create(rows(4), YK_OPTIONS(yk_loader_options, .batch_size = 4, .sampler = sampler));
    int first[4] = {0};
    for (int epoch = 0; epoch < 2000; epoch++) {
        int64_t samples[4];
        assert_int_equal(epoch_read(loader, samples, 4), 3);
        assert_int_equal(1 << samples[0] | 1 << samples[1] | 1 << samples[2], 1 | 4 | 8);
        first[samples[0]]++;
    }
    assert_true(fabs(first[2] - 1200.0) < 5 * sqrt(1200));
    assert_true(fabs(first[0] - 400.0) < 5 * sqrt(400));
}

static void test_faults(void **state)
{
    (void)state;
    assert_null(yk_weighted_sampler((double[]){1, -2}, 2, 1, true));
    expect_error(YK_ERR_ARGUMENT, "weighted_sampler: weight 1 of 2 is -2");
    assert_null(yk_weighted_sampler((double[]){NAN, 1}, 2, 1, true));
    expect_error(YK_ERR_ARGUMENT, "weight 0 of 2 is nan");
    assert_null(yk_weighted_sampler((double[]){0, 0}, 2, 1, true));
    expect_error(YK_ERR_ARGUMENT, "the weights sum to 0");
    assert_null(yk_weighted_sampler((double[]){1, 0}, 2, 2, false));
    expect_error(YK_ERR_ARGUMENT, "2 samples without replacement, of 1 whose weight is not 0");
    assert_null(yk_weighted_sampler((double[]){1}, 1, -1, true));
    expect_error(YK_ERR_ARGUMENT, "-1 samples");
    assert_null(yk_weighted_sampler(NULL, 1, 1, true));
    expect_error(YK_ERR_ARGUMENT, "weighted_sampler: the array of weights is NULL");
    yk_sampler *two = yk_weighted_sampler((double[]){1, 1}, 2, 2, true);
    assert_null(yk_loader_create(rows(3), YK_OPTIONS(yk_loader_options, .batch_size = 1, .sampler = two)));
    expect_error(YK_ERR_ARGUMENT, "the weighted sampler has weights for 2 samples, and the data set has 3");
    assert_null(
        yk_loader_create(rows(2), YK_OPTIONS(yk_loader_options, .batch_size = 1, .shuffle = true, .sampler = two)));
    expect_error(YK_ERR_ARGUMENT, "a sampler gives the order, and shuffle another");
}

int main(void)
{
    const struct CMUnitTest tests[] = {data_test(test_own), data_test(test_ranks), data_test(test_weights),
                                       data_test(test_without_replacement), data_test(test_faults)};
    return cmocka_run_group_tests_name("weighted_sampler", tests, NULL, NULL);
}
