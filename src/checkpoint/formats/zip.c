/*
 * zip.c - reads zip files of stored or deflated members. Layer: checkpoint.
 *
 * The file: members (a local header, the data, perhaps a descriptor that repeats checksum and sizes), the directory,
 * for large or PyTorch-written files the zip64 end record and its locator, and the end record. Everything that stands
 * twice in the file is compared. Zero bytes may follow it all: padding of whoever stored it. torch.save deflates
 * nothing, but what repacks its files may. Source: PKWARE's APPNOTE.TXT 6.3.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "checkpoint/formats/zip.h"
#include "host/file.h"

enum {
    LOCAL = 30,
    CENTRAL = 46,
    END = 22,
    END64 = 56,
    LOCATOR = 20,
    COMMENT = 65535,
    FLAG_DESCRIPTOR = 8,
    FLAG_UTF8 = 2048,
    FLAG_LEVEL = 6, /* the effort of the packer */
    STORED = 0,
    DEFLATED = 8,
    EXPANSION = 1032 /* bytes that deflate makes of one at most */
};
/* Bounds the memory that a damaged file can claim; a model has a member for each tensor. */
enum { MOST_MEMBERS = 1 << 20, MOST_DIRECTORY = 1 << 28 };

/* ---- sources ----------------------------------------------------------------------------------------------------- */

