/* slot_training_cases.c - random numbers, look-ups, losses, optimizers and the error record: part of slot_cases.c. */
#include "tests/support/slot_pairs.h"

static const yk_dtype floats[] = {YK_F32, YK_F64, YK_F16, YK_BF16};
static const yk_device cuda = {YK_CUDA, 0};

/* A relative distance for sums in each dtype. */
static double sum_room(yk_dtype dtype)
{
    return dtype == YK_F64 ? 1e-13 : dtype == YK_F32 ? 2e-6 : dtype == YK_F16 ? 2e-3 : 2e-2;
}

static void random_case(const slot_case *self, slot_report *r)
{
    static const int64_t shapes[][2] = {{7, 5}, {1, 1}, {0, 3}, {33, 40}};
    static const double ranges[][2] = {{0, 1}, {-2.5, 7}, {3, 250}};
    yk__random_kind kind = (yk__random_kind)self->op;
    for (int dtype = 0; dtype < YK__DTYPES && slot_ready(r) && !r->failed; dtype++)
        for (int k = 0; k < 12; k++) {
            pair p = {0};
            const double *range = ranges[k % 3];
            yk__stream stream = {(uint64_t)k << 33 | 5, YK__RANDOM_TEST, (uint32_t)k};
            if (kind == YK__RANDOM_UNIFORM && dtype == YK_BF16 && k % 3 == 2)
                range = ranges[0];
            if (pair_make(&p, r, (yk_dtype)dtype, 2, shapes[k % 4], k % LAYOUTS)) {
                yk_status cpu = slot_cpu->random(0, kind, &p.cpu, stream, NULL, range[0], range[1]);
                yk_clear_error();
                /* log of u in f64 is the library's */
                double room = kind == YK__RANDOM_NORMAL ? (dtype == YK_F64 ? 64 : 2) : 0;
                if (slot_both(r, yk_dtype_name((yk_dtype)dtype), cpu,
                              slot_gpu->random(0, kind, &p.gpu, stream, NULL, range[0], range[1])))
                    pair_compare(r, yk_dtype_name((yk_dtype)dtype), &p, room);
            }
            pair_free(&p);
        }
}

static void random_integers_case(const slot_case *self, slot_report *r)
{
    (void)self;
    static const int64_t shapes[][2] = {{7, 5}, {1, 1}, {0, 3}, {33, 40}};
    for (int dtype = 0; dtype < YK__DTYPES && slot_ready(r) && !r->failed; dtype++)
        for (int k = 0; k < 12; k++) {
            pair p = {0};
            const int64_t near = INT64_C(1) << 60, ranges[][2] = {{0, 2}, {3, 250}, {near + 1, near + 8}};
            const int64_t *range = ranges[dtype == YK_BOOL ? 0 : dtype == YK_I64 ? k % 3 : k % 2];
            yk__stream stream = {(uint64_t)k << 33 | 5, YK__RANDOM_TEST, (uint32_t)k};
            if (pair_make(&p, r, (yk_dtype)dtype, 2, shapes[k % 4], k % LAYOUTS) &&
                slot_done(r, "cpu", slot_cpu->random_integers(0, &p.cpu, stream, NULL, range[0], range[1])) &&
                slot_done(r, "cuda", slot_gpu->random_integers(0, &p.gpu, stream, NULL, range[0], range[1])))
                pair_compare(r, yk_dtype_name((yk_dtype)dtype), &p, 0);
            pair_free(&p);
        }
}

static void dropout_case(const slot_case *self, slot_report *r)
{
    (void)self;
    const int64_t shape[] = {37, 29};
    for (int k = 0; k < 4 * LAYOUTS && slot_ready(r) && !r->failed; k++) {
        pair x = {0}, out = {0};
        const yk__stream stream = {77, YK__RANDOM_TEST, 3};
        double p = k % 5 == 4 ? 1 : 0.1 * k;
        if (pair_make(&x, r, floats[k % 4], 2, shape, k / 4) &&
            pair_make(&out, r, floats[k % 4], 2, shape, k % LAYOUTS) && pair_fill(&x, r, (uint32_t)k) &&
            slot_done(r, "cpu", slot_cpu->dropout(0, &out.cpu, &x.cpu, stream, NULL, 0, p)) &&
            slot_done(r, "cuda", slot_gpu->dropout(0, &out.gpu, &x.gpu, stream, NULL, 0, p)))
            pair_compare(r, yk_dtype_name(floats[k % 4]), &out, 0);
        pair_free(&out);
        pair_free(&x);
    }
}

