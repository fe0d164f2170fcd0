/*
 * The slots sgd, adam and descend: PyTorch's parameters after several steps, in every layout, alone and among other
 * tensors; f32 against f64; large groups on 1, 2 and 3 threads.
 */
#include "device/optimizer_math.h"
#include "tests/support/views.h"

#include "tests/golden/optimizers_golden.h"

/* Element i of a tensor takes the part of element i mod GOLDEN_SIZE of the golden run. */
static void set_gradients(const yk__view *g, int step)
{
    for (int64_t i = 0, n = view_count(g); i < n; i++)
        view_set(g, i, ((step * 7 + (int)(i % GOLDEN_SIZE) * 5) % 11 - 5) / 8.0);
}

enum { TENSORS = 5, STATES = 3 };
static const struct {
    int ndim;
    int64_t shape[3];
} shapes[TENSORS] = {{1, {5}}, {3, {2, 7, 5}}, {0, {0}}, {2, {0, 5}}, {2, {61, 5}}};

typedef struct group {
    yk__view params[TENSORS], grads[TENSORS], state[STATES][TENSORS];
} group;

static void group_make(group *g, yk_dtype dtype, int layout)
{
    for (int t = 0; t < TENSORS; t++) {
        /* Equal layouts make one linear pass; a gradient of another layout, or gaps, do not. */
        int grad_layout = layout < LAYOUTS ? layout : (layout + t) % INPUT_LAYOUTS;
        g->params[t] = view_make(dtype, shapes[t].ndim, shapes[t].shape, layout % LAYOUTS);
        g->grads[t] = view_make(dtype, shapes[t].ndim, shapes[t].shape, grad_layout % LAYOUTS);
        for (int64_t i = 0, n = view_count(&g->params[t]); i < n; i++)
            view_set(&g->params[t], i, golden_start[i % GOLDEN_SIZE]);
        for (int k = 0; k < STATES; k++) {
            g->state[k][t] = view_make(dtype, shapes[t].ndim, shapes[t].shape, layout % LAYOUTS);
            for (int64_t i = 0, n = view_count(&g->params[t]); i < n; i++)
                view_set(&g->state[k][t], i, 0);
        }
    }
}

static void group_clear(group *g)
{
    for (int t = 0; t < TENSORS; t++) {
        view_free(&g->params[t]);
        view_free(&g->grads[t]);
        for (int k = 0; k < STATES; k++)
            view_free(&g->state[k][t]);
    }
}

static void group_check(const group *g, const double *after, double epsilon)
{
    for (int t = 0; t < TENSORS; t++)
        for (int64_t i = 0, n = view_count(&g->params[t]); i < n; i++)
            expect_near(view_get(&g->params[t], i), after[i % GOLDEN_SIZE], epsilon, epsilon);
}

static void test_sgd(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++)
        for (int layout = 0; layout < 2 * LAYOUTS; layout++)
            for (size_t k = 0; k < sizeof golden_sgd / sizeof golden_sgd[0]; k++) {
                group g;
                group_make(&g, t ? YK_F64 : YK_F32, layout);
                for (int step = 0; step < GOLDEN_STEPS; step++) {
                    yk__sgd p = golden_sgd[k].p;
                    p.first = step == 0;
                    for (int i = 0; i < TENSORS; i++) {
                        set_gradients(&g.grads[i], step);
                        if (step == 0 && view_count(&g.state[0][i]))
                            view_set(&g.state[0][i], 0, NAN); /* not read in the first step */
                    }
                    expect_ok(
                        cpu_backend()->sgd(0, &p, TENSORS, g.params, g.grads, p.momentum != 0 ? g.state[0] : NULL));
                }
                group_check(&g, golden_sgd[k].after, t ? 1e-14 : 1e-6);
                group_clear(&g);
            }
}

static void test_adam(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++)
        for (int layout = 0; layout < 2 * LAYOUTS; layout++)
            for (size_t k = 0; k < sizeof golden_adam / sizeof golden_adam[0]; k++) {
                group g;
                group_make(&g, t ? YK_F64 : YK_F32, layout);
                for (int step = 0; step < GOLDEN_STEPS; step++) {
                    yk__adam p = golden_adam[k].p;
                    p.step = step + 1;
                    for (int i = 0; i < TENSORS; i++)
                        set_gradients(&g.grads[i], step);
                    expect_ok(cpu_backend()->adam(0, &p, TENSORS, g.params, g.grads, g.state[0], g.state[1],
                                                  p.amsgrad ? g.state[2] : NULL));
                }
                group_check(&g, golden_adam[k].after, t ? 1e-13 : 2e-6);
                group_clear(&g);
            }
}

