/*
 * dnn.c - convolutions by cuDNN's graphs. Layer: device/cuda.
 *
 * The library takes operands with channels last, which its tensor cores want, or first. Halves, and f32 that may be
 * rounded to TF32, go with channels last, the others as x lies; an operand that lies otherwise is copied there and
 * back. A plan (dnn_plan.h) is made once for a form of convolution and kept for good. Where there is none for either
 * order of the channels, our own kernels do the work.
 */
#include <string.h>

#include "device/cuda/dnn_plan.h"

#ifdef HAS_DNN

/* The alignment of operands that the library is told at most: 16 bytes are what it loads at once. */
enum { MOST_ALIGNMENT = 16 };

/* ---- operands as the library takes them ---- */
/* The strides of a dense tensor, with channels last or first. */
static void dense_strides(const int64_t shape[4], bool last, int64_t stride[4])
{
    int64_t c = shape[1], h = shape[2], w = shape[3];
    stride[0] = c * h * w;
    stride[1] = last ? 1 : h * w;
    stride[2] = last ? w * c : w;
    stride[3] = last ? c : 1;
}

static bool has_dense_strides(const yk__view *v, bool last)
{
    int64_t stride[4];
    dense_strides(v->shape, last, stride);
    for (int d = 0; d < 4; d++)
        if (v->shape[d] != 1 && v->stride[d] != stride[d])
            return false;
    return true;
}

/* A tensor of the call: its memory for the library, and the storage of that, if it is not the tensor's own. */
typedef struct operand {
    const yk__view *from;
    yk__view view;
    yk__storage *memory;
} operand;

static yk_status operand_make(operand *o, int device, const yk__view *from, bool last, bool read)
{
    yk_device where = {YK_CUDA, (int16_t)device};
    *o = (operand){.from = from, .view = *from};
    if (has_dense_strides(from, last))
        return YK_OK;
    size_t bytes = yk__size_of(from->dtype);
    for (int d = 0; d < 4; d++)
        bytes *= (size_t)from->shape[d];
    dense_strides(from->shape, last, o->view.stride);
    o->view.data = cuda_yoke->workspace_get(where, bytes, &o->memory);
    if (!o->view.data)
        return YK_ERR_MEMORY;
    return read ? cuda_copy(device, &o->view, from) : YK_OK;
}

/* Gives the memory back, which only later work on the device's queue can take, and copies `written` to where it
 * belongs. */
static yk_status operand_end(operand *o, int device, bool written)
{
    yk_status status = YK_OK;
    if (!o->memory)
        return YK_OK;
    if (written)
        status = cuda_copy(device, o->from, &o->view);
    cuda_yoke->storage_release(o->memory);
    return status;
}

/* The bias with its elements next to each other. */
static yk_status bias_make(operand *o, int device, const yk__view *from)
{
    yk_device where = {YK_CUDA, (int16_t)device};
    *o = (operand){.from = from, .view = *from};
    if (from->stride[0] == 1 || from->shape[0] == 1)
        return YK_OK;
    o->view.stride[0] = 1;
    o->view.data = cuda_yoke->workspace_get(where, (size_t)from->shape[0] * yk__size_of(from->dtype), &o->memory);
    return o->view.data ? cuda_copy(device, &o->view, from) : YK_ERR_MEMORY;
}

static int64_t alignment(const void *data)
{
    uintptr_t bits = (uintptr_t)data | MOST_ALIGNMENT;
    return (int64_t)(bits & -bits);
}

static yk_status in_order(int device, enum cuda_work work, const yk__conv2d *p, const yk__view *x, const yk__view *w,
                          const yk__view *out, const yk__view *bias, bool last, bool relu, bool *taken)
{
    dnn_form f;
    operand a = {0}, b = {0}, c = {0}, d = {0};
    cudaStream_t stream = NULL;
    memset(&f, 0, sizeof(f));
    f.device = device, f.work = work, f.dtype = x->dtype, f.last = last;
    f.tf32 = x->dtype == YK_F32 && cuda_allows_tf32();
    f.deterministic = cuda_yoke->deterministic();
    f.benchmark = !f.deterministic && cuda_yoke->benchmark();
    f.bias = bias != NULL;
    f.relu = relu;
    memcpy(f.x, x->shape, sizeof(f.x));
    memcpy(f.w, w->shape, sizeof(f.w));
    memcpy(f.out, out->shape, sizeof(f.out));
    memcpy(f.stride, p->stride, sizeof(f.stride));
    memcpy(f.padding, p->padding, sizeof(f.padding));
    memcpy(f.dilation, p->dilation, sizeof(f.dilation));
    yk_status status = cuda_use(device, &stream);
    if (!status)
        status = operand_make(&a, device, x, last, work != CUDA_CONV_INPUT);
    if (!status)
        status = operand_make(&b, device, w, last, work != CUDA_CONV_WEIGHT);
    if (!status)
        status = operand_make(&c, device, out, last, work != CUDA_CONV);
    if (!status && bias)
        status = bias_make(&d, device, bias);
    if (!status) {
        f.alignment[0] = alignment(a.view.data), f.alignment[1] = alignment(b.view.data);
        f.alignment[2] = alignment(c.view.data), f.alignment[3] = bias ? alignment(d.view.data) : 0;
        void *const memory[DNN_TENSORS] = {a.view.data, b.view.data, c.view.data, d.view.data};
        status = dnn_run(&f, stream, memory, taken);
    }
    bool done = !status && *taken;
    yk_status ends[] = {operand_end(&a, device, done && work == CUDA_CONV_INPUT),
                        operand_end(&b, device, done && work == CUDA_CONV_WEIGHT),
                        operand_end(&c, device, done && work == CUDA_CONV), operand_end(&d, device, false)};
    for (int i = 0; i < 4 && !status; i++)
        status = ends[i];
    return status;
}

