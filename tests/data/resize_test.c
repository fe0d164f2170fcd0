/*
 * Resizing with what follows it in one step: the bytes are those of the steps one after the other, for pictures in
 * memory and for JPEG files, of which only the part that is needed is decoded; and random parts. That a resize's bytes
 * are PIL's is in transform_test.c.
 */
#include <math.h>

#include "tests/data/files.h"

#include "data/dataset.h"
#include "tests/data/jpeg.h"

static yk_status do_nothing(void *user, yk_sample *sample)
{
    (void)user, (void)sample;
    return YK_OK;
}

/* A step that keeps those after it from being joined. */
static yk_transform *nothing(void)
{
    return yk_transform_create("nothing", do_nothing, NULL, NULL);
}

/* Sample 0 of both sets has the same shape and bits. */
static void expect_equal_samples(yk_dataset *joined, yk_dataset *steps)
{
    yk_tensor *a = yk_dataset_get(joined, 0, YK_F32, NULL), *b = yk_dataset_get(steps, 0, YK_F32, NULL);
    expect_ok(0);
    assert_true(yk_same_shape(a, b));
    assert_memory_equal(yk_tensor_data(a), yk_tensor_data(b), (size_t)yk_numel(a) * 4);
}

static void test_middle_of_a_resize(void **state)
{
    (void)state;
    static const int64_t cases[][6] = {/* channels, height, width, resize (0: to 9 x 70), center_crop, then crop */
                                       {3, 75, 100, 52, 44, 0}, {3, 100, 75, 51, 45, 3}, {1, 40, 40, 40, 33, 0},
                                       {3, 20, 31, 64, 63, 5},  {2, 70, 71, 1, 1, 0},    {3, 33, 200, 16, 16, 2},
                                       {3, 64, 64, 0, 9, 0},    {3, 90, 41, 17, 30, 0},  {3, 30, 30, 0, 40, 0},
                                       {4, 129, 65, 65, 65, 1}, {3, 1, 1, 1, 1, 0},      {3, 47, 300, 46, 17, 0}};
    unsigned char *pixels = malloc(4 * 300 * 300);
    golden_pixels(pixels, 4 * 300 * 300);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const int64_t *c = cases[i];
        picture p = {pixels, {c[0], c[1], c[2]}};
        yk_transform *resize = c[3] ? yk_resize(c[3]) : yk_resize_to(9, 70), *center = yk_center_crop(c[4]);
        yk_transform *rest = c[5] ? yk_random_crop(c[5], 1) : yk_random_horizontal_flip(1);
        expect_equal_samples(picture_set(&p, 1, yk_compose(resize, center, rest, yk_to_tensor())),
                             picture_set(&p, 1, yk_compose(nothing(), resize, center, rest, yk_to_tensor())));
        /* A transform after another kind is not joined with those before that; nor is one that is alone. */
        expect_equal_samples(picture_set(&p, 1, yk_compose(resize, center, nothing(), rest)),
                             picture_set(&p, 1, yk_compose(nothing(), resize, center, rest)));
        expect_equal_samples(picture_set(&p, 1, resize), picture_set(&p, 1, yk_compose(nothing(), resize)));
    }
    free(pixels);
}

/* A line of `in` bytes to one of `out`, by the definition: PIL's triangle, its weights rounded to 22
 * bits, a sum in integers. */
static void resize_line(const unsigned char *from, int64_t in, unsigned char *to, int64_t out)
{
    double scale = (double)in / (double)out, wide = scale < 1 ? 1 : scale;
    for (int64_t o = 0; o < out; o++) {
        double center = ((double)o + 0.5) * scale, total = 0;
        int64_t first = (int64_t)(center - wide + 0.5), end = (int64_t)(center + wide + 0.5), sum = 1 << 21;
        first = first < 0 ? 0 : first;
        end = end > in ? in : end;
        for (int64_t i = first; i < end; i++)
            total += fmax(0, 1 - fabs(((double)i - center + 0.5) * (1.0 / wide)));
        for (int64_t i = first; i < end; i++) {
            double weight = fmax(0, 1 - fabs(((double)i - center + 0.5) * (1.0 / wide))) / total;
            sum += from[i] * (int64_t)(weight * (1 << 22) + 0.5);
        }
        to[o] = (unsigned char)(sum >> 22 > 255 ? 255 : sum >> 22);
    }
}

