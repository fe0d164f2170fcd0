/* slot_network_cases.c - reductions, softmax, products, convolution, pooling, normalisation: part of slot_cases.c. */
#include "tests/support/slot_pairs.h"

static const yk_device cuda = {YK_CUDA, 0};

static double sum_room(yk_dtype dtype)
{
    return dtype == YK_F64 ? 1e-13 : 3e-6;
}

/* Up to ten pairs of one case; what is not made stays empty. */
enum { MOST = 10 };
typedef struct pairs {
    pair of[MOST];
    int count;
} pairs;

/* The next pair, with numbers of [low, high). */
static pair *next(pairs *p, slot_report *r, yk_dtype dtype, int ndim, const int64_t *shape, int layout, double low,
                  double high)
{
    pair *made = &p->of[p->count++];
    if (!r->failed && pair_make(made, r, dtype, ndim, shape, layout))
        pair_fill_range(made, r, (uint32_t)p->count * 77, low, high);
    return made;
}

static void clear(pairs *p)
{
    for (int i = 0; i < p->count; i++)
        pair_free(&p->of[i]);
    p->count = 0;
}

static void reduce_case(const slot_case *self, slot_report *r)
{
    static const int64_t shapes[][3] = {{3, 5, 7}, {1, 1, 1}, {2, 40, 65}, {4, 0, 2}};
    yk__reduce op = (yk__reduce)self->op;
    bool argument = op == YK__ARGMAX || op == YK__ARGMIN, truth = op == YK__ANY || op == YK__ALL;
    bool extreme = argument || op == YK__AMAX || op == YK__AMIN;
    for (int dtype = 0; dtype < YK__DTYPES && slot_ready(r) && !r->failed; dtype++)
        for (int k = 0; k < 4 * 7; k++) {
            const int64_t *shape = shapes[k % 4];
            int mask = k / 4 + 1;
            bool whole = !yk_dtype_is_floating((yk_dtype)dtype);
            int64_t reduced[3], count = 1;
            for (int d = 0; d < 3; d++) {
                reduced[d] = mask & 1 << d ? 1 : shape[d];
                count *= mask & 1 << d ? shape[d] : 1;
            }
            if ((argument && mask != 1 && mask != 2 && mask != 4) || (extreme && count == 0) ||
                (op == YK__VAR && count < 2))
                continue;
            bool i64 = argument || (whole && (op == YK__SUM || op == YK__PROD));
            if (whole && (op == YK__MEAN || op == YK__VAR || op == YK__SUM_SQUARES))
                continue;
            pairs p = {.count = 0};
            pair *in = next(&p, r, (yk_dtype)dtype, 3, shape, k % (LAYOUTS + 1), op == YK__PROD ? 0.7 : -9,
                            op == YK__PROD ? 1.35 : 9);
            pair *out = next(&p, r, truth ? YK_BOOL : i64 ? YK_I64 : (yk_dtype)dtype, 3, reduced, k % LAYOUTS, 0, 1);
            if (extreme && !whole)
                pair_fill(in, r, (uint32_t)k); /* NaN and infinities */
            double p0 = op == YK__VAR ? 1 : 0, room = whole || extreme || truth ? 0 : sum_room((yk_dtype)dtype) * 4;
            yk_status cpu = r->failed ? YK_ERR_INTERNAL : slot_cpu->reduce(0, op, &out->cpu, &in->cpu, p0);
            yk_clear_error();
            if (!r->failed &&
                slot_both(r, yk_dtype_name((yk_dtype)dtype), cpu, slot_gpu->reduce(0, op, &out->gpu, &in->gpu, p0)))
                pair_compare_sums(r, yk_dtype_name((yk_dtype)dtype), out, room);
            clear(&p);
        }
}

/* Reductions of so many elements for an output that they are cut into parts, along rows, along columns, and all of
 * them. */
static void long_reduce_case(const slot_case *self, slot_report *r)
{
    static const int64_t shapes[][2] = {{3, 20001}, {20001, 3}, {150, 140}, {1, 9001}};
    static const yk__reduce ops[] = {YK__SUM, YK__AMAX, YK__ARGMAX, YK__VAR, YK__ALL};
    (void)self;
    for (int k = 0; k < 4 * 3 * 5 && slot_ready(r) && !r->failed; k++) {
        const int64_t *shape = shapes[k % 4];
        int kept = k / 4 % 3; /* 2: none */
        yk__reduce op = ops[k / 12];
        if (op == YK__ARGMAX && kept == 2)
            continue;
        const int64_t reduced[] = {kept == 0 ? shape[0] : 1, kept == 1 ? shape[1] : 1};
        pairs p = {.count = 0};
        pair *in = next(&p, r, YK_F32, 2, shape, k % 2 ? GAPS : C_ORDER, -9, 9);
        pair *out = next(&p, r,
                         op == YK__ARGMAX ? YK_I64
                         : op == YK__ALL  ? YK_BOOL
                                          : YK_F32,
                         2, reduced, C_ORDER, 0, 1);
        double p0 = op == YK__VAR && (kept == 2 || shape[!kept] > 1) ? 1 : 0;
        if (!r->failed && slot_done(r, "cpu", slot_cpu->reduce(0, op, &out->cpu, &in->cpu, p0)) &&
            slot_done(r, "cuda", slot_gpu->reduce(0, op, &out->gpu, &in->gpu, p0)))
            pair_compare_sums(r, "out", out, op == YK__SUM || op == YK__VAR ? 1e-6 : 0);
        clear(&p);
    }
}

