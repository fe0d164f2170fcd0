/*
 * sample.c - a sample's tensors, their memory, and its random numbers. Layer: data.
 *
 * A worker owns two buffers that take turns, so a transform reads one and writes the other, and making samples
 * allocates nothing once the buffers have grown.
 */
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"

void *yk__buffer_get(yk__buffer *buffer, size_t bytes)
{
    if (bytes <= buffer->capacity && buffer->data)
        return buffer->data;
    free(buffer->data);
    buffer->capacity = 0;
    buffer->data = malloc(bytes ? bytes : 1);
    if (!buffer->data) {
        yk__fail_memory(bytes);
        return NULL;
    }
    buffer->capacity = bytes;
    return buffer->data;
}

void yk__data_worker_clear(yk__data_worker *worker)
{
    free(worker->sides[0].data);
    free(worker->sides[1].data);
    free(worker->file.data);
    free(worker->rows.data);
    free(worker->weights.data);
    free(worker->sources.data);
    for (int i = 0; i < YK_SAMPLE_TENSORS - 1; i++) {
        free(worker->more[i].data);
        free(worker->before[i].data);
    }
    *worker = (yk__data_worker){0};
}

static size_t count_elements(yk_dtype dtype, int ndim, const int64_t *shape)
{
    if (yk_dtype_size(dtype) == 0 || ndim < 0 || ndim >= YK_MAX_DIMS)
        return 0;
    size_t numel = 1;
    for (int d = 0; d < ndim; d++) {
        if (shape[d] < 1 || __builtin_mul_overflow(numel, (size_t)shape[d], &numel) || numel > (size_t)1 << 40)
            return 0;
    }
    return numel;
}

size_t yk__sample_numel(const yk_sample *sample)
{
    return count_elements(sample->dtype, sample->ndim, sample->shape);
}

const char *yk__sample_tensor_format(const yk_sample_tensor *tensor, char *text, size_t size)
{
    size_t length = (size_t)snprintf(text, size, "%s (", yk_dtype_name(tensor->dtype));
    for (int d = 0; d < tensor->ndim && d < YK_MAX_DIMS - 1 && length < size; d++)
        length += (size_t)snprintf(text + length, size - length, "%s%lld", d ? ", " : "", (long long)tensor->shape[d]);
    if (length < size)
        snprintf(text + length, size - length, ")");
    return text;
}

yk_sample_tensor yk__sample_tensor(const yk_sample *sample, int i)
{
    if (i > 0)
        return sample->more[i - 1];
    yk_sample_tensor input = {.data = sample->data, .dtype = sample->dtype, .ndim = sample->ndim};
    memcpy(input.shape, sample->shape, sizeof(input.shape));
    return input;
}

size_t yk__sample_tensor_bytes(const yk_sample_tensor *tensor)
{
    size_t bytes = yk_dtype_size(tensor->dtype);
    for (int d = 0; d < tensor->ndim; d++)
        bytes *= (size_t)tensor->shape[d];
    return bytes;
}

bool yk__sample_has_label(const yk_sample *sample, int64_t *label)
{
    if (sample->count < 2 || sample->more[0].dtype != YK_I64 || sample->more[0].ndim != 0 || !sample->more[0].data)
        return false;
    *label = *(const int64_t *)sample->more[0].data;
    return true;
}

const char *yk__sample_format(const yk_sample *sample, char *text, size_t size)
{
    yk_sample_tensor input = yk__sample_tensor(sample, 0);
    return yk__sample_tensor_format(&input, text, size);
}

/* True if the library gave a callback this sample: one that a program made itself has no memory and no random numbers.
 */
static bool is_given(const char *what, const yk_sample *sample)
{
    if (!yk__is_there(what, "sample", sample))
        return false;
    if (!sample->worker)
        yk__fail(YK_ERR_STATE, "%s: the sample is none that a data set or a transform was called with", what);
    return sample->worker != NULL;
}

void yk_sample_label(yk_sample *sample, int64_t label)
{
    if (!is_given("sample_label", sample))
        return;
    sample->worker->label = label;
    sample->more[0].data = &sample->worker->label;
    sample->more[0].dtype = YK_I64;
    sample->more[0].ndim = 0;
    if (sample->count < 2)
        sample->count = 2;
}

