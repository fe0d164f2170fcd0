/*
 * dnn_graph.h - cuDNN's operation graphs, from descriptors. Layer: device/cuda.
 *
 * A descriptor's attributes are set, then it is finalised; the first call that fails ends the making, and is what
 * `failed` says. The builder destroys all descriptors at the end: the library keeps what it needs of them.
 */
#ifndef YOKE_DEVICE_CUDA_DNN_GRAPH_H
#define YOKE_DEVICE_CUDA_DNN_GRAPH_H

#include "device/cuda/dnn_plan.h"

#ifdef HAS_DNN

/* The most descriptors and operations of one graph, with room. */
enum { DNN_MOST_MADE = 160, DNN_MOST_OPERATIONS = 32 };

typedef struct dnn_builder {
    cudnnStatus_t code; /* of the first call that failed */
    const char *failed; /* the descriptor that it was for */
    int count;
    cudnnBackendDescriptor_t made[DNN_MOST_MADE];
} dnn_builder;

bool dnn_took(dnn_builder *b, cudnnStatus_t code, const char *what);
cudnnBackendDescriptor_t dnn_create(dnn_builder *b, cudnnBackendDescriptorType_t type, const char *what);
void dnn_set(dnn_builder *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
             cudnnBackendAttributeType_t type, int64_t count, const void *values, const char *what);
void dnn_set_descriptor(dnn_builder *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                        cudnnBackendDescriptor_t value, const char *what);
/* d; NULL where it, or anything before it, was refused. */
cudnnBackendDescriptor_t dnn_finalized(dnn_builder *b, cudnnBackendDescriptor_t d, const char *what);
void dnn_release_all(dnn_builder *b);

/* The place of a tensor's elements: memory, none, or a single one, which the host brings with the pointers. */
enum dnn_memory { DNN_IN_MEMORY, DNN_VIRTUAL, DNN_BY_VALUE };

cudnnDataType_t dnn_type_of(int64_t dtype);
cudnnBackendDescriptor_t dnn_tensor(dnn_builder *b, int64_t id, cudnnDataType_t type, const int64_t shape[4],
                                    const int64_t stride[4], int64_t alignment, enum dnn_memory memory);
/* out = mode(x, other); `other`, and `selects` of BINARY_SELECT (x where it holds), are NULL where the mode takes none.
 * `axis` is GEN_INDEX's. */
cudnnBackendDescriptor_t dnn_pointwise(dnn_builder *b, cudnnPointwiseMode_t mode, cudnnDataType_t compute, int64_t axis,
                                       cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t other,
                                       cudnnBackendDescriptor_t selects, cudnnBackendDescriptor_t out);

/* The operations of attention, up to DNN_MOST_OPERATIONS, and their number. (dnn_attention.c) */
int64_t dnn_attention_operations(dnn_builder *b, const dnn_form *f, cudnnBackendDescriptor_t *operations);

/* The graph of a form; NULL where a call of the builder failed. */
cudnnBackendDescriptor_t dnn_graph_make(dnn_builder *b, const dnn_form *f, cudnnHandle_t handle);

#endif
#endif
