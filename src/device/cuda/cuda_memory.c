/*
 * cuda_memory.c - memory of GPUs, and copies to and from the host. Layer: device/cuda.
 *
 * The caching allocator of device/memory/cache.c calls cuda_allocate and cuda_release. Copies are queued on the
 * stream of the thread's queue (Note [Order on a device] in cuda.h).
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "device/cuda/cuda.h"

/* "1.5 GiB" */
static const char *amount(size_t bytes, char text[32])
{
    double mib = (double)bytes / (1 << 20);
    snprintf(text, 32, mib >= 1024 ? "%.2f GiB" : "%.1f MiB", mib >= 1024 ? mib / 1024 : mib);
    return text;
}

yk_status cuda_allocate(int device, size_t bytes, void **memory)
{
    cudaStream_t stream = NULL;
    yk_status status = cuda_use(device, &stream);
    if (status)
        return status;
    /* A graph that is recorded gets its memory meanwhile, which the mode of a capture forbids otherwise. */
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    cudaError_t code = cudaMalloc(memory, bytes);
    cudaThreadExchangeStreamCaptureMode(&mode);
    if (code != cudaErrorMemoryAllocation)
        return code ? cuda_failed(device, code, "cudaMalloc") : YK_OK;
    cudaGetLastError();
    size_t left = 0, total = 0;
    char a[32], b[32], c[32], holders[340];
    if (cudaMemGetInfo(&left, &total))
        cudaGetLastError();
    return cuda_fail(
        YK_ERR_MEMORY,
        "cuda:%d: out of memory: %s were asked for, and GPU %d has %s free of %s%s (a smaller batch, or bf16, "
        "needs less)",
        device, amount(bytes, a), cuda_gpu_of(device), amount(left, b), amount(total, c),
        cuda_holders(device, holders, sizeof(holders)));
}

void cuda_release(int device, void *memory, size_t bytes)
{
    (void)bytes;
    cudaStream_t stream = NULL;
    yk_error before;
    cuda_base->error_take(&before);
    cuda_outside outside = cuda_outside_begin();
    /* At the end of a process the driver may be gone already, and in a fork it is another's: nothing is to be freed. */
    if (cuda_use(device, &stream) || cudaFree(memory)) {
        yk_error unused;
        cudaGetLastError();
        cuda_base->error_take(&unused);
    }
    cuda_outside_end(outside);
    cuda_base->error_put(&before);
}

bool cuda_shares_memory(int device, int other)
{
    return cuda_gpu_of(device) == cuda_gpu_of(other);
}

static yk_status queue_copy(int device, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    cudaStream_t stream = NULL;
    if (!bytes)
        return YK_OK;
    yk_status status = cuda_use(device, &stream);
    if (status)
        return status;
    cudaError_t code = cudaMemcpyAsync(to, from, bytes, kind, stream);
    return code ? cuda_failed(device, code, kind == cudaMemcpyHostToDevice ? "upload" : "download") : YK_OK;
}

/* Note [Values on their way to a device]
 * An upload copies the host's values into pinned memory and queues the rest, so it waits for nothing that the device
 * has to do. A piece of that memory is taken again once the event after its copy has passed. STAGED: bytes of the
 * largest piece; what is larger waits, as it takes long anyway. PIECES: of a device; when all are on their way the
 * oldest is waited for. LEAST: bytes of the smallest. */
enum { MOST_DEVICES = 64, STAGED = 64 << 20, PIECES = 8, LEAST = 4096 };

typedef struct piece {
    void *memory;
    size_t bytes;
    cudaEvent_t event; /* after its last copy */
    uint64_t turn;     /* of that; 0: there was none */
} piece;