/* Lines of one pixel up to several vectors, shrunk and stretched by much and by little. */
static void test_bytes_of_a_resize(void **state)
{
    (void)state;
    static const int64_t sizes[][4] = {{1, 1, 5, 3},       {2, 300, 2, 17},    {17, 64, 16, 63},   {64, 17, 65, 15},
                                       {100, 133, 66, 88}, {75, 400, 51, 130}, {33, 257, 31, 70},  {40, 400, 20, 99},
                                       {90, 390, 18, 33},  {5, 65, 130, 129},  {129, 20, 13, 200}, {200, 128, 31, 32}};
    unsigned char *pixels = malloc(2 * 400 * 400), *between = malloc(400 * 400), *expected = malloc(400 * 400);
    golden_pixels(pixels, 2 * 400 * 400);
    for (size_t i = 0; i < 400 * 400; i += 3)
        pixels[i] |= 0xf8; /* sums beyond 255 */
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        int64_t height = sizes[i][0], width = sizes[i][1], to_height = sizes[i][2], to_width = sizes[i][3];
        yk_scope scope = yk_scope_begin();
        picture p = {pixels, {2, height, width}};
        yk_tensor *x = yk_dataset_get(picture_set(&p, 1, yk_resize_to(to_height, to_width)), 0, YK_F64, NULL);
        expect_ok(0);
        for (int64_t c = 0; c < 2; c++) {
            for (int64_t y = 0; y < height; y++)
                resize_line(pixels + (c * height + y) * width, width, between + y * to_width, to_width);
            for (int64_t column = 0; column < to_width; column++) {
                unsigned char in[400], out[400];
                for (int64_t y = 0; y < height; y++)
                    in[y] = between[y * to_width + column];
                resize_line(in, height, out, to_height);
                for (int64_t y = 0; y < to_height; y++)
                    expected[y * to_width + column] = out[y];
            }
            const double *given = (const double *)yk_tensor_data(x) + c * to_height * to_width;
            for (int64_t k = 0; k < to_height * to_width; k++)
                if (llrint(given[k] * 255) != expected[k])
                    fail_msg("%lld x %lld to %lld x %lld: byte %lld is %g, not %d", (long long)height, (long long)width,
                             (long long)to_height, (long long)to_width, (long long)k, given[k] * 255, expected[k]);
        }
        yk_scope_end(scope);
    }
    free(pixels);
    free(between);
    free(expected);
}

/* Parts of JPEG files that begin at any column and row, for every sampling of colours, size and kind of file. */
static void test_parts_of_jpeg_files(void **state)
{
    (void)state;
    static const struct {
        J_COLOR_SPACE space;
        int components, across, down;
    } kinds[] = {{JCS_RGB, 3, 1, 1}, {JCS_RGB, 3, 2, 1}, {JCS_RGB, 3, 2, 2},       {JCS_RGB, 3, 1, 2},
                 {JCS_RGB, 3, 4, 1}, {JCS_RGB, 3, 4, 2}, {JCS_GRAYSCALE, 1, 1, 1}, {JCS_CMYK, 4, 1, 1}};
    static const int sizes[][2] = {{120, 97}, {75, 160}, {64, 64}};
    unsigned char *pixels = malloc(4 * 160 * 160);
    golden_pixels(pixels, 4 * 160 * 160);
    for (int i = 0; i < 4 * 160 * 160; i++)
        pixels[i] = (unsigned char)(pixels[i] / 4 + (i / 64) % 190); /* colours that differ from pixel to pixel */
    mkdir("r", 0700);
    mkdir("r/a", 0700);
    for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
        for (int s = 0; s < 6; s++) {
            int height = sizes[s / 2][0], width = sizes[s / 2][1];
            unsigned char *bytes;
            size_t size = make_jpeg(&bytes, pixels, (unsigned)width, (unsigned)height, kinds[k].components,
                                    kinds[k].space, 90, s % 2, kinds[k].across, kinds[k].down);
            write_file("r/a/x.jpg", bytes, size);
            free(bytes);
            for (int64_t part = 1; part <= 61; part += 5) {
                yk_scope one = yk_scope_begin();
                yk_transform *resize = yk_resize(62), *center = yk_center_crop(part);
                expect_equal_samples(yk_image_folder("r", yk_compose(resize, center)),
                                     yk_image_folder("r", yk_compose(nothing(), resize, center)));
                yk_transform *random = yk_random_resized_crop(part, NULL);
                expect_equal_samples(yk_image_folder("r", random), yk_image_folder("r", yk_compose(nothing(), random)));
                yk_scope_end(one);
            }
        }
    }
    free(pixels);
}

