/*
 * nccl_collective.c - the collectives, out of those of NCCL. Layer: comm/nccl.
 *
 * gather, scatter and all_to_all are sends and receives in one group call. So are reductions in a fixed order: rank r
 * gets its share of everybody's values, combines them in the tree of ranks by a kernel (device/cuda/combining.cu), and
 * the results go round, or to the root; 2 (n - 1) / n of the payload out and in for each rank, as in a ring, and a
 * workspace of the payload. NCCL's own reductions add in an order that it chooses, and f16 and bf16 in themselves.
 *
 * Note [Means]
 * ncclAvg is not used: of floating numbers it makes a sum whose inputs are first multiplied by 1 / n, rounded to their
 * dtype. That is none of the sums that switches make (NVLS), and a mean of three bf16 is 0.2 % too large. Here a mean
 * is NCCL's sum and after it a kernel that divides (yk__cuda_divide), as reductions in a fixed order do: so equal
 * values whose sum is exact have themselves as their mean, and means of two ranks in f32 and f64 have the bits of the
 * fixed order. f16 is divided before, as PyTorch's DDP divides its gradients: its sum may be infinite where the mean is
 * a number (of two values of 40000). What is lost by that are bits of inputs below n * 6e-5, which become multiples of
 * 6e-8.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/nccl/nccl_backend.h"

/* ---- the event that an operation waits for ----------------------------------------------------------------------- */
yk_status nccl_take_mark(nccl_group *g, nccl_mark **mark)
{
    pthread_mutex_lock(&g->lock);
    *mark = g->free_marks;
    if (*mark)
        g->free_marks = (*mark)->next;
    pthread_mutex_unlock(&g->lock);
    if (*mark)
        return YK_OK;
    *mark = nccl_base->allocate(1, sizeof(**mark));
    if (!*mark)
        return nccl_base->error_code();
    cudaError_t code = cudaEventCreateWithFlags(&(*mark)->event, cudaEventDisableTiming);
    if (!code)
        return YK_OK;
    free(*mark);
    *mark = NULL;
    return yk__cuda_failed(g->device, code, "cudaEventCreateWithFlags");
}

void nccl_return_mark(nccl_group *g, nccl_mark *mark)
{
    if (!mark)
        return;
    pthread_mutex_lock(&g->lock);
    mark->next = g->free_marks;
    g->free_marks = mark;
    pthread_mutex_unlock(&g->lock);
}

/* The thread's queue of the device, which is the rank's from the first operation on. */
static yk_status find_queue(nccl_group *g, const char *what, int device, cudaStream_t *queue)
{
    int gpu = 0;
    pthread_mutex_lock(&g->lock);
    yk_status status = YK_OK;
    if (g->device >= 0 && g->device != device)
        status = nccl_fail(YK_ERR_DEVICE,
                           "%s: the tensor is on cuda:%d, but rank %d of group '%s' is on cuda:%d: with NCCL a rank "
                           "has one GPU; the backend 'native' takes several",
                           what, device, g->rank, g->name, g->device);
    if (!status)
        status = yk__cuda_stream(device, YK__QUEUES, queue, &gpu);
    if (!status && g->device < 0) {
        g->gpu = gpu;
        g->device = device;
    }
    pthread_mutex_unlock(&g->lock);
    return status;
}

yk_status nccl_mark_queue(void *state, const char *what, int device, void **marked)
{
    nccl_group *g = state;
    nccl_mark *mark = NULL;
    cudaStream_t queue = NULL;
    *marked = NULL;
    yk_status status = find_queue(g, what, device, &queue);
    if (!status)
        status = nccl_take_mark(g, &mark);
    cudaError_t code = status ? cudaSuccess : cudaEventRecord(mark->event, queue);
    if (code) {
        nccl_return_mark(g, mark);
        yk_error error;
        status = yk__cuda_failed(device, code, "cudaEventRecord");
        nccl_base->error_take(&error);
        return nccl_fail(status, "%s: %.650s", what, error.message);
    }
    *marked = mark;
    return status;
}

