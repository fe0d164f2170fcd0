/*
 * dnn.cc - stand-ins of the calls of cuDNN that the backend makes. Tests only.
 *
 * A convolution is computed from the manual's definition when the stream's turn comes. Refused is what the manual does
 * not have: operands of several types, a compute type that does not fit, an output of another shape, a filter in
 * another order of channels than the tensors, groups with channels last, strides that are not dense, a workspace other
 * than the algorithm's. The proposals begin with one that is not deterministic, and go on with one that is not
 * supported when it is carried out. The workspace is overwritten, as the library may do.
 */
#include <cstdio>
#include <cstring>

#define CUDA_NO_HALF // its name would hide variables of ours
#include <cudnn.h>

#include "base/philox.h"
#include "device/convert.h"
#include "tests/emulator/libraries.h"

struct cudnnContext {
    int device;
    cudaStream_t stream;
};
struct cudnnTensorStruct {
    cudnnDataType_t type;
    int shape[4], stride[4];
};
struct cudnnFilterStruct {
    cudnnDataType_t type;
    cudnnTensorFormat_t format;
    int shape[4];
};
struct cudnnConvolutionStruct {
    int padding[2], stride[2], dilation[2], groups;
    cudnnConvolutionMode_t mode;
    cudnnDataType_t compute;
    cudnnMathType_t math;
};

namespace
{

enum { WORKSPACE = 500, PROPOSALS = 3, REFUSED_LATE = 1, GOOD = 2 };

cudnnStatus_t refuse(const char *call, const char *why)
{
    fprintf(stderr, "emulator: %s: %s\n", call, why);
    return CUDNN_STATUS_BAD_PARAM;
}

size_t size_of(cudnnDataType_t type)
{
    return type == CUDNN_DATA_DOUBLE ? 8 : type == CUDNN_DATA_FLOAT ? 4 : 2;
}

double value(const void *memory, cudnnDataType_t type, int64_t i)
{
    switch (type) {
    case CUDNN_DATA_DOUBLE: return static_cast<const double *>(memory)[i];
    case CUDNN_DATA_HALF: return (double)yk__from_f16(static_cast<const uint16_t *>(memory)[i]);
    case CUDNN_DATA_BFLOAT16: return (double)yk__from_bf16(static_cast<const uint16_t *>(memory)[i]);
    default: return (double)static_cast<const float *>(memory)[i];
    }
}
void put(void *memory, cudnnDataType_t type, int64_t i, double x)
{
    switch (type) {
    case CUDNN_DATA_DOUBLE: static_cast<double *>(memory)[i] = x; break;
    case CUDNN_DATA_HALF: static_cast<uint16_t *>(memory)[i] = yk__to_f16((float)x); break;
    case CUDNN_DATA_BFLOAT16: static_cast<uint16_t *>(memory)[i] = yk__to_bf16((float)x); break;
    default: static_cast<float *>(memory)[i] = (float)x; break;
    }
}

bool is_last(const int *shape, const int *stride)
{
    int64_t wanted[] = {(int64_t)shape[1] * shape[2] * shape[3], 1, (int64_t)shape[3] * shape[1], shape[1]};
    for (int d = 0; d < 4; d++)
        if (stride[d] != wanted[d])
            return false;
    return true;
}
bool is_first(const int *shape, const int *stride)
{
    int64_t wanted[] = {(int64_t)shape[1] * shape[2] * shape[3], (int64_t)shape[2] * shape[3], shape[3], 1};
    for (int d = 0; d < 4; d++)
        if (stride[d] != wanted[d])
            return false;
    return true;
}

/* Whether the manual has such a convolution; why not. */
const char *check(const cudnnTensorStruct &x, const cudnnFilterStruct &w, const cudnnConvolutionStruct &p,
                  const cudnnTensorStruct &out)
{
    bool last = w.format == CUDNN_TENSOR_NHWC, half = x.type == CUDNN_DATA_HALF || x.type == CUDNN_DATA_BFLOAT16;
    if (x.type != w.type || x.type != out.type)
        return "operands are of several types";
    if (p.compute != (x.type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT))
        return "no such type of computing";
    if (half != (p.math == CUDNN_TENSOR_OP_MATH))
        return "halves want the tensor cores, and the others may not round on them";
    if (last ? !is_last(x.shape, x.stride) || !is_last(out.shape, out.stride)
             : !is_first(x.shape, x.stride) || !is_first(out.shape, out.stride))
        return "the tensors are not dense, or in another order of channels than the filter";
    if (p.mode != CUDNN_CROSS_CORRELATION || p.groups < 1 || x.shape[1] != w.shape[1] * p.groups ||
        w.shape[0] % p.groups || out.shape[1] != w.shape[0] || out.shape[0] != x.shape[0])
        return "the channels do not fit together";
    for (int d = 0; d < 2; d++)
        if (out.shape[2 + d] !=
            (x.shape[2 + d] + 2 * p.padding[d] - p.dilation[d] * (w.shape[2 + d] - 1) - 1) / p.stride[d] + 1)
            return "the output has another shape";
    return nullptr;
}

int64_t extent(const cudnnTensorStruct &t)
{
    return (int64_t)t.shape[0] * t.shape[1] * t.shape[2] * t.shape[3] * (int64_t)size_of(t.type);
}

/* Of the three operands, the one that `made` numbers is the sum of products of the others. */
struct convolution {
    cudnnTensorStruct x, out;
    cudnnFilterStruct w;
    cudnnConvolutionStruct p;
    const void *memory[3], *workspace; /* x, w, out */
    int made, device;

