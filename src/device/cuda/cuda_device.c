/*
 * cuda_device.c - GPUs as logical devices, each with streams of its own. Layer: device/cuda.
 *
 * YOKE_CUDA_DEVICES_PER_GPU splits each GPU into so many devices, so that programs for several run where there is one:
 * device i is a share of GPU i / that number. Counting does not start the driver where the system's files tell the
 * number (host/gpus.h); cuda_use does, and makes a context on the device's GPU alone. The process that started the
 * driver is kept: CUDA does not survive a fork, and a child of it that uses CUDA gets that error.
 *
 * Note [The thread's GPU]
 * Which GPU a thread's calls go to is kept by the driver, for every library in the process: each may change it between
 * two of our calls, to another GPU or to a context of its own on the same one. So it is looked at before each
 * operation. The driver's answer is read from the thread's memory, and set where it is not the GPU's primary context,
 * which is the one that cudaSetDevice takes; without that function it is set each time.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "device/cuda/checks.h"
#include "device/cuda/cuda.h"
#include "device/cuda/nccl_access.h"

/* The most devices, as in the tables of every device type (device/memory/cache.c). */
enum { MOST_DEVICES = 64 };

static struct {
    int count, per_gpu;
    _Atomic pid_t process; /* that started the driver; 0: none yet */
    atomic_bool forked;    /* from it: this is another */
    CUresult (*context_get)(CUcontext *context);
    _Atomic(CUcontext) contexts[MOST_DEVICES]; /* by GPU: the primary one, where it is known */
    char why_none[600];
    struct {
        pthread_mutex_t lock;
        /* The streams by queue; the first is NULL until the device is used, the others until they are. */
        _Atomic(cudaStream_t) streams[YK__QUEUES];
        _Atomic(cudaStream_t) recorded[YK__QUEUES]; /* of the thread that records; NULL until one does */
        int processors;
        struct cuda_record *record;   /* in the device's memory */
        struct cuda_record *received; /* pinned: where it is brought */
        atomic_bool checks;           /* queued since the record was last read */
        pthread_mutex_t note_lock;
        yk_error noted; /* yk__cuda_note_failure's */
        atomic_bool has_noted;
    } devices[MOST_DEVICES];
} cuda;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local int recording = -1; /* the device that this thread records on */

/* "13.0" of 13000 */
static const char *version_text(int version, char text[16])
{
    snprintf(text, 16, "%d.%d", version / 1000, version / 10 % 100);
    return text;
}

/* Fails where a variable that must be 0 or 1 is something else, before it counts: YOKE_CUDA_TF32=on would be off
 * without a word. */
static yk_status check_switches(void)
{
    static const char *const switches[] = {"YOKE_CUDA_LIBRARIES", "YOKE_CUDA_FUSED_ATTENTION",
                                           "YOKE_CUDA_TF32",      "YOKE_CUDA_SYNCHRONOUS",
                                           "YOKE_BENCHMARK",      "YOKE_DETERMINISTIC"};
    int64_t ignored;
    yk_status status = YK_OK;
    for (size_t i = 0; i < sizeof(switches) / sizeof(switches[0]) && !status; i++)
        status = cuda_base->env_int(switches[i], 0, 0, 1, &ignored);
    return status;
}

/* Runs in the child of a fork. */
static void note_fork(void)
{
    atomic_store(&cuda.forked, atomic_load(&cuda.process) != 0);
}

/* *version becomes that of the CUDA that the driver serves, 0 without one. It is the driver that is asked: the
 * runtime's function for that may start it (its comment in cuda_runtime_api.h), and a process that forks must not have.
 */
static void open_driver(int *version)
{
    CUresult (*get_version)(int *version) = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL); /* as the runtime opens it */
    *version = 0;
    if (!library)
        return;
    *(void **)&get_version = dlsym(library, "cuDriverGetVersion");
    *(void **)&cuda.context_get = dlsym(library, "cuCtxGetCurrent");
    if (!get_version || get_version(version))
        *version = 0;
}

