/*
 * slot_norm_cases.c - batch_norm, layer_norm and their backwards in every order of dimensions, with and without what is
 * fused: part of slot_cases.c.
 */
#include "tests/support/slot_pairs.h"

enum { MOST = 16 };
typedef struct pairs {
    pair of[MOST];
    int count;
} pairs;

static pair *next(pairs *p, slot_report *r, yk_dtype dtype, int ndim, const int64_t *shape, int layout, double low,
                  double high)
{
    pair *made = &p->of[p->count++];
    if (!r->failed && pair_make(made, r, dtype, ndim, shape, layout))
        pair_fill_range(made, r, (uint32_t)p->count * 31, low, high);
    return made;
}

static void clear(pairs *p)
{
    for (int i = 0; i < p->count; i++)
        pair_free(&p->of[i]);
    p->count = 0;
}

/* The same memory with its channels last: shape (N, C, H, W), strides of (N, H, W, C). */
static void turn(pair *p)
{
    yk__view *views[] = {&p->cpu, &p->gpu};
    for (int k = 0; k < 2; k++) {
        yk__view *v = views[k];
        v->stride[1] = 1, v->stride[3] = v->shape[1];
        v->stride[2] = v->stride[3] * v->shape[3], v->stride[0] = v->stride[2] * v->shape[2];
    }
}

/* The part (N, C, H, W) of it. */
static void crop(pair *p, const int64_t *shape)
{
    for (int d = 0; d < 4; d++)
        p->cpu.shape[d] = p->gpu.shape[d] = shape[d];
}

static const yk_dtype floats[] = {YK_F32, YK_F64};

static double room_of(yk_dtype dtype)
{
    return dtype == YK_F64 ? 1e-12 : 4e-6;
}

/* op 0: channels first, 1: channels last, 2: (N, C), 3: with gaps, 4: x first and its gradient last, 5: parts of maps
 */
