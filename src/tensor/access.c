/*
 * access.c - elements to and from the host. Layer: tensor.
 */
#include <math.h>
#include <string.h>

#include "tensor/tensor.h"

void *yk_tensor_data(yk_tensor *x)
{
    YK__LIVE(x);
    if (!yk__is_there("tensor_data", "tensor", x))
        return NULL;
    if (!yk__backend_for(x)->host_memory) {
        char device[16];
        yk__fail(YK_ERR_DEVICE,
                 "tensor_data: the tensor is on %s, whose memory the host cannot reach; use yk_tensor_read",
                 yk_device_format(yk__device_of(x), device));
        return NULL;
    }
    return x->data;
}

/* Reads one element as f64 or i64 (`dtype`), through a one-element copy: any dtype, any device. */
static yk_status element(const char *what, const yk_tensor *x, int64_t offset, yk_dtype dtype, void *value)
{
    yk__operation_name = what;
    size_t size = yk_dtype_size((yk_dtype)x->dtype);
    const char *from = (const char *)x->data + offset * (int64_t)size;
    const yk__backend *backend = yk__backend_for(x);
    uint64_t raw = 0;
    yk_status status = backend->download(yk__device_of(x).index, &raw, from, size);
    if (status)
        return status;
    yk__view in = {.data = &raw, .dtype = (yk_dtype)x->dtype}, out = {.data = value, .dtype = dtype};
    const yk__backend *cpu = yk__backend_of((yk_device){0});
    return cpu->copy ? cpu->copy(0, &out, &in) : yk__slot_missing((yk_device){0}, "copy");
}

static bool single(const char *what, const yk_tensor *x)
{
    if (!yk__is_there(what, "tensor", x))
        return false;
    if (x->numel == 1)
        return true;
    char text[200];
    yk__fail(YK_ERR_SHAPE, "%s: shape %s has %lld elements, expected one", what, yk_shape_format(x, text, sizeof(text)),
             (long long)x->numel);
    return false;
}

yk_status yk__item(const char *what, const yk_tensor *x, double *value)
{
    return single(what, x) ? element(what, x, 0, YK_F64, value) : yk__error_code();
}

yk_status yk__item_i64(const char *what, const yk_tensor *x, int64_t *value)
{
    return single(what, x) ? element(what, x, 0, YK_I64, value) : yk__error_code();
}

double yk_item(const yk_tensor *x)
{
    YK__LIVE(x);
    double value;
    return yk__item("item", x, &value) ? NAN : value;
}

int64_t yk_item_i64(const yk_tensor *x)
{
    YK__LIVE(x);
    int64_t value;
    return yk__item_i64("item", x, &value) ? 0 : value;
}

double yk_get(const yk_tensor *x, const int64_t *index)
{
    YK__LIVE(x);
    if (!yk__is_there("get", "tensor", x))
        return NAN;
    if (!index && x->ndim) {
        yk__fail(YK_ERR_ARGUMENT, "get: the index is NULL");
        return NAN;
    }
    int64_t offset = 0;
    for (int d = 0; d < x->ndim; d++) {
        int64_t i = index[d] < 0 ? index[d] + x->shape[d] : index[d];
        if (i < 0 || i >= x->shape[d]) {
            char text[200];
            yk__fail(YK_ERR_SHAPE, "get: index %lld of dimension %d is outside shape %s", (long long)index[d], d,
                     yk_shape_format(x, text, sizeof(text)));
            return NAN;
        }
        offset += i * x->stride[d];
    }
    double value = NAN;
    return element("get", x, offset, YK_F64, &value) ? NAN : value;
}

static yk_status check_bytes(const char *what, const yk_tensor *x, const void *data, size_t bytes)
{
    size_t expected = (size_t)x->numel * yk_dtype_size((yk_dtype)x->dtype);
    char text[200];
    if (bytes != expected)
        return yk__fail(YK_ERR_ARGUMENT, "%s: shape %s of %s has %zu bytes, %zu were given", what,
                        yk_shape_format(x, text, sizeof(text)), yk_dtype_name((yk_dtype)x->dtype), expected, bytes);
    if (!data && bytes)
        return yk__fail(YK_ERR_ARGUMENT, "%s: the data is NULL", what);
    return YK_OK;
}

yk_status yk__tensor_read(const char *what, const yk_tensor *x, void *data, size_t bytes)
{
    if (!x)
        return yk__error_code() ? yk__error_code() : yk__fail(YK_ERR_ARGUMENT, "%s: the tensor is NULL", what);
    yk_status status = check_bytes(what, x, data, bytes);
    if (status || !bytes)
        return status;
    yk__operation_name = what;
    yk_tensor *source = yk__raw_contiguous((yk_tensor *)x);
    if (!source)
        return yk__error_code();
    status = yk__backend_for(source)->download(yk__device_of(source).index, data, source->data, bytes);
    yk_tensor_release(source);
    return status;
}

yk_status yk_tensor_read(const yk_tensor *x, void *data, size_t bytes)
{
    YK__LIVE(x);
    return yk__tensor_read("tensor_read", x, data, bytes);
}

yk_status yk_tensor_write(yk_tensor *x, const void *data, size_t bytes)
{
    YK__LIVE(x);
    if (!x)
        return yk__error_code() ? yk__error_code() : yk__fail(YK_ERR_ARGUMENT, "tensor_write: the tensor is NULL");
    yk_status status = check_bytes("tensor_write", x, data, bytes);
    if (status || !bytes)
        return status;
    if (yk__recording() && yk__wants_grad(x) && !yk__grad_fn_name(x))
        return yk__fail(YK_ERR_STATE, "tensor_write: a leaf that requires a gradient cannot be changed in place while "
                                      "operations are recorded; put the change between yk_no_grad_begin and "
                                      "yk_no_grad_end");
    yk__operation_name = "tensor_write";
    yk__bump_version(x);
    if (yk_is_contiguous(x))
        return yk__backend_for(x)->upload(yk__device_of(x).index, x->data, data, bytes);
    yk_tensor *staged = yk__tensor_new(x->ndim, x->shape, NULL, (yk_dtype)x->dtype, yk__device_of(x));
    if (!staged)
        return yk__error_code();
    status = yk__backend_for(x)->upload(yk__device_of(x).index, staged->data, data, bytes);
    if (!status)
        status = yk__raw_copy(x, staged);
    yk_tensor_release(staged);
    return status;
}
