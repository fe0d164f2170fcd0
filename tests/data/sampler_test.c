/* Sharing an epoch between ranks: each sample once, whatever the number of ranks, and also when that number changes. */
#include "tests/data/files.h"

#include "base/core.h"

enum { MOST = 1000 };

/* Sample i is the number i; its label is i % 7. */
static yk_status number_get(void *context, int64_t index, yk_sample *sample)
{
    (void)context;
    float *to = yk_sample_allocate(sample, YK_F32, 0, NULL);
    if (!to)
        return YK_ERR_MEMORY;
    *to = (float)index;
    yk_sample_label(sample, index % 7);
    return YK_OK;
}

static yk_dataset *number_set(int64_t length)
{
    return yk_dataset_create(&(yk_dataset_table){.name = "numbers", .length = length, .classes = 7, .get = number_get},
                             NULL, NULL);
}

/* The number of times that each sample was given, and the score of a made-up network on them. */
typedef struct tally {
    int given[MOST];
    int64_t samples, padding, right;
} tally;

static void count_batch(tally *t, const yk_batch *batch)
{
    assert_in_range(batch->padding, 0, 1);
    t->padding += batch->padding;
    for (int64_t i = 0; i < batch->count - batch->padding; i++) {
        int64_t index = batch->samples[i];
        assert_in_range(index, 0, MOST - 1);
        assert_true(((const float *)yk_tensor_data(batch->input))[i] == (float)index);
        t->given[index]++;
        t->samples++;
        t->right += ((const int64_t *)yk_tensor_data(batch->target))[i] == index % 5;
    }
}

static void each_once(const tally *t, int64_t length)
{
    assert_int_equal(t->samples, length);
    for (int64_t i = 0; i < length; i++)
        assert_int_equal(t->given[i], 1);
}

static const int worlds[] = {1, 2, 3, 7};
static const int64_t lengths[] = {0, 1, 2, 5, 12, 97, 1000}, sizes[] = {1, 3, 64};

/* An evaluation over W ranks sees each sample once, with padding masked and without padding alike. */
static void test_evaluation(void **state)
{
    (void)state;
    for (int c = 0; c < 7 * 4 * 3 * 2; c++) {
        yk_scope scope = yk_scope_begin();
        int64_t length = lengths[c % 7], size = sizes[c / 28 % 3];
        int world = worlds[c / 7 % 4];
        yk_dataset *set = number_set(length);
        int64_t right = 0;
        for (int64_t i = 0; i < length; i++)
            right += i % 7 == i % 5;
        for (int masked = 0; masked < 2; masked++) {
            tally all = {0};
            int64_t least = INT64_MAX, most = 0;
            for (int rank = 0; rank < world; rank++) {
                yk_loader *part =
                    yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = size, .shuffle = c / 84,
                                                     .seed = 11, .rank = rank, .world_size = world, .padding = masked));
                int64_t given = 0, batches = 0;
                yk_batch batch;
                for (yk_loader_start(part, 2); yk_loader_next(part, &batch); batches++) {
                    count_batch(&all, &batch);
                    given += batch.count;
                }
                expect_ok(0);
                assert_int_equal(batches, yk_loader_length(part));
                assert_int_equal(given, yk_loader_samples(part));
                least = given < least ? given : least;
                most = given > most ? given : most;
            }
            each_once(&all, length);
            assert_int_equal(all.right, right);
            assert_int_equal(most, (length + world - 1) / world);
            assert_int_equal(least, masked ? most : length / world);
            assert_int_equal(all.padding, masked ? most * world - length : 0);
        }
        yk_scope_end(scope);
    }
}

/* With drop_last the ranks' batches together are those of one process with the joined batch. */
static void test_drop_last(void **state)
{
    (void)state;
    for (int c = 0; c < 7 * 4 * 3; c++) {
        yk_scope scope = yk_scope_begin();
        int64_t length = lengths[c % 7], size = sizes[c / 28];
        int world = worlds[c / 7 % 4];
        yk_dataset *set = number_set(length);
        yk_loader_options options =
            *YK_OPTIONS(yk_loader_options, .batch_size = size * world, .shuffle = true, .drop_last = true);
        yk_loader *joined = yk_loader_create(set, &options);
        options.batch_size = size;
        options.world_size = world;
        yk_loader *parts[7];
        for (options.rank = 0; options.rank < world; options.rank++) {
            parts[options.rank] = yk_loader_create(set, &options);
            yk_loader_start(parts[options.rank], 0);
        }
        yk_batch whole, part;
        for (yk_loader_start(joined, 0); yk_loader_next(joined, &whole);) {
            for (int rank = 0; rank < world; rank++) {
                assert_true(yk_loader_next(parts[rank], &part));
                assert_int_equal(part.padding, 0);
                for (int64_t i = 0; i < size; i++)
                    assert_int_equal(part.samples[i], whole.samples[rank + i * world]);
            }
        }
        for (int rank = 0; rank < world; rank++)
            assert_false(yk_loader_next(parts[rank], &part));
        expect_ok(0);
        yk_scope_end(scope);
    }
}

