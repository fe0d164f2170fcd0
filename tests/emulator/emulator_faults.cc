/*
 * emulator_faults.cc - the emulator finds what it is there to find: kernels and orders of calls with one mistake each,
 * next to the same without it. A fault ends the pretended device for good, so each case is a process of its own. TAP.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#if __has_include(<nccl.h>)
#define HAS_NCCL 1
#define CUDA_NO_HALF
#include <nccl.h>
#endif

#include "device/cuda/kernel.h"
#include "tests/emulator/dnn_faults.h"
#include "tests/emulator/libraries.h"

enum { N = 64 };

static cudaStream_t stream, other;
static float *x, *y;

static cudaError_t finish()
{
    return cudaStreamSynchronize(stream);
}

/* ---- kernels ---- */
YK__KERNEL(N) add_one(float *to, const float *from, int n)
{
    yk__global<float> out(to);
    yk__global<const float> in(from);
    int i = (int)threadIdx.x;
    if (i < n)
        out[i] = in[i] + 1;
}

YK__KERNEL(N) reverse(float *to, bool with_barrier)
{
    YK__SHARED(float, tile);
    yk__global<float> out(to);
    tile[threadIdx.x] = (float)threadIdx.x;
    if (with_barrier)
        __syncthreads();
    out[threadIdx.x] = tile[N - 1 - (int)threadIdx.x];
}

YK__KERNEL(N) some_leave(int before)
{
    if ((int)threadIdx.x < before)
        return;
    __syncthreads();
}

YK__KERNEL(N) warp_sum(float *to, int lanes)
{
    yk__global<float> out(to);
    if ((int)threadIdx.x % 32 >= lanes)
        return;
    float sum = (float)threadIdx.x;
    for (int k = 16; k > 0; k /= 2)
        sum += __shfl_xor_sync(YK__FULL_MASK, sum, k);
    if (threadIdx.x % 32 == 0)
        out[threadIdx.x / 32] = sum;
}

/* Reverses the order of each warp's numbers in place. */
YK__KERNEL(N) warp_reverse(float *at, bool meets)
{
    yk__global<float> numbers(at);
    float own = numbers[threadIdx.x];
    if (meets)
        yk__sync_warp();
    numbers[threadIdx.x ^ 31] = own;
}

YK__KERNEL(N) beyond_shared(int index)
{
    YK__SHARED(float, tile);
    if (threadIdx.x == 0)
        tile[index] = 1;
}

/* A function of the backend, which is not linked here: failures show in cudaGetLastError. */
extern "C" void cuda_note_launch(cudaError_t)
{
}

/* ---- cases: true when all was well ---- */
static bool launch_add(float *to, const float *from, int n)
{
    YK__LAUNCH("add_one", add_one, dim3(1), dim3(N), 0, stream, to, from, n);
    return cudaGetLastError() == cudaSuccess && finish() == cudaSuccess;
}

