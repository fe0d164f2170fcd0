/*
 * transform.c - transforms: crop, flip, centre crop, to_tensor, normalize, compose, and the user's own. Layer: data.
 *
 * A transform is constant once made, so any number of workers apply it at once; what changes is the sample. What each
 * does here, step by step, is the definition; pipeline.c runs the usual chain in one pass with the same results, by
 * the same draws (yk__crop_draw, yk__chance_draw) and the same values (yk__pixel_f32, yk__pixel_f64).
 */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"

/* Any numbers: larger ones are taken for mistakes. */
enum { MOST_ITEMS = 64, MOST_CHANNELS = 4096, MOST_SIDE = 1 << 16 };

static void transform_destroy(void *object)
{
    yk_transform *t = object;
    for (int i = 0; i < t->count; i++)
        yk_object_release(t->items[i]);
    if (t->release)
        t->release(t->user);
    free(t->items);
    free(t->mean);
    free(t->std);
    free(t->name);
    yk__object_free(t);
}

static const yk__type transform_type = {"transform", transform_destroy};

yk_transform *yk__transform_new(yk__transform_kind kind, const char *name,
                                yk_status (*apply)(const yk_transform *, yk_sample *))
{
    if (!yk__scope_check(name))
        return NULL;
    yk_transform *t = yk__object_new(&transform_type, sizeof(*t));
    if (!t)
        return NULL;
    t->kind = kind;
    t->apply = apply;
    t->name = yk__strdup(name);
    if (!t->name) {
        transform_destroy(t);
        return NULL;
    }
    return t;
}

/*
 * True if the transform that this thread asked for last could not be made. A transform may be left out, so a function
 * that is given NULL must tell the two apart; the record alone does not, because it may be of something else.
 */
static _Thread_local bool lost;

yk_transform *yk__transform_own(yk_transform *t)
{
    t = yk__scope_own(t);
    lost = !t;
    return t;
}

bool yk__transform_lost(const yk_transform *transform)
{
    bool failed = !transform && lost && yk__error_code() != YK_OK;
    lost = false; /* it was given, or is not on its way to anybody */
    return failed;
}

void yk__transform_asked(void)
{
    lost = true;
}

yk_transform *yk_transform_retain(yk_transform *transform)
{
    return yk_object_retain(transform);
}

void yk_transform_release(yk_transform *transform)
{
    yk_object_release(transform);
}

yk_status yk__sample_is_image(const yk_transform *transform, const yk_sample *sample)
{
    if (sample->ndim == 3)
        return YK_OK;
    char text[200];
    return yk__fail(YK_ERR_SHAPE, "%s: takes an image (channels, height, width), got %s", transform->name,
                    yk__sample_format(sample, text, sizeof(text)));
}

/* Tells masks and boxes of the window that is taken. */
static void note_window(yk_sample *sample, yk__rectangle window, int64_t padding, bool clamped)
{
    sample->worker->motion = (yk__motion){.kind = YK__MOTION_WINDOW,
                                          .in_height = sample->shape[1],
                                          .in_width = sample->shape[2],
                                          .height = window.height,
                                          .width = window.width,
                                          .window = window,
                                          .padding = padding,
                                          .clamped = clamped};
}

/*
 * Writes the window of `height` x `width` whose first element lies at (top, left) of the image, zeros where it is
 * outside, mirrored if asked.
 */
static yk_status crop_window(yk_sample *sample, int64_t top, int64_t left, int64_t height, int64_t width, bool mirrored)
{
    size_t element = yk_dtype_size(sample->dtype);
    int64_t channels = sample->shape[0], in_height = sample->shape[1], in_width = sample->shape[2];
    const unsigned char *from = sample->data;
    unsigned char *to = yk_sample_allocate(sample, sample->dtype, 3, (int64_t[]){channels, height, width});
    if (!to)
        return YK_ERR_MEMORY;
    int64_t begin = left < 0 ? -left : 0, end = in_width - left < width ? in_width - left : width;
    for (int64_t row = 0; row < channels * height; row++, to += (size_t)width * element) {
        int64_t y = row % height + top;
        if (y < 0 || y >= in_height || begin >= end) {
            memset(to, 0, (size_t)width * element);
            continue;
        }
        const unsigned char *source = from + (size_t)((row / height * in_height + y) * in_width) * element;
        if (!mirrored) {
            memset(to, 0, (size_t)begin * element);
            memcpy(to + (size_t)begin * element, source + (size_t)(begin + left) * element,
                   (size_t)(end - begin) * element);
            memset(to + (size_t)end * element, 0, (size_t)(width - end) * element);
            continue;
        }
        for (int64_t x = 0; x < width; x++) {
            int64_t at = width - 1 - x;
            if (at >= begin && at < end)
                memcpy(to + (size_t)x * element, source + (size_t)(at + left) * element, element);
            else
                memset(to + (size_t)x * element, 0, element);
        }
    }
    return YK_OK;
}

