/* Loaders: the stream of batches is the same for any number of workers, and failures reach the caller. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include <yoke/comm.h>

#include "tests/data/files.h"

#include "base/core.h"

/* ---- a data set of a user's own: sample i is i, i + 0.5, and its label i % 7 ----------------------------- */
typedef struct numbers {
    int64_t fail_at;      /* -1: never */
    int64_t odd_shape_at; /* -1: never */
    int destroyed;
    bool workers;    /* there are several: the sample that fails then waits for sample 60, which takes long */
    atomic_int slow; /* calls that are busy with sample 60 */
} numbers;

static yk_status numbers_get(void *context, int64_t index, yk_sample *sample)
{
    numbers *n = context;
    if (n->workers && index == 60) {
        n->slow++;
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
        n->slow--;
    }
    for (int i = 0; n->workers && index == n->fail_at && !n->slow && i < 1000; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    if (index == n->fail_at)
        return yk_set_error(YK_ERR_FORMAT, "the dog ate it");
    float *to = yk_sample_allocate(sample, YK_F32, 1, (int64_t[]){index == n->odd_shape_at ? 3 : 2});
    if (!to)
        return YK_ERR_MEMORY;
    to[0] = (float)index;
    to[1] = (float)index + 0.5f;
    yk_sample_label(sample, index % 7);
    return YK_OK;
}

static void numbers_describe(void *context, int64_t index, char *text, size_t size)
{
    (void)context;
    snprintf(text, size, "drawer %lld", (long long)index);
}

static void numbers_destroy(void *context)
{
    ((numbers *)context)->destroyed++;
}

static yk_dataset *numbers_set(numbers *n, int64_t length, yk_transform *transform)
{
    *n = (numbers){.fail_at = -1, .odd_shape_at = -1};
    return yk_dataset_create(&(yk_dataset_table){.name = "numbers",
                                                 .length = length,
                                                 .classes = 7,
                                                 .get = numbers_get,
                                                 .describe = numbers_describe,
                                                 .destroy = numbers_destroy},
                             n, transform);
}

static void test_user_data_set(void **state)
{
    (void)state;
    static numbers n; /* outlives the test: its sets go in the teardown */
    yk_scope scope = yk_scope_begin();
    yk_dataset *set = numbers_set(&n, 10, NULL);
    yk_loader *loader = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 4));
    assert_int_equal(yk_loader_length(loader), 3);
    assert_int_equal(yk_loader_samples(loader), 10);
    int64_t seen = 0;
    yk_batch batch;
    for (yk_loader_start(loader, 0); yk_loader_next(loader, &batch);) {
        assert_int_equal(batch.index, seen / 4);
        assert_int_equal(batch.count, seen == 8 ? 2 : 4);
        assert_int_equal(yk_size(batch.input, 0), batch.count);
        assert_int_equal(yk_size(batch.input, 1), 2);
        assert_int_equal(yk_tensor_dtype(batch.input), YK_F32);
        assert_int_equal(yk_tensor_dtype(batch.target), YK_I64);
        assert_int_equal(yk_ndim(batch.target), 1);
        const float *values = yk_tensor_data(batch.input);
        const int64_t *labels = yk_tensor_data(batch.target);
        for (int64_t i = 0; i < batch.count; i++, seen++) {
            assert_int_equal(batch.samples[i], seen);
            assert_int_equal(labels[i], seen % 7);
            assert_true(values[2 * i] == (float)seen && values[2 * i + 1] == (float)seen + 0.5f);
        }
    }
    expect_ok(0);
    assert_int_equal(seen, 10);
    assert_false(yk_loader_next(loader, &batch)); /* the end stays the end */
    assert_null(batch.input);
    yk_loader *whole =
        yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 4, .drop_last = true, .dtype = YK_F64));
    assert_int_equal(yk_loader_length(whole), 2);
    assert_int_equal(yk_loader_samples(whole), 8);
    seen = 0;
    for (yk_loader_start(whole, 3); yk_loader_next(whole, &batch); seen += batch.count)
        assert_int_equal(yk_tensor_dtype(batch.input), YK_F64);
    assert_int_equal(seen, 8);
    yk_scope_end(scope);
    assert_int_equal(n.destroyed, 1);
}

