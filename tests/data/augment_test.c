/* Transforms that augment: against torchvision's results, and by what they draw. */
#include <math.h>

#include "tests/data/files.h"
#include "tests/support/golden.h"

#include "data/dataset.h"

enum { HEIGHT = 6, WIDTH = 8, PIXELS = 3 * HEIGHT * WIDTH };
static const yk_dtype dtypes[] = {YK_U8, YK_F32, YK_F64};

/* The image that make_transforms.py transforms. */
static void make_image(yk_sample *sample, yk_dtype dtype, int64_t channels)
{
    unsigned char pixels[PIXELS];
    golden_pixels(pixels, sizeof(pixels));
    void *to = yk_sample_allocate(sample, dtype, 3, (int64_t[]){channels, HEIGHT, WIDTH});
    assert_non_null(to);
    for (int64_t i = 0; i < channels * HEIGHT * WIDTH; i++) {
        if (dtype == YK_U8)
            ((unsigned char *)to)[i] = pixels[i];
        else if (dtype == YK_F32)
            ((float *)to)[i] = (float)pixels[i] / 255.0f;
        else
            ((double *)to)[i] = (double)pixels[i] / 255.0;
    }
}

static double element(const yk_sample *sample, size_t i)
{
    return sample->dtype == YK_U8    ? (double)((const unsigned char *)sample->data)[i]
           : sample->dtype == YK_F32 ? (double)((const float *)sample->data)[i]
                                     : ((const double *)sample->data)[i];
}

static yk_transform *jitter(double brightness, double contrast, double saturation, double hue)
{
    return yk_color_jitter(YK_OPTIONS(yk_color_jitter_options, .brightness = {brightness, brightness},
                                      .contrast = {contrast, contrast}, .saturation = {saturation, saturation},
                                      .hue = {hue, hue}));
}

static yk_transform *turn(double degrees, bool bilinear, bool expand, double fill)
{
    return yk_random_rotation(
        degrees, degrees, YK_OPTIONS(yk_random_rotation_options, .bilinear = bilinear, .expand = expand, .fill = fill));
}

/* Bytes are equal; float64 differs by what another order of sums does, float32 by its rounding. */
static void expect_golden(const char *name, const yk_transform *t)
{
    yk__data_worker worker = {.seed = 1};
    assert_non_null(t);
    for (int d = 0; d < 3; d++) {
        char section[64];
        snprintf(section, sizeof(section), "%s_%s", name, dtypes[d] == YK_U8 ? "u8" : "f64");
        size_t count;
        const double *expected = golden_numbers("transforms", section, &count);
        yk_sample sample = {.worker = &worker};
        make_image(&sample, dtypes[d], 3);
        expect_ok(t->apply(t, &sample));
        assert_int_equal(sample.dtype, dtypes[d]);
        for (int i = 0; i < 3; i++)
            assert_int_equal(sample.shape[i], expected[i]);
        assert_int_equal(count - 3, yk__sample_numel(&sample));
        double most = dtypes[d] == YK_U8 ? 0 : dtypes[d] == YK_F32 ? 2e-6 : 1e-14;
        for (size_t i = 0; i < count - 3; i++) {
            if (!(fabs(element(&sample, i) - expected[3 + i]) <= most))
                fail_msg("%s: element %zu is %.17g, torchvision's %.17g", section, i, element(&sample, i),
                         expected[3 + i]);
        }
    }
    yk__data_worker_clear(&worker);
}

static void test_equal_torchvision(void **state)
{
    (void)state;
    expect_golden("brighter", jitter(1.37, 1, 1, 0));
    expect_golden("darker", jitter(0.29, 1, 1, 0));
    expect_golden("contrast_more", jitter(1, 1.8, 1, 0));
    expect_golden("contrast_less", jitter(1, 0.35, 1, 0));
    expect_golden("saturation_more", jitter(1, 1, 2.2, 0));
    expect_golden("saturation_less", jitter(1, 1, 0.4, 0));
    expect_golden("hue_up", jitter(1, 1, 1, 0.31));
    expect_golden("hue_down", jitter(1, 1, 1, -0.17));
    expect_golden("grey_1", yk_grayscale(1));
    expect_golden("grey_3", yk_grayscale(3));
    expect_golden("random_grey", yk_random_grayscale(1));
    expect_golden("vertical_flip", yk_random_vertical_flip(1));
    expect_golden("rotated_nearest", yk_random_rotation(33, 33, NULL));
    expect_golden("rotated_bilinear", turn(-21, true, false, 0));
    expect_golden("rotated_filled", turn(52, true, false, 0.4));
    expect_golden("rotated_expanded", turn(40, true, true, 1));
    expect_golden("rotated_expanded_nearest", turn(-75, false, true, 0));
    expect_golden(
        "affine_nearest",
        yk_random_affine(17, 17, YK_OPTIONS(yk_random_affine_options, .scale = {0.9, 0.9}, .shear = {8, 8, -5, -5})));
    expect_golden("affine_bilinear",
                  yk_random_affine(-28, -28,
                                   YK_OPTIONS(yk_random_affine_options, .scale = {1.3, 1.3}, .shear = {0, 0, 11, 11},
                                              .bilinear = true, .fill = 1)));
    expect_golden("blur_3", yk_gaussian_blur(3, YK_OPTIONS(yk_gaussian_blur_options, .sigma = {0.7, 0.7})));
    expect_golden("blur_7", yk_gaussian_blur(7, YK_OPTIONS(yk_gaussian_blur_options, .sigma = {1.6, 1.6})));
}

