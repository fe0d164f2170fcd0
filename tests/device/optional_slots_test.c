/*
 * The slots that a backend may lack, on every instruction set, f32 and f64, against plain loops: margins of labels over
 * more classes than a piece holds, places of maxima with ties and NaN, bags of rows with padding, empty ones among
 * them.
 */
#include "tests/device/elementwise_sets.h"
#include "tests/support/views.h"

enum { ROWS = 3, CLASSES = 600, MOST_LABELS = 5 };

/* Labels of a row, the last of which is followed by -1, repeated and from both ends; none in the second one. */
static const int64_t labels[ROWS][MOST_LABELS] = {{599, 0, 300, 0, -1}, {-1, 4, 5, 6, 7}, {17, -1, 3, -1, -1}};

static void margins_check(yk_dtype dtype, enum view_layout layout)
{
    const int64_t shape[] = {ROWS, CLASSES}, rows = ROWS;
    const double room = dtype == YK_F64 ? 1e-12 : 2e-5;
    yk__backend tables[YK__LEVELS];
    int count = instruction_sets(tables);
    yk__view x = view_make(dtype, 2, shape, layout), label = view_make(YK_I64, 2, shape, layout);
    yk__view slope = view_make(dtype, 2, shape, layout), loss = view_make(dtype, 1, &rows, LAYOUT_C);
    view_random(&x, 5, -1, 1);
    for (int64_t i = 0; i < ROWS * CLASSES; i++)
        view_set(&label, i, i % CLASSES < MOST_LABELS ? (double)labels[i / CLASSES][i % CLASSES] : -1);
    double want[ROWS] = {0}, by_x[ROWS * CLASSES] = {0};
    for (int row = 0; row < ROWS; row++)
        for (int l = 0; l < MOST_LABELS && labels[row][l] >= 0; l++)
            for (int c = 0; c < CLASSES; c++) {
                bool other = true;
                for (int k = 0; k < MOST_LABELS && labels[row][k] >= 0; k++)
                    other = other && labels[row][k] != c;
                int64_t t = labels[row][l];
                double above = 1 - view_get(&x, row * CLASSES + t) + view_get(&x, row * CLASSES + c);
                if (!other || above <= 0)
                    continue;
                want[row] += above / CLASSES;
                by_x[row * CLASSES + c] += 1.0 / CLASSES;
                by_x[row * CLASSES + t] -= 1.0 / CLASSES;
            }
    for (int k = 0; k < count; k++) {
        expect_ok(tables[k].label_margins(0, &loss, NULL, &x, &label));
        expect_ok(tables[k].label_margins(0, NULL, &slope, &x, &label));
        for (int row = 0; row < ROWS; row++)
            expect_near(view_get(&loss, row), want[row], room, 0);
        for (int64_t i = 0; i < ROWS * CLASSES; i++)
            expect_near(view_get(&slope, i), by_x[i], room, 1e-15);
    }
    view_free(&x);
    view_free(&label);
    view_free(&slope);
    view_free(&loss);
}

static void test_label_margins(void **state)
{
    (void)state;
    for (int layout = 0; layout < LAYOUTS; layout++) {
        margins_check(YK_F32, layout);
        margins_check(YK_F64, layout);
    }
}

