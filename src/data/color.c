/*
 * color.c - transforms of colours: color_jitter, grayscale, random_grayscale. Layer: data.
 *
 * The results are torchvision's on tensors. Its arithmetic is repeated step by step: bytes and f32 in float, f64 in
 * double, each step of a jitter rounded to the sample's dtype (bytes are cut off, not rounded), hues always in float.
 */
#include <math.h>
#include <string.h>

#include "data/dataset.h"

enum {
    BRIGHTNESS = YK__ADJUST_BRIGHTNESS,
    CONTRAST = YK__ADJUST_CONTRAST,
    SATURATION = YK__ADJUST_SATURATION,
    HUE = YK__ADJUST_HUE,
    JITTERS = YK__ADJUSTMENTS
};

static unsigned char limit_u8(float x)
{
    return (unsigned char)(x < 0 ? 0 : x > 255 ? 255 : x);
}

static float limit_f32(float x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

static double limit_f64(double x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

/*
 * For one dtype, of elements T and arithmetic in R: the grey of `n` pixels of three planes, or of one; and
 * factor * from + rest * other, where `other` is one number (contrast: the mean; brightness: 0) or grey pixels.
 */
#define COLOR_FUNCTIONS(dtype, T, R)                                                                                   \
    static void grey_##dtype(const void *data, int64_t channels, size_t n, void *to)                                   \
    {                                                                                                                  \
        const T *r = data, *g = r + n, *b = g + n;                                                                     \
        T *out = to;                                                                                                   \
        if (channels == 1) {                                                                                           \
            memcpy(to, data, n * sizeof(T));                                                                           \
            return;                                                                                                    \
        }                                                                                                              \
        for (size_t i = 0; i < n; i++)                                                                                 \
            out[i] = (T)((R)0.2989 * (R)r[i] + (R)0.587 * (R)g[i] + (R)0.114 * (R)b[i]);                               \
    }                                                                                                                  \
    static double mean_##dtype(const void *data, size_t n)                                                             \
    {                                                                                                                  \
        const T *x = data;                                                                                             \
        double sum = 0;                                                                                                \
        for (size_t i = 0; i < n; i++)                                                                                 \
            sum += (double)x[i];                                                                                       \
        return (double)((R)sum / (R)n);                                                                                \
    }                                                                                                                  \
    static void blend_number_##dtype(const void *data, double factor, double other, size_t n, void *to)                \
    {                                                                                                                  \
        const T *x = data;                                                                                             \
        T *out = to;                                                                                                   \
        R scale = (R)factor, add = (R)(1 - factor) * (R)other;                                                         \
        for (size_t i = 0; i < n; i++)                                                                                 \
            out[i] = limit_##dtype(scale * (R)x[i] + add);                                                             \
    }                                                                                                                  \
    static void blend_pixels_##dtype(const void *data, double factor, const void *other, size_t n, void *to)           \
    {                                                                                                                  \
        const T *x = data, *y = other;                                                                                 \
        T *out = to;                                                                                                   \
        R scale = (R)factor, rest = (R)(1 - factor);                                                                   \
        for (size_t i = 0; i < n; i++)                                                                                 \
            out[i] = limit_##dtype(scale * (R)x[i] + rest * (R)y[i]);                                                  \
    }

COLOR_FUNCTIONS(u8, unsigned char, float)
COLOR_FUNCTIONS(f32, float, float)
COLOR_FUNCTIONS(f64, double, double)

typedef struct color_functions {
    void (*grey)(const void *data, int64_t channels, size_t n, void *to);
    double (*mean)(const void *data, size_t n);
    void (*blend_number)(const void *data, double factor, double other, size_t n, void *to);
    void (*blend_pixels)(const void *data, double factor, const void *other, size_t n, void *to);
} color_functions;

static const color_functions functions_u8 = {grey_u8, mean_u8, blend_number_u8, blend_pixels_u8};
static const color_functions functions_f32 = {grey_f32, mean_f32, blend_number_f32, blend_pixels_f32};
static const color_functions functions_f64 = {grey_f64, mean_f64, blend_number_f64, blend_pixels_f64};

/* The functions for a sample, NULL and an error where it is no image of 1 or 3 channels. */
static const color_functions *functions_for(const yk_transform *t, const yk_sample *sample)
{
    if (yk__sample_is_image(t, sample))
        return NULL;
    if (sample->shape[0] == 1 || sample->shape[0] == 3) {
        if (sample->dtype == YK_U8)
            return &functions_u8;
        if (sample->dtype == YK_F32)
            return &functions_f32;
        if (sample->dtype == YK_F64)
            return &functions_f64;
    }
    char text[200];
    yk__fail(YK_ERR_SHAPE, "%s: takes images of 1 or 3 channels of uint8, float32 or float64, got %s", t->name,
             yk__sample_format(sample, text, sizeof(text)));
    return NULL;
}

/* ---- hue ------------------------------------------------------------------------------------------------- */
/* Turns the hue of one pixel, numbers in [0, 1], by `turn`, a part of the whole circle. */
static void turn_hue(float pixel[3], float turn)
{
    float r = pixel[0], g = pixel[1], b = pixel[2];
    float most = fmaxf(r, fmaxf(g, b)), least = fminf(r, fminf(g, b)), range = most - least;
    float s = range / (most == least ? 1 : most), divisor = most == least ? 1 : range;
    float rc = (most - r) / divisor, gc = (most - g) / divisor, bc = (most - b) / divisor;
    float h = most == r ? bc - gc : most == g ? 2.0f + rc - bc : 4.0f + gc - rc;
    h = fmodf(h / 6.0f + 1.0f, 1.0f);
    h = fmodf(h + turn, 1.0f);
    h = h < 0 ? h + 1.0f : h;
    float sixth = floorf(h * 6.0f), f = h * 6.0f - sixth;
    float p = limit_f32(most * (1.0f - s)), q = limit_f32(most * (1.0f - s * f)),
          t = limit_f32(most * (1.0f - s * (1.0f - f)));
    const float of_sixth[6][3] = {{most, t, p}, {q, most, p}, {p, most, t}, {p, q, most}, {t, p, most}, {most, p, q}};
    memcpy(pixel, of_sixth[(int)sixth % 6], sizeof(of_sixth[0]));
}

static void turn_hues(yk_dtype dtype, const void *data, double turn, size_t n, void *to)
{
    for (size_t i = 0; i < n; i++) {
        float pixel[3];
        for (size_t c = 0; c < 3; c++)
            pixel[c] = dtype == YK_U8    ? (float)((const unsigned char *)data)[c * n + i] / 255.0f
                       : dtype == YK_F32 ? ((const float *)data)[c * n + i]
                                         : (float)((const double *)data)[c * n + i];
        turn_hue(pixel, (float)turn);
        for (size_t c = 0; c < 3; c++) {
            if (dtype == YK_U8)
                ((unsigned char *)to)[c * n + i] = limit_u8(pixel[c] * 255.999f);
            else if (dtype == YK_F32)
                ((float *)to)[c * n + i] = pixel[c];
            else
                ((double *)to)[c * n + i] = (double)pixel[c];
        }
    }
}

/* ---- color_jitter ---------------------------------------------------------------------------------------- */
static yk_status adjust(const color_functions *functions, int what, double factor, yk_sample *sample)
{
    int64_t channels = sample->shape[0];
    size_t n = (size_t)(sample->shape[1] * sample->shape[2]), all = (size_t)channels * n;
    bool wants_grey = what == SATURATION || what == CONTRAST;
    if ((what == SATURATION || what == HUE) && channels == 1)
        return YK_OK;
    const void *from = sample->data;
    void *grey = wants_grey ? yk__buffer_get(&sample->worker->rows, n * yk_dtype_size(sample->dtype)) : NULL;
    void *to = wants_grey && !grey ? NULL : yk_sample_allocate(sample, sample->dtype, 3, sample->shape);
    if (!to)
        return YK_ERR_MEMORY;
    if (wants_grey)
        functions->grey(from, channels, n, grey);
    if (what == BRIGHTNESS)
        functions->blend_number(from, factor, 0, all, to);
    else if (what == CONTRAST)
        functions->blend_number(from, factor, functions->mean(grey, n), all, to);
    else if (what == HUE)
        turn_hues(sample->dtype, from, factor, n, to);
    else
        for (size_t c = 0, bytes = n * yk_dtype_size(sample->dtype); c < 3; c++)
            functions->blend_pixels((const char *)from + c * bytes, factor, grey, n, (char *)to + c * bytes);
    return YK_OK;
}

yk_status yk__adjust_color(const yk_transform *t, yk__adjustment what, double factor, yk_sample *sample)
{
    const color_functions *functions = functions_for(t, sample);
    return functions ? adjust(functions, (int)what, factor, sample) : yk__error_code();
}

static yk_status apply_jitter(const yk_transform *t, yk_sample *sample)
{
    const color_functions *functions = functions_for(t, sample);
    int order[JITTERS] = {BRIGHTNESS, CONTRAST, SATURATION, HUE};
    double factors[JITTERS];
    if (!functions)
        return yk__error_code();
    for (int i = JITTERS - 1; i > 0; i--) {
        int other = (int)yk_sample_below(sample, i + 1), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    for (int i = 0; i < JITTERS; i++)
        factors[i] = t->jitter[i][0] + (t->jitter[i][1] - t->jitter[i][0]) * yk_sample_uniform(sample);
    yk_status status = YK_OK;
    for (int i = 0; i < JITTERS && !status; i++) {
        const double *range = t->jitter[order[i]], none = order[i] == HUE ? 0 : 1;
        if (range[0] != none || range[1] != none)
            status = adjust(functions, order[i], factors[order[i]], sample);
    }
    return status;
}

/* A range of factors, in [low, high]. */
static yk_status check_jitter(const char *name, const double range[2], double low, double high)
{
    if (range[0] <= range[1] && range[0] >= low && range[1] <= high && isfinite(range[1]))
        return YK_OK;
    if (low < 0)
        return yk__fail(YK_ERR_ARGUMENT,
                        "color_jitter: %s is {%g, %g}, expected a range that rises, in [%g, %g]; torchvision's 0.1 is "
                        "{-0.1, 0.1}",
                        name, range[0], range[1], low, high);
    return yk__fail(YK_ERR_ARGUMENT,
                    "color_jitter: %s is {%g, %g}, expected a range that rises, of finite factors from 0 on; "
                    "torchvision's 0.4 is {0.6, 1.4}",
                    name, range[0], range[1]);
}

yk_transform *yk_color_jitter(const yk_color_jitter_options *options)
{
    yk__transform_asked();
    yk_color_jitter_options o;
    if (YK__OPTIONS_TAKE("color_jitter", yk_color_jitter_options, options, &o) ||
        check_jitter("brightness", o.brightness, 0, INFINITY) || check_jitter("contrast", o.contrast, 0, INFINITY) ||
        check_jitter("saturation", o.saturation, 0, INFINITY) || check_jitter("hue", o.hue, -0.5, 0.5))
        return NULL;
    yk_transform *t = yk__transform_new(YK__TRANSFORM_COLOR, "color_jitter", apply_jitter);
    if (t) {
        memcpy(t->jitter[BRIGHTNESS], o.brightness, sizeof(o.brightness));
        memcpy(t->jitter[CONTRAST], o.contrast, sizeof(o.contrast));
        memcpy(t->jitter[SATURATION], o.saturation, sizeof(o.saturation));
        memcpy(t->jitter[HUE], o.hue, sizeof(o.hue));
    }
    return yk__transform_own(t);
}

/* ---- grayscale ------------------------------------------------------------------------------------------- */
static yk_status make_grey(const color_functions *functions, int64_t channels, yk_sample *sample)
{
    int64_t had = sample->shape[0], shape[] = {channels, sample->shape[1], sample->shape[2]};
    size_t n = (size_t)(shape[1] * shape[2]), bytes = n * yk_dtype_size(sample->dtype);
    const void *from = sample->data;
    char *to = yk_sample_allocate(sample, sample->dtype, 3, shape);
    if (!to)
        return YK_ERR_MEMORY;
    functions->grey(from, had, n, to);
    for (int64_t c = 1; c < channels; c++)
        memcpy(to + (size_t)c * bytes, to, bytes);
    return YK_OK;
}

static yk_status apply_grayscale(const yk_transform *t, yk_sample *sample)
{
    const color_functions *functions = functions_for(t, sample);
    return functions ? make_grey(functions, t->channels, sample) : yk__error_code();
}

static yk_status apply_random_grayscale(const yk_transform *t, yk_sample *sample)
{
    const color_functions *functions = functions_for(t, sample);
    if (!functions)
        return yk__error_code();
    return yk__chance_draw(t, sample) ? make_grey(functions, sample->shape[0], sample) : YK_OK;
}

yk_transform *yk_grayscale(int channels)
{
    yk__transform_asked();
    if (channels != 1 && channels != 3) {
        yk__fail(YK_ERR_ARGUMENT, "grayscale: %d channels, expected 1 or 3", channels);
        return NULL;
    }
    yk_transform *t = yk__transform_new(YK__TRANSFORM_COLOR, "grayscale", apply_grayscale);
    if (t)
        t->channels = channels;
    return yk__transform_own(t);
}

yk_transform *yk_random_grayscale(double p)
{
    yk__transform_asked();
    if (yk__check_number("random_grayscale", "p", p, 0, 1))
        return NULL;
    return yk__transform_of_chance(YK__TRANSFORM_COLOR, "random_grayscale", apply_random_grayscale, p);
}
