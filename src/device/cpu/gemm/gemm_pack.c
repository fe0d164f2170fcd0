/*
 * gemm_pack.c - packing of matrix panels for the register tiles. Layer: device/cpu.
 */
#include <string.h>

#include "device/cpu/elementwise/transpose.h"
#include "device/cpu/gemm/gemm_micro.h"

#define TYPED(name) TYPED_(name)

#define T            float
#define SIDE         8
#define TYPED_(name) name##_f32
#include "device/cpu/gemm/gemm_pack_body.h"
#undef T
#undef SIDE
#undef TYPED_

#define T            double
#define SIDE         4
#define TYPED_(name) name##_f64
#include "device/cpu/gemm/gemm_pack_body.h"
