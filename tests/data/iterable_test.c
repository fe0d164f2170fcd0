/* Data sets without indices: torch's order of batches whatever the workers, resuming, ranks, and what is refused. */
#include <stdatomic.h>

#include "tests/data/files.h"
#include "tests/support/golden.h"

/* Stream s of rank r gives 1000 r + 100 s and on, lengths[s] of them; the label is the part's epoch. */
enum { MOST = 4 };
typedef struct source {
    int64_t lengths[MOST];
    _Atomic int64_t fail_at; /* the number whose making fails; -1: none */
    atomic_int fail_open;    /* the stream that cannot be opened; -1: none */
    atomic_int open, made, skips;
    atomic_int inside[MOST]; /* calls that are in a stream */
    int destroyed;
} source;

typedef struct reader {
    source *from;
    yk_iterable_part part;
    int64_t at;
} reader;

static yk_status source_open(void *context, const yk_iterable_part *part, void **iterator)
{
    source *from = context;
    if (part->stream == from->fail_open)
        return yk_set_error(YK_ERR_IO, "the tap is dry");
    reader *r = calloc(1, sizeof(*r));
    assert_non_null(r);
    *r = (reader){.from = from, .part = *part};
    from->open++;
    *iterator = r;
    return YK_OK;
}

static yk_status source_next(void *iterator, yk_sample *sample, bool *end)
{
    reader *r = iterator;
    if (r->from->inside[r->part.stream]++) /* two threads in one stream */
        return yk_set_error(YK_ERR_STATE, "two at once");
    int64_t number = 1000 * r->part.rank + 100 * r->part.stream + r->at;
    yk_status status = YK_OK;
    *end = r->at == r->from->lengths[r->part.stream];
    if (!*end && number == r->from->fail_at) {
        status = yk_set_error(YK_ERR_FORMAT, "the dog ate it");
    } else if (!*end) {
        float *to = yk_sample_allocate(sample, YK_F32, 1, (int64_t[]){2});
        status = to ? YK_OK : YK_ERR_MEMORY;
        if (to) {
            to[0] = (float)number;
            to[1] = 0;
        }
        yk_sample_label(sample, r->part.epoch);
        r->at++;
        r->from->made++;
    }
    r->from->inside[r->part.stream]--;
    return status;
}

static yk_status source_skip(void *iterator, int64_t count, int64_t *skipped)
{
    reader *r = iterator;
    int64_t left = r->from->lengths[r->part.stream] - r->at;
    *skipped = count < left ? count : left;
    r->at += *skipped;
    r->from->skips++;
    return YK_OK;
}

static void source_close(void *iterator)
{
    reader *r = iterator;
    r->from->open--;
    free(r);
}

static void source_destroy(void *context)
{
    source *from = context;
    from->destroyed++;
}

/* Element 1 becomes a random number. */
static yk_status draw(void *user, yk_sample *sample)
{
    (void)user;
    float first = *(const float *)sample->data, *to = yk_sample_allocate(sample, YK_F32, 1, sample->shape);
    if (!to)
        return YK_ERR_MEMORY;
    to[0] = first;
    to[1] = (float)yk_sample_uniform(sample);
    return YK_OK;
}

static const yk_iterable_table source_table = {.name = "source",
                                               .streams = MOST,
                                               .open = source_open,
                                               .next = source_next,
                                               .skip = source_skip,
                                               .close = source_close,
                                               .destroy = source_destroy};

static yk_dataset *source_set(source *s, bool skips)
{
    *s = (source){.lengths = {9, 4, 7, 0}, .fail_at = -1, .fail_open = -1};
    yk_iterable_table table = source_table;
    if (!skips)
        table.skip = NULL;
    return yk_iterable_dataset(&table, s, yk_transform_create("draw", draw, NULL, NULL));
}

#define expect_refused(call, code, text)                                                                               \
    do {                                                                                                               \
        assert_int_equal(call, code);                                                                                  \
        expect_error(code, text);                                                                                      \
    } while (0)

