/*
 * tape.h - the tape: nodes, edges, and how an operation records itself. Layer: autograd.
 *
 * A node stands for one operation that made one tensor, or several. It holds, per input that needs a gradient, an edge
 * to that output of the node that made the input (or to the accumulator of a leaf), and the tensors that backward
 * needs. The tensors it made hold the node; the node never holds those tensors (an output that backward needs is saved
 * as an alias of its storage), so there are no cycles.
 */
#ifndef YOKE_AUTOGRAD_TAPE_H
#define YOKE_AUTOGRAD_TAPE_H

#include <pthread.h>

#include <yoke/autograd.h>

#include "tensor/tensor.h"

typedef struct yk__node yk__node;

/* A number of an operation, or a list of them, under a name, for those who write operations down: "stride" (2, 2). */
typedef struct yk__attribute {
    const char *name; /* static */
    int count;        /* of whole[]; 0: it is `real` */
    int64_t whole[2 * YK_MAX_DIMS];
    double real;
} yk__attribute;
enum { YK__MOST_ATTRIBUTES = 8 };
typedef struct yk__attributes {
    int count;
    yk__attribute list[YK__MOST_ATTRIBUTES];
} yk__attributes;
void yk__attribute_real(yk__attributes *to, const char *name, double value);
void yk__attribute_whole(yk__attributes *to, const char *name, int64_t value);
/* At most 2 YK_MAX_DIMS of them; none adds nothing. */
void yk__attribute_list(yk__attributes *to, const char *name, int count, const int64_t *values);

/*
 * An operation as the engine knows it, with one of the two backwards, or with `recorded` alone, which then serves a
 * first backward as well.
 *
 * backward, of an operation with one result, gets the gradient of that (never NULL). backward_list, of one with
 * several, gets one per result in the order of yk__record_list, at least one of them not NULL; NULL is zero, and no
 * zeros are made for it. Both write to grads[i], for each input with yk__needs_grad(node, i), one reference to a
 * gradient of that input's shape and dtype (or leave NULL for zero); a gradient that they got may be retained and
 * handed on. They run without recording and with no scope of their own: they use raw functions and release what they
 * make. On failure they return a status; the engine releases whatever is in grads.
 */
typedef struct yk__op {
    const char *name;
    yk_status (*backward)(yk__node *node, yk_tensor *gout, yk_tensor **grads);
    void (*clear)(void *context); /* releases what the context holds besides plain bytes; may be NULL */
    yk_status (*backward_list)(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads);
    /* True if backward, of an operation with one result, takes the gradient of that in two parts: `gout` and, where it
     * is not NULL, yk__addend(node), with the shape, dtype and strides of gout, dense. The gradient is their sum,
     * rounded to their dtype. NULL: never, the engine adds. */
    bool (*takes_addend)(const yk_tensor *gout);
    /* The backward of a backward with create_graph, with gouts[] as backward_list gets it: made of operations that are
     * recorded, of gouts[] and yk__saved_in_graph, in the engine's scope, which owns what it puts into grads[]. Errors
     * are left in the record. NULL: gradients of this operation's gradient are an error that names it. */
    void (*recorded)(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads);
    bool keeps_nothing; /* a node may be walked by any number of backwards: casts of parameters are shared by graphs */
    /* Adds the numbers that, with inputs and results, tell what was computed. NULL: there are none. */
    void (*describe)(const void *context, yk__attributes *to);
} yk__op;

/* A listener is told of each operation that its thread makes, while it is in yk__listening: of those that would be
 * recorded if an input wanted a gradient, and of comparisons. One in place has its first input as its result, too. */
typedef struct yk__listener {
    void (*heard)(struct yk__listener *self, const yk__op *op, const void *context, int n_inputs,
                  yk_tensor *const *inputs, int n_outputs, yk_tensor *const *outputs);
} yk__listener;
extern _Thread_local yk__listener *yk__listening;
static inline void yk__tell(const yk__op *op, const void *context, int n_inputs, yk_tensor *const *inputs,
                            int n_outputs, yk_tensor *const *outputs)
{
    if (__builtin_expect(yk__listening != NULL, 0))
        yk__listening->heard(yk__listening, op, context, n_inputs, inputs, n_outputs, outputs);
}

/*
 * Records that `op` made `out` from `inputs` (NULL entries are allowed), when recording is on and an input requires a
 * gradient; hands out to the current scope and returns it. `context` (context_size bytes) is copied into the node, and
 * what it holds belongs to the tape from here on, in every outcome: op->clear is called once, with the node, or at once
 * where nothing is recorded. saved[] are kept for backward, checked by version; an entry that is `out` itself is saved
 * as an alias; NULL entries are allowed. NULL `out` is passed through. On failure out is released. Inputs whose dtype
 * is not floating never need a gradient.
 */
yk_tensor *yk__record(yk_tensor *out, const yk__op *op, int n_inputs, yk_tensor *const *inputs, int n_saved,
                      yk_tensor *const *saved, const void *context, size_t context_size);