/* The counter of random calls is in the device's memory and counted up there: the numbers drawn are those of the
 * stream's next call. */
static void calls_case(const slot_case *self, slot_report *r)
{
    (void)self;
    pair calls = {0}, one = {0};
    const int64_t none = 1, shape[] = {5, 9};
    if (!slot_ready(r) || !pair_make(&calls, r, YK_I32, 1, &none, C_ORDER) ||
        !pair_make(&one, r, YK_F32, 2, shape, C_ORDER))
        return;
    *(int32_t *)calls.cpu.data = 7;
    pair_upload(&calls, r);
    for (uint32_t step = 0; step < 4 && !r->failed; step++) {
        yk__stream base = {3, YK__RANDOM_TEST, 100}, whole = {3, YK__RANDOM_TEST, 107 + step};
        slot_done(r, "cpu", slot_cpu->random(0, YK__RANDOM_UNIFORM, &one.cpu, whole, NULL, 0, 1));
        slot_done(r, "cuda", slot_gpu->random(0, YK__RANDOM_UNIFORM, &one.gpu, base, calls.gpu.data, 0, 1));
        slot_done(r, "next", slot_gpu->unary(0, YK__ADD_SCALAR, &calls.gpu, &calls.gpu, 1, 0));
        pair_compare(r, "uniform", &one, 0);
    }
    pair_free(&one);
    pair_free(&calls);
}

static void embedding_case(const slot_case *self, slot_report *r)
{
    static const int64_t sizes[][3] = {{11, 7, 20}, {5, 300, 3}, {3, 1, 0}, {4, 33, 700}}; /* V, D, M */
    for (int k = 0; k < 4 * 4 * 2 && slot_ready(r) && !r->failed; k++) {
        const int64_t *n = sizes[k % 4], table[] = {n[0], n[1]}, rows[] = {n[2], n[1]};
        yk_dtype dtype = floats[k / 4 % 4];
        pair weight = {0}, out = {0}, index = {0};
        if (pair_make(&weight, r, dtype, 2, table, k % LAYOUTS) &&
            pair_make(&out, r, dtype, 2, rows, (k + 1) % LAYOUTS) &&
            pair_make(&index, r, k & 16 ? YK_I32 : YK_I64, 1, &n[2], k & 8 ? GAPS : C_ORDER) &&
            pair_fill_range(&index, r, 9, 0, (double)n[0])) {
            if (self->op == 0) {
                if (pair_fill(&weight, r, 1) &&
                    slot_done(r, "cpu", slot_cpu->embedding(0, &out.cpu, &weight.cpu, &index.cpu)) &&
                    slot_done(r, "cuda", slot_gpu->embedding(0, &out.gpu, &weight.gpu, &index.gpu)))
                    pair_compare(r, yk_dtype_name(dtype), &out, 0);
            } else if (dtype == YK_F32 || dtype == YK_F64) { /* of halves the CPU has no sums */
                if (pair_fill_range(&out, r, 2, -3, 3) &&
                    slot_done(r, "cpu",
                              slot_cpu->embedding_backward(0, &weight.cpu, &out.cpu, &index.cpu, k % 3 - 1)) &&
                    slot_done(r, "cuda", slot_gpu->embedding_backward(0, &weight.gpu, &out.gpu, &index.gpu, k % 3 - 1)))
                    pair_compare(r, yk_dtype_name(dtype), &weight, 0);
            }
        }
        pair_free(&index);
        pair_free(&out);
        pair_free(&weight);
    }
}

