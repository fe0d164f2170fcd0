/*
 * data_parallel_report.c - the time and the memory that a DataParallel module takes, device by device. Layer: parallel.
 */
#include <stdlib.h>

#include "parallel/data_parallel.h"

yk_status yk_data_parallel_report(yk_module *m, yk_device_times *devices)
{
    YK__LIVE(m);
    yk__data_parallel *d = yk__data_parallel_of("data_parallel_report", m);
    if (!d)
        return yk__error_code();
    if (!devices)
        return yk__fail(YK_ERR_ARGUMENT, "data_parallel_report: devices is NULL");
    double forwards = d->forwards ? (double)d->forwards : 1;
    for (int i = 0; i < d->count; i++) {
        const yk__device_clock *c = &d->clocks[i];
        yk_memory_info memory;
        yk_status status = yk_device_memory(d->devices[i], &memory);
        if (status)
            return status;
        devices[i] = (yk_device_times){
            .device = d->devices[i],
            .forwards = c->forwards,
            .samples = c->samples,
            .forward = c->forward / forwards,
            .wait = c->wait / forwards,
            .backward = (yk__backward_seconds(d->devices[i]) - c->backward_before) / forwards,
            .memory = memory.allocated,
            .peak_memory = memory.peak_allocated,
        };
    }
    return YK_OK;
}

void yk_data_parallel_report_reset(yk_module *m)
{
    YK__LIVE(m);
    yk__data_parallel *d = yk__data_parallel_of("data_parallel_report_reset", m);
    for (int i = 0; d && i < d->count; i++) {
        d->clocks[i] = (yk__device_clock){.backward_before = yk__backward_seconds(d->devices[i])};
        yk_device_reset_peak_memory(d->devices[i]);
    }
    if (d)
        d->forwards = 0;
}

static double mebibytes(size_t bytes)
{
    return (double)bytes / (1 << 20);
}

/* The line about balance: what the first device holds beyond the mean of the others that worked. */
static void print_balance(FILE *to, const yk_device_times *devices, int count)
{
    double others = 0;
    int working = 0;
    char name[16];
    for (int i = 1; i < count; i++) {
        others += devices[i].forwards ? mebibytes(devices[i].peak_memory) : 0;
        working += devices[i].forwards > 0;
    }
    if (!working)
        return;
    double first = mebibytes(devices[0].peak_memory), mean = others / working;
    fprintf(to, "%s held %.1f MiB at most, the others %.1f MiB on average", yk_device_format(devices[0].device, name),
            first, mean);
    fprintf(to, first > 1.1 * mean
                    ? ": it has the parameters, their gradients and all outputs; without gather and with "
                      "yk_data_parallel_criterion the outputs stay where they are\n"
                    : "\n");
}

yk_status yk_data_parallel_report_print(FILE *to, const yk_device_times *devices, int count)
{
    if (!to || !devices || count < 1)
        return yk__fail(YK_ERR_ARGUMENT, "data_parallel_report_print: %s",
                        !to        ? "the file is NULL"
                        : !devices ? "devices is NULL"
                                   : "no devices");
    fprintf(to, "device   forwards    samples   forward  backward      wait (ms)   memory     peak (MiB)\n");
    for (int i = 0; i < count; i++) {
        const yk_device_times *t = &devices[i];
        char name[16];
        fprintf(to, "%-8s %8lld %10lld %9.3f %9.3f %9.3f %13.1f %8.1f\n", yk_device_format(t->device, name),
                (long long)t->forwards, (long long)t->samples, t->forward * 1e3, t->backward * 1e3, t->wait * 1e3,
                mebibytes(t->memory), mebibytes(t->peak_memory));
    }
    if (devices[0].device.type != YK_CPU)
        fprintf(to, "these are times of the host, which queues work for GPUs and goes on, not theirs\n");
    print_balance(to, devices, count);
    return ferror(to) ? yk__fail(YK_ERR_IO, "data_parallel_report_print: the text could not be written") : YK_OK;
}
