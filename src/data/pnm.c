/*
 * pnm.c - PGM and PPM files (P5, P6) to (3, H, W) bytes. Layer: data.
 *
 * A header in text, a white space, and rows of samples of one byte, or of two with the upper one first. Values are
 * scaled from the header's largest one to 255 and rounded, halves to even, as PIL does.
 */
#include <math.h>
#include <string.h>

#include "data/dataset.h"
#include "data/pictures.h"

typedef struct pnm {
    const unsigned char *bytes;
    size_t size, at;
    uint64_t width, height, most; /* most: the value of white */
    size_t channels;
} pnm;

static bool is_space(unsigned char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Reads a number of the header, over white space and comments before it, up to the one byte of white space behind. */
static yk_status read_number(pnm *p, const char *name, uint64_t *value)
{
    bool comment = false;
    while (p->at < p->size && (comment || is_space(p->bytes[p->at]) || p->bytes[p->at] == '#')) {
        comment = comment ? p->bytes[p->at] != '\n' && p->bytes[p->at] != '\r' : p->bytes[p->at] == '#';
        p->at++;
    }
    size_t digits = 0;
    for (*value = 0; p->at < p->size && p->bytes[p->at] >= '0' && p->bytes[p->at] <= '9'; digits++)
        *value = 10 * *value + (uint64_t)(p->bytes[p->at++] - '0');
    if (p->at == p->size)
        return yk__fail(YK_ERR_FORMAT, "bad PGM or PPM: the file ends in its header");
    if (!digits || digits > 9 || !is_space(p->bytes[p->at]))
        return yk__fail(YK_ERR_FORMAT, "bad PGM or PPM: the %s is no number of up to nine digits", name);
    return YK_OK;
}

static yk_status read_header(pnm *p)
{
    p->channels = p->bytes[1] == '6' ? 3 : 1;
    p->at = 2;
    yk_status status = read_number(p, "width", &p->width);
    if (!status)
        status = read_number(p, "height", &p->height);
    if (!status)
        status = read_number(p, "largest value", &p->most);
    if (status)
        return status;
    p->at++;
    if (p->most < 1 || p->most > 65535)
        return yk__fail(YK_ERR_FORMAT, "bad PGM or PPM: a largest value of %llu, not 1 to 65535",
                        (unsigned long long)p->most);
    return yk__picture_check_size("bad PGM or PPM", p->width, p->height, p->size, 1);
}

static unsigned char scale(uint64_t value, uint64_t most)
{
    if (most == 255)
        return (unsigned char)value;
    double scaled = nearbyint((double)value / (double)most * 255);
    return (unsigned char)(scaled > 255 ? 255 : scaled);
}

yk_status yk__pnm_decode(const unsigned char *bytes, size_t size, yk_sample *sample)
{
    pnm p = {.bytes = bytes, .size = size};
    yk_status status = read_header(&p);
    if (status)
        return status;
    size_t plane = (size_t)(p.width * p.height), wide = p.most > 255 ? 2 : 1;
    if (p.size - p.at < plane * p.channels * wide)
        return yk__fail(YK_ERR_FORMAT, "bad PGM or PPM: the file ends before the picture does");
    unsigned char *to = yk_sample_allocate(sample, YK_U8, 3, (int64_t[]){3, (int64_t)p.height, (int64_t)p.width});
    if (!to)
        return YK_ERR_MEMORY;
    for (size_t i = 0; i < plane; i++) {
        for (size_t c = 0; c < 3; c++) {
            const unsigned char *at = bytes + p.at + (i * p.channels + (p.channels == 3 ? c : 0)) * wide;
            to[c * plane + i] = scale(wide == 2 ? (uint64_t)at[0] << 8 | at[1] : at[0], p.most);
        }
    }
    return YK_OK;
}