static void softmax_case(const slot_case *self, slot_report *r)
{
    static const int64_t shapes[][3] = {{3, 5, 7},   {1, 1, 1},    {2, 40, 65}, {4, 0, 2},
                                        {1, 5, 700}, {1, 3, 1100}, {2, 1, 4500}};
    enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };
    for (int k = 0; k < 2 * SHAPES * 3 && slot_ready(r) && !r->failed; k++) {
        yk_dtype dtype = k & 1 ? YK_F64 : YK_F32;
        const int64_t *shape = shapes[k / 2 % SHAPES];
        int dim = k / (2 * SHAPES);
        if (shape[2] > 600 && dim < 2)
            continue; /* many rows of few elements are slow to emulate */
        pairs p = {.count = 0};
        pair *x = next(&p, r, dtype, 3, shape, k % (LAYOUTS + 1), -20, 20),
             *out = next(&p, r, dtype, 3, shape, k % LAYOUTS, 0, 1);
        pair *g = next(&p, r, dtype, 3, shape, (k + 1) % LAYOUTS, -2, 2),
             *gx = next(&p, r, dtype, 3, shape, (k + 2) % LAYOUTS, 0, 1);
        if (!r->failed && slot_done(r, "cpu", slot_cpu->softmax(0, &out->cpu, &x->cpu, dim, self->op)) &&
            slot_done(r, "cuda", slot_gpu->softmax(0, &out->gpu, &x->gpu, dim, self->op)) &&
            slot_done(r, "cpu", slot_cpu->softmax_backward(0, &gx->cpu, &g->cpu, &out->cpu, dim, self->op)) &&
            slot_done(r, "cuda", slot_gpu->softmax_backward(0, &gx->gpu, &g->gpu, &out->gpu, dim, self->op))) {
            pair_compare_sums(r, "softmax", out, sum_room(dtype));
            pair_compare_sums(r, "gradient", gx, sum_room(dtype) * 4);
        }
        clear(&p);
    }
}

/* Without libraries every product is our own kernel's; with them, those that have no layout of theirs. */
static void gemm_case(const slot_case *self, slot_report *r)
{
    (void)self;
    if (!slot_ready(r))
        return;
    bool own = !slot_uses("cuBLASLt ");
    long long by_library = slot_work_done("gemm", true), by_own = slot_work_done("gemm", false);
    static const int64_t sizes[][4] = {
        {2, 65, 70, 17}, {1, 1, 1, 1}, {3, 5, 4, 100}, {1, 64, 64, 16}, {2, 3, 0, 5}}; /* B, M, N, K */
    for (int k = 0; k < 5 * 8 && slot_ready(r) && !r->failed; k++) {
        const int64_t *n = sizes[k % 5], a[] = {n[0], n[1], n[3]}, b[] = {n[0], n[3], n[2]}, out[] = {n[0], n[1], n[2]};
        yk_dtype dtype = k & 1 ? YK_F64 : YK_F32;
        pairs p = {.count = 0};
        pair *x = next(&p, r, dtype, 3, a, k % (LAYOUTS + 1), -2, 2),
             *y = next(&p, r, dtype, 3, b, k / 5 % (LAYOUTS + 1), -2, 2);
        pair *o = next(&p, r, dtype, 3, out, k / 10 % LAYOUTS, -2, 2),
             *bias = next(&p, r, dtype, 1, &n[2], GAPS, -2, 2);
        bool add = k & 4;
        if (!r->failed &&
            slot_done(r, "cpu", slot_cpu->gemm(0, &o->cpu, &x->cpu, &y->cpu, k & 2 ? &bias->cpu : NULL, add)) &&
            slot_done(r, "cuda", slot_gpu->gemm(0, &o->gpu, &x->gpu, &y->gpu, k & 2 ? &bias->gpu : NULL, add)))
            pair_compare_sums(r, yk_dtype_name(dtype), o, sum_room(dtype));
        clear(&p);
    }
    by_library = slot_work_done("gemm", true) - by_library, by_own = slot_work_done("gemm", false) - by_own;
    if (!r->failed && (own ? by_library != 0 || by_own != 32 : by_library < 10 || by_own < 5))
        slot_fail(r, "%lld products by a library and %lld by our own kernel", by_library, by_own);
}

/* A product of more rows than a launch of our own kernel has blocks for: each block takes several. */
static void tall_gemm_case(const slot_case *self, slot_report *r)
{
    static const int64_t a[] = {1, 65700, 2}, b[] = {1, 2, 1}, out[] = {1, 65700, 1};
    (void)self;
    if (!slot_ready(r))
        return;
    pairs p = {.count = 0};
    pair *x = next(&p, r, YK_F32, 3, a, C_ORDER, -2, 2), *y = next(&p, r, YK_F32, 3, b, C_ORDER, -2, 2);
    pair *o = next(&p, r, YK_F32, 3, out, C_ORDER, -2, 2);
    if (!r->failed && slot_done(r, "cpu", slot_cpu->gemm(0, &o->cpu, &x->cpu, &y->cpu, NULL, false)) &&
        slot_done(r, "cuda", slot_gpu->gemm(0, &o->gpu, &x->gpu, &y->gpu, NULL, false)))
        pair_compare_sums(r, "out", o, sum_room(YK_F32));
    clear(&p);
}

/* The same operand in f32 and in the half that holds it exactly: 5 bits after the point, below 2. */
static bool make_exact(pair *wide, pair *narrow, slot_report *r, yk_dtype dtype, int ndim, const int64_t *shape,
                       int layout, uint32_t seed)
{
    if (!pair_make(wide, r, YK_F32, ndim, shape, C_ORDER) || !pair_make(narrow, r, dtype, ndim, shape, layout))
        return false;
    float *values = wide->cpu.data;
    for (size_t i = 0; i < wide->bytes / sizeof(float); i++)
        values[i] = (float)((int)(slot_word(seed, i) % 129) - 64) / 32;
    return pair_upload(wide, r) && slot_done(r, "cpu", slot_cpu->copy(0, &narrow->cpu, &wide->cpu)) &&
           pair_upload(narrow, r);
}

/* Halves whose products and sums are exact in f32: the result is theirs, with the bias, rounded once. The last ones
 * have few rows and a long inner dimension, which a library cuts into parts. */
static void half_gemm_case(const slot_case *self, slot_report *r)
{
    static const int64_t sizes[2][3][3] = {{{2, 9, 70}, {2, 70, 8}, {2, 9, 8}},
                                           {{1, 4, 8192}, {1, 8192, 16}, {1, 4, 16}}};
    for (int k = 0; k < 6 && slot_ready(r) && !r->failed; k++) {
        const int64_t *a = sizes[k / 4][0], *b = sizes[k / 4][1], *shapes[] = {a, b, &b[2], sizes[k / 4][2]};
        pair narrow[4] = {0}, wide[4] = {0}; /* a, b, bias, out */
        bool made = true, with = k & 1;
        for (int i = 0; i < 4; i++)
            made = made && make_exact(&wide[i], &narrow[i], r, (yk_dtype)self->op, i == 2 ? 1 : 3, shapes[i],
                                      i < 2 && k & 2 ? REVERSED : C_ORDER, (uint32_t)(k * 10 + i));
        if (made &&
            slot_done(r, "cpu",
                      slot_cpu->gemm(0, &wide[3].cpu, &wide[0].cpu, &wide[1].cpu, with ? &wide[2].cpu : NULL, false)) &&
            slot_done(r, "cpu", slot_cpu->copy(0, &narrow[3].cpu, &wide[3].cpu)) &&
            slot_done(
                r, "cuda",
                slot_gpu->gemm(0, &narrow[3].gpu, &narrow[0].gpu, &narrow[1].gpu, with ? &narrow[2].gpu : NULL, false)))
            pair_compare(r, "out", &narrow[3], 0);
        for (int i = 0; i < 4; i++) {
            pair_free(&narrow[i]);
            pair_free(&wide[i]);
        }
    }
}