static void batch_norm_case(const slot_case *self, slot_report *r)
{
    static const int64_t shapes[][4] = {{3, 4, 6, 6}, {2, 7, 3, 5},   {1, 64, 5, 4},
                                        {9, 1, 4, 4}, {1, 130, 2, 3}, {3, 3, 24, 20}};
    enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };
    for (int k = 0; k < SHAPES * 4 && slot_ready(r) && !r->failed; k++) {
        if (k % SHAPES == 4 && (self->op == 0 || self->op > 2))
            continue; /* many channels, for groups of those that lie side by side */
        const int64_t *n = shapes[k % SHAPES], two[] = {n[0] * n[2] * n[3], n[1]};
        const int64_t whole[] = {n[0], n[1], n[2] + 1, n[3] + 4};
        const int64_t *shape = self->op == 2 ? two : self->op == 5 ? whole : n;
        int form = k / SHAPES, ndim = self->op == 2 ? 2 : 4, layout = self->op == 3 ? GAPS : C_ORDER;
        yk_dtype dtype = floats[(k + form) % 2];
        yk__batch_norm p = {.momentum = 0.1, .eps = 1e-5, .training = form != 2, .relu = form & 1};
        pairs all = {.count = 0};
        pair *x = next(&all, r, dtype, ndim, shape, layout, 1, 7),
             *out = next(&all, r, dtype, ndim, shape, layout, 0, 1),
             *residual = next(&all, r, dtype, ndim, shape, layout, -3, 3),
             *gout = next(&all, r, dtype, ndim, shape, layout, -2, 2),
             *gx = next(&all, r, dtype, ndim, shape, layout, 0, 1),
             *gresidual = next(&all, r, dtype, ndim, shape, layout, 0, 1);
        pair *v[8]; /* weight, bias, running mean and variance, mean, invstd, gradients of weight and bias */
        for (int i = 0; i < 8; i++)
            v[i] = next(&all, r, dtype, 1, &shape[1], C_ORDER, 0.5, 2);
        pair *addend = next(&all, r, dtype, ndim, shape, layout, -1, 1);
        for (int i = 0; i < all.count; i++)
            if ((i < 6 || &all.of[i] == addend) && (self->op == 1 || (self->op == 4 && i >= 3)))
                turn(&all.of[i]);
            else if (self->op == 5 && (i < 6 || &all.of[i] == addend))
                crop(&all.of[i], n);
        bool fused = form & 1, weighted = form != 3;
        if (!r->failed &&
            slot_done(r, "cpu",
                      slot_cpu->batch_norm(0, &p, &out->cpu, &v[4]->cpu, &v[5]->cpu, &x->cpu,
                                           fused ? &residual->cpu : NULL, weighted ? &v[0]->cpu : NULL,
                                           weighted ? &v[1]->cpu : NULL, &v[2]->cpu, &v[3]->cpu)) &&
            slot_done(r, "cuda",
                      slot_gpu->batch_norm(0, &p, &out->gpu, &v[4]->gpu, &v[5]->gpu, &x->gpu,
                                           fused ? &residual->gpu : NULL, weighted ? &v[0]->gpu : NULL,
                                           weighted ? &v[1]->gpu : NULL, &v[2]->gpu, &v[3]->gpu))) {
            pair_compare_sums(r, "out", out, room_of(dtype));
            for (int i = 2; i < 6; i++)
                pair_compare_sums(r, "statistics", v[i], room_of(dtype));
        }
        /* Backward from the same numbers: what is next to 0 may have come out on either side of it. */
        size_t bytes = out->bytes;
        if (!r->failed)
            slot_done(r, "download", slot_gpu->download(0, out->cpu.data, out->gpu.data, bytes));
        for (int parts = 1; parts <= 2 && !r->failed; parts++) { /* of the gradient */
            if (slot_done(r, "cpu",
                          slot_cpu->batch_norm_backward(0, &p, &gx->cpu, fused ? &gresidual->cpu : NULL, &v[6]->cpu,
                                                        &v[7]->cpu, &gout->cpu, parts > 1 ? &addend->cpu : NULL,
                                                        &x->cpu, p.relu ? &out->cpu : NULL,
                                                        weighted ? &v[0]->cpu : NULL, &v[4]->cpu, &v[5]->cpu)) &&
                slot_done(r, "cuda",
                          slot_gpu->batch_norm_backward(0, &p, &gx->gpu, fused ? &gresidual->gpu : NULL, &v[6]->gpu,
                                                        &v[7]->gpu, &gout->gpu, parts > 1 ? &addend->gpu : NULL,
                                                        &x->gpu, p.relu ? &out->gpu : NULL,
                                                        weighted ? &v[0]->gpu : NULL, &v[4]->gpu, &v[5]->gpu))) {
                pair_compare_sums(r, "gx", gx, room_of(dtype) * 2);
                pair_compare(r, "gresidual", gresidual, 0);
                pair_compare_sums(r, "gweight", v[6], room_of(dtype) * 4);
                pair_compare_sums(r, "gbias", v[7], room_of(dtype) * 4);
            }
        }
        clear(&all);
    }
}

