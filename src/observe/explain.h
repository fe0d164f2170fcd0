/*
 * explain.h - why a job does not get on, or ended: read from the pages of its ranks. Layer: observe.
 */
#ifndef YOKE_OBSERVE_EXPLAIN_H
#define YOKE_OBSERVE_EXPLAIN_H

#include <stdio.h>

#include <jansson.h>

#include "base/core.h"

/* Pages are objects as yk__page_json writes them, in an array. Writes one sentence (who did not come, to which
 * operation, since when, and what it was doing), then a table with a line for each rank. An error where there is none
 * that can be read. */
yk_status yk__explain(const json_t *pages, FILE *to) YK_MUST_CHECK;

#endif
