/* norm_test.c - batch and layer normalisation, forward and backward, against plain loops in float64. */
#include "tests/device/blocks.h"
#include "tests/support/machine.h"

static yk__backend tables[YK__LEVELS];

static int fill_tables(void **state)
{
    (void)state;
    assert_non_null(yk__backend_of((yk_device){0})); /* sets up the devices */
    for (int isa = 0; isa < isa_count(); isa++)
        isa_fill(isa, &tables[isa]);
    return 0;
}

enum { AFFINE = 1, RESIDUAL = 2, RELU = 4, EVAL = 8, NO_RUNNING = 16, OPTIONS = 32 };

/* Everything that one forward and backward take and give. */
typedef struct run {
    block x, residual, out, mean, invstd, weight, bias, running_mean, running_var;
    block gx, gresidual, gweight, gbias, gout;
} run;

static const double momentum = 0.1, eps = 1e-5;

static void batch_run(const yk__backend *table, run *r, yk_dtype dtype, layout order, layout grad_order, int ndim,
                      const int64_t *shape, int options, double offset)
{
    *r = (run){0};
    int64_t channels = shape[1];
    r->x = block_make(dtype, order, ndim, shape);
    r->out = block_make(dtype, order, ndim, shape);
    r->gx = block_make(dtype, order, ndim, shape);
    r->gout = block_make(dtype, grad_order, ndim, shape);
    block_randomize(&r->x, 1, 1.5, offset);
    block_randomize(&r->gout, 2, 1, 0.125);
    if (options & RESIDUAL) {
        r->residual = block_make(dtype, order, ndim, shape);
        r->gresidual = block_make(dtype, order, ndim, shape);
        block_randomize(&r->residual, 3, 1, 0);
    }
    layout flat = order == GAPS ? GAPS : C_ORDER;
    block *vectors[] = {&r->mean,         &r->invstd,      &r->weight,  &r->bias,
                        &r->running_mean, &r->running_var, &r->gweight, &r->gbias};
    for (int i = 0; i < 8; i++) {
        bool affine = i == 2 || i == 3 || i > 5, running = i == 4 || i == 5;
        if ((affine && !(options & AFFINE)) || (running && (options & NO_RUNNING)))
            continue;
        *vectors[i] = block_make(dtype, flat, 1, &channels);
        block_randomize(vectors[i], (uint64_t)(10 + i), 0.4, i == 5 || i == 2 ? 1 : 0);
    }
    yk__batch_norm p = {.momentum = momentum, .eps = eps, .training = !(options & EVAL), .relu = options & RELU};
    expect_ok(table->batch_norm(0, &p, &r->out.view, &r->mean.view, &r->invstd.view, &r->x.view,
                                block_view(&r->residual), block_view(&r->weight), block_view(&r->bias),
                                block_view(&r->running_mean), block_view(&r->running_var)));
    expect_ok(table->batch_norm_backward(0, &p, &r->gx.view, block_view(&r->gresidual), block_view(&r->gweight),
                                         block_view(&r->gbias), &r->gout.view, NULL, &r->x.view,
                                         options & RELU ? &r->out.view : NULL, block_view(&r->weight), &r->mean.view,
                                         &r->invstd.view));
}

static void run_free(run *r)
{
    block *blocks = (block *)r;
    for (size_t i = 0; i < sizeof(*r) / sizeof(block); i++)
        block_free(&blocks[i]);
}

/* The channel of a flat index. */
static int64_t channel_of(const yk__view *v, int64_t i)
{
    int64_t plane = 1;
    for (int d = 2; d < v->ndim; d++)
        plane *= v->shape[d];
    return i / plane % v->shape[1];
}