static void test_window_maxima(void **state)
{
    (void)state;
    enum {
        DEPTH = 3,
        HEIGHT = 4,
        WIDTH = 5,
        ELEMENTS = DEPTH * HEIGHT * WIDTH,
        STARTS = 2 + 3 + 2,
        PLACES = 2 * 3 * 2
    };
    static const int64_t starts[2 * STARTS] = {0, 1, 0, 1, 2, 0, 2, 1, 1, 2, 0, 1, 1, 2};
    const int64_t shape[] = {2, DEPTH, HEIGHT, WIDTH}, lists[] = {2, STARTS}, places[] = {2, PLACES};
    const int64_t windows[] = {2, 3, 2}, kernel[] = {2, 2, 3};
    yk__backend tables[YK__LEVELS];
    int count = instruction_sets(tables);
    for (int wide = 0; wide < 2; wide++) {
        yk__view x = view_make(wide ? YK_F64 : YK_F32, 4, shape, LAYOUT_C),
                 from = view_make(YK_I64, 2, lists, LAYOUT_C);
        yk__view which = view_make(YK_I64, 2, places, LAYOUT_C);
        for (int64_t i = 0; i < 2 * ELEMENTS; i++)
            view_set(&x, i, i == 70 || i == 71 ? NAN : (double)(i * 7 % 4)); /* many are equal */
        memcpy(from.data, starts, sizeof(starts));
        for (int k = 0; k < count; k++) {
            expect_ok(tables[k].window_maxima(0, &which, &x, &from, windows, kernel));
            for (int64_t at = 0; at < 2 * PLACES; at++) {
                const int64_t *list = starts + at / PLACES * STARTS;
                int64_t rest = at % PLACES, first = 0, best = -1;
                first = (list[rest / 6] * HEIGHT + list[2 + rest / 2 % 3]) * WIDTH + list[5 + rest % 2];
                for (int64_t e = 0; e < kernel[0] * kernel[1] * kernel[2]; e++) {
                    int64_t place = first + (e / 6 * HEIGHT + e / 3 % 2) * WIDTH + e % 3;
                    double value = view_get(&x, at / PLACES * ELEMENTS + place);
                    double most = best < 0 ? -INFINITY : view_get(&x, at / PLACES * ELEMENTS + best);
                    if (value > most || (isnan(value) && !isnan(most)))
                        best = place;
                }
                assert_int_equal((int64_t)view_get(&which, at), best);
            }
        }
        view_set(&from, STARTS + 6, 3);
        assert_int_equal(tables[0].window_maxima(0, &which, &x, &from, windows, kernel), YK_ERR_ARGUMENT);
        expect_error(YK_ERR_ARGUMENT, "fractional_max_pool: window 1 of row 1 begins at 3 of 5 elements");
        view_free(&x);
        view_free(&from);
        view_free(&which);
    }
}

static void test_embedding_bag(void **state)
{
    (void)state;
    enum { TABLE = 9, WIDTH = 70, BAGS = 5, ITEMS = 11, PADDING = 4 };
    static const int64_t index[ITEMS] = {3, 4, 4, 8, 0, 3, 3, 1, 4, 4, 7}, ends[BAGS] = {3, 3, 8, 10, 11};
    const int64_t shape[] = {TABLE, WIDTH}, result[] = {BAGS, WIDTH}, items = ITEMS, bags = BAGS;
    yk__backend tables[YK__LEVELS];
    int count = instruction_sets(tables);
    for (int choice = 0; choice < 2 * LAYOUTS; choice++) {
        bool wide = choice % 2;
        yk__view weight = view_make(wide ? YK_F64 : YK_F32, 2, shape, choice / 2);
        yk__view out = view_make(weight.dtype, 2, result, LAYOUTS - 1 - choice / 2);
        yk__view list = view_make(YK_I64, 1, &items, LAYOUT_C), last = view_make(YK_I64, 1, &bags, LAYOUT_C);
        view_random(&weight, 3, -2, 2);
        memcpy(list.data, index, sizeof(index));
        memcpy(last.data, ends, sizeof(ends));
        for (int k = 0; k < count; k++)
            for (int way = 0; way < 4; way++) {
                bool mean = way & 1, pads = way & 2;
                expect_ok(tables[k].embedding_bag(0, &out, &weight, &list, &last, pads ? PADDING : -1, mean));
                for (int64_t i = 0; i < BAGS * WIDTH; i++) {
                    double sum = 0, kept = 0;
                    for (int64_t at = i / WIDTH ? ends[i / WIDTH - 1] : 0; at < ends[i / WIDTH]; at++) {
                        bool counts = !pads || index[at] != PADDING;
                        sum += counts ? view_get(&weight, index[at] * WIDTH + i % WIDTH) : 0;
                        kept += counts;
                    }
                    expect_near(view_get(&out, i), mean && kept > 0 ? sum / kept : sum, 0, wide ? 1e-14 : 2e-6);
                }
            }
        view_set(&list, 6, TABLE);
        assert_int_equal(tables[0].embedding_bag(0, &out, &weight, &list, &last, -1, true), YK_ERR_ARGUMENT);
        expect_error(YK_ERR_ARGUMENT, "embedding_bag: index 9 at position 6 is outside [0, 9)");
        view_free(&weight);
        view_free(&out);
        view_free(&list);
        view_free(&last);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_label_margins),
        cmocka_unit_test(test_window_maxima),
        cmocka_unit_test(test_embedding_bag),
    };
    return cmocka_run_group_tests_name("optional_slots", tests, NULL, NULL);
}
