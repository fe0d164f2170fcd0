/* IDX files, plain and gzip, and every way in which they can be wrong. */
#include "tests/data/files.h"

#include "data/dataset.h"

enum { COUNT = 20, HEIGHT = 5, WIDTH = 7, IMAGES = 16 + COUNT * HEIGHT * WIDTH, LABELS = 8 + COUNT };

static unsigned char images[IMAGES], labels[LABELS];

static void put_u32(unsigned char *to, uint32_t value)
{
    to[0] = (unsigned char)(value >> 24);
    to[1] = (unsigned char)(value >> 16);
    to[2] = (unsigned char)(value >> 8);
    to[3] = (unsigned char)value;
}

static void fill(void)
{
    golden_pixels(images, IMAGES);
    put_u32(images, 0x803);
    put_u32(images + 4, COUNT);
    put_u32(images + 8, HEIGHT);
    put_u32(images + 12, WIDTH);
    put_u32(labels, 0x801);
    put_u32(labels + 4, COUNT);
    for (int i = 0; i < COUNT; i++)
        labels[8 + i] = (unsigned char)(i % 10);
}

static void check_content(yk_dataset *set)
{
    expect_ok(0);
    assert_int_equal(yk_dataset_length(set), COUNT);
    assert_int_equal(yk_dataset_classes(set), 10);
    for (int64_t i = 0; i < COUNT; i++) {
        int64_t label = -1;
        yk_tensor *sample = yk_dataset_get(set, i, YK_F32, &label);
        assert_int_equal(label, i % 10);
        assert_int_equal(yk_ndim(sample), 3);
        assert_int_equal(yk_size(sample, 0), 1);
        assert_int_equal(yk_size(sample, 1), HEIGHT);
        assert_int_equal(yk_size(sample, 2), WIDTH);
        const float *values = yk_tensor_data(sample);
        for (int k = 0; k < HEIGHT * WIDTH; k++)
            assert_true(values[k] == (float)images[16 + i * HEIGHT * WIDTH + k] / 255.0f);
    }
}

static void test_plain_and_gzip(void **state)
{
    (void)state;
    fill();
    write_file("images", images, IMAGES);
    write_file("labels", labels, LABELS);
    check_content(yk_idx("images", "labels", NULL));
    write_gzip("images.gz", images, IMAGES);
    write_gzip("labels.gz", labels, LABELS);
    check_content(yk_idx("images.gz", "labels.gz", NULL));
    check_content(yk_idx("images.gz", "labels", NULL));
    char text[100];
    assert_string_equal(yk_dataset_describe(yk_idx("images.gz", "labels", NULL), 3, text, sizeof(text)),
                        "images.gz record 3");

    /* A gzip file of two members is one content, wherever the cut is. */
    static const size_t cuts[] = {1, 10, 16, 17, 300, IMAGES - 1};
    for (size_t i = 0; i < sizeof(cuts) / sizeof(*cuts); i++) {
        write_gzip("a", images, cuts[i]);
        write_gzip("b", images + cuts[i], IMAGES - cuts[i]);
        size_t one, two;
        unsigned char *first = read_whole("a", &one), *second = read_whole("b", &two);
        first = realloc(first, one + two);
        memcpy(first + one, second, two);
        write_file("both.gz", first, one + two);
        free(first);
        free(second);
        check_content(yk_idx("both.gz", "labels", NULL));
    }
}

/* Zero bytes after a gzip member are padding, which Python's gzip module skips too; anything else is not. */
static void test_padded_gzip(void **state)
{
    (void)state;
    fill();
    write_file("labels", labels, LABELS);
    write_gzip("a", images, 300);
    write_gzip("b", images + 300, IMAGES - 300);
    size_t one, two;
    unsigned char *first = read_whole("a", &one), *second = read_whole("b", &two);
    static const size_t paddings[] = {1, 4, 99, 5000};
    for (size_t i = 0; i < sizeof(paddings) / sizeof(*paddings); i++) {
        size_t padding = paddings[i], whole = one + two + 2 * padding;
        unsigned char *bytes = calloc(whole + 4, 1);
        memcpy(bytes, first, one);
        memcpy(bytes + one + padding, second, two);
        write_file("both.gz", bytes, whole);
        check_content(yk_idx("both.gz", "labels", NULL));
        bytes[whole - 1] = 7;
        write_file("both.gz", bytes, whole);
        assert_null(yk_idx("both.gz", "labels", NULL));
        expect_error(YK_ERR_FORMAT, "idx: both.gz: ");
        free(bytes);
    }
    free(first);
    free(second);
}