/* More tensors than are laid end to end at once, of sizes that straddle the pieces, beside one with a strided grad. */
static void test_many_tensors(void **state)
{
    (void)state;
    enum { MANY = 600 };
    static yk__view params[4][MANY], grads[MANY], mean[4][MANY], square[4][MANY];
    yk__adam p = {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1, .step = 1};
    yk__sgd s = {.lr = 0.5, .momentum = 0.9, .weight_decay = 0.1};
    for (int i = 0; i < MANY; i++) {
        int64_t shape[] = {i == 300 ? 70000 : i % 7, i % 5 + 1};
        grads[i] = view_make(i % 11 ? YK_F32 : YK_F64, 2, shape, i == 301 ? LAYOUT_GAPS : LAYOUT_C);
        view_random(&grads[i], (uint32_t)i, -1, 1);
        for (int threads = 1; threads <= 3; threads++) {
            params[threads][i] = view_make(grads[i].dtype, 2, shape, LAYOUT_C);
            mean[threads][i] = view_make(grads[i].dtype, 2, shape, LAYOUT_C);
            square[threads][i] = view_make(grads[i].dtype, 2, shape, LAYOUT_C);
            view_random(&params[threads][i], (uint32_t)i + 1000, -1, 1);
            view_random(&mean[threads][i], (uint32_t)i + 2000, -1, 1);
            view_random(&square[threads][i], (uint32_t)i + 3000, 0, 1);
        }
    }
    for (int threads = 1; threads <= 3; threads++) {
        use_threads(threads);
        expect_ok(cpu_backend()->adam(0, &p, MANY, params[threads], grads, mean[threads], square[threads], NULL));
        expect_ok(cpu_backend()->sgd(0, &s, MANY, params[threads], grads, mean[threads]));
    }
    use_threads(1);
    for (int i = 0; i < MANY; i++) {
        assert_true(view_same_bits(&params[1][i], &params[2][i]) && view_same_bits(&params[1][i], &params[3][i]));
        for (int64_t e = 0, n = view_count(&grads[i]); e < n; e += 1 + n / 50) {
            /* The result of the two steps from the start, in double. */
            uint32_t words[4];
            double start[3];
            for (int k = 0; k < 3; k++) {
                yk__philox((yk__stream){(uint32_t)i + 1000 * (uint32_t)(k + 1), YK__RANDOM_TEST, 0}, (uint64_t)e,
                           words);
                start[k] = (k == 2 ? 0 : -1) + (k == 2 ? 1 : 2) * yk__unit_double(words[0], words[1]);
            }
            double x = start[0], g = view_get(&grads[i], e), d = g + 0.1 * x;
            double m = 0.9 * start[1] + 0.1 * d, v = 0.99 * start[2] + 0.01 * d * d;
            x -= 0.1 / (1 - 0.9) * m / (sqrt(v) / sqrt(1 - 0.99) + 1e-8);
            x -= 0.5 * (0.9 * m + g + 0.1 * x);
            expect_near(view_get(&params[1][i], e), x, 2e-6, 2e-6);
        }
    }
    for (int i = 0; i < MANY; i++) {
        view_free(&grads[i]);
        for (int threads = 1; threads <= 3; threads++) {
            view_free(&params[threads][i]);
            view_free(&mean[threads][i]);
            view_free(&square[threads][i]);
        }
    }
}

