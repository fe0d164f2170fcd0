/* Image folders: order, decoding, and damaged pictures. */
#include "tests/data/files.h"

#include <png.h>

#include "data/dataset.h"
#include "tests/data/jpeg.h"

/* ---- writing pictures ------------------------------------------------------------------------------------ */
static void write_png(const char *path, const unsigned char *pixels, unsigned width, unsigned height, int color,
                      int depth, int interlace, size_t row_bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    png_init_io(png, file);
    png_set_IHDR(png, info, width, height, depth, color, interlace, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    if (color == PNG_COLOR_TYPE_PALETTE) {
        png_color palette[16];
        for (int i = 0; i < 16; i++)
            palette[i] = (png_color){(unsigned char)(3 * i), (unsigned char)(5 * i + 1), (unsigned char)(7 * i + 2)};
        png_set_PLTE(png, info, palette, 16);
        png_set_tRNS(png, info, (png_byte[]){0, 128}, 2, NULL);
    }
    png_write_info(png, info);
    png_bytep rows[64];
    for (unsigned y = 0; y < height; y++)
        rows[y] = (png_bytep)pixels + y * row_bytes;
    png_write_image(png, rows);
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
    fclose(file);
}

/* A smooth picture, which JPEG keeps nearly as it is. */
static void smooth(unsigned char *to, int width, int height, int components)
{
    for (int i = 0; i < width * height; i++)
        for (int c = 0; c < components; c++)
            to[i * components + c] = (unsigned char)(40 + 2 * (i % width) + i / width + 30 * c);
}

static void write_jpeg(const char *path, int width, int height)
{
    unsigned char pixels[64 * 64 * 3], *bytes;
    smooth(pixels, width, height, 3);
    size_t size = make_jpeg(&bytes, pixels, (unsigned)width, (unsigned)height, 3, JCS_RGB, 95, 0, 1, 1);
    write_file(path, bytes, size);
    free(bytes);
}

/* Decodes bytes to (3, height, width) and checks the size. */
static const unsigned char *decode(yk__data_worker *worker, const unsigned char *bytes, size_t size, int64_t height,
                                   int64_t width)
{
    yk_sample sample = {.worker = worker};
    expect_ok(yk__image_decode(bytes, size, &sample));
    assert_int_equal(sample.dtype, YK_U8);
    assert_int_equal(sample.shape[0], 3);
    assert_int_equal(sample.shape[1], height);
    assert_int_equal(sample.shape[2], width);
    return sample.data;
}

static void expect_bad(const unsigned char *bytes, size_t size, const char *text)
{
    yk__data_worker worker = {0};
    yk_sample sample = {.worker = &worker};
    assert_int_equal(yk__image_decode(bytes, size, &sample), YK_ERR_FORMAT);
    expect_error(YK_ERR_FORMAT, text);
    yk__data_worker_clear(&worker);
}

/* ---- decoding -------------------------------------------------------------------------------------------- */
static void test_png_kinds(void **state)
{
    (void)state;
    enum { WIDTH = 13, HEIGHT = 9 };
    static const struct {
        int color, depth, channels;
    } kinds[] = {{PNG_COLOR_TYPE_RGB, 8, 3},        {PNG_COLOR_TYPE_RGB_ALPHA, 8, 4}, {PNG_COLOR_TYPE_GRAY, 8, 1},
                 {PNG_COLOR_TYPE_GRAY_ALPHA, 8, 2}, {PNG_COLOR_TYPE_RGB, 16, 3},      {PNG_COLOR_TYPE_GRAY, 1, 1},
                 {PNG_COLOR_TYPE_GRAY, 4, 1},       {PNG_COLOR_TYPE_PALETTE, 4, 1},   {PNG_COLOR_TYPE_GRAY, 16, 1}};
    yk__data_worker worker = {0};
    for (size_t k = 0; k < 2 * sizeof(kinds) / sizeof(*kinds); k++) {
        int color = kinds[k / 2].color, depth = kinds[k / 2].depth, channels = kinds[k / 2].channels;
        size_t row = (size_t)(WIDTH * channels * depth + 7) / 8, size;
        unsigned char pixels[HEIGHT * WIDTH * 8];
        golden_pixels(pixels, sizeof(pixels));
        write_png("a.png", pixels, WIDTH, HEIGHT, color, depth, k % 2 ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, row);
        unsigned char *bytes = read_whole("a.png", &size);
        const unsigned char *out = decode(&worker, bytes, size, HEIGHT, WIDTH);
        for (int at = 0; at < 3 * HEIGHT * WIDTH; at++) {
            int c = at / (HEIGHT * WIDTH), y = at / WIDTH % HEIGHT, x = at % WIDTH;
            int from = channels >= 3 ? c : 0, expected;
            const unsigned char *line = pixels + (size_t)y * row;
            if (depth == 16) /* the high byte */
                expected = line[2 * (x * channels + from)];
            else if (depth == 8)
                expected = line[x * channels + from];
            else
                expected = line[x * depth / 8] >> (8 - depth - x * depth % 8) & ((1 << depth) - 1);
            if (color == PNG_COLOR_TYPE_PALETTE)
                expected = (3 + 2 * c) * expected + c;
            else if (depth < 8)
                expected = expected * 255 / ((1 << depth) - 1);
            assert_int_equal(out[at], expected);
        }
        free(bytes);
    }
    yk__data_worker_clear(&worker);
}

static void test_jpeg_kinds(void **state)
{
    (void)state;
    enum { WIDTH = 37, HEIGHT = 21 };
    yk__data_worker worker = {0};
    static const struct {
        int components;
        J_COLOR_SPACE space;
    } kinds[] = {{3, JCS_RGB}, {1, JCS_GRAYSCALE}, {4, JCS_CMYK}};
    for (int k = 0; k < 6; k++) {
        int n = kinds[k / 2].components;
        unsigned char pixels[WIDTH * HEIGHT * 4], *bytes;
        smooth(pixels, WIDTH, HEIGHT, n);
        size_t size = make_jpeg(&bytes, pixels, WIDTH, HEIGHT, n, kinds[k / 2].space, 100, k % 2, 1, 1);
        const unsigned char *out = decode(&worker, bytes, size, HEIGHT, WIDTH);
        for (int i = 0; i < WIDTH * HEIGHT; i++) {
            for (int c = 0; c < 3; c++) {
                /* Inverted inks: light times light. */
                const unsigned char *p = pixels + i * n;
                double expected = n == 4 ? p[3] - (255 - p[c]) * p[3] / 255.0 : p[n == 3 ? c : 0];
                expect_near(out[c * WIDTH * HEIGHT + i], expected, 0, 2.5);
            }
        }
        free(bytes);
    }
    yk__data_worker_clear(&worker);
}

static void test_bad_pictures(void **state)
{
    (void)state;
    enum { WIDTH = 40, HEIGHT = 40 };
    unsigned char pixels[WIDTH * HEIGHT * 3], *jpeg;
    golden_pixels(pixels, sizeof(pixels));
    size_t size = make_jpeg(&jpeg, pixels, WIDTH, HEIGHT, 3, JCS_RGB, 90, 0, 1, 1), png_size;
    expect_bad(jpeg, size / 2, "bad JPEG: Premature end of JPEG file");
    expect_bad(jpeg, 4, "bad JPEG: ");
    expect_bad(jpeg, 2, "none of JPEG, PNG, BMP, TIFF, WebP, PGM and PPM: wrong magic number, short file");
    expect_bad((const unsigned char *)"GIF89a..........", 16,
               "none of JPEG, PNG, BMP, TIFF, WebP, PGM and PPM: wrong magic number");
    unsigned char *damaged = malloc(size);
    memcpy(damaged, jpeg, size);
    memset(damaged + size / 2, 0, 20);
    damaged[size / 2 + 20] = 0xff; /* a marker where there should be none */
    damaged[size / 2 + 21] = 0xd9;
    expect_bad(damaged, size, "bad JPEG: Corrupt JPEG data");
    /* The size follows the SOF0 marker. */
    memcpy(damaged, jpeg, size);
    size_t frame = 0;
    while (damaged[frame] != 0xff || damaged[frame + 1] != 0xc0)
        frame++;
    memcpy(damaged + frame + 5, "\xfe\xfe\xfe\xfe", 4);
    expect_bad(damaged, size, "bad JPEG: the header claims 65278x65278 pixels, which");
    memcpy(damaged + frame + 5, "\x27\x10\x27\x10", 4); /* less than 2^27, but too much for this file */
    expect_bad(damaged, size, "bad JPEG: the header claims 10000x10000 pixels, which");
    free(damaged);
    free(jpeg);

    write_png("a.png", pixels, WIDTH, HEIGHT, PNG_COLOR_TYPE_RGB, 8, PNG_INTERLACE_NONE, WIDTH * 3);
    unsigned char *png = read_whole("a.png", &png_size);
    expect_bad(png, png_size / 2, "bad PNG: the file ends before the picture does");
    expect_bad(png, 8, "bad PNG: the file ends before the picture does");
    png[png_size / 2] ^= 0x55;
    expect_bad(png, png_size, "bad PNG: ");
    png[png_size / 2] ^= 0x55;
    png[19] ^= 1; /* the width, without its checksum */
    expect_bad(png, png_size, "bad PNG: IHDR: CRC error");
    static const char *const sizes[] = {"\0\0\xff\xff\0\0\xff\xff", "\0\0\x27\x10\0\0\x27\x10"};
    for (int k = 0; k < 2; k++) {
        memcpy(png + 16, sizes[k], 8);
        uint32_t sum = (uint32_t)crc32(0, png + 12, 17);
        for (int i = 0; i < 4; i++)
            png[29 + i] = (unsigned char)(sum >> (24 - 8 * i));
        expect_bad(png, png_size,
                   k ? "bad PNG: the header claims 10000x10000 pixels"
                     : "bad PNG: the header claims 65535x65535 pixels");
    }
    free(png);
}

/* ---- damage that is read --------------------------------------------------------------------------------- */
/* `size` bytes with `count` of `with` put in at `at`, which the caller frees. */
static unsigned char *with_stray(const unsigned char *bytes, size_t size, size_t at, int with, size_t count)
{
    unsigned char *out = malloc(size + count);
    memcpy(out, bytes, at);
    memset(out + at, with, count);
    memcpy(out + at + count, bytes + at, size - at);
    return out;
}

static size_t find_marker(const unsigned char *bytes, size_t size, int marker)
{
    for (size_t at = size - 1; at-- > 0;) {
        if (bytes[at] == 0xff && bytes[at + 1] == marker)
            return at;
    }
    fail_msg("no marker %02x", marker);
    return 0;
}

static void expect_same(const unsigned char *bytes, size_t size, const unsigned char *clean, int height, int width)
{
    yk__data_worker worker = {0};
    assert_memory_equal(decode(&worker, bytes, size, height, width), clean, 3 * (size_t)(height * width));
    yk__data_worker_clear(&worker);
}

/* Stray bytes before a marker, and bytes or nothing where the end marker should be: the picture is that of the clean
 * file, as PIL gives it. A picture of which a part is missing stays an error. */
static void test_jpeg_stray_bytes(void **state)
{
    (void)state;
    enum { WIDTH = 40, HEIGHT = 32 };
    for (int progressive = 0; progressive < 2; progressive++) {
        unsigned char pixels[WIDTH * HEIGHT * 3], *jpeg;
        golden_pixels(pixels, sizeof(pixels));
        size_t size = make_jpeg(&jpeg, pixels, WIDTH, HEIGHT, 3, JCS_RGB, 90, progressive, 1, 1);
        yk__data_worker worker = {0};
        const unsigned char *clean = decode(&worker, jpeg, size, HEIGHT, WIDTH);
        static const struct {
            int marker, with;
            size_t count;
        } cases[] = {{0xd9, 0, 99}, {0xd9, 0x11, 1}, {0xda, 0x11, 2}, {0xdb, 0x22, 2}, {0xc4, 0, 500}};
        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
            size_t at = find_marker(jpeg, size, cases[i].marker);
            unsigned char *stray = with_stray(jpeg, size, at, cases[i].with, cases[i].count);
            expect_same(stray, size + cases[i].count, clean, HEIGHT, WIDTH);
            free(stray);
        }
        unsigned char *tail = with_stray(jpeg, size, size, 0x11, 99); /* beyond the end */
        expect_same(tail, size + 99, clean, HEIGHT, WIDTH);
        free(tail);
        unsigned char *endless = with_stray(jpeg, size, size - 2, 0, 99); /* in place of the end */
        if (progressive)
            expect_bad(endless, size - 2 + 99, "bad JPEG: Premature end of JPEG file");
        else
            expect_same(endless, size - 2 + 99, clean, HEIGHT, WIDTH);
        free(endless);
        expect_bad(jpeg, size - 2, "bad JPEG: Premature end of JPEG file");
        expect_bad(jpeg, size - 40, "bad JPEG: Premature end of JPEG file");
        yk__data_worker_clear(&worker);
        free(jpeg);
    }
}

