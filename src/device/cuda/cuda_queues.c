/*
 * cuda_queues.c - order between the streams of devices by events, and copies between devices. Layer: device/cuda.
 *
 * An event is used from its recording until it was waited for or queued: CUDA keeps what it needs of it until it has
 * passed, so that it can be recorded anew at once. Those that are not used are kept by GPU, up to KEPT. Whoever asks
 * for one makes its GPU the thread's first: CUDA gives a thread that chose none GPU 0, and that a context.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "device/cuda/cuda.h"

enum { MOST_GPUS = 64, KEPT = 64 };

struct yk__event {
    int device;
    cudaEvent_t event;
};

static struct {
    pthread_mutex_t lock;
    int count;
    cudaEvent_t events[KEPT];
} kept[MOST_GPUS] = {[0 ... MOST_GPUS - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

/* An event of the GPU, which is the thread's current one. */
static cudaError_t take_event(int gpu, cudaEvent_t *event)
{
    *event = NULL;
    pthread_mutex_lock(&kept[gpu].lock);
    if (kept[gpu].count)
        *event = kept[gpu].events[--kept[gpu].count];
    pthread_mutex_unlock(&kept[gpu].lock);
    return *event ? cudaSuccess : cudaEventCreateWithFlags(event, cudaEventDisableTiming);
}

static cudaError_t give_event(int gpu, cudaEvent_t event)
{
    pthread_mutex_lock(&kept[gpu].lock);
    bool room = kept[gpu].count < KEPT;
    if (room)
        kept[gpu].events[kept[gpu].count++] = event;
    pthread_mutex_unlock(&kept[gpu].lock);
    if (room)
        return cudaSuccess;
    cudaError_t chosen = cuda_choose_gpu(gpu), code = cudaEventDestroy(event);
    return chosen ? chosen : code;
}

/* An event that passes once everything on the queue by now is done. */
static yk_status record_event(int device, yk__queue queue, cudaEvent_t *event)
{
    cudaStream_t stream = NULL;
    yk_status status = cuda_stream(device, queue, &stream);
    if (status)
        return status;
    cudaError_t code = take_event(cuda_gpu_of(device), event);
    if (code)
        return cuda_failed(device, code, "cudaEventCreateWithFlags");
    code = cudaEventRecord(*event, stream);
    if (!code)
        return YK_OK;
    give_event(cuda_gpu_of(device), *event);
    return cuda_failed(device, code, "cudaEventRecord");
}

yk_status cuda_queue_order(int device, yk__queue queue, int other, yk__queue after)
{
    cudaEvent_t event = NULL;
    cudaStream_t stream = NULL;
    yk_status status = record_event(other, after, &event);
    if (status)
        return status;
    status = cuda_stream(device, queue, &stream);
    cudaError_t code = status ? cudaSuccess : cudaStreamWaitEvent(stream, event, 0);
    if (code)
        status = cuda_failed(device, code, "cudaStreamWaitEvent");
    give_event(cuda_gpu_of(other), event);
    return status;
}

yk_status cuda_queue_handle(int device, yk__queue queue, void **handle)
{
    cudaStream_t stream = NULL;
    yk_status status = cuda_stream(device, queue, &stream);
    *handle = stream;
    return status;
}

yk_status cuda_event_record(int device, yk__queue queue, yk__event **event)
{
    *event = malloc(sizeof(**event));
    if (!*event)
        return cuda_fail(YK_ERR_MEMORY, "out of memory: %zu bytes were asked for", sizeof(**event));
    (*event)->device = device;
    yk_status status = record_event(device, queue, &(*event)->event);
    if (status) {
        free(*event);
        *event = NULL;
    }
    return status;
}

yk_status cuda_event_query(yk__event *event, bool *passed)
{
    cudaError_t code = cuda_choose_gpu(cuda_gpu_of(event->device));
    if (!code)
        code = cudaEventQuery(event->event);
    *passed = code == cudaSuccess;
    if (code == cudaErrorNotReady)
        cudaGetLastError(); /* no failure, and kept as one */
    else if (code)
        return cuda_failed(event->device, code, "cudaEventQuery");
    return YK_OK;
}

yk_status cuda_event_wait(yk__event *event)
{
    cudaError_t code = cuda_choose_gpu(cuda_gpu_of(event->device));
    if (!code)
        code = cudaEventSynchronize(event->event);
    return code ? cuda_failed(event->device, code, "cudaEventSynchronize") : YK_OK;
}

void cuda_event_release(yk__event *event)
{
    if (!event)
        return;
    if (give_event(cuda_gpu_of(event->device), event->event))
        cudaGetLastError(); /* the driver may be gone at the end of a process, or the GPU */
    free(event);
}

/* Lets each of two GPUs reach the other's memory where it can, once: copies go through the host's otherwise. A second
 * thread waits until the first has done so. */
static void enable_peers(int a, int b)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static atomic_bool enabled[MOST_GPUS][MOST_GPUS];
    atomic_bool *done = &enabled[a < b ? a : b][a < b ? b : a];
    if (a == b || atomic_load(done))
        return;
    pthread_mutex_lock(&lock);
    for (int turn = 0; turn < 2 && !atomic_load(done); turn++) {
        int own = turn ? b : a, other = turn ? a : b, can = 0;
        if (cudaSetDevice(own) || cudaDeviceCanAccessPeer(&can, own, other) ||
            (can && cudaDeviceEnablePeerAccess(other, 0)))
            cudaGetLastError(); /* some other library did, or it cannot be: then the slow way */
    }
    atomic_store(done, true);
    pthread_mutex_unlock(&lock);
}

yk_status cuda_copy_peer(int to_device, void *to, int from_device, const void *from, size_t bytes)
{
    yk__queue queue = cuda_yoke->queue_current();
    cudaStream_t stream = NULL;
    if (!bytes)
        return YK_OK;
    yk_status status =
        cuda_yoke->graph_forbid((yk_device){YK_CUDA, (int16_t)to_device}, "values come from another device",
                                "bring them before yk_graph_run, by yk_copy_ to a tensor that stays");
    if (!status)
        status = cuda_queue_order(to_device, queue, from_device, queue);
    if (!status) {
        enable_peers(cuda_gpu_of(to_device), cuda_gpu_of(from_device));
        status = cuda_stream(to_device, queue, &stream);
    }
    if (status)
        return status;
    cudaError_t code = cudaMemcpyPeerAsync(to, cuda_gpu_of(to_device), from, cuda_gpu_of(from_device), bytes, stream);
    if (code)
        return cuda_failed(to_device, code, "cudaMemcpyPeerAsync");
    return cuda_queue_order(from_device, queue, to_device, queue);
}
