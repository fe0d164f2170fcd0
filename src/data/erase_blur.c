/*
 * erase_blur.c - transforms that take detail away: random_erasing, gaussian_blur. Layer: data.
 *
 * The results are torchvision's on tensors. A blur sums rows, then columns, in float for bytes and f32, in double for
 * f64; torchvision sums the square at once, so floats differ by rounding.
 */
#include <math.h>
#include <string.h>

#include "data/dataset.h"

enum { MOST_KERNEL = 255, TRIES = 10 };

static yk_status check_numbers(const yk_transform *t, const yk_sample *sample)
{
    yk_status status = yk__sample_is_image(t, sample);
    if (!status && sample->dtype != YK_U8 && sample->dtype != YK_F32 && sample->dtype != YK_F64)
        status = yk__fail(YK_ERR_DTYPE, "%s: takes images of uint8, float32 or float64, got %s", t->name,
                          yk_dtype_name(sample->dtype));
    return status;
}

/* ---- random_erasing -------------------------------------------------------------------------------------- */
/* Draws the first rectangle of ten tries that is smaller than the image on both sides; false: none was. */
static bool draw_rectangle(const yk_transform *t, yk_sample *sample, yk__rectangle *part)
{
    int64_t height = sample->shape[1], width = sample->shape[2];
    double area = (double)(height * width), low = log(t->ratio[0]), high = log(t->ratio[1]);
    for (int i = 0; i < TRIES; i++) {
        double erased = area * (t->scale[0] + (t->scale[1] - t->scale[0]) * yk_sample_uniform(sample));
        double ratio = exp(low + (high - low) * yk_sample_uniform(sample));
        part->height = llrint(sqrt(erased * ratio));
        part->width = llrint(sqrt(erased / ratio));
        if (part->height < height && part->width < width) {
            part->top = yk_sample_below(sample, height - part->height + 1);
            part->left = yk_sample_below(sample, width - part->width + 1);
            return true;
        }
    }
    return false;
}

static yk_status apply_erasing(const yk_transform *t, yk_sample *sample)
{
    yk_status status = check_numbers(t, sample);
    if (status)
        return status;
    if (sample->dtype == YK_U8 && !(t->fill >= 0 && t->fill <= 255))
        return yk__fail(YK_ERR_ARGUMENT, "random_erasing: value %g is none of a uint8 image, which are 0 to 255",
                        t->fill);
    yk__rectangle part;
    if (!yk__chance_draw(t, sample) || !draw_rectangle(t, sample, &part))
        return YK_OK;
    int64_t height = sample->shape[1], width = sample->shape[2];
    size_t element = yk_dtype_size(sample->dtype);
    const void *from = sample->data;
    char *to = yk_sample_allocate(sample, sample->dtype, 3, sample->shape);
    if (!to)
        return YK_ERR_MEMORY;
    memcpy(to, from, yk__sample_numel(sample) * element);
    for (int64_t c = 0; c < sample->shape[0]; c++) {
        for (int64_t y = part.top; y < part.top + part.height; y++) {
            int64_t first = (c * height + y) * width + part.left;
            for (int64_t i = first; i < first + part.width; i++) {
                if (sample->dtype == YK_U8)
                    ((unsigned char *)to)[i] = (unsigned char)t->fill;
                else if (sample->dtype == YK_F32)
                    ((float *)to)[i] = (float)t->fill;
                else
                    ((double *)to)[i] = t->fill;
            }
        }
    }
    return YK_OK;
}

/* A range of positive numbers, of `most` at most. */
static yk_status check_range(const char *what, const char *name, const double range[2], double most)
{
    for (int end = 0; end < 2; end++) {
        if (yk__check_positive(what, name, range[end]) || yk__check_number(what, name, range[end], 0, most))
            return yk__error_code();
    }
    if (range[0] > range[1])
        return yk__fail(YK_ERR_ARGUMENT, "%s: %s is %g to %g, expected a range that rises", what, name, range[0],
                        range[1]);
    return YK_OK;
}

yk_transform *yk_random_erasing(const yk_random_erasing_options *options)
{
    yk__transform_asked();
    yk_random_erasing_options o;
    if (YK__OPTIONS_TAKE("random_erasing", yk_random_erasing_options, options, &o) ||
        yk__check_number("random_erasing", "p", o.p, 0, 1) || check_range("random_erasing", "scale", o.scale, 1) ||
        check_range("random_erasing", "ratio", o.ratio, 1e6) ||
        yk__check_number("random_erasing", "value", o.value, -1e6, 1e6))
        return NULL;
    yk_transform *t = yk__transform_new(YK__TRANSFORM_COLOR, "random_erasing", apply_erasing);
    if (t) {
        t->p = o.p;
        memcpy(t->scale, o.scale, sizeof(o.scale));
        memcpy(t->ratio, o.ratio, sizeof(o.ratio));
        t->fill = o.value;
    }
    return yk__transform_own(t);
}

