/*
 * plugin.c - finds and loads the backends that are shared objects of their own. Layer: comm.
 *
 * The object lies next to the program or the library that holds this code (a build folder), in ../lib/yoke from the
 * program or yoke/ from the library (an installation), or where `make install` puts it. Nowhere else is looked, so that
 * no stranger's object is loaded; $YOKE_BACKEND_PATH names one folder in place of all these. It stays loaded.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/plugin.h"

#ifndef YK__BACKEND_FOLDER
#define YK__BACKEND_FOLDER "/usr/local/lib/yoke"
#endif

static const yk__comm_services services = {
    .version = YK_VERSION,
    .sizes = YK__COMM_SERVICES_SIZES,
    .fail_at = yk__fail_at,
    .error_code = yk__error_code,
    .error_take = yk__error_take,
    .error_put = yk__error_put,
    .now = yk__now,
    .allocate = yk__calloc,
    .describe = yk__comm_describe,
    .dtype_size = yk_dtype_size,
    .combine = yk__comm_combine,
    .store_set = yk_store_set,
    .store_get = yk_store_get,
    .store_name = yk_store_name,
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const yk__comm_backend *loaded;

/* Where this code is: the folder of the shared library, or of the program. */
static bool own_folder(char *folder, size_t size)
{
    char path[4096];
    Dl_info info;
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    path[n > 0 ? n : 0] = 0;
    bool known = dladdr((const void *)&services, &info) && info.dli_fname;
    const char *last = known ? strrchr(info.dli_fname, '/') : NULL;
    bool shared = last && strstr(last, ".so"); /* else it is the program's first argument */
    char *real = realpath(shared ? info.dli_fname : path, NULL);
    char *slash = real ? strrchr(real, '/') : NULL;
    bool fits = slash && (size_t)(slash - real) < size;
    if (fits) {
        *slash = 0;
        snprintf(folder, size, "%s", real);
    }
    free(real);
    return fits;
}

static bool find(const char *name, char *path, size_t size)
{
    static const char *const places[] = {"", "/yoke", "/../lib/yoke"};
    char folder[3000];
    const char *given = getenv("YOKE_BACKEND_PATH");
    if (given && *given) {
        snprintf(path, size, "%s/yoke-%s.so", given, name);
        return access(path, R_OK) == 0;
    }
    if (own_folder(folder, sizeof(folder))) {
        for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
            snprintf(path, size, "%s%s/yoke-%s.so", folder, places[i], name);
            if (access(path, R_OK) == 0)
                return true;
        }
    }
    snprintf(path, size, "%s/yoke-%s.so", YK__BACKEND_FOLDER, name);
    return access(path, R_OK) == 0;
}

/* With the lock held. */
static const yk__comm_backend *load(const char *name)
{
    char path[4096];
    if (!find(name, path, sizeof(path))) {
        yk__fail(
            YK_ERR_UNSUPPORTED,
            "the '%s' backend of collectives is not there (%s): it is built and installed with yoke where Open MPI "
            "is found (Debian: apt-get install libopenmpi-dev openmpi-bin, then make)",
            name, path);
        return NULL;
    }
    /* Open MPI's own plug-ins look for its symbols among the global ones. */
    void *object = dlopen(path, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (!object) {
        yk__fail(YK_ERR_UNSUPPORTED,
                 "the '%s' backend of collectives cannot be loaded: %s (Debian: apt-get install libopenmpi3 "
                 "openmpi-bin)",
                 name, dlerror());
        return NULL;
    }
    yk__comm_plugin_fn entry;
    void *symbol = dlsym(object, "yk__comm_plugin_entry");
    memcpy(&entry, &symbol, sizeof(entry)); /* a function's address, which dlsym gives as an object's */
    const yk__comm_backend *backend = symbol ? entry(&services) : NULL;
    if (!backend)
        yk__fail(YK_ERR_UNSUPPORTED, "%s is not of this yoke (%s): build and install both together", path, YK_VERSION);
    return backend;
}

const yk__comm_backend *yk__comm_plugin(const char *name)
{
    pthread_mutex_lock(&lock);
    if (!loaded)
        loaded = load(name);
    const yk__comm_backend *backend = loaded;
    pthread_mutex_unlock(&lock);
    return backend;
}
