/* CSV files: the form, the classes, and what is wrong with a row, by file and line. */
#include "tests/data/files.h"

#include "data/dataset.h"

static yk_dataset *open_text(const char *text, const char *target)
{
    write_file("t.csv", text, strlen(text));
    return yk_csv("t.csv", target, NULL);
}

static void expect_row(yk_dataset *set, int64_t i, int64_t label, int count, const double *values)
{
    int64_t got = -7;
    yk_tensor *x = yk_dataset_get(set, i, YK_F64, &got);
    assert_non_null(x);
    assert_int_equal(got, label);
    assert_int_equal(yk_dataset_label(set, i), label);
    assert_int_equal(yk_ndim(x), 3);
    assert_int_equal(yk_size(x, 0), count);
    assert_int_equal(yk_numel(x), count);
    for (int c = 0; c < count; c++)
        assert_true(yk_get(x, (int64_t[]){c, 0, 0}) == values[c]);
}

static void test_rows(void **state)
{
    (void)state;
    yk_dataset *set = open_text("a,b,species\n1,2.5,setosa\n-3,1e2,virginica\n\n0,0,setosa\n", NULL);
    assert_non_null(set);
    assert_int_equal(yk_dataset_length(set), 3);
    assert_int_equal(yk_dataset_classes(set), 2);
    assert_string_equal(yk_dataset_class_name(set, 0), "setosa");
    assert_string_equal(yk_dataset_class_name(set, 1), "virginica");
    expect_row(set, 0, 0, 2, (double[]){1, 2.5});
    expect_row(set, 1, 1, 2, (double[]){-3, 100});
    expect_row(set, 2, 0, 2, (double[]){0, 0});
    char text[64];
    assert_string_equal(yk_dataset_describe(set, 2, text, sizeof(text)), "t.csv:5");
    assert_string_equal(yk__csv_column(set, 1), "b");
    assert_string_equal(yk__csv_column(set, -1), "species");
}

/* A mark at the beginning, CRLF, semicolons, quotes with separators, quotes and ends of lines in them, no last newline.
 */
static void test_forms(void **state)
{
    (void)state;
    yk_dataset *set = open_text("\xEF\xBB\xBF"
                                "Class; x ;\"the \"\"y\"\"\"\r\n\"a;b\";1;\"2\"\r\n \"c\nd\" ; 3 ;4",
                                NULL);
    assert_non_null(set);
    assert_int_equal(yk_dataset_length(set), 2);
    assert_string_equal(yk__csv_column(set, 0), "x");
    assert_string_equal(yk__csv_column(set, 1), "the \"y\"");
    assert_string_equal(yk_dataset_class_name(set, 0), "a;b");
    assert_string_equal(yk_dataset_class_name(set, 1), "c\nd");
    expect_row(set, 0, 0, 2, (double[]){1, 2});
    expect_row(set, 1, 1, 2, (double[]){3, 4});
    set = open_text("x\tlabel\n1\ta\n2\tb\n", NULL);
    assert_int_equal(yk_dataset_classes(set), 2);
    expect_row(set, 1, 1, 1, (double[]){2});
}

/* Whole numbers are sorted by value, and the column that is asked for is taken wherever it stands. */
static void test_targets(void **state)
{
    (void)state;
    yk_dataset *set = open_text("kind,x,y\n10,1,5\n9,2,6\n-1,3,5\n10,4,6\n", "kind");
    assert_int_equal(yk_dataset_classes(set), 3);
    assert_string_equal(yk_dataset_class_name(set, 0), "-1");
    assert_string_equal(yk_dataset_class_name(set, 1), "9");
    assert_string_equal(yk_dataset_class_name(set, 2), "10");
    expect_row(set, 3, 2, 2, (double[]){4, 6});
    set = open_text("kind,x,y\n10,1,5\n9,2,6\n-1,3,5\n", NULL); /* the last one */
    assert_string_equal(yk__csv_column(set, -1), "y");
}

static void expect_refused(const char *text, const char *target, const char *message)
{
    assert_null(open_text(text, target));
    expect_error(YK_ERR_FORMAT, message);
}

