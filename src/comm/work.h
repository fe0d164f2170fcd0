/*
 * work.h - operations on their way, for submit.c, carry_out.c, posted.c and work.c. Layer: comm.
 */
#ifndef YOKE_COMM_WORK_H
#define YOKE_COMM_WORK_H

#include "base/events.h"
#include "comm/group.h"

static inline bool yk__is_message(const yk__comm_op *op)
{
    return op->kind >= YK__COMM_COLLECTIVES;
}

/* ---- work.c ---- */
/* Drops what a call owns, before it is a work. */
void yk__call_clear(yk__call *call);
/* Takes over what the call owns, also on failure. */
yk__work *yk__work_create(yk__group *g, yk__call *call);
/* A handle for the caller's scope; takes over the reference, also where it fails. */
yk_work *yk__work_handle(yk__work *work);
/* Waits until the work is done, or on a queue of its device before what this thread queues next; its error becomes the
 * thread's. */
yk_status yk__work_wait(yk__work *work);

/* Writes the group, dtype and reduction of an operation into its event. */
void yk__work_event(yk__event_open *open, const yk__group *g, const yk__comm_op *op);

/* ---- carry_out.c ---- */
/* Contiguous memory in place of tensors that are not. An output that is read too (all_reduce) is one with the input. */
yk_status yk__call_stage(yk__call *call, yk_tensor **staged_in, yk_tensor **staged_out);
/* Brings what came into such memory to where it belongs: now, or after the operation on a queue of the device. */
yk_status yk__call_unstage(yk__call *call, yk_tensor *staged_out);
yk_status yk__call_unstage_queued(yk__group *g, yk__call *call, void *queued);
/* Queues a collective of a device's memory in the backend. Without the lock. */
yk_status yk__work_queue(yk__group *g, yk__work *work);
/* Runs a collective whose turn it is, and ends the turn: one of the host's memory, without a work, whose entry in the
 * trace is `traced`; or one with a work, which is done then, or on its device's queue. Without the lock. */
yk_status yk__call_run(yk__group *g, yk__call *call, uint64_t traced);
void yk__work_run(yk__group *g, yk__work *work);
/* The group's thread, which runs what is queued. */
void *yk__work_thread(void *group);

/* ---- posted.c ---- */
/* Hands a message to the backend, and lists it. With the lock held. */
yk_status yk__message_post(yk__group *g, yk__work *work);
/* Asks the backend for up to `seconds`; true if the message is done, for which it finishes the work, once. */
bool yk__message_settle(yk__group *g, yk__work *work, double seconds);
/* Finishes messages that the backend is done with, whoever began them. */
void yk__messages_settle(yk__group *g);

#endif
