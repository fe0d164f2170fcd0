/*
 * collectors.c - those who collect the gradients of many leaves (DDP) learn of every backward that reaches their
 * leaves, or that was to and failed before. Layer: autograd.
 */
#include <stdlib.h>

#include "autograd/engine.h"

/* The collector of the leaf that this node accumulates for; of one whose gradient is only asked for, none. */
static yk__collector *collector_of(const yk__node *node)
{
    return node->op || node->captured ? NULL : node->leaf->leaf_gradient->collector;
}

/* ---- who waits for a backward ----------------------------------------------------------------------------------- */

static pthread_mutex_t awaiting_lock = PTHREAD_MUTEX_INITIALIZER;
static yk__collector *awaiting;

static void forget_locked(yk__collector *c)
{
    for (yk__collector **at = &awaiting; *at; at = &(*at)->next) {
        if (*at == c) {
            *at = c->next;
            return;
        }
    }
}

void yk__collector_await(yk__collector *c)
{
    pthread_mutex_lock(&awaiting_lock);
    forget_locked(c);
    c->thread = pthread_self();
    c->next = awaiting;
    awaiting = c;
    pthread_mutex_unlock(&awaiting_lock);
}

void yk__collector_forget(yk__collector *c)
{
    pthread_mutex_lock(&awaiting_lock);
    forget_locked(c);
    pthread_mutex_unlock(&awaiting_lock);
}

void yk__collectors_fail_awaiting(void)
{
    for (;;) {
        pthread_mutex_lock(&awaiting_lock);
        yk__collector *c = awaiting;
        while (c && !pthread_equal(c->thread, pthread_self()))
            c = c->next;
        if (c)
            forget_locked(c);
        pthread_mutex_unlock(&awaiting_lock);
        if (!c)
            return;
        c->failed(c);
    }
}

yk_status yk__collectors_begin(yk__collectors *c, size_t n_nodes, yk__node *const *nodes)
{
    int *indices = NULL, leaves = 0;
    for (size_t n = 0; n < n_nodes; n++) {
        yk__collector *collector = collector_of(nodes[n]);
        bool known = !collector;
        for (int i = 0; i < c->count && !known; i++)
            known = c->list[i] == collector;
        leaves += collector != NULL;
        if (known)
            continue;
        yk__collector **grown = yk__realloc(c->list, sizeof(*grown) * (size_t)(c->count + 1));
        if (!grown)
            return YK_ERR_MEMORY;
        c->list = grown;
        c->list[c->count++] = collector;
    }
    if (!leaves)
        return YK_OK;
    indices = yk__calloc((size_t)leaves, sizeof(*indices));
    yk_status status = indices ? YK_OK : YK_ERR_MEMORY;
    while (!status && c->begun < c->count) {
        yk__collector *collector = c->list[c->begun];
        int count = 0;
        for (size_t n = 0; n < n_nodes; n++) {
            if (collector_of(nodes[n]) == collector)
                indices[count++] = nodes[n]->leaf->leaf_gradient->collector_index;
        }
        yk__collector_forget(collector);
        status = collector->begin(collector, count, indices);
        c->begun += !status;
    }
    free(indices);
    return status;
}

yk_status yk__collectors_end(yk__collectors *c, yk_status status)
{
    for (int i = 0; i < c->begun; i++) {
        yk_status ended = c->list[i]->end(c->list[i], status);
        status = status ? status : ended;
    }
    free(c->list);
    return status;
}
