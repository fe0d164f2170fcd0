/*
 * mapping.c - files mapped into memory, read only. Layer: data.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/dataset.h"

bool yk__is_directory(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool yk__is_file(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

yk_status yk__map_file(const char *path, yk__mapping *mapping)
{
    *mapping = (yk__mapping){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return yk__fail_errno("%s", path);
    struct stat info;
    yk_status status = YK_OK;
    if (fstat(fd, &info) < 0)
        status = yk__fail_errno("%s", path);
    else if (!S_ISREG(info.st_mode))
        status = yk__fail(YK_ERR_IO, "%s: not a regular file", path);
    if (!status && info.st_size > 0) {
        void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            status = yk__fail_errno("%s: cannot be mapped", path);
        else
            *mapping = (yk__mapping){.data = data, .size = (size_t)info.st_size};
    }
    close(fd);
    return status;
}

void yk__unmap_file(yk__mapping *mapping)
{
    if (mapping->data)
        munmap((void *)mapping->data, mapping->size);
    *mapping = (yk__mapping){0};
}
