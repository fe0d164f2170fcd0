/*
 * runtime.cc - stand-ins of the calls of the CUDA runtime that the backend makes. Tests only.
 *
 * What is queued on a stream is carried out when somebody waits for it: one step at a time, from a stream that is drawn
 * from those whose next step may be taken, so that a wait for an event that was forgotten shows as wrong numbers. A
 * copy from or to pinned memory is carried out then, too; one from or to pageable memory either then or at the call, by
 * a draw: CUDA promises neither. After a fault every call fails, as on a GPU. One lock is around everything, but not
 * around a host function: it may block. So a stream that has one queued is not left until somebody waits; a thread for
 * each carries it out. Host functions of the program run one at a time, in all streams of the process, as CUDA may
 * carry them out: one that waits for another hangs. YOKE_EMULATOR_HOST_FUNCTIONS=parallel is for tests that keep
 * several GPUs busy by them. What stands for a kernel of a library that blocks does not count.
 *
 * What a thread does before it chose a GPU is refused: CUDA would take GPU 0, and make a context there. So is a copy
 * between GPUs that could reach each other and may not. YOKE_EMULATOR_LOSE_AFTER=N loses all GPUs at the N-th call;
 * YOKE_EMULATOR_FAULT=softmax lets the kernels of that operation fault.
 */
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include <cuda.h>
#include <unistd.h>

#include "tests/emulator/libraries.h"
#include "tests/emulator/streams.h"
#include "tests/emulator/traffic.h"

using emulator::draw;
using emulator::has_chosen;
using emulator::known;
using emulator::locked;
using emulator::refuse;
using emulator::result;

/* Never destroyed, as the memory's tables. */
std::recursive_mutex &emulator::lock = *new std::recursive_mutex;
std::vector<CUstream_st *> &emulator::streams = *new std::vector<CUstream_st *>;
using emulator::lock;
using emulator::streams;
static cudaError_t lost = cudaSuccess; /* for good */
static std::condition_variable_any &changed = *new std::condition_variable_any;
static thread_local cudaError_t last = cudaSuccess;
static thread_local int device_now;
static thread_local bool chosen; /* by this thread: device_now */
static thread_local CUcontext foreign;
enum { MOST_GPUS = 64 };
static bool peers[MOST_GPUS][MOST_GPUS]; /* the first may reach the second's memory */

static std::mutex &calls_lock = *new std::mutex;
static std::map<std::string, long long> &call_counts = *new std::map<std::string, long long>;

void emulator::count_call(const char *name)
{
    std::lock_guard<std::mutex> held(calls_lock);
    call_counts[name]++;
}

/* The number of these calls; of all calls where name is NULL. For tests, which find it in the plug-in. */
extern "C" __attribute__((visibility("default"))) long long emulator_calls(const char *name)
{
    std::lock_guard<std::mutex> held(calls_lock);
    long long all = 0;
    for (const auto &call : call_counts)
        all += !name || call.first == name ? call.second : 0;
    return all;
}
/* The name of the i-th call, or NULL. */
extern "C" __attribute__((visibility("default"))) const char *emulator_call_name(int i)
{
    std::lock_guard<std::mutex> held(calls_lock);
    for (const auto &call : call_counts)
        if (i-- == 0)
            return call.first.c_str();
    return nullptr;
}

static int number(const char *name, int fallback)
{
    const char *text = getenv(name);
    return text ? atoi(text) : fallback;
}

cudaError_t emulator::result(cudaError_t code)
{
    static const int lose_after = number("YOKE_EMULATOR_LOSE_AFTER", 0);
    static std::atomic<int> calls{0};
    if (lose_after && ++calls >= lose_after)
        lost = cudaErrorUnknown;
    if (lost)
        code = lost;
    if (code)
        last = code;
    return code;
}

/* A call that the manual forbids; the test fails by what comes of it, and the reader finds this. */
cudaError_t emulator::refuse(const char *call, const char *why, cudaError_t code)
{
    fprintf(stderr, "emulator: %s: %s\n", call, why);
    return result(code);
}

bool emulator::has_chosen(const char *call)
{
    if (!chosen && !lost)
        refuse(call, "this thread has chosen no GPU: CUDA would make a context on GPU 0", cudaErrorInvalidDevice);
    else if (foreign && !lost)
        refuse(call, "another library's context is this thread's, which has none of the streams",
               cudaErrorInvalidDevice);
    return chosen && !foreign;
}

