/* Masks and boxes that go with an image: against torchvision's, and that the image is the same with and without. */
#include <math.h>

#include "tests/data/files.h"
#include "tests/support/golden.h"

#include "data/dataset.h"

enum { HEIGHT = 6, WIDTH = 9, PIXELS = 3 * HEIGHT * WIDTH, SEED = 3, BOXES = 6 };
static const double edges[4 * BOXES] = {0.5, 1.25, 4.75, 5, 2, 0, 9, 6, -1,   -2,    3.5, 2.25,
                                        7.5, 3,    12,   8, 3, 3, 3, 3, 8.25, 0.125, 8.7, 5.6};
typedef struct mask_form {
    yk_dtype dtype;
    int ndim;
    int64_t planes;
} mask_form;
/* The masks that make_targets.py transforms, which are tensors 1 to 6; then boxes of three dtypes. */
static const mask_form forms[] = {{YK_U8, 2, 1},   {YK_I64, 3, 2}, {YK_I32, 3, 1},
                                  {YK_BOOL, 2, 1}, {YK_F32, 2, 1}, {YK_F64, 3, 2}};
static const yk_dtype box_dtypes[] = {YK_F32, YK_F64, YK_I64};

static double element(const yk_sample_tensor *tensor, size_t i)
{
    switch (tensor->dtype) {
    case YK_F32: return (double)((const float *)tensor->data)[i];
    case YK_F64: return ((const double *)tensor->data)[i];
    case YK_I64: return (double)((const int64_t *)tensor->data)[i];
    case YK_I32: return ((const int32_t *)tensor->data)[i];
    default: return ((const unsigned char *)tensor->data)[i];
    }
}

static void set_element(void *data, yk_dtype dtype, size_t i, double number)
{
    switch (dtype) {
    case YK_F32: ((float *)data)[i] = (float)number; break;
    case YK_F64: ((double *)data)[i] = number; break;
    case YK_I64: ((int64_t *)data)[i] = (int64_t)number; break;
    case YK_I32: ((int32_t *)data)[i] = (int32_t)number; break;
    default: ((unsigned char *)data)[i] = (unsigned char)number;
    }
}

static void make_image(yk_sample *sample, int64_t index)
{
    unsigned char pixels[PIXELS];
    golden_pixels(pixels, sizeof(pixels));
    sample->index = index;
    sample->count = 1;
    sample->worker->drawn = 0;
    void *to = yk_sample_allocate(sample, YK_U8, 3, (int64_t[]){3, HEIGHT, WIDTH});
    assert_non_null(to);
    memcpy(to, pixels, sizeof(pixels));
}

static void add_mask(yk_sample *sample, int i, const mask_form *form)
{
    unsigned char pixels[2 * HEIGHT * WIDTH];
    golden_pixels(pixels, sizeof(pixels));
    int64_t shape[3] = {form->planes, HEIGHT, WIDTH};
    void *to = yk_sample_allocate_at(sample, i, form->dtype, form->ndim, shape + 3 - form->ndim);
    assert_non_null(to);
    for (size_t k = 0; k < (size_t)form->planes * HEIGHT * WIDTH; k++) {
        double pixel = pixels[k];
        set_element(to, form->dtype, k,
                    form->dtype == YK_I64    ? pixel * 1000 - 100000
                    : form->dtype == YK_I32  ? pixel - 90
                    : form->dtype == YK_BOOL ? pixel > 99
                    : form->dtype == YK_F32  ? (double)((float)pixel / 255.0f)
                    : form->dtype == YK_F64  ? pixel / 255
                                             : pixel);
    }
}

static void add_boxes(yk_sample *sample, int i, yk_dtype dtype)
{
    void *to = yk_sample_allocate_at(sample, i, dtype, 2, (int64_t[]){BOXES, 4});
    assert_non_null(to);
    for (size_t k = 0; k < 4 * BOXES; k++)
        set_element(to, dtype, k, edges[k]);
}

/* Elements of a tensor are those at *expected, but for `most` of them and of 1; then *expected is behind them. */
static void expect_elements(const char *section, const yk_sample_tensor *tensor, const double **expected, double most)
{
    size_t count = yk__sample_tensor_bytes(tensor) / yk_dtype_size(tensor->dtype);
    for (size_t k = 0; k < count; k++) {
        double want = *(*expected)++, is = element(tensor, k);
        if (!(fabs(is - want) <= most * fmax(1, fabs(want))))
            fail_msg("%s: element %zu is %.17g, torchvision's %.17g", section, k, is, want);
    }
}