static void conv_case(const slot_case *self, slot_report *r)
{
    (void)self;
    static const struct {
        int64_t n, c, h, w, o, kh, kw, groups, stride, padding, dilation;
    } cases[] = {{2, 3, 9, 8, 4, 3, 3, 1, 1, 1, 1},
                 {1, 4, 7, 7, 6, 3, 2, 2, 2, 1, 1},
                 {3, 2, 5, 6, 2, 1, 1, 1, 1, 0, 1},
                 {1, 6, 11, 9, 6, 3, 3, 6, 2, 2, 2},
                 {2, 1, 1, 1, 3, 3, 3, 1, 1, 1, 1}};
    if (!slot_ready(r))
        return;
    bool own = !slot_uses("cuDNN ");
    long long library_before = slot_work_done("conv2d_backward_weight", true);
    for (int k = 0; k < 5 * 4 && slot_ready(r) && !r->failed; k++) {
        int64_t n = cases[k % 5].n, c = cases[k % 5].c, h = cases[k % 5].h, w = cases[k % 5].w, o = cases[k % 5].o;
        int64_t kh = cases[k % 5].kh, kw = cases[k % 5].kw, g = cases[k % 5].groups, s = cases[k % 5].stride;
        int64_t pad = cases[k % 5].padding, dil = cases[k % 5].dilation;
        const yk__conv2d p = {
            .stride = {s, s}, .padding = {pad, pad}, .dilation = {dil, dil}, .groups = g, .relu = k % 3 == 1};
        const int64_t x_shape[] = {n, c, h, w}, w_shape[] = {o, c / g, kh, kw};
        const int64_t out_shape[] = {n, o, (h + 2 * pad - dil * (kh - 1) - 1) / s + 1,
                                     (w + 2 * pad - dil * (kw - 1) - 1) / s + 1};
        yk_dtype dtype = k & 1 ? YK_F64 : YK_F32;
        pairs all = {.count = 0};
        pair *x = next(&all, r, dtype, 4, x_shape, k % LAYOUTS, -2, 2),
             *wt = next(&all, r, dtype, 4, w_shape, C_ORDER, -2, 2);
        pair *out = next(&all, r, dtype, 4, out_shape, C_ORDER, 0, 1),
             *bias = next(&all, r, dtype, 1, &o, C_ORDER, -2, 2);
        pair *gout = next(&all, r, dtype, 4, out_shape, k / 5 % 2, -2, 2),
             *gx = next(&all, r, dtype, 4, x_shape, C_ORDER, 0, 1);
        pair *gw = next(&all, r, dtype, 4, w_shape, C_ORDER, 0, 1), *gbias = next(&all, r, dtype, 1, &o, C_ORDER, 0, 1);
        bool with = k & 2;
        if (!r->failed &&
            slot_done(r, "cpu", slot_cpu->conv2d(0, &p, &out->cpu, &x->cpu, &wt->cpu, with ? &bias->cpu : NULL)) &&
            slot_done(r, "cuda", slot_gpu->conv2d(0, &p, &out->gpu, &x->gpu, &wt->gpu, with ? &bias->gpu : NULL)) &&
            slot_done(r, "cpu", slot_cpu->conv2d_backward_input(0, &p, &gx->cpu, &gout->cpu, &wt->cpu)) &&
            slot_done(r, "cuda", slot_gpu->conv2d_backward_input(0, &p, &gx->gpu, &gout->gpu, &wt->gpu)) &&
            slot_done(
                r, "cpu",
                slot_cpu->conv2d_backward_weight(0, &p, &gw->cpu, with ? &gbias->cpu : NULL, &gout->cpu, &x->cpu)) &&
            slot_done(
                r, "cuda",
                slot_gpu->conv2d_backward_weight(0, &p, &gw->gpu, with ? &gbias->gpu : NULL, &gout->gpu, &x->gpu))) {
            pair_compare_sums(r, "out", out, sum_room(dtype) * 2);
            pair_compare_sums(r, "gx", gx, sum_room(dtype) * 2);
            pair_compare_sums(r, "gw", gw, sum_room(dtype) * 2);
            pair_compare_sums(r, "gbias", gbias, sum_room(dtype) * 2);
        }
        clear(&all);
    }
    long long by_library = slot_work_done("conv2d_backward_weight", true) - library_before;
    if (!r->failed && (own ? by_library != 0 : by_library < 10))
        slot_fail(r, "%lld gradients of weights by a library", by_library);
}

/* Halves whose products and sums are exact in f32: the result is theirs, with the bias, rounded once. */
static void half_conv_case(const slot_case *self, slot_report *r)
{
    yk_dtype dtype = (yk_dtype)self->op;
    for (int k = 0; k < 8 && slot_ready(r) && !r->failed; k++) {
        int64_t groups = k & 4 ? 2 : 1, c = 4, o = 6;
        const yk__conv2d p = {
            .stride = {1 + (k & 1), 1}, .padding = {1, 0}, .dilation = {1, 1}, .groups = groups, .relu = k & 2};
        const int64_t x_shape[] = {2, c, 7, 6}, w_shape[] = {o, c / groups, 3, 2}, gap = 2;
        const int64_t out_shape[] = {2, o, (7 + 2 - 3) / p.stride[0] + 1, 5},
                      *shapes[] = {x_shape, w_shape, &o, out_shape};
        pair narrow[4] = {0}, wide[4] = {0}; /* x, w, bias, out */
        bool made = true;
        for (int i = 0; i < 4; i++)
            made = made && make_exact(&wide[i], &narrow[i], r, dtype, i == 2 ? 1 : 4, shapes[i],
                                      i == 2 ? GAPS : k % gap, (uint32_t)(k * 10 + i));
        if (made &&
            slot_done(r, "cpu", slot_cpu->conv2d(0, &p, &wide[3].cpu, &wide[0].cpu, &wide[1].cpu, &wide[2].cpu)) &&
            slot_done(r, "cpu", slot_cpu->copy(0, &narrow[3].cpu, &wide[3].cpu)) &&
            slot_done(r, "cuda",
                      slot_gpu->conv2d(0, &p, &narrow[3].gpu, &narrow[0].gpu, &narrow[1].gpu, &narrow[2].gpu)))
            pair_compare(r, "out", &narrow[3], 0);
        for (int i = 0; i < 4; i++) {
            pair_free(&narrow[i]);
            pair_free(&wide[i]);
        }
    }
}

