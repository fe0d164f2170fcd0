/*
 * wire.h - bytes on their way out and in: a growing buffer, and a reader that never steps past the end. Numbers are
 * little-endian. Layer: net.
 */
#ifndef YOKE_NET_WIRE_H
#define YOKE_NET_WIRE_H

#include "base/core.h"

/* A buffer that grows. Zero memory is an empty one. A failure to grow sticks: `failed` is checked once, at the end. */
typedef struct yk__wire {
    unsigned char *data;
    size_t size, capacity;
    bool failed;
} yk__wire;
void yk__wire_clear(yk__wire *wire);
/* Room for `size` more bytes at data + size; false when there is no memory. */
bool yk__wire_reserve(yk__wire *wire, size_t size);
void yk__wire_put(yk__wire *wire, const void *data, size_t size);
void yk__wire_put_u8(yk__wire *wire, unsigned value);
void yk__wire_put_u16(yk__wire *wire, unsigned value);
void yk__wire_put_u32(yk__wire *wire, uint32_t value);
void yk__wire_put_u64(yk__wire *wire, uint64_t value);
/* Length and bytes: 8, 16 and 32 bits of length. */
void yk__wire_put_text8(yk__wire *wire, const char *text);
void yk__wire_put_key(yk__wire *wire, const char *key, size_t size);
void yk__wire_put_value(yk__wire *wire, const void *data, size_t size);
/* A frame is the number of bytes that follow (u32), a type (u8) and a payload. begin gives what end wants. */
size_t yk__wire_frame_begin(yk__wire *wire, unsigned type);
void yk__wire_frame_end(yk__wire *wire, size_t begin);
/* The size alone. */
enum { YK__FRAME_HEAD = 4 };
uint32_t yk__load_u32(const unsigned char *bytes);

/* The rest of a message that is being read. Reading past the end sets `bad` and gives zeros. */
typedef struct yk__reader {
    const unsigned char *at, *end;
    bool bad;
} yk__reader;
const unsigned char *yk__read_bytes(yk__reader *reader, size_t size); /* NULL past the end */
unsigned yk__read_u8(yk__reader *reader);
unsigned yk__read_u16(yk__reader *reader);
uint32_t yk__read_u32(yk__reader *reader);
uint64_t yk__read_u64(yk__reader *reader);
/* True if the entire message was well-formed and nothing is left. */
bool yk__read_finished(const yk__reader *reader);

#endif
