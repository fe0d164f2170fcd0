/* The embedded data set: the same bytes everywhere, all classes alike, no two pictures alike. */
#include "tests/data/files.h"

#include "data/dataset.h"

enum { PIXELS = 28 * 28 };

static unsigned char *all_bytes(yk_data_split split, int64_t count, uint64_t seed)
{
    unsigned char *bytes = malloc((size_t)count * PIXELS);
    for (int64_t i = 0; i < count; i++)
        assert_int_equal(yk__glyph_draw(seed, split, i, bytes + i * PIXELS), i % 10);
    return bytes;
}

static void test_same_bytes_everywhere(void **state)
{
    (void)state;
    unsigned char *train = all_bytes(YK_TRAIN, 12000, 0), *test = all_bytes(YK_TEST, 2000, 0);
    unsigned char *other = all_bytes(YK_TRAIN, 100, 1);
    /* Pinned: a change here changes what everybody's training run gives. */
    assert_int_equal(crc32(0, train, 12000 * PIXELS), 0x3da043f9u);
    assert_int_equal(crc32(0, test, 2000 * PIXELS), 0xd20362bdu);
    assert_memory_not_equal(train, test, 100 * PIXELS);
    assert_memory_not_equal(train, other, 100 * PIXELS);
    free(train);
    free(test);
    free(other);
}

static void test_data_set(void **state)
{
    (void)state;
    yk_dataset *train = yk_glyphs(YK_TRAIN, NULL, 0), *test = yk_glyphs(YK_TEST, NULL, 0);
    assert_int_equal(yk_dataset_length(train), 12000);
    assert_int_equal(yk_dataset_length(test), 2000);
    assert_int_equal(yk_dataset_classes(train), 10);
    assert_string_equal(yk_dataset_class_name(train, 7), "7");
    assert_null(yk_dataset_class_name(train, 10));
    assert_null(yk_dataset_class_name(train, -1));
    char text[100];
    assert_string_equal(yk_dataset_describe(test, 17, text, sizeof(text)), "glyphs test, seed 0, record 17");
    unsigned char drawn[PIXELS];
    for (int twice = 0; twice < 2; twice++) { /* the second time it is the kept one */
        int64_t label = -1;
        yk_tensor *sample = yk_dataset_get(test, 1234, YK_F32, &label);
        assert_int_equal(label, yk__glyph_draw(0, YK_TEST, 1234, drawn));
        assert_int_equal(yk_ndim(sample), 3);
        assert_int_equal(yk_numel(sample), PIXELS);
        const float *values = yk_tensor_data(sample);
        for (int i = 0; i < PIXELS; i++)
            assert_true(values[i] == (float)drawn[i] / 255.0f);
    }
}

/* A nearest-mean classifier, the best that a picture's average look can do, must fail: LeNet's work is not for free.
 * It must do better than guessing, or the pictures would hold nothing. */
static void test_hard_for_means(void **state)
{
    (void)state;
    unsigned char *train = all_bytes(YK_TRAIN, 12000, 0), *test = all_bytes(YK_TEST, 2000, 0);
    static double mean[10][PIXELS];
    for (int i = 0; i < 12000; i++)
        for (int k = 0; k < PIXELS; k++)
            mean[i % 10][k] += train[i * PIXELS + k] / 1200.0;
    int right = 0;
    for (int i = 0; i < 2000; i++) {
        double least = INFINITY;
        int best = -1;
        for (int c = 0; c < 10; c++) {
            double distance = 0;
            for (int k = 0; k < PIXELS; k++)
                distance += (mean[c][k] - test[i * PIXELS + k]) * (mean[c][k] - test[i * PIXELS + k]);
            if (distance < least) {
                least = distance;
                best = c;
            }
        }
        right += best == i % 10;
    }
    assert_in_range(right, 2000 * 0.2, 2000 * 0.7);
    free(train);
    free(test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {data_test(test_same_bytes_everywhere), data_test(test_data_set),
                                       data_test(test_hard_for_means)};
    return cmocka_run_group_tests_name("glyphs", tests, NULL, NULL);
}
