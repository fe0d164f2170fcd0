/*
 * doctor_facts.c - the libraries, devices and limits of this process. Layer: cli.
 *
 * Drivers and libraries that need not be there are looked at by dlopen and left alone otherwise: no GPU is set up.
 */
#include <dlfcn.h>
#include <errno.h>
#include <ifaddrs.h>
#include <math.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

/* jpeglib.h wants stdio.h before it. */
#include <stdio.h>

#include <gnu/libc-version.h>
#include <jpeglib.h>
#include <png.h>
#include <sodium.h>
#include <xxhash.h>
#include <zlib.h>

#include <yoke/comm.h>
#include <yoke/device.h>

#include "base/isa.h"
#include "cli/doctor/doctor.h"
#include "cli/options.h"
#include "comm/comm_plugin.h"
#include "device/backend.h"
#include "host/gpus.h"
#include "host/library_path.h"
#include "host/nvml.h"
#include "net/handshake.h"
#include "observe/holders.h"
#include "observe/leftovers.h"
#include "observe/runs.h"

#define TEXT_OF_(x) #x
#define TEXT_OF(x)  TEXT_OF_(x)

static void put(json_t *group, const char *name, const char *format, ...) YK_PRINTF(3, 4);
static void put(json_t *group, const char *name, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    json_object_set_new(group, name, json_string(text));
}

static void problem(json_t *problems, const char *format, ...) YK_PRINTF(2, 3);
static void problem(json_t *problems, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    json_array_append_new(problems, json_string(text));
}

/* "1.5 GiB" */
static const char *amount(double bytes, char text[32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    while (bytes >= 1024 && unit < 4) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, 32, "%.*f %s", unit && bytes < 100 ? 1 : 0, bytes, units[unit]);
    return text;
}

/* The rest of the first line of a file that begins with the key, after the key and its separator; "" without one. */
static void line_of(const char *path, const char *key, char *text, size_t size)
{
    char line[1024];
    *text = '\0';
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    while (!*text && fgets(line, sizeof(line), file)) {
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        const char *at = line + strlen(key);
        at += strspn(at, " \t:");
        snprintf(text, size, "%.*s", (int)strcspn(at, "\n"), at);
    }
    fclose(file);
}

/* ---- libraries ------------------------------------------------------------------------------------------------- */
/* One of NVIDIA's libraries, where the plug-ins look for it; its own function says which version. */
static void add_vendor(json_t *group, const char *name, const char *file, const char *function)
{
    char path[4096], text[4200] = "not here";
    bool found = false;
    for (int i = 0; !found && yk__library_path(file, i, path, sizeof(path)); i++) {
        void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
        void *symbol = library ? dlsym(library, function) : NULL;
        size_t (*version)(void) = NULL;
        int (*version_to)(int *) = NULL; /* NCCL's */
        size_t number = 0;
        int to = 0;
        bool nccl = strncmp(function, "nccl", 4) == 0;
        memcpy(&version, &symbol, sizeof(version)); /* a function's address, which dlsym gives as an object's */
        memcpy(&version_to, &symbol, sizeof(version_to));
        if (symbol)
            number = nccl ? (version_to(&to) == 0 ? (size_t)to : 0) : version();
        found = number > 0;
        if (found)
            snprintf(text, sizeof(text), "%zu.%zu.%zu%s%s", number / 10000, number / 100 % 100, number % 100,
                     strchr(path, '/') ? ", " : "", strchr(path, '/') ? path : "");
        if (library)
            dlclose(library);
    }
    put(group, name, "%s", text);
}

/* Those that the plug-in of CUDA uses, where there is a GPU for it (cuBLASLt, of the CUDA that it was built with, takes
 * 200 ms to load); and NCCL. */
