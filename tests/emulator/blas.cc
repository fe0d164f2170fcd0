/*
 * blas.cc - stand-ins of the calls of cuBLASLt that the backend makes. Tests only.
 *
 * A product is computed from the manual's definition when the stream's turn comes. Refused is what the manual does not
 * promise: a leading dimension less than the rows, a result that overlaps, a workspace too small or not aligned to 256
 * bytes, an algorithm of another product, a handle of another device. Pointers less aligned than the algorithm was
 * asked for are a fault of the device, as on a GPU; the bias is loaded as the result is stored, by up to 16 bytes at
 * once. The workspace is overwritten, as the library may do.
 */
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#define CUDA_NO_HALF // its name would hide variables of ours
#include <cublasLt.h>

#include "base/philox.h"
#include "device/convert.h"
#include "tests/emulator/libraries.h"
#include "tests/emulator/traffic.h"
#include "tests/support/reference.h"

namespace
{

/* NO_ALGORITHM, REFUSED_LATE, ALL_REFUSED: inner dimensions that the library has no algorithm for, of whose algorithms
 * it refuses the first, or all: its answer is no mistake of the caller's. NO_BIAS: it has none that adds a bias.
 * INVALID, FAILS: it calls the first invalid, or fails in it; ALL_FAIL: in all.
 * NOT_IN_CAPTURES: the heuristics have none while the thread captures a stream, as those of CUDA 13.3.
 * NOT_READY: the first algorithm's state says that it is none. SWALLOWS_NAN: one whose ReLU makes 0 of NaN.
 * ROUNDS_SUMS: one whose gradient of a bias is added up in the factor's type. ALGORITHMS: that there are of a product.
 */
enum {
    WORKSPACE = 1000,
    WORKSPACE_ALIGNMENT = 256,
    NO_ALGORITHM = 29,
    REFUSED_LATE = 31,
    ALL_REFUSED = 43,
    NOT_READY = 47,
    NO_BIAS = 53,
    INVALID = 59,
    FAILS = 61,
    ALL_FAIL = 67,
    NOT_IN_CAPTURES = 71,
    ALGORITHMS = 3,
    FIRST_ALGORITHM = 66,
    SWALLOWS_NAN = 37,
    ROUNDS_SUMS = 41,
    MOST_BATCHES = 65535
};

struct layout {
    cudaDataType type;
    int32_t batches;
    int64_t rows, columns, ld, batch;
};
struct description {
    int32_t compute, scale, first, second, bias_type;
    uint32_t epilogue;
    const void *bias;
};
struct preference {
    uint64_t workspace;
    uint32_t alignment[4], schemes;
};
/* The product that an algorithm was chosen for. */
struct algorithm {
    uint64_t hash;
    uint32_t alignment[4];      /* of the factors, the result and the bias */
    uint32_t magic, parts;      /* those that k is cut into, each of which is rounded as the result is */
    uint32_t bias_behind;       /* it is added to a sum of parts that was rounded before */
    uint32_t number, workspace; /* bytes: only the first wants some */
};
struct handle {
    int device;
};
enum : uint32_t { MAGIC = 0x61F2C30B };

template <typename T, typename From> T read(const From *opaque)
{
    static_assert(sizeof(T) <= sizeof(From), "it has room");
    T made;
    memcpy(&made, opaque, sizeof(T));
    return made;
}
template <typename To, typename T> void write(To *opaque, const T &from)
{
    memset(opaque, 0, sizeof(*opaque));
    memcpy(opaque, &from, sizeof(T));
}

cublasStatus_t refuse(const char *call, const char *why, cublasStatus_t code = CUBLAS_STATUS_INVALID_VALUE)
{
    fprintf(stderr, "emulator: %s: %s\n", call, why);
    return code;
}

/* A product that the caller described wrong: not INVALID_VALUE, which the caller may take for a refusal of the
 * library's and do without it. */
cublasStatus_t mistake(const char *why)
{
    return refuse("cublasLtMatmul", why, CUBLAS_STATUS_MAPPING_ERROR);
}

size_t size_of(cudaDataType type)
{
    return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}

REFERENCE double value(const void *memory, cudaDataType type, int64_t i)
{
    switch (type) {
    case CUDA_R_64F: return static_cast<const double *>(memory)[i];
    case CUDA_R_16F: return (double)yk__from_f16(static_cast<const uint16_t *>(memory)[i]);
    case CUDA_R_16BF: return (double)yk__from_bf16(static_cast<const uint16_t *>(memory)[i]);
    default: return (double)static_cast<const float *>(memory)[i];
    }
}
REFERENCE void put(void *memory, cudaDataType type, int64_t i, double x)
{
    switch (type) {
    case CUDA_R_64F: static_cast<double *>(memory)[i] = x; break;
    case CUDA_R_16F: static_cast<uint16_t *>(memory)[i] = yk__to_f16((float)x); break;
    case CUDA_R_16BF: static_cast<uint16_t *>(memory)[i] = yk__to_bf16((float)x); break;
    default: static_cast<float *>(memory)[i] = (float)x; break;
    }
}
/* As a result of the type keeps it. */
REFERENCE double rounded(cudaDataType type, double x)
{
    double kept = 0;
    put(&kept, type, 0, x);
    return value(&kept, type, 0);
}

/* Matrix n of a batch as dense lines: its rows or its columns. */
REFERENCE std::vector<double> lines_of(const void *memory, const layout &l, int64_t n, bool rows)
{
    const int64_t lines = rows ? l.rows : l.columns, length = rows ? l.columns : l.rows;
    std::vector<double> all((size_t)(lines * length));
    double *to = all.data();
    for (int64_t line = 0; line < lines; line++)
        for (int64_t i = 0; i < length; i++)
            *to++ = value(memory, l.type, n * l.batch + (rows ? i * l.ld + line : line * l.ld + i));
    return all;
}

/* `sum`, and the products of two lines one after another. */
REFERENCE double dot(const double *p, const double *q, int64_t k, double sum)
{
    for (int64_t i = 0; i < k; i++)
        sum += p[i] * q[i];
    return sum;
}

uint64_t hash_of(const description &d, const layout &a, const layout &b, const layout &c)
{
    const int64_t words[] = {d.compute, d.scale, d.first,   d.second, d.epilogue, a.type,   a.rows,
                             a.columns, a.ld,    a.batch,   b.rows,   b.columns,  b.ld,     b.batch,
                             c.type,    c.rows,  c.columns, c.ld,     c.batch,    c.batches};
    uint64_t hash = 88172645463325252u;
    for (int64_t word : words)
        hash = (hash ^ (uint64_t)word) * 1099511628211u;
    return hash;
}

/* True if the epilogue writes the sums of a factor over the inner dimension. */
bool sums_of(const description &d)
{
    return d.epilogue == CUBLASLT_EPILOGUE_BGRADA || d.epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

int64_t inner_of(const description &d, const layout &a)
{
    return d.first == CUBLAS_OP_N ? a.columns : a.rows;
}

/* The reason why the manual has no such product; NULL if it has. */
const char *check(const description &d, const layout &a, const layout &b, const layout &c)
{
    bool wide = c.type == CUDA_R_64F, half = a.type == CUDA_R_16F || a.type == CUDA_R_16BF;
    int64_t rows = d.first == CUBLAS_OP_N ? a.rows : a.columns, k = d.first == CUBLAS_OP_N ? a.columns : a.rows;
    int64_t other = d.second == CUBLAS_OP_N ? b.rows : b.columns;
    int64_t columns = d.second == CUBLAS_OP_N ? b.columns : b.rows;
    if (a.type != b.type || (a.type != c.type && !(half && c.type == CUDA_R_32F)))
        return "factors and result are of types that do not go together";
    if (d.scale != (wide ? CUDA_R_64F : CUDA_R_32F) ||
        (wide ? d.compute != CUBLAS_COMPUTE_64F
              : d.compute != CUBLAS_COMPUTE_32F && (d.compute != CUBLAS_COMPUTE_32F_FAST_TF32 || a.type != CUDA_R_32F)))
        return "no such types of computing and scaling";
    if (rows != c.rows || columns != c.columns || k != other || k < 1)
        return "the shapes do not fit together";
    if (a.ld < a.rows || b.ld < b.rows || c.ld < c.rows)
        return "a leading dimension is less than the rows";
    if (a.batches != c.batches || b.batches != c.batches)
        return "several numbers of batches";
    if (c.batches > MOST_BATCHES)
        return "more matrices than a grid has planes";
    if (c.batches > 1 && c.batch < c.ld * (c.columns - 1) + c.rows &&
        c.ld < c.batch * (c.batches - 1) + c.rows) /* batches between the columns are apart, too */
        return "the results of a batch overlap";
    if (d.epilogue != CUBLASLT_EPILOGUE_DEFAULT && d.epilogue != CUBLASLT_EPILOGUE_BIAS &&
        d.epilogue != CUBLASLT_EPILOGUE_RELU_BIAS && d.epilogue != CUBLASLT_EPILOGUE_BGRADA &&
        d.epilogue != CUBLASLT_EPILOGUE_BGRADB)
        return "no such epilogue here";
    if (d.epilogue != CUBLASLT_EPILOGUE_DEFAULT && (wide || d.bias_type != (int32_t)c.type || !d.bias))
        return "no such bias";
    if (sums_of(d) && c.batches > 1)
        return "the gradient of a bias is one matrix's";
    return nullptr;
}

const void *reach(const char *call, const void *address, int64_t bytes, int device)
{
    const char *why = nullptr;
    const void *found = emulator::bytes_of(address, (size_t)bytes, device, &why);
    if (!found)
        emulator::library_fault(call, why);
    return found;
}

int64_t extent(const layout &l)
{
    return ((l.columns - 1) * l.ld + l.rows + (l.batches - 1) * l.batch) * (int64_t)size_of(l.type);
}

struct product {
    description d;
    layout a, b, c;
    const void *first, *second, *workspace;
    void *result;
    double beta;
    uint32_t parts, bias_behind;
    size_t workspace_bytes;
    int device;
    bool misaligned; /* a pointer is less aligned than the algorithm takes it to be */

    void run() const
    {
        const char *call = "cublasLtMatmul";
        if (misaligned)
            return emulator::library_fault(call, "a pointer is less aligned than the algorithm was asked for");
        const void *x = reach(call, first, extent(a), device), *y = reach(call, second, extent(b), device);
        void *z = const_cast<void *>(reach(call, result, extent(c), device));
        const void *bias = nullptr;
        bool relu = d.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
        if (relu || d.epilogue == CUBLASLT_EPILOGUE_BIAS) {
            bias = reach(call, d.bias, c.rows * (int64_t)size_of(c.type), device);
            if (!bias)
                return;
        }
        if (!x || !y || !z)
            return;
        if (workspace_bytes) {
            void *scratch = const_cast<void *>(reach(call, workspace, (int64_t)workspace_bytes, device));
            if (!scratch)
                return;
            memset(scratch, 0xA5, workspace_bytes);
        }
        int64_t k = d.first == CUBLAS_OP_N ? a.columns : a.rows;
        double products = (double)(c.batches * c.rows * c.columns) * (double)k;
        note_traffic(k, products);
        if (emulator::skips_product(products))
            return memset_result(static_cast<char *>(z));
        for (int64_t n = 0; n < c.batches; n++)
            multiply(x, y, z, bias, relu, k, n);
        if (sums_of(d))
            sum_rows(x, y, k);
    }

    /* The product of matrix n of each batch. Not instrumented: `run` has looked at the memory. */
    REFERENCE void multiply(const void *x, const void *y, void *z, const void *bias, bool relu, int64_t k,
                            int64_t n) const
    {
        const std::vector<double> rows = lines_of(x, a, n, d.first == CUBLAS_OP_N);
        const std::vector<double> columns = lines_of(y, b, n, d.second != CUBLAS_OP_N);
        const double *left = rows.data(), *right = columns.data();
        for (int64_t column = 0; column < c.columns; column++)
            for (int64_t row = 0; row < c.rows; row++) {
                const double *p = left + row * k, *q = right + column * k;
                const int64_t part = parts > 1 ? k / 2 + 1 : k;
                double sum = dot(p, q, part, 0);
                if (parts > 1)
                    sum = dot(p + part, q + part, k - part, rounded(c.type, sum));
                int64_t at = n * c.batch + column * c.ld + row;
                if (beta != 0)
                    sum += beta * value(z, c.type, at);
                if (bias && bias_behind)
                    sum = rounded(c.type, sum);
                if (bias)
                    sum += value(bias, c.type, row);
                if (relu && (sum < 0 || (std::isnan(sum) && k == SWALLOWS_NAN)))
                    sum = 0;
                put(z, c.type, at, sum);
            }
    }

    void note_traffic(int64_t k, double products) const
    {
        char detail[100];
        snprintf(detail, sizeof(detail), "%lld x %lld of %lld", (long long)c.rows, (long long)c.columns, (long long)k);
        double of_a = (double)a.batches * (double)(a.rows * a.columns) * (double)size_of(a.type);
        double of_b = (double)b.batches * (double)(b.rows * b.columns) * (double)size_of(b.type);
        double of_c = (double)c.batches * (double)(c.rows * c.columns) * (double)size_of(c.type);
        emulator::traffic_call(detail, of_a + of_b + (beta != 0 ? of_c : 0), of_c, products);
    }

    void memset_result(char *z) const
    {
        for (int64_t n = 0; n < c.batches; n++)
            for (int64_t column = 0; column < c.columns; column++)
                memset(z + (size_t)(n * c.batch + column * c.ld) * size_of(c.type), 0,
                       (size_t)c.rows * size_of(c.type));
    }

    /* The sums of op(A)'s rows, or of op(B)'s columns. */
    void sum_rows(const void *x, const void *y, int64_t k) const
    {
        bool of_first = d.epilogue == CUBLASLT_EPILOGUE_BGRADA;
        int64_t count = of_first ? c.rows : c.columns;
        void *sums = const_cast<void *>(reach("cublasLtMatmul", d.bias, count * (int64_t)size_of(c.type), device));
        for (int64_t i = 0; sums && i < count; i++) {
            double sum = 0;
            for (int64_t j = 0; j < k; j++) {
                sum += of_first ? value(x, a.type, d.first == CUBLAS_OP_N ? j * a.ld + i : i * a.ld + j)
                                : value(y, b.type, d.second == CUBLAS_OP_N ? i * b.ld + j : j * b.ld + i);
                if (k == ROUNDS_SUMS)
                    sum = rounded(c.type, sum);
            }
            put(sums, c.type, i, sum);
        }
    }
};

// ---- the library's functions ----
size_t get_version()
{
    emulator::count_call("cublasLtGetVersion");
    return CUBLAS_VER_MAJOR * 10000 + CUBLAS_VER_MINOR * 100;
}

cublasStatus_t create(cublasLtHandle_t *made)
{
    emulator::count_call("cublasLtCreate");
    if (emulator::loading_breaks_capture("cublasLtCreate"))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!emulator::has_room_for_handle())
        return CUBLAS_STATUS_ALLOC_FAILED;
    *made = reinterpret_cast<cublasLtHandle_t>(new handle{emulator::present_device()});
    return CUBLAS_STATUS_SUCCESS;
}

const char *status_string(cublasStatus_t)
{
    emulator::count_call("cublasLtGetStatusString");
    return "the emulator's error of cuBLASLt";
}

cublasStatus_t layout_init(cublasLtMatrixLayout_t made, size_t size, cudaDataType type, uint64_t rows, uint64_t columns,
                           int64_t ld)
{
    emulator::count_call("cublasLtMatrixLayoutInit_internal");
    if (size != sizeof(*made) || !rows || !columns)
        return refuse("cublasLtMatrixLayoutInit", "no such matrix");
    write(made, layout{type, 1, (int64_t)rows, (int64_t)columns, ld, 0});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t layout_set(cublasLtMatrixLayout_t made, cublasLtMatrixLayoutAttribute_t attribute, const void *from,
                          size_t size)
{
    emulator::count_call("cublasLtMatrixLayoutSetAttribute");
    layout l = read<layout>(made);
    if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && size == sizeof(l.batches))
        memcpy(&l.batches, from, size);
    else if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET && size == sizeof(l.batch))
        memcpy(&l.batch, from, size);
    else
        return refuse("cublasLtMatrixLayoutSetAttribute", "no such attribute, or another size");
    write(made, l);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t desc_init(cublasLtMatmulDesc_t made, size_t size, cublasComputeType_t compute, cudaDataType_t scale)
{
    emulator::count_call("cublasLtMatmulDescInit_internal");
    if (size != sizeof(*made))
        return refuse("cublasLtMatmulDescInit", "another size");
    write(made, description{compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, -1, CUBLASLT_EPILOGUE_DEFAULT, nullptr});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t desc_set(cublasLtMatmulDesc_t made, cublasLtMatmulDescAttributes_t attribute, const void *from,
                        size_t size)
{
    emulator::count_call("cublasLtMatmulDescSetAttribute");
    description d = read<description>(made);
    void *to = nullptr;
    size_t expected = 4;
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: to = &d.first; break;
    case CUBLASLT_MATMUL_DESC_TRANSB: to = &d.second; break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE: to = &d.epilogue; break;
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: to = &d.bias_type; break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: to = &d.bias, expected = sizeof(d.bias); break;
    default: break;
    }
    if (!to || size != expected)
        return refuse("cublasLtMatmulDescSetAttribute", "no such attribute, or another size");
    memcpy(to, from, size);
    write(made, d);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t preference_init(cublasLtMatmulPreference_t made, size_t size)
{
    emulator::count_call("cublasLtMatmulPreferenceInit_internal");
    if (size != sizeof(*made))
        return refuse("cublasLtMatmulPreferenceInit", "another size");
    write(made, preference{0, {256, 256, 256, 256}, CUBLASLT_REDUCTION_SCHEME_MASK});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t preference_set(cublasLtMatmulPreference_t made, cublasLtMatmulPreferenceAttributes_t attribute,
                              const void *from, size_t size)
{
    emulator::count_call("cublasLtMatmulPreferenceSetAttribute");
    preference p = read<preference>(made);
    int which = (int)attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && size == sizeof(p.workspace))
        memcpy(&p.workspace, from, size);
    else if (which >= 0 && which < 4 && size == sizeof(p.alignment[0]))
        memcpy(&p.alignment[which], from, size);
    else if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK && size == sizeof(p.schemes))
        memcpy(&p.schemes, from, size);
    else
        return refuse("cublasLtMatmulPreferenceSetAttribute", "no such attribute, or another size");
    write(made, p);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t heuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t first,
                         cublasLtMatrixLayout_t second, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t result,
                         cublasLtMatmulPreference_t wanted, int asked, cublasLtMatmulHeuristicResult_t *found,
                         int *count)
{
    emulator::count_call("cublasLtMatmulAlgoGetHeuristic");
    description d = read<description>(desc);
    layout a = read<layout>(first), b = read<layout>(second), c = read<layout>(result);
    preference p = read<preference>(wanted);
    const char *why = check(d, a, b, c);
    if (why || asked < 1)
        return refuse("cublasLtMatmulAlgoGetHeuristic", why ? why : "none was asked for");
    int64_t inner = inner_of(d, a);
    *count = 0;
    if (emulator::loading_breaks_capture("cublasLtMatmulAlgoGetHeuristic") ||
        (inner == NOT_IN_CAPTURES && emulator::thread_captures()))
        return CUBLAS_STATUS_INTERNAL_ERROR;
    bool biased = d.epilogue == CUBLASLT_EPILOGUE_BIAS || d.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
    if ((d.epilogue == CUBLASLT_EPILOGUE_BGRADA && d.first != CUBLAS_OP_N) ||
        (d.epilogue == CUBLASLT_EPILOGUE_BGRADB && d.second != CUBLAS_OP_T))
        return CUBLAS_STATUS_NOT_SUPPORTED; // there are no such kernels
    if (p.workspace < WORKSPACE || inner == NO_ALGORITHM || (inner == NO_BIAS && biased))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    bool half = c.type == CUDA_R_16F || c.type == CUDA_R_16BF;
    uint32_t rounding = CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    uint32_t parts = half && p.schemes & rounding ? 2 : 1, bias_behind = half && biased && p.schemes;
    for (; *count < asked && *count < ALGORITHMS; ++*count) {
        cublasLtMatmulHeuristicResult_t &f = found[*count];
        memset(&f, 0, sizeof(f));
        if (inner == NOT_READY && *count == 0) {
            f.state = CUBLAS_STATUS_NOT_SUPPORTED; // its other members are not valid
            continue;
        }
        write(&f.algo, algorithm{hash_of(d, a, b, c),
                                 {p.alignment[0], p.alignment[1], p.alignment[3], std::min(p.alignment[3], 16u)},
                                 MAGIC,
                                 parts,
                                 bias_behind,
                                 (uint32_t)*count,
                                 *count ? 0u : (uint32_t)WORKSPACE});
        f.workspaceSize = *count ? 0 : WORKSPACE;
        f.state = CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t algorithm_get(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t attribute, void *to,
                             size_t size, size_t *written)
{
    emulator::count_call("cublasLtMatmulAlgoConfigGetAttribute");
    algorithm chosen = read<algorithm>(algo);
    uint32_t value = attribute == CUBLASLT_ALGO_CONFIG_ID ? FIRST_ALGORITHM + chosen.number : chosen.parts;
    if (chosen.magic != MAGIC || size != sizeof(value) ||
        (attribute != CUBLASLT_ALGO_CONFIG_ID && attribute != CUBLASLT_ALGO_CONFIG_SPLITK_NUM))
        return refuse("cublasLtMatmulAlgoConfigGetAttribute", "no such attribute, or another size");
    memcpy(to, &value, size);
    *written = size;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t matmul(cublasLtHandle_t lt, cublasLtMatmulDesc_t desc, const void *alpha, const void *first,
                      cublasLtMatrixLayout_t first_layout, const void *second, cublasLtMatrixLayout_t second_layout,
                      const void *beta, const void *added, cublasLtMatrixLayout_t, void *result,
                      cublasLtMatrixLayout_t result_layout, const cublasLtMatmulAlgo_t *algo, void *workspace,
                      size_t workspace_bytes, cudaStream_t stream)
{
    emulator::count_call("cublasLtMatmul");
    const char *call = "cublasLtMatmul";
    product p;
    p.d = read<description>(desc);
    p.a = read<layout>(first_layout), p.b = read<layout>(second_layout), p.c = read<layout>(result_layout);
    algorithm chosen = read<algorithm>(algo);
    const char *why = check(p.d, p.a, p.b, p.c);
    if (why)
        return mistake(why);
    if (inner_of(p.d, p.a) == ALL_REFUSED || (inner_of(p.d, p.a) == REFUSED_LATE && chosen.number == 0))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (inner_of(p.d, p.a) == INVALID && chosen.number == 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (inner_of(p.d, p.a) == FAILS && chosen.number == 0)
        return CUBLAS_STATUS_INTERNAL_ERROR;
    if (inner_of(p.d, p.a) == ALL_FAIL)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    if (chosen.magic != MAGIC || chosen.hash != hash_of(p.d, p.a, p.b, p.c))
        return mistake("the algorithm was chosen for another product");
    const void *pointers[] = {first, second, result, p.d.bias};
    p.misaligned = false;
    for (int i = 0; i < 4; i++)
        p.misaligned = p.misaligned || reinterpret_cast<uintptr_t>(pointers[i]) % chosen.alignment[i];
    if (workspace_bytes < chosen.workspace || reinterpret_cast<uintptr_t>(workspace) % WORKSPACE_ALIGNMENT)
        return mistake("the workspace is too small, or not aligned to 256 bytes");
    if (reinterpret_cast<handle *>(lt)->device != emulator::present_device())
        return mistake("the handle is another device's");
    if (added != result)
        return mistake("what is added lies elsewhere than the result");
    bool wide = p.c.type == CUDA_R_64F;
    double scale = wide ? *static_cast<const double *>(alpha) : (double)*static_cast<const float *>(alpha);
    if (scale != 1)
        return mistake("alpha is not 1, which is all that the stand-in knows");
    p.beta = wide ? *static_cast<const double *>(beta) : (double)*static_cast<const float *>(beta);
    p.first = first, p.second = second, p.result = result, p.workspace = workspace;
    p.workspace_bytes = workspace_bytes, p.parts = chosen.parts, p.bias_behind = chosen.bias_behind;
    p.device = emulator::present_device();
    return emulator::queue_library(call, stream, [p] { p.run(); }) ? CUBLAS_STATUS_SUCCESS
                                                                   : CUBLAS_STATUS_EXECUTION_FAILED;
}

template <typename F> void *address(F *function)
{
    return reinterpret_cast<void *>(function);
}

const emulator::function functions[] = {
    {"cublasLtGetVersion", address(get_version)},
    {"cublasLtCreate", address(create)},
    {"cublasLtGetStatusString", address(status_string)},
    {"cublasLtMatrixLayoutInit_internal", address(layout_init)},
    {"cublasLtMatrixLayoutSetAttribute", address(layout_set)},
    {"cublasLtMatmulDescInit_internal", address(desc_init)},
    {"cublasLtMatmulDescSetAttribute", address(desc_set)},
    {"cublasLtMatmulPreferenceInit_internal", address(preference_init)},
    {"cublasLtMatmulPreferenceSetAttribute", address(preference_set)},
    {"cublasLtMatmulAlgoGetHeuristic", address(heuristic)},
    {"cublasLtMatmulAlgoConfigGetAttribute", address(algorithm_get)},
    {"cublasLtMatmul", address(matmul)},
    {nullptr, nullptr},
};

} // namespace

const emulator::library emulator::blas_library = {"cublasLt", functions};
