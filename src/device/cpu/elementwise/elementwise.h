/*
 * elementwise.h - the files that the elementwise family is made of. Layer: device/cpu.
 */
#ifndef YOKE_DEVICE_CPU_ELEMENTWISE_ELEMENTWISE_H
#define YOKE_DEVICE_CPU_ELEMENTWISE_ELEMENTWISE_H

#include "device/cpu/iterate.h"

void YK__ISA_NAME(yk__cpu_fill_copy)(yk__backend *table);   /* copy.c */
void YK__ISA_NAME(yk__cpu_fill_unary)(yk__backend *table);  /* unary.c */
void YK__ISA_NAME(yk__cpu_fill_binary)(yk__backend *table); /* binary.c */

/* Casts of contiguous runs, between two dtypes that differ. (copy.c) */
yk__apply_fn YK__ISA_NAME(yk__cpu_cast)(yk_dtype from, yk_dtype to);
/* Applies the kernels of `f32` to views where the inputs are f16 or bf16, all alike, and the output is so too, or
 * bool. */
void YK__ISA_NAME(yk__cpu_apply_halves)(int device, const yk__apply *f32, const yk__view *const *views);

/* Entries of a table of kernels by operation and dtype, made from a list of operations (device/scalar_ops.h). */
#define YK__ENTRY_F32(op, expression)  [YK__##op][YK_F32] = op##_f32,
#define YK__ENTRY_F64(op, expression)  [YK__##op][YK_F64] = op##_f64,
#define YK__ENTRY_I64(op, expression)  [YK__##op][YK_I64] = op##_i64,
#define YK__ENTRY_I32(op, expression)  [YK__##op][YK_I32] = op##_i32,
#define YK__ENTRY_U8(op, expression)   [YK__##op][YK_U8] = op##_u8,
#define YK__ENTRY_F16(op, expression)  [YK__##op][YK_F16] = op##_f16,
#define YK__ENTRY_BF16(op, expression) [YK__##op][YK_BF16] = op##_bf16,

#endif
