/*
 * bmp.c - BMP files to (3, H, W) bytes: palettes of 1, 4 and 8 bits, pixels of 16, 24 and 32. Layer: data.
 *
 * All headers from OS/2's of 12 bytes to version 5. Colours come out as PIL's convert("RGB") gives them, alpha is
 * dropped; a pixel beyond the palette is black. Invariant: nothing is read before the rows are known to lie in the
 * file.
 *
 *   14 bytes: "BM", ..., where the rows begin | header | masks of 16 or 32 bits | palette | rows, the last one first
 */
#include <string.h>

#include "data/dataset.h"
#include "data/pictures.h"

enum { FILE_HEADER = 14, CORE_HEADER = 12, LEAST_HEADER = 40, MASKS_HEADER = 52, MOST_COLORS = 256 };
enum { UNCOMPRESSED = 0, RLE8 = 1, RLE4 = 2, BITFIELDS = 3 };

typedef struct bmp {
    const unsigned char *bytes;
    size_t size, rows; /* rows: where they begin */
    size_t palette;    /* where it begins */
    uint32_t header, compression, colors;
    int64_t width, height;
    bool top_down;
    unsigned bits;
    uint32_t masks[3]; /* of red, green and blue, of 16 and 32 bits */
} bmp;

static uint32_t word_at(const bmp *b, size_t at)
{
    const unsigned char *p = b->bytes + at;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static unsigned half_at(const bmp *b, size_t at)
{
    return (unsigned)b->bytes[at] | (unsigned)b->bytes[at + 1] << 8;
}

static yk_status read_sizes(bmp *b)
{
    const size_t at = FILE_HEADER;
    if (b->header == CORE_HEADER) {
        b->width = half_at(b, at + 4);
        b->height = half_at(b, at + 6);
        b->bits = half_at(b, at + 10);
        return YK_OK;
    }
    b->width = (int32_t)word_at(b, at + 4);
    b->height = (int32_t)word_at(b, at + 8);
    b->top_down = b->height < 0;
    b->height = b->top_down ? -b->height : b->height;
    b->bits = half_at(b, at + 14);
    b->compression = word_at(b, at + 16);
    b->colors = word_at(b, at + 32);
    if (b->compression == RLE8 || b->compression == RLE4)
        return yk__fail(YK_ERR_UNSUPPORTED, "bad BMP: run-length compression is not read; save it without");
    if (b->compression != UNCOMPRESSED && b->compression != BITFIELDS)
        return yk__fail(YK_ERR_UNSUPPORTED, "bad BMP: compression %u is not read", (unsigned)b->compression);
    return YK_OK;
}

/* Masks behind a header of 40 bytes, or in a larger one; the usual ones where the file has none. */
static yk_status read_masks(bmp *b)
{
    const uint32_t usual[2][3] = {{0x7c00, 0x3e0, 0x1f}, {0xff0000, 0xff00, 0xff}};
    memcpy(b->masks, usual[b->bits == 32], sizeof(b->masks));
    if (b->compression != BITFIELDS)
        return YK_OK;
    if (b->bits != 16 && b->bits != 32)
        return yk__fail(YK_ERR_FORMAT, "bad BMP: masks for pixels of %u bits", b->bits);
    const size_t at = FILE_HEADER + LEAST_HEADER;
    if (b->size < at + 12)
        return yk__fail(YK_ERR_FORMAT, "bad BMP: the file ends in its header");
    if (b->header < MASKS_HEADER)
        b->palette += 12;
    for (int c = 0; c < 3; c++)
        b->masks[c] = word_at(b, at + 4 * (size_t)c);
    return YK_OK;
}

static yk_status read_header(bmp *b)
{
    if (b->size < FILE_HEADER + CORE_HEADER)
        return yk__fail(YK_ERR_FORMAT, "bad BMP: the file ends in its header");
    b->rows = word_at(b, 10);
    b->header = word_at(b, FILE_HEADER);
    if (b->header != CORE_HEADER && (b->header < LEAST_HEADER || b->header > 1024))
        return yk__fail(YK_ERR_FORMAT, "bad BMP: a header of %u bytes", (unsigned)b->header);
    b->palette = FILE_HEADER + b->header;
    if (b->size < b->palette)
        return yk__fail(YK_ERR_FORMAT, "bad BMP: the file ends in its header");
    yk_status status = read_sizes(b);
    if (!status)
        status = read_masks(b);
    if (status)
        return status;
    bool known = b->bits == 1 || b->bits == 4 || b->bits == 8 || b->bits == 16 || b->bits == 24 || b->bits == 32;
    if (!known)
        return yk__fail(YK_ERR_FORMAT, "bad BMP: pixels of %u bits", b->bits);
    if (b->width < 1)
        return yk__fail(YK_ERR_FORMAT, "bad BMP: a width of %lld", (long long)b->width);
    return yk__picture_check_size("bad BMP", (uint64_t)b->width, (uint64_t)b->height, b->size, 8);
}

/* The colours of a palette, (MOST_COLORS, 3). */
static yk_status read_palette(const bmp *b, unsigned char colors[MOST_COLORS][3])
{
    const size_t entry = b->header == CORE_HEADER ? 3 : 4;
    size_t count = b->colors && b->colors < 1u << b->bits ? b->colors : (size_t)1 << b->bits;
    size_t there = b->rows > b->palette ? (b->rows - b->palette) / entry : 0; /* it ends where the rows begin */
    count = count < there ? count : there;
    if (b->palette + count * entry > b->size)
        return yk__fail(YK_ERR_FORMAT, "bad BMP: the file ends in its palette");
    memset(colors, 0, MOST_COLORS * 3);
    for (size_t i = 0; i < count; i++) {
        for (size_t c = 0; c < 3; c++)
            colors[i][c] = b->bytes[b->palette + i * entry + 2 - c];
    }
    return YK_OK;
}

/* The part of a pixel under a mask, from 0 to 255. */
static unsigned char masked(uint32_t pixel, uint32_t mask)
{
    if (!mask)
        return 0;
    int shift = __builtin_ctz(mask);
    return (unsigned char)((uint64_t)((pixel & mask) >> shift) * 255 / (mask >> shift));
}

static void read_row(const bmp *b, const unsigned char *row, unsigned char colors[MOST_COLORS][3], size_t plane,
                     unsigned char *to)
{
    for (size_t x = 0; x < (size_t)b->width; x++) {
        for (size_t c = 0; c < 3; c++) {
            if (b->bits <= 8) {
                unsigned shift = 8 - b->bits - (unsigned)(x * b->bits % 8);
                to[c * plane + x] = colors[row[x * b->bits / 8] >> shift & ((1u << b->bits) - 1)][c];
            } else if (b->bits == 24) {
                to[c * plane + x] = row[3 * x + 2 - c];
            } else {
                const unsigned char *p = row + x * b->bits / 8;
                uint32_t pixel = (uint32_t)p[0] | (uint32_t)p[1] << 8;
                if (b->bits == 32)
                    pixel |= (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
                to[c * plane + x] = masked(pixel, b->masks[c]);
            }
        }
    }
}

yk_status yk__bmp_decode(const unsigned char *bytes, size_t size, yk_sample *sample)
{
    bmp b = {.bytes = bytes, .size = size};
    unsigned char colors[MOST_COLORS][3];
    yk_status status = read_header(&b);
    if (!status && b.bits <= 8)
        status = read_palette(&b, colors);
    if (status)
        return status;
    size_t width = (size_t)b.width, height = (size_t)b.height, plane = width * height;
    size_t used = (width * b.bits + 7) / 8, stride = (width * b.bits + 31) / 32 * 4;
    if (b.rows < b.palette || b.rows > size || size - b.rows < (height - 1) * stride + used)
        return yk__fail(YK_ERR_FORMAT, "bad BMP: %zu bytes cannot hold %zux%zu pixels of %u bits from byte %zu on",
                        size, width, height, b.bits, b.rows);
    unsigned char *to = yk_sample_allocate(sample, YK_U8, 3, (int64_t[]){3, b.height, b.width});
    if (!to)
        return YK_ERR_MEMORY;
    for (size_t y = 0; y < height; y++) {
        size_t from = b.top_down ? y : height - 1 - y;
        read_row(&b, bytes + b.rows + from * stride, colors, plane, to + y * width);
    }
    return YK_OK;
}
