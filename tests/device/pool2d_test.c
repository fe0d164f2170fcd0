/* pool2d_test.c - max, average and adaptive average pooling against plain loops in float64. */
#include "tests/device/blocks.h"

static yk__backend tables[YK__LEVELS];

static int fill_tables(void **state)
{
    (void)state;
    assert_non_null(yk__backend_of((yk_device){0})); /* sets up the devices */
    for (int isa = 0; isa < isa_count(); isa++)
        isa_fill(isa, &tables[isa]);
    return 0;
}

typedef struct pool_case {
    int64_t shape[4], kernel[2], stride[2], padding[2], dilation[2];
    bool ceil_mode;
} pool_case;

static const pool_case cases[] = {
    {{4, 6, 24, 24}, {2, 2}, {2, 2}, {0, 0}, {1, 1}, false}, /* LeNet */
    {{2, 16, 8, 8}, {2, 2}, {2, 2}, {0, 0}, {1, 1}, false},  /* LeNet */
    {{3, 2, 9, 7}, {2, 2}, {2, 2}, {0, 0}, {1, 1}, false},   /* an odd row and column left over */
    {{1, 2, 9, 7}, {2, 2}, {2, 2}, {0, 0}, {1, 1}, true},    /* windows over the edge */
    {{3, 2, 10, 8}, {2, 2}, {2, 2}, {0, 0}, {1, 1}, false},  /* several short rows in a vector: not all full */
    {{2, 3, 14, 4}, {2, 2}, {2, 2}, {0, 0}, {1, 1}, false},
    {{2, 3, 18, 2}, {2, 2}, {2, 2}, {0, 0}, {1, 1}, false},
    {{2, 3, 4, 14}, {2, 2}, {2, 2}, {0, 0}, {1, 1}, false},
    {{2, 3, 6, 16}, {2, 2}, {2, 2}, {0, 0}, {1, 1}, false},
    {{2, 1, 6, 70}, {2, 2}, {2, 2}, {0, 0}, {1, 1}, false},   /* rows longer than a vector */
    {{3, 20, 16, 16}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, false}, /* ResNet's stem */
    {{2, 67, 6, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, false},   /* heavy overlap */
    {{2, 3, 11, 12}, {3, 2}, {1, 3}, {1, 0}, {2, 3}, false},  /* dilation, unequal in both directions */
    {{1, 5, 7, 7}, {2, 3}, {3, 4}, {0, 1}, {1, 1}, true},     /* inputs that no window sees */
    {{70, 40, 4, 4}, {5, 4}, {2, 1}, {2, 2}, {1, 1}, false},  /* more than four windows around an input; a long run */
    {{2, 3, 13, 70}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, true},   /* rows in several pieces of lanes */
    {{3, 2, 9, 61}, {2, 5}, {1, 4}, {0, 2}, {2, 7}, false},   /* taps far apart: few outputs in a piece */
    {{2, 2, 3, 90}, {3, 8}, {1, 7}, {1, 3}, {1, 5}, false},   /* as many taps as lanes take; 36 apart */
    {{2, 2, 12, 40}, {9, 9}, {2, 3}, {4, 4}, {1, 1}, false},  /* more than they take */
    {{1, 2, 30, 20}, {11, 3}, {2, 2}, {5, 1}, {1, 1}, false}, /* more rows than are kept */
    {{1, 2, 40, 19}, {9, 2}, {3, 1}, {4, 1}, {2, 1}, true},
    {{2, 3, 20, 17}, {3, 3}, {1, 2}, {1, 1}, {5, 1}, false}, /* rows of a window farther apart than those kept */
    {{1, 3, 7, 300}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, false}, /* two groups of pieces */
    {{3, 7, 14, 14}, {2, 2}, {2, 2}, {0, 0}, {1, 1}, false}, /* averages of two rows at a time, a last one alone */
    {{2, 2, 1, 1}, {1, 1}, {1, 1}, {0, 0}, {1, 1}, false},
    {{0, 3, 8, 8}, {2, 2}, {2, 2}, {0, 0}, {1, 1}, false}, /* an empty batch */
};
enum { CASES = sizeof(cases) / sizeof(cases[0]) };

static int64_t out_size(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation, bool ceil_mode)
{
    int64_t span = in + 2 * padding - dilation * (kernel - 1) - 1;
    int64_t out = (span + (ceil_mode ? stride - 1 : 0)) / stride + 1;
    if (ceil_mode && (out - 1) * stride >= in + padding)
        out--;
    return out;
}

static void out_shape(const pool_case *c, bool dilated, int64_t shape[4])
{
    shape[0] = c->shape[0];
    shape[1] = c->shape[1];
    for (int d = 0; d < 2; d++)
        shape[2 + d] = out_size(c->shape[2 + d], c->kernel[d], c->stride[d], c->padding[d],
                                dilated ? c->dilation[d] : 1, c->ceil_mode);
}

static yk__pool2d params(const pool_case *c, bool dilated)
{
    yk__pool2d p = {
        {c->kernel[0], c->kernel[1]}, {c->stride[0], c->stride[1]}, {c->padding[0], c->padding[1]}, {1, 1}, false, 0};
    for (int d = 0; dilated && d < 2; d++)
        p.dilation[d] = c->dilation[d];
    return p;
}

/* out, index and, for gout, gx in C order; the first of equals wins, or the last NaN. */
static void reference_max(const yk__pool2d *p, const int64_t *in, const int64_t *shape, const double *x,
                          const double *gout, double *out, double *index, double *gx)
{
    memset(gx, 0, (size_t)(in[0] * in[1] * in[2] * in[3]) * sizeof(double));
    for (int64_t o = 0; o < shape[0] * shape[1] * shape[2] * shape[3]; o++) {
        int64_t ox = o % shape[3], oy = o / shape[3] % shape[2], plane = o / shape[3] / shape[2];
        const double *from = x + plane * in[2] * in[3];
        int64_t best = -1;
        for (int64_t k = 0; k < p->kernel[0] * p->kernel[1]; k++) {
            int64_t iy = oy * p->stride[0] - p->padding[0] + k / p->kernel[1] * p->dilation[0];
            int64_t ix = ox * p->stride[1] - p->padding[1] + k % p->kernel[1] * p->dilation[1];
            if (iy < 0 || ix < 0 || iy >= in[2] || ix >= in[3])
                continue;
            int64_t at = iy * in[3] + ix;
            if (best < 0 || from[at] > from[best] || isnan(from[at]))
                best = at;
        }
        out[o] = best < 0 ? (double)-INFINITY : from[best];
        index[o] = (double)best;
        if (best >= 0)
            gx[plane * in[2] * in[3] + best] += gout[o];
    }
}

static double *zeros(int64_t count)
{
    double *values = calloc((size_t)count + 1, sizeof(double));
    assert_non_null(values);
    return values;
}

/* Values from a small set, so that windows hold equals, of which 0 has two signs; now and then a NaN. */
static void fill_ties(block *b, uint64_t seed, bool nan)
{
    uint64_t state = seed;
    for (int64_t i = 0; i < b->count; i++) {
        double v = floor(test_random(&state) * 4);
        v = i % 11 == 3 ? (double)-INFINITY : i % 17 == 2 ? -0.0 : v;
        block_set(b, i, nan && i % 13 == 5 ? (double)NAN : v);
    }
}

static void check_max(const yk__backend *table, const pool_case *c, yk_dtype dtype, layout in_order, layout out_order,
                      layout grad_order, bool nan)
{
    yk__pool2d p = params(c, true);
    int64_t shape[4];
    out_shape(c, true, shape);
    block x = block_make(dtype, in_order, 4, c->shape), gx = block_make(dtype, in_order, 4, c->shape);
    block out = block_make(dtype, out_order, 4, shape), index = block_make(YK_I32, out_order, 4, shape);
    block gout = block_make(dtype, grad_order, 4, shape);
    fill_ties(&x, 5, nan);
    block_randomize(&gout, 6, 1, 0);
    expect_ok(table->max_pool2d(0, &p, &out.view, &index.view, &x.view));
    expect_ok(table->max_pool2d_backward(0, &p, &gx.view, &gout.view, &index.view));
    double *from = block_read(&x), *grad = block_read(&gout);
    double *want = zeros(out.count), *at = zeros(out.count), *want_gx = zeros(x.count);
    reference_max(&p, c->shape, shape, from, grad, want, at, want_gx);
    for (int64_t i = 0; i < out.count; i++) {
        expect_near(block_get(&out, i), want[i], 0, 0);
        expect_near(block_get(&index, i), at[i], 0, 0);
    }
    for (int64_t i = 0; i < x.count; i++)
        expect_near(block_get(&gx, i), want_gx[i], 0, dtype == YK_F32 ? 1e-6 : 1e-15);
    free(from), free(grad), free(want), free(at), free(want_gx);
    block_free(&x), block_free(&gx), block_free(&out), block_free(&index), block_free(&gout);
}

static void max_matches_the_reference(void **state)
{
    (void)state;
    for (int isa = 0; isa < isa_count(); isa++) {
        for (int i = 0; i < CASES; i++) {
            for (int order = 0; order < LAYOUTS; order++) {
                for (int nan = 0; nan < 2; nan++) {
                    check_max(&tables[isa], &cases[i], YK_F32, order, order, order, nan);
                    check_max(&tables[isa], &cases[i], YK_F64, order, order, order, nan);
                }
                /* the gradient comes in another layout than the forward gave */
                check_max(&tables[isa], &cases[i], YK_F32, order, order, (order + 1) % LAYOUTS, false);
                check_max(&tables[isa], &cases[i], YK_F32, order, (order + 2) % LAYOUTS, order, false);
            }
        }
    }
}

static void a_window_without_inputs_is_minus_infinity(void **state)
{
    (void)state;
    pool_case c = {{2, 3, 1, 1}, {2, 2}, {1, 1}, {1, 1}, {2, 2}, false};
    for (int isa = 0; isa < isa_count(); isa++) {
        for (int order = 0; order < LAYOUTS; order++)
            check_max(&tables[isa], &c, YK_F32, order, order, order, false);
    }
}

static void an_expanded_gradient_is_read_by_its_strides(void **state)
{
    (void)state;
    pool_case c = {{2, 16, 6, 6}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, false};
    yk__pool2d p = params(&c, true);
    int64_t shape[4];
    out_shape(&c, true, shape);
    for (int isa = 0; isa < isa_count(); isa++) {
        for (int order = 0; order < LAYOUTS; order++) {
            block x = block_make(YK_F32, order, 4, c.shape), gx = block_make(YK_F32, order, 4, c.shape);
            block out = block_make(YK_F32, order, 4, shape), index = block_make(YK_I32, order, 4, shape);
            float two = 2;
            yk__view gout = {.data = &two, .dtype = YK_F32, .ndim = 4};
            memcpy(gout.shape, shape, sizeof(shape));
            block_randomize(&x, 8, 1, 0);
            expect_ok(tables[isa].max_pool2d(0, &p, &out.view, &index.view, &x.view));
            expect_ok(tables[isa].max_pool2d_backward(0, &p, &gx.view, &gout, &index.view));
            double sum = 0;
            for (int64_t i = 0; i < gx.count; i++)
                sum += block_get(&gx, i);
            expect_near(sum, 2.0 * (double)out.count, 0, 0);
            expect_ok(tables[isa].avg_pool2d_backward(0, &p, &gx.view, &gout));
            sum = 0;
            for (int64_t i = 0; i < gx.count; i++)
                sum += block_get(&gx, i);
            /* 3x3 windows at -1, 1, 3: per axis they see 2 + 3 + 3 inputs */
            expect_near(sum, 2.0 * 2 * 16 * 64 / 9, 1e-5, 0);
            block_free(&x), block_free(&gx), block_free(&out), block_free(&index);
        }
    }
}

/* The windows of one output coordinate; p NULL: adaptive. Gives what the divisor counts. */
static int64_t reference_window(const yk__pool2d *p, int d, int64_t o, int64_t in, int64_t out, int64_t *low,
                                int64_t *high)
{
    if (!p) {
        *low = (int64_t)floor((double)o * (double)in / (double)out);
        *high = (int64_t)ceil((double)(o + 1) * (double)in / (double)out);
        return *high - *low;
    }
    int64_t from = o * p->stride[d] - p->padding[d], to = from + p->kernel[d];
    to = to > in + p->padding[d] ? in + p->padding[d] : to;
    *low = from < 0 ? 0 : from;
    *high = to > in ? in : to;
    return p->count_exclude_pad ? *high - *low : to - from;
}

static void reference_average(const yk__pool2d *p, const int64_t *in, const int64_t *shape, const double *x,
                              const double *gout, double *out, double *gx)
{
    memset(gx, 0, (size_t)(in[0] * in[1] * in[2] * in[3]) * sizeof(double));
    for (int64_t o = 0; o < shape[0] * shape[1] * shape[2] * shape[3]; o++) {
        int64_t ox = o % shape[3], oy = o / shape[3] % shape[2], plane = o / shape[3] / shape[2], y[2], z[2];
        int64_t area = reference_window(p, 0, oy, in[2], shape[2], &y[0], &y[1]);
        area *= reference_window(p, 1, ox, in[3], shape[3], &z[0], &z[1]);
        if (p && p->divisor)
            area = p->divisor;
        out[o] = 0;
        for (int64_t iy = y[0]; iy < y[1]; iy++) {
            for (int64_t ix = z[0]; ix < z[1]; ix++) {
                int64_t at = (plane * in[2] + iy) * in[3] + ix;
                out[o] += x[at] / (double)area;
                gx[at] += gout[o] / (double)area;
            }
        }
    }
}

static void check_average(const yk__backend *table, const yk__pool2d *p, const int64_t in[4], const int64_t shape[4],
                          yk_dtype dtype, layout in_order, layout out_order)
{
    block x = block_make(dtype, in_order, 4, in), gx = block_make(dtype, in_order, 4, in);
    block out = block_make(dtype, out_order, 4, shape), gout = block_make(dtype, out_order, 4, shape);
    block_randomize(&x, 3, 1, 0.25);
    block_randomize(&gout, 4, 1, 0);
    if (p) {
        expect_ok(table->avg_pool2d(0, p, &out.view, &x.view));
        expect_ok(table->avg_pool2d_backward(0, p, &gx.view, &gout.view));
    } else {
        expect_ok(table->adaptive_avg_pool2d(0, &out.view, &x.view));
        expect_ok(table->adaptive_avg_pool2d_backward(0, &gx.view, &gout.view));
    }
    double *from = block_read(&x), *grad = block_read(&gout), *want = zeros(out.count), *want_gx = zeros(x.count);
    reference_average(p, in, shape, from, grad, want, want_gx);
    double bound = dtype == YK_F32 ? 3e-7 : 1e-14;
    block_expect(&out, want, bound, "average");
    block_expect(&gx, want_gx, bound, "gradient of the average");
    free(from), free(grad), free(want), free(want_gx);
    block_free(&x), block_free(&gx), block_free(&out), block_free(&gout);
}

static void average_matches_the_reference(void **state)
{
    (void)state;
    for (int isa = 0; isa < isa_count(); isa++) {
        for (int i = 0; i < CASES; i++) {
            for (int order = 0; order < LAYOUTS; order++) {
                for (int kind = 0; kind < 3; kind++) {
                    yk__pool2d p = params(&cases[i], false);
                    int64_t shape[4];
                    out_shape(&cases[i], false, shape);
                    p.count_exclude_pad = kind == 1;
                    p.divisor = kind == 2 ? 5 : 0;
                    check_average(&tables[isa], &p, cases[i].shape, shape, YK_F32, order, order);
                    check_average(&tables[isa], &p, cases[i].shape, shape, YK_F64, order, (order + 1) % LAYOUTS);
                }
            }
        }
    }
}

static void adaptive_average_matches_the_reference(void **state)
{
    (void)state;
    static const int64_t sizes[][6] = {
        {2, 3, 7, 10, 3, 4},  {3, 64, 4, 4, 1, 1},  {1, 5, 56, 56, 1, 1}, {2, 17, 3, 2, 5, 7},
        {2, 2, 8, 8, 8, 8},   {0, 4, 6, 6, 2, 2},   {3, 1, 9, 9, 1, 1},   {2, 3, 13, 13, 6, 6},
        {2, 1, 5, 50, 3, 33}, {1, 2, 20, 9, 3, 37}, {2, 2, 80, 70, 1, 1}, {2, 3, 6, 40, 4, 1},
        {3, 11, 7, 7, 1, 1},  {2, 9, 3, 4, 1, 1},   {2, 3, 14, 14, 7, 7}, {5, 1, 5, 8, 1, 1},
    };
    for (int isa = 0; isa < isa_count(); isa++) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            int64_t shape[4] = {sizes[i][0], sizes[i][1], sizes[i][4], sizes[i][5]};
            for (int order = 0; order < LAYOUTS; order++) {
                check_average(&tables[isa], NULL, sizes[i], shape, YK_F32, order, order);
                check_average(&tables[isa], NULL, sizes[i], shape, YK_F64, order, order);
            }
        }
    }
}

