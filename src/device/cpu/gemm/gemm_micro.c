/*
 * gemm_micro.c - the register tiles of gemm_micro.h for f32 and f64. Layer: device/cpu.
 *
 * Every tile keeps its sums in vector registers; the compiler unrolls the loops over rows and vectors whole, and a
 * broadcast from memory feeds each row's multiply-adds. 14 rows of 2 vectors fill AVX-512's 32 registers, 6 of 2 the
 * 16 of AVX2 and SSE.
 */
#include "device/cpu/gemm/gemm_micro.h"

#define T            float
#define V            yk__vf32
#define VU           yk__vf32u
#define TYPED(name)  TYPED_(name)
#define TYPED_(name) name##_f32
#include "device/cpu/gemm/gemm_micro_body.h"
#undef T
#undef V
#undef VU
#undef TYPED_

#define T            double
#define V            yk__vf64
#define VU           yk__vf64u
#define TYPED_(name) name##_f64
#include "device/cpu/gemm/gemm_micro_body.h"
