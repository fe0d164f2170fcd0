/*
 * taps.h - planes whose elements are each a weighted sum of a few of other planes: interpolation and borders. Layer:
 * ops.
 */
#ifndef YOKE_OPS_TAPS_H
#define YOKE_OPS_TAPS_H

#include "ops/op.h"

/* True if x's device has a kernel for taps, and nobody listens who wants operations to be named: else callers compose.
 */
bool yk__taps_apply(const yk_tensor *x);
/* Makes the taps of `to` elements of which each is a sum of `count` of `from` elements, elements[k][i] times
 * weights[k][i], or 1 where count is 1; or, with `back`, those of the gradient. In one block of memory, which *block
 * gets, the caller's to free; false on failure. */
bool yk__taps_make(yk__taps *t, int64_t from, int64_t to, int count, int64_t *const *elements, double *const *weights,
                   bool back, void **block);
/* The planes that taps of rows and of columns, or NULL, make of planes x (P,H,W). Nothing is recorded; one reference.
 */
yk_tensor *yk__tapped_planes(yk_tensor *x, const yk__taps *rows, const yk__taps *columns);

#endif
