/*
 * ddp_report.c - the times of the parts of distributed steps, rank by rank. Layer: parallel.
 *
 * All ranks leave a reduction together, so the times from there to each rank's next last gradient can be compared
 * without comparing clocks: the longest is the straggler's, and the others wait for the difference. What a rank waits
 * for others on the way there, for rank 0's buffers and in SyncBatchNorm, is taken out: it is as long for all but the
 * straggler as that one is late.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/agreement.h"
#include "parallel/reducer.h"

/* The times that a rank sends to the others. */
typedef struct rank_times {
    yk_ddp_times times;
    double busy[YK_DDP_WINDOW];
} rank_times;

static void local_times(const yk__reducer *r, rank_times *d)
{
    memset(d, 0, sizeof(*d));
    yk_ddp_times *t = &d->times;
    t->rank = r ? r->rank : 0;
    t->pid = (int)getpid();
    if (gethostname(t->host, sizeof(t->host) - 1))
        snprintf(t->host, sizeof(t->host), "unknown");
    t->wait = t->last = NAN;
    if (!r || !r->clock.steps)
        return;
    const yk__ddp_clock *c = &r->clock;
    double n = (double)c->steps;
    t->steps = c->steps;
    t->forward = c->forward / n;
    t->backward = c->backward / n;
    t->exposed = c->exposed / n;
    t->other = (c->total - c->forward - c->backward - c->exposed) / n;
    memcpy(d->busy, c->busy, sizeof(d->busy));
}

/* wait and last of every rank, over the steps that all of them remember. */
static void by_wait(int world_size, const rank_times *all, yk_ddp_times *ranks)
{
    int64_t steps = all[0].times.steps;
    for (int r = 0; r < world_size; r++) {
        ranks[r] = all[r].times;
        ranks[r].wait = ranks[r].last = 0;
        steps = all[r].times.steps < steps ? all[r].times.steps : steps;
    }
    int64_t window = steps < YK_DDP_WINDOW ? steps : YK_DDP_WINDOW;
    for (int64_t i = 0; i < window; i++) {
        int slowest = 0;
        for (int r = 1; r < world_size; r++)
            if (all[r].busy[i] > all[slowest].busy[i])
                slowest = r;
        ranks[slowest].last += 1 / (double)window;
        for (int r = 0; r < world_size; r++)
            ranks[r].wait += (all[slowest].busy[i] - all[r].busy[i]) / (double)window;
    }
}

yk_status yk_ddp_report(yk_module *m, yk_ddp_times *ranks)
{
    YK__LIVE(m);
    yk__reducer *r;
    yk_status status = yk__reducer_of("ddp_report", m, &r);
    if (!status && !ranks)
        status = yk__fail(YK_ERR_ARGUMENT, "ddp_report: ranks is NULL");
    if (status)
        return status;
    int world_size = r ? r->world_size : 1;
    rank_times own, *all = yk__calloc((size_t)world_size, sizeof(*all));
    if (!all)
        return YK_ERR_MEMORY;
    local_times(r, &own);
    if (r)
        status = yk__gather_bytes(&own, all, sizeof(own), r->group);
    else
        all[0] = own;
    if (!status)
        by_wait(world_size, all, ranks);
    free(all);
    return status;
}

yk_status yk_ddp_report_local(yk_module *m, yk_ddp_times *mine)
{
    YK__LIVE(m);
    yk__reducer *r;
    yk_status status = yk__reducer_of("ddp_report_local", m, &r);
    if (!status && !mine)
        status = yk__fail(YK_ERR_ARGUMENT, "ddp_report_local: mine is NULL");
    if (status)
        return status;
    rank_times own;
    local_times(r, &own);
    *mine = own.times;
    return YK_OK;
}

yk_status yk_ddp_report_print(FILE *to, const yk_ddp_times *ranks, int count)
{
    if (!to || !ranks || count < 1)
        return yk__fail(YK_ERR_ARGUMENT, "ddp_report_print: %s",
                        !to      ? "the file is NULL"
                        : !ranks ? "ranks is NULL"
                                 : "no ranks");
    int slowest = 0;
    fprintf(to,
            "rank  host                      steps  forward  backward  exposed    other     wait (ms a step)  last\n");
    for (int r = 0; r < count; r++) {
        const yk_ddp_times *t = &ranks[r];
        fprintf(to, "%4d  %-20.20s %10lld %8.2f  %8.2f %8.2f %8.2f %8.2f %17.0f%%\n", t->rank, t->host,
                (long long)t->steps, t->forward * 1e3, t->backward * 1e3, t->exposed * 1e3, t->other * 1e3,
                t->wait * 1e3, t->last * 100);
        if (t->last > ranks[slowest].last)
            slowest = r;
    }
    const yk_ddp_times *s = &ranks[slowest];
    fprintf(to, "slowest most often: rank %d (host %s, pid %d), in %.0f%% of the steps\n", s->rank, s->host, s->pid,
            s->last * 100);
    return ferror(to) ? yk__fail(YK_ERR_IO, "ddp_report_print: the text could not be written") : YK_OK;
}

void yk_ddp_report_reset(yk_module *m)
{
    YK__LIVE(m);
    yk__reducer *r;
    if (!yk__reducer_of("ddp_report_reset", m, &r) && r)
        memset(&r->clock, 0, sizeof(r->clock));
}
