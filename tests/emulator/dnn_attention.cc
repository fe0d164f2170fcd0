/*
 * dnn_attention.cc - graphs of attention as cuDNN's stand-in takes and computes them: operation by operation, each from
 * the manual's definition. Tests only.
 *
 * Every tensor is rounded to its type, those without memory as well. What the library wants of such a graph is known
 * from its own frontend, and from what the real one refuses (tests/device/dnn_plans_test.c): products of halves, rows
 * that lie side by side and begin at 16 bytes, two products forward and five backward.
 */
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>

#include "tests/emulator/dnn.h"

#include "tests/emulator/traffic.h"

namespace dnn_emulation
{

enum { FORWARD_PRODUCTS = 2, BACKWARD_PRODUCTS = 5, STEP = 8, ALIGNMENT = 16 };

static int64_t count_of(const tensor &t)
{
    return t.shape[0] * t.shape[1] * t.shape[2] * t.shape[3];
}
static bool is_half(const tensor &t)
{
    return t.type == CUDNN_DATA_HALF || t.type == CUDNN_DATA_BFLOAT16;
}
static bool same_shape(const tensor &a, const tensor &b)
{
    return memcmp(a.shape, b.shape, sizeof(a.shape)) == 0;
}

std::vector<tensor> tensors_with_memory(const graph &g)
{
    std::vector<tensor> all;
    std::set<int64_t> seen;
    for (const node &n : g.nodes)
        for (size_t i = 0; i <= n.in.size(); i++) {
            const tensor &t = i < n.in.size() ? n.in[i] : n.out;
            if (!t.is_virtual && seen.insert(t.id).second)
                all.push_back(t);
        }
    return all;
}

/* The fault of a product (..., M, K) (..., K, N), NULL for none. */
static const char *check_product(const node &n)
{
    const tensor &a = n.in[0], &b = n.in[1];
    if (a.shape[0] != b.shape[0] || a.shape[1] != b.shape[1] || a.shape[3] != b.shape[2] ||
        a.shape[2] != n.out.shape[2] || b.shape[3] != n.out.shape[3] || a.shape[0] != n.out.shape[0] ||
        a.shape[1] != n.out.shape[1])
        return "the factors of a product do not fit together";
    return n.compute == CUDNN_DATA_FLOAT ? nullptr : "a product of attention is added up in f32";
}

static const char *check_node(const node &n)
{
    switch (n.kind) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: return check_product(n);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        if (n.out.shape[3] != 1 || memcmp(n.out.shape, n.in[0].shape, 3 * sizeof(int64_t)) != 0)
            return "a reduction of attention is over the last dimension";
        return n.reduction == CUDNN_REDUCE_TENSOR_ADD || n.reduction == CUDNN_REDUCE_TENSOR_MAX
                   ? nullptr
                   : "a reduction that attention does not have";
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: {
        const tensor &x = n.in[0], &y = n.out;
        bool turned = x.shape[2] == y.shape[3] && x.shape[3] == y.shape[2] && x.stride[2] == y.stride[3] &&
                      x.stride[3] == y.stride[2];
        return turned && x.stride[0] == y.stride[0] && x.stride[1] == y.stride[1]
                   ? nullptr
                   : "a reshape of attention changes rows and columns round, where they lie";
    }
    default: break;
    }
    if (n.mode == CUDNN_POINTWISE_GEN_INDEX && (n.axis < 2 || n.axis > 3 || n.out.type != CUDNN_DATA_INT32))
        return "an index is of the rows or the columns, as i32";
    if (n.mode == CUDNN_POINTWISE_BINARY_SELECT && (n.in.size() != 3 || n.in[2].type != CUDNN_DATA_BOOLEAN))
        return "a selection has two operands and what selects";
    for (const tensor &x : n.in)
        for (int d = 0; d < 4; d++)
            if (x.shape[d] != n.out.shape[d] && x.shape[d] != 1)
                return "operands of an elementwise operation do not fit together";
    return nullptr;
}

