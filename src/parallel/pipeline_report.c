/*
 * pipeline_report.c - the time and the memory that a pipeline's stages take. Layer: parallel.
 */
#include <stdlib.h>
#include <string.h>

#include "parallel/pipeline_parallel.h"

yk_status yk_pipeline_report(yk_module *m, yk_stage_times *stages)
{
    YK__LIVE(m);
    yk__pipeline *p = yk__pipeline_of("pipeline_report", m);
    if (!p)
        return yk__error_code();
    if (!stages)
        return yk__fail(YK_ERR_ARGUMENT, "pipeline_report: stages is NULL");
    double steps = p->steps ? (double)p->steps : 1;
    memset(stages, 0, (size_t)p->count * sizeof(*stages)); /* padding, too, that other ranks get */
    for (int s = p->first; s < p->first + p->own; s++) {
        const yk__stage_clock *c = &p->clocks[s];
        yk_memory_info memory;
        yk_status status = yk_device_memory(p->devices[s], &memory);
        if (status)
            return status;
        double idle = p->seconds > 0 ? 1 - (c->forward + c->backward) / p->seconds : 0;
        stages[s] = (yk_stage_times){
            .stage = s,
            .device = p->devices[s],
            .steps = p->steps,
            .micro_batches = p->steps * p->chunks,
            .forward = c->forward / steps,
            .backward = c->backward / steps,
            .idle = idle > 0 ? idle : 0,
            .ideal_idle = (double)(p->count - 1) / (p->chunks + p->count - 1),
            .in_flight = c->in_flight,
            .memory = memory.allocated,
            .peak_memory = memory.peak_allocated,
        };
    }
    return p->group ? yk__pipeline_gather_times(p, stages) : YK_OK;
}

void yk_pipeline_report_reset(yk_module *m)
{
    YK__LIVE(m);
    yk__pipeline *p = yk__pipeline_of("pipeline_report_reset", m);
    for (int s = p ? p->first : 0; p && s < p->first + p->own; s++) {
        p->clocks[s] = (yk__stage_clock){0};
        yk_device_reset_peak_memory(p->devices[s]);
    }
    if (p) {
        p->steps = 0;
        p->seconds = 0;
    }
}

yk_status yk_pipeline_report_print(FILE *to, const yk_stage_times *stages, int count)
{
    if (!to || !stages || count < 1)
        return yk__fail(YK_ERR_ARGUMENT, "pipeline_report_print: %s",
                        !to       ? "the file is NULL"
                        : !stages ? "stages is NULL"
                                  : "no stages");
    bool ranks = stages[count - 1].rank > 0;
    fprintf(to, "%sstage  device   forward  backward (ms)   idle   in flight   memory     peak (MiB)\n",
            ranks ? "rank   " : "");
    double idle = 0;
    bool queued = false;
    for (int s = 0; s < count; s++) {
        const yk_stage_times *t = &stages[s];
        char name[16];
        idle += t->idle / count;
        queued |= t->device.type != YK_CPU;
        if (ranks)
            fprintf(to, "%-6d ", t->rank);
        fprintf(to, "%-6d %-8s %7.3f %9.3f %9.1f %% %10d %10.1f %8.1f\n", t->stage, yk_device_format(t->device, name),
                t->forward * 1e3, t->backward * 1e3, t->idle * 100, t->in_flight, (double)t->memory / (1 << 20),
                (double)t->peak_memory / (1 << 20));
    }
    if (queued)
        fprintf(to, "these are times of the host, which queues work for GPUs and goes on, not theirs\n");
    else
        fprintf(to,
                "bubble: the devices were idle for %.1f %% of %lld steps; with stages of equal time it is %.1f %%\n",
                idle * 100, (long long)stages[0].steps, stages[0].ideal_idle * 100);
    return ferror(to) ? yk__fail(YK_ERR_IO, "pipeline_report_print: the text could not be written") : YK_OK;
}
