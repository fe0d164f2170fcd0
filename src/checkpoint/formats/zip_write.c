/*
 * zip_write.c - writes zip files of stored members, as PyTorch lays them out. Layer: checkpoint.
 *
 * Data begin at multiples of 64 bytes, so that a reader may map them: an extra field "FB" fills the space, as in
 * PyTorch's files. Sizes and offsets that do not fit 32 bits go to zip64 fields. Times are 1980-01-01: the same members
 * give the same bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/formats/zip.h"
#include "host/file.h"

/* Sizes and values of the format, but for ALIGNMENT: bytes; data that is mapped starts at a cache line, as PyTorch has
 * it. */
enum { LOCAL = 30, CENTRAL = 46, ALIGNMENT = 64, DATE = 1 << 5 | 1, VERSION = 45, FLAG_UTF8 = 2048 };

static unsigned char *put(unsigned char *to, int size, uint64_t value)
{
    for (int i = 0; i < size; i++)
        *to++ = (unsigned char)(value >> 8 * i);
    return to;
}

static uint32_t clip(uint64_t value)
{
    return value >= 0xFFFFFFFF ? 0xFFFFFFFF : (uint32_t)value;
}

static yk_status emit(yk__zip_writer *writer, const void *data, size_t size)
{
    writer->offset += size;
    return yk__file_write(writer->file, data, size);
}

static yk_status add_entry(yk__zip_writer *writer, const char *name, uint64_t header, uint64_t size, uint32_t crc)
{
    size_t length = strlen(name), most = CENTRAL + length + 28;
    if (writer->used + most > writer->capacity) {
        size_t capacity = 2 * writer->capacity + most + 4096;
        unsigned char *directory = yk__realloc(writer->directory, capacity);
        if (!directory)
            return YK_ERR_MEMORY;
        writer->directory = directory;
        writer->capacity = capacity;
    }
    unsigned char *begin = writer->directory + writer->used, *p = begin;
    bool large = size >= 0xFFFFFFFF, far = header >= 0xFFFFFFFF;
    size_t extra = large || far ? 4 + 16 * (size_t)large + 8 * (size_t)far : 0;
    memcpy(p, "PK\1\2", 4);
    p = put(put(put(put(p + 4, 2, VERSION), 2, VERSION), 2, FLAG_UTF8), 2, 0);
    p = put(put(put(p, 2, 0), 2, DATE), 4, crc);
    p = put(put(put(put(p, 4, clip(size)), 4, clip(size)), 2, length), 2, extra);
    p = put(put(put(put(put(p, 2, 0), 2, 0), 2, 0), 4, 0), 4, clip(header));
    memcpy(p, name, length);
    p += length;
    if (extra)
        p = put(put(p, 2, 1), 2, extra - 4);
    if (large)
        p = put(put(p, 8, size), 8, size);
    if (far)
        p = put(p, 8, header);
    writer->used += (size_t)(p - begin);
    writer->count++;
    return YK_OK;
}

yk_status yk__zip_create(yk__zip_writer *writer, const char *path)
{
    *writer = (yk__zip_writer){.file = yk__file_create(path)};
    return writer->file ? YK_OK : yk__error_code();
}

yk_status yk__zip_add(yk__zip_writer *writer, const char *name, const void *data, uint64_t size)
{
    unsigned char head[LOCAL], extra[20 + 4 + ALIGNMENT] = {0};
    size_t length = strlen(name);
    uint64_t header = writer->offset;
    bool large = size >= 0xFFFFFFFF;
    uint32_t crc = yk__crc32(0, data, (size_t)size);
    unsigned char *p = extra;
    if (large)
        p = put(put(put(put(p, 2, 1), 2, 16), 8, size), 8, size);
    size_t filled = (size_t)(p - extra) + 4;
    size_t padding = -(header + LOCAL + length + filled) % ALIGNMENT;
    p = put(put(p, 2, 0x4246), 2, padding);
    memset(p, 'Z', padding);
    memcpy(head, "PK\3\4", 4);
    p = put(put(put(put(put(head + 4, 2, VERSION), 2, FLAG_UTF8), 2, 0), 2, 0), 2, DATE);
    put(put(put(put(put(p, 4, crc), 4, clip(size)), 4, clip(size)), 2, length), 2, filled + padding);
    yk_status status = emit(writer, head, LOCAL);
    if (!status)
        status = emit(writer, name, length);
    if (!status)
        status = emit(writer, extra, filled + padding);
    if (!status && size)
        status = emit(writer, data, (size_t)size);
    return status ? status : add_entry(writer, name, header, size, crc);
}

static yk_status write_end(yk__zip_writer *writer)
{
    uint64_t offset = writer->offset, size = writer->used, count = writer->count;
    yk_status status = emit(writer, writer->directory, writer->used);
    unsigned char bytes[56 + 20 + 22], *p = bytes;
    if (count >= 0xFFFF || size >= 0xFFFFFFFF || offset >= 0xFFFFFFFF) {
        uint64_t end = writer->offset;
        memcpy(p, "PK\6\6", 4);
        p = put(put(put(put(put(p + 4, 8, 44), 2, VERSION), 2, VERSION), 4, 0), 4, 0);
        p = put(put(put(put(p, 8, count), 8, count), 8, size), 8, offset);
        memcpy(p, "PK\6\7", 4);
        p = put(put(put(p + 4, 4, 0), 8, end), 4, 1);
    }
    uint64_t short_count = count >= 0xFFFF ? 0xFFFF : count;
    memcpy(p, "PK\5\6", 4);
    p = put(put(put(put(p + 4, 2, 0), 2, 0), 2, short_count), 2, short_count);
    p = put(put(put(p, 4, clip(size)), 4, clip(offset)), 2, 0);
    return status ? status : emit(writer, bytes, (size_t)(p - bytes));
}

yk_status yk__zip_commit(yk__zip_writer *writer)
{
    yk_status status = write_end(writer);
    if (status) {
        yk__zip_abort(writer);
        return status;
    }
    free(writer->directory);
    return yk__file_commit(writer->file);
}

void yk__zip_abort(yk__zip_writer *writer)
{
    free(writer->directory);
    yk__file_abort(writer->file);
    *writer = (yk__zip_writer){0};
}
