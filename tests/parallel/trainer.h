/*
 * trainer.h - a small training step that every rank can make of its own part of the same data.
 */
#ifndef YOKE_TESTS_TRAINER_H
#define YOKE_TESTS_TRAINER_H

#include "tests/comm/ranks.h"
#include "tests/support/test_device.h"

#include <yoke/optim.h>
#include <yoke/parallel.h>

/* Numbers in [-2, 2) that depend on (key, index) alone. */
static inline double number_of(uint32_t key, uint64_t index)
{
    uint32_t words[4];
    yk__philox((yk__stream){.key = 7, .purpose = YK__RANDOM_TEST, .epoch = key}, index, words);
    return 4 * yk__unit_double(words[0], words[1]) - 2;
}

/* (count, ...) of such numbers: sample i of the batch is the same wherever the part begins. */
static inline yk_tensor *samples(uint32_t key, int64_t first, int64_t count, int ndim, const int64_t *shape)
{
    int64_t whole[YK_MAX_DIMS] = {count}, each = 1;
    for (int d = 0; d < ndim; d++)
        each *= whole[d + 1] = shape[d];
    double *values = calloc((size_t)(count * each + 1), sizeof(double));
    for (int64_t i = 0; i < count * each; i++)
        values[i] = number_of(key, (uint64_t)(first * each + i));
    yk_tensor *x = yk_from_data(values, ndim + 1, whole, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    free(values);
    return x;
}

static inline yk_tensor *labels(int64_t first, int64_t count)
{
    int64_t values[512];
    for (int64_t i = 0; i < count; i++)
        values[i] = (int64_t)((number_of(99, (uint64_t)(first + i)) + 2) * 2.5) % 10;
    return yk_from_data(values, 1, &count, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
}

/* Parameters of known values, other ones for another `key`. */
static inline yk_module *known_values(yk_module *m, uint32_t key)
{
    yk_parameters *list = yk_module_parameters(m);
    bool previous = yk_no_grad_begin();
    for (int64_t p = 0; p < yk_parameters_count(list); p++) {
        yk_tensor *x = yk_parameters_at(list, p);
        int64_t n = yk_numel(x), fan = yk_ndim(x) > 1 ? n / yk_size(x, 0) : 4;
        double *values = malloc(sizeof(double) * (size_t)(n + 1));
        for (int64_t i = 0; i < n; i++)
            values[i] = number_of(key * 1000 + (uint32_t)p, (uint64_t)i) / sqrt((double)fan);
        yk_copy_(x, yk_from_data(values, yk_ndim(x), yk_sizes(x), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64)));
        free(values);
    }
    yk_no_grad_end(previous);
    return m;
}

static inline yk_module *lenet_of(yk_dtype dtype, uint32_t key)
{
    return known_values(yk_module_to_dtype(yk_lenet(NULL), dtype), key);
}

/* |a - b| over |b|, as vectors. */
static inline double distance(yk_tensor *a, yk_tensor *b)
{
    size_t n = (size_t)yk_numel(b);
    double *u = malloc(sizeof(double) * (n + 1)), *v = malloc(sizeof(double) * (n + 1)), d = 0, s = 0;
    bool good = a && yk_same_shape(a, b) && !yk_tensor_read(yk_cast(a, YK_F64), u, n * sizeof(double)) &&
                !yk_tensor_read(yk_cast(b, YK_F64), v, n * sizeof(double));
    for (size_t i = 0; good && i < n; i++) {
        d += (u[i] - v[i]) * (u[i] - v[i]);
        s += v[i] * v[i];
    }
    free(u);
    free(v);
    return good ? sqrt(d) / (s > 0 ? sqrt(s) : 1) : INFINITY;
}

/* The largest distance between the gradients of two modules' parameters. */
static inline double gradient_distance(yk_module *a, yk_module *b)
{
    yk_parameters *x = yk_module_parameters(a), *y = yk_module_parameters(b);
    double worst = yk_parameters_count(x) == yk_parameters_count(y) ? 0 : INFINITY;
    for (int64_t p = 0; p < yk_parameters_count(x) && p < yk_parameters_count(y); p++) {
        double d = distance(yk_grad(yk_parameters_at(x, p)), yk_grad(yk_parameters_at(y, p)));
        worst = d > worst ? d : worst;
    }
    return worst;
}

static inline double parameter_distance(yk_module *a, yk_module *b)
{
    yk_parameters *x = yk_module_parameters(a), *y = yk_module_parameters(b);
    double worst = yk_parameters_count(x) == yk_parameters_count(y) ? 0 : INFINITY;
    for (int64_t p = 0; p < yk_parameters_count(x) && p < yk_parameters_count(y); p++) {
        double d = distance(yk_parameters_at(x, p), yk_parameters_at(y, p));
        worst = d > worst ? d : worst;
    }
    return worst;
}

#endif
