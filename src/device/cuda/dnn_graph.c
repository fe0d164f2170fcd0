/*
 * dnn_graph.c - see dnn_graph.h, and the graph of a convolution. Layer: device/cuda.
 *
 * A convolution is one operation, or, with a bias, two, and with ReLU three: the sum goes on in f32 (f64) through
 * tensors that have no memory ("virtual") and is rounded once. Source: cuDNN's backend API, "Graph API".
 */
#include "device/cuda/dnn_graph.h"

#ifdef HAS_DNN

bool dnn_took(dnn_builder *b, cudnnStatus_t code, const char *what)
{
    if (code && !b->code)
        b->code = code, b->failed = what;
    return !b->code;
}

cudnnBackendDescriptor_t dnn_create(dnn_builder *b, cudnnBackendDescriptorType_t type, const char *what)
{
    cudnnBackendDescriptor_t made = NULL;
    if (!b->code && b->count < DNN_MOST_MADE && dnn_took(b, dnn.descriptor_create(type, &made), what))
        b->made[b->count++] = made;
    return made;
}

void dnn_set(dnn_builder *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
             cudnnBackendAttributeType_t type, int64_t count, const void *values, const char *what)
{
    if (!b->code)
        dnn_took(b, dnn.attribute_set(d, name, type, count, values), what);
}

void dnn_set_descriptor(dnn_builder *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                        cudnnBackendDescriptor_t value, const char *what)
{
    dnn_set(b, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value, what);
}

cudnnBackendDescriptor_t dnn_finalized(dnn_builder *b, cudnnBackendDescriptor_t d, const char *what)
{
    if (!b->code)
        dnn_took(b, dnn.finalize(d), what);
    return b->code ? NULL : d;
}

void dnn_release_all(dnn_builder *b)
{
    while (b->count)
        dnn.descriptor_destroy(b->made[--b->count]);
}

/* ---- the graph ---- */
cudnnDataType_t dnn_type_of(int64_t dtype)
{
    return dtype == YK_F64    ? CUDNN_DATA_DOUBLE
           : dtype == YK_F16  ? CUDNN_DATA_HALF
           : dtype == YK_BF16 ? CUDNN_DATA_BFLOAT16
                              : CUDNN_DATA_FLOAT;
}

/* The type of the arithmetic: never a half. */
static cudnnDataType_t compute_type(const dnn_form *f)
{
    return f->dtype == YK_F64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
}

cudnnBackendDescriptor_t dnn_tensor(dnn_builder *b, int64_t id, cudnnDataType_t type, const int64_t shape[4],
                                    const int64_t stride[4], int64_t alignment, enum dnn_memory memory)
{
    static const char what[] = "a tensor";
    const bool yes = true;
    cudnnBackendDescriptor_t t = dnn_create(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR, what);
    dnn_set(b, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id, what);
    dnn_set(b, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type, what);
    dnn_set(b, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, shape, what);
    dnn_set(b, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride, what);
    dnn_set(b, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment, what);
    if (memory == DNN_VIRTUAL)
        dnn_set(b, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes, what);
    if (memory == DNN_BY_VALUE)
        dnn_set(b, t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes, what);
    return dnn_finalized(b, t, what);
}

/* A tensor of a convolution, which is dense in the form's order of channels. */
static cudnnBackendDescriptor_t tensor(dnn_builder *b, const dnn_form *f, int64_t id, cudnnDataType_t type,
                                       const int64_t s[4], int64_t alignment, bool is_virtual)
{
    int64_t c = s[1], h = s[2], w = s[3];
    const int64_t first[] = {c * h * w, h * w, w, 1}, last[] = {c * h * w, 1, w * c, c};
    return dnn_tensor(b, id, type, s, f->last ? last : first, alignment, is_virtual ? DNN_VIRTUAL : DNN_IN_MEMORY);
}

