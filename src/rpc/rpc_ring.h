/*
 * rpc_ring.h - messages through memory that two processes share: a ring for one writer and one reader. Layer: rpc.
 *
 * The ring is YK__RING_BYTES of memory and two positions that only grow: bytes that were written, and bytes that were
 * read. Each side keeps its own position in its own memory and believes of the other's only what can be: a process that
 * writes nonsense into the ring breaks it, and reads or writes nowhere else. A frame is u32 size, u32 type and the
 * payload, padded to 8 bytes; it is written whole before its position is published, and copied out of the ring before a
 * byte of it is looked at.
 */
#ifndef YOKE_RPC_RPC_RING_H
#define YOKE_RPC_RPC_RING_H

#include <stdatomic.h>

#include "net/wire.h"

/* YK__RING_MOST: the largest payload, an eighth of the ring, so that a large message does not keep small ones out. */
enum { YK__RING_BYTES = 256 << 10, YK__RING_MOST = 32 << 10 };

/* The positions, in shared memory, on cache lines of their own. */
typedef struct yk__ring_words {
    _Alignas(64) _Atomic uint64_t written;
    _Alignas(64) _Atomic uint64_t read;
    _Alignas(64) _Atomic uint32_t starved; /* the writer waits for room */
} yk__ring_words;

/* One side of a ring. */
typedef struct yk__ring {
    yk__ring_words *words;
    unsigned char *bytes;
    uint64_t at; /* this side's position */
    bool broken; /* of the reader: the writer's position cannot be, or a frame is none */
} yk__ring;

/* Appends a frame of two pieces; false where there is no room, and the reader is told so. */
bool yk__ring_put(yk__ring *ring, unsigned type, const void *head, size_t head_size, const void *data, size_t size);
/* Asks for room for a frame of the largest payload: true if there is, else the reader is told that it is waited for. */
bool yk__ring_ask_room(yk__ring *ring);
/* Copies the next frame into *payload: its type, or 0 when there is none, or the ring is broken. */
unsigned yk__ring_next(yk__ring *ring, yk__wire *payload);
/* True if a frame, or nonsense, is there for the reader. */
bool yk__ring_has_frames(const yk__ring *ring);
/* True, once, if the writer waited for room that the reader has made since. */
bool yk__ring_fed(yk__ring *ring);

#endif
