/*
 * tiff.c - TIFF files to (3, H, W) bytes, by libtiff, which is loaded at the first one. Layer: data.
 *
 * Nothing else needs the library, so it is none of the build's, and its few functions are declared here; their
 * interface has not changed since libtiff 4.5, the first whose errors need no handler of the whole process.
 *
 * Rows of grey or of red, green and blue, of 8 or 16 bits, are read as they are, all else (palettes, one bit, CMYK,
 * YCbCr, tiles, planes) as the pixels that libtiff makes of it. Colours come out as PIL's convert("RGB") gives them,
 * and turned as the file says, but for grey of 16 bits, which is the upper byte, as in a PNG, and CMYK, which is
 * libtiff's. The first picture of several is read.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#include "data/dataset.h"
#include "data/pictures.h"

/* Tags of the format, and values of theirs. */
enum {
    IMAGE_WIDTH = 256,
    IMAGE_LENGTH = 257,
    BITS_PER_SAMPLE = 258,
    PHOTOMETRIC = 262,
    ORIENTATION = 274,
    SAMPLES_PER_PIXEL = 277,
    PLANAR_CONFIG = 284,
    EXTRA_SAMPLES = 338,
    SAMPLE_FORMAT = 339,
};
enum { WHITE_IS_ZERO = 0, BLACK_IS_ZERO = 1, RGB = 2, CONTIGUOUS = 1, UNSIGNED = 1, PREMULTIPLIED = 1 };

typedef struct tiff TIFF;

static struct {
    void *(*options_new)(void);
    void (*options_free)(void *options);
    void (*options_memory)(void *options, ssize_t most);
    void (*options_error)(void *options, int (*handler)(TIFF *, void *, const char *, const char *, va_list),
                          void *user);
    void (*options_warning)(void *options, int (*handler)(TIFF *, void *, const char *, const char *, va_list),
                            void *user);
    TIFF *(*open)(const char *name, const char *mode, void *user, ssize_t (*read)(void *, void *, ssize_t),
                  ssize_t (*write)(void *, void *, ssize_t), uint64_t (*seek)(void *, uint64_t, int),
                  int (*close)(void *), uint64_t (*size)(void *), int (*map)(void *, void **, uint64_t *),
                  void (*unmap)(void *, void *, uint64_t), void *options);
    void (*close)(TIFF *file);
    int (*field)(TIFF *file, uint32_t tag, ...);
    int (*is_tiled)(TIFF *file);
    ssize_t (*row_size)(TIFF *file);
    int (*read_row)(TIFF *file, void *to, uint32_t row, uint16_t sample);
    int (*read_pixels)(TIFF *file, uint32_t width, uint32_t height, uint32_t *to, int orientation, int stop);
} lib;