/* One forward and backward of every pooling at a number of threads, into out[0..6]. */
static void all_at(const yk__backend *table, int threads, layout order, block out[7], block *index)
{
    static const int64_t in[4] = {37, 24, 18, 18}, small[4] = {37, 24, 9, 9}, adaptive[4] = {37, 24, 5, 5},
                         whole[4] = {37, 24, 1, 1};
    yk__pool2d p = {{3, 3}, {2, 2}, {1, 1}, {1, 1}, false, 0};
    expect_ok(yk_set_num_threads((yk_device){0}, threads));
    block x = block_make(YK_F32, order, 4, in), gout = block_make(YK_F32, order, 4, small);
    block gadaptive = block_make(YK_F32, order, 4, adaptive);
    block_randomize(&x, 1, 1, 0);
    block_randomize(&gout, 2, 1, 0);
    block_randomize(&gadaptive, 3, 1, 0);
    for (int i = 0; i < 7; i++)
        out[i] = block_make(YK_F32, order, 4, i % 2 ? in : i < 4 ? small : i < 6 ? adaptive : whole);
    *index = block_make(YK_I32, order, 4, small);
    expect_ok(table->max_pool2d(0, &p, &out[0].view, &index->view, &x.view));
    expect_ok(table->max_pool2d_backward(0, &p, &out[1].view, &gout.view, &index->view));
    expect_ok(table->avg_pool2d(0, &p, &out[2].view, &x.view));
    expect_ok(table->avg_pool2d_backward(0, &p, &out[3].view, &gout.view));
    expect_ok(table->adaptive_avg_pool2d(0, &out[4].view, &x.view));
    expect_ok(table->adaptive_avg_pool2d_backward(0, &out[5].view, &gadaptive.view));
    expect_ok(table->adaptive_avg_pool2d(0, &out[6].view, &x.view));
    block_free(&x), block_free(&gout), block_free(&gadaptive);
}

