/*
 * device_plugin.h - device backends that are shared objects of their own (host/plugin.h), and what of yoke they are
 * given. Layer: device. C and C++.
 */
#ifndef YOKE_DEVICE_DEVICE_PLUGIN_H
#define YOKE_DEVICE_DEVICE_PLUGIN_H

#include "device/kernel_args.h"
#include "host/plugin.h"

typedef struct yk__storage yk__storage;

/* The services of device to a plug-in, beside those of base. The plug-in's `start` gives its yk__backend (table.h). */
typedef struct yk__device_services {
    const char *(*dtype_name)(yk_dtype dtype);
    /* Memory for one call of a slot, from the device's cache: see yk__workspace_get. */
    void *(*workspace_get)(yk_device device, size_t bytes, yk__storage **handle);
    void (*storage_release)(yk__storage *storage);
    void (*empty_cache)(yk_device device); /* yk_device_empty_cache */
    int (*gpus_count)(void);               /* of host/gpus.h: without the driver */
    /* The processes that hold the GPU with this PCI address, and their bytes: host/nvml.h. "" where none is seen. */
    const char *(*gpu_holders)(const char *bus, char *text, size_t size);
    /* The queue that the calling thread is on: see yk__queue_begin. */
    yk__queue (*queue_current)(void);
    /* Refuses, or notes, an operation that a replay could not repeat: see yk__graph_forbid. */
    yk_status (*graph_forbid)(yk_device device, const char *what, const char *instead);
    bool (*deterministic)(void); /* yk_deterministic_algorithms_enabled */
    bool (*benchmark)(void);     /* yk_benchmark_enabled */
} yk__device_services;

#define YK__DEVICE_PLUGIN_INTERFACE "device"
#define YK__DEVICE_PLUGIN_SIZES                                                                                        \
    {                                                                                                                  \
        sizeof(yk__base_services), sizeof(yk__device_services), sizeof(yk__backend), sizeof(yk__view)                  \
    }

#endif