static void count_devices(void)
{
    int driver = 0, runtime = 0, gpus = 0;
    int64_t per_gpu = 1;
    char a[16], b[16];
    yk_error before, error;
    for (int i = 0; i < MOST_DEVICES; i++)
        pthread_mutex_init(&cuda.devices[i].lock, NULL), pthread_mutex_init(&cuda.devices[i].note_lock, NULL);
    cuda_base->error_take(&before);
    yk_status status = cuda_base->env_int("YOKE_CUDA_DEVICES_PER_GPU", 1, 1, MOST_DEVICES, &per_gpu);
    if (!status)
        status = check_switches();
    cuda_base->error_take(&error);
    cuda_base->error_put(&before);
    if (status) {
        snprintf(cuda.why_none, sizeof(cuda.why_none), "%.500s", error.message);
        return;
    }
    cudaRuntimeGetVersion(&runtime);
    open_driver(&driver);
    if (driver == 0) {
        snprintf(cuda.why_none, sizeof(cuda.why_none),
                 "there is no NVIDIA driver here (libcuda.so.1 cannot be loaded): install the driver, or, in a "
                 "container, start it with the host's GPUs");
        return;
    }
    pthread_atfork(NULL, NULL, note_fork);
    cudaError_t code = cudaSuccess;
    gpus = driver / 1000 >= runtime / 1000 ? cuda_yoke->gpus_count() : -1;
    if (gpus <= 0) { /* "none", too: a container may show CUDA what it does not show in files */
        atomic_store(&cuda.process, getpid());
        code = cudaGetDeviceCount(&gpus);
    }
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (code == cudaErrorInsufficientDriver)
        snprintf(cuda.why_none, sizeof(cuda.why_none),
                 "the NVIDIA driver here serves CUDA %s, and yoke was built with CUDA %s: install a later driver, or "
                 "build yoke with CUDA %s or earlier",
                 version_text(driver, a), version_text(runtime, b), a);
    else if (code == cudaErrorNoDevice || (!code && gpus == 0))
        snprintf(cuda.why_none, sizeof(cuda.why_none), "the NVIDIA driver (CUDA %s) is here, and sees no GPU%s%.100s",
                 version_text(driver, a), visible ? ": CUDA_VISIBLE_DEVICES=" : "", visible ? visible : "");
    else if (code)
        snprintf(cuda.why_none, sizeof(cuda.why_none), "the NVIDIA driver (CUDA %s) cannot count its GPUs: %s (%s)",
                 version_text(driver, a), cudaGetErrorString(code), cudaGetErrorName(code));
    if (code) {
        cudaGetLastError();
        return;
    }
    cuda.per_gpu = (int)per_gpu;
    cuda.count = gpus * cuda.per_gpu < MOST_DEVICES ? gpus * cuda.per_gpu : MOST_DEVICES;
}

int cuda_device_count(void)
{
    pthread_once(&once, count_devices);
    return cuda.count;
}

const char *cuda_why_none(void)
{
    pthread_once(&once, count_devices);
    return cuda.why_none;
}

int cuda_gpu_of(int device)
{
    return device / cuda.per_gpu;
}

int cuda_processors(int device)
{
    return cuda.devices[device].processors;
}

struct cuda_record *cuda_record_of(int device)
{
    return cuda.devices[device].record;
}

void cuda_checks_queued(int device)
{
    atomic_store(&cuda.devices[device].checks, true);
}

static yk_status device_start(int device)
{
    cudaStream_t stream = NULL;
    void *record = NULL, *received = NULL;
    int processors = 0, gpu = cuda_gpu_of(device);
    const char *call = "cudaDeviceGetAttribute";
    cudaError_t code = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, gpu);
    if (!code) {
        call = "cudaStreamCreateWithFlags";
        code = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    }
    if (!code) {
        call = "cudaMalloc";
        code = cudaMalloc(&record, sizeof(struct cuda_record));
    }
    if (!code) {
        call = "cudaHostAlloc";
        code = cudaHostAlloc(&received, sizeof(struct cuda_record), cudaHostAllocDefault);
    }
    if (!code) {
        call = "cudaMemsetAsync";
        code = cudaMemsetAsync(record, 0, sizeof(struct cuda_record), stream);
    }
    if (code) { /* the next operation tries again, which would take them once more */
        if (received)
            cudaFreeHost(received);
        if (record)
            cudaFree(record);
        if (stream)
            cudaStreamDestroy(stream);
        return cuda_failed(device, code, call);
    }
    cuda.devices[device].record = record;
    cuda.devices[device].received = received;
    cuda.devices[device].processors = processors;
    atomic_store_explicit(&cuda.devices[device].streams[YK__QUEUE_COMPUTE], stream, memory_order_release);
    return YK_OK;
}

