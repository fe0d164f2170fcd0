/* Data sets by name, $YOKE_DATA, and the transforms that go with a name. */
#include <png.h>

#include "tests/data/files.h"

#include "data/dataset.h"

static char *saved;

static int save_environment(void **state)
{
    const char *data = getenv("YOKE_DATA");
    saved = data ? strdup(data) : NULL;
    unsetenv("YOKE_DATA");
    return test_begin(state);
}

static int restore_environment(void **state)
{
    unsetenv("YOKE_DATA");
    if (saved)
        setenv("YOKE_DATA", saved, 1);
    free(saved);
    return test_end(state);
}

static void make_folders(const char *path)
{
    char part[300];
    snprintf(part, sizeof(part), "%s", path);
    for (char *at = part; *at; at++) {
        if (*at != '/')
            continue;
        *at = 0;
        mkdir(part, 0755);
        *at = '/';
    }
}

static void write_cifar(const char *path)
{
    unsigned char record[3073] = {3};
    make_folders(path);
    write_file(path, record, sizeof(record));
}

static void write_png(const char *path, unsigned width, unsigned height)
{
    unsigned char *pixels = calloc(width * height, 3);
    make_folders(path);
    png_image image = {.version = PNG_IMAGE_VERSION, .width = width, .height = height, .format = PNG_FORMAT_RGB};
    assert_true(png_image_write_to_file(&image, path, 0, pixels, 0, NULL));
    free(pixels);
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(yk_dataset_name(yk_dataset_open("glyphs", YK_TRAIN, NULL)), "glyphs");
    assert_int_equal(yk_dataset_length(yk_dataset_open("glyphs", YK_TEST, NULL)), 2000);
    assert_null(yk_dataset_open("glyphs:/data", YK_TRAIN, NULL));
    expect_error(YK_ERR_ARGUMENT, "data set \"glyphs:/data\": glyphs are built in, and read no directory");
    assert_null(yk_default_transform("glyphs:/data", YK_TRAIN, true));
    expect_error(YK_ERR_ARGUMENT, "glyphs are built in");
    assert_null(yk_dataset_open("cifar", YK_TRAIN, NULL));
    expect_error(YK_ERR_NOT_FOUND, "unknown data set \"cifar\"; did you mean \"cifar10\"?");
    assert_null(yk_dataset_open("fashoin-mnist:/data", YK_TRAIN, NULL));
    expect_error(YK_ERR_NOT_FOUND, "unknown data set \"fashoin-mnist\"; did you mean \"fashion-mnist\"?");
    assert_null(yk_dataset_open("imagenet-21k", YK_TRAIN, NULL));
    expect_error(YK_ERR_NOT_FOUND,
                 "unknown data set \"imagenet-21k\"; there are glyphs, fashion-mnist, mnist, cifar10");
    assert_null(yk_dataset_open(NULL, YK_TRAIN, NULL));
    expect_error(YK_ERR_ARGUMENT, "the name is NULL");
    assert_null(yk_default_transform("glyph", YK_TRAIN, true));
    expect_error(YK_ERR_NOT_FOUND, "did you mean \"glyphs\"?");
}

static void test_directories(void **state)
{
    (void)state;
    assert_null(yk_dataset_open("cifar10", YK_TEST, NULL));
    expect_error(YK_ERR_NOT_FOUND, "cifar10: no directory was given (cifar10:DIR) and YOKE_DATA is not set");
    assert_null(yk_dataset_open("cifar10:", YK_TEST, NULL));
    expect_error(YK_ERR_NOT_FOUND, "YOKE_DATA is not set");
    write_cifar("base/cifar-10-batches-bin/test_batch.bin");
    write_cifar("base/mine/test_batch.bin");
    write_cifar("here/test_batch.bin");
    static const char *const without[] = {"cifar10:base", "cifar10:base/mine", "cifar10:here"};
    for (int i = 0; i < 3; i++)
        assert_int_equal(yk_dataset_length(yk_dataset_open(without[i], YK_TEST, NULL)), 1);
    assert_null(yk_dataset_open("cifar10:mine", YK_TEST, NULL));
    expect_error(YK_ERR_NOT_FOUND, "cifar10: no test_batch.bin in mine or mine/cifar-10-batches-bin, and no such");
    setenv("YOKE_DATA", "base", 1);
    static const char *const with[] = {"cifar10", "cifar10:", "cifar10:mine", "cifar10:here"};
    for (int i = 0; i < 4; i++)
        assert_int_equal(yk_dataset_length(yk_dataset_open(with[i], YK_TEST, NULL)), 1);
    assert_null(yk_dataset_open("cifar10:other", YK_TEST, NULL));
    expect_error(YK_ERR_NOT_FOUND, "cifar10: no test_batch.bin in other");
    setenv("YOKE_DATA", "", 1);
    assert_null(yk_dataset_open("fashion-mnist", YK_TEST, NULL));
    expect_error(YK_ERR_NOT_FOUND, "YOKE_DATA is not set");
    expect_ok(0);
}