/* A PNG that ends after its last row, in whatever follows it, or whose chunks' checksums are wrong where zlib's is
 * right. */
static void test_png_without_end(void **state)
{
    (void)state;
    enum { WIDTH = 21, HEIGHT = 18 };
    for (int interlaced = 0; interlaced < 2; interlaced++) {
        unsigned char pixels[WIDTH * HEIGHT * 3];
        golden_pixels(pixels, sizeof(pixels));
        write_png("a.png", pixels, WIDTH, HEIGHT, PNG_COLOR_TYPE_RGB, 8,
                  interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, WIDTH * 3);
        size_t size;
        unsigned char *png = read_whole("a.png", &size);
        yk__data_worker worker = {0};
        const unsigned char *clean = decode(&worker, png, size, HEIGHT, WIDTH);
        /* The end: data, zlib's checksum (4 bytes), the chunk's (4), the chunk IEND (12). */
        for (size_t cut = 1; cut <= 20; cut++)
            expect_same(png, size - cut, clean, HEIGHT, WIDTH);
        /* The byte before them ends the data, and may hold no more of a pixel. */
        for (size_t cut = 22; cut < size; cut++)
            expect_bad(png, size - cut,
                       size - cut < 8 ? "none of JPEG, PNG, BMP, TIFF, WebP, PGM and PPM" : "bad PNG: ");
        unsigned char *other = malloc(size);
        memcpy(other, png, size);
        memset(other + size - 12, 0, 12);
        expect_same(other, size, clean, HEIGHT, WIDTH);
        memset(other + size - 12, 0x11, 12);
        expect_same(other, size, clean, HEIGHT, WIDTH);
        memcpy(other, png, size);
        other[size - 13] ^= 0x55; /* the chunk's checksum */
        expect_same(other, size, clean, HEIGHT, WIDTH);
        memcpy(other, png, size);
        other[size - 17] ^= 0x55; /* zlib's */
        expect_bad(other, size, "bad PNG: IDAT: incorrect data check");
        /* A changed byte of the rows is found, wherever it is. */
        size_t found = 0, begin = 8 + 25 + 8;
        for (size_t at = begin; at < size - 20; at++) {
            memcpy(other, png, size);
            other[at] ^= 0x55;
            yk__data_worker again = {0};
            yk_sample sample = {.worker = &again};
            found += yk__image_decode(other, size, &sample) == YK_ERR_FORMAT;
            yk_clear_error();
            yk__data_worker_clear(&again);
        }
        assert_true(found >= size - 20 - begin - 2); /* zlib's header has bits that mean nothing */
        free(other);
        free(png);
        yk__data_worker_clear(&worker);
    }
}

