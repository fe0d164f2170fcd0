/* NumPy's files: read as NumPy 1.24 wrote them, written with the bytes that it writes, damaged ones refused. */
#include <unistd.h>

#include "tests/data/files.h"

#include <yoke/checkpoint.h>
#include <yoke/ops.h>

/* Writes x.npy with NumPy's padding, from the dict of its header and its elements. */
static void write_array(const char *dict, const void *data, size_t size)
{
    unsigned char bytes[4096] = "\x93NUMPY\x01";
    size_t length = (10 + strlen(dict) + 1 + 63) / 64 * 64;
    memset(bytes + 10, ' ', length - 10);
    memcpy(bytes + 10, dict, strlen(dict));
    bytes[length - 1] = '\n';
    bytes[8] = (unsigned char)(length - 10);
    bytes[9] = (unsigned char)((length - 10) >> 8);
    if (size)
        memcpy(bytes + length, data, size);
    write_file("x.npy", bytes, length + size);
}

static yk_tensor *array(const char *dict, const void *data, size_t size)
{
    write_array(dict, data, size);
    yk_tensor *x = yk_npy_load("x.npy");
    assert_non_null(x);
    return x;
}

static void test_types(void **state)
{
    (void)state;
    yk_tensor *x = array("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", (float[]){0, 3, 1, 4, 2, 5}, 24);
    assert_int_equal(yk_size(x, 1), 3);
    for (int i = 0; i < 6; i++)
        assert_true(yk_get(x, (int64_t[]){i / 3, i % 3}) == i);
    x = array("{'descr': '<f8', 'fortran_order': False, 'shape': (), }", (double[]){2.5}, 8);
    assert_int_equal(yk_ndim(x), 0);
    assert_true(yk_item(x) == 2.5);
    x = array("{ \"shape\" : (2 , ) ,\"fortran_order\":False, 'descr':'>i4'}", "\1\2\3\4\xff\xff\xff\xfe", 8);
    assert_int_equal(yk_tensor_dtype(x), YK_I32);
    assert_true(yk_get(x, (int64_t[]){0}) == 0x01020304);
    assert_true(yk_get(x, (int64_t[]){1}) == -2);
    x = array("{'descr': '|i1', 'fortran_order': False, 'shape': (2,), }", (signed char[]){-128, 127}, 2);
    assert_int_equal(yk_tensor_dtype(x), YK_I32);
    assert_true(yk_get(x, (int64_t[]){0}) == -128);
    x = array("{'descr': '<u2', 'fortran_order': False, 'shape': (2,), }", (uint16_t[]){65535, 1}, 4);
    assert_true(yk_get(x, (int64_t[]){0}) == 65535);
    x = array("{'descr': '<u4', 'fortran_order': False, 'shape': (1,), }", (uint32_t[]){4294967295u}, 4);
    assert_int_equal(yk_tensor_dtype(x), YK_I64);
    assert_true(yk_get(x, (int64_t[]){0}) == 4294967295.0);
    x = array("{'descr': '<f2', 'fortran_order': False, 'shape': (1,), }", (uint16_t[]){0x3c00}, 2);
    assert_int_equal(yk_tensor_dtype(x), YK_F16);
    assert_true(yk_get(x, (int64_t[]){0}) == 1);
    x = array("{'descr': '|b1', 'fortran_order': False, 'shape': (0, 5), }", NULL, 0);
    assert_int_equal(yk_numel(x), 0);
    assert_int_equal(yk_size(x, 1), 5);
}

/* An array that is not read, and the reason. */
static void refused(const char *dict, const void *data, size_t size, yk_status code, const char *text)
{
    write_array(dict, data, size);
    assert_null(yk_npy_load("x.npy"));
    expect_error(code, text);
}

