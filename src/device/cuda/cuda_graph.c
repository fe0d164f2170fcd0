/*
 * cuda_graph.c - work that is captured as a CUDA graph and launched again and again. Layer: device/cuda.
 *
 * One thread captures on a device at a time (device/storage.c refuses the second). The mode is the thread's own: others
 * may go on allocating and copying on other streams. Every kernel of the graph may have written the device's error
 * record, and is to blame for a fault under the name of the replay.
 */
#include <stdlib.h>

#include "device/cuda/checks.h"
#include "device/cuda/cuda.h"

struct yk__graph_exec {
    int device;
    cudaGraphExec_t exec;
};

yk_status cuda_capture_begin(int device)
{
    cudaStream_t stream = NULL;
    yk_status status = cuda_stream(device, YK__QUEUE_COMPUTE, &stream);
    if (status)
        return status;
    cudaError_t code = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    return code ? cuda_failed(device, code, "cudaStreamBeginCapture") : YK_OK;
}

yk_status cuda_capture_end(int device, yk__graph_exec **exec)
{
    cudaStream_t stream = NULL;
    cudaGraph_t graph = NULL;
    *exec = NULL;
    yk_status status = cuda_stream(device, YK__QUEUE_COMPUTE, &stream);
    if (status)
        return status;
    cudaError_t code = cudaStreamEndCapture(stream, &graph);
    if (code || !graph)
        return cuda_failed(device, code ? code : cudaErrorStreamCaptureInvalidated, "cudaStreamEndCapture");
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
    (void)cuda_record_of(exec->device); /* its checks write there */
    cudaError_t code = cudaGraphLaunch(exec->exec, stream);
    return code ? cuda_failed(exec->device, code, "cudaGraphLaunch")
                : cuda_launched(exec->device, "replay of a graph", 0, NULL);
}

void cuda_graph_release(yk__graph_exec *exec)
{
    cudaStream_t stream = NULL;
    yk_error before, unused;
    cuda_base->error_take(&before);
    /* At the end of a process the driver may be gone already, and in a fork it is another's. */
    if (cuda_stream(exec->device, YK__QUEUE_COMPUTE, &stream) || cudaStreamSynchronize(stream) ||
        cudaGraphExecDestroy(exec->exec)) {
        cudaGetLastError();
        cuda_base->error_take(&unused);
    }
    cuda_base->error_put(&before);
    free(exec);
}
