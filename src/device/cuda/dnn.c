/*
 * dnn.c - convolutions by cuDNN's graphs. Layer: device/cuda.
 *
 * The library takes operands with channels last, which its tensor cores want, or first. Halves, and f32 that may be
 * rounded to TF32, go with channels last, the others as x lies; an operand that lies otherwise is copied there and
 * back. A plan (dnn_plan.h) is made once for a form of convolution and kept for good. Where there is none for either
 * order of the channels, our own kernels do the work.
 *
 * A device's handle is used by one thread at a time, and plans are looked up: `lock`.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "device/cuda/dnn_plan.h"

#ifdef HAS_DNN

/* BUCKETS: of the table of plans. ALIGNMENT: of the workspace, that of cudaMalloc. MOST_ALIGNMENT: what the library is
 * told of operands at most: 16 bytes are what it loads at once. */
enum { MOST_DEVICES = 64, BUCKETS = 512, ALIGNMENT = 256, MOST_ALIGNMENT = 16 };

/* A form and its plan; without one (plan.plan is NULL) the form is not the library's. */
typedef struct entry {
    dnn_form of;
    dnn_plan plan;
    struct entry *next;
} entry;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cudnnHandle_t handles[MOST_DEVICES];
static entry *entries[BUCKETS];

static yk_status failed(int device, cudnnStatus_t code, const char *call)
{
    char last[300] = "";
    bool memory = code == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
                  code == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
    dnn.last_error(last, sizeof(last));
    return cuda_fail(memory ? YK_ERR_MEMORY : YK_ERR_DEVICE,
                     "cuda:%d: %s: %s (%d): %s; where it cannot start, another process may hold the GPU's memory: yoke "
                     "doctor says which",
                     device, call, dnn.error_string(code), (int)code, last);
}

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

static bool lies_so(const yk__view *v, bool last)
{
    int64_t stride[4];
    dense_strides(v->shape, last, stride);
    for (int d = 0; d < 4; d++)
        if (v->shape[d] != 1 && v->stride[d] != stride[d])
            return false;
    return true;
}

/* A tensor of the call: where the library has it, and the memory of that, if it is not the tensor's own. */
typedef struct operand {
    const yk__view *from;
    yk__view view;
    yk__storage *memory;
} operand;

static yk_status operand_make(operand *o, int device, const yk__view *from, bool last, bool read)
{
    yk_device where = {YK_CUDA, (int16_t)device};
    *o = (operand){.from = from, .view = *from};
    if (lies_so(from, last))
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

/* Gives the memory back, to those behind on the device's queue; `written` goes to where it belongs. */
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

/* ---- plans ---- */
/* The form's place in the table, made where there is none; NULL: no memory. *known: it had been made. */
static entry *entry_of(const dnn_form *f, bool *known)
{
    entry **at = &entries[(yk__hash(YK__HASH_BASIS, f, sizeof(*f)) >> 32) % BUCKETS], *e = *at;
    while (e && memcmp(&e->of, f, sizeof(*f)) != 0)
        e = e->next;
    *known = e;
    if (!e && (e = calloc(1, sizeof(*e)))) {
        e->of = *f;
        e->next = *at;
        *at = e;
    }
    return e;
}

/* Carries the plan out on memory: in the order of the ids of dnn_plan.h, `bias` may be NULL. */
static cudnnStatus_t execute(cudnnHandle_t handle, const dnn_plan *p, void *workspace, void *x, void *w, void *out,
                             void *bias)
{
    static const int64_t ids[] = {DNN_X, DNN_W, DNN_OUT, DNN_BIAS};
    void *const pointers[] = {x, w, out, bias};
    int64_t count = bias ? 4 : 3;
    cudnnBackendDescriptor_t pack = NULL;
    cudnnStatus_t code = dnn.descriptor_create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (code)
        return code;
    code = dnn.attribute_set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids);
    if (!code)
        code = dnn.attribute_set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers);
    if (!code)
        code = dnn.attribute_set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (!code)
        code = dnn.finalize(pack);
    if (!code)
        code = dnn.execute(handle, p->plan, pack);
    dnn.descriptor_destroy(pack);
    return code;
}

static yk_status attempt(int device, const dnn_plan *p, void *x, void *w, void *out, void *bias, cudnnStatus_t *code)
{
    yk__storage *memory = NULL;
    char *workspace = NULL;
    if (p->workspace) {
        workspace = cuda_yoke->workspace_get((yk_device){YK_CUDA, (int16_t)device}, p->workspace + ALIGNMENT, &memory);
        if (!workspace)
            return YK_ERR_MEMORY;
        workspace += -(uintptr_t)workspace & (ALIGNMENT - 1);
    }
    *code = execute(handles[device], p, workspace, x, w, out, bias);
    if (memory)
        cuda_yoke->storage_release(memory); /* for those behind on the device's queue */
    return YK_OK;
}

/* Under the lock. *taken is false where no plan does it. One that the library made and then says not to support is
 * replaced by the next candidate's. */
static yk_status run(const dnn_form *f, cudaStream_t stream, void *x, void *w, void *out, void *bias, bool *taken)
{
    int device = (int)f->device;
    bool known = false;
    char why[DNN_WHY];
    cudnnStatus_t code = CUDNN_STATUS_SUCCESS;
    if (!handles[device])
        code = dnn.create(&handles[device]);
    if (code) {
        handles[device] = NULL;
        return failed(device, code, "cudnnCreate");
    }
    code = dnn.set_stream(handles[device], stream);
    if (code)
        return failed(device, code, "cudnnSetStream");
    entry *e = entry_of(f, &known);
    if (!e)
        return cuda_fail(YK_ERR_MEMORY, "conv2d: no memory for a plan of cuDNN");
    if (!known)
        dnn_plan_make(f, handles[device], NULL, 0, &e->plan, why);
    while (e->plan.plan) {
        yk_status status = attempt(device, &e->plan, x, w, out, bias, &code);
        *taken = !status && code == CUDNN_STATUS_SUCCESS;
        if (status || *taken)
            return status;
        if (CUDNN_STATUS_CATEGORY(code) != CUDNN_STATUS_NOT_SUPPORTED)
            return failed(device, code, "cudnnBackendExecute");
        dnn.descriptor_destroy(e->plan.plan);
        dnn_plan_make(f, handles[device], NULL, e->plan.candidate + 1, &e->plan, why);
    }
    return YK_OK;
}

static yk_status in_order(int device, enum cuda_work work, const yk__conv2d *p, const yk__view *x, const yk__view *w,
                          const yk__view *out, const yk__view *bias, bool last, bool *taken)
{
    dnn_form f;
    operand a = {0}, b = {0}, c = {0}, d = {0};
    cudaStream_t stream = NULL;
    memset(&f, 0, sizeof(f));
    f.device = device, f.work = work, f.dtype = x->dtype, f.last = last;
    f.tf32 = x->dtype == YK_F32 && cuda_allows_tf32();
    f.deterministic = cuda_yoke->deterministic();
    f.bias = bias != NULL;
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
        pthread_mutex_lock(&lock);
        status = run(&f, stream, a.view.data, b.view.data, c.view.data, d.view.data, taken);
        pthread_mutex_unlock(&lock);
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
           (lies_so(x, true) && !lies_so(x, false));
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
    yk_status status = in_order(device, work, p, x, w, out, bias, last, taken);
    if (!status && !*taken)
        status = in_order(device, work, p, x, w, out, bias, !last, taken);
    return status || !*taken ? status : cuda_launched(device, names[work], 3, views);
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
