/*
 * image_decode.c - pictures to (3, H, W) bytes: JPEG and PNG files by libjpeg-turbo and libpng; bmp.c, pnm.c,
 * tiff.c and webp.c have the other forms. Layer: data.
 *
 * Both libraries report by calling back and expect not to be returned to; here that is a longjmp to the one setjmp of
 * each decoder. Nothing is printed. Invariant: the header's size is checked against the length of the file before
 * anything of that size is allocated. Colours come out as PIL's convert("RGB") gives them, but for grey of 16 bits, of
 * which PIL makes everything above 255 white: here it is the upper byte, as of colours of 16 bits.
 *
 * Note [Damage that is read]
 * A file is read where every pixel is in it, whatever else is wrong, as PIL does: stray bytes before a marker of a JPEG
 * (cameras and web sites write them), a PNG that ends after its last row. Where pixels are missing, or libjpeg made
 * some up for damaged data, that is an error. PIL is as strict about missing ones, and shows those made up.
 */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <png.h>

#include <jerror.h>

#include "data/dataset.h"
#include "data/pictures.h"
#include "device/table.h"

enum {
    MOST_PIXELS = 1 << 27,
    JPEG_PIXELS_A_BYTE = 1024, /* an 8 x 8 block costs a bit or more in the first scan: 512, and some slack */
    DEFLATE_EXPANSION = 1032,
    EDGE = 4,        /* columns beside a part: smoothing reaches one sample of colour, which is two columns */
    MOST_SCANS = 500 /* of a progressive file: no encoder makes more than a few dozen */
};

yk_status yk__picture_check_size(const char *format, uint64_t width, uint64_t height, size_t size,
                                 uint64_t pixels_a_byte)
{
    if (width && height && width * height <= MOST_PIXELS && width * height / pixels_a_byte <= size)
        return YK_OK;
    return yk__fail(YK_ERR_FORMAT,
                    "%s: the header claims %llux%llu pixels, which %zu bytes cannot hold or is beyond 2^27", format,
                    (unsigned long long)width, (unsigned long long)height, size);
}

/* ---- JPEG ------------------------------------------------------------------------------------------------ */
typedef struct jpeg_decoder {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    yk_sample *sample;
    bool lines_done; /* all were decoded */
} jpeg_decoder;

static void jpeg_fail(j_common_ptr info)
{
    jpeg_decoder *d = info->client_data;
    char text[JMSG_LENGTH_MAX];
    info->err->format_message(info, text);
    yk__fail(YK_ERR_FORMAT, "bad JPEG: %s", text);
    longjmp(d->back, 1);
}

/* Warnings (level < 0) that tell of missing or made up pixels are errors: Note [Damage that is read]. */
static void jpeg_message(j_common_ptr info, int level)
{
    const jpeg_decoder *d = info->client_data;
    if (level >= 0)
        return;
    switch (info->err->msg_code) {
    case JWRN_JFIF_MAJOR:
    case JWRN_ADOBE_XFORM:
    case JWRN_NOT_SEQUENTIAL:
    case JWRN_EXTRANEOUS_DATA: return;
    case JWRN_JPEG_EOF: /* the end marker alone is missing where all lines are there */
        if (d->lines_done)
            return;
        break;
    default: break;
    }
    jpeg_fail(info);
}

static void jpeg_silent(j_common_ptr info)
{
    (void)info;
}

static void jpeg_watch_scans(j_common_ptr info)
{
    jpeg_decoder *d = info->client_data;
    if (info->is_decompressor && d->info.input_scan_number > MOST_SCANS) {
        yk__fail(YK_ERR_FORMAT, "bad JPEG: more than %d scans", MOST_SCANS);
        longjmp(d->back, 1);
    }
}