/* One layout after the other; each goes on from where some rank of the one before stood. */
typedef struct layout {
    int world;
    int64_t batch_size, steps; /* steps -1: to the end */
} layout;

static yk_loader_state go_on(yk_dataset *set, layout l, const yk_loader_options *base, const yk_loader_state *from,
                             tally *t)
{
    yk_loader_state left[8];
    for (int rank = 0; rank < l.world; rank++) {
        yk_loader_options options = *base;
        options.batch_size = l.batch_size;
        options.rank = rank;
        options.world_size = l.world;
        yk_loader *loader = yk_loader_create(set, &options);
        if (from)
            expect_ok(yk_loader_set_state(loader, from));
        else
            yk_loader_start(loader, 5);
        int64_t steps = 0, expected = yk_loader_left(loader);
        yk_batch batch;
        for (; steps != l.steps && yk_loader_next(loader, &batch); steps++) {
            count_batch(t, &batch);
            assert_int_equal(yk_loader_left(loader), expected - steps - 1);
        }
        expect_ok(0);
        left[rank] = yk_loader_get_state(loader);
        assert_int_equal(left[rank].epoch, 5);
        assert_int_equal(left[rank].start, left[0].start);
        assert_int_equal(left[rank].batch, left[0].batch);
    }
    return left[l.world - 1];
}

static void test_changing_layouts(void **state)
{
    (void)state;
    static const struct {
        int64_t length;
        layout chain[6];
    } cases[] = {
        {1000, {{8, 4, 5}, {4, 8, 3}, {1, 16, 7}, {3, 5, -1}}},
        {1000, {{8, 4, 5}, {8, 4, 2}, {4, 4, 2}, {4, 4, 3}, {8, 2, -1}}},
        {997, {{8, 3, 7}, {4, 10, 0}, {1, 1, 1}, {3, 64, -1}}},
        {997, {{1, 64, 3}, {7, 3, 11}, {2, 9, 13}, {5, 2, -1}}},
        {37, {{8, 2, 2}, {4, 1, 1}, {1, 0, 0}}},
        {16, {{8, 2, -1}, {3, 2, -1}}}, /* at its end an epoch stays there */
        {17, {{8, 2, -1}, {1, 1, -1}}},
    };
    for (size_t c = 0; c < 4 * sizeof(cases) / sizeof(*cases); c++) {
        yk_scope scope = yk_scope_begin();
        int64_t length = cases[c / 4].length;
        yk_dataset *set = number_set(length);
        yk_loader_options base =
            *YK_OPTIONS(yk_loader_options, .shuffle = c % 2, .workers = c % 4 > 1 ? 2 : 0, .seed = 3);
        tally t = {0};
        yk_loader_state at = {0};
        int64_t expected = 0;
        for (const layout *l = cases[c / 4].chain; l->world && l->batch_size; l++) {
            at = go_on(set, *l, &base, l == cases[c / 4].chain ? NULL : &at, &t);
            expected += l->steps < 0 ? length : l->steps * l->world * l->batch_size;
            assert_int_equal(t.samples, expected < length ? expected : length);
        }
        if (t.samples < length) /* the chain that ends early */
            go_on(set, (layout){3, 2, -1}, &base, &at, &t);
        each_once(&t, length);
        yk_scope_end(scope);
    }
}

/* Samples that drop_last left out are not given later, and those that are given without padding do not depend on the
 * rank whose state it was. */
static void test_changing_layouts_without_padding(void **state)
{
    (void)state;
    yk_dataset *set = number_set(103);
    yk_loader_options base = *YK_OPTIONS(yk_loader_options, .drop_last = true, .shuffle = true);
    tally t = {0};
    yk_loader_state at = go_on(set, (layout){4, 5, 2}, &base, NULL, &t);
    at = go_on(set, (layout){3, 7, -1}, &base, &at, &t);
    assert_int_equal(t.samples, 40 + 2 * 21 + 21);
    t = (tally){0};
    at = go_on(set, (layout){4, 5, -1}, &base, NULL, &t);
    at = go_on(set, (layout){1, 1, -1}, &base, &at, &t);
    assert_int_equal(t.samples, 100);

    base = *YK_OPTIONS(yk_loader_options, .padding = false, .batch_size = 1, .world_size = 2, .rank = 1);
    set = number_set(3);
    yk_loader *one = yk_loader_create(set, &base);
    base.rank = 0;
    yk_loader *zero = yk_loader_create(set, &base);
    yk_batch batch;
    for (yk_loader_start(zero, 0); yk_loader_next(zero, &batch);)
        ;
    yk_loader_state end = yk_loader_get_state(zero);
    assert_int_equal(end.batch, 2);
    expect_ok(yk_loader_set_state(one, &end));
    assert_int_equal(yk_loader_left(one), 0);
    assert_false(yk_loader_next(one, &batch));
    expect_ok(0);
}

