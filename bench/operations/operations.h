/*
 * operations.h - declarations that the files of `operation_times` share: the cases, and an operation made from a case's
 * text. Layer: bench.
 *
 * A case is one line of text, "conv2d x=8x64x56x56 w=64x64x3x3 padding=1 layout=inner": an operation, its operands'
 * shapes, its parameters. The text is the whole definition: bench/peer_ops.py makes the same operation in PyTorch of
 * it.
 */
#ifndef YOKE_BENCH_OPERATIONS_H
#define YOKE_BENCH_OPERATIONS_H

#include <yoke/optim.h>

/* The limit of a case on one core: arithmetic, memory beyond the second-level cache, the same with operands of 100M
 * elements, or the cost of a call. */
typedef enum ops_bound { OPS_ARITHMETIC, OPS_MEMORY, OPS_LARGE, OPS_SMALL, OPS_STEP, OPS_BOUNDS } ops_bound;

/* The part of an operation that is timed. Bits: a case names several. */
typedef enum ops_direction {
    OPS_FORWARD = 1 << 0,     /* without recording a gradient */
    OPS_BACKWARD = 1 << 1,    /* the gradients of all floating operands, of a graph that is kept */
    OPS_GRAD_INPUT = 1 << 2,  /* the gradient of x alone */
    OPS_GRAD_WEIGHT = 1 << 3, /* the gradients of all operands but x */
    OPS_BOTH = 1 << 4,        /* forward and backward, as in a training step */
    OPS_WHOLE_STEP = 1 << 5,  /* an optimizer's step, or all of a training step */
    OPS_LAST_DIRECTION = OPS_WHOLE_STEP
} ops_direction;

typedef struct ops_case {
    const char *text;
    ops_bound bound;
    unsigned directions; /* of ops_direction */
} ops_case;
extern const ops_case ops_cases[];
extern const int ops_case_count;

enum { OPS_OPERANDS = 7 };

typedef struct ops_operation ops_operation;

/* An operation with its operands, made from a case's text. Everything belongs to the scope it was made in. */
typedef struct ops_subject {
    const char *text;
    const ops_operation *operation;
    yk_tensor *in[OPS_OPERANDS]; /* floating: x, then weights and other operands; NULL where there are fewer */
    yk_tensor *mean, *variance;  /* running statistics that are used; else NULL */
    yk_tensor *index;            /* classes, rows or a mask, where the operation takes them */
    yk_module *model;
    yk_parameters *parameters;
    yk_optimizer *optimizer;
    yk_tensor *out, *gradient; /* of the graph that is kept */
} ops_subject;

struct ops_operation {
    const char *name;
    yk_tensor *(*forward)(ops_subject *s);
    yk_status (*prepare)(ops_subject *s); /* operands beyond those that the text gives shapes of; or NULL */
    yk_status (*step)(ops_subject *s);    /* OPS_WHOLE_STEP */
    bool positive;                        /* operands in [0.1, 1.1), else normal */
};

/* Operations with indices and masks. */
extern const ops_operation ops_index_operations[];
extern const int ops_index_operation_count;
/* Operations that reduce, order, draw and copy. */
extern const ops_operation ops_reduce_operations[];
extern const int ops_reduce_operation_count;
/* Activations, borders, windows, norms and losses beyond those of the tuned networks. */
extern const ops_operation ops_layer_operations[];
extern const int ops_layer_operation_count;
/* Elementwise functions, comparisons, logic, and what is in place. */
extern const ops_operation ops_plain_operations[];
extern const int ops_plain_operation_count;
/* Convolutions and pools along one dimension and three, transposed ones, pools with indices. */
extern const ops_operation ops_volume_operations[];
extern const int ops_volume_operation_count;
/* Recurrent networks, packed sequences, attention, layers of transformers. */
extern const ops_operation ops_sequence_operations[];
extern const int ops_sequence_operation_count;

/* The name of one direction: "forward", "grad_input". Static. */
const char *ops_direction_name(ops_direction direction);
const char *ops_bound_name(ops_bound bound);

/* Reads "8x64x56x56" after "key=" into shape[] (of 8); the number of dimensions, 0 where the text has no such key. */
int ops_text_sizes(const char *text, const char *key, int64_t *shape);
/* The number after "key=", or `otherwise`. */
double ops_text_number(const char *text, const char *key, double otherwise);
/* The whole number after "key=" of the subject's text, or `otherwise`; that after "dim=", or 0. */
int64_t ops_whole(const ops_subject *s, const char *key, int64_t otherwise);
int ops_dim(const ops_subject *s);
/* The word after "key=" into word[], "" where the text has no such key. */
void ops_text_word(const char *text, const char *key, char *word, size_t size);
/* True if the text has "key=word". */
bool ops_text_is(const char *text, const char *key, const char *word);
/* The dtype that a key names ("dtype=f64"); YK_F32 where the text does not have it. */
yk_dtype ops_text_dtype(const char *text, const char *key);

/* Makes the operation and its operands for one direction. */
yk_status ops_prepare(ops_subject *s, const char *text, ops_direction direction) YK_MUST_CHECK;
/* The model of a name, its optimizer, input and targets, for `batch` of that size (of images; tokens of gpt2, steps of
 * lstm): SGD, and AdamW for vit_b and gpt2. */
yk_status ops_prepare_network(ops_subject *s, const char *name, int64_t batch, int64_t size) YK_MUST_CHECK;
/* Does once what the direction says. */
yk_status ops_once(ops_subject *s, ops_direction direction) YK_MUST_CHECK;

#endif
