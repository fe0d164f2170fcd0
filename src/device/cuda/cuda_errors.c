/*
 * cuda_errors.c - errors of CUDA as yoke's: the call, the device, and the operations that may be to blame.
 * Layer: device/cuda.
 *
 * A kernel that faults shows at a later call, whichever that is. Each device therefore keeps the operations that were
 * queued since it was last known to be idle, and the error names them: one of them it was. YOKE_CUDA_SYNCHRONOUS=1
 * waits after every operation, so that there is only one.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda.h"

/* MOST_DEVICES: as in cuda_device.c. KEPT: the last kernels queued that an error names; TEXT: characters of each. */
enum { MOST_DEVICES = 64, KEPT = 16, TEXT = 96 };

static struct {
    pthread_mutex_t lock;
    char text[KEPT][TEXT];
    uint64_t queued; /* since the device was last idle */
} logs[MOST_DEVICES] = {[0 ... MOST_DEVICES - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

static bool synchronous;
__attribute__((constructor)) static void read_environment(void)
{
    const char *text = getenv("YOKE_CUDA_SYNCHRONOUS");
    synchronous = text && strcmp(text, "1") == 0;
}

static size_t append(char *text, size_t at, size_t size, const char *more)
{
    size_t n = strlen(more);
    if (at + n + 1 > size)
        n = size - at - 1;
    memcpy(text + at, more, n);
    text[at + n] = 0;
    return at + n;
}

/* "(2, 3) float32" */
static size_t append_view(char *text, size_t at, size_t size, const yk__view *view)
{
    char number[24];
    at = append(text, at, size, "(");
    for (int d = 0; d < view->ndim; d++) {
        snprintf(number, sizeof(number), d ? ", %lld" : "%lld", (long long)view->shape[d]);
        at = append(text, at, size, number);
    }
    at = append(text, at, size, ") ");
    return append(text, at, size, cuda_yoke->dtype_name(view->dtype));
}

const char *cuda_queued(int device, char *text, size_t size)
{
    size_t at = 0;
    text[0] = 0;
    pthread_mutex_lock(&logs[device].lock);
    uint64_t n = logs[device].queued, first = n > KEPT ? n - KEPT : 0;
    if (first) {
        char more[48];
        snprintf(more, sizeof(more), "%llu others, ", (unsigned long long)first);
        at = append(text, at, size, more);
    }
    for (uint64_t i = first; i < n; i++) {
        at = append(text, at, size, logs[device].text[i % KEPT]);
        at = append(text, at, size, i + 1 < n ? "; " : "");
    }
    pthread_mutex_unlock(&logs[device].lock);
    return text;
}

void cuda_all_done(int device)
{
    pthread_mutex_lock(&logs[device].lock);
    logs[device].queued = 0;
    pthread_mutex_unlock(&logs[device].lock);
}

/* Errors after which a process can no longer use the GPU: something that ran there failed. */
static bool is_fault(cudaError_t code)
{
    switch (code) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable: return true;
    default: return false;
    }
}

yk_status cuda_failed(int device, cudaError_t code, const char *call)
{
    cudaGetLastError(); /* one that is not sticky would be found by the next who asks */
    if (!is_fault(code))
        return cuda_fail(code == cudaErrorMemoryAllocation ? YK_ERR_MEMORY : YK_ERR_DEVICE, "cuda:%d: %s: %s (%s)",
                         device, call, cudaGetErrorString(code), cudaGetErrorName(code));
    char queued[700];
    return cuda_fail(YK_ERR_DEVICE,
                     "cuda:%d: an operation failed on the GPU: %s (%s); it was one of: %s. %s noticed it; this process "
                     "cannot use the GPU any more",
                     device, cudaGetErrorString(code), cudaGetErrorName(code),
                     cuda_queued(device, queued, sizeof(queued)), call);
}

yk_status cuda_launched(int device, const char *operation, int count, const yk__view *const *views)
{
    char text[TEXT];
    size_t at = append(text, 0, sizeof(text), operation);
    for (int i = 0; i < count; i++) {
        at = append(text, at, sizeof(text), i ? ", " : " ");
        at = append_view(text, at, sizeof(text), views[i]);
    }
    pthread_mutex_lock(&logs[device].lock);
    memcpy(logs[device].text[logs[device].queued++ % KEPT], text, sizeof(text));
    pthread_mutex_unlock(&logs[device].lock);
    cudaError_t code = cudaGetLastError();
    if (code && !is_fault(code))
        return cuda_fail(YK_ERR_DEVICE, "cuda:%d: %s: the launch was refused: %s (%s)", device, text,
                         cudaGetErrorString(code), cudaGetErrorName(code));
    if (code)
        return cuda_failed(device, code, operation);
    yk_status status = cuda_yoke->graph_forbid((yk_device){YK_CUDA, (int16_t)device}, NULL);
    if (status)
        return status;
    return synchronous ? cuda_wait(device, "YOKE_CUDA_SYNCHRONOUS=1 waits for each operation") : YK_OK;
}