static cudnnBackendDescriptor_t convolution(dnn_builder *b, const dnn_form *f, cudnnBackendDescriptor_t x,
                                            cudnnBackendDescriptor_t w, cudnnBackendDescriptor_t out)
{
    static const struct {
        cudnnBackendDescriptorType_t type;
        cudnnBackendAttributeName_t conv, x, w, out, alpha, beta;
    } operations[CUDA_WORKS] = {
        [CUDA_CONV] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
        [CUDA_CONV_INPUT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
        [CUDA_CONV_WEIGHT] = {
            CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}};
    static const char what[] = "a convolution";
    const int64_t dimensions = 2;
    const double one = 1, zero = 0;
    const float one_f32 = 1, zero_f32 = 0;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    cudnnDataType_t compute = compute_type(f);
    bool wide = compute == CUDNN_DATA_DOUBLE;
    cudnnBackendAttributeType_t scale = wide ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT;
    cudnnBackendDescriptor_t c = dnn_create(b, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, what);
    dnn_set(b, c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dimensions, what);
    dnn_set(b, c, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute, what);
    dnn_set(b, c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode, what);
    dnn_set(b, c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, f->stride, what);
    dnn_set(b, c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, f->padding, what);
    dnn_set(b, c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, f->padding, what);
    dnn_set(b, c, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, f->dilation, what);
    c = dnn_finalized(b, c, what);
    cudnnBackendDescriptor_t o = dnn_create(b, operations[f->work].type, what);
    dnn_set_descriptor(b, o, operations[f->work].conv, c, what);
    dnn_set_descriptor(b, o, operations[f->work].x, x, what);
    dnn_set_descriptor(b, o, operations[f->work].w, w, what);
    dnn_set_descriptor(b, o, operations[f->work].out, out, what);
    dnn_set(b, o, operations[f->work].alpha, scale, 1, wide ? (const void *)&one : &one_f32, what);
    dnn_set(b, o, operations[f->work].beta, scale, 1, wide ? (const void *)&zero : &zero_f32, what);
    return dnn_finalized(b, o, what);
}

cudnnBackendDescriptor_t dnn_pointwise(dnn_builder *b, cudnnPointwiseMode_t mode, cudnnDataType_t compute, int64_t axis,
                                       cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t other,
                                       cudnnBackendDescriptor_t selects, cudnnBackendDescriptor_t out)
{
    static const char what[] = "an elementwise operation";
    cudnnBackendDescriptor_t p = dnn_create(b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, what);
    dnn_set(b, p, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode, what);
    dnn_set(b, p, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute, what);
    if (mode == CUDNN_POINTWISE_GEN_INDEX)
        dnn_set(b, p, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis, what);
    p = dnn_finalized(b, p, what);
    cudnnBackendDescriptor_t o = dnn_create(b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, what);
    dnn_set_descriptor(b, o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, p, what);
    dnn_set_descriptor(b, o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x, what);
    if (other)
        dnn_set_descriptor(b, o, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, other, what);
    if (selects)
        dnn_set_descriptor(b, o, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, selects, what);
    dnn_set_descriptor(b, o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, out, what);
    return dnn_finalized(b, o, what);
}

/* The operations of a convolution, and their number. */
static int64_t convolution_operations(dnn_builder *b, const dnn_form *f, cudnnBackendDescriptor_t *operations)
{
    enum { SUM = DNN_BIAS + 1, BIASED };
    cudnnDataType_t type = dnn_type_of(f->dtype), compute = compute_type(f);
    int64_t channels[4] = {1, f->w[0], 1, 1};
    cudnnBackendDescriptor_t x = tensor(b, f, DNN_X, type, f->x, f->alignment[0], false);
    cudnnBackendDescriptor_t w = tensor(b, f, DNN_W, type, f->w, f->alignment[1], false);
    cudnnBackendDescriptor_t out = tensor(b, f, DNN_OUT, type, f->out, f->alignment[2], false);
    if (!f->bias) {
        operations[0] = convolution(b, f, x, w, out);
        return 1;
    }
    cudnnBackendDescriptor_t sum = tensor(b, f, SUM, compute, f->out, 16, true);
    cudnnBackendDescriptor_t bias = tensor(b, f, DNN_BIAS, type, channels, f->alignment[3], false);
    cudnnBackendDescriptor_t biased = f->relu ? tensor(b, f, BIASED, compute, f->out, 16, true) : out;
    operations[0] = convolution(b, f, x, w, sum);
    operations[1] = dnn_pointwise(b, CUDNN_POINTWISE_ADD, compute, 0, sum, bias, NULL, biased);
    if (!f->relu)
        return 2;
    /* The library no longer has an attribute by which ReLU keeps NaN. */
    operations[2] = dnn_pointwise(b, CUDNN_POINTWISE_RELU_FWD, compute, 0, biased, NULL, NULL, out);
    return 3;
}

cudnnBackendDescriptor_t dnn_graph_make(dnn_builder *b, const dnn_form *f, cudnnHandle_t handle)
{
    static const char what[] = "an operation graph";
    cudnnBackendDescriptor_t operations[DNN_MOST_OPERATIONS];
    int64_t count =
        dnn_is_attention(f) ? dnn_attention_operations(b, f, operations) : convolution_operations(b, f, operations);
    cudnnBackendDescriptor_t g = dnn_create(b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, what);
    dnn_set(b, g, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, operations, what);
    if (handle)
        dnn_set(b, g, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle, what);
    return dnn_finalized(b, g, what);
}

#endif
