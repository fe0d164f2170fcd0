/* device_loader_test.c - batches that a loader brings to an (emulated) GPU by copies beside kernels: right with every
 * order that is legal, whatever is kept or released; on their way while the queue of kernels is at work; positions,
 * errors, memory.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "tests/emulator/seeds.h"
#include "tests/emulator/use_emulator.h"

#include <yoke/yoke.h>

#include "tensor/tensor.h"

enum { LENGTH = 23, BATCH = 4, BATCHES = 6, WIDTH = 700, EPOCHS = 3 };

static const yk_device gpu = {YK_CUDA, 0};

static float value_of(int64_t index, int i)
{
    return (float)(index * WIDTH + i);
}

/* Sample 13 fails where `context` is not NULL. */
static yk_status get(void *context, int64_t index, yk_sample *sample)
{
    if (context && index == 13)
        return yk_set_error(YK_ERR_FORMAT, "it is damaged");
    float *x = yk_sample_allocate(sample, YK_F32, 1, (int64_t[]){WIDTH});
    for (int i = 0; x && i < WIDTH; i++)
        x[i] = value_of(index, i);
    yk_sample_label(sample, index);
    return x ? YK_OK : YK_ERR_MEMORY;
}

static yk_loader *loader(int workers, bool damaged, yk_collate_fn collate)
{
    static int yes;
    const yk_dataset_table table = {.name = "counted", .length = LENGTH, .get = get};
    return yk_loader_create(
        yk_dataset_create(&table, damaged ? &yes : NULL, NULL),
        YK_OPTIONS(yk_loader_options, .batch_size = BATCH, .workers = workers, .device = gpu, .collate = collate));
}

/* The sum of all is another tensor; the input has the samples in rows, as without it. */
static yk_status sum_up(void *user, const yk_sample *samples, int64_t count, yk_tensor **tensors, int *n_tensors)
{
    (void)user;
    tensors[0] = yk_zeros(YK_SHAPE(count, WIDTH), NULL);
    tensors[1] = yk_zeros(YK_SHAPE(count), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    float *x = yk_tensor_data(tensors[0]);
    int64_t *label = yk_tensor_data(tensors[1]);
    for (int64_t i = 0; x && label && i < count; i++) {
        memcpy(x + i * WIDTH, samples[i].data, WIDTH * sizeof(*x));
        label[i] = samples[i].index;
    }
    *n_tensors = 2;
    return x && label ? YK_OK : YK_ERR_MEMORY;
}

/* True if x is factor times the inputs of batch `at`. */
static bool is_batch(yk_tensor *x, int at, float factor)
{
    static float got[BATCH * WIDTH];
    int64_t count = at == BATCHES - 1 ? LENGTH - at * BATCH : BATCH;
    if (!x || yk_numel(x) != count * WIDTH || yk_tensor_read(x, got, (size_t)(count * WIDTH) * sizeof(*got)))
        return false;
    for (int64_t i = 0; i < count * WIDTH; i++) {
        if (got[i] != factor * value_of(at * BATCH + i / WIDTH, (int)(i % WIDTH)))
            return false;
    }
    return true;
}

/* Kernels read each batch, after others that take their time; nothing is waited for before the end. Some batches are
 * kept, and others' memory is taken by tensors in between. */
static bool all_right(int workers, yk_collate_fn collate)
{
    yk_tensor *twice[EPOCHS * BATCHES], *kept[EPOCHS * BATCHES], *labels[EPOCHS * BATCHES];
    yk_loader *l = loader(workers, false, collate);
    int n = 0;
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        yk_batch batch;
        for (yk_loader_start(l, epoch); yk_loader_next(l, &batch); n++) {
            yk_scope scope = yk_scope_begin();
            yk_tensor *x = batch.input;
            for (int i = 0; i < 3; i++)
                x = yk_add_scalar(x, 0);
            yk_tensor *same = yk_full_like(batch.input, 1e9);
            twice[n] = yk_tensor_retain(yk_mul_scalar(x, 2));
            kept[n] = n % 3 == 0 ? yk_tensor_retain(batch.input) : NULL;
            labels[n] = yk_tensor_retain(yk_add(batch.target, batch.target));
            yk_scope_end(scope);
            if (!same || n == EPOCHS * BATCHES)
                return false;
        }
    }
    bool right = n == EPOCHS * BATCHES;
    for (int k = 0; k < n; k++) {
        int64_t label[BATCH] = {0};
        right &= is_batch(twice[k], k % BATCHES, 2) && (!kept[k] || is_batch(kept[k], k % BATCHES, 1));
        right &= !yk_tensor_read(labels[k], label, (size_t)yk_numel(labels[k]) * sizeof(*label));
        right &= label[2] == 2 * (k % BATCHES * BATCH + 2);
        yk_tensor_release(twice[k]);
        yk_tensor_release(kept[k]);
        yk_tensor_release(labels[k]);
    }
    return right && !yk__memory_check(gpu);
}

