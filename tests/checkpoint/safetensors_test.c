/*
 * safetensors_test.c - files of the Python package are read, the same bytes are written, damaged files are refused with
 * the tensor's name, and a full disk costs nothing.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <yoke/checkpoint.h>

#include "base/core.h"
#include "checkpoint/formats/safetensors.h"
#include "nn/module.h"
#include "tests/checkpoint/safetensors_golden.h"
#include "tests/support/expect.h"

static char directory[64], path[96];

static int make_directory(void **state)
{
    (void)state;
    snprintf(directory, sizeof(directory), "/tmp/yoke-safetensors-XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    snprintf(path, sizeof(path), "%s/x.safetensors", directory);
    return 0;
}

static int remove_directory(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(directory); /* fails where something was left */
}

static void put(const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

static size_t get(unsigned char *data, size_t size)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t have = fread(data, 1, size, f);
    fclose(f);
    return have;
}

/* A file of this header and `data_size` bytes, each 1. */
static void put_file(const char *header, size_t data_size)
{
    unsigned char bytes[4096];
    size_t length = strlen(header);
    assert_true(8 + length + data_size <= sizeof(bytes));
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)length >> 8 * i);
    memcpy(bytes + 8, header, length);
    memset(bytes + 8 + length, 1, data_size);
    put(bytes, 8 + length + data_size);
}

static int directory_entries(void)
{
    int count = 0;
    DIR *d = opendir(directory);
    assert_non_null(d);
    for (struct dirent *entry; (entry = readdir(d));)
        count += entry->d_name[0] != '.';
    closedir(d);
    return count;
}

/* ---- reading what the package wrote ----------------------------------------------------------------------------- */

typedef struct expected {
    const char *name;
    yk_dtype dtype;
    int ndim;
    int64_t shape[2];
    double values[6];
} expected;

static const expected golden[] = {
    {"i64", YK_I64, 2, {2, 1}, {-1, 0x1p40}},
    {"f64", YK_F64, 1, {2}, {1.0 / 3, -2}},
    {"a.f32", YK_F32, 0, {0}, {-1.5}},
    {"empty", YK_F32, 2, {0, 4}, {0}},
    {"na\xc3\xafve \"q\"\\/\n", YK_F32, 1, {1}, {1}},
    {"z.f32", YK_F32, 2, {2, 3}, {0, 0.5, 1, 1.5, 2, 2.5}},
    {"i32", YK_I32, 1, {2}, {7, -8}},
    {"bf16", YK_BF16, 1, {2}, {1, -3}},
    {"f16", YK_F16, 1, {3}, {1, -0.5, 65504}},
    {"a.u8", YK_U8, 2, {2, 2}, {1, 2, 3, 255}},
    {"b.bool", YK_BOOL, 1, {3}, {1, 0, 1}},
};
enum { GOLDEN = sizeof(golden) / sizeof(*golden) };

static void check_golden(const yk_state_dict *dict, yk_device device)
{
    assert_int_equal(yk_state_dict_count(dict), GOLDEN);
    for (int i = 0; i < GOLDEN; i++) {
        const expected *e = &golden[i];
        yk_tensor *x = yk_state_dict_at(dict, i);
        assert_string_equal(yk_state_dict_name(dict, i), e->name);
        assert_int_equal(yk_tensor_dtype(x), e->dtype);
        assert_true(yk_device_equal(yk_tensor_device(x), device));
        assert_int_equal(yk_ndim(x), e->ndim);
        for (int d = 0; d < e->ndim; d++)
            assert_int_equal(yk_size(x, d), e->shape[d]);
        for (int64_t j = 0; j < yk_numel(x); j++) {
            int64_t columns = e->ndim == 2 ? e->shape[1] : yk_numel(x) + 1;
            int64_t index[2] = {e->ndim == 2 ? j / columns : j, j % columns};
            expect_near(yk_get(x, index), e->values[j], 0, 0);
        }
    }
}

static void test_reads_package(void **state)
{
    (void)state;
    put(safetensors_golden, sizeof(safetensors_golden));
    for (int16_t d = 0; d < 2; d++) {
        yk_scope scope = yk_scope_begin();
        yk_device device = {YK_CPU, d};
        yk_state_dict *dict = yk_safetensors_load(path, device);
        expect_ok(dict ? 0 : 1);
        check_golden(dict, device);
        yk_scope_end(scope);
    }
}

