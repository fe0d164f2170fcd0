/*
 * create.c - tensors out of nothing: filled, counted, random, or from the caller's memory. Layer: tensor.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/graph.h"
#include "tensor/host_tensor.h"

static yk_tensor *tensor_finish(yk_tensor *x, yk_status status, const yk_tensor_options *options)
{
    if (x && !status && options && options->requires_grad)
        status = yk__tensor_require_grad(x);
    if (status) {
        yk_tensor_release(x);
        return NULL;
    }
    return yk__scope_own(x);
}

/* Begins a tensor on exactly the options' device: a tensor that is like another is on the device of that one. */
static yk_tensor *begin_there(const char *what, int ndim, const int64_t *shape, const yk_tensor_options *options)
{
    yk__operation_name = what;
    bool fine = yk__scope_check(what) && !yk__tensor_check(what, ndim, shape, options);
    return fine ? yk__tensor_new(ndim, shape, NULL, options->dtype, options->device) : NULL;
}

static yk_tensor *tensor_begin(const char *what, int ndim, const int64_t *shape, const yk_tensor_options *options)
{
    yk_tensor_options o = yk__default_options(options);
    return begin_there(what, ndim, shape, &o);
}

yk_tensor *yk_empty(int ndim, const int64_t *shape, const yk_tensor_options *options)
{
    return tensor_finish(tensor_begin("empty", ndim, shape, options), YK_OK, options);
}

static yk_tensor *filled_there(const char *what, int ndim, const int64_t *shape, double value,
                               const yk_tensor_options *options)
{
    yk_tensor *x = begin_there(what, ndim, shape, options);
    yk_status status = x ? yk__check_value(what, options->dtype, value) : YK_OK;
    return tensor_finish(x, x && !status ? yk__raw_fill(x, value) : status, options);
}

static yk_tensor *filled(const char *what, int ndim, const int64_t *shape, double value,
                         const yk_tensor_options *options)
{
    yk_tensor_options o = yk__default_options(options);
    return filled_there(what, ndim, shape, value, &o);
}

yk_tensor *yk_zeros(int ndim, const int64_t *shape, const yk_tensor_options *options)
{
    return filled("zeros", ndim, shape, 0, options);
}

yk_tensor *yk_ones(int ndim, const int64_t *shape, const yk_tensor_options *options)
{
    return filled("ones", ndim, shape, 1, options);
}

yk_tensor *yk_full(int ndim, const int64_t *shape, double value, const yk_tensor_options *options)
{
    return filled("full", ndim, shape, value, options);
}

yk_tensor *yk_scalar(double value, const yk_tensor_options *options)
{
    yk_tensor *x = tensor_begin("scalar", 0, NULL, options);
    yk_status status = YK_OK; /* as in torch.tensor a float that the dtype does not hold becomes infinite */
    if (x && !yk_dtype_is_floating((yk_dtype)x->dtype))
        status = yk__check_value("scalar", (yk_dtype)x->dtype, value);
    return tensor_finish(x, x && !status ? yk__raw_fill(x, value) : status, options);
}

/* Writes elements that were made on the host into x, casting from i64 or f64. */
static yk_status write_host(yk_tensor *x, const void *data, yk_dtype dtype)
{
    yk_tensor *host = yk__tensor_new(x->ndim, x->shape, NULL, dtype, (yk_device){0});
    if (!host)
        return yk__error_code();
    memcpy(host->data, data, (size_t)x->numel * yk_dtype_size(dtype));
    yk_status status = yk__raw_copy(x, host);
    yk_tensor_release(host);
    return status;
}

/* True for an integer whose double i64 holds, too. */
static bool whole(double value)
{
    return fabs(value) < 0x1p62 && value == floor(value);
}