/* Spreads one line of RGB, or of CMYK with the inverted inks that Adobe writes, over three planes. */
static void spread_line(const unsigned char *line, size_t width, bool cmyk, unsigned char *to, size_t plane)
{
    if (!cmyk) {
        yk__backend_of((yk_device){0})->split_pixels(line, (int64_t)width, to, (int64_t)plane);
        return;
    }
    for (size_t x = 0; x < width; x++) {
        for (int c = 0; c < 3; c++) {
            int black = line[4 * x + 3], ink = (255 - line[4 * x + (size_t)c]) * black + 128;
            int value = black - ((ink + (ink >> 8)) >> 8);
            to[(size_t)c * plane + x] = (unsigned char)(value < 0 ? 0 : value);
        }
    }
}

/*
 * Reads the lines and columns of `part` to where they belong in planes of the whole picture; the rest of the planes is
 * not written. What is left out is still parsed, so that damage is found, but not transformed to pixels. The decoder's
 * smoothing of colours takes the edge of what it decodes for the picture's, so a few columns more are decoded.
 */
static void jpeg_read_part(struct jpeg_decompress_struct *info, yk__rectangle part, unsigned char *line, bool cmyk,
                           unsigned char *to)
{
    size_t width = info->output_width, height = info->output_height, end = (size_t)(part.top + part.height);
    size_t left = (size_t)part.left, n = (size_t)part.width;
#ifdef LIBJPEG_TURBO_VERSION
    JDIMENSION first = left < EDGE ? 0 : (JDIMENSION)(left - EDGE);
    JDIMENSION columns = (JDIMENSION)(left + n + EDGE < width ? left + n + EDGE : width) - first;
    if (columns < width)
        jpeg_crop_scanline(info, &first, &columns);
    if (part.top > 0)
        jpeg_skip_scanlines(info, (JDIMENSION)part.top);
#else
    size_t first = 0;
#endif
    size_t bytes = cmyk ? 4 : 3;
    while (info->output_scanline < end) {
        size_t y = info->output_scanline;
        jpeg_read_scanlines(info, &line, 1);
        spread_line(line + (left - first) * bytes, n, cmyk, to + y * width + left, width * height);
    }
#ifdef LIBJPEG_TURBO_VERSION
    if (end + 1 < height)
        jpeg_skip_scanlines(info, (JDIMENSION)(height - 1 - end)); /* skipping the last line too would parse nothing */
#endif
    while (info->output_scanline < height)
        jpeg_read_scanlines(info, &line, 1);
}

static yk_status jpeg_read(jpeg_decoder *d, const unsigned char *bytes, size_t size)
{
    struct jpeg_decompress_struct *info = &d->info;
    jpeg_mem_src(info, bytes, size);
    jpeg_read_header(info, TRUE);
    yk_status status =
        yk__picture_check_size("bad JPEG", info->image_width, info->image_height, size, JPEG_PIXELS_A_BYTE);
    if (status)
        return status;
    bool cmyk = info->jpeg_color_space == JCS_CMYK || info->jpeg_color_space == JCS_YCCK;
    info->out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(info);
    size_t width = info->output_width, height = info->output_height;
    unsigned char *line = yk__buffer_get(&d->sample->worker->rows, width * 4);
    unsigned char *to =
        line ? yk_sample_allocate(d->sample, YK_U8, 3, (int64_t[]){3, (int64_t)height, (int64_t)width}) : NULL;
    if (!to)
        return YK_ERR_MEMORY;
    yk__rectangle part = {0, 0, (int64_t)height, (int64_t)width};
    if (d->sample->worker->resize) {
        status = yk__worker_plan(d->sample->worker, d->sample, 3, part.height, part.width);
        if (status)
            return status;
        part = yk__resize_wanted(&d->sample->worker->plan);
    }
    jpeg_read_part(info, part, line, cmyk, to);
    d->lines_done = true;
    jpeg_finish_decompress(info);
    return YK_OK;
}

/* The decoder is the caller's, so that what changes between setjmp and longjmp is none of this function's locals. */
static yk_status jpeg_run(jpeg_decoder *d, const unsigned char *bytes, size_t size)
{
    if (setjmp(d->back))
        return YK_ERR_FORMAT;
    jpeg_create_decompress(&d->info); /* clears the structure, but for err and client_data */
    d->progress.progress_monitor = jpeg_watch_scans;
    d->info.progress = &d->progress;
    return jpeg_read(d, bytes, size);
}