static bool right()
{
    return launch_add(y, x, N);
}
static bool reads_beyond()
{
    return launch_add(y, x + 1, N);
}
static bool writes_before()
{
    return launch_add(y - 1, x, N);
}
static bool reads_host()
{
    static float host[N];
    return launch_add(y, host, N);
}
static bool reads_null()
{
    return launch_add(y, nullptr, N);
}
static bool misaligned()
{
    return launch_add(y, reinterpret_cast<const float *>(reinterpret_cast<uintptr_t>(x) + 2), N - 1);
}
static bool reads_freed()
{
    return cudaFree(x) == cudaSuccess && launch_add(y, x, N);
}
static bool other_device()
{
    void *theirs;
    bool got = cudaSetDevice(1) == cudaSuccess && cudaMalloc(&theirs, N * sizeof(float)) == cudaSuccess &&
               cudaSetDevice(0) == cudaSuccess;
    return got && launch_add(y, static_cast<float *>(theirs), N);
}
static bool run_reverse(bool with_barrier)
{
    float got[N];
    YK__LAUNCH("reverse", reverse, dim3(1), dim3(N), N * sizeof(float), stream, y, with_barrier);
    bool good =
        cudaMemcpyAsync(got, y, sizeof(got), cudaMemcpyDeviceToHost, stream) == cudaSuccess && finish() == cudaSuccess;
    for (int i = 0; i < N; i++)
        good &= got[i] == (float)(N - 1 - i);
    return good;
}
static bool barrier()
{
    return run_reverse(true);
}
static bool no_barrier()
{
    return run_reverse(false);
}
static bool run_leave(int before)
{
    YK__LAUNCH("some_leave", some_leave, dim3(2), dim3(N), 0, stream, before);
    return finish() == cudaSuccess;
}
static bool all_come()
{
    return run_leave(0);
}
static bool some_come()
{
    return run_leave(3);
}
static bool run_warps(int lanes)
{
    float got[2];
    YK__LAUNCH("warp_sum", warp_sum, dim3(1), dim3(N), 0, stream, y, lanes);
    return cudaMemcpyAsync(got, y, sizeof(got), cudaMemcpyDeviceToHost, stream) == cudaSuccess &&
           finish() == cudaSuccess && got[0] == 496 && got[1] == 1520;
}
static bool whole_warps()
{
    return run_warps(32);
}
static bool half_a_warp()
{
    return run_warps(16);
}
static bool run_warp_reverse(bool meets)
{
    float got[N];
    for (int i = 0; i < N; i++)
        got[i] = (float)i;
    bool good = cudaMemcpyAsync(y, got, sizeof(got), cudaMemcpyHostToDevice, stream) == cudaSuccess;
    YK__LAUNCH("warp_reverse", warp_reverse, dim3(1), dim3(N), 0, stream, y, meets);
    good &=
        cudaMemcpyAsync(got, y, sizeof(got), cudaMemcpyDeviceToHost, stream) == cudaSuccess && finish() == cudaSuccess;
    for (int i = 0; i < N; i++)
        good &= got[i] == (float)(i ^ 31);
    return good;
}
static bool warp_meets()
{
    return run_warp_reverse(true);
}
static bool warp_does_not_meet()
{
    return run_warp_reverse(false);
}
static bool run_shared(int index)
{
    YK__LAUNCH("beyond_shared", beyond_shared, dim3(1), dim3(N), 8 * sizeof(float), stream, index);
    return finish() == cudaSuccess;
}
static bool inside_shared()
{
    return run_shared(7);
}
static bool outside_shared()
{
    return run_shared(8);
}
static bool too_many_threads()
{
    YK__LAUNCH("some_leave", some_leave, dim3(1), dim3(2048), 0, stream, 0);
    return cudaGetLastError() == cudaSuccess;
}
static bool too_much_shared()
{
    YK__LAUNCH("beyond_shared", beyond_shared, dim3(1), dim3(N), 64 << 10, stream, 0);
    return cudaGetLastError() == cudaSuccess;
}

/* y = x + 1 on one stream, read on another: with an event between them, and without. */
static bool two_streams(bool with_event)
{
    float got[N];
    cudaEvent_t event;
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaMemsetAsync(x, 0, N * sizeof(float), stream);
    cudaMemsetAsync(y, 0, N * sizeof(float), stream);
    cudaStreamSynchronize(stream);
    YK__LAUNCH("add_one", add_one, dim3(1), dim3(N), 0, stream, y, x, (int)N);
    cudaEventRecord(event, stream);
    if (with_event)
        cudaStreamWaitEvent(other, event, 0);
    cudaMemcpyAsync(got, y, sizeof(got), cudaMemcpyDeviceToHost, other);
    bool good = cudaStreamSynchronize(other) == cudaSuccess;
    for (int i = 0; i < N; i++)
        good &= got[i] == 1;
    return finish() == cudaSuccess && cudaEventDestroy(event) == cudaSuccess && good;
}
static bool with_event()
{
    return two_streams(true);
}
static bool without_event()
{
    return two_streams(false);
}

