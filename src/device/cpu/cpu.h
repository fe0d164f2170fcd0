/*
 * cpu.h - declarations that the files of the CPU backend share. Layer: device/cpu.
 */
#ifndef YOKE_DEVICE_CPU_H
#define YOKE_DEVICE_CPU_H

#include "device/table.h"

/* yk__pool_run on the pool of a logical device; its number of threads; scratch from the device's allocator. */
void yk__cpu_parallel(int device, int64_t n, int64_t grain, yk__range_fn fn, void *arg);
int yk__cpu_threads(int device);

static inline bool yk__view_contiguous(const yk__view *v)
{
    int64_t expected = 1;
    for (int d = v->ndim - 1; d >= 0; d--) {
        if (v->shape[d] != 1 && v->stride[d] != expected)
            return false;
        expected *= v->shape[d];
    }
    return true;
}

static inline int64_t yk__ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline int64_t yk__view_numel(const yk__view *v)
{
    int64_t n = 1;
    for (int d = 0; d < v->ndim; d++)
        n *= v->shape[d];
    return n;
}

/*
 * Note [One source, several instruction sets]
 * Every file of this folder but cpu_*.c is compiled once per instruction set that is built (Makefile: CPU_ISAS): of
 * `base`, and on x86-64 `v3` (AVX2, FMA) and `v4` (AVX-512), the one that the machine has, or all. The compiler's own
 * vectorisation and the vector types below do the rest; a file that wants more can ask for __AVX512F__. Whatever such a
 * file exports is named with YK__ISA_NAME, so that the copies do not collide; everything else in it is static.
 * cpu_backend.c picks the widest set that is built and that this processor has, or the one that YOKE_CPU_ISA names.
 */
#ifndef YK__ISA
#define YK__ISA base
#endif
#define YK__ISA_PASTE_(name, isa) name##_##isa
#define YK__ISA_PASTE(name, isa)  YK__ISA_PASTE_(name, isa)
#define YK__ISA_NAME(name)        YK__ISA_PASTE(name, YK__ISA)

/* The widest vectors of the set, for f32 and f64, aligned and not. */
#if defined(__AVX512F__)
#define YK__VECTOR_BYTES 64
#elif defined(__AVX2__)
#define YK__VECTOR_BYTES 32
#else
#define YK__VECTOR_BYTES 16
#endif
typedef float yk__vf32 __attribute__((vector_size(YK__VECTOR_BYTES)));
typedef double yk__vf64 __attribute__((vector_size(YK__VECTOR_BYTES)));
typedef float yk__vf32u __attribute__((vector_size(YK__VECTOR_BYTES), aligned(4), may_alias));
typedef double yk__vf64u __attribute__((vector_size(YK__VECTOR_BYTES), aligned(8), may_alias));

/* Each family of kernels puts its functions into the table; families.c calls them in this order. */
#define YK__CPU_FAMILIES(X)                                                                                            \
    X(elementwise) /* fill copy copy_parts unary binary where */                                                       \
    X(random)      /* random random_integers dropout */                                                                \
    X(reduce)      /* reduce softmax softmax_backward */                                                               \
    X(gemm)        /* gemm */                                                                                          \
    X(conv)        /* conv2d* */                                                                                       \
    X(pool2d)      /* max, average and adaptive average pooling */                                                     \
    X(window_maxima)                                                                                                   \
    X(norm)      /* batch_norm, layer_norm and their backwards */                                                      \
    X(attention) /* attention and its backward */                                                                      \
    X(lstm)      /* lstm and its backward */                                                                           \
    X(lookup)    /* embedding, embedding_backward, embedding_bag */                                                    \
    X(index)     /* index index_put nonzero */                                                                         \
    X(order)     /* argsort scan */                                                                                    \
    X(loss)      /* cross_entropy, label_margins */                                                                    \
    X(optim)     /* sgd adam descend */                                                                                \
    X(resize)    /* resize */                                                                                          \
    X(grid)      /* grid_sample and its backward */                                                                    \
    X(pictures)  /* augment split_pixels resample */
#define YK__CPU_DECLARE(family) void YK__ISA_NAME(yk__cpu_fill_##family)(yk__backend * table);
YK__CPU_FAMILIES(YK__CPU_DECLARE)
void YK__ISA_NAME(yk__cpu_fill)(yk__backend *table);

#endif
