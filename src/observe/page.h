/*
 * page.h - a snapshot as a page for a browser. Layer: observe.
 */
#ifndef YOKE_OBSERVE_PAGE_H
#define YOKE_OBSERVE_PAGE_H

#include <stdio.h>

#include "observe/snapshot.h"

/* Whole HTML, which loads nothing: links to the metrics, the GPUs, the runs and their ranks. Texts are escaped. */
void yk__page_write(FILE *to, const yk__snapshot *snapshot, const char *host);
/* "2 h 3 min", "4.1 s"; "-" for what is below 0. */
const char *yk__duration_format(double seconds, char text[32]);
/* The phase of a rank as a text: "forward", its own text, or "-". */
const char *yk__rank_phase_text(const yk__run_rank *rank);

#endif