static void cross_entropy_case(const slot_case *self, slot_report *r)
{
    (void)self;
    static const int64_t sizes[][2] = {{9, 10}, {1, 1}, {40, 100}, {3, 333}};
    for (int k = 0; k < 4 * 2 * 4 && slot_ready(r) && !r->failed; k++) {
        const int64_t *n = sizes[k % 4];
        yk_dtype dtype = k / 4 % 2 ? YK_F64 : YK_F32;
        yk__cross_entropy p = {.ignore_index = k & 8 ? 0 : -100, .label_smoothing = k & 16 ? 0.1 : 0, .mean = k & 1};
        pair x = {0}, gx = {0}, target = {0}, weight = {0}, loss = {0}, total = {0}, lse = {0}, gloss = {0};
        bool weighted = k & 2;
        bool made = pair_make(&x, r, dtype, 2, n, k % LAYOUTS) && pair_make(&gx, r, dtype, 2, n, (k + 1) % LAYOUTS) &&
                    pair_make(&target, r, YK_I64, 1, n, C_ORDER) && pair_make(&weight, r, dtype, 1, n + 1, GAPS) &&
                    pair_make(&loss, r, dtype, 0, n, C_ORDER) && pair_make(&total, r, dtype, 0, n, C_ORDER) &&
                    pair_make(&gloss, r, dtype, 0, n, C_ORDER) && pair_make(&lse, r, dtype, 1, n, C_ORDER) &&
                    pair_fill_range(&x, r, (uint32_t)k, -20, 20) && pair_fill_range(&target, r, 3, 0, (double)n[1]) &&
                    pair_fill_range(&weight, r, 4, 0.5, 2) && pair_fill_range(&gloss, r, 5, 0.5, 2);
        if (made &&
            slot_done(r, "cpu",
                      slot_cpu->cross_entropy(0, &p, &loss.cpu, &lse.cpu, &total.cpu, &x.cpu, &target.cpu,
                                              weighted ? &weight.cpu : NULL)) &&
            slot_done(r, "cuda",
                      slot_gpu->cross_entropy(0, &p, &loss.gpu, &lse.gpu, &total.gpu, &x.gpu, &target.gpu,
                                              weighted ? &weight.gpu : NULL)) &&
            slot_done(r, "cpu",
                      slot_cpu->cross_entropy_backward(0, &p, &gx.cpu, &gloss.cpu, &x.cpu, &lse.cpu, &total.cpu,
                                                       &target.cpu, weighted ? &weight.cpu : NULL)) &&
            slot_done(r, "cuda",
                      slot_gpu->cross_entropy_backward(0, &p, &gx.gpu, &gloss.gpu, &x.gpu, &lse.gpu, &total.gpu,
                                                       &target.gpu, weighted ? &weight.gpu : NULL))) {
            pair_compare_sums(r, "loss", &loss, sum_room(dtype));
            pair_compare_sums(r, "total", &total, sum_room(dtype));
            pair_compare_sums(r, "lse", &lse, sum_room(dtype));
            pair_compare_sums(r, "gradient", &gx, sum_room(dtype));
        }
        pair *all[] = {&x, &gx, &target, &weight, &loss, &total, &lse, &gloss};
        for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
            pair_free(all[i]);
    }
}

/* f16 and bf16 against f32 of the same numbers: rows that are aligned to an element alone, classes that lie apart, and
 * a gradient that takes the place of x. */
