/*
 * nccl_join.c - joining, the communicator, and leaving. Layer: comm/nccl.
 *
 * A rank joins by its control group; which GPU is its own is known when the first tensor comes. In the first collective
 * the ranks show each other their GPUs, by messages of the control group, and rank 0's identity of the communicator
 * comes along. Those of pairs are made in their first messages (nccl_messages.c).
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "comm/nccl/nccl_backend.h"

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
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&g->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    status = nccl_yoke->native->join(&control, &g->control);
    if (status) {
        pthread_cond_destroy(&g->changed);
        pthread_mutex_destroy(&g->lock);
        free(g);
        return status;
    }
    *state = g;
    return YK_OK;
}

/* ---- the communicator -------------------------------------------------------------------------------------------- */
/* all[r] becomes rank r's. */
static yk_status records_exchange(nccl_group *g, nccl_record *all)
{
    void **messages = nccl_base->allocate(2 * (size_t)g->world_size, sizeof(*messages));
    yk_status status = messages ? YK_OK : nccl_base->error_code();
    for (int r = 0; r < g->world_size && !status; r++) {
        yk__comm_op op = {.dtype = YK_U8, .count = sizeof(nccl_record), .peer = r, .tag = NCCL_RECORD_TAG};
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
            status = nccl_end_message(g, messages[i], status);
    free(messages);
    return status;
}

/* True if two ranks may have one GPU. NCCL takes them if it takes them for ranks of two hosts, which their NCCL_HOSTID
 * makes of them: tests on one GPU do. It is no way to work, and so nothing that a program comes to by itself. */
static bool may_share_gpu(void)
{
    const char *text = getenv("YOKE_NCCL_SHARED_GPU");
    return text && strcmp(text, "1") == 0;
}

yk_status nccl_compare(const nccl_group *g, int a, const nccl_record *of_a, int b, const nccl_record *of_b)
{
    char one[120], other[120];
    nccl_yoke->native_rank_name(g->control, a, one, sizeof(one));
    nccl_yoke->native_rank_name(g->control, b, other, sizeof(other));
    if (memcmp(of_a->gpu, of_b->gpu, sizeof(of_a->gpu)) == 0 && !may_share_gpu())
        return nccl_fail(YK_ERR_UNSUPPORTED,
                         "group '%s': %s with cuda:%d and %s with cuda:%d are on one GPU, and NCCL takes one rank "
                         "for each: give every rank a GPU of its own, or take the backend 'native', whose ranks may "
                         "share one",
                         g->name, one, (int)of_a->device, other, (int)of_b->device);
    if (of_a->version != of_b->version) /* NCCL calls this an invalid usage, and no more */
        return nccl_fail(YK_ERR_MISMATCH, "group '%s': %s has NCCL %d.%d.%d, but %s has %d.%d.%d", g->name, one,
                         NCCL_NUMBERS(of_a->version), other, NCCL_NUMBERS(of_b->version));
    return YK_OK;
}

static yk_status compare_all(const nccl_group *g, const nccl_record *all)
{
    yk_status status = YK_OK;
    for (int r = 0; r < g->world_size; r++)
        for (int q = 0; q < r && !status; q++)
            status = nccl_compare(g, q, &all[q], r, &all[r]);
    return status;
}

/* For each device the group whose stream is the queue for collectives. */
enum { MOST_DEVICES = 64 };
static _Atomic(nccl_group *) owners[MOST_DEVICES];

/* Note [Streams of NCCL] */
static yk_status make_stream(nccl_group *g, const yk__comm_op *op, nccl_line *line, bool own)
{
    nccl_group *none = NULL;
    int gpu = 0;
    if (!own && atomic_compare_exchange_strong(&owners[g->device], &none, g)) {
        yk_status status = yk__cuda_stream(g->device, YK__QUEUE_COMM, &line->stream, &gpu);
        if (status) /* the line is not the group's yet, which would give it back */
            atomic_store(&owners[g->device], NULL);
        return status;
    }
    cudaError_t code = cudaStreamCreateWithFlags(&line->stream, cudaStreamNonBlocking);
    line->owns_stream = !code;
    return code ? nccl_cuda_failed(g, op, "cudaStreamCreateWithFlags", code) : YK_OK;
}

/* Blocks that a message between two ranks may take. NCCL takes up to 16 where a switch joins the GPUs, and its kernels
 * stay until the other end has come: with all pairs of 8 ranks those of messages alone would be more than a GPU holds,
 * and receives that fill one keep out the sends that others wait for. Both directions with every rank together take at
 * most PAIRS_BLOCKS of 132 multiprocessors here, up to 57 ranks; the size of the world is known on both ends. A power
 * of two: NCCL takes the next one, where it is not. */
enum { PAIRS_BLOCKS = 112, MOST_BLOCKS = 8 };

static int pair_blocks(const nccl_group *g)
{
    int others = g->world_size > 1 ? g->world_size - 1 : 1, blocks = MOST_BLOCKS;
    while (blocks > 1 && 2 * others * blocks > PAIRS_BLOCKS)
        blocks /= 2;
    return blocks;
}

yk_status nccl_make_comm(nccl_group *g, const yk__comm_op *op, nccl_line *line, int size, int rank,
                         const ncclUniqueId *id, bool pair)
{
    yk_status status = make_stream(g, op, line, pair);
    if (status)
        return status;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (pair)
        config.maxCTAs = pair_blocks(g);
    ncclComm_t comm = NULL;
    ncclResult_t result = nccl.ncclCommInitRankConfig(&comm, size, *id, rank, &config);
    pthread_mutex_lock(&g->lock);
    bool given_up = g->given_up; /* by another thread; who gives up from here on finds it */
    line->comm = given_up ? NULL : comm;
    line->next = g->lines;
    g->lines = line;
    pthread_mutex_unlock(&g->lock);
    if (given_up && comm)
        nccl_end_comm(g, comm, nccl.ncclCommAbort);
    return nccl_settle(g, line, op, NCCL_INITIALISATION, result, g->join_timeout);
}

/* Asked for once: all of the properties take CUDA about a millisecond, and every message shows the UUID. */
static yk_status find_uuid(nccl_group *g, const yk__comm_op *op)
{
    struct cudaDeviceProp properties;
    pthread_mutex_lock(&g->lock);
    cudaError_t code = g->uuid_known ? cudaSuccess : cudaGetDeviceProperties(&properties, g->gpu);
    if (!code && !g->uuid_known)
        memcpy(g->uuid, &properties.uuid, sizeof(g->uuid));
    g->uuid_known = !code;
    pthread_mutex_unlock(&g->lock);
    return code ? nccl_cuda_failed(g, op, "cudaGetDeviceProperties", code) : YK_OK;
}

yk_status nccl_own_record(nccl_group *g, const yk__comm_op *op, nccl_record *own)
{
    yk_status status = find_uuid(g, op);
    if (status)
        return status;
    memcpy(own->gpu, g->uuid, sizeof(own->gpu));
    snprintf(own->host, sizeof(own->host), "%s", g->host_name);
    own->device = g->device;
    nccl.ncclGetVersion(&own->version);
    return YK_OK;
}

yk_status nccl_connect(nccl_group *g, const yk__comm_op *op)
{
    pthread_mutex_lock(&g->lock);
    bool made = g->all.comm, given_up = g->given_up;
    pthread_mutex_unlock(&g->lock);
    if (made)
        return YK_OK;
    if (op->captured)
        return nccl_fail(YK_ERR_STATE, "group '%s': there is no communicator before the recording", g->name);
    if (given_up)
        return nccl_fail(YK_ERR_STATE, "group '%s': its communicator was given up", g->name);
    nccl_record *all = nccl_base->allocate((size_t)g->world_size, sizeof(*all));
    if (!all)
        return nccl_base->error_code();
    nccl_record *own = &all[g->rank];
    yk_status status = nccl_own_record(g, op, own);
    ncclResult_t result = !status && g->rank == 0 ? nccl_unique_id(&own->id) : ncclSuccess;
    if (result)
        status = nccl_failed(g, op, "ncclGetUniqueId", result);
    if (!status)
        status = records_exchange(g, all);
    if (!status)
        status = compare_all(g, all);
    if (!status)
        status = nccl_make_comm(g, op, &g->all, g->world_size, g->rank, &all[0].id, false);
    free(all);
    return status;
}

/* ---- leaving ----------------------------------------------------------------------------------------------------- */
/* Ends a communicator after this rank's pending sends; all ranks of a group that is not broken come here. */
static void close_comm(nccl_group *g, nccl_line *line, double seconds)
{
    static const yk__comm_op leaving = {.kind = YK__COMM_BARRIER, .peer = -1, .tag = -1};
    yk_status status = nccl_yoke->native->check(g->control);
    if (!status)
        status = nccl_settle(g, line, &leaving, "ncclCommFinalize", nccl.ncclCommFinalize(line->comm), seconds);
    if (status) {
        nccl_give_up(g);
        return;
    }
    nccl_end_comm(g, line->comm, nccl.ncclCommDestroy);
    line->comm = NULL;
}

void nccl_leave(void *state)
{
    nccl_group *g = state;
    static const double most = 5; /* seconds; a rank that was killed meanwhile does not come */
    double seconds = g->timeout < most ? g->timeout : most;
    yk_error before, unused;
    nccl_base->error_take(&before);
    nccl_stop_pairs(g);
    if (g->device >= 0)
        cudaSetDevice(g->gpu);
    for (nccl_line *line = g->lines; line; line = line->next)
        if (line->comm)
            close_comm(g, line, seconds);
    while (g->free_marks) {
        nccl_mark *mark = g->free_marks;
        g->free_marks = mark->next;
        cudaEventDestroy(mark->event);
        free(mark);
    }
    for (nccl_line *line = g->lines; line; line = line->next) {
        if (line->owns_stream)
            cudaStreamDestroy(line->stream);
        else if (line->stream)
            atomic_store(&owners[g->device], NULL);
    }
    nccl_free_pairs(g);
    nccl_yoke->native->leave(g->control); /* first: the others come to the same end when they hear of it */
    nccl_wait_for_ends(g, seconds);
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    free(g);
    nccl_base->error_take(&unused);
    nccl_base->error_put(&before);
}