const char *check_attention(const graph &g)
{
    std::map<int64_t, tensor> known;
    std::set<int64_t> made;
    size_t products = 0;
    for (const node &n : g.nodes) {
        const char *why = check_node(n);
        if (why)
            return why;
        products += n.kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR;
        for (const tensor &x : n.in)
            if (x.is_virtual && !made.count(x.id))
                return "a tensor without memory is used before it is made";
        if (!made.insert(n.out.id).second)
            return "two operations make one tensor";
        for (size_t i = 0; i <= n.in.size(); i++) {
            const tensor &t = i < n.in.size() ? n.in[i] : n.out;
            if (known.count(t.id) && !same_shape(known[t.id], t))
                return "two tensors have one id";
            known[t.id] = t;
        }
    }
    if (products != FORWARD_PRODUCTS && products != BACKWARD_PRODUCTS)
        return "attention has two products, its backward five";
    for (const tensor &t : tensors_with_memory(g)) {
        if (t.alignment < ALIGNMENT)
            return "operands of attention are aligned to 16 bytes";
        if (!is_half(t))
            continue;
        bool rows = t.stride[3] == 1, columns = t.stride[2] == 1; /* of what is transposed */
        int64_t width = t.shape[rows ? 3 : 2], row = t.stride[rows ? 2 : 3];
        if ((!rows && !columns) || width % STEP || row % STEP || t.stride[1] % STEP || t.stride[0] % STEP)
            return "rows of attention lie side by side, and have a multiple of 8 elements";
    }
    return nullptr;
}

/* True if backward adds up the gradient of q in memory. */
static bool sums_in_memory(const graph &g)
{
    for (const node &n : g.nodes)
        if (n.kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR && !n.out.is_virtual && n.out.type == CUDNN_DATA_FLOAT)
            return true;
    return false;
}

bool attention_takes(engine e, const graph &g)
{
    switch (e) {
    case ATOMIC: return sums_in_memory(g);
    case NOT_MADE:
    case GREEDY: return true;
    case GOOD: return !sums_in_memory(g); /* the library has no other for it */
    default: return false;
    }
}

/* ---- carrying it out ---- */
typedef std::vector<double> values;

static int64_t place(const int64_t stride[4], const int64_t at[4])
{
    return at[0] * stride[0] + at[1] * stride[1] + at[2] * stride[2] + at[3] * stride[3];
}

/* Calls f(i, place) for each element, i counted in C order. */
template <typename F> static void each(const tensor &t, F f)
{
    int64_t i = 0, at[4];
    for (at[0] = 0; at[0] < t.shape[0]; at[0]++)
        for (at[1] = 0; at[1] < t.shape[1]; at[1]++)
            for (at[2] = 0; at[2] < t.shape[2]; at[2]++)
                for (at[3] = 0; at[3] < t.shape[3]; at[3]++)
                    f(i++, at);
}

static double element(const tensor &t, const values &v, const int64_t at[4])
{
    int64_t i = 0;
    for (int d = 0; d < 4; d++)
        i = i * t.shape[d] + (t.shape[d] == 1 ? 0 : at[d]);
    return v[(size_t)i];
}

static double applied(const node &n, double x, double other, double selects, const int64_t at[4])
{
    switch (n.mode) {
    case CUDNN_POINTWISE_ADD: return x + other;
    case CUDNN_POINTWISE_SUB: return x - other;
    case CUDNN_POINTWISE_MUL: return x * other;
    case CUDNN_POINTWISE_DIV: return x / other;
    case CUDNN_POINTWISE_EXP: return std::exp(x);
    case CUDNN_POINTWISE_LOG: return std::log(x);
    case CUDNN_POINTWISE_IDENTITY: return x;
    case CUDNN_POINTWISE_GEN_INDEX: return (double)at[n.axis];
    case CUDNN_POINTWISE_CMP_GE: return x >= other;
    case CUDNN_POINTWISE_BINARY_SELECT: return selects != 0 ? x : other;
    default: return NAN; /* read_nodes lets none through */
    }
}

static values product(const node &n, const values &a, const values &b, engine e)
{
    int64_t rows = n.out.shape[2], columns = n.out.shape[3], inner = n.in[0].shape[3];
    values made((size_t)count_of(n.out));
    bool atomic = e == ATOMIC && !n.out.is_virtual && n.out.type == CUDNN_DATA_FLOAT;
    for (int64_t m = 0; m < n.out.shape[0] * n.out.shape[1]; m++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++) {
                double sum = 0;
                int64_t start = atomic ? emulator::draw((uint32_t)inner) : 0;
                for (int64_t k = 0; k < inner; k++) {
                    int64_t l = (start + k) % inner;
                    sum += a[(size_t)((m * rows + i) * inner + l)] * b[(size_t)((m * inner + l) * columns + j)];
                    if (atomic)
                        sum = (double)(float)sum;
                }
                made[(size_t)((m * rows + i) * columns + j)] = sum;
            }
    return made;
}

