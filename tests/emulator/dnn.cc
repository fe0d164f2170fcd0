/*
 * dnn.cc - stand-ins of the calls of cuDNN that the backend makes: its backend API, by descriptors. Tests only.
 *
 * A descriptor keeps the attributes that it is given, of the types and counts that the manual has for it, until it is
 * finalised; then what must be there is looked for. Refused is what the manual does not have: an attribute of another
 * kind of descriptor, a descriptor that is not finalised as a value, a change after finalising, a plan of a proposal
 * that no heuristics made, pointers that are fewer than the graph's tensors, less aligned than it says, or of another
 * device, a workspace that is not aligned. What the engines compute is in dnn_engines.cc.
 *
 * The heuristics of mode A propose all engines, the good ones last, those of the fallback the good ones; some of them
 * many times, with other settings. For halves one
 * without tensor cores is before those with them, as cuDNN 9.19 has it for some forms.
 */
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unistd.h>
#include <vector>

#include "tests/emulator/dnn.h"

struct cudnnContext {
    int device;
    cudaStream_t stream;
};

namespace
{

using namespace dnn_emulation;

cudnnStatus_t refuse(const char *call, const char *why)
{
    fprintf(stderr, "emulator: %s: %s\n", call, why);
    return CUDNN_STATUS_BAD_PARAM;
}

/* ---- what there is ---- */
struct rule {
    cudnnBackendDescriptorType_t of;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t least, most; /* elements; least 0: it need not be there */
    int kind;            /* of descriptor, for a value that is one; else -1 */
};

#define TENSOR   CUDNN_BACKEND_TENSOR_DESCRIPTOR
#define CONV     CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR
#define FORWARD  CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR
#define INPUT    CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR
#define WEIGHT   CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR
#define POINT    CUDNN_BACKEND_POINTWISE_DESCRIPTOR
#define POINT_OP CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR
#define MATMUL   CUDNN_BACKEND_MATMUL_DESCRIPTOR
#define PRODUCT  CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR
#define REDUCE   CUDNN_BACKEND_REDUCTION_DESCRIPTOR
#define SUM_OP   CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR
#define RESHAPE  CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR
#define GRAPH    CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR
#define HEUR     CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR
#define CONFIG   CUDNN_BACKEND_ENGINECFG_DESCRIPTOR
#define ENGINE   CUDNN_BACKEND_ENGINE_DESCRIPTOR
#define PLAN     CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR
#define PACK     CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR
#define DESC     CUDNN_TYPE_BACKEND_DESCRIPTOR
enum { ANY_OPERATION = -2, MOST_DIMENSIONS = 8, MOST_OPERATIONS = 32, MOST_TENSORS = 20 };

const rule rules[] = {
    {TENSOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, 1, -1},
    {TENSOR, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1, -1},
    {TENSOR, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 1, MOST_DIMENSIONS, -1},
    {TENSOR, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 1, MOST_DIMENSIONS, -1},
    {TENSOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, 1, -1},
    {TENSOR, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 0, 1, -1},
    {TENSOR, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 0, 1, -1},
    {CONV, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, 1, -1},
    {CONV, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1, -1},
    {CONV, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, 1, -1},
    {CONV, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 1, 2, -1},
    {CONV, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 1, 2, -1},
    {CONV, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 1, 2, -1},
    {CONV, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 1, 2, -1},
    {FORWARD, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, DESC, 1, 1, CONV},
    {FORWARD, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, DESC, 1, 1, TENSOR},
    {FORWARD, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, DESC, 1, 1, TENSOR},
    {FORWARD, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, DESC, 1, 1, TENSOR},
    {FORWARD, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, 1, -1},
    {FORWARD, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, 1, -1},
    {INPUT, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, DESC, 1, 1, CONV},
    {INPUT, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, DESC, 1, 1, TENSOR},
    {INPUT, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, DESC, 1, 1, TENSOR},
    {INPUT, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, DESC, 1, 1, TENSOR},
    {INPUT, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_TYPE_FLOAT, 1, 1, -1},
    {INPUT, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_TYPE_FLOAT, 1, 1, -1},
    {WEIGHT, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, DESC, 1, 1, CONV},
    {WEIGHT, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, DESC, 1, 1, TENSOR},
    {WEIGHT, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, DESC, 1, 1, TENSOR},
    {WEIGHT, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, DESC, 1, 1, TENSOR},
    {WEIGHT, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_TYPE_FLOAT, 1, 1, -1},
    {WEIGHT, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, CUDNN_TYPE_FLOAT, 1, 1, -1},
    {POINT, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, 1, -1},
    {POINT, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, 1, -1},
    {POINT, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 0, 1, -1},
    {POINT_OP, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, DESC, 1, 1, POINT},
    {POINT_OP, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, DESC, 1, 1, TENSOR},
    {POINT_OP, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, DESC, 0, 1, TENSOR},
    {POINT_OP, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, DESC, 0, 1, TENSOR},
    {POINT_OP, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, DESC, 1, 1, TENSOR},
    {MATMUL, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1, -1},
    {PRODUCT, CUDNN_ATTR_OPERATION_MATMUL_ADESC, DESC, 1, 1, TENSOR},
    {PRODUCT, CUDNN_ATTR_OPERATION_MATMUL_BDESC, DESC, 1, 1, TENSOR},
    {PRODUCT, CUDNN_ATTR_OPERATION_MATMUL_CDESC, DESC, 1, 1, TENSOR},
    {PRODUCT, CUDNN_ATTR_OPERATION_MATMUL_DESC, DESC, 1, 1, MATMUL},
    {REDUCE, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, 1, -1},
    {REDUCE, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1, -1},
    {SUM_OP, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, DESC, 1, 1, TENSOR},
    {SUM_OP, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, DESC, 1, 1, TENSOR},
    {SUM_OP, CUDNN_ATTR_OPERATION_REDUCTION_DESC, DESC, 1, 1, REDUCE},
    {RESHAPE, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, DESC, 1, 1, TENSOR},
    {RESHAPE, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, DESC, 1, 1, TENSOR},
    {GRAPH, CUDNN_ATTR_OPERATIONGRAPH_OPS, DESC, 1, MOST_OPERATIONS, ANY_OPERATION},
    {GRAPH, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, 1, -1},
    {HEUR, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, DESC, 1, 1, GRAPH},
    {HEUR, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, 1, -1},
    {PLAN, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, 1, -1},
    {PLAN, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, DESC, 1, 1, CONFIG},
    {PACK, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 1, MOST_TENSORS, -1},
    {PACK, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 1, MOST_TENSORS, -1},
    {PACK, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, 1, -1},
};

const rule *rule_of(cudnnBackendDescriptorType_t of, cudnnBackendAttributeName_t name)
{
    for (const rule &r : rules)
        if (r.of == of && r.name == name)
            return &r;
    return nullptr;
}

size_t size_of(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_BOOLEAN: return sizeof(bool);
    case CUDNN_TYPE_INT64: return sizeof(int64_t);
    case CUDNN_TYPE_FLOAT: return sizeof(float);
    case CUDNN_TYPE_DOUBLE: return sizeof(double);
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR: return sizeof(void *);
    default: return sizeof(int); // an enumeration
    }
}