static bool by_workers(void)
{
    return all_right(2, NULL);
}
static bool by_the_caller(void)
{
    return all_right(0, NULL);
}
static bool by_a_collate(void)
{
    return all_right(1, sum_up);
}

static void test_orders(void **state)
{
    (void)state;
    assert_int_equal(right_with(by_workers), SEEDS);
    assert_int_equal(right_with(by_the_caller), SEEDS);
    assert_int_equal(right_with(by_a_collate), SEEDS);
}

/* ---- overlap ---- */

static atomic_bool shut; /* the gate */

static void wait_at_gate(void *unused)
{
    (void)unused;
    while (atomic_load(&shut))
        usleep(500);
}

/* Bytes that tensors have on the GPU. */
static size_t held(void)
{
    yk_memory_info info = {0};
    expect_ok(yk_device_memory(gpu, &info));
    return info.allocated;
}

/* While the queue of kernels is kept, a batch and the one after it come to the device. */
static void test_beside_kernels(void **state)
{
    (void)state;
    const yk__backend *cuda = yk__backend_of(gpu);
    yk_scope scope = yk_scope_begin();
    yk_loader *l = loader(1, false, NULL);
    yk_batch batch;
    size_t before = held(), one = 0;
    atomic_store(&shut, true);
    expect_ok(cuda->enqueue(gpu.index, wait_at_gate, NULL));
    for (int tries = 0; tries < 1000; tries++) { /* until the worker was in time */
        yk_loader_start(l, 0);
        if (tries)
            usleep(1000);
        assert_true(yk_loader_next(l, &batch));
        one = held() - before;
        if (one > BATCH * WIDTH * sizeof(float) * 3 / 2)
            break;
    }
    assert_true(one > BATCH * WIDTH * sizeof(float) * 3 / 2);
    yk__event *copied = NULL;
    void *pinned = NULL;
    expect_ok(cuda->allocate_pinned(gpu.index, BATCH * WIDTH * sizeof(float), &pinned));
    yk__queue queue = yk__queue_begin(YK__QUEUE_COPY);
    expect_ok(cuda->queue_download(gpu.index, pinned, batch.input->data, BATCH * WIDTH * sizeof(float)));
    yk__queue_end(queue);
    expect_ok(cuda->event_record(gpu.index, YK__QUEUE_COPY, &copied));
    expect_ok(cuda->event_wait(copied)); /* for ever, if copies were queued after the work that is held up */
    cuda->event_release(copied);
    for (int i = 0; i < BATCH * WIDTH; i++)
        assert_true(((float *)pinned)[i] == value_of(i / WIDTH, i % WIDTH));
    cuda->release_pinned(gpu.index, pinned);
    yk_tensor *twice = yk_mul_scalar(batch.input, 2);
    yk__event *computed = NULL;
    bool passed = true;
    expect_ok(cuda->event_record(gpu.index, YK__QUEUE_COMPUTE, &computed));
    expect_ok(cuda->event_query(computed, &passed));
    assert_false(passed);
    cuda->event_release(computed);
    atomic_store(&shut, false);
    assert_true(is_batch(twice, 0, 2));
    assert_true(yk_loader_next(l, &batch));
    assert_true(is_batch(batch.input, 1, 1));
    yk_scope_end(scope);
    expect_ok(yk_device_synchronize(gpu));
    assert_int_equal(held(), before);
}

