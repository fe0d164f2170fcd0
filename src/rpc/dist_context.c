/*
 * dist_context.c - contexts of distributed autograd: what a worker keeps for each, and how tensors of a graph leave it
 * and arrive. Layer: rpc.
 *
 * Invariants: a context is in the list as long as somebody holds it: the thread that began it, the object of the class
 * "yoke.context" by which other workers hold it, a call that runs in it, a future of a call that was made in it. The
 * list's lock is never held while another one is taken.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/node.h"
#include "rpc/dist_autograd.h"
#include "rpc/rpc_call.h"
#include "value/value.h"

static struct {
    pthread_mutex_t lock;
    yk_dist_context *first;
} contexts = {.lock = PTHREAD_MUTEX_INITIALIZER};
static _Thread_local yk_dist_context *current;
static atomic_ullong messages_made, contexts_made;

/* ---- holding ----------------------------------------------------------------------------------------------------- */

/* Lets go of all that it keeps, here and in other workers. */
static void context_clear(yk_dist_context *c)
{
    pthread_mutex_lock(&c->lock);
    struct yk_dist_context old = *c;
    c->task = NULL;
    c->sends = NULL;
    c->leaves = NULL;
    c->peers = NULL;
    c->leaf_count = c->leaf_room = c->peer_count = 0;
    pthread_mutex_unlock(&c->lock);
    yk__dist_task_free(old.task);
    for (yk__dist_send *s; (s = old.sends);) {
        old.sends = s->next;
        for (int i = 0; i < s->count; i++)
            yk_tensor_release(s->tensors[i]);
        free(s->tensors);
        free(s);
    }
    for (int i = 0; i < old.leaf_count; i++) {
        yk_tensor_release(old.leaves[i].leaf);
        yk_tensor_release(old.leaves[i].gradient);
    }
    for (int i = 0; i < old.peer_count; i++)
        yk_ref_release(old.peers[i].ref);
    free(old.leaves);
    free(old.peers);
}

static void context_destroy(void *object)
{
    yk_dist_context *c = object;
    context_clear(c);
    pthread_mutex_destroy(&c->lock);
    yk__object_free(c);
}

static const yk__type context_type = {"context of distributed autograd", context_destroy};

yk_dist_context *yk__dist_get(uint64_t id)
{
    pthread_mutex_lock(&contexts.lock);
    yk_dist_context *c = contexts.first;
    while (c && c->id != id)
        c = c->next;
    if (c) {
        c->holders++;
    } else if ((c = yk__object_new(&context_type, sizeof(*c)))) {
        c->id = id;
        c->holders = 1;
        pthread_mutex_init(&c->lock, NULL);
        c->next = contexts.first;
        contexts.first = c;
    }
    pthread_mutex_unlock(&contexts.lock);
    return c;
}

yk_dist_context *yk__dist_hold(yk_dist_context *c)
{
    if (!c)
        return NULL;
    pthread_mutex_lock(&contexts.lock);
    c->holders++;
    pthread_mutex_unlock(&contexts.lock);
    return c;
}

void yk__dist_put(yk_dist_context *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&contexts.lock);
    bool last = --c->holders == 0;
    for (yk_dist_context **at = &contexts.first; last && *at; at = &(*at)->next)
        if (*at == c) {
            *at = c->next;
            break;
        }
    pthread_mutex_unlock(&contexts.lock);
    if (last)
        yk_object_release(c);
}

int yk__dist_count(void)
{
    pthread_mutex_lock(&contexts.lock);
    int count = 0;
    for (const yk_dist_context *c = contexts.first; c; c = c->next)
        count++;
    pthread_mutex_unlock(&contexts.lock);
    return count;
}

yk_dist_context *yk__dist_current(void)
{
    return current;
}

yk_dist_context *yk__dist_enter(yk_dist_context *c)
{
    yk_dist_context *before = current;
    current = c;
    return before;
}

/* ---- in other workers -------------------------------------------------------------------------------------------- */

static yk_status context_create(yk_call *call)
{
    yk_dist_context *c = yk__dist_get((uint64_t)yk_call_int(call, 0));
    if (!c)
        return yk__error_code();
    yk_call_set_object(call, c);
    return YK_OK;
}

static void context_release(void *object)
{
    yk__dist_put(object);
}

const yk_rpc_class yk__dist_context_class = {.name = "yoke.context",
                                             .create = context_create,
                                             .destroy = context_release,
                                             .methods = (const yk_rpc_method[]){{NULL, NULL}},
                                             .concurrent = true};

