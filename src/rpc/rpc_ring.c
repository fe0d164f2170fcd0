/*
 * rpc_ring.c - a ring of messages in memory that two processes share. Layer: rpc.
 *
 * Invariants: what lies between the two positions belongs to the reader, the rest to the writer. Nothing that the other
 * process can still change is used as a size or an offset: it is copied once, and the copy is checked.
 */
#include <string.h>

#include "rpc/rpc_ring.h"

enum { HEAD = 8, ALIGNED = 8, MASK = YK__RING_BYTES - 1 };
_Static_assert((YK__RING_BYTES & MASK) == 0, "positions are masked");

static size_t frame_size(size_t payload)
{
    return (HEAD + payload + ALIGNED - 1) & ~(size_t)(ALIGNED - 1);
}

static uint64_t bytes_in(yk__ring *ring, uint64_t at, const void *data, size_t size)
{
    size_t offset = at & MASK, first = YK__RING_BYTES - offset;
    first = first < size ? first : size;
    if (first)
        memcpy(ring->bytes + offset, data, first);
    if (size > first)
        memcpy(ring->bytes, (const char *)data + first, size - first);
    return at + size;
}

static void bytes_out(const yk__ring *ring, uint64_t at, void *data, size_t size)
{
    size_t offset = at & MASK, first = YK__RING_BYTES - offset;
    first = first < size ? first : size;
    if (first)
        memcpy(data, ring->bytes + offset, first);
    if (size > first)
        memcpy((char *)data + first, ring->bytes, size - first);
}

/* Bytes that the writer may use. */
static size_t room_left(const yk__ring *ring)
{
    uint64_t used = ring->at - atomic_load(&ring->words->read);
    return used > YK__RING_BYTES ? 0 : (size_t)(YK__RING_BYTES - used); /* a position that cannot be is no room */
}

/* The reader sees the word when it makes room after the second look. */
static bool ring_fits(yk__ring *ring, size_t whole)
{
    if (room_left(ring) >= whole)
        return true;
    atomic_store(&ring->words->starved, 1);
    return room_left(ring) >= whole;
}

bool yk__ring_put(yk__ring *ring, unsigned type, const void *head, size_t head_size, const void *data, size_t size)
{
    size_t payload = head_size + size, whole = frame_size(payload);
    if (!ring_fits(ring, whole))
        return false;
    uint32_t first[2] = {(uint32_t)payload, type};
    uint64_t at = bytes_in(ring, ring->at, first, sizeof(first));
    at = bytes_in(ring, at, head, head_size);
    bytes_in(ring, at, data, size);
    ring->at += whole;
    atomic_store(&ring->words->written, ring->at);
    return true;
}

bool yk__ring_ask_room(yk__ring *ring)
{
    return ring_fits(ring, frame_size(YK__RING_MOST));
}

bool yk__ring_has_frames(const yk__ring *ring)
{
    return !ring->broken && atomic_load(&ring->words->written) != ring->at;
}

unsigned yk__ring_next(yk__ring *ring, yk__wire *payload)
{
    if (!yk__ring_has_frames(ring))
        return 0;
    uint64_t there = atomic_load(&ring->words->written) - ring->at;
    uint32_t head[2] = {0, 0};
    bool right = there >= HEAD && there <= YK__RING_BYTES && there % ALIGNED == 0;
    if (right)
        bytes_out(ring, ring->at, head, sizeof(head));
    right = right && head[0] <= YK__RING_MOST && frame_size(head[0]) <= there && head[1] != 0;
    payload->size = 0;
    if (!right || !yk__wire_reserve(payload, head[0] ? head[0] : 1)) {
        ring->broken = true;
        return 0;
    }
    bytes_out(ring, ring->at + HEAD, payload->data, head[0]);
    payload->size = head[0];
    ring->at += frame_size(head[0]);
    atomic_store(&ring->words->read, ring->at);
    return head[1];
}

bool yk__ring_fed(yk__ring *ring)
{
    return atomic_load(&ring->words->starved) && atomic_exchange(&ring->words->starved, 0);
}
