/*
 * top_view.h - the lines of `yoke top`, for a width. Layer: cli.
 */
#ifndef YOKE_CLI_TOP_VIEW_H
#define YOKE_CLI_TOP_VIEW_H

#include "cli/top/curses.h"
#include "observe/snapshot.h"

typedef enum top_order { TOP_BY_RANK, TOP_BY_STEP, TOP_BY_LOSS, TOP_BY_WAITING, TOP_BY_CPU, TOP_BY_MEMORY } top_order;
extern const char *const top_orders[]; /* their names; ends with NULL */

/* A rank at an earlier look, and its speed since. */
typedef struct top_before {
    int pid;
    uint64_t steps, samples;
    double cpu_seconds, taken, cpu_taken; /* the last two are times of looks */
    double step_speed, sample_speed, cpu; /* a second, a second, percent of a core; NAN: not known yet */
} top_before;

typedef struct top_view {
    char host[256];
    int selected; /* the supervisor's pid of the run whose ranks are shown; 0: the first */
    top_order order;
    int first; /* the rank at the top of the table, after the order */
    int count; /* of `before` */
    top_before *before;
} top_view;

/* Keeps what the ranks have done, so that the next look has speeds. */
void top_view_note(top_view *view, const yk__snapshot *snapshot);
void top_view_clear(top_view *view);
/* Selects the run that is `steps` further down. */
void top_view_move(top_view *view, const yk__snapshot *snapshot, int steps);
/*
 * Calls put with the lines: devices, runs, and the ranks of the selected run, or with `rows` 0, which is as many as
 * there are, those of all. No line is wider than `columns`; columns of tables are left out, the least wanted first,
 * until the others fit.
 */
typedef void (*top_put)(void *argument, int row, const char *text, screen_style style);
void top_view_draw(top_view *view, const yk__snapshot *snapshot, int columns, int rows, top_put put, void *argument);

#endif