/* Leaves NaN in the block that attention_backward takes for so many scores, and forward for half as many, as
 * attention.cu lays them: memory beyond the last key is nobody's. */
static void leave_nan(const int64_t *n, yk_dtype dtype)
{
    yk_scope scope = yk_scope_begin();
    for (int64_t parts = 1; parts <= 2; parts++) {
        int64_t scores = n[0] * n[1] * n[2] * ((n[3] + 7) / 8 * 8) * (dtype == YK_F64 ? 8 : 4);
        int64_t bytes = (scores + 255) / 256 * 256 * parts + 256;
        (void)!yk_fill_(yk_zeros(YK_SHAPE(bytes / 4), YK_OPTIONS(yk_tensor_options, .device = cuda)), NAN);
    }
    yk_scope_end(scope);
}

/* op 0: no mask, 1: causal, 2: bool mask, 3: added mask; the first query may look at no key of a bool mask. Added masks
 * lie in four ways: for all batches, apart, for all heads and queries, densely. */
static void attention_case(const slot_case *self, slot_report *r)
{
    /* B, H, L, S, E, D; a warp holds 1,024 scores, a block 4,096 */
    static const int64_t sizes[][6] = {{2, 3, 5, 7, 4, 6},   {1, 1, 1, 1, 1, 1},    {1, 2, 33, 40, 8, 8},
                                       {3, 2, 4, 4, 16, 2},  {1, 2, 3, 1100, 4, 2}, {1, 1, 2, 4501, 3, 2},
                                       {2, 2, 65, 65, 4, 2}, {1, 2, 2, 1101, 2, 2}, {1, 2, 3, 600, 2, 2}};
    static const int masks[] = {EXPANDED, GAPS, C_ORDER, C_ORDER};
    enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };
    enum { Q, K, V, OUT, LSE, GOUT, GQ, GK, GV, MASK };
    for (int k = 0; k < SIZES * 4 && slot_ready(r) && !r->failed; k++) {
        const int64_t *n = sizes[k % SIZES], b = n[0], h = n[1];
        yk_dtype dtype = k / SIZES % 2 ? YK_F64 : YK_F32;
        int layout = k / SIZES / 2 && n[0] > 1 ? REVERSED : C_ORDER;
        const int64_t q[] = {b, h, n[2], n[4]}, key[] = {b, h, n[3], n[4]}, v[] = {b, h, n[3], n[5]};
        const int64_t out[] = {b, h, n[2], n[5]}, mask[] = {b, h, n[2], n[3]};
        const int64_t *shapes[] = {q, key, v, out, out, out, q, key, v, mask};
        const yk__attention p = {.scale = 0.3, .causal = self->op == 1};
        pairs all = {.count = 0};
        for (int i = 0; i < MOST; i++)
            next(&all, r, i == MASK && self->op == 2 ? YK_BOOL : dtype, i == LSE ? 3 : 4, shapes[i],
                 i == MASK && self->op == 3 ? masks[k / SIZES] : C_ORDER, i == MASK && self->op == 2 ? 0 : -2, 2);
        for (int d = 1; d < 3 && self->op == 3 && k / SIZES == 2; d++)
            all.of[MASK].cpu.stride[d] = all.of[MASK].gpu.stride[d] = 0;
        leave_nan(n, dtype);
        if (!r->failed && layout == REVERSED) /* (B, L, H, E) in memory, as heads are split: the columns stay */
            for (int i = 0; i < 3; i++)
                for (int side = 0; side < 2; side++) {
                    yk__view *view = side ? &all.of[i].gpu : &all.of[i].cpu;
                    view->stride[1] = view->shape[3];
                    view->stride[2] = view->shape[3] * view->shape[1];
                }
        if (!r->failed && self->op == 2) {
            memset(all.of[MASK].cpu.data, 0, (size_t)n[3]);
            pair_upload(&all.of[MASK], r);
        }
#define CPU(i) (&all.of[i].cpu)
#define GPU(i) (&all.of[i].gpu)
        const yk__view *cpu_mask = self->op > 1 ? CPU(MASK) : NULL, *gpu_mask = self->op > 1 ? GPU(MASK) : NULL;
        if (!r->failed &&
            slot_done(r, "cpu", slot_cpu->attention(0, &p, CPU(OUT), CPU(LSE), CPU(Q), CPU(K), CPU(V), cpu_mask)) &&
            slot_done(r, "cuda", slot_gpu->attention(0, &p, GPU(OUT), GPU(LSE), GPU(Q), GPU(K), GPU(V), gpu_mask)) &&
            slot_done(r, "cpu",
                      slot_cpu->attention_backward(0, &p, CPU(GQ), CPU(GK), CPU(GV), CPU(GOUT), CPU(Q), CPU(K), CPU(V),
                                                   cpu_mask, CPU(OUT), CPU(LSE))) &&
            slot_done(r, "cuda",
                      slot_gpu->attention_backward(0, &p, GPU(GQ), GPU(GK), GPU(GV), GPU(GOUT), GPU(Q), GPU(K), GPU(V),
                                                   gpu_mask, GPU(OUT), GPU(LSE)))) {
            pair_compare_sums(r, "out", &all.of[OUT], sum_room(dtype));
            pair_compare_sums(r, "lse", &all.of[LSE], sum_room(dtype));
            pair_compare_sums(r, "gq", &all.of[GQ], sum_room(dtype) * 2);
            pair_compare_sums(r, "gk", &all.of[GK], sum_room(dtype) * 2);
            pair_compare_sums(r, "gv", &all.of[GV], sum_room(dtype) * 2);
        }
#undef CPU
#undef GPU
        clear(&all);
    }
}