static void load(void)
{
    static const char *const names[] = {"TIFFOpenOptionsAlloc",
                                        "TIFFOpenOptionsFree",
                                        "TIFFOpenOptionsSetMaxSingleMemAlloc",
                                        "TIFFOpenOptionsSetErrorHandlerExtR",
                                        "TIFFOpenOptionsSetWarningHandlerExtR",
                                        "TIFFClientOpenExt",
                                        "TIFFClose",
                                        "TIFFGetFieldDefaulted",
                                        "TIFFIsTiled",
                                        "TIFFScanlineSize",
                                        "TIFFReadScanline",
                                        "TIFFReadRGBAImageOriented"};
    enum { COUNT = sizeof(names) / sizeof(*names) };
    void *symbols[COUNT], *library = dlopen("libtiff.so.6", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    _Static_assert(sizeof(symbols) == sizeof(lib), "a symbol for each function");
    for (int i = 0; i < COUNT; i++) {
        symbols[i] = library ? dlsym(library, names[i]) : NULL;
        if (!symbols[i])
            return;
    }
    memcpy(&lib, symbols, sizeof(lib)); /* functions' addresses, which dlsym gives as objects' */
}

/* ---- a file in memory -------------------------------------------------------------------------------------------- */
typedef struct source {
    const unsigned char *bytes;
    size_t size, at;
    char error[160]; /* libtiff's first message */
} source;

static ssize_t source_read(void *user, void *to, ssize_t count)
{
    source *s = user;
    size_t left = s->at < s->size ? s->size - s->at : 0, n = (size_t)count < left ? (size_t)count : left;
    memcpy(to, s->bytes + (s->size - left), n);
    s->at += n;
    return (ssize_t)n;
}

static ssize_t source_write(void *user, void *from, ssize_t count)
{
    (void)user;
    (void)from;
    (void)count;
    return -1;
}

static uint64_t source_seek(void *user, uint64_t offset, int whence)
{
    source *s = user;
    s->at = (size_t)(whence == SEEK_SET ? offset : whence == SEEK_CUR ? s->at + offset : s->size + offset);
    return s->at;
}

static int source_close(void *user)
{
    (void)user;
    return 0;
}

static uint64_t source_size(void *user)
{
    return ((const source *)user)->size;
}

/* libtiff writes to none of it: what has to be swapped is copied before. */
static int source_map(void *user, void **base, uint64_t *size)
{
    const source *s = user;
    *base = (void *)(uintptr_t)s->bytes;
    *size = s->size;
    return 1;
}

static void source_unmap(void *user, void *base, uint64_t size)
{
    (void)user;
    (void)base;
    (void)size;
}

static int keep_error(TIFF *file, void *user, const char *module, const char *format, va_list arguments)
{
    (void)file;
    (void)module;
    source *s = user;
    if (!s->error[0])
        vsnprintf(s->error, sizeof(s->error), format, arguments);
    return 1;
}

static int ignore_warning(TIFF *file, void *user, const char *module, const char *format, va_list arguments)
{
    (void)file;
    (void)user;
    (void)module;
    (void)format;
    (void)arguments;
    return 1;
}

static TIFF *source_open(source *s)
{
    enum { MOST_MEMORY = 1 << 30 }; /* twice what the largest picture takes as pixels of four bytes */
    void *options = lib.options_new();
    if (!options)
        return NULL;
    lib.options_memory(options, MOST_MEMORY);
    lib.options_error(options, keep_error, s);
    lib.options_warning(options, ignore_warning, NULL);
    TIFF *file = lib.open("a TIFF file", "r", s, source_read, source_write, source_seek, source_close, source_size,
                          source_map, source_unmap, options);
    lib.options_free(options);
    return file;
}

static yk_status fail_damaged(const source *s)
{
    return yk__fail(YK_ERR_FORMAT, "bad TIFF: %s", s->error[0] ? s->error : "the data are damaged or not whole");
}

/* ---- pixels ------------------------------------------------------------------------------------------------------ */
typedef struct picture {
    TIFF *file;
    const source *source;
    uint32_t width, height; /* as rows lie in the file */
    uint16_t bits, samples, photometric, planar, orientation, format;
    bool premultiplied; /* colours, by the alpha behind them */
    unsigned char *to;  /* (3, H, W), turned */
} picture;

static void read_tags(picture *p)
{
    uint16_t extra = 0, *kinds = NULL;
    lib.field(p->file, IMAGE_WIDTH, &p->width);
    lib.field(p->file, IMAGE_LENGTH, &p->height);
    lib.field(p->file, BITS_PER_SAMPLE, &p->bits);
    lib.field(p->file, SAMPLES_PER_PIXEL, &p->samples);
    lib.field(p->file, PHOTOMETRIC, &p->photometric);
    lib.field(p->file, PLANAR_CONFIG, &p->planar);
    lib.field(p->file, ORIENTATION, &p->orientation);
    lib.field(p->file, SAMPLE_FORMAT, &p->format);
    if (lib.field(p->file, EXTRA_SAMPLES, &extra, &kinds) && extra && kinds)
        p->premultiplied = kinds[0] == PREMULTIPLIED;
    if (p->orientation < 1 || p->orientation > 8)
        p->orientation = 1;
}

/* True for orientations whose rows of the file are columns of the picture. */
static bool is_transposed(const picture *p)
{
    return p->orientation >= 5;
}

static bool is_plain(const picture *p)
{
    bool grey = p->photometric == WHITE_IS_ZERO || p->photometric == BLACK_IS_ZERO;
    return !lib.is_tiled(p->file) && p->planar == CONTIGUOUS && (p->bits == 8 || p->bits == 16) &&
           ((grey && p->samples >= 1) || (p->photometric == RGB && p->samples >= 3)) && p->format == UNSIGNED;
}

/* Puts row y of the file, (width, 3), to where it belongs in the planes of the picture. */
static void place_row(const picture *p, int64_t y, const unsigned char *row)
{
    int64_t width = p->width, height = p->height, plane = width * height;
    int64_t step_x = is_transposed(p) ? height : 1, step_y = is_transposed(p) ? 1 : width;
    bool mirrored = p->orientation == 2 || p->orientation == 3 || p->orientation == 7 || p->orientation == 8;
    bool upside_down = p->orientation == 3 || p->orientation == 4 || p->orientation == 6 || p->orientation == 7;
    unsigned char *to = p->to + (upside_down ? height - 1 - y : y) * step_y;
    for (int64_t x = 0; x < width; x++) {
        for (int64_t c = 0; c < 3; c++)
            to[c * plane + (mirrored ? width - 1 - x : x) * step_x] = row[3 * x + c];
    }
}

/* Colours that alpha has been multiplied into, without it. */
static unsigned char divide_alpha(unsigned color, unsigned alpha)
{
    unsigned value = alpha == 0 || alpha == 255 ? color : 255 * color / alpha;
    return (unsigned char)(value > 255 ? 255 : value);
}

/* One row of samples of 8 or 16 bits, in the machine's order, to (width, 3) bytes. */
static void narrow_row(const picture *p, const unsigned char *samples, unsigned char *row)
{
    const uint16_t *wide = (const void *)samples;
    size_t colors = p->photometric == RGB ? 3 : 1;
    for (size_t x = 0; x < p->width; x++) {
        const size_t at = x * p->samples;
        for (size_t c = 0; c < 3; c++) {
            size_t i = at + (colors == 3 ? c : 0);
            unsigned value = p->bits == 8 ? samples[i] : wide[i] >> 8;
            if (p->premultiplied && p->samples > colors)
                value = divide_alpha(value, p->bits == 8 ? samples[at + colors] : wide[at + colors] >> 8);
            row[3 * x + c] = (unsigned char)(p->photometric == WHITE_IS_ZERO ? 255 - value : value);
        }
    }
}

static yk_status read_plain(const picture *p, yk_sample *sample)
{
    size_t bytes = (size_t)p->width * p->samples * p->bits / 8;
    if (lib.row_size(p->file) != (ssize_t)bytes)
        return yk__fail(YK_ERR_FORMAT, "bad TIFF: a row of %u pixels has %zd bytes", p->width, lib.row_size(p->file));
    unsigned char *samples = yk__buffer_get(&sample->worker->rows, bytes + (size_t)p->width * 3);
    if (!samples)
        return YK_ERR_MEMORY;
    for (uint32_t y = 0; y < p->height; y++) {
        if (lib.read_row(p->file, samples, y, 0) != 1)
            return fail_damaged(p->source);
        narrow_row(p, samples, samples + bytes);
        place_row(p, y, samples + bytes);
    }
    return YK_OK;
}

static yk_status read_converted(const picture *p, yk_sample *sample)
{
    size_t plane = (size_t)p->width * p->height;
    unsigned char *memory = yk__buffer_get(&sample->worker->rows, plane * sizeof(uint32_t) + (size_t)p->width * 3);
    if (!memory)
        return YK_ERR_MEMORY;
    uint32_t *pixels = (void *)memory;
    unsigned char *row = memory + plane * sizeof(uint32_t);
    if (lib.read_pixels(p->file, p->width, p->height, pixels, p->orientation, 1) != 1)
        return fail_damaged(p->source);
    for (uint32_t y = 0; y < p->height; y++) {
        for (size_t x = 0; x < p->width; x++) {
            uint32_t pixel = pixels[(size_t)y * p->width + x];
            for (size_t c = 0; c < 3; c++)
                row[3 * x + c] = (unsigned char)(pixel >> 8 * c);
        }
        place_row(p, y, row);
    }
    return YK_OK;
}

static yk_status read_picture(picture *p, size_t size, yk_sample *sample)
{
    enum { MOST_EXPANSION = 1 << 27 }; /* a fax's row of one colour takes a bit, however long it is */
    read_tags(p);
    yk_status status = yk__picture_check_size("bad TIFF", p->width, p->height, size, MOST_EXPANSION);
    if (status)
        return status;
    int64_t height = is_transposed(p) ? p->width : p->height, width = is_transposed(p) ? p->height : p->width;
    p->to = yk_sample_allocate(sample, YK_U8, 3, (int64_t[]){3, height, width});
    if (!p->to)
        return YK_ERR_MEMORY;
    return is_plain(p) ? read_plain(p, sample) : read_converted(p, sample);
}

yk_status yk__tiff_decode(const unsigned char *bytes, size_t size, yk_sample *sample)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    if (!lib.open)
        return yk__fail(YK_ERR_UNSUPPORTED,
                        "a TIFF file: libtiff.so.6 of version 4.5 or newer reads those, and is not on "
                        "this machine (Debian: libtiff6)");
    source s = {.bytes = bytes, .size = size};
    picture p = {.file = source_open(&s), .source = &s};
    if (!p.file)
        return fail_damaged(&s);
    yk_status status = read_picture(&p, size, sample);
    lib.close(p.file);
    return status;
}