static void test_mistakes(void **state)
{
    (void)state;
    expect_refused("", NULL, "t.csv: the file is empty");
    expect_refused("a,b\n", NULL, "t.csv: there are no rows below the header");
    expect_refused("1,2\n3,4\n", NULL, "t.csv:1: the first row holds numbers, no names of columns");
    expect_refused("a,a\n3,4\n", NULL, "t.csv:1: two columns, 1 and 2, are named 'a'");
    expect_refused("a,,c\n3,4,5\n", NULL, "t.csv:1: column 2 has no name");
    expect_refused("a\nx\n", NULL, "t.csv:1: there is one column, 'a'");
    expect_refused("a,b\n1,x\n2\n", NULL, "t.csv:3: 1 field, and the header has 2");
    expect_refused("a,b\n1,x\n\n2,y,z\n", NULL, "t.csv:4: 3 fields, and the header has 2");
    expect_refused("a,b\n1,x\n,y\n", NULL, "t.csv:3: column 'a' is empty; expected a number");
    expect_refused("a,b\n1,x\n2,\n", NULL, "t.csv:3: column 'b' is empty; expected a class");
    expect_refused("a,b\none,x\n", NULL, "t.csv:2: column 'a' is 'one'; expected a number");
    expect_refused("a,b\nnan,x\n", NULL, "t.csv:2: column 'a' is 'nan'; expected a number");
    expect_refused("a,b\n1e999,x\n", NULL, "t.csv:2: column 'a' is '1e999'; expected a number");
    expect_refused("a,b\n0x10,x\n", NULL, "t.csv:2: column 'a' is '0x10'; expected a number");
    expect_refused("a,b\n\"1,x\n2,y\n", NULL, "t.csv:2: a quote is opened here and not closed");
    expect_refused("a,b\n\"1\"2,x\n", NULL, "t.csv:2: there is text behind a closing quote");
    expect_refused("width,b\n1,x\n", "widht", "t.csv:1: there is no column 'widht'; did you mean 'width'?");
    expect_refused("a,b\n1,x\n", "species", "t.csv:1: there is no column 'species'; the header has: a, b");
    expect_refused("a,b\n1,2.5\n2,3\n", NULL, "t.csv: column 'b' holds numbers with fractions, as '2.5'");
    expect_refused("a,b\n1,x\n2,x\n", NULL, "t.csv: column 'b' is 'x' in all rows");
    char many[4000] = "a,b\n";
    for (int i = 0, n = 4; i < 60; i++)
        n += sprintf(many + n, "%d,%d\n", i, i);
    expect_refused(many, NULL, "t.csv: column 'b' has 60 different values in 60 rows");
    write_file("t.csv", "a,b\n1,\0x\n", 9);
    assert_null(yk_csv("t.csv", NULL, NULL));
    expect_error(YK_ERR_FORMAT, "t.csv: there are zero bytes in it");
    assert_null(yk_csv("gone.csv", NULL, NULL));
    expect_error(YK_ERR_IO, "gone.csv");
    assert_null(yk_csv(NULL, NULL, NULL));
    expect_error(YK_ERR_ARGUMENT, "csv: the path is NULL");
}

/* Columns and classes of another file: by name, whatever else is there. */
static void test_known_columns(void **state)
{
    (void)state;
    static const char *const columns[] = {"y", "x"}, *const classes[] = {"b", "a", "c"};
    const char *text = "x,other,y,kind\n1,?,2,a\n3,!,4,b\n";
    write_file("t.csv", text, strlen(text));
    const yk__csv_options options = {
        .target = "kind", .columns = columns, .n_columns = 2, .classes = classes, .n_classes = 3};
    yk_dataset *set = yk__csv_open("t.csv", &options, NULL);
    assert_non_null(set);
    assert_int_equal(yk_dataset_classes(set), 3);
    expect_row(set, 0, 1, 2, (double[]){2, 1});
    expect_row(set, 1, 0, 2, (double[]){4, 3});
    set = yk__csv_open("t.csv", &(yk__csv_options){.no_target = true, .columns = columns, .n_columns = 2}, NULL);
    assert_non_null(set);
    assert_int_equal(yk_dataset_label(set, 0), -1);
    assert_non_null(yk_dataset_get(set, 1, YK_F32, NULL));
    text = "x,y,kind\n1,2,a\n1,2,d\n";
    write_file("t.csv", text, strlen(text));
    assert_null(yk__csv_open("t.csv", &options, NULL));
    expect_error(YK_ERR_FORMAT, "t.csv:3: column 'kind' is 'd', which is none of the 3 classes of the network");
    text = "x,kind\n1,a\n";
    write_file("t.csv", text, strlen(text));
    assert_null(yk__csv_open("t.csv", &options, NULL));
    expect_error(YK_ERR_FORMAT, "t.csv:1: there is no column 'y', which the network was trained on");
}

static char faults[8][200];
static int fault_count;

static void note_fault(void *user, const char *message)
{
    (void)user;
    snprintf(faults[fault_count++], sizeof(faults[0]), "%s", message);
}

static void test_all_faults(void **state)
{
    (void)state;
    const char *text = "x,kind\n1,a\nz,b\n2\n3,b\n,a\n";
    write_file("t.csv", text, strlen(text));
    yk_dataset *set = yk__csv_open("t.csv", &(yk__csv_options){.fault = note_fault}, NULL);
    assert_non_null(set);
    assert_int_equal(yk_dataset_length(set), 2);
    assert_int_equal(fault_count, 3);
    assert_string_equal(
        faults[0],
        "t.csv:3: column 'x' is 'z'; expected a number, as every column but 'kind', the class's, is an input");
    assert_string_equal(faults[1], "t.csv:4: 1 field, and the header has 2");
    assert_string_equal(faults[2], "t.csv:6: column 'x' is empty; expected a number");
}

int main(void)
{
    const struct CMUnitTest tests[] = {data_test(test_rows),          data_test(test_forms),
                                       data_test(test_targets),       data_test(test_mistakes),
                                       data_test(test_known_columns), data_test(test_all_faults)};
    return cmocka_run_group_tests_name("csv", tests, NULL, NULL);
}
