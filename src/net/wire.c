/*
 * wire.c - the growing buffer and the bounded reader under every message. Layer: net.
 */
#include <stdlib.h>
#include <string.h>

#include "net/wire.h"

void yk__wire_clear(yk__wire *wire)
{
    free(wire->data);
    *wire = (yk__wire){0};
}

bool yk__wire_reserve(yk__wire *wire, size_t size)
{
    if (wire->failed)
        return false;
    if (size <= wire->capacity - wire->size)
        return true;
    size_t capacity = wire->capacity ? wire->capacity : 256;
    while (capacity - wire->size < size)
        capacity *= 2;
    unsigned char *data = realloc(wire->data, capacity);
    if (!data) {
        wire->failed = true;
        return false;
    }
    wire->data = data;
    wire->capacity = capacity;
    return true;
}

void yk__wire_put(yk__wire *wire, const void *data, size_t size)
{
    if (!size || !yk__wire_reserve(wire, size))
        return;
    memcpy(wire->data + wire->size, data, size);
    wire->size += size;
}

static void put_number(yk__wire *wire, uint64_t value, size_t bytes)
{
    unsigned char text[8];
    for (size_t i = 0; i < bytes; i++)
        text[i] = (unsigned char)(value >> (8 * i));
    yk__wire_put(wire, text, bytes);
}

void yk__wire_put_u8(yk__wire *wire, unsigned value)
{
    put_number(wire, value, 1);
}

void yk__wire_put_u16(yk__wire *wire, unsigned value)
{
    put_number(wire, value, 2);
}

void yk__wire_put_u32(yk__wire *wire, uint32_t value)
{
    put_number(wire, value, 4);
}

void yk__wire_put_u64(yk__wire *wire, uint64_t value)
{
    put_number(wire, value, 8);
}

void yk__wire_put_text8(yk__wire *wire, const char *text)
{
    size_t size = strnlen(text, 255);
    yk__wire_put_u8(wire, (unsigned)size);
    yk__wire_put(wire, text, size);
}

void yk__wire_put_key(yk__wire *wire, const char *key, size_t size)
{
    yk__wire_put_u16(wire, (unsigned)size);
    yk__wire_put(wire, key, size);
}

void yk__wire_put_value(yk__wire *wire, const void *data, size_t size)
{
    yk__wire_put_u32(wire, (uint32_t)size);
    yk__wire_put(wire, data, size);
}

size_t yk__wire_frame_begin(yk__wire *wire, unsigned type)
{
    size_t begin = wire->size;
    yk__wire_put_u32(wire, 0);
    yk__wire_put_u8(wire, type);
    return begin;
}

void yk__wire_frame_end(yk__wire *wire, size_t begin)
{
    if (wire->failed)
        return;
    uint32_t size = (uint32_t)(wire->size - begin - YK__FRAME_HEAD);
    for (int i = 0; i < 4; i++)
        wire->data[begin + (size_t)i] = (unsigned char)(size >> (8 * i));
}

uint32_t yk__load_u32(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

const unsigned char *yk__read_bytes(yk__reader *reader, size_t size)
{
    if (reader->bad || size > (size_t)(reader->end - reader->at)) {
        reader->bad = true;
        return NULL;
    }
    const unsigned char *bytes = reader->at;
    reader->at += size;
    return bytes;
}

static uint64_t read_number(yk__reader *reader, size_t bytes)
{
    const unsigned char *text = yk__read_bytes(reader, bytes);
    uint64_t value = 0;
    for (size_t i = 0; text && i < bytes; i++)
        value |= (uint64_t)text[i] << (8 * i);
    return value;
}

unsigned yk__read_u8(yk__reader *reader)
{
    return (unsigned)read_number(reader, 1);
}

unsigned yk__read_u16(yk__reader *reader)
{
    return (unsigned)read_number(reader, 2);
}

uint32_t yk__read_u32(yk__reader *reader)
{
    return (uint32_t)read_number(reader, 4);
}

uint64_t yk__read_u64(yk__reader *reader)
{
    return read_number(reader, 8);
}

bool yk__read_finished(const yk__reader *reader)
{
    return !reader->bad && reader->at == reader->end;
}