static void test_refused(void **state)
{
    (void)state;
    refused("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "12345678", 8, YK_ERR_FORMAT,
            "x.npy: the array's elements are of type '|O', Python objects, which are code");
    refused("{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }", "12345678", 8, YK_ERR_FORMAT, "type '<c8'");
    refused("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "1234", 4, YK_ERR_FORMAT,
            "records of several fields");
    refused("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", "12345678", 8, YK_ERR_FORMAT,
            "x.npy: an array of float32 (3) is not the 8 bytes that follow its header");
    refused("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }", "1234", 4, YK_ERR_FORMAT,
            "is not the 4 bytes");
    refused("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "1234", 4, YK_ERR_FORMAT,
            "expected a size before \"-1,), }");
    refused("{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }", "1234", 4, YK_ERR_FORMAT,
            "more than 8 dimensions");
    refused("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,), }", "1234", 4, YK_ERR_FORMAT,
            "expected True or False");
    refused("{'descr': '<f4', 'shape': (1,), }", "1234", 4, YK_ERR_FORMAT, "expected descr, fortran_order and shape");
    refused("{'descr': '<f4', 'descr': '<f4'}", "1234", 4, YK_ERR_FORMAT, "once each");
    refused("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)", "1234", 4, YK_ERR_FORMAT, "damaged");
    refused("{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }", "\1\2", 2, YK_ERR_FORMAT,
            "element 1 of the array is 2, not a bool");
    refused("{'descr': '<u8', 'fortran_order': False, 'shape': (1,), }", "\0\0\0\0\0\0\0\x80", 8, YK_ERR_FORMAT,
            "element 0 of the array is 9223372036854775808, beyond an int64");
    write_file("x.npy", "P5 3 3 255 abcdefghi", 20);
    assert_null(yk_npy_load("x.npy"));
    expect_error(YK_ERR_FORMAT, "x.npy: not a NumPy array: it does not begin with");
    write_file("x.npy", "\x93NUMPY\x01", 8);
    assert_null(yk_npy_load("x.npy"));
    expect_error(YK_ERR_FORMAT, "only 8 bytes");
    write_file("x.npy", "\x93NUMPY\x02\0\xff\xff\xff\xff!!!!", 16);
    assert_null(yk_npy_load("x.npy"));
    expect_error(YK_ERR_FORMAT, "claims 4294967295 bytes, of a file of 16");
    write_file("x.npy", "\x93NUMPY\x09\0\x02\x00{}", 12);
    assert_null(yk_npy_load("x.npy"));
    expect_error(YK_ERR_FORMAT, "version 9.0");
    assert_null(yk_npy_load("none.npy"));
    expect_error(YK_ERR_IO, "none.npy: No such file");
    assert_null(yk_npy_load(NULL));
    expect_error(YK_ERR_ARGUMENT, "npy_load: the path is NULL");
}

/* A file cut anywhere is refused, or gives what it holds. */
static void test_cut(void **state)
{
    (void)state;
    write_array("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "12345678", 8);
    unsigned char bytes[200];
    FILE *f = fopen("x.npy", "rb");
    size_t size = fread(bytes, 1, sizeof(bytes), f);
    fclose(f);
    for (size_t cut = 0; cut < size; cut++) {
        write_file("cut.npy", bytes, cut);
        assert_null(yk_npy_load("cut.npy"));
        expect_error(YK_ERR_FORMAT, "cut.npy: ");
    }
}

static size_t read_back(const char *path, unsigned char *bytes, size_t most)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t size = fread(bytes, 1, most, f);
    fclose(f);
    return size;
}

static void test_save(void **state)
{
    (void)state;
    static const char *const header = "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }";
    int64_t values[] = {0, 1, 2};
    write_array(header, values, sizeof(values));
    unsigned char theirs[400], ours[400];
    size_t size = read_back("x.npy", theirs, sizeof(theirs));
    assert_int_equal(size, 152); /* as numpy.save(numpy.arange(3)) */
    yk_tensor *x = yk_arange(0, 3, 1, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    expect_ok(yk_npy_save("y.npy", x));
    assert_int_equal(read_back("y.npy", ours, sizeof(ours)), size);
    assert_memory_equal(ours, theirs, size);

    yk_tensor *wide = yk_reshape(yk_arange(0, 6, 1, NULL), YK_SHAPE(2, 3));
    expect_ok(yk_npy_save("t.npy", yk_transpose(wide, 0, 1)));
    yk_tensor *t = yk_npy_load("t.npy");
    assert_true(yk_get(t, (int64_t[]){2, 1}) == 5);
    assert_int_equal(yk_size(t, 0), 3);
    expect_ok(yk_npy_save("s.npy", yk_scalar(4, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64))));
    assert_true(yk_item(yk_npy_load("s.npy")) == 4);
    assert_int_equal(yk_npy_save("h.npy", yk_zeros(YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .dtype = YK_BF16))),
                     YK_ERR_DTYPE);
    expect_error(YK_ERR_DTYPE, "npy_save: NumPy has no bfloat16");
    assert_int_equal(access("h.npy", F_OK), -1);
    assert_int_equal(yk_npy_save("none/h.npy", x), YK_ERR_IO);
    expect_error(YK_ERR_IO, "none/h.npy");
    assert_int_equal(yk_npy_save("h.npy", NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "npy_save: the tensor is NULL");
}

