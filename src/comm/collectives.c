/*
 * collectives.c - the public operations: checks, and how each becomes one of the backend's. Layer: comm.
 *
 * Nothing is sent, and no number is used up, before all that one rank can check is right.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "comm/agreement.h"
#include "comm/group.h"

static _Thread_local const char *refused; /* why there are none on this thread; NULL: there are */

void yk__collectives_refuse(const char *why)
{
    refused = why;
}

/* A group that can do something, whose size is then known. */
static yk__group *member(const char *what, yk_process_group *handle)
{
    yk__group *g = yk__group_of(what, handle);
    if (g && refused) {
        yk__fail(YK_ERR_UNSUPPORTED, "%s: %s", what, refused);
        return NULL;
    }
    if (g && g->rank < 0) {
        yk__fail(YK_ERR_STATE, "%s: this rank is not in the group '%s'", what, g->name);
        return NULL;
    }
    return g && !yk__group_check_process(what, g) ? g : NULL;
}

static _Thread_local int host_tensors; /* begins of this thread that have no end yet */

void yk__host_tensors_begin(void)
{
    host_tensors++;
}

void yk__host_tensors_end(void)
{
    host_tensors--;
}

/* PyTorch: "No backend type associated with device type cpu". */
static yk_status check_device(const yk__group *g, const char *what, const char *role, const yk_tensor *x)
{
    char device[16];
    if (!g->backend->mark || host_tensors || !yk__backend_for(x)->host_memory)
        return YK_OK;
    return yk__fail(
        YK_ERR_DEVICE,
        "%s: %s is on %s, and the backend '%s' of group '%s' has no type of device but cuda; 'native' takes "
        "tensors on CPUs and GPUs",
        what, role, yk_device_format(yk__device_of(x), device), g->backend->name, g->name);
}

static yk_status check_tensor(const yk__group *g, const char *what, const char *role, const yk_tensor *x)
{
    char text[200];
    if (yk__is_freed(x))
        return yk__fail_freed(what, x);
    if (!x)
        return yk__error_code() ? yk__error_code() : yk__fail(YK_ERR_ARGUMENT, "%s: %s is NULL", what, role);
    for (int d = 0; d < x->ndim; d++)
        if (x->stride[d] == 0 && x->shape[d] > 1)
            return yk__fail(YK_ERR_SHAPE, "%s: %s %s is expanded: several elements share memory", what, role,
                            yk_shape_format(x, text, sizeof(text)));
    return check_device(g, what, role, x);
}

static yk_status check_rank(const char *what, const char *role, const yk__group *g, int rank)
{
    if (rank >= 0 && rank < g->world_size)
        return YK_OK;
    return yk__fail(YK_ERR_ARGUMENT, "%s: %s %d is outside group '%s' of %d ranks", what, role, rank, g->name,
                    g->world_size);
}

static yk_status check_reduction(const char *what, yk_reduce_op op, const yk_tensor *x)
{
    if ((unsigned)op > YK_OP_PRODUCT)
        return yk__fail(YK_ERR_ARGUMENT, "%s: %d is not a reduction", what, (int)op);
    if (op == YK_OP_MEAN && !yk_dtype_is_floating((yk_dtype)x->dtype))
        return yk__fail(YK_ERR_DTYPE, "%s: a mean of %s is not defined; the sum is", what,
                        yk_dtype_name((yk_dtype)x->dtype));
    return YK_OK;
}

/* The bytes from a tensor's first element to the end of its last. */
static void extent(const yk_tensor *x, const char **from, const char **to)
{
    ptrdiff_t size = (ptrdiff_t)yk_dtype_size((yk_dtype)x->dtype);
    *from = *to = x->data;
    for (int d = 0; d < x->ndim; d++)
        *(x->stride[d] < 0 ? from : to) += (ptrdiff_t)(x->shape[d] - 1) * (ptrdiff_t)x->stride[d] * size;
    *to += size;
}

