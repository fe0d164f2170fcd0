/*
 * pipeline.c - from an index to finished elements: get, transforms, and the one-pass form of the usual chain.
 * Layer: data.
 *
 * Note [One pass]
 * The chain [resize [center_crop] or random_resized_crop] is one step, which computes only what is left of the picture
 * in the end (resize.c). After it, the chain [random_crop] [flip] [to_tensor] [normalize] on a u8 image maps each
 * output element to one input byte or to padding, and a byte in a channel to one number. So the numbers are tabulated
 * once, 256 a channel, by the same functions that define the steps, and a sample is one walk over its output: look up,
 * write (the slot augment). The results are those of the steps bit for bit, without a division or an intermediate copy.
 * For a device that has the slot and does not share the host's memory, the batch goes there as bytes, a quarter of the
 * floats, and the walk is the device's.
 */
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "device/table.h"

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
    bool composed = t && t->kind == YK__TRANSFORM_COMPOSE;
    if (t && !composed)
        steps[(*count)++] = t;
    for (int i = 0; composed && i < t->count; i++)
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
    p->scales = p->dataset->images;
    for (int i = 0; i < p->count; i++)
        p->scales |= p->steps[i]->kind != YK__TRANSFORM_USER;
    p->fusable = at == p->count && p->scales;
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
/* Fails unless the sample that `function` made is one that there may be. */
static yk_status check_sample(const yk_dataset_table *table, const char *function, const yk_sample *sample)
{
    if (!sample->data || yk__sample_numel(sample) == 0) {
        char text[200];
        return yk__fail(YK_ERR_CALLBACK,
                        "%s left a sample without elements, or of a shape or dtype it may not have: %s", function,
                        yk__sample_format(sample, text, sizeof(text)));
    }
    for (int i = 1; i < sample->count; i++) {
        const yk_sample_tensor *tensor = &sample->more[i - 1];
        if (!tensor->data && yk__sample_tensor_bytes(tensor))
            return yk__fail(YK_ERR_CALLBACK, "%s left tensor %d of %d without elements", function, i, sample->count);
    }
    int64_t label = 0;
    if (table->classes && yk__sample_has_label(sample, &label) && (label < 0 || label >= table->classes))
        return yk__fail(YK_ERR_FORMAT, "label %lld is outside [0, %lld)", (long long)label, (long long)table->classes);
    return YK_OK;
}

static yk_status get(const yk_dataset *dataset, int64_t index, yk_sample *sample)
{
    const yk_dataset_table *table = &dataset->table;
    yk_status status = table->get(dataset->context, index, sample);
    if (!status)
        status = yk__error_code(); /* a callback that sets an error has failed, whatever it returns */
    if (status) {
        if (!yk__error_code())
            yk__fail(YK_ERR_CALLBACK, "get failed with status \"%s\" and set no error", yk_status_name(status));
        return yk__error_code(); /* what is on record, whatever it returns */
    }
    return check_sample(table, "get", sample);
}

static yk_status prepare_one_pass(const yk__pipeline *p, yk__loaded *loaded)
{
    yk_sample *sample = &loaded->sample;
    loaded->fused = true;
    loaded->crop.height = sample->shape[1];
    loaded->crop.width = sample->shape[2];
    if (p->crop) {
        yk_status status = yk__crop_draw(p->crop, sample, &loaded->crop.top, &loaded->crop.left);
        if (status)
            return status;
        sample->shape[1] = sample->shape[2] = p->crop->size;
    }
    loaded->crop.mirrored = p->flip && yk__chance_draw(p->flip, sample);
    return YK_OK;
}

