/*
 * leaf_sums.c - the gradients of a step, added in the order of the tree over all virtual ranks. Layer: elastic.
 * elastic.
 *
 * A process computes the leaves of a range one after the other. For each bucket of DDP it keeps a stack of the nodes
 * that are complete: a leaf is pushed, and while the two topmost nodes are the children of one node they are added, as
 * carries go when a binary number is counted up. So there are as many tensors of a bucket's size as the range has nodes
 * half done, log2 of its length about, and never one a leaf. Leaves 0 to 5 of 12:
 *
 *   leaf    0      1       2          3       4           5 (in the bucket)
 *   stack   [0]    [0-1]   [0-1][2]   [0-3]   [0-3][4]    [0-3][4-5]
 *
 * The last leaf's backward is the one that DDP synchronises: its hook hands each bucket over when that is complete.
 * The nodes that are left on the stack are then added across the processes:
 *
 *   even    each process has one node, and the tree over processes is the rest of the tree: all_reduce
 *   uneven  the elements are shared out: each process gets every process's nodes for its share (all_to_all), adds them
 *           by the same stack, and all get the results (all_gather)
 *
 * The sum is divided once, by the number of leaves, at the root, as a mean over ranks is. f16 and bf16 are widened to
 * f32 at the leaves and rounded there, too.
 */
#include "elastic/leaf_sums.h"

#include <stdlib.h>

#include "ops/op.h"

struct yk__leaf_sum {
    yk_tensor *of;                    /* the gradients of the bucket, retained: another layout has others */
    yk_tensor *nodes[YK__MOST_NODES]; /* retained; the last may be `of` itself */
    yk__leaves leaves[YK__MOST_NODES];
    int count;
    yk_tensor *spare[YK__MOST_NODES]; /* tensors like them, not in use */
    int n_spare;
    /* Buffers of an uneven reduction: (world, own nodes, share), (all nodes, share) and (world, share). */
    yk_tensor *sent, *received, *result;
};

/* ---- the stack --------------------------------------------------------------------------------------------------- */

static yk__leaves leaves_of(const yk__leaf_sums *s, int process)
{
    return (yk__leaves){s->begin[process], s->begin[process + 1]};
}

void yk__leaf_sums_init(yk__leaf_sums *s, int leaves, int rank, int world, const int *begin)
{
    *s = (yk__leaf_sums){
        .leaves = leaves, .rank = rank, .world = world, .begin = begin, .even = yk__leaves_even(leaves, world, begin)};
    s->mine = leaves_of(s, rank);
}

static void leaf_sum_clear(yk__leaf_sum *sum)
{
    for (int i = 0; i < sum->count; i++)
        yk_tensor_release(sum->nodes[i]);
    for (int i = 0; i < sum->n_spare; i++)
        yk_tensor_release(sum->spare[i]);
    yk_tensor_release(sum->of);
    yk_tensor_release(sum->sent);
    yk_tensor_release(sum->received);
    yk_tensor_release(sum->result);
    *sum = (yk__leaf_sum){0};
}

void yk__leaf_sums_clear(yk__leaf_sums *s)
{
    for (int i = 0; i < s->n_buckets; i++)
        leaf_sum_clear(&s->of_bucket[i]);
    free(s->of_bucket);
    s->of_bucket = NULL;
    s->n_buckets = 0;
}

/* Takes over the reference. */
static void put_aside(yk__leaf_sum *sum, yk_tensor *node)
{
    if (node == sum->of)
        yk_tensor_release(node);
    else
        sum->spare[sum->n_spare++] = node;
}

void yk__leaf_sums_reset(yk__leaf_sums *s)
{
    for (int i = 0; i < s->n_buckets; i++) {
        yk__leaf_sum *sum = &s->of_bucket[i];
        while (sum->count)
            put_aside(sum, sum->nodes[--sum->count]);
    }
}