static void add_vendors(json_t *group)
{
    char path[4096], file[40];
    const yk__plugin *plugin = yk__plugin_describe(yk__cuda_plugin_request(), path, sizeof(path));
    const char *built = plugin && yk_device_count(YK_CUDA) ? strstr(plugin->built_with, "CUDA ") : NULL;
    yk_clear_error();
    if (built) {
        snprintf(file, sizeof(file), "libcublasLt.so.%d", atoi(built + 5));
        add_vendor(group, "cuBLASLt", file, "cublasLtGetVersion");
        add_vendor(group, "cuDNN", "libcudnn.so.9", "cudnnGetVersion");
    }
    add_vendor(group, "NCCL", "libnccl.so.2", "ncclGetVersion");
}

static void add_cuda(json_t *group)
{
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    int (*version)(int *) = NULL;
    void *symbol = library ? dlsym(library, "cuDriverGetVersion") : NULL;
    memcpy(&version, &symbol, sizeof(version));
    int number = 0;
    if (version && version(&number) == 0)
        put(group, "CUDA driver", "%d.%d", number / 1000, number / 10 % 100);
    else
        put(group, "CUDA driver", "not here");
    if (library)
        dlclose(library);
}

/* True if a backend carries every operation: the table of them is in docs/collectives.md. */
static bool carries_all(const yk__comm_backend *b)
{
    bool all = b->post != NULL;
    for (int kind = 0; kind < YK__COMM_COLLECTIVES; kind++)
        all = all && b->collective[kind];
    return all;
}

/* Adds the backends of collectives, by PyTorch's names too. */
static void add_backends(json_t *group)
{
    char path[4096];
    put(group, "native, gloo", "%s of tensors on CPUs, and on GPUs by way of the host's memory",
        carries_all(&yk__comm_native) ? "all operations" : "some operations");
    bool mpi = yk__plugin_describe(yk__comm_plugin_request("mpi"), path, sizeof(path)) != NULL;
    yk_clear_error();
    put(group, "mpi", mpi ? "likewise, in jobs of mpirun" : "not here");
    bool nccl = yk__plugin_describe(yk__comm_plugin_request("nccl"), path, sizeof(path)) != NULL;
    yk_clear_error();
    bool ucx = yk__plugin_describe(yk__comm_plugin_request("ucx"), path, sizeof(path)) != NULL;
    yk_clear_error();
    put(group, "ucx", ucx ? "as native, by UCX's transports" : "not here");
    put(group, "nccl", nccl ? "all operations of tensors on GPUs, each rank its own" : "not here");
}

/* Adds the libraries that a plug-in was built with; it is not started. */
static void add_plugin(json_t *group, const char *name, const yk__plugin_request *request)
{
    char path[4096];
    const yk__plugin *plugin = yk__plugin_describe(request, path, sizeof(path));
    if (plugin)
        put(group, name, "built with %s", plugin->built_with);
    else
        put(group, name, "not here");
    yk_clear_error();
}

static void add_libraries(json_t *group)
{
    int number[3];
    if (yk__onednn_version(number))
        put(group, "oneDNN", "%d.%d.%d", number[0], number[1], number[2]);
    else
        put(group, "oneDNN", "not here: large matrix products are yoke's own");
    put(group, "libsodium", "%s", sodium_version_string());
    put(group, "jansson", "%s", jansson_version_str());
    put(group, "zlib", "%s", zlibVersion());
    put(group, "libpng", "%s", png_get_libpng_ver(NULL));
#ifdef LIBJPEG_TURBO_VERSION
    put(group, "libjpeg-turbo", "%s", TEXT_OF(LIBJPEG_TURBO_VERSION));
#else
    put(group, "libjpeg", "%d", JPEG_LIB_VERSION);
#endif
    put(group, "xxHash", "%d.%d.%d", XXH_VERSION_MAJOR, XXH_VERSION_MINOR, XXH_VERSION_RELEASE);
    put(group, "C library", "glibc %s", gnu_get_libc_version());
    add_plugin(group, "mpi backend", yk__comm_plugin_request("mpi"));
    add_plugin(group, "ucx backend", yk__comm_plugin_request("ucx"));
    add_plugin(group, "cuda backend", yk__cuda_plugin_request());
    add_plugin(group, "nccl backend", yk__comm_plugin_request("nccl"));
    add_cuda(group);
    add_vendors(group);
}