/* True if two tensors may have memory in common; strided tensors whose elements alternate count as such. */
static bool may_overlap(const yk_tensor *a, const yk_tensor *b)
{
    const char *a_from, *a_to, *b_from, *b_to;
    if (a->storage != b->storage || !a->numel || !b->numel)
        return false;
    extent(a, &a_from, &a_to);
    extent(b, &b_from, &b_to);
    return a_from < b_to && b_from < a_to;
}

/* `whole` has `parts` times the elements of `part`, the same dtype, and no memory in common but in its own part. */
static yk_status check_parts(const char *what, const char *whole_role, const yk_tensor *whole, const char *part_role,
                             const yk_tensor *part, int parts, int own)
{
    char a[200], b[200];
    if (whole->dtype != part->dtype)
        return yk__fail(YK_ERR_DTYPE, "%s: %s is %s but %s is %s", what, whole_role,
                        yk_dtype_name((yk_dtype)whole->dtype), part_role, yk_dtype_name((yk_dtype)part->dtype));
    int64_t all;
    if (__builtin_mul_overflow(part->numel, (int64_t)parts, &all))
        all = INT64_MAX;
    if (whole->numel != all)
        return yk__fail(YK_ERR_SHAPE, "%s: %s %s has %lld elements, but %d ranks with %s %s make %lld", what,
                        whole_role, yk_shape_format(whole, a, sizeof(a)), (long long)whole->numel, parts, part_role,
                        yk_shape_format(part, b, sizeof(b)), (long long)all);
    size_t size = yk_dtype_size((yk_dtype)whole->dtype);
    const char *w = whole->data, *p = part->data;
    bool in_place = own >= 0 && p == w + (size_t)part->numel * (size_t)own * size && yk_is_contiguous(whole) &&
                    yk_is_contiguous(part);
    if (may_overlap(whole, part) && !in_place)
        return yk__fail(YK_ERR_ARGUMENT, "%s: %s and %s share memory", what, whole_role, part_role);
    return YK_OK;
}

static yk__call call_of(yk__comm_kind kind, yk_reduce_op op, int peer, yk_tensor *in, yk_tensor *out,
                        const yk_tensor *counted)
{
    return (yk__call){.op = {.kind = kind,
                             .dtype = counted ? (yk_dtype)counted->dtype : YK_F32,
                             .reduction = op,
                             .peer = peer,
                             .tag = -1,
                             .count = counted ? counted->numel : 0},
                      .in = in,
                      .out = out};
}

/* Runs a checked call, as call_start begins one; `g` is NULL where the check refused it. */
static yk_status call_run(yk__group *g, yk__call *call)
{
    return g ? yk__comm_run(g, call) : yk__error_code();
}

static yk_work *call_start(yk__group *g, yk__call *call)
{
    return g ? yk__comm_start(g, call) : NULL;
}

static yk__group *all_reduce_call(yk_tensor *x, yk_reduce_op op, yk_process_group *group, yk__call *call)
{
    yk__group *g = member("all_reduce", group);
    if (!g || check_tensor(g, "all_reduce", "the tensor", x) || check_reduction("all_reduce", op, x))
        return NULL;
    *call = call_of(YK__COMM_ALL_REDUCE, op, -1, x, x, x);
    return g;
}

yk_status yk_all_reduce(yk_tensor *x, yk_reduce_op op, yk_process_group *group)
{
    yk__call call;
    return call_run(all_reduce_call(x, op, group, &call), &call);
}

yk_work *yk_all_reduce_async(yk_tensor *x, yk_reduce_op op, yk_process_group *group)
{
    yk__call call;
    return yk__scope_check("yk_all_reduce_async") ? call_start(all_reduce_call(x, op, group, &call), &call) : NULL;
}

static yk__group *reduce_call(yk_tensor *x, int dst, yk_reduce_op op, yk_process_group *group, yk__call *call)
{
    yk__group *g = member("reduce", group);
    if (!g || check_tensor(g, "reduce", "the tensor", x) || check_reduction("reduce", op, x) ||
        check_rank("reduce", "dst", g, dst))
        return NULL;
    *call = call_of(YK__COMM_REDUCE, op, dst, x, dst == g->rank ? x : NULL, x);
    return g;
}

