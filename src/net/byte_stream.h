/*
 * byte_stream.h - a stream of bytes over a connection, in data frames (frame.h) that leave from the sender's memory and
 * arrive in the receiver's. Layer: net.
 */
#ifndef YOKE_NET_BYTE_STREAM_H
#define YOKE_NET_BYTE_STREAM_H

#include "net/frame.h"

enum {
    YK__BYTE_STREAM_FRAME = 128 << 10, /* the largest payload: stays in the cache between the digest and the system */
    YK__BYTE_STREAM_AHEAD = 4 << 10    /* received with what is wanted: headers, and small frames whole */
};

typedef struct yk__byte_stream {
    yk__frame_state sending, receiving;
    /* the frame that is being sent; out_size 0: none */
    unsigned char out_header[YK__FRAME_HEADER];
    size_t out_size, out_sent; /* its payload; sent of header and payload */
    unsigned char *encrypted;
    /* the frame that is being received */
    yk__frame_head head;
    bool in_frame;
    size_t in_got;
    unsigned char *in_to;
    /* received and not yet looked at; a frame that is larger than what was asked for */
    unsigned char ahead[YK__BYTE_STREAM_AHEAD], *held;
    size_t ahead_at, ahead_end, held_at, held_end;
    bool moved; /* bytes went or came in the last call, of whole frames or not */
} yk__byte_stream;
void yk__byte_stream_clear(yk__byte_stream *stream); /* frees and wipes; the socket is the caller's */

/*
 * Sends or receives as much of `size` bytes as goes without waiting: adds whole frames to *done. After a call that did
 * not come to the end, the next one must name the same bytes (from *done on), and no fewer. YK__REACHED when *done is
 * `size`, YK__NO_ANSWER when the rest has to wait, YK__DAMAGED with the text, YK__LOST with the text and errno (0: the
 * other side closed the connection). What is received has been
 * checked, and decrypted, when *done counts it; until then the memory holds anything.
 */
yk__reason yk__byte_stream_send(yk__byte_stream *stream, int fd, const void *data, size_t size, size_t *done,
                                char why[YK__WHY_SIZE]);
yk__reason yk__byte_stream_receive(yk__byte_stream *stream, int fd, void *data, size_t size, size_t *done,
                                   char why[YK__WHY_SIZE]);

#endif