/* Memory that is changed after a copy has been queued: the copy may not have read it yet. */
static bool changed_behind(bool pinned)
{
    static float pageable[N];
    float got[N];
    void *memory = pageable;
    if (pinned && cudaHostAlloc(&memory, sizeof(pageable), 0) != cudaSuccess)
        return false;
    memset(memory, 0, sizeof(pageable));
    cudaMemcpyAsync(x, memory, sizeof(pageable), cudaMemcpyHostToDevice, stream);
    static_cast<float *>(memory)[5] = 7;
    cudaMemcpyAsync(got, x, sizeof(got), cudaMemcpyDeviceToHost, stream);
    return finish() == cudaSuccess && got[5] == 0;
}
static bool pageable_behind()
{
    return changed_behind(false);
}
static bool pinned_behind()
{
    return changed_behind(true);
}
/* A copy to pageable memory, read without waiting for it. */
static bool pageable_read(bool waits)
{
    static float got[N];
    cudaMemsetAsync(x, 0xFF, N * sizeof(float), stream);
    cudaMemcpyAsync(got, x, sizeof(got), cudaMemcpyDeviceToHost, stream);
    return (!waits || finish() == cudaSuccess) && got[5] != 0;
}
static bool pageable_waited()
{
    return pageable_read(true);
}
static bool pageable_unwaited()
{
    return pageable_read(false);
}
static bool pinned_freed()
{
    void *memory;
    return cudaHostAlloc(&memory, N * sizeof(float), 0) == cudaSuccess &&
           cudaMemcpyAsync(memory, x, N * sizeof(float), cudaMemcpyDeviceToHost, stream) == cudaSuccess &&
           cudaFreeHost(memory) == cudaSuccess && finish() == cudaSuccess;
}
static bool may_reach = true;

/* A copy to the other GPU, read there: with an event between them, and without. */
static bool to_peer(bool with_event)
{
    void *theirs;
    cudaStream_t their_stream;
    cudaEvent_t event;
    float got[N];
    if (cudaSetDevice(1) || cudaMalloc(&theirs, N * sizeof(float)) || cudaStreamCreateWithFlags(&their_stream, 0) ||
        cudaMemsetAsync(theirs, 0xFF, N * sizeof(float), their_stream) || cudaStreamSynchronize(their_stream) ||
        (may_reach && cudaDeviceEnablePeerAccess(0, 0)) || cudaSetDevice(0) ||
        (may_reach && cudaDeviceEnablePeerAccess(1, 0)) || cudaEventCreateWithFlags(&event, cudaEventDisableTiming))
        return false;
    cudaMemsetAsync(x, 0, N * sizeof(float), stream);
    cudaMemcpyPeerAsync(theirs, 1, x, 0, N * sizeof(float), stream);
    cudaEventRecord(event, stream);
    cudaSetDevice(1);
    if (with_event)
        cudaStreamWaitEvent(their_stream, event, 0);
    cudaMemcpyAsync(got, theirs, sizeof(got), cudaMemcpyDeviceToHost, their_stream);
    bool good = cudaStreamSynchronize(their_stream) == cudaSuccess;
    for (int i = 0; i < N; i++)
        good &= got[i] == 0;
    return good && cudaEventDestroy(event) == cudaSuccess && cudaSetDevice(0) == cudaSuccess && finish() == cudaSuccess;
}
static bool peer_with_event()
{
    return to_peer(true);
}
static bool peer_without()
{
    return to_peer(false);
}
/* Legal, and slow: through the host. */
static bool peer_slow()
{
    may_reach = false;
    return to_peer(true);
}
/* CUDA would take GPU 0, which the program perhaps does not use. */
static bool of_no_gpu()
{
    cudaError_t code = cudaSuccess;
    cudaEvent_t event;
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaEventRecord(event, stream);
    std::thread([&] { code = cudaEventSynchronize(event); }).join();
    return code == cudaSuccess;
}

