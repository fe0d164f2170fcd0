/*
 * pictures_test.c - BMP, TIFF, WebP, PGM and PPM files: against PIL's pixels, cut off anywhere, and with headers that
 * lie. Where libwebp or libtiff is not installed, its files are an error that names it.
 */
#include <dlfcn.h>

#include "tests/data/files.h"
#include "tests/support/golden.h"

#include "data/dataset.h"

static unsigned char *read_seed(const char *name, size_t *size)
{
    char path[100];
    snprintf(path, sizeof(path), "tests/fuzz/corpus/fuzz_image/%s", name);
    return read_whole(source_path(path), size);
}

static void expect_pixels(const char *name)
{
    size_t size, count;
    unsigned char *bytes = read_seed(name, &size);
    const double *expected = golden_numbers("pictures", name, &count);
    yk__data_worker worker = {0};
    yk_sample sample = {.worker = &worker};
    expect_ok(yk__image_decode(bytes, size, &sample));
    int64_t height = (int64_t)expected[0], width = (int64_t)expected[1];
    assert_int_equal(sample.dtype, YK_U8);
    assert_int_equal(sample.shape[0], 3);
    assert_int_equal(sample.shape[1], height);
    assert_int_equal(sample.shape[2], width);
    const unsigned char *pixels = sample.data;
    for (int64_t i = 0; i < height * width; i++) {
        for (int64_t c = 0; c < 3; c++) {
            if (pixels[c * height * width + i] != (int)expected[2 + 3 * i + c])
                fail_msg("%s: channel %d of pixel %d is %d, PIL's %d", name, (int)c, (int)i,
                         pixels[c * height * width + i], (int)expected[2 + 3 * i + c]);
        }
    }
    free(bytes);
    yk__data_worker_clear(&worker);
}

static const char *const bmps[] = {"1.bmp",       "1-core.bmp",  "4.bmp",  "4-core.bmp",  "8.bmp",
                                   "8-core.bmp",  "8-few.bmp",   "16.bmp", "16-565.bmp",  "24.bmp",
                                   "24-core.bmp", "24-down.bmp", "32.bmp", "32-masks.bmp"};
enum { BMPS = sizeof(bmps) / sizeof(*bmps) };

static void test_equal_pil(void **state)
{
    (void)state;
    for (int i = 0; i < BMPS; i++)
        expect_pixels(bmps[i]);
}

/* Decodes a copy that ends where the memory does, and gives the status; the record is cleared after a look at it. */
static yk_status decode_copy(const unsigned char *bytes, size_t size, const char *text)
{
    unsigned char *copy = malloc(size ? size : 1);
    memcpy(copy, bytes, size);
    yk__data_worker worker = {0};
    yk_sample sample = {.worker = &worker};
    yk_status status = yk__image_decode(copy, size, &sample);
    if (status)
        expect_error(status, text);
    free(copy);
    yk__data_worker_clear(&worker);
    return status;
}

/* No beginning of a file is a picture, but for one that leaves out what fills up the last row. */
static void test_cut(void **state)
{
    (void)state;
    for (int i = 0; i < BMPS; i++) {
        size_t size;
        unsigned char *bytes = read_seed(bmps[i], &size);
        for (size_t n = 2; n + 4 <= size; n++)
            assert_true(decode_copy(bytes, n, "bad BMP") != YK_OK);
        assert_int_equal(decode_copy(bytes, size, ""), YK_OK);
        free(bytes);
    }
}

static void put_word(unsigned char *bytes, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        bytes[i] = (unsigned char)(value >> 8 * i);
}

static void expect_changed(const char *name, size_t at, uint32_t value, const char *text)
{
    size_t size;
    unsigned char *bytes = read_seed(name, &size);
    put_word(bytes + at, value);
    assert_true(decode_copy(bytes, size, text) != YK_OK);
    free(bytes);
}

static void test_false_headers(void **state)
{
    (void)state;
    expect_changed("24.bmp", 14, 20, "bad BMP: a header of 20 bytes");
    expect_changed("24.bmp", 14, 0xffffffff, "bad BMP: a header of 4294967295 bytes");
    expect_changed("24.bmp", 18, 0, "bad BMP: a width of 0");
    expect_changed("24.bmp", 18, 0x80000000, "bad BMP: a width of -2147483648");
    expect_changed("24.bmp", 18, 0x7fffffff, "bad BMP: the header claims 2147483647x5 pixels");
    expect_changed("24.bmp", 22, 0x80000000, "bad BMP: the header claims 7x2147483648 pixels");
    expect_changed("24.bmp", 22, 6, "cannot hold 7x6 pixels of 24 bits from byte 54 on");
    expect_changed("24.bmp", 26, 1 | 7 << 16, "bad BMP: pixels of 7 bits");
    expect_changed("8.bmp", 30, 1, "run-length compression is not read");
    expect_changed("8.bmp", 30, 3, "bad BMP: masks for pixels of 8 bits");
    expect_changed("24.bmp", 30, 5, "bad BMP: compression 5 is not read");
    expect_changed("24.bmp", 10, 10, "from byte 10 on");
    expect_changed("24.bmp", 10, 0xfffffff0, "from byte 4294967280 on");
    /* A mask of nothing is black, and one with holes is no worse. */
    size_t size;
    unsigned char *bytes = read_seed("32-masks.bmp", &size);
    put_word(bytes + 54, 0);
    put_word(bytes + 58, 0x80000001);
    assert_int_equal(decode_copy(bytes, size, ""), YK_OK);
    free(bytes);
}

