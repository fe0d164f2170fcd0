/*
 * attention.h - what the forms of scaled dot product attention share: by operations, and the same by blocks of queries.
 * Layer: ops.
 */
#ifndef YOKE_OPS_ATTENTION_H
#define YOKE_OPS_ATTENTION_H

#include "ops/op.h"

enum { YK__ATTENTION_Q, YK__ATTENTION_K, YK__ATTENTION_V, YK__ATTENTION_MASK, YK__ATTENTION_INPUTS };

/* Attention by operations that are recorded: the whole matrix of weights is in memory. `row` is the number of the first
 * query among all, for the causal mask; `dropout` tells which weights are dropped, NULL: p->dropout of them, drawn
 * here. A query that may look at nothing gives 0. */
yk_tensor *yk__attention_composed(yk_tensor *const inputs[YK__ATTENTION_INPUTS], const yk__attention *p, int64_t row,
                                  const yk__dropout *dropout);

/* True where the matrix of weights has more elements than a block, so that the two below are to be taken. */
bool yk__attention_is_large(yk_tensor *const inputs[YK__ATTENTION_INPUTS]);
/* yk__attention_composed of all queries, by blocks: what is in memory at a time, in backward and in gradients of
 * gradients, too, is a block of the matrix. p->dropout is drawn here. */
yk_tensor *yk__attention_blocks(yk_tensor *const inputs[YK__ATTENTION_INPUTS], const yk__attention *p);
/* The gradients of the inputs that `wanted` has a bit for, recorded, into grads[]; the others are left as they are. p
 * has its stream, of which weight i (C order of (..., L, S)) takes word i. Errors are left in the record. */
void yk__attention_gradients(yk_tensor *const inputs[YK__ATTENTION_INPUTS], yk_tensor *gout, const yk__attention *p,
                             uint32_t wanted, yk_tensor **grads);

/* The most elements of a block of the matrix: 0 for what suits the device; tests have smaller ones. */
extern int64_t yk__attention_block;

#endif