static void threads_do_not_change_a_bit(void **state)
{
    (void)state;
    int before = yk_get_num_threads((yk_device){0});
    for (int isa = 0; isa < isa_count(); isa++) {
        for (int order = 0; order < LAYOUTS; order++) {
            block one[7], one_index;
            all_at(&tables[isa], 1, order, one, &one_index);
            for (int threads = 2; threads <= 3; threads++) {
                block more[7], more_index;
                all_at(&tables[isa], threads, order, more, &more_index);
                for (int i = 0; i < 7; i++) {
                    block_expect_same_bits(&one[i], &more[i], layout_names[order]);
                    block_free(&more[i]);
                }
                block_expect_same_bits(&one_index, &more_index, "index");
                block_free(&more_index);
            }
            for (int i = 0; i < 7; i++)
                block_free(&one[i]);
            block_free(&one_index);
        }
    }
    expect_ok(yk_set_num_threads((yk_device){0}, before));
}

static void the_table_has_them(void **state)
{
    (void)state;
    const yk__backend *table = yk__backend_of((yk_device){0});
    assert_non_null(table);
    check_max(table, &cases[0], YK_F32, C_ORDER, C_ORDER, C_ORDER, false);
    yk__pool2d p = params(&cases[5], false);
    int64_t shape[4];
    out_shape(&cases[5], false, shape);
    check_average(table, &p, cases[5].shape, shape, YK_F32, BATCH_INNER, BATCH_INNER);
    check_average(table, NULL, cases[5].shape, shape, YK_F32, BATCH_INNER, BATCH_INNER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(max_matches_the_reference),
        cmocka_unit_test(a_window_without_inputs_is_minus_infinity),
        cmocka_unit_test(an_expanded_gradient_is_read_by_its_strides),
        cmocka_unit_test(average_matches_the_reference),
        cmocka_unit_test(adaptive_average_matches_the_reference),
        cmocka_unit_test(threads_do_not_change_a_bit),
        cmocka_unit_test(the_table_has_them),
    };
    return cmocka_run_group_tests_name("pool2d", tests, fill_tables, NULL);
}
