/*
 * targets.c - masks and boxes that go with a sample's image: transform_targets, sanitize_bounding_boxes. Layer: data.
 *
 * A step that moves pixels writes to the worker's `motion` what it did, whoever asks. The transform here runs the steps
 * of another one, and after each moves the masks and boxes by that: so the draws are the image's, and the image is the
 * one that it would be without them. Results are those of torchvision.transforms.v2: a mask's elements are the nearest
 * ones, whatever the image's are; boxes are computed in their own dtype (those of integers, where they are multiplied,
 * in float), are the smallest upright ones around what they became, and end at the image's edges after a crop or a
 * warp, but not after a flip or a resize, from which they do not go out.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"

/* ---- checks ------------------------------------------------------------------------------------------------------ */
/* Fails in the transform's name, with the tensor's form. */
static yk_status refuse(const yk_transform *t, const yk_sample *sample, int i, const char *is, const char *expected)
{
    char text[200];
    return yk__fail(YK_ERR_SHAPE, "%s: tensor %d is %s, and is %s; expected %s", t->name, i, is,
                    yk__sample_tensor_format(&sample->more[i - 1], text, sizeof(text)), expected);
}

static yk_status check_there(const yk_transform *t, const yk_sample *sample, int i, const char *is)
{
    if (i < sample->count)
        return YK_OK;
    return yk__fail(YK_ERR_SHAPE, "%s: tensor %d is to be %s, but the sample has %d tensor%s, of which 0 is the image",
                    t->name, i, is, sample->count, sample->count == 1 ? "" : "s");
}

/* Writes the element of a number, rounded where the dtype is of integers, and tells if the dtype reaches as far. */
static bool element_of(double number, yk_dtype dtype, unsigned char element[8])
{
    const double rounded = nearbyint(number), most = dtype == YK_BOOL ? 1 : 255;
    bool fits = rounded >= 0 && rounded <= most;
    switch (dtype) {
    case YK_F32: memcpy(element, &(float){(float)number}, 4); return true;
    case YK_F64: memcpy(element, &number, 8); return true;
    case YK_I64: memcpy(element, &(int64_t){(int64_t)rounded}, 8); return true;
    case YK_I32: memcpy(element, &(int32_t){(int32_t)rounded}, 4); return true;
    case YK_U8:
    case YK_BOOL: element[0] = fits ? (unsigned char)rounded : 0; return fits;
    case YK_F16:
    case YK_BF16:
    case YK__DTYPES: break;
    }
    return false;
}

static yk_status check_mask(const yk_transform *t, const yk_sample *sample, int i)
{
    yk_status status = check_there(t, sample, i, "a mask");
    if (status)
        return status;
    const yk_sample_tensor *mask = &sample->more[i - 1];
    unsigned char element[8];
    if (mask->dtype == YK_F16 || mask->dtype == YK_BF16)
        return yk__fail(YK_ERR_DTYPE,
                        "%s: tensor %d is a mask of %s, expected uint8, bool, int32, int64, float32 or float64",
                        t->name, i, yk_dtype_name(mask->dtype));
    if (!element_of(t->fill, mask->dtype, element))
        return yk__fail(YK_ERR_ARGUMENT, "%s: mask_fill %g is no value of tensor %d, a mask of %s", t->name, t->fill, i,
                        yk_dtype_name(mask->dtype));
    if ((mask->ndim == 2 || mask->ndim == 3) && mask->shape[mask->ndim - 2] == sample->shape[1] &&
        mask->shape[mask->ndim - 1] == sample->shape[2])
        return YK_OK;
    char expected[120];
    snprintf(expected, sizeof(expected), "(%lld, %lld), as the image is, or any number of those",
             (long long)sample->shape[1], (long long)sample->shape[2]);
    return refuse(t, sample, i, "a mask", expected);
}

