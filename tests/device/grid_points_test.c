/*
 * The slots grid_sample and grid_sample_backward: results against sums in f64 that are written otherwise here, the
 * gradient of x by <gx, d> = <gout, result of d>, that of the grid by central differences; f32 near f64; the same bits
 * of every instruction set and for 1, 2 and 3 threads. Points are inside, outside by far, and not a number; images have
 * more points than a block.
 */
#include <math.h>
#include <string.h>

#include "tests/device/isa_tables.h"
#include "tests/support/views.h"

enum { IMAGES = 2, CHANNELS = 3, NONE = 5 /* a point that is not a number */ };

typedef struct sample {
    yk__grid_sampling how;
    int axes, taps;
    int64_t size[3]; /* of the plane, as in x's shape */
    yk__view x, grid, gout;
} sample;

/* Turned back at both ends until it is inside. */
static double reflected(double at, double low, double high)
{
    while (high > low && (at < low || at > high))
        at = at < low ? 2 * low - at : 2 * high - at;
    return high > low ? at : low;
}

static double bounded(const sample *s, double at, int64_t size)
{
    double edge = s->how.align_corners ? 0 : 0.5, last = (double)(size - 1);
    if (s->how.padding == YK__GRID_PADDING_REFLECTION)
        at = reflected(at, -edge, last + edge);
    return s->how.padding == YK__GRID_PADDING_ZEROS ? at : fmin(fmax(at, 0), last);
}

/* The weight of Keys' cubic, with -0.75, at a distance. */
static double cubic(double d)
{
    const double a = -0.75;
    d = fabs(d);
    return d <= 1 ? (a + 2) * d * d * d - (a + 3) * d * d + 1 : d < 2 ? a * (d * d * d - 5 * d * d + 8 * d - 4) : 0;
}

/* The taps of a coordinate along a dimension; those outside have the weight 0. */
static void taps_of(const sample *s, double g, int64_t size, int64_t *at, double *weight)
{
    double n = (double)size, place = s->how.align_corners ? (g + 1) / 2 * (n - 1) : (g + 1) / 2 * n - 0.5;
    if (s->how.mode != YK__GRID_BICUBIC)
        place = bounded(s, place, size);
    double first = s->taps == 1 ? nearbyint(place) : floor(place) - (s->taps == 4);
    for (int k = 0; k < s->taps; k++) {
        double tap = first + k;
        weight[k] = s->taps == 1 ? 1 : s->taps == 2 ? 1 - fabs(place - tap) : cubic(place - tap);
        tap = s->taps == 4 ? bounded(s, tap, size) : tap;
        bool there = tap >= 0 && tap < n;
        at[k] = there ? (int64_t)tap : 0;
        weight[k] = there ? weight[k] : 0;
    }
}

/* The sum of gout times the results at one point of image b, over the channels from c on. */
static double reference(const sample *s, int64_t b, int64_t point, const double g[3], int c, int channels)
{
    int64_t at[3][4], points = view_count(&s->grid) / s->axes / IMAGES, plane = 1;
    double weight[3][4], sum = 0;
    for (int d = 0; d < s->axes; d++) {
        taps_of(s, g[s->axes - 1 - d], s->size[d], at[d], weight[d]);
        plane *= s->size[d];
    }
    for (; channels > 0; c++, channels--) {
        double out = 0;
        for (int i = 0; i < s->taps; i++)
            for (int j = 0; j < s->taps; j++)
                for (int k = 0; k < (s->axes == 3 ? s->taps : 1); k++) {
                    int64_t o = at[0][i] * s->size[1] + at[1][j];
                    double w = weight[0][i] * weight[1][j];
                    if (s->axes == 3) {
                        o = o * s->size[2] + at[2][k];
                        w *= weight[2][k];
                    }
                    out += w * view_get(&s->x, (b * CHANNELS + c) * plane + o);
                }
        sum += out * (s->gout.data ? view_get(&s->gout, (b * CHANNELS + c) * points + point) : 1);
    }
    return sum;
}

typedef struct results {
    yk__view out, gx, ggrid;
} results;