static void test_order_is_torchs(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 5};
    static source s;
    yk_dataset *set = source_set(&s, true);
    for (int i = 0; i < 8; i++) {
        for (int workers = 0; workers < 6; workers++) {
            char section[20];
            size_t count;
            snprintf(section, sizeof(section), "%d_%s", (int)sizes[i / 2], i % 2 ? "full" : "all");
            const char *const *rows = golden_rows("iterable", section, &count);
            yk_scope scope = yk_scope_begin();
            yk_loader *loader = yk_loader_create(
                set, YK_OPTIONS(yk_loader_options, .batch_size = sizes[i / 2], .drop_last = i % 2, .workers = workers));
            assert_int_equal(yk_loader_length(loader), -1);
            assert_int_equal(yk_loader_samples(loader), -1);
            assert_int_equal(yk_loader_left(loader), 0);
            yk_batch batch;
            size_t seen = 0;
            for (yk_loader_start(loader, 5); yk_loader_next(loader, &batch); seen++) {
                assert_true(seen < count);
                const char *row = rows[seen];
                assert_int_equal(batch.index, seen);
                assert_int_equal(batch.count, golden_integer(&row));
                assert_int_equal(batch.padding, 0);
                assert_int_equal(yk_size(batch.input, 0), batch.count);
                assert_int_equal(yk_size(batch.target, 0), batch.count);
                assert_int_equal(yk_loader_left(loader), -1);
                for (int64_t k = 0; k < batch.count; k++) {
                    int number = golden_integer(&row);
                    assert_true(yk_get(batch.input, (int64_t[]){k, 0}) == number);
                    assert_int_equal(yk_get(batch.target, &k), 5);
                    assert_int_equal(batch.samples[k], number % 100 * MOST + number / 100);
                }
            }
            expect_ok(0);
            assert_int_equal(seen, count);
            assert_int_equal(yk_loader_left(loader), 0);
            assert_false(yk_loader_next(loader, &batch)); /* the end stays the end */
            expect_ok(0);
            yk_scope_end(scope);
            assert_int_equal(s.open, 0);
        }
    }
}

/* The elements of a batch, a position each: numbers, draws, and which batch it was. */
typedef struct seen {
    double values[64];
    int count;
} seen;

static void see(seen *s, const yk_batch *batch)
{
    for (int64_t k = 0; k < batch->count; k++) {
        assert_true(s->count + 3 <= 64);
        s->values[s->count++] = yk_get(batch->input, (int64_t[]){k, 0});
        s->values[s->count++] = yk_get(batch->input, (int64_t[]){k, 1});
        s->values[s->count++] = (double)(batch->index * 1000 + (int64_t)batch->samples[k]);
    }
}

static void test_resuming(void **state)
{
    (void)state;
    static source s;
    for (int skips = 0; skips < 2; skips++) {
        yk_dataset *set = source_set(&s, skips);
        for (int64_t stop = 0; stop <= 11; stop++) {
            int workers = (int)stop % 3;
            bool drop_last = stop % 2;
            yk_scope scope = yk_scope_begin();
            yk_loader *whole = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 2, .seed = 7,
                                                                .workers = workers, .drop_last = drop_last));
            yk_loader *rest = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 2, .seed = 7,
                                                               .workers = 2 - workers, .drop_last = drop_last));
            yk_batch batch;
            int64_t given = 0;
            yk_loader_state at = {0};
            seen one = {0}, other = {0};
            yk_loader_start(whole, 3);
            for (;; given++) {
                if (given == stop)
                    at = yk_loader_get_state(whole);
                if (!yk_loader_next(whole, &batch))
                    break;
                if (given >= stop)
                    see(&one, &batch);
            }
            assert_int_equal(given, drop_last ? 9 : 11);
            if (given < stop) {
                yk_scope_end(scope);
                continue;
            }
            assert_int_equal(at.epoch, 3);
            assert_int_equal(at.batch, stop);
            expect_ok(yk_loader_set_state(rest, &at));
            assert_int_equal(yk_loader_get_state(rest).batch, stop);
            yk_loader_start(rest, YK_NEXT_EPOCH);
            while (yk_loader_next(rest, &batch))
                see(&other, &batch);
            expect_ok(0);
            assert_int_equal(one.count, other.count);
            assert_memory_equal(one.values, other.values, sizeof(one.values));
            yk_loader_state end = yk_loader_get_state(rest); /* the end is the beginning of the next epoch */
            assert_int_equal(end.epoch, 4);
            assert_int_equal(end.batch, 0);
            other.count = 0;
            yk_loader_start(rest, 3);
            expect_ok(yk_loader_seek(rest, stop));
            while (yk_loader_next(rest, &batch))
                see(&other, &batch);
            assert_memory_equal(one.values, other.values, sizeof(one.values));
            expect_refused(yk_loader_seek(rest, 12), YK_ERR_ARGUMENT, "batch 12 of epoch 3, of which rank 0 has");
            assert_false(yk_loader_next(rest, &batch));
            yk_scope_end(scope);
        }
        assert_int_equal(s.skips > 0, skips);
    }
}

