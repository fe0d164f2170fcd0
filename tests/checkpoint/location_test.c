/*
 * location_test.c - the memory in which the tensors of a file are put: a device, a map of devices, a function; and
 * files that are mapped instead of copied, which keep their content and stay unchanged.
 */
#include "host/file.h"
#include "tests/support/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <yoke/checkpoint.h>

#include "checkpoint/formats/pt.h"
#include "tensor/tensor.h"
#include "value/value.h"

static char folder[64], pt[96], st[96];

/* a and b share memory; c is a transposed one; flags are booleans; also an empty and a 0-dimensional one. */
static int write_files(void **state)
{
    (void)state;
    setenv("YOKE_CPU_DEVICES", "3", 1);
    strcpy(folder, "/tmp/yoke-location-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    snprintf(pt, sizeof(pt), "%s/x.pt", folder);
    snprintf(st, sizeof(st), "%s/x.safetensors", folder);
    yk_scope scope = yk_scope_begin();
    yk_state_dict *dict = yk_state_dict_create();
    yk_tensor *a = yk_arange(0, 24, 1, NULL);
    yk_status status = yk_state_dict_add(dict, "a", a);
    status |= yk_state_dict_add(dict, "b", yk_narrow(a, 0, 4, 8));
    status |=
        yk_state_dict_add(dict, "c", yk_transpose(yk_reshape(yk_arange(0, 6, 1, NULL), 2, (int64_t[]){2, 3}), 0, 1));
    status |=
        yk_state_dict_add(dict, "flags", yk_ones(1, (int64_t[]){5}, YK_OPTIONS(yk_tensor_options, .dtype = YK_BOOL)));
    status |= yk_state_dict_add(dict, "empty", yk_zeros(2, (int64_t[]){0, 3}, NULL));
    status |= yk_state_dict_add(dict, "scalar", yk_full(0, NULL, 2.5, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64)));
    if (!status)
        status = yk_pt_save(pt, yk_value_from_state_dict(dict));
    if (!status)
        status = yk_safetensors_save(st, dict, NULL);
    yk_scope_end(scope);
    return status;
}

static int remove_files(void **state)
{
    (void)state;
    unlink(pt);
    unlink(st);
    return rmdir(folder);
}

static yk_state_dict *read_file(const char *path, const yk_read_options *options)
{
    if (path == st)
        return yk_safetensors_read(path, options);
    yk_value *value = yk_pt_load(path, options);
    return value ? yk_value_flatten(value) : NULL;
}

static yk_tensor *get(const yk_state_dict *dict, const char *name)
{
    int64_t at = yk_state_dict_find(dict, name);
    assert_true(at >= 0);
    return yk_state_dict_at(dict, at);
}

static double at(const yk_tensor *x, int64_t i, int64_t j)
{
    return yk_get(x, (int64_t[]){i, j});
}

static void check_content(const yk_state_dict *dict)
{
    assert_int_equal(yk_state_dict_count(dict), 6);
    for (int64_t i = 0; i < 24; i++)
        assert_true(at(get(dict, "a"), i, 0) == (double)i);
    for (int64_t i = 0; i < 8; i++)
        assert_true(at(get(dict, "b"), i, 0) == (double)i + 4);
    for (int64_t i = 0; i < 3; i++)
        assert_true(at(get(dict, "c"), i, 1) == (double)i + 3);
    assert_true(at(get(dict, "flags"), 4, 0) == 1);
    assert_int_equal(yk_numel(get(dict, "empty")), 0);
    assert_true(yk_item(get(dict, "scalar")) == 2.5);
}

static void expect_device(const yk_state_dict *dict, const char *name, int index)
{
    yk_device device = yk_tensor_device(get(dict, name));
    assert_int_equal(device.type, YK_CPU);
    assert_int_equal(device.index, index);
}

static void test_maps(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    const char *const files[] = {pt, st};
    for (int f = 0; f < 2; f++) {
        yk_state_dict *dict = read_file(files[f], YK_OPTIONS(yk_read_options, .map_location = {YK_CPU, 2}));
        check_content(dict);
        expect_device(dict, "a", 2);
        static const yk_location from_cpu[] = {{"cuda:0", {YK_CPU, 2}}, {"cpu", {YK_CPU, 1}}, {0}};
        dict = read_file(files[f], YK_OPTIONS(yk_read_options, .locations = from_cpu));
        check_content(dict);
        expect_device(dict, "a", 1);
        static const yk_location from_cuda[] = {{"cuda:0", {YK_CPU, 2}}, {0}};
        dict = read_file(files[f], YK_OPTIONS(yk_read_options, .locations = from_cuda, .map_location = {YK_CPU, 1}));
        expect_device(dict, "a", 1);
        static const yk_location absent[] = {{"cpu", {YK_CPU, 7}}, {0}};
        assert_null(read_file(files[f], YK_OPTIONS(yk_read_options, .locations = absent)));
        expect_error(YK_ERR_DEVICE, "cpu:7");
    }
    yk_scope_end(scope);
}

/* The device that a storage was saved from, in the pickle: this .pt, with its "cpu" made "gpu" (both checksums with
 * it). */
