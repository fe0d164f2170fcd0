/*
 * dnn.c - convolutions by cuDNN. Layer: device/cuda.
 *
 * The library takes operands with channels last, which its tensor cores want, or first. Halves go with channels last,
 * the others as x lies; an operand that lies otherwise is copied there and back. Of the algorithms that it proposes for
 * a form of convolution, the first that is deterministic, fits into the workspace and is carried out is kept. Where
 * there is none for either order of the channels, our own kernels do the work. Source: cuDNN's functions
 * cudnnConvolution*, which its graph interface goes beside and has not replaced for these.
 *
 * A device's handle is used by one thread at a time: `lock`.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#if defined(__has_include)
#if __has_include(<cudnn.h>)
#define HAS_DNN 1
#endif
#endif

#include "device/cuda/libraries.h"

#ifdef HAS_DNN
#include <cudnn.h>

/* PLANS: each form has one slot, by its hash; of two forms in one slot the later stays, and the other is planned again.
 * ASKED: algorithms that cuDNN may propose. ALIGNMENT: that of cudaMalloc. */
enum { MOST_DEVICES = 64, PLANS = 512, ASKED = 10, ALIGNMENT = 256 };
/* Bytes: an algorithm that wants more is not taken. */
static const size_t MOST_WORKSPACE = (size_t)1 << 30;

static struct {
    __typeof__(cudnnGetVersion) *version;
    __typeof__(cudnnGetErrorString) *error_string;
    __typeof__(cudnnCreate) *create;
    __typeof__(cudnnSetStream) *set_stream;
    __typeof__(cudnnCreateTensorDescriptor) *tensor_create;
    __typeof__(cudnnDestroyTensorDescriptor) *tensor_destroy;
    __typeof__(cudnnSetTensor4dDescriptorEx) *tensor_set;
    __typeof__(cudnnCreateFilterDescriptor) *filter_create;
    __typeof__(cudnnDestroyFilterDescriptor) *filter_destroy;
    __typeof__(cudnnSetFilter4dDescriptor) *filter_set;
    __typeof__(cudnnCreateConvolutionDescriptor) *conv_create;
    __typeof__(cudnnDestroyConvolutionDescriptor) *conv_destroy;
    __typeof__(cudnnSetConvolution2dDescriptor) *conv_set;
    __typeof__(cudnnSetConvolutionGroupCount) *conv_groups;
    __typeof__(cudnnSetConvolutionMathType) *conv_math;
    __typeof__(cudnnGetConvolutionForwardAlgorithm_v7) *forward_algorithms;
    __typeof__(cudnnGetConvolutionBackwardDataAlgorithm_v7) *input_algorithms;
    __typeof__(cudnnGetConvolutionBackwardFilterAlgorithm_v7) *weight_algorithms;
    __typeof__(cudnnConvolutionForward) *forward;
    __typeof__(cudnnConvolutionBackwardData) *input;
    __typeof__(cudnnConvolutionBackwardFilter) *weight;
    bool there;
    char text[300];
} dnn;

static void open_library(void)
{
    static const char *const files[] = {"libcudnn.so.9", NULL};
    const cuda_symbol symbols[] = {
        {"cudnnGetVersion", (void **)&dnn.version},
        {"cudnnGetErrorString", (void **)&dnn.error_string},
        {"cudnnCreate", (void **)&dnn.create},
        {"cudnnSetStream", (void **)&dnn.set_stream},
        {"cudnnCreateTensorDescriptor", (void **)&dnn.tensor_create},
        {"cudnnDestroyTensorDescriptor", (void **)&dnn.tensor_destroy},
        {"cudnnSetTensor4dDescriptorEx", (void **)&dnn.tensor_set},
        {"cudnnCreateFilterDescriptor", (void **)&dnn.filter_create},
        {"cudnnDestroyFilterDescriptor", (void **)&dnn.filter_destroy},
        {"cudnnSetFilter4dDescriptor", (void **)&dnn.filter_set},
        {"cudnnCreateConvolutionDescriptor", (void **)&dnn.conv_create},
        {"cudnnDestroyConvolutionDescriptor", (void **)&dnn.conv_destroy},
        {"cudnnSetConvolution2dDescriptor", (void **)&dnn.conv_set},
        {"cudnnSetConvolutionGroupCount", (void **)&dnn.conv_groups},
        {"cudnnSetConvolutionMathType", (void **)&dnn.conv_math},
        {"cudnnGetConvolutionForwardAlgorithm_v7", (void **)&dnn.forward_algorithms},
        {"cudnnGetConvolutionBackwardDataAlgorithm_v7", (void **)&dnn.input_algorithms},
        {"cudnnGetConvolutionBackwardFilterAlgorithm_v7", (void **)&dnn.weight_algorithms},
        {"cudnnConvolutionForward", (void **)&dnn.forward},
        {"cudnnConvolutionBackwardData", (void **)&dnn.input},
        {"cudnnConvolutionBackwardFilter", (void **)&dnn.weight},
    };
    dnn.there = cuda_library_open(files, symbols, sizeof(symbols) / sizeof(symbols[0]), dnn.text);
    if (dnn.there)
        snprintf(dnn.text, sizeof(dnn.text), "cuDNN %zu", dnn.version());
}