yk_status yk__source_open(const char *path, bool mapped, yk__source *source)
{
    *source = (yk__source){.path = path, .fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
    struct stat info;
    if (source->fd < 0)
        return yk__fail_errno("%s", path);
    yk_status status = YK_OK;
    if (fstat(source->fd, &info) < 0)
        status = yk__fail_errno("%s", path);
    else if (!S_ISREG(info.st_mode))
        status = yk__fail(YK_ERR_IO, "%s: not a regular file", path);
    else
        source->size = (uint64_t)info.st_size;
    if (!status && mapped) {
        source->map = yk__file_map_create(path, source->fd, source->size);
        status = source->map ? YK_OK : yk__error_code();
        close(source->fd);
        source->fd = -1;
        source->bytes = source->map ? source->map->data : NULL;
    }
    if (status)
        yk__source_close(source);
    return status;
}

void yk__source_close(yk__source *source)
{
    if (source->fd >= 0)
        close(source->fd);
    source->fd = -1;
    yk_object_release(source->map);
    source->map = NULL;
}

yk_status yk__source_read(const yk__source *source, uint64_t offset, void *to, size_t size)
{
    if (offset > source->size || size > source->size - offset)
        return yk__fail(YK_ERR_FORMAT,
                        "%s: truncated: bytes %" PRIu64 " to %" PRIu64 " are needed, the file has %" PRIu64,
                        source->path, offset, offset + size, source->size);
    if (source->fd < 0) {
        if (size)
            memcpy(to, source->bytes + offset, size);
        return YK_OK;
    }
    for (size_t have = 0; have < size;) {
        ssize_t got = pread(source->fd, (char *)to + have, size - have, (off_t)(offset + have));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return yk__fail_errno("%s", source->path);
        if (got == 0)
            return yk__fail(YK_ERR_FORMAT, "%s: the file ended at byte %" PRIu64 " while it was read", source->path,
                            offset + have);
        have += (size_t)got;
    }
    return YK_OK;
}

yk_status yk__source_read_crc(const yk__source *source, uint64_t offset, void *to, size_t size, uint32_t *crc)
{
    enum { PIECE = 1 << 18 }; /* stays in the second-level cache between the copy and the checksum */
    for (size_t done = 0; done < size;) {
        size_t piece = to && size - done > PIECE ? PIECE : size - done;
        if (!to) {
            *crc = yk__crc32(*crc, source->bytes + offset, size);
            return YK_OK;
        }
        yk_status status = yk__source_read(source, offset + done, (char *)to + done, piece);
        if (status)
            return status;
        *crc = yk__crc32(*crc, (char *)to + done, piece);
        done += piece;
    }
    return YK_OK;
}

/* ---- the directory ----------------------------------------------------------------------------------------------- */

static uint64_t get(const unsigned char *bytes, int size)
{
    uint64_t value = 0;
    while (size-- > 0)
        value = value << 8 | bytes[size];
    return value;
}

#define get16(p) ((uint32_t)get((p), 2))
#define get32(p) ((uint32_t)get((p), 4))
#define get64(p) get((p), 8)

typedef struct directory_extent {
    uint64_t offset, size, count;
} directory_extent;

/* The zip64 end record, where a locator stands before the end record. */
static yk_status read_end64(const yk__source *source, uint64_t end, directory_extent *directory, bool *found)
{
    unsigned char bytes[END64];
    *found = false;
    if (end < LOCATOR)
        return YK_OK;
    yk_status status = yk__source_read(source, end - LOCATOR, bytes, LOCATOR);
    if (status || memcmp(bytes, "PK\6\7", 4) != 0)
        return status;
    uint64_t offset = get64(bytes + 8);
    if (get32(bytes + 4) != 0 || get32(bytes + 16) != 1)
        return yk__fail(YK_ERR_FORMAT, "%s: zip: in several parts", source->path);
    if (offset > end - LOCATOR || end - LOCATOR - offset < END64)
        return yk__fail(YK_ERR_FORMAT, "%s: zip: the zip64 end record is said to be at byte %" PRIu64, source->path,
                        offset);
    status = yk__source_read(source, offset, bytes, END64);
    if (status)
        return status;
    if (memcmp(bytes, "PK\6\6", 4) != 0 || get64(bytes + 4) != end - LOCATOR - offset - 12)
        return yk__fail(YK_ERR_FORMAT, "%s: zip: damaged zip64 end record at byte %" PRIu64, source->path, offset);
    *directory = (directory_extent){get64(bytes + 48), get64(bytes + 40), get64(bytes + 32)};
    if (get32(bytes + 16) || get32(bytes + 20) || get64(bytes + 24) != directory->count || directory->size > offset ||
        directory->offset != offset - directory->size)
        return yk__fail(YK_ERR_FORMAT, "%s: zip: the zip64 end record contradicts the file", source->path);
    *found = true;
    return YK_OK;
}

/* The size of the file without zero bytes at its end, of which the end record has two itself. */
static yk_status find_padding(const yk__source *source, uint64_t *size)
{
    unsigned char piece[4096];
    *size = source->size;
    while (*size) {
        size_t part = *size < sizeof(piece) ? (size_t)*size : sizeof(piece), used = part;
        yk_status status = yk__source_read(source, *size - part, piece, part);
        if (status)
            return status;
        while (used && !piece[used - 1])
            used--;
        *size -= part - used;
        if (used)
            break;
    }
    return YK_OK;
}

/* The end record, of a file that has zero bytes alone from `last` on; it is in the `size` bytes from `begin` on. */
static yk_status find_end(const yk__source *source, uint64_t last, uint64_t begin, unsigned char *tail, size_t size,
                          uint64_t *end)
{
    yk_status status = yk__source_read(source, begin, tail, size);
    if (status)
        return status;
    for (size_t at = size - END + 1; at-- > 0;) {
        uint64_t from = begin + at, behind = from + END + get16(tail + at + 20);
        if (memcmp(tail + at, "PK\5\6", 4) == 0 && behind >= last && behind <= source->size) {
            *end = from;
            memmove(tail, tail + at, END);
            return YK_OK;
        }
    }
    return yk__fail(YK_ERR_FORMAT, "%s: zip: there is no end record: the file is truncated or not a zip file",
                    source->path);
}

static yk_status find_directory(const yk__source *source, directory_extent *directory)
{
    uint64_t end = 0;
    if (source->size < END)
        return yk__fail(YK_ERR_FORMAT, "%s: %" PRIu64 " bytes are too few for a zip file", source->path, source->size);
    uint64_t last = 0;
    if (find_padding(source, &last))
        return yk__error_code();
    uint64_t stop = source->size - last < END ? source->size : last + END; /* it may end in zeros itself */
    size_t size = stop < END + COMMENT + END ? (size_t)stop : END + COMMENT + END;
    unsigned char *tail = yk__calloc(size, 1);
    if (!tail)
        return YK_ERR_MEMORY;
    unsigned char bytes[END];
    yk_status status = find_end(source, last, stop - size, tail, size, &end);
    memcpy(bytes, tail, END);
    free(tail);
    bool large = false;
    if (!status)
        status = read_end64(source, end, directory, &large);
    if (status)
        return status;
    uint64_t count = get16(bytes + 10), length = get32(bytes + 12), offset = get32(bytes + 16);
    bool same = get16(bytes + 4) == 0 && get16(bytes + 6) == 0 && get16(bytes + 8) == count;
    if (!large) {
        *directory = (directory_extent){offset, length, count};
        same = same && length <= end && offset == end - length;
    } else {
        same = same && (count == 0xFFFF || count == directory->count) &&
               (length == 0xFFFFFFFF || length == directory->size) &&
               (offset == 0xFFFFFFFF || offset == directory->offset);
    }
    if (!same)
        return yk__fail(YK_ERR_FORMAT, "%s: zip: the end record contradicts the file", source->path);
    if (directory->count > MOST_MEMBERS || directory->size > MOST_DIRECTORY)
        return yk__fail(YK_ERR_FORMAT,
                        "%s: zip: a directory of %" PRIu64 " members in %" PRIu64 " bytes; %d in %d are allowed",
                        source->path, directory->count, directory->size, MOST_MEMBERS, MOST_DIRECTORY);
    if (directory->count > directory->size / CENTRAL)
        return yk__fail(YK_ERR_FORMAT, "%s: zip: %" PRIu64 " members do not fit a directory of %" PRIu64 " bytes",
                        source->path, directory->count, directory->size);
    return YK_OK;
}

/* A name for messages: what is printable of it. */
static const char *printable_name(const char *name, uint32_t length, char text[80])
{
    uint32_t n = 0;
    for (; n < length && n < 79; n++)
        text[n] = name[n] >= 32 && name[n] < 127 ? name[n] : '?';
    text[n] = 0;
    return text;
}

static yk_status check_name(const yk__source *source, const char *name, uint32_t length)
{
    char text[80];
    bool plain = length > 0 && name[0] != '/' && !memchr(name, 0, length) && !memchr(name, '\\', length);
    for (uint32_t i = 0, begin = 0; plain && i <= length; i++) {
        if (i < length && name[i] != '/')
            continue;
        plain = !(i - begin == 2 && memcmp(name + begin, "..", 2) == 0);
        begin = i + 1;
    }
    return plain ? YK_OK
                 : yk__fail(YK_ERR_FORMAT, "%s: zip: member name '%s' is refused", source->path,
                            printable_name(name, length, text));
}

/* Replaces sizes and offset that refer to the zip64 field by the numbers of that field; false where these are
 * missing. */
static bool read_extra(const unsigned char *extra, size_t size, uint64_t *values[3])
{
    for (size_t at = 0; at + 4 <= size;) {
        size_t length = get16(extra + at + 2);
        if (length > size - at - 4)
            return false;
        if (get16(extra + at) == 1) {
            size_t used = 0;
            for (int i = 0; i < 3; i++) {
                if (*values[i] != 0xFFFFFFFF)
                    continue;
                if (length - used < 8)
                    return false;
                *values[i] = get64(extra + at + 4 + used);
                used += 8;
            }
            return true;
        }
        at += 4 + length;
    }
    return *values[0] != 0xFFFFFFFF && *values[1] != 0xFFFFFFFF && *values[2] != 0xFFFFFFFF;
}

typedef struct entry {
    uint32_t flags, crc, name_length;
    uint64_t packed, size, header;
    const char *name;
    bool deflated;
} entry;

/* Reads the entry at `at` of the directory and moves *at past it. */
static yk_status read_entry(const yk__source *source, const unsigned char *directory, size_t size, size_t *at, entry *e)
{
    const unsigned char *p = directory + *at;
    if (size - *at < CENTRAL || memcmp(p, "PK\1\2", 4) != 0)
        return yk__fail(YK_ERR_FORMAT, "%s: zip: damaged directory entry at byte %zu of the directory", source->path,
                        *at);
    uint32_t method = get16(p + 10), extra = get16(p + 30), comment = get16(p + 32);
    *e = (entry){.flags = get16(p + 8),
                 .crc = get32(p + 16),
                 .name_length = get16(p + 28),
                 .packed = get32(p + 20),
                 .size = get32(p + 24),
                 .header = get32(p + 42),
                 .name = (const char *)p + CENTRAL};
    size_t whole = (size_t)CENTRAL + e->name_length + extra + comment;
    if (whole > size - *at)
        return yk__fail(YK_ERR_FORMAT, "%s: zip: the entry at byte %zu leaves the directory", source->path, *at);
    *at += whole;
    yk_status status = check_name(source, e->name, e->name_length);
    if (status)
        return status;
    char text[80];
    printable_name(e->name, e->name_length, text);
    e->deflated = method == DEFLATED;
    if (e->flags & ~(uint32_t)(FLAG_DESCRIPTOR | FLAG_UTF8 | (e->deflated ? FLAG_LEVEL : 0)))
        return yk__fail(YK_ERR_FORMAT, "%s: zip: member '%s' is encrypted or patched (flags 0x%x)", source->path, text,
                        e->flags);
    if (method != STORED && method != DEFLATED)
        return yk__fail(YK_ERR_UNSUPPORTED,
                        "%s: zip: member '%s' is compressed by method %u; stored and deflated ones are read",
                        source->path, text, method);
    if (get16(p + 34) != 0 || !read_extra((const unsigned char *)e->name + e->name_length, extra,
                                          (uint64_t *[3]){&e->size, &e->packed, &e->header}))
        return yk__fail(YK_ERR_FORMAT, "%s: zip: the entry of member '%s' is damaged", source->path, text);
    if (e->deflated && e->size / EXPANSION > e->packed)
        return yk__fail(YK_ERR_FORMAT,
                        "%s: zip: member '%s' is said to have %" PRIu64 " bytes, which %" PRIu64 " cannot hold",
                        source->path, text, e->size, e->packed);
    if (!e->deflated && e->size != e->packed)
        return yk__fail(YK_ERR_FORMAT,
                        "%s: zip: member '%s' is stored but has %" PRIu64 " bytes packed, %" PRIu64 " unpacked",
                        source->path, text, e->packed, e->size);
    return YK_OK;
}

/* ---- local headers ----------------------------------------------------------------------------------------------- */

/* The length of the descriptor after the data, with or without a signature, with sizes of 32 or 64 bits; 0: none fits.
 */
static size_t match_descriptor(const unsigned char *bytes, size_t have, const entry *e)
{
    size_t at = have >= 4 && memcmp(bytes, "PK\7\x08", 4) == 0 ? 4 : 0;
    for (int width = 8; width >= 4; width -= 4) {
        size_t length = at + 4 + 2 * (size_t)width;
        if (length <= have && get32(bytes + at) == e->crc && get(bytes + at + 4, width) == e->packed &&
            get(bytes + at + 4 + width, width) == e->size)
            return length;
    }
    return 0;
}

/* Fills the member; *end is where the next may begin. `limit` is where the directory begins. */
static yk_status read_local(const yk__source *source, const entry *e, uint64_t limit, yk__zip_member *m, uint64_t *end)
{
    unsigned char bytes[LOCAL], name[256], text_space[24];
    char text[80];
    printable_name(e->name, e->name_length, text);
    *m = (yk__zip_member){.name = e->name,
                          .name_length = e->name_length,
                          .crc = e->crc,
                          .deflated = e->deflated,
                          .header = e->header,
                          .size = e->size,
                          .packed = e->packed};
    if (e->header > limit || limit - e->header < LOCAL)
        return yk__fail(YK_ERR_FORMAT,
                        "%s: zip: member '%s' is said to begin at byte %" PRIu64 ", the directory at %" PRIu64,
                        source->path, text, e->header, limit);
    yk_status status = yk__source_read(source, e->header, bytes, LOCAL);
    if (status)
        return status;
    uint64_t size = get32(bytes + 22), packed = get32(bytes + 18), none = 0;
    uint64_t length = (uint64_t)get16(bytes + 26) + get16(bytes + 28);
    if (memcmp(bytes, "PK\3\4", 4) != 0 || get16(bytes + 6) != e->flags ||
        get16(bytes + 8) != (e->deflated ? DEFLATED : STORED) || get16(bytes + 26) != e->name_length ||
        limit - e->header - LOCAL < length)
        return yk__fail(YK_ERR_FORMAT, "%s: zip: the header of member '%s' at byte %" PRIu64 " is damaged",
                        source->path, text, e->header);
    for (uint32_t at = 0; at < e->name_length && !status; at += sizeof(name)) {
        uint32_t piece = e->name_length - at < sizeof(name) ? e->name_length - at : sizeof(name);
        status = yk__source_read(source, e->header + LOCAL + at, name, piece);
        if (!status && memcmp(name, e->name + at, piece) != 0)
            status = yk__fail(YK_ERR_FORMAT, "%s: zip: the header of member '%s' has another name", source->path, text);
    }
    if (status)
        return status;
    if (size == 0xFFFFFFFF || packed == 0xFFFFFFFF) {
        size_t extra = get16(bytes + 28);
        unsigned char *field = yk__calloc(extra, 1);
        if (!field)
            return YK_ERR_MEMORY;
        status = yk__source_read(source, e->header + LOCAL + e->name_length, field, extra);
        bool right = status || read_extra(field, extra, (uint64_t *[3]){&size, &packed, &none});
        free(field);
        if (!right)
            status = yk__fail(YK_ERR_FORMAT, "%s: zip: the header of member '%s' is damaged", source->path, text);
    }
    bool later = e->flags & FLAG_DESCRIPTOR; /* then the header may leave them zero */
    bool same = size == e->size && packed == e->packed && get32(bytes + 14) == e->crc;
    if (!status && !same && !(later && size == 0 && packed == 0 && get32(bytes + 14) == 0))
        status = yk__fail(YK_ERR_FORMAT, "%s: zip: header and directory differ about member '%s'", source->path, text);
    if (status)
        return status;
    m->data = e->header + LOCAL + length;
    if (e->packed > limit - m->data)
        return yk__fail(YK_ERR_FORMAT,
                        "%s: zip: member '%s' is said to have %" PRIu64 " bytes at byte %" PRIu64
                        ", the directory begins at %" PRIu64,
                        source->path, text, e->packed, m->data, limit);
    *end = m->data + e->packed;
    if (!later)
        return YK_OK;
    size_t have = limit - *end < sizeof(text_space) ? (size_t)(limit - *end) : sizeof(text_space);
    status = yk__source_read(source, *end, text_space, have);
    size_t descriptor = status ? 0 : match_descriptor(text_space, have, e);
    *end += descriptor;
    if (!status && !descriptor)
        return yk__fail(YK_ERR_FORMAT, "%s: zip: the descriptor behind member '%s' is damaged", source->path, text);
    return status;
}

/* ---- all together ------------------------------------------------------------------------------------------------ */

typedef struct name_key {
    const char *name;
    size_t length;
} name_key;

static bool same_name(const void *owner, uint32_t index, const void *key)
{
    const yk__zip_member *m = &((const yk__zip *)owner)->members[index];
    const name_key *want = key;
    return m->name_length == want->length && memcmp(m->name, want->name, want->length) == 0;
}

typedef struct extent {
    uint64_t begin, end;
    uint32_t member;
} extent;

static int by_begin(const void *a, const void *b)
{
    const extent *x = a, *y = b;
    return x->begin != y->begin ? (x->begin < y->begin ? -1 : 1) : (x->member > y->member) - (x->member < y->member);
}

static yk_status check_overlaps(const yk__source *source, const yk__zip *zip, extent *extents)
{
    if (zip->count)
        qsort(extents, zip->count, sizeof(*extents), by_begin);
    for (uint32_t i = 1; i < zip->count; i++) {
        if (extents[i].begin < extents[i - 1].end) {
            const yk__zip_member *a = &zip->members[extents[i - 1].member], *b = &zip->members[extents[i].member];
            char one[80], two[80];
            return yk__fail(YK_ERR_FORMAT, "%s: zip: members '%s' and '%s' overlap at byte %" PRIu64, source->path,
                            printable_name(a->name, a->name_length, one), printable_name(b->name, b->name_length, two),
                            b->header);
        }
    }
    return YK_OK;
}

static yk_status read_members(const yk__source *source, const directory_extent *directory, yk__zip *zip,
                              extent *extents)
{
    size_t at = 0;
    for (uint64_t i = 0; i < directory->count; i++) {
        entry e;
        yk_status status = read_entry(source, zip->directory, (size_t)directory->size, &at, &e);
        if (status)
            return status;
        char text[80];
        if (yk__zip_find(zip, e.name, e.name_length) != UINT32_MAX)
            return yk__fail(YK_ERR_FORMAT, "%s: zip: there are two members '%s'", source->path,
                            printable_name(e.name, e.name_length, text));
        extents[i].member = zip->count;
        extents[i].begin = e.header;
        status = read_local(source, &e, directory->offset, &zip->members[zip->count], &extents[i].end);
        if (!status)
            status = yk__name_add(&zip->names, yk__name_hash(e.name, e.name_length), zip->count);
        if (status)
            return status;
        zip->count++;
    }
    if (at != directory->size)
        return yk__fail(YK_ERR_FORMAT, "%s: zip: the directory has %" PRIu64 " bytes, its %" PRIu64 " entries %zu",
                        source->path, directory->size, directory->count, at);
    return check_overlaps(source, zip, extents);
}

yk_status yk__zip_open(const yk__source *source, yk__zip *zip)
{
    *zip = (yk__zip){0};
    directory_extent directory = {0};
    yk_status status = find_directory(source, &directory);
    if (status)
        return status;
    zip->directory = yk__calloc((size_t)directory.size + 1, 1);
    zip->members = yk__calloc((size_t)directory.count + 1, sizeof(*zip->members));
    extent *extents = yk__calloc((size_t)directory.count + 1, sizeof(*extents));
    status = zip->directory && zip->members && extents ? YK_OK : YK_ERR_MEMORY;
    if (!status)
        status = yk__source_read(source, directory.offset, zip->directory, (size_t)directory.size);
    if (!status)
        status = read_members(source, &directory, zip, extents);
    free(extents);
    if (status)
        yk__zip_clear(zip);
    return status;
}

void yk__zip_clear(yk__zip *zip)
{
    free(zip->directory);
    free(zip->members);
    yk__name_clear(&zip->names);
    *zip = (yk__zip){0};
}

uint32_t yk__zip_find(const yk__zip *zip, const char *name, size_t length)
{
    return yk__name_find(&zip->names, yk__name_hash(name, length), same_name, zip, &(name_key){name, length});
}

/* Expands a member of exactly its size. */
static yk_status read_deflated(const yk__source *source, const yk__zip_member *m, unsigned char *to, uint32_t *crc)
{
    enum { PIECE = 1 << 16, MOST = 1 << 30 };
    unsigned char piece[PIECE], beyond;
    char text[80];
    z_stream z = {0};
    if (inflateInit2(&z, -15) != Z_OK)
        return yk__fail_memory(PIECE);
    uint64_t taken = 0, have = 0;
    int code = Z_OK;
    yk_status status = YK_OK;
    while (code == Z_OK && !status) {
        if (!z.avail_in && taken < m->packed) {
            size_t part = m->packed - taken < PIECE ? (size_t)(m->packed - taken) : PIECE;
            status = yk__source_read(source, m->data + taken, piece, part);
            z.next_in = piece;
            z.avail_in = (uInt)part;
            taken += part;
        }
        uint64_t left = m->size - have;
        uInt room = left > MOST ? MOST : left ? (uInt)left : 1;
        z.next_out = left ? to + have : &beyond;
        z.avail_out = room;
        if (!status)
            code = inflate(&z, Z_NO_FLUSH);
        have += room - z.avail_out;
        if (have > m->size)
            break;
    }
    bool whole = code == Z_STREAM_END && have == m->size && taken == m->packed && !z.avail_in;
    inflateEnd(&z);
    if (!status && !whole)
        status = yk__fail(YK_ERR_FORMAT, "%s: zip: the compressed data of member '%s' are damaged", source->path,
                          printable_name(m->name, m->name_length, text));
    *crc = status ? 0 : yk__crc32(0, to, (size_t)m->size);
    return status;
}

yk_status yk__zip_read(const yk__source *source, const yk__zip_member *member, void *to)
{
    uint32_t crc = 0;
    char text[80];
    yk_status status = member->deflated ? read_deflated(source, member, to, &crc)
                                        : yk__source_read_crc(source, member->data, to, (size_t)member->size, &crc);
    if (!status && crc != member->crc)
        status =
            yk__fail(YK_ERR_FORMAT, "%s: zip: member '%s' is damaged: its checksum is %08x, the directory says %08x",
                     source->path, printable_name(member->name, member->name_length, text), crc, member->crc);
    return status;
}