/* ---- random_crop ----------------------------------------------------------------------------------------- */
yk_status yk__crop_draw(const yk_transform *crop, yk_sample *sample, int64_t *top, int64_t *left)
{
    int64_t height = sample->shape[1] + 2 * crop->padding, width = sample->shape[2] + 2 * crop->padding;
    if (height < crop->size || width < crop->size)
        return yk__fail(YK_ERR_SHAPE, "random_crop: size %lld is larger than the image of %lldx%lld (padding %lld)",
                        (long long)crop->size, (long long)sample->shape[1], (long long)sample->shape[2],
                        (long long)crop->padding);
    *top = yk_sample_below(sample, height - crop->size + 1) - crop->padding;
    *left = yk_sample_below(sample, width - crop->size + 1) - crop->padding;
    return YK_OK;
}

static yk_status apply_crop(const yk_transform *t, yk_sample *sample)
{
    int64_t top = 0, left = 0;
    yk_status status = yk__sample_is_image(t, sample);
    if (!status)
        status = yk__crop_draw(t, sample, &top, &left);
    if (!status) {
        bool whole = t->padding == 0 && sample->shape[1] == t->size && sample->shape[2] == t->size;
        note_window(sample, (yk__rectangle){top, left, t->size, t->size}, t->padding, !whole);
        status = crop_window(sample, top, left, t->size, t->size, false);
    }
    return status;
}

yk_transform *yk_random_crop(int64_t size, int64_t padding)
{
    yk__transform_asked();
    if (size < 1 || size > MOST_SIDE || padding < 0 || padding > MOST_SIDE) {
        yk__fail(YK_ERR_ARGUMENT,
                 "random_crop: size %lld, padding %lld: expected a size from 1 and a padding from 0, to %d",
                 (long long)size, (long long)padding, MOST_SIDE);
        return NULL;
    }
    yk_transform *t = yk__transform_new(YK__TRANSFORM_CROP, "random_crop", apply_crop);
    if (t) {
        t->size = size;
        t->padding = padding;
    }
    return yk__transform_own(t);
}

/* ---- by chance ------------------------------------------------------------------------------------------- */
bool yk__chance_draw(const yk_transform *transform, yk_sample *sample)
{
    return yk_sample_uniform(sample) < transform->p;
}

yk_transform *yk__transform_of_chance(yk__transform_kind kind, const char *name,
                                      yk_status (*apply)(const yk_transform *, yk_sample *), double p)
{
    yk_transform *t = yk__transform_new(kind, name, apply);
    if (t)
        t->p = p;
    return yk__transform_own(t);
}

/* ---- random_horizontal_flip ------------------------------------------------------------------------------ */
static yk_status apply_flip(const yk_transform *t, yk_sample *sample)
{
    yk_status status = yk__sample_is_image(t, sample);
    if (!status && yk__chance_draw(t, sample)) {
        note_window(sample, (yk__rectangle){0, 0, sample->shape[1], sample->shape[2]}, 0, false);
        sample->worker->motion.mirrored = true;
        status = crop_window(sample, 0, 0, sample->shape[1], sample->shape[2], true);
    }
    return status;
}

yk_transform *yk_random_horizontal_flip(double p)
{
    yk__transform_asked();
    if (!(p >= 0 && p <= 1)) {
        yk__fail(YK_ERR_ARGUMENT, "random_horizontal_flip: p %g is outside [0, 1]", p);
        return NULL;
    }
    return yk__transform_of_chance(YK__TRANSFORM_FLIP, "random_horizontal_flip", apply_flip, p);
}