/* The transform `t` of sample `index` makes of masks and boxes what torchvision makes, and of the image what it makes
 * without them. Boxes of a warp differ by another order of sums. */
static void expect_golden(const char *name, yk_transform *t, int64_t index, double fill, bool warps)
{
    yk__data_worker worker = {.seed = SEED}, plain = {.seed = SEED};
    yk_sample sample = {.worker = &worker}, alone = {.worker = &plain};
    char section[80];
    yk_transform *masks = yk_transform_targets(
        t, YK_OPTIONS(yk_transform_targets_options, .masks = {1, 2, 3, 4, 5, 6}, .mask_fill = fill));
    assert_non_null(masks);
    make_image(&sample, index);
    for (int i = 0; i < 6; i++)
        add_mask(&sample, i + 1, &forms[i]);
    expect_ok(masks->apply(masks, &sample));
    make_image(&alone, index);
    for (int step = 0; step < masks->count; step++) /* the transform's, flat */
        expect_ok(masks->items[step]->apply(masks->items[step], &alone));
    yk_sample_tensor image = yk__sample_tensor(&sample, 0), same = yk__sample_tensor(&alone, 0);
    assert_int_equal(yk__sample_tensor_bytes(&image), yk__sample_tensor_bytes(&same));
    assert_memory_equal(image.data, same.data, yk__sample_tensor_bytes(&same));
    size_t count;
    snprintf(section, sizeof(section), "%s_masks", name);
    const double *expected = golden_numbers("targets", section, &count), *end = expected + count;
    for (int i = 0; i < 6; i++) {
        const yk_sample_tensor *mask = &sample.more[i];
        assert_int_equal(mask->dtype, forms[i].dtype);
        assert_int_equal(mask->ndim, forms[i].ndim);
        for (int d = 0; d < mask->ndim; d++)
            assert_int_equal(mask->shape[d], *expected++);
        assert_int_equal(mask->shape[mask->ndim - 2], image.shape[1]);
        assert_int_equal(mask->shape[mask->ndim - 1], image.shape[2]);
        expect_elements(section, mask, &expected, 0);
    }
    assert_ptr_equal(expected, end);
    yk_transform *boxes = yk_transform_targets(t, YK_OPTIONS(yk_transform_targets_options, .boxes = {3, 1, 2}));
    assert_non_null(boxes);
    make_image(&sample, index);
    for (int i = 0; i < 3; i++)
        add_boxes(&sample, i + 1, box_dtypes[i]);
    expect_ok(boxes->apply(boxes, &sample));
    snprintf(section, sizeof(section), "%s_boxes", name);
    expected = golden_numbers("targets", section, &count);
    assert_int_equal(count, 3 * 4 * BOXES);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sample.more[i].shape[0], BOXES);
        expect_elements(section, &sample.more[i], &expected, !warps || i == 2 ? 0 : i == 0 ? 1e-6 : 1e-14);
    }
    yk__data_worker_clear(&worker);
    yk__data_worker_clear(&plain);
}

static yk_transform *turn(double degrees, bool expand)
{
    return yk_random_rotation(degrees, degrees, YK_OPTIONS(yk_random_rotation_options, .expand = expand));
}

static yk_transform *part(void)
{
    return yk_random_resized_crop(7, NULL);
}

