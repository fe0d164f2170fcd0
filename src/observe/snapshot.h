/*
 * snapshot.h - what the devices and the runs of this machine do at a moment: taken by one sampler, shown in many ways
 * (metrics.h, snapshot_json.h). Layer: observe.
 */
#ifndef YOKE_OBSERVE_SNAPSHOT_H
#define YOKE_OBSERVE_SNAPSHOT_H

#include "observe/gpu_sample.h"
#include "observe/machine.h"
#include "observe/runs.h"

typedef struct yk__snapshot {
    double taken, gpus_taken; /* yk__now */
    yk__machine machine;
    yk__runs runs;
    int n_gpus; /* -1: there is no NVML */
    const char *driver;
    bool gpm; /* a GPU tells what its parts are busy with */
    yk__gpu_sample *gpus;
} yk__snapshot;

/* For one thread. */
typedef struct yk__sampler yk__sampler;
/* GPUs are asked again when what they said is older than so many seconds; runs and ranks always. NULL and an error
 * without memory. */
yk__sampler *yk__sampler_create(double gpu_interval);
void yk__sampler_free(yk__sampler *sampler); /* NULL is allowed */
/* Valid until the next call. A snapshot that is younger than 50 ms is given again, so that who asks without end costs
 * little. */
const yk__snapshot *yk__sampler_take(yk__sampler *sampler);

#endif