static bool context_has_peer(yk_dist_context *c, uint32_t index)
{
    pthread_mutex_lock(&c->lock);
    bool found = false;
    for (int i = 0; i < c->peer_count; i++)
        found = found || c->peers[i].index == index;
    pthread_mutex_unlock(&c->lock);
    return found;
}

yk_status yk__dist_contact(yk_dist_context *c, const char *what, const yk__rpc_member *m)
{
    bool begun_there = c->id >> 40 == m->index;
    if (m->index == yk__rpc.index || begun_there || context_has_peer(c, m->index))
        return YK_OK;
    char shared[40];
    snprintf(shared, sizeof(shared), "yoke.context.%" PRIx64, c->id);
    yk_scope scope = yk_scope_begin();
    yk_ref *ref =
        yk__rpc_remote_at(m, what, yk__dist_context_class.name, yk_args(yk_value_int((int64_t)c->id)), shared);
    /* The call that follows is to find it. */
    yk_value *made = ref ? yk_future_wait(ref->created, YK_NOT_GIVEN) : NULL;
    yk_status status = made ? YK_OK : yk__error_code();
    bool was_there = made && yk_value_kind_of(made) == YK_VALUE_BOOL;
    yk_scope_end(scope);
    if (was_there) { /* another one brought it there, and keeps it: see the tree in dist_autograd.h */
        yk_ref_release(ref);
        ref = NULL;
    }
    if (!status) {
        pthread_mutex_lock(&c->lock);
        struct yk__dist_peer *peers = yk__realloc(c->peers, (size_t)(c->peer_count + 1) * sizeof(*peers));
        if (peers) {
            c->peers = peers;
            peers[c->peer_count++] = (struct yk__dist_peer){m->index, ref};
            ref = NULL;
        } else {
            status = YK_ERR_MEMORY;
        }
        pthread_mutex_unlock(&c->lock);
    }
    yk_ref_release(ref);
    return status;
}

/* ---- tensors that leave and arrive ------------------------------------------------------------------------------- */

static yk_status tensors_push(yk_tensor ***tensors, int *count, int *room, yk_tensor *x)
{
    if (*count == *room) {
        int grown = *room ? 2 * *room : 4;
        yk_tensor **all = yk__realloc(*tensors, (size_t)grown * sizeof(yk_tensor *));
        if (!all)
            return YK_ERR_MEMORY;
        *tensors = all;
        *room = grown;
    }
    (*tensors)[(*count)++] = x;
    return YK_OK;
}

yk_status yk__dist_carry(yk__rpc_carried *carried, yk_tensor *x)
{
    yk_status status = tensors_push(&carried->tensors, &carried->tensor_count, &carried->tensor_room, x);
    if (!status)
        yk_tensor_retain(x);
    return status;
}

yk_status yk__dist_arrive(yk__rpc_arrived *arrived, yk_tensor *x)
{
    if (!yk_dtype_is_floating(yk_tensor_dtype(x)))
        return yk__fail(YK_ERR_FORMAT, "a message with a tensor of %s that is to have a gradient",
                        yk_dtype_name(yk_tensor_dtype(x)));
    return tensors_push(&arrived->tensors, &arrived->count, &arrived->room, x);
}

yk_status yk__dist_sent(yk__rpc_carried *carried)
{
    if (!carried->tensor_count)
        return YK_OK;
    yk__dist_send *s = yk__calloc(1, sizeof(*s));
    if (!s)
        return YK_ERR_MEMORY;
    *s = (yk__dist_send){.message = (uint64_t)yk__rpc.index << 40 | (atomic_fetch_add(&messages_made, 1) + 1),
                         .sequence = yk__sequences_reserve(1),
                         .count = carried->tensor_count,
                         .tensors = carried->tensors};
    carried->message = s->message;
    carried->tensors = NULL;
    carried->tensor_count = carried->tensor_room = 0;
    yk_dist_context *c = carried->context;
    pthread_mutex_lock(&c->lock);
    s->next = c->sends;
    c->sends = s;
    pthread_mutex_unlock(&c->lock);
    return YK_OK;
}