/* The contents of a descriptor; the library keeps it as long as another needs it. */
struct content {
    cudnnBackendDescriptorType_t type;
    bool finalized = false;
    std::map<int, std::vector<unsigned char>> values;
    std::map<int, std::vector<std::shared_ptr<content>>> descriptors;
    graph g;                                           // GRAPH, and what is made of one
    engine e = ENGINES;                                // CONFIG, ENGINE, PLAN
    std::vector<engine> proposed;                      // HEUR
    template <typename T> const T *all(int name) const // NULL: it was not set
    {
        auto found = values.find(name);
        return found == values.end() ? nullptr : reinterpret_cast<const T *>(found->second.data());
    }
    template <typename T> T value(int name) const
    {
        return *all<T>(name);
    }
    template <typename T> size_t count(int name) const
    {
        auto found = values.find(name);
        return found == values.end() ? 0 : found->second.size() / sizeof(T);
    }
    const content &descriptor(int name, size_t i = 0) const
    {
        return *descriptors.at(name)[i];
    }
};
struct handle {
    std::shared_ptr<content> of;
};

std::mutex lock;
std::set<handle *> alive;

/* At the end of the process plans and their pointers alone are left: they are kept for good. */
struct leak_check {
    ~leak_check()
    {
        for (handle *h : alive)
            if (h->of->type != PLAN && (h->of->type != PACK || !h->of->finalized)) {
                fprintf(stderr, "emulator: cuDNN: a descriptor of kind %d was never destroyed\n", (int)h->of->type);
                _exit(1);
            }
    }
} leak_check;

