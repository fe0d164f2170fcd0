/*
 * queues.c - the queue of its devices that a thread's work goes to, and order between queues. Layer: device.
 *
 * A thread begins on YK__QUEUE_COMPUTE, and what it puts on another is nothing that the first waits for, or that waits
 * for the first, until the two are ordered.
 */
#include "device/table.h"

static _Thread_local yk__queue current;

yk__queue yk__queue_begin(yk__queue queue)
{
    yk__queue previous = current;
    current = queue;
    return previous;
}

void yk__queue_end(yk__queue previous)
{
    current = previous;
}

yk__queue yk__queue_current(void)
{
    return current;
}

yk_status yk__queue_order(yk_device device, yk__queue queue, yk_device other, yk__queue after)
{
    const yk__backend *backend = yk__backend_of(device);
    if (!backend)
        return yk__error_code();
    if (!backend->queue_order || (yk_device_equal(device, other) && queue == after))
        return YK_OK;
    return backend->queue_order(device.index, queue, other.index, after);
}
