/*
 * cuda_errors.c - errors of CUDA as yoke's: the call, the device, and the operations that may be to blame.
 * Layer: device/cuda.
 *
 * A kernel that faults shows at a later call, whichever that is. Each device therefore keeps the operations that were
 * queued since their queue was last known to be idle, and the error names them: one of them it was.
 * YOKE_CUDA_SYNCHRONOUS=1 waits after every operation, so that there is only one. A GPU that is lost (its driver
 * reports it so, memory that cannot be corrected) is told from an operation at fault; where memory is short or the GPU
 * is another's alone, the error says who holds it.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda.h"
#include "device/cuda/nccl_access.h"

/* MOST_DEVICES: as in cuda_device.c. KEPT: the last kernels queued that an error may name; TEXT: characters of each. */
enum { MOST_DEVICES = 64, KEPT = 32, TEXT = 96 };

/* The last operations of a queue. */
typedef struct queued {
    char text[KEPT][TEXT];
    uint8_t brief[KEPT];  /* characters of the operation and its first view */
    uint64_t count, done; /* operations in all, and those that are known to be over */
} queued;

static struct {
    pthread_mutex_t lock;
    queued of[YK__QUEUES];
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

/* Appends the operations of a queue that are not known to be over: one alone with all its views; of several the last
 * that there is room for, with one view each. Returns the length of the text. */
static size_t append_queued(char *text, size_t at, size_t size, const queued *q)
{
    enum { OTHERS = 32 }; /* characters of "123 others, " and of what stands between */
    size_t room = at + OTHERS;
    uint64_t n = q->count, first = n;
    if (n - q->done == 1 && at + strlen(q->text[q->done % KEPT]) < size)
        return append(text, at, size, q->text[q->done % KEPT]);
    while (first > q->done && n - first < KEPT && room + q->brief[(first - 1) % KEPT] + 2 < size)
        room += q->brief[--first % KEPT] + 2u;
    uint64_t others = first - q->done;
    if (others) {
        char more[48];
        snprintf(more, sizeof(more), "%llu other%s%s", (unsigned long long)others, others == 1 ? "" : "s",
                 first < n ? ", " : "");
        at = append(text, at, size, more);
    }
    for (uint64_t i = first; i < n; i++) {
        char one[TEXT];
        snprintf(one, sizeof(one), "%.*s", q->brief[i % KEPT], q->text[i % KEPT]);
        at = append(text, at, size, one);
        at = append(text, at, size, i + 1 < n ? "; " : "");
    }
    return at;
}

/* Names the queued operations of a device, queue by queue. Each queue may take the room that those before it left,
 * except a share for each that follows. */
const char *cuda_queued(int device, char *text, size_t size)
{
    enum { SHARE = 120 }; /* characters */
    size_t at = 0, active = 0;
    text[0] = 0;
    pthread_mutex_lock(&logs[device].lock);
    for (int q = 0; q < YK__QUEUES; q++)
        active += logs[device].of[q].count > logs[device].of[q].done;
    for (int q = 0; q < YK__QUEUES; q++) {
        if (logs[device].of[q].count == logs[device].of[q].done)
            continue;
        at = append(text, at, size, at ? "; " : "");
        at = append_queued(text, at, size - --active * SHARE, &logs[device].of[q]);
    }
    pthread_mutex_unlock(&logs[device].lock);
    return text;
}

uint64_t cuda_queued_count(int device, yk__queue queue)
{
    pthread_mutex_lock(&logs[device].lock);
    uint64_t count = logs[device].of[queue].count;
    pthread_mutex_unlock(&logs[device].lock);
    return count;
}

/* Notes that the first `count` operations of the queue are over. */
void cuda_all_done(int device, yk__queue queue, uint64_t count)
{
    pthread_mutex_lock(&logs[device].lock);
    queued *q = &logs[device].of[queue];
    if (q->done < count)
        q->done = count;
    pthread_mutex_unlock(&logs[device].lock);
}

/* Notes an operation that was queued; not one that is recorded, which runs later, as part of a replay. */
static void note_queued(int device, const char *text, size_t brief)
{
    if (cuda_recorded() == device)
        return;
    pthread_mutex_lock(&logs[device].lock);
    queued *q = &logs[device].of[cuda_yoke->queue_current()];
    q->brief[q->count % KEPT] = (uint8_t)brief;
    memcpy(q->text[q->count++ % KEPT], text, TEXT);
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
    case cudaErrorLaunchFailure: return true;
    default: return false;
    }
}

/* Errors after which nobody can use the GPU, or not before it is reset, whatever ran there. */
static bool is_lost(cudaError_t code)
{
    switch (code) {
    case cudaErrorUnknown: /* the code of calls to a GPU that no longer answers */
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
#if CUDART_VERSION >= 12080
    case cudaErrorContained:
#endif
    case cudaErrorMpsClientTerminated: return true;
    default: return false;
    }
}

