/*
 * levels.c - changes of a u8 image's levels: auto-contrast, equalize, posterize, solarize; and its sharpness.
 * Layer: data.
 *
 * The results are torchvision's on tensors, whose arithmetic is repeated step by step in float, each step rounded.
 * All but the sharpness are a table of 256 bytes for each channel.
 */
#include <math.h>
#include <string.h>

#include "data/dataset.h"

enum { LEVELS = 256 };

static void contrast_table(const unsigned char *x, size_t n, unsigned char table[LEVELS])
{
    unsigned char least = 255, most = 0;
    for (size_t i = 0; i < n; i++) {
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
    }
    bool flat = least == most;
    float scale = flat ? 1 : 255.0f / (float)(most - least), bottom = flat ? 0 : least;
    for (int i = 0; i < LEVELS; i++) {
        float value = ((float)i - bottom) * scale;
        table[i] = (unsigned char)(value < 0 ? 0 : value > 255 ? 255 : value);
    }
}

static void equalize_table(const unsigned char *x, size_t n, unsigned char table[LEVELS])
{
    int64_t count[LEVELS] = {0}, below = 0;
    int last = 0;
    for (size_t i = 0; i < n; i++)
        count[x[i]]++;
    for (int i = 0; i < LEVELS; i++) {
        table[i] = (unsigned char)i;
        last = count[i] ? i : last;
    }
    int64_t step = ((int64_t)n - count[last]) / 255;
    for (int i = 0; i < LEVELS && step; i++) {
        int64_t level = (below + step / 2) / step;
        table[i] = (unsigned char)(i == 0 ? 0 : level < 255 ? level : 255);
        below += count[i];
    }
}

static void fill_table(yk__level_change change, double number, const unsigned char *x, size_t n,
                       unsigned char table[LEVELS])
{
    if (change == YK__AUTOCONTRAST)
        contrast_table(x, n, table);
    else if (change == YK__EQUALIZE)
        equalize_table(x, n, table);
    for (int i = 0; i < LEVELS; i++) {
        if (change == YK__POSTERIZE)
            table[i] = (unsigned char)(i & -(1 << (8 - (int)number)));
        else if (change == YK__SOLARIZE)
            table[i] = (unsigned char)((float)i >= (float)number ? 255 - i : i);
    }
}

/* factor * x + (1 - factor) * blurred, but at the edges, which stay. Source: torchvision's adjust_sharpness. */
static void sharpen(const unsigned char *x, int64_t height, int64_t width, double factor, unsigned char *to)
{
    const float edge = 1.0f / 13, middle = 5.0f / 13, own = (float)factor, other = (float)(1 - factor);
    for (int64_t y = 0; y < height; y++) {
        for (int64_t i = 0; i < width; i++) {
            const unsigned char *at = x + y * width + i;
            float blurred = *at;
            if (y > 0 && y < height - 1 && i > 0 && i < width - 1) {
                float sum = 0;
                for (int64_t dy = -1; dy <= 1; dy++) {
                    for (int64_t dx = -1; dx <= 1; dx++)
                        sum += (dy || dx ? edge : middle) * (float)at[dy * width + dx];
                }
                blurred = nearbyintf(sum);
            }
            float first = own * (float)*at, second = other * blurred, value = first + second;
            to[y * width + i] = (unsigned char)(value < 0 ? 0 : value > 255 ? 255 : value);
        }
    }
}

yk_status yk__change_levels(yk__level_change change, double number, yk_sample *sample)
{
    size_t n = (size_t)(sample->shape[1] * sample->shape[2]);
    const unsigned char *x = sample->data;
    if (change == YK__SHARPNESS && (sample->shape[1] <= 2 || sample->shape[2] <= 2))
        return YK_OK;
    unsigned char *to = yk_sample_allocate(sample, YK_U8, 3, sample->shape), table[LEVELS];
    if (!to)
        return YK_ERR_MEMORY;
    for (int64_t c = 0; c < sample->shape[0]; c++, x += n, to += n) {
        if (change == YK__SHARPNESS) {
            sharpen(x, sample->shape[1], sample->shape[2], number, to);
            continue;
        }
        fill_table(change, number, x, n, table);
        for (size_t i = 0; i < n; i++)
            to[i] = table[x[i]];
    }
    return YK_OK;
}
