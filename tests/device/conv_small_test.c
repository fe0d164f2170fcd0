/* conv_small_test.c - the direct convolution for few channels, on every instruction set, against float64 loops. */
#include "tests/device/blocks.h"

#define DECLARE_SMALL(isa, A)                                                                                          \
    bool yk__conv_small_applies_##isa(const yk__conv2d *p, const yk__view *x, const yk__view *w, const yk__view *out); \
    yk_status yk__conv_small_forward_##isa(int device, const yk__conv2d *p, const yk__view *out, const yk__view *x,    \
                                           const yk__view *w, const yk__view *bias);                                   \
    yk_status yk__conv_small_backward_input_##isa(int device, const yk__conv2d *p, const yk__view *gx,                 \
                                                  const yk__view *gout, const yk__view *w);                            \
    yk_status yk__conv_small_backward_weight_##isa(int device, const yk__conv2d *p, const yk__view *gw,                \
                                                   const yk__view *gbias, const yk__view *gout, const yk__view *x);
#define USE_SMALL(isa, A)                                                                                              \
    [YK__LEVEL_##isa] = {yk__conv_small_applies_##isa, yk__conv_small_forward_##isa,                                   \
                         yk__conv_small_backward_input_##isa, yk__conv_small_backward_weight_##isa},

typedef struct small_kernels {
    bool (*applies)(const yk__conv2d *p, const yk__view *x, const yk__view *w, const yk__view *out);
    yk_status (*forward)(int device, const yk__conv2d *p, const yk__view *out, const yk__view *x, const yk__view *w,
                         const yk__view *bias);
    yk_status (*backward_input)(int device, const yk__conv2d *p, const yk__view *gx, const yk__view *gout,
                                const yk__view *w);
    yk_status (*backward_weight)(int device, const yk__conv2d *p, const yk__view *gw, const yk__view *gbias,
                                 const yk__view *gout, const yk__view *x);
} small_kernels;

YK__ISAS(DECLARE_SMALL, )
static const small_kernels kernels[YK__LEVELS] = {YK__ISAS(USE_SMALL, )};

static int set_up(void **state)
{
    (void)state;
    assert_non_null(yk__backend_of((yk_device){0})); /* sets up the devices */
    return 0;
}

typedef struct conv_case {
    int64_t n, c, h, w, o, kh, kw, ph, pw;
} conv_case;

static const conv_case cases[] = {
    {4, 1, 28, 28, 6, 5, 5, 0, 0},  /* LeNet, FashionMNIST */
    {4, 6, 12, 12, 16, 5, 5, 0, 0}, /* LeNet */
    {3, 3, 32, 32, 6, 5, 5, 0, 0},  /* LeNet, CIFAR */
    {2, 6, 14, 14, 16, 5, 5, 0, 0}, /* LeNet, CIFAR: 10 wide, no whole number of vectors */
    {75, 1, 9, 8, 2, 3, 3, 1, 1},   /* more images than blocks */
    {140, 2, 6, 6, 17, 3, 3, 1, 1}, /* the same with output channels in the lanes */
    {3, 2, 7, 9, 5, 3, 3, 1, 1},    {2, 3, 6, 5, 20, 4, 7, 3, 6},   {1, 1, 1, 1, 1, 3, 3, 1, 1},
    {5, 17, 5, 3, 4, 2, 1, 1, 0},   {2, 3, 32, 32, 32, 3, 3, 1, 1}, {2, 3, 9, 40, 12, 1, 6, 0, 2},
    {1, 31, 3, 3, 16, 3, 3, 2, 0},  {2, 4, 5, 2, 3, 2, 7, 1, 6},    {1, 2, 7, 7, 32, 7, 7, 0, 0},
    {2, 16, 4, 130, 1, 3, 2, 2, 1},
};
enum { CASES = sizeof(cases) / sizeof(cases[0]) };

typedef struct conv_run {
    block x, w, bias, out, gout, gx, gw, gbias;
} conv_run;

static yk__conv2d params(const conv_case *c)
{
    return (yk__conv2d){.stride = {1, 1}, .padding = {c->ph, c->pw}, .dilation = {1, 1}, .groups = 1};
}

static void conv_make(conv_run *r, const conv_case *c, bool bias)
{
    int64_t x[4] = {c->n, c->c, c->h, c->w}, w[4] = {c->o, c->c, c->kh, c->kw};
    int64_t out[4] = {c->n, c->o, c->h + 2 * c->ph - c->kh + 1, c->w + 2 * c->pw - c->kw + 1};
    *r = (conv_run){.x = block_make(YK_F32, C_ORDER, 4, x),
                    .w = block_make(YK_F32, C_ORDER, 4, w),
                    .out = block_make(YK_F32, C_ORDER, 4, out),
                    .gout = block_make(YK_F32, C_ORDER, 4, out),
                    .gx = block_make(YK_F32, C_ORDER, 4, x),
                    .gw = block_make(YK_F32, C_ORDER, 4, w)};
    if (bias) { /* vectors with gaps: the kernel must use their strides */
        r->bias = block_make(YK_F32, GAPS, 1, &c->o);
        r->gbias = block_make(YK_F32, GAPS, 1, &c->o);
        block_randomize(&r->bias, 4, 1, 0);
    }
    block_randomize(&r->x, 1, 1, 0.1);
    block_randomize(&r->w, 2, 1, 0);
    block_randomize(&r->gout, 3, 1, 0.1);
}

static void conv_free(conv_run *r)
{
    block *blocks = (block *)r;
    for (size_t i = 0; i < sizeof(*r) / sizeof(block); i++)
        block_free(&blocks[i]);
}

static void conv_call(const small_kernels *k, const yk__conv2d *p, conv_run *r)
{
    assert_true(k->applies(p, &r->x.view, &r->w.view, &r->out.view));
    expect_ok(k->forward(0, p, &r->out.view, &r->x.view, &r->w.view, block_view(&r->bias)));
    expect_ok(k->backward_input(0, p, &r->gx.view, &r->gout.view, &r->w.view));
    expect_ok(k->backward_weight(0, p, &r->gw.view, block_view(&r->gbias), &r->gout.view, &r->x.view));
}

static void conv_check(const conv_run *r, const conv_case *c)
{
    int64_t oh = r->out.view.shape[2], ow = r->out.view.shape[3], taps = c->c * c->kh * c->kw;
    double *x = block_read(&r->x), *w = block_read(&r->w), *gout = block_read(&r->gout);
    double *out = calloc((size_t)(r->out.count + r->x.count + r->w.count + c->o), sizeof(double));
    assert_non_null(out);
    double *gx = out + r->out.count, *gw = gx + r->x.count, *gbias = gw + r->w.count;
    for (int64_t i = 0; i < r->out.count; i++) {
        int64_t ox = i % ow, oy = i / ow % oh, o = i / ow / oh % c->o, n = i / ow / oh / c->o;
        out[i] = r->bias.memory ? block_get(&r->bias, o) : 0;
        gbias[o] += gout[i];
        for (int64_t t = 0; t < taps; t++) {
            int64_t kx = t % c->kw, ky = t / c->kw % c->kh, channel = t / c->kw / c->kh;
            int64_t iy = oy + ky - c->ph, ix = ox + kx - c->pw;
            if (iy < 0 || ix < 0 || iy >= c->h || ix >= c->w)
                continue;
            int64_t at = ((n * c->c + channel) * c->h + iy) * c->w + ix;
            out[i] += x[at] * w[o * taps + t];
            gx[at] += gout[i] * w[o * taps + t];
            gw[o * taps + t] += gout[i] * x[at];
        }
    }
    block_expect(&r->out, out, 1e-6, "out");
    block_expect(&r->gx, gx, 1e-6, "gx");
    block_expect(&r->gw, gw, 1e-6, "gw");
    if (r->gbias.memory)
        block_expect(&r->gbias, gbias, 1e-6, "gbias");
    free(x), free(w), free(gout), free(out);
}

static void matches_the_reference(void **state)
{
    (void)state;
    for (int isa = 0; isa < isa_count(); isa++) {
        for (int i = 0; i < CASES; i++) {
            for (int bias = 0; bias < 2; bias++) {
                conv_run r;
                conv_make(&r, &cases[i], bias);
                yk__conv2d p = params(&cases[i]);
                conv_call(&kernels[isa_level(isa)], &p, &r);
                conv_check(&r, &cases[i]);
                conv_free(&r);
            }
        }
    }
}

/* An image's numbers beyond its last position must not leak into the next image or the sums. */
static void infinities_stay_where_they_belong(void **state)
{
    (void)state;
    for (int isa = 0; isa < isa_count(); isa++) {
        conv_case c = {2, 2, 9, 9, 5, 3, 3, 0, 0};
        conv_run r;
        conv_make(&r, &c, false);
        yk__conv2d p = params(&c);
        block_set(&r.x, 2 * 81 - 1, (double)INFINITY); /* the last corner of image 0: one output, one tap of gw */
        conv_call(&kernels[isa_level(isa)], &p, &r);
        for (int64_t i = 0; i < r.out.count; i++)
            assert_int_equal(isfinite(block_get(&r.out, i)) != 0, !(i % 49 == 48 && i < 5 * 49));
        for (int64_t i = 0; i < r.gw.count; i++)
            assert_int_equal(isfinite(block_get(&r.gw, i)) != 0, i % 18 != 17);
        conv_free(&r);
    }
}

static void applies_only_where_it_works(void **state)
{
    (void)state;
    conv_case c = cases[1];
    for (int isa = 0; isa < isa_count(); isa++) {
        conv_run r;
        conv_make(&r, &c, false);
        bool (*applies)(const yk__conv2d *, const yk__view *, const yk__view *, const yk__view *) =
            kernels[isa_level(isa)].applies;
        yk__conv2d p = params(&c), q = p;
        assert_true(applies(&p, &r.x.view, &r.w.view, &r.out.view));
        q.stride[1] = 2;
        assert_false(applies(&q, &r.x.view, &r.w.view, &r.out.view));
        q = p, q.dilation[0] = 2;
        assert_false(applies(&q, &r.x.view, &r.w.view, &r.out.view));
        q = p, q.groups = 2;
        assert_false(applies(&q, &r.x.view, &r.w.view, &r.out.view));
        q = p, q.padding[0] = 5;
        assert_false(applies(&q, &r.x.view, &r.w.view, &r.out.view));
        yk__view *views[] = {&r.x.view, &r.w.view, &r.out.view};
        for (int i = 0; i < 3; i++) {
            int64_t before = views[i]->stride[2];
            views[i]->stride[2]++;
            assert_false(applies(&p, &r.x.view, &r.w.view, &r.out.view));
            views[i]->stride[2] = before;
        }
        r.x.view.dtype = r.w.view.dtype = r.out.view.dtype = YK_F64;
        assert_false(applies(&p, &r.x.view, &r.w.view, &r.out.view));
        conv_free(&r);
    }
}

static void threads_do_not_change_a_bit(void **state)
{
    (void)state;
    int before = yk_get_num_threads((yk_device){0});
    static const conv_case large[] = {{70, 1, 28, 28, 6, 5, 5, 0, 0}, {70, 6, 12, 12, 16, 5, 5, 2, 1}};
    for (int isa = 0; isa < isa_count(); isa++) {
        for (int i = 0; i < 2; i++) {
            conv_run one, more;
            yk__conv2d p = params(&large[i]);
            conv_make(&one, &large[i], true);
            expect_ok(yk_set_num_threads((yk_device){0}, 1));
            conv_call(&kernels[isa_level(isa)], &p, &one);
            for (int threads = 2; threads <= 3; threads++) {
                expect_ok(yk_set_num_threads((yk_device){0}, threads));
                conv_make(&more, &large[i], true);
                conv_call(&kernels[isa_level(isa)], &p, &more);
                block_expect_same_bits(&one.out, &more.out, "out");
                block_expect_same_bits(&one.gx, &more.gx, "gx");
                block_expect_same_bits(&one.gw, &more.gw, "gw");
                block_expect_same_bits(&one.gbias, &more.gbias, "gbias");
                conv_free(&more);
            }
            conv_free(&one);
        }
    }
    expect_ok(yk_set_num_threads((yk_device){0}, before));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_the_reference),
        cmocka_unit_test(infinities_stay_where_they_belong),
        cmocka_unit_test(applies_only_where_it_works),
        cmocka_unit_test(threads_do_not_change_a_bit),
    };
    return cmocka_run_group_tests_name("conv_small", tests, set_up, NULL);
}
