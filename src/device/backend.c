/*
 * backend.c - the list of backends, and devices by name. Layer: device.
 *
 * The CPU's is built into the library; one that brings heavy libraries is a plug-in, loaded at first use. Questions
 * (how many devices, how many threads) load it too, and leave the error record alone.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "device/backend.h"
#include "device/graph.h"
#include "host/gpus.h"
#include "host/nvml.h"
#include "host/rank_info.h"

static const yk__device_services services = {
    .dtype_name = yk_dtype_name,
    .workspace_get = yk__workspace_get,
    .storage_release = yk__storage_release,
    .empty_cache = yk_device_empty_cache,
    .gpus_count = yk__gpus_count,
    .gpu_holders = yk__gpu_holders_of,
    .queue_current = yk__queue_current,
    .graph_forbid = yk__graph_forbid,
    .deterministic = yk_deterministic_algorithms_enabled,
    .benchmark = yk_benchmark_enabled,
};

static const yk__plugin_request cuda_request = {
    .name = "cuda",
    .interface = YK__DEVICE_PLUGIN_INTERFACE,
    .what = "the 'cuda' device backend",
    .sizes = YK__DEVICE_PLUGIN_SIZES,
    .services = &services,
    .to_build = "it is built and installed with yoke where the CUDA toolkit 12 or 13 is found (make CUDA_HOME=...)",
    .to_load = "it needs the C library alone: build it on this system, or on an older one",
};

const yk__plugin_request *yk__cuda_plugin_request(void)
{
    return &cuda_request;
}

/* The numbers of this thread's current devices. */
static _Thread_local int16_t current[YK__DEVICE_TYPES];

_Atomic(const yk__backend *) yk__backends[YK__DEVICE_TYPES];

/* The backend of a type, loaded if need be; NULL with the error record set. */
static const yk__backend *backend_find(yk_device_type type)
{
    if ((unsigned)type >= YK__DEVICE_TYPES)
        return NULL;
    const yk__backend *backend = atomic_load_explicit(&yk__backends[type], memory_order_acquire);
    if (!backend) {
        backend = type == YK_CPU ? yk__cpu_backend() : yk__plugin_load(&cuda_request);
        atomic_store_explicit(&yk__backends[type], backend, memory_order_release);
    }
    return backend;
}

static const yk__backend *find_quietly(yk_device_type type)
{
    yk_error before;
    yk__error_take(&before);
    const yk__backend *backend = backend_find(type);
    if (!backend)
        yk_clear_error();
    yk__error_put(&before);
    return backend;
}

static const char *type_name(int type)
{
    return type == YK_CPU ? "cpu" : type == YK_CUDA ? "cuda" : "unknown";
}

const yk__backend *yk__backend_load(yk_device device)
{
    const yk__backend *backend = backend_find((yk_device_type)device.type);
    if (!backend && !yk__error_code())
        yk__fail(YK_ERR_UNSUPPORTED, "device %s:%d: there is no such type of device", type_name(device.type),
                 device.index);
    return backend;
}

int yk_device_count(yk_device_type type)
{
    const yk__backend *backend = find_quietly(type);
    return backend ? backend->device_count() : 0;
}

/* " (CUDA_VISIBLE_DEVICES=0 and ...)": the variables that change the number of GPUs, as far as they are set, with their
 * values. */
static void describe_variables(char *text, size_t size)
{
    static const char *const names[] = {"CUDA_VISIBLE_DEVICES", "YOKE_CUDA_DEVICES_PER_GPU"};
    size_t at = 0;
    text[0] = 0;
    for (int i = 0; i < 2; i++) {
        char value[100];
        const char *set = getenv(names[i]);
        if (set)
            at += (size_t)snprintf(text + at, size - at, "%s%s=%s", at ? " and " : " (", names[i],
                                   yk__escape(set, strlen(set), value, sizeof(value)));
    }
    if (at)
        snprintf(text + at, size - at, ")");
}

yk_status yk__device_check(yk_device device)
{
    const yk__backend *backend = yk__backend_of(device);
    if (!backend)
        return yk__error_code();
    int count = backend->device_count();
    if (device.index >= 0 && device.index < count)
        return YK_OK;
    if (count == 0 && backend->why_none)
        return yk__fail(YK_ERR_DEVICE, "device %s:%d: %s", type_name(device.type), device.index, backend->why_none());
    char why[400] = " (YOKE_CPU_DEVICES sets how many)";
    if (device.type == YK_CUDA)
        describe_variables(why, sizeof(why));
    return yk__fail(YK_ERR_DEVICE, "device %s:%d does not exist: there %s %d %s device%s%s", type_name(device.type),
                    device.index, count == 1 ? "is" : "are", count, type_name(device.type), count == 1 ? "" : "s", why);
}