/* ---- the folder ------------------------------------------------------------------------------------------ */
static void test_order(void **state)
{
    (void)state;
    /* Bytes decide: capitals before small letters, "a" before "a-b" before "a/c". */
    static const char *const folders[] = {"r", "r/zebra", "r/Cat", "r/cat", "r/cat/sub", "r/cat/b", "r/cat/b/deep"};
    for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++)
        assert_int_equal(mkdir(folders[i], 0755), 0);
    static const char *const paths[] = {"r/Cat/1.jpg",   "r/cat/10.JPG",       "r/cat/2.jpeg",    "r/cat/c.png",
                                        "r/cat/b/9.jpg", "r/cat/b/deep/0.jpg", "r/cat/sub/1.jpg", "r/zebra/x.jpg"};
    enum { COUNT = sizeof(paths) / sizeof(*paths) };
    for (int i = COUNT - 1; i >= 0; i--)
        write_jpeg(paths[i], 8 + i, 8);
    write_file("r/cat/notes.txt", "x", 1);
    write_file("r/README", "x", 1);
    assert_int_equal(symlink("../Cat/1.jpg", "r/zebra/y.jpg"), 0);
    yk_dataset *set = yk_image_folder("r", NULL);
    expect_ok(0);
    assert_int_equal(yk_dataset_length(set), COUNT + 1);
    assert_int_equal(yk_dataset_classes(set), 3);
    assert_string_equal(yk_dataset_class_name(set, 0), "Cat");
    assert_string_equal(yk_dataset_class_name(set, 1), "cat");
    assert_string_equal(yk_dataset_class_name(set, 2), "zebra");
    static const int64_t labels[] = {0, 1, 1, 1, 1, 1, 1, 2, 2};
    for (int i = 0; i <= COUNT; i++) {
        char text[100];
        int64_t label = -1;
        assert_string_equal(yk_dataset_describe(set, i, text, sizeof(text)), i < COUNT ? paths[i] : "r/zebra/y.jpg");
        yk_tensor *sample = yk_dataset_get(set, i, YK_F32, &label);
        expect_ok(0);
        assert_int_equal(label, labels[i]);
        assert_int_equal(yk_size(sample, 2), i < COUNT ? 8 + i : 8);
    }
}