/* The image as sample `index` after a transform, as one number: equal for equal results. */
static uint32_t result_of(const yk_transform *t, yk__data_worker *worker, yk_dtype dtype, int64_t channels,
                          int64_t index)
{
    yk_sample sample = {.worker = worker, .index = index};
    worker->drawn = 0;
    make_image(&sample, dtype, channels);
    expect_ok(t->apply(t, &sample));
    return (uint32_t)crc32(0, sample.data, (uInt)(yk__sample_numel(&sample) * yk_dtype_size(sample.dtype)));
}

/* The number of samples, of 200, that a transform left as they were. */
static int left_alone(const yk_transform *t, yk_dtype dtype, int64_t channels)
{
    yk__data_worker worker = {.seed = 5}, other = {.seed = 5};
    yk_transform *nothing = jitter(1, 1, 1, 0);
    uint32_t same = result_of(nothing, &worker, dtype, channels, 0);
    int count = 0;
    for (int64_t i = 0; i < 200; i++) {
        uint32_t one = result_of(t, &worker, dtype, channels, i);
        assert_int_equal(one, result_of(t, &other, dtype, channels, i));
        count += one == same;
    }
    yk__data_worker_clear(&worker);
    yk__data_worker_clear(&other);
    return count;
}

/* A shift comes after the turn: of the samples of a transform that draws shifts, some are torchvision's of one. */
static void test_shift_after_turn(void **state)
{
    (void)state;
    yk__data_worker worker = {.seed = 4};
    yk_transform *t = yk_random_affine(17, 17,
                                       YK_OPTIONS(yk_random_affine_options, .translate = {0.3, 0.3},
                                                  .scale = {0.9, 0.9}, .shear = {8, 8, -5, -5}, .bilinear = true));
    size_t count;
    const double *expected = golden_numbers("transforms", "affine_shifted_u8", &count);
    int found = 0;
    for (int64_t index = 0; index < 200; index++) {
        yk_sample sample = {.worker = &worker, .index = index};
        worker.drawn = 0;
        make_image(&sample, YK_U8, 3);
        expect_ok(t->apply(t, &sample));
        bool same = true;
        for (size_t i = 0; i < count - 3 && same; i++)
            same = element(&sample, i) == expected[3 + i];
        found += same;
    }
    assert_in_range(found, 1, 40);
    yk__data_worker_clear(&worker);
}

/* Shifts are of whole pixels, up to the part of each side that was asked for. */
static void test_affine_draws(void **state)
{
    (void)state;
    yk__data_worker worker = {.seed = 4};
    yk_transform *t = yk_random_affine(0, 0, YK_OPTIONS(yk_random_affine_options, .translate = {0.25, 0.5}, .fill = 9));
    bool seen_x[5] = {0}, seen_y[7] = {0};
    for (int64_t index = 0; index < 300; index++) {
        yk_sample sample = {.worker = &worker, .index = index};
        worker.drawn = 0;
        make_image(&sample, YK_F64, 1);
        double image[HEIGHT][WIDTH];
        memcpy(image, sample.data, sizeof(image));
        expect_ok(t->apply(t, &sample));
        int found = 0;
        for (int dy = -3; dy <= 3; dy++) {
            for (int dx = -2; dx <= 2; dx++) {
                bool same = true;
                for (int y = 0; y < HEIGHT && same; y++) {
                    for (int x = 0; x < WIDTH && same; x++) {
                        bool in = y - dy >= 0 && y - dy < HEIGHT && x - dx >= 0 && x - dx < WIDTH;
                        same = element(&sample, (size_t)(y * WIDTH + x)) == (in ? image[y - dy][x - dx] : 9);
                    }
                }
                if (same)
                    found++, seen_x[dx + 2] = true, seen_y[dy + 3] = true;
            }
        }
        assert_int_equal(found, 1);
    }
    for (int i = 0; i < 7; i++)
        assert_true(seen_y[i] && (i > 4 || seen_x[i]));
    yk__data_worker_clear(&worker);
}

