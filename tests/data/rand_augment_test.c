/* rand_augment_test.c - RandAugment and RandomPerspective: against torchvision's results, and by what they draw. */
#include <math.h>

#include "tests/data/files.h"
#include "tests/support/golden.h"

#include "data/dataset.h"

enum { MOST_PIXELS = 18 * 30 };

/* The image that make_rand_augment.py changes: of colours (3, 6, 8), else (1, 18, 30). */
static void make_image(yk_sample *sample, bool colours, yk_dtype dtype)
{
    unsigned char pixels[MOST_PIXELS];
    int64_t shape[3] = {colours ? 3 : 1, colours ? 6 : 18, colours ? 8 : 30}, n = shape[0] * shape[1] * shape[2];
    golden_pixels(pixels, (size_t)n);
    void *to = yk_sample_allocate(sample, dtype, 3, shape);
    assert_non_null(to);
    for (int64_t i = 0; i < n; i++) {
        unsigned char value = (unsigned char)(pixels[i] / 2 + 40);
        if (dtype == YK_U8)
            ((unsigned char *)to)[i] = value;
        else
            ((double *)to)[i] = value / 255.0;
    }
}

static void expect_elements(const char *section, const yk_sample *sample, double most)
{
    size_t count;
    const double *expected = golden_numbers("rand_augment", section, &count);
    assert_int_equal(count, yk__sample_numel(sample));
    for (size_t i = 0; i < count; i++) {
        double value = sample->dtype == YK_U8 ? (double)((const unsigned char *)sample->data)[i]
                                              : ((const double *)sample->data)[i];
        if (!(fabs(value - expected[i]) <= most))
            fail_msg("%s: element %zu is %.17g, torchvision's %.17g", section, i, value, expected[i]);
    }
}

static const char *const names[YK__RAND_OPS] = {[YK__IDENTITY] = "Identity",
                                                [YK__SHEAR_X] = "ShearX",
                                                [YK__SHEAR_Y] = "ShearY",
                                                [YK__TRANSLATE_X] = "TranslateX",
                                                [YK__TRANSLATE_Y] = "TranslateY",
                                                [YK__ROTATE] = "Rotate",
                                                [YK__BRIGHTNESS] = "Brightness",
                                                [YK__COLOR] = "Color",
                                                [YK__CONTRAST] = "Contrast",
                                                [YK__RAND_SHARPNESS] = "Sharpness",
                                                [YK__RAND_POSTERIZE] = "Posterize",
                                                [YK__RAND_SOLARIZE] = "Solarize",
                                                [YK__RAND_AUTOCONTRAST] = "AutoContrast",
                                                [YK__RAND_EQUALIZE] = "Equalize"};

static void test_operations(void **state)
{
    (void)state;
    const yk_transform *settings[] = {
        yk_rand_augment(NULL),
        yk_rand_augment(
            YK_OPTIONS(yk_rand_augment_options, .magnitude = 7, .num_magnitude_bins = 10, .bilinear = true)),
        yk_rand_augment(YK_OPTIONS(yk_rand_augment_options, .magnitude = 20, .bilinear = true, .fill = 90))};
    yk__data_worker worker = {.seed = 1};
    for (int s = 0; s < 3; s++) {
        assert_non_null(settings[s]);
        for (int op = s ? YK__SHEAR_X : 0; op < YK__RAND_OPS; op++) {
            bool again = op <= YK__ROTATE || (op >= YK__RAND_SHARPNESS && op <= YK__RAND_SOLARIZE);
            if (s && !again)
                continue;
            bool colours = op >= YK__BRIGHTNESS && op <= YK__CONTRAST;
            bool directed = op >= YK__SHEAR_X && op <= YK__RAND_SHARPNESS;
            for (int negative = 0; negative <= directed; negative++) {
                char section[64];
                snprintf(section, sizeof(section), "%s_%d%s", names[op], s, negative ? "_negative" : "");
                yk_sample sample = {.worker = &worker};
                make_image(&sample, colours, YK_U8);
                expect_ok(yk__rand_augment_apply(settings[s], (yk__rand_op)op, negative, &sample));
                expect_elements(section, &sample, 0);
            }
        }
    }
    yk__data_worker_clear(&worker);
}

