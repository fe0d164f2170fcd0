/*
 * pipeline.c - from an index to finished elements: get, transforms, and the one-pass form of the usual chain.
 * Layer: data.
 *
 * Note [One pass]
 * The chain [resize [center_crop] or random_resized_crop] is one step, which computes only what is left of the picture
 * in the end (resize.c). After it, the chain [random_crop] [flip] [to_tensor] [normalize] on a u8 image maps each
 * output element to one input byte or to padding, and a byte in a channel to one number. So the numbers are tabulated
 * once, 256 a channel, by the same functions that define the steps, and a sample is one walk over its output: look up,
 * write. The results are those of the steps bit for bit, without a division or an intermediate copy.
 */
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"

static int count_steps(const yk_transform *t)
{
    if (!t)
        return 0;
    if (t->kind != YK__TRANSFORM_COMPOSE)
        return 1;
    int count = 0;
    for (int i = 0; i < t->count; i++)
        count += count_steps(t->items[i]);
    return count;
}

static void list_steps(const yk_transform *t, const yk_transform **steps, int *count)
{
    if (t && t->kind != YK__TRANSFORM_COMPOSE)
        steps[(*count)++] = t;
    for (int i = 0; t && i < t->count; i++)
        list_steps(t->items[i], steps, count);
}

/* Moves past steps[*at] if it is of that kind, and gives it. */
static const yk_transform *accept(const yk__pipeline *p, int *at, yk__transform_kind kind)
{
    return *at < p->count && p->steps[*at]->kind == kind ? p->steps[(*at)++] : NULL;
}

static yk_status plan(yk__pipeline *p)
{
    int at = 0;
    p->resize = accept(p, &at, YK__TRANSFORM_RESIZE);
    p->center = p->resize ? accept(p, &at, YK__TRANSFORM_CENTER_CROP) : NULL;
    if (!p->resize)
        p->resize = accept(p, &at, YK__TRANSFORM_RANDOM_RESIZED_CROP);
    p->rest = at;
    p->crop = accept(p, &at, YK__TRANSFORM_CROP);
    p->flip = accept(p, &at, YK__TRANSFORM_FLIP);
    accept(p, &at, YK__TRANSFORM_TO_TENSOR);
    p->normalize = accept(p, &at, YK__TRANSFORM_NORMALIZE);
    p->fusable = at == p->count;
    if (!p->fusable)
        return YK_OK;
    int channels = p->normalize ? p->normalize->channels : 1;
    p->table = yk__calloc((size_t)channels * 256, yk_dtype_size(p->dtype));
    if (!p->table)
        return YK_ERR_MEMORY;
    for (int i = 0; i < channels * 256; i++) {
        if (p->dtype == YK_F32)
            ((float *)p->table)[i] = yk__pixel_f32(p->normalize, i / 256, (unsigned)i % 256);
        else
            ((double *)p->table)[i] = yk__pixel_f64(p->normalize, i / 256, (unsigned)i % 256);
    }
    return YK_OK;
}

yk_status yk__pipeline_init(yk__pipeline *p, const yk_dataset *dataset, yk_dtype dtype)
{
    *p = (yk__pipeline){.dataset = dataset, .dtype = dtype};
    if (dtype != YK_F32 && dtype != YK_F64)
        return yk__fail(YK_ERR_DTYPE, "%s: dtype is %s (%d), expected float32 or float64", dataset->table.name,
                        yk_dtype_name(dtype), (int)dtype);
    p->steps = yk__calloc((size_t)count_steps(dataset->transform), sizeof(*p->steps));
    if (!p->steps)
        return YK_ERR_MEMORY;
    list_steps(dataset->transform, p->steps, &p->count);
    yk_status status = plan(p);
    if (status)
        yk__pipeline_clear(p);
    return status;
}

void yk__pipeline_clear(yk__pipeline *p)
{
    free(p->steps);
    free(p->table);
    *p = (yk__pipeline){0};
}

