/*
 * dnn_faults.h - a convolution by the stand-in of cuDNN, right or with one mistake: part of emulator_faults.cc.
 */
#ifndef YOKE_TESTS_EMULATOR_DNN_FAULTS_H
#define YOKE_TESTS_EMULATOR_DNN_FAULTS_H

#if __has_include(<cudnn.h>)
#define HAS_DNN 1
#ifndef CUDA_NO_HALF
#define CUDA_NO_HALF
#endif
#include <cudnn.h>
#include <vector>

#include "tests/emulator/libraries.h"

/* Only the loader finds it: nothing links cuDNN. */
#define DNN(name) reinterpret_cast<decltype(&name)>(emulator_dlsym(emulator_dlopen("libcudnn.so.9", 0), #name))

namespace dnn_faults
{

enum mistake {
    NONE,
    CHANGED_LATE,
    VALUE_NOT_FINALIZED,
    VALUE_DESTROYED,
    NO_ALIGNMENT,
    OTHER_ATTRIBUTE,
    HALF_SUMS,
    OTHER_SHAPE,
    MISALIGNED,
    A_POINTER_LESS,
    NO_WORKSPACE,
    LEFT_OVER
};

struct job {
    mistake made;
    bool good = true; /* so far */
    std::vector<cudnnBackendDescriptor_t> descriptors;

    cudnnBackendDescriptor_t create(cudnnBackendDescriptorType_t type)
    {
        cudnnBackendDescriptor_t d = nullptr;
        good = good && !DNN(cudnnBackendCreateDescriptor)(type, &d);
        descriptors.push_back(d);
        return d;
    }
    void set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
             int64_t count, const void *values)
    {
        good = good && !DNN(cudnnBackendSetAttribute)(d, name, type, count, values);
    }
    void set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value)
    {
        set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
    }
    void finalize(cudnnBackendDescriptor_t d)
    {
        good = good && !DNN(cudnnBackendFinalize)(d);
    }
    cudnnBackendDescriptor_t tensor(int64_t id, int64_t channels, int64_t images, int64_t side)
    {
        const int64_t shape[] = {images, channels, side, side}, alignment = 16;
        const int64_t stride[] = {channels * side * side, side * side, side, 1};
        const cudnnDataType_t type = CUDNN_DATA_FLOAT;
        cudnnBackendDescriptor_t t = create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
        set(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
        set(t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
        set(t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, shape);
        set(t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
        if (made != NO_ALIGNMENT)
            set(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
        if (made == OTHER_ATTRIBUTE)
            set(t, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_INT64, 1, &alignment);
        if (made != VALUE_NOT_FINALIZED)
            finalize(t);
        if (made == CHANGED_LATE)
            set(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
        return t;
    }
};

/* x (1,2,4,4) and w (2,2,1,1), 32 floats after it, give y. */
static bool convolution(mistake made, cudaStream_t stream, float *x, float *y)
{
    enum { X = 1, W, OUT };
    job j = {made, true, {}};
    const int64_t two = 2, ones[] = {1, 1}, zeros[] = {0, 0};
    const float one = 1, zero = 0;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const cudnnDataType_t compute = made == HALF_SUMS ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t of_x = j.tensor(X, 2, 1, 4), of_w = j.tensor(W, 2, 2, 1);
    cudnnBackendDescriptor_t of_out = j.tensor(OUT, 2, 1, made == OTHER_SHAPE ? 3 : 4);
    cudnnBackendDescriptor_t c = j.create(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    j.set(c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &two);
    j.set(c, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    j.set(c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    j.set(c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, ones);
    j.set(c, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, ones);
    j.set(c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, zeros);
    j.set(c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, zeros);
    j.finalize(c);
    if (made == VALUE_DESTROYED) {
        DNN(cudnnBackendDestroyDescriptor)(c);
        j.descriptors.pop_back();
    }
    cudnnBackendDescriptor_t o = j.create(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    j.set(o, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, c);
    j.set(o, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, of_x);
    j.set(o, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, of_w);
    j.set(o, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, of_out);
    j.set(o, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, &one);
    j.set(o, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, &zero);
    j.finalize(o);
    static cudnnHandle_t handle; // kept for good, as the backend does
    DNN(cudnnCreate)(&handle);
    DNN(cudnnSetStream)(handle, stream);
    cudnnBackendDescriptor_t g = j.create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    j.set(g, CUDNN_ATTR_OPERATIONGRAPH_OPS, o);
    j.set(g, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    j.finalize(g);
    const cudnnBackendHeurMode_t fallback = CUDNN_HEUR_MODE_FALLBACK;
    cudnnBackendDescriptor_t h = j.create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    j.set(h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, g);
    j.set(h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &fallback);
    j.finalize(h);
    int64_t count = 0;
    cudnnBackendDescriptor_t e = j.create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    j.good = j.good && !DNN(cudnnBackendGetAttribute)(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                      1, &count, &e);
    cudnnBackendDescriptor_t plan = j.create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    j.set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    j.set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, e);
    j.finalize(plan);
    void *workspace = nullptr;
    j.good = j.good && !cudaMalloc(&workspace, 1024);
    if (made == NO_WORKSPACE)
        workspace = nullptr;
    const int64_t ids[] = {X, W, OUT}, pointers = made == A_POINTER_LESS ? 2 : 3;
    void *const memory[] = {x, x + 32, made == MISALIGNED ? y + 1 : y};
    cudnnBackendDescriptor_t pack = j.create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    j.set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, pointers, ids);
    j.set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers, memory);
    j.set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    j.finalize(pack);
    j.good = j.good && !DNN(cudnnBackendExecute)(handle, plan, pack);
    if (made == LEFT_OVER) /* a tensor: plans and their pointers may be kept for good */
        j.descriptors.erase(j.descriptors.begin());
    for (cudnnBackendDescriptor_t d : j.descriptors)
        DNN(cudnnBackendDestroyDescriptor)(d);
    return j.good && cudaStreamSynchronize(stream) == cudaSuccess;
}

} // namespace dnn_faults
#endif
#endif