static bool program_runs; /* a host function of the program */

static bool ready(const CUstream_st *stream)
{
    if (stream->busy || stream->queue.empty() || (stream->queue.front().program && program_runs))
        return false;
    return !stream->queue.front().after || *stream->queue.front().after;
}

/* Takes the next step of the stream. */
static void take_step(CUstream_st *stream)
{
    step next = std::move(stream->queue.front());
    stream->queue.pop_front();
    if (next.host) {
        stream->busy = true;
        stream->host_functions--;
        program_runs |= next.program;
        lock.unlock();
        next.run();
        lock.lock();
        program_runs &= !next.program;
        stream->busy = false;
    } else {
        next.run();
    }
    changed.notify_all();
}

/* Devices go on by themselves: a look finds a step of some stream done. */
static void go_on()
{
    std::vector<CUstream_st *> able;
    for (CUstream_st *stream : streams)
        if (ready(stream) && !stream->queue.front().host)
            able.push_back(stream);
    if (!able.empty() && !lost)
        take_step(able[draw((uint32_t)able.size())]);
}

/* Until nothing is left in `wanted`, or until `until` has passed. Host functions of the stream `own` are carried out
 * here, those of others by their own threads: whoever waits for one stream does not block in another's. */
static void carry_out(CUstream_st *wanted, const moment &until, CUstream_st *own = nullptr)
{
    while (!lost && (wanted ? wanted->busy || !wanted->queue.empty() : !*until)) {
        std::vector<CUstream_st *> able;
        bool others = false;
        for (CUstream_st *stream : streams) {
            bool host = ready(stream) && stream->queue.front().host && stream != own;
            others |= stream->busy || host;
            if (ready(stream) && !host)
                able.push_back(stream);
        }
        if (able.empty() && others) {
            changed.wait(lock);
            continue;
        }
        if (able.empty()) {
            fprintf(stderr, "emulator: a stream waits for an event that never comes\n");
            lost = cudaErrorUnknown;
            break;
        }
        take_step(able[draw((uint32_t)able.size())]);
    }
    if (lost) {
        for (CUstream_st *stream : streams) {
            stream->queue.clear();
            stream->host_functions = 0;
        }
        changed.notify_all();
    }
}

/* The thread of a stream with host functions. */
static void drive(CUstream_st *stream)
{
    std::unique_lock<std::recursive_mutex> hold(lock);
    for (;;) {
        if (stream->host_functions && !lost)
            carry_out(stream, nullptr, stream);
        else
            changed.wait(lock);
    }
}

void emulator::put_host(CUstream_st *stream, std::function<void()> work, bool program)
{
    stream->queue.push_back({std::move(work), nullptr, true, program});
    stream->host_functions++;
    if (!stream->driven) {
        stream->driven = true;
        std::thread(drive, stream).detach();
    }
    changed.notify_all();
}

bool emulator::known(CUstream_st *stream)
{
    for (CUstream_st *s : streams)
        if (s == stream)
            return true;
    return false;
}

/* ---- kernels ---- */
cudaError_t emulator::queue_kernel(const char *name, const void *kernel, dim3 grid, dim3 block, size_t shared_bytes,
                                   cudaStream_t stream, std::function<void()> body)
{
    count_call("cudaLaunchKernel");
    locked hold(lock);
    if (!lost && !has_chosen(name))
        return cudaErrorInvalidDevice;
    size_t threads = (size_t)block.x * block.y * block.z;
    const char *why = nullptr;
    if (!known(stream))
        why = "the stream is not one that was made";
    else if (stream->device != device_now)
        why = "the stream is another device's";
    else if (threads < 1 || threads > 1024 || block.z > 64)
        why = "a block has 1 to 1,024 threads";
    else if (grid.x < 1 || grid.y < 1 || grid.z < 1 || grid.x > 0x7FFFFFFF || grid.y > 65535 || grid.z > 65535)
        why = "a grid has 1 to 2^31 - 1 blocks, 65,535 in y and z";
    else if (shared_bytes > 48 << 10)
        why = "more than 48 KiB of shared memory";
    if (why) {
        fprintf(stderr, "emulator: launch of %s: %s\n", name, why);
        return result(cudaErrorInvalidConfiguration);
    }
    int device = stream->device;
    const char *faulty = getenv("YOKE_EMULATOR_FAULT");
    bool faults = faulty && strcmp(faulty, name) == 0;
    traffic_item item = traffic_queued(name, kernel, (size_t)grid.x * grid.y * grid.z, threads);
    cudaError_t code = emulator::put(stream, [=] {
        traffic_run(item, [&] {
            if (faults || !emulator::run_kernel(name, device, grid, block, shared_bytes, body))
                lost = cudaErrorIllegalAddress;
        });
    });
    return code ? code : result(cudaSuccess); /* or what failed before */
}

