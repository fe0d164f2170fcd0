/*
 * elementwise.c - puts the elementwise kernels into the table; f16 and bf16 by way of those of f32. Layer: device/cpu.
 *
 * Halves are widened to a buffer on the stack and the results rounded from another: no tensor of f32 is made, and each
 * element is rounded once.
 */
#include "device/cpu/elementwise.h"

typedef struct half_apply {
    yk__apply_fn fn, widen, round; /* round: NULL where the result is bool */
    const double *p;
    int operands;
} half_apply;

static void half_run(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)
{
    (void)first;
    enum { HALF = sizeof(uint16_t), INPUTS = 2 };
    const half_apply *h = context;
    const int64_t size = h->round ? HALF : 1;
    float wide[INPUTS][YK__APPLY_CHUNK] __attribute__((aligned(64)));
    float result[YK__APPLY_CHUNK] __attribute__((aligned(64)));
    uint16_t packed[YK__APPLY_CHUNK] __attribute__((aligned(64)));
    for (int64_t i = 0; i < n; i += YK__APPLY_CHUNK) {
        int64_t m = n - i < YK__APPLY_CHUNK ? n - i : YK__APPLY_CHUNK;
        for (int k = 1; k < h->operands; k++) {
            const void *from = data[k] + i * stride[k];
            if (stride[k] != HALF) {
                yk__copy_strided(packed, HALF, from, stride[k], HALF, m);
                from = packed;
            }
            h->widen(m, wide[k - 1], from, NULL, NULL, NULL);
        }
        h->fn(m, result, wide[0], wide[1], NULL, h->p);
        char *to = data[0] + i * stride[0];
        const void *made = result;
        if (h->round) {
            void *rounded = stride[0] == HALF ? (void *)to : packed;
            h->round(m, rounded, result, NULL, NULL, NULL);
            made = rounded;
        }
        if (made != (const void *)to)
            yk__copy_strided(to, stride[0], made, size, (size_t)size, m);
    }
}

void YK__ISA_NAME(yk__cpu_apply_halves)(int device, yk__apply_fn fn, int operands, const yk__view *const *views,
                                        const double *p)
{
    yk__loop loop;
    yk_dtype half = views[1]->dtype;
    half_apply h = {.fn = fn, .p = p, .operands = operands};
    h.widen = YK__ISA_NAME(yk__cpu_cast)(half, YK_F32);
    h.round = views[0]->dtype == half ? YK__ISA_NAME(yk__cpu_cast)(YK_F32, half) : NULL;
    yk__loop_init(&loop, operands, views, false);
    yk__loop_run(device, &loop, YK__GRAIN, half_run, &h);
}

void YK__ISA_NAME(yk__cpu_fill_elementwise)(yk__backend *table)
{
    YK__ISA_NAME(yk__cpu_fill_copy)(table);
    YK__ISA_NAME(yk__cpu_fill_unary)(table);
    YK__ISA_NAME(yk__cpu_fill_binary)(table);
}