static atomic_int given;

/* Opens the gate once no batch was given for a while; gives how many were by then. */
static void *open_gate(void *seen)
{
    int before = 0;
    for (int quiet = 0; quiet < 20; quiet++) {
        usleep(2000);
        int now = atomic_load(&given);
        quiet = now && now == before ? quiet : 0;
        before = now;
    }
    atomic_store(&shut, false);
    *(int *)seen = before;
    return NULL;
}

/* A program that never waits for the device is held back a few batches in front of it. */
static void test_held_back(void **state)
{
    (void)state;
    pthread_t opener;
    int seen = 0;
    yk_scope scope = yk_scope_begin();
    yk_loader *l = loader(2, false, NULL);
    yk_batch batch;
    atomic_store(&shut, true);
    atomic_store(&given, 0);
    expect_ok(yk__backend_of(gpu)->enqueue(gpu.index, wait_at_gate, NULL));
    assert_int_equal(pthread_create(&opener, NULL, open_gate, &seen), 0);
    for (int epoch = 0; epoch < 4; epoch++) {
        for (yk_loader_start(l, epoch); yk_loader_next(l, &batch);)
            atomic_fetch_add(&given, 1);
    }
    assert_int_equal(pthread_join(opener, NULL), 0);
    assert_in_range(seen, 1, 9);
    assert_int_equal(atomic_load(&given), 4 * BATCHES);
    yk_scope_end(scope);
    expect_ok(yk_device_synchronize(gpu));
}

/* ---- positions, errors, memory ---- */

/* Batches on their way to the device were not given: states and lengths count those that were. */
static void test_positions(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_loader *l = loader(2, false, NULL), *other = loader(1, false, NULL);
    yk_batch batch;
    yk_loader_start(l, 0);
    for (int at = 0; at < BATCHES; at++) {
        assert_int_equal(yk_loader_left(l), BATCHES - at);
        assert_int_equal(yk_loader_get_state(l).batch, at);
        usleep(2000);
        assert_true(yk_loader_next(l, &batch));
        assert_int_equal(batch.index, at);
        assert_true(yk_device_equal(yk_tensor_device(batch.target), gpu));
        if (at == 2) { /* another one goes on from here */
            yk_loader_state now = yk_loader_get_state(l);
            yk_batch next;
            expect_ok(yk_loader_set_state(other, &now));
            assert_true(yk_loader_next(other, &next));
            assert_true(is_batch(next.input, 3, 1));
        }
    }
    assert_false(yk_loader_next(l, &batch));
    expect_ok(YK_OK);
    assert_int_equal(yk_loader_left(l), 0);
    expect_ok(yk_loader_seek(l, 4));
    assert_true(yk_loader_next(l, &batch));
    assert_true(is_batch(batch.input, 4, 1));
    expect_ok(yk_loader_seek(l, 1));
    assert_true(yk_loader_next(l, &batch));
    assert_true(is_batch(batch.input, 1, 1));
    yk_scope_end(scope);
}

/* A sample that fails ends the epoch at its batch, and those before it are given. */
static void test_errors(void **state)
{
    (void)state;
    for (int workers = 0; workers < 3; workers++) {
        yk_scope scope = yk_scope_begin();
        yk_loader *l = loader(workers, true, NULL);
        yk_batch batch;
        yk_loader_start(l, 0);
        for (int at = 0; at < 3; at++) {
            assert_true(yk_loader_next(l, &batch));
            assert_true(is_batch(batch.input, at, 1));
        }
        assert_false(yk_loader_next(l, &batch));
        expect_error(YK_ERR_FORMAT, "counted: sample 13 it is damaged");
        assert_int_equal(yk_loader_left(l), 0);
        yk_scope_end(scope);
    }
    yk_scope scope = yk_scope_begin();
    const yk_dataset_table table = {.name = "counted", .length = LENGTH, .get = get};
    const yk_loader_options nowhere = *YK_OPTIONS(yk_loader_options, .batch_size = BATCH, .device = {YK_CUDA, 9});
    assert_null(yk_loader_create(yk_dataset_create(&table, NULL, NULL), &nowhere));
    expect_error(YK_ERR_DEVICE, "loader of counted cuda:9");
    yk_scope_end(scope);
}