static void test_draws_and_epochs(void **state)
{
    (void)state;
    static source s;
    yk_dataset *set = source_set(&s, true);
    yk_loader *loader = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 4, .workers = 2));
    seen epochs[3] = {{.count = 0}};
    yk_batch batch;
    for (int e = 0; e < 3; e++) {
        yk_loader_start(loader, e < 2 ? YK_NEXT_EPOCH : 0);
        while (yk_loader_next(loader, &batch))
            see(&epochs[e], &batch);
        expect_ok(0);
        assert_int_equal(epochs[e].count, 60);
    }
    assert_memory_equal(epochs[0].values, epochs[2].values, sizeof(epochs[0].values));
    for (int i = 0; i < 60; i++)
        assert_true((epochs[0].values[i] == epochs[1].values[i]) == (i % 3 != 1)); /* the draws are others */
}

static void test_ranks(void **state)
{
    (void)state;
    static source s;
    yk_dataset *set = source_set(&s, true);
    for (int rank = 0; rank < 2; rank++) {
        yk_loader *loader = yk_loader_create(
            set, YK_OPTIONS(yk_loader_options, .batch_size = 3, .rank = rank, .world_size = 2, .workers = rank));
        yk_batch batch;
        int64_t count = 0;
        for (yk_loader_start(loader, 0); yk_loader_next(loader, &batch); count += batch.count) {
            for (int64_t k = 0; k < batch.count; k++) {
                int64_t number = (int64_t)yk_get(batch.input, (int64_t[]){k, 0});
                assert_int_equal(number / 1000, rank);
                assert_int_equal(batch.samples[k], (number % 100 * 2 + rank) * MOST + number % 1000 / 100);
            }
        }
        expect_ok(0);
        assert_int_equal(count, 20);
    }
}

/* All rows in one tensor. */
static yk_status gather(void *user, const yk_sample *samples, int64_t count, yk_tensor **tensors, int *n_tensors)
{
    (void)user;
    tensors[0] = yk_zeros(YK_SHAPE(count), YK_OPTIONS(yk_tensor_options, .device = {YK_CPU, 0}));
    float *to = yk_tensor_data(tensors[0]);
    for (int64_t i = 0; to && i < count; i++)
        to[i] = *(const float *)samples[i].data;
    *n_tensors = 1;
    return to ? YK_OK : YK_ERR_MEMORY;
}

static void test_collate_of_short_batches(void **state)
{
    (void)state;
    static source s;
    yk_loader *loader = yk_loader_create(
        source_set(&s, true), YK_OPTIONS(yk_loader_options, .batch_size = 5, .workers = 1, .collate = gather));
    static const int64_t counts[] = {5, 4, 5, 4, 2};
    yk_batch batch;
    int at = 0;
    for (yk_loader_start(loader, 0); yk_loader_next(loader, &batch); at++) {
        assert_int_equal(batch.count, counts[at]);
        assert_int_equal(yk_size(batch.input, 0), counts[at]);
        assert_null(batch.target);
    }
    expect_ok(0);
    assert_int_equal(at, 5);
}

static void test_failures(void **state)
{
    (void)state;
    static source s;
    yk_dataset *set = source_set(&s, false);
    for (int workers = 0; workers < 3; workers++) {
        yk_loader *loader = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 2, .workers = workers));
        yk_batch batch;
        int64_t given = 0;
        s.fail_at = 203;
        for (yk_loader_start(loader, 0); yk_loader_next(loader, &batch);)
            given++;
        assert_int_equal(given, 5); /* those before it in the order */
        expect_error(YK_ERR_FORMAT, "source: sample 14, of stream 2 of rank 0: the dog ate it");
        yk_loader_start(loader, 0);
        expect_refused(yk_loader_seek(loader, 9), YK_ERR_FORMAT, "the dog ate it");
        s.fail_at = -1;
        s.fail_open = 1;
        yk_loader_start(loader, 0);
        expect_error(YK_ERR_IO, "source: stream 1 of rank 0: the tap is dry");
        assert_false(yk_loader_next(loader, &batch));
        s.fail_open = -1;
        yk_loader_start(loader, 0);
        assert_true(yk_loader_next(loader, &batch));
        expect_ok(0);
    }
}