/* Under the lock. */
content *content_of(cudnnBackendDescriptor_t d)
{
    handle *h = static_cast<handle *>(d);
    return alive.count(h) ? h->of.get() : nullptr;
}

/* ---- graphs ---- */
tensor tensor_of(const content &c)
{
    tensor t = {};
    t.id = c.value<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
    t.alignment = c.value<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    t.type = c.value<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
    t.is_virtual = c.all<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL) && c.value<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    t.by_value = c.all<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE) && c.value<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE);
    memcpy(t.shape, c.all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS), sizeof(t.shape));
    memcpy(t.stride, c.all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES), sizeof(t.stride));
    return t;
}

struct convolution_names {
    cudnnBackendDescriptorType_t of;
    int conv, x, w, out, alpha, beta, made;
};
const convolution_names convolutions[] = {
    {FORWARD, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 2},
    {INPUT, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 0},
    {WEIGHT, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, 1},
};
const convolution_names *convolution_of(const content &c)
{
    for (const convolution_names &n : convolutions)
        if (n.of == c.type)
            return &n;
    return nullptr;
}

double scale_of(const content &c, int name)
{
    return c.count<float>(name) == 1 ? (double)c.value<float>(name) : c.value<double>(name);
}

/* True if the operation is of this mode, on the result of `before`, in the type `compute`. */
bool follows(const content &c, cudnnPointwiseMode_t mode, const content &before, cudnnDataType_t compute)
{
    if (c.type != POINT_OP)
        return false;
    const content &point = c.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    return &c.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_XDESC) == &before &&
           c.descriptors.count(CUDNN_ATTR_OPERATION_POINTWISE_BDESC) == (mode == CUDNN_POINTWISE_ADD) &&
           point.value<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE) == mode &&
           point.value<cudnnDataType_t>(CUDNN_ATTR_POINTWISE_MATH_PREC) == compute;
}

bool is_operation(const content &c)
{
    return c.type == POINT_OP || c.type == PRODUCT || c.type == SUM_OP || c.type == RESHAPE || convolution_of(c);
}

/* Reads an operation of attention; the reason why it is none, or NULL. */
const char *read_node(const content &c, node *n)
{
    static const cudnnPointwiseMode_t modes[] = {
        CUDNN_POINTWISE_ADD,    CUDNN_POINTWISE_SUB,          CUDNN_POINTWISE_MUL,      CUDNN_POINTWISE_DIV,
        CUDNN_POINTWISE_EXP,    CUDNN_POINTWISE_LOG,          CUDNN_POINTWISE_IDENTITY, CUDNN_POINTWISE_GEN_INDEX,
        CUDNN_POINTWISE_CMP_GE, CUDNN_POINTWISE_BINARY_SELECT};
    std::vector<int> in;
    int out;
    n->kind = c.type;
    switch (c.type) {
    case PRODUCT:
        n->compute = c.descriptor(CUDNN_ATTR_OPERATION_MATMUL_DESC).value<cudnnDataType_t>(CUDNN_ATTR_MATMUL_COMP_TYPE);
        in = {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC};
        out = CUDNN_ATTR_OPERATION_MATMUL_CDESC;
        break;
    case SUM_OP: {
        const content &r = c.descriptor(CUDNN_ATTR_OPERATION_REDUCTION_DESC);
        n->reduction = r.value<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR);
        in = {CUDNN_ATTR_OPERATION_REDUCTION_XDESC};
        out = CUDNN_ATTR_OPERATION_REDUCTION_YDESC;
        break;
    }
    case RESHAPE:
        in = {CUDNN_ATTR_OPERATION_RESHAPE_XDESC};
        out = CUDNN_ATTR_OPERATION_RESHAPE_YDESC;
        break;
    case POINT_OP: {
        const content &p = c.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
        n->mode = p.value<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
        if (std::find(std::begin(modes), std::end(modes), n->mode) == std::end(modes))
            return "an elementwise operation that attention does not have";
        n->axis = p.count<int64_t>(CUDNN_ATTR_POINTWISE_AXIS) ? p.value<int64_t>(CUDNN_ATTR_POINTWISE_AXIS) : -1;
        in = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC};
        for (int name : {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_ATTR_OPERATION_POINTWISE_TDESC})
            if (c.descriptors.count(name))
                in.push_back(name);
        out = CUDNN_ATTR_OPERATION_POINTWISE_YDESC;
        break;
    }
    default: return "an operation that attention does not have";
    }
    for (int name : in)
        n->in.push_back(tensor_of(c.descriptor(name)));
    n->out = tensor_of(c.descriptor(out));
    return n->out.by_value ? "a value is no output" : nullptr;
}

