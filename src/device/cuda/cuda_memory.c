/*
 * cuda_memory.c - memory of GPUs, and copies to and from the host. Layer: device/cuda.
 *
 * The caching allocator of device/storage.c calls cuda_allocate and cuda_release; see the note in cuda.h for why its
 * blocks need no events. Copies are queued on the device's stream and done when they return.
 */
#include <stdio.h>
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
    cudaError_t code = cudaMalloc(memory, bytes);
    if (code != cudaErrorMemoryAllocation)
        return code ? cuda_failed(device, code, "cudaMalloc") : YK_OK;
    cudaGetLastError();
    size_t left = 0, total = 0;
    char a[32], b[32], c[32];
    if (cudaMemGetInfo(&left, &total))
        cudaGetLastError();
    return cuda_fail(YK_ERR_MEMORY,
                     "cuda:%d: out of memory: %s were asked for, and GPU %d has %s free of %s (yoke doctor says which "
                     "processes have the rest; a smaller batch, or bf16, needs less)",
                     device, amount(bytes, a), cuda_gpu_of(device), amount(left, b), amount(total, c));
}

void cuda_release(int device, void *memory, size_t bytes)
{
    (void)bytes;
    cudaStream_t stream = NULL;
    yk_error before;
    cuda_base->error_take(&before);
    /* At the end of a process the driver may be gone already, and in a fork it is another's: nothing is to be freed. */
    if (cuda_use(device, &stream) || cudaFree(memory)) {
        yk_error unused;
        cudaGetLastError();
        cuda_base->error_take(&unused);
    }
    cuda_base->error_put(&before);
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

static yk_status transfer(int device, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    yk_status status = queue_copy(device, to, from, bytes, kind);
    return status || !bytes ? status : cuda_synchronize(device);
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
    yk_status status = cuda_use(device, &stream);
    if (status)
        return status;
    cudaError_t code = cudaLaunchHostFunc(stream, fn, arg);
    return code ? cuda_failed(device, code, "cudaLaunchHostFunc") : YK_OK;
}

yk_status cuda_allocate_pinned(int device, size_t bytes, void **memory)
{
    cudaStream_t stream = NULL;
    yk_status status = cuda_use(device, &stream);
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
    if (cuda_use(device, &stream) || cudaFreeHost(memory)) {
        cudaGetLastError();
        cuda_base->error_take(&unused);
    }
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
