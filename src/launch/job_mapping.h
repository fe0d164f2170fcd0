/*
 * job_mapping.h - which job is on which GPU, in a folder that dcgm-exporter reads for its label hpc_job. Layer: launch.
 *
 * The folder (its --hpc-job-mapping-dir) has a file for each GPU, named by its number, with the name of a job on each
 * line. Others, as a cluster's prolog, may write there, too: their lines stay. What a launcher has put there it notes
 * in .yoke-PID-START: three lines, the machine (yk__machine_name), the job and the GPUs. dcgm-exporter passes over
 * names that are no number.
 */
#ifndef YOKE_LAUNCH_JOB_MAPPING_H
#define YOKE_LAUNCH_JOB_MAPPING_H

#include "base/core.h"

/* Adds a line with the job to the files of these GPUs, once for this process, and takes away what this user's launchers
 * that were killed have left. The folder has to be there. */
yk_status yk__job_mapping_begin(const char *folder, const char *job, const int *gpus, int count) YK_MUST_CHECK;
/* Takes the lines away again, where there are some; one that another launcher needs stays. May be called by a process
 * that is about to end without more ado. */
void yk__job_mapping_end(void);

#endif