/* ---- the stream ------------------------------------------------------------------------------------------ */
/* One number for all that an epoch gives, order included. */
static uint64_t stream_of(yk_loader *loader, int64_t epoch, int64_t from, int64_t *count)
{
    uint64_t hash = 14695981039346656037u;
    yk_batch batch;
    *count = 0;
    yk_loader_start(loader, epoch);
    if (from)
        expect_ok(yk_loader_seek(loader, from));
    for (int64_t index = from; yk_loader_next(loader, &batch); index++) {
        assert_int_equal(batch.index, index);
        const unsigned char *parts[] = {yk_tensor_data(batch.input), yk_tensor_data(batch.target)};
        size_t sizes[] = {(size_t)yk_numel(batch.input) * yk_dtype_size(yk_tensor_dtype(batch.input)),
                          (size_t)batch.count * 8};
        for (int p = 0; p < 2; p++)
            for (size_t i = 0; i < sizes[p]; i++)
                hash = (hash ^ parts[p][i]) * 1099511628211u;
        *count += batch.count;
    }
    expect_ok(0);
    return hash;
}

static yk_transform *augment(void)
{
    return yk_compose(yk_random_crop(28, 3), yk_random_horizontal_flip(0.5), yk_to_tensor(),
                      yk_normalize((double[]){0.5}, (double[]){0.5}, 1));
}

static void test_workers_change_nothing(void **state)
{
    (void)state;
    const yk_loader_options *const kinds[] = {YK_OPTIONS(yk_loader_options, .workers = 0),
                                              YK_OPTIONS(yk_loader_options, .workers = 1),
                                              YK_OPTIONS(yk_loader_options, .workers = 4),
                                              YK_OPTIONS(yk_loader_options, .workers = 4, .prefetch = 1),
                                              YK_OPTIONS(yk_loader_options, .workers = 2, .prefetch = 50),
                                              YK_OPTIONS(yk_loader_options, .workers = 3, .prefetch = 2)};
    static const yk_dtype dtypes[] = {YK_F32, YK_F64};
    for (int d = 0; d < 2; d++) {
        uint64_t expected[3] = {0}, middle = 0;
        for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
            yk_scope scope = yk_scope_begin();
            yk_loader_options options = *kinds[k];
            options.batch_size = 37;
            options.shuffle = true;
            options.seed = 5;
            options.dtype = dtypes[d];
            yk_loader *loader = yk_loader_create(yk_glyphs(YK_TEST, augment(), 0), &options);
            int64_t count;
            for (int64_t epoch = 2; epoch >= 0; epoch--) {
                uint64_t hash = stream_of(loader, epoch, 0, &count);
                assert_int_equal(count, 2000);
                if (k == 0)
                    expected[epoch] = hash;
                assert_true(hash == expected[epoch]);
            }
            uint64_t hash = stream_of(loader, 1, 20, &count);
            assert_int_equal(count, 2000 - 20 * 37);
            if (k == 0)
                middle = hash;
            assert_true(hash == middle);
            yk_scope_end(scope);
        }
        assert_true(expected[0] != expected[1] && expected[1] != expected[2]);
    }
}

/* The same epoch again gives the same random draws; another seed or epoch gives others, also without a shuffle. */
static void test_what_the_stream_depends_on(void **state)
{
    (void)state;
    yk_dataset *set = yk_glyphs(YK_TEST, augment(), 0);
    int64_t count;
    uint64_t hashes[2][2];
    for (uint64_t seed = 0; seed < 2; seed++)
        for (int64_t epoch = 0; epoch < 2; epoch++)
            hashes[seed][epoch] =
                stream_of(yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 100, .seed = seed)), epoch,
                          0, &count);
    assert_true(hashes[0][0] != hashes[0][1]);
    assert_true(hashes[0][0] != hashes[1][0]);
    assert_true(hashes[0][1] != hashes[1][1]);
    uint64_t again = stream_of(yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 100)), 1, 0, &count);
    assert_true(again == hashes[0][1]);
    /* The size of batches does not change the samples. */
    yk_loader *one = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 1, .shuffle = true));
    yk_loader *many =
        yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 500, .shuffle = true, .workers = 1));
    yk_batch a, b;
    yk_loader_start(many, 9);
    yk_loader_start(one, 9);
    for (int64_t i = 0; i < 2000; i++) {
        if (i % 500 == 0)
            assert_true(yk_loader_next(many, &b));
        assert_true(yk_loader_next(one, &a));
        assert_int_equal(a.samples[0], b.samples[i % 500]);
        assert_memory_equal(yk_tensor_data(a.input), (float *)yk_tensor_data(b.input) + i % 500 * 784, 784 * 4);
    }
}

