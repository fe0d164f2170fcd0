/* Transforms: against torchvision's results, and against plain loops for what is random. */
#include "tests/data/files.h"

#include "data/dataset.h"
#include "tests/golden/images_golden.h"

/* Applies one transform to an image of golden pixels, as far as it stays u8. */
static const unsigned char *apply(yk_transform *t, yk__data_worker *worker, int64_t channels, int64_t height,
                                  int64_t width, yk_sample *sample)
{
    *sample = (yk_sample){.worker = worker};
    size_t count = (size_t)(channels * height * width);
    unsigned char *pixels = malloc(count);
    golden_pixels(pixels, count);
    void *copy = yk_sample_allocate(sample, YK_U8, 3, (int64_t[]){channels, height, width});
    memcpy(copy, pixels, count);
    free(pixels);
    assert_non_null(t);
    expect_ok(t->apply(t, sample));
    return sample->data;
}

static void test_resize(void **state)
{
    (void)state;
    yk__data_worker worker = {0};
    for (size_t i = 0; i < sizeof(resize_cases) / sizeof(*resize_cases); i++) {
        const struct resize_case *c = &resize_cases[i];
        yk_transform *t = c->size ? yk_resize(c->size) : yk_resize_to(c->to_height, c->to_width);
        yk_sample sample;
        const unsigned char *out = apply(t, &worker, c->channels, c->height, c->width, &sample);
        assert_int_equal(sample.shape[1], c->out_height);
        assert_int_equal(sample.shape[2], c->out_width);
        size_t count = (size_t)(c->channels * c->out_height * c->out_width);
        assert_memory_equal(out, c->first, count < 8 ? count : 8);
        assert_int_equal(crc32(0, out, (uInt)count), c->crc);
    }
    yk__data_worker_clear(&worker);
}

static void test_center_crop(void **state)
{
    (void)state;
    yk__data_worker worker = {0};
    for (size_t i = 0; i < sizeof(center_cases) / sizeof(*center_cases); i++) {
        const struct center_case *c = &center_cases[i];
        yk_sample sample;
        const unsigned char *out = apply(yk_center_crop(c->size), &worker, c->channels, c->height, c->width, &sample);
        assert_int_equal(sample.shape[1], c->size);
        assert_int_equal(sample.shape[2], c->size);
        assert_int_equal(crc32(0, out, (uInt)(c->channels * c->size * c->size)), c->crc);
    }
    yk__data_worker_clear(&worker);
}

static yk_transform *cifar_normalize(void)
{
    return yk_normalize((double[]){0.4914, 0.4822, 0.4465}, (double[]){0.2023, 0.1994, 0.2010}, 3);
}

/* All 256 bytes in three channels equal PyTorch's float32 and float64 results to the last bit, in one pass, with
 * to_tensor and without it, and step by step (a do-nothing step keeps the chain from being fused). */
static yk_status do_nothing(void *user, yk_sample *sample)
{
    (void)user, (void)sample;
    return YK_OK;
}

static void test_normalize_equals_pytorch(void **state)
{
    (void)state;
    unsigned char ramp[3 * 256];
    for (int i = 0; i < 3 * 256; i++)
        ramp[i] = (unsigned char)i;
    picture p = {ramp, {3, 16, 16}};
    yk_transform *chains[] = {
        yk_compose(yk_to_tensor(), cifar_normalize()),
        cifar_normalize(),
        yk_compose(yk_transform_create("nothing", do_nothing, NULL, NULL), yk_to_tensor(), cifar_normalize()),
        yk_compose(yk_compose(yk_to_tensor()), yk_transform_create("nothing", do_nothing, NULL, NULL),
                   yk_compose(cifar_normalize())),
    };
    for (size_t i = 0; i < sizeof(chains) / sizeof(*chains); i++) {
        yk_dataset *set = picture_set(&p, 1, chains[i]);
        yk_tensor *single = yk_dataset_get(set, 0, YK_F32, NULL), *twice = yk_dataset_get(set, 0, YK_F64, NULL);
        expect_ok(0);
        assert_int_equal(crc32(0, yk_tensor_data(single), 768 * 4), normalized_crc_f32);
        assert_int_equal(crc32(0, yk_tensor_data(twice), 768 * 8), normalized_crc_f64);
    }
}

