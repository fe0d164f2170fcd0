/*
 * pt_left_out_test.c - .pt files with plain data that yoke has no kind for: all else is read, what is left out is
 * named, and nothing is lost in silence. Besides, zip files that were repacked.
 */
#include <yoke/checkpoint.h>

#include "tests/checkpoint/pt_files.h"

static const char *left_out_of(const yk_value *list, const char *name)
{
    const yk_value *what = yk_value_get(list, name);
    if (!what)
        fail_msg("'%s' is not in the list of %lld", name, (long long)yk_value_count(list));
    return yk_value_as_string(what);
}

static yk_value *load_bytes(const unsigned char *bytes, size_t size, bool mapped)
{
    put_file(bytes, size);
    yk_value *value = yk_pt_load(path, YK_OPTIONS(yk_pt_options, .mmap = mapped));
    expect_ok(value ? 0 : 1);
    return value;
}

static yk_value *load(const char *name, bool mapped)
{
    golden_pt g = read_golden_pt(name);
    return load_bytes(g.bytes, g.size, mapped);
}

typedef struct expected {
    const char *name, *what;
} expected;

static const expected tensors[] = {
    {"fc.bias", "complex64 tensor of shape (3,)"},
    {"i8", "int8 tensor of shape (2, 3)"},
    {"i16", "int16 tensor of shape (2, 3)"},
    {"f8", "float8_e4m3fn tensor of shape (2, 3)"},
    {"u16", "uint16 tensor of shape (2, 3)"},
    {"sparse", "sparse tensor"},
    {"csr", "sparse tensor"},
    {"meta", "meta tensor of shape (2,)"},
    {"quantized", "quantized tensor of shape (2, 3)"},
    {"conjugated", "complex64 tensor of shape (2, 3)"},
    {"many", "float32 tensor of 9 dimensions"},
    {"tagged.tag", "Python attribute of a tensor"},
    {"parameter.no_weight_decay", "Python attribute of a tensor"},
};
enum { TENSORS = sizeof(tensors) / sizeof(*tensors) };

static void check_read(const yk_value *model)
{
    yk_tensor *w = yk_value_as_tensor(yk_value_get(model, "fc.weight"));
    for (int64_t i = 0; i < 6; i++)
        expect_near(yk_get(w, (int64_t[]){i / 3, i % 3}), (double)i, 0, 0);
    static const char *const ones[] = {"tagged", "parameter", "buffer"};
    for (int i = 0; i < 3; i++)
        expect_near(yk_get(yk_value_as_tensor(yk_value_get(model, ones[i])), (int64_t[]){1}), 1, 0, 0);
    expect_ok(0);
}

static void test_what_is_left_out(void **state)
{
    (void)state;
    static const expected others[] = {
        {"complex", "complex number"},
        {"int", "integer of 9 bytes, which does not fit 64 bits"},
        {"list.1", "complex number"},
        {"keys.(0, 1)", "what is under a key that is a tuple"},
        {"keys.None", "what is under a key that is a None"},
        {"keys.0.5", "what is under a key that is a float"},
        {"keys.b'a'", "what is under a key that is a bytes"},
        {"keys.False", "what is under a key that is a bool"},
        {"keys.'a?b'", "what is under a key that is a str with a zero byte"},
    };
    enum { OTHERS = sizeof(others) / sizeof(*others) };
    yk_scope scope = yk_scope_begin();
    for (int mapped = 0; mapped < 2; mapped++) {
        yk_value *value = load("plain_zip", mapped);
        const yk_value *model = yk_value_get(value, "model"), *keys = yk_value_get(value, "keys");
        yk_value *list = yk_value_left_out_list(value);
        check_read(model);
        for (int i = 0; i < TENSORS; i++) {
            char name[80];
            snprintf(name, sizeof(name), "model.%s", tensors[i].name);
            assert_string_equal(left_out_of(list, name), tensors[i].what);
        }
        for (int i = 0; i < OTHERS; i++)
            assert_string_equal(left_out_of(list, others[i].name), others[i].what);
        /* In a set, and under a key of whose name there is a text. */
        assert_int_equal(yk_value_count(list), TENSORS + OTHERS + 2);
        assert_int_equal(yk_value_kind_of(yk_value_get(value, "complex")), YK_VALUE_LEFT_OUT);
        assert_string_equal(yk_value_kind_name(YK_VALUE_LEFT_OUT), "left out");
        assert_string_equal(yk_value_left_out(yk_value_get(value, "complex")), "complex number");
        assert_null(yk_value_left_out(keys));
        /* The values beside it are as they were. */
        assert_int_equal(yk_value_as_int(yk_value_at(yk_value_get(value, "list"), 0)), 1);
        assert_string_equal(yk_value_as_string(yk_value_at(yk_value_get(value, "list"), 2)), "three");
        assert_int_equal(yk_value_as_int(yk_value_get(keys, "True")), 6);
        assert_int_equal(yk_value_as_int(yk_value_get_int(keys, 7)), 8);
        assert_int_equal(yk_value_as_int(yk_value_get(keys, "last")), 10);
        size_t size;
        const unsigned char *bytes = yk_value_as_bytes(yk_value_get(value, "bytearray"), &size);
        assert_true(size == 2 && bytes[0] == 'a' && bytes[1] == 0xFF);
        assert_int_equal(yk_value_count(yk_value_get(value, "none")), 0);
        expect_ok(0);
    }
    yk_value *model = load("plain_legacy", false), *list = yk_value_left_out_list(model);
    check_read(model);
    assert_int_equal(yk_value_count(list), TENSORS - 2); /* its form has no storages of these dtypes */
    for (int i = 0; i < TENSORS; i++) {
        if (i != 3 && i != 4)
            assert_string_equal(left_out_of(list, tensors[i].name), tensors[i].what);
    }
    assert_int_equal(yk_value_count(yk_value_left_out_list(yk_value_int(3))), 0);
    assert_null(yk_value_left_out_list(NULL));
    expect_error(YK_ERR_ARGUMENT, "value_left_out_list: the value is NULL");
    yk_scope_end(scope);
}