static void test_webp(void **state)
{
    (void)state;
    size_t size;
    unsigned char *bytes = read_seed("lossless.webp", &size);
    bool there = dlopen("libwebp.so.7", RTLD_NOW) || dlopen("libwebp.so.6", RTLD_NOW) || dlopen("libwebp.so", RTLD_NOW);
    if (!there) {
        assert_int_equal(decode_copy(bytes, size, "libwebp.so.7 reads those, and is not on this machine"),
                         YK_ERR_UNSUPPORTED);
        free(bytes);
        return;
    }
    expect_pixels("lossless.webp");
    expect_pixels("lossy.webp");
    for (size_t n = 12; n + 2 <= size; n++)
        assert_true(decode_copy(bytes, n, "bad WebP") != YK_OK);
    free(bytes);
}

static const char *const tiffs[] = {
    "grey.tif",    "white.tif",   "bit.tif",      "palette.tif", "palette4.tif", "rgb.tif",     "rgb-be.tif",
    "deflate.tif", "rgb16.tif",   "rgb16-be.tif", "planes.tif",  "tiles.tif",    "alpha.tif",   "premultiplied.tif",
    "turned2.tif", "turned3.tif", "turned4.tif",  "turned5.tif", "turned6.tif",  "turned7.tif", "turned8.tif"};
enum { TIFFS = sizeof(tiffs) / sizeof(*tiffs) };

static void test_tiff(void **state)
{
    (void)state;
    size_t size;
    void *library = dlopen("libtiff.so.6", RTLD_NOW);
    if (!library || !dlsym(library, "TIFFOpenOptionsAlloc")) {
        unsigned char *bytes = read_seed("rgb.tif", &size);
        assert_int_equal(decode_copy(bytes, size, "libtiff.so.6 of version 4.5 or newer reads those"),
                         YK_ERR_UNSUPPORTED);
        free(bytes);
        return;
    }
    for (int i = 0; i < TIFFS; i++) {
        expect_pixels(tiffs[i]);
        unsigned char *bytes = read_seed(tiffs[i], &size);
        bool little = bytes[0] == 'I'; /* the directory of tags is behind the pixels */
        size_t directory = little ? (size_t)bytes[4] | (size_t)bytes[5] << 8 : (size_t)bytes[6] << 8 | bytes[7];
        for (size_t n = 4; n < size; n++) {
            yk_status status = decode_copy(bytes, n, "bad TIFF");
            assert_true(status || n > directory);
        }
        free(bytes);
    }
    expect_changed("rgb.tif", 4, 0xfffffff0, "bad TIFF");
    expect_changed("rgb.tif", 4, 0, "bad TIFF");
}

static const char *const pnms[] = {"grey.pgm", "few.pgm", "rgb.ppm", "wide.ppm"};

static void test_pnm(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        expect_pixels(pnms[i]);
        size_t size;
        unsigned char *bytes = read_seed(pnms[i], &size);
        for (size_t n = 3; n < size; n++)
            assert_true(decode_copy(bytes, n, "bad PGM or PPM: the ") != YK_OK);
        free(bytes);
    }
    static const struct {
        const char *text, *error;
    } bad[] = {{"P5 7 5 0 ...", "a largest value of 0, not 1 to 65535"},
               {"P5 7 5 65536 ...", "a largest value of 65536"},
               {"P5 x 5 255 ...", "the width is no number of up to nine digits"},
               {"P5 7 -5 255 ...", "the height is no number"},
               {"P5 7 5 2x5 ...", "the largest value is no number"},
               {"P6 99999999999 5 255 ...", "the width is no number"},
               {"P6 0 5 255 ...", "the header claims 0x5 pixels"},
               {"P6 999999999 999999999 255 ...", "the header claims 999999999x999999999 pixels"},
               {"P3 1 1 255 1 2 3", "wrong magic number"}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_true(decode_copy((const unsigned char *)bad[i].text, strlen(bad[i].text), bad[i].error) != YK_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        data_test(test_equal_pil), data_test(test_cut),  data_test(test_false_headers),
        data_test(test_webp),      data_test(test_tiff), data_test(test_pnm),
    };
    return cmocka_run_group_tests_name("pictures", tests, NULL, NULL);
}
