/*
 * cuda_graph.c - work that is captured as a CUDA graph and launched again and again. Layer: device/cuda.
 *
 * One thread captures on a device at a time (device/memory/memory_pools.c refuses the second). Every kernel of the
 * graph may have written the device's error record, and is to blame for a fault under the name of the replay.
 *
 * Note [Streams of a recording]
 * What any thread puts on a stream that is captured is captured, and a wait for such a stream is refused and ends the
 * capture. So a device's streams never are: while a thread records, the device's queues are other streams for it, which
 * nobody else has, and the mode is its own, so that other threads go on with everything: their work is done at once, as
 * without a recording, and is no part of the graph. What the thread itself has to do meanwhile for what lies outside
 * the recording (memory of the device or the host that is released, another graph's end) it does in the relaxed mode
 * and on the device's own streams.
 */
#include <stdlib.h>

#include "device/cuda/checks.h"
#include "device/cuda/cuda.h"

struct yk__graph_exec {
    int device;
    cudaGraphExec_t exec;
};

static _Thread_local cudaStream_t captured; /* the stream that the calling thread's recording began on */

yk_status cuda_capture_begin(int device)
{
    cudaStream_t stream = NULL;
    captured = NULL;
    cuda_record_on(device);
    yk_status status = cuda_stream(device, YK__QUEUE_COMPUTE, &stream);
    cudaError_t code = status ? cudaSuccess : cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    if (status || code)
        cuda_record_on(-1);
    else
        captured = stream;
    return code ? cuda_failed(device, code, "cudaStreamBeginCapture") : status;
}

yk_status cuda_capture_end(int device, yk__graph_exec **exec)
{
    cudaStream_t own = NULL;
    cudaGraph_t graph = NULL;
    *exec = NULL;
    yk_status status = cuda_stream(device, YK__QUEUE_COMPUTE, &own); /* makes the GPU this thread's */
    cuda_record_on(-1);
    cudaError_t code = captured ? cudaStreamEndCapture(captured, &graph) : cudaErrorStreamCaptureInvalidated;
    captured = NULL;
    if (status) {
        if (graph)
            cudaGraphDestroy(graph);
        return status;
    }
    if (code == cudaErrorStreamCaptureInvalidated) {
        cudaGetLastError();
        return cuda_fail(YK_ERR_STATE,
                         "cuda:%d: the recording was ended by a call that it forbids, of the function's, or of "
                         "something else in the process that waited for the whole device (cudaDeviceSynchronize)",
                         device);
    }
    if (code || !graph)
        return cuda_failed(device, code ? code : cudaErrorUnknown, "cudaStreamEndCapture");
    yk__graph_exec *made = malloc(sizeof(*made));
    if (made) {
        made->device = device;
        code = cudaGraphInstantiate(&made->exec, graph, 0);
    }
    cudaGraphDestroy(graph);
    if (made && !code) {
        *exec = made;
        return YK_OK;
    }
    free(made);
    return code ? cuda_failed(device, code, "cudaGraphInstantiate")
                : cuda_fail(YK_ERR_MEMORY, "out of memory: %zu bytes were asked for", sizeof(*made));
}

yk_status cuda_graph_launch(yk__graph_exec *exec)
{
    cudaStream_t stream = NULL;
    yk_status status = cuda_stream(exec->device, YK__QUEUE_COMPUTE, &stream);
    if (status)
        return status;
    cudaError_t code = cudaGraphLaunch(exec->exec, stream);
    cuda_checks_queued(exec->device); /* the graph may have kernels that write the error record */
    return code ? cuda_failed(exec->device, code, "cudaGraphLaunch")
                : cuda_launched(exec->device, "replay of a graph", 0, NULL);
}

void cuda_graph_release(yk__graph_exec *exec)
{
    cudaStream_t stream = NULL;
    yk_error before, unused;
    cuda_base->error_take(&before);
    cuda_outside outside = cuda_outside_begin();
    /* At the end of a process the driver may be gone already, and in a fork it is another's. */
    if (cuda_stream(exec->device, YK__QUEUE_COMPUTE, &stream) || cudaStreamSynchronize(stream) ||
        cudaGraphExecDestroy(exec->exec)) {
        cudaGetLastError();
        cuda_base->error_take(&unused);
    }
    cuda_outside_end(outside);
    cuda_base->error_put(&before);
    free(exec);
}