static void test_writes_same_bytes(void **state)
{
    (void)state;
    put(safetensors_golden, sizeof(safetensors_golden));
    yk_scope scope = yk_scope_begin();
    yk_state_dict *dict = yk_safetensors_load(path, (yk_device){0}), *reversed = yk_state_dict_create();
    for (int64_t i = yk_state_dict_count(dict) - 1; i >= 0; i--)
        expect_ok(yk_state_dict_add(reversed, yk_state_dict_name(dict, i), yk_state_dict_at(dict, i)));
    unlink(path);
    expect_ok(yk_safetensors_save(path, reversed, (yk_metadata[]){{"format", "pt"}, {0}}));
    unsigned char bytes[sizeof(safetensors_golden) + 1];
    assert_int_equal(get(bytes, sizeof(bytes)), sizeof(safetensors_golden));
    assert_memory_equal(bytes, safetensors_golden, sizeof(safetensors_golden));
    yk_scope_end(scope);
}

static void test_strides_become_c_order(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    float values[60];
    for (int i = 0; i < 60; i++)
        values[i] = (float)i;
    yk_tensor *x = yk_from_data(values, YK_SHAPE(3, 4, 5), NULL);
    yk_tensor *turned = yk_permute(x, (int[]){2, 0, 1});
    yk_state_dict *dict = yk_state_dict_create();
    expect_ok(yk_state_dict_add(dict, "turned", turned));
    expect_ok(yk_state_dict_add(dict, "part", yk_slice(x, 1, 1, 4, 2)));
    expect_ok(yk_safetensors_save(path, dict, NULL));
    yk_state_dict *again = yk_safetensors_load(path, (yk_device){0});
    yk_tensor *back = yk_state_dict_get(again, "turned"), *part = yk_state_dict_get(again, "part");
    expect_ok(back && part ? 0 : 1);
    assert_true(yk_is_contiguous(back));
    const float *p = yk_tensor_data(back);
    for (int i = 0; i < 60; i++)
        expect_near(p[i], i / 12 + 5.0 * (i % 12), 0, 0);
    p = yk_tensor_data(part);
    for (int i = 0; i < 30; i++)
        expect_near(p[i], 20.0 * (i / 10) + 5 + 10.0 * (i % 10 / 5) + i % 5, 0, 0);
    yk_scope_end(scope);
}

static void test_empty_dict(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    expect_ok(yk_safetensors_save(path, yk_state_dict_create(), NULL));
    unsigned char bytes[32];
    assert_int_equal(get(bytes, sizeof(bytes)), 16);
    assert_memory_equal(bytes, "\x08\0\0\0\0\0\0\0{}      ", 16);
    yk_state_dict *dict = yk_safetensors_load(path, (yk_device){0});
    expect_ok(dict ? 0 : 1);
    assert_int_equal(yk_state_dict_count(dict), 0);
    yk_scope_end(scope);
}

/* ---- refusing --------------------------------------------------------------------------------------------------- */