static void test_shuffle_is_a_permutation(void **state)
{
    (void)state;
    static numbers n; /* outlives the test: its sets go in the teardown */
    enum { LENGTH = 1001 };
    yk_dataset *set = numbers_set(&n, LENGTH, NULL);
    yk_loader *loader =
        yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 10, .shuffle = true, .workers = 1));
    int64_t orders[3][LENGTH];
    yk_batch batch;
    for (int epoch = 0; epoch < 3; epoch++) {
        int at = 0;
        for (yk_loader_start(loader, epoch); yk_loader_next(loader, &batch);)
            for (int64_t i = 0; i < batch.count; i++)
                orders[epoch][at++] = batch.samples[i];
        assert_int_equal(at, LENGTH);
        char seen[LENGTH] = {0};
        int in_place = 0;
        for (int i = 0; i < LENGTH; i++) {
            assert_in_range(orders[epoch][i], 0, LENGTH - 1);
            assert_int_equal(seen[orders[epoch][i]]++, 0);
            in_place += orders[epoch][i] == i;
        }
        assert_in_range(in_place, 0, 10);
    }
    assert_memory_not_equal(orders[0], orders[1], sizeof(orders[0]));
    assert_memory_not_equal(orders[1], orders[2], sizeof(orders[0]));
}

/* Ranks take the epoch apart as DistributedSampler does: together the whole order, filled up from its beginning. */
static void test_ranks(void **state)
{
    (void)state;
    static const struct {
        int64_t length;
        int world;
    } cases[] = {{10, 1}, {10, 3}, {12, 4}, {7, 5}, {2, 7}, {1000, 8}, {0, 3}};
    for (size_t c = 0; c < 2 * sizeof(cases) / sizeof(*cases); c++) {
        int64_t length = cases[c / 2].length;
        int world = cases[c / 2].world;
        static numbers n; /* outlives the test: its sets go in the teardown */
        yk_dataset *set = numbers_set(&n, length, NULL);
        int64_t whole[1000], each = (length + world - 1) / world, at = 0;
        yk_batch batch;
        yk_loader_options options = *YK_OPTIONS(yk_loader_options, .batch_size = 3, .shuffle = c % 2, .seed = 4);
        yk_loader *alone = yk_loader_create(set, &options);
        for (yk_loader_start(alone, 6); yk_loader_next(alone, &batch);)
            for (int64_t i = 0; i < batch.count; i++)
                whole[at++] = batch.samples[i];
        assert_int_equal(at, length);
        for (int rank = 0; rank < world; rank++) {
            options.rank = rank;
            options.world_size = world;
            yk_loader *part = yk_loader_create(set, &options);
            assert_int_equal(yk_loader_samples(part), each);
            at = 0;
            for (yk_loader_start(part, 6); yk_loader_next(part, &batch);)
                for (int64_t i = 0; i < batch.count; i++, at++)
                    assert_int_equal(batch.samples[i], whole[(rank + at * world) % length]);
            assert_int_equal(at, each);
        }
    }
}

static void test_ranks_from_the_environment(void **state)
{
    (void)state;
    static numbers n; /* outlives the test: its sets go in the teardown */
    yk_dataset *set = numbers_set(&n, 9, NULL);
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    assert_int_equal(
        yk_loader_samples(yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 1, .distributed = true))),
        9);
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "2", 1);
    yk_loader *part = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 1, .distributed = true));
    assert_int_equal(yk_loader_samples(part), 5);
    yk_batch batch;
    yk_loader_start(part, 0);
    assert_true(yk_loader_next(part, &batch));
    assert_int_equal(batch.samples[0], 1);
    setenv("RANK", "2", 1);
    assert_null(yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 1, .distributed = true)));
    expect_error(YK_ERR_ARGUMENT, "loader of numbers: RANK=2 is outside a world of WORLD_SIZE=2");
    setenv("WORLD_SIZE", "two", 1);
    assert_null(yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 1, .distributed = true)));
    expect_error(YK_ERR_ARGUMENT, "WORLD_SIZE=two");
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    setenv("OMPI_COMM_WORLD_RANK", "2", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
    yk_loader *under_mpirun =
        yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 1, .distributed = true));
    assert_int_equal(yk_loader_samples(under_mpirun), 3);
    yk_loader_start(under_mpirun, 0);
    assert_true(yk_loader_next(under_mpirun, &batch));
    assert_int_equal(batch.samples[0], 2);
    unsetenv("OMPI_COMM_WORLD_RANK");
    unsetenv("OMPI_COMM_WORLD_SIZE");
}