/* Numbers of a range into host memory: false where they are to be made as f64 and cast. */
static bool count_up(void *to, yk_dtype dtype, int64_t n, double start, double step)
{
    enum { BLOCK = 1024 }; /* counted in 32 bits, which baseline processors convert in vectors */
    int64_t first = 0, by = 0;
    if (dtype == YK_I64 || dtype == YK_I32)
        first = (int64_t)start, by = (int64_t)step;
    for (int64_t i = 0; i < n; i += BLOCK) {
        int32_t m = n - i < BLOCK ? (int32_t)(n - i) : BLOCK;
        double before = (double)i;
        switch (dtype) {
        case YK_F32:
            for (int32_t k = 0; k < m; k++)
                ((float *)to)[i + k] = (float)(start + (before + (double)k) * step);
            break;
        case YK_F64:
            for (int32_t k = 0; k < m; k++)
                ((double *)to)[i + k] = start + (before + (double)k) * step;
            break;
        case YK_I64:
            for (int32_t k = 0; k < m; k++)
                ((int64_t *)to)[i + k] = first + (i + k) * by;
            break;
        case YK_I32:
            for (int32_t k = 0; k < m; k++)
                ((int32_t *)to)[i + k] = (int32_t)(first + (i + k) * by);
            break;
        default: return false;
        }
    }
    return true;
}

yk_tensor *yk_arange(double start, double end, double step, const yk_tensor_options *options)
{
    double count = step != 0 ? ceil((end - start) / step) : -1;
    if (step == 0 || !isfinite(count) || !isfinite(start) || !isfinite(step)) {
        yk__fail(YK_ERR_ARGUMENT, "arange: from %g to %g by %g is not a range", start, end, step);
        return NULL;
    }
    if ((end - start) / step < 0) {
        yk__fail(YK_ERR_ARGUMENT, "arange: from %g to %g goes against the step %g", start, end, step);
        return NULL;
    }
    yk_tensor_options o = yk__default_options(options);
    bool floating = yk_dtype_is_floating(o.dtype);
    if (!floating && !(whole(start) && whole(step) && fabs(end) < 0x1p62)) {
        yk__fail(YK_ERR_ARGUMENT, "arange: from %g to %g by %g is not a range of %s integers", start, end, step,
                 yk_dtype_name(o.dtype));
        return NULL;
    }
    int64_t n = count < 0x1p62 ? (int64_t)count : INT64_MAX; /* the largest is refused as a size */
    yk_tensor *x = tensor_begin("arange", 1, &n, options);
    if (!x)
        return NULL;
    bool within = fabs(start) <= INT32_MAX && fabs(end) <= INT32_MAX;
    bool on_host = yk__backend_for(x)->host_memory && (x->dtype != YK_I32 || within);
    if (n == 0 || (on_host && count_up(x->data, (yk_dtype)x->dtype, n, start, step)))
        return tensor_finish(x, YK_OK, options);
    double *values = yk__calloc((size_t)n, sizeof(double));
    yk_status status = values ? YK_OK : YK_ERR_MEMORY;
    for (int64_t i = 0; values && i < n; i++) {
        double value = start + (double)i * step;
        values[i] = floating ? value : (double)((int64_t)start + i * (int64_t)step);
    }
    if (!status && n)
        status = write_host(x, values, YK_F64);
    free(values);
    return tensor_finish(x, status, options);
}

/* Fails unless a dtype holds the range and its width. */
static yk_status check_range(const char *what, yk_dtype dtype, double low, double high)
{
    if (!(low <= high))
        return yk__fail(YK_ERR_ARGUMENT, "%s: the range [%g, %g) is empty", what, low, high);
    double most = yk__largest(dtype),
           width = yk__largest(dtype == YK_F64 ? YK_F64 : YK_F32); /* halves are drawn as f32 */
    if (low < -most || high > most || high - low > width)
        return yk__fail(YK_ERR_ARGUMENT, "%s: the range [%g, %g) does not fit in %s", what, low, high,
                        yk_dtype_name(dtype));
    return YK_OK;
}

yk_status yk__raw_random(const char *what, yk_tensor *x, yk__random_kind kind, double p0, double p1)
{
    const yk__backend *backend = yk__backend_for(x);
    yk__view v = yk__view_of(x);
    if (!backend->random)
        return yk__slot_missing(yk__device_of(x), what);
    yk_status status = kind == YK__RANDOM_UNIFORM ? check_range(what, (yk_dtype)x->dtype, p0, p1) : YK_OK;
    if (status)
        return status;
    const uint32_t *calls;
    yk__stream stream = yk__random_draw(yk__device_of(x), &calls);
    return backend->random(yk__device_of(x).index, kind, &v, stream, calls, p0, p1);
}

