/*
 * onnx_trace.h - the operations of one forward, in their order, with the tensors between them. Layer: onnx.
 */
#ifndef YOKE_ONNX_ONNX_TRACE_H
#define YOKE_ONNX_ONNX_TRACE_H

#include <yoke/onnx.h>

#include "autograd/tape.h"

enum { YK__ONNX_TENSORS = 8 /* inputs, and outputs, at most */ };

/* A tensor at a moment: one that is changed in place is another value from then on. */
typedef struct yk__traced {
    yk_tensor *tensor; /* retained */
    uint32_t version;  /* when it became this value */
    bool live;         /* it depends on an input; else it is a constant */
} yk__traced;

typedef struct yk__traced_op {
    const char *name; /* static */
    yk__attributes attributes;
    int n_inputs, n_outputs;
    int *values; /* of the inputs, -1 for NULL, then of the outputs: indices of values */
} yk__traced_op;

/* Values 0 to n_inputs - 1 are the inputs, NULL ones included. Operations that read constants alone are left out. */
typedef struct yk__trace {
    yk__listener listener;
    yk__traced *values;
    yk__traced_op *ops;
    int n_values, value_room, n_ops, op_room;
    int outputs[YK__ONNX_TENSORS];
    yk_status status; /* of what was heard; the record says why */
    const char *torn; /* an operation in place on memory that another value shows; NULL: none */
} yk__trace;

/* Calls the module; the trace is empty before. On failure, too, it is cleared by yk__trace_clear. */
yk_status yk__trace_run(yk__trace *t, yk_module *module, yk_tensor *const *inputs, int n_inputs,
                        int n_outputs) YK_MUST_CHECK;
void yk__trace_clear(yk__trace *t);

#endif