#define ENTRY(dtype, shape, offsets) "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static const struct bad {
    const char *header;
    size_t data;
    yk_status code;
    const char *text;
} bad_headers[] = {
    {"", 0, YK_ERR_FORMAT, "the header does not begin with '{'"},
    {" {}", 0, YK_ERR_FORMAT, "the header does not begin with '{'"},
    {"{\"a\":", 0, YK_ERR_FORMAT, "bad header at byte"},
    {"{} {}", 0, YK_ERR_FORMAT, "bad header at byte"},
    {"{\"a\":" ENTRY("U8", "[1]", "[0,1]") ",\"a\":" ENTRY("U8", "[1]", "[0,1]") "}", 1, YK_ERR_FORMAT,
     "duplicate object key near '\"a\"'"},
    {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, YK_ERR_FORMAT, "duplicate"},
    {"{\"a\":3}", 0, YK_ERR_FORMAT, "tensor 'a': its entry is an integer, not an object"},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, YK_ERR_FORMAT, "tensor 'a': dtype is nothing, not a string"},
    {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, YK_ERR_FORMAT,
     "tensor 'a': shape is nothing, not an array"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, YK_ERR_FORMAT, "tensor 'a': data_offsets is not an array of two"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"more\":1}}", 1, YK_ERR_FORMAT,
     "tensor 'a': unknown field 'more'"},
    {"{\"a\":" ENTRY("f32", "[1]", "[0,4]") "}", 4, YK_ERR_DTYPE, "tensor 'a': 'f32' is no dtype of the format"},
    {"{\"a\":" ENTRY("I16", "[3]", "[0,3]") "}", 3, YK_ERR_FORMAT,
     "tensor 'a': data_offsets [0, 3] hold 3 bytes, its shape and dtype need 6"},
    {"{\"a\":" ENTRY("F6_E2M3", "[2]", "[0,2]") "}", 2, YK_ERR_FORMAT, "tensor 'a': its 12 bits are no whole bytes"},
    {"{\"a\":" ENTRY("C64", "[4294967296,4294967296]", "[0,0]") "}", 0, YK_ERR_FORMAT,
     "tensor 'a': its shape has more bytes than 64 bits count"},
    {"{\"a\":" ENTRY("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1, YK_ERR_SHAPE, "tensor 'a' has 9 dimensions"},
    {"{\"a\":" ENTRY("U8", "[1.0]", "[0,1]") "}", 1, YK_ERR_FORMAT, "tensor 'a': shape[0] is a real number"},
    {"{\"a\":" ENTRY("U8", "[\"1\"]", "[0,1]") "}", 1, YK_ERR_FORMAT, "tensor 'a': shape[0] is a string"},
    {"{\"a\":" ENTRY("U8", "[-1]", "[0,1]") "}", 1, YK_ERR_FORMAT, "tensor 'a': shape[0] is -1, below 0"},
    {"{\"a\":" ENTRY("U8", "[NaN]", "[0,1]") "}", 1, YK_ERR_FORMAT, "bad header at byte"},
    {"{\"a\":" ENTRY("U8", "[99999999999999999999]", "[0,1]") "}", 1, YK_ERR_FORMAT, "too big integer"},
    {"{\"a\":" ENTRY("F32", "[4294967296,4294967296]", "[0,0]") "}", 0, YK_ERR_FORMAT,
     "tensor 'a': its shape has more bytes than 64 bits count"},
    {"{\"a\":" ENTRY("U8", "[1]", "[0,1,2]") "}", 1, YK_ERR_FORMAT, "tensor 'a': data_offsets is not an array of two"},
    {"{\"a\":" ENTRY("U8", "[1]", "[-1,0]") "}", 1, YK_ERR_FORMAT, "tensor 'a': data_offsets[0] is -1, below 0"},
    {"{\"a\":" ENTRY("U8", "[1]", "[1,0]") "}", 1, YK_ERR_FORMAT, "tensor 'a': data_offsets [1, 0] lie outside"},
    {"{\"a\":" ENTRY("U8", "[2]", "[0,2]") "}", 1, YK_ERR_FORMAT,
     "tensor 'a': data_offsets [0, 2] lie outside the 1 bytes"},
    {"{\"a\":" ENTRY("U8", "[9223372036854775807]", "[0,9223372036854775807]") "}", 1, YK_ERR_FORMAT, "lie outside"},
    {"{\"a\":" ENTRY("F32", "[2]", "[0,4]") "}", 4, YK_ERR_FORMAT,
     "tensor 'a': data_offsets [0, 4] hold 4 bytes, its shape and dtype need 8"},
    {"{\"a\":" ENTRY("U8", "[4]", "[0,4]") ",\"b\":" ENTRY("U8", "[4]", "[2,6]") "}", 6, YK_ERR_FORMAT,
     "tensors 'a' and 'b' overlap at byte 2"},
    {"{\"b\":" ENTRY("U8", "[4]", "[0,4]") ",\"a\":" ENTRY("U8", "[4]", "[0,4]") "}", 4, YK_ERR_FORMAT,
     "tensors 'a' and 'b' overlap at byte 0"},
    {"{\"a\":" ENTRY("U8", "[1]", "[1,2]") "}", 2, YK_ERR_FORMAT, "bytes 0 to 1 before tensor 'a' belong to none"},
    {"{\"a\":" ENTRY("U8", "[1]", "[0,1]") ",\"b\":" ENTRY("U8", "[1]", "[2,3]") "}", 3, YK_ERR_FORMAT,
     "bytes 1 to 2 before tensor 'b' belong to none"},
    {"{\"a\":" ENTRY("U8", "[1]", "[0,1]") "}", 2, YK_ERR_FORMAT, "the tensors end at byte 1"},
    {"{}", 1, YK_ERR_FORMAT, "the tensors end at byte 0"},
    {"{\"__metadata__\":{\"a\":1}}", 0, YK_ERR_FORMAT, "__metadata__: 'a' is an integer, not a string"},
    {"{\"__metadata__\":[]}", 0, YK_ERR_FORMAT, "__metadata__ is an array, not an object"},
};

static void test_bad_headers(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    for (size_t i = 0; i < sizeof(bad_headers) / sizeof(*bad_headers); i++) {
        const struct bad *b = &bad_headers[i];
        put_file(b->header, b->data);
        assert_null(yk_safetensors_load(path, (yk_device){0}));
        assert_non_null(strstr(yk_last_error()->message, path));
        expect_error(b->code, b->text);
    }
    yk_scope_end(scope);
}

/* Tensors of dtypes that yoke has not: all others are read, and the dict says what each of these was. */
static void test_other_dtypes(void **state)
{
    (void)state;
#define NAMED(name, dtype, shape, offsets) "\"" name "\":" ENTRY(dtype, shape, offsets)
    static const char *const entries[] = {NAMED("c", "C64", "[]", "[0,8]"),        NAMED("w", "F32", "[2]", "[8,16]"),
                                          NAMED("i", "I16", "[1,2]", "[16,20]"),   NAMED("j", "I8", "[3]", "[20,23]"),
                                          NAMED("k", "F8_E4M3", "[1]", "[23,24]"), NAMED("l", "F4", "[2,3]", "[24,27]"),
                                          NAMED("b", "BOOL", "[1]", "[27,28]")};
    char header[1000] = "";
    for (size_t i = 0; i < sizeof(entries) / sizeof(*entries); i++)
        sprintf(header + strlen(header), "%s%s", i ? "," : "{", entries[i]);
    strcat(header, "}");
    static const struct {
        const char *name, *what;
    } left_out[] = {{"c", "complex64 tensor of shape ()"}, {"i", "int16 tensor of shape (1, 2)"},
                    {"j", "int8 tensor of shape (3,)"},    {"k", "float8_e4m3fn tensor of shape (1,)"},
                    {"l", "F4 tensor of shape (2, 3)"},    {"w", NULL}};
    put_file(header, 28);
    for (int mapped = 0; mapped < 2; mapped++) {
        yk_scope scope = yk_scope_begin();
        yk_state_dict *dict = yk_safetensors_read(path, YK_OPTIONS(yk_read_options, .mmap = mapped));
        assert_non_null(dict);
        assert_int_equal(yk_state_dict_count(dict), 2);
        uint32_t ones = 0x01010101;
        float values[2], one;
        memcpy(&one, &ones, sizeof(one));
        expect_ok(yk_tensor_read(yk_state_dict_get(dict, "w"), values, sizeof(values)));
        assert_true(values[0] == one && values[1] == one);
        assert_non_null(yk_state_dict_get(dict, "b"));
        for (size_t i = 0; i < sizeof(left_out) / sizeof(*left_out); i++) {
            const char *what = yk_state_dict_left_out(dict, left_out[i].name);
            if (left_out[i].what)
                assert_string_equal(what, left_out[i].what);
            else
                assert_null(what);
        }
        yk_scope_end(scope);
    }
}

typedef struct tapped {
    size_t bytes;
    unsigned char last;
} tapped;

static void count_bytes(void *arg, const void *bytes, size_t size)
{
    tapped *t = arg;
    t->bytes += size;
    t->last = ((const unsigned char *)bytes)[size - 1];
}

/* A reading whose bytes are checked passes over none of them, and what is read later comes from its own place. */
static void test_other_dtypes_are_tapped(void **state)
{
    (void)state;
    enum { ELEMENTS = 300000 }; /* large enough to be deferred */
    char header[200];
    int length =
        snprintf(header, sizeof(header),
                 "{\"j\":" ENTRY("I8", "[500000]", "[0,500000]") ",\"w\":" ENTRY("F32", "[%d]", "[500000,%d]") "}",
                 ELEMENTS, 500000 + 4 * ELEMENTS);
    size_t size = 8 + (size_t)length + 500000 + 4 * ELEMENTS;
    unsigned char *file = calloc(size, 1);
    file[0] = (unsigned char)length;
    memcpy(file + 8, header, (size_t)length);
    memset(file + 8 + length, 7, 500000);
    file[size - 1] = 0x40; /* the last element is 2 */
    put(file, size);
    yk_scope scope = yk_scope_begin();
    tapped seen = {0};
    yk_state_dict *dict = yk__safetensors_read_deferred(path, count_bytes, &seen, NULL, NULL);
    assert_non_null(dict);
    assert_int_equal(seen.bytes, size);
    assert_int_equal(seen.last, 0x40);
    yk_tensor *to = yk_ones(YK_SHAPE(ELEMENTS), NULL);
    expect_ok(yk__state_dict_copy(dict, 0, to));
    assert_true(yk_item(yk_select(to, 0, 0)) == 0 && yk_item(yk_select(to, 0, ELEMENTS - 1)) == 2);
    yk_scope_end(scope);
    free(file);
}

static void test_bad_prefix(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    put("abc", 3);
    assert_null(yk_safetensors_load(path, (yk_device){0}));
    expect_error(YK_ERR_FORMAT, "3 bytes, fewer than the 8 of a prefix");
    put("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10);
    assert_null(yk_safetensors_load(path, (yk_device){0}));
    expect_error(YK_ERR_FORMAT, "it claims a header of 9223372036854775807 bytes; the format allows 100000000");
    put("\x00\xe1\xf5\x05\0\0\0\0{}", 10); /* exactly what the format allows */
    assert_null(yk_safetensors_load(path, (yk_device){0}));
    expect_error(YK_ERR_FORMAT, "said to have 100000000 bytes but only 2 follow");
    assert_null(yk_safetensors_load(directory, (yk_device){0}));
    expect_error(YK_ERR_IO, "not a regular file");
    unlink(path);
    assert_null(yk_safetensors_load(path, (yk_device){0}));
    expect_error(YK_ERR_IO, "No such file");
    yk_scope_end(scope);
    assert_null(yk_safetensors_load(path, (yk_device){0}));
    expect_error(YK_ERR_STATE, "scope");
}

/* Every truncation of a good file is refused. */
static void test_truncated(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    for (size_t size = 0; size < sizeof(safetensors_golden); size++) {
        put(safetensors_golden, size);
        assert_null(yk_safetensors_load(path, (yk_device){0}));
        expect_error(YK_ERR_FORMAT, path);
    }
    yk_scope_end(scope);
}

/* Each bit of the length and the header of a good file: an error that names the file, or another valid header (a letter
 * of a name), whose tensors are all there; copied and mapped alike. */
static void test_flipped_bits(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    unsigned char bytes[sizeof(safetensors_golden)];
    memcpy(bytes, safetensors_golden, sizeof(bytes));
    put(bytes, sizeof(bytes));
    int64_t count = yk_state_dict_count(yk_safetensors_load(path, (yk_device){0}));
    size_t header = 8 + (bytes[0] | (size_t)bytes[1] << 8);
    int refused = 0;
    assert_true(count > 3 && header < sizeof(bytes));
    for (size_t bit = 0; bit < 8 * header; bit++) {
        yk_scope inner = yk_scope_begin();
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        put(bytes, sizeof(bytes));
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        yk_state_dict *dict = yk_safetensors_read(path, YK_OPTIONS(yk_read_options, .mmap = bit % 2));
        if (dict)
            assert_int_equal(yk_state_dict_count(dict), count);
        else
            assert_non_null(strstr(yk_last_error()->message, path));
        refused += !dict;
        yk_clear_error();
        yk_scope_end(inner);
    }
    assert_true(refused > (int)header);
    yk_scope_end(scope);
}

static void test_bool_bytes(void **state)
{
    (void)state;
    unsigned char bytes[sizeof(safetensors_golden)];
    memcpy(bytes, safetensors_golden, sizeof(bytes));
    bytes[sizeof(bytes) - 2] = 2;
    put(bytes, sizeof(bytes));
    yk_scope scope = yk_scope_begin();
    assert_null(yk_safetensors_load(path, (yk_device){0}));
    expect_error(YK_ERR_FORMAT, "tensor 'b.bool': element 1 is 2, not a BOOL");
    yk_scope_end(scope);
}

/* The number of pieces of memory that jansson still gets. */
static int pieces;

static void *few_pieces(size_t size)
{
    return pieces-- > 0 ? malloc(size) : NULL;
}

/* Out of memory, jansson gives no reason: then the error is that, and not a broken file. In the middle of a name it
 * gives a reason of its own. */
static void test_no_memory_for_the_header(void **state)
{
    (void)state;
    put_file("{\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1);
    int failures = 0, of_memory = 0;
    yk_state_dict *dict;
    do {
        yk_scope scope = yk_scope_begin();
        pieces = failures;
        json_set_alloc_funcs(few_pieces, free);
        dict = yk_safetensors_load(path, (yk_device){0});
        json_set_alloc_funcs(malloc, free);
        if (!dict) {
            const yk_error *error = yk_last_error();
            assert_int_equal(strncmp(error->message, path, strlen(path)), 0);
            assert_true(error->message[strlen(error->message) - 1] != ' ');
            of_memory += error->code == YK_ERR_MEMORY;
            yk_clear_error();
        }
        failures += !dict;
        yk_scope_end(scope);
    } while (!dict);
    assert_true(failures > 5 && of_memory > 2);
}

static void test_bad_save(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_ones(YK_SHAPE(2), NULL);
    yk_state_dict *dict = yk_state_dict_create();
    expect_ok(yk_state_dict_add(dict, "a\xff", x));
    assert_int_not_equal(yk_safetensors_save(path, dict, NULL), YK_OK);
    expect_error(YK_ERR_ARGUMENT, "is not valid UTF-8");
    dict = yk_state_dict_create();
    expect_ok(yk_state_dict_add(dict, "__metadata__", x));
    assert_int_not_equal(yk_safetensors_save(path, dict, NULL), YK_OK);
    expect_error(YK_ERR_ARGUMENT, "may not be named '__metadata__'");
    dict = yk_state_dict_create();
    assert_int_not_equal(yk_safetensors_save(path, dict, (yk_metadata[]){{"k", "\xff"}, {0}}), YK_OK);
    expect_error(YK_ERR_ARGUMENT, "metadata of key 'k' is not valid UTF-8");
    assert_int_not_equal(yk_safetensors_save(path, NULL, NULL), YK_OK);
    expect_error(YK_ERR_ARGUMENT, "no state dict");
    assert_int_not_equal(yk_safetensors_save("/nowhere/at/all", dict, NULL), YK_OK);
    expect_error(YK_ERR_IO, "/nowhere/at/all");
    yk_scope_end(scope);
    assert_int_equal(directory_entries(), 0);
}

/* A limit on the size of files stands in for a full disk: write fails half way. */
static void test_full_disk_keeps_old(void **state)
{
    (void)state;
    put(safetensors_golden, sizeof(safetensors_golden));
    yk_scope scope = yk_scope_begin();
    yk_state_dict *dict = yk_state_dict_create();
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof(name), "x%d", i);
        expect_ok(yk_state_dict_add(dict, name, yk_ones(YK_SHAPE(100000), NULL)));
    }
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){1000000, old.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    yk_status status = yk_safetensors_save(path, dict, NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, YK_ERR_IO);
    expect_error(YK_ERR_IO, "File too large");
    assert_int_equal(directory_entries(), 1);
    check_golden(yk_safetensors_load(path, (yk_device){0}), (yk_device){0});
    expect_ok(yk_safetensors_save(path, dict, NULL)); /* and with room it works */
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_true(info.st_size > 1600000);
    yk_scope_end(scope);
}

int main(void)
{
    setenv("YOKE_CPU_DEVICES", "2", 1);
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_directory, remove_directory)
        TEST(test_reads_package),
        TEST(test_writes_same_bytes),
        TEST(test_strides_become_c_order),
        TEST(test_empty_dict),
        TEST(test_bad_headers),
        TEST(test_other_dtypes),
        TEST(test_other_dtypes_are_tapped),
        TEST(test_bad_prefix),
        TEST(test_truncated),
        TEST(test_flipped_bits),
        TEST(test_bool_bytes),
        TEST(test_bad_save),
        TEST(test_full_disk_keeps_old),
        TEST(test_no_memory_for_the_header),
    };
    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
