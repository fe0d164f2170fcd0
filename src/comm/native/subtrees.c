/*
 * subtrees.c - the parts of a reduction's tree that each host combines. Layer: comm/native.
 *
 * Note [Subtrees of hosts]
 * A node of the tree (Note [The order of a reduction] in combine.c) is complete on a host if all its ranks are there.
 * The complete nodes that lie in no larger one cut the ranks into the inputs that cross between hosts: what a host may
 * add beforehand, and nothing else, since any other sum would be one that the tree does not hold. Hosts of 4 and 4
 * ranks have one each. Those of 3 and 3 have two each: (0 1) and 2, 3 and (4 5). Ranks placed round-robin over hosts
 * are all single, so a host with r ranks sends r values where one would do: place ranks by blocks.
 */
#include <stdlib.h>

#include "comm/native/multihost.h"

/* The host of all ranks of the node, -1: they are on several. */
static int host_of_node(const native *g, int first, int end)
{
    int host = g->members[first].host;
    for (int r = first + 1; r < end; r++)
        if (g->members[r].host != host)
            return -1;
    return host;
}

/* Lists the complete nodes below this one, in the order of ranks. */
static void list_nodes(native *g, int first, int level)
{
    struct yk__native_net *net = g->net;
    int64_t end = (int64_t)first + ((int64_t)1 << level);
    end = end < g->world_size ? end : g->world_size;
    while (level > 0 && first + (1 << (level - 1)) >= g->world_size)
        level--; /* nothing is combined at this node */
    int host = host_of_node(g, first, (int)end);
    if (host >= 0) {
        net->subtrees[net->subtree_count] = (yk__subtree){first, level};
        net->subtree_hosts[net->subtree_count++] = host;
        return;
    }
    list_nodes(g, first, level - 1);
    list_nodes(g, first + (1 << (level - 1)), level - 1);
}

yk_status yk__native_subtrees_init(native *g)
{
    struct yk__native_net *net = g->net;
    net->subtrees = yk__calloc((size_t)g->world_size, sizeof(*net->subtrees));
    net->subtree_hosts = yk__calloc((size_t)g->world_size, sizeof(int));
    if (!net->subtrees || !net->subtree_hosts)
        return yk__error_code();
    int level = 0;
    while (((int64_t)1 << level) < g->world_size)
        level++;
    list_nodes(g, 0, level);
    return YK_OK;
}

void yk__native_subtrees_clear(native *g)
{
    free(g->net->subtrees);
    free(g->net->subtree_hosts);
}

size_t yk__native_subtree_size(const native *g, int i, yk_dtype dtype)
{
    return yk_dtype_size(g->net->subtrees[i].level ? yk__native_wide(dtype) : dtype);
}

yk_status yk__native_subtree_combine(const native *g, int i, const yk__comm_op *op, const char *const *rows, char *out,
                                     int64_t count)
{
    const yk__subtree *node = &g->net->subtrees[i];
    const char *in[NATIVE_MAX_RANKS];
    int ranks = 1 << node->level;
    yk__reduction r = {.reduction = op->reduction,
                       .dtype = op->dtype,
                       .ranks = g->world_size,
                       .inputs = node->first + ranks < g->world_size ? ranks : g->world_size - node->first,
                       .partial = true};
    for (int k = 0; k < r.inputs; k++) /* the tree of ranks from 0 on has the same form */
        in[k] = rows[g->members[node->first + k].local_rank];
    return yk__native_combine(&r, 1, &out, in, count);
}