static void test_equal_torchvision(void **state)
{
    (void)state;
    expect_golden("crop_2", yk_random_crop(5, 2), 2, 0, false);
    expect_golden("crop_9", yk_random_crop(5, 2), 9, 1, false);
    expect_golden("mirrored", yk_random_horizontal_flip(1), 0, 0, false);
    expect_golden("upside_down", yk_random_vertical_flip(1), 0, 0, false);
    expect_golden("smaller", yk_resize(4), 0, 0, false);
    expect_golden("larger", yk_resize(13), 0, 0, false);
    expect_golden("stretched", yk_resize_to(11, 5), 0, 0, false);
    expect_golden("same", yk_resize_to(HEIGHT, WIDTH), 0, 0, false);
    expect_golden("part_5", part(), 5, 0, false);
    expect_golden("part_7", part(), 7, 0, false);
    expect_golden("middle_4", yk_center_crop(4), 0, 0, false);
    expect_golden("middle_7", yk_center_crop(7), 0, 0, false);
    expect_golden("middle_10", yk_center_crop(10), 0, 0, false);
    expect_golden("turned", turn(33, false), 0, 1, true);
    expect_golden("turned_back", turn(-21, false), 0, 0, true);
    expect_golden("expanded", turn(-70, true), 0, 1, true);
    expect_golden("half", turn(180, false), 0, 0, true);
    expect_golden(
        "affine",
        yk_random_affine(-28, -28, YK_OPTIONS(yk_random_affine_options, .scale = {1.3, 1.3}, .shear = {0, 0, 11, 11})),
        0, 0, true);
    expect_golden(
        "chain",
        yk_compose(yk_resize(13), yk_compose(yk_random_horizontal_flip(1), turn(20, true)), yk_center_crop(14)), 0, 0,
        true);
}

/* A shift of an affine map, and corners, by the draws of a sample. */
static void test_draws(void **state)
{
    (void)state;
    expect_golden("shifted_0",
                  yk_random_affine(17, 17,
                                   YK_OPTIONS(yk_random_affine_options, .translate = {0.3, 0.3}, .scale = {0.9, 0.9},
                                              .shear = {8, 8, -5, -5})),
                  0, 1, true);
    yk_transform *tilt = yk_random_perspective(
        YK_OPTIONS(yk_random_perspective_options, .distortion_scale = 0.8, .p = 1, .nearest = true));
    expect_golden("tilted_0", tilt, 0, 0, true);
    expect_golden("tilted_2", tilt, 2, 1, true);
}
/* A box goes with the pixels that it is around, where torchvision's does not: a centre crop larger by 3. */
static void test_larger_middle(void **state)
{
    (void)state;
    yk__data_worker worker = {.seed = SEED};
    yk_sample sample = {.worker = &worker};
    yk_transform *t = yk_transform_targets(
        yk_center_crop(WIDTH), YK_OPTIONS(yk_transform_targets_options, .masks = {1}, .boxes = {2}, .mask_fill = 255));
    make_image(&sample, 0);
    unsigned char *mask = yk_sample_allocate_at(&sample, 1, YK_U8, 2, (int64_t[]){HEIGHT, WIDTH});
    memset(mask, 0, HEIGHT * WIDTH);
    mask[0] = 7;
    int64_t *boxes = yk_sample_allocate_at(&sample, 2, YK_I64, 2, (int64_t[]){1, 4});
    memcpy(boxes, (int64_t[]){0, 0, 1, 1}, 4 * sizeof(int64_t));
    expect_ok(t->apply(t, &sample));
    const unsigned char *made = sample.more[0].data;
    assert_int_equal(sample.more[0].shape[0], WIDTH);
    assert_int_equal(made[0], 255);
    assert_int_equal(made[WIDTH], 7);
    assert_int_equal(made[WIDTH * WIDTH - 1], 255);
    assert_memory_equal(sample.more[1].data, ((int64_t[]){0, 1, 1, 2}), 4 * sizeof(int64_t));
    yk__data_worker_clear(&worker);
}

/* ---- sanitize_bounding_boxes ------------------------------------------------------------------------------------- */
enum { ROWS = 10 };
static const double rows[4 * ROWS] = {0, 0, 9, 6, 0,    0, 9, 6.5, 1, 1, 2, 2, 1, 1, 1.75, 5, 2,   2,   4.5, 4.5,
                                      3, 3, 3, 5, -0.5, 0, 4, 4,   5, 5, 4, 4, 0, 0, 2.5,  6, 0.1, 0.2, 2.6, 2.7};