/* A module that misses what was left out says so, and so does what is asked of the dict. */
static void test_state_dict(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_value *value = load("plain_zip", false);
    yk_state_dict *weights = yk_value_weights(value, NULL);
    assert_int_equal(yk_state_dict_count(weights), 4);
    assert_string_equal(yk_state_dict_left_out(weights, "fc.bias"), "complex64 tensor of shape (3,)");
    assert_string_equal(yk_state_dict_left_out(weights, "module.i8"), "int8 tensor of shape (2, 3)");
    assert_null(yk_state_dict_left_out(weights, "fc.weight"));
    assert_null(yk_state_dict_left_out(weights, "nothing"));
    assert_null(yk_state_dict_left_out(NULL, "i8"));
    yk_state_dict *flat = yk_value_flatten(value);
    assert_string_equal(yk_state_dict_left_out(flat, "model.sparse"), "sparse tensor");
    yk_module *net = yk_sequential(yk_linear_create(3, 2, NULL));
    assert_int_equal(yk_module_load_state_dict(net, weights, NULL, NULL), YK_ERR_NOT_FOUND);
    expect_error(YK_ERR_NOT_FOUND, "missing: 0.weight, 0.bias; unexpected");
    /* One whose names are those of the file. */
    yk_state_dict *own = yk_module_state_dict(net);
    yk_value *renamed = yk_value_dict();
    expect_ok(yk_value_set(renamed, "0.weight", yk_value_get(yk_value_get(value, "model"), "fc.weight")));
    expect_ok(yk_value_set(renamed, "0.bias", yk_value_get(yk_value_get(value, "model"), "fc.bias")));
    weights = yk_value_weights(renamed, NULL);
    yk_load_report report;
    assert_int_equal(yk_module_load_state_dict(net, weights, NULL, &report), YK_ERR_NOT_FOUND);
    expect_error(YK_ERR_NOT_FOUND, "missing: 0.bias (left out: complex64 tensor of shape (3,))");
    assert_int_equal(report.missing_count, 1);
    assert_string_equal(report.missing[0], "0.bias");
    yk_load_report_clear(&report);
    expect_ok(yk_module_load_state_dict(net, weights, YK_OPTIONS(yk_load_options, .strict = false), NULL));
    expect_near(yk_get(yk_state_dict_get(own, "0.weight"), (int64_t[]){1, 2}), 5, 0, 0);
    /* A dict with nothing else in it. */
    yk_value *alone = yk_value_dict();
    expect_ok(yk_value_set(alone, "i8", yk_value_get(yk_value_get(value, "model"), "i8")));
    assert_null(yk_value_weights(alone, NULL));
    expect_error(YK_ERR_NOT_FOUND, "'i8' was left out, as int8 tensor of shape (2, 3)");
    yk_scope_end(scope);
}