static yk_tensor *drawn_there(const char *what, yk__random_kind kind, int ndim, const int64_t *shape, double p0,
                              double p1, const yk_tensor_options *options)
{
    yk_tensor *x = begin_there(what, ndim, shape, options);
    if (!x)
        return NULL;
    yk_status status = YK_OK;
    if (!yk_dtype_is_floating((yk_dtype)x->dtype))
        status =
            yk__fail(YK_ERR_DTYPE, "%s: expected a floating dtype, not %s", what, yk_dtype_name((yk_dtype)x->dtype));
    if (!status)
        status = yk__raw_random(what, x, kind, p0, p1);
    return tensor_finish(x, status, options);
}

static yk_tensor *drawn(const char *what, yk__random_kind kind, int ndim, const int64_t *shape, double p0, double p1,
                        const yk_tensor_options *options)
{
    yk_tensor_options o = yk__default_options(options);
    return drawn_there(what, kind, ndim, shape, p0, p1, &o);
}

yk_tensor *yk_rand(int ndim, const int64_t *shape, const yk_tensor_options *options)
{
    return drawn("rand", YK__RANDOM_UNIFORM, ndim, shape, 0, 1, options);
}

yk_tensor *yk_randn(int ndim, const int64_t *shape, const yk_tensor_options *options)
{
    return drawn("randn", YK__RANDOM_NORMAL, ndim, shape, 0, 1, options);
}

/* The integers in [low, high) that a floating dtype holds: false where there is none. */
static bool integers_of(yk_dtype dtype, int64_t *low, int64_t *high)
{
    int digits = dtype == YK_F64 ? 53 : dtype == YK_F32 ? 24 : dtype == YK_F16 ? 11 : 8;
    int64_t bounds[2] = {*low, *high - 1};
    for (int end = 0; end < 2; end++) {
        uint64_t size = bounds[end] < 0 ? -(uint64_t)bounds[end] : (uint64_t)bounds[end];
        int lost = size ? 64 - __builtin_clzll(size) - digits : 0;
        int64_t step = lost > 0 ? INT64_C(1) << lost : 1; /* from one number of this size to the next */
        if (end == 0 && __builtin_add_overflow(bounds[0], step - 1, &bounds[0]))
            return false;
        bounds[end] &= -step;
    }
    *low = bounds[0], *high = bounds[1] + 1;
    return *low < *high;
}

yk_tensor *yk_randint(int64_t low, int64_t high, int ndim, const int64_t *shape, const yk_tensor_options *options)
{
    if (low >= high) {
        yk__fail(YK_ERR_ARGUMENT, "randint: the range [%lld, %lld) is empty", (long long)low, (long long)high);
        return NULL;
    }
    yk_tensor_options o = options ? *options : *YK_OPTIONS(yk_tensor_options);
    if (o.dtype == YK_DTYPE_NOT_GIVEN)
        o.dtype = YK_I64;
    yk_dtype dtype = o.dtype;
    int64_t least = INT64_MIN, most = INT64_MAX;
    switch (dtype) {
    case YK_I32: least = INT32_MIN, most = INT32_MAX; break;
    case YK_U8: least = 0, most = UINT8_MAX; break;
    case YK_BOOL: least = 0, most = 1; break;
    case YK_F16: least = -65504, most = 65504; break;
    default: break;
    }
    if (low < least || high - 1 > most) {
        yk__fail(YK_ERR_ARGUMENT, "randint: the range [%lld, %lld) does not fit in %s", (long long)low, (long long)high,
                 yk_dtype_name(dtype));
        return NULL;
    }
    int64_t first = low, end = high;
    if (yk_dtype_is_floating(dtype) && !integers_of(dtype, &first, &end)) {
        yk__fail(YK_ERR_ARGUMENT, "randint: no integer in [%lld, %lld) is a %s", (long long)low, (long long)high,
                 yk_dtype_name(dtype));
        return NULL;
    }
    yk_tensor *x = tensor_begin("randint", ndim, shape, &o);
    if (!x)
        return NULL;
    const uint32_t *calls;
    yk__view v = yk__view_of(x);
    yk__stream stream = yk__random_draw(yk__device_of(x), &calls);
    return tensor_finish(x, YK__SLOT(x, random_integers, &v, stream, calls, first, end), &o);
}

