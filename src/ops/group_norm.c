/*
 * group_norm.c - norms that are made of other operations: of groups of channels, of instances, by the root of the mean
 * square, by neighbouring channels. Layer: ops.
 *
 * A group's channels lie side by side, so that groups are the rows of a layer norm. Instances are the channels of a
 * batch norm of one input with N times as many.
 */
#include <float.h>
#include <math.h>

#include "ops/cast_policy.h"

/* f16 and bf16 as f32, which is computed in; NULL stays NULL. */
static yk_tensor *wide(yk_tensor *x)
{
    return x && yk__is_half((yk_dtype)x->dtype) ? yk_cast(x, YK_F32) : x;
}

/* The same values in the dtype, of the form of `like`. */
static yk_tensor *finished(yk_tensor *x, const yk_tensor *like)
{
    x = x ? yk_reshape(x, like->ndim, like->shape) : NULL;
    return x ? yk_cast(x, (yk_dtype)like->dtype) : NULL;
}

/* A vector over channels as (C, 1, ...), of one dimension less than x. */
static yk_tensor *over_channels(yk_tensor *vector, const yk_tensor *x)
{
    int64_t shape[YK_MAX_DIMS] = {0};
    for (int d = 0; d < YK_MAX_DIMS; d++)
        shape[d] = d ? 1 : vector->numel;
    return yk_reshape(vector, x->ndim - 1, shape);
}

/* x weight + bias, each of which may be NULL. */
static yk_tensor *scaled(yk_tensor *x, yk_tensor *weight, yk_tensor *bias)
{
    if (!x)
        return NULL;
    weight = weight ? over_channels(weight, x) : NULL;
    bias = bias ? over_channels(bias, x) : NULL;
    if (weight && bias)
        return yk_addcmul(bias, x, weight, 1);
    return weight ? yk_mul(x, weight) : bias ? yk_add(x, bias) : x;
}

/* x of (N, C, ...), and parameters of one number for each channel, of its dtype or the one that it is computed in. */
static bool inputs_check(const char *name, yk_tensor *x, int count, const char *const *role, yk_tensor *const *vector)
{
    char text[200];
    if (x->ndim < 2) {
        yk__fail(YK_ERR_SHAPE, "%s: input has shape %s, expected (N, C, ...)", name,
                 yk_shape_format(x, text, sizeof(text)));
        return false;
    }
    if (yk__expect_floating(name, "input", x) || yk__expect_wide_input(name, x, role, vector, count))
        return false;
    for (int i = 0; i < count; i++) {
        if (yk__expect_vector(name, role[i], vector[i], x->shape[1], "channel") ||
            (vector[i] && vector[i]->dtype != x->dtype &&
             yk__expect_dtype(name, role[i], vector[i], yk__wide_dtype(x))))
            return false;
    }
    return true;
}

/* ---- groups ---- */

static yk_tensor *normalised_groups(yk_tensor *x, int64_t groups, yk_tensor *weight, yk_tensor *bias, double eps)
{
    int64_t rows = x->shape[0] * groups, size = 1;
    for (int d = 1; d < x->ndim; d++)
        size *= x->shape[d];
    size /= groups;
    yk_tensor *h = yk_reshape(wide(x), 2, (int64_t[2]){rows, size});
    h = h ? yk_layer_norm(h, 1, &size, NULL, NULL, eps) : NULL;
    h = h ? yk_reshape(h, x->ndim, x->shape) : NULL;
    return finished(scaled(h, wide(weight), wide(bias)), x);
}

yk_tensor *yk_group_norm(yk_tensor *x, int64_t num_groups, yk_tensor *weight, yk_tensor *bias, double eps)
{
    static const char name[] = "group_norm";
    static const char *const role[2] = {"weight", "bias"};
    yk_tensor *inputs[3] = {x, weight, bias};
    char text[200];
    YK__AUTOCAST(group_norm, 3, inputs, yk_group_norm(inputs[0], num_groups, inputs[1], inputs[2], eps));
    YK__EVENT(YK__EVENT_OPERATION, name);
    if (!yk__op_begin(name, 3, inputs, 6) || !inputs_check(name, x, 2, role, inputs + 1) ||
        yk__check_integer(name, "num_groups", num_groups, 1, INT64_MAX) ||
        yk__check_number(name, "eps", eps, 0, INFINITY))
        return NULL;
    if (x->shape[1] % num_groups) {
        yk__fail(YK_ERR_SHAPE, "%s: the %lld channels of input %s do not divide into %lld groups", name,
                 (long long)x->shape[1], yk_shape_format(x, text, sizeof(text)), (long long)num_groups);
        return NULL;
    }
    if (x->numel == num_groups) { /* one input, and one value in each group */
        yk__fail(YK_ERR_SHAPE, "%s: expected more than 1 value per group, got input size %s and %lld groups", name,
                 yk_shape_format(x, text, sizeof(text)), (long long)num_groups);
        return NULL;
    }
    YK__WITHIN_SCOPE(normalised_groups(x, num_groups, weight, bias, eps));
}

