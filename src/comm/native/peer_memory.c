/*
 * peer_memory.c - memory of other processes of the host, mapped when an operation first names it. Layer: comm/native.
 *
 * A region is opened by the maker's descriptor (host/process.h) and stays mapped, so the next operation on it costs a
 * look into a short list. A rank that goes on late in a group that broke may find another file under the number, and
 * must not write to it: what is mapped is the file whose inode was named. A mapping whose region is gone holds memory
 * for nothing: when a new region of the same rank comes up, the old ones are compared with what their descriptors are
 * now (no two memory files share an inode), and dropped.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/native/native.h"
#include "host/process.h"

static void drop_stale(native *g, int rank)
{
    for (yk__native_mapping **at = &g->mappings[rank]; *at;) {
        yk__native_mapping *m = *at;
        struct stat now;
        if (yk__process_stat(g->rows[rank].pid, m->fd, &now) && (uint64_t)now.st_ino == m->inode) {
            at = &m->next;
            continue;
        }
        *at = m->next;
        munmap(m->memory, m->bytes);
        free(m);
    }
}

static yk__native_mapping *map_region(native *g, int rank, const yk__region_handle *handle, const yk__comm_op *op)
{
    char who[120], what[160];
    yk__native_mapping *m = yk__calloc(1, sizeof(*m));
    if (!m)
        return NULL;
    struct stat now;
    int fd = yk__process_open(g->rows[rank].pid, handle->fd);
    m->memory = MAP_FAILED;
    bool same = fd >= 0 && fstat(fd, &now) == 0 && (uint64_t)now.st_ino == handle->inode &&
                (uint32_t)now.st_dev == handle->device;
    if (same)
        m->memory = mmap(NULL, handle->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (m->memory == MAP_FAILED) {
        yk__native_local_rank_name(g, rank, who, sizeof(who));
        /* A process that ends closes its descriptors a moment before it shows as ended. */
        if (fd < 0 && (errno == ENOENT || errno == ESRCH))
            yk__fail(YK_ERR_CONNECTION, "%s: %s ended before its memory was read (group '%s')",
                     yk__comm_describe(op, what, sizeof(what)), who, g->name);
        else if (fd >= 0 && !same)
            yk__fail(YK_ERR_CONNECTION, "%s: %s freed its memory before it was read (group '%s')",
                     yk__comm_describe(op, what, sizeof(what)), who, g->name);
        else
            yk__fail_errno("the memory of %s (descriptor %d) cannot be mapped", who, handle->fd);
        if (fd >= 0)
            close(fd);
        free(m);
        return NULL;
    }
    close(fd);
    madvise(m->memory, handle->bytes, MADV_HUGEPAGE);
    m->id = handle->id;
    m->inode = (uint64_t)now.st_ino;
    m->fd = handle->fd;
    m->bytes = handle->bytes;
    return m;
}

char *yk__native_reach(native *g, int rank, const yk__region_handle *handle, const yk__comm_op *op)
{
    if (g->rows[rank].pid == g->pid)
        return (char *)(uintptr_t)handle->address; /* NOLINT: the address was made from a pointer of this process */
    pthread_mutex_lock(&g->map_lock);
    yk__native_mapping *m = g->mappings[rank];
    while (m && m->id != handle->id)
        m = m->next;
    if (!m) {
        drop_stale(g, rank);
        m = map_region(g, rank, handle, op);
        if (m) {
            m->next = g->mappings[rank];
            g->mappings[rank] = m;
        }
    }
    pthread_mutex_unlock(&g->map_lock);
    return m ? m->memory + handle->offset : NULL;
}

void yk__native_forget_mappings(native *g)
{
    for (int r = 0; r < g->local_size; r++) {
        while (g->mappings[r]) {
            yk__native_mapping *m = g->mappings[r];
            g->mappings[r] = m->next;
            munmap(m->memory, m->bytes);
            free(m);
        }
    }
}
