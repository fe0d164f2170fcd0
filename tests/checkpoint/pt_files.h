/*
 * pt_files.h - shared by the tests of .pt files: a folder of their own, files from bytes, files that PyTorch wrote
 * (tests/checkpoint/golden), comparing values.
 */
#ifndef YOKE_TESTS_PT_FILES_H
#define YOKE_TESTS_PT_FILES_H

#include <stdio.h>
#include <unistd.h>

#include "tensor/tensor.h"
#include "tests/support/expect.h"
#include "tests/support/golden.h"
#include "value/value.h"

static char directory[64], path[96];

static inline int make_directory(void **state)
{
    (void)state;
    snprintf(directory, sizeof(directory), "/tmp/yoke-pt-XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    snprintf(path, sizeof(path), "%s/x.pt", directory);
    return 0;
}

static inline int remove_directory(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(directory); /* fails where something was left */
}

/* A file that PyTorch wrote, whole: tests/checkpoint/golden/NAME.pt. */
typedef struct golden_pt {
    unsigned char bytes[8192];
    size_t size;
} golden_pt;

static inline golden_pt read_golden_pt(const char *name)
{
    char file[100];
    golden_pt g;
    snprintf(file, sizeof(file), "tests/checkpoint/golden/%s.pt", name);
    FILE *f = fopen(source_path(file), "rb");
    if (!f)
        fail_msg("%s cannot be read; run the test by scripts/run-test, or set YOKE_TEST_SOURCES", source_path(file));
    g.size = fread(g.bytes, 1, sizeof(g.bytes), f);
    assert_in_range(g.size, 1, sizeof(g.bytes) - 1);
    assert_int_equal(fclose(f), 0);
    return g;
}

static inline void put_file(const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

static inline size_t get_file(unsigned char *data, size_t size)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t have = fread(data, 1, size, f);
    fclose(f);
    return have;
}

static inline bool same_value(const yk_value *a, const yk_value *b)
{
    if (a->kind != b->kind || a->python_type != b->python_type || yk_value_count(a) != yk_value_count(b) ||
        !a->attributes != !b->attributes)
        return false;
    if (a->attributes && !same_value(a->attributes, b->attributes))
        return false;
    switch (a->kind) {
    case YK_VALUE_BOOL: return a->as.boolean == b->as.boolean;
    case YK_VALUE_INT: return a->as.integer == b->as.integer;
    case YK_VALUE_REAL: return memcmp(&a->as.real, &b->as.real, sizeof(double)) == 0;
    case YK_VALUE_STRING:
    case YK_VALUE_BYTES:
        return a->as.bytes.size == b->as.bytes.size &&
               memcmp(a->as.bytes.data, b->as.bytes.data, a->as.bytes.size) == 0;
    case YK_VALUE_TENSOR: {
        const yk_tensor *x = a->as.tensor, *y = b->as.tensor;
        unsigned char one[256], two[256];
        size_t bytes = (size_t)x->numel * yk_dtype_size((yk_dtype)x->dtype);
        assert_true(bytes <= sizeof(one));
        if (x->dtype != y->dtype || !yk__same_strides(x, y))
            return false;
        expect_ok(yk_tensor_read(x, one, bytes));
        expect_ok(yk_tensor_read(y, two, bytes));
        return memcmp(one, two, bytes) == 0;
    }
    default: break;
    }
    for (int64_t i = 0; i < yk_value_count(a); i++) {
        int64_t m, n;
        const char *k = yk_value_key(a, i, &m), *l = yk_value_key(b, i, &n);
        if (!k != !l || (k && strcmp(k, l) != 0) || m != n || !same_value(yk_value_at(a, i), yk_value_at(b, i)))
            return false;
    }
    return true;
}

#endif