/* ---- instances ---- */

enum { X, WEIGHT, BIAS, RUNNING_MEAN, RUNNING_VAR, INSTANCE_INPUTS };

static yk_tensor *repeated(yk_tensor *vector, int64_t n)
{
    return vector ? yk_repeat(vector, 1, &n) : NULL;
}

/* running = the mean over inputs of what each has made of it. */
static bool average_into(yk_tensor *running, yk_tensor *each, int64_t n)
{
    yk_tensor *rows = each ? yk_reshape(each, 2, (int64_t[2]){n, running->numel}) : NULL;
    yk_tensor *mean = rows ? yk_mean_dims(rows, (int[1]){0}, 1, false) : NULL;
    return mean && yk_copy_(running, mean);
}

static yk_tensor *normalised_instances(yk_tensor *const in[INSTANCE_INPUTS], const yk_instance_norm_options *o)
{
    yk_tensor *x = in[X], *each[2] = {NULL, NULL};
    int64_t n = x->shape[0], c = x->shape[1];
    yk_batch_norm_options b =
        *YK_OPTIONS(yk_batch_norm_options, .momentum = o->momentum, .eps = o->eps, .training = o->use_input_stats);
    if (!o->use_input_stats)
        return yk_batch_norm(x, in[WEIGHT], in[BIAS], in[RUNNING_MEAN], in[RUNNING_VAR], &b);
    if (!x->numel)
        return yk_clone(x);
    bool before = yk_no_grad_begin();
    if (in[RUNNING_MEAN]) {
        each[0] = repeated(in[RUNNING_MEAN], n);
        each[1] = repeated(in[RUNNING_VAR], n);
    }
    yk_no_grad_end(before);
    yk_tensor *lines = yk_reshape(x, 3, (int64_t[3]){1, n * c, x->numel / (n * c)});
    yk_tensor *out =
        lines ? yk_batch_norm(lines, repeated(in[WEIGHT], n), repeated(in[BIAS], n), each[0], each[1], &b) : NULL;
    before = yk_no_grad_begin();
    bool averaged = !out || !in[RUNNING_MEAN] ||
                    (average_into(in[RUNNING_MEAN], each[0], n) && average_into(in[RUNNING_VAR], each[1], n));
    yk_no_grad_end(before);
    return averaged ? finished(out, x) : NULL;
}

yk_tensor *yk_instance_norm(yk_tensor *x, yk_tensor *weight, yk_tensor *bias, yk_tensor *running_mean,
                            yk_tensor *running_var, const yk_instance_norm_options *options)
{
    static const char name[] = "instance_norm";
    static const char *const role[] = {"weight", "bias", "running_mean", "running_var"};
    yk_tensor *in[INSTANCE_INPUTS] = {x, weight, bias, running_mean, running_var};
    yk_instance_norm_options o;
    char text[200];
    YK__EVENT(YK__EVENT_OPERATION, name);
    if (YK__OPTIONS_TAKE(name, yk_instance_norm_options, options, &o) ||
        !yk__op_begin(name, INSTANCE_INPUTS, in, ~1u) || !inputs_check(name, x, 4, role, in + 1) ||
        yk__check_number(name, "momentum", o.momentum, 0, 1) || yk__check_positive(name, "eps", o.eps))
        return NULL;
    if (!running_mean != !running_var || (!o.use_input_stats && !running_mean)) {
        yk__fail(YK_ERR_ARGUMENT,
                 o.use_input_stats ? "%s: running_mean and running_var go together; one is NULL"
                                   : "%s: running_mean and running_var are needed without use_input_stats",
                 name);
        return NULL;
    }
    if (x->ndim < 3 || x->ndim > 5 || (o.use_input_stats && x->numel && x->numel == x->shape[0] * x->shape[1])) {
        yk__fail(YK_ERR_SHAPE,
                 "%s: input has shape %s, expected (N, C, ...) of 3 to 5 dimensions with more than 1 value "
                 "in each channel",
                 name, yk_shape_format(x, text, sizeof(text)));
        return NULL;
    }
    YK__WITHIN_SCOPE(normalised_instances(in, &o));
}

/* ---- the root of the mean square ---- */

static yk_tensor *rms_normalised(yk_tensor *x, int n_dims, yk_tensor *weight, double eps)
{
    int dims[YK_MAX_DIMS];
    for (int i = 0; i < n_dims; i++)
        dims[i] = x->ndim - n_dims + i;
    yk_tensor *in = wide(x);
    yk_tensor *scale = in ? yk_mean_dims(yk_square(in), dims, n_dims, true) : NULL;
    scale = scale ? yk_rsqrt(yk_add_scalar(scale, eps)) : NULL;
    yk_tensor *out = scale ? yk_mul(in, scale) : NULL;
    if (out && weight) /* of any dtype, as in PyTorch */
        out = yk_mul(out, yk_cast(weight, (yk_dtype)out->dtype));
    return out ? yk_cast(out, (yk_dtype)x->dtype) : NULL;
}

