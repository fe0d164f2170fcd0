/*
 * gemm_bf16.h - products of bf16 matrices by AVX512-BF16. Layer: device/cpu.
 */
#ifndef YOKE_DEVICE_CPU_GEMM_BF16_H
#define YOKE_DEVICE_CPU_GEMM_BF16_H

#include "device/cpu/cpu.h"

#define yk__gemm_bf16_there YK__ISA_NAME(yk__gemm_bf16_there)
#define yk__gemm_bf16       YK__ISA_NAME(yk__gemm_bf16)
/* Whether this processor has the instructions, and this instruction set may use them. */
bool yk__gemm_bf16_there(void);
/* The slot gemm for bf16; only where it is there. */
yk_status yk__gemm_bf16(int device, const yk__view *out, const yk__view *a, const yk__view *b, const yk__view *bias,
                        bool accumulate);

#endif