static bool waits_with_no_gpu()
{
    cudaError_t code = cudaSuccess;
    std::thread([&] { code = cudaStreamSynchronize(stream); }).join();
    return code == cudaSuccess;
}
/* An event belongs to the GPU that was the thread's when it was made. */
static bool event_of(int gpu)
{
    cudaEvent_t event;
    return cudaSetDevice(gpu) == cudaSuccess &&
           cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess && cudaSetDevice(0) == cudaSuccess &&
           cudaEventRecord(event, stream) == cudaSuccess && cudaEventDestroy(event) == cudaSuccess;
}
static bool own_event()
{
    return event_of(0);
}
static bool others_event()
{
    return event_of(1);
}

/* ---- captures ---- */
/* Ends the capture and launches it `times` over; false where CUDA would refuse. */
static bool launch_captured(int times)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    if (cudaStreamEndCapture(stream, &graph) || cudaGraphInstantiate(&exec, graph, 0) || cudaGraphDestroy(graph))
        return false;
    for (int i = 0; i < times; i++)
        if (cudaGraphLaunch(exec, stream))
            return false;
    return finish() == cudaSuccess && cudaGraphExecDestroy(exec) == cudaSuccess;
}
static bool all_are(const float *from, float value)
{
    float got[N];
    bool good = cudaMemcpyAsync(got, from, sizeof(got), cudaMemcpyDeviceToHost, stream) == cudaSuccess &&
                finish() == cudaSuccess;
    for (int i = 0; i < N; i++)
        good &= got[i] == value;
    return good;
}
static void begin_capture()
{
    cudaMemsetAsync(x, 0, N * sizeof(float), stream);
    cudaMemsetAsync(y, 0, N * sizeof(float), stream);
    cudaStreamSynchronize(stream);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
}
static void add(float *to, const float *from, cudaStream_t on)
{
    YK__LAUNCH("add_one", add_one, dim3(1), dim3(N), 0, on, to, from, (int)N);
}
/* Nothing is carried out while it is captured, and everything in each launch. */
static bool replayed()
{
    begin_capture();
    add(y, x, stream);
    add(x, y, stream);
    return launch_captured(3) && all_are(x, 6) && all_are(y, 5);
}
/* Two streams in one graph: y = x + 1 on the other, then x = y + 1; with events between them, without the one back, and
 * with it after the kernel that reads y. */
static bool forked(bool join, bool in_time)
{
    cudaEvent_t there, back;
    cudaEventCreateWithFlags(&there, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&back, cudaEventDisableTiming);
    begin_capture();
    cudaEventRecord(there, stream);
    cudaStreamWaitEvent(other, there, 0);
    add(y, x, other);
    cudaEventRecord(back, other);
    if (join && in_time)
        cudaStreamWaitEvent(stream, back, 0);
    add(x, y, stream);
    if (join && !in_time)
        cudaStreamWaitEvent(stream, back, 0);
    cudaEventDestroy(there);
    cudaEventDestroy(back);
    return launch_captured(3) && all_are(x, 6);
}
static bool joined()
{
    return forked(true, true);
}
static bool joined_late()
{
    return forked(true, false);
}
static bool unjoined()
{
    return forked(false, false);
}
static bool waits_for_outside()
{
    cudaEvent_t outside;
    cudaEventCreateWithFlags(&outside, cudaEventDisableTiming);
    cudaEventRecord(outside, other);
    begin_capture();
    cudaStreamWaitEvent(stream, outside, 0);
    cudaEventDestroy(outside);
    add(y, x, stream);
    return launch_captured(1);
}
static bool synchronized_in_capture()
{
    begin_capture();
    add(y, x, stream);
    cudaStreamSynchronize(stream);
    return launch_captured(1);
}
/* Looks at an event that is no part of the capture, or waits for it or for the stream that it is on: forbidden to the
 * thread that captures, in the modes but Relaxed. */