/* A process that was told its rank by its program, and has nothing in its environment. */
static yk_status told(int rank, void *file)
{
    static const char *const variables[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"};
    for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++)
        unsetenv(variables[i]);
    yk_scope scope = yk_scope_begin();
    yk_dataset *glyphs = yk_glyphs(YK_TEST, NULL, 0);
    const yk_loader_options options = *YK_OPTIONS(yk_loader_options, .batch_size = 10, .distributed = true);
    int64_t before = yk_loader_samples(yk_loader_create(glyphs, &options));
    yk_status status =
        yk_init_process_group(YK_OPTIONS(yk_init_options, .init_method = file, .rank = rank, .world_size = 2));
    if (status)
        return status;
    yk_loader *part = yk_loader_create(glyphs, &options);
    int64_t during = yk_loader_samples(part), first = -1;
    yk_batch batch;
    yk_loader_start(part, 0);
    if (yk_loader_next(part, &batch))
        first = batch.samples[0];
    yk_destroy_process_group();
    int64_t after = yk_loader_samples(yk_loader_create(glyphs, &options));
    if (before != 2000 || during != 1000 || first != rank || after != 2000)
        return yk_set_error(YK_ERR_INTERNAL, "%d samples before, %d from %d on in the group, %d after it", (int)before,
                            (int)during, (int)first, (int)after);
    yk_scope_end(scope);
    return YK_OK;
}

static void test_ranks_from_the_group(void **state)
{
    (void)state;
    char folder[] = "/tmp/yoke-loader-XXXXXX", method[80], path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/store", folder);
    snprintf(method, sizeof(method), "file://%s", path);
    yk_status status = yk_spawn(told, method, 2, NULL);
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
    expect_ok(status);
}

/* ---- failures -------------------------------------------------------------------------------------------- */
static void test_failure_in_a_worker(void **state)
{
    (void)state;
    for (int workers = 0; workers <= 4; workers += 2) {
        static numbers n; /* outlives the test: its sets go in the teardown */
        yk_dataset *set = numbers_set(&n, 100, NULL);
        n.fail_at = 57;
        n.workers = workers > 0;
        yk_loader *loader = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 10, .workers = workers));
        yk_batch batch;
        for (int again = 0; again < 2; again++) {
            int given = 0;
            for (yk_loader_start(loader, 0); yk_loader_next(loader, &batch); given++)
                assert_int_equal(batch.samples[0], 10 * given);
            assert_int_equal(given, 5);
            assert_int_equal(n.slow, 0); /* a caller that is told of a failure may close the source of the samples */
            assert_null(batch.input);
            assert_false(yk_loader_next(loader, &batch)); /* an error that is set stops it too */
            expect_error(YK_ERR_FORMAT, "numbers: sample 57 (drawer 57): the dog ate it");
            assert_false(yk_loader_next(loader, &batch));
            expect_ok(0);
            assert_int_equal(yk_loader_seek(loader, 0), YK_ERR_STATE);
            expect_error(YK_ERR_STATE, "loader_seek: no epoch was started");
        }
        n.fail_at = -1; /* and after it, all is well */
        int64_t count;
        stream_of(loader, 0, 0, &count);
        assert_int_equal(count, 100);
    }
}

static void test_shapes_that_differ(void **state)
{
    (void)state;
    static numbers n; /* outlives the test: its sets go in the teardown */
    yk_dataset *set = numbers_set(&n, 10, NULL);
    n.odd_shape_at = 6;
    yk_loader *loader = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 5, .workers = 1));
    yk_batch batch;
    yk_loader_start(loader, 0);
    assert_true(yk_loader_next(loader, &batch));
    assert_false(yk_loader_next(loader, &batch));
    expect_error(YK_ERR_SHAPE, "numbers: sample 6 (drawer 6) is float32 (3) after its transforms, but sample 5 of the "
                               "same batch is float32 (2); use a resize or a crop");
}