/*
 * The same for an operation with several results, at least one, on one device; none is NULL. Those that are not of a
 * floating dtype get no gradient. On failure all are released, and outs[] is cleared.
 */
yk_status yk__record_list(int n_outputs, yk_tensor **outs, const yk__op *op, int n_inputs, yk_tensor *const *inputs,
                          int n_saved, yk_tensor *const *saved, const void *context, size_t context_size);
/*
 * The kinds of views for gradients. A view is a tensor that an operation made on part of x's memory: what is written to
 * one is read from the other (history.c). A view that is not plain cannot be changed in place while operations are
 * recorded, nor be used in a graph after its base was changed in place.
 */
typedef enum yk__view_kind {
    YK__VIEW_PLAIN,
    YK__VIEW_UNRECORDED, /* made between yk_no_grad_begin and end */
    YK__VIEW_SEVERAL,    /* one of several that one node made */
    YK__VIEW_CUSTOM      /* came out of a custom function */
} yk__view_kind;
/* Says that `out` shows memory of x; nothing where it has memory of its own. */
void yk__view_link(yk_tensor *out, yk_tensor *x, yk__view_kind kind);
/* yk__record, and yk__record_list, of an operation whose results show x. */
yk_tensor *yk__record_view(yk_tensor *out, const yk__op *op, yk_tensor *x, const void *context, size_t context_size);
yk_status yk__record_views(int n_outputs, yk_tensor **outs, const yk__op *op, yk_tensor *x, const void *context,
                           size_t context_size);
/* True if yk__record would record: lets an op skip work that only backward needs. */
static inline bool yk__will_record(int n_inputs, yk_tensor *const *inputs)
{
    bool wanted = false;
    for (int i = 0; i < n_inputs && !wanted; i++)
        wanted = yk__wants_grad(inputs[i]);
    return wanted && yk__recording();
}
/* True if yk__record would record, or tell somebody. */
static inline bool yk__will_tell(int n_inputs, yk_tensor *const *inputs)
{
    return __builtin_expect(yk__listening != NULL, 0) || yk__will_record(n_inputs, inputs);
}

/*
 * Nodes have numbers in the order of recording, which is that of the terms of a sum. Threads that record parts of one
 * graph at once take theirs from ranges that were reserved for them, so that the order does not depend on which thread
 * was first, and no thread waits for another's counter. `reserve` gives the first of `count` numbers, all below those
 * that are given later; `enter` has this thread take from a range, then, where that is empty, from all, and returns the
 * range that it took from before.
 */
typedef struct yk__sequences {
    uint64_t next, end;
} yk__sequences;
uint64_t yk__sequences_reserve(uint64_t count);
yk__sequences yk__sequences_enter(yk__sequences range);

/* Before the work of an op: false (with the reason recorded) when an input is NULL, no scope is open, or the inputs
 * are on two devices. `optional` bits mark inputs that may be NULL; NULL for another reason than an earlier error is
 * an error here. */
bool yk__op_begin(const char *name, int n_inputs, yk_tensor *const *inputs, uint32_t optional);

/* ---- inside backward ---- */
bool yk__needs_grad(const yk__node *node, int input);
/* The i-th saved tensor, borrowed (NULL if NULL was saved); NULL with an error if it was written to since. `*bad` is
 * set on error and left alone otherwise, so that several can be fetched before one check. */
yk_tensor *yk__saved(yk__node *node, int i, yk_status *bad);
/* In a recorded backward: the i-th saved tensor with its history, so that gradients flow on through it; borrowed. NULL
 * with an error as yk__saved. */
yk_tensor *yk__saved_in_graph(yk__node *node, int i);
/* The same for one that was computed from the node's inputs beside the result: in the graph it has been made by `op`,
 * from those inputs. The context, plain bytes, is copied. */
yk_tensor *yk__saved_made_by(yk__node *node, int i, const yk__op *op, const void *context, size_t context_size);
void *yk__context(yk__node *node);
/* The tensor to add to the gradient that backward got (yk__op.takes_addend), borrowed; NULL for zero. */
yk_tensor *yk__addend(const yk__node *node);
/* `part`, which is one of the two, where nobody else has it or is to see it: backward may write over it, and hand it on
 * as a gradient of an input. One reference; else NULL, without an error. Asked for before anything retains it. */
yk_tensor *yk__own_part(const yk__node *node, yk_tensor *part);

/*
 * In-place operations on x (yk_add_ and its kin): begin checks that x may be written now (history.c says when not).
 * After the kernel, end bumps the version and, if recording, makes `op` the new maker of x, or of the part of x's base
 * that x shows. inputs[0] must be x. What backward needs of an input is checked against the version before the write, a
 * saved entry that is x itself against the one after it. The context belongs to the tape, as in yk__record.
 */
