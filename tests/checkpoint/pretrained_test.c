/* Folders in the form in which models are published: one file, several with an index, and what is wrong with them. */
#include "tests/data/files.h"

#include <yoke/checkpoint.h>

static const yk_device cpu = {YK_CPU, 0};

static void save(const char *path, const char *name, double value, const char *other)
{
    yk_state_dict *dict = yk_state_dict_create();
    expect_ok(yk_state_dict_add(dict, name, yk_full(YK_SHAPE(2), value, NULL)));
    if (other)
        expect_ok(yk_state_dict_add(dict, other, yk_full(YK_SHAPE(3), -value, NULL)));
    expect_ok(yk_safetensors_save(path, dict, NULL));
}

static void write_index(const char *text)
{
    write_file("m/model.safetensors.index.json", text, strlen(text));
}

static void test_folders(void **state)
{
    (void)state;
    assert_int_equal(mkdir("m", 0777), 0);
    assert_null(yk_pretrained_load("m", cpu));
    expect_error(YK_ERR_NOT_FOUND, "m: there is no model.safetensors in it, nor model.safetensors.index.json");
    save("m/model.safetensors", "whole", 1, NULL);
    yk_state_dict *dict = yk_pretrained_load("m", cpu);
    assert_int_equal(yk_state_dict_count(dict), 1);
    save("m/model-1.safetensors", "b", 2, "a");
    save("m/model-2.safetensors", "c", 3, "unlisted");
    write_index("{\"metadata\": {}, \"weight_map\": {\"a\": \"model-1.safetensors\", \"c\": \"model-2.safetensors\",\n"
                "\"b\": \"model-1.safetensors\"}}");
    dict = yk_pretrained_load("m", cpu);
    assert_non_null(dict);
    assert_int_equal(yk_state_dict_count(dict), 3);
    assert_true(yk_get(yk_state_dict_get(dict, "a"), &(int64_t){2}) == -2);
    assert_true(yk_get(yk_state_dict_get(dict, "b"), &(int64_t){1}) == 2);
    assert_true(yk_get(yk_state_dict_get(dict, "c"), &(int64_t){0}) == 3);
}

static void expect_refused(const char *index, yk_status code, const char *message)
{
    write_index(index);
    assert_null(yk_pretrained_load("m", cpu));
    expect_error(code, message);
}

static void test_mistakes(void **state)
{
    (void)state;
    assert_int_equal(mkdir("m", 0777), 0);
    save("m/one.safetensors", "a", 2, NULL);
    save("two.safetensors", "a", 2, NULL);
    expect_refused("{\"weight_map\":\n", YK_ERR_FORMAT, "m/model.safetensors.index.json:2:");
    expect_refused("{}", YK_ERR_FORMAT, "m/model.safetensors.index.json: there is no \"weight_map\"");
    expect_refused("{\"weight_map\": {\"a\": 1}}", YK_ERR_FORMAT, "the file of 'a' is no text");
    expect_refused("{\"weight_map\": {\"b\": \"one.safetensors\"}}", YK_ERR_FORMAT,
                   "it says that one.safetensors holds 'b', which is not there");
    expect_refused("{\"weight_map\": {\"a\": \"../two.safetensors\"}}", YK_ERR_FORMAT,
                   "'../two.safetensors' is no name of a file beside it");
    expect_refused("{\"weight_map\": {\"a\": \"gone.safetensors\"}}", YK_ERR_IO, "m/gone.safetensors");
    assert_null(yk_pretrained_load(NULL, cpu));
    expect_error(YK_ERR_ARGUMENT, "pretrained_load: folder is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {data_test(test_folders), data_test(test_mistakes)};
    return cmocka_run_group_tests_name("pretrained", tests, NULL, NULL);
}