/* CUDA numbers the GPUs of the variable from 0, nvidia-smi those of the machine. */
static size_t append_numbering(char *text, size_t at, size_t size)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char part[100];
    if (!visible)
        return at;
    snprintf(part, sizeof(part), ", as CUDA_VISIBLE_DEVICES=%.50s numbers them", visible);
    return append(text, at, size, part);
}

const char *cuda_holders(int device, char *text, size_t size)
{
    char bus[32], holders[300];
    text[0] = 0;
    size_t at = append_numbering(text, 0, size);
    if (cudaDeviceGetPCIBusId(bus, sizeof(bus), cuda_gpu_of(device))) {
        cudaGetLastError();
        return text;
    }
    if (cuda_yoke->gpu_holders(bus, holders, sizeof(holders))[0])
        snprintf(text + at, size - at, "; it is held by %s", holders);
    return text;
}

yk_status cuda_failed(int device, cudaError_t code, const char *call)
{
    char ops[600];
    cudaGetLastError(); /* one that is not sticky would be found by the next call that asks */
    if (code == cudaErrorMemoryAllocation || code == cudaErrorDevicesUnavailable)
        return cuda_fail(code == cudaErrorMemoryAllocation ? YK_ERR_MEMORY : YK_ERR_DEVICE, "cuda:%d: %s: %s (%s)%s",
                         device, call, cudaGetErrorString(code), cudaGetErrorName(code),
                         cuda_holders(device, ops, sizeof(ops)));
    enum { OF_A_LOST_ONE = 400 }; /* characters: the rest of the message leaves no more of a record */
    cuda_queued(device, ops, is_lost(code) ? OF_A_LOST_ONE : sizeof(ops));
    char numbering[100] = "";
    append_numbering(numbering, 0, sizeof(numbering));
    if (is_lost(code))
        return cuda_fail(
            YK_ERR_DEVICE,
            "cuda:%d: GPU %d%s%s is lost: %s (%s), which %s noticed; this process cannot use it any more. "
            "nvidia-smi says whether it answers, the kernel's log (dmesg: Xid) why it does not; a run with "
            "checkpoints goes on from its newest%s%s",
            device, cuda_gpu_of(device), numbering, numbering[0] ? "," : "", cudaGetErrorString(code),
            cudaGetErrorName(code), call, ops[0] ? ". Queued were: " : "", ops);
    if (!is_fault(code))
        return cuda_fail(YK_ERR_DEVICE, "cuda:%d: %s: %s (%s)", device, call, cudaGetErrorString(code),
                         cudaGetErrorName(code));
    bool several = strchr(ops, ';') != NULL;
    return cuda_fail(
        YK_ERR_DEVICE,
        "cuda:%d: an operation failed on the GPU: %s (%s); it was %s%s. %s noticed it; this process cannot "
        "use the GPU any more%s",
        device, cudaGetErrorString(code), cudaGetErrorName(code), several ? "one of: " : "",
        ops[0] ? ops : "not one of yoke's", call, several ? " (YOKE_CUDA_SYNCHRONOUS=1 finds which it is)" : "");
}

yk_status yk__cuda_failed(int device, cudaError_t code, const char *call)
{
    return cuda_failed(device, code, call);
}

static _Thread_local cudaError_t refused; /* the first since the last cuda_launched */

void cuda_note_launch(cudaError_t code)
{
    cudaGetLastError(); /* one that is not sticky would be found by the next call that asks */
    refused = refused ? refused : code;
}

yk_status cuda_launched(int device, const char *operation, int count, const yk__view *const *views)
{
    char text[TEXT];
    size_t at = append(text, 0, sizeof(text), operation), brief = at;
    for (int i = 0; i < count; i++) {
        at = append(text, at, sizeof(text), i ? ", " : " ");
        at = append_view(text, at, sizeof(text), views[i]);
        brief = i ? brief : at;
    }
    note_queued(device, text, brief);
    cudaError_t code = refused;
    refused = cudaSuccess;
    if (code && !is_fault(code) && !is_lost(code))
        return cuda_fail(YK_ERR_DEVICE, "cuda:%d: %s: the launch was refused: %s (%s)", device, text,
                         cudaGetErrorString(code), cudaGetErrorName(code));
    if (code)
        return cuda_failed(device, code, operation);
    yk_status status = cuda_yoke->graph_forbid((yk_device){YK_CUDA, (int16_t)device}, NULL, NULL);
    if (status)
        return status;
    return synchronous ? cuda_wait(device, "YOKE_CUDA_SYNCHRONOUS=1 waits for each operation", "unset it") : YK_OK;
}
