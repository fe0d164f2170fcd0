/*
 * plot_log.h - the log of a run (cli/run/run_log.h), read to be drawn. Layer: cli.
 */
#ifndef YOKE_CLI_PLOT_LOG_H
#define YOKE_CLI_PLOT_LOG_H

#include "base/core.h"

typedef enum plot_what { PLOT_LOSS, PLOT_TEST_LOSS, PLOT_ACCURACY, PLOT_SPEED, PLOT_SERIES } plot_what;

/* Values by step; NAN where the log has null, as for a loss that is no number. */
typedef struct plot_series {
    size_t count, room;
    double *steps, *values;
} plot_series;

typedef struct plot_log {
    const char *path;
    plot_series series[PLOT_SERIES];
} plot_log;

/* Errors name the file and the line (YK_ERR_FORMAT). A last line without an end, of a run that goes on, is left out.
 * What was tested counts for the last step before it. */
yk_status plot_log_read(const char *path, plot_log *log);
void plot_log_clear(plot_log *log);
/* At most so many points of equal numbers of values, each the mean of its finite ones. */
void plot_series_thin(plot_series *series, size_t most);

#endif
