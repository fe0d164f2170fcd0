/*
 * run_pages.h - what the ranks of a failed job were doing, kept in files. Layer: cli.
 */
#ifndef YOKE_CLI_RUN_RUN_PAGES_H
#define YOKE_CLI_RUN_RUN_PAGES_H

#include "cli/run/run_job.h"
#include "launch/supervisor.h"

/* Under --log-dir, of one process: DIR/rank_N, with roles DIR/rank_N.ROLE_K. */
void run_pages_folder(const job *j, const worker *w, char *path, size_t size);
/* Writes the pages of those of the group's processes that have used yoke, and of the incarnations before them that are
 * kept: each to DIR/rank_N/page.json, page.INCARNATION.json under --log-dir, else all, a line each, to a new file in
 * $TMPDIR. `path` gets where they are, "" where there are none or after a message. */
void run_pages_save(job *j, const group *g, char *path, size_t size);

#endif