/* A stream beside the first. Not in the capture of a graph that is under way: it is made in the mode that allows it. */
static yk_status make_stream(int device, _Atomic(cudaStream_t) *made)
{
    cudaStream_t stream = NULL;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    cudaError_t code = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaThreadExchangeStreamCaptureMode(&mode);
    if (code)
        return cuda_failed(device, code, "cudaStreamCreateWithFlags");
    atomic_store_explicit(made, stream, memory_order_release);
    return YK_OK;
}

void cuda_record_on(int device)
{
    recording = device;
}

int cuda_recorded(void)
{
    return recording;
}

cuda_outside cuda_outside_begin(void)
{
    cuda_outside before = {recording, cudaStreamCaptureModeRelaxed};
    recording = -1;
    if (before.recorded >= 0)
        cudaThreadExchangeStreamCaptureMode(&before.mode);
    return before;
}

void cuda_outside_end(cuda_outside before)
{
    recording = before.recorded;
    if (recording >= 0)
        cudaThreadExchangeStreamCaptureMode(&before.mode);
}

enum cudaStreamCaptureMode cuda_relaxed_begin(void)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    return mode;
}

void cuda_relaxed_end(enum cudaStreamCaptureMode before)
{
    cudaThreadExchangeStreamCaptureMode(&before);
}

bool cuda_is_captured(cudaStream_t stream)
{
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(stream, &capture) || capture != cudaStreamCaptureStatusNone;
}

yk_status cuda_use(int device, cudaStream_t *stream)
{
    return cuda_stream(device, cuda_yoke->queue_current(), stream);
}

cudaError_t cuda_choose_gpu(int gpu)
{
    CUcontext primary = atomic_load_explicit(&cuda.contexts[gpu], memory_order_relaxed), present = NULL;
    if (primary && cuda.context_get(&present) == CUDA_SUCCESS && present == primary)
        return cudaSuccess;
    cudaError_t code = cudaSetDevice(gpu);
    if (!code && cuda.context_get && cuda.context_get(&present) == CUDA_SUCCESS && present)
        atomic_store_explicit(&cuda.contexts[gpu], present, memory_order_relaxed);
    return code;
}

yk_status cuda_stream(int device, yk__queue queue, cudaStream_t *stream)
{
    if (atomic_load_explicit(&cuda.forked, memory_order_relaxed))
        return cuda_fail(YK_ERR_STATE,
                         "cuda:%d: process %d used CUDA before it forked this one (%d), and CUDA does not survive a "
                         "fork: use it in the children alone, or start them by yoke run",
                         device, (int)atomic_load(&cuda.process), (int)getpid());
    if (atomic_load_explicit(&cuda.process, memory_order_relaxed) == 0)
        atomic_store(&cuda.process, getpid());
    cudaError_t code = cuda_choose_gpu(cuda_gpu_of(device));
    if (code)
        return cuda_failed(device, code, "cudaSetDevice");
    _Atomic(cudaStream_t) *streams = cuda.devices[device].streams;
    _Atomic(cudaStream_t) *wanted = &(recording == device ? cuda.devices[device].recorded : streams)[queue];
    *stream = atomic_load_explicit(wanted, memory_order_acquire);
    if (*stream)
        return YK_OK;
    pthread_mutex_lock(&cuda.devices[device].lock);
    yk_status status = atomic_load(&streams[YK__QUEUE_COMPUTE]) ? YK_OK : device_start(device);
    if (!status && !atomic_load(wanted))
        status = make_stream(device, wanted);
    pthread_mutex_unlock(&cuda.devices[device].lock);
    *stream = atomic_load(wanted);
    return status;
}

yk_status yk__cuda_stream(int device, yk__queue queue, cudaStream_t *stream, int *gpu)
{
    *gpu = cuda_gpu_of(device);
    return queue == YK__QUEUES ? cuda_use(device, stream) : cuda_stream(device, queue, stream);
}