/* It cannot be written: an error, no silent loss; without it the rest is what it was. */
static void test_saving(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_value *value = load("plain_zip", false);
    assert_int_equal(yk_pt_save(path, value), YK_ERR_UNSUPPORTED);
    expect_error(YK_ERR_UNSUPPORTED, "x.pt: 'model.fc.bias' was left out when it was read (complex64 tensor of shape "
                                     "(3,)): there is nothing to write");
    yk_value *rest = yk__scope_own(yk__value_without_left_out(value));
    expect_ok(yk_pt_save(path, rest));
    yk_value *again = yk_pt_load(path, NULL);
    check_read(yk_value_get(again, "model"));
    assert_int_equal(yk_value_count(yk_value_left_out_list(again)), 0);
    assert_int_equal(yk_value_count(yk_value_get(again, "model")), 4);
    assert_int_equal(yk_value_count(yk_value_get(again, "list")), 3); /* the positions stay */
    assert_int_equal(yk_value_kind_of(yk_value_at(yk_value_get(again, "list"), 1)), YK_VALUE_NONE);
    assert_int_equal(yk_value_count(yk_value_get(again, "set")), 1);
    assert_null(yk_value_get(again, "complex"));
    assert_int_equal(yk_value_get(again, "bytearray")->python_type, YK__PYTHON_BYTEARRAY);
    assert_int_equal(yk_value_get(again, "none")->python_type, YK__PYTHON_BYTEARRAY);
    assert_true(same_value(yk_value_get(rest, "bytearray"), yk_value_get(again, "bytearray")));
    assert_ptr_equal(yk__scope_own(yk__value_without_left_out(again)), again); /* nothing to take out */
    assert_null(yk__value_without_left_out(yk_value_get(value, "complex")));
    expect_error(YK_ERR_UNSUPPORTED, "all that it holds was left out: complex number");
    yk_scope_end(scope);
}

/* ---- zip files of others ---- */

static void check_deflated(const unsigned char *bytes, size_t size)
{
    for (int mapped = 0; mapped < 2; mapped++) {
        yk_scope scope = yk_scope_begin();
        yk_value *value = load_bytes(bytes, size, mapped);
        yk_tensor *w = yk_value_as_tensor(yk_value_get(value, "fc.weight"));
        for (int64_t i = 0; i < 6; i++)
            expect_near(yk_get(w, (int64_t[]){i / 3, i % 3}), (double)i, 0, 0);
        assert_int_equal(yk_numel(yk_value_as_tensor(yk_value_get(value, "zeros"))), 5000);
        yk_scope_end(scope);
    }
}

static void test_repacked(void **state)
{
    (void)state;
    golden_pt g = read_golden_pt("deflated");
    assert_true(g.size < 5000);
    check_deflated(g.bytes, g.size);
    static const size_t paddings[] = {1, 2, 100, 70000};
    for (size_t i = 0; i < sizeof(paddings) / sizeof(*paddings); i++) {
        size_t size = g.size + paddings[i];
        unsigned char *padded = calloc(size, 1);
        memcpy(padded, g.bytes, g.size);
        check_deflated(padded, size);
        padded[size - 1] = 1;
        yk_scope scope = yk_scope_begin();
        put_file(padded, size);
        assert_null(yk_pt_load(path, NULL));
        expect_error(YK_ERR_FORMAT, "x.pt: zip: there is no end record");
        yk_scope_end(scope);
        free(padded);
    }
    /* Every changed byte of the compressed data is found. */
    unsigned char copy[sizeof(g.bytes)];
    size_t end = 0;
    while (memcmp(g.bytes + end, "PK\1\2", 4) != 0)
        end++;
    for (size_t at = 30; at < end; at++) {
        memcpy(copy, g.bytes, g.size);
        copy[at] ^= 0x10;
        yk_scope scope = yk_scope_begin();
        put_file(copy, g.size);
        yk_value *value = yk_pt_load(path, NULL), *right = value ? load_bytes(g.bytes, g.size, false) : NULL;
        if (value) /* times, and versions that nobody looks at */
            assert_int_equal(yk_value_count(value), yk_value_count(right));
        else
            expect_error(YK_ERR_FORMAT, "x.pt: zip: ");
        yk_scope_end(scope);
    }
}

/* A member that is said to be larger than what deflate could have made of its bytes. */
static void test_deflated_bomb(void **state)
{
    (void)state;
    golden_pt g = read_golden_pt("deflated");
    unsigned char *copy = g.bytes;
    for (size_t at = 0; at + 30 < g.size; at++) {
        bool entry = memcmp(copy + at, "PK\1\2", 4) == 0, header = memcmp(copy + at, "PK\3\4", 4) == 0;
        if (entry || header)
            memset(copy + at + (entry ? 24 : 22), 0x7F, 4);
    }
    yk_scope scope = yk_scope_begin();
    put_file(copy, g.size);
    assert_null(yk_pt_load(path, NULL));
    expect_error(YK_ERR_FORMAT, "is said to have 2139062143 bytes, which ");
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_is_left_out), cmocka_unit_test(test_state_dict),
                                       cmocka_unit_test(test_saving), cmocka_unit_test(test_repacked),
                                       cmocka_unit_test(test_deflated_bomb)};
    return cmocka_run_group_tests_name("pt_left_out", tests, make_directory, remove_directory);
}
