/*
 * cuda_backend.c - the plug-in yoke-cuda.so: its table and its description. Layer: device/cuda.
 *
 * The object has the CUDA runtime inside (cudart, linked statically) and needs nothing else to be loaded: the driver is
 * looked for when devices are counted, cuBLASLt when a matrix product first wants it.
 */
#include <cuda_runtime_api.h>

#include "device/cuda/cuda.h"
#include "device/table.h"

const yk__base_services *cuda_base;
const yk__device_services *cuda_yoke;

static const yk__backend backend = {
    .name = "cuda",
    .device_count = cuda_device_count,
    .why_none = cuda_why_none,
    .allocate = cuda_allocate,
    .release = cuda_release,
    .upload = cuda_upload,
    .download = cuda_download,
    .synchronize = cuda_synchronize,
    .fill = cuda_fill,
    .copy = cuda_copy,
    .unary = cuda_unary,
    .binary = cuda_binary,
    .where = cuda_where,
};

static const void *start_plugin(const yk__base_services *base, const void *services)
{
    cuda_base = base;
    cuda_yoke = services;
    return &backend;
}

#ifndef YK__CUDA_BUILT_WITH
#error "the Makefile says which CUDA this is built with"
#endif

const yk__plugin yk__plugin_description = {
    .format = YK__PLUGIN_FORMAT,
    .name = "cuda",
    .version = YK_VERSION,
    .interface = YK__DEVICE_PLUGIN_INTERFACE,
    .sizes = YK__DEVICE_PLUGIN_SIZES,
    .built_with = YK__CUDA_BUILT_WITH,
    .start = start_plugin,
};
