/*
 * sample.c - a sample's memory and its random numbers. Layer: data.
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
    *worker = (yk__data_worker){0};
}

static size_t count_elements(yk_dtype dtype, int ndim, const int64_t *shape)
{
    if ((dtype != YK_U8 && dtype != YK_F32 && dtype != YK_F64) || ndim < 0 || ndim >= YK_MAX_DIMS)
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

const char *yk__sample_format(const yk_sample *sample, char *text, size_t size)
{
    size_t length = (size_t)snprintf(text, size, "%s (", yk_dtype_name(sample->dtype));
    for (int d = 0; d < sample->ndim && d < YK_MAX_DIMS - 1 && length < size; d++)
        length += (size_t)snprintf(text + length, size - length, "%s%lld", d ? ", " : "", (long long)sample->shape[d]);
    if (length < size)
        snprintf(text + length, size - length, ")");
    return text;
}

void yk_sample_view(yk_sample *sample, const void *data, yk_dtype dtype, int ndim, const int64_t *shape)
{
    sample->data = data;
    sample->dtype = dtype;
    sample->ndim = ndim;
    for (int d = 0; d < ndim && d < YK_MAX_DIMS - 1; d++)
        sample->shape[d] = shape[d];
}

void *yk_sample_allocate(yk_sample *sample, yk_dtype dtype, int ndim, const int64_t *shape)
{
    yk_sample made = *sample;
    yk_sample_view(&made, NULL, dtype, ndim, shape);
    size_t numel = yk__sample_numel(&made);
    if (numel == 0) {
        char text[200];
        yk__fail(YK_ERR_SHAPE,
                 "sample_allocate: %s with %d dimensions; a sample is uint8, float32 or float64, with 0 to %d "
                 "dimensions of 1 or more",
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