/* Reads the graph of one convolution, with an addition after it where there are two operations, and ReLU where there
 * are three, or of attention; the reason why it cannot, or NULL. */
const char *read_graph(const content &c, graph *g)
{
    const auto &operations = c.descriptors.at(CUDNN_ATTR_OPERATIONGRAPH_OPS);
    const content &first = *operations[0];
    const convolution_names *n = convolution_of(first);
    *g = graph{};
    for (size_t i = 0; i < operations.size() && !n; i++) {
        node next = {};
        const char *why = read_node(*operations[i], &next);
        if (why)
            return why;
        g->nodes.push_back(next);
    }
    if (!n)
        return check_attention(*g);
    const content &conv = first.descriptor(n->conv);
    g->x = tensor_of(first.descriptor(n->x)), g->w = tensor_of(first.descriptor(n->w));
    g->out = tensor_of(first.descriptor(n->out)), g->made = n->made;
    memcpy(g->stride, conv.all<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES), sizeof(g->stride));
    memcpy(g->padding, conv.all<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS), sizeof(g->padding));
    memcpy(g->dilation, conv.all<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS), sizeof(g->dilation));
    g->groups = g->x.shape[1] / g->w.shape[1];
    g->compute = conv.value<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE);
    if (scale_of(first, n->alpha) != 1 || scale_of(first, n->beta) != 0)
        return "alpha is 1 and beta 0, or the stand-in does not know it";
    if (g->x.is_virtual || g->w.is_virtual || g->out.is_virtual != (operations.size() > 1))
        return "a tensor without memory is neither input nor output of a graph";
    if (operations.size() > 1) {
        const content &second = *operations[1];
        if (!follows(second, CUDNN_POINTWISE_ADD, first.descriptor(n->out), g->compute))
            return "the second operation does not add to the first one's result, in its type";
        g->has_bias = true;
        g->sum = g->out;
        g->bias = tensor_of(second.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
        g->out = tensor_of(second.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
        if (operations.size() > 2) {
            const content &third = *operations[2];
            if (!follows(third, CUDNN_POINTWISE_RELU_FWD, second.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_YDESC),
                         g->compute))
                return "the third operation is not ReLU of the second one's result, in its type";
            g->has_relu = true;
            g->biased = g->out;
            g->out = tensor_of(third.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
        }
        if (g->bias.is_virtual || g->out.is_virtual || (g->has_relu && !g->biased.is_virtual))
            return "a tensor without memory is neither input nor output of a graph";
    }
    std::set<int64_t> ids = {g->x.id, g->w.id, g->out.id};
    if (g->has_bias)
        ids.insert(g->bias.id), ids.insert(g->sum.id);
    if (g->has_relu)
        ids.insert(g->biased.id);
    if (ids.size() != 3u + (g->has_bias ? 2u : 0u) + (g->has_relu ? 1u : 0u))
        return "two tensors have one id";
    return check(*g);
}

/* ---- finalising ---- */
const char *finalize_tensor(const content &c)
{
    size_t dimensions = c.count<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
    int64_t alignment = c.value<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    if (dimensions != 4 || c.count<int64_t>(CUDNN_ATTR_TENSOR_STRIDES) != dimensions)
        return "a tensor of four dimensions and four strides is what the stand-in knows";
    for (size_t d = 0; d < dimensions; d++)
        if (c.all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS)[d] < 1 || c.all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES)[d] < 1)
            return "an empty tensor, or a stride that is not positive";
    return alignment < 1 || alignment & (alignment - 1) ? "an alignment is a power of two" : nullptr;
}