    int64_t filter_at(int o, int c, int ky, int kx) const
    {
        const int *s = w.shape;
        return w.format == CUDNN_TENSOR_NHWC ? (((int64_t)o * s[2] + ky) * s[3] + kx) * s[1] + c
                                             : (((int64_t)o * s[1] + c) * s[2] + ky) * s[3] + kx;
    }
    static int64_t at(const cudnnTensorStruct &t, int n, int c, int y, int z)
    {
        return (int64_t)n * t.stride[0] + (int64_t)c * t.stride[1] + (int64_t)y * t.stride[2] +
               (int64_t)z * t.stride[3];
    }
    void run() const
    {
        const char *call = "a convolution", *why = nullptr;
        int64_t filter = (int64_t)w.shape[0] * w.shape[1] * w.shape[2] * w.shape[3];
        const int64_t bytes[] = {extent(x), filter * (int64_t)size_of(w.type), extent(out)};
        void *data[3];
        for (int i = 0; i < 3; i++) {
            data[i] = emulator::bytes_of(memory[i], (size_t)bytes[i], device, &why);
            if (why)
                return emulator::library_fault(call, why);
        }
        void *scratch = emulator::bytes_of(workspace, WORKSPACE, device, &why);
        if (why)
            return emulator::library_fault(call, why);
        memset(scratch, 0xA5, WORKSPACE);
        size_t count = (size_t)bytes[made] / size_of(x.type);
        double *sums = new double[count]();
        int each = w.shape[0] / p.groups;
        for (int n = 0; n < out.shape[0]; n++)
            for (int o = 0; o < out.shape[1]; o++)
                for (int oy = 0; oy < out.shape[2]; oy++)
                    for (int ox = 0; ox < out.shape[3]; ox++)
                        for (int c = 0; c < w.shape[1]; c++)
                            for (int ky = 0; ky < w.shape[2]; ky++)
                                for (int kx = 0; kx < w.shape[3]; kx++) {
                                    int y = oy * p.stride[0] - p.padding[0] + ky * p.dilation[0];
                                    int z = ox * p.stride[1] - p.padding[1] + kx * p.dilation[1];
                                    if (y < 0 || y >= x.shape[2] || z < 0 || z >= x.shape[3])
                                        continue;
                                    const int64_t places[] = {at(x, n, o / each * w.shape[1] + c, y, z),
                                                              filter_at(o, c, ky, kx), at(out, n, o, oy, ox)};
                                    int a = made == 0 ? 1 : 0, b = made == 2 ? 1 : 2;
                                    sums[places[made]] +=
                                        value(data[a], x.type, places[a]) * value(data[b], x.type, places[b]);
                                }
        for (size_t i = 0; i < count; i++)
            put(data[made], x.type, (int64_t)i, sums[i]);
        delete[] sums;
    }
};

cudnnStatus_t queue(const char *call, cudnnHandle_t handle, const void *alpha, const cudnnTensorStruct *x,
                    const void *x_data, const cudnnFilterStruct *w, const void *w_data, const cudnnConvolutionStruct *p,
                    const cudnnTensorStruct *out, const void *out_data, int algorithm, void *workspace, size_t bytes,
                    const void *beta, int made)
{
    const char *why = check(*x, *w, *p, *out);
    bool wide = x->type == CUDNN_DATA_DOUBLE;
    double scale = wide ? *static_cast<const double *>(alpha) : (double)*static_cast<const float *>(alpha);
    double kept = wide ? *static_cast<const double *>(beta) : (double)*static_cast<const float *>(beta);
    if (algorithm == REFUSED_LATE)
        return CUDNN_STATUS_NOT_SUPPORTED;
    if (!why && algorithm != GOOD)
        why = "that algorithm is not deterministic, or none";
    if (!why && (scale != 1 || kept != 0))
        why = "alpha is 1 and beta 0, or the stand-in does not know it";
    if (!why && (bytes < WORKSPACE || reinterpret_cast<uintptr_t>(workspace) % 16))
        why = "the workspace is too small, or not aligned";
    if (!why && handle->device != emulator::present_device())
        why = "the handle is another device's";
    if (why)
        return refuse(call, why);
    convolution c;
    c.x = *x, c.w = *w, c.p = *p, c.out = *out, c.made = made, c.workspace = workspace;
    c.memory[0] = x_data, c.memory[1] = w_data, c.memory[2] = out_data;
    c.device = emulator::present_device();
    return emulator::queue_library(call, handle->stream, [c] { c.run(); }) ? CUDNN_STATUS_SUCCESS
                                                                           : CUDNN_STATUS_EXECUTION_FAILED;
}

template <typename Result>
cudnnStatus_t propose(const cudnnTensorStruct *x, const cudnnFilterStruct *w, const cudnnConvolutionStruct *p,
                      const cudnnTensorStruct *out, int asked, int *count, Result *results)
{
    const char *why = check(*x, *w, *p, *out);
    if (why)
        return refuse("a question for algorithms", why);
    *count = 0;
    if (w->format == CUDNN_TENSOR_NHWC && p->groups > 1)
        return CUDNN_STATUS_NOT_SUPPORTED;
    for (int i = 0; i < PROPOSALS && i < asked; i++) {
        memset(&results[i], 0, sizeof(results[i]));
        results[i].algo = (decltype(results[i].algo))i;
        results[i].status = CUDNN_STATUS_SUCCESS;
        results[i].memory = WORKSPACE;
        results[i].determinism = i ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC;
        *count = i + 1;
    }
    return CUDNN_STATUS_SUCCESS;
}

// ---- the library's functions ----
size_t get_version()
{
    return CUDNN_VERSION;
}
const char *error_string(cudnnStatus_t)
{
    return "the emulator's error of cuDNN";
}
cudnnStatus_t create(cudnnHandle_t *made)
{
    *made = new cudnnContext{emulator::present_device(), nullptr};
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t set_stream(cudnnHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}
template <typename T> cudnnStatus_t make(T **made)
{
    *made = new T();
    return CUDNN_STATUS_SUCCESS;
}
template <typename T> cudnnStatus_t destroy(T *gone)
{
    delete gone;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t tensor_set(cudnnTensorDescriptor_t t, cudnnDataType_t type, int n, int c, int h, int w, int ns, int cs,
                         int hs, int ws)
{
    if (n < 1 || c < 1 || h < 1 || w < 1)
        return refuse("cudnnSetTensor4dDescriptorEx", "an empty tensor");
    *t = cudnnTensorStruct{type, {n, c, h, w}, {ns, cs, hs, ws}};
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t filter_set(cudnnFilterDescriptor_t f, cudnnDataType_t type, cudnnTensorFormat_t format, int k, int c,
                         int h, int w)
{
    *f = cudnnFilterStruct{type, format, {k, c, h, w}};
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t conv_set(cudnnConvolutionDescriptor_t p, int pad_h, int pad_w, int stride_h, int stride_w, int dilation_h,
                       int dilation_w, cudnnConvolutionMode_t mode, cudnnDataType_t compute)
{
    *p = cudnnConvolutionStruct{{pad_h, pad_w}, {stride_h, stride_w}, {dilation_h, dilation_w}, 1, mode,
                                compute,        CUDNN_DEFAULT_MATH};
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t conv_groups(cudnnConvolutionDescriptor_t p, int groups)
{
    p->groups = groups;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t conv_math(cudnnConvolutionDescriptor_t p, cudnnMathType_t math)
{
    p->math = math;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t forward_algorithms(cudnnHandle_t, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
                                 cudnnConvolutionDescriptor_t p, cudnnTensorDescriptor_t out, int asked, int *count,
                                 cudnnConvolutionFwdAlgoPerf_t *results)
{
    return propose(x, w, p, out, asked, count, results);
}
cudnnStatus_t input_algorithms(cudnnHandle_t, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t out,
                               cudnnConvolutionDescriptor_t p, cudnnTensorDescriptor_t x, int asked, int *count,
                               cudnnConvolutionBwdDataAlgoPerf_t *results)
{
    return propose(x, w, p, out, asked, count, results);
}
cudnnStatus_t weight_algorithms(cudnnHandle_t, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t out,
                                cudnnConvolutionDescriptor_t p, cudnnFilterDescriptor_t w, int asked, int *count,
                                cudnnConvolutionBwdFilterAlgoPerf_t *results)
{
    return propose(x, w, p, out, asked, count, results);
}
cudnnStatus_t forward(cudnnHandle_t handle, const void *alpha, cudnnTensorDescriptor_t x, const void *x_data,
                      cudnnFilterDescriptor_t w, const void *w_data, cudnnConvolutionDescriptor_t p,
                      cudnnConvolutionFwdAlgo_t algorithm, void *workspace, size_t bytes, const void *beta,
                      cudnnTensorDescriptor_t out, void *out_data)
{
    return queue("cudnnConvolutionForward", handle, alpha, x, x_data, w, w_data, p, out, out_data, algorithm, workspace,
                 bytes, beta, 2);
}
cudnnStatus_t backward_input(cudnnHandle_t handle, const void *alpha, cudnnFilterDescriptor_t w, const void *w_data,
                             cudnnTensorDescriptor_t out, const void *out_data, cudnnConvolutionDescriptor_t p,
                             cudnnConvolutionBwdDataAlgo_t algorithm, void *workspace, size_t bytes, const void *beta,
                             cudnnTensorDescriptor_t x, void *x_data)
{
    return queue("cudnnConvolutionBackwardData", handle, alpha, x, x_data, w, w_data, p, out, out_data, algorithm,
                 workspace, bytes, beta, 0);
}
cudnnStatus_t backward_weight(cudnnHandle_t handle, const void *alpha, cudnnTensorDescriptor_t x, const void *x_data,
                              cudnnTensorDescriptor_t out, const void *out_data, cudnnConvolutionDescriptor_t p,
                              cudnnConvolutionBwdFilterAlgo_t algorithm, void *workspace, size_t bytes,
                              const void *beta, cudnnFilterDescriptor_t w, void *w_data)
{
    return queue("cudnnConvolutionBackwardFilter", handle, alpha, x, x_data, w, w_data, p, out, out_data, algorithm,
                 workspace, bytes, beta, 1);
}

template <typename F> void *address(F *function)
{
    return reinterpret_cast<void *>(function);
}

const emulator::function functions[] = {
    {"cudnnGetVersion", address(get_version)},
    {"cudnnGetErrorString", address(error_string)},
    {"cudnnCreate", address(create)},
    {"cudnnSetStream", address(set_stream)},
    {"cudnnCreateTensorDescriptor", address(make<cudnnTensorStruct>)},
    {"cudnnDestroyTensorDescriptor", address(destroy<cudnnTensorStruct>)},
    {"cudnnSetTensor4dDescriptorEx", address(tensor_set)},
    {"cudnnCreateFilterDescriptor", address(make<cudnnFilterStruct>)},
    {"cudnnDestroyFilterDescriptor", address(destroy<cudnnFilterStruct>)},
    {"cudnnSetFilter4dDescriptor", address(filter_set)},
    {"cudnnCreateConvolutionDescriptor", address(make<cudnnConvolutionStruct>)},
    {"cudnnDestroyConvolutionDescriptor", address(destroy<cudnnConvolutionStruct>)},
    {"cudnnSetConvolution2dDescriptor", address(conv_set)},
    {"cudnnSetConvolutionGroupCount", address(conv_groups)},
    {"cudnnSetConvolutionMathType", address(conv_math)},
    {"cudnnGetConvolutionForwardAlgorithm_v7", address(forward_algorithms)},
    {"cudnnGetConvolutionBackwardDataAlgorithm_v7", address(input_algorithms)},
    {"cudnnGetConvolutionBackwardFilterAlgorithm_v7", address(weight_algorithms)},
    {"cudnnConvolutionForward", address(forward)},
    {"cudnnConvolutionBackwardData", address(backward_input)},
    {"cudnnConvolutionBackwardFilter", address(backward_weight)},
    {nullptr, nullptr},
};

} // namespace

const emulator::library emulator::dnn_library = {"cudnn", functions};
