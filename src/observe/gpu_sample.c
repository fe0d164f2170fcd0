/*
 * gpu_sample.c - what NVML tells of each GPU at a moment. Layer: observe.
 *
 * Its types are numbers, texts and opaque pointers, declared here as nvml.h has them, since the header comes with the
 * toolkit and the library with the driver. A function that an older driver lacks, or that a GPU does not support,
 * leaves its value NAN.
 *
 * What the parts of a GPU are busy with (GPM) is told of the time between two samples that the driver makes: the newer
 * one is kept for the next time. They have to be GPM_LEAST apart; what is asked for sooner is answered as before.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "observe/gpu_sample.h"

/* The least that NVIDIA gives for the time between two samples of GPM. */
static const double GPM_LEAST = 0.1;
enum { MOST_GPUS = 64 };
/* Numbers of nvml.h: clocks, the sensor, fields, and the metrics of GPM. */
enum { CLOCK_SM = 1, CLOCK_MEM = 2, SENSOR_GPU = 0, FIELD_MEMORY_TEMP = 82 };
enum { GPM_VERSION = 1, GPM_METRICS = YK__GPU_VALUES - YK__GPU_GR_ENGINE_ACTIVE };

typedef struct nvml_memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvml_memory_v2;
typedef struct nvml_utilization {
    unsigned gpu, memory;
} nvml_utilization;
typedef struct nvml_pci {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
} nvml_pci;
typedef struct nvml_field {
    unsigned id, scope;
    long long timestamp, latency;
    int type, status;
    union {
        double d;
        unsigned u;
        unsigned long l;
        unsigned long long ll;
        long long sll;
    } value;
} nvml_field;
typedef struct nvml_gpm_support {
    unsigned version, supported;
} nvml_gpm_support;
typedef struct nvml_gpm_metric {
    unsigned id;
    int status;
    double value;
    const char *name[3]; /* short, long, unit */
} nvml_gpm_metric;
/* nvml.h has room for every metric there is; `count` says how many are read. */
typedef struct nvml_gpm_metrics {
    unsigned version, count;
    void *before, *now;
    nvml_gpm_metric metrics[GPM_METRICS];
} nvml_gpm_metrics;

/* NULL where the driver has no such function. */
static struct {
    int (*handle)(unsigned index, void **gpu);
    int (*uuid)(void *gpu, char *text, unsigned size);
    int (*pci)(void *gpu, nvml_pci *pci);
    int (*clock)(void *gpu, int kind, unsigned *mhz);
    int (*temperature)(void *gpu, int sensor, unsigned *degrees);
    int (*power)(void *gpu, unsigned *milliwatts);
    int (*energy)(void *gpu, unsigned long long *millijoules);
    int (*replays)(void *gpu, unsigned *count);
    int (*utilization)(void *gpu, nvml_utilization *percent);
    int (*encoder)(void *gpu, unsigned *percent, unsigned *period);
    int (*decoder)(void *gpu, unsigned *percent, unsigned *period);
    int (*memory)(void *gpu, nvml_memory_v2 *memory);
    int (*rows)(void *gpu, unsigned *correctable, unsigned *uncorrectable, unsigned *pending, unsigned *failure);
    int (*fields)(void *gpu, int count, nvml_field *fields);
    int (*gpm_support)(void *gpu, nvml_gpm_support *support);
    int (*gpm_alloc)(void **sample);
    int (*gpm_free)(void *sample);
    int (*gpm_sample)(void *gpu, void *sample);
    int (*gpm_metrics)(nvml_gpm_metrics *metrics);
} nvml;

static void load_functions(void)
{
    static const char *const names[] = {
        "nvmlDeviceGetHandleByIndex_v2",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetPciInfo_v3",
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetTemperature",
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetTotalEnergyConsumption",
        "nvmlDeviceGetPcieReplayCounter",
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetEncoderUtilization",
        "nvmlDeviceGetDecoderUtilization",
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetRemappedRows",
        "nvmlDeviceGetFieldValues",
        "nvmlGpmQueryDeviceSupport",
        "nvmlGpmSampleAlloc",
        "nvmlGpmSampleFree",
        "nvmlGpmSampleGet",
        "nvmlGpmMetricsGet",
    };
    void *symbols[sizeof(names) / sizeof(*names)];
    _Static_assert(sizeof(symbols) == sizeof(nvml), "one function for each name");
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        symbols[i] = yk__nvml_function(names[i]);
    memcpy(&nvml, symbols, sizeof(symbols)); /* functions' addresses, which dlsym gives as objects' */
}