/* Halves: the statistics of their values in f32, and each result rounded once from f32's. */
static void half_batch_norm_case(const slot_case *self, slot_report *r)
{
    static const int64_t shapes[][4] = {{3, 8, 4, 6}, {2, 5, 3, 5}, {40, 16, 2, 2}};
    for (int k = 0; k < 3 * 2 * 2 && slot_ready(r) && !r->failed; k++) {
        const int64_t *n = shapes[k % 3];
        yk_dtype dtype = (yk_dtype)self->op;
        bool last = k / 3 % 2, relu = k / 6;
        yk__batch_norm p = {.momentum = 0.1, .eps = 1e-5, .training = true, .relu = relu};
        pairs all = {.count = 0};
        pair *half[4], *wide[4], *v[6]; /* x, out, gout, gx; weight, bias, mean, invstd, gradients of the first two */
        for (int i = 0; i < 4; i++) {
            half[i] = next(&all, r, dtype, 4, n, C_ORDER, -2, 5);
            wide[i] = next(&all, r, YK_F32, 4, n, C_ORDER, -2, 5);
            if (last)
                turn(half[i]), turn(wide[i]);
            if (!r->failed)
                slot_done(r, "cpu", slot_cpu->copy(0, &wide[i]->cpu, &half[i]->cpu));
        }
        for (int i = 0; i < 6; i++)
            v[i] = next(&all, r, YK_F32, 1, &n[1], C_ORDER, 0.5, 2);
        /* The GPU finds from x where ReLU gives 0, the CPU from the GPU's result. */
        pair *edges = next(&all, r, YK_F64, 1, (const int64_t[]){2 * n[1]}, C_ORDER, 0, 1);
        pair *addend = next(&all, r, dtype, 4, n, C_ORDER, -3, 3);
        if (last)
            turn(addend);
        yk__batch_norm q = p;
        q.edges = relu && !r->failed && slot_gpu->batch_norm_edges ? edges->gpu.data : NULL;
        if (!r->failed &&
            slot_done(r, "cpu",
                      slot_cpu->batch_norm(0, &p, &wide[1]->cpu, &v[2]->cpu, &v[3]->cpu, &wide[0]->cpu, NULL,
                                           &v[0]->cpu, &v[1]->cpu, NULL, NULL)) &&
            slot_done(r, "cuda",
                      slot_gpu->batch_norm(0, &q, &half[1]->gpu, &v[2]->gpu, &v[3]->gpu, &half[0]->gpu, NULL,
                                           &v[0]->gpu, &v[1]->gpu, NULL, NULL)) &&
            slot_done(r, "cpu", slot_cpu->copy(0, &half[1]->cpu, &wide[1]->cpu))) {
            double room = dtype == YK_BF16 ? 0x1p-7 : 0x1p-10; /* one on either side of a tie */
            pair_compare_sums(r, "out", half[1], room);
            pair_compare_sums(r, "mean", v[2], 4e-6);
            pair_compare_sums(r, "invstd", v[3], 4e-6);
            if (slot_done(r, "download", slot_gpu->download(0, half[1]->cpu.data, half[1]->gpu.data, half[1]->bytes)))
                slot_done(r, "cpu", slot_cpu->copy(0, &wide[1]->cpu, &half[1]->cpu));
            for (int parts = 1; parts <= 2 && !r->failed; parts++) { /* of the gradient, whose sum is a half again */
                if (parts > 1 &&
                    !(slot_done(r, "cpu",
                                slot_cpu->binary(0, YK__ADD, &half[2]->cpu, &half[2]->cpu, &addend->cpu, 1)) &&
                      slot_done(r, "cpu", slot_cpu->copy(0, &wide[2]->cpu, &half[2]->cpu))))
                    continue;
                if (slot_done(r, "cpu",
                              slot_cpu->batch_norm_backward(
                                  0, &p, &wide[3]->cpu, NULL, &v[4]->cpu, &v[5]->cpu, &wide[2]->cpu, NULL,
                                  &wide[0]->cpu, relu ? &wide[1]->cpu : NULL, &v[0]->cpu, &v[2]->cpu, &v[3]->cpu)) &&
                    slot_done(r, "cuda",
                              slot_gpu->batch_norm_backward(0, &q, &half[3]->gpu, NULL, &v[4]->gpu, &v[5]->gpu,
                                                            &half[2]->gpu, parts > 1 ? &addend->gpu : NULL,
                                                            &half[0]->gpu, relu && !q.edges ? &half[1]->gpu : NULL,
                                                            &v[0]->gpu, &v[2]->gpu, &v[3]->gpu)) &&
                    slot_done(r, "cpu", slot_cpu->copy(0, &half[3]->cpu, &wide[3]->cpu))) {
                    pair_compare_sums(r, "gx", half[3], room);
                    pair_compare_sums(r, "gweight", v[4], 1e-5);
                    pair_compare_sums(r, "gbias", v[5], 1e-5);
                }
            }
        }
        clear(&all);
    }
}

