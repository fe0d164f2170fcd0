/*
 * dnn_engines.cc - the computations of the engines of cuDNN's stand-in, from the manual's definition. Tests only.
 *
 * A tensor is rounded to its type when it is stored, one that has no memory as well. Of the engines the good ones come
 * last: those before them do what a caller may have to refuse by their notes, or are refused themselves.
 */
#include <cfloat>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "tests/emulator/dnn.h"

#include "base/philox.h"
#include "device/convert.h"
#include "tests/emulator/traffic.h"
#include "tests/support/reference.h"

namespace dnn_emulation
{

static bool is_half(cudnnDataType_t type)
{
    return type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16;
}
static size_t size_of(cudnnDataType_t type)
{
    return type == CUDNN_DATA_DOUBLE ? 8 : type == CUDNN_DATA_FLOAT ? 4 : 2;
}

REFERENCE double element_of(const void *memory, cudnnDataType_t type, int64_t i)
{
    switch (type) {
    case CUDNN_DATA_DOUBLE: return static_cast<const double *>(memory)[i];
    case CUDNN_DATA_HALF: return (double)yk__from_f16(static_cast<const uint16_t *>(memory)[i]);
    case CUDNN_DATA_BFLOAT16: return (double)yk__from_bf16(static_cast<const uint16_t *>(memory)[i]);
    default: return (double)static_cast<const float *>(memory)[i];
    }
}
REFERENCE void put_element(void *memory, cudnnDataType_t type, int64_t i, double x)
{
    switch (type) {
    case CUDNN_DATA_DOUBLE: static_cast<double *>(memory)[i] = x; break;
    case CUDNN_DATA_HALF: static_cast<uint16_t *>(memory)[i] = yk__to_f16((float)x); break;
    case CUDNN_DATA_BFLOAT16: static_cast<uint16_t *>(memory)[i] = yk__to_bf16((float)x); break;
    default: static_cast<float *>(memory)[i] = (float)x; break;
    }
}
/* As a tensor of the type keeps it. */
REFERENCE double as_kept(cudnnDataType_t type, double x)
{
    double kept = 0;
    put_element(&kept, type, 0, x);
    return element_of(&kept, type, 0);
}
/* With the 10 bits after the point that TF32 keeps, to nearest. */
REFERENCE static double to_tf32(double x)
{
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    bits = (bits + 0xFFF + (bits >> 13 & 1)) & ~0x1FFFu;
    memcpy(&f, &bits, sizeof(bits));
    return std::isfinite(x) ? (double)f : x;
}

bool takes(engine e, const graph &g)
{
    if (!g.nodes.empty())
        return attention_takes(e, g);
    switch (e) {
    case ATOMIC: return g.made == 1;
    case TF32:
    case DOWN_CONVERT: return g.compute == CUDNN_DATA_FLOAT && g.x.type == CUDNN_DATA_FLOAT;
    case HALF_SUMS: return is_half(g.x.type);
    case FAILS:
    case BREAKS: return g.w.shape[0] == FAILING;
    case SWALLOWS_NAN:
    case CLAMPS: return g.has_relu;
    case PLAIN:
        return is_half(g.x.type) && g.x.stride[1] == 1 && g.groups == 1 && g.x.shape[1] % 8 == 0 &&
               g.w.shape[0] % 8 == 0;
    /* Groups with channels last are not in the manual for all operations; no engine takes dilated convolutions of f64,
     * so that our own kernels have work beside the library's. */
    case GOOD:
    case QUICK:
    case FALLBACK:
        return !(g.groups > 1 && g.x.stride[1] == 1 && g.x.shape[1] > 1) &&
               !(g.compute == CUDNN_DATA_DOUBLE && (g.dilation[0] > 1 || g.dilation[1] > 1));
    default: return true;
    }
}

int proposals_of(engine e, const graph &g)
{
    return e == SWALLOWS_NAN || (e == GOOD && g.nodes.empty()) || (e == FAILS && g.has_relu) ? PROPOSALS : 1;
}

int64_t index_of(engine e)
{
    return e == FALLBACK ? 0 : 60 + e;
}

/* HALF_SUMS's note stands after more of them than cuDNN's header knows, as a later library may have it. */
std::vector<cudnnBackendNumericalNote_t> notes(engine e, const graph &g)
{
    std::vector<cudnnBackendNumericalNote_t> all;
    if (e == ATOMIC)
        all.push_back(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
    if (e == DOWN_CONVERT)
        all.push_back(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
    for (int i = 0; e == HALF_SUMS && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++)
        all.push_back((cudnnBackendNumericalNote_t)(CUDNN_NUMERICAL_NOTE_TYPE_COUNT + 1 + i % 3));
    if (e == HALF_SUMS)
        all.push_back(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION);
    if (e == TF32 || !g.nodes.empty() || (is_half(g.x.type) && e != PLAIN && e != FALLBACK))
        all.push_back(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
    return all;
}

int64_t workspace_of(engine e)
{
    return e == GREEDY ? (int64_t)1 << 40 : e == QUICK ? 0 : (int64_t)WORKSPACE;
}

float milliseconds_of(engine e)
{
    return e == QUICK ? 1 : e == PLAIN || e == FALLBACK ? 20 : 5;
}

static bool is_dense(const tensor &t, bool last)
{
    const int64_t *s = t.shape;
    const int64_t with_last[] = {s[1] * s[2] * s[3], 1, s[3] * s[1], s[1]};
    const int64_t with_first[] = {s[1] * s[2] * s[3], s[2] * s[3], s[3], 1};
    return memcmp(t.stride, last ? with_last : with_first, sizeof(with_last)) == 0;
}

const char *check(const graph &g)
{
    const tensor &x = g.x, &w = g.w, &out = g.out;
    cudnnDataType_t compute = x.type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    if (x.type != w.type || x.type != out.type || (g.has_bias && g.bias.type != x.type))
        return "operands are of several types";
    if (g.compute != compute)
        return "no such type of computing";
    if (g.has_bias && (!g.sum.is_virtual || g.made != 2))
        return "what goes from one operation to the next has memory, or is no convolution's output";
    bool first = is_dense(x, false) && is_dense(w, false) && is_dense(out, false);
    bool last = is_dense(x, true) && is_dense(w, true) && is_dense(out, true);
    if (!first && !last)
        return "the tensors are not dense, or in several orders of channels";
    if (x.shape[1] % w.shape[1] || w.shape[0] % g.groups || out.shape[1] != w.shape[0] || out.shape[0] != x.shape[0])
        return "the channels do not fit together";
    for (int d = 0; d < 2; d++)
        if (g.stride[d] < 1 || g.dilation[d] < 1 || g.padding[d] < 0 ||
            out.shape[2 + d] !=
                (x.shape[2 + d] + 2 * g.padding[d] - g.dilation[d] * (w.shape[2 + d] - 1) - 1) / g.stride[d] + 1)
            return "the output has another shape";
    if (g.has_relu && (g.biased.type != g.compute || memcmp(g.biased.shape, out.shape, sizeof(out.shape)) != 0))
        return "what ReLU is of has another shape, or is rounded";
    const int64_t *b = g.bias.shape;
    if (g.has_bias && (b[0] != 1 || b[1] != out.shape[1] || b[2] != 1 || b[3] != 1 ||
                       memcmp(g.sum.shape, out.shape, sizeof(out.shape)) != 0))
        return "the bias, or the sum that it is added to, has another shape";
    return nullptr;
}

REFERENCE static int64_t at(const tensor &t, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return a * t.stride[0] + b * t.stride[1] + c * t.stride[2] + d * t.stride[3];
}
REFERENCE static int64_t count_of(const tensor &t)
{
    return t.shape[0] * t.shape[1] * t.shape[2] * t.shape[3];
}

static void note_traffic(const graph &g, double products)
{
    static const char *const directions[] = {"input's gradient", "weight's gradient", "forward"};
    const tensor *tensors[] = {&g.x, &g.w, &g.out};
    char detail[160];
    double read = g.has_bias ? (double)count_of(g.bias) * (double)size_of(g.bias.type) : 0, written = 0;
    for (int i = 0; i < 3; i++)
        (i == g.made ? written : read) += (double)count_of(*tensors[i]) * (double)size_of(tensors[i]->type);
    snprintf(detail, sizeof(detail), "%s: %lld of %lld x %lld, %lld of %lld x %lld", directions[g.made],
             (long long)g.x.shape[1], (long long)g.x.shape[2], (long long)g.x.shape[3], (long long)g.w.shape[0],
             (long long)g.w.shape[2], (long long)g.w.shape[3]);
    emulator::traffic_call(detail, read, written, products);
}

/* A tensor's elements as the engine multiplies them. */
REFERENCE static std::vector<double> factors_of(const void *data, const tensor &t, engine e)
{
    std::vector<double> factors((size_t)count_of(t));
    double *to = factors.data();
    for (int64_t i = 0, n = count_of(t); i < n; i++) {
        to[i] = element_of(data, t.type, i);
        if (e == TF32)
            to[i] = to_tf32(to[i]);
        if (e == DOWN_CONVERT)
            to[i] = as_kept(CUDNN_DATA_HALF, to[i]);
    }
    return factors;
}

/* The sum after one more product, as an engine has it that does not keep it in f64. */
REFERENCE static double rounded_sum(engine e, cudnnDataType_t compute, double sum)
{
    if (e == HALF_SUMS)
        return as_kept(CUDNN_DATA_HALF, sum);
    return (e == ATOMIC || e == QUICK) && compute == CUDNN_DATA_FLOAT ? (double)(float)sum : sum;
}

/* Adds all products to `sums`, which are laid out as the tensor that is made: a row of the output at a time, for one
 * tap of the kernel. `step` is how far x, w and out go on from one output to the next. */
REFERENCE static void add_products(const execution &run, void *const *data, double *sums)
{
    const graph &g = run.g;
    const tensor *tensors[] = {&g.x, &g.w, &g.out};
    const int first = g.made == 0 ? 1 : 0, second = g.made == 2 ? 1 : 2;
    const std::vector<double> kept_left = factors_of(data[first], *tensors[first], run.e);
    const std::vector<double> kept_right = factors_of(data[second], *tensors[second], run.e);
    const double *left = kept_left.data(), *right = kept_right.data();
    const bool rounds = run.e == HALF_SUMS || ((run.e == ATOMIC || run.e == QUICK) && g.compute == CUDNN_DATA_FLOAT);
    const int64_t each = g.w.shape[0] / g.groups, inputs = g.w.shape[1];
    const int64_t step[] = {g.x.stride[3] * g.stride[1], 0, g.out.stride[3]};
    /* The atomic engine begins anywhere, and goes round. */
    int64_t images = g.out.shape[0], start = run.e == ATOMIC ? emulator::draw((uint32_t)images) : 0;
    for (int64_t k = 0; k < images; k++)
        for (int64_t o = 0, n = (start + k) % images; o < g.out.shape[1]; o++)
            for (int64_t i = 0; i < inputs; i++)
                for (int64_t ky = 0, c = run.e == QUICK ? inputs - 1 - i : i; ky < g.w.shape[2]; ky++)
                    for (int64_t kx = 0; kx < g.w.shape[3]; kx++) {
                        int64_t from = 0, to = g.out.shape[3], shift = kx * g.dilation[1] - g.padding[1];
                        while (from < to && from * g.stride[1] + shift < 0)
                            from++;
                        while (to > from && (to - 1) * g.stride[1] + shift >= g.x.shape[3])
                            to--;
                        for (int64_t oy = 0; from < to && oy < g.out.shape[2]; oy++) {
                            int64_t y = oy * g.stride[0] - g.padding[0] + ky * g.dilation[0];
                            if (y < 0 || y >= g.x.shape[2])
                                continue;
                            const int64_t begins[] = {at(g.x, n, o / each * inputs + c, y, from * g.stride[1] + shift),
                                                      at(g.w, o, c, ky, kx), at(g.out, n, o, oy, from)};
                            const double *p = left + begins[first], *q = right + begins[second];
                            double *sum = sums + begins[g.made];
                            for (int64_t ox = from; ox < to; ox++) {
                                *sum += *p * *q;
                                if (rounds)
                                    *sum = rounded_sum(run.e, g.compute, *sum);
                                p += step[first], q += step[second], sum += step[g.made];
                            }
                        }
                    }
}

void execution::run() const
{
    const char *call = "cudnnBackendExecute", *why = nullptr;
    const tensor *tensors[] = {&g.x, &g.w, &g.out, &g.bias};
    void *data[4] = {nullptr, nullptr, nullptr, nullptr};
    for (int i = 0; i < (g.has_bias ? 4 : 3); i++) {
        data[i] =
            emulator::bytes_of(memory[i], (size_t)count_of(*tensors[i]) * size_of(tensors[i]->type), device, &why);
        if (why)
            return emulator::library_fault(call, why);
    }
    if (workspace_of(e) > 0) {
        void *scratch = emulator::bytes_of(workspace, WORKSPACE, device, &why);
        if (why)
            return emulator::library_fault(call, why);
        memset(scratch, 0xA5, WORKSPACE); // as the library may
    }
    double products = (double)(count_of(g.out) * g.w.shape[1]) * (double)(g.w.shape[2] * g.w.shape[3]);
    note_traffic(g, products);
    if (emulator::skips_product(products)) {
        memset(data[g.made], 0, (size_t)count_of(*tensors[g.made]) * size_of(tensors[g.made]->type));
        return;
    }
    std::vector<double> sums((size_t)count_of(*tensors[g.made]));
    add_products(*this, data, sums.data());
    for (int64_t n = 0; g.has_bias && n < g.out.shape[0]; n++)
        for (int64_t o = 0; o < g.out.shape[1]; o++)
            for (int64_t oy = 0; oy < g.out.shape[2]; oy++)
                for (int64_t ox = 0; ox < g.out.shape[3]; ox++) {
                    double &sum = sums[(size_t)at(g.out, n, o, oy, ox)];
                    sum = as_kept(g.compute,
                                  as_kept(g.sum.type, sum) + element_of(data[3], g.bias.type, at(g.bias, 0, o, 0, 0)));
                    if (!g.has_relu)
                        continue;
                    if (sum < 0 ||
                        (std::isnan(sum) && (e == SWALLOWS_NAN || (e != FALLBACK && g.out.shape[1] == ALL_SWALLOW))))
                        sum = 0;
                    if (e == CLAMPS && std::isinf(sum))
                        sum = FLT_MAX;
                }
    for (size_t i = 0; i < sums.size(); i++)
        put_element(data[g.made], tensors[g.made]->type, (int64_t)i, sums[i]);
}

} // namespace dnn_emulation
