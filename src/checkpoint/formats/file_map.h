/*
 * file_map.h - a file in memory, and tensors on it. Layer: checkpoint.
 */
#ifndef YOKE_CHECKPOINT_FORMATS_FILE_MAP_H
#define YOKE_CHECKPOINT_FORMATS_FILE_MAP_H

#include <yoke/checkpoint.h>

#include "base/core.h"
#include "device/table.h"
#include "host/file.h"

/* Counted; each storage on it holds a reference. Private: what is written to its pages stays in this process. */
typedef struct yk__file_map {
    yk__object object;
    unsigned char *data;
    size_t size;
} yk__file_map;

/* One reference. The descriptor may be closed afterwards. An empty file has no data. */
yk__file_map *yk__file_map_create(const char *path, int fd, uint64_t size);
/* One reference to `bytes` bytes of it, as memory of a device that the host can reach. */
yk__storage *yk__file_map_storage(yk__file_map *map, uint64_t offset, size_t bytes, yk_device device);
/* True if tensors of `dtype` may lie at this offset of the map, without a copy. */
bool yk__file_map_fits(const yk__file_map *map, uint64_t offset, yk_dtype dtype, yk_device device);

/* The device that `options` choose for a tensor that was saved from `saved`. `options` may be NULL; names need not end
 * with a zero. */
yk_status yk__locate(const yk_read_options *options, const char *saved, size_t saved_size, const char *name,
                     size_t name_size, yk_device *device);

#endif