yk_status yk__slot_missing(yk_device device, const char *slot)
{
    return yk__fail(YK_ERR_UNSUPPORTED, "%s is not implemented for device %s:%d", slot, type_name(device.type),
                    device.index);
}

yk_status yk_device_parse(const char *text, yk_device *device)
{
    if (!yk__is_there("device_parse", "result", device))
        return YK_ERR_ARGUMENT;
    *device = (yk_device){0};
    if (!text)
        return yk__fail(YK_ERR_ARGUMENT, "device: the name is NULL");
    size_t length = strcspn(text, ":");
    int type = -1;
    char shown[100];
    yk__escape(text, strlen(text), shown, sizeof(shown));
    for (int candidate = 0; candidate < YK__DEVICE_TYPES; candidate++) {
        if (strlen(type_name(candidate)) == length && memcmp(text, type_name(candidate), length) == 0)
            type = candidate;
    }
    if (type < 0 || (text[length] && !text[length + 1]))
        return yk__fail(YK_ERR_ARGUMENT, "device '%s': expected cpu, cpu:N, cuda or cuda:N", shown);
    long index = current[type];
    if (text[length]) {
        char *end;
        index = strtol(text + length + 1, &end, 10);
        bool digit = text[length + 1] >= '0' && text[length + 1] <= '9'; /* strtol also takes spaces and signs */
        if (!digit || *end || index < 0 || index > INT16_MAX)
            return yk__fail(YK_ERR_ARGUMENT, "device '%s': '%s' is not a device number", shown, shown + length + 1);
    }
    *device = (yk_device){(int16_t)type, (int16_t)index};
    return yk__device_check(*device);
}

yk_status yk_set_device(yk_device device)
{
    yk_status status = yk__device_check(device);
    if (!status)
        current[device.type] = device.index;
    return status;
}

yk_device yk_current_device(yk_device_type type)
{
    return (unsigned)type < YK__DEVICE_TYPES ? (yk_device){(int16_t)type, current[type]}
                                             : (yk_device){(int16_t)type, 0};
}

yk_device yk_device_guard_begin(yk_device device)
{
    yk_device previous = yk_current_device((yk_device_type)device.type);
    if (!yk__device_check(device))
        current[device.type] = device.index;
    return previous;
}

void yk_device_guard_end(yk_device previous)
{
    if (!yk__device_check(previous))
        current[previous.type] = previous.index;
}

const char *yk_device_format(yk_device device, char buffer[16])
{
    snprintf(buffer, 16, "%s:%d", type_name(device.type), device.index);
    return buffer;
}

yk_device yk_device_local(void)
{
    yk__rank_info info;
    int gpus = yk_device_count(YK_CUDA);
    if (yk__rank_info_read(&info) || gpus == 0)
        return (yk_device){YK_CPU, 0};
    return (yk_device){YK_CUDA, (int16_t)(info.local_rank % gpus)};
}

yk_status yk_device_synchronize(yk_device device)
{
    yk_status status = yk__device_check(device);
    yk__operation_name = "device_synchronize";
    return status ? status : yk__backend_of(device)->synchronize(device.index);
}

yk_status yk_set_num_threads(yk_device device, int threads)
{
    yk_status status = yk__device_check(device);
    if (status)
        return status;
    const yk__backend *backend = yk__backend_of(device);
    if (threads < 1)
        return yk__fail(YK_ERR_ARGUMENT, "set_num_threads: %d is not a number of threads", threads);
    if (!backend->set_threads)
        return yk__fail(YK_ERR_UNSUPPORTED, "set_num_threads: %s:%d does not compute with threads of the host's",
                        type_name(device.type), device.index);
    return backend->set_threads(device.index, threads);
}

int yk_get_num_threads(yk_device device)
{
    const yk__backend *backend = find_quietly((yk_device_type)device.type);
    if (!backend || !backend->get_threads || device.index < 0 || device.index >= backend->device_count())
        return 1;
    return backend->get_threads(device.index);
}
