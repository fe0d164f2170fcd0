/*
 * dist_mark.c - the first phase of a distributed backward: which nodes of this worker take part, and how many gradients
 * each of them will get. Layer: rpc.
 */
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "rpc/dist_task.h"

typedef yk__dist_task task;
typedef yk__dist_entry entry;
typedef yk__dist_term term;
typedef yk__dist_marked marked;
typedef yk__dist_arrival arrival;

/* ---- a task ------------------------------------------------------------------------------------------------------ */

task *yk__dist_task_new(yk_dist_context *c, uint64_t number)
{
    task *t = yk__calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    t->context = c;
    t->number = number;
    pthread_mutex_init(&t->lock, NULL);
    yk__condition_init(&t->came);
    return t;
}

static void terms_free(term *terms)
{
    for (term *x; (x = terms);) {
        terms = x->next;
        yk_tensor_release(x->grad);
        free(x);
    }
}

static void entry_free(task *t, entry *e)
{
    terms_free(e->terms);
    free(e->reached);
    yk__task *claim = (yk__task *)t;
    if (e->node->op && atomic_load_explicit(&e->node->owner, memory_order_relaxed) == claim) {
        for (int o = 0; o < e->node->n_outputs; o++) {
            yk__output *output = &e->node->outputs[o];
            yk_tensor_release(output->grad);
            yk_tensor_release(output->addend);
            output->grad = output->addend = NULL;
        }
        atomic_store_explicit(&e->node->owner, NULL, memory_order_release);
    }
    if (e->leaf)
        yk_tensor_release(e->leaf);
    else
        yk__node_release(e->node);
    free(e);
}

void yk__dist_task_free(task *t)
{
    if (!t)
        return;
    for (int i = 0; i < t->count; i++)
        entry_free(t, t->entries[i]);
    for (marked *m; (m = t->marks);) {
        t->marks = m->next;
        free(m->wanted);
        free(m);
    }
    for (arrival *a; (a = t->inbox);) {
        t->inbox = a->next;
        yk_value_release(a->pairs);
        free(a);
    }
    for (int i = 0; i < t->sent_count; i++)
        yk_future_release(t->sent[i]);
    free(t->entries);
    free(t->heap);
    free(t->sent);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->came);
    free(t);
}

/* ---- marking ----------------------------------------------------------------------------------------------------- */

entry **yk__dist_entry_slot(task *t, const yk__node *node)
{
    entry **at = &t->slots[((uintptr_t)node * 0x9E3779B97F4A7C15u) >> 52];
    while (*at && (*at)->node != node)
        at = &(*at)->same_slot;
    return at;
}

static yk_status node_claim(task *t, yk__node *node)
{
    yk__task *nobody = NULL;
    if (node->freed && !node->op->keeps_nothing)
        return yk__fail(YK_ERR_STATE,
                        "the graph was freed by an earlier backward (at %s); to go through it twice, call the first "
                        "with retain_graph",
                        node->head.name);
    if (!atomic_compare_exchange_strong(&node->owner, &nobody, (yk__task *)t))
        return yk__fail(YK_ERR_STATE, "another backward is walking this graph (at %s)", node->head.name);
    return YK_OK;
}

/* One more gradient will come for this output of the node: its entry, made where there is none. */
static yk_status entry_expect(task *t, yk__node *node, int output)
{
    entry **slot = yk__dist_entry_slot(t, node), *e = *slot;
    if (!e) {
        if (t->count == t->room) {
            int room = t->room ? 2 * t->room : 64;
            entry **entries = yk__realloc(t->entries, (size_t)room * sizeof(*entries));
            if (!entries)
                return YK_ERR_MEMORY;
            t->entries = entries;
            t->room = room;
        }
        bool recv = node->op == &yk__dist_recv_op;
        unsigned char *reached = recv ? yk__calloc((size_t)node->n_outputs, 1) : NULL;
        e = recv && !reached ? NULL : yk__calloc(1, sizeof(*e));
        yk_status status = e ? YK_OK : YK_ERR_MEMORY;
        if (!status && node->op)
            status = node_claim(t, node);
        if (status) {
            free(reached);
            free(e);
            return status;
        }
        *e = (entry){.node = node, .reached = reached};
        if (node->op)
            yk__node_retain(node);
        else
            e->leaf = yk_tensor_retain(node->leaf);
        *slot = e;
        t->entries[t->count++] = e;
        t->left++;
    }
    e->pending++;
    if (e->reached && e->reached[output] == YK__NOT_REACHED)
        e->reached[output] = YK__REACHED_NOW;
    return YK_OK;
}