static void batch_check(const yk__backend *table, yk_dtype dtype, layout order, layout grad_order, int ndim,
                        const int64_t *shape, int options, double offset, double bound)
{
    run r;
    batch_run(table, &r, dtype, order, grad_order, ndim, shape, options, offset);
    int64_t channels = shape[1], count = r.x.count / channels;
    const double *x = block_read(&r.x), *gout = block_read(&r.gout);
    double *mean = calloc((size_t)channels * 9, sizeof(double));
    assert_non_null(mean);
    double *var = mean + channels, *invstd = mean + 2 * channels, *s1 = mean + 3 * channels, *s2 = mean + 4 * channels;
    double *rmean = mean + 5 * channels, *rvar = mean + 6 * channels, *gweight = mean + 7 * channels;
    double *terms = mean + 8 * channels;
    double *out = calloc((size_t)r.x.count * 3, sizeof(double)), *g = out + r.x.count, *gx = g + r.x.count;
    assert_non_null(out);
    for (int64_t i = 0; i < r.x.count; i++)
        mean[channel_of(&r.x.view, i)] += x[i] / (double)count;
    for (int64_t i = 0; i < r.x.count; i++) {
        double e = x[i] - mean[channel_of(&r.x.view, i)];
        var[channel_of(&r.x.view, i)] += e * e / (double)count;
    }
    /* the running statistics were filled as random(seed 14 and 15) */
    block before = r.running_mean.memory ? block_make(dtype, C_ORDER, 1, &channels) : (block){0};
    for (int64_t c = 0; c < channels && before.memory; c++) {
        if (c == 0)
            block_randomize(&before, 14, 0.4, 0);
        rmean[c] = block_get(&before, c);
    }
    for (int64_t c = 0; c < channels && before.memory; c++) {
        if (c == 0)
            block_randomize(&before, 15, 0.4, 1);
        rvar[c] = block_get(&before, c);
    }
    for (int64_t c = 0; c < channels; c++) {
        if (options & EVAL) {
            mean[c] = rmean[c];
            var[c] = rvar[c];
        } else {
            rmean[c] += momentum * (mean[c] - rmean[c]);
            rvar[c] += momentum * (var[c] * (double)count / (double)(count - 1) - rvar[c]);
        }
        invstd[c] = 1 / sqrt(var[c] + eps);
    }
    for (int64_t i = 0; i < r.x.count; i++) {
        int64_t c = channel_of(&r.x.view, i);
        out[i] = (x[i] - mean[c]) * invstd[c];
        if (options & AFFINE)
            out[i] = out[i] * block_get(&r.weight, c) + block_get(&r.bias, c);
        if (options & RESIDUAL)
            out[i] += block_get(&r.residual, i);
        /* the mask is that of the rounded output, which backward saw */
        g[i] = options & RELU && block_get(&r.out, i) <= 0 ? 0 : gout[i];
        if (options & RELU)
            out[i] = out[i] > 0 ? out[i] : 0;
        s1[c] += g[i];
        s2[c] += g[i] * (x[i] - mean[c]);
        terms[c] += fabs(g[i] * (x[i] - mean[c]));
    }
    for (int64_t i = 0; i < r.x.count; i++) {
        int64_t c = channel_of(&r.x.view, i);
        gx[i] = g[i];
        if (!(options & EVAL))
            gx[i] -= s1[c] / (double)count + (x[i] - mean[c]) * invstd[c] * invstd[c] * s2[c] / (double)count;
        gx[i] *= invstd[c] * (options & AFFINE ? block_get(&r.weight, c) : 1);
    }
    for (int64_t c = 0; c < channels; c++)
        gweight[c] = s2[c] * invstd[c];
    block_expect(&r.out, out, bound, "out");
    block_expect(&r.mean, mean, bound, "mean");
    block_expect(&r.invstd, invstd, bound, "invstd");
    block_expect(&r.gx, gx, bound * 4, "gx");
    for (int64_t c = 0; c < channels && options & AFFINE; c++) { /* these sums may cancel: relative to their terms */
        expect_near(block_get(&r.gweight, c), gweight[c], 0, bound * terms[c] * invstd[c]);
        expect_near(block_get(&r.gbias, c), s1[c], 0, bound * (double)count);
    }
    if (options & RESIDUAL)
        block_expect(&r.gresidual, g, 0, "gresidual");
    if (!(options & NO_RUNNING)) {
        block_expect(&r.running_mean, rmean, bound, "running mean");
        block_expect(&r.running_var, rvar, bound, "running variance");
    }
    free((void *)x), free((void *)gout), free(mean), free(out);
    block_free(&before);
    run_free(&r);
}

