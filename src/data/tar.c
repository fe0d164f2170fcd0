/*
 * tar.c - tar archives: ustar and what came before it, GNU's long names, pax's records of paths and sizes. Layer: data.
 *
 * An archive is blocks of 512 bytes: a header, then a member's bytes up to a whole number of blocks. Headers of types
 * L, K, x and g are about the member that follows (g: about all). The archive ends with a block of zeros; one that ends
 * otherwise was cut off. Invariant: at <= size, and a member's bytes lie in the archive before anybody sees them.
 */
#include "data/tar.h"

#include <stdlib.h>
#include <string.h>

#include "base/core.h"

enum { BLOCK = 512, MOST_EXTENSIONS = 16, MOST_RECORDS = 1 << 20 };

/* The fields of a header that are read. */
enum { NAME_AT = 0, SIZE_AT = 124, SUM_AT = 148, TYPE_AT = 156, MAGIC_AT = 257, PREFIX_AT = 345 };
enum { NAME_LENGTH = 100, SIZE_LENGTH = 12, SUM_LENGTH = 8, PREFIX_LENGTH = 155 };

static yk_status fail_at(const yk__tar *tar, size_t offset, const char *member, const char *fault)
{
    return yk__fail(YK_ERR_FORMAT, "%s: %s%s at offset %zu: %s", tar->path, member ? "member " : "",
                    member ? member : "header", offset, fault);
}

/* An octal number with spaces or a zero byte around, or, with the first bit set, a binary one. */
static bool parse_number(const unsigned char *field, size_t length, uint64_t *number)
{
    *number = 0;
    size_t i = 0;
    if (field[0] & 0x80) {
        if (field[0] != 0x80)
            return false;
        for (i = 1; i < length; i++) {
            if (*number >> 55)
                return false;
            *number = *number << 8 | field[i];
        }
        return true;
    }
    while (i < length && field[i] == ' ')
        i++;
    size_t begin = i;
    for (; i < length && field[i] >= '0' && field[i] <= '7'; i++)
        *number = *number << 3 | (uint64_t)(field[i] - '0');
    bool digits = i > begin;
    while (i < length && (field[i] == ' ' || field[i] == 0))
        i++;
    return digits && i == length;
}

static bool is_zero(const unsigned char *block)
{
    for (int i = 0; i < BLOCK; i++) {
        if (block[i])
            return false;
    }
    return true;
}

/* Bytes are summed as unsigned ones; old programs summed signed ones. */
static bool sum_is_right(const unsigned char *block)
{
    uint64_t written;
    int64_t sum = 0, signed_sum = 0;
    for (int i = 0; i < BLOCK; i++) {
        int byte = i >= SUM_AT && i < SUM_AT + SUM_LENGTH ? ' ' : block[i];
        sum += byte;
        signed_sum += byte < 128 ? byte : byte - 256;
    }
    return parse_number(block + SUM_AT, SUM_LENGTH, &written) &&
           ((int64_t)written == sum || (int64_t)written == signed_sum);
}

/* The header's name, with ustar's prefix before it. */
static void take_name(const unsigned char *block, char *name)
{
    size_t prefix =
        memcmp(block + MAGIC_AT, "ustar\0", 6) ? 0 : strnlen((const char *)block + PREFIX_AT, PREFIX_LENGTH);
    size_t length = strnlen((const char *)block + NAME_AT, NAME_LENGTH);
    memcpy(name, block + PREFIX_AT, prefix);
    if (prefix)
        name[prefix++] = '/';
    memcpy(name + prefix, block + NAME_AT, length);
    name[prefix + length] = 0;
}

/* True for a header that is about the members after it. */
static bool is_about_others(char type)
{
    return type == 'L' || type == 'K' || type == 'x' || type == 'g';
}

/* The path and size that the headers before a member's own give it. */
typedef struct extended {
    char path[YK__TAR_NAME]; /* "": nothing */
    bool sized;
    uint64_t size;
} extended;

static bool take_path(const unsigned char *bytes, size_t length, extended *e)
{
    length = strnlen((const char *)bytes, length);
    if (length == 0 || length >= YK__TAR_NAME)
        return false;
    memcpy(e->path, bytes, length);
    e->path[length] = 0;
    return true;
}

/* One record of pax: its length in decimal, a space, KEY=VALUE and a line's end. Returns its length, 0 for a bad one.
 */