static void expect_valid(const char *name, yk_transform *t)
{
    static const char *const names[] = {"f32", "f64", "i64"};
    for (int d = 0; d < 3; d++) {
        yk__data_worker worker = {.seed = SEED};
        yk_sample sample = {.worker = &worker};
        make_image(&sample, 0);
        void *boxes = yk_sample_allocate_at(&sample, 1, box_dtypes[d], 2, (int64_t[]){ROWS, 4});
        int64_t *classes = yk_sample_allocate_at(&sample, 2, YK_I64, 1, (int64_t[]){ROWS});
        unsigned char *masks = yk_sample_allocate_at(&sample, 3, YK_U8, 3, (int64_t[]){ROWS, HEIGHT, WIDTH});
        for (size_t k = 0; k < 4 * ROWS; k++)
            set_element(boxes, box_dtypes[d], k, rows[k]);
        for (int k = 0; k < ROWS; k++) {
            classes[k] = k;
            memset(masks + k * HEIGHT * WIDTH, k, HEIGHT * WIDTH);
        }
        char section[80];
        size_t count;
        snprintf(section, sizeof(section), "valid_%s_%s", name, names[d]);
        const double *valid = golden_numbers("targets", section, &count);
        assert_int_equal(count, ROWS);
        expect_ok(t->apply(t, &sample));
        int64_t kept = 0;
        for (int k = 0; k < ROWS; k++) {
            if (valid[k] == 0)
                continue;
            assert_true(kept < sample.more[0].shape[0]);
            assert_int_equal(((const int64_t *)sample.more[1].data)[kept], k);
            assert_int_equal(((const unsigned char *)sample.more[2].data)[(kept + 1) * HEIGHT * WIDTH - 1], k);
            for (size_t i = 0; i < 4; i++) {
                double whole = d == 2 ? trunc(rows[4 * k + (int)i]) : rows[4 * k + (int)i];
                double is = element(&sample.more[0], 4 * (size_t)kept + i);
                assert_true(is == (d == 0 ? (double)(float)whole : whole));
            }
            kept++;
        }
        assert_true(kept > 0 && kept < ROWS);
        for (int i = 0; i < 3; i++)
            assert_int_equal(sample.more[i].shape[0], kept);
        yk__data_worker_clear(&worker);
    }
}

static void test_sanitize(void **state)
{
    (void)state;
    expect_valid("plain",
                 yk_sanitize_bounding_boxes(1, YK_OPTIONS(yk_sanitize_bounding_boxes_options, .labels = {2, 3})));
    expect_valid("wide", yk_sanitize_bounding_boxes(
                             1, YK_OPTIONS(yk_sanitize_bounding_boxes_options, .min_size = 2.5, .labels = {3, 2})));
    expect_valid("large", yk_sanitize_bounding_boxes(
                              1, YK_OPTIONS(yk_sanitize_bounding_boxes_options, .min_area = 6.25, .labels = {2, 3})));
}

/* ---- in a loader ------------------------------------------------------------------------------------------------- */
typedef struct pictured {
    int64_t mask_height;
    yk_dtype mask, boxes;
    int box_numbers;
} pictured;

/* An image, a mask of the same bytes as its first channel, a box and a class for it. */
static yk_status get_pictured(void *context, int64_t index, yk_sample *sample)
{
    const pictured *p = context;
    yk_sample_label(sample, index % 2);
    unsigned char *image = yk_sample_allocate(sample, YK_U8, 3, (int64_t[]){3, HEIGHT, WIDTH});
    unsigned char *mask = yk_sample_allocate_at(sample, 2, p->mask, 2, (int64_t[]){p->mask_height, WIDTH});
    void *boxes = yk_sample_allocate_at(sample, 3, p->boxes, 2, (int64_t[]){1, p->box_numbers});
    if (!image || !mask || !boxes)
        return YK_ERR_MEMORY;
    memset(boxes, 0, (size_t)p->box_numbers * yk_dtype_size(p->boxes));
    memset(mask, 0, (size_t)(p->mask_height * WIDTH) * yk_dtype_size(p->mask));
    golden_pixels(image, PIXELS);
    image[0] = (unsigned char)index;
    if (p->mask == YK_U8)
        memcpy(mask, image, (size_t)(p->mask_height * WIDTH));
    return YK_OK;
}

static yk_dataset *pictured_set(const pictured *p, yk_transform *transform)
{
    return yk_dataset_create(&(yk_dataset_table){.name = "pictured", .length = 40, .classes = 2, .get = get_pictured},
                             (void *)p, transform);
}

static const pictured good = {HEIGHT, YK_U8, YK_F32, 4};

