/*
 * pt_test.c - files of PyTorch 1.13 and 2 in both forms are read to the last element, what is written is read back
 * with strides and shared memory, and values behave.
 */
#include <sys/stat.h>

#include <yoke/checkpoint.h>

#include "tests/checkpoint/pt_files.h"

static const char *const goldens[] = {"zip_1", "zip_2", "legacy_1", "legacy_2"};
enum { GOLDENS = sizeof(goldens) / sizeof(*goldens) };

static void put_golden(const char *name)
{
    golden_pt g = read_golden_pt(name);
    put_file(g.bytes, g.size);
}

/* ---- reading what PyTorch wrote ---------------------------------------------------------------------------------- */

static const struct expected {
    const char *name;
    yk_dtype dtype;
    int ndim;
    int64_t shape[2];
    double values[6];
} expected[] = {
    {"model.f32", YK_F32, 2, {2, 3}, {0, 0.5, 1, 1.5, 2, -2.5}},
    {"model.f64", YK_F64, 1, {2}, {1.0 / 3, -2}},
    {"model.f16", YK_F16, 1, {3}, {1, -0.5, 65504}},
    {"model.bf16", YK_BF16, 1, {2}, {1, -3}},
    {"model.i64", YK_I64, 2, {2, 1}, {-1, 0x1p40}},
    {"model.i32", YK_I32, 1, {2}, {7, -8}},
    {"model.u8", YK_U8, 2, {2, 2}, {1, 2, 3, 255}},
    {"model.bool", YK_BOOL, 1, {3}, {1, 0, 1}},
    {"model.empty", YK_F32, 2, {0, 4}, {0}},
    {"model.scalar", YK_F32, 0, {0}, {-1.5}},
    {"model.turned", YK_F32, 2, {3, 2}, {0, 3, 1, 4, 2, 5}},
    {"model.every.second", YK_F32, 1, {4}, {1, 3, 5, 7}},
    {"model.repeated", YK_F32, 1, {3}, {4, 4, 4}},
    {"model.first", YK_F32, 1, {3}, {0, 1, 2}},
    {"model.parameter", YK_F32, 1, {2}, {9, 10}},
    {"optimizer.state.0.step", YK_F32, 0, {0}, {3}},
    {"optimizer.state.0.exp_avg", YK_F32, 1, {2}, {0.25, 0.75}},
};
enum { EXPECTED = sizeof(expected) / sizeof(*expected) };

static void check_tensors(const yk_value *value, yk_device device)
{
    yk_state_dict *dict = yk_value_flatten(value);
    expect_ok(dict ? 0 : 1);
    assert_int_equal(yk_state_dict_count(dict), EXPECTED);
    for (int i = 0; i < EXPECTED; i++) {
        const struct expected *e = &expected[i];
        yk_tensor *x = yk_state_dict_at(dict, i);
        assert_string_equal(yk_state_dict_name(dict, i), e->name);
        assert_int_equal(yk_tensor_dtype(x), e->dtype);
        assert_true(yk_device_equal(yk_tensor_device(x), device));
        assert_int_equal(yk_ndim(x), e->ndim);
        for (int d = 0; d < e->ndim; d++)
            assert_int_equal(yk_size(x, d), e->shape[d]);
        for (int64_t j = 0; j < yk_numel(x); j++) {
            int64_t index[2] = {e->ndim == 2 ? j / e->shape[1] : j, e->ndim == 2 ? j % e->shape[1] : 0};
            expect_near(yk_get(x, index), e->values[j], 0, 0);
        }
    }
}

