/*
 * loss_plot.h - the loss of a run as a small drawing on a terminal. Layer: cli.
 */
#ifndef YOKE_CLI_TRAIN_LOSS_PLOT_H
#define YOKE_CLI_TRAIN_LOSS_PLOT_H

#include <stdint.h>

enum { PLOT_BINS = 256, PLOT_TESTS = 512 };

/* Zero memory is an empty one. */
typedef struct loss_plot {
    /* Steps first + i * width to first + (i + 1) * width - 1 are in bin i: the sum of their losses, and their number.
     */
    double sums[PLOT_BINS];
    int64_t counts[PLOT_BINS], first, width, last;
    int64_t test_steps[PLOT_TESTS]; /* of the first tests, which a run of more than that has */
    double tests[PLOT_TESTS];
    int n_tests;
} loss_plot;

/* Notes the loss of a step, and of a test after a step; one that is not finite is left out. Steps rise. */
void loss_plot_step(loss_plot *p, int64_t step, double loss);
void loss_plot_test(loss_plot *p, int64_t step, double loss);
/* Draws it on stdout where that is a terminal wide enough, and there were steps enough to show a course. */
void loss_plot_draw(const loss_plot *p);

#endif