static const struct {
    int ndim;
    int64_t shape[5];
} shapes[] = {
    {4, {3, 64, 8, 8}},   {2, {32, 512}},       {4, {32, 128, 1, 1}}, {4, {5, 3, 7, 9}},    {3, {4, 21, 33}},
    {5, {2, 6, 3, 4, 5}}, {4, {17, 100, 2, 2}}, {4, {2, 1, 40, 40}},  {4, {300, 40, 3, 2}}, {2, {70, 5}},
};
enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

static void batch_norm_matches_the_reference(void **state)
{
    (void)state;
    for (int isa = 0; isa < isa_count(); isa++) {
        for (int i = 0; i < SHAPES; i++) {
            for (int order = 0; order < LAYOUTS; order++) {
                for (int options = sanitized_size(0, order); options < OPTIONS; options += sanitized_size(1, 3)) {
                    if (options & EVAL && options & NO_RUNNING)
                        continue;
                    batch_check(&tables[isa], YK_F32, order, order, shapes[i].ndim, shapes[i].shape, options, 0.5,
                                5e-7);
                    if (options % 3 == 1)
                        batch_check(&tables[isa], YK_F64, order, order, shapes[i].ndim, shapes[i].shape, options, 0.5,
                                    1e-14);
                }
                /* the gradient comes in another layout than x */
                batch_check(&tables[isa], YK_F32, order, (order + 1) % LAYOUTS, shapes[i].ndim, shapes[i].shape,
                            AFFINE | RELU | RESIDUAL, 0.5, 5e-7);
            }
        }
    }
}

/* A mean of 1,000 deviations: sums of squares in float alone would lose all of the variance. */
static void a_large_mean_keeps_the_variance(void **state)
{
    (void)state;
    static const int64_t shape[4] = {16, 24, 10, 10};
    for (int isa = 0; isa < isa_count(); isa++) {
        for (int order = 0; order < LAYOUTS; order++) {
            run r;
            batch_run(&tables[isa], &r, YK_F32, order, order, 4, shape, 0, 1000);
            double *x = block_read(&r.x), mean = 0, var = 0;
            for (int64_t c = 0; c < 24; c++, mean = var = 0) {
                for (int64_t i = 0; i < r.x.count; i++)
                    mean += channel_of(&r.x.view, i) == c ? x[i] / 1600 : 0;
                for (int64_t i = 0; i < r.x.count; i++)
                    var += channel_of(&r.x.view, i) == c ? (x[i] - mean) * (x[i] - mean) / 1600 : 0;
                expect_near(block_get(&r.invstd, c), 1 / sqrt(var + eps), 3e-7, 0);
                expect_near(block_get(&r.mean, c), mean, 6e-8, 0);
            }
            free(x);
            run_free(&r);
        }
    }
}

/* One element far from all others, at the place that the sums are taken relative to. */
static void an_outlier_in_front_costs_no_digits(void **state)
{
    (void)state;
    static const int64_t shape[4] = {32, 16, 8, 8};
    for (int isa = 0; isa < isa_count(); isa++) {
        for (int order = 0; order < LAYOUTS; order++) {
            block x = block_make(YK_F32, order, 4, shape), out = block_make(YK_F32, order, 4, shape);
            int64_t channels = 16;
            block mean = block_make(YK_F32, C_ORDER, 1, &channels), invstd = block_make(YK_F32, C_ORDER, 1, &channels);
            block_randomize(&x, 1, 1, 0);
            for (int64_t c = 0; c < channels; c++)
                block_set(&x, c * 64, 300);
            yk__batch_norm p = {.eps = eps, .training = true};
            expect_ok(tables[isa].batch_norm(0, &p, &out.view, &mean.view, &invstd.view, &x.view, NULL, NULL, NULL,
                                             NULL, NULL));
            for (int64_t c = 0; c < channels; c++) {
                double m = 0, v = 0;
                for (int64_t i = 0; i < 32 * 64; i++)
                    m += block_get(&x, i / 64 * 16 * 64 + c * 64 + i % 64) / 2048;
                for (int64_t i = 0; i < 32 * 64; i++)
                    v += pow(block_get(&x, i / 64 * 16 * 64 + c * 64 + i % 64) - m, 2) / 2048;
                expect_near(block_get(&mean, c), m, 0, 1e-6 * sqrt(v));
                expect_near(block_get(&invstd, c), 1 / sqrt(v + eps), 1e-6, 0);
            }
            block_free(&x), block_free(&out), block_free(&mean), block_free(&invstd);
        }
    }
}

