/*
 * elementwise.h - the files that the elementwise family is made of. Layer: device/cpu.
 */
#ifndef YOKE_DEVICE_CPU_ELEMENTWISE_H
#define YOKE_DEVICE_CPU_ELEMENTWISE_H

#include "device/cpu/iterate.h"

void YK__ISA_NAME(yk__cpu_fill_copy)(yk__backend *table);   /* copy.c */
void YK__ISA_NAME(yk__cpu_fill_unary)(yk__backend *table);  /* unary.c */
void YK__ISA_NAME(yk__cpu_fill_binary)(yk__backend *table); /* binary.c */

/* Casts of contiguous runs, between two dtypes that differ. (copy.c) */
yk__apply_fn YK__ISA_NAME(yk__cpu_cast)(yk_dtype from, yk_dtype to);
/* out = fn(views[1], ...) where the inputs are f16 or bf16, all alike, and out is so too, or bool: fn is that of f32.
 */
void YK__ISA_NAME(yk__cpu_apply_halves)(int device, yk__apply_fn fn, int operands, const yk__view *const *views,
                                        const double *p);

#endif
