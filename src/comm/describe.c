/*
 * describe.c - operations as text, for messages and traces. Layer: comm.
 */
#include "comm/backend.h"

const char *yk__comm_kind_name(yk__comm_kind kind)
{
    static const char *const names[YK__COMM_KINDS] = {
        [YK__COMM_ALL_REDUCE] = "all_reduce",
        [YK__COMM_REDUCE] = "reduce",
        [YK__COMM_BROADCAST] = "broadcast",
        [YK__COMM_ALL_GATHER] = "all_gather",
        [YK__COMM_GATHER] = "gather",
        [YK__COMM_SCATTER] = "scatter",
        [YK__COMM_REDUCE_SCATTER] = "reduce_scatter",
        [YK__COMM_ALL_TO_ALL] = "all_to_all",
        [YK__COMM_BARRIER] = "barrier",
        [YK__COMM_SEND] = "send",
        [YK__COMM_RECV] = "recv",
    };
    return (unsigned)kind < YK__COMM_KINDS ? names[kind] : "an unknown operation";
}

const char *yk__comm_reduction_name(yk_reduce_op op)
{
    static const char *const names[] = {"sum", "mean", "min", "max", "product"};
    return (unsigned)op < sizeof(names) / sizeof(names[0]) ? names[op] : "an unknown reduction";
}

const char *yk__comm_describe(const yk__comm_op *op, char *buffer, size_t size)
{
    char more[64] = "";
    const char *order = op->deterministic ? ", deterministic" : "";
    unsigned long long number = (unsigned long long)op->number;
    if (op->recorded) {
        snprintf(buffer, size,
                 "replay #%llu of a recorded step (%lld collective%s, the first %s of %s, %lld element%s)", number,
                 (long long)op->recorded, op->recorded == 1 ? "" : "s", yk__comm_kind_name(op->kind),
                 yk_dtype_name(op->dtype), (long long)op->count, op->count == 1 ? "" : "s");
        return buffer;
    }
    if (op->kind == YK__COMM_BARRIER) {
        snprintf(buffer, size, "barrier #%llu", number);
        return buffer;
    }
    if (op->kind == YK__COMM_ALL_TO_ALL) {
        snprintf(buffer, size, "all_to_all #%llu (%s)", number, yk_dtype_name(op->dtype));
        return buffer;
    }
    if (op->kind == YK__COMM_REDUCE)
        snprintf(more, sizeof(more), ", %s%s, to rank %d", yk__comm_reduction_name(op->reduction), order, op->peer);
    else if (yk__comm_reduces(op->kind))
        snprintf(more, sizeof(more), ", %s%s", yk__comm_reduction_name(op->reduction), order);
    else if (op->kind == YK__COMM_SEND || op->kind == YK__COMM_RECV)
        snprintf(more, sizeof(more), ", %s rank %d, tag %d", op->kind == YK__COMM_SEND ? "to" : "from", op->peer,
                 op->tag);
    else if (yk__comm_has_root(op->kind))
        snprintf(more, sizeof(more), ", %s rank %d", op->kind == YK__COMM_GATHER ? "to" : "from", op->peer);
    snprintf(buffer, size, "%s #%llu (%s, %lld element%s%s)", yk__comm_kind_name(op->kind), number,
             yk_dtype_name(op->dtype), (long long)op->count, op->count == 1 ? "" : "s", more);
    return buffer;
}