/* The reference is the caller's. */
static yk_tensor *empty(yk_device device, yk_dtype dtype, int64_t count)
{
    yk_scope scope = yk_scope_begin();
    yk_tensor *x =
        yk_tensor_retain(yk_empty(1, &count, YK_OPTIONS(yk_tensor_options, .dtype = dtype, .device = device)));
    yk_scope_end(scope);
    return x;
}

/* In memory that the ranks of this host see, where the device has such. */
static yk_tensor *shared(yk_device device, yk_dtype dtype, int64_t count)
{
    if (device.type != YK_CPU || device.index)
        return empty(device, dtype, count);
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_tensor_retain(yk_comm_alloc(1, &count, YK_OPTIONS(yk_tensor_options, .dtype = dtype)));
    yk_scope_end(scope);
    return x;
}

static yk_dtype wide_dtype(const yk_tensor *x)
{
    return yk__is_half((yk_dtype)x->dtype) ? YK_F32 : (yk_dtype)x->dtype;
}

static yk_status add_to(yk_tensor *x, yk_tensor *y)
{
    return yk__raw_binary_into("elastic", YK__ADD, x, x, y, 1);
}

static bool joins_top(const yk__leaf_sums *s, const yk__leaf_sum *sum, yk__leaves next)
{
    return sum->count && yk__leaves_join(s->leaves, sum->leaves[sum->count - 1], next);
}

/* A tensor for the sum that a leaf ends in: where it is the process's last, the bucket's own; else that of the node it
 * joins, which has been added (*joined), or another that is not in use. NULL on failure. One reference. */
static yk_tensor *tensor_for(yk__leaf_sum *sum, bool in_place, bool joins)
{
    if (in_place)
        return yk_tensor_retain(sum->of);
    if (joins)
        return sum->nodes[--sum->count];
    if (sum->n_spare)
        return sum->spare[--sum->n_spare];
    return empty(yk__device_of(sum->of), wide_dtype(sum->of), sum->of->numel);
}

/* Pushes the gradients in the bucket as a leaf, and carries. Of the process's last leaf they stay where they are. */
static yk_status push(const yk__leaf_sums *s, yk__leaf_sum *sum, int leaf)
{
    bool half = yk__is_half((yk_dtype)sum->of->dtype);
    bool in_place = leaf == s->mine.end - 1 && !half;
    yk__leaves covers = {leaf, leaf + 1};
    bool joins = !in_place && !half && joins_top(s, sum, covers);
    yk_tensor *to = tensor_for(sum, in_place, joins);
    if (!to)
        return yk__error_code();
    yk_status status = YK_OK;
    if (joins) {
        status = add_to(to, sum->of);
        covers.begin = sum->leaves[sum->count].begin;
    } else if (!in_place) {
        status = yk__raw_copy(to, sum->of);
    }
    while (!status && joins_top(s, sum, covers)) {
        yk_tensor *left = sum->nodes[--sum->count];
        status = add_to(to, left);
        covers.begin = sum->leaves[sum->count].begin;
        put_aside(sum, left);
    }
    sum->nodes[sum->count] = to;
    sum->leaves[sum->count++] = covers;
    return status;
}

/* Finds the sum of a bucket, and clears one that was of another layout. */
static yk_status find_sum(yk__leaf_sums *s, const yk_ddp_bucket *bucket, yk__leaf_sum **sum)
{
    if (bucket->count != s->n_buckets) {
        yk__leaf_sums_clear(s);
        s->of_bucket = yk__calloc((size_t)bucket->count, sizeof(*s->of_bucket));
        if (!s->of_bucket)
            return YK_ERR_MEMORY;
        s->n_buckets = bucket->count;
    }
    *sum = &s->of_bucket[bucket->index];
    if ((*sum)->of == bucket->gradients)
        return YK_OK;
    leaf_sum_clear(*sum);
    (*sum)->of = yk_tensor_retain(bucket->gradients);
    return YK_OK;
}