static bool looked_at_outside(int how, bool relaxed)
{
    cudaEvent_t outside;
    cudaEventCreateWithFlags(&outside, cudaEventDisableTiming);
    cudaEventRecord(outside, other);
    begin_capture();
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    if (relaxed)
        cudaThreadExchangeStreamCaptureMode(&mode);
    (void)(how == 0   ? cudaEventQuery(outside)
           : how == 1 ? cudaEventSynchronize(outside)
                      : cudaStreamSynchronize(other));
    if (relaxed)
        cudaThreadExchangeStreamCaptureMode(&mode);
    add(y, x, stream);
    return launch_captured(2) && all_are(y, 1) && cudaEventDestroy(outside) == cudaSuccess;
}
static bool queried_relaxed()
{
    return looked_at_outside(0, true);
}
template <int HOW> static bool waited_outside()
{
    return looked_at_outside(HOW, false);
}
static bool queried_by_another()
{
    cudaEvent_t outside;
    cudaEventCreateWithFlags(&outside, cudaEventDisableTiming);
    cudaEventRecord(outside, other);
    begin_capture();
    std::thread([&] {
        cudaSetDevice(0);
        while (cudaEventQuery(outside) == cudaErrorNotReady)
            ;
    }).join();
    add(y, x, stream);
    return launch_captured(2) && all_are(y, 1) && cudaEventDestroy(outside) == cudaSuccess;
}
/* Another thread's kernel, on the stream that is captured (0), on another one (1), or after the captured one (2). */
template <int how> static bool work_of_another()
{
    begin_capture();
    add(y, x, stream);
    std::thread([] {
        cudaSetDevice(0);
        cudaEvent_t there;
        if (how == 2 && !cudaEventCreateWithFlags(&there, cudaEventDisableTiming)) {
            cudaEventRecord(there, stream);
            cudaStreamWaitEvent(other, there, 0);
            cudaEventDestroy(there);
        }
        add(x, x, how ? other : stream);
        cudaStreamSynchronize(other);
    }).join();
    return launch_captured(2) && all_are(x, how == 1 ? 1 : 2) && all_are(y, 2);
}
static bool pageable_in_capture()
{
    static float host[N];
    begin_capture();
    cudaMemcpyAsync(x, host, sizeof(host), cudaMemcpyHostToDevice, stream);
    return launch_captured(1);
}
static bool allocated_in_capture(bool relaxed)
{
    void *memory;
    begin_capture();
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    if (relaxed)
        cudaThreadExchangeStreamCaptureMode(&mode);
    cudaMalloc(&memory, N * sizeof(float));
    if (relaxed)
        cudaThreadExchangeStreamCaptureMode(&mode);
    add(y, x, stream);
    return launch_captured(2) && all_are(y, 1);
}
static bool allocated_relaxed()
{
    return allocated_in_capture(true);
}
static bool allocated_strictly()
{
    return allocated_in_capture(false);
}
/* Memory of a graph that was freed in between. */
static bool freed_before_launch()
{
    begin_capture();
    add(y, x, stream);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    return !cudaStreamEndCapture(stream, &graph) && !cudaGraphInstantiate(&exec, graph, 0) && !cudaFree(x) &&
           !cudaGraphLaunch(exec, stream) && finish() == cudaSuccess && all_are(y, 1);
}

static bool copy_too_long()
{
    static float host[2 * N];
    return cudaMemcpyAsync(x, host, sizeof(host), cudaMemcpyHostToDevice, stream) == cudaSuccess;
}
static bool freed_twice()
{
    return cudaFree(x) == cudaSuccess && cudaFree(x) == cudaSuccess;
}
static bool host_touches()
{
    *const_cast<volatile float *>(x) = 1;
    return true;
}

