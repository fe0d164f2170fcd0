/*
 * staging.h - collectives and messages of tensors whose memory the host cannot touch, by way of pinned memory.
 * Layer: comm.
 */
#ifndef YOKE_COMM_STAGING_H
#define YOKE_COMM_STAGING_H

#include "comm/group.h"

typedef struct yk__staging yk__staging;

/* Whether a call's tensors need it. */
bool yk__staging_needed(const yk__call *call);
/* Pinned memory for the call; nothing is copied yet. NULL and an error on failure. Not outlived by the group. */
yk__staging *yk__staging_create(yk__group *g, const yk__call *call);
/* Queues, behind what the calling thread has put on its queue of the device, the inputs' way to the host. */
yk_status yk__staging_queue(yk__staging *s);
/* Waits until the inputs are there, for up to `seconds`, and puts the memory into the operation. Any thread. */
yk_status yk__staging_fetch(yk__staging *s, double seconds, yk__comm_op *op);
/* Brings the outputs to the device, and waits for that. Any thread. */
yk_status yk__staging_deliver(yk__staging *s, double seconds, const yk__comm_op *op);
/* Waits, for up to `seconds`, until the device has let go of the memory, which the group keeps. */
void yk__staging_free(yk__staging *s, double seconds);
/* Of the list of memory that a group keeps; for tests. */
const struct yk__pinned *yk__staging_next(const struct yk__pinned *piece);
/* The memory that the group keeps goes. */
void yk__staging_leave(yk__group *g);

#endif