/* ---- agreement --------------------------------------------------------------------------------------------------- */
/* An i64 from each rank to each, in a native all_to_all of the operation's own dtype: the counts, which must agree. */
static yk_status agree_on_counts(nccl_group *g, const yk__comm_op *op, size_t size)
{
    size_t n = (size_t)g->world_size;
    int64_t *numbers = nccl_base->allocate(2 * n, sizeof(int64_t)), *sent = numbers + n;
    if (!numbers)
        return nccl_base->error_code();
    yk__comm_op counts = *op;
    counts.on_device = false;
    counts.in = op->in_counts;
    counts.out = sent;
    for (size_t r = 0; r < n; r++)
        numbers[r] = (int64_t)(sizeof(int64_t) / size);
    counts.in_counts = counts.out_counts = numbers;
    yk_status status = nccl_yoke->native->collective[YK__COMM_ALL_TO_ALL](g->control, &counts);
    for (int r = 0; r < g->world_size && !status; r++) {
        char a[120], b[120], what[160];
        if (sent[r] != op->out_counts[r])
            status =
                nccl_fail(YK_ERR_MISMATCH, "%s: %s sends %lld elements to %s, which expects %lld",
                          nccl_yoke->describe(op, what, sizeof(what)),
                          nccl_yoke->native_rank_name(g->control, r, a, sizeof(a)), (long long)sent[r],
                          nccl_yoke->native_rank_name(g->control, g->rank, b, sizeof(b)), (long long)op->out_counts[r]);
    }
    free(numbers);
    return status;
}

/* ---- NCCL's words ------------------------------------------------------------------------------------------------ */
ncclDataType_t nccl_type_of(yk_dtype dtype)
{
    static const ncclDataType_t types[YK__DTYPES] = {
        [YK_F32] = ncclFloat32, [YK_F64] = ncclFloat64, [YK_F16] = ncclFloat16, [YK_BF16] = ncclBfloat16,
        [YK_I64] = ncclInt64,   [YK_I32] = ncclInt32,   [YK_U8] = ncclUint8,    [YK_BOOL] = ncclUint8};
    return types[dtype];
}

/* NCCL's operation for a reduction. For bool, which is 0 or 1, any is the maximum and all is the minimum. */
static ncclRedOp_t reduction_of(yk_reduce_op op, yk_dtype dtype)
{
    static const ncclRedOp_t all[] = {[YK_OP_SUM] = ncclSum,
                                      [YK_OP_MEAN] = ncclSum, /* Note [Means] */
                                      [YK_OP_MIN] = ncclMin,
                                      [YK_OP_MAX] = ncclMax,
                                      [YK_OP_PRODUCT] = ncclProd};
    static const ncclRedOp_t truth[] = {[YK_OP_SUM] = ncclMax,
                                        [YK_OP_MEAN] = ncclMax,
                                        [YK_OP_MIN] = ncclMin,
                                        [YK_OP_MAX] = ncclMax,
                                        [YK_OP_PRODUCT] = ncclMin};
    return dtype == YK_BOOL ? truth[op] : all[op];
}

/* The calls of NCCL that an operation is made of. `comm` is the group's between begin and end, NULL where it was given
 * up meanwhile; `result` is the first failure of a call of NCCL there. */
typedef struct calls {
    nccl_group *g;
    const yk__comm_op *op;
    ncclComm_t comm;
    const void *in;      /* what NCCL's collectives read: the operation's, or what was made of it */
    cudaStream_t stream; /* the input of NCCL's collectives: the operation's, or a copy that was made of it */
    size_t size;
    ncclDataType_t type;
    ncclResult_t result;
    const char *call;
} calls;

static void nccl_result_record(calls *c, const char *call, ncclResult_t result)
{
    if (result == ncclSuccess || result == ncclInProgress || c->result != ncclSuccess)
        return;
    c->result = result;
    c->call = call;
}