static bool fits(const yk__view *v)
{
    int64_t count = 1;
    for (int d = 0; d < 4; d++) {
        if (v->shape[d] < 1 || v->shape[d] > INT32_MAX / count)
            return false;
        count *= v->shape[d];
    }
    return true;
}

static bool prefers_last(const yk__view *x)
{
    return x->dtype == YK_F16 || x->dtype == YK_BF16 || (x->dtype == YK_F32 && cuda_allows_tf32()) ||
           (has_dense_strides(x, true) && !has_dense_strides(x, false));
}

yk_status cuda_dnn_conv(int device, enum cuda_work work, const yk__conv2d *p, const yk__view *x, const yk__view *w,
                        const yk__view *out, const yk__view *bias, bool *taken)
{
    static const char *const names[CUDA_WORKS] = {"", "conv2d (cuDNN)", "conv2d_backward_input (cuDNN)",
                                                  "conv2d_backward_weight (cuDNN)"};
    const yk__view *views[] = {x, w, out};
    *taken = false;
    if (!dnn_open() || !fits(x) || !fits(w) || !fits(out))
        return YK_OK;
    bool last = prefers_last(work == CUDA_CONV_INPUT ? out : x);
    bool relu = work == CUDA_CONV && p->relu, fused = false;
    yk_status status = YK_OK;
    if (relu && bias) /* in one plan, where one keeps NaN (nan_trial.c) */
        status = in_order(device, work, p, x, w, out, bias, last, true, &fused);
    *taken = fused;
    for (int i = 0; i < 2 && !status && !*taken; i++)
        status = in_order(device, work, p, x, w, out, bias, i ? !last : last, false, taken);
    if (!status && *taken)
        status = cuda_launched(device, names[work], 3, views);
    if (fused)
        cuda_count_fused(CUDA_CONV_RELU);
    return status || !*taken || fused || !relu ? status : cuda_unary(device, YK__RELU, out, out, 0, 0);
}

void cuda_conv2d_layout(const yk__conv2d *p, const yk__view *x, const yk__view *w, const int64_t out_shape[4],
                        int64_t out_stride[4])
{
    (void)p, (void)w;
    dense_strides(out_shape, dnn_open() && prefers_last(x), out_stride);
}

/* Channels last, as halves and TF32 want them, which f32 weights are cast to under autocast: the cast keeps the order.
 */
void cuda_conv2d_weight_layout(const yk__conv2d *p, yk_dtype dtype, const int64_t w_shape[4], int64_t w_stride[4])
{
    (void)p;
    dense_strides(w_shape, dtype != YK_F64 && dnn_open(), w_stride);
}

#else /* built without its headers */

yk_status cuda_dnn_conv(int device, enum cuda_work work, const yk__conv2d *p, const yk__view *x, const yk__view *w,
                        const yk__view *out, const yk__view *bias, bool *taken)
{
    (void)device, (void)work, (void)p, (void)x, (void)w, (void)out, (void)bias;
    *taken = false;
    return YK_OK;
}

static void c_order(const int64_t shape[4], int64_t stride[4])
{
    for (int64_t d = 3, step = 1; d >= 0; d--) {
        stride[d] = step;
        step *= shape[d];
    }
}

void cuda_conv2d_layout(const yk__conv2d *p, const yk__view *x, const yk__view *w, const int64_t out_shape[4],
                        int64_t out_stride[4])
{
    (void)p, (void)x, (void)w;
    c_order(out_shape, out_stride);
}

void cuda_conv2d_weight_layout(const yk__conv2d *p, yk_dtype dtype, const int64_t w_shape[4], int64_t w_stride[4])
{
    (void)p, (void)dtype;
    c_order(w_shape, w_stride);
}

#endif
