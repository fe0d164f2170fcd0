/*
 * gpu_sample.h - what NVML tells of each GPU at a moment. Layer: observe.
 */
#ifndef YOKE_OBSERVE_GPU_SAMPLE_H
#define YOKE_OBSERVE_GPU_SAMPLE_H

#include "base/core.h"
#include "host/nvml.h"

/* Units are those of DCGM's fields, whose names they have (dcgm_fields.c). */
typedef enum yk__gpu_value {
    YK__GPU_SM_CLOCK,
    YK__GPU_MEM_CLOCK,
    YK__GPU_MEMORY_TEMP,
    YK__GPU_TEMP,
    YK__GPU_POWER_USAGE,
    YK__GPU_ENERGY,
    YK__GPU_PCIE_REPLAYS,
    YK__GPU_UTIL,
    YK__GPU_MEM_COPY_UTIL,
    YK__GPU_ENC_UTIL,
    YK__GPU_DEC_UTIL,
    YK__GPU_FB_FREE,
    YK__GPU_FB_USED,
    YK__GPU_FB_RESERVED,
    YK__GPU_UNCORRECTABLE_ROWS,
    YK__GPU_CORRECTABLE_ROWS,
    YK__GPU_ROW_REMAP_FAILURE,
    YK__GPU_GR_ENGINE_ACTIVE, /* from here on by GPM, over the time since the sample before */
    YK__GPU_SM_ACTIVE,
    YK__GPU_SM_OCCUPANCY,
    YK__GPU_TENSOR_ACTIVE,
    YK__GPU_DRAM_ACTIVE,
    YK__GPU_PCIE_TX_BYTES,
    YK__GPU_PCIE_RX_BYTES,
    YK__GPU_VALUES
} yk__gpu_value;

typedef struct yk__gpu_sample {
    char uuid[96], bus[32];        /* "" where they are not told */
    double values[YK__GPU_VALUES]; /* NAN where it is not told: never a 0 in its place */
    bool known;                    /* `gpu` is filled */
    yk__gpu gpu;
} yk__gpu_sample;

typedef struct yk__gpu_sampler yk__gpu_sampler;
/* NULL and an error without memory; a machine without NVML has no GPUs. */
yk__gpu_sampler *yk__gpu_sampler_create(void);
void yk__gpu_sampler_free(yk__gpu_sampler *sampler);
/* The number of GPUs, -1 without NVML, and the driver's version. */
int yk__gpu_sampler_count(const yk__gpu_sampler *sampler, const char **driver);
/* True where a GPU tells what its parts are busy with (GPM; Hopper and later). */
bool yk__gpu_sampler_has_gpm(const yk__gpu_sampler *sampler);
/* Fills a sample for each. */
void yk__gpu_sampler_take(yk__gpu_sampler *sampler, yk__gpu_sample *samples);

#endif
