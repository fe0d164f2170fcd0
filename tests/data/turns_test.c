/*
 * turns_test.c - a loader that gives several ranks' parts in turns gives what each rank's own loader does, from any
 * step on, with any number of workers; its length and its state are those of one rank.
 */
#include "tests/data/files.h"

#include "base/core.h"
#include "data/dataset.h"

enum { LENGTH = 103, BATCH = 4, WORLD = 7, FIRST = 2, RANKS = 3 };

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

static yk_loader *loader_of(int rank, int world, int workers, bool drop_last)
{
    yk_dataset *set = yk_dataset_create(
        &(yk_dataset_table){.name = "numbers", .length = LENGTH, .classes = 7, .get = number_get}, NULL, NULL);
    return yk_loader_create(set,
                            YK_OPTIONS(yk_loader_options, .batch_size = BATCH, .shuffle = true, .seed = 4, .rank = rank,
                                       .world_size = world, .workers = workers, .drop_last = drop_last));
}

static void same_batch(const yk_batch *a, const yk_batch *b)
{
    assert_int_equal(a->index, b->index);
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->padding, b->padding);
    assert_memory_equal(a->samples, b->samples, (size_t)a->count * sizeof(*a->samples));
    assert_memory_equal(yk_tensor_data(a->input), yk_tensor_data(b->input), (size_t)a->count * sizeof(float));
}

/* An epoch from a batch of each rank on. */
static void compare_epoch(yk_loader *shared, yk_loader *const own[RANKS], int64_t epoch, int64_t from,
                          int64_t accumulate)
{
    yk_batch mine, expected;
    int64_t batches = yk_loader_length(own[0]);
    yk_loader_start(shared, epoch);
    for (int r = 0; r < RANKS; r++)
        yk_loader_start(own[r], epoch);
    if (from) {
        expect_ok(yk_loader_seek(shared, from));
        for (int r = 0; r < RANKS; r++)
            expect_ok(yk_loader_seek(own[r], from));
    }
    for (int64_t begin = from; begin < batches; begin += accumulate) {
        int64_t parts = batches - begin < accumulate ? batches - begin : accumulate;
        assert_int_equal(yk_loader_left(shared), batches - begin);
        assert_int_equal(yk_loader_get_state(shared).batch, begin);
        for (int r = 0; r < RANKS; r++)
            for (int64_t part = 0; part < parts; part++) {
                assert_true(yk_loader_next(shared, &mine) && yk_loader_next(own[r], &expected));
                same_batch(&mine, &expected);
                yk__turn turn = yk__loader_turn(shared);
                assert_int_equal(turn.rank, r);
                assert_int_equal(turn.batch, begin + part);
                assert_int_equal(turn.begin, begin);
                assert_int_equal(turn.part, part);
                assert_int_equal(turn.parts, parts);
                if (r < RANKS - 1) /* in the middle of a step */
                    assert_int_equal(yk_loader_get_state(shared).batch, begin);
            }
    }
    assert_false(yk_loader_next(shared, &mine));
    assert_int_equal(yk_loader_left(shared), 0);
    assert_int_equal(yk_loader_get_state(shared).batch, batches);
    expect_ok(YK_OK);
}

static void test_turns(void **state)
{
    (void)state;
    for (int workers = 0; workers <= 3; workers += 3)
        for (int64_t accumulate = 1; accumulate <= 3; accumulate++)
            for (int drop_last = 0; drop_last < 2; drop_last++) {
                yk_scope scope = yk_scope_begin();
                yk_loader *shared = loader_of(0, 1, workers, drop_last), *own[RANKS];
                expect_ok(yk__loader_share("test", shared, FIRST, RANKS, WORLD, accumulate));
                for (int r = 0; r < RANKS; r++)
                    own[r] = loader_of(FIRST + r, WORLD, 0, drop_last);
                assert_int_equal(yk_loader_length(shared), yk_loader_length(own[0]));
                assert_int_equal(yk_loader_left(shared), 0);
                for (int64_t from = 0; from <= yk_loader_length(own[0]); from++)
                    compare_epoch(shared, own, from % 2, from, accumulate);
                yk_scope_end(scope);
            }
}