static void relu_passes_nan(void **state)
{
    (void)state;
    static const int64_t shape[4] = {4, 20, 5, 5};
    int64_t channels = 20;
    for (int isa = 0; isa < isa_count(); isa++) {
        for (int order = 0; order < LAYOUTS; order++) {
            block x = block_make(YK_F32, order, 4, shape), out = block_make(YK_F32, order, 4, shape);
            block mean = block_make(YK_F32, C_ORDER, 1, &channels), invstd = block_make(YK_F32, C_ORDER, 1, &channels);
            block_randomize(&x, 1, 1, 0);
            block_set(&x, 25 * 3 + 7, (double)NAN); /* channel 3 of image 0 */
            yk__batch_norm p = {.eps = eps, .training = true, .relu = true};
            expect_ok(tables[isa].batch_norm(0, &p, &out.view, &mean.view, &invstd.view, &x.view, NULL, NULL, NULL,
                                             NULL, NULL));
            for (int64_t i = 0; i < out.count; i++)
                assert_int_equal(isnan(block_get(&out, i)), i / 25 % 20 == 3);
            block_free(&x), block_free(&out), block_free(&mean), block_free(&invstd);
        }
    }
}

/* gx or the parameters' gradients alone; and gresidual in the memory of gout. */
static void parts_of_the_backward(void **state)
{
    (void)state;
    static const int64_t shape[4] = {6, 33, 4, 4};
    for (int isa = 0; isa < isa_count(); isa++) {
        for (int order = 0; order < LAYOUTS; order++) {
            for (int eval = 0; eval < 2; eval++) {
                run r;
                int options = AFFINE | RELU | RESIDUAL | (eval ? EVAL : 0);
                batch_run(&tables[isa], &r, YK_F32, order, order, 4, shape, options, 0);
                int64_t channels = 33;
                block gx = block_make(YK_F32, order, 4, shape);
                block gw = block_make(YK_F32, C_ORDER, 1, &channels), gb = block_make(YK_F32, C_ORDER, 1, &channels);
                yk__batch_norm p = {.momentum = momentum, .eps = eps, .training = !eval, .relu = true};
                expect_ok(tables[isa].batch_norm_backward(0, &p, &gx.view, NULL, NULL, NULL, &r.gout.view, NULL,
                                                          &r.x.view, &r.out.view, &r.weight.view, &r.mean.view,
                                                          &r.invstd.view));
                block_expect_same_bits(&gx, &r.gx, "gx alone");
                expect_ok(tables[isa].batch_norm_backward(0, &p, NULL, NULL, &gw.view, &gb.view, &r.gout.view, NULL,
                                                          &r.x.view, &r.out.view, &r.weight.view, &r.mean.view,
                                                          &r.invstd.view));
                block_expect_same_bits(&gw, &r.gweight, "gweight without gx");
                block_expect_same_bits(&gb, &r.gbias, "gbias without gx");
                expect_ok(tables[isa].batch_norm_backward(0, &p, &gx.view, &r.gout.view, NULL, NULL, &r.gout.view, NULL,
                                                          &r.x.view, &r.out.view, &r.weight.view, &r.mean.view,
                                                          &r.invstd.view));
                block_expect_same_bits(&gx, &r.gx, "gx with gresidual over gout");
                block_expect_same_bits(&r.gout, &r.gresidual, "gresidual over gout");
                block_free(&gx), block_free(&gw), block_free(&gb);
                run_free(&r);
            }
        }
    }
}

/* The same bits, but those of NaN, which depend on the order of the operands of a sum. */
static void expect_same_numbers(const block *a, const block *b, const char *what)
{
    for (int64_t i = 0; i < a->count; i++) {
        double x = block_get(a, i), y = block_get(b, i);
        if (memcmp(&x, &y, sizeof(x)) != 0 && !(isnan(x) && isnan(y)))
            fail_msg("%s: element %lld is %.17g and %.17g", what, (long long)i, x, y);
    }
}

