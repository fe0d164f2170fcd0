/*
 * capture.cc - stand-ins of the calls that capture streams as graphs and launch those. Tests only.
 *
 * Work that is put on a stream that is captured becomes a node after the stream's last ones, its arguments as they are
 * then. A stream that comes to wait for an event of a capture is in it from there on; where the capture ends,
 * everything on such streams must lead back to the stream where it began. A launch is one step of its stream, in which
 * the nodes run in an order that is drawn from those that their edges allow: a missing event inside a graph shows, too.
 * A node that may block (a collective) runs without the lock, on a thread of its own, as branches of a graph run beside
 * one another on a GPU, and the launch then is a host function of the stream.
 */
#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>

#include "tests/emulator/libraries.h"
#include "tests/emulator/streams.h"
#include "tests/emulator/traffic.h"

using emulator::has_chosen;
using emulator::known;
using emulator::locked;
using emulator::refuse;
using emulator::result;
using emulator::streams;

struct CUgraphExec_st {
    std::vector<node> nodes;
};

static thread_local cudaStreamCaptureMode mode_now = cudaStreamCaptureModeGlobal;

cudaError_t emulator::put(CUstream_st *stream, std::function<void()> work, bool any_thread)
{
    capture *c = stream->capture.get();
    if (!c) {
        stream->queue.push_back({std::move(work), nullptr, false});
        return cudaSuccess;
    }
    if (c->broken)
        return result(cudaErrorStreamCaptureInvalidated);
    if (!any_thread && !own_capture(stream, "work that is queued"))
        return cudaErrorStreamCaptureWrongThread;
    c->nodes.push_back({std::move(work), stream->behind, false});
    stream->behind = {c->nodes.size() - 1};
    return cudaSuccess;
}

cudaError_t emulator::break_capture(CUstream_st *stream, const char *call, const char *why, cudaError_t code)
{
    stream->capture->broken = true;
    return refuse(call, why, code);
}

/* Breaks the captures under way, whatever their mode, as cudaDeviceSynchronize of another thread does. For tests, which
 * find it in the plug-in: yoke never calls it. */
extern "C" __attribute__((visibility("default"))) void emulator_synchronize_devices(void)
{
    locked hold(emulator::lock);
    for (CUstream_st *stream : streams)
        if (stream->capture)
            stream->capture->broken = true;
}

bool emulator::own_capture(CUstream_st *stream, const char *call)
{
    bool own = stream->capture->thread == std::this_thread::get_id();
    if (!own)
        break_capture(stream, call, "CUDA would take it into the capture of another thread, which replays it",
                      cudaErrorStreamCaptureWrongThread);
    return own;
}

bool emulator::breaks_capture(const char *call)
{
    if (mode_now == cudaStreamCaptureModeRelaxed)
        return false;
    for (CUstream_st *stream : streams) {
        capture *c = stream->capture.get();
        if (!c || c->mode == cudaStreamCaptureModeRelaxed)
            continue;
        bool own = c->thread == std::this_thread::get_id();
        if (own || (c->mode == cudaStreamCaptureModeGlobal && mode_now == cudaStreamCaptureModeGlobal)) {
            break_capture(stream, call, "a stream is being captured", cudaErrorStreamCaptureUnsupported);
            return true;
        }
    }
    return false;
}

bool emulator::loading_breaks_capture(const char *call)
{
    locked hold(lock);
    return breaks_capture(call);
}

bool emulator::thread_captures()
{
    locked hold(lock);
    for (CUstream_st *stream : streams)
        if (stream->capture && stream->capture->thread == std::this_thread::get_id())
            return true;
    return false;
}

cudaError_t emulator::wait_in_capture(CUstream_st *stream, const CUevent_st *event)
{
    if (!event->capture)
        return !event->recorded ? cudaSuccess
                                : break_capture(stream, "cudaStreamWaitEvent",
                                                "the event is of work that is not in the stream's capture",
                                                cudaErrorStreamCaptureIsolation);
    bool under_way = event->capture->origin->capture == event->capture;
    if (!under_way || event->capture->broken)
        return refuse("cudaStreamWaitEvent", "the event's capture is over", cudaErrorStreamCaptureInvalidated);
    if (stream->capture && stream->capture != event->capture)
        return break_capture(stream, "cudaStreamWaitEvent", "two captures would become one",
                             cudaErrorStreamCaptureMerge);
    if (!own_capture(event->capture->origin, "cudaStreamWaitEvent"))
        return cudaErrorStreamCaptureWrongThread;
    if (!stream->capture)
        stream->behind.clear();
    stream->capture = event->capture;
    for (size_t n : event->behind)
        if (std::find(stream->behind.begin(), stream->behind.end(), n) == stream->behind.end())
            stream->behind.push_back(n);
    return cudaSuccess;
}

/* All nodes are among those that lead to `ends`. */
static bool all_lead_to(const std::vector<node> &nodes, const std::vector<size_t> &ends)
{
    std::vector<bool> leads(nodes.size());
    for (size_t n : ends)
        leads[n] = true;
    for (size_t n = nodes.size(); n-- > 0;)
        if (leads[n])
            for (size_t before : nodes[n].after)
                leads[before] = true;
    return std::find(leads.begin(), leads.end(), false) == leads.end();
}

