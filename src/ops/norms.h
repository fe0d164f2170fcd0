/* norms.h - the gradient of a norm, which distances share. Layer: ops. */
#ifndef YOKE_OPS_NORMS_H
#define YOKE_OPS_NORMS_H

#include "ops/op.h"

/*
 * With n the norm, g its gradient and s the sign of x: p 1: s g. p 2: x g / n. else s |x|^(p-1) g / n^(p-1); 0 where n
 * is 0, and where a power of x is infinite at 0. Infinite p: the elements that reach the norm share g. p is not 0; x is
 * wide, and n and g keep the dimensions in `mask`.
 */
yk_tensor *yk__norm_gradient(yk_tensor *x, yk_tensor *n, yk_tensor *g, double p, uint32_t mask);
/* The same of recorded operations; n and g keep the dimensions, count of them, that were reduced. */
yk_tensor *yk__recorded_norm_gradient(yk_tensor *x, yk_tensor *n, yk_tensor *g, double p, const int *dims, int count);

#endif
