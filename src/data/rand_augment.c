/*
 * rand_augment.c - rand_augment: operations drawn from a table, all of one magnitude. Layer: data.
 *
 * The table, its ranges and the meaning of a magnitude are torchvision's, and so are the results, on tensors. A
 * magnitude is element `magnitude` of num_magnitude_bins steps from the first to the last number of a range, in float
 * as torch.linspace has it: a last bit decides which pixels are solarized.
 *
 * Source: "RandAugment: Practical automated data augmentation with a reduced search space" (2019), torchvision's
 * RandAugment.
 */
#include <math.h>
#include <string.h>

#include "data/dataset.h"

enum { MOST_OPS = 64, MOST_BINS = 1 << 16 };

float yk__rand_augment_magnitude(double begin, double end, int bins, int i)
{
    float first = (float)begin, last = (float)end, step = (last - first) / (float)(bins - 1);
    return i < bins / 2 ? fmaf(step, (float)i, first) : fmaf(-step, (float)(bins - 1 - i), last);
}

/* The magnitude of an operation for an image: its range is of numbers, of parts of a side, or of bits. */
static double magnitude_of(const yk_transform *t, yk__rand_op op, int64_t height, int64_t width)
{
    static const double ranges[YK__RAND_OPS][2] = {
        [YK__SHEAR_X] = {0, 0.3},
        [YK__SHEAR_Y] = {0, 0.3},
        [YK__TRANSLATE_X] = {0, 150.0 / 331.0},
        [YK__TRANSLATE_Y] = {0, 150.0 / 331.0},
        [YK__ROTATE] = {0, 30},
        [YK__BRIGHTNESS] = {0, 0.9},
        [YK__COLOR] = {0, 0.9},
        [YK__CONTRAST] = {0, 0.9},
        [YK__RAND_SHARPNESS] = {0, 0.9},
        [YK__RAND_SOLARIZE] = {1, 0},
    };
    if (op == YK__RAND_POSTERIZE)
        return (double)nearbyintf(8 - (float)t->magnitude / ((float)(t->bins - 1) / 4));
    double end = ranges[op][1] * (op == YK__TRANSLATE_X ? (double)width : op == YK__TRANSLATE_Y ? (double)height : 1);
    return (double)yk__rand_augment_magnitude(ranges[op][0], end, t->bins, t->magnitude);
}

yk_status yk__rand_augment_apply(const yk_transform *t, yk__rand_op op, bool negative, yk_sample *sample)
{
    double m = magnitude_of(t, op, sample->shape[1], sample->shape[2]), s = negative ? -m : m;
    double lean = atan(s) * 180 / M_PI;
    switch (op) {
    case YK__SHEAR_X: return yk__warp_affine(t, sample, 0, (double[]){0, 0}, (double[]){lean, 0}, true);
    case YK__SHEAR_Y: return yk__warp_affine(t, sample, 0, (double[]){0, 0}, (double[]){0, lean}, true);
    case YK__TRANSLATE_X: return yk__warp_affine(t, sample, 0, (double[]){trunc(s), 0}, (double[]){0, 0}, false);
    case YK__TRANSLATE_Y: return yk__warp_affine(t, sample, 0, (double[]){0, trunc(s)}, (double[]){0, 0}, false);
    case YK__ROTATE: /* counter-clockwise, where an affine map turns clockwise */
        return yk__warp_affine(t, sample, -s, (double[]){0, 0}, (double[]){0, 0}, false);
    case YK__BRIGHTNESS: return yk__adjust_color(t, YK__ADJUST_BRIGHTNESS, 1 + s, sample);
    case YK__COLOR: return yk__adjust_color(t, YK__ADJUST_SATURATION, 1 + s, sample);
    case YK__CONTRAST: return yk__adjust_color(t, YK__ADJUST_CONTRAST, 1 + s, sample);
    case YK__RAND_SHARPNESS: return yk__change_levels(YK__SHARPNESS, 1 + s, sample);
    case YK__RAND_POSTERIZE: return yk__change_levels(YK__POSTERIZE, m, sample);
    case YK__RAND_SOLARIZE: return yk__change_levels(YK__SOLARIZE, 255 * m, sample);
    case YK__RAND_AUTOCONTRAST: return yk__change_levels(YK__AUTOCONTRAST, 0, sample);
    case YK__RAND_EQUALIZE: return yk__change_levels(YK__EQUALIZE, 0, sample);
    case YK__IDENTITY:
    case YK__RAND_OPS: break;
    }
    return YK_OK;
}

static yk_status apply_rand_augment(const yk_transform *t, yk_sample *sample)
{
    yk_status status = yk__sample_is_image(t, sample);
    if (!status && (sample->dtype != YK_U8 || (sample->shape[0] != 1 && sample->shape[0] != 3))) {
        char text[200];
        status = yk__fail(YK_ERR_DTYPE, "rand_augment: takes images of 1 or 3 channels of uint8, got %s",
                          yk__sample_format(sample, text, sizeof(text)));
    }
    for (int i = 0; i < t->num_ops && !status; i++) {
        yk__rand_op op = (yk__rand_op)yk_sample_below(sample, YK__RAND_OPS);
        status = yk__rand_augment_apply(t, op, yk_sample_uniform(sample) < 0.5, sample);
    }
    return status;
}

yk_transform *yk_rand_augment(const yk_rand_augment_options *options)
{
    static const char what[] = "rand_augment";
    yk__transform_asked();
    yk_rand_augment_options o;
    if (YK__OPTIONS_TAKE(what, yk_rand_augment_options, options, &o) ||
        yk__check_integer(what, "num_ops", o.num_ops, 0, MOST_OPS) ||
        yk__check_integer(what, "num_magnitude_bins", o.num_magnitude_bins, 2, MOST_BINS) ||
        yk__check_integer(what, "magnitude", o.magnitude, 0, o.num_magnitude_bins - 1) ||
        yk__check_number(what, "fill", o.fill, 0, 255))
        return NULL;
    yk_transform *t = yk__transform_new(YK__TRANSFORM_RAND_AUGMENT, what, apply_rand_augment);
    if (t) {
        t->num_ops = o.num_ops;
        t->magnitude = o.magnitude;
        t->bins = o.num_magnitude_bins;
        t->bilinear = o.bilinear;
        t->fill = o.fill;
        t->unmixed = o.fill == 0;
    }
    return yk__transform_own(t);
}
