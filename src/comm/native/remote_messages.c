/*
 * remote_messages.c - send and recv between hosts, over the control connections. Layer: comm/native.
 *
 * Up to CONTROL_EAGER bytes go at once (eager), and the receiver keeps them until a receive asks for them; of more, the
 * sender offers the message, and the bytes go from memory to memory when a receive has accepted it (rendezvous).
 */
#include <stdlib.h>
#include <string.h>

#include "comm/native/multihost.h"

bool yk__native_remote_send(native *g, yk__native_message *m, yk_status *status)
{
    const yk__comm_op *op = &m->op;
    yk__native_link *l = &g->net->links[op->peer];
    *status = YK_OK;
    if (m->offer)
        return m->posted; /* the last piece is sent */
    for (const yk__native_message *before = g->messages; before != m; before = before->next)
        if (!before->done && before->local_rank < 0 && before->op.kind == YK__COMM_SEND &&
            before->op.peer == op->peer && !before->offer)
            return false; /* messages keep their order */
    size_t bytes = yk__comm_message_bytes(op);
    control_frame frame = {.type = bytes > CONTROL_EAGER || op->announced ? CONTROL_OFFER : CONTROL_MESSAGE,
                           .tag = op->tag,
                           .dtype = (int32_t)op->dtype,
                           .code = (int32_t)op->announced,
                           .number = op->number,
                           .count = op->count};
    if (l->closed || l->queued > CONTROL_QUEUE)
        return false;
    frame.bytes = frame.type == CONTROL_MESSAGE ? bytes : 0;
    m->offer = frame.type == CONTROL_OFFER ? op->number : 0;
    if (!yk__native_control_enqueue(g, l, &frame, op->in, NULL)) {
        *status = yk__native_fail_message(g, op);
        return true;
    }
    return frame.type == CONTROL_MESSAGE;
}

bool yk__native_remote_recv(native *g, yk__native_message *m, yk_status *status)
{
    const yk__comm_op *op = &m->op;
    yk__native_link *l = &g->net->links[op->peer];
    size_t bytes = yk__comm_message_bytes(op);
    *status = YK_OK;
    if (m->offer)
        return m->arrived == bytes;
    for (const yk__native_message *before = g->messages; before != m; before = before->next)
        if (!before->done && before->op.kind == YK__COMM_RECV && before->op.peer == op->peer &&
            before->op.tag == op->tag && !before->offer)
            return false; /* an earlier receive has the first claim */
    control_arrived **at = &l->arrived;
    while (*at && (*at)->frame.tag != op->tag)
        at = &(*at)->next;
    control_arrived *a = *at;
    if (!a)
        return false;
    *at = a->next;
    if (!*at)
        l->arrived_end = at;
    l->unclaimed -= yk__native_arrived_size(a);
    control_frame f = a->frame;
    if (f.dtype != (int32_t)op->dtype || f.count != op->count || f.code != (int32_t)op->announced ||
        (f.type == CONTROL_MESSAGE && f.bytes != bytes)) {
        yk__comm_op sent = {.kind = YK__COMM_SEND,
                            .dtype = (yk_dtype)f.dtype,
                            .count = f.count,
                            .number = f.number,
                            .peer = g->rank,
                            .tag = f.tag};
        *status = yk__native_mismatch(g, op->peer, &sent, g->rank, op);
    } else if (f.type == CONTROL_OFFER) {
        m->offer = f.number;
        if (!yk__native_control_enqueue(g, l, &(control_frame){.type = CONTROL_ACCEPT, .number = f.number}, NULL, NULL))
            *status = yk__native_fail_message(g, op);
    } else if (bytes) {
        memcpy(op->out, a->bytes, bytes);
    }
    free(a);
    return *status || f.type == CONTROL_MESSAGE;
}