/* A JPEG file that is damaged after the part that is needed is an error all the same. */
static void test_damage_outside_the_part(void **state)
{
    (void)state;
    unsigned char *pixels = malloc(3 * 160 * 160), *bytes;
    golden_pixels(pixels, 3 * 160 * 160);
    size_t size = make_jpeg(&bytes, pixels, 160, 160, 3, JCS_RGB, 90, false, 2, 2);
    mkdir("r", 0700);
    mkdir("r/a", 0700);
    write_file("r/a/x.jpg", bytes, size - size / 20);
    yk_dataset *set = yk_image_folder("r", yk_compose(yk_resize(80), yk_center_crop(8)));
    assert_null(yk_dataset_get(set, 0, YK_F32, NULL));
    expect_error(YK_ERR_FORMAT, "bad JPEG");
    free(bytes);
    free(pixels);
}

/* ---- random parts ---------------------------------------------------------------------------------------- */
enum { HEIGHT = 9, WIDTH = 12 };

/* The part of the picture that gave `out`, (1, 2, 2) bytes: found by trying all. */
static yk__rectangle part_of(const unsigned char *pixels, const unsigned char *out, yk_transform *resize,
                             yk__data_worker *worker)
{
    yk__rectangle found = {0};
    int matches = 0;
    for (int64_t height = 1; height <= HEIGHT; height++)
        for (int64_t width = 1; width <= WIDTH; width++)
            for (int64_t top = 0; top + height <= HEIGHT; top++)
                for (int64_t left = 0; left + width <= WIDTH; left++) {
                    yk_sample sample = {.worker = worker};
                    unsigned char *to = yk_sample_allocate(&sample, YK_U8, 3, (int64_t[]){1, height, width});
                    for (int64_t i = 0; i < height * width; i++)
                        to[i] = pixels[(top + i / width) * WIDTH + left + i % width];
                    expect_ok(resize->apply(resize, &sample));
                    if (!memcmp(sample.data, out, 4)) {
                        found = (yk__rectangle){top, left, height, width};
                        matches++;
                    }
                }
    assert_int_equal(matches, 1);
    return found;
}

static void test_random_resized_crop(void **state)
{
    (void)state;
    unsigned char pixels[HEIGHT * WIDTH];
    golden_pixels(pixels, sizeof(pixels));
    yk_transform *resize = yk_resize_to(2, 2);
    yk_transform *random =
        yk_random_resized_crop(2, YK_OPTIONS(yk_random_resized_crop_options, .scale = {0.2, 0.6}, .ratio = {0.5, 2}));
    yk__data_worker worker = {0}, other = {.seed = 3};
    double least = 1, most = 0, tall = 9, wide = 0;
    bool corner[4] = {0};
    for (int64_t index = 0; index < 40; index++) {
        yk_sample sample = {.worker = &other, .index = index};
        other.drawn = 0;
        memcpy(yk_sample_allocate(&sample, YK_U8, 3, (int64_t[]){1, HEIGHT, WIDTH}), pixels, sizeof(pixels));
        expect_ok(random->apply(random, &sample));
        assert_int_equal(sample.shape[1], 2);
        assert_int_equal(sample.shape[2], 2);
        yk__rectangle part = part_of(pixels, sample.data, resize, &worker);
        double area = (double)(part.height * part.width) / sizeof(pixels);
        double ratio = (double)part.width / (double)part.height;
        least = fmin(least, area), most = fmax(most, area), tall = fmin(tall, ratio), wide = fmax(wide, ratio);
        corner[0] |= part.top == 0;
        corner[1] |= part.left == 0;
        corner[2] |= part.top + part.height == HEIGHT;
        corner[3] |= part.left + part.width == WIDTH;
    }
    /* Sides are rounded: what was asked for, and a little more, and all of it. */
    assert_true(least > 0.13 && least < 0.25 && most > 0.55 && most < 0.7);
    assert_true(tall > 0.35 && tall < 0.7 && wide > 1.5 && wide < 2.6);
    assert_true(corner[0] && corner[1] && corner[2] && corner[3]);
    yk__data_worker_clear(&worker);
    yk__data_worker_clear(&other);
}

