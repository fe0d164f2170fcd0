/*
 * nccl_library.c - NCCL, opened when the first group of its backend is made. Layer: comm/nccl.
 *
 * Nothing links it: the plug-in can be loaded, and says what is missing, where there is none. It stays open, because
 * its threads and kernels may still run.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/nccl/nccl_backend.h"
#include "host/library_path.h"

/* Before, a group call's work belongs to the thread that ended the group, which other threads, that ask for its state
 * or abort it, do not find: ncclCommAbort waits for nothing (2.18), a second communicator of a thread reads the first
 * one's memory (2.23 to 2.25; NVIDIA/nccl issue 1605), and the work that a thread left is read when the thread is
 * gone. */
enum { OLDEST = NCCL_VERSION(2, 27, 3) };
#define NEEDED "NCCL 2.27.3 or later is needed"

nccl_library nccl;

static const struct {
    const char *name;
    void **address;
} functions[] = {
#define NCCL_ROW(name) {#name, (void **)(void *)&nccl.name},
    NCCL_FUNCTIONS(NCCL_ROW)
#undef NCCL_ROW
};

/* The functions of a library that is open; fails where it lacks one, or is too old. */
static yk_status look_up(void *library, const char *path, nccl_library *found)
{
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *address = dlsym(library, functions[i].name);
        if (!address)
            return nccl_fail(YK_ERR_UNSUPPORTED, "backend 'nccl': %s has no %s; " NEEDED, path, functions[i].name);
        size_t at = (size_t)((char *)functions[i].address - (char *)&nccl);
        memcpy((char *)found + at, &address, sizeof(address));
    }
    int version = 0;
    if (found->ncclGetVersion(&version) || version < OLDEST)
        return nccl_fail(YK_ERR_UNSUPPORTED, "backend 'nccl': %s is NCCL %d.%d.%d; " NEEDED, path,
                         NCCL_NUMBERS(version));
    return YK_OK;
}

/* The first that will do, of those that are here. */
static yk_status open_library(void)
{
    static const char file[] = "libnccl.so.2";
    char path[PATH_MAX], first[200] = "";
    yk_status status = YK_ERR_UNSUPPORTED;
    bool any = false;
    /* In a recorded sum NCCL would register its tensors, for which it waits for the other ranks of the host in a loop
     * that nothing ends, ncclCommAbort neither (ncclShmemAllgather). A user's own word stands. */
    setenv("NCCL_GRAPH_REGISTER", "0", 0);
    for (int i = 0; status && nccl_base->library_path(file, i, path, sizeof(path)); i++) {
        nccl_library found = {0};
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!library && i == 0)
            snprintf(first, sizeof(first), "%s", dlerror());
        if (!library)
            continue;
        yk_error unused;
        if (any)
            nccl_base->error_take(&unused);
        any = true;
        status = look_up(library, path, &found);
        if (status)
            dlclose(library);
        else
            nccl = found;
    }
    if (!any)
        return nccl_fail(YK_ERR_UNSUPPORTED,
                         "backend 'nccl': NCCL is not here: %s; %s (or install libnccl2); 'native' carries tensors of "
                         "GPUs without it",
                         first, YK__LIBRARY_PATH_HELP);
    return status;
}

/* Refuses settings of NCCL that yoke cannot work with: NCCL takes values from 1 to `last` for on. */
static yk_status check_settings(void)
{
    static const struct {
        const char *name;
        long last;
        const char *does;
    } settings[] = {
        /* it outdoes what a communicator is made with */
        {"NCCL_COMM_BLOCKING", 1, "makes calls of NCCL wait for the other ranks, whatever becomes of them"},
        /* groups and messages have communicators of their own, which several threads use */
        {"NCCL_LAUNCH_ORDER_IMPLICIT", 2,
         "makes kernels of several communicators on a GPU wait for one another, in another order on each rank"},
    };
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        const char *value = getenv(settings[i].name);
        long number = value ? strtol(value, NULL, 0) : 0;
        if (number >= 1 && number <= settings[i].last)
            return nccl_fail(YK_ERR_UNSUPPORTED,
                             "backend 'nccl': %s=%s in the environment, or in a file that NCCL reads (/etc/nccl.conf, "
                             "~/.nccl.conf), %s: unset it",
                             settings[i].name, value, settings[i].does);
    }
    return YK_OK;
}

/* An identity that was made before one was asked for, by this process; with the lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ncclUniqueId early;
static pid_t early_of;

ncclResult_t nccl_unique_id(ncclUniqueId *id)
{
    pthread_mutex_lock(&lock);
    bool there = early_of == getpid();
    if (there)
        *id = early;
    early_of = 0;
    pthread_mutex_unlock(&lock);
    return there ? ncclSuccess : nccl.ncclGetUniqueId(id);
}

/* NCCL's first call that looks at settings puts those of its files into the environment. ncclGetUniqueId is such a
 * call, and makes a thread and a socket for the identity, which is therefore kept for the first group that needs one.
 * Where it fails, that group gets the error. */
static yk_status check_files(void)
{
    if (nccl.ncclGetUniqueId(&early) == ncclSuccess)
        early_of = getpid();
    return check_settings();
}

yk_status nccl_open(void)
{
    static bool open;
    yk_status status = check_settings();
    if (status)
        return status;
    pthread_mutex_lock(&lock);
    status = open ? YK_OK : open_library();
    if (!open && !status)
        status = check_files();
    open = !status;
    pthread_mutex_unlock(&lock);
    return status;
}
