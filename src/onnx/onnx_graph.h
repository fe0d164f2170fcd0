/*
 * onnx_graph.h - a graph of ONNX that is being made: names, nodes, constants. Layer: onnx.
 *
 * Functions that give a name give NULL after a failure, whose reason is in the record, and pass NULL on, so that calls
 * can be nested and checked once. Names live as long as the graph.
 */
#ifndef YOKE_ONNX_ONNX_GRAPH_H
#define YOKE_ONNX_ONNX_GRAPH_H

#include "observe/protobuf.h"
#include "onnx/onnx_trace.h"

enum { YK__ONNX_BATCH_A = 2, YK__ONNX_BATCH_B = 3, YK__ONNX_OPSET = 20 };

/* A constant of the file: the message but its bytes, which are written after it, or to the file of data. */
typedef struct yk__onnx_constant {
    yk__proto head;
    yk_tensor *tensor; /* retained, whose elements follow; NULL: `bytes` do */
    void *bytes;
    size_t size;
    size_t offset; /* in the file of data, where `external` */
    bool external;
} yk__onnx_constant;

typedef struct yk__onnx {
    const yk__trace *a, *b;     /* of batches of YK__ONNX_BATCH_A and _B; values and operations are the same */
    const yk_state_dict *state; /* for names of constants */
    yk__proto nodes;            /* fields of a GraphProto */
    yk__onnx_constant *constants;
    int n_constants, constant_room;
    const char **value_names; /* of each value of the trace; NULL: not yet */
    char **texts;
    int n_texts, text_room, numbered;
    const char *batch; /* the name of the size of the batch, (1) i64; NULL: not yet */
    int batch_input, batch_dim;
} yk__onnx;

void yk__onnx_clear(yk__onnx *g);
/* A name that the graph keeps. */
const char *yk__onnx_text(yk__onnx *g, const char *format, ...) YK_PRINTF(2, 3);

/* ---- attributes of the next node: each adds one to the message ---- */
void yk__onnx_int(yk__proto *to, const char *name, int64_t value);
void yk__onnx_ints(yk__proto *to, const char *name, int count, const int64_t *values);
void yk__onnx_float(yk__proto *to, const char *name, double value);
void yk__onnx_string(yk__proto *to, const char *name, const char *value);

/* ---- nodes ---- */
/* A node of the type, with the attributes (emptied; NULL: none); an input "" is left out. False after a failure, or
 * where an input is NULL. */
bool yk__onnx_nodes(yk__onnx *g, const char *type, yk__proto *attributes, int n_inputs, const char *const *inputs,
                    int n_outputs, const char **outputs);
const char *yk__onnx_node(yk__onnx *g, const char *type, yk__proto *attributes, int n_inputs,
                          const char *const *inputs);
#define YK__ONNX_NODE(g, type, attributes, ...)                                                                        \
    yk__onnx_node(g, type, attributes, (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(const char *)),            \
                  (const char *[]){__VA_ARGS__})

/* ---- constants ---- */
const char *yk__onnx_number(yk__onnx *g, yk_dtype dtype, double value);   /* of no dimensions */
const char *yk__onnx_list(yk__onnx *g, int count, const int64_t *values); /* (count) i64 */
const char *yk__onnx_bytes(yk__onnx *g, yk_dtype dtype, int ndim, const int64_t *shape, const void *data);
/* The name of a value of the trace, which becomes a constant of the file where it is none of the model's results. */
const char *yk__onnx_value(yk__onnx *g, int value);

/* ---- sizes, which may depend on the batch ---- */
/* The tensors of a value, of both calls. */
static inline const yk_tensor *yk__onnx_of_a(const yk__onnx *g, int value)
{
    return g->a->values[value].tensor;
}
static inline const yk_tensor *yk__onnx_of_b(const yk__onnx *g, int value)
{
    return g->b->values[value].tensor;
}
/* A size that is a at a batch of 2, and b at one of 3, as times * batch + plus; false and an error where it is not. */
bool yk__onnx_size(int64_t a, int64_t b, int64_t *times, int64_t *plus);
/* (ndim) i64: sizes that are a[] and b[]. */
const char *yk__onnx_sizes(yk__onnx *g, int ndim, const int64_t *a, const int64_t *b);
/* x in the shape of a value; of sizes that are a[] and b[]. */
const char *yk__onnx_reshape_as(yk__onnx *g, const char *x, int value);
const char *yk__onnx_reshape(yk__onnx *g, const char *x, int ndim, const int64_t *a, const int64_t *b);

int yk__onnx_dtype(yk_dtype dtype); /* ONNX's number */

/* ---- the file (onnx_file.c) ---- */
/* Writes the graph to `path`, and weights to PATH.data where that is asked for or where one file cannot hold them. */
yk_status yk__onnx_write(yk__onnx *g, const char *path, bool external_data);

/* ---- operations (onnx_ops.c, onnx_shape_ops.c) ---- */
/* Writes the nodes of an operation and the names of its results. */
typedef bool (*yk__onnx_emit)(yk__onnx *g, const yk__traced_op *op, const char **results);
typedef struct yk__onnx_row {
    const char *name; /* of the operation */
    yk__onnx_emit emit;
    const char *type; /* where it is one node of this type without attributes; else NULL */
} yk__onnx_row;
extern const yk__onnx_row yk__onnx_math[], yk__onnx_layers[], yk__onnx_shapes[]; /* each ended by a name of NULL */

/* Numbers of an operation by name: a whole one, 0 where there is none; a real one; a list, and how many. */
int64_t yk__onnx_whole(const yk__traced_op *op, const char *name);
double yk__onnx_real(const yk__traced_op *op, const char *name);
const int64_t *yk__onnx_ints_of(const yk__traced_op *op, const char *name, int *count);
/* The name of input i, "" for NULL; the value of input i, of output i. */
const char *yk__onnx_input(yk__onnx *g, const yk__traced_op *op, int i);
static inline int yk__onnx_out(const yk__traced_op *op, int i)
{
    return op->values[op->n_inputs + i];
}
/* Input i as the dtype. */
const char *yk__onnx_input_as(yk__onnx *g, const yk__traced_op *op, int i, yk_dtype dtype);

#endif
