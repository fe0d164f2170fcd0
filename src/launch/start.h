/*
 * start.h - one process of a group, started. Layer: launch.
 */
#ifndef YOKE_LAUNCH_START_H
#define YOKE_LAUNCH_START_H

#include "launch/supervisor.h"

/* Starts the worker with this index: sets its pid, its pipes or its pidfd, and the time. 0, or errno; g->start_exec
 * says whether it was the program that could not be executed. */
int yk__worker_start(group *g, int index);

#endif