static yk_status next_inside(void *user)
{
    yk_batch batch;
    return yk_loader_next(user, &batch) ? YK_OK : yk_last_error() ? yk_last_error()->code : YK_ERR_STATE;
}

/* A function that takes its batches from the loader is not recorded. */
static void test_not_recorded(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_loader *l = loader(0, false, NULL);
    yk_graph *g = yk_graph_create(gpu, 1, next_inside, l);
    yk_loader_start(l, 0);
    for (int i = 0; i < 4; i++)
        expect_ok(yk_graph_run(g));
    assert_int_equal(yk_graph_get_info(g).replays, 0);
    assert_true(expect_says(yk_graph_get_info(g).why_not, "cuda:0: loader_next: a batch comes from the host"));
    yk_scope_end(scope);
}

/* Batches take the memory of a few, and a loader that is released with copies under way leaves nothing. */
static void test_memory(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_device_empty_cache(gpu);
    yk_device_reset_peak_memory(gpu);
    yk_loader *l = loader(2, false, NULL);
    yk_batch batch;
    for (int epoch = 0; epoch < 12; epoch++) {
        for (yk_loader_start(l, epoch); yk_loader_next(l, &batch);)
            assert_non_null(batch.input);
    }
    yk_memory_info info = {0};
    expect_ok(yk_device_memory(gpu, &info));
    const size_t one = BATCH * WIDTH * sizeof(float) * 5 / 4;
    assert_in_range(info.peak_reserved, one, 14 * one);
    yk_loader_start(l, 0);
    assert_true(yk_loader_next(l, &batch));
    yk_scope_end(scope);
    expect_ok(yk_device_synchronize(gpu));
    assert_int_equal(held(), 0);
    assert_null(yk__memory_check(gpu));
    yk_device_empty_cache(gpu);
    expect_ok(yk_device_memory(gpu, &info));
    assert_int_equal(info.reserved, 0);
}

/* ---- images, which go to the GPU as bytes ---- */

enum { IMAGES = 19, PLANES = 3 };

/* Sample i is 9 x (8 + i % 3) where `context` says so, else 9 x 8; every fifth is floats where it says that. */
typedef struct image_kind {
    bool widths, floats;
    yk_dtype dtype;
    yk_transform *transform;
} image_kind;

static yk_status get_image(void *context, int64_t index, yk_sample *sample)
{
    const image_kind *kind = context;
    int64_t shape[3] = {PLANES, 9, 8 + (kind->widths ? index % 3 : 0)}, n = shape[0] * shape[1] * shape[2];
    bool floats = kind->floats && index % 5 == 4;
    void *x = yk_sample_allocate(sample, floats ? YK_F32 : YK_U8, 3, shape);
    for (int64_t i = 0; x && i < n; i++) {
        unsigned char byte = (unsigned char)(index * 31 + i * 7 + i / 11);
        if (floats)
            ((float *)x)[i] = (float)byte / 3;
        else
            ((unsigned char *)x)[i] = byte;
    }
    yk_sample_label(sample, index);
    return x ? YK_OK : YK_ERR_MEMORY;
}

static yk_loader *image_loader(const image_kind *kind, yk_device device, int workers)
{
    const yk_dataset_table table = {.name = "images", .length = IMAGES, .get = get_image};
    return yk_loader_create(yk_dataset_create(&table, (void *)kind, kind->transform),
                            YK_OPTIONS(yk_loader_options, .batch_size = 5, .shuffle = true, .seed = 3,
                                       .workers = workers, .dtype = kind->dtype, .device = device));
}