/* The magnitudes to the last bit. */
static void test_magnitudes(void **state)
{
    (void)state;
    static const int bins[] = {2, 10, 31, 101};
    static const double ends[][2] = {{0, 0.3}, {0, 30}, {0, 0.9}, {1, 0}, {0, 150.0 / 331.0 * 224}};
    for (int b = 0; b < 4; b++) {
        for (int e = 0; e < 5; e++) {
            char section[64];
            size_t count;
            snprintf(section, sizeof(section), "linspace_%d_%lld", bins[b], llrint(ends[e][1] * 10));
            const double *expected = golden_numbers("rand_augment", section, &count);
            assert_int_equal(count, bins[b]);
            for (int i = 0; i < bins[b]; i++)
                assert_true((double)yk__rand_augment_magnitude(ends[e][0], ends[e][1], bins[b], i) == expected[i]);
        }
    }
}

static void test_perspective(void **state)
{
    (void)state;
    static const double corners[3][4][2] = {
        {{1, 0}, {7, 1}, {6, 5}, {0, 4}}, {{0, 0}, {7, 0}, {7, 5}, {0, 5}}, {{2, 2}, {5, 0}, {7, 3}, {1, 5}}};
    yk__data_worker worker = {.seed = 1};
    for (int i = 0; i < 3; i++) {
        for (int form = 0; form < 4; form++) {
            bool bytes = form < 2, nearest = form % 2;
            char section[64];
            snprintf(section, sizeof(section), "perspective_%d_%s_%s", i, nearest ? "nearest" : "bilinear",
                     bytes ? "u8" : "f64");
            const yk_transform *t =
                yk_random_perspective(YK_OPTIONS(yk_random_perspective_options, .nearest = nearest, .fill = 0.5));
            yk_sample sample = {.worker = &worker};
            double map[8];
            assert_non_null(t);
            make_image(&sample, true, bytes ? YK_U8 : YK_F64);
            yk__perspective_map(corners[i], 6, 8, map);
            expect_ok(yk__warp_perspective(t, &sample, map));
            expect_elements(section, &sample, bytes ? 0 : 1e-12);
        }
    }
    yk__data_worker_clear(&worker);
}

/* The image as sample `index` after a transform, as one number. */
static uint32_t result_of(const yk_transform *t, yk__data_worker *worker, int64_t index)
{
    yk_sample sample = {.worker = worker, .index = index};
    worker->drawn = 0;
    make_image(&sample, false, YK_U8);
    expect_ok(t->apply(t, &sample));
    return (uint32_t)crc32(0, sample.data, (uInt)yk__sample_numel(&sample));
}

/* One operation a sample comes as each of the table, in both directions, about as often. */
static void test_draws(void **state)
{
    (void)state;
    enum { DRAWS = 1400 };
    yk__data_worker worker = {.seed = 6};
    const yk_transform *t = yk_rand_augment(YK_OPTIONS(yk_rand_augment_options, .num_ops = 1));
    uint32_t expected[YK__RAND_OPS][2];
    int found[YK__RAND_OPS][2] = {{0}};
    for (int op = 0; op < YK__RAND_OPS; op++) {
        for (int negative = 0; negative < 2; negative++) {
            yk_sample sample = {.worker = &worker};
            make_image(&sample, false, YK_U8);
            expect_ok(yk__rand_augment_apply(t, (yk__rand_op)op, negative, &sample));
            expected[op][negative] = (uint32_t)crc32(0, sample.data, (uInt)yk__sample_numel(&sample));
        }
    }
    for (int64_t i = 0; i < DRAWS; i++) {
        uint32_t made = result_of(t, &worker, i);
        int op = 0, negative = 0;
        while (op < YK__RAND_OPS && made != expected[op][negative])
            op += negative, negative ^= 1;
        assert_true(op < YK__RAND_OPS);
        found[op][negative]++;
    }
    /* An image of one channel has no saturation, and this one no levels to solarize: Color and Solarize are none, too.
     */
    assert_in_range(found[YK__IDENTITY][0], DRAWS * 3 / 14 - 70, DRAWS * 3 / 14 + 70);
    for (int op = YK__SHEAR_X; op < YK__RAND_OPS; op++) {
        bool directed = expected[op][0] != expected[op][1];
        for (int negative = 0; negative <= directed && op != YK__COLOR && op != YK__RAND_SOLARIZE; negative++)
            assert_in_range(found[op][negative], directed ? 25 : 60, directed ? 80 : 145);
    }
    const yk_transform *none = yk_rand_augment(YK_OPTIONS(yk_rand_augment_options, .num_ops = 0));
    assert_int_equal(result_of(none, &worker, 3), expected[YK__IDENTITY][0]);
    /* A perspective leaves as many as it should, and moves the others. */
    const yk_transform *tilt = yk_random_perspective(YK_OPTIONS(yk_random_perspective_options, .p = 0.3));
    int left = 0;
    for (int64_t i = 0; i < 200; i++)
        left += result_of(tilt, &worker, i) == expected[YK__IDENTITY][0];
    assert_in_range(left, 110, 170);
    yk__data_worker_clear(&worker);
}