/* The metrics of GPM in the order of yk__gpu_value: their numbers, and what a unit of theirs is in DCGM's. */
static const struct {
    unsigned id;
    double scale;
} gpm_metrics[GPM_METRICS] = {
    {1, 0.01},     /* graphics engine, percent */
    {2, 0.01},     /* SMs */
    {3, 0.01},     /* warps of the SMs */
    {5, 0.01},     /* any tensor pipe */
    {10, 0.01},    /* memory bandwidth */
    {20, 1 << 20}, /* MiB/s sent over PCIe */
    {21, 1 << 20}, /* and received */
};

typedef struct gpm_state {
    bool supported;
    void *samples[2]; /* [newest] was taken at `at` */
    int newest;
    double at; /* 0: never */
    double values[GPM_METRICS];
} gpm_state;

struct yk__gpu_sampler {
    int count;
    char driver[80];
    gpm_state gpm[MOST_GPUS];
};

static void *handle_of(int index)
{
    void *handle = NULL;
    return nvml.handle && nvml.handle((unsigned)index, &handle) == 0 ? handle : NULL;
}

/* ---- GPM --------------------------------------------------------------------------------------------------------- */
static bool gpm_sample(gpm_state *g, void *handle)
{
    int next = g->at > 0 ? 1 - g->newest : g->newest;
    if (nvml.gpm_sample(handle, g->samples[next]))
        return false;
    g->newest = next;
    g->at = yk__now();
    return true;
}

static void gpm_clear(gpm_state *g)
{
    for (int i = 0; i < GPM_METRICS; i++)
        g->values[i] = NAN;
}

static void gpm_begin(gpm_state *g, int index)
{
    nvml_gpm_support support = {.version = GPM_VERSION};
    void *handle = handle_of(index);
    gpm_clear(g);
    if (!handle || !nvml.gpm_support || !nvml.gpm_alloc || !nvml.gpm_free || !nvml.gpm_sample || !nvml.gpm_metrics ||
        nvml.gpm_support(handle, &support) || !support.supported)
        return;
    if (nvml.gpm_alloc(&g->samples[0]) || nvml.gpm_alloc(&g->samples[1]))
        return;
    g->supported = true;
    gpm_sample(g, handle);
}

static void gpm_end(gpm_state *g)
{
    for (int i = 0; i < 2; i++) {
        if (g->samples[i])
            nvml.gpm_free(g->samples[i]);
    }
}