/* A gradient in two parts is their rounded sum, in every order of dimensions, whatever is fused and wanted. */
static void gradient_in_two_parts(void **state)
{
    (void)state;
    static const int64_t some[][4] = {{6, 33, 4, 4}, {3, 64, 5, 7}, {2, 3, 9, 11}, {1, 130, 2, 3}};
    static const double special[] = {(double)INFINITY, -(double)INFINITY, (double)NAN, 3e38, -0.0, 1e-40};
    for (int isa = 0; isa < isa_count(); isa++) {
        for (int k = 0; k < 4 * LAYOUTS * 8; k++) {
            const int64_t *shape = some[k % 4], channels = shape[1];
            int order = k / 4 % LAYOUTS, options = AFFINE | k / 4 / LAYOUTS % 4 << 1 | (k / 4 / LAYOUTS > 3 ? EVAL : 0);
            yk_dtype dtype = k % 3 ? YK_F32 : YK_F64;
            run r;
            batch_run(&tables[isa], &r, dtype, order, order, 4, shape, options, 0);
            yk__batch_norm p = {
                .momentum = momentum, .eps = eps, .training = !(options & EVAL), .relu = options & RELU};
            const yk__view *out = p.relu ? &r.out.view : NULL;
            block part = block_make(dtype, order, 4, shape), whole = block_make(dtype, order, 4, shape);
            block gx[2], gresidual[2], gw[2], gb[2];
            for (int i = 0; i < 2; i++) {
                gx[i] = block_make(dtype, order, 4, shape), gresidual[i] = block_make(dtype, order, 4, shape);
                gw[i] = block_make(dtype, C_ORDER, 1, &channels), gb[i] = block_make(dtype, C_ORDER, 1, &channels);
            }
            block_randomize(&part, 7, 1, 0);
            for (int i = options & EVAL ? 4 : 0; i < 6; i++) { /* in the last channels alone */
                block_set(&part, r.x.count - 1 - i * 3, special[i]);
                block_set(&r.gout, r.x.count - 1 - i * 3, i < 3 ? special[(i + 1) % 3] : special[i]);
            }
            for (int64_t i = 0; i < r.x.count; i++) {
                double a = block_get(&r.gout, i), b = block_get(&part, i);
                block_set(&whole, i, dtype == YK_F32 ? (double)((float)a + (float)b) : a + b);
            }
            for (int wanted = 1; wanted < 8; wanted++) { /* gx, gresidual, those of weight and bias */
                for (int i = 0; i < 2; i++)
                    expect_ok(tables[isa].batch_norm_backward(
                        0, &p, wanted & 1 ? &gx[i].view : NULL, wanted & 2 ? &gresidual[i].view : NULL,
                        wanted & 4 ? &gw[i].view : NULL, wanted & 4 ? &gb[i].view : NULL,
                        i ? &r.gout.view : &whole.view, i ? &part.view : NULL, &r.x.view, out, &r.weight.view,
                        &r.mean.view, &r.invstd.view));
                expect_same_numbers(&gx[1], &gx[0], "gx");
                expect_same_numbers(&gresidual[1], &gresidual[0], "gresidual");
                expect_same_numbers(&gw[1], &gw[0], "gweight");
                expect_same_numbers(&gb[1], &gb[0], "gbias");
            }
            /* One view as both, and gresidual over it. */
            for (int64_t i = 0; i < r.x.count; i++)
                block_set(&whole, i, 2 * block_get(&part, i));
            expect_ok(tables[isa].batch_norm_backward(0, &p, &gx[0].view, &gresidual[0].view, NULL, NULL, &whole.view,
                                                      NULL, &r.x.view, out, &r.weight.view, &r.mean.view,
                                                      &r.invstd.view));
            expect_ok(tables[isa].batch_norm_backward(0, &p, &gx[1].view, &part.view, NULL, NULL, &part.view,
                                                      &part.view, &r.x.view, out, &r.weight.view, &r.mean.view,
                                                      &r.invstd.view));
            expect_same_numbers(&gx[1], &gx[0], "gx of a gradient that is both parts");
            expect_same_numbers(&part, &gresidual[0], "gresidual over a gradient that is both parts");
            for (int i = 0; i < 2; i++)
                block_free(&gx[i]), block_free(&gresidual[i]), block_free(&gw[i]), block_free(&gb[i]);
            block_free(&part), block_free(&whole);
            run_free(&r);
        }
    }
}

