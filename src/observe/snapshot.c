/*
 * snapshot.c - what the devices and the runs of this machine do at a moment. Layer: observe.
 */
#include <stdlib.h>

#include "observe/snapshot.h"

/* Seconds for which a snapshot is given again. */
static const double YOUNG = 0.05;

struct yk__sampler {
    double gpu_interval;
    yk__gpu_sampler *gpus;
    yk__snapshot snapshot;
};

yk__sampler *yk__sampler_create(double gpu_interval)
{
    yk__sampler *s = yk__calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->gpu_interval = gpu_interval;
    s->gpus = yk__gpu_sampler_create();
    if (s->gpus) {
        s->snapshot.n_gpus = yk__gpu_sampler_count(s->gpus, &s->snapshot.driver);
        s->snapshot.gpm = yk__gpu_sampler_has_gpm(s->gpus);
        s->snapshot.gpus =
            yk__calloc((size_t)(s->snapshot.n_gpus > 0 ? s->snapshot.n_gpus : 1), sizeof(*s->snapshot.gpus));
    }
    if (s->snapshot.gpus)
        return s;
    yk__sampler_free(s);
    return NULL;
}

void yk__sampler_free(yk__sampler *s)
{
    if (!s)
        return;
    yk__runs_clear(&s->snapshot.runs);
    yk__gpu_sampler_free(s->gpus);
    free(s->snapshot.gpus);
    free(s);
}

const yk__snapshot *yk__sampler_take(yk__sampler *s)
{
    yk__snapshot *shot = &s->snapshot;
    double now = yk__now();
    if (shot->taken > 0 && now - shot->taken < YOUNG)
        return shot;
    yk__runs_clear(&shot->runs);
    yk__runs_read(&shot->runs);
    yk__machine_read(&shot->machine);
    shot->taken = now;
    if (shot->n_gpus > 0 && (shot->gpus_taken <= 0 || now - shot->gpus_taken >= s->gpu_interval)) {
        yk__gpu_sampler_take(s->gpus, shot->gpus);
        shot->gpus_taken = yk__now();
    }
    return shot;
}