static struct {
    pthread_mutex_t lock;
    piece pieces[PIECES];
    uint64_t turns;
} staging[MOST_DEVICES] = {[0 ... MOST_DEVICES - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

/* Makes a piece that is not in use large enough. */
static cudaError_t grow_piece(piece *p, size_t bytes)
{
    size_t room = LEAST;
    while (room < bytes)
        room *= 2;
    cudaError_t code = p->event ? cudaSuccess : cudaEventCreateWithFlags(&p->event, cudaEventDisableTiming);
    if (code || p->bytes >= bytes)
        return code;
    p->bytes = 0;
    if (p->memory)
        code = cudaFreeHost(p->memory);
    p->memory = NULL;
    if (!code)
        code = cudaHostAlloc(&p->memory, room, cudaHostAllocDefault);
    if (!code)
        p->bytes = room;
    return code;
}

/* Finds a free piece: one that is large enough before one that has to grow; the oldest, which is waited for, where all
 * are in use. Locked. */
static cudaError_t find_piece(int device, size_t bytes, piece **found)
{
    piece *all = staging[device].pieces, *idle = NULL, *oldest = &all[0];
    for (int i = 0; i < PIECES; i++) {
        piece *p = &all[i];
        if (p->turn < oldest->turn)
            oldest = p;
        if (p->turn && cudaEventQuery(p->event) != cudaSuccess)
            continue;
        if (!idle || (idle->bytes < bytes && p->bytes >= bytes))
            idle = p;
    }
    cudaGetLastError(); /* clears the error of the queries: an event that has not passed is no failure */
    *found = idle ? idle : oldest;
    cudaError_t code = idle ? cudaSuccess : cudaEventSynchronize(oldest->event);
    return code ? code : grow_piece(*found, bytes);
}

static yk_status upload_staged(int device, void *to, const void *from, size_t bytes)
{
    cudaStream_t stream = NULL;
    yk_status status = cuda_use(device, &stream);
    if (status)
        return status;
    pthread_mutex_lock(&staging[device].lock);
    piece *p = NULL;
    cudaError_t code = find_piece(device, bytes, &p);
    if (!code) {
        memcpy(p->memory, from, bytes);
        code = cudaMemcpyAsync(to, p->memory, bytes, cudaMemcpyHostToDevice, stream);
    }
    if (!code)
        code = cudaEventRecord(p->event, stream);
    if (!code)
        p->turn = ++staging[device].turns;
    pthread_mutex_unlock(&staging[device].lock);
    return code ? cuda_failed(device, code, "upload") : YK_OK;
}

static yk_status transfer(int device, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    bool up = kind == cudaMemcpyHostToDevice;
    const char *what = up ? "values are brought from the host" : "the host reads what the device computed";
    const char *instead = up ? "bring them before yk_graph_run, by yk_copy_ to a tensor that stays"
                             : "keep the tensor, and read it after yk_graph_run";
    if (!bytes)
        return YK_OK;
    yk_status status = cuda_yoke->graph_forbid((yk_device){YK_CUDA, (int16_t)device}, what, instead);
    if (status)
        return status;
    if (up && bytes <= STAGED)
        return upload_staged(device, to, from, bytes);
    status = queue_copy(device, to, from, bytes, kind);
    return status ? status : cuda_wait(device, what, instead);
}

yk_status cuda_upload(int device, void *to, const void *from_host, size_t bytes)
{
    return transfer(device, to, from_host, bytes, cudaMemcpyHostToDevice);
}

yk_status cuda_download(int device, void *to_host, const void *from, size_t bytes)
{
    return transfer(device, to_host, from, bytes, cudaMemcpyDeviceToHost);
}

/* ---- work of others on the queue ---- */
yk_status cuda_enqueue(int device, void (*fn)(void *arg), void *arg)
{
    cudaStream_t stream = NULL;
    yk_status status = cuda_yoke->graph_forbid((yk_device){YK_CUDA, (int16_t)device},
                                               "a function of the host's is called when the device comes to it",
                                               "call it after yk_graph_run");
    if (!status)
        status = cuda_use(device, &stream);
    if (status)
        return status;
    cudaError_t code = cudaLaunchHostFunc(stream, fn, arg);
    return code ? cuda_failed(device, code, "cudaLaunchHostFunc") : YK_OK;
}

yk_status cuda_allocate_pinned(int device, size_t bytes, void **memory)
{
    cudaStream_t stream = NULL;
    yk_status status =
        cuda_yoke->graph_forbid((yk_device){YK_CUDA, (int16_t)device}, "memory of the host is taken for a copy",
                                "copy between the host and the device before or after yk_graph_run");
    if (!status)
        status = cuda_use(device, &stream);
    if (status)
        return status;
    cudaError_t code = cudaHostAlloc(memory, bytes, cudaHostAllocDefault);
    return code ? cuda_failed(device, code, "cudaHostAlloc") : YK_OK;
}

void cuda_release_pinned(int device, void *memory)
{
    cudaStream_t stream = NULL;
    yk_error before, unused;
    cuda_base->error_take(&before);
    cuda_outside outside = cuda_outside_begin();
    if (cuda_use(device, &stream) || cudaFreeHost(memory)) {
        cudaGetLastError();
        cuda_base->error_take(&unused);
    }
    cuda_outside_end(outside);
    cuda_base->error_put(&before);
}

yk_status cuda_queue_upload(int device, void *to, const void *from_pinned, size_t bytes)
{
    return queue_copy(device, to, from_pinned, bytes, cudaMemcpyHostToDevice);
}

yk_status cuda_queue_download(int device, void *to_pinned, const void *from, size_t bytes)
{
    return queue_copy(device, to_pinned, from, bytes, cudaMemcpyDeviceToHost);
}