/* True if several elements of x share memory, as yk_expand makes them. */
bool yk__is_expanded(const yk_tensor *x);
yk_status yk__in_place_begin(const char *name, yk_tensor *x, int n_inputs, yk_tensor *const *inputs);
yk_status yk__in_place_end(yk_tensor *x, const yk__op *op, int n_inputs, yk_tensor *const *inputs, int n_saved,
                           yk_tensor *const *saved, const void *context, size_t context_size);

/*
 * x, a leaf, takes over storage, dtype and strides of `from` (same shape), which gets x's: how a module's parameter
 * moves while everybody keeps their pointer to it. The version count goes on, so a graph recorded before notices.
 */
void yk__exchange_storage(yk_tensor *x, yk_tensor *from);

/* Seconds that backward passes have computed on a device since the process began, without those that they waited. */
double yk__backward_seconds(yk_device device);

/* Adds `grad` to leaf's gradient: takes over the reference. */
yk_status yk__accumulate_grad(yk_tensor *leaf, yk_tensor *grad);

/* ---- gradients by rows (row_gradient.c; docs/sparse.md) ---- */
/* The leaf that an input is, where its gradient may be added to it by rows: it is not asked for elsewhere, no hook sees
 * it, and nobody collects it; else NULL. Borrowed. */
yk_tensor *yk__rows_leaf(const yk__node *node, int input);
/* Adds terms to the leaf's gradient by rows: rows (M, D) of its dtype, index (M) i64 or i32, all in range; retained. */
yk_status yk__rows_add(yk_tensor *leaf, yk_tensor *index, yk_tensor *rows, int64_t padding);
/* A leaf has got all terms of a backward: rows beside a gradient of all elements become part of that. */
yk_status yk__rows_settle(yk_tensor *leaf);
/* True if the gradient of x is by rows. */
static inline bool yk__has_rows(const yk_tensor *x)
{
    return x && x->leaf_gradient && x->leaf_gradient->rows;
}
/* The rows' own numbers, one part whose indices ascend; borrowed, NULL and an error without memory. */
yk__row_part *yk__rows_sorted(yk_tensor *x);
/* The elements of the gradient of x, which may be changed in place: of all of it, or of its rows, (n, D); borrowed.
 * NULL where it has none, and with an error on record. */
yk_tensor *yk__grad_elements(yk_tensor *x);
/* The rows take the dtype and device of x, which has others since. */
yk_status yk__rows_follow(yk_tensor *x);

/* ---- one who collects the gradients of many leaves (DDP) ---- */
/*
 * A backward that reaches leaves of a collector calls begin before anything else runs, with the positions of the leaves
 * that it reaches; ready for each of those, after the leaf's own hooks, on the thread of its device (yk_grad is NULL
 * where no gradient ever came); and end on the calling thread when all is done, with how it went (the record is set on
 * failure). What begin or ready returns ends the backward, and a begin that fails has no end; where all went well,
 * end's status is backward's.
 */
typedef struct yk__collector {
    yk_status (*begin)(struct yk__collector *self, int count, const int *indices);
    yk_status (*ready)(struct yk__collector *self, int index);
    yk_status (*end)(struct yk__collector *self, yk_status status);
    /* A backward that it waited for (yk__collector_await) failed before it began; the record says why, and stays. */
    void (*failed)(struct yk__collector *self);
    struct yk__collector *next; /* engine.c's: those that wait for a backward, and of which thread */
    pthread_t thread;
} yk__collector;

/* This thread is to call backward for the collector: if the next one that it calls fails before it has begun, without a
 * loss, say, or on a graph that was freed, the collector is called. Until begin or forget. */
void yk__collector_await(yk__collector *collector);
void yk__collector_forget(yk__collector *collector);

/*
 * Makes `collector` (borrowed, the only one) that of `leaf`, under a number of its own. Gradients are accumulated in
 * `grad_buffer` (retained; shape, strides, dtype and device of the leaf) instead of new memory, straight from the
 * operation that computes them where it asks for yk__grad_buffer_for; it is forgotten when the leaf changes dtype or
 * device. A NULL collector ends it.
 */
yk_status yk__collect_gradients(yk_tensor *leaf, yk__collector *collector, int index, yk_tensor *grad_buffer);
yk__collector *yk__collector_of(const yk_tensor *leaf);
/* Borrowed; NULL without one, or where it was forgotten. */
yk_tensor *yk__grad_buffer_of(const yk_tensor *leaf);
/* Memory that backward may write the gradient of an input to, which is then the whole of it; NULL where it must make a
 * tensor of its own. One reference. */
yk_tensor *yk__grad_buffer_for(const yk__node *node, int input);
/* The gradient that an input, a leaf, has already, where that of this backward may be added to it at once: it comes
 * from this operation alone, and no hook is to see it. The sum is then what backward returns as the input's gradient.
 * NULL where it must make a tensor of its own. One reference. */
yk_tensor *yk__grad_to_add_to(const yk__node *node, int input);

#endif
