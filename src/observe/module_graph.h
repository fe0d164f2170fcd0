/*
 * module_graph.h - a network as TensorBoard's graph: its modules, the operations between them, and what is the input of
 * what. Layer: observe.
 */
#ifndef YOKE_OBSERVE_MODULE_GRAPH_H
#define YOKE_OBSERVE_MODULE_GRAPH_H

#include <yoke/nn.h>

#include "observe/protobuf.h"

enum { YK__GRAPH_INPUTS = 8 /* at most */ };

/* Writes the nodes of a GraphDef. The model is called once with the inputs, in evaluation mode, after which it is as it
 * was before; without inputs there are its modules, and no edges. Errors are those of its forward. */
yk_status yk__module_graph(yk_module *model, yk_tensor *const *inputs, int n_inputs, yk__proto *graph) YK_MUST_CHECK;

#endif