yk_status yk_sample_view_at(yk_sample *sample, int i, const void *data, yk_dtype dtype, int ndim, const int64_t *shape)
{
    if (!yk__is_there("sample_view_at", "sample", sample) ||
        (ndim > 0 && !yk__is_there("sample_view_at", "shape", shape)))
        return YK_ERR_ARGUMENT;
    bool fits = i >= 1 && i < YK_SAMPLE_TENSORS && yk_dtype_size(dtype) > 0 && ndim >= 0 && ndim < YK_MAX_DIMS;
    size_t numel = 1;
    for (int d = 0; d < ndim && fits; d++)
        fits = shape[d] >= 0 && !__builtin_mul_overflow(numel, (size_t)shape[d], &numel) && numel <= (size_t)1 << 40;
    if (!fits)
        return yk__fail(
            YK_ERR_SHAPE,
            "sample: tensor %d of %d dimensions; a sample has tensors 1 to %d beside its input, with 0 to %d "
            "dimensions of 0 or more",
            i, ndim, YK_SAMPLE_TENSORS - 1, YK_MAX_DIMS - 1);
    yk_sample_tensor *tensor = &sample->more[i - 1];
    tensor->data = data;
    tensor->dtype = dtype;
    tensor->ndim = ndim;
    for (int d = 0; d < ndim; d++)
        tensor->shape[d] = shape[d];
    if (sample->count <= i)
        sample->count = i + 1;
    return YK_OK;
}

void *yk_sample_allocate_at(yk_sample *sample, int i, yk_dtype dtype, int ndim, const int64_t *shape)
{
    if (!is_given("sample_allocate_at", sample) || yk_sample_view_at(sample, i, NULL, dtype, ndim, shape))
        return NULL;
    yk_sample_tensor *tensor = &sample->more[i - 1];
    void *data = yk__buffer_get(&sample->worker->more[i - 1], yk__sample_tensor_bytes(tensor));
    tensor->data = data;
    return data;
}

void yk_sample_view(yk_sample *sample, const void *data, yk_dtype dtype, int ndim, const int64_t *shape)
{
    if (!yk__is_there("sample_view", "sample", sample) || (ndim > 0 && !yk__is_there("sample_view", "shape", shape)))
        return;
    sample->data = data;
    sample->dtype = dtype;
    sample->ndim = ndim;
    for (int d = 0; d < ndim && d < YK_MAX_DIMS - 1; d++)
        sample->shape[d] = shape[d];
}

void *yk_sample_allocate(yk_sample *sample, yk_dtype dtype, int ndim, const int64_t *shape)
{
    if (!is_given("sample_allocate", sample) || (ndim > 0 && !yk__is_there("sample_allocate", "shape", shape)))
        return NULL;
    yk_sample made = *sample;
    yk_sample_view(&made, NULL, dtype, ndim, shape);
    size_t numel = yk__sample_numel(&made);
    if (numel == 0) {
        char text[200];
        yk__fail(YK_ERR_SHAPE,
                 "sample_allocate: %s with %d dimensions; the input of a sample has 0 to %d dimensions of 1 or more",
                 yk__sample_format(&made, text, sizeof(text)), ndim, YK_MAX_DIMS - 1);
        return NULL;
    }
    yk__data_worker *worker = sample->worker;
    worker->side ^= 1;
    void *data = yk__buffer_get(&worker->sides[worker->side], numel * yk_dtype_size(dtype));
    if (!data)
        return NULL;
    made.data = data;
    *sample = made;
    return data;
}

uint32_t yk_sample_random(yk_sample *sample)
{
    if (!is_given("sample_random", sample))
        return 0;
    yk__data_worker *worker = sample->worker;
    if (worker->drawn % 4 == 0) {
        yk__stream stream = {.key = worker->seed, .purpose = YK__RANDOM_AUGMENT, .epoch = (uint32_t)sample->epoch};
        /* A data set has at most 2^40 samples; the bits above count the blocks of one sample. */
        uint64_t block = (uint64_t)sample->index | (uint64_t)(worker->drawn / 4) << 40;
        yk__philox(stream, block, worker->words);
    }
    return worker->words[worker->drawn++ % 4];
}

double yk_sample_uniform(yk_sample *sample)
{
    return yk_sample_random(sample) * 0x1p-32;
}

int64_t yk_sample_below(yk_sample *sample, int64_t bound)
{
    if (bound < 1)
        return 0;
    uint32_t low = bound > UINT32_MAX ? yk_sample_random(sample) : 0;
    uint32_t high = yk_sample_random(sample);
    return (int64_t)yk__below(high, low, (uint64_t)bound);
}