static void check_rest(const yk_value *value)
{
    const yk_value *group = yk_value_at(yk_value_get(yk_value_get(value, "optimizer"), "param_groups"), 0);
    expect_near(yk_value_as_real(yk_value_get(group, "lr")), 0.1, 0, 0);
    const yk_value *betas = yk_value_get(group, "betas");
    assert_int_equal(yk_value_kind_of(betas), YK_VALUE_TUPLE);
    expect_near(yk_value_as_real(yk_value_at(betas, 1)), 0.999, 0, 0);
    assert_non_null(yk_value_get(group, "foreach"));
    assert_int_equal(yk_value_kind_of(yk_value_get(group, "foreach")), YK_VALUE_NONE);
    assert_int_equal(yk_value_kind_of(yk_value_get(group, "amsgrad")), YK_VALUE_BOOL);
    assert_int_equal(yk_value_as_int(yk_value_at(yk_value_get(group, "params"), 1)), 300);
    assert_non_null(yk_value_get_int(yk_value_get(yk_value_get(value, "optimizer"), "state"), 0));
    assert_int_equal(yk_value_as_int(yk_value_get(value, "epoch")), 70000);
    assert_true(yk_value_as_int(yk_value_get(value, "big")) == -((int64_t)1 << 40));
    assert_string_equal(yk_value_as_string(yk_value_get(value, "name")), "na\xc3\xafve");
    size_t size;
    const unsigned char *raw = yk_value_as_bytes(yk_value_get(value, "raw"), &size);
    assert_true(size == 2 && raw[0] == 0 && raw[1] == 0xFF);
    assert_int_equal(yk_value_kind_of(yk_value_get(value, "none")), YK_VALUE_BYTES);
    assert_int_equal(yk_value_kind_of(yk_value_get(value, "size")), YK_VALUE_TUPLE);
    assert_int_equal(yk_value_as_int(yk_value_at(yk_value_get(value, "size"), 1)), 3);
    assert_string_equal(yk_value_as_string(yk_value_get(value, "dtype")), "torch.bfloat16");
    assert_string_equal(yk_value_as_string(yk_value_get(value, "device")), "cpu");
    assert_int_equal(yk_value_get(value, "size")->python_type, YK__PYTHON_SIZE);
    assert_int_equal(yk_value_get(value, "dtype")->python_type, YK__PYTHON_DTYPE);
    assert_int_equal(yk_value_get(value, "device")->python_type, YK__PYTHON_DEVICE);
    assert_int_equal(yk_value_kind_of(yk_value_get(value, "set")), YK_VALUE_SET);
    assert_int_equal(yk_value_as_int(yk_value_at(yk_value_get(value, "set"), 0)), 7);
    const yk_value *model = yk_value_get(value, "model");
    assert_true(model->python_type == YK__PYTHON_ORDERED && model->attributes);
    assert_int_equal(
        yk_value_as_int(yk_value_get(yk_value_get(yk_value_get(model->attributes, "_metadata"), ""), "version")), 1);
    expect_ok(0);
}

static void test_reads_golden(void **state)
{
    (void)state;
    for (int g = 0; g < GOLDENS; g++) {
        for (int16_t d = 0; d < 2; d++) {
            yk_device device = {YK_CPU, d};
            yk_scope scope = yk_scope_begin();
            put_golden(goldens[g]);
            yk_value *value = yk_pt_load(path, YK_OPTIONS(yk_pt_options, .map_location = device));
            expect_ok(value ? 0 : 1);
            check_tensors(value, device);
            check_rest(value);
            yk_scope_end(scope);
        }
    }
}

