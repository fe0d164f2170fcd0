/*
 * warp.c - transforms that turn, shift, scale, shear and tilt an image: random_rotation, random_affine,
 * random_perspective. Layer: data.
 *
 * Each output pixel is looked up in the image by the inverse map, whose origin is the image's middle. The results are
 * torchvision's on tensors, whose arithmetic is repeated step by step: bytes and f32 in float, f64 in double; positions
 * are first scaled to [-1, 1], as grid_sample takes them, whose products are fused with the sums (fma) there. Pixels
 * outside the image are `fill`: a bilinear pixel is mixed with it by the share of its weights that is outside, after
 * zeros were summed there.
 */
#include <math.h>
#include <string.h>

#include "data/dataset.h"

/* Rows of the inverse map: x is m[0] x' + m[1] y' + m[2], y likewise of m[3] to m[5]. With `tilted` both are of the
 * distance from the image's first corner, and divided by m[6] x' + m[7] y' + 1. */
typedef struct warp {
    double m[8];
    bool tilted;
    double forward[6]; /* the map itself, from places in the image, for boxes; not of one that is tilted */
    const yk_transform *transform;
    int64_t channels, in_height, in_width, height, width;
} warp;

static unsigned char round_u8(float x)
{
    return (unsigned char)nearbyintf(x);
}

/* The map in the units of the positions, which are then (at_x, at_y) of the image for an output (row, column). */
#define WARP_BEGIN(R)                                                                                                  \
    R m[8], half_x = (R)0.5 * (R)w->in_width, half_y = (R)0.5 * (R)w->in_height;                                       \
    for (int i = 0; i < 8; i++)                                                                                        \
        m[i] = (R)w->m[i] / (i < 3 ? half_x : i < 6 ? half_y : 1);                                                     \
    R middle_x = w->tilted ? 0 : (R)0.5 * (R)w->width, middle_y = w->tilted ? 0 : (R)0.5 * (R)w->height;
#define WARP_POSITION(R, fma_)                                                                                         \
    R x = (R)column + (R)0.5 - middle_x, y = (R)row + (R)0.5 - middle_y;                                               \
    R to_x = x * m[0] + y * m[1] + m[2], to_y = x * m[3] + y * m[4] + m[5];                                            \
    if (w->tilted) {                                                                                                   \
        R divisor = x * m[6] + y * m[7] + 1;                                                                           \
        to_x = to_x / divisor - 1, to_y = to_y / divisor - 1;                                                          \
    }                                                                                                                  \
    R at_x = fma_(to_x + 1, half_x, (R)-0.5), at_y = fma_(to_y + 1, half_y, (R)-0.5);

