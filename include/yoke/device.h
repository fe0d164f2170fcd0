/*
 * yoke/device.h - devices: where tensors live and kernels run, and the element types that they know.
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

/* The value of a device in options for "not given". */
#ifdef __cplusplus
#define YK_DEVICE_NOT_GIVEN (yk_device{YK_CPU, -1})
#else
#define YK_DEVICE_NOT_GIVEN ((yk_device){YK_CPU, -1})
#endif

/* True if both have the same type and index. */
static inline bool yk_device_equal(yk_device a, yk_device b)
{
    return a.type == b.type && a.index == b.index;
}

/* Reads "cpu", "cpu:1", "cuda", "cuda:0" into *device; the device must exist. Without a number it is the current device
 * of that type: yk_current_device. */
YK_API yk_status yk_device_parse(const char *text, yk_device *device) YK_MUST_CHECK;

/* Writes "cpu:0" into `buffer` (16 bytes or more) and returns it. */
YK_API const char *yk_device_format(yk_device device, char buffer[16]) YK_QUESTION;

/* The number of devices of a type; 0 for a type that is not built in or has no driver here. */
YK_API int yk_device_count(yk_device_type type) YK_QUESTION;

/*
 * The deterministic mode of the process: while it is on, operations that have several algorithms use only those that
 * give the same bits in every run. A change holds for calls from then on. The mode begins as $YOKE_DETERMINISTIC says
 * (unset, empty or 0: off). On the CPU and by our own kernels for GPUs all are so anyway; what changes are convolutions
 * by cuDNN, and sums over ranks by NCCL, for which all ranks must have the same setting (docs/determinism.md). Nothing
 * that has no such algorithm becomes an error. Source: torch.use_deterministic_algorithms,
 * torch.are_deterministic_algorithms_enabled.
 */
YK_API void yk_use_deterministic_algorithms(bool on);
YK_API bool yk_deterministic_algorithms_enabled(void) YK_QUESTION;
/* The benchmark mode of the process: while it is on, convolutions on GPUs use the plan of cuDNN's that is the fastest
 * in a trial, which each form of convolution has when it first comes from then on; none under deterministic algorithms.
 * The mode begins as $YOKE_BENCHMARK says (1: on). Source: torch.backends.cudnn.benchmark. */
YK_API void yk_use_benchmark(bool on);
YK_API bool yk_benchmark_enabled(void) YK_QUESTION;

/* The device of this process: cuda:LOCAL_RANK, of fewer GPUs than processes LOCAL_RANK modulo their number; cpu:0 where
 * there is none. Launchers' variables that contradict one another are an error (YK_ERR_ARGUMENT, in the record), and
 * cpu:0. */
YK_API yk_device yk_device_local(void);

/*
 * The current device of a type, of the calling thread: the one that "cuda" without a number means, and yk_cuda(x, -1).
 * Number 0 where nothing was set; a new thread begins with 0. Functions whose options name no device use cpu:0 all the
 * same, as in PyTorch. Source: torch.cuda.set_device, torch.cuda.current_device.
 */
YK_API yk_status yk_set_device(yk_device device) YK_MUST_CHECK;
YK_API yk_device yk_current_device(yk_device_type type) YK_QUESTION;
/* Makes a device the current one of its type until the end, which takes what begin returned: the one before. Nests. On
 * an error nothing changes, and the one before is returned. Source: with torch.cuda.device(device). */
YK_API yk_device yk_device_guard_begin(yk_device device);
YK_API void yk_device_guard_end(yk_device previous);

/* Memory in bytes: held by tensors, now and at most; taken from the system by the caching allocator, with free blocks
 * that it keeps for tensors to come, now and at most; and its limit, 0 for none. Memory that several devices share
 * counts where it was allocated. Source: torch.cuda.memory_allocated, max_memory_allocated, memory_reserved,
 * max_memory_reserved. */
typedef struct yk_memory_info {
    size_t allocated, peak_allocated, reserved, peak_reserved, limit;
} yk_memory_info;
YK_API yk_status yk_device_memory(yk_device device, yk_memory_info *info) YK_MUST_CHECK;
/* Sets both peaks to the present values. Source: torch.cuda.reset_peak_memory_stats. */
YK_API void yk_device_reset_peak_memory(yk_device device);
/* The most that the allocator may have from the system, in bytes; 0: no limit but the machine's. Memory that is above
 * it already is kept; the next request that does not fit, after the cache was emptied, is an error (YK_ERR_MEMORY) that
 * says how much the device's tensors hold, which operations made them, and how much the other devices hold. Source:
 * torch.cuda.set_per_process_memory_fraction. */