static void half_cross_entropy_case(const slot_case *self, slot_report *r)
{
    static const int64_t sizes[][2] = {{3, 50257}, {5, 1100}, {9, 33}, {4, 513}};
    yk_dtype dtype = (yk_dtype)self->op;
    for (int k = 0; k < 4 * 4 && slot_ready(r) && !r->failed; k++) {
        const int64_t *n = sizes[k % 4];
        int flags = k * 5; /* pairs of sizes and flags that differ */
        yk__cross_entropy p = {.ignore_index = 1, .label_smoothing = flags & 4 ? 0.1 : 0, .mean = flags & 2};
        bool weighted = flags & 8, apart = k == 6, in_place = k == 9;
        enum { X, GX, WEIGHT, LOSS, TOTAL, GLOSS, LSE, COUNT };
        const int ndim[COUNT] = {2, 2, 1, 0, 0, 0, 1};
        pair wide[COUNT] = {0}, narrow[COUNT] = {0}, target = {0};
        bool made = pair_make(&target, r, YK_I64, 1, n, C_ORDER) && pair_fill_range(&target, r, 3, 0, (double)n[1]);
        for (int i = 0; i < COUNT && made; i++) {
            const int64_t *shape = i == WEIGHT ? n + 1 : n;
            double low = i == X ? -9 : 0.5, high = i == X ? 9 : 2;
            made =
                pair_make(&wide[i], r, YK_F32, ndim[i], shape, C_ORDER) &&
                pair_make(&narrow[i], r, i <= GX ? dtype : YK_F32, ndim[i], shape, apart && i <= GX ? GAPS : C_ORDER) &&
                pair_fill_range(&wide[i], r, (uint32_t)(k * 10 + i), low, high) &&
                slot_done(r, "cpu", slot_cpu->copy(0, &narrow[i].cpu, &wide[i].cpu)) &&
                slot_done(r, "cpu", slot_cpu->copy(0, &wide[i].cpu, &narrow[i].cpu)) && pair_upload(&narrow[i], r);
        }
        if (made)
            ((int64_t *)target.cpu.data)[0] = 1; /* a row that is ignored, and the last class of a tile */
        if (made && n[1] > 512)
            ((int64_t *)target.cpu.data)[1] = 511;
#define W(i) (&wide[i].cpu)
#define G(i) (&narrow[i].gpu)
        if (made && pair_upload(&target, r) &&
            slot_done(r, "cpu",
                      slot_cpu->cross_entropy(0, &p, W(LOSS), W(LSE), W(TOTAL), W(X), &target.cpu,
                                              weighted ? W(WEIGHT) : NULL)) &&
            slot_done(r, "cuda",
                      slot_gpu->cross_entropy(0, &p, G(LOSS), G(LSE), G(TOTAL), G(X), &target.gpu,
                                              weighted ? G(WEIGHT) : NULL)) &&
            slot_done(r, "cpu",
                      slot_cpu->cross_entropy_backward(0, &p, W(GX), W(GLOSS), W(X), W(LSE), W(TOTAL), &target.cpu,
                                                       weighted ? W(WEIGHT) : NULL)) &&
            slot_done(r, "cuda",
                      slot_gpu->cross_entropy_backward(0, &p, in_place ? G(X) : G(GX), G(GLOSS), G(X), G(LSE), G(TOTAL),
                                                       &target.gpu, weighted ? G(WEIGHT) : NULL))) {
            static const int results[] = {LOSS, TOTAL, LSE, GX};
            static const char *const names[] = {"loss", "total", "lse", "gradient"};
            for (int i = 0; i < 4; i++) {
                pair *own = &narrow[results[i] == GX && in_place ? X : results[i]];
                if (slot_done(r, "cpu", slot_cpu->copy(0, &own->cpu, W(results[i]))))
                    pair_compare_sums(r, names[i], own, results[i] == GX ? sum_room(dtype) : sum_room(YK_F32));
            }
        }
#undef W
#undef G
        for (int i = 0; i < COUNT; i++) {
            pair_free(&wide[i]);
            pair_free(&narrow[i]);
        }
        pair_free(&target);
    }
}

/* ---- optimizers ---- */
enum { TENSORS = 70 /* more than one launch takes */, KINDS = 5 /* param, grad and three of state */ };

