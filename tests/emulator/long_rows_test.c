/* long_rows_test.c - softmax and cross-entropy of rows that no team of threads holds: maximum and sum of exponentials
 * come of one reading, whatever comes first in the row.
 */
#include "tests/emulator/use_emulator.h"
#include "tests/support/expect.h"

#include <yoke/yoke.h>

enum { ROWS = 8, WIDTH = 4999 }; /* more than a block holds, and no whole pack */

static float values[ROWS][WIDTH];

static void fill(void)
{
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < WIDTH; i++)
            values[row][i] = 3 * sinf((float)(row * 31 + i * 7));
    for (int i = 0; i < WIDTH; i++) {
        values[1][i] = i < WIDTH - 3 ? -INFINITY : 1; /* most threads see nothing else */
        values[2][i] = (float)i / 50;                 /* every element is the greatest so far */
        values[3][i] = (float)(WIDTH - i) / 50;
        values[4][i] = -INFINITY;
        values[7][i] = i % 2 ? 80 : -80;
    }
    values[5][WIDTH / 2] = NAN;
    values[6][WIDTH / 3] = INFINITY;
}

static void compute(yk_device device, float *plain, float *logs, float *losses)
{
    yk_scope scope = yk_scope_begin();
    const int64_t shape[] = {ROWS, WIDTH};
    yk_tensor *x = yk_from_data(values, 2, shape, YK_OPTIONS(yk_tensor_options, .device = device));
    expect_ok(yk_tensor_read(yk_softmax(x, 1), plain, sizeof(values)));
    expect_ok(yk_tensor_read(yk_log_softmax(x, 1), logs, sizeof(values)));
    yk_tensor *target = yk_zeros(YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64, .device = device));
    assert_non_null(yk_fill_(target, WIDTH - 2));
    for (int row = 0; row < ROWS; row++)
        losses[row] = (float)yk_item(yk_cross_entropy(yk_narrow(x, 0, row, 1), target, NULL));
    expect_ok(YK_OK);
    yk_scope_end(scope);
}

static void expect_row(const char *what, int row, float found, float expected, double room)
{
    if (isnan(expected) ? !isnan(found) : found != expected && !(fabs((double)found - (double)expected) <= room))
        fail_msg("%s of row %d: %.9g, and %.9g on the CPU", what, row, (double)found, (double)expected);
}

static void one_reading_is_as_good_as_two(void **state)
{
    (void)state;
    static float plain[2][ROWS][WIDTH], logs[2][ROWS][WIDTH], losses[2][ROWS];
    fill();
    compute((yk_device){YK_CPU, 0}, plain[0][0], logs[0][0], losses[0]);
    compute((yk_device){YK_CUDA, 0}, plain[1][0], logs[1][0], losses[1]);
    for (int row = 0; row < ROWS; row++) {
        for (int i = 0; i < WIDTH; i++) {
            expect_row("softmax", row, plain[1][row][i], plain[0][row][i], 1e-6);
            expect_row("log_softmax", row, logs[1][row][i], logs[0][row][i],
                       1e-6 * fmax(1, fabs((double)logs[0][row][i])));
        }
        expect_row("cross_entropy", row, losses[1][row], losses[0][row], 1e-6 * fmax(1, fabs((double)losses[0][row])));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_reading_is_as_good_as_two)};
    if (!use_emulator())
        return 0;
    return cmocka_run_group_tests_name("long rows", tests, NULL, NULL);
}
