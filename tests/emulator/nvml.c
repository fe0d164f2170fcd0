/*
 * nvml.c - a stand-in of NVIDIA's management library for machines without a driver: the GPUs of YOKE_EMULATOR_GPUS, and
 * the processes of YOKE_EMULATOR_HOLDERS ("4711:2.5 1:-1": number, GiB; below 0: not said), on GPU 0. Tests only.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))
enum { DONE = 0, NOT_FOUND = 6, TOO_SMALL = 7 };

typedef struct memory {
    unsigned long long total, free, used;
} memory;
typedef struct process {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
} process;

EXPORTED int nvmlInit_v2(void);
EXPORTED int nvmlSystemGetDriverVersion(char *text, unsigned size);
EXPORTED int nvmlDeviceGetCount_v2(unsigned *count);
EXPORTED int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **gpu);
EXPORTED int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **gpu);
EXPORTED int nvmlDeviceGetName(void *gpu, char *text, unsigned size);
EXPORTED int nvmlDeviceGetMemoryInfo(void *gpu, memory *m);
EXPORTED int nvmlDeviceGetComputeRunningProcesses_v3(void *gpu, unsigned *count, process *all);
EXPORTED int nvmlDeviceGetCurrPcieLinkGeneration(void *gpu, unsigned *generation);
EXPORTED int nvmlDeviceGetCurrPcieLinkWidth(void *gpu, unsigned *lanes);
EXPORTED int nvmlDeviceGetNvLinkState(void *gpu, unsigned link, int *up);

static unsigned gpus(void)
{
    const char *text = getenv("YOKE_EMULATOR_GPUS");
    return text ? (unsigned)atoi(text) : 1;
}

int nvmlInit_v2(void)
{
    return DONE;
}

int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    snprintf(text, size, "580.00");
    return DONE;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = gpus();
    return DONE;
}

/* A handle is 1 + the index. */
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **gpu)
{
    *gpu = (void *)((uintptr_t)index + 1);
    return index < gpus() ? DONE : NOT_FOUND;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **gpu)
{
    unsigned index;
    return sscanf(bus, "0000:%x:00.0", &index) == 1 ? nvmlDeviceGetHandleByIndex_v2(index, gpu) : NOT_FOUND;
}

int nvmlDeviceGetName(void *gpu, char *text, unsigned size)
{
    snprintf(text, size, "Emulated %d", (int)(uintptr_t)gpu - 1);
    return DONE;
}

int nvmlDeviceGetMemoryInfo(void *gpu, memory *m)
{
    (void)gpu;
    *m = (memory){.total = 4ULL << 30, .used = 3ULL << 30, .free = 1ULL << 30};
    return DONE;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *gpu, unsigned *count, process *all)
{
    const char *text = getenv("YOKE_EMULATOR_HOLDERS");
    unsigned room = *count;
    *count = 0;
    if (!text || (uintptr_t)gpu != 1)
        return DONE;
    for (int used; *text && *count < room; text += used) {
        double gib;
        if (sscanf(text, " %u:%lf%n", &all[*count].pid, &gib, &used) != 2)
            return TOO_SMALL;
        all[(*count)++].bytes = gib < 0 ? ~0ULL : (unsigned long long)(gib * (1 << 30));
    }
    return DONE;
}

int nvmlDeviceGetCurrPcieLinkGeneration(void *gpu, unsigned *generation)
{
    (void)gpu;
    *generation = 5;
    return DONE;
}

int nvmlDeviceGetCurrPcieLinkWidth(void *gpu, unsigned *lanes)
{
    (void)gpu;
    *lanes = 16;
    return DONE;
}

int nvmlDeviceGetNvLinkState(void *gpu, unsigned link, int *up)
{
    *up = gpus() > 1 && link < 4;
    return gpu ? DONE : NOT_FOUND;
}