/* What an algorithm is chosen for; without padding, for it is compared byte by byte. */
typedef struct form {
    int64_t device, work, dtype, last /* channels */, tf32;
    int64_t x[4], w[4], out[4], stride[2], padding[2], dilation[2], groups;
} form;

typedef struct plan {
    form of;
    int algorithm;
    size_t workspace;
    bool known, usable;
} plan;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static cudnnHandle_t handles[MOST_DEVICES];
static plan plans[PLANS];

static yk_status failed(int device, cudnnStatus_t code, const char *call)
{
    return cuda_fail(code == CUDNN_STATUS_ALLOC_FAILED ? YK_ERR_MEMORY : YK_ERR_DEVICE,
                     "cuda:%d: %s: %s (%d); where it cannot start, another process may hold the GPU's memory: yoke "
                     "doctor says which",
                     device, call, dnn.error_string(code), (int)code);
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

/* ---- descriptors ---- */
typedef struct description {
    cudnnTensorDescriptor_t x, out;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t conv;
} description;

static void description_release(description *d)
{
    if (d->x)
        dnn.tensor_destroy(d->x);
    if (d->out)
        dnn.tensor_destroy(d->out);
    if (d->w)
        dnn.filter_destroy(d->w);
    if (d->conv)
        dnn.conv_destroy(d->conv);
}

static cudnnStatus_t tensor(cudnnTensorDescriptor_t *made, cudnnDataType_t type, const int64_t s[4], bool last)
{
    int64_t t[4];
    dense_strides(s, last, t);
    cudnnStatus_t code = dnn.tensor_create(made);
    if (code)
        return code;
    return dnn.tensor_set(*made, type, (int)s[0], (int)s[1], (int)s[2], (int)s[3], (int)t[0], (int)t[1], (int)t[2],
                          (int)t[3]);
}

static cudnnStatus_t describe(description *d, const form *f)
{
    cudnnDataType_t type = f->dtype == YK_F64    ? CUDNN_DATA_DOUBLE
                           : f->dtype == YK_F16  ? CUDNN_DATA_HALF
                           : f->dtype == YK_BF16 ? CUDNN_DATA_BFLOAT16
                                                 : CUDNN_DATA_FLOAT;
    bool half = f->dtype == YK_F16 || f->dtype == YK_BF16, last = f->last != 0;
    cudnnMathType_t math = half ? CUDNN_TENSOR_OP_MATH : f->tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
    memset(d, 0, sizeof(*d));
    cudnnStatus_t code = tensor(&d->x, type, f->x, last);
    if (!code)
        code = tensor(&d->out, type, f->out, last);
    if (!code)
        code = dnn.filter_create(&d->w);
    if (!code)
        code = dnn.filter_set(d->w, type, last ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW, (int)f->w[0], (int)f->w[1],
                              (int)f->w[2], (int)f->w[3]);
    if (!code)
        code = dnn.conv_create(&d->conv);
    if (!code)
        code = dnn.conv_set(d->conv, (int)f->padding[0], (int)f->padding[1], (int)f->stride[0], (int)f->stride[1],
                            (int)f->dilation[0], (int)f->dilation[1], CUDNN_CROSS_CORRELATION,
                            f->dtype == YK_F64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT);
    if (!code)
        code = dnn.conv_groups(d->conv, (int)f->groups);
    return code ? code : dnn.conv_math(d->conv, math);
}

/* ---- algorithms ---- */
typedef struct proposal {
    int algorithm;
    size_t memory;
} proposal;

/* Those that are deterministic and small enough, the best first. */
static int propose(cudnnHandle_t handle, const form *f, const description *d, proposal *to)
{
    int found = 0, kept = 0;
#define KEEP(results)                                                                                                  \
    for (int i = 0; i < found; i++)                                                                                    \
        if ((results)[i].status == CUDNN_STATUS_SUCCESS && (results)[i].determinism == CUDNN_DETERMINISTIC &&          \
            (results)[i].memory <= MOST_WORKSPACE)                                                                     \
            to[kept++] = (proposal)                                                                                    \
            {                                                                                                          \
                (int)(results)[i].algo, (results)[i].memory                                                            \
            }
    if (f->work == CUDA_CONV) {
        cudnnConvolutionFwdAlgoPerf_t results[ASKED];
        if (dnn.forward_algorithms(handle, d->x, d->w, d->conv, d->out, ASKED, &found, results))
            return 0;
        KEEP(results);
    } else if (f->work == CUDA_CONV_INPUT) {
        cudnnConvolutionBwdDataAlgoPerf_t results[ASKED];
        if (dnn.input_algorithms(handle, d->w, d->out, d->conv, d->x, ASKED, &found, results))
            return 0;
        KEEP(results);
    } else {
        cudnnConvolutionBwdFilterAlgoPerf_t results[ASKED];
        if (dnn.weight_algorithms(handle, d->x, d->out, d->conv, d->w, ASKED, &found, results))
            return 0;
        KEEP(results);
    }
    return kept;
}

static cudnnStatus_t carry_out(cudnnHandle_t handle, const form *f, const description *d, int algorithm,
                               void *workspace, size_t bytes, void *x, void *w, void *out)
{
    const double one = 1, zero = 0;
    const float one_f32 = 1, zero_f32 = 0;
    bool wide = f->dtype == YK_F64;
    const void *alpha = wide ? (const void *)&one : &one_f32, *beta = wide ? (const void *)&zero : &zero_f32;
    if (f->work == CUDA_CONV)
        return dnn.forward(handle, alpha, d->x, x, d->w, w, d->conv, (cudnnConvolutionFwdAlgo_t)algorithm, workspace,
                           bytes, beta, d->out, out);
    if (f->work == CUDA_CONV_INPUT)
        return dnn.input(handle, alpha, d->w, w, d->out, out, d->conv, (cudnnConvolutionBwdDataAlgo_t)algorithm,
                         workspace, bytes, beta, d->x, x);
    return dnn.weight(handle, alpha, d->x, x, d->out, out, d->conv, (cudnnConvolutionBwdFilterAlgo_t)algorithm,
                      workspace, bytes, beta, d->w, w);
}

static yk_status attempt(int device, cudnnHandle_t handle, const form *f, const description *d, proposal p, void *x,
                         void *w, void *out, cudnnStatus_t *code)
{
    yk__storage *memory = NULL;
    char *workspace = NULL;
    if (p.memory) {
        workspace = cuda_yoke->workspace_get((yk_device){YK_CUDA, (int16_t)device}, p.memory + ALIGNMENT, &memory);
        if (!workspace)
            return YK_ERR_MEMORY;
        workspace += -(uintptr_t)workspace & (ALIGNMENT - 1);
    }
    *code = carry_out(handle, f, d, p.algorithm, workspace, p.memory, x, w, out);
    if (memory)
        cuda_yoke->storage_release(memory); /* for those behind on the device's queue */
    return YK_OK;
}

/* Under the lock. *taken is false where no algorithm does it. */
static yk_status run(const form *f, cudaStream_t stream, void *x, void *w, void *out, bool *taken)
{
    int device = (int)f->device, count = 0;
    uint64_t hash = 1469598103934665603u; /* FNV-1a */
    for (size_t i = 0; i < sizeof(*f); i++)
        hash = (hash ^ ((const unsigned char *)f)[i]) * 1099511628211u;
    plan *kept = &plans[(hash >> 32) % PLANS];
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
    bool known = kept->known && memcmp(&kept->of, f, sizeof(*f)) == 0;
    if (known && !kept->usable)
        return YK_OK;
    description d;
    proposal proposals[ASKED] = {{kept->algorithm, kept->workspace}};
    code = describe(&d, f);
    if (!code)
        count = known ? 1 : propose(handles[device], f, &d, proposals);
    yk_status status = YK_OK;
    for (int i = 0; i < count && !status && !*taken; i++) {
        status = attempt(device, handles[device], f, &d, proposals[i], x, w, out, &code);
        *taken = !status && code == CUDNN_STATUS_SUCCESS;
        if (*taken)
            *kept = (plan){.of = *f,
                           .algorithm = proposals[i].algorithm,
                           .workspace = proposals[i].memory,
                           .known = true,
                           .usable = true};
    }
    if (!status && !*taken)
        *kept = (plan){.of = *f, .known = true};
    description_release(&d);
    return status;
}

static yk_status in_order(int device, enum cuda_work work, const yk__conv2d *p, const yk__view *x, const yk__view *w,
                          const yk__view *out, bool last, bool *taken)
{
    form f;
    operand a = {0}, b = {0}, c = {0};
    cudaStream_t stream = NULL;
    memset(&f, 0, sizeof(f));
    f.device = device, f.work = work, f.dtype = x->dtype, f.last = last;
    f.tf32 = x->dtype == YK_F32 && cuda_allows_tf32();
    memcpy(f.x, x->shape, sizeof(f.x));
    memcpy(f.w, w->shape, sizeof(f.w));
    memcpy(f.out, out->shape, sizeof(f.out));
    memcpy(f.stride, p->stride, sizeof(f.stride));
    memcpy(f.padding, p->padding, sizeof(f.padding));
    memcpy(f.dilation, p->dilation, sizeof(f.dilation));
    f.groups = p->groups;
    yk_status status = cuda_use(device, &stream);
    if (!status)
        status = operand_make(&a, device, x, last, work != CUDA_CONV_INPUT);
    if (!status)
        status = operand_make(&b, device, w, last, work != CUDA_CONV_WEIGHT);
    if (!status)
        status = operand_make(&c, device, out, last, work != CUDA_CONV);
    if (!status) {
        pthread_mutex_lock(&lock);
        status = run(&f, stream, a.view.data, b.view.data, c.view.data, taken);
        pthread_mutex_unlock(&lock);
    }
    bool done = !status && *taken;
    yk_status first = operand_end(&a, device, done && work == CUDA_CONV_INPUT);
    yk_status second = operand_end(&b, device, done && work == CUDA_CONV_WEIGHT);
    yk_status third = operand_end(&c, device, done && work == CUDA_CONV);
    return status ? status : first ? first : second ? second : third;
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
    return x->dtype == YK_F16 || x->dtype == YK_BF16 || (lies_so(x, true) && !lies_so(x, false));
}

yk_status cuda_dnn_conv(int device, enum cuda_work work, const yk__conv2d *p, const yk__view *x, const yk__view *w,
                        const yk__view *out, bool *taken)
{
    static const char *const names[CUDA_WORKS] = {"", "conv2d (cuDNN)", "conv2d_backward_input (cuDNN)",
                                                  "conv2d_backward_weight (cuDNN)"};
    const yk__view *views[] = {x, w, out};
    *taken = false;
    pthread_once(&once, open_library);
    if (!dnn.there || !fits(x) || !fits(w) || !fits(out))
        return YK_OK;
    bool last = prefers_last(work == CUDA_CONV_INPUT ? out : x);
    yk_status status = in_order(device, work, p, x, w, out, last, taken);
    if (!status && !*taken)
        status = in_order(device, work, p, x, w, out, !last, taken);
    return status || !*taken ? status : cuda_launched(device, names[work], 3, views);
}

void cuda_conv2d_layout(const yk__conv2d *p, const yk__view *x, const yk__view *w, const int64_t out_shape[4],
                        int64_t out_stride[4])
{
    (void)p, (void)w;
    pthread_once(&once, open_library);
    dense_strides(out_shape, dnn.there && prefers_last(x), out_stride);
}

const char *cuda_dnn_described(void)
{
    pthread_once(&once, open_library);
    return dnn.text;
}

#else /* built without its headers */

yk_status cuda_dnn_conv(int device, enum cuda_work work, const yk__conv2d *p, const yk__view *x, const yk__view *w,
                        const yk__view *out, bool *taken)
{
    (void)device, (void)work, (void)p, (void)x, (void)w, (void)out;
    *taken = false;
    return YK_OK;
}

void cuda_conv2d_layout(const yk__conv2d *p, const yk__view *x, const yk__view *w, const int64_t out_shape[4],
                        int64_t out_stride[4])
{
    (void)p, (void)x, (void)w;
    for (int64_t d = 3, step = 1; d >= 0; d--) {
        out_stride[d] = step;
        step *= out_shape[d];
    }
}

const char *cuda_dnn_described(void)
{
    return "built without cuDNN's headers";
}

#endif