/* ---- devices --------------------------------------------------------------------------------------------------- */
/* The group of this process below a version 2 hierarchy, or "" . */
static void control_group(char *path, size_t size)
{
    char own[512];
    line_of("/proc/self/cgroup", "0::", own, sizeof(own));
    snprintf(path, size, "%s%s", *own ? "/sys/fs/cgroup" : "", own);
}

/* The tightest limit that files of this name give, here and in the groups around this one: their first number, divided
 * by the second where there is one. INFINITY for none. */
static double group_limit(const char *name)
{
    char folder[600], path[700], text[64];
    double tightest = INFINITY;
    for (control_group(folder, sizeof(folder)); strlen(folder) > strlen("/sys/fs/cgroup");
         *strrchr(folder, '/') = '\0') {
        snprintf(path, sizeof(path), "%s/%s", folder, name);
        line_of(path, "", text, sizeof(text));
        double limit, period = 1; /* "max" is none */
        if (strncmp(text, "max", 3) != 0 && sscanf(text, "%lf %lf", &limit, &period) >= 1 && period > 0)
            tightest = fmin(tightest, limit / period);
    }
    return tightest;
}

/* A wrong level is no error where it is read: messages cannot be asked to say that there are none. */
static void check_log_level(json_t *problems)
{
    static const char *const levels[] = {"debug", "info", "warn", "error", "off"};
    const char *value = getenv("YOKE_LOG");
    bool known = !value || !*value;
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++)
        known = known || strcasecmp(value, levels[i]) == 0;
    if (!known)
        problem(problems, "YOKE_LOG=%s: expected debug, info, warn, error or off; nothing is logged", cli_plain(value));
}

static void add_cores(json_t *group, json_t *problems)
{
    char text[256];
    line_of("/proc/cpuinfo", "model name", text, sizeof(text));
    put(group, "processor", "%s", *text ? text : "its name is not in /proc/cpuinfo");
    put(group, "kernels", "%s, of those that are built (%s)", yk__cpu_isa(), yk__isa_built());
    check_log_level(problems);
    int cores = yk__cores();
    put(group, "cores", "%d of %ld", cores, sysconf(_SC_NPROCESSORS_ONLN));
    double limit = group_limit("cpu.max");
    if (limit < 0.9 * cores)
        problem(problems, "the control group allows %.3g cores, and threads are started for %d: set OMP_NUM_THREADS=%d",
                limit, cores, limit < 1 ? 1 : (int)limit);
    if (isfinite(limit))
        put(group, "cgroup cpu limit", "%.3g cores", limit);
    else
        put(group, "cgroup cpu limit", "none");
    int count = yk_device_count(YK_CPU);
    if (count < 1) {
        (void)!yk__device_check((yk_device){.type = YK_CPU}); /* the count alone says no reason */
        problem(problems, "no CPU device: %s", yk_last_error() ? yk_last_error()->message : "the backend has none");
        yk_clear_error();
    }
    put(group, "CPU devices", "%d with %d threads each", count,
        count ? yk_get_num_threads((yk_device){.type = YK_CPU}) : 0);
}

