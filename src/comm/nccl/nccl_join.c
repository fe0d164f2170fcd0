/*
 * nccl_join.c - joining, the communicator, and leaving. Layer: comm/nccl.
 *
 * A rank joins by its control group; which GPU is its own is known when the first tensor comes. In that operation the
 * ranks show each other their GPUs, by messages of the control group, and rank 0's identity of the communicator
 * comes along.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "comm/nccl/nccl_backend.h"

/* What ranks show each other. */
typedef struct record {
    char gpu[16]; /* its UUID */
    char host[64];
    int32_t device, version;
    ncclUniqueId id; /* rank 0's */
} record;

enum { RECORD_TAG = -2 /* no program's: theirs are not negative */ };

yk_status nccl_join(const yk__comm_join_args *args, void **state)
{
    *state = NULL;
    yk_status status = nccl_open();
    if (status)
        return status;
    nccl_group *g = nccl_base->allocate(1, sizeof(*g));
    if (!g)
        return nccl_base->error_code();
    yk__comm_join_args control = *args;
    if (args->parent)
        control.parent = ((nccl_group *)args->parent)->control;
    g->rank = args->rank;
    g->world_size = args->world_size;
    g->timeout = args->timeout;
    g->join_timeout = args->join_timeout;
    g->device = -1;
    snprintf(g->name, sizeof(g->name), "%s", args->name);
    snprintf(g->host_name, sizeof(g->host_name), "%s", args->host_name);
    pthread_mutex_init(&g->lock, NULL);
    status = nccl_yoke->native->join(&control, &g->control);
    if (status) {
        pthread_mutex_destroy(&g->lock);
        free(g);
        return status;
    }
    *state = g;
    return YK_OK;
}

/* ---- the communicator -------------------------------------------------------------------------------------------- */
/* One message of the control group, to its end. */
static yk_status end_message(nccl_group *g, void *message, yk_status status)
{
    bool done = false;
    while (!status && !done)
        status = nccl_yoke->native->wait(g->control, message, 1, &done);
    while (!done) /* a broken group: it ends with the cause */
        (void)!nccl_yoke->native->wait(g->control, message, 0.1, &done);
    nccl_yoke->native->forget(g->control, message);
    return status;
}

/* all[r] becomes rank r's. */
static yk_status exchange(nccl_group *g, record *all)
{
    void **messages = nccl_base->allocate(2 * (size_t)g->world_size, sizeof(*messages));
    yk_status status = messages ? YK_OK : nccl_base->error_code();
    for (int r = 0; r < g->world_size && !status; r++) {
        yk__comm_op op = {.dtype = YK_U8, .count = sizeof(record), .peer = r, .tag = RECORD_TAG};
        if (r == g->rank)
            continue;
        op.kind = YK__COMM_RECV;
        op.out = &all[r];
        status = nccl_yoke->native->post(g->control, &op, &messages[2 * r]);
        op.kind = YK__COMM_SEND;
        op.in = &all[g->rank];
        if (!status)
            status = nccl_yoke->native->post(g->control, &op, &messages[2 * r + 1]);
    }
    for (int i = 0; messages && i < 2 * g->world_size; i++)
        if (messages[i])
            status = end_message(g, messages[i], status);
    free(messages);
    return status;
}

static yk_status compare(const nccl_group *g, const record *all)
{
    char a[120], b[120];
    for (int r = 0; r < g->world_size; r++) {
        for (int q = 0; q < r; q++) {
            if (memcmp(all[q].gpu, all[r].gpu, sizeof(all[r].gpu)) != 0)
                continue;
            return nccl_fail(
                YK_ERR_UNSUPPORTED,
                "group '%s': %s with cuda:%d and %s with cuda:%d are on one GPU, and NCCL takes one rank "
                "for each: give every rank a GPU of its own, or take the backend 'native', whose ranks may "
                "share one",
                g->name, nccl_yoke->native_rank_name(g->control, q, a, sizeof(a)), (int)all[q].device,
                nccl_yoke->native_rank_name(g->control, r, b, sizeof(b)), (int)all[r].device);
        }
        if (all[r].version / 100 != all[0].version / 100)
            return nccl_fail(YK_ERR_MISMATCH, "group '%s': %s has NCCL %d, but %s has %d", g->name,
                             nccl_yoke->native_rank_name(g->control, 0, a, sizeof(a)), (int)all[0].version,
                             nccl_yoke->native_rank_name(g->control, r, b, sizeof(b)), (int)all[r].version);
    }
    return YK_OK;
}

