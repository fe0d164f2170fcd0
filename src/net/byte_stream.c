/*
 * byte_stream.c - bytes from memory to memory, in frames that are checked. Layer: net.
 *
 * A frame is received where the caller wants it, if all of it has room there; else into a buffer of the stream, from
 * which it is copied. With a header the bytes after it are received, up to YK__BYTE_STREAM_AHEAD, so a small frame
 * costs one call of the system and a large one little more than one.
 *
 * Invariant: a byte that is counted as received belongs to a frame whose digest was compared.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "net/byte_stream.h"

void yk__byte_stream_clear(yk__byte_stream *s)
{
    free(s->encrypted);
    free(s->held);
    explicit_bzero(s, sizeof(*s));
}

static yk__reason broke(bool ended, char why[YK__WHY_SIZE])
{
    bool gone = ended || errno == EPIPE || errno == ECONNRESET;
    snprintf(why, YK__WHY_SIZE, gone ? "the connection was closed by the other side" : "the connection broke: %s",
             strerror(errno));
    errno = ended ? 0 : errno;
    return YK__LOST;
}

static yk__reason no_memory(char why[YK__WHY_SIZE])
{
    snprintf(why, YK__WHY_SIZE, "out of memory for a frame");
    errno = ENOMEM;
    return YK__LOST;
}

/* Room for one frame; NULL without memory. */
static unsigned char *frame_room(unsigned char **buffer)
{
    if (!*buffer)
        *buffer = malloc(YK__BYTE_STREAM_FRAME);
    return *buffer;
}

yk__reason yk__byte_stream_send(yk__byte_stream *s, int fd, const void *data, size_t size, size_t *done,
                                char why[YK__WHY_SIZE])
{
    bool encrypts = s->sending.cipher != YK__CIPHER_NONE;
    s->moved = false;
    while (*done < size) {
        const unsigned char *payload = (const unsigned char *)data + *done;
        if (!s->out_size) {
            if (encrypts && !frame_room(&s->encrypted))
                return no_memory(why);
            s->out_size = size - *done < YK__BYTE_STREAM_FRAME ? size - *done : YK__BYTE_STREAM_FRAME;
            s->out_sent = 0;
            yk__frame_seal(&s->sending, YK__FRAME_DATA, payload, s->out_size, s->encrypted, s->out_header);
        }
        if (encrypts)
            payload = s->encrypted;
        while (s->out_sent < YK__FRAME_HEADER + s->out_size) {
            struct iovec parts[2];
            size_t count = 0, from = s->out_sent < YK__FRAME_HEADER ? 0 : s->out_sent - YK__FRAME_HEADER;
            if (s->out_sent < YK__FRAME_HEADER)
                parts[count++] = (struct iovec){s->out_header + s->out_sent, YK__FRAME_HEADER - s->out_sent};
            parts[count++] = (struct iovec){(void *)(uintptr_t)(payload + from), s->out_size - from};
            struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
            ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL);
            if (n >= 0) {
                s->out_sent += (size_t)n;
                s->moved = true;
            } else if (errno == EAGAIN) {
                return YK__NO_ANSWER;
            } else if (errno != EINTR) {
                return broke(false, why);
            }
        }
        *done += s->out_size;
        s->out_size = 0;
    }
    return YK__REACHED;
}

/* The next frame's header from what was received ahead; *there tells whether it has come. */
static yk__reason begin_frame(yk__byte_stream *s, unsigned char *to, size_t room, bool *there, char why[YK__WHY_SIZE])
{
    *there = s->ahead_end - s->ahead_at >= YK__FRAME_HEADER;
    if (!*there)
        return YK__REACHED;
    if (!yk__frame_open_head(&s->receiving, s->ahead + s->ahead_at, YK__BYTE_STREAM_FRAME, &s->head, why))
        return YK__DAMAGED;
    if (!s->head.size) { /* nobody sends one, and reading many would have no end */
        snprintf(why, YK__WHY_SIZE, "frame %llu is empty", (unsigned long long)s->head.sequence);
        return YK__DAMAGED;
    }
    s->ahead_at += YK__FRAME_HEADER;
    s->in_to = s->head.size <= room ? to : frame_room(&s->held);
    s->in_got = 0;
    s->in_frame = true;
    return s->in_to ? YK__REACHED : no_memory(why);
}

/* Receives once: the rest of the frame, if there is one, and bytes after it. */
static yk__reason receive_once(yk__byte_stream *s, int fd, char why[YK__WHY_SIZE])
{
    size_t rest = s->in_frame ? s->head.size - s->in_got : 0, kept = s->ahead_end - s->ahead_at;
    if (kept)
        memmove(s->ahead, s->ahead + s->ahead_at, kept); /* a part of a header */
    s->ahead_at = 0;
    s->ahead_end = kept;
    struct iovec parts[2] = {{s->in_frame ? s->in_to + s->in_got : NULL, rest},
                             {s->ahead + kept, YK__BYTE_STREAM_AHEAD - kept}};
    struct msghdr message = {.msg_iov = rest ? parts : parts + 1, .msg_iovlen = rest ? 2 : 1};
    for (;;) {
        ssize_t n = recvmsg(fd, &message, 0);
        if (n > 0) {
            size_t got = (size_t)n < rest ? (size_t)n : rest;
            s->in_got += got;
            s->ahead_end += (size_t)n - got;
            s->moved = true;
            return YK__REACHED;
        }
        if (n < 0 && errno == EAGAIN)
            return YK__NO_ANSWER;
        if (n == 0 || errno != EINTR)
            return broke(n == 0, why);
    }
}

yk__reason yk__byte_stream_receive(yk__byte_stream *s, int fd, void *data, size_t size, size_t *done,
                                   char why[YK__WHY_SIZE])
{
    s->moved = false;
    while (*done < size) {
        unsigned char *to = (unsigned char *)data + *done;
        if (s->held_at < s->held_end) {
            size_t n = s->held_end - s->held_at < size - *done ? s->held_end - s->held_at : size - *done;
            memcpy(to, s->held + s->held_at, n);
            s->held_at += n;
            *done += n;
            continue;
        }
        yk__reason reason = YK__REACHED;
        bool there = true;
        if (!s->in_frame)
            reason = begin_frame(s, to, size - *done, &there, why);
        if (!reason && there) {
            size_t rest = s->head.size - s->in_got, ahead = s->ahead_end - s->ahead_at;
            size_t n = rest < ahead ? rest : ahead;
            memcpy(s->in_to + s->in_got, s->ahead + s->ahead_at, n);
            s->in_got += n;
            s->ahead_at += n;
        }
        if (!reason && (!there || s->in_got < s->head.size))
            reason = receive_once(s, fd, why);
        if (reason)
            return reason;
        if (!s->in_frame || s->in_got < s->head.size)
            continue;
        s->in_frame = false;
        if (!yk__frame_open(&s->receiving, &s->head, s->in_to, why))
            return YK__DAMAGED;
        if (s->in_to == s->held) {
            s->held_at = 0;
            s->held_end = s->head.size;
        } else {
            *done += s->head.size;
        }
    }
    return YK__REACHED;
}