/* The one-pass chain and the same chain step by step give the same bits, for sizes and paddings of every kind. */
static void test_one_pass_equals_steps(void **state)
{
    (void)state;
    static const int64_t cases[][5] = {/* channels, height, width, crop (0: none), padding */
                                       {3, 32, 32, 32, 4}, {3, 32, 32, 0, 0}, {1, 28, 28, 24, 0}, {3, 7, 19, 5, 0},
                                       {3, 5, 4, 11, 4},   {2, 1, 1, 9, 9},   {3, 32, 32, 40, 4}, {3, 3, 3, 1, 5}};
    static const yk_dtype dtypes[] = {YK_F32, YK_F64};
    enum { LENGTH = 60 };
    double mean[] = {0.4914, 0.4822, 0.4465}, std[] = {0.2023, 0.1994, -0.2010};
    unsigned char pixels[3 * 32 * 32];
    golden_pixels(pixels, sizeof(pixels));
    for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(*cases); i++) {
        const int64_t *c = cases[i / 2];
        picture p = {pixels, {c[0], c[1], c[2]}};
        yk_transform *crop = c[3] ? yk_random_crop(c[3], c[4]) : NULL;
        yk_transform *flip = yk_random_horizontal_flip(0.5), *normalize = yk_normalize(mean, std, (int)c[0]);
        yk_transform *nothing = yk_transform_create("nothing", do_nothing, NULL, NULL);
        yk_transform *rest = yk_compose(flip, yk_to_tensor(), normalize);
        yk_transform *apart = yk_compose(flip, nothing, yk_to_tensor(), normalize);
        yk_dataset *fused = picture_set(&p, LENGTH, crop ? yk_compose(crop, rest) : rest);
        yk_dataset *steps = picture_set(&p, LENGTH, crop ? yk_compose(crop, apart) : apart);
        yk__pipeline one, two;
        expect_ok(yk__pipeline_init(&one, fused, dtypes[i % 2]));
        expect_ok(yk__pipeline_init(&two, steps, dtypes[i % 2]));
        assert_true(one.fusable);
        assert_false(two.fusable);
        yk__data_worker workers[2] = {0};
        int mirrored = 0;
        for (int64_t index = 0; index < LENGTH; index++) {
            yk__loaded a, b;
            expect_ok(yk__pipeline_load(&one, &workers[0], 7, 3, index, &a));
            expect_ok(yk__pipeline_load(&two, &workers[1], 7, 3, index, &b));
            assert_true(a.fused);
            assert_false(b.fused);
            mirrored += a.crop.mirrored != 0;
            assert_memory_equal(a.sample.shape, b.sample.shape, 3 * sizeof(int64_t));
            size_t bytes =
                (size_t)(a.sample.shape[0] * a.sample.shape[1] * a.sample.shape[2]) * yk_dtype_size(dtypes[i % 2]);
            unsigned char *x = malloc(bytes), *y = malloc(bytes);
            yk__pipeline_store(&one, &a, x);
            yk__pipeline_store(&two, &b, y);
            assert_memory_equal(x, y, bytes);
            free(x);
            free(y);
        }
        assert_in_range(mirrored, LENGTH / 4, LENGTH * 3 / 4);
        yk__data_worker_clear(&workers[0]);
        yk__data_worker_clear(&workers[1]);
        yk__pipeline_clear(&one);
        yk__pipeline_clear(&two);
    }
}

