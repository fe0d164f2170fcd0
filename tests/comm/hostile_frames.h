/*
 * hostile_frames.h - frames of any content that a rank that has joined can send to another under the keys of their
 * session, and its end.
 */
#ifndef YOKE_TESTS_COMM_HOSTILE_FRAMES_H
#define YOKE_TESTS_COMM_HOSTILE_FRAMES_H

#include "tests/comm/ranks.h"

#include <yoke/ops.h>

#include "comm/group.h"
#include "comm/native/multihost.h"
#include "tests/support/hostile.h"

typedef struct sealed {
    unsigned char bytes[2 * YK__FRAME_HEADER + sizeof(control_frame) + (CONTROL_PIECE + 64)];
    size_t size;
} sealed;

static inline native *state_of(const rank_context *c)
{
    return c->group->group->state;
}

/* Appends a frame of these bytes, sealed as the peer expects the next one. */
static inline void seal(sealed *s, yk__frame_state *keys, yk__frame_kind kind, const void *payload, size_t size)
{
    unsigned char *header = s->bytes + s->size;
    yk__frame_seal(keys, kind, payload, size, header + YK__FRAME_HEADER, header);
    if (keys->cipher == YK__CIPHER_NONE && size)
        memcpy(header + YK__FRAME_HEADER, payload, size);
    s->size += YK__FRAME_HEADER + size;
}

/* A control frame with what belongs to it, of which there may be more or less than it says. */
static inline void seal_control(sealed *s, yk__native_link *l, const control_frame *frame, const void *payload,
                                size_t size)
{
    s->size = 0;
    seal(s, l->control_send, YK__FRAME_CONTROL, frame, sizeof(*frame));
    if (size)
        seal(s, l->control_send, below(4) ? YK__FRAME_DATA : YK__FRAME_CONTROL, payload, size);
}

static inline void send_control(yk__native_link *l, const control_frame *frame, const void *payload, size_t size)
{
    sealed *s = malloc(sizeof(*s));
    seal_control(s, l, frame, payload, size);
    put(l->control, s->bytes, s->size);
    free(s);
}

/* The hostile one goes without another word: as one that was killed. */
static inline void vanish(native *g)
{
    for (int r = 0; r < g->world_size; r++) {
        yk__native_link *l = &g->net->links[r];
        if (l->control >= 0)
            shutdown(l->control, SHUT_RDWR);
        if (l->data >= 0)
            shutdown(l->data, SHUT_RDWR);
    }
    g->head->code = YK_ERR_CONNECTION;
    snprintf(g->head->cause, sizeof(g->head->cause), "it has gone");
    atomic_store(&g->head->broken, 2);
}

#endif
