/*
 * plugin.c - finds, compares and loads the backends that are shared objects of their own. Layer: host.
 *
 * The object lies next to the program or the library that holds this code (a build folder), in ../lib/yoke from the
 * program or yoke/ from the library (an installation), or where `make install` put it. Nowhere else is looked, so that
 * no stranger's object is loaded; $YOKE_BACKEND_PATH names one folder in place of all these. It stays loaded.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "base/core.h"
#include "base/log.h"
#include "host/library_path.h"
#include "host/plugin.h"

/* MOST_PLUGINS: loaded in one process; any number above the kinds there are (device back ends, MPI). PATH_ROOM:
 * PATH_MAX. */
enum { MOST_PLUGINS = 8, PATH_ROOM = 4096 };

static void say(yk_log_level level, const char *format, va_list arguments)
{
    char message[1000];
    vsnprintf(message, sizeof(message), format, arguments);
    yk__log(level, "%s", message);
}

static void warn(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say(YK_LOG_WARN, format, arguments);
    va_end(arguments);
}

static void debug(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say(YK_LOG_DEBUG, format, arguments);
    va_end(arguments);
}

static const yk__base_services base_services = {
    .fail_at = yk__fail_at,
    .error_code = yk__error_code,
    .error_take = yk__error_take,
    .error_put = yk__error_put,
    .now = yk__now,
    .allocate = yk__calloc,
    .env_int = yk__env_int,
    .library_path = yk__library_path,
    .warn = warn,
    .debug = debug,
};

/* Under the lock, which is held while a plug-in starts: another thread that wants it waits for that. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    const yk__plugin *plugin;
    const void *table; /* NULL until it has started */
    char *path;
} plugins[MOST_PLUGINS];
static int count;

/* The program as it was started, where /proc does not tell: a relative path means this folder at the start alone. */
static char *started;
__attribute__((constructor)) static void note_program(void)
{
    const char *path = (const char *)getauxval(AT_EXECFN); /* NOLINT: the kernel gives pointers as numbers */
    if (path && access("/proc/self/exe", F_OK))
        started = realpath(path, NULL);
}

/* The folder of this code: that of the shared library, or of the program. */
static bool own_folder(char *folder, size_t size)
{
    char path[PATH_ROOM];
    Dl_info info;
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    path[n > 0 ? n : 0] = 0;
    if (n <= 0 && started)
        snprintf(path, sizeof(path), "%s", started);
    bool known = dladdr((const void *)&base_services, &info) && info.dli_fname;
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

/* On failure `path` is the last one that was looked at. */
static bool find(const char *name, char *path, size_t size)
{
    static const char *const folders_tried[] = {"", "/yoke", "/../lib/yoke"};
    char folder[3000];
    const char *given = getenv("YOKE_BACKEND_PATH");
    if (given && *given) {
        snprintf(path, size, "%s/yoke-%s.so", given, name);
        return access(path, R_OK) == 0;
    }
    if (own_folder(folder, sizeof(folder))) {
        for (size_t i = 0; i < sizeof(folders_tried) / sizeof(folders_tried[0]); i++) {
            snprintf(path, size, "%s%s/yoke-%s.so", folder, folders_tried[i], name);
            if (access(path, R_OK) == 0)
                return true;
        }
    }
    if (*yk__plugin_folder)
        snprintf(path, size, "%s/yoke-%s.so", yk__plugin_folder, name);
    return access(path, R_OK) == 0;
}

/* True if the object is what was asked for, from the same version and the same declarations. */
static bool compare(const yk__plugin_request *request, const yk__plugin *found, const char *path)
{
    if (!found || found->format != YK__PLUGIN_FORMAT)
        yk__fail(YK_ERR_UNSUPPORTED, "%s is not a plug-in of this yoke (%s): build and install both together", path,
                 YK_VERSION);
    else if (strcmp(found->name, request->name) != 0 || strcmp(found->interface, request->interface) != 0)
        yk__fail(YK_ERR_UNSUPPORTED, "%s is the plug-in '%s' of the interface '%s', expected '%s' of '%s'", path,
                 found->name, found->interface, request->name, request->interface);
    else if (strcmp(found->version, YK_VERSION) != 0)
        yk__fail(YK_ERR_UNSUPPORTED, "%s is of yoke %s, and this is yoke %s: build and install both together", path,
                 found->version, YK_VERSION);
    else if (memcmp(found->sizes, request->sizes, sizeof(found->sizes)) != 0)
        yk__fail(YK_ERR_UNSUPPORTED,
                 "%s was built from other sources of yoke %s than this: build and install both "
                 "together",
                 path, YK_VERSION);
    else
        return true;
    return false;
}

/* The index among `plugins`, or -1 with the error record set. With the lock held. */
static int open_plugin(const yk__plugin_request *request)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(plugins[i].plugin->name, request->name) == 0)
            return i;
    }
    char path[PATH_ROOM] = "";
    if (!find(request->name, path, sizeof(path))) {
        yk__fail(YK_ERR_UNSUPPORTED, "%s is not there (%s): %s", request->what, path, request->to_build);
        return -1;
    }
    int binding = request->global_symbols ? RTLD_GLOBAL : RTLD_LOCAL;
    void *object = dlopen(path, RTLD_NOW | binding | RTLD_NODELETE);
    if (!object) {
        yk__fail(YK_ERR_UNSUPPORTED, "%s cannot be loaded: %s (%s)", request->what, dlerror(), request->to_load);
        return -1;
    }
    const yk__plugin *found = dlsym(object, "yk__plugin_description");
    char *kept = compare(request, found, path) ? yk__strdup(path) : NULL;
    if (!kept || count == MOST_PLUGINS) {
        if (kept)
            yk__fail(YK_ERR_INTERNAL, "more than %d plug-ins", MOST_PLUGINS);
        free(kept);
        return -1;
    }
    plugins[count].plugin = found;
    plugins[count].path = kept;
    return count++;
}

const void *yk__plugin_load(const yk__plugin_request *request)
{
    pthread_mutex_lock(&lock);
    int i = open_plugin(request);
    if (i >= 0 && !plugins[i].table)
        plugins[i].table = plugins[i].plugin->start(&base_services, request->services);
    const void *table = i >= 0 ? plugins[i].table : NULL;
    pthread_mutex_unlock(&lock);
    return table;
}

const yk__plugin *yk__plugin_describe(const yk__plugin_request *request, char *path, size_t size)
{
    pthread_mutex_lock(&lock);
    int i = open_plugin(request);
    const yk__plugin *plugin = i >= 0 ? plugins[i].plugin : NULL;
    if (plugin)
        snprintf(path, size, "%s", plugins[i].path);
    pthread_mutex_unlock(&lock);
    return plugin;
}
