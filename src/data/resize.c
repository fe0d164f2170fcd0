/*
 * resize.c - bilinear resizing with antialiasing, the same bytes as PIL's (what torchvision uses). Layer: data.
 *
 * Shrinking by a factor s widens the triangle filter to s source pixels on either side, so every source pixel counts.
 * Rows are done first, then columns; each pass rounds its weights to 22 fractional bits, sums in integers and rounds
 * to a byte. Doing it in this order and precision is what makes the bytes equal. The sums are the device table's
 * (resample); this file says what is summed.
 *
 * Note [What a picture is needed for]
 * Most of a resized picture is often thrown away: the middle is kept, or a random part was chosen before. A yk__resize
 * says which part of the source becomes which size, and which window of that is wanted; only those bytes are computed,
 * and a decoder that knows it beforehand (yk__resize_wanted) leaves the rest of the picture out. The bytes are those of
 * the steps one after the other.
 */
#include <math.h>
#include <string.h>

#include "data/dataset.h"
#include "device/table.h"

/* ---- weights --------------------------------------------------------------------------------------------- */
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

/* The source positions [*first, *end) that count for position `o` of `out`. */
static void filter_reach(int64_t in, int64_t out, int64_t o, int64_t *first, int64_t *end)
{
    double scale = (double)in / (double)out, widened = scale < 1 ? 1 : scale, center = ((double)o + 0.5) * scale;
    *first = (int64_t)(center - widened + 0.5);
    *end = (int64_t)(center + widened + 0.5);
    *first = *first < 0 ? 0 : *first;
    *end = *end > in ? in : *end;
}

/* The filter from `in` to `out` positions, of the outputs [begin, begin + count); memory as filter_ints says. */
static size_t filter_ints(int64_t in, int64_t out, int64_t count)
{
    return (size_t)(count * (filter_most(in, out) + 2));
}

static yk__resample_filter filter_make(int64_t in, int64_t out, int64_t begin, int64_t count, int *memory)
{
    int64_t most = filter_most(in, out);
    int *firsts = memory, *counts = memory + count, *weights = memory + 2 * count;
    double scale = (double)in / (double)out, widened = scale < 1 ? 1 : scale;
    for (int64_t o = 0; o < count; o++) {
        int64_t first, end;
        filter_reach(in, out, begin + o, &first, &end);
        double center = ((double)(begin + o) + 0.5) * scale, total = 0;
        for (int64_t i = first; i < end; i++)
            total += triangle(i, center, widened);
        for (int64_t i = first; i < end; i++)
            weights[o * most + i - first] =
                (int)(triangle(i, center, widened) / total * (1 << YK__RESAMPLE_FRACTION) + 0.5);
        firsts[o] = (int)first;
        counts[o] = (int)(end - first);
    }
    return (yk__resample_filter){.out = count, .most = most, .first = firsts, .count = counts, .weights = weights};
}

/* ---- what becomes what ----------------------------------------------------------------------------------- */
/* The size that the shorter side being `size` gives. */
static void resized(int64_t size, int64_t *height, int64_t *width)
{
    int64_t in_height = *height, in_width = *width;
    int64_t *shorter = in_height <= in_width ? height : width, *longer = in_height <= in_width ? width : height;
    int64_t least = in_height <= in_width ? in_height : in_width, most = in_height + in_width - least;
    *shorter = size;
    *longer = (int64_t)((double)(size * most) / (double)least);
}

/*
 * The part that RandomResizedCrop takes: ten tries of an area and a ratio, then the largest middle part of a ratio that
 * is allowed. Draws twice a try, and twice more for the position.
 */
static void draw_part(const yk_transform *t, yk_sample *sample, int64_t in_height, int64_t in_width,
                      yk__rectangle *part)
{
    double area = (double)in_height * (double)in_width, low = log(t->ratio[0]), high = log(t->ratio[1]);
    for (int attempt = 0; attempt < 10; attempt++) {
        double target = area * (t->scale[0] + (t->scale[1] - t->scale[0]) * yk_sample_uniform(sample));
        double ratio = exp(low + (high - low) * yk_sample_uniform(sample));
        int64_t width = llrint(sqrt(target * ratio)), height = llrint(sqrt(target / ratio));
        if (width > 0 && width <= in_width && height > 0 && height <= in_height) {
            int64_t top = yk_sample_below(sample, in_height - height + 1);
            *part = (yk__rectangle){top, yk_sample_below(sample, in_width - width + 1), height, width};
            return;
        }
    }
    double ratio = (double)in_width / (double)in_height;
    int64_t height = in_height, width = in_width;
    if (ratio < t->ratio[0])
        height = llrint((double)width / t->ratio[0]);
    else if (ratio > t->ratio[1])
        width = llrint((double)height * t->ratio[1]);
    *part = (yk__rectangle){(in_height - height) / 2, (in_width - width) / 2, height, width};
}