/* A step's leaves come in their order: what is on the stack ends where this one begins. */
static yk_status check_next(const yk__leaf_sums *s, const yk__leaf_sum *sum, int leaf)
{
    int next = sum->count ? sum->leaves[sum->count - 1].end : s->mine.begin;
    if (next == leaf)
        return YK_OK;
    return yk__fail(YK_ERR_STATE,
                    "elastic: the gradients of virtual rank %d do not follow those of the ones before: parameters have "
                    "moved to another dtype or device, or been frozen, within a step; do so between two steps",
                    leaf);
}

yk_status yk__leaf_sums_add(yk__leaf_sums *s, const yk__reducer *r, int leaf)
{
    yk_status status = YK_OK;
    for (int i = 0; i < r->n_buckets && !status; i++) {
        yk__leaf_sum *sum = NULL;
        status = find_sum(s, &r->buckets[i].bucket, &sum);
        if (!status)
            status = check_next(s, sum, leaf);
        if (!status)
            status = push(s, sum, leaf);
    }
    return status;
}

/* ---- over the processes ------------------------------------------------------------------------------------------ */

/* Elements of a share; the last one's are filled up. */
static int64_t share_of(const yk__leaf_sums *s, const yk__leaf_sum *sum)
{
    return (sum->of->numel + s->world - 1) / s->world;
}

/* `count` elements of x from one on, as a view with one reference. */
static yk_tensor *part_of(yk_tensor *x, int64_t from, int64_t count)
{
    return yk__tensor_view(x, 1, &count, (int64_t[]){1}, from);
}

static yk_status make_room(const yk__leaf_sums *s, yk__leaf_sum *sum, int all_nodes)
{
    if (sum->sent)
        return YK_OK;
    int64_t share = share_of(s, sum);
    yk_device device = yk__device_of(sum->of);
    yk_dtype dtype = wide_dtype(sum->of);
    sum->sent = shared(device, dtype, share * s->world * sum->count);
    sum->received = sum->sent ? shared(device, dtype, share * all_nodes) : NULL;
    sum->result = sum->received ? shared(device, dtype, share * s->world) : NULL;
    return sum->result ? yk__raw_fill(sum->sent, 0) : yk__error_code();
}

/* The shares of this process's nodes, those for one process side by side. */
static yk_status pack(const yk__leaf_sums *s, const yk__leaf_sum *sum)
{
    int64_t share = share_of(s, sum), numel = sum->of->numel;
    yk_status status = YK_OK;
    for (int to = 0; to < s->world && !status; to++) {
        int64_t from = share * to, count = numel - from < share ? numel - from : share;
        for (int i = 0; i < sum->count && count > 0 && !status; i++) {
            yk_tensor *out = part_of(sum->sent, share * (to * sum->count + i), count);
            yk_tensor *in = part_of(sum->nodes[i], from, count);
            status = out && in ? yk__raw_copy(out, in) : yk__error_code();
            yk_tensor_release(out);
            yk_tensor_release(in);
        }
    }
    return status;
}

static yk_work *start_uneven(const yk__leaf_sums *s, yk__leaf_sum *sum, yk_process_group *group)
{
    int64_t *splits = yk__calloc(2 * (size_t)s->world, sizeof(*splits)), share = share_of(s, sum);
    int all = 0;
    for (int p = 0; splits && p < s->world; p++) {
        yk__leaves nodes[YK__MOST_NODES];
        int count = yk__leaves_nodes(s->leaves, leaves_of(s, p), nodes);
        splits[p] = share * count;
        splits[s->world + p] = share * sum->count;
        all += count;
    }
    yk_work *work = NULL;
    if (splits && !make_room(s, sum, all) && !pack(s, sum))
        work = yk_all_to_all_async(sum->received, sum->sent, splits, splits + s->world, group);
    free(splits);
    return work;
}