static void layer_norm_case(const slot_case *self, slot_report *r)
{
    static const int64_t shapes[][2] = {{5, 48}, {3, 33}, {70, 4}, {1, 1}, {2, 1100}, {130, 12}, {1, 8200}, {3, 700}};
    enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };
    (void)self;
    for (int k = 0; k < SHAPES * 2 * 2 && slot_ready(r) && !r->failed; k++) {
        const int64_t *n = shapes[k % SHAPES];
        yk_dtype dtype = floats[k / SHAPES % 2];
        int layout = k / (2 * SHAPES) ? GAPS : C_ORDER;
        bool weighted = k % 3 > 0;
        pairs all = {.count = 0};
        pair *x = next(&all, r, dtype, 2, n, layout, 1, 7), *out = next(&all, r, dtype, 2, n, layout, 0, 1);
        pair *gout = next(&all, r, dtype, 2, n, layout, -2, 2), *gx = next(&all, r, dtype, 2, n, layout, 0, 1);
        pair *v[6]; /* weight, bias, their gradients; mean, invstd */
        for (int i = 0; i < 6; i++)
            v[i] = next(&all, r, dtype, 1, &n[i < 4], C_ORDER, 0.5, 2);
        if (!r->failed &&
            slot_done(r, "cpu",
                      slot_cpu->layer_norm(0, 1e-5, &out->cpu, &v[4]->cpu, &v[5]->cpu, &x->cpu,
                                           weighted ? &v[0]->cpu : NULL, weighted ? &v[1]->cpu : NULL)) &&
            slot_done(r, "cuda",
                      slot_gpu->layer_norm(0, 1e-5, &out->gpu, &v[4]->gpu, &v[5]->gpu, &x->gpu,
                                           weighted ? &v[0]->gpu : NULL, weighted ? &v[1]->gpu : NULL)) &&
            slot_done(r, "cpu",
                      slot_cpu->layer_norm_backward(0, &gx->cpu, &v[2]->cpu, &v[3]->cpu, &gout->cpu, &x->cpu,
                                                    weighted ? &v[0]->cpu : NULL, &v[4]->cpu, &v[5]->cpu)) &&
            slot_done(r, "cuda",
                      slot_gpu->layer_norm_backward(0, &gx->gpu, &v[2]->gpu, &v[3]->gpu, &gout->gpu, &x->gpu,
                                                    weighted ? &v[0]->gpu : NULL, &v[4]->gpu, &v[5]->gpu))) {
            pair_compare_sums(r, "out", out, room_of(dtype));
            pair_compare_sums(r, "mean", v[4], room_of(dtype));
            pair_compare_sums(r, "invstd", v[5], room_of(dtype) * 4);
            pair_compare_sums(r, "gx", gx, room_of(dtype) * 8);
            pair_compare_sums(r, "gweight", v[2], room_of(dtype) * 4);
            pair_compare_sums(r, "gbias", v[3], room_of(dtype) * 4);
        }
        clear(&all);
    }
}

const slot_case slot_norm_cases[] = {
    {"batch_norm", "channels_first", batch_norm_case, 0},
    {"batch_norm", "channels_last", batch_norm_case, 1},
    {"batch_norm", "matrix", batch_norm_case, 2},
    {"batch_norm", "gaps", batch_norm_case, 3},
    {"batch_norm", "two_orders", batch_norm_case, 4},
    {"batch_norm", "cropped", batch_norm_case, 5},
    {"batch_norm", "bf16", half_batch_norm_case, YK_BF16},
    {"batch_norm", "f16", half_batch_norm_case, YK_F16},
    {"layer_norm", "rows", layer_norm_case, 0},
    {NULL, NULL, NULL, 0},
};
