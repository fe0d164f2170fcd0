/*
 * nvml.c - a stand-in of NVIDIA's management library for machines without a driver: the GPUs of YOKE_EMULATOR_GPUS, and
 * the processes of YOKE_EMULATOR_HOLDERS ("4711:2.5 1:-1": number, GiB; below 0: not said), on GPU 0. What GPU i
 * measures is made of i: see each function. YOKE_EMULATOR_GPM=0: they are of a kind that has no GPM, nor a sensor of
 * its memory. YOKE_EMULATOR_NVML_ERROR: it does not start, with this error. Tests only.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORTED __attribute__((visibility("default")))
enum { DONE = 0, WRONG = 2, UNSUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7 };

typedef struct memory {
    unsigned long long total, free, used;
} memory;
typedef struct process {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
} process;
typedef struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
} memory_v2;
typedef struct utilization {
    unsigned gpu, memory;
} utilization;
typedef struct pci {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
} pci;
typedef struct field {
    unsigned id, scope;
    long long timestamp, latency;
    int type, status;
    union {
        double d;
        unsigned u;
        unsigned long long ll;
    } value;
} field;
typedef struct gpm_support {
    unsigned version, supported;
} gpm_support;
typedef struct gpm_sample {
    uintptr_t gpu; /* 0: it was not taken */
    double at;
} gpm_sample;
typedef struct gpm_metric {
    unsigned id;
    int status;
    double value;
    const char *name[3];
} gpm_metric;
typedef struct gpm_metrics {
    unsigned version, count;
    gpm_sample *before, *now;
    gpm_metric metrics[];
} gpm_metrics;

EXPORTED int nvmlInit_v2(void);
EXPORTED const char *nvmlErrorString(int code);
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
EXPORTED int nvmlDeviceGetUUID(void *gpu, char *text, unsigned size);
EXPORTED int nvmlDeviceGetPciInfo_v3(void *gpu, pci *p);
EXPORTED int nvmlDeviceGetClockInfo(void *gpu, int kind, unsigned *mhz);
EXPORTED int nvmlDeviceGetTemperature(void *gpu, int sensor, unsigned *degrees);
EXPORTED int nvmlDeviceGetPowerUsage(void *gpu, unsigned *milliwatts);
EXPORTED int nvmlDeviceGetTotalEnergyConsumption(void *gpu, unsigned long long *millijoules);
EXPORTED int nvmlDeviceGetPcieReplayCounter(void *gpu, unsigned *count);
EXPORTED int nvmlDeviceGetUtilizationRates(void *gpu, utilization *u);
EXPORTED int nvmlDeviceGetEncoderUtilization(void *gpu, unsigned *percent, unsigned *period);
EXPORTED int nvmlDeviceGetDecoderUtilization(void *gpu, unsigned *percent, unsigned *period);
EXPORTED int nvmlDeviceGetMemoryInfo_v2(void *gpu, memory_v2 *m);
EXPORTED int nvmlDeviceGetRemappedRows(void *gpu, unsigned *c, unsigned *u, unsigned *pending, unsigned *failure);
EXPORTED int nvmlDeviceGetFieldValues(void *gpu, int count, field *fields);
EXPORTED int nvmlGpmQueryDeviceSupport(void *gpu, gpm_support *support);
EXPORTED int nvmlGpmSampleAlloc(gpm_sample **sample);
EXPORTED int nvmlGpmSampleFree(gpm_sample *sample);
EXPORTED int nvmlGpmSampleGet(void *gpu, gpm_sample *sample);
EXPORTED int nvmlGpmMetricsGet(gpm_metrics *m);

static unsigned gpus(void)
{
    const char *text = getenv("YOKE_EMULATOR_GPUS");
    return text ? (unsigned)atoi(text) : 1;
}

int nvmlInit_v2(void)
{
    const char *code = getenv("YOKE_EMULATOR_NVML_ERROR");
    return code ? atoi(code) : DONE;
}