/* Takes the lock, up to nccl_calls_end: until then the communicator is not aborted, as the watcher, which may want to,
 * waits. */
static void nccl_calls_begin(calls *c)
{
    pthread_mutex_lock(&c->g->lock);
    c->comm = c->g->all.comm;
    if (c->comm)
        nccl_result_record(c, "ncclGroupStart", nccl.ncclGroupStart());
}

/* Ends the group of calls, and waits until they are on the stream. */
static yk_status nccl_calls_end(calls *c, const char *call)
{
    bool whole = c->comm;
    ncclResult_t ended = whole ? nccl.ncclGroupEnd() : ncclSuccess;
    pthread_mutex_unlock(&c->g->lock);
    if (!whole)
        return nccl_fail(YK_ERR_STATE, "group '%s': its communicator was given up", c->g->name);
    if (c->result != ncclSuccess)
        return nccl_failed_inside(c->g, c->op, nccl_failed(c->g, c->op, c->call, c->result));
    return nccl_settle(c->g, &c->g->all, c->op, call, ended, c->g->timeout);
}

static void send(calls *c, const char *from, int64_t count, int to)
{
    if (count && c->comm)
        nccl_result_record(c, "ncclSend", nccl.ncclSend(from, (size_t)count, c->type, to, c->comm, c->stream));
}

static void receive(calls *c, char *to, int64_t count, int from)
{
    if (count && c->comm)
        nccl_result_record(c, "ncclRecv", nccl.ncclRecv(to, (size_t)count, c->type, from, c->comm, c->stream));
}

/* Queues a copy on the stream. */
static yk_status stream_copy(calls *c, char *to, const char *from, int64_t count)
{
    if (!count || to == from)
        return YK_OK;
    cudaError_t code = cudaMemcpyAsync(to, from, (size_t)count * c->size, cudaMemcpyDeviceToDevice, c->stream);
    return code ? nccl_cuda_failed(c->g, c->op, "cudaMemcpyAsync", code) : YK_OK;
}

/* ---- NCCL's own collectives -------------------------------------------------------------------------------------- */
static void issue(calls *c)
{
    const yk__comm_op *op = c->op;
    cudaStream_t stream = c->stream;
    size_t count = (size_t)op->count;
    bool root = op->peer == c->g->rank;
    switch (op->kind) {
    case YK__COMM_ALL_REDUCE:
        nccl_result_record(c, "ncclAllReduce",
                           nccl.ncclAllReduce(c->in, op->out, count, c->type, reduction_of(op->reduction, op->dtype),
                                              c->comm, stream));
        break;
    case YK__COMM_REDUCE:
        nccl_result_record(c, "ncclReduce",
                           nccl.ncclReduce(c->in, op->out, count, c->type, reduction_of(op->reduction, op->dtype),
                                           op->peer, c->comm, stream));
        break;
    case YK__COMM_REDUCE_SCATTER:
        nccl_result_record(c, "ncclReduceScatter",
                           nccl.ncclReduceScatter(c->in, op->out, count, c->type,
                                                  reduction_of(op->reduction, op->dtype), c->comm, stream));
        break;
    case YK__COMM_BROADCAST:
        nccl_result_record(c, "ncclBroadcast",
                           nccl.ncclBroadcast(root ? op->in : op->out, root ? (void *)(uintptr_t)op->in : op->out,
                                              count, c->type, op->peer, c->comm, stream));
        break;
    default:
        nccl_result_record(c, "ncclAllGather", nccl.ncclAllGather(op->in, op->out, count, c->type, c->comm, stream));
        break;
    }
}

static yk_status by_nccl(calls *c)
{
    nccl_calls_begin(c);
    if (c->comm)
        issue(c);
    return nccl_calls_end(c, nccl_yoke->kind_name(c->op->kind));
}