static void empty_batches_write_zeros(void **state)
{
    (void)state;
    static const int64_t shape[4] = {0, 5, 4, 4};
    for (int isa = 0; isa < isa_count(); isa++) {
        run r;
        batch_run(&tables[isa], &r, YK_F32, C_ORDER, C_ORDER, 4, shape, AFFINE, 0);
        double nothing[5] = {0};
        block_expect(&r.gweight, nothing, 0, "gweight");
        block_expect(&r.gbias, nothing, 0, "gbias");
        run_free(&r);
    }
}

typedef struct layer_run {
    block x, out, mean, invstd, weight, bias, gx, gweight, gbias, gout;
} layer_run;

static void layer_make(const yk__backend *table, layer_run *r, yk_dtype dtype, layout order, const int64_t shape[2],
                       bool affine, double offset)
{
    *r = (layer_run){0};
    /* CHANNELS_LAST is C order in two dimensions; HWNC too: they only repeat it. GAPS has rows with gaps. */
    r->x = block_make(dtype, order, 2, shape);
    r->out = block_make(dtype, order, 2, shape);
    r->gx = block_make(dtype, order, 2, shape);
    r->gout = block_make(dtype, order, 2, shape);
    r->mean = block_make(dtype, order, 1, shape);
    r->invstd = block_make(dtype, order, 1, shape);
    block_randomize(&r->x, 1, 2, offset);
    block_randomize(&r->gout, 2, 1, 0.5);
    block *vectors[] = {&r->weight, &r->bias, &r->gweight, &r->gbias};
    for (int i = 0; affine && i < 4; i++) {
        *vectors[i] = block_make(dtype, order, 1, shape + 1);
        block_randomize(vectors[i], (uint64_t)i + 5, 1, 0.5);
    }
    expect_ok(table->layer_norm(0, eps, &r->out.view, &r->mean.view, &r->invstd.view, &r->x.view,
                                block_view(&r->weight), block_view(&r->bias)));
    expect_ok(table->layer_norm_backward(0, &r->gx.view, block_view(&r->gweight), block_view(&r->gbias), &r->gout.view,
                                         &r->x.view, block_view(&r->weight), &r->mean.view, &r->invstd.view));
}

static void layer_free(layer_run *r)
{
    block *blocks = (block *)r;
    for (size_t i = 0; i < sizeof(*r) / sizeof(block); i++)
        block_free(&blocks[i]);
}

static void layer_check(const yk__backend *table, yk_dtype dtype, layout order, const int64_t shape[2], bool affine,
                        double offset, double bound, double grad_bound)
{
    layer_run r;
    layer_make(table, &r, dtype, order, shape, affine, offset);
    int64_t rows = shape[0], width = shape[1];
    double *values = calloc((size_t)(2 * rows * width + 2 * width + 2 * rows), sizeof(double));
    assert_non_null(values);
    double *out = values, *gx = out + rows * width, *gweight = gx + rows * width, *gbias = gweight + width;
    double *means = gbias + width, *invstds = means + rows;
    for (int64_t m = 0; m < rows; m++) {
        double mean = 0, var = 0, s1 = 0, s2 = 0;
        for (int64_t i = 0; i < width; i++)
            mean += block_get(&r.x, m * width + i) / (double)width;
        for (int64_t i = 0; i < width; i++)
            var += pow(block_get(&r.x, m * width + i) - mean, 2) / (double)width;
        double invstd = 1 / sqrt(var + eps);
        for (int64_t i = 0; i < width; i++) {
            double e = (block_get(&r.x, m * width + i) - mean) * invstd, g = block_get(&r.gout, m * width + i);
            double weight = affine ? block_get(&r.weight, i) : 1;
            out[m * width + i] = e * weight + (affine ? block_get(&r.bias, i) : 0);
            gweight[i] += g * e;
            gbias[i] += g;
            s1 += g * weight / (double)width;
            s2 += g * weight * e / (double)width;
        }
        for (int64_t i = 0; i < width; i++) {
            double e = (block_get(&r.x, m * width + i) - mean) * invstd, g = block_get(&r.gout, m * width + i);
            gx[m * width + i] = (g * (affine ? block_get(&r.weight, i) : 1) - s1 - e * s2) * invstd;
        }
        means[m] = mean;
        invstds[m] = invstd;
    }
    block_expect(&r.out, out, bound, "out");
    block_expect(&r.mean, means, bound, "mean");
    block_expect(&r.invstd, invstds, bound, "invstd");
    block_expect(&r.gx, gx, grad_bound, "gx");
    if (affine) {
        block_expect(&r.gweight, gweight, grad_bound, "gweight");
        block_expect(&r.gbias, gbias, grad_bound, "gbias");
    }
    free(values);
    layer_free(&r);
}