/* ---- gaussian_blur --------------------------------------------------------------------------------------- */
/* Position i of a line of n, mirrored at its ends, which are not repeated. */
static int64_t mirrored(int64_t i, int64_t n)
{
    return i < 0 ? -i : i < n ? i : 2 * (n - 1) - i;
}

#define BLUR_FUNCTION(dtype, T, R, rounded)                                                                            \
    static void blur_##dtype(const void *data, int64_t height, int64_t width, const double *kernel, int64_t size,      \
                             void *memory, void *data_to)                                                              \
    {                                                                                                                  \
        const T *from = data;                                                                                          \
        R *between = memory, weights[MOST_KERNEL];                                                                     \
        T *to = data_to;                                                                                               \
        for (int64_t k = 0; k < size; k++)                                                                             \
            weights[k] = (R)kernel[k];                                                                                 \
        for (int64_t y = 0; y < height; y++) {                                                                         \
            for (int64_t x = 0; x < width; x++) {                                                                      \
                R sum = 0;                                                                                             \
                for (int64_t k = 0; k < size; k++)                                                                     \
                    sum += weights[k] * (R)from[y * width + mirrored(x + k - size / 2, width)];                        \
                between[y * width + x] = sum;                                                                          \
            }                                                                                                          \
        }                                                                                                              \
        for (int64_t y = 0; y < height; y++) {                                                                         \
            for (int64_t x = 0; x < width; x++) {                                                                      \
                R sum = 0;                                                                                             \
                for (int64_t k = 0; k < size; k++)                                                                     \
                    sum += weights[k] * between[mirrored(y + k - size / 2, height) * width + x];                       \
                to[y * width + x] = (T)rounded(sum);                                                                   \
            }                                                                                                          \
        }                                                                                                              \
    }

BLUR_FUNCTION(u8, unsigned char, float, nearbyintf)
BLUR_FUNCTION(f32, float, float, )
BLUR_FUNCTION(f64, double, double, )

static yk_status apply_blur(const yk_transform *t, yk_sample *sample)
{
    yk_status status = check_numbers(t, sample);
    if (status)
        return status;
    int64_t height = sample->shape[1], width = sample->shape[2];
    if (t->size / 2 >= height || t->size / 2 >= width)
        return yk__fail(YK_ERR_SHAPE, "gaussian_blur: a kernel of %lld reaches beyond the image of %lldx%lld mirrored",
                        (long long)t->size, (long long)height, (long long)width);
    double sigma = t->scale[0] + (t->scale[1] - t->scale[0]) * yk_sample_uniform(sample);
    double kernel[MOST_KERNEL], sum = 0;
    for (int64_t k = 0; k < t->size; k++) {
        double at = ((double)k - (double)(t->size / 2)) / sigma;
        kernel[k] = exp(-0.5 * at * at);
        sum += kernel[k];
    }
    for (int64_t k = 0; k < t->size; k++)
        kernel[k] /= sum;
    size_t plane = (size_t)(height * width);
    void *memory = yk__buffer_get(&sample->worker->rows, plane * sizeof(double));
    const char *from = sample->data;
    char *to = memory ? yk_sample_allocate(sample, sample->dtype, 3, sample->shape) : NULL;
    if (!to)
        return YK_ERR_MEMORY;
    plane *= yk_dtype_size(sample->dtype);
    for (int64_t c = 0; c < sample->shape[0]; c++, from += plane, to += plane) {
        if (sample->dtype == YK_U8)
            blur_u8(from, height, width, kernel, t->size, memory, to);
        else if (sample->dtype == YK_F32)
            blur_f32(from, height, width, kernel, t->size, memory, to);
        else
            blur_f64(from, height, width, kernel, t->size, memory, to);
    }
    return YK_OK;
}

yk_transform *yk_gaussian_blur(int64_t kernel_size, const yk_gaussian_blur_options *options)
{
    yk__transform_asked();
    yk_gaussian_blur_options o;
    if (YK__OPTIONS_TAKE("gaussian_blur", yk_gaussian_blur_options, options, &o) ||
        yk__check_integer("gaussian_blur", "kernel_size", kernel_size, 1, MOST_KERNEL) ||
        check_range("gaussian_blur", "sigma", o.sigma, 1e6))
        return NULL;
    if (kernel_size % 2 == 0) {
        yk__fail(YK_ERR_ARGUMENT, "gaussian_blur: kernel_size is %lld, expected an odd number", (long long)kernel_size);
        return NULL;
    }
    yk_transform *t = yk__transform_new(YK__TRANSFORM_COLOR, "gaussian_blur", apply_blur);
    if (t) {
        t->size = kernel_size;
        memcpy(t->scale, o.sigma, sizeof(o.sigma));
    }
    return yk__transform_own(t);
}