static yk_status decode_jpeg(const unsigned char *bytes, size_t size, yk_sample *sample)
{
    jpeg_decoder d = {.sample = sample};
    d.info.err = jpeg_std_error(&d.errors);
    d.errors.error_exit = jpeg_fail;
    d.errors.emit_message = jpeg_message;
    d.errors.output_message = jpeg_silent;
    d.info.client_data = &d;
    yk_status status = jpeg_run(&d, bytes, size);
    jpeg_destroy_decompress(&d.info);
    return status;
}

/* ---- PNG ------------------------------------------------------------------------------------------------- */
typedef struct png_decoder {
    png_structp png;
    png_infop info;
    jmp_buf back;
    yk_sample *sample;
    const unsigned char *bytes;
    size_t size, at;
    size_t width, height;
    bool interlaced, failed, ended; /* ended: libpng asked for more than the file has */
    unsigned char *rows;            /* (height, width, 3) of an interlaced picture, else one row */
    unsigned char *to;              /* (3, height, width) */
    size_t spread;                  /* rows that are in `to` */
} png_decoder;

/* True once libpng has finished the last row: what it reads after that is no pixel. */
static bool png_rows_done(const png_decoder *d)
{
    if (!d->to)
        return false;
    return d->interlaced ? png_get_current_pass_number(d->png) >= PNG_INTERLACE_ADAM7_PASSES
                         : png_get_current_row_number(d->png) >= d->height;
}

static void png_damaged(png_decoder *d, const char *message)
{
    d->failed = true;
    yk__fail(YK_ERR_FORMAT, "bad PNG: %s", message);
    longjmp(d->back, 1);
}

static void png_fail(png_structp png, png_const_charp message)
{
    png_decoder *d = png_get_error_ptr(png);
    if (png_rows_done(d))
        longjmp(d->back, 1);
    png_damaged(d, message);
}

/* zlib's checksum of the rows is compared after the last one, where libpng makes a warning of it. */
static void png_warn(png_structp png, png_const_charp message)
{
    png_decoder *d = png_get_error_ptr(png);
    if (png_rows_done(d) && strstr(message, "incorrect data check"))
        png_damaged(d, message);
}

static void png_give(png_structp png, png_bytep to, size_t size)
{
    png_decoder *d = png_get_io_ptr(png);
    if (size > d->size - d->at) {
        d->ended = true;
        png_error(png, "the file ends before the picture does");
    }
    memcpy(to, d->bytes + d->at, size);
    d->at += size;
}

/* Brings rows up to `end` from libpng's buffer to where they belong. */
static void png_spread(png_decoder *d, size_t end)
{
    for (; d->spread < end; d->spread++)
        spread_line(d->rows + (d->interlaced ? d->spread * 3 * d->width : 0), d->width, false,
                    d->to + d->spread * d->width, d->width * d->height);
}