static void run_all(const std::vector<node> &nodes)
{
    std::vector<size_t> waits(nodes.size());
    std::vector<std::vector<size_t>> next(nodes.size());
    std::vector<size_t> able;
    for (size_t n = 0; n < nodes.size(); n++) {
        waits[n] = nodes[n].after.size();
        for (size_t before : nodes[n].after)
            next[before].push_back(n);
        if (!waits[n])
            able.push_back(n);
    }
    std::mutex own;
    std::condition_variable ended;
    std::vector<size_t> done; /* of those on threads */
    std::vector<std::thread> threads;
    size_t running = 0;
    auto follow = [&](size_t n) {
        for (size_t behind : next[n])
            if (--waits[behind] == 0)
                able.push_back(behind);
    };
    while (!able.empty() || running) {
        if (able.empty()) {
            std::unique_lock<std::mutex> hold(own);
            ended.wait(hold, [&] { return !done.empty(); });
            running -= done.size();
            for (size_t n : done)
                follow(n);
            done.clear();
            continue;
        }
        size_t at = emulator::draw_locked((uint32_t)able.size()), n = able[at];
        able.erase(able.begin() + (long)at);
        if (!nodes[n].host) {
            locked hold(emulator::lock);
            nodes[n].run();
            follow(n);
            continue;
        }
        running++;
        threads.emplace_back([&, n] {
            nodes[n].run();
            std::lock_guard<std::mutex> hold(own);
            done.push_back(n);
            ended.notify_one();
        });
    }
    for (std::thread &t : threads)
        t.join();
}

static void run_nodes(const std::vector<node> &nodes)
{
    emulator::traffic_replay([&] { run_all(nodes); });
}

extern "C" {

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    emulator::count_call(__func__);
    if (!has_chosen("cudaThreadExchangeStreamCaptureMode"))
        return cudaErrorInvalidDevice;
    std::swap(*mode, mode_now);
    return result(cudaSuccess);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    emulator::count_call(__func__);
    locked hold(emulator::lock);
    if (!has_chosen("cudaStreamBeginCapture"))
        return cudaErrorInvalidDevice;
    if (!known(stream))
        return refuse("cudaStreamBeginCapture",
                      "the stream is not one that was made (the legacy one is never captured)",
                      cudaErrorStreamCaptureUnsupported);
    if (stream->capture)
        return refuse("cudaStreamBeginCapture", "the stream is being captured");
    stream->capture = std::make_shared<capture>();
    stream->capture->origin = stream;
    stream->capture->mode = mode;
    stream->capture->thread = std::this_thread::get_id();
    stream->behind.clear();
    return result(cudaSuccess);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    emulator::count_call(__func__);
    locked hold(emulator::lock);
    if (!has_chosen("cudaStreamIsCapturing"))
        return cudaErrorInvalidDevice;
    if (!known(stream))
        return refuse("cudaStreamIsCapturing", "the stream is not one that was made");
    const capture *c = stream->capture.get();
    *status = !c          ? cudaStreamCaptureStatusNone
              : c->broken ? cudaStreamCaptureStatusInvalidated
                          : cudaStreamCaptureStatusActive;
    return result(cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    emulator::count_call(__func__);
    locked hold(emulator::lock);
    if (!has_chosen("cudaStreamEndCapture"))
        return cudaErrorInvalidDevice;
    *graph = nullptr;
    if (!known(stream) || !stream->capture)
        return refuse("cudaStreamEndCapture", "the stream is not being captured");
    std::shared_ptr<capture> c = stream->capture;
    if (c->origin != stream)
        return refuse("cudaStreamEndCapture", "the capture began on another stream", cudaErrorStreamCaptureUnmatched);
    if (c->mode != cudaStreamCaptureModeRelaxed && c->thread != std::this_thread::get_id())
        return refuse("cudaStreamEndCapture", "another thread began it", cudaErrorStreamCaptureWrongThread);
    bool joined = all_lead_to(c->nodes, stream->behind);
    for (CUstream_st *s : streams)
        if (s->capture == c)
            s->capture = nullptr;
    if (c->broken)
        return refuse("cudaStreamEndCapture", "a call in between cannot be captured",
                      cudaErrorStreamCaptureInvalidated);
    if (!joined)
        return refuse("cudaStreamEndCapture", "a stream that was forked off was not joined",
                      cudaErrorStreamCaptureUnjoined);
    return emulator::give(graph, new CUgraph_st{std::move(c->nodes)});
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    emulator::count_call(__func__);
    locked hold(emulator::lock);
    if (!has_chosen("cudaGraphInstantiate"))
        return cudaErrorInvalidDevice;
    return emulator::give(exec, new CUgraphExec_st{graph->nodes});
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    emulator::count_call(__func__);
    delete graph;
    return result(cudaSuccess);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    emulator::count_call(__func__);
    locked hold(emulator::lock);
    if (!has_chosen("cudaGraphExecDestroy"))
        return cudaErrorInvalidDevice;
    delete exec;
    return result(cudaSuccess);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    emulator::count_call(__func__);
    locked hold(emulator::lock);
    if (!has_chosen("cudaGraphLaunch"))
        return cudaErrorInvalidDevice;
    if (!known(stream))
        return refuse("cudaGraphLaunch", "the stream is not one that was made");
    if (stream->capture)
        return emulator::break_capture(stream, "cudaGraphLaunch", "not emulated in a capture",
                                       cudaErrorStreamCaptureUnsupported);
    bool blocks = std::any_of(exec->nodes.begin(), exec->nodes.end(), [](const node &n) { return n.host; });
    if (!blocks)
        return result(emulator::put(stream, [exec] { run_nodes(exec->nodes); }));
    emulator::put_host(stream, [exec] { run_nodes(exec->nodes); });
    return result(cudaSuccess);
}

} // extern "C"
