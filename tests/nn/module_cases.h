/*
 * module_cases.h - cases of modules that PyTorch computed, in the form that tests/golden/module_cases.py writes: names
 * and shapes of the state dict, then outputs and all gradients for given inputs, twice, for the second backward adds to
 * the gradients of the first.
 */
#ifndef YOKE_TESTS_MODULE_CASES_H
#define YOKE_TESTS_MODULE_CASES_H

#include <stdlib.h>

#include <yoke/nn.h>

#include "tests/support/expect.h"
#include "tests/support/golden.h"

enum { CASE_TENSORS = 16 };

static inline void case_expect(const char *which, const char *name, yk_tensor *x, const double *expected, double room)
{
    if (!x)
        fail_msg("%s: %s is missing: %s", which, name, yk_last_error() ? yk_last_error()->message : "no record");
    size_t count = (size_t)yk_numel(x);
    double *values = malloc(sizeof(double) * (count + 1));
    assert_non_null(values);
    expect_ok(yk_tensor_read(yk_cast(yk_detach(x), YK_F64), values, sizeof(double) * count));
    for (size_t i = 0; i < count; i++)
        if (!(fabs(values[i] - expected[i]) <= room * (1 + fabs(expected[i]))))
            fail_msg("%s: %s[%zu] is %.17g, expected %.17g", which, name, i, values[i], expected[i]);
    free(values);
}

static inline int case_shape(const char **row, int64_t *shape)
{
    int ndim = golden_integer(row);
    assert_true(ndim <= YK_MAX_DIMS);
    for (int d = 0; d < ndim; d++)
        shape[d] = golden_integer(row);
    return ndim;
}

static inline void case_expect_shape(const char *which, const char *name, const yk_tensor *x, const char **row)
{
    int64_t shape[YK_MAX_DIMS];
    int ndim = case_shape(row, shape);
    if (yk_ndim(x) != ndim)
        fail_msg("%s: %s has %d dimensions, expected %d", which, name, yk_ndim(x), ndim);
    for (int d = 0; d < ndim; d++)
        if (yk_size(x, d) != shape[d])
            fail_msg("%s: %s has %lld at dimension %d, expected %lld", which, name, (long long)yk_size(x, d), d,
                     (long long)shape[d]);
}

