/*
 * The slots cross_entropy and cross_entropy_backward: PyTorch's numbers, the formula in double over shapes and
 * layouts, bad labels, nothing that counts, large logits, and the same bits for 1, 2 and 3 threads.
 */
#include "tests/support/views.h"

#include "tests/golden/cross_entropy_golden.h"

typedef struct loss {
    yk__view x, gx, target, weight, loss, lse, total, gloss;
} loss;

static loss make(yk_dtype dtype, int64_t rows, int64_t classes, int layout)
{
    int64_t shape[] = {rows, classes};
    loss l = {.x = view_make(dtype, 2, shape, layout % INPUT_LAYOUTS),
              .gx = view_make(dtype, 2, shape, layout % LAYOUTS),
              .target = view_make(YK_I64, 1, shape, layout % LAYOUTS),
              .weight = view_make(dtype, 1, shape + 1, layout % LAYOUTS),
              .loss = view_make(dtype, 0, NULL, LAYOUT_C),
              .lse = view_make(dtype, 1, shape, layout % LAYOUTS),
              .total = view_make(dtype, 0, NULL, LAYOUT_C),
              .gloss = view_make(dtype, 0, NULL, LAYOUT_C)};
    view_set(&l.gloss, 0, 1);
    return l;
}

static void clear(loss *l)
{
    yk__view *views[] = {&l->x, &l->gx, &l->target, &l->weight, &l->loss, &l->lse, &l->total, &l->gloss};
    for (size_t i = 0; i < sizeof views / sizeof views[0]; i++)
        view_free(views[i]);
}

static void run(loss *l, const yk__cross_entropy *p, bool weighted)
{
    const yk__view *weight = weighted ? &l->weight : NULL;
    expect_ok(cpu_backend()->cross_entropy(0, p, &l->loss, &l->lse, &l->total, &l->x, &l->target, weight));
    expect_ok(
        cpu_backend()->cross_entropy_backward(0, p, &l->gx, &l->gloss, &l->x, &l->lse, &l->total, &l->target, weight));
}

static void test_golden(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++)
        for (int layout = 0; layout < LAYOUTS; layout++)
            for (size_t k = 0; k < sizeof golden_cross_entropy / sizeof golden_cross_entropy[0]; k++) {
                double epsilon = t ? 1e-14 : 4e-7;
                loss l = make(t ? YK_F64 : YK_F32, GOLDEN_ROWS, GOLDEN_CLASSES, layout);
                for (int i = 0; i < GOLDEN_ROWS * GOLDEN_CLASSES; i++)
                    view_set(&l.x, i, golden_logits[i]);
                for (int i = 0; i < GOLDEN_ROWS; i++)
                    view_set(&l.target, i, golden_targets[i]);
                for (int i = 0; i < GOLDEN_CLASSES; i++)
                    view_set(&l.weight, i, golden_weights[i]);
                run(&l, &golden_cross_entropy[k].p, golden_cross_entropy[k].weighted);
                expect_near(view_get(&l.loss, 0), golden_cross_entropy[k].loss, epsilon, 0);
                for (int i = 0; i < GOLDEN_ROWS * GOLDEN_CLASSES; i++)
                    expect_near(view_get(&l.gx, i), golden_cross_entropy[k].gradient[i], epsilon, epsilon);
                clear(&l);
            }
}

/* The formula of torch.nn.CrossEntropyLoss, summed as it stands. */
static void check(const loss *l, const yk__cross_entropy *p, bool weighted, double epsilon)
{
    int64_t rows = l->x.shape[0], classes = l->x.shape[1];
    double nll = 0, smooth = 0, divisor = 0, weights = 0;
    for (int64_t c = 0; c < classes; c++)
        weights += weighted ? view_get(&l->weight, c) : 1;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < rows; i++) {
            int64_t t = (int64_t)view_get(&l->target, i);
            double sum = 0, most = -INFINITY;
            for (int64_t c = 0; c < classes; c++)
                most = fmax(most, view_get(&l->x, i * classes + c));
            for (int64_t c = 0; c < classes; c++)
                sum += exp(view_get(&l->x, i * classes + c) - most);
            double lse = most + log(sum), scale = p->mean ? 1 / divisor : 1;
            bool counts = t != p->ignore_index;
            double w = !counts ? 0 : weighted ? view_get(&l->weight, t) : 1;
            if (pass == 0) {
                expect_near(view_get(&l->lse, i), lse, epsilon, epsilon);
                divisor += w;
                if (counts)
                    nll += w * (lse - view_get(&l->x, i * classes + t));
            }
            for (int64_t c = 0; c < classes; c++) {
                double x = view_get(&l->x, i * classes + c), wc = weighted ? view_get(&l->weight, c) : 1;
                double probability = exp(x - lse);
                double gradient = (1 - p->label_smoothing) * w * (probability - (c == t)) +
                                  p->label_smoothing / (double)classes * (weights * probability - wc);
                if (pass == 0 && counts)
                    smooth += wc * (lse - x);
                if (pass == 1)
                    expect_near(view_get(&l->gx, i * classes + c), counts ? 3 * scale * gradient : 0, 30 * epsilon,
                                30 * epsilon * scale);
            }
        }
    double want = (1 - p->label_smoothing) * nll + p->label_smoothing / (double)classes * smooth;
    expect_near(view_get(&l->loss, 0), p->mean ? want / divisor : want, 4 * epsilon, epsilon);
    expect_near(view_get(&l->total, 0), divisor, epsilon, 0);
}

