/*
 * region.h - memory of this process that its neighbours on the host can map. Layer: comm.
 */
#ifndef YOKE_COMM_REGION_H
#define YOKE_COMM_REGION_H

#include "base/core.h"

/* A piece of a region as another process finds it: by a descriptor of the process that made it (host/process.h). */
typedef struct yk__region_handle {
    uint64_t id;      /* 0: not in a region. Never used twice in a process */
    uint64_t address; /* in this process */
    uint64_t offset, bytes;
    uint64_t inode; /* of the file: the descriptor may be another's by the time that a peer opens it */
    uint32_t device;
    int32_t fd;
} yk__region_handle;

/* Zeroed pages of a memory file; NULL and an error on failure. */
void *yk__region_create(size_t bytes);
void yk__region_destroy(void *memory);
/* Until it is called with false, the files of regions that this thread destroys are kept open, and then closed by a
 * thread of their own, which is not waited for: to free their pages takes the system 1 to 2 ms for each MiB. */
void yk__regions_close_later(bool later);
/* Takes the region around this address, if it is in one, away from all who have mapped it: the same bytes stay at the
 * same address, in another file. False where there is no memory for that. */
bool yk__region_renew(const void *address);
/* Gives a new process a copy of its own of every region that it shares with its parent, at the same address. */
yk_status yk__region_renew_all(void);
/* The region of `bytes` at `address` and their offset in it; id 0 where they are not all in one region. */
yk__region_handle yk__region_find(const void *address, size_t bytes);
/* A new unnamed memory file of `bytes`, mapped; gives its descriptor. MAP_FAILED is turned into NULL and an error. */
void *yk__memory_file(const char *what, size_t bytes, int *fd);

#endif