/* ---- loading --------------------------------------------------------------------------------------------- */
static yk_status get(const yk_dataset *dataset, int64_t index, yk_sample *sample)
{
    const yk_dataset_table *table = &dataset->table;
    yk_status status = table->get(dataset->context, index, sample);
    if (!status)
        status = yk__error_code(); /* a callback that sets an error has failed, whatever it returns */
    if (status) {
        if (!yk__error_code())
            yk__fail(YK_ERR_CALLBACK, "get failed with status \"%s\" and set no error", yk_status_name(status));
        return status;
    }
    if (!sample->data || yk__sample_numel(sample) == 0) {
        char text[200];
        return yk__fail(YK_ERR_CALLBACK,
                        "get left a sample without elements, or of a shape or dtype it may not have: %s",
                        yk__sample_format(sample, text, sizeof(text)));
    }
    for (int i = 1; i < sample->count; i++) {
        const yk_sample_tensor *tensor = &sample->more[i - 1];
        if (!tensor->data && yk__sample_tensor_bytes(tensor))
            return yk__fail(YK_ERR_CALLBACK, "get left tensor %d of %d without elements", i, sample->count);
    }
    int64_t label = 0;
    if (table->classes && yk__sample_has_label(sample, &label) && (label < 0 || label >= table->classes))
        return yk__fail(YK_ERR_FORMAT, "label %lld is outside [0, %lld)", (long long)label, (long long)table->classes);
    return YK_OK;
}

static yk_status prepare_one_pass(const yk__pipeline *p, yk__loaded *loaded)
{
    yk_sample *sample = &loaded->sample;
    loaded->fused = true;
    loaded->height = sample->shape[1];
    loaded->width = sample->shape[2];
    if (p->crop) {
        yk_status status = yk__crop_draw(p->crop, sample, &loaded->top, &loaded->left);
        if (status)
            return status;
        sample->shape[1] = sample->shape[2] = p->crop->size;
    }
    loaded->mirrored = p->flip && yk__flip_draw(p->flip, sample);
    return YK_OK;
}

/* Steps `first` and on. */
static yk_status run_steps(const yk__pipeline *p, int first, yk_sample *sample)
{
    for (int i = first; i < p->count; i++) {
        yk_status status = p->steps[i]->apply(p->steps[i], sample);
        if (!status)
            status = yk__error_code();
        if (status)
            return status;
    }
    return yk__sample_to_float(sample);
}

/* A resize of a kind, and the middle of it. */
static yk_status run_resize(const yk__pipeline *p, yk_sample *sample)
{
    yk__data_worker *worker = sample->worker;
    const int64_t *shape = sample->shape;
    yk_status status = worker->planned ? YK_OK : yk__worker_plan(worker, sample, shape[0], shape[1], shape[2]);
    if (!status)
        status = yk__resize_run(&worker->plan, sample);
    if (!status && p->center) /* what the plan could not leave out: zeros around */
        status = p->center->apply(p->center, sample);
    return status;
}

