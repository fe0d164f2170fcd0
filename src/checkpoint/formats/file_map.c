/*
 * file_map.c - a file mapped into memory whose tensors are not copied, and the choice of a tensor's device.
 * Layer: checkpoint.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "checkpoint/formats/file_map.h"
#include "host/file.h"

static void map_destroy(void *object)
{
    yk__file_map *map = object;
    if (map->data)
        munmap(map->data, map->size);
    yk__object_free(map);
}

static const yk__type map_type = {"file_map", map_destroy};

yk__file_map *yk__file_map_create(const char *path, int fd, uint64_t size)
{
    yk__file_map *map = yk__object_new(&map_type, sizeof(*map));
    if (!map)
        return NULL;
    if (!size)
        return map;
    void *data = size > SIZE_MAX ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
        yk__fail_errno("%s: cannot be mapped", path);
        yk__object_free(map);
        return NULL;
    }
    map->data = data;
    map->size = (size_t)size;
    return map;
}

yk__storage *yk__file_map_storage(yk__file_map *map, uint64_t offset, size_t bytes, yk_device device)
{
    yk__storage *storage = yk__storage_wrap(device, map->data + offset, bytes, yk_object_release, map);
    if (storage)
        yk_object_retain(map);
    return storage;
}

bool yk__file_map_fits(const yk__file_map *map, uint64_t offset, yk_dtype dtype, yk_device device)
{
    const yk__backend *backend = map && map->data ? yk__backend_of(device) : NULL;
    return backend && backend->host_memory && (uintptr_t)(map->data + offset) % yk_dtype_size(dtype) == 0;
}

/* ---- the device of a tensor -------------------------------------------------------------------------------------- */

/* Calls the program's function with texts that end. */
static yk_status ask(const yk_read_options *options, const char *saved, size_t saved_size, const char *name,
                     size_t name_size, yk_device *device)
{
    char *texts[2] = {yk__format("%.*s", (int)saved_size, saved), yk__format("%.*s", (int)name_size, name)};
    yk_status status = texts[0] && texts[1] ? YK_OK : YK_ERR_MEMORY;
    if (!status)
        *device = options->locate(texts[0], texts[1], options->user);
    if (!status && yk__device_check(*device)) {
        yk__error_prefix("map_location for '%s', saved from '%s'", texts[1], texts[0]);
        status = yk__error_code();
    }
    free(texts[0]);
    free(texts[1]);
    return status;
}

yk_status yk__locate(const yk_read_options *options, const char *saved, size_t saved_size, const char *name,
                     size_t name_size, yk_device *device)
{
    *device = options ? options->map_location : (yk_device){0};
    if (options && options->locate)
        return ask(options, saved, saved_size, name, name_size, device);
    for (const yk_location *l = options ? options->locations : NULL; l && l->saved; l++) {
        if (strlen(l->saved) == saved_size && memcmp(l->saved, saved, saved_size) == 0) {
            *device = l->device;
            break;
        }
    }
    return yk__device_check(*device);
}
