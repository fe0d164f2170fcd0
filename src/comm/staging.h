/*
 * staging.h - collectives and messages of tensors whose memory the host cannot touch, on the device's queue.
 * Layer: comm.
 */
#ifndef YOKE_COMM_STAGING_H
#define YOKE_COMM_STAGING_H

#include "comm/group.h"

typedef struct yk__staging yk__staging;

/* Whether a call's tensors need it. */
bool yk__staging_needed(const yk__call *call);
/* Pinned memory for the call; nothing is queued yet. NULL and an error on failure. */
yk__staging *yk__staging_create(const yk__call *call);
/* Queues, behind all that the device has to do: the inputs' way to the host, the collective's turn, the outputs' way
 * back. Calls of one group are queued in the order of their numbers. */
yk_status yk__staging_queue(yk__staging *s);
/* Messages have no turn: what is sent is brought to the host first, for which this waits up to `seconds`, and put into
 * the operation; so is the memory for what comes, which is queued on its way to the device by deliver. */
yk_status yk__staging_fetch(yk__staging *s, double seconds, yk__comm_op *op);
yk_status yk__staging_deliver(yk__staging *s);
/* Waits until the turn has come, for up to `seconds`, and puts the memory into the operation. */
yk_status yk__staging_wait(yk__staging *s, double seconds, yk__comm_op *op);
/* The turn is over: the device goes on. Always called once where something may have been queued. */
void yk__staging_end_turn(yk__staging *s);
/* Waits, for up to `seconds`, until the device has let go of the memory. */
void yk__staging_free(yk__staging *s, double seconds);

#endif