static yk_transform *usual_chain(void)
{
    return yk_compose(yk_random_crop(6, 2), yk_random_horizontal_flip(0.5), yk_to_tensor(),
                      yk_normalize((double[]){0.5, 0.5, 0.5}, (double[]){0.25, 0.5, 1}, 3));
}

/* Images are those of the one pass, bit for bit; the mask is what the image's first channel was made of, but where both
 * were filled; for any number of workers. */
static void test_loader(void **state)
{
    (void)state;
    for (int workers = 0; workers < 3; workers += 2) {
        const yk_loader_options *options =
            YK_OPTIONS(yk_loader_options, .batch_size = 8, .shuffle = true, .workers = workers, .seed = 9);
        yk_loader *with = yk_loader_create(
            pictured_set(&good, yk_transform_targets(usual_chain(), YK_OPTIONS(yk_transform_targets_options,
                                                                               .masks = {2}, .boxes = {3}))),
            options);
        yk_loader *without = yk_loader_create(pictured_set(&good, usual_chain()), options);
        yk_batch batch, plain;
        int batches = 0;
        for (; yk_loader_next(with, &batch) && yk_loader_next(without, &plain); batches++) {
            assert_int_equal(batch.n_tensors, 4);
            const float *image = yk_tensor_data(batch.input);
            assert_memory_equal(image, yk_tensor_data(plain.input), 8 * 3 * 6 * 6 * sizeof(float));
            assert_memory_equal(yk_tensor_data(batch.target), yk_tensor_data(plain.target), 8 * sizeof(int64_t));
            assert_int_equal(yk_tensor_dtype(batch.tensors[2]), YK_U8);
            assert_int_equal(yk_size(batch.tensors[2], 2), 6);
            assert_int_equal(yk_size(plain.tensors[2], 2), WIDTH);
            const unsigned char *mask = yk_tensor_data(batch.tensors[2]);
            for (int i = 0; i < 8 * 36; i++) {
                float want = ((float)mask[i] / 255.0f - 0.5f) / 0.25f;
                assert_true(image[i / 36 * 108 + i % 36] == want);
            }
        }
        assert_int_equal(batches, 5);
        expect_ok(yk_last_error() ? YK_ERR_STATE : YK_OK);
    }
}

static yk_status own(void *user, yk_sample *sample)
{
    (void)user, (void)sample;
    return YK_OK;
}

#define TARGETS(t, ...) yk_transform_targets(t, YK_OPTIONS(yk_transform_targets_options, __VA_ARGS__))

static void expect_refused(const pictured *p, yk_transform *t, yk_status status, const char *text)
{
    assert_non_null(t);
    assert_null(yk_dataset_get(pictured_set(p, t), 0, YK_F32, NULL));
    expect_error(status, text);
}