YK_API yk_status yk_device_set_memory_limit(yk_device device, size_t bytes) YK_MUST_CHECK;

/* Gives cached free blocks back to the system. Source: torch.cuda.empty_cache. */
YK_API void yk_device_empty_cache(yk_device device);

/* Waits until everything queued on the device is done; at once on the CPU. */
YK_API yk_status yk_device_synchronize(yk_device device) YK_MUST_CHECK;

/*
 * ---- a step that is recorded once and replayed --------------------------------------------------------------------
 *
 * A function of fixed shapes whose work on one device is recorded and then put on the device's queue as a whole, which
 * costs the host less than the operations one by one. Each yk_graph_run is one run of the function: the first `warm_up`
 * (0: 3) call it; then one records it, and this one and all later replay what was recorded, with the same bits. Nothing
 * the function does on the host happens in a replay, but for what follows by itself: an optimizer's learning rate (a
 * schedule's, too) and number of steps, random numbers, labels that are checked.
 *
 *  - It reads its input from tensors that stay (yk_copy_ the next batch into them before the run), and holds what it
 *    makes for the caller by a reference of its own: in a replay that tensor gets the new values.
 *  - Gradients are made inside it or stay: begin with yk_optimizer_zero_grad, or end with it.
 *  - Other threads may use the device meanwhile. Work that they put there is no part of the recording, not even where
 *    the function has them do it: it is done at once, and not in a replay. Tensors that the function made while it was
 *    recorded have no values before yk_graph_run returns.
 *
 * A function that cannot be recorded is called in every run: one that waits for the device (yk_item, yk_to a CPU),
 * brings values from the host, or reduces over ranks through the host; all functions on a CPU. The info says why. A
 * parameter or state of an optimizer that was replaced, a parameter of its that was frozen or is trained again, a
 * constant of its that was changed, and yk_manual_seed make it be recorded anew. Source: torch.cuda.graph,
 * torch.cuda.make_graphed_callables.
 */
typedef struct yk_graph yk_graph;
YK_API yk_graph *yk_graph_create(yk_device device, int warm_up, yk_status (*fn)(void *user), void *user);
/* Fails as the function does, or where the device was lost. */
YK_API yk_status yk_graph_run(yk_graph *g) YK_MUST_CHECK;
typedef struct yk_graph_info {
    int64_t calls, replays; /* of yk_graph_run; how many of them replayed */
    const char *why_not;    /* NULL: the next call replays; else why it calls the function. The graph's. */
} yk_graph_info;
YK_API yk_graph_info yk_graph_get_info(const yk_graph *g) YK_QUESTION;
YK_API yk_graph *yk_graph_retain(yk_graph *g);
YK_API void yk_graph_release(yk_graph *g);

/*
 * The number of threads that one operation on this CPU device may use; default: the cores this process may run on
 * (its affinity mask), or OMP_NUM_THREADS, divided by the number of CPU devices, at least 1. Results do not depend
 * on it. `threads` below 1 is an error. Source: torch.set_num_threads.
 */
YK_API yk_status yk_set_num_threads(yk_device device, int threads) YK_MUST_CHECK;
YK_API int yk_get_num_threads(yk_device device) YK_QUESTION;

/* The most dimensions that a tensor can have. */
#define YK_MAX_DIMS 8

/* The element types of tensors. */
typedef enum yk_dtype {
    YK_F32 = 0, /* the default wherever a dtype is zero */
    YK_F64,
    YK_F16,
    YK_BF16,
    YK_I64,
    YK_I32,
    YK_U8,
    YK_BOOL,
    YK__DTYPES
} yk_dtype;
/* The value of a dtype in options for "not given". */
#define YK_DTYPE_NOT_GIVEN ((yk_dtype)15)

YK_API size_t yk_dtype_size(yk_dtype dtype) YK_QUESTION;      /* bytes */
YK_API const char *yk_dtype_name(yk_dtype dtype) YK_QUESTION; /* "float32", as PyTorch prints it; static */
YK_API bool yk_dtype_is_floating(yk_dtype dtype) YK_QUESTION;
/* Reads "f32", "float32", "bf16", "int64", ... */
YK_API yk_status yk_dtype_parse(const char *text, yk_dtype *dtype) YK_MUST_CHECK;
/* The dtype of a result of two, by PyTorch's promotion table for tensors. */
YK_API yk_dtype yk_dtype_promote(yk_dtype a, yk_dtype b) YK_QUESTION;

#ifdef __cplusplus
}
#endif
#endif
