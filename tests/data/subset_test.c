/* Parts of a data set, and the part that is held out for a test. */
#include "tests/data/files.h"

#include "data/dataset.h"

/* 40 rows: x is the row's number, 30 of class a, 9 of class b, one of class c. */
static yk_dataset *forty_rows(void)
{
    char text[1000] = "x,kind\n";
    for (int i = 0, n = (int)strlen(text); i < 40; i++)
        n += sprintf(text + n, "%d,%s\n", i, i == 17 ? "c" : i % 4 == 3 && i < 36 ? "b" : "a");
    write_file("rows.csv", text, strlen(text));
    yk_dataset *set = yk_csv("rows.csv", NULL, NULL);
    assert_non_null(set);
    return set;
}

static int64_t row_of(yk_dataset *set, int64_t i)
{
    yk_tensor *x = yk_dataset_get(set, i, YK_F64, NULL);
    assert_non_null(x);
    return (int64_t)yk_item(x);
}

static void test_subset(void **state)
{
    (void)state;
    yk_dataset *set = forty_rows(), *part = yk_subset(set, (int64_t[]){17, 3, 3}, 3);
    assert_non_null(part);
    assert_int_equal(yk_dataset_length(part), 3);
    assert_int_equal(yk_dataset_classes(part), 3);
    assert_string_equal(yk_dataset_class_name(part, 2), "c");
    assert_int_equal(row_of(part, 0), 17);
    assert_int_equal(row_of(part, 2), 3);
    assert_int_equal(yk_dataset_label(part, 0), 2);
    assert_int_equal(yk_dataset_label(part, 3), -1);
    char text[64];
    assert_string_equal(yk_dataset_describe(part, 1, text, sizeof(text)), "rows.csv:5");
    yk_dataset *nested = yk_subset(part, (int64_t[]){1}, 1);
    assert_int_equal(row_of(nested, 0), 3);
    yk_dataset *none = yk_subset(set, NULL, 0);
    assert_int_equal(yk_dataset_length(none), 0);
    assert_null(yk_subset(set, (int64_t[]){0, 40}, 2));
    expect_error(YK_ERR_ARGUMENT, "subset: index 1 of 2 is 40, and csv has 40 samples");
    assert_null(yk_subset(set, (int64_t[]){-1}, 1));
    expect_error(YK_ERR_ARGUMENT, "index 0 of 1 is -1");
    assert_null(yk_subset(set, NULL, 2));
    expect_error(YK_ERR_ARGUMENT, "subset: the list of indices is NULL");
    assert_null(yk_subset(NULL, NULL, 0));
    expect_error(YK_ERR_ARGUMENT, "subset: the data set is NULL");
}

/* Bytes of pictures are scaled in a part of their set as in the whole, and bytes of another set in neither. */
static void test_bytes(void **state)
{
    (void)state;
    yk_dataset *pictures = yk_glyphs(YK_TEST, NULL, 1), *part = yk_subset(pictures, (int64_t[]){5}, 1);
    yk_tensor *whole = yk_dataset_get(pictures, 5, YK_F32, NULL), *same = yk_dataset_get(part, 0, YK_F32, NULL);
    assert_int_equal(yk_tensor_dtype(whole), YK_F32);
    assert_int_equal(yk_tensor_dtype(same), YK_F32);
    float a[28 * 28], b[28 * 28];
    expect_ok(yk_tensor_read(whole, a, sizeof(a)));
    expect_ok(yk_tensor_read(same, b, sizeof(b)));
    assert_memory_equal(a, b, sizeof(a));
}

/* A subset keeps the set's transform, and lives on when the set's owner lets go. */
static void test_lifetime(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_dataset *set = forty_rows();
    yk__dataset_set_transform(set, yk_normalize((double[]){10}, (double[]){2}, 1));
    yk_dataset *part = yk_dataset_retain(yk_subset(set, (int64_t[]){14}, 1));
    yk_scope_end(scope);
    yk_tensor *x = yk_dataset_get(part, 0, YK_F64, NULL);
    assert_true(yk_item(x) == 2);
    yk_dataset_release(part);
}

static void test_split(void **state)
{
    (void)state;
    yk_dataset *set = forty_rows();
    yk__split a, b, c;
    expect_ok(yk__dataset_split(set, 0.2, 5, &a));
    expect_ok(yk__dataset_split(set, 0.2, 5, &b));
    expect_ok(yk__dataset_split(set, 0.2, 6, &c));
    assert_int_equal(a.held, 6 + 2); /* of 30 and of 9; the only one of a class stays */
    assert_int_equal(a.kept, 32);
    assert_memory_equal(a.indices, b.indices, 40 * sizeof(int64_t));
    assert_int_equal(c.held, a.held);
    assert_memory_not_equal(a.indices, c.indices, 40 * sizeof(int64_t));
    int seen[40] = {0};
    for (int i = 0; i < 40; i++) {
        seen[a.indices[i]]++;
        assert_true(i == 0 || i == a.kept || a.indices[i] > a.indices[i - 1]);
    }
    for (int i = 0; i < 40; i++)
        assert_int_equal(seen[i], 1);
    for (int64_t i = a.kept; i < 40; i++)
        assert_true(a.indices[i] != 17);
    free(a.indices);
    free(b.indices);
    free(c.indices);
    expect_ok(yk__dataset_split(set, 0.9, 0, &a)); /* one at least stays of each class, one at least is held out */
    assert_int_equal(a.held, 27 + 8);
    free(a.indices);
    expect_ok(yk__dataset_split(set, 0.01, 0, &a));
    assert_int_equal(a.held, 2);
    free(a.indices);
    assert_int_equal(yk_dataset_label(yk_glyphs(YK_TEST, NULL, 0), 3), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {data_test(test_subset), data_test(test_bytes), data_test(test_lifetime),
                                       data_test(test_split)};
    return cmocka_run_group_tests_name("subset", tests, NULL, NULL);
}