/* A data set whose samples are made with loaders: another one, or (what is an error) the one that asks. */
typedef struct looking {
    yk_loader *loader; /* NULL: one of its own for each sample */
    int how;
} looking;

static yk_status look_get(void *context, int64_t index, yk_sample *sample)
{
    static const double value = 1;
    const looking *k = context;
    yk_sample_view(sample, &value, YK_F64, 0, NULL);
    if (index == 0)
        return YK_OK;
    yk_scope scope = yk_scope_begin();
    yk_batch batch;
    yk_loader *own = k->loader ? k->loader
                               : yk_loader_create(yk_glyphs(YK_TEST, yk_to_tensor(), 0),
                                                  YK_OPTIONS(yk_loader_options, .batch_size = 2, .workers = 1));
    yk_loader_state state = {0};
    if (k->how == 0)
        yk_loader_next(own, &batch);
    else if (k->how == 1)
        yk_loader_start(own, 3);
    else
        (void)!(k->how == 2 ? yk_loader_seek(own, 0) : yk_loader_set_state(own, &state));
    yk_scope_end(scope);
    return YK_OK; /* a function that set an error has failed */
}

static void test_loader_in_its_own_data_set(void **state)
{
    (void)state;
    static const char *const names[] = {"loader_next", "loader_start", "loader_seek", "loader_set_state"};
    for (int workers = 0; workers < 2; workers++) {
        looking k = {0};
        yk_scope scope = yk_scope_begin();
        yk_dataset_table table = {.name = "looking", .length = 4, .get = look_get};
        yk_loader_options options = *YK_OPTIONS(yk_loader_options, .batch_size = 1, .workers = workers);
        yk_loader *loader = yk_loader_create(yk_dataset_create(&table, &k, NULL), &options);
        yk_batch batch;
        int count = 0;
        for (yk_loader_start(loader, 0); yk_loader_next(loader, &batch);)
            count++;
        expect_ok(YK_OK);
        assert_int_equal(count, 4);
        for (k.loader = loader, k.how = 0; k.how < 4; k.how++) {
            char text[100];
            snprintf(text, sizeof(text), "looking: sample 1: %s: called by the data set", names[k.how]);
            yk_loader_start(loader, 0);
            assert_true(yk_loader_next(loader, &batch));
            assert_false(yk_loader_next(loader, &batch));
            expect_error(YK_ERR_STATE, text);
        }
        yk_scope_end(scope);
    }
}

static yk_status bad_label_get(void *context, int64_t index, yk_sample *sample)
{
    yk_sample_view(sample, context, YK_F64, 0, NULL);
    yk_sample_label(sample, 3 - index);
    return index == 5 ? YK_ERR_IO : YK_OK;
}

static void test_bad_data_sets(void **state)
{
    (void)state;
    double value = 0.1;
    yk_dataset_table table = {.name = "odd", .length = 6, .classes = 3, .get = bad_label_get};
    yk_dataset *set = yk_dataset_create(&table, &value, NULL);
    assert_null(yk_dataset_get(set, 0, YK_F32, NULL));
    expect_error(YK_ERR_FORMAT, "odd: sample 0: label 3 is outside [0, 3)");
    assert_null(yk_dataset_get(set, 4, YK_F32, NULL));
    expect_error(YK_ERR_FORMAT, "odd: sample 4: label -1 is outside [0, 3)");
    assert_null(yk_dataset_get(set, 5, YK_F32, NULL));
    expect_error(YK_ERR_CALLBACK, "odd: sample 5: get failed with status \"io\" and set no error");
    yk_tensor *tensors[YK_SAMPLE_TENSORS];
    int count;
    assert_int_equal(yk_dataset_get_list(set, 5, YK_F32, tensors, &count), YK_ERR_CALLBACK); /* as the record has it */
    expect_error(YK_ERR_CALLBACK, "odd: sample 5: get failed");
    int64_t label;
    yk_tensor *sample = yk_dataset_get(set, 2, YK_F64, &label);
    assert_int_equal(label, 1);
    assert_int_equal(yk_ndim(sample), 0);
    assert_true(*(double *)yk_tensor_data(sample) == 0.1);
    set = yk_dataset_create(&table, NULL, NULL);
    assert_null(yk_dataset_get(set, 1, YK_F32, NULL));
    expect_error(YK_ERR_CALLBACK, "odd: sample 1: get left a sample without elements");
    table.get = NULL;
    assert_null(yk_dataset_create(&table, &value, NULL));
    expect_error(YK_ERR_ARGUMENT, "dataset_create: odd has no get function");
    table = (yk_dataset_table){.name = "odd", .length = -1, .get = bad_label_get};
    assert_null(yk_dataset_create(&table, &value, NULL));
    expect_error(YK_ERR_ARGUMENT, "dataset_create: odd has length -1");
}

