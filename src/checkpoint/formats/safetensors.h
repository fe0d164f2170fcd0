/*
 * safetensors.h - a safetensors header in memory, between the parser and the reader and writer. Layer: checkpoint.
 */
#ifndef YOKE_CHECKPOINT_FORMATS_SAFETENSORS_H
#define YOKE_CHECKPOINT_FORMATS_SAFETENSORS_H

#include <jansson.h>

#include <yoke/checkpoint.h>

#include "base/core.h"
#include "host/file.h"

enum { YK__SAFETENSORS_PREFIX = 8 };                       /* the header's length, little endian */
enum { YK__SAFETENSORS_HEADER_LIMIT = 100 * 1000 * 1000 }; /* bytes: the format's own limit */

typedef struct yk__safetensor {
    const char *name; /* inside the header's json */
    yk_dtype dtype;
    const char *foreign; /* "int8": the element type, where yoke has no dtype for it; NULL where it has */
    int ndim;
    int64_t shape[YK_MAX_DIMS];
    uint64_t begin, end; /* bytes, from the first after the header */
} yk__safetensor;

typedef struct yk__safetensors {
    json_t *json;
    yk__safetensor *tensors; /* in the order of their data */
    size_t count;
} yk__safetensors;

/* Reads the eight bytes before the header of a file of `file_size` bytes. `path` is for messages, here and below. */
yk_status yk__safetensors_length(const char *path, const unsigned char prefix[YK__SAFETENSORS_PREFIX],
                                 uint64_t file_size, size_t *header_size);
/* Parses a header and checks every tensor, and that their data fill `data_size` bytes without holes or overlaps. On
 * failure nothing is left to clear. */
yk_status yk__safetensors_parse(const char *path, const char *header, size_t header_size, uint64_t data_size,
                                yk__safetensors *parsed);
void yk__safetensors_clear(yk__safetensors *parsed);

/* yk_safetensors_read whose bytes also go to `tap`, every byte of the file in order; and yk_safetensors_save to a
 * writer of the caller's. */
yk_state_dict *yk__safetensors_read(const char *path, const yk_read_options *options, yk__tap_fn tap, void *tap_arg);
/* The same for a dict that is copied to other tensors soon: every byte is read and goes to `tap`, but large tensors are
 * read once more, from the file that stays open, when yk__state_dict_copy puts them straight into their memory. That
 * takes no memory, which would cost more than the second reading. Those that `keeps` (NULL: none) names are read at
 * once, to cpu:0. */
typedef bool (*yk__keeps_fn)(const void *arg, const char *name, yk_dtype dtype);
yk_state_dict *yk__safetensors_read_deferred(const char *path, yk__tap_fn tap, void *tap_arg, yk__keeps_fn keeps,
                                             const void *keeps_arg);
/* The same with the file's metadata: a dict of strings, one reference. */
yk_state_dict *yk__safetensors_read_all(const char *path, yk_device device, yk_value **metadata);
yk_status yk__safetensors_write(yk__file_writer *writer, const char *path, const yk_state_dict *dict,
                                const yk_metadata *metadata);
/* Reads and checks the header alone. */
yk_status yk__safetensors_check(const char *path);

/* "int8 tensor of shape (2, 3)", of a tensor whose element type yoke has no dtype for; the caller frees it. */
char *yk__safetensors_left_out(const yk__safetensor *tensor);

/* "BF16" and its kin. */
const char *yk__safetensors_dtype(yk_dtype dtype);

#endif
