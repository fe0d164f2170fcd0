/* The binary versions of CIFAR-10 and CIFAR-100: records come out as they were written, and damaged files are named. */
#include "tests/data/files.h"

enum { RECORD = 3073 };

/* `count` records in NAME: the label is the record's number modulo 10, the pixels golden ones plus that number. */
static void write_records(const char *name, int count, size_t extra, int bad_label_at)
{
    unsigned char *bytes = malloc((size_t)count * RECORD + extra + 1);
    golden_pixels(bytes, (size_t)count * RECORD + extra);
    for (int i = 0; i < count; i++) {
        bytes[i * RECORD] = (unsigned char)(i == bad_label_at ? 10 : i % 10);
        bytes[i * RECORD + 1] = (unsigned char)i;
    }
    write_file(name, bytes, (size_t)count * RECORD + extra);
    free(bytes);
}

static void write_train(const char *folder)
{
    char name[100];
    for (int i = 1; i <= 5; i++) {
        snprintf(name, sizeof(name), "%s/data_batch_%d.bin", folder, i);
        write_records(name, 10 * i, 0, -1);
    }
}

static void test_records(void **state)
{
    (void)state;
    assert_int_equal(mkdir("cifar-10-batches-bin", 0755), 0);
    write_train("cifar-10-batches-bin");
    write_records("cifar-10-batches-bin/test_batch.bin", 7, 0, -1);
    static const char *const roots[] = {".", "cifar-10-batches-bin"};
    for (int i = 0; i < 2; i++) {
        yk_dataset *train = yk_cifar10(roots[i], YK_TRAIN, NULL), *test = yk_cifar10(roots[i], YK_TEST, NULL);
        expect_ok(0);
        assert_int_equal(yk_dataset_length(train), 150);
        assert_int_equal(yk_dataset_length(test), 7);
        assert_int_equal(yk_dataset_classes(train), 10);
        assert_string_equal(yk_dataset_class_name(train, 3), "cat");
        char text[200];
        size_t size;
        unsigned char *bytes = read_whole("cifar-10-batches-bin/data_batch_3.bin", &size);
        for (int64_t record = 0; record < 30; record++) {
            int64_t index = 10 + 20 + record, label = -1;
            yk_tensor *sample = yk_dataset_get(train, index, YK_F64, &label);
            assert_int_equal(label, record % 10);
            assert_int_equal(yk_size(sample, 0), 3);
            assert_int_equal(yk_size(sample, 2), 32);
            const double *values = yk_tensor_data(sample);
            for (int k = 0; k < 3072; k++)
                assert_true(values[k] == bytes[record * RECORD + 1 + k] / 255.0);
        }
        free(bytes);
        yk_dataset_describe(train, 10 + 20 + 17, text, sizeof(text));
        assert_non_null(strstr(text, "data_batch_3.bin record 17"));
        yk_dataset_describe(train, 150, text, sizeof(text));
        assert_string_equal(text, "no sample 150");
        assert_null(yk_dataset_get(train, 150, YK_F32, NULL));
        expect_error(YK_ERR_ARGUMENT, "cifar10: sample 150 is outside [0, 150)");
    }
}

static void test_damaged_files(void **state)
{
    (void)state;
    assert_null(yk_cifar10(NULL, YK_TRAIN, NULL));
    expect_error(YK_ERR_ARGUMENT, "cifar10: root is NULL");
    assert_null(yk_cifar10("nowhere", YK_TRAIN, NULL));
    expect_error(YK_ERR_NOT_FOUND,
                 "cifar10: no data_batch_1.bin in nowhere or nowhere/cifar-10-batches-bin, and no such");
    assert_null(yk_cifar10(".", YK_TEST, NULL));
    expect_error(YK_ERR_NOT_FOUND, "cifar10: no test_batch.bin in . or ./cifar-10-batches-bin");

    write_train(".");
    assert_int_equal(remove("data_batch_4.bin"), 0);
    assert_null(yk_cifar10(".", YK_TRAIN, NULL));
    expect_error(YK_ERR_IO, "cifar10: ./data_batch_4.bin: No such file");

    write_records("data_batch_4.bin", 9, RECORD - 1, -1);
    assert_null(yk_cifar10(".", YK_TRAIN, NULL));
    expect_error(YK_ERR_FORMAT,
                 "./data_batch_4.bin: 30729 bytes are not a whole number of records of 3073 bytes: record 9 "
                 "is cut short");
    write_records("data_batch_4.bin", 0, 0, -1);
    assert_null(yk_cifar10(".", YK_TRAIN, NULL));
    expect_error(YK_ERR_FORMAT, "record 0 is missing");

    write_records("data_batch_4.bin", 40, 0, 23);
    yk_dataset *train = yk_cifar10(".", YK_TRAIN, NULL);
    assert_non_null(yk_dataset_get(train, 60 + 22, YK_F32, NULL));
    assert_null(yk_dataset_get(train, 60 + 23, YK_F32, NULL));
    expect_error(YK_ERR_FORMAT, "cifar10: sample 83 (./data_batch_4.bin record 23): label 10 is outside [0, 10)");

    assert_int_equal(remove("data_batch_4.bin"), 0);
    assert_int_equal(mkdir("data_batch_4.bin", 0755), 0);
    assert_null(yk_cifar10(".", YK_TRAIN, NULL));
    expect_error(YK_ERR_IO, "./data_batch_4.bin: not a regular file");
}