static void test_shares_memory(void **state)
{
    (void)state;
    for (int g = 0; g < GOLDENS; g++) {
        yk_scope scope = yk_scope_begin();
        put_golden(goldens[g]);
        yk_value *value = yk_pt_load(path, NULL);
        expect_ok(value ? 0 : 1);
        yk_state_dict *dict = yk_value_weights(value, NULL);
        float *first = yk_tensor_data(yk_state_dict_get(dict, "first"));
        first[1] = 42;
        expect_near(yk_get(yk_state_dict_get(dict, "every.second"), (int64_t[]){0}), 42, 0, 0);
        assert_int_equal(yk_stride(yk_state_dict_get(dict, "every.second"), 0), 2);
        assert_int_equal(yk_stride(yk_state_dict_get(dict, "repeated"), 0), 0);
        assert_int_equal(yk_stride(yk_state_dict_get(dict, "turned"), 0), 1);
        expect_ok(0);
        yk_scope_end(scope);
    }
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void test_round_trip(void **state)
{
    (void)state;
    static unsigned char one[20000], two[20000];
    for (int g = 0; g < GOLDENS; g++) {
        yk_scope scope = yk_scope_begin();
        put_golden(goldens[g]);
        yk_value *value = yk_pt_load(path, NULL);
        expect_ok(yk_pt_save(path, value));
        size_t size = get_file(one, sizeof(one));
        yk_value *again = yk_pt_load(path, NULL);
        expect_ok(again ? 0 : 1);
        assert_true(same_value(value, again));
        const yk_value *model = yk_value_get(again, "model");
        assert_ptr_equal(yk_value_as_tensor(yk_value_get(model, "first"))->storage,
                         yk_value_as_tensor(yk_value_get(model, "every.second"))->storage);
        expect_ok(yk_pt_save(path, again));
        assert_true(get_file(two, sizeof(two)) == size && memcmp(one, two, size) == 0);
        yk_scope_end(scope);
    }
}

static void test_round_trip_other_device(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    put_golden("zip_2");
    yk_value *here = yk_pt_load(path, NULL);
    yk_value *there = yk_pt_load(path, YK_OPTIONS(yk_pt_options, .map_location = {YK_CPU, 1}));
    expect_ok(yk_pt_save(path, there));
    yk_value *again = yk_pt_load(path, NULL);
    expect_ok(again ? 0 : 1);
    assert_true(same_value(here, again));
    yk_scope_end(scope);
}

/* Only bytes of a storage that tensors reach are written, at offsets that are multiples of 64. */
static void test_writes_part(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *large = yk_arange(0, 100000, 1, NULL);
    yk_tensor *inner = yk__scope_own(yk__tensor_view(large, 2, (int64_t[]){2, 3}, (int64_t[]){1, 5}, 5000));
    yk_value *value = yk_value_dict();
    expect_ok(yk_value_set(value, "inner", yk_value_tensor(inner)));
    expect_ok(yk_pt_save(path, value));
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_true(info.st_size < 2000);
    yk_tensor *x = yk_value_as_tensor(yk_value_get(yk_pt_load(path, NULL), "inner"));
    expect_ok(x ? 0 : 1);
    assert_int_equal(x->storage->bytes, 12 * sizeof(float));
    expect_near(yk_get(x, (int64_t[]){1, 2}), 5011, 0, 0);
    static unsigned char bytes[2000];
    size_t size = get_file(bytes, sizeof(bytes)), members = 0;
    for (size_t at = 0; at + 30 < size; at++) {
        if (memcmp(bytes + at, "PK\3\4", 4) != 0)
            continue;
        size_t name = (size_t)(bytes[at + 26] | bytes[at + 27] << 8),
               extra = (size_t)(bytes[at + 28] | bytes[at + 29] << 8);
        assert_int_equal((at + 30 + name + extra) % 64, 0);
        members++;
    }
    assert_int_equal(members, 4);
    yk_scope_end(scope);
}

/* Empty tensors may begin beyond their storage: nothing there is read or written. */
static void test_writes_empty(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *empty = yk_zeros(YK_SHAPE(5, 0), NULL), *full = yk_arange(0, 4, 1, NULL);
    yk_tensor *tensors[] = {yk__scope_own(yk__tensor_view(empty, 2, (int64_t[]){2, 0}, (int64_t[]){1, 1}, 3)),
                            empty,
                            yk__scope_own(yk__tensor_view(full, 1, (int64_t[]){0}, (int64_t[]){1}, 7)),
                            yk_narrow(full, 0, 1, 2),
                            yk_narrow(full, 0, 0, 0),
                            yk_narrow(full, 0, 2, 2)};
    yk_value *value = yk_value_list();
    for (size_t i = 0; i < sizeof(tensors) / sizeof(*tensors); i++)
        expect_ok(yk_value_append(value, yk_value_tensor(tensors[i])));
    expect_ok(yk_pt_save(path, value));
    yk_value *again = yk_pt_load(path, NULL);
    expect_ok(again ? 0 : 1);
    assert_true(same_value(value, again));
    assert_int_equal(yk_value_as_tensor(yk_value_at(again, 0))->storage->bytes, 0);
    assert_int_equal(yk_value_as_tensor(yk_value_at(again, 2))->storage->bytes, 3 * sizeof(float));
    yk_scope_end(scope);
}

static void test_save_errors(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_value *value = yk_value_int(1);
    assert_int_equal(yk_pt_save("/nowhere/x.pt", value), YK_ERR_IO);
    expect_error(YK_ERR_IO, "/nowhere/x.pt");
    assert_int_equal(yk_pt_save(path, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "pt_save: the value is NULL");
    yk_scope_end(scope);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static void test_values(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_value *dict = yk_value_dict(), *list = yk_value_list();
    for (int64_t i = 0; i < 1000; i++) {
        char key[32];
        snprintf(key, sizeof(key), "key%lld", (long long)i);
        expect_ok(yk_value_set(dict, key, yk_value_int(i)));
        expect_ok(yk_value_set_int(dict, i, yk_value_real((double)i / 2)));
    }
    assert_int_equal(yk_value_count(dict), 2000);
    expect_ok(yk_value_set(dict, "key7", yk_value_string("seven")));
    assert_int_equal(yk_value_count(dict), 2000);
    assert_string_equal(yk_value_as_string(yk_value_at(dict, 14)), "seven");
    assert_int_equal(yk_value_as_int(yk_value_get(dict, "key999")), 999);
    expect_near(yk_value_as_real(yk_value_get_int(dict, 999)), 499.5, 0, 0);
    assert_null(yk_value_get(dict, "key1000"));
    assert_null(yk_value_get_int(dict, -1));
    expect_ok(yk_value_append(list, dict));
    assert_int_equal(yk_value_set(dict, "self", list), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "value_set: the dict would contain itself");
    assert_int_equal(yk_value_append(list, list), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "value_append: the list would contain itself");
    assert_int_equal(yk_value_append(dict, list), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "value_append: into a dict");
    assert_int_equal(yk_value_as_int(yk_value_at(dict, 14)), 0);
    expect_error(YK_ERR_ARGUMENT, "a int is wanted, the value is string");
    assert_null(yk_value_string("\xff"));
    expect_error(YK_ERR_ARGUMENT, "not valid UTF-8");
    assert_null(yk_value_tensor(NULL));
    expect_error(YK_ERR_ARGUMENT, "value_tensor: the tensor is NULL");
    yk_scope_end(scope);
}

static void test_weights(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_value *weights = yk_value_dict(), *optimizer = yk_value_dict(), *root = yk_value_dict();
    yk_tensor *x = yk_ones(YK_SHAPE(2), NULL);
    expect_ok(yk_value_set(weights, "module.fc.weight", yk_value_tensor(x)));
    expect_ok(yk_value_set(optimizer, "exp_avg", yk_value_tensor(yk_zeros_like(x))));
    expect_ok(yk_value_set(root, "optimizer", optimizer));
    expect_ok(yk_value_set(root, "epoch", yk_value_int(3)));
    assert_null(yk_value_weights(root, NULL));
    expect_error(YK_ERR_NOT_FOUND, "no model weights among the keys of the checkpoint: optimizer, epoch");
    expect_ok(yk_value_set(root, "state_dict", weights));
    yk_state_dict *found = yk_value_weights(root, NULL);
    assert_int_equal(yk_state_dict_count(found), 1);
    assert_string_equal(yk_state_dict_name(found, 0), "module.fc.weight");
    found = yk_value_weights(weights, YK_OPTIONS(yk_weights_options, .strip_module = true));
    assert_string_equal(yk_state_dict_name(found, 0), "fc.weight");
    found = yk_value_flatten(root);
    assert_int_equal(yk_state_dict_count(found), 2);
    assert_string_equal(yk_state_dict_name(found, 1), "state_dict.module.fc.weight");
    assert_null(yk_value_weights(yk_value_int(3), NULL));
    expect_error(YK_ERR_NOT_FOUND, "the checkpoint is a int, not a dict");
    expect_ok(yk_value_set(root, "a.b", yk_value_tensor(x)));
    yk_value *inner = yk_value_dict();
    expect_ok(yk_value_set(inner, "b", yk_value_tensor(x)));
    expect_ok(yk_value_set(root, "a", inner));
    assert_null(yk_value_flatten(root));
    expect_error(YK_ERR_ARGUMENT, "there is a tensor \"a.b\" already");
    yk_scope_end(scope);
}

int main(void)
{
    setenv("YOKE_CPU_DEVICES", "2", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_golden), cmocka_unit_test(test_shares_memory),
        cmocka_unit_test(test_round_trip),   cmocka_unit_test(test_round_trip_other_device),
        cmocka_unit_test(test_writes_part),  cmocka_unit_test(test_writes_empty),
        cmocka_unit_test(test_save_errors),  cmocka_unit_test(test_values),
        cmocka_unit_test(test_weights),
    };
    return cmocka_run_group_tests_name("pt", tests, make_directory, remove_directory);
}