/* f16 and bf16 against f32 of the same numbers, with the masks of attention_case, heads in both orders: scores are not
 * rounded, which lse tells; probabilities and gradients of scores are. */
static void half_attention_case(const slot_case *self, slot_report *r)
{
    static const int64_t sizes[][6] = {{2, 3, 5, 7, 4, 6},    {1, 2, 33, 40, 8, 16}, {3, 2, 4, 4, 16, 2},
                                       {2, 1, 9, 8, 8, 8},    {1, 2, 3, 1100, 4, 2}, {1, 1, 2, 4501, 3, 2},
                                       {2, 2, 9, 65, 4, 2},   {1, 2, 2, 1101, 2, 2}, {1, 2, 3, 600, 2, 2},
                                       {2, 2, 40, 70, 64, 64}};
    enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };
    enum { Q, K, V, OUT, LSE, GOUT, GQ, GK, GV, MASK };
    yk_dtype dtype = (yk_dtype)self->op;
    for (int k = 0; k < SIZES * 4 * 2 && slot_ready(r) && !r->failed; k++) {
        const int64_t *n = sizes[k % SIZES], b = n[0], h = n[1];
        int masks = k / SIZES % 4;
        const int64_t q[] = {b, h, n[2], n[4]}, key[] = {b, h, n[3], n[4]}, v[] = {b, h, n[3], n[5]};
        const int64_t out[] = {b, h, n[2], n[5]}, mask[] = {b, h, n[2], n[3]};
        const int64_t *shapes[] = {q, key, v, out, out, out, q, key, v, mask};
        const yk__attention p = {.scale = 0.3, .causal = masks == 1};
        pairs wide = {.count = 0}, narrow = {.count = 0};
        for (int i = 0; i < MOST; i++) {
            bool is_bool = i == MASK && masks == 2;
            pair *from =
                next(&wide, r, is_bool ? YK_BOOL : YK_F32, i == LSE ? 3 : 4, shapes[i], C_ORDER, is_bool ? 0 : -2, 2);
            pair *to = next(&narrow, r,
                            is_bool    ? YK_BOOL
                            : i == LSE ? YK_F32
                                       : dtype,
                            i == LSE ? 3 : 4, shapes[i], C_ORDER, is_bool ? 0 : -2, 2);
            if (!r->failed && slot_done(r, "cpu", slot_cpu->copy(0, &to->cpu, &from->cpu)) &&
                slot_done(r, "cpu", slot_cpu->copy(0, &from->cpu, &to->cpu)))
                pair_upload(to, r);
            for (int side = 0; k >= SIZES * 4 && i != LSE && i != MASK && side < 3;
                 side++) { /* (B, L, H, E) in memory */
                yk__view *view = side == 2 ? &from->cpu : side ? &to->gpu : &to->cpu;
                view->stride[1] = view->shape[3];
                view->stride[2] = view->shape[3] * view->shape[1];
            }
        }
        leave_nan(n, YK_F32);
#define W(i) (&wide.of[i].cpu)
#define G(i) (&narrow.of[i].gpu)
        const yk__view *cpu_mask = masks > 1 ? W(MASK) : NULL, *gpu_mask = masks > 1 ? G(MASK) : NULL;
        if (!r->failed && slot_done(r, "cpu", slot_cpu->attention(0, &p, W(OUT), W(LSE), W(Q), W(K), W(V), cpu_mask)) &&
            slot_done(r, "cuda", slot_gpu->attention(0, &p, G(OUT), G(LSE), G(Q), G(K), G(V), gpu_mask)) &&
            slot_done(r, "cpu",
                      slot_cpu->attention_backward(0, &p, W(GQ), W(GK), W(GV), W(GOUT), W(Q), W(K), W(V), cpu_mask,
                                                   W(OUT), W(LSE))) &&
            slot_done(r, "cuda",
                      slot_gpu->attention_backward(0, &p, G(GQ), G(GK), G(GV), G(GOUT), G(Q), G(K), G(V), gpu_mask,
                                                   G(OUT), G(LSE)))) {
            static const int results[] = {OUT, LSE, GQ, GK, GV};
            static const char *const names[] = {"out", "lse", "gq", "gk", "gv"};
            for (int i = 0; i < 5; i++) {
                pair *made = &narrow.of[results[i]];
                double room = results[i] == LSE ? sum_room(YK_F32) : dtype == YK_F16 ? 2e-3 : 1.5e-2;
                if (slot_done(r, "cpu", slot_cpu->copy(0, &made->cpu, W(results[i]))))
                    pair_compare_sums(r, names[i], made, room);
            }
        }
#undef W
#undef G
        clear(&wide);
        clear(&narrow);
    }
}