static void layer_norm_matches_the_reference(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{1, 8}, {5, 1}, {3, 7}, {10, 64}, {33, 100}, {400, 257}, {7, 3000}, {0, 5}};
    for (int isa = 0; isa < isa_count(); isa++) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            for (int order = 0; order < LAYOUTS; order++) {
                for (int affine = 0; affine < 2; affine++) {
                    /* one value per row is normalised to 0: nothing but rounding to compare */
                    double bound = sizes[i][1] == 1 ? 1e-4 : 5e-7;
                    layer_check(&tables[isa], YK_F32, order, sizes[i], affine, 0.25, bound, bound * 4);
                    layer_check(&tables[isa], YK_F64, order, sizes[i], affine, 0.25, bound * 1e-7, bound * 4e-7);
                }
            }
        }
        static const int64_t large[2] = {6, 768};
        layer_check(&tables[isa], YK_F32, C_ORDER, large, true, 1000, 5e-7, 5e-5); /* backward has the mean in float */
    }
}

static void threads_do_not_change_a_bit(void **state)
{
    (void)state;
    static const int64_t shape[4] = {61, 48, 17, 13}, rows[2] = {900, 130};
    int before = yk_get_num_threads((yk_device){0});
    for (int isa = 0; isa < isa_count(); isa++) {
        for (int order = 0; order < LAYOUTS; order++) {
            run one, more;
            layer_run layer_one, layer_more;
            expect_ok(yk_set_num_threads((yk_device){0}, 1));
            batch_run(&tables[isa], &one, YK_F32, order, order, 4, shape, AFFINE | RESIDUAL | RELU, 0);
            layer_make(&tables[isa], &layer_one, YK_F32, order, rows, true, 0);
            for (int threads = 2; threads <= 3; threads++) {
                expect_ok(yk_set_num_threads((yk_device){0}, threads));
                batch_run(&tables[isa], &more, YK_F32, order, order, 4, shape, AFFINE | RESIDUAL | RELU, 0);
                layer_make(&tables[isa], &layer_more, YK_F32, order, rows, true, 0);
                block *a = (block *)&one, *b = (block *)&more;
                for (size_t i = 0; i < sizeof(run) / sizeof(block); i++)
                    block_expect_same_bits(&a[i], &b[i], layout_names[order]);
                a = (block *)&layer_one, b = (block *)&layer_more;
                for (size_t i = 0; i < sizeof(layer_run) / sizeof(block); i++)
                    block_expect_same_bits(&a[i], &b[i], "layer norm");
                run_free(&more);
                layer_free(&layer_more);
            }
            run_free(&one);
            layer_free(&layer_one);
        }
    }
    expect_ok(yk_set_num_threads((yk_device){0}, before));
}

static void the_table_has_them(void **state)
{
    (void)state;
    const yk__backend *table = yk__backend_of((yk_device){0});
    assert_non_null(table);
    batch_check(table, YK_F32, BATCH_INNER, BATCH_INNER, 4, shapes[0].shape, AFFINE | RELU | RESIDUAL, 0, 5e-7);
    layer_check(table, YK_F32, C_ORDER, (int64_t[]){4, 50}, true, 0, 5e-7, 2e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batch_norm_matches_the_reference),
        cmocka_unit_test(a_large_mean_keeps_the_variance),
        cmocka_unit_test(an_outlier_in_front_costs_no_digits),
        cmocka_unit_test(relu_passes_nan),
        cmocka_unit_test(parts_of_the_backward),
        cmocka_unit_test(gradient_in_two_parts),
        cmocka_unit_test(empty_batches_write_zeros),
        cmocka_unit_test(layer_norm_matches_the_reference),
        cmocka_unit_test(threads_do_not_change_a_bit),
        cmocka_unit_test(the_table_has_them),
    };
    return cmocka_run_group_tests_name("norm", tests, fill_tables, NULL);
}
