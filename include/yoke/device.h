/*
 * yoke/device.h - devices: where tensors live and kernels run.
 *
 * Layer: device. Logical devices are real to everything above: YOKE_CPU_DEVICES=4 makes cpu:0 to cpu:3, each with
 * its share of the cores and its own memory accounting.
 */
#ifndef YOKE_DEVICE_H
#define YOKE_DEVICE_H

#include <yoke/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum yk_device_type { YK_CPU = 0, YK_CUDA = 1, YK__DEVICE_TYPES } yk_device_type;

/* A small value, compared member by member. The zero value is cpu:0. */
typedef struct yk_device {
    int16_t type;  /* a yk_device_type */
    int16_t index; /* from 0 */
} yk_device;

static inline bool yk_device_equal(yk_device a, yk_device b)
{
    return a.type == b.type && a.index == b.index;
}

/* Reads "cpu", "cpu:1", "cuda", "cuda:0" into *device; the device must exist. */
YK_API yk_status yk_device_parse(const char *text, yk_device *device) YK_MUST_CHECK;

/* Writes "cpu:0" into `buffer` (16 bytes or more) and returns it. */
YK_API const char *yk_device_format(yk_device device, char buffer[16]);

/* How many devices of a type there are; 0 for a type that is not built in or has no driver here. */
YK_API int yk_device_count(yk_device_type type);

/* The device of this process: cuda:LOCAL_RANK where there is one, else cpu:0. */
YK_API yk_device yk_device_local(void);

/* Memory in bytes: what tensors hold now, the most they have held, and what the caching allocator has from the
 * system. Source: torch.cuda.memory_allocated and its kin. */
typedef struct yk_memory_info {
    size_t allocated, peak_allocated, reserved;
} yk_memory_info;
YK_API yk_status yk_device_memory(yk_device device, yk_memory_info *info) YK_MUST_CHECK;
YK_API void yk_device_reset_peak_memory(yk_device device);

/* Gives cached free blocks back to the system. Source: torch.cuda.empty_cache. */
YK_API void yk_device_empty_cache(yk_device device);

/* Waits until everything queued on the device is done; at once on the CPU. */
YK_API yk_status yk_device_synchronize(yk_device device) YK_MUST_CHECK;

/*
 * The number of threads that one operation on this CPU device may use; default: the cores this process may run on
 * (its affinity mask), or OMP_NUM_THREADS, divided by the number of CPU devices, at least 1. Results do not depend
 * on it. `threads` below 1 is an error. Source: torch.set_num_threads.
 */
YK_API yk_status yk_set_num_threads(yk_device device, int threads) YK_MUST_CHECK;
YK_API int yk_get_num_threads(yk_device device);

#ifdef __cplusplus
}
#endif
#endif
