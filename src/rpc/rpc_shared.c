/*
 * rpc_shared.c - sealed memory files of this process and of others of the host. Layer: rpc.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/process.h"
#include "rpc/rpc_shared.h"

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

void *yk__shared_create(size_t bytes, yk__shared_file *file)
{
    struct stat about;
    file->fd = memfd_create("yoke-rpc", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    file->bytes = bytes;
    void *memory = MAP_FAILED;
    if (file->fd >= 0 && ftruncate(file->fd, (off_t)bytes) == 0 && fcntl(file->fd, F_ADD_SEALS, SEALS) == 0 &&
        fstat(file->fd, &about) == 0)
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
    if (memory == MAP_FAILED) {
        if (file->fd >= 0)
            close(file->fd);
        file->fd = -1;
        return NULL;
    }
    file->inode = (uint64_t)about.st_ino;
    return memory;
}

int yk__shared_open(int pid, const yk__shared_file *file)
{
    struct stat about;
    int fd = yk__process_open(pid, file->fd);
    if (fd < 0)
        return -1;
    int seals = fcntl(fd, F_GET_SEALS); /* another kind of file has none: -1 */
    bool right = seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(fd, &about) == 0 &&
                 (uint64_t)about.st_ino == file->inode && (uint64_t)about.st_size == file->bytes;
    if (right)
        return fd;
    close(fd);
    return -1;
}

void *yk__shared_map(int pid, const yk__shared_file *file)
{
    int fd = yk__shared_open(pid, file);
    void *memory = fd < 0 ? MAP_FAILED : mmap(NULL, file->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    return memory == MAP_FAILED ? NULL : memory;
}