static yk_status check_boxes(const yk_transform *t, const yk_sample *sample, int i)
{
    yk_status status = check_there(t, sample, i, "boxes");
    if (status)
        return status;
    const yk_sample_tensor *boxes = &sample->more[i - 1];
    if (boxes->ndim != 2 || boxes->shape[1] != 4)
        return refuse(t, sample, i, "boxes", "(N, 4), of left, top, right and bottom");
    if (boxes->dtype != YK_F32 && boxes->dtype != YK_F64 && boxes->dtype != YK_I64)
        return yk__fail(YK_ERR_DTYPE, "%s: tensor %d is boxes of %s, expected float32, float64 or int64", t->name, i,
                        yk_dtype_name(boxes->dtype));
    return YK_OK;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */
/* New memory for tensor i, whose first or last sizes change; what it was is read from `old` until the next call for i.
 */
static void *renew(yk_sample *sample, int i, const int64_t *shape, yk_sample_tensor *old)
{
    yk__data_worker *worker = sample->worker;
    yk_sample_tensor *tensor = &sample->more[i - 1];
    *old = *tensor;
    for (int d = 0; d < tensor->ndim; d++)
        tensor->shape[d] = shape[d];
    yk__buffer *to = &worker->before[i - 1];
    if (!yk__buffer_get(to, yk__sample_tensor_bytes(tensor))) {
        *tensor = *old;
        return NULL;
    }
    yk__buffer made = *to;
    *to = worker->more[i - 1];
    worker->more[i - 1] = made;
    tensor->data = made.data;
    return made.data;
}

/* ---- masks ------------------------------------------------------------------------------------------------------- */
/* The place along one side that `to` of `size` comes from where `from` became `size`: the nearest, in float, as
 * F.interpolate takes it (which of float64 computes some in double). */
static int64_t nearest(int64_t to, int64_t from, int64_t size)
{
    float at = floorf((float)to * ((float)from / (float)size));
    return at < (float)from ? (int64_t)at : from - 1;
}

/* Writes where in the plane each element of a mask comes from, -1 for outside. */
static void list_sources(const yk__motion *p, bool in_double, int64_t *from)
{
    if (p->kind == YK__MOTION_WARP) {
        yk__warp_sources(p, in_double, from);
        return;
    }
    for (int64_t row = 0; row < p->height; row++) {
        int64_t y = p->kind == YK__MOTION_RESIZE        ? nearest(row, p->window.height, p->height)
                    : p->kind == YK__MOTION_UPSIDE_DOWN ? p->height - 1 - row
                                                        : row;
        for (int64_t column = 0; column < p->width; column++, from++) {
            int64_t x = p->kind == YK__MOTION_RESIZE ? nearest(column, p->window.width, p->width)
                        : p->mirrored                ? p->width - 1 - column
                                                     : column;
            int64_t i = y + p->window.top, j = x + p->window.left;
            *from = i >= 0 && i < p->in_height && j >= 0 && j < p->in_width ? i * p->in_width + j : -1;
        }
    }
}

/* Copies `count` elements of a plane. The size is a constant where this is called. */
static inline void gather(size_t size, const unsigned char *data, const int64_t *from, int64_t count,
                          const unsigned char *fill, unsigned char *to)
{
    for (int64_t k = 0; k < count; k++)
        memcpy(to + (size_t)k * size, from[k] < 0 ? fill : data + (size_t)from[k] * size, size);
}

static yk_status move_mask(const yk_transform *t, yk_sample *sample, int i, const int64_t *from)
{
    const yk__motion *p = &sample->worker->motion;
    const yk_sample_tensor *mask = &sample->more[i - 1];
    int64_t planes = mask->ndim == 3 ? mask->shape[0] : 1, count = p->height * p->width;
    yk_sample_tensor old;
    unsigned char *to = renew(
        sample, i, mask->ndim == 3 ? (int64_t[]){planes, p->height, p->width} : (int64_t[]){p->height, p->width}, &old);
    if (!to)
        return YK_ERR_MEMORY;
    unsigned char fill[8];
    element_of(t->fill, old.dtype, fill);
    size_t size = yk_dtype_size(old.dtype);
    const unsigned char *data = old.data;
    for (int64_t c = 0; c < planes; c++) {
        if (size == 1)
            gather(1, data, from, count, fill, to);
        else if (size == 4)
            gather(4, data, from, count, fill, to);
        else
            gather(8, data, from, count, fill, to);
        data += (size_t)(p->in_height * p->in_width) * size;
        to += (size_t)count * size;
    }
    return YK_OK;
}

static yk_status move_masks(const yk_transform *t, yk_sample *sample)
{
    const yk__motion *p = &sample->worker->motion;
    int64_t *from = yk__buffer_get(&sample->worker->sources, (size_t)(p->height * p->width) * sizeof(int64_t));
    if (!from)
        return YK_ERR_MEMORY;
    bool made = false, made_in_double = false;
    for (int k = 0; t->masks[k]; k++) {
        bool in_double = sample->more[t->masks[k] - 1].dtype == YK_F64;
        if (!made || in_double != made_in_double)
            list_sources(p, in_double, from);
        made = true, made_in_double = in_double;
        yk_status status = move_mask(t, sample, t->masks[k], from);
        if (status)
            return status;
    }
    return YK_OK;
}

/* ---- boxes ------------------------------------------------------------------------------------------------------- */
/* Numbers that no sum here makes too large; no image reaches as far. */
static int64_t limited(int64_t x)
{
    const int64_t most = (int64_t)1 << 40;
    return x < -most ? -most : x > most ? most : x;
}

static int64_t whole(float x)
{
    return isnan(x) ? 0 : (int64_t)x;
}

/* The map of a tilted warp, backwards: (x, y) becomes (m[0] x + m[1] y + m[2], m[3] x + m[4] y + m[5]) over m[6] x +
 * m[7] y + m[8], which is the inverse of the matrix of the other but for a factor. */
static void invert_tilted(const double c[8], double m[9])
{
    double d = c[0] * c[4] - c[1] * c[3], factor = d == 0 ? 1 : d;
    const double inverse[9] = {c[4] - c[5] * c[7],         -c[1] + c[2] * c[7],        c[1] * c[5] - c[2] * c[4],
                               -c[3] + c[5] * c[6],        c[0] - c[2] * c[6],         -c[0] * c[5] + c[2] * c[3],
                               -c[4] * c[6] + c[3] * c[7], -c[0] * c[7] + c[1] * c[6], d};
    for (int i = 0; i < 9; i++)
        m[i] = inverse[i] / factor;
}

/* Boxes of T; R is the type of products. An edge that is no number stays so. */
#define BOXES_FUNCTION(dtype, T, R, limited_, whole_)                                                                  \
    static T clamp_##dtype(T x, int64_t most)                                                                          \
    {                                                                                                                  \
        return x < 0 ? 0 : x > (T)most ? (T)most : x;                                                                  \
    }                                                                                                                  \
    static void crop_##dtype(const yk__motion *p, T box[4])                                                            \
    {                                                                                                                  \
        for (int i = 0; i < 4; i++) {                                                                                  \
            int64_t side = i % 2 ? p->in_height : p->in_width, size = i % 2 ? p->window.height : p->window.width;      \
            int64_t begin = i % 2 ? p->window.top : p->window.left;                                                    \
            if (p->padding)                                                                                            \
                box[i] = clamp_##dtype(box[i] + (T)p->padding, side + 2 * p->padding);                                 \
            box[i] = clamp_##dtype(box[i] - (T)(begin + p->padding), size);                                            \
        }                                                                                                              \
    }                                                                                                                  \
    static void resize_##dtype(const yk__motion *p, T box[4])                                                          \
    {                                                                                                                  \
        if (p->height == p->window.height && p->width == p->window.width)                                              \
            return;                                                                                                    \
        R x = (R)(float)((double)p->width / (double)p->window.width);                                                  \
        R y = (R)(float)((double)p->height / (double)p->window.height);                                                \
        for (int i = 0; i < 4; i++)                                                                                    \
            box[i] = whole_((R)box[i] * (i % 2 ? y : x));                                                              \
    }                                                                                                                  \
    static void extent_##dtype(const R m[9], bool tilted, const R box[4], R low[2], R high[2])                         \
    {                                                                                                                  \
        low[0] = low[1] = INFINITY, high[0] = high[1] = -INFINITY;                                                     \
        for (int corner = 0; corner < 4; corner++) {                                                                   \
            R x = box[corner & 1 ? 2 : 0], y = box[corner & 2 ? 3 : 1];                                                \
            R divisor = tilted ? x * m[6] + y * m[7] + m[8] : 1;                                                       \
            for (int axis = 0; axis < 2; axis++) {                                                                     \
                R at = (x * m[3 * axis] + y * m[3 * axis + 1] + m[3 * axis + 2]) / divisor;                            \
                low[axis] = at < low[axis] || isnan(at) ? at : low[axis];                                              \
                high[axis] = at > high[axis] || isnan(at) ? at : high[axis];                                           \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void warp_##dtype(const yk__motion *p, T box[4])                                                            \
    {                                                                                                                  \
        double map[9] = {0};                                                                                           \
        if (p->tilted)                                                                                                 \
            invert_tilted(p->inverse, map);                                                                            \
        else                                                                                                           \
            memcpy(map, p->forward, sizeof(p->forward));                                                               \
        R m[9], edges[4], low[2], high[2], begin[2] = {0, 0}, unused[2];                                               \
        for (int i = 0; i < 9; i++)                                                                                    \
            m[i] = (R)map[i];                                                                                          \
        if (p->expand)                                                                                                 \
            extent_##dtype(m, false, (R[4]){0, 0, (R)p->in_width, (R)p->in_height}, begin, unused);                    \
        for (int i = 0; i < 4; i++)                                                                                    \
            edges[i] = (R)box[i];                                                                                      \
        extent_##dtype(m, p->tilted, edges, low, high);                                                                \
        for (int i = 0; i < 4; i++) {                                                                                  \
            R at = (i < 2 ? low : high)[i % 2] - begin[i % 2], most = (R)(i % 2 ? p->height : p->width);               \
            box[i] = whole_(at < 0 ? 0 : at > most ? most : at);                                                       \
        }                                                                                                              \
    }                                                                                                                  \
    static void move_##dtype(const yk__motion *p, const void *data, int64_t count, void *data_to)                      \
    {                                                                                                                  \
        T *to = data_to;                                                                                               \
        for (int64_t n = 0; n < count; n++, to += 4) {                                                                 \
            T box[4];                                                                                                  \
            memcpy(box, (const T *)data + 4 * n, sizeof(box));                                                         \
            for (int i = 0; i < 4; i++)                                                                                \
                box[i] = limited_(box[i]);                                                                             \
            if (p->kind == YK__MOTION_WARP)                                                                            \
                warp_##dtype(p, box);                                                                                  \
            else if (p->clamped)                                                                                       \
                crop_##dtype(p, box);                                                                                  \
            if (p->kind == YK__MOTION_RESIZE)                                                                          \
                resize_##dtype(p, box);                                                                                \
            bool flips[2] = {p->mirrored, p->kind == YK__MOTION_UPSIDE_DOWN};                                          \
            for (int axis = 0; axis < 2; axis++) {                                                                     \
                T side = (T)(axis ? p->in_height : p->in_width), low = box[axis], high = box[axis + 2];                \
                if (flips[axis])                                                                                       \
                    box[axis] = side - high, box[axis + 2] = side - low;                                               \
            }                                                                                                          \
            memcpy(to, box, sizeof(box));                                                                              \
        }                                                                                                              \
    }

BOXES_FUNCTION(f32, float, float, , )
BOXES_FUNCTION(f64, double, double, , )
BOXES_FUNCTION(i64, int64_t, float, limited, whole)

static yk_status move_boxes(yk_sample *sample, int i)
{
    const yk__motion *p = &sample->worker->motion;
    yk_sample_tensor old;
    void *to = renew(sample, i, sample->more[i - 1].shape, &old);
    if (!to)
        return YK_ERR_MEMORY;
    if (old.dtype == YK_F32)
        move_f32(p, old.data, old.shape[0], to);
    else if (old.dtype == YK_F64)
        move_f64(p, old.data, old.shape[0], to);
    else
        move_i64(p, old.data, old.shape[0], to);
    return YK_OK;
}

/* ---- transform_targets ------------------------------------------------------------------------------------------- */
static yk_status apply_targets(const yk_transform *t, yk_sample *sample)
{
    yk_status status = yk__sample_is_image(t, sample);
    for (int k = 0; t->masks[k] && !status; k++)
        status = check_mask(t, sample, t->masks[k]);
    for (int k = 0; t->boxes[k] && !status; k++)
        status = check_boxes(t, sample, t->boxes[k]);
    for (int step = 0; step < t->count && !status; step++) {
        yk__motion *motion = &sample->worker->motion;
        motion->kind = YK__MOTION_SAME;
        status = t->items[step]->apply(t->items[step], sample);
        if (!status)
            status = yk__error_code();
        if (status || motion->kind == YK__MOTION_SAME)
            continue;
        if (t->masks[0])
            status = move_masks(t, sample);
        for (int k = 0; t->boxes[k] && !status; k++)
            status = move_boxes(sample, t->boxes[k]);
    }
    return status;
}

/* Copies a list of tensors that ends with a 0. `taken` has a bit for each that is in a list already. */
static yk_status take_list(const char *what, const char *name, const int given[YK_SAMPLE_TENSORS - 1],
                           int list[YK_SAMPLE_TENSORS], unsigned *taken)
{
    int count = 0;
    for (int k = 0; k < YK_SAMPLE_TENSORS - 1; k++) {
        yk_status status = yk__check_integer(what, name, given[k], 0, YK_SAMPLE_TENSORS - 1);
        if (status)
            return status;
        if (given[k] && count < k)
            return yk__fail(YK_ERR_ARGUMENT, "%s: %s has tensor 0 in front of %d; 0 is the image, and ends the list",
                            what, name, given[k]);
        if (given[k] && *taken & 1u << given[k])
            return yk__fail(YK_ERR_ARGUMENT, "%s: %s has tensor %d, which is named twice", what, name, given[k]);
        *taken |= given[k] ? 1u << given[k] : 0;
        if (given[k])
            list[count++] = given[k];
    }
    return YK_OK;
}

/* Counts the steps of a transform, or writes them, retained, and fails at one that targets cannot go along with. */
static yk_status list_items(const char *what, yk_transform *t, yk_transform **items, int *count)
{
    if (t->kind == YK__TRANSFORM_COMPOSE) {
        for (int i = 0; i < t->count; i++) {
            yk_status status = list_items(what, t->items[i], items, count);
            if (status)
                return status;
        }
        return YK_OK;
    }
    if (t->kind == YK__TRANSFORM_USER)
        return yk__fail(YK_ERR_ARGUMENT,
                        "%s: \"%s\" is a transform of the program's own, and may move pixels: compose it with "
                        "transform_targets, where it sees all tensors",
                        what, t->name);
    if (t->kind == YK__TRANSFORM_RAND_AUGMENT || t->kind == YK__TRANSFORM_TARGETS)
        return yk__fail(YK_ERR_ARGUMENT, "%s: masks and boxes cannot go along with %s%s", what, t->name,
                        t->kind == YK__TRANSFORM_TARGETS ? "; give all of them to one" : "");
    if (items)
        items[*count] = yk_transform_retain(t);
    ++*count;
    return YK_OK;
}

yk_transform *yk_transform_targets(yk_transform *transform, const yk_transform_targets_options *options)
{
    static const char what[] = "transform_targets";
    if (yk__transform_lost(transform))
        return NULL;
    yk__transform_asked();
    yk_transform_targets_options o;
    int masks[YK_SAMPLE_TENSORS] = {0}, boxes[YK_SAMPLE_TENSORS] = {0}, count = 0;
    unsigned taken = 0;
    if (YK__OPTIONS_TAKE(what, yk_transform_targets_options, options, &o))
        return NULL;
    if (yk__is_freed(transform)) {
        yk__fail_freed("yk_transform_targets", transform);
        return NULL;
    }
    if (!yk__is_there(what, "transform", transform) || take_list(what, "masks", o.masks, masks, &taken) ||
        take_list(what, "boxes", o.boxes, boxes, &taken) ||
        yk__check_number(what, "mask_fill", o.mask_fill, -1e6, 1e6) || list_items(what, transform, NULL, &count))
        return NULL;
    if (!taken) {
        yk__fail(YK_ERR_ARGUMENT, "%s: neither masks nor boxes are given", what);
        return NULL;
    }
    yk_transform *t = yk__transform_new(YK__TRANSFORM_TARGETS, what, apply_targets);
    if (!t)
        return NULL;
    t->items = yk__calloc((size_t)count, sizeof(*t->items));
    if (!t->items) {
        yk_object_release(t);
        return NULL;
    }
    list_items(what, transform, t->items, &t->count);
    memcpy(t->masks, masks, sizeof(masks));
    memcpy(t->boxes, boxes, sizeof(boxes));
    t->fill = o.mask_fill;
    return yk__transform_own(t);
}

/* ---- sanitize_bounding_boxes ------------------------------------------------------------------------------------- */
static double edge(const yk_sample_tensor *boxes, int64_t i)
{
    const char *data = boxes->data;
    float single;
    double number;
    int64_t integer;
    if (boxes->dtype == YK_F32) {
        memcpy(&single, data + 4 * i, sizeof(single));
        return (double)single;
    }
    if (boxes->dtype == YK_F64) {
        memcpy(&number, data + 8 * i, sizeof(number));
        return number;
    }
    memcpy(&integer, data + 8 * i, sizeof(integer));
    return (double)integer;
}

/* The number, rounded to the dtype of the boxes. */
static double in_dtype(const yk_sample_tensor *boxes, double number)
{
    return boxes->dtype == YK_F32 ? (double)(float)number : number;
}

static bool is_valid(const yk_transform *t, const yk_sample *sample, const yk_sample_tensor *boxes, int64_t n)
{
    double at[4];
    for (int i = 0; i < 4; i++) {
        at[i] = edge(boxes, 4 * n + i);
        if (!(at[i] >= 0 && at[i] <= (double)sample->shape[i % 2 ? 1 : 2]))
            return false;
    }
    double width = in_dtype(boxes, at[2] - at[0]), height = in_dtype(boxes, at[3] - at[1]);
    double least = in_dtype(boxes, t->min_size);
    return width >= least && height >= least && in_dtype(boxes, width * height) >= in_dtype(boxes, t->min_area);
}

/* Leaves the rows of tensor i, of `boxes`, whose boxes are valid. */
static yk_status keep_rows(const yk_transform *t, yk_sample *sample, int i, const yk_sample_tensor *boxes, int64_t kept)
{
    const yk_sample_tensor *tensor = &sample->more[i - 1];
    int64_t shape[YK_MAX_DIMS - 1] = {0};
    memcpy(shape, tensor->shape, sizeof(int64_t) * (size_t)tensor->ndim);
    shape[0] = kept;
    size_t row = yk__sample_tensor_bytes(tensor) / (size_t)boxes->shape[0];
    yk_sample_tensor old;
    char *to = renew(sample, i, shape, &old);
    if (!to)
        return YK_ERR_MEMORY;
    for (int64_t n = 0; n < boxes->shape[0]; n++) {
        if (!is_valid(t, sample, boxes, n))
            continue;
        memcpy(to, (const char *)old.data + (size_t)n * row, row);
        to += row;
    }
    return YK_OK;
}

static yk_status apply_sanitize(const yk_transform *t, yk_sample *sample)
{
    int at = t->boxes[0];
    yk_status status = yk__sample_is_image(t, sample);
    if (!status)
        status = check_boxes(t, sample, at);
    if (status)
        return status;
    yk_sample_tensor boxes = sample->more[at - 1];
    int64_t count = boxes.shape[0], kept = 0;
    for (int k = 0; t->labels[k]; k++) {
        int i = t->labels[k];
        status = check_there(t, sample, i, "labels");
        if (status)
            return status;
        if (sample->more[i - 1].ndim < 1 || sample->more[i - 1].shape[0] != count) {
            char expected[80];
            snprintf(expected, sizeof(expected), "a row for each of the %lld boxes", (long long)count);
            return refuse(t, sample, i, "labels", expected);
        }
    }
    for (int64_t n = 0; n < count; n++)
        kept += is_valid(t, sample, &boxes, n);
    if (kept == count)
        return YK_OK;
    for (int k = 0; t->labels[k] && !status; k++)
        status = keep_rows(t, sample, t->labels[k], &boxes, kept);
    return status ? status : keep_rows(t, sample, at, &boxes, kept); /* last: the others ask them */
}

yk_transform *yk_sanitize_bounding_boxes(int boxes, const yk_sanitize_bounding_boxes_options *options)
{
    static const char what[] = "sanitize_bounding_boxes";
    yk__transform_asked();
    yk_sanitize_bounding_boxes_options o;
    int labels[YK_SAMPLE_TENSORS] = {0};
    if (YK__OPTIONS_TAKE(what, yk_sanitize_bounding_boxes_options, options, &o) ||
        yk__check_integer(what, "boxes", boxes, 1, YK_SAMPLE_TENSORS - 1))
        return NULL;
    unsigned taken = 1u << boxes;
    if (take_list(what, "labels", o.labels, labels, &taken) ||
        yk__check_number(what, "min_size", o.min_size, 1, INFINITY) ||
        yk__check_number(what, "min_area", o.min_area, 1, INFINITY))
        return NULL;
    yk_transform *t = yk__transform_new(YK__TRANSFORM_SANITIZE, what, apply_sanitize);
    if (t) {
        t->boxes[0] = boxes;
        memcpy(t->labels, labels, sizeof(labels));
        t->min_size = o.min_size;
        t->min_area = o.min_area;
    }
    return yk__transform_own(t);
}