static void test_bad_options(void **state)
{
    (void)state;
    static numbers n; /* outlives the test: its sets go in the teardown */
    yk_dataset *set = numbers_set(&n, 10, NULL);
    assert_null(yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = -4)));
    expect_error(YK_ERR_ARGUMENT, "loader of numbers: batch_size -4");
    assert_null(yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 1, .workers = -1)));
    expect_error(YK_ERR_ARGUMENT, "loader of numbers: workers is -1");
    assert_null(yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 1, .prefetch = -1)));
    expect_error(YK_ERR_ARGUMENT, "loader of numbers: prefetch -1");
    assert_null(yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 1, .rank = 1)));
    expect_error(YK_ERR_ARGUMENT, "loader of numbers: world_size was not given, but rank was");
    assert_null(yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 1, .distributed = true, .rank = 0)));
    expect_error(YK_ERR_ARGUMENT, "loader of numbers: world_size was not given, but rank was");
    assert_null(yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 1, .world_size = 2)));
    expect_error(YK_ERR_ARGUMENT, "loader of numbers: rank was not given, but world_size was");
    assert_null(yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 1, .rank = 0, .world_size = 0)));
    expect_error(YK_ERR_ARGUMENT, "loader of numbers: rank 0 with world_size 0");
    assert_null(yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 1, .dtype = YK_BF16)));
    expect_error(YK_ERR_DTYPE, "numbers: dtype is bfloat16");
    assert_null(yk_loader_create(NULL, NULL));
    expect_error(YK_ERR_ARGUMENT, "loader_create: the data set is NULL");
    assert_null(yk_loader_create(set, NULL));
    expect_error(YK_ERR_ARGUMENT, "loader of numbers: batch_size was not given, and has no default");
    assert_null(yk_loader_create(set, YK_OPTIONS(yk_loader_options, .shuffle = true)));
    expect_error(YK_ERR_ARGUMENT, "loader of numbers: batch_size was not given, and has no default");
    yk_loader *loader = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 1));
    assert_int_equal(yk_loader_length(loader), 10); /* batches of one */
    yk_batch batch;
    for (int64_t i = 0; i < 10; i++) /* not started: it starts itself */
        assert_true(yk_loader_next(loader, &batch) && batch.index == i);
    assert_false(yk_loader_next(loader, &batch));
    assert_int_equal(yk_loader_get_state(loader).epoch, 0);
    yk_loader_start(loader, -2);
    assert_false(yk_loader_next(loader, &batch));
    expect_error(YK_ERR_ARGUMENT, "loader_start: epoch -2 is outside");
    yk_loader_start(loader, 0);
    assert_int_equal(yk_loader_seek(loader, 11), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "loader_seek: batch 11 is outside [0, 10]");
    expect_ok(yk_loader_seek(loader, 10));
    assert_false(yk_loader_next(loader, &batch));
    expect_ok(0);
    yk_loader_start(NULL, 0);
    expect_error(YK_ERR_ARGUMENT, "loader_start: the loader is NULL");
    assert_false(yk_loader_next(NULL, &batch));
    expect_error(YK_ERR_ARGUMENT, "loader_next: the loader is NULL");
    assert_null(yk_loader_create(yk_glyphs(YK_TEST, yk_resize(0), 0), NULL));
    expect_error(YK_ERR_ARGUMENT, "resize: size 0"); /* the cause, not its consequences */
}

/* ---- memory and threads ---------------------------------------------------------------------------------- */
static void test_kept_batches_stay(void **state)
{
    (void)state;
    static numbers n; /* outlives the test: its sets go in the teardown */
    yk_dataset *set = numbers_set(&n, 40, NULL);
    for (int workers = 0; workers <= 2; workers += 2) {
        yk_loader *loader = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 4, .workers = workers));
        yk_tensor *kept[10];
        yk_batch batch;
        for (yk_loader_start(loader, 0); yk_loader_next(loader, &batch);)
            kept[batch.index] = yk_tensor_retain(batch.input);
        yk_loader_start(loader, 1); /* more batches are made meanwhile */
        assert_true(yk_loader_next(loader, &batch));
        for (int64_t i = 0; i < 40; i++)
            assert_true(((float *)yk_tensor_data(kept[i / 4]))[i % 4 * 2] == (float)i);
        for (int i = 0; i < 10; i++)
            yk_tensor_release(kept[i]);
    }
}

