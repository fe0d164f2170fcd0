/*
 * elastic_balance.c - virtual ranks given out by measured speed. Layer: elastic.
 *
 * Who computes a virtual rank changes no bit, so it may change between any two steps. Each process measures the seconds
 * from a batch to the last gradient of its backward, without waiting for the others. All know all processes' seconds,
 * and decide alike: where another division would have the slowest done earlier by MARGIN, after WINDOW steps, it is
 * taken. Both keep noise from moving virtual ranks back and forth.
 */
#include <stdlib.h>
#include <string.h>

#include "base/core.h"
#include "base/log.h"
#include "elastic/elastic_job.h"

enum { WINDOW = 8 /* steps that are measured before a look */ };
static const double MARGIN = 0.1;

yk_status yk__balance_make(yk_elastic *e)
{
    size_t most = (size_t)(e->survives ? e->virtual_ranks : e->world);
    e->balance.seconds = yk__calloc(most, sizeof(*e->balance.seconds));
    e->balance.next = yk__calloc(most + 1, sizeof(*e->balance.next));
    return e->balance.seconds && e->balance.next ? YK_OK : YK_ERR_MEMORY;
}

void yk__balance_clear(yk_elastic *e)
{
    free(e->balance.seconds);
    free(e->balance.next);
}

void yk__balance_members(yk_elastic *e)
{
    yk__balance *b = &e->balance;
    b->steps = 0;
    b->due = false;
    if (b->on)
        memset(b->seconds, 0, (size_t)e->world * sizeof(*b->seconds));
}

void yk__balance_step(yk_elastic *e)
{
    e->balance.computed = 0;
}

void yk__balance_batch(yk_elastic *e)
{
    e->balance.began = yk__now();
}

void yk__balance_backward_begin(yk_elastic *e)
{
    if (!e->balance.on)
        return;
    e->balance.computed += yk__now() - e->balance.began;
    e->balance.backward = e->reducer->clock.backward;
}

void yk__balance_backward_end(yk_elastic *e)
{
    if (e->balance.on)
        e->balance.computed += e->reducer->clock.backward - e->balance.backward;
}

/* The time until all processes are done, as they are measured, with the division that there is. */
static double present_seconds(const yk_elastic *e)
{
    double last = 0;
    for (int p = 0; p < e->world; p++) {
        double until = (e->begin[p + 1] - e->begin[p]) * e->balance.seconds[p];
        last = until > last ? until : last;
    }
    return last;
}

void yk__balance_note(yk_elastic *e, const double *computed)
{
    yk__balance *b = &e->balance;
    if (!b->on)
        return;
    for (int p = 0; p < e->world; p++)
        b->seconds[p] += computed[p] / (e->begin[p + 1] - e->begin[p]);
    if (++b->steps < WINDOW)
        return;
    double next = yk__leaves_divide(e->virtual_ranks, e->world, b->seconds, b->next);
    b->due = next < (1 - MARGIN) * present_seconds(e);
    b->steps = 0;
    memset(b->seconds, 0, (size_t)e->world * sizeof(*b->seconds));
}

yk_status yk__balance_apply(yk_elastic *e)
{
    if (!e->balance.due)
        return YK_OK;
    e->balance.due = false;
    memcpy(e->begin, e->balance.next, ((size_t)e->world + 1) * sizeof(*e->begin));
    e->mine = (yk__leaves){e->begin[e->rank], e->begin[e->rank + 1]};
    yk__leaf_sums_clear(&e->sums);
    yk__leaf_sums_init(&e->sums, e->virtual_ranks, e->rank, e->world, e->begin);
    yk_status status = yk__loader_share_anew(e->loader, e->mine.begin, e->mine.end - e->mine.begin);
    if (!status)
        status = yk__elastic_make_buffers(e);
    if (!status && e->rank == 0)
        yk__log(YK_LOG_INFO, "elastic: virtual ranks are given out anew by speed; this process has %d of %d",
                e->mine.end - e->mine.begin, e->virtual_ranks);
    return status;
}