/* op 0: forwards, 1: in reverse; with states and gradients of the ends, and without. */
static void lstm_case(const slot_case *self, slot_report *r)
{
    static const int64_t sizes[][3] = {{1, 1, 1}, {2, 3, 5}, {4, 9, 40}, {3, 70, 33}}; /* T, N, H */
    enum { GATES, HS, CS, WEIGHT, H0, C0, GGATES, GH0, GC0, GH };
    for (int k = 0; k < 4 * 8 && slot_ready(r) && !r->failed; k++) {
        const int64_t *n = sizes[k % 4], four = 4 * n[2];
        bool given = k / 4 & 1, turned = k / 4 & 2;
        yk_dtype dtype = k / 4 & 4 ? YK_F64 : YK_F32;
        const int64_t gates[] = {n[0], n[1], four}, states[] = {n[0], n[1], n[2]}, end[] = {n[1], n[2]};
        const int64_t weight[] = {four, n[2]};
        const int64_t *shapes[] = {gates, states, states, weight, end, end, gates, end, end, states};
        const yk__lstm p = {.reverse = self->op == 1, .want_h0 = given};
        pairs all = {.count = 0};
        for (int i = 0; i < MOST; i++) {
            bool matrix = i == WEIGHT || i == H0 || i == C0 || i == GH0 || i == GC0;
            next(&all, r, dtype, matrix ? 2 : 3, shapes[i], i == WEIGHT && turned ? REVERSED : C_ORDER, -1, 1);
        }
#define CPU(i)          (&all.of[i].cpu)
#define GPU(i)          (&all.of[i].gpu)
#define EITHER(i, side) (given ? side(i) : NULL)
        /* The gradients of the ends are as h0 and c0 are: any numbers. */
        if (!r->failed &&
            slot_done(
                r, "cpu",
                slot_cpu->lstm(0, &p, CPU(GATES), CPU(HS), CPU(CS), EITHER(H0, CPU), EITHER(C0, CPU), CPU(WEIGHT))) &&
            slot_done(
                r, "cuda",
                slot_gpu->lstm(0, &p, GPU(GATES), GPU(HS), GPU(CS), EITHER(H0, GPU), EITHER(C0, GPU), GPU(WEIGHT))) &&
            slot_done(r, "cpu",
                      slot_cpu->lstm_backward(0, &p, CPU(GGATES), CPU(GH0), CPU(GC0), EITHER(GH, CPU), EITHER(C0, CPU),
                                              EITHER(H0, CPU), CPU(GATES), CPU(CS), EITHER(C0, CPU), CPU(WEIGHT))) &&
            slot_done(r, "cuda",
                      slot_gpu->lstm_backward(0, &p, GPU(GGATES), GPU(GH0), GPU(GC0), EITHER(GH, GPU), EITHER(C0, GPU),
                                              EITHER(H0, GPU), GPU(GATES), GPU(CS), EITHER(C0, GPU), GPU(WEIGHT)))) {
            pair_compare_sums(r, "gates", &all.of[GATES], 4 * sum_room(dtype));
            pair_compare_sums(r, "h", &all.of[HS], 4 * sum_room(dtype));
            pair_compare_sums(r, "c", &all.of[CS], 4 * sum_room(dtype));
            pair_compare_sums(r, "ggates", &all.of[GGATES], 8 * sum_room(dtype));
            if (given)
                pair_compare_sums(r, "gh0", &all.of[GH0], 8 * sum_room(dtype));
            pair_compare_sums(r, "gc0", &all.of[GC0], 8 * sum_room(dtype));
        }
#undef CPU
#undef GPU
#undef EITHER
        clear(&all);
    }
}

/* f16 and bf16 against f32 of the same numbers: what a step leaves is rounded each time. */
static void half_lstm_case(const slot_case *self, slot_report *r)
{
    const int64_t gates[] = {3, 5, 24}, states[] = {3, 5, 6}, end[] = {5, 6}, weight[] = {24, 6};
    enum { GATES, HS, CS, WEIGHT, H0, C0, GGATES, GH0, GC0, GH };
    const int64_t *shapes[] = {gates, states, states, weight, end, end, gates, end, end, states};
    yk_dtype dtype = (yk_dtype)self->op;
    const yk__lstm p = {.want_h0 = true};
    pairs wide = {.count = 0}, narrow = {.count = 0};
    for (int i = 0; i < MOST && slot_ready(r); i++) {
        bool matrix = i == WEIGHT || i == H0 || i == C0 || i == GH0 || i == GC0;
        pair *from = next(&wide, r, YK_F32, matrix ? 2 : 3, shapes[i], C_ORDER, -1, 1);
        pair *to = next(&narrow, r, dtype, matrix ? 2 : 3, shapes[i], C_ORDER, -1, 1);
        if (!r->failed && slot_done(r, "cpu", slot_cpu->copy(0, &to->cpu, &from->cpu)) &&
            slot_done(r, "cpu", slot_cpu->copy(0, &from->cpu, &to->cpu)))
            pair_upload(to, r);
    }
#define W(i) (&wide.of[i].cpu)
#define G(i) (&narrow.of[i].gpu)
    if (!r->failed && slot_done(r, "cpu", slot_cpu->lstm(0, &p, W(GATES), W(HS), W(CS), W(H0), W(C0), W(WEIGHT))) &&
        slot_done(r, "cpu",
                  slot_cpu->lstm_backward(0, &p, W(GGATES), W(GH0), W(GC0), W(GH), W(H0), W(C0), W(GATES), W(CS), W(C0),
                                          W(WEIGHT))) &&
        slot_done(r, "cuda", slot_gpu->lstm(0, &p, G(GATES), G(HS), G(CS), G(H0), G(C0), G(WEIGHT))) &&
        slot_done(r, "cuda",
                  slot_gpu->lstm_backward(0, &p, G(GGATES), G(GH0), G(GC0), G(GH), G(H0), G(C0), G(GATES), G(CS), G(C0),
                                          G(WEIGHT)))) {
        static const int results[] = {GATES, HS, CS, GGATES, GH0, GC0};
        for (int k = 0; k < 6; k++) {
            pair *made = &narrow.of[results[k]];
            if (slot_done(r, "cpu", slot_cpu->copy(0, &made->cpu, W(results[k]))))
                pair_compare_sums(r, "a result", made, dtype == YK_F16 ? 4e-3 : 4e-2);
        }
    }
#undef W
#undef G
    clear(&wide);
    clear(&narrow);
}