/* Steps `first` and on. */
static yk_status run_steps(const yk__pipeline *p, int first, yk_sample *sample)
{
    for (int i = first; i < p->count; i++) {
        yk_status status = p->steps[i]->apply(p->steps[i], sample);
        if (status || yk__error_code())
            return yk__error_code() ? yk__error_code() : status;
    }
    return sample->dtype == YK_U8 && !p->scales ? YK_OK : yk__sample_to_float(sample);
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

/* Makes the worker and the sample ready for the data set's function. */
static void prepare_sample(const yk__pipeline *p, yk__data_worker *worker, uint64_t seed, int64_t epoch, int64_t index,
                           yk__loaded *loaded)
{
    worker->dtype = p->dtype;
    worker->seed = seed;
    worker->drawn = 0;
    worker->resize = p->resize;
    worker->center = p->center;
    worker->planned = false;
    yk_sample *sample = &loaded->sample;
    loaded->fused = false;
    loaded->crop = (yk__crop){0};
    sample->data = NULL;
    sample->dtype = YK_F32;
    sample->ndim = 0;
    sample->count = 1;
    for (int i = 0; i < YK_SAMPLE_TENSORS - 1; i++) /* shapes are read as far as ndim says */
        sample->more[i].data = NULL, sample->more[i].dtype = YK_F32, sample->more[i].ndim = 0;
    sample->index = index;
    sample->epoch = epoch;
    sample->worker = worker;
    loaded->ended = loaded->unread = false;
}

/* Brings the sample that the data set gave to its final shape. */
static yk_status finish_sample(const yk__pipeline *p, yk__loaded *loaded)
{
    yk_sample *sample = &loaded->sample;
    yk_status status = YK_OK;
    int first = 0;
    if (p->resize && sample->dtype == YK_U8 && sample->ndim == 3) {
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
    return status;
}

yk_status yk__pipeline_load(const yk__pipeline *p, yk__data_worker *worker, uint64_t seed, int64_t epoch, int64_t index,
                            yk__loaded *loaded)
{
    const yk_dataset *dataset = p->dataset;
    if (index < 0 || index >= dataset->table.length)
        return yk__fail(YK_ERR_ARGUMENT, "%s: sample %lld is outside [0, %lld)", dataset->table.name, (long long)index,
                        (long long)dataset->table.length);
    prepare_sample(p, worker, seed, epoch, index, loaded);
    yk_status status = get(dataset, index, &loaded->sample);
    loaded->unread = status != YK_OK;
    if (!status)
        status = finish_sample(p, loaded);
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

yk_status yk__pipeline_next(const yk__pipeline *p, yk__data_worker *worker, yk__data_stream *stream, yk__loaded *loaded)
{
    const yk_dataset *dataset = p->dataset;
    int64_t index = yk__data_stream_index(stream);
    prepare_sample(p, worker, stream->part.seed, stream->part.epoch, index, loaded);
    yk_status status = yk__data_stream_next(dataset, stream, &loaded->sample);
    loaded->ended = stream->ended;
    if (!status && !loaded->ended)
        status = check_sample(&dataset->table, "next", &loaded->sample);
    if (!status && !loaded->ended)
        status = finish_sample(p, loaded);
    if (status)
        yk__error_prefix("%s: sample %lld, of stream %d of rank %d", dataset->table.name, (long long)index,
                         stream->part.stream, stream->part.rank);
    return status;
}

yk_status yk__pipeline_skip(const yk__pipeline *p, yk__data_worker *worker, yk__data_stream *stream, int64_t count,
                            int64_t *skipped)
{
    const yk_dataset *dataset = p->dataset;
    yk__loaded loaded;
    yk_status status = YK_OK;
    *skipped = 0;
    if (dataset->iterable.skip && !stream->ended) {
        status = dataset->iterable.skip(stream->iterator, count, skipped);
        if (yk__error_code())
            status = yk__error_code();
        else if (status)
            yk__fail(YK_ERR_CALLBACK, "skip failed with status \"%s\" and set no error", yk_status_name(status));
        else if (*skipped < 0 || *skipped > count)
            status = yk__fail(YK_ERR_CALLBACK, "skip passed over %lld samples of %lld", (long long)*skipped,
                              (long long)count);
        stream->taken += status ? 0 : *skipped;
        stream->ended = !status && *skipped < count;
    }
    while (!dataset->iterable.skip && *skipped < count && !stream->ended && !status) {
        prepare_sample(p, worker, stream->part.seed, stream->part.epoch, yk__data_stream_index(stream), &loaded);
        status = yk__data_stream_next(dataset, stream, &loaded.sample);
        *skipped += !stream->ended;
    }
    if (status)
        yk__error_prefix("%s: stream %d of rank %d, behind sample %lld", dataset->table.name, stream->part.stream,
                         stream->part.rank, (long long)stream->taken);
    return status;
}

/* ---- storing --------------------------------------------------------------------------------------------- */
yk__view yk__pipeline_table(const yk__pipeline *p)
{
    return (yk__view){.data = p->table,
                      .dtype = p->dtype,
                      .ndim = 2,
                      .shape = {p->normalize ? p->normalize->channels : 1, 256},
                      .stride = {256, 1}};
}

/* By Note [One pass]. */
static void store_one_pass(const yk__pipeline *p, const yk__loaded *loaded, void *to)
{
    const yk_sample *sample = &loaded->sample;
    int64_t channels = sample->shape[0], height = sample->shape[1], width = sample->shape[2];
    yk__crop crop = loaded->crop;
    yk__view table = yk__pipeline_table(p),
             out = {.data = to,
                    .dtype = p->dtype,
                    .ndim = 4,
                    .shape = {1, channels, height, width},
                    .stride = {channels * height * width, height * width, width, 1}},
             images = {.data = (void *)sample->data,
                       .dtype = YK_U8,
                       .ndim = 1,
                       .shape = {channels * crop.height * crop.width},
                       .stride = {1}},
             crops = {.data = &crop,
                      .dtype = YK_I64,
                      .ndim = 2,
                      .shape = {1, YK__CROP_NUMBERS},
                      .stride = {YK__CROP_NUMBERS, 1}};
    yk__backend_of((yk_device){0})->augment(0, &out, &images, &crops, &table);
}

void yk__pipeline_store(const yk__pipeline *p, const yk__loaded *loaded, void *to)
{
    if (loaded->fused)
        store_one_pass(p, loaded, to);
    else
        memcpy(to, loaded->sample.data, yk__sample_numel(&loaded->sample) * yk_dtype_size(loaded->sample.dtype));
}

void yk__loaded_pack(const yk__loaded *loaded, unsigned char *to, yk__crop *crop)
{
    const yk_sample *sample = &loaded->sample;
    const yk__crop *whole = &loaded->crop;
    int64_t bottom = whole->top + sample->shape[1], right = whole->left + sample->shape[2];
    int64_t y = whole->top > 0 ? whole->top : 0, x = whole->left > 0 ? whole->left : 0;
    bottom = bottom < whole->height ? bottom : whole->height;
    right = right < whole->width ? right : whole->width;
    int64_t height = bottom > y ? bottom - y : 0, width = right > x ? right - x : 0;
    *crop = (yk__crop){
        .height = height, .width = width, .top = whole->top - y, .left = whole->left - x, .mirrored = whole->mirrored};
    const unsigned char *from = sample->data;
    if (height == whole->height && width == whole->width) {
        memcpy(to, from, (size_t)(sample->shape[0] * height * width));
        return;
    }
    for (int64_t c = 0; c < sample->shape[0]; c++) {
        for (int64_t row = 0; row < height; row++, to += width)
            memcpy(to, from + (c * whole->height + y + row) * whole->width + x, (size_t)width);
    }
}