/* By device: the group whose stream the queue for collectives is. */
enum { MOST_DEVICES = 64 };
static _Atomic(nccl_group *) owners[MOST_DEVICES];

/* Note [Streams of NCCL] */
static yk_status make_stream(nccl_group *g, const yk__comm_op *op)
{
    nccl_group *none = NULL;
    int gpu = 0;
    if (atomic_compare_exchange_strong(&owners[g->device], &none, g))
        return yk__cuda_stream(g->device, YK__QUEUE_COMM, &g->stream, &gpu);
    cudaError_t code = cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking);
    g->owns_stream = !code;
    return code ? nccl_cuda_failed(g, op, "cudaStreamCreateWithFlags", code) : YK_OK;
}

static yk_status make_comm(nccl_group *g, const yk__comm_op *op, const ncclUniqueId *id)
{
    yk_status status = make_stream(g, op);
    if (status)
        return status;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = NULL;
    ncclResult_t result = nccl.ncclCommInitRankConfig(&comm, g->world_size, *id, g->rank, &config);
    pthread_mutex_lock(&g->lock);
    g->comm = comm;
    pthread_mutex_unlock(&g->lock);
    return nccl_settle(g, op, "ncclCommInitRankConfig", result, g->join_timeout);
}

yk_status nccl_connect(nccl_group *g, const yk__comm_op *op)
{
    pthread_mutex_lock(&g->lock);
    bool made = g->comm, given_up = g->given_up;
    pthread_mutex_unlock(&g->lock);
    if (made)
        return YK_OK;
    if (op->captured)
        return nccl_fail(YK_ERR_STATE, "group '%s': there is no communicator before the recording", g->name);
    if (given_up)
        return nccl_fail(YK_ERR_STATE, "group '%s': its communicator was given up", g->name);
    record *all = nccl_base->allocate((size_t)g->world_size, sizeof(*all));
    if (!all)
        return nccl_base->error_code();
    record *own = &all[g->rank];
    struct cudaDeviceProp properties;
    yk_status status = YK_OK;
    cudaError_t code = cudaGetDeviceProperties(&properties, g->gpu);
    if (code)
        status = nccl_cuda_failed(g, op, "cudaGetDeviceProperties", code);
    else
        memcpy(own->gpu, &properties.uuid, sizeof(own->gpu));
    snprintf(own->host, sizeof(own->host), "%s", g->host_name);
    own->device = g->device;
    nccl.ncclGetVersion(&own->version);
    ncclResult_t result = !status && g->rank == 0 ? nccl.ncclGetUniqueId(&own->id) : ncclSuccess;
    if (result)
        status = nccl_failed(g, op, "ncclGetUniqueId", result);
    if (!status)
        status = exchange(g, all);
    if (!status)
        status = compare(g, all);
    if (!status)
        status = make_comm(g, op, &all[0].id);
    free(all);
    return status;
}

/* ---- leaving ----------------------------------------------------------------------------------------------------- */
/* What this rank has still to send is sent; all ranks of a group that is whole come here. */
static void close_comm(nccl_group *g)
{
    static const yk__comm_op leaving = {.kind = YK__COMM_BARRIER, .peer = -1, .tag = -1};
    static const double most = 5; /* seconds; a rank that was killed meanwhile does not come */
    double seconds = g->timeout < most ? g->timeout : most;
    yk_status status = nccl_yoke->native->check(g->control);
    if (!status)
        status = nccl_settle(g, &leaving, "ncclCommFinalize", nccl.ncclCommFinalize(g->comm), seconds);
    if (status) {
        nccl_give_up(g);
        return;
    }
    nccl.ncclCommDestroy(g->comm);
    g->comm = NULL;
}

void nccl_leave(void *state)
{
    nccl_group *g = state;
    yk_error before, unused;
    nccl_base->error_take(&before);
    if (g->device >= 0)
        cudaSetDevice(g->gpu);
    if (g->comm)
        close_comm(g);
    while (g->free_marks) {
        nccl_mark *mark = g->free_marks;
        g->free_marks = mark->next;
        cudaEventDestroy(mark->event);
        free(mark);
    }
    if (g->owns_stream)
        cudaStreamDestroy(g->stream);
    else if (g->stream)
        atomic_store(&owners[g->device], NULL);
    nccl_yoke->native->leave(g->control);
    pthread_mutex_destroy(&g->lock);
    free(g);
    nccl_base->error_take(&unused);
    nccl_base->error_put(&before);
}
