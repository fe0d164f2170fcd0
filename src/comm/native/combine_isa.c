/*
 * combine_isa.c - two operands to one result or to two copies of it. Layer: comm/native, once per instruction set.
 *
 * Element by element and without a multiply-add, so every instruction set gives the same bits. NaN wins over numbers in
 * min and max, as in PyTorch. Sums and products of integers wrap around: they are computed as unsigned.
 *
 * Note [Results to two places]
 * A rank that has its share of two ranks' buffers writes the results to both. Written at once, from registers, they
 * take half the time of a block that is filled and copied out (1 MiB on two cores: 10 us and 20), and no cache but for
 * the buffers themselves.
 */
#include "comm/native/combine_isa.h"

#if defined(__clang__)
#define SAME_ELEMENTS_ONLY _Pragma("clang loop vectorize(assume_safety)")
#else
#define SAME_ELEMENTS_ONLY _Pragma("GCC ivdep")
#endif

#define SUM(a, b)      ((a) + (b))
#define HALF_SUM(a, b) (((a) + (b)) / 2)
#define PRODUCT(a, b)  ((a) * (b))
#define FMIN(a, b)     ((a) < (b) || (a) != (a) ? (a) : (b))
#define FMAX(a, b)     ((a) > (b) || (a) != (a) ? (a) : (b))
#define IMIN(a, b)     ((a) < (b) ? (a) : (b))
#define IMAX(a, b)     ((a) > (b) ? (a) : (b))
#define ANY(a, b)      (((a) | (b)) != 0)
#define ALL(a, b)      ((a) != 0 && (b) != 0)
/* Results overlap operands only where they are the same: no element depends on another. */
#define KERNEL(name, type, expression)                                                                                 \
    static void name(void *out, const void *a, const void *b, int64_t n)                                               \
    {                                                                                                                  \
        type *o = out;                                                                                                 \
        const type *x = a, *y = b;                                                                                     \
        SAME_ELEMENTS_ONLY                                                                                             \
        for (int64_t i = 0; i < n; i++)                                                                                \
            o[i] = (type)expression(x[i], y[i]);                                                                       \
    }                                                                                                                  \
    BOTH(name, type, expression)
#define BOTH(name, type, expression)                                                                                   \
    static void both_##name(void *out, void *other, const void *a, const void *b, int64_t n)                           \
    {                                                                                                                  \
        type *o = out, *p = other;                                                                                     \
        const type *x = a, *y = b;                                                                                     \
        SAME_ELEMENTS_ONLY                                                                                             \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            type value = (type)expression(x[i], y[i]);                                                                 \
            o[i] = value;                                                                                              \
            p[i] = value;                                                                                              \
        }                                                                                                              \
    }
#define KERNELS(tag, type, wide, min, max)                                                                             \
    KERNEL(sum_##tag, wide, SUM)                                                                                       \
    KERNEL(product_##tag, wide, PRODUCT)                                                                               \
    KERNEL(min_##tag, type, min)                                                                                       \
    KERNEL(max_##tag, type, max)
KERNELS(f32, float, float, FMIN, FMAX)
KERNELS(f64, double, double, FMIN, FMAX)
KERNELS(i64, int64_t, uint64_t, IMIN, IMAX)
KERNELS(i32, int32_t, uint32_t, IMIN, IMAX)
KERNELS(u8, uint8_t, uint8_t, IMIN, IMAX)
KERNEL(any_bool, uint8_t, ANY)
KERNEL(all_bool, uint8_t, ALL)
BOTH(mean_f32, float, HALF_SUM)
BOTH(mean_f64, double, HALF_SUM)

#define ROW(prefix, tag)                                                                                               \
    {                                                                                                                  \
        [YK_OP_SUM] = prefix##sum_##tag, [YK_OP_MIN] = prefix##min_##tag, [YK_OP_MAX] = prefix##max_##tag,             \
        [YK_OP_PRODUCT] = prefix##product_##tag                                                                        \
    }
#define MEAN_ROW(prefix, mean, tag)                                                                                    \
    {                                                                                                                  \
        [YK_OP_SUM] = prefix##sum_##tag, [YK_OP_MEAN] = mean##_##tag, [YK_OP_MIN] = prefix##min_##tag,                 \
        [YK_OP_MAX] = prefix##max_##tag, [YK_OP_PRODUCT] = prefix##product_##tag                                       \
    }
/* For bool, sum and max are `any`, product and min are `all`. */
#define BOOL_ROW(prefix)                                                                                               \
    {                                                                                                                  \
        [YK_OP_SUM] = prefix##any_bool, [YK_OP_MIN] = prefix##all_bool, [YK_OP_MAX] = prefix##any_bool,                \
        [YK_OP_PRODUCT] = prefix##all_bool                                                                             \
    }
#define PASTE_(isa) yk__combine_##isa
#define PASTE(isa)  PASTE_(isa)
const yk__combine_loops PASTE(YK__ISA) = {
    .combine = {[YK_F32] = MEAN_ROW(, sum, f32),
                [YK_F64] = MEAN_ROW(, sum, f64),
                [YK_F16] = MEAN_ROW(, sum, f32),
                [YK_BF16] = MEAN_ROW(, sum, f32),
                [YK_I64] = ROW(, i64),
                [YK_I32] = ROW(, i32),
                [YK_U8] = ROW(, u8),
                [YK_BOOL] = BOOL_ROW()},
    .both = {[YK_F32] = MEAN_ROW(both_, both_mean, f32),
             [YK_F64] = MEAN_ROW(both_, both_mean, f64),
             [YK_I64] = ROW(both_, i64),
             [YK_I32] = ROW(both_, i32),
             [YK_U8] = ROW(both_, u8),
             [YK_BOOL] = BOOL_ROW(both_)},
};
