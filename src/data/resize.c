/*
 * resize.c - bilinear resizing with antialiasing, the same bytes as PIL's (what torchvision uses). Layer: data.
 *
 * Shrinking by a factor s widens the triangle filter to s source pixels on either side, so every source pixel counts.
 * Rows are done first, then columns; each pass rounds its weights to 22 fractional bits, sums in integers and rounds
 * to a byte. Doing it in this order and precision is what makes the bytes equal.
 */
#include <math.h>
#include <string.h>

#include "data/dataset.h"

enum { FRACTION = 22 };

/* For each of `out` positions: the first source position, how many, and their weights (`most` apart). */
typedef struct filter {
    int64_t out, most;
    int *first, *count, *weights;
} filter;

static int64_t filter_most(int64_t in, int64_t out)
{
    double scale = (double)in / (double)out;
    return 2 * (int64_t)ceil(scale < 1 ? 1 : scale) + 1;
}

/* The filter's height at source position i, for a target centred there. */
static double triangle(int64_t i, double center, double widened)
{
    double distance = fabs(((double)i - center + 0.5) * (1.0 / widened));
    return distance < 1 ? 1 - distance : 0;
}

static void filter_fill(filter *f, int64_t in)
{
    double scale = (double)in / (double)f->out, widened = scale < 1 ? 1 : scale;
    for (int64_t o = 0; o < f->out; o++) {
        double center = ((double)o + 0.5) * scale;
        int64_t first = (int64_t)(center - widened + 0.5), end = (int64_t)(center + widened + 0.5);
        first = first < 0 ? 0 : first;
        end = end > in ? in : end;
        double total = 0;
        for (int64_t i = first; i < end; i++)
            total += triangle(i, center, widened);
        for (int64_t i = first; i < end; i++)
            f->weights[o * f->most + i - first] = (int)(triangle(i, center, widened) / total * (1 << FRACTION) + 0.5);
        f->first[o] = (int)first;
        f->count[o] = (int)(end - first);
    }
}

static unsigned char to_byte(int sum)
{
    int value = sum >> FRACTION;
    return (unsigned char)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* (rows, in) to (rows, out). */
static void shrink_rows(const filter *f, const unsigned char *from, int64_t rows, int64_t in, unsigned char *to)
{
    for (int64_t row = 0; row < rows; row++, from += in) {
        for (int64_t o = 0; o < f->out; o++) {
            const int *weight = f->weights + o * f->most;
            const unsigned char *x = from + f->first[o];
            int sum = 1 << (FRACTION - 1);
            for (int k = 0; k < f->count[o]; k++)
                sum += x[k] * weight[k];
            *to++ = to_byte(sum);
        }
    }
}

/* (planes, in, width) to (planes, out, width). */
static void shrink_columns(const filter *f, const unsigned char *from, int64_t planes, int64_t in, int64_t width,
                           unsigned char *to)
{
    enum { BLOCK = 256 };
    int sums[BLOCK];
    for (int64_t plane = 0; plane < planes; plane++, from += in * width) {
        for (int64_t o = 0; o < f->out; o++, to += width) {
            for (int64_t left = 0; left < width; left += BLOCK) {
                int64_t n = width - left < BLOCK ? width - left : BLOCK;
                for (int64_t x = 0; x < n; x++)
                    sums[x] = 1 << (FRACTION - 1);
                for (int k = 0; k < f->count[o]; k++) {
                    const unsigned char *row = from + (f->first[o] + k) * width + left;
                    int weight = f->weights[o * f->most + k];
                    for (int64_t x = 0; x < n; x++)
                        sums[x] += row[x] * weight;
                }
                for (int64_t x = 0; x < n; x++)
                    to[left + x] = to_byte(sums[x]);
            }
        }
    }
}

static yk_status resize(yk_sample *sample, int64_t height, int64_t width)
{
    yk__data_worker *worker = sample->worker;
    int64_t planes = sample->shape[0], in_height = sample->shape[1], in_width = sample->shape[2];
    const unsigned char *from = sample->data;
    filter horizontal = {.out = width, .most = filter_most(in_width, width)};
    filter vertical = {.out = height, .most = filter_most(in_height, height)};
    size_t ints = (size_t)(width * (horizontal.most + 2) + height * (vertical.most + 2));
    int *memory = yk__buffer_get(&worker->weights, ints * sizeof(int));
    unsigned char *between = memory ? yk__buffer_get(&worker->rows, (size_t)(planes * in_height * width)) : NULL;
    unsigned char *to = between ? yk_sample_allocate(sample, YK_U8, 3, (int64_t[]){planes, height, width}) : NULL;
    if (!to)
        return YK_ERR_MEMORY;
    horizontal.first = memory;
    horizontal.count = horizontal.first + width;
    horizontal.weights = horizontal.count + width;
    vertical.first = horizontal.weights + width * horizontal.most;
    vertical.count = vertical.first + height;
    vertical.weights = vertical.count + height;
    filter_fill(&horizontal, in_width);
    filter_fill(&vertical, in_height);
    shrink_rows(&horizontal, from, planes * in_height, in_width, between);
    shrink_columns(&vertical, between, planes, in_height, width, to);
    return YK_OK;
}

yk_status yk__apply_resize(const yk_transform *t, yk_sample *sample)
{
    yk_status status = yk__sample_is_image(t, sample);
    if (status)
        return status;
    if (sample->dtype != YK_U8)
        return yk__fail(YK_ERR_DTYPE, "%s: takes uint8 images, got %s; put it before to_tensor", t->name,
                        yk_dtype_name(sample->dtype));
    int64_t in_height = sample->shape[1], in_width = sample->shape[2], height = t->height, width = t->width;
    if (t->size) {
        int64_t *shorter = in_height <= in_width ? &height : &width;
        int64_t *longer = in_height <= in_width ? &width : &height;
        int64_t least = in_height <= in_width ? in_height : in_width, most = in_height + in_width - least;
        *shorter = t->size;
        *longer = (int64_t)((double)(t->size * most) / (double)least);
    }
    if (height == in_height && width == in_width)
        return YK_OK;
    size_t numel;
    if (__builtin_mul_overflow((size_t)height, (size_t)width * (size_t)sample->shape[0], &numel) || numel > (size_t)1
                                                                                                                << 31)
        return yk__fail(YK_ERR_SHAPE, "%s: an image of %lldx%lld would become %lldx%lld, more than 2 GiB", t->name,
                        (long long)in_height, (long long)in_width, (long long)height, (long long)width);
    return resize(sample, height, width);
}