/* The largest middle part of a ratio that is allowed, where no try can fit. */
static void test_fallback(void **state)
{
    (void)state;
    static const struct {
        int64_t height, width;
        yk__rectangle part;
    } cases[] = {{3, 100, {0, 48, 3, 4}}, {100, 3, {48, 0, 4, 3}}};
    unsigned char pixels[300];
    golden_pixels(pixels, sizeof(pixels));
    yk_transform *random = yk_random_resized_crop(5, YK_OPTIONS(yk_random_resized_crop_options, .scale = {0.999, 1}));
    yk__data_worker worker = {0};
    for (size_t i = 0; i < 2; i++) {
        yk_sample sample = {.worker = &worker};
        memcpy(yk_sample_allocate(&sample, YK_U8, 3, (int64_t[]){1, cases[i].height, cases[i].width}), pixels, 300);
        yk__resize plan;
        expect_ok(yk__resize_plan(random, &sample, 1, cases[i].height, cases[i].width, &plan));
        assert_memory_equal(&plan.source, &cases[i].part, sizeof(plan.source));
        assert_int_equal(plan.height, 5);
        assert_int_equal(plan.width, 5);
    }
    yk__data_worker_clear(&worker);
}

static void test_bad_options(void **state)
{
    (void)state;
    const struct {
        int64_t size;
        const yk_random_resized_crop_options *options;
        const char *says;
    } cases[] = {{0, NULL, "size is 0"},
                 {1 << 20, NULL, "size is 1048576"},
                 {8, YK_OPTIONS(yk_random_resized_crop_options, .scale = {0.5, 0.1}), "scale is 0.5 to 0.1"},
                 {8, YK_OPTIONS(yk_random_resized_crop_options, .scale = {0.08, 0.05}), "scale is 0.08 to 0.05"},
                 {8, YK_OPTIONS(yk_random_resized_crop_options, .scale = {0, 0.5}), "scale is 0"},
                 {8, YK_OPTIONS(yk_random_resized_crop_options, .scale = {0.5, 1.5}), "scale is 1.5"},
                 {8, YK_OPTIONS(yk_random_resized_crop_options, .scale = {NAN, 1}), "scale is nan"},
                 {8, YK_OPTIONS(yk_random_resized_crop_options, .ratio = {2, 1}), "ratio is 2 to 1"},
                 {8, YK_OPTIONS(yk_random_resized_crop_options, .ratio = {-1, 1}), "ratio is -1"},
                 {8, YK_OPTIONS(yk_random_resized_crop_options, .ratio = {1, INFINITY}), "ratio is inf"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_null(yk_random_resized_crop(cases[i].size, cases[i].options));
        expect_error(YK_ERR_ARGUMENT, cases[i].says);
    }
    picture p = {(const unsigned char *)"\1\2\3\4", {1, 2, 2}};
    yk_dataset *set = picture_set(&p, 1, yk_compose(yk_to_tensor(), yk_random_resized_crop(2, NULL)));
    assert_null(yk_dataset_get(set, 0, YK_F32, NULL));
    expect_error(YK_ERR_DTYPE, "random_resized_crop");
}

int main(void)
{
    const struct CMUnitTest tests[] = {data_test(test_middle_of_a_resize),  data_test(test_bytes_of_a_resize),
                                       data_test(test_parts_of_jpeg_files), data_test(test_damage_outside_the_part),
                                       data_test(test_random_resized_crop), data_test(test_fallback),
                                       data_test(test_bad_options)};
    return cmocka_run_group_tests_name("resize", tests, NULL, NULL);
}