/* Two epochs, to the bit those of a loader that gives its batches on the CPU. */
static bool like_the_cpu(const image_kind *kind, int workers)
{
    yk_loader *there = image_loader(kind, gpu, workers), *here = image_loader(kind, (yk_device){0}, 0);
    int batches = 0;
    for (int epoch = 0; epoch < 2; epoch++) {
        yk_batch a, b;
        for (yk_loader_start(there, epoch), yk_loader_start(here, epoch); yk_loader_next(here, &a); batches++) {
            if (!yk_loader_next(there, &b) || yk_numel(a.input) != yk_numel(b.input) ||
                yk_tensor_dtype(a.input) != yk_tensor_dtype(b.input))
                return false;
            size_t bytes = (size_t)yk_numel(a.input) * yk_dtype_size(yk_tensor_dtype(a.input));
            char *want = malloc(bytes), *got = malloc(bytes);
            int64_t label[5] = {-1};
            bool same = want && got && !yk_tensor_read(a.input, want, bytes) && !yk_tensor_read(b.input, got, bytes) &&
                        memcmp(want, got, bytes) == 0 &&
                        !yk_tensor_read(b.target, label, (size_t)b.count * sizeof(*label)) &&
                        label[b.count - 1] == a.samples[a.count - 1];
            free(want);
            free(got);
            if (!same)
                return false;
        }
        if (yk_loader_next(there, &b))
            return false;
    }
    return batches == 8 && !yk__memory_check(gpu);
}

static yk_transform *cropped(int64_t size, int64_t padding)
{
    static const double mean[] = {0.4914, 0.4822, 0.4465}, std[] = {0.2023, 0.1994, 0.2010};
    return yk_compose(yk_random_crop(size, padding), yk_random_horizontal_flip(0.5), yk_to_tensor(),
                      yk_normalize(mean, std, PLANES));
}

static bool images_right(void)
{
    const image_kind kinds[] = {
        {.transform = NULL},
        {.transform = yk_to_tensor(), .dtype = YK_F64},
        {.transform = yk_random_horizontal_flip(0.5)},
        {.transform = cropped(8, 4), .widths = true},
        {.transform = cropped(3, 0), .dtype = YK_F64, .widths = true},
        {.transform = cropped(2, 6)}, /* whole crops of padding are among them */
        {.transform = yk_compose(yk_resize_to(12, 7), yk_random_crop(7, 1)), .widths = true},
        {.transform = cropped(8, 1), .floats = true}, /* such batches are made of floats */
    };
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        for (int workers = 0; workers < 3; workers += 2) {
            if (!like_the_cpu(&kinds[i], workers)) {
                fprintf(stderr, "kind %zu with %d workers\n", i, workers);
                return false;
            }
        }
    }
    return true;
}

/* The kernel makes the floats: its fault is reported. */
static bool images_by_the_gpu(void)
{
    setenv("YOKE_EMULATOR_FAULT", "augment", 1);
    const image_kind kind = {.transform = cropped(8, 4)};
    yk_loader *l = image_loader(&kind, gpu, 0);
    yk_batch batch;
    while (yk_loader_next(l, &batch) && !yk_device_synchronize(gpu))
        continue;
    const yk_error *error = yk_last_error();
    bool told = error && strstr(error->message, "augment");
    yk_clear_error();
    return told;
}

static void test_images(void **state)
{
    (void)state;
    assert_int_equal(right_with(images_right), SEEDS);
    assert_int_equal(right_with(images_by_the_gpu), SEEDS);
}

int main(void)
{
    if (!use_emulator())
        return 0;
    /* First those that fork, which CUDA does not survive. */
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_orders),         cmocka_unit_test(test_images),
                                       cmocka_unit_test(test_beside_kernels), cmocka_unit_test(test_held_back),
                                       cmocka_unit_test(test_positions),      cmocka_unit_test(test_errors),
                                       cmocka_unit_test(test_not_recorded),   cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