/* numpy.savez_compressed(f, a=numpy.arange(3, dtype="i2") - 1, b=numpy.zeros((0, 4), ">f8")) */
static const unsigned char compressed[] = {
    80,  75,  3,   4,   20,  0,   0,   0,   8,   0,   0,   0,   33,  0,   140, 151, 195, 236, 74,  0,   0,   0,   134,
    0,   0,   0,   5,   0,   20,  0,   97,  46,  110, 112, 121, 1,   0,   16,  0,   134, 0,   0,   0,   0,   0,   0,
    0,   74,  0,   0,   0,   0,   0,   0,   0,   155, 236, 23,  234, 27,  16,  201, 200, 80,  198, 80,  173, 158, 146,
    90,  156, 92,  164, 110, 165, 160, 110, 147, 105, 164, 174, 163, 160, 158, 150, 95,  84,  82,  148, 152, 23,  159,
    95,  148, 146, 10,  18,  119, 75,  204, 41,  78,  5,   138, 23,  103, 36,  22,  164, 2,   249, 26,  198, 58,  154,
    58,  10,  181, 10,  20,  0,   174, 255, 255, 25,  24,  24,  25,  0,   80,  75,  3,   4,   20,  0,   0,   0,   8,
    0,   0,   0,   33,  0,   69,  35,  59,  111, 70,  0,   0,   0,   128, 0,   0,   0,   5,   0,   20,  0,   98,  46,
    110, 112, 121, 1,   0,   16,  0,   128, 0,   0,   0,   0,   0,   0,   0,   70,  0,   0,   0,   0,   0,   0,   0,
    155, 236, 23,  234, 27,  16,  201, 200, 80,  198, 80,  173, 158, 146, 90,  156, 92,  164, 110, 165, 160, 110, 151,
    102, 161, 174, 163, 160, 158, 150, 95,  84,  82,  148, 152, 23,  159, 95,  148, 146, 10,  18,  119, 75,  204, 41,
    78,  5,   138, 23,  103, 36,  22,  164, 2,   249, 26,  6,   58,  10,  38,  154, 58,  10,  181, 10,  100, 3,   46,
    0,   80,  75,  1,   2,   20,  3,   20,  0,   0,   0,   8,   0,   0,   0,   33,  0,   140, 151, 195, 236, 74,  0,
    0,   0,   134, 0,   0,   0,   5,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   128, 1,   0,   0,   0,
    0,   97,  46,  110, 112, 121, 80,  75,  1,   2,   20,  3,   20,  0,   0,   0,   8,   0,   0,   0,   33,  0,   69,
    35,  59,  111, 70,  0,   0,   0,   128, 0,   0,   0,   5,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,
    128, 1,   129, 0,   0,   0,   98,  46,  110, 112, 121, 80,  75,  5,   6,   0,   0,   0,   0,   2,   0,   2,   0,
    102, 0,   0,   0,   254, 0,   0,   0,   0,   0};

static void test_archives(void **state)
{
    (void)state;
    write_file("x.npz", compressed, sizeof(compressed));
    yk_state_dict *dict = yk_npz_load("x.npz");
    assert_non_null(dict);
    assert_int_equal(yk_state_dict_count(dict), 2);
    yk_tensor *a = yk_state_dict_get(dict, "a"), *b = yk_state_dict_get(dict, "b");
    assert_int_equal(yk_tensor_dtype(a), YK_I32);
    assert_true(yk_get(a, (int64_t[]){0}) == -1);
    assert_int_equal(yk_tensor_dtype(b), YK_F64);
    assert_int_equal(yk_size(b, 1), 4);

    yk_state_dict *mine = yk_state_dict_create();
    expect_ok(yk_state_dict_add(mine, "net.weight", yk_full(YK_SHAPE(2, 2), 3, NULL)));
    expect_ok(yk_state_dict_add(mine, "step", yk_scalar(7, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64))));
    expect_ok(yk_npz_save("y.npz", mine));
    dict = yk_npz_load("y.npz");
    assert_non_null(dict);
    assert_true(yk_item(yk_state_dict_get(dict, "step")) == 7);
    assert_true(yk_get(yk_state_dict_get(dict, "net.weight"), (int64_t[]){1, 1}) == 3);

    expect_ok(yk_state_dict_add(mine, "half", yk_zeros(YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .dtype = YK_BF16))));
    assert_int_equal(yk_npz_save("y.npz", mine), YK_ERR_DTYPE);
    expect_error(YK_ERR_DTYPE, "npz_save: NumPy has no bfloat16");
    assert_non_null(yk_npz_load("y.npz")); /* the one before */
    assert_int_equal(yk_npz_save("y.npz", NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "npz_save: the dict is NULL");
    write_file("cut.npz", compressed, sizeof(compressed) - 30);
    assert_null(yk_npz_load("cut.npz"));
    expect_error(YK_ERR_FORMAT, "cut.npz");
    unsigned char changed[sizeof(compressed)];
    memcpy(changed, compressed, sizeof(changed));
    changed[100] ^= 1;
    write_file("changed.npz", changed, sizeof(changed));
    assert_null(yk_npz_load("changed.npz"));
    expect_error(YK_ERR_FORMAT, "changed.npz");
}

int main(void)
{
    const struct CMUnitTest tests[] = {data_test(test_types), data_test(test_refused), data_test(test_cut),
                                       data_test(test_save), data_test(test_archives)};
    return cmocka_run_group_tests_name("npy", tests, NULL, NULL);
}
