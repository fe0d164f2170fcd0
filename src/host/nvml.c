/*
 * nvml.c - see nvml.h. Layer: host.
 *
 * The library is opened at the first question and stays; its types are opaque pointers and numbers, so its header is
 * not needed. In a container it lists no processes of others, or by numbers that mean nothing here: then none are
 * named.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/nvml.h"

/* NOT_SAID: a process's memory where NVML does not say it (NVML_VALUE_NOT_AVAILABLE). MOST_LINKS: of one GPU. */
static const unsigned long long NOT_SAID = ~0ULL;
enum { MOST_LINKS = 18, FUNCTIONS = 11, NEEDED = 6 };

typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;

/* nvmlProcessInfo_v2_t */
typedef struct nvml_process {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
} nvml_process;

static struct {
    int (*init)(void);
    int (*driver)(char *text, unsigned size);
    int (*count)(unsigned *count);
    int (*by_index)(unsigned index, void **gpu);
    int (*name)(void *gpu, char *text, unsigned size);
    int (*memory)(void *gpu, nvml_memory *memory);
    /* From here on NULL where the driver is too old. */
    int (*by_bus)(const char *bus, void **gpu);
    int (*processes)(void *gpu, unsigned *count, nvml_process *processes);
    int (*pcie_generation)(void *gpu, unsigned *generation);
    int (*pcie_lanes)(void *gpu, unsigned *lanes);
    int (*link)(void *gpu, unsigned link, int *up);
} nvml;
static void *library; /* NULL: it is not there */
static bool there;
static int init_code; /* of nvmlInit: 0 where it has succeeded, or was not called */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_library(void)
{
    static const char *const names[] = {"nvmlInit_v2",
                                        "nvmlSystemGetDriverVersion",
                                        "nvmlDeviceGetCount_v2",
                                        "nvmlDeviceGetHandleByIndex_v2",
                                        "nvmlDeviceGetName",
                                        "nvmlDeviceGetMemoryInfo",
                                        "nvmlDeviceGetHandleByPciBusId_v2",
                                        "nvmlDeviceGetComputeRunningProcesses_v3",
                                        "nvmlDeviceGetCurrPcieLinkGeneration",
                                        "nvmlDeviceGetCurrPcieLinkWidth",
                                        "nvmlDeviceGetNvLinkState"};
    void *symbols[FUNCTIONS];
    _Static_assert(sizeof(names) / sizeof(names[0]) == FUNCTIONS && sizeof(symbols) == sizeof(nvml),
                   "one function for each name");
    library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
    for (int i = 0; library && i < FUNCTIONS; i++) {
        symbols[i] = dlsym(library, names[i]);
        if (!symbols[i] && i < NEEDED) {
            dlclose(library);
            library = NULL;
        }
    }
    if (!library)
        return;
    memcpy(&nvml, symbols, sizeof(symbols)); /* functions' addresses, which dlsym gives as objects' */
    init_code = nvml.init();
    there = init_code == 0;
}

int yk__nvml_count(char version[80])
{
    unsigned count = 0;
    version[0] = '\0';
    pthread_once(&once, open_library);
    if (!there)
        return -1;
    if (nvml.driver(version, 80))
        version[0] = '\0';
    return nvml.count(&count) ? 0 : (int)count;
}

const char *yk__nvml_problem(char text[YK__NVML_PROBLEM])
{
    enum { NOT_LOADED = 9, OTHER_VERSION = 18, NO_RIGHTS = 4 }; /* of nvmlReturn_t */
    pthread_once(&once, open_library);
    if (!init_code)
        return NULL;
    const char *(*say)(int code) = NULL;
    void *symbol = dlsym(library, "nvmlErrorString");
    memcpy(&say, &symbol, sizeof(say));
    snprintf(text, YK__NVML_PROBLEM, "NVML does not start: %.60s (%d)%s", say ? say(init_code) : "error", init_code,
             init_code == OTHER_VERSION ? "; libnvidia-ml.so.1 is of another version than the driver that is loaded, "
                                          "as after an update: a restart of the machine loads the new one"
             : init_code == NOT_LOADED  ? "; the kernel's module nvidia is not loaded (modprobe nvidia, dmesg)"
             : init_code == NO_RIGHTS   ? "; /dev/nvidia* may not be opened by this user"
                                        : "");
    return text;
}