void yk__cuda_note_failure(int device, yk_status code, const char *message)
{
    pthread_mutex_lock(&cuda.devices[device].note_lock);
    if (!atomic_load(&cuda.devices[device].has_noted)) {
        cuda.devices[device].noted.code = code;
        snprintf(cuda.devices[device].noted.message, sizeof(cuda.devices[device].noted.message), "%s", message);
        atomic_store(&cuda.devices[device].has_noted, true);
    }
    pthread_mutex_unlock(&cuda.devices[device].note_lock);
}

static yk_status fail_noted(int device)
{
    yk_error noted = {0};
    pthread_mutex_lock(&cuda.devices[device].note_lock);
    if (atomic_exchange(&cuda.devices[device].has_noted, false))
        noted = cuda.devices[device].noted;
    pthread_mutex_unlock(&cuda.devices[device].note_lock);
    return noted.code ? cuda_fail(noted.code, "%s", noted.message) : YK_OK;
}

static yk_status wait_for(int device, yk__queue queue, cudaStream_t stream)
{
    uint64_t count = cuda_queued_count(device, queue); /* others may go on queueing */
    cudaError_t code = cudaStreamSynchronize(stream);
    if (code)
        return cuda_failed(device, code, "cudaStreamSynchronize");
    cuda_all_done(device, queue, count);
    return atomic_load(&cuda.devices[device].has_noted) ? fail_noted(device) : YK_OK;
}

/* Waits, and fails with what the record holds. */
static yk_status wait_and_read(int device, cudaStream_t stream)
{
    struct cuda_record *received = cuda.devices[device].received;
    cudaError_t code =
        cudaMemcpyAsync(received, cuda.devices[device].record, sizeof(*received), cudaMemcpyDeviceToHost, stream);
    if (!code)
        code = cudaMemsetAsync(cuda.devices[device].record, 0, sizeof(*received), stream);
    if (code)
        return cuda_failed(device, code, "reading the error record");
    yk_status status = wait_for(device, YK__QUEUE_COMPUTE, stream);
    if (status || received->check == 0)
        return status;
    if (received->check == CUDA_CHECK_INDEX)
        return cuda_fail(YK_ERR_ARGUMENT, "%s: index %lld is outside dimension %lld of size %lld (found on cuda:%d)",
                         received->name, (long long)received->value, (long long)received->row,
                         (long long)received->bound, device);
    if (received->check == CUDA_CHECK_EMBEDDING)
        return cuda_fail(YK_ERR_ARGUMENT,
                         "embedding: index %lld at position %lld is outside [0, %lld) (found on cuda:%d)",
                         (long long)received->value, (long long)received->row, (long long)received->bound, device);
    return cuda_fail(YK_ERR_ARGUMENT, "cross_entropy: target %lld in row %lld is outside [0, %lld) (found on cuda:%d)",
                     (long long)received->value, (long long)received->row, (long long)received->bound, device);
}

yk_status cuda_wait(int device, const char *what, const char *instead)
{
    cudaStream_t stream = NULL;
    yk_status status = cuda_use(device, &stream);
    if (!status)
        status = cuda_yoke->graph_forbid((yk_device){YK_CUDA, (int16_t)device}, what, instead);
    if (status)
        return status;
    /* The record is written on the first queue: read from another it could be emptied before that. */
    yk__queue queue = cuda_yoke->queue_current();
    if (queue != YK__QUEUE_COMPUTE || !atomic_exchange(&cuda.devices[device].checks, false))
        return wait_for(device, queue, stream);
    /* One thread at a time: there is one buffer for the record that is received. */
    pthread_mutex_lock(&cuda.devices[device].lock);
    status = wait_and_read(device, stream);
    pthread_mutex_unlock(&cuda.devices[device].lock);
    return status;
}

yk_status cuda_synchronize(int device)
{
    static const char what[] = "the program waits for the device", instead[] = "wait after yk_graph_run";
    cudaStream_t own = NULL;
    yk_status status = cuda_use(device, &own);
    if (!status)
        status = cuda_yoke->graph_forbid((yk_device){YK_CUDA, (int16_t)device}, what, instead);
    for (int q = 0; q < YK__QUEUES && !status; q++) {
        cudaStream_t stream = atomic_load(&cuda.devices[device].streams[q]);
        if (stream && stream != own)
            status = wait_for(device, (yk__queue)q, stream);
    }
    return status ? status : cuda_wait(device, what, instead);
}