static void test_bad_arguments(void **state)
{
    (void)state;
    yk_transform *flip = yk_random_horizontal_flip(1);
    assert_null(yk_transform_targets(NULL, YK_OPTIONS(yk_transform_targets_options, .masks = {1})));
    expect_error(YK_ERR_ARGUMENT, "transform_targets: transform is NULL");
    assert_null(yk_transform_targets(flip, NULL));
    expect_error(YK_ERR_ARGUMENT, "transform_targets: neither masks nor boxes are given");
    assert_null(TARGETS(flip, .masks = {8}));
    expect_error(YK_ERR_ARGUMENT, "transform_targets: masks is 8");
    assert_null(TARGETS(flip, .boxes = {-1}));
    expect_error(YK_ERR_ARGUMENT, "transform_targets: boxes is -1");
    assert_null(TARGETS(flip, .masks = {0, 2}));
    expect_error(YK_ERR_ARGUMENT, "masks has tensor 0 in front of 2; 0 is the image, and ends the list");
    assert_null(TARGETS(flip, .masks = {1, 2}, .boxes = {2}));
    expect_error(YK_ERR_ARGUMENT, "boxes has tensor 2, which is named twice");
    assert_null(TARGETS(flip, .masks = {1}, .mask_fill = NAN));
    expect_error(YK_ERR_ARGUMENT, "transform_targets: mask_fill is nan");
    assert_null(TARGETS(yk_compose(flip, yk_rand_augment(NULL)), .masks = {1}));
    expect_error(YK_ERR_ARGUMENT, "transform_targets: masks and boxes cannot go along with rand_augment");
    assert_null(TARGETS(TARGETS(flip, .masks = {1}), .masks = {2}));
    expect_error(YK_ERR_ARGUMENT, "cannot go along with transform_targets; give all of them to one");
    assert_null(TARGETS(yk_transform_create("mine", own, NULL, NULL), .masks = {1}));
    expect_error(YK_ERR_ARGUMENT, "transform_targets: \"mine\" is a transform of the program's own");
    assert_null(yk_sanitize_bounding_boxes(0, NULL));
    expect_error(YK_ERR_ARGUMENT, "sanitize_bounding_boxes: boxes is 0");
    assert_null(yk_sanitize_bounding_boxes(1, YK_OPTIONS(yk_sanitize_bounding_boxes_options, .min_size = 0.5)));
    expect_error(YK_ERR_ARGUMENT, "sanitize_bounding_boxes: min_size is 0.5");
    assert_null(yk_sanitize_bounding_boxes(1, YK_OPTIONS(yk_sanitize_bounding_boxes_options, .min_area = 0)));
    expect_error(YK_ERR_ARGUMENT, "sanitize_bounding_boxes: min_area is 0");
    assert_null(yk_sanitize_bounding_boxes(1, YK_OPTIONS(yk_sanitize_bounding_boxes_options, .labels = {1})));
    expect_error(YK_ERR_ARGUMENT, "labels has tensor 1, which is named twice");

    expect_refused(
        &good, TARGETS(flip, .masks = {4}), YK_ERR_SHAPE,
        "transform_targets: tensor 4 is to be a mask, but the sample has 4 tensors, of which 0 is the image");
    expect_refused(&good, TARGETS(flip, .boxes = {2}), YK_ERR_SHAPE,
                   "tensor 2 is boxes, and is uint8 (6, 9); expected (N, 4), of left, top, right and bottom");
    expect_refused(
        &good, TARGETS(flip, .masks = {3}), YK_ERR_SHAPE,
        "tensor 3 is a mask, and is float32 (1, 4); expected (6, 9), as the image is, or any number of those");
    expect_refused(&good, yk_compose(yk_center_crop(5), TARGETS(flip, .masks = {2})), YK_ERR_SHAPE,
                   "tensor 2 is a mask, and is uint8 (6, 9); expected (5, 5)");
    expect_refused(&good, TARGETS(flip, .masks = {2}, .mask_fill = 256), YK_ERR_ARGUMENT,
                   "mask_fill 256 is no value of tensor 2, a mask of uint8");
    expect_refused(&(pictured){5, YK_U8, YK_F32, 4}, TARGETS(flip, .masks = {2}), YK_ERR_SHAPE, "uint8 (5, 9)");
    expect_refused(&(pictured){HEIGHT, YK_F16, YK_F32, 4}, TARGETS(flip, .masks = {2}), YK_ERR_DTYPE,
                   "tensor 2 is a mask of float16, expected");
    expect_refused(&(pictured){HEIGHT, YK_U8, YK_F32, 5}, TARGETS(flip, .boxes = {3}), YK_ERR_SHAPE, "float32 (1, 5)");
    expect_refused(&(pictured){HEIGHT, YK_U8, YK_I32, 4}, TARGETS(flip, .boxes = {3}), YK_ERR_DTYPE,
                   "tensor 3 is boxes of int32, expected float32, float64 or int64");
    expect_refused(&good, yk_sanitize_bounding_boxes(3, YK_OPTIONS(yk_sanitize_bounding_boxes_options, .labels = {2})),
                   YK_ERR_SHAPE, "tensor 2 is labels, and is uint8 (6, 9); expected a row for each of the 1 boxes");
    expect_refused(&good, yk_sanitize_bounding_boxes(3, YK_OPTIONS(yk_sanitize_bounding_boxes_options, .labels = {5})),
                   YK_ERR_SHAPE, "tensor 5 is to be labels, but the sample has 4 tensors");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        data_test(test_equal_torchvision), data_test(test_draws),  data_test(test_larger_middle),
        data_test(test_sanitize),          data_test(test_loader), data_test(test_bad_arguments),
    };
    return cmocka_run_group_tests_name("targets", tests, NULL, NULL);
}
