/*
 * runs.h - models and batches whose numbers come from Philox by the rule of tests/golden/make_parity.py, which PyTorch
 * follows too.
 */
#ifndef YOKE_TESTS_RUNS_H
#define YOKE_TESTS_RUNS_H

#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include <yoke/nn.h>

#include "base/core.h"

typedef struct run {
    const char *model;
    int64_t batch, channels, size;
    double lr, weight_decay;
} run;

static inline void uniform(uint64_t key, uint32_t epoch, int64_t count, double *out)
{
    yk__stream stream = {.key = key, .purpose = YK__RANDOM_TEST, .epoch = epoch};
    for (int64_t i = 0; i < count; i++) {
        uint32_t words[4];
        yk__philox(stream, (uint64_t)(i / 2), words);
        out[i] = yk__unit_double(words[2 * (i % 2)], words[2 * (i % 2) + 1]);
    }
}

/* A tensor of `dtype` from values that are first rounded to float32. */
static inline yk_tensor *rounded(double *values, int ndim, const int64_t *shape, yk_dtype dtype)
{
    int64_t count = 1;
    for (int d = 0; d < ndim; d++)
        count *= shape[d];
    for (int64_t i = 0; i < count; i++)
        values[i] = (double)(float)values[i];
    return yk_cast(yk_from_data(values, ndim, shape, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64)), dtype);
}

static inline yk_module *make_model(const run *r, yk_dtype dtype)
{
    yk_module *net = yk_model(
        r->model, YK_OPTIONS(yk_model_options, .in_channels = r->channels, .image_size = r->size, .num_classes = 10));
    net = yk_module_to_dtype(net, dtype);
    yk_parameters *parameters = yk_module_parameters(net);
    assert_non_null(parameters);
    for (int64_t p = 0; p < yk_parameters_count(parameters); p++) {
        const char *name = yk_parameters_name(parameters, p);
        if (strstr(name, "bn") || strstr(name, "downsample.1"))
            continue;
        yk_tensor *w = yk_parameters_at(parameters, p);
        int64_t count = yk_numel(w), fan = yk_ndim(w) > 1 ? count / yk_size(w, 0) : count;
        double *values = malloc(sizeof(double) * (size_t)count);
        uniform(1, (uint32_t)p, count, values);
        for (int64_t i = 0; i < count; i++)
            values[i] = (2 * values[i] - 1) * sqrt(3 / (double)fan);
        bool previous = yk_no_grad_begin();
        assert_non_null(yk_copy_(w, rounded(values, yk_ndim(w), yk_sizes(w), dtype)));
        yk_no_grad_end(previous);
        free(values);
    }
    return net;
}

static inline void make_batch(const run *r, int step, yk_dtype dtype, yk_tensor **x, yk_tensor **y)
{
    int64_t shape[4] = {r->batch, r->channels, r->size, r->size}, count = r->batch * r->channels * r->size * r->size;
    double *values = malloc(sizeof(double) * (size_t)count);
    uniform(2, (uint32_t)step, count, values);
    for (int64_t i = 0; i < count; i++)
        values[i] = 4 * values[i] - 2;
    *x = rounded(values, 4, shape, dtype);
    uniform(3, (uint32_t)step, r->batch, values);
    int64_t labels[256];
    for (int64_t i = 0; i < r->batch; i++)
        labels[i] = (int64_t)(values[i] * 10);
    *y = yk_from_data(labels, 1, &r->batch, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    free(values);
}

#endif