const char *nvmlErrorString(int code)
{
    return code == 18 ? "Driver/library version mismatch" : "Unknown Error";
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

/* ---- what a GPU measures ----------------------------------------------------------------------------------------- */
static unsigned index_of(void *gpu)
{
    return (unsigned)(uintptr_t)gpu - 1;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int has_gpm(void)
{
    const char *text = getenv("YOKE_EMULATOR_GPM");
    return !text || strcmp(text, "0") != 0;
}

int nvmlDeviceGetUUID(void *gpu, char *text, unsigned size)
{
    snprintf(text, size, "GPU-00000000-0000-0000-0000-%012u", index_of(gpu));
    return DONE;
}

int nvmlDeviceGetPciInfo_v3(void *gpu, pci *p)
{
    *p = (pci){.bus = index_of(gpu)};
    snprintf(p->id, sizeof(p->id), "00000000:%02X:00.0", index_of(gpu));
    return DONE;
}

/* SM 1410 + i, memory 2619. */
int nvmlDeviceGetClockInfo(void *gpu, int kind, unsigned *mhz)
{
    *mhz = kind == 1 ? 1410 + index_of(gpu) : 2619;
    return kind == 1 || kind == 2 ? DONE : WRONG;
}

/* 40 + i. */
int nvmlDeviceGetTemperature(void *gpu, int sensor, unsigned *degrees)
{
    *degrees = 40 + index_of(gpu);
    return sensor == 0 ? DONE : WRONG;
}

/* 250.5 W + 10 i. */
int nvmlDeviceGetPowerUsage(void *gpu, unsigned *milliwatts)
{
    *milliwatts = 250500 + 10000 * index_of(gpu);
    return DONE;
}

/* The energy of that power since the machine was started. */
int nvmlDeviceGetTotalEnergyConsumption(void *gpu, unsigned long long *millijoules)
{
    unsigned power = 0;
    nvmlDeviceGetPowerUsage(gpu, &power);
    *millijoules = (unsigned long long)(seconds() * power);
    return DONE;
}

int nvmlDeviceGetPcieReplayCounter(void *gpu, unsigned *count)
{
    *count = index_of(gpu);
    return DONE;
}

/* 70 % + i, memory 30 % + i. */
int nvmlDeviceGetUtilizationRates(void *gpu, utilization *u)
{
    *u = (utilization){70 + index_of(gpu), 30 + index_of(gpu)};
    return DONE;
}

int nvmlDeviceGetEncoderUtilization(void *gpu, unsigned *percent, unsigned *period)
{
    *percent = *period = 0;
    return gpu ? DONE : WRONG;
}

int nvmlDeviceGetDecoderUtilization(void *gpu, unsigned *percent, unsigned *period)
{
    return nvmlDeviceGetEncoderUtilization(gpu, percent, period);
}

/* 2.5 of 4 GiB are used and 0.5 reserved. */
int nvmlDeviceGetMemoryInfo_v2(void *gpu, memory_v2 *m)
{
    if (!gpu || m->version != (sizeof(*m) | 2u << 24))
        return WRONG;
    *m = (memory_v2){
        .version = m->version, .total = 4ULL << 30, .used = 5ULL << 29, .reserved = 1ULL << 29, .free = 1ULL << 30};
    return DONE;
}

int nvmlDeviceGetRemappedRows(void *gpu, unsigned *c, unsigned *u, unsigned *pending, unsigned *failure)
{
    *c = 3;
    *u = *pending = *failure = 0;
    return gpu ? DONE : WRONG;
}

/* The temperature of the memory is that of the GPU + 10. */
int nvmlDeviceGetFieldValues(void *gpu, int count, field *fields)
{
    for (int i = 0; i < count; i++) {
        fields[i].status = fields[i].id == 82 && has_gpm() ? DONE : UNSUPPORTED;
        fields[i].value.u = 50 + index_of(gpu);
    }
    return DONE;
}

int nvmlGpmQueryDeviceSupport(void *gpu, gpm_support *support)
{
    support->supported = has_gpm() && gpu;
    return support->version == 1 ? DONE : WRONG;
}

int nvmlGpmSampleAlloc(gpm_sample **sample)
{
    *sample = calloc(1, sizeof(**sample));
    return *sample ? DONE : WRONG;
}

int nvmlGpmSampleFree(gpm_sample *sample)
{
    free(sample);
    return DONE;
}

int nvmlGpmSampleGet(void *gpu, gpm_sample *sample)
{
    *sample = (gpm_sample){(uintptr_t)gpu, seconds()};
    return DONE;
}

/* Metric k of GPU i is k + i (percent, MiB/s), of two samples of one GPU that are 100 ms apart; 3 it does not tell. */
int nvmlGpmMetricsGet(gpm_metrics *m)
{
    if (m->version != 1 || !m->before->gpu || m->before->gpu != m->now->gpu || m->now->at - m->before->at < 0.1)
        return WRONG;
    for (unsigned i = 0; i < m->count; i++) {
        m->metrics[i].status = m->metrics[i].id == 3 ? UNSUPPORTED : DONE;
        m->metrics[i].value = m->metrics[i].id + (double)(m->now->gpu - 1);
    }
    return DONE;
}