yk_status yk__dist_received(yk_dist_context *c, uint32_t from, uint64_t message, const yk__rpc_arrived *arrived)
{
    if (!c || !message || !arrived->count)
        return YK_OK;
    yk__dist_source source = {c->id, message, from};
    yk__node *node =
        yk__node_make(&yk__dist_recv_op, yk__dist_recv_op.name, arrived->count, arrived->tensors, 0, 0, sizeof(source));
    if (!node)
        return yk__error_code();
    memcpy(node->context, &source, sizeof(source));
    for (int i = 0; i < arrived->count; i++) {
        arrived->tensors[i]->node = yk__node_retain(node);
        arrived->tensors[i]->output = i;
    }
    yk__node_release(node);
    return YK_OK;
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */

/* With the lock. */
static yk__dist_leaf *leaf_find(yk_dist_context *c, const yk_tensor *leaf)
{
    for (int i = 0; i < c->leaf_count; i++)
        if (c->leaves[i].leaf == leaf)
            return &c->leaves[i];
    return NULL;
}

yk_status yk__dist_accumulate(yk_dist_context *c, yk_tensor *leaf, yk_tensor *gradient)
{
    pthread_mutex_lock(&c->lock);
    yk_status status = YK_OK;
    yk__dist_leaf *known = leaf_find(c, leaf);
    if (known) {
        yk_tensor *sum = yk__raw_binary("dist_backward", YK__ADD, known->gradient, gradient, 1);
        status = sum ? YK_OK : yk__error_code();
        yk_tensor_release(gradient);
        if (sum) {
            yk_tensor_release(known->gradient);
            known->gradient = sum;
        }
    } else {
        if (c->leaf_count == c->leaf_room) {
            int room = c->leaf_room ? 2 * c->leaf_room : 16;
            yk__dist_leaf *leaves = yk__realloc(c->leaves, (size_t)room * sizeof(*leaves));
            c->leaves = leaves ? leaves : c->leaves;
            c->leaf_room = leaves ? room : c->leaf_room;
            status = leaves ? YK_OK : YK_ERR_MEMORY;
        }
        if (status)
            yk_tensor_release(gradient);
        else
            c->leaves[c->leaf_count++] = (yk__dist_leaf){yk_tensor_retain(leaf), gradient};
    }
    pthread_mutex_unlock(&c->lock);
    return status;
}

yk_tensor *yk__dist_gradient_of(yk_dist_context *c, const yk_tensor *leaf)
{
    pthread_mutex_lock(&c->lock);
    const yk__dist_leaf *known = leaf_find(c, leaf);
    yk_tensor *gradient = known ? yk_tensor_retain(known->gradient) : NULL;
    pthread_mutex_unlock(&c->lock);
    return gradient;
}

yk_tensor *yk_dist_gradient(yk_dist_context *c, const yk_tensor *leaf)
{
    YK__LIVE(c);
    YK__LIVE(leaf);
    if (!yk__is_there("dist_gradient", "context", c) || !yk__is_there("dist_gradient", "tensor", leaf) ||
        !yk__scope_check("dist_gradient"))
        return NULL;
    yk_tensor *gradient = yk__dist_gradient_of(c, leaf);
    return gradient ? yk__scope_own(gradient) : NULL;
}

/* ---- beginning and ending ---------------------------------------------------------------------------------------- */

yk_dist_context *yk_dist_autograd_begin(void)
{
    if (current) {
        yk__fail(YK_ERR_STATE, "dist_autograd_begin: this thread is in a context already; %s",
                 yk__rpc_current() ? "a function that is called runs in its caller's" : "dist_autograd_end ends it");
        return NULL;
    }
    if (yk__rpc_enter("dist_autograd_begin"))
        return NULL;
    uint64_t id = (uint64_t)yk__rpc.index << 40 | (atomic_fetch_add(&contexts_made, 1) + 1);
    yk__rpc_leave();
    current = yk__dist_get(id);
    return current;
}

yk_status yk_dist_autograd_end(yk_dist_context *c)
{
    YK__LIVE(c);
    if (!c)
        return yk__is_there("dist_autograd_end", "context", NULL) ? YK_OK : yk__error_code();
    const yk_call *call = yk__rpc_current();
    if (c != current || (call && call->context == c))
        return yk__fail(YK_ERR_STATE, "dist_autograd_end: %s",
                        c == current ? "the context is the caller's, who ends it"
                                     : "this thread did not begin the context, or has ended it");
    current = NULL;
    context_clear(c); /* a future that is kept may hold it longer */
    yk__dist_put(c);
    return YK_OK;
}

yk_dist_context *yk_dist_autograd_current(void)
{
    return current;
}