static void test_bad_folders(void **state)
{
    (void)state;
    assert_null(yk_image_folder("nowhere", NULL));
    expect_error(YK_ERR_IO, "image-folder: nowhere: No such file or directory");
    assert_int_equal(mkdir("r", 0755), 0);
    assert_null(yk_image_folder("r", NULL));
    expect_error(YK_ERR_FORMAT, "image-folder: r: no class folders in it; expected r/CLASS/*.jpg");
    assert_int_equal(mkdir("r/full", 0755), 0);
    assert_int_equal(mkdir("r/hollow", 0755), 0);
    write_jpeg("r/full/a.jpg", 8, 8);
    write_file("r/hollow/a.gif", "GIF", 3);
    assert_null(yk_image_folder("r", NULL));
    expect_error(YK_ERR_FORMAT, "image-folder: r/hollow: no .jpg, .jpeg, .png, .bmp, .tif, .tiff, .webp, .pgm or .ppm "
                                "file in this class's folder");
    write_file("r/hollow/a.jpg", "GIF", 3);
    yk_dataset *set = yk_image_folder("r", NULL);
    assert_null(yk_dataset_get(set, 1, YK_F32, NULL));
    expect_error(YK_ERR_FORMAT,
                 "image-folder: sample 1 (r/hollow/a.jpg): none of JPEG, PNG, BMP, TIFF, WebP, PGM and PPM");
    write_file("r/hollow/a.jpg", "", 0);
    assert_null(yk_dataset_get(set, 1, YK_F32, NULL));
    expect_error(
        YK_ERR_FORMAT,
        "sample 1 (r/hollow/a.jpg): none of JPEG, PNG, BMP, TIFF, WebP, PGM and PPM: wrong magic number, short file");
    assert_int_equal(remove("r/hollow/a.jpg"), 0);
    assert_null(yk_dataset_get(set, 1, YK_F32, NULL));
    expect_error(YK_ERR_IO, "sample 1 (r/hollow/a.jpg): cannot be opened: No such file or directory");
    assert_int_equal(symlink("..", "r/full/loop"), 0);
    assert_null(yk_image_folder("r", NULL));
    expect_error(YK_ERR_FORMAT, "folders more than 16 deep; is there a link to a folder above?");
}