/* Every crop is a window of the padded image, and every place of the window comes up. */
static void test_random_crop(void **state)
{
    (void)state;
    enum { SIDE = 6, PADDING = 2, SIZE = 5, PLACES = SIDE + 2 * PADDING - SIZE + 1 };
    unsigned char pixels[SIDE * SIDE], padded[SIDE + 2 * PADDING][SIDE + 2 * PADDING] = {{0}};
    golden_pixels(pixels, sizeof(pixels));
    for (int y = 0; y < SIDE; y++)
        memcpy(&padded[y + PADDING][PADDING], pixels + y * SIDE, SIDE);
    picture p = {pixels, {1, SIDE, SIDE}};
    yk_dataset *set = picture_set(&p, 2000, yk_random_crop(SIZE, PADDING));
    int seen[PLACES][PLACES] = {{0}};
    for (int64_t i = 0; i < 2000; i++) {
        yk_scope scope = yk_scope_begin();
        const float *out = yk_tensor_data(yk_dataset_get(set, i, YK_F32, NULL));
        bool found = false;
        for (int top = 0; top < PLACES && !found; top++) {
            for (int left = 0; left < PLACES && !found; left++) {
                found = true;
                for (int k = 0; k < SIZE * SIZE && found; k++)
                    found = out[k] == (float)padded[top + k / SIZE][left + k % SIZE] / 255.0f;
                seen[top][left] += found;
            }
        }
        assert_true(found);
        yk_scope_end(scope);
    }
    for (int place = 0; place < PLACES * PLACES; place++) /* about 55 each */
        assert_in_range(seen[place / PLACES][place % PLACES], 20, 110);
}

static void test_flip(void **state)
{
    (void)state;
    unsigned char pixels[2 * 2 * 3];
    golden_pixels(pixels, sizeof(pixels));
    picture p = {pixels, {2, 2, 3}};
    static const double chances[] = {0, 1, 0.25};
    for (int k = 0; k < 3; k++) {
        yk_dataset *set = picture_set(&p, 1000, yk_random_horizontal_flip(chances[k]));
        int mirrored = 0;
        for (int64_t i = 0; i < 1000; i++) {
            yk_scope scope = yk_scope_begin();
            const float *out = yk_tensor_data(yk_dataset_get(set, i, YK_F32, NULL));
            bool same = true, turned = true;
            for (int at = 0; at < 12; at++) {
                same = same && out[at] == (float)pixels[at] / 255.0f;
                turned = turned && out[at] == (float)pixels[at / 3 * 3 + 2 - at % 3] / 255.0f;
            }
            assert_true(same != turned);
            mirrored += turned;
            yk_scope_end(scope);
        }
        assert_in_range(mirrored, chances[k] == 1 ? 1000 : 900 * chances[k] - 25 * chances[k], 1200 * chances[k]);
    }
}

