/*
 * rpc_shared.h - memory files of another process of the host, opened only where they are proved to be that process's.
 * Layer: rpc.
 */
#ifndef YOKE_RPC_RPC_SHARED_H
#define YOKE_RPC_RPC_SHARED_H

#include "base/core.h"

/* A memory file as another process finds it: by the descriptor of its maker. It is sealed: nobody can make it smaller,
 * so that reading it never fails. */
typedef struct yk__shared_file {
    int32_t fd;
    uint64_t inode, bytes;
} yk__shared_file;

/* A new sealed memory file of zeros, mapped; NULL and errno. The descriptor is the caller's. */
void *yk__shared_create(size_t bytes, yk__shared_file *file);
/* The descriptor of such a file of another process, or -1 where there is none that has this inode and size and is
 * sealed. */
int yk__shared_open(int pid, const yk__shared_file *file);
/* The same mapped for reading and writing; NULL. */
void *yk__shared_map(int pid, const yk__shared_file *file);

#endif