yk_status yk__dist_walk(task *t)
{
    yk_status status = YK_OK;
    for (; t->walked < t->count && !status; t->walked++) {
        const yk__node *node = t->entries[t->walked]->node;
        for (int i = 0; i < node->n_inputs && !status; i++)
            if (node->edges[i].node)
                status = entry_expect(t, node->edges[i].node, node->edges[i].output);
    }
    return status;
}

yk_status yk__dist_expect(task *t, yk_tensor *x)
{
    int output;
    yk__node *node = yk__gradient_node(x, &output);
    if (!node)
        return yk__error_code() ? yk__error_code()
                                : yk__fail(YK_ERR_STATE, "the tensor does not require a gradient any more");
    return entry_expect(t, node, output);
}

yk_value *yk__dist_found(task *t)
{
    yk_value *found = yk_value_list();
    for (int i = 0; i < t->count && found; i++) {
        entry *e = t->entries[i];
        if (!e->reached)
            continue;
        yk_value *positions = NULL;
        for (int o = 0; o < e->node->n_outputs; o++) {
            if (e->reached[o] != YK__REACHED_NOW)
                continue;
            positions = positions ? positions : yk_value_list();
            e->reached[o] = YK__REACHED_AND_MARKED;
            if (yk_value_append(positions, yk_value_int(o)))
                return NULL;
        }
        const yk__dist_source *source = (const yk__dist_source *)e->node->context;
        if (positions && yk_value_append(found, yk_args(yk_value_int((int64_t)source->from),
                                                        yk_value_int((int64_t)source->message), positions)))
            return NULL;
    }
    return found;
}

marked *yk__dist_marked_of(task *t, uint64_t message)
{
    marked *m = t->marks;
    while (m && m->send->message != message)
        m = m->next;
    return m;
}

/* The tensors of a message at these positions take part. */
static yk_status message_mark(task *t, uint64_t message, const yk_value *positions)
{
    marked *m = yk__dist_marked_of(t, message);
    if (!m) {
        pthread_mutex_lock(&t->context->lock);
        const yk__dist_send *send = t->context->sends;
        while (send && send->message != message)
            send = send->next;
        pthread_mutex_unlock(&t->context->lock);
        if (!send)
            return yk__fail(YK_ERR_NOT_FOUND, "the tensors of a message are not there: the context has ended here");
        m = yk__calloc(1, sizeof(*m));
        bool *flags = m ? yk__calloc(2 * (size_t)send->count, sizeof(*flags)) : NULL;
        if (!flags) {
            free(m);
            return YK_ERR_MEMORY;
        }
        *m = (marked){send, flags, flags + send->count, t->marks};
        t->marks = m;
    }
    yk_status status = YK_OK;
    for (int64_t i = 0; i < yk_value_count(positions) && !status; i++) {
        int64_t position = yk_value_as_int(yk_value_at(positions, i));
        if (position < 0 || position >= m->send->count || m->wanted[position])
            return yk__fail(YK_ERR_FORMAT, "a backward asks for tensor %lld of a message with %d, or twice",
                            (long long)position, m->send->count);
        m->wanted[position] = true;
        status = yk__dist_expect(t, m->send->tensors[position]);
    }
    return status;
}

yk_value *yk__dist_mark(task *t, const yk_value *messages)
{
    yk_status status = YK_OK;
    for (int64_t i = 0; i < yk_value_count(messages) && !status; i++) {
        const yk_value *pair = yk_value_at(messages, i);
        status = message_mark(t, (uint64_t)yk_value_as_int(yk_value_at(pair, 0)), yk_value_at(pair, 1));
    }
    status = status ? status : yk__dist_walk(t);
    return status || yk_last_error() ? NULL : yk__dist_found(t);
}