/* ---- random_vertical_flip -------------------------------------------------------------------------------- */
static yk_status apply_vertical_flip(const yk_transform *t, yk_sample *sample)
{
    yk_status status = yk__sample_is_image(t, sample);
    if (status || !yk__chance_draw(t, sample))
        return status;
    int64_t height = sample->shape[1], rows = sample->shape[0] * height;
    note_window(sample, (yk__rectangle){0, 0, height, sample->shape[2]}, 0, false);
    sample->worker->motion.kind = YK__MOTION_UPSIDE_DOWN;
    size_t row = (size_t)sample->shape[2] * yk_dtype_size(sample->dtype);
    const char *from = sample->data;
    char *to = yk_sample_allocate(sample, sample->dtype, 3, sample->shape);
    if (!to)
        return YK_ERR_MEMORY;
    for (int64_t y = 0; y < rows; y++)
        memcpy(to + (size_t)y * row, from + (size_t)(y / height * height + height - 1 - y % height) * row, row);
    return YK_OK;
}

yk_transform *yk_random_vertical_flip(double p)
{
    yk__transform_asked();
    if (yk__check_number("random_vertical_flip", "p", p, 0, 1))
        return NULL;
    return yk__transform_of_chance(YK__TRANSFORM_PLACE, "random_vertical_flip", apply_vertical_flip, p);
}

/* ---- resize (the arithmetic is in resize.c) -------------------------------------------------------------- */
yk_transform *yk_resize(int64_t size)
{
    yk__transform_asked();
    if (size < 1 || size > MOST_SIDE) {
        yk__fail(YK_ERR_ARGUMENT, "resize: size %lld is outside [1, %d]", (long long)size, MOST_SIDE);
        return NULL;
    }
    yk_transform *t = yk__transform_new(YK__TRANSFORM_RESIZE, "resize", yk__apply_resize);
    if (t)
        t->size = size;
    return yk__transform_own(t);
}

yk_transform *yk_resize_to(int64_t height, int64_t width)
{
    yk__transform_asked();
    if (height < 1 || height > MOST_SIDE || width < 1 || width > MOST_SIDE) {
        yk__fail(YK_ERR_ARGUMENT, "resize_to: %lldx%lld: sides are from 1 to %d", (long long)height, (long long)width,
                 MOST_SIDE);
        return NULL;
    }
    yk_transform *t = yk__transform_new(YK__TRANSFORM_RESIZE, "resize_to", yk__apply_resize);
    if (t) {
        t->height = height;
        t->width = width;
    }
    return yk__transform_own(t);
}

/* Both ends of a range of positive numbers, of `most` at most. */
static yk_status check_range(const char *name, const double range[2], double most)
{
    for (int end = 0; end < 2; end++) {
        yk_status status = yk__check_positive("random_resized_crop", name, range[end]);
        if (!status)
            status = yk__check_number("random_resized_crop", name, range[end], 0, most);
        if (status)
            return status;
    }
    if (range[0] > range[1])
        return yk__fail(YK_ERR_ARGUMENT, "random_resized_crop: %s is %g to %g, expected a range that rises", name,
                        range[0], range[1]);
    return YK_OK;
}

yk_transform *yk_random_resized_crop(int64_t size, const yk_random_resized_crop_options *options)
{
    yk__transform_asked();
    yk_random_resized_crop_options o;
    if (YK__OPTIONS_TAKE("random_resized_crop", yk_random_resized_crop_options, options, &o) ||
        yk__check_integer("random_resized_crop", "size", size, 1, MOST_SIDE) || check_range("scale", o.scale, 1) ||
        check_range("ratio", o.ratio, INFINITY))
        return NULL;
    yk_transform *t = yk__transform_new(YK__TRANSFORM_RANDOM_RESIZED_CROP, "random_resized_crop", yk__apply_resize);
    if (t) {
        t->size = size;
        memcpy(t->scale, o.scale, sizeof(o.scale));
        memcpy(t->ratio, o.ratio, sizeof(o.ratio));
    }
    return yk__transform_own(t);
}

/* ---- center_crop ----------------------------------------------------------------------------------------- */
/* The rest is halved as torchvision does it: half to even where the crop fits, and the smaller half of the
 * padding first where it does not. */
int64_t yk__middle(int64_t side, int64_t size)
{
    if (side < size)
        return -((size - side) / 2);
    int64_t half = (side - size) / 2;
    return (side - size) % 2 == 1 && half % 2 == 1 ? half + 1 : half;
}

