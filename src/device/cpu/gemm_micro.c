/*
 * gemm_micro.c - the register tiles of gemm_micro.h for f32 and f64. Layer: device/cpu.
 *
 * Every tile keeps its sums in vector registers; the compiler unrolls the loops over rows and vectors whole, and a
 * broadcast from memory feeds each row's multiply-adds. 14 rows of 2 vectors fill AVX-512's 32 registers, 6 of 2 the
 * 16 of AVX2 and SSE.
 */
#include "device/cpu/gemm_micro.h"

#if YK__GEMM_ROWS == 14
#define EACH_ROWS(X, vectors)                                                                                          \
    X(1, vectors)                                                                                                      \
    X(2, vectors)                                                                                                      \
    X(3, vectors)                                                                                                      \
    X(4, vectors)                                                                                                      \
    X(5, vectors)                                                                                                      \
    X(6, vectors)                                                                                                      \
    X(7, vectors) X(8, vectors) X(9, vectors) X(10, vectors) X(11, vectors) X(12, vectors) X(13, vectors) X(14, vectors)
#else
#define EACH_ROWS(X, vectors) X(1, vectors) X(2, vectors) X(3, vectors) X(4, vectors) X(5, vectors) X(6, vectors)
#endif

#define T            float
#define V            yk__vf32
#define VU           yk__vf32u
#define TYPED(name)  TYPED_(name)
#define TYPED_(name) name##_f32
#include "device/cpu/gemm_micro_body.h"
#undef T
#undef V
#undef VU
#undef TYPED_

#define T            double
#define V            yk__vf64
#define VU           yk__vf64u
#define TYPED_(name) name##_f64
#include "device/cpu/gemm_micro_body.h"