/* ---- sends and receives ------------------------------------------------------------------------------------------ */
/* gather, scatter and all_to_all: part r of `in` to rank r, part r of `out` from it, where they have such. */
static yk_status by_parts(calls *c)
{
    const yk__comm_op *op = c->op;
    nccl_group *g = c->g;
    int64_t in_at = 0, out_at = 0;
    yk_status status = YK_OK;
    nccl_calls_begin(c);
    const char *own_in = NULL;
    char *own_out = NULL;
    int64_t own = 0;
    for (int r = 0; r < g->world_size; r++) {
        bool all = op->kind == YK__COMM_ALL_TO_ALL, root = op->peer == g->rank;
        bool sends = all || (op->kind == YK__COMM_GATHER ? r == op->peer : root);
        bool receives = all || (op->kind == YK__COMM_GATHER ? root : r == op->peer);
        int64_t to = !sends ? 0 : all ? op->in_counts[r] : op->count;
        int64_t from = !receives ? 0 : all ? op->out_counts[r] : op->count;
        const char *in = op->in;
        char *out = op->out;
        if (to && op->kind != YK__COMM_GATHER)
            in += (size_t)in_at * c->size;
        if (from && op->kind != YK__COMM_SCATTER)
            out += (size_t)out_at * c->size;
        in_at += all ? op->in_counts[r] : op->count;
        out_at += all ? op->out_counts[r] : op->count;
        if (r == g->rank) {
            own_in = in;
            own_out = out;
            own = sends && receives ? to : 0;
            continue;
        }
        send(c, in, to, r);
        receive(c, out, from, r);
    }
    status = nccl_calls_end(c, nccl_yoke->kind_name(op->kind));
    return status ? status : stream_copy(c, own_out, own_in, own);
}

/* ---- reductions in a fixed order --------------------------------------------------------------------------------- */
/* The element at which rank r's share of `count` begins; the last shares may be shorter, or empty. */
static int64_t share_at(int64_t count, int64_t share, int r)
{
    int64_t at = share * r;
    return at < count ? at : count;
}

/* Everybody's values of this rank's share, `share` apart in `room`; rank r's share begins share_at(r), or at r parts.
 */
static yk_status bring_together(calls *c, char *room, int64_t share)
{
    const yk__comm_op *op = c->op;
    nccl_group *g = c->g;
    int64_t total = op->kind == YK__COMM_REDUCE_SCATTER ? op->count * g->world_size : op->count;
    int64_t at = share_at(total, share, g->rank), mine = share_at(total, share, g->rank + 1) - at;
    const char *in = op->in;
    yk_status status = stream_copy(c, room + (size_t)(g->rank * share) * c->size, in + (size_t)at * c->size, mine);
    if (status)
        return status;
    nccl_calls_begin(c);
    for (int r = 0; r < g->world_size; r++) {
        int64_t to = share_at(total, share, r);
        if (r == g->rank)
            continue;
        send(c, in + (size_t)to * c->size, share_at(total, share, r + 1) - to, r);
        receive(c, room + (size_t)(r * share) * c->size, mine, r);
    }
    return nccl_calls_end(c, "shares");
}

/* The results, each where it belongs. This rank's is at `result`. */
static yk_status send_round(calls *c, const char *result, int64_t share)
{
    const yk__comm_op *op = c->op;
    nccl_group *g = c->g;
    bool all = op->kind == YK__COMM_ALL_REDUCE, root = !all && op->peer == g->rank;
    int64_t at = share_at(op->count, share, g->rank), mine = share_at(op->count, share, g->rank + 1) - at;
    nccl_calls_begin(c);
    for (int r = 0; r < g->world_size; r++) {
        int64_t from = share_at(op->count, share, r);
        if (r == g->rank)
            continue;
        if (all || r == op->peer)
            send(c, result, mine, r);
        if (all || root)
            receive(c, (char *)op->out + (size_t)from * c->size, share_at(op->count, share, r + 1) - from, r);
    }
    return nccl_calls_end(c, "results");
}