/* Several steps of all tensors, with the rate and the step's number by value and in memory. */
static void optimizer_case(const slot_case *self, slot_report *r)
{
    static pair all[KINDS][TENSORS];
    yk__view cpu[KINDS][TENSORS], gpu[KINDS][TENSORS];
    bool adam = self->op & 1, memory = self->op & 2;
    int rule = self->op / 4 - 1; /* -1: sgd or adam */
    const char *slot = rule >= 0 ? "descend" : adam ? "adam" : "sgd";
    if (!slot_ready(r))
        return;
    pair state = {0}, skip = {0};
    const int64_t words = 2, one = 1;
    memset(all, 0, sizeof(all));
    bool made = pair_make(&state, r, YK_I64, 1, &words, C_ORDER) && pair_make(&skip, r, YK_I32, 1, &one, C_ORDER);
    for (int t = 0; t < TENSORS && made; t++) {
        int64_t shape[] = {t % 9, t % 4 * 3 + 1, t == 5 ? 400 : 2};
        for (int k = 0; k < KINDS && made; k++) {
            int layout = t % 7 == 3 && k == 1 ? GAPS : t % 3 == 1 ? REVERSED : C_ORDER;
            made = pair_make(&all[k][t], r, t % 11 == 10 ? YK_F64 : YK_F32, 3, shape, layout) &&
                   pair_fill_range(&all[k][t], r, (uint32_t)(t * 8 + k), k < 2 ? -2 : 0, k < 2 ? 2 : 0);
            cpu[k][t] = all[k][t].cpu;
            gpu[k][t] = all[k][t].gpu;
        }
    }
    for (int step = 1; step <= 4 && made && !r->failed; step++) {
        double lr = 0.1 / step;
        *(int32_t *)skip.cpu.data = step == 3;
        yk__sgd s = {.lr = lr,
                     .momentum = 0.9,
                     .dampening = 0.1,
                     .weight_decay = 0.01,
                     .maximize = step == 2,
                     .first = step == 1};
        yk__adam a = {.lr = lr,
                      .beta1 = 0.9,
                      .beta2 = 0.99,
                      .eps = 1e-8,
                      .weight_decay = 0.01,
                      .amsgrad = true,
                      .decoupled = step != 2,
                      .step = step};
        yk__descent d = {.rule = (yk__rule)rule,
                         .lr = lr,
                         .rho = 0.9,
                         .momentum = 0.5,
                         .beta1 = 0.8,
                         .beta2 = step == 4 ? 0.5 : 0.9, /* of another length of RAdam's average */
                         .eps = 1e-8,
                         .weight_decay = 0.01,
                         .lr_decay = 0.1,
                         .fade = 0.75,
                         .centered = true,
                         .decoupled = step != 2,
                         .maximize = step == 2,
                         .step = step};
        yk__step_state now = {.lr = lr, .step = step};
        yk__sgd sg = s;
        yk__adam ag = a;
        yk__descent dg = d;
        if (memory) {
            memcpy(state.cpu.data, &now, sizeof(now));
            if (step == 1)
                pair_upload(&state, r);
            else { /* the step was advanced there, and the rate is set by a queued fill */
                yk__view v = {.data = state.gpu.data, .dtype = YK_F64};
                slot_done(r, "fill", slot_gpu->fill(0, &v, lr));
            }
            sg.state = ag.state = dg.state = state.gpu.data;
            sg.skip = ag.skip = dg.skip = skip.gpu.data;
            s.skip = a.skip = d.skip = skip.cpu.data;
            pair_upload(&skip, r);
            sg.lr = ag.lr = dg.lr = NAN;
            sg.first = false, ag.step = dg.step = 0;
        }
        slot_done(r, "cpu",
                  rule >= 0
                      ? slot_cpu->descend(0, &d, TENSORS, cpu[0], cpu[1], cpu[2], rule == YK__ADAGRAD ? NULL : cpu[3],
                                          rule == YK__RMSPROP ? cpu[4] : NULL)
                  : adam ? slot_cpu->adam(0, &a, TENSORS, cpu[0], cpu[1], cpu[2], cpu[3], cpu[4])
                         : slot_cpu->sgd(0, &s, TENSORS, cpu[0], cpu[1], cpu[2]));
        slot_done(r, "cuda",
                  rule >= 0
                      ? slot_gpu->descend(0, &dg, TENSORS, gpu[0], gpu[1], gpu[2], rule == YK__ADAGRAD ? NULL : gpu[3],
                                          rule == YK__RMSPROP ? gpu[4] : NULL)
                  : adam ? slot_gpu->adam(0, &ag, TENSORS, gpu[0], gpu[1], gpu[2], gpu[3], gpu[4])
                         : slot_gpu->sgd(0, &sg, TENSORS, gpu[0], gpu[1], gpu[2]));
        if (memory) {
            slot_done(r, "advance", slot_gpu->step_advance(0, state.gpu.data, NULL));
            ((yk__step_state *)state.cpu.data)->step++;
            pair_compare(r, "state", &state, 0);
        }
    }
    for (int t = 0; t < TENSORS && made; t++)
        for (int k = 0; k < KINDS; k++)
            pair_compare(r, slot, &all[k][t], 0);
    for (int t = 0; t < TENSORS; t++)
        for (int k = 0; k < KINDS; k++)
            pair_free(&all[k][t]);
    pair_free(&state);
    pair_free(&skip);
}

