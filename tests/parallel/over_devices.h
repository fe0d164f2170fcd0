/*
 * over_devices.h - what the tests of DataParallel share: eight logical devices, networks in f64, distances.
 */
#ifndef YOKE_TESTS_OVER_DEVICES_H
#define YOKE_TESTS_OVER_DEVICES_H

#include <pthread.h>
#include <stdatomic.h>

#include <yoke/yoke.h>

#include "tests/support/expect.h"

enum { MOST = 8 };

static const yk_device devices[MOST] = {{YK_CPU, 0}, {YK_CPU, 1}, {YK_CPU, 2}, {YK_CPU, 3},
                                        {YK_CPU, 4}, {YK_CPU, 5}, {YK_CPU, 6}, {YK_CPU, 7}};

static inline yk_tensor *randn(int ndim, const int64_t *shape)
{
    return yk_randn(ndim, shape, &(yk_tensor_options){.dtype = YK_F64});
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
    yk_module *dp = yk_data_parallel(m, &(yk_data_parallel_options){.devices = devices, .count = count});
    if (!dp)
        fail_msg("no module: %s", yk_last_error()->message);
    return dp;
}

#endif