/* A workspace for `count` elements, until the operation is done. It is of the queue for collectives, whose order keeps
 * its users apart; for another stream it is one of the queue of kernels, where somebody's use of it may be queued. */
static yk_status take_room(calls *c, nccl_queued *q, int64_t count, char **room)
{
    const yk__comm_op *op = c->op;
    nccl_group *g = c->g;
    yk_device device = {YK_CUDA, (int16_t)g->device};
    yk__queue before = nccl_yoke->queue_begin(g->all.owns_stream ? YK__QUEUE_COMPUTE : YK__QUEUE_COMM);
    *room = nccl_yoke->workspace_get(device, (size_t)count * c->size, &q->room);
    void *marked = NULL;
    yk_status status = *room ? YK_OK : nccl_base->error_code();
    if (!status && g->all.owns_stream)
        status = nccl_mark_queue(g, nccl_yoke->kind_name(op->kind), g->device, &marked);
    nccl_yoke->queue_end(before);
    cudaError_t code = marked ? cudaStreamWaitEvent(c->stream, ((nccl_mark *)marked)->event, 0) : cudaSuccess;
    nccl_return_mark(g, marked);
    return code ? nccl_cuda_failed(g, op, "cudaStreamWaitEvent", code) : status;
}

static yk__binary binary_of(yk_reduce_op op)
{
    switch (op) {
    case YK_OP_MIN: return YK__MINIMUM;
    case YK_OP_MAX: return YK__MAXIMUM;
    case YK_OP_PRODUCT: return YK__MUL;
    default: return YK__ADD;
    }
}

static yk_status reduce_in(calls *c, char *room, int64_t share)
{
    const yk__comm_op *op = c->op;
    nccl_group *g = c->g;
    bool parts = op->kind == YK__COMM_REDUCE_SCATTER;
    int64_t at = parts ? 0 : share_at(op->count, share, g->rank);
    int64_t mine = parts ? op->count : share_at(op->count, share, g->rank + 1) - at;
    /* Without an output the result overwrites the first of the inputs, which is no longer needed then. */
    char *result = op->out ? (char *)op->out + (size_t)at * c->size : room;
    yk_status status = bring_together(c, room, share);
    if (!status)
        status = yk__cuda_combine(g->device, c->stream, binary_of(op->reduction), op->dtype,
                                  op->reduction == YK_OP_MEAN, result, room, g->world_size, share, mine);
    return status || parts ? status : send_round(c, result, share);
}

static yk_status reduce_in_order(calls *c, nccl_queued *q)
{
    const yk__comm_op *op = c->op;
    int64_t n = c->g->world_size, line = (int64_t)(128 / c->size);
    int64_t share =
        op->kind == YK__COMM_REDUCE_SCATTER ? op->count : ((op->count + n - 1) / n + line - 1) / line * line;
    char *room = NULL;
    yk_status status = take_room(c, q, share * n, &room);
    return status ? status : reduce_in(c, room, share);
}

/* ---- means ------------------------------------------------------------------------------------------------------- */
/* c->in becomes the input divided by the number of ranks: where the output will be, or where that is another's, or
 * shorter, in a workspace. */
static yk_status divide_before(calls *c, nccl_queued *q)
{
    const yk__comm_op *op = c->op;
    nccl_group *g = c->g;
    int64_t count = op->kind == YK__COMM_REDUCE_SCATTER ? op->count * g->world_size : op->count;
    char *to = op->out;
    yk_status status = op->kind == YK__COMM_ALL_REDUCE ? YK_OK : take_room(c, q, count, &to);
    if (!status)
        status = yk__cuda_divide(g->device, c->stream, op->dtype, to, op->in, count, g->world_size);
    c->in = to;
    return status;
}