/* No two samples, epochs or seeds share random bits, however many they draw. */
static int compare_words(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static void test_draws(void **state)
{
    (void)state;
    enum { SAMPLES = 20, WORDS = 16, EPOCHS = 2, SEEDS = 2, ALL = SAMPLES * WORDS * EPOCHS * SEEDS };
    uint32_t words[ALL];
    for (int i = 0; i < ALL / WORDS; i++) {
        yk__data_worker worker = {.seed = (uint64_t)(i / SAMPLES / EPOCHS)};
        yk_sample sample = {.index = i % SAMPLES, .epoch = i / SAMPLES % EPOCHS, .worker = &worker};
        for (int k = 0; k < WORDS; k++)
            words[i * WORDS + k] = yk_sample_random(&sample);
    }
    qsort(words, ALL, sizeof(*words), compare_words);
    for (int i = 1; i < ALL; i++)
        assert_true(words[i] != words[i - 1]);
    yk__data_worker worker = {0};
    yk_sample sample = {.worker = &worker};
    double sum = 0;
    for (int i = 0; i < 3000; i++) {
        assert_in_range(yk_sample_below(&sample, 7), 0, 6);
        double x = yk_sample_uniform(&sample);
        assert_true(x >= 0 && x < 1);
        sum += x;
        int64_t large = yk_sample_below(&sample, (int64_t)1 << 40);
        assert_true(large >= 0 && large < (int64_t)1 << 40);
    }
    expect_near(sum / 3000, 0.5, 0, 0.02);
    assert_int_equal(yk_sample_below(&sample, 0), 0);
    assert_int_equal(yk_sample_below(&sample, -3), 0);
    assert_int_equal(yk_sample_below(&sample, 1), 0);
}

/* ---- a user's own ---------------------------------------------------------------------------------------- */
static yk_status add_noise(void *user, yk_sample *sample)
{
    const float *x = sample->data;
    float *out = yk_sample_allocate(sample, YK_F32, sample->ndim, sample->shape);
    if (!out)
        return YK_ERR_MEMORY;
    for (int64_t i = 0; i < sample->shape[0] * sample->shape[1] * sample->shape[2]; i++)
        out[i] = x[i] + *(float *)user * (float)yk_sample_uniform(sample);
    return YK_OK;
}

static int released;
static void count_release(void *user)
{
    (void)user;
    released++;
}

static void test_user_transform(void **state)
{
    (void)state;
    unsigned char pixels[12] = {0};
    picture p = {pixels, {3, 2, 2}};
    float amount = 2;
    released = 0;
    yk_scope scope = yk_scope_begin();
    yk_transform *noise = yk_transform_create("noise", add_noise, &amount, count_release);
    yk_dataset *set = picture_set(&p, 5, yk_compose(yk_to_tensor(), noise));
    const float *a = yk_tensor_data(yk_dataset_get(set, 1, YK_F32, NULL));
    const float *again = yk_tensor_data(yk_dataset_get(set, 1, YK_F32, NULL));
    const float *b = yk_tensor_data(yk_dataset_get(set, 2, YK_F32, NULL));
    expect_ok(0);
    assert_memory_equal(a, again, 12 * sizeof(float));
    assert_memory_not_equal(a, b, 12 * sizeof(float));
    for (int i = 0; i < 12; i++)
        assert_true(a[i] >= 0 && a[i] < 2 && (i == 0 || a[i] != a[i - 1]));
    /* It wrote float32; the data set gives the dtype that is asked for. */
    assert_int_equal(yk_tensor_dtype(yk_dataset_get(set, 1, YK_F64, NULL)), YK_F64);
    yk_clear_error();
    yk_scope_end(scope);
    assert_int_equal(released, 1);
    assert_null(yk_transform_create("none", NULL, NULL, count_release));
    expect_error(YK_ERR_ARGUMENT, "no function for \"none\"");
    assert_int_equal(released, 2);
}

static yk_status fails_silently(void *user, yk_sample *sample)
{
    (void)user, (void)sample;
    return YK_ERR_NUMERIC;
}

static yk_status fails_with_words(void *user, yk_sample *sample)
{
    (void)user;
    return yk_set_error(YK_ERR_NUMERIC, "the moon is in the wrong place for sample %d", (int)sample->index);
}

static yk_status asks_too_much(void *user, yk_sample *sample)
{
    (void)user;
    return yk_sample_allocate(sample, YK_I32, 2, (int64_t[]){4, 0}) ? YK_OK : YK_ERR_SHAPE;
}

static yk_status leaves_nothing(void *user, yk_sample *sample)
{
    (void)user;
    sample->data = NULL;
    return YK_OK;
}

static void expect_sample_error(yk_transform *t, const int64_t shape[3], yk_dtype dtype, yk_status code,
                                const char *text)
{
    unsigned char pixels[4 * 4 * 4] = {0};
    picture p = {pixels, {shape[0], shape[1], shape[2]}};
    yk_dataset *set = picture_set(&p, 10, t);
    assert_null(yk_dataset_get(set, 7, dtype, NULL));
    expect_error(code, text);
}

static void test_errors(void **state)
{
    (void)state;
    int64_t small[] = {3, 2, 4};
    expect_sample_error(yk_transform_create("quiet", fails_silently, NULL, NULL), small, YK_F32, YK_ERR_CALLBACK,
                        "picture: sample 7: quiet: failed with status \"numeric\" and set no error");
    expect_sample_error(yk_transform_create("loud", fails_with_words, NULL, NULL), small, YK_F32, YK_ERR_NUMERIC,
                        "picture: sample 7: the moon is in the wrong place for sample 7");
    expect_sample_error(yk_transform_create("greedy", asks_too_much, NULL, NULL), small, YK_F32, YK_ERR_SHAPE,
                        "sample_allocate: int32 (4, 0)");
    expect_sample_error(yk_transform_create("idle", leaves_nothing, NULL, NULL), small, YK_F32, YK_ERR_CALLBACK,
                        "idle: left a sample without elements");
    expect_sample_error(yk_random_crop(5, 1), small, YK_F32, YK_ERR_SHAPE,
                        "random_crop: size 5 is larger than the image of 2x4 (padding 1)");
    expect_sample_error(yk_compose(yk_to_tensor(), yk_resize(2)), small, YK_F32, YK_ERR_DTYPE,
                        "resize: takes uint8 images, got float32; put it before to_tensor");
    expect_sample_error(yk_normalize((double[]){0.5}, (double[]){0.5}, 1), small, YK_F32, YK_ERR_SHAPE,
                        "normalize: has 1 means for a sample of 3 channels, uint8 (3, 2, 4)");
    expect_sample_error(NULL, small, YK_F16, YK_ERR_DTYPE, "dtype is float16 (2), expected float32 or float64");

    assert_null(yk_random_crop(0, 0));
    expect_error(YK_ERR_ARGUMENT, "random_crop: size 0");
    assert_null(yk_random_crop(4, -1));
    expect_error(YK_ERR_ARGUMENT, "padding -1");
    assert_null(yk_random_horizontal_flip(1.5));
    expect_error(YK_ERR_ARGUMENT, "p 1.5 is outside [0, 1]");
    assert_null(yk_random_horizontal_flip(NAN));
    expect_error(YK_ERR_ARGUMENT, "is outside [0, 1]");
    assert_null(yk_resize(0));
    expect_error(YK_ERR_ARGUMENT, "resize: size 0");
    assert_null(yk_resize_to(3, 1 << 20));
    expect_error(YK_ERR_ARGUMENT, "resize_to: 3x1048576");
    assert_null(yk_center_crop(-2));
    expect_error(YK_ERR_ARGUMENT, "center_crop: size -2");
    assert_null(yk_normalize((double[]){0, 0}, (double[]){1, 0}, 2));
    expect_error(YK_ERR_ARGUMENT, "normalize: channel 1 has mean 0 and std 0");

    /* A failed part makes the whole fail, with the part's error, all the way to the data set. */
    picture p = {NULL, {1, 1, 1}};
    assert_null(picture_set(&p, 1, yk_compose(yk_to_tensor(), yk_resize(0), yk_center_crop(2))));
    expect_error(YK_ERR_ARGUMENT, "resize: size 0");
    assert_null(yk_glyphs(YK_TRAIN, yk_random_crop(-1, 0), 0));
    expect_error(YK_ERR_ARGUMENT, "random_crop: size -1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        data_test(test_resize),         data_test(test_center_crop),
        data_test(test_flip),           data_test(test_normalize_equals_pytorch),
        data_test(test_random_crop),    data_test(test_one_pass_equals_steps),
        data_test(test_user_transform), data_test(test_errors),
        data_test(test_draws),
    };
    return cmocka_run_group_tests_name("transform", tests, NULL, NULL);
}