/* The JPEG copies and the binary files of CIFAR-10 hold the same pixels. */
static void test_real_files(void **state)
{
    (void)state;
    if (no_real_data("the real CIFAR-10 pictures"))
        return;
    yk_dataset *pictures = yk_dataset_open("image-folder", YK_TEST, NULL);
    yk_dataset *records = yk_dataset_open("cifar10", YK_TEST, NULL);
    expect_ok(0);
    assert_int_equal(yk_dataset_length(pictures), 10000);
    for (int c = 0; c < 10; c++)
        assert_string_equal(yk_dataset_class_name(pictures, c), yk_dataset_class_name(records, c));
    /* The records were shuffled: the sums of both sets must agree, class by class, exactly. */
    double sums[2][10] = {{0}};
    for (int k = 0; k < 2; k++) {
        yk_loader *loader = yk_loader_create(
            k ? records : pictures, YK_OPTIONS(yk_loader_options, .batch_size = 100, .workers = 2, .dtype = YK_F64));
        yk_batch batch;
        for (yk_loader_start(loader, 0); yk_loader_next(loader, &batch);) {
            const double *values = yk_tensor_data(batch.input);
            const int64_t *labels = yk_tensor_data(batch.target);
            for (int64_t i = 0; i < batch.count * 3072; i++)
                sums[k][labels[i / 3072]] += rint(values[i] * 255);
        }
        expect_ok(0);
    }
    for (int c = 0; c < 10; c++)
        assert_true(sums[0][c] == sums[1][c] && sums[0][c] > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {data_test(test_png_kinds),       data_test(test_jpeg_kinds),
                                       data_test(test_bad_pictures),    data_test(test_jpeg_stray_bytes),
                                       data_test(test_png_without_end), data_test(test_order),
                                       data_test(test_bad_folders),     data_test(test_real_files)};
    return cmocka_run_group_tests_name("image folder", tests, NULL, NULL);
}