/* Gradients divided by the loss scale, the search for what is not finite, and the next scale, all on the device. */
static void scale_case(const slot_case *self, slot_report *r)
{
    (void)self;
    enum { COUNT = 70 }; /* more than a launch takes, of sizes around that of a block's piece */
    static pair grads[COUNT];
    pair scale = {0};
    const int64_t bytes = sizeof(yk__scale_state);
    memset(grads, 0, sizeof(grads));
    if (!slot_ready(r) || !pair_make(&scale, r, YK_U8, 1, &bytes, C_ORDER))
        return;
    for (int k = 0; k < COUNT; k++) {
        const int64_t few[] = {k % 3 + 1, 5}, many[] = {k == 2 ? 401 : 61, 7};
        yk_dtype dtype = k == 1 || k == 67 ? YK_F64 : YK_F32;
        if (!pair_make(&grads[k], r, dtype, 2, k < 4 || k == 66 ? many : few,
                       k == 0   ? GAPS
                       : k == 1 ? REVERSED
                                : C_ORDER))
            return;
    }
    const yk__scaling p = {.growth_factor = 2, .backoff_factor = 0.5, .growth_interval = 2};
    const yk__scale_state first = {.scale = 1024, .inverse = 1.0f / 1024};
    memcpy(scale.cpu.data, &first, sizeof(first));
    pair_upload(&scale, r);
    for (int step = 0; step < 6 && !r->failed; step++) {
        static const int bad[] = {-1, -1, 1, 0, 66, 69}; /* of each step, the one that has what is not finite */
        yk__view cpu[COUNT], gpu[COUNT];
        for (int k = 0; k < COUNT; k++) {
            pair_fill_range(&grads[k], r, (uint32_t)(step * 2 + k), -900, 900);
            if (k == bad[step])
                yk__store_scalar((char *)grads[k].cpu.data, grads[k].cpu.dtype, step % 2 ? NAN : INFINITY);
            pair_upload(&grads[k], r);
            cpu[k] = grads[k].cpu;
            gpu[k] = grads[k].gpu;
        }
        slot_done(r, "cpu", slot_cpu->unscale(0, COUNT, cpu, scale.cpu.data));
        slot_done(r, "cuda", slot_gpu->unscale(0, COUNT, gpu, scale.gpu.data));
        pair_compare(r, "found", &scale, 0);
        slot_done(r, "cpu", slot_cpu->scale_update(0, &p, scale.cpu.data));
        slot_done(r, "cuda", slot_gpu->scale_update(0, &p, scale.gpu.data));
        pair_compare(r, "scale", &scale, 0);
        for (int k = 0; k < COUNT; k++)
            pair_compare(r, "gradient", &grads[k], 0);
    }
    for (int k = 0; k < COUNT; k++)
        pair_free(&grads[k]);
    pair_free(&scale);
}

/* ---- the error record ---- */
static void expect_record(slot_report *r, const char *what, yk_status status, const char *text)
{
    const yk_error *error = yk_last_error();
    if (status != YK_ERR_ARGUMENT || !error || !strstr(error->message, text))
        slot_fail(r, "%s: status %d, '%s', expected '%s'", what, status, error ? error->message : "no record", text);
    yk_clear_error();
    r->compared++;
}