/* Batches that are not kept use the memory of earlier ones again. */
static void test_batches_are_reused(void **state)
{
    (void)state;
    yk_loader *loader = yk_loader_create(yk_glyphs(YK_TEST, NULL, 0),
                                         YK_OPTIONS(yk_loader_options, .batch_size = 50, .workers = 2, .prefetch = 3));
    yk_memory_info before, after;
    expect_ok(yk_device_memory((yk_device){0}, &before));
    yk_device_reset_peak_memory((yk_device){0});
    int64_t count;
    stream_of(loader, 0, 0, &count);
    expect_ok(yk_device_memory((yk_device){0}, &after));
    size_t one = 50 * 784 * 4 * 5 / 4 + 50 * 8 * 2; /* as the allocator rounds */
    assert_in_range(after.peak_allocated - before.allocated, 50 * 784 * 4, (2 + 3 + 1) * one);
    assert_int_equal(after.allocated, before.allocated);
}

/* A sample that takes its time, so that workers are busy when the loader is stopped. */
static yk_status slow(void *user, yk_sample *sample)
{
    (void)user, (void)sample;
    usleep(200);
    return YK_OK;
}

static void test_early_stops(void **state)
{
    (void)state;
    static numbers n; /* outlives the test: its sets go in the teardown */
    yk_dataset *set = numbers_set(&n, 300, yk_transform_create("slow", slow, NULL, NULL));
    yk_batch batch;
    for (int round = 0; round < 12; round++) {
        yk_scope scope = yk_scope_begin();
        yk_loader *loader = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 8, .shuffle = true,
                                                             .workers = 3, .prefetch = 1 + round % 5));
        for (int epoch = 0; epoch < 3; epoch++) {
            yk_loader_start(loader, epoch);
            for (int i = 0; i < round % 4; i++) {
                assert_true(yk_loader_next(loader, &batch));
                assert_int_equal(batch.index, i);
            }
            if (round % 3 == 0) {
                expect_ok(yk_loader_seek(loader, 30));
                assert_true(yk_loader_next(loader, &batch));
                assert_int_equal(batch.index, 30);
            }
        }
        yk_scope_end(scope); /* workers are busy now */
    }
    yk_scope scope = yk_scope_begin();
    yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 1, .workers = 3)); /* never started */
    yk_scope_end(scope);
    expect_ok(0);
}

/* Two loaders on one data set at once, each in its own thread: what they share is drawn once. */
static void *read_all(void *argument)
{
    yk_scope scope = yk_scope_begin();
    yk_loader *loader = yk_loader_create(argument, YK_OPTIONS(yk_loader_options, .batch_size = 64, .workers = 2));
    uint64_t *hash = malloc(sizeof(*hash));
    int64_t count;
    *hash = stream_of(loader, 0, 0, &count);
    yk_scope_end(scope);
    return hash;
}

static void test_shared_data_set(void **state)
{
    (void)state;
    yk_dataset *set = yk_glyphs(YK_TEST, NULL, 3);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_all, set), 0);
    uint64_t *hashes[3];
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], (void **)&hashes[i]);
    assert_true(*hashes[0] == *hashes[1] && *hashes[1] == *hashes[2]);
    for (int i = 0; i < 3; i++)
        free(hashes[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        data_test(test_user_data_set),
        data_test(test_workers_change_nothing),
        data_test(test_what_the_stream_depends_on),
        data_test(test_shuffle_is_a_permutation),
        data_test(test_ranks),
        data_test(test_ranks_from_the_environment),
        data_test(test_ranks_from_the_group),
        data_test(test_failure_in_a_worker),
        data_test(test_shapes_that_differ),
        data_test(test_bad_data_sets),
        data_test(test_loader_in_its_own_data_set),
        data_test(test_bad_options),
        data_test(test_kept_batches_stay),
        data_test(test_batches_are_reused),
        data_test(test_early_stops),
        data_test(test_shared_data_set),
    };
    return cmocka_run_group_tests_name("loader", tests, NULL, NULL);
}