const char *finalize_convolution(const content &c)
{
    const int lists[] = {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS,
                         CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_ATTR_CONVOLUTION_DILATIONS};
    for (int name : lists)
        if (c.count<int64_t>(name) != 2)
            return "a list has another length than the spatial dimensions";
    if (c.value<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) != 2 ||
        c.value<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) != CUDNN_CROSS_CORRELATION ||
        memcmp(c.all<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
               c.all<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS), 2 * sizeof(int64_t)) != 0)
        return "a cross-correlation over two dimensions with equal paddings is what the stand-in knows";
    return nullptr;
}

const char *finalize_pack(const content &c)
{
    return c.count<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) ==
                   c.count<void *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)
               ? nullptr
               : "there are as many ids as pointers";
}

// ---- the library's functions ----
size_t get_version()
{
    emulator::count_call("cudnnGetVersion");
    return CUDNN_VERSION;
}
const char *error_string(cudnnStatus_t)
{
    emulator::count_call("cudnnGetErrorString");
    return "the emulator's error of cuDNN";
}
void last_error(char *message, size_t size)
{
    emulator::count_call("cudnnGetLastErrorString");
    snprintf(message, size, "the emulator keeps no message");
}
cudnnStatus_t create(cudnnHandle_t *made)
{
    emulator::count_call("cudnnCreate");
    if (emulator::loading_breaks_capture("cudnnCreate"))
        return CUDNN_STATUS_NOT_INITIALIZED;
    if (!emulator::has_room_for_handle())
        return CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
    *made = new cudnnContext{emulator::present_device(), nullptr};
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t set_stream(cudnnHandle_t h, cudaStream_t stream)
{
    emulator::count_call("cudnnSetStream");
    h->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t descriptor_create(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *made)
{
    emulator::count_call("cudnnBackendCreateDescriptor");
    std::lock_guard<std::mutex> held(lock);
    handle *h = new handle{std::make_shared<content>()};
    h->of->type = type;
    alive.insert(h);
    *made = h;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t descriptor_destroy(cudnnBackendDescriptor_t d)
{
    emulator::count_call("cudnnBackendDestroyDescriptor");
    std::lock_guard<std::mutex> held(lock);
    handle *h = static_cast<handle *>(d);
    if (!alive.erase(h))
        return refuse("cudnnBackendDestroyDescriptor", "there is no such descriptor");
    delete h;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t attribute_set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    emulator::count_call("cudnnBackendSetAttribute");
    const char *call = "cudnnBackendSetAttribute";
    std::lock_guard<std::mutex> held(lock);
    content *c = content_of(d);
    if (!c || c->finalized)
        return refuse(call, c ? "the descriptor is finalised" : "there is no such descriptor");
    const rule *r = rule_of(c->type, name);
    bool scale = r && r->type == CUDNN_TYPE_FLOAT && type == CUDNN_TYPE_DOUBLE; // alpha and beta may be either
    if (!r || (type != r->type && !scale))
        return refuse(call, r ? "the attribute has another type" : "the descriptor has no such attribute");
    if (count < 1 || count > r->most || !values)
        return refuse(call, "the attribute has another number of elements");
    if (type != DESC) {
        const unsigned char *bytes = static_cast<const unsigned char *>(values);
        c->values[name].assign(bytes, bytes + (size_t)count * size_of(type));
        return CUDNN_STATUS_SUCCESS;
    }
    std::vector<std::shared_ptr<content>> list;
    for (int64_t i = 0; i < count; i++) {
        cudnnBackendDescriptor_t value = static_cast<const cudnnBackendDescriptor_t *>(values)[i];
        content *of = content_of(value);
        if (!of || !of->finalized)
            return refuse(call, "a descriptor that is a value is not there, or not finalised");
        if (r->kind == ANY_OPERATION ? !is_operation(*of) : (int)of->type != r->kind)
            return refuse(call, "a descriptor that is a value is of another kind");
        list.push_back(static_cast<handle *>(value)->of);
    }
    c->descriptors[name] = list;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize(cudnnBackendDescriptor_t d)
{
    emulator::count_call("cudnnBackendFinalize");
    const char *call = "cudnnBackendFinalize", *why = nullptr;
    std::lock_guard<std::mutex> held(lock);
    content *c = content_of(d);
    if (!c || c->finalized)
        return refuse(call, c ? "it is finalised already" : "there is no such descriptor");
    if (c->type == CONFIG || c->type == ENGINE)
        return refuse(call, "the heuristics make these");
    for (const rule &r : rules)
        if (r.of == c->type && r.least && !c->values.count(r.name) && !c->descriptors.count(r.name))
            return refuse(call, "an attribute that must be there is not");
    switch (c->type) {
    case TENSOR: why = finalize_tensor(*c); break;
    case CONV: why = finalize_convolution(*c); break;
    case PACK: why = finalize_pack(*c); break;
    case GRAPH: why = read_graph(*c, &c->g); break;
    case HEUR: {
        c->g = c->descriptor(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH).g;
        cudnnBackendHeurMode_t mode = c->value<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE);
        for (int e = mode == CUDNN_HEUR_MODE_FALLBACK ? GOOD : 0; e < ENGINES; e++)
            if (takes((engine)e, c->g))
                c->proposed.insert(c->proposed.end(), (size_t)proposals_of((engine)e, c->g), (engine)e);
        break;
    }
    case PLAN:
        c->g = c->descriptor(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).g;
        c->e = c->descriptor(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).e;
        if (c->e == NOT_MADE)
            return CUDNN_STATUS_NOT_SUPPORTED;
        if (emulator::loading_breaks_capture("cudnnBackendFinalize"))
            return CUDNN_STATUS_INTERNAL_ERROR;
        break;
    default: break;
    }
    if (why)
        return refuse(call, why);
    c->finalized = true;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t attribute_get(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, int64_t asked, int64_t *count, void *values)
{
    emulator::count_call("cudnnBackendGetAttribute");
    const char *call = "cudnnBackendGetAttribute";
    std::lock_guard<std::mutex> held(lock);
    content *c = content_of(d);
    if (!c || !c->finalized)
        return refuse(call, "there is no such descriptor, or it is not finalised");
    cudnnBackendDescriptor_t *into = static_cast<cudnnBackendDescriptor_t *>(values);
    if (c->type == HEUR && name == CUDNN_ATTR_ENGINEHEUR_RESULTS && type == DESC) {
        int64_t all = (int64_t)c->proposed.size();
        *count = all;
        for (int64_t i = 0; into && i < std::min(all, asked); i++) {
            content *made = content_of(into[i]);
            if (!made || made->type != CONFIG || made->finalized)
                return refuse(call, "the proposals go to engine configurations that were just made");
            made->g = c->g, made->e = c->proposed[(size_t)i], made->finalized = true;
        }
    } else if (c->type == CONFIG && name == CUDNN_ATTR_ENGINECFG_ENGINE && type == DESC && asked == 1) {
        content *made = content_of(into[0]);
        if (!made || made->type != ENGINE || made->finalized)
            return refuse(call, "the engine goes to one that was just made");
        made->g = c->g, made->e = c->e, made->finalized = true;
        *count = 1;
    } else if (c->type == ENGINE && name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX && type == CUDNN_TYPE_INT64 && asked == 1) {
        *static_cast<int64_t *>(values) = index_of(c->e);
        *count = 1;
    } else if (c->type == ENGINE && name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && type == CUDNN_TYPE_NUMERICAL_NOTE) {
        std::vector<cudnnBackendNumericalNote_t> all = notes(c->e, c->g);
        *count = (int64_t)all.size();
        for (int64_t i = 0; i < std::min(*count, asked); i++)
            static_cast<cudnnBackendNumericalNote_t *>(values)[i] = all[(size_t)i];
    } else if (c->type == PLAN && name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && type == CUDNN_TYPE_INT64 &&
               asked == 1) {
        *static_cast<int64_t *>(values) = workspace_of(c->e);
        *count = 1;
    } else {
        return refuse(call, "the descriptor has no such attribute, or not of this type and number");
    }
    return CUDNN_STATUS_SUCCESS;
}

/* Finds the pointer that a pack has for the tensor, which is aligned as the tensor says unless it is a value's; the
 * reason why there is none, or NULL. */
const char *read_pointer(const content &pack, const tensor &t, const void **found)
{
    size_t count = pack.count<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    *found = nullptr;
    for (size_t k = 0; k < count; k++)
        if (pack.all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)[k] == t.id)
            *found = pack.all<const void *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)[k];
    if (!*found)
        return "a tensor of the graph has no pointer";
    bool aligned = t.by_value || reinterpret_cast<uintptr_t>(*found) % (uintptr_t)t.alignment == 0;
    return aligned ? nullptr : "a pointer is less aligned than its tensor says";
}

const char other_count[] = "the graph has another number of tensors with memory";

/* Finds the memory of the graph's tensors, in the order x, w, out, bias; the reason why there is none, or NULL. */
const char *read_pack(const content &pack, const graph &g, const void **memory)
{
    const tensor *tensors[] = {&g.x, &g.w, &g.out, &g.bias};
    size_t count = g.has_bias ? 4 : 3;
    const char *why = pack.count<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) == count ? nullptr : other_count;
    for (size_t i = 0; i < count && !why; i++)
        why = read_pointer(pack, *tensors[i], &memory[i]);
    return why;
}

/* The same of attention. */
const char *read_attention_pack(const content &pack, attention_execution *e)
{
    e->tensors = tensors_with_memory(e->g);
    if (pack.count<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) != e->tensors.size())
        return other_count;
    for (const tensor &t : e->tensors) {
        const void *found;
        const char *why = read_pointer(pack, t, &found);
        if (why)
            return why;
        e->memory.push_back(found);
        e->value.push_back(t.by_value ? *static_cast<const float *>(found) : 0);
    }
    return nullptr;
}