void *yk__nvml_function(const char *name)
{
    pthread_once(&once, open_library);
    return there ? dlsym(library, name) : NULL;
}

static void name_of(unsigned pid, char name[32])
{
    char path[64];
    name[0] = '\0';
    snprintf(path, sizeof(path), "/proc/%u/comm", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    if (fgets(name, 32, file))
        name[strcspn(name, "\n")] = '\0';
    fclose(file);
}

static int more_bytes(const void *a, const void *b)
{
    double x = ((const yk__gpu_holder *)a)->bytes, y = ((const yk__gpu_holder *)b)->bytes;
    return (x < y) - (x > y);
}

static void add_holders(void *handle, yk__gpu *gpu)
{
    nvml_process processes[YK__GPU_HOLDERS];
    unsigned count = YK__GPU_HOLDERS;
    if (!nvml.processes || nvml.processes(handle, &count, processes)) /* which more of them is an error, too */
        return;
    for (unsigned i = 0; i < count && i < YK__GPU_HOLDERS; i++) {
        yk__gpu_holder *h = &gpu->holders[gpu->n_holders++];
        h->pid = processes[i].pid;
        h->bytes = processes[i].bytes == NOT_SAID ? -1 : (double)processes[i].bytes;
        name_of(h->pid, h->name);
    }
    qsort(gpu->holders, (size_t)gpu->n_holders, sizeof(gpu->holders[0]), more_bytes);
}

bool yk__nvml_gpu(int index, const char *bus, yk__gpu *gpu)
{
    void *handle = NULL;
    nvml_memory memory = {0};
    memset(gpu, 0, sizeof(*gpu));
    pthread_once(&once, open_library);
    if (!there || (bus ? !nvml.by_bus || nvml.by_bus(bus, &handle) : nvml.by_index((unsigned)index, &handle)) ||
        nvml.name(handle, gpu->name, sizeof(gpu->name)) || nvml.memory(handle, &memory))
        return false;
    gpu->total = (double)memory.total;
    gpu->used = (double)memory.used;
    if (!nvml.pcie_generation || !nvml.pcie_lanes || nvml.pcie_generation(handle, &gpu->pcie_generation) ||
        nvml.pcie_lanes(handle, &gpu->pcie_lanes))
        gpu->pcie_generation = gpu->pcie_lanes = 0;
    for (unsigned i = 0; nvml.link && i < MOST_LINKS; i++) {
        int up = 0;
        gpu->nvlinks += nvml.link(handle, i, &up) == 0 && up == 1;
    }
    add_holders(handle, gpu);
    return true;
}

const char *yk__gpu_holders_format(yk__gpu *gpu, char *text, size_t size)
{
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < gpu->n_holders && at < size; i++) {
        const yk__gpu_holder *h = &gpu->holders[i];
        char who[64] = "this process", memory[32] = "";
        if (h->pid != (unsigned)getpid())
            snprintf(who, sizeof(who), h->name[0] ? "process %u (%s)" : "process %u", h->pid, h->name);
        if (h->bytes >= 0)
            snprintf(memory, sizeof(memory), " %.1f GiB", h->bytes / (1 << 30));
        at += (size_t)snprintf(text + at, size - at, "%s%s%s", i ? ", " : "", who, memory);
    }
    return text;
}

const char *yk__gpu_holders_of(const char *bus, char *text, size_t size)
{
    yk__gpu gpu;
    text[0] = '\0';
    return yk__nvml_gpu(0, bus, &gpu) ? yk__gpu_holders_format(&gpu, text, size) : text;
}