/* The same batches for any number of workers; narrow images, too. */
static void test_any_workers(void **state)
{
    (void)state;
    uint32_t sums[3];
    for (int workers = 0; workers < 3; workers++) {
        yk_transform *chain = yk_compose(yk_rand_augment(NULL), yk_random_perspective(NULL), yk_to_tensor());
        yk_loader *loader =
            yk_loader_create(yk_glyphs(YK_TEST, chain, 0), YK_OPTIONS(yk_loader_options, .batch_size = 16,
                                                                      .shuffle = true, .workers = workers, .seed = 9));
        yk_batch batch;
        sums[workers] = 0;
        for (int i = 0; i < 4 && yk_loader_next(loader, &batch); i++)
            sums[workers] = (uint32_t)crc32(sums[workers], yk_tensor_data(batch.input), 16 * 28 * 28 * 4);
        expect_ok(yk_last_error() ? YK_ERR_STATE : YK_OK);
    }
    assert_int_equal(sums[0], sums[1]);
    assert_int_equal(sums[0], sums[2]);
    static unsigned char pixels[40];
    for (int64_t height = 1; height < 4; height++) {
        picture thin = {pixels, {1, height, 9}};
        yk_transform *chain = yk_compose(yk_rand_augment(YK_OPTIONS(yk_rand_augment_options, .num_ops = 40)),
                                         yk_random_perspective(YK_OPTIONS(yk_random_perspective_options, .p = 1)));
        assert_non_null(yk_dataset_get(picture_set(&thin, 1, chain), 0, YK_F32, NULL));
    }
}

static void test_bad_arguments(void **state)
{
    (void)state;
    assert_null(yk_rand_augment(YK_OPTIONS(yk_rand_augment_options, .magnitude = 31)));
    expect_error(YK_ERR_ARGUMENT, "rand_augment: magnitude is 31, expected 0 to 30");
    assert_null(yk_rand_augment(YK_OPTIONS(yk_rand_augment_options, .num_magnitude_bins = 1, .magnitude = 0)));
    expect_error(YK_ERR_ARGUMENT, "rand_augment: num_magnitude_bins is 1");
    assert_null(yk_random_perspective(YK_OPTIONS(yk_random_perspective_options, .distortion_scale = 2)));
    expect_error(YK_ERR_ARGUMENT, "random_perspective: distortion_scale is 2");
    unsigned char pixels[2 * 4 * 4] = {0};
    picture two = {pixels, {2, 4, 4}};
    assert_null(yk_dataset_get(picture_set(&two, 1, yk_rand_augment(NULL)), 0, YK_F32, NULL));
    expect_error(YK_ERR_DTYPE, "rand_augment: takes images of 1 or 3 channels of uint8, got uint8 (2, 4, 4)");
    yk_transform *late = yk_compose(yk_to_tensor(), yk_rand_augment(NULL));
    assert_null(yk_dataset_get(yk_glyphs(YK_TEST, late, 0), 0, YK_F32, NULL));
    expect_error(YK_ERR_DTYPE, "rand_augment: takes images of 1 or 3 channels of uint8, got float32 (1, 28, 28)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        data_test(test_operations), data_test(test_magnitudes),  data_test(test_perspective),
        data_test(test_draws),      data_test(test_any_workers), data_test(test_bad_arguments),
    };
    return cmocka_run_group_tests_name("rand_augment", tests, NULL, NULL);
}