static yk_status apply_center_crop(const yk_transform *t, yk_sample *sample)
{
    yk_status status = yk__sample_is_image(t, sample);
    if (status)
        return status;
    int64_t top = yk__middle(sample->shape[1], t->size), left = yk__middle(sample->shape[2], t->size);
    note_window(sample, (yk__rectangle){top, left, t->size, t->size}, 0, true);
    if (sample->shape[1] == t->size && sample->shape[2] == t->size)
        return YK_OK;
    return crop_window(sample, top, left, t->size, t->size, false);
}

yk_transform *yk_center_crop(int64_t size)
{
    yk__transform_asked();
    if (size < 1 || size > MOST_SIDE) {
        yk__fail(YK_ERR_ARGUMENT, "center_crop: size %lld is outside [1, %d]", (long long)size, MOST_SIDE);
        return NULL;
    }
    yk_transform *t = yk__transform_new(YK__TRANSFORM_CENTER_CROP, "center_crop", apply_center_crop);
    if (t)
        t->size = size;
    return yk__transform_own(t);
}

/* ---- to_tensor and normalize: each operation rounded in the dtype, in PyTorch's order -------------------- */
float yk__pixel_f32(const yk_transform *normalize, int channel, unsigned value)
{
    float x = (float)value / 255.0f;
    if (!normalize)
        return x;
    x -= (float)normalize->mean[channel];
    return x / (float)normalize->std[channel];
}

double yk__pixel_f64(const yk_transform *normalize, int channel, unsigned value)
{
    double x = (double)value / 255.0;
    if (!normalize)
        return x;
    x -= normalize->mean[channel];
    return x / normalize->std[channel];
}

yk_status yk__sample_to_float(yk_sample *sample)
{
    yk_dtype want = sample->worker->dtype;
    bool numbers = sample->dtype == YK_U8 || sample->dtype == YK_F32 || sample->dtype == YK_F64;
    if (sample->dtype == want || !numbers)
        return YK_OK;
    yk_sample old = *sample;
    size_t numel = yk__sample_numel(sample);
    void *to = yk_sample_allocate(sample, want, old.ndim, old.shape);
    if (!to)
        return YK_ERR_MEMORY;
    if (old.dtype == YK_U8 && want == YK_F32) {
        for (size_t i = 0; i < numel; i++)
            ((float *)to)[i] = yk__pixel_f32(NULL, 0, ((const unsigned char *)old.data)[i]);
    } else if (old.dtype == YK_U8) {
        for (size_t i = 0; i < numel; i++)
            ((double *)to)[i] = yk__pixel_f64(NULL, 0, ((const unsigned char *)old.data)[i]);
    } else if (want == YK_F32) {
        for (size_t i = 0; i < numel; i++)
            ((float *)to)[i] = (float)((const double *)old.data)[i];
    } else {
        for (size_t i = 0; i < numel; i++)
            ((double *)to)[i] = (double)((const float *)old.data)[i];
    }
    return YK_OK;
}

static yk_status apply_to_tensor(const yk_transform *t, yk_sample *sample)
{
    (void)t;
    return yk__sample_to_float(sample);
}

yk_transform *yk_to_tensor(void)
{
    yk__transform_asked();
    return yk__transform_own(yk__transform_new(YK__TRANSFORM_TO_TENSOR, "to_tensor", apply_to_tensor));
}

static yk_status apply_normalize(const yk_transform *t, yk_sample *sample)
{
    yk_status status = yk__sample_is_image(t, sample);
    if (!status && sample->shape[0] != t->channels) {
        char text[200];
        status = yk__fail(YK_ERR_SHAPE, "normalize: has %d means for a sample of %lld channels, %s", t->channels,
                          (long long)sample->shape[0], yk__sample_format(sample, text, sizeof(text)));
    }
    if (!status)
        status = yk__sample_to_float(sample);
    if (status)
        return status;
    const void *from = sample->data;
    void *to = yk_sample_allocate(sample, sample->dtype, 3, sample->shape);
    if (!to)
        return YK_ERR_MEMORY;
    int64_t plane = sample->shape[1] * sample->shape[2];
    for (int c = 0; c < t->channels; c++) {
        if (sample->dtype == YK_F32) {
            const float *x = (const float *)from + c * plane;
            float *out = (float *)to + c * plane, mean = (float)t->mean[c], std = (float)t->std[c];
            for (int64_t i = 0; i < plane; i++)
                out[i] = (x[i] - mean) / std;
        } else {
            const double *x = (const double *)from + c * plane;
            double *out = (double *)to + c * plane, mean = t->mean[c], std = t->std[c];
            for (int64_t i = 0; i < plane; i++)
                out[i] = (x[i] - mean) / std;
        }
    }
    return YK_OK;
}