static void test_folders(void **state)
{
    (void)state;
    fill();
    static const char *const folders[] = {".", "fashion-mnist", "FashionMNIST", "FashionMNIST/raw"};
    char path[200];
    for (int i = 0; i < 4; i++) {
        if (i)
            assert_int_equal(mkdir(folders[i], 0755), 0);
        if (i == 2)
            continue;
        bool zipped = i == 1;
        snprintf(path, sizeof(path), "%s/t10k-images-idx3-ubyte%s", folders[i], zipped ? ".gz" : "");
        (zipped ? write_gzip : write_file)(path, images, IMAGES);
        char labels_path[200];
        snprintf(labels_path, sizeof(labels_path), "%s/t10k-labels-idx1-ubyte", folders[i]);
        write_file(labels_path, labels, LABELS);
        yk_dataset *set = yk_fashion_mnist(".", YK_TEST, NULL);
        check_content(set);
        assert_string_equal(yk_dataset_class_name(set, 9), "Ankle boot");
        assert_int_equal(remove(path), 0);
        if (i == 0)
            assert_int_equal(remove(labels_path), 0);
    }
    assert_null(yk_fashion_mnist(".", YK_TRAIN, NULL));
    expect_error(YK_ERR_NOT_FOUND, "fashion-mnist: no train-images-idx3-ubyte[.gz] in ., ./fashion-mnist or "
                                   "./FashionMNIST/raw");
    assert_null(yk_mnist("nowhere", YK_TEST, NULL));
    expect_error(YK_ERR_NOT_FOUND, "mnist: no t10k-images-idx3-ubyte[.gz] in nowhere, nowhere/mnist or "
                                   "nowhere/MNIST/raw, and no such directory");
    write_file("train-images-idx3-ubyte", images, IMAGES);
    assert_null(yk_mnist(".", YK_TRAIN, NULL));
    expect_error(YK_ERR_NOT_FOUND, "mnist: ./train-images-idx3-ubyte is there, but no train-labels-idx1-ubyte[.gz]");
}

static void expect_idx_error(const char *images_path, const char *text)
{
    write_file("labels", labels, LABELS);
    assert_null(yk_idx(images_path, "labels", NULL));
    expect_error(YK_ERR_FORMAT, text);
}

static void test_damaged_plain(void **state)
{
    (void)state;
    fill();
    write_file("images", images, 15);
    expect_idx_error("images", "idx: images: short file: 15 bytes do not hold the header of 16");
    write_file("images", images, 0);
    expect_idx_error("images", "idx: images: short file: 0 bytes do not hold the header");
    write_file("images", images, IMAGES - 1);
    expect_idx_error("images", "idx: images: short file: record 19 of 20 is cut short or missing");
    write_file("images", images, 16 + 7 * HEIGHT * WIDTH);
    expect_idx_error("images", "record 7 of 20 is cut short or missing");
    write_file("images", images, IMAGES);
    expect_ok(!yk_idx("images", "labels", NULL)); /* the undamaged one is fine */
    images[3] = 1;
    write_file("images", images, IMAGES);
    expect_idx_error("images", "idx: images: wrong magic number 0x00000801; an IDX file of images has 0x00000803");
    fill();
    put_u32(images + 4, COUNT - 1);
    write_file("images", images, IMAGES);
    expect_idx_error("images", "idx: images: 35 bytes behind the 19 records that the header claims");
    put_u32(images + 4, 0);
    write_file("images", images, IMAGES);
    expect_idx_error("images", "dimension 0 of the header is 0");
    put_u32(images + 4, COUNT);
    put_u32(images + 8, 40000);
    write_file("images", images, IMAGES);
    expect_idx_error("images", "dimension 1 of the header is 40000; expected 1 to 32768");
    put_u32(images + 4, 0xffffffffu);
    put_u32(images + 8, 32768);
    put_u32(images + 12, 32768);
    write_file("images", images, IMAGES);
    expect_idx_error("images", "record 0 of 4294967295 is cut short");
    assert_null(yk_idx("nothing", "labels", NULL));
    expect_error(YK_ERR_IO, "idx: nothing: No such file");
    assert_null(yk_idx(NULL, "labels", NULL));
    expect_error(YK_ERR_ARGUMENT, "path of the images is NULL");
}

