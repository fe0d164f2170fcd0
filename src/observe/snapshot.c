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

static double higher(double a, double b)
{
    return a > b ? a : b;
}

/* The rate of ticks is measured anew at each look, so that a sum of them may come out a little less than before, which
 * Prometheus takes for a counter that began anew. Ranks of a run are in their order. */
static void sums_keep(const yk__run *old, yk__run *run)
{
    for (int i = 0, k = 0; i < run->n_ranks; i++) {
        yk__run_rank *rank = &run->ranks[i];
        while (k < old->n_ranks && old->ranks[k].rank < rank->rank)
            k++;
        if (k == old->n_ranks || old->ranks[k].rank != rank->rank || old->ranks[k].pid != rank->pid || !rank->alive)
            continue;
        rank->waited = higher(rank->waited, old->ranks[k].waited);
        for (int phase = 0; phase < YK__PHASES; phase++)
            rank->phase_times[phase] = higher(rank->phase_times[phase], old->ranks[k].phase_times[phase]);
    }
}

static void runs_take(yk__runs *runs)
{
    yk__runs old = *runs;
    yk__runs_read(runs);
    for (int i = 0; i < runs->count; i++) {
        for (int k = 0; k < old.count; k++) {
            if (old.all[k].supervisor == runs->all[i].supervisor)
                sums_keep(&old.all[k], &runs->all[i]);
        }
    }
    yk__runs_clear(&old);
}

const yk__snapshot *yk__sampler_take(yk__sampler *s)
{
    yk__snapshot *shot = &s->snapshot;
    double now = yk__now();
    if (shot->taken > 0 && now - shot->taken < YOUNG)
        return shot;
    runs_take(&shot->runs);
    yk__machine_read(&shot->machine);
    shot->taken = now;
    if (shot->n_gpus > 0 && (shot->gpus_taken <= 0 || now - shot->gpus_taken >= s->gpu_interval)) {
        yk__gpu_sampler_take(s->gpus, shot->gpus);
        shot->gpus_taken = yk__now();
    }
    return shot;
}
