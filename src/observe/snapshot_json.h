/*
 * snapshot_json.h - a snapshot as JSON, for programs. Layer: observe.
 */
#ifndef YOKE_OBSERVE_SNAPSHOT_JSON_H
#define YOKE_OBSERVE_SNAPSHOT_JSON_H

#include <jansson.h>

#include "observe/leftovers.h"
#include "observe/snapshot.h"

/* docs/monitoring.md has the members. What is not known is null. Without leftovers it is for whoever asks the monitor:
 * names of other users' processes are left out. A new reference; NULL without memory. */
json_t *yk__snapshot_json(const yk__snapshot *snapshot, const yk__leftovers *leftovers);
/* The rank of a run that has this pid, and the run; NULL: none. */
const yk__run_rank *yk__snapshot_rank(const yk__snapshot *snapshot, int pid, const yk__run **run);

#endif