static void add_memory(json_t *group, json_t *problems)
{
    char total[64], available[64], all[32], left[32];
    line_of("/proc/meminfo", "MemTotal:", total, sizeof(total));
    line_of("/proc/meminfo", "MemAvailable:", available, sizeof(available));
    put(group, "memory", "%s, %s available", amount(1024 * atof(total), all), amount(1024 * atof(available), left));
    double limit = group_limit("memory.max");
    put(group, "cgroup memory limit", "%s", isfinite(limit) ? amount(limit, all) : "none");
    struct statvfs shm;
    if (statvfs("/dev/shm", &shm) == 0)
        put(group, "/dev/shm", "%s, %s free", amount((double)shm.f_blocks * (double)shm.f_frsize, all),
            amount((double)shm.f_bavail * (double)shm.f_frsize, left));
    else
        put(group, "/dev/shm", "not here");
    int fd = memfd_create("yoke-doctor", MFD_CLOEXEC);
    bool works = fd >= 0 && ftruncate(fd, 4096) == 0;
    put(group, "shared memory", "%s", works ? "memfd" : strerror(errno));
    if (!works)
        problem(problems, "no shared memory between processes: memfd_create: %s", strerror(errno));
    if (fd >= 0)
        close(fd);
}

/* Adds the devices that programs can ask for as cuda:N, or why there is none. */
static void add_cuda_devices(json_t *group, json_t *problems)
{
    int count = yk_device_count(YK_CUDA);
    if (count) {
        put(group, "CUDA devices", "%d", count);
    } else if (yk__device_check((yk_device){.type = YK_CUDA})) {
        put(group, "CUDA devices", "none: %s", yk_last_error()->message);
        if (yk__gpus_count() > 0)
            problem(problems, "there is a GPU, and none can be used: %s", yk_last_error()->message);
    }
    yk_clear_error();
}

static void add_gpus(json_t *group, json_t *problems)
{
    char why[YK__NVML_PROBLEM], version[80], name[16], all[32], used[32], links[64], holders[600];
    int count = yk__nvml_count(version);
    if (count < 0) {
        put(group, "GPUs", "none");
        if (yk__nvml_problem(why))
            problem(problems, "%s", why);
        return;
    }
    put(group, "GPUs", "%d, driver %s", count, version);
    for (int i = 0; i < count; i++) {
        yk__gpu gpu;
        if (!yk__nvml_gpu(i, NULL, &gpu))
            continue;
        links[0] = '\0';
        if (gpu.pcie_lanes)
            snprintf(links, sizeof(links), "; PCIe %u x%u, %u NVLinks", gpu.pcie_generation, gpu.pcie_lanes,
                     gpu.nvlinks);
        yk__gpu_holders_format(&gpu, holders, sizeof(holders));
        snprintf(name, sizeof(name), "GPU %d", i);
        put(group, name, "%s, %s, %s in use%s%s%s", gpu.name, amount(gpu.total, all), amount(gpu.used, used), links,
            holders[0] ? "; held by " : "", holders);
    }
}

/* ---- limits and network ---------------------------------------------------------------------------------------- */
static const char *limit_text(rlim_t value, bool bytes, char text[32])
{
    if (value == RLIM_INFINITY)
        snprintf(text, 32, "unlimited");
    else if (bytes)
        amount((double)value, text);
    else
        snprintf(text, 32, "%llu", (unsigned long long)value);
    return text;
}

static void add_limits(json_t *group, json_t *problems)
{
    struct rlimit limit;
    char soft[32], hard[32];
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        put(group, "open files", "%s, at most %s", limit_text(limit.rlim_cur, false, soft),
            limit_text(limit.rlim_max, false, hard));
        if (limit.rlim_max < 1024)
            problem(problems, "the limit of open files is %s: jobs of many processes need more (ulimit -n)", hard);
    }
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0)
        put(group, "locked memory", "%s, at most %s", limit_text(limit.rlim_cur, true, soft),
            limit_text(limit.rlim_max, true, hard));
    if (getrlimit(RLIMIT_NPROC, &limit) == 0)
        put(group, "processes", "%s, at most %s", limit_text(limit.rlim_cur, false, soft),
            limit_text(limit.rlim_max, false, hard));
}

