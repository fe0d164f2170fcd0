/*
 * nccl_wait.c - waiting for NCCL, and failures. Layer: comm/nccl.
 *
 * NCCL itself notices a rank that is gone over a network, and none that is stopped, or gone on the same host: its
 * kernels wait for ever. So every wait looks at the clock, at the communicator's own error, and at the control group:
 * whether it is broken, and whether the processes of the others run.
 */
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "comm/nccl/nccl_backend.h"

/* Seconds: for which a wait offers its core between looks, before it sleeps NAP; between looks at the other ranks; that
 * an operation whose rank has ended is given to be done, because what that rank had to send may have come; and that an
 * aborted stream is given. */
static const double OFFER = 1e-4, NAP = 5e-5, LOOK = 0.1, AFTER_END = 0.4, AFTER_ABORT = 1;

static const char *describe(const nccl_group *g, const yk__comm_op *op, char *text, size_t size)
{
    char what[160], who[120];
    snprintf(text, size, "%s of %s", nccl_yoke->describe(op, what, sizeof(what)),
             nccl_yoke->native_rank_name(g->control, g->rank, who, sizeof(who)));
    return text;
}

yk_status nccl_failed(const nccl_group *g, const yk__comm_op *op, const char *call, ncclResult_t code)
{
    char text[300];
    const char *last = nccl.ncclGetLastError(g->comm);
    return nccl_fail(code == ncclUnhandledCudaError ? YK_ERR_DEVICE : YK_ERR_CONNECTION,
                     "%s: %s: NCCL says: %s%s%.300s", describe(g, op, text, sizeof(text)), call,
                     nccl.ncclGetErrorString(code), last && *last ? ": " : "", last ? last : "");
}

yk_status nccl_cuda_failed(const nccl_group *g, const yk__comm_op *op, const char *call, cudaError_t code)
{
    char text[300];
    return nccl_fail(code == cudaErrorMemoryAllocation ? YK_ERR_MEMORY : YK_ERR_DEVICE, "%s on cuda:%d: %s: %s (%s)",
                     describe(g, op, text, sizeof(text)), g->device, call, cudaGetErrorString(code),
                     cudaGetErrorName(code));
}

typedef struct waiting {
    double began, looked, ended_at;
} waiting;

/* What a wait does between two looks at what it waits for. `for_what`: for the error when time is up. */
static yk_status look_around(nccl_group *g, const yk__comm_op *op, waiting *w, double seconds, const char *for_what)
{
    double now = nccl_base->now();
    if (w->began == 0)
        w->began = w->looked = now;
    yk_status status = nccl_yoke->native->check(g->control);
    if (!status && now - w->looked >= LOOK) {
        int ended = -1;
        char who[120], text[300];
        w->looked = now;
        status = nccl_yoke->native_watch(g->control, now - w->began, &ended);
        if (!status && ended >= 0) {
            w->ended_at = w->ended_at > 0 ? w->ended_at : now;
            if (now - w->ended_at >= AFTER_END)
                status = nccl_fail(YK_ERR_CONNECTION, "%s: %s ended while NCCL moved the bytes",
                                   describe(g, op, text, sizeof(text)),
                                   nccl_yoke->native_rank_name(g->control, ended, who, sizeof(who)));
        }
    }
    if (!status && now - w->began >= seconds) {
        char text[300];
        status = nccl_fail(YK_ERR_STALLED, "%s waited %g s for %s, though all ranks have come",
                           describe(g, op, text, sizeof(text)), seconds, for_what);
    }
    if (now - w->began < OFFER)
        sched_yield();
    else
        usleep((useconds_t)(NAP * 1e6));
    return status;
}

yk_status nccl_settle(nccl_group *g, const yk__comm_op *op, const char *call, ncclResult_t code, double seconds)
{
    waiting w = {0};
    for (ncclResult_t result = code;;) {
        if (result == ncclSuccess)
            return YK_OK;
        if (result != ncclInProgress)
            return nccl_failed(g, op, call, result);
        yk_status status = look_around(g, op, &w, seconds, call);
        if (status)
            return status;
        ncclResult_t asked = nccl.ncclCommGetAsyncError(g->comm, &result);
        if (asked)
            result = asked;
    }
}

yk_status nccl_finish(nccl_group *g, const yk__comm_op *op)
{
    waiting w = {0};
    cudaError_t code = cudaEventRecord(g->done, g->stream);
    if (code)
        return nccl_cuda_failed(g, op, "cudaEventRecord", code);
    for (;;) {
        code = cudaEventQuery(g->done);
        if (code == cudaSuccess)
            return YK_OK;
        if (code != cudaErrorNotReady)
            return nccl_cuda_failed(g, op, "cudaEventQuery", code);
        ncclResult_t result = ncclSuccess, asked = nccl.ncclCommGetAsyncError(g->comm, &result);
        result = asked ? asked : result;
        if (result != ncclSuccess && result != ncclInProgress)
            return nccl_failed(g, op, "ncclCommGetAsyncError", result);
        yk_status status = look_around(g, op, &w, g->timeout, "NCCL to move the bytes");
        if (status)
            return status;
    }
}

void nccl_give_up(nccl_group *g)
{
    g->given_up = true;
    if (!g->comm)
        return;
    yk_error before, unused;
    nccl_base->error_take(&before);
    cudaSetDevice(g->gpu);
    nccl.ncclCommAbort(g->comm);
    g->comm = NULL;
    double until = nccl_base->now() + AFTER_ABORT;
    bool recorded = g->stream && g->done && cudaEventRecord(g->done, g->stream) == cudaSuccess;
    while (recorded && cudaEventQuery(g->done) == cudaErrorNotReady && nccl_base->now() < until)
        usleep(200);
    nccl_base->error_take(&unused);
    nccl_base->error_put(&before);
}