#ifdef HAS_NCCL
/* ---- NCCL, of one rank ---- */
/* Only the loader finds it: nothing links NCCL. */
#define NCCL(name) reinterpret_cast<decltype(&name)>(emulator_dlsym(emulator_dlopen("libnccl.so.2", 0), #name))

static ncclComm_t communicator(bool blocking)
{
    ncclUniqueId id;
    ncclComm_t comm = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking;
    ncclResult_t result = NCCL(ncclGetUniqueId)(&id);
    if (!result)
        result = NCCL(ncclCommInitRankConfig)(&comm, 1, id, 0, &config);
    while (result == ncclInProgress)
        NCCL(ncclCommGetAsyncError)(comm, &result);
    return result == ncclSuccess ? comm : nullptr;
}
static bool all_reduce(ncclComm_t comm, const void *from)
{
    return NCCL(ncclAllReduce)(from, y, N, ncclFloat32, ncclSum, comm, stream) == ncclSuccess &&
           finish() == cudaSuccess;
}
static bool nccl_right()
{
    ncclComm_t comm = communicator(true);
    return comm && all_reduce(comm, x) && NCCL(ncclCommFinalize)(comm) == ncclSuccess &&
           NCCL(ncclCommDestroy)(comm) == ncclSuccess;
}
static bool nccl_of_the_host()
{
    static float host[N];
    return all_reduce(communicator(true), host);
}
static bool nccl_after_abort()
{
    ncclComm_t comm = communicator(true);
    return NCCL(ncclCommAbort)(comm) == ncclSuccess && all_reduce(comm, x);
}
static bool nccl_not_finalized()
{
    return NCCL(ncclCommDestroy)(communicator(false)) == ncclSuccess;
}
static bool nccl_no_group()
{
    return NCCL(ncclGroupEnd)() == ncclSuccess;
}
static bool nccl_open_group()
{
    return NCCL(ncclGroupStart)() == ncclSuccess && NCCL(ncclCommFinalize)(communicator(true)) == ncclSuccess;
}
/* A non-blocking call has not put its work on the stream when it returns. */
static bool nccl_not_looked_at()
{
    float got[N];
    ncclComm_t comm = communicator(false);
    cudaMemsetAsync(y, 1, N * sizeof(float), stream);
    if (!comm || NCCL(ncclAllReduce)(x, y, N, ncclFloat32, ncclSum, comm, stream) != ncclInProgress)
        return false;
    cudaMemcpyAsync(got, y, sizeof(got), cudaMemcpyDeviceToHost, stream);
    return got[0] == 0; /* as x is */
}
#endif

#ifdef HAS_DNN
template <dnn_faults::mistake M> static bool dnn_with()
{
    return dnn_faults::convolution(M, stream, x, y);
}
#endif