yk_tensor *yk_randperm(int64_t n)
{
    yk_tensor *host =
        begin_there("randperm", 1, &n, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64, .device = {YK_CPU, 0}));
    if (!host)
        return NULL;
    const uint32_t *calls;
    yk__random_permutation(yk__random_draw((yk_device){0}, &calls), host->data, n);
    yk_tensor *x = yk__raw_to(host, yk__default_options(NULL).device);
    yk_tensor_release(host);
    return tensor_finish(x, YK_OK, NULL);
}

static yk_tensor *from_data_there(const char *what, const void *data, int ndim, const int64_t *shape,
                                  const yk_tensor_options *options)
{
    yk_tensor *x = begin_there(what, ndim, shape, options);
    if (!x)
        return NULL;
    yk_status status = YK_OK;
    if (!data && x->numel)
        status = yk__fail(YK_ERR_ARGUMENT, "%s: the data is NULL", what);
    else if (x->numel)
        status = yk__backend_for(x)->upload(yk__device_of(x).index, x->data, data,
                                            (size_t)x->numel * yk_dtype_size((yk_dtype)x->dtype));
    return tensor_finish(x, status, options);
}

yk_tensor *yk_from_data(const void *data, int ndim, const int64_t *shape, const yk_tensor_options *options)
{
    yk_tensor_options o = yk__default_options(options);
    return from_data_there("from_data", data, ndim, shape, &o);
}

yk_tensor *yk_from_memory(void *data, int ndim, const int64_t *shape, yk_dtype dtype, void (*release)(void *),
                          void *context)
{
    if (!yk__scope_check("from_memory") ||
        yk__tensor_check("from_memory", ndim, shape,
                         YK_OPTIONS(yk_tensor_options, .dtype = dtype, .device = {YK_CPU, 0})))
        return NULL;
    size_t bytes = yk_dtype_size(dtype);
    for (int d = 0; d < ndim; d++)
        bytes *= (size_t)shape[d];
    if (!data && bytes) {
        yk__fail(YK_ERR_ARGUMENT, "from_memory: the memory is NULL");
        return NULL;
    }
    if ((uintptr_t)data % yk_dtype_size(dtype)) {
        yk__fail(YK_ERR_ARGUMENT, "from_memory: the memory is not aligned to the %zu bytes of a %s",
                 yk_dtype_size(dtype), yk_dtype_name(dtype));
        return NULL;
    }
    yk__storage *storage = yk__storage_wrap((yk_device){0}, data, bytes, release, context);
    if (storage)
        storage->foreign_release = NULL; /* until nothing can fail any more the memory stays the caller's */
    yk_tensor *x = yk__scope_own(yk__tensor_over(storage, ndim, shape, dtype));
    if (x)
        storage->foreign_release = release;
    return x;
}

/* ---- like another tensor ---- */

/* The options of a tensor like x, which has to be there. */
static bool options_like(const char *what, const yk_tensor *x, const yk_like_options *options, yk_tensor_options *o)
{
    yk_like_options given;
    if (!yk__is_there(what, "tensor", x) || YK__OPTIONS_TAKE(what, yk_like_options, options, &given))
        return false;
    bool there = yk_device_equal(given.device, YK_DEVICE_NOT_GIVEN);
    *o = *YK_OPTIONS(yk_tensor_options, .dtype = given.dtype == YK_DTYPE_NOT_GIVEN ? (yk_dtype)x->dtype : given.dtype,
                     .device = there ? yk__device_of(x) : given.device, .requires_grad = given.requires_grad);
    return true;
}

/* A tensor like x without values, in x's memory order where x is dense. */
static yk_tensor *like(const char *what, const yk_tensor *x, const yk_tensor_options *options)
{
    yk__operation_name = what;
    bool fine = yk__scope_check(what) && !yk__tensor_check(what, x->ndim, x->shape, options);
    return fine ? yk__tensor_new(x->ndim, x->shape, yk__is_dense(x) ? x->stride : NULL, options->dtype, options->device)
                : NULL;
}

static yk_tensor *filled_like(const char *what, const yk_tensor *x, double value, const yk_like_options *options)
{
    yk_tensor_options o;
    if (!options_like(what, x, options, &o))
        return NULL;
    yk_tensor *out = like(what, x, &o);
    yk_status status = out ? yk__check_value(what, o.dtype, value) : YK_OK;
    return tensor_finish(out, out && !status ? yk__raw_fill(out, value) : status, &o);
}

