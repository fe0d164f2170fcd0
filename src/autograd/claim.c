/*
 * claim.c - before a walk: the nodes that a backward is to run, claimed so that no other backward walks them, and the
 * edges into each, counted. Layer: autograd.
 *
 * A backward to all leaves takes everything that its roots reach. One that is to reach some tensors claims as much,
 * then looks from the leaves upwards which nodes lead to one of them, and gives up the others; edges that lead to none
 * are marked as skipped for as long as the walk lasts.
 */
#include <stdlib.h>
#include <string.h>

#include "autograd/engine.h"

void yk__node_list_init(yk__node_list *list)
{
    list->nodes = list->few;
    list->count = 0;
    list->capacity = YK__FEW_NODES;
}

void yk__node_list_free(yk__node_list *list)
{
    if (list->nodes != list->few)
        free(list->nodes);
}

static yk_status list_push(yk__node_list *list, yk__node *node)
{
    if (list->count == list->capacity) {
        bool few = list->nodes == list->few;
        size_t capacity = 4 * list->capacity;
        yk__node **grown = yk__realloc(few ? NULL : list->nodes, capacity * sizeof(*grown));
        if (!grown)
            return YK_ERR_MEMORY;
        if (few)
            memcpy(grown, list->few, sizeof(list->few));
        list->nodes = grown;
        list->capacity = capacity;
    }
    list->nodes[list->count++] = node;
    return YK_OK;
}

static yk_status claim(const char *name, yk__task *task, yk__node_list *claimed, yk__node *node)
{
    yk__task *owner = NULL;
    if (!yk__one_thread())
        atomic_compare_exchange_strong(&node->owner, &owner, task);
    else if (!(owner = atomic_load_explicit(&node->owner, memory_order_relaxed)))
        atomic_store_explicit(&node->owner, task, memory_order_relaxed);
    if (owner)
        return yk__fail(YK_ERR_STATE, "%s: another backward is walking this graph (at %s)", name, node->head.name);
    node->pending = 0;
    return list_push(claimed, node);
}

/* Fails where a node that backward is to run was freed. */
static yk_status check_kept(const char *name, const yk__node *node)
{
    if (!node->freed || !node->op || node->op->keeps_nothing)
        return YK_OK;
    return yk__fail(YK_ERR_STATE,
                    "%s: the graph was freed by an earlier backward (at %s); to go through it twice, call the first "
                    "with retain_graph",
                    name, node->head.name);
}

yk_status yk__claim_graph(const char *name, yk__task *task, yk__node_list *claimed, int n_roots, yk__node *const *roots)
{
    yk_status status = YK_OK;
    for (int r = 0; r < n_roots && !status; r++)
        status = yk__node_owned(task, roots[r]) ? YK_OK : claim(name, task, claimed, roots[r]);
    for (size_t next = 0; next < claimed->count && !status; next++) {
        yk__node *node = claimed->nodes[next];
        status = check_kept(name, node);
        for (int i = 0; i < node->n_inputs && !status; i++) {
            yk__node *input = node->edges[i].node;
            if (!input)
                continue;
            if (atomic_load_explicit(&input->owner, memory_order_relaxed) != task)
                status = claim(name, task, claimed, input);
            if (!status)
                input->pending++;
        }
    }
    return status;
}

/* Accumulators first, then nodes in the order of recording: each after those that it leads to. */
static int compare_nodes(const void *a, const void *b)
{
    const yk__node *x = *(yk__node *const *)a, *y = *(yk__node *const *)b;
    if (!x->op != !y->op)
        return x->op ? 1 : -1;
    return x->sequence < y->sequence ? -1 : x->sequence > y->sequence;
}

/* True for a node that the targeted walk delivers to. */
static bool is_wanted(const yk__task *task, const yk__node *node)
{
    return yk__node_owned(task, node) && (node->captured || !node->skipped);
}

/* The node, claimed, is one of those that are to be reached: a leaf accumulates where gradients are not given back. */
static void set_target(const yk__task *task, yk__node *node, bool gives)
{
    if (!yk__node_owned(task, node))
        return; /* the roots do not reach it */
    if (node->op || gives)
        node->captured = true;
    else
        node->skipped = false;
}

yk_status yk__claim_paths(const char *name, yk__task *task, yk__node_list *claimed, int n_roots, yk__node *const *roots,
                          int n_targets, yk__node *const *targets, bool gives)
{
    uint64_t first = UINT64_MAX; /* nodes recorded earlier than all targets lead to none; leaves are the earliest */
    bool leaves = false;
    for (int t = 0; t < n_targets; t++) {
        leaves = leaves || !targets[t]->op;
        first = targets[t]->sequence < first ? targets[t]->sequence : first;
    }
    yk_status status = YK_OK;
    for (int r = 0; r < n_roots && !status; r++)
        status = yk__node_owned(task, roots[r]) ? YK_OK : claim(name, task, claimed, roots[r]);
    for (size_t next = 0; next < claimed->count && !status; next++) {
        const yk__node *node = claimed->nodes[next];
        for (int i = 0; i < node->n_inputs && !status; i++) {
            yk__node *input = node->edges[i].node;
            bool leads = input && (leaves || (input->op && input->sequence >= first));
            if (leads && !yk__node_owned(task, input))
                status = claim(name, task, claimed, input);
        }
    }
    if (status)
        return status;
    qsort(claimed->nodes, claimed->count, sizeof(*claimed->nodes), compare_nodes);
    for (size_t n = 0; n < claimed->count; n++)
        claimed->nodes[n]->skipped = true;
    for (int t = 0; t < n_targets; t++)
        set_target(task, targets[t], gives);
    size_t kept = 0, count = claimed->count;
    for (size_t n = 0; n < count; n++) {
        yk__node *node = claimed->nodes[n];
        for (int i = 0; i < node->n_inputs; i++) {
            bool leads = is_wanted(task, node->edges[i].node);
            node->edges[i].skipped = !leads;
            node->skipped = node->skipped && !leads;
        }
    }
    for (size_t n = 0; n < count && !status; n++) {
        const yk__node *node = claimed->nodes[n];
        status = node->skipped ? YK_OK : check_kept(name, node);
        for (int i = 0; i < node->n_inputs && !status; i++) {
            if (node->edges[i].node && !node->edges[i].skipped)
                node->edges[i].node->pending++;
        }
    }
    if (status)
        return status;
    for (size_t n = 0; n < count; n++) {
        yk__node *node = claimed->nodes[n];
        if (is_wanted(task, node)) {
            claimed->nodes[kept++] = node;
            continue;
        }
        for (int i = 0; i < node->n_inputs; i++)
            node->edges[i].skipped = false;
        yk__node_unclaim(node);
    }
    claimed->count = kept;
    return YK_OK;
}