/* ---- libraries ---- */
bool emulator::queue_timed(const char *call, cudaStream_t stream, std::function<void()> work, float milliseconds)
{
    locked hold(lock);
    if (!known(stream) || stream->device != device_now) {
        refuse(call, "the stream is not one of this device");
        return false;
    }
    traffic_item item = traffic_queued(call);
    bool captured = stream->capture != nullptr;
    return emulator::put(stream, [=] {
               traffic_run(item, work);
               stream->clock += captured ? 0 : milliseconds;
           }) == cudaSuccess;
}

bool emulator::queue_library(const char *call, cudaStream_t stream, std::function<void()> work)
{
    return queue_timed(call, stream, std::move(work), 0);
}

bool emulator::queue_blocking(const char *call, cudaStream_t stream, std::function<void()> work, bool *captured)
{
    locked hold(lock);
    *captured = false;
    if (!known(stream) || lost) {
        refuse(call, "the stream is not one that was made, or the device is lost");
        return false;
    }
    *captured = stream->capture != nullptr;
    if (!*captured) {
        put_host(stream, std::move(work));
        return true;
    }
    if (put(stream, std::move(work), true) != cudaSuccess)
        return false;
    stream->capture->nodes.back().host = true;
    return true;
}

void emulator::library_fault(const char *call, const char *why)
{
    fprintf(stderr, "emulator: %s: %s\n", call, why);
    lost = cudaErrorIllegalAddress;
}

int emulator::present_device()
{
    return device_now;
}

bool emulator::has_room_for_handle()
{
    enum { HANDLE = 256 << 10 }; /* bytes; real ones take some MiB */
    locked hold(lock);
    size_t left, total;
    emulator::memory_figures(device_now, &left, &total);
    return left >= HANDLE;
}

int emulator::device_of_stream(cudaStream_t stream)
{
    locked hold(lock);
    return known(stream) ? stream->device : -1;
}

void *emulator::locate(const void *address, size_t bytes, int device, const char **why)
{
    locked hold(lock);
    return bytes_of(address, bytes, device, why);
}

uint32_t emulator::draw_locked(uint32_t bound)
{
    locked hold(lock);
    return draw(bound);
}