yk_status yk__resize_plan(const yk_transform *t, yk_sample *sample, int64_t planes, int64_t in_height, int64_t in_width,
                          yk__resize *plan)
{
    plan->source = (yk__rectangle){0, 0, in_height, in_width};
    plan->height = t->height;
    plan->width = t->width;
    if (t->kind == YK__TRANSFORM_RANDOM_RESIZED_CROP) {
        draw_part(t, sample, in_height, in_width, &plan->source);
        plan->height = plan->width = t->size;
    } else if (t->size) {
        plan->height = in_height;
        plan->width = in_width;
        resized(t->size, &plan->height, &plan->width);
    }
    size_t numel;
    if (__builtin_mul_overflow((size_t)plan->height, (size_t)plan->width * (size_t)planes, &numel) || numel > (size_t)1
                                                                                                                  << 31)
        return yk__fail(YK_ERR_SHAPE, "%s: an image of %lldx%lld would become %lldx%lld, more than 2 GiB", t->name,
                        (long long)in_height, (long long)in_width, (long long)plan->height, (long long)plan->width);
    plan->window = (yk__rectangle){0, 0, plan->height, plan->width};
    return YK_OK;
}

void yk__resize_center(yk__resize *plan, int64_t size)
{
    if (size <= plan->height && size <= plan->width)
        plan->window = (yk__rectangle){yk__middle(plan->height, size), yk__middle(plan->width, size), size, size};
}

yk_status yk__worker_plan(yk__data_worker *worker, yk_sample *sample, int64_t planes, int64_t height, int64_t width)
{
    yk_status status = yk__resize_plan(worker->resize, sample, planes, height, width, &worker->plan);
    if (!status && worker->center)
        yk__resize_center(&worker->plan, worker->center->size);
    worker->planned = !status;
    return status;
}

yk__rectangle yk__resize_wanted(const yk__resize *plan)
{
    const yk__rectangle *source = &plan->source, *window = &plan->window;
    int64_t top, bottom, left, right, other;
    filter_reach(source->height, plan->height, window->top, &top, &other);
    filter_reach(source->height, plan->height, window->top + window->height - 1, &other, &bottom);
    filter_reach(source->width, plan->width, window->left, &left, &other);
    filter_reach(source->width, plan->width, window->left + window->width - 1, &other, &right);
    return (yk__rectangle){source->top + top, source->left + left, bottom - top, right - left};
}

yk_status yk__resize_run(const yk__resize *plan, yk_sample *sample)
{
    const yk__rectangle *source = &plan->source, *window = &plan->window;
    yk__data_worker *worker = sample->worker;
    int64_t planes = sample->shape[0], in_height = sample->shape[1], in_width = sample->shape[2];
    yk__rectangle wanted = yk__resize_wanted(plan);
    const unsigned char *from = sample->data;
    if (window->height == in_height && window->width == in_width && source->height == in_height &&
        source->width == in_width && plan->height == in_height && plan->width == in_width)
        return YK_OK;
    size_t row_ints = filter_ints(source->width, plan->width, window->width);
    size_t column_ints = filter_ints(source->height, plan->height, window->height);
    int *memory = yk__buffer_get(&worker->weights, (row_ints + column_ints) * sizeof(int));
    size_t between = (size_t)(wanted.height * window->width);
    size_t scratch = (size_t)(wanted.width + window->width) * YK__RESAMPLE_GROUP;
    unsigned char *rows = memory ? yk__buffer_get(&worker->rows, between + scratch) : NULL;
    int64_t shape[] = {planes, window->height, window->width};
    unsigned char *to = rows ? yk_sample_allocate(sample, YK_U8, 3, shape) : NULL;
    if (!to)
        return YK_ERR_MEMORY;
    yk__backend_of((yk_device){0})
        ->resample(&(yk__resample){
            .from = from + source->top * in_width + source->left,
            .planes = planes,
            .plane_stride = in_height * in_width,
            .row_stride = in_width,
            .horizontal = filter_make(source->width, plan->width, window->left, window->width, memory),
            .vertical = filter_make(source->height, plan->height, window->top, window->height, memory + row_ints),
            .between = rows,
            .scratch = rows + between,
            .to = to});
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
    yk__resize plan;
    status = yk__resize_plan(t, sample, sample->shape[0], sample->shape[1], sample->shape[2], &plan);
    if (status)
        return status;
    sample->worker->motion = (yk__motion){.kind = YK__MOTION_RESIZE,
                                          .in_height = sample->shape[1],
                                          .in_width = sample->shape[2],
                                          .height = plan.height,
                                          .width = plan.width,
                                          .window = plan.source,
                                          .clamped = t->kind == YK__TRANSFORM_RANDOM_RESIZED_CROP};
    return yk__resize_run(&plan, sample);
}
