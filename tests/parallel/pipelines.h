/*
 * pipelines.h - shared by the tests of pipelines: a network of eight layers, cut into stages.
 */
#ifndef YOKE_TESTS_PIPELINES_H
#define YOKE_TESTS_PIPELINES_H

#include "tests/parallel/over_devices.h"

enum { LAYERS = 8 };

/* Layer i, with the same values every time. Images of 1 x 12 x 12, ten classes. */
static inline yk_module *layer(int i, bool batch_norm)
{
    yk_manual_seed(100 + (uint64_t)i);
    switch (i) {
    case 0: return yk_conv2d_create(1, 4, 3, NULL);
    case 1: return batch_norm ? yk_batch_norm2d_create(4, NULL) : yk_relu_create();
    case 2: return yk_sequential(yk_conv2d_create(4, 6, 3, NULL), yk_relu_create());
    case 3: return yk_sequential(yk_max_pool2d_create(2, 0, NULL), yk_flatten_create());
    case 4: return yk_sequential(yk_linear_create(96, 30, NULL), yk_tanh_create());
    case 5: return yk_linear_create(30, 20, NULL);
    case 6: return yk_sequential(yk_sigmoid_create(), yk_linear_create(20, 20, NULL));
    default: return yk_linear_create(20, 10, NULL);
    }
}

/* All layers in f64, as `count` stages of about as many layers each: stages[]. */
static inline void make_stages(yk_module **stages, int count, bool batch_norm)
{
    for (int s = 0; s < count; s++) {
        yk_module *layers[LAYERS];
        int n = 0;
        for (int i = s * LAYERS / count; i < (s + 1) * LAYERS / count; i++)
            layers[n++] = layer(i, batch_norm);
        stages[s] = yk_module_to_dtype(yk_sequential_list(layers, n), YK_F64);
        assert_non_null(stages[s]);
    }
}

static inline yk_tensor *mean_cross_entropy(yk_tensor *output, yk_tensor *target, void *user)
{
    (void)user;
    return yk_cross_entropy(output, target, NULL);
}

static inline yk_module *pipeline_of(yk_module *const *stages, int count, int chunks, yk_pipeline_schedule schedule)
{
    yk_module *m = yk_pipeline(stages, count,
                               YK_OPTIONS(yk_pipeline_options, .devices = devices, .chunks = chunks,
                                          .schedule = schedule, .criterion = mean_cross_entropy));
    if (!m)
        fail_msg("no pipeline: %s", yk_last_error()->message);
    return m;
}

static inline yk_module *make_pipeline(int count, int chunks, yk_pipeline_schedule schedule, bool batch_norm)
{
    yk_module *stages[LAYERS];
    make_stages(stages, count, batch_norm);
    return pipeline_of(stages, count, chunks, schedule);
}

/* The same layers on cpu:0, as one module. */
static inline yk_module *make_plain(bool batch_norm)
{
    yk_module *m;
    make_stages(&m, 1, batch_norm);
    return m;
}

/* The largest difference between the gradients of two modules with the same parameters in the same order, wherever they
 * are. */
static inline double grads_apart(yk_module *a, yk_module *b)
{
    yk_parameters *p = yk_module_parameters(a), *q = yk_module_parameters(b);
    assert_int_equal(yk_parameters_count(p), yk_parameters_count(q));
    assert_true(yk_parameters_count(p) > 0);
    double most = 0;
    for (int64_t i = 0; i < yk_parameters_count(p); i++) {
        yk_tensor *x = yk_grad(yk_parameters_at(p, i)), *y = yk_grad(yk_parameters_at(q, i));
        assert_int_equal(x == NULL, y == NULL);
        if (x)
            assert_true(yk_device_equal(yk_tensor_device(x), yk_tensor_device(yk_parameters_at(p, i))));
        double d = x ? distance(x, y) : 0;
        most = d > most ? d : most;
    }
    return most;
}

/* The sample at which micro-batch k of `chunks` begins: torch.tensor_split. */
static inline int64_t start_of(int64_t samples, int chunks, int k)
{
    int64_t longer = samples % chunks;
    return k * (samples / chunks) + (k < longer ? k : longer);
}

#endif
