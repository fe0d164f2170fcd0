/*
 * ckpt_diff.c - `yoke ckpt diff`. Layer: cli.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/core.h"
#include "cli/ckpt/ckpt.h"
#include "tensor/tensor.h"
#include "value/value.h"

typedef struct report {
    const ckpt_settings *settings;
    json_t *only[2], *differ;
    int64_t differences, equal;
} report;

/* Prints a line, or keeps an entry for the JSON. */
static void differs(report *r, const char *name, const char *what, const char *a, const char *b, double largest)
{
    r->differences++;
    bool measured = !isnan(largest);
    if (r->settings->json) {
        json_t *entry = measured ? json_pack("{s:s, s:s}", "name", name, "what", what)
                                 : json_pack("{s:s, s:s, s:s, s:s}", "name", name, "what", what, "a", a, "b", b);
        if (measured && isfinite(largest))
            json_object_set_new(entry, "max_abs", json_real(largest));
        json_array_append_new(r->differ, entry);
    } else if (measured) {
        printf("%s: values differ by up to %.9g\n", cli_plain(name), largest);
    } else {
        printf("%s: %s %s and %s\n", cli_plain(name), what, cli_plain(a), cli_plain(b));
    }
}

static void only_in(report *r, int side, const char *name)
{
    r->differences++;
    if (r->settings->json)
        json_array_append_new(r->only[side], json_string(name));
    else
        printf("%s: only in %s\n", cli_plain(name), cli_plain(r->settings->paths[side]));
}

/* All elements in C order; the caller frees. */
static void *elements(const yk_tensor *x, size_t bytes)
{
    void *data = yk__calloc(bytes + 1, 1);
    if (data && bytes && yk_tensor_read(x, data, bytes)) {
        free(data);
        return NULL;
    }
    return data;
}

/* Elements as doubles; the caller frees. i64 beyond 2^53 is rounded: where all are equal then, bytes still tell. */
static double *as_doubles(const yk_tensor *x)
{
    yk_tensor *wide = yk__raw_cast((yk_tensor *)x, YK_F64);
    double *data = wide ? elements(wide, (size_t)yk_numel(x) * sizeof(double)) : NULL;
    yk_tensor_release(wide);
    return data;
}

/* The largest |a - b|; infinity where one alone is NaN, 0 where both are. */
static yk_status largest_difference(const yk_tensor *a, const yk_tensor *b, double *largest)
{
    double *x = as_doubles(a), *y = as_doubles(b);
    *largest = 0;
    for (int64_t i = 0, n = yk_numel(a); x && y && i < n; i++) {
        double d = x[i] == y[i] || (isnan(x[i]) && isnan(y[i])) ? 0 : fabs(x[i] - y[i]);
        if (isnan(d))
            d = INFINITY;
        *largest = d > *largest ? d : *largest;
    }
    yk_status status = x && y ? YK_OK : yk__error_code();
    free(x);
    free(y);
    return status;
}

static yk_status compare_tensors(report *r, const char *name, const yk_tensor *a, const yk_tensor *b)
{
    char one[200], two[200];
    if (yk_tensor_dtype(a) != yk_tensor_dtype(b)) {
        differs(r, name, "dtypes", yk_dtype_name(yk_tensor_dtype(a)), yk_dtype_name(yk_tensor_dtype(b)), NAN);
        return YK_OK;
    }
    if (!yk_same_shape(a, b)) {
        differs(r, name, "shapes", yk_shape_format(a, one, sizeof(one)), yk_shape_format(b, two, sizeof(two)), NAN);
        return YK_OK;
    }
    size_t bytes = (size_t)yk_numel(a) * yk_dtype_size(yk_tensor_dtype(a));
    void *x = elements(a, bytes), *y = elements(b, bytes);
    bool same = x && y && memcmp(x, y, bytes) == 0;
    yk_status status = x && y ? YK_OK : yk__error_code();
    free(x);
    free(y);
    if (status || same) {
        r->equal += same;
        return status;
    }
    double largest;
    status = largest_difference(a, b, &largest);
    bool zero = largest == 0 && yk_tensor_dtype(a) != YK_I64; /* -0 and 0, or NaNs of other bits */
    if (!status && zero)
        r->equal++;
    else if (!status)
        differs(r, name, "values", "", "", largest);
    return status;
}