yk_status yk_reduce(yk_tensor *x, int dst, yk_reduce_op op, yk_process_group *group)
{
    yk__call call;
    return call_run(reduce_call(x, dst, op, group, &call), &call);
}

yk_work *yk_reduce_async(yk_tensor *x, int dst, yk_reduce_op op, yk_process_group *group)
{
    yk__call call;
    return yk__scope_check("yk_reduce_async") ? call_start(reduce_call(x, dst, op, group, &call), &call) : NULL;
}

static yk__group *broadcast_call(yk_tensor *x, int src, yk_process_group *group, yk__call *call)
{
    yk__group *g = member("broadcast", group);
    if (!g || check_tensor(g, "broadcast", "the tensor", x) || check_rank("broadcast", "src", g, src))
        return NULL;
    bool root = src == g->rank;
    *call = call_of(YK__COMM_BROADCAST, YK_OP_SUM, src, root ? x : NULL, root ? NULL : x, x);
    return g;
}

yk_status yk_broadcast(yk_tensor *x, int src, yk_process_group *group)
{
    yk__call call;
    return call_run(broadcast_call(x, src, group, &call), &call);
}

yk_work *yk_broadcast_async(yk_tensor *x, int src, yk_process_group *group)
{
    yk__call call;
    return yk__scope_check("yk_broadcast_async") ? call_start(broadcast_call(x, src, group, &call), &call) : NULL;
}

static yk__group *all_gather_call(yk_tensor *out, yk_tensor *in, yk_process_group *group, yk__call *call)
{
    yk__group *g = member("all_gather", group);
    if (!g || check_tensor(g, "all_gather", "in", in) || check_tensor(g, "all_gather", "out", out) ||
        check_parts("all_gather", "out", out, "in", in, g->world_size, g->rank))
        return NULL;
    *call = call_of(YK__COMM_ALL_GATHER, YK_OP_SUM, -1, in, out, in);
    return g;
}

yk_status yk_all_gather(yk_tensor *out, yk_tensor *in, yk_process_group *group)
{
    yk__call call;
    return call_run(all_gather_call(out, in, group, &call), &call);
}

yk_work *yk_all_gather_async(yk_tensor *out, yk_tensor *in, yk_process_group *group)
{
    yk__call call;
    return yk__scope_check("yk_all_gather_async") ? call_start(all_gather_call(out, in, group, &call), &call) : NULL;
}

static yk__group *gather_call(yk_tensor *out, yk_tensor *in, int dst, yk_process_group *group, yk__call *call)
{
    yk__group *g = member("gather", group);
    if (!g || check_tensor(g, "gather", "in", in) || check_rank("gather", "dst", g, dst))
        return NULL;
    bool root = dst == g->rank;
    if (root &&
        (check_tensor(g, "gather", "out", out) || check_parts("gather", "out", out, "in", in, g->world_size, g->rank)))
        return NULL;
    *call = call_of(YK__COMM_GATHER, YK_OP_SUM, dst, in, root ? out : NULL, in);
    return g;
}

yk_status yk_gather(yk_tensor *out, yk_tensor *in, int dst, yk_process_group *group)
{
    yk__call call;
    return call_run(gather_call(out, in, dst, group, &call), &call);
}

yk_work *yk_gather_async(yk_tensor *out, yk_tensor *in, int dst, yk_process_group *group)
{
    yk__call call;
    return yk__scope_check("yk_gather_async") ? call_start(gather_call(out, in, dst, group, &call), &call) : NULL;
}