static void gpm_take(gpm_state *g, void *handle, double values[GPM_METRICS])
{
    if (g->supported && (g->at <= 0 || yk__now() - g->at >= GPM_LEAST)) {
        bool first = g->at <= 0, taken = gpm_sample(g, handle);
        nvml_gpm_metrics m = {.version = GPM_VERSION, .count = GPM_METRICS};
        gpm_clear(g);
        m.before = g->samples[1 - g->newest];
        m.now = g->samples[g->newest];
        for (int i = 0; i < GPM_METRICS; i++)
            m.metrics[i].id = gpm_metrics[i].id;
        bool answered = taken && !first && nvml.gpm_metrics(&m) == 0;
        for (int i = 0; i < GPM_METRICS && answered; i++)
            g->values[i] = m.metrics[i].status == 0 ? m.metrics[i].value * gpm_metrics[i].scale : NAN;
    }
    memcpy(values, g->values, sizeof(g->values));
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */
/* An older driver counts what it keeps for itself as used. */
static void take_memory(void *handle, const yk__gpu *gpu, double *values)
{
    static const double mib = 1 << 20;
    nvml_memory_v2 memory = {.version = sizeof(memory) | 2u << 24};
    if (!nvml.memory || nvml.memory(handle, &memory)) {
        values[YK__GPU_FB_FREE] = gpu->total > 0 ? floor((gpu->total - gpu->used) / mib) : NAN;
        values[YK__GPU_FB_USED] = gpu->total > 0 ? floor(gpu->used / mib) : NAN;
        return;
    }
    values[YK__GPU_FB_FREE] = floor((double)memory.free / mib);
    values[YK__GPU_FB_USED] = floor((double)memory.used / mib);
    values[YK__GPU_FB_RESERVED] = floor((double)memory.reserved / mib);
}

static void take_values(void *handle, double *values)
{
    unsigned number, period, correctable, uncorrectable, pending, failure;
    unsigned long long large;
    nvml_utilization utilization;
    nvml_field field = {.id = FIELD_MEMORY_TEMP};
    if (nvml.clock && nvml.clock(handle, CLOCK_SM, &number) == 0)
        values[YK__GPU_SM_CLOCK] = number;
    if (nvml.clock && nvml.clock(handle, CLOCK_MEM, &number) == 0)
        values[YK__GPU_MEM_CLOCK] = number;
    if (nvml.fields && nvml.fields(handle, 1, &field) == 0 && field.status == 0)
        values[YK__GPU_MEMORY_TEMP] = field.value.u;
    if (nvml.temperature && nvml.temperature(handle, SENSOR_GPU, &number) == 0)
        values[YK__GPU_TEMP] = number;
    if (nvml.power && nvml.power(handle, &number) == 0)
        values[YK__GPU_POWER_USAGE] = number / 1000.0;
    if (nvml.energy && nvml.energy(handle, &large) == 0)
        values[YK__GPU_ENERGY] = (double)large;
    if (nvml.replays && nvml.replays(handle, &number) == 0)
        values[YK__GPU_PCIE_REPLAYS] = number;
    if (nvml.utilization && nvml.utilization(handle, &utilization) == 0) {
        values[YK__GPU_UTIL] = utilization.gpu;
        values[YK__GPU_MEM_COPY_UTIL] = utilization.memory;
    }
    if (nvml.encoder && nvml.encoder(handle, &number, &period) == 0)
        values[YK__GPU_ENC_UTIL] = number;
    if (nvml.decoder && nvml.decoder(handle, &number, &period) == 0)
        values[YK__GPU_DEC_UTIL] = number;
    if (nvml.rows && nvml.rows(handle, &correctable, &uncorrectable, &pending, &failure) == 0) {
        values[YK__GPU_CORRECTABLE_ROWS] = correctable;
        values[YK__GPU_UNCORRECTABLE_ROWS] = uncorrectable;
        values[YK__GPU_ROW_REMAP_FAILURE] = failure;
    }
}

static void take_gpu(gpm_state *gpm, int index, yk__gpu_sample *sample)
{
    nvml_pci pci;
    void *handle = handle_of(index);
    *sample = (yk__gpu_sample){0};
    for (int i = 0; i < YK__GPU_VALUES; i++)
        sample->values[i] = NAN;
    if (!handle)
        return;
    sample->known = yk__nvml_gpu(index, NULL, &sample->gpu);
    if (!nvml.uuid || nvml.uuid(handle, sample->uuid, sizeof(sample->uuid)))
        sample->uuid[0] = '\0';
    if (nvml.pci && nvml.pci(handle, &pci) == 0)
        snprintf(sample->bus, sizeof(sample->bus), "%.*s", (int)sizeof(pci.id), pci.id);
    take_values(handle, sample->values);
    take_memory(handle, &sample->gpu, sample->values);
    gpm_take(gpm, handle, sample->values + YK__GPU_GR_ENGINE_ACTIVE);
}

/* ---- the sampler ------------------------------------------------------------------------------------------------- */
yk__gpu_sampler *yk__gpu_sampler_create(void)
{
    yk__gpu_sampler *s = yk__calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->count = yk__nvml_count(s->driver);
    s->count = s->count < MOST_GPUS ? s->count : MOST_GPUS;
    if (s->count >= 0)
        load_functions();
    for (int i = 0; i < s->count; i++)
        gpm_begin(&s->gpm[i], i);
    return s;
}

void yk__gpu_sampler_free(yk__gpu_sampler *s)
{
    for (int i = 0; s && i < s->count; i++)
        gpm_end(&s->gpm[i]);
    free(s);
}

int yk__gpu_sampler_count(const yk__gpu_sampler *s, const char **driver)
{
    *driver = s->driver;
    return s->count;
}

bool yk__gpu_sampler_has_gpm(const yk__gpu_sampler *s)
{
    bool any = false;
    for (int i = 0; i < s->count; i++)
        any |= s->gpm[i].supported;
    return any;
}

void yk__gpu_sampler_take(yk__gpu_sampler *s, yk__gpu_sample *samples)
{
    for (int i = 0; i < s->count; i++)
        take_gpu(&s->gpm[i], i, &samples[i]);
}