static yk_status tensors_compare(report *r, const char *name, const yk_value *a, const yk_value *b)
{
    if (a->kind == YK_VALUE_TENSOR && b->kind == YK_VALUE_TENSOR)
        return compare_tensors(r, name, a->as.tensor, b->as.tensor);
    if (a->kind == YK_VALUE_LEFT_OUT && b->kind == YK_VALUE_LEFT_OUT) {
        differs(r, name, "left out, so not compared:", yk_value_left_out(a), yk_value_left_out(b), NAN);
        return YK_OK;
    }
    if (a->kind != b->kind) {
        differs(r, name, "kinds", yk_value_kind_name(a->kind), yk_value_kind_name(b->kind), NAN);
        return YK_OK;
    }
    bool same = true;
    if (a->kind == YK_VALUE_BYTES || a->kind == YK_VALUE_STRING)
        same =
            a->as.bytes.size == b->as.bytes.size && memcmp(a->as.bytes.data, b->as.bytes.data, a->as.bytes.size) == 0;
    else if (a->kind == YK_VALUE_REAL)
        same = a->as.real == b->as.real || (isnan(a->as.real) && isnan(b->as.real));
    else if (a->kind == YK_VALUE_INT)
        same = a->as.integer == b->as.integer;
    else if (a->kind == YK_VALUE_BOOL)
        same = a->as.boolean == b->as.boolean;
    r->equal += same;
    if (same)
        return YK_OK;
    char *one = ckpt_leaf_text(a), *two = ckpt_leaf_text(b);
    differs(r, name, "values", one ? one : "?", two ? two : "?", NAN);
    free(one);
    free(two);
    return YK_OK;
}

int ckpt_diff(const ckpt_settings *s)
{
    const char *format;
    yk_value *leaves[2];
    for (int side = 0; side < 2; side++) {
        yk_value *value = ckpt_load(s->paths[side], &format);
        leaves[side] = value ? ckpt_leaves(s->paths[side], value) : NULL;
        if (!leaves[side])
            return ckpt_failed(s);
    }
    report r = {.settings = s, .only = {json_array(), json_array()}, .differ = json_array()};
    yk_status status = YK_OK;
    for (int64_t i = 0; i < yk_value_count(leaves[0]) && !status; i++) {
        const char *name = yk_value_key(leaves[0], i, NULL);
        const yk_value *other = yk_value_get(leaves[1], name);
        if (other)
            status = tensors_compare(&r, name, yk_value_at(leaves[0], i), other);
        else
            only_in(&r, 0, name);
    }
    for (int64_t i = 0; i < yk_value_count(leaves[1]) && !status; i++) {
        const char *name = yk_value_key(leaves[1], i, NULL);
        if (!yk_value_get(leaves[0], name))
            only_in(&r, 1, name);
    }
    json_t *json = json_pack("{s:s, s:s, s:I, s:I, s:o, s:o, s:o}", "a", s->paths[0], "b", s->paths[1], "equal",
                             (json_int_t)r.equal, "differences", (json_int_t)r.differences, "only_a", r.only[0],
                             "only_b", r.only[1], "differ", r.differ);
    if (status) {
        json_decref(json);
        return ckpt_failed(s);
    }
    if (s->json) {
        if (ckpt_print_json(json))
            return EXIT_FAILED;
    } else {
        json_decref(json);
        printf("%" PRId64 " equal, %" PRId64 " different\n", r.equal, r.differences);
    }
    return r.differences ? EXIT_FAILED : EXIT_DONE;
}
