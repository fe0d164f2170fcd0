/*
 * staging.h - collectives and messages of tensors whose memory the host cannot touch, by way of pinned memory.
 * Layer: comm.
 */
#ifndef YOKE_COMM_STAGING_H
#define YOKE_COMM_STAGING_H

#include "comm/group.h"

typedef struct yk__staging yk__staging;

/* True if a call's tensors need staging in the host's memory. */
bool yk__staging_needed(const yk__call *call);
/* Pinned memory for the call; nothing is copied yet. NULL and an error on failure. Not outlived by the group. */
yk__staging *yk__staging_create(yk__group *g, const yk__call *call);
/* Queues the copy of the inputs to the host after what the calling thread has put on its queue of the device. */
yk_status yk__staging_queue(yk__staging *s);
/* Waits until the inputs are there, for up to `seconds`, and puts the memory into the operation. Any thread. */
yk_status yk__staging_fetch(yk__staging *s, double seconds, yk__comm_op *op);
/* Brings the outputs to the device, and waits for that. Any thread. */
yk_status yk__staging_deliver(yk__staging *s, double seconds, const yk__comm_op *op);
/* Waits, for up to `seconds`, until the device has let go of the memory, which the group keeps. */
void yk__staging_free(yk__staging *s, double seconds);
/* The next in the list of memory that a group keeps; for tests. */
const struct yk__pinned *yk__staging_next(const struct yk__pinned *piece);
/* Frees the memory that the group keeps. */
void yk__staging_leave(yk__group *g);

#endif
