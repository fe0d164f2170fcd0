/*
 * dnn.h - cuDNN's graphs as the stand-in understands them: the descriptor of one, and an engine's computation of it.
 * Tests only.
 */
#ifndef YOKE_TESTS_EMULATOR_DNN_H
#define YOKE_TESTS_EMULATOR_DNN_H

#define CUDA_NO_HALF // its name would hide variables of ours
#include <cudnn.h>
#include <vector>

#include "tests/emulator/libraries.h"

namespace dnn_emulation
{

struct tensor {
    int64_t id, shape[4], stride[4], alignment;
    cudnnDataType_t type;
    bool is_virtual, by_value;
};

/* An operation of attention: its kind is that of its descriptor. */
struct node {
    cudnnBackendDescriptorType_t kind;
    cudnnPointwiseMode_t mode;
    cudnnReduceTensorOp_t reduction;
    cudnnDataType_t compute;
    int64_t axis;
    std::vector<tensor> in;
    tensor out;
};

/* Attention, where there are nodes; else a convolution, whose `made` is x, w or out (0, 1, 2), and perhaps a bias that
 * is added to its out, and perhaps ReLU after that. */
struct graph {
    std::vector<node> nodes;
    tensor x, w, out, bias, sum, biased;
    bool has_bias, has_relu;
    int made;
    int64_t stride[2], padding[2], dilation[2], groups;
    cudnnDataType_t compute;
};

/* The engines, each with something that another does not do. */
enum engine {
    ATOMIC,       /* its sums have another order each time */
    TF32,         /* f32 factors lose bits */
    DOWN_CONVERT, /* f32 factors become f16 */
    HALF_SUMS,    /* sums are kept in f16 */
    NOT_MADE,     /* its plan is refused */
    REFUSED_LATE, /* the plan is made, and refused when it is carried out */
    FAILS,        /* an internal error when it is carried out, for FAILING output channels, as it alone takes */
    BREAKS,       /* the same with a failure of its execution */
    GREEDY,       /* wants more memory than there is room for */
    SWALLOWS_NAN, /* its ReLU makes 0 of NaN, which no note tells */
    CLAMPS,       /* its ReLU makes the greatest number of infinity */
    PLAIN,        /* without tensor cores, for halves that others take on them: slow, and counted where it runs */
    GOOD,
    QUICK,    /* as good, takes less time and no workspace, and adds in f32 from the last term on */
    FALLBACK, /* takes every graph that GOOD does, keeps NaN, and is the slowest of all: the library's number 0 */
    ENGINES
};
/* ALL_SWALLOW: output channels of which every other engine's ReLU makes 0 of NaN. PROPOSALS: of some engines, one after
 * another, which differ in the engine's settings, as the library has it. */
enum { WORKSPACE = 500, ALL_SWALLOW = 37, FAILING = 11, PROPOSALS = 12 };

/* True if the engine takes the graph at all; its numerical notes, and the bytes that it wants. */
bool takes(engine e, const graph &g);
int proposals_of(engine e, const graph &g);
int64_t index_of(engine e); /* the library's number of it */
std::vector<cudnnBackendNumericalNote_t> notes(engine e, const graph &g);
int64_t workspace_of(engine e);
float milliseconds_of(engine e); /* the time that the GPU is said to take */
/* The reason why the manual has no such graph; NULL where it has. */
const char *check(const graph &g);

/* Carries it out on memory, by id: x, w, out, bias. */
struct execution {
    graph g;
    engine e;
    const void *memory[4], *workspace;
    int device;
    void run() const;
};

/* ---- attention (dnn_attention.cc) ---- */
const char *check_attention(const graph &g);
bool attention_takes(engine e, const graph &g);
std::vector<tensor> tensors_with_memory(const graph &g); /* each once, those with a value as well */
struct attention_execution {
    graph g;
    engine e;
    std::vector<tensor> tensors;
    std::vector<const void *> memory;
    std::vector<float> value; /* of those by value, as it was when the plan was queued */
    const void *workspace;
    int device;
    void run() const;
};

/* An element of a type, and a number as the type keeps it. */
double element_of(const void *memory, cudnnDataType_t type, int64_t i);
void put_element(void *memory, cudnnDataType_t type, int64_t i, double x);
double as_kept(cudnnDataType_t type, double x);

} // namespace dnn_emulation

#endif
