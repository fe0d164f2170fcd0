/*
 * elementwise.c - puts the elementwise kernels into the table; f16 and bf16 through those of f32. Layer: device/cpu.
 *
 * Halves are widened to a buffer on the stack and the results rounded from another: no tensor of f32 is made, and each
 * element is rounded once.
 */
#include "device/cpu/elementwise/elementwise.h"

typedef struct half_apply {
    const yk__apply *f32;
    yk__apply_fn widen, round; /* round: NULL where the result is bool */
} half_apply;

/* A kernel whose parameters are a half_apply. */
static void apply_half(int64_t n, void *out, const void *a, const void *b, const void *c, const double *p)
{
    (void)c;
    const half_apply *h = (const void *)p;
    const yk__apply *f32 = h->f32;
    const uint16_t *from[2] = {a, b};
    float wide[2][YK__APPLY_CHUNK] __attribute__((aligned(64)));
    float result[YK__APPLY_CHUNK] __attribute__((aligned(64)));
    for (int64_t i = 0; i < n; i += YK__APPLY_CHUNK) {
        int64_t m = n - i < YK__APPLY_CHUNK ? n - i : YK__APPLY_CHUNK;
        for (int k = 1; k < f32->operands; k++)
            h->widen(m, wide[k - 1], from[k - 1] + i, NULL, NULL, NULL);
        if (h->round) {
            f32->fn(m, result, wide[0], wide[1], NULL, f32->p);
            h->round(m, (uint16_t *)out + i, result, NULL, NULL, NULL);
        } else {
            f32->fn(m, (uint8_t *)out + i, wide[0], wide[1], NULL, f32->p);
        }
    }
}

void YK__ISA_NAME(yk__cpu_apply_halves)(int device, const yk__apply *f32, const yk__view *const *views)
{
    yk_dtype dtype = views[1]->dtype;
    half_apply h = {.f32 = f32};
    h.widen = YK__ISA_NAME(yk__cpu_cast)(dtype, YK_F32);
    h.round = views[0]->dtype == dtype ? YK__ISA_NAME(yk__cpu_cast)(YK_F32, dtype) : NULL;
    yk__apply apply = {.fn = apply_half, .p = (const void *)&h, .operands = f32->operands};
    yk__apply_all(device, &apply, views);
}

void YK__ISA_NAME(yk__cpu_fill_elementwise)(yk__backend *table)
{
    YK__ISA_NAME(yk__cpu_fill_copy)(table);
    YK__ISA_NAME(yk__cpu_fill_unary)(table);
    YK__ISA_NAME(yk__cpu_fill_binary)(table);
}
