/*
 * channel.h - messages between two processes of a job: the hand-shake, then a type and a payload each, in control
 * frames (frame.h). Layer: net.
 *
 * A channel has no socket of its own: bytes that came are given to yk__channel_feed, and what is in `out` from `sent`
 * on is to be sent. yk__channel_receive and yk__channel_flush do both for a non-blocking socket, and
 * yk__channel_wait_sent and yk__channel_wait_message wait. In short, a side of a connection is
 *
 *     yk__channel_init(&c, &identity, accepts, limit);
 *     yk__channel_begin(&c, TYPE);    the side that connected may do so at once: it is sent after its proof
 *     yk__wire_put_u32(&c.message, number);
 *     yk__channel_end(&c);
 *     when the socket is readable: yk__channel_receive(&c, fd), then yk__channel_next until it gives 0
 *     when there is c.out.size > c.sent and the socket is writable: yk__channel_flush(&c, fd)
 *     yk__channel_clear(&c);
 */
#ifndef YOKE_NET_CHANNEL_H
#define YOKE_NET_CHANNEL_H

#include "net/handshake.h"

typedef struct yk__channel {
    yk__handshake handshake; /* `peer` is valid once the channel is open */
    yk__frame_state sending, receiving;
    yk__wire out;     /* to be sent, from `sent` on */
    yk__wire early;   /* messages that wait for the session's key: u32 size and bytes each */
    yk__wire message; /* the one that is being made */
    yk__wire in;      /* received, from `taken` on: less than a message, or messages that nobody has asked for */
    size_t sent, taken, limit;
    bool closed;      /* lost: the other side's system has closed the connection in order, and it was not reset */
    bool open;        /* the hand-shake is done: the peer belongs to the job */
    yk__reason state; /* YK__REACHED: it can be used; else the reason why not: YK__REJECTED (by the
                       * hand-shake), YK__DAMAGED or YK__LOST */
    char why[YK__WHY_SIZE];
} yk__channel;

/* `limit`: the largest payload that is accepted, in bytes. The identity is borrowed until the channel is open. */
void yk__channel_init(yk__channel *channel, const yk__identity *identity, bool accepts, size_t limit);
/* Frees and wipes; the socket is the caller's. */
void yk__channel_clear(yk__channel *channel);

/* A message of `type` (1 to 255), whose payload is put into channel->message, and which end queues for sending. The
 * side that accepts may not send before it is open. Without memory the channel is of no use any more (YK__LOST). */
void yk__channel_begin(yk__channel *channel, unsigned type);
void yk__channel_end(yk__channel *channel);
/* Both with a payload that is there. */
void yk__channel_send(yk__channel *channel, unsigned type, const void *payload, size_t size);

/* Takes bytes that came: the hand-shake's at once, others are kept. Gives the channel's state. A state other than
 * YK__REACHED is final; what is in `out` then is the reason for the peer, to be sent before the socket is closed. */
yk__reason yk__channel_feed(yk__channel *channel, const void *data, size_t size);
/* The next message's type, 0 when there is none (yet, or any more: see the state). The reader's bytes are valid until
 * the next call with this channel. */
unsigned yk__channel_next(yk__channel *channel, yk__reader *payload);
/* True if something is to be sent. */
static inline bool yk__channel_unsent(const yk__channel *channel)
{
    return channel->out.size > channel->sent;
}

/* ---- with a non-blocking socket ---------------------------------------------------------------------------------- */
/* Sends what the system takes: the channel's state, YK__LOST where the connection broke. */
yk__reason yk__channel_flush(yk__channel *channel, int fd);
/* Receives what is there, at most `most` bytes: the channel's state, YK__LOST at the end of the connection. What came
 * before the end can still be asked for. */
yk__reason yk__channel_receive(yk__channel *channel, int fd, size_t most);
/* Receives no byte after the hand-shake, or where that is done, after the next message: bytes that follow may belong to
 * someone else. */
yk__reason yk__channel_receive_exactly(yk__channel *channel, int fd);
/* Waits until the hand-shake is done, until all is sent, or until a message is there (*type, *payload). YK__NO_ANSWER
 * at the deadline, else the channel's state, with the text in channel->why. */
yk__reason yk__channel_wait_open(yk__channel *channel, int fd, double deadline);
yk__reason yk__channel_wait_sent(yk__channel *channel, int fd, double deadline);
yk__reason yk__channel_wait_message(yk__channel *channel, int fd, double deadline, unsigned *type, yk__reader *payload);

#endif