static yk__group *scatter_call(yk_tensor *out, yk_tensor *in, int src, yk_process_group *group, yk__call *call)
{
    yk__group *g = member("scatter", group);
    if (!g || check_tensor(g, "scatter", "out", out) || check_rank("scatter", "src", g, src))
        return NULL;
    bool root = src == g->rank;
    if (root &&
        (check_tensor(g, "scatter", "in", in) || check_parts("scatter", "in", in, "out", out, g->world_size, g->rank)))
        return NULL;
    *call = call_of(YK__COMM_SCATTER, YK_OP_SUM, src, root ? in : NULL, out, out);
    return g;
}

yk_status yk_scatter(yk_tensor *out, yk_tensor *in, int src, yk_process_group *group)
{
    yk__call call;
    return call_run(scatter_call(out, in, src, group, &call), &call);
}

yk_work *yk_scatter_async(yk_tensor *out, yk_tensor *in, int src, yk_process_group *group)
{
    yk__call call;
    return yk__scope_check("yk_scatter_async") ? call_start(scatter_call(out, in, src, group, &call), &call) : NULL;
}

static yk__group *reduce_scatter_call(yk_tensor *out, yk_tensor *in, yk_reduce_op op, yk_process_group *group,
                                      yk__call *call)
{
    yk__group *g = member("reduce_scatter", group);
    if (!g || check_tensor(g, "reduce_scatter", "in", in) || check_tensor(g, "reduce_scatter", "out", out) ||
        check_reduction("reduce_scatter", op, in) ||
        check_parts("reduce_scatter", "in", in, "out", out, g->world_size, g->rank))
        return NULL;
    *call = call_of(YK__COMM_REDUCE_SCATTER, op, -1, in, out, out);
    return g;
}

yk_status yk_reduce_scatter(yk_tensor *out, yk_tensor *in, yk_reduce_op op, yk_process_group *group)
{
    yk__call call;
    return call_run(reduce_scatter_call(out, in, op, group, &call), &call);
}

yk_work *yk_reduce_scatter_async(yk_tensor *out, yk_tensor *in, yk_reduce_op op, yk_process_group *group)
{
    yk__call call;
    return yk__scope_check("yk_reduce_scatter_async")
               ? call_start(reduce_scatter_call(out, in, op, group, &call), &call)
               : NULL;
}

/* The splits of x's first dimension as numbers of elements. */
static yk_status split_counts(const char *role, const yk_tensor *x, const int64_t *splits, int ranks, int64_t *counts)
{
    char text[200];
    int64_t rows = x->ndim ? x->shape[0] : 1, row = rows > 0 ? x->numel / rows : 0, sum = 0;
    if (!splits && rows % ranks)
        return yk__fail(YK_ERR_SHAPE, "all_to_all: the first dimension of %s %s does not divide by %d ranks", role,
                        yk_shape_format(x, text, sizeof(text)), ranks);
    for (int r = 0; r < ranks; r++) {
        int64_t n = splits ? splits[r] : rows / ranks;
        if (n < 0 || n > rows - sum)
            return yk__fail(YK_ERR_SHAPE, "all_to_all: split %lld for rank %d of %s %s", (long long)n, r, role,
                            yk_shape_format(x, text, sizeof(text)));
        sum += n;
        counts[r] = n * row;
    }
    if (sum != rows)
        return yk__fail(YK_ERR_SHAPE, "all_to_all: the splits of %s %s add up to %lld", role,
                        yk_shape_format(x, text, sizeof(text)), (long long)sum);
    return YK_OK;
}