yk_status yk__pipeline_load(const yk__pipeline *p, yk__data_worker *worker, uint64_t seed, int64_t epoch, int64_t index,
                            yk__loaded *loaded)
{
    const yk_dataset *dataset = p->dataset;
    if (index < 0 || index >= dataset->table.length)
        return yk__fail(YK_ERR_ARGUMENT, "%s: sample %lld is outside [0, %lld)", dataset->table.name, (long long)index,
                        (long long)dataset->table.length);
    worker->dtype = p->dtype;
    worker->seed = seed;
    worker->drawn = 0;
    worker->resize = p->resize;
    worker->center = p->center;
    worker->planned = false;
    yk_sample *sample = &loaded->sample;
    loaded->fused = loaded->mirrored = false;
    loaded->height = loaded->width = loaded->top = loaded->left = 0;
    sample->data = NULL;
    sample->dtype = YK_F32;
    sample->ndim = 0;
    sample->count = 1;
    for (int i = 0; i < YK_SAMPLE_TENSORS - 1; i++) /* shapes are read as far as ndim says */
        sample->more[i].data = NULL, sample->more[i].dtype = YK_F32, sample->more[i].ndim = 0;
    sample->index = index;
    sample->epoch = epoch;
    sample->worker = worker;
    yk_status status = get(dataset, index, sample);
    int first = 0;
    if (!status && p->resize && sample->dtype == YK_U8 && sample->ndim == 3) {
        status = run_resize(p, sample);
        first = p->rest;
    }
    if (!status) {
        bool one_pass = p->fusable && first == p->rest && sample->dtype == YK_U8 && sample->ndim == 3 &&
                        (!p->normalize || p->normalize->channels == sample->shape[0]);
        if (one_pass) {
            status = prepare_one_pass(p, loaded);
            sample->dtype = p->dtype; /* what it will be; the bytes are known by `fused` */
        } else {
            status = run_steps(p, first, sample);
        }
    }
    if (status) {
        char text[320];
        if (dataset->table.describe)
            yk__error_prefix("%s: sample %lld (%s)", dataset->table.name, (long long)index,
                             yk_dataset_describe(dataset, index, text, sizeof(text)));
        else
            yk__error_prefix("%s: sample %lld", dataset->table.name, (long long)index);
    }
    return status;
}

/* ---- storing --------------------------------------------------------------------------------------------- */
/* Defines NAME: writes (channels, out_height, out_width) by Note [One pass]. */
#define DEFINE_ONE_PASS(NAME, T)                                                                                       \
    static void NAME(const yk__pipeline *p, const yk__loaded *l, T *to)                                                \
    {                                                                                                                  \
        const yk_sample *sample = &l->sample;                                                                          \
        const unsigned char *from = sample->data;                                                                      \
        int64_t height = sample->shape[1], width = sample->shape[2];                                                   \
        /* Output columns [begin, end), before mirroring, lie inside the image. */                                     \
        int64_t begin = l->left < 0 ? -l->left : 0;                                                                    \
        int64_t end = l->width - l->left < width ? l->width - l->left : width;                                         \
        begin = begin > width ? width : begin;                                                                         \
        end = end < begin ? begin : end;                                                                               \
        for (int64_t c = 0; c < sample->shape[0]; c++, from += l->height * l->width) {                                 \
            const T *table = (const T *)p->table + (p->normalize ? 256 * c : 0);                                       \
            T zero = table[0];                                                                                         \
            for (int64_t y = 0; y < height; y++, to += width) {                                                        \
                int64_t in_y = y + l->top;                                                                             \
                bool inside = in_y >= 0 && in_y < l->height;                                                           \
                int64_t first = inside ? begin : width, last = inside ? end : width;                                   \
                const unsigned char *row = inside ? from + in_y * l->width : from;                                     \
                if (l->mirrored) {                                                                                     \
                    for (int64_t x = 0; x < first; x++)                                                                \
                        to[width - 1 - x] = zero;                                                                      \
                    for (int64_t x = first; x < last; x++)                                                             \
                        to[width - 1 - x] = table[row[x + l->left]];                                                   \
                    for (int64_t x = last; x < width; x++)                                                             \
                        to[width - 1 - x] = zero;                                                                      \
                } else {                                                                                               \
                    for (int64_t x = 0; x < first; x++)                                                                \
                        to[x] = zero;                                                                                  \
                    for (int64_t x = first; x < last; x++)                                                             \
                        to[x] = table[row[x + l->left]];                                                               \
                    for (int64_t x = last; x < width; x++)                                                             \
                        to[x] = zero;                                                                                  \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }
DEFINE_ONE_PASS(one_pass_f32, float)
DEFINE_ONE_PASS(one_pass_f64, double)

void yk__pipeline_store(const yk__pipeline *p, const yk__loaded *loaded, void *to)
{
    if (!loaded->fused)
        memcpy(to, loaded->sample.data, yk__sample_numel(&loaded->sample) * yk_dtype_size(loaded->sample.dtype));
    else if (p->dtype == YK_F32)
        one_pass_f32(p, loaded, to);
    else
        one_pass_f64(p, loaded, to);
}