yk_transform *yk_normalize(const double *mean, const double *std, int channels)
{
    yk__transform_asked();
    if (!mean || !std || channels < 1 || channels > MOST_CHANNELS) {
        yk__fail(YK_ERR_ARGUMENT, "normalize: expected means and deviations of 1 to %d channels, got %d", MOST_CHANNELS,
                 channels);
        return NULL;
    }
    for (int c = 0; c < channels; c++) {
        if (!isfinite(mean[c]) || !isfinite(std[c]) || (float)std[c] == 0) {
            yk__fail(YK_ERR_ARGUMENT, "normalize: channel %d has mean %g and std %g; both must be finite, std not 0", c,
                     mean[c], std[c]);
            return NULL;
        }
    }
    yk_transform *t = yk__transform_new(YK__TRANSFORM_NORMALIZE, "normalize", apply_normalize);
    if (!t)
        return NULL;
    t->channels = channels;
    t->mean = yk__calloc((size_t)channels, sizeof(double));
    t->std = yk__calloc((size_t)channels, sizeof(double));
    if (!t->mean || !t->std) {
        transform_destroy(t);
        return NULL;
    }
    memcpy(t->mean, mean, (size_t)channels * sizeof(double));
    memcpy(t->std, std, (size_t)channels * sizeof(double));
    return yk__transform_own(t);
}

const yk_transform *yk__transform_normalize(const yk_transform *transform)
{
    while (transform && (transform->kind == YK__TRANSFORM_COMPOSE || transform->kind == YK__TRANSFORM_TARGETS))
        transform = transform->count ? transform->items[transform->count - 1] : NULL;
    return transform && transform->kind == YK__TRANSFORM_NORMALIZE ? transform : NULL;
}

/* ---- compose, and the user's own ------------------------------------------------------------------------- */
yk_transform *yk_compose_counted(int count, ...)
{
    yk__transform_asked();
    if (count > MOST_ITEMS) {
        yk__fail(YK_ERR_ARGUMENT, "compose: %d transforms, more than %d", count, MOST_ITEMS);
        return NULL;
    }
    yk_transform *t = yk__transform_new(YK__TRANSFORM_COMPOSE, "compose", NULL);
    if (!t)
        return NULL;
    t->items = yk__calloc(MOST_ITEMS, sizeof(*t->items));
    bool complete = t->items != NULL;
    va_list arguments;
    va_start(arguments, count);
    for (int i = 0; i < count && complete; i++) {
        yk_transform *item = va_arg(arguments, yk_transform *);
        if (yk__is_freed(item))
            yk__fail_freed("yk_compose", item);
        else if (item)
            t->items[t->count++] = yk_transform_retain(item);
        else
            yk__fail(YK_ERR_ARGUMENT, "compose: transform %d of %d is NULL%s", i, count,
                     i && i == count - 1 ? "; the list ends by itself, without one" : "");
        complete = t->count == i + 1;
    }
    va_end(arguments);
    if (!complete) {
        transform_destroy(t);
        return NULL;
    }
    return yk__transform_own(t);
}

static yk_status apply_user(const yk_transform *t, yk_sample *sample)
{
    yk_status status = t->fn(t->user, sample);
    if (status && !yk__error_code())
        yk__fail(YK_ERR_CALLBACK, "%s: failed with status \"%s\" and set no error", t->name, yk_status_name(status));
    if (!status && (!sample->data || yk__sample_numel(sample) == 0)) {
        char text[200];
        status =
            yk__fail(YK_ERR_CALLBACK, "%s: left a sample without elements, or of a shape or dtype it may not have: %s",
                     t->name, yk__sample_format(sample, text, sizeof(text)));
    }
    return status;
}

yk_transform *yk_transform_create(const char *name, yk_transform_fn fn, void *user, void (*release)(void *user))
{
    YK__OWN_RECORD;
    yk__transform_asked();
    yk_transform *t = NULL;
    if (!fn)
        yk__fail(YK_ERR_ARGUMENT, "transform_create: no function for \"%s\"", name ? name : "");
    else
        t = yk__transform_new(YK__TRANSFORM_USER, name ? name : "transform", apply_user);
    if (!t) {
        if (release)
            release(user);
        return NULL;
    }
    t->fn = fn;
    t->user = user;
    t->release = release;
    return yk__transform_own(t);
}