static int64_t first_of(yk_loader *loader, int64_t epoch)
{
    yk_batch batch;
    yk_loader_start(loader, epoch);
    return yk_loader_next(loader, &batch) ? batch.samples[0] : -1;
}

static void test_next_epoch(void **state)
{
    (void)state;
    yk_loader_options options = *YK_OPTIONS(yk_loader_options, .batch_size = 100, .shuffle = true);
    yk_dataset *set = number_set(1000);
    yk_loader *loader = yk_loader_create(set, &options), *other = yk_loader_create(set, &options);
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        int64_t first = first_of(loader, YK_NEXT_EPOCH);
        assert_int_equal(yk_loader_get_state(loader).epoch, epoch);
        assert_int_equal(first, first_of(other, epoch));
    }
    first_of(loader, 9); /* counts from there */
    first_of(loader, YK_NEXT_EPOCH);
    assert_int_equal(yk_loader_get_state(loader).epoch, 10);

    /* After set_state the epoch goes on first; the loop is the same as that of a run from the beginning. */
    yk_batch batch;
    yk_loader_state state10 = yk_loader_get_state(loader);
    assert_int_equal(state10.batch, 1);
    expect_ok(yk_loader_set_state(other, &state10));
    yk_loader_start(other, YK_NEXT_EPOCH);
    assert_true(yk_loader_next(other, &batch));
    assert_int_equal(batch.index, 1);
    assert_int_equal(yk_loader_get_state(other).epoch, 10);
    yk_loader_start(other, YK_NEXT_EPOCH);
    assert_int_equal(yk_loader_get_state(other).epoch, 11);
    /* At an epoch's end there is nothing to go on with. */
    state10.batch = 10;
    expect_ok(yk_loader_set_state(other, &state10));
    yk_loader_start(other, YK_NEXT_EPOCH);
    assert_int_equal(yk_loader_get_state(other).epoch, 11);
    /* The state of a loader that was not started is the beginning. */
    yk_loader_state fresh = yk_loader_get_state(yk_loader_create(set, &options));
    expect_ok(yk_loader_set_state(other, &fresh));
    yk_loader_start(other, YK_NEXT_EPOCH);
    assert_int_equal(yk_loader_get_state(other).epoch, 0);
    assert_true(yk_loader_next(other, &batch));
    assert_int_equal(batch.index, 0);
    expect_ok(0);
}

static void test_states_that_do_not_fit(void **state)
{
    (void)state;
    yk_loader *loader = yk_loader_create(number_set(10), YK_OPTIONS(yk_loader_options, .batch_size = 2));
    yk_loader_start(loader, 4);
    yk_batch batch;
    assert_true(yk_loader_next(loader, &batch));
    const yk_loader_state good = yk_loader_get_state(loader);
    static const struct {
        size_t offset;
        int64_t value;
        const char *message;
    } bad[] = {
        {offsetof(yk_loader_state, dataset_length), 11, "samples in the data set is 10, but it was 11"},
        {offsetof(yk_loader_state, seed), 8, "seed is 0, but it was 8"},
        {offsetof(yk_loader_state, epoch), -1, "epoch -1 is outside"},
        {offsetof(yk_loader_state, batch), 6, "batch 6 is outside [0, 5]"},
        {offsetof(yk_loader_state, batch), -1, "batch -1 is outside [0, 5]"},
        {offsetof(yk_loader_state, start), 11, "start 11 is outside [0, 10]"},
        {offsetof(yk_loader_state, start), -1, "start -1 is outside [0, 10]"},
        {offsetof(yk_loader_state, batch_size), 0, "batches of 0 on 1 ranks"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        yk_loader_state wrong = good;
        memcpy((char *)&wrong + bad[i].offset, &bad[i].value, sizeof(int64_t));
        assert_int_equal(yk_loader_set_state(loader, &wrong), YK_ERR_ARGUMENT);
        expect_error(YK_ERR_ARGUMENT, bad[i].message);
        yk_loader_state after = yk_loader_get_state(loader);
        assert_true(after.epoch == good.epoch && after.start == good.start && after.batch == good.batch);
    }
    yk_loader_state wrong = good;
    wrong.world_size = 0;
    assert_int_equal(yk_loader_set_state(loader, &wrong), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "batches of 2 on 0 ranks");
    wrong = good;
    wrong.shuffle = true;
    assert_int_equal(yk_loader_set_state(loader, &wrong), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "shuffle is 0, but it was 1");
    assert_true(yk_loader_next(loader, &batch));
    assert_int_equal(batch.samples[0], 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        data_test(test_evaluation),       data_test(test_drop_last),
        data_test(test_changing_layouts), data_test(test_changing_layouts_without_padding),
        data_test(test_next_epoch),       data_test(test_states_that_do_not_fit),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