/* A tensor of an "input" row, NULL for none; *values go on. */
static inline yk_tensor *case_input(const char *row, const double **values, bool *floating)
{
    char kind[16];
    int64_t shape[YK_MAX_DIMS];
    golden_word(&row, kind, sizeof(kind));
    *floating = strcmp(kind, "float") == 0;
    if (strcmp(kind, "none") == 0)
        return NULL;
    int ndim = case_shape(&row, shape);
    yk_tensor *x = yk_from_data(*values, ndim, shape, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    *values += yk_numel(x);
    if (!*floating)
        return yk_cast(x, strcmp(kind, "bool") == 0 ? YK_BOOL : YK_I64);
    expect_ok(yk_set_requires_grad(x, true));
    return x;
}

/* Writes the case's values into m, made f64, whose state dict must have its names and shapes; the numbers that follow.
 */
static inline const double *case_load(const char *file, const char *name, yk_module *m)
{
    char section[64];
    size_t count;
    const char *const *rows = golden_rows(file, name, &count);
    snprintf(section, sizeof(section), "%s_numbers", name);
    const double *values = golden_numbers(file, section, NULL);
    expect_ok(yk_module_to_dtype(m, YK_F64) ? YK_OK : YK_ERR_ARGUMENT);
    yk_state_dict *state = yk_module_state_dict(m);
    int64_t entries = 0;
    bool before = yk_no_grad_begin();
    for (size_t i = 0; i < count; i++) {
        const char *row = rows[i];
        char word[128];
        golden_word(&row, word, sizeof(word));
        if (strcmp(word, "state") != 0)
            continue;
        golden_word(&row, word, sizeof(word));
        yk_tensor *x = yk_state_dict_at(state, entries);
        if (!x || strcmp(yk_state_dict_name(state, entries), word) != 0)
            fail_msg("%s: entry %d is %s, expected %s", name, (int)entries,
                     x ? yk_state_dict_name(state, entries) : "missing", word);
        entries++;
        case_expect_shape(name, word, x, &row);
        int64_t shape[YK_MAX_DIMS];
        for (int d = 0; d < yk_ndim(x); d++)
            shape[d] = yk_size(x, d);
        yk_tensor *value = yk_from_data(values, yk_ndim(x), shape, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
        expect_ok(yk_copy_(x, value) ? YK_OK : YK_ERR_ARGUMENT);
        values += yk_numel(x);
    }
    yk_no_grad_end(before);
    assert_int_equal(yk_state_dict_count(state), entries);
    return values;
}

/* Runs the case with a module, which it makes f64; `room` is that of outputs, gradients have ten times of it. */
static inline void case_run(const char *file, const char *name, yk_module *m, double room)
{
    char word[128];
    size_t count;
    expect_ok(m ? YK_OK : YK_ERR_ARGUMENT);
    const char *const *rows = golden_rows(file, name, &count);
    const double *values = case_load(file, name, m);
    yk_tensor *in[CASE_TENSORS], *out[CASE_TENSORS];
    bool floating[CASE_TENSORS];
    const char *shapes[CASE_TENSORS];
    int n_in = 0, n_out = 0;
    int64_t results = 0; /* numbers of all outputs */
    for (size_t i = 0; i < count; i++) {
        const char *row = rows[i];
        golden_word(&row, word, sizeof(word));
        assert_true(n_in < CASE_TENSORS && n_out < CASE_TENSORS);
        if (strcmp(word, "input") == 0) {
            in[n_in] = case_input(row, &values, &floating[n_in]);
            n_in++;
        } else if (strcmp(word, "output") == 0) {
            shapes[n_out++] = row;
            int64_t shape[YK_MAX_DIMS], numbers = 1;
            for (int d = case_shape(&row, shape) - 1; d >= 0; d--)
                numbers *= shape[d];
            results += numbers;
        }
    }
    assert_true(n_in > 0 && n_out > 0);
    for (int round = 1; round <= 2; round++) {
        const double *expected = values, *pulls = values + results;
        if (yk_forward_list(m, in, n_in, out, n_out))
            fail_msg("%s: %s", name, yk_last_error()->message);
        yk_tensor *loss = NULL;
        for (int i = 0; i < n_out; i++) {
            const char *row = shapes[i];
            int64_t shape[YK_MAX_DIMS];
            case_expect_shape(name, "the output", out[i], &row);
            row = shapes[i];
            int ndim = case_shape(&row, shape);
            case_expect(name, "the output", out[i], expected, room);
            yk_tensor *factor = yk_from_data(pulls, ndim, shape, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
            yk_tensor *part = yk_sum(yk_mul(out[i], factor));
            loss = loss ? yk_add(loss, part) : part;
            expected += yk_numel(out[i]);
            pulls += yk_numel(out[i]);
        }
        expect_ok(yk_backward(loss));
        yk_parameters *parameters = yk_module_parameters(m);
        for (int64_t i = 0; i < yk_parameters_count(parameters); i++) {
            yk_tensor *p = yk_parameters_at(parameters, i);
            snprintf(word, sizeof(word), "the gradient of %s", yk_parameters_name(parameters, i));
            yk_tensor *g = yk_grad(p) ? yk_div_scalar(yk_grad(p), round) : yk_zeros_like(p);
            case_expect(name, word, g, pulls, 10 * room);
            pulls += yk_numel(p);
        }
        for (int i = 0; i < n_in; i++) {
            if (!in[i] || !floating[i])
                continue;
            snprintf(word, sizeof(word), "the gradient of input %d", i);
            case_expect(name, word, yk_div_scalar(yk_grad(in[i]), round), pulls, 10 * room);
            pulls += yk_numel(in[i]);
        }
    }
}

#endif
