/*
 * comm_plugin.c - the backends of collectives that are plug-ins, and the services that they are given. Layer: comm.
 */
#include <string.h>

#include "comm/comm_plugin.h"

static const yk__comm_services services = {
    .describe = yk__comm_describe,
    .dtype_size = yk_dtype_size,
    .combine = yk__comm_combine,
    .store_set = yk_store_set,
    .store_get = yk_store_get,
    .store_name = yk_store_name,
    .kind_name = yk__comm_kind_name,
    .native = &yk__comm_native,
    .native_agree = yk__native_agree,
    .native_watch = yk__native_watch,
    .native_rank_name = yk__native_describe_rank,
    .workspace_get = yk__workspace_get,
    .storage_release = yk__storage_release,
    .queue_begin = yk__queue_begin,
    .queue_end = yk__queue_end,
};

static const yk__plugin_request requests[] = {
    {
        .name = "mpi",
        .interface = YK__COMM_PLUGIN_INTERFACE,
        .what = "the 'mpi' backend of collectives",
        .sizes = YK__COMM_PLUGIN_SIZES,
        .services = &services,
        .to_build = "it is built and installed with yoke where Open MPI is found (Debian: apt-get install "
                    "libopenmpi-dev openmpi-bin, then make)",
        .to_load = "Debian: apt-get install libopenmpi3 openmpi-bin",
        .global_symbols = true, /* Open MPI's own plug-ins look for its symbols among the global ones */
    },
    {
        .name = "ucx",
        .interface = YK__COMM_PLUGIN_INTERFACE,
        .what = "the 'ucx' backend of collectives",
        .sizes = YK__COMM_PLUGIN_SIZES,
        .services = &services,
        .to_build = "it is built and installed with yoke where UCX and its headers are found (Debian: apt-get install "
                    "libucx-dev, then make)",
        .to_load = "Debian: apt-get install libucx0",
    },
    {
        .name = "nccl",
        .interface = YK__COMM_PLUGIN_INTERFACE,
        .what = "the 'nccl' backend of collectives",
        .sizes = YK__COMM_PLUGIN_SIZES,
        .services = &services,
        .to_build = "it is built and installed with yoke where the CUDA toolkit and nccl.h are found (make "
                    "CUDA_HOME=...)",
        .to_load = "it needs the C library alone: build it on this system, or on an older one",
    },
};

const yk__plugin_request *yk__comm_plugin_request(const char *name)
{
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        if (strcmp(requests[i].name, name) == 0)
            return &requests[i];
    }
    return NULL;
}

const yk__comm_backend *yk__comm_plugin(const char *name)
{
    return yk__plugin_load(yk__comm_plugin_request(name));
}