static results run(const yk__backend *table, const sample *s)
{
    results r = {view_make((yk_dtype)s->x.dtype, s->gout.ndim, s->gout.shape, LAYOUT_C),
                 view_make((yk_dtype)s->x.dtype, s->x.ndim, s->x.shape, LAYOUT_C),
                 view_make((yk_dtype)s->x.dtype, s->grid.ndim, s->grid.shape, LAYOUT_C)};
    expect_ok(table->grid_sample(0, &s->how, &r.out, &s->x, &s->grid));
    expect_ok(table->grid_sample_backward(0, &s->how, &r.gx, &r.ggrid, &s->gout, &s->x, &s->grid));
    return r;
}

static void results_free(results *r)
{
    view_free(&r->out);
    view_free(&r->gx);
    view_free(&r->ggrid);
}

static void expect_same(const results *a, const results *b, const char *what)
{
    if (!view_same_bits(&a->out, &b->out) || !view_same_bits(&a->gx, &b->gx) || !view_same_bits(&a->ggrid, &b->ggrid))
        fail_msg("other bits with %s", what);
}

static sample sample_make(yk_dtype dtype, int mode, int padding, bool align, int axes, double reach)
{
    sample s = {.how = {(yk__grid_mode)mode, (yk__grid_padding)padding, align}, .axes = axes};
    s.taps = mode == YK__GRID_NEAREST ? 1 : mode == YK__GRID_BICUBIC ? 4 : 2;
    const int64_t sizes[2][3] = {{7, 9}, {5, 7, 9}}, outs[2][3] = {{37, 31}, {3, 11, 19}};
    int64_t x[5] = {IMAGES, CHANNELS}, grid[5] = {IMAGES}, out[5] = {IMAGES, CHANNELS};
    for (int d = 0; d < axes; d++) {
        s.size[d] = x[2 + d] = sizes[axes - 2][d];
        grid[1 + d] = out[2 + d] = outs[axes - 2][d];
    }
    grid[1 + axes] = axes;
    s.x = view_make(dtype, axes + 2, x, LAYOUT_C);
    s.grid = view_make(dtype, axes + 2, grid, LAYOUT_C);
    s.gout = view_make(dtype, axes + 2, out, LAYOUT_C);
    for (int64_t i = 0; i < view_count(&s.x); i++)
        view_set(&s.x, i, (double)((i * 7919 + 13) % 257 - 128) / 128);
    for (int64_t i = 0; i < view_count(&s.gout); i++)
        view_set(&s.gout, i, (double)((i * 6007 + 5) % 251 - 125) / 128);
    /* Odd parts of 2048 are on no border between elements, in f32 either. */
    for (int64_t i = 0; i < view_count(&s.grid); i++) {
        double g = (double)((i * 7867 + 101) % 4096 - 2048) / 2048 * reach;
        view_set(&s.grid, i, floor(g * 1024) / 1024 + 1.0 / 2048);
    }
    if (reach > 1)
        for (int d = 0; d < axes; d++)
            view_set(&s.grid, NONE * axes + d, d ? 0.25 : (double)NAN);
    return s;
}

static void sample_free(sample *s)
{
    view_free(&s->x);
    view_free(&s->grid);
    view_free(&s->gout);
}

/* f64 against the reference. */
static void check_values(const sample *s, const results *r, const yk__backend *table)
{
    int64_t points = view_count(&s->grid) / s->axes / IMAGES;
    sample plain = *s;
    plain.gout.data = NULL;
    for (int64_t i = 0; i < IMAGES * points; i += i % points < 40 ? 1 : 29) {
        double g[3] = {0};
        for (int d = 0; d < s->axes; d++)
            g[d] = view_get(&s->grid, i * s->axes + d);
        bool none = isnan(g[0]);
        for (int c = 0; c < CHANNELS; c++)
            expect_near(view_get(&r->out, (i / points * CHANNELS + c) * points + i % points),
                        none ? 0 : reference(&plain, i / points, i % points, g, c, 1), 1e-12, 1e-12);
        for (int d = 0; d < s->axes; d++) {
            const double h = 1e-6, at = g[d];
            g[d] = at + h;
            double above = none ? 0 : reference(s, i / points, i % points, g, 0, CHANNELS);
            g[d] = at - h;
            double below = none ? 0 : reference(s, i / points, i % points, g, 0, CHANNELS);
            g[d] = at;
            expect_near(view_get(&r->ggrid, i * s->axes + d), (above - below) / (2 * h), 1e-6, 1e-6);
        }
    }
    /* <gx, d> and <gout, result of d>, which is linear in d. */
    sample other = *s;
    other.x = view_make((yk_dtype)s->x.dtype, s->x.ndim, s->x.shape, LAYOUT_C);
    view_random(&other.x, 3, -1, 1);
    results moved = run(table, &other);
    double left = 0, right = 0;
    for (int64_t i = 0; i < view_count(&other.x); i++)
        left += view_get(&r->gx, i) * view_get(&other.x, i);
    for (int64_t i = 0; i < view_count(&moved.out); i++)
        right += view_get(&moved.out, i) * view_get(&s->gout, i);
    expect_near(left, right, 1e-10, 1e-10);
    results_free(&moved);
    view_free(&other.x);
}