/* An erased part is one rectangle of the area and ratio that were asked for, anywhere in the image. */
static void test_erasing(void **state)
{
    (void)state;
    enum { SIDE = 40 };
    static float ones[SIDE * SIDE];
    for (int i = 0; i < SIDE * SIDE; i++)
        ones[i] = 1;
    yk__data_worker worker = {.seed = 4};
    yk_transform *t = yk_random_erasing(
        YK_OPTIONS(yk_random_erasing_options, .p = 0.8, .scale = {0.1, 0.3}, .ratio = {0.5, 2}, .value = -2));
    int none = 0, at_edge = 0;
    for (int64_t index = 0; index < 300; index++) {
        yk_sample sample = {.worker = &worker, .index = index};
        worker.drawn = 0;
        yk_sample_view(&sample, ones, YK_F32, 3, (int64_t[]){1, SIDE, SIDE});
        expect_ok(t->apply(t, &sample));
        int top = SIDE, left = SIDE, bottom = -1, right = -1, count = 0;
        for (int i = 0; i < SIDE * SIDE; i++) {
            if (((const float *)sample.data)[i] == -2) {
                count++;
                top = i / SIDE < top ? i / SIDE : top, bottom = i / SIDE;
                left = i % SIDE < left ? i % SIDE : left, right = i % SIDE > right ? i % SIDE : right;
            } else {
                assert_true(((const float *)sample.data)[i] == 1);
            }
        }
        none += count == 0;
        if (count) {
            assert_int_equal(count, (bottom - top + 1) * (right - left + 1));
            assert_in_range(count, SIDE * SIDE / 10 - SIDE, 3 * SIDE * SIDE / 10 + SIDE);
            double ratio = (double)(bottom - top + 1) / (right - left + 1);
            assert_true(ratio > 0.45 && ratio < 2.2);
            at_edge += top == 0 || left == 0 || bottom == SIDE - 1 || right == SIDE - 1;
        }
    }
    assert_in_range(none, 30, 90);
    assert_in_range(at_edge, 3, 150);
    assert_true(ones[0] == 1 && ones[SIDE * SIDE - 1] == 1);
    yk__data_worker_clear(&worker);
    /* An area that never fits leaves the image. */
    assert_int_equal(
        left_alone(yk_random_erasing(YK_OPTIONS(yk_random_erasing_options, .p = 1, .scale = {1, 1})), YK_U8, 3), 200);
}

static void test_probability(void **state)
{
    (void)state;
    assert_in_range(left_alone(yk_random_vertical_flip(0.3), YK_U8, 3), 110, 170);
    assert_int_equal(left_alone(yk_random_vertical_flip(0), YK_F32, 1), 200);
    assert_in_range(left_alone(yk_random_grayscale(0.7), YK_F64, 3), 35, 85);
    assert_int_equal(left_alone(yk_random_grayscale(1), YK_U8, 1), 200);
    assert_int_equal(left_alone(yk_color_jitter(NULL), YK_U8, 3), 200);
    assert_int_equal(left_alone(jitter(1, 1, 2, 0.4), YK_U8, 1), 200);
}

/* A jitter's factors fill their ranges, and its four steps come in every order. */
static void test_jitter_draws(void **state)
{
    (void)state;
    yk__data_worker worker = {.seed = 5};
    const yk_transform *bright = yk_color_jitter(YK_OPTIONS(yk_color_jitter_options, .brightness = {0.25, 0.75}));
    double least = 1, most = 0;
    for (int64_t i = 0; i < 200; i++) {
        yk_sample sample = {.worker = &worker, .index = i};
        worker.drawn = 0;
        make_image(&sample, YK_F64, 1);
        size_t at = 0;
        while (element(&sample, at) < 0.5)
            at++;
        double before = element(&sample, at);
        expect_ok(bright->apply(bright, &sample));
        least = fmin(least, element(&sample, at) / before), most = fmax(most, element(&sample, at) / before);
    }
    assert_true(least >= 0.25 && least < 0.27 && most <= 0.75 && most > 0.73);
    /* Two steps that do not commute come in both orders. */
    const yk_transform *both = jitter(1.5, 0.5, 1, 0);
    uint32_t found[2] = {result_of(both, &worker, YK_U8, 3, 0)};
    int first = 0;
    for (int64_t i = 0; i < 200; i++) {
        uint32_t one = result_of(both, &worker, YK_U8, 3, i);
        if (one != found[0] && !found[1])
            found[1] = one;
        assert_true(one == found[0] || one == found[1]);
        first += one == found[0];
    }
    assert_in_range(first, 60, 140);
    yk__data_worker_clear(&worker);
}

