/*
 * sealed_json.h - JSON files whose first line is a checksum of the others. Layer: checkpoint.
 */
#ifndef YOKE_CHECKPOINT_FORMATS_SEALED_JSON_H
#define YOKE_CHECKPOINT_FORMATS_SEALED_JSON_H

#include <jansson.h>

#include "base/core.h"
#include "host/file.h"

/*
 * Writes the object, which has members:
 *
 *     {
 *      "checksum": "xxh3:0123456789abcdef",
 *      "format": "yoke training checkpoint", ...
 *
 * The checksum (XXH3, 64 bits) is that of all lines below it, without the last newline.
 */
yk_status yk__sealed_write(yk__file_writer *writer, const json_t *object);
/* Reads at most `limit` bytes; the object must be of this "format" ("not NOUN" otherwise), "version" 1. One
 * reference, with "checksum" in it; NULL and an error that names the file. */
json_t *yk__sealed_read(const char *path, size_t limit, const char *format, const char *noun);

/* True, with an error, if jansson did not read a text of `size` bytes for want of memory, for which it gives no reason.
 * Otherwise the file would be taken for a broken one. */
bool yk__json_no_memory(const char *path, size_t size, const json_error_t *why);

#endif