/* Note [Means] */
static yk_status mean(calls *c, nccl_queued *q)
{
    const yk__comm_op *op = c->op;
    nccl_group *g = c->g;
    bool before = op->dtype == YK_F16;
    yk_status status = before ? divide_before(c, q) : YK_OK;
    if (!status)
        status = by_nccl(c);
    if (status || before || !op->out)
        return status;
    return yk__cuda_divide(g->device, c->stream, op->dtype, op->out, op->out, op->count, g->world_size);
}

/* ---- all --------------------------------------------------------------------------------------------------------- */
static bool moves_nothing(const nccl_group *g, const yk__comm_op *op)
{
    if (op->kind != YK__COMM_ALL_TO_ALL)
        return op->count == 0;
    for (int r = 0; r < g->world_size; r++)
        if (op->in_counts[r] || op->out_counts[r])
            return false;
    return true;
}

static yk_status queue(calls *c, nccl_queued *q)
{
    const yk__comm_op *op = c->op;
    nccl_group *g = c->g;
    int gpu = 0;
    c->stream = g->all.stream;
    yk_status status = op->captured ? yk__cuda_stream(g->device, YK__QUEUE_COMM, &c->stream, &gpu) : YK_OK;
    if (!status)
        status = nccl_take_mark(g, &q->end);
    cudaError_t code = status ? cudaSuccess : cudaStreamWaitEvent(c->stream, ((nccl_mark *)op->marked)->event, 0);
    if (status || code)
        return status ? status : nccl_cuda_failed(g, op, "cudaStreamWaitEvent", code);
    bool parts = op->kind == YK__COMM_GATHER || op->kind == YK__COMM_SCATTER || op->kind == YK__COMM_ALL_TO_ALL;
    if (op->deterministic)
        status = reduce_in_order(c, q);
    else if (yk__comm_reduces(op->kind) && op->reduction == YK_OP_MEAN && g->world_size > 1)
        status = mean(c, q);
    else
        status = parts ? by_parts(c) : by_nccl(c);
    code = status ? cudaSuccess : cudaEventRecord(q->end->event, c->stream);
    return code ? nccl_cuda_failed(g, op, "cudaEventRecord", code) : status;
}

static yk_status nccl_collective_queue(nccl_group *g, const yk__comm_op *op, nccl_queued **queued)
{
    calls c = {
        .g = g, .op = op, .size = nccl_yoke->dtype_size(op->dtype), .type = nccl_type_of(op->dtype), .in = op->in};
    yk_status status = op->captured                      ? YK_OK
                       : op->kind == YK__COMM_ALL_TO_ALL ? agree_on_counts(g, op, c.size)
                                                         : nccl_yoke->native_agree(g->control, op);
    cudaError_t code = status ? cudaSuccess : cudaSetDevice(g->gpu); /* the thread may be the group's */
    if (code)
        return nccl_cuda_failed(g, op, "cudaSetDevice", code);
    if (!status)
        status = nccl_connect(g, op);
    if (status || moves_nothing(g, op))
        return status;
    *queued = nccl_base->allocate(1, sizeof(**queued));
    if (!*queued)
        return nccl_base->error_code();
    (*queued)->op = *op;
    (*queued)->line = &g->all;
    return queue(&c, *queued);
}

yk_status nccl_queue_collective(void *state, const yk__comm_op *op, void **queued)
{
    nccl_group *g = state;
    nccl_queued *q = NULL;
    *queued = NULL;
    yk_status status =
        op->kind < YK__COMM_COLLECTIVES ? nccl_collective_queue(g, op, &q) : nccl_record_message(g, op, &q);
    nccl_return_mark(g, op->marked);
    if (status) {
        status = op->captured ? status : nccl_broken(g, status);
        nccl_queued_free(g, q);
        return status;
    }
    *queued = q;
    return YK_OK;
}

yk_status nccl_host_collective(void *state, const yk__comm_op *op)
{
    const nccl_group *g = state;
    return nccl_yoke->native->collective[op->kind](g->control, op);
}