static size_t take_record(const unsigned char *bytes, size_t left, extended *e)
{
    size_t length = 0, i = 0;
    for (; i < left && i < 8 && bytes[i] >= '0' && bytes[i] <= '9'; i++)
        length = 10 * length + (size_t)(bytes[i] - '0');
    if (i == 0 || i >= left || bytes[i] != ' ' || length <= i + 1 || length > left || bytes[length - 1] != '\n')
        return 0;
    const unsigned char *key = bytes + i + 1, *end = bytes + length - 1;
    const unsigned char *equals = memchr(key, '=', (size_t)(end - key));
    if (!equals)
        return 0;
    size_t n = (size_t)(equals - key);
    const unsigned char *value = equals + 1;
    if (n == 4 && !memcmp(key, "path", 4))
        return take_path(value, (size_t)(end - value), e) ? length : 0;
    if (n > 10 && !memcmp(key, "GNU.sparse", 10))
        return 0;
    if (n != 4 || memcmp(key, "size", 4) != 0)
        return length;
    e->size = 0;
    e->sized = value < end;
    for (; value < end; value++) {
        if (*value < '0' || *value > '9' || e->size >> 58)
            return 0;
        e->size = 10 * e->size + (uint64_t)(*value - '0');
    }
    return e->sized ? length : 0;
}

static bool take_records(const unsigned char *bytes, size_t size, extended *e)
{
    while (size) {
        size_t length = take_record(bytes, size, e);
        if (!length)
            return false;
        bytes += length;
        size -= length;
    }
    return true;
}

/* Reads a header and steps over the member. */
static yk_status read_member(yk__tar *tar, const extended *e, char *type, bool *end)
{
    size_t at = tar->at;
    if (tar->size - at < BLOCK)
        return fail_at(tar, at, NULL,
                       at == tar->size ? "the file ends without a block of zeros: it is cut off"
                                       : "the file ends in the middle of a header: it is cut off");
    const unsigned char *block = tar->bytes + at;
    *end = is_zero(block);
    if (*end)
        return YK_OK;
    if (!sum_is_right(block))
        return fail_at(tar, at, NULL, "its checksum is wrong: this is no tar archive, or a damaged one");
    tar->header = at;
    if (e->path[0])
        memcpy(tar->name, e->path, sizeof(tar->name));
    else
        take_name(block, tar->name);
    *type = (char)block[TYPE_AT];
    uint64_t length = 0;
    if (!parse_number(block + SIZE_AT, SIZE_LENGTH, &length))
        return fail_at(tar, at, tar->name, "its size is no number");
    if (e->sized && !is_about_others(*type))
        length = e->size;
    if (*type >= '1' && *type <= '6')
        length = 0;
    size_t left = tar->size - at - BLOCK;
    if (length > left) {
        char fault[120];
        snprintf(fault, sizeof(fault), "its %llu bytes go past the end of the file, which has %zu more: it is cut off",
                 (unsigned long long)length, left);
        return fail_at(tar, at, tar->name, fault);
    }
    tar->data = block + BLOCK;
    tar->length = (size_t)length;
    size_t whole = (tar->length + BLOCK - 1) / BLOCK * BLOCK;
    tar->at = at + BLOCK + (whole < left ? whole : left);
    return YK_OK;
}

yk_status yk__tar_next(yk__tar *tar, bool *end)
{
    extended e;
    e.path[0] = 0;
    e.sized = false;
    for (int before = 0;;) {
        char type = 0;
        yk_status status = read_member(tar, &e, &type, end);
        if (status || *end)
            return status;
        bool extends = is_about_others(type);
        if (extends && (tar->length > MOST_RECORDS || ++before > MOST_EXTENSIONS))
            return fail_at(tar, tar->header, tar->name, "it says more of the next member than one may");
        if ((type == 'L' && !take_path(tar->data, tar->length, &e)) ||
            (type == 'x' && !take_records(tar->data, tar->length, &e)))
            return fail_at(tar, tar->header, tar->name,
                           type == 'L' ? "a long name that is empty or longer than 4095 bytes"
                                       : "records of pax that are damaged, of a sparse file, or of a long path");
        if (type == 'S')
            return fail_at(tar, tar->header, tar->name, "a sparse file, which is not read");
        if (extends)
            continue;
        if (type == 0 || type == '0' || type == '7')
            return YK_OK;
        e.path[0] = 0;
        e.sized = false;
        before = 0;
    }
}
