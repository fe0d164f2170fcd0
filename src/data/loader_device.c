/*
 * loader_device.c - a loader's next batch on the options' device. Layer: data.
 *
 * For a device that copies while it computes (pinned.c) the caller's thread brings a batch there, and the one behind it
 * where that is ready: it is `ahead`, taken from its slot and not yet given to the caller.
 */
#include "data/loader.h"
#include "tensor/tensor.h"

/* Tensor i of a batch on the options' device. */
static yk_tensor *bring_tensor(const yk_loader *l, const yk__batch *batch, int i)
{
    if (i == 0 && batch->crops)
        return yk__pinned_augment(l->pinned, &l->pipeline, batch->tensors[0], batch->crops);
    return l->pinned ? yk__pinned_upload(l->pinned, batch->tensors[i])
                     : yk__raw_to(batch->tensors[i], l->options.device);
}

/* The tensors of a batch on the options' device: their copies are queued. What fails goes into `made`. */
static void bring_to_device(const yk_loader *l, yk__made_batch *made)
{
    YK__OWN_RECORD;
    yk__batch *batch = &made->batch;
    if (yk_device_equal(l->options.device, (yk_device){0})) /* they are made there */
        return;
    for (int i = 0; i < batch->count && !made->failed; i++) {
        yk_tensor *there = bring_tensor(l, batch, i);
        if (there) {
            yk_tensor_release(batch->tensors[i]);
            batch->tensors[i] = there;
            yk__object_set_maker(there, "loader_next");
        } else {
            yk__made_batch_clear(made);
            made->failed = true;
            yk__error_take(&made->error);
        }
    }
    yk_tensor_release(batch->crops);
    batch->crops = NULL;
}

/* The batch at l->taken, made here where there are no workers, on the options' device. */
static void take_batch(yk_loader *l, yk__made_batch *made)
{
    if (l->options.workers)
        yk__loader_wait(l, made);
    else
        yk__loader_make_batch(l, &l->workers[0].data, l->taken++, made);
    bring_to_device(l, made);
}

void yk__loader_take(yk_loader *l)
{
    if (!l->pinned) {
        take_batch(l, &l->held);
        return;
    }
    yk_status status = yk__pinned_hold_back(l->pinned);
    if (l->has_ahead)
        l->held = l->ahead;
    else if (!status)
        take_batch(l, &l->held);
    l->ahead = (yk__made_batch){0};
    l->has_ahead = false;
    if (!status && !l->held.failed)
        status = yk__pinned_await(l->pinned);
    if (status) {
        yk__made_batch_clear(&l->held);
        l->held.failed = true;
        yk__error_take(&l->held.error);
    }
    if (!l->held.failed && l->options.workers && yk__loader_is_ready(l)) {
        take_batch(l, &l->ahead);
        l->has_ahead = true;
    }
}
