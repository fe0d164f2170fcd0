/* files.h - shared by the data tests: a folder that goes away with the test, and files in it. */
#ifndef YOKE_TESTS_DATA_FILES_H
#define YOKE_TESTS_DATA_FILES_H

#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <yoke/data.h>

#include "tests/support/expect.h"

typedef struct fixture {
    char folder[64];
    yk_scope scope;
} fixture;

static inline int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info, (void)kind, (void)where;
    return remove(path);
}

/* Each test runs in a scope and in an empty folder of its own, which is the current directory. */
static inline int test_begin(void **state)
{
    fixture *f = calloc(1, sizeof(*f));
    snprintf(f->folder, sizeof(f->folder), "/tmp/yoke-data-test-XXXXXX");
    if (!mkdtemp(f->folder) || chdir(f->folder))
        return -1;
    f->scope = yk_scope_begin();
    *state = f;
    return 0;
}

static inline int test_end(void **state)
{
    fixture *f = *state;
    yk_scope_end(f->scope);
    int status = chdir("/") || nftw(f->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(f);
    if (yk_last_error()) {
        print_message("an error was left: %s\n", yk_last_error()->message);
        yk_clear_error();
        return -1;
    }
    return status;
}

#define data_test(function) cmocka_unit_test_setup_teardown(function, test_begin, test_end)

static inline void write_file(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static inline void write_gzip(const char *path, const void *data, size_t size)
{
    gzFile file = gzopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, data, (unsigned)size), (int)size);
    assert_int_equal(gzclose(file), Z_OK);
}

static inline unsigned char *read_whole(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    unsigned char *data = malloc(*size);
    assert_int_equal(fread(data, 1, *size, file), *size);
    fclose(file);
    return data;
}

/* True if there is no real data to read here; then it says so on stderr, which prove shows. cmocka's skip() will not
 * do: its TAP line is "not ok # SKIP", which prove counts as a failure. */
static inline bool no_real_data(const char *what)
{
    if (getenv("YOKE_DATA"))
        return false;
    fprintf(stderr, "# SKIP %s: YOKE_DATA is not set\n", what);
    return true;
}

/* The bytes that tests/golden/make_images.py uses. */
static inline void golden_pixels(unsigned char *to, size_t count)
{
    uint32_t state = 1;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        to[i] = (unsigned char)(state >> 24);
    }
}

/* A data set over one u8 image in memory, all labels 0, `length` times the same. */
typedef struct picture {
    const unsigned char *pixels;
    int64_t shape[3];
} picture;
static inline yk_status picture_get(void *context, int64_t index, yk_sample *sample)
{
    const picture *p = context;
    (void)index;
    yk_sample_label(sample, 0);
    yk_sample_view(sample, p->pixels, YK_U8, 3, p->shape);
    return YK_OK;
}
static inline yk_dataset *picture_set(picture *p, int64_t length, yk_transform *transform)
{
    return yk_dataset_create(&(yk_dataset_table){.name = "picture", .length = length, .classes = 1, .get = picture_get},
                             p, transform);
}

#endif