static void test_saved_from(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    unsigned char *bytes;
    size_t size;
    expect_ok(yk__file_read(pt, 1 << 20, &bytes, &size));
    yk__zip zip;
    yk__source source = {"x.pt", -1, bytes, size, NULL};
    expect_ok(yk__zip_open(&source, &zip));
    uint32_t index = yk__zip_find(&zip, "archive/data.pkl", 16);
    assert_true(index != UINT32_MAX);
    yk__zip_member m = zip.members[index];
    int changed = 0;
    for (uint64_t i = m.data; i + 3 < m.data + m.size; i++) {
        if (memcmp(bytes + i, "cpu", 3) == 0) {
            memcpy(bytes + i, "gpu", 3);
            changed++;
        }
    }
    assert_true(changed > 1);
    uint32_t crc = yk__crc32(0, bytes + m.data, m.size);
    for (size_t i = 0; i + 4 <= size; i++) {
        uint32_t word;
        memcpy(&word, bytes + i, 4);
        if (word == m.crc)
            memcpy(bytes + i, &crc, 4);
    }
    yk__zip_clear(&zip);
    static const yk_location map[] = {{"cpu", {YK_CPU, 1}}, {"gpu", {YK_CPU, 2}}, {0}};
    yk_value *value = yk__pt_read(&source, YK_OPTIONS(yk_read_options, .locations = map));
    assert_non_null(value);
    yk_state_dict *dict = yk_value_flatten(value);
    check_content(dict);
    expect_device(dict, "a", 2);
    yk_value_release(value);
    free(bytes);
    yk_scope_end(scope);
}

typedef struct calls {
    int count;
    const char *saved;
} calls;

static yk_device by_name(const char *saved, const char *name, void *user)
{
    calls *c = user;
    c->count++;
    assert_string_equal(saved, "cpu");
    return (yk_device){YK_CPU, strcmp(name, "c") == 0 || strcmp(name, "1") == 0 ? 2 : 1};
}

static yk_device nowhere(const char *saved, const char *name, void *user)
{
    (void)saved, (void)name, (void)user;
    return (yk_device){YK_CPU, 9};
}

static void test_function(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    calls c = {0};
    yk_state_dict *dict = read_file(st, YK_OPTIONS(yk_read_options, .locate = by_name, .user = &c));
    check_content(dict);
    assert_int_equal(c.count, 6);
    expect_device(dict, "a", 1);
    expect_device(dict, "c", 2);
    c.count = 0;
    dict = read_file(pt, YK_OPTIONS(yk_read_options, .locate = by_name, .user = &c));
    check_content(dict);
    assert_int_equal(c.count, 5); /* a and b are on one storage */
    expect_device(dict, "b", 1);
    expect_device(dict, "c", 2);
    assert_null(read_file(st, YK_OPTIONS(yk_read_options, .locate = nowhere)));
    expect_error(YK_ERR_DEVICE, "map_location for '");
    yk_scope_end(scope);
}

/* Parts of one mapping: writing does not reach the file; the tensors outlive its name. */
static void test_mmap(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    const char *const files[] = {pt, st};
    for (int f = 0; f < 2; f++) {
        unsigned char *before, *after;
        size_t size, same;
        expect_ok(yk__file_read(files[f], 1 << 20, &before, &size));
        yk_state_dict *dict = read_file(files[f], YK_OPTIONS(yk_read_options, .mmap = true));
        check_content(dict);
        assert_true(get(dict, "a")->storage->foreign_release != NULL);
        assert_int_equal(get(dict, "a")->storage == get(dict, "b")->storage, files[f] == pt);
        char moved[128];
        snprintf(moved, sizeof(moved), "%s.moved", files[f]);
        assert_int_equal(rename(files[f], moved), 0);
        assert_non_null(yk_fill_(get(dict, "c"), 8));
        assert_true(at(get(dict, "c"), 2, 1) == 8);
        expect_ok(yk__file_read(moved, 1 << 20, &after, &same));
        assert_true(size == same && memcmp(before, after, size) == 0);
        assert_int_equal(rename(moved, files[f]), 0);
        dict = read_file(files[f], YK_OPTIONS(yk_read_options, .mmap = true, .map_location = {YK_CPU, 1}));
        check_content(dict);
        expect_device(dict, "a", 1);
        free(before);
        free(after);
    }
    yk_scope_end(scope);
}

/* A mapped file is checked as any other. */
static void test_mmap_damage(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    unsigned char *bytes;
    size_t size;
    expect_ok(yk__file_read(pt, 1 << 20, &bytes, &size));
    char path[128];
    snprintf(path, sizeof(path), "%s/damaged.pt", folder);
    int refused = 0;
    for (size_t i = 0; i < size; i += 61) {
        bytes[i] ^= 0x10;
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(bytes, 1, size, file), size);
        fclose(file);
        bytes[i] ^= 0x10;
        yk_value *value = yk_pt_load(path, YK_OPTIONS(yk_pt_options, .mmap = true));
        refused += !value;
        assert_int_equal(value == NULL, yk_last_error() != NULL);
        yk_clear_error();
    }
    assert_true(refused > 10);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fclose(file);
    assert_null(yk_pt_load(path, YK_OPTIONS(yk_pt_options, .mmap = true)));
    expect_error(YK_ERR_FORMAT, "damaged.pt");
    assert_null(yk_safetensors_read(path, YK_OPTIONS(yk_read_options, .mmap = true)));
    expect_error(YK_ERR_FORMAT, "damaged.pt");
    unlink(path);
    free(bytes);
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_maps), cmocka_unit_test(test_saved_from),  cmocka_unit_test(test_function),
        cmocka_unit_test(test_mmap), cmocka_unit_test(test_mmap_damage),
    };
    return cmocka_run_group_tests_name("location", tests, write_files, remove_files);
}