static void check(int mode, int padding, bool align, int axes, double reach)
{
    results first[2];
    for (int narrow = 0; narrow < 2; narrow++) {
        sample s = sample_make(narrow ? YK_F32 : YK_F64, mode, padding, align, axes, reach);
        for (int isa = 0; isa < isa_count(); isa++) {
            yk__backend table = *cpu_backend();
            isa_fill(isa, &table);
            for (int threads = 1; threads <= 3; threads += isa ? 2 : 1) {
                use_threads(threads);
                results r = run(&table, &s);
                if (isa || threads > 1) {
                    expect_same(&first[narrow], &r, isa ? "another instruction set" : "more threads");
                    results_free(&r);
                } else {
                    first[narrow] = r;
                }
            }
        }
        use_threads(1);
        if (!narrow)
            check_values(&s, &first[0], cpu_backend());
        sample_free(&s);
    }
    for (int64_t i = 0; i < view_count(&first[0].out); i++)
        expect_near(view_get(&first[1].out, i), view_get(&first[0].out, i), 1e-4, 1e-4);
    for (int64_t i = 0; i < view_count(&first[0].gx); i++)
        expect_near(view_get(&first[1].gx, i), view_get(&first[0].gx, i), 1e-3, 1e-3);
    for (int64_t i = 0; i < view_count(&first[0].ggrid); i++)
        expect_near(view_get(&first[1].ggrid, i), view_get(&first[0].ggrid, i), 1e-3, 1e-3);
    results_free(&first[0]);
    results_free(&first[1]);
}

static void test_modes(void **state)
{
    (void)state;
    for (int mode = 0; mode < 3; mode++)
        for (int padding = 0; padding < 3; padding++)
            for (int align = 0; align < 2; align++)
                for (int axes = 2; axes <= (mode == YK__GRID_BICUBIC ? 2 : 3); axes++) {
                    check(mode, padding, align, axes, 3);
                    if (!padding)
                        check(mode, padding, align, axes, 0.8);
                }
}

/* A number that is not finite reaches the points that read it, and no other. */
static void test_not_finite(void **state)
{
    (void)state;
    for (int isa = 0; isa < isa_count(); isa++) {
        yk__backend table = *cpu_backend();
        isa_fill(isa, &table);
        sample s = sample_make(YK_F32, YK__GRID_BILINEAR, YK__GRID_PADDING_ZEROS, true, 2, 3);
        for (int64_t i = 0; i < view_count(&s.grid); i++)
            view_set(&s.grid, i, i / 2 % (37 * 31) % 2 ? 1 : 5); /* the last element alone, or none */
        for (int64_t i = 0; i < view_count(&s.x); i++)
            view_set(&s.x, i, i % 63 == 62 ? 3 : INFINITY);
        results r = run(&table, &s);
        for (int64_t i = 0; i < view_count(&r.out); i++)
            assert_true(view_get(&r.out, i) == (i % (37 * 31) % 2 ? 3 : 0));
        results_free(&r);
        sample_free(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_modes),
        cmocka_unit_test(test_not_finite),
    };
    return cmocka_run_group_tests_name("grid_points", tests, NULL, NULL);
}