yk_tensor *yk_empty_like_with(const yk_tensor *x, const yk_like_options *options)
{
    YK__LIVE(x);
    yk_tensor_options o;
    if (!options_like("empty_like", x, options, &o))
        return NULL;
    return tensor_finish(like("empty_like", x, &o), YK_OK, &o);
}

yk_tensor *yk_zeros_like_with(const yk_tensor *x, const yk_like_options *options)
{
    YK__LIVE(x);
    return filled_like("zeros_like", x, 0, options);
}

yk_tensor *yk_ones_like_with(const yk_tensor *x, const yk_like_options *options)
{
    YK__LIVE(x);
    return filled_like("ones_like", x, 1, options);
}

yk_tensor *yk_full_like_with(const yk_tensor *x, double value, const yk_like_options *options)
{
    YK__LIVE(x);
    return filled_like("full_like", x, value, options);
}

static yk_tensor *drawn_like(const char *what, yk__random_kind kind, const yk_tensor *x, const yk_like_options *options)
{
    yk_tensor_options o;
    if (!options_like(what, x, options, &o))
        return NULL;
    return drawn_there(what, kind, x->ndim, x->shape, 0, 1, &o);
}

yk_tensor *yk_rand_like_with(const yk_tensor *x, const yk_like_options *options)
{
    YK__LIVE(x);
    return drawn_like("rand_like", YK__RANDOM_UNIFORM, x, options);
}

yk_tensor *yk_randn_like_with(const yk_tensor *x, const yk_like_options *options)
{
    YK__LIVE(x);
    return drawn_like("randn_like", YK__RANDOM_NORMAL, x, options);
}

yk_tensor *yk_empty_like(const yk_tensor *x)
{
    return yk_empty_like_with(x, NULL);
}

yk_tensor *yk_zeros_like(const yk_tensor *x)
{
    return yk_zeros_like_with(x, NULL);
}

yk_tensor *yk_ones_like(const yk_tensor *x)
{
    return yk_ones_like_with(x, NULL);
}

yk_tensor *yk_full_like(const yk_tensor *x, double value)
{
    return yk_full_like_with(x, value, NULL);
}

yk_tensor *yk_rand_like(const yk_tensor *x)
{
    return yk_rand_like_with(x, NULL);
}

yk_tensor *yk_randn_like(const yk_tensor *x)
{
    return yk_randn_like_with(x, NULL);
}

/* ---- of another shape ---- */

yk_tensor *yk_new_empty(const yk_tensor *x, int ndim, const int64_t *shape, const yk_like_options *options)
{
    YK__LIVE(x);
    yk_tensor_options o;
    if (!options_like("new_empty", x, options, &o))
        return NULL;
    return tensor_finish(begin_there("new_empty", ndim, shape, &o), YK_OK, &o);
}

static yk_tensor *new_filled(const char *what, const yk_tensor *x, int ndim, const int64_t *shape, double value,
                             const yk_like_options *options)
{
    yk_tensor_options o;
    if (!options_like(what, x, options, &o))
        return NULL;
    return filled_there(what, ndim, shape, value, &o);
}

yk_tensor *yk_new_zeros(const yk_tensor *x, int ndim, const int64_t *shape, const yk_like_options *options)
{
    YK__LIVE(x);
    return new_filled("new_zeros", x, ndim, shape, 0, options);
}

yk_tensor *yk_new_ones(const yk_tensor *x, int ndim, const int64_t *shape, const yk_like_options *options)
{
    YK__LIVE(x);
    return new_filled("new_ones", x, ndim, shape, 1, options);
}

yk_tensor *yk_new_full(const yk_tensor *x, int ndim, const int64_t *shape, double value, const yk_like_options *options)
{
    YK__LIVE(x);
    return new_filled("new_full", x, ndim, shape, value, options);
}

yk_tensor *yk_new_tensor(const yk_tensor *x, const void *data, int ndim, const int64_t *shape,
                         const yk_like_options *options)
{
    YK__LIVE(x);
    yk_tensor_options o;
    if (!options_like("new_tensor", x, options, &o))
        return NULL;
    return from_data_there("new_tensor", data, ndim, shape, &o);
}
