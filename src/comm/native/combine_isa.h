/*
 * combine_isa.h - the loops of combine.c, once for each instruction set that combine_isa.c is compiled for.
 * Layer: comm/native.
 */
#ifndef YOKE_COMM_NATIVE_COMBINE_ISA_H
#define YOKE_COMM_NATIVE_COMBINE_ISA_H

#include <stdint.h>

#include <yoke/comm.h>

/* out = a op b. out may be a or b. */
typedef void (*yk__combine_fn)(void *out, const void *a, const void *b, int64_t n);
/* out = other = a op b. Each of them may be a or b. */
typedef void (*yk__combine_both_fn)(void *out, void *other, const void *a, const void *b, int64_t n);

typedef struct yk__combine_loops {
    /* For f16 and bf16 those of f32. The mean is the sum. */
    yk__combine_fn combine[YK__DTYPES][YK_OP_PRODUCT + 1];
    /* NULL for f16 and bf16. The mean is that of two values. */
    yk__combine_both_fn both[YK__DTYPES][YK_OP_PRODUCT + 1];
} yk__combine_loops;

extern const yk__combine_loops yk__combine_base, yk__combine_v3, yk__combine_v4;

#endif
