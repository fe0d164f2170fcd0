/*
 * gemm_product.h - one matrix product, as the files of gemm.c share it. Layer: device/cpu.
 */
#ifndef YOKE_DEVICE_CPU_GEMM_GEMM_PRODUCT_H
#define YOKE_DEVICE_CPU_GEMM_GEMM_PRODUCT_H

#include "device/cpu/gemm/gemm_micro.h"

/* C (m, n) = A (m, k) B (k, n). Strides are in elements. */
typedef struct yk__gemm_product {
    int64_t m, n, k;
    const void *a, *b, *bias; /* bias: n numbers next to each other, or NULL */
    void *c;
    int64_t a_row, a_k, b_k, b_col, c_row, c_col;
    enum yk__gemm_mode mode; /* of A */
    bool accumulate;
} yk__gemm_product;

/* True if this processor has AVX512-BF16, and this instruction set may use it. */
#define yk__gemm_bf16_there YK__ISA_NAME(yk__gemm_bf16_there)
bool yk__gemm_bf16_there(void);
/* The product of bf16 matrices, neither of m and n 0; only where it is there. */
#define yk__gemm_bf16 YK__ISA_NAME(yk__gemm_bf16)
yk_status yk__gemm_bf16(int device, yk__gemm_product *p);

#endif