/* The rate and the step's number read from memory: the bits of the same numbers given by value, whatever the step. */
static void test_step_state(void **state)
{
    (void)state;
    static const int64_t first_steps[] = {1, 2, 999, 123456789};
    for (int t = 0; t < 2; t++)
        for (int kind = 0; kind < 3; kind++)
            for (int from = 0; from < 4; from++) {
                group by_value, by_memory;
                group_make(&by_value, t ? YK_F64 : YK_F32, 0);
                group_make(&by_memory, t ? YK_F64 : YK_F32, 0);
                yk__step_state now = {.step = first_steps[from]};
                for (int step = 0; step < 6; step++) {
                    double lr = 0.1 / (step + 1);
                    yk__sgd s = {.lr = lr, .momentum = 0.9, .weight_decay = 0.01, .first = now.step == 1};
                    yk__adam a = {.lr = lr,
                                  .beta1 = 0.9,
                                  .beta2 = 0.999,
                                  .eps = 1e-8,
                                  .weight_decay = 0.01,
                                  .decoupled = kind == 2,
                                  .amsgrad = kind == 2,
                                  .step = now.step};
                    int32_t skip = step == 3;
                    for (int memory = 0; memory < 2; memory++) {
                        group *g = memory ? &by_memory : &by_value;
                        if (memory) {
                            now.lr = lr;
                            s.state = a.state = &now;
                            s.skip = a.skip = &skip;
                            s.lr = a.lr = NAN;
                            s.first = !s.first;
                            a.step = -1;
                        } else if (skip) {
                            continue;
                        }
                        for (int i = 0; i < TENSORS; i++)
                            set_gradients(&g->grads[i], step);
                        if (kind)
                            expect_ok(cpu_backend()->adam(0, &a, TENSORS, g->params, g->grads, g->state[0], g->state[1],
                                                          a.amsgrad ? g->state[2] : NULL));
                        else
                            expect_ok(cpu_backend()->sgd(0, &s, TENSORS, g->params, g->grads, g->state[0]));
                    }
                    expect_ok(cpu_backend()->step_advance(0, &now, &skip));
                }
                assert_int_equal(now.step, first_steps[from] + 5);
                for (int i = 0; i < TENSORS; i++) {
                    assert_true(view_same_bits(&by_value.params[i], &by_memory.params[i]));
                    assert_true(view_same_bits(&by_value.state[0][i], &by_memory.state[0][i]));
                }
                group_clear(&by_value);
                group_clear(&by_memory);
            }
}

/* The slot `descend` for all tensors of a group. */
static void descend(const yk__descent *p, const group *g)
{
    expect_ok(cpu_backend()->descend(
        0, p, TENSORS, g->params, g->grads, g->state[0],
        p->rule == YK__ADAGRAD || (p->rule == YK__RMSPROP && p->momentum == 0) ? NULL : g->state[1],
        p->centered ? g->state[2] : NULL));
}

/* Every rule: the bits of tensors in one run of memory in all other layouts, with the numbers by value and in memory;
 * a step that is to be skipped changes nothing. PyTorch's values are descent_test.c's business. */
static void test_rules(void **state)
{
    (void)state;
    for (int variant = 0; variant < 2 * (YK__RULES + 3); variant++) {
        int kind = variant / 2;
        yk_dtype dtype = variant & 1 ? YK_F64 : YK_F32;
        group plain;
        group_make(&plain, dtype, 0);
        yk__descent p = {.rule = kind < YK__RULES ? (yk__rule)kind : YK__RMSPROP,
                         .momentum = kind == YK__RULES || kind == YK__RULES + 1 ? 0.5 : 0,
                         .centered = kind > YK__RULES,
                         .rho = 0.9,
                         .beta1 = 0.8,
                         .beta2 = 0.75,
                         .eps = 1e-6,
                         .weight_decay = 0.01,
                         .lr_decay = 0.1,
                         .fade = 0.75,
                         .decoupled = variant & 1};
        for (int layout = 0; layout < 2 * LAYOUTS; layout++) {
            group g;
            group_make(&g, dtype, layout);
            yk__step_state now = {.step = 1};
            for (int step = 0; step < 6; step++) {
                int32_t skip = step == 3;
                p.maximize = step & 1;
                p.lr = 0.1 / (step + 1), p.step = now.step, p.state = NULL, p.skip = &skip;
                if (layout & 1) {
                    now.lr = p.lr, p.lr = NAN, p.step = -1;
                    p.state = &now;
                }
                for (int i = 0; i < TENSORS; i++)
                    set_gradients(&g.grads[i], step);
                descend(&p, &g);
                expect_ok(cpu_backend()->step_advance(0, &now, &skip));
            }
            assert_int_equal(now.step, 6);
            for (int i = 0; i < TENSORS; i++) {
                for (int64_t e = 0, n = view_count(&g.params[i]); e < n; e++) {
                    double was = golden_start[e % GOLDEN_SIZE], is = view_get(&g.params[i], e);
                    assert_true(isfinite(is) && is != was);
                    if (layout == 0)
                        view_set(&plain.params[i], e, is);
                    else if (is != view_get(&plain.params[i], e))
                        fail_msg("rule %d, layout %d: tensor %d, element %lld differs", kind, layout, i, (long long)e);
                }
            }
            group_clear(&g);
        }
        group_clear(&plain);
    }
}

/* NAdam's product of momenta, against all factors in long double. */
static void test_nadam_product(void **state)
{
    (void)state;
    static const double betas[] = {0, 0.5, 0.9, 0.99}, fades[] = {1, 0.99983674, 0.75, 0};
    for (int b = 0; b < 4; b++)
        for (int f = 0; f < 4; f++)
            for (int64_t steps = 1; steps < 5000; steps += 1 + steps / 3) {
                yk__descent p = {.rule = YK__NADAM, .beta1 = betas[b], .fade = fades[f]};
                long double product = 1, fade = 1;
                for (int64_t i = 0; i < steps; i++) {
                    fade *= (long double)fades[f];
                    product *= (long double)betas[b] * (1 - fade / 2);
                }
                expect_near(yk__nadam_product(&p, steps), (double)product, 1e-12, 0x1p-70);
            }
}