/* The first operation's lowest row, once, at whatever waits next; then the device goes on. */
static void record_case(const slot_case *self, slot_report *r)
{
    (void)self;
    const int64_t table[] = {5, 3}, rows[] = {600, 3}, count = 600, logits[] = {600, 4};
    pair weight = {0}, out = {0}, index = {0}, x = {0}, loss = {0}, total = {0}, lse = {0};
    if (!slot_ready(r) || !pair_make(&weight, r, YK_F32, 2, table, C_ORDER) ||
        !pair_make(&out, r, YK_F32, 2, rows, C_ORDER) || !pair_make(&index, r, YK_I64, 1, &count, C_ORDER) ||
        !pair_make(&x, r, YK_F32, 2, logits, C_ORDER) || !pair_make(&loss, r, YK_F32, 0, logits, C_ORDER) ||
        !pair_make(&total, r, YK_F32, 0, logits, C_ORDER) || !pair_make(&lse, r, YK_F32, 1, logits, C_ORDER) ||
        !pair_fill_range(&weight, r, 1, -1, 1) || !pair_fill_range(&x, r, 1, -1, 1) ||
        !pair_fill_range(&index, r, 2, 0, 4))
        return;
    int64_t *labels = index.cpu.data;
    const yk__cross_entropy p = {.ignore_index = -100};
    labels[7] = -100, labels[411] = 9, labels[300] = -2, labels[599] = 4;
    pair_upload(&index, r);
    for (int round = 0; round < 3 && !r->failed; round++) {
        /* cross_entropy ignores row 7, embedding does not; what comes first in the queue is named. */
        for (int k = 0; k < 2; k++) {
            if ((round == 1) == k)
                slot_done(r, "cross_entropy",
                          slot_gpu->cross_entropy(0, &p, &loss.gpu, &lse.gpu, &total.gpu, &x.gpu, &index.gpu, NULL));
            else
                slot_done(r, "embedding", slot_gpu->embedding(0, &out.gpu, &weight.gpu, &index.gpu));
        }
        const char *text =
            round == 1 ? "index -100 at position 7 is outside [0, 5)" : "target -2 in row 300 is outside [0, 4)";
        if (round == 0)
            expect_record(r, "synchronize", slot_gpu->synchronize(0), text);
        else if (round == 1)
            expect_record(r, "download", slot_gpu->download(0, out.cpu.data, out.gpu.data, out.bytes), text);
        else if (slot_done(r, "upload, which does not wait",
                           slot_gpu->upload(0, out.gpu.data, out.cpu.data, out.bytes)))
            expect_record(r, "synchronize behind an upload", slot_gpu->synchronize(0), text);
        slot_done(r, "the next", slot_gpu->synchronize(0));
    }
    /* The same through the public functions, on a tensor's way to the host. */
    yk_scope scope = yk_scope_begin();
    const int64_t bad[] = {1, 6};
    yk_tensor *where =
        yk_to(yk_from_data(bad, 1, (int64_t[]){2}, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64)), cuda);
    yk_tensor *rows_of = yk_embedding(where, yk_to(yk_ones(2, table, NULL), cuda), -1);
    float got[6];
    if (!rows_of)
        slot_done(r, "yk_embedding", yk_last_error() ? yk_last_error()->code : YK_ERR_INTERNAL);
    else
        expect_record(r, "yk_tensor_read", yk_tensor_read(rows_of, got, sizeof(got)),
                      "index 6 at position 1 is outside [0, 5)");
    yk_scope_end(scope);
    pair *all[] = {&weight, &out, &index, &x, &loss, &total, &lse};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        pair_free(all[i]);
}

const slot_case slot_training_cases[] = {
    {"random", "uniform", random_case, YK__RANDOM_UNIFORM},
    {"random", "normal", random_case, YK__RANDOM_NORMAL},
    {"random", "calls_in_memory", calls_case, 0},
    {"random_integers", "all", random_integers_case, 0},
    {"dropout", "all", dropout_case, 0},
    {"embedding", "forward", embedding_case, 0},
    {"embedding", "backward", embedding_case, 1},
    {"cross_entropy", "all", cross_entropy_case, 0},
    {"cross_entropy", "bf16", half_cross_entropy_case, YK_BF16},
    {"cross_entropy", "f16", half_cross_entropy_case, YK_F16},
    {"sgd", "by_value", optimizer_case, 0},
    {"adam", "by_value", optimizer_case, 1},
    {"sgd", "state_in_memory", optimizer_case, 2},
    {"adam", "state_in_memory", optimizer_case, 3},
    {"descend", "rmsprop", optimizer_case, 4 * (YK__RMSPROP + 1)},
    {"descend", "rmsprop_in_memory", optimizer_case, 4 * (YK__RMSPROP + 1) + 2},
    {"descend", "adagrad_in_memory", optimizer_case, 4 * (YK__ADAGRAD + 1) + 2},
    {"descend", "adadelta", optimizer_case, 4 * (YK__ADADELTA + 1)},
    {"descend", "adamax_in_memory", optimizer_case, 4 * (YK__ADAMAX + 1) + 2},
    {"descend", "nadam", optimizer_case, 4 * (YK__NADAM + 1)},
    {"descend", "nadam_in_memory", optimizer_case, 4 * (YK__NADAM + 1) + 2},
    {"descend", "radam_in_memory", optimizer_case, 4 * (YK__RADAM + 1) + 2},
    {"scale", "all", scale_case, 0},
    {"checks", "error_record", record_case, 0},
    {NULL, NULL, NULL, 0},
};