/* The state of a shared loader, in the middle of an epoch, goes to plain ones and back. */
static void test_state(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_loader *shared = loader_of(0, 1, 2, false), *plain = loader_of(FIRST, WORLD, 0, false);
    yk_loader *next = loader_of(0, 1, 0, false);
    expect_ok(yk__loader_share("test", shared, FIRST, RANKS, WORLD, 1));
    expect_ok(yk__loader_share("test", next, FIRST, 1, WORLD, 1));
    yk_batch batch, expected;
    yk_loader_start(shared, 5);
    for (int i = 0; i < 2 * RANKS; i++)
        assert_true(yk_loader_next(shared, &batch));
    yk_loader_state at = yk_loader_get_state(shared);
    assert_int_equal(at.epoch, 5);
    assert_int_equal(at.batch, 2);
    assert_int_equal(at.world_size, WORLD);
    expect_ok(yk_loader_set_state(plain, &at));
    expect_ok(yk_loader_set_state(next, &at));
    assert_true(yk_loader_next(plain, &expected) && yk_loader_next(shared, &batch));
    same_batch(&batch, &expected);
    assert_true(yk_loader_next(next, &batch));
    same_batch(&batch, &expected);
    /* Back, after the step that the other makes. */
    at = yk_loader_get_state(plain);
    expect_ok(yk_loader_set_state(shared, &at));
    assert_true(yk_loader_next(plain, &expected) && yk_loader_next(shared, &batch));
    same_batch(&batch, &expected);
    yk_scope_end(scope);
}

/* Other ranks' parts from a step on: what is left of the epoch is theirs, from where all stand. */
static void test_anew(void **state)
{
    (void)state;
    for (int workers = 0; workers <= 3; workers += 3) {
        yk_scope scope = yk_scope_begin();
        yk_loader *shared = loader_of(0, 1, workers, false), *own[RANKS];
        yk_batch mine, expected;
        expect_ok(yk__loader_share("test", shared, 0, 1, WORLD, 1));
        expect_ok(yk__loader_share_anew(shared, 0, 4)); /* never started */
        yk_loader_start(shared, 3);
        for (int i = 0; i < 4; i++)
            assert_true(yk_loader_next(shared, &mine));
        expect_ok(yk__loader_share_anew(shared, FIRST, RANKS));
        assert_int_equal(yk_loader_get_state(shared).batch, 1);
        for (int r = 0; r < RANKS; r++) {
            own[r] = loader_of(FIRST + r, WORLD, 0, false);
            yk_loader_start(own[r], 3);
            assert_true(yk_loader_next(own[r], &expected));
        }
        for (int64_t i = yk_loader_left(shared) * RANKS; i > 0; i--) {
            assert_true(yk_loader_next(shared, &mine));
            assert_true(yk_loader_next(own[yk__loader_turn(shared).rank], &expected));
            same_batch(&mine, &expected);
        }
        assert_false(yk_loader_next(shared, &mine));
        expect_ok(yk__loader_share_anew(shared, 0, 2)); /* at the end */
        assert_int_equal(yk_loader_left(shared), 0);
        yk_scope_end(scope);
    }
}

static void test_refused(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_loader *started = loader_of(0, 1, 0, false);
    yk_loader_start(started, 0);
    assert_int_equal(yk__loader_share("test", started, 0, 2, 4, 1), YK_ERR_STATE);
    expect_error(YK_ERR_STATE, "test: the loader of numbers has begun an epoch");
    yk_dataset *set = yk_dataset_create(
        &(yk_dataset_table){.name = "numbers", .length = LENGTH, .classes = 7, .get = number_get}, NULL, NULL);
    yk_loader *uneven = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 4, .padding = false));
    assert_int_equal(yk__loader_share("test", uneven, 0, 2, 4, 1), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "test: the loader of numbers has padding off");
    expect_ok(yk__loader_share("test", uneven, 0, 1, 1, 1));
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_turns), cmocka_unit_test(test_state),
                                       cmocka_unit_test(test_anew), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests_name("turns", tests, NULL, NULL);
}
