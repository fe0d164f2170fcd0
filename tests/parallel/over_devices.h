/*
 * over_devices.h - shared by the tests of DataParallel: eight logical devices, networks in f64, distances.
 */
#ifndef YOKE_TESTS_OVER_DEVICES_H
#define YOKE_TESTS_OVER_DEVICES_H

#include <pthread.h>
#include <stdatomic.h>

#include <yoke/yoke.h>

#include "tests/support/expect.h"
#include "tests/support/test_device.h"

enum { MOST = 8 };

static yk_device devices[MOST];

__attribute__((constructor(65535))) static void choose_devices(void)
{
    for (int i = 0; i < MOST; i++)
        devices[i] = test_device(i);
}

static inline yk_tensor *randn(int ndim, const int64_t *shape)
{
    return yk_randn(ndim, shape, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
}

static inline yk_tensor *labels_of(int64_t n, int64_t classes)
{
    return yk_randint(0, classes, YK_SHAPE(n), NULL);
}

static inline double distance(const yk_tensor *a, const yk_tensor *b)
{
    if (!a || !b)
        fail_msg("a tensor is missing: %s", yk_last_error() ? yk_last_error()->message : "no record");
    assert_true(yk_same_shape(a, b));
    size_t bytes = (size_t)yk_numel(a) * sizeof(double);
    double *x = malloc(bytes + 8), *y = malloc(bytes + 8), most = 0;
    yk_scope scope = yk_scope_begin();
    expect_ok(yk_tensor_read(yk_cast((yk_tensor *)(uintptr_t)a, YK_F64), x, bytes));
    expect_ok(yk_tensor_read(yk_cast((yk_tensor *)(uintptr_t)b, YK_F64), y, bytes));
    yk_scope_end(scope);
    for (int64_t i = 0; i < yk_numel(a); i++)
        most = fabs(x[i] - y[i]) > most ? fabs(x[i] - y[i]) : most;
    free(x);
    free(y);
    return most;
}

/* Goes on from `hash` over the bits of a tensor. */
static inline uint64_t hash_bits(uint64_t hash, yk_tensor *x)
{
    size_t bytes = (size_t)yk_numel(x) * yk_dtype_size(yk_tensor_dtype(x));
    unsigned char *values = malloc(bytes + 1);
    expect_ok(yk_tensor_read(x, values, bytes));
    for (size_t b = 0; b < bytes; b++)
        hash = (hash ^ values[b]) * 1099511628211u;
    free(values);
    return hash;
}

/* The largest difference between the gradients, and between the parameters, of two modules. */
static inline double gradients_apart(yk_module *a, yk_module *b)
{
    yk_parameters *p = yk_module_parameters(a), *q = yk_module_parameters(b);
    assert_int_equal(yk_parameters_count(p), yk_parameters_count(q));
    double most = 0;
    for (int64_t i = 0; i < yk_parameters_count(p); i++) {
        yk_tensor *x = yk_grad(yk_parameters_at(p, i)), *y = yk_grad(yk_parameters_at(q, i));
        assert_int_equal(x == NULL, y == NULL);
        if (x)
            assert_true(yk_device_equal(yk_tensor_device(x), devices[0]));
        double d = x ? distance(x, y) : 0;
        most = d > most ? d : most;
    }
    return most;
}

static inline void copy_state(yk_module *to, yk_module *from)
{
    expect_ok(yk_module_load_state_dict(to, yk_module_state_dict(from), NULL, NULL));
}

static inline yk_module *lenet(void)
{
    return yk_module_to_dtype(yk_lenet(NULL), YK_F64);
}

static inline yk_module *over(yk_module *m, int count)
{
    yk_module *dp = yk_data_parallel(m, YK_OPTIONS(yk_data_parallel_options, .devices = devices, .count = count));
    if (!dp)
        fail_msg("no module: %s", yk_last_error()->message);
    return dp;
}

/* ---- a module that notes the modes in which it is called on each device, in forward and in backward ---- */

typedef struct modes_seen {
    int forwards, backwards;
    bool recording, inference, autocast, autocast_backward, no_cache;
    yk_dtype dtype;
    int current; /* CPU device */
} modes_seen;

static modes_seen seen_on[MOST];

static inline yk_tensor *seeing_forward(yk_custom *context, yk_tensor *const *inputs, int n_inputs)
{
    (void)context, (void)n_inputs;
    return yk_clone(inputs[0]);
}

static inline yk_status seeing_backward(yk_custom *context, yk_tensor *grad_output, yk_tensor **grad_inputs,
                                        int n_inputs)
{
    (void)context, (void)n_inputs;
    modes_seen *m = &seen_on[yk_tensor_device(grad_output).index];
    m->backwards++;
    m->autocast_backward = yk_autocast_enabled(test_device_type) && yk_autocast_dtype(test_device_type) == m->dtype;
    grad_inputs[0] = grad_output;
    return YK_OK;
}

/* x W, where W is 3 x 3 and named "w". */
static inline yk_tensor *seeing_module_forward(yk_module *m, yk_tensor *x)
{
    static const yk_custom_function f = {.name = "seeing", .forward = seeing_forward, .backward = seeing_backward};
    yk_autocast modes = yk_autocast_begin(YK_CUDA, YK_F16, NULL); /* a look at what is on, nothing more */
    yk_autocast_end(modes);
    modes_seen *seen = &seen_on[yk_tensor_device(x).index];
    seen->forwards++;
    seen->recording = yk_grad_enabled();
    seen->inference = yk_inference_mode_enabled();
    seen->autocast = yk_autocast_enabled(test_device_type);
    seen->no_cache = modes.no_cache;
    seen->dtype = yk_autocast_dtype(test_device_type);
    seen->current = yk_current_device(test_device_type).index;
    yk_tensor *y = yk_matmul(x, yk_module_get(m, "w"));
    return yk_custom_apply(&f, &y, 1, NULL);
}

static inline yk_module *seeing_module(void)
{
    static const yk_module_class seeing_class = {.name = "Seeing", .forward = seeing_module_forward};
    yk_module *m = yk_module_create(&seeing_class);
    yk_module_add_parameter(m, "w", yk_randn(YK_SHAPE(3, 3), NULL));
    return m;
}

/* Forwards of `model`, which calls a seeing module once or more on each of `count` devices, in all the modes that a
 * caller can be in: each device has them. */
static inline void expect_the_modes_of_the_caller(yk_module *model, int count)
{
    yk_tensor *x = yk_randn(YK_SHAPE(2 * MOST, 3), NULL);
    for (int modes = 0; modes < 24; modes++) {
        int autocast = modes % 3, recording = modes / 3 % 2, inference = modes / 6 % 2, no_cache = modes / 12;
        yk_dtype dtype = autocast == 1 ? YK_BF16 : YK_F16;
        yk_scope scope = yk_scope_begin();
        memset(seen_on, 0, sizeof(seen_on));
        yk_device device = yk_device_guard_begin(devices[modes % count]);
        bool was_inference = inference ? yk_inference_mode_begin() : false;
        bool was_recording = yk_set_grad_enabled(recording && !inference);
        yk_autocast before =
            yk_autocast_begin(test_device_type, dtype,
                              YK_OPTIONS(yk_autocast_options, .enabled = autocast, .cache_enabled = no_cache == 0));
        yk_tensor *y = yk_forward(model, x);
        yk_autocast_end(before);
        yk_set_grad_enabled(was_recording);
        if (inference)
            yk_inference_mode_end(was_inference);
        yk_device_guard_end(device);
        if (!y)
            fail_msg("modes %d: %s", modes, yk_last_error()->message);
        assert_int_equal(yk_tensor_dtype(y), autocast ? dtype : YK_F32);
        assert_int_equal(yk_is_inference(y), inference);
        bool recorded = recording && !inference;
        assert_int_equal(yk_requires_grad(y), recorded);
        if (recorded)
            expect_ok(yk_backward(yk_sum(y)));
        for (int i = 0; i < count; i++) {
            const modes_seen *m = &seen_on[i];
            assert_true(m->forwards > 0);
            assert_int_equal(m->recording, recorded);
            assert_int_equal(m->inference, inference);
            assert_int_equal(m->autocast, autocast != 0);
            assert_int_equal(m->no_cache, no_cache);
            assert_int_equal(m->current, modes % count);
            if (autocast)
                assert_int_equal(m->dtype, dtype);
            assert_int_equal(m->backwards, recorded ? m->forwards : 0);
            if (recorded)
                assert_int_equal(m->autocast_backward, autocast != 0);
        }
        yk_scope_end(scope);
    }
}

#endif
