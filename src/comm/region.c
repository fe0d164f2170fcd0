/*
 * region.c - memory that the other processes of the host can map, and the tensors on it. Layer: comm.
 *
 * A region is an unnamed memory file, so nothing is left on any file system whatever happens to the process. It is
 * found by address: a collective asks whether a tensor's bytes lie in one.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/thread.h"
#include "comm/backend.h"
#include "comm/region.h"
#include "tensor/host_tensor.h"

typedef struct region {
    char *memory;
    size_t bytes;
    uint64_t id, inode;
    uint32_t device;
    int fd;
    struct region *next;
} region;

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static region *regions;
static uint64_t last_id;

void *yk__memory_file(const char *what, size_t bytes, int *fd)
{
    *fd = memfd_create("yoke", MFD_CLOEXEC);
    if (*fd < 0) {
        yk__fail_errno("%s: no memory file could be made", what);
        return NULL;
    }
    void *memory = MAP_FAILED;
    if (ftruncate(*fd, (off_t)bytes) == 0)
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (memory == MAP_FAILED) {
        yk__fail_errno("%s: %zu bytes of shared memory could not be had", what, bytes);
        close(*fd);
        *fd = -1;
        return NULL;
    }
    return memory;
}

static void identify(region *r)
{
    struct stat file = {0};
    fstat(r->fd, &file); /* of a descriptor that is there: no way to fail */
    r->inode = (uint64_t)file.st_ino;
    r->device = (uint32_t)file.st_dev;
}

void *yk__region_create(size_t bytes)
{
    region *r = yk__calloc(1, sizeof(*r));
    if (!r)
        return NULL;
    r->bytes = (bytes + 4095) & ~(size_t)4095;
    if (r->bytes == 0)
        r->bytes = 4096;
    r->memory = yk__memory_file("comm_alloc", r->bytes, &r->fd);
    if (!r->memory) {
        free(r);
        return NULL;
    }
    identify(r);
    madvise(r->memory, r->bytes, MADV_HUGEPAGE); /* if the system has them for shared memory */
    pthread_rwlock_wrlock(&lock);
    r->id = ++last_id;
    r->next = regions;
    regions = r;
    pthread_rwlock_unlock(&lock);
    return r->memory;
}

/* Files that are to be closed by another thread. */
typedef struct later_files {
    int count;
    int fds[];
} later_files;
static _Thread_local later_files *later;
static _Thread_local bool is_later;

static void *close_files(void *of)
{
    later_files *files = of;
    sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){0}); /* it takes turns with nobody who computes */
    for (int i = 0; i < files->count; i++)
        close(files->fds[i]);
    free(files);
    return NULL;
}

void yk__regions_close_later(bool on)
{
    pthread_t thread;
    later_files *files = later;
    is_later = on;
    later = NULL;
    if (!files)
        return;
    if (yk__thread_create(&thread, close_files, files) == 0)
        pthread_detach(thread);
    else
        close_files(files);
}

/* Closes the file of a region that is not mapped any more. */
static void close_file(int fd)
{
    int count = later ? later->count : 0;
    later_files *more = is_later ? realloc(later, sizeof(*later) + (size_t)(count + 1) * sizeof(later->fds[0])) : NULL;
    if (!more) {
        close(fd);
        return;
    }
    more->fds[count] = fd;
    more->count = count + 1;
    later = more;
}

void yk__region_destroy(void *memory)
{
    pthread_rwlock_wrlock(&lock);
    region **at = &regions;
    while (*at && (*at)->memory != memory)
        at = &(*at)->next;
    region *r = *at;
    if (r)
        *at = r->next;
    pthread_rwlock_unlock(&lock);
    if (!r)
        return;
    munmap(r->memory, r->bytes);
    close_file(r->fd);
    free(r);
}

/* Puts the region's bytes into another file; the descriptor keeps its number, under which peers look for the region. */
static bool renew(region *r)
{
    int fd;
    char *fresh = yk__memory_file("comm_alloc", r->bytes, &fd);
    if (!fresh)
        return false;
    memcpy(fresh, r->memory, r->bytes);
    munmap(fresh, r->bytes);
    bool done = mmap(r->memory, r->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED;
    madvise(r->memory, r->bytes, MADV_HUGEPAGE);
    if (done && dup3(fd, r->fd, O_CLOEXEC) != r->fd) {
        int old = r->fd;
        r->fd = fd;
        fd = old;
    }
    close(fd);
    if (done) {
        r->id = ++last_id;
        identify(r);
    }
    return done;
}

bool yk__region_renew(const void *address)
{
    const char *p = address;
    bool done = true;
    yk_error before;
    yk__error_take(&before);
    pthread_rwlock_wrlock(&lock);
    for (region *r = regions; r; r = r->next)
        if (p >= r->memory && p < r->memory + r->bytes)
            done = renew(r);
    pthread_rwlock_unlock(&lock);
    yk_clear_error();
    yk__error_put(&before);
    return done;
}

yk_status yk__region_renew_all(void)
{
    yk_status status = YK_OK;
    pthread_rwlock_wrlock(&lock);
    for (region *r = regions; r; r = r->next)
        if (!renew(r)) /* a reason that is known already stays */
            status = yk__fail(YK_ERR_MEMORY, "comm_alloc: %zu bytes could not be copied for a new process", r->bytes);
    pthread_rwlock_unlock(&lock);
    return status;
}

yk__region_handle yk__region_find(const void *address, size_t bytes)
{
    yk__region_handle handle = {.address = (uint64_t)(uintptr_t)address};
    const char *p = address;
    pthread_rwlock_rdlock(&lock);
    for (const region *r = regions; r; r = r->next) {
        if (p >= r->memory && p + bytes <= r->memory + r->bytes) {
            handle.id = r->id;
            handle.offset = (uint64_t)(p - r->memory);
            handle.bytes = r->bytes;
            handle.inode = r->inode;
            handle.device = r->device;
            handle.fd = r->fd;
            break;
        }
    }
    pthread_rwlock_unlock(&lock);
    return handle;
}

yk_tensor *yk_comm_alloc(int ndim, const int64_t *shape, const yk_tensor_options *options)
{
    yk_tensor_options given = yk__default_options(options);
    const yk_tensor_options *o = &given;
    if (!options || options->device.index < 0)
        given.device =
            (yk_device){YK_CPU, 0}; /* not named: this memory is the host's, whatever else tensors default to */
    if (!yk__scope_check("comm_alloc") || yk__tensor_check("comm_alloc", ndim, shape, o))
        return NULL;
    if (o->device.type != YK_CPU) {
        char name[16];
        yk__fail(YK_ERR_UNSUPPORTED, "comm_alloc: memory of %s is not shared between processes; cpu:0 is",
                 yk_device_format(o->device, name));
        return NULL;
    }
    size_t bytes = yk_dtype_size(o->dtype);
    for (int d = 0; d < ndim; d++)
        bytes *= (size_t)shape[d];
    void *memory = yk__region_create(bytes);
    yk__storage *storage = memory ? yk__storage_wrap(o->device, memory, bytes, yk__region_destroy, memory) : NULL;
    if (memory && !storage)
        yk__region_destroy(memory);
    yk_tensor *x = yk__tensor_over(storage, ndim, shape, o->dtype);
    if (x && o->requires_grad && yk__tensor_require_grad(x)) {
        yk_tensor_release(x);
        return NULL;
    }
    return yk__scope_own(x);
}