/* op 0: max, 1: average, 2: adaptive average */
static void pool_case(const slot_case *self, slot_report *r)
{
    for (int k = 0; k < 24 && slot_ready(r) && !r->failed; k++) {
        const yk__pool2d options[] = {
            {.kernel = {2, 2}, .stride = {2, 2}, .dilation = {1, 1}},
            {.kernel = {3, 2}, .stride = {1, 2}, .padding = {1, 1}, .dilation = {1, 1}, .count_exclude_pad = true},
            {.kernel = {3, 3}, .stride = {2, 1}, .padding = {1, 1}, .dilation = {self->op ? 1 : 2, 1}, .divisor = 5}};
        yk__pool2d p = options[k % 3];
        const int64_t x_shape[] = {2, 3, 9, 7};
        int64_t out_shape[4] = {2, 3, 4, 3};
        for (int d = 0; d < 2 && self->op != 2; d++)
            out_shape[2 + d] =
                (x_shape[2 + d] + 2 * p.padding[d] - p.dilation[d] * (p.kernel[d] - 1) - 1) / p.stride[d] + 1;
        yk_dtype dtype = k & 1 ? YK_F64 : YK_F32;
        pairs all = {.count = 0};
        pair *x = next(&all, r, dtype, 4, x_shape, k % LAYOUTS, -2, 2),
             *out = next(&all, r, dtype, 4, out_shape, C_ORDER, 0, 1);
        pair *index = next(&all, r, YK_I32, 4, out_shape, C_ORDER, 0, 1),
             *gx = next(&all, r, dtype, 4, x_shape, k % 2, 0, 1);
        pair *g = next(&all, r, dtype, 4, out_shape, C_ORDER, -2, 2);
        if (k > 18)
            pair_fill(x, r, (uint32_t)k);
        if (r->failed) {
        } else if (self->op == 0) {
            slot_done(r, "cpu", slot_cpu->max_pool2d(0, &p, &out->cpu, &index->cpu, &x->cpu));
            slot_done(r, "cuda", slot_gpu->max_pool2d(0, &p, &out->gpu, &index->gpu, &x->gpu));
            slot_done(r, "cpu", slot_cpu->max_pool2d_backward(0, &p, &gx->cpu, &g->cpu, &index->cpu));
            slot_done(r, "cuda", slot_gpu->max_pool2d_backward(0, &p, &gx->gpu, &g->gpu, &index->gpu));
            pair_compare(r, "out", out, 0);
            pair_compare(r, "index", index, 0);
        } else if (self->op == 1) {
            slot_done(r, "cpu", slot_cpu->avg_pool2d(0, &p, &out->cpu, &x->cpu));
            slot_done(r, "cuda", slot_gpu->avg_pool2d(0, &p, &out->gpu, &x->gpu));
            slot_done(r, "cpu", slot_cpu->avg_pool2d_backward(0, &p, &gx->cpu, &g->cpu));
            slot_done(r, "cuda", slot_gpu->avg_pool2d_backward(0, &p, &gx->gpu, &g->gpu));
        } else {
            slot_done(r, "cpu", slot_cpu->adaptive_avg_pool2d(0, &out->cpu, &x->cpu));
            slot_done(r, "cuda", slot_gpu->adaptive_avg_pool2d(0, &out->gpu, &x->gpu));
            slot_done(r, "cpu", slot_cpu->adaptive_avg_pool2d_backward(0, &gx->cpu, &g->cpu));
            slot_done(r, "cuda", slot_gpu->adaptive_avg_pool2d_backward(0, &gx->gpu, &g->gpu));
        }
        if (k <= 18)
            pair_compare_sums(r, "out", out, sum_room(dtype));
        pair_compare_sums(r, "gradient", gx, sum_room(dtype));
        clear(&all);
    }
}

/* ---- through the public functions: forward, backward, on the GPU and on the CPU, by dtype ---- */
enum { RESULTS = 6 };
typedef struct results {
    yk_tensor *of[RESULTS]; /* the output, and gradients */
} results;

static yk_tensor *values(yk_dtype dtype, yk_device device, int ndim, const int64_t *shape, uint32_t seed, bool wants)
{
    int64_t count = 1;
    for (int d = 0; d < ndim; d++)
        count *= shape[d];
    float *x = malloc((size_t)(count + 1) * sizeof(float));
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)((double)slot_word(seed, (uint64_t)i) * 0x1p-31 - 1);
    yk_tensor *made = yk_detach(yk_to(yk_cast(yk_from_data(x, ndim, shape, NULL), dtype), device));
    free(x);
    if (made && wants && yk_set_requires_grad(made, true))
        return NULL;
    return made;
}

static results run_layer(int layer, yk_dtype dtype, yk_device device)
{
    const int64_t x4[] = {3, 4, 6, 5}, w4[] = {6, 4, 3, 3}, c[] = {4}, x2[] = {9, 33}, w2[] = {7, 33}, o[] = {7},
                  d[] = {33}, six[] = {6};
    results out = {{NULL}};
    yk_tensor *x, *w, *b, *y = NULL;
    bool flat = layer >= 4;
    x = flat ? values(dtype, device, 2, x2, 1, true) : values(dtype, device, 4, x4, 1, true);
    w = flat ? values(dtype, device, 2, w2, 2, true) : values(dtype, device, 4, w4, 2, true);
    b = values(dtype, device, 1, layer == 0 ? six : layer == 4 ? o : flat ? d : c, 3, true);
    yk_tensor *scale = values(dtype, device, 1, flat ? d : c, 4, true);
    switch (layer) {
    case 0: y = yk_conv2d(x, w, b, YK_OPTIONS(yk_conv2d_options, .padding = {1, 1})); break;
    case 1:
        y = yk_batch_norm(x, scale, b, NULL, NULL, YK_OPTIONS(yk_batch_norm_options, .training = true, .relu = true));
        break;
    case 2:
        y = yk_add(yk_max_pool2d(x, YK_OPTIONS(yk_pool2d_options, .kernel = {2, 2})),
                   yk_avg_pool2d(x, YK_OPTIONS(yk_pool2d_options, .kernel = {2, 2})));
        break;
    case 3: y = yk_adaptive_avg_pool2d(x, 2, 2); break;
    case 4: y = yk_linear(x, w, b); break;
    case 5: y = yk_layer_norm(x, 1, d, scale, b, 1e-5); break;
    case 6: y = yk_softmax(x, 1); break;
    case 7: y = yk_log_softmax(x, 0); break;
    case 8: y = yk_matmul(x, yk_transpose(w, 0, 1)); break;
    default: y = yk_mul(yk_var(x), yk_gelu(x)); break;
    }
    yk_tensor *weights = y ? values(dtype, device, yk_ndim(y), yk_sizes(y), 9, false) : NULL;
    if (!y || yk_backward(yk_sum(yk_mul(y, weights))))
        return out;
    out.of[0] = y;
    out.of[1] = yk_grad(x), out.of[2] = yk_grad(w), out.of[3] = yk_grad(b), out.of[4] = yk_grad(scale);
    return out;
}

