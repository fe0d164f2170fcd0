/*
 * page.h - a page for a browser, and how times and phases are written for people. Layer: observe.
 */
#ifndef YOKE_OBSERVE_PAGE_H
#define YOKE_OBSERVE_PAGE_H

#include "observe/snapshot.h"

/* The parts of the page, which asks for a snapshot (snapshot_json.h) at /api/snapshot and draws it: "/", "/page.css"
 * and
 * "/page.js". False: there is nothing at this path. */
bool yk__page_part(const char *path, const char **media_type, const char **text, size_t *size);
/* "2 h 3 min", "4.1 s"; "-" for what is below 0. */
const char *yk__duration_format(double seconds, char text[32]);
/* The phase of a rank as a text: "forward", its own text, or "-". */
const char *yk__rank_phase_text(const yk__run_rank *rank);

#endif