/* beta^t within half a unit of the last place and a bit, against long double. */
static void test_power_of_step(void **state)
{
    (void)state;
    static const double bases[] = {0.9, 0.999, 0.99, 0.5, 0, 0.123456789, 1 - 0x1p-30};
    for (size_t b = 0; b < sizeof bases / sizeof bases[0]; b++)
        for (int64_t n = 0; n < 3000; n += 1 + n / 7) {
            long double expected = 1;
            for (int64_t i = 0; i < n; i++)
                expected *= (long double)bases[b];
            double got = yk__power_of_step(bases[b], n);
            /* Rounding of the long double product beside that of the result; below 1e-290 the pair loses its tail. */
            if (expected > 1e-290L)
                expect_near(got, (double)expected, 0x1p-53 + (double)n * 0x1p-64, 0);
        }
}

/* Gradients divided by the scale, in every layout; what is not finite is found wherever it is. */
static void test_unscale(void **state)
{
    (void)state;
    const int64_t shape[] = {61, 5};
    for (int layout = 0; layout < LAYOUTS; layout++)
        for (int t = 0; t < 2; t++)
            for (int bad = 0; bad < 5; bad++) {
                yk__view grads[2];
                yk__scale_state scale = {.scale = 1024, .inverse = 1.0f / 1024};
                for (int k = 0; k < 2; k++) {
                    grads[k] = view_make(t ? YK_F64 : YK_F32, 2, shape, layout);
                    for (int64_t i = 0; i < 305; i++)
                        view_set(&grads[k], i, (double)(i + k) * 512);
                }
                if (bad)
                    view_set(&grads[bad & 1], bad == 4 ? 304 : 7, bad == 1 ? NAN : bad == 2 ? INFINITY : -INFINITY);
                expect_ok(cpu_backend()->unscale(0, 2, grads, &scale));
                assert_int_equal(scale.found, bad != 0);
                for (int k = 0; k < 2; k++) {
                    for (int64_t i = 0; i < 305; i++)
                        if (!bad || !(k == (bad & 1) && i == (bad == 4 ? 304 : 7)))
                            expect_near(view_get(&grads[k], i), (double)(i + k) / 2, 0, 0);
                    view_free(&grads[k]);
                }
            }
    /* One that a float cannot hold is finite in f64. */
    yk__view large = view_make(YK_F64, 2, shape, 0);
    for (int64_t i = 0; i < 305; i++)
        view_set(&large, i, 1e300);
    yk__scale_state scale = {.scale = 2, .inverse = 0.5f};
    expect_ok(cpu_backend()->unscale(0, 1, &large, &scale));
    assert_int_equal(scale.found, 0);
    view_free(&large);
}

static void test_scale_update(void **state)
{
    (void)state;
    const yk__scaling p = {.growth_factor = 2, .backoff_factor = 0.5, .growth_interval = 3};
    static const int found[] = {0, 0, 0, 1, 0, 0, 1, 0, 0, 0};
    static const float scales[] = {64, 64, 128, 64, 64, 64, 32, 32, 32, 64};
    yk__scale_state s = {.scale = 64, .inverse = 1.0f / 64};
    for (int i = 0; i < 10; i++) {
        s.found = found[i];
        expect_ok(cpu_backend()->scale_update(0, &p, &s));
        expect_near((double)s.scale, (double)scales[i], 0, 0);
        expect_near((double)s.inverse, 1 / (double)scales[i], 0, 0);
        assert_int_equal(s.found, 0);
    }
    s.scale = FLT_MAX, s.growth_tracker = 2;
    expect_ok(cpu_backend()->scale_update(0, &p, &s)); /* no scale beyond float */
    expect_near((double)s.scale, (double)FLT_MAX, 0, 0);
    assert_int_equal(s.growth_tracker, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sgd),          cmocka_unit_test(test_adam),          cmocka_unit_test(test_many_tensors),
        cmocka_unit_test(test_step_state),   cmocka_unit_test(test_power_of_step), cmocka_unit_test(test_unscale),
        cmocka_unit_test(test_scale_update), cmocka_unit_test(test_rules),         cmocka_unit_test(test_nadam_product),
    };
    return cmocka_run_group_tests_name("optimizer kernels", tests, NULL, NULL);
}