static void add_network(json_t *group)
{
    struct ifaddrs *all;
    if (getifaddrs(&all))
        return;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) ||
            (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6))
            continue;
        bool v4 = i->ifa_addr->sa_family == AF_INET;
        yk__address address = {.size = v4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6)};
        memcpy(&address.storage, i->ifa_addr, address.size);
        char host[YK__ADDRESS_TEXT];
        const char *before = json_string_value(json_object_get(group, i->ifa_name));
        put(group, i->ifa_name, "%.900s%s%s", before ? before : "", before ? ", " : "",
            yk__address_host(&address, host));
    }
    freeifaddrs(all);
}

/* ---- processes ------------------------------------------------------------------------------------------------- */
static void add_process(json_t *group, int pid, const char *what, const char *job)
{
    char name[24], bytes[32], ports[YK__HOLDER_PORTS * 66] = "";
    yk__holder h;
    yk__holder_read(pid, &h);
    if (!h.here)
        return;
    for (int i = 0; i < h.n_ports; i++)
        snprintf(ports + strlen(ports), sizeof(ports) - strlen(ports), "%s%s", i ? ", " : "; listens on ", h.ports[i]);
    snprintf(name, sizeof(name), "pid %d", pid);
    put(group, name, "%s of job %s, %s, cores %s%s%s", what, job, h.resident >= 0 ? amount(h.resident, bytes) : "-",
        *h.cores ? h.cores : "-", ports, h.launcher_gone ? "; its launcher is gone: yoke stop --orphans ends it" : "");
}

/* Adds who of this user's runs holds cores, ports and files in /dev/shm. */
static void add_processes(json_t *group)
{
    yk__runs runs;
    yk__leftovers left;
    char what[32], bytes[32];
    yk__runs_read(&runs);
    yk__leftovers_read(&left);
    for (int i = 0; i < runs.count; i++) {
        const yk__run *run = &runs.all[i];
        add_process(group, run->launcher, "launcher", run->job);
        add_process(group, run->supervisor, "supervisor", run->job);
        for (int k = 0; k < run->n_ranks; k++) {
            snprintf(what, sizeof(what), "rank %d", run->ranks[k].rank);
            if (run->ranks[k].alive)
                add_process(group, run->ranks[k].pid, what, run->job);
        }
    }
    for (int i = 0; i < left.n_orphans; i++) {
        snprintf(what, sizeof(what), "rank %s", left.orphans[i].rank);
        add_process(group, left.orphans[i].pid, what, left.orphans[i].job);
    }
    for (int i = 0; i < left.n_segments; i++)
        put(group, left.segments[i].path, "%s, of user %s%s", amount(left.segments[i].bytes, bytes),
            left.segments[i].user, left.segments[i].n_holders ? "" : ", held by nobody that is seen");
    if (!json_object_size(group))
        put(group, "of yoke", "none");
    yk__leftovers_clear(&left);
    yk__runs_clear(&runs);
}

json_t *doctor_facts(json_t *problems)
{
    json_t *facts = json_object();
    static const char *const names[] = {"yoke",   "libraries", "collectives", "devices",
                                        "limits", "network",   "processes"};
    enum { GROUPS = sizeof(names) / sizeof(names[0]) };
    json_t *groups[GROUPS];
    for (int i = 0; i < GROUPS; i++) {
        groups[i] = json_object();
        json_object_set_new(facts, names[i], groups[i]);
    }
    struct utsname system;
    if (uname(&system) == 0) {
        put(groups[0], "host", "%s", system.nodename);
        put(groups[0], "system", "%s %s %s", system.sysname, system.release, system.machine);
    }
    put(groups[0], "version", "%s (protocol %d)", YK_VERSION, YK__PROTOCOL);
    add_libraries(groups[1]);
    add_backends(groups[2]);
    add_cores(groups[3], problems);
    add_memory(groups[3], problems);
    add_gpus(groups[3], problems);
    add_cuda_devices(groups[3], problems);
    add_limits(groups[4], problems);
    add_network(groups[5]);
    add_processes(groups[6]);
    return facts;
}