static void test_what_is_refused(void **state)
{
    (void)state;
    static source s;
    yk_dataset *set = source_set(&s, true), *parts[2];
    yk_sampler *sampler = yk_weighted_sampler((double[]){1, 1}, 2, 2, true);
    assert_int_equal(yk_dataset_length(set), -1);
    assert_null(yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 2, .shuffle = true)));
    expect_error(YK_ERR_ARGUMENT, "loader of source: shuffle is for sets with indices, and this one is iterable");
    assert_null(yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 2, .sampler = sampler)));
    expect_error(YK_ERR_ARGUMENT, "sampler");
    assert_null(yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 2, .on_error = YK_SKIP)));
    expect_error(YK_ERR_ARGUMENT, "on_error = YK_SKIP is for sets");
    assert_null(yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 2, .padding = false)));
    expect_error(YK_ERR_ARGUMENT, "padding = false is for sets");
    assert_null(yk_subset(set, (int64_t[]){0}, 1));
    expect_error(YK_ERR_ARGUMENT, "subset: source is iterable: it has no indices");
    assert_null(yk_concat_dataset(set, set));
    expect_error(YK_ERR_ARGUMENT, "concat_dataset: source is iterable");
    assert_null(yk_dataset_with_transform(set, NULL));
    expect_error(YK_ERR_ARGUMENT, "dataset_with_transform: source is iterable");
    expect_refused(yk_random_split(set, (double[]){0.5, 0.5}, 2, 0, parts), YK_ERR_ARGUMENT,
                   "random_split: source is iterable");
    assert_null(yk_dataset_get(set, 0, YK_F32, NULL));
    expect_error(YK_ERR_ARGUMENT, "dataset_get: source is iterable");

    yk_loader *loader = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 2)),
              *larger = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 3));
    expect_refused(yk_loader_seek(loader, 0), YK_ERR_STATE, "no epoch was started");
    yk_loader_state at = yk_loader_get_state(loader);
    assert_int_equal(at.dataset_length, MOST);
    expect_refused(yk_loader_set_state(larger, &at), YK_ERR_ARGUMENT, "is gone on with in the same layout alone");
    at.dataset_length = 3;
    expect_refused(yk_loader_set_state(loader, &at), YK_ERR_ARGUMENT, "streams of the data set is 4, but it was 3");
    at = yk_loader_get_state(loader);
    at.batch = -1;
    expect_refused(yk_loader_set_state(loader, &at), YK_ERR_ARGUMENT, "batch -1");
    at.batch = 12;
    expect_refused(yk_loader_set_state(loader, &at), YK_ERR_ARGUMENT, "batch 12 of epoch 0, of which rank 0 has 11");

    int destroyed = s.destroyed;
    yk_iterable_table table = source_table;
    table.next = NULL;
    assert_null(yk_iterable_dataset(&table, &s, NULL));
    expect_error(YK_ERR_ARGUMENT, "iterable_dataset: source has no next function");
    table.next = source_next;
    table.streams = 1025;
    assert_null(yk_iterable_dataset(&table, &s, NULL));
    expect_error(YK_ERR_ARGUMENT, "1025 streams; expected 0 to 1024");
    assert_int_equal(s.destroyed, destroyed + 2);
    assert_null(yk_iterable_dataset(NULL, NULL, NULL));
    expect_error(YK_ERR_ARGUMENT, "table");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        data_test(test_order_is_torchs),          data_test(test_resuming),
        data_test(test_draws_and_epochs),         data_test(test_ranks),
        data_test(test_collate_of_short_batches), data_test(test_failures),
        data_test(test_what_is_refused),
    };
    return cmocka_run_group_tests_name("iterable", tests, NULL, NULL);
}
