/*
 * loss_plot.c - the loss of a run as a small drawing on a terminal. Layer: cli.
 *
 * Steps are averaged into at most PLOT_BINS bins of equal width: when a step comes behind the last bin, pairs of bins
 * become one, so any number of steps takes the same memory. The drawing has a fixed height and the terminal's width, at
 * most; its vertical scale is logarithmic where the losses span more than a decade. `*` is the loss in training, `o`
 * that of a test.
 */
#include "cli/train/loss_plot.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/terminal.h"

enum { ROWS = 10, MOST_COLUMNS = 64, LEAST_COLUMNS = 16, MARGIN = 9 /* "  0.0123 |" */, LEAST_STEPS = 20 };
static const double DECADE = 10;

static void merge_pairs(loss_plot *p)
{
    for (int i = 0; i < PLOT_BINS / 2; i++) {
        p->sums[i] = p->sums[2 * i] + p->sums[2 * i + 1];
        p->counts[i] = p->counts[2 * i] + p->counts[2 * i + 1];
    }
    memset(p->sums + PLOT_BINS / 2, 0, sizeof(p->sums) / 2);
    memset(p->counts + PLOT_BINS / 2, 0, sizeof(p->counts) / 2);
    p->width *= 2;
}

void loss_plot_step(loss_plot *p, int64_t step, double loss)
{
    if (!isfinite(loss))
        return;
    if (!p->width) {
        p->width = 1;
        p->first = step;
    }
    while ((step - p->first) / p->width >= PLOT_BINS)
        merge_pairs(p);
    p->sums[(step - p->first) / p->width] += loss;
    p->counts[(step - p->first) / p->width]++;
    p->last = step;
}

void loss_plot_test(loss_plot *p, int64_t step, double loss)
{
    if (!isfinite(loss) || p->n_tests == PLOT_TESTS)
        return;
    p->test_steps[p->n_tests] = step;
    p->tests[p->n_tests++] = loss;
}

/* The mean loss of the steps that a column stands for; NaN where there are none. */
static double column_mean(const loss_plot *p, int column, int columns)
{
    double span = (double)(p->last - p->first + 1), from = span * column / columns, to = span * (column + 1) / columns;
    double sum = 0, count = 0;
    for (int i = 0; i < PLOT_BINS; i++) {
        double middle = ((double)i + 0.5) * (double)p->width;
        if (p->counts[i] && middle >= from && middle < to) {
            sum += p->sums[i];
            count += (double)p->counts[i];
        }
    }
    return count > 0 ? sum / count : NAN;
}

typedef struct scale {
    double low, high;
    int logarithmic;
} scale;

static double scaled(const scale *s, double loss)
{
    return s->logarithmic ? log(loss) : loss;
}

/* The row, 0 at the top, of a loss in the scale's range. */
static int row_of(const scale *s, double loss)
{
    double high = scaled(s, s->high), low = scaled(s, s->low), part = (scaled(s, loss) - low) / (high - low);
    int row = (int)((1 - part) * (ROWS - 1) + 0.5);
    return row < 0 ? 0 : row >= ROWS ? ROWS - 1 : row;
}

/* The loss in the middle of a row. */
static double loss_of_row(const scale *s, int row)
{
    double high = scaled(s, s->high), low = scaled(s, s->low), at = high - (high - low) * row / (ROWS - 1);
    return s->logarithmic ? exp(at) : at;
}

static void widen(scale *s, double loss)
{
    if (isnan(loss))
        return;
    s->low = isnan(s->low) || loss < s->low ? loss : s->low;
    s->high = isnan(s->high) || loss > s->high ? loss : s->high;
}

void loss_plot_draw(const loss_plot *p)
{
    int columns = terminal_columns(STDOUT_FILENO) - MARGIN - 1;
    columns = columns > MOST_COLUMNS ? MOST_COLUMNS : columns;
    if (columns < LEAST_COLUMNS || p->last - p->first + 1 < LEAST_STEPS)
        return;
    if (columns > p->last - p->first + 1)
        columns = (int)(p->last - p->first + 1);
    double means[MOST_COLUMNS];
    char cells[ROWS][MOST_COLUMNS + 1];
    scale s = {.low = NAN, .high = NAN};
    for (int c = 0; c < columns; c++) {
        means[c] = column_mean(p, c, columns);
        widen(&s, means[c]);
    }
    for (int i = 0; i < p->n_tests; i++)
        widen(&s, p->tests[i]);
    if (!(s.high > s.low))
        return;
    s.logarithmic = s.low > 0 && s.high / s.low > DECADE;
    memset(cells, ' ', sizeof(cells));
    for (int c = 0; c < columns; c++) {
        if (!isnan(means[c]))
            cells[row_of(&s, means[c])][c] = '*';
    }
    for (int i = 0; i < p->n_tests; i++) {
        int64_t at = (p->test_steps[i] - p->first) * columns / (p->last - p->first + 1);
        cells[row_of(&s, p->tests[i])][at < 0 ? 0 : at >= columns ? columns - 1 : at] = 'o';
    }
    for (int row = 0; row < ROWS; row++) {
        cells[row][columns] = 0;
        fprintf(stdout, "%*.4g |%s\n", MARGIN - 2, loss_of_row(&s, row), cells[row]);
    }
    fprintf(stdout, "%*s +", MARGIN - 2, "loss");
    for (int c = 0; c < columns; c++)
        fputc('-', stdout);
    char steps[80];
    int n = snprintf(steps, sizeof(steps), "steps %" PRId64 " to %" PRId64 ", * training", p->first, p->last);
    if (p->n_tests && n + 8 <= columns)
        snprintf(steps + n, sizeof(steps) - (size_t)n, ", o test");
    fprintf(stdout, "\n%*s  %.*s\n", MARGIN - 2, "", columns, steps);
}