/* `well`: with every seed; else with at least one of SEEDS seeds it was not, and `says` was said then. */
static const struct {
    const char *name;
    bool (*run)();
    bool well;
    const char *says;
} cases[] = {
    {"a right kernel", right, true, ""},
    {"a read beyond the end", reads_beyond, false, "add_one: block (0, 0, 0), thread (63, 0, 0): 4 bytes at"},
    {"a write before the beginning", writes_before, false, "thread (0, 0, 0)"},
    {"a host's pointer", reads_host, false, "that is no device's memory"},
    {"NULL", reads_null, false, "that is no device's memory"},
    {"a misaligned pointer", misaligned, false, "is not aligned to 4 bytes"},
    {"memory that was freed", reads_freed, false, "that was freed"},
    {"another device's memory", other_device, false, "that is another device's memory"},
    {"shared memory with a barrier", barrier, true, ""},
    {"shared memory without one", no_barrier, false, ""},
    {"a barrier that all reach", all_come, true, ""},
    {"a barrier that some do not reach", some_come, false, "61 wait at a barrier, 0 in a shuffle, and 3 have ended"},
    {"a shuffle of whole warps", whole_warps, true, ""},
    {"a shuffle of half a warp", half_a_warp, false, "no barrier and no warp is complete"},
    {"memory of a warp that meets", warp_meets, true, ""},
    {"memory of a warp that does not", warp_does_not_meet, false, ""},
    {"the last of shared memory", inside_shared, true, ""},
    {"beyond shared memory", outside_shared, false, "byte 36 of 32 bytes of shared memory"},
    {"2,048 threads", too_many_threads, false, "a block has 1 to 1,024 threads"},
    {"64 KiB of shared memory", too_much_shared, false, "more than 48 KiB of shared memory"},
    {"two streams with an event", with_event, true, ""},
    {"two streams without", without_event, false, ""},
    {"pageable memory changed behind a copy", pageable_behind, false, ""},
    {"pinned memory changed behind a copy", pinned_behind, false, ""},
    {"a copy to pageable memory that is waited for", pageable_waited, true, ""},
    {"a copy to pageable memory that is not", pageable_unwaited, false, ""},
    {"pinned memory freed behind a copy", pinned_freed, false, "its pinned memory was freed"},
    {"a copy to another device with an event", peer_with_event, true, ""},
    {"a copy to another device without", peer_without, false, ""},
    {"a copy to another device by way of the host", peer_slow, false, "peer access is not enabled"},
    {"a thread that chose no GPU", of_no_gpu, false, "this thread has chosen no GPU"},
    {"a stream waited for by a thread that chose no GPU", waits_with_no_gpu, false, "this thread has chosen no GPU"},
    {"an event of the stream's GPU", own_event, true, ""},
    {"an event of another GPU", others_event, false, "the event is another GPU's than the stream"},
    {"a graph that is launched three times", replayed, true, ""},
    {"a graph of two streams with events", joined, true, ""},
    {"a graph of two streams whose event comes late", joined_late, false, ""},
    {"a graph of two streams that are not joined", unjoined, false, "was not joined"},
    {"a capture that waits for an event from outside", waits_for_outside, false, "not in the stream's capture"},
    {"a capture in which the stream is waited for", synchronized_in_capture, false, "the stream is being captured"},
    {"a capture and a look at another event, relaxed", queried_relaxed, true, ""},
    {"a capture and another thread's look at an event", queried_by_another, true, ""},
    {"a capture with a look at another event", waited_outside<0>, false, "cudaEventQuery: a stream is being captured"},
    {"a capture that waits for another event", waited_outside<1>, false, "cudaEventSynchronize: a stream is being"},
    {"a capture that waits for another stream", waited_outside<2>, false, "cudaStreamSynchronize: a stream is being"},
    {"a capture and another thread's kernel on its stream", work_of_another<0>, false, "the capture of another thread"},
    {"a capture and another thread's kernel elsewhere", work_of_another<1>, true, ""},
    {"a capture that another thread orders a stream behind", work_of_another<2>, false,
     "the capture of another thread"},
    {"a capture with pageable memory", pageable_in_capture, false, "pageable memory"},
    {"memory that is allocated in a capture, relaxed", allocated_relaxed, true, ""},
    {"memory that is allocated in a capture", allocated_strictly, false, "a stream is being captured"},
    {"memory of a graph that was freed", freed_before_launch, false, "that was freed"},
    {"a copy that is too long", copy_too_long, false, "goes beyond the end of its allocation"},
    {"freed twice", freed_twice, false, "the address is no allocation's"},
    {"the host touches device memory", host_touches, false, ""},
#ifdef HAS_NCCL
    {"NCCL: an all_reduce", nccl_right, true, ""},
    {"NCCL: a host's pointer", nccl_of_the_host, false, "ncclAllReduce: that is no device's memory"},
    {"NCCL: a communicator that was aborted", nccl_after_abort, false, "the communicator was aborted"},
    {"NCCL: destroyed and not finalized", nccl_not_finalized, false, "ncclCommDestroy: it was not finalized"},
    {"NCCL: the end of no group", nccl_no_group, false, "ncclGroupEnd: no group is open"},
    {"NCCL: a group that is not closed", nccl_open_group, false, "ncclCommFinalize: a group is open"},
    {"NCCL: a call in progress", nccl_not_looked_at, false, ""},
#endif
#ifdef HAS_DNN
    {"cuDNN: a convolution", dnn_with<dnn_faults::NONE>, true, ""},
    {"cuDNN: a change after finalising", dnn_with<dnn_faults::CHANGED_LATE>, false, "the descriptor is finalised"},
    {"cuDNN: a value that is not finalised", dnn_with<dnn_faults::VALUE_NOT_FINALIZED>, false, "or not finalised"},
    {"cuDNN: a value that was destroyed", dnn_with<dnn_faults::VALUE_DESTROYED>, false, "is not there"},
    {"cuDNN: a tensor without alignment", dnn_with<dnn_faults::NO_ALIGNMENT>, false, "must be there is not"},
    {"cuDNN: another descriptor's attribute", dnn_with<dnn_faults::OTHER_ATTRIBUTE>, false, "no such attribute"},
    {"cuDNN: sums in halves", dnn_with<dnn_faults::HALF_SUMS>, false, "no such type of computing"},
    {"cuDNN: an output of another shape", dnn_with<dnn_faults::OTHER_SHAPE>, false, "the output has another shape"},
    {"cuDNN: a misaligned pointer", dnn_with<dnn_faults::MISALIGNED>, false, "less aligned than its tensor says"},
    {"cuDNN: a pointer less", dnn_with<dnn_faults::A_POINTER_LESS>, false, "another number of tensors with memory"},
    {"cuDNN: no workspace", dnn_with<dnn_faults::NO_WORKSPACE>, false, "the workspace is not there"},
    {"cuDNN: a descriptor that is left over", dnn_with<dnn_faults::LEFT_OVER>, false, "was never destroyed"},
#endif
};
enum { SEEDS = 8 };