/* ---- the runtime's functions ---- */
extern "C" {

cudaError_t cudaRuntimeGetVersion(int *version)
{
    emulator::count_call(__func__);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

/* The number of GPUs that CUDA_VISIBLE_DEVICES leaves; *gpu is the machine's number of the `which`-th of them. It is
 * read as CUDA reads it: numbers (or GPU-..., of which there is none here), the list ends before the first that is no
 * GPU, and one that is named twice leaves nothing. */
static int visible_gpus(int which, int *gpu)
{
    int all = number("YOKE_EMULATOR_GPUS", 1), taken[MOST_GPUS], count = 0;
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    *gpu = which;
    if (!text)
        return all;
    for (char *end; count < MOST_GPUS; text = end + 1) {
        long number = strtol(text, &end, 10);
        if (end == text || number < 0 || number >= all)
            break;
        for (int i = 0; i < count; i++) {
            if (taken[i] == number)
                return 0;
        }
        taken[count++] = (int)number;
        end += strspn(end, " ");
        if (*end != ',')
            break;
    }
    *gpu = which < count ? taken[which] : which;
    return count;
}

/* The driver belongs to the process that started it. */
static bool is_forked()
{
    static std::atomic<pid_t> owner{0};
    pid_t none = 0, own = getpid();
    return !owner.compare_exchange_strong(none, own) && none != own;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    emulator::count_call(__func__);
    int first;
    *count = visible_gpus(0, &first);
    if (is_forked())
        return result(cudaErrorInitializationError);
    if (number("YOKE_EMULATOR_DRIVER", CUDART_VERSION) < CUDART_VERSION / 1000 * 1000)
        return result(cudaErrorInsufficientDriver);
    return *count ? cudaSuccess : result(cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device)
{
    emulator::count_call(__func__);
    if (is_forked())
        return result(cudaErrorInitializationError);
    int gpu;
    if (device < 0 || device >= visible_gpus(device, &gpu))
        return result(cudaErrorInvalidDevice);
    device_now = device;
    chosen = true;
    foreign = nullptr;
    return result(cudaSuccess);
}

/* A call of the driver, which it does not start. */
CUresult cuDriverGetVersion(int *version)
{
    emulator::count_call(__func__);
    *version = number("YOKE_EMULATOR_DRIVER", CUDART_VERSION);
    return CUDA_SUCCESS;
}

/* The primary contexts of the driver: a GPU's is the address of its byte. */
static char contexts[MOST_GPUS];

CUresult cuCtxGetCurrent(CUcontext *context)
{
    emulator::count_call(__func__);
    if (is_forked())
        return CUDA_ERROR_NOT_INITIALIZED;
    *context = foreign ? foreign : chosen ? reinterpret_cast<CUcontext>(&contexts[device_now]) : nullptr;
    return CUDA_SUCCESS;
}

/* A change that another library may make between our calls: for tests. */
CUresult cuCtxSetCurrent(CUcontext context)
{
    char *byte = reinterpret_cast<char *>(context);
    bool primary = byte >= contexts && byte < contexts + MOST_GPUS;
    chosen = context;
    foreign = primary ? nullptr : context;
    if (primary)
        device_now = (int)(byte - contexts);
    return CUDA_SUCCESS;
}

cudaError_t cudaDeviceGetPCIBusId(char *bus, int size, int device)
{
    emulator::count_call(__func__);
    int gpu;
    if (device < 0 || device >= visible_gpus(device, &gpu))
        return result(cudaErrorInvalidDevice);
    snprintf(bus, (size_t)size, "0000:%02X:00.0", gpu);
    return result(cudaSuccess);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int other)
{
    emulator::count_call(__func__);
    *can = device != other;
    return result(cudaSuccess);
}

cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned)
{
    emulator::count_call(__func__);
    locked hold(lock);
    if (!has_chosen("cudaDeviceEnablePeerAccess"))
        return cudaErrorInvalidDevice;
    if (other == device_now || peers[device_now][other])
        return refuse("cudaDeviceEnablePeerAccess", "it is this GPU, or was enabled before",
                      cudaErrorPeerAccessAlreadyEnabled);
    peers[device_now][other] = true;
    return result(cudaSuccess);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    emulator::count_call(__func__);
    (void)device;
    *value = attribute == cudaDevAttrMultiProcessorCount ? number("YOKE_EMULATOR_PROCESSORS", 2) : 0;
    return result(attribute == cudaDevAttrMultiProcessorCount ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    emulator::count_call(__func__);
    locked hold(lock);
    if (lost)
        return result(lost);
    if (!has_chosen("cudaMalloc"))
        return cudaErrorInvalidDevice;
    if (emulator::breaks_capture("cudaMalloc"))
        return result(cudaErrorStreamCaptureUnsupported);
    *memory = bytes ? emulator::allocate(device_now, bytes) : nullptr;
    return result(*memory || !bytes ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void *memory)
{
    emulator::count_call(__func__);
    locked hold(lock);
    if (!memory)
        return result(cudaSuccess);
    if (!lost && !has_chosen("cudaFree"))
        return cudaErrorInvalidDevice;
    if (emulator::breaks_capture("cudaFree"))
        return result(cudaErrorStreamCaptureUnsupported);
    for (CUstream_st *stream : streams)
        if (stream->device == device_now)
            carry_out(stream, nullptr);
    return emulator::release(memory) ? result(cudaSuccess) : refuse("cudaFree", "the address is no allocation's");
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *total)
{
    emulator::count_call(__func__);
    locked hold(lock);
    if (!lost && !has_chosen("cudaMemGetInfo"))
        return cudaErrorInvalidDevice;
    emulator::memory_figures(device_now, left, total);
    return result(cudaSuccess);
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned)
{
    emulator::count_call(__func__);
    locked hold(lock);
    if (!has_chosen("cudaHostAlloc"))
        return cudaErrorInvalidDevice;
    if (emulator::breaks_capture("cudaHostAlloc"))
        return result(cudaErrorStreamCaptureUnsupported);
    void *made = emulator::allocate_pinned(bytes);
    cudaError_t code = result(made ? cudaSuccess : cudaErrorMemoryAllocation);
    if (!code)
        *memory = made;
    else if (made)
        emulator::release_pinned(made);
    return code;
}

cudaError_t cudaFreeHost(void *memory)
{
    emulator::count_call(__func__);
    locked hold(lock);
    if (!lost && !has_chosen("cudaFreeHost"))
        return cudaErrorInvalidDevice;
    if (emulator::breaks_capture("cudaFreeHost"))
        return result(cudaErrorStreamCaptureUnsupported);
    return emulator::release_pinned(memory) ? result(cudaSuccess) : refuse("cudaFreeHost", "nobody has that");
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    emulator::count_call(__func__);
    locked hold(lock);
    if (!lost && !has_chosen("cudaMemcpyAsync"))
        return cudaErrorInvalidDevice;
    if (lost)
        return result(lost);
    if (!known(stream) || stream->device != device_now)
        return refuse("cudaMemcpyAsync", "the stream is not one of this device");
    const char *why = nullptr;
    bool to_device = kind != cudaMemcpyDeviceToHost, from_device = kind != cudaMemcpyHostToDevice;
    void *target = to_device ? emulator::bytes_of(to, bytes, -1, &why) : to;
    const void *source = from_device && !why ? emulator::bytes_of(from, bytes, -1, &why) : from;
    if (!why && ((!to_device && emulator::is_device_memory(to)) || (!from_device && emulator::is_device_memory(from))))
        why = "memory of a device where the host's was said";
    if (why)
        return refuse("cudaMemcpyAsync", why);
    bool pageable =
        (!from_device && !emulator::is_pinned(from, bytes)) || (!to_device && !emulator::is_pinned(to, bytes));
    if (pageable && stream->capture)
        return emulator::break_capture(stream, "cudaMemcpyAsync", "pageable memory", cudaErrorStreamCaptureUnsupported);
    bool at_once = pageable && draw(2); /* "might be synchronous with respect to host" */
    std::shared_ptr<std::vector<char>> now;
    if (!from_device && at_once)
        now = std::make_shared<std::vector<char>>((const char *)from, (const char *)from + bytes);
    emulator::traffic_item item = emulator::traffic_queued("cudaMemcpyAsync");
    cudaError_t code = emulator::put(stream, [=] {
        const char *gone = nullptr;
        const void *host = to_device ? from : to;
        if (!pageable && !(to_device && from_device) && !emulator::is_pinned(host, bytes))
            emulator::library_fault("a copy that was queued", "its pinned memory was freed");
        else if ((to_device && !emulator::bytes_of(to, bytes, -1, &gone)) ||
                 (from_device && !emulator::bytes_of(from, bytes, -1, &gone)))
            emulator::library_fault("a copy that was queued", gone);
        else
            emulator::traffic_run(item, [&] {
                emulator::traffic_call("", from_device ? (double)bytes : 0, to_device ? (double)bytes : 0, 0);
                memmove(target, now ? now->data() : source, bytes);
            });
    });
    if (!to_device && at_once)
        carry_out(stream, nullptr);
    return result(code);
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                                cudaStream_t stream)
{
    emulator::count_call(__func__);
    locked hold(lock);
    if (!lost && !has_chosen("cudaMemcpyPeerAsync"))
        return cudaErrorInvalidDevice;
    const char *why = nullptr;
    if (lost)
        return result(lost);
    if (!known(stream) || (stream->device != to_device && stream->device != from_device))
        return refuse("cudaMemcpyPeerAsync", "the stream is of neither device");
    void *target = emulator::bytes_of(to, bytes, to_device, &why);
    const void *source = why ? nullptr : emulator::bytes_of(from, bytes, from_device, &why);
    if (why)
        return refuse("cudaMemcpyPeerAsync", why);
    if (to_device != from_device && !(peers[to_device][from_device] && peers[from_device][to_device]))
        return refuse("cudaMemcpyPeerAsync", "it would go through the host: peer access is not enabled");
    return result(emulator::put(stream, [=] { memmove(target, source, bytes); }));
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    emulator::count_call(__func__);
    locked hold(lock);
    if (!lost && !has_chosen("cudaMemsetAsync"))
        return cudaErrorInvalidDevice;
    const char *why = nullptr;
    void *target = known(stream) ? emulator::bytes_of(to, bytes, stream->device, &why) : nullptr;
    if (!target)
        return refuse("cudaMemsetAsync", why ? why : "the stream is not one that was made");
    emulator::traffic_item item = emulator::traffic_queued("cudaMemsetAsync");
    return result(emulator::put(stream, [=] {
        emulator::traffic_run(item, [&] {
            emulator::traffic_call("", 0, (double)bytes, 0);
            memset(target, value, bytes);
        });
    }));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    emulator::count_call(__func__);
    locked hold(lock);
    if (!has_chosen("cudaStreamCreateWithFlags"))
        return cudaErrorInvalidDevice;
    *stream = new CUstream_st;
    (*stream)->device = device_now;
    streams.push_back(*stream);
    return result(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    emulator::count_call(__func__);
    locked hold(lock);
    if (!lost && !has_chosen("cudaStreamSynchronize"))
        return cudaErrorInvalidDevice;
    if (!known(stream))
        return refuse("cudaStreamSynchronize", "the stream is not one that was made");
    if (stream->capture)
        return emulator::break_capture(stream, "cudaStreamSynchronize", "the stream is being captured",
                                       cudaErrorStreamCaptureUnsupported);
    if (emulator::breaks_capture("cudaStreamSynchronize"))
        return result(cudaErrorStreamCaptureUnsupported);
    carry_out(stream, nullptr);
    return result(cudaSuccess);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    emulator::count_call(__func__);
    locked hold(lock);
    if (!has_chosen("cudaStreamQuery"))
        return cudaErrorInvalidDevice;
    if (!known(stream))
        return refuse("cudaStreamQuery", "the stream is not one that was made");
    if (stream->capture)
        return emulator::break_capture(stream, "cudaStreamQuery", "the stream is being captured",
                                       cudaErrorStreamCaptureUnsupported);
    if (emulator::breaks_capture("cudaStreamQuery"))
        return result(cudaErrorStreamCaptureUnsupported);
    return result(lost ? lost : stream->queue.empty() ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *argument)
{
    emulator::count_call(__func__);
    locked hold(lock);
    if (!lost && !has_chosen("cudaLaunchHostFunc"))
        return cudaErrorInvalidDevice;
    if (lost)
        return result(lost);
    if (!known(stream))
        return refuse("cudaLaunchHostFunc", "the stream is not one that was made");
    if (stream->capture) /* CUDA would capture it */
        return emulator::break_capture(stream, "cudaLaunchHostFunc", "not emulated in a capture",
                                       cudaErrorStreamCaptureUnsupported);
    const char *how = getenv("YOKE_EMULATOR_HOST_FUNCTIONS");
    emulator::put_host(
        stream, [=] { fn(argument); }, !how || strcmp(how, "parallel") != 0);
    return result(cudaSuccess);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    emulator::count_call(__func__);
    locked hold(lock);
    if (!has_chosen("cudaEventCreateWithFlags"))
        return cudaErrorInvalidDevice;
    CUevent_st *made = new CUevent_st;
    made->timing = !(flags & cudaEventDisableTiming);
    made->device = device_now;
    return emulator::give(event, made);
}

/* Both have passed, and were made to be timed. */
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end)
{
    emulator::count_call(__func__);
    locked hold(lock);
    if (!has_chosen("cudaEventElapsedTime"))
        return cudaErrorInvalidDevice;
    for (cudaEvent_t event : {begin, end})
        if (!event->timing || !event->recorded || event->capture)
            return refuse("cudaEventElapsedTime", "an event was made without timing, or is not recorded",
                          cudaErrorInvalidResourceHandle);
    if (lost)
        return result(lost);
    if (!*begin->recorded || !*end->recorded)
        return cudaErrorNotReady;
    *milliseconds = *end->time - *begin->time;
    return result(cudaSuccess);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    emulator::count_call(__func__);
    locked hold(lock);
    if (!has_chosen("cudaEventDestroy"))
        return cudaErrorInvalidDevice;
    delete event;
    return result(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    emulator::count_call(__func__);
    locked hold(lock);
    if (!lost && !has_chosen("cudaEventRecord"))
        return cudaErrorInvalidDevice;
    if (!known(stream))
        return refuse("cudaEventRecord", "the stream is not one that was made");
    if (event->device != stream->device)
        return refuse("cudaEventRecord", "the event is another GPU's than the stream", cudaErrorInvalidResourceHandle);
    if (stream->capture && !emulator::own_capture(stream, "cudaEventRecord"))
        return cudaErrorStreamCaptureWrongThread;
    if (stream->capture) {
        event->capture = stream->capture;
        event->behind = stream->behind;
        return result(cudaSuccess);
    }
    moment passed = std::make_shared<bool>(false);
    std::shared_ptr<float> time = std::make_shared<float>(0.0f);
    event->recorded = passed;
    event->time = time;
    event->capture = nullptr;
    return result(emulator::put(stream, [=] {
        *passed = true;
        *time = stream->clock;
    }));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    emulator::count_call(__func__);
    locked hold(lock);
    if (!lost && !has_chosen("cudaStreamWaitEvent"))
        return cudaErrorInvalidDevice;
    if (!known(stream))
        return refuse("cudaStreamWaitEvent", "the stream is not one that was made");
    if (event->capture || stream->capture)
        return result(emulator::wait_in_capture(stream, event));
    stream->queue.push_back({[] {}, event->recorded, false}); /* one that was never recorded is no reason to wait */
    return result(cudaSuccess);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    emulator::count_call(__func__);
    locked hold(lock);
    if (!has_chosen("cudaEventSynchronize"))
        return cudaErrorInvalidDevice;
    if (event->capture)
        return refuse("cudaEventSynchronize", "the event was recorded in a capture", cudaErrorCapturedEvent);
    if (emulator::breaks_capture("cudaEventSynchronize"))
        return result(cudaErrorStreamCaptureUnsupported);
    if (event->recorded)
        carry_out(nullptr, event->recorded);
    return result(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    emulator::count_call(__func__);
    locked hold(lock);
    if (!has_chosen("cudaEventQuery"))
        return cudaErrorInvalidDevice;
    if (event->capture)
        return refuse("cudaEventQuery", "the event was recorded in a capture", cudaErrorCapturedEvent);
    if (emulator::breaks_capture("cudaEventQuery"))
        return result(cudaErrorStreamCaptureUnsupported);
    if (lost)
        return result(lost);
    go_on();
    return result(!event->recorded || *event->recorded ? cudaSuccess : cudaErrorNotReady);
}

/* A thread may drive it: it is empty and forgotten, and not freed. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    emulator::count_call(__func__);
    locked hold(lock);
    if (!lost && !has_chosen("cudaStreamDestroy"))
        return cudaErrorInvalidDevice;
    if (!known(stream))
        return refuse("cudaStreamDestroy", "the stream is not one that was made");
    carry_out(stream, nullptr);
    for (size_t i = 0; i < streams.size(); i++)
        if (streams[i] == stream)
            streams.erase(streams.begin() + (ptrdiff_t)i);
    return result(cudaSuccess);
}

cudaError_t cudaGetLastError(void)
{
    emulator::count_call(__func__);
    cudaError_t code = lost ? lost : last;
    last = cudaSuccess;
    return code;
}

const char *cudaGetErrorName(cudaError_t code)
{
    switch (code) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorUnknown: return "cudaErrorUnknown";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorCapturedEvent: return "cudaErrorCapturedEvent";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureMerge: return "cudaErrorStreamCaptureMerge";
    case cudaErrorStreamCaptureUnmatched: return "cudaErrorStreamCaptureUnmatched";
    case cudaErrorStreamCaptureUnjoined: return "cudaErrorStreamCaptureUnjoined";
    case cudaErrorStreamCaptureIsolation: return "cudaErrorStreamCaptureIsolation";
    case cudaErrorStreamCaptureWrongThread: return "cudaErrorStreamCaptureWrongThread";
    default: return "an error of CUDA";
    }
}

const char *cudaGetErrorString(cudaError_t code)
{
    return cudaGetErrorName(code);
}

} // extern "C"

static const emulator::function driver_functions[] = {
    {"cuDriverGetVersion", reinterpret_cast<void *>(cuDriverGetVersion)},
    {"cuCtxGetCurrent", reinterpret_cast<void *>(cuCtxGetCurrent)},
    {nullptr, nullptr},
};
const emulator::library emulator::driver_library = {"libcuda.so", driver_functions};