/* Adds the rows of `received`, the nodes of all processes from the left; *root is the last row, with one reference. */
static yk_status add_rows(const yk__leaf_sums *s, const yk__leaf_sum *sum, yk_tensor **root)
{
    yk__leaves leaves[YK__MOST_NODES];
    yk_tensor *rows[YK__MOST_NODES];
    int count = 0, row = 0;
    int64_t share = share_of(s, sum);
    yk_status status = YK_OK;
    for (int p = 0; p < s->world && !status; p++) {
        yk__leaves nodes[YK__MOST_NODES];
        int own = yk__leaves_nodes(s->leaves, leaves_of(s, p), nodes);
        for (int i = 0; i < own && !status; i++) {
            leaves[count] = nodes[i];
            rows[count++] = part_of(sum->received, share * row++, share);
            status = rows[count - 1] ? YK_OK : yk__error_code();
            while (!status && count > 1 && yk__leaves_join(s->leaves, leaves[count - 2], leaves[count - 1])) {
                yk_tensor *left = rows[count - 2];
                status = add_to(rows[count - 1], left);
                rows[count - 2] = rows[count - 1];
                leaves[count - 2].end = leaves[count - 1].end;
                yk_tensor_release(left);
                count--;
            }
        }
    }
    if (!status && count == 1) {
        *root = rows[0];
        return YK_OK;
    }
    while (count > 0)
        yk_tensor_release(rows[--count]);
    return status ? status : yk__fail(YK_ERR_INTERNAL, "elastic: the nodes of %d leaves have no root", s->leaves);
}

/* Divides by the number of leaves. */
static yk_status divide(const yk__leaf_sums *s, yk_tensor *x)
{
    yk_tensor *by = yk__raw_scalar(s->leaves, (yk_dtype)x->dtype, yk__device_of(x));
    yk_status status = by ? yk__raw_binary_into("elastic", YK__DIV, x, x, by, 1) : yk__error_code();
    yk_tensor_release(by);
    return status;
}

static yk_status finish_uneven(const yk__leaf_sums *s, const yk__leaf_sum *sum, yk_process_group *group)
{
    yk_tensor *root = NULL, *whole = NULL;
    yk_status status = add_rows(s, sum, &root);
    if (!status)
        status = divide(s, root);
    if (!status)
        status = yk_all_gather(sum->result, root, group);
    if (!status) {
        whole = part_of(sum->result, 0, sum->of->numel);
        status = whole ? yk__raw_copy(sum->of, whole) : yk__error_code();
    }
    yk_tensor_release(root);
    yk_tensor_release(whole);
    return status;
}

yk_work *yk__leaf_sums_start(yk__leaf_sums *s, yk_ddp_bucket *bucket)
{
    yk__leaf_sum *sum = NULL;
    int leaf = s->mine.end - 1;
    if (find_sum(s, bucket, &sum) || check_next(s, sum, leaf) || push(s, sum, leaf))
        return NULL;
    if (!s->even)
        return start_uneven(s, sum, bucket->group);
    /* One process has the sum already, and its group nothing to send. */
    return s->world == 1 ? yk_barrier_async(bucket->group)
                         : yk_all_reduce_async(sum->nodes[0], YK_OP_SUM, bucket->group);
}

yk_status yk__leaf_sums_finish(yk__leaf_sums *s, yk_ddp_bucket *bucket)
{
    yk__leaf_sum *sum = &s->of_bucket[bucket->index];
    yk_status status = YK_OK;
    if (s->even) {
        status = divide(s, sum->nodes[0]);
        if (!status && sum->nodes[0] != sum->of) /* rounds */
            status = yk__raw_copy(sum->of, sum->nodes[0]);
    } else {
        status = finish_uneven(s, sum, bucket->group);
    }
    while (sum->count)
        put_aside(sum, sum->nodes[--sum->count]);
    return status;
}