static void test_shapes(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{1, 1},    {4, 10},  {64, 10}, {3, 17},  {700, 5}, {5, 1000},
                                       {2, 3000}, {16, 16}, {15, 16}, {130, 2}, {81, 1},  {40, 17}};
    for (int t = 0; t < 2; t++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int layout = 0; layout < INPUT_LAYOUTS; layout++)
                for (int options = 0; options < 8; options++) {
                    yk__cross_entropy p = {
                        .ignore_index = 2, .label_smoothing = options & 1 ? 0.2 : 0, .mean = options & 2};
                    loss l = make(t ? YK_F64 : YK_F32, sizes[s][0], sizes[s][1], layout);
                    view_random(&l.x, 1, -4, 60); /* also large: the log-sum-exp is rounded at 60 */
                    view_random(&l.target, 2, 0, (double)sizes[s][1]);
                    view_set(&l.target, 0, 0);
                    view_random(&l.weight, 3, 0.2, 2);
                    view_set(&l.gloss, 0, 3);
                    run(&l, &p, options & 4);
                    check(&l, &p, options & 4, t ? 1e-14 : 1e-7);
                    clear(&l);
                }
}

static void test_bad_labels(void **state)
{
    (void)state;
    yk__cross_entropy p = {.ignore_index = -100, .mean = true};
    static const double bad[] = {12, -1, 10, -101};
    static const char *const messages[] = {"cross_entropy: target 12 in row 3 is outside [0, 10)", "target -1 in row 3",
                                           "target 10 in row 3", "target -101 in row 3"};
    for (int k = 0; k < 4; k++) {
        loss l = make(YK_F32, 3000, 10, LAYOUT_C);
        view_random(&l.x, 1, -1, 1);
        for (int64_t i = 0; i < 3000; i++)
            view_set(&l.target, i, i < 3 ? 9 : i == 3 || i == 2900 ? bad[k] : -100);
        assert_int_equal(cpu_backend()->cross_entropy(0, &p, &l.loss, &l.lse, &l.total, &l.x, &l.target, NULL),
                         YK_ERR_ARGUMENT);
        expect_error(YK_ERR_ARGUMENT, messages[k]);
        assert_int_equal(
            cpu_backend()->cross_entropy_backward(0, &p, &l.gx, &l.gloss, &l.x, &l.lse, &l.total, &l.target, NULL),
            YK_ERR_ARGUMENT);
        expect_error(YK_ERR_ARGUMENT, messages[k]);
        clear(&l);
    }
}

static void test_nothing_counts(void **state)
{
    (void)state;
    for (int rows = 0; rows < 4; rows += 3)
        for (int mean = 0; mean < 2; mean++) {
            yk__cross_entropy p = {.ignore_index = 1, .mean = mean};
            loss l = make(YK_F32, rows, 5, LAYOUT_C);
            view_random(&l.x, 1, -1, 1);
            for (int i = 0; i < rows; i++)
                view_set(&l.target, i, 1);
            run(&l, &p, false);
            assert_true(mean ? isnan(view_get(&l.loss, 0)) : view_get(&l.loss, 0) == 0);
            for (int64_t i = 0; i < rows * 5; i++)
                expect_near(view_get(&l.gx, i), 0, 0, 0);
            clear(&l);
        }
}

static void test_special_logits(void **state)
{
    (void)state;
    yk__cross_entropy p = {.ignore_index = -100, .mean = true};
    loss l = make(YK_F32, 1, 3, LAYOUT_C);
    view_set(&l.x, 0, 1e30);
    view_set(&l.x, 1, -INFINITY);
    view_set(&l.x, 2, 1e30);
    view_set(&l.target, 0, 0);
    run(&l, &p, false);
    expect_near(view_get(&l.gx, 0), -0.5, 1e-6, 0);
    expect_near(view_get(&l.gx, 1), 0, 0, 0);
    view_set(&l.target, 0, 1);
    run(&l, &p, false);
    expect_near(view_get(&l.loss, 0), INFINITY, 0, 0);
    view_set(&l.x, 1, NAN);
    run(&l, &p, false);
    assert_true(isnan(view_get(&l.loss, 0)) && isnan(view_get(&l.gx, 0)));
    clear(&l);
}

static void test_threads(void **state)
{
    (void)state;
    yk__cross_entropy p = {.ignore_index = 3, .mean = true, .label_smoothing = 0.1};
    loss l[4];
    for (int threads = 1; threads <= 3; threads++) {
        use_threads(threads);
        l[threads] = make(YK_F32, 5000, 37, LAYOUT_C);
        view_random(&l[threads].x, 1, -4, 4);
        view_random(&l[threads].target, 2, 0, 37);
        run(&l[threads], &p, false);
    }
    use_threads(1);
    for (int threads = 2; threads <= 3; threads++) {
        assert_true(view_same_bits(&l[1].loss, &l[threads].loss));
        assert_true(view_same_bits(&l[1].gx, &l[threads].gx));
    }
    view_set(&l[1].gloss, 0, 3);
    run(&l[1], &p, false);
    check(&l[1], &p, false, 1e-7);
    for (int threads = 1; threads <= 3; threads++)
        clear(&l[threads]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),         cmocka_unit_test(test_shapes),         cmocka_unit_test(test_bad_labels),
        cmocka_unit_test(test_nothing_counts), cmocka_unit_test(test_special_logits), cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests_name("loss", tests, NULL, NULL);
}
