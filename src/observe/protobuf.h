/*
 * protobuf.h - messages of Protocol Buffers, written into a buffer. Layer: observe.
 *
 * A message is fields: a number and a type, then the value. A message inside another is written into a buffer of its
 * own first. Where there is no memory the buffer is marked as failed, and stays as it was.
 */
#ifndef YOKE_OBSERVE_PROTOBUF_H
#define YOKE_OBSERVE_PROTOBUF_H

#include <stdlib.h>
#include <string.h>

#include "base/core.h"

typedef struct yk__proto {
    unsigned char *data;
    size_t size, room;
    bool failed;
} yk__proto;

static inline void yk__proto_raw(yk__proto *p, const void *data, size_t size)
{
    if (p->failed)
        return;
    if (p->size + size > p->room) {
        size_t room = 2 * (p->size + size) + 64;
        unsigned char *grown = realloc(p->data, room);
        if (!grown) {
            p->failed = true;
            return;
        }
        p->data = grown;
        p->room = room;
    }
    if (size)
        memcpy(p->data + p->size, data, size);
    p->size += size;
}

static inline void yk__proto_varint(yk__proto *p, uint64_t value)
{
    unsigned char bytes[10];
    size_t size = 0;
    do {
        bytes[size] = (unsigned char)(value & 127);
        value >>= 7;
        bytes[size++] |= value ? 128 : 0;
    } while (value);
    yk__proto_raw(p, bytes, size);
}

/* Types: 0 varint, 1 eight bytes, 2 a length and bytes, 5 four bytes. */
static inline void yk__proto_key(yk__proto *p, int field, int type)
{
    yk__proto_varint(p, (uint64_t)field << 3 | (uint64_t)type);
}

static inline void yk__proto_int(yk__proto *p, int field, int64_t value)
{
    yk__proto_key(p, field, 0);
    yk__proto_varint(p, (uint64_t)value);
}

/* Numbers stand in the file with their lowest byte first. */
static inline void yk__proto_fixed(yk__proto *p, uint64_t bits, int bytes)
{
    unsigned char out[8];
    for (int i = 0; i < bytes; i++)
        out[i] = (unsigned char)(bits >> (8 * i));
    yk__proto_raw(p, out, (size_t)bytes);
}

static inline void yk__proto_double_bits(yk__proto *p, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    yk__proto_fixed(p, bits, 8);
}

static inline void yk__proto_double(yk__proto *p, int field, double value)
{
    yk__proto_key(p, field, 1);
    yk__proto_double_bits(p, value);
}

static inline void yk__proto_float(yk__proto *p, int field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    yk__proto_key(p, field, 5);
    yk__proto_fixed(p, bits, 4);
}

static inline void yk__proto_bytes(yk__proto *p, int field, const void *data, size_t size)
{
    yk__proto_key(p, field, 2);
    yk__proto_varint(p, size);
    yk__proto_raw(p, data, size);
}

static inline void yk__proto_text(yk__proto *p, int field, const char *text)
{
    yk__proto_bytes(p, field, text, strlen(text));
}

/* Writes the inner message as a field, and empties it. */
static inline void yk__proto_message(yk__proto *p, int field, yk__proto *inner)
{
    yk__proto_bytes(p, field, inner->data, inner->size);
    p->failed |= inner->failed;
    free(inner->data);
    *inner = (yk__proto){0};
}

#endif