/* CIFAR-100: two labels a record, of which the second counts. */
static void test_fine_labels(void **state)
{
    (void)state;
    enum { FINE_RECORD = 3074, COUNT = 120 };
    unsigned char *bytes = malloc(COUNT * FINE_RECORD + 1);
    golden_pixels(bytes, COUNT * FINE_RECORD + 1);
    for (int i = 0; i < COUNT; i++) {
        bytes[i * FINE_RECORD] = (unsigned char)(i % 20);
        bytes[i * FINE_RECORD + 1] = (unsigned char)((7 * i) % 100);
    }
    assert_int_equal(mkdir("cifar-100-binary", 0755), 0);
    write_file("cifar-100-binary/train.bin", bytes, COUNT * FINE_RECORD);
    assert_null(yk_cifar100(".", YK_TEST, NULL));
    expect_error(YK_ERR_NOT_FOUND, "cifar100: no test.bin in . or ./cifar-100-binary");
    assert_null(yk_cifar100(NULL, YK_TEST, NULL));
    expect_error(YK_ERR_ARGUMENT, "cifar100: root is NULL");
    bytes[3 * FINE_RECORD + 1] = 100;
    write_file("cifar-100-binary/test.bin", bytes, 20 * FINE_RECORD);
    yk_dataset *sets[] = {yk_cifar100("cifar-100-binary", YK_TRAIN, NULL),
                          yk_dataset_open("cifar100:.", YK_TEST, NULL)};
    expect_ok(0);
    assert_int_equal(yk_dataset_length(sets[0]), COUNT);
    assert_int_equal(yk_dataset_length(sets[1]), 20);
    assert_int_equal(yk_dataset_classes(sets[0]), 100);
    assert_string_equal(yk_dataset_name(sets[0]), "cifar100");
    assert_string_equal(yk_dataset_class_name(sets[0], 0), "apple");
    assert_string_equal(yk_dataset_class_name(sets[0], 41), "lawn_mower");
    assert_string_equal(yk_dataset_class_name(sets[0], 99), "worm");
    for (int64_t i = 0; i < COUNT; i++) {
        int64_t label = -1;
        const double *values = yk_tensor_data(yk_dataset_get(sets[0], i, YK_F64, &label));
        assert_int_equal(label, (7 * i) % 100);
        for (int k = 0; k < 3072; k += 7)
            assert_true(values[k] == bytes[i * FINE_RECORD + 2 + k] / 255.0);
    }
    assert_null(yk_dataset_get(sets[1], 3, YK_F32, NULL));
    expect_error(YK_ERR_FORMAT, "cifar100: sample 3 (./cifar-100-binary/test.bin record 3): label 100 is outside [0, "
                                "100)");
    write_file("cifar-100-binary/test.bin", bytes, 20 * FINE_RECORD + 1);
    assert_null(yk_cifar100(".", YK_TEST, NULL));
    expect_error(YK_ERR_FORMAT, "61481 bytes are not a whole number of records of 3074 bytes: record 20 is cut short");
    free(bytes);
}

/* The real files, where they are. */
static void test_real_files(void **state)
{
    (void)state;
    if (no_real_data("the real CIFAR-10"))
        return;
    yk_dataset *sets[2] = {yk_dataset_open("cifar10", YK_TRAIN, NULL), yk_dataset_open("cifar10", YK_TEST, NULL)};
    expect_ok(0);
    assert_int_equal(yk_dataset_length(sets[0]), 50000);
    assert_int_equal(yk_dataset_length(sets[1]), 10000);
    for (int i = 0; i < 2; i++) {
        yk_loader *loader = yk_loader_create(sets[i], YK_OPTIONS(yk_loader_options, .batch_size = 1000, .workers = 2));
        int64_t counts[10] = {0};
        double sum = 0;
        yk_batch batch;
        for (yk_loader_start(loader, 0); yk_loader_next(loader, &batch);) {
            const int64_t *labels = yk_tensor_data(batch.target);
            const float *values = yk_tensor_data(batch.input);
            for (int64_t k = 0; k < batch.count; k++)
                counts[labels[k]]++;
            for (int64_t k = 0; k < batch.count * 3072; k++)
                sum += values[k];
        }
        expect_ok(0);
        for (int c = 0; c < 10; c++)
            assert_int_equal(counts[c], yk_dataset_length(sets[i]) / 10);
        /* The known means of the three channels, 0.4914, 0.4822 and 0.4465, here of JPEG copies. */
        expect_near(sum / ((double)yk_dataset_length(sets[i]) * 3072), (0.4914 + 0.4822 + 0.4465) / 3, 0.01, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {data_test(test_records), data_test(test_damaged_files),
                                       data_test(test_fine_labels), data_test(test_real_files)};
    return cmocka_run_group_tests_name("cifar", tests, NULL, NULL);
}