static void test_image_folders(void **state)
{
    (void)state;
    write_png("set/train/a/0.png", 50, 40);
    write_png("set/train/b/0.png", 300, 260);
    write_png("set/val/a/0.png", 40, 40);
    assert_int_equal(yk_dataset_length(yk_dataset_open("image-folder:set", YK_TRAIN, NULL)), 2);
    assert_int_equal(yk_dataset_length(yk_dataset_open("image-folder:set", YK_TEST, NULL)), 1);
    write_png("set/test/a/0.png", 40, 40);
    write_png("set/test/a/1.png", 40, 40);
    assert_int_equal(yk_dataset_length(yk_dataset_open("image-folder:set", YK_TEST, NULL)), 2);
    assert_null(yk_dataset_open("image-folder:set/train", YK_TEST, NULL));
    expect_error(YK_ERR_NOT_FOUND, "image-folder: no test or val folder in set/train");
    assert_null(yk_dataset_open("image-folder:nowhere", YK_TRAIN, NULL));
    expect_error(YK_ERR_NOT_FOUND, "image-folder: no train folder in nowhere, and no such directory");
    setenv("YOKE_DATA", "set", 1);
    assert_int_equal(yk_dataset_length(yk_dataset_open("image-folder", YK_TRAIN, NULL)), 2);
    write_png("base/cifar10-images/train/x/0.png", 8, 8);
    setenv("YOKE_DATA", "base", 1);
    assert_int_equal(yk_dataset_length(yk_dataset_open("image-folder", YK_TRAIN, NULL)), 1);
    assert_null(yk_dataset_open("image-folder", YK_TEST, NULL));
    expect_error(YK_ERR_NOT_FOUND, "image-folder: no test or val folder in base or base/cifar10-images");

    /* Sized by the first training picture, in both splits, but no larger than 224. */
    static const yk_data_split splits[] = {YK_TRAIN, YK_TEST};
    for (int i = 0; i < 2; i++) {
        yk_transform *t = yk_default_transform("image-folder:set", splits[i], true);
        yk_tensor *sample = yk_dataset_get(yk_dataset_open("image-folder:set", splits[i], t), 0, YK_F32, NULL);
        expect_ok(0);
        assert_int_equal(yk_size(sample, 1), 40);
        assert_int_equal(yk_size(sample, 2), 40);
        const float *values = yk_tensor_data(sample);
        expect_near(values[820], -0.485 / 0.229, 1e-6, 0); /* black */
        expect_near(values[1600 + 820], -0.456 / 0.224, 1e-6, 0);
        expect_near(values[3200 + 820], -0.406 / 0.225, 1e-6, 0);
    }
    write_png("set/train/a/0.png", 500, 400);
    yk_transform *t = yk_default_transform("image-folder:set", YK_TEST, false);
    yk_tensor *sample = yk_dataset_get(yk_dataset_open("image-folder:set", YK_TEST, t), 0, YK_F32, NULL);
    assert_int_equal(yk_size(sample, 1), 224);
    write_file("set/train/a/0.png", "no", 2);
    assert_null(yk_default_transform("image-folder:set", YK_TEST, false));
    expect_error(YK_ERR_FORMAT, "image-folder: set/train/a/0.png: none of JPEG, PNG, BMP, TIFF, WebP, PGM and PPM");
}

/* With augmentation two epochs differ, without they are the same; normalised by the documents' numbers. */
static void test_default_transforms(void **state)
{
    (void)state;
    unsigned char record[3073];
    golden_pixels(record, sizeof(record));
    record[0] = 1;
    for (int i = 1; i <= 5; i++) {
        char path[40];
        snprintf(path, sizeof(path), "data_batch_%d.bin", i);
        write_file(path, record, sizeof(record));
    }
    write_file("test_batch.bin", record, sizeof(record));
    static const double mean[] = {0.4914, 0.4822, 0.4465}, std[] = {0.2023, 0.1994, 0.2010};
    for (int k = 0; k < 3; k++) {
        yk_data_split split = k == 2 ? YK_TEST : YK_TRAIN;
        yk_transform *t = yk_default_transform("cifar10:.", split, k != 1);
        yk_dataset *set = yk_dataset_open("cifar10:.", split, t);
        yk_loader *loader = yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 1, .dtype = YK_F64));
        bool plain = true, outside = false;
        yk_batch batch;
        for (int epoch = 0; epoch < 8; epoch++) {
            yk_loader_start(loader, epoch);
            assert_true(yk_loader_next(loader, &batch));
            assert_int_equal(yk_numel(batch.input), 3072);
            const double *values = yk_tensor_data(batch.input);
            for (int i = 0; i < 3072; i++)
                plain = plain && values[i] == (record[1 + i] / 255.0 - mean[i / 1024]) / std[i / 1024];
            for (int i = 0; i < 32; i++) /* a first row of zeros, before normalising, is padding */
                outside = outside || (values[i] == -mean[0] / std[0] && values[1024 + i] == -mean[1] / std[1]);
        }
        assert_int_equal(plain, k != 0);
        assert_int_equal(outside, k == 0);
    }
    yk_dataset *glyphs = yk_glyphs(YK_TRAIN, yk_default_transform("glyphs", YK_TRAIN, true), 0);
    unsigned char drawn[784];
    yk__glyph_draw(0, YK_TRAIN, 5, drawn);
    const float *values = yk_tensor_data(yk_dataset_get(glyphs, 5, YK_F32, NULL));
    for (int i = 0; i < 784; i++)
        assert_true(values[i] == ((float)drawn[i] / 255.0f - 0.5f) / 0.5f);
}

#define catalog_test(function) cmocka_unit_test_setup_teardown(function, save_environment, restore_environment)

int main(void)
{
    const struct CMUnitTest tests[] = {catalog_test(test_names), catalog_test(test_directories),
                                       catalog_test(test_image_folders), catalog_test(test_default_transforms)};
    return cmocka_run_group_tests_name("catalog", tests, NULL, NULL);
}