cudnnStatus_t execute(cudnnHandle_t h, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack)
{
    emulator::count_call("cudnnBackendExecute");
    const char *call = "cudnnBackendExecute";
    std::unique_lock<std::mutex> held(lock);
    content *p = content_of(plan), *v = content_of(pack);
    if (!p || !v || p->type != PLAN || v->type != PACK || !p->finalized || !v->finalized)
        return refuse(call, "a plan and a variant pack, both finalised, are what it takes");
    execution e = {};
    attention_execution a = {};
    e.g = a.g = p->g, e.e = a.e = p->e, e.device = a.device = emulator::present_device();
    bool attends = !p->g.nodes.empty();
    const char *why = attends ? read_attention_pack(*v, &a) : read_pack(*v, e.g, e.memory);
    e.workspace = a.workspace = v->value<void *>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    if (!why && h->device != e.device)
        why = "the handle is another device's";
    if (!why && p->value<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE) != h)
        why = "the plan was made for another handle";
    if (!why && workspace_of(e.e) > 0 && (!e.workspace || reinterpret_cast<uintptr_t>(e.workspace) % 16))
        why = "the workspace is not there, or not aligned";
    if (why)
        return refuse(call, why);
    if (e.e == REFUSED_LATE)
        return CUDNN_STATUS_NOT_SUPPORTED;
    if (e.e == FAILS || e.e == BREAKS)
        return e.e == FAILS ? CUDNN_STATUS_INTERNAL_ERROR : CUDNN_STATUS_EXECUTION_FAILED_CUDART;
    if (e.e == PLAIN)
        emulator::count_call("cudnnBackendExecute without tensor cores");
    held.unlock();
    std::function<void()> work = [e] { e.run(); };
    if (attends)
        work = [a] { a.run(); };
    return emulator::queue_timed(call, h->stream, work, milliseconds_of(e.e)) ? CUDNN_STATUS_SUCCESS
                                                                              : CUDNN_STATUS_EXECUTION_FAILED;
}

template <typename F> void *address(F *function)
{
    return reinterpret_cast<void *>(function);
}

const emulator::function functions[] = {
    {"cudnnGetVersion", address(get_version)},
    {"cudnnGetErrorString", address(error_string)},
    {"cudnnGetLastErrorString", address(last_error)},
    {"cudnnCreate", address(create)},
    {"cudnnSetStream", address(set_stream)},
    {"cudnnBackendCreateDescriptor", address(descriptor_create)},
    {"cudnnBackendDestroyDescriptor", address(descriptor_destroy)},
    {"cudnnBackendSetAttribute", address(attribute_set)},
    {"cudnnBackendGetAttribute", address(attribute_get)},
    {"cudnnBackendFinalize", address(finalize)},
    {"cudnnBackendExecute", address(execute)},
    {nullptr, nullptr},
};

} // namespace

const emulator::library emulator::dnn_library = {"cudnn", functions};