static void test_damaged_gzip(void **state)
{
    (void)state;
    fill();
    write_gzip("images.gz", images, IMAGES);
    size_t size;
    unsigned char *zipped = read_whole("images.gz", &size);
    /* Golden pixels do not compress, so most of the file is the images as they are. */
    write_file("images.gz", zipped, size / 2);
    expect_idx_error("images.gz", "idx: images.gz: short file: record ");
    write_file("images.gz", zipped, size - 4);
    expect_idx_error("images.gz", "idx: images.gz: short file: the gzip data has no end");
    write_file("images.gz", zipped, 12);
    expect_idx_error("images.gz", "short file: 0 bytes do not hold the header of 16");
    zipped[size - 8] ^= 1; /* the checksum */
    write_file("images.gz", zipped, size);
    expect_idx_error("images.gz", "corrupt gzip data behind 716 bytes of content: incorrect data check");
    zipped[size - 8] ^= 1;
    zipped[3] = 0xff; /* reserved flags */
    write_file("images.gz", zipped, size);
    expect_idx_error("images.gz", "idx: images.gz: corrupt gzip data");
    free(zipped);
    write_gzip("images.gz", images, IMAGES - 40);
    expect_idx_error("images.gz", "short file: record 18 of 20");
    unsigned char longer[IMAGES + 5] = {0};
    memcpy(longer, images, IMAGES);
    write_gzip("images.gz", longer, sizeof(longer));
    expect_idx_error("images.gz", "more data behind the 20 records");
    /* A header that claims what no file of that length can hold: nothing is allocated for it. */
    put_u32(images + 4, 0xffffffffu);
    put_u32(images + 8, 32768);
    write_gzip("images.gz", images, IMAGES);
    expect_idx_error("images.gz", "the header claims 985162418257920 bytes, more than");
}

static void test_labels(void **state)
{
    (void)state;
    fill();
    write_file("images", images, IMAGES);
    write_file("short", labels, LABELS - 1);
    assert_null(yk_idx("images", "short", NULL));
    expect_error(YK_ERR_FORMAT, "idx: short: short file: record 19 of 20");
    put_u32(labels + 4, COUNT - 1);
    write_file("fewer", labels, LABELS - 1);
    assert_null(yk_idx("images", "fewer", NULL));
    expect_error(YK_ERR_FORMAT, "idx: images holds 20 images but fewer holds 19 labels");
    assert_null(yk_idx("images", "images", NULL));
    expect_error(YK_ERR_FORMAT, "images: wrong magic number 0x00000803; an IDX file of labels has 0x00000801");
    fill();
    labels[8 + 13] = 46;
    write_file("more", labels, LABELS);
    assert_int_equal(yk_dataset_classes(yk_idx("images", "more", NULL)), 47);
    write_file("t10k-images-idx3-ubyte", images, IMAGES);
    write_file("t10k-labels-idx1-ubyte", labels, LABELS);
    assert_null(yk_fashion_mnist(".", YK_TEST, NULL));
    expect_error(YK_ERR_FORMAT, "fashion-mnist: ./t10k-labels-idx1-ubyte: record 13: label 46 is outside [0, 10)");
}

static void test_real_files(void **state)
{
    (void)state;
    if (no_real_data("the real FashionMNIST"))
        return;
    yk_dataset *train = yk_dataset_open("fashion-mnist", YK_TRAIN, NULL);
    yk_dataset *test = yk_dataset_open("fashion-mnist", YK_TEST, NULL);
    expect_ok(0);
    assert_true(yk_dataset_length(train) >= 3700 && yk_dataset_length(test) >= 743);
    yk_tensor *sample = yk_dataset_get(test, 700, YK_F32, NULL);
    expect_ok(0);
    assert_int_equal(yk_size(sample, 1), 28);
    const float *values = yk_tensor_data(sample);
    double sum = 0;
    for (int i = 0; i < 784; i++)
        sum += values[i];
    assert_true(sum > 10 && sum < 700);
}

int main(void)
{
    const struct CMUnitTest tests[] = {data_test(test_plain_and_gzip), data_test(test_padded_gzip),
                                       data_test(test_folders),        data_test(test_damaged_plain),
                                       data_test(test_damaged_gzip),   data_test(test_labels),
                                       data_test(test_real_files)};
    return cmocka_run_group_tests_name("idx", tests, NULL, NULL);
}