static values reduced(const node &n, const values &x)
{
    int64_t count = n.in[0].shape[3];
    values made((size_t)count_of(n.out));
    for (size_t row = 0; row < made.size(); row++) {
        double all = n.reduction == CUDNN_REDUCE_TENSOR_MAX ? -INFINITY : 0;
        for (size_t i = 0; i < (size_t)count; i++) {
            double v = x[row * (size_t)count + i];
            if (n.reduction == CUDNN_REDUCE_TENSOR_ADD)
                all += v;
            else if (!(v <= all)) /* NaN stays */
                all = v;
        }
        made[row] = all;
    }
    return made;
}

static values result(const node &n, std::map<int64_t, values> &known, engine e)
{
    const values &x = known[n.in[0].id];
    if (n.kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
        return product(n, x, known[n.in[1].id], e);
    if (n.kind == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
        return reduced(n, x);
    values made((size_t)count_of(n.out));
    each(n.out, [&](int64_t i, const int64_t at[4]) {
        if (n.kind == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR) {
            const int64_t from[4] = {at[0], at[1], at[3], at[2]};
            made[(size_t)i] = element(n.in[0], x, from);
            return;
        }
        double other = n.in.size() > 1 ? element(n.in[1], known[n.in[1].id], at) : 0;
        double selects = n.in.size() > 2 ? element(n.in[2], known[n.in[2].id], at) : 0;
        made[(size_t)i] = applied(n, element(n.in[0], x, at), other, selects, at);
    });
    return made;
}

static double rounded(const tensor &t, double x)
{
    return t.type == CUDNN_DATA_INT32 || t.type == CUDNN_DATA_BOOLEAN ? x : as_kept(t.type, x);
}

void attention_execution::run() const
{
    const char *call = "cudnnBackendExecute", *why = nullptr;
    std::map<int64_t, values> known;
    std::map<int64_t, void *> bytes;
    std::set<int64_t> made;
    double products = 0, read = 0, written = 0;
    for (const node &n : g.nodes) {
        made.insert(n.out.id);
        if (n.kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
            products += (double)count_of(n.out) * (double)n.in[0].shape[3];
    }
    for (size_t i = 0; i < tensors.size(); i++) {
        const tensor &t = tensors[i];
        if (t.by_value) {
            known[t.id] = values(1, (double)value[i]);
            continue;
        }
        int64_t last[4] = {t.shape[0] - 1, t.shape[1] - 1, t.shape[2] - 1, t.shape[3] - 1};
        size_t size = is_half(t) ? 2 : 4;
        bytes[t.id] = emulator::bytes_of(memory[i], (size_t)(place(t.stride, last) + 1) * size, device, &why);
        if (why)
            return emulator::library_fault(call, why);
        (made.count(t.id) ? written : read) += (double)count_of(t) * (double)size;
        if (made.count(t.id))
            continue;
        values &v = known[t.id] = values((size_t)count_of(t));
        each(t, [&](int64_t k, const int64_t at[4]) {
            v[(size_t)k] = element_of(bytes[t.id], t.type, place(t.stride, at));
        });
    }
    if (workspace_of(e) > 0) {
        void *scratch = emulator::bytes_of(workspace, WORKSPACE, device, &why);
        if (why)
            return emulator::library_fault(call, why);
        memset(scratch, 0xA5, WORKSPACE); // as the library may
    }
    char detail[160];
    const tensor &q = g.nodes[0].in[0];
    snprintf(detail, sizeof(detail), "attention%s: %lld queries", g.nodes.size() > 14 ? "'s backward" : "",
             (long long)q.shape[2]);
    emulator::traffic_call(detail, read, written, products);
    bool skips = emulator::skips_product(products);
    for (const node &n : g.nodes) {
        values &v = known[n.out.id] = skips ? values((size_t)count_of(n.out)) : result(n, known, e);
        for (double &x : v)
            x = rounded(n.out, x);
        if (!n.out.is_virtual)
            each(n.out, [&](int64_t k, const int64_t at[4]) {
                put_element(bytes[n.out.id], n.out.type, place(n.out.stride, at), v[(size_t)k]);
            });
    }
}

} // namespace dnn_emulation
