/*
 * sealed_json.c - JSON files whose first line is a checksum of the others. Layer: checkpoint.
 *
 * A changed bit anywhere is found: below the first line by its checksum, and in the first line because it must be
 * these very bytes.
 */
#include "checkpoint/formats/sealed_json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/xxh3.h"
#include "host/file.h"

#define FIRST_LINE "{\n \"checksum\": \"xxh3:%016" PRIx64 "\",\n"

enum { FIRST_LENGTH = sizeof("{\n \"checksum\": \"xxh3:0123456789abcdef\",\n") - 1 };

yk_status yk__sealed_write(yk__file_writer *writer, const json_t *object)
{
    char *body = json_dumps(object, JSON_INDENT(1));
    if (!body)
        return yk__fail_memory(sizeof(json_t *));
    const char *rest = body + 2; /* after "{\n" */
    char first[FIRST_LENGTH + 1];
    snprintf(first, sizeof(first), FIRST_LINE, yk__xxh3_64(rest, strlen(rest)));
    yk_status status = yk__file_write(writer, first, strlen(first));
    if (!status)
        status = yk__file_write(writer, rest, strlen(rest));
    if (!status)
        status = yk__file_write(writer, "\n", 1);
    free(body);
    return status;
}

bool yk__json_no_memory(const char *path, size_t size, const json_error_t *why)
{
    if (*why->text && json_error_code(why) != json_error_out_of_memory)
        return false;
    yk__fail_memory(size);
    yk__error_prefix("%s", path);
    return true;
}

static json_t *parse(const char *path, const char *text, size_t size, const char *format, const char *noun)
{
    char first[FIRST_LENGTH + 1];
    bool ends = size > FIRST_LENGTH && text[size - 1] == '\n';
    if (ends)
        snprintf(first, sizeof(first), FIRST_LINE, yk__xxh3_64(text + FIRST_LENGTH, size - FIRST_LENGTH - 1));
    if (!ends || memcmp(text, first, FIRST_LENGTH) != 0) {
        yk__fail(YK_ERR_FORMAT, "%s: its text is not what its checksum says: the file was damaged or edited", path);
        return NULL;
    }
    json_error_t error;
    json_t *object = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    int version = 0;
    const char *kind = NULL;
    if (!object) {
        if (!yk__json_no_memory(path, size, &error))
            yk__fail(YK_ERR_FORMAT, "%s: line %d: %s", path, error.line, error.text);
    } else if (json_unpack(object, "{s:s, s:i}", "format", &kind, "version", &version) || strcmp(kind, format) != 0)
        yk__fail(YK_ERR_FORMAT, "%s: not %s", path, noun);
    else if (version != 1)
        yk__fail(YK_ERR_UNSUPPORTED, "%s: version %d; this yoke reads version 1", path, version);
    else
        return object;
    json_decref(object);
    return NULL;
}

json_t *yk__sealed_read(const char *path, size_t limit, const char *format, const char *noun)
{
    unsigned char *text;
    size_t size;
    if (yk__file_read(path, limit, &text, &size))
        return NULL;
    json_t *object = parse(path, (const char *)text, size, format, noun);
    free(text);
    return object;
}
