/*
 * region.h - memory of this process that its neighbours on the host can map. Layer: comm.
 */
#ifndef YOKE_COMM_REGION_H
#define YOKE_COMM_REGION_H

#include "base/core.h"

/* A piece of a region as another process finds it: through /proc/PID/fd of the process that made it. */
typedef struct yk__region_place {
    uint64_t id;      /* 0: not in a region. Never used twice in a process */
    uint64_t address; /* in this process */
    uint64_t offset, bytes;
    int32_t fd;
} yk__region_place;

/* Zeroed pages of a memory file; NULL and an error on failure. */
void *yk__region_create(size_t bytes);
void yk__region_destroy(void *memory);
/* Where `bytes` at `address` are; id 0 where they are not all in one region. */
yk__region_place yk__region_find(const void *address, size_t bytes);
/* A new unnamed memory file of `bytes`, mapped; gives its descriptor. MAP_FAILED is turned into NULL and an error. */
void *yk__memory_file(const char *what, size_t bytes, int *fd);

#endif