#define WARP_FUNCTION(dtype, T, R, floor_, nearest_, fma_, rounded)                                                    \
    static void warp_##dtype(const warp *w, const void *data, void *data_to)                                           \
    {                                                                                                                  \
        WARP_BEGIN(R)                                                                                                  \
        R fill = (R)w->transform->fill;                                                                                \
        int64_t in_plane = w->in_height * w->in_width, plane = w->height * w->width;                                   \
        T *to = data_to;                                                                                               \
        for (int64_t row = 0; row < w->height; row++) {                                                                \
            for (int64_t column = 0; column < w->width; column++, to++) {                                              \
                WARP_POSITION(R, fma_)                                                                                 \
                const T *from = data;                                                                                  \
                if (!(at_x > -1 && at_y > -1 && at_x < (R)w->in_width && at_y < (R)w->in_height)) {                    \
                    for (int64_t c = 0; c < w->channels; c++)                                                          \
                        to[c * plane] = (T)rounded(fill);                                                              \
                    continue;                                                                                          \
                }                                                                                                      \
                if (!w->transform->bilinear) {                                                                         \
                    int64_t i = (int64_t)nearest_(at_y), j = (int64_t)nearest_(at_x);                                  \
                    bool in = i >= 0 && j >= 0 && i < w->in_height && j < w->in_width;                                 \
                    for (int64_t c = 0; c < w->channels; c++)                                                          \
                        to[c * plane] = in ? from[c * in_plane + i * w->in_width + j] : (T)rounded(fill);              \
                    continue;                                                                                          \
                }                                                                                                      \
                R left = floor_(at_x), top = floor_(at_y), east = at_x - left, south = at_y - top;                     \
                int64_t j = (int64_t)left, i = (int64_t)top;                                                           \
                bool has_west = j >= 0, has_east = j + 1 < w->in_width, has_north = i >= 0,                            \
                     has_south = i + 1 < w->in_height;                                                                 \
                R weights[4] = {has_north && has_west ? (1 - south) * (1 - east) : 0,                                  \
                                has_north && has_east ? (1 - south) * east : 0,                                        \
                                has_south && has_west ? south * (1 - east) : 0,                                        \
                                has_south && has_east ? south * east : 0};                                             \
                /* A corner outside has weight 0, and is read from one that is inside. */                              \
                int64_t north_row = (has_north ? i : i + 1) * w->in_width,                                             \
                        south_row = (has_south ? i + 1 : i) * w->in_width;                                             \
                int64_t west_at = has_west ? j : j + 1, east_at = has_east ? j + 1 : j;                                \
                R inside = weights[0] + weights[1] + weights[2] + weights[3];                                          \
                for (int64_t c = 0; c < w->channels; c++) {                                                            \
                    const T *p = from + c * in_plane;                                                                  \
                    R sum = (R)p[north_row + west_at] * weights[0];                                                    \
                    sum = fma_((R)p[north_row + east_at], weights[1], sum);                                            \
                    sum = fma_((R)p[south_row + west_at], weights[2], sum);                                            \
                    sum = fma_((R)p[south_row + east_at], weights[3], sum);                                            \
                    to[c * plane] = (T)rounded(w->transform->unmixed ? sum : sum * inside + (1 - inside) * fill);      \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }

WARP_FUNCTION(u8, unsigned char, float, floorf, nearbyintf, fmaf, round_u8)
WARP_FUNCTION(f32, float, float, floorf, nearbyintf, fmaf, )
WARP_FUNCTION(f64, double, double, floor, nearbyint, fma, )

/* The nearest element to each position, as the functions above take it, for elements of any dtype. */
#define SOURCES_FUNCTION(dtype, R, nearest_, fma_)                                                                     \
    static void sources_##dtype(const warp *w, int64_t *from)                                                          \
    {                                                                                                                  \
        WARP_BEGIN(R)                                                                                                  \
        for (int64_t row = 0; row < w->height; row++) {                                                                \
            for (int64_t column = 0; column < w->width; column++, from++) {                                            \
                WARP_POSITION(R, fma_)                                                                                 \
                *from = -1;                                                                                            \
                if (!(at_x > -1 && at_y > -1 && at_x < (R)w->in_width && at_y < (R)w->in_height))                      \
                    continue;                                                                                          \
                int64_t i = (int64_t)nearest_(at_y), j = (int64_t)nearest_(at_x);                                      \
                if (i >= 0 && j >= 0 && i < w->in_height && j < w->in_width)                                           \
                    *from = i * w->in_width + j;                                                                       \
            }                                                                                                          \
        }                                                                                                              \
    }

SOURCES_FUNCTION(f32, float, nearbyintf, fmaf)
SOURCES_FUNCTION(f64, double, nearbyint, fma)

void yk__warp_sources(const yk__motion *motion, bool in_double, int64_t *from)
{
    warp w = {.tilted = motion->tilted,
              .in_height = motion->in_height,
              .in_width = motion->in_width,
              .height = motion->height,
              .width = motion->width};
    memcpy(w.m, motion->inverse, sizeof(w.m));
    if (in_double)
        sources_f64(&w, from);
    else
        sources_f32(&w, from);
}

static yk_status warp_check(const yk_transform *t, const yk_sample *sample)
{
    yk_status status = yk__sample_is_image(t, sample);
    if (status)
        return status;
    if (sample->dtype != YK_U8 && sample->dtype != YK_F32 && sample->dtype != YK_F64)
        return yk__fail(YK_ERR_DTYPE, "%s: takes images of uint8, float32 or float64, got %s", t->name,
                        yk_dtype_name(sample->dtype));
    if (sample->dtype == YK_U8 && !(t->fill >= 0 && t->fill <= 255))
        return yk__fail(YK_ERR_ARGUMENT, "%s: fill %g is no value of a uint8 image, which are 0 to 255", t->name,
                        t->fill);
    return YK_OK;
}

/* Writes into m the inverse of: scale, shear (degrees), rotation by `angle` degrees, shift, with the image's middle as
 * origin. */
static void inverse_affine(double angle, const double shift[2], double scale, const double shear[2], double m[6])
{
    double turn = angle * M_PI / 180, sx = shear[0] * M_PI / 180, sy = shear[1] * M_PI / 180;
    double a = cos(turn - sy) / cos(sy), b = -cos(turn - sy) * tan(sx) / cos(sy) - sin(turn);
    double c = sin(turn - sy) / cos(sy), d = -sin(turn - sy) * tan(sx) / cos(sy) + cos(turn);
    m[0] = d / scale, m[1] = -b / scale;
    m[3] = -c / scale, m[4] = a / scale;
    m[2] = m[0] * -shift[0] + m[1] * -shift[1];
    m[5] = m[3] * -shift[0] + m[4] * -shift[1];
}

/* Writes the map that the former inverts, whose origin is the image's first corner. Products and sums are in
 * torchvision's order. */
static void forward_affine(warp *w, double angle, const double shift[2], double scale, const double shear[2])
{
    double turn = angle * M_PI / 180, sx = shear[0] * M_PI / 180, sy = shear[1] * M_PI / 180, *m = w->forward;
    double x = (double)w->in_width * 0.5, y = (double)w->in_height * 0.5;
    double a = cos(turn - sy) / cos(sy), c = sin(turn - sy) / cos(sy);
    double b = -(a * tan(sx) + sin(turn)), d = cos(turn) - c * tan(sx);
    m[0] = a * scale, m[1] = b * scale, m[3] = c * scale, m[4] = d * scale;
    m[2] = x + shift[0] - m[0] * x - m[1] * y;
    m[5] = y + shift[1] - m[3] * x - m[4] * y;
}

static yk_status warp_run(warp *w, yk_sample *sample)
{
    const void *from = sample->data;
    yk_dtype dtype = sample->dtype;
    yk__motion *motion = &sample->worker->motion;
    *motion = (yk__motion){.kind = YK__MOTION_WARP,
                           .in_height = w->in_height,
                           .in_width = w->in_width,
                           .height = w->height,
                           .width = w->width,
                           .tilted = w->tilted,
                           .expand = w->transform->expand};
    memcpy(motion->inverse, w->m, sizeof(w->m));
    memcpy(motion->forward, w->forward, sizeof(w->forward));
    void *to = yk_sample_allocate(sample, dtype, 3, (int64_t[]){w->channels, w->height, w->width});
    if (!to)
        return yk__error_code();
    if (dtype == YK_U8)
        warp_u8(w, from, to);
    else if (dtype == YK_F32)
        warp_f32(w, from, to);
    else
        warp_f64(w, from, to);
    return YK_OK;
}

static warp warp_of(const yk_transform *t, const yk_sample *sample)
{
    return (warp){.transform = t,
                  .channels = sample->shape[0],
                  .in_height = sample->shape[1],
                  .in_width = sample->shape[2],
                  .height = sample->shape[1],
                  .width = sample->shape[2]};
}

static double draw(const double range[2], yk_sample *sample)
{
    return range[0] + (range[1] - range[0]) * yk_sample_uniform(sample);
}

yk_status yk__warp_affine(const yk_transform *t, yk_sample *sample, double angle, const double shift[2],
                          const double shear[2], bool corner)
{
    warp w = warp_of(t, sample);
    double *m = w.m;
    inverse_affine(angle, shift, 1, shear, m);
    if (corner) { /* which stays where it is */
        double x = -0.5 * (double)w.width, y = -0.5 * (double)w.height;
        m[2] += x - m[0] * x - m[1] * y;
        m[5] += y - m[3] * x - m[4] * y;
    }
    return warp_run(&w, sample);
}

/* ---- random_rotation ------------------------------------------------------------------------------------- */
/* The size that holds the whole turned image: torchvision's, in float, with its tolerance of 1e-4. */
static void expand(warp *w)
{
    float half_x = 0.5f * (float)w->in_width, half_y = 0.5f * (float)w->in_height, size[2];
    for (int axis = 0; axis < 2; axis++) {
        const double *m = w->m + 3 * axis;
        float low = INFINITY, high = -INFINITY, half = axis ? half_y : half_x;
        for (int corner = 0; corner < 4; corner++) {
            float at = (corner & 1 ? half_x : -half_x) * (float)m[0] + (corner & 2 ? half_y : -half_y) * (float)m[1] +
                       (float)m[2];
            low = fminf(low, at), high = fmaxf(high, at);
        }
        size[axis] = ceilf(truncf((high + half) / 1e-4f) * 1e-4f) - floorf(truncf((low + half) / 1e-4f) * 1e-4f);
    }
    w->width = (int64_t)size[0];
    w->height = (int64_t)size[1];
}

static yk_status apply_rotation(const yk_transform *t, yk_sample *sample)
{
    yk_status status = warp_check(t, sample);
    if (status)
        return status;
    warp w = warp_of(t, sample);
    double angle = -draw(t->degrees, sample);
    inverse_affine(angle, (double[]){0, 0}, 1, (double[]){0, 0}, w.m);
    forward_affine(&w, angle, (double[]){0, 0}, 1, (double[]){0, 0});
    if (t->expand)
        expand(&w);
    return warp_run(&w, sample);
}

/* A range of finite numbers, of the transform `what`. */
static yk_status check_rising(const char *what, const char *name, double low, double high, double least, double most)
{
    if (yk__check_number(what, name, low, least, most) || yk__check_number(what, name, high, least, most))
        return yk__error_code();
    if (low > high)
        return yk__fail(YK_ERR_ARGUMENT, "%s: %s is %g to %g, expected a range that rises", what, name, low, high);
    return YK_OK;
}

enum { MOST_DEGREES = 1000000 };

yk_transform *yk_random_rotation(double low, double high, const yk_random_rotation_options *options)
{
    yk__transform_asked();
    yk_random_rotation_options o;
    if (YK__OPTIONS_TAKE("random_rotation", yk_random_rotation_options, options, &o) ||
        check_rising("random_rotation", "degrees", low, high, -MOST_DEGREES, MOST_DEGREES) ||
        yk__check_number("random_rotation", "fill", o.fill, -1e6, 1e6))
        return NULL;
    yk_transform *t = yk__transform_new(YK__TRANSFORM_PLACE, "random_rotation", apply_rotation);
    if (t) {
        t->degrees[0] = low, t->degrees[1] = high;
        t->bilinear = o.bilinear;
        t->expand = o.expand;
        t->fill = o.fill;
    }
    return yk__transform_own(t);
}

/* ---- random_affine --------------------------------------------------------------------------------------- */
static yk_status apply_affine(const yk_transform *t, yk_sample *sample)
{
    yk_status status = warp_check(t, sample);
    if (status)
        return status;
    warp w = warp_of(t, sample);
    double angle = draw(t->degrees, sample), shift[2], shear[2];
    for (int i = 0; i < 2; i++) {
        double most = t->translate[i] * (double)(i ? w.in_height : w.in_width);
        shift[i] = nearbyint(draw((double[]){-most, most}, sample));
    }
    double scale = draw(t->scale, sample);
    shear[0] = draw(t->shear, sample);
    shear[1] = draw(t->shear + 2, sample);
    inverse_affine(angle, shift, scale, shear, w.m);
    forward_affine(&w, angle, shift, scale, shear);
    return warp_run(&w, sample);
}

yk_transform *yk_random_affine(double low, double high, const yk_random_affine_options *options)
{
    static const char what[] = "random_affine";
    yk__transform_asked();
    yk_random_affine_options o;
    if (YK__OPTIONS_TAKE(what, yk_random_affine_options, options, &o) ||
        check_rising(what, "degrees", low, high, -MOST_DEGREES, MOST_DEGREES) ||
        yk__check_number(what, "translate", o.translate[0], 0, 1) ||
        yk__check_number(what, "translate", o.translate[1], 0, 1) || yk__check_positive(what, "scale", o.scale[0]) ||
        check_rising(what, "scale", o.scale[0], o.scale[1], 1e-6, 1e6) ||
        check_rising(what, "shear", o.shear[0], o.shear[1], -89, 89) ||
        check_rising(what, "shear", o.shear[2], o.shear[3], -89, 89) ||
        yk__check_number(what, "fill", o.fill, -1e6, 1e6))
        return NULL;
    yk_transform *t = yk__transform_new(YK__TRANSFORM_PLACE, what, apply_affine);
    if (t) {
        t->degrees[0] = low, t->degrees[1] = high;
        memcpy(t->translate, o.translate, sizeof(o.translate));
        memcpy(t->scale, o.scale, sizeof(o.scale));
        memcpy(t->shear, o.shear, sizeof(o.shear));
        t->bilinear = o.bilinear;
        t->fill = o.fill;
    }
    return yk__transform_own(t);
}

/* ---- random_perspective ---------------------------------------------------------------------------------- */
/* Solves the eight equations of four points, by elimination with the largest pivot. The corners of random_perspective
 * are near those of the image, in convex position, so there is one solution. */
void yk__perspective_map(const double corners[4][2], int64_t height, int64_t width, double map[8])
{
    const double w = (double)(width - 1), h = (double)(height - 1), from[4][2] = {{0, 0}, {w, 0}, {w, h}, {0, h}};
    double a[8][9] = {{0}};
    for (int i = 0; i < 4; i++) {
        double x = corners[i][0], y = corners[i][1];
        const double rows[2][9] = {{x, y, 1, 0, 0, 0, -from[i][0] * x, -from[i][0] * y, from[i][0]},
                                   {0, 0, 0, x, y, 1, -from[i][1] * x, -from[i][1] * y, from[i][1]}};
        memcpy(a[2 * i], rows, sizeof(rows));
    }
    for (int k = 0; k < 8; k++) {
        int best = k;
        for (int i = k + 1; i < 8; i++)
            best = fabs(a[i][k]) > fabs(a[best][k]) ? i : best;
        for (int j = 0; j < 9; j++) {
            double kept = a[k][j];
            a[k][j] = a[best][j];
            a[best][j] = kept;
        }
        for (int i = 0; i < 8; i++) {
            double factor = i == k || a[k][k] == 0 ? 0 : a[i][k] / a[k][k];
            for (int j = k; j < 9 && factor != 0; j++)
                a[i][j] -= factor * a[k][j];
        }
    }
    for (int k = 0; k < 8; k++)
        map[k] = a[k][k] == 0 ? 0 : (double)(float)(a[k][8] / a[k][k]);
}

yk_status yk__warp_perspective(const yk_transform *t, yk_sample *sample, const double map[8])
{
    warp w = warp_of(t, sample);
    memcpy(w.m, map, sizeof(w.m));
    w.tilted = true;
    return warp_run(&w, sample);
}

static yk_status apply_perspective(const yk_transform *t, yk_sample *sample)
{
    yk_status status = warp_check(t, sample);
    if (status || !yk__chance_draw(t, sample))
        return status;
    const int64_t sides[2] = {sample->shape[2], sample->shape[1]};
    double corners[4][2], map[8];
    for (int corner = 0; corner < 4; corner++) {
        for (int axis = 0; axis < 2; axis++) {
            bool far = axis ? corner >= 2 : corner == 1 || corner == 2;
            int64_t bound = (int64_t)(t->scale[0] * (double)(sides[axis] / 2)) + 1;
            int64_t at = yk_sample_below(sample, bound);
            corners[corner][axis] = (double)(far ? sides[axis] - bound + at : at);
        }
    }
    if (sides[0] < 2 || sides[1] < 2) /* whose corners are no four points */
        return YK_OK;
    yk__perspective_map((const double(*)[2])corners, sides[1], sides[0], map);
    return yk__warp_perspective(t, sample, map);
}

yk_transform *yk_random_perspective(const yk_random_perspective_options *options)
{
    static const char what[] = "random_perspective";
    yk__transform_asked();
    yk_random_perspective_options o;
    if (YK__OPTIONS_TAKE(what, yk_random_perspective_options, options, &o) ||
        yk__check_number(what, "distortion_scale", o.distortion_scale, 0, 1) ||
        yk__check_number(what, "p", o.p, 0, 1) || yk__check_number(what, "fill", o.fill, -1e6, 1e6))
        return NULL;
    yk_transform *t = yk__transform_new(YK__TRANSFORM_PLACE, what, apply_perspective);
    if (t) {
        t->scale[0] = o.distortion_scale;
        t->p = o.p;
        t->bilinear = !o.nearest;
        t->fill = o.fill;
    }
    return yk__transform_own(t);
}