/* The same batches for any number of workers, and the default of a set of bytes with colour transforms: floats. */
static void test_any_workers(void **state)
{
    (void)state;
    uint32_t sums[3];
    for (int workers = 0; workers < 3; workers++) {
        yk_transform *chain = yk_compose(
            yk_random_vertical_flip(0.5),
            yk_color_jitter(YK_OPTIONS(yk_color_jitter_options, .brightness = {0.6, 1.4}, .hue = {-0.1, 0.1})),
            yk_random_grayscale(0.1), yk_random_rotation(-9, 9, NULL), yk_gaussian_blur(3, NULL),
            yk_random_erasing(NULL));
        yk_loader *loader =
            yk_loader_create(yk_glyphs(YK_TEST, chain, 0), YK_OPTIONS(yk_loader_options, .batch_size = 16,
                                                                      .shuffle = true, .workers = workers, .seed = 9));
        yk_batch batch;
        sums[workers] = 0;
        yk_loader_start(loader, 0);
        for (int i = 0; i < 5 && yk_loader_next(loader, &batch); i++) {
            assert_int_equal(yk_tensor_dtype(batch.input), YK_F32);
            sums[workers] = (uint32_t)crc32(sums[workers], yk_tensor_data(batch.input), 16 * 28 * 28 * 4);
        }
        expect_ok(yk_last_error() ? YK_ERR_STATE : YK_OK);
    }
    assert_int_equal(sums[0], sums[1]);
    assert_int_equal(sums[0], sums[2]);
}

static void test_bad_arguments(void **state)
{
    (void)state;
    assert_null(yk_random_vertical_flip(1.5));
    expect_error(YK_ERR_ARGUMENT, "random_vertical_flip: p is 1.5");
    assert_null(yk_random_grayscale(NAN));
    expect_error(YK_ERR_ARGUMENT, "random_grayscale: p is nan");
    assert_null(yk_grayscale(2));
    expect_error(YK_ERR_ARGUMENT, "grayscale: 2 channels, expected 1 or 3");
    assert_null(yk_color_jitter(YK_OPTIONS(yk_color_jitter_options, .brightness = {0.4})));
    expect_error(YK_ERR_ARGUMENT, "brightness is {0.4, 0}, expected a range that rises");
    assert_null(yk_color_jitter(YK_OPTIONS(yk_color_jitter_options, .contrast = {-1, 1})));
    expect_error(YK_ERR_ARGUMENT, "contrast is {-1, 1}");
    assert_null(yk_color_jitter(YK_OPTIONS(yk_color_jitter_options, .hue = {-0.6, 0.1})));
    expect_error(YK_ERR_ARGUMENT, "hue is {-0.6, 0.1}, expected a range that rises, in [-0.5, 0.5]");
    assert_null(yk_random_rotation(10, -10, NULL));
    expect_error(YK_ERR_ARGUMENT, "random_rotation: degrees is 10 to -10, expected a range that rises");
    assert_null(yk_random_affine(NAN, 0, NULL));
    expect_error(YK_ERR_ARGUMENT, "random_affine: degrees is nan");
    assert_null(yk_random_affine(0, 0, YK_OPTIONS(yk_random_affine_options, .scale = {2, 1})));
    expect_error(YK_ERR_ARGUMENT, "random_affine: scale is 2 to 1");
    assert_null(yk_random_erasing(YK_OPTIONS(yk_random_erasing_options, .ratio = {0, 1})));
    expect_error(YK_ERR_ARGUMENT, "random_erasing: ratio is 0");
    assert_null(yk_gaussian_blur(4, NULL));
    expect_error(YK_ERR_ARGUMENT, "gaussian_blur: kernel_size is 4, expected an odd number");
    unsigned char pixels[PIXELS] = {0};
    picture small = {pixels, {3, 2, 9}};
    assert_null(yk_dataset_get(picture_set(&small, 1, yk_gaussian_blur(5, NULL)), 0, YK_F32, NULL));
    expect_error(YK_ERR_SHAPE, "gaussian_blur: a kernel of 5 reaches beyond the image of 2x9");
    assert_null(yk_dataset_get(picture_set(&small, 1, turn(9, false, false, 256)), 0, YK_F32, NULL));
    expect_error(YK_ERR_ARGUMENT, "random_rotation: fill 256 is no value of a uint8 image");
    picture two = {pixels, {2, HEIGHT, WIDTH}};
    assert_null(yk_dataset_get(picture_set(&two, 1, yk_grayscale(1)), 0, YK_F32, NULL));
    expect_error(YK_ERR_SHAPE, "grayscale: takes images of 1 or 3 channels of uint8, float32 or float64, got uint8 (2, "
                               "6, 8)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        data_test(test_equal_torchvision), data_test(test_probability),   data_test(test_jitter_draws),
        data_test(test_shift_after_turn),  data_test(test_affine_draws),  data_test(test_erasing),
        data_test(test_any_workers),       data_test(test_bad_arguments),
    };
    return cmocka_run_group_tests_name("augment", tests, NULL, NULL);
}