static void layer_case(const slot_case *self, slot_report *r)
{
    static const yk_dtype floats[] = {YK_F32, YK_F64, YK_F16, YK_BF16};
    for (int k = 0; k < 4 && slot_ready(r) && !r->failed; k++) {
        yk_scope scope = yk_scope_begin();
        double room = floats[k] == YK_F64 ? 1e-12 : floats[k] == YK_F32 ? 1e-5 : floats[k] == YK_F16 ? 4e-3 : 3e-2;
        results a = run_layer(self->op, floats[k], (yk_device){YK_CPU, 0});
        slot_done(r, "cpu", a.of[0] ? YK_OK : YK_ERR_INTERNAL);
        results b = run_layer(self->op, floats[k], cuda);
        slot_done(r, "cuda", b.of[0] ? YK_OK : YK_ERR_INTERNAL);
        for (int i = 0; i < RESULTS && !r->failed; i++) {
            if (!a.of[i] != !b.of[i])
                slot_fail(r, "result %d is %s", i, a.of[i] ? "missing" : "there");
            if (!a.of[i] || !b.of[i])
                continue;
            if (yk_tensor_dtype(a.of[i]) != yk_tensor_dtype(b.of[i]) || !yk_same_shape(a.of[i], b.of[i]))
                slot_fail(r, "result %d has another dtype or shape", i);
            int64_t n = yk_numel(a.of[i]);
            double *x = malloc((size_t)(n + 1) * sizeof(double)), *y = malloc((size_t)(n + 1) * sizeof(double)),
                   top = 0;
            slot_done(r, "cpu", yk_tensor_read(yk_cast(yk_detach(a.of[i]), YK_F64), x, (size_t)n * sizeof(double)));
            slot_done(r, "cuda", yk_tensor_read(yk_cast(yk_detach(b.of[i]), YK_F64), y, (size_t)n * sizeof(double)));
            for (int64_t e = 0; e < n; e++)
                top = fabs(x[e]) > top ? fabs(x[e]) : top;
            for (int64_t e = 0; e < n && !r->failed; e++, r->compared++)
                if (!(fabs(x[e] - y[e]) <= room * top))
                    slot_fail(r, "%s, result %d, element %lld is %.9g, the CPU has %.9g", yk_dtype_name(floats[k]), i,
                              (long long)e, y[e], x[e]);
            free(x);
            free(y);
        }
        yk_scope_end(scope);
    }
}

/* The gradient of batch_norm's input under given statistics, of an input that is not finite everywhere. */
static bool given_gradient(yk_dtype dtype, yk_device device, double *gradient)
{
    enum { N = 2, C = 3, ALL = N * C * 4 };
    float numbers[ALL];
    for (int i = 0; i < ALL; i++)
        numbers[i] = i == 5 ? INFINITY : i == 18 ? NAN : (float)i / 4 - 2;
    yk_tensor *x = yk_detach(yk_to(yk_cast(yk_from_data(numbers, YK_SHAPE(N, C, 2, 2), NULL), dtype), device));
    yk_dtype statistic = dtype == YK_F64 ? YK_F64 : YK_F32;
    const int64_t c[] = {C}, whole[] = {N, C, 2, 2};
    yk_tensor *var = yk_ones(1, c, YK_OPTIONS(yk_tensor_options, .dtype = statistic, .device = device));
    yk_tensor *mean = values(statistic, device, 1, c, 3, false), *scale = values(statistic, device, 1, c, 4, false);
    if (yk_set_requires_grad(x, true))
        return false;
    yk_tensor *y = yk_batch_norm(x, scale, mean, mean, var, NULL);
    return y && !yk_backward(yk_sum(yk_mul(y, values(dtype, device, 4, whole, 9, false)))) &&
           !yk_tensor_read(yk_cast(yk_grad(x), YK_F64), gradient, ALL * sizeof(*gradient));
}

static void batch_norm_given_case(const slot_case *self, slot_report *r)
{
    static const yk_dtype floats[] = {YK_F32, YK_F64, YK_F16, YK_BF16};
    (void)self;
    for (int k = 0; k < 4 && slot_ready(r) && !r->failed; k++) {
        double a[24], b[24], room = floats[k] == YK_F64 ? 1e-12 : floats[k] == YK_F32 ? 1e-6 : 1e-2;
        yk_scope scope = yk_scope_begin();
        slot_done(r, "cpu", given_gradient(floats[k], (yk_device){YK_CPU, 0}, a) ? YK_OK : YK_ERR_INTERNAL);
        slot_done(r, "cuda", given_gradient(floats[k], cuda, b) ? YK_OK : YK_ERR_INTERNAL);
        yk_scope_end(scope);
        for (int i = 0; i < 24 && !r->failed; i++, r->compared++)
            if (!(fabs(a[i] - b[i]) <= room))
                slot_fail(r, "%s: gradient %d is %.9g, the CPU has %.9g", yk_dtype_name(floats[k]), i, b[i], a[i]);
    }
}

/* clang-format off */
#define REDUCE(op)      {"reduce", #op, reduce_case, YK__##op}
#define LAYER(name, op) {"layer", name, layer_case, op}
const slot_case slot_network_cases[] = {
    REDUCE(SUM), REDUCE(MEAN), REDUCE(PROD), REDUCE(AMAX), REDUCE(AMIN), REDUCE(ANY), REDUCE(ALL), REDUCE(ARGMAX),
    REDUCE(ARGMIN), REDUCE(VAR), REDUCE(SUM_SQUARES),
    {"reduce", "in_parts", long_reduce_case, 0},
    {"softmax", "plain", softmax_case, 0},
    {"softmax", "log", softmax_case, 1},
    {"gemm", "all", gemm_case, 0},
    {"gemm", "tall", tall_gemm_case, 0},
    {"gemm", "bf16", half_gemm_case, YK_BF16},
    {"gemm", "f16", half_gemm_case, YK_F16},
    {"conv2d", "all", conv_case, 0},
    {"conv2d", "bf16", half_conv_case, YK_BF16},
    {"conv2d", "f16", half_conv_case, YK_F16},
    {"attention", "plain", attention_case, 0}, {"attention", "causal", attention_case, 1},
    {"attention", "bool_mask", attention_case, 2}, {"attention", "added_mask", attention_case, 3},
    {"attention", "bf16", half_attention_case, YK_BF16}, {"attention", "f16", half_attention_case, YK_F16},
    {"lstm", "forwards", lstm_case, 0}, {"lstm", "reverse", lstm_case, 1},
    {"lstm", "bf16", half_lstm_case, YK_BF16}, {"lstm", "f16", half_lstm_case, YK_F16},
    {"pool", "max", pool_case, 0}, {"pool", "average", pool_case, 1}, {"pool", "adaptive", pool_case, 2},
    LAYER("conv2d", 0), LAYER("batch_norm", 1), LAYER("pools", 2), LAYER("adaptive_avg_pool2d", 3), LAYER("linear", 4),
    {"layer", "batch_norm_given", batch_norm_given_case, 0},
    LAYER("layer_norm", 5), LAYER("softmax", 6), LAYER("log_softmax", 7), LAYER("matmul", 8), LAYER("var_gelu", 9),
    {NULL, NULL, NULL, 0},
};
/* clang-format on */