static yk__group *all_to_all_call(yk_tensor *out, yk_tensor *in, const int64_t *out_splits, const int64_t *in_splits,
                                  yk_process_group *group, yk__call *call)
{
    yk__group *g = member("all_to_all", group);
    if (!g || check_tensor(g, "all_to_all", "in", in) || check_tensor(g, "all_to_all", "out", out))
        return NULL;
    if (in->dtype != out->dtype) {
        yk__fail(YK_ERR_DTYPE, "all_to_all: in is %s but out is %s", yk_dtype_name((yk_dtype)in->dtype),
                 yk_dtype_name((yk_dtype)out->dtype));
        return NULL;
    }
    if (may_overlap(in, out)) {
        yk__fail(YK_ERR_ARGUMENT, "all_to_all: in and out share memory");
        return NULL;
    }
    *call = call_of(YK__COMM_ALL_TO_ALL, YK_OP_SUM, -1, in, out, in);
    call->op.count = 0;
    call->counts = yk__calloc(2 * (size_t)g->world_size, sizeof(int64_t));
    if (!call->counts)
        return NULL;
    call->op.in_counts = call->counts;
    call->op.out_counts = call->counts + g->world_size;
    if (!split_counts("in", in, in_splits, g->world_size, call->counts) &&
        !split_counts("out", out, out_splits, g->world_size, call->counts + g->world_size))
        return g;
    free(call->counts);
    return NULL;
}

yk_status yk_all_to_all(yk_tensor *out, yk_tensor *in, const int64_t *out_splits, const int64_t *in_splits,
                        yk_process_group *group)
{
    yk__call call;
    return call_run(all_to_all_call(out, in, out_splits, in_splits, group, &call), &call);
}

yk_work *yk_all_to_all_async(yk_tensor *out, yk_tensor *in, const int64_t *out_splits, const int64_t *in_splits,
                             yk_process_group *group)
{
    yk__call call;
    return yk__scope_check("yk_all_to_all_async")
               ? call_start(all_to_all_call(out, in, out_splits, in_splits, group, &call), &call)
               : NULL;
}

static yk__group *barrier_call(yk_process_group *group, yk__call *call)
{
    *call = call_of(YK__COMM_BARRIER, YK_OP_SUM, -1, NULL, NULL, NULL);
    return member("barrier", group);
}

yk_status yk_barrier(yk_process_group *group)
{
    yk__call call;
    return call_run(barrier_call(group, &call), &call);
}

yk_work *yk_barrier_async(yk_process_group *group)
{
    yk__call call;
    return yk__scope_check("yk_barrier_async") ? call_start(barrier_call(group, &call), &call) : NULL;
}

static yk__group *message_call(const char *what, yk__comm_kind kind, yk_tensor *x, int peer, int tag,
                               yk_process_group *group, yk__call *call)
{
    bool send = kind == YK__COMM_SEND;
    yk__group *g = member(what, group);
    if (!g || check_tensor(g, what, "the tensor", x) || check_rank(what, send ? "dst" : "src", g, peer))
        return NULL;
    if (tag < 0) {
        yk__fail(YK_ERR_ARGUMENT, "%s: tag %d is negative", what, tag);
        return NULL;
    }
    *call = call_of(kind, YK_OP_SUM, peer, send ? x : NULL, send ? NULL : x, x);
    call->op.tag = tag;
    return g;
}

static yk__group *send_call(yk_tensor *x, int dst, int tag, yk_process_group *group, yk__call *call)
{
    return message_call("send", YK__COMM_SEND, x, dst, tag, group, call);
}

yk_status yk_send(yk_tensor *x, int dst, int tag, yk_process_group *group)
{
    yk__call call;
    return call_run(send_call(x, dst, tag, group, &call), &call);
}

yk_work *yk_isend(yk_tensor *x, int dst, int tag, yk_process_group *group)
{
    yk__call call;
    return yk__scope_check("yk_isend") ? call_start(send_call(x, dst, tag, group, &call), &call) : NULL;
}

static yk__group *recv_call(yk_tensor *x, int src, int tag, yk_process_group *group, yk__call *call)
{
    return message_call("recv", YK__COMM_RECV, x, src, tag, group, call);
}

yk_status yk_recv(yk_tensor *x, int src, int tag, yk_process_group *group)
{
    yk__call call;
    return call_run(recv_call(x, src, tag, group, &call), &call);
}

yk_work *yk_irecv(yk_tensor *x, int src, int tag, yk_process_group *group)
{
    yk__call call;
    return yk__scope_check("yk_irecv") ? call_start(recv_call(x, src, tag, group, &call), &call) : NULL;
}