yk_tensor *yk_rms_norm(yk_tensor *x, int n_dims, const int64_t *normalized_shape, yk_tensor *weight, double eps)
{
    static const char name[] = "rms_norm";
    yk_tensor *inputs[2] = {x, weight};
    char a[200], b[200];
    YK__AUTOCAST(rms_norm, 2, inputs, yk_rms_norm(inputs[0], n_dims, normalized_shape, inputs[1], eps));
    YK__EVENT(YK__EVENT_OPERATION, name);
    if (!yk__op_begin(name, 2, inputs, 2) || yk__expect_floating(name, "input", x) ||
        (weight && yk__expect_floating(name, "weight", weight)))
        return NULL;
    if (eps == YK_NOT_GIVEN)
        eps = x->dtype == YK_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
    if (yk__check_number(name, "eps", eps, 0, INFINITY) ||
        (n_dims > 0 && !yk__is_there(name, "normalised shape", normalized_shape)))
        return NULL;
    bool fits = n_dims >= 1 && n_dims <= x->ndim;
    if (!fits || !yk__equal_sizes(x->shape + x->ndim - n_dims, normalized_shape, n_dims)) {
        int shown = n_dims < 0 ? 0 : n_dims > YK_MAX_DIMS ? YK_MAX_DIMS : n_dims;
        yk__fail(YK_ERR_SHAPE, "%s: input %s does not end in the normalised shape %s", name,
                 yk_shape_format(x, a, sizeof(a)), yk__shape_text(shown, normalized_shape, b, sizeof(b)));
        return NULL;
    }
    if (weight && (weight->ndim != n_dims || !yk__equal_sizes(weight->shape, normalized_shape, n_dims))) {
        yk__fail(YK_ERR_SHAPE, "%s: weight has shape %s, expected the normalised shape %s", name,
                 yk_shape_format(weight, a, sizeof(a)), yk__shape_text(n_dims, normalized_shape, b, sizeof(b)));
        return NULL;
    }
    YK__WITHIN_SCOPE(rms_normalised(x, n_dims, weight, eps));
}

/* ---- neighbouring channels ---- */

static yk_tensor *locally_normalised(yk_tensor *x, int64_t size, double alpha, double beta, double k)
{
    int64_t n = x->shape[0], c = x->shape[1], rest = n && c ? x->numel / (n * c) : 0;
    if (!x->numel)
        return yk_clone(x);
    yk_tensor *in = wide(x), *sums = in ? yk_reshape(yk_square(in), 4, (int64_t[4]){n, 1, c, rest}) : NULL;
    sums = sums ? yk_pad(sums, (int64_t[4]){0, 0, size / 2, (size - 1) / 2}, 4, YK_PAD_CONSTANT, 0) : NULL;
    sums = sums ? yk_avg_pool2d(sums, YK_OPTIONS(yk_pool2d_options, .kernel = {size, 1}, .stride = {1, 1})) : NULL;
    sums = sums ? yk_reshape(sums, x->ndim, x->shape) : NULL;
    yk_tensor *divisor = sums ? yk_pow_scalar(yk_add_scalar(yk_mul_scalar(sums, alpha), k), beta) : NULL;
    return divisor ? yk_cast(yk_div(in, divisor), (yk_dtype)x->dtype) : NULL;
}

yk_tensor *yk_local_response_norm(yk_tensor *x, int64_t size, double alpha, double beta, double k)
{
    static const char name[] = "local_response_norm";
    char text[200];
    YK__AUTOCAST(local_response_norm, 1, &x, yk_local_response_norm(x, size, alpha, beta, k));
    YK__EVENT(YK__EVENT_OPERATION, name);
    if (!yk__op_begin(name, 1, &x, 0) || yk__expect_floating(name, "input", x) ||
        yk__check_integer(name, "size", size, 1, INT32_MAX) ||
        yk__check_number(name, "alpha", alpha, -DBL_MAX, DBL_MAX) ||
        yk__check_number(name, "beta", beta, -DBL_MAX, DBL_MAX) || yk__check_number(name, "k", k, -DBL_MAX, DBL_MAX))
        return NULL;
    if (x->ndim < 3) {
        yk__fail(YK_ERR_SHAPE, "%s: input has shape %s, expected (N, C, ...) of at least 3 dimensions", name,
                 yk_shape_format(x, text, sizeof(text)));
        return NULL;
    }
    YK__WITHIN_SCOPE(locally_normalised(x, size, alpha, beta, k));
}
