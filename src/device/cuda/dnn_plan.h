/*
 * dnn_plan.h - convolutions and attention by execution plans of cuDNN's. Layer: device/cuda.
 *
 * A form is a convolution or attention with its sizes and the operations after it; a plan is the library's way to
 * compute it on one kind of GPU. Plans are made for the GPU of a handle, or for a GPU that is not there, from its
 * properties as JSON: that is how a machine without one checks that each graph is taken.
 */
#ifndef YOKE_DEVICE_CUDA_DNN_PLAN_H
#define YOKE_DEVICE_CUDA_DNN_PLAN_H

#if defined(__has_include)
#if __has_include(<cudnn.h>)
#define HAS_DNN 1 /* else the backend is built without cuDNN */
#endif
#endif

#include "device/cuda/libraries.h"

#ifdef HAS_DNN
#include <cudnn.h>

/* The functions of cuDNN that are used; all there where dnn_open says so. */
typedef struct dnn_functions {
    __typeof__(cudnnGetVersion) *version;
    __typeof__(cudnnGetErrorString) *error_string;
    __typeof__(cudnnGetLastErrorString) *last_error;
    __typeof__(cudnnCreate) *create;
    __typeof__(cudnnSetStream) *set_stream;
    __typeof__(cudnnBackendCreateDescriptor) *descriptor_create;
    __typeof__(cudnnBackendDestroyDescriptor) *descriptor_destroy;
    __typeof__(cudnnBackendSetAttribute) *attribute_set;
    __typeof__(cudnnBackendGetAttribute) *attribute_get;
    __typeof__(cudnnBackendFinalize) *finalize;
    __typeof__(cudnnBackendExecute) *execute;
} dnn_functions;
extern dnn_functions dnn;

/* Opens the library, once: false where it is not there. */
bool dnn_open(void);

/* The unique ids of a graph's tensors that have memory, or a value of the host's: 1 to DNN_TENSORS. Of a convolution
 * the bias is there where the form has one. Of attention those from GOUT on are backward's: GQ_SUM (N,H,L,E), which it
 * has unless it is deterministic, and OUT_SUM (N,H,L) are f32, dense, and nothing before or after it. */
enum { DNN_X = 1, DNN_W, DNN_OUT, DNN_BIAS };
enum {
    DNN_Q = 1,
    DNN_K,
    DNN_V,
    DNN_ATTENDED, /* out */
    DNN_LSE,
    DNN_SCALE,          /* by value */
    DNN_MINUS_INFINITY, /* by value; where causal */
    DNN_GOUT,
    DNN_GQ,
    DNN_GK,
    DNN_GV,
    DNN_OUT_SUM,
    DNN_GQ_SUM,
    DNN_ONE, /* by value */
    DNN_TENSORS = DNN_ONE
};

/* An execution plan, which nobody releases: recorded steps replay its kernels. NULL where there is none. */
typedef struct dnn_plan {
    cudnnBackendDescriptor_t plan;
    size_t workspace;  /* bytes */
    int64_t candidate; /* its number among what the heuristics proposed: engines, each with several settings */
    int64_t engine;    /* the library's number of it */
    bool tensor_cores; /* the engine uses them */
} dnn_plan;

/* A set of engines, by their numbers; those from DNN_ENGINES on are in none. cuDNN 9.19 has up to 75 for a graph. */
enum { DNN_ENGINES = 128 };
typedef struct dnn_engines {
    uint64_t bits[DNN_ENGINES / 64];
} dnn_engines;

static inline bool dnn_engines_have(const dnn_engines *set, int64_t engine)
{
    return engine >= 0 && engine < DNN_ENGINES && set->bits[engine / 64] >> (engine % 64) & 1;
}

static inline void dnn_engines_add(dnn_engines *set, int64_t engine)
{
    if (engine >= 0 && engine < DNN_ENGINES)
        set->bits[engine / 64] |= (uint64_t)1 << (engine % 64);
}

/* The first plan, from candidate `from` on, of an engine that is not in `without` (NULL: none is), that the form allows
 * and the library makes, for the GPU of `handle`, or, where that is NULL, of `properties`. False where there is none:
 * `why`, of DNN_WHY bytes, says what was tried. */
bool dnn_plan_make(const dnn_form *f, cudnnHandle_t handle, cudnnBackendDescriptor_t properties, int64_t from,
                   const dnn_engines *without, dnn_plan *made, char *why);

/* Queues the form's work on memory, where element i is that of the tensor i + 1, NULL where the graph has none, or
 * where it has a value. *taken stays false where no plan does it. (dnn_run.c) */
yk_status dnn_run(const dnn_form *f, cudaStream_t stream, void *const memory[DNN_TENSORS], bool *taken);

#endif
#endif