static int run_child(int which)
{
    void *a = nullptr, *b = nullptr;
    if (cudaSetDevice(0) || cudaStreamCreateWithFlags(&stream, 0) || cudaStreamCreateWithFlags(&other, 0) ||
        cudaMalloc(&a, N * sizeof(float)) || cudaMalloc(&b, N * sizeof(float)))
        return 9;
    x = static_cast<float *>(a);
    y = static_cast<float *>(b);
    cudaMemsetAsync(x, 0, N * sizeof(float), stream);
    return cases[which].run() ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 2)
        return run_child(atoi(argv[1]));
    setenv("YOKE_EMULATOR_GPUS", "2", 1);
    size_t count = sizeof(cases) / sizeof(cases[0]);
    int failed = 0;
    printf("1..%zu\n", count);
    for (size_t i = 0; i < count; i++) {
        int well = 0, told = 0;
        for (int seed = 0; seed < SEEDS; seed++) {
            setenv("YOKE_EMULATOR_SEED", std::to_string(seed).c_str(), 1);
            std::string command = std::string("'") + argv[0] + "' " + std::to_string(i) + " 2>&1", said;
            FILE *pipe = popen(command.c_str(), "r");
            char line[1000];
            while (pipe && fgets(line, sizeof(line), pipe))
                said += line;
            int status = pipe ? pclose(pipe) : -1;
            well += status == 0;
            told += status != 0 && said.find(cases[i].says) != std::string::npos;
        }
        bool passed = cases[i].well ? well == SEEDS : told > 0 && well + told == SEEDS;
        printf("%s %zu - %s # %d of %d seeds well\n", passed ? "ok" : "not ok", i + 1, cases[i].name, well, SEEDS);
        failed += !passed;
    }
    return failed != 0;
}
