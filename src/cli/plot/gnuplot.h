/*
 * gnuplot.h - the program gnuplot, run on a script. Layer: cli.
 */
#ifndef YOKE_CLI_PLOT_GNUPLOT_H
#define YOKE_CLI_PLOT_GNUPLOT_H

#include "base/core.h"

/* Gives what gnuplot prints of the script, which the caller frees. Errors: it is not there (YK_ERR_NOT_FOUND), or what
 * it says. */
yk_status gnuplot_run(const char *script, size_t size, char **printed, size_t *length);

#endif