static yk_status png_read(png_decoder *d)
{
    png_read_info(d->png, d->info);
    d->width = png_get_image_width(d->png, d->info);
    d->height = png_get_image_height(d->png, d->info);
    uint64_t bits = (uint64_t)png_get_bit_depth(d->png, d->info) * png_get_channels(d->png, d->info);
    yk_status status =
        yk__picture_check_size("bad PNG", d->width, d->height, d->size, (uint64_t)DEFLATE_EXPANSION * 8 / bits);
    if (status)
        return status;
    /* The rows have zlib's checksum; PIL does not look at that of the chunks they lie in either. */
    png_set_crc_action(d->png, PNG_CRC_QUIET_USE, PNG_CRC_DEFAULT);
    png_set_expand(d->png);
    png_set_strip_16(d->png);
    png_set_strip_alpha(d->png);
    png_set_gray_to_rgb(d->png);
    int passes = png_set_interlace_handling(d->png);
    png_read_update_info(d->png, d->info);
    if (png_get_rowbytes(d->png, d->info) != 3 * d->width)
        return yk__fail(YK_ERR_FORMAT, "bad PNG: a line of %zu pixels has %zu bytes", d->width,
                        (size_t)png_get_rowbytes(d->png, d->info));
    d->interlaced = passes > 1;
    d->rows = yk__buffer_get(&d->sample->worker->rows, (d->interlaced ? d->height : 1) * 3 * d->width);
    unsigned char *to =
        d->rows ? yk_sample_allocate(d->sample, YK_U8, 3, (int64_t[]){3, (int64_t)d->height, (int64_t)d->width}) : NULL;
    if (!to)
        return YK_ERR_MEMORY;
    d->to = to;
    for (int pass = 0; pass < passes; pass++) {
        for (size_t y = 0; y < d->height; y++) {
            png_read_row(d->png, d->rows + (d->interlaced ? y * 3 * d->width : 0), NULL);
            if (!d->interlaced)
                png_spread(d, y + 1);
        }
    }
    png_spread(d, d->height);
    return YK_OK;
}

/* The last row was finished where libpng fails without an error of ours: what follows the rows is damaged or missing,
 * as Note [Damage that is read] has it. */
static yk_status png_run(png_decoder *d, size_t piece)
{
    if (setjmp(d->back)) {
        if (d->failed)
            return YK_ERR_FORMAT;
        png_spread(d, d->height);
        return YK_OK;
    }
    d->info = png_create_info_struct(d->png);
    if (!d->info)
        png_error(d->png, "out of memory");
    png_set_read_fn(d->png, d, png_give);
    if (piece)
        png_set_compression_buffer_size(d->png, piece);
    return png_read(d);
}

/* `piece`: how many bytes of the rows libpng asks for at once; 0: thousands. */
static yk_status png_decode_by(png_decoder *d, size_t piece)
{
    d->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, d, png_fail, png_warn);
    if (!d->png)
        return yk__fail_memory(sizeof(*d));
    yk_status status = png_run(d, piece);
    png_destroy_read_struct(&d->png, &d->info, NULL);
    return status;
}

/* libpng gives no row before it has the thousands of bytes that it asked for: where the file ends among them, it asks
 * once more, for a byte at a time, and so all rows come that are whole. */
static yk_status decode_png(const unsigned char *bytes, size_t size, yk_sample *sample)
{
    png_decoder d = {.sample = sample, .bytes = bytes, .size = size};
    yk_status status = png_decode_by(&d, 0);
    if (!status || !d.ended)
        return status;
    yk_clear_error();
    d = (png_decoder){.sample = sample, .bytes = bytes, .size = size};
    return png_decode_by(&d, 1);
}

yk_status yk__image_decode(const unsigned char *bytes, size_t size, yk_sample *sample)
{
    if (size >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff)
        return decode_jpeg(bytes, size, sample);
    if (size >= 8 && memcmp(bytes, "\x89PNG\r\n\x1a\n", 8) == 0)
        return decode_png(bytes, size, sample);
    if (size >= 2 && bytes[0] == 'B' && bytes[1] == 'M')
        return yk__bmp_decode(bytes, size, sample);
    if (size >= 12 && memcmp(bytes, "RIFF", 4) == 0 && memcmp(bytes + 8, "WEBP", 4) == 0)
        return yk__webp_decode(bytes, size, sample);
    if (size >= 4 && (memcmp(bytes, "II*\0", 4) == 0 || memcmp(bytes, "MM\0*", 4) == 0))
        return yk__tiff_decode(bytes, size, sample);
    if (size >= 3 && bytes[0] == 'P' && (bytes[1] == '5' || bytes[1] == '6'))
        return yk__pnm_decode(bytes, size, sample);
    return yk__fail(YK_ERR_FORMAT, "none of JPEG, PNG, BMP, TIFF, WebP, PGM and PPM: wrong magic number%s",
                    size < 8 ? ", short file" : "");
}
